"""Panes need no App: nothing of the screen's settings or state is read here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _at_home() -> None:
    """In place of what tests of the whole screen set up."""

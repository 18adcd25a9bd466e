"""Which cases of a test run on every change, and which in CI alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_fast(values: Iterable[Any]) -> list[Any]:
    """Cases for ``parametrize``: the first as it is, each further one marked slow."""
    first, *others = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in others)]

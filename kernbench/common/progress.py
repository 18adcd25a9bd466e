"""How a long computation reports how far it is, and is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kernbench.errors import KernbenchError

Progress: TypeAlias = Callable[[float], None]
"""Called with the share that is done, 0 to 1. It may raise ``Cancelled``, and a computation
lets that pass: calling progress is how it can be ended."""


class Cancelled(KernbenchError):
    """Whoever asked for a computation does not want its answer any more."""


def no_progress(done: float) -> None:
    """A ``Progress`` for callers who just wait."""

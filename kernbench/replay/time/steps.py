"""Long computations in steps of some ms, with a call of progress between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from kernbench.common.progress import Progress, computed_beside, no_progress

T = TypeVar("T")
PART = 1 << 16  # rows that a handful of numpy calls work on in 1 to 5 ms


def parts(count: int, progress: Progress, size: int = PART) -> Iterator[slice]:
    """Slices of at most ``size`` rows that cover ``count``; progress before each."""
    for low in range(0, count, size):
        progress(low / count)
        yield slice(low, min(low + size, count))


def stage(progress: Progress, low: float, high: float) -> Progress:
    """Progress of one stage of a computation: its 0 to 1 is reported as low to high."""
    if progress is no_progress:
        return progress
    return lambda done: progress(low + (high - low) * done)


def in_one_call(
    compute: Callable[[], T], progress: Progress, done: float, rows: int
) -> T:
    """The result of ``compute()``, some numpy calls that go over ``rows`` rows.

    Where these are many it runs beside calls of ``progress(done)``; few rows are not
    worth the 100 us of a thread.
    """
    if rows > PART:
        return computed_beside(compute, progress, done)
    progress(done)
    return compute()

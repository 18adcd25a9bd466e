"""Long computations in steps of some ms, with a call of progress between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.trace import Trace

T = TypeVar("T")
PART = 1 << 15  # rows that a handful of numpy calls work on in 1 to 4 ms
_MANY = 1 << 16  # rows that are worth a thread


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
    if rows > _MANY:
        return computed_beside(compute, progress, done)
    progress(done)
    return compute()


def map_logs(trace: Trace, progress: Progress, *names: str) -> None:
    """Map some logs of a trace that are going to be read: attributes of these names.

    The first time that takes up to 30 ms a log of a million rows, beside progress.
    """
    for name in names:
        computed_beside(partial(getattr, trace, name), progress, 0.0)

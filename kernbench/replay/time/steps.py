"""Long computations in steps of some ms, with a call of progress between two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kernbench.common.progress import Progress, computed_beside
from kernbench.trace import Trace

PART = 1 << 15  # rows that a handful of numpy calls work on in 1 to 4 ms


def parts(count: int, progress: Progress, size: int = PART) -> Iterator[slice]:
    """Slices of at most ``size`` rows that cover ``count``; progress before each."""
    for low in range(0, count, size):
        progress(low / count)
        yield slice(low, min(low + size, count))


def map_logs(trace: Trace, progress: Progress, *names: str) -> None:
    """Map some logs of a trace that are going to be read: attributes of these names.

    The first time that takes up to 30 ms a log of a million rows, beside progress.
    """
    for name in names:
        computed_beside(partial(getattr, trace, name), progress, 0.0)

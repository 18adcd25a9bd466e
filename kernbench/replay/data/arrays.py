"""What the questions about data share: arrays of answers, and long calls into numpy.

Progress is to be called at least every 10 ms, also while numpy sorts a million numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kernbench.common.arrays import Array
from kernbench.common.progress import Progress, computed_beside

T = TypeVar("T")

MANY = 1 << 16
"""Numbers of which one step in numpy takes some 100 us, and a dozen steps some ms."""


def read_only(*arrays: Array | None) -> None:
    """Make arrays of an answer read-only, as everything else in an answer is frozen."""
    for array in arrays:
        if array is not None:
            array.setflags(write=False)


def beside_if_many(
    count: int, compute: Callable[[], T], progress: Progress, done: float
) -> T:
    """``computed_beside`` for work on more than ``MANY`` numbers, else ``compute()``.

    A thread of its own costs some 100 us, more than a little work takes.
    """
    if count > MANY:
        return computed_beside(compute, progress, done)
    return compute()

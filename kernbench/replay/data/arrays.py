"""What the questions about data share: arrays of answers, and long calls into numpy.

Progress is to be called at least every 10 ms, also while numpy sorts a million numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kernbench.common.arrays import Array
from kernbench.common.progress import Progress, computed_beside, no_progress

T = TypeVar("T")

MANY = 1 << 16
"""Numbers of which one step in numpy takes some 100 us, and a dozen steps some ms."""


def read_only(*arrays: Array | None) -> None:
    """Make arrays of an answer read-only, as everything else in an answer is frozen."""
    for array in arrays:
        if array is not None:
            array.setflags(write=False)


def part_of(progress: Progress, low: float, high: float) -> Progress:
    """The progress of a part of some work, which is its share from ``low`` to ``high``.

    Of ``no_progress`` itself, as who waits for nothing needs no thread beside.
    """
    if progress is no_progress:
        return no_progress
    return lambda done: progress(low + (high - low) * done)


class Pace:
    """Calls ``progress`` of a loop whose turns take from a microsecond to some ms.

    ``step`` is told how many numbers, or bytes, a turn looks at; progress is called
    when that has come to ``16 * MANY`` since the last call, or after 64 turns.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._left = 0

    def step(self, count: int, done: float) -> None:
        """Begin a turn on ``count`` numbers; ``done`` is the share before it."""
        if self._left <= 0:
            self._left = 16 * MANY
            self._progress(done)
        self._left -= count + MANY // 4


def beside_if_many(
    count: int, compute: Callable[[], T], progress: Progress, done: float
) -> T:
    """``computed_beside`` for work on more than ``MANY`` numbers, else ``compute()``.

    A thread of its own costs some 100 us, more than a little work takes. Progress is
    called before that, too: much work may be many such steps.
    """
    progress(done)
    if count > MANY:
        return computed_beside(compute, progress, done)
    return compute()

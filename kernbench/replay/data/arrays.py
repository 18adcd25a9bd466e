"""What the questions about data share: arrays of answers, and the pace of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kernbench.common.arrays import Array
from kernbench.common.progress import MANY, Progress, computed_beside

T = TypeVar("T")


def read_only(*arrays: Array | None) -> None:
    """Make arrays of an answer read-only, as everything else in an answer is frozen."""
    for array in arrays:
        if array is not None:
            array.setflags(write=False)


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

    def turn(self, count: int, compute: Callable[[], T], done: float) -> T:
        """The result of a turn on ``count`` numbers, computed beside if those are many.

        Whatever takes or makes an array of them belongs into ``compute``: of millions
        even the system's pages for it take some ms.
        """
        if count > MANY:
            self._left = 0
            return computed_beside(compute, self._progress, done)
        self.step(count, done)
        return compute()

"""Which rows of a log go on in a window of time, without a look at all of them.

A log is in the order in which its rows were recorded, so those of a moment lie near
each other. Of each block of rows it is known from when to when any of them goes on: a
window looks only into the blocks that may have something for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.resumable import Steps
from kernbench.trace.groups import ranges

BLOCK = 1 << 12
"""Rows of a block: to look at their times takes less than a ms."""

Times: TypeAlias = Callable[["slice | Array"], tuple[Floats, Floats]]
"""Of some rows since when and until when (ns) each goes on, at most."""


def rows_in_window(count: int, times: Times, block: int = BLOCK) -> Steps[RowsInWindow]:
    """What finds the rows of a log of ``count`` rows that go on in any window."""
    low = []
    high = []
    for begin in range(0, count, block):
        yield begin / count
        since, until = times(slice(begin, min(begin + block, count)))
        low.append(since.min())
        high.append(until.max())
    return RowsInWindow(
        count, times, block, np.array(low, np.float64), np.array(high, np.float64)
    )


class RowsInWindow:
    """The rows of a log of ``count`` rows that go on in any window.

    ``low`` and ``high`` are by block from when to when any row of it goes on, ns.
    """

    def __init__(
        self, count: int, times: Times, block: int, low: Floats, high: Floats
    ) -> None:
        self._count = count
        self._times = times
        self._block = block
        self._low = low
        self._high = high

    def most(self, t0: float, t1: float) -> int:
        """The most rows that may go on from t0 to t1 ns."""
        return len(self._blocks(t0, t1)) * self._block

    def of(self, t0: float, t1: float) -> Ints:
        """The rows that go on at any time from t0 to t1 ns, both with them; ascending.

        One that begins when another ends, as of no length, is among them.
        """
        begins = self._blocks(t0, t1) * self._block
        ends = np.minimum(begins + self._block, self._count)
        rows = ranges(begins, ends - begins)
        since, until = self._times(rows)
        return rows[(since <= t1) & (until >= t0)]

    def _blocks(self, t0: float, t1: float) -> Ints:
        return np.flatnonzero((self._low <= t1) & (self._high >= t0))

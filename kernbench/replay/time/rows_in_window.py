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
from kernbench.common.progress import Progress, parts
from kernbench.trace.groups import ranges

BLOCK = 1 << 12
"""Rows of a block: to look at their times takes less than a ms."""

Times: TypeAlias = Callable[["slice | Array"], tuple[Floats, Floats]]
"""Of some rows since when and until when (ns) each goes on, at most."""


class RowsInWindow:
    """The rows of a log of ``count`` rows that go on in any window."""

    def __init__(
        self, count: int, times: Times, progress: Progress, block: int = BLOCK
    ) -> None:
        self._count = count
        self._times = times
        self._block = block
        lows = []
        highs = []
        for part in parts(count, progress, block):
            since, until = times(part)
            lows.append(since.min())
            highs.append(until.max())
        self._low = np.array(lows, np.float64)
        self._high = np.array(highs, np.float64)

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

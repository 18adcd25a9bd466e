"""The ops that some bytes were made by, as a whole: going back through what ops read.

Coarser than a blame, which follows elements: an op belongs to the slice if any byte
that it wrote was used. So it costs little an op, and a trace of any length has one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np

from kernbench.common.progress import Progress
from kernbench.sim_engine.access_columns import AccessColumns

_AT_ONCE = 1 << 10
"""Accesses between two calls of progress."""


class _Bytes:
    """Some bytes of a space, as intervals that do not touch, ascending."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: int, high: int) -> None:
        """Have the bytes from ``low`` to before ``high``, too."""
        first = bisect_left(self._highs, low)
        last = bisect_right(self._lows, high)
        if first < last:
            low = min(low, self._lows[first])
            high = max(high, self._highs[last - 1])
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]

    def take(self, low: int, high: int) -> bool:
        """Have the bytes from ``low`` to before ``high`` no more; whether any was
        there.
        """
        first = bisect_right(self._highs, low)
        last = bisect_left(self._lows, high)
        if first >= last:
            return False
        before = self._lows[first]
        after = self._highs[last - 1]
        lows = []
        highs = []
        if before < low:
            lows.append(before)
            highs.append(low)
        if after > high:
            lows.append(high)
            highs.append(after)
        self._lows[first:last] = lows
        self._highs[first:last] = highs
        return True


def ops_behind(
    touched: AccessColumns,
    places: Iterable[tuple[str, int, int]],
    count: int,
    progress: Progress,
) -> set[int]:
    """The ops that made what ``places`` (space, addr, nbytes) hold after ``count`` ops.

    An op is one if it wrote a byte that nobody overwrote before it was used, by an op
    of the slice or as the end result. ``touched`` are the accesses of all ops, in their
    order.
    """
    wanted = [_Bytes() for _ in touched.spaces]
    for name, addr, nbytes in places:
        if name in touched.spaces:
            wanted[touched.spaces.index(name)].add(addr, addr + nbytes)
    found: set[int] = set()
    accesses = int(np.searchsorted(touched.row, count))
    # The reads of an op stand before its write, so backwards they come after it.
    for end in range(accesses, 0, -_AT_ONCE):
        progress(1.0 - end / accesses)
        part = touched.take(np.arange(max(end - _AT_ONCE, 0), end)[::-1])
        columns = (part.row, part.mode, part.space, part.addr, part.addr + part.nbytes)
        for number, (op, is_write, space, low, high) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            mine = wanted[space]
            pieces = [(low, high)]
            if part.is_in_rows(number):
                rows = part.rows_of(number)
                pieces = [(addr, addr + nbytes) for addr, nbytes in rows.each()]
            if is_write:
                # all of them are taken: a list, so that none is left out
                if any([mine.take(*piece) for piece in pieces]):
                    found.add(op)
            elif op in found:
                for piece in pieces:
                    mine.add(*piece)
    return found

"""How some bytes lie: where they begin, in how many rows, and how far these are apart.

What users are told of the bytes that a DMA of rows shares with somebody else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.rows import Rows


class Spread(NamedTuple):
    """``nbytes`` of memory from ``addr`` to before ``end``, in ``rows`` of them.

    ``row_bytes`` is 0 where rows differ in size, and ``pitch``, the distance of their
    beginnings, where that differs or there is one row only.
    """

    addr: int
    end: int
    nbytes: int
    rows: int
    row_bytes: int
    pitch: int


def spread_of(starts: Ints, sizes: Ints) -> Spread:
    """How ranges of bytes lie, none of which overlaps another; one at least.

    Those that touch are one row.
    """
    order = np.argsort(starts)
    starts = starts[order].astype(np.int64)
    ends = starts + sizes[order]
    is_new = np.append(True, starts[1:] > ends[:-1])
    firsts = np.flatnonzero(is_new)
    lasts = np.append(firsts[1:], len(starts)) - 1
    starts = starts[firsts]
    ends = ends[lasts]
    sizes = ends - starts
    return Spread(
        int(starts[0]),
        int(ends[-1]),
        int(sizes.sum()),
        len(starts),
        _same(sizes),
        _same(np.diff(starts)),
    )


def spread_of_addresses(addresses: Ints) -> Spread:
    """How bytes lie, given by their addresses, ascending."""
    firsts = np.flatnonzero(np.append(True, np.diff(addresses) > 1))
    sizes = np.diff(np.append(firsts, len(addresses)))
    return spread_of(addresses[firsts], sizes)


def spread_of_rows(rows: Rows) -> Spread:
    """How the bytes of rows lie."""
    if rows.planes:
        starts = rows.starts()
        return spread_of(starts, np.full(len(starts), rows.row_bytes))
    addr, number, row_bytes, pitch, _ = rows
    return Spread(addr, addr + rows.span, rows.nbytes, number, row_bytes, pitch)


def shared_bytes(a: Rows, b: Rows) -> Spread:
    """How the bytes lie that are in rows of both; they share one at least."""
    a_starts = np.sort(a.starts())
    b_starts = np.sort(b.starts())
    lows = np.searchsorted(b_starts + b.row_bytes, a_starts, "right")
    highs = np.searchsorted(b_starts, a_starts + a.row_bytes)
    counts = np.maximum(highs - lows, 0)
    mine = np.repeat(np.arange(len(a_starts)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    others = np.repeat(lows, counts) + np.arange(len(mine)) - before
    starts = np.maximum(a_starts[mine], b_starts[others])
    ends = np.minimum(a_starts[mine] + a.row_bytes, b_starts[others] + b.row_bytes)
    return spread_of(starts, ends - starts)


def _same(numbers: Ints) -> int:
    """The number that all of them are; 0 of none, or of different ones."""
    if len(numbers) and (numbers == numbers[0]).all():
        return int(numbers[0])
    return 0

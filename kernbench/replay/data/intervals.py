"""Which of many ranges of bytes overlap one, found without looking at each of them.

A search tree would hold an object a range. Here a range is a number in sorted columns,
4 bytes, and a question is two binary searches for each size that occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Ints, distinct
from kernbench.common.paged import paged
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    no_progress,
)
from kernbench.sim_engine.access_columns import AccessColumns

_STRIDE = 64
"""Every so many-th address of a sorted table is kept beside it, as a landmark."""

_EVERY = 16
"""Questions between two calls of progress; one takes some 20 us."""

_BITS_A_LEVEL = 4
"""Ranges of one level differ in size by less than 2 ** _BITS_A_LEVEL."""


def size_levels(nbytes: Ints) -> Ints:
    """For each size the lowest level with 16 ** level >= size; sizes are positive.

    frexp gives e with 2 ** (e - 1) <= x < 2 ** e: for x = size - 0.5 that is the number
    of bits of size - 1.
    """
    _, bits = np.frexp(nbytes - 0.5)
    return np.asarray(-(-bits // _BITS_A_LEVEL))


def level_bytes(level: int) -> int:
    """The largest size of a level, in bytes."""
    return 1 << (_BITS_A_LEVEL * level)


class _Table(NamedTuple):
    """The ranges of one space whose sizes are of one level, in the order of addresses.

    ``largest`` is the size in bytes that none of them exceeds, ``landmarks`` the
    address of every ``_STRIDE``-th, ``rows`` their numbers in the columns.
    """

    largest: int
    landmarks: Ints
    rows: Ints


class IntervalIndex:
    """The ranges of some access columns, to be asked which of them overlap a range.

    A question costs O(log n) and the ranges of like size nearby: the ranges of a space
    are sorted by address, those of each level of sizes by themselves, so that what
    overlaps starts within a known distance. The addresses stay in the columns; the
    index holds 4 or 8 bytes a range. It never changes once it is made, so any thread
    may ask.
    """

    def __init__(self, columns: AccessColumns) -> None:
        self._columns = columns
        self._tables = _tables(columns)

    def overlapping(self, space: str, addr: int, nbytes: int) -> Ints:
        """The numbers of the ranges that overlap [addr, addr + nbytes), ascending.

        In each table only those are compared that begin less than its largest size
        before ``addr``; the landmarks show which. Rows overlap by their own bytes, and
        not by those between them.
        """
        end = addr + nbytes
        found = [np.empty(0, np.int64)]
        for table in self._tables.get(space, ()):
            reach = (addr - table.largest + 1, end)
            first, last = np.searchsorted(table.landmarks, reach).tolist()
            near = table.rows[max(first - 1, 0) * _STRIDE : last * _STRIDE]
            found.append(near[self._columns.meets(near, addr, end)])
        return np.sort(np.concatenate(found))

    def overlapping_any(
        self, places: Sequence[tuple[str, int, int]], progress: Progress = no_progress
    ) -> Ints:
        """The numbers of the ranges that overlap any of some (space, addr, nbytes).

        They ascend, and each is there once.
        """
        found = [np.empty(0, np.int64)]
        for i, place in enumerate(places):
            if i % _EVERY == 0:
                progress(i / len(places))
            found.append(self.overlapping(*place))
        count = sum(map(len, found))
        return beside_if_many(
            count, lambda: distinct(np.concatenate(found)), progress, 1.0
        )


def _tables(columns: AccessColumns) -> dict[str, list[_Table]]:
    """The tables of each space, the level of the smallest ranges first."""
    tables: dict[str, list[_Table]] = {}
    if not len(columns.row):
        return tables
    few_spaces = len(columns.spaces) < 1 << 10
    small: Any = np.int16 if few_spaces else np.int64
    levels = size_levels(columns.spans).astype(small)
    kinds = columns.space.astype(small) * 16 + levels
    order = np.lexsort((columns.addr, kinds))
    starts = np.flatnonzero(np.diff(kinds[order])) + 1
    for rows in np.split(order, starts):
        one = rows[0]
        table = _Table(
            level_bytes(int(levels[one])),
            columns.addr[rows[::_STRIDE]],
            paged(rows.astype(columns.row.dtype)),
        )
        tables.setdefault(columns.spaces[columns.space[one]], []).append(table)
    return tables

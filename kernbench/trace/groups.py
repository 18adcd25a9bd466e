"""``Groups``: the rows of a column by their value; what joins the logs of a trace."""

from __future__ import annotations

from typing import Self

import numpy as np

from kernbench.common.arrays import Array, Ints, repeated
from kernbench.common.paged import paged
from kernbench.trace.mapped import Column

_SPREAD = 2
"""Values up to so many times the number of rows are looked up in a table."""


class Groups:
    """Which rows of a column hold a value, each in their order.

    ``keys`` are the values. Row i is i, or ``rows[i]`` where ``rows`` is given.
    ``order`` has the rows sorted by value. Most keys number something, so there are few
    more of them than rows: where those of each begin is in a table then, as a search
    among millions of keys misses the cache at every step.
    """

    def __init__(self, keys: Column, rows: Array | None = None) -> None:
        values = np.asarray(keys)
        order = np.argsort(values, kind="stable").astype(np.uint32)
        self._keys = values[order]
        self._begins = _begins(self._keys)
        self.order: Array = order
        if rows is not None:
            self.order = rows[order]

    @classmethod
    def kept(cls, keys: Column, rows: Array | None = None) -> Self:
        """Groups that are kept for as long as a trace is open: large tables of them lie
        in files, see ``paged``.
        """
        groups = cls(keys, rows)
        groups._keys = paged(groups._keys)
        groups._begins = paged(groups._begins)
        groups.order = paged(groups.order)
        return groups

    def of(self, value: int) -> Array:
        """The rows that hold ``value``."""
        low, high = self._places(np.array([value]))
        return self.order[int(low[0]) : int(high[0])]

    def first(self, values: Column) -> Ints:
        """For each of ``values`` the first row that holds it; -1 for none."""
        if not len(self._keys):
            return np.full(len(values), -1)
        low, high = self._places(np.asarray(values))
        rows = self.order[np.minimum(low, len(self._keys) - 1)].astype(np.int64)
        return np.where(low < high, rows, -1)

    def join(self, values: Column) -> tuple[Ints, Array]:
        """For each of ``values`` all rows that hold it, as two columns of pairs.

        They are places in ``values``, ascending, and the rows.
        """
        low, high = self._places(np.asarray(values))
        counts = high - low
        place = repeated(np.arange(len(values)), counts)
        return place, self.order[ranges(low, counts)]

    def _places(self, values: Array) -> tuple[Ints, Ints]:
        """Where the rows of each of ``values`` begin and end in ``order``."""
        most = len(self._begins) - 2
        in_table = (values >= 0) & (values <= most)
        at = np.where(in_table, values, 0).astype(np.intp)
        low = self._begins[at].astype(np.int64)
        high = self._begins[np.minimum(at, most) + 1].astype(np.int64)
        if not in_table.all():
            others = values[~in_table].astype(self._keys.dtype)
            low[~in_table] = np.searchsorted(self._keys, others)
            high[~in_table] = np.searchsorted(self._keys, others, side="right")
        return low, high


def _begins(keys: Array) -> Array:
    """By value from 0 on how many of ``keys``, which are sorted, are below it.

    Up to the largest key, or that which is not many times their number.
    """
    if keys.dtype.kind not in "iu" or not len(keys):
        return np.zeros(1, np.uint32)
    most = min(int(keys[-1]), _SPREAD * len(keys))
    if most < 0:
        return np.zeros(1, np.uint32)
    # Counting them is faster, and keeps other threads waiting meanwhile.
    begins = np.searchsorted(keys, np.arange(most + 1).astype(keys.dtype))
    end = np.searchsorted(keys, keys.dtype.type(most), side="right")
    return np.append(begins, end).astype(np.uint32)


def ranges(firsts: Ints, counts: Ints) -> Ints:
    """The numbers of some ranges, one range after the other: ``counts[i]`` from
    ``firsts[i]`` on.
    """
    before = np.cumsum(counts) - counts
    return np.asarray(repeated(firsts - before, counts) + np.arange(counts.sum()))

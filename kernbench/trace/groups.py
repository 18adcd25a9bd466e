"""``Groups``: the rows of a column by their value; what joins the logs of a trace."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.paged import paged
from kernbench.trace.mapped import Column


class Groups:
    """Which rows of a column hold a value, each in their order.

    ``keys`` are the values. Row i is i, or ``rows[i]`` where ``rows`` is given.
    ``order`` has the rows sorted by value.
    """

    def __init__(self, keys: Column, rows: Array | None = None) -> None:
        values = np.asarray(keys)
        order = np.argsort(values, kind="stable").astype(np.uint32)
        self._keys = values[order]
        self.order: Array = order
        if rows is not None:
            self.order = rows[order]

    def page(self) -> None:
        """Put large tables into files, see ``paged``: for those that are kept."""
        self._keys = paged(self._keys)
        self.order = paged(self.order)

    def of(self, value: int) -> Array:
        """The rows that hold ``value``."""
        key = self._keys.dtype.type(value)
        low = int(np.searchsorted(self._keys, key, "left"))
        high = int(np.searchsorted(self._keys, key, "right"))
        return self.order[low:high]

    def first(self, values: Column) -> Ints:
        """For each of ``values`` the first row that holds it; -1 for none."""
        if not len(self._keys):
            return np.full(len(values), -1)
        values = values.astype(self._keys.dtype)
        place = np.searchsorted(self._keys, values)
        place = np.minimum(place, len(self._keys) - 1)
        rows = self.order[place].astype(np.int64)
        return np.where(self._keys[place] == values, rows, -1)

    def join(self, values: Column) -> tuple[Ints, Array]:
        """For each of ``values`` all rows that hold it, as two columns of pairs.

        They are places in ``values``, ascending, and the rows.
        """
        values = values.astype(self._keys.dtype)
        low = np.searchsorted(self._keys, values)
        counts = np.searchsorted(self._keys, values, side="right") - low
        place = np.repeat(np.arange(len(values)), counts)
        return place, self.order[ranges(low, counts)]


def ranges(firsts: Ints, counts: Ints) -> Ints:
    """The numbers of some ranges, one range after the other: ``counts[i]`` from
    ``firsts[i]`` on.
    """
    before = np.cumsum(counts) - counts
    return np.asarray(np.repeat(firsts - before, counts) + np.arange(counts.sum()))

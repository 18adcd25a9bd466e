"""``Groups``: the rows of a column by their value; what joins the logs of a trace."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array


class Groups:
    """Which of ``rows`` (None: all, by number) hold a value in ``keys``, each in their order."""

    def __init__(self, keys: Array, rows: Array | None = None) -> None:
        order = np.argsort(keys, kind="stable").astype(np.uint32)
        self._keys, self.order = keys[order], order if rows is None else rows[order]

    def of(self, value: int) -> Array:
        """The rows that hold ``value``."""
        key = self._keys.dtype.type(value)
        low, high = (
            int(np.searchsorted(self._keys, key, side)) for side in ("left", "right")
        )
        return self.order[low:high]

    def first(self, values: Array) -> Array:
        """For each of ``values`` the first row that holds it; -1 for none."""
        if not len(self._keys):
            return np.full(len(values), -1)
        values = values.astype(self._keys.dtype)
        place = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        return np.where(
            self._keys[place] == values, self.order[place].astype(np.int64), -1
        )

    def join(self, values: Array) -> tuple[Array, Array]:
        """For each of ``values`` the rows that hold it: places in ``values``, and the rows."""
        values = values.astype(self._keys.dtype)
        low = np.searchsorted(self._keys, values)
        counts = np.searchsorted(self._keys, values, side="right") - low
        place = np.repeat(np.arange(len(values)), counts)
        skipped = np.cumsum(counts) - counts
        return place, self.order[np.arange(len(place)) + (low - skipped)[place]]

"""Columns of a log that stay in the mapped file: what looks at a few rows reads those only.

Memory holds no copy: pages of the file are the system's, which may drop them at any time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernbench.common.arrays import Array
from kernbench.trace.schema import LOGS, Columns

Read: TypeAlias = Callable[[Array], Array]


class Stored(NDArrayOperatorsMixin):
    """A column of all frames where it lies in the file; what is asked for of it is an array.

    ``parts`` are views of ``data``; ``read`` makes values of what they hold, as ``load``. It does
    what an array does, but holds nothing: a caller who needs all of it twice keeps ``column[:]``.
    """

    def __init__(
        self, data: Any, parts: list[Array], load: Any, read: Read | None = None
    ) -> None:
        self._data, self._parts, self._load, self._read = (
            data,
            parts,
            np.dtype(load),
            read,
        )
        self.firsts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.firsts[-1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # numpy asks for what would share memory
            raise AttributeError(name)
        return getattr(self[:], name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **more: Any) -> Any:
        arrays = (x[:] if isinstance(x, Stored) else x for x in given)
        return getattr(ufunc, method)(*arrays, **more)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice) and at.step in (None, 1):
            low, high, _ = at.indices(len(self))
            some = slice(
                bisect_right(self.firsts, low) - 1, bisect_left(self.firsts, high)
            )
            pairs = zip(self._parts[some], self.firsts[some], strict=True)
            views = (
                part[max(low - first, 0) : max(high - first, 0)]
                for part, first in pairs
            )
            found = np.concatenate([np.empty(0, self._load), *views], dtype=self._load)
        elif isinstance(at, int | np.integer):
            row = range(len(self))[at]
            part = bisect_right(self.firsts, row) - 1
            found = self._load.type(self._parts[part][row - self.firsts[part]])
            return found if self._read is None else self._read(found[None])[0]
        else:
            rows = None if isinstance(at, slice | tuple) else np.asarray(at)
            if rows is None or rows.dtype.kind not in "iu" or rows.size * 4 > len(self):
                return self[:][at]
            found = self._taken(rows)
        return found if self._read is None else self._read(found)

    @cached_property
    def _places(self) -> tuple[list[Array], Array, Array, Array]:
        """Views of all ``data``, and of each part its view, how far its rows are off, its first."""
        views, which, off = dict[Any, Array](), list[int](), list[int]()
        start = _address(np.frombuffer(self._data, np.uint8))
        for part, first in zip(self._parts, self.firsts, strict=False):
            place, skipped = divmod(_address(part) - start, size := part.itemsize)
            if (key := (part.dtype, skipped)) not in views:
                length = (len(self._data) - skipped) // size
                views[key] = np.ndarray((length,), part.dtype, self._data, skipped)
            which.append([*views].index(key))
            off.append(place - first)
        return [*views.values()], np.array(which), np.array(off), np.array(self.firsts)

    def _taken(self, rows: Array) -> Array:
        if not rows.size:
            return np.empty(rows.shape, self._load)
        low, high, n = int(rows.min()), int(rows.max()), len(self)
        if low < -n or high >= n:
            raise IndexError(f"rows {low} to {high} of {n}")
        rows = np.where(rows < 0, rows + n, rows) if low < 0 else rows
        views, which, off, firsts = self._places
        part = np.searchsorted(firsts, rows, side="right") - 1
        places = rows + off[part]
        found = np.empty(rows.shape, self._load)
        for number, view in enumerate(views):
            mine = which[part] == number if len(views) > 1 else ...
            found[mine] = view[places[mine]]
        return found


class Ends(Stored):
    """The sums of all before: of a 0 and the counts ``NAME_n``, where lists of ``NAME`` end."""

    def __getitem__(self, at: Any) -> Any:
        return np.cumsum(super().__getitem__(slice(None)))[at]


def join_columns(
    tag: str, parts: Sequence[Columns], data: Any, read: Mapping[str, Read]
) -> dict[str, Stored]:
    """The columns of all frames of a log in ``data``, those named in ``read`` as that has them.

    ``NAME_ptr`` (n + 1) cuts up a list column ``NAME``.
    """
    joined = dict[str, Stored]()
    for name, column in LOGS[tag].items():
        views = [part[name] for part in parts]
        joined[name] = Stored(data, views, column.load, read.get(name))
        if column.many:
            counts = [np.zeros(1, np.uint8), *(part[f"{name}_n"] for part in parts)]
            joined[f"{name}_ptr"] = Ends(data, counts, np.int64)
    return joined


def counter(chunks: list[tuple[int, int, int]]) -> Read:
    """Makes of rows as recorded those counted here: of damaged chunks, and of "none", -1.

    ``chunks`` are the sound ones: the first row as recorded, the first as counted, how many.
    """
    firsts, bases, sizes = np.array(chunks or [(0, 0, 0)]).T

    def counted(recorded: Array) -> Array:
        rows = recorded.astype(np.int64)
        if firsts[-1] == bases[-1]:  # no chunk is lost
            rows[rows >= bases[-1] + sizes[-1]] = -1
            return rows
        at = np.searchsorted(firsts, rows, side="right") - 1
        offset = rows - firsts[at]
        return np.where((at >= 0) & (offset < sizes[at]), bases[at] + offset, -1)

    return counted


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])

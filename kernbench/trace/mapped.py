"""Columns of a log that stay in the mapped file.

Memory holds no copy of them: the pages of the file are the system's, which may drop
them at any time. Whoever looks at a few rows reads the pages of those rows only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernbench.common.arrays import Array, Bools
from kernbench.trace.caching import cached_without_lock

Scalar = TypeVar("Scalar", bound=np.generic)

Translate: TypeAlias = Callable[[Array], Array]
"""Makes values of the numbers that a file holds, element by element."""

Rows: TypeAlias = "slice | Sequence[int] | tuple[Any, ...] | Array | MappedColumn[Any]"
"""What picks rows of a column, as of an array."""

Column: TypeAlias = "Array | MappedColumn[Any]"
"""A column, in memory or mapped."""

_FEW = 4
"""A column is gathered row by row if less than one in so many rows is asked for."""

_LEAST_BITS = 5
"""Blocks of fewer rows than 2 ** that are not worth a table."""


class _Layout(NamedTuple):
    """Where the rows of a column lie in the file, so that one step gathers any of them.

    ``views`` are arrays over the whole file, one for each type and alignment that the
    parts of the column have. Row r of part p is element ``r + shift[p]`` of the array
    ``views[view_of[p]]``; part p begins with row ``firsts[p]``, and behind them all is
    the number of rows. ``part_of_block`` says in which part each block of 2 **
    ``block_bits`` rows begins; it ends in that part or in the next, as no part is
    shorter, but the last. It is empty where a part has so few rows that it would take
    more than it is worth.
    """

    views: list[Array]
    view_of: Array
    shift: Array
    firsts: Array
    block_bits: int
    part_of_block: Array

    def parts_of(self, rows: Array) -> Array:
        """The part of each of some rows."""
        if not len(self.part_of_block):
            return np.searchsorted(self.firsts, rows, side="right") - 1
        part = self.part_of_block.take(rows >> self.block_bits)
        part += rows >= self.firsts.take(part + 1)
        return part


class MappedColumn(NDArrayOperatorsMixin, Generic[Scalar]):
    """A column of a log: the rows of all frames, where they lie in the file.

    It can be indexed and computed with as if it were an array of one dimension, and
    numpy's functions take it as one. What comes back are arrays and scalars of numpy.
    Nothing is kept: who needs all of a column twice keeps ``column[:]``.

    ``parts`` are the views of ``data``, the mapped file, one a frame. They may be of
    different widths; ``stored_as`` is the type that holds the values of all. With
    ``translate`` the column gives what that makes of the stored values.
    """

    def __init__(
        self,
        data: Any,
        parts: Sequence[Array],
        stored_as: npt.DTypeLike,
        translate: Translate | None = None,
    ) -> None:
        self._data = data
        self._parts = parts
        self._stored_as: np.dtype[Any] = np.dtype(stored_as)
        self._translate = translate
        self.firsts = [0, *accumulate(map(len, parts))]
        """The first row of each frame, and behind them the number of rows."""

    def __len__(self) -> int:
        return self.firsts[-1]

    @property
    def dtype(self) -> np.dtype[Scalar]:
        """The type of the values."""
        return self[:0].dtype

    @overload
    def __getitem__(self, at: int | np.integer[Any]) -> Scalar: ...
    @overload
    def __getitem__(self, at: Rows) -> npt.NDArray[Scalar]: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice) and at.step in (None, 1):
            found = self._run(at)
        elif isinstance(at, int | np.integer):
            return self._one(at)
        else:
            if isinstance(at, slice | tuple):
                return self[:][at]
            rows = np.asarray(at)
            if rows.dtype.kind not in "iu" or rows.size * _FEW > len(self):
                return self[:][at]
            found = self._gathered(rows)
        if self._translate is None:
            return found
        return self._translate(found)

    def _one(self, at: int | np.integer[Any]) -> Any:
        """The value of a row; IndexError if it is not there."""
        part, place = self._place_of(int(at))
        value = self._stored_as.type(self._parts[part][place])
        if self._translate is None:
            return value
        return self._translate(value[None])[0]

    def _place_of(self, row: int) -> tuple[int, int]:
        """The part that a row lies in, and where there; IndexError if it is not
        there.
        """
        length = len(self)
        if not -length <= row < length:
            raise IndexError(f"row {row} of {length}")
        row %= length
        part = bisect_right(self.firsts, row) - 1
        return part, row - self.firsts[part]

    def _run(self, rows: slice) -> Array:
        """Rows that follow each other, as they are stored."""
        low, high, _ = rows.indices(len(self))
        first_part = bisect_right(self.firsts, low) - 1
        end_part = bisect_left(self.firsts, high)
        pieces = [np.empty(0, self._stored_as)]
        for number in range(first_part, end_part):
            first = self.firsts[number]
            piece = self._parts[number][max(low - first, 0) : max(high - first, 0)]
            pieces.append(piece)
        return np.concatenate(pieces, dtype=self._stored_as)

    def _gathered(self, rows: Array) -> Array:
        """Some rows, as they are stored; IndexError if one of them is not there."""
        if not rows.size:
            return np.empty(rows.shape, self._stored_as)
        if rows.size == 1:  # as most often, and then a fifth of the time
            number, place = self._place_of(int(rows.item()))
            one = self._parts[number][place : place + 1]
            return np.asarray(one.astype(self._stored_as).reshape(rows.shape))
        length = len(self)
        low = int(rows.min())
        high = int(rows.max())
        if low < -length or high >= length:
            raise IndexError(f"rows {low} to {high} of {length}")
        if low < 0:
            rows = np.where(rows < 0, rows + length, rows)
        layout = self._layout
        part = layout.parts_of(rows)
        places = rows + layout.shift.take(part)
        if len(layout.views) == 1:
            return layout.views[0].take(places).astype(self._stored_as, copy=False)
        found = np.empty(rows.shape, self._stored_as)
        view_of_row = layout.view_of[part]
        for number, view in enumerate(layout.views):
            mine = view_of_row == number
            found[mine] = view[places[mine]]
        return found

    @cached_without_lock
    def _layout(self) -> _Layout:
        """Where the parts lie in the file; a few numbers for each of them."""
        views: dict[tuple[np.dtype[Any], int], Array] = {}
        view_of: list[int] = []
        shift: list[int] = []
        start = _address(np.frombuffer(self._data, np.uint8))
        for part, first in zip(self._parts, self.firsts, strict=False):
            # A part need not lie at a multiple of its width: then the view of the file
            # that holds it begins some bytes later.
            place, skipped = divmod(_address(part) - start, part.itemsize)
            key = (part.dtype, skipped)
            if key not in views:
                length = (len(self._data) - skipped) // part.itemsize
                views[key] = np.ndarray((length,), part.dtype, self._data, skipped)
            view_of.append([*views].index(key))
            shift.append(place - first)
        firsts = np.array(self.firsts)
        bits = int(np.diff(firsts)[:-1].min(initial=len(self))).bit_length() - 1
        begins = np.arange(0)
        if bits >= _LEAST_BITS:
            begins = np.arange(0, len(self), 1 << bits)
        part_of_block = np.searchsorted(firsts, begins, side="right") - 1
        return _Layout(
            [*views.values()],
            np.array(view_of),
            np.array(shift),
            firsts,
            bits,
            part_of_block.astype(np.int32),
        )

    # -- as an array --------------------------------------------------------------

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> npt.NDArray[Scalar]:
        """All of it, for the functions of numpy that take arrays."""
        return np.asarray(self[:], dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: Any, *inputs: Any, **kwargs: Any
    ) -> Any:
        """What numpy's operators and ufuncs make of a column: what they make of all."""
        arrays = [x[:] if isinstance(x, MappedColumn) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def astype(self, dtype: npt.DTypeLike) -> Array:
        """All values as another type."""
        return self[:].astype(dtype)

    def tolist(self) -> list[Any]:
        """All values as Python's numbers."""
        values: list[Any] = self[:].tolist()
        return values

    def max(self, **options: Any) -> Any:
        """The largest value, with the options of numpy's ``max``, as ``initial``."""
        return self[:].max(**options)

    def min(self, **options: Any) -> Any:
        """The smallest value, with the options of numpy's ``min``, as ``initial``."""
        return self[:].min(**options)

    if TYPE_CHECKING:
        # numpy's mixin defines the operators, and says of none what it gives.
        def __lt__(self, other: Any) -> Bools: ...
        def __le__(self, other: Any) -> Bools: ...
        def __gt__(self, other: Any) -> Bools: ...
        def __ge__(self, other: Any) -> Bools: ...
        def __eq__(self, other: Any) -> Bools: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Bools: ...  # type: ignore[override]
        def __add__(self, other: Any) -> Array: ...
        def __radd__(self, other: Any) -> Array: ...
        def __sub__(self, other: Any) -> Array: ...
        def __rsub__(self, other: Any) -> Array: ...
        def __mul__(self, other: Any) -> Array: ...
        def __rmul__(self, other: Any) -> Array: ...
        def __truediv__(self, other: Any) -> Array: ...


class ListPointers(MappedColumn[np.int64]):
    """Where the lists of a column begin and end: 0, then the sums of all counts so far.

    List i of n is the values from ``pointers[i]`` to before ``pointers[i + 1]``, so
    there are n + 1 of them. ``parts`` are a 0 and the counts of each frame.
    """

    def __getitem__(self, at: Any) -> Any:
        counts = super().__getitem__(slice(None))
        return np.cumsum(counts)[at]


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])

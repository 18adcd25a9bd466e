"""Bytes by (space, address), held as numpy arrays (ADR-0052 D6, ADR-0020 D7).

Owns the extents of every space and how they are cut. An array is stored by reference
and never mutated, so snapshots and undo share arrays instead of copying them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from kernbench.common.arrays import Array
from kernbench.common.dtypes import np_dtype
from kernbench.common.rows import Rows
from kernbench.errors import MemoryStoreError


class _Extents(dict[int, Array]):
    """Address -> array of one space. Extents never overlap.

    ``starts`` are its keys, sorted.
    """

    __slots__ = ("starts",)

    def __init__(self, other: _Extents | None = None) -> None:
        super().__init__(other or {})
        self.starts: list[int] = [] if other is None else other.starts.copy()

    def overlapping(self, low: int, high: int) -> slice:
        """The slice of ``starts`` whose extents have a byte in [low, high).

        The range must not be empty.
        """
        first = bisect_right(self.starts, low)
        if first:
            before = self.starts[first - 1]
            if before + self[before].nbytes > low:
                first -= 1
        return slice(first, bisect_left(self.starts, high, lo=first))

    def carve(self, low: int, high: int) -> None:
        """Drop the bytes of [low, high).

        What is left of an extent becomes views before and after them.
        """
        kept: dict[int, Array] = {}
        within = self.overlapping(low, high)
        for start in self.starts[within]:
            array = self.pop(start)
            if start < low:
                kept[start] = _cut(array, 0, low - start)
            if start + array.nbytes > high:
                kept[high] = _cut(array, high - start, array.nbytes)
        self.starts[within] = kept
        self.update(kept)


def reinterpret(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Contiguous ``array`` as another shape and dtype; a copy only if misaligned.

    Raises MemoryStoreError unless both have as many bytes.
    """
    wanted = prod(shape) * dtype.itemsize
    if array.nbytes != wanted:
        raise MemoryStoreError(
            f"{array.nbytes} bytes of {array.dtype}{array.shape} asked for as "
            f"{dtype}{shape}, which is {wanted} bytes; ask for as many as there are"
        )
    if array.shape == shape and array.dtype == dtype:
        return array
    if not array.nbytes:
        return np.empty(shape, dtype)
    flat = array.reshape(-1).view(dtype)
    if not flat.flags.aligned:
        flat = flat.copy()
    return flat.reshape(shape)


def _cut(array: Array, low: int, high: int) -> Array:
    """Bytes [low, high) of ``array`` as a view.

    It keeps the array's dtype where no element is split, and is bytes else.
    """
    if low == 0 and high == array.nbytes:
        return array
    flat = array.reshape(-1)
    size = array.dtype.itemsize
    if low % size or high % size:
        return flat.view(np.uint8)[low:high]
    return flat[low // size : high // size]


def _rows_in(span: Array, rows: Rows) -> Array:
    """The rows as a view of the bytes from the first of them on, an axis for each."""
    counts = [count for count, _ in rows.axes]
    pitches = [pitch for _, pitch in rows.axes]
    return as_strided(
        span, (*counts, rows.row_bytes), (*pitches, 1), writeable=span.flags.writeable
    )


_NOTHING = _Extents()  # a space that was never written


class MemoryStore:
    """Bytes by space and address.

    ``write``, ``read``, ``has`` and ``snapshot`` are ADR-0052 D6 and speak of exact
    keys; ``view``, ``patch`` and ``drop`` speak of byte ranges. An array of no bytes is
    not stored and can be viewed anywhere. With ``fill``, bytes never written can be
    viewed too, and hold that value.
    """

    fill: int | None = None

    def __init__(self, fill: int | None = None) -> None:
        self._storage: dict[str, _Extents] = {}
        if fill is not None:
            self.fill = fill

    def write(self, space: str, addr: int, data: Array) -> None:
        """Store the reference to ``data`` at its key.

        Older extents lose the bytes that it covers. Raises MemoryStoreError for an
        array that is not C-contiguous or not of plain bytes.
        """
        if not data.flags.c_contiguous or data.dtype.hasobject:
            raise MemoryStoreError(
                f"{space} {addr:#x}: array {data.dtype}{data.shape} with strides "
                f"{data.strides} is not C-contiguous plain data; copy it first "
                "(np.ascontiguousarray)"
            )
        if not data.nbytes:
            return
        extents = self._storage.get(space)
        if extents is None:
            extents = self._storage[space] = _Extents()
        old = extents.get(addr)
        if old is None or old.nbytes != data.nbytes:
            extents.carve(addr, addr + data.nbytes)
            extents.starts.insert(bisect_left(extents.starts, addr), addr)
        extents[addr] = data

    patch = write  # the name of a write inside or across extents

    def read(
        self,
        space: str,
        addr: int,
        shape: tuple[int, ...] | None = None,
        dtype: str | None = None,
    ) -> Array:
        """The array stored at exactly ``addr``, itself or reinterpreted.

        It is no copy (D6.3). Without a ``shape``, another dtype changes the last axis,
        as in numpy. Raises MemoryStoreError (a ValueError) if no array begins there or
        the byte counts differ.
        """
        array = self._storage.get(space, _NOTHING).get(addr)
        if array is None:
            raise self._missing(space, addr, 0, addr)
        wanted = array.dtype if dtype is None else np_dtype(dtype)
        if shape is None:
            shape = array.shape
            if wanted.itemsize != array.itemsize:
                outer = shape[:-1]
                row = shape[-1] if shape else 1
                shape = (*outer, row * array.itemsize // wanted.itemsize)
        return reinterpret(array, tuple(shape), wanted)

    def has(self, space: str, addr: int) -> bool:
        """Whether an array begins at exactly ``addr``."""
        return addr in self._storage.get(space, ())

    def snapshot(self) -> MemoryStore:
        """A store of its own that shares the arrays (D6.5)."""
        other = MemoryStore(self.fill)
        for space, extents in self._storage.items():
            other._storage[space] = _Extents(extents)
        return other

    def view(self, space: str, addr: int, shape: tuple[int, ...], dtype: str) -> Array:
        """The bytes from ``addr`` on, read-only: a view, or a copy across extents.

        Raises MemoryStoreError, which names what is near, for a byte never written if
        there is no ``fill``.
        """
        shape = tuple(shape)
        wanted = np_dtype(dtype)
        array = self._storage.get(space, _NOTHING).get(addr)
        if array is None or array.shape != shape or array.dtype != wanted:
            array = self._bytes(space, addr, prod(shape) * wanted.itemsize)
        found = reinterpret(array, shape, wanted).view()
        found.flags.writeable = False
        return found

    def view_rows(
        self, space: str, rows: Rows, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """The bytes of rows in order, read-only, as ``view`` of contiguous ones.

        Nothing is asked of the bytes between them.
        """
        if rows.is_one:
            return self.view(space, rows.addr, shape, dtype)
        gap = None if self.fill is not None else self.gap(space, rows.addr, rows.span)
        if gap is None:
            span = self.view(space, rows.addr, (rows.span,), "u8")
            found = _rows_in(span, rows).reshape(-1)
        else:
            parts = [
                self.view(space, addr, (nbytes,), "u8") for addr, nbytes in rows.each()
            ]
            found = np.concatenate(parts)
        seen = reinterpret(np.ascontiguousarray(found), shape, np_dtype(dtype)).view()
        seen.flags.writeable = False
        return seen

    def patch_rows(self, space: str, rows: Rows, data: Array) -> None:
        """Write ``data`` to rows, in order; the bytes between them stay.

        ``data`` is C-contiguous. Where all of the span was written before, it becomes
        one extent of the dtype of ``data``, if no element is cut.
        """
        if rows.is_one:
            self.patch(space, rows.addr, data)
            return
        flat = data.reshape(-1).view(np.uint8)
        if self.gap(space, rows.addr, rows.span) is not None:
            row_bytes = rows.row_bytes
            for i, (addr, _) in enumerate(rows.each()):
                self.write(space, addr, flat[i * row_bytes : (i + 1) * row_bytes])
            return
        span = np.array(self.view(space, rows.addr, (rows.span,), "u8"))
        held = _rows_in(span, rows)
        held[...] = flat.reshape(held.shape)
        if rows.span % data.itemsize == 0:
            span = span.view(data.dtype)
        self.write(space, rows.addr, span)

    def drop(self, space: str, addr: int, nbytes: int) -> None:
        """Forget the bytes of [addr, addr + nbytes)."""
        if nbytes and space in self._storage:
            self._storage[space].carve(addr, addr + nbytes)

    def spaces(self) -> list[str]:
        """Names of the spaces that hold bytes, sorted."""
        return sorted(space for space, extents in self._storage.items() if extents)

    def extents(self, space: str) -> list[tuple[int, Array]]:
        """(addr, array) of one space in address order, perhaps none."""
        extents = self._storage.get(space, _NOTHING)
        return [(start, extents[start]) for start in extents.starts]

    def gap(self, space: str, addr: int, nbytes: int) -> int | None:
        """The first byte of [addr, addr + nbytes) that was never written, or None."""
        for low, _, part in self.parts(space, addr, addr + nbytes):
            if part is None:
                return low
        return None

    def parts(
        self, space: str, low: int, high: int
    ) -> Iterator[tuple[int, int, Array | None]]:
        """The parts of [low, high) in order: from, to, and the bytes, in any dtype.

        Of a part that was never written the bytes are None.
        """
        if low >= high:
            return
        extents = self._storage.get(space, _NOTHING)
        for start in extents.starts[extents.overlapping(low, high)]:
            if start > low:
                yield low, start, None
                low = start
            array = extents[start]
            end = min(start + array.nbytes, high)
            yield low, end, _cut(array, low - start, end - start)
            low = end
        if low < high:
            yield low, high, None

    def _bytes(self, space: str, addr: int, nbytes: int) -> Array:
        """The bytes of a range: in the dtype of their extent, as u8 if several."""
        found: list[Array] = []
        for low, high, part in self.parts(space, addr, addr + nbytes):
            if part is None:
                if self.fill is None:
                    raise self._missing(space, addr, nbytes, low)
                part = np.full(high - low, self.fill, np.uint8)
            found.append(part)
        if len(found) == 1:
            return found[0]
        pieces = [np.empty(0, np.uint8)]
        pieces += [part.reshape(-1).view(np.uint8) for part in found]
        return np.concatenate(pieces)

    def _missing(
        self, space: str, addr: int, nbytes: int, gap: int
    ) -> MemoryStoreError:
        """The error of a read: what was asked for, and the extents next to ``gap``.

        ``nbytes`` is 0 where an array at exactly ``addr`` was asked for.
        """
        extents = self.extents(space)
        at = bisect_right([start for start, _ in extents], gap)
        near = []
        for start, array in extents[max(at - 1, 0) : at + 1]:
            near.append(f"[{start:#x}, {start + array.nbytes:#x})")
        asked = "an array of bytes"
        why = "no array begins there"
        if nbytes:
            asked = f"{nbytes} bytes"
            why = f"byte {gap:#x} was never written"
        return MemoryStoreError(
            f"{space}: {asked} at {addr:#x} asked for, but {why}; nearest extents: "
            f"{', '.join(near) or 'none'}; write it first, or view() inside an extent"
        )

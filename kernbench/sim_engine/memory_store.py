"""Bytes by (space, address), held as numpy arrays (ADR-0052 D6, ADR-0020 D7).

Owns the extents of every space and how they are cut. An array is stored by reference and never
mutated, so snapshots and undo share arrays instead of copying them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import np_dtype
from kernbench.errors import MemoryStoreError

Array: TypeAlias = npt.NDArray[Any]


class _Extents(dict[int, Array]):
    """Address -> array of one space; ``starts`` are its keys, sorted. Extents never overlap."""

    __slots__ = ("starts",)

    def __init__(self, other: _Extents | None = None) -> None:
        super().__init__(other or {})
        self.starts: list[int] = other.starts.copy() if other is not None else []

    def overlapping(self, low: int, high: int) -> tuple[int, int]:
        """The slice of ``starts`` whose extents have a byte in [low, high)."""
        first = bisect_right(self.starts, low)
        if first and self.starts[first - 1] + self[self.starts[first - 1]].nbytes > low:
            first -= 1
        return first, bisect_left(self.starts, high, lo=first)


def reinterpret(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The bytes of contiguous ``array`` as another shape and dtype; a copy only where misaligned.

    MemoryStoreError when the byte counts differ.
    """
    if array.nbytes != prod(shape) * dtype.itemsize:
        raise MemoryStoreError(
            f"{array.nbytes} bytes of {array.dtype}{array.shape} asked for as {dtype}{shape}, "
            f"which is {prod(shape) * dtype.itemsize} bytes; ask for as many as there are"
        )
    if array.shape == shape and array.dtype == dtype:
        return array
    if not array.nbytes:
        return np.empty(shape, dtype)
    flat = array.reshape(-1).view(dtype)
    return (flat if flat.flags.aligned else flat.copy()).reshape(shape)


def _cut(array: Array, low: int, high: int) -> Array:
    """Bytes [low, high) of ``array`` as a view, in its own dtype where no element is split."""
    if low == 0 and high == array.nbytes:
        return array
    flat, size = array.reshape(-1), array.dtype.itemsize
    if low % size or high % size:
        return flat.view(np.uint8)[low:high]
    return flat[low // size : high // size]


_NOTHING = _Extents()  # a space that was never written


class MemoryStore:
    """``_storage[space][addr]`` is an array; what an address means is the caller's business.

    ``write``, ``read``, ``has`` and ``snapshot`` are ADR-0052 D6 and speak of exact keys; ``view``,
    ``patch`` and ``take`` of byte ranges. An array of no bytes is not stored and can be viewed
    anywhere. With ``fill``, bytes never written can be viewed too, and hold that value.
    """

    fill: int | None = None

    def __init__(self, fill: int | None = None) -> None:
        self._storage: dict[str, _Extents] = {}
        if fill is not None:
            self.fill = fill

    def write(self, space: str, addr: int, data: Array) -> None:
        """Store the reference to C-contiguous ``data`` at its key.

        Older extents lose the bytes that it covers; what is left of them before and after it stays,
        as views. MemoryStoreError for an array that is not contiguous or not of plain bytes.
        """
        if not data.flags.c_contiguous or data.dtype.hasobject:
            raise MemoryStoreError(
                f"{space} {addr:#x}: array {data.dtype}{data.shape} with strides {data.strides} is "
                "not C-contiguous plain data; copy it first (np.ascontiguousarray)"
            )
        if not data.nbytes:
            return
        extents = self._storage.get(space)
        if extents is None:
            extents = self._storage[space] = _Extents()
        old = extents.get(addr)
        if old is None or old.nbytes != data.nbytes:
            self.take(space, addr, data.nbytes)
            extents.starts.insert(bisect_left(extents.starts, addr), addr)
        extents[addr] = data

    patch = write  # the name of a write inside or across extents

    def read(
        self, space: str, addr: int, shape: tuple[int, ...] | None = None, dtype: str | None = None
    ) -> Array:
        """The array stored at exactly ``addr``, itself or reinterpreted (D6.3: no copy).

        MemoryStoreError (a ValueError) if no array begins there or the byte counts differ.
        """
        array = self._storage.get(space, _NOTHING).get(addr)
        if array is None:
            raise self._missing(space, addr, 0, addr)
        wanted = array.dtype if dtype is None else np_dtype(dtype)
        if shape is None:
            shape = array.shape
            if wanted.itemsize != array.itemsize:  # the last axis changes, as in numpy
                outer, row = shape[:-1], shape[-1] if shape else 1
                shape = (*outer, row * array.itemsize // wanted.itemsize)
        return reinterpret(array, tuple(shape), wanted)

    def has(self, space: str, addr: int) -> bool:
        """Whether an array begins at exactly ``addr``."""
        return addr in self._storage.get(space, ())

    def snapshot(self) -> MemoryStore:
        """A store of its own that shares the arrays (D6.5)."""
        other = MemoryStore(self.fill)
        other._storage = {space: _Extents(extents) for space, extents in self._storage.items()}
        return other

    def view(self, space: str, addr: int, shape: tuple[int, ...], dtype: str) -> Array:
        """The bytes from ``addr`` on, read-only: a view of one extent, a copy across several.

        MemoryStoreError, naming the nearest extents, if a byte of them was never written and there
        is no ``fill``.
        """
        wanted, shape = np_dtype(dtype), tuple(shape)
        array = self._storage.get(space, _NOTHING).get(addr)
        if array is None or array.shape != shape or array.dtype != wanted:
            array = self._bytes(space, addr, prod(shape) * wanted.itemsize)
        found = reinterpret(array, shape, wanted).view()
        found.flags.writeable = False
        return found

    def take(self, space: str, addr: int, nbytes: int) -> list[tuple[int, Array]]:
        """Remove the bytes of [addr, addr + nbytes); what lay there as (addr, array), for an undo.

        Pieces are in address order: whole extents as they were, or 1-D views in the dtype of their
        extent (uint8 where an element was split).
        """
        extents, high = self._storage.get(space), addr + nbytes
        if extents is None or nbytes <= 0:
            return []
        first, last = extents.overlapping(addr, high)
        taken: list[tuple[int, Array]] = []
        kept: list[tuple[int, Array]] = []
        for start in extents.starts[first:last]:
            array = extents.pop(start)
            low, end = max(start, addr), start + array.nbytes
            taken.append((low, _cut(array, low - start, min(end, high) - start)))
            if start < addr:
                kept.append((start, _cut(array, 0, addr - start)))
            if end > high:
                kept.append((high, _cut(array, high - start, end - start)))
        extents.starts[first:last] = [start for start, _ in kept]
        extents.update(kept)
        return taken

    def spaces(self) -> list[str]:
        """Names of the spaces that hold bytes, sorted."""
        return sorted(space for space, extents in self._storage.items() if extents)

    def extents(self, space: str) -> list[tuple[int, Array]]:
        """(addr, array) of one space in address order; empty if nothing was ever written there."""
        extents = self._storage.get(space, _NOTHING)
        return [(start, extents[start]) for start in extents.starts]

    def gap(self, space: str, addr: int, nbytes: int) -> int | None:
        """The first byte of [addr, addr + nbytes) that was never written; None if there is none."""
        array = self._storage.get(space, _NOTHING).get(addr)
        if array is not None and array.nbytes >= nbytes:
            return None
        parts = self._parts(space, addr, addr + nbytes)
        return next((low for low, _, part in parts if part is None), None)

    def _parts(self, space: str, low: int, high: int) -> Iterator[tuple[int, int, Array | None]]:
        """The parts of [low, high) in order, each with its bytes, None where never written."""
        extents = self._storage.get(space, _NOTHING)
        first, last = extents.overlapping(low, high)
        for start in extents.starts[first:last]:
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
        found: list[Array] = []
        for low, high, part in self._parts(space, addr, addr + nbytes):
            if part is None:
                if self.fill is None:
                    raise self._missing(space, addr, nbytes, low)
                part = np.full(high - low, self.fill, np.uint8)
            found.append(part)
        if len(found) == 1:
            return found[0]
        return np.concatenate([np.empty(0, np.uint8), *(p.reshape(-1).view("u1") for p in found)])

    def _missing(self, space: str, addr: int, nbytes: int, gap: int) -> MemoryStoreError:
        extents = self.extents(space)
        at = bisect_right([start for start, _ in extents], gap)
        near = [f"[{s:#x}, {s + a.nbytes:#x})" for s, a in extents[max(at - 1, 0) : at + 1]]
        asked = f"{nbytes} bytes at {addr:#x}" if nbytes else f"an array that begins at {addr:#x}"
        what = f"byte {gap:#x} was never written" if nbytes else "no array begins there"
        return MemoryStoreError(
            f"{space}: {asked} asked for, but {what}; nearest extents: "
            f"{', '.join(near) or 'none'}; write it first, or read inside an extent with view()"
        )

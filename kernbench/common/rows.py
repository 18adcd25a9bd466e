"""Rows of bytes, all of one length and one distance: what a DMA descriptor says.

Owns what "rows, bytes a row, pitch" mean, for commands, timing models and the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array

Axis: TypeAlias = tuple[int, int]
"""How many things follow each other, and how many bytes their beginnings are apart."""

MAX_PLANES = 2
"""Axes beside that of the rows: a descriptor has at most four dimensions."""

MAX_ROWS = 1 << 22
"""Rows of a descriptor at most: a byte each, they would fill a TCM twice."""


class Rows(NamedTuple):
    """``rows`` pieces of ``row_bytes`` each, whose first bytes are ``pitch`` apart.

    ``addr`` is the physical address of the first. What lies between two rows is not
    touched. One row has no pitch: it is 0 there.

    ``planes`` are further axes, outermost first, for descriptors of three and four
    dimensions: the rows are there once for each index of them. The bytes of a
    descriptor are in order of plane, row and column.
    """

    addr: int
    rows: int
    row_bytes: int
    pitch: int
    planes: tuple[Axis, ...] = ()

    @classmethod
    def one(cls, addr: int, nbytes: int) -> Rows:
        """Contiguous bytes."""
        return cls(addr, 1, nbytes, 0)

    @classmethod
    def of(cls, addr: int, axes: tuple[Axis, ...], row_bytes: int) -> Rows:
        """Rows along ``axes``, outermost first; what touches is joined.

        Axes of one are left out. ValueError where more than three remain, or one of
        them has no positive count or distance.
        """
        joined: list[Axis] = []
        for count, pitch in reversed(axes):
            if count == 1:
                continue
            if count < 1 or pitch < 1:
                raise ValueError(f"{count} rows, {pitch} bytes apart")
            if not joined and pitch == row_bytes:
                row_bytes *= count
            elif joined and pitch == joined[0][0] * joined[0][1]:
                joined[0] = (joined[0][0] * count, joined[0][1])
            else:
                joined.insert(0, (count, pitch))
        if not joined:
            return cls(addr, 1, row_bytes, 0)
        if len(joined) > 1 + MAX_PLANES:
            raise ValueError(f"{len(joined) + 1} dimensions, at most {2 + MAX_PLANES}")
        rows, pitch = joined.pop()
        return cls(addr, rows, row_bytes, pitch, tuple(joined))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes that are not bytes of a row, outermost first; none for one row."""
        if self.rows == 1:
            return self.planes
        return (*self.planes, (self.rows, self.pitch))

    @property
    def is_one(self) -> bool:
        """Whether the bytes are contiguous."""
        return self.rows == 1 and not self.planes

    @property
    def total_rows(self) -> int:
        """The rows of all planes together."""
        return self.rows * prod(count for count, _ in self.planes)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows together."""
        if not self.planes:
            return self.rows * self.row_bytes
        return self.total_rows * self.row_bytes

    @property
    def span(self) -> int:
        """From the first byte of the first row to behind the last byte of the last."""
        before = sum((count - 1) * pitch for count, pitch in self.axes)
        return before + self.row_bytes

    def at(self, addr: int) -> Rows:
        """The same rows from another address on."""
        _, rows, row_bytes, pitch, planes = self
        return Rows(addr, rows, row_bytes, pitch, planes)

    def each(self) -> list[tuple[int, int]]:
        """The address and the bytes of each row, in order."""
        return [(start, self.row_bytes) for start in self.starts().tolist()]

    def addresses(self, offsets: Array) -> Array:
        """Where the bytes lie that are so many bytes into the rows, in their order."""
        row, column = np.divmod(offsets, self.row_bytes)
        found: Array = self.starts()[row] + column
        return found

    def offsets(self, addresses: Array) -> Array:
        """How many bytes into these rows the bytes at addresses are; -1 in no row."""
        starts = self.starts()
        order = np.argsort(starts)
        before = np.searchsorted(starts[order], addresses, "right") - 1
        row = order[before]
        column = addresses - starts[row]
        is_in = (before >= 0) & (column < self.row_bytes)
        return np.where(is_in, row * self.row_bytes + column, -1)

    def starts(self) -> Array:
        """The address of each row's first byte, in order, as int64."""
        found = np.array([self.addr], np.int64)
        for count, pitch in self.axes:
            steps = np.arange(count, dtype=np.int64) * pitch
            found = (found[:, None] + steps).reshape(-1)
        return found

    def overlap(self) -> bool:
        """Whether a byte is in two rows; False only where that is plain to see.

        It is where each axis steps over all that lies within it.
        """
        inner = self.row_bytes
        for count, pitch in sorted(self.axes, key=lambda axis: axis[1]):
            if pitch < inner:
                return True
            inner += (count - 1) * pitch
        return False

    def parts(self, ends: Sequence[int]) -> Iterator[Rows]:
        """What lies between each of the addresses ``ends`` and the next, in order.

        They ascend. As many rows as lie before one are together; a row that goes
        across one is cut.
        """
        addr = self.addr
        end = ends[bisect_right(ends, addr)]
        if addr + self.span <= end:
            yield self
        elif self.planes:
            (count, pitch), *inner = self.planes
            plane = self._replace(planes=tuple(inner))
            for i in range(count):
                yield from plane.at(addr + i * pitch).parts(ends)
        elif self.rows == 1:
            yield Rows(addr, 1, end - addr, 0)
            rest = addr + self.row_bytes - end
            yield from Rows(end, 1, rest, 0).parts(ends)
        else:
            yield from self._parts_of_rows(ends)

    def _parts_of_rows(self, ends: Sequence[int]) -> Iterator[Rows]:
        """As ``parts``, of several rows in one plane."""
        at = 0
        while at < self.rows:
            start = self.addr + at * self.pitch
            room = ends[bisect_right(ends, start)] - start
            whole = 0
            if room >= self.row_bytes:
                whole = min((room - self.row_bytes) // self.pitch + 1, self.rows - at)
                yield Rows.of(start, ((whole, self.pitch),), self.row_bytes)
            else:
                yield from Rows(start, 1, self.row_bytes, 0).parts(ends)
            at += max(whole, 1)

    def cut(self, size: int) -> tuple[list[Rows], tuple[int, ...]]:
        """The pieces in which a transfer moves these bytes, and the bytes of each.

        They are in order. A piece is at most ``size`` bytes (0: all of them): as many
        whole planes as fit, or whole rows of one plane, or a part of one row. How rows
        are cut does not depend on where they lie, so it is worked out once.
        """
        addr, rows, row_bytes, pitch, planes = self
        pieces, sizes = _cut_at_zero(rows, row_bytes, pitch, planes, size)
        if len(sizes) == 1:
            return [self], sizes
        return [piece.at(addr + piece.addr) for piece in pieces], sizes


def share_a_byte(a: Rows, b: Rows) -> bool:
    """Whether a byte is in rows of both; neither overlaps itself."""
    if a.addr >= b.addr + b.span or b.addr >= a.addr + a.span:
        return False
    if a.is_one and b.is_one:
        return True
    starts = np.sort(b.starts())
    # The first row of b that ends behind the beginning of each row of a.
    first = np.searchsorted(starts + b.row_bytes, a.starts(), "right")
    found = np.flatnonzero(first < len(starts))
    return bool((starts[first[found]] < a.starts()[found] + a.row_bytes).any())


@lru_cache(maxsize=4096)
def _cut_at_zero(
    rows: int, row_bytes: int, pitch: int, planes: tuple[Axis, ...], size: int
) -> tuple[list[Rows], tuple[int, ...]]:
    """As ``Rows.cut``, of rows from address 0 on."""
    pieces = _cut(Rows(0, rows, row_bytes, pitch, planes), size)
    return pieces, tuple(piece.nbytes for piece in pieces)


def _cut(whole: Rows, size: int) -> list[Rows]:
    """The pieces of ``Rows.cut``."""
    if not size or whole.nbytes <= size:
        return [whole]
    addr, rows, row_bytes, pitch, planes = whole
    if planes:
        (count, plane_pitch), *inner = planes
        plane = whole._replace(planes=tuple(inner))
        return _cut_equal(plane, count, plane_pitch, size)
    if rows > 1:
        return _cut_equal(Rows(addr, 1, row_bytes, 0), rows, pitch, size)
    pieces = [
        Rows(addr + at, 1, size, 0) for at in range(0, row_bytes - size + 1, size)
    ]
    rest = row_bytes % size
    if rest:
        pieces.append(Rows(addr + row_bytes - rest, 1, rest, 0))
    return pieces


def _cut_equal(each: Rows, count: int, pitch: int, size: int) -> list[Rows]:
    """The bursts of ``count`` equal things, ``pitch`` bytes apart."""
    at_once = size // each.nbytes
    found = []
    for i in range(0, count, max(at_once, 1)):
        one = each._replace(addr=each.addr + i * pitch)
        if at_once:
            axis = (min(at_once, count - i), pitch)
            found.append(Rows.of(one.addr, (axis, *one.axes), one.row_bytes))
        else:
            found += _cut(one, size)
    return found

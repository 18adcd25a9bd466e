"""What the tiles of a composite take of a PE's TCM.

Owns the count (docs/machine.md, "Composites and tiles"): a tile in flight has a buffer
for each operand that it reads from HBM, and the last one of a K loop one for its
output. Partial sums stay in the array.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from kernbench.common.dtypes import nbytes_of
from kernbench.common.messages import Region, as_matrix
from kernbench.common.pe_commands import CompositeCmd, CompositeMathCmd

Composite: TypeAlias = CompositeCmd | CompositeMathCmd

Tile: TypeAlias = tuple[int, int, int]
"""Extents along m, n and k."""


def buffer_bytes(composite: Composite, tile: Tile, window: int) -> int:
    """The most bytes that its tiles in flight, at most ``window``, hold at a time."""
    rows, cols, depth = _clipped(composite, tile)
    k_steps = -(-composite.k // depth)
    outputs = -(-composite.m // rows) * -(-composite.n // cols)
    flying = min(window, outputs * k_steps)
    storing = min(outputs, -(-flying // k_steps))
    each, last = _tile_bytes(composite, rows, cols, depth)
    return flying * each + storing * last


def fitting_tile(
    composite: Composite, tile: Tile, window: int, room: int
) -> Tile | None:
    """A tile like ``tile`` whose buffers fit ``room`` bytes; None if none does.

    Its longest extent is halved until they do.
    """
    extents = list(_clipped(composite, tile))
    while buffer_bytes(composite, _as_tile(extents), window) > room:
        longest = max(extents)
        if longest == 1:
            return None
        extents[extents.index(longest)] = _power_of_two_below(longest)
    return _as_tile(extents)


def _tile_bytes(
    composite: Composite, rows: int, cols: int, depth: int
) -> tuple[int, int]:
    """Bytes that every tile holds, and what the last one of a K loop holds more."""
    last = nbytes_of((rows, cols), composite.out.dtype)
    if isinstance(composite, CompositeMathCmd):
        return _elementwise(composite.inputs, rows, cols), last
    each = 0
    if composite.a.space == "hbm":
        each += nbytes_of((rows, depth), composite.a.dtype)
    if composite.b.space == "hbm":
        each += nbytes_of((depth, cols), composite.b.dtype)
    for step in composite.epilogue:
        if step.operand is None:
            continue
        operand = _elementwise([step.operand], rows, cols)
        if step.scope == "k_tile":
            each += operand
        else:
            last += operand
    return each, last


def _elementwise(operands: Iterable[Region], rows: int, cols: int) -> int:
    """Bytes of those operands in HBM that go with so many rows and columns of output.

    An axis of 1 broadcasts.
    """
    total = 0
    for operand in operands:
        if operand.space != "hbm":
            continue
        all_rows, all_cols = as_matrix(operand.shape)
        total += nbytes_of((min(rows, all_rows), min(cols, all_cols)), operand.dtype)
    return total


def _clipped(composite: Composite, tile: Tile) -> Tile:
    """The extents of the largest tile that there is."""
    m, n, k = tile
    return min(m, composite.m), min(n, composite.n), min(k, composite.k)


def _as_tile(extents: list[int]) -> Tile:
    m, n, k = extents
    return m, n, k


def _power_of_two_below(extent: int) -> int:
    """The largest power of two that is less than an extent of 2 or more."""
    return 1 << (extent - 1).bit_length() - 1

"""What the Memory pane asks: allocations, a tensor, a cell, accesses to a place.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress
from kernbench.replay.answers import Touch
from kernbench.replay.data.grids import Marks, cell_name
from kernbench.replay.data.memory import Memory
from kernbench.replay.index import Index
from kernbench.replay.query import At
from kernbench.replay.questions import Place, op_of
from kernbench.replay.views.grids import GridShape

MOST_ALLOCATIONS = 200
"""That the pane lists."""


@dataclass(frozen=True, slots=True)
class AllocationCount:
    """How many allocations."""

    count: int


@dataclass(frozen=True, slots=True)
class TensorName:
    """A tensor by name; empty: the one that the op writes, else that it reads."""

    name: str


@dataclass(frozen=True, slots=True)
class CellIndex:
    """An element of a tensor, by its row and column in the tensor's grid."""

    tensor: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class TouchNumbers:
    """Some accesses, by their number in the history."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorSummary:
    """What is said of a tensor at an op; its name is empty where the op touches none.

    The figures are over finite elements that are written (``largest`` is that of |x|);
    ``unwritten`` elements are not. What the op wrote is marked in ``grid``. One element
    takes ``element_bytes``.
    """

    name: str
    dtype: str
    element_bytes: int
    minimum: float
    maximum: float
    mean: float
    largest: float
    nans: int
    unwritten: int
    grid: GridShape


_NO_TENSOR = TensorSummary(
    name="",
    dtype="",
    element_bytes=0,
    minimum=nan,
    maximum=nan,
    mean=nan,
    largest=nan,
    nans=0,
    unwritten=0,
    grid=GridShape((0,), Marks(0, np.empty(0, np.uint8))),
)


@dataclass(frozen=True, slots=True)
class TensorCell:
    """One element, where it lies, and the op that wrote it last, None if nobody has.

    ``value`` is None where it is not written, ``bits`` are hex digits, the highest
    first.
    """

    space: str
    addr: int
    writer: int | None
    value: float | None
    bits: str


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    """All accesses to a place in canonical order.

    ``numbers`` are those of the history, ``ops`` the positions of the ops; both ascend.
    ``ranges`` are the place's (space, addr, nbytes).
    """

    ranges: tuple[tuple[str, int, int], ...]
    numbers: Ints
    ops: Ints


def held_allocations(
    index: Index, at: At, args: AllocationCount, progress: Progress
) -> Memory:
    """The allocations that hold something at an op, as many of them as are shown."""
    index.memory.index(progress)
    return index.memory.at(op_of(at), args.count)


def tensor_summary(
    index: Index, at: At, args: TensorName, progress: Progress
) -> TensorSummary:
    """A tensor at an op, without its numbers."""
    index.memory.index(progress)
    op = op_of(at)
    name = args.name or index.memory.shown(op)
    if name is None:
        return _NO_TENSOR
    found = index.grids.tensor(op, name, progress)
    view = found.view
    return TensorSummary(
        view.name,
        view.dtype,
        view.values.dtype.itemsize,
        view.minimum,
        view.maximum,
        view.mean,
        found.largest,
        view.nans,
        view.values.size - int(np.count_nonzero(view.written)),
        GridShape(found.grid.shape, found.grid.marks),
    )


def tensor_cell(
    index: Index, at: At, args: CellIndex, progress: Progress
) -> TensorCell:
    """One element of a tensor at an op."""
    index.memory.index(progress)
    op = op_of(at)
    grid = index.grids.tensor(op, args.tensor, progress).grid
    name = args.tensor + cell_name(args.row, args.column, grid.shape)
    place = index.places.place(name, op, progress)
    space, addr, _ = place.ranges[0]
    writers = index.touches.writers(place, op, progress).rows
    writer = writers[0].op.op if writers else None
    element = grid.planes[0][args.row, args.column]
    value = None
    if grid.written is None or grid.written[args.row, args.column]:
        value = float(element)
    bits = element.tobytes()[::-1].hex()
    return TensorCell(space, addr, writer, value, bits)


def accesses_to(index: Index, at: At, args: Place, progress: Progress) -> Accesses:
    """Every read and write of a place, from the first op to the last."""
    index.memory.index(progress)
    numbers, ranges = index.places.accesses_to(args.place, progress)
    ops = index.history.touched.row[numbers]
    numbers.setflags(write=False)
    ops.setflags(write=False)
    return Accesses(ranges, numbers, ops)


def touch_rows(
    index: Index, at: At, args: TouchNumbers, progress: Progress
) -> tuple[Touch, ...]:
    """Some accesses, each with its op."""
    return index.touches.numbered(np.array(args.numbers, np.int64), progress)

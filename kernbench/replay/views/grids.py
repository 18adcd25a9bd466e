"""What panes with grids ask: the window in view, and the blocks of a heatmap.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.progress import Progress, stage
from kernbench.errors import UsageError
from kernbench.replay.data.grids import Grid, Marks, marked_shares, rows_and_columns
from kernbench.replay.index import Index
from kernbench.replay.query import At
from kernbench.sim_engine.event_log import in_three_axes


@dataclass(frozen=True, slots=True)
class GridOf:
    """Which grid: a tensor by name; if ``compared`` an output beside its reference by
    name, or with no name what the op wrote beside its oracle.
    """

    name: str
    compared: bool


@dataclass(frozen=True, slots=True)
class GridWindow:
    """Some rows and columns of a grid: the first of each, and how many."""

    of: GridOf
    row: int
    column: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class GridBlocks:
    """A grid in blocks of ``tall`` by ``wide`` elements."""

    of: GridOf
    tall: int
    wide: int


@dataclass(frozen=True, slots=True, eq=False)
class GridShape:
    """How large a grid is, and which elements of it are marked.

    ``shape`` is the tensor's; the grid's columns are its last axis.
    """

    shape: tuple[int, ...]
    marks: Marks

    @property
    def rows(self) -> int:
        """Rows of the grid."""
        return rows_and_columns(self.shape)[0]

    @property
    def columns(self) -> int:
        """Columns of the grid."""
        return rows_and_columns(self.shape)[1]


@dataclass(frozen=True, slots=True, eq=False)
class GridPart:
    """A window of a grid, whose first element is (``row``, ``column``) of the grid.

    ``planes``, ``written`` and ``marked`` are arrays of the window's rows and columns.
    """

    row: int
    column: int
    planes: tuple[Array, ...]
    written: Bools
    marked: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """What is said of each block, in rows and columns of blocks.

    ``shares`` are the largest of the scale: of a tensor |x| over the largest one, of a
    comparison the error over what is tolerated; NaN where all is blank, inf where
    something is not finite. ``bad`` is which share of a block's elements is marked.
    """

    shares: Floats
    bad: Floats

    @property
    def marked_blocks(self) -> Ints:
        """1 for each block in which something is marked, 0 for any other."""
        marked: Ints = (self.bad > 0).astype(np.int64)
        return marked


def grid_part(index: Index, at: At, args: GridWindow, progress: Progress) -> GridPart:
    """The elements of a window. UsageError where there is no grid."""
    grid = _grid(index, at, args.of, progress)
    rows = slice(args.row, args.row + args.rows)
    columns = slice(args.column, args.column + args.columns)
    marked = _copied(grid.marked[rows, columns])
    written = np.ones(marked.shape, np.bool_)
    if grid.written is not None:
        written = grid.written[rows, columns]
    planes = tuple(_copied(plane[rows, columns]) for plane in grid.planes)
    return GridPart(args.row, args.column, planes, _copied(written), marked)


def grid_heat(index: Index, at: At, args: GridBlocks, progress: Progress) -> Heat:
    """The blocks of a heatmap. UsageError where there is no grid."""
    grid = _grid(index, at, args.of, progress)
    shares = index.grids.heat(grid, args.tall, args.wide, stage(progress, 0.0, 0.7))
    bad = marked_shares(grid, args.tall, args.wide, stage(progress, 0.7, 1.0))
    bad.setflags(write=False)
    return Heat(shares, bad)


def _grid(index: Index, at: At, of: GridOf, progress: Progress) -> Grid:
    op = -1 if at.op is None else at.op
    if not of.compared:
        return index.grids.tensor(op, of.name, progress).grid
    found = index.grids.compared(op, of.name, progress).grid
    if found is None:
        raise UsageError(f"op {op}: there is nothing to compare")
    return found


def _copied(part: Array) -> Array:
    copied = part.copy()
    copied.setflags(write=False)
    return copied


def first_element(origin: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The number, in row order, of the element of a tensor at which a shard begins.

    ``origin`` is in three axes at most, as a file has it, ``shape`` the tensor's.
    """
    element = 0
    for place, extent in zip(origin, in_three_axes(shape), strict=False):
        element = element * extent + place
    return element

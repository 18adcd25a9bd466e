"""Tensors as grids of rows and columns, of which a screen shows a window.

Owns the last few grids, the marks in them, and what is summed up of them for a heatmap.
A tensor may have many millions of elements: answers are cut out of a grid, none holds
all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, as_f64
from kernbench.common.progress import Progress, parts, stage
from kernbench.replay.data.diff import DiffIndex, OpDiff
from kernbench.replay.data.history import History
from kernbench.replay.data.memory import MemoryIndex, TensorView
from kernbench.replay.data.outputs import OutputIndex
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.verify import VerifyRow, mismatches
from kernbench.trace import Trace

T = TypeVar("T")

_KEPT = 4
"""Grids of each kind."""
_LARGE = 1 << 22
"""Elements from which on a grid is kept only as the newest."""
_AT_ONCE = 1 << 16
"""Elements that are worked on between two calls of progress: about 1 ms."""
_LEAST_LIMIT = 1e-300
"""Instead of a tolerance of 0, by which an error cannot be divided."""

Shares: TypeAlias = Callable[[slice, slice], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Which elements of a grid are marked: ``count`` of them.

    ``bits`` has a bit for each element in row order, from element ``8 * skipped`` on,
    the first in the highest bit of the first byte. Elements before these and after them
    are not marked; it is empty where nothing is.
    """

    count: int
    bits: Array
    skipped: int = 0

    @property
    def first(self) -> int | None:
        """The first marked element, None if none is."""
        return self.after(-1)

    def after(self, element: int) -> int | None:
        """The next marked element behind one, None if there is none."""
        start = max(element + 1 - 8 * self.skipped, 0)
        at = start // 8
        if at >= len(self.bits):
            return None
        byte = int(self.bits[at]) & (0xFF >> start % 8)
        if not byte:
            later = self.bits[at + 1 :] != 0
            if not later.any():
                return None
            at += 1 + int(later.argmax())
            byte = int(self.bits[at])
        return (self.skipped + at) * 8 + 8 - byte.bit_length()

    def before(self, element: int) -> int | None:
        """The next marked element in front of one, None if there is none."""
        end = max(element - 8 * self.skipped, 0)
        at = min(end // 8, len(self.bits))
        byte = 0
        if at < len(self.bits):
            byte = int(self.bits[at]) & ~(0xFF >> end % 8)
        if not byte:
            earlier = self.bits[:at][::-1] != 0
            if not earlier.any():
                return None
            at = len(earlier) - 1 - int(earlier.argmax())
            byte = int(self.bits[at])
        lowest = byte & -byte
        return (self.skipped + at) * 8 + 8 - lowest.bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Numbers of a tensor of ``shape``, in rows along its last axis.

    ``planes`` are arrays (rows, columns) of which the same element is shown side by
    side, and ``written`` and ``marked`` are masks of that shape; ``written`` is None
    where all elements hold something. ``shares(rows, columns)`` gives, for a heatmap,
    how large these elements are as a share of its scale: NaN for what is left blank,
    inf for what is not finite.
    """

    shape: tuple[int, ...]
    planes: tuple[Array, ...]
    written: Bools | None
    marked: Bools
    marks: Marks
    shares: Shares


@dataclass(frozen=True, slots=True, eq=False)
class TensorGrid:
    """A tensor at an op; what the op wrote is marked."""

    view: TensorView
    grid: Grid

    @property
    def largest(self) -> float:
        """The largest |x| of the finite elements; 0 where there is none."""
        return _largest(self.view)


@dataclass(frozen=True, slots=True, eq=False)
class DiffGrid:
    """A comparison; mismatches are marked. ``grid`` is None where nothing was compared.

    ``row_elements`` is how many elements lie in memory from one row of the grid to the
    next: more than it has columns where the grid is a tile's block of a wider output.
    """

    diff: OpDiff
    row_elements: int
    grid: Grid | None


class _Newest(Generic[T]):
    """The last few things that were made, large ones only as the very last."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[int, str], tuple[T, int]] = OrderedDict()

    def get(self, key: tuple[int, str]) -> T | None:
        found = self._made.get(key)
        return None if found is None else found[0]

    def keep(self, key: tuple[int, str], made: T, elements: int) -> T:
        for other, (_, size) in list(self._made.items()):
            if size > _LARGE:
                del self._made[other]
        self._made[key] = made, elements
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class _Heat:
    """The blocks of a heatmap, and of which numbers they are."""

    numbers: Array
    tall: int
    wide: int
    shares: Floats

    def is_of(self, numbers: Array, tall: int, wide: int) -> bool:
        """Whether these are the blocks of that size of those very numbers."""
        return numbers is self.numbers and (tall, wide) == (self.tall, self.wide)


class GridIndex:
    """Answers of a MemoryIndex, an OutputIndex and a DiffIndex as grids.

    What it keeps is written and read by lane "memory" alone.
    """

    def __init__(
        self,
        trace: Trace,
        history: History,
        memory: MemoryIndex,
        outputs: OutputIndex,
        diffs: DiffIndex,
    ) -> None:
        self._trace = trace
        self._history = history
        self._memory = memory
        self._outputs = outputs
        self._diffs = diffs
        self._tensors = _Newest[TensorGrid]()
        self._compared = _Newest[DiffGrid]()
        self._heat: _Heat | None = None

    # -- grids ----------------------------------------------------------------

    def tensor(self, op: int, name: str, progress: Progress) -> TensorGrid:
        """A tensor at an op. UsageError lists the names where there is none of it."""
        found = self._tensors.get((op, name))
        if found is not None:
            return found
        view = self._memory.tensor(op, name, progress)
        values = in_rows(view.values)
        written = in_rows(view.written)
        changed = in_rows(view.changed)
        top = _largest(view)

        def shares(rows: slice, columns: slice) -> Floats:
            return _sizes(values[rows, columns], written[rows, columns], top)

        grid = Grid(
            view.values.shape,
            (values,),
            written,
            changed,
            marks_of(changed, progress),
            shares,
        )
        found = TensorGrid(view, grid)
        return self._tensors.keep((op, name), found, values.size)

    def compared(self, op: int, output: str, progress: Progress) -> DiffGrid:
        """What an op wrote beside its oracle; or an output, by name, beside its
        reference at that op.
        """
        found = self._compared.get((op, output))
        if found is not None:
            return found
        if output:
            view = self._memory.tensor(op, output, stage(progress, 0.0, 0.5))
            diff = self._outputs.beside(view, stage(progress, 0.5, 1.0))
        else:
            diff = self._diffs.of(op, progress)
        grid = _grid_of(diff, progress)
        row_elements = 0
        elements = 0
        if grid is not None:
            row_elements = self._row_elements(op, output, grid)
            elements = grid.marked.size
        found = DiffGrid(diff, row_elements, grid)
        return self._compared.keep((op, output), found, elements)

    def _row_elements(self, op: int, output: str, grid: Grid) -> int:
        """How many elements of the whole output make a row of it."""
        columns = int(grid.marked.shape[1])
        if output:  # there may be one without any op
            return columns
        writer = self._diffs.producer(op).op
        if writer in (op, -1):
            return columns
        written = regions(self._trace.ops[writer]).write
        if written is None or not written.shape:
            return columns
        return written.shape[-1]

    # -- heat -----------------------------------------------------------------

    def heat(self, grid: Grid, tall: int, wide: int, progress: Progress) -> Floats:
        """The largest share of each block of ``tall`` by ``wide`` elements.

        The last answer is kept: few ops change the tensor that is looked at.
        """
        numbers = grid.planes[0]
        if self._heat is not None and self._heat.is_of(numbers, tall, wide):
            return self._heat.shares
        shares = _largest_of_blocks(grid, tall, wide, progress)
        shares.setflags(write=False)
        self._heat = _Heat(numbers, tall, wide, shares)
        return shares


# -- making grids -------------------------------------------------------------


def in_rows(values: Array) -> Array:
    """A tensor as rows and columns: its last axis; a single number as one of each."""
    if not values.ndim:
        return values.reshape(1, 1)
    return values.reshape(prod(values.shape[:-1]), values.shape[-1])


def marks_of(marked: Bools, progress: Progress) -> Marks:
    """The marks of a mask (rows, columns), without parts at its ends that have none."""
    flat = marked.reshape(-1)
    packed = []
    count = 0
    skipped = 0
    needed = 0
    for part in parts(flat.size, progress, _AT_ONCE):
        here = int(np.count_nonzero(flat[part]))
        count += here
        if not count:
            skipped += _AT_ONCE // 8
            continue
        packed.append(np.packbits(flat[part]))
        if here:
            needed = len(packed)
    if not count:
        return Marks(0, np.empty(0, np.uint8))
    bits = np.concatenate(packed[:needed])
    bits.setflags(write=False)
    return Marks(count, bits, skipped)


def _grid_of(diff: OpDiff, progress: Progress) -> Grid | None:
    """The three planes of a diff; None where there was nothing to compare."""
    row = diff.row
    if row is None:
        return None
    if diff.expected is None or diff.actual is None or diff.error is None:
        return None
    expected = in_rows(diff.expected)
    actual = in_rows(diff.actual)
    error = in_rows(diff.error)
    bad = _bad(actual, expected, row, progress)

    def shares(rows: slice, columns: slice) -> Floats:
        return _error_shares(
            expected[rows, columns], error[rows, columns], bad[rows, columns], row
        )

    planes = (expected, actual, error)
    return Grid(diff.expected.shape, planes, None, bad, marks_of(bad, progress), shares)


def _bad(actual: Array, expected: Array, row: VerifyRow, progress: Progress) -> Bools:
    """Which elements differ by more than the tolerance."""
    bad = np.empty(actual.size, np.bool_)
    flat_actual = actual.reshape(-1)
    flat_expected = expected.reshape(-1)
    for part in parts(bad.size, progress, _AT_ONCE):
        bad[part] = mismatches(flat_actual[part], flat_expected[part], row.tolerance)
    return bad.reshape(actual.shape)


# -- shares of a scale --------------------------------------------------------


def _largest(view: TensorView) -> float:
    """The largest |x| of the finite elements; 0 where there is none."""
    ends = [abs(view.minimum), abs(view.maximum), 0.0]
    return max(end for end in ends if not np.isnan(end))


def _sizes(values: Array, written: Bools, top: float) -> Floats:
    """|x| as a share of ``top``, the largest one."""
    size = np.abs(as_f64(values))
    shares = np.where(np.isfinite(size), size / (top or 1.0), np.inf)
    shares[~written] = np.nan
    return shares


@np.errstate(invalid="ignore", over="ignore")
def _error_shares(expected: Array, error: Array, bad: Bools, row: VerifyRow) -> Floats:
    """|error| over what is tolerated there: more than 1 where an element is bad, inf
    where its error is not finite.
    """
    limit = row.tolerance.atol + row.tolerance.rtol * np.abs(expected)
    ratio = np.abs(error) / np.maximum(limit, _LEAST_LIMIT)
    return np.where(np.isfinite(ratio), ratio, np.where(bad, np.inf, 0.0))


def _largest_of_blocks(grid: Grid, tall: int, wide: int, progress: Progress) -> Floats:
    """The largest share in each block, NaN where all of it is blank."""
    rows, columns = grid.marked.shape
    down = -(-rows // tall)
    across = -(-columns // wide)
    blocks = np.empty((down, across))
    at_once = max(_AT_ONCE // (tall * wide), 1)
    for i in range(down):
        for j in range(0, across, at_once):
            progress((i + j / across) / down)
            end = min(j + at_once, across)
            some_rows = slice(i * tall, (i + 1) * tall)
            shares = grid.shares(some_rows, slice(j * wide, end * wide))
            highest = np.fmax.reduce(shares, axis=0)
            starts = np.arange(0, len(highest), wide)
            blocks[i, j:end] = np.fmax.reduceat(highest, starts)
    return blocks


def marked_shares(grid: Grid, tall: int, wide: int, progress: Progress) -> Floats:
    """Which share of the elements of each block is marked."""
    rows, columns = grid.marked.shape
    down = -(-rows // tall)
    across = -(-columns // wide)
    found = np.zeros((down, across))
    if not grid.marks.count:
        return found
    starts = np.arange(0, columns, wide)
    widths = np.diff(np.append(starts, columns))
    at_once = max(_AT_ONCE // max(columns, 1), 1)
    for i in range(down):
        counts = np.zeros(columns)
        end = min((i + 1) * tall, rows)
        for row in range(i * tall, end, at_once):
            progress(i / down)
            some = grid.marked[row : min(row + at_once, end)]
            counts += np.count_nonzero(some, axis=0)
        found[i] = np.add.reduceat(counts, starts) / (widths * (end - i * tall))
    return found


# -- names --------------------------------------------------------------------


def rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many rows and columns a tensor of a shape has as a grid."""
    columns = shape[-1] if shape else 1
    return prod(shape) // max(columns, 1), columns


def row_name(row: int, shape: tuple[int, ...]) -> str:
    """A row of a grid: its index in a tensor of ``shape``, without the last axis.

    A tensor without elements has no row; then the name says nothing.
    """
    index = []
    for extent in reversed(shape[:-1]):
        row, place = divmod(row, max(extent, 1))
        index.append(str(place))
    return ",".join(reversed(index))


def cell_name(row: int, column: int, shape: tuple[int, ...]) -> str:
    """A cell of a grid as in [3,17]; empty for a tensor of a single number."""
    if not shape:
        return ""
    name = row_name(row, shape)
    return f"[{name},{column}]" if name else f"[{column}]"

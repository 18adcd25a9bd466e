"""What Memory and Diff share: a grid as numbers or as a heatmap, and its picked cell.

A grid has a column for each index of its tensor's last axis, and a row for each index
of all others together. Where it has few rows that are too long for the pane, each is
folded into lines. It knows neither pane: they say in which ``Window`` it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.replay.arrays import Floats, Ints
from kernbench.replay.data.grids import row_name, rows_and_columns
from kernbench.replay.inner_commands import GRID_HEAT, GRID_PART
from kernbench.replay.query import Query
from kernbench.replay.views.grids import GridOf, GridPart, GridShape, Heat
from tui.draw import Glyphs, Line, Run, clip
from tui.panes.base import Scroll

_NUMBER = 9
"""Columns of a number."""
_AROUND_NUMBER = 2
"""Columns of a cell beside its number: a blank or the sign of the picked one in front,
a blank or a mark behind. So no two numbers touch.
"""
_ROW_NAME = 5
"""Columns of a row's name, at least."""
_SMALL = 1 << 14
"""Elements of a grid that is asked for as a whole: scrolling asks for no more."""
_FEW_ROWS = 16
"""Rows of a grid of which each may be folded."""
_BESIDE_NAME = 2
"""Columns behind a row's name in a heatmap: a star or a blank, and a blank."""
_BETWEEN_MAPS = 2
_LEAST_BEYOND = -3
"""The power of ten of the error, in tolerances, at which the second glyph begins."""


# -- how a grid is shown ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """How the numbers of a grid are shown.

    ``planes`` are the headings of what is shown side by side, and ``text`` makes that
    of an element, in ``width`` columns at most. ``mark`` stands behind marked elements,
    which have its style. Rows and columns are numbered from ``origin`` on; where its
    first number is 0 rows have their names. ``picks``: the picked cell is shown.
    """

    planes: tuple[str, ...]
    text: Callable[[Any], str]
    mark: Run
    width: int = _NUMBER
    origin: tuple[int, int] = (0, 0)
    picks: bool = True

    @property
    def cell_columns(self) -> int:
        """Columns of a number with what stands beside it."""
        return self.width + _AROUND_NUMBER


@dataclass(frozen=True, slots=True)
class Window:
    """The columns and lines that a grid has; there it is shown as so many ``maps`` of
    its heat side by side, or, if that is 0, as numbers that look like ``look``.
    """

    width: int
    height: int
    look: Look
    maps: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows and columns of cells are in view."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """A block of a heatmap stands for ``tall`` rows and ``wide`` columns of cells."""

    tall: int
    wide: int


def numbers_room(grid: GridShape, window: Window) -> Room:
    """How many cells of each plane there is room for; of a grid that is folded, as many
    to a line.
    """
    look = window.look
    planes = len(look.planes)
    headings = 1 if planes == 1 else 2
    for_cells = window.width - _label_width(grid) - 1
    columns = for_cells // look.cell_columns // planes
    rows = max(window.height - headings, 1)
    return Room(rows, min(max(columns, 1), grid.columns))


def lines_a_row(grid: GridShape, room: Room) -> int:
    """In how many lines each row is shown: more than one where rows are too long, and
    so few that all have room for that.
    """
    is_few = grid.rows <= min(room.rows // 2, _FEW_ROWS)
    if grid.columns <= room.columns or not is_few:
        return 1
    return min(room.rows // grid.rows, -(-grid.columns // room.columns))


def heat_blocks(grid: GridShape, window: Window) -> Blocks:
    """The smallest blocks in which all of a grid has room."""
    down = max(window.height - _heat_heads(window), 1)
    across = _map_columns(grid, window)
    if grid.rows == 1:
        return Blocks(tall=1, wide=-(-grid.columns // (down * across)))
    return Blocks(tall=-(-grid.rows // down), wide=-(-grid.columns // across))


def _heat_heads(window: Window) -> int:
    """Lines above a heatmap: what each map says, and its scale."""
    return window.maps


def _map_columns(grid: GridShape, window: Window) -> int:
    """Blocks that there is room for side by side in each map."""
    maps = max(window.maps, 1)
    for_maps = window.width - _label_width(grid) - _BESIDE_NAME - 1
    return max((for_maps - (maps - 1) * _BETWEEN_MAPS) // maps, 1)


def _label_width(grid: GridShape) -> int:
    """Columns that the names of the rows take, and of the lines of few rows."""
    longest = len(row_name(grid.rows - 1, grid.shape))
    if grid.rows <= _FEW_ROWS:
        longest = len(_line_name(grid, grid.rows - 1, grid.columns - 1))
    return max(longest, _ROW_NAME)


def _line_name(grid: GridShape, row: int, column: int) -> str:
    """The name of a line of a row that is folded: where it begins."""
    if grid.rows == 1:
        return str(column)
    return f"{row_name(row, grid.shape)}:{column}"


# -- the picked cell ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cells:
    """The picked cell of a grid, (``row``, ``column``), and the first one in view,
    (``upper``, ``left``). By pages one moves by ``page`` rows less one. ``fold`` is how
    many cells a line has where a single row is shown in several; else 0.
    """

    row: int = 0
    column: int = 0
    upper: int = 0
    left: int = 0
    page: int = 1
    fold: int = 0

    def at_element(self, element: int, shape: tuple[int, ...]) -> Cells:
        """Another cell picked, by its number in row order, and first in view."""
        _, columns = rows_and_columns(shape)
        row, column = divmod(element, columns or 1)
        return Cells(row, column, row, column, self.page)

    def scrolled(self, event: Scroll) -> Cells:
        """A cell above or below picked; it may lie outside until it is clamped."""
        by = event.by
        if event.pages:
            by *= max(self.page - 1, 1)
        if self.fold:
            return replace(self, column=self.column + by * self.fold)
        return replace(self, row=self.row + by)

    def panned(self, by: int) -> Cells:
        """A cell beside it picked; it may lie outside until it is clamped."""
        return replace(self, column=max(self.column + by, 0))

    def clamped(self, shape: tuple[int, ...]) -> Cells:
        """The nearest cell picked that the grid of a tensor of ``shape`` has; the first
        of one without elements.
        """
        rows, columns = rows_and_columns(shape)
        row = max(min(self.row, rows - 1), 0)
        column = max(min(self.column, columns - 1), 0)
        return replace(self, row=row, column=column)

    def settled(self, grid: GridShape, window: Window) -> Cells:
        """The grid scrolled as little as needed for the picked cell to be in view."""
        cells = self.clamped(grid.shape)
        if window.maps:
            blocks = heat_blocks(grid, window)
            page = blocks.tall * max(window.height - _heat_heads(window) - 1, 1) + 1
            fold = 0
            if grid.rows == 1:
                fold = blocks.wide * _map_columns(grid, window)
            return replace(cells, page=page, fold=fold)
        room = numbers_room(grid, window)
        lines = lines_a_row(grid, room)
        if lines > 1:
            return cells.settled_in_lines(grid, room, lines)
        upper = min(cells.upper, cells.row, grid.rows - room.rows)
        upper = max(upper, cells.row - room.rows + 1, 0)
        left = min(cells.left, cells.column, grid.columns - room.columns)
        left = max(left, cells.column - room.columns + 1, 0)
        return replace(cells, upper=upper, left=left, page=room.rows, fold=0)

    def settled_in_lines(self, grid: GridShape, room: Room, lines: int) -> Cells:
        """The same of rows that are folded, each into so many lines of
        ``room.columns``. A single one is gone through line by line.
        """
        here = self.column // room.columns
        top = min(self.left // room.columns, here)
        top = min(top, -(-grid.columns // room.columns) - lines)
        top = max(top, here - lines + 1, 0)
        page = room.rows
        fold = room.columns
        if grid.rows > 1:
            page = grid.rows
            fold = 0
        return replace(self, upper=0, left=top * room.columns, page=page, fold=fold)


def next_mark(cells: Cells, grid: GridShape, by: int) -> Cells | None:
    """The next (1) or previous (-1) marked cell picked; None if there is none that way.

    Marked cells go row by row.
    """
    here = cells.row * grid.columns + cells.column
    if by > 0:
        found = grid.marks.after(here)
    else:
        found = grid.marks.before(here)
    return None if found is None else cells.at_element(found, grid.shape)


def picked_style(is_picked: bool) -> str:
    """The style of a row that may be the picked one."""
    return "pick" if is_picked else ""


# -- what is asked for, and drawn ---------------------------------------------


def grid_query(
    op: int, of: GridOf, grid: GridShape, cells: Cells, window: Window
) -> Query:
    """The question for the blocks or cells in view; of a small grid for all cells."""
    if window.maps:
        blocks = heat_blocks(grid, window)
        return GRID_HEAT.ask(op, of=of, tall=blocks.tall, wide=blocks.wide)
    row = cells.upper
    column = cells.left
    room = numbers_room(grid, window)
    lines = lines_a_row(grid, room)
    if lines > 1:
        room = Room(grid.rows, min(lines * room.columns, grid.columns))
    if grid.rows * grid.columns <= _SMALL:
        row = column = 0
        room = Room(grid.rows, grid.columns)
    return GRID_PART.ask(
        op, of=of, row=row, column=column, rows=room.rows, columns=room.columns
    )


def number_lines(
    grid: GridShape, part: GridPart, cells: Cells, window: Window
) -> list[Line]:
    """The planes side by side, below the numbers of their columns."""
    look = window.look
    room = numbers_room(grid, window)
    label = _label_width(grid)
    if lines_a_row(grid, room) > 1:
        return _folded_lines(grid, part, cells, room, look)
    first_row, first_column = look.origin
    lines = _headings(first_column + cells.left, room, look, label)
    end = min(cells.upper + room.rows, grid.rows)
    for row in range(cells.upper, end):
        name = row_name(row, grid.shape)
        if first_row:
            name = str(first_row + row)
        line = [(f"{name:>{label}} ", "title")]
        picked = None
        if look.picks and row == cells.row:
            picked = cells.column - cells.left
        line += _row_runs(part, row, cells.left, room.columns, picked, look)
        lines.append(line)
    return lines


def _folded_lines(
    grid: GridShape, part: GridPart, cells: Cells, room: Room, look: Look
) -> list[Line]:
    """Each row as lines, which are named by where they begin."""
    label = _label_width(grid)
    first_row, first_column = look.origin
    lines = _headings(0, room, look, label, sign="+")
    end = min(cells.left + lines_a_row(grid, room) * room.columns, grid.columns)
    for row in range(grid.rows):
        for start in range(cells.left, end, room.columns):
            picked = None
            if look.picks and row == cells.row:
                picked = cells.column - start
            name = _line_name(grid, row, first_column + start)
            if first_row:
                name = f"{first_row + row}:{first_column + start}"
            runs = _row_runs(part, row, start, room.columns, picked, look)
            lines.append([(f"{name:>{label}} ", "title"), *runs])
    return lines


def _headings(
    start: int, room: Room, look: Look, label: int, sign: str = ""
) -> list[Line]:
    """The names of the planes, if there are several, and the numbers of the columns,
    behind a ``sign``.
    """
    margin = " " * (label + 1)
    numbers = range(start, start + room.columns)
    columns = "".join(f" {sign + str(number):>{look.width}} " for number in numbers)
    lines: list[Line] = []
    if len(look.planes) > 1:
        wide = room.columns * look.cell_columns
        names = "".join(f" {name:>{look.width}}".ljust(wide) for name in look.planes)
        lines.append([(margin + names, "title")])
    lines.append([(margin + columns * len(look.planes), "title")])
    return lines


def _row_runs(
    part: GridPart,
    row: int,
    left: int,
    columns: int,
    picked: int | None,
    look: Look,
) -> list[Run]:
    """The cells of a row, plane by plane; ``picked`` is the place of the picked one.

    Where the row has fewer cells than ``columns`` the rest of each plane is blank.
    """
    i = row - part.row
    inside = slice(left - part.column, left - part.column + columns)
    written = part.written[i, inside].tolist()
    marked = part.marked[i, inside].tolist()
    missing = " " * ((columns - len(written)) * look.cell_columns)
    runs = []
    for plane in part.planes:
        for place, value in enumerate(plane[i, inside]):
            text = "-"
            if written[place]:
                text = look.text(value)
            sign = " "
            glyph = " "
            style = ""
            if marked[place]:
                glyph, style = look.mark
            if place == picked:
                sign = ">"
                style = "here"
            # what has no mark of its own is one run with its neighbours
            runs.append((f"{sign}{text:>{look.width}}{glyph}", style))
        runs.append((missing, ""))
    return runs


# -- heat ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """A map of blocks: what it ``says`` of its scale, and for each block the number of
    its glyph: -1 is blank, one beyond the last is "!". From glyph ``wrong`` on it is
    one of something wrong.
    """

    says: str
    levels: Ints
    wrong: int


def size_map(heat: Heat, scale: str, glyphs: Glyphs) -> HeatMap:
    """How large the largest |x| of each block is, as a share of the ``scale``."""
    ramp = glyphs.ramp
    says = f"{ramp[0]} 0 to {ramp[-1]} {scale}; ! not finite"
    return HeatMap(says, _levels(heat.shares, len(ramp)), len(ramp))


def bad_map(heat: Heat, glyphs: Glyphs) -> HeatMap:
    """Which share of each block's elements is bad; a blank block has none."""
    ramp = glyphs.ramp
    steps = len(ramp)
    levels = np.ceil(heat.bad * steps).astype(np.int64) - 1
    says = (
        f"bad share of a block: blank 0, {ramp[0]} to {1 / steps:.1%}, {ramp[-1]} all"
    )
    return HeatMap(says, levels, 0)


def error_map(heat: Heat, glyphs: Glyphs) -> HeatMap:
    """The largest error of each block over what is tolerated there, a glyph a power of
    ten.
    """
    ramp = glyphs.ramp
    within = -_LEAST_BEYOND
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.floor(np.log10(heat.shares))
    inside = np.nan_to_num(powers - _LEAST_BEYOND + 1, nan=-1.0, posinf=0.0)
    levels = np.clip(inside, 0, len(ramp) - 1).astype(np.int64)
    levels[np.isinf(heat.shares)] = len(ramp)
    levels[np.isnan(heat.shares)] = -1
    most = len(ramp) - 2 - within
    says = (
        f"worst error / tolerance: {ramp[1]} 1e{_LEAST_BEYOND}, "
        f"{ramp[within + 1]} 1, {ramp[-1]} 1e{most}; ! not finite"
    )
    return HeatMap(says, levels, within + 1)


def heat_lines(
    grid: GridShape,
    heat: Heat,
    maps: Sequence[HeatMap],
    cells: Cells,
    window: Window,
    glyphs: Glyphs,
) -> list[Line]:
    """Maps of the same blocks side by side, below a line for each that says its scale.

    A star marks lines of blocks in which something is marked.
    """
    blocks = heat_blocks(grid, window)
    across = _map_columns(grid, window)
    size = f"{blocks.tall}x{blocks.wide} a block"
    lines: list[Line] = []
    for number, one in enumerate(maps):
        side = ""
        if len(maps) > 1:
            side = ("left: ", "right: ")[number]
        says = f" {side}{one.says}"
        if not number:
            says = f"{says}; {size}"
        lines.append([(clip(says, window.width, glyphs), "dim")])
    label = _label_width(grid)
    marked = _in_lines(heat.marked_blocks, across, grid)
    folded = [_in_lines(one.levels, across, grid) for one in maps]
    here = _picked_block(grid, cells, blocks, across)
    for i in range(len(marked)):
        star = "*" if marked[i].max() > 0 else " "
        name = row_name(i * blocks.tall, grid.shape)
        if grid.rows == 1:
            name = str(i * across * blocks.wide)
        line: Line = [(f"{name:>{label}}", "title"), (f"{star} ", "mark")]
        for one, levels in zip(maps, folded, strict=True):
            if one is not maps[0]:
                line.append((" " * _BETWEEN_MAPS, ""))
            runs = _glyph_runs(one, glyphs)
            row = [runs[level] for level in levels[i].tolist()]
            if here is not None and here[0] == i:
                glyph, _ = row[here[1]]
                row[here[1]] = (glyph, "here")
            line += row
        lines.append(line)
    return lines


def _glyph_runs(one: HeatMap, glyphs: Glyphs) -> list[Run]:
    """The glyph of each level of a map, with its style; the blank is the last."""
    runs: list[Run] = []
    for level, glyph in enumerate(glyphs.ramp):
        style = "mark" if level >= one.wrong else f"heat{level}"
        runs.append((glyph, style))
    return [*runs, ("!", "bad"), (" ", "")]


def _in_lines(blocks: Ints, across: int, grid: GridShape) -> Ints:
    """Blocks in the lines in which they are shown; those of a single row are folded."""
    if grid.rows != 1:
        return blocks
    flat = blocks.reshape(-1)
    columns = min(across, len(flat))
    lines = -(-len(flat) // columns)
    filled = np.full(lines * columns, -1)
    filled[: len(flat)] = flat
    return filled.reshape(lines, columns)


def _picked_block(
    grid: GridShape, cells: Cells, blocks: Blocks, across: int
) -> tuple[int, int] | None:
    """The line and the place of the block with the picked cell."""
    if not grid.rows * grid.columns:
        return None
    picked = cells.clamped(grid.shape)
    line = picked.row // blocks.tall
    place = picked.column // blocks.wide
    if grid.rows == 1:
        line, place = divmod(place, across)
    return line, place


def _levels(shares: Floats, steps: int) -> Ints:
    """The step of each share of the scale: 0 to ``steps`` - 1; ``steps`` for what is
    beyond, -1 for what is blank.
    """
    inside = np.nan_to_num(np.clip(shares, 0.0, 1.0))
    levels: Ints = np.rint(inside * (steps - 1)).astype(np.int64)
    levels[shares > 1.0] = steps
    levels[np.isnan(shares)] = -1
    return levels

"""What Memory and Diff share: the picked cell of a grid, its numbers, its heatmap.

A grid has a row for each index of all axes but the last, whose indices are the columns. Only
the window in view is asked for, or the whole of a small grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.replay.arrays import Floats, Ints
from kernbench.replay.commands import GRID_HEAT, GRID_PART
from kernbench.replay.data.grids import row_name, rows_and_columns
from kernbench.replay.query import Query
from kernbench.replay.views_grids import GridOf, GridPart, GridShape, Heat
from tui.draw import Glyphs, Line, Run
from tui.panes.base import Scroll

_NUMBER = 9
"""Columns of a cell that shows a number."""
_ROW_NAME = 5
"""Columns of a row's name, at least."""
_SMALL = 1 << 14
"""Elements of a grid that is asked for as a whole: scrolling needs no further answer."""
_HEAT_MARGIN = 7
"""Columns in front of the blocks of a heatmap: the row's name, a star, a blank."""


# -- the cells in view ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows and columns of cells are in view."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Cells:
    """Which cell of a grid is picked, (``row``, ``column``), and the first one in view,
    (``upper``, ``left``). A page is about ``page`` rows.
    """

    row: int = 0
    column: int = 0
    upper: int = 0
    left: int = 0
    page: int = 1

    def at(self, row: int, column: int) -> Cells:
        """Another cell picked, which is to be the first in view."""
        return Cells(row, column, row, column, self.page)

    def at_element(self, element: int, shape: tuple[int, ...]) -> Cells:
        """``at``, by the cell's number in row order."""
        _, columns = rows_and_columns(shape)
        row, column = divmod(element, columns)
        return self.at(row, column)

    def scrolled(self, event: Scroll) -> Cells:
        """A cell above or below picked; it may lie outside until it is clamped."""
        by = event.by
        if event.pages:
            by *= max(self.page - 1, 1)
        return replace(self, row=self.row + by)

    def panned(self, by: int) -> Cells:
        """A cell beside it picked; it may lie outside until it is clamped."""
        return replace(self, column=max(self.column + by, 0))

    def clamped(self, shape: tuple[int, ...]) -> Cells:
        """The nearest cell picked of the grid of a tensor of ``shape``."""
        rows, columns = rows_and_columns(shape)
        row = min(max(self.row, 0), rows - 1)
        column = min(max(self.column, 0), columns - 1)
        return replace(self, row=row, column=column)

    def settled(self, shape: tuple[int, ...], room: Room) -> Cells:
        """The grid scrolled as little as needed for the picked cell to be in view."""
        rows, columns = rows_and_columns(shape)
        cells = self.clamped(shape)
        upper = min(cells.upper, cells.row, rows - room.rows)
        upper = max(upper, cells.row - room.rows + 1, 0)
        left = min(cells.left, cells.column, columns - room.columns)
        left = max(left, cells.column - room.columns + 1, 0)
        return replace(cells, upper=upper, left=left)


def next_mark(cells: Cells, grid: GridShape, by: int) -> Cells | None:
    """The next (1) or previous (-1) marked cell picked; None if there is none."""
    here = cells.row * grid.columns + cells.column
    found = grid.marks.after(here) if by > 0 else grid.marks.before(here)
    return None if found is None else cells.at_element(found, grid.shape)


# -- numbers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """How the numbers of a grid are shown.

    ``planes`` are the headings of what is shown side by side, ``text`` that of an element in
    at most ``width`` columns. ``mark`` stands behind elements that are marked, and gives them
    its style. The first row and column have the numbers ``origin``; without an origin rows
    have their names. ``picks``: the picked cell is shown.
    """

    planes: tuple[str, ...]
    text: Callable[[Any], str]
    mark: Run
    width: int = _NUMBER
    origin: tuple[int, int] = (0, 0)
    picks: bool = True


def _label_width(grid: GridShape) -> int:
    """Columns that the names of the rows take."""
    return max(len(row_name(grid.rows - 1, grid.shape)), _ROW_NAME)


def numbers_room(grid: GridShape, look: Look, width: int, height: int) -> Room:
    """How many cells of each plane there is room for in so many columns and lines."""
    planes = len(look.planes)
    headings = 1 if planes == 1 else 2
    columns = (width - _label_width(grid) - 1) // (look.width + 1) // planes
    return Room(max(height - headings, 1), min(max(columns, 1), grid.columns))


def part_query(op: int, of: GridOf, grid: GridShape, cells: Cells, room: Room) -> Query:
    """The question for the cells in view; of a small grid for all of it."""
    if grid.rows * grid.columns <= _SMALL:
        return GRID_PART.ask(
            op, of=of, row=0, column=0, rows=grid.rows, columns=grid.columns
        )
    return GRID_PART.ask(
        op,
        of=of,
        row=cells.upper,
        column=cells.left,
        rows=room.rows,
        columns=room.columns,
    )


def number_lines(
    grid: GridShape, part: GridPart, cells: Cells, room: Room, look: Look
) -> list[Line]:
    """The planes side by side, below the numbers of their columns."""
    label = _label_width(grid)
    lines = _headings(cells, room, look, label)
    first_row, _ = look.origin
    end = min(cells.upper + room.rows, grid.rows)
    for row in range(cells.upper, end):
        name = str(first_row + row) if first_row else row_name(row, grid.shape)
        line = [(f"{name:>{label}} ", "title")]
        picked = None
        if look.picks and row == cells.row:
            picked = cells.column - cells.left
        line += _row_runs(part, row, cells.left, room.columns, picked, look)
        lines.append(line)
    return lines


def _headings(cells: Cells, room: Room, look: Look, label: int) -> list[Line]:
    margin = " " * (label + 1)
    _, first_column = look.origin
    start = first_column + cells.left
    numbers = range(start, start + room.columns)
    columns = "".join(f"{number:>{look.width}} " for number in numbers)
    lines: list[Line] = []
    if len(look.planes) > 1:
        wide = room.columns * (look.width + 1)
        names = "".join(f"{name:>{look.width}}".ljust(wide) for name in look.planes)
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
    """The cells of a row; ``picked`` is the place among them of the picked one."""
    i = row - part.row
    inside = slice(left - part.column, left - part.column + columns)
    written = part.written[i, inside].tolist()
    marked = part.marked[i, inside].tolist()
    runs = []
    for plane in part.planes:
        for place, value in enumerate(plane[i, inside]):
            text = look.text(value) if written[place] else "-"
            glyph = " "
            style = ""
            if marked[place]:
                glyph, style = look.mark
            if place == picked:
                text = f">{text}"
                style = "here"
            runs.append((f"{text:>{look.width}}"[-look.width :] + glyph, style))
    return runs


# -- heat -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blocks:
    """A heatmap's blocks of cells: rows and columns of one, lines that there is room for."""

    tall: int
    wide: int
    lines: int

    @property
    def page(self) -> int:
        """Rows of cells that a page is."""
        return self.tall * max(self.lines - 2, 1) + 1


def heat_blocks(grid: GridShape, width: int, height: int) -> Blocks:
    """The blocks in which all of a grid is shown in so many columns and lines."""
    down = max(height - 1, 1)
    across = max(width - _HEAT_MARGIN - 1, 1)
    return Blocks(-(-grid.rows // down), -(-grid.columns // across), height)


def heat_query(op: int, of: GridOf, blocks: Blocks) -> Query:
    """The question for the blocks of a heatmap."""
    return GRID_HEAT.ask(op, of=of, tall=blocks.tall, wide=blocks.wide)


def heat_lines(
    grid: GridShape,
    heat: Heat,
    blocks: Blocks,
    cells: Cells,
    scale: str,
    glyphs: Glyphs,
) -> list[Line]:
    """A glyph for each block, '!' for what is beyond the scale, blank where nothing is.

    ``scale`` is what the top of the scale stands for. A star marks rows of blocks in which
    something is marked.
    """
    ramp = glyphs.ramp
    size = f"{blocks.tall}x{blocks.wide}"
    head = f" {ramp[0]} 0 to {ramp[-1]} {scale} of {size} cells; ! beyond"
    lines: list[Line] = [[(head, "dim")]]
    runs = [(glyph, f"heat{level}") for level, glyph in enumerate(ramp)]
    runs.append(("!", "bad"))
    runs.append((" ", ""))
    marked = heat.marked.tolist()
    for i, levels in enumerate(_levels(heat.shares, len(ramp)).tolist()):
        name = row_name(i * blocks.tall, grid.shape)
        star = "*" if marked[i] else " "
        line = [(f"{name:>{_ROW_NAME}}", "title"), (f"{star} ", "mark")]
        line += [runs[level] for level in levels]
        lines.append(line)
    picked = cells.clamped(grid.shape)
    here = lines[1 + picked.row // blocks.tall]
    at = 2 + picked.column // blocks.wide
    glyph, _ = here[at]
    here[at] = (glyph, "here")
    return lines


def _levels(shares: Floats, steps: int) -> Ints:
    """The step of each share of the scale: 0 to ``steps`` - 1, ``steps`` for what is beyond,
    -1 for what is blank.
    """
    inside = np.nan_to_num(np.clip(shares, 0.0, 1.0))
    levels: Ints = np.rint(inside * (steps - 1)).astype(np.int64)
    levels[shares > 1.0] = steps
    levels[np.isnan(shares)] = -1
    return levels

"""What Memory and Diff share: a grid as numbers or as a heatmap, and its picked cell.

A grid has a column for each index of its tensor's last axis, and a row for each index
of all others together. It knows neither pane: they say in which ``Window`` it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.replay.arrays import Floats, Ints
from kernbench.replay.data.grids import row_name, rows_and_columns
from kernbench.replay.inner_commands import GRID_HEAT, GRID_PART
from kernbench.replay.query import Query
from kernbench.replay.views.grids import GridOf, GridPart, GridShape, Heat
from tui.draw import Glyphs, Line, Run
from tui.panes.base import Scroll

_NUMBER = 9
"""Columns of a cell that shows a number."""
_ROW_NAME = 5
"""Columns of a row's name, at least."""
_SMALL = 1 << 14
"""Elements of a grid that is asked for as a whole: scrolling asks for no more."""
_HEAT_MARGIN = 7
"""Columns in front of the blocks of a heatmap: the row's name, a star, a blank."""


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


@dataclass(frozen=True, slots=True)
class Window:
    """The columns and lines that a grid has; there it is shown as a heatmap, or as
    numbers that look like ``look``.
    """

    width: int
    height: int
    look: Look
    heat: bool = False


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
    """How many cells of each plane there is room for."""
    look = window.look
    planes = len(look.planes)
    headings = 1 if planes == 1 else 2
    for_cells = window.width - _label_width(grid) - 1
    columns = for_cells // (look.width + 1) // planes
    rows = max(window.height - headings, 1)
    return Room(rows, min(max(columns, 1), grid.columns))


def heat_blocks(grid: GridShape, window: Window) -> Blocks:
    """The smallest blocks in which all of a grid has room."""
    down = max(window.height - 1, 1)
    across = max(window.width - _HEAT_MARGIN - 1, 1)
    return Blocks(tall=-(-grid.rows // down), wide=-(-grid.columns // across))


def _label_width(grid: GridShape) -> int:
    """Columns that the names of the rows take."""
    return max(len(row_name(grid.rows - 1, grid.shape)), _ROW_NAME)


# -- the picked cell ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cells:
    """The picked cell of a grid, (``row``, ``column``), and the first one in view,
    (``upper``, ``left``). By pages one moves by ``page`` rows less one.
    """

    row: int = 0
    column: int = 0
    upper: int = 0
    left: int = 0
    page: int = 1

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
        if window.heat:
            tall = heat_blocks(grid, window).tall
            return replace(cells, page=tall * max(window.height - 2, 1) + 1)
        room = numbers_room(grid, window)
        upper = min(cells.upper, cells.row, grid.rows - room.rows)
        upper = max(upper, cells.row - room.rows + 1, 0)
        left = min(cells.left, cells.column, grid.columns - room.columns)
        left = max(left, cells.column - room.columns + 1, 0)
        return replace(cells, upper=upper, left=left, page=room.rows)


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
    if window.heat:
        blocks = heat_blocks(grid, window)
        return GRID_HEAT.ask(op, of=of, tall=blocks.tall, wide=blocks.wide)
    row = cells.upper
    column = cells.left
    room = numbers_room(grid, window)
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
    lines = _headings(cells, room, look, label)
    first_row, _ = look.origin
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


def _headings(cells: Cells, room: Room, look: Look, label: int) -> list[Line]:
    """The names of the planes, if there are several, and the numbers of the columns."""
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
    """The cells of a row, plane by plane; ``picked`` is the place of the picked one."""
    i = row - part.row
    inside = slice(left - part.column, left - part.column + columns)
    written = part.written[i, inside].tolist()
    marked = part.marked[i, inside].tolist()
    runs = []
    for plane in part.planes:
        for place, value in enumerate(plane[i, inside]):
            text = "-"
            if written[place]:
                text = look.text(value)
            glyph = " "
            style = ""
            if marked[place]:
                glyph, style = look.mark
            if place == picked:
                text = f">{text}"
                style = "here"
            runs.append((f"{text:>{look.width}}"[-look.width :] + glyph, style))
    return runs


def heat_lines(
    grid: GridShape,
    heat: Heat,
    cells: Cells,
    window: Window,
    scale: str,
    glyphs: Glyphs,
) -> list[Line]:
    """A glyph for each block, '!' for what is beyond the scale, blank where nothing is.

    ``scale`` says what the top of the scale is. A star marks rows of blocks in which
    something is marked.
    """
    blocks = heat_blocks(grid, window)
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
    """The step of each share of the scale: 0 to ``steps`` - 1; ``steps`` for what is
    beyond, -1 for what is blank.
    """
    inside = np.nan_to_num(np.clip(shares, 0.0, 1.0))
    levels: Ints = np.rint(inside * (steps - 1)).astype(np.int64)
    levels[shares > 1.0] = steps
    levels[np.isnan(shares)] = -1
    return levels

"""Pane 4: what memory holds at this op.

The allocations; a tensor as numbers, as a heatmap or as bits; every access to some
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any

import numpy as np

from kernbench.replay.answers import Touch
from kernbench.replay.command import Call
from kernbench.replay.commands import BLAME, GOTO, MEMORY
from kernbench.replay.commands import HISTORY as OF_A_PLACE
from kernbench.replay.data.grids import cell_name
from kernbench.replay.data.memory import Memory, MemoryEntry
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    ACCESSES_TO,
    HELD_ALLOCATIONS,
    TENSOR_CELL,
    TENSOR_SUMMARY,
    TOUCH_ROWS,
)
from kernbench.replay.query import Query
from kernbench.replay.text import number_text, time_text
from kernbench.replay.views.grids import GridOf, first_element
from kernbench.replay.views.memory import (
    MOST_ALLOCATIONS,
    Accesses,
    TensorCell,
    TensorSummary,
)
from tui.draw import Line, clip, length
from tui.panes.base import (
    Answers,
    Back,
    BasePane,
    Change,
    ChangeView,
    Click,
    Do,
    Effect,
    Enter,
    Event,
    Frame,
    Moved,
    NextMark,
    Pan,
    Picture,
    Rows,
    Scroll,
    Settle,
    Show,
    before_first_op,
    first_of,
    picture_so_far,
)
from tui.panes.grid import (
    Cells,
    Look,
    Window,
    grid_query,
    heat_lines,
    next_mark,
    number_lines,
    picked_style,
    size_map,
)

OVERVIEW = "overview"
NUMBERS = "numbers"
HEATMAP = "heatmap"
HEX = "hex"
HISTORY = "history"

_LIST_SHARE = 3
"""A third of the overview is the list, if there is a tensor to show below it."""
_PLACE_COLUMNS = 60
"""Columns of the list of allocations that are not for their names."""
_SHORTEST_NAME = 12
_LEAST_NOTE = 8
"""A note is wrapped to at least so many columns."""
_LEFT_OUT = "no numbers: the run was recorded with --no-data; record it without"
_ONLY_A_PART = "no numbers: a part of a trace holds no data; the whole one does"
_PICK_ONE: Line = [(" v, then Enter on an allocation: all accesses to it", "dim")]
_NOTHING_WRITTEN: Line = [(" nothing is written yet: s steps on", "dim")]


@dataclass(frozen=True, slots=True)
class Shown:
    """Of which tensor a cell is picked, and at which op that was settled; the tensor's
    ``shape`` is in elements.
    """

    tensor: str
    shape: tuple[int, ...]
    op: int


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The list and the grid in view.

    ``kept`` is the tensor that the user keeps, None while that of the op is shown, and
    ``kept_shard`` the number of the shard by which it was picked. ``aim`` is where that
    begins in the tensor, until its first element is picked there. ``listed`` names the
    bytes whose accesses the history lists; None: those of the picked cell of ``shown``.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    cells: Cells = field(default_factory=Cells)
    kept: str | None = None
    kept_shard: int = 0
    aim: tuple[int, ...] | None = None
    shown: Shown | None = None
    listed: str | None = None

    @property
    def cell(self) -> str | None:
        """The picked cell as in c[3,17]; None if no tensor was shown yet."""
        if self.shown is None:
            return None
        name = cell_name(self.cells.row, self.cells.column, self.shown.shape)
        return self.shown.tensor + name

    @property
    def history_of(self) -> str | None:
        """The bytes whose accesses the history lists."""
        return self.listed or self.cell

    def keeps(self, entry: MemoryEntry) -> bool:
        """Whether it is this allocation that the user keeps."""
        return entry.tensor == self.kept and entry.shard.index == self.kept_shard

    def keeping(self, entry: MemoryEntry) -> MemoryState:
        """The state with the tensor of an allocation kept, from there on."""
        shard = entry.shard
        return replace(
            self, kept=entry.tensor, kept_shard=shard.index, aim=shard.origin
        )


class MemoryPane(BasePane[MemoryState]):
    """Shows the tensor that the op writes, or if it writes none that it reads; or the
    one that the user keeps. Of a trace without data it has the allocations and their
    history, and says why there is no more.
    """

    views: tuple[str, ...] = (OVERVIEW, NUMBERS, HEATMAP, HEX, HISTORY)

    def __init__(self, index: Index) -> None:
        self._ops = len(index.ops)
        self._no_data = ""
        if index.trace.cut:
            self._no_data = _ONLY_A_PART
        elif index.trace.header.get("data") is False:
            self._no_data = _LEFT_OUT

    def start(self) -> MemoryState:
        """The overview."""
        return MemoryState()

    def view(self, state: MemoryState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: MemoryState, view: int) -> MemoryState:
        """The state with another view, whose rows are others."""
        return replace(state, view=view, rows=state.rows.released())

    def enter_word(self, state: MemoryState, frame: Frame, answers: Answers) -> str:
        """What Enter does here."""
        if self._mode(state) == HISTORY:
            return "go"
        if self._mode(state) == OVERVIEW and not self._no_data:
            entry = self._picked_entry(state, frame, answers)
            return "let go" if entry is not None and state.keeps(entry) else "keep"
        if self._mode(state) == OVERVIEW:
            return "history"
        return "" if self._no_data else "blame"

    def place(self, state: MemoryState, frame: Frame, answers: Answers) -> str | None:
        """The bytes of the picked allocation, or the picked cell."""
        if self._mode(state) != OVERVIEW:
            return state.cell
        if state.rows.pick is None:
            return None
        entry = self._picked_entry(state, frame, answers)
        return None if entry is None else _bytes_of(entry)

    def _mode(self, state: MemoryState) -> str:
        """The name of the view that is shown."""
        return self.views[state.view]

    def _lists(self, state: MemoryState) -> bool:
        """Whether rows are picked, instead of cells."""
        return self._mode(state) in (OVERVIEW, HISTORY)

    # -- update ---------------------------------------------------------------

    def update(
        self, state: MemoryState, event: Event, frame: Frame, answers: Answers
    ) -> Change[MemoryState] | None:
        """Picks rows and cells, and follows the tensor of the op."""
        match event:
            case Moved():
                state = replace(state, rows=state.rows.released())
            case Settle():
                pass
            case Scroll() if self._lists(state):
                state = replace(state, rows=state.rows.moved(event))
            case Scroll():
                state = _with_cells(state, state.cells.scrolled(event))
            case Pan(by) if not self._lists(state):
                state = _with_cells(state, state.cells.panned(by))
            case NextMark(by):
                return self._to_mark(state, by, frame, answers)
            case ChangeView(by):
                state = self._with_next_view(state, by, frame, answers)
            case Show(place):
                history = self.views.index(HISTORY)
                state = replace(self.with_view(state, history), listed=place)
            case Back():
                if state.kept is None:
                    return None
                state = replace(state, kept=None, aim=None)
            case Enter():
                return self._entered(state, frame, answers)
            case Click(_, y):
                picked = None
                if self._lists(state):
                    picked = state.rows.picked_at(y - 1)
                if picked is None:
                    return Change(state)
                return self._entered(replace(state, rows=picked), frame, answers)
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _to_mark(
        self, state: MemoryState, by: int, frame: Frame, answers: Answers
    ) -> Change[MemoryState] | None:
        """To the next element that the op wrote; None if there is none that way."""
        summary = self._summary(state, frame, answers)
        if summary is None or not summary.name:
            return None
        cells = next_mark(state.cells, summary.grid, by)
        if cells is None:
            return None
        return Change(self._settled(replace(state, cells=cells), frame, answers))

    def _with_next_view(
        self, state: MemoryState, by: int, frame: Frame, answers: Answers
    ) -> MemoryState:
        """The next or previous view.

        A tensor that is picked in the overview is kept. Backwards, where the history
        is, all accesses to the picked allocation are listed.
        """
        state = replace(state, listed=None)
        if self._mode(state) == OVERVIEW and state.rows.pick is not None:
            entry = self._picked_entry(state, frame, answers)
            if entry is not None:
                state = state.keeping(entry)
                if by < 0:
                    state = replace(state, listed=_bytes_of(entry))
        return self.next_view(state, by) or state

    def _entered(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> Change[MemoryState]:
        """The picked tensor is kept, from the picked shard on, or let go if it was kept
        by that, or without data its history is shown; an access's op is gone to; a cell
        is blamed.
        """
        effects: tuple[Effect, ...] = ()
        if self._mode(state) == OVERVIEW:
            entry = self._picked_entry(state, frame, answers)
            if entry is not None and self._no_data:
                history = self.views.index(HISTORY)
                state = self.with_view(state, history)
                state = replace(state, listed=_bytes_of(entry))
            elif entry is not None and state.keeps(entry):
                state = replace(state, kept=None, aim=None)
            elif entry is not None:
                state = state.keeping(entry)
        elif self._mode(state) == HISTORY:
            accesses = self._accesses(state, answers)
            at = state.rows.at or 0
            if accesses is not None and at < len(accesses.ops):
                effects = (Do(GOTO(op=int(accesses.ops[at]))),)
        elif state.cell is not None:
            effects = (Do(BLAME(place=state.cell)),)
        return Change(self._settled(state, frame, answers), effects)

    def _picked_entry(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> MemoryEntry | None:
        """The allocation on the picked row, or on the first."""
        memory: Memory | None = answers.known(_allocations_query(state, frame))
        at = state.rows.at or 0
        if memory is None or at >= len(memory.entries):
            return None
        return memory.entries[at]

    # -- settling -------------------------------------------------------------

    def _settled(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> MemoryState:
        """Lists and grid scrolled to what is picked, as far as they are known."""
        if frame.height <= 0:
            return state
        summary = self._summary(state, frame, answers)
        if summary is not None and summary.name:
            state = _following(state, summary, frame.cursor)
        if self._mode(state) == HISTORY:
            return self._settled_history(state, frame, answers)
        memory = self._memory(state, frame, answers)
        if memory is not None:
            total = min(memory.total, MOST_ALLOCATIONS)
            room = self._list_rows(memory, summary, frame)
            rows = state.rows.settled(total, room, first_of(total))
            state = replace(state, rows=rows)
        if summary is None or not summary.name:
            return state
        window = self._window(state, memory, summary, frame)
        if window is None:
            return state
        return replace(state, cells=state.cells.settled(summary.grid, window))

    def _settled_history(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> MemoryState:
        """The accesses scrolled to the picked one, or to the last before the cursor."""
        accesses = self._accesses(state, answers)
        if accesses is None:
            return state
        here = None
        if len(accesses.ops):
            here = max(_last_before(accesses, frame.cursor), 0)
        rows = state.rows.settled(len(accesses.ops), frame.height - 1, here)
        return replace(state, rows=rows)

    def _window(
        self,
        state: MemoryState,
        memory: Memory | None,
        summary: TensorSummary,
        frame: Frame,
    ) -> Window | None:
        """Where the grid is shown, below everything else.

        None until it is known how long the list above it is.
        """
        above = len(_head(summary, state, frame.width))
        mode = self._mode(state)
        if mode != OVERVIEW:
            above += 1
        elif memory is None:
            return None
        elif memory.entries:
            above += 1 + self._list_rows(memory, summary, frame)
        height = frame.height - above
        maps = 1 if mode == HEATMAP else 0
        return Window(frame.width, height, _look(mode, summary), maps)

    # -- queries --------------------------------------------------------------

    def question(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> Call | None:
        """What memory holds, or in the views of a tensor that tensor; the accesses of a
        place.
        """
        if self._mode(state) == OVERVIEW:
            return MEMORY()
        if self._mode(state) == HISTORY:
            place = state.history_of
            return None if place is None else OF_A_PLACE(place=place)
        return None if state.shown is None else MEMORY(name=state.shown.tensor)

    def queries(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The list in view; the tensor, then its cells in view."""
        wanted = []
        if self._mode(state) == OVERVIEW:
            wanted.append(_allocations_query(state, frame))
        if self._needs_tensor(state):
            wanted.append(_summary_query(state, frame))
        if self._mode(state) == HISTORY:
            return (*wanted, *self._history_queries(state, answers))
        summary = self._summary(state, frame, answers)
        if summary is None or not summary.name:
            return tuple(wanted)
        if self._mode(state) != OVERVIEW and state.shown is not None:
            wanted.append(_cell_query(state, state.shown, frame))
        memory = self._memory(state, frame, answers)
        window = self._window(state, memory, summary, frame)
        if window is not None:
            wanted.append(_grid_query(state, summary, window, frame))
        return tuple(wanted)

    def _needs_tensor(self, state: MemoryState) -> bool:
        """Whether the tensor is shown; or needed for a cell whose history is shown."""
        if self._no_data:
            return False
        return self._mode(state) != HISTORY or state.history_of is None

    def _history_queries(self, state: MemoryState, answers: Answers) -> list[Query]:
        """Which accesses there are, then those in view."""
        if state.history_of is None:
            return []
        wanted = [ACCESSES_TO.ask(place=state.history_of)]
        accesses = self._accesses(state, answers)
        if accesses is not None:
            wanted.append(_touches_query(state, accesses))
        return wanted

    def _summary(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> TensorSummary | None:
        """The tensor that is shown, if it is known."""
        if not self._needs_tensor(state):
            return None
        found: TensorSummary | None = answers.known(_summary_query(state, frame))
        return found

    def _memory(
        self, state: MemoryState, frame: Frame, answers: Answers
    ) -> Memory | None:
        """The allocations that are listed, if they are known."""
        if self._mode(state) != OVERVIEW:
            return None
        found: Memory | None = answers.known(_allocations_query(state, frame))
        return found

    def _accesses(self, state: MemoryState, answers: Answers) -> Accesses | None:
        """The accesses that are listed, if they are known."""
        if state.history_of is None:
            return None
        query = ACCESSES_TO.ask(place=state.history_of)
        found: Accesses | None = answers.known(query)
        return found

    # -- render ---------------------------------------------------------------

    def render(self, state: MemoryState, frame: Frame, answers: Answers) -> Picture:
        """A list, a tensor, or in the overview both."""
        subtitle = ""
        memory = self._memory(state, frame, answers)
        if memory is not None:
            held = [
                f"{n:,} in {space} ({size:,} B)" for space, n, size in memory.spaces
            ]
            subtitle = ", ".join(held)

        def draw(lines: list[Line]) -> None:
            if self._mode(state) == HISTORY:
                self._draw_history(lines, state, frame, answers)
            else:
                self._draw_memory(lines, state, frame, answers)
            if lines:
                return
            if frame.cursor < 0:
                lines.append(before_first_op(self._ops))
            else:
                lines.append(_NOTHING_WRITTEN)

        return picture_so_far(draw, frame.height, subtitle)

    def _draw_memory(
        self, lines: list[Line], state: MemoryState, frame: Frame, answers: Answers
    ) -> None:
        """The list, in the overview, and the tensor."""
        mode = self._mode(state)
        memory: Memory | None = None
        if mode == OVERVIEW:
            memory = answers.of(_allocations_query(state, frame))
            summary = self._summary(state, frame, answers)
            lines += self._overview(state, memory, summary, frame)
        if self._no_data:
            lines += self._why_no_numbers(frame)
            return
        tensor: TensorSummary = answers.of(_summary_query(state, frame))
        if not tensor.name:
            return
        lines += _head(tensor, state, frame.width)
        if mode != OVERVIEW:
            lines.append(self._cell_line(state, frame, answers))
        window = self._window(state, memory, tensor, frame)
        if window is None:
            return
        of_grid: Any = answers.of(_grid_query(state, tensor, window, frame))
        if window.maps:
            scale = f"{number_text(tensor.largest)}, the largest |x|"
            sizes = size_map(of_grid, scale, frame.glyphs)
            lines += heat_lines(
                tensor.grid, of_grid, (sizes,), state.cells, window, frame.glyphs
            )
        else:
            lines += number_lines(tensor.grid, of_grid, state.cells, window)

    def _why_no_numbers(self, frame: Frame) -> list[Line]:
        """Why a trace without data shows none, wrapped to the pane; no lines before the
        first op.
        """
        if frame.cursor < 0:
            return []
        parts = wrap(self._no_data, max(frame.width - 2, _LEAST_NOTE))
        return [[(f" {part}", "mark")] for part in parts]

    def _list_rows(
        self, memory: Memory, summary: TensorSummary | None, frame: Frame
    ) -> int:
        """How many allocations are in view.

        They leave room for the tensor below, also as long as it is not known whether
        there is one; or for why there is none.
        """
        room = frame.height - 1
        if self._no_data:
            room = max(room - len(self._why_no_numbers(frame)), 1)
        elif summary is None or summary.name:
            room = max(frame.height // _LIST_SHARE, 1)
        return min(room, len(memory.entries))

    def _overview(
        self,
        state: MemoryState,
        memory: Memory,
        summary: TensorSummary | None,
        frame: Frame,
    ) -> list[Line]:
        """The allocations in view below their heading; no lines if there are none."""
        if not memory.entries:
            return []
        first = memory.entries[: self._list_rows(memory, summary, frame)]
        longest = max(len(_name(entry)) for entry in first)
        columns = min(longest, max(frame.width - _PLACE_COLUMNS, _SHORTEST_NAME))
        head = (
            f"  {'allocation':<{columns}} space {'addr':>14} type  "
            f"{'shape':<11} written; * this op"
        )
        lines: list[Line] = [[(head, "dim")]]
        visible = state.rows.visible
        entries = memory.entries[visible.start : visible.stop]
        for i, entry in enumerate(entries, visible.start):
            is_picked = i == state.rows.pick
            text = _allocation(entry, columns, is_picked, frame)
            lines.append([(text, picked_style(is_picked))])
        return lines

    def _cell_line(self, state: MemoryState, frame: Frame, answers: Answers) -> Line:
        """The picked cell: its index, value, address, and who wrote it."""
        if state.shown is None:
            return []
        cell: TensorCell = answers.of(_cell_query(state, state.shown, frame))
        value = ""
        place = f"  {cell.space} {cell.addr:#x}"
        if cell.value is not None:
            value = f" = {cell.value:.7g}"
            place = f"  0x{cell.bits}{place}"
        return [
            (f" {state.cell}{value}", "bold"),
            (place, "title"),
            (f"  written {_age(cell.writer, frame)}", ""),
        ]

    def _draw_history(
        self, lines: list[Line], state: MemoryState, frame: Frame, answers: Answers
    ) -> None:
        """Every access to a place, with the one before the cursor marked."""
        if state.history_of is None and not self._no_data:
            answers.of(_summary_query(state, frame))
            return
        if state.history_of is None:
            lines += self._why_no_numbers(frame)
            if lines:
                lines.append(_PICK_ONE)
            return
        query = ACCESSES_TO.ask(place=state.history_of)
        accesses: Accesses = answers.of(query)
        lines.append([(_history_head(state.history_of, accesses), "dim")])
        here = _last_before(accesses, frame.cursor)
        touches: Sequence[Touch] = answers.of(_touches_query(state, accesses))
        for i, touch in enumerate(touches, state.rows.top):
            text = _access(touch, here=i == here)
            lines.append([(text, picked_style(i == state.rows.pick))])


# -- questions ----------------------------------------------------------------


def _allocations_query(state: MemoryState, frame: Frame) -> Query:
    """The allocations from the first to the last in view."""
    count = min(state.rows.top + max(frame.height, 1), MOST_ALLOCATIONS)
    return HELD_ALLOCATIONS.ask(frame.cursor, count=count)


def _summary_query(state: MemoryState, frame: Frame) -> Query:
    """The tensor that is kept, or that of the op, without its numbers."""
    return TENSOR_SUMMARY.ask(frame.cursor, name=state.kept or "")


def _cell_query(state: MemoryState, shown: Shown, frame: Frame) -> Query:
    """The picked cell."""
    return TENSOR_CELL.ask(
        frame.cursor,
        tensor=shown.tensor,
        row=state.cells.row,
        column=state.cells.column,
    )


def _touches_query(state: MemoryState, accesses: Accesses) -> Query:
    """The accesses in view."""
    visible = state.rows.visible
    numbers = accesses.numbers[visible.start : visible.stop]
    return TOUCH_ROWS.ask(numbers=tuple(numbers.tolist()))


def _grid_query(
    state: MemoryState, summary: TensorSummary, window: Window, frame: Frame
) -> Query:
    """The numbers, or blocks of the heatmap, in view."""
    of = GridOf(summary.name, compared=False)
    return grid_query(frame.cursor, of, summary.grid, state.cells, window)


# -- parts of the state -------------------------------------------------------


def _following(state: MemoryState, summary: TensorSummary, op: int) -> MemoryState:
    """The state once a tensor is known at an op.

    Of another tensor the first element that the op wrote is picked, or its first one.
    So it is of the same tensor where the op wrote into it, unless the user keeps the
    tensor. Of one that was just kept by a shard, the first element of that is picked.
    """
    shown = Shown(summary.name, summary.grid.shape, op)
    if state.aim is not None and summary.name == state.kept:
        first = first_element(state.aim, summary.grid.shape)
        cells = state.cells.at_element(first, summary.grid.shape)
        return replace(state, shown=shown, cells=cells, aim=None)
    if shown == state.shown:
        return state
    is_other = state.shown is None or state.shown.tensor != summary.name
    cells = state.cells
    if is_other or (state.kept is None and summary.grid.marks.count):
        first = summary.grid.marks.first or 0
        cells = cells.at_element(first, summary.grid.shape)
    return replace(state, shown=shown, cells=cells)


def _with_cells(state: MemoryState, cells: Cells) -> MemoryState:
    """Another cell picked of the tensor that was shown."""
    if state.shown is None:
        return state
    return replace(state, cells=cells.clamped(state.shown.shape))


def _last_before(accesses: Accesses, op: int) -> int:
    """The number of the last access that was made by an op, -1 if there is none."""
    return int(np.searchsorted(accesses.ops, op, side="right")) - 1


# -- texts --------------------------------------------------------------------


def _bytes_of(entry: MemoryEntry) -> str:
    """The bytes of an allocation, as ``watch`` and ``history`` take them."""
    shard = entry.shard
    return f"{shard.space} {shard.addr:#x}:{shard.nbytes}"


def _name(entry: MemoryEntry) -> str:
    """An allocation's tensor and the number of its shard; scratch has an owner."""
    if not entry.shard.va:
        return entry.tensor
    return f"{entry.shard.tensor}.{entry.shard.index}"


def _age(writer: int | None, frame: Frame) -> str:
    """Which op wrote something, and how many ops before the cursor."""
    if writer is None:
        return "never"
    return f"op {writer} ({frame.cursor - writer} ago)"


def _allocation(entry: MemoryEntry, columns: int, is_picked: bool, frame: Frame) -> str:
    """One line of the list, with the name in so many columns. What the op reads or
    writes has a star, as a changed number has, and the picked row a mark as in a grid.
    """
    shard = entry.shard
    mark = " "
    if entry.touched:
        mark = "*"
    if is_picked:
        mark = ">"
    name = clip(_name(entry), columns, frame.glyphs)
    place = f"{shard.space:<5} {shard.addr:>#14x} {shard.dtype:<5}"
    shape = _shape(shard.shape)
    return f"{mark} {name} {place} {shape:<11} {_age(entry.writer, frame)}"


def _shape(extents: Sequence[int]) -> str:
    """A shape as in 8x64; that of a scalar as in numpy."""
    return "x".join(str(extent) for extent in extents) or "()"


def _head(summary: TensorSummary, state: MemoryState, width: int) -> list[Line]:
    """What is said of a tensor, in two lines where it does not fit into one."""
    kept = ""
    if state.kept:
        kept = " (kept: Esc lets go)"
    shape = _shape(summary.grid.shape)
    line = [
        (f" {summary.name}{kept}", "bold"),
        (f" {summary.dtype} {shape}", "title"),
    ]
    changed = summary.grid.marks.count
    if changed:
        line.append((f"  {changed:,} changed*", "mark"))
    if summary.unwritten:
        line.append((f"  {summary.unwritten:,} not written so far", "dim"))
    low = number_text(summary.minimum)
    high = number_text(summary.maximum)
    mean = number_text(summary.mean)
    figures = (f"  min {low} max {high} mean {mean} NaN {summary.nans}", "title")
    if length([*line, figures]) > width:
        return [line, [figures]]
    return [[*line, figures]]


def _look(mode: str, summary: TensorSummary) -> Look:
    """How the elements of a tensor are shown in a view."""
    mark = ("*", "mark")
    if mode == HEX:
        digits = 2 * summary.element_bytes
        return Look(("",), _bits, mark, width=digits + 2)
    return Look(("",), number_text, mark, picks=mode != OVERVIEW)


def _bits(value: Any) -> str:
    """The bits of an element as hex digits, the highest first."""
    return str(value.tobytes()[::-1].hex())


def _history_head(place: str, accesses: Accesses) -> str:
    """How many accesses there are, and where the bytes are."""
    (space, addr, nbytes), *more = accesses.ranges
    text = f" accesses to {place}: {len(accesses.ops):,}, {space} {addr:#x}:{nbytes}"
    if more:
        text += f" and {len(more)} more"
    return text


def _access(touch: Touch, here: bool) -> str:
    """One line of the history; ``here``: it is the last one before the cursor."""
    op = touch.op
    mark = ">" if here else " "
    when = f"{touch.kind:<5} op {op.op:>6,} {time_text(op.t_start):>9}"
    name = op.name.removeprefix("TileToken/")
    return f"{mark} {when} {touch.nbytes:>6,} B {name} {op.component}"

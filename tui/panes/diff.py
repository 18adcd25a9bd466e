"""Pane 6: outputs beside their references; what the op wrote beside its oracle, as numbers or
heat; the first op that rounding does not explain; hazards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any

from kernbench.replay.answers import Touch, Touches
from kernbench.replay.commands import (
    BLAME,
    COMPARISON,
    DIVERGENCE_TEXT,
    EXECUTES_SOON,
    FIRST_DIVERGENCE,
    GOTO,
    HAZARDS,
    JUDGEMENT,
    OUTPUTS,
)
from kernbench.replay.data.diff import OutputRow, Outputs
from kernbench.replay.data.grids import cell_name
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.replay.text import number_text
from kernbench.replay.views_diff import Comparison, Divergence, Judgement
from kernbench.replay.views_grids import GridOf, GridShape
from tui.draw import Glyphs, Line, Run, clip, length
from tui.panes.base import (
    Answers,
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
    before_first_op,
    picture_so_far,
)
from tui.panes.grid import (
    Cells,
    Look,
    heat_blocks,
    heat_lines,
    heat_query,
    next_mark,
    number_lines,
    numbers_room,
    part_query,
)

NUMBERS = "numbers"
HEATMAP = "heatmap"
OUTPUT_LIST = "outputs"
DIVERGENCE = "first divergence"
HAZARD_LIST = "hazards"

_WORDS = {OUTPUT_LIST: "show", DIVERGENCE: "go", HAZARD_LIST: "go"}
"""What Enter does in the views where rows are picked."""
_HEAD_LINES = {OUTPUT_LIST: 2, DIVERGENCE: 0, HAZARD_LIST: 1}
"""Lines above the first row in these views."""
_OUTPUTS_SHARE = 3
"""A third of the pane is for the outputs, where the numbers are below them."""
_HAZARD_LINES = 8
"""Lines that are kept for the picked hazard."""
_TILE_ORIGIN = 2
"""Numbers in the origin of a tile's block: its first row and column."""
_GOOD: Run = ("ok", "flight")
_BAD: Run = ("DIFFERS!", "bad")
_LOOK = Look(("expected", "actual", "error"), number_text, mark=("!", "bad"))


@dataclass(frozen=True, slots=True)
class ShowOutput:
    """Compare an output with its reference; empty: compare what the op wrote."""

    output: str


@dataclass(frozen=True, slots=True)
class DiffState:
    """The list and the grid in view.

    ``output`` is compared, or if empty what the op wrote. ``settled`` is the comparison, of
    (output, op), for which a cell was picked.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    cells: Cells = field(default_factory=Cells)
    output: str = ""
    settled: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class _Layout:
    """The size of the grid, below everything else."""

    width: int
    height: int


class DiffPane(BasePane[DiffState]):
    """Compares what the op wrote, or an output that was picked, from the first mismatch on."""

    views: tuple[str, ...] = (NUMBERS, HEATMAP, OUTPUT_LIST, DIVERGENCE, HAZARD_LIST)

    def __init__(self, index: Index) -> None:
        self._ops = len(index.ops)

    def start(self) -> DiffState:
        """What the op wrote, as numbers."""
        return DiffState()

    def view(self, state: DiffState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: DiffState, view: int) -> DiffState:
        """The state with another view, whose rows are others."""
        return replace(state, view=view, rows=state.rows.released())

    def enter_word(self, state: DiffState) -> str:
        """What Enter does here."""
        return _WORDS.get(self._mode(state), "blame")

    def place(self, state: DiffState, frame: Frame, answers: Answers) -> str | None:
        """The picked cell of an output, or its bytes; None for a tile's inner block."""
        if self._lists(state):
            return None
        found = _comparison(state, frame, answers)
        if found is None or found.grid is None or any(found.origin):
            return None
        cells = state.cells.clamped(found.grid.shape)
        if state.output:
            return found.name + cell_name(cells.row, cells.column, found.grid.shape)
        element = cells.row * found.row_elements + cells.column
        addr = found.addr + element * found.element_bytes
        return f"{found.space} {addr:#x}:{found.element_bytes}"

    def _mode(self, state: DiffState) -> str:
        return self.views[state.view]

    def _lists(self, state: DiffState) -> bool:
        """Whether rows are picked, instead of cells."""
        return self._mode(state) in _WORDS

    # -- update -------------------------------------------------------------------

    def update(
        self, state: DiffState, event: Event, frame: Frame, answers: Answers
    ) -> Change[DiffState] | None:
        """Picks rows and cells, and follows the op."""
        match event:
            case Moved():
                # both ops of a picked hazard can be gone to in turn
                if self._mode(state) != HAZARD_LIST:
                    state = replace(state, rows=state.rows.released())
            case Settle():
                pass
            case ShowOutput(output):
                state = replace(self.with_view(state, 0), output=output)
            case Scroll() if self._lists(state):
                state = replace(state, rows=state.rows.moved(event))
            case Scroll():
                state = replace(state, cells=state.cells.scrolled(event))
            case Pan(by) if not self._lists(state):
                state = replace(state, cells=state.cells.panned(by))
            case NextMark(by):
                return self._to_mark(state, by, frame, answers)
            case ChangeView(by):
                state = self.next_view(state, by) or state
            case Enter():
                return self._entered(state, frame, answers)
            case Click(_, y):
                picked = None
                if self._lists(state):
                    picked = state.rows.picked_at(y - _HEAD_LINES[self._mode(state)])
                if picked is None:
                    return Change(state)
                return self._entered(replace(state, rows=picked), frame, answers)
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _to_mark(
        self, state: DiffState, by: int, frame: Frame, answers: Answers
    ) -> Change[DiffState] | None:
        found = _comparison(state, frame, answers)
        if found is None or found.grid is None:
            return None
        cells = next_mark(state.cells, found.grid, by)
        if cells is None:
            return None
        return Change(self._settled(replace(state, cells=cells), frame, answers))

    def _entered(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> Change[DiffState]:
        """An output is compared, or if it was the op again; an op is gone to; a cell is
        blamed.
        """
        effects: tuple[Effect, ...] = ()
        mode = self._mode(state)
        at = state.rows.at or 0
        if mode == OUTPUT_LIST:
            outputs: Outputs | None = answers.known(OUTPUTS.ask(frame.cursor))
            if outputs is not None and at < len(outputs.rows):
                tensor = outputs.rows[at].row.tensor
                output = "" if tensor == state.output else tensor
                state = replace(state, output=output, view=0)
        elif mode == DIVERGENCE:
            divergence: Divergence | None = answers.known(FIRST_DIVERGENCE.ask())
            if divergence is not None and divergence.op >= 0:
                effects = (Do(GOTO(op=divergence.op)),)
        elif mode == HAZARD_LIST:
            hazards: Touches | None = answers.known(HAZARDS.ask())
            if hazards is not None and at < len(hazards.rows):
                op = _next_op(hazards.rows[at], frame.cursor)
                effects = (Do(GOTO(op=op)),)
        else:
            place = self.place(state, frame, answers)
            if place is not None:
                effects = (Do(BLAME(place=place)),)
        return Change(self._settled(state, frame, answers), effects)

    # -- settling -----------------------------------------------------------------

    def _settled(self, state: DiffState, frame: Frame, answers: Answers) -> DiffState:
        """Lists and grid scrolled to what is picked, as far as their answers are there."""
        if frame.height <= 0:
            return state
        if self._lists(state):
            total = self._list_length(state, frame, answers)
            if total is None:
                return state
            room = self._list_room(state, frame)
            here = 0 if total else None
            return replace(state, rows=state.rows.settled(total, room, here))
        found = _comparison(state, frame, answers)
        if found is None:
            return state
        if found.grid is None:
            return replace(state, settled=(state.output, frame.cursor))
        state = _at_first_mismatch(state, found.grid, frame.cursor)
        layout = self._layout(state, found, frame, answers)
        if layout is None:
            return state
        cells = self._settled_cells(state, found.grid, layout)
        return replace(state, cells=cells)

    def _list_length(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> int | None:
        """How many rows can be picked; None until that is known."""
        mode = self._mode(state)
        if mode == DIVERGENCE:
            text: tuple[str, ...] | None = answers.known(_text_query(frame))
            return None if text is None else len(text)
        query = OUTPUTS.ask(frame.cursor) if mode == OUTPUT_LIST else HAZARDS.ask()
        found: Outputs | Touches | None = answers.known(query)
        return None if found is None else len(found.rows)

    def _list_room(self, state: DiffState, frame: Frame) -> int:
        """Lines that there are for rows."""
        if self._mode(state) == HAZARD_LIST:
            return max(frame.height - _HAZARD_LINES, 1)
        return max(frame.height - _HEAD_LINES[self._mode(state)], 1)

    def _layout(
        self, state: DiffState, found: Comparison, frame: Frame, answers: Answers
    ) -> _Layout | None:
        """Where the grid has its place; None until it is known how many outputs are above."""
        outputs: Outputs | None = answers.known(OUTPUTS.ask(frame.cursor))
        if outputs is None:
            return None
        above = 2 + min(_outputs_room(frame), len(outputs.rows))
        above += len(_verdict(found, state, frame))
        if not state.output:
            above += 1
        return _Layout(frame.width, frame.height - above)

    def _settled_cells(
        self, state: DiffState, grid: GridShape, layout: _Layout
    ) -> Cells:
        if self._mode(state) == HEATMAP:
            blocks = heat_blocks(grid, layout.width, layout.height)
            return replace(state.cells.clamped(grid.shape), page=blocks.page)
        room = numbers_room(grid, _LOOK, layout.width, layout.height)
        return replace(state.cells.settled(grid.shape, room), page=room.rows)

    # -- queries ------------------------------------------------------------------

    def queries(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The list in view; outputs and the comparison, then its cells in view."""
        mode = self._mode(state)
        if mode == HAZARD_LIST:
            return (HAZARDS.ask(),)
        if mode == DIVERGENCE:
            return (FIRST_DIVERGENCE.ask(), _text_query(frame))
        wanted = [EXECUTES_SOON.ask(), OUTPUTS.ask(frame.cursor)]
        if mode == OUTPUT_LIST or frame.cursor < 0:
            return tuple(wanted)
        wanted.append(_comparison_query(state, frame))
        found = _comparison(state, frame, answers)
        if found is not None and found.grid is not None:
            layout = self._layout(state, found, frame, answers)
            if layout is not None:
                wanted.append(self._grid_query(state, found.grid, layout, frame))
        return tuple(wanted)

    def _grid_query(
        self, state: DiffState, grid: GridShape, layout: _Layout, frame: Frame
    ) -> Query:
        of = GridOf(state.output, compared=True)
        if self._mode(state) == HEATMAP:
            blocks = heat_blocks(grid, layout.width, layout.height)
            return heat_query(frame.cursor, of, blocks)
        room = numbers_room(grid, _LOOK, layout.width, layout.height)
        return part_query(frame.cursor, of, grid, state.cells, room)

    def wishes(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """What leads the pane, where all ops are executed soon; then the judgement of the op."""
        wanted = []
        if answers.known(EXECUTES_SOON.ask()):
            wanted += [FIRST_DIVERGENCE.ask(), HAZARDS.ask()]
        found = _comparison(state, frame, answers)
        if found is not None and found.grid is not None and not state.output:
            looked_for = answers.known(FIRST_DIVERGENCE.ask()) is not None
            wanted.append(JUDGEMENT.ask(frame.cursor, divergence=looked_for))
        return tuple(wanted)

    # -- render -------------------------------------------------------------------

    def render(self, state: DiffState, frame: Frame, answers: Answers) -> Picture:
        """Outputs, the verdict on this op and its numbers; or one of the lists."""
        mode = self._mode(state)

        def draw(lines: list[Line]) -> None:
            if mode == HAZARD_LIST:
                _draw_hazards(lines, state, frame, answers)
            elif mode == DIVERGENCE:
                _draw_divergence(lines, state, frame, answers)
            else:
                self._draw_comparison(lines, state, frame, answers)

        return picture_so_far(draw, frame.height)

    def _draw_comparison(
        self, lines: list[Line], state: DiffState, frame: Frame, answers: Answers
    ) -> None:
        lines.append(_leads(answers))
        outputs: Outputs = answers.of(OUTPUTS.ask(frame.cursor))
        lists = self._lists(state)
        first = state.rows.top if lists else 0
        room = self._list_room(state, frame) if lists else _outputs_room(frame)
        lines.append([(_outputs_head(outputs), "dim")])
        for i, out in enumerate(outputs.rows[first : first + room], first):
            picked = lists and i == state.rows.at
            is_shown = out.row.tensor == state.output
            lines.append(_output(out, is_shown, picked, frame.glyphs))
        if frame.cursor < 0:
            lines.append(before_first_op(self._ops))
        elif not lists:
            self._draw_grid(lines, state, frame, answers)

    def _draw_grid(
        self, lines: list[Line], state: DiffState, frame: Frame, answers: Answers
    ) -> None:
        """The verdict on what is compared, and its three planes."""
        found: Comparison = answers.of(_comparison_query(state, frame))
        lines += _verdict(found, state, frame)
        if found.grid is None:
            return
        if not state.output:
            lines.append([_rounding(frame.cursor, answers)])
        layout = self._layout(state, found, frame, answers)
        if layout is None:
            return
        of_grid: Any = answers.of(self._grid_query(state, found.grid, layout, frame))
        if self._mode(state) == HEATMAP:
            blocks = heat_blocks(found.grid, layout.width, layout.height)
            scale = "the tolerance, the largest |error|"
            lines += heat_lines(
                found.grid, of_grid, blocks, state.cells, scale, frame.glyphs
            )
            return
        room = numbers_room(found.grid, _LOOK, layout.width, layout.height)
        look = _LOOK
        if len(found.origin) == _TILE_ORIGIN:
            row, column = found.origin
            look = replace(_LOOK, origin=(row, column))
        lines += number_lines(found.grid, of_grid, state.cells, room, look)


# -- questions ------------------------------------------------------------------------


def _comparison_query(state: DiffState, frame: Frame) -> Query:
    return COMPARISON.ask(frame.cursor, output=state.output)


def _text_query(frame: Frame) -> Query:
    """The first divergence as text, one column narrower than the pane."""
    return DIVERGENCE_TEXT.ask(width=frame.width - 1)


def _comparison(state: DiffState, frame: Frame, answers: Answers) -> Comparison | None:
    """What is compared, if that is known."""
    if frame.cursor < 0:
        return None
    found: Comparison | None = answers.known(_comparison_query(state, frame))
    return found


# -- parts of the state ---------------------------------------------------------------


def _at_first_mismatch(state: DiffState, grid: GridShape, op: int) -> DiffState:
    """The state once a comparison is known: of another one the first mismatch is picked."""
    settled = (state.output, op)
    if state.settled == settled:
        return state
    cells = state.cells.at_element(grid.marks.first or 0, grid.shape)
    return replace(state, settled=settled, cells=cells)


def _outputs_room(frame: Frame) -> int:
    """How many outputs are listed above the numbers, at most."""
    return max(frame.height // _OUTPUTS_SHARE, 1)


def _next_op(hazard: Touch, cursor: int) -> int:
    """The op of a hazard; from there the other one that it is about."""
    if hazard.other is not None and cursor == hazard.op.op:
        return hazard.other.op
    return hazard.op.op


# -- what leads the pane --------------------------------------------------------------


def _leads(answers: Answers) -> Line:
    """Where it went wrong first, as far as that is known."""
    soon = answers.known(EXECUTES_SOON.ask())
    divergence: Divergence | None = answers.known(FIRST_DIVERGENCE.ask())
    hazards: Touches | None = answers.known(HAZARDS.ask())
    op = None
    if divergence is not None and not divergence.error:
        op = f"op {divergence.op:,}" if divergence.op >= 0 else ""
    count = None
    if hazards is not None:
        count = "" if hazards.ok else f"{len(hazards.rows):,}"
    tried = divergence is not None
    return [
        _lead(DIVERGENCE, op, awaited=soon is not False and not tried),
        _lead(HAZARD_LIST, count, awaited=soon is not False),
    ]


def _lead(kind: str, bad: str | None, awaited: bool) -> Run:
    """One finding: ``bad`` is empty if nothing is wrong, None if that is not known; then it
    says whether it is going to be.
    """
    if bad is None:
        how = "..." if awaited else "in its view (V)"
        return f" {kind}: {how} ", "dim"
    return f" {kind}: {bad or 'none'} ", "bad" if bad else "flight"


# -- outputs --------------------------------------------------------------------------


def _outputs_head(outputs: Outputs) -> str:
    if not outputs.rows:
        return f" {outputs.note}"
    names = f" {'output':<16} {'state':<12}"
    return f"{names} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>8}"


def _output(out: OutputRow, is_shown: bool, picked: bool, glyphs: Glyphs) -> Line:
    """One output: whether it is as expected, or at which op it is due."""
    row = out.row
    state, state_style = _verdict_run(row.ok)
    style = ""
    if not out.due:
        state = f"due op {out.after - 1}"
        state_style = style = "dim"
    mark = ">" if is_shown else " "
    apart, _, steps = row.worst
    counts = f" {row.mismatches:>9,} {row.elements:>9,} {apart:>9.1e} {steps:>8,}"
    return [
        (f"{mark}{clip(row.tensor, 16, glyphs)} ", "pick" if picked else ""),
        (f"{state:<12}", state_style),
        (counts, style),
    ]


def _verdict_run(ok: bool) -> Run:
    return _GOOD if ok else _BAD


# -- the comparison -------------------------------------------------------------------


def _verdict(found: Comparison, state: DiffState, frame: Frame) -> list[Line]:
    """What is compared, what is to be said of it, and how many elements differ."""
    kind = "output" if state.output else f"op {frame.cursor}"
    what = f"{kind} {found.name.removeprefix('TileToken/')}"
    lines: list[Line] = []
    head = f" {what} "
    if found.note:
        parts = wrap(f"{what}: {found.note}", max(frame.width - 2, 8))
        lines += [[(f" {part}", "bold")] for part in parts]
        head = " "
    row = found.row
    if row is None:
        return lines
    counts = (
        f" {row.mismatches:,} of {row.elements:,} bad, {row.left_out}"
        f"abs {row.max_abs:.1e} ulp {row.max_ulp}"
    )
    limits = f"  rtol {row.tolerance.rtol:g} atol {row.tolerance.atol:g}"
    line = [(head, "bold"), _verdict_run(row.ok), (counts, "title")]
    if length(line) + len(limits) <= frame.width:
        line.append((limits, "dim"))
    return [*lines, line]


def _rounding(op: int, answers: Answers) -> Run:
    """Whether rounding explains the op's error, and how far off what Phase 1 saw of it is."""
    found: Judgement | None = None
    for looked_for in (True, False):
        if found is None:
            found = answers.known(JUDGEMENT.ask(op, divergence=looked_for))
    if found is None:
        return " local error ...", "dim"
    check = found.check
    if check is None:
        return " local error: :diff tells", "dim"
    only = "only " if check.over else ""
    text = f" local error {check.local:.1e}, rounding explains {only}{check.bound:.1e}"
    if check.overflows:
        text = " overflow"
    if not check.local:
        text = " exact"
    if check.accumulated is not None:
        text += f", accumulated {check.accumulated:.1e}"
    if found.source.startswith("Phase 1"):
        text += f"; {found.source} off {found.apart:.1e}"
    return text, "bad" if check.over or check.overflows else "title"


# -- first divergence and hazards -----------------------------------------------------


def _draw_divergence(
    lines: list[Line], state: DiffState, frame: Frame, answers: Answers
) -> None:
    """The first op that rounding does not explain, as text."""
    text: tuple[str, ...] = answers.of(_text_query(frame))
    for row in text[state.rows.top :]:
        style = "bold" if row.startswith("op") else ""
        lines.append([(f" {row}", style)])


def _draw_hazards(
    lines: list[Line], state: DiffState, frame: Frame, answers: Answers
) -> None:
    """The hazards in view, and all about the picked one."""
    found: Touches = answers.of(HAZARDS.ask())
    note = f"; {found.note}" if found.note else ""
    head = f" hazards: {len(found.rows):,}" if found.rows else " no hazards"
    lines.append([(head + note, "dim")])
    visible = state.rows.visible
    hazards = found.rows[visible.start : visible.stop]
    for i, hazard in enumerate(hazards, visible.start):
        style = "pick" if i == state.rows.pick else ""
        lines.append([(_hazard(hazard), style)])
    at = state.rows.at or 0
    picked = Touches(found.rows[at : at + 1])
    if not picked.rows:
        return
    for line in picked.lines(frame.width):
        parts = wrap(line, max(frame.width - 4, 8), subsequent_indent="    ")
        lines += [[(f"  {part}", "title")] for part in parts]


def _hazard(hazard: Touch) -> str:
    text = f"! {hazard.kind}: op {hazard.op.op:,}"
    if hazard.other is not None:
        text += f" and {hazard.other.op:,}"
    return text

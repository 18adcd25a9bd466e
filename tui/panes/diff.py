"""Pane 6: whether what was computed is right.

Outputs beside their references; what the op wrote beside its float64 oracle, as numbers
or as a heatmap; the first op that rounding does not explain; hazards. Of a run that
failed it is the first bad element of the first bad output that one sees first, as it
was when the run judged it, wherever the cursor is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any

from kernbench.replay.answers import Source
from kernbench.replay.command import Call
from kernbench.replay.commands import (
    BLAME,
    DIFF,
    GOTO,
    HAZARDS,
    OUTPUTS,
    SOURCE,
    VERIFY,
)
from kernbench.replay.commands import DIVERGENCE as OF_DIVERGENCE
from kernbench.replay.data.blame import Blame
from kernbench.replay.data.grids import cell_name
from kernbench.replay.data.outputs import Outputs
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    COMPARISON,
    DIVERGENCE_TEXT,
    EXECUTES_SOON,
    FIRST_DIVERGENCE,
    JUDGEMENT,
)
from kernbench.replay.query import Query
from kernbench.replay.races.findings import Finding, Findings, race_near
from kernbench.replay.text import number_text, texts_apart, unwritten_text
from kernbench.replay.views.diff import Comparison, Divergence
from kernbench.replay.views.grids import GridOf, GridPart, GridShape
from tui.draw import Line, Run, clip, length
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
    before_first_op,
    first_of,
    picture_so_far,
)
from tui.panes.grid import (
    Cells,
    Window,
    bad_map,
    error_map,
    grid_query,
    heat_lines,
    next_mark,
    number_lines,
)
from tui.panes.hazard_list import Proofs, hazard_lines, with_proofs
from tui.panes.verdicts import (
    DIVERGENCE,
    HAZARD_LIST,
    Subject,
    leads,
    look,
    output_line,
    outputs_head,
    rounding,
    verdict,
)

NUMBERS = "numbers"
HEATMAP = "heatmap"
OUTPUT_LIST = "outputs"

_WORDS = {OUTPUT_LIST: "show", DIVERGENCE: "go", HAZARD_LIST: "go"}
"""What Enter does in the views where rows are picked."""
_HEAD_LINES = {OUTPUT_LIST: 2, DIVERGENCE: 0, HAZARD_LIST: 1}
"""Lines above the first row in these views."""
_OUTPUTS_SHARE = 3
"""A third of the pane is for the outputs, where the numbers are below them."""
_HAZARD_LINES = 8
"""Lines that are kept for the picked hazard."""
_MAPS = 2
"""Heatmaps side by side: the share of bad elements, and the worst error."""
_AT_ONCE = 20_000
"""Ops of a run that failed, all of which are executed, unasked, as soon as the pane is
seen: that takes some seconds.
"""
_LEAST_CHAIN = 4
"""Lines below the numbers from which on it is told how an element came to be."""
_RECORDED_SHOWN = 3
"""Outputs that are named of a run whose verdict is not that of these ops."""
_LINES_BELOW_VERDICT = {
    (False, False): 1,  # what rounding explains
    (False, True): 0,
    (True, True): 2,  # the picked element, and who made it
}
"""Lines between the verdict and the grid, of what failed or not, an output or not."""


@dataclass(frozen=True, slots=True)
class ShowOutput:
    """Compare an output with its reference; empty: compare what the op wrote."""

    output: str


@dataclass(frozen=True, slots=True)
class ProvedRaces:
    """Findings of which races were tried out."""

    rows: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class DiffState:
    """The list and the grid in view.

    ``output`` is the name of the output that is compared; if it is empty, what the op
    wrote is; None: the first that failed, or what the op wrote if none did. ``settled``
    says for which comparison, (output, op), a cell was picked.
    ``proofs`` are of races, each by its two ops.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    cells: Cells = field(default_factory=Cells)
    output: str | None = None
    settled: tuple[str, int] | None = None
    proofs: Proofs = ()


class DiffPane(BasePane[DiffState]):
    """Compares what the op wrote, an output that was picked, or the one that failed.

    Three planes are side by side: what was expected, what memory holds, and the error.
    They open at the first mismatch.
    """

    views: tuple[str, ...] = (NUMBERS, HEATMAP, OUTPUT_LIST, DIVERGENCE, HAZARD_LIST)

    def __init__(self, index: Index) -> None:
        self._ops = len(index.ops)
        verdicts = index.trace.recorded_verdicts
        self._wrong = tuple(name for name, ok in verdicts.items() if not ok)

    def start(self) -> DiffState:
        """What failed, or else what the op wrote, as numbers."""
        return DiffState()

    def view(self, state: DiffState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: DiffState, view: int) -> DiffState:
        """The state with another view, whose rows are others."""
        return replace(state, view=view, rows=state.rows.released())

    def enter_word(self, state: DiffState, frame: Frame, answers: Answers) -> str:
        """What Enter does here."""
        mode = self._mode(state)
        if mode == DIVERGENCE:
            divergence: Divergence | None = answers.known(FIRST_DIVERGENCE.ask())
            is_idle = divergence is not None and divergence.op < 0
        elif self._lists(state):
            is_idle = self._list_length(state, frame, answers) == 0
            if mode == OUTPUT_LIST and state.output:
                picked = self._picked_output(state, frame, answers)
                return "let go" if picked == state.output else "show"
        else:
            subject = self._subject(state, frame, answers)
            is_known = _comparison(subject, answers) is not None
            is_idle = is_known and self.place(state, frame, answers) is None
        return "" if is_idle else _WORDS.get(mode, "blame")

    def place(self, state: DiffState, frame: Frame, answers: Answers) -> str | None:
        """The picked cell of an output, or the bytes of one that the op wrote; None
        within a tile's block that is not the first of its output.
        """
        if self._lists(state):
            return None
        subject = self._subject(state, frame, answers)
        found = _comparison(subject, answers)
        if found is None or found.grid is None or any(found.origin):
            return None
        cells = state.cells.clamped(found.grid.shape)
        if subject is not None and subject.output:
            return found.name + cell_name(cells.row, cells.column, found.grid.shape)
        element = cells.row * found.row_elements + cells.column
        addr = found.addr + element * found.element_bytes
        return f"{found.space} {addr:#x}:{found.element_bytes}"

    def _mode(self, state: DiffState) -> str:
        """The name of the view that is shown."""
        return self.views[state.view]

    def _keys_to(self, view: str, state: DiffState) -> str:
        """The fewest keys to another view: v so often, or V."""
        count = len(self.views)
        forward = (self.views.index(view) - state.view) % count
        backward = count - forward
        if forward <= backward:
            return " ".join("v" * forward)
        return " ".join("V" * backward)

    def _lists(self, state: DiffState) -> bool:
        """Whether rows are picked, instead of cells."""
        return self._mode(state) in _WORDS

    # -- what is compared -----------------------------------------------------

    def _outputs_query(self, state: DiffState, frame: Frame) -> Query:
        """The question for the outputs: of a run that failed as they were when they
        were judged, of any other as they are at the cursor.
        """
        is_asked = bool(state.output) or self._ops <= _AT_ONCE
        if self._wrong and is_asked:
            return VERIFY.ask()
        return OUTPUTS.ask(frame.cursor)

    def _failed(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> tuple[Subject, ...] | None:
        """The outputs that failed, each at the op at which it was judged; None until
        that is known.
        """
        query = self._outputs_query(state, frame)
        if query != VERIFY.ask():
            return ()
        outputs: Outputs | None = answers.known(query)
        if outputs is None:
            return None
        return tuple(
            Subject(out.row.tensor, out.after - 1, failed=True)
            for out in outputs.rows
            if not out.row.ok
        )

    def _subject(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> Subject | None:
        """What is compared; None until that is known, and before the first op.

        Where an output failed, an op that writes nothing that can be compared is no
        subject: that output is.
        """
        failed = self._failed(state, frame, answers)
        if failed is None:
            return None
        for one in failed:
            if one.output == state.output:
                return one
        output = state.output or ""
        due = self._still_due(output, state, frame, answers)
        subject = Subject(output, frame.cursor, due=due)
        if failed and state.output is None:
            return failed[0]
        if failed and not subject.output:
            found = _comparison(subject, answers)
            if frame.cursor < 0 or (found is not None and found.grid is None):
                return failed[0]
        return None if frame.cursor < 0 else subject

    def _still_due(
        self, output: str, state: DiffState, frame: Frame, answers: Answers
    ) -> int | None:
        """The op at which an output is due, if that is behind the cursor's; None where
        it is not, or not known yet.
        """
        outputs: Outputs | None = answers.known(self._outputs_query(state, frame))
        rows = () if outputs is None else outputs.rows
        for out in rows:
            if out.row.tensor == output and not out.due:
                return out.after - 1
        return None

    # -- update ---------------------------------------------------------------

    def claimed(self, state: DiffState, frame: Frame, answers: Answers) -> str | None:
        """Of the picked race that its order matters; where the lead of the pane has
        the number of hazards, of the first race.
        """
        found: Findings | None = answers.known(HAZARDS.ask())
        if found is None:
            return None
        if state.view == 0:
            return race_near(found)
        if self._mode(state) != HAZARD_LIST:
            return None
        at = state.rows.at or 0
        if at >= len(found.rows):
            return None
        return f"race {at + 1}" if found.rows[at].is_race else ""

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
            case ProvedRaces(rows):
                state = replace(state, proofs=with_proofs(state.proofs, rows))
            case ShowOutput(output):
                state = replace(self.with_view(state, 0), output=output)
            case Back():
                if state.output is None:
                    return None
                state = replace(state, output=None)
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
        """To the next mismatch; None if there is none that way."""
        subject = self._subject(state, frame, answers)
        found = _comparison(subject, answers)
        if found is None or found.grid is None:
            return None
        cells = next_mark(state.cells, found.grid, by)
        if cells is None:
            return None
        return Change(self._settled(replace(state, cells=cells), frame, answers))

    def _entered(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> Change[DiffState]:
        """The picked output is compared, or the op again if that output was; the op of
        the first divergence or of a hazard is gone to; a cell is blamed.
        """
        effects: tuple[Effect, ...] = ()
        mode = self._mode(state)
        at = state.rows.at or 0
        if mode == OUTPUT_LIST:
            output = self._picked_output(state, frame, answers)
            if output is not None:
                if output == state.output:
                    output = ""
                state = replace(state, output=output, view=0)
        elif mode == DIVERGENCE:
            divergence: Divergence | None = answers.known(FIRST_DIVERGENCE.ask())
            if divergence is not None and divergence.op >= 0:
                effects = (Do(GOTO(op=divergence.op)),)
        elif mode == HAZARD_LIST:
            hazards: Findings | None = answers.known(HAZARDS.ask())
            if hazards is not None and at < len(hazards.rows):
                op = _next_op(hazards.rows[at], frame.cursor)
                effects = (Do(GOTO(op=op)),)
        else:
            effects = self._blamed(state, frame, answers)
        return Change(self._settled(state, frame, answers), effects)

    def _picked_output(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> str | None:
        """The output on the picked row of the list, once that is known."""
        outputs: Outputs | None = answers.known(self._outputs_query(state, frame))
        at = state.rows.at or 0
        if outputs is None or at >= len(outputs.rows):
            return None
        return outputs.rows[at].row.tensor

    def _blamed(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> tuple[Effect, ...]:
        """The picked cell is blamed, at the op at which it was judged."""
        place = self.place(state, frame, answers)
        subject = self._subject(state, frame, answers)
        if place is None or subject is None:
            return ()
        blame = Do(BLAME(place=place))
        if subject.op == frame.cursor:
            return (blame,)
        return (Do(GOTO(op=subject.op)), blame)

    # -- settling -------------------------------------------------------------

    def _settled(self, state: DiffState, frame: Frame, answers: Answers) -> DiffState:
        """Lists and grid scrolled to what is picked, as far as they are known."""
        if frame.height <= 0:
            return state
        if self._lists(state):
            total = self._list_length(state, frame, answers)
            if total is None:
                return state
            room = self._list_room(state, frame)
            rows = state.rows.settled(total, room, first_of(total))
            return replace(state, rows=rows)
        subject = self._subject(state, frame, answers)
        found = _comparison(subject, answers)
        if found is None or subject is None:
            return state
        if found.grid is None:
            return replace(state, settled=(subject.output, subject.op))
        state = _at_first_mismatch(state, found.grid, subject)
        window = self._window(state, found, frame, answers)
        if window is None:
            return state
        return replace(state, cells=state.cells.settled(found.grid, window))

    def _list_length(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> int | None:
        """How many rows can be picked; None until that is known."""
        mode = self._mode(state)
        if mode == DIVERGENCE:
            text: tuple[str, ...] | None = answers.known(_text_query(frame))
            return None if text is None else len(text)
        query = HAZARDS.ask()
        if mode == OUTPUT_LIST:
            query = self._outputs_query(state, frame)
        found: Outputs | Findings | None = answers.known(query)
        return None if found is None else len(found.rows)

    def _list_room(self, state: DiffState, frame: Frame) -> int:
        """How many lines there are for rows that can be picked."""
        if self._mode(state) == HAZARD_LIST:
            return max(frame.height - _HAZARD_LINES, 1)
        return max(frame.height - _HEAD_LINES[self._mode(state)], 1)

    def _window(
        self, state: DiffState, found: Comparison, frame: Frame, answers: Answers
    ) -> Window | None:
        """Where the grid is shown, below everything else.

        None until it is known how many outputs are above it.
        """
        outputs: Outputs | None = answers.known(self._outputs_query(state, frame))
        subject = self._subject(state, frame, answers)
        if outputs is None or subject is None:
            return None
        above = 1 + len(self._listed(outputs, subject, state, frame))
        above += len(verdict(found, subject, frame))
        above += _LINES_BELOW_VERDICT[subject.failed, bool(subject.output)]
        maps = _MAPS if self._mode(state) == HEATMAP else 0
        return Window(frame.width, frame.height - above, look(found, subject), maps)

    # -- queries --------------------------------------------------------------

    def question(self, state: DiffState, frame: Frame, answers: Answers) -> Call | None:
        """The comparison that is shown, or the list."""
        mode = self._mode(state)
        if mode == HAZARD_LIST:
            return HAZARDS()
        if mode == DIVERGENCE:
            return OF_DIVERGENCE()
        subject = self._subject(state, frame, answers)
        if mode == OUTPUT_LIST or (subject is not None and subject.output):
            return VERIFY() if subject is not None and subject.failed else OUTPUTS()
        return DIFF() if frame.cursor >= 0 else None

    def queries(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The list in view; outputs and the comparison, then its cells in view."""
        mode = self._mode(state)
        if mode == HAZARD_LIST:
            return (HAZARDS.ask(),)
        if mode == DIVERGENCE:
            return (FIRST_DIVERGENCE.ask(), _text_query(frame))
        wanted = [EXECUTES_SOON.ask(), self._outputs_query(state, frame)]
        if mode == OUTPUT_LIST:
            return tuple(wanted)
        if state.output == "" and frame.cursor >= 0:
            wanted.append(_comparison_query(Subject("", frame.cursor)))
        subject = self._subject(state, frame, answers)
        if subject is None:
            return tuple(wanted)
        wanted.append(_comparison_query(subject))
        if subject.failed:
            # of who made the element the line is there at once, no key later
            wanted += self._blame_queries(state, subject, frame, answers)[1:]
        found = _comparison(subject, answers)
        if found is not None and found.grid is not None:
            window = self._window(state, found, frame, answers)
            if window is not None:
                wanted.append(_grid_query(state, subject, found.grid, window))
        return tuple(dict.fromkeys(wanted))

    def wishes(
        self, state: DiffState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """Who made the element that failed; what leads the pane, if finding that takes
        some seconds only; then what rounding explains of this op's error.
        """
        wanted: list[Query] = []
        subject = self._subject(state, frame, answers)
        if subject is not None and subject.failed:
            wanted += self._blame_queries(state, subject, frame, answers)
        if answers.known(EXECUTES_SOON.ask()):
            wanted += [FIRST_DIVERGENCE.ask(), HAZARDS.ask()]
        found = _comparison(subject, answers)
        is_of_op = subject is not None and not subject.output
        if found is not None and found.grid is not None and is_of_op:
            looked_for = answers.known(FIRST_DIVERGENCE.ask()) is not None
            wanted.append(JUDGEMENT.ask(frame.cursor, divergence=looked_for))
        return tuple(wanted)

    def _blame_queries(
        self, state: DiffState, subject: Subject, frame: Frame, answers: Answers
    ) -> list[Query]:
        """Who made the picked element, then the kernel line of that."""
        place = self.place(state, frame, answers)
        if place is None:
            return []
        wanted: list[Query] = [BLAME.ask(subject.op, place=place)]
        blame: Blame | None = answers.known(wanted[0])
        if blame is not None:
            maker = _maker(blame)
            if maker is not None:
                wanted.append(SOURCE.ask(maker))
        return wanted

    # -- render ---------------------------------------------------------------

    def render(self, state: DiffState, frame: Frame, answers: Answers) -> Picture:
        """Outputs, the verdict on this op and its numbers; or one of the lists."""
        mode = self._mode(state)

        def draw(lines: list[Line]) -> None:
            if mode == HAZARD_LIST:
                lines += hazard_lines(
                    answers.of(HAZARDS.ask()), state.rows, state.proofs, frame.width
                )
            elif mode == DIVERGENCE:
                _draw_divergence(lines, state, frame, answers)
            else:
                self._draw_comparison(lines, state, frame, answers)

        return picture_so_far(draw, frame.height)

    def _draw_comparison(
        self, lines: list[Line], state: DiffState, frame: Frame, answers: Answers
    ) -> None:
        """What leads the pane, the outputs, and unless they fill it the comparison."""
        keys = {view: self._keys_to(view, state) for view in (DIVERGENCE, HAZARD_LIST)}
        lines.append(leads(answers, keys))
        outputs: Outputs = answers.of(self._outputs_query(state, frame))
        subject = self._subject(state, frame, answers)
        lines += self._listed(outputs, subject, state, frame)
        if self._lists(state):
            return
        if subject is None:
            lines.append(before_first_op(self._ops))
        else:
            self._draw_grid(lines, state, subject, frame, answers)

    def _listed(
        self,
        outputs: Outputs,
        subject: Subject | None,
        state: DiffState,
        frame: Frame,
    ) -> list[Line]:
        """The outputs below their heading. The only one is not listed where all is said
        of it below.
        """
        first = 0
        room = _outputs_room(frame)
        picked = None
        shown = "" if subject is None else subject.output
        if self._lists(state):
            first = state.rows.top
            room = self._list_room(state, frame)
            picked = state.rows.at
        elif subject is not None and subject.failed and len(outputs.rows) == 1:
            return []
        lines: list[Line] = []
        for sentence in outputs.disagreements[:_RECORDED_SHOWN]:
            parts = wrap(sentence, max(frame.width - 2, 8))
            lines += [[(f" {part}", "mark")] for part in parts]
        for text in outputs_head(outputs, frame.width):
            lines.append([(text, "dim")])
        for i, out in enumerate(outputs.rows[first : first + room], first):
            mark = " "
            if out.row.tensor == shown:
                # in the list itself only the picked row has the mark of picking
                mark = ">" if picked is None else "*"
            if i == picked:
                mark = ">"
            lines.append(output_line(out, mark, i == picked, frame.glyphs))
        return lines

    def _draw_grid(
        self,
        lines: list[Line],
        state: DiffState,
        subject: Subject,
        frame: Frame,
        answers: Answers,
    ) -> None:
        """The verdict on what is compared, and its three planes."""
        found: Comparison = answers.of(_comparison_query(subject))
        lines += verdict(found, subject, frame)
        if found.grid is None:
            return
        if not subject.output:
            lines.append([rounding(subject.op, answers)])
        window = self._window(state, found, frame, answers)
        if window is None:
            return
        query = _grid_query(state, subject, found.grid, window)
        try:
            of_grid: Any = answers.of(query)
        finally:
            if subject.failed:
                part = None if window.maps else answers.known(query)
                lines.append(self._element(found, part, state, frame, answers))
                lines.append(self._suspect(state, subject, frame, answers))
        if window.maps:
            maps = (bad_map(of_grid, frame.glyphs), error_map(of_grid, frame.glyphs))
            lines += heat_lines(
                found.grid, of_grid, maps, state.cells, window, frame.glyphs
            )
        else:
            lines += number_lines(found.grid, of_grid, state.cells, window)
        if subject.failed:
            room = frame.height - len(lines)
            lines += self._chain(state, subject, room, frame, answers)

    def _chain(
        self,
        state: DiffState,
        subject: Subject,
        room: int,
        frame: Frame,
        answers: Answers,
    ) -> list[Line]:
        """How the picked element came to be, where there is room below the grid."""
        queries = self._blame_queries(state, subject, frame, answers)
        blame: Blame | None = answers.known(queries[0]) if queries else None
        if blame is None or room < _LEAST_CHAIN:
            return []
        lines: list[Line] = [[]]
        for text in blame.lines(frame.width - 2):
            style = "mark" if text.lstrip().startswith("!") else "title"
            lines.append([(f" {clip(text, frame.width - 2, frame.glyphs)}", style)])
        return lines[:room]

    def _element(
        self,
        found: Comparison,
        part: GridPart | None,
        state: DiffState,
        frame: Frame,
        answers: Answers,
    ) -> Line:
        """The picked element with both of its values, as far as they are known."""
        place = self.place(state, frame, answers)
        line: Line = [(f" {place}", "bold")]
        if part is not None and found.grid is not None:
            cells = state.cells.clamped(found.grid.shape)
            cell = (cells.row - part.row, cells.column - part.column)
            expected, actual, error = [plane[cell] for plane in part.planes]
            texts = number_text(expected), number_text(actual)
            if part.marked[cell]:
                texts = texts_apart(expected, actual)
            line.append((f" expected {texts[0]}, is ", ""))
            style = "bad" if part.marked[cell] else ""
            line.append((texts[1], style))
            line.append((f", error {number_text(error)}", "title"))
        return line

    def _suspect(
        self, state: DiffState, subject: Subject, frame: Frame, answers: Answers
    ) -> Line:
        """Which op made the picked element wrong, as far as that is known, and what
        Enter does.
        """
        keys: Run = ("  Enter blames it", "dim")
        queries = self._blame_queries(state, subject, frame, answers)
        blame: Blame | None = answers.known(queries[0]) if queries else None
        if blame is None:
            return [(" made by ...", "dim"), keys]
        op = _maker(blame)
        if op is None:
            return [(f" {unwritten_text(blame.part.awaited)}", "mark"), keys]
        (link,) = [one for one in blame.links if one.op.op == op]
        word = " made by" if blame.suspect is None else " suspect:"
        site = link.op.site.rpartition("/")[2]
        text = f"op {op:,} {link.op.name.removeprefix('TileToken/')} {site}"
        line: Line = [(word, "title"), (f" {text}", "bold")]
        if link.notes:
            line.append((f"  {link.notes[0]}", "mark"))
        source: Source | None = answers.known(SOURCE.ask(op))
        if source is not None and 0 < source.line <= len(source.text):
            code = source.text[source.line - 1].strip()
            line.append((f"  {code}", ""))
        return _fitted(line, keys, frame)


# -- questions ----------------------------------------------------------------


def _comparison_query(subject: Subject) -> Query:
    """What is said of the output, or of what the op wrote, without its numbers."""
    return COMPARISON.ask(subject.op, output=subject.output)


def _text_query(frame: Frame) -> Query:
    """The first divergence as text, one column narrower than the pane."""
    return DIVERGENCE_TEXT.ask(width=frame.width - 1)


def _comparison(subject: Subject | None, answers: Answers) -> Comparison | None:
    """What is compared, if that is known."""
    if subject is None or subject.op < 0:
        return None
    found: Comparison | None = answers.known(_comparison_query(subject))
    return found


def _grid_query(
    state: DiffState, subject: Subject, grid: GridShape, window: Window
) -> Query:
    """The numbers, or blocks of the heatmap, in view."""
    of = GridOf(subject.output, compared=True)
    return grid_query(subject.op, of, grid, state.cells, window)


# -- who made an element ------------------------------------------------------


def _maker(blame: Blame) -> int | None:
    """The first op behind an element that something is to be said of, or the op that
    wrote it; None if nobody did.
    """
    if blame.suspect is not None:
        return blame.suspect
    return blame.links[0].op.op if blame.links else None


def _fitted(line: Line, tail: Run, frame: Frame) -> Line:
    """A line, cut so that ``tail`` still fits behind it."""
    room = frame.width - length([tail])
    cut: Line = []
    for text, style in line:
        left = room - length(cut)
        if left > 0:
            cut.append((clip(text, min(left, len(text)), frame.glyphs), style))
    return [*cut, tail]


# -- parts of the state -------------------------------------------------------


def _at_first_mismatch(
    state: DiffState, grid: GridShape, subject: Subject
) -> DiffState:
    """The state once a comparison is known: if it is another than before, its first
    mismatch is picked.
    """
    settled = (subject.output, subject.op)
    if state.settled == settled:
        return state
    cells = state.cells.at_element(grid.marks.first or 0, grid.shape)
    return replace(state, settled=settled, cells=cells)


def _outputs_room(frame: Frame) -> int:
    """How many outputs are listed above the numbers, at most."""
    return max(frame.height // _OUTPUTS_SHARE, 1)


def _next_op(hazard: Finding, cursor: int) -> int:
    """The op of a hazard; from there the other one that it is about."""
    if hazard.other is not None and cursor == hazard.op.op:
        return hazard.other.op
    return hazard.op.op


# -- first divergence ---------------------------------------------------------


def _draw_divergence(
    lines: list[Line], state: DiffState, frame: Frame, answers: Answers
) -> None:
    """The first op that rounding does not explain, as text."""
    text: tuple[str, ...] = answers.of(_text_query(frame))
    for row in text[state.rows.top :]:
        names_op = row.startswith("op")
        lines.append([(f" {row}", "bold" if names_op else "")])

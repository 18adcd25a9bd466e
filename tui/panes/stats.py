"""Pane 8: what to look at first, and where the time goes.

What is wrong, slow and odd; stalls of the focus; the critical path; the roofline; the
components and links that are busiest; the call of the op on all of its PEs; how often
operands were fetched; where the energy went; what would end the run sooner if it were
faster. Each answer is shown as rows of text, most of them with a bar for a share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from kernbench.replay.arrays import Ints
from kernbench.replay.command import Call
from kernbench.replay.commands import (
    BUSIEST,
    CRITICAL,
    DIAGNOSE,
    ENERGY,
    FETCHES,
    GOTO,
    PES,
    ROOFLINE,
    STALLS,
    WHATIF,
    parse,
)
from kernbench.replay.diagnosis.findings import (
    Diagnosis,
    Finding,
    asked_by,
    claimed_by,
    ranked,
)
from kernbench.replay.diagnosis.lines import telling_line
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    CRITICAL_STEPS,
    DIAGNOSE_DATA,
    DIAGNOSE_TIME,
    IN_SERVICE,
)
from kernbench.replay.query import Query
from kernbench.replay.text import time_text
from kernbench.replay.time.critical import CriticalPath, Step
from kernbench.replay.time.loads import Busiest
from kernbench.replay.time.roofline import Roof, Roofline
from kernbench.replay.views.ops import InService
from kernbench.replay.whatif.answers import CausalProfile, Gain
from tui.draw import Glyphs, Line, clip
from tui.newest import Newest
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
    Picture,
    Rows,
    Say,
    Scroll,
    Settle,
    Waiting,
    before_first_op,
)

DIAGNOSIS_VIEW = "diagnosis"
STALL_VIEW = "stalls"
CRITICAL_VIEW = "critical path"
ROOFLINE_VIEW = "roofline"
BUSIEST_VIEW = "busiest"
PES_VIEW = "PEs"
FETCHES_VIEW = "fetches"
ENERGY_VIEW = "energy"
WHATIF_VIEW = "what if"

_AT_ONCE = 20_000
"""Ops of a trace that is diagnosed, unasked, as soon as the view is seen: that takes
some 2 s of both lanes, and twice as many ops twice as long.
"""
_DIAGNOSED_A_SECOND = 10_000
"""Ops, about."""
_STEPS = 20
"""Steps of the critical path, the longest."""
_LEAST_STEP = 1 / 100
"""The share of the critical path from which on a step is listed."""
_BUSIEST = 20
_NEVER_ENDED = "never ended: "
_SHORTEST_NAME = 8
_SHORTEST_BAR = 4
_USUAL_BAR = 8
"""Columns of a bar that has to be no shorter for a long name to be shown in full."""
_SHARE_COLUMNS = 10
"""Columns of a row with a bar that are neither its name, nor its text, nor the bar."""
_KEPT = 8
"""Answers whose rows are kept."""
_AROUND_TITLE = 2
"""Lines with the title of the picked finding where it is told in full: a blank one
above, and one below at least.
"""
_NUMBER_OF_IT = 3
"""Columns of the number of a finding in its own text, which is not shown here."""


@dataclass(frozen=True, slots=True)
class ProvedGain:
    """With a change of one field, FIELD=VALUE, a re-run has ended at ``end_ns``."""

    change: str
    end_ns: float


@dataclass(frozen=True, slots=True)
class StatsState:
    """Which answer is shown, and which of its rows are in view; the gains that were
    proved. ``is_asked``: a long trace is to be diagnosed.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    is_asked: bool = False
    proved: frozenset[ProvedGain] = frozenset()


class _Row(NamedTuple):
    """A line, what Enter on it does, and what a re-run could prove of it, as one would
    type that: empty is that none can, None that nothing is claimed.
    """

    line: Line
    enter: tuple[Effect, ...] = ()
    claim: str | None = None


class _MadeFor(NamedTuple):
    """What rows are made for."""

    queries: tuple[Query, ...]
    width: int
    glyphs: Glyphs
    proved: frozenset[ProvedGain]


class _Bar(NamedTuple):
    """A name with its share, drawn as a bar, and a text in front of that."""

    name: str
    share: float
    text: str


class StatsPane(BasePane[StatsState]):
    """Each view shows one answer, the diagnosis two: what is wrong, and the rest, which
    comes later. Stalls depend on the focus and PEs on the op's call; the others are the
    same at every op. What if takes long, and is asked for only while it is in view.
    """

    views: tuple[str, ...] = (
        DIAGNOSIS_VIEW,
        STALL_VIEW,
        CRITICAL_VIEW,
        ROOFLINE_VIEW,
        BUSIEST_VIEW,
        PES_VIEW,
        FETCHES_VIEW,
        ENERGY_VIEW,
        WHATIF_VIEW,
    )

    def __init__(self, index: Index) -> None:
        self._index = index
        self._made = Newest[_MadeFor, Sequence[_Row]](_KEPT)

    def start(self) -> StatsState:
        """The diagnosis."""
        return StatsState()

    def view(self, state: StatsState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: StatsState, view: int) -> StatsState:
        """The state with another view, whose rows are others."""
        return replace(state, view=view, rows=state.rows.released())

    def enter_word(self, state: StatsState, frame: Frame, answers: Answers) -> str:
        """What Enter does here."""
        if self._is_too_long(state):
            return "diagnose"
        row = self._picked(state, frame, answers)
        if row is not None and not row.enter:
            return ""
        return "show" if self.views[state.view] == WHATIF_VIEW else "go"

    # -- update -------------------------------------------------------------------

    def update(
        self, state: StatsState, event: Event, frame: Frame, answers: Answers
    ) -> Change[StatsState] | None:
        """Picks rows."""
        match event:
            case Moved() if self.views[state.view] == DIAGNOSIS_VIEW:
                pass  # findings can be gone to in turn
            case Moved():
                state = replace(state, rows=state.rows.released())
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=state.rows.moved(event))
            case ChangeView(by):
                state = self.next_view(state, by) or state
            case ProvedGain():
                state = replace(state, proved=state.proved | {event})
            case Enter() if self._is_too_long(state):
                return Change(replace(state, is_asked=True))
            case Enter():
                return Change(state, self._entered(state, frame, answers))
            case Click(_, y):
                picked = state.rows.picked_at(y)
                if picked is None:
                    return Change(state)
                state = replace(state, rows=picked)
                return Change(state, self._entered(state, frame, answers))
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _settled(self, state: StatsState, frame: Frame, answers: Answers) -> StatsState:
        """The rows scrolled to the picked one, once their number is known. Findings
        leave room for what is told of the picked one below.
        """
        rows = self._known_rows(state, frame, answers)
        if frame.height <= 0 or rows is None:
            return state
        first = 0
        room = frame.height
        if self.views[state.view] == DIAGNOSIS_VIEW and len(rows) > 1:
            first = 1  # below the title
            findings = ranked(*self._known_answers(state, frame, answers))
            room = max(room - _longest_title(findings, rows, frame), (room + 1) // 2)
        return replace(state, rows=state.rows.settled(len(rows), room, first))

    def _entered(
        self, state: StatsState, frame: Frame, answers: Answers
    ) -> tuple[Effect, ...]:
        """What Enter on the picked row does."""
        row = self._picked(state, frame, answers)
        return () if row is None else row.enter

    def claimed(self, state: StatsState, frame: Frame, answers: Answers) -> str | None:
        """What the picked row claims."""
        row = self._picked(state, frame, answers)
        return None if row is None else row.claim

    def _picked(self, state: StatsState, frame: Frame, answers: Answers) -> _Row | None:
        """The picked row, once it is known."""
        rows = self._known_rows(state, frame, answers)
        at = state.rows.at
        if rows is None or at is None or at >= len(rows):
            return None
        return rows[at]

    def _known_rows(
        self, state: StatsState, frame: Frame, answers: Answers
    ) -> Sequence[_Row] | None:
        """The rows of the view, if its answer is there, or the first of them."""
        found = self._known_answers(state, frame, answers)
        if not found:
            return None
        return self._rows(state, self._asked(state, frame), found, frame)

    def _known_answers(
        self, state: StatsState, frame: Frame, answers: Answers
    ) -> list[Any]:
        """The answers of the view, as many as are there without a gap."""
        found: list[Any] = []
        for query in self._asked(state, frame):
            answer = answers.known(query)
            if answer is None:
                break
            found.append(answer)
        return found

    # -- queries ------------------------------------------------------------------

    def question(
        self, state: StatsState, frame: Frame, answers: Answers
    ) -> Call | None:
        """The answer of the view; of stalls for the focus, of PEs for the call."""
        mode = self.views[state.view]
        if mode == STALL_VIEW:
            _, name = self._index.ops.focus(frame.cursor, frame.level)
            return STALLS(pe=name)
        if mode == PES_VIEW:
            asked = self._asked(state, frame)
            return PES(cmd=asked[0].args.cmd) if asked else None
        return _COMMANDS[mode]()

    def queries(
        self, state: StatsState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The answers of the view, and what is in service."""
        asked = self._asked(state, frame)
        return (*asked, IN_SERVICE.ask(frame.cursor)) if asked else ()

    def _is_too_long(self, state: StatsState) -> bool:
        """Whether the trace is one that is diagnosed only when somebody says so, and
        nobody has.
        """
        is_diagnosis = self.views[state.view] == DIAGNOSIS_VIEW
        return is_diagnosis and not state.is_asked and len(self._index.ops) > _AT_ONCE

    def _asked(self, state: StatsState, frame: Frame) -> tuple[Query, ...]:
        """The questions of a view; none before the first op, where there is no call,
        and of a diagnosis that takes long until it is asked for.
        """
        mode = self.views[state.view]
        if mode == DIAGNOSIS_VIEW:
            if self._is_too_long(state):
                return ()
            return (DIAGNOSE_DATA.ask(), DIAGNOSE_TIME.ask())
        if mode == STALL_VIEW:
            _, name = self._index.ops.focus(frame.cursor, frame.level)
            return (STALLS.ask(pe=name),)
        if mode == CRITICAL_VIEW:
            return (CRITICAL_STEPS.ask(count=_STEPS),)
        if mode == ROOFLINE_VIEW:
            return (ROOFLINE.ask(),)
        if mode == BUSIEST_VIEW:
            return (BUSIEST.ask(count=_BUSIEST),)
        if mode == FETCHES_VIEW:
            return (FETCHES.ask(),)
        if mode == ENERGY_VIEW:
            return (ENERGY.ask(),)
        if mode == WHATIF_VIEW:
            return (WHATIF.ask(),)
        op = self._called_op(frame.cursor)
        if op is None:
            return ()
        return (PES.ask(cmd=int(self._calls_of(np.array([op]))[0])),)

    def _called_op(self, cursor: int) -> int | None:
        """The op of which the view of PEs shows the call: the cursor's, or the next one
        that a kernel called, if the host called that, or else the last one. None: there
        is none, or the cursor is before the first op.

        It is looked for in growing blocks, of which the first is the cursor's op alone.
        """
        if cursor < 0:
            return None
        end = len(self._index.ops)
        size = 1
        after = cursor
        while after < end:
            found = self._called_in(after, min(after + size, end))
            if len(found):
                return int(found[0])
            after += size
            size *= 8
        size = 64
        before = cursor
        while before > 0:
            found = self._called_in(max(before - size, 0), before)
            if len(found):
                return int(found[-1])
            before -= size
            size *= 8
        return None

    def _called_in(self, first: int, end: int) -> Ints:
        """Which of the ops from ``first`` on, before ``end``, a kernel has called."""
        cmds = self._calls_of(np.arange(first, end))
        return first + np.flatnonzero((cmds >= 0) & ~np.isin(cmds, self._host_calls))

    def _calls_of(self, ops: Ints) -> Ints:
        """The call of each op."""
        trace = self._index.trace
        return np.asarray(trace.op_columns.cmd[trace.order[ops]])

    @cached_property
    def _host_calls(self) -> Ints:
        """The calls that the host made."""
        log = self._index.trace.commands
        return np.asarray(log.cmd[:][log.launch[:] < 0])

    # -- render -------------------------------------------------------------------

    def render(self, state: StatsState, frame: Frame, answers: Answers) -> Picture:
        """The rows in view; the picked one is marked, and so is what is in service.
        While the rest of an answer is computed a last line says so.
        """
        if self._is_too_long(state):
            return Picture(tuple(_invitation(len(self._index.ops))))
        queries = self._asked(state, frame)
        if not queries and frame.cursor >= 0:
            return Picture((_NO_CALL,))
        if not queries:
            return Picture((before_first_op(len(self._index.ops)),))
        found = [answers.of(queries[0])]
        waiting: Waiting | None = None
        try:
            found += [answers.of(query) for query in queries[1:]]
        except Waiting as missing:
            waiting = missing
        rows = self._rows(state, queries, found, frame)
        flying = self._names_in_service(frame, answers)
        marks_service = self.views[state.view] not in (DIAGNOSIS_VIEW, ROOFLINE_VIEW)
        marked = state.rows.pick
        if self.views[state.view] == DIAGNOSIS_VIEW:
            marked = state.rows.at  # what Enter and P are about, from the first key on
        visible = state.rows.visible
        lines: list[Line] = []
        for i, row in enumerate(rows[visible.start : visible.stop], visible.start):
            mark = " "
            first_word = row.line[0][0].split()[:1]
            if marks_service and not flying.isdisjoint(first_word):
                mark = "*"
            if i == marked:
                mark = ">"
            lines.append([(mark, "mark"), *row.line])
        lines += self._evidence(state, found, frame, frame.height - len(lines))
        if waiting is not None:
            lines = [*lines[: frame.height - 1], waiting.line]
        return Picture(tuple(lines), waiting=waiting)

    def _evidence(
        self, state: StatsState, found: Sequence[Any], frame: Frame, room: int
    ) -> list[Line]:
        """All about the picked finding, or the first, where there is room below the
        list; in less room its title alone.
        """
        at = (state.rows.at or 1) - 1
        if self.views[state.view] != DIAGNOSIS_VIEW:
            return []
        findings = ranked(*found)
        if at >= len(findings):
            return []
        path = self._index.trace.path
        finding = findings[at]
        elsewhere = self._led_elsewhere(finding)
        title = _whole_title(finding, frame.width)
        if room < len(title) + len(elsewhere) + _AROUND_TITLE:
            return [[(f"  {text}", "title")] for text in title[:room]]
        check = finding.check.replace(str(path), path.name)
        shown = Diagnosis((replace(finding, check=check),))
        first, *rest = shown.lines(frame.width - _NUMBER_OF_IT)
        lines: list[Line] = [[], *elsewhere]
        style = "title"
        for text in (first.removeprefix("1. "), *rest):
            if text.lstrip().startswith("$"):  # the command, which comes last
                style = "dim"
            lines.append([(f"  {text}", style)])
        if len(lines) > room:
            more = f"  {frame.glyphs.more} :{DIAGNOSE.name} shows all of it"
            lines[room - 1 :] = [[(more, "dim")]]
        return lines

    def _led_elsewhere(self, finding: Finding) -> list[Line]:
        """Where Enter leads, if that is an op of another line than the one named."""
        if not finding.ops or not finding.lines:
            return []
        row = self._index.ops.row(finding.ops[0])
        line = telling_line(row)
        if line == finding.lines[0]:
            return []
        text = f"Enter goes to op {row.op:,}, of {_without_folder(line)}"
        return [[(f"  {text}", "dim")]]

    def _names_in_service(self, frame: Frame, answers: Answers) -> set[str]:
        """The components, and their PEs, that serve something at the op's time."""
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        trace = self._index.trace
        names = set()
        for node in np.unique(service.nodes).tolist():
            name = trace.node_ids[node]
            names.add(name)
            names.add(name.removesuffix(f".{trace.nodes.engine[node]}"))
        return names

    # -- rows ---------------------------------------------------------------------

    def _rows(
        self,
        state: StatsState,
        queries: tuple[Query, ...],
        found: Sequence[Any],
        frame: Frame,
    ) -> Sequence[_Row]:
        """The rows of what was found so far. Where they are about another op than the
        cursor's, the first one says so.
        """
        rows = self._kept_rows(queries, found, frame, state.proved)
        if self.views[state.view] != PES_VIEW:
            return rows
        op = self._called_op(frame.cursor)
        if op is None or op == frame.cursor:
            return rows
        which = "next" if op > frame.cursor else "last"
        text = f"the host made this op; this is the {which} call of a kernel, op {op:,}"
        return [_Row([(text, "title")], _to_op(op)), *rows]

    def _kept_rows(
        self,
        queries: tuple[Query, ...],
        found: Sequence[Any],
        frame: Frame,
        proved: frozenset[ProvedGain],
    ) -> Sequence[_Row]:
        """The rows of what was found so far; those of the last few are kept, by their
        questions, so that a step does not make them again.
        """
        key = _MadeFor(queries[: len(found)], frame.width, frame.glyphs, proved)
        return self._made.get(
            key, lambda: self._rows_so_far(queries, found, frame, proved)
        )

    def _rows_so_far(
        self,
        queries: tuple[Query, ...],
        found: Sequence[Any],
        frame: Frame,
        proved: frozenset[ProvedGain],
    ) -> Sequence[_Row]:
        """The rows of what was found; none while what would be empty may yet change."""
        answer = found[0]
        if isinstance(answer, Diagnosis):
            answer = ranked(*found)
        if isinstance(answer, CausalProfile):
            answer = _with_proofs(answer, proved)
        if answer or len(found) == len(queries):
            return self._rows_of(answer, frame.width - 1, frame.glyphs)
        return ()

    def _rows_of(self, found: Any, width: int, glyphs: Glyphs) -> list[_Row]:
        """The rows of an answer; where nothing else is laid out here, its text."""
        match found:
            case Diagnosis():
                return _finding_rows(found, width, glyphs)
            case CriticalPath():
                return _critical_rows(found, width, glyphs)
            case Busiest():
                return _busiest_rows(found, width, glyphs)
            case Roofline():
                return _roofline_rows(found, width, glyphs)
            case CausalProfile():
                return _gain_rows(found, width, glyphs)
        return [self._row_of_text(text, glyphs) for text in found.lines(width)]

    def _row_of_text(self, text: str, glyphs: Glyphs) -> _Row:
        """A line of an answer's text. One that names a call that never ended leads to
        the last op of its PE.
        """
        op = None
        if text.startswith(_NEVER_ENDED):
            component, _, _ = text.removeprefix(_NEVER_ENDED).partition(": ")
            pe, _, _ = component.rpartition(".")
            op = self._last_op_of(pe)
        return _Row(_text_line(text, glyphs), _to_op(op))

    def _last_op_of(self, pe: str) -> int | None:
        """The last op that a PE served, None if it served none."""
        ids = self._index.trace.node_ids
        served = self._index.op_index
        last = []
        for node in served.components.tolist():
            if ids[node].startswith(f"{pe}."):
                last.append(int(served.ops_of(node)[-1]))
        return max(last, default=None)


_COMMANDS = {
    DIAGNOSIS_VIEW: DIAGNOSE,
    CRITICAL_VIEW: CRITICAL,
    ROOFLINE_VIEW: ROOFLINE,
    BUSIEST_VIEW: BUSIEST,
    FETCHES_VIEW: FETCHES,
    ENERGY_VIEW: ENERGY,
    WHATIF_VIEW: WHATIF,
}
"""The commands that answer what views show at every op alike."""

_NO_CALL: Line = [(" no kernel was launched here, so no PE called anything", "dim")]


def _to_op(op: int | None) -> tuple[Effect, ...]:
    """Going to an op, if there is one."""
    return () if op is None else (Do(GOTO(op=op)),)


def _invitation(ops: int) -> list[Line]:
    """Instead of a diagnosis that takes long."""
    seconds = max(round(ops / _DIAGNOSED_A_SECOND), 1)
    return [
        [(f" Enter diagnoses {ops:,} ops: what is wrong, slow and odd", "mark")],
        [(f" that takes some {seconds:,} s; Esc cancels", "dim")],
    ]


def _finding_rows(found: Diagnosis, width: int, glyphs: Glyphs) -> list[_Row]:
    """A row a finding: its number and kind, what it is, and its kernel line."""
    if not found:
        return [_Row([(text, "")]) for text in found.lines(width)]
    title = f"what to look at first, of {len(found)}; Enter goes there, P proves it"
    rows = [_Row([(title, "title")])]
    widest = max(len(finding.kind) for finding in found)
    for number, finding in enumerate(found, 1):
        title, place = _titled(finding)
        head = f"{number:>2} {finding.kind:<{widest}}  "
        if place in clip(title, width - len(head), glyphs):
            place = ""  # it would take the room of what is found there
        room = max(width - len(head) - len(place) - 1, _SHORTEST_NAME)
        what = clip(title, room, glyphs)
        style = "alarm" if finding.kind == "wrong" else ""
        line = [(head, style), (f"{what:<{room}} ", ""), (place, "dim")]
        rows.append(_Row(line, _entered_finding(finding), claimed_by(found, finding)))
    return rows


def _whole_title(finding: Finding, width: int) -> list[str]:
    """What a finding is, wrapped to a pane's width."""
    return wrap(f"{finding.kind}: {finding.title}", max(width - len("  "), 1))


def _longest_title(found: Diagnosis, rows: Sequence[_Row], frame: Frame) -> int:
    """How many lines the longest of the titles takes that end in an ellipsis in the
    list, whose first row is its heading.
    """
    most = 0
    for finding, row in zip(found, rows[1:], strict=False):
        _, (shown, _), _ = row.line
        if shown.rstrip().endswith(frame.glyphs.more):
            most = max(most, len(_whole_title(finding, frame.width)))
    return most


def _titled(finding: Finding) -> tuple[str, str]:
    """What a finding is, and its kernel line, both without folders."""
    title = finding.title
    for line in finding.lines:
        title = title.replace(line, _without_folder(line))
    place = ""
    if finding.lines:
        place = _without_folder(finding.lines[0])
    return title, place


def _without_folder(line: str) -> str:
    """A kernel line, FILE:LINE, without the folder of the file."""
    return line.rpartition("/")[2]


def _entered_finding(finding: Finding) -> tuple[Effect, ...]:
    """To its first op; without one, what the command answers that checks it."""
    if finding.ops:
        return _to_op(finding.ops[0])
    return (Do(parse(asked_by(finding))),)


def _text_line(text: str, glyphs: Glyphs) -> Line:
    """A line of an answer's text; the bar of # in it has a colour."""
    head, mark, bar = text.replace("…", glyphs.more).partition("#")
    return [(head, ""), (mark + bar, "flight")]


def _roofline_rows(found: Roofline, width: int, glyphs: Glyphs) -> list[_Row]:
    """The head and the plot, then all PEs as bars instead of the table of some."""
    text = (*found.head(width), *found.plot(width))
    rows = [_Row(_text_line(line, glyphs)) for line in text]
    bars = [_roof_bar(roof) for roof in (found.total, *found.pes)]
    title = "PEs, share of the roof"
    return rows + _bar_rows(title, bars, width, glyphs)


def _roof_bar(roof: Roof) -> _Bar:
    """How near a PE is to its roof."""
    rates = f"{roof.gflops:,.1f} GFLOP/s {roof.intensity:,.1f} FLOP/B {roof.bound}"
    return _Bar(roof.pe, roof.share, rates)


def _busiest_rows(found: Busiest, width: int, glyphs: Glyphs) -> list[_Row]:
    """Components, then links, each with the share of time in which it is busy."""
    head = f" of {time_text(found.t0)} to {time_text(found.t1)}"
    components = [_Bar(node, share, "") for share, node in found.components]
    links = []
    for link in found.links:
        name = f"{link.src} {glyphs.arrow} {link.dst}"
        links.append(_Bar(name, link.busy, f"{link.nbytes:,.0f} B"))
    title = f"components, busy share{head}"
    rows = _bar_rows(title, components, width, glyphs)
    return rows + _bar_rows("links, busy share, bytes", links, width, glyphs)


def _gain_rows(profile: CausalProfile, width: int, glyphs: Glyphs) -> list[_Row]:
    """A row a gain: what is faster, by which share of the run that ends it sooner, and
    by how much; how much faster it is, and whether that is sure.
    """
    end = time_text(profile.end_ns)
    if not profile.gains:
        text = f"nothing that is known of would end the run sooner than {end}"
        return [_Row([(text, "")])]
    whole = max(profile.end_ns, 1e-12)
    title = f"how much of {end} sooner, if 2x as fast or free; P proves it"
    any_proved = any(gain.proved_ns is not None for gain in profile.gains)
    bars = []
    for gain in profile.gains:
        sure = "sure" if gain.sure and not gain.is_refuted else "unsure"
        text = f"{time_text(gain.saved_ns)} {gain.how:<4} {sure:<6}"
        if any_proved:
            text += f" {_proved_text(gain):<14}"
        bars.append(_Bar(gain.what, gain.saved_ns / whole, text))
    head, *rows = _bar_rows(title, bars, width, glyphs)
    gains = zip(rows, profile.gains, strict=True)
    return [
        head,
        *(_Row(row.line, (_prediction_of(gain),), gain.change) for row, gain in gains),
    ]


def _with_proofs(
    profile: CausalProfile, proved: frozenset[ProvedGain]
) -> CausalProfile:
    """A profile with when the re-runs of its gains have ended."""
    ends = {one.change: one.end_ns for one in proved}
    gains = [
        replace(gain, proved_ns=ends.get(gain.change, gain.proved_ns))
        for gain in profile.gains
    ]
    return replace(profile, gains=tuple(gains))


def _proved_text(gain: Gain) -> str:
    """By how much sooner a re-run has ended; empty without one."""
    if gain.proved_ns is None:
        return ""
    return f"real {time_text(gain.end_ns - gain.proved_ns)}"


def _prediction_of(gain: Gain) -> Effect:
    """What Enter on a gain does: its prediction is shown, where a field says it."""
    if gain.change:
        return Do(WHATIF(changes=(gain.change,)))
    end = time_text(gain.predicted_ns)
    return Say(f"{gain.what} {gain.how}: the run would end at {end}")


def _critical_rows(path: CriticalPath, width: int, glyphs: Glyphs) -> list[_Row]:
    """What the path is made of, by kind and by kernel line; then its longest steps."""
    whole = max(path.t1 - path.t0, 1e-12)
    rows: list[_Row] = []
    by_kind = f"what the critical path of {time_text(whole)} did or waited for"
    for title, times in (
        (by_kind, path.totals),
        ("by kernel line", path.by_line),
    ):
        bars = [_Bar(name, ns / whole, time_text(ns)) for name, ns in times.items()]
        rows += _bar_rows(title, bars, width, glyphs)
    longest = max((step.ns for step in path.steps), default=0.0)
    # of a path of very many steps none is a hundredth
    least = min(whole * _LEAST_STEP, longest / 2)
    steps = [step for step in path.steps if step.ns >= least]
    title = f"its longest steps in order, of {time_text(whole)}"
    left_out = path.left_out + len(path.steps) - len(steps)
    if left_out:
        title = f"{title}; {left_out:,} shorter ones are left out"
    rows.append(_Row([(title, "title")]))
    rows += [_step_row(step, width, glyphs) for step in steps]
    return rows


def _step_row(step: Step, width: int, glyphs: Glyphs) -> _Row:
    """A step of the critical path: when, how long, how often, what and where."""
    times = ""
    if step.times > 1:
        times = f"x{step.times:,}"
    what = (
        f"{time_text(step.t0):>9} {time_text(step.ns):>9} {times:<6} {step.what:<12} "
    )
    where = step.node
    op = None
    if step.op >= 0:
        line_of_kernel = step.site.rpartition("/")[2]
        where = f"{line_of_kernel} op {step.op:,} {step.node}"
        op = step.op
    line = [(what, ""), (clip(where, width - len(what), glyphs), "dim")]
    claim = "" if op is None else f"slack {op}"  # that there is none
    return _Row(line, _to_op(op), claim)


def _bar_rows(
    title: str, bars: Sequence[_Bar], width: int, glyphs: Glyphs
) -> list[_Row]:
    """A title, and a row for each bar; of a name that is too long its end is shown."""
    longest = max((len(bar.name) for bar in bars), default=0)
    text_columns = max((len(bar.text) for bar in bars), default=0)
    beside_bar = width - text_columns - _SHARE_COLUMNS - _USUAL_BAR
    columns = max(min(max(width // 2, beside_bar), longest), _SHORTEST_NAME)
    room = max(width - columns - text_columns - _SHARE_COLUMNS, _SHORTEST_BAR)
    rows = [_Row([(title, "title")])]
    for bar in bars:
        name = bar.name
        if len(name) > columns:
            name = glyphs.more + name[1 - columns :]
        drawn = glyphs.thick * round(min(bar.share, 1.0) * room)
        head = f"{name:<{columns}} {bar.share:>6.1%} {bar.text:>{text_columns}} "
        rows.append(_Row([(head, ""), (drawn, "flight")]))
    return rows

"""Pane 1: what every component did over a window of time.

The pane owns that window: the times, ns, that other panes get in their frames. Above
the rows are a minimap of the whole run and a ruler (``axis.py``); the rows are a tree
that folds (``tree.py``), and a few of them may be pinned on top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np

from kernbench.replay.arrays import Array, Bools, Ints
from kernbench.replay.command import Command
from kernbench.replay.commands import GOTO, TIME
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    CELLS,
    CRITICAL_CELLS,
    HAZARD_CELLS,
    IN_SERVICE,
    INDEXED_ROWS,
    LANES,
    SUMMARY,
)
from kernbench.replay.query import Query
from kernbench.replay.time.timeline import RowKey
from kernbench.replay.views.ops import InService
from tui.draw import Run, clip
from tui.panes.axis import Axis, cells_line, minimap, ruler
from tui.panes.base import (
    Answers,
    BasePane,
    Change,
    ChangeView,
    Click,
    Do,
    Enter,
    Event,
    Frame,
    Moved,
    Pan,
    Picture,
    Pin,
    Rows,
    Scroll,
    Settle,
    Waiting,
)
from tui.panes.tree import Branch, Folds, Tree, row_of

BUSY, IN_LANES, CRITICAL, HAZARDS = range(4)
"""The views, by their numbers."""
_MARKS: dict[int, Command] = {CRITICAL: CRITICAL_CELLS, HAZARDS: HAZARD_CELLS}
"""The question that each view with marks asks: which cells of the rows in view to mark.
"""

LIGHT_OPS = 500_000
"""Ops that are indexed in some ten ms."""

LONG_OPS = 50_000
"""A trace of more ops than this is long. Its window is summarised while no key comes,
since indexing row after row would take seconds.
"""
_LEAST_NS = 0.125
"""The shortest window."""
_EDGE = 1 / 50
"""The share of the window that stays free on either side of what is fitted into it."""
_PANS = 8
"""How many steps of panning move the window by its own length."""

Window: TypeAlias = tuple[float, float]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Zoom:
    """Make the window ``factor`` times as long, around a cursor that is in view."""

    factor: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Show the launches, or the whole run where there are none."""


@dataclass(frozen=True, slots=True)
class FitBetween:
    """Show the times from ``t0`` to ``t1``, ns."""

    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class TimelineState:
    """What the user has chosen to see.

    ``window`` is from when to when, ns, and ``view`` a number of
    ``TimelinePane.views``. ``rows`` is the part of the list of rows in view. ``pins``
    are the ids of the rows kept on top, from the first on, and ``folds`` what was
    folded and unfolded by hand.

    ``cells`` is the last question about cells that was answered, None before there was
    one. While the cells of further rows are computed, those that it is about stay.
    """

    window: Window
    view: int = BUSY
    rows: Rows = field(default_factory=Rows)
    pins: tuple[str, ...] = ()
    folds: Folds = frozenset()
    cells: Query | None = None


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of the pane at one moment.

    ``pinned`` are those on top, ``shown`` those below that scroll. ``here`` is which of
    the latter the cursor's op is in, None before the first op.
    """

    pinned: tuple[Branch, ...]
    shown: tuple[Branch, ...]
    here: int | None

    @property
    def header(self) -> int:
        """Lines above the rows that scroll: minimap, ruler and pinned rows."""
        return 2 + len(self.pinned)

    def in_view(self, rows: Rows) -> tuple[Branch, ...]:
        """The rows that are drawn, from top to bottom."""
        return self.pinned + self.shown[rows.visible.start : rows.visible.stop]

    def is_here(self, branch: Branch, number: int | None) -> bool:
        """Whether the cursor's op is in a row.

        ``number`` is the row's among those that scroll, None for a pinned one. A pinned
        row stands for all lanes of its component.
        """
        if self.here is None or branch.id != self.shown[self.here].id:
            return False
        return number in (None, self.here)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is looked for in a row: what was in service after ``begins`` ns, of the ops
    up to position ``started``.
    """

    started: int
    begins: float = math.inf


class TimelinePane(BasePane[TimelineState]):
    """The timeline.

    Its window follows the cursor when that leaves it. A trace of more than ``long_ops``
    ops is taken as long, see ``LONG_OPS``.
    """

    views: tuple[str, ...] = ("busy", "lanes", "critical path", "hazards")

    def __init__(self, index: Index, long_ops: int = LONG_OPS) -> None:
        self._index = index
        self._is_long = len(index.ops) > long_ops
        self._tree = Tree(index)
        self._end = max(index.trace.end_ns, 1.0)

    def start(self) -> TimelineState:
        """The window fitted to the launches; nothing is folded by hand or pinned."""
        return TimelineState(self._fitted(*self._index.launch_window))

    def view(self, state: TimelineState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: TimelineState, view: int) -> TimelineState:
        """The state with another view."""
        return replace(state, view=view)

    # -- the window ----------------------------------------------------------------

    def _framed(self, t0: float, span: float) -> Window:
        """The window of ``span`` ns from ``t0`` on, as far as that is allowed.

        It is at most as long as the run with an edge on both sides. It may begin one
        edge before the run, and end one edge behind it.
        """
        whole = self._end * 50 / 48
        span = min(max(span, _LEAST_NS), whole)
        latest = self._end - span * 49 / 50
        t0 = max(min(t0, latest), -span * _EDGE)
        return t0, t0 + span

    def _fitted(self, t0: float, t1: float) -> Window:
        """The window that shows the times from ``t0`` to ``t1``, ns, with some room."""
        edge = max(t1 - t0, 1.0) * _EDGE
        return self._framed(t0 - edge, t1 - t0 + 2 * edge)

    def _zoomed(self, window: Window, factor: float, cursor: int) -> Window:
        """A window ``factor`` times as long.

        What stays at its place is the cursor's time, if that is in view, else the
        middle.
        """
        t0, t1 = window
        span = t1 - t0
        middle = self._index.ops.time(cursor)
        if not t0 <= middle < t1:
            middle = t0 + span / 2
        factor = max(factor, _LEAST_NS / span)
        return self._framed(middle + (t0 - middle) * factor, span * factor)

    def _panned(self, window: Window, by: int) -> Window:
        """The window moved by some steps."""
        t0, t1 = window
        span = t1 - t0
        return self._framed(t0 + span / _PANS * by, span)

    def _following(self, window: Window, cursor: int) -> Window:
        """The window if the cursor is in it, else one as long that begins a quarter of
        its length before the cursor.
        """
        t0, t1 = window
        time = self._index.ops.time(cursor)
        if cursor < 0 or t0 <= time < t1:
            return window
        span = t1 - t0
        return self._framed(time - span / 4, span)

    # -- update --------------------------------------------------------------------

    def update(
        self, state: TimelineState, event: Event, frame: Frame, answers: Answers
    ) -> Change[TimelineState] | None:
        """Moves the window, scrolls, folds and pins rows, and follows the cursor."""
        window = state.window
        match event:
            case Moved():
                window = self._following(window, frame.cursor)
                state = replace(state, window=window, rows=state.rows.released())
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=state.rows.moved(event))
            case Pan(by):
                state = replace(state, window=self._panned(window, by))
            case Zoom(factor):
                window = self._zoomed(window, factor, frame.cursor)
                state = replace(state, window=window)
            case Fit():
                window = self._fitted(*self._index.launch_window)
                if window == state.window:
                    return None
                state = replace(state, window=window)
            case FitBetween(t0, t1):
                state = replace(state, window=self._fitted(t0, t1))
            case ChangeView(by):
                state = self.next_view(state, by) or state
            case Pin():
                return self._pin(state, frame, answers)
            case Enter():
                moment = _Moment(max(frame.cursor, 0))
                return self._enter(state, frame, answers, moment)
            case Click():
                return self._click(state, event, frame, answers)
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _settled(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> TimelineState:
        """The state for what is known now: its rows scrolled so that the picked one is
        in view, or the cursor's, and its cells those in view, if they are there.
        """
        table = self._table(state, frame, answers)
        if table is None:
            return state
        room = frame.height - table.header
        rows = state.rows.settled(len(table.shown), room, table.here)
        state = replace(state, rows=rows)
        cells = self._ask_cells(CELLS, state, frame, table)
        if cells != state.cells and answers.known(cells) is not None:
            state = replace(state, cells=cells)
        return state

    def _table(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> _Table | None:
        """The rows that there are.

        None if the pane is not in view, if the trace has no ops, and while the lanes
        that the view needs are not known.
        """
        if frame.height <= 0 or frame.width <= 0 or not self._tree.rows:
            return None
        lanes = None
        if state.view == IN_LANES:
            lanes = answers.known(LANES.ask())
            if lanes is None:
                return None
        shown = self._tree.shown(state.folds, self._number(frame), lanes)
        pinned = [self._tree.at[pin] for pin in state.pins if pin in self._tree.at]
        most = max(frame.height - 2, 0) // 2
        here = None
        if frame.cursor >= 0:
            here = self._here(shown, frame.cursor, in_lanes=lanes is not None)
        return _Table(tuple(pinned[:most]), shown, here)

    def _number(self, frame: Frame) -> int:
        """The number in the tree of the cursor's component; before the first op it is
        that of the first op's.
        """
        return self._tree.number(int(self._index.ops.components[max(frame.cursor, 0)]))

    def _here(self, shown: Sequence[Branch], cursor: int, in_lanes: bool) -> int:
        """Which of the rows shown the cursor's op is in: the lowest, if it is in
        several.
        """
        lane = None
        if in_lanes:
            lane = int(self._lanes_of(np.array([cursor]))[0])
        number = self._tree.number(int(self._index.ops.components[cursor]))
        return row_of(shown, number, lane)

    def _lanes_of(self, ops: Array) -> Ints:
        """The lane that served each op."""
        trace = self._index.trace
        return np.asarray(trace.op_columns.slot[trace.order[ops]])

    # -- rows: pin, enter, click ---------------------------------------------------

    def _picked(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> Branch | None:
        """The row that the user picked, or the cursor's; None if there is neither."""
        table = self._table(state, frame, answers)
        at = state.rows.at
        if table is None or at is None or at >= len(table.shown):
            return None
        return table.shown[at]

    def _pin(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> Change[TimelineState] | None:
        """Pin the picked row, or let go of it if it is pinned; None where none is
        picked.
        """
        branch = self._picked(state, frame, answers)
        if branch is None:
            return None
        pins = tuple(pin for pin in state.pins if pin != branch.id)
        if branch.id not in state.pins:
            pins += (branch.id,)
        return Change(self._settled(replace(state, pins=pins), frame, answers))

    def _enter(
        self,
        state: TimelineState,
        frame: Frame,
        answers: Answers,
        moment: _Moment,
    ) -> Change[TimelineState]:
        """Go to an op of the picked row: to the last one in service at a moment, or of
        a component to the last one begun by then. A group in which there is none is
        folded, or unfolded.
        """
        branch = self._picked(state, frame, answers)
        if branch is None:
            return Change(state)
        op = self._op_in_service(branch, moment)
        if op is None and not branch.group:
            op = self._op_started(branch, moment.started)
        if op is not None:
            return Change(state, (Do(GOTO(op=op)),))
        folds = self._tree.toggled(branch, state.folds, self._number(frame))
        rows = replace(state.rows, pick=state.rows.at)
        state = replace(state, folds=folds, rows=rows)
        return Change(self._settled(state, frame, answers))

    def _op_in_service(self, branch: Branch, moment: _Moment) -> int | None:
        """The last op of a row that was in service at a moment; None: there is none."""
        found = self._index.op_index.in_flight(moment.started, moment.begins)
        ops = np.array(found, np.int64)
        ops = ops[np.isin(self._index.ops.components[ops], branch.components)]
        if branch.lane is not None:
            ops = ops[self._lanes_of(ops) == branch.lane]
        return int(ops[-1]) if len(ops) else None

    def _op_started(self, branch: Branch, started: int) -> int:
        """The last op up to position ``started`` that a component or lane served, else
        the first one that it did.

        Of a lane it is looked for in growing blocks on both sides of ``started``, since
        a component may have served millions of ops.
        """
        mine = self._index.op_index.ops_of(branch.components[0])
        count = int(np.searchsorted(mine, mine.dtype.type(started), side="right"))
        if branch.lane is None:
            return int(mine[max(count - 1, 0)])

        def in_lane(op: int, others: Array) -> Bools:
            return np.asarray(self._lanes_of(others) == branch.lane)

        ops = self._index.ops
        before = ops.seek(mine, started + 1, -1, in_lane)
        if before <= started:
            return before
        after = int(mine[count])
        if in_lane(after, mine[count : count + 1])[0]:
            return after
        return ops.seek(mine, after, 1, in_lane)

    def _click(
        self, state: TimelineState, click: Click, frame: Frame, answers: Answers
    ) -> Change[TimelineState]:
        """Go to a time of the minimap. A click on a row picks it, and enters it: as it
        is at the cell that was hit, or at the cursor where its name was.
        """
        table = self._table(state, frame, answers)
        if table is None:
            return Change(state)
        axis = self._axis(state, frame)
        column = click.x - axis.label
        if click.y == 0 and column >= 0:
            share = column / max(axis.columns - 1, 1)
            return Change(state, (Do(TIME(t=share * self._end)),))
        picked = state.rows.picked_at(click.y - table.header)
        if picked is None:
            return Change(state)
        state = replace(state, rows=picked)
        if column < 0:
            return self._enter(state, frame, answers, _Moment(max(frame.cursor, 0)))
        begins = axis.t0 + column * axis.cell_ns
        ends = begins + axis.cell_ns
        started = self._index.ops.started_before(ends) - 1
        return self._enter(state, frame, answers, _Moment(max(started, 0), begins))

    # -- queries -------------------------------------------------------------------

    def queries(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """What is in service at the cursor, the cells of the rows in view, and those to
        mark in them. In the view of lanes these are asked for first.
        """
        if not self._tree.rows:
            return ()
        wanted = [IN_SERVICE.ask(frame.cursor)]
        if state.view == IN_LANES:
            wanted.append(LANES.ask())
        table = self._table(state, frame, answers)
        if table is not None:
            wanted.append(self._ask_cells(CELLS, state, frame, table))
            if state.view in _MARKS:
                marks = _MARKS[state.view]
                wanted.append(self._ask_cells(marks, state, frame, table))
        return tuple(wanted)

    def wishes(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """What makes the next answers quick.

        Of a long trace that is a summary of the window: after that no other row of it
        has to be indexed. Then, or of any other trace at once, it is an index of the
        rows in view: after that no other window of them takes long.
        """
        table = self._table(state, frame, answers)
        if table is None:
            return ()
        axis = self._axis(state, frame)
        window = SUMMARY.ask(t0=axis.t0, t1=axis.t1, columns=axis.columns)
        if self._is_long and answers.known(window) is None:
            return (window,)
        rows = tuple(branch.row for branch in table.in_view(state.rows))
        return (INDEXED_ROWS.ask(rows=rows),)

    def preparations(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """An index of those rows in view that have few ops: zoomed or panned, they are
        then drawn at once.
        """
        table = self._table(state, frame, answers)
        if table is None:
            return ()
        light: list[RowKey] = []
        ops = 0
        for branch in table.in_view(state.rows):
            missing = self._index.timelines.unindexed([branch.row])
            ops += missing.ops
            if ops > LIGHT_OPS:
                break
            light += missing.rows
        if not light:
            return ()
        return (INDEXED_ROWS.ask(rows=tuple(light)),)

    def _ask_cells(
        self, command: Command, state: TimelineState, frame: Frame, table: _Table
    ) -> Query:
        """The question ``command`` about the cells of the rows in view."""
        branches = table.in_view(state.rows)
        axis = self._axis(state, frame)
        return command.ask(
            rows=tuple(branch.row for branch in branches),
            pes=tuple(branch.pes for branch in branches),
            t0=axis.t0,
            t1=axis.t1,
            columns=axis.columns,
        )

    # -- render --------------------------------------------------------------------

    def _axis(self, state: TimelineState, frame: Frame) -> Axis:
        """The window in the columns that the names of the rows leave."""
        label = min(self._tree.width + 5, frame.width // 3)
        time = None
        if frame.cursor >= 0:
            time = self._index.ops.time(frame.cursor)
        return Axis(*state.window, label, frame.width - label, time, frame.glyphs)

    def render(self, state: TimelineState, frame: Frame, answers: Answers) -> Picture:
        """The minimap, the ruler, the pinned rows and those in view.

        Where the cells of a row are computed, that is said in their place. Where what
        the view marks is, that is said in place of the minimap, and nothing is marked
        yet.
        """
        if not self._tree.rows:
            none = (" no ops in this trace; ", "dim")
            return Picture(([none, (":info", "bold"), (" has more", "dim")],))
        if state.view == IN_LANES:
            answers.of(LANES.ask())
        table = self._table(state, frame, answers)
        if table is None:
            return Picture(())
        axis = self._axis(state, frame)
        cells, cells_waiting = self._cells(state, frame, table, answers)
        marks, marks_waiting = self._marks(state, frame, table, answers)
        head = minimap(axis, self._end)
        if marks_waiting is not None:
            head = marks_waiting.line
        lines = [head, ruler(axis)]
        names = self._names(state, frame, table, axis.label, answers)
        for branch, name in zip(table.in_view(state.rows), names, strict=True):
            line = [name, (" ", "")]
            if branch.row in cells:
                text = cells[branch.row]
                if branch.row in marks:
                    text = with_marks(text, marks[branch.row], state.view)
                line += cells_line(text, axis)
            elif cells_waiting is not None:
                line += cells_waiting.line
            lines.append(line)
        return Picture(tuple(lines), axis.summary, cells_waiting or marks_waiting)

    def _cells(
        self, state: TimelineState, frame: Frame, table: _Table, answers: Answers
    ) -> tuple[dict[RowKey, str], Waiting | None]:
        """The cells that are known, by row, and what the others wait for (None:
        nothing).

        While those of the rows in view are computed, they are those of the rows that
        were in view before, if the window is the same.
        """
        query = self._ask_cells(CELLS, state, frame, table)
        try:
            return _by_row(query, answers.of(query)), None
        except Waiting as waiting:
            before = state.cells
            if before is None or _window_of(before) != _window_of(query):
                return {}, waiting
            return _by_row(before, answers.known(before)), waiting

    def _marks(
        self, state: TimelineState, frame: Frame, table: _Table, answers: Answers
    ) -> tuple[dict[RowKey, Bools], Waiting | None]:
        """By row what cells the view marks, and what that waits for (None: nothing)."""
        if state.view not in _MARKS:
            return {}, None
        query = self._ask_cells(_MARKS[state.view], state, frame, table)
        try:
            return _by_row(query, answers.of(query)), None
        except Waiting as waiting:
            return {}, waiting

    def _names(
        self,
        state: TimelineState,
        frame: Frame,
        table: _Table,
        width: int,
        answers: Answers,
    ) -> list[Run]:
        """The names of the rows in view, each with its style, behind two signs.

        The first is > for the cursor's row, * for those that serve an op at its time.
        The second is + for a group that is folded, - for an open one, ^ for what is
        pinned.
        """
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        serving = _Serving(self._tree, service)
        number = self._number(frame)
        names = []
        first = state.rows.top - len(table.pinned)
        for i, branch in enumerate(table.in_view(state.rows), first):
            pinned = i < state.rows.top
            mark = " "
            style = "title"
            if serving.has(branch):
                mark = "*"
                style = "flight"
            if table.is_here(branch, None if pinned else i):
                mark = ">"
                style = "here"
            if i == state.rows.pick and not pinned:
                style = "pick"
            fold = " "
            if branch.group:
                is_open = self._tree.is_open(branch, state.folds, number)
                fold = "-" if is_open else "+"
            if pinned:
                fold = "^"
            text = clip(f"{mark}{fold}{branch.label}", width - 1, frame.glyphs)
            names.append((text, style))
        return names


class _Serving:
    """Which rows serve an op at the cursor's time."""

    def __init__(self, tree: Tree, service: InService) -> None:
        self._service = service
        self._up_to = tree.counted(service.nodes)

    def has(self, branch: Branch) -> bool:
        """Whether a row does: any of its components, or the lane that it is of."""
        if branch.lane is None:
            return bool(self._up_to[branch.high] > self._up_to[branch.low])
        mine = self._service.nodes == branch.components[0]
        return bool((self._service.lanes[mine] == branch.lane).any())


def _by_row(query: Query, found: Sequence[_T] | None) -> dict[RowKey, _T]:
    """An answer about the cells of rows, by row; empty if it is None."""
    if found is None:
        return {}
    return dict(zip(query.args.rows, found, strict=True))


def _window_of(cells: Query) -> tuple[float, float, int]:
    """The window that a question about cells is about, and its columns."""
    return cells.args.t0, cells.args.t1, cells.args.columns


def with_marks(cells: str, hits: Bools, view: int) -> str:
    """The cells of a row with those marked that ``hits`` says, as a view does it.

    A hazard is marked by "!". On the critical path a cell stays the letter that it is,
    and what is busy beside the path becomes a dot. What is on the path, though the row
    seems idle there, is "#".
    """
    if view == HAZARDS:
        letters = np.frombuffer(cells.encode(), np.uint8)
        marked = np.where(hits, ord("!"), letters)
    else:
        letters = np.frombuffer(cells.upper().encode(), np.uint8)
        idle = letters == ord(" ")
        on_path = np.where(idle, ord("#"), letters)
        off_path = np.where(idle, letters, ord("."))
        marked = np.where(hits, on_path, off_path)
    return marked.astype(np.uint8).tobytes().decode()

"""Pane 1: what every component did over a window of time.

The pane owns that window: the times, ns, that other panes get in their frames. Above
the rows are a minimap of the whole run and a ruler (``axis.py``); the rows are a tree
that folds (``tree.py``), and a few of them may be pinned on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from kernbench.replay.arrays import Bools, Ints
from kernbench.replay.command import Call, Command
from kernbench.replay.commands import CRITICAL as OF_CRITICAL_PATH
from kernbench.replay.commands import GOTO, TIME
from kernbench.replay.commands import HAZARDS as FOUND_HAZARDS
from kernbench.replay.commands import TIMELINE as OF_WINDOW
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    CAUSES,
    CELLS,
    CRITICAL_CELLS,
    CRITICAL_OPS,
    HAZARD_CELLS,
    HAZARD_OPS,
    IN_SERVICE,
    INDEXED_ROWS,
    LANES,
    SUMMARY,
    TRAFFIC,
    TRAFFIC_CELLS,
)
from kernbench.replay.query import Query
from kernbench.replay.races.findings import Findings, race_near
from kernbench.replay.time.timeline import RowKey
from kernbench.replay.time.traffic import TrafficGroup
from kernbench.replay.views.causes import Causes
from kernbench.replay.views.ops import InService
from kernbench.replay.views.timeline import RowCells, TrafficCells
from tui.draw import Glyphs, Line, Run, clip
from tui.newest import Newest
from tui.panes.axis import Axis, minimap, ruler
from tui.panes.base import (
    QUICK_OPS,
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
from tui.panes.row_ops import Moment, RowOps
from tui.panes.slices import Marks, Pointed, beside, is_hot, legend
from tui.panes.slices import Row as CellRow
from tui.panes.tree import Branch, Folds, Lanes, Tree, row_of
from tui.panes.why import pointed, why
from tui.panes.windows import Window, Windows, kernel_window

BUSY, IN_LANES, CRITICAL, HAZARDS = range(4)
"""The views, by their numbers."""
_MARKS: dict[int, Command] = {CRITICAL: CRITICAL_CELLS, HAZARDS: HAZARD_CELLS}
"""The question that each view with marks asks: which cells of the rows in view to mark.
"""

_MARKED: dict[int, Command] = {CRITICAL: CRITICAL_OPS, HAZARDS: HAZARD_OPS}
"""The question which ops these are."""

LIGHT_OPS = 500_000
"""Ops that are indexed in some ten ms."""

LONG_OPS = 50_000
"""A trace of more ops than this is long. Its window is summarised while no key comes,
since indexing row after row would take seconds.
"""
INDEXED_OPS = 20_000_000
"""Of a long trace of at most so many ops all components are indexed at rest: that takes
0.2 us and 30 bytes of files an op.
"""
_TABLES_KEPT = 16
_ROWS_ABOVE = 2
"""Rows above the cursor's group, which is as high as that of others."""
_LEAST_LABEL = 16
"""Columns of the names of rows, where there is room."""
_HEADER = 2
"""Lines above the rows: minimap and ruler."""
_ONE_LINE = 7
"""Lines from which on one below the rows says why the cursor's op waited."""
_TWO_LINES = 13
"""Lines from which on there is a legend too."""
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
    ``seeks``: what the view marks is looked for, to be scrolled into view once known.
    """

    window: Window
    view: int = BUSY
    rows: Rows = field(default_factory=Rows)
    pins: tuple[str, ...] = ()
    folds: Folds = frozenset()
    cells: Query | None = None
    seeks: bool = False


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
        return _HEADER + len(self.pinned)

    def top_around(self, top: int, room: int) -> int:
        """The first row to show in so many lines, so that the cursor's group stands at
        the same lines wherever it is: then few cells are another when the cursor goes
        on to a group like it. Without a cursor, or a group, it is ``top``.
        """
        if self.here is None or len(self.shown) <= room:
            return top
        first = self.here
        while first > 0 and not self.shown[first].group:
            first -= 1
        end = self.here + 1
        while end < len(self.shown) and self.shown[end].depth > self.shown[first].depth:
            end += 1
        if end - first > room or not self.shown[first].group:
            return top
        return first - _ROWS_ABOVE

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


class _TableKey(NamedTuple):
    """What the rows of the pane depend on."""

    folds: Folds
    pins: tuple[str, ...]
    cursor: int
    height: int
    has_lanes: bool
    has_traffic: bool


class TimelinePane(BasePane[TimelineState]):
    """The timeline.

    Its window follows the cursor when that leaves it. A trace of more than ``long_ops``
    ops is taken as long, see ``LONG_OPS``.
    """

    views: tuple[str, ...] = ("busy", "lanes", "critical path", "hazards")

    def __init__(self, index: Index, long_ops: int = LONG_OPS) -> None:
        self._index = index
        self._is_long = len(index.ops) > long_ops
        self._has_quick_traffic = len(index.ops) <= QUICK_OPS
        self._tree = Tree(index)
        self._end = max(index.trace.end_ns, 1.0)
        self._windows = Windows(self._end, index.ops)
        self._row_ops = RowOps(index)
        self._tables = Newest[_TableKey, _Table](_TABLES_KEPT)

    def start(self) -> TimelineState:
        """The window fitted to the launches; nothing is folded by hand or pinned."""
        return TimelineState(self._windows.fitted(*kernel_window(self._index)))

    def view(self, state: TimelineState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: TimelineState, view: int) -> TimelineState:
        """The state with another view."""
        return replace(state, view=view)

    # -- update --------------------------------------------------------------------

    def update(
        self, state: TimelineState, event: Event, frame: Frame, answers: Answers
    ) -> Change[TimelineState] | None:
        """Moves the window, scrolls, folds and pins rows, and follows the cursor."""
        window = state.window
        match event:
            case Moved():
                window = self._windows.following(window, frame.cursor)
                rows = state.rows.released()
                state = replace(state, window=window, rows=rows, seeks=False)
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=state.rows.moved(event))
            case Pan(by):
                state = replace(state, window=self._windows.panned(window, by))
            case Zoom(factor):
                window = self._windows.zoomed(window, factor, frame.cursor)
                state = replace(state, window=window)
            case Fit():
                window = self._windows.fitted(*kernel_window(self._index))
                if window == state.window:
                    return None
                state = replace(state, window=window)
            case FitBetween(t0, t1):
                state = replace(state, window=self._windows.fitted(t0, t1))
            case ChangeView(by):
                state = self.next_view(state, by) or state
                state = replace(state, seeks=state.view in _MARKED)
                if not state.seeks:  # back to the cursor from what a view has marked
                    state = replace(state, rows=state.rows.released())
            case Pin():
                return self._pin(state, frame, answers)
            case Enter():
                moment = Moment(max(frame.cursor, 0))
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
        if state.seeks:
            state, table = self._sought(state, frame, answers, table)
        room = self._room(frame) - len(table.pinned)
        rows = state.rows
        if rows.pick is None:
            rows = replace(rows, top=table.top_around(rows.top, room))
        total = len(table.shown)
        if answers.known(TRAFFIC.ask()) is None:
            total = max(total, rows.total)  # those that are to come are not forgotten
        rows = rows.settled(total, room, table.here)
        state = replace(state, rows=rows)
        cells = self._ask_cells(CELLS, state, frame, table)
        if cells != state.cells and answers.known(cells) is not None:
            state = replace(state, cells=cells)
        return state

    def _sought(
        self,
        state: TimelineState,
        frame: Frame,
        answers: Answers,
        table: _Table,
    ) -> tuple[TimelineState, _Table]:
        """The state in which what the view marks is in view, if it is known: the op of
        it that is nearest to the cursor.
        """
        ops: Ints | None = answers.known(_MARKED[state.view].ask())
        if ops is None:
            return state, table
        state = replace(state, seeks=False)
        if not len(ops):
            return state, table
        after = min(int(np.searchsorted(ops, frame.cursor)), len(ops) - 1)
        around = [int(ops[max(after - 1, 0)]), int(ops[after])]
        op = min(around, key=lambda near: abs(near - frame.cursor))
        window = self._windows.following(state.window, op)
        row = self._here(table.shown, op)
        state = replace(state, window=window, rows=replace(state.rows, pick=row))
        return state, table

    def _room(self, frame: Frame) -> int:
        """Lines for rows: pinned ones, and those that scroll."""
        return max(frame.height - _HEADER - _footer_lines(frame), 0)

    def _table(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> _Table | None:
        """The rows that there are.

        None if the pane is not in view, if the trace has no ops, and while the lanes
        that the view needs are not known. The last few are kept, as one key asks for
        its rows several times.
        """
        if frame.height <= 0 or frame.width <= 0 or not self._tree.rows:
            return None
        lanes = None
        if state.view == IN_LANES:
            lanes = answers.known(LANES.ask())
            if lanes is None:
                return None
        groups = answers.known(TRAFFIC.ask())
        # Of a trace there is one answer about lanes, and one about traffic.
        key = _TableKey(
            folds=state.folds,
            pins=state.pins,
            cursor=frame.cursor,
            height=frame.height,
            has_lanes=lanes is not None,
            has_traffic=groups is not None,
        )
        return self._tables.get(
            key, lambda: self._made_table(state, frame, lanes, groups)
        )

    def _made_table(
        self,
        state: TimelineState,
        frame: Frame,
        lanes: Lanes | None,
        groups: tuple[TrafficGroup, ...] | None,
    ) -> _Table:
        """The rows that there are, for what is known of lanes and of traffic."""
        shown = self._tree.shown(
            state.folds, self._number(frame), lanes, self._room(frame)
        )
        at = self._tree.at
        if groups is not None:
            traffic = self._tree.traffic(groups, state.folds)
            shown += traffic
            at = at | {branch.id: branch for branch in traffic}
        pinned = [at[pin] for pin in state.pins if pin in at]
        most = max(frame.height - 2, 0) // 2
        here = None
        if frame.cursor >= 0:
            here = self._here(shown, frame.cursor)
        return _Table(tuple(pinned[:most]), shown, here)

    def _number(self, frame: Frame) -> int:
        """The number in the tree of the cursor's component; before the first op it is
        that of the first op's.
        """
        return self._tree.number(int(self._index.ops.components[max(frame.cursor, 0)]))

    def _here(self, shown: Sequence[Branch], cursor: int) -> int:
        """Which of the rows shown the cursor's op is in: the lowest, if it is in
        several.
        """
        lane = int(self._row_ops.lanes_of(np.array([cursor]))[0])
        number = self._tree.number(int(self._index.ops.components[cursor]))
        return row_of(shown, number, lane)

    def claimed(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> str | None:
        """What the views with marks claim: of the cursor's op how long it may be
        delayed, which is no time on the critical path; of the race next to the cursor
        that its order matters.
        """
        if state.view == CRITICAL and frame.cursor >= 0:
            return f"slack {frame.cursor}"
        if state.view != HAZARDS:
            return None
        found: Findings | None = answers.known(FOUND_HAZARDS.ask())
        return None if found is None else race_near(found, frame.cursor)

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
        moment: Moment,
    ) -> Change[TimelineState]:
        """Go to an op of the picked row: to the last one in service at a moment, or of
        a component to the last one begun by then. A group in which there is none is
        folded, or unfolded.
        """
        branch = self._picked(state, frame, answers)
        if branch is None:
            return Change(state)
        op = None
        if not branch.traffic:
            op = self._row_ops.in_service(branch, moment)
        elif not branch.group:
            return Change(state)
        if op is None and not branch.group:
            op = self._row_ops.started(branch, moment.started)
        if op is not None:
            return Change(state, (Do(GOTO(op=op)),))
        number = self._number(frame)
        room = self._room(frame)
        folds = self._tree.toggled(branch, state.folds, number, room)
        rows = replace(state.rows, pick=state.rows.at)
        state = replace(state, folds=folds, rows=rows)
        return Change(self._settled(state, frame, answers))

    def _click(
        self, state: TimelineState, click: Click, frame: Frame, answers: Answers
    ) -> Change[TimelineState]:
        """Go to the last op begun in a cell of the minimap, or before it. A click on a
        row picks it, and enters it: as it is at the cell that was hit, or at the cursor
        where its name was.
        """
        table = self._table(state, frame, answers)
        if table is None:
            return Change(state)
        axis = self._axis(state, frame)
        column = click.x - axis.label
        if click.y == 0 and column >= 0:
            share = (column + 1) / axis.columns  # where the cell ends
            return Change(state, (Do(TIME(t=share * self._end)),))
        picked = state.rows.picked_at(click.y - table.header)
        if picked is None:
            return Change(state)
        state = replace(state, rows=picked)
        if column < 0:
            return self._enter(state, frame, answers, Moment(max(frame.cursor, 0)))
        begins = axis.t0 + column * axis.cell_ns
        ends = begins + axis.cell_ns
        started = self._index.ops.started_before(ends) - 1
        return self._enter(state, frame, answers, Moment(max(started, 0), begins))

    # -- queries -------------------------------------------------------------------

    def question(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> Call | None:
        """The cells of the window, or what the view marks in them."""
        if state.view == CRITICAL:
            return OF_CRITICAL_PATH()
        if state.view == HAZARDS:
            return FOUND_HAZARDS()
        t0, t1 = state.window
        return OF_WINDOW(t0=round(max(t0, 0.0), 3), t1=round(t1, 3))

    def queries(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """What is in service at the cursor, the cells of the rows in view, and those to
        mark in them. In the view of lanes these are asked for first.
        """
        if not self._tree.rows:
            return ()
        wanted = [IN_SERVICE.ask(frame.cursor), CAUSES.ask(frame.cursor)]
        if state.view == IN_LANES:
            wanted.append(LANES.ask())
        table = self._table(state, frame, answers)
        if table is not None:
            wanted.append(self._ask_cells(CELLS, state, frame, table))
            if state.view in _MARKS:
                wanted.append(_MARKED[state.view].ask())
                marks = _MARKS[state.view]
                wanted.append(self._ask_cells(marks, state, frame, table))
            if state.view == HAZARDS:
                wanted.append(FOUND_HAZARDS.ask())
            if not self._is_long:
                wanted.append(TRAFFIC.ask())
                wanted.append(self._ask_whole(state, frame))
            if self._has_quick_traffic:
                wanted += self._ask_traffic(state, frame, table)
        return tuple(wanted)

    def wishes(
        self, state: TimelineState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """What makes the next answers quick.

        Of a long trace that is a summary of the window: after that no other row of it
        has to be indexed. Then, or of any other trace at once, it is an index of the
        rows in view: after that no other window of them takes long; of a long trace
        also of other groups of PEs that have few ops, as one comes into view whenever
        the cursor goes on to another, and then of all components. Last come rows of
        what carries bytes, see ``QUICK_OPS``: those of many components, in view or not,
        which take long when they are first seen, or else those in view.
        """
        table = self._table(state, frame, answers)
        if table is None:
            return ()
        axis = self._axis(state, frame)
        window = SUMMARY.ask(t0=axis.t0, t1=axis.t1, columns=axis.columns)
        if self._is_long and answers.known(window) is None:
            return (window,)
        rows = self._op_keys(state, frame, table)
        if self._has_quick_traffic:
            large = [row.traffic for row in table.shown if len(row.traffic) > 1]
            traffic = [_ask_carried((row,), axis) for row in large]
        else:
            traffic = self._ask_traffic(state, frame, table)
        if self._is_long:
            whole = self._ask_whole(state, frame)
            index = (INDEXED_ROWS.ask(rows=rows), INDEXED_ROWS.ask(rows=self._groups))
            every = INDEXED_ROWS.ask(rows=self._components)
            return (*index, whole, every, TRAFFIC.ask(), *traffic)
        return (INDEXED_ROWS.ask(rows=self._with_whole(rows)), *traffic)

    @cached_property
    def _groups(self) -> tuple[RowKey, ...]:
        """The groups of several PEs that have few ops."""
        count = self._index.op_index.count_of
        rows = [branch.row for branch in self._tree.rows if branch.pes > 1]
        return tuple(row for row in rows if count(row.components) <= LIGHT_OPS)

    @cached_property
    def _components(self) -> tuple[RowKey, ...]:
        """All components, unless they have very many ops."""
        if len(self._index.ops) > INDEXED_OPS:
            return ()
        return tuple(RowKey((component,)) for component in self._tree.components)

    def _with_whole(self, rows: tuple[RowKey, ...]) -> tuple[RowKey, ...]:
        """Some rows, and the one that the minimap is made of."""
        return tuple(dict.fromkeys((*rows, RowKey(self._tree.working))))

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
        for row in self._with_whole(self._op_keys(state, frame, table)):
            missing = self._index.timelines.unindexed([row])
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
        branches = self._op_rows(state, table)
        axis = self._axis(state, frame)
        return command.ask(
            rows=self._op_keys(state, frame, table),
            pes=tuple(branch.pes for branch in branches),
            t0=axis.t0,
            t1=axis.t1,
            columns=axis.columns,
        )

    def _op_keys(
        self, state: TimelineState, frame: Frame, table: _Table
    ) -> tuple[RowKey, ...]:
        """What the rows in view show that show ops: their own, of an open PE its
        composites.
        """
        number = self._number(frame)
        room = self._room(frame)
        keys = []
        for branch in self._op_rows(state, table):
            key = branch.row
            is_open = self._tree.is_open(branch, state.folds, number, room)
            if branch.lead is not None and is_open:
                key = branch.lead
            keys.append(key)
        return tuple(keys)

    def _op_rows(self, state: TimelineState, table: _Table) -> tuple[Branch, ...]:
        """The rows in view that show ops."""
        in_view = table.in_view(state.rows)
        return tuple(branch for branch in in_view if not branch.traffic)

    def _ask_traffic(
        self, state: TimelineState, frame: Frame, table: _Table
    ) -> list[Query]:
        """The questions about the other rows in view.

        A row of many components, which takes long when it is first seen, has one of its
        own: it stays asked while others come into view. Rows of one share one.
        """
        in_view = table.in_view(state.rows)
        rows = [branch.traffic for branch in in_view if branch.traffic]
        together = tuple(row for row in rows if len(row) == 1)
        asked = [*((row,) for row in rows if len(row) > 1), together]
        axis = self._axis(state, frame)
        return [_ask_carried(some, axis) for some in asked if some]

    def _ask_whole(self, state: TimelineState, frame: Frame) -> Query:
        """The question how busy the machine is over the whole run."""
        axis = self._axis(state, frame)
        return CELLS.ask(
            rows=(RowKey(self._tree.working),),
            pes=(1,),
            t0=0.0,
            t1=self._end,
            columns=axis.columns,
        )

    # -- render --------------------------------------------------------------------

    def _axis(self, state: TimelineState, frame: Frame) -> Axis:
        """The window in the columns that the names of the rows leave."""
        label = min(self._tree.width + 4, max(frame.width // 6, _LEAST_LABEL))
        label = min(label, frame.width // 3)
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
        traffic = self._traffic(state, frame, table, answers)
        causes: Causes | None = answers.known(CAUSES.ask(frame.cursor))
        whole = answers.known(self._ask_whole(state, frame))
        heat = whole[0].busy if whole else None
        head = minimap(axis, self._end, heat)
        if marks_waiting is not None:
            head = marks_waiting.line
        lines = [head, ruler(axis)]
        standing_out = pointed(frame.cursor, causes)
        names = self._names(state, frame, table, axis.label, answers)
        rows = iter(self._ask_cells(CELLS, state, frame, table).args.rows)
        letters: set[str] = set()
        hot = False
        for branch, name in zip(table.in_view(state.rows), names, strict=True):
            row = CellRow(axis)
            line: Line = [name, (" ", "")]
            if branch.traffic:
                shares = traffic.get(branch.traffic)
                if shares is not None:
                    row.add_shares(shares.busy, shares.waiting)
                    hot |= bool(is_hot(shares.busy, shares.waiting).any())
            else:
                key = next(rows)
                if key in cells:
                    _draw(row, cells[key], marks.get(key), state.view, standing_out)
                    letters.update(cells[key].letters)
                    row.say_idle()
                elif cells_waiting is not None:
                    lines.append(line + cells_waiting.line)
                    continue
            row.add_cursor()
            lines.append(line + row.line)
        wrong = state.view == HAZARDS
        classes = legend(letters, axis.glyphs, frame.width - 1, hot, wrong)
        footer = self._footer(frame, axis, causes, classes)
        lines += [[]] * (frame.height - len(lines) - len(footer))
        subtitle = axis.summary
        if wrong and _are_none(answers.known(HAZARD_OPS.ask())):
            subtitle = f"no hazards; {subtitle}"
        return Picture(tuple(lines + footer), subtitle, cells_waiting or marks_waiting)

    def _traffic(
        self, state: TimelineState, frame: Frame, table: _Table, answers: Answers
    ) -> dict[tuple[int, ...], TrafficCells]:
        """The cells of what carries bytes that are known, by its components."""
        found: dict[tuple[int, ...], TrafficCells] = {}
        for query in self._ask_traffic(state, frame, table):
            cells: tuple[TrafficCells, ...] | None = answers.known(query)
            if cells is not None:
                found.update(zip(query.args.rows, cells, strict=True))
        return found

    def _footer(
        self, frame: Frame, axis: Axis, causes: Causes | None, classes: Line
    ) -> list[Line]:
        """Why the cursor's op waited and what followed, and what the colours are."""
        count = _footer_lines(frame)
        if not count:
            return []
        before, after = why(causes, axis)
        if count == 1:
            line = beside(before, after, frame.width)
            if not before:
                line = [(" ", ""), *classes]
            return [line]
        return [beside(before, after, frame.width), [(" ", ""), *classes]]

    def _cells(
        self, state: TimelineState, frame: Frame, table: _Table, answers: Answers
    ) -> tuple[dict[RowKey, RowCells], Waiting | None]:
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
        The second says whether a group is open or folded, and is ^ for what is pinned.
        """
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        serving = _Serving(self._tree, service)
        number = self._number(frame)
        room = self._room(frame)
        names = []
        first = state.rows.top - len(table.pinned)
        for i, branch in enumerate(table.in_view(state.rows), first):
            pinned = i < state.rows.top
            mark = " "
            style = "title" if not branch.traffic else "dim"
            if serving.has(branch):
                mark = "*"
                style = "flight"
            if table.is_here(branch, None if pinned else i):
                mark = ">"
                style = "here"
            if i == state.rows.pick and not pinned:
                style = "pick"
            fold = " "
            text = "  " * branch.depth + branch.short
            if branch.group:
                is_open = self._tree.is_open(branch, state.folds, number, room)
                fold = frame.glyphs.fold[0 if is_open else 1]
                if branch.traffic:
                    text = f"{text} {len(branch.traffic)}"
            if pinned or i == state.rows.top:
                text = branch.name  # its group is not above it
            if pinned:
                fold = "^"
            text = _with_lane(text, branch.lane, width - 3, frame.glyphs)
            names.append((clip(f"{mark}{fold}{text}", width - 1, frame.glyphs), style))
        return names


class _Serving:
    """Which rows serve an op at the cursor's time."""

    def __init__(self, tree: Tree, service: InService) -> None:
        self._service = service
        self._up_to = tree.counted(service.nodes)

    def has(self, branch: Branch) -> bool:
        """Whether a row does: any of its components, or the lane that it is of."""
        if branch.traffic:
            return False
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


def _are_none(ops: Ints | None) -> bool:
    """Whether it is known of some ops that there are none."""
    return ops is not None and not len(ops)


def _ask_carried(rows: tuple[tuple[int, ...], ...], axis: Axis) -> Query:
    """The question about the cells of some rows of components that carry bytes."""
    return TRAFFIC_CELLS.ask(rows=rows, t0=axis.t0, t1=axis.t1, columns=axis.columns)


def _footer_lines(frame: Frame) -> int:
    """Lines below the rows."""
    if frame.height >= _TWO_LINES:
        return 2
    return 1 if frame.height >= _ONE_LINE else 0


def _draw(
    row: CellRow, cells: RowCells, hits: Bools | None, view: int, pointed: Pointed
) -> None:
    """Draw the ops of a row, with what the view marks."""
    marks = None
    if hits is not None:
        marks = Marks(hits, wrong=view == HAZARDS)
    row.add_bars(cells.letters, cells.busy, cells.slices)
    row.add_slices(cells.slices, pointed, marks)
    if marks is not None:
        row.add_marks(marks)


def _with_lane(name: str, lane: int | None, room: int, glyphs: Glyphs) -> str:
    """The name of a row that ends in its lane, which is what tells it from the next
    row: a long one is cut before it.
    """
    if lane is None or len(name) <= room:
        return name
    end = f" {lane}"
    return clip(name.removesuffix(end), room - len(end), glyphs) + end

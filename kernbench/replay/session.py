"""``ReplaySession``: the debugger as an object, for Python programs and tests.

It keeps an ``Index`` and a ``Session``, and asks and moves by the commands that users
have.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NoReturn, Self, cast

from kernbench.common.arrays import Array, Ints
from kernbench.common.progress import Progress, no_progress, stage
from kernbench.errors import UsageError
from kernbench.replay import commands, moves, questions
from kernbench.replay.answers import (
    Info,
    OpDetails,
    OpRow,
    Source,
    Stopped,
    Touches,
)
from kernbench.replay.command import Call, Command
from kernbench.replay.data.blame import Blame
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.data.memory import ENTRIES, Memory, TensorView
from kernbench.replay.data.outputs import Outputs
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import ACTIVITY_CELLS
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import FOCUS_LEVELS, At, Query, Session, Stop
from kernbench.replay.races.findings import Findings as Hazards
from kernbench.replay.text import count_text, time_text
from kernbench.replay.texts import TextList
from kernbench.replay.time.activity import Activity, ActivityCells
from kernbench.replay.time.call_times import CallTimes
from kernbench.replay.time.critical import CriticalPath
from kernbench.replay.time.energy import Energy
from kernbench.replay.time.fetches import Fetches
from kernbench.replay.time.loads import Busiest, LinkLoad
from kernbench.replay.time.message_routes import MessageRoutes
from kernbench.replay.time.roofline import Bound, Roofline
from kernbench.replay.time.routes import Route
from kernbench.replay.time.stalls import Ledger, LineTimes
from kernbench.replay.time.tiles import Tiles, TileWindow
from kernbench.replay.time.timeline import Timeline
from kernbench.replay.whatif.answers import CausalProfile, Prediction
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace
from kernbench.trace.export.tables import table
from kernbench.visible import visible

__all__ = ["FOCUS_LEVELS", "ReplaySession"]


class _Closed:
    """In place of the index of a session that was closed: every use is an error."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise UsageError(f"{self._path} was closed; open it again")


class ReplaySession:
    """A trace, and where one stands in it; ``kernbench.open`` makes one.

    An op is named by its position in the op log, counted from 0 in the order in which
    ops started; ``len`` is how many there are. Times are in ns of simulated time.

    Moves return the position that they lead to; what has nowhere to go stays. Questions
    are answered at once, about the cursor's op or the one that is given as ``op``. An
    answer is frozen data that knows its own text, ``lines(width)``, and arrays in it
    are read-only. A wrong name, place or position is a UsageError that says which there
    are; a question that needs data or the end of the run is a KernbenchError where the
    trace does not hold them.

    ``with`` closes it in the end: the file is let go once no array of it is in use.
    """

    def __init__(self, trace: Trace) -> None:
        self.index = Index(trace)
        self.state = Session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Arrays that were handed out stay as they are."""
        if not isinstance(self.index, _Closed):
            self.index = cast(Index, _Closed(self.trace.path))

    def __len__(self) -> int:
        return len(self.index.ops)

    def __repr__(self) -> str:
        if isinstance(self.index, _Closed):
            return "<ReplaySession, closed>"
        facts = self.info()
        where = "before the first op" if self.cursor < 0 else f"at op {self.cursor:,}"
        return (
            f"<ReplaySession of {facts.bench}, {count_text(len(self), 'op')}, "
            f"{time_text(facts.end_ns)}, {self.trace.path}, {where}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: what the trace holds, as a table."""
        if isinstance(self.index, _Closed):
            return f"<p>{escape(repr(self))}</p>"
        rows = []
        for name, value in self.info().facts().items():
            cells = [f"<td>{escape(visible(text))}</td>" for text in (name, value)]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        return f"<table>{''.join(rows)}</table>"

    def table(self, name: str) -> dict[str, Array]:
        """All of a log, as a dict of equally long numpy arrays by column.

        ``name`` is one of "ops", "accesses", "hops", "waits", "commands", "launches",
        "texts", "tensors", "nodes", "edges" and "metadata"; UsageError lists them.
        ``pandas.DataFrame``, ``polars.DataFrame`` and ``pyarrow.table`` take it. Times
        are in ns (``t_start``, ``t_end``), sizes in bytes (``nbytes``); ops are named
        by their position. What there is not is masked. `kernbench doc tables` says what
        each column means.
        """
        return dict(table(self.trace, name))

    @property
    def trace(self) -> Trace:
        """The trace that it replays."""
        return self.index.trace

    @property
    def cursor(self) -> int:
        """The position of the op under the cursor, -1 before the first."""
        return self.state.cursor

    @property
    def op(self) -> OpRecord | None:
        """The record under the cursor; None before the first."""
        return self.trace.ops[self.cursor] if self.cursor >= 0 else None

    @property
    def time(self) -> float:
        """When the op under the cursor started, ns; 0 before the first."""
        return self.index.ops.time(self.cursor)

    @property
    def marks(self) -> dict[str, int]:
        """The ops that have names."""
        return dict(self.state.marks)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Where ``run`` halts."""
        return self.state.stops

    # -- commands -----------------------------------------------------------------

    def run_line(self, line: str, progress: Progress = no_progress) -> Any:
        """Run one command line; its answer. UsageError says what is wrong with the
        line.
        """
        return self.call(commands.parse(line), progress)

    def call(self, call: Call, progress: Progress = no_progress) -> Any:
        """Carry out a call; its answer, or what a move reports."""
        self.state, answer = commands.run(self.index, self.state, call, progress)
        return answer

    def _move(self, call: Call, progress: Progress = no_progress) -> int:
        self.state = commands.carried_out(self.index, self.state, call, progress)
        return self.state.cursor

    def _ask(
        self,
        command: Command,
        op: int | None = None,
        progress: Progress = no_progress,
        **values: Any,
    ) -> Any:
        """The answer of a question; about ``op``, if the question is about one."""
        query = command.query(self.state, command.args(**values))
        if op is not None and "op" in command.about:
            query = Query(query.command, query.args, At(op=op))
        return commands.answer(self.index, query, progress)

    # -- moves --------------------------------------------------------------------

    def goto(self, op: int) -> int:
        """Put the cursor on an op; UsageError if there is no such op."""
        self.state = moves.jump(self.index, self.state, op)
        return self.state.cursor

    def begin_at(self, op: int) -> int:
        """To an op as ``goto``, but not by a jump that ``back`` would undo."""
        self.goto(op)
        self.state = self.state._replace(left=())
        return self.cursor

    def goto_mark(self, name: str) -> int:
        """To ``start``, ``end`` or a mark; UsageError lists the marks."""
        return self._move(commands.GOTO(op=name))

    def goto_time(self, t: float) -> int:
        """To the last op that has started by ``t`` ns."""
        return self._move(commands.TIME(t=t))

    def to_start(self) -> int:
        """Before the first op."""
        return self.goto(-1)

    def to_end(self) -> int:
        """To the last op."""
        return self.goto(len(self) - 1)

    def mark(self, name: str) -> int:
        """Give the cursor's place a name."""
        return self._move(commands.MARK(name=name))

    def back(self, n: int = 1) -> int:
        """Undo ``n`` jumps; negative: do them again."""
        return self._move(commands.BACK(n=n))

    def step(self, n: int = 1) -> int:
        """By ``n`` ops, at most to the ends."""
        self.state = moves.stepped(self.index, self.state, n)
        return self.state.cursor

    def step_component(self, n: int = 1) -> int:
        """By ``n`` ops within the focus, at most to its ends."""
        return self._move(commands.NEXT(n=n))

    def step_lane(self, n: int = 1) -> int:
        """By ``n`` ops in the lane of this op's component."""
        return self._move(commands.LANE(n=n))

    def step_line(self, n: int = 1) -> int:
        """By ``n`` changes of the kernel line that this PE's ops are of."""
        return self._move(commands.LINE(n=n))

    def step_to_line(self, line: int) -> int:
        """To the next op of a line of this op's kernel on this PE, else to the
        first.
        """
        return self._move(commands.TO_LINE(n=line))

    def step_stage(self, n: int = 1) -> int:
        """By ``n`` stages of this op's tile."""
        return self._move(commands.STAGE(n=n))

    def step_tile(self, n: int = 1) -> int:
        """By ``n`` tiles of the composite here, to the first stage of one."""
        return self._move(commands.TILE(n=n))

    def to_first(self) -> int:
        """To the first stage of this op's tile."""
        return self._move(commands.FIRST())

    def to_last(self) -> int:
        """To the last stage of this tile; else to what its component started last by
        its end.
        """
        return self._move(commands.LAST())

    def to_cause(self) -> int:
        """To the op which this one waited for last, if only the stage before it."""
        return self._move(commands.CAUSE())

    def to_effect(self) -> int:
        """To the first op that waited for this one, or the next stage of its tile."""
        return self._move(commands.EFFECT())

    def widen(self, by: int = 1) -> str:
        """Widen (or with -1 narrow) the focus: component, pe, cube, sip, machine."""
        self._move(commands.WIDEN(n=by))
        return FOCUS_LEVELS[self.state.level]

    # -- search and stops ---------------------------------------------------------

    def matching(self, expr: str, progress: Progress = no_progress) -> Ints:
        """The ops that fit an expression, ascending; UsageError points at its
        column.
        """
        return self.index.fitting(expr, progress)

    def find(self, expr: str, back: bool = False) -> int:
        """To the next (or previous) op that fits; UsageError if there is none."""
        command = commands.FIND_BACK if back else commands.FIND
        return self._move(command(expr=expr))

    def break_on(self, expr: str) -> Stop:
        """Stop at ops that fit an expression."""
        return self._stop(commands.BREAK(expr=expr))

    def watch(self, space: str, addr: int, nbytes: int = 1, mode: str = "rw") -> Stop:
        """Stop at ops that read (r), write (w) or touch (rw) any of these bytes."""
        return self.watch_place(f"{space} {addr:#x}:{nbytes}", mode)

    def watch_place(self, place: str, mode: str = "rw") -> Stop:
        """``watch`` of c[3,17], or of any other place that a user can name."""
        if mode not in ("r", "w", "rw"):
            raise UsageError(f"watch mode {mode!r}: must be r, w or rw")
        return self._stop(commands.WATCH(place=place, mode=mode))

    def catch(self, what: str, progress: Progress = no_progress) -> Stop:
        """Stop at ``hazards``, or at ``checks`` that fail; executes everything."""
        return self._stop(commands.CATCH(what=what), progress)

    def _stop(self, call: Call, progress: Progress = no_progress) -> Stop:
        self.call(call, progress)
        return self.stops[-1]

    def delete_stop(self, number: int) -> None:
        """Forget a stop; UsageError lists those there are."""
        self._move(commands.DELETE(number=number))

    def run(self, forward: bool = True) -> Stopped:
        """To the next stop, or back to the previous; if there is none, to that end."""
        stopped = self.call(commands.CONTINUE(back="" if forward else "back"))
        assert isinstance(stopped, Stopped)
        return stopped

    # -- what happened ------------------------------------------------------------

    def info(self) -> Info:
        """What the trace holds."""
        return self.index.ops.info()

    def at(self, op: int | None = None) -> int:
        """``op``, or the cursor's; UsageError if that is before the first."""
        return self.index.ops.checked(self.cursor if op is None else op)

    def row(self, op: int) -> OpRow:
        """One line of the op log."""
        return self.index.ops.row(op)

    def rows(self, first: int, count: int) -> list[OpRow]:
        """Lines ``first`` to ``first + count`` of the op log, as far as there
        are any.
        """
        return self.index.ops.rows(first, count)

    def in_flight(self) -> list[int]:
        """Ops in service at the time cursor, in canonical order."""
        return list(self.index.ops.in_flight(self.cursor))

    def details(self, op: int | None = None) -> OpDetails:
        """Everything recorded about an op: params, waits in ns, what it depended on."""
        found = self._ask(commands.OP, op)
        assert isinstance(found, OpDetails)
        return found

    def source(self, op: int | None = None) -> Source:
        """The kernel line that issued an op."""
        found = self._ask(commands.SOURCE, op)
        assert isinstance(found, Source)
        return found

    def route(self, op: int | None = None) -> Route:
        """The hops of an op's transactions."""
        found = self._ask(commands.ROUTE, op)
        assert isinstance(found, Route)
        return found

    def launch_route(self, launch: int | None = None) -> MessageRoutes:
        """The way of a launch to its PEs; None: of the one that the op is of."""
        found = self._ask(commands.ROUTE, what="launch", number=launch)
        assert isinstance(found, MessageRoutes)
        return found

    def credit_route(self, credit: int | None = None) -> MessageRoutes:
        """The way of a credit, counted by their sending; None: those of the op."""
        found = self._ask(commands.ROUTE, what="credit", number=credit)
        assert isinstance(found, MessageRoutes)
        return found

    def tiles(self, op: int | None = None) -> Tiles:
        """The tiles of the composite that an op belongs to."""
        return self.index.tiles.tiles_of(self.cursor if op is None else op)

    def tiles_between(
        self, t0: float, t1: float, progress: Progress = no_progress
    ) -> TileWindow:
        """The tiles that were in some stage in [t0, t1) ns, by composite."""
        return self.index.tiles.between(t0, t1, progress=progress)

    def texts(self, pe: str | None = None, limit: int | None = None) -> TextList:
        """What kernels printed and asserted, and warnings, by time; of a PE, cube or
        SIP, and the first ``limit`` of it. UsageError for a PE that there is not.
        """
        found = self._ask(commands.TEXTS, pe=pe, limit=limit)
        assert isinstance(found, TextList)
        return found

    # -- data ---------------------------------------------------------------------

    def memory(self, op: int | None = None, limit: int = ENTRIES) -> Memory:
        """The allocations that hold something once an op has run, at most ``limit`` of
        them; sizes in bytes.
        """
        return self.index.memory.at(self.cursor if op is None else op, limit)

    def tensor(
        self, name: str, op: int | None = None, progress: Progress = no_progress
    ) -> TensorView:
        """The numbers of a tensor as an op leaves it: ``values`` has the tensor's shape
        and dtype, ``written`` the same shape and is false where nothing was written.

        UsageError lists the names; KernbenchError if the trace holds no data.
        """
        at = self.cursor if op is None else op
        return self.index.memory.tensor(at, name, progress)

    def history(
        self,
        space: str,
        addr: int,
        nbytes: int = 1,
        progress: Progress = no_progress,
    ) -> Touches:
        """Every read and write of ``nbytes`` from ``addr`` on in a space (hbm, tcm or
        sram), from the first op to the last.
        """
        return self.history_of(f"{space} {addr:#x}:{nbytes}", progress)

    def history_of(self, place: str, progress: Progress = no_progress) -> Touches:
        """Every read and write of a place, from the first op to the last."""
        return self._touches(commands.HISTORY, place, progress)

    def who_wrote(self, place: str, progress: Progress = no_progress) -> Touches:
        """The writers of what a place holds at the cursor, or at the end before the
        first op.
        """
        return self._touches(commands.WHO_WROTE, place, progress)

    def who_reads(self, place: str, progress: Progress = no_progress) -> Touches:
        """The reads after the cursor of what a place holds there, until overwritten."""
        return self._touches(commands.WHO_READS, place, progress)

    def _touches(self, command: Command, place: str, progress: Progress) -> Touches:
        found = self._ask(command, None, progress, place=place)
        assert isinstance(found, Touches)
        return found

    def blame(
        self, place: str, depth: int = 32, progress: Progress = no_progress
    ) -> Blame:
        """The ops behind a place, as ``c[3,17]``, as it is at the cursor, or at the end
        before the first; at most ``depth`` ops deep. UsageError for no such place.
        """
        found = self._ask(commands.BLAME, None, progress, place=place, depth=depth)
        assert isinstance(found, Blame)
        return found

    # -- verification -------------------------------------------------------------

    def diff(self, op: int | None = None, progress: Progress = no_progress) -> OpDiff:
        """What an op wrote, beside its float64 oracle."""
        return self.index.diffs.of(self.at(op), progress)

    def check(self, op: int | None = None, progress: Progress = no_progress) -> OpDiff:
        """``diff`` with the errors of the op, the accumulated one too where quick."""
        return self.index.diffs.checked(self.at(op), progress=progress)

    def first_divergence(self, progress: Progress = no_progress) -> OpDiff:
        """The first op that rounding does not explain, three-way."""
        found = self._ask(commands.DIVERGENCE, None, progress)
        assert isinstance(found, OpDiff)
        return found

    def outputs(
        self, op: int | None = None, progress: Progress = no_progress
    ) -> Outputs:
        """The expected tensors, against memory at an op."""
        at = self.cursor if op is None else op
        return self.index.outputs.at(at, progress)

    def output(
        self, tensor: str, op: int | None = None, progress: Progress = no_progress
    ) -> OpDiff:
        """One expected tensor beside memory at an op."""
        view = self.tensor(tensor, op, stage(progress, 0.0, 0.5))
        return self.index.outputs.beside(view, stage(progress, 0.5, 1.0))

    def verify(self, progress: Progress = no_progress) -> Outputs:
        """The expected tensors, each when it was due, by executing the whole trace.

        ``ok`` is the verdict. KernbenchError if the trace holds no data.
        """
        return self.index.outputs.verify(progress)

    def hazards(self, progress: Progress = no_progress) -> Hazards:
        """What any op does to bytes that it should not; executes everything."""
        return questions.hazards(self.index, At(), questions.RacesToProve(), progress)

    # -- time ---------------------------------------------------------------------

    def timeline(
        self,
        components: list[int],
        t0: float,
        t1: float,
        columns: int,
        lanes: bool = False,
    ) -> Timeline:
        """Busy cells of ``components`` (node indices), or of each lane of them, over
        [t0, t1) ns.
        """
        return questions.timeline_of(
            self.index, self.cursor, components, t0, t1, columns, lanes
        )

    def launch_window(self) -> tuple[float, float]:
        """From the first launch's start to the last one's end, ns; else the
        whole run.
        """
        return self.index.launch_window

    def stalls(
        self,
        pe: str | None = None,
        t0: float | None = None,
        t1: float | None = None,
        progress: Progress = no_progress,
    ) -> Ledger:
        """Where the time of a PE, or of all within a cube or SIP, went; None: all.

        ``total`` is in ns by kind, ``time`` the same as an array of PEs x kinds. From
        ``t0`` to ``t1``, ns; None: while launches ran. UsageError for no such PE.
        """
        return self.index.stalls.ledger(pe, t0, t1, progress)

    def lines(
        self, pe: str | None = None, progress: Progress = no_progress
    ) -> LineTimes:
        """Time and stalls by kernel line, ns of PEs' time, the most first."""
        return self.index.stalls.lines(pe, progress)

    def pes(
        self, cmd: int | None = None, progress: Progress = no_progress
    ) -> CallTimes:
        """One tl call (None: the cursor's) on all of its PEs."""
        found = self._ask(commands.PES, None, progress, cmd=cmd)
        assert isinstance(found, CallTimes)
        return found

    def critical_path(
        self, count: int = 20, progress: Progress = no_progress
    ) -> CriticalPath:
        """The chain that sets the end of the launches, with its ``count`` longest
        steps.
        """
        return self.index.critical.path(count, progress)

    def slack(self, op: int | None = None, progress: Progress = no_progress) -> float:
        """How much later an op could end without moving the end of the launches, ns."""
        return self.index.critical.slack(self.at(op), progress)

    def link_load(
        self,
        t0: float | None = None,
        t1: float | None = None,
        progress: Progress = no_progress,
    ) -> LinkLoad:
        """Bytes, busy share and queue of every link from t0 to t1 ns."""
        args = questions.LoadWindow(t0, t1)
        return questions.links(self.index, At(), args, progress)

    def busiest(self, count: int = 10, progress: Progress = no_progress) -> Busiest:
        """The components and links that are busy for most of the launches' time."""
        args = questions.BusiestCount(count)
        return questions.busiest(self.index, At(), args, progress)

    def activity(
        self,
        t0: float | None = None,
        t1: float | None = None,
        components: str = "",
        progress: Progress = no_progress,
    ) -> Activity:
        """What the nodes that a pattern fits did from t0 to t1 ns; the links, if it has
        a "->"; without a pattern all.
        """
        args = questions.ActivityWindow(t0, t1, components)
        return questions.activity(self.index, At(), args, progress)

    def activity_cells(
        self,
        components: Sequence[int],
        t0: float,
        t1: float,
        columns: int,
        progress: Progress = no_progress,
    ) -> ActivityCells:
        """Busy shares of some components, by the numbers that ``activity`` gives them,
        in equal cells of [t0, t1) ns.
        """
        found = self._ask(
            ACTIVITY_CELLS,
            None,
            progress,
            components=tuple(components),
            t0=t0,
            t1=t1,
            columns=columns,
        )
        assert isinstance(found, ActivityCells)
        return found

    def roofline(self, progress: Progress = no_progress) -> Roofline:
        """FLOPs and HBM bytes of the launches' time against the machine's peaks."""
        return questions.roofline(self.index, At(), NoArguments(), progress)

    def energy(self, progress: Progress = no_progress) -> Energy:
        """The energy of the run by component class, kernel line and tensor."""
        return questions.energy(self.index, At(), NoArguments(), progress)

    def fetches(self, progress: Progress = no_progress) -> Fetches:
        """How often each operand was fetched."""
        return questions.fetches(self.index, At(), NoArguments(), progress)

    def bound(self, op: int | None = None, progress: Progress = no_progress) -> Bound:
        """The ideal time of an op beside its real one, and its slack."""
        found = self._ask(commands.BOUND, op, progress)
        assert isinstance(found, Bound)
        return found

    def whatif(
        self, *changes: str, progress: Progress = no_progress
    ) -> Prediction | CausalProfile:
        """The end, ns, with FIELD=VALUE of its machine changed; of none what to speed
        up. UsageError for a field that there is not; KernbenchError if the trace does
        not hold all of a run.
        """
        return questions.whatif(self.index, At(), questions.WhatIf(changes), progress)

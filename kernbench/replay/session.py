"""``ReplaySession``: one cursor over the op log in canonical order, and every question about that
place.

"At op i" means that ops 0..i have run; -1 is before the first. Everything is a function of (trace,
cursor, focus).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.diff import Diffs, OpDiff, Outputs
from kernbench.replay.hazards import find_hazards, snapshot_hazards
from kernbench.replay.history import History
from kernbench.replay.memory import Memories, Memory, TensorView
from kernbench.replay.routes import Route, Routes
from kernbench.replay.tiles import Tiles, tiles_of
from kernbench.replay.timeline import Timeline, Timelines
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace

FOCUS_LEVELS = ("component", "pe", "cube", "sip", "machine")


@dataclass(frozen=True, slots=True)
class OpRow:
    """One line of the op log; ``site`` is the kernel line, ``letter`` the class, times in ns."""

    op: int
    t_issue: float
    t_start: float
    t_end: float
    component: str
    name: str
    kind: str
    letter: str
    nbytes: int
    site: str


@dataclass(frozen=True, slots=True)
class OpDetails:
    """Everything recorded about one op; ``waits`` are (node, reason, t0, t1, op that ended it or
    -1).
    """

    row: OpRow
    cmd: int
    call: str
    launch: int
    slot: int
    params: dict[str, Any]
    dependencies: tuple[int, ...]
    waits: tuple[tuple[str, str, float, float, int], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The kernel line that caused an op, and the file around it; ``line`` counts from 1, 0 if
    unknown.
    """

    op: int
    file: str
    line: int
    function: str
    text: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Touch:
    """``op`` reads or writes bytes; of a hazard ``kind`` says what is wrong with that, and
    ``other`` is the op in flight since before that uses them too, if there is one.
    """

    kind: str
    space: str
    addr: int
    nbytes: int
    op: OpRow
    other: OpRow | None = None


@dataclass(frozen=True, slots=True)
class Touches:
    """In canonical order; ``note`` says what could not be looked at."""

    rows: tuple[Touch, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Info:
    """What a trace holds."""

    bench: str
    arguments: dict[str, Any]
    ops: int
    by_name: dict[str, int]
    end_ns: float
    complete: bool
    damaged: int
    error: str
    nodes: int
    launches: int
    tensors: tuple[str, ...]
    verified: bool | None


class ReplaySession:
    """The debugger without a screen."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.cursor = -1
        self.level = 0
        self.versions = History(trace)
        self.timelines = Timelines(trace)
        self.memories = Memories(trace, self.versions)
        self._diffs = Diffs(trace, self.versions)
        self._routes = Routes(trace)
        self._tiles: tuple[int, Tiles] | None = None

    def __len__(self) -> int:
        return len(self.trace.ops)

    # -- where we are --

    @cached_property
    def starts(self) -> npt.NDArray[np.float64]:
        """``t_start`` of every op in canonical order, ns."""
        starts: npt.NDArray[np.float64] = self.trace.op_columns.t_start[self.trace.order]
        return starts

    @cached_property
    def components(self) -> npt.NDArray[np.integer[Any]]:
        """The node index of every op in canonical order."""
        found: npt.NDArray[np.integer[Any]] = self.trace.op_columns.component[self.trace.order]
        return found

    @property
    def op(self) -> OpRecord | None:
        """The record under the cursor; None before the first."""
        return self.trace.ops[self.cursor] if self.cursor >= 0 else None

    @property
    def time(self) -> float:
        """The time cursor: when the op under the cursor started, ns; 0 before the first."""
        return float(self.starts[self.cursor]) if self.cursor >= 0 else 0.0

    @property
    def component(self) -> int | None:
        """The node index of the op under the cursor."""
        return int(self.components[self.cursor]) if self.cursor >= 0 else None

    def in_flight(self) -> list[int]:
        """Ops in service at the time cursor, in canonical order."""
        if self.cursor < 0:
            return []
        started = self.trace.order[: np.searchsorted(self.starts, self.time, side="right")]
        return np.flatnonzero(self.trace.op_columns.t_end[started] > self.time).tolist()

    # -- moving --

    def goto(self, op: int) -> int:
        """Put the cursor on an op; UsageError if there is no such op."""
        if not -1 <= op < len(self):
            raise UsageError(
                f"no op {op}; this trace has ops 0 to {len(self) - 1}, -1 is before the first"
            )
        self.cursor = op
        return op

    def goto_time(self, t: float) -> int:
        """To the last op that has started by ``t`` ns."""
        return self.goto(int(np.searchsorted(self.starts, t, side="right")) - 1)

    def step(self, n: int = 1) -> int:
        """Move by ``n`` ops, at most to the ends."""
        return self.goto(min(max(self.cursor + n, -1), len(self) - 1))

    def to_start(self) -> int:
        """Before the first op."""
        return self.goto(-1)

    def to_end(self) -> int:
        """To the last op."""
        return self.goto(len(self) - 1)

    def step_component(self, n: int = 1) -> int:
        """Move by ``n`` ops within the focus; stays where there is no further one."""
        if self.cursor < 0:
            return self.step(1) if n > 0 and len(self) else self.cursor
        here, nodes = self.components[self.cursor], self.trace.nodes
        columns = (np.arange(len(nodes.pe)), nodes.pe, nodes.cube, nodes.sip)[self.level :]
        near = np.all([column == column[here] for column in columns], axis=0)
        mine = np.flatnonzero(near[self.components]) if columns else np.arange(len(self))
        at = int(np.searchsorted(mine, self.cursor)) + n
        return self.goto(int(mine[min(max(at, 0), len(mine) - 1)]))

    def widen(self, by: int = 1) -> str:
        """Widen (or with -1 narrow) the focus: component, pe, cube, sip, machine."""
        self.level = min(max(self.level + by, 0), len(FOCUS_LEVELS) - 1)
        return FOCUS_LEVELS[self.level]

    def _at(self, op: int | None = None) -> int:
        """``op``, or the cursor's; UsageError if that is before the first."""
        op = self.cursor if op is None else op
        if op < 0:
            raise UsageError("the cursor is before the first op; step forward or goto an op first")
        return op

    # -- questions; where no op is given, about the cursor's --

    def row(self, op: int) -> OpRow:
        """One line of the op log."""
        r, row = self.trace.ops[op], int(self.trace.order[op])
        command = self.trace.command(int(self.trace.op_columns.cmd[row]))
        site, t_issue = "?", r.t_start
        if command is not None:
            site, t_issue = f"{command.site.file}:{command.site.line}", command.t_issue
        named = r.component_id, r.op_name, r.op_kind, self.timelines.letter(row)
        nbytes = int(self.trace.op_columns.nbytes[row])
        return OpRow(op, t_issue, r.t_start, r.t_end, *named, nbytes, site)

    def rows(self, first: int, count: int) -> list[OpRow]:
        """Lines ``first`` to ``first + count`` of the op log, as far as there are any."""
        return [self.row(i) for i in range(max(first, 0), min(first + count, len(self)))]

    def details(self, op: int | None = None) -> OpDetails:
        """Everything recorded about an op."""
        op = self._at(op)
        row, record = int(self.trace.order[op]), self.trace.ops[op]
        cmd, slot = int(self.trace.op_columns.cmd[row]), int(self.trace.op_columns.slot[row])
        command, position = self.trace.command(cmd), self.trace.position
        waits = tuple(
            (*wait[:4], int(position[wait[4]]) if wait[4] >= 0 else -1)
            for wait in self.trace.waits_of(row)
        )
        call = ("?", -1) if command is None else (command.call, command.launch)
        after = tuple(record.dependency_ids)
        return OpDetails(self.row(op), cmd, *call, slot, record.params, after, waits)

    def source(self, op: int | None = None) -> Source:
        """The kernel line that issued an op."""
        op = self._at(op)
        command = self.trace.command(int(self.trace.op_columns.cmd[self.trace.order[op]]))
        if command is None:
            return Source(op, "?", 0, "?", ())
        text = self.trace.sources.get(command.site.file)
        return Source(op, *command.site, tuple(text.text.splitlines()) if text is not None else ())

    def memory(self, op: int | None = None) -> Memory:
        """The allocations that hold something."""
        return self.memories.at(self.cursor if op is None else op)

    def tensor(self, name: str, op: int | None = None) -> TensorView:
        """The numbers of a tensor."""
        return self.memories.tensor(self.cursor if op is None else op, name)

    def history(self, space: str, addr: int, nbytes: int = 1) -> Touches:
        """Every read and write of a range, from the first op to the last."""
        touched = self.versions.touched.take(self.versions.accesses.at(space, addr, nbytes))
        rows = zip(*(column.tolist() for column in touched[:5]), strict=True)
        return Touches(
            tuple(
                Touch(("read", "write")[mode], space, start, size, self.row(op))
                for op, mode, _, start, size in rows
            )
        )

    def route(self, op: int | None = None) -> Route:
        """The hops of an op's transactions; where it has none, of the nearest stage of its tile."""
        at = self._at(op)
        route = self._routes.of(at)
        rows = [] if route.legs else self.tiles(at).rows
        mine = [r for r in rows if any(s.op == at for s in r.spans)]
        if not mine and route.name.startswith("composite_"):
            mine = list(rows[:1])
        moving = [s.op for r in mine for s in r.spans if s.stage.startswith("DMA")]
        if not moving:
            return route
        near = max((m for m in moving if m < at), default=moving[0])
        other = self._routes.of(near)
        note = f"{route.note}; shown is {other.name} #{near:,} of the tile"
        return replace(route, legs=other.legs, note=note)

    def tiles(self, op: int | None = None) -> Tiles:
        """The tiles of the composite that an op belongs to."""
        at = self.cursor if op is None else op
        if self._tiles is None or self._tiles[0] != at:
            self._tiles = (at, tiles_of(self.trace, at))
        return self._tiles[1]

    def diff(self, op: int | None = None) -> OpDiff:
        """What an op wrote, beside its float64 oracle."""
        return self._diffs.of(self._at(op))

    def check(self, op: int | None = None) -> OpDiff:
        """``diff`` with the accumulated error; executes everything up to there."""
        return replace(self.diff(op), check=self._diffs.check(self._at(op)))

    def first_divergence(self) -> OpDiff:
        """``check`` of the first op that rounding does not explain, by executing everything."""
        first = self._diffs.first_divergence()
        if first is None:
            return OpDiff(-1, "divergence", note="rounding explains every op")
        return self.check(first.position)

    def outputs(self, op: int | None = None) -> Outputs:
        """The expected tensors, against memory at an op."""
        return self._diffs.outputs(self.cursor if op is None else op)

    def verify(self) -> Outputs:
        """The expected tensors, each when it was due, by executing the whole trace."""
        return self._diffs.verify()

    def hazards(self) -> Touches:
        """What any op does to bytes that it should not; the whole log is looked at and executed.

        Some 10,000 of a kind are told at most.
        """
        versions, note = self.versions, ""
        found = find_hazards(self.trace, versions.touched, versions.allocs)
        try:
            found += snapshot_hazards(self.trace, self._diffs.executed[0].findings)
        except KernbenchError as why:
            note = f"Phase 1 was not compared with Phase 2: {why}"
        rows = []
        for kind, op, other, space, addr, end in sorted(set(found), key=lambda f: f[1:]):
            with_whom = self.row(other) if other >= 0 else None
            rows.append(Touch(kind, space, addr, end - addr, self.row(op), with_whom))
        return Touches(tuple(rows), note)

    def timeline(self, components: list[int], t0: float, t1: float, columns: int) -> Timeline:
        """Busy cells of ``components`` (node indices) over [t0, t1) ns."""
        cursor = self.time if self.cursor >= 0 else None
        return self.timelines.draw(components, t0, t1, columns, cursor)

    def launch_window(self) -> tuple[float, float]:
        """From the first launch's start to the last one's end, ns; the whole run if nothing was
        launched.
        """
        launches = self.trace.launches
        if not launches:
            return 0.0, max(self.trace.end_ns, 1.0)
        return min(x.t_start for x in launches), max(x.t_end for x in launches)

    def info(self) -> Info:
        """What the trace holds."""
        trace = self.trace
        names, counts = np.unique(trace.op_columns.name, return_counts=True)
        by_name = {trace.strings[n]: int(c) for n, c in zip(names.tolist(), counts, strict=True)}
        report = trace.verify_report
        return Info(
            bench=str(trace.header.get("bench", "?")),
            arguments=dict(trace.header.get("arguments", {})),
            ops=len(self),
            by_name=by_name,
            end_ns=trace.end_ns,
            complete=trace.complete,
            damaged=len(trace.damaged),
            error=str((trace.end or {}).get("error") or ""),
            nodes=len(trace.node_ids),
            launches=len(trace.launches),
            tensors=tuple(dict.fromkeys(s.tensor for s in trace.allocs if s.va)),
            verified=None if report is None else bool(report.get("ok")),
        )

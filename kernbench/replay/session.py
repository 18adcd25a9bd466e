"""``ReplaySession``: one cursor over the op log in canonical order, and every question about it.

"At op i" means that ops 0..i have run; -1 is before the first. Everything is a function of (trace,
cursor, focus).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.diff import Diffs, OpDiff, Outputs
from kernbench.replay.hazards import find_hazards, snapshot_hazards
from kernbench.replay.history import History
from kernbench.replay.memory import Memories, Memory, TensorView
from kernbench.replay.routes import Route, Routes
from kernbench.replay.text import cell_text, field_values, param_text, time_text
from kernbench.replay.tiles import Tiles, tiles_of
from kernbench.replay.timeline import Timeline, Timelines
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace
from kernbench.trace.reader import Command

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
    """All that was recorded of an op; ``waits``: (node, reason, t0, t1, op that ended it or -1)."""

    row: OpRow
    cmd: int
    call: str
    launch: int
    slot: int
    params: dict[str, Any]
    dependencies: tuple[int, ...]
    waits: tuple[tuple[str, str, float, float, int], ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        r = self.row
        lines = [
            f"op {r.op:,}  {r.name} ({r.kind}) on {r.component}, lane {self.slot}",
            f"time    {r.t_start:.3f} to {r.t_end:.3f} ns = {r.t_end - r.t_start:.3f} ns",
            f"call    #{self.cmd} {'tl.' * (self.launch >= 0)}{self.call} at {r.site}",
            *(f"  {key:<20} {param_text(value)}" for key, value in self.params.items()),
        ]
        if self.dependencies:
            lines.append(f"after   op {', '.join(f'{d:,}' for d in self.dependencies)}")
        for node, reason, t0, t1, holder in self.waits:
            by = f", until op {holder:,} ended" if holder >= 0 else ""
            lines.append(f"waited  {t1 - t0:.3f} ns for {reason} at {node}{by}")
        return lines


@dataclass(frozen=True, slots=True)
class Source:
    """The kernel line that caused an op, counted from 1 (0: unknown), and its whole file."""

    op: int
    file: str
    line: int
    function: str
    text: tuple[str, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines, first = [f"{self.file}:{self.line} in {self.function}"], max(self.line - 5, 1)
        for n, text in enumerate(self.text[first - 1 : max(self.line + 5, 0)], first):
            lines.append(f"{'>' if n == self.line else ' '}{n:>5}  {text}")
        return lines


@dataclass(frozen=True, slots=True)
class Touch:
    """``op`` reads or writes bytes, or what is wrong with that; ``other`` is then in their way."""

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

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [self.note] if self.note else []
        for t in self.rows:
            lines.append(f"{t.kind}: {t.nbytes:,} bytes of {t.space} at {t.addr:#x}")
            for r in (t.op, t.other) if t.other is not None else (t.op,):
                issued = f", issued {r.t_issue:.2f}" if r.t_issue < r.t_start else ""
                lines.append(f"  op {r.op:,} {r.name} on {r.component}")
                lines.append(f"    {r.site}, {r.t_start:.2f} to {r.t_end:.2f} ns{issued}")
        return lines or ["none found"]


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

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        facts = field_values(self) | {"end_ns": time_text(self.end_ns)}
        by_name = sorted(facts.pop("by_name").items())
        lines = [f"{name:<10} {cell_text(value)}" for name, value in facts.items()]
        return lines + [f"  {count:>9,}  {name}" for name, count in by_name]


class ReplaySession:
    """The debugger without a screen; of every op ``starts`` (ns) and ``components`` (nodes)."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.cursor, self.level = trace, -1, 0
        self.starts: npt.NDArray[np.float64] = trace.op_columns.t_start[trace.order]
        self.components: npt.NDArray[np.integer[Any]] = trace.op_columns.component[trace.order]
        self.versions, self.timelines = History(trace), Timelines(trace)
        self.memories = Memories(trace, self.versions)
        self._diffs, self._routes = Diffs(trace, self.versions), Routes(trace)
        self._tiles: tuple[int, Tiles] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    # -- where we are --

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
            known = f"this trace has ops 0 to {len(self) - 1}, -1 is before the first"
            raise UsageError(f"no op {op}; {known}")
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

    def _command(self, op: int) -> Command:
        """The call that issued an op; one of no line if it was not recorded."""
        cmd, start = int(self.trace.op_columns.cmd[self.trace.order[op]]), float(self.starts[op])
        none = Command(cmd, "?", -1, "?", Site("?", 0, "?"), cmd, start, start)
        return self.trace.command(cmd) or none

    def row(self, op: int) -> OpRow:
        """One line of the op log."""
        r, row, command = self.trace.ops[op], int(self.trace.order[op]), self._command(op)
        named = r.component_id, r.op_name, r.op_kind, str(self.timelines.letters[row])
        site = command.site.file + f":{command.site.line}" * (command.site.line > 0)
        nbytes = int(self.trace.op_columns.nbytes[row])
        return OpRow(op, command.t_issue, r.t_start, r.t_end, *named, nbytes, site)

    def rows(self, first: int, count: int) -> list[OpRow]:
        """Lines ``first`` to ``first + count`` of the op log, as far as there are any."""
        return [self.row(i) for i in range(max(first, 0), min(first + count, len(self)))]

    def details(self, op: int | None = None) -> OpDetails:
        """Everything recorded about an op."""
        op = self._at(op)
        row, record, command = int(self.trace.order[op]), self.trace.ops[op], self._command(op)
        waits = tuple(
            (*wait[:4], int(self.trace.position[wait[4]]) if wait[4] >= 0 else -1)
            for wait in self.trace.waits_of(row)
        )
        call = command.cmd, command.call, command.launch, int(self.trace.op_columns.slot[row])
        return OpDetails(self.row(op), *call, record.params, tuple(record.dependency_ids), waits)

    def source(self, op: int | None = None) -> Source:
        """The kernel line that issued an op."""
        op = self._at(op)
        site = self._command(op).site
        file = self.trace.sources.get(site.file)
        return Source(op, *site, tuple(file.text.splitlines()) if file is not None else ())

    def memory(self, op: int | None = None) -> Memory:
        """The allocations that hold something."""
        return self.memories.at(self.cursor if op is None else op)

    def tensor(self, name: str, op: int | None = None) -> TensorView:
        """The numbers of a tensor."""
        return self.memories.tensor(self.cursor if op is None else op, name)

    def history(self, space: str, addr: int, nbytes: int = 1) -> Touches:
        """Every read and write of a range, from the first op to the last."""
        touched = self.versions.touched.take(self.versions.accesses.at(space, addr, nbytes))
        rows = [
            Touch(("read", "write")[mode], space, start, size, self.row(op))
            for op, mode, _, start, size in np.stack(touched[:5], 1).tolist()
        ]
        return Touches(tuple(rows))

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
        """What any op does to bytes that it should not, some 10,000 of a kind; executes them."""
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
        """From the first launch's start to the last one's end, ns; of no launch the whole run."""
        if not (launches := self.trace.launches):
            return 0.0, max(self.trace.end_ns, 1.0)
        return min(x.t_start for x in launches), max(x.t_end for x in launches)

    def info(self) -> Info:
        """What the trace holds."""
        trace, head, report = self.trace, self.trace.header, self.trace.verify_report
        names, counts = np.unique(trace.op_columns.name, return_counts=True)
        by_name = {trace.strings[n]: int(c) for n, c in zip(names.tolist(), counts, strict=True)}
        run = str(head.get("bench", "?")), dict(head.get("arguments", {})), len(self), by_name
        error = str((trace.end or {}).get("error") or "")
        state = trace.end_ns, trace.complete, len(trace.damaged), error
        tensors = tuple(dict.fromkeys(s.tensor for s in trace.allocs if s.va))
        verified = None if report is None else bool(report.get("ok"))
        return Info(*run, *state, len(trace.node_ids), len(trace.launches), tensors, verified)

"""``ReplaySession``: one cursor over the op log in canonical order, and every question about it.

"At op i" means that ops 0..i have run; -1 is before the first. Everything is a function of (trace,
cursor, focus).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.answers import Info, OpDetails, OpRow, Source, Touch, Touches
from kernbench.replay.diff import Diffs, OpDiff, Outputs
from kernbench.replay.hazards import find_hazards, snapshot_hazards
from kernbench.replay.history import History
from kernbench.replay.memory import Memories, Memory, TensorView
from kernbench.replay.routes import Route, Routes
from kernbench.replay.tiles import Tiles, tiles_of
from kernbench.replay.timeline import Timeline, Timelines
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace
from kernbench.trace.reader import Command

FOCUS_LEVELS = ("component", "pe", "cube", "sip", "machine")


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

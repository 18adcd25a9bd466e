"""``ReplaySession``: every question about a trace and its cursor, answered as frozen data.

Everything is a function of (trace, cursor, focus).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.messages import NO_CMD
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.answers import (
    Info,
    OpDetails,
    OpRow,
    Source,
    Stopped,
    Touch,
    Touches,
)
from kernbench.replay.blame import Blame, Blames
from kernbench.replay.cursor import FOCUS_LEVELS, Cursor
from kernbench.replay.diff import Diffs, OpDiff, Outputs
from kernbench.replay.expr import compile
from kernbench.replay.hazards import find_hazards, snapshot_hazards
from kernbench.replay.history import History
from kernbench.replay.memory import Memories, Memory, TensorView
from kernbench.replay.stops import Stop, Stops
from kernbench.replay.time.call_times import CallTimes, call_times
from kernbench.replay.time.critical import CriticalIndex, CriticalPath
from kernbench.replay.time.loads import Busiest, LinkLoad, LoadIndex
from kernbench.replay.time.op_classes import CLASS_LETTERS
from kernbench.replay.time.roofline import Bound, Roofline, RooflineIndex
from kernbench.replay.time.routes import Route, prepare_routes, route_of
from kernbench.replay.time.spans import window
from kernbench.replay.time.stalls import Ledger, LineTimes, StallIndex
from kernbench.replay.time.steps import stage
from kernbench.replay.time.tiles import Tiles, TileWindow
from kernbench.replay.time.timeline import RowKey, Timeline
from kernbench.sim_engine.accesses import AccessColumns
from kernbench.sim_engine.event_log import Site
from kernbench.trace import Trace
from kernbench.trace.rows import Command

__all__ = ["FOCUS_LEVELS", "ReplaySession"]


class ReplaySession(Cursor):
    """The debugger without a screen: its cursor, its stops, and every question about the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.versions = History(trace)
        self.memories, self.stops = Memories(trace, self.versions), Stops(self.versions)
        self.diffs = Diffs(trace, self.versions)
        self._stalls = StallIndex(trace, self.op_index)
        self._blames = Blames(trace, self.versions, self.memories, self.row)
        self._matched: tuple[str, Ints] | None = None
        self._loads = LoadIndex(trace, self.op_index)
        self._critical = CriticalIndex(trace, self.op_index)
        self._roofline = RooflineIndex(trace, self.op_index, self._touched)

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make what a screen asks for at once; a loader calls it before it shows any."""
        self.op_index.prepare(stage(progress, 0.0, 0.6))
        self.composites.prepare(stage(progress, 0.6, 0.8))
        prepare_routes(self.trace, stage(progress, 0.8, 0.9))
        # What moves of the cursor and rows of the op log need.
        computed_beside(lambda: self.starts, progress, 0.9)
        computed_beside(lambda: self.components, progress, 0.9)
        computed_beside(lambda: self._by_cmd, progress, 0.9)

    # -- stops and search --

    def matching(self, expr: str) -> Ints:
        """The ops that fit an expression, ascending; UsageError points at its column."""
        if self._matched is None or self._matched[0] != expr:
            found = np.flatnonzero(compile(expr).mask(self.trace, self.versions))
            self._matched = expr, found
        return self._matched[1]

    def find(self, expr: str, back: bool = False) -> int:
        """To the next (or previous) op that fits; UsageError if there is none."""
        found = self.matching(expr)
        side = np.searchsorted(found, self.cursor, "left" if back else "right") - back
        if not 0 <= side < len(found):
            way = "before" if back else "after"
            raise UsageError(
                f"no op {way} op {self.cursor} fits {expr!r}; {len(found):,} do"
            )
        return self.goto(int(found[side]))

    def rfind(self, expr: str) -> int:
        """``find`` backwards."""
        return self.find(expr, back=True)

    def break_on(self, expr: str) -> Stop:
        """Stop at ops that fit an expression."""
        return self.stops.add("break", expr, self.matching(expr))

    def watch(self, space: str, addr: int, nbytes: int = 1, mode: str = "rw") -> Stop:
        """Stop at ops that read (r), write (w) or touch (rw) any of these bytes."""
        return self.stops.watch(
            f"{space} {addr:#x}:{nbytes}", [(space, addr, nbytes)], mode
        )

    def watch_place(self, place: str, mode: str = "rw") -> Stop:
        """``watch`` of c[3,17], or of any other place that ``Memories.place`` knows."""
        return self.stops.watch(place, self.memories.place(place).ranges, mode)

    def catch(self, what: str, progress: Progress = no_progress) -> Stop:
        """Stop at ``hazards``, or at ``checks`` that fail; executes everything.

        Checks fail at ops that rounding does not explain, and where an output is due and wrong.
        """
        if what == "hazards":
            ops = [touch.op.op for touch in self.hazards(progress).rows]
        else:
            ops = [
                out.after - 1 for out in self.verify(progress).rows if not out.row.ok
            ]
            ops += self.diffs.over(progress)
        return self.stops.add("catch", what, np.unique(np.array(ops, np.int64)))

    def run(self, forward: bool = True) -> Stopped:
        """To the next stop, or back to the previous; if there is none, to that end of the log."""
        op, hit = self.stops.next(self.cursor, forward)
        op = self.goto((len(self) - 1 if forward else -1) if op is None else op)
        whys = tuple(f"stop {stop.number}: {stop.kind} {stop.what}" for stop in hit)
        return Stopped(op, len(self), tuple(self.rows(op, 1)), "", whys)

    # -- questions; where no op is given, about the cursor's --

    def _command(self, op: int) -> Command:
        """The call that issued an op; one of no line if it was not recorded."""
        cmd, start = (
            int(self.trace.op_columns.cmd[self.trace.order[op]]),
            float(self.starts[op]),
        )
        none = Command(cmd, "?", -1, "?", Site("?", 0, "?"), cmd, start, start)
        return self.trace.command(cmd) or none

    def row(self, op: int) -> OpRow:
        """One line of the op log."""
        return self.rows_of([op])[0]

    def rows(self, first: int, count: int) -> list[OpRow]:
        """Lines ``first`` to ``first + count`` of the op log, as far as there are any."""
        return self.rows_of(range(max(first, 0), min(first + count, len(self))))

    def rows_of(self, ops: Sequence[int] | Ints) -> list[OpRow]:
        """Lines of the op log; many at a time cost some us each."""
        trace, log, calls = self.trace, self.trace.op_columns, self.trace.commands
        ops = np.array(ops, np.int64)
        rows, call = trace.order[ops], self.calls(ops)
        issued, known = log.t_start[rows], call >= 0
        issued[known] = calls.t_issue[call[known]]
        sites = self.sites(ops).tolist()
        named = {site: trace.strings[site >> 32] for site in set(sites) if site >= 0}
        lines = {
            s: f"{file}:{s & NO_CMD}" if s & NO_CMD else file
            for s, file in named.items()
        }
        schemas = [trace.schemas[n] for n in log.schema[rows].tolist()]
        times = (
            column.tolist()
            for column in (ops, issued, log.t_start[rows], log.t_end[rows])
        )
        names = (
            [trace.node_ids[n] for n in log.component[rows].tolist()],
            [trace.strings[n] for n in log.name[rows].tolist()],
            [schema.kind if schema else "unknown" for schema in schemas],
            [CLASS_LETTERS[n] for n in self.op_index.class_codes(rows).tolist()],
        )
        where = [lines.get(site, "?") for site in sites]
        return list(map(OpRow, *times, *names, log.nbytes[rows].tolist(), where))

    def details(self, op: int | None = None) -> OpDetails:
        """Everything recorded about an op."""
        op = self.at(op)
        row, record, command = (
            int(self.trace.order[op]),
            self.trace.ops[op],
            self._command(op),
        )
        waits = tuple(
            (*wait[:4], int(self.trace.position[wait[4]]) if wait[4] >= 0 else -1)
            for wait in self.trace.waits_of(row)
        )
        call = (
            command.cmd,
            command.call,
            command.launch,
            int(self.trace.op_columns.slot[row]),
        )
        return OpDetails(
            self.row(op), *call, record.params, tuple(record.dependency_ids), waits
        )

    def source(self, op: int | None = None) -> Source:
        """The kernel line that issued an op."""
        op = self.at(op)
        site = self._command(op).site
        file = self.trace.sources.get(site.file)
        return Source(
            op, *site, tuple(file.text.splitlines()) if file is not None else ()
        )

    def memory(self, op: int | None = None) -> Memory:
        """The allocations that hold something."""
        return self.memories.at(self.cursor if op is None else op)

    def tensor(
        self, name: str, op: int | None = None, progress: Progress = no_progress
    ) -> TensorView:
        """The numbers of a tensor."""
        return self.memories.tensor(self.cursor if op is None else op, name, progress)

    def history(self, space: str, addr: int, nbytes: int = 1) -> Touches:
        """Every read and write of a range, from the first op to the last."""
        return self.history_of(f"{space} {addr:#x}:{nbytes}")

    def history_of(self, place: str) -> Touches:
        """Every read and write of a place, from the first op to the last."""
        ranges = self.memories.place(place).ranges
        mine = np.unique(
            np.concatenate([self.versions.accesses.at(*r) for r in ranges])
        )
        touched = self.versions.touched.take(mine)
        columns = (
            column.tolist() for column in (touched.mode, touched.addr, touched.nbytes)
        )
        rows = (
            Touch(("read", "write")[mode], ranges[0][0], start, size, row)
            for mode, start, size, row in zip(
                *columns, self.rows_of(touched.row), strict=True
            )
        )
        return Touches(tuple(rows))

    def blame(
        self, place: str, depth: int = 32, progress: Progress = no_progress
    ) -> Blame:
        """The ops behind a place as it is at the cursor, or at the end before the first op."""
        op = self.cursor if self.cursor >= 0 else len(self) - 1
        return self._blames.of(self.memories.place(place), op, depth, progress)

    def who_wrote(self, place: str) -> Touches:
        """The writers of what a place holds at the cursor, or at the end before the first op."""
        op = self.cursor if self.cursor >= 0 else len(self) - 1
        return self._blames.writers(self.memories.place(place), op)

    def who_reads(self, place: str) -> Touches:
        """The reads after the cursor of what a place holds there, until it is overwritten."""
        return self._blames.readers(self.memories.place(place), self.cursor)

    def route(self, op: int | None = None) -> Route:
        """The hops of an op's transactions; where it has none, of the nearest stage of its tile."""
        at = self.at(op)
        route = route_of(self.trace, at)
        rows = [] if route.legs else self.tiles(at).rows
        mine = [r for r in rows if any(s.op == at for s in r.spans)]
        if not mine and route.name.startswith("composite_"):
            mine = list(rows[:1])
        moving = [s.op for r in mine for s in r.spans if s.stage.startswith("DMA")]
        if not moving:
            return route
        near = max((m for m in moving if m < at), default=moving[0])
        other = route_of(self.trace, near)
        note = f"{route.note}; shown is {other.name} #{near:,} of the tile"
        return replace(route, legs=other.legs, note=note, parts=other.parts)

    def tiles(self, op: int | None = None) -> Tiles:
        """The tiles of the composite that an op belongs to."""
        return self.composites.tiles_of(self.cursor if op is None else op)

    def tiles_between(
        self, t0: float, t1: float, progress: Progress = no_progress
    ) -> TileWindow:
        """The tiles that were in some stage in [t0, t1) ns, by composite."""
        return self.composites.between(t0, t1, progress=progress)

    def diff(self, op: int | None = None) -> OpDiff:
        """What an op wrote, beside its float64 oracle."""
        return self.diffs.of(self.at(op))

    def check(self, op: int | None = None) -> OpDiff:
        """``diff`` with the errors of the op, the accumulated one too where that is quick."""
        return self.diffs.checked(self.at(op))

    def first_divergence(self, progress: Progress = no_progress) -> OpDiff:
        """The first op that rounding does not explain, three-way, by executing everything."""
        if (found := self.diffs.first_divergence(progress)) is not None:
            return replace(found, site=self.row(found.op).site)
        error = str((self.trace.end or {}).get("error") or "")
        note = (
            "rounding explains every op"
            + f", yet the run ended with {error}" * bool(error)
        )
        return OpDiff(-1, "divergence", note=note)

    def outputs(self, op: int | None = None) -> Outputs:
        """The expected tensors, against memory at an op."""
        return self.diffs.outputs(self.cursor if op is None else op)

    def output(
        self, tensor: str, op: int | None = None, progress: Progress = no_progress
    ) -> OpDiff:
        """One expected tensor beside memory at an op."""
        return self.diffs.output(self.tensor(tensor, op, progress))

    def verify(self, progress: Progress = no_progress) -> Outputs:
        """The expected tensors, each when it was due, by executing the whole trace."""
        return self.diffs.verify(progress)

    def hazards(self, progress: Progress = no_progress) -> Touches:
        """What any op does to bytes that it should not, some 10,000 of a kind; executes them."""
        versions, note = self.versions, ""
        columns = versions.touched, versions.allocs
        found = find_hazards(self.trace, *columns, lambda done: progress(done / 2))
        try:
            found += snapshot_hazards(
                self.trace, versions.findings(lambda done: progress((1 + done) / 2))
            )
        except KernbenchError as why:
            note = f"Phase 1 was not compared with Phase 2: {why}"
        rows = []
        for kind, op, other, space, addr, end in sorted(
            set(found), key=lambda f: f[1:]
        ):
            with_whom = self.row(other) if other >= 0 else None
            rows.append(Touch(kind, space, addr, end - addr, self.row(op), with_whom))
        return Touches(tuple(rows), note, not rows)

    def timeline(
        self,
        components: list[int],
        t0: float,
        t1: float,
        columns: int,
        lanes: bool = False,
    ) -> Timeline:
        """Busy cells of ``components`` (node indices) or each lane of them, over [t0, t1) ns."""
        cell = None
        if self.cursor >= 0 and t0 <= self.time < t1:
            cell = min(
                int((self.time - t0) / max((t1 - t0) / columns, 1e-12)), columns - 1
            )
        rows = list[RowKey]()
        for component in components:
            if lanes:
                for lane in self.op_index.lanes_of(component):
                    rows.append(RowKey((component,), lane))
            else:
                rows.append(RowKey((component,)))
        drawn = self.timelines.draw_rows(rows, t0, t1, columns)
        return Timeline(t0, t1, columns, cell, drawn)

    def stalls(
        self,
        pe: str | None = None,
        t0: float | None = None,
        t1: float | None = None,
        progress: Progress = no_progress,
    ) -> Ledger:
        """Where the time of a PE, or of all within a cube or SIP, went; None: all that ran."""
        return self._stalls.ledger(pe, t0, t1, progress)

    def lines(
        self, pe: str | None = None, progress: Progress = no_progress
    ) -> LineTimes:
        """Time and stalls by kernel line."""
        return self._stalls.lines(pe, progress)

    def pes(
        self, cmd: int | None = None, progress: Progress = no_progress
    ) -> CallTimes:
        """One tl call (None: the cursor's) on all of its PEs."""
        row = int(self.trace.order[self.at()]) if cmd is None else 0
        if cmd is None:
            cmd = int(self.trace.op_columns.cmd[row])
        return call_times(self.trace, cmd, progress)

    def critical_path(
        self, count: int = 20, progress: Progress = no_progress
    ) -> CriticalPath:
        """The chain that sets the end of the launches, with its ``count`` longest steps."""
        return self._critical.path(count, progress)

    def slack(self, op: int | None = None, progress: Progress = no_progress) -> float:
        """How much later an op could end without moving the end of the launches, ns."""
        return self._critical.slack(self.at(op), progress)

    def link_load(
        self,
        t0: float | None = None,
        t1: float | None = None,
        progress: Progress = no_progress,
    ) -> LinkLoad:
        """Bytes, busy share and queue of every link from t0 to t1 ns, or while launches ran."""
        return self._loads.links(*window(self.launch_window(), t0, t1), progress)

    def busiest(self, count: int = 10, progress: Progress = no_progress) -> Busiest:
        """The components and links that are busy for most of the launches' time."""
        return self._loads.busiest(*self.launch_window(), count, progress)

    def _touched(self, progress: Progress) -> AccessColumns:
        return computed_beside(lambda: self.versions.touched, progress, 0.0)

    def roofline(self, progress: Progress = no_progress) -> Roofline:
        """FLOPs and HBM bytes of the launches' time against the machine's peaks, by PE."""
        return self._roofline.roofline(*self.launch_window(), progress)

    def bound(self, op: int | None = None, progress: Progress = no_progress) -> Bound:
        """The ideal time of an op beside its real one, and its slack."""
        row = self.row(at := self.at(op))
        ideal = self._roofline.ideal_ns(at, stage(progress, 0.0, 0.5))
        slack = self.slack(at, stage(progress, 0.5, 1.0))
        return Bound(row, row.t_end - row.t_start, ideal, slack)

    def launch_window(self) -> tuple[float, float]:
        """From the first launch's start to the last one's end, ns; of no launch the whole run."""
        if not (launches := self.trace.launches):
            return 0.0, max(self.trace.end_ns, 1.0)
        return min(x.t_start for x in launches), max(x.t_end for x in launches)

    def info(self) -> Info:
        """What the trace holds."""
        trace, head, report = self.trace, self.trace.header, self.trace.verify_report
        names, counts = np.unique(trace.op_columns.name, return_counts=True)
        by_name = {
            trace.strings[n]: int(c)
            for n, c in zip(names.tolist(), counts, strict=True)
        }
        run = (
            str(head.get("bench", "?")),
            dict(head.get("arguments", {})),
            len(self),
            by_name,
        )
        error = str((trace.end or {}).get("error") or "")
        state = trace.end_ns, trace.complete, len(trace.damaged), error
        named = trace.alloc_columns.tensor[trace.alloc_columns.va > 0].tolist()
        tensors = tuple(trace.strings[n] for n in dict.fromkeys(named))
        verified = None if report is None else bool(report.get("ok"))
        return Info(
            *run, *state, len(trace.node_ids), len(trace.launches), tensors, verified
        )

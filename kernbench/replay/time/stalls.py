"""Where the time of PEs goes: a ledger that sums to it (architecture.md, Interfaces 4), the same by
kernel line, and one tl call over all of its PEs. From columns only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.common.progress import Progress
from kernbench.errors import UsageError
from kernbench.replay.text import count_text, time_text, wrapped
from kernbench.replay.time.loads import window
from kernbench.replay.time.routes import covered, issue_ns, spec_number
from kernbench.replay.time.timeline import CLASSES, Timelines
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import kernel_lines

# what a piece of time is: the first of these that holds; ``issue`` is PE_CPU issuing the call
KINDS = ("compute", "load", "store", *WAIT_REASONS, "issue", "unexplained", "idle")
_ISSUE, _UNEXPLAINED, _IDLE = range(len(KINDS) - 3, len(KINDS))
_NEVER = {
    "recv": KINDS.index("arrival"),
    "send": KINDS.index("credit"),
}  # of one without an op
_KIND_OF = np.array(
    [{"G": 0, "M": 0, "R": 1, "F": 1, "W": 2, "S": 2}.get(x, -1) for x in CLASSES]
)
_WHOLE = 1 << 21  # ops; those of no longer a trace are sorted by cmd once, for all PEs
STRAGGLER = 1.2  # times the median


@dataclass(frozen=True, slots=True)
class Ledger:
    """The time of ``pes`` from t0 to t1, ns: ``time`` by PE and kind (of KINDS), ``total`` by kind.

    ``meanwhile`` says of loads and stores how long they waited, for what; ``engines`` are the
    shares of time in which the engines served something, a mean over the PEs. ``errors`` are what
    was recorded of calls that never came back.
    """

    t0: float
    t1: float
    pes: tuple[str, ...]
    kinds: tuple[str, ...]
    time: Floats
    total: dict[str, float]
    meanwhile: dict[str, dict[str, float]]
    engines: dict[str, float]
    errors: tuple[str, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        span, bar = max(self.t1 - self.t0, 1e-12), max(width - 36, 4)
        whole, who = span * max(len(self.pes), 1), f"{len(self.pes)} PEs"
        who = self.pes[0] if len(self.pes) == 1 else who
        rows = []
        for kind, ns in self.total.items():
            rows += [(kind, ns)] * (ns > 0 or kind == "unexplained")
            rows += [
                (f"  {why}", waited)
                for why, waited in self.meanwhile.get(kind, {}).items()
            ]
        lines = [f"{who}, {time_text(self.t0)} to {time_text(self.t1)}"]
        for name, ns in rows:
            strip = "#" * round(ns / whole * bar)
            lines.append(f"{name:<14}{time_text(ns):>12} {ns / whole:7.2%} {strip}")
        shares = "  ".join(f"{e}={s:.1%}" for e, s in self.engines.items())
        lines += wrapped(f"busy: {shares}", width, 6)
        shown = [i for i, kind in enumerate(self.kinds) if self.total[kind] > 0]
        lines.append(" " * 18 + "".join(f"{self.kinds[i]:>11}" for i in shown))
        for pe, row in zip(self.pes, self.time / span, strict=True):
            lines.append(f"{pe:<18}" + "".join(f"{row[i]:11.1%}" for i in shown))
        lines = lines[: None if len(self.pes) > 1 else -2]
        return lines + [
            part for text in self.errors for part in wrapped(text, width, 2)
        ]


@dataclass(frozen=True, slots=True)
class LineTime:
    """The calls of one kernel line: their time, ns, in all and by kind; ``text`` is the line."""

    time: float
    share: float
    calls: int
    site: str
    text: str
    kinds: dict[str, float]


@dataclass(frozen=True, slots=True)
class LineTimes:
    """Kernel lines, the one that took most first."""

    rows: tuple[LineTime, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = []
        for row in self.rows:
            most = sorted(row.kinds.items(), key=lambda kind: -kind[1])[:5]
            parts = "  ".join(
                f"{kind} {ns / max(row.time, 1e-12):.0%}" for kind, ns in most
            )
            took = f"{row.share:6.1%} {time_text(row.time):>12} in {count_text(row.calls, 'call')}"
            lines += [f"{took}: {parts}", f"       {row.site}  {row.text}"]
        return lines or ["no kernel has run"]


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One tl call on each of its PEs: when it was issued, and how long until it and its ops ended.

    ``places`` are (sip, cube, pe), times in ns. Stragglers took over STRAGGLER times the median.
    """

    call: str
    site: str
    mesh_width: int
    pes: tuple[str, ...]
    places: tuple[tuple[int, int, int], ...]
    t_issue: Floats
    duration: Floats
    minimum: float
    median: float
    maximum: float
    stragglers: tuple[str, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: rows of the cube mesh, a digit a PE (0 min, 9 max)."""
        times = (self.minimum, self.median, self.maximum)
        least, middle, most = map(time_text, times)
        lines = [f"{self.call} at {self.site} on {count_text(len(self.pes), 'PE')}"]
        lines += [f"a digit a PE: 0 is min {least}, 9 max {most}; median {middle}"]
        scale = 9 / max(self.maximum - self.minimum, 1e-12)
        digits = ((self.duration - self.minimum) * scale).astype(int).tolist()
        where = {place: str(d) for place, d in zip(self.places, digits, strict=True)}
        sips, cubes, pes = (range(max(n) + 1) for n in zip(*self.places, strict=True))
        for sip, first in ((s, c) for s in sips for c in cubes[:: self.mesh_width]):
            row = range(first, first + self.mesh_width)
            cells = ["".join(where.get((sip, c, pe), ".") for pe in pes) for c in row]
            if any(cell.strip(".") for cell in cells):
                lines.append(f"sip{sip} cube{first:<3} {' '.join(cells)}")
        late = f"stragglers (over {STRAGGLER} x median): {', '.join(self.stragglers)}"
        return [*lines, late] if self.stragglers else lines


class Stalls:
    """Answers about the time of PEs; indexes the logs when it is first asked."""

    def __init__(self, trace: Trace, timelines: Timelines) -> None:
        self._trace, self._timelines = trace, timelines
        self._indexed: tuple[list[int], tuple[Groups, ...]] | None = None
        self._issue_ns = issue_ns(trace.spec)
        self._setup_ns = spec_number(trace.spec, "pe.dma.setup_ns")

    def _index(self, pes: list[int]) -> tuple[Groups, ...]:
        """What the calls of kernels on ``pes`` await: ops and waits by cmd."""
        if len(self._trace.order) <= _WHOLE:
            return self._by_cmd
        if self._indexed is None or self._indexed[0] != pes:
            calls = np.concatenate([self._calls.of(pe) for pe in pes])
            awaited, logs = (
                self._awaited(calls),
                (self._trace.op_columns, self._trace.waits),
            )
            self._indexed = pes, tuple(_of(log.cmd[:], awaited) for log in logs)
        return self._indexed[1]

    @cached_property
    def _by_cmd(self) -> tuple[Groups, ...]:
        return tuple(
            Groups(log.cmd[:]) for log in (self._trace.op_columns, self._trace.waits)
        )

    @cached_property
    def _calls(self) -> Groups:
        """The calls of kernels by PE, as issued."""
        c = self._trace.commands
        calls = np.flatnonzero(c.launch >= 0)
        calls = calls[np.argsort(c.t_issue[calls], kind="stable")]
        return Groups(c.pe[calls], calls)

    @cached_property
    def _ran(self) -> list[int]:
        """The pe_cpu nodes that ran kernels, ascending."""
        c = self._trace.commands
        return [int(pe) for pe in np.unique(c.pe[c.launch >= 0])]

    @cached_property
    def _lines(self) -> tuple[list[str], Array]:
        return kernel_lines(self._trace)

    def _awaited(self, calls: Array) -> Array:
        """What each call waits for, by cmd: its own ops where it names no other."""
        c = self._trace.commands
        awaits = np.asarray(c.awaits[calls])
        return np.where(awaits == NO_CMD, c.cmd[calls], awaits)

    def pes(self, name: str | None = None) -> list[int]:
        """The pe_cpu nodes in ``name`` (sip0.cube0.pe3, sip0); None, all: those that ran kernels.

        UsageError if there is none.
        """
        trace, ran = self._trace, self._ran
        if name in (None, "all"):
            return ran
        cpus = {i for i, kind in enumerate(trace.nodes.type) if kind == "pe_cpu"} | {
            *ran
        }
        found = [
            i for i in sorted(cpus) if f"{trace.node_ids[i]}.".startswith(f"{name}.")
        ]
        if not found:
            some = ", ".join(self.label(i) for i in (ran or sorted(cpus))[:3])
            raise UsageError(f"no PE {name!r}: name one, a cube or a SIP, as in {some}")
        return [i for i in found if i in ran] or found

    def label(self, node: int) -> str:
        """The PE of a pe_cpu."""
        return self._trace.node_ids[node].removesuffix(
            f".{self._trace.nodes.engine[node]}"
        )

    def _window(self, t0: float | None, t1: float | None) -> tuple[float, float]:
        """From ``t0`` to ``t1`` ns; None: from the first launch's start, to the last one's end."""
        return window(self._launched, t0, t1)

    @cached_property
    def _launched(self) -> tuple[float, float]:
        """When launches or calls of kernels ran, ns; of none the whole run."""
        c = self._trace.commands
        mine = np.flatnonzero(c.launch >= 0)
        ends = [t for x in self._trace.launches for t in (x.t_start, x.t_end)]
        times = np.concatenate([c.t_issue[mine], c.t_resume[mine], ends])
        times = times if len(times) else np.array([0.0, max(self._trace.end_ns, 1.0)])
        return float(times.min()), float(times.max())

    def _pieces(
        self, pes: list[int], pe: int, t0: float, t1: float
    ) -> tuple[Array, Array, Array, Floats]:
        """The time of the calls of one of ``pes``, cut where what they await changes state.

        Of each piece the row of the call, its kind, what was waited for meanwhile (or -1), its ns.
        """
        ops_of, waits_of = self._index(pes)
        columns, waits, c = (
            self._trace.op_columns,
            self._trace.waits,
            self._trace.commands,
        )
        calls = self._calls.of(pe)
        issued, until = c.t_issue[calls], c.t_resume[calls]
        until[:-1] = np.minimum(
            until[:-1], issued[1:]
        )  # it is over with the next at the latest
        some = (issued < t1) & (until > t0)
        calls, issued, until = calls[some], issued[some], until[some]
        awaited = self._awaited(calls)
        (mine, ops), (waiting, held) = ops_of.join(awaited), waits_of.join(awaited)
        kind = _KIND_OF[self._timelines.codes(ops)]
        lasted = np.arange(len(calls))
        # what a send pushes to another PE is recorded there, from when it has been set up here
        pushed = ~np.isin(columns.component[ops], self._engines(pe))
        starts = columns.t_start[ops] - self._setup_ns * pushed
        lows = starts, waits.t0[held], issued, issued
        highs = columns.t_end[ops], waits.t1[held], issued + self._issue_ns, until
        kinds = kind, waits.reason[held] + KINDS.index(WAIT_REASONS[0])
        owner = np.concatenate([mine, waiting, lasted, lasted])
        low = np.maximum(np.concatenate(lows), np.maximum(issued, t0)[owner])
        high = np.minimum(np.concatenate(highs), np.minimum(until, t1)[owner])
        rest = np.repeat([_ISSUE, _UNEXPLAINED], len(calls))
        if len(calls) and not len(
            ops_of.of(awaited[-1])
        ):  # what never ended has no op, no waits
            last = self._trace.command(int(awaited[-1]))
            rest[-1] = _NEVER.get(last.call if last else "", _UNEXPLAINED)
        what = np.concatenate([*kinds, rest])
        kept = (high > low) & (what >= 0)
        place, kinds_found, reasons, ns = _first_of(
            owner[kept], low[kept], high[kept], what[kept]
        )
        return calls[place], kinds_found, reasons, ns

    def ledger(
        self, pe: str | None, t0: float | None, t1: float | None, progress: Progress
    ) -> Ledger:
        """Where the time of ``pe`` went: a PE, or all that ran in a cube or SIP; None: all."""
        (t0, t1), pes = self._window(t0, t1), self.pes(pe)
        time, beside = (
            np.zeros((len(pes), len(KINDS))),
            np.zeros((len(KINDS), len(KINDS))),
        )
        engines, names = dict[str, float](), self._trace.nodes.engine
        for i, node in enumerate(pes):
            progress(i / len(pes))
            _, kind, also, ns = self._pieces(pes, node, t0, t1)
            time[i] = np.bincount(kind, ns, len(KINDS))
            np.add.at(beside, (kind, also), ns)
            time[i, _IDLE] = max(t1 - t0 - time[i].sum(), 0.0)
            for component in self._engines(node).tolist():
                busy = self._busy(component, t0, t1) / len(pes)
                engines[names[component]] = engines.get(names[component], 0.0) + busy
        total = dict(zip(KINDS, time.sum(axis=0).tolist(), strict=True))
        meanwhile = {
            kind: {why: float(ns) for why, ns in zip(KINDS, row, strict=False) if ns}
            for kind, row in zip(KINDS[1:3], beside[1:3, :_ISSUE], strict=True)
        }
        labels = tuple(map(self.label, pes))
        errors = (text.message for text in self._trace.texts if text.level == "error")
        mine = tuple(
            text for text in errors if any(f"{name}." in text for name in labels)
        )
        return Ledger(t0, t1, labels, KINDS, time, total, meanwhile, engines, mine)

    def _engines(self, pe: int) -> Array:
        """What served an op in the PE of a pe_cpu."""
        nodes, found = self._trace.nodes, self._timelines.components
        places = [
            column[found] == column[pe] for column in (nodes.sip, nodes.cube, nodes.pe)
        ]
        return np.asarray(found[np.logical_and.reduce(places)])

    def _busy(self, component: int, t0: float, t1: float) -> float:
        """The share of the time in which it served at least one op."""
        columns = self._trace.op_columns
        rows = self._trace.order[self._timelines.ops_of(component)]
        return covered(columns.t_start[rows], columns.t_end[rows], t0, t1) / (t1 - t0)

    def lines(self, pe: str | None, progress: Progress) -> LineTimes:
        """The time of calls by the kernel line that made them, on ``pe`` as in ``ledger``."""
        (t0, t1), pes = self._window(None, None), self.pes(pe)
        sites, site_of = self._lines
        time, calls = np.zeros((len(sites), len(KINDS))), np.zeros(len(sites), int)
        for i, node in enumerate(pes):
            progress(i / len(pes))
            rows, kind, _, ns = self._pieces(pes, node, t0, t1)
            np.add.at(time, (site_of[rows], kind), ns)
            calls += np.bincount(site_of[np.unique(rows)], minlength=len(sites))
        sums, found = time.sum(axis=1), []
        for i in np.argsort(-sums, kind="stable").tolist():
            if calls[i]:
                file, _, line = sites[i].rpartition(":")
                source, n = self._trace.sources.get(file), int(line)
                text = source.text.splitlines()[n - 1 : n] if source and n else []
                by_kind = zip(KINDS, time[i].tolist(), strict=True)
                what = (
                    sites[i],
                    "".join(text).strip(),
                    {k: ns for k, ns in by_kind if ns},
                )
                share = float(sums[i] / sums.sum()) if sums.sum() else 0.0
                found.append(LineTime(float(sums[i]), share, int(calls[i]), *what))
        return LineTimes(tuple(found))

    def calls(self, cmd: int) -> CallTimes:
        """The tl call ``cmd`` on all PEs: the n-th from its line in the m-th launch of its kernel.

        UsageError if it is no call of a kernel.
        """
        trace, c = self._trace, self._trace.commands
        me = next(iter(np.flatnonzero((c.cmd == cmd) & (c.launch >= 0))), None)
        if me is None:
            raise UsageError(
                f"call {cmd} is none of a kernel; op names the call of an op"
            )
        kernels = {x.launch: x.kernel for x in trace.launches}
        mine = kernels.get(int(c.launch[me]), "")
        launches = [
            n for n in np.unique(c.launch).tolist() if kernels.get(n, "") == mine
        ]
        alike = [
            getattr(c, n) == getattr(c, n)[me]
            for n in ("call", "file", "line", "function")
        ]
        rows = np.flatnonzero(
            np.logical_and.reduce([*alike, np.isin(c.launch, launches)])
        )
        rows = rows[np.lexsort((c.t_issue[rows], c.launch[rows], c.pe[rows]))]
        pe, launch = c.pe[rows].astype(np.int64), c.launch[rows]
        both, of = np.unique(pe << 32 | launch, return_inverse=True)
        nth = np.arange(len(rows)) - np.searchsorted(of, of)  # within its launch
        turn = (np.arange(len(both)) - np.searchsorted(both >> 32, both >> 32))[of]
        here = int(np.flatnonzero(rows == me)[0])
        rows = rows[(nth == nth[here]) & (turn == turn[here])]
        which, ops = _of(trace.op_columns.cmd[:], c.cmd[rows]).join(c.cmd[rows])
        end = c.t_resume[rows].copy()
        np.maximum.at(end, which, trace.op_columns.t_end[ops])
        duration, nodes, pes = end - c.t_issue[rows], trace.nodes, c.pe[rows]
        low, median, high = (float(f(duration)) for f in (np.min, np.median, np.max))
        labels, site = (
            list(map(self.label, pes)),
            f"{trace.strings[c.file[me]]}:{c.line[me]}",
        )
        late = tuple(labels[i] for i in np.flatnonzero(duration > STRAGGLER * median))
        columns = (nodes.sip[pes], nodes.cube[pes], nodes.pe[pes])
        places = tuple(zip(*(column.tolist() for column in columns), strict=True))
        mesh = int(spec_number(trace.spec, "sip.cube_mesh.w")) or 1
        what = trace.strings[c.call[me]], site, mesh, tuple(labels), places
        return CallTimes(*what, c.t_issue[rows], duration, low, median, high, late)


def _of(cmd: Array, wanted: Array) -> Groups:
    """The rows that hold one of ``wanted``, by that."""
    rows = np.flatnonzero(np.isin(cmd, wanted)).astype(np.uint32)
    return Groups(cmd[rows], rows)


def _first_of(
    owner: Array, low: Floats, high: Floats, kind: Array
) -> tuple[Array, Array, Array, Floats]:
    """Intervals cut where any of their owner's begins or ends: owner, kind, reason, length.

    Where several hold, the first kind counts; reason is the first wait among them, -1 for none.
    """
    times, place = np.concatenate([low, high]), np.tile(np.arange(len(low)), 2)
    order = np.lexsort((times, owner[place]))
    times, place, step = times[order], place[order], np.where(order < len(low), 1, -1)
    first, reason = np.full(len(times), _IDLE), np.full(len(times), -1)
    for k in np.unique(kind)[::-1]:
        holds = np.cumsum(np.where(kind[place] == k, step, 0)) > 0
        first[holds] = k
        if len(KINDS) - len(WAIT_REASONS) - 3 <= k < _ISSUE:
            reason[holds] = k
    owners, length = owner[place], np.diff(times, append=0.0)
    same = np.append(owners[1:] == owners[:-1], False)
    kept = same & (length > 0)
    return owners[kept], first[kept], reason[kept], length[kept]

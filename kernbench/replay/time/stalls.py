"""Where the time of PEs goes: a ledger, and the same by kernel line.

A PE's time is covered by the calls of its kernels. Each call is cut where what it
awaits changes state, and each piece counts as the first of KINDS that holds: so a
ledger sums to the time that it is about (docs/architecture.md, "Why something
waited"). What is left when all calls are counted, outside of launches, is idle. All of
it comes from columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints, counted
from kernbench.common.exact_time import exact_ns
from kernbench.common.messages import NO_CMD
from kernbench.common.progress import Progress, beside_if_many, no_progress, stage
from kernbench.common.resumable import Resumable, Steps, beside, resumable_beside
from kernbench.errors import UsageError
from kernbench.replay.text import count_text, time_text, wrapped
from kernbench.replay.time.kernel_calls import (
    kernel_calls,
    launched_between,
    pe_label,
)
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.pieces import (
    COMPUTE,
    FIRST_WAIT,
    IDLE,
    ISSUE,
    KIND_BY_CLASS,
    KINDS,
    LOAD,
    NEVER_ENDED,
    NO_KIND,
    STORE,
    UNEXPLAINED,
    Pieces,
    Spans,
    cut,
)
from kernbench.replay.time.spans import covered, window
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import has_text, kernel_lines
from kernbench.trace.spec_values import issue_ns, spec_number

_LAST_CALLS = 2
"""The call that a PE was in when an error ended the run, and the one that came back at
that very time.
"""
_EVERY = 256
"""PEs whose sums are added up between two calls of progress."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the time of ``pes`` from t0 to t1 (ns) went.

    ``time`` is in ns, a row a PE and a column for each of ``kinds``; ``total`` sums it
    up by kind. ``meanwhile`` says of loads and stores for how long they waited, and for
    what. ``engines`` are the shares of the time in which the engines served something,
    a mean over the PEs. ``errors`` is what was recorded of calls that never came back.
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
        """As text: a bar for each kind; of several PEs a table by PE."""
        who = f"{len(self.pes)} PEs"
        if len(self.pes) == 1:
            who = self.pes[0]
        lines = [f"{who}, {time_text(self.t0)} to {time_text(self.t1)}"]
        lines += self._bars(max(width - 36, 4))
        if self.pes:
            shares = [f"{name}={share:.1%}" for name, share in self.engines.items()]
            lines += wrapped(f"busy: {'  '.join(shares)}", width, 6)
        if len(self.pes) > 1:
            lines += self._table()
        for error in self.errors:
            lines += wrapped(error, width, 2)
        return lines

    def _span(self) -> float:
        """The time that the ledger is about, ns; never 0."""
        return max(self.t1 - self.t0, 1e-12)

    def _bars(self, bar: int) -> list[str]:
        """A line a kind that took time, and below it what was waited for meanwhile."""
        rows = []
        for kind, ns in self.total.items():
            if ns > 0 or kind == "unexplained":
                rows.append((kind, ns))
            for reason, waited in self.meanwhile.get(kind, {}).items():
                rows.append((f"  {reason}", waited))
        whole = self._span() * max(len(self.pes), 1)
        lines = []
        for name, ns in rows:
            strip = "#" * round(ns / whole * bar)
            lines.append(f"{name:<14}{time_text(ns):>12} {ns / whole:7.2%} {strip}")
        return lines

    def _table(self) -> list[str]:
        """A row a PE, with its share of each kind that took time."""
        shown = [i for i, kind in enumerate(self.kinds) if self.total[kind] > 0]
        lines = [" " * 18 + "".join(f" {self.kinds[i]:>11}" for i in shown)]
        for pe, shares in zip(self.pes, self.time / self._span(), strict=True):
            lines.append(f"{pe:<18}" + "".join(f" {shares[i]:11.1%}" for i in shown))
        return lines


@dataclass(frozen=True, slots=True)
class LineTime:
    """The calls of one kernel line: their time (ns), in all and by kind.

    ``share`` is of the time of all lines; ``text`` is the line itself.
    """

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
        """As text: two lines a kernel line, with its five largest kinds."""
        lines = []
        for row in self.rows:
            whole = max(row.time, 1e-12)
            largest = sorted(row.kinds.items(), key=lambda kind: -kind[1])[:5]
            parts = "  ".join(f"{kind} {ns / whole:.0%}" for kind, ns in largest)
            calls = count_text(row.calls, "call")
            lines.append(
                f"{row.share:6.1%} {time_text(row.time):>12} in {calls}: {parts}"
            )
            lines.append(f"       {row.site}  {row.text}")
        return lines or ["no kernel has run"]


class _ByCmd(NamedTuple):
    """The rows of the logs of ops and of waits, by the cmd that they are of."""

    ops: Groups
    waits: Groups


class _Lines(NamedTuple):
    """Every kernel line as "file:line", and of each call the number of its line.

    ``is_end`` are the calls that are ends of kernels.
    """

    texts: list[str]
    of_call: Ints
    is_end: Bools


class _LineSums(NamedTuple):
    """What the calls of one PE took, by line: a row for each of ``lines``, numbers of
    ``_Lines``. ``time`` is in ns, a column for each of KINDS.
    """

    lines: Ints
    time: Floats
    calls: Ints


def _lines_of(trace: Trace) -> _Lines:
    """The lines of all calls of a trace."""
    texts, of_call = kernel_lines(trace)
    return _Lines(texts, of_call, has_text(trace, trace.commands.call, "exit"))


class StallIndex:
    """Answers about the time of PEs, from the logs sorted by PE and by call.

    Its tables are filled by one thread, the worker of lane "columns", when they are
    first asked for. No other thread may ask: they are too long to make twice. Making
    them goes on where it was when whoever had asked was cancelled. Ops and waits are
    sorted by call once, for all PEs.
    """

    def __init__(self, trace: Trace, ops: OpIndex) -> None:
        self._trace = trace
        self._ops = ops
        self._issue_ns = issue_ns(trace.spec)
        self._setup_ns = exact_ns(spec_number(trace.spec, "pe.dma.setup_ns"))
        calls = self._count_calls
        self._by_cmd = Resumable(self._rows_by_cmd)
        self._calls = resumable_beside(calls, lambda: kernel_calls(trace))
        self._lines = resumable_beside(calls, lambda: _lines_of(trace))
        self._launched = resumable_beside(calls, lambda: launched_between(trace))
        self._sums: dict[int, _LineSums] = {}

    # -- PEs --

    @cached_property
    def _cpus(self) -> list[int]:
        kinds = enumerate(self._trace.nodes.type)
        return [node for node, kind in kinds if kind == "pe_cpu"]

    def pes(
        self, name: str | None = None, progress: Progress = no_progress
    ) -> list[int]:
        """The pe_cpu nodes in a part of the machine, as sip0.cube0.pe3 or sip0.

        None, or "all", is the whole machine. Where any of them has run a kernel, it is
        only those that have. Raises UsageError if there is no PE of that name.
        """
        ran = self._calls.result(progress).ran
        if name in (None, "all"):
            return ran
        trace = self._trace
        cpus = sorted({*self._cpus, *ran})
        found = []
        for node in cpus:
            if f"{trace.node_ids[node]}.".startswith(f"{name}."):
                found.append(node)
        if not found:
            some = ", ".join(pe_label(trace, node) for node in (ran or cpus)[:3])
            raise UsageError(f"no PE {name!r}: name one, a cube or a SIP, as in {some}")
        return [node for node in found if node in ran] or found

    # -- questions --

    def ledger(
        self,
        pe: str | None,
        t0: float | None,
        t1: float | None,
        progress: Progress = no_progress,
    ) -> Ledger:
        """Where the time of the PEs in ``pe`` went: see ``pes`` for how it is named.

        Times are in ns; None stands for the first start or the last end of a launch.
        """
        map_logs(self._trace, progress, "commands", "waits", "launches")
        begin, end = window(self._launched.result(progress), t0, t1)
        pes = self.pes(pe, progress)
        time = np.zeros((len(pes), len(KINDS)))
        beside = np.zeros((len(KINDS), len(KINDS)))
        engines = dict[str, float]()
        names = self._trace.nodes.engine
        for number, pieces in enumerate(self._pieces_by_pe(pes, begin, end, progress)):
            time[number] = np.bincount(pieces.kind, pieces.ns, len(KINDS))
            np.add.at(beside, (pieces.kind, pieces.reason), pieces.ns)
            time[number, IDLE] = max(end - begin - time[number].sum(), 0.0)
            for component in self._engines(pes[number]).tolist():
                name = names[component]
                busy = self._busy_share(component, begin, end)
                engines[name] = engines.get(name, 0.0) + busy / len(pes)
        time.setflags(write=False)
        labels = tuple(pe_label(self._trace, node) for node in pes)
        return Ledger(
            t0=begin,
            t1=end,
            pes=labels,
            kinds=KINDS,
            time=time,
            total=dict(zip(KINDS, time.sum(axis=0).tolist(), strict=True)),
            meanwhile={
                "load": _by_reason(beside[LOAD]),
                "store": _by_reason(beside[STORE]),
            },
            engines=engines,
            errors=self._errors(labels),
        )

    def lines(
        self, pe: str | None = None, progress: Progress = no_progress
    ) -> LineTimes:
        """The time of the calls on the PEs in ``pe``, by the line that made them.

        That is of all launches. A line whose calls took no time is not listed. What the
        end of a kernel waits for counts with its last call, and is no call itself.
        """
        map_logs(self._trace, progress, "commands", "waits", "launches")
        pes = self.pes(pe, progress)
        sites = self._lines.result(progress)
        self._sum_lines(pes, sites, progress)
        time = np.zeros((len(sites.texts), len(KINDS)))
        calls = np.zeros(len(sites.texts), np.int64)
        for number, node in enumerate(pes):
            if number % _EVERY == 0:
                progress(1.0)
            one = self._sums[node]
            time[one.lines] += one.time
            calls[one.lines] += one.calls
        sums = time.sum(axis=1)
        whole = float(sums.sum())
        found = []
        for line in np.argsort(-sums, kind="stable").tolist():
            if calls[line] or sums[line] > 0:
                found.append(
                    LineTime(
                        time=float(sums[line]),
                        share=float(sums[line] / whole) if whole else 0.0,
                        calls=int(calls[line]),
                        site=sites.texts[line],
                        text=self._source_line(sites.texts[line]),
                        kinds=_by_kind(time[line]),
                    )
                )
        return LineTimes(tuple(found))

    def _sum_lines(self, pes: list[int], sites: _Lines, progress: Progress) -> None:
        """Have the sums of the lines of some PEs, which are kept: to make those of a PE
        takes longer than a key may. Whoever is cancelled has made some of them.
        """
        begin, end = self._launched.result(progress)
        missing = [node for node in pes if node not in self._sums]
        pieces_by_pe = self._pieces_by_pe(missing, begin, end, progress)
        for node, pieces in zip(missing, pieces_by_pe, strict=True):
            self._sums[node] = _line_sums(pieces, sites)

    def _errors(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The error messages that name one of some PEs."""
        found = []
        errors = [text for text in self._trace.texts if text.level == "error"]
        for error in errors:
            if any(f"{label}." in error.message for label in labels):
                found.append(error.message)
        return tuple(found)

    def _engines(self, pe: int) -> Ints:
        """The components that served an op in the PE of a pe_cpu."""
        nodes = self._trace.nodes
        served = self._ops.components
        mine: Bools = nodes.sip[served] == nodes.sip[pe]
        mine &= nodes.cube[served] == nodes.cube[pe]
        mine &= nodes.pe[served] == nodes.pe[pe]
        return served[mine]

    def _busy_share(self, component: int, t0: float, t1: float) -> float:
        """The share of the time in which a component served at least one op."""
        columns = self._trace.op_columns
        rows = self._trace.order[self._ops.ops_of(component)]
        busy = covered(columns.t_start[rows], columns.t_end[rows], t0, t1)
        return busy / (t1 - t0)

    def _source_line(self, site: str) -> str:
        """The text of a kernel line, "" where the source was not recorded."""
        file, _, line = site.rpartition(":")
        number = int(line)
        source = self._trace.sources.get(file)
        if source is None or not number:
            return ""
        return "".join(source.text.splitlines()[number - 1 : number]).strip()

    # -- pieces of time --

    def _pieces_by_pe(
        self, pes: list[int], t0: float, t1: float, progress: Progress
    ) -> Iterator[Pieces]:
        """The pieces of time of each of some PEs, one after the other."""
        by_cmd = self._by_cmd.result(stage(progress, 0.0, 0.1))
        for number, pe in enumerate(pes):
            # Besides its ops these are its calls and what they waited for.
            size = 4 * self._ops.count_of(self._engines(pe))
            share = 0.1 + 0.9 * number / len(pes)
            find = partial(self._pieces, by_cmd, pe, t0, t1)
            pieces = beside_if_many(size, find, progress, share)
            progress(share)  # what is made of them takes some ms, too
            yield pieces

    def _pieces(self, by_cmd: _ByCmd, pe: int, t0: float, t1: float) -> Pieces:
        """The calls of a PE in [t0, t1) ns, cut where what they await changes state.

        The owner of a piece is the row of its call. What holds for a call is: its ops
        in service, its waits, PE_CPU issuing it, and for all of its time "unexplained",
        which counts where nothing else does.
        """
        trace = self._trace
        columns = trace.op_columns
        waits = trace.waits
        log = trace.commands
        calls = self._calls.result().by_pe.of(pe)
        issued = log.t_issue[calls]
        until = log.t_resume[calls]
        # A call is over when the next one is issued, at the latest.
        until[:-1] = np.minimum(until[:-1], issued[1:])
        inside = (issued < t1) & (until > t0)
        calls = calls[inside]
        issued = issued[inside]
        until = until[inside]

        awaited = self._awaited(calls)
        op_call, ops = by_cmd.ops.join(awaited)
        wait_call, held = by_cmd.waits.join(awaited)
        # A push to another PE is recorded there, from when it has been set up here.
        is_elsewhere = np.ones(len(trace.nodes.type), np.bool_)
        is_elsewhere[self._engines(pe)] = False
        pushed = is_elsewhere[columns.component[ops]]
        op_starts = columns.t_start[ops] - self._setup_ns * pushed
        every_call = np.arange(len(calls))
        rest = np.full(len(calls), UNEXPLAINED)
        rest_from = issued.copy()
        for i in range(max(len(calls) - _LAST_CALLS, 0), len(calls)):
            if len(by_cmd.ops.of(awaited[i])):
                continue
            # What never ended has left no op and no wait.
            unended = trace.command(int(awaited[i]))
            if unended is not None:
                rest[i] = NEVER_ENDED.get(unended.call, UNEXPLAINED)
            if rest[i] in (COMPUTE, LOAD, STORE):
                rest_from[i] += self._issue_ns

        spans = Spans(
            owner=np.concatenate([op_call, wait_call, every_call, every_call]),
            low=np.concatenate([op_starts, waits.t0[held], issued, rest_from]),
            high=np.concatenate(
                [columns.t_end[ops], waits.t1[held], issued + self._issue_ns, until]
            ),
            kind=np.concatenate(
                [
                    KIND_BY_CLASS[self._ops.class_codes(ops)],
                    waits.reason[held] + FIRST_WAIT,
                    np.full(len(calls), ISSUE),
                    rest,
                ]
            ),
        )
        low = np.maximum(spans.low, np.maximum(issued, t0)[spans.owner])
        high = np.minimum(spans.high, np.minimum(until, t1)[spans.owner])
        kept = (high > low) & (spans.kind != NO_KIND)
        spans = Spans(spans.owner[kept], low[kept], high[kept], spans.kind[kept])
        pieces = cut(spans)
        return pieces._replace(owner=calls[pieces.owner])

    def _awaited(self, calls: Array) -> Array:
        """The cmd that each call waits for: its own, where it names no other.

        A ``tl.wait`` names that of the call whose handle it was given.
        """
        log = self._trace.commands
        awaits = np.asarray(log.awaits[calls])
        return np.where(awaits == NO_CMD, log.cmd[calls], awaits)

    # -- tables --

    def _rows_by_cmd(self) -> Steps[_ByCmd]:
        """Ops and waits by cmd.

        They are recorded nearly in the order of their calls, so to sort ten million of
        each takes 0.4 s, as long as to look out those of a handful of PEs.
        """
        ops = self._trace.op_columns.cmd
        waits = self._trace.waits.cmd
        return _ByCmd(
            (yield from beside(lambda: Groups.kept(ops), 0.0)),
            (yield from beside(lambda: Groups.kept(waits), 0.5)),
        )

    def _count_calls(self) -> int:
        return len(self._trace.commands.cmd)


def _line_sums(pieces: Pieces, sites: _Lines) -> _LineSums:
    """The time and the calls of one PE by line; the end of a kernel is no call."""
    count = len(sites.texts)
    cell = sites.of_call[pieces.owner] * len(KINDS) + pieces.kind
    by_cell = np.bincount(cell, pieces.ns, count * len(KINDS)).astype(np.float64)
    time = by_cell.reshape(count, len(KINDS))
    first_of_call = np.flatnonzero(np.diff(pieces.owner, prepend=-1))
    seen = pieces.owner[first_of_call]
    seen = sites.of_call[seen[~sites.is_end[seen]]]
    calls = counted(seen, count)
    lines = np.flatnonzero(time.any(axis=1) | (calls > 0))
    return _LineSums(lines, time[lines], calls[lines])


def _by_reason(waited: Floats) -> dict[str, float]:
    """What was waited for, and for how long, of a row by KINDS."""
    reasons = zip(KINDS[:ISSUE], waited[:ISSUE].tolist(), strict=True)
    return {reason: ns for reason, ns in reasons if ns}


def _by_kind(time: Floats) -> dict[str, float]:
    """The kinds that took time, of a row by KINDS."""
    return {kind: ns for kind, ns in zip(KINDS, time.tolist(), strict=True) if ns}

"""The critical path: the chain of ops, waits and issues that sets the end.

It and the slack of ops come from one graph (critical_graph.py) whose nodes are moments.
The path goes back from the end of the last launch, from each node to its cause, up to
the start of the first launch. Its time is then accounted for piece by piece: an op in
service, a recorded wait while it lasted, a call being issued, the host at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.replay.text import table, time_text, wrapped
from kernbench.replay.time.critical_edges import (
    FIRST_REASON,
    ISSUE,
    LAUNCH,
    SET_UP,
    UNEXPLAINED,
    WHATS,
)
from kernbench.replay.time.critical_graph import Graph, build_graph
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.spans import launches_not_ended, part_of_run
from kernbench.trace import Trace
from kernbench.trace.hops import kernel_lines, named, rows_of_calls
from kernbench.trace.mapped import Column

__all__ = ["WHATS", "CriticalIndex", "CriticalPath", "Step", "repeated_steps"]

# The field of the spec that would be changed to find out what a part of the path costs.
# What a DMA, a link or a channel takes hangs on several; which of them only a re-timing
# tells.
_HINTS = {
    "gemm": "pe.clock_ghz",
    "math": "pe.clock_ghz",
    "fetch": "pe.tcm.read_bw_gbs",
    "store": "pe.tcm.write_bw_gbs",
    "issue": "pe.cpu.issue_cycles",
    "sram_port": "cube.sram.to_router_bw_gbs",
}
_IN_TURN = ("link", "hbm_channel", "sram_port")
"""Waits of ops in service behind the bytes of others."""
_WORTH = 0.01
"""The share of the path from which on such waits are told."""
_LINES = 8  # kernel lines in the text
_NODES = 1 << 12  # nodes of the path between two calls of progress, some ms
_NONE = -1


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the path that came ``times`` times from t0 to t1, ``ns`` in all.

    ``op`` is the position of the first one's op (-1: none), ``node`` where it was
    served, issued or waited, ``site`` the kernel line.
    """

    t0: float
    t1: float
    ns: float
    times: int
    what: str
    op: int
    node: str
    site: str


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What sets the end, from t0 to t1 (ns): piece i is from times[i] to times[i + 1].

    By piece ``whats`` are places in WHATS and ``ops`` positions (-1: none). ``totals``
    and ``by_line`` are ns by what and by kernel line, the largest first. ``steps`` are
    the pieces that take longest, in order, repetitions as one; ``left_out`` more are
    not among them. ``part`` says what of the run it is about, if that is not all.
    """

    t0: float
    t1: float
    totals: dict[str, float]
    by_line: dict[str, float]
    steps: tuple[Step, ...]
    left_out: int
    times: Floats
    whats: Ints
    ops: Ints
    part: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: the totals, what could be tried, a table of the longest steps."""
        whole = max(self.t1 - self.t0, SAME_NS)
        span = f"{self.t0:.2f} to {self.t1:.2f} ns"
        lines = [f"critical path of {time_text(whole)}, {span}"]
        for what, ns in [*self.totals.items(), *list(self.by_line.items())[:_LINES]]:
            lines.append(f"{ns / whole:>7.1%} {ns:>12.2f} ns  {what}")
        for text in (self._hint(), self._doubt(whole), self.part):
            lines += wrapped(text, width, 2)
        if self.steps:
            times = "t0 t1" if width >= 100 else "t0"
            names = f"{times} ns times what op node site"
            lines += table(self.steps, names, width=width)
        if self.left_out:
            lines.append(f"({self.left_out:,} shorter steps)")
        return lines

    def _hint(self) -> str:
        """How to find out what would have less of what the path is most of."""
        largest = next(iter(self.totals), "")
        if not largest:
            return ""
        ask = "kernbench trace whatif FILE"
        field = _HINTS.get(largest)
        if field is not None:
            ask = f"{ask} {field}=…"
        return f"most of it is {largest}; what if: {ask}"

    def _doubt(self, whole: float) -> str:
        """That an op on the path may have slack, if it comes before a wait in turn.

        The path is of ``whole`` ns. Whoever comes earlier to a link or a memory that
        is taken by others waits longer there.
        """
        waited = sum(self.totals.get(what, 0.0) for what in _IN_TURN)
        if waited < _WORTH * whole:
            return ""
        return (
            f"{waited / whole:.1%} of it are waits behind the bytes of others: less of "
            "what comes before one may only make that longer, which "
            "`kernbench trace whatif FILE` knows"
        )


class _Waits(NamedTuple):
    """Waits that do not overlap, t0 to t1 ns, by time; rows of ``Trace.waits``."""

    t0: Floats
    t1: Floats
    row: Ints


class _Owners(NamedTuple):
    """Whose wait each part of the path may be, a value a node of the path.

    ``owner`` is the row of an op, or the number of ops and the row of a call (-1: of
    neither); the wait must lie between ``begin`` and ``end`` (ns).
    """

    owner: Ints
    begin: Floats
    end: Floats


class _Pieces(NamedTuple):
    """The path in pieces, the i-th from times[i] to times[i + 1] ns.

    There is one time more than there are pieces. ``what`` is a place in WHATS; ``op``
    and ``call`` are rows, ``node`` a node index; -1 stands for none.
    """

    times: Floats
    what: Ints
    op: Ints
    call: Ints
    node: Ints


class CriticalIndex:
    """Answers about the critical path and about slack, from one graph.

    The graph is made by one thread, the worker of lane "columns", when it is first
    asked for: some 3 s for a million ops. No other thread may ask. It is whole when it
    is assigned, so that a computation which is cancelled leaves what was there.
    """

    def __init__(self, trace: Trace, ops: OpIndex) -> None:
        self._trace = trace
        self._ops = ops
        self._graph: Graph | None = None

    def slack(self, position: int, progress: Progress = no_progress) -> float:
        """How much later the op at a position could end without moving the end, ns.

        The end is that of the last launch (of the run, if there is none); inf for an op
        that ends after it.
        """
        row = self._trace.order[position]
        slack = self._made_graph(progress, with_slack=True).slack
        assert slack is not None
        return float(slack[row])

    def path(self, count: int = 20, progress: Progress = no_progress) -> CriticalPath:
        """The path, with its ``count`` longest steps."""
        graph = self._made_graph(stage(progress, 0.0, 0.9))
        if not graph.t1 > graph.t0:
            return _empty(graph.t0, graph.t1)
        nodes = self._chain(graph, stage(progress, 0.9, 0.95))
        return computed_beside(
            lambda: self._answer(graph, self._pieces(graph, nodes), count),
            progress,
            0.95,
        )

    def _made_graph(self, progress: Progress, with_slack: bool = False) -> Graph:
        """The graph; one without slack is made anew when that is asked for."""
        graph = self._graph
        if graph is None or (with_slack and graph.slack is None):
            graph = build_graph(self._trace, self._ops, progress, with_slack)
            self._graph = graph
        return graph

    def _chain(self, graph: Graph, progress: Progress) -> Ints:
        """The nodes of the path, from the first to the last.

        The last is the end of the launch that ended last, or of the op, if there is no
        launch; see ``Graph.ends``. A node that has no cause is the first.
        """
        progress(0.0)
        moments = graph.moments
        times = moments.times
        cause = graph.cause
        node = int(graph.ends[np.argmax(times[graph.ends])])
        chain = []
        while node != _NONE:
            chain.append(node)
            if len(chain) % _NODES == 0:
                progress(0.0)
            node = int(cause[node]) if times[node] > graph.t0 else _NONE
        return np.array(chain[::-1])

    # -- pieces --

    def _pieces(self, graph: Graph, nodes: Ints) -> _Pieces:
        """The path in pieces, cut where a node comes and where a wait begins or ends.

        What a node's cause asks for ends a little before it, if no edge explains when
        it came: the rest is a piece of its own. Pieces shorter than SAME_NS are left
        out.
        """
        trace = self._trace
        moments = graph.moments
        ends = np.maximum(moments.times[nodes], graph.t0)
        begins = np.append(graph.t0, ends)[: len(ends)]
        rest = np.where(graph.rest[nodes] < SAME_NS, 0.0, graph.rest[nodes])
        middles = np.maximum(ends - rest, begins)
        op_of_node = moments.ops_at(nodes)
        call_of_node = moments.calls_at(nodes)

        owner = np.where(call_of_node < 0, op_of_node, moments.op_count + call_of_node)
        soft = np.where(moments.is_op_end(nodes), begins, middles)
        waits = self._waits(_Owners(owner, soft, ends), graph)
        cuts = [[graph.t0, graph.t1], middles, ends, waits.t0, waits.t1]
        times = np.unique(np.concatenate(cuts))
        times = times[(times >= graph.t0) & (times <= graph.t1)]
        times = np.append(times[:-1][np.diff(times) > SAME_NS], graph.t1)
        halfway = (times[1:] + times[:-1]) / 2

        half = np.searchsorted(np.stack([middles, ends], 1).ravel(), halfway)
        half = np.minimum(half, 2 * len(nodes) - 1)
        at = half // 2
        is_rest = half % 2 == 1
        op = op_of_node[at]
        call = call_of_node[at]
        pushed = _taken(named(trace, "ipcq_copy"), op, False)
        unexplained = np.where(pushed, SET_UP, UNEXPLAINED)
        what = np.where(is_rest, unexplained, graph.what[nodes[at]])
        call = np.where(call < 0, _taken(graph.call_of_op, op, _NONE), call)

        near = np.searchsorted(waits.t0, halfway, side="right") - 1
        waiting = _taken(waits.t1, near, -np.inf) > halfway
        wait = np.where(waiting, _taken(waits.row, near, _NONE), _NONE)
        reason = _taken(trace.waits.reason, wait, 0) + FIRST_REASON
        what = np.where(waiting, reason, what)
        # A launch is no call's work: its first call only began behind it.
        op = np.where(what == LAUNCH, _NONE, op)
        call = np.where(what == LAUNCH, _NONE, call)

        issuer = _taken(trace.commands.pe, call, _NONE)
        node = np.where(op >= 0, _taken(trace.op_columns.component, op, _NONE), issuer)
        node = np.where(what == ISSUE, issuer, node)
        node = np.where(waiting, _taken(trace.waits.node, wait, _NONE), node)
        return _Pieces(times, what, op, call, node)

    def _waits(self, owners: _Owners, graph: Graph) -> _Waits:
        """The waits of ops and of calls held, cut to what of the path they may explain.

        An op's wait belongs to it by its row. A wait that a call had at its own PE_CPU,
        as it was held in program order, belongs to the call. At any time there is one
        at most, the one that began first.
        """
        trace = self._trace
        waits = trace.waits
        log = trace.commands
        count = graph.moments.op_count
        low = np.full(count + len(log.cmd) + 1, np.inf)
        high = np.full(count + len(log.cmd) + 1, -np.inf)
        known = owners.owner >= 0
        np.minimum.at(low, owners.owner[known], owners.begin[known])
        np.maximum.at(high, owners.owner[known], owners.end[known])

        every = np.arange(len(waits.cmd))
        of_op = np.where(waits.row[:] >= 0, waits.row[:], _NONE)
        call = rows_of_calls(trace, waits.cmd[:])
        held = (call >= 0) & (_taken(log.pe, call, 0) == waits.node[:])
        row = np.concatenate([every, np.flatnonzero(held)])
        owner = np.append(of_op, count + call[held])
        t0 = np.maximum(waits.t0[row], low[owner])
        t1 = np.minimum(waits.t1[row], high[owner])

        some = np.flatnonzero(t1 > t0 + SAME_NS)
        some = some[np.argsort(t0[some], kind="stable")]
        t1 = np.maximum.accumulate(t1[some])
        t0 = np.maximum(t0[some], np.append(-np.inf, t1)[: len(some)])
        left = t1 > t0
        return _Waits(t0[left], t1[left], row[some][left])

    # -- the answer --

    def _answer(self, graph: Graph, pieces: _Pieces, count: int) -> CriticalPath:
        """The answer, with the ``count`` steps that took longest in all."""
        trace = self._trace
        lines, line_of_call = kernel_lines(trace)
        texts = [*lines, ""]
        site = _taken(line_of_call, pieces.call, len(lines))
        keys = ((pieces.what * len(texts) + site) << 32) + pieces.node
        step, times = repeated_steps(keys)
        ns = np.diff(pieces.times)
        total = np.bincount(step, ns)
        first = np.unique(step, return_index=True)[1]
        last = len(step) - 1 - np.unique(step[::-1], return_index=True)[1]
        ops = _taken(trace.position, pieces.op, _NONE)
        nodes = [*trace.node_ids, ""]

        longest = np.argsort(-total, kind="stable")[:count]
        steps = []
        for number in np.sort(longest).tolist():
            piece = first[number]
            steps.append(
                Step(
                    t0=float(pieces.times[piece]),
                    t1=float(pieces.times[last[number] + 1]),
                    ns=float(total[number]),
                    times=int(times[piece]),
                    what=WHATS[pieces.what[piece]],
                    op=int(ops[piece]),
                    node=nodes[pieces.node[piece]],
                    site=texts[site[piece]],
                )
            )
        for array in (pieces.times, pieces.what, ops):
            array.setflags(write=False)
        return CriticalPath(
            t0=graph.t0,
            t1=graph.t1,
            totals=_largest(WHATS, np.bincount(pieces.what, ns, len(WHATS))),
            by_line=_largest(texts, np.bincount(site, ns)),
            steps=tuple(steps),
            left_out=len(total) - len(steps),
            times=pieces.times,
            whats=pieces.what,
            ops=ops,
            part=_part(trace),
        )


def repeated_steps(keys: Ints) -> tuple[Ints, Ints]:
    """Of each piece the number of its step, and how many pieces that has.

    Pieces with equal keys are one step, as the rounds of a loop are; steps are numbered
    in the order in which they come first.
    """
    _, first, which, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    number = np.argsort(np.argsort(first))
    return number[which], counts[which]


def _empty(t0: float, t1: float) -> CriticalPath:
    """The path of a trace in which nothing happened."""
    times = np.array([t0])
    none = np.empty(0, np.int64)
    for array in (times, none):
        array.setflags(write=False)
    return CriticalPath(t0, t1, {}, {}, (), 0, times, none, none)


def _part(trace: Trace) -> str:
    """What of a run its critical path is about, in words; nothing where it is all."""
    part = part_of_run(trace)
    left_out = len(launches_not_ended(trace)) if trace.launches else 0
    if not left_out:
        return part
    what = "a launch that has" if left_out == 1 else f"{left_out:,} launches that have"
    return f"{part}; without {what} not ended"


def _taken(column: Column, rows: Ints, missing: float) -> Array:
    """The values of a column in some rows; ``missing`` for a row of -1."""
    found = np.full(len(rows), missing)
    known = rows >= 0
    found[known] = column[rows[known]]
    return found


def _largest(names: Sequence[str], ns: Array) -> dict[str, float]:
    """Name -> ns, the largest first, without those of no name or no time."""
    found = {}
    for place in np.argsort(-ns, kind="stable").tolist():
        if ns[place] and names[place]:
            found[names[place]] = float(ns[place])
    return found

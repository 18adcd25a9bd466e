"""The critical path: the chain of ops, waits and issues that sets the end; the slack of every op.

Both come from one graph. Its nodes are moments: an op's start and end, a call's return, a launch's
start and end. An edge says that one moment cannot come before another; its gap is how much later
than that alone asks for it came. The path goes back by the edges of no gap.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.common.progress import Progress, no_progress
from kernbench.replay.text import table, time_text, wrapped
from kernbench.replay.time.routes import issue_ns, spec_number
from kernbench.replay.time.timeline import CLASSES, Timelines
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import integers, kernel_lines, named, tile_columns

Edges: TypeAlias = Iterator[
    tuple[Any, Any, Any, Any]
]  # from, to, gap, what is between them

# what a piece of the path is: an op of a class in service, a wait, a call being issued, …
WHATS = (*CLASSES.values(), *WAIT_REASONS, "issue", "host", "set-up", "unexplained")
_REASONS = len(CLASSES)  # the first of the waits
_ENGINE, _OPERAND, _LAUNCH = (
    WHATS.index(what) for what in ("engine", "operand", "launch")
)
_ISSUE, _HOST, _SET_UP, _UNEXPLAINED = range(len(WHATS) - 4, len(WHATS))
_HINTS = {
    **dict.fromkeys(("gemm", "math"), "pe.clock_ghz"),
    **dict.fromkeys(("dma read", "dma write"), "pe.dma.setup_ns"),
    "fetch": "pe.tcm.read_bw_gbs",
    "store": "pe.tcm.write_bw_gbs",
    "issue": "pe.cpu.issue_cycles",
    "link": "router.link_bw_gbs",
    "hbm_channel": "cube.hbm.channel_bw_gbs",
}
_EPS = 1e-6  # ns: times that are closer are one
_CHUNK = 1 << 12  # edges between two tells, that take about 1 ms
_PART = 1 << 18  # nodes or edges that numpy works on between two tells


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the path that came ``times`` times from t0 to t1, ``ns`` in all.

    ``op`` is the first one's (-1: none), ``node`` where it was served, issued or waited.
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
    """From t0 to t1 (ns): piece i lasts from times[i] to times[i + 1].

    ``whats`` are numbers of WHATS, ``ops`` positions (-1: none). ``totals`` and ``by_line`` are ns
    by what and by kernel line; ``steps`` are the longest pieces, repetitions as one.
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

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        whole, most = max(self.t1 - self.t0, _EPS), next(iter(self.totals), "")
        lines = [
            f"critical path of {time_text(whole)}, {self.t0:.2f} to {self.t1:.2f} ns"
        ]
        shares = [*self.totals.items(), *list(self.by_line.items())[:8]]
        lines += [f"{ns / whole:>7.1%} {ns:>12.2f} ns  {what}" for what, ns in shares]
        if field := _HINTS.get(most):
            what_if = f"what if: kernbench run … --spec {field}=…, then trace compare"
            lines += wrapped(f"most of it is {most}; {what_if}", width, 2)
        names = f"t0 {'t1 ' * (width >= 100)}ns times what op node site"
        lines += table(self.steps, names, width=width) if self.steps else []
        return lines + ([f"({self.left_out:,} shorter steps)"] if self.left_out else [])


class Critical:
    """The graph of a trace.

    ``slack`` (ns, by row) is how much later an op could end without moving the end of the last
    launch (of the run, if there is none); inf for what ends after it.
    """

    def __init__(
        self, trace: Trace, timelines: Timelines, progress: Progress = no_progress
    ) -> None:
        ops, calls, launches = trace.op_columns, trace.commands, trace.launches
        self._trace = trace
        self._class = timelines.codes(np.arange(len(ops.cmd))).astype(np.int64)
        self.t0 = min((x.t_start for x in launches), default=0.0)
        ends = [x.t_end for x in launches] or ops.t_end[:]
        self.t1 = float(np.max(ends, initial=0.0))
        # ends of ops, starts of launches, returns of calls, ends of launches, starts of ops from
        # last to first: of two nodes at one time the first may cause the second, not the reverse
        spans = np.array([(x.t_start, x.t_end) for x in launches]).reshape(-1, 2).T
        parts = ops.t_end, spans[0], calls.t_resume, spans[1], ops.t_start[::-1]
        self._first, self._times = (
            np.cumsum([0, *map(len, parts)]),
            np.concatenate(parts),
        )
        self._own = Groups(calls.cmd).first(ops.cmd)
        progress(0.1)
        rank = np.empty(len(self._times), np.int32)
        rank[np.argsort(self._times, kind="stable")] = np.arange(
            len(rank), dtype=np.int32
        )
        edges = [*zip(*(_forward(rank, *some) for some in self._edges()), strict=True)]
        what, gap, v, u = (
            np.concatenate(edges.pop()) for _ in range(4)
        )  # each part is let go of
        progress(0.4)
        self._rest = np.full(
            len(rank), np.inf
        )  # the delay that no edge into a node explains
        for low in range(0, len(v), _PART):
            progress(0.4)
            np.minimum.at(self._rest, v[low : low + _PART], gap[low : low + _PART])
        gap -= self._rest[v]
        self._cause = np.full(
            (2, len(rank)), -1, np.int32
        )  # of each node: a node, and a what
        binding = np.flatnonzero(gap < _EPS)
        self._cause[:, v[binding]] = u[binding], what[binding]
        del binding, what
        order = np.argsort(-rank[v]).astype(np.int32)
        progress(0.5)
        late = self.t1 - self._times
        slack = array("d")
        for low in range(0, len(late), _PART):
            progress(0.5)
            part = late[low : low + _PART]
            slack.frombytes(
                np.where(part > -_EPS, np.maximum(part, 0.0), np.inf).tobytes()
            )
        for low in range(
            0, len(order), _CHUNK
        ):  # backward over the edges, from the latest
            some = order[low : low + _CHUNK]
            for a, b, more in zip(
                *(column[some].tolist() for column in (u, v, gap)), strict=True
            ):
                if (room := slack[b] + more) < slack[a]:
                    slack[a] = room
            progress(0.5 + 0.5 * low / len(order))
        self.slack = np.frombuffer(slack, np.float64, int(self._first[1])).copy()

    # -- edges: of several that bind a node, the path takes the last --

    def _edges(self) -> Edges:
        ops, calls, first = self._trace.op_columns, self._trace.commands, self._first
        row, own, t0, t1 = np.arange(first[1]), self._own, ops.t_start, ops.t_end
        start = len(self._times) - 1 - row
        yield from self._in_turn(row, (ops.slot[:], ops.component[:]), _ENGINE)
        issuer, issued, what, last = self._issuers()
        yield issuer, first[2] + np.arange(len(issuer)), calls.t_resume - issued, what
        parent, tile = tile_columns(self._trace)
        mine = np.flatnonzero((own >= 0) & (parent < 0))
        yield (
            issuer[own[mine]],
            start[mine],
            t0[mine] - issued[own[mine]],
            what[own[mine]],
        )
        mine = np.flatnonzero(parent >= 0)
        of = parent[mine]
        yield start[of], start[mine], t0[mine] - t0[of], _OPERAND
        yield mine, of, t1[of] - t1[mine], _OPERAND
        tiled, slot = np.flatnonzero(tile >= 0), self._slots()
        yield from self._in_turn(tiled, (tile[tiled], ops.cmd[tiled]), _OPERAND)
        some = np.flatnonzero(slot)
        yield from self._in_turn(
            some, (slot[some],), _OPERAND
        )  # send, recv, send … of a ring slot
        yield from self._waited()
        served = np.flatnonzero(
            np.bincount(of, minlength=len(row)) == 0
        )  # others end with tiles
        yield start[served], served, np.zeros(len(served)), self._class[served]
        mine = np.flatnonzero(own >= 0)
        mine = mine[last[own[mine]] >= 0]
        by = last[own[mine]]
        yield mine, first[2] + by, calls.t_resume[by] - t1[mine], _OPERAND
        yield from self._awaited(np.flatnonzero((parent < 0) & (ops.cmd != NO_CMD)))
        yield from self._launched(last)

    def _in_turn(self, rows: Ints, keys: tuple[Array, ...], what: int) -> Edges:
        """Each of ``rows`` after the one before it of the same keys."""
        ops = self._trace.op_columns
        order = np.lexsort((ops.t_start[rows], *keys))
        same = np.all([key[order][1:] == key[order][:-1] for key in keys], axis=0)
        a, b = rows[order[:-1][same]], rows[order[1:][same]]
        yield a, len(self._times) - 1 - b, ops.t_start[b] - ops.t_end[a], what

    def _issuers(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Of each call: the node after which it comes, when it has issued, as what that time
        counts, and the last call of its kernel (-1 of the host's).
        """
        calls, first, trace = self._trace.commands, self._first, self._trace
        kernel = calls.launch >= 0
        turn = np.lexsort((calls.launch, calls.pe))
        same = np.diff(calls.launch[turn]) == 0
        same &= np.diff(calls.pe[turn].astype(np.int64)) == 0
        same &= kernel[turn[1:]]
        numbers = np.array([x.launch for x in trace.launches], np.int64)
        issuer = np.where(kernel, Groups(numbers).first(calls.launch), -1)
        issuer[issuer >= 0] += first[1]
        issuer[turn[1:][same]] = first[2] + turn[:-1][same]
        free = issuer < 0  # of the host, or of a launch that never ended
        issuer[free] = self._host_before(calls.t_issue[free])
        ends = turn[np.append(~same, True)[: len(turn)]]  # of each kernel its last call
        last = np.empty(len(turn), np.int64)
        last[turn] = ends[np.cumsum(np.append(False, ~same))[: len(turn)]]
        last[~kernel] = -1
        late = calls.t_issue > self._times[issuer] + _EPS if len(turn) else kernel
        what = np.where(kernel, np.where(late, _LAUNCH, _ISSUE), _HOST)
        return issuer, calls.t_issue + issue_ns(trace.spec) * kernel, what, last

    def _host_before(self, times: Floats) -> Ints:
        """The last return of a host transfer or end of a launch by each of ``times`` (-1: none)."""
        calls, first = self._trace.commands, self._first
        moved = np.append(calls.launch < 0, False)
        moved[:-1] &= np.bincount(self._own + 1, minlength=len(moved))[1:] > 0
        nodes = np.flatnonzero(moved) + first[2]
        nodes = np.concatenate([nodes, np.arange(first[3], first[4]), [-1]])
        when = np.append(self._times[nodes[:-1]], -np.inf)
        order = np.argsort(when, kind="stable")
        return nodes[order[np.searchsorted(when[order], times + _EPS) - 1]]

    def _launched(self, last: Ints) -> Edges:
        """A launch comes after what the host did before, and ends with the last of its kernels."""
        calls, first, launches = self._trace.commands, self._first, self._trace.launches
        number, issued = (
            np.array([(x.launch, x.t_issue) for x in launches]).reshape(-1, 2).T
        )
        count, exits = len(launches), np.unique(last[last >= 0])
        yield (
            self._host_before(issued),
            first[1] + np.arange(count),
            np.zeros(count),
            _HOST,
        )
        of = Groups(number.astype(np.int64)).first(calls.launch[exits])
        exits, of = exits[of >= 0], of[of >= 0]
        gap = self._times[first[3] + of] - calls.t_resume[exits]
        yield first[2] + exits, first[3] + of, gap, _OPERAND

    def _slots(self) -> Ints:
        """Of each op the address of the ring slot that it fills or empties (0: none)."""
        slot = np.zeros(self._first[1], np.int64)
        ends = {"ipcq_copy": "dst_addr", "ipcq_recv": "src_addr"}
        for block in self._trace.param_blocks():
            found = integers(block)
            if (end := ends.get(block.schema.name)) in found:
                slot[block.rows] = found[str(end)]
        return slot

    def _waited(self) -> Edges:
        """What was waited for before service has ended; one held in program order has started."""
        ops, calls, waits = (
            self._trace.op_columns,
            self._trace.commands,
            self._trace.waits,
        )
        some = np.flatnonzero((waits.row >= 0) & (waits.holder >= 0))
        row, holder, t1 = waits.row[some], waits.holder[some], waits.t1[some]
        what, final = (
            _REASONS + waits.reason[some].astype(np.int64),
            len(self._times) - 1,
        )
        ended = ops.t_end[holder] <= t1 + _EPS
        cause = np.where(ended, holder, final - holder)
        gap = np.where(ended | (ops.t_start[holder] <= t1), ops.t_start[row] - t1, -1.0)
        yield cause, final - row, gap, what
        held = np.flatnonzero((what == _OPERAND) & (self._own[row] >= 0))
        call = self._own[row[held]]
        held, call = held[same := calls.pe[call] == waits.node[some][held]], call[same]
        yield (
            cause[held],
            self._first[2] + call,
            calls.t_resume[call] - t1[held],
            what[held],
        )

    def _awaited(self, rows: Ints) -> Edges:
        """A call returns when the ops that it awaits have ended, a send when its bytes left."""
        ops, calls, spec = (
            self._trace.op_columns,
            self._trace.commands,
            self._trace.spec,
        )
        awaited = np.where(calls.launch < 0, calls.cmd, calls.awaits)
        place, by = Groups(awaited).join(ops.cmd[rows])
        mine = rows[place]
        back, node = calls.t_resume[by], self._first[2] + by
        left = np.flatnonzero(back < ops.t_end[mine] - _EPS)
        sent = ops.nbytes[mine] / (
            spec_number(spec, "pe.dma.to_router_bw_gbs") or np.inf
        )
        gap = (back - ops.t_start[mine] - sent)[left]
        yield (
            len(self._times) - 1 - mine[left],
            node[left],
            gap,
            self._class[mine[left]],
        )
        yield mine, node, back - ops.t_end[mine], _OPERAND

    # -- the path --

    def path(self, count: int = 20) -> CriticalPath:
        """The path, with its ``count`` longest steps."""
        trace, first, times = self._trace, self._first, self._times
        ops, calls, waits = trace.op_columns, trace.commands, trace.waits
        if not self.t1 > self.t0:
            none = np.empty(0, np.int64)
            return CriticalPath(
                self.t0, self.t1, {}, {}, (), 0, np.array([self.t0]), none, none
            )
        low, high = first[3:5] if trace.launches else first[:2]
        cause, chain = self._cause[0], [low + int(np.argmax(times[low:high]))]
        while times[chain[-1]] > self.t0 and (before := int(cause[chain[-1]])) >= 0:
            chain.append(before)
        nodes = np.array(chain[::-1])  # by time
        # of each node two pieces: what its cause asks for, and the rest
        ends = np.maximum(times[nodes], self.t0)
        begins = np.append(self.t0, ends)[: len(ends)]
        rest = np.where(self._rest[nodes] < _EPS, 0.0, self._rest[nodes])
        middles = np.maximum(ends - rest, begins)
        op = np.select(
            [nodes < first[1], nodes >= first[4]], [nodes, len(times) - 1 - nodes], -1
        )
        call = np.where((nodes >= first[2]) & (nodes < first[3]), nodes - first[2], -1)
        soft = np.where(nodes < first[1], begins, middles)
        t0, t1, wait = self._waits(np.where(call < 0, op, first[1] + call), soft, ends)
        at = np.unique(np.concatenate([[self.t0, self.t1], middles, ends, t0, t1]))
        at = at[(at >= self.t0) & (at <= self.t1)]
        at = np.append(at[:-1][np.diff(at) > _EPS], self.t1)
        half = (at[1:] + at[:-1]) / 2
        piece = np.searchsorted(np.stack([middles, ends], 1).ravel(), half)
        piece = np.minimum(piece, 2 * len(nodes) - 1)
        op, call, what = (
            op[piece // 2],
            call[piece // 2],
            self._cause[1, nodes[piece // 2]],
        )
        copied = np.append(named(trace, "ipcq_copy"), False)[
            op
        ]  # PE_DMA's, before service
        what = np.where(piece % 2, np.where(copied, _SET_UP, _UNEXPLAINED), what)
        call = np.where(call < 0, np.append(self._own, -1)[op], call)
        near = np.searchsorted(t0, half, side="right") - 1
        inside = np.append(t1, -np.inf)[near] > half
        near = np.append(wait, -1)[near]
        what = np.where(inside, np.append(waits.reason, 0)[near] + _REASONS, what)
        node = np.where(
            op >= 0, np.append(ops.component, 0)[op], np.append(calls.pe, 0)[call]
        )
        node = np.where(what == _ISSUE, np.append(calls.pe, 0)[call], node)
        node = np.where(inside, np.append(waits.node, 0)[near], node)
        node = np.where((op < 0) & (call < 0) & ~inside, -1, node)
        return self._told(count, at, what, op, call, node)

    def _waits(
        self, owner: Ints, begins: Floats, ends: Floats
    ) -> tuple[Floats, Floats, Ints]:
        """Waits of ops and held calls, cut to the pieces that they may explain; one at a time."""
        calls, waits, n = self._trace.commands, self._trace.waits, self._first[1]
        low, high = np.full((2, n + len(calls.cmd) + 1), [[np.inf], [-np.inf]])
        known = owner >= 0
        np.minimum.at(low, owner[known], begins[known])
        np.maximum.at(high, owner[known], ends[known])
        call = Groups(calls.cmd).first(waits.cmd)
        held = (call >= 0) & (np.append(calls.pe, 0)[call] == waits.node)
        wait = np.concatenate([np.arange(len(call)), np.flatnonzero(held)])
        whose = np.append(np.where(waits.row >= 0, waits.row, -1), n + call[held])
        t0, t1 = (
            np.maximum(waits.t0[wait], low[whose]),
            np.minimum(waits.t1[wait], high[whose]),
        )
        some = np.flatnonzero(t1 > t0 + _EPS)
        some = some[np.argsort(t0[some], kind="stable")]
        t0, t1, wait = t0[some], np.maximum.accumulate(t1[some]), wait[some]
        t0 = np.maximum(t0, np.append(-np.inf, t1)[: len(t0)])
        return t0[t1 > t0], t1[t1 > t0], wait[t1 > t0]

    def _told(
        self, count: int, at: Floats, what: Ints, op: Ints, call: Ints, node: Ints
    ) -> CriticalPath:
        trace, ns = self._trace, np.diff(at)
        texts, sites = kernel_lines(trace)
        texts, site = [*texts, ""], np.append(sites, len(texts))[call]
        keys = ((what * len(texts) + site) << 32) + node
        step, times = _steps(keys)
        total = np.bincount(step, ns)
        first = np.unique(step, return_index=True)[1]
        last = len(step) - 1 - np.unique(step[::-1], return_index=True)[1]
        nodes, op = [*trace.node_ids, ""], np.append(trace.position, -1)[op]
        steps = []
        for n in np.sort(np.argsort(-total, kind="stable")[:count]).tolist():
            i = first[n]
            where = int(op[i]), nodes[node[i]], texts[site[i]]
            span = float(at[i]), float(at[last[n] + 1]), float(total[n]), int(times[i])
            steps.append(Step(*span, WHATS[what[i]], *where))
        totals = _largest(WHATS, np.bincount(what, ns, len(WHATS)))
        lines = _largest(texts, np.bincount(site, ns))
        more = len(total) - len(steps)
        return CriticalPath(
            self.t0, self.t1, totals, lines, tuple(steps), more, at, what, op
        )


def _forward(
    rank: Array, u: Array, v: Array, gap: Array, what: Any
) -> tuple[Array, ...]:
    """Of some edges those that lead from a node to a later one, in little room."""
    kept = np.flatnonzero((u >= 0) & (gap > -_EPS) & (rank[u] < rank[v]))
    ends = u[kept].astype(np.int32), v[kept].astype(np.int32)
    whats = np.broadcast_to(what, u.shape)[kept].astype(np.uint8)
    return *ends, np.maximum(gap[kept], 0.0), whats


def _largest(names: Sequence[str], ns: Array) -> dict[str, float]:
    order = np.argsort(-ns, kind="stable").tolist()
    return {names[i]: float(ns[i]) for i in order if ns[i] and names[i]}


def _steps(keys: Ints) -> tuple[Ints, Ints]:
    """Of each piece the number of its step, which has all pieces alike, and how many these are."""
    _, first, which, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    return np.argsort(np.argsort(first))[which], counts[which]

"""Ops that program order would hold back on another machine, and did not hold before.

A PE holds a command until a cycle after every earlier one has started that touches the
same bytes, if one of the two writes them (docs/machine.md, "Program order"). A trace
says of those that were held what they waited for. On another machine the earlier one
may start later, and what came behind it unheld would be held. Edges of a graph know
nothing of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.machine import Machine
from kernbench.sim_engine.accesses import Access, accesses
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import named, tile_columns

_MOST_PAIRS = 4096
"""Pairs of ops of which the bytes are compared; more take too long."""

_NONE = -1


class _Started(NamedTuple):
    """By op in program order, ns: when it counts as started, and up to when it could
    have been held, with the kernel that issues it.
    """

    since: Floats
    until: Floats


class Holds:
    """The ops of a trace that kernels have issued, in program order.

    ``place`` is by node of the graph where a walk has it, ``machine`` the recorded one.
    """

    def __init__(
        self, trace: Trace, graph: Graph, place: Array, machine: Machine
    ) -> None:
        self._trace = trace
        log = trace.commands
        ops = trace.op_columns
        call = Groups(log.cmd[:]).first(ops.cmd[:])
        composite, _ = tile_columns(trace)
        is_mine = (call >= 0) & (composite < 0)
        is_mine[is_mine] = log.launch[call[is_mine]] >= 0
        rows = np.flatnonzero(is_mine)
        mine = call[rows]
        order = np.lexsort((log.cmd[mine], log.launch[mine], log.pe[mine]))
        self._rows = rows[order]
        mine = mine[order]
        pe = log.pe[mine].astype(np.int64)
        begins = np.diff(pe, prepend=_NONE) != 0
        begins |= np.diff(log.launch[mine].astype(np.int64), prepend=_NONE) != 0
        self._kernel = np.cumsum(begins) - 1
        self._start = place[graph.moments.op_start(self._rows)]
        self._return = place[graph.moments.call_return(mine)]
        self._sends = np.flatnonzero(named(trace, "ipcq_copy")[self._rows])
        self._sent = ops.nbytes[self._rows[self._sends]].astype(np.int64)
        self._known: dict[int, list[Access]] = {}
        times = np.empty(graph.nodes)
        times[place] = graph.times
        self._recorded = self._started(times, machine)
        self._recorded_cycle = machine.cycle_ns

    def _started(self, times: Floats, machine: Machine) -> _Started:
        """A send has started when all that it sends has been read."""
        start = times[self._start]
        since = start.copy()
        since[self._sends] += weights.sent(machine, self._sent)
        return _Started(since, np.minimum(start, times[self._return]))

    def held(self, times: Floats, machine: Machine) -> float:
        """For how long the ops of a kernel would be held in all, ns, of the kernel with
        most; inf where so many change places that it takes too long to tell.

        ``times`` are by place on the ``machine``.
        """
        now = self._started(times, machine)
        cycle = machine.cycle_ns
        span = float(now.since.max(initial=0.0)) + 1.0
        latest = np.maximum.accumulate(now.since + self._kernel * span)
        latest = latest - self._kernel * span
        held = np.zeros(len(self._rows))
        pairs = 0
        some = np.arange(1, len(self._rows))
        back = 0
        while len(some):
            back += 1
            some = some[some >= back]
            before = some - back
            here = self._kernel[before] == self._kernel[some]
            here &= latest[before] + cycle > now.until[some] + SAME_NS
            some = some[here]
            before = before[here]
            ns = now.since[before] + cycle - now.until[some]
            moved = (ns > SAME_NS) & self._came_behind(before, some)
            pairs += int(moved.sum())
            if pairs > _MOST_PAIRS:
                return np.inf
            for first, second, late in zip(
                before[moved].tolist(),
                some[moved].tolist(),
                ns[moved].tolist(),
                strict=True,
            ):
                if late > held[second] and self._conflict(first, second):
                    held[second] = late
        return float(np.bincount(self._kernel, held).max(initial=0.0))

    def _came_behind(self, before: Ints, behind: Ints) -> Bools:
        """Where the second of two came when the first had started.

        Of others it is known that they touch no bytes in common: the PE would have held
        the second.
        """
        started = self._recorded.since[before] + self._recorded_cycle
        return np.asarray(started <= self._recorded.until[behind] + SAME_NS)

    def _conflict(self, before: int, behind: int) -> bool:
        """Whether one of two ops writes bytes that the other touches."""
        ours = self._accesses(behind)
        return any(
            _overlap(one, other)
            for one in self._accesses(before)
            for other in ours
            if "w" in (one.mode, other.mode)
        )

    def _accesses(self, place: int) -> list[Access]:
        row = int(self._rows[place])
        if row not in self._known:
            position = int(self._trace.position[row])
            self._known[row] = accesses(self._trace.ops[position])
        return self._known[row]


def _overlap(one: Access, other: Access) -> bool:
    """Whether two accesses have bytes in common."""
    if one.space != other.space:
        return False
    return one.addr < other.addr + other.nbytes and other.addr < one.addr + one.nbytes

"""Ops that program order would hold back on another machine, and did not hold before.

A trace says of those that were held what they waited for. On another machine an earlier
op may start later, and what came behind it unheld would be held. Edges of a graph know
nothing of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.machine import Machine

_MOST_PAIRS = 4096
"""Pairs of ops of which the bytes are compared; more take too long."""


class _Started(NamedTuple):
    """By op in program order, ns: when it counts as started, and up to when it could
    have been held.
    """

    since: Floats
    until: Floats


class Holds:
    """The ops of a graph that kernels have issued, in program order.

    ``place`` is by node of the graph where a walk has it, ``machine`` the recorded one.
    """

    def __init__(self, graph: Graph, place: Array, machine: Machine) -> None:
        self._order = graph.program_order
        self._kernel = self._order.kernel
        self._start = place[graph.moments.op_start(self._order.rows)]
        self._return = place[graph.moments.call_return(self._order.calls)]
        times = np.empty(graph.nodes)
        times[place] = graph.times
        self._recorded = self._started(times, machine)
        self._recorded_cycle = machine.cycle_ns

    def _started(self, times: Floats, machine: Machine) -> _Started:
        start = times[self._start]
        speed = machine.spec.pe.dma.to_router_bw_gbs
        since = self._order.started(start, speed)
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
        held = np.zeros(len(self._kernel))
        pairs = 0
        some = np.arange(1, len(self._kernel))
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
                if late > held[second] and self._order.conflict(first, second):
                    held[second] = late
        return float(np.bincount(self._kernel, held).max(initial=0.0))

    def _came_behind(self, before: Ints, behind: Ints) -> Bools:
        """Where the second of two came when the first had started.

        Of others it is known that they touch no bytes in common: the PE would have held
        the second.
        """
        started = self._recorded.since[before] + self._recorded_cycle
        return np.asarray(started <= self._recorded.until[behind] + SAME_NS)

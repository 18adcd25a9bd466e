"""Whether a re-timing kept an order that the changed machine would not keep.

Links and controllers of HBM serve in the recorded order there. On the changed machine
one may come before another that it came behind, and would be served first. So the walk
is done once more in which it does not wait for that other: if that changes the time of
a launch, the prediction is not sure.
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats
from kernbench.common.exact_time import SAME_NS
from kernbench.replay.whatif.graph import Graph


class Queues:
    """The places of a graph at which one is served behind another.

    ``weight`` are the recorded weights by class, ``place`` is by node where a walk has
    it: all times that are given are by place, so that a walk's need not be put in
    another order first. ``in_turn`` are the edges of which the first to come was the
    first served.
    """

    def __init__(self, graph: Graph, weight: Floats, place: Array) -> None:
        queued = graph.is_queue
        served = np.zeros(graph.nodes, np.bool_)
        served[graph.cause[queued]] = True
        served[graph.effect[queued]] = True
        own = np.flatnonzero(~queued & served[graph.effect])
        effect = graph.effect[own]
        self._first = np.flatnonzero(np.diff(effect, prepend=-1))
        self._own_cause = place[graph.cause[own]]
        self._own_class = np.maximum(graph.weight[own], 0)
        arrives = effect[self._first]
        served[arrives] = False
        alone = np.flatnonzero(served)
        self._alone = place[alone]
        # Where each node's arrival is among those that are found.
        at = np.full(graph.nodes, -1, np.int32)
        at[arrives] = np.arange(len(arrives))
        at[alone] = len(arrives) + np.arange(len(alone))

        times = np.empty(graph.nodes)
        times[place] = graph.times
        recorded = self._arrivals(times, weight)
        edges = np.flatnonzero(queued)
        before = graph.cause[edges]
        behind = graph.effect[edges]
        # Some did so in the recording, as the oldest command is served first.
        in_turn = recorded[at[behind]] > recorded[at[before]] - SAME_NS
        self.in_turn: Array = edges[in_turn]
        self._before = place[before[in_turn]]
        self._before_at = at[before[in_turn]]
        self._behind_at = at[behind[in_turn]]
        self._class = graph.weight[self.in_turn]

        memory = np.flatnonzero(graph.is_memory)
        self._given = place[graph.cause[memory]]
        self._next_at = at[graph.effect[memory]]
        self._busy = weight[graph.weight[memory]]
        self._apart = self._gaps(times, weight)

    def _arrivals(self, times: Floats, weight: Floats) -> Floats:
        """When each would be served if nobody were before it."""
        came = times[self._own_cause] + weight[self._own_class]
        if len(self._first):
            came = np.maximum.reduceat(came, self._first)
        return np.concatenate([came, times[self._alone]])

    def overtaken(self, times: Floats, weight: Floats) -> Array:
        """The edges at which one waits for another that comes after it.

        Those are edges of the graph. Who would not have to wait anyway is left out.
        """
        arrival = self._arrivals(times, weight)
        of_behind = arrival[self._behind_at]
        overtakes: Bools = of_behind < arrival[self._before_at] - SAME_NS
        overtakes &= times[self._before] + weight[self._class] > of_behind + SAME_NS
        return self.in_turn[overtakes]

    def _gaps(self, times: Floats, weight: Floats) -> Floats:
        """How much later than it could be served each comes to a controller of HBM."""
        arrival = self._arrivals(times, weight)[self._next_at]
        return np.asarray(arrival - times[self._given] - self._busy)

    def meets_otherwise(self, times: Floats, weight: Floats, near_ns: float) -> bool:
        """Whether somebody comes to a controller of HBM otherwise behind another than
        it did, and so near that the one is still felt by the other.

        That is where it waits for it, or would if it came ``near_ns`` sooner. How banks
        and rows take up what lies between the two is nothing that a graph knows.
        """
        now = self._gaps(times, weight)
        is_near = np.minimum(self._apart, now) < near_ns + SAME_NS
        moved: Bools = is_near & (np.abs(now - self._apart) > SAME_NS)
        return bool(moved.any())


def collides(graph: Graph, times: Floats) -> bool:
    """Whether two come closer at a server than it can serve them, or in another order.

    They did not in the recording, and nothing in the graph keeps them apart.
    """
    server, node, takes = graph.served
    beside = np.diff(server) == 0
    recorded = np.diff(graph.times[node])
    now = np.diff(times[node])
    least = np.minimum(recorded, takes[1:])
    closer: Bools = beside & (now < least - SAME_NS)
    return bool(closer.any())

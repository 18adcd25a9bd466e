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

    ``weight`` are the recorded weights by class. All times that are given to it are by
    node. ``in_turn`` are the edges of which the first to come was the first served.
    """

    def __init__(self, graph: Graph, weight: Floats) -> None:
        queued = graph.is_queue
        served = np.zeros(graph.nodes, np.bool_)
        served[graph.cause[queued]] = True
        served[graph.effect[queued]] = True
        own = np.flatnonzero(~queued & served[graph.effect])
        self._own_cause = graph.cause[own]
        self._own_class = graph.weight[own]
        effect = graph.effect[own]
        self._first = np.flatnonzero(np.diff(effect, prepend=-1))
        self._arrives = effect[self._first]
        recorded = self.arrivals(graph.times, weight)
        edges = np.flatnonzero(queued)
        before = graph.cause[edges]
        behind = graph.effect[edges]
        # Some did so in the recording, as the oldest command is served first.
        in_turn = recorded[behind] > recorded[before] - SAME_NS
        self.in_turn: Array = edges[in_turn]
        self._before = before[in_turn]
        self._behind = behind[in_turn]
        self._class = graph.weight[self.in_turn]

    def arrivals(self, times: Floats, weight: Floats) -> Floats:
        """By node when it would be served if nobody were before it."""
        found = times.copy()
        if len(self._first):
            came = times[self._own_cause] + weight[np.maximum(self._own_class, 0)]
            found[self._arrives] = np.maximum.reduceat(came, self._first)
        return found

    def overtaken(self, times: Floats, weight: Floats) -> Array:
        """The edges at which one waits for another that comes after it.

        Those are edges of the graph. Who would not have to wait anyway is left out.
        """
        arrival = self.arrivals(times, weight)
        of_behind = arrival[self._behind]
        overtakes: Bools = of_behind < arrival[self._before] - SAME_NS
        overtakes &= times[self._before] + weight[self._class] > of_behind + SAME_NS
        return self.in_turn[overtakes]


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


def meets_otherwise(
    graph: Graph, queues: Queues, times: Floats, weight: Floats, near_ns: float
) -> bool:
    """Whether somebody comes to a controller of HBM otherwise behind another than it
    did, and so near that the one is still felt by the other.

    That is where it waits for it, or would if it came ``near_ns`` sooner. How banks and
    rows take up what lies between the two is nothing that a graph knows.
    """
    edges = np.flatnonzero(graph.is_memory)
    before = graph.cause[edges]
    behind = graph.effect[edges]
    busy = weight[graph.weight[edges]]

    def apart(moments: Floats) -> Floats:
        """How much later the second comes than it could be served, ns."""
        return queues.arrivals(moments, weight)[behind] - moments[before] - busy

    recorded = apart(graph.times)
    now = apart(times)
    is_near = np.minimum(recorded, now) < near_ns + SAME_NS
    moved: Bools = is_near & (np.abs(now - recorded) > SAME_NS)
    return bool(moved.any())

"""Whether a re-timing kept an order that the changed machine would not keep.

Links and controllers of HBM serve in the recorded order there. On the changed machine
one may come before another that it came behind, and would be served first; it may come
closer to another than a server can serve the two, which kept nobody apart in the
recording; it may find other rows open, or the bus turned the other way. The walk knows
nothing of the last three, and of the first only what it costs to wait. What each of
these can cost is compared with how long the launches take (``LEAST_SHARE``,
``CROWDED_SHARE``).

Those shares were chosen by 1,443 predictions about the shipped benches and 1,098 about
six programs that were written to find wrong ones, each held against a run of the
changed machine. Of the latter two are sure and off by more than 1 %; without these
checks some fifty are.
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, numbered, runs_begin
from kernbench.common.exact_time import SAME_NS
from kernbench.common.messages import WAIT_REASONS
from kernbench.replay.whatif.edges import Served
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.walk import Late
from kernbench.trace import Trace

LEAST_SHARE = 0.005
"""Of the time of launches: the most that one that is served in another turn, or meets
another otherwise, may cost for a prediction to be sure."""

CROWDED_SHARE = 0.01
"""Of the same: by how much more than a server can do one may be asked for in all."""

ALONE_SHARE = 0.01
"""Of what transactions take: by how much the formulas of a graph may be off, on average
of those of the host or of the DMAs."""

_CREDIT = WAIT_REASONS.index("credit")
_CREDIT_SHARE = 0.02


class Queues:
    """The places of a graph at which one is served behind another.

    ``weight`` are the recorded weights by class, ``place`` is by node where a walk has
    it: all times that are given are by place, so that a walk's need not be put in
    another order first. Servers from ``links_from`` on are links. ``in_turn`` are the
    edges of which the first to come was the first served.
    """

    def __init__(
        self, graph: Graph, weight: Floats, place: Array, links_from: int
    ) -> None:
        queued = graph.is_queue
        served = np.zeros(graph.nodes, np.bool_)
        turn_before, turn_behind = _turns(graph, links_from)
        served[turn_before] = True
        served[turn_behind] = True
        served[graph.cause[queued]] = True
        served[graph.effect[queued]] = True
        own = np.flatnonzero(~queued & served[graph.effect])
        effect = graph.effect[own]
        self._first = np.flatnonzero(runs_begin(effect))
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
        self._turns_behind = place[turn_before]
        self._turn_at = at[turn_behind]
        self._turned = self._since_turns(times, weight)

    def _arrivals(self, times: Floats, weight: Floats) -> Floats:
        """When each would be served if nobody were before it."""
        came = times.take(self._own_cause)
        came += weight.take(self._own_class)
        if len(self._first):
            came = np.maximum.reduceat(came, self._first)
        return np.concatenate([came, times[self._alone]])

    def overtaken(self, times: Floats, weight: Floats) -> Array:
        """The edges at which one waits for another that comes after it.

        Those are edges of the graph. Who would not have to wait anyway is left out.
        """
        arrival = self._arrivals(times, weight)
        of_behind = arrival.take(self._behind_at)
        comes_first = of_behind < arrival.take(self._before_at) - SAME_NS
        some = np.flatnonzero(comes_first)
        until = times[self._before[some]] + weight[self._class[some]]
        return self.in_turn[some[until > of_behind[some] + SAME_NS]]

    def _gaps(self, times: Floats, weight: Floats) -> Floats:
        """How much later than it could be served each comes to a controller of HBM."""
        arrival = self._arrivals(times, weight)[self._next_at]
        return np.asarray(arrival - times[self._given] - self._busy)

    def met_otherwise(self, times: Floats, weight: Floats, near_ns: float) -> float:
        """By how much somebody comes to a controller of HBM otherwise behind another
        than it did, ns, at most ``near_ns``: the most that anybody does.

        Only where it comes so near that the one is still felt by the other counts: it
        waits for it, or would if it came ``near_ns`` sooner. How banks and rows take up
        what lies between the two is nothing that a graph knows.
        """
        now = self._gaps(times, weight)
        return _most_moved(self._apart, now, np.minimum(self._apart, now), near_ns)

    def _since_turns(self, times: Floats, weight: Floats) -> Floats:
        """How long behind the one before each comes for which the bus turns."""
        arrival = self._arrivals(times, weight)[self._turn_at]
        return np.asarray(arrival - times[self._turns_behind])

    def turned_otherwise(self, times: Floats, weight: Floats, turn_ns: float) -> float:
        """By how much a read comes to a controller of HBM otherwise behind a write than
        it did, or a write behind a read, ns, at most ``turn_ns``: the most that any
        does.

        That is where one comes so near that the bus has to turn for it. Those that wait
        for each other by an edge are left out: ``met_otherwise`` has these.
        """
        now = self._since_turns(times, weight)
        nearest = np.minimum(np.abs(self._turned), np.abs(now))
        return _most_moved(self._turned, now, nearest, turn_ns)


class Engines:
    """The engines at which ops start one behind the other, in the order in which they
    asked.

    Arguments are as those of ``Queues``.
    """

    def __init__(self, graph: Graph, weight: Floats, place: Array) -> None:
        lanes = graph.lanes
        in_lane = np.zeros(graph.nodes, np.bool_)
        in_lane[lanes.before] = True
        in_lane[lanes.behind] = True
        is_own = ~graph.is_slot & in_lane[graph.effect]
        own = np.flatnonzero(is_own)
        effect = graph.effect[own]
        self._first = np.flatnonzero(runs_begin(effect))
        self._cause = place[graph.cause[own]]
        self._class = np.maximum(graph.weight[own], 0)
        at = np.full(graph.nodes, -1, np.int32)
        at[effect[self._first]] = np.arange(len(self._first))
        self._at = at
        slot = np.full(graph.nodes, -1, np.int64)
        slots = np.flatnonzero(graph.is_slot)
        slot[graph.effect[slots]] = slots
        known = (at[lanes.before] >= 0) & (at[lanes.behind] >= 0)
        known &= slot[lanes.behind] >= 0
        pairs = np.flatnonzero(known)

        times = np.empty(graph.nodes)
        times[place] = graph.times
        asked = self._asked(times, weight)
        before = at[lanes.before[pairs]]
        behind = at[lanes.behind[pairs]]
        in_turn = asked[behind] > asked[before] - SAME_NS
        pairs = pairs[in_turn]
        self._before = before[in_turn]
        self._behind = behind[in_turn]
        self._slot = slot[lanes.behind[pairs]]
        self._given_by = place[graph.cause[self._slot]]
        self._given = graph.weight[self._slot]
        self._pool = numbered(lanes.pool[pairs])[1]
        start = lanes.behind[pairs]
        self._start = place[start]
        self._end = place[graph.moments.ops_at(start)]

    def _asked(self, times: Floats, weight: Floats) -> Floats:
        """When each op would start if its engine were free."""
        came = times.take(self._cause)
        came += weight.take(self._class)
        if len(self._first):
            came = np.maximum.reduceat(came, self._first)
        return np.asarray(came)

    def overtaken(
        self, times: Floats, weight: Floats, late: Late | None = None
    ) -> tuple[Array, float]:
        """The edges at which an op waits for a slot of another that asks after it, and
        the most time that such ops take at one engine, ns.

        Those are edges of the graph. Who would not have to wait anyway is left out.
        ``late`` is an op that asks so much later by itself.
        """
        asked = self._asked(times, weight)
        if late is not None and self._at[late.node] >= 0:
            asked[self._at[late.node]] += late.ns
        of_behind = asked[self._behind]
        overtakes: Bools = of_behind < asked[self._before] - SAME_NS
        free = times[self._given_by] + weight[self._given]
        overtakes &= free > of_behind + SAME_NS
        some = np.flatnonzero(overtakes)
        took = times[self._end[some]] - times[self._start[some]]
        most = np.bincount(self._pool[some], took).max(initial=0.0)
        return self._slot[some], float(most)


def awaits_more_than_calls(graph: Graph) -> bool:
    """Whether the host went on later than all that it is known to have awaited.

    It then waited until the machine was idle, with messages under way or slots of rings
    being given back, of which no call says when they are through.
    """
    return bool((graph.rest[graph.host_begins] > SAME_NS).any())


def _most_moved(was: Floats, now: Floats, nearest: Floats, near_ns: float) -> float:
    """The most by which a distance is another now, ns, at most ``near_ns``.

    Only those count of which ``nearest``, then or now, is no more than that.
    """
    is_near = nearest < near_ns + SAME_NS
    moved = np.where(is_near, np.abs(now - was), 0.0)
    most = float(moved.max(initial=0.0))
    return min(most, near_ns) if most > SAME_NS else 0.0


def _turns(graph: Graph, links_from: int) -> tuple[Array, Array]:
    """The nodes of those next to each other at a controller of HBM of which one was a
    read and the other a write, and no edge says that the second waits for the first.

    A write is at a controller when its op ends.
    """
    served = graph.served
    here = np.flatnonzero(served.server < links_from)
    server = served.server[here]
    node = served.node[here]
    is_write = node < graph.moments.op_count
    turn = np.flatnonzero((np.diff(server) == 0) & np.diff(is_write))
    first = node[turn]
    second = node[turn + 1]
    edges = np.flatnonzero(graph.is_memory)
    waits_for = np.full(graph.nodes, -1, np.int64)
    waits_for[graph.effect[edges]] = graph.cause[edges]
    alone = waits_for[second] != first
    return first[alone], second[alone]


def crowding(
    graph: Graph, links_from: int, was: Machine, now: Machine, times: Floats
) -> float:
    """By how much more is asked of a server than it can do, ns, of the one with most.

    ``times`` are by node on the machine ``now``. Servers from ``links_from`` on are
    links, and ports of SRAMs.
    """
    read = was.spec.pe.tcm.read_bw_gbs / now.spec.pe.tcm.read_bw_gbs
    written = was.spec.pe.tcm.write_bw_gbs / now.spec.pe.tcm.write_bw_gbs
    served = graph.served
    on_now = _served_on(served, links_from, was, now)
    return max(
        _crowding(graph, served, served.takes[1:], on_now.takes[1:], times),
        _crowding_at_channels(graph, graph.reads, read, times),
        _crowding_at_channels(graph, graph.writes, written, times),
    )


def _crowding_at_channels(
    graph: Graph, served: Served, slower: float, times: Floats
) -> float:
    """As ``_crowding``, of channels that take so many times as long: each is behind
    all that the one before it moves.
    """
    takes = served.takes[:-1]
    return _crowding(graph, served, takes, takes * slower, times)


def _served_on(served: Served, links_from: int, was: Machine, now: Machine) -> Served:
    """Who was served by links, ports and controllers, with what each takes on a changed
    machine. Links are in the order of ``Trace.edges``, ports of SRAMs behind them.
    """
    takes = served.takes.copy()
    is_link = served.server >= links_from
    edge = served.server[is_link] - links_from
    takes[is_link] *= was.speed_of(edge) / now.speed_of(edge)
    byte_ns = [one.dram.access / one.spec.cube.hbm.access_bytes for one in (was, now)]
    takes[~is_link] *= byte_ns[1] / byte_ns[0]
    return served._replace(takes=takes)


def _crowding(
    graph: Graph, served: Served, was: Floats, now: Floats, times: Floats
) -> float:
    """By how much more is asked of a server of a kind than it can do, ns.

    ``was`` and ``now`` say how far apart it serves each and the next one. Nothing in
    the graph keeps those apart. Who were served closer than that in the recording, as
    bursts of several were taken in turns, may come as close again, as far as serving
    takes longer now.
    """
    slower = np.maximum(now / np.maximum(was, 1e-12), 1.0)
    recorded = np.diff(graph.times[served.node])
    least = np.minimum(recorded * slower, now)
    late = least - np.diff(times[served.node])
    counts: Bools = (np.diff(served.server) == 0) & (late > SAME_NS)
    return float(np.bincount(served.server[1:][counts], late[counts]).max(initial=0.0))


def waits_for_credit(trace: Trace) -> bool:
    """Whether messages waited for a free slot of a ring for a time that counts.

    Which of them waits for which then is more than a graph of what was recorded knows.
    """
    waits = trace.waits
    held = waits.reason[:] == _CREDIT
    ns = float((waits.t1[:][held] - waits.t0[:][held]).sum())
    return ns > _CREDIT_SHARE * sum(x.t_end - x.t_start for x in trace.launches)

"""A graph re-timed in turns: each server takes who comes to it first.

The walk (walk.py) keeps the order in which engines, links and controllers of HBM have
served. If an op is late, others go before it. Here everything happens in the order of
time: an op asks for its engine when its causes let it, and gets a slot when one is
free; at links and controllers who comes first goes first. Where the recording served
somebody later who came sooner, as the oldest command is served first, that lead is
kept. Nothing late gives what was recorded. On another machine each takes what it takes
there, and who comes first may be another.

Data go burst by burst over links and through controllers of HBM (deliveries.py), where
that gives just what was recorded. Where it does not, what a server gave two that follow
each other is as recorded, and if others follow each other now it is what the first one
takes at least: that knows nothing of channels, banks and rows, nor of how bursts of
several transactions took turns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from copy import copy
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.exact_time import SAME_NS, exact_ns
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.replay.time.critical_edges import pools
from kernbench.replay.whatif.certainty import Queues
from kernbench.replay.whatif.deliveries import (
    Action,
    Age,
    Deliveries,
    Sent,
    ages_of,
    known_of,
    sent_on,
    turns_of,
)
from kernbench.replay.whatif.edges import Served
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.instants import in_turn, places, slots_in_order
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.walk import Late
from kernbench.replay.whatif.weights import set_up_by
from kernbench.trace import Trace
from kernbench.trace.hops import rows_of_calls, tile_composites

MOST_EDGES = 1 << 16
"""A graph of at most so many edges is small enough to be re-timed in turns."""

_NODES = 1 << 8
"""Nodes, and what moves do, between two calls of progress: some ms."""

_Server: TypeAlias = tuple[int, int]
"""A kind of servers, and the number of one."""

_LINKS = 0
_READS = 1
_WRITES = 2
"""Kinds of servers: links and controllers, channels for reads, those for writes."""

_NONE = -1
_FIRST_ACTION = -(1 << 62)
"""The number of what moves do: less than that of any node, and counted upwards."""

_LEFT = -2.0
_BEGINS = -1.0
_MOVES = inf
"""Of what happens at one time in one PE: who leaves an engine is before all that ask.
Then come moves that begin, in the order in which they did, and pushes, which do so as
they start; then all nodes, and what moves do on their way is last.
"""


class Turns:
    """A trace's graph, ready to be re-timed in turns; ``weight`` is by class.

    It is for small graphs: a node takes some us, and 1 KB. ``end`` is when the launches
    ended, or the run if there is none, ns. ``explains`` says that, with nothing late,
    all data land and all moments come as they were recorded.

    Behind the nodes of the graph is one for each move that data make: it begins there.
    ``_begins`` is by such a node what it sends, ``_lands`` by op how many of its moves
    have to land. A push waits for the credit of its slot: ``_frees`` is by op that has
    emptied a slot the start of the next push into it, for which ``_lands`` counts that.
    All are empty where deliveries do not explain the recording.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        graph: Graph,
        queues: Queues,
        weight: Floats,
    ) -> None:
        self._trace = trace
        self._machine = machine
        self._graph = graph
        self._queues = queues
        self._hbm = machine.spec.cube.hbm
        self._push_set_up_ns = exact_ns(machine.spec.pe.dma.setup_ns)
        self._turn_of_node = turns_of(trace)
        self._moments = len(graph.moments.times)
        self._times: list[float] = graph.times.tolist()
        self._ends: list[int] = graph.ends.tolist()
        self.end = float(graph.times[graph.ends].max())
        known = known_of(trace, machine, graph.moves)
        self.explains = known is not None
        self._frees: dict[int, int] = {}
        if known is not None:
            self._frees = _freed_by(graph, known.given_back)
        self._add_edges(graph, queues, weight)
        self._landed_as_recorded: dict[int, float] = {}
        self._begins: dict[int, tuple[Sent, Age]] = {}
        self._lands: Counter[int] = Counter()
        if known is not None:
            self._landed_as_recorded = dict(known.landed)
            for op, when in known.given_back.items():
                if op in self._frees:
                    begins = when + self._push_set_up_ns
                    self._landed_as_recorded[self._frees[op]] = begins
            self._add_moves(trace, graph, known.sent, known.ages, machine)
        self._add_order(trace, graph)
        self._add_engines(trace, graph)
        self._add_servers(graph)
        begun = [sent for sent, _ in self._begins.values()]
        self._place_of = places(trace, graph, self._turn_of_node, begun)
        self._compare_with_recorded(in_turn(trace, graph))
        if self.explains:
            self.explains = self._repeats(graph.moments.times)

    # -- what is known of each node --

    def _add_edges(self, graph: Graph, queues: Queues, weight: Floats) -> None:
        """By node ``_causes`` with what each takes, and its ``_effects``.

        Edges of servers are in neither. ``_slots`` are, by the start of an op, those of
        engines, ``_between`` by cause and effect what links and controllers gave.
        ``_arrays`` is by the end of a tile of the array what it takes cold, and behind
        another one.
        """
        nodes = graph.nodes
        self._causes: list[list[tuple[int, float]]] = [[] for _ in range(nodes)]
        self._effects: list[list[int]] = [[] for _ in range(nodes)]
        self._slots: dict[int, list[tuple[int, float]]] = {}
        self._between: dict[tuple[int, int], float] = {}
        self._arrays: dict[int, tuple[float, float]] = {}
        self._streamed: set[int] = set()
        in_turn = np.zeros(len(graph.cause), np.bool_)
        in_turn[queues.in_turn] = True
        left_out = np.zeros(len(graph.cause), np.bool_)
        if self.explains:
            is_step = graph.is_step_of_move
            left_out = is_step[graph.cause] | is_step[graph.effect] | graph.is_queue
            left_out |= graph.is_credit & np.isin(graph.cause, [*self._frees])
        cold = weight[graph.cold].tolist()
        streams = weight[graph.streams].tolist()
        behind = graph.behind.tolist()
        edges = zip(
            graph.cause.tolist(),
            graph.effect.tolist(),
            graph.weight.tolist(),
            weight[np.maximum(graph.weight, 0)].tolist(),
            in_turn.tolist(),
            graph.is_slot.tolist(),
            left_out.tolist(),
            strict=True,
        )
        for cause, effect, number, ns, is_turn, is_slot, is_left_out in edges:
            if is_left_out:
                continue
            if is_turn:
                before = self._between.get((cause, effect), 0.0)
                self._between[cause, effect] = max(before, ns)
                continue
            if is_slot:
                self._slots.setdefault(effect, []).append((cause, ns))
                continue
            if number < 0:
                tile = -1 - number
                self._arrays[effect] = (cold[tile], streams[tile])
                if self._times[cause] <= self._times[behind[tile]]:
                    self._streamed.add(effect)
            self._causes[effect].append((cause, ns))
            self._effects[cause].append(effect)

    def _add_moves(
        self,
        trace: Trace,
        graph: Graph,
        sent: list[Sent],
        ages: list[Age],
        machine: Machine,
    ) -> None:
        """Have moves begin as long after the start of their op as they did, but for
        what ``machine`` takes longer to set them up, and credits as their op ends.

        ``_issued_after`` is by move's node the one at which its call was issued.
        """
        self._issued_after: dict[int, int] = {}
        rows = np.array([one.op for one in sent], np.int64)
        call = rows_of_calls(trace, trace.op_columns.cmd[rows])
        issued_after = np.append(graph.issued_after, _NONE)[call].tolist()
        starts = graph.moments.op_start(rows)
        is_credit = np.array([one.is_credit for one in sent], np.bool_)
        begins_after = np.where(is_credit, rows, starts).tolist()
        by = np.array([one.by for one in sent], np.int64)
        longer = set_up_by(machine, by) - set_up_by(self._machine, by)
        each = zip(sent, ages, begins_after, issued_after, longer.tolist(), strict=True)
        for one, age, before, issued, more in each:
            node = len(self._times)
            self._times.append(one.begins)
            self._begins[node] = (one, age)
            if not one.is_credit:
                self._lands[one.op] += 1
            elif one.op in self._frees:
                self._lands[self._frees[one.op]] += 1
            self._issued_after[node] = issued
            set_up = one.begins - self._times[before] + more
            self._causes.append([(before, set_up)])
            self._effects.append([])
            self._effects[before].append(node)

    def _add_order(self, trace: Trace, graph: Graph) -> None:
        """By node those that ask before it does, and those that do so behind it."""
        self._asks_behind: dict[int, list[int]] = {}
        self._asked_behind: dict[int, list[int]] = {}
        for before, behind in (graph.in_order, slots_in_order(trace, graph)):
            pairs = zip(before.tolist(), behind.tolist(), strict=True)
            for first, second in dict.fromkeys(pairs):
                self._asks_behind.setdefault(second, []).append(first)
                self._asked_behind.setdefault(first, []).append(second)

    def _add_engines(self, trace: Trace, graph: Graph) -> None:
        """``_engine`` by start and by end of an op, and how many slots each has."""
        call = rows_of_calls(trace, trace.op_columns.cmd[:])
        pool, slots = pools(trace, call)
        rows = np.arange(len(pool))
        starts = graph.moments.op_start(rows).tolist()
        self._op_count = graph.moments.op_count
        self._engine = dict(zip(starts, pool.tolist(), strict=True))
        self._engine.update(zip(rows.tolist(), pool.tolist(), strict=True))
        self._free = dict(zip(pool.tolist(), slots.tolist(), strict=True))
        self._whole = tile_composites(trace).tolist()

    def _add_servers(self, graph: Graph) -> None:
        """By node the servers that it is at, and what it takes there.

        ``_before`` has of each the node that was served before it, ``_slower`` by kind
        how many times as long they take on the machine that is asked about. Where
        deliveries explain the recording they stand for links and controllers.
        """
        self._slower = {_LINKS: 1.0, _READS: 1.0, _WRITES: 1.0}
        self._servers: dict[int, list[_Server]] = {}
        self._takes: dict[tuple[_Server, int], float] = {}
        self._before: dict[tuple[_Server, int], int] = {}
        if not self.explains:
            self._add_served(_LINKS, graph.served)
        self._add_served(_READS, graph.reads)
        self._add_served(_WRITES, graph.writes)

    def _add_served(self, kind: int, served: Served) -> None:
        """Those at the servers of a kind."""
        last: tuple[_Server, int] | None = None
        rows = zip(
            served.server.tolist(),
            served.node.tolist(),
            served.takes.tolist(),
            strict=True,
        )
        for number, node, takes in rows:
            server = (kind, number)
            if last == (server, node):
                continue
            self._servers.setdefault(node, []).append(server)
            self._takes[server, node] = takes
            if last is not None and last[0] == server:
                self._before[server, node] = last[1]
            last = (server, node)

    def _compare_with_recorded(self, moments: Ints) -> None:
        """By node its ``_rest``, what nothing explains, and its ``_lead``.

        A lead is how much later than it could be served others let it come, who came
        later. A node that nothing leads to stays where it was. ``moments`` are the
        nodes of the graph in turn, for those that come at one time.
        """
        times = self._times
        nodes = np.append(moments, np.arange(self._moments, len(times)))
        order: Ints = nodes[np.argsort(np.array(times)[nodes], kind="stable")]
        turns: Ints = np.empty(len(order), np.int64)
        turns[order] = np.arange(len(order))
        self._turn_of: list[float] = turns.tolist()
        for number, (node, (sent, _)) in enumerate(self._begins.items()):
            self._turn_of[node] = _BEGINS + number / len(self._begins)
            if sent.is_pushed and not sent.is_credit:
                self._turn_of[self._causes[node][0][0]] = self._turn_of[node]
        asked = [-inf] * len(times)
        self._rest = [0.0] * len(times)
        self._lead = [0.0] * len(times)
        self._stays: dict[int, float] = {}
        served: dict[int, float] = {}
        started: dict[int, float] = {}
        for node in order.tolist():
            when = self._asks(
                node, times, asked, node in self._streamed, self._landed_as_recorded
            )
            explained = when
            for cause, ns in self._slots.get(node, ()):
                explained = max(explained, times[cause] + ns)
            for server in self._servers.get(node, ()):
                before = self._before.get((server, node))
                if before is not None:
                    until = times[before] + self._passes(server, before, node)
                    if until <= times[node] + SAME_NS:
                        explained = max(explained, until)
            if explained == -inf:
                self._stays[node] = when = explained = times[node]
            self._rest[node] = times[node] - explained
            asked[node] = when = max(when, 0.0)
            turn = when
            for server in self._servers.get(node, ()):
                turn = max(turn, served.get(self._before.get((server, node), -1), 0.0))
            served[node] = turn
            if node >= self._op_count and node in self._engine:
                engine = self._engine[node]
                turn = max(turn, started.get(engine, 0.0))
                started[engine] = turn
            self._lead[node] = turn - when

    def _passes(self, server: _Server, before: int, node: int) -> float:
        """How long after ``before`` a node is served there, ns, if it comes next."""
        takes = self._takes[server, before]
        slower = self._slower[server[0]]
        if self._before.get((server, node)) != before:
            return takes * slower
        recorded = self._between.get((before, node))
        if recorded is not None:
            return recorded
        apart: float = self._times[node] - self._times[before]
        return min(takes, max(apart, 0.0)) * slower

    def _asks(
        self,
        node: int,
        times: list[float],
        asked: list[float],
        streams: bool,
        landed: Mapping[int, float],
    ) -> float:
        """When the causes of a node let it come, -inf without any; servers are none.

        ``landed`` is by op when its moves have, and by the start of a push when it can
        be set up after the credit of its slot.
        """
        latest = landed.get(node, -inf)
        for first in self._asks_behind.get(node, ()):
            latest = max(latest, asked[first])
        array = self._arrays.get(node)
        for cause, ns in self._causes[node]:
            takes = ns
            if array is not None:
                takes = array[streams]
            latest = max(latest, times[cause] + takes)
        return latest

    # -- on another machine --

    def on(
        self, machine: Machine, weight: Floats, progress: Progress
    ) -> list[float] | None:
        """By node of the graph when it comes on a machine of which each class takes
        ``weight``, ns; inf for steps of moves, which are none here.

        None if these turns do not explain the recording, if somebody would wait for
        ever, or if it is not known what moves send there.
        """
        if not self.explains:
            return None
        changed = computed_beside(partial(self._with, machine, weight), progress, 0.0)
        if changed is None:
            return None
        times = changed.nodes_if(Late(self._ends[0], 0.0), progress)
        return None if inf in times[: self._moments] else times

    def _with(self, machine: Machine, weight: Floats) -> Turns | None:
        """The same on another machine; rests and leads are kept as recorded."""
        graph = self._graph
        sent = sent_on(self._trace, machine, graph.moves)
        if sent is None:
            return None
        changed = copy(self)
        changed._hbm = machine.spec.cube.hbm
        changed._push_set_up_ns = exact_ns(machine.spec.pe.dma.setup_ns)
        changed._times = graph.times.tolist()
        changed._add_edges(graph, self._queues, weight)
        changed._begins = {}
        changed._lands = Counter()
        ages = ages_of(self._trace, sent)
        changed._add_moves(self._trace, graph, sent, ages, machine)
        was = self._machine.spec.pe.tcm
        now = machine.spec.pe.tcm
        changed._slower = {
            _READS: was.read_bw_gbs / now.read_bw_gbs,
            _WRITES: was.write_bw_gbs / now.write_bw_gbs,
        }
        return changed

    # -- in turns --

    def _repeats(self, recorded: Floats) -> bool:
        """Whether all moments come as they were recorded if nothing is late."""
        nothing = Late(self._ends[0], 0.0)
        times = self.times_if(nothing, no_progress)
        return bool(np.abs(times - recorded).max() <= SAME_NS)

    def end_if(self, late: Late, progress: Progress) -> float:
        """When the launches end if a node comes later by itself, ns.

        inf if they never do, as in that order some would wait for each other.
        """
        times = self.times_if(late, progress)
        return max(times[node] for node in self._ends)

    def times_if(self, late: Late, progress: Progress) -> list[float]:
        """By moment (the first nodes of the graph) when it comes, ns; inf if never."""
        return self.nodes_if(late, progress)[: self._moments]

    def nodes_if(self, late: Late, progress: Progress) -> list[float]:
        """By node of the graph when it comes, ns; inf if never, and for steps of moves
        where deliveries stand for these.
        """
        walk = _Walk(len(self._times), self._free)
        walk.missing = [
            len(causes) + len(self._asks_behind.get(node, ())) + self._lands[node]
            for node, causes in enumerate(self._causes)
        ]

        def lands(one: Sent, when: float) -> None:
            node = one.op
            if one.is_credit:
                if node not in self._frees:
                    return
                node = self._frees[node]
                when += self._push_set_up_ns
            walk.landed[node] = max(walk.landed.get(node, 0.0), when)
            self._awaits_less(walk, node)

        deliveries = Deliveries(self._hbm, self._turn_of_node, walk.at, lands)
        walk.deliveries = deliveries
        first = [node for node, count in enumerate(walk.missing) if not count]
        for node in first:
            self._ask(walk, node)
        done = 0
        while walk.coming:
            done += 1
            if done % _NODES == 0:
                progress(min(done / (2 * len(self._times)), 1.0))
            when, _, turn, node = heappop(walk.coming)
            if node < 0:
                walk.actions.pop(node)(when)
            elif turn == _LEFT:
                self._leave(walk, node, late)
            else:
                self._come(walk, node, late)
        return walk.times[: self._graph.nodes]

    def _ask(self, walk: _Walk, node: int) -> None:
        """All causes of a node have come: it comes in its turn."""
        streams = False
        if node in self._arrays:
            whole, until = walk.left.get(self._engine[node], (_NONE, -inf))
            start = walk.times[self._causes[node][0][0]]
            streams = whole == self._whole[node] and start <= until
        when = self._stays.get(node, -inf)
        if when == -inf:
            asks = self._asks(node, walk.times, walk.asked, streams, walk.landed)
            when = max(asks, 0.0)
        walk.asked[node] = when
        turn = when + self._lead[node]
        place = self._place_of[node]
        heappush(walk.coming, (turn, place, self._turn_of[node], node))
        for other in self._asked_behind.get(node, ()):
            self._awaits_less(walk, other)

    def _awaits_less(self, walk: _Walk, node: int) -> None:
        """One of those that a node waits for has come."""
        walk.missing[node] -= 1
        if not walk.missing[node]:
            self._ask(walk, node)

    def _come(self, walk: _Walk, node: int, late: Late) -> None:
        """It is the turn of a node: it is served, or waits for a slot."""
        when = walk.asked[node]
        for server in self._servers.get(node, ()):
            before = walk.served.get(server)
            if before is not None:
                until = walk.times[before] + self._passes(server, before, node)
                when = max(when, until)
            walk.served[server] = node
        if node in self._engine and node >= self._op_count:
            engine = self._engine[node]
            if not walk.free[engine]:
                walk.waiting.setdefault(engine, deque()).append(node)
                return
            when = max(when, walk.free[engine].popleft() + self._set_up(node))
        self._has_come(walk, node, when, late)

    def _leave(self, walk: _Walk, op: int, late: Late) -> None:
        """An op has left its engine: its slot is that of who waits for longest."""
        engine = self._engine[op]
        now = walk.times[op]
        walk.left[engine] = (self._whole[op], now)
        if not walk.waiting.get(engine):
            walk.free[engine].append(now)
            return
        node = walk.waiting[engine].popleft()
        when = max(walk.asked[node], now + self._set_up(node))
        self._has_come(walk, node, when, late)

    def _set_up(self, node: int) -> float:
        """How long before an op starts it has to have its slot, ns."""
        return max((ns for _, ns in self._slots.get(node, ())), default=0.0)

    def _has_come(self, walk: _Walk, node: int, when: float, late: Late) -> None:
        """A node has come at a time, and its rest later."""
        when += self._rest[node]
        if node == late.node:
            when += late.ns
        walk.times[node] = when
        if node in self._begins:
            self._begin(walk, node, when)
        if node < self._op_count:
            heappush(walk.coming, (when, self._place_of[node], _LEFT, node))
        for effect in self._effects[node]:
            self._awaits_less(walk, effect)

    def _begin(self, walk: _Walk, node: int, now: float) -> None:
        """A move begins, of a command that may have been issued later than it was."""
        one, age = self._begins[node]
        issued, cmd, tile, is_write = age
        by = self._issued_after[node]
        if by >= 0:
            issued += walk.times[by] - self._times[by]
        age = (issued, cmd, tile, is_write)
        begin = partial(walk.deliveries.begin, sent=one, age=age)
        walk.at(now, one.turn, begin, self._turn_of[node])


def _freed_by(graph: Graph, given_back: Mapping[int, float]) -> dict[int, int]:
    """By op that has emptied a slot the start of the push that waits for its credit, of
    credits of which it is known when they have come.
    """
    edges = np.flatnonzero(graph.is_credit)
    pairs = zip(graph.cause[edges].tolist(), graph.effect[edges].tolist(), strict=True)
    return {op: start for op, start in pairs if op in given_back}


class _Walk:
    """What one pass over all nodes has found so far.

    By node ``times`` has when it came, ``asked`` when it could have come but for
    servers, ``missing`` how many it still waits for. ``coming`` is a heap of when it is
    whose turn. By engine ``free`` has since when its free slots are, the first of them
    first, ``waiting`` who waits for one, ``left`` of which composite the op was that
    left last, and when. ``served`` is by link or controller who was served last.
    ``deliveries`` are the moves under way, ``landed`` is by op when those of its moves
    have that did, and by the start of a push as ``_asks`` says, ``actions`` are what is
    to be done of them yet, by their numbers in ``coming``.
    """

    def __init__(self, nodes: int, free: dict[int, int]) -> None:
        self.times = [inf] * nodes
        self.asked = [-inf] * nodes
        self._next_action = _FIRST_ACTION
        self.missing: list[int] = []
        self.coming: list[tuple[float, int, float, int]] = []
        self.free = {engine: deque([-inf] * slots) for engine, slots in free.items()}
        self.waiting: dict[int, deque[int]] = {}
        self.left: dict[int, tuple[int, float]] = {}
        self.served: dict[_Server, int] = {}
        self.landed: dict[int, float] = {}
        self.actions: dict[int, Action] = {}
        self.deliveries: Deliveries

    def at(
        self, when: float, turn: int, action: Action, within: float = _MOVES
    ) -> None:
        """Have something done of a move at a time, in the turn of a PE, and ``within``
        that.
        """
        self._next_action += 1
        self.actions[self._next_action] = action
        heappush(self.coming, (when, turn, within, self._next_action))

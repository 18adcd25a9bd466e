"""A graph re-timed in turns: each server takes who comes to it first.

The walk (walk.py) keeps the order in which engines, links and controllers of HBM have
served. If an op is late, others go before it. Here everything happens in the order of
time: an op asks for its engine when its causes let it, and gets a slot when one is
free; at links and controllers who comes first goes first. Where the recording served
somebody later who came sooner, as the oldest command is served first, that lead is
kept. Nothing late gives what was recorded.

What a link gave two that follow each other is as recorded; if others follow each other
now it is what the first one takes at least. So it does not know how bursts of several
transactions took turns there. Controllers of HBM are asked burst by burst
(memories.py), where a trace says what they were asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from heapq import heappop, heappush
from math import inf

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import Progress
from kernbench.replay.time.critical_edges import slots_at
from kernbench.replay.whatif.certainty import Queues
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.memories import (
    Action,
    Age,
    Asked,
    Known,
    Memories,
    known_of,
    turns_of,
)
from kernbench.replay.whatif.walk import Late
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import tile_columns

_NODES = 1 << 10
"""Nodes between two calls of progress, some ms."""

_NONE = -1
_FIRST_ACTION = -(1 << 62)
"""The number of what memories do: less than that of any node, and counted upwards."""

_LEFT = -1.0
_ASKS = -0.5
"""The turn of an op that leaves its engine: before all that ask at that time; and that
of who asks a controller of HBM: before those do what is due then.
"""


class Turns:
    """A trace's graph, ready to be re-timed in turns; ``weight`` is by class.

    It is for small graphs: a node takes some us, and 1 KB. ``end`` is when the launches
    ended, or the run if there is none, ns.

    Behind the nodes of the graph are those at which a controller of HBM is asked:
    ``_asked`` is by such a node what, ``_served`` are the nodes that it lets come.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        graph: Graph,
        queues: Queues,
        weight: Floats,
    ) -> None:
        self._hbm = machine.spec.cube.hbm
        self._turn_of_node = turns_of(trace)
        self._nodes = graph.nodes
        self._times: list[float] = graph.times.tolist()
        ends = graph.moments.all_launch_ends()
        if not len(ends):
            ends = graph.last
        self._ends: list[int] = ends.tolist()
        self.end = float(graph.times[ends].max())
        known = known_of(trace, machine, graph.moves, graph.times)
        self._controllers = {one.node for one in known.asked}
        self._add_edges(graph, queues, weight)
        self._add_memories(trace, graph, known)
        self._add_order(graph)
        self._add_engines(trace, graph)
        self._add_servers(graph)
        self._compare_with_recorded()

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
        server, node, _ = graph.served
        asked = np.zeros(nodes, np.bool_)
        asked[node[np.isin(server, list(self._controllers))]] = True
        left_out = graph.is_memory & asked[graph.effect]
        in_turn = np.zeros(len(graph.cause), np.bool_)
        in_turn[queues.in_turn] = True
        # On their first link the order is that in which a controller lets them go.
        in_turn |= graph.is_queue & asked[graph.effect]
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

    def _add_memories(self, trace: Trace, graph: Graph, known: Known) -> None:
        """Have controllers of HBM asked, in place of what the graph says of them.

        ``_issued_after`` is by node that asks the one at which its call was issued.
        """
        asked, ages, self._memory_as_recorded = known
        self._served = set(self._memory_as_recorded)
        self._asked: dict[int, tuple[Asked, Age]] = {}
        self._issued_after: dict[int, int] = {}
        rows = np.array([one.op for one in asked], np.int64)
        call = Groups(trace.commands.cmd[:]).first(trace.op_columns.cmd[rows])
        issued_after = np.append(graph.issued_after, _NONE)[call].tolist()
        starts = graph.moments.op_start(rows).tolist()
        each = zip(asked, ages, starts, issued_after, strict=True)
        for one, age, start, by in each:
            node = len(self._times)
            self._issued_after[node] = by
            self._times.append(one.came)
            self._asked[node] = (one, age)
            self._effects.append([])
            self._causes.append([])
            if one.is_write:
                self._ask_when_come(node, one, len(graph.moments.times))
            else:
                self._ask_when_sent(node, one, start)

    def _ask_when_sent(self, node: int, one: Asked, start: int) -> None:
        """A read is asked for as long after the start of its op as it was."""
        self._unlink(start, one.first)
        self._link(start, node, one.came - self._times[start])
        if one.last != one.first:
            self._unlink(one.first, one.last)
            self._link(one.first, one.last, sum(one.link_ns[:-1]))

    def _ask_when_come(self, node: int, one: Asked, first_move: int) -> None:
        """A write asks when its bytes come along the nodes of its move.

        Of several bursts the first does so as long after it has left as it did.
        """
        causes = [at for at in self._causes[one.last] if at[0] >= first_move]
        for cause, ns in causes:
            self._unlink(cause, one.last)
            if one.first == one.left:
                self._link(cause, node, ns - one.written_ns)
        if one.first != one.left:
            self._link(one.first, node, one.came - self._times[one.first])

    def _link(self, cause: int, effect: int, ns: float) -> None:
        """One node comes no sooner than another and some ns."""
        self._causes[effect].append((cause, ns))
        self._effects[cause].append(effect)

    def _unlink(self, cause: int, effect: int) -> None:
        """Forget all edges between two nodes."""
        kept = [at for at in self._causes[effect] if at[0] != cause]
        for _ in range(len(self._causes[effect]) - len(kept)):
            self._effects[cause].remove(effect)
        self._causes[effect] = kept

    def _add_order(self, graph: Graph) -> None:
        """By node those that ask before it does, and those that do so behind it."""
        self._asks_behind: dict[int, list[int]] = {}
        self._asked_behind: dict[int, list[int]] = {}
        before, behind = graph.in_order
        pairs = zip(before.tolist(), behind.tolist(), strict=True)
        for first, second in dict.fromkeys(pairs):
            self._asks_behind.setdefault(second, []).append(first)
            self._asked_behind.setdefault(first, []).append(second)

    def _add_engines(self, trace: Trace, graph: Graph) -> None:
        """``_engine`` by start and by end of an op, and how many slots each has."""
        ops = trace.op_columns
        component = ops.component[:].astype(np.int64)
        slots = slots_at(trace, component)
        pool = component << 32 | ops.slot[:].astype(np.int64) // slots
        rows = np.arange(len(pool))
        starts = graph.moments.op_start(rows).tolist()
        self._op_count = graph.moments.op_count
        self._engine = dict(zip(starts, pool.tolist(), strict=True))
        self._engine.update(zip(rows.tolist(), pool.tolist(), strict=True))
        self._free = dict(zip(pool.tolist(), slots.tolist(), strict=True))
        self._whole = tile_columns(trace)[0].tolist()

    def _add_servers(self, graph: Graph) -> None:
        """By node the links and controllers that it is at, and what it takes there.

        ``_before`` has of each the node that was served before it.
        """
        self._servers: dict[int, list[int]] = {}
        self._takes: dict[tuple[int, int], float] = {}
        self._before: dict[tuple[int, int], int] = {}
        last = (-1, -1)
        served = graph.served
        rows = zip(
            served.server.tolist(),
            served.node.tolist(),
            served.takes.tolist(),
            strict=True,
        )
        for server, node, takes in rows:
            if last == (server, node) or server in self._controllers:
                continue
            self._servers.setdefault(node, []).append(server)
            self._takes[server, node] = takes
            if last[0] == server:
                self._before[server, node] = last[1]
            last = (server, node)

    def _compare_with_recorded(self) -> None:
        """By node its ``_rest``, what nothing explains, and its ``_lead``.

        A lead is how much later than it could be served others let it come, who came
        later. A node that nothing leads to stays where it was.
        """
        times = self._times
        order: Ints = np.argsort(np.array(times), kind="stable")
        turns: Ints = np.empty(len(order), np.int64)
        turns[order] = np.arange(len(order))
        self._turn_of: list[float] = turns.tolist()
        for node in self._asked:
            self._turn_of[node] = _ASKS
        asked = [-inf] * len(times)
        self._rest = [0.0] * len(times)
        self._lead = [0.0] * len(times)
        self._stays: dict[int, float] = {}
        served: dict[int, float] = {}
        started: dict[int, float] = {}
        for node in order.tolist():
            when = self._asks(
                node, times, asked, node in self._streamed, self._memory_as_recorded
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

    def _passes(self, server: int, before: int, node: int) -> float:
        """How long after ``before`` a node is served there, ns, if it comes next."""
        takes = self._takes[server, before]
        if self._before.get((server, node)) != before:
            return takes
        recorded = self._between.get((before, node))
        if recorded is not None:
            return recorded
        apart: float = self._times[node] - self._times[before]
        return min(takes, max(apart, 0.0))

    def _asks(
        self,
        node: int,
        times: list[float],
        asked: list[float],
        streams: bool,
        memory: Mapping[int, float],
    ) -> float:
        """When the causes of a node let it come, -inf without any; servers are none.

        ``memory`` is by node when a controller of HBM lets it.
        """
        latest = memory.get(node, -inf)
        for first in self._asks_behind.get(node, ()):
            latest = max(latest, asked[first])
        array = self._arrays.get(node)
        for cause, ns in self._causes[node]:
            takes = ns
            if array is not None:
                takes = array[streams]
            latest = max(latest, times[cause] + takes)
        return latest

    # -- in turns --

    def end_if(self, late: Late, progress: Progress) -> float:
        """When the launches end if a node comes later by itself, ns.

        inf if they never do, as in that order some would wait for each other.
        """
        times = self.times_if(late, progress)
        return max(times[node] for node in self._ends)

    def times_if(self, late: Late, progress: Progress) -> list[float]:
        """By node of the graph when it comes, ns; inf if never."""
        walk = _Walk(len(self._times), self._free)
        walk.missing = [
            len(causes) + len(self._asks_behind.get(node, ())) + (node in self._served)
            for node, causes in enumerate(self._causes)
        ]

        def serves(node: int, when: float) -> None:
            walk.memory[node] = when
            self._awaits_less(walk, node)

        walk.memories = Memories(self._hbm, self._turn_of_node, walk.at, serves)
        first = [node for node, count in enumerate(walk.missing) if not count]
        for node in first:
            self._ask(walk, node)
        done = 0
        while walk.coming:
            done += 1
            if done % _NODES == 0:
                progress(min(done / (2 * len(self._times)), 1.0))
            when, turn, node = heappop(walk.coming)
            if node < 0:
                walk.actions.pop(node)(when)
            elif turn == _LEFT:
                self._leave(walk, node, late)
            else:
                self._come(walk, node, late)
        return walk.times[: self._nodes]

    def _ask(self, walk: _Walk, node: int) -> None:
        """All causes of a node have come: it comes in its turn."""
        streams = False
        if node in self._arrays:
            whole, until = walk.left.get(self._engine[node], (_NONE, -inf))
            start = walk.times[self._causes[node][0][0]]
            streams = whole == self._whole[node] and start <= until
        when = self._stays.get(node, -inf)
        if when == -inf:
            asks = self._asks(node, walk.times, walk.asked, streams, walk.memory)
            when = max(asks, 0.0)
        walk.asked[node] = when
        turn = when + self._lead[node]
        heappush(walk.coming, (turn, self._turn_of[node], node))
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
            walk.free[engine] -= 1
        self._has_come(walk, node, when, late)

    def _leave(self, walk: _Walk, op: int, late: Late) -> None:
        """An op has left its engine: its slot is that of who waits for longest."""
        engine = self._engine[op]
        now = walk.times[op]
        walk.left[engine] = (self._whole[op], now)
        if not walk.waiting.get(engine):
            walk.free[engine] += 1
            return
        node = walk.waiting[engine].popleft()
        set_up = max((ns for _, ns in self._slots.get(node, ())), default=0.0)
        self._has_come(walk, node, max(walk.asked[node], now + set_up), late)

    def _has_come(self, walk: _Walk, node: int, when: float, late: Late) -> None:
        """A node has come at a time, and its rest later."""
        when += self._rest[node]
        if node == late.node:
            when += late.ns
        walk.times[node] = when
        if node in self._asked:
            self._ask_memory(walk, node, when)
        if node < self._op_count:
            heappush(walk.coming, (when, _LEFT, node))
        for effect in self._effects[node]:
            self._awaits_less(walk, effect)

    def _ask_memory(self, walk: _Walk, node: int, now: float) -> None:
        """A controller is asked: by a command that may have been issued later."""
        one, age = self._asked[node]
        issued, cmd, tile, is_write = age
        by = self._issued_after[node]
        later = 0.0
        if by >= 0:
            later = walk.times[by] - self._times[by]
        asks = partial(
            walk.memories.ask, asked=one, age=(issued + later, cmd, tile, is_write)
        )
        walk.at(now, one.turn, asks)


class _Walk:
    """What one pass over all nodes has found so far.

    By node ``times`` has when it came, ``asked`` when it could have come but for
    servers, ``missing`` how many it still waits for. ``coming`` is a heap of when it is
    whose turn. By engine ``free`` has how many slots are, ``waiting`` who waits for
    one, ``left`` of which composite the op was that left last, and when. ``served`` is
    by link or controller who was served last. ``memories`` are the controllers of HBM
    that are asked, ``memory`` is by node when they let it come, ``actions`` are what
    they have to do yet, by their numbers in ``coming``.
    """

    def __init__(self, nodes: int, free: dict[int, int]) -> None:
        self.times = [inf] * nodes
        self.asked = [-inf] * nodes
        self._next_action = _FIRST_ACTION
        self.missing: list[int] = []
        self.coming: list[tuple[float, float, int]] = []
        self.free = dict(free)
        self.waiting: dict[int, deque[int]] = {}
        self.left: dict[int, tuple[int, float]] = {}
        self.served: dict[int, int] = {}
        self.memory: dict[int, float] = {}
        self.actions: dict[int, Action] = {}
        self.memories: Memories

    def at(self, when: float, turn: int, action: Action) -> None:
        """Have a memory do something at a time."""
        self._next_action += 1
        self.actions[self._next_action] = action
        heappush(self.coming, (when, turn, self._next_action))

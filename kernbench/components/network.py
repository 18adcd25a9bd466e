"""Time on the wires: hop-by-hop virtual cut-through (simulator.md section 5).

At each hop the header takes the link when it is free, the next header may follow when the bytes
have passed; the tail's serialisation is paid once, at the slowest link, where the transaction
ends. Bursts of one transaction leave one after the other, so streams interleave. One SimPy event a
hop and burst (the last one is the landing); no process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappush
from itertools import pairwise
from typing import Any

import simpy
from simpy.events import NORMAL

from kernbench.common.messages import MsgBase, Transaction
from kernbench.components.base import ComponentBase, MemoryEndpoint, Process
from kernbench.errors import RoutingError
from kernbench.sim_engine.event_log import Recorder
from kernbench.topology.graph import TopologyGraph


@dataclass(slots=True, eq=False)
class Wire:
    """One directed link: ``free_at`` is when the bytes of the last header have passed."""

    bytes_per_ns: float
    wire_ns: float
    free_at: float = 0.0
    holder: MsgBase | None = None

    def enter(self, now: float, nbytes: int) -> float:
        """When a header that arrives now may start; the link is then taken for ``nbytes``."""
        start = now if now > self.free_at else self.free_at
        self.free_at = start + nbytes / self.bytes_per_ns
        return start


class Route:
    """A path made ready: its wires, and after each the ns until the next node has the header."""

    __slots__ = ("delays", "nodes", "slowest", "wires")

    def __init__(
        self, nodes: tuple[str, ...], wires: list[Wire], delays: list[float]
    ) -> None:
        self.nodes = nodes
        self.wires = wires
        self.delays = delays
        self.slowest = min((w.bytes_per_ns for w in wires), default=float("inf"))

    def zero_load(self, nbytes: int) -> float:
        """Latency in ns on the empty machine: overheads, wires, bytes / bottleneck."""
        return sum(self.delays) + nbytes / self.slowest


class Network:
    """All wires of a machine, each made when a path first uses it."""

    def __init__(
        self,
        env: simpy.Environment,
        graph: TopologyGraph,
        components: Mapping[str, ComponentBase],
        events: Recorder | None,
    ) -> None:
        self.env = env
        self.components = components
        self.events = events
        self._edges = graph.edge_by_ends
        self._ns_per_mm = graph.spec.system.ns_per_mm
        self._wires: dict[tuple[str, str], Wire] = {}
        self._routes: dict[tuple[str, ...], Route] = {}

    def route(self, path: tuple[str, ...]) -> Route:
        """The path made ready; RoutingError names a pair of nodes that no link joins."""
        route = self._routes.get(path)
        if route is None:
            wires = [self._wire(ends, path) for ends in pairwise(path)]
            delays = [
                wire.wire_ns + self.components[node].overhead_ns
                for wire, node in zip(wires, path[1:], strict=True)
            ]
            route = self._routes[path] = Route(path, wires, delays)
        return route

    def _wire(self, ends: tuple[str, str], path: tuple[str, ...]) -> Wire:
        wire = self._wires.get(ends)
        if wire is None:
            edge = self._edges.get(ends)
            if edge is None:
                raise RoutingError(
                    f"no link from {ends[0]} to {ends[1]} on the path {path}"
                )
            wire = Wire(edge.bandwidth_gbs, edge.distance_mm * self._ns_per_mm)
            self._wires[ends] = wire
        return wire

    def transfer(self, txn: Transaction) -> Process:
        """Carry ``txn`` to its end; its Transfer goes to the owner's record, or to the recorder."""
        delivery = Delivery(self, txn)
        delivery.start()
        yield delivery

    def read(self, request: Transaction, data: Transaction) -> Delivery:
        """Carry a request to its end, and then the data that answer it; fires when they landed."""
        asked, answer = Delivery(self, request), Delivery(self, data)
        asked.callbacks.append(answer.start)
        asked.start()
        return answer


class Delivery(simpy.Event):
    """One transaction under way: emits its bursts, and fires when the last of them has landed.

    What a memory sends leaves it in order. It reads only so far ahead that all its channels can
    work: a burst is asked for when the link can take it, and only so many at once.
    """

    def __init__(self, network: Network, txn: Transaction) -> None:
        self.env = network.env
        self.callbacks = [self._note]  # as Event has it, but made ready in one step
        self._ok, self._value = True, None
        self.txn = txn
        self.route = route = network.route(txn.path)
        self.rate = txn.rate_gbs if txn.rate_gbs < route.slowest else route.slowest
        self.size = txn.burst_bytes or txn.nbytes
        self.bursts = -(-txn.nbytes // self.size)
        self.emitted = self.arrived = 0
        self.t0 = self.landing = self.ready = 0.0
        self.starts: list[
            list[float]
        ] = []  # at each hop, of the first and the last burst
        self._events = network.events
        self.memory_in = self.memory_out = None
        if txn.src_addr is not None:
            self.memory_in = _memory(network.components[txn.path[0]])
            self.read: deque[float] = deque(
                maxlen=-(-self.memory_in.parallel_bytes // self.size)
            )
        if txn.dst_addr is not None:
            self.memory_out = _memory(network.components[txn.path[-1]])

    def start(self, _event: Any = None) -> None:
        """Send the first burst off."""
        self.t0 = self.env.now
        self._emit()

    def _emit(self, _event: Any = None) -> None:
        """Send the next burst off; the one after it follows when the source is free again."""
        txn, now = self.txn, self.env.now
        offset = self.emitted * self.size
        nbytes = txn.nbytes - offset
        if nbytes > self.size:
            nbytes = self.size
        burst = _Burst(self, self.emitted, nbytes)
        self.emitted += 1
        if self.memory_in is None:
            begin = burst.step()
        else:
            assert txn.src_addr is not None
            place = txn.src_addr + offset
            start, access, burst.service = self.memory_in.burst(
                now, place, nbytes, txn.owner
            )
            if start + access > self.ready:
                self.ready = start + access
            burst.at(now, self.ready, _STEP)
            self.read.append(start + burst.service)
            begin = now
        if self.emitted < self.bursts:
            free_at = begin + nbytes / min(
                self.route.wires[0].bytes_per_ns, txn.rate_gbs
            )
            if self.memory_in is not None and len(self.read) == self.read.maxlen:
                free_at = max(free_at, self.read[0])
            self.env.timeout(free_at - now).callbacks.append(self._emit)

    def arrive(self, landing: float) -> None:
        """One more burst will be whole at the destination at ``landing``; with the last, all is."""
        self.arrived += 1
        if landing > self.landing:
            self.landing = landing
        if self.arrived == self.bursts:
            now = self.env.now
            self.env.schedule(
                self, delay=self.landing - now if self.landing > now else 0.0
            )

    def _note(self, _event: Any) -> None:
        txn, starts = self.txn, self.starts
        times = starts[0] if self.bursts == 1 else starts[0] + starts[1]
        row = (txn.path, self.t0, txn.nbytes, self.bursts, times)
        if txn.owner.data_op:
            txn.owner.transfers.append(row)
        elif self._events is not None:
            self._events.transfer(txn.owner.cmd, row)


class _Burst:
    """One burst, and the SimPy event that its header is at the next node, scheduled anew each hop.

    So a hop costs no Timeout, and its callback is a plain method: the event is its ``self``.
    """

    __slots__ = (
        "_ok",
        "callbacks",
        "delivery",
        "hop",
        "index",
        "nbytes",
        "service",
        "starts",
    )

    def __init__(self, delivery: Delivery, index: int, nbytes: int) -> None:
        self._ok = True
        self.delivery = delivery
        self.index = index
        self.nbytes = nbytes
        self.hop = 0
        self.service = 0.0  # of the slowest memory that it has passed
        self.starts: list[float] | None = None
        if index == 0 or index == delivery.bursts - 1:
            self.starts = []
            delivery.starts.append(self.starts)

    def at(
        self, now: float, when: float, callbacks: tuple[Callable[[_Burst], object]]
    ) -> None:
        """Have ``callbacks`` called at ``when``, as ``Environment.schedule`` would."""
        self.callbacks = callbacks
        env = self.delivery.env
        at = now + (when - now) if when > now else now
        heappush(env._queue, (at, NORMAL, next(env._eid), self))  # type: ignore[misc]

    def step(self) -> float:
        """The header is at node ``hop``: take the next link; returns when it started on it."""
        delivery, hop, nbytes = self.delivery, self.hop, self.nbytes
        route, owner = delivery.route, delivery.txn.owner
        now: float = delivery.env.now
        wire = route.wires[hop]
        start = wire.enter(now, nbytes)
        if start > now:
            owner.wait(route.nodes[hop], "link", now, start, wire.holder)
        wire.holder = owner
        if self.starts is not None:
            self.starts.append(start)
        when = start + route.delays[hop]
        self.hop = hop = hop + 1
        if hop < len(route.wires):
            self.at(now, when, _STEP)
        elif delivery.memory_out is not None:
            self.at(now, when, _WRITE)
        else:
            delivery.arrive(when + max(self.service, nbytes / delivery.rate))
        return start

    def write(self) -> None:
        """The header is at the memory: it is written while the bytes come in."""
        delivery, nbytes = self.delivery, self.nbytes
        txn, memory = delivery.txn, delivery.memory_out
        assert memory is not None
        assert txn.dst_addr is not None
        addr = txn.dst_addr + self.index * delivery.size
        start, access, write = memory.burst(delivery.env.now, addr, nbytes, txn.owner)
        delivery.arrive(
            start + access + max(self.service, nbytes / delivery.rate, write)
        )


_STEP, _WRITE = (_Burst.step,), (_Burst.write,)


def _memory(component: ComponentBase) -> MemoryEndpoint:
    if not isinstance(component, MemoryEndpoint):
        raise RoutingError(f"{component.node.id} ({component.node.type}) is no memory")
    return component

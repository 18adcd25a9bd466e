"""Time on the wires: hop-by-hop virtual cut-through (simulator.md section 5).

At each hop the header takes the link when it is free, the next header may follow when the bytes
have passed; the tail's serialisation is paid once, at the slowest link, where the transaction
ends. Bursts of one transaction leave one after the other, so streams interleave. One SimPy event a
hop and burst (the last one is the landing); no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import simpy

from kernbench.common.messages import MsgBase, Transaction
from kernbench.components.base import ComponentBase, MemoryEndpoint, Process
from kernbench.errors import RoutingError
from kernbench.sim_engine.event_log import Recorder
from kernbench.topology.graph import TopologyGraph


class Wire:
    """One directed link: ``free_at`` is when the bytes of the last header have passed."""

    __slots__ = ("bytes_per_ns", "free_at", "holder", "wire_ns")

    def __init__(self, bytes_per_ns: float, wire_ns: float) -> None:
        self.bytes_per_ns = bytes_per_ns
        self.wire_ns = wire_ns
        self.free_at = 0.0
        self.holder: MsgBase | None = None

    def enter(self, now: float, nbytes: int) -> float:
        """When a header that arrives now may start; the link is then taken for ``nbytes``."""
        start = now if now > self.free_at else self.free_at
        self.free_at = start + nbytes / self.bytes_per_ns
        return start


class Route:
    """A path made ready for time: its wires, and after each the ns until the next node has the
    header.
    """

    __slots__ = ("delays", "nodes", "slowest", "wires")

    def __init__(self, nodes: tuple[str, ...], wires: list[Wire], delays: list[float]) -> None:
        self.nodes = nodes
        self.wires = wires
        self.delays = delays
        self.slowest = min((w.bytes_per_ns for w in wires), default=float("inf"))

    def zero_load(self, nbytes: int) -> float:
        """Latency in ns of ``nbytes`` on the empty machine: overheads, wires, bytes /
        bottleneck.
        """
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
                raise RoutingError(f"no link from {ends[0]} to {ends[1]} on the path {path}")
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
    """One transaction under way: emits its bursts, and fires when the last of them has landed."""

    def __init__(self, network: Network, txn: Transaction) -> None:
        super().__init__(network.env)
        self.callbacks.append(self._note)
        self.txn = txn
        self.route = network.route(txn.path)
        self.size = txn.burst_bytes or txn.nbytes
        self.bursts = -(-txn.nbytes // self.size)
        self.emitted = self.arrived = 0
        self.t0 = self.landing = 0.0
        self.first: list[float] = []
        self.last: list[float] = []
        self._events = network.events
        ends = network.components
        self.memory_in = _memory(ends[txn.path[0]]) if txn.src_addr is not None else None
        self.memory_out = _memory(ends[txn.path[-1]]) if txn.dst_addr is not None else None

    def start(self, _event: Any = None) -> None:
        """Send the first burst off."""
        self.t0 = self.env.now
        self._emit()

    def _emit(self, _event: Any = None) -> None:
        """Send the next burst off; the one after it follows when the source is free again."""
        txn, env, now = self.txn, self.env, self.env.now
        offset = self.emitted * self.size
        nbytes = min(self.size, txn.nbytes - offset)
        burst = _Burst(self, self.emitted, nbytes)
        self.emitted += 1
        if self.memory_in is None:
            free_at = burst.step() + nbytes / self.route.wires[0].bytes_per_ns
        else:
            assert txn.src_addr is not None
            addr = txn.src_addr + offset
            start, access, burst.service = self.memory_in.burst(now, addr, nbytes, txn.owner)
            _after(env, now, start + access, burst.step)
            free_at = start + burst.service
        if self.emitted < self.bursts:
            _after(env, now, free_at, self._emit)

    def arrive(self, landing: float) -> None:
        """One more burst will be whole at the destination at ``landing``; with the last, all is."""
        self.arrived += 1
        if landing > self.landing:
            self.landing = landing
        if self.arrived == self.bursts:
            self._ok, self._value = True, None  # a Timeout whose delay is known only now
            self.env.schedule(self, delay=max(self.landing - self.env.now, 0.0))

    def _note(self, _event: Any) -> None:
        txn = self.txn
        starts = self.first if self.bursts == 1 else self.first + self.last
        row = (txn.path, self.t0, txn.nbytes, self.bursts, starts)
        if txn.owner.data_op:
            txn.owner.transfers.append(row)
        elif self._events is not None:
            self._events.transfer(txn.owner.cmd, row)


class _Burst:
    """One burst: which node its header is at, and the slowest memory it has passed."""

    __slots__ = ("delivery", "hop", "index", "nbytes", "service")

    def __init__(self, delivery: Delivery, index: int, nbytes: int) -> None:
        self.delivery = delivery
        self.index = index
        self.nbytes = nbytes
        self.hop = 0
        self.service = 0.0

    def step(self, _event: Any = None) -> float:
        """The header is at node ``hop``: take the next link; returns when it started on it."""
        delivery, hop, nbytes = self.delivery, self.hop, self.nbytes
        route, env, owner = delivery.route, delivery.env, delivery.txn.owner
        now: float = env.now
        wire = route.wires[hop]
        start = wire.enter(now, nbytes)
        if start > now:
            owner.wait(route.nodes[hop], "link", now, start, wire.holder)
        wire.holder = owner
        if self.index == 0:
            delivery.first.append(start)
        elif self.index == delivery.bursts - 1:
            delivery.last.append(start)
        at = start + route.delays[hop]
        self.hop = hop = hop + 1
        if hop < len(route.wires):
            _after(env, now, at, self.step)
        elif delivery.memory_out is not None:
            _after(env, now, at, self._write)
        else:
            delivery.arrive(at + max(self.service, nbytes / route.slowest))
        return start

    def _write(self, _event: Any) -> None:
        """The header is at the memory: it is written while the bytes come in."""
        delivery, nbytes = self.delivery, self.nbytes
        txn, memory = delivery.txn, delivery.memory_out
        assert memory is not None
        assert txn.dst_addr is not None
        addr = txn.dst_addr + self.index * delivery.size
        start, access, write = memory.burst(delivery.env.now, addr, nbytes, txn.owner)
        service = max(self.service, nbytes / delivery.route.slowest, write)
        delivery.arrive(start + access + service)


def _after(
    env: simpy.Environment, now: float, at: float, callback: Callable[[Any], object]
) -> None:
    timeout = env.timeout(at - now if at > now else 0.0)
    timeout.callbacks.append(callback)  # type: ignore[arg-type]  # what it returns is ignored


def _memory(component: ComponentBase) -> MemoryEndpoint:
    if not isinstance(component, MemoryEndpoint):
        raise RoutingError(f"{component.node.id} ({component.node.type}) is no memory")
    return component

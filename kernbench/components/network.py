"""Time on the wires: hop-by-hop virtual cut-through (simulator.md section 5).

At each hop the header takes the link when it is free, the next header may follow when the bytes
have passed; the tail's serialisation is paid once, at the slowest link, where the transaction
ends. Bursts of one transaction leave one after the other, so streams interleave. One SimPy event a
hop and burst; no process.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """All wires of a machine; ``components`` may still be filling while it is made."""

    def __init__(
        self,
        env: simpy.Environment,
        graph: TopologyGraph,
        components: Mapping[str, ComponentBase],
        events: Recorder | None,
    ) -> None:
        self.env = env
        self.components = components
        self._events = events
        ns_per_mm = graph.spec.system.ns_per_mm
        self._wires = {
            ends: Wire(edge.bandwidth_gbs, edge.distance_mm * ns_per_mm)
            for ends, edge in graph.edge_by_ends.items()
        }
        self._routes: dict[tuple[str, ...], Route] = {}

    def route(self, path: tuple[str, ...]) -> Route:
        """The path made ready; RoutingError names a pair of nodes that no link joins."""
        route = self._routes.get(path)
        if route is None:
            wires, delays = [], []
            for ends in pairwise(path):
                wire = self._wires.get(ends)
                if wire is None:
                    raise RoutingError(f"no link from {ends[0]} to {ends[1]} on the path {path}")
                wires.append(wire)
                delays.append(wire.wire_ns + self.components[ends[1]].overhead_ns)
            route = self._routes[path] = Route(path, wires, delays)
        return route

    def transfer(self, txn: Transaction) -> Process:
        """Carry ``txn`` to its end; its Transfer goes to the owner's record, or to the recorder."""
        stream = _Stream(self, txn)
        t0 = self.env.now
        stream.emit()
        yield stream.done
        starts = stream.first if stream.bursts == 1 else stream.first + stream.last
        row = (txn.path, t0, txn.nbytes, stream.bursts, starts)
        if txn.owner.data_op:
            txn.owner.transfers.append(row)
        elif self._events is not None:
            self._events.transfer(txn.owner.cmd, row)


class _Stream:
    """One transaction under way: emits its bursts and counts them as they land."""

    __slots__ = (
        "bursts",
        "done",
        "emitted",
        "env",
        "first",
        "landed",
        "last",
        "memory_in",
        "memory_out",
        "route",
        "size",
        "txn",
    )

    def __init__(self, network: Network, txn: Transaction) -> None:
        self.env = network.env
        self.txn = txn
        self.route = network.route(txn.path)
        self.size = txn.burst_bytes or txn.nbytes
        self.bursts = -(-txn.nbytes // self.size)
        self.emitted = self.landed = 0
        self.first: list[float] = []
        self.last: list[float] = []
        self.done = self.env.event()
        ends = network.components
        self.memory_in = _memory(ends[txn.path[0]]) if txn.src_addr is not None else None
        self.memory_out = _memory(ends[txn.path[-1]]) if txn.dst_addr is not None else None

    def emit(self, _event: Any = None) -> None:
        """Send the next burst off; the one after it follows when the source is free again."""
        txn, env, index = self.txn, self.env, self.emitted
        self.emitted += 1
        nbytes = min(self.size, txn.nbytes - index * self.size)
        burst = _Burst(self, index, nbytes)
        more = self.emitted < self.bursts
        if self.memory_in is None:
            start = burst.hop_from(env.now)
            after = start + nbytes / self.route.wires[0].bytes_per_ns
        else:
            assert txn.src_addr is not None
            now, owner = env.now, txn.owner
            addr = txn.src_addr + index * self.size
            start, access, service = self.memory_in.burst(now, addr, nbytes, owner)
            burst.service = service
            _after(env, start + access, burst.step)
            after = start + service
        if more:
            _after(env, after, self.emit)

    def land(self, _event: Any) -> None:
        """One burst is whole at the destination."""
        self.landed += 1
        if self.landed == self.bursts:
            self.done.succeed()


class _Burst:
    """One burst: which node its header is at, and the slowest memory it has passed."""

    __slots__ = ("hop", "index", "nbytes", "service", "stream")

    def __init__(self, stream: _Stream, index: int, nbytes: int) -> None:
        self.stream = stream
        self.index = index
        self.nbytes = nbytes
        self.hop = 0
        self.service = 0.0

    def step(self, _event: Any) -> None:
        """The header is at node ``hop``: take the next link, or end."""
        stream = self.stream
        if self.hop < len(stream.route.wires):
            self.hop_from(stream.env.now)
        else:
            self._arrive(stream.env.now)

    def hop_from(self, now: float) -> float:
        """Take the link out of node ``hop``; returns when the header started on it."""
        stream, hop = self.stream, self.hop
        route, owner = stream.route, stream.txn.owner
        wire = route.wires[hop]
        start = wire.enter(now, self.nbytes)
        if start > now:
            owner.wait(route.nodes[hop], "link", now, start, wire.holder)
        wire.holder = owner
        if self.index == 0:
            stream.first.append(start)
        if self.index == stream.bursts - 1 and self.index:
            stream.last.append(start)
        self.hop = hop + 1
        _after(stream.env, start + route.delays[hop], self.step)
        return start

    def _arrive(self, now: float) -> None:
        stream = self.stream
        txn, start, access = stream.txn, now, 0.0
        service = max(self.service, self.nbytes / stream.route.slowest)
        if stream.memory_out is not None:
            assert txn.dst_addr is not None
            addr = txn.dst_addr + self.index * stream.size
            start, access, write = stream.memory_out.burst(now, addr, self.nbytes, txn.owner)
            service = max(service, write)
        _after(stream.env, start + access + service, stream.land)


def _after(env: simpy.Environment, at: float, callback: Any) -> None:
    delay = at - env.now
    env.timeout(delay if delay > 0.0 else 0.0).callbacks.append(callback)


def _memory(component: ComponentBase) -> MemoryEndpoint:
    if not isinstance(component, MemoryEndpoint):
        raise RoutingError(f"{component.node.id} ({component.node.type}) is no memory")
    return component

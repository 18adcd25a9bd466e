"""Time on the wires: hop-by-hop virtual cut-through (docs/machine.md, "Time on the
wires").

At each hop the header takes the link when it is free, and the next header may follow
when the bytes have passed; the tail's serialisation is paid once, at the slowest link,
where the transaction ends. Bursts of one transaction leave one after the other, so
streams interleave. There is one SimPy event a hop and burst (the last one is the
landing), and no process. What stands at a node is known as a ``Station`` only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappush
from itertools import pairwise
from typing import Any, Protocol

import simpy
from simpy.events import NORMAL

from kernbench.common.messages import MsgBase, Transaction, Transfer
from kernbench.components.timing import Process, Service
from kernbench.errors import RoutingError
from kernbench.sim_engine.event_log import Recorder
from kernbench.topology.graph import TopologyGraph


class Memory(Protocol):
    """What the network asks of a memory that a path begins or ends at."""

    @property
    def parallel_bytes(self) -> int:
        """How many bytes in a row it takes to keep all of its channels at work."""

    def burst(self, now: float, addr: int, nbytes: int, owner: MsgBase) -> Service:
        """Reserve the memory for one burst that comes now."""


class Station(Protocol):
    """What the network asks of the component at a node."""

    @property
    def overhead_ns(self) -> float:
        """What a passing header pays."""

    def as_memory(self) -> Memory:
        """The component as a memory; RoutingError if it is none."""


@dataclass(slots=True, eq=False)
class Wire:
    """One directed link: ``free_at`` is when the bytes of the last header have passed.

    ``holder`` is the message that took it last. Times are in ns.
    """

    bytes_per_ns: float
    wire_ns: float
    free_at: float = 0.0
    holder: MsgBase | None = None

    def enter(self, now: float, nbytes: int) -> float:
        """When a header that arrives now may start.

        From then on the link is taken until ``nbytes`` have passed.
        """
        start = now if now > self.free_at else self.free_at
        self.free_at = start + nbytes / self.bytes_per_ns
        return start


class Route:
    """A path made ready: its wires, and the delay of each.

    A delay is the ns from the start on a wire until the next node has the header.
    ``slowest`` is the bandwidth of the slowest wire, in bytes a ns.
    """

    __slots__ = ("delays", "nodes", "slowest", "wires")

    def __init__(
        self, nodes: tuple[str, ...], wires: list[Wire], delays: list[float]
    ) -> None:
        self.nodes = nodes
        self.wires = wires
        self.delays = delays
        rates = [wire.bytes_per_ns for wire in wires]
        self.slowest = min(rates, default=float("inf"))

    def zero_load(self, nbytes: int) -> float:
        """Latency in ns on the empty machine: overheads, wires, bytes / bottleneck."""
        return sum(self.delays) + nbytes / self.slowest


class Network:
    """All wires of a machine, each made when a path first uses it."""

    def __init__(
        self,
        env: simpy.Environment,
        graph: TopologyGraph,
        components: Mapping[str, Station],
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
        """The path made ready; RoutingError names two nodes that no link joins."""
        route = self._routes.get(path)
        if route is None:
            wires = [self._wire(ends, path) for ends in pairwise(path)]
            delays = [
                wire.wire_ns + self.components[node].overhead_ns
                for wire, node in zip(wires, path[1:], strict=True)
            ]
            route = Route(path, wires, delays)
            self._routes[path] = route
        return route

    def _wire(self, ends: tuple[str, str], path: tuple[str, ...]) -> Wire:
        """The wire of a link, made when it is first used.

        RoutingError if there is no such link; ``path`` is for the message.
        """
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
        """Carry ``txn`` to its end.

        Its ``Transfer`` goes to the owner's record where the owner is a data op, and
        else to the recorder.
        """
        delivery = Delivery(self, txn)
        delivery.start()
        yield delivery

    def read(self, request: Transaction, data: Transaction) -> Delivery:
        """Carry a request to its end, and then the data that answer it.

        The event that is returned fires when the data have landed.
        """
        asked = Delivery(self, request)
        answer = Delivery(self, data)
        asked.callbacks.append(answer.start)
        asked.start()
        return answer


class Delivery(simpy.Event):
    """One transaction under way; the event fires when its last burst has landed.

    What a memory sends leaves it in order. It reads only so far ahead that all its
    channels can work: a burst is asked for when the link can take it, and only so many
    at once.

    The attributes that a burst needs are set here once, for all of them: ``rate`` in
    bytes a ns, ``size`` and ``bursts`` (the bytes of a burst, and how many there are).
    ``starts`` holds the start at each hop, in ns, of the first and the last burst.
    """

    def __init__(self, network: Network, txn: Transaction) -> None:
        # These four are what simpy.Event has, made ready in one step.
        self.env = network.env
        self.callbacks = [self._note]
        self._ok = True
        self._value = None
        route = network.route(txn.path)
        self.txn = txn
        self.route = route
        self.rate = txn.rate_gbs if txn.rate_gbs < route.slowest else route.slowest
        self.size = txn.burst_bytes or txn.nbytes
        self.bursts = -(-txn.nbytes // self.size)
        self.emitted = 0
        self.arrived = 0
        self.t0 = 0.0
        self.landing = 0.0  # of the burst that lands last, of those that have arrived
        self.ready = 0.0  # when the memory has the last burst that was asked for
        self.starts: list[list[float]] = []
        self._events = network.events
        self.memory_in: Memory | None = None
        self.memory_out: Memory | None = None
        if txn.src_addr is not None:
            memory = network.components[txn.path[0]].as_memory()
            at_once = -(-memory.parallel_bytes // self.size)
            self.memory_in = memory
            # When the memory has done with the bursts that it reads now.
            self.reading: deque[float] = deque(maxlen=at_once)
        if txn.dst_addr is not None:
            self.memory_out = network.components[txn.path[-1]].as_memory()

    def start(self, _event: Any = None) -> None:
        """Send the first burst off."""
        self.t0 = self.env.now
        self._emit()

    def _emit(self, _event: Any = None) -> None:
        """Send the next burst off; the one after it follows when the source is free."""
        txn = self.txn
        now = self.env.now
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
            addr = txn.src_addr + offset
            start, access, service = self.memory_in.burst(now, addr, nbytes, txn.owner)
            burst.service = service
            if start + access > self.ready:
                self.ready = start + access
            burst.at(now, self.ready, _STEP)
            self.reading.append(start + service)
            begin = now
        if self.emitted < self.bursts:
            rate = min(self.route.wires[0].bytes_per_ns, txn.rate_gbs)
            free_at = begin + nbytes / rate
            if self.memory_in is not None and len(self.reading) == self.reading.maxlen:
                free_at = max(free_at, self.reading[0])
            self.env.timeout(free_at - now).callbacks.append(self._emit)

    def arrive(self, landing: float) -> None:
        """One more burst will be whole at the destination at ``landing``.

        With the last burst all of the transaction is.
        """
        self.arrived += 1
        if landing > self.landing:
            self.landing = landing
        if self.arrived == self.bursts:
            now = self.env.now
            delay = self.landing - now if self.landing > now else 0.0
            self.env.schedule(self, delay=delay)

    def _note(self, _event: Any) -> None:
        """Hand over what is recorded of a transaction that has landed."""
        txn = self.txn
        starts = self.starts[0]
        if self.bursts > 1:
            starts = starts + self.starts[1]
        row: Transfer = (txn.path, self.t0, txn.nbytes, self.bursts, starts)
        if txn.owner.data_op:
            txn.owner.transfers.append(row)
        elif self._events is not None:
            self._events.transfer(txn.owner.cmd, row)


class _Burst:
    """One burst, and the event that its header is at the next node.

    It is scheduled anew at each hop, as if it were a SimPy event: so a hop costs no
    Timeout, and its callback is a plain method whose ``self`` is the event.
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
        """The header is at node ``hop``: take the next link.

        Returns when the header started on it, in ns.
        """
        delivery = self.delivery
        hop = self.hop
        nbytes = self.nbytes
        route = delivery.route
        owner = delivery.txn.owner
        now: float = delivery.env.now
        wire = route.wires[hop]
        start = wire.enter(now, nbytes)
        if start > now:
            owner.wait(route.nodes[hop], "link", now, start, wire.holder)
        wire.holder = owner
        if self.starts is not None:
            self.starts.append(start)
        when = start + route.delays[hop]
        hop += 1
        self.hop = hop
        if hop < len(route.wires):
            self.at(now, when, _STEP)
        elif delivery.memory_out is not None:
            self.at(now, when, _WRITE)
        else:
            delivery.arrive(when + max(self.service, nbytes / delivery.rate))
        return start

    def write(self) -> None:
        """The header is at the memory: it is written while the bytes come in."""
        delivery = self.delivery
        nbytes = self.nbytes
        txn = delivery.txn
        memory = delivery.memory_out
        assert memory is not None
        assert txn.dst_addr is not None
        addr = txn.dst_addr + self.index * delivery.size
        start, access, write_ns = memory.burst(
            delivery.env.now, addr, nbytes, txn.owner
        )
        slowest_ns = max(self.service, nbytes / delivery.rate, write_ns)
        delivery.arrive(start + access + slowest_ns)


_STEP = (_Burst.step,)
_WRITE = (_Burst.write,)

"""Time on the wires: hop-by-hop virtual cut-through (docs/machine.md, "Time on the
wires").

At each hop the header takes the link when it is free, and the next header may follow
when the bytes have passed; the tail's serialisation is paid once, at the slowest link,
where the transaction ends. Bursts of one transaction leave one after the other, so
streams interleave. There is one SimPy event a hop and burst (the last one is the
landing), and no process. What stands at a node is known as a ``Station`` only.

Of our own components the network knows what ``run`` would take for a burst
(``overhead_ns``, or ``burst`` of a memory), and does not call it. A station with a
``run`` of its own is asked by that, in a process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappush
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeAlias

import simpy

from kernbench.common.exact_time import bytes_ns, exact_ns
from kernbench.common.messages import MsgBase, Transaction, Transfer
from kernbench.common.rows import Rows
from kernbench.components.clock import Clock
from kernbench.components.timing import Process, Service
from kernbench.errors import RoutingError
from kernbench.sim_engine.event_log import Recorder
from kernbench.topology.graph import TopologyGraph

Granted: TypeAlias = Callable[[Service], None]
"""What is called when a memory grants a burst, at the time when it does."""


class Memory(Protocol):
    """What the network asks of a memory that a path begins or ends at."""

    @property
    def parallel_bytes(self) -> int:
        """How many bytes in a row it takes to keep all of its channels at work."""

    def ask(
        self, now: float, rows: Rows, is_write: bool, owner: MsgBase, granted: Granted
    ) -> None:
        """Reserve the memory for one burst that comes now: its bytes in the memory.

        ``granted`` is called with the service, at once or at the time when the memory
        grants it.
        """


class Station(Protocol):
    """What the network asks of the component at a node."""

    @property
    def overhead_ns(self) -> float:
        """What a passing header pays."""

    @property
    def times_bursts(self) -> bool:
        """Whether its own ``run`` says how long a burst takes."""

    def run(self, env: simpy.Environment, msg: Any) -> Process:
        """Pay for a ``Burst`` that passes, or that is read or written here."""

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
        return self.take(now, bytes_ns(nbytes, self.bytes_per_ns))

    def take(self, now: float, taken_ns: float) -> float:
        """As ``enter``, for bytes that pass in ``taken_ns``."""
        start = now if now > self.free_at else self.free_at
        self.free_at = start + taken_ns
        return start


Hop: TypeAlias = "tuple[Wire, float, Then, float]"
"""One hop of a burst: the wire, its delay, what the burst does behind it, and how long
it takes the wire, in ns."""


class _Hops(dict[int, list[Hop]]):
    """The hops of a route by the bytes of a burst, each made when it is first needed.

    ``ways`` are the wire of each hop, its delay, and what a burst does behind it.
    """

    def __init__(self, ways: list[tuple[Wire, float, Then]]) -> None:
        self._ways = ways

    def __missing__(self, nbytes: int) -> list[Hop]:
        """Make them."""
        hops = []
        for wire, delay, then in self._ways:
            hops.append((wire, delay, then, bytes_ns(nbytes, wire.bytes_per_ns)))
        self[nbytes] = hops
        return hops


class Route:
    """A path made ready: its wires, and the delay of each.

    A delay is the ns from the start on a wire until the next node has the header, or,
    if the ``run`` of that node is to be asked, until it is there. ``slowest`` is the
    bandwidth of the slowest wire, in bytes a ns. ``is_read_by_run`` and
    ``is_written_by_run`` say whether the ``run`` of the node at its start, and at its
    end, is to be asked. ``carried`` counts the bytes of all transactions that went this
    way. ``hops`` are those of a burst, by its bytes.
    """

    __slots__ = (
        "_delays",
        "carried",
        "hops",
        "is_read_by_run",
        "is_written_by_run",
        "nodes",
        "slowest",
        "stations",
        "thens",
        "wires",
    )

    def __init__(
        self, nodes: tuple[str, ...], wires: list[Wire], stations: list[Station]
    ) -> None:
        self.nodes = nodes
        self.carried = 0
        self.wires = wires
        self.stations = stations
        self.is_read_by_run = stations[0].times_bursts
        self.is_written_by_run = stations[-1].times_bursts
        self.thens: list[Then] = []
        self._delays = []
        for wire, station in zip(wires, stations[1:], strict=True):
            delay = wire.wire_ns
            then: Then = _PASS
            if station is stations[-1] or not station.times_bursts:
                delay += station.overhead_ns
                then = _STEP
            self._delays.append(exact_ns(delay))
            self.thens.append(then)
        rates = [wire.bytes_per_ns for wire in wires]
        self.slowest = min(rates, default=float("inf"))
        self.hops = _Hops([*zip(wires, self._delays, self.thens, strict=True)])

    def zero_load(self, nbytes: int) -> float:
        """Latency in ns on the empty machine: overheads, wires, bytes / bottleneck.

        What a ``run`` takes that is to be asked is not in it.
        """
        return sum(self._delays) + bytes_ns(nbytes, self.slowest)


class Network:
    """All wires of a machine, each made when a path first uses it."""

    def __init__(
        self,
        env: Clock,
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
            route = Route(path, wires, [self.components[node] for node in path])
            self._routes[path] = route
        return route

    def carried(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Each path that was used, and the bytes that went along it."""
        for path, route in self._routes.items():
            if route.carried:
                yield path, route.carried

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


@lru_cache(maxsize=1024)
def _cut_anywhere(nbytes: int, size: int) -> tuple[list[Rows], tuple[int, ...]]:
    """As ``Rows.cut``, of bytes of which no memory is asked."""
    return Rows(0, 1, nbytes, 0).cut(size)


class Delivery(simpy.Event):
    """One transaction under way; the event fires when its last burst has landed.

    What a memory sends leaves it in order. It reads only so far ahead that all its
    channels can work: a burst is asked for when the link can take it, and only so many
    at once.

    The attributes that a burst needs are set here once, for all of them: ``rate`` in
    bytes a ns, ``pieces`` (the rows of each burst, in the memory that the path begins
    or ends at, if there is one), ``sizes`` (the bytes of each) and ``bursts`` (how many
    there are). ``starts`` holds the start at each hop, in ns, of the first and the last
    burst.
    """

    env: Clock

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
        rows = txn.src or txn.dst
        if rows is None:
            self.pieces, self.sizes = _cut_anywhere(txn.nbytes, txn.burst_bytes)
        else:
            self.pieces, self.sizes = rows.cut(txn.burst_bytes)
        self.bursts = len(self.sizes)
        self.emitted = 0
        self.arrived = 0
        self.t0 = 0.0
        self.landing = 0.0  # of the burst that lands last, of those that have arrived
        self.ready = 0.0  # when the memory has the last burst that was asked for
        self.starts: list[list[float]] = []
        self._events = network.events
        self.memory_in: Memory | None = None
        self.memory_out: Memory | None = None
        self.is_read_by_run = False
        self.at_end: Then | None = None  # what a burst does at a memory that it ends at
        if txn.src is not None:
            if route.is_read_by_run:
                self.is_read_by_run = True
            else:
                memory = route.stations[0].as_memory()
                self.memory_in = memory
                if self.bursts > 1:
                    at_once = -(-memory.parallel_bytes // self.sizes[0])
                    self.at_once = at_once
                    self.ungranted = 0  # bursts that the memory lets wait
                    self.next_is_due = False
                    self.leaves_next = 0
                    # Bursts that one before them keeps in the memory, and since when.
                    self.held: dict[int, tuple[Burst, float]] = {}
                    # When the memory has done with the bursts that it reads now.
                    self.reading: deque[float] = deque(maxlen=at_once)
        if txn.dst is not None:
            if route.is_written_by_run:
                self.at_end = _WRITE_BY_RUN
            else:
                self.memory_out = route.stations[-1].as_memory()
                self.at_end = _WRITE

    def start(self, _event: Any = None) -> None:
        """Send the first burst off."""
        self.t0 = self.env._now
        self._emit()

    def _emit(self, _event: Any = None) -> None:
        """Send the next burst off; the one after it follows when the source is free."""
        txn = self.txn
        now = self.env._now  # the property costs a Python call
        index = self.emitted
        nbytes = self.sizes[index]
        burst = Burst(self, index, nbytes)
        self.emitted += 1
        is_last = self.emitted == self.bursts
        if self.memory_in is not None:
            if self.bursts > 1:
                self.ungranted += 1
                self.next_is_due = not is_last
            self.memory_in.ask(now, self.pieces[index], False, txn.owner, burst.read)
            if not is_last and self.next_is_due:
                self.read_on(now, nbytes)
            return
        if self.is_read_by_run:
            self.env.process(burst.served())
            begin = now
        else:
            begin = burst.step()
        if not is_last:
            self.emit_after(begin, nbytes)

    def read_on(self, now: float, nbytes: int) -> None:
        """Have the next burst read once the link can take it, if it is due.

        It is, behind the one before; but not while so many wait for the memory that all
        of its channels will be at work.
        """
        if self.next_is_due and self.ungranted < self.at_once:
            self.next_is_due = False
            self.emit_after(now, nbytes)

    def emit_after(self, begin: float, nbytes: int) -> None:
        """Send off the next burst behind bytes that began to leave at ``begin``."""
        rate = min(self.route.wires[0].bytes_per_ns, self.txn.rate_gbs)
        free_at = begin + bytes_ns(nbytes, rate)
        if self.memory_in is not None and len(self.reading) == self.reading.maxlen:
            free_at = max(free_at, self.reading[0])
        env = self.env
        env.call_at(free_at, env.turn, self._emit)

    def leave(self, burst: Burst, ready: float) -> None:
        """Let a burst leave the memory, and those that it kept there.

        The memory has it from ``ready`` on, in ns.
        """
        now: float = self.env._now
        while True:
            if ready > self.ready:
                self.ready = ready
            burst.at(self.ready if self.ready > now else now, _STEP)
            self.leaves_next += 1
            if self.leaves_next not in self.held:
                return
            burst, ready = self.held.pop(self.leaves_next)

    def arrive(self, landing: float) -> None:
        """One more burst will be whole at the destination at ``landing``.

        With the last burst all of the transaction is.
        """
        self.arrived += 1
        if landing > self.landing:
            self.landing = landing
        if self.arrived == self.bursts:
            now = self.env._now
            delay = self.landing - now if self.landing > now else 0.0
            self.env.schedule(self, delay=delay)

    def _note(self, _event: Any) -> None:
        """Hand over what is recorded of a transaction that has landed."""
        txn = self.txn
        self.route.carried += txn.nbytes
        starts = self.starts[0]
        if self.bursts > 1:
            starts = starts + self.starts[1]
        row: Transfer = (txn.path, self.t0, txn.nbytes, self.bursts, starts)
        if txn.owner.data_op:
            txn.owner.transfers.append(row)
        elif self._events is not None:
            self._events.transfer(txn.owner.cmd, row)


class Burst:
    """One burst, and the event that its header is at the next node.

    It is scheduled anew at each hop, as if it were a SimPy event: so a hop costs no
    Timeout, and its callback is a plain method whose ``self`` is the event.

    It is also what a component's own ``run`` is given of a transaction that passes it,
    or that is read or written there: ``nbytes`` is the size of this burst, ``txn`` the
    transaction, and ``rows`` where its bytes lie in the memory, from ``addr`` on; both
    are None where it only passes.
    ``service`` is how long the slowest memory so far has been busy with it, in ns: its
    bytes cannot land in less.
    """

    __slots__ = (
        "callbacks",
        "delivery",
        "hop",
        "hops",
        "index",
        "nbytes",
        "service",
        "starts",
    )

    data_op: ClassVar[bool] = False
    _ok: ClassVar[bool] = True

    def __init__(self, delivery: Delivery, index: int, nbytes: int) -> None:
        self.delivery = delivery
        self.index = index
        self.nbytes = nbytes
        self.hop = 0
        self.hops = delivery.route.hops[nbytes]
        self.service = 0.0
        self.starts: list[float] | None = None
        if index == 0 or index == delivery.bursts - 1:
            self.starts = []
            delivery.starts.append(self.starts)

    @property
    def txn(self) -> Transaction:
        """The transaction that it is a part of."""
        return self.delivery.txn

    @property
    def owner(self) -> MsgBase:
        """The message on whose behalf it goes."""
        return self.delivery.txn.owner

    @property
    def rows(self) -> Rows | None:
        """Its bytes in the memory that it is read from, or written to, here."""
        delivery = self.delivery
        end: Rows | None = None
        if self.hop == 0:
            end = delivery.txn.src
        elif self.hop == len(self.hops):
            end = delivery.txn.dst
        return None if end is None else delivery.pieces[self.index]

    @property
    def addr(self) -> int | None:
        """The address of its first byte there."""
        rows = self.rows
        return None if rows is None else rows.addr

    def at(self, when: float, callbacks: Then) -> None:
        """Have ``callbacks`` called at ``when``, which is not before now."""
        self.callbacks = callbacks
        env = self.delivery.env
        entry = (when, env.turn, next(env._eid), self)
        heappush(env._queue, entry)  # type: ignore[misc]

    def step(self) -> float:
        """The header is at node ``hop``: take the next link.

        Returns when the header started on it, in ns.
        """
        delivery = self.delivery
        env = delivery.env
        hop = self.hop
        hops = self.hops
        owner = delivery.txn.owner
        now: float = env._now  # the property costs a Python call
        wire, delay, then, taken_ns = hops[hop]
        # What ``Wire.take`` does, without the call: there is one a hop and burst.
        start = wire.free_at
        if start > now:
            owner.wait(delivery.route.nodes[hop], "link", now, start, wire.holder)
        else:
            start = now
        wire.free_at = start + taken_ns
        wire.holder = owner
        if self.starts is not None:
            self.starts.append(start)
        when = start + delay
        hop += 1
        self.hop = hop
        if hop < len(hops):
            # What ``at`` does, without the call.
            self.callbacks = then
            entry = (when, env.turn, next(env._eid), self)
            heappush(env._queue, entry)  # type: ignore[misc]
        elif delivery.at_end is not None:
            self.at(when, delivery.at_end)
        else:
            slowest_ns = bytes_ns(self.nbytes, delivery.rate)
            if self.service > slowest_ns:
                slowest_ns = self.service
            delivery.arrive(when + slowest_ns)
        return start

    def read(self, service: Service) -> None:
        """The memory has granted it: it leaves it, behind those before it."""
        delivery = self.delivery
        now: float = delivery.env._now
        start, access, service_ns = service
        self.service = service_ns
        ready = start + access
        if delivery.bursts == 1:
            self.at(ready if ready > now else now, _STEP)
            return
        if self.index == delivery.leaves_next:
            delivery.leave(self, ready)
        else:
            delivery.held[self.index] = (self, ready)
        delivery.reading.append(start + service_ns)
        delivery.ungranted -= 1
        if delivery.next_is_due:
            delivery.read_on(now, self.nbytes)

    def write(self) -> None:
        """The header is at the memory: it asks to be written."""
        delivery = self.delivery
        memory = delivery.memory_out
        assert memory is not None
        rows = delivery.pieces[self.index]
        owner = delivery.txn.owner
        memory.ask(delivery.env._now, rows, True, owner, self.written)

    def written(self, service: Service) -> None:
        """The memory has granted it: it is written while the bytes come in."""
        delivery = self.delivery
        start, access, write_ns = service
        whole_ns = bytes_ns(self.nbytes, delivery.rate)
        slowest_ns = max(self.service, whole_ns, write_ns)
        delivery.arrive(start + access + slowest_ns)

    def pass_by_run(self) -> None:
        """The header is at a node whose own ``run`` lets it go on."""
        self.delivery.env.process(self.served())

    def served(self) -> Process:
        """Have the station at node ``hop`` pay for it; then take the next link."""
        yield from self._run()
        self.step()

    def write_by_run(self) -> None:
        """The header is at a memory whose own ``run`` takes it."""
        self.delivery.env.process(self._written())

    def _written(self) -> Process:
        """Have the memory pay for it; it lands when its bytes have come in as well."""
        yield from self._run()
        delivery = self.delivery
        slowest_ns = max(self.service, bytes_ns(self.nbytes, delivery.rate))
        delivery.arrive(delivery.env.now + slowest_ns)

    def _run(self) -> Process:
        """What the ``run`` of the station at node ``hop`` takes for it."""
        delivery = self.delivery
        return delivery.route.stations[self.hop].run(delivery.env, self)


Then: TypeAlias = tuple[Callable[[Burst], object]]
"""What is called when a burst has come to a node."""

_STEP = (Burst.step,)
_PASS = (Burst.pass_by_run,)
_WRITE = (Burst.write,)
_WRITE_BY_RUN = (Burst.write_by_run,)

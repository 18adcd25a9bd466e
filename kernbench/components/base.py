"""What every component is: a node, slots of service, and hooks that record it.

A model of an engine that takes 5 ns for anything is this class, a row of COMPONENTS or
a class of a plugin, ``module:Class``, and ``impl:`` in topology.yaml:

    class QuickGemm(PeGemm):
        def run(self, env, msg):
            yield env.timeout(5.0)

The hooks are those of ADR-0020 D2. A model overrides ``run`` only; logging is in the
hooks around it. What merely passes a component, or is read or written in it, is given
to its ``run`` too, as a ``Burst``. Knows no trace and no screen.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import simpy

from kernbench.common.arrays import Array
from kernbench.common.exact_time import TICK_NS, exact_ns
from kernbench.common.kernel_texts import KernelTexts
from kernbench.common.messages import MsgBase, Region, Transaction, adopt
from kernbench.common.rows import Rows
from kernbench.components.clock import Clock
from kernbench.components.network import Burst as Burst
from kernbench.components.network import Granted, Memory, Network
from kernbench.components.pages import PageTable
from kernbench.components.ring_sizes import ShortRing
from kernbench.components.timing import Process as Process
from kernbench.components.timing import Service as Service
from kernbench.errors import KernbenchError, RoutingError
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.sim_engine.event_log import Recorder
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger
from kernbench.sim_engine.pending import PendingRanges
from kernbench.topology.graph import Node, TopologyGraph
from kernbench.triton_emu.calls import CallNumbers
from kernbench.triton_emu.sites import CallSites

Part = TypeVar("Part", bound="ComponentBase")


@dataclass(slots=True)
class TileCounts:
    """How many tiles have begun, of all that the composites so far have."""

    begun: int = 0
    known: int = 0


@dataclass(frozen=True)
class Sim:
    """All that a component gets to know of the world.

    ``op_logger`` and ``events`` are None where nothing is recorded. ``numbers`` gives
    the numbers of calls, and ``warnings`` holds what an engine that only warns of
    memory errors let pass. ``notes`` are what kernels have to say with the results,
    ``texts`` what they print,
    ``tiles`` counts those of the composites so far, and
    ``short_rings`` those that kept a link waiting, by sender and direction, and
    ``reserved`` the bytes that are taken from the end of a memory: by space, sip, cube
    and pe (-1: of the whole cube).
    """

    env: Clock
    graph: TopologyGraph
    router: PathRouter
    resolver: AddressResolver
    store: MemoryStore
    op_logger: OpLogger | None
    events: Recorder | None
    pending: PendingRanges
    pages: PageTable
    components: Mapping[str, ComponentBase]
    network: Network
    sites: CallSites
    numbers: CallNumbers
    warnings: list[str]
    notes: list[str] = field(default_factory=list)
    texts: KernelTexts = field(default_factory=KernelTexts)
    tiles: TileCounts = field(default_factory=TileCounts)
    short_rings: dict[tuple[str, str], ShortRing] = field(default_factory=dict)
    reserved: Counter[tuple[str, int, int, int]] = field(default_factory=Counter)

    def component(self, node_id: str) -> ComponentBase:
        """The component at a node."""
        return self.components[node_id]

    def peek(self, region: Region) -> Array | str:
        """The bytes of a region, in its shape, or the reason that they are pending."""
        if region.strided is not None:
            why = self.pending.find_rows(region.space, region.strided)
            if why is not None:
                return str(why)
            return self.store.view_rows(
                region.space, region.strided, region.shape, region.dtype
            )
        why = self.pending.find(region.space, region.addr, region.nbytes)
        if why is not None:
            return str(why)
        return self.store.view(region.space, region.addr, region.shape, region.dtype)

    def put(self, region: Region, data: Array | str) -> None:
        """Let these bytes be in a region now; a text is why they are pending there."""
        if region.strided is not None:
            self._put_rows(region.space, region.strided, data)
        elif isinstance(data, str):
            self.pending.mark(region.space, region.addr, region.nbytes, data)
        else:
            self.store.patch(region.space, region.addr, data)
            self.pending.clear(region.space, region.addr, region.nbytes)

    def _put_rows(self, space: str, rows: Rows, data: Array | str) -> None:
        """As ``put``, of rows with gaps between them, which stay as they are."""
        if isinstance(data, str):
            self.pending.mark_rows(space, rows, data)
        else:
            self.store.patch_rows(space, rows, data)
            self.pending.clear_rows(space, rows)

    def transfer(self, txn: Transaction) -> Process:
        """Carry a transaction along its path; ends when its last byte has landed."""
        return self.network.transfer(txn)

    def read(self, request: Transaction, data: Transaction) -> simpy.Event:
        """Carry a request, then the data that answer it; the event is their landing."""
        return self.network.read(request, data)


@dataclass(slots=True)
class _Slots:
    """The free service slots of one channel, and the queue of who waits for one."""

    free: list[int]
    queue: deque[simpy.Event] = field(default_factory=deque)


class ComponentBase:
    """One component: serves up to ``slots`` messages a channel at once.

    More queue, first come first served. ``channels`` are independent pools of slots (a
    read and a write channel). ``overhead_ns`` is what a passing header pays here, and
    ``queue_reason`` the wait reason of a message that queues. ``serves`` are the types
    of message that ``run`` takes; others are refused. If a ``Burst`` is among them, a
    ``run`` that is not ours pays for each burst that passes, in place of
    ``overhead_ns``; bursts need no slot.
    """

    serves: ClassVar[tuple[type[Any], ...]] = (MsgBase, Burst)
    slots: int = 1
    channels: ClassVar[int] = 1
    overhead_ns: float = 0.0
    queue_reason: ClassVar[str] = "engine"

    def __init__(self, node: Node, sim: Sim) -> None:
        self.node = node
        self.sim = sim
        self.overhead_ns = node.overhead_ns
        self._op_logger = sim.op_logger
        self._takes = tuple(kind for kind in self.serves if issubclass(kind, MsgBase))
        self._pools: list[_Slots] = []

    def channel(self, msg: Any) -> int:
        """The channel that serves ``msg``."""
        return 0

    def run(self, env: simpy.Environment, msg: Any) -> Process:
        """Pay the service time of ``msg``: the one method that a model overrides."""
        if not isinstance(msg, Burst):
            raise self._refusal(msg)
        yield env.timeout(exact_ns(self.overhead_ns))

    known_run: ClassVar[Callable[..., Process]] = run
    """The ``run`` of ours of which the network knows what it takes for a burst."""

    @property
    def times_bursts(self) -> bool:
        """Whether the network has to ask ``run`` how long a burst takes."""
        return is_timed_by_run(type(self))

    def as_memory(self) -> Memory:
        """The component as a memory that a path can begin or end at.

        RoutingError if it is none.
        """
        raise RoutingError(f"{self.node.id} ({self.node.type}) is no memory")

    def free_slots(self) -> list[int]:
        """How many slots of each channel are free."""
        return [len(pool.free) for pool in self._made_pools()]

    def queued(self) -> int:
        """How many messages wait for a slot."""
        return sum(len(pool.queue) for pool in self._made_pools())

    def _made_pools(self) -> list[_Slots]:
        """The slots of each channel, made when they are first needed.

        A model may set ``slots`` in its constructor, after that of this class.
        """
        if not self._pools:
            for channel in range(self.channels):
                first = channel * self.slots
                self._pools.append(_Slots([*range(first, first + self.slots)]))
        return self._pools

    def _forward_txn(self, env: simpy.Environment, msg: MsgBase) -> Process:
        """Queue for a slot, serve, record; never overridden."""
        if not isinstance(msg, self._takes):
            self._admit(msg)
        pools = self._pools or self._made_pools()
        pool = pools[self.channel(msg)]
        if pool.free:
            slot = heapq.heappop(pool.free)
        else:
            turn = env.event()
            pool.queue.append(turn)
            t_queue = env.now
            slot, holder = yield turn
            msg.wait(self.node.id, self.queue_reason, t_queue, env.now, holder)
        msg.slot = slot
        msg.t_start = env._now  # the property costs a Python call
        self._on_process_start(env, msg)
        yield from self.run(env, msg)
        if msg.data_op:
            if env._now <= msg.t_start:
                yield env.timeout(TICK_NS)
        elif msg.undone:
            raise self._unserved(msg)
        self._on_process_end(env, msg)
        if pool.queue:
            pool.queue.popleft().succeed((slot, msg))
        else:
            heapq.heappush(pool.free, slot)

    def _on_process_start(self, env: simpy.Environment, msg: MsgBase) -> None:
        """Tell who listens that service has started, and open its record.

        Called just before ``run`` (ADR-0020 D2).
        """
        if msg.started is not None:
            msg.started.succeed()
            msg.started = None
        if self._op_logger is not None and msg.data_op:
            self._op_logger.record_start(msg.t_start, self.node.id, msg)

    def _on_process_end(self, env: simpy.Environment, msg: MsgBase) -> None:
        """Close the record of a service; called just after ``run`` (ADR-0020 D2)."""
        if self._op_logger is not None and msg.data_op:
            self._op_logger.record_end(env._now, self.node.id, msg)

    def _admit(self, msg: Any) -> None:
        """Make a message that is no MsgBase fit to be served, if it may be served."""
        if not isinstance(msg, self.serves):
            raise self._refusal(msg)
        adopt(msg)

    def _refusal(self, msg: MsgBase) -> KernbenchError:
        """The error for a message that this component does not serve."""
        names = [kind.__name__ for kind in self.serves if kind not in (MsgBase, Burst)]
        valid = ", ".join(names) or "nothing"
        return KernbenchError(
            f"{self.node.id} ({self.node.type}) serves no {type(msg).__name__}; "
            f"it serves {valid}"
        )

    def _unserved(self, msg: MsgBase) -> KernbenchError:
        """The error for a ``run`` that took time and left out what it is there for."""
        return KernbenchError(
            f"{self.node.id}: run of {type(self).__name__} ended and {msg.undone}; "
            "take what time you like, and also `yield from super().run(env, msg)`"
        )

    def sibling(self, engine: str, kind: type[Part]) -> Part:
        """The component of that name in the same PE (or the same cube, or IO chiplet).

        KernbenchError if it is no ``kind``, whose methods are relied on here.
        """
        found = self.sim.component(self.sim.graph.at(*self.node.place, engine))
        if not isinstance(found, kind):
            raise KernbenchError(
                f"{found.node.id}: impl of {engine} must subclass the built-in one, "
                f"{kind.__name__}"
            )
        return found


def is_timed_by_run(model: type[ComponentBase]) -> bool:
    """Whether the ``run`` of a class is not ours, and takes bursts."""
    return model.run is not model.known_run and issubclass(Burst, model.serves)


class MemoryEndpoint(ComponentBase):
    """A component whose bytes a transaction can end at or start from.

    ``parallel_bytes`` is how many bytes in a row it takes to keep all of its channels
    at work. A model overrides ``burst``, which costs no process, or ``run``.
    """

    parallel_bytes: int = 1

    def as_memory(self) -> Memory:
        """The memory is this component itself."""
        return self

    def run(self, env: simpy.Environment, msg: Burst) -> Process:
        """Pay what ``burst`` says up to the access; its bytes follow meanwhile."""
        rows = msg.rows if isinstance(msg, Burst) else None
        if rows is None:
            yield from super().run(env, msg)
            return
        is_write = msg.hop > 0
        event = env.event()

        def granted(service: Service) -> None:
            event.succeed(service)

        self.ask(env.now, rows, is_write, msg.owner, granted)
        start, access, service = yield event
        msg.service = max(msg.service, service)
        yield env.timeout(start + access - env.now)

    known_run = run

    def ask(
        self, now: float, rows: Rows, is_write: bool, owner: MsgBase, granted: Granted
    ) -> None:
        """Grant one burst at once; a model in which bursts wait has its own."""
        granted(self.burst(now, rows, owner))

    def burst(self, now: float, rows: Rows, owner: MsgBase) -> Service:
        """Reserve the memory for one burst, of these bytes; times are in ns.

        It is taken from its start for its service time, and its data are there after
        the access latency.
        """
        raise KernbenchError(f"{self.node.id} ({self.node.type}) models no bursts")

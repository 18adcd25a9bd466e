"""Phase 1: owns the SimPy environment and the components, and runs what the host asks.

Host actions (writes, launches, reads) of one stream start in order, each when the one
before has ended. Every rank has a stream, and the bench itself has one that all the
others come after. Knows no torch: ``run`` takes a callable that is given the engine.
"""

from __future__ import annotations

import gc
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import simpy

from kernbench.common.delays import Delay
from kernbench.common.exact_time import exact_ns
from kernbench.common.messages import (
    NO_CMD,
    HostReadCmd,
    HostWriteCmd,
    LaunchMsg,
    Waiter,
)
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.user_code import end_if_forked
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.clock import HOST as HOST
from kernbench.components.clock import Clock
from kernbench.components.delays import DelayedCalls
from kernbench.components.launches import LAUNCH_BYTES, serve_launch
from kernbench.components.network import Network
from kernbench.components.pages import PageTable
from kernbench.components.registry import check_model, component_class
from kernbench.components.ring_sizes import short_ring_notes
from kernbench.errors import DeadlockError, LimitError
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.sim_engine.event_log import Recorder, Shard, Site
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger, OpRecord, OpSink, canonical_rows
from kernbench.sim_engine.pending import PendingRanges
from kernbench.topology.graph import Place, TopologyGraph
from kernbench.triton_emu.calls import CallNumbers
from kernbench.triton_emu.sites import CallSites

_DEFAULT = object()

PROGRESS_EVENTS = 20_000
"""Events between two calls of ``GraphEngine.progress``."""

_LISTED = 32
"""Waiters that a DeadlockError names."""

_FULL_RING = (
    "a full ring goes on when its reader recvs: recv as often as is sent, and sooner, "
    "or send with wait=False"
)
"""What a DeadlockError says of what to do where a ring is full."""


@dataclass(frozen=True, slots=True)
class TimingResult:
    """What Phase 1 measured."""

    end_ns: float
    ops_by_kind: dict[str, int]


class LaunchSpan(NamedTuple):
    """A launch that has ended.

    It lasted from the start of its first PE to the end of its last, in ns.
    """

    name: str
    t_start: float
    t_end: float


class _OpLimit:
    """Hands ops on to ``sink``; calls ``end(why)`` with the first that is too many."""

    def __init__(
        self, sink: OpSink | None, max_ops: int, end: Callable[[str], None]
    ) -> None:
        self._sink = sink
        self._max_ops = max_ops
        self._end = end

    def op(self, row: int, *rest: Any) -> None:
        """Take the op in ``row``."""
        if self._sink is not None:
            self._sink.op(row, *rest)
        if row >= self._max_ops:
            self._end(f"max_ops={self._max_ops:,}")


class _Components(dict[str, ComponentBase]):
    """The components by node id, each made when it is first asked for."""

    sim: Sim

    def __init__(self, graph: TopologyGraph, delays: DelayedCalls | None) -> None:
        super().__init__()
        self._delays = delays
        self._nodes = graph.nodes
        models = {(node.type, node.impl) for node in graph.nodes.values()}
        for kind, impl in sorted(models):
            check_model(kind, impl)
        self._classes = {impl: component_class(impl) for _, impl in models}

    def __missing__(self, node_id: str) -> ComponentBase:
        node = self._nodes[node_id]
        made = self._classes[node.impl](node, self.sim)
        if self._delays is not None:
            self._delays.attach(made)
        self[node_id] = made
        return made


class GraphEngine:
    """The simulator of one machine.

    ``op_logger=None`` turns the op log off. Everything is reported to ``recorder``;
    unless ``keep``, it alone has the op log. With ``warn_memory``, bytes never written
    read as 0xFF. While it simulates, ``progress(simulated ns, ops, events)`` is called
    every PROGRESS_EVENTS events.

    LimitError ends a run that goes on after ``max_ns`` of simulated time, or makes more
    than ``max_ops`` ops. ``delays`` hold ops back; those whose op has not occurred so
    far are ``unmet``.
    """

    progress: Callable[[float, int, int], object] | None = None

    def __init__(
        self,
        graph: TopologyGraph,
        *,
        op_logger: Any = _DEFAULT,
        recorder: Recorder | None = None,
        warn_memory: bool = False,
        keep: bool = True,
        max_ns: float = math.inf,
        max_ops: int | None = None,
        delays: Sequence[Delay] = (),
    ) -> None:
        self.graph = graph
        self._pid = os.getpid()
        self.env = Clock(node.place for node in graph.nodes.values())
        self.store = MemoryStore(fill=0xFF if warn_memory else None)
        self.pending = PendingRanges()
        self.recorder = recorder
        if op_logger is _DEFAULT:
            sink: OpSink | None = recorder
            if max_ops is not None:
                sink = _OpLimit(recorder, max_ops, self._end_after_this_event)
            op_logger = OpLogger(self.store, sink, keep, self._is_pending)
        self.op_logger: OpLogger | None = op_logger
        self._keep = keep
        # No event after it is simulated, and why not.
        self._end_ns = max_ns
        self._limit = f"max_ns={max_ns:,.15g}"
        self._numbers = CallNumbers(keep)
        self._delays: DelayedCalls | None = None
        if delays:
            self._delays = DelayedCalls(delays, keep)
            self._numbers = self._delays
        components = _Components(graph, self._delays)
        self.network = Network(self.env, graph, components, recorder)
        self.sim = Sim(
            env=self.env,
            graph=graph,
            router=PathRouter(graph),
            resolver=AddressResolver(graph),
            store=self.store,
            op_logger=op_logger,
            events=recorder,
            pending=self.pending,
            pages=PageTable(),
            components=components,
            network=self.network,
            sites=CallSites(recorder),
            numbers=self._numbers,
            warnings=[],
        )
        components.sim = self.sim
        self.launches: list[LaunchSpan] = []
        self.launched: set[Place] = set()
        """The PEs that some kernel was to run on."""
        # where the tensors of the host lie, by name
        self.tensors: dict[str, list[Shard]] = {}
        self.stream = HOST  # of the host actions that come now
        self._events = 0
        self._launches = 0
        # the last host action of each stream
        self._tails: dict[int, simpy.Process] = {}
        # who has come to the barrier that is open
        self._arrived: list[simpy.Event] = []
        # the calls that have not come back, by number
        self._waiting: dict[int, Waiter] = {}

    def _is_pending(self, space: str, addr: int, nbytes: int) -> bool:
        """Whether some of these bytes are still to be computed."""
        return self.pending.find(space, addr, nbytes) is not None

    @property
    def op_log(self) -> Sequence[OpRecord]:
        """All records so far, sorted by t_start; empty without a logger.

        If they are not kept here, they are read back from the recorder at each call.
        """
        if self.recorder is not None and not self._keep:
            return self.recorder.op_log()
        return [] if self.op_logger is None else self.op_logger.records

    def sites_of(self, ops: Collection[int]) -> dict[int, Site]:
        """By op, which are canonical positions, the call that issued it, if known.

        If ops are not kept here, they are read back from the recorder at each call.
        """
        if self.recorder is not None and not self._keep:
            return self.recorder.sites_of(ops)
        if self.op_logger is None:
            return {}
        rows = canonical_rows(self.op_logger.records)
        calls = self.op_logger.calls
        sites = self._numbers.sites
        known = [(op, calls[rows[op]]) for op in ops if op < len(rows)]
        return {op: sites[call] for op, call in known if call < len(sites)}

    def line_of(self, op: int) -> str:
        """The "file:line" of the call that issued an op; "" where it is not known."""
        site = self.sites_of((op,)).get(op)
        return f"{site.file}:{site.line}" if site else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the machine that ran, and of its kernels, a line each."""
        return (*short_ring_notes(self.sim.short_rings), *self.sim.notes)

    @property
    def next_cmd(self) -> int:
        """Number of the next call."""
        return self._numbers.upcoming

    @property
    def unmet(self) -> tuple[Delay, ...]:
        """The delays whose op has not occurred so far."""
        if self._delays is None:
            return ()
        return tuple(self._delays.unmet)

    def run(self, benchmark: Callable[[GraphEngine], object]) -> None:
        """Call ``benchmark`` with this engine, then simulate until nothing is left.

        The cyclic garbage collector is off meanwhile: a record that is kept costs 3.3
        us with it, 0.8 without. What was made meanwhile counts as old afterwards: as
        young it would be looked at twice over, at the next things that are made.
        """
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            benchmark(self)
            self.drain()
        finally:
            gc.freeze()
            gc.unfreeze()  # to the oldest generation
            gc.enable()

    def simulate(self) -> None:
        """Simulate until nothing more can happen; not in a process that was forked."""
        end_if_forked(self._pid)
        while self._dispatch(PROGRESS_EVENTS):
            self._events += PROGRESS_EVENTS
            if self.progress is not None:
                rows = 0 if self.op_logger is None else self.op_logger.rows
                self.progress(self.env.now, rows, self._events)

    def drain(self) -> None:
        """Simulate until all streams are empty.

        Raises DeadlockError if something can never end.
        """
        self.simulate()
        if not self._waiting:
            return
        if self.recorder is not None:
            for cmd, waiter in self._waiting.items():
                message = f"never ended: {waiter.what}"
                self.recorder.text(self.env.now, cmd, "error", message)
        raise DeadlockError(_deadlock(self.env.now, self._waiting.values()))

    def give_up(self) -> None:
        """Record the calls that have not come back, as they will not any more."""
        # recording one takes it out of those that wait
        for waiter in list(self._waiting.values()):
            waiter.record()

    def _dispatch(self, events: int) -> bool:
        """``Environment.step`` in one loop; whether there were so many events."""
        env = self.env
        queue = env._queue
        for _ in range(events):
            try:
                entry = heappop(queue)
            except IndexError:
                return False
            when, turn, _, event = entry
            if when > self._end_ns:
                heappush(queue, entry)
                raise self._limit_error()
            env._now = when
            env.turn = turn | 1
            callbacks = event.callbacks
            event.callbacks = None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        return True

    def _end_after_this_event(self, why: str) -> None:
        self._end_ns = -math.inf
        self._limit = why

    def _limit_error(self) -> LimitError:
        """What to raise where something is still to be done and a limit forbids it."""
        running = [f"{w.what} since {w.since:g} ns" for w in self._waiting.values()]
        listed = "; ".join(running[:_LISTED]) or "nothing that was called"
        return LimitError(
            f"stopped at {self.env.now:g} ns by the limit {self._limit}; still "
            f"running: {listed}; give a higher limit, or look what never ends"
        )

    def host_write(
        self, writes: Sequence[tuple[Place, HostWriteCmd]], site: Site
    ) -> None:
        """Write shards from host memory, all at once.

        They are visible when the action starts.
        """

        def action(cmd: int) -> Process:
            for _, msg in writes:
                self.store.patch(msg.dst.space, msg.dst.addr, msg.data)
                self.pending.clear(msg.dst.space, msg.dst.addr, msg.dst.nbytes)
            yield from self._serve_host(cmd, writes)

        places = (place for place, _ in writes)
        self._submit("host_write", site, action, places)

    def host_read(self, reads: Sequence[tuple[Place, HostReadCmd]], site: Site) -> None:
        """Read shards to host memory: time only; the data are in the store."""

        def action(cmd: int) -> Process:
            return self._serve_host(cmd, reads)

        places = (place for place, _ in reads)
        self._submit("host_read", site, action, places)

    def barrier(self, streams: int, site: Site) -> None:
        """Have the stream wait until so many streams, this one too, have come here."""

        def action(_: int) -> Process:
            passed = self.env.event()
            self._arrived.append(passed)
            if len(self._arrived) == streams:
                for event in self._arrived:
                    event.succeed()
                self._arrived = []
            yield passed

        self._submit("barrier", site, action, [(max(self.stream, 0), 0, 0)])

    def host_work(
        self, what: str, duration_ns: float, places: Sequence[Place], site: Site
    ) -> None:
        """Let the host be busy with ``what`` before its next action for ``places``."""

        def action(_: int) -> Process:
            yield self.env.timeout(exact_ns(duration_ns))

        self._submit(what, site, action, places)

    def is_busy(self, *streams: int) -> bool:
        """Whether a host action of these streams, or of any, has not ended."""
        asked = streams or tuple(self._tails)
        return any(self._tails[s].is_alive for s in asked if s in self._tails)

    def launch(
        self,
        name: str,
        kernel: Callable[..., None],
        args: tuple[Any, ...],
        pes: Sequence[Place],
        site: Site,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Run ``kernel(*args, **options)`` on ``pes``.

        All start when the message has reached the farthest.
        """
        launch = self._launches
        self._launches += 1
        self.launched.update(pes)
        # of each SIP that takes part, how many of its cubes do
        cubes = Counter(sip for sip, _ in {place[:2] for place in pes})
        programs = (len({pe for *_, pe in pes}), max(cubes.values()), len(cubes))

        def action(cmd: int) -> Process:
            t_issue = self.env.now
            latency = max(self._launch_latency(place) for place in pes)
            msg = LaunchMsg(
                cmd=cmd,
                launch=launch,
                name=name,
                kernel=kernel,
                args=args,
                options=options or {},
                pes=tuple(pes),
                programs=programs,
                done=self.env.event(),
                waiting=self._waiting,
                target_start_ns=t_issue + latency,
            )
            for sip in sorted(cubes):
                end_point = self.sim.resolver.find_pcie_ep(sip)
                turn = self.env.node_turn(self.graph.nodes[end_point].place)
                self.env.process_at(turn, serve_launch(self.sim, end_point, msg))
            yield msg.done
            self.launches.append(LaunchSpan(name, msg.t_first_start, self.env.now))
            if self.recorder is not None:
                names = tuple(self.graph.at(*place, "pe_cpu") for place in pes)
                self.recorder.launch(
                    launch, name, names, t_issue, msg.t_first_start, self.env.now
                )

        self._submit(f"launch {name}", site, action, pes)

    def get_timing_result(self) -> TimingResult:
        """Simulated end time, ops by kind; no ops without a logger."""
        kinds = {} if self.op_logger is None else dict(self.op_logger.kinds)
        return TimingResult(self.env.now, kinds)

    def place_of(self, addr: int) -> Place:
        """Where an HBM address lies: (sip, cube, pe)."""
        node = self.graph.nodes[self.sim.resolver.resolve(PhysAddr.decode(addr))]
        return node.sip, node.cube, node.pe

    def _submit(
        self,
        call: str,
        site: Site,
        action: Callable[[int], Process],
        places: Iterable[Place],
    ) -> None:
        """Have a host action begin when those before it in its stream have ended."""
        end_point = self.sim.resolver.find_pcie_ep(min(places)[0])
        cmd = self._numbers.take(end_point, call, site)
        waiting = self._waiting
        before = [self._tails[s] for s in (HOST, self.stream) if s in self._tails]
        turn = self.env.stream_turn(self.stream)

        def chained() -> Generator[Any, Any, None]:
            # SimPy sends values into this generator, and a list takes none
            for earlier in before:  # noqa: UP028
                yield earlier
            if self.env.turn != turn:
                # what it waited for is another stream's, and so is the turn
                self.env.turn = turn
                yield self.env.timeout(0)
            t_issue = self.env.now
            yield from action(cmd)
            del waiting[cmd]
            if self.recorder is not None:
                self.recorder.command(
                    cmd, end_point, -1, call, site, NO_CMD, t_issue, self.env.now
                )

        what = f"{call} at {site.file}:{site.line}"
        waiting[cmd] = Waiter(what, self.env.now, end_point, is_host=True)
        self._tails[self.stream] = self.env.process_at(turn, chained())

    def _serve_host(
        self, cmd: int, messages: Sequence[tuple[Place, HostWriteCmd | HostReadCmd]]
    ) -> Process:
        """Have all messages of a host action served, and wait for them."""
        for _, msg in messages:
            msg.cmd = cmd
        yield self.env.all_of([self._serve(place[0], msg) for place, msg in messages])

    def _serve(self, sip: int, msg: HostWriteCmd | HostReadCmd) -> simpy.Process:
        """Give a message to the end point of a SIP; ends when it has been served."""
        end_point = self.sim.component(self.sim.resolver.find_pcie_ep(sip))
        return self.env.process(end_point._forward_txn(self.env, msg))

    def _launch_latency(self, place: Place) -> float:
        """Zero-load ns from the host's doorbell to a PE_CPU.

        The message goes by the end point, the io_cpu and the m_cpu.
        """
        sip, cube, _ = place
        resolver = self.sim.resolver
        end_point = resolver.find_pcie_ep(sip)
        stops = (
            end_point,
            resolver.find_io_cpu(sip),
            resolver.find_m_cpu(sip, cube),
            self.graph.at(*place, "pe_cpu"),
        )
        latency = 0.0
        for src, dst in pairwise(stops):
            path = self.sim.router.route("node", src, dst)
            latency += self.network.route(path).zero_load(LAUNCH_BYTES)
        return exact_ns(self.sim.component(end_point).overhead_ns) + latency


def _deadlock(now: float, waiters: Iterable[Waiter]) -> str:
    """Who waits, since when, and for whom; the cycle among them, or who has ended.

    Those of the cycle come first, and the host, which waits for kernels, last.
    """
    waiters = sorted(waiters, key=lambda w: (w.since, w.node))
    guilty, why = _guilty(waiters)
    waiters.sort(key=lambda w: (w.node not in guilty, w.is_host))
    held = [waiter.held() for waiter in waiters]
    listed = []
    for waiter, by in zip(waiters[:_LISTED], held, strict=False):
        text = f"{waiter.what} since {waiter.since:g} ns"
        listed.append(f"{text}, as {by.words}" if by.words else text)
    if len(waiters) > _LISTED:
        listed.append(f"and {len(waiters) - _LISTED} more")
    parts = [
        f"nothing can go on at t={now:g} ns",
        f"still waiting: {'; '.join(listed)}",
    ]
    if why:
        parts.append(why)
    if any(by.by_full_ring for by in held):
        parts.append(_FULL_RING)
    return "; ".join(parts)


def _guilty(waiters: Iterable[Waiter]) -> tuple[Collection[str], str]:
    """The nodes of a cycle of waiters, or the one that waits for who does not; and that
    in words.
    """
    peers = {w.node: w.peer for w in waiters if w.peer}
    found: tuple[Collection[str], str] = ((), "")
    for node in peers:
        chain = [node]
        peer: str | None = peers[node]
        while peer is not None and peer not in chain:
            chain.append(peer)
            peer = peers.get(peer)
        if peer is not None:
            cycle = [*chain[chain.index(peer) :], peer]
            return cycle, f"cycle: {' -> '.join(cycle)}"
        if not found[1]:
            last = f"{chain[-2]} waits for {chain[-1]}, which waits for none"
            found = (chain[-2:-1], last)
    return found

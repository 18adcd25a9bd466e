"""Phase 1: makes the components of a graph as they are used, owns the SimPy environment, and runs
what the host asks for.

Host actions (writes, launches, reads) of the one host stream start in order, each when the one
before has ended. Knows no torch: ``run`` takes a callable that is given the engine.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from kernbench.common.messages import NO_CMD, HostReadCmd, HostWriteCmd, LaunchMsg
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import ComponentBase, Sim
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES
from kernbench.components.builtin.pe_mmu import PageTable
from kernbench.components.network import Network
from kernbench.components.registry import component_class
from kernbench.errors import DeadlockError
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.sim_engine.event_log import Recorder, Site
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger, OpRecord
from kernbench.sim_engine.pending import PendingRanges
from kernbench.topology.graph import TopologyGraph
from kernbench.triton_emu.sites import CallSites

_DEFAULT = object()
# A launch's start lies 1 ps after the farthest PE has the message: sums of floats in another order
# differ by less, so that no PE is late by rounding.
_LAUNCH_SLACK_NS = 1e-3
Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TimingResult:
    """What Phase 1 measured: ``busy_ns`` is the time in which a component served at least one
    op.
    """

    end_ns: float
    ops_by_kind: dict[str, int]
    busy_ns: dict[str, float]


class _Numbers(Iterator[int]):
    """Numbers of calls, in order; ``upcoming`` is the next."""

    def __init__(self) -> None:
        self.upcoming = 0

    def __next__(self) -> int:
        self.upcoming += 1
        return self.upcoming - 1


class _Components(dict[str, ComponentBase]):
    """The components by node id, each made when it is first asked for."""

    def __init__(self, graph: TopologyGraph) -> None:
        super().__init__()
        self._nodes = graph.nodes
        self._classes = {i: component_class(i) for i in {n.impl for n in graph.nodes.values()}}
        self.sim: Sim | None = None

    def __missing__(self, node_id: str) -> ComponentBase:
        node = self._nodes[node_id]
        assert self.sim is not None
        self[node_id] = made = self._classes[node.impl](node, self.sim)
        return made


class GraphEngine:
    """The simulator of one machine; ``op_logger=None`` turns the op log off, ``recorder`` is told
    all.
    """

    def __init__(
        self, graph: TopologyGraph, *, op_logger: Any = _DEFAULT, recorder: Recorder | None = None
    ) -> None:
        self.graph = graph
        self.env = simpy.Environment()
        self.store = MemoryStore()
        self.pending = PendingRanges()
        self.recorder = recorder
        if op_logger is _DEFAULT:
            op_logger = OpLogger(self.store, sink=recorder, is_pending=self._is_pending)
        self.op_logger: OpLogger | None = op_logger
        self._numbers = _Numbers()
        components = _Components(graph)
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
            commands=self._numbers,
        )
        components.sim = self.sim
        self._tail: simpy.Event | None = None
        self._launches = 0
        self._waiting: dict[int, str] = {}

    @property
    def op_log(self) -> list[OpRecord]:
        """All records so far, sorted by t_start; empty without a logger."""
        return self.op_logger.records if self.op_logger is not None else []

    @property
    def next_cmd(self) -> int:
        """Number of the next call."""
        return self._numbers.upcoming

    def run(self, benchmark: Callable[[GraphEngine], object]) -> None:
        """Call ``benchmark`` with this engine, then simulate until nothing is left to do."""
        gc.collect()
        gc.freeze()
        gc.disable()  # a retained record costs 3.3 us with the cyclic collector on, 0.8 without
        try:
            benchmark(self)
            self.drain()
        finally:
            gc.enable()
            gc.unfreeze()

    def drain(self) -> None:
        """Simulate until the host stream is empty; DeadlockError if something can never end."""
        self.env.run()
        if self._waiting:
            who = "; ".join(self._waiting.values())
            raise DeadlockError(f"nothing can go on at t={self.env.now:g} ns; still waiting: {who}")

    def host_write(self, writes: Sequence[tuple[Place, HostWriteCmd]], site: Site) -> None:
        """Write shards from host memory, all at once; visible in the store when the action
        starts.
        """

        def action(cmd: int) -> Generator[Any, Any, None]:
            for _, msg in writes:
                self.store.patch(msg.dst.space, msg.dst.addr, msg.data)
                self.pending.clear(msg.dst.space, msg.dst.addr, msg.dst.nbytes)
            yield from self._serve_host(cmd, writes)

        self._submit("host_write", site, action, [place[0] for place, _ in writes])

    def host_read(self, reads: Sequence[tuple[Place, HostReadCmd]], site: Site) -> None:
        """Read shards to host memory: time only; the data are in the store."""

        def action(cmd: int) -> Generator[Any, Any, None]:
            yield from self._serve_host(cmd, reads)

        self._submit("host_read", site, action, [place[0] for place, _ in reads])

    def launch(
        self,
        name: str,
        kernel: Callable[..., None],
        args: tuple[Any, ...],
        pes: Sequence[Place],
        site: Site,
    ) -> None:
        """Run ``kernel`` on ``pes``; all start together when the message has reached the
        farthest.
        """
        launch = self._launches
        self._launches += 1
        programs = tuple(len({place[axis] for place in pes}) for axis in (2, 1, 0))
        if programs[2] > 1:
            programs = (
                programs[0],
                max(Counter(s for s, _ in {p[:2] for p in pes}).values()),
                programs[2],
            )

        def action(cmd: int) -> Generator[Any, Any, None]:
            t_issue = self.env.now
            msg = LaunchMsg(
                cmd=cmd,
                launch=launch,
                name=name,
                kernel=kernel,
                args=args,
                pes=tuple(pes),
                programs=(programs[0], programs[1], programs[2]),
                done=self.env.event(),
                remaining=len(pes),
                target_start_ns=t_issue
                + max(self._launch_latency(place) for place in pes)
                + _LAUNCH_SLACK_NS,
            )
            for sip in sorted({place[0] for place in pes}):
                end_point = self.sim.component(self.sim.resolver.find_pcie_ep(sip))
                self.env.process(end_point._forward_txn(self.env, msg))
            yield msg.done
            if self.recorder is not None:
                names = tuple(self.graph.at(*place, "pe_cpu") for place in pes)
                self.recorder.launch(launch, name, names, t_issue, msg.t_first_start, self.env.now)

        self._submit(f"launch {name}", site, action, [place[0] for place in pes])

    def get_timing_result(self) -> TimingResult:
        """Simulated end time, ops by kind, busy time by component; the latter two need the op
        log.
        """
        kinds = Counter(record.op_kind for record in self.op_log)
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for record in self.op_log:
            spans[record.component_id].append((record.t_start, record.t_end))
        busy = {component: _covered(times) for component, times in spans.items()}
        return TimingResult(self.env.now, dict(kinds), busy)

    def _submit(
        self,
        call: str,
        site: Site,
        action: Callable[[int], Generator[Any, Any, None]],
        sips: Iterable[int],
    ) -> None:
        cmd = next(self.sim.commands)
        end_point = self.sim.resolver.find_pcie_ep(min(sips))
        before = self._tail

        def chained() -> Generator[Any, Any, None]:
            if before is not None:
                yield before
            t_issue = self.env.now
            yield from action(cmd)
            del self._waiting[cmd]
            if self.recorder is not None:
                self.recorder.command(cmd, end_point, -1, call, site, NO_CMD, t_issue, self.env.now)

        self._waiting[cmd] = f"{call} at {site.file}:{site.line}"
        self._tail = self.env.process(chained())

    def _serve_host(
        self, cmd: int, messages: Sequence[tuple[Place, HostWriteCmd | HostReadCmd]]
    ) -> Generator[Any, Any, None]:
        served = []
        for place, msg in messages:
            msg.cmd = cmd
            end_point = self.sim.component(self.sim.resolver.find_pcie_ep(place[0]))
            served.append(self.env.process(end_point._forward_txn(self.env, msg)))
        yield self.env.all_of(served)

    def _launch_latency(self, place: Place) -> float:
        """Zero-load ns from the host's doorbell to a PE_CPU: end point, io_cpu, m_cpu."""
        sip, cube, _ = place
        resolver, router = self.sim.resolver, self.sim.router
        stops = [
            resolver.find_pcie_ep(sip),
            resolver.find_io_cpu(sip),
            resolver.find_m_cpu(sip, cube),
            self.graph.at(*place, "pe_cpu"),
        ]
        latency = self.sim.component(stops[0]).overhead_ns
        for src, dst in itertools.pairwise(stops):
            latency += self.network.route(router.route("node", src, dst)).zero_load(LAUNCH_BYTES)
        return latency

    def _is_pending(self, space: str, addr: int, nbytes: int) -> bool:
        return self.pending.find(space, addr, nbytes) is not None

    def place_of(self, addr: int) -> Place:
        """Where an HBM address lies: (sip, cube, pe)."""
        node = self.graph.nodes[self.sim.resolver.resolve(PhysAddr.decode(addr))]
        return node.sip, node.cube, node.pe


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total

"""Latency and bandwidth of every kind of path on the empty machine, by formula and simulated.

The formula is that of simulator.md section 5, made from graph and spec alone: set-up + overheads
and wires + access + bytes / bottleneck. The simulated number is a command that the machine's own
components serve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from kernbench.common.messages import HostReadCmd, HostWriteCmd, LaunchMsg, MsgBase, Region
from kernbench.common.messages import Transaction as Txn
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import Process
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES
from kernbench.components.builtin.pe_dma import REQUEST_BYTES
from kernbench.policy.routing.router import AddressResolver, PathRouter, pe_prefix
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.graph import TopologyGraph
from kernbench.topology.spec import HbmSpec

SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
TOLERANCE = 1e-6  # of the latency
HBM_CHANNELS = "hbm channels"
_Place = tuple[int, int, int]  # sip, cube, pe
_HOME: _Place = (0, 0, 0)  # the PE that all PE families start from


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One transfer; ``bottleneck`` is its slowest link ("src -> dst (kind)") or "hbm channels".

    ``bandwidth_gbs`` is bytes / simulated time, ``utilisation`` that over the bottleneck's.
    ``path`` is the way of the data (of the message, for a launch).
    """

    family: str
    op: str
    nbytes: int
    formula_ns: float
    simulated_ns: float
    bandwidth_gbs: float
    bottleneck: str
    utilisation: float
    path: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether formula and simulation agree to TOLERANCE of the latency."""
        return abs(self.simulated_ns - self.formula_ns) <= TOLERANCE * self.formula_ns


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All rows, and what was left out because this machine does not have it."""

    rows: tuple[ProbeRow, ...]
    omitted: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every row's formula and simulation agree."""
        return all(row.ok for row in self.rows)

    def as_text(self) -> str:
        """A table; rows that differ end with "DIFFERS", and the last line names them."""
        lines = [
            f"{'path':<14}{'op':<7}{'bytes':>8}{'formula ns':>13}{'simulated ns':>14}{'GB/s':>8}"
            f"{'util':>7}  bottleneck"
        ]
        for row in self.rows:
            lines.append(
                f"{row.family:<14}{row.op:<7}{row.nbytes:>8}{row.formula_ns:>13,.3f}"
                f"{row.simulated_ns:>14,.3f}{row.bandwidth_gbs:>8.2f}{row.utilisation:>7.1%}"
                f"  {row.bottleneck}{'' if row.ok else '  DIFFERS'}"
            )
        lines += [f"left out: {text}" for text in self.omitted]
        wrong = [f"{row.family} {row.op} of {row.nbytes}" for row in self.rows if not row.ok]
        verdict = "differ in " + ", ".join(wrong) if wrong else "agree"
        lines.append(f"formula and simulation {verdict} (tolerance {TOLERANCE:g} of the latency)")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Case:
    """One family and operation: its way to the memory, and how a component is made to serve it."""

    family: str
    op: str
    there: tuple[str, ...]
    addr: int
    setup_ns: float
    burst_bytes: int  # 0: one piece
    serve: Callable[[GraphEngine, int], Process]


def probe(graph: TopologyGraph) -> ProbeReport:
    """Every path family of ``graph`` at every size of SIZES, one at a time on a quiet machine."""
    resolver, router = AddressResolver(graph), PathRouter(graph)
    targets, omitted = _targets(graph, resolver, router)
    engine = GraphEngine(graph, op_logger=None)
    rows = [
        _row(engine, case, nbytes)
        for case in _cases(graph, resolver, router, targets)
        for nbytes in SIZES
    ]
    rows.append(_launch_row(engine, resolver, router))
    return ProbeReport(tuple(rows), tuple(omitted))


def _targets(
    graph: TopologyGraph, resolver: AddressResolver, router: PathRouter
) -> tuple[dict[str, _Place], list[str]]:
    """The slice that each PE family reads and writes, the nearest of its kind; and what lacks."""
    source = pe_prefix(*_HOME)
    slices = [(n.sip, n.cube, n.pe) for n in graph.nodes.values() if n.type == "hbm_ctrl"]
    ys = [n.y_mm for n in graph.nodes.values() if n.type == "router" and (n.sip, n.cube) == (0, 0)]

    def distance(place: _Place) -> tuple[float, _Place]:
        node = resolver.resolve(PhysAddr.decode(_address(graph, place)))
        return router.find_path_with_distance(source, node)[1], place

    def north(place: _Place) -> bool:
        return graph.nodes[graph.at(*place, "pe_dma")].y_mm < (min(ys) + max(ys)) / 2

    cube = [p for p in slices if p[:2] == _HOME[:2] and p != _HOME]
    others = [p for p in slices if p[0] == _HOME[0] and p[1] != _HOME[1]]
    cubes = len({p[1] for p in others})
    choices: tuple[tuple[str, list[_Place], Callable[..., _Place], str], ...] = (
        ("own slice", [_HOME], min, ""),
        ("same half", [p for p in cube if north(p) == north(_HOME)], min, "one PE in its half"),
        ("cross half", [p for p in cube if north(p) != north(_HOME)], min, "all PEs in one half"),
        ("nearest cube", others, min, "one cube a SIP"),
        ("farthest cube", others if cubes > 1 else [], max, "fewer than three cubes a SIP"),
        ("other SIP", [p for p in slices if p[0] != _HOME[0]], min, "one SIP"),
    )
    found = {family: pick(places, key=distance) for family, places, pick, _ in choices if places}
    return found, [f"{family} ({why})" for family, places, _, why in choices if not places]


def _cases(
    graph: TopologyGraph, resolver: AddressResolver, router: PathRouter, targets: dict[str, _Place]
) -> Iterator[_Case]:
    end_point, dma = resolver.find_pcie_ep(_HOME[0]), graph.spec.pe.dma
    addr = _address(graph, _HOME)
    memory = resolver.resolve(PhysAddr.decode(addr))
    path = tuple(router.find_memory_path(end_point, memory))
    overhead = graph.nodes[end_point].overhead_ns
    host = {"write": ("host to HBM", _host_write), "read": ("HBM to host", _host_read)}
    for op, (family, message) in host.items():
        yield _Case(family, op, path, addr, overhead, 0, _command(end_point, message, addr))
    for family, place in targets.items():
        there = _address(graph, place)
        node = resolver.resolve(PhysAddr.decode(there))
        path = tuple(router.find_path(pe_prefix(*_HOME), node))
        for op, make in (("read", _dma_read), ("write", _dma_write)):
            serve = _command(path[0], make, there)
            yield _Case(family, op, path, there, dma.setup_ns, dma.burst_bytes, serve)
    m_cpu = resolver.find_m_cpu(*_HOME[:2])
    path = tuple(router.find_mcpu_dma_path(m_cpu, memory))

    def transfer(engine: GraphEngine, nbytes: int) -> Process:
        txn = Txn(path=path, nbytes=nbytes, owner=MsgBase(), burst_bytes=dma.burst_bytes)
        txn.dst_addr = addr
        return engine.sim.transfer(txn)

    yield _Case("m_cpu to HBM", "write", path, addr, 0.0, dma.burst_bytes, transfer)


def _address(graph: TopologyGraph, place: _Place) -> int:
    """The first byte of the HBM slice of a PE."""
    memory = graph.spec.cube.memory_map
    slice_bytes = memory.hbm_total_gb * (1 << 30) // memory.slices_per_cube
    return PhysAddr.pe_hbm_addr(*place, 0, slice_bytes).encode()


def _region(space: str, addr: int, nbytes: int) -> Region:
    return Region(space, addr, (nbytes,), "u8", nbytes)


def _host_write(addr: int, nbytes: int) -> MsgBase:
    return HostWriteCmd(dst=_region("hbm", addr, nbytes), data=None)


def _host_read(addr: int, nbytes: int) -> MsgBase:
    return HostReadCmd(src=_region("hbm", addr, nbytes))


def _dma_read(addr: int, nbytes: int) -> MsgBase:
    src, dst = _region("hbm", addr, nbytes), _region("tcm", 0, nbytes)
    return DmaReadCmd(src=src, dst=dst, handle_id="probe")


def _dma_write(addr: int, nbytes: int) -> MsgBase:
    return DmaWriteCmd(src=_region("tcm", 0, nbytes), dst_addr=addr, handle_id="probe")


def _command(
    node: str, make: Callable[[int, int], MsgBase], addr: int
) -> Callable[[GraphEngine, int], Process]:
    """Have the component at ``node`` serve a command on ``addr``."""
    return lambda engine, nbytes: engine.sim.component(node)._forward_txn(
        engine.env, make(addr, nbytes)
    )


def _row(engine: GraphEngine, case: _Case, nbytes: int) -> ProbeRow:
    env, t0 = engine.env, engine.env.now
    env.run(until=env.process(case.serve(engine, nbytes)))
    simulated = env.now - t0
    env.run()
    graph, read = engine.graph, case.op == "read"
    hbm, burst = graph.spec.cube.hbm, case.burst_bytes or nbytes
    path = case.there[::-1] if read else case.there
    where, gbs = _slowest(graph, path)
    formula = case.setup_ns + hbm.access_ns + _header_ns(graph, path)
    formula += _data_ns(hbm, case.addr, nbytes, burst, read, gbs)
    if read:
        formula += _message_ns(graph, case.there, REQUEST_BYTES)
    channels_gbs = nbytes / _data_ns(hbm, case.addr, nbytes, burst, read, inf)
    if channels_gbs < gbs * (1 - TOLERANCE):
        where, gbs = HBM_CHANNELS, channels_gbs
    rate = nbytes / simulated
    return ProbeRow(case.family, case.op, nbytes, formula, simulated, rate, where, rate / gbs, path)


def _launch_row(engine: GraphEngine, resolver: AddressResolver, router: PathRouter) -> ProbeRow:
    """The host's doorbell to a PE_CPU, by way of io_cpu and m_cpu: an empty kernel, started late.

    With a target of t=0 the PE starts when the launch arrives.
    """
    graph, env, t0 = engine.graph, engine.env, engine.env.now
    sip, cube, _ = _HOME
    end_point, io_cpu = resolver.find_pcie_ep(sip), resolver.find_io_cpu(sip)
    stops = (end_point, io_cpu, resolver.find_m_cpu(sip, cube), graph.at(*_HOME, "pe_cpu"))
    legs = [tuple(router.find_node_path(*leg)) for leg in pairwise(stops)]
    message = LaunchMsg(
        launch=0,
        name="probe",
        kernel=lambda tl: None,
        args=(),
        pes=(_HOME,),
        programs=(1, 1, 1),
        done=env.event(),
        remaining=1,
    )
    env.process(engine.sim.component(end_point)._forward_txn(env, message))
    env.run()
    simulated = message.t_first_start - t0
    formula = graph.nodes[end_point].overhead_ns
    formula += sum(_message_ns(graph, leg, LAUNCH_BYTES) for leg in legs)
    path = (*legs[0], *legs[1][1:], *legs[2][1:])
    where, gbs = _slowest(graph, path)
    rate = LAUNCH_BYTES / simulated
    return ProbeRow(
        "launch", "launch", LAUNCH_BYTES, formula, simulated, rate, where, rate / gbs, path
    )


def _header_ns(graph: TopologyGraph, path: Iterable[str]) -> float:
    """ns until a header that left the first node is at the last: overheads and wires."""
    return sum(
        graph.nodes[dst].overhead_ns
        + graph.edge_by_ends[src, dst].distance_mm * graph.spec.system.ns_per_mm
        for src, dst in pairwise(path)
    )


def _slowest(graph: TopologyGraph, path: Iterable[str]) -> tuple[str, float]:
    """The first of the slowest links, and its GB/s."""
    edge = min((graph.edge_by_ends[ends] for ends in pairwise(path)), key=lambda e: e.bandwidth_gbs)
    return f"{edge.src} -> {edge.dst} ({edge.kind})", edge.bandwidth_gbs


def _message_ns(graph: TopologyGraph, path: Iterable[str], nbytes: int) -> float:
    """A message that ends at no memory."""
    path = tuple(path)
    return _header_ns(graph, path) + nbytes / _slowest(graph, path)[1]


def _data_ns(
    hbm: HbmSpec, addr: int, nbytes: int, burst: int, read: bool, link_gbs: float
) -> float:
    """Bytes / bottleneck, of the link and the channels that the bytes lie on.

    Where all bursts cover all channels evenly, as by default, that is nbytes / min(link, channels).
    Else it is the longest chain of bursts: each has its channels when they are free; a memory sends
    a burst when it has read the one before; the last is whole when link and channels are done.
    """
    free = [0.0] * hbm.channels
    on_link = in_memory = done = 0.0
    for at in range(addr, addr + nbytes, burst):
        size = min(burst, addr + nbytes - at)
        ready, begin = in_memory if read else on_link, 0.0
        for channel, share in _shares(hbm, at, size):
            begin = max(begin, ready, free[channel])
            free[channel] = max(ready, free[channel]) + share / hbm.channel_bw_gbs
            in_memory = max(in_memory, free[channel])
        start = max(begin, on_link)
        on_link = (start if read else on_link) + size / link_gbs
        done = max(done, start + max(in_memory - begin, size / link_gbs))
    return done


def _shares(hbm: HbmSpec, addr: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """(channel, bytes of [addr, addr + nbytes) that lie on it), where there are any."""
    step, stride = hbm.interleave_bytes, hbm.interleave_bytes * hbm.channels

    def below(end: int, channel: int) -> int:
        return end // stride * step + min(max(end % stride - channel * step, 0), step)

    for channel in range(hbm.channels):
        share = below(addr + nbytes, channel) - below(addr, channel)
        if share:
            yield channel, share


def describe(graph: TopologyGraph) -> dict[str, str]:
    """What ``kernbench info`` says of a machine: counts and peak numbers, by title."""
    spec = graph.spec
    sips, cubes = spec.system.sips.count, spec.sip.cube_mesh.w * spec.sip.cube_mesh.h
    pes, gemm, hbm = sips * cubes * spec.cube.pes, spec.pe.gemm, spec.cube.hbm
    flops = 2 * gemm.rows * gemm.cols * spec.pe.clock_ghz * 1e9
    slice_gbs = min(hbm.channels * hbm.channel_bw_gbs, hbm.to_router_bw_gbs)
    kinds = Counter(edge.kind for edge in graph.edges)
    return {
        "machine": f"{sips} SIPs x {cubes} cubes x {spec.cube.pes} PEs = {pes} PEs",
        "nodes": f"{len(graph.nodes):,}",
        "edges": f"{len(graph.edges):,}: " + ", ".join(f"{n} {k}" for k, n in kinds.most_common()),
        "GEMM": f"{pes * flops / 1e12:,.1f} TFLOP/s ({flops / 1e12:g} a PE)",
        "HBM": f"{pes * slice_gbs:,.0f} GB/s ({slice_gbs:g} a PE), "
        f"{sips * cubes * spec.cube.memory_map.hbm_total_gb:,} GiB",
        "PCIe": f"{spec.system.pcie_bw_gbs:g} GB/s a SIP",
    }

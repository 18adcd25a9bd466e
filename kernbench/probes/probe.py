"""Latency and bandwidth of every kind of path on the empty machine, by formula and simulated.

The formula is that of simulator.md section 5, made from graph and spec alone: set-up + overheads
and wires + access + bytes / bottleneck. The simulated number is a command that the machine's own
components serve.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import Any

from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    LaunchMsg,
    Region,
    Transaction,
)
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.peaks import peaks
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import Process
from kernbench.components.builtin.hbm_ctrl import channel_shares
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES
from kernbench.components.builtin.pe_dma import REQUEST_BYTES
from kernbench.policy.routing.router import pe_prefix, switch_node
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.graph import Edge, Place, TopologyGraph
from kernbench.topology.spec import HbmSpec

SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
TOLERANCE = 1e-6  # of the latency
_TITLES = "path          op        bytes   formula ns  simulated ns    GB/s   util  bottleneck"
_HOME: Place = (0, 0, 0)  # the PE that all PE families start from


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
        lines = [_TITLES]
        for row in self.rows:
            lines.append(
                f"{row.family:<14}{row.op:<7}{row.nbytes:>8}{row.formula_ns:>13,.3f}"
                f"{row.simulated_ns:>14,.3f}{row.bandwidth_gbs:>8.2f}{row.utilisation:>7.1%}"
                f"  {row.bottleneck}{'' if row.ok else '  DIFFERS'}"
            )
        lines += [f"left out: {text}" for text in self.omitted]
        wrong = [
            f"{row.family} {row.op} of {row.nbytes}" for row in self.rows if not row.ok
        ]
        verdict = "differ in " + ", ".join(wrong) if wrong else "agree"
        lines.append(
            f"formula and simulation {verdict} (tolerance {TOLERANCE:g} of the latency)"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Case:
    """One family and operation; ``fixed_ns`` is all of the formula but bytes / bottleneck."""

    family: str
    op: str
    path: tuple[str, ...]
    fixed_ns: float
    addr: int = 0  # of the memory at the end of the path
    burst_bytes: int = 0  # 0: one piece
    beyond: tuple[
        tuple[str, str], ...
    ] = ()  # links that the data pay for and the path leaves out


def probe(graph: TopologyGraph) -> ProbeReport:
    """Every path family of ``graph`` at every size of SIZES, one at a time on a quiet machine."""
    prober = _Prober(graph)
    targets, omitted = prober.targets()
    rows = [
        prober.row(case, nbytes)
        for case in prober.memory_cases(targets)
        for nbytes in SIZES
    ]
    rows.append(prober.row(prober.launch_case(), LAUNCH_BYTES))
    return ProbeReport(tuple(rows), tuple(omitted))


class _Prober:
    """A machine under probe: what is measured on it, and how."""

    def __init__(self, graph: TopologyGraph) -> None:
        self.graph, self.spec = graph, graph.spec
        self.sim = GraphEngine(graph, op_logger=None).sim
        self.resolver, self.router = self.sim.resolver, self.sim.router

    def slice_of(self, place: Place) -> tuple[int, str]:
        """Address and node of the HBM slice of a PE."""
        addr = PhysAddr.pe_hbm_addr(*place, 0, self.spec.cube.memory_map.slice_bytes)
        return addr.encode(), self.resolver.resolve(addr)

    def distance(self, place: Place) -> tuple[float, Place]:
        """How far the HBM slice of a PE is, and the PE."""
        way = self.router.find_path_with_distance(
            pe_prefix(*_HOME), self.slice_of(place)[1]
        )
        return way[1], place

    def targets(self) -> tuple[dict[str, Place], list[str]]:
        """The slice that each PE family uses, the nearest of its kind; and what lacks."""
        nodes, (sip, cube, _) = self.graph.nodes, _HOME
        middle = nodes[self.resolver.find_m_cpu(sip, cube)].y_mm
        north = {
            n.place: n.y_mm < middle for n in nodes.values() if n.type == "hbm_ctrl"
        }
        near = [p for p in north if p[:2] == _HOME[:2] and p != _HOME]
        same, cross = (
            [p for p in near if (north[p] == north[_HOME]) == half] for half in (1, 0)
        )
        others = [p for p in north if p[0] == sip and p[1] != cube]
        far = others if len({p[1] for p in others}) > 1 else []
        choices: tuple[tuple[str, list[Place], Callable[..., Place], str], ...] = (
            ("own slice", [_HOME], min, ""),
            ("same half", same, min, "one PE in its half"),
            ("cross half", cross, min, "all PEs in one half"),
            ("nearest cube", others, min, "one cube a SIP"),
            ("farthest cube", far, max, "fewer than three cubes a SIP"),
            ("other SIP", [p for p in north if p[0] != sip], min, "one SIP"),
        )
        found = {
            family: pick(all_, key=self.distance)
            for family, all_, pick, _ in choices
            if all_
        }
        return found, [
            f"{family} ({why})" for family, all_, _, why in choices if not all_
        ]

    def memory_cases(self, targets: dict[str, Place]) -> Iterator[_Case]:
        """What the host, a PE and an M_CPU write and read: the last has no component for it yet."""
        router, dma, home = self.router, self.spec.pe.dma, self.slice_of(_HOME)[1]
        end_point = self.resolver.find_pcie_ep(_HOME[0])
        host_path, pcie = (
            router.find_memory_path(end_point, home),
            ((end_point, switch_node(0)),),
        )
        host = (_HOME, host_path, self.graph.nodes[end_point].overhead_ns, 0, pcie)
        ways: list[Any] = [
            ("host to HBM", "write", host),
            ("HBM to host", "read", host),
        ]
        for family, place in targets.items():
            path = router.find_path(pe_prefix(*_HOME), self.slice_of(place)[1])
            pe = (place, path, dma.setup_ns, dma.burst_bytes, ())
            ways += ((family, "read", pe), (family, "write", pe))
        path = router.find_mcpu_dma_path(self.resolver.find_m_cpu(*_HOME[:2]), home)
        ways.append(("m_cpu to HBM", "write", (_HOME, path, 0.0, dma.burst_bytes, ())))
        for family, op, (place, there, setup_ns, *rest) in ways:
            path = there[::-1] if op == "read" else there
            request_ns = self.message_ns(there, REQUEST_BYTES) if op == "read" else 0.0
            fixed_ns = (
                setup_ns
                + request_ns
                + self.spec.cube.hbm.access_ns
                + self.header_ns(path)
            )
            yield _Case(
                family, op, tuple(path), fixed_ns, self.slice_of(place)[0], *rest
            )

    def launch_case(self) -> _Case:
        """The host's doorbell to a PE_CPU, by way of io_cpu and m_cpu."""
        sip, cube, _ = _HOME
        start, io_cpu = self.resolver.find_pcie_ep(sip), self.resolver.find_io_cpu(sip)
        m_cpu, pe_cpu = (
            self.resolver.find_m_cpu(sip, cube),
            self.graph.at(*_HOME, "pe_cpu"),
        )
        legs = [
            self.router.find_node_path(*leg)
            for leg in pairwise((start, io_cpu, m_cpu, pe_cpu))
        ]
        on_the_way = sum(self.message_ns(leg, LAUNCH_BYTES) for leg in legs)
        path = (start, *(node for leg in legs for node in leg[1:]))
        return _Case(
            "launch", "launch", path, self.graph.nodes[start].overhead_ns + on_the_way
        )

    def serve(self, case: _Case, nbytes: int) -> Process:
        """Have the component at the near end serve it."""
        sim, node = (
            self.sim,
            self.graph.nodes[case.path[-1 if case.op == "read" else 0]],
        )
        hbm, tcm = (
            Region(*at, (nbytes,), "u8", nbytes)
            for at in (("hbm", case.addr), ("tcm", 0))
        )
        write, done = HostWriteCmd(dst=hbm, data=None), sim.env.event()
        launch = LaunchMsg(name="", kernel=lambda tl: None, pes=(_HOME,), done=done)
        if node.type == "m_cpu":
            burst = case.burst_bytes
            yield from sim.transfer(
                Transaction(case.path, nbytes, write, burst, None, case.addr)
            )
            return
        message = {
            ("pcie_ep", "write"): write,
            ("pcie_ep", "read"): HostReadCmd(src=hbm),
            ("pcie_ep", "launch"): launch,
            ("pe_dma", "write"): DmaWriteCmd(
                src=tcm, dst_addr=case.addr, handle_id="probe"
            ),
            ("pe_dma", "read"): DmaReadCmd(src=hbm, dst=tcm, handle_id="probe"),
        }[node.type, case.op]
        yield from sim.component(node.id)._forward_txn(sim.env, message)
        if case.op == "launch":  # its target is t=0: the PE starts when it arrives
            yield done

    def row(self, case: _Case, nbytes: int) -> ProbeRow:
        """Simulate one transfer, and compare."""
        env, hbm, t0 = self.sim.env, self.spec.cube.hbm, self.sim.env.now
        env.run(until=env.process(self.serve(case, nbytes)))
        took = env.now - t0
        env.run()
        edge, formula = (
            self.slowest((*case.beyond, *pairwise(case.path))),
            case.fixed_ns,
        )
        where, gbs = f"{edge.src} -> {edge.dst} ({edge.kind})", edge.bandwidth_gbs
        if case.op != "launch":
            first_gbs = self.slowest([(case.path[0], case.path[1])]).bandwidth_gbs
            formula += _data_ns(hbm, case, nbytes, first_gbs, gbs)
            channels_gbs = nbytes / _data_ns(hbm, case, nbytes, inf, inf)
            if channels_gbs < gbs * (1 - TOLERANCE):
                where, gbs = "hbm channels", channels_gbs
        rate, what = nbytes / took, (case.family, case.op, nbytes)
        return ProbeRow(*what, formula, took, rate, where, rate / gbs, case.path)

    def header_ns(self, path: Sequence[str]) -> float:
        """ns until a header that left the first node is at the last: overheads and wires."""
        edges = [self.graph.edge_by_ends[ends] for ends in pairwise(path)]
        wires = sum(edge.distance_mm for edge in edges) * self.spec.system.ns_per_mm
        return wires + sum(self.graph.nodes[edge.dst].overhead_ns for edge in edges)

    def slowest(self, links: Iterable[tuple[str, str]]) -> Edge:
        """The first of the slowest links."""
        return min(
            (self.graph.edge_by_ends[ends] for ends in links),
            key=lambda e: e.bandwidth_gbs,
        )

    def message_ns(self, path: Sequence[str], nbytes: int) -> float:
        """A message that ends at no memory."""
        return (
            self.header_ns(path) + nbytes / self.slowest(pairwise(path)).bandwidth_gbs
        )


def _data_ns(
    hbm: HbmSpec, case: _Case, nbytes: int, first_gbs: float, link_gbs: float
) -> float:
    """Bytes / bottleneck, of the link and the channels that the bytes lie on.

    Where all bursts cover all channels evenly, as by default, that is nbytes / min(link, channels).
    Else it is the longest chain of bursts: each has its channels when they are free, and is whole
    when they and the link are done. A memory reads as fast as the first link takes it, no more
    bursts at once than cover all channels, and sends them in order.
    """
    burst, read, free = (
        case.burst_bytes or nbytes,
        case.op == "read",
        [0.0] * hbm.channels,
    )
    on_link = asked = done = sent = 0.0
    step, period = hbm.interleave_bytes, hbm.interleave_bytes * hbm.channels
    reading: deque[float] = deque(maxlen=-(-period // burst))
    for at in range(0, nbytes, burst):
        size, first_byte = min(burst, nbytes - at), (case.addr + at) % period
        begin = end = there = asked if read else on_link
        for channel, share in channel_shares(first_byte, size, step, hbm.channels):
            begin = max(begin, free[channel])
            free[channel] = max(there, free[channel]) + share / hbm.channel_bw_gbs
            end = max(end, free[channel])
        sent = max(sent, begin)
        start = max(sent, on_link) if read else begin
        on_link = (start if read else on_link) + size / link_gbs
        done = max(done, start + max(end - begin, size / link_gbs))
        reading.append(end)
        asked += size / first_gbs
        if len(reading) == reading.maxlen:
            asked = max(asked, reading[0])
    return done


def describe(graph: TopologyGraph) -> dict[str, str]:
    """What ``kernbench info`` says of a machine: counts and peak numbers, by title."""
    spec = graph.spec
    sips, cubes = spec.system.sips.count, spec.sip.cube_mesh.w * spec.sip.cube_mesh.h
    pes, best = sips * cubes * spec.cube.pes, peaks(lambda path: attrgetter(path)(spec))
    flops, slice_gbs = best.gemm * 1e9, best.hbm
    kinds = Counter(edge.kind for edge in graph.edges)
    return {
        "machine": f"{sips} SIPs x {cubes} cubes x {spec.cube.pes} PEs = {pes} PEs",
        "nodes": f"{len(graph.nodes):,}",
        "edges": f"{len(graph.edges):,}: "
        + ", ".join(f"{n} {k}" for k, n in kinds.most_common()),
        "GEMM": f"{pes * flops / 1e12:,.1f} TFLOP/s ({flops / 1e12:g} a PE)",
        "HBM": f"{pes * slice_gbs:,.0f} GB/s ({slice_gbs:g} a PE), "
        f"{sips * cubes * spec.cube.memory_map.hbm_total_gb:,} GiB",
        "PCIe": f"{spec.system.pcie_bw_gbs:g} GB/s a SIP",
    }

"""The model against published numbers: every row of the README's Validation table.

``python tests/validation/validation_checks.py`` prints the table.

- GEMM: weight-stationary cycles of SCALE-Sim (Samajdar et al., ISPASS 2020, equation 3:
  2R + C + T - 2 a fold). The numbers below were worked out by hand: folds x cycles of
  one fold.
- Mesh: BookSim's zero-load latency of a packet, 5 x routers + 2 + flits - 1 cycles, for
  a router of 4 stages and a link of 1 cycle. 1 cycle = 1 ns here, a flit is 16 B:
  router.overhead_ns 5; every link 16 GB/s, one flit a cycle; no wire delay, no HBM
  access time. The 2 cycles are injection and ejection: injection is the DMA's set-up of
  1 ns; ejection is the head flit's own cycle, one of the ``flits`` that our
  serialisation counts (BookSim counts it apart, and flits - 1 behind it).
- The rest compares throughput and shares with what the bandwidths in the topology
  allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from kernbench.common.messages import MsgBase, Region
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd, GemmCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.verify import VerifyRow
from kernbench.topology import TopologyGraph, TopologySpec, build_topology
from kernbench.topology.spec import (
    CubeMeshSpec,
    GemmSpec,
    HbmSpec,
    HbmZoneSpec,
    MemoryMapSpec,
    MeshSpec,
    RouterSpec,
    SipsSpec,
)

Place = tuple[int, int, int]  # sip, cube, pe
FLIT = 16  # bytes

# array rows x columns, m, k, n, cycles by hand
SCALE_SIM = (
    ((64, 64), (64, 64, 64), 254),  # 1 fold x (128 + 64 + 64 - 2)
    (
        (64, 64),
        (1, 1, 1),
        191,
    ),  # 1 x (128 + 64 + 1 - 2): the array loads whole, however small
    ((64, 64), (17, 64, 64), 207),  # 1 x 207
    ((64, 64), (64, 65, 64), 508),  # 2 x 254: one row of k more is a fold more
    ((64, 64), (64, 64, 65), 508),  # 2 x 254: the same for a column of n
    ((64, 64), (256, 256, 256), 7136),  # 4 x 4 folds x 446
    ((64, 64), (200, 130, 257), 5850),  # 3 x 5 folds x 390
    ((64, 64), (100, 1000, 10), 4640),  # 16 x 1 folds x 290
    ((64, 64), (1, 4096, 4096), 782336),  # 64 x 64 folds x 191
    ((64, 64), (512, 768, 3072), 404352),  # 12 x 48 folds x 702
    ((32, 32), (64, 64, 64), 632),  # 2 x 2 folds x (64 + 32 + 64 - 2)
    ((128, 128), (256, 512, 512), 10208),  # 4 x 4 folds x (256 + 128 + 256 - 2)
    ((16, 64), (100, 50, 130), 2328),  # 4 x 3 folds x (32 + 64 + 100 - 2)
    ((32, 32), (12544, 147, 64), 126380),  # ResNet-50 conv1: 5 x 2 folds x (94 + 12544)
)


@dataclass(frozen=True, slots=True)
class Check:
    """One row: what the model gave, and what was published or follows from the
    bandwidths.
    """

    what: str
    source: str
    model: float
    reference: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error in %."""
        return 100 * (self.model - self.reference) / self.reference


def machine(
    cache: Path | None = None, w: int = 1, h: int = 1, **cube: object
) -> TopologyGraph:
    """One SIP of ``w`` x ``h`` cubes; ``cube`` replaces sections of the cube."""
    spec = TopologySpec()
    return build_topology(
        replace(
            spec,
            system=replace(spec.system, sips=SipsSpec(count=1)),
            sip=replace(spec.sip, cube_mesh=CubeMeshSpec(w, h)),
            cube=replace(spec.cube, **cube),
        ),
        cache,
    )


def serve(
    graph: TopologyGraph, engine_name: str, *commands: tuple[Place, MsgBase]
) -> list[float]:
    """When each command, all given at 0 to that engine of its PE, had ended."""
    engine = GraphEngine(graph, op_logger=None)
    ends = [0.0] * len(commands)

    def go(i: int, place: Place, command: MsgBase) -> Iterator[object]:
        yield from engine.sim.component(graph.at(*place, engine_name))._forward_txn(
            engine.env, command
        )
        ends[i] = engine.env.now

    for i, (place, command) in enumerate(commands):
        engine.env.process(go(i, place, command))
    engine.env.run()
    return ends


def address(graph: TopologyGraph, place: Place, offset: int = 0) -> int:
    memory = graph.spec.cube.memory_map
    slice_bytes = memory.hbm_total_gb * (1 << 30) // memory.slices_per_cube
    return PhysAddr.pe_hbm_addr(*place, offset, slice_bytes).encode()


def read(graph: TopologyGraph, place: Place, nbytes: int, offset: int = 0) -> MsgBase:
    src = Region("hbm", address(graph, place, offset), (nbytes,), "u8", nbytes)
    return DmaReadCmd(src=src, dst=replace(src, space="tcm", addr=0), handle_id="h")


def write(graph: TopologyGraph, place: Place, nbytes: int, offset: int = 0) -> MsgBase:
    src = Region("tcm", 0, (nbytes,), "u8", nbytes)
    return DmaWriteCmd(src=src, dst_addr=address(graph, place, offset), handle_id="h")


def path(graph: TopologyGraph, source: Place, target: Place) -> tuple[str, ...]:
    """Of a PE's DMA to a slice."""
    node = AddressResolver(graph).resolve(PhysAddr.decode(address(graph, target)))
    return PathRouter(graph).route("pe", graph.at(*source, "pe_dma"), node)


def scale_sim(cache: Path | None = None) -> Iterator[Check]:
    """(a) One dot on a cold array."""
    base = machine(cache)
    for (rows, cols), (m, k, n), cycles in SCALE_SIM:
        pe = replace(base.spec.pe, gemm=GemmSpec(rows, cols))
        graph = replace(base, spec=replace(base.spec, pe=pe))
        a, b, out = (
            Region("tcm", i << 30, s, "u8", s[0] * s[1])
            for i, s in enumerate(((m, k), (k, n), (m, n)))
        )
        dot = GemmCmd(a=a, b=b, out=out, m=m, k=k, n=n)
        (end,) = serve(graph, "pe_gemm", ((0, 0, 0), dot))
        what = f"GEMM {m} x {k} x {n}, {rows} x {cols} array"
        yield Check(what, "SCALE-Sim", end * graph.spec.pe.clock_ghz, cycles, "cycles")


def booksim_mesh(size: int, cache: Path | None = None) -> TopologyGraph:
    """A cube of size x size routers in BookSim's cycles, 16 of them with a PE and a
    memory.
    """
    graph = machine(
        cache,
        pes=16,
        mesh=MeshSpec(size, size),
        hbm_zone=HbmZoneSpec(0, 0, 0, 0),
        router=RouterSpec(link_bw_gbs=FLIT, overhead_ns=5),
        memory_map=MemoryMapSpec(slices_per_cube=16),
        hbm=HbmSpec(channels=1, channel_bw_gbs=1e6, access_ns=0, to_router_bw_gbs=FLIT),
    )
    spec = graph.spec
    dma = replace(spec.pe.dma, setup_ns=1, to_router_bw_gbs=FLIT)
    system = replace(spec.system, ns_per_mm=0)
    return build_topology(
        replace(spec, system=system, pe=replace(spec.pe, dma=dma)), cache
    )


def mesh_latencies(graph: TopologyGraph, flits: int) -> Iterator[tuple[int, float]]:
    """(routers on the way, ns) of a packet between every two PEs of the cube, alone.

    Routers by Manhattan distance of where the PEs are, not by the path that was taken.
    """
    pitch = graph.spec.cube.size_mm.w / graph.spec.cube.mesh.cols
    engine = GraphEngine(graph, op_logger=None)
    env = engine.env
    at = [graph.nodes[graph.at(0, 0, pe, "pe_dma")] for pe in range(16)]
    for a in at:
        for b in at:
            hops = round((abs(a.x_mm - b.x_mm) + abs(a.y_mm - b.y_mm)) / pitch)
            packet = write(graph, (0, 0, b.pe), flits * FLIT)
            t0 = env.now
            env.run(
                until=env.process(engine.sim.component(a.id)._forward_txn(env, packet))
            )
            yield hops + 1, env.now - t0


def booksim(cache: Path | None = None) -> Iterator[Check]:
    """(b) Zero-load latency of a mesh: the mean over all pairs, and the two far
    corners.
    """
    for size in (4, 8):
        graph = booksim_mesh(size, cache)
        for flits in (1, 5):
            seen = list(mesh_latencies(graph, flits))
            expected = [5 * routers + 2 + flits - 1 for routers, _ in seen]
            kind = f"{size} x {size} mesh, {flits} flit{'s' * (flits > 1)}"
            measured = [ns for _, ns in seen]
            yield Check(
                f"{kind}, mean", "BookSim", mean(measured), mean(expected), "cycles"
            )
            yield Check(
                f"{kind}, corners", "BookSim", max(measured), max(expected), "cycles"
            )


def link_ends(graph: TopologyGraph, nbytes: int) -> tuple[list[float], tuple[str, str]]:
    """Ends of 16 writes of two PEs to the slices of two others, and the mesh link they
    share.
    """
    pairs = (((0, 0, 0), (0, 0, 2)), ((0, 0, 1), (0, 0, 3)))
    first, second = ({*pairwise(path(graph, *pair))} for pair in pairs)
    mesh = [e for e in first & second if graph.edge_by_ends[e].kind == "router_mesh"]
    writes = [
        (source, write(graph, target, nbytes, i * nbytes))
        for i in range(8)
        for source, target in pairs
    ]
    return serve(graph, "pe_dma", *writes), mesh[0]


def saturation(cache: Path | None = None) -> Iterator[Check]:
    """(c) Many DMAs over one router link of the default cube."""
    graph = machine(cache)
    ends, link = link_ends(graph, 65536)
    achieved = 16 * 65536 / max(ends)
    bandwidth = graph.edge_by_ends[link].bandwidth_gbs
    yield Check(
        "one mesh link, 16 DMAs of 64 KiB", "its bandwidth", achieved, bandwidth, "GB/s"
    )


def channel_ends(
    graph: TopologyGraph, count: int, nbytes: int, stride: int
) -> list[float]:
    """When each of 8 PEs has read its ``count`` pieces of one slice, ``stride`` bytes
    apart.
    """
    reads = [
        ((0, 0, pe), read(graph, (0, 0, 0), nbytes, (i * 8 + pe) * stride))
        for i in range(count)
        for pe in range(8)
    ]
    ends = serve(graph, "pe_dma", *reads)
    return [max(ends[pe::8]) for pe in range(8)]


def fair_channel(cache: Path | None = None) -> Iterator[Check]:
    """(d) One pseudo-channel of 32 GB/s under 8 readers of 64 KiB each.

    In streams of bursts from a slice that has one channel; and line by line, each PE
    with its 8 outstanding commands, from one of the 8 channels of the default cube.
    There the near PEs, which have their data sooner, ask again sooner.
    """
    one = machine(cache, hbm=HbmSpec(channels=1))
    for how, ends in (
        ("64 KiB streams", channel_ends(one, 1, 65536, 65536)),
        ("256 B reads", channel_ends(machine(cache), 256, 256, 8 * 256)),
    ):
        kind = f"one HBM channel, 8 PEs, {how}"
        yield Check(
            f"{kind}, total", "its bandwidth", 8 * 65536 / max(ends), 32, "GB/s"
        )
        yield Check(f"{kind}, slowest PE", "an eighth", 65536 / max(ends), 4, "GB/s")
        yield Check(f"{kind}, fastest PE", "an eighth", 65536 / min(ends), 4, "GB/s")


def ucie_ends(op: str, nbytes: int, cache: Path | None = None) -> list[float]:
    """Ends of two streams between cubes that one UCIe connection of 128 GB/s joins."""
    ucie = replace(TopologySpec().cube.ucie, connections_per_side=1)
    graph = machine(cache, w=2, ucie=ucie)
    make = {"read": read, "write": write}[op]
    return serve(
        graph,
        "pe_dma",
        *(((0, 0, pe), make(graph, (0, 1, pe), nbytes)) for pe in (0, 1)),
    )


def fair_ucie(cache: Path | None = None) -> Iterator[Check]:
    """(e) Two streams interleave by bursts on one UCIe connection."""
    nbytes = 1 << 20
    for op in ("read", "write"):
        for stream, end in enumerate(ucie_ends(op, nbytes, cache), 1):
            what = f"one UCIe connection, {op} stream {stream} of 2"
            yield Check(what, "half of it", nbytes / end, 64, "GB/s")


SUITES = (scale_sim, booksim, saturation, fair_channel, fair_ucie)
ONE_CUBE = "system: {sips: {count: 1}}\nsip: {cube_mesh: {w: 1, h: 1}}\n"
MACHINES = {  # topology.yaml of each
    "1 SIP of 1 cube of 1 PE": ONE_CUBE
    + "cube: {pes: 1, memory_map: {slices_per_cube: 1}}\n",
    "1 SIP of 1 cube of 8 PEs": ONE_CUBE,
    "2 SIPs of 16 cubes of 8 PEs": "{}\n",
}


def matmul(name: str, cache: Path) -> VerifyRow:
    """The verdict on ``kernbench run matmul`` (256 x 256 x 256, f16) on one of
    MACHINES.
    """
    topology = cache / "machine.yaml"
    topology.write_text(MACHINES[name])
    report = run_bench("matmul", topology=topology).report
    assert report is not None
    return report.by_tensor()[0]


def as_markdown(checks: list[Check], verdicts: dict[str, VerifyRow]) -> str:
    """The tables of the README."""

    def number(value: float) -> str:
        return f"{value:,.2f}".rstrip("0").rstrip(".")

    lines = [
        "| what | compared with | reference | model | error |",
        "|---|---|---|---|---|",
    ]
    for c in checks:
        reference = f"{number(c.reference)} {c.unit}"
        model = f"{number(c.model)} {c.unit}"
        error = f"{c.error:+.2f} %" if round(c.error, 2) else "0 %"
        lines.append(f"| {c.what} | {c.source} | {reference} | {model} | {error} |")
    lines += [
        "",
        "| matmul on | elements compared | outside the tolerance |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {v.elements:,} | {v.mismatches} |" for name, v in verdicts.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    with TemporaryDirectory() as tmp:
        print(
            as_markdown(
                [check for suite in SUITES for check in suite(Path(tmp))],
                {name: matmul(name, Path(tmp)) for name in MACHINES},
            )
        )

"""The machine as fields: frozen, with a default each, checked before it is built.

Owns what ``topology.yaml`` may say. The defaults equal the shipped
``configs/topology.yaml``. What each rests on stands beside it, by the functions of
``provenance``; a field without that fails a test. A unit in a name holds: ns, mm, ghz,
gbs (10^9 bytes a second), bytes, kib, mib, gb (2^30 bytes).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from kernbench.common.pe_commands import DATAFLOWS
from kernbench.common.phys_addr import MAX_CUBES, MAX_DIES, MAX_PES, MAX_SIPS
from kernbench.errors import TopologyError
from kernbench.topology.kinds import NODE_KINDS
from kernbench.topology.provenance import (
    assumed,
    measured,
    of_class,
    table_of_defaults,
)
from kernbench.topology.section import (
    Count,
    NonNegative,
    Range,
    Section,
    SpecFile,
    Whole,
    converted,
    leaf_types,
    with_value,
    wrong_field,
    wrong_fields,
)

_FITS = "that fits PhysAddr, "
GridSize = Annotated[int, Range(1, 32)]
CubeCount = Annotated[int, Range(1, MAX_CUBES, note=_FITS)]
PeCount = Annotated[int, Range(1, MAX_PES, note=_FITS)]

# Times are exact for some hours only (docs/machine.md, "Exact time"). A machine that is
# slower than these would not end a run before.
Bandwidth = Annotated[float, Range(1e-3, 1e9)]
Frequency = Annotated[float, Range(1e-3, 1e3)]
Duration = Annotated[float, Range(0, 1e6)]
Interval = Annotated[float, Range(1, 1e6)]
WireDelay = Annotated[float, Range(0, 1e3)]
Length = Annotated[float, Range(0, 1e3)]
Side = Annotated[float, Range(1e-3, 1e3)]
RelativeRate = Annotated[float, Range(1e-3, 1e3)]


class SipsSpec(Section):
    """The SIPs of the machine.

    ``topology`` is what collectives between them assume; it changes no link.
    """

    count: Annotated[int, Range(1, MAX_SIPS, note=_FITS)] = assumed(
        2, "the least that has a network between SIPs"
    )
    topology: Annotated[str, ("ring_1d", "torus_2d", "mesh_2d_no_wrap")] = assumed(
        "ring_1d", "two SIPs have no other; it changes no link"
    )


class SystemSpec(Section):
    """What joins the SIPs: a switch, and PCIe from it to every IO chiplet.

    ``ns_per_mm`` is the delay of a wire, on the whole machine.
    """

    sips: SipsSpec = SipsSpec()
    ns_per_mm: WireDelay = assumed(
        0.01, "a line in a package, near light in glass; long wires on a die are slower"
    )
    pcie_bw_gbs: Bandwidth = of_class(63.0, "PCIe 5.0 x16, one direction", 2019)
    switch_overhead_ns: Duration = of_class(
        100.0, "PCIe switches; Broadcom gives 105 ns for its PEX88000", 2019
    )


class CubeMeshSpec(Section):
    """Cubes of a SIP, ``w`` across and ``h`` down."""

    w: CubeCount = assumed(4, "16 cubes, the most that an address can name")
    h: CubeCount = assumed(4, "as w")


class IoSpec(Section):
    """The IO chiplets of a SIP; several share the top row of cubes.

    Overheads are what a passing header pays at each unit; ``noc_bw_gbs`` is the
    bandwidth of the links between them.
    """

    count: Annotated[int, Range(1, MAX_DIES - MAX_CUBES)] = assumed(
        1, "one PCIe end point a SIP"
    )
    noc_bw_gbs: Bandwidth = assumed(256.0, "as a link of the cube's mesh")
    noc_overhead_ns: Duration = assumed(2.0, "as a router of the cube's mesh")
    cpu_overhead_ns: Duration = assumed(10.0, "ten cycles of a controller at 1 GHz")
    pcie_ep_overhead_ns: Duration = assumed(
        150.0, "PHY, link and transaction layer of PCIe, one way"
    )


class SipSpec(Section):
    """One SIP: cubes, and IO chiplets north of them."""

    cube_mesh: CubeMeshSpec = CubeMeshSpec()
    io: IoSpec = IoSpec()


class SizeSpec(Section):
    """Width and height of a cube, in mm."""

    w: Side = assumed(12.0, "a chiplet of 144 mm2 in front of one HBM stack")
    h: Side = assumed(12.0, "as w")


class MeshSpec(Section):
    """The router grid of a cube."""

    rows: GridSize = assumed(6, "a router every 2 mm")
    cols: GridSize = assumed(6, "a router every 2 mm")


class HbmZoneSpec(Section):
    """The part of the router grid that the HBM stack takes.

    ``row`` and ``col`` are its north-west corner; with 0 rows or columns there is none.
    """

    row: Whole = assumed(2, "the middle of the cube")
    col: Whole = assumed(2, "the middle of the cube")
    rows: Whole = assumed(2, "a ninth of the cube")
    cols: Whole = assumed(2, "a ninth of the cube")


class RouterSpec(Section):
    """A router, what a header pays on its way through it, and the links of the mesh."""

    link_bw_gbs: Bandwidth = assumed(256.0, "128 bytes a cycle at 2 GHz")
    overhead_ns: Duration = of_class(
        2.0, "four stages at 2 GHz; pipeline of BookSim 2.0 (Jiang et al.)", 2013
    )


class UcieSpec(Section):
    """UCIe ports of a cube, one a side.

    Bandwidth is that of a connection, overhead that of a port, and ``link_mm`` the gap
    between two cubes.
    """

    connections_per_side: Annotated[int, Range(1, 32)] = assumed(
        4, "four modules on a side of 12 mm"
    )
    bw_gbs: Bandwidth = of_class(128.0, "UCIe 1.0, 64 lanes at 16 GT/s", 2022)
    overhead_ns: Duration = assumed(
        8.0, "UCIe names 2 ns for the PHYs; adapter and clock crossing come to it"
    )
    link_mm: Length = of_class(
        1.0, "UCIe 1.0 reaches 2 mm in an advanced package", 2022
    )


class MemoryMapSpec(Section):
    """HBM of a cube, in one slice a PE.

    All of it fits the HBM half of a cube's address window.
    """

    hbm_total_gb: Annotated[int, Range(1, 2048)] = of_class(
        48, "HBM3E of 16 dies of 24 Gb (SK hynix)", 2024
    )
    slices_per_cube: PeCount = assumed(8, "one a PE")

    @property
    def slice_bytes(self) -> int:
        """Bytes of the HBM slice of one PE."""
        return self.hbm_total_gb * (1 << 30) // self.slices_per_cube


HBM2 = "DRAMsim3's HBM2_8Gb_x128"
DRAMSIM3 = "DRAMsim3's controller, a queue a bank"

_MOST_REFRESHED = 0.9
"""The share of time that refreshes may take."""


class HbmSpec(Section):
    """The controller of one HBM slice.

    ``interleave_bytes`` in a row lie on one pseudo-channel. Model "banked" has the
    banks and timings below, "ideal" only ``access_ns``, the time from a request to its
    first byte. Banks are those of a rank of a channel, a row is ``row_bytes`` long and
    is accessed ``access_bytes`` at a time. The controller looks at ``queue`` accesses,
    ``bank_queue`` of a bank, and writes gather until they are ``write_buffer``.
    """

    channels: Annotated[int, Range(1, 4096)] = of_class(
        8,
        "HBM4 (JESD270-4) has 64 pseudo-channels a stack, here an eighth a slice",
        2025,
    )
    model: Annotated[str, ("banked", "ideal")] = assumed(
        "banked", "what DRAM is; the other is for comparison"
    )
    channel_bw_gbs: Bandwidth = of_class(
        32.0, "HBM4 (JESD270-4): 32 bits at 8 Gb/s a pseudo-channel", 2025
    )
    channel_hash: Annotated[str, ("xor", "none")] = assumed(
        "xor", "so that a pitch of some KiB does not hit few channels"
    )
    interleave_bytes: Count = of_class(
        256, "GPUs; AMD's OpenCL Optimization Guide", 2015
    )
    access_ns: Duration = of_class(
        30.0, "tRCD + CL + one burst of DRAMsim3's HBM2_8Gb_x128", 2020
    )
    to_router_bw_gbs: Bandwidth = assumed(
        256.0, "as all channels of the slice together"
    )
    ranks: Annotated[int, Range(1, 16)] = of_class(1, HBM2, 2020)
    banks: Annotated[int, Range(1, 1024)] = of_class(16, HBM2, 2020)
    bank_groups: Annotated[int, Range(1, 1024)] = of_class(4, HBM2, 2020)
    row_bytes: Annotated[int, Range(1, 2**20)] = of_class(
        2048, "HBM2 (JESD235A): a page of 2 KiB a channel", 2015
    )
    access_bytes: Annotated[int, Range(1, 2**20)] = of_class(64, HBM2, 2020)
    queue: Annotated[int, Range(1, 4096)] = of_class(32, DRAMSIM3, 2020)
    bank_queue: Annotated[int, Range(1, 4096)] = of_class(8, DRAMSIM3, 2020)
    write_buffer: Annotated[int, Range(1, 4096)] = of_class(32, DRAMSIM3, 2020)
    controller_ns: Duration = measured(
        3.0, "DRAMsim3: an idle random read of 47 ns", 2020
    )
    trcd_ns: Duration = of_class(14.0, HBM2, 2020)
    trp_ns: Duration = of_class(14.0, HBM2, 2020)
    tras_ns: Duration = of_class(34.0, HBM2, 2020)
    trrd_s_ns: Duration = of_class(4.0, HBM2, 2020)
    trrd_l_ns: Duration = of_class(6.0, HBM2, 2020)
    tfaw_ns: Duration = of_class(30.0, HBM2, 2020)
    twtr_s_ns: Duration = of_class(6.0, HBM2, 2020)
    twtr_l_ns: Duration = of_class(8.0, HBM2, 2020)
    trtp_ns: Duration = of_class(6.0, HBM2, 2020)
    twr_ns: Duration = of_class(16.0, HBM2, 2020)
    turn_ns: Duration = of_class(2.0, "tRPRE + tRTRS of DRAMsim3's HBM2", 2020)
    cl_ns: Duration = of_class(14.0, HBM2, 2020)
    cwl_ns: Duration = of_class(4.0, HBM2, 2020)
    trfc_ns: Duration = of_class(260.0, HBM2, 2020)
    trefi_ns: Interval = of_class(3900.0, HBM2, 2020)


class SramSpec(Section):
    """SRAM of a cube; its size fits the 34 offset bits of an address.

    ``access_ns`` is the time from a request to its first byte.
    """

    size_mib: Annotated[int, Range(1, 2**14)] = assumed(32, "4 MiB a PE")
    access_ns: Duration = assumed(10.0, "ten cycles of a large array at 1 GHz")
    to_router_bw_gbs: Bandwidth = assumed(128.0, "half of a link of the mesh")


class MCpuSpec(Section):
    """M_CPU of a cube; its overhead is what a launch pays on its way through it."""

    overhead_ns: Duration = assumed(10.0, "ten cycles of a controller at 1 GHz")
    to_router_bw_gbs: Bandwidth = assumed(64.0, "a quarter of a link of the mesh")


class CubeSpec(Section):
    """One cube: PEs, HBM, SRAM, M_CPU and UCIe ports around a router mesh."""

    pes: PeCount = assumed(8, "as many as the stack has slices")
    size_mm: SizeSpec = SizeSpec()
    mesh: MeshSpec = MeshSpec()
    hbm_zone: HbmZoneSpec = HbmZoneSpec()
    pe_layout: Annotated[str, ("corners",)] = assumed(
        "corners", "the one layout that there is"
    )
    router: RouterSpec = RouterSpec()
    ucie: UcieSpec = UcieSpec()
    memory_map: MemoryMapSpec = MemoryMapSpec()
    hbm: HbmSpec = HbmSpec()
    sram: SramSpec = SramSpec()
    m_cpu: MCpuSpec = MCpuSpec()


class PeCpuSpec(Section):
    """PE_CPU: the cycles that it takes to issue a command."""

    issue_cycles: Whole = assumed(1, "a processor that issues one command a cycle")


class GemmRateSpec(Section):
    """How fast the array works on each type, relative to f16.

    Which types a field stands for is in ``DTYPES`` (common/dtypes.py).
    """

    fp8: RelativeRate = assumed(
        2.0, "two multiplications of half the width in one of f16"
    )
    i8: RelativeRate = assumed(2.0, "as fp8")
    f16: RelativeRate = assumed(1.0, "what the others are relative to")
    bf16: RelativeRate = assumed(1.0, "as f16")
    i16: RelativeRate = assumed(1.0, "as f16")
    f32: RelativeRate = assumed(
        0.5, "operands of twice the width at the same bytes a cycle"
    )
    i32: RelativeRate = assumed(0.5, "as f32")
    f64: RelativeRate = assumed(0.25, "as f32, of four times the width")
    i64: RelativeRate = assumed(0.25, "as f64")


class GemmSpec(Section):
    """The MAC array, in multiply-add units.

    ``dataflow`` says what stays in it: weights (ws), outputs (os) or inputs (is).
    ``overhead_ns`` is a fixed cost of each call.
    """

    rows: Count = assumed(64, "half of the side of a TPU's array, 128")
    cols: Count = assumed(64, "as rows")
    dataflow: Annotated[str, DATAFLOWS] = assumed("ws", "the dataflow of a TPU's array")
    overhead_ns: Duration = assumed(
        0.0, "the folds alone; small ones on a TPU v6e take some 280 ns more"
    )
    rate: GemmRateSpec = GemmRateSpec()


class MathRateSpec(Section):
    """How fast the vector unit works on each type; the fields of ``GemmRateSpec``."""

    fp8: RelativeRate = assumed(1.0, "a lane takes an element a cycle, however narrow")
    i8: RelativeRate = assumed(1.0, "as fp8")
    f16: RelativeRate = assumed(1.0, "as fp8")
    bf16: RelativeRate = assumed(1.0, "as fp8")
    i16: RelativeRate = assumed(1.0, "as fp8")
    f32: RelativeRate = assumed(
        1.0, "lanes are 32 bits wide, as floats are computed in f32"
    )
    i32: RelativeRate = assumed(1.0, "as f32")
    f64: RelativeRate = assumed(0.5, "8 bytes take a lane of 32 bits twice")
    i64: RelativeRate = assumed(0.5, "as f64")


class MathSpec(Section):
    """The vector unit: elements a cycle, and the depth of its pipeline."""

    lanes: Count = assumed(64, "one an output of the array and cycle")
    latency_cycles: Whole = measured(
        4, "arithmetic of Nvidia's Volta (Jia et al., arXiv:1804.06826)", 2018
    )
    rate: MathRateSpec = MathRateSpec()


class TcmSpec(Section):
    """Tightly coupled memory of a PE, with a read and a write channel.

    Its size fits the 34 offset bits of an address.
    """

    size_kib: Annotated[int, Range(1, 2**24)] = assumed(
        2048, "of the size of Tenstorrent's Tensix, 1.5 MB a core"
    )
    read_bw_gbs: Bandwidth = assumed(512.0, "512 bytes a cycle at 1 GHz")
    write_bw_gbs: Bandwidth = assumed(512.0, "512 bytes a cycle at 1 GHz")


class DmaSpec(Section):
    """PE_DMA: ``outstanding`` commands in flight a channel.

    Each is set up in ``setup_ns``. A command moves its bytes in bursts of at most
    ``burst_bytes``.
    """

    outstanding: Count = assumed(8, "enough to cover latency with tiles of 8 KiB")
    setup_ns: Duration = assumed(20.0, "twenty cycles to fetch and decode, in hardware")
    burst_bytes: Count = of_class(
        4096, "AWS Neuron's DMA guide: what a transfer needs to use the bandwidth", 2026
    )
    to_router_bw_gbs: Bandwidth = assumed(256.0, "as a link of the mesh")


class TileSpec(Section):
    """The default tile of a composite in elements, and how many may be in flight."""

    m: Count = assumed(64, "as many rows as the array has")
    k: Count = assumed(64, "one fold of the array")
    n: Count = assumed(64, "one fold of the array")
    window: Count = assumed(8, "as many as the DMA has commands in flight")


class PeSpec(Section):
    """One PE; all its engines run at ``clock_ghz``."""

    clock_ghz: Frequency = of_class(
        1.0, "TPU v4 runs at 1.05 GHz (Jouppi et al.)", 2023
    )
    cpu: PeCpuSpec = PeCpuSpec()
    gemm: GemmSpec = GemmSpec()
    math: MathSpec = MathSpec()
    tcm: TcmSpec = TcmSpec()
    dma: DmaSpec = DmaSpec()
    tile: TileSpec = TileSpec()


_HOROWITZ = "Horowitz (ISSCC), 45 nm"


class MacEnergySpec(Section):
    """Energy of a multiply-add of the array in pJ, by the type of its factors.

    Floats of at most 32 bits are summed in f32, so the sum of an f16 product is that of
    an f32. Unsigned numbers cost what signed ones of their size do.
    """

    fp8: NonNegative = assumed(1.2, "a multiply of half of i8 to f16, and a sum in f32")
    i8: NonNegative = of_class(0.3, f"{_HOROWITZ}: 0.2 multiply, 0.1 sum in i32", 2014)
    f16: NonNegative = of_class(2.0, f"{_HOROWITZ}: 1.1 multiply, 0.9 sum in f32", 2014)
    bf16: NonNegative = assumed(2.0, "as f16; its multiplier is smaller")
    i16: NonNegative = assumed(0.9, "a multiply of a quarter of i32, a sum in i32")
    f32: NonNegative = of_class(4.6, f"{_HOROWITZ}: 3.7 multiply, 0.9 sum", 2014)
    i32: NonNegative = of_class(3.2, f"{_HOROWITZ}: 3.1 multiply, 0.1 sum", 2014)
    f64: NonNegative = assumed(16.6, "a multiply of four f32, a sum of two")
    i64: NonNegative = assumed(12.6, "a multiply of four i32, a sum of two")


class ElementEnergySpec(Section):
    """Energy of one op of MATH on one element in pJ, by the type of its result.

    It is that of an addition; a special function costs no more.
    """

    fp8: NonNegative = assumed(0.4, "as f16")
    i8: NonNegative = of_class(0.03, f"{_HOROWITZ}: a sum of 8 bits", 2014)
    f16: NonNegative = of_class(0.4, f"{_HOROWITZ}: a sum of 16 bits", 2014)
    bf16: NonNegative = assumed(0.4, "as f16")
    i16: NonNegative = assumed(0.05, "between i8 and i32")
    f32: NonNegative = of_class(0.9, f"{_HOROWITZ}: a sum of 32 bits", 2014)
    i32: NonNegative = of_class(0.1, f"{_HOROWITZ}: a sum of 32 bits", 2014)
    f64: NonNegative = assumed(1.8, "two f32")
    i64: NonNegative = assumed(0.2, "two i32")


class EnergySpec(Section):
    """What work, bytes and time cost: pJ a multiply-add, an element and a byte; W.

    ``mac_pj`` and ``element_pj`` are by type. A byte costs once for each access of a
    memory (TCM, SRAM, HBM), each router or IO NoC, each UCIe port (a link between two
    dies has two) and each PCIe link that it passes, and for each mm of wire on a die.
    The static power is that of the whole machine for all of the run.
    """

    mac_pj: MacEnergySpec = MacEnergySpec()
    element_pj: ElementEnergySpec = ElementEnergySpec()
    tcm_pj_byte: NonNegative = of_class(
        2.5, f"{_HOROWITZ}: 20 pJ for 64 bits of 32 KiB, the banks of a TCM", 2014
    )
    sram_pj_byte: NonNegative = of_class(
        12.5, f"{_HOROWITZ}: 100 pJ for 64 bits of 1 MiB", 2014
    )
    hbm_pj_byte: NonNegative = of_class(
        31.2, "HBM2 at 3.9 pJ/bit (O'Connor et al., MICRO)", 2017
    )
    router_pj_byte: NonNegative = assumed(
        0.8, "as a mm of wire: buffers and crossbar at 0.1 pJ/bit"
    )
    ucie_port_pj_byte: NonNegative = of_class(
        1.0, "UCIe 1.0, advanced package: 0.25 pJ/bit a link, half at each port", 2022
    )
    pcie_pj_byte: NonNegative = assumed(
        40.0, "5 pJ/bit, the order of a 32 GT/s SerDes over a board"
    )
    wire_pj_byte_mm: NonNegative = of_class(
        0.8, "26 pJ for 256 bits over a mm, 28 nm (Keckler et al., IEEE Micro)", 2011
    )
    pe_static_w: NonNegative = assumed(
        0.5, "leakage and clock, some 6 % of what the array takes at its peak"
    )
    cube_static_w: NonNegative = assumed(
        2.0, "routers and ports at rest, refresh and standby of an HBM stack"
    )


class ComponentSpec(Section):
    """Which class models a node type.

    ``impl`` is a name of ``COMPONENTS``, or ``package.module:Class``.
    """

    impl: str


def components_section() -> type[Section]:
    """The section of the components: a field for every row of NODE_KINDS.

    Its name is ComponentsSpec; equal rows give the same class. It is made from the
    table as it is now, so that a kind which a program adds has its field too.
    """
    return _components_section(
        tuple((kind.name, kind.impl) for kind in NODE_KINDS.values())
    )


@cache
def _components_section(rows: tuple[tuple[str, str], ...]) -> type[Section]:
    """The section for rows of kind and default impl."""
    body: dict[str, Any] = {
        "__doc__": "The component of every node type.",
        "__module__": __name__,
        "__annotations__": {name: ComponentSpec for name, _ in rows},
    }
    for name, impl in rows:
        body[name] = ComponentSpec(impl)
    return type("ComponentsSpec", (Section,), body)


ComponentsSpec = components_section()
"""The section of the components as the kinds that ship have it."""


def _default_components() -> Section:
    return components_section()()


class TopologySpec(Section):
    """The whole machine; ``TopologySpec()`` is the shipped one."""

    system: SystemSpec = SystemSpec()
    sip: SipSpec = SipSpec()
    cube: CubeSpec = CubeSpec()
    pe: PeSpec = PeSpec()
    components: Section = field(default_factory=_default_components)
    energy: EnergySpec = EnergySpec()

    @classmethod
    def field_types(cls) -> dict[str, Any]:
        """The type of each field, of the components as NODE_KINDS has them now."""
        return super().field_types() | {"components": components_section()}


def fields_as_markdown() -> list[str]:
    """The table of docs/machine.md: all fields, their defaults, and their sources."""
    return table_of_defaults(TopologySpec)


def check_spec(spec: TopologySpec, where: Callable[[str], str] = str) -> None:
    """TopologyError for the first field that is wrong.

    That is one of a wrong type, out of range, or that does not fit others. ``where``
    turns the path of a field into what the message starts with: its file and line,
    where it has one.
    """
    for path, problem in chain(wrong_fields(spec, ""), _misfits(spec)):
        raise TopologyError(f"{where(path)}: {problem}")


def check_changes(spec: TopologySpec, paths: Iterable[str]) -> None:
    """As ``check_spec``, of a spec that was sound before some fields were changed."""
    wrong = [wrong_field(spec, path) for path in paths]
    for path, problem in chain(*wrong, _misfits(spec)):
        raise TopologyError(f"{path}: {problem}")


def _misfits(spec: TopologySpec) -> Iterator[tuple[str, str]]:
    """The path and the problem of every field that does not fit the others."""
    yield from _cube_misfits(spec)
    yield from _zone_misfits(spec.cube)
    yield from _pe_misfits(spec.cube)
    yield from _hbm_misfits(spec.cube.hbm)


def _cube_misfits(spec: TopologySpec) -> Iterator[tuple[str, str]]:
    """Where a SIP has more cubes than addresses, or more IO chiplets than columns."""
    grid = spec.sip.cube_mesh
    io_count = spec.sip.io.count
    if grid.w * grid.h > MAX_CUBES:
        most = f"a SIP has at most {MAX_CUBES} (PhysAddr)"
        yield "sip.cube_mesh", f"{grid.w} x {grid.h} cubes; {most}"
    if io_count > grid.w:
        width = f"sip.cube_mesh.w is {grid.w}"
        yield "sip.io.count", f"{io_count} IO chiplets need a column each; {width}"


def _zone_misfits(cube: CubeSpec) -> Iterator[tuple[str, str]]:
    """Where the HBM zone leaves the router mesh, or cuts it in two."""
    mesh = cube.mesh
    zone = cube.hbm_zone
    bottom = zone.row + zone.rows
    right = zone.col + zone.cols
    if bottom > mesh.rows or right > mesh.cols:
        rows = f"rows {zone.row} to {bottom - 1}"
        cols = f"columns {zone.col} to {right - 1}"
        size = f"{mesh.rows} x {mesh.cols}"
        yield (
            "cube.hbm_zone",
            f"{rows} and {cols} are not all inside the mesh of {size}",
        )
    full_width = zone.rows > 0 and zone.cols == mesh.cols
    full_height = zone.cols > 0 and zone.rows == mesh.rows
    cuts_across = full_width and zone.row > 0 and bottom < mesh.rows
    cuts_down = full_height and zone.col > 0 and right < mesh.cols
    if cuts_across or cuts_down:
        yield "cube.hbm_zone", "cuts the router mesh in two; make it smaller"


def _pe_misfits(cube: CubeSpec) -> Iterator[tuple[str, str]]:
    """Where PEs have no router each, or no HBM slice each."""
    slices = cube.memory_map.slices_per_cube
    in_zone = cube.hbm_zone.rows * cube.hbm_zone.cols
    routers = cube.mesh.rows * cube.mesh.cols - in_zone
    if cube.pes > routers:
        has = f"the mesh around HBM has {routers}"
        yield "cube.pes", f"{cube.pes} PEs need a router each; {has}"
    if slices != cube.pes:
        yield (
            "cube.memory_map.slices_per_cube",
            f"{slices} HBM slices for {cube.pes} PEs (cube.pes); "
            "there is one slice a PE",
        )


def _hbm_misfits(hbm: HbmSpec) -> Iterator[tuple[str, str]]:
    """Where banks, rows or refreshes of DRAM contradict each other."""
    if hbm.banks % hbm.bank_groups:
        fits = _divisors(hbm.banks)
        yield (
            "cube.hbm.bank_groups",
            f"{hbm.bank_groups} groups for {hbm.banks} banks (cube.hbm.banks); "
            f"groups are alike: valid are {fits}",
        )
    if hbm.row_bytes % hbm.access_bytes:
        yield (
            "cube.hbm.row_bytes",
            f"{hbm.row_bytes} is no whole number of accesses of {hbm.access_bytes} "
            "bytes (cube.hbm.access_bytes); "
            f"{-(-hbm.row_bytes // hbm.access_bytes) * hbm.access_bytes} is",
        )
    longest_ns = _MOST_REFRESHED * hbm.trefi_ns
    if hbm.trfc_ns > longest_ns:
        yield (
            "cube.hbm.trfc_ns",
            f"a refresh of {hbm.trfc_ns:g} ns every {hbm.trefi_ns:g} "
            "(cube.hbm.trefi_ns) leaves too little time for data; "
            f"valid: from 0 to {longest_ns:g}, "
            f"{_MOST_REFRESHED:.0%} of that",
        )


def _divisors(number: int) -> str:
    """What divides a number, as a message lists it."""
    found = [each for each in range(1, number + 1) if number % each == 0]
    return ", ".join(map(str, found))


def recorded_spec(fields: Mapping[str, Any]) -> TopologySpec:
    """The spec that a trace has as a map of maps, defaults for what it lacks.

    TopologyError for a field that there is none of, or whose value is wrong.
    """
    types = dict(leaf_types(TopologySpec))
    spec = TopologySpec()
    for full_path, value in _leaves(fields, types):
        spec = with_value(spec, full_path, value)
    check_spec(spec, "the machine of the trace: {}".format)
    return spec


def _leaves(
    fields: Mapping[str, Any], types: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The dotted path and the value of every field of a map of maps."""
    for name, value in fields.items():
        full_path = f"{prefix}{name}"
        if full_path in types:
            yield full_path, value
        elif isinstance(value, Mapping):
            yield from _leaves(value, types, f"{full_path}.")
        else:
            raise TopologyError(
                f"the machine of the trace: {full_path}: this kernbench has no such "
                "field; run the trace with the one that recorded it"
            )


def differing_fields(spec: TopologySpec, other: TopologySpec) -> dict[str, Any]:
    """The fields in which ``other`` differs, by dotted path, with its values."""
    found: dict[str, Any] = {}
    for full_path, _ in leaf_types(TopologySpec):
        value = attrgetter(full_path)(other)
        if value != attrgetter(full_path)(spec):
            found[full_path] = value
    return found


def load_spec(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    base: TopologySpec | None = None,
) -> TopologySpec:
    """The spec in a YAML file, defaults for what it lacks; None: the shipped one.

    Defaults are those of ``base``, or our own. ``overrides`` are values of fields by
    dotted path, or by any end of one that only one field has. TopologyError names the
    file and line of a wrong field, or the override as it was given.
    """
    file = None
    values: dict[str, Any] = {}
    if path is not None:
        file = SpecFile(path, TopologySpec)
        values = file.read()
    given: dict[str, str] = {}
    for name, value in (overrides or {}).items():
        full_path, hint = _field_named(name)
        values[full_path] = converted(value, hint)
        given[full_path] = f"--spec {name}"
    spec = base or TopologySpec()
    for full_path, value in values.items():
        spec = with_value(spec, full_path, value)

    def where(full_path: str) -> str:
        """What a message about a field starts with."""
        if full_path in given:
            return given[full_path]
        in_file = full_path if file is None else file.where(full_path)
        return ", ".join([*given.values(), in_file])

    check_spec(spec, where)
    return spec


def _field_named(name: str) -> tuple[str, Any]:
    """Dotted path and type of the one field that ``name`` is, or is the end of."""
    types = dict(leaf_types(TopologySpec))
    if name in types:
        return name, types[name]
    found = [path for path in types if path.endswith(f".{name}")]
    if not found:
        near = get_close_matches(name, types, 9, 0.4) or types
        raise TopologyError(
            f"--spec {name}: unknown field; valid are: {', '.join(near)}"
        )
    if len(found) > 1:
        raise TopologyError(
            f"--spec {name}: could be any of {', '.join(found)}; give more of it"
        )
    return found[0], types[found[0]]

"""The machine as fields: frozen, with a default each, checked before it is built.

Owns what ``topology.yaml`` may say. The defaults equal the shipped
``configs/topology.yaml``, whose comments give units and sources. A unit in a name
holds: ns, mm, ghz, gbs (10^9 bytes a second), bytes, kib, mib, gb (2^30 bytes).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from kernbench.common.phys_addr import MAX_CUBES, MAX_DIES, MAX_PES, MAX_SIPS
from kernbench.errors import TopologyError
from kernbench.topology.kinds import NODE_KINDS
from kernbench.topology.section import (
    Count,
    NonNegative,
    Positive,
    Range,
    Section,
    SpecFile,
    Whole,
    converted,
    leaf_types,
    with_value,
    wrong_fields,
)

_FITS = "that fits PhysAddr, "
GridSize = Annotated[int, Range(1, 32)]
CubeCount = Annotated[int, Range(1, MAX_CUBES, note=_FITS)]
PeCount = Annotated[int, Range(1, MAX_PES, note=_FITS)]


class SipsSpec(Section):
    """The SIPs of the machine.

    ``topology`` is what collectives between them assume; it changes no link.
    """

    count: Annotated[int, Range(1, MAX_SIPS, note=_FITS)] = 2
    topology: Annotated[str, ("ring_1d", "torus_2d", "mesh_2d_no_wrap")] = "ring_1d"


class SystemSpec(Section):
    """What joins the SIPs: a switch, and PCIe from it to every IO chiplet.

    ``ns_per_mm`` is the delay of a wire, on the whole machine.
    """

    sips: SipsSpec = SipsSpec()
    ns_per_mm: NonNegative = 0.01
    pcie_bw_gbs: Positive = 63.0
    switch_overhead_ns: NonNegative = 100.0


class CubeMeshSpec(Section):
    """Cubes of a SIP, ``w`` across and ``h`` down."""

    w: CubeCount = 4
    h: CubeCount = 4


class IoSpec(Section):
    """The IO chiplets of a SIP; several share the top row of cubes.

    Overheads are what a passing header pays at each unit; ``noc_bw_gbs`` is the
    bandwidth of the links between them.
    """

    count: Annotated[int, Range(1, MAX_DIES - MAX_CUBES)] = 1
    noc_bw_gbs: Positive = 256.0
    noc_overhead_ns: NonNegative = 2.0
    cpu_overhead_ns: NonNegative = 10.0
    pcie_ep_overhead_ns: NonNegative = 150.0


class SipSpec(Section):
    """One SIP."""

    cube_mesh: CubeMeshSpec = CubeMeshSpec()
    io: IoSpec = IoSpec()


class SizeSpec(Section):
    """A rectangle in mm."""

    w: Positive = 12.0
    h: Positive = 12.0


class MeshSpec(Section):
    """The router grid of a cube."""

    rows: GridSize = 6
    cols: GridSize = 6


class HbmZoneSpec(Section):
    """The part of the router grid that the HBM stack takes.

    ``row`` and ``col`` are its north-west corner; with 0 rows or columns there is none.
    """

    row: Whole = 2
    col: Whole = 2
    rows: Whole = 2
    cols: Whole = 2


class RouterSpec(Section):
    """A router and the links of the mesh."""

    link_bw_gbs: Positive = 256.0
    overhead_ns: NonNegative = 2.0


class UcieSpec(Section):
    """UCIe ports of a cube, one a side.

    Bandwidth is that of a connection, overhead that of a port, and ``link_mm`` the gap
    between two cubes.
    """

    connections_per_side: Annotated[int, Range(1, 32)] = 4
    bw_gbs: Positive = 128.0
    overhead_ns: NonNegative = 8.0
    link_mm: NonNegative = 1.0


class MemoryMapSpec(Section):
    """HBM of a cube, in one slice a PE.

    All of it fits the HBM half of a cube's address window.
    """

    hbm_total_gb: Annotated[int, Range(1, 2048)] = 48
    slices_per_cube: PeCount = 8

    @property
    def slice_bytes(self) -> int:
        """Bytes of the HBM slice of one PE."""
        return self.hbm_total_gb * (1 << 30) // self.slices_per_cube


class HbmSpec(Section):
    """The controller of one HBM slice.

    ``interleave_bytes`` in a row lie on one pseudo-channel; ``access_ns`` is the time
    from a request to its first byte.
    """

    channels: Annotated[int, Range(1, 4096)] = 8
    channel_bw_gbs: Positive = 32.0
    interleave_bytes: Count = 256
    access_ns: NonNegative = 30.0
    to_router_bw_gbs: Positive = 256.0


class SramSpec(Section):
    """SRAM of a cube; its size fits the 34 offset bits of an address."""

    size_mib: Annotated[int, Range(1, 2**14)] = 32
    access_ns: NonNegative = 10.0
    to_router_bw_gbs: Positive = 128.0


class MCpuSpec(Section):
    """M_CPU of a cube."""

    overhead_ns: NonNegative = 10.0
    to_router_bw_gbs: Positive = 64.0


class CubeSpec(Section):
    """One cube: PEs, HBM, SRAM, M_CPU and UCIe ports around a router mesh."""

    pes: PeCount = 8
    size_mm: SizeSpec = SizeSpec()
    mesh: MeshSpec = MeshSpec()
    hbm_zone: HbmZoneSpec = HbmZoneSpec()
    pe_layout: Annotated[str, ("corners",)] = "corners"
    router: RouterSpec = RouterSpec()
    ucie: UcieSpec = UcieSpec()
    memory_map: MemoryMapSpec = MemoryMapSpec()
    hbm: HbmSpec = HbmSpec()
    sram: SramSpec = SramSpec()
    m_cpu: MCpuSpec = MCpuSpec()


class PeCpuSpec(Section):
    """PE_CPU: the cycles that it takes to issue a command."""

    issue_cycles: Whole = 1


class GemmSpec(Section):
    """The weight-stationary MAC array, in multiply-add units."""

    rows: Count = 64
    cols: Count = 64


class MathSpec(Section):
    """The vector unit: elements a cycle, and the depth of its pipeline."""

    lanes: Count = 64
    latency_cycles: Whole = 4


class TcmSpec(Section):
    """Tightly coupled memory of a PE, with a read and a write channel.

    Its size fits the 34 offset bits of an address.
    """

    size_kib: Annotated[int, Range(1, 2**24)] = 2048
    read_bw_gbs: Positive = 512.0
    write_bw_gbs: Positive = 512.0


class DmaSpec(Section):
    """PE_DMA: ``outstanding`` commands in flight a channel.

    Each is set up in ``setup_ns``. A command moves its bytes in bursts.
    """

    outstanding: Count = 8
    setup_ns: NonNegative = 20.0
    burst_bytes: Count = 4096
    to_router_bw_gbs: Positive = 256.0


class TileSpec(Section):
    """The default tile of a composite in elements, and how many may be in flight."""

    m: Count = 64
    k: Count = 64
    n: Count = 64
    window: Count = 8


class PeSpec(Section):
    """One PE."""

    clock_ghz: Positive = 1.0
    cpu: PeCpuSpec = PeCpuSpec()
    gemm: GemmSpec = GemmSpec()
    math: MathSpec = MathSpec()
    tcm: TcmSpec = TcmSpec()
    dma: DmaSpec = DmaSpec()
    tile: TileSpec = TileSpec()


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

    @classmethod
    def field_types(cls) -> dict[str, Any]:
        """The type of each field, of the components as NODE_KINDS has them now."""
        return super().field_types() | {"components": components_section()}


def check_spec(spec: TopologySpec, where: Callable[[str], str] = str) -> None:
    """TopologyError for the first field that is wrong.

    That is one of a wrong type, out of range, or that does not fit others. ``where``
    turns the path of a field into what the message starts with: its file and line,
    where it has one.
    """
    for path, problem in chain(wrong_fields(spec, ""), _misfits(spec)):
        raise TopologyError(f"{where(path)}: {problem}")


def _misfits(spec: TopologySpec) -> Iterator[tuple[str, str]]:
    """The path and the problem of every field that does not fit the others."""
    yield from _cube_misfits(spec)
    yield from _zone_misfits(spec.cube)
    yield from _pe_misfits(spec.cube)


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


def load_spec(
    path: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> TopologySpec:
    """The spec in a YAML file, defaults for what it lacks; None: the shipped one.

    ``overrides`` are values of fields by dotted path, or by any end of one that only
    one field has. TopologyError names the file and line of a wrong field, or the
    override as it was given.
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
    spec = TopologySpec()
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

"""The machine as fields: frozen, with a default each, checked before anything is built from them.

Owns what ``topology.yaml`` may say. The defaults equal the shipped
``configs/topology.yaml``, whose comments give units and sources. A unit in a name holds: ns, mm,
ghz, gbs (10^9 bytes a second), bytes, kib, mib, gb (2^30 bytes).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, dataclass_transform, get_args

import yaml

from kernbench.common.phys_addr import MAX_CUBES, MAX_DIES, MAX_PES, MAX_SIPS
from kernbench.errors import TopologyError


@dataclass(frozen=True, slots=True)
class Range:
    """Valid numbers: ``low`` (not itself if ``above``) to ``high``; never NaN or infinity."""

    low: float
    high: float = 1e15
    above: bool = False
    note: str = ""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        return f"{self.note}{'above' if self.above else 'from'} {self.low:g} to {self.high:g}"


Positive = Annotated[float, Range(0, above=True)]
NonNegative = Annotated[float, Range(0)]
Count = Annotated[int, Range(1, 2**31)]
Whole = Annotated[int, Range(0, 2**31)]
_FITS = "that fits PhysAddr, "
GridSize = Annotated[int, Range(1, 32)]
CubeCount = Annotated[int, Range(1, MAX_CUBES, note=_FITS)]
PeCount = Annotated[int, Range(1, MAX_PES, note=_FITS)]


@dataclass_transform(frozen_default=True)
class Section:
    """A part of the file with fields of its own; every subclass is a frozen dataclass.

    With an ``entry`` a field may have any other name too, and is such a part.
    """

    entry: ClassVar["type[Section] | None"] = None

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class SipsSpec(Section):
    """How many SIPs there are, and the topology that collectives between them assume."""

    count: Annotated[int, Range(1, MAX_SIPS, note=_FITS)] = 2
    topology: Annotated[str, ("ring_1d", "torus_2d", "mesh_2d_no_wrap")] = "ring_1d"


class SystemSpec(Section):
    """What joins the SIPs."""

    sips: SipsSpec = SipsSpec()
    ns_per_mm: NonNegative = 0.01
    pcie_bw_gbs: Positive = 63.0
    switch_overhead_ns: NonNegative = 100.0


class CubeMeshSpec(Section):
    """Cubes of a SIP, ``w`` across and ``h`` down."""

    w: CubeCount = 4
    h: CubeCount = 4


class IoSpec(Section):
    """IO chiplets of a SIP; several share the top row of cubes."""

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
    """The rectangle of the router grid that the HBM stack takes; 0 rows or columns: none."""

    row: Whole = 2
    col: Whole = 2
    rows: Whole = 2
    cols: Whole = 2


class RouterSpec(Section):
    """A router and the links of the mesh."""

    link_bw_gbs: Positive = 256.0
    overhead_ns: NonNegative = 2.0


class UcieSpec(Section):
    """UCIe ports of a cube: bandwidth a connection, overhead a port."""

    connections_per_side: Annotated[int, Range(1, 32)] = 4
    bw_gbs: Positive = 128.0
    overhead_ns: NonNegative = 8.0
    link_mm: NonNegative = 1.0


class MemoryMapSpec(Section):
    """HBM of a cube, in one slice a PE; at most the HBM half of a cube's address window."""

    hbm_total_gb: Annotated[int, Range(1, 2048)] = 48
    slices_per_cube: PeCount = 8

    @property
    def slice_bytes(self) -> int:
        """Of the HBM of one PE."""
        return self.hbm_total_gb * (1 << 30) // self.slices_per_cube


class HbmSpec(Section):
    """The controller of one HBM slice."""

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
    """PE_CPU: cycles to issue a command."""

    issue_cycles: Whole = 1


class GemmSpec(Section):
    """Weight-stationary MAC array."""

    rows: Count = 64
    cols: Count = 64


class MathSpec(Section):
    """Vector unit."""

    lanes: Count = 64
    latency_cycles: Whole = 4


class TcmSpec(Section):
    """Tightly coupled memory of a PE; its size fits the 34 offset bits of an address."""

    size_kib: Annotated[int, Range(1, 2**24)] = 2048
    read_bw_gbs: Positive = 512.0
    write_bw_gbs: Positive = 512.0


class DmaSpec(Section):
    """PE_DMA: commands in flight a channel, set-up and bursts."""

    outstanding: Count = 8
    setup_ns: NonNegative = 20.0
    burst_bytes: Count = 4096
    to_router_bw_gbs: Positive = 256.0


class TileSpec(Section):
    """Default tile of a composite, and how many may be in flight."""

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
    """Which class models a node type: a registry name, or ``package.module:Class``."""

    impl: str


class ComponentsSpec(Section):
    """The component of every node type."""

    pe_cpu: ComponentSpec = ComponentSpec("pe_cpu")
    pe_scheduler: ComponentSpec = ComponentSpec("pe_scheduler")
    pe_dma: ComponentSpec = ComponentSpec("pe_dma")
    pe_fetch_store: ComponentSpec = ComponentSpec("pe_fetch_store")
    pe_gemm: ComponentSpec = ComponentSpec("pe_gemm")
    pe_math: ComponentSpec = ComponentSpec("pe_math")
    pe_mmu: ComponentSpec = ComponentSpec("pe_mmu")
    pe_tcm: ComponentSpec = ComponentSpec("pe_tcm")
    pe_ipcq: ComponentSpec = ComponentSpec("pe_ipcq")
    hbm_ctrl: ComponentSpec = ComponentSpec("hbm_ctrl")
    sram: ComponentSpec = ComponentSpec("sram")
    m_cpu: ComponentSpec = ComponentSpec("m_cpu")
    io_cpu: ComponentSpec = ComponentSpec("io_cpu")
    pcie_ep: ComponentSpec = ComponentSpec("pcie_ep")
    router: ComponentSpec = ComponentSpec("transit")
    ucie: ComponentSpec = ComponentSpec("transit")
    ucie_conn: ComponentSpec = ComponentSpec("transit")
    io_noc: ComponentSpec = ComponentSpec("transit")
    switch: ComponentSpec = ComponentSpec("transit")


class TopologySpec(Section):
    """The whole machine; ``TopologySpec()`` is the shipped one."""

    system: SystemSpec = SystemSpec()
    sip: SipSpec = SipSpec()
    cube: CubeSpec = CubeSpec()
    pe: PeSpec = PeSpec()
    components: ComponentsSpec = ComponentsSpec()


def check_spec(spec: TopologySpec, where: Callable[[str], str] = str) -> None:
    """TopologyError for the first field that is of a wrong type, out of range or does not fit.

    ``where`` turns the path of a field into what the message starts with (file and line).
    """
    for path, problem in chain(wrong_fields(spec, ""), _geometry(spec)):
        raise TopologyError(f"{where(path)}: {problem}")


def wrong_fields(spec: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of every field whose value its type or rule does not allow."""
    for name, hint in _hints(spec.__class__).items():
        value, path = getattr(spec, name), f"{prefix}{name}"
        base, rule = get_args(hint) or (hint, ())
        if is_dataclass(base):
            if isinstance(value, base):  # type: ignore[arg-type]
                yield from wrong_fields(value, f"{path}.")
                continue
            right, wanted = False, f"have the fields {_names(base)}"
        elif base is str:
            right = (
                value in rule
                if rule
                else isinstance(value, str) and bool(value.strip())
            )
            wanted = f"be one of {', '.join(rule)}" if rule else "be a name"
        else:
            types = int | float if base is float else int
            right = (
                isinstance(value, types)
                and not isinstance(value, bool)
                and value in rule
            )
            wanted = f"be a {'number' if base is float else 'whole number'} {rule}"
        if not right:
            yield path, f"must {wanted}, not {value!r}"


def _geometry(spec: TopologySpec) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of every field that does not fit the others."""
    cubes, cube, ios = spec.sip.cube_mesh, spec.cube, spec.sip.io.count
    mesh, zone, slices = cube.mesh, cube.hbm_zone, cube.memory_map.slices_per_cube
    if cubes.w * cubes.h > MAX_CUBES:
        most = f"a SIP has at most {MAX_CUBES} (PhysAddr)"
        yield "sip.cube_mesh", f"{cubes.w} x {cubes.h} cubes; {most}"
    if ios > cubes.w:
        yield (
            "sip.io.count",
            f"{ios} IO chiplets need a column each; sip.cube_mesh.w is {cubes.w}",
        )
    bottom, right = zone.row + zone.rows, zone.col + zone.cols
    if bottom > mesh.rows or right > mesh.cols:
        place = f"rows {zone.row} to {bottom - 1} and columns {zone.col} to {right - 1}"
        yield (
            "cube.hbm_zone",
            f"{place} are not all inside the mesh of {mesh.rows} x {mesh.cols}",
        )
    across = (
        zone.rows > 0 and zone.cols == mesh.cols and zone.row > 0 and bottom < mesh.rows
    )
    down = (
        zone.cols > 0 and zone.rows == mesh.rows and zone.col > 0 and right < mesh.cols
    )
    if across or down:
        yield "cube.hbm_zone", "cuts the router mesh in two; make it smaller"
    routers = mesh.rows * mesh.cols - zone.rows * zone.cols
    if cube.pes > routers:
        yield (
            "cube.pes",
            f"{cube.pes} PEs need a router each; the mesh around HBM has {routers}",
        )
    if slices != cube.pes:
        wrong = f"{slices} HBM slices for {cube.pes} PEs (cube.pes); there is one slice a PE"
        yield "cube.memory_map.slices_per_cube", wrong


def load_spec(
    path: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> TopologySpec:
    """The spec in a YAML file, defaults for what it lacks; TopologyError with file and line.

    ``overrides`` are values of fields by dotted path, or by any end of one that is unique.
    """
    file = SpecFile(path) if path else None
    values, given = file.read() if file else {}, {}
    for name, value in (overrides or {}).items():
        field, hint = _field(name)
        values[field], given[field] = _converted(value, hint), f"--spec {name}"
    spec = TopologySpec()
    for field, value in values.items():
        spec = _replaced(spec, field, value)

    def where(field: str) -> str:
        of_file = file.where(field) if file else field
        return given.get(field) or ", ".join([*given.values(), of_file])

    check_spec(spec, where)
    return spec


def _field(name: str) -> tuple[str, Any]:
    """Dotted path and type of the one field that ``name`` is, or is the end of."""
    hints = dict(_leaves(TopologySpec, ""))
    found = (
        [name]
        if name in hints
        else [path for path in hints if path.endswith(f".{name}")]
    )
    if not found:
        near = ", ".join(get_close_matches(name, hints, 9, 0.4) or hints)
        raise TopologyError(f"--spec {name}: unknown field; valid are: {near}")
    if len(found) > 1:
        raise TopologyError(
            f"--spec {name}: could be any of {', '.join(found)}; give more of it"
        )
    return found[0], hints[found[0]]


def _leaves(cls: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, hint in _hints(cls).items():
        path = f"{prefix}{name}"
        yield from _leaves(hint, f"{path}.") if is_dataclass(hint) else [(path, hint)]


def _replaced(section: Any, path: str, value: Any) -> Any:
    """A section with another value of one field."""
    name, _, below = path.partition(".")
    new = _replaced(getattr(section, name), below, value) if below else value
    return replace(section, **{name: new})


class SpecFile:
    """A YAML file of ``root``'s fields while it is read."""

    def __init__(self, path: Path, root: Any = TopologySpec) -> None:
        self.path = path
        self.root = root
        self.lines = {"": 1}  # of each field

    def where(self, field: str) -> str:
        """File, line and name of a field; what the file leaves out has its parent's line."""
        parent = field
        while parent not in self.lines:
            parent = parent.rpartition(".")[0]
        return f"{self.path}:{self.lines[parent]}: {field}"

    def read(self) -> dict[str, Any]:
        """The values in it by path, not yet checked."""
        path = self.path
        try:
            root = yaml.compose(
                path.read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader
            )
        except OSError as error:
            raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TopologyError(
                f"{path}: not a UTF-8 text file: {error.reason}"
            ) from None
        except RecursionError:
            raise TopologyError(
                f"{path}: nested too deeply; a topology has 4 levels"
            ) from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            why = getattr(error, "problem", None) or getattr(
                error, "reason", "cannot be parsed"
            )
            raise TopologyError(f"{path}:{line}: not valid YAML: {why}") from None
        if root is None:
            raise TopologyError(
                f"{path}:1: the file is empty; fields: {_names(self.root)}"
            )
        return dict(self._section(self.root, root, ""))

    def _section(
        self, cls: Any, node: yaml.Node, path: str
    ) -> Iterator[tuple[str, Any]]:
        names = _names(cls)
        if not isinstance(node, yaml.MappingNode):
            where = self.where(path or "the file")
            raise TopologyError(f"{where}: must be a mapping with fields of: {names}")
        for key, value in node.value:
            name = (
                str(key.value)
                if isinstance(key, yaml.ScalarNode)
                else "a list or mapping"
            )
            hint, below = _hints(cls).get(name, cls.entry), f"{path}.{name}".lstrip(".")
            first, self.lines[below] = self.lines.get(below), key.start_mark.line + 1
            if hint is None:
                raise TopologyError(
                    f"{self.where(below)}: unknown field; valid: {names}"
                )
            if first:
                raise TopologyError(
                    f"{self.where(below)}: given twice; first on line {first}"
                )
            if is_dataclass(hint):
                yield from self._section(hint, value, below)
            elif isinstance(value, yaml.ScalarNode):
                yield below, _scalar(value, hint)
            else:
                what = "must be one value, not a list or mapping"
                raise TopologyError(f"{self.where(below)}: {what}")
        for field in fields(cls):
            if (
                field.default is MISSING
                and f"{path}.{field.name}".lstrip(".") not in self.lines
            ):
                raise TopologyError(
                    f"{self.where(path)}: the field {field.name} is missing"
                )


def _scalar(node: yaml.ScalarNode, hint: Any) -> Any:
    """The value of a node for a field of type ``hint``."""
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except (ValueError, IndexError, OverflowError, yaml.YAMLError):
        return node.value  # not what it claims to be: check_spec says what it should be
    quoted = isinstance(value, str) and node.style is not None
    return value if quoted else _converted(value, hint)


def _converted(value: Any, hint: Any) -> Any:
    """A value for a field of type ``hint``, as YAML 1.2 has it: 1e3 is a number."""
    if get_args(hint)[:1] == (float,) and type(value) in (int, str):
        with suppress(ValueError, OverflowError):
            return float(value)
    return value


def _hints(cls: Any) -> dict[str, Any]:
    return {field.name: field.type for field in fields(cls)}


def _names(cls: Any) -> str:
    return ", ".join(_hints(cls))

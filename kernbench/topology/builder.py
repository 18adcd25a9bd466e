"""From a spec to the graph, in six stages, each a function of what it is given.

1 ``load_spec``  2 ``cube_mesh``  3 ``cubes``  4 ``chiplet_links``  5 ``system``  6 ``freeze``.
Owns places on the machine, link kinds and routing weights; the names are ``router.py``'s.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from kernbench.errors import TopologyError
from kernbench.policy.routing import router as name
from kernbench.topology.cube_mesh import SIDES, CubeMesh, Place, cube_mesh, on_border
from kernbench.topology.graph import NOWHERE, Edge, Node, TopologyGraph
from kernbench.topology.spec import TopologySpec, check_spec, load_spec

PE_ENGINES = (  # three a row, as they lie in their PE
    *("pe_cpu", "pe_scheduler", "pe_mmu"),
    *("pe_dma", "pe_tcm", "pe_ipcq"),
    *("pe_fetch_store", "pe_gemm", "pe_math"),
)
_PE_LINKS = {  # in both directions
    "pe_scheduler": ("pe_dma", "pe_fetch_store", "pe_gemm", "pe_math", "pe_ipcq"),
    "pe_mmu": ("pe_dma",),
    "pe_tcm": ("pe_dma", "pe_fetch_store"),
    "pe_fetch_store": ("pe_gemm", "pe_math"),
    "pe_ipcq": ("pe_dma",),
}
_PE_LINK_MM = 0.1
_IO_DEPTH_MM = 4.0  # of the IO chiplet, north of the cubes
_SIP_GAP_MM = 20.0
_BUS_MM = 0.001  # routing weight inside a UCIe port and an IO chiplet's fan-out


def load_topology(
    path: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
) -> TopologyGraph:
    """The machine of a YAML file, None: the shipped one; overrides, errors as of ``load_spec``."""
    return build_topology(load_spec(Path(path) if path else None, overrides), cache_dir)


def build_topology(spec: TopologySpec, cache_dir: Path | None = None) -> TopologyGraph:
    """The machine of ``spec``; ``cache_dir`` holds the cube layout (None: the user's cache)."""
    check_spec(spec)
    tiles = cubes(spec, cube_mesh(spec.cube, cache_dir))
    links = chiplet_links(tiles)
    return freeze((tiles, links, system(links)))


def cubes(spec: TopologySpec, mesh: CubeMesh) -> TopologyGraph:
    """Stage 3: all cubes of all SIPs, each with its PEs, not yet joined to each other."""
    make, grid = _Maker(spec), spec.sip.cube_mesh
    for sip, cube in product(range(spec.system.sips.count), range(grid.w * grid.h)):
        _cube(make, mesh, sip, cube)
    return make.part()


def chiplet_links(tiles: TopologyGraph) -> TopologyGraph:
    """Stage 4: IO chiplets, their links to the top row of cubes, and UCIe between cubes."""
    make, spec = _Maker(tiles.spec), tiles.spec
    grid, ucie = spec.sip.cube_mesh, spec.cube.ucie
    bandwidth, cubes_ = ucie.bw_gbs * ucie.connections_per_side, grid.w * grid.h
    for sip in range(spec.system.sips.count):
        for cube in range(cubes_):
            for near, far, other, there in (
                ("E", "W", cube + 1, (cube + 1) % grid.w > 0),
                ("S", "N", cube + grid.w, cube + grid.w < cubes_),
            ):
                if there:
                    a = tiles.nodes[name.ucie_node(sip, cube, near)]
                    b = tiles.nodes[name.ucie_node(sip, other, far)]
                    make.link(a, b, "ucie_mesh", bandwidth, make.port)
        for io in range(spec.sip.io.count):
            _io_chiplet(make, tiles, sip, io)
    return make.part()


def system(links: TopologyGraph) -> TopologyGraph:
    """Stage 5: the switch, and PCIe from it to every end point."""
    make = _Maker(links.spec)
    ends = [node for node in links.nodes.values() if node.type == "pcie_ep"]
    x, nowhere = fmean(end.x_mm for end in ends), (NOWHERE, NOWHERE, NOWHERE)
    switch = make.node(name.switch_node(0), "switch", nowhere, x, -_IO_DEPTH_MM)
    for end in ends:
        make.link(end, switch, "pcie", links.spec.system.pcie_bw_gbs)
    return make.part()


def freeze(parts: Sequence[TopologyGraph]) -> TopologyGraph:
    """Stage 6: the graph of all parts; TopologyError if it is not sound.

    Sound: no name twice, positive bandwidths, every node reachable from every pcie_ep.
    """
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    for part in parts:
        if twice := nodes.keys() & part.nodes.keys():
            raise TopologyError(
                f"two nodes have the name {min(twice)}; names must be unique"
            )
        nodes |= part.nodes
        edges += part.edges
    for edge in edges:
        if edge.bandwidth_gbs <= 0:
            link = f"link {edge.src} -> {edge.dst} has {edge.bandwidth_gbs} GB/s"
            raise TopologyError(f"{link}; it must be above 0")
    ends = sorted(node.id for node in nodes.values() if node.type == "pcie_ep")
    # All nodes from the first end point, and it from all others: then all from every one.
    if lost := nodes.keys() - _reachable(ends[0], ((e.src, e.dst) for e in edges)):
        raise TopologyError(
            f"no path leads from {ends[0]} to {min(lost)} ({len(lost)} such nodes)"
        )
    if cut_off := set(ends) - _reachable(ends[0], ((e.dst, e.src) for e in edges)):
        raise TopologyError(f"no path leads from {min(cut_off)} to {ends[0]}")
    return TopologyGraph(MappingProxyType(nodes), tuple(edges), parts[0].spec)


def _reachable(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    following: defaultdict[str, list[str]] = defaultdict(list)
    for src, dst in pairs:
        following[src].append(dst)
    found = frontier = {start}
    while frontier:
        frontier = {dst for src in frontier for dst in following[src]} - found
        found = found | frontier
    return found


class _Maker:
    """Gathers the nodes and edges of one stage; owns the weights that links are routed by.

    All in mm, for links that must not look short. ``span`` bounds every way through a cube's mesh:
    Manhattan, a detour round the HBM, the ends. A UCIe port is a bus of almost no length; at
    ``port`` each for getting on and off, it costs more than any way through the mesh, so data use
    it only to change cubes. ``io`` keeps data between cubes out of the IO chiplet. A command edge
    of a pe_cpu costs ``span``, all edges of an io_cpu ``reach``, more than any data path in a SIP:
    no data are drawn through a CPU.
    """

    def __init__(self, spec: TopologySpec) -> None:
        self.spec, io, cube, grid = spec, spec.sip.io, spec.cube, spec.sip.cube_mesh
        hops = (
            cube.mesh.rows
            + cube.mesh.cols
            + 2 * max(cube.hbm_zone.rows, cube.hbm_zone.cols)
        )
        self.span = hops * max(
            cube.size_mm.w / cube.mesh.cols, cube.size_mm.h / cube.mesh.rows
        )
        self.port = self.span / 2
        crossing = (
            3 * self.span
        )  # of a cube: three edges of ``port``, the mesh, some to spare
        self.io, self.reach = grid.w * crossing, (grid.w + grid.h + 2) * crossing
        self._overheads = {
            "router": cube.router.overhead_ns,
            "ucie": cube.ucie.overhead_ns,
            "m_cpu": cube.m_cpu.overhead_ns,
            "io_noc": io.noc_overhead_ns,
            "io_cpu": io.cpu_overhead_ns,
            "pcie_ep": io.pcie_ep_overhead_ns,
            "switch": spec.system.switch_overhead_ns,
        }
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []

    def part(self) -> TopologyGraph:
        return TopologyGraph(self.nodes, tuple(self.edges), self.spec)

    def node(
        self, id_: str, type_: str, place: tuple[int, int, int], x: float, y: float
    ) -> Node:
        """Add a node at ``place`` (sip, cube, pe); one of a PE is told by its type there."""
        _, cube, pe = place
        engine = type_ if pe != NOWHERE else name.local_name(id_, cube != NOWHERE)
        overhead = self._overheads.get(type_, 0.0)
        impl: str = getattr(self.spec.components, type_).impl
        node = Node(
            id_, type_, *place, engine, round(x, 6), round(y, 6), overhead, impl
        )
        self.nodes[id_] = node
        return node

    def edge(
        self, src: Node, dst: Node, kind: str, mm: float, bw: float, weight: float
    ) -> None:
        """Add one edge; a weight of 0 means the distance."""
        self.edges.append(Edge(src.id, dst.id, kind, mm, weight, bw))

    def link(
        self,
        a: Node,
        b: Node,
        kind: str,
        bw: float,
        weight: float = 0.0,
        back: str = "",
    ) -> None:
        """Add a -> b and b -> a (of kind ``back`` if given), as long as they are apart."""
        distance = round(abs(a.x_mm - b.x_mm) + abs(a.y_mm - b.y_mm), 6)
        self.edge(a, b, kind, distance, bw, weight)
        self.edge(b, a, back or kind, distance, bw, weight)


def _cube(make: _Maker, mesh: CubeMesh, sip: int, cube: int) -> None:
    """Routers, UCIe ports, memories, M_CPU and PEs of one cube."""
    spec, columns, gap = (
        make.spec.cube,
        make.spec.sip.cube_mesh.w,
        make.spec.cube.ucie.link_mm,
    )
    (row, col), across = divmod(cube, columns), spec.size_mm.w + gap
    x0 = sip * (columns * across - gap + _SIP_GAP_MM) + col * across
    y0 = _IO_DEPTH_MM + gap + row * (spec.size_mm.h + gap)

    def add(id_: str, type_: str, at: Place, pe: int = NOWHERE) -> Node:
        return make.node(id_, type_, (sip, cube, pe), x0 + at.x_mm, y0 + at.y_mm)

    routers = {
        (at.row, at.col): add(name.router_node(sip, cube, at.row, at.col), "router", at)
        for at in mesh.routers
    }
    for (row, col), router in routers.items():
        for beside in ((row, col + 1), (row + 1, col)):
            if beside in routers:
                make.link(
                    router, routers[beside], "router_mesh", spec.router.link_bw_gbs
                )

    def attach(
        node: Node, at: Place, short: str, bandwidth: float, weight: float = 0.0
    ) -> None:
        router = routers[at.row, at.col]
        make.link(
            node, router, f"{short}_to_router", bandwidth, weight, f"router_to_{short}"
        )

    m_cpu = add(name.cube_node(sip, cube, "m_cpu"), "m_cpu", mesh.m_cpu)
    attach(m_cpu, mesh.m_cpu, "mcpu", spec.m_cpu.to_router_bw_gbs)
    sram = add(name.cube_node(sip, cube, "sram"), "sram", mesh.sram)
    attach(sram, mesh.sram, "sram", spec.sram.to_router_bw_gbs)
    for pe, (home, slice_at) in enumerate(zip(mesh.pes, mesh.hbm, strict=True)):
        hbm = add(name.hbm_node(sip, cube, pe), "hbm_ctrl", slice_at, pe)
        attach(hbm, slice_at, "hbm", spec.hbm.to_router_bw_gbs)
        engines = _pe(make, (sip, cube, pe), x0 + home.x_mm, y0 + home.y_mm)
        attach(engines["pe_dma"], home, "pe", make.spec.pe.dma.to_router_bw_gbs)
        make.link(
            m_cpu, engines["pe_cpu"], "command", spec.m_cpu.to_router_bw_gbs, make.span
        )
    for side, places in zip(SIDES, mesh.connections, strict=True):
        middle = Place(*on_border(spec, side, 0.5), NOWHERE, NOWHERE)
        port = add(name.ucie_node(sip, cube, side), "ucie", middle)
        for k, at in enumerate(places):
            conn = add(name.ucie_conn_node(sip, cube, side, k), "ucie_conn", at)
            attach(conn, at, "ucie_conn", spec.ucie.bw_gbs, make.port)
            make.link(conn, port, "ucie_internal", spec.ucie.bw_gbs, _BUS_MM)


def _pe(
    make: _Maker, place: tuple[int, int, int], x: float, y: float
) -> dict[str, Node]:
    """The engines of one PE, by name, on a grid around its place, and their links."""
    tcm, kind, mm = make.spec.pe.tcm, "pe_internal", _PE_LINK_MM
    engines = {}
    for i, engine in enumerate(PE_ENGINES):
        at_x, at_y = x + (i % 3 - 1) * mm, y + (i // 3 - 1) * mm
        engines[engine] = make.node(
            name.pe_node(*place, engine), engine, place, at_x, at_y
        )
    for a, others in _PE_LINKS.items():
        into = tcm.write_bw_gbs if a == "pe_tcm" else tcm.read_bw_gbs
        for b in others:
            make.edge(engines[a], engines[b], kind, mm, tcm.read_bw_gbs, 0.0)
            make.edge(engines[b], engines[a], kind, mm, into, 0.0)
    # As heavy as pe_cpu's command edge, or what it answers to m_cpu would go by pe_dma.
    make.edge(
        engines["pe_cpu"], engines["pe_scheduler"], kind, mm, tcm.read_bw_gbs, make.span
    )
    return engines


def _io_chiplet(make: _Maker, tiles: TopologyGraph, sip: int, io: int) -> None:
    """One IO chiplet north of its share of the top row of cubes."""
    spec, io_id, grid = make.spec, f"io{io}", make.spec.sip.cube_mesh
    ports = {
        column: tiles.nodes[name.ucie_node(sip, column, "N")]
        for column in range(grid.w)
        if column * spec.sip.io.count // grid.w == io
    }
    x, half = fmean(port.x_mm for port in ports.values()), _IO_DEPTH_MM / 2
    place = (sip, NOWHERE, NOWHERE)
    noc, end, cpu = (
        make.node(name.io_node(sip, io_id, type_), type_, place, x + dx, y)
        for type_, dx, y in (
            ("io_noc", 0, half),
            ("pcie_ep", 0, 0.5),
            ("io_cpu", 2, half),
        )
    )
    for a, b, weight in (
        (end, noc, 0.0),
        (end, cpu, make.reach),
        (cpu, noc, make.reach),
    ):
        make.link(a, b, "io_internal", spec.sip.io.noc_bw_gbs, weight)
    for cube in range(grid.w * grid.h):
        m_cpu = tiles.nodes[name.cube_node(sip, cube, "m_cpu")]
        make.link(cpu, m_cpu, "command", spec.cube.m_cpu.to_router_bw_gbs, make.reach)
    gbs = spec.cube.ucie.bw_gbs
    for column, port in ports.items():
        id_ = name.io_conn_node(sip, io_id, column)
        conn = make.node(id_, "ucie_conn", place, port.x_mm, _IO_DEPTH_MM)
        make.link(noc, conn, "noc_to_ucie_conn", gbs, _BUS_MM, "ucie_conn_to_noc")
        make.link(conn, port, "io_to_cube", gbs, make.io, "cube_to_io")

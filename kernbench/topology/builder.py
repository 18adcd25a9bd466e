"""From a spec to the graph, in six stages, each a function of what it is given.

1 ``load_spec``  2 ``cube_mesh``  3 ``cubes``  4 ``chiplet_links``  5 ``system``  6
``freeze``. Owns the geometry of the machine, link kinds and routing weights. What units
there are is in ``kinds.py``; the names are ``router.py``'s.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from kernbench.errors import TopologyError
from kernbench.policy.routing import router as name
from kernbench.topology.cube_mesh import SIDES, CubeMesh, cube_mesh, on_border
from kernbench.topology.cube_mesh import Place as CubePlace
from kernbench.topology.graph import NOWHERE, Edge, Node, Place, TopologyGraph
from kernbench.topology.kinds import NODE_KINDS, cube_units, io_units, pe_engines
from kernbench.topology.spec import TopologySpec, check_spec, load_spec

_PE_LINK_MM = 0.1
"""Length of a link within a PE, and the pitch of the grid that its engines lie on."""

_IO_DEPTH_MM = 4.0
"""Depth of the IO chiplet, which lies north of the cubes."""

_SIP_GAP_MM = 20.0
"""Between the last column of cubes of a SIP and the first of the next."""

_MOST_KEPT = 2
_kept: dict[str, TopologyGraph] = {}
"""The machines that were asked for last, the oldest first."""

_BUS_MM = 0.001
"""Routing weight inside a UCIe port and an IO chiplet's fan-out."""


def load_topology(
    path: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
) -> TopologyGraph:
    """The machine of a YAML file; None is the shipped one.

    ``overrides`` and errors are those of ``load_spec``, ``cache_dir`` that of
    ``build_topology``.
    """
    file = Path(path) if path else None
    return build_topology(load_spec(file, overrides), cache_dir)


def build_topology(spec: TopologySpec, cache_dir: Path | None = None) -> TopologyGraph:
    """The machine of ``spec``; TopologyError if the spec is not sound.

    ``cache_dir`` holds the layout of a cube; None is the user's cache directory. The
    machines that were asked for last are kept, since many runs of one process are on
    the same.
    """
    check_spec(spec)
    # Not by the spec itself: 1 and 1.0 are equal, and a trace has what was written.
    key = f"{spec!r} {cache_dir}"
    graph = _kept.pop(key, None)
    if graph is None:
        graph = freeze(topology_parts(spec, cache_dir))
    _kept[key] = graph
    if len(_kept) > _MOST_KEPT:
        del _kept[next(iter(_kept))]
    return graph


def topology_parts(
    spec: TopologySpec, cache_dir: Path | None = None
) -> tuple[TopologyGraph, ...]:
    """What stages 3 to 5 make of a sound spec, with none of the checks of a graph."""
    tiles = cubes(spec, cube_mesh(spec.cube, cache_dir))
    links = chiplet_links(tiles)
    return tiles, links, system(links)


def cubes(spec: TopologySpec, mesh: CubeMesh) -> TopologyGraph:
    """Stage 3: all cubes of all SIPs, each with its PEs, not joined to each other."""
    make = _Maker(spec)
    grid = spec.sip.cube_mesh
    for sip, cube in product(range(spec.system.sips.count), range(grid.w * grid.h)):
        _Cube(make, mesh, sip, cube).build()
    return make.part()


def chiplet_links(tiles: TopologyGraph) -> TopologyGraph:
    """Stage 4: IO chiplets, their links to the cubes, and UCIe between cubes."""
    spec = tiles.spec
    make = _Maker(spec)
    for sip in range(spec.system.sips.count):
        _ucie_mesh(make, tiles, sip)
        for io in range(spec.sip.io.count):
            _io_chiplet(make, tiles, sip, io)
    return make.part()


def system(links: TopologyGraph) -> TopologyGraph:
    """Stage 5: the switch, and PCIe from it to every end point."""
    make = _Maker(links.spec)
    ends = _end_points(links.nodes)
    middle_mm = fmean(end.x_mm for end in ends)
    nowhere = (NOWHERE, NOWHERE, NOWHERE)
    switch = make.node(name.switch_node(0), "switch", nowhere, middle_mm, -_IO_DEPTH_MM)
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
        twice = nodes.keys() & part.nodes.keys()
        if twice:
            raise TopologyError(
                f"two nodes have the name {min(twice)}; names must be unique"
            )
        nodes |= part.nodes
        edges += part.edges
    for edge in edges:
        if edge.bandwidth_gbs <= 0:
            link = f"link {edge.src} -> {edge.dst} has {edge.bandwidth_gbs} GB/s"
            raise TopologyError(f"{link}; it must be above 0")
    _check_reach(nodes, edges)
    return TopologyGraph(MappingProxyType(nodes), tuple(edges), parts[0].spec)


def _check_reach(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> None:
    """TopologyError if a node cannot be reached from every PCIe end point.

    All nodes from the first end point, and it from all others: then all from every one.
    """
    ends = sorted(node.id for node in _end_points(nodes))
    first = ends[0]
    lost = nodes.keys() - _reachable(first, ((edge.src, edge.dst) for edge in edges))
    if lost:
        raise TopologyError(
            f"no path leads from {first} to {min(lost)} ({len(lost)} such nodes)"
        )
    back = _reachable(first, ((edge.dst, edge.src) for edge in edges))
    cut_off = set(ends) - back
    if cut_off:
        raise TopologyError(f"no path leads from {min(cut_off)} to {first}")


def _end_points(nodes: Mapping[str, Node]) -> list[Node]:
    """The PCIe end points, in build order."""
    return [node for node in nodes.values() if node.type == "pcie_ep"]


def _reachable(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    """All that can be reached from ``start`` over (src, dst) pairs, itself included."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for src, dst in pairs:
        following[src].append(dst)
    found = {start}
    frontier = {start}
    while frontier:
        beyond = {dst for src in frontier for dst in following[src]}
        frontier = beyond - found
        found |= frontier
    return found


class _Maker:
    """Gathers the nodes and edges of one stage; owns the weights of its links.

    Weights are in mm, for links that must not look short to who routes. ``span_mm``
    bounds every way through a cube's mesh: Manhattan, a detour round the HBM, the ends.
    A UCIe port is a bus of almost no length; at ``port_mm`` each for getting on and
    off, it costs more than any way through the mesh, so data use it only to change
    cubes. ``io_mm`` keeps data between cubes out of the IO chiplet. A command edge of a
    PE costs ``span_mm``, all edges of an IO chiplet's CPU ``reach_mm``, more than any
    data path in a SIP: no data are routed through a CPU.
    """

    def __init__(self, spec: TopologySpec) -> None:
        self.spec = spec
        cube = spec.cube
        grid = spec.sip.cube_mesh
        detour = 2 * max(cube.hbm_zone.rows, cube.hbm_zone.cols)
        hops = cube.mesh.rows + cube.mesh.cols + detour
        hop_mm = max(cube.size_mm.w / cube.mesh.cols, cube.size_mm.h / cube.mesh.rows)
        self.span_mm = hops * hop_mm
        self.port_mm = self.span_mm / 2
        # To cross a cube takes three edges of port_mm and the mesh; some to spare.
        crossing_mm = 3 * self.span_mm
        self.io_mm = grid.w * crossing_mm
        self.reach_mm = (grid.w + grid.h + 2) * crossing_mm
        self._overheads = {
            kind.name: self.number(kind.overhead) if kind.overhead else 0.0
            for kind in NODE_KINDS.values()
        }
        self.engines = pe_engines()
        self.engine_links = self._engine_links()
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []

    def _engine_links(self) -> list[tuple[str, str, float, float]]:
        """The links within a PE: source, destination, GB/s, and routing weight in mm.

        They come diagonal by diagonal of the grid. Traces hold edges in the order in
        which they were made, so it is to stay as it is.
        """
        kinds = sorted(self.engines, key=lambda kind: sum(kind.cell))
        outward_gbs = self.spec.pe.tcm.read_bw_gbs
        links = []
        for kind in kinds:
            inward_gbs = self.number(kind.inward)
            for other in kind.links:
                links.append((kind.name, other, outward_gbs, 0.0))
                links.append((other, kind.name, inward_gbs, 0.0))
        for kind in kinds:
            for other in kind.feeds:
                # As heavy as a command edge, or what a PE answers to the CPU of its
                # cube would go by its DMA.
                links.append((kind.name, other, outward_gbs, self.span_mm))
        return links

    def number(self, field: str) -> float:
        """The field of the spec at a dotted path."""
        value: float = attrgetter(field)(self.spec)
        return value

    def part(self) -> TopologyGraph:
        """What was made so far."""
        return TopologyGraph(self.nodes, tuple(self.edges), self.spec)

    def node(
        self, node_id: str, kind: str, place: Place, x_mm: float, y_mm: float
    ) -> Node:
        """Add a node of a kind; in a PE the kind is its name as well."""
        _, cube, pe = place
        engine = kind
        if pe == NOWHERE:
            engine = name.local_name(node_id, in_cube=cube != NOWHERE)
        impl: str = getattr(self.spec.components, kind).impl
        made = Node(
            node_id,
            kind,
            *place,
            engine,
            round(x_mm, 6),
            round(y_mm, 6),
            self._overheads[kind],
            impl,
        )
        self.nodes[node_id] = made
        return made

    def edge(
        self, src: Node, dst: Node, kind: str, mm: float, gbs: float, weight_mm: float
    ) -> None:
        """Add one edge; a weight of 0 means its length."""
        self.edges.append(Edge(src.id, dst.id, kind, mm, weight_mm, gbs))

    def link(
        self,
        a: Node,
        b: Node,
        kind: str,
        gbs: float,
        weight_mm: float = 0.0,
        back: str = "",
    ) -> None:
        """Add a -> b, and b -> a (of kind ``back`` if given).

        Both are as long as the nodes are apart, by Manhattan distance.
        """
        distance_mm = round(abs(a.x_mm - b.x_mm) + abs(a.y_mm - b.y_mm), 6)
        self.edge(a, b, kind, distance_mm, gbs, weight_mm)
        self.edge(b, a, back or kind, distance_mm, gbs, weight_mm)


class _Cube:
    """One cube while it is built: routers, units, PEs with their HBM, UCIe ports.

    Its north-west corner is at ``x_mm`` and ``y_mm`` of the machine: SIPs lie from west
    to east, each with its IO chiplets in the north.
    """

    def __init__(self, make: _Maker, mesh: CubeMesh, sip: int, cube: int) -> None:
        self.make = make
        self.mesh = mesh
        self.sip = sip
        self.cube = cube
        spec = make.spec.cube
        columns = make.spec.sip.cube_mesh.w
        gap_mm = spec.ucie.link_mm
        row, col = divmod(cube, columns)
        across_mm = spec.size_mm.w + gap_mm
        sip_mm = columns * across_mm - gap_mm + _SIP_GAP_MM
        self.x_mm = sip * sip_mm + col * across_mm
        self.y_mm = _IO_DEPTH_MM + gap_mm + row * (spec.size_mm.h + gap_mm)
        self.routers: dict[tuple[int, int], Node] = {}
        self.units: dict[str, Node] = {}

    def build(self) -> None:
        """Add all its nodes and links."""
        self._add_routers()
        self._add_units()
        homes = zip(self.mesh.pes, self.mesh.hbm, strict=True)
        for pe, (home, slice_at) in enumerate(homes):
            self._add_hbm_slice(pe, slice_at)
            self._add_pe(pe, home)
        for side, places in zip(SIDES, self.mesh.connections, strict=True):
            self._add_ucie_port(side, places)

    def _node(self, node_id: str, kind: str, at: CubePlace, pe: int = NOWHERE) -> Node:
        """Add a node at a place of this cube; ``pe`` is the PE that it belongs to."""
        place = (self.sip, self.cube, pe)
        x_mm = self.x_mm + at.x_mm
        y_mm = self.y_mm + at.y_mm
        return self.make.node(node_id, kind, place, x_mm, y_mm)

    def _attach(
        self, node: Node, at: CubePlace, edge: str, gbs: float, weight_mm: float = 0.0
    ) -> None:
        """Link a node to its router: ``{edge}_to_router``, and ``router_to_{edge}``."""
        router = self.routers[at.row, at.col]
        there = f"{edge}_to_router"
        back = f"router_to_{edge}"
        self.make.link(node, router, there, gbs, weight_mm, back)

    def _add_routers(self) -> None:
        """The routers, each linked to its neighbours in the east and the south."""
        for at in self.mesh.routers:
            node_id = name.router_node(self.sip, self.cube, at.row, at.col)
            self.routers[at.row, at.col] = self._node(node_id, "router", at)
        gbs = self.make.spec.cube.router.link_bw_gbs
        for (row, col), router in self.routers.items():
            for beside in ((row, col + 1), (row + 1, col)):
                if beside in self.routers:
                    self.make.link(router, self.routers[beside], "router_mesh", gbs)

    def _add_units(self) -> None:
        """What a cube has one of, each attached to its router."""
        for kind in cube_units():
            node_id = name.cube_node(self.sip, self.cube, kind.name)
            at = self.mesh.units[kind.name]
            unit = self._node(node_id, kind.name, at)
            self.units[kind.name] = unit
            self._attach(unit, at, kind.edge, self.make.number(kind.to_router))

    def _add_hbm_slice(self, pe: int, at: CubePlace) -> None:
        """The controller of a PE's HBM slice, attached to the router of the PE."""
        node_id = name.hbm_node(self.sip, self.cube, pe)
        controller = self._node(node_id, "hbm_ctrl", at, pe)
        self._attach(controller, at, "hbm", self.make.spec.cube.hbm.to_router_bw_gbs)

    def _add_pe(self, pe: int, home: CubePlace) -> None:
        """The engines of one PE on a grid around its place, and their links."""
        make = self.make
        place = (self.sip, self.cube, pe)
        engines: dict[str, Node] = {}
        for kind in make.engines:
            row, col = kind.cell
            x_mm = self.x_mm + home.x_mm + (col - 1) * _PE_LINK_MM
            y_mm = self.y_mm + home.y_mm + (row - 1) * _PE_LINK_MM
            node_id = name.pe_node(*place, kind.name)
            engines[kind.name] = make.node(node_id, kind.name, place, x_mm, y_mm)
        for src, dst, gbs, weight_mm in make.engine_links:
            ends = (engines[src], engines[dst])
            make.edge(*ends, "pe_internal", _PE_LINK_MM, gbs, weight_mm)
        for kind in make.engines:
            if kind.to_router:
                gbs = make.number(kind.to_router)
                self._attach(engines[kind.name], home, "pe", gbs)
        for kind in make.engines:
            if kind.command is not None:
                cpu = self.units[kind.command.by]
                gbs = make.number(kind.command.bandwidth)
                make.link(cpu, engines[kind.name], "command", gbs, make.span_mm)

    def _add_ucie_port(self, side: str, places: Sequence[CubePlace]) -> None:
        """The UCIe port of a side, in its middle, and its connections."""
        make = self.make
        gbs = make.spec.cube.ucie.bw_gbs
        middle = CubePlace(*on_border(make.spec.cube, side, 0.5), NOWHERE, NOWHERE)
        port = self._node(name.ucie_node(self.sip, self.cube, side), "ucie", middle)
        for k, at in enumerate(places):
            node_id = name.ucie_conn_node(self.sip, self.cube, side, k)
            connection = self._node(node_id, "ucie_conn", at)
            self._attach(connection, at, "ucie_conn", gbs, make.port_mm)
            make.link(connection, port, "ucie_internal", gbs, _BUS_MM)


def _ucie_mesh(make: _Maker, tiles: TopologyGraph, sip: int) -> None:
    """UCIe from every cube of a SIP to its neighbours in the east and the south."""
    grid = make.spec.sip.cube_mesh
    ucie = make.spec.cube.ucie
    gbs = ucie.bw_gbs * ucie.connections_per_side
    cube_count = grid.w * grid.h

    def join(cube: int, side: str, other: int, other_side: str) -> None:
        """A UCIe link from a side of one cube to a side of another."""
        near = tiles.nodes[name.ucie_node(sip, cube, side)]
        far = tiles.nodes[name.ucie_node(sip, other, other_side)]
        make.link(near, far, "ucie_mesh", gbs, make.port_mm)

    for cube in range(cube_count):
        east = cube + 1
        south = cube + grid.w
        if east % grid.w > 0:
            join(cube, "E", east, "W")
        if south < cube_count:
            join(cube, "S", south, "N")


def _io_chiplet(make: _Maker, tiles: TopologyGraph, sip: int, io: int) -> None:
    """One IO chiplet north of its share of the top row of cubes."""
    spec = make.spec
    grid = spec.sip.cube_mesh
    io_id = f"io{io}"
    ports = {
        column: tiles.nodes[name.ucie_node(sip, column, "N")]
        for column in range(grid.w)
        if column * spec.sip.io.count // grid.w == io
    }
    middle_mm = fmean(port.x_mm for port in ports.values())
    place = (sip, NOWHERE, NOWHERE)
    units: dict[str, Node] = {}
    for kind in io_units():
        east_mm, south_mm = kind.at_mm
        node_id = name.io_node(sip, io_id, kind.name)
        x_mm = middle_mm + east_mm
        units[kind.name] = make.node(node_id, kind.name, place, x_mm, south_mm)
    _link_io_units(make, units)
    _command_cubes(make, tiles, sip, units)
    gbs = spec.cube.ucie.bw_gbs
    noc = units["io_noc"]
    for column, port in ports.items():
        node_id = name.io_conn_node(sip, io_id, column)
        connection = make.node(node_id, "ucie_conn", place, port.x_mm, _IO_DEPTH_MM)
        make.link(noc, connection, "noc_to_ucie_conn", gbs, _BUS_MM, "ucie_conn_to_noc")
        make.link(connection, port, "io_to_cube", gbs, make.io_mm, "cube_to_io")


def _link_io_units(make: _Maker, units: Mapping[str, Node]) -> None:
    """The links within an IO chiplet."""
    kinds = io_units()
    cpus = {kind.name for kind in kinds if kind.is_cpu}
    gbs = make.spec.sip.io.noc_bw_gbs
    for kind in kinds:
        for other in kind.links:
            to_cpu = kind.name in cpus or other in cpus
            weight_mm = make.reach_mm if to_cpu else 0.0
            make.link(units[kind.name], units[other], "io_internal", gbs, weight_mm)


def _command_cubes(
    make: _Maker, tiles: TopologyGraph, sip: int, units: Mapping[str, Node]
) -> None:
    """Command edges from an IO chiplet's CPU to the CPU of every cube of its SIP."""
    grid = make.spec.sip.cube_mesh
    for cube, kind in product(range(grid.w * grid.h), cube_units()):
        if kind.command is not None:
            unit = tiles.nodes[name.cube_node(sip, cube, kind.name)]
            gbs = make.number(kind.command.bandwidth)
            cpu = units[kind.command.by]
            make.link(cpu, unit, "command", gbs, make.reach_mm)

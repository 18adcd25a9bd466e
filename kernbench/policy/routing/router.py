"""Names of nodes, addresses to nodes, and paths between nodes (ADR-0051).

The one owner of the naming convention, of which edge kinds a routing policy may use,
and of how an HBM offset becomes a PE. It knows the graph by its shape only (``Graph``),
so the topology builder can take its names from here.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, Protocol

from kernbench.common.phys_addr import PhysAddr, UnitType
from kernbench.errors import RoutingError

__all__ = ["AddressResolver", "PathRouter", "RoutingError"]

Adjacency = defaultdict[str, list[tuple[str, float]]]
"""The neighbours of each node, with the weight of the edge to each in mm."""

Path = tuple[str, ...]
"""Node ids from the source to the destination, both included."""

Policy = Literal["pe", "mcpu_dma", "memory", "node"]
"""What travels: data of a PE's DMA, of an M_CPU's DMA, of the host, or anything."""

_SEARCHES = 64
"""Searches that are kept to go on from; each holds what it has seen of the machine."""

_MCPU_DMA_EXCLUDE = frozenset({"pe_internal", "pe_to_router"})
_UCIE_KINDS = frozenset(
    {
        "ucie_internal",
        "ucie_conn_to_router",
        "router_to_ucie_conn",
        "ucie_conn_to_noc",
        "noc_to_ucie_conn",
        "ucie_mesh",
        "io_to_cube",
        "cube_to_io",
    }
)


def pe_prefix(sip: int, cube: int, pe: int) -> str:
    """What the names of all engines of a PE begin with, and ``find_path`` takes."""
    return f"sip{sip}.cube{cube}.pe{pe}"


def pe_node(sip: int, cube: int, pe: int, engine: str) -> str:
    """An engine of a PE, such as "pe_dma"."""
    return f"sip{sip}.cube{cube}.pe{pe}.{engine}"


def cube_node(sip: int, cube: int, unit: str) -> str:
    """A unit that a cube has one of, such as "m_cpu" or "sram"."""
    return f"sip{sip}.cube{cube}.{unit}"


def hbm_node(sip: int, cube: int, pe: int) -> str:
    """The controller of the HBM slice that belongs to a PE."""
    return f"sip{sip}.cube{cube}.hbm_ctrl.pe{pe}"


def router_node(sip: int, cube: int, row: int, col: int) -> str:
    """A router of a cube's mesh: rows count from the north, columns from the west."""
    return f"sip{sip}.cube{cube}.r{row}c{col}"


def ucie_node(sip: int, cube: int, side: str) -> str:
    """The UCIe port of a side of a cube: N, S, E or W."""
    return f"sip{sip}.cube{cube}.ucie_{side}"


def ucie_conn_node(sip: int, cube: int, side: str, k: int) -> str:
    """Connection ``k`` of a UCIe port, counted from the west or north."""
    return f"sip{sip}.cube{cube}.ucie_{side}.conn{k}"


def io_node(sip: int, io_id: str, unit: str) -> str:
    """A unit of the IO chiplet ``io_id`` ("io0"), such as "pcie_ep" or "io_cpu"."""
    return f"sip{sip}.{io_id}.{unit}"


def io_conn_node(sip: int, io_id: str, k: int) -> str:
    """The connection of an IO chiplet to cube ``k`` of the top row."""
    return f"sip{sip}.{io_id}.ucie.conn{k}"


def switch_node(i: int) -> str:
    """Switch ``i`` between the SIPs."""
    return f"fabric.switch{i}"


def local_name(node_id: str, in_cube: bool) -> str:
    """The name of a node within its cube, or else within its SIP or the fabric."""
    parents = 2 if in_cube else 1
    return node_id.split(".", parents)[-1]


class Graph(Protocol):
    """What routing needs of a machine.

    The ids of its nodes, its ``Edge`` rows, and ``cube.memory_map`` of its spec.
    """

    @property
    def nodes(self) -> Mapping[str, object]: ...
    @property
    def edges(self) -> Iterable[Any]: ...
    @property
    def spec(self) -> Any: ...


class AddressResolver:
    """From an address, or from what a node is, to the node's id (ADR-0051 D1)."""

    def __init__(self, graph: Graph) -> None:
        self._node_ids = set(graph.nodes)
        memory = graph.spec.cube.memory_map
        hbm_bytes = memory.hbm_total_gb * (1 << 30)
        self._hbm_slice_bytes = hbm_bytes // memory.slices_per_cube

    def resolve(self, addr: PhysAddr) -> str:
        """The node that owns ``addr``; RoutingError if it maps to none."""
        sip = addr.sip_id
        cube = addr.die_id
        if addr.kind == "hbm":
            pe = addr.hbm_offset // self._hbm_slice_bytes
            return self._known(hbm_node(sip, cube, pe))
        if addr.kind != "pe_resource":
            raise RoutingError(
                f"unsupported address kind {addr.kind!r}; valid: hbm, pe_resource"
            )
        if addr.unit_type == UnitType.PE:
            return self._known(pe_node(sip, cube, addr.pe_id, "pe_tcm"))
        if addr.unit_type == UnitType.SRAM:
            return self._known(cube_node(sip, cube, "sram"))
        if addr.unit_type == UnitType.MCPU:
            return self._known(cube_node(sip, cube, "m_cpu"))
        raise RoutingError(
            f"unsupported unit_type {addr.unit_type!r}; valid: PE, SRAM, MCPU"
        )

    def find_m_cpu(self, sip: int, cube: int) -> str:
        """The M_CPU of a cube; RoutingError if there is none."""
        return self._known(cube_node(sip, cube, "m_cpu"))

    def find_pcie_ep(self, sip: int, io_id: str = "io0") -> str:
        """The PCIe end point of an IO chiplet; RoutingError if there is none."""
        return self._known(io_node(sip, io_id, "pcie_ep"))

    def find_io_cpu(self, sip: int, io_id: str = "io0") -> str:
        """The IO_CPU of an IO chiplet; RoutingError if there is none."""
        return self._known(io_node(sip, io_id, "io_cpu"))

    def find_all_pcie_eps(self) -> list[str]:
        """The PCIe end points of all SIPs, sorted by name."""
        return sorted(node for node in self._node_ids if node.endswith(".pcie_ep"))

    def _known(self, node_id: str) -> str:
        """The node id itself; RoutingError if the machine has no such node."""
        if node_id not in self._node_ids:
            raise RoutingError(f"node {node_id} not found in topology")
        return node_id


class _Search:
    """Dijkstra from one source, which goes on from where its last goal was found.

    Entries of the heap are (distance, node id), so that of two paths of the same length
    the same one is taken whatever the order of edges (ADR-0051 D4).
    """

    def __init__(self, adj: Adjacency, start: str) -> None:
        self._adj = adj
        self._start = start
        self._best = {start: 0.0}
        self._prev: dict[str, str] = {}
        self._settled: set[str] = set()
        self._heap = [(0.0, start)]

    def to(self, goal: str) -> tuple[Path, float]:
        """Shortest path and its length in mm; RoutingError if there is none."""
        self._settle(goal)
        path = [goal]
        while path[-1] != self._start:
            path.append(self._prev[path[-1]])
        return tuple(reversed(path)), self._best[goal]

    def _settle(self, goal: str) -> None:
        """Go on until the distance of ``goal`` is final."""
        best = self._best
        while goal not in self._settled:
            if not self._heap:
                raise RoutingError(f"no path from {self._start} to {goal}")
            distance, node = heapq.heappop(self._heap)
            if node in self._settled:
                continue
            self._settled.add(node)
            for neighbor, weight in self._adj.get(node, ()):
                through = distance + weight
                if through < best.get(neighbor, math.inf):
                    best[neighbor] = through
                    self._prev[neighbor] = node
                    heapq.heappush(self._heap, (through, neighbor))


class PathRouter:
    """Shortest paths by policy: what may be crossed depends on what travels (ADR-0051).

    It owns a graph for each policy of ADR-0051 D2, the paths that were asked for, and
    the searches that found the last of them.
    """

    def __init__(self, graph: Graph) -> None:
        self._edges = list(graph.edges)
        self._searches: dict[tuple[Policy, bool, str], _Search] = {}
        self._paths: dict[tuple[Policy, str, str], tuple[Path, float]] = {}

    # A run asks by a policy or two, and the machine has thousands of edges: each graph
    # is made when it is first asked for.

    @cached_property
    def _adj_all(self) -> Adjacency:
        return _adjacency(self._edges)

    @cached_property
    def _adj(self) -> Adjacency:
        return _adjacency(self._edges, {"command"})

    @cached_property
    def _adj_mcpu_dma(self) -> Adjacency:
        return _adjacency(self._edges, _MCPU_DMA_EXCLUDE)

    @cached_property
    def _adj_local(self) -> Adjacency:
        return _adjacency(self._edges, _UCIE_KINDS)

    @cached_property
    def _adj_mcpu_dma_local(self) -> Adjacency:
        """D3.3 has the exclusion hold within a cube too: no path crosses a PE."""
        return _adjacency(self._edges, _UCIE_KINDS | _MCPU_DMA_EXCLUDE)

    def _graph(self, policy: Policy, local: bool) -> Adjacency:
        """What may be crossed under a policy, within a cube or between cubes."""
        if policy == "node":
            return self._adj_all
        if policy == "pe":
            return self._adj_local if local else self._adj
        if policy == "mcpu_dma" and local:
            return self._adj_mcpu_dma_local
        return self._adj_mcpu_dma

    def find_path(self, src_pe: str, dst_node: str) -> list[str]:
        """PE DMA: from the pe_dma of PE prefix ``src_pe`` to a node.

        Within a cube it goes over the mesh only; RoutingError if there is no path.
        """
        return self.find_path_with_distance(src_pe, dst_node)[0]

    def find_path_with_distance(
        self, src_pe: str, dst_node: str
    ) -> tuple[list[str], float]:
        """``find_path`` and the routing distance in mm."""
        path, distance = self._find("pe", f"{src_pe}.pe_dma", dst_node)
        return list(path), distance

    def find_mcpu_dma_path(self, m_cpu_id: str, dst_hbm_id: str) -> list[str]:
        """M_CPU DMA: never through a PE; within a cube over its mesh only."""
        return list(self.route("mcpu_dma", m_cpu_id, dst_hbm_id))

    def find_memory_path(self, src: str, dst: str) -> list[str]:
        """Host access to memory, ``pcie_ep`` to ``hbm_ctrl``: never through a PE."""
        return list(self.route("memory", src, dst))

    def find_node_path(self, src: str, dst: str) -> list[str]:
        """Between any two nodes, command edges included."""
        return list(self.route("node", src, dst))

    def route(self, policy: Policy, src: str, dst: str) -> Path:
        """The path between two nodes, the same object each time: for who asks often.

        ``src`` is a node id under every policy. RoutingError if there is no path.
        """
        return self._find(policy, src, dst)[0]

    def _find(self, policy: Policy, src: str, dst: str) -> tuple[Path, float]:
        """The path and its length in mm; found once for each policy and ends.

        A search that ends halfway, as by Ctrl-C, is not gone on with.
        """
        found = self._paths.get((policy, src, dst))
        if found is None:
            local = _same_cube(src, dst)
            search = self._search(policy, local, src)
            try:
                found = search.to(dst)
            except BaseException:
                del self._searches[policy, local, src]
                raise
            self._paths[policy, src, dst] = found
        return found

    def _search(self, policy: Policy, local: bool, src: str) -> _Search:
        """The search from ``src``, within its cube or between cubes."""
        search = self._searches.get((policy, local, src))
        if search is None:
            if len(self._searches) == _SEARCHES:
                oldest = next(iter(self._searches))
                del self._searches[oldest]
            search = _Search(self._graph(policy, local), src)
            self._searches[policy, local, src] = search
        return search

    def _dijkstra(self, start: str, goal: str) -> list[str]:
        return self._run_dijkstra(self._adj, start, goal)

    def _dijkstra_with_dist(self, start: str, goal: str) -> tuple[list[str], float]:
        return self._run_dijkstra_with_dist(self._adj, start, goal)

    @staticmethod
    def _run_dijkstra(adj: Adjacency, start: str, goal: str) -> list[str]:
        return PathRouter._run_dijkstra_with_dist(adj, start, goal)[0]

    @staticmethod
    def _run_dijkstra_with_dist(
        adj: Adjacency, start: str, goal: str
    ) -> tuple[list[str], float]:
        path, distance = _Search(adj, start).to(goal)
        return list(path), distance


def _adjacency(edges: Iterable[Any], exclude: Collection[str] = ()) -> Adjacency:
    """The graph of all ``edges`` but those of the kinds in ``exclude``."""
    adj: Adjacency = defaultdict(list)
    for edge in edges:
        if edge.kind not in exclude:
            weight = edge.routing_weight_mm or edge.distance_mm
            adj[edge.src].append((edge.dst, weight))
    return adj


def _same_cube(src: str, dst: str) -> bool:
    """Whether two nodes are in one cube."""
    sip, _, below = src.partition(".")
    cube, _, _ = below.partition(".")
    return cube.startswith("cube") and dst.startswith(f"{sip}.{cube}.")

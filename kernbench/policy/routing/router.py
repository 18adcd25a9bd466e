"""Names of nodes, addresses to nodes, and paths between nodes (ADR-0051).

The one owner of the naming convention, of which edge kinds a routing policy may use, and of how an
HBM offset becomes a PE. It knows the graph by its shape only, so the builder takes its names here.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from kernbench.common.phys_addr import PhysAddr, UnitType
from kernbench.errors import RoutingError

__all__ = ["AddressResolver", "PathRouter", "RoutingError"]

Adjacency = Mapping[str, list[tuple[str, float]]]
Policy = Literal["pe", "mcpu_dma", "memory", "node"]

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


class _MemoryMap(Protocol):
    @property
    def hbm_total_gb(self) -> int: ...
    @property
    def slices_per_cube(self) -> int: ...


class _Cube(Protocol):
    @property
    def memory_map(self) -> _MemoryMap: ...


class _Spec(Protocol):
    @property
    def cube(self) -> _Cube: ...


class _Edge(Protocol):
    @property
    def src(self) -> str: ...
    @property
    def dst(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def distance_mm(self) -> float: ...
    @property
    def routing_weight_mm(self) -> float | None: ...


class Graph(Protocol):
    """What routing needs of a topology."""

    @property
    def nodes(self) -> Mapping[str, object]: ...
    @property
    def edges(self) -> Iterable[_Edge]: ...
    @property
    def spec(self) -> _Spec: ...


def sip_prefix(sip: int) -> str:
    """What the names of all nodes of a SIP begin with (without the dot)."""
    return f"sip{sip}"


def cube_prefix(sip: int, cube: int) -> str:
    """What the names of all nodes of a cube begin with (without the dot)."""
    return f"{sip_prefix(sip)}.cube{cube}"


def pe_prefix(sip: int, cube: int, pe: int) -> str:
    """What the names of a PE's engines begin with; ``find_path`` takes it."""
    return f"{cube_prefix(sip, cube)}.pe{pe}"


def pe_node(sip: int, cube: int, pe: int, engine: str) -> str:
    """An engine of a PE, such as "pe_dma"."""
    return f"{pe_prefix(sip, cube, pe)}.{engine}"


def cube_node(sip: int, cube: int, name: str) -> str:
    """A node of a cube that belongs to no PE: "m_cpu", "sram"."""
    return f"{cube_prefix(sip, cube)}.{name}"


def hbm_node(sip: int, cube: int, pe: int) -> str:
    """The controller of the HBM slice of one PE."""
    return cube_node(sip, cube, f"hbm_ctrl.pe{pe}")


def router_node(sip: int, cube: int, row: int, col: int) -> str:
    """A router of the mesh; row 0 is the north edge, column 0 the west."""
    return cube_node(sip, cube, f"r{row}c{col}")


def ucie_node(sip: int, cube: int, side: str) -> str:
    """The UCIe port on one side (N, S, E, W) of a cube."""
    return cube_node(sip, cube, f"ucie_{side}")


def ucie_conn_node(sip: int, cube: int, side: str, k: int) -> str:
    """Connection ``k`` of a UCIe port, counted from the west or north."""
    return f"{ucie_node(sip, cube, side)}.conn{k}"


def io_node(sip: int, io_id: str, name: str) -> str:
    """A node of an IO chiplet ("io0"): "pcie_ep", "io_cpu", "io_noc"."""
    return f"{sip_prefix(sip)}.{io_id}.{name}"


def io_conn_node(sip: int, io_id: str, k: int) -> str:
    """The UCIe connection of an IO chiplet to cube ``k`` of the top row."""
    return io_node(sip, io_id, f"ucie.conn{k}")


def switch_node(i: int) -> str:
    """A PCIe switch between the SIPs."""
    return f"fabric.switch{i}"


class AddressResolver:
    """From an address, or from what a node is, to its id."""

    def __init__(self, graph: Graph) -> None:
        self._node_ids = set(graph.nodes)
        memory = graph.spec.cube.memory_map
        self._hbm_slice_bytes = memory.hbm_total_gb * (1 << 30) // memory.slices_per_cube

    def resolve(self, addr: PhysAddr) -> str:
        """The node that owns ``addr``; RoutingError if it maps to none."""
        sip, cube = addr.sip_id, addr.die_id
        if addr.kind == "hbm":
            return self._known(hbm_node(sip, cube, addr.hbm_offset // self._hbm_slice_bytes))
        if addr.kind != "pe_resource":
            raise RoutingError(f"unsupported address kind {addr.kind!r}; valid: hbm, pe_resource")
        if addr.unit_type == UnitType.PE:
            return self._known(pe_node(sip, cube, addr.pe_id, "pe_tcm"))
        if addr.unit_type == UnitType.SRAM:
            return self._known(cube_node(sip, cube, "sram"))
        if addr.unit_type == UnitType.MCPU:
            return self._known(cube_node(sip, cube, "m_cpu"))
        raise RoutingError(f"unsupported unit_type {addr.unit_type!r}; valid: PE, SRAM, MCPU")

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
        if node_id not in self._node_ids:
            raise RoutingError(f"node {node_id} not found in topology")
        return node_id


class _Search:
    """Dijkstra from one source; asked again, it goes on from where its last goal was found.

    Heap entries are (distance, node id), so paths do not depend on the order of edges.
    """

    def __init__(self, adj: Adjacency, start: str) -> None:
        self._adj, self._start = adj, start
        self._best = {start: 0.0}
        self._prev: dict[str, str] = {}
        self._settled: set[str] = set()
        self._heap = [(0.0, start)]

    def to(self, goal: str) -> tuple[tuple[str, ...], float]:
        """Shortest path and its length in mm; RoutingError if there is none."""
        while goal not in self._settled:
            if not self._heap:
                raise RoutingError(f"no path from {self._start} to {goal}")
            self._settle(*heapq.heappop(self._heap))
        path = [goal]
        while path[-1] != self._start:
            path.append(self._prev[path[-1]])
        return tuple(reversed(path)), self._best[goal]

    def _settle(self, distance: float, node: str) -> None:
        if node in self._settled:
            return
        self._settled.add(node)
        best = self._best
        for neighbor, weight in self._adj.get(node, ()):
            through = distance + weight
            if through < best.get(neighbor, math.inf):
                best[neighbor] = through
                self._prev[neighbor] = node
                heapq.heappush(self._heap, (through, neighbor))


class PathRouter:
    """Shortest paths by policy: which kinds of edges a path may use depends on what travels."""

    def __init__(self, graph: Graph) -> None:
        edges = list(graph.edges)
        self._adj_all = _adjacency(edges)
        self._adj = _adjacency(edges, {"command"})
        self._adj_mcpu_dma = _adjacency(edges, _MCPU_DMA_EXCLUDE)
        self._adj_local = _adjacency(edges, _UCIE_KINDS)
        # The exclusion holds within a cube too: M_CPU DMA never crosses a PE pipeline.
        self._adj_mcpu_local = _adjacency(edges, _UCIE_KINDS | _MCPU_DMA_EXCLUDE)
        # (policy, same cube) -> graph; a policy that does not ask about the cube has one twice.
        self._graphs: dict[tuple[Policy, bool], Adjacency] = {
            ("pe", True): self._adj_local,
            ("pe", False): self._adj,
            ("mcpu_dma", True): self._adj_mcpu_local,
            ("mcpu_dma", False): self._adj_mcpu_dma,
            ("memory", True): self._adj_mcpu_dma,
            ("memory", False): self._adj_mcpu_dma,
            ("node", True): self._adj_all,
            ("node", False): self._adj_all,
        }
        self._searches: dict[tuple[Policy, bool, str], _Search] = {}
        self._paths: dict[tuple[Policy, str, str], tuple[tuple[str, ...], float]] = {}

    def find_path(self, src_pe: str, dst_node: str) -> list[str]:
        """PE DMA: from the pe_dma of PE prefix ``src_pe``; within a cube over its mesh only."""
        return self.find_path_with_distance(src_pe, dst_node)[0]

    def find_path_with_distance(self, src_pe: str, dst_node: str) -> tuple[list[str], float]:
        """``find_path`` and the routing distance in mm."""
        path, distance = self._find("pe", f"{src_pe}.pe_dma", dst_node)
        return list(path), distance

    def find_mcpu_dma_path(self, m_cpu_id: str, dst_hbm_id: str) -> list[str]:
        """M_CPU DMA: never through a PE pipeline; within a cube over its mesh only."""
        return list(self.route("mcpu_dma", m_cpu_id, dst_hbm_id))

    def find_memory_path(self, src: str, dst: str) -> list[str]:
        """Host access to memory, ``pcie_ep`` to ``hbm_ctrl``: never through a PE pipeline."""
        return list(self.route("memory", src, dst))

    def find_node_path(self, src: str, dst: str) -> list[str]:
        """Between any two nodes, command edges included."""
        return list(self.route("node", src, dst))

    def route(self, policy: Policy, src: str, dst: str) -> tuple[str, ...]:
        """The cached path itself, for who asks often; ``src`` is a node id under every policy."""
        return self._find(policy, src, dst)[0]

    def _find(self, policy: Policy, src: str, dst: str) -> tuple[tuple[str, ...], float]:
        found = self._paths.get((policy, src, dst))
        if found is None:
            local = _same_cube(src, dst)
            search = self._searches.get((policy, local, src))
            if search is None:
                search = _Search(self._graphs[policy, local], src)
                self._searches[policy, local, src] = search
            found = self._paths[policy, src, dst] = search.to(dst)
        return found

    def _dijkstra(self, start: str, goal: str) -> list[str]:
        return self._run_dijkstra(self._adj, start, goal)

    def _dijkstra_with_dist(self, start: str, goal: str) -> tuple[list[str], float]:
        return self._run_dijkstra_with_dist(self._adj, start, goal)

    def _run_dijkstra(self, adj: Adjacency, start: str, goal: str) -> list[str]:
        return self._run_dijkstra_with_dist(adj, start, goal)[0]

    def _run_dijkstra_with_dist(
        self, adj: Adjacency, start: str, goal: str
    ) -> tuple[list[str], float]:
        path, distance = _Search(adj, start).to(goal)
        return list(path), distance


def _adjacency(
    edges: list[_Edge], exclude: Iterable[str] = ()
) -> defaultdict[str, list[tuple[str, float]]]:
    excluded = frozenset(exclude)
    adj: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for edge in edges:
        if edge.kind not in excluded:
            adj[edge.src].append((edge.dst, edge.routing_weight_mm or edge.distance_mm))
    return adj


def _same_cube(src: str, dst: str) -> bool:
    sip, cube, *_ = [*src.split(".", 2), "", ""]
    return cube.startswith("cube") and dst.startswith(f"{sip}.{cube}.")

"""Names of nodes, addresses to nodes, and paths between nodes (ADR-0051).

The one owner of the naming convention, of which edge kinds a routing policy may use, and of how an
HBM offset becomes a PE. It knows the graph by its shape only, so the builder takes its names here.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Protocol

from kernbench.common.phys_addr import PhysAddr, UnitType
from kernbench.errors import RoutingError

__all__ = ["AddressResolver", "PathRouter", "RoutingError"]

Adjacency = defaultdict[str, list[tuple[str, float]]]
Policy = Literal["pe", "mcpu_dma", "memory", "node"]

_SEARCHES = 64  # kept to go on from: each holds what it has seen of the machine
_MCPU_DMA_EXCLUDE = frozenset({"pe_internal", "pe_to_router"})
_UCIE_KINDS = frozenset(
    {"ucie_internal", "ucie_mesh", "io_to_cube", "cube_to_io"}
    | {
        "ucie_conn_to_router",
        "router_to_ucie_conn",
        "ucie_conn_to_noc",
        "noc_to_ucie_conn",
    }
)

# The names, each made from what stands beside it; sip, cube and pe are numbers.
Name = Callable[..., str]
pe_prefix: Name = "sip{}.cube{}.pe{}".format  # sip, cube, pe: what ``find_path`` takes
pe_node: Name = "sip{}.cube{}.pe{}.{}".format  # sip, cube, pe, engine such as "pe_dma"
cube_node: Name = "sip{}.cube{}.{}".format  # sip, cube, "m_cpu" or "sram"
hbm_node: Name = (
    "sip{}.cube{}.hbm_ctrl.pe{}".format
)  # sip, cube, the pe whose slice it is
router_node: Name = (
    "sip{}.cube{}.r{}c{}".format
)  # sip, cube, row from north, column from west
ucie_node: Name = "sip{}.cube{}.ucie_{}".format  # sip, cube, side: N, S, E or W
ucie_conn_node: Name = (
    "sip{}.cube{}.ucie_{}.conn{}".format
)  # ... and k, from the west or north
io_node: Name = "sip{}.{}.{}".format  # sip, "io0", "pcie_ep" or "io_cpu" or "io_noc"
io_conn_node: Name = (
    "sip{}.{}.ucie.conn{}".format
)  # sip, "io0", k: to cube k of the top row
switch_node: Name = "fabric.switch{}".format  # i: between the SIPs


class Graph(Protocol):
    """What routing needs: node ids, ``Edge`` rows, and ``cube.memory_map`` of the spec."""

    @property
    def nodes(self) -> Mapping[str, object]: ...
    @property
    def edges(self) -> Iterable[Any]: ...
    @property
    def spec(self) -> Any: ...


def local_name(node_id: str, in_cube: bool) -> str:
    """The name of a node within its cube, or else within its SIP or the fabric."""
    return node_id.split(".", 2 if in_cube else 1)[-1]


class AddressResolver:
    """From an address, or from what a node is, to its id."""

    def __init__(self, graph: Graph) -> None:
        self._node_ids = set(graph.nodes)
        memory = graph.spec.cube.memory_map
        self._hbm_slice_bytes = (
            memory.hbm_total_gb * (1 << 30) // memory.slices_per_cube
        )

    def resolve(self, addr: PhysAddr) -> str:
        """The node that owns ``addr``; RoutingError if it maps to none."""
        sip, cube = addr.sip_id, addr.die_id
        if addr.kind == "hbm":
            return self._known(
                hbm_node(sip, cube, addr.hbm_offset // self._hbm_slice_bytes)
            )
        if addr.kind != "pe_resource":
            raise RoutingError(
                f"unsupported address kind {addr.kind!r}; valid: hbm, pe_resource"
            )
        if addr.unit_type == UnitType.PE:
            return self._known(pe_node(sip, cube, addr.pe_id, "pe_tcm"))
        if addr.unit_type in (UnitType.SRAM, UnitType.MCPU):
            name = "sram" if addr.unit_type == UnitType.SRAM else "m_cpu"
            return self._known(cube_node(sip, cube, name))
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
        path = [goal]
        while path[-1] != self._start:
            path.append(self._prev[path[-1]])
        return tuple(reversed(path)), best[goal]


class PathRouter:
    """Shortest paths by policy: which kinds of edges a path may use depends on what travels."""

    def __init__(self, graph: Graph) -> None:
        edges = list(graph.edges)
        self._adj_all = _adjacency(edges)
        self._adj = _adjacency(edges, {"command"})
        self._adj_mcpu_dma = _adjacency(edges, _MCPU_DMA_EXCLUDE)
        self._adj_local = _adjacency(edges, _UCIE_KINDS)
        # The exclusion holds within a cube too: M_CPU DMA never crosses a PE pipeline.
        mcpu_local = _adjacency(edges, _UCIE_KINDS | _MCPU_DMA_EXCLUDE)
        # policy -> the graph between cubes, and the one within a cube
        self._graphs: dict[Policy, tuple[Adjacency, Adjacency]] = {
            "pe": (self._adj, self._adj_local),
            "mcpu_dma": (self._adj_mcpu_dma, mcpu_local),
            "memory": (self._adj_mcpu_dma, self._adj_mcpu_dma),
            "node": (self._adj_all, self._adj_all),
        }
        self._searches: dict[tuple[Policy, bool, str], _Search] = {}
        self._paths: dict[tuple[Policy, str, str], tuple[tuple[str, ...], float]] = {}

    def find_path(self, src_pe: str, dst_node: str) -> list[str]:
        """PE DMA: from the pe_dma of PE prefix ``src_pe``; within a cube over its mesh only."""
        return self.find_path_with_distance(src_pe, dst_node)[0]

    def find_path_with_distance(
        self, src_pe: str, dst_node: str
    ) -> tuple[list[str], float]:
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

    def _find(
        self, policy: Policy, src: str, dst: str
    ) -> tuple[tuple[str, ...], float]:
        found = self._paths.get((policy, src, dst))
        if found is None:
            local = _same_cube(src, dst)
            search = self._searches.get((policy, local, src))
            if search is None:
                if len(self._searches) == _SEARCHES:
                    del self._searches[next(iter(self._searches))]
                search = _Search(self._graphs[policy][local], src)
                self._searches[policy, local, src] = search
            found = self._paths[policy, src, dst] = search.to(dst)
        return found

    def _dijkstra(self, start: str, goal: str) -> list[str]:
        return self._dijkstra_with_dist(start, goal)[0]

    def _dijkstra_with_dist(self, start: str, goal: str) -> tuple[list[str], float]:
        return self._run_dijkstra_with_dist(self._adj, start, goal)

    def _run_dijkstra_with_dist(
        self, adj: Adjacency, start: str, goal: str
    ) -> tuple[list[str], float]:
        path, distance = _Search(adj, start).to(goal)
        return list(path), distance


def _adjacency(edges: Iterable[Any], exclude: Collection[str] = ()) -> Adjacency:
    adj: Adjacency = defaultdict(list)
    for edge in edges:
        if edge.kind not in exclude:
            adj[edge.src].append((edge.dst, edge.routing_weight_mm or edge.distance_mm))
    return adj


def _same_cube(src: str, dst: str) -> bool:
    sip, cube, *_ = [*src.split(".", 2), "", ""]
    return cube.startswith("cube") and dst.startswith(f"{sip}.{cube}.")

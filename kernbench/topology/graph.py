"""The machine as an immutable graph: nodes with a place, edges with a kind, and their spec.

Owns the frozen result of the builder. Knows nothing of time, routes or components.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kernbench.errors import RoutingError
from kernbench.topology.spec import TopologySpec

NOWHERE = -1  # sip, cube or pe of a node that belongs to none
Place = tuple[int, int, int]  # sip, cube, pe


@dataclass(frozen=True, slots=True)
class Node:
    """One component: ``engine`` is its name within its parent ("pe_gemm", "r2c3", "ucie_N.conn0").

    ``x_mm, y_mm`` is its place on the whole machine; ``overhead_ns`` is what a passing header pays.
    """

    id: str
    type: str
    sip: int
    cube: int
    pe: int
    engine: str
    x_mm: float
    y_mm: float
    overhead_ns: float
    impl: str

    @property
    def place(self) -> Place:
        """Its sip, cube and pe."""
        return self.sip, self.cube, self.pe


@dataclass(frozen=True, slots=True)
class Edge:
    """One directed link; bandwidth in GB/s = bytes a ns; a routing weight of 0: the distance."""

    src: str
    dst: str
    kind: str
    distance_mm: float
    routing_weight_mm: float
    bandwidth_gbs: float


@dataclass(frozen=True)
class TopologyGraph:
    """Nodes by id, edges in build order, the spec; indexes are derived on first use."""

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    spec: TopologySpec

    @cached_property
    def _by_place(self) -> Mapping[tuple[int, int, int, str], str]:
        return {(*n.place, n.engine): n.id for n in self.nodes.values()}

    @cached_property
    def edge_by_ends(self) -> Mapping[tuple[str, str], Edge]:
        """The edge of each (src, dst)."""
        return {(e.src, e.dst): e for e in self.edges}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the spec: equal machines have equal hashes."""
        return hashlib.sha256(repr(self.spec).encode()).hexdigest()

    def at(self, sip: int, cube: int, pe: int, engine: str) -> str:
        """The id of the node of that name at that place; RoutingError if there is none."""
        found = self._by_place.get((sip, cube, pe, engine))
        if found is None:
            raise RoutingError(
                f"no {engine} at sip {sip}, cube {cube}, pe {pe} in this topology"
            )
        return found

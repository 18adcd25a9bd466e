"""The machine as an immutable graph: nodes with a place, edges with a kind, its spec.

Owns the frozen result of the builder. Knows nothing of time, routes or components.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kernbench.errors import RoutingError
from kernbench.topology.spec import TopologySpec

NOWHERE = -1
"""The sip, cube or pe of a node that belongs to none."""

Place = tuple[int, int, int]
"""A SIP, a cube of it, and a PE of that."""


@dataclass(frozen=True, slots=True)
class Node:
    """One component of the machine.

    ``type`` is its kind, a name of ``NODE_KINDS``. ``engine`` is its name within its
    parent ("pe_gemm", "r2c3", "ucie_N.conn0"). ``x_mm`` and ``y_mm`` are its place on
    the whole machine, from the north-west. ``overhead_ns`` is what a passing header
    pays, and ``impl`` the component that models it.
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
    """One directed link between two nodes.

    Its ``bandwidth_gbs`` is in GB/s, which is bytes a ns. A ``routing_weight_mm`` of 0
    means that paths are chosen by its ``distance_mm``.
    """

    src: str
    dst: str
    kind: str
    distance_mm: float
    routing_weight_mm: float
    bandwidth_gbs: float


@dataclass(frozen=True)
class TopologyGraph:
    """Nodes by id, edges in build order, and the spec that they were made from.

    What is looked up in them is indexed on first use.
    """

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    spec: TopologySpec

    @cached_property
    def _by_place(self) -> Mapping[tuple[int, int, int, str], str]:
        return {(*node.place, node.engine): node.id for node in self.nodes.values()}

    @cached_property
    def edge_by_ends(self) -> Mapping[tuple[str, str], Edge]:
        """The edge of each (src, dst)."""
        return {(edge.src, edge.dst): edge for edge in self.edges}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the spec, in hex: equal machines have equal hashes."""
        return hashlib.sha256(repr(self.spec).encode()).hexdigest()

    def at(self, sip: int, cube: int, pe: int, engine: str) -> str:
        """The id of the node of that name at that place; RoutingError if none is."""
        found = self._by_place.get((sip, cube, pe, engine))
        if found is None:
            raise RoutingError(
                f"no {engine} at sip {sip}, cube {cube}, pe {pe} in this topology"
            )
        return found

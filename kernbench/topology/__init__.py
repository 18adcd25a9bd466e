"""The machine: its spec, its graph, and the builder between the two."""

from kernbench.topology.builder import build_topology, load_topology
from kernbench.topology.graph import NOWHERE, Edge, Node, TopologyGraph
from kernbench.topology.spec import TopologySpec, check_spec, load_spec

__all__ = [
    "NOWHERE",
    "Edge",
    "Node",
    "TopologyGraph",
    "TopologySpec",
    "build_topology",
    "check_spec",
    "load_spec",
    "load_topology",
]

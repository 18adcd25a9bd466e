"""The machine: its spec, its graph, and the builder between the two."""

from kernbench.topology.builder import build_topology, load_topology
from kernbench.topology.graph import TopologyGraph
from kernbench.topology.spec import TopologySpec, load_spec

__all__ = [
    "TopologyGraph",
    "TopologySpec",
    "build_topology",
    "load_spec",
    "load_topology",
]

"""The machine: its spec, its graph, and the builder between the two."""

from kernbench.topology.builder import build_topology, load_topology, topology_parts
from kernbench.topology.graph import TopologyGraph
from kernbench.topology.spec import (
    TopologySpec,
    differing_fields,
    load_spec,
    recorded_spec,
)

__all__ = [
    "TopologyGraph",
    "TopologySpec",
    "build_topology",
    "differing_fields",
    "load_spec",
    "load_topology",
    "recorded_spec",
    "topology_parts",
]

"""The links of a trace's machine, and those of the same machine with other numbers.

To build a machine takes 35 ms, and a profile asks for some forty. What a link's bytes
and headers take is the same for all links of one class: of one kind, between nodes of
the same two types. So a part of the machine is built, of one SIP with a few cubes,
which has all classes, and its numbers are those of all links of a class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.exact_time import exact_times
from kernbench.topology import build_topology, topology_parts
from kernbench.topology.graph import Edge, Node
from kernbench.topology.spec import TopologySpec
from kernbench.trace import Trace
from kernbench.trace.hops import header_times

_Class: TypeAlias = tuple[str, str, str]
"""The kind of a link, the type of the node that it leaves, and that it enters."""

_MOST_TOLD = 256
"""Of so many changed machines what a part tells is kept: a profile asks for some forty,
and all traces of one machine for the same."""

_CUBES_ACROSS = 2
"""So many cubes in a row and in a column have all classes of links between cubes."""


class LinkTimes(NamedTuple):
    """By link, and last of one that is not known: bytes a ns, and ns of a header.

    A header's time is that over the wire and past the node behind it.
    """

    speed: Floats
    header: Floats


def recorded_links(trace: Trace) -> LinkTimes:
    """The links as a trace has recorded them."""
    speed = np.append(trace.edges.bandwidth_gbs[:], np.inf)
    return LinkTimes(speed, np.append(header_times(trace), 0.0))


def links_with(trace: Trace, spec: TopologySpec) -> LinkTimes | None:
    """The links of the same machine with the numbers of ``spec``, by building it.

    None if that machine has other nodes or links.
    """
    graph = build_topology(spec)
    index = trace.node_index
    edges = graph.edges
    src = np.array([index.get(edge.src, -1) for edge in edges])
    dst = np.array([index.get(edge.dst, -1) for edge in edges])
    if not np.array_equal(src, trace.edges.src[:]):
        return None
    if not np.array_equal(dst, trace.edges.dst[:]):
        return None
    speed = np.array([edge.bandwidth_gbs for edge in edges])
    wire = np.array([edge.distance_mm for edge in edges]) * spec.system.ns_per_mm
    overhead = np.array([graph.nodes[edge.dst].overhead_ns for edge in edges])
    header = exact_times(wire + overhead)
    return LinkTimes(np.append(speed, np.inf), np.append(header, 0.0))


class ChangedLinks:
    """The links of a trace's machine with some other numbers of its spec.

    The answers are those of ``links_with``, which is asked where a part of the machine
    does not tell: where other lengths or nodes come of a change, and for a trace whose
    links are not those of its spec.
    """

    def __init__(self, trace: Trace, recorded: TopologySpec) -> None:
        self._trace = trace
        self._recorded = recorded

    def with_(self, spec: TopologySpec) -> LinkTimes | None:
        """The links with the numbers of ``spec``; None if it has others."""
        is_as_large = spec.system.sips == self._recorded.system.sips
        is_as_large &= spec.sip.cube_mesh == self._recorded.sip.cube_mesh
        if not is_as_large or not self._is_by_class:
            return links_with(self._trace, spec)
        numbers = _told(self._recorded, spec)
        if numbers is None:
            return links_with(self._trace, spec)
        return self._by_class(numbers, spec)

    @cached_property
    def _is_by_class(self) -> bool:
        """Whether the recorded links have the numbers of their classes."""
        numbers = _told(self._recorded, self._recorded)
        if numbers is None or not numbers.speed.keys() >= {*self._classes}:
            return False
        recorded = recorded_links(self._trace)
        told = self._by_class(numbers, self._recorded)
        return all(map(np.array_equal, told, recorded))

    @cached_property
    def _edge_classes(self) -> tuple[list[_Class], Ints]:
        """The classes that the trace has, and which of them each link is of."""
        edges = self._trace.edges
        types = self._trace.nodes.type
        ends = zip(edges.src[:].tolist(), edges.dst[:].tolist(), strict=True)
        found = dict[_Class, int]()
        which = [
            found.setdefault((kind, types[src], types[dst]), len(found))
            for kind, (src, dst) in zip(edges.kind, ends, strict=True)
        ]
        return [*found], np.array(which, np.int64)

    @property
    def _classes(self) -> list[_Class]:
        return self._edge_classes[0]

    def _by_class(self, numbers: _Numbers, spec: TopologySpec) -> LinkTimes:
        """The links if each has the numbers of its class, and its recorded length."""
        classes, which = self._edge_classes
        speed = np.array([numbers.speed[of] for of in classes])[which]
        overhead = np.array([numbers.overhead[to] for _, _, to in classes])[which]
        wire = self._trace.edges.distance_mm[:] * spec.system.ns_per_mm
        header = exact_times(wire + overhead)
        return LinkTimes(np.append(speed, np.inf), np.append(header, 0.0))


class _Numbers(NamedTuple):
    """The bytes a ns of each class of links, and the overhead of each type of nodes."""

    speed: Mapping[_Class, float]
    overhead: Mapping[str, float]

    @classmethod
    def of(cls, part: _Part) -> _Numbers | None:
        """Those of a machine; None if two of one class or type have others, or a link
        has no bandwidth.
        """
        speed: dict[_Class, float] = {}
        overhead: dict[str, float] = {}
        nodes = part.nodes
        for node in nodes.values():
            if overhead.setdefault(node.type, node.overhead_ns) != node.overhead_ns:
                return None
        for edge in part.edges:
            of = (edge.kind, nodes[edge.src].type, nodes[edge.dst].type)
            if speed.setdefault(of, edge.bandwidth_gbs) != edge.bandwidth_gbs:
                return None
        if min(speed.values()) <= 0:
            return None
        return cls(speed, overhead)


class _Part(NamedTuple):
    """A part of a machine: nodes by name, and links."""

    nodes: Mapping[str, Node]
    edges: Sequence[Edge]


def _part_of(spec: TopologySpec) -> _Part:
    """One SIP of a machine, with as few cubes as have all classes of links.

    Its spec was checked. Its graph is not: it is compared with that of the recorded
    machine, and one that is another is built whole.
    """
    grid = spec.sip.cube_mesh
    across = min(grid.w, max(_CUBES_ACROSS, spec.sip.io.count))
    few = replace(grid, w=across, h=min(grid.h, _CUBES_ACROSS))
    system = replace(spec.system, sips=replace(spec.system.sips, count=1))
    parts = topology_parts(
        replace(spec, system=system, sip=replace(spec.sip, cube_mesh=few))
    )
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    for part in parts:
        nodes |= part.nodes
        edges += part.edges
    return _Part(nodes, edges)


@lru_cache(maxsize=_MOST_TOLD)
def _told(recorded: TopologySpec, spec: TopologySpec) -> _Numbers | None:
    """What a part of the machine ``spec`` tells; None if that is not enough, or if it
    has other links or lengths than the same part of the recorded machine.
    """
    part = _part_of(spec)
    if _shape(part) != _recorded_shape(recorded):
        return None
    return _Numbers.of(part)


def _shape(part: _Part) -> list[tuple[str, str, str, float]]:
    """The links of a machine and their lengths."""
    return [(edge.src, edge.dst, edge.kind, edge.distance_mm) for edge in part.edges]


@lru_cache(maxsize=4)
def _recorded_shape(spec: TopologySpec) -> list[tuple[str, str, str, float]]:
    """The links of a part of a recorded machine, of the last few that were asked."""
    return _shape(_part_of(spec))

"""The machine of a trace as boxes and lines: topology/views.py on a trace's columns."""

from __future__ import annotations

import numpy as np

from kernbench.topology.views import Box, View, project, way
from kernbench.trace import Trace
from kernbench.trace.machine import edge_rows, node_rows

__all__ = ["Box", "View", "projection", "way"]


def projection(trace: Trace, place: tuple[int, ...] = (), narrow: bool = False) -> View:
    """The inside of a part of the machine, drawn from the trace's own topology.

    ``place`` is () for the system, (sip,), (sip, cube) or (sip, cube, pe). The boxes
    name their nodes by index, as ``Trace.edges`` does, so that routes and loads join.
    Those of a ``narrow`` one stand as near to each other as they can.
    """
    nodes = trace.nodes
    edges = trace.edges
    inside = np.ones(len(nodes.type), bool)
    for column, number in zip((nodes.sip, nodes.cube, nodes.pe), place, strict=False):
        inside &= column == number
    links = np.flatnonzero(inside[edges.src] & inside[edges.dst])
    boxed = node_rows(nodes, np.flatnonzero(inside))
    return project(boxed, edge_rows(edges, links), place, narrow)

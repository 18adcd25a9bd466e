"""The machine of a trace as boxes and lines: topology/views.py on a trace's columns."""

from __future__ import annotations

import numpy as np

from kernbench.topology.views import Box, View, project, way
from kernbench.trace import Trace
from kernbench.trace.machine import edge_rows, node_rows

__all__ = ["Box", "View", "projection", "way"]


def projection(trace: Trace, place: tuple[int, ...] = ()) -> View:
    """The inside of ``place``: () the system, (sip,), (sip, cube), (sip, cube, pe).

    ``nodes`` of a box are node indices, as in ``Trace.edges``, so that routes and loads join.
    """
    n, e, inside = trace.nodes, trace.edges, np.ones(len(trace.nodes.type), bool)
    for column, number in zip((n.sip, n.cube, n.pe), place, strict=False):
        inside &= column == number
    links = np.flatnonzero(inside[e.src] & inside[e.dst])
    nodes = node_rows(n, np.flatnonzero(inside))
    return project(nodes, edge_rows(e, links), place)

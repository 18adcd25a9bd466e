"""The machine of a trace as boxes and lines: topology/views.py on a trace's columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.topology.views import Box, View, project, way
from kernbench.trace import Trace

__all__ = ["Box", "View", "projection", "way"]


class _Node(NamedTuple):
    id: int
    type: str
    sip: int
    cube: int
    pe: int
    engine: str
    x_mm: float
    y_mm: float


class _Edge(NamedTuple):
    src: int
    dst: int
    kind: str


def projection(trace: Trace, place: tuple[int, ...] = ()) -> View:
    """The inside of ``place``: () the system, (sip,), (sip, cube), (sip, cube, pe).

    ``nodes`` of a box are node indices, as in ``Trace.edges``, so that routes and loads join.
    """
    n, e, inside = trace.nodes, trace.edges, np.ones(len(trace.nodes.type), bool)
    for column, number in zip((n.sip, n.cube, n.pe), place, strict=False):
        inside &= column == number
    rows = np.flatnonzero(inside).tolist()
    where = (column[inside].tolist() for column in (n.sip, n.cube, n.pe))
    at = (column[inside].tolist() for column in (n.x_mm, n.y_mm))
    names = [n.type[i] for i in rows], *where, [n.engine[i] for i in rows]
    links = np.flatnonzero(inside[e.src] & inside[e.dst])
    kinds = [e.kind[i] for i in links.tolist()]
    edges = map(_Edge, e.src[links].tolist(), e.dst[links].tolist(), kinds)
    return project(map(_Node, rows, *names, *at), edges, place)

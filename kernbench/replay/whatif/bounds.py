"""The most that a scenario can save: what it saves on the longest path of the run.

Whatever is faster, a moment never comes before its cause and what the edge between them
takes. So a run takes at least as long as the edges of its longest path take then, and
saves at most what they save. Of a scenario that cannot save much by that, nobody needs
to know when each moment would come.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Floats, Ints, runs_begin
from kernbench.common.progress import Progress, computed_beside
from kernbench.replay.whatif.graph import Graph

_NODES = 1 << 6
"""Nodes that Python goes back over between two calls of progress, 2 ms."""

_ROUNDING_NS = 1e-3
"""More than what sums over a path can be off by."""


class LongestPath(NamedTuple):
    """Edges that follow each other up to the last moment of a run; ``took`` is what
    each took, ns.

    ``weight`` and ``other`` are classes: an edge into a tile in the array takes what
    one of them says, others what both do, as they are the same.
    """

    took: Floats
    weight: Ints
    other: Ints
    line: Ints

    def most_saved(self, weight: Floats, line: int, factor: float) -> float:
        """Ns by which the run ends sooner at most with other weights by class, and if
        the steps of a line take ``factor`` of their weight; line -1: none.
        """
        takes = np.minimum(weight[self.weight], weight[self.other])
        if line >= 0:
            takes = np.where(self.line == line, takes * factor, takes)
        return float(np.sum(self.took - takes)) + _ROUNDING_NS


def longest_path(graph: Graph, weight: Floats, progress: Progress) -> LongestPath:
    """The path that ends with the run; ``weight`` is that of the recorded machine."""
    edges = np.array(_edges_back(graph, weight, progress), np.int64)
    number = graph.weight[edges].astype(np.int64)
    is_tile = number < 0
    tile = -1 - number[is_tile]
    one = number.copy()
    other = number.copy()
    one[is_tile] = graph.streams[tile]
    other[is_tile] = graph.cold[tile]
    return LongestPath(_took(graph, weight, edges), one, other, graph.line[edges])


def _took(graph: Graph, weight: Floats, edges: Ints) -> Floats:
    """What some edges took in the run, ns."""
    number = graph.weight[edges].astype(np.int64)
    took = weight[np.maximum(number, 0)]
    is_tile = number < 0
    tile = -1 - number[is_tile]
    came = graph.times[graph.cause[edges[is_tile]]]
    is_behind = came <= graph.times[graph.behind[tile]]
    took[is_tile] = weight[np.where(is_behind, graph.streams[tile], graph.cold[tile])]
    return took


def _edges_back(graph: Graph, weight: Floats, progress: Progress) -> list[int]:
    """The edges of the path, from the last one back."""
    if not len(graph.last) or not len(graph.effect):
        return []
    find = partial(_edges_into, graph)
    run_of_node, bounds = computed_beside(find, progress, 0.0)
    node = int(graph.last[np.argmax(graph.times[graph.last])])
    end = max(float(graph.times[node]), 1e-12)
    found: list[int] = []
    while run_of_node[node] >= 0:
        if len(found) % _NODES == 0:
            progress(1.0 - float(graph.times[node]) / end)
        run = int(run_of_node[node])
        into = np.arange(bounds[run], bounds[run + 1])
        came = graph.times[graph.cause[into]] + _took(graph, weight, into)
        edge = int(into[np.argmax(came)])
        found.append(edge)
        node = int(graph.cause[edge])
    return found


def _edges_into(graph: Graph) -> tuple[Ints, Ints]:
    """By node the number of its run of edges, -1: none; and the bounds of all runs."""
    is_first = runs_begin(graph.effect)
    bounds = np.append(np.flatnonzero(is_first), len(graph.effect))
    run_of_node = np.full(graph.nodes, -1, np.int64)
    run_of_node[graph.effect[bounds[:-1]]] = np.arange(len(bounds) - 1)
    return run_of_node, bounds

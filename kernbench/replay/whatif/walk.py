"""When every moment comes if edges have other weights: the walk over the graph.

A moment comes when the last of its causes lets it, and then its rest later. The plain
walk says just that, edge by edge, for one machine. The fast one does the same for many
machines at once, level by level of the graph, and gives the same to the last bit. So
does the third, for one machine on a graph so small that to work on levels costs more
than what there is to do.
"""

from __future__ import annotations

from array import array
from functools import partial
from threading import Event
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.progress import (
    Cancelled,
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.replay.whatif.graph import Graph

_EDGES = 1 << 12
"""Edges that Python works on between two calls of progress, 1 ms."""

_AT_ONCE = 1 << 13
"""Times that a level may have for several levels to be worked on between two calls."""


_FEW_EDGES = 1 << 15
"""A graph of at most so many edges is walked edge by edge, if it is for one machine."""

_NOT_LAST = -1


def walk_plain(graph: Graph, weight: Floats, progress: Progress) -> Floats:
    """By node when it comes, ns; ``weight`` is by class."""
    times = [-np.inf] * graph.nodes
    rest = graph.rest.tolist()
    by_class = weight.tolist()
    behind = graph.behind.tolist()
    cold = weight[graph.cold].tolist()
    streams = weight[graph.streams].tolist()
    for node in graph.roots.tolist():
        times[node] = float(graph.times[node])
    last = -1
    latest = -np.inf
    for part in parts(len(graph.cause), progress, _EDGES):
        edges = zip(
            graph.cause[part].tolist(),
            graph.effect[part].tolist(),
            graph.weight[part].tolist(),
            strict=True,
        )
        for cause, effect, number in edges:
            if effect != last:
                if last >= 0:
                    times[last] = latest + rest[last]
                last = effect
                latest = -np.inf
            time = times[cause]
            if number >= 0:
                time += by_class[number]
            elif time <= times[behind[-1 - number]]:
                time += streams[-1 - number]
            else:
                time += cold[-1 - number]
            if time > latest:
                latest = time
    if last >= 0:
        times[last] = latest + rest[last]
    return np.array(times)


class Scenarios(NamedTuple):
    """What is different, a column each: the weight by class, and the speed of lines.

    ``line`` is a kernel line whose steps take ``factor`` of their weight; -1: none.
    """

    weight: Floats
    line: Ints
    factor: Floats


class Late(NamedTuple):
    """A node that comes so many ns later than its edges and its rest say."""

    node: int
    ns: float


class _Few:
    """The edges of a small graph, ready to be walked one by one for one machine.

    By edge ``_effect`` is the node that it leads to if it is the last one into that,
    _NOT_LAST for the others, and -2 - i for the one edge of tile i in the array.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._cause = graph.cause.tolist()
        effect = graph.effect.astype(np.int64)
        effect[:-1][effect[1:] == effect[:-1]] = _NOT_LAST
        is_tile = graph.weight < 0
        effect[is_tile] = graph.weight[is_tile] - 1
        self._effect = effect.tolist()
        self._class = np.maximum(graph.weight, 0)
        self._behind = graph.behind.tolist()
        ends = np.zeros(len(graph.behind), np.int64)
        ends[-1 - graph.weight[is_tile]] = graph.effect[is_tile]
        self._ends = ends.tolist()

    def walk(
        self, weight: Floats, progress: Progress, without: Array | None, rest: Floats
    ) -> Floats:
        """By node when it comes, ns; ``rest`` is by node, also of roots."""
        graph = self._graph
        behind = self._behind
        ends = self._ends
        cold = weight[graph.cold].tolist()
        streams = weight[graph.streams].tolist()
        took = weight[self._class]
        if without is not None:
            took[without] = -np.inf
        left = rest.tolist()
        found = np.zeros(graph.nodes)
        found[graph.roots] = graph.times[graph.roots] + rest[graph.roots]
        times = found.tolist()
        latest = -np.inf
        weights = took.tolist()
        for part in parts(len(weights), progress, _EDGES):
            edges = zip(
                self._cause[part], weights[part], self._effect[part], strict=True
            )
            for cause, ns, effect in edges:
                time = times[cause] + ns
                if time > latest:
                    latest = time
                if effect == _NOT_LAST:
                    continue
                if effect < 0:
                    tile = -2 - effect
                    start = times[cause]
                    effect = ends[tile]
                    latest = start + cold[tile]
                    if start <= times[behind[tile]]:
                        latest = start + streams[tile]
                times[effect] = latest + left[effect]
                latest = -np.inf
        return np.array(times)


class _Level(NamedTuple):
    """Nodes whose causes are all in the levels before: places ``nodes`` of the order.

    ``edges`` are those into the plain ones, which come first, ``first`` says with which
    of them each node's begin. ``tiles`` are tiles in the array, the last of the nodes.
    """

    nodes: slice
    edges: slice
    first: Array
    tiles: slice


class Levels:
    """A graph in the order of its levels, ready for walks.

    ``place`` is by node where it is in that order. Its edges are those of the graph,
    between places.
    """

    def __init__(self, graph: Graph, progress: Progress) -> None:
        level = _levels(graph, stage(progress, 0.0, 0.6))
        prepared = computed_beside(partial(self._order, graph, level), progress, 0.6)
        self._levels = prepared
        self._few: _Few | None = None
        if len(graph.cause) <= _FEW_EDGES:
            self._few = _Few(graph)
            self._rest_by_node = graph.rest

    def _order(self, graph: Graph, level: Ints) -> list[_Level]:
        is_tile = graph.weight < 0
        has_tile = np.zeros(graph.nodes, np.bool_)
        has_tile[graph.effect[is_tile]] = True
        order = np.lexsort((has_tile, level)).astype(np.int32)
        place = np.empty(graph.nodes, np.int32)
        place[order] = np.arange(graph.nodes, dtype=np.int32)
        self.place = place
        self._rest = graph.rest[order]
        self._roots = place[graph.roots]
        self._root_times = graph.times[graph.roots]

        effect = place[graph.effect]
        by_effect = np.argsort(effect, kind="stable")
        plain = by_effect[~is_tile[by_effect]]
        tiles = by_effect[is_tile[by_effect]]
        effect_plain = effect[plain]
        self._at = np.empty(len(effect), np.int32)
        self._at[plain] = np.arange(len(plain), dtype=np.int32)
        self._cause = place[graph.cause[plain]]
        self._class = graph.weight[plain]
        self._line = graph.line[plain]
        number = -1 - graph.weight[tiles]
        self._tile_cause = place[graph.cause[tiles]]
        self._tile_behind = place[graph.behind[number]]
        self._tile_cold = graph.cold[number]
        self._tile_streams = graph.streams[number]
        self._tile_line = graph.line[tiles]

        sizes = np.bincount(level)
        node_ends = np.cumsum(sizes)
        tile_counts = np.bincount(level[has_tile], minlength=len(sizes))
        tile_ends = np.cumsum(tile_counts)
        edge_ends = np.searchsorted(effect_plain, node_ends)
        is_first = np.diff(effect_plain, prepend=-1) != 0
        firsts = np.flatnonzero(is_first).astype(np.int64)
        first_ends = np.searchsorted(firsts, edge_ends)
        levels = []
        bounds = zip(
            node_ends.tolist(),
            edge_ends.tolist(),
            first_ends.tolist(),
            tile_ends.tolist(),
            strict=True,
        )
        node = edge = first = tile = 0
        for node_end, edge_end, first_end, tile_end in bounds:
            levels.append(
                _Level(
                    slice(node, node_end),
                    slice(edge, edge_end),
                    firsts[first:first_end] - edge,
                    slice(tile, tile_end),
                )
            )
            node, edge, first, tile = node_end, edge_end, first_end, tile_end
        return levels[1:]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._rest)

    def walk(
        self,
        scenarios: Scenarios,
        progress: Progress,
        without: Array | None = None,
        late: Late | None = None,
    ) -> Floats:
        """By place and scenario when it comes, ns.

        ``without`` are edges of the graph, no tile's, that are left out. None of them
        may be the only one of its node. ``late`` is a node that comes later by itself.

        It is done beside the caller, who goes on to report how far it is: a level of
        many edges takes longer than 10 ms. Once the caller is cancelled it ends at the
        next level.
        """
        if self._few is not None and len(scenarios.line) == 1 and scenarios.line[0] < 0:
            rest = self._rest_by_node
            if late is not None:
                rest = rest.copy()
                rest[late.node] += late.ns
            found = self._few.walk(scenarios.weight[:, 0], progress, without, rest)
            times = np.empty((self.nodes, 1))
            times[self.place, 0] = found
            return times
        if progress is no_progress:
            return self._walked(scenarios, no_progress, without, late)
        reached = [0.0]
        stopped = Event()

        def note(done: float) -> None:
            reached[0] = done
            if stopped.is_set():
                raise Cancelled("nobody waits for this walk any more")

        walked = partial(self._walked, scenarios, note, without, late)
        try:
            return computed_beside(walked, lambda _: progress(reached[0]), 0.0)
        finally:
            stopped.set()

    def _walked(
        self,
        scenarios: Scenarios,
        progress: Progress,
        without: Array | None,
        late: Late | None,
    ) -> Floats:
        """As ``walk``, by the caller itself."""
        weight, line, factor = scenarios
        classes = self._class
        if without is not None:
            classes = classes.copy()
            classes[self._at[without]] = len(weight)
            weight = np.concatenate([weight, np.full((1, weight.shape[1]), -np.inf)])
        count = weight.shape[1]
        of_node = self._rest
        if late is not None:
            of_node = of_node.copy()
            of_node[self.place[late.node]] += late.ns
        times = np.empty((self.nodes, count))
        times[self._roots] = (self._root_times + of_node[self._roots])[:, None]
        lines = None
        if (line >= 0).any():
            lines = _Lines(line, factor)
        done = 0
        for level in self._levels:
            size = level.nodes.stop - level.nodes.start
            done += size
            if done >= _AT_ONCE // count:
                progress(level.nodes.start / self.nodes)
                done = 0
            came = times[self._cause[level.edges]]
            took = weight[classes[level.edges]]
            if lines is not None:
                took *= lines.factors(self._line[level.edges])
            came += took
            plain = len(level.first)
            begin = level.nodes.start
            if plain:
                found = np.maximum.reduceat(came, level.first, axis=0)
                found += of_node[begin : begin + plain, None]
                times[begin : begin + plain] = found
            if size > plain:
                starts = times[self._tile_cause[level.tiles]]
                is_behind = starts <= times[self._tile_behind[level.tiles]]
                took = np.where(
                    is_behind,
                    weight[self._tile_streams[level.tiles]],
                    weight[self._tile_cold[level.tiles]],
                )
                if lines is not None:
                    took *= lines.factors(self._tile_line[level.tiles])
                rest = of_node[begin + plain : level.nodes.stop, None]
                times[begin + plain : level.nodes.stop] = starts + took + rest
        return times


class _Lines:
    """How much of its weight an edge has, by its line and by scenario."""

    def __init__(self, line: Ints, factor: Floats) -> None:
        known = line >= 0
        self._table = np.ones((int(line.max()) + 2, len(line)))
        self._table[line[known], np.flatnonzero(known)] = factor[known]

    def factors(self, lines: Array) -> Floats:
        """A row for each of some lines; those above all that change, and -1, have 1."""
        return np.asarray(self._table[np.minimum(lines, len(self._table) - 1)])


def _levels(graph: Graph, progress: Progress) -> Ints:
    """By node the length of the longest chain of edges that leads to it."""
    level = array("i", bytes(4 * graph.nodes))
    for part in parts(len(graph.cause), progress, _EDGES):
        causes = graph.cause[part].tolist()
        effects = graph.effect[part].tolist()
        for cause, effect in zip(causes, effects, strict=True):
            after = level[cause] + 1
            if after > level[effect]:
                level[effect] = after
    return np.frombuffer(level, np.int32)

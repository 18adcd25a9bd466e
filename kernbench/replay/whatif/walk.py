"""When every moment comes if edges have other weights: the walk over the graph.

A moment comes when the last of its causes lets it, and then its rest later. The plain
walk says just that, edge by edge, for one machine. The fast one does the same for many
machines at once, batch by batch of nodes of which none is a cause of another, and gives
the same to the last bit. So does the third, for one machine on a graph so small that to
work on batches costs more than what there is to do.

Nodes are taken in the order in which they came when they were recorded. A batch goes up
to the first node that waits for one of the batch. Levels of the graph (by the longest
chain of edges that leads to a node) would be a third fewer, but it takes Python an
instruction an edge to find them, and a sort to put all nodes in their order.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.progress import (
    Cancelled,
    Progress,
    computed_beside,
    no_progress,
    parts,
)
from kernbench.replay.whatif.graph import Graph

_EDGES = 1 << 12
"""Edges that Python works on between two calls of progress, 1 ms."""

_AT_ONCE = 1 << 13
"""Times that a batch may have for several to be worked on between two calls."""

_NEAR = 1 << 8
"""Nodes that are looked at first for the end of a batch; twice as many each time."""


_FEW_EDGES = 1 << 15
"""A graph of at most so many edges is walked edge by edge, if it is for one machine."""

_NOT_LAST = -1

_TILE = 1
_ROOT = 2
"""Kinds of nodes: a tile in the array, one without causes; others are 0."""


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


class _Batch(NamedTuple):
    """Nodes whose causes are all in batches before: places ``nodes`` of the order.

    ``edges`` are those into the plain ones, which come first, ``first`` says with which
    of them each node's begin. ``tiles`` are tiles in the array, the last of the nodes.
    """

    nodes: slice
    edges: slice
    first: Array
    tiles: slice


class Batches:
    """A graph in batches, ready for walks.

    ``place`` is by node where it is in their order. Its edges are those of the graph,
    between places.
    """

    def __init__(self, graph: Graph, progress: Progress) -> None:
        self.place = np.empty(graph.nodes, np.int32)
        self._batches = computed_beside(partial(self._ordered, graph), progress, 0.0)
        self._few: _Few | None = None
        if len(graph.cause) <= _FEW_EDGES:
            self._few = _Few(graph)
            self._rest_by_node = graph.rest

    def _ordered(self, graph: Graph) -> list[_Batch]:
        """All batches: of each its plain nodes, its tiles, and those without causes."""
        is_tile = graph.weight < 0
        kind = np.zeros(graph.nodes, np.int8)
        kind[graph.effect[is_tile]] = _TILE
        kind[graph.roots] = _ROOT
        by_time = np.argsort(graph.times, kind="stable").astype(np.int32)
        ends = _ends_of_batches(graph, by_time)
        sizes = np.diff(ends, prepend=0)
        batch = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        in_batch = batch * np.int32(_ROOT + 1) + kind[by_time]
        order = by_time[np.argsort(in_batch, kind="stable")]
        self.place[order] = np.arange(graph.nodes, dtype=np.int32)
        self._rest = graph.rest[order]
        self._roots = self.place[graph.roots]
        self._root_times = graph.times[graph.roots]
        plain = self._edges(graph, is_tile)

        begins = ends - sizes
        has_edges = kind[order] == 0
        node_counts = np.add.reduceat(has_edges, begins, dtype=np.int64)
        tile_counts = np.add.reduceat(kind[order] == _TILE, begins, dtype=np.int64)
        edge_ends = np.searchsorted(plain, ends)
        is_first = np.diff(plain, prepend=-1) != 0
        firsts = np.flatnonzero(is_first).astype(np.int64)
        first_ends = np.cumsum(node_counts)
        tile_ends = np.cumsum(tile_counts)
        stops = begins + node_counts + tile_counts
        bounds = (begins, stops, edge_ends, first_ends, tile_ends)
        batches = []
        edge = first = tile = 0
        for begin, stop, edge_end, first_end, tile_end in zip(
            *(bound.tolist() for bound in bounds), strict=True
        ):
            batches.append(
                _Batch(
                    slice(begin, stop),
                    slice(edge, edge_end),
                    firsts[first:first_end] - edge,
                    slice(tile, tile_end),
                )
            )
            edge, first, tile = edge_end, first_end, tile_end
        return batches

    def _edges(self, graph: Graph, is_tile: Bools) -> Array:
        """Put the edges in the order of their effects; the places of the effects of the
        plain ones.
        """
        place = self.place
        effect = place[graph.effect]
        plain = np.flatnonzero(~is_tile)
        plain = plain[np.argsort(effect[plain], kind="stable")]
        self._at = np.empty(len(effect), np.int32)
        self._at[plain] = np.arange(len(plain), dtype=np.int32)
        self._cause = place[graph.cause[plain]]
        self._class = graph.weight[plain]
        self._line = graph.line[plain]
        tiles = np.flatnonzero(is_tile)
        tiles = tiles[np.argsort(effect[tiles], kind="stable")]
        number = -1 - graph.weight[tiles]
        self._tile_cause = place[graph.cause[tiles]]
        self._tile_behind = place[graph.behind[number]]
        self._tile_cold = graph.cold[number]
        self._tile_streams = graph.streams[number]
        self._tile_line = graph.line[tiles]
        return effect[plain]

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

        It is done beside the caller, who goes on to report how far it is: a batch of
        many edges takes longer than 10 ms. Once the caller is cancelled it ends at the
        next batch.
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
        times = np.full((self.nodes, count), -np.inf)
        times[self._roots] = (self._root_times + of_node[self._roots])[:, None]
        lines = None
        if (line >= 0).any():
            lines = _Lines(line, factor)
        done = 0
        for batch in self._batches:
            size = batch.nodes.stop - batch.nodes.start
            done += size
            if done >= _AT_ONCE // count:
                progress(batch.nodes.start / self.nodes)
                done = 0
            came = times[self._cause[batch.edges]]
            took = weight[classes[batch.edges]]
            if lines is not None:
                took *= lines.factors(self._line[batch.edges])
            came += took
            plain = len(batch.first)
            begin = batch.nodes.start
            if plain:
                found = np.maximum.reduceat(came, batch.first, axis=0)
                found += of_node[begin : begin + plain, None]
                times[begin : begin + plain] = found
            if size > plain:
                starts = times[self._tile_cause[batch.tiles]]
                is_behind = starts <= times[self._tile_behind[batch.tiles]]
                took = np.where(
                    is_behind,
                    weight[self._tile_streams[batch.tiles]],
                    weight[self._tile_cold[batch.tiles]],
                )
                if lines is not None:
                    took *= lines.factors(self._tile_line[batch.tiles])
                rest = of_node[begin + plain : batch.nodes.stop, None]
                times[begin + plain : batch.nodes.stop] = starts + took + rest
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


def _ends_of_batches(graph: Graph, by_time: Array) -> Ints:
    """Behind how many nodes each batch ends, in the order of time.

    A batch takes one after the other, up to the first that has a cause in it.
    """
    rank = np.empty(graph.nodes, np.int32)
    rank[by_time] = np.arange(graph.nodes, dtype=np.int32)
    last_cause = np.full(graph.nodes, -1, np.int32)
    first = np.flatnonzero(np.diff(graph.effect, prepend=-1))
    if len(first):
        causes = rank[graph.cause]
        last_cause[rank[graph.effect[first]]] = np.maximum.reduceat(causes, first)
    is_tile = np.flatnonzero(graph.weight < 0)
    tile = rank[graph.effect[is_tile]]
    behind = rank[graph.behind[-1 - graph.weight[is_tile]]]
    earlier = behind < tile
    np.maximum.at(last_cause, tile[earlier], behind[earlier])
    ends = []
    begin = 0
    while begin < graph.nodes:
        end = begin + 1
        looked_at = _NEAR
        while end < graph.nodes:
            waits = last_cause[end : end + looked_at] >= begin
            ahead = int(waits.argmax())
            if waits[ahead]:
                end += ahead
                break
            end += looked_at
            looked_at *= 2
        begin = min(end, graph.nodes)
        ends.append(begin)
    return np.array(ends, np.int64)

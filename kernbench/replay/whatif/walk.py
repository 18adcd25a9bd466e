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

from kernbench.common.arrays import Array, Floats, Ints, counted, repeated, runs_begin
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

_BUFFERED = 1 << 12
"""A batch of at most so many edges needs no memory of its own."""

_FEW_EDGES = 1 << 15
"""A graph of at most so many edges is walked edge by edge, if it is for one machine."""

_NOT_LAST = -1

_LAYERS = 8
"""So many edges of a node are in layers of their own. Few nodes have more."""

_TILE = _LAYERS + 2
_ROOT = _LAYERS + 3
"""Kinds of nodes: a tile in the array, one without causes. Others are of a lower kind
the more edges they have, up to one more than there are layers.
"""


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

    Plain nodes come first, those with most edges before the others, then ``tiles`` in
    the array, then what has no causes. ``edges`` are those into plain nodes: one of
    each of them, then a second one of those that have two, and so on; ``layers`` says
    how many nodes have one, two, ... What a node has beyond ``_LAYERS`` edges comes
    behind all that, and ``first`` says with which edge that of each such node begins.
    """

    nodes: slice
    edges: slice
    layers: tuple[int, ...]
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
        """Put nodes and edges in their order, and find all batches."""
        is_tile = graph.weight < 0
        by_time = np.argsort(graph.times, kind="stable").astype(np.int32)
        ends = _ends_of_batches(graph, by_time)
        sizes = np.diff(ends, prepend=0)
        batch = repeated(np.arange(len(sizes), dtype=np.int32), sizes)
        counts = counted(graph.effect, graph.nodes)
        kind = (_TILE - 1 - np.minimum(counts, _TILE - 1)).astype(np.int8)
        kind[graph.effect[is_tile]] = _TILE
        kind[graph.roots] = _ROOT
        in_batch = batch * np.int32(_ROOT + 1) + kind[by_time]
        order = by_time[np.argsort(in_batch, kind="stable")]
        self.place[order] = np.arange(graph.nodes, dtype=np.int32)
        self._rest = graph.rest[order]
        self._roots = self.place[graph.roots]
        self._root_times = graph.times[graph.roots]
        self._put_tiles(graph, np.flatnonzero(is_tile))

        kind = kind[order]
        own = np.where(kind < _TILE, counts[order], 0)
        layers = _Layers.of(own, batch, ends - sizes)
        begins = np.flatnonzero(runs_begin(graph.effect)).astype(np.int32)
        first = np.zeros(graph.nodes, np.int32)
        first[graph.effect[begins]] = begins
        self._put_edges(graph, layers.edges(own, first[order], batch))
        tiles = np.add.reduceat(kind == _TILE, ends - sizes, dtype=np.int64)
        return layers.batches(tiles)

    def _put_edges(self, graph: Graph, edges: Array) -> None:
        """Have plain edges lie in an order."""
        self._at = np.full(len(graph.cause), -1, np.int32)
        self._at[edges] = np.arange(len(edges), dtype=np.int32)
        self._cause = self.place.take(graph.cause.take(edges))
        self._class = graph.weight.take(edges)
        self._line = graph.line.take(edges)

    def _put_tiles(self, graph: Graph, tiles: Array) -> None:
        """Put the edges of tiles in the order of their effects."""
        place = self.place
        tiles = tiles[np.argsort(place[graph.effect[tiles]], kind="stable")]
        number = -1 - graph.weight[tiles]
        self._tile_cause = place[graph.cause[tiles]]
        self._tile_behind = place[graph.behind[number]]
        self._tile_cold = graph.cold[number]
        self._tile_streams = graph.streams[number]
        self._tile_line = graph.line[tiles]

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
        times = np.empty((self.nodes, count))
        times[self._roots] = (self._root_times + of_node[self._roots])[:, None]
        lines = None
        if (line >= 0).any():
            lines = _Lines(line, factor)
        for_came = np.empty((_BUFFERED, count))
        for_took = np.empty((_BUFFERED, count))
        done = 0
        for batch in self._batches:
            size = batch.nodes.stop - batch.nodes.start
            done += size
            if done >= _AT_ONCE // count:
                progress(batch.nodes.start / self.nodes)
                done = 0
            begin = batch.nodes.start
            plain = 0
            if batch.layers:
                plain = batch.layers[0]
                came = _rows(times, self._cause[batch.edges], for_came)
                took = _rows(weight, classes[batch.edges], for_took)
                if lines is not None:
                    took *= lines.factors(self._line[batch.edges])
                came += took
                rest = of_node[begin : begin + plain, None]
                found = times[begin : begin + plain]
                np.add(_latest(came, batch), rest, out=found)
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


def _rows(table: Floats, rows: Array, buffer: Floats) -> Floats:
    """Some rows of a table, in the buffer if they fit into it: all batches use one, as
    it is slower to have the system give and take memory for each.
    """
    if len(rows) > len(buffer):
        return table.take(rows, 0)
    return table.take(rows, 0, out=buffer[: len(rows)], mode="clip")


def _latest(came: Floats, batch: _Batch) -> Floats:
    """By plain node of a batch when the last of its causes lets it come.

    ``came`` is by edge of the batch, and is not kept.
    """
    found = came[: batch.layers[0]]
    low = len(found)
    for count in batch.layers[1:]:
        some = found[:count]
        np.maximum(some, came[low : low + count], out=some)
        low += count
    if len(batch.first):
        some = found[: len(batch.first)]
        others = np.maximum.reduceat(came, batch.first, axis=0)
        np.maximum(some, others, out=some)
    return found


class _Layers(NamedTuple):
    """How the edges of plain nodes lie: by batch, and in it as ``_Batch`` says.

    By batch: ``begins`` is its first place, ``edge_begins`` its first edge. By layer
    and batch ``counts`` says how many nodes have an edge there, ``layer_begins`` with
    which edge the layer begins. ``crowded`` are the places of nodes with more edges,
    and ``rest_begins`` says where what each has beyond the layers does.
    """

    begins: Ints
    edge_begins: Ints
    edge_ends: Ints
    counts: Array
    layer_begins: Array
    crowded: Ints
    rest_begins: Ints

    @classmethod
    def of(cls, own: Ints, batch: Array, begins: Ints) -> _Layers:
        """Those of nodes with so many edges of their ``own``, by place."""
        batches = len(begins)
        depth = batch * (_LAYERS + 1) + np.minimum(own, _LAYERS)
        of_depth = counted(depth, batches * (_LAYERS + 1))
        of_depth = of_depth.reshape(batches, _LAYERS + 1).T
        counts = np.cumsum(of_depth[::-1], axis=0)[::-1][1:]
        crowded = np.flatnonzero(own > _LAYERS)
        more = own[crowded] - _LAYERS
        there = batch[crowded]
        others = np.bincount(there, more, batches).astype(np.int64)
        sizes = np.concatenate([counts, others[None]])
        edge_ends = np.cumsum(sizes.sum(axis=0))
        edge_begins = edge_ends - sizes.sum(axis=0)
        layer_begins = edge_begins + np.cumsum(sizes, axis=0) - sizes
        before = np.cumsum(others) - others
        rest_begins = layer_begins[_LAYERS][there] + np.cumsum(more) - more
        return cls(
            begins=begins,
            edge_begins=edge_begins,
            edge_ends=edge_ends,
            counts=counts,
            layer_begins=layer_begins[:_LAYERS],
            crowded=crowded,
            rest_begins=rest_begins - before[there],
        )

    def edges(self, own: Ints, first: Array, batch: Array) -> Array:
        """The edges as they are to lie. By place a node has so many of its ``own``,
        which follow each other from ``first`` on, and is of a ``batch``.
        """
        found = np.empty(int(own.sum()), np.int32)
        nodes = np.flatnonzero(own)
        for layer in range(_LAYERS):
            nodes = nodes[own[nodes] > layer]
            begin = self.layer_begins[layer] - self.begins
            found[begin.take(batch[nodes]) + nodes] = first[nodes] + layer
        more = own[self.crowded] - _LAYERS
        within = np.arange(int(more.sum())) - repeated(np.cumsum(more) - more, more)
        at = repeated(self.rest_begins, more) + within
        found[at] = repeated(first[self.crowded] + _LAYERS, more) + within
        return found

    def batches(self, tiles: Ints) -> list[_Batch]:
        """All batches, of so many ``tiles`` each."""
        bounds = np.append(self.begins, np.iinfo(np.int64).max)
        at = np.searchsorted(self.crowded, bounds)
        batch = repeated(np.arange(len(self.begins)), np.diff(at))
        firsts = self.rest_begins - self.edge_begins[batch]
        depth = np.count_nonzero(self.counts, axis=0)
        nodes = _slices(self.begins, self.begins + self.counts[0] + tiles)
        edges = _slices(self.edge_begins, self.edge_ends)
        firsts_of = [firsts[some] for some in _slices(at[:-1], at[1:])]
        tiles_of = _slices(np.cumsum(tiles) - tiles, np.cumsum(tiles))
        counts = [
            tuple(some[:deep])
            for some, deep in zip(self.counts.T.tolist(), depth.tolist(), strict=True)
        ]
        columns = zip(nodes, edges, counts, firsts_of, tiles_of, strict=True)
        return [_Batch(*column) for column in columns]


def _slices(lows: Ints, highs: Ints) -> list[slice]:
    """A slice from each low to its high."""
    return [*map(slice, lows.tolist(), highs.tolist())]


class _Lines:
    """How much of its weight an edge has, by its line and by scenario."""

    def __init__(self, line: Ints, factor: Floats) -> None:
        # Row 0 is of no line, the last one of all that are above those that change.
        known = line >= 0
        self._table = np.ones((int(line.max()) + 3, len(line)))
        self._table[line[known] + 1, np.flatnonzero(known)] = factor[known]

    def factors(self, lines: Array) -> Floats:
        """A row for each of some lines, -1 is none."""
        return self._table.take(lines + 1, 0, mode="clip")


def _ends_of_batches(graph: Graph, by_time: Array) -> Ints:
    """Behind how many nodes each batch ends, in the order of time.

    A batch takes one after the other, up to the first that has a cause in it.
    """
    rank = np.empty(graph.nodes, np.int32)
    rank[by_time] = np.arange(graph.nodes, dtype=np.int32)
    last_cause = np.full(graph.nodes, -1, np.int32)
    first = np.flatnonzero(runs_begin(graph.effect))
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

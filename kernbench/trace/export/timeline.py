"""What Perfetto draws of a trace: tracks, slices, arrows and counters.

It knows no format: ``perfetto`` writes it as JSON and ``pftrace`` as protobuf.

Readers cut times off, or round them, at whole ns, and drop slices that overlap after
that. So every slice begins and ends at a whole ns here: at that in which its exact time
lies, which its args have in ps. Slices of a track that do not overlap in ps then do not
in ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.trace.bursts import burst_bytes, usual_burst
from kernbench.trace.carried import carried_by, hop_log
from kernbench.trace.export.tables import op_table, table
from kernbench.trace.hops import integers, tile_columns
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns

LINKS = 16
"""So many of the busiest links are counters."""

WINDOWS = 500
"""So many values a counter has at most, and a last one that is 0."""

COUNTERS_TITLE = "busiest links, % of the time busy"

_OP_ARGS = (
    *("op", "call", "launch", "cmd", "nbytes", "shape", "dtype"),
    *("shapes_in", "dtypes_in", "parent"),
)
_CALL_ARGS = ("cmd", "launch", "function", "awaits")
_WAIT_ARGS = ("op", "holder", "cmd")


class Track(NamedTuple):
    """A lane of a component, in which slices do not overlap.

    ``place`` numbers ``Timeline.places``.
    """

    place: int
    title: str


class Slices(NamedTuple):
    """Slices of one kind, as columns, by ascending start on each track.

    ``track`` numbers ``Timeline.tracks``; times are whole ns. ``args`` are columns too,
    in which None is nothing.
    """

    kind: str
    track: Ints
    start_ns: Ints
    end_ns: Ints
    name: list[str]
    category: list[str]
    args: dict[str, list[Any]]


class Arrows(NamedTuple):
    """Where arrows touch ops, by ascending ``op``: an index of the slices of ops.

    ``phase`` is s, t or f: where the arrow starts, passes and ends. ``number`` is the
    arrow's, and ``is_tile`` tells those of tiles from those of messages.
    """

    op: Ints
    phase: Array
    number: Ints
    is_tile: Array


class Counter(NamedTuple):
    """The values of one link in percent, from each of ``ns`` on."""

    title: str
    ns: Ints
    percents: Floats


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that is drawn.

    ``places`` are SIP, cube and PE by number, -1 for none; in their order, and tracks
    in the order of places and, in a place, of components.
    """

    places: list[tuple[int, int, int]]
    tracks: list[Track]
    ops: Slices
    calls: Slices
    waits: Slices
    arrows: Arrows
    counters: list[Counter]

    @property
    def slices(self) -> tuple[Slices, Slices, Slices]:
        """All slices, those of ops first."""
        return self.ops, self.calls, self.waits


def timeline_of(trace: Trace) -> Timeline:
    """The timeline of a trace."""
    ops = op_table(trace)
    calls = table(trace, "commands")
    waits = table(trace, "waits")
    nodes = [
        trace.op_columns.component[trace.order].astype(np.int64),
        trace.commands.pe[:].astype(np.int64),
        trace.waits.node[:].astype(np.int64),
    ]
    orders = [np.argsort(made["t_start"], kind="stable") for made in (calls, waits)]
    calls, waits = (
        {name: column[order] for name, column in made.items()}
        for made, order in zip((calls, waits), orders, strict=True)
    )
    nodes[1:] = [node[order] for node, order in zip(nodes[1:], orders, strict=True)]
    lanes = [
        _lanes(ops, nodes[0], ops["slot"]),
        _lanes(calls, nodes[1], np.zeros(len(nodes[1]), np.int64)),
        _lanes(waits, nodes[2], np.zeros(len(nodes[2]), np.int64)),
    ]
    places, tracks, track = _tracks(trace, nodes, lanes)
    return Timeline(
        places,
        tracks,
        _slices("ops", ops, track[0], ops["name"], ops["kind"], _OP_ARGS),
        _slices("calls", calls, track[1], calls["call"], "call", _CALL_ARGS),
        _slices("waits", waits, track[2], waits["reason"], "wait", _WAIT_ARGS),
        _arrows(trace, ops),
        _counters(trace),
    )


def to_ps(ns: Floats) -> Ints:
    """Times in ns as whole ps."""
    return np.rint(np.asarray(ns) * 1e3).astype(np.int64)


def place_title(place: Sequence[int]) -> str:
    """The name of a place, as "sip0 cube3 pe1", or as far as it has numbers."""
    parts = []
    for level, number in zip(("sip", "cube", "pe"), place, strict=False):
        if number >= 0:
            parts.append(f"{level}{number}")
    return " ".join(parts) or "machine"


# -- tracks ------------------------------------------------------------------------


def _lanes(table: Columns, node: Ints, lane: Array) -> Ints:
    """The lane of each row: that given, unless rows of one overlap on a component.

    There all rows of the component get lanes anew. A slot says which lane served an op
    when there is one op in service at once, and some components serve more.
    """
    start = to_ps(table["t_start"])
    end = to_ps(table["t_end"])
    lane = lane.astype(np.int64)
    order = np.lexsort((start, lane, node))
    same_node = np.diff(node[order]) == 0
    same_lane = np.diff(lane[order]) == 0
    overlaps = start[order][1:] < end[order][:-1]
    crowded = np.unique(node[order][1:][same_node & same_lane & overlaps])
    for one in crowded.tolist():
        mine = np.flatnonzero(node == one)
        lane[mine] = _first_free_lanes(start[mine].tolist(), end[mine].tolist())
    return lane


def _first_free_lanes(starts: list[int], ends: list[int]) -> list[int]:
    """A lane for each interval, in turn: the one that has been free for longest.

    An interval at whose start no lane is free gets a new one.
    """
    free_at: list[tuple[int, int]] = []  # a heap: when each lane is free
    lanes: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        if free_at and free_at[0][0] <= start:
            lane = free_at[0][1]
            heapreplace(free_at, (end, lane))
        else:
            lane = len(free_at)
            heappush(free_at, (end, lane))
        lanes.append(lane)
    return lanes


_SUFFIXES = ("", " calls", " waits")
"""What the titles of tracks of ops, calls and waits say behind the component's."""


def _tracks(
    trace: Trace, nodes: Sequence[Ints], lanes: Sequence[Ints]
) -> tuple[list[tuple[int, int, int]], list[Track], list[Ints]]:
    """The places, the tracks, and for ops, calls and waits the track of each."""
    of_node = trace.nodes
    node = np.concatenate(nodes)
    kind = np.repeat(np.arange(len(nodes)), [len(part) for part in nodes])
    levels = [of_node.sip[node], of_node.cube[node], of_node.pe[node]]
    keys = np.stack([*levels, node, kind, np.concatenate(lanes)])
    different, which = np.unique(keys, axis=1, return_inverse=True)
    places: list[tuple[int, int, int]] = []
    tracks: list[Track] = []
    for sip, cube, pe, at, suffix, lane in different.T.tolist():
        if not places or places[-1] != (sip, cube, pe):
            places.append((sip, cube, pe))
        title = (of_node.engine[at] or trace.node_ids[at]) + _SUFFIXES[suffix]
        if lane > 0:
            title = f"{title} lane {lane}"
        tracks.append(Track(len(places) - 1, title))
    bounds = np.cumsum([len(part) for part in nodes])[:-1]
    return places, tracks, np.split(which.ravel(), bounds)


# -- slices ------------------------------------------------------------------------


def _slices(
    kind: str,
    table: Columns,
    track: Ints,
    name: Array,
    category: Array | str,
    args: Iterable[str],
) -> Slices:
    """The slices of a table's rows; a category that is a text is that of all."""
    start = to_ps(table["t_start"])
    end = np.maximum(to_ps(table["t_end"]), start)
    columns = {heading: table[heading].tolist() for heading in args}
    if "file" in table:
        columns["line"] = _sites(table["file"].tolist(), table["line"].tolist())
    columns["start_ps"] = start.tolist()
    columns["end_ps"] = end.tolist()
    categories = [category] * len(start) if isinstance(category, str) else None
    return Slices(
        kind,
        track,
        start // 1000,
        end // 1000,
        [text or "" for text in name.tolist()],
        categories or [text or "" for text in np.asarray(category).tolist()],
        columns,
    )


def _sites(files: list[str | None], lines: list[int | None]) -> list[str | None]:
    """Each line as "file:line"; None where the file is not known."""
    sites: list[str | None] = []
    for file, line in zip(files, lines, strict=True):
        site = None
        if file is not None:
            site = f"{file}:{line}"
        sites.append(site)
    return sites


# -- arrows ------------------------------------------------------------------------


def _arrows(trace: Trace, ops: Columns) -> Arrows:
    """The arrows of tiles and of messages."""
    tiles = _tile_arrows(trace, ops)
    messages = _message_arrows(trace)
    first = tiles.number.max(initial=0)
    op = np.concatenate([tiles.op, messages.op])
    order = np.argsort(op, kind="stable")
    return Arrows(
        op[order],
        np.concatenate([tiles.phase, messages.phase])[order],
        np.concatenate([tiles.number, messages.number + first])[order],
        np.concatenate([tiles.is_tile, messages.is_tile])[order],
    )


def _tile_arrows(trace: Trace, ops: Columns) -> Arrows:
    """An arrow for each tile, from the composite through the stages of the tile.

    It starts where the composite does. Tiles are told apart by their composite and
    their tile_index.
    """
    parent_by_row, tile_by_row = tile_columns(trace)
    parent = parent_by_row[trace.order]
    tile = tile_by_row[trace.order]
    cmd = np.ma.getdata(ops["cmd"])
    stages = np.flatnonzero((tile >= 0) & (parent >= 0))
    stages = stages[np.lexsort((stages, tile[stages], cmd[stages]))]
    tile_changes = np.diff(tile[stages]) != 0
    parent_changes = np.diff(parent[stages]) != 0
    changes = tile_changes | parent_changes
    is_first = np.append(True, changes)[: len(stages)]  # of its tile
    is_last = np.append(changes, True)[: len(stages)]
    number = np.cumsum(is_first)
    source = trace.position[parent[stages[is_first]]]
    op = np.concatenate([source, stages]).astype(np.int64)
    starts = np.full(len(source), "s")
    phase = np.concatenate([starts, np.where(is_last, "f", "t")])
    numbers = np.concatenate([number[is_first], number])
    return Arrows(op, phase, numbers, np.ones(len(op), np.bool_))


def _message_arrows(trace: Trace) -> Arrows:
    """An arrow for each message, from what sent it to what received it.

    An ipcq_copy fills a slot of a ring, and the next ipcq_recv of that slot empties it.
    """
    ops = trace.op_columns
    slot = np.full(len(trace.order), -1)
    is_send = np.zeros(len(slot), np.bool_)
    params = {"ipcq_copy": "dst_addr", "ipcq_recv": "src_addr"}
    for block in trace.param_blocks():
        if block.schema.name in params:
            address = integers(block).get(params[block.schema.name])
            if address is not None:
                slot[block.rows] = address
                is_send[block.rows] = block.schema.name == "ipcq_copy"
    rows = np.flatnonzero(slot >= 0)
    rows = rows[np.lexsort((ops.t_start[rows], slot[rows]))]
    is_pair = np.diff(slot[rows]) == 0
    is_pair &= is_send[rows[:-1]] & ~is_send[rows[1:]]
    sends = trace.position[rows[:-1][is_pair]].astype(np.int64)
    receives = trace.position[rows[1:][is_pair]].astype(np.int64)
    count = len(sends)
    return Arrows(
        np.concatenate([sends, receives]),
        np.repeat(np.array(["s", "f"]), count),
        np.tile(np.arange(1, count + 1), 2),
        np.zeros(2 * count, np.bool_),
    )


# -- counters ----------------------------------------------------------------------


def _counters(trace: Trace) -> list[Counter]:
    """The busy share of the busiest links, in windows with equal parts of traffic.

    It is what ``kernbench trace links`` says of each window.
    """
    log = hop_log(trace, burst_bytes(trace, usual_burst(trace)))
    edges = trace.edges
    ns = log.nbytes / log.speed
    busy_by_edge = np.bincount(log.hops.edge, ns)
    count = min(LINKS, np.count_nonzero(busy_by_edge))
    chosen = np.argsort(-busy_by_edge, kind="stable")[:count]
    is_chosen = np.isin(log.hops.edge, chosen)
    ends = log.hops.last + log.last_bytes / log.speed
    bounds = _windows(log.hops.start[is_chosen], ends[is_chosen])
    carried = carried_by(log)
    bytes_in_windows = carried.integral(carried.level, chosen, bounds)
    speeds = edges.bandwidth_gbs[chosen][:, None]
    shares = np.minimum(bytes_in_windows / speeds / np.diff(bounds), 1.0) * 100
    counters: list[Counter] = []
    for link, percents in zip(chosen.tolist(), shares, strict=True):
        src = trace.node_ids[edges.src[link]]
        dst = trace.node_ids[edges.dst[link]]
        counters.append(_counter(f"{src} > {dst}", bounds, percents))
    return counters


def _windows(starts: Floats, ends: Floats) -> Floats:
    """The bounds of windows in which about as many starts and ends lie, in whole ns."""
    times: Any = 0.0
    if len(starts):
        times = np.append(starts, ends)
    bounds = np.quantile(times, np.linspace(0, 1, WINDOWS + 1))
    return np.unique(np.rint(bounds))


def _counter(title: str, bounds: Floats, percents: Floats) -> Counter:
    """The values of a counter, where they change; behind the last window it is 0."""
    values = np.append(percents.round(2).clip(0.0), 0.0)
    changes = np.diff(values, prepend=-1.0) != 0
    return Counter(title, bounds[changes].astype(np.int64), values[changes])

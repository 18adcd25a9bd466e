"""A trace as Chrome trace-event JSON, which Perfetto and chrome://tracing open.

Processes are PEs (or the cube, SIP or machine of what belongs to none), threads are the
lanes of an engine. Ops are slices, an arrow goes from a composite through the stages of
each of its tiles, and the busiest links are counters. An event is a line; ``ts`` and
``dur`` are in us.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heappush, heapreplace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.progress import Progress
from kernbench.trace.export.tables import op_table
from kernbench.trace.hops import Levels, hop_columns, tile_columns
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns

LINKS = 16
"""So many of the busiest links are counters."""

WINDOWS = 500
"""So many values a counter has at most, and a last one that is 0."""

_OPS_AT_ONCE = 8192
_SLICE = (
    '{"ph":"X","pid":%d,"tid":%d,"ts":%r,"dur":%r,"name":%s,"cat":%s,'
    '"args":{"call":%s,"line":%s,"op":%d,"bytes":%d,"cmd":%d}}'
)
_ARROW = (
    '{"ph":"%s","bp":"e","pid":%d,"tid":%d,"ts":%r,"name":"tile","cat":"tile","id":%d}'
)
_TRACK_NAME = '{"ph":"M","pid":%d,"tid":%d,"ts":0,"name":"%s_name","args":{"name":%s}}'
_TRACK_ORDER = (
    '{"ph":"M","pid":%d,"tid":%d,"ts":0,"name":"%s_sort_index",'
    '"args":{"sort_index":%d}}'
)
_COUNTER = '{"ph":"C","pid":%d,"tid":0,"ts":%r,"name":%s,"args":{"busy %%":%.2f}}'

# Strings are few, and occur often. The cache is safe to be used by several threads.
_quoted = lru_cache(1 << 16)(json.dumps)


class _Arrows(NamedTuple):
    """The events of arrows, by ascending ``op``; an arrow is a tile's.

    ``phase`` is s, t or f: where it starts, passes and ends. ``number`` is the arrow's.
    """

    op: Array
    phase: Array
    number: Array


def export_perfetto(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write the file; how many tracks, counter values, slices and arrow events.

    ``progress`` is called with the share of ops that are written.
    """
    ops = op_table(trace)
    for name in ("nbytes", "cmd", "line"):
        ops[name] = np.ma.filled(ops[name], 0)
    for name in ("call", "file"):
        ops[name] = np.array([text or "" for text in ops[name].tolist()], object)
    starts_ps = np.rint(ops["t_start"] * 1e3)
    ends_ps = np.rint(ops["t_end"] * 1e3)
    ops["ts"] = to_us(ops["t_start"])
    ops["dur"] = (ends_ps - starts_ps).clip(0) / 1e6
    tracks = _add_tracks(trace, ops)
    arrows = _arrows(trace, ops)
    with open(path, "w", encoding="utf-8") as file:
        about = {}
        for key in ("bench", "arguments", "kernbench"):
            about[key] = str(trace.header.get(key))
        head = f'"displayTimeUnit":"ns","otherData":{json.dumps(about)}'
        file.write(f'{{{head},"traceEvents":[\n')
        events = _Events(file)
        events.write("tracks", tracks)
        counters_pid = int(ops["pid"].max(initial=0)) + 1
        events.write("counters", _counters(trace, counters_pid))
        count = len(ops["op"])
        for first in range(0, count, _OPS_AT_ONCE):
            end = first + _OPS_AT_ONCE
            events.write("slices", _slices(ops, first, end))
            events.write("flows", _arrow_events(ops, arrows, first, end))
            progress(first / count)
        file.write("\n]}\n")
    return events.counts


class _Events:
    """Writes events to a file, with commas between them, and counts them by kind."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.counts = {"tracks": 0, "counters": 0, "slices": 0, "flows": 0}

    def write(self, kind: str, events: list[str]) -> None:
        if not events:
            return
        if any(self.counts.values()):
            self._file.write(",\n")
        self._file.write(",\n".join(events))
        self.counts[kind] += len(events)


def _rows(*columns: Array) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def to_us(ns: Floats) -> Floats:
    """Times in whole ps as us.

    A reader that cuts off what is below 1 ns gets the ns that each time lies in: where
    the nearest us lies before it, the next number above is taken.
    """
    ps = np.rint(ns * 1e3)
    us = ps / 1e6
    is_below = np.floor(us * 1e3) < ps // 1e3
    return np.where(is_below, np.nextafter(us, np.inf), us)


# -- tracks ------------------------------------------------------------------------


def _lanes(ops: Columns, node: Array) -> Array:
    """The lane of each op: its slot, unless ops of a slot overlap on its component.

    There all ops of the component get lanes anew. A slot says which lane served an op
    when there is one op in service at once, and some components serve more.
    """
    start = np.rint(ops["t_start"] * 1e3)
    end = np.rint(ops["t_end"] * 1e3)
    lane = ops["slot"]
    order = np.lexsort((start, lane, node))
    same_node = np.diff(node[order]) == 0
    same_lane = np.diff(lane[order]) == 0
    overlaps = start[order][1:] < end[order][:-1]
    crowded = np.unique(node[order][1:][same_node & same_lane & overlaps])
    for one in crowded.tolist():
        mine = np.flatnonzero(node == one)
        lane[mine] = _first_free_lanes(start[mine].tolist(), end[mine].tolist())
    return lane


def _first_free_lanes(starts: list[float], ends: list[float]) -> list[int]:
    """A lane for each interval, in turn: the one that has been free for longest.

    An interval at whose start no lane is free gets a new one.
    """
    free_at: list[tuple[float, int]] = []  # a heap: when each lane is free
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


def _add_tracks(trace: Trace, ops: Columns) -> list[str]:
    """Give ``ops`` the columns pid and tid; the events that name and sort these.

    A process is a place of the machine, a thread a lane of a node. Both are numbered
    from 1, in the order of places and of nodes.
    """
    nodes = trace.nodes
    node = trace.op_columns.component[trace.order]
    lane = _lanes(ops, node)
    tracks, tid = np.unique(np.stack([node, lane]), axis=1, return_inverse=True)
    track_nodes, track_lanes = tracks
    levels = [nodes.sip[track_nodes], nodes.cube[track_nodes], nodes.pe[track_nodes]]
    places, pid = np.unique(np.stack(levels), axis=1, return_inverse=True)
    ops["pid"] = pid[tid] + 1
    ops["tid"] = tid + 1
    events: list[str] = []
    for number, place in enumerate(places.T.tolist(), 1):
        events.append(_track(number, 0, "process", _place_title(place), number))
    for tid_, row in enumerate(_rows(track_nodes, track_lanes, pid + 1), 1):
        at, lane_number, pid_ = row
        title = nodes.engine[at] or trace.node_ids[at]
        if lane_number > 0:
            title = f"{title} lane {lane_number}"
        events.append(_track(pid_, tid_, "thread", title, tid_))
    return events


def _place_title(place: Sequence[int]) -> str:
    """Its name, as "sip0 cube3 pe1", or less where the place is a cube or SIP."""
    parts = []
    for level, number in zip(("sip", "cube", "pe"), place, strict=True):
        if number >= 0:
            parts.append(f"{level}{number}")
    return " ".join(parts) or "machine"


def _track(pid: int, tid: int, kind: str, title: str, order: int) -> str:
    """The two events, a line each, that name and sort a process or thread."""
    name = _TRACK_NAME % (pid, tid, kind, json.dumps(title))
    return name + ",\n" + _TRACK_ORDER % (pid, tid, kind, order)


# -- slices and arrows -------------------------------------------------------------


def _slices(ops: Columns, first: int, end: int) -> list[str]:
    """An event for each op from ``first`` to before ``end``."""
    some = {name: column[first:end] for name, column in ops.items()}
    sites = []
    for file, line in _rows(some["file"], some["line"]):
        site = f"{file}:{line}" if file else ""
        sites.append(_quoted(site))
    columns = (
        some["pid"].tolist(),
        some["tid"].tolist(),
        some["ts"].tolist(),
        some["dur"].tolist(),
        map(_quoted, some["name"].tolist()),
        map(_quoted, some["kind"].tolist()),
        map(_quoted, some["call"].tolist()),
        sites,
        some["op"].tolist(),
        some["nbytes"].tolist(),
        some["cmd"].tolist(),
    )
    return [_SLICE % row for row in zip(*columns, strict=True)]


def _arrows(trace: Trace, ops: Columns) -> _Arrows:
    """An arrow for each tile, from the composite through the stages of the tile.

    It starts where the composite does. Tiles are told apart by their composite and
    their tile_index.
    """
    parent_by_row, tile_by_row = tile_columns(trace)
    parent = parent_by_row[trace.order]
    tile = tile_by_row[trace.order]
    stages = np.flatnonzero((tile >= 0) & (parent >= 0))
    stages = stages[np.lexsort((stages, tile[stages], ops["cmd"][stages]))]
    tile_changes = np.diff(tile[stages]) != 0
    parent_changes = np.diff(parent[stages]) != 0
    changes = tile_changes | parent_changes
    is_first = np.append(True, changes)[: len(stages)]  # of its tile
    is_last = np.append(changes, True)[: len(stages)]
    number = np.cumsum(is_first)
    source = trace.position[parent[stages[is_first]]]
    op = np.concatenate([source, stages])
    starts = np.full(len(source), "s")
    phase = np.concatenate([starts, np.where(is_last, "f", "t")])
    numbers = np.concatenate([number[is_first], number])
    order = np.argsort(op, kind="stable")
    return _Arrows(op[order], phase[order], numbers[order])


def _arrow_events(ops: Columns, arrows: _Arrows, first: int, end: int) -> list[str]:
    """The events of arrows at the ops from ``first`` to before ``end``."""
    low, high = np.searchsorted(arrows.op, (first, end))
    op = arrows.op[low:high]
    rows = _rows(
        arrows.phase[low:high],
        ops["pid"][op],
        ops["tid"][op],
        ops["ts"][op],
        arrows.number[low:high],
    )
    return [_ARROW % row for row in rows]


# -- counters ----------------------------------------------------------------------


def _counters(trace: Trace, pid: int) -> list[str]:
    """The busy share of the busiest links, in windows with equal parts of traffic.

    A transaction keeps a link busy for its bytes by the bandwidth, which is spread
    evenly from its first burst on the link to the end of its last.
    """
    hops = hop_columns(trace)
    transfers = trace.transfers
    edges = trace.edges
    has_bandwidth = edges.bandwidth_gbs > 0
    speed = np.where(has_bandwidth, edges.bandwidth_gbs, np.inf)
    speed = np.append(speed, np.inf)  # of edge -1
    busy = transfers.nbytes[hops.transfer] / speed[hops.edge]
    busy_by_edge = np.bincount(hops.edge + 1, busy)[1:]
    count = min(LINKS, np.count_nonzero(busy_by_edge))
    chosen = np.argsort(-busy_by_edge, kind="stable")[:count]
    mine = np.flatnonzero(np.isin(hops.edge, chosen) & (busy > 0))
    start = hops.start[mine]
    busy = busy[mine]
    bursts = np.maximum(transfers.bursts[hops.transfer[mine]], 1)
    end = np.maximum(start + busy, hops.last[mine] + busy / bursts)
    bounds = _windows(start, end)
    rates = busy / (end - start).clip(1e-9)
    levels = Levels(hops.edge[mine], start, end, rates)
    busy_in_windows = levels.integral(levels.level, chosen, bounds)
    shares = busy_in_windows / np.diff(bounds) * 100
    events: list[str] = []
    for link, percents in zip(chosen.tolist(), shares, strict=True):
        src = trace.node_ids[edges.src[link]]
        dst = trace.node_ids[edges.dst[link]]
        events += _counter(pid, f"{src} > {dst}", bounds, percents)
    return events


def _windows(starts: Floats, ends: Floats) -> Floats:
    """The bounds of windows in which about as many starts and ends lie, in whole ps."""
    times: Any = 0.0
    if len(starts):
        times = np.append(starts, ends)
    bounds = np.quantile(times, np.linspace(0, 1, WINDOWS + 1))
    return np.unique(np.rint(bounds * 1e3)) / 1e3


def _counter(pid: int, title: str, bounds: Floats, percents: Floats) -> list[str]:
    """The values of a counter, where they change; behind the last window it is 0."""
    values = np.append(percents.round(2).clip(0.0), 0.0)
    changes = np.diff(values, prepend=-1.0) != 0
    rows = _rows(to_us(bounds[changes]), values[changes])
    return [_COUNTER % (pid, t, _quoted(title), value) for t, value in rows]

"""A trace as Chrome trace-event JSON, which Perfetto and chrome://tracing open.

Processes are PEs (or the cube, SIP or machine of what belongs to none), threads the lanes of an
engine; ops are slices, an arrow goes from a composite through the stages of each of its tiles, and
the busiest links are counters. An event is a line; ``ts`` and ``dur`` are us.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from heapq import heappush, heapreplace
from pathlib import Path
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.trace.export.tables import op_table
from kernbench.trace.hops import Levels, hop_columns, tile_columns
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns

LINKS, WINDOWS = 16, 500  # counters, and the values that each has at most
_CHUNK = 8192
_SLICE = (
    '{"ph":"X","pid":%d,"tid":%d,"ts":%r,"dur":%r,"name":%s,"cat":%s,'
    '"args":{"call":%s,"line":%s,"op":%d,"bytes":%d,"cmd":%d}}'
)
_FLOW = (
    '{"ph":"%s","bp":"e","pid":%d,"tid":%d,"ts":%r,"name":"tile","cat":"tile","id":%d}'
)
_NAME = '{"ph":"M","pid":%d,"tid":%d,"ts":0,"name":"%s_name","args":{"name":%s}},\n'
_NAME += '{"ph":"M","pid":%d,"tid":%d,"ts":0,"name":"%s_sort_index","args":{"sort_index":%d}}'
_COUNT = '{"ph":"C","pid":%d,"tid":0,"ts":%r,"name":%s,"args":{"busy %%":%.2f}}'
_quoted = lru_cache(1 << 16)(json.dumps)


def write_perfetto(
    trace: Trace, path: Path, progress: Callable[[float], None]
) -> dict[str, int]:
    """Write the file; how many slices, events of arrows, counter values and named tracks it has."""
    counts = dict.fromkeys(("tracks", "counters", "slices", "flows"), 0)
    ops = op_table(trace)
    ops["us"] = _us(ops["t_start"])
    ops["dur"] = (np.rint(ops["t_end"] * 1e3) - np.rint(ops["t_start"] * 1e3)).clip(
        0
    ) / 1e6
    tracks = _add_tracks(trace, ops)
    flows, n = _flows(trace, ops), len(ops["op"])
    with open(path, "w", encoding="utf-8") as file:
        about = {
            key: str(trace.header.get(key))
            for key in ("bench", "arguments", "kernbench")
        }
        file.write(
            f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'
        )

        def put(kind: str, lines: list[str]) -> None:
            if lines:
                file.write(",\n" * any(counts.values()) + ",\n".join(lines))
            counts[kind] += len(lines)

        put("tracks", tracks)
        put("counters", _counters(trace, int(ops["pid"].max(initial=0)) + 1))
        for at in range(0, n, _CHUNK):
            put(
                "slices",
                _slices(
                    {name: column[at : at + _CHUNK] for name, column in ops.items()}
                ),
            )
            low, high = np.searchsorted(flows[0], (at, at + _CHUNK))
            op, phase, number = (column[low:high] for column in flows)
            columns = phase, *(ops[name][op] for name in ("pid", "tid", "us")), number
            put("flows", [_FLOW % row for row in _rows(*columns)])
            progress(at / n)
        file.write("\n]}\n")
    return counts


def _rows(*columns: Array) -> zip[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _us(ns: Array) -> Array:
    """Times in whole ps as us; a reader that cuts off below 1 ns gets the ns it lies in."""
    ps = np.rint(ns * 1e3)
    us = ps / 1e6
    return np.where(np.floor(us * 1e3) < ps // 1e3, np.nextafter(us, np.inf), us)


def _lanes(ops: Columns, node: Array) -> Array:
    """The lane of each op: its slot; on a component where ops of one overlap, the first free."""
    start, end, lane = (
        np.rint(ops["t_start"] * 1e3),
        np.rint(ops["t_end"] * 1e3),
        ops["slot"],
    )
    order = np.lexsort((start, lane, node))
    same = (np.diff(node[order]) == 0) & (np.diff(lane[order]) == 0)
    crowded = np.unique(node[order][1:][same & (start[order][1:] < end[order][:-1])])
    for one in crowded.tolist():
        ends: list[tuple[float, int]] = []  # a heap: when each lane is free
        for op in np.flatnonzero(node == one).tolist():
            free = bool(ends) and ends[0][0] <= start[op]
            lane[op] = ends[0][1] if free else len(ends)
            (heapreplace if free else heappush)(ends, (end[op], int(lane[op])))
    return lane


def _add_tracks(trace: Trace, ops: Columns) -> list[str]:
    """Give ``ops`` the columns pid and tid; the events that name and sort these."""
    nodes, levels = trace.nodes, ("sip", "cube", "pe")
    node = trace.op_columns.component[trace.order]
    lane = _lanes(ops, node)
    used, tid = np.unique(np.stack([node, lane]), axis=1, return_inverse=True)
    places = np.stack([getattr(nodes, level)[used[0]] for level in levels])
    groups, pid = np.unique(places, axis=1, return_inverse=True)
    ops |= {"pid": pid[tid] + 1, "tid": tid + 1}
    names = []
    for n, place in enumerate(groups.T.tolist(), 1):
        title = " ".join(
            f"{x}{i}" for x, i in zip(levels, place, strict=True) if i >= 0
        )
        names.append((n, 0, "process", title or "machine", n))
    for n, (at, lane, mine) in enumerate(_rows(*used, pid + 1), 1):
        title = (nodes.engine[at] or trace.node_ids[at]) + f" lane {lane}" * (lane > 0)
        names.append((mine, n, "thread", title, n))
    return [_NAME % (*row[:3], json.dumps(row[3]), *row[:3], row[4]) for row in names]


def _slices(ops: Columns) -> list[str]:
    """A line an op."""
    sites = [
        f"{file}:{line}" * bool(file) for file, line in _rows(ops["file"], ops["line"])
    ]
    texts = [map(_quoted, ops[name].tolist()) for name in ("name", "kind", "call")]
    times = _rows(*(ops[name] for name in ("pid", "tid", "us", "dur")))
    of = _rows(*(ops[name] for name in ("op", "nbytes", "cmd")))
    rows = zip(times, *texts, map(_quoted, sites), of, strict=True)
    return [_SLICE % (*when, *what, *which) for when, *what, which in rows]


def _flows(trace: Trace, ops: Columns) -> list[Array]:
    """By ascending op: op, phase and number of each arrow's events; an arrow is a tile's."""
    parent, tile = (column[trace.order] for column in tile_columns(trace))
    tiles = np.flatnonzero((tile >= 0) & (parent >= 0))
    tiles = tiles[np.lexsort((tiles, tile[tiles], ops["cmd"][tiles]))]
    change = (np.diff(tile[tiles]) != 0) | (np.diff(parent[tiles]) != 0)
    new = np.append(change, True)  # of the next: another tile
    first = np.append(True, change)[: len(tiles)]
    number, source = np.cumsum(first), trace.position[parent[tiles[first]]]
    phase = np.where(new[: len(tiles)], "f", "t")
    columns = (
        (source, tiles),
        (np.full(len(source), "s"), phase),
        (number[first], number),
    )
    op, *others = map(np.concatenate, columns)
    order = np.argsort(op, kind="stable")
    return [column[order] for column in (op, *others)]


def _counters(trace: Trace, pid: int) -> list[str]:
    """The busy share of the busiest links, in windows that hold equal shares of the traffic."""
    hops, transfers, edges = hop_columns(trace), trace.transfers, trace.edges
    speed = np.where(edges.bandwidth_gbs > 0, edges.bandwidth_gbs, np.inf)
    busy = transfers.nbytes[hops.transfer] / np.append(speed, np.inf)[hops.edge]
    total = np.bincount(hops.edge + 1, busy)[1:]
    chosen = np.argsort(-total, kind="stable")[: min(LINKS, np.count_nonzero(total))]
    mine = np.flatnonzero(np.isin(hops.edge, chosen) & (busy > 0))
    start, busy = hops.start[mine], busy[mine]
    burst = busy / np.maximum(transfers.bursts[hops.transfer[mine]], 1)
    end = np.maximum(start + busy, hops.last[mine] + burst)
    bounds = np.quantile(
        np.append(start, end) if len(mine) else 0.0, np.linspace(0, 1, WINDOWS + 1)
    )
    bounds = np.unique(np.rint(bounds * 1e3)) / 1e3
    sums = Levels(hops.edge[mine], start, end, busy / (end - start).clip(1e-9))
    shares = sums.integral(sums.level, chosen, bounds) / np.diff(bounds) * 100
    lines = []
    for link, percent in zip(chosen.tolist(), shares, strict=True):
        title = " > ".join(
            trace.node_ids[end] for end in (edges.src[link], edges.dst[link])
        )
        values = np.append(percent.round(2).clip(0.0), 0.0)
        new = np.diff(values, prepend=-1.0) != 0
        windows = _rows(_us(bounds[new]), values[new])
        lines += [_COUNT % (pid, t, _quoted(title), share) for t, share in windows]
    return lines

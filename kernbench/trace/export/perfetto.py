"""A trace as Chrome trace-event JSON, which Perfetto and chrome://tracing open.

Processes are PEs (or the cube, SIP or machine of what belongs to none), threads are the
lanes of their components. An event is a line; ``ts`` is in us.

A slice is two events, its begin and its end, with the arrows at it between them. What
has the same ``ts`` is taken in the order of the file, so slices that begin at the same
ns follow each other. Of one event with a duration that is not so: the engine sorts
these by their durations, and then one is within the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.progress import Progress
from kernbench.trace.export.timeline import (
    COUNTERS_TITLE,
    Counter,
    Slices,
    Timeline,
    place_title,
    timeline_of,
)
from kernbench.trace.reader import Trace

_AT_ONCE = 8192
_BEGIN = '{"ph":"B","pid":%d,"tid":%d,"ts":%r,"name":%s,"cat":%s,"args":{%s}}'
_END = '{"ph":"E","pid":%d,"tid":%d,"ts":%r}'
_ARROW = '{"ph":"%s","bp":"e","pid":%d,"tid":%d,"ts":%r,"name":"%s","cat":"%s","id":%d}'
_TRACK_NAME = '{"ph":"M","pid":%d,"tid":%d,"ts":0,"name":"%s_name","args":{"name":%s}}'
_TRACK_ORDER = (
    '{"ph":"M","pid":%d,"tid":%d,"ts":0,"name":"%s_sort_index",'
    '"args":{"sort_index":%d}}'
)
_COUNTER = '{"ph":"C","pid":%d,"tid":%d,"ts":%r,"name":%s,"args":{"busy %%":%.2f}}'

# Strings are few, and occur often. The cache is safe to be used by several threads.
_quoted = lru_cache(1 << 16)(json.dumps)


def export_perfetto(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write the file; how many tracks, counter values, slices and arrow events.

    ``progress`` is called with the share of slices that are written.
    """
    timeline = timeline_of(trace)
    numbers = _Numbers(timeline)
    total = sum(len(slices.track) for slices in timeline.slices)
    done = 0
    with open(path, "w", encoding="utf-8") as file:
        about = {}
        for key in ("bench", "arguments", "kernbench"):
            about[key] = str(trace.header.get(key))
        head = f'"displayTimeUnit":"ns","otherData":{json.dumps(about)}'
        file.write(f'{{{head},"traceEvents":[\n')
        events = _Events(file)
        events.write("tracks", _track_events(timeline, numbers))
        events.write("counters", _counter_events(timeline.counters, numbers))
        for slices in timeline.slices:
            for first in range(0, len(slices.track), _AT_ONCE):
                end = first + _AT_ONCE
                arrows = dict[int, list[str]]()
                if slices is timeline.ops:
                    arrows = _arrow_events(timeline, numbers, first, end)
                texts = _slice_events(slices, numbers, first, end, arrows)
                events.write(slices.kind, texts)
                events.counts["arrows"] += sum(map(len, arrows.values()))
                done += len(slices.track[first:end])
                progress(done / total)
        file.write("\n]}\n")
    return events.counts


class _Events:
    """Writes events to a file, with commas between them, and counts them by kind.

    A slice with what belongs to it counts as one.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        kinds = ("tracks", "counters", "ops", "calls", "waits", "arrows")
        self.counts = dict.fromkeys(kinds, 0)

    def write(self, kind: str, events: list[str]) -> None:
        if not events:
            return
        if any(self.counts.values()):
            self._file.write(",\n")
        self._file.write(",\n".join(events))
        self.counts[kind] += len(events)


class _Numbers:
    """The pid and tid of each track, and the pid of the counters.

    Processes are numbered from 1, the counters behind the others, and threads from
    behind them: a thread of its process's number would be drawn as its main thread.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.counters = len(timeline.places) + 1
        places = [track.place for track in timeline.tracks]
        self.pid: Ints = np.array(places, np.int64) + 1
        self.tid: Ints = np.arange(len(places)) + self.counters + 1


def to_us(ns: Array) -> Floats:
    """Times in whole ns as us.

    A reader that makes ns of them again and cuts off gets the same ns: where the
    nearest us lies before it, the next number above is taken.
    """
    us = ns / 1e3
    is_below = np.floor(us * 1e3) < ns
    return np.where(is_below, np.nextafter(us, np.inf), us)


def _track_events(timeline: Timeline, numbers: _Numbers) -> list[str]:
    """The events that name and sort processes and threads."""
    events: list[str] = []
    for pid, place in enumerate(timeline.places, 1):
        events.append(_track(pid, 0, "process", place_title(place), pid))
    if timeline.counters:
        pid = numbers.counters
        events.append(_track(pid, 0, "process", COUNTERS_TITLE, pid))
    rows = zip(timeline.tracks, numbers.pid.tolist(), numbers.tid.tolist(), strict=True)
    for track, pid, tid in rows:
        events.append(_track(pid, tid, "thread", track.title, tid))
    return events


def _track(pid: int, tid: int, kind: str, title: str, order: int) -> str:
    """The two events, a line each, that name and sort a process or thread."""
    name = _TRACK_NAME % (pid, tid, kind, json.dumps(title))
    return name + ",\n" + _TRACK_ORDER % (pid, tid, kind, order)


def _slice_events(
    slices: Slices,
    numbers: _Numbers,
    first: int,
    end: int,
    arrows: Mapping[int, Sequence[str]],
) -> list[str]:
    """The events of each slice from ``first`` to before ``end``, a text a slice.

    ``arrows`` are the events of the arrows at some of them, by number of the slice.
    """
    track = slices.track[first:end]
    pids = numbers.pid[track].tolist()
    tids = numbers.tid[track].tolist()
    starts = to_us(slices.start_ns[first:end]).tolist()
    ends = to_us(slices.end_ns[first:end]).tolist()
    names = map(_quoted, slices.name[first:end])
    categories = map(_quoted, slices.category[first:end])
    args = _args(slices, first, end)
    begin_rows = zip(pids, tids, starts, names, categories, args, strict=True)
    end_rows = zip(pids, tids, ends, strict=True)
    texts: list[str] = []
    rows = zip(begin_rows, end_rows, strict=True)
    for number, (begin_row, end_row) in enumerate(rows, first):
        events = [_BEGIN % begin_row, *arrows.get(number, ()), _END % end_row]
        texts.append(",\n".join(events))
    return texts


def _args(slices: Slices, first: int, end: int) -> Iterator[str]:
    """The args of each slice; those that are None are left out."""
    columns = []
    for name, values in slices.args.items():
        columns.append([_arg(name, value) for value in values[first:end]])
    for row in zip(*columns, strict=True):
        yield ",".join(filter(None, row))


def _arg(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'"{name}":{_quoted(value)}'
    return f'"{name}":{value}'


def _arrow_events(
    timeline: Timeline, numbers: _Numbers, first: int, end: int
) -> dict[int, list[str]]:
    """The events of arrows at the ops from ``first`` to before ``end``, by op."""
    arrows = timeline.arrows
    low, high = np.searchsorted(arrows.op, (first, end))
    op = arrows.op[low:high]
    track = timeline.ops.track[op]
    titles = np.where(arrows.is_tile[low:high], "tile", "message")
    rows = _rows(
        arrows.phase[low:high],
        numbers.pid[track],
        numbers.tid[track],
        to_us(timeline.ops.start_ns[op]),
        titles,
        titles,
        arrows.number[low:high],
    )
    events = dict[int, list[str]]()
    for touched, row in zip(op.tolist(), rows, strict=True):
        events.setdefault(touched, []).append(_ARROW % row)
    return events


def _rows(*columns: Array) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _counter_events(counters: list[Counter], numbers: _Numbers) -> list[str]:
    events: list[str] = []
    pid = numbers.counters
    for counter in counters:
        title = json.dumps(counter.title)
        for ts, percent in _rows(to_us(counter.ns), counter.percents):
            events.append(_COUNTER % (pid, pid, ts, title, percent))
    return events

"""What the timeline asks.

These are the cells of the rows in view, and those that a view marks; and, while no key
comes, what makes further cells quick to find. Each function is ``(index, at, args,
progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.common.progress import Progress, stage
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.time.activity import ActivityCells
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.slices import Slice
from kernbench.replay.time.spans import window
from kernbench.replay.time.timeline import RowKey
from kernbench.replay.time.traffic import TrafficGroup, traffic_groups
from kernbench.replay.views.causes import Causes, causes_of

_CHUNK = 1 << 16
"""Ops that are looked at between two reports of progress; these take some 4 ms."""
_INSTANT_NS = 1e-9
"""An op that takes no time counts as in service for as long."""

Lanes: TypeAlias = dict[int, tuple[int, ...]]
"""By node the lanes in which it served ops, ascending; nodes that served none are not
in it.
"""


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Some rows of the timeline, and a window that they are drawn in.

    Each row is some components, and a lane of these or all. ``pes`` has for each row
    how many PEs are in it, 1 where there is none. The window is [t0, t1) ns, in
    ``columns`` equal cells.
    """

    rows: tuple[RowKey, ...]
    pes: tuple[int, ...]
    t0: float
    t1: float
    columns: int


@dataclass(frozen=True, slots=True)
class WindowCells:
    """A window of the timeline: [t0, t1) ns in ``columns`` equal cells."""

    t0: float
    t1: float
    columns: int


@dataclass(frozen=True, slots=True)
class SomeRows:
    """Some rows of the timeline, in whatever window."""

    rows: tuple[RowKey, ...]


@dataclass(frozen=True, slots=True)
class ComponentCells:
    """Some components by number, as ``ActivityIndex`` has them, and a window of time.

    The window is [t0, t1) ns, in ``columns`` equal cells.
    """

    components: tuple[int, ...]
    t0: float
    t1: float
    columns: int


@dataclass(frozen=True, slots=True)
class TrafficRows:
    """Some rows of components by number, as ``ActivityIndex`` has them, and a window.

    The window is [t0, t1) ns, in ``columns`` equal cells.
    """

    rows: tuple[tuple[int, ...], ...]
    t0: float
    t1: float
    columns: int


@dataclass(frozen=True, slots=True, eq=False)
class TrafficCells:
    """The shares of each cell in which the busiest component of a row is busy, and in
    which something waits for the one that is waited for longest.
    """

    busy: Floats
    waiting: Floats


# -- cells -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RowCells:
    """A row of the timeline in cells.

    ``letters`` has for each cell the letter of the class that is busy for most of it
    (see ``CLASSES``), a space where none is; ``busy`` the share of the cell in which
    the row's PEs are busy on the average, at most 1. ``slices`` are the ops that last
    for a cell at least, by their start.
    """

    letters: str
    busy: Floats
    slices: tuple[Slice, ...]


def cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[RowCells, ...]:
    """The cells of each row.

    Rows that are not indexed yet are indexed first, unless there is a summary of the
    window.
    """
    window = args.t0, args.t1, args.columns
    rows = tuple(dict.fromkeys(args.rows))
    drawn = index.timelines.draw_rows(rows, *window, stage(progress, 0.0, 0.7))
    slices = index.slices.slices(rows, *window, stage(progress, 0.7, 1.0))
    found = {}
    for row, line, ops in zip(rows, drawn, slices, strict=True):
        found[row] = line, ops
    answers = []
    for row, pes in zip(args.rows, args.pes, strict=True):
        progress(1.0)
        line, ops = found[row]
        busy = np.minimum(line.busy / pes, 1.0)
        busy.setflags(write=False)
        answers.append(RowCells(line.classes, busy, ops))
    return tuple(answers)


def activity_cells(
    index: Index, at: At, args: ComponentCells, progress: Progress
) -> ActivityCells:
    """Of each component, whether it serves ops or not, what share of a cell it is busy
    for, and for what share something waits there.
    """
    t0, t1 = window(index.launch_window, args.t0, args.t1)
    return index.activity.cells(args.components, t0, t1, args.columns, progress)


def traffic(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> tuple[TrafficGroup, ...]:
    """The components that carried anything and served no op, by what they are."""
    return traffic_groups(index.trace, index.op_index, index.activity, progress)


def traffic_cells(
    index: Index, at: At, args: TrafficRows, progress: Progress
) -> tuple[TrafficCells, ...]:
    """Of each row how busy the busiest of its components is in each cell."""
    found = []
    for number, components in enumerate(args.rows):
        low = number / len(args.rows)
        share = stage(progress, low, low + 1 / len(args.rows))
        cells = index.activity.cells(components, args.t0, args.t1, args.columns, share)
        busy = cells.busy.max(axis=0)
        waiting = cells.waiting.max(axis=0)
        busy.setflags(write=False)
        waiting.setflags(write=False)
        found.append(TrafficCells(busy, waiting))
    return tuple(found)


def causes(index: Index, at: At, args: NoArguments, progress: Progress) -> Causes:
    """What an op waited for, and what waited for it first."""
    return causes_of(index, at.op, progress)


def lanes(index: Index, at: At, args: NoArguments, progress: Progress) -> Lanes:
    """In which lanes every component served ops, by looking at all ops once."""
    log = index.trace.op_columns
    count = len(log.component)
    seen = np.empty(0, np.int64)
    for low in range(0, count, _CHUNK):
        progress(low / count)
        part = slice(low, low + _CHUNK)
        pairs = log.component[part].astype(np.int64) << 32 | log.slot[part]
        seen = np.union1d(seen, pairs)
    found: dict[int, list[int]] = {}
    for pair in seen.tolist():
        found.setdefault(pair >> 32, []).append(pair & 0xFFFFFFFF)
    return {node: tuple(slots) for node, slots in found.items()}


# -- marks -------------------------------------------------------------------------


def critical_cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[Bools, ...]:
    """Of each row which cells have an op of the critical path in service.

    The arrays are read-only and of the window's columns. What only waits on that path
    is not marked.
    """
    return _cells_with(index, _path_rows(index, progress), args, progress)


def critical_ops(index: Index, at: At, args: NoArguments, progress: Progress) -> Ints:
    """The positions of the ops in service on the critical path, ascending."""
    return _positions(index, _path_rows(index, progress))


def _path_rows(index: Index, progress: Progress) -> Ints:
    def found() -> Ints:
        path = index.critical.path(progress=progress)
        in_service = (path.ops >= 0) & (path.whats < len(CLASSES))
        return path.ops[in_service]

    return _marked_ops(index, "critical path", found)


def hazard_cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[Bools, ...]:
    """Of each row which cells have an op with a hazard in service, as
    ``critical_cells``.

    When it is asked for the first time everything is executed, to find the hazards.
    """
    return _cells_with(index, _hazard_rows(index, progress), args, progress)


def hazard_ops(index: Index, at: At, args: NoArguments, progress: Progress) -> Ints:
    """The positions of the ops with hazards, ascending."""
    return _positions(index, _hazard_rows(index, progress))


def _hazard_rows(index: Index, progress: Progress) -> Ints:
    def found() -> Ints:
        return index.hazards.ops(progress, both=True)

    return _marked_ops(index, "hazards", found)


def _positions(index: Index, rows: Ints) -> Ints:
    """The positions of ops that are in some rows of the log, by their start."""
    positions = np.sort(index.trace.position[rows]).astype(np.int64)
    positions.setflags(write=False)
    return positions


def _marked_ops(index: Index, name: str, find: Callable[[], Ints]) -> Ints:
    """The ops that a view marks, as rows of the log by their start.

    ``find`` gives their positions. It is called once for a view; the index keeps the
    ops.
    """
    ops = index.marked_ops.get(name)
    if ops is None:
        ops = index.trace.order[np.unique(find())].astype(np.int64)
        index.marked_ops[name] = ops
    return ops


def _cells_with(
    index: Index, ops: Ints, args: WindowRows, progress: Progress
) -> tuple[Bools, ...]:
    """Of each row which cells have any of ``ops`` in service; these are rows of the
    log, by their start.
    """
    log = index.trace.op_columns
    edges = np.linspace(args.t0, args.t1, args.columns + 1)
    nodes = log.component[ops]
    slots = log.slot[ops]
    starts = log.t_start[ops]
    ends = log.t_end[ops]
    found = []
    for i, (components, lane) in enumerate(args.rows):
        progress(i / len(args.rows))
        wanted = np.zeros(len(index.trace.node_ids), np.bool_)
        wanted[list(components)] = True
        mine = wanted[nodes]
        if lane is not None:
            mine &= slots == lane
        hit = cells_hit(starts[mine], ends[mine], edges)
        hit.setflags(write=False)
        found.append(hit)
    return tuple(found)


def cells_hit(starts: Floats, ends: Floats, edges: Floats) -> Bools:
    """Which cells some intervals from ``starts`` to ``ends`` lie in, wholly or in part,
    ns.

    ``edges`` bound the cells: there is one more of them. ``starts`` ascend. An interval
    of no length lies in the cell that it begins in.
    """
    lasting = np.maximum(ends, starts + _INSTANT_NS)
    latest_end = np.maximum.accumulate(np.append(-np.inf, lasting))
    begun = np.searchsorted(starts, edges[1:])
    return np.asarray(latest_end[begun] > edges[:-1])


# -- unasked -----------------------------------------------------------------------


def summary(index: Index, at: At, args: WindowCells, progress: Progress) -> bool:
    """Look at all ops once and keep a summary of the window.

    After that any row of this window is drawn without an index of its own.
    """
    index.timelines.summarize(args.t0, args.t1, args.columns, progress)
    return True


def indexed(index: Index, at: At, args: SomeRows, progress: Progress) -> bool:
    """Index some rows: after that they are drawn in any window within milliseconds."""
    missing = index.timelines.unindexed(args.rows).rows
    index.timelines.index_rows(missing, progress)
    return True

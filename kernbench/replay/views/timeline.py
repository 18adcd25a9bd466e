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
from kernbench.common.progress import Progress
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.time.activity import ActivityCells
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.spans import window
from kernbench.replay.time.timeline import RowKey

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


# -- cells -------------------------------------------------------------------------


def cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[str, ...]:
    """Of each row its cells, as a text of one character a cell.

    The character is the letter of the class that is busy for most of the cell (see
    ``CLASSES``), and a space where none is. It is small where less than half of the
    row's PEs are busy, on the average over the cell. Rows that are not indexed yet are
    indexed first, unless there is a summary of the window.
    """
    window = args.t0, args.t1, args.columns
    drawn = index.timelines.draw_rows(args.rows, *window, progress)
    texts = []
    for row, pes in zip(drawn, args.pes, strict=True):
        capitals = np.frombuffer(row.classes.encode(), np.uint8)
        small = np.frombuffer(row.classes.lower().encode(), np.uint8)
        letters = np.where(row.busy >= pes / 2, capitals, small)
        texts.append(letters.tobytes().decode())
    return tuple(texts)


def activity_cells(
    index: Index, at: At, args: ComponentCells, progress: Progress
) -> ActivityCells:
    """Of each component, whether it serves ops or not, what share of a cell it is busy
    for, and for what share something waits there.
    """
    t0, t1 = window(index.launch_window, args.t0, args.t1)
    return index.activity.cells(args.components, t0, t1, args.columns, progress)


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

    def found() -> Ints:
        path = index.critical.path(progress=progress)
        in_service = (path.ops >= 0) & (path.whats < len(CLASSES))
        return path.ops[in_service]

    ops = _marked_ops(index, "critical path", found)
    return _cells_with(index, ops, args, progress)


def hazard_cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[Bools, ...]:
    """Of each row which cells have an op with a hazard in service, as
    ``critical_cells``.

    When it is asked for the first time everything is executed, to find the hazards.
    """

    def found() -> Ints:
        return index.hazards.ops(progress, both=True)

    ops = _marked_ops(index, "hazards", found)
    return _cells_with(index, ops, args, progress)


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

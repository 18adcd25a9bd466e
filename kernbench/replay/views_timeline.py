"""What the timeline asks: the cells of its rows, what its views mark in them, and what
is worth computing before anybody asks.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.common.progress import Progress
from kernbench.replay import questions
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.time.timeline import CLASSES, Row

_CHUNK = 1 << 16
"""Ops that are looked at between two reports of progress; some 4 ms."""
_INSTANT_NS = 1e-9
"""For how long an op counts as in service that takes no time."""

Lanes: TypeAlias = dict[int, tuple[int, ...]]
"""By node the lanes in which it served ops, ascending."""


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows of the timeline over [t0, t1) ns, in ``columns`` equal cells.

    ``pes`` says of each row how many PEs are in it, 1 where there is none: a cell
    counts as full while half of these are busy.
    """

    rows: tuple[Row, ...]
    pes: tuple[int, ...]
    t0: float
    t1: float
    columns: int


@dataclass(frozen=True, slots=True)
class WindowCells:
    """The window [t0, t1) ns in ``columns`` equal cells."""

    t0: float
    t1: float
    columns: int


@dataclass(frozen=True, slots=True)
class SomeRows:
    """Rows of the timeline."""

    rows: tuple[Row, ...]


# -- cells -------------------------------------------------------------------------


def cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[str, ...]:
    """The cells of each row, a character a cell.

    It is the letter of the class that is busy for most of the cell (see ``CLASSES``),
    in small where the row is busy for less than half of it, and a space where it is
    idle. Indexes the rows that are not indexed yet.
    """
    window = args.t0, args.t1, args.columns
    missing, _ = index.timelines.missing(args.rows, window)
    index.timelines.prime(missing, progress)
    drawn = index.timelines.draw_rows(args.rows, *window)
    texts = []
    for row, pes in zip(drawn, args.pes, strict=True):
        capitals = np.frombuffer(row.classes.encode(), np.uint8)
        small = np.frombuffer(row.classes.lower().encode(), np.uint8)
        letters = np.where(row.busy >= pes / 2, capitals, small)
        texts.append(letters.tobytes().decode())
    return tuple(texts)


def lanes(index: Index, at: At, args: NoArguments, progress: Progress) -> Lanes:
    """The lanes of every node that served ops."""
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
    """The cells of each row in which an op of the critical path is in service;
    read-only.
    """

    def found() -> Ints:
        path = index.critical(progress).path()
        in_service = (path.ops >= 0) & (path.whats < len(CLASSES))
        return path.ops[in_service]

    ops = _marked_ops(index, "critical path", found)
    return _cells_with(index, ops, args, progress)


def hazard_cells(
    index: Index, at: At, args: WindowRows, progress: Progress
) -> tuple[Bools, ...]:
    """The cells of each row in which an op with a hazard is in service; read-only.

    Executes everything when it is asked for the first time.
    """

    def found() -> Ints:
        touches = questions.hazards(index, at, NoArguments(), progress)
        rows = [touch.op for touch in touches.rows]
        rows += [touch.other for touch in touches.rows if touch.other is not None]
        return np.array([row.op for row in rows], np.int64)

    ops = _marked_ops(index, "hazards", found)
    return _cells_with(index, ops, args, progress)


def _marked_ops(index: Index, name: str, find: Callable[[], Ints]) -> Ints:
    """The rows of the log that a view marks, by their start; found once and kept."""
    ops = index.marked_ops.get(name)
    if ops is None:
        ops = index.trace.order[np.unique(find())].astype(np.int64)
        index.marked_ops[name] = ops
    return ops


def _cells_with(
    index: Index, ops: Ints, args: WindowRows, progress: Progress
) -> tuple[Bools, ...]:
    """The cells of each row in which any of ``ops``, rows of the log by start, is in
    service.
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
    """The cells between ``edges``, ns, in which some interval lies at least partly.

    Intervals ascend by start; one of no length lies in the cell that it begins in.
    """
    lasting = np.maximum(ends, starts + _INSTANT_NS)
    latest_end = np.maximum.accumulate(np.append(-np.inf, lasting))
    begun = np.searchsorted(starts, edges[1:])
    return np.asarray(latest_end[begun] > edges[:-1])


# -- unasked -----------------------------------------------------------------------


def summary(index: Index, at: At, args: WindowCells, progress: Progress) -> bool:
    """Look at all ops once: no row of this window needs an index of its own then."""
    index.timelines.survey(args.t0, args.t1, args.columns, progress)
    return True


def indexed(index: Index, at: At, args: SomeRows, progress: Progress) -> bool:
    """Index rows: any other window of them is drawn at once then."""
    missing, _ = index.timelines.missing(args.rows)
    index.timelines.prime(missing, progress)
    return True

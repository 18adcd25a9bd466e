"""The tiles of a composite: a row a TileToken, its spans by stage and the waits between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kernbench.trace import Trace

_STAGES = ("DMA_READ", "FETCH", "GEMM", "MATH", "STORE", "DMA_WRITE")
STAGE_LETTERS = dict(zip(_STAGES, "RFGMSW", strict=True))
_TILE = "TileToken/"
Index: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Span:
    """One stage of a tile, in service from t0 to t1 (ns); ``op`` is its canonical position."""

    stage: str
    t0: float
    t1: float
    op: int


@dataclass(frozen=True, slots=True)
class TileWait:
    """A tile queued at ``node`` for ``reason`` (ns)."""

    node: str
    reason: str
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class TileRow:
    """One tile: index, origin and extent are (m, n, k)."""

    index: Index
    origin: Index
    extent: Index
    spans: tuple[Span, ...]
    waits: tuple[TileWait, ...]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of one composite, sorted by first stage; ``composite`` is its canonical position
    or None.
    """

    composite: int | None
    component: str
    t0: float
    t1: float
    rows: tuple[TileRow, ...]
    current: int | None
    note: str = ""


def tiles_of(trace: Trace, position: int) -> Tiles:
    """The tiles of the composite that op ``position`` belongs to, or of the one that started last
    before it.
    """
    cmd = _composite_cmd(trace, position)
    if cmd is None:
        return Tiles(None, "", 0.0, 0.0, (), None, "no composite has run in this trace")
    composite, component, found = None, "", dict[Index, tuple[Index, Index, list[Span]]]()
    waits: dict[Index, list[TileWait]] = {}
    for at in np.sort(trace.position[np.flatnonzero(trace.op_columns.cmd == cmd)]).tolist():
        record = trace.ops[at]
        if not record.op_name.startswith(_TILE):
            composite, component = at, record.component_id
            continue
        p, index = record.params, record.params["tile_index"]
        span = Span(p["stage_type"], record.t_start, record.t_end, at)
        found.setdefault(index, (p["origin"], p["extent"], []))[2].append(span)
        waited = trace.waits_of(int(trace.order[at]))
        waits.setdefault(index, []).extend(TileWait(*wait[:4]) for wait in waited)
    table = [
        TileRow(index, origin, extent, tuple(spans), tuple(waits[index]))
        for index, (origin, extent, spans) in found.items()
    ]
    table.sort(key=lambda tile: (tile.spans[0].t0, tile.spans[0].op))
    current = next((i for i, t in enumerate(table) if any(s.op == position for s in t.spans)), None)
    t0 = min((tile.spans[0].t0 for tile in table), default=0.0)
    t1 = max((tile.spans[-1].t1 for tile in table), default=0.0)
    return Tiles(composite, component, t0, t1, tuple(table), current)


def composite_of(trace: Trace, op: int) -> int | None:
    """The composite that the tile at ``op`` is of; None for other ops, or if it never ended."""
    if not trace.ops[op].op_name.startswith(_TILE):
        return None
    cmds = trace.op_columns.cmd
    same = trace.position[np.flatnonzero(cmds == cmds[trace.order[op]])].tolist()
    return next((p for p in same if trace.ops[p].op_name.startswith("composite_")), None)


def _composite_cmd(trace: Trace, position: int) -> int | None:
    """The cmd of the composite of ``position``, else of the last one started by then, else of the
    first.
    """
    columns, order = trace.op_columns, trace.order
    names = [i for i, text in enumerate(trace.strings) if text.startswith("composite_")]
    whole = np.flatnonzero(np.isin(columns.name[order], names))
    if position >= 0:
        cmd = int(columns.cmd[order[position]])
        if trace.ops[position].op_name.startswith(_TILE) or cmd in columns.cmd[order[whole]]:
            return cmd
    before = max(int(np.searchsorted(whole, position, side="right")) - 1, 0)
    return int(columns.cmd[order[whole[before]]]) if len(whole) else None

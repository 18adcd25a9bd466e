"""The tiles of a composite: a row a TileToken, its spans by stage and the waits between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.trace import Trace

STAGES = ("DMA_READ", "FETCH", "GEMM", "MATH", "STORE", "DMA_WRITE")
STAGE_LETTERS = dict(zip(STAGES, "RFGMSW", strict=True))


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

    reason: str
    node: str
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class TileRow:
    """One tile: index, origin and extent are (m, n, k)."""

    index: tuple[int, int, int]
    origin: tuple[int, int, int]
    extent: tuple[int, int, int]
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
    columns = trace.op_columns
    cmd = _composite_cmd(trace, position)
    if cmd is None:
        return Tiles(None, "", 0.0, 0.0, (), None, "no composite has run in this trace")
    rows = np.flatnonzero(columns.cmd == cmd)
    found: dict[tuple[int, int, int], tuple[dict[str, object], list[Span], list[TileWait]]] = {}
    composite: int | None = None
    component = ""
    for row in rows[np.argsort(trace.position[rows])].tolist():
        at = int(trace.position[row])
        record = trace.ops[at]
        if not record.op_name.startswith("TileToken/"):
            composite, component = at, record.component_id
            continue
        _, spans, waits = found.setdefault(record.params["tile_index"], (record.params, [], []))
        spans.append(Span(record.params["stage_type"], record.t_start, record.t_end, at))
        waits += [TileWait(why, node, t0, t1) for node, why, t0, t1, _ in trace.waits_of(row)]
    table = [
        TileRow(index, params["origin"], params["extent"], tuple(spans), tuple(waits))  # type: ignore[arg-type]
        for index, (params, spans, waits) in found.items()
    ]
    table.sort(key=lambda tile: (tile.spans[0].t0, tile.spans[0].op))
    current = next((i for i, t in enumerate(table) if any(s.op == position for s in t.spans)), None)
    t0 = min((tile.spans[0].t0 for tile in table), default=0.0)
    t1 = max((tile.spans[-1].t1 for tile in table), default=0.0)
    return Tiles(composite, component, t0, t1, tuple(table), current)


def composite_of(trace: Trace, op: int) -> int | None:
    """The composite that the tile at ``op`` is of; None for other ops, or if it never ended."""
    if not trace.ops[op].op_name.startswith("TileToken/"):
        return None
    columns = trace.op_columns
    rows = np.flatnonzero(columns.cmd == columns.cmd[trace.order[op]])
    names = ((p, trace.ops[p].op_name) for p in trace.position[rows].tolist())
    return next((p for p, name in names if name.startswith("composite_")), None)


def _composite_cmd(trace: Trace, position: int) -> int | None:
    """The cmd of the composite of ``position``, else of the last one started by then, else of the
    first.
    """
    columns = trace.op_columns
    composites = {i for i, s in enumerate(trace.strings) if s.startswith("composite_")}
    is_composite = np.isin(columns.name, np.array(sorted(composites), np.int64))
    positions = np.sort(trace.position[np.flatnonzero(is_composite)])
    if 0 <= position < len(trace.ops):
        cmd = int(columns.cmd[trace.order[position]])
        is_tile = trace.ops[position].op_name.startswith("TileToken/")
        if is_tile or np.any(columns.cmd[is_composite] == cmd):
            return cmd
    if not len(positions):
        return None
    before = np.searchsorted(positions, position, side="right") - 1
    return int(columns.cmd[trace.order[positions[max(int(before), 0)]]])

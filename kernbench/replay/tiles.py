"""The tiles of a composite: a row a TileToken, its spans by stage and the waits between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kernbench.replay.text import time_text
from kernbench.sim_engine.accesses import Ints
from kernbench.sim_engine.op_log import OpRecord
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
    """Those of one composite, by first stage; ``composite`` is its canonical position or None."""

    composite: int | None
    component: str
    t0: float
    t1: float
    rows: tuple[TileRow, ...]
    current: int | None
    note: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if not self.rows:
            return [self.note]
        whole = f"composite #{self.composite} on {self.component}"
        whole = "a composite that never ended" if self.composite is None else whole
        cells, lines = max(width - 14, 10), list[str]()
        scale = max(self.t1 - self.t0, 1e-9) / cells
        for i, tile in enumerate(self.rows):
            strip = [" "] * cells
            bars = [(".", wait.t0, wait.t1) for wait in tile.waits]
            bars += [(STAGE_LETTERS[span.stage], span.t0, span.t1) for span in tile.spans]
            for letter, *times in bars:
                low, high = (int((t - self.t0) / scale) for t in times)
                for cell in range(max(low, 0), min(max(high, low + 1), cells)):
                    strip[cell] = letter
            mark = ">" if i == self.current else " "
            lines.append(f"{mark}{','.join(map(str, tile.index)):<11} |" + "".join(strip))
        return [f"{whole}: {len(self.rows)} tiles, {time_text(self.t1 - self.t0)}", *lines]


def tiles_of(trace: Trace, position: int) -> Tiles:
    """The tiles of the composite of op ``position``, else of the last that started before it."""
    cmds = trace.op_columns.cmd[trace.order]
    cmd = _composite_cmd(trace, cmds, position)
    if cmd is None:
        return Tiles(None, "", 0.0, 0.0, (), None, "no composite has run in this trace")
    composite, component, tiles = None, "", dict[Index, list[tuple[int, OpRecord]]]()
    for op in np.flatnonzero(cmds == cmd).tolist():
        record = trace.ops[op]
        if record.op_name.startswith(_TILE):
            tiles.setdefault(record.params["tile_index"], []).append((op, record))
        else:
            composite, component = op, record.component_id
    rows = tuple(_row(trace, stages) for stages in tiles.values())
    current = next((i for i, t in enumerate(rows) if any(s.op == position for s in t.spans)), None)
    t0 = rows[0].spans[0].t0 if rows else 0.0
    t1 = max((tile.spans[-1].t1 for tile in rows), default=0.0)
    return Tiles(composite, component, t0, t1, rows, current)


def _row(trace: Trace, stages: list[tuple[int, OpRecord]]) -> TileRow:
    spans = tuple(Span(r.params["stage_type"], r.t_start, r.t_end, op) for op, r in stages)
    waits = [wait for op, _ in stages for wait in trace.waits_of(int(trace.order[op]))]
    p = stages[0][1].params
    queued = tuple(TileWait(*wait[:4]) for wait in waits)
    return TileRow(p["tile_index"], p["origin"], p["extent"], spans, queued)


def composite_of(trace: Trace, op: int) -> int | None:
    """The composite that ``op`` is, or is a tile of; None if there is none, or it never ended."""
    cmds = trace.op_columns.cmd
    same = trace.position[np.flatnonzero(cmds == cmds[trace.order[op]])].tolist()
    return next((p for p in same if trace.ops[p].op_name.startswith("composite_")), None)


def _composite_cmd(trace: Trace, cmds: Ints, position: int) -> int | None:
    """Of the composite of ``position``, else of the last started by then, else of the first."""
    names = [i for i, text in enumerate(trace.strings) if text.startswith("composite_")]
    whole = np.flatnonzero(np.isin(trace.op_columns.name[trace.order], names))
    if position >= 0 and (
        cmds[position] in cmds[whole] or trace.ops[position].op_name.startswith(_TILE)
    ):
        return int(cmds[position])
    before = max(int(np.searchsorted(whole, position, side="right")) - 1, 0)
    return int(cmds[whole[before]]) if len(whole) else None

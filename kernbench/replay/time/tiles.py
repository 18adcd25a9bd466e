"""The tiles of a composite: a row a TileToken, its spans by stage and the waits between."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.messages import Wait
from kernbench.replay.text import count_text, time_text
from kernbench.trace import Trace
from kernbench.trace.hops import integers, named

_STAGES = ("DMA_READ", "FETCH", "GEMM", "MATH", "STORE", "DMA_WRITE")
STAGE_LETTERS = dict(zip(_STAGES, "RFGMSW", strict=True))
_TILE = "TileToken/"
_AHEAD = 1 << 16  # rows to look at in one go
_KEPT = 256  # composites, as many as PEs that step in turn
_BOXES = [
    f"{box}.{axis}" for box in ("tile_index", "origin", "extent") for axis in range(3)
]
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
            bars += [
                (STAGE_LETTERS[span.stage], span.t0, span.t1) for span in tile.spans
            ]
            for letter, *times in bars:
                low, high = (int((t - self.t0) / scale) for t in times)
                for cell in range(max(low, 0), min(max(high, low + 1), cells)):
                    strip[cell] = letter
            mark = ">" if i == self.current else " "
            lines.append(
                f"{mark}{','.join(map(str, tile.index)):<11} |" + "".join(strip)
            )
        whole += (
            f": {count_text(len(self.rows), 'tile')}, {time_text(self.t1 - self.t0)}"
        )
        return [whole, *lines]


@dataclass(frozen=True, slots=True)
class TileWindow:
    """The tiles that were in some stage in [t0, t1) ns, by composite; ``more`` are not listed."""

    t0: float
    t1: float
    composites: tuple[Tiles, ...]
    more: int

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [line for tiles in self.composites for line in tiles.lines(width)]
        lines += [f"{self.more} more composites"] * (self.more > 0)
        return lines or [f"no tile from {time_text(self.t0)} to {time_text(self.t1)}"]


class _Stage(NamedTuple):
    """An op of a tile: its position and row; ``box`` is the tile's: _BOXES."""

    op: int
    row: int
    span: Span
    box: list[int]


class Composites:
    """All composites of a trace; the tiles of those that were asked for last are kept."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._kept: dict[
            int, tuple[Tiles, dict[int, int]]
        ] = {}  # by cmd; and where an op is

    @cached_property
    def positions(self) -> Ints:
        """Those that ended, in canonical order."""
        return np.flatnonzero(named(self._trace, "composite_")[self._trace.order])

    def tiles_of(self, position: int) -> Tiles:
        """The tiles of the composite of op ``position``, else of the last that started before it,
        else of the first.
        """
        trace = self._trace
        name = trace.ops[position].op_name if position >= 0 else ""
        if not name.startswith((_TILE, "composite_")):
            if not len(self.positions):
                return Tiles(
                    None, "", 0.0, 0.0, (), None, "no composite has run in this trace"
                )
            before = int(np.searchsorted(self.positions, position, side="right")) - 1
            position = int(self.positions[max(before, 0)])
        cmd = int(trace.op_columns.cmd[trace.order[position]])
        kept = self._kept.get(cmd)
        if kept is None:
            tiles = self._tiles(cmd, position)
            kept = (
                tiles,
                {s.op: i for i, row in enumerate(tiles.rows) for s in row.spans},
            )
            self._kept = dict([*self._kept.items()][-_KEPT:]) | {cmd: kept}
        return replace(kept[0], current=kept[1].get(position))

    def between(self, t0: float, t1: float, limit: int = 64) -> TileWindow:
        """The tiles of [t0, t1) ns, of at most ``limit`` composites, the first to start first."""
        columns, rows = self._trace.op_columns, self._trace.order[self.positions]
        inside = (columns.t_start[rows] < t1) & (columns.t_end[rows] > t0)
        found = self.positions[inside].tolist()
        shown = []
        for position in found[:limit]:
            tiles = self.tiles_of(position)
            seen = (r for r in tiles.rows if r.spans[0].t0 < t1 and r.spans[-1].t1 > t0)
            shown.append(replace(tiles, rows=tuple(seen)))
        return TileWindow(t0, t1, tuple(shown), len(found) - len(shown))

    def _tiles(self, cmd: int, position: int) -> Tiles:
        """The tiles of a call, ``position`` is an op of it."""
        trace, composite = self._trace, composite_of(self._trace, position)
        columns, component = trace.op_columns, ""
        low, high = 0, len(trace.order)
        if composite is not None:  # it covers its tiles, and they ended before it
            component, row = (
                trace.ops[composite].component_id,
                int(trace.order[composite]),
            )
            low, high = bisect_left(columns.t_end, columns.t_start[row]), row
        elif (call := trace.command(cmd)) is not None:
            low = bisect_left(columns.t_end, call.t_issue)
        found = low + np.flatnonzero(columns.cmd[low:high] == cmd)
        tiles = dict[tuple[int, ...], list[_Stage]]()
        for stage in sorted(self._stages(found)) if len(found) else ():
            tiles.setdefault(tuple(stage.box[:3]), []).append(stage)
        waits = trace.waits_by(
            [stage.row for stages in tiles.values() for stage in stages]
        )
        rows = tuple(_row(stages, waits) for stages in tiles.values())
        t0 = rows[0].spans[0].t0 if rows else 0.0
        t1 = max((tile.spans[-1].t1 for tile in rows), default=0.0)
        return Tiles(composite, component, t0, t1, rows, None)

    def _stages(self, rows: Ints) -> Iterator[_Stage]:
        """The ops of tiles among ``rows``, as far as their params say what a tile's do."""
        columns, found = self._trace.op_columns, list[tuple[int, str, list[int]]]()
        for block in self._trace.param_blocks(rows):
            stage, ints = block.schema.name.removeprefix(_TILE), integers(block)
            boxes = [ints[name] for name in _BOXES if name in ints]
            if stage in STAGE_LETTERS and len(boxes) == len(_BOXES):
                numbers = np.stack(boxes, 1, dtype=np.int64).tolist()
                found += zip(
                    block.rows.tolist(), [stage] * len(numbers), numbers, strict=True
                )
        mine = np.array([row for row, *_ in found], np.int64)
        cells = (
            x[mine].tolist()
            for x in (self._trace.position, columns.t_start, columns.t_end)
        )
        for (row, stage, box), op, t0, t1 in zip(found, *cells, strict=True):
            yield _Stage(op, row, Span(stage, t0, t1, op), box)


def _row(stages: list[_Stage], waits: dict[int, list[Wait]]) -> TileRow:
    spans = tuple(stage.span for stage in stages)
    queued = tuple(
        TileWait(*wait[:4]) for stage in stages for wait in waits.get(stage.row, ())
    )
    m, n, k, *box = stages[0].box
    return TileRow(
        (m, n, k), (box[0], box[1], box[2]), (box[3], box[4], box[5]), spans, queued
    )


def composite_of(trace: Trace, op: int) -> int | None:
    """The composite that ``op`` is, or is a tile of; None if there is none, or it never ended."""
    columns, row = trace.op_columns, int(trace.order[op])
    if not trace.ops[op].op_name.startswith((_TILE, "composite_")):
        return None
    for start in range(row, len(columns.cmd), _AHEAD):  # it ends after its tiles
        same = start + np.flatnonzero(
            columns.cmd[start : start + _AHEAD] == columns.cmd[row]
        )
        for other in same.tolist():
            if trace.strings[columns.name[other]].startswith("composite_"):
                return int(trace.position[other])
    return None

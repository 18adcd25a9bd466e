"""The tiles of composites: a row a tile, with its stages and the waits between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.messages import Wait
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.op_classes import (
    COMPOSITE_PREFIX,
    STAGE_LETTERS,
    TILE_PREFIX,
)
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.steps import map_logs
from kernbench.trace import Trace
from kernbench.trace.hops import integers

_AHEAD = 1 << 16  # rows to look at in one go
_KEPT = 256  # composites, as many as PEs that step in turn
_BOXES = [
    f"{box}.{axis}" for box in ("tile_index", "origin", "extent") for axis in range(3)
]
Index: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Span:
    """One stage of a tile, in service from t0 to t1 (ns); ``op`` is its position."""

    stage: str
    t0: float
    t1: float
    op: int


@dataclass(frozen=True, slots=True)
class TileWait:
    """A tile queued at ``node`` for ``reason``, from t0 to t1 (ns)."""

    node: str
    reason: str
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class TileRow:
    """One tile: its index, origin and extent are along (m, n, k)."""

    index: Index
    origin: Index
    extent: Index
    spans: tuple[Span, ...]
    waits: tuple[TileWait, ...]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of one composite, in the order of their first stages.

    ``composite`` is its position, None if it never ended; ``current`` is the row of the
    op that was asked about, None if that is in no tile. ``note`` says why there is no
    row at all.
    """

    composite: int | None
    component: str
    t0: float
    t1: float
    rows: tuple[TileRow, ...]
    current: int | None
    note: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: a strip a tile, with a letter for each stage and dots for waits."""
        if not self.rows:
            return [self.note]
        cells = max(width - 14, 10)
        lines = [self._title()]
        for number, tile in enumerate(self.rows):
            mark = ">" if number == self.current else " "
            index = ",".join(map(str, tile.index))
            lines.append(f"{mark}{index:<11} |{self._strip(tile, cells)}")
        return lines

    def _title(self) -> str:
        """Which composite it is, how many tiles it has, how long it took."""
        whole = "a composite that never ended"
        if self.composite is not None:
            whole = f"composite #{self.composite} on {self.component}"
        took = time_text(self.t1 - self.t0)
        return f"{whole}: {count_text(len(self.rows), 'tile')}, {took}"

    def _strip(self, tile: TileRow, cells: int) -> str:
        """A tile as so many characters over the time of the whole composite."""
        strip = [" "] * cells
        cell_ns = max(self.t1 - self.t0, 1e-9) / cells
        bars = [(".", wait.t0, wait.t1) for wait in tile.waits]
        bars += [(STAGE_LETTERS[span.stage], span.t0, span.t1) for span in tile.spans]
        for letter, t0, t1 in bars:
            low = int((t0 - self.t0) / cell_ns)
            high = int((t1 - self.t0) / cell_ns)
            for cell in range(max(low, 0), min(max(high, low + 1), cells)):
                strip[cell] = letter
        return "".join(strip)


@dataclass(frozen=True, slots=True)
class TileWindow:
    """The tiles that were in some stage in [t0, t1) ns, by composite.

    ``more`` is how many further composites are not listed.
    """

    t0: float
    t1: float
    composites: tuple[Tiles, ...]
    more: int

    def lines(self, width: int) -> list[str]:
        """As text, one composite after the other."""
        lines = [line for tiles in self.composites for line in tiles.lines(width)]
        if self.more > 0:
            lines.append(f"{self.more} more composites")
        return lines or [f"no tile from {time_text(self.t0)} to {time_text(self.t1)}"]


class _Stage(NamedTuple):
    """An op that is one stage of a tile: its position, its row of the log, its span.

    ``box`` has the tile's index, origin and extent, in the order of _BOXES.
    """

    op: int
    row: int
    span: Span
    box: list[int]


class _Known(NamedTuple):
    """The tiles of one composite, and in which row the op at a position is."""

    tiles: Tiles
    row_of: dict[int, int]


class TileIndex:
    """Answers about the tiles of composites, at once for an op.

    The composites that were asked for last are kept. Any thread may ask: the table of
    those is never changed but replaced by another, and if two threads do that at the
    same time, one composite is looked up once more.
    """

    def __init__(self, trace: Trace, ops: OpIndex) -> None:
        self._trace = trace
        self._ops = ops
        self._known: dict[int, _Known] = {}  # by cmd

    def prepare(self, progress: Progress = no_progress) -> None:
        """Read what the first question would have to: calls and waits, frame by frame.

        For a million ops that takes some 40 ms. A loader calls it, after the ops' own
        ``prepare``; from then on the tiles of any op are there in some ms.
        """
        trace = self._trace
        map_logs(trace, progress, "commands", "waits")
        computed_beside(lambda: trace.command(0), progress, 0.5)
        computed_beside(lambda: trace.waits_by([0]), progress, 0.5)

    @property
    def positions(self) -> Ints:
        """The positions of the composites that have ended, ascending."""
        return self._ops.composites

    def tiles_of(self, position: int) -> Tiles:
        """The tiles of the composite that the op at ``position`` is, or is a tile of.

        For other ops it is the last composite before them, or else the first of all.
        """
        trace = self._trace
        name = trace.ops[position].op_name if position >= 0 else ""
        if not name.startswith((TILE_PREFIX, COMPOSITE_PREFIX)):
            composites = self.positions
            if not len(composites):
                note = "no composite has run in this trace"
                return Tiles(None, "", 0.0, 0.0, (), None, note)
            before = int(np.searchsorted(composites, position, side="right")) - 1
            position = int(composites[max(before, 0)])
        cmd = int(trace.op_columns.cmd[trace.order[position]])
        known = self._known.get(cmd)
        if known is None:
            tiles = self._tiles(cmd, position)
            row_of = {}
            for number, row in enumerate(tiles.rows):
                for span in row.spans:
                    row_of[span.op] = number
            known = _Known(tiles, row_of)
            newest = [*self._known.items()][-_KEPT:]
            self._known = dict(newest) | {cmd: known}
        return replace(known.tiles, current=known.row_of.get(position))

    def between(
        self, t0: float, t1: float, limit: int = 64, progress: Progress = no_progress
    ) -> TileWindow:
        """The tiles in some stage in [t0, t1) ns, of the first ``limit`` composites."""
        self.prepare(progress)
        columns = self._trace.op_columns
        rows = self._trace.order[self.positions]
        inside = (columns.t_start[rows] < t1) & (columns.t_end[rows] > t0)
        found = self.positions[inside].tolist()
        listed = found[:limit]
        shown = []
        for number, position in enumerate(listed):
            progress(number / len(listed))
            tiles = self.tiles_of(position)
            seen = []
            for row in tiles.rows:
                if row.spans[0].t0 < t1 and row.spans[-1].t1 > t0:
                    seen.append(row)
            shown.append(replace(tiles, rows=tuple(seen)))
        return TileWindow(t0, t1, tuple(shown), len(found) - len(shown))

    def _tiles(self, cmd: int, position: int) -> Tiles:
        """The tiles of the call ``cmd``, one of whose ops is at ``position``."""
        trace = self._trace
        columns = trace.op_columns
        composite = composite_of(trace, position)
        component = ""
        low = 0
        high = len(trace.order)
        if composite is not None:
            # It lasts for as long as its tiles, and is logged after they have ended.
            component = trace.ops[composite].component_id
            high = int(trace.order[composite])
            low = bisect_left(columns.t_end, columns.t_start[high])
        elif (call := trace.command(cmd)) is not None:
            low = bisect_left(columns.t_end, call.t_issue)
        found = low + np.flatnonzero(columns.cmd[low:high] == cmd)

        tiles = dict[tuple[int, ...], list[_Stage]]()
        if len(found):
            for stage in sorted(self._stages(found)):
                tiles.setdefault(tuple(stage.box[:3]), []).append(stage)
        waits = trace.waits_by(
            [stage.row for stages in tiles.values() for stage in stages]
        )
        rows = tuple(_tile_row(stages, waits) for stages in tiles.values())
        t0 = rows[0].spans[0].t0 if rows else 0.0
        t1 = max((tile.spans[-1].t1 for tile in rows), default=0.0)
        return Tiles(composite, component, t0, t1, rows, None)

    def _stages(self, rows: Ints) -> Iterator[_Stage]:
        """The ops among ``rows`` whose params say of which tile they are a stage.

        Those of a damaged file may not: they are left out.
        """
        names = []
        boxes = []
        found = [np.empty(0, np.int64)]
        for block in self._trace.param_blocks(rows):
            stage = block.schema.name.removeprefix(TILE_PREFIX)
            numbers = integers(block)
            columns = [numbers[name] for name in _BOXES if name in numbers]
            if stage in STAGE_LETTERS and len(columns) == len(_BOXES):
                names += [stage] * len(block.rows)
                boxes += np.stack(columns, 1, dtype=np.int64).tolist()
                found.append(block.rows)
        mine = np.concatenate(found)
        log = self._trace.op_columns
        cells = zip(
            names,
            boxes,
            mine.tolist(),
            self._trace.position[mine].tolist(),
            log.t_start[mine].tolist(),
            log.t_end[mine].tolist(),
            strict=True,
        )
        for stage, box, row, op, t0, t1 in cells:
            yield _Stage(op, row, Span(stage, t0, t1, op), box)


def _tile_row(stages: list[_Stage], waits: dict[int, list[Wait]]) -> TileRow:
    """One tile from its stages, which are in order, and the waits of ops by row."""
    queued = []
    for stage in stages:
        for node, reason, t0, t1, _ in waits.get(stage.row, ()):
            queued.append(TileWait(node, reason, t0, t1))
    m, n, k, m0, n0, k0, m_size, n_size, k_size = stages[0].box
    return TileRow(
        index=(m, n, k),
        origin=(m0, n0, k0),
        extent=(m_size, n_size, k_size),
        spans=tuple(stage.span for stage in stages),
        waits=tuple(queued),
    )


def composite_of(trace: Trace, op: int) -> int | None:
    """The position of the composite that the op at ``op`` is, or is a tile of.

    None if it is neither, or if that composite never ended. It is looked for from the
    op on, as a composite is logged when its last tile has ended.
    """
    columns = trace.op_columns
    if not trace.ops[op].op_name.startswith((TILE_PREFIX, COMPOSITE_PREFIX)):
        return None
    row = int(trace.order[op])
    cmd = columns.cmd[row]
    for start in range(row, len(columns.cmd), _AHEAD):  # it ends after its tiles
        same = np.flatnonzero(columns.cmd[start : start + _AHEAD] == cmd)
        for other in (start + same).tolist():
            if trace.strings[columns.name[other]].startswith(COMPOSITE_PREFIX):
                return int(trace.position[other])
    return None

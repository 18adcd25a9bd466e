"""The tiles of composites: a row a tile, with its stages and the waits between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.messages import Wait
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.op_classes import (
    COMPOSITE_PREFIX,
    STAGE_LETTERS,
    TILE_PREFIX,
)
from kernbench.replay.time.op_index import OpIndex
from kernbench.trace import Trace
from kernbench.trace.hops import integers

_KEPT = 256  # composites, as many as PEs that step in turn
NO_COMPOSITE = "no composite has run in this trace"
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


def waited_ns(waits: Sequence[TileWait]) -> float:
    """For how long at least one of some waits lasts, ns.

    The reads of a tile's operands wait at the same time.
    """
    waited = 0.0
    until = -inf
    for t0, t1 in sorted((wait.t0, wait.t1) for wait in waits):
        waited += max(t1 - max(t0, until), 0.0)
        until = max(until, t1)
    return waited


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
        whole = "a composite that has not ended"
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


@dataclass(frozen=True, slots=True, eq=False)
class Composite:
    """A composite and its tiles, numbered in the order of their first stages.

    ``position`` is None if it never ended. The stages of its tiles are rows of the
    arrays, those of tile i from ``firsts[i]`` to before ``firsts[i + 1]``: ``ops`` are
    their positions, ``rows`` those of the log, ``starts`` and ``ends`` in ns, ``boxes``
    the index, origin and extent of the tile in the order of _BOXES. ``made`` are the
    tiles that were asked for so far.
    """

    position: int | None
    component: str
    firsts: Ints
    ops: Ints
    rows: Ints
    stages: tuple[str, ...]
    starts: Floats
    ends: Floats
    boxes: Ints
    made: dict[int, TileRow]

    @property
    def count(self) -> int:
        """How many tiles it has."""
        return len(self.firsts) - 1

    @property
    def begins(self) -> Floats:
        """By tile when its first stage starts, ns."""
        return self.starts[self.firsts[:-1]]

    @property
    def finishes(self) -> Floats:
        """By tile when its last stage ends, ns."""
        return self.ends[self.firsts[1:] - 1]

    @property
    def t0(self) -> float:
        """When the first tile starts, ns; 0 if there is none."""
        return float(self.starts[0]) if self.count else 0.0

    @property
    def t1(self) -> float:
        """When the last tile has ended, ns; 0 if there is none."""
        return float(self.finishes.max(initial=0.0))

    def tile_of(self, op: int) -> int | None:
        """The number of the tile that the op at a position is a stage of, or None."""
        found = np.flatnonzero(self.ops == op)
        if not len(found):
            return None
        return int(np.searchsorted(self.firsts, found[0], side="right")) - 1

    def ops_of(self, tile: int) -> Ints:
        """The positions of a tile's stages, ascending."""
        return self.ops[self.firsts[tile] : self.firsts[tile + 1]]

    def stages_like(self, tile: int, stage: str) -> list[int]:
        """The positions of those stages of a tile whose names begin with ``stage``."""
        mine = range(self.firsts[tile], self.firsts[tile + 1])
        return [int(self.ops[i]) for i in mine if self.stages[i].startswith(stage)]


class TileIndex:
    """Answers about the tiles of composites, at once for an op.

    The composites that were asked for last are kept. Any thread may ask: the table of
    those is never changed but replaced by another, and if two threads do that at the
    same time, one composite is looked up once more.
    """

    def __init__(self, trace: Trace, ops: OpIndex) -> None:
        self._trace = trace
        self._ops = ops
        self._known: dict[int, Composite] = {}  # by cmd

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

    def composite_at(self, position: int) -> Composite | None:
        """The composite that the op at ``position`` is, or is a tile of.

        For other ops it is the last composite before them, or else the first of all;
        None if none has run.
        """
        trace = self._trace
        name = trace.ops[position].op_name if position >= 0 else ""
        if not name.startswith((TILE_PREFIX, COMPOSITE_PREFIX)):
            composites = self.positions
            if not len(composites):
                return None
            before = int(np.searchsorted(composites, position, side="right")) - 1
            position = int(composites[max(before, 0)])
        cmd = int(trace.op_columns.cmd[trace.order[position]])
        known = self._known.get(cmd)
        if known is None:
            known = self._composite(cmd, position)
            newest = [*self._known.items()][-_KEPT:]
            self._known = dict(newest) | {cmd: known}
        return known

    def tile_rows(self, composite: Composite, tiles: Sequence[int]) -> list[TileRow]:
        """Some tiles of a composite, by their numbers."""
        made = composite.made
        new = [tile for tile in dict.fromkeys(tiles) if tile not in made]
        if new:
            firsts = composite.firsts.tolist()
            stages = {tile: range(firsts[tile], firsts[tile + 1]) for tile in new}
            rows = [composite.rows[i] for mine in stages.values() for i in mine]
            waits = self._trace.waits_by(rows)
            for tile, mine in stages.items():
                made[tile] = _tile_row(composite, mine, waits)
        return [made[tile] for tile in tiles]

    def tiles_of(self, position: int) -> Tiles:
        """The tiles of ``composite_at`` that position."""
        composite = self.composite_at(position)
        if composite is None:
            return Tiles(None, "", 0.0, 0.0, (), None, NO_COMPOSITE)
        return self._tiles(
            composite, range(composite.count), composite.tile_of(position)
        )

    def between(
        self, t0: float, t1: float, limit: int = 64, progress: Progress = no_progress
    ) -> TileWindow:
        """The tiles in some stage in [t0, t1) ns, of the first ``limit`` composites."""
        self.prepare(stage(progress, 0.0, 0.5))
        columns = self._trace.op_columns
        rows = self._trace.order[self.positions]
        inside = (columns.t_start[rows] < t1) & (columns.t_end[rows] > t0)
        found = self.positions[inside].tolist()
        listed = found[:limit]
        shown = []
        for number, position in enumerate(listed):
            share = 0.5 + 0.5 * number / len(listed)
            find = partial(self.composite_at, position)
            composite = computed_beside(find, progress, share)
            if composite is not None:
                running = tiles_running(composite, t0, t1)
                shown.append(self._tiles(composite, running, None))
        return TileWindow(t0, t1, tuple(shown), len(found) - len(shown))

    def _tiles(
        self, composite: Composite, tiles: Sequence[int], current: int | None
    ) -> Tiles:
        return Tiles(
            composite.position,
            composite.component,
            composite.t0,
            composite.t1,
            tuple(self.tile_rows(composite, tiles)),
            current,
        )

    def _composite(self, cmd: int, position: int) -> Composite:
        """The composite of the call ``cmd``, one of whose ops is at ``position``."""
        trace = self._trace
        columns = trace.op_columns
        composite = self._ops.composite_of(position)
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
        names, boxes, rows = self._stages(found)
        ops = trace.position[rows].astype(np.int64)
        in_order = np.argsort(ops).tolist()
        numbers: dict[tuple[int, ...], list[int]] = {}
        for i in in_order:
            numbers.setdefault(tuple(boxes[i][:3]), []).append(i)
        by_tile = [i for stages in numbers.values() for i in stages]
        counts = [len(stages) for stages in numbers.values()]
        return Composite(
            position=composite,
            component=component,
            firsts=np.cumsum([0, *counts]),
            ops=ops[by_tile],
            rows=rows[by_tile],
            stages=tuple(names[i] for i in by_tile),
            starts=columns.t_start[rows[by_tile]],
            ends=columns.t_end[rows[by_tile]],
            boxes=np.array([boxes[i] for i in by_tile]),
            made={},
        )

    def _stages(self, rows: Ints) -> tuple[list[str], list[list[int]], Ints]:
        """The ops among ``rows`` whose params say of which tile they are a stage: the
        names of the stages, the tiles' boxes, and the rows.

        Those of a damaged file may not: they are left out.
        """
        names: list[str] = []
        boxes: list[list[int]] = []
        found = [np.empty(0, np.int64)]
        if not len(rows):
            return names, boxes, found[0]
        for block in self._trace.param_blocks(rows):
            stage = block.schema.name.removeprefix(TILE_PREFIX)
            if stage not in STAGE_LETTERS:
                continue
            numbers = integers(block)
            columns = [numbers[name] for name in _BOXES if name in numbers]
            if len(columns) == len(_BOXES):
                names += [stage] * len(block.rows)
                boxes += np.stack(columns, 1, dtype=np.int64).tolist()
                found.append(block.rows)
        return names, boxes, np.concatenate(found)


def tiles_running(composite: Composite, t0: float, t1: float) -> list[int]:
    """The numbers of the tiles that are in some stage in [t0, t1) ns."""
    running = (composite.begins < t1) & (composite.finishes > t0)
    return list(np.flatnonzero(running).tolist())


def _tile_row(
    composite: Composite, stages: range, waits: dict[int, list[Wait]]
) -> TileRow:
    """One tile of a composite from its stages, and the waits of ops by row."""
    spans = []
    queued = []
    for i in stages:
        spans.append(
            Span(
                composite.stages[i],
                float(composite.starts[i]),
                float(composite.ends[i]),
                int(composite.ops[i]),
            )
        )
        for node, reason, t0, t1, _ in waits.get(int(composite.rows[i]), ()):
            queued.append(TileWait(node, reason, t0, t1))
    m, n, k, m0, n0, k0, m_size, n_size, k_size = composite.boxes[stages[0]].tolist()
    return TileRow(
        index=(m, n, k),
        origin=(m0, n0, k0),
        extent=(m_size, n_size, k_size),
        spans=tuple(spans),
        waits=tuple(queued),
    )

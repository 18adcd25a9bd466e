"""What the tiles' pane asks: the shape of the list of composites, and its rows in view.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``. A
composite's place is its number among those that ended, in canonical order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kernbench.common.progress import Progress
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.questions import op_of
from kernbench.replay.time.tiles import TileRow

_MOST = 64
"""Composites whose tiles are listed at one time."""

TilePlace: TypeAlias = tuple[int, int | None]
"""A composite's place, and the number of one of its tiles; None: the composite itself.
"""


@dataclass(frozen=True, slots=True)
class TileTimes:
    """The times [t0, t1), ns."""

    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class TilePlaces:
    """Rows of the list. ``unended`` is an op of the one composite that is listed, if
    that never ended.
    """

    rows: tuple[TilePlace, ...]
    unended: int | None = None


@dataclass(frozen=True, slots=True)
class TileOutline:
    """The composite of an op, else the last before it, within the list of all.

    ``composite`` is its position and ``place`` its place among ``composites``; one that
    never ended has no position and stands alone. It has ``tiles`` tiles from ``t0`` to
    ``t1``, ns, of which the op is in number ``current`` (None: in none). ``note`` says
    why there is nothing to list.
    """

    composite: int | None
    place: int
    composites: int
    tiles: int
    current: int | None
    t0: float
    t1: float
    note: str

    @property
    def empty(self) -> bool:
        """Whether there is nothing to list."""
        return self.composite is None and not self.tiles


@dataclass(frozen=True, slots=True)
class RunningComposite:
    """A composite by its place, and the numbers of some of its tiles, ascending."""

    place: int
    tiles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileLine:
    """A row of the list: a composite at position ``op`` (-1: it never ended), or a tile
    of it; in service from ``t0`` to ``t1``, ns.
    """

    op: int
    tile: TileRow | None
    t0: float
    t1: float


def tile_outline(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> TileOutline:
    """Where an op's composite is in the list."""
    tiles = index.tiles.tiles_of(op_of(at))
    place = 0
    composites = 1
    if tiles.composite is not None:
        composites = len(index.tiles.positions)
        place = int(np.searchsorted(index.tiles.positions, tiles.composite))
    return TileOutline(
        tiles.composite,
        place,
        composites,
        len(tiles.rows),
        tiles.current,
        tiles.t0,
        tiles.t1,
        tiles.note,
    )


def running_composites(
    index: Index, at: At, args: TileTimes, progress: Progress
) -> tuple[RunningComposite, ...]:
    """The composites in service in a window, each with its tiles that are, as many as
    can be shown.
    """
    log = index.trace.op_columns
    positions = index.tiles.positions
    rows = index.trace.order[positions]
    running = (log.t_start[rows] < args.t1) & (log.t_end[rows] > args.t0)
    places = np.flatnonzero(running)[:_MOST].tolist()
    found = []
    for i, place in enumerate(places):
        progress(i / len(places))
        tiles = index.tiles.tiles_of(int(positions[place])).rows
        inside = [
            number
            for number, tile in enumerate(tiles)
            if tile.spans[0].t0 < args.t1 and tile.spans[-1].t1 > args.t0
        ]
        found.append(RunningComposite(place, tuple(inside)))
    return tuple(found)


def tile_lines(
    index: Index, at: At, args: TilePlaces, progress: Progress
) -> tuple[TileLine, ...]:
    """Rows of the list."""
    return tuple(_line(index, args.unended, *row) for row in args.rows)


def _line(
    index: Index, unended: int | None, place: int, number: int | None
) -> TileLine:
    op = -1
    if unended is None:
        op = int(index.tiles.positions[place])
    if number is not None:
        tiles = index.tiles.tiles_of(op if unended is None else unended)
        tile = tiles.rows[number]
        return TileLine(op, tile, tile.spans[0].t0, tile.spans[-1].t1)
    if op < 0:
        return TileLine(op, None, 0.0, 0.0)
    return TileLine(op, None, index.ops.time(op), float(index.ops.ends(op)))

"""What the pane of tiles asks: how its list is built, and the rows of it in view.

The list has the composites of a trace, of which some are open and have their tiles
below. A composite's place is its number among those that ended, in canonical order.
Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from kernbench.common.progress import Progress, computed_beside
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.questions import op_of
from kernbench.replay.time.tiles import NO_COMPOSITE, TileRow, tiles_running

_MOST = 64
"""How many composites are open at one time."""

_NEVER_ENDED = -1
"""In place of a composite's position."""

TilePlace: TypeAlias = tuple[int, int | None]
"""A row of the list: a composite's place, and the number of a tile of it, or None for
the composite itself.
"""


@dataclass(frozen=True, slots=True)
class TileTimes:
    """A window of time: [t0, t1) ns."""

    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class TilePlaces:
    """Some rows of the list.

    A composite that never ended has no place: if the list is of one, ``unended`` is an
    op of it, and its place counts as 0.
    """

    rows: tuple[TilePlace, ...]
    unended: int | None = None


@dataclass(frozen=True, slots=True)
class TileOutline:
    """Where an op is in the list.

    ``composite`` is the position of the composite that the op is of, else of the last
    one before it, else of the first. It has the place ``place`` of so many
    ``composites``. One that never ended has no position, and is listed alone.

    It has so many ``tiles``, the first from ``t0`` and the last to ``t1``, ns. The op
    is of the tile of number ``current``, or of none. ``note`` says why there is nothing
    to list.
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
    """A composite by its place, and the numbers of those of its tiles that run,
    ascending.
    """

    place: int
    tiles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileLine:
    """A row of the list.

    ``op`` is the position of the composite, -1 if that never ended, and ``tile`` the
    tile of it that the row is of, None for the composite itself. ``t0`` and ``t1`` are
    from when to when it was in service, ns; of a composite that never ended both are 0.
    """

    op: int
    tile: TileRow | None
    t0: float
    t1: float


def tile_outline(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> TileOutline:
    """Where an op, and its composite, are in the list."""
    op = op_of(at)
    composite = index.tiles.composite_at(op)
    if composite is None:
        return TileOutline(None, 0, 1, 0, None, 0.0, 0.0, NO_COMPOSITE)
    place = 0
    composites = 1
    if composite.position is not None:
        composites = len(index.tiles.positions)
        place = int(np.searchsorted(index.tiles.positions, composite.position))
    return TileOutline(
        composite.position,
        place,
        composites,
        composite.count,
        composite.tile_of(op),
        composite.t0,
        composite.t1,
        note="",
    )


def running_composites(
    index: Index, at: At, args: TileTimes, progress: Progress
) -> tuple[RunningComposite, ...]:
    """The composites in service in a window of time, with those of their tiles that
    are.

    The first that started come first, and only as many as can be open.
    """
    log = index.trace.op_columns
    positions = index.tiles.positions
    rows = index.trace.order[positions]
    running = (log.t_start[rows] < args.t1) & (log.t_end[rows] > args.t0)
    places = np.flatnonzero(running)[:_MOST].tolist()
    found = []
    for i, place in enumerate(places):
        find = partial(index.tiles.composite_at, int(positions[place]))
        composite = computed_beside(find, progress, i / len(places))
        if composite is not None:
            inside = tiles_running(composite, args.t0, args.t1)
            found.append(RunningComposite(place, tuple(inside)))
    return tuple(found)


def tile_lines(
    index: Index, at: At, args: TilePlaces, progress: Progress
) -> tuple[TileLine, ...]:
    """Some rows of the list, in the order in which they are asked for."""
    numbers: dict[int, list[int]] = {}
    for place, number in args.rows:
        if number is not None:
            numbers.setdefault(place, []).append(number)
    for i, (place, of_composite) in enumerate(numbers.items()):
        progress(i / len(numbers))
        _tiles_in(index, args.unended, place, of_composite)
    return tuple(_line(index, args.unended, *row) for row in args.rows)


def _tiles_in(
    index: Index, unended: int | None, place: int, numbers: list[int]
) -> list[TileRow]:
    """Tiles of the composite at a place of the list."""
    inside = unended
    if inside is None:
        inside = int(index.tiles.positions[place])
    composite = index.tiles.composite_at(inside)
    return [] if composite is None else index.tiles.tile_rows(composite, numbers)


def _line(
    index: Index, unended: int | None, place: int, number: int | None
) -> TileLine:
    """One row: a composite, or the tile of it that has that number."""
    op = _NEVER_ENDED
    if unended is None:
        op = int(index.tiles.positions[place])
    if number is not None:
        (tile,) = _tiles_in(index, unended, place, [number])
        return TileLine(op, tile, tile.spans[0].t0, tile.spans[-1].t1)
    if op == _NEVER_ENDED:
        return TileLine(op, None, 0.0, 0.0)
    return TileLine(op, None, index.ops.time(op), float(index.ops.ends(op)))

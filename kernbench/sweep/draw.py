"""Which points of a space are run: all of a grid, some at random, or a Latin hypercube.

A draw depends on its seed alone, so a sweep that is started again draws the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from kernbench.errors import UsageError
from kernbench.sweep.space import Point, Space

MOST_POINTS = 1_000_000
"""More points than these are asked for twice."""

_TRIES = 200
"""So many times as many points are drawn at random as are wanted, at most."""

Kind: TypeAlias = Literal["grid", "random", "latin", "optuna"]


class Draw(NamedTuple):
    """How points are picked: how many, and by which seed; a grid needs neither.

    The points of ``optuna`` are not drawn here, as they follow from results.
    """

    kind: Kind = "grid"
    points: int = 0
    seed: int = 0


def check_draw(space: Space, draw: Draw, is_confirmed: bool) -> None:
    """UsageError for more points than MOST_POINTS unless that is confirmed, and for a
    grid of a continuous axis.
    """
    count = draw.points
    if draw.kind == "grid":
        for axis in space.axes:
            if axis.values is None:
                raise UsageError(
                    f"{axis.label}: any number from {axis.low:g} to {axis.high:g}: a "
                    "grid needs its step, factor or count; or draw with --random, "
                    "--latin or --optuna"
                )
        count = space.grid_points or 0
    if count > MOST_POINTS and not is_confirmed:
        raise UsageError(
            f"a space of {count:,} points, conditions left out; --yes runs it, "
            "--random N or --latin N some of it"
        )


def drawn(space: Space, draw: Draw) -> Iterator[Point]:
    """The points of a checked draw, conditions met; one may come twice.

    UsageError for a condition that cannot be worked out at a point.
    """
    makers = {"grid": _grid, "random": _random, "latin": _latin}
    return makers[draw.kind](space, draw)


def _grid(space: Space, draw: Draw) -> Iterator[Point]:
    points = (_nth(space, i) for i in range(space.grid_points or 0))
    return filter(space.holds, points)


def _nth(space: Space, number: int) -> Point:
    """A point of the grid by its number; the last axis changes first."""
    values = []
    for axis in reversed(space.axes):
        assert axis.values is not None
        number, i = divmod(number, len(axis.values))
        values.append(axis.values[i])
    return space.point(values[::-1])


def _random(space: Space, draw: Draw) -> Iterator[Point]:
    """Different points, each as likely as any other.

    There are fewer than wanted if the space has no more, or if nearly all that is drawn
    does not meet the conditions.
    """
    rng = np.random.default_rng(draw.seed)
    grid_points = space.grid_points
    if grid_points is not None and grid_points <= MOST_POINTS:
        order = rng.permutation(grid_points).tolist()
        points: Iterable[Point] = (_nth(space, i) for i in order)
    else:
        tries = range(_TRIES * draw.points)
        points = (_at(space, rng.random(len(space.axes))) for _ in tries)
    seen: set[tuple[object, ...]] = set()
    for point in points:
        name = tuple(point.values().values())
        if name not in seen and space.holds(point):
            seen.add(name)
            yield point
        if len(seen) == draw.points:
            return


def _latin(space: Space, draw: Draw) -> Iterator[Point]:
    """One point in each of ``count`` equal parts of every axis.

    What the conditions exclude is left out, so there may be fewer.
    """
    rng = np.random.default_rng(draw.seed)
    parts = np.stack([rng.permutation(draw.points) for _ in space.axes], axis=1)
    shares = (parts + rng.random(parts.shape)) / draw.points
    points = (_at(space, row) for row in shares)
    return filter(space.holds, points)


def _at(space: Space, shares: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Point:
    """The point at a share of each axis."""
    pairs = zip(space.axes, shares.tolist(), strict=True)
    return space.point([axis.at(share) for axis, share in pairs])

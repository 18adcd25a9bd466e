"""The machine of a trace as a map: boxes, and the lines between them cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, cast

from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.replay.time.projections import Box, View, projection, way
from kernbench.trace import Trace

Cell: TypeAlias = tuple[int, int]
"""A character of the map: its column and its row."""
Pair: TypeAlias = tuple[int, int]
"""Two boxes by their numbers: where a line begins, and where it ends."""
Place: TypeAlias = tuple[int, ...]
"""What a map is of: () the system, (sip,), (sip, cube) or (sip, cube, pe)."""
Ways: TypeAlias = Mapping[Pair, list[Cell]]

UP = 1
RIGHT = 2
DOWN = 4
LEFT = 8
"""The sides of a cell; several of them are their sum."""

_STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""To the next cell up, right, down and left."""


@dataclass(frozen=True, slots=True, eq=False)
class MachineMap:
    """A place of the machine, drawn on a grid of ``columns`` by ``rows`` characters.

    ``boxes`` lie on that grid, and lines may also use its last column and row, which no
    box reaches. ``box_of`` has the number of the box of every node inside the place.
    ``ways`` has for any two boxes that an edge joins, in both directions, the cells of
    the line from the middle of the first to that of the second. ``sides`` has the cells
    that the lines of the unlit map pass, each with the sides of it that they join.
    """

    place: Place
    boxes: tuple[Box, ...]
    columns: int
    rows: int
    box_of: Mapping[int, int]
    ways: Ways
    sides: Mapping[Cell, int]


class MachineMaps:
    """The maps of a trace; each is made when it is first asked for, and kept.

    Cubes, and PEs, whose boxes lie alike share their lines, since finding these takes
    longest. Any lane may ask: if two of them make the same map at once, both are equal.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._maps: dict[tuple[Place, bool], MachineMap] = {}
        self._lines: dict[object, tuple[Ways, Mapping[Cell, int]]] = {}

    def of(
        self, place: Place, progress: Progress = no_progress, narrow: bool = False
    ) -> MachineMap:
        """The map of a place; one of a place that does not exist has no boxes. Boxes of
        a ``narrow`` map have the same numbers.
        """
        key = place, narrow
        found = self._maps.get(key)
        if found is None:
            found = self._maps[key] = self._made(place, narrow, progress)
        return found

    def _made(self, place: Place, narrow: bool, progress: Progress) -> MachineMap:
        """A map that was not asked for before."""
        view = computed_beside(
            lambda: projection(self._trace, place, narrow), progress, done=0.0
        )
        layout = tuple(box[1:] for box in view.boxes), view.lines
        lines = self._lines.get(layout)
        if lines is None:
            ways = _ways(view, progress)
            lines = self._lines[layout] = ways, sides_of(_drawn(view, ways))
        box_of = {
            cast(int, node): number
            for number, box in enumerate(view.boxes)
            for node in box.nodes
        }
        return MachineMap(
            place,
            view.boxes,
            max((box.x + box.w for box in view.boxes), default=-1) + 1,
            max((box.y + box.h for box in view.boxes), default=-1) + 1,
            box_of,
            *lines,
        )


def _ways(view: View, progress: Progress) -> Ways:
    """The lines between any two boxes that an edge joins, in both directions."""
    pairs = {(line.src, line.dst) for line in view.lines}
    pairs |= {(b, a) for a, b in pairs}
    found = {}
    for i, (a, b) in enumerate(sorted(pairs)):
        progress(0.5 + 0.5 * i / len(pairs))
        found[a, b] = way(view, a, b)
    return found


def _drawn(view: View, ways: Ways) -> Iterable[list[Cell]]:
    """The lines of the unlit map: one between two boxes, and none for command wires."""
    joined = [line for line in view.lines if line.kind != "command"]
    pairs = {(min(line.src, line.dst), max(line.src, line.dst)) for line in joined}
    return [ways[pair] for pair in pairs]


def sides_of(lines: Iterable[list[Cell]]) -> dict[Cell, int]:
    """The cells that some lines pass, each with the sides of it that they join."""
    sides: dict[Cell, int] = {}
    for line in lines:
        for here, there in pairwise(line):
            sides[here] = sides.get(here, 0) | 1 << direction(here, there)
            sides[there] = sides.get(there, 0) | 1 << direction(there, here)
    return sides


def direction(here: Cell, there: Cell) -> int:
    """Which way a cell beside another one lies: 0 up, 1 right, 2 down, 3 left."""
    return _STEPS.index((there[0] - here[0], there[1] - here[1]))

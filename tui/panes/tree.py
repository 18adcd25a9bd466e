"""The rows of the timeline as a tree: SIP > cube > PE > engine, and the lanes of an engine."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from kernbench.replay.index import Index
from kernbench.replay.time.timeline import Row

_SMALL = 48
"""Rows; a larger tree is folded where the cursor is not."""
_KEPT = 64
"""Lists of shown rows."""

Folds: TypeAlias = frozenset[str]
"""What the user closed, -ID, and opened, +ID."""
Lanes: TypeAlias = Mapping[int, tuple[int, ...]]
"""By node its lanes."""

_Place: TypeAlias = tuple[int, int, int]
"""The SIP, cube and PE of a component; -1 where it is in none."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A row of the tree: a group of components, one component, or a lane of it.

    Its components are those from ``low`` to ``high`` of all in the order of the tree, the
    latter not included. ``pes`` is how many PEs are in it; 1 where there is none.
    """

    id: str
    label: str
    row: Row
    low: int
    high: int
    pes: int = 1

    @property
    def group(self) -> bool:
        """Whether it holds several components, and can be folded."""
        return self.high > self.low + 1

    @property
    def components(self) -> tuple[int, ...]:
        """The nodes in it."""
        return self.row[0]

    @property
    def lane(self) -> int | None:
        """The one lane that the row is of; None: all of them."""
        return self.row[1]


class Tree:
    """All rows, made once for a trace: ``components`` are the nodes that served ops, by
    their place in the machine.

    A level that tells nothing apart has no rows: in a machine of one SIP there is none for
    that, nor one for a PE of a single engine.
    """

    def __init__(self, index: Index) -> None:
        nodes = index.trace.nodes
        found = index.timelines.components
        by_place = np.lexsort(
            (found, nodes.pe[found], nodes.cube[found], nodes.sip[found])
        )
        self.components: tuple[int, ...] = tuple(found[by_place].tolist())
        self._number = {node: i for i, node in enumerate(self.components)}
        self.rows = self._made(index)
        self.at = {branch.id: branch for branch in self.rows}
        self.width = max((len(branch.label) for branch in self.rows), default=0)
        self._shown: dict[tuple[Folds, int, bool], tuple[Branch, ...]] = {}

    def number(self, node: int) -> int:
        """The number of a node among ``components``."""
        return self._number[node]

    def _made(self, index: Index) -> tuple[Branch, ...]:
        places = _places(index, self.components)
        sizes = Counter(part for place in places for part in _parts(place))
        parts_of_level = Counter(len(part) for part in sizes)
        rows: list[Branch] = []
        seen: set[tuple[int, ...]] = set()
        for low, place in enumerate(places):
            node = self.components[low]
            for part in _parts(place)[1:]:
                level = len(part)
                size = sizes[part]
                tells_apart = 1 < size < sizes[part[:-1]]
                if part in seen or parts_of_level[level] < 2 or not tells_apart:
                    continue
                seen.add(part)
                label = index.ops.label(node, level)
                inside = places[low : low + size]
                pes = len({place for place in inside if place[2] >= 0})
                row = self.components[low : low + size], None
                rows.append(Branch(label, label, row, low, low + size, max(pes, 1)))
            id = index.trace.node_ids[node]
            label = index.ops.label(node, 4)
            rows.append(Branch(id, label, ((node,), None), low, low + 1))
        return tuple(rows)

    # -- folding --------------------------------------------------------------------

    def is_open(self, branch: Branch, folds: Folds, here: int) -> bool:
        """Whether a group is unfolded.

        As the user has it; else all of a small tree is, and of a large one what leads to
        the component of number ``here``.
        """
        if f"+{branch.id}" in folds:
            return True
        wanted = len(self.rows) <= _SMALL or branch.low <= here < branch.high
        return wanted and f"-{branch.id}" not in folds

    def toggled(self, branch: Branch, folds: Folds, here: int) -> Folds:
        """The folds with a group closed that was open, or opened."""
        sign = "-" if self.is_open(branch, folds, here) else "+"
        others = folds - {f"+{branch.id}", f"-{branch.id}"}
        return others | {f"{sign}{branch.id}"}

    def shown(self, folds: Folds, here: int, lanes: Lanes | None) -> tuple[Branch, ...]:
        """The rows that are not folded away.

        With ``lanes`` a component that has several has a row for each instead of its own;
        they have to be those of the trace.
        """
        where = here if len(self.rows) > _SMALL else -1
        key = folds, where, lanes is not None
        found = self._shown.get(key)
        if found is None:
            if len(self._shown) >= _KEPT:
                self._shown.clear()
            found = self._shown[key] = tuple(self._unfolded(folds, here, lanes))
        return found

    def _unfolded(self, folds: Folds, here: int, lanes: Lanes | None) -> list[Branch]:
        found: list[Branch] = []
        i = 0
        while i < len(self.rows):
            branch = self.rows[i]
            if lanes is None or branch.group:
                found.append(branch)
            else:
                found += _by_lane(branch, lanes.get(branch.components[0], ()))
            i += 1
            if branch.group and not self.is_open(branch, folds, here):
                i = bisect_left(self.rows, branch.high, i, key=_LOW)
        return found


_LOW = attrgetter("low")


def row_of(shown: Sequence[Branch], number: int, lane: int) -> int:
    """The lowest of the shown rows that holds a lane of the component of that number."""
    i = bisect_right(shown, number, key=_LOW) - 1
    while i > 0 and shown[i].lane not in (None, lane):
        i -= 1
    return i


def _by_lane(branch: Branch, lanes: tuple[int, ...]) -> list[Branch]:
    """A component as a row for each lane, if it has several."""
    if len(lanes) < 2:
        return [branch]
    return [
        replace(branch, label=f"{branch.label} {lane}", row=(branch.components, lane))
        for lane in lanes
    ]


def _places(index: Index, components: tuple[int, ...]) -> list[_Place]:
    nodes = index.trace.nodes
    columns = np.stack([nodes.sip, nodes.cube, nodes.pe], axis=1)
    return [(sip, cube, pe) for sip, cube, pe in columns[list(components)].tolist()]


def _parts(place: _Place) -> list[tuple[int, ...]]:
    """The machine, and the SIP, cube and PE that a place is in, as far as it is in one."""
    parts: list[tuple[int, ...]] = [()]
    for depth, number in enumerate(place, 1):
        if number >= 0:
            parts.append(place[:depth])
    return parts

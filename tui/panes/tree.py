"""The rows of the timeline as a tree: a group for each SIP, cube and PE, the engines of
these, and the lanes of an engine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from kernbench.replay.arrays import Ints
from kernbench.replay.index import Index
from kernbench.replay.time.timeline import RowKey

_SMALL = 48
"""A tree of more rows is folded but where the cursor is."""
_KEPT = 64
"""How many lists of shown rows are kept."""

Folds: TypeAlias = frozenset[str]
"""The groups that the user closed, each as -ID, and those opened, as +ID."""
Lanes: TypeAlias = Mapping[int, tuple[int, ...]]
"""By node the lanes in which it served ops, ascending."""

_Place: TypeAlias = tuple[int, int, int]
"""The SIP, cube and PE of a component; -1 where it is in none."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A row: a group of components, a single component, or one lane of it.

    ``id`` is the group's label, or the component's name in the trace. ``row`` are the
    components as nodes, and the lane, as the index takes them. ``low`` is the number of
    the first of them among ``Tree.components``, and ``high`` that of the first behind
    them. ``pes`` is how many PEs are in it, 1 where there is none.
    """

    id: str
    label: str
    row: RowKey
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
        return self.row.components

    @property
    def lane(self) -> int | None:
        """The one lane that the row is of; None: all of them."""
        return self.row.lane


class Tree:
    """All rows of a trace, made once.

    ``components`` are the nodes that served ops, by their place in the machine.
    ``rows`` are all groups and components, each group before what is in it, ``at`` the
    same by id, and ``width`` is the length of the longest label.

    A level that tells nothing apart has no groups: there is none for the only SIP, nor
    for a PE of which a single engine served ops.
    """

    def __init__(self, index: Index) -> None:
        nodes = index.trace.nodes
        found = index.op_index.components
        by_place = np.lexsort(
            (found, nodes.pe[found], nodes.cube[found], nodes.sip[found])
        )
        self.components: tuple[int, ...] = tuple(found[by_place].tolist())
        self._numbers = np.zeros(len(index.trace.node_ids), np.int64)
        self._numbers[list(self.components)] = np.arange(len(self.components))
        self.rows = self._made(index)
        self.at = {branch.id: branch for branch in self.rows}
        self.width = max((len(branch.label) for branch in self.rows), default=0)
        self._shown: dict[tuple[Folds, int, bool], tuple[Branch, ...]] = {}

    def number(self, node: int) -> int:
        """The number of a node, which served ops, among ``components``."""
        return int(self._numbers[node])

    def counted(self, nodes: Ints) -> Ints:
        """How many of ``nodes`` are among the first 0, 1, 2 … of ``components``.

        A node may occur several times. The difference of two of these counts is how
        many are in a group.
        """
        counts = np.bincount(self._numbers[nodes], minlength=len(self.components))
        return np.append(0, np.cumsum(counts))

    def _made(self, index: Index) -> tuple[Branch, ...]:
        """Every component, behind the groups that begin with it."""
        places = _places(index, self.components)
        sizes = Counter(part for place in places for part in _parts(place))
        parts_of_level = Counter(len(part) for part in sizes)
        rows: list[Branch] = []
        seen: set[tuple[int, ...]] = set()
        for low, place in enumerate(places):
            for part in _parts(place)[1:]:
                if part in seen:
                    continue
                seen.add(part)
                level = len(part)
                size = sizes[part]
                whole = sizes[part[:-1]]
                if parts_of_level[level] > 1 and 1 < size < whole:
                    rows.append(
                        self._group(index, level, places[low : low + size], low)
                    )
            node = self.components[low]
            id = index.trace.node_ids[node]
            label = index.ops.label(node, 4)
            rows.append(Branch(id, label, RowKey((node,)), low, low + 1))
        return tuple(rows)

    def _group(
        self, index: Index, level: int, places: Sequence[_Place], low: int
    ) -> Branch:
        """The group of the components at ``places``, from number ``low`` on."""
        high = low + len(places)
        label = index.ops.label(self.components[low], level)
        pes = len({place for place in places if place[2] >= 0})
        row = RowKey(self.components[low:high])
        return Branch(label, label, row, low, high, max(pes, 1))

    # -- folding -------------------------------------------------------------------

    def is_open(self, branch: Branch, folds: Folds, here: int) -> bool:
        """Whether a group is unfolded.

        That is as the user has it. Where the user has not said, all groups of a small
        tree are open; of a large one those are that the component of number ``here`` is
        in.
        """
        if f"+{branch.id}" in folds:
            return True
        wanted = len(self.rows) <= _SMALL or branch.low <= here < branch.high
        return wanted and f"-{branch.id}" not in folds

    def toggled(self, branch: Branch, folds: Folds, here: int) -> Folds:
        """The folds after a group was closed, if it is open, or opened."""
        sign = "-" if self.is_open(branch, folds, here) else "+"
        others = folds - {f"+{branch.id}", f"-{branch.id}"}
        return others | {f"{sign}{branch.id}"}

    def shown(self, folds: Folds, here: int, lanes: Lanes | None) -> tuple[Branch, ...]:
        """The rows that are not folded away, from the top on.

        If the ``lanes`` of the trace are given, a component that has several is shown
        as a row for each of them.
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


def row_of(shown: Sequence[Branch], number: int, lane: int | None) -> int:
    """Which of the shown rows is the lowest that the component of that number is in.

    Where its lanes have rows it is that of ``lane``.
    """
    i = bisect_right(shown, number, key=_LOW) - 1
    while i > 0 and shown[i].lane not in (None, lane):
        i -= 1
    return i


def _by_lane(branch: Branch, lanes: tuple[int, ...]) -> list[Branch]:
    """A row for each lane of a component; one that has a single lane stays as it is."""
    if len(lanes) < 2:
        return [branch]
    rows = []
    for lane in lanes:
        row = RowKey(branch.components, lane)
        rows.append(replace(branch, label=f"{branch.label} {lane}", row=row))
    return rows


def _places(index: Index, components: tuple[int, ...]) -> list[_Place]:
    """Where each component is in the machine."""
    nodes = index.trace.nodes
    columns = np.stack([nodes.sip, nodes.cube, nodes.pe], axis=1)
    return [(sip, cube, pe) for sip, cube, pe in columns[list(components)].tolist()]


def _parts(place: _Place) -> list[tuple[int, ...]]:
    """What a place is part of, from the machine, (), to the PE, (sip, cube, pe); only
    as far as it is in one.
    """
    parts: list[tuple[int, ...]] = [()]
    for depth, number in enumerate(place, 1):
        if number >= 0:
            parts.append(place[:depth])
    return parts

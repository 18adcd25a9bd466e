"""The rows of the timeline as a tree: a group for each SIP, cube and PE, the engines of
these, and the lanes of an engine; below them what carries bytes, in groups by kind.
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
from kernbench.replay.time.traffic import TrafficGroup

_LANES_SHARE = 3 / 4
"""The share of the room that a PE whose lanes are shown unasked may take."""
_ENGINE = "pe_"
"""What the names of engines begin with."""
_SCHEDULER = "pe_scheduler"
"""The type of a component that serves composites only."""
_TRAFFIC = "carries "
"""What the ids of rows begin with that serve no op."""
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
    them. ``pes`` is how many PEs are in it, 1 where there is none. ``short`` is what it
    is called below its group, which stands ``depth`` groups deep.

    ``lead`` is what the row of an open group shows: the composites of the PE.

    A row of what carries bytes serves no op: its components, by number as
    ``ActivityIndex`` has them, are its ``traffic``.
    """

    id: str
    label: str
    row: RowKey
    low: int
    high: int
    pes: int = 1
    short: str = ""
    depth: int = 0
    lead: RowKey | None = None
    traffic: tuple[int, ...] = ()

    @property
    def group(self) -> bool:
        """Whether it holds several components, and can be folded."""
        return self.high > self.low + 1 or len(self.traffic) > 1

    @property
    def name(self) -> str:
        """The whole name, without what all engines' begin with."""
        return _brief(self.label)

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
    ``working`` are those of them that are in a PE; if there is none, all.
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
        in_pe = [c for c in self.components if nodes.pe[c] >= 0]
        self.working: tuple[int, ...] = tuple(in_pe) or self.components
        self._pe_of = _places(index, self.components)
        self._numbers = np.zeros(len(index.trace.node_ids), np.int64)
        self._numbers[list(self.components)] = np.arange(len(self.components))
        self.rows = self._made(index)
        self.at = {branch.id: branch for branch in self.rows}
        self.width = max((len(branch.name) for branch in self.rows), default=0)
        self._lanes_of = index.op_index.lanes_of
        self._shown: dict[tuple[Folds, int, bool, int], tuple[Branch, ...]] = {}

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
        groups: set[tuple[int, ...]] = set()
        for low, place in enumerate(places):
            for part in _parts(place)[1:]:
                if part in seen:
                    continue
                seen.add(part)
                level = len(part)
                size = sizes[part]
                whole = sizes[part[:-1]]
                if parts_of_level[level] > 1 and 1 < size < whole:
                    depth = _depth(part, groups)
                    groups.add(part)
                    found = self._group(index, level, places[low : low + size], low)
                    rows.append(replace(found, depth=depth))
            node = self.components[low]
            label = index.ops.label(node, 4)
            short = _brief(label)
            depth = _depth((*place, low), groups)
            inner = [part for part in _parts(place) if part in groups]
            if inner:
                around = index.ops.label(node, len(inner[-1]))
                short = _brief(label.removeprefix(f"{around}."))
            rows.append(
                Branch(
                    index.trace.node_ids[node],
                    label,
                    RowKey((node,)),
                    low,
                    low + 1,
                    short=short,
                    depth=depth,
                )
            )
        return tuple(rows)

    def _group(
        self, index: Index, level: int, places: Sequence[_Place], low: int
    ) -> Branch:
        """The group of the components at ``places``, from number ``low`` on."""
        high = low + len(places)
        label = index.ops.label(self.components[low], level)
        pes = len({place for place in places if place[2] >= 0})
        row = RowKey(self.components[low:high])
        lead = None
        if level == 3 and index.trace.nodes.type[row.components[0]] == _SCHEDULER:
            lead = RowKey(row.components[:1])
        short = label.rpartition(".")[2]
        return Branch(label, label, row, low, high, max(pes, 1), short, lead=lead)

    # -- folding -------------------------------------------------------------------

    def is_open(self, branch: Branch, folds: Folds, here: int, room: int) -> bool:
        """Whether a group is unfolded.

        That is as the user has it. Where the user has not said, all groups are open if
        all rows fit into the ``room``; else those are that the component of number
        ``here`` is in. Of what carries bytes none is.
        """
        if f"+{branch.id}" in folds:
            return True
        if branch.traffic:
            return False
        wanted = len(self.rows) <= room or branch.low <= here < branch.high
        return wanted and f"-{branch.id}" not in folds

    def toggled(self, branch: Branch, folds: Folds, here: int, room: int) -> Folds:
        """The folds after a group was closed, if it is open, or opened."""
        sign = "-" if self.is_open(branch, folds, here, room) else "+"
        others = folds - {f"+{branch.id}", f"-{branch.id}"}
        return others | {f"{sign}{branch.id}"}

    def shown(
        self, folds: Folds, here: int, lanes: Lanes | None, room: int
    ) -> tuple[Branch, ...]:
        """The rows that are not folded away, from the top on, for so many lines.

        If the ``lanes`` of the trace are given, a component that has several is shown
        as a row for each of them. Else those are of which that is so in the PE of the
        component of number ``here``, if there is room.
        """
        key = folds, here, lanes is not None, room
        found = self._shown.get(key)
        if found is None:
            if len(self._shown) >= _KEPT:
                self._shown.clear()
            rows = self._unfolded(folds, here, lanes, room)
            if lanes is None:
                rows = self._with_lanes(rows, here, room)
            found = self._shown[key] = tuple(rows)
        return found

    def _unfolded(
        self, folds: Folds, here: int, lanes: Lanes | None, room: int
    ) -> list[Branch]:
        found: list[Branch] = []
        i = 0
        while i < len(self.rows):
            branch = self.rows[i]
            if lanes is None or branch.group:
                found.append(branch)
            else:
                found += _by_lane(branch, lanes.get(branch.components[0], ()))
            i += 1
            if branch.group and not self.is_open(branch, folds, here, room):
                i = bisect_left(self.rows, branch.high, i, key=_LOW)
            elif branch.lead is not None:
                i += 1  # the group's own row shows what its first component served
        return found

    def _with_lanes(self, rows: list[Branch], here: int, room: int) -> list[Branch]:
        """The same rows, with those of the PE here by lane if there is room."""
        engines = {
            branch.low
            for branch in rows
            if not branch.group and self._is_beside(branch.low, here)
        }
        laned: list[Branch] = []
        block = 1
        for branch in rows:
            if branch.low in engines and not branch.group:
                lanes = _by_lane(branch, self._lanes_of(branch.components[0]))
                block += len(lanes)
                laned += lanes
            else:
                laned.append(branch)
        if len(laned) <= room or block <= room * _LANES_SHARE:
            return laned
        return rows

    def _is_beside(self, number: int, here: int) -> bool:
        """Whether two components, by number, are in one PE."""
        return self._pe_of[number] == self._pe_of[max(here, 0)]

    # -- what carries bytes ----------------------------------------------------------

    def traffic(
        self, groups: Sequence[TrafficGroup], folds: Folds
    ) -> tuple[Branch, ...]:
        """The rows of what carries bytes: a group for each kind, folded until the user
        opens it.
        """
        end = len(self.components)
        rows = []
        for group in groups:
            label = group.name
            row = Branch(
                f"{_TRAFFIC}{label}",
                label,
                RowKey(()),
                end,
                end,
                short=label,
                traffic=group.components,
            )
            if len(group.components) == 1:
                rows.append(replace(row, label=group.labels[0]))
                continue
            rows.append(row)
            if self.is_open(row, folds, -1, 0):
                for component, name in zip(group.components, group.labels, strict=True):
                    rows.append(
                        Branch(
                            f"{_TRAFFIC}{component}",
                            name,
                            RowKey(()),
                            end,
                            end,
                            short=name,
                            depth=1,
                            traffic=(component,),
                        )
                    )
        return tuple(rows)


_LOW = attrgetter("low")


def _brief(name: str) -> str:
    """A name without what all engines' have in common."""
    return name.replace("pe_fetch_store", "fetch").replace(_ENGINE, "")


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
        label = f"{branch.label} {lane}"
        short = f"{branch.short} {lane}"
        rows.append(replace(branch, label=label, short=short, row=row))
    return rows


def _depth(part: tuple[int, ...], groups: set[tuple[int, ...]]) -> int:
    """How many groups a part of the machine is in."""
    return sum(part[:level] in groups for level in range(1, len(part)))


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

"""The rows of the timeline as a tree: sip > cube > pe > engine, and the lanes of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.timeline import Row

_SMALL = 48  # rows; a larger tree is folded


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of components, one, or a lane of it: its place among them is [low, high).

    Below it is all up to row ``end`` of the tree; ``pes`` are the PEs in it, at least 1.
    """

    id: str
    label: str
    row: Row
    low: int
    high: int
    end: int
    pes: int = 1

    @property
    def group(self) -> bool:
        """Whether it holds several components, and can be folded."""
        return len(self.row[0]) > 1


class Tree:
    """Made once; a level that tells nothing apart has no rows."""

    def __init__(self, session: ReplaySession) -> None:
        nodes, found = session.trace.nodes, session.timelines.components
        order = np.lexsort((found, nodes.pe[found], nodes.cube[found], nodes.sip[found]))
        self._nodes: list[int] = found[order].tolist()
        self._engines = [nodes.engine[c] for c in self._nodes]
        self._ids = [session.trace.node_ids[c] for c in self._nodes]
        places = np.stack([nodes.sip, nodes.cube, nodes.pe], 1)[self._nodes].tolist()
        self._places: list[list[int]] = places
        # how many SIPs, cubes, PEs there are
        self._many = [len({tuple(p[: n + 1]) for p in places if p[n] >= 0}) for n in range(3)]
        self.rows = list[Branch]()
        self._grow(0, len(places), 0, len(places))
        self.at = {branch.id: branch for branch in self.rows}
        self.width = max((len(branch.label) for branch in self.rows), default=0)

    def _grow(self, low: int, high: int, level: int, above: int) -> None:
        """Add the rows of the components [low, high); the row above has so many."""
        places = self._places
        row: Row
        runs = groupby(range(low, high), lambda i: places[i][level] if level < 3 else -1)
        for value, run in runs:
            mine = [*run]
            first, last = mine[0], mine[-1]
            if value < 0:
                for i in mine:
                    label, end = self._label(places[i], self._engines[i]), len(self.rows) + 1
                    row = (self._nodes[i],), None
                    self.rows.append(Branch(self._ids[i], label, row, i, i + 1, end))
                continue
            here, size = len(self.rows), last + 1 - first
            shown = self._many[level] > 1 and 1 < size < above
            if shown:
                label = self._label([*places[first][: level + 1], -1, -1][:3])
                row = tuple(self._nodes[first : last + 1]), None
                pes = {tuple(p) for p in places[first : last + 1] if p[2] >= 0}
                self.rows.append(Branch(label, label, row, first, last + 1, 0, max(len(pes), 1)))
            self._grow(first, last + 1, level + 1, size if shown else above)
            if shown:
                self.rows[here] = replace(self.rows[here], end=len(self.rows))

    def _label(self, place: list[int], engine: str = "") -> str:
        sip, cube, pe = place
        named = pe < 0 or self._many[1] > 1
        where = f"s{sip}" * (named and sip >= 0) + f"c{cube}" * (named and cube >= 0)
        return ".".join(filter(None, (where, f"pe{pe}" * (pe >= 0), engine)))

    def place(self, component: int) -> int:
        """The place of a component among all."""
        return self._nodes.index(component)

    def is_open(self, branch: Branch, folds: set[str], place: int) -> bool:
        """As the user has it (-ID in ``folds``: closed, +ID: open); else all of a small tree is
        open, of a large one what leads to the component at ``place``.
        """
        wanted = len(self.rows) <= _SMALL or branch.low <= place < branch.high
        return f"+{branch.id}" in folds or (wanted and f"-{branch.id}" not in folds)

    def shown(
        self, folds: set[str], place: int, slots: Callable[[int], list[int]] | None
    ) -> list[Branch]:
        """The rows that are not folded away, of a component its lanes if ``slots`` gives them."""
        found, i = list[Branch](), 0
        while i < len(self.rows):
            branch = self.rows[i]
            i += 1
            lanes = [] if slots is None or branch.group else slots(branch.row[0][0])
            if len(lanes) < 2:
                found.append(branch)
            for lane in lanes[: len(lanes) * (len(lanes) > 1)]:
                name, row = f"{branch.label} {lane}", (branch.row[0], lane)
                found.append(replace(branch, label=name, row=row))
            if branch.group and not self.is_open(branch, folds, place):
                i = branch.end
        return found

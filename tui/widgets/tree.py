"""The rows of the timeline as a tree: sip > cube > pe > engine, and the lanes of an engine."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.time.timeline import RowKey

_SMALL = 48  # rows; a larger tree is folded


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of components, one, or a lane of it: [low, high) of all; ``pes`` are in it, or 1."""

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


class Tree:
    """Made once; a level that tells nothing apart has no rows."""

    def __init__(self, session: ReplaySession) -> None:
        nodes, found = session.trace.nodes, session.op_index.components
        order = np.lexsort(
            (found, nodes.pe[found], nodes.cube[found], nodes.sip[found])
        )
        self.components: list[int] = found[order].tolist()
        stack = np.stack([nodes.sip, nodes.cube, nodes.pe], 1)[self.components].tolist()
        places: list[tuple[int, int, int]] = [*map(tuple, stack)]
        sizes = Counter(
            p[:n] for p in places for n in range(4) if -1 not in p[n - 1 : n]
        )
        many = Counter(len(place) for place in sizes)  # SIPs, cubes, PEs are there
        self.rows, seen = list[Branch](), set[tuple[int, ...]]()
        for low, (place, component) in enumerate(
            zip(places, self.components, strict=True)
        ):
            for n in (1, 2, 3):
                part = place[:n]
                if (
                    part not in seen
                    and many[n] > 1
                    and 1 < sizes[part] < sizes[part[:-1]]
                ):
                    seen.add(part)
                    high, label = low + sizes[part], session.label(component, n)
                    pes = len({p for p in places[low:high] if p[2] >= 0})
                    row = RowKey(tuple(self.components[low:high]))
                    self.rows.append(Branch(label, label, row, low, high, max(pes, 1)))
            label = session.label(component, 4)
            id = session.trace.node_ids[component]
            self.rows.append(Branch(id, label, RowKey((component,)), low, low + 1))
        self.at = {branch.id: branch for branch in self.rows}
        self.width = max((len(branch.label) for branch in self.rows), default=0)

    def is_open(self, branch: Branch, folds: set[str], place: int) -> bool:
        """As the user has it (-ID in ``folds``: closed, +ID: open); else all of a small tree is
        open, of a large one what leads to the component at ``place``.
        """
        wanted = len(self.rows) <= _SMALL or branch.low <= place < branch.high
        return f"+{branch.id}" in folds or (wanted and f"-{branch.id}" not in folds)

    def shown(
        self, folds: set[str], place: int, slots: Callable[[int], Sequence[int]] | None
    ) -> list[Branch]:
        """The rows that are not folded away, of a component its lanes if ``slots`` gives them."""
        found, i = list[Branch](), 0
        while i < len(self.rows):
            branch = self.rows[i]
            lanes = () if slots is None or branch.group else slots(branch.row[0][0])
            named = (
                (f"{branch.label} {lane}", RowKey(branch.row.components, lane))
                for lane in lanes
            )
            whole = len(lanes) < 2
            found += (
                [branch]
                if whole
                else [replace(branch, label=x, row=r) for x, r in named]
            )
            i += 1
            if branch.group and not self.is_open(branch, folds, place):
                i = bisect_left(self.rows, branch.high, i, key=lambda row: row.low)
        return found

"""Which op of a row of the timeline one goes to: what was in service at a moment, or
began by then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernbench.replay.arrays import Array, Bools, Ints
from kernbench.replay.index import Index
from tui.panes.tree import Branch


@dataclass(frozen=True, slots=True)
class Moment:
    """What is looked for in a row: what was in service after ``begins`` ns, of the ops
    up to position ``started``.
    """

    started: int
    begins: float = math.inf


class RowOps:
    """The ops of rows."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def in_service(self, branch: Branch, moment: Moment) -> int | None:
        """The last op of a row that was in service at a moment; None: there is none."""
        found = self._index.op_index.in_flight(moment.started, moment.begins)
        ops = np.array(found, np.int64)
        ops = ops[np.isin(self._index.ops.components[ops], branch.components)]
        if branch.lane is not None:
            ops = ops[self.lanes_of(ops) == branch.lane]
        return int(ops[-1]) if len(ops) else None

    def started(self, branch: Branch, started: int) -> int:
        """The last op up to position ``started`` that a component or lane served, else
        the first one that it did.

        Of a lane it is looked for in growing blocks on both sides of ``started``, since
        a component may have served millions of ops.
        """
        mine = self._index.op_index.ops_of(branch.components[0])
        count = int(np.searchsorted(mine, mine.dtype.type(started), side="right"))
        if branch.lane is None:
            return int(mine[max(count - 1, 0)])

        def in_lane(op: int, others: Array) -> Bools:
            return np.asarray(self.lanes_of(others) == branch.lane)

        ops = self._index.ops
        before = ops.seek(mine, started + 1, -1, in_lane)
        if before <= started:
            return before
        after = int(mine[count])
        if in_lane(after, mine[count : count + 1])[0]:
            return after
        return ops.seek(mine, after, 1, in_lane)

    def lanes_of(self, ops: Array) -> Ints:
        """The lane that served each op."""
        trace = self._index.trace
        return np.asarray(trace.op_columns.slot[trace.order[ops]])

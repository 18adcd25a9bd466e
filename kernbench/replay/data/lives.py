"""How long an allocation has its bytes: from which op on, and until which.

Nothing says when a scratch handle is released: its bytes are another's once the call
that made that one begins to run. Calls of different PEs begin in another order than
they were issued in, so a life is told in ops: whoever had bytes at an op still has them
when an older call of another PE begins after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.resumable import Steps, beside
from kernbench.replay.data.intervals import IntervalIndex
from kernbench.trace import Trace

_EVERY = 16
"""Places between two calls of progress; one takes some 50 us."""


class Loss(NamedTuple):
    """When bytes are lost: the op, and the allocation that has some of them then.

    The number of all ops, and -1, if they never are.
    """

    op: int
    to: int


class Lives:
    """From which op to which the allocations of a trace have their bytes.

    ``made`` is for each row of ``trace.allocs`` the first op of the call that made it;
    of a call without ops, the first of any call after it; the number of all ops if
    there is none. Nothing here changes once it is made: any thread may ask.
    """

    def __init__(self, trace: Trace, index: IntervalIndex) -> None:
        self._trace = trace
        self._index = index
        self.ops = len(trace.order)
        self.made = _first_ops(trace)

    def loss(self, rows: Ints) -> Loss:
        """When the first of some allocations loses a byte to one that was made later.

        What is made at the same op as one of them takes nothing from it.
        """
        found = Loss(self.ops, -1)
        for row in rows.tolist():
            others = self._overlapping(row)
            others = others[self.made[others] > self.made[row]]
            if not len(others):
                continue
            first = int(others[np.argmin(self.made[others])])
            if self.made[first] < found.op:
                found = Loss(int(self.made[first]), first)
        return found

    def losses(self) -> Steps[Ints]:
        """The op of ``loss`` of every allocation by itself; tensors lose nothing.

        Those at the very same bytes are looked up together.
        """
        log = self._trace.alloc_columns
        ends = np.full(len(self.made), self.ops, self.made.dtype)
        scratch = np.flatnonzero(log.va[:] == 0)
        if not len(scratch):
            return ends
        groups = yield from beside(lambda: self._at_same_bytes(scratch), 0.0)
        for done, mine in enumerate(groups):
            if done % _EVERY == 0:
                yield done / len(groups)
            others = np.sort(self.made[self._overlapping(int(mine[0]))])
            later = np.searchsorted(others, self.made[mine], side="right")
            ends[mine] = np.append(others, self.ops)[later]
        return ends

    def _at_same_bytes(self, rows: Ints) -> list[Ints]:
        """Some allocations, one at least, in groups of those at the very same bytes."""
        log = self._trace.alloc_columns
        parts = (log.nbytes[rows], log.addr[rows], log.space[rows])
        order = np.lexsort(parts)
        is_other = np.zeros(len(rows) - 1, np.bool_)
        for part in parts:
            is_other |= part[order[1:]] != part[order[:-1]]
        return np.split(rows[order], np.flatnonzero(is_other) + 1)

    def _overlapping(self, row: int) -> Ints:
        """The allocations that share bytes with one, itself among them."""
        log = self._trace.alloc_columns
        space = log.spaces[log.space[row]]
        return self._index.overlapping(space, int(log.addr[row]), int(log.nbytes[row]))


def _first_ops(trace: Trace) -> Ints:
    """By each allocation the first op of the call that made it; see ``Lives``."""
    calls = trace.op_columns.cmd[:][trace.order].astype(np.int64)
    issued, first = np.unique(calls, return_index=True)
    # of any call from this one on, with the number of all ops after the last
    from_here = np.minimum.accumulate(first[::-1])[::-1]
    from_here = np.append(from_here, len(calls))
    made_by = trace.alloc_columns.cmd[:].astype(np.int64)
    at = np.searchsorted(issued, made_by)
    found = from_here[at]
    has_ops = np.isin(made_by, issued)
    found[has_ops] = first[at[has_ops]]
    return np.asarray(found.astype(trace.order.dtype))

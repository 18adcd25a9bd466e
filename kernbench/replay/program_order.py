"""The ops that kernels have issued, in program order, and which hold which.

A PE holds a command until a cycle after every earlier one has started that touches the
same bytes, if one of the two writes them (docs/machine.md, "Program order").
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Floats, Ints, running_count
from kernbench.common.exact_time import SAME_NS, exact_times
from kernbench.common.messages import WAIT_REASONS, Region
from kernbench.common.rows import share_a_byte
from kernbench.sim_engine.accesses import Regions, regions
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import named
from kernbench.trace.spec_values import cycle_ns, sent_bytes_per_ns

HELD = WAIT_REASONS.index("operand")
_NONE = -1
_SEND = "ipcq_copy"


def program_order(trace: Trace, call: Ints, composite: Ints) -> ProgramOrder:
    """All ops of all kernels in program order; tiles are their composite's.

    ``call`` and ``composite`` are by op the rows of its call, and of the composite that
    it is a tile of (-1: none).
    """
    is_mine = (call >= 0) & (composite < 0)
    is_mine[is_mine] = trace.commands.launch[call[is_mine]] >= 0
    rows = np.flatnonzero(is_mine)
    return ProgramOrder(trace, rows, call[rows])


def unnamed_holds(trace: Trace, composite: Ints) -> Ints:
    """The rows of ``trace.waits`` in which an op was held behind one that ended later:
    a trace does not name it. ``composite`` is as of ``program_order``.
    """
    waits = trace.waits
    is_held = (waits.reason[:] == HELD) & (waits.row[:] >= 0)
    some = np.flatnonzero(is_held & (waits.holder[:] < 0))
    return some[composite[waits.row[some]] < 0]


def longest_hold(trace: Trace) -> float:
    """How long after its record begins an op can hold another at most, ns."""
    spec = trace.spec
    nbytes = trace.op_columns.nbytes[np.flatnonzero(named(trace, _SEND))]
    sent = exact_times(nbytes / sent_bytes_per_ns(spec)).max(initial=0.0)
    return float(sent) + cycle_ns(spec)


class ProgramOrder:
    """Some ops that kernels have issued, one kernel after the other.

    ``rows`` are their rows of the log, ``calls`` those of their calls, ``kernel`` says
    by op which kernel issued it. Places are those in this order.
    """

    def __init__(self, trace: Trace, rows: Ints, calls: Ints) -> None:
        self._trace = trace
        log = trace.commands
        order = np.lexsort((log.cmd[calls], log.launch[calls], log.pe[calls]))
        self.rows: Ints = rows[order]
        self.calls: Ints = calls[order]
        pe = log.pe[self.calls].astype(np.int64)
        launch = log.launch[self.calls].astype(np.int64)
        begins = np.diff(pe, prepend=_NONE) != 0
        begins |= np.diff(launch, prepend=_NONE) != 0
        self.kernel: Ints = running_count(begins) - 1
        self._sends = np.flatnonzero(named(trace, _SEND, self.rows))
        self._sent = trace.op_columns.nbytes[self.rows[self._sends]].astype(np.int64)
        self._known: dict[int, Regions] = {}

    def started(self, starts: Floats, bytes_per_ns: float) -> Floats:
        """When each op counts as started, ns, if its record begins at ``starts``.

        A send has started when all that it sends has been read, at that speed.
        """
        found = starts.copy()
        found[self._sends] += exact_times(self._sent / bytes_per_ns)
        return found

    def holders(self, rows: Ints, until: Floats) -> Ints:
        """Behind which op each of some was held up to a time (ns): rows; -1: unknown.

        It is the last one before it in program order that has started a cycle before
        then, and touches the same bytes.
        """
        found = np.full(len(rows), _NONE)
        if not len(rows) or not len(self.rows):  # a damaged trace may have lost them
            return found
        spec = self._trace.spec
        starts = self._trace.op_columns.t_start[self.rows]
        free = self.started(starts, sent_bytes_per_ns(spec)) + cycle_ns(spec)
        span = float(max(free.max(initial=0.0), until.max())) + 1.0
        at = self.kernel * span + free
        order = np.argsort(at, kind="stable")
        at = at[order]
        places = Groups(self.rows).first(rows)
        wanted = self.kernel[places] * span + until
        lows = np.searchsorted(at, wanted - SAME_NS)
        highs = np.searchsorted(at, wanted + SAME_NS, side="right")
        bounds = zip(places.tolist(), lows.tolist(), highs.tolist(), strict=True)
        for number, (place, low, high) in enumerate(bounds):
            if place < 0:
                continue
            for before in sorted(order[low:high].tolist(), reverse=True):
                if before < place and self.conflict(before, place):
                    found[number] = self.rows[before]
                    break
        return found

    def conflict(self, before: int, behind: int) -> bool:
        """Whether one of two ops writes bytes that the other touches; by places."""
        first = self._regions(before)
        second = self._regions(behind)
        if first.write is not None:
            touched = [*second.reads, *filter(None, [second.write])]
            if any(_share_a_byte(first.write, other) for other in touched):
                return True
        if second.write is None:
            return False
        return any(_share_a_byte(second.write, other) for other in first.reads)

    def _regions(self, place: int) -> Regions:
        row = int(self.rows[place])
        if row not in self._known:
            position = int(self._trace.position[row])
            self._known[row] = regions(self._trace.ops[position])
        return self._known[row]


def _share_a_byte(one: Region, other: Region) -> bool:
    return one.space == other.space and share_a_byte(one.where, other.where)

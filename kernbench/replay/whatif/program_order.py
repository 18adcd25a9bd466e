"""The ops that kernels have issued, in program order, and which hold which.

A PE holds a command until a cycle after every earlier one has started that touches the
same bytes, if one of the two writes them (docs/machine.md, "Program order").
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.messages import Region
from kernbench.common.rows import share_a_byte
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.machine import Machine
from kernbench.sim_engine.accesses import Regions, regions
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import named, tile_columns

_NONE = -1


class ProgramOrder:
    """The ops of all kernels, one kernel after the other; tiles are their composite's.

    ``rows`` are their rows of the log, ``calls`` those of their calls, ``kernel`` says
    by op which kernel issued it. Places are those in this order.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        log = trace.commands
        ops = trace.op_columns
        call = Groups(log.cmd[:]).first(ops.cmd[:])
        composite, _ = tile_columns(trace)
        is_mine = (call >= 0) & (composite < 0)
        is_mine[is_mine] = log.launch[call[is_mine]] >= 0
        rows = np.flatnonzero(is_mine)
        mine = call[rows]
        order = np.lexsort((log.cmd[mine], log.launch[mine], log.pe[mine]))
        self.rows: Ints = rows[order]
        self.calls: Ints = mine[order]
        pe = log.pe[self.calls].astype(np.int64)
        launch = log.launch[self.calls].astype(np.int64)
        begins = np.diff(pe, prepend=_NONE) != 0
        begins |= np.diff(launch, prepend=_NONE) != 0
        self.kernel: Ints = np.cumsum(begins) - 1
        self._sends = np.flatnonzero(named(trace, "ipcq_copy")[self.rows])
        self._sent = ops.nbytes[self.rows[self._sends]].astype(np.int64)
        self._known: dict[int, Regions] = {}

    def started(self, starts: Floats, machine: Machine) -> Floats:
        """When each op counts as started, ns, if its record begins at ``starts``.

        A send has started when all that it sends has been read.
        """
        found = starts.copy()
        found[self._sends] += weights.sent(machine, self._sent)
        return found

    def holders(self, rows: Ints, until: Floats, machine: Machine) -> Ints:
        """Behind which op each of some was held up to a time (ns): rows; -1: unknown.

        It is the last one before it in program order that has started a cycle before
        then, and touches the same bytes.
        """
        found = np.full(len(rows), _NONE)
        if not len(rows):
            return found
        starts = self._trace.op_columns.t_start[self.rows]
        free = self.started(starts, machine) + machine.cycle_ns
        span = float(max(free.max(), until.max())) + 1.0
        at = self.kernel * span + free
        order = np.argsort(at, kind="stable")
        at = at[order]
        place_of_row = np.full(len(self._trace.order), _NONE)
        place_of_row[self.rows] = np.arange(len(self.rows))
        places = place_of_row[rows]
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

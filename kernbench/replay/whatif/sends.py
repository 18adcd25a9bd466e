"""Which pushes come behind which others, as sends of one direction do.

A PE_IPCQ serves the sends of a direction one after the other (docs/machine.md, "Queues
between PEs"): nothing of one is pushed before all of the one before it has been read.
The pushes of one send do not wait for each other.
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Ints, numbered, running_count, runs_begin
from kernbench.trace import Trace

_RING = "ipcq."
"""What the names of rings begin with, as ``kernbench.ccl.install`` gives them."""


def sends_in_turn(trace: Trace, rows: Ints, slots: Ints) -> tuple[Ints, Ints]:
    """Pairs of pushes, rows of the log, of which the second is behind the first.

    ``rows`` are pushes, each into one of ``slots``, by its address. A direction is
    known by the ring that is at its end, and a send is one call.
    """
    ring = np.searchsorted(_rings(trace), slots, side="right") - 1
    known = ring >= 0
    rows = rows[known]
    ring = ring[known]
    order = np.lexsort((trace.op_columns.t_start[rows], ring))
    rows = rows[order]
    ring = ring[order]
    cmd = trace.op_columns.cmd[rows]
    begins = runs_begin(ring) | runs_begin(cmd)
    first = np.flatnonzero(begins)
    if len(first) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    send = running_count(begins) - 1

    # The first push of a send is behind all of the one before it.
    next_first = np.append(first[1:], first[-1])[send]
    has_next = ring[next_first] == ring
    has_next &= send < send[-1]
    # The others are behind the last of the one before: of many pushes that is fewer
    # pairs than each with each.
    last_before = np.maximum(first[send] - 1, 0)
    is_other = ~begins & (send > 0) & (ring[last_before] == ring)

    before = np.concatenate([rows[has_next], rows[last_before[is_other]]])
    behind = np.concatenate([rows[next_first[has_next]], rows[is_other]])
    return before, behind


def _rings(trace: Trace) -> Ints:
    """The addresses at which rings begin, ascending."""
    log = trace.alloc_columns
    used, which = numbered(log.tensor[:])
    is_ring = [trace.strings[number].startswith(_RING) for number in used.tolist()]
    found = np.array(is_ring, np.bool_)[which.reshape(-1)]
    return np.sort(log.addr[:][found].astype(np.int64))

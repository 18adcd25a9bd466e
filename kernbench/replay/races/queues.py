"""The queues between PEs: which payload each recv took, and from which ring.

Payloads of a slot come and go one after the other: what is pushed into it as the k-th
is taken out of it as the k-th.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Ints, numbered
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import has_text

_ADDRESS_BITS = 52


class Queues(NamedTuple):
    """The copies into slots and out of them, by number of an access of the trace.

    ``pushed`` are the writes of slots, ascending, and ``source`` what was read for
    each; ``taken`` are the reads of slots, and ``landing`` where each was written to.
    A slot is of a ring, which has a number from 0, -1 of one that is not known.
    ``taker`` has for each of ``pushed`` the place in ``taken`` of the recv that took
    it, -1 if none did. ``early`` are pairs of accesses: a read of a slot, and the next
    write of it, where the slot was given back before it had been read.
    """

    pushed: Ints
    source: Ints
    pushed_ring: Ints
    taken: Ints
    landing: Ints
    taken_ring: Ints
    taker: Ints
    early: Ints


def queues_of(trace: Trace, touched: AccessColumns, allocs: AccessColumns) -> Queues:
    """The queues of a trace; ``touched`` are its accesses by canonical position."""
    row = trace.order[touched.row]
    is_write = touched.mode == 1
    name = trace.op_columns.name
    pushed = np.flatnonzero(has_text(trace, name, "ipcq_copy")[row] & is_write)
    taken = np.flatnonzero(has_text(trace, name, "ipcq_recv")[row] & ~is_write)
    rings = _rings(trace, allocs)
    slot_of_push = _coordinates(touched, pushed)
    slot_of_take = _coordinates(touched, taken)
    push_order = np.argsort(slot_of_push, kind="stable")
    take_order = np.argsort(slot_of_take, kind="stable")
    slots = slot_of_push[push_order]
    # the k-th take of a slot stands as far behind its first as the k-th push does
    first_push = np.searchsorted(slots, slot_of_take[take_order])
    first_take = np.searchsorted(slot_of_take[take_order], slot_of_take[take_order])
    at = first_push + np.arange(len(taken)) - first_take
    within = np.minimum(at, max(len(slots) - 1, 0))
    is_there = at < len(slots)
    if len(slots):
        is_there &= slots[within] == slot_of_take[take_order]
    taker = np.full(len(pushed), -1)
    taker[push_order[within[is_there]]] = take_order[is_there]
    early = _early(trace, touched, pushed, push_order, slot_of_push, taken, taker)
    return Queues(
        pushed,
        _beside(touched, pushed, -1),
        _ring_of(rings, slot_of_push),
        taken,
        _beside(touched, taken, 1),
        _ring_of(rings, slot_of_take),
        taker,
        early,
    )


def _beside(touched: AccessColumns, at: Ints, step: int) -> Ints:
    """The access of the same op before or behind each; -1 where there is none."""
    beside = np.clip(at + step, 0, max(len(touched.row) - 1, 0))
    is_own = (touched.row[beside] == touched.row[at]) & (beside != at)
    return np.where(is_own, beside, -1)


def _coordinates(touched: AccessColumns, at: Ints) -> Ints:
    """The memory and the address of accesses as one number."""
    space = touched.space[at].astype(np.int64)
    return np.asarray((space << _ADDRESS_BITS) + touched.addr[at].astype(np.int64))


def _rings(trace: Trace, allocs: AccessColumns) -> Ints:
    """Where the rings begin, ascending, as coordinates."""
    used, which = numbered(trace.alloc_columns.tensor[:])
    is_ring = [trace.strings[i].startswith("ipcq.") for i in used.tolist()]
    if not any(is_ring):
        return np.empty(0, np.int64)
    mine = np.array(is_ring, np.bool_)[which][allocs.row]
    return np.sort(_coordinates(allocs, np.flatnonzero(mine)))


def _ring_of(rings: Ints, slots: Ints) -> Ints:
    """The number of the ring that each slot lies in; -1 where none is known."""
    return np.searchsorted(rings, slots, side="right") - 1


def _early(
    trace: Trace,
    touched: AccessColumns,
    pushed: Ints,
    push_order: Ints,
    slots: Ints,
    taken: Ints,
    taker: Ints,
) -> Ints:
    """Pairs of a read of a slot and its next write, where its credit came too early.

    An array of two columns. A credit is a transaction of the recv's own call and of no
    op, sent when the slot has been read.
    """
    none = np.empty((0, 2), np.int64)
    before = push_order[:-1]
    behind = push_order[1:]
    again = np.flatnonzero((slots[before] == slots[behind]) & (taker[before] >= 0))
    if not len(again):
        return none
    reads = taken[taker[before[again]]]
    in_time = _given_back_in_time(trace, touched, taken)
    if in_time is None:
        return none
    late = ~in_time[taker[before[again]]]
    return np.stack([reads[late], pushed[behind[again[late]]]], axis=1)


def _given_back_in_time(
    trace: Trace, touched: AccessColumns, taken: Ints
) -> Bools | None:
    """Whether the credit of each read of a slot was sent after it; None if no credit
    was recorded at all.
    """
    log = trace.transfers
    of_no_op = np.flatnonzero(log.row[:] < 0)
    of_no_op = of_no_op[_between_queues(trace, log.path[of_no_op].astype(np.int64))]
    if not len(of_no_op):
        return None
    row = trace.order[touched.row[taken]]
    cmds = trace.op_columns.cmd[row]
    # the k-th credit of a call is that of the k-th slot that it took
    credits = of_no_op[np.lexsort((log.t0[of_no_op], log.cmd[of_no_op]))]
    by_call = Groups(log.cmd[credits])
    ends = trace.op_columns.t_end[row]
    order = np.lexsort((ends, cmds))
    same = np.searchsorted(cmds[order], cmds[order])
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order)) - same
    first = by_call.first(cmds)
    found = first + at
    within = np.minimum(found, len(credits) - 1)
    is_own = (first >= 0) & (found < len(credits))
    is_own &= log.cmd[credits[within]] == cmds
    return np.asarray(is_own & (log.t0[credits[within]] >= ends))


def _between_queues(trace: Trace, paths: Ints) -> Bools:
    """Which of some paths lead from a pe_ipcq to another one."""
    used, which = numbered(paths)
    fits = []
    for path in used.tolist():
        nodes = trace.paths[path]
        ends = {trace.nodes.engine[node] for node in (nodes[0], nodes[-1])}
        fits.append(ends == {"pe_ipcq"})
    return np.array(fits, np.bool_)[which]

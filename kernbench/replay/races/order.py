"""Whether one access of a trace is before another, by the edges of the memory model."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Ints, numbered
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.replay.races.calls import NEVER, Calls, calls_of
from kernbench.replay.races.clocks import Clocks, clocks_of
from kernbench.replay.races.queues import Queues, queues_of
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace
from kernbench.trace.hops import has_text

_IN_ORDER = ("pe_gemm", "pe_math", "pe_scheduler")
"""Engines that serve one command after the other, as they were issued."""

_NO_LANE = -1


class Order(NamedTuple):
    """When accesses are issued and known to be done, each by its number in a trace.

    An access is issued by call ``number`` of PE ``pe`` (-1: by no kernel), and it is
    done when that PE's call ``done`` has returned. Of a payload that was taken by
    another PE that is also known when call ``taken`` of PE ``taker`` has returned.
    Accesses of one ``lane`` >= 0 are in order; if they are not ``in_turn``, as those of
    a DMA, only where they share bytes. ``is_sent``: it reads what is sent, before a
    later op of its PE may write there. ``early`` are pairs that a credit which came too
    early leaves unordered. A PE has a number for each rank that launches on it, and one
    ``home`` for all of these. ``in_tcm``: it is of bytes of a TCM.
    """

    pe: Ints
    home: Ints
    in_tcm: Bools
    number: Ints
    launch: Ints
    done: Ints
    taker: Ints
    taken: Ints
    lane: Ints
    in_turn: Bools
    is_sent: Bools
    clock: Ints
    table: Ints
    early: Ints

    def before(self, a: Ints, b: Ints) -> Bools:
        """By pair, whether access ``a[i]`` is before ``b[i]``, which is issued later.

        What no kernel has issued is in order with all others.
        """
        lane = self.lane[a]
        found = (lane >= 0) & (lane == self.lane[b])
        found |= (self.pe[a] == self.pe[b]) & self.is_sent[a]
        return np.asarray(found | self.chained(a, b))

    def chained(self, a: Ints, b: Ints) -> Bools:
        """By pair, whether ``a[i]`` is before ``b[i]`` and all that is behind that.

        It is not where only these two are in order: as two DMAs of a PE in HBM, or
        where ``b[i]`` writes what ``a[i]`` sends.
        """
        found = (self.pe[a] < 0) | (self.pe[b] < 0)
        lane = self.lane[a]
        found |= (lane >= 0) & (lane == self.lane[b]) & self.in_turn[a]
        # a PE serves one kernel at a time, and none takes scratch of another
        is_scratch = self.in_tcm[a] & (self.home[a] == self.home[b])
        found |= is_scratch & (self.pe[a] != self.pe[b])
        return np.asarray(found | self.known_before(a, b))

    def known_before(self, a: Ints, b: Ints) -> Bools:
        """By pair, whether ``a[i]`` is known to be done where ``b[i]`` is issued."""
        found = self.done[a] < self._known(b, self.pe[a])
        was_taken = self.taker[a] >= 0
        found |= was_taken & (self.taken[a] < self._known(b, self.taker[a]))
        return np.asarray(found)

    def _known(self, b: Ints, pe: Ints) -> Ints:
        """How many calls of some PEs are known to have returned where ``b`` is issued.

        Of its own PE those are all before.
        """
        seen = self.table[self.clock[b], np.maximum(pe, 0)]
        return np.where(self.pe[b] == pe, self.number[b], seen)


def order_of(
    trace: Trace,
    touched: AccessColumns,
    allocs: AccessColumns,
    progress: Progress = no_progress,
) -> Order:
    """The order of the accesses of a trace; ``touched`` is by canonical position."""
    calls = computed_beside(partial(calls_of, trace), progress, 0.0)
    queues = computed_beside(partial(queues_of, trace, touched, allocs), progress, 0.2)
    order = computed_beside(
        partial(_without_clocks, trace, touched, calls, queues), progress, 0.4
    )
    messages = _messages(order, queues)
    clocks = clocks_of(trace, calls, messages, stage(progress, 0.6, 0.8))
    return computed_beside(partial(_with_clocks, order, clocks), progress, 0.9)


def _without_clocks(
    trace: Trace, touched: AccessColumns, calls: Calls, queues: Queues
) -> Order:
    """The order within each PE, and who took what was sent."""
    count = len(touched.row)
    row = trace.order[touched.row]
    log = trace.op_columns
    call = calls.by_cmd.first(log.cmd[row])
    known = np.flatnonzero(call >= 0)
    call = call[known]

    def by_access(by_call: Ints, unknown: int) -> Ints:
        found = np.full(count, unknown)
        found[known] = by_call[call]
        return found

    pe = by_access(calls.pe, -1)
    pe[has_text(trace, log.name, "host_write", "host_read")[row]] = -1
    number = by_access(calls.number, -1)
    done = by_access(calls.done, NEVER)
    lane = np.full(count, _NO_LANE)
    engines = np.array([name in _IN_ORDER for name in trace.nodes.engine], np.bool_)
    component = log.component[row].astype(np.int64)
    in_turn = engines[component]
    pes = max(calls.pes, 1)
    lane[in_turn] = component[in_turn] * pes + np.maximum(pe[in_turn], 0)
    first_lane = len(engines) * pes
    is_hbm = np.array([space == "hbm" for space in touched.spaces], np.bool_)
    of_dma = has_text(trace, log.name, "dma_read", "dma_write")[row]
    of_dma &= is_hbm[touched.space]
    of_dma &= pe >= 0
    _known_by_later_ones(done, number, lane)
    lane[of_dma] = first_lane + pe[of_dma]
    first_lane += calls.pes
    # sends and recvs of a ring are served one after the other; a send has ended when
    # its source has been read
    source = queues.source
    ends = (
        (source, queues.pushed_ring),
        (queues.taken, queues.taken_ring),
        (queues.landing, queues.taken_ring),
    )
    for at, ring in ends:
        served = np.full(count, _NO_LANE)
        served[at[at >= 0]] = ring[at >= 0]
        _known_by_later_ones(done, number, served)
    for at, ring in ((queues.pushed, queues.pushed_ring), *ends[1:]):
        of_ring = (at >= 0) & (ring >= 0)
        lane[at[of_ring]] = first_lane + ring[of_ring]
    done[queues.pushed] = NEVER
    taker = np.full(count, -1)
    when = np.full(count, NEVER)
    received = queues.taker >= 0
    recv = queues.taken[queues.taker[received]]
    for at in (queues.pushed[received], source[received]):
        taker[at[at >= 0]] = pe[recv[at >= 0]]
        when[at[at >= 0]] = done[recv[at >= 0]]
    is_sent = np.zeros(count, np.bool_)
    is_sent[source[source >= 0]] = True
    nothing = np.empty(0, np.int64)
    home = np.where(pe >= 0, np.append(calls.home, -1)[pe], -1)
    return Order(
        pe,
        home,
        np.array([name == "tcm" for name in touched.spaces], np.bool_)[touched.space],
        number,
        by_access(calls.launch, -1),
        done,
        taker,
        when,
        lane,
        ~of_dma,
        is_sent,
        nothing,
        nothing,
        queues.early,
    )


def _known_by_later_ones(done: Ints, number: Ints, lane: Ints) -> None:
    """What is served in order is known to be done when a later one is.

    ``done`` is changed for accesses of a lane: none is later than of those behind it.
    """
    mine = np.flatnonzero(lane >= 0)
    late = mine[done[mine] > number[mine]]
    if not len(late):
        return
    order = mine[np.lexsort((number[mine], lane[mine]))][::-1]
    _, rank = numbered(lane[order])
    # lanes come from the last to the first, so each begins below all before it
    shifted = done[order] + rank * (NEVER + 1)
    done[order] = np.minimum.accumulate(shifted) - rank * (NEVER + 1)


def _messages(order: Order, queues: Queues) -> Ints:
    """Receiver and call, sender and call of each slot's worth of a payload."""
    pushed = queues.pushed[queues.taker >= 0]
    columns = (
        order.taker[pushed],
        order.taken[pushed],
        order.pe[pushed],
        order.number[pushed],
    )
    messages = np.stack(columns, axis=1)
    return messages[(messages[:, [0, 2]] >= 0).all(axis=1)]


def _with_clocks(order: Order, clocks: Clocks) -> Order:
    """The same with the clock of each access."""
    clock = clocks.at(order.pe, order.number, order.launch)
    return order._replace(clock=np.maximum(clock, 0), table=clocks.table)

"""Bytes that several PEs use at a time, and which of their accesses are neighbours.

Of all accesses to a byte only neighbours have to be compared: a read with the write
before it, a write with that write and with the reads since then. If the later of each
two, of whichever PEs, is issued when the earlier is known to be done, so are all
others. Little of what a run touches comes so far: memory is cut into parts that do not
overlap, and a part that one PE uses alone, or that nobody writes, is left out; strided
rows are told apart only where their spans overlap.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Bools,
    Ints,
    distinct,
    numbered,
    repeated,
    running_count,
)
from kernbench.common.progress import Progress, computed_beside
from kernbench.common.room import make_room
from kernbench.replay.races.order import Order
from kernbench.sim_engine.access_columns import AccessColumns

_ADDRESS_BITS = 52
_MOST_PAIRS = 1 << 16
"""Pairs of accesses to cells with neighbours in no order that are compared, about."""

_BYTES_A_PIECE = 100
"""Memory that one range of bytes of one use takes, about."""


class _Spans(NamedTuple):
    """Ranges of bytes [low, high), each of the use ``of``; see ``_Uses``."""

    of: Ints
    low: Ints
    high: Ints


class _Uses(NamedTuple):
    """What a PE does to a place at a time, each different thing once.

    ``first`` is the number of an access of that kind, ``epoch`` the time: a launch,
    where launches follow each other. ``of_access`` has the use of every access that
    counts, and ``accesses`` are these.
    """

    first: Ints
    pe: Ints
    epoch: Ints
    writes: Bools
    accesses: Ints
    of_access: Ints


def unordered(
    touched: AccessColumns, order: Order, is_serial: bool, progress: Progress
) -> tuple[Ints, bool]:
    """Pairs of accesses of two PEs to one byte, one of them a write, in no order.

    Two columns, the access of the lower number first, and whether these are all: of a
    byte whose neighbours are not all in order every two are compared, as far as they
    are few. If launches are not one after the other (``is_serial``), all of them are
    one time.
    """
    uses = computed_beside(partial(_uses, touched, order, is_serial), progress, 0.0)
    spans = computed_beside(partial(_shared_spans, touched, uses), progress, 0.4)
    if not len(spans.of):
        return np.empty((0, 2), np.int64), True
    return computed_beside(
        partial(_unordered, touched, order, uses, spans), progress, 0.8
    )


def _uses(touched: AccessColumns, order: Order, is_serial: bool) -> _Uses:
    """Who uses which place when; the host is left out.

    A PE serves one kernel at a time, so what it does in its own TCM is of one PE,
    whoever launched it.
    """
    counts = order.pe >= 0
    accesses = np.flatnonzero(counts)
    places = touched.take(accesses).distinct_places()
    epoch = np.zeros(len(accesses), np.int64)
    if is_serial:
        epoch = numbered(order.launch[accesses])[1]
    pe = np.where(order.in_tcm[accesses], order.home[accesses], order.pe[accesses])
    mode = touched.mode[accesses]
    epochs = int(epoch.max(initial=0)) + 1
    pes = int(pe.max(initial=0)) + 1
    key = ((places.which * epochs + epoch) * pes + pe) * 2 + mode
    order_of_keys = np.argsort(key, kind="stable")
    is_new = np.ones(len(key), np.bool_)
    is_new[1:] = np.diff(key[order_of_keys]) != 0
    of_access = np.empty(len(key), np.int64)
    of_access[order_of_keys] = running_count(is_new) - 1
    first = order_of_keys[is_new]
    return _Uses(
        accesses[first],
        pe[first],
        epoch[first],
        mode[first] == 1,
        accesses,
        of_access,
    )


def _shared_spans(touched: AccessColumns, uses: _Uses) -> _Spans:
    """The ranges of bytes of uses that meet one of another PE, one of them a write."""
    every = np.arange(len(uses.first))
    low = touched.space[uses.first].astype(np.int64) << _ADDRESS_BITS
    low += touched.addr[uses.first].astype(np.int64)
    spans = _Spans(every, low, low + touched.spans_of(uses.first))
    mine = _in_shared_parts(uses, spans)
    counts = touched.piece_counts(uses.first[mine])
    make_room(int(counts.sum()) * _BYTES_A_PIECE, "every row that several PEs use")
    pieces = touched.pieces(uses.first[mine])
    low = touched.space[uses.first[mine]].astype(np.int64) << _ADDRESS_BITS
    low = low[pieces.of] + pieces.addr
    spans = _Spans(mine[pieces.of], low, low + pieces.nbytes)
    kept = _in_shared_parts(uses, spans)
    return _Spans(spans.of[kept], spans.low[kept], spans.high[kept])


def _in_shared_parts(uses: _Uses, spans: _Spans) -> Ints:
    """The ranges in parts of memory that several PEs use at a time, one writing.

    A part is a run of ranges of one time of which each overlaps those before it.
    """
    if not len(spans.of):
        return np.empty(0, np.int64)
    epoch = uses.epoch[spans.of]
    order = np.lexsort((spans.low, epoch))
    edges = distinct(np.concatenate([spans.low, spans.high]))
    width = len(edges) + 1
    low = epoch[order] * width + np.searchsorted(edges, spans.low[order])
    high = epoch[order] * width + np.searchsorted(edges, spans.high[order])
    reach = np.maximum.accumulate(high)
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = low[1:] >= reach[:-1]
    firsts = np.flatnonzero(is_first)
    pe = uses.pe[spans.of[order]]
    writes = uses.writes[spans.of[order]]
    shared = np.minimum.reduceat(pe, firsts) != np.maximum.reduceat(pe, firsts)
    shared &= np.logical_or.reduceat(writes, firsts)
    part = running_count(is_first) - 1
    return np.asarray(order[shared[part]])


def _unordered(
    touched: AccessColumns, order: Order, uses: _Uses, spans: _Spans
) -> tuple[Ints, bool]:
    """The pairs in no order among the accesses to some ranges; see ``unordered``."""
    cell, use = _cells(uses, spans)
    access, cell = _by_access(uses, cell, use)
    in_turn = np.lexsort((access, cell))
    access = access[in_turn]
    cell = cell[in_turn]
    writes = touched.mode[access] == 1
    low, high = _neighbours(writes, cell)
    found = [_races(touched, order, access, low, high)]
    is_loose = ~order.chained(access[low], access[high])
    is_loose &= touched.row[access[low]] != touched.row[access[high]]
    mine = np.flatnonzero(np.isin(cell, cell[low[is_loose]]))
    low, high, is_all = _all_pairs(cell[mine])
    found.append(_races(touched, order, access, mine[low], mine[high]))
    both = np.concatenate(found)
    count = len(touched.row)
    later, earlier = np.divmod(distinct(both[:, 1] * count + both[:, 0]), count)
    return np.stack([earlier, later], axis=1), is_all


def _races(
    touched: AccessColumns, order: Order, access: Ints, low: Ints, high: Ints
) -> Ints:
    """The pairs (access[low], access[high]) of two PEs, one a write, in no order."""
    earlier = access[low]
    later = access[high]
    is_pair = order.pe[earlier] != order.pe[later]
    is_pair &= (touched.mode[earlier] == 1) | (touched.mode[later] == 1)
    earlier = earlier[is_pair]
    later = later[is_pair]
    before = order.before(earlier, later)
    return np.stack([earlier[~before], later[~before]], axis=1)


def _neighbours(writes: Bools, cell: Ints) -> tuple[Ints, Ints]:
    """The places of the accesses to a cell that have to be compared.

    Those to one cell stand together, in their order.
    """
    at = np.arange(len(cell))
    is_first = np.ones(len(cell), np.bool_)
    is_first[1:] = np.diff(cell) != 0
    start = np.maximum.accumulate(np.where(is_first, at, 0))
    # the last write before each, and the first behind it
    last = np.maximum.accumulate(np.where(writes, at, -1))
    before = np.append(-1, last[:-1])
    behind = np.minimum.accumulate(np.where(writes, at, len(at))[::-1])[::-1]
    behind = np.append(behind[1:], len(at))
    compared = before >= start
    reads = np.flatnonzero(~writes & (behind < len(at)))
    reads = reads[cell[behind[reads]] == cell[reads]]
    low = np.concatenate([before[compared], reads])
    high = np.concatenate([at[compared], behind[reads]])
    return low, high


def _all_pairs(cell: Ints) -> tuple[Ints, Ints, bool]:
    """All pairs of places of one cell, of the first cells with few enough of them.

    Also whether that was all cells.
    """
    firsts = np.flatnonzero(np.append(True, np.diff(cell) != 0)[: len(cell)])
    counts = np.diff(np.append(firsts, len(cell)))
    pairs = np.cumsum(counts * counts)
    kept = pairs <= _MOST_PAIRS
    lows = []
    highs = []
    for first, count in zip(firsts[kept].tolist(), counts[kept].tolist(), strict=True):
        low, high = np.triu_indices(count, 1)
        lows.append(first + low)
        highs.append(first + high)
    none = [np.empty(0, np.int64)]
    return np.concatenate(none + lows), np.concatenate(none + highs), bool(kept.all())


def _cells(uses: _Uses, spans: _Spans) -> tuple[Ints, Ints]:
    """The cells of all ranges, and the use of each: a cell is cut by no range's end.

    Cells of one time only are the same.
    """
    edges = distinct(np.concatenate([spans.low, spans.high]))
    first = np.searchsorted(edges, spans.low)
    counts = np.searchsorted(edges, spans.high) - first
    make_room(int(counts.sum()) * _BYTES_A_PIECE, "all bytes that several PEs use")
    of = repeated(np.arange(len(counts)), counts)
    within = np.arange(len(of)) - repeated(np.cumsum(counts) - counts, counts)
    use = spans.of[of]
    return uses.epoch[use] * len(edges) + first[of] + within, use


def _by_access(uses: _Uses, cell: Ints, use: Ints) -> tuple[Ints, Ints]:
    """Every access to some cells, and the cell: an access is there once for each."""
    order = np.argsort(use, kind="stable")
    use = use[order]
    wanted = np.zeros(len(uses.first), np.bool_)
    wanted[use] = True
    mine = np.flatnonzero(wanted[uses.of_access])
    low = np.searchsorted(use, uses.of_access[mine])
    counts = np.searchsorted(use, uses.of_access[mine], side="right") - low
    make_room(int(counts.sum()) * _BYTES_A_PIECE, "all accesses of several PEs")
    of = repeated(np.arange(len(mine)), counts)
    within = np.arange(len(of)) - repeated(np.cumsum(counts) - counts, counts)
    return uses.accesses[mine[of]], cell[order[low[of] + within]]

"""Accesses that meet in time, and those of bytes that nobody wrote or allocated.

What of that is a race, and how it is told, is not said here (``replay/races``).

Found from intervals over the op log, by columns: no op is executed.

Conflicts are found without comparing every two of millions of accesses: memory is cut
into granules as large as the larger of a pair, so that two that overlap share one, and
in each granule accesses are sorted by when they begin, so that those which meet one in
time follow it. What never meets ends there; the bytes of the rest are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Bools,
    Floats,
    Ints,
    distinct,
    numbered,
    repeated,
)
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
)
from kernbench.common.room import make_room
from kernbench.replay.data.intervals import level_bytes, size_levels
from kernbench.replay.data.spread import (
    Spread,
    shared_bytes,
    spread_of,
)
from kernbench.sim_engine.access_columns import AccessColumns, Places
from kernbench.trace import Trace
from kernbench.trace.groups import ranges
from kernbench.trace.hops import rows_of_calls

LATE_WRITER = "read of bytes whose writer is in flight"
TWO_WRITERS = "overlapping writes in flight"
EARLY_WRITER = "write over bytes that are being read"
NEVER_WRITTEN = "read of bytes never written"
OUTSIDE = "access outside its allocation"
SNAPSHOT = "Phase 1 snapshot differs from the Phase 2 value"

CONFLICTS = ((EARLY_WRITER, EARLY_WRITER), (LATE_WRITER, TWO_WRITERS))
"""The kind of a conflict by the modes (1: a write) of the earlier and the later."""

_HOST_OPS = ("host_write", "host_read")
_LEFT_OUT = 99
"""The size level of accesses that no other can be in conflict with."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2 ** 64 over the golden ratio: Knuth's multiplicative hash."""
_HASH_BITS = 22

_ADDRESS_BITS = 52
_NEVER = 1 << 62
_PAIRS_AT_ONCE = 1 << 21
"""Candidate pairs in memory at one time."""
_ROWS_AT_ONCE = 1 << 12
"""Rows that Python looks at between two calls of progress."""
_BYTES_A_PIECE = 100
"""Memory that the cells of one piece take, about."""
MOST_PAIRS = 1 << 20
"""Pairs of accesses that are looked for, about."""


class Hazard(NamedTuple):
    """Bytes [addr, end) of a space that op ``op`` uses as it should not.

    ``other`` is the op that is in its way, -1 for none. Both are canonical positions.
    ``spread`` says how those bytes lie that are in question, None: all of them are.
    """

    kind: str
    op: int
    other: int
    space: str
    addr: int
    end: int
    spread: Spread | None = None


class Timing(NamedTuple):
    """When each access begins and ends, ns (it begins at inf: it is left out).

    Accesses of one ``lane`` >= 0 are in order; those of lane -1 with no other.
    """

    begins: Floats
    ends: Floats
    lane: Ints


class _Turns(NamedTuple):
    """The place of each access in the order of their begins.

    ``until`` is the place of the first that begins too late to meet it.
    """

    turn: Ints
    until: Ints


class _Granules(NamedTuple):
    """Accesses by granule of memory and, in each, by turn; ``who`` are their numbers.

    ``keys`` ascend: the granule's hash times the number of accesses + 1, plus the turn;
    ``stops`` are those keys with ``until`` instead. ``large`` and ``writes`` say
    whether an access is of the size of the granule, and a write.
    """

    who: Ints
    keys: Ints
    stops: Ints
    large: Bools
    writes: Bools


class _Meeting(NamedTuple):
    """Accesses that begin earlier, each with a run of those that it meets.

    Access ``early[i]`` meets ``late[lows[i]]`` and the ``counts[i] - 1`` behind that.
    """

    early: Ints
    late: Ints
    lows: Ints
    counts: Ints

    def batches(self) -> list[Ints]:
        """Numbers of ``early``, cut so that each part has few enough pairs."""
        before = np.cumsum(self.counts) - self.counts
        busy = np.flatnonzero(self.counts)
        batch = before[busy] // _PAIRS_AT_ONCE
        return np.split(busy, np.flatnonzero(np.diff(batch)) + 1)

    def pairs(self, batch: Ints) -> tuple[Ints, Ints]:
        """The numbers of the earlier and the later access of each pair of a batch.

        As many pairs as the batch's ``counts`` add up to, those of one access together.
        """
        counts = self.counts[batch]
        ends = np.cumsum(counts)
        starts = ends - counts
        which = repeated(np.arange(len(batch)), counts)
        offset = np.arange(len(which)) - starts[which]
        later = self.lows[batch][which] + offset
        return self.early[batch][which], self.late[later]


def conflicting_pairs(
    touched: AccessColumns, timing: Timing, progress: Progress = no_progress
) -> Ints:
    """The pairs of accesses that overlap in bytes and in time, one of them a write.

    Two columns, the earlier access and the later one, in the order of the later. Of two
    that begin at once the one of the lower number is the earlier. At most some more
    than ``MOST_PAIRS``.
    """
    found = [np.empty(0, np.int64)]
    pairs = 0
    for meeting in _meetings(touched, timing, progress):
        for batch in meeting.batches():
            find = partial(_conflicting, touched, timing, meeting, batch)
            found.append(computed_beside(find, progress, 0.4))
            pairs += len(found[-1])
            if pairs > MOST_PAIRS:
                break
    # those found twice (in two granules) once
    numbers = computed_beside(lambda: distinct(np.concatenate(found)), progress, 0.5)
    later, earlier = np.divmod(numbers, max(len(touched.row), 1))
    return np.stack([earlier, later], axis=1)


def _conflicting(
    touched: AccessColumns, timing: Timing, meeting: _Meeting, batch: Ints
) -> Ints:
    """Which pairs of a batch are conflicts, as numbers:

    the later access times the number of all, plus the earlier.
    """
    a, b = meeting.pairs(batch)
    lane = timing.lane[a]
    in_order = (lane >= 0) & (lane == timing.lane[b])
    near = np.flatnonzero((touched.row[a] != touched.row[b]) & ~in_order)
    a = a[near]
    b = b[near]
    real = touched.share(a, b)
    # a pair may share several granules
    return distinct(b[real] * len(touched.row) + a[real])


def conflict(touched: AccessColumns, earlier: int, later: int) -> Hazard:
    """The conflict of two accesses that share bytes."""
    kind = CONFLICTS[touched.mode[earlier]][touched.mode[later]]
    op = int(touched.row[later])
    other = int(touched.row[earlier])
    space = touched.spaces[touched.space[later]]
    a = touched.rows_of(earlier)
    b = touched.rows_of(later)
    if a.is_one and b.is_one:
        low = max(a.addr, b.addr)
        high = min(a.addr + a.nbytes, b.addr + b.nbytes)
        return Hazard(kind, op, other, space, low, high)
    spread = shared_bytes(a, b)
    return Hazard(kind, op, other, space, spread.addr, spread.end, spread)


def _meetings(
    touched: AccessColumns, timing: Timing, progress: Progress
) -> Iterator[_Meeting]:
    """Accesses that meet in time and share a granule of the larger's size.

    Memory is cut into granules of each size level in turn. An access is in one or two
    of those that are at least as large; two that overlap share one.
    """
    turns = computed_beside(partial(_turns, timing), progress, 0.1)
    level = computed_beside(partial(_levels, touched, timing), progress, 0.2)
    for at in np.flatnonzero(np.bincount(level)).tolist():
        if at == _LEFT_OUT:
            continue
        make = partial(_granules, touched, turns, level, at)
        granules = computed_beside(make, progress, 0.3)
        anyone = np.ones(len(granules.who), np.bool_)
        large = granules.large
        writes = granules.writes
        # not two small ones, which a finer level finds, and not two reads
        for earlier, later in (
            (large & writes, anyone),
            (large & ~writes, writes),
            (~large & writes, large),
            (~large & ~writes, large & writes),
        ):
            yield computed_beside(
                partial(_meeting, granules, earlier, later), progress, 0.3
            )


def _levels(touched: AccessColumns, timing: Timing) -> Ints:
    """The size level of each access; ``_LEFT_OUT`` of those that begin at inf."""
    level = size_levels(touched.spans)
    level[timing.begins == np.inf] = _LEFT_OUT
    return level


def _turns(timing: Timing) -> _Turns:
    """The turns of all accesses; of two that begin at once by their numbers."""
    count = len(timing.begins)
    by_time = np.argsort(timing.begins, kind="stable")
    turn = np.empty(count, np.int64)
    turn[by_time] = np.arange(count)
    until = np.searchsorted(timing.begins[by_time], timing.ends)
    return _Turns(turn, until)


def _granules(touched: AccessColumns, turns: _Turns, level: Ints, at: int) -> _Granules:
    """Accesses of up to level ``at`` by granule, as far as they may be in conflict.

    In a granule where nobody writes, or nobody is of its own size, none is.
    """
    who, hashes = _hashed_granules(touched, level, at)
    large = level[who] == at
    writes = touched.mode[who] == 1
    has_large = np.zeros(1 << _HASH_BITS, np.bool_)
    has_large[hashes[large]] = True
    has_write = np.zeros(1 << _HASH_BITS, np.bool_)
    has_write[hashes[writes]] = True
    kept = np.flatnonzero((has_large & has_write)[hashes])
    base = hashes[kept] * (len(touched.row) + 1)
    in_order = np.argsort(base + turns.turn[who[kept]])
    base = base[in_order]
    kept = kept[in_order]
    who = who[kept]
    return _Granules(
        who,
        base + turns.turn[who],
        base + turns.until[who],
        large[kept],
        writes[kept],
    )


def _hashed_granules(touched: AccessColumns, level: Ints, at: int) -> tuple[Ints, Ints]:
    """Every access of up to level ``at``, and a hash of its granule of that level.

    Those that lie across the end of a granule are there twice: no access is in more
    than two. Granules that share a hash by chance are told apart later, by their bytes.
    """
    size = level_bytes(at)
    fitting = np.flatnonzero(level <= at)
    first = touched.addr[fitting] // size
    last = (touched.addr[fitting] + touched.spans_of(fitting) - 1) // size
    across = last > first
    who = np.concatenate([fitting, fitting[across]])
    granule = np.concatenate([first, last[across]]) * len(touched.spaces)
    granule += touched.space[who]
    hashes = granule.view(np.uint64) * _GOLDEN >> np.uint64(64 - _HASH_BITS)
    return who, hashes.view(np.int64)


def _meeting(granules: _Granules, earlier: Bools, later: Bools) -> _Meeting:
    """Who of ``earlier`` meets whom of ``later`` in its granule."""
    # the next one in the granule begins before this one ends
    following = np.append(granules.keys[1:], _NEVER)[: len(granules.keys)]
    meets = granules.stops > following
    early = np.flatnonzero(earlier & meets)
    late = np.flatnonzero(later)
    keys = granules.keys[late]
    lows = np.searchsorted(keys, granules.keys[early], side="right")
    highs = np.searchsorted(keys, granules.stops[early])
    counts = np.maximum(highs - lows, 0)
    return _Meeting(granules.who[early], granules.who[late], lows, counts)


class _Cells(NamedTuple):
    """Memory cut at every address where a piece of an access begins or ends.

    ``points`` are those addresses (of all spaces, one behind the other); piece i has
    cells ``low[i]`` to ``high[i] - 1``. Place j of ``places``, which begins at
    ``base[j]`` of its space, has pieces ``bounds[j]`` to ``bounds[j + 1] - 1``.
    """

    points: Ints
    low: Ints
    high: Ints
    places: Places
    base: Ints
    bounds: Ints


def _cells(touched: AccessColumns) -> _Cells:
    """Cut memory: within a cell every byte has the same history.

    KernbenchError if that takes too much memory.
    """
    places = touched.distinct_places()
    counts = touched.piece_counts(places.first)
    make_room(int(counts.sum()) * _BYTES_A_PIECE, "every row of every access")
    pieces = touched.pieces(places.first)
    base = touched.space[places.first].astype(np.int64) << _ADDRESS_BITS
    starts = base[pieces.of] + pieces.addr
    edges = np.concatenate([starts, starts + pieces.nbytes])
    points, cells = numbered(edges)
    low, high = cells.reshape(2, -1)
    bounds = np.append(0, np.cumsum(counts))
    return _Cells(points, low, high, places, base, bounds)


class Lonely(NamedTuple):
    """Accesses that are wrong without another one, by their ascending ``numbers``.

    ``hazard`` says of one of them which bytes are in question.
    """

    numbers: Ints
    hazard: Callable[[int], Hazard]


def unwritten(touched: AccessColumns, progress: Progress = no_progress) -> Lonely:
    """Reads of bytes that no op before has written.

    Of a read of contiguous bytes the first gap in what was written is in question, of
    one of rows all that was not.
    """
    cells = computed_beside(lambda: _cells(touched), progress, 0.0)
    first = _first_writers(touched, cells, progress)
    bad = computed_beside(
        lambda: _unwritten_reads(touched, cells, first), progress, 0.8
    )
    return Lonely(bad, partial(_unwritten, touched, cells, first))


def _unwritten(touched: AccessColumns, cells: _Cells, first: Ints, read: int) -> Hazard:
    """What an access reads that nobody wrote before."""
    op = int(touched.row[read])
    space = touched.spaces[touched.space[read]]
    place = int(cells.places.which[read])
    pieces = slice(cells.bounds[place], cells.bounds[place + 1])
    low = cells.low[pieces]
    mine = ranges(low, cells.high[pieces] - low)
    missing = first[mine] >= op
    if touched.is_in_rows(read):
        gaps = mine[missing]
        starts = cells.points[gaps] - cells.base[place]
        spread = spread_of(starts, cells.points[gaps + 1] - cells.points[gaps])
        return Hazard(NEVER_WRITTEN, op, -1, space, spread.addr, spread.end, spread)
    start = int(np.argmax(missing))
    written_again = np.append(~missing[start:], True)
    stop = start + int(np.argmax(written_again))
    addr = int(cells.points[low[0] + start] - cells.base[place])
    end = int(cells.points[low[0] + stop] - cells.base[place])
    return Hazard(NEVER_WRITTEN, op, -1, space, addr, end)


def _first_writers(touched: AccessColumns, cells: _Cells, progress: Progress) -> Ints:
    """The first op that wrote each cell, ``_NEVER`` for none.

    Pieces are assigned from that of the last op to the first, so that the first stays.
    """

    def begin_with_none() -> tuple[Ints, Ints, Ints, Ints]:
        """The first op that wrote each piece; no writer of any cell; the pieces of
        several cells, and those of one.
        """
        writes = np.flatnonzero(touched.mode == 1)[::-1]
        by_place = np.full(len(cells.places.first), _NEVER)
        by_place[cells.places.which[writes]] = touched.row[writes]
        row = repeated(by_place, np.diff(cells.bounds))
        written = np.flatnonzero(row < _NEVER)
        written = written[np.argsort(row[written], kind="stable")][::-1]
        is_wide = (cells.high - cells.low)[written] > 1
        none = np.full(len(cells.points), _NEVER)
        return row, none, written[is_wide], written[~is_wide]

    row, first, wide, narrow = computed_beside(begin_with_none, progress, 0.5)
    for begin in range(0, len(wide), _ROWS_AT_ONCE):
        progress(0.5 + 0.3 * begin / len(wide))
        part = wide[begin : begin + _ROWS_AT_ONCE]
        spans = zip(cells.low[part].tolist(), cells.high[part].tolist(), strict=True)
        for (low, high), op in zip(spans, row[part].tolist(), strict=True):
            first[low:high] = op

    def with_narrow() -> Ints:
        """The same with the writes of one cell."""
        at = cells.low[narrow]
        first[at] = np.minimum(first[at], row[narrow])
        return first

    return computed_beside(with_narrow, progress, 0.8)


def _unwritten_reads(touched: AccessColumns, cells: _Cells, first: Ints) -> Ints:
    """The reads that have a cell which no op before wrote, ascending."""
    reads = np.flatnonzero(touched.mode != 1)
    if not len(reads):
        return reads
    order = np.argsort(cells.low)
    # of every second interval: reduceat takes what lies between two pieces as well
    ends = np.stack([cells.low[order], cells.high[order]], axis=1).ravel()
    latest = np.empty(len(order), np.int64)
    latest[order] = np.maximum.reduceat(first, ends)[::2]
    by_place = np.maximum.reduceat(latest, cells.bounds[:-1])
    return reads[by_place[cells.places.which[reads]] >= touched.row[reads]]


def outside(touched: AccessColumns, allocs: AccessColumns) -> Lonely:
    """Accesses that no allocation holds whole; ``allocs`` are of the same spaces.

    None if there is no allocation at all: then nothing is known. An access is held if,
    of the allocations that begin at or before it, the one that reaches furthest ends
    behind it, so two that lie side by side do not hold one across both. Of one of rows
    those are in question that are not in the allocation in which it begins.
    """
    if not len(allocs.row):
        return Lonely(np.empty(0, np.int64), partial(_outside, touched, None))
    starts = allocs.space.astype(np.int64) << _ADDRESS_BITS
    starts += allocs.addr.astype(np.int64)
    order = np.argsort(starts)
    starts = starts[order]
    ends = starts + allocs.nbytes[order].astype(np.int64)
    # the furthest end of those that begin by then
    reach = np.append(-1, np.maximum.accumulate(ends))
    low = touched.space.astype(np.int64) << _ADDRESS_BITS
    low += touched.addr.astype(np.int64)
    held_to = reach[np.searchsorted(starts, low, side="right")]
    bad = np.flatnonzero(held_to < low + touched.spans)
    return Lonely(bad, partial(_outside, touched, held_to))


def _outside(touched: AccessColumns, held_to: Ints | None, number: int) -> Hazard:
    """What an access touches beyond the allocation that it begins in.

    All of it where it begins in none, or is contiguous.
    """
    op = int(touched.row[number])
    where = touched.spaces[touched.space[number]]
    addr = int(touched.addr[number])
    if held_to is None or not touched.is_in_rows(number):
        end = addr + int(touched.nbytes[number])
        return Hazard(OUTSIDE, op, -1, where, addr, end)
    held = int(held_to[number]) - (int(touched.space[number]) << _ADDRESS_BITS)
    pieces = touched.pieces(np.array([number]))
    out = np.flatnonzero(pieces.addr + pieces.nbytes > held)
    spread = spread_of(pieces.addr[out], pieces.nbytes[out])
    return Hazard(OUTSIDE, op, -1, where, spread.addr, spread.end, spread)


def timing(trace: Trace, touched: AccessColumns) -> Timing:
    """When each access begins and ends, and its lane, for ``conflicts``.

    Host ops are left out: the runtime drains the machine around them. What a dma_write
    writes is in flight from the issue of its command, when it becomes visible; what it
    reads, like any op's, from its start. An ipcq_copy has read when anyone may write
    there. The DMAs of one PE are in order as far as HBM bytes go.
    """
    log = trace.op_columns
    row = trace.order[touched.row]
    is_write = touched.mode == 1
    names, name = numbered(log.name[row])
    texts = [trace.strings[i] for i in names.tolist()]

    def named(*wanted: str) -> Bools:
        """Which accesses are of an op of one of these names."""
        return np.array([text in wanted for text in texts], np.bool_)[name]

    begins = log.t_start[row]
    stores = np.flatnonzero(named("dma_write") & is_write)
    calls = rows_of_calls(trace, log.cmd[row[stores]])
    stores = stores[calls >= 0]
    issued = trace.commands.t_issue[calls[calls >= 0]]
    begins[stores] = np.minimum(begins[stores], issued)
    begins[named(*_HOST_OPS)] = np.inf
    ends = np.where(named("ipcq_copy") & ~is_write, begins, log.t_end[row])
    is_hbm = np.array([space == "hbm" for space in touched.spaces], np.bool_)
    ordered = named("dma_read", "dma_write") & is_hbm[touched.space]
    lanes = _pe_numbers(trace)[log.component[row]]
    return Timing(begins, ends, np.where(ordered, lanes, -1))


def _pe_numbers(trace: Trace) -> Ints:
    """A number for the PE of each node: of its SIP, cube and PE, 20 bits each."""
    nodes = trace.nodes
    sip = nodes.sip.astype(np.int64) + 1
    cube = nodes.cube.astype(np.int64) + 1
    pe = nodes.pe.astype(np.int64) + 1
    return np.asarray((sip << 40) + (cube << 20) + pe)

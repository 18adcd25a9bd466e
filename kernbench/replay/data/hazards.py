"""Hazards: bytes that two ops of a trace use at one time, or that nobody wrote or allocated.

From intervals over the op log, by columns: no op is executed. What only executing can show, a
Phase 1 snapshot that differs, is the executor's finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.progress import Progress, no_progress
from kernbench.sim_engine.accesses import AccessColumns, regions
from kernbench.sim_engine.data_executor import SnapshotFinding
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

LATE_WRITER = "read of bytes whose writer is in flight"
TWO_WRITERS = "overlapping writes in flight"
EARLY_WRITER = "write over bytes that are being read"
NEVER_WRITTEN = "read of bytes never written"
OUTSIDE = "access outside its allocation"
SNAPSHOT = "Phase 1 snapshot differs from the Phase 2 value"
CONFLICTS = (
    (EARLY_WRITER, EARLY_WRITER),
    (LATE_WRITER, TWO_WRITERS),
)  # by modes, earlier first
_HOST = ("host_write", "host_read")
_GOLDEN, _BITS = np.uint64(0x9E3779B97F4A7C15), 22  # Knuth's multiplicative hash
_AT_ONCE = 1 << 21  # candidate pairs in memory at one time
_MOST = 10_000  # hazards of a kind that are told

# kind, op, other (canonical positions; -1: none), space, addr and end of the bytes
Found: TypeAlias = tuple[str, int, int, str, int, int]


def conflicts(
    touched: AccessColumns,
    begins: Floats,
    ends: Floats,
    lane: Ints,
    progress: Progress = no_progress,
) -> list[Found]:
    """Accesses that overlap in bytes and in time, one of them a write.

    ``begins`` and ``ends`` are each access's, ns (inf: it is left out); those of one ``lane`` >= 0
    are in order. Of two that begin at once the one of the lower op is the earlier.
    """
    low, high, found = (
        touched.addr,
        touched.addr + touched.nbytes,
        [np.empty((2, 0), np.int64)],
    )
    for a, b in _near(touched, begins, ends):
        real = np.maximum(low[a], low[b]) < np.minimum(high[a], high[b])
        real &= (touched.row[a] != touched.row[b]) & (
            (lane[a] < 0) | (lane[a] != lane[b])
        )
        found.append(np.stack([b[real], a[real]]))
        progress(0.3)
        if sum(pairs.shape[1] for pairs in found) > _MOST:
            break
    b, a = np.unique(np.concatenate(found, axis=1), axis=1)
    shared = touched.space[b], np.maximum(low[a], low[b]), np.minimum(high[a], high[b])
    columns = touched.mode[a], touched.mode[b], touched.row[b], touched.row[a], *shared
    return [
        (CONFLICTS[first][second], op, other, touched.spaces[space], addr, end)
        for first, second, op, other, space, addr, end in np.stack(columns, 1).tolist()
    ]


def _near(
    touched: AccessColumns, begins: Floats, ends: Floats
) -> Iterator[tuple[Ints, Ints]]:
    """(earlier, later) accesses that overlap in time and share a granule of the larger's size."""
    n, low, last = len(touched.row), touched.addr, touched.addr + touched.nbytes - 1
    turn, by_time = np.empty(n, np.int64), np.argsort(begins, kind="stable")
    turn[by_time] = np.arange(n)
    until = np.searchsorted(
        begins[by_time], ends
    )  # the turn of the first that begins too late
    level = -(-np.frexp(touched.nbytes - 0.5)[1] // 4)  # 16**level >= nbytes
    level[begins == np.inf] = 99
    for at in sorted({*np.unique(level).tolist()} - {99}):
        small, size = np.flatnonzero(level <= at), 16**at
        across = small[
            last[small] // size > low[small] // size
        ]  # at most two granules each
        who = np.concatenate([small, across])
        granule = (
            np.concatenate([low[small], last[across]]) // size * len(touched.spaces)
        )
        granule += touched.space[who]
        # a hash: granules that fall together by chance are told apart by their bytes, later
        place = (granule.view(np.uint64) * _GOLDEN >> np.uint64(64 - _BITS)).view(
            np.int64
        )
        large, writes = level[who] == at, touched.mode[who] == 1
        has_large, has_write = np.zeros((2, 1 << _BITS), np.bool_)
        has_large[place[large]], has_write[place[writes]] = True, True
        kept = np.flatnonzero((has_large & has_write)[place])
        kept = kept[np.argsort(place[kept] * (n + 1) + turn[who[kept]])]
        who, large, writes, keys = (
            who[kept],
            large[kept],
            writes[kept],
            place[kept] * (n + 1),
        )
        keys, stop = keys + turn[who], keys + until[who]
        busy = stop > np.append(
            keys[1:], 1 << 62
        )  # the next one here begins before it ends
        for these, those in ((large, large | True), (~large, large)):
            for early, late in (
                (these & writes, those),
                (these & ~writes, those & writes),
            ):
                first, later = np.flatnonzero(early & busy), np.flatnonzero(late)
                lows = np.searchsorted(keys[later], keys[first], side="right")
                highs = np.searchsorted(keys[later], stop[first])
                for a, b in _expanded(lows, highs):
                    yield who[first[a]], who[later[b]]


def _expanded(lows: Ints, highs: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(i, j) for every j in lows[i]..highs[i] - 1, so many at a time."""
    counts = np.maximum(highs - lows, 0)
    batch = (np.cumsum(counts) - counts) // _AT_ONCE
    busy = np.flatnonzero(counts)
    for rows in np.split(busy, np.flatnonzero(np.diff(batch[busy])) + 1):
        mine = counts[rows]
        firsts = np.repeat(lows[rows] - np.cumsum(mine) + mine, mine)
        yield np.repeat(rows, mine), firsts + np.arange(mine.sum())


def never_written(touched: AccessColumns) -> list[Found]:
    """Reads of bytes that no op before has written: the first such byte to the end of its gap."""
    base = touched.space.astype(np.int64) << 52  # addresses are of 51 bits
    points, cells = np.unique(
        [base + touched.addr, base + touched.addr + touched.nbytes], return_inverse=True
    )
    low, high = cells.reshape(2, -1)
    row, write, several = touched.row, touched.mode == 1, high - low > 1
    first = np.full(len(points), 1 << 62)  # the first op that wrote a cell
    for i in np.flatnonzero(write & several)[::-1].tolist():
        first[low[i] : high[i]] = row[i]
    np.minimum.at(first, low[write & ~several], row[write & ~several])
    reads = np.flatnonzero(~write)
    reads = reads[
        np.argsort(low[reads])
    ]  # reduceat takes what lies between two of them as well
    ends = np.stack([low[reads], high[reads]], axis=1).ravel()
    latest = np.maximum.reduceat(first, ends)[::2] if len(reads) else reads
    found = []
    for i in np.sort(reads[latest >= row[reads]])[:_MOST].tolist():
        op, bad = int(row[i]), first[low[i] : high[i]] >= row[i]
        start = int(np.argmax(bad))
        stop = start + int(np.argmin(np.append(bad[start:], False)))
        addr, end = (points[low[i] + [start, stop]] - base[i]).tolist()
        found.append(
            (NEVER_WRITTEN, op, -1, touched.spaces[touched.space[i]], addr, end)
        )
    return found


def outside(touched: AccessColumns, allocs: AccessColumns) -> list[Found]:
    """Accesses that no allocation (``allocs``, of the same spaces) holds whole, if there is any."""
    starts = (allocs.space.astype(np.int64) << 52) + allocs.addr.astype(np.int64)
    order = np.argsort(starts)
    ends = np.maximum.accumulate((starts + allocs.nbytes.astype(np.int64))[order])
    low = (touched.space.astype(np.int64) << 52) + touched.addr
    reach = np.append(-1, ends)[np.searchsorted(starts[order], low, side="right")]
    bad = (reach < low + touched.nbytes) & (len(allocs.row) > 0)
    return [
        (OUTSIDE, op, -1, touched.spaces[space], addr, addr + nbytes)
        for op, _, space, addr, nbytes in np.stack(touched[:5])[:, bad][
            :, :_MOST
        ].T.tolist()
    ]


def timing(trace: Trace, touched: AccessColumns) -> tuple[Floats, Floats, Ints]:
    """When each access begins and ends (ns), and its lane, for ``conflicts``.

    Host ops are ordered with all others, as the runtime drains the machine around them. What a
    dma_write writes is in flight from the issue of its command, when it becomes visible; what it
    reads, like any op's, from t_start; an ipcq_copy has read when anyone may write there. Of one PE
    the DMAs of HBM bytes are in order.
    """
    log, nodes, commands = trace.op_columns, trace.nodes, trace.commands
    row = trace.order[touched.row]
    used, name = np.unique(log.name[row], return_inverse=True)
    texts = [trace.strings[i] for i in used.tolist()]
    host, stores, dmas, copies = (
        np.array([text in kinds for text in texts], np.bool_)[name]
        for kinds in (_HOST, ("dma_write",), ("dma_read", "dma_write"), ("ipcq_copy",))
    )
    begins, early = log.t_start[row], np.flatnonzero(stores & (touched.mode == 1))
    call = Groups(commands.cmd).first(log.cmd[row[early]])
    early, call = early[call >= 0], call[call >= 0]
    begins[early] = np.minimum(begins[early], commands.t_issue[call])
    begins[host] = np.inf
    ends = np.where(copies & (touched.mode == 0), begins, log.t_end[row])
    in_hbm = np.array([space == "hbm" for space in touched.spaces], np.bool_)[
        touched.space
    ]
    sip, cube, pe = (x.astype(np.int64) + 1 for x in (nodes.sip, nodes.cube, nodes.pe))
    lane = ((sip << 40) + (cube << 20) + pe)[log.component[row]]
    return begins, ends, np.where(dmas & in_hbm, lane, -1)


def find_hazards(
    trace: Trace,
    touched: AccessColumns,
    allocs: AccessColumns,
    progress: Progress = no_progress,
) -> list[Found]:
    """All hazards of a trace; ``touched`` are its accesses by canonical position."""
    progress(0.1)
    found = conflicts(touched, *timing(trace, touched), progress)
    progress(0.6)
    found += [] if trace.cut else never_written(touched)
    progress(0.9)
    return found + outside(touched, allocs)


def snapshot_hazards(trace: Trace, findings: Sequence[SnapshotFinding]) -> list[Found]:
    """What the executor found of ``trace.executable`` while it ran."""
    found = []
    for finding in findings:
        r = regions(trace.executable[finding.position]).reads[finding.which]
        op = int(trace.executable_positions[finding.position])
        found.append((SNAPSHOT, op, -1, r.space, r.addr, r.addr + r.nbytes))
    return found

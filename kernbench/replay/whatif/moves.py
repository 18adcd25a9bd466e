"""The data that ops move over links: what each transaction is, and when it was where.

A read is two transactions, a request and the data that answer it; a write is one. A
trace has of each the start of its first and of its last burst on every link.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.replay.whatif.machine import Ways
from kernbench.replay.whatif.weights import IN_OPEN_ROW, IN_SRAM, IN_TCM, REQUEST_BYTES
from kernbench.trace import Trace
from kernbench.trace.bursts import burst_bytes, usual_burst
from kernbench.trace.groups import Groups

BY_DMA = 0
BY_HOST = 1
SET_UP_BEFORE = 2
"""Who begins a move, and what that takes; a number of ``Moves.by``."""

_MEMORIES = {"hbm_ctrl": IN_OPEN_ROW, "sram": IN_SRAM, "pe_tcm": IN_TCM}
_NONE = -1


class Moves(NamedTuple):
    """The transactions that carry data of ops, a row each; times in ns.

    ``op`` is a row of the log, ``transfer`` one of ``Trace.transfers``. ``request`` is
    the path of the request that a read began with (-1: a write, or it is lost). ``t0``
    is when the data were asked for at a memory, or a write began. On the first link
    ``first`` and ``last`` are when the first and the last burst entered it.
    ``before_last`` bytes go before the last burst, which has ``last_bytes``; the first
    has ``first_bytes``.
    ``memory`` is what kind of memory it is read from or written to, ``node`` that
    memory. ``starts`` is where its starts begin in ``Trace.transfers.start``, those of
    the last burst from ``last_starts`` on. ``asked`` is the transfer that ``request``
    is the path of.
    """

    op: Ints
    transfer: Ints
    path: Ints
    is_read: Bools
    request: Ints
    by: Ints
    memory: Ints
    node: Ints
    t0: Floats
    first: Floats
    last: Floats
    nbytes: Ints
    before_last: Ints
    last_bytes: Ints
    first_bytes: Ints
    several: Bools
    starts: Ints
    last_starts: Ints
    asked: Ints

    def take(self, rows: Array) -> Moves:
        """Some moves."""
        columns: list[Array] = [column[rows] for column in self]
        return Moves(*columns)


def moves_of(trace: Trace, ways: Ways, progress: Progress) -> Moves:
    """All that ops move; what a damaged trace has lost is left out."""
    usual = usual_burst(trace)
    sizes = burst_bytes(trace, usual, stage(progress, 0.0, 0.6))

    def found() -> Moves:
        log = trace.transfers
        pointers = log.start_ptr[:]
        path_of = log.path[:].astype(np.int64)
        recorded = np.diff(pointers)
        hops = ways.counts[path_of]
        row = log.row[:].astype(np.int64)
        t0 = log.t0[:]
        nbytes = log.nbytes[:].astype(np.int64)
        whole = (row >= 0) & (hops > 0) & (recorded >= hops)
        is_memory = _by_node(trace, _MEMORIES)
        from_memory = is_memory[ways.first_node[path_of]] >= 0
        is_dma_end = is_memory[ways.last_node[path_of]] < 0
        is_read = from_memory & is_dma_end
        asked = np.where(is_read, ways.first_node[path_of], ways.last_node[path_of])
        request, is_request = _requests(trace, asked, whole & is_read, whole & ~is_read)
        data = np.flatnonzero(whole & ~is_request)
        read_here = is_read[data]
        path = path_of[data]
        node = asked[data]
        memory = is_memory[node]
        several = log.bursts[data] > 1
        starts = pointers[data]
        last_starts = starts + np.where(recorded[data] == 2 * hops[data], hops[data], 0)
        request_path = np.append(path_of, _NONE)[request[data]]
        last_bytes = np.where(several, sizes.last[data], nbytes[data])
        return Moves(
            op=row[data],
            transfer=data,
            path=path,
            is_read=read_here,
            request=request_path,
            by=_beginners(trace, row[data], t0[data], read_here),
            memory=np.where(memory < 0, IN_TCM, memory),
            node=node,
            t0=t0[data],
            first=log.start[starts],
            last=log.start[last_starts],
            nbytes=nbytes[data],
            before_last=nbytes[data] - last_bytes.astype(np.int64),
            last_bytes=last_bytes.astype(np.int64),
            first_bytes=np.where(several, sizes.first[data], nbytes[data]).astype(
                np.int64
            ),
            several=several,
            starts=starts,
            last_starts=last_starts,
            asked=request[data],
        )

    return computed_beside(found, progress, 0.6)


def _by_node(trace: Trace, known: dict[str, int]) -> Ints:
    """By node what is known of its type, and behind all nodes that of none: -1."""
    types = [known.get(name, _NONE) for name in trace.nodes.type]
    return np.array([*types, _NONE])


def _requests(
    trace: Trace, memory: Ints, reads: Bools, others: Bools
) -> tuple[Ints, Bools]:
    """By transfer its request, a row of transfers (-1: none), and which are requests.

    A request is of the same op and for the same ``memory`` (a node, by transfer) as the
    data, and was sent before them.
    """
    log = trace.transfers
    key = log.row[:].astype(np.int64) * (len(trace.node_ids) + 1) + memory
    small = np.flatnonzero(others & (log.nbytes[:] == REQUEST_BYTES))
    read = np.flatnonzero(reads)
    found = np.full(len(key), _NONE)
    is_request = np.zeros(len(key), np.bool_)
    t0 = log.t0[:]
    latest = read[np.lexsort((-t0[read], key[read]))]
    data = Groups(key[latest]).first(key[small])
    data = np.append(latest, _NONE)[data]
    is_request[small] = (data >= 0) & (t0[small] < t0[data])
    requests = np.flatnonzero(is_request)
    request = Groups(key[requests]).first(key[read])
    found[read] = np.append(requests, _NONE)[request]
    return found, is_request


def _beginners(trace: Trace, op: Ints, t0: Floats, is_read: Bools) -> Ints:
    """What each move begins with: the set-up of a DMA, or of the host, or neither.

    A push is recorded from when it was set up, and so is what follows a read of the
    same op.
    """
    names = trace.op_columns.name[op]
    texts = trace.strings
    used = np.unique(names)
    kind = np.zeros(int(used.max(initial=0)) + 1, np.int64)
    for number in used.tolist():
        if texts[number].startswith("host_"):
            kind[number] = BY_HOST
        elif texts[number].startswith("ipcq_"):
            kind[number] = SET_UP_BEFORE
    by = kind[names]
    reads = np.zeros(len(trace.order) + 1, np.bool_)
    reads[op[is_read]] = True
    by[reads[op] & ~is_read] = SET_UP_BEFORE
    return np.asarray(by)

"""Which calls of the host follow each other: those of the bench, and of each rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints, distinct_rows, numbered
from kernbench.common.exact_time import SAME_NS
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace
from kernbench.trace.hops import has_text

NEVER = 1 << 40
"""The number of a call that nobody makes: what is known to end there never is."""

_RANK_TENSOR = re.compile(r"rank\d+\.")
_CALLS_OF_RANKS = ("barrier", "launch all_reduce")
Stream: TypeAlias = tuple[int, int]
"""Calls of the host that follow each other: the SIP that they are for, and which of
those who call for it this is.
"""

BENCH: Stream = (-1, 0)
"""The stream of the bench itself, which is before and after all ranks."""


def has_ranks(trace: Trace) -> bool:
    """Whether the run has ranks, whose launches run side by side."""
    return _first_call_of_ranks(trace) < NEVER


class HostCall(NamedTuple):
    """The call of a launch, or of a barrier (``launch`` is -1), that returned.

    ``row`` is that in ``trace.commands``. Calls of a ``stream`` follow each other:
    those of the bench itself, or of a rank. Of a rank a trace has the SIP that it calls
    for. Calls for one SIP that are under way together are of several ranks; which of
    these calls later is not known, and taken to be the one that was last.
    """

    row: int
    launch: int
    stream: Stream


def host_calls(trace: Trace) -> list[HostCall]:
    """The launches and barriers of the host, as they returned.

    Launches are numbered as they were asked for.
    """
    log = trace.commands
    host = np.flatnonzero(log.launch[:] < 0)
    host = host[np.argsort(log.cmd[host], kind="stable")]
    ranks_from = _first_call_of_ranks(trace)
    # by SIP: when the last call of each of its ranks has ended
    under_way: dict[int, list[float]] = defaultdict(list)
    found = []
    launches = 0
    for row in host.tolist():
        name = trace.strings[log.call[row]]
        launch = -1
        if name.startswith("launch "):
            launch = launches
            launches += 1
        elif name != "barrier":
            continue
        stream = BENCH
        if int(log.cmd[row]) >= ranks_from:
            sip = int(trace.nodes.sip[int(log.pe[row])])
            began, ended = float(log.t_issue[row]), float(log.t_resume[row])
            stream = _stream_of(under_way[sip], sip, began, ended)
        found.append(HostCall(row, launch, stream))
    return sorted(found)


def taken_as_of_one_rank(trace: Trace, own: Collection[int]) -> list[int]:
    """The launches of ranks that may be of another one than they are taken for.

    ``own`` are those that touch a tensor which a rank has made: they are of that one.
    Any other may be of each. It is taken for one of the rank that was the last to call
    for its SIP, unless that was under way; where a barrier is between, all the same.
    """
    unsure = set[int]()
    since_barrier: dict[Stream, list[int]] = defaultdict(list)
    for call in host_calls(trace):
        if call.launch < 0:
            since_barrier.clear()
        elif call.stream != BENCH:
            before = since_barrier[call.stream]
            before.append(call.launch)
            if len(before) > 1:
                unsure |= {launch for launch in before if launch not in own}
    return sorted(unsure)


def launches_with_own_tensors(
    trace: Trace, touched: AccessColumns, launch: Ints
) -> set[int]:
    """The launches that touch a tensor of a rank; ``launch`` is that of each access."""
    allocs = trace.alloc_columns
    mine = _allocs_of_ranks(trace)
    if not len(mine):
        return set()
    low = allocs.addr[mine].astype(np.int64)
    order = np.argsort(low, kind="stable")
    low = low[order]
    high = low + allocs.nbytes[mine].astype(np.int64)[order]
    in_hbm = np.array([name == "hbm" for name in touched.spaces], np.bool_)
    asked = np.flatnonzero(in_hbm[touched.space] & (launch >= 0))
    addr = touched.addr[asked].astype(np.int64)
    at = np.searchsorted(low, addr, side="right") - 1
    found = (at >= 0) & (addr < high[np.maximum(at, 0)])
    return {*np.unique(launch[asked[found]]).tolist()}


def stream_numbers(trace: Trace, launch: Ints) -> Ints:
    """By launch the number of its stream, from 0; -1 of a call that no kernel makes.

    All are of one stream where there are no ranks, and where the host's call of a
    launch was not recorded, as in a run that was cut off.
    """
    found = np.where(launch < 0, -1, 0)
    if not has_ranks(trace):
        return found
    stream_of = {call.launch: call.stream for call in host_calls(trace)}
    numbers = {stream: n for n, stream in enumerate(sorted({*stream_of.values()}))}
    used, which = numbered(launch)
    known = [numbers[stream_of[n]] for n in used.tolist() if n in stream_of]
    if len(known) < np.count_nonzero(used >= 0):
        return found
    of_used = np.append(np.full(len(used) - len(known), -1), known)
    return np.asarray(of_used[which.reshape(-1)])


def _stream_of(under_way: list[float], sip: int, began: float, ended: float) -> Stream:
    """The stream of a call for a SIP, by when the last call of each stream has ended,
    ns; notes when this one has.
    """
    free = [at for at, until in enumerate(under_way) if until <= began + SAME_NS]
    if free:
        at = max(free, key=under_way.__getitem__)
        under_way[at] = ended
    else:
        at = len(under_way)
        under_way.append(ended)
    return sip, at


def _first_call_of_ranks(trace: Trace) -> int:
    """The number of the first call that only a rank makes; ``NEVER`` if there is none.

    A rank makes tensors that are named after it, passes barriers and reduces, and its
    launches may overlap others'.
    """
    mine = trace.alloc_columns.cmd[_allocs_of_ranks(trace)].astype(np.int64)
    first = int(mine.min(initial=NEVER))
    log = trace.commands
    host = np.flatnonzero(log.launch[:] < 0)
    of_ranks = host[has_text(trace, log.call[host], *_CALLS_OF_RANKS)]
    if len(of_ranks):
        first = min(first, int(log.cmd[of_ranks].min()))
    return min(first, _first_launch_beside_another(trace, host))


def _allocs_of_ranks(trace: Trace) -> Ints:
    """The rows of the allocations of tensors that ranks have made."""
    names = trace.alloc_columns.tensor[:].astype(np.int64)
    used, which = distinct_rows([names])
    texts = [trace.strings[name] for (name,) in used.tolist()]
    is_own = [bool(_RANK_TENSOR.match(text)) for text in texts]
    return np.flatnonzero(np.array(is_own, np.bool_)[which])


def _first_launch_beside_another(trace: Trace, host: Ints) -> int:
    """The number of the first of the calls of the ``host`` that is a launch and is
    under way together with another; ``NEVER`` if there is none.
    """
    log = trace.commands
    names = [trace.strings[name] for name in log.call[host].tolist()]
    is_launch = np.array([name.startswith("launch ") for name in names], np.bool_)
    launched = host[is_launch] if len(host) else host
    launched = launched[np.argsort(log.cmd[launched], kind="stable")]
    began = log.t_issue[launched]
    ended = log.t_resume[launched]
    behind = np.flatnonzero(began[1:] < np.maximum.accumulate(ended)[:-1] - SAME_NS)
    if not len(behind):
        return NEVER
    beside = ended > began[behind[0] + 1] + SAME_NS
    return int(log.cmd[launched[beside]].min())

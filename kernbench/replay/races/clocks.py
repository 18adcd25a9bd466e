"""What each PE knows of the calls of all others, call by call.

A clock has a number for each PE: so many of its calls are known to have returned. It
is another after a receive, which brings what the sender knew when it sent, and at the
start of a launch, before which all of the launches before it have ended.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import Progress, computed_beside
from kernbench.replay.races.calls import NEVER, Calls
from kernbench.trace import Trace
from kernbench.trace.hops import has_text

_RANK_TENSOR = re.compile(r"rank\d+\.")
_CALLS_OF_RANKS = ("barrier", "launch all_reduce")
_Stream: TypeAlias = tuple[int, int]
"""Calls of the host that follow each other: the SIP that they are for, and which of
those who call for it this is.
"""

_BENCH: _Stream = (-1, 0)
"""The stream of the bench itself, which is before and after all ranks."""

_EVERY = 1 << 10
"""Receives between two calls of progress; one takes some us."""


class Clocks:
    """The clocks of a run: ``table`` has a PE in each column."""

    def __init__(self, table: Ints, launches: dict[int, int], segments: Ints) -> None:
        self.table = table
        self._launches = launches
        # PE, first call, launch and clock, in the order of PE and call
        self._segments = segments

    def at(self, pe: Ints, number: Ints, launch: Ints) -> Ints:
        """The rows of ``table`` that hold when calls are issued; -1 of none."""
        used, which = np.unique(launch, return_inverse=True)
        of_launch = np.array([self._launches.get(n, -1) for n in used.tolist()], int)
        found = of_launch[which] if len(which) else np.empty(0, np.int64)
        if not len(self._segments):
            return found
        pe_of, first, launch_of, clock = self._segments.T
        keys = (pe_of << 40) + first
        at = np.searchsorted(keys, (pe << 40) + number, side="right") - 1
        within = np.maximum(at, 0)
        is_own = (at >= 0) & (pe_of[within] == pe) & (launch_of[within] == launch)
        return np.where(is_own, clock[within], found)


def has_ranks(trace: Trace) -> bool:
    """Whether the run has ranks, whose launches run side by side."""
    return _first_call_of_ranks(trace) < NEVER


def clocks_of(trace: Trace, calls: Calls, messages: Ints, progress: Progress) -> Clocks:
    """The clocks of a run.

    Each row of ``messages`` is a slot's worth of a payload: the receiver, the number of
    its call at whose return it is known to have come, the sender, and the number of its
    call that sent it.
    """
    making = computed_beside(partial(_Making, trace, calls), progress, 0.0)
    return making.made(messages, progress)


class _Making:
    """Goes through receives, ends of launches and barriers, as they returned."""

    def __init__(self, trace: Trace, calls: Calls) -> None:
        self._calls = calls
        self._table = [np.zeros(max(calls.pes, 1), np.int32)]
        kernel = np.flatnonzero(calls.pe >= 0)
        order = kernel[np.lexsort((calls.number[kernel], calls.pe[kernel]))]
        self._order = order
        self._firsts = np.searchsorted(calls.pe[order], np.arange(calls.pes))
        self._host = _host_calls(trace)
        # the clock of each stream of the host, and that with which a launch began
        self._streams = {call.stream: 0 for call in self._host}
        self._bases: dict[int, int] = {}
        self._stream_of = {call.launch: call.stream for call in self._host}
        # by PE: first calls, and the clock and launch from there on
        self._from: dict[int, list[int]] = defaultdict(list)
        self._clock: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._receivers: dict[int, set[int]] = defaultdict(set)
        self._ends = _ends_by_launch(calls)

    def made(self, messages: Ints, progress: Progress) -> Clocks:
        """All clocks."""
        receives = computed_beside(partial(self._receives, messages), progress, 0.0)
        host = iter([*self._host, None])
        next_host = next(host)
        for count, (row, receiver, taken, senders) in enumerate(receives):
            if count % _EVERY == 0:
                progress(count / len(receives))
            while next_host is not None and next_host.row < row:
                self._ended(next_host)
                next_host = next(host)
            self._received(receiver, taken, senders)
        while next_host is not None:
            self._ended(next_host)
            next_host = next(host)
        for launch in self._ends:
            self._base(launch)
        segments = []
        for pe, firsts in sorted(self._from.items()):
            for first, (clock, launch) in zip(firsts, self._clock[pe], strict=True):
                segments.append((pe, first, launch, clock))
        return Clocks(
            np.stack(self._table),
            self._bases,
            np.array(segments, np.int64).reshape(-1, 4),
        )

    def _receives(
        self, messages: Ints
    ) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
        """The calls with which a PE came to know of messages, as they returned.

        Each is its row, PE and number, and the PEs and numbers of the sends.
        """
        known = messages[messages[:, 1] < NEVER]
        by_call: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        for receiver, taken, sender, sent in np.unique(known, axis=0).tolist():
            by_call[receiver, taken].add((sender, sent))
        found = []
        for (receiver, taken), senders in by_call.items():
            found.append((self._row(receiver, taken), receiver, taken, [*senders]))
        return sorted(found)

    def _row(self, pe: int, number: int) -> int:
        """The row of a call of a PE."""
        return int(self._order[self._firsts[pe] + number])

    def _received(self, pe: int, number: int, senders: list[tuple[int, int]]) -> None:
        """From the call after this one a PE knows what the senders knew."""
        launch = int(self._calls.launch[self._row(pe, number)])
        clock = self._table[self._known(pe, number)].copy()
        for sender, sent in senders:
            np.maximum(clock, self._table[self._known(sender, sent)], out=clock)
            clock[sender] = max(clock[sender], sent)
        self._table.append(clock)
        self._from[pe].append(number + 1)
        self._clock[pe].append((len(self._table) - 1, launch))
        self._receivers[launch].add(pe)

    def _known(self, pe: int, number: int) -> int:
        """The clock of a PE when it issues a call."""
        launch = int(self._calls.launch[self._row(pe, number)])
        at = bisect_right(self._from[pe], number) - 1
        if at >= 0 and self._clock[pe][at][1] == launch:
            return self._clock[pe][at][0]
        return self._base(launch)

    def _base(self, launch: int) -> int:
        """The clock with which the PEs of a launch begin."""
        if launch not in self._bases:
            stream = self._stream_of.get(launch, _BENCH)
            self._bases[launch] = self._streams.get(stream, 0)
        return self._bases[launch]

    def _ended(self, call: _HostCall) -> None:
        """A launch has ended, or a barrier is passed."""
        clock = self._table[self._streams[call.stream]].copy()
        if call.launch >= 0:
            np.maximum(clock, self._table[self._base(call.launch)], out=clock)
        for pe in self._receivers.pop(call.launch, ()):
            np.maximum(clock, self._table[self._clock[pe][-1][0]], out=clock)
        ends = self._ends.get(call.launch)
        if ends is not None:
            pes, numbers = ends
            clock[pes] = np.maximum(clock[pes], numbers)
        streams = [call.stream]
        if call.launch < 0 or call.stream == _BENCH:
            streams = [*self._streams]
            for known in self._streams.values():
                np.maximum(clock, self._table[known], out=clock)
        self._table.append(clock)
        for stream in streams:
            self._streams[stream] = len(self._table) - 1


class _HostCall(NamedTuple):
    """The call of a launch, or of a barrier (``launch`` is -1), that returned.

    ``row`` is that in ``trace.commands``. Calls of a ``stream`` follow each other:
    those of the bench itself, or of a rank. Of a rank a trace has the SIP that it calls
    for. Calls for one SIP that are under way together are of several ranks; which of
    these calls later is not known, and taken to be the one that was last.
    """

    row: int
    launch: int
    stream: _Stream


def _host_calls(trace: Trace) -> list[_HostCall]:
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
        stream = _BENCH
        if int(log.cmd[row]) >= ranks_from:
            sip = int(trace.nodes.sip[int(log.pe[row])])
            began, ended = float(log.t_issue[row]), float(log.t_resume[row])
            stream = _stream_of(under_way[sip], sip, began, ended)
        found.append(_HostCall(row, launch, stream))
    return sorted(found)


def _stream_of(under_way: list[float], sip: int, began: float, ended: float) -> _Stream:
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
    first = NEVER
    allocs = trace.alloc_columns
    for name in np.unique(allocs.tensor[:]).tolist():
        if _RANK_TENSOR.match(trace.strings[name]):
            mine = allocs.cmd[:][allocs.tensor[:] == name]
            first = min(first, int(mine.min()))
    log = trace.commands
    host = np.flatnonzero(log.launch[:] < 0)
    of_ranks = host[has_text(trace, log.call[host], *_CALLS_OF_RANKS)]
    if len(of_ranks):
        first = min(first, int(log.cmd[of_ranks].min()))
    return min(first, _first_launch_beside_another(trace, host))


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


def _ends_by_launch(calls: Calls) -> dict[int, tuple[Ints, Ints]]:
    """By launch its PEs, and how many calls each of them has made when it ends."""
    kernel = np.flatnonzero(calls.pe >= 0)
    if not len(kernel):
        return {}
    order = kernel[np.lexsort((calls.number[kernel], calls.pe[kernel]))]
    order = order[np.argsort(calls.launch[order], kind="stable")]
    launch = calls.launch[order]
    pe = calls.pe[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (launch[1:] != launch[:-1]) | (pe[1:] != pe[:-1])
    last = order[is_last]
    starts = np.flatnonzero(np.append(True, np.diff(calls.launch[last]) != 0))
    found = {}
    for mine in np.split(last, starts[1:]):
        number = int(calls.launch[mine[0]])
        found[number] = (calls.pe[mine], calls.number[mine] + 1)
    return found

"""What each PE knows of the calls of all others, call by call.

A clock has a number for each PE: so many of its calls are known to have returned. It
is another after a receive, which brings what the sender knew when it sent, and at the
start of a launch, before which all of the launches before it have ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import partial

import numpy as np

from kernbench.common.arrays import Ints, numbered
from kernbench.common.progress import Progress, computed_beside
from kernbench.replay.races.calls import Calls
from kernbench.replay.races.streams import BENCH, NEVER, HostCall, host_calls
from kernbench.trace import Trace

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
        used, which = numbered(launch)
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
        self._host = host_calls(trace)
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
            stream = self._stream_of.get(launch, BENCH)
            self._bases[launch] = self._streams.get(stream, 0)
        return self._bases[launch]

    def _ended(self, call: HostCall) -> None:
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
        if call.launch < 0 or call.stream == BENCH:
            streams = [*self._streams]
            for known in self._streams.values():
                np.maximum(clock, self._table[known], out=clock)
        self._table.append(clock)
        for stream in streams:
            self._streams[stream] = len(self._table) - 1


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

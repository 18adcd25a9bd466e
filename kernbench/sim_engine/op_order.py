"""In which order Phase 2 executes a log: as its bytes and its dependencies ask.

Canonical order puts ops of one instant by their kind (ADR-0052 A4). That says nothing
of which of them wrote what another reads, so where they touch the same bytes the order
of the log counts (ADR-0020 D5, D6): reads and writes follow the write before them, and
writes the reads before them. ``dependency_ids`` overrule both: an op that has to wait
holds back what conflicts with it, and is overtaken where that would be a circle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Floats
from kernbench.common.progress import Progress
from kernbench.errors import KernbenchError, VerificationError
from kernbench.sim_engine.accesses import Access, accesses
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord
from kernbench.sim_engine.pending import PendingRanges

Edges: TypeAlias = set[tuple[int, int]]
"""(first, then): places of two ops that are executed in that order."""

_LOOKED_AT = 4096
"""Records looked at between two calls of progress."""


class Span(NamedTuple):
    """The places from ``low`` to before ``high``."""

    low: int
    high: int


class Conflict(NamedTuple):
    """Two ops that touch the same bytes, at least one of them writing, by their places.

    The log has ``first`` before ``then``. ``read`` is what ``first`` reads there where
    it only reads.
    """

    first: int
    then: int
    read: Access | None


class Log:
    """Records that are to be put in order, by place: that in canonical order.

    ``added`` are the records, of which ``rows`` is the canonical order; ``t_start`` and
    ``kind_rank`` are columns of them. Their dependency_ids count ``earlier`` too, the
    ``base`` records before them, which are executed on ``store``.
    """

    def __init__(
        self,
        added: Sequence[OpRecord],
        rows: Sequence[int],
        t_start: Floats,
        kind_rank: npt.NDArray[np.integer[Any]],
        earlier: Sequence[OpRecord],
        store: MemoryStore,
    ) -> None:
        self.records = [added[row] for row in rows]
        self.rows = np.array(rows, np.int64)
        self.t_start = t_start[self.rows]
        self.is_executed = kind_rank[self.rows] < KIND_RANK["unknown"]
        self._place = np.empty(len(rows), np.int64)
        self._place[self.rows] = np.arange(len(rows))
        self.base = len(earlier)
        self._earlier = earlier
        self._store = store
        self._written = PendingRanges()
        self._marked = 0

    def forget_rows(self) -> None:
        """Take the ops of an instant for logged in canonical order."""
        self.rows = np.arange(len(self.rows))

    def dependencies(self, place: int) -> Iterator[int]:
        """The places that the op at ``place`` depends on, but for earlier records."""
        for d in self.records[place].dependency_ids:
            if d >= self.base:
                yield int(self._place[d - self.base])

    def number(self, place: int) -> tuple[float, int]:
        """What ascends in the order of the log."""
        return float(self.t_start[place]), int(self.rows[place])

    def was_written(self, access: Access, place: int) -> bool:
        """Whether all of these bytes hold something before ``place``.

        It is asked for places that ascend.
        """
        base = self.base
        for at in range(self._marked, base + place):
            record = self._earlier[at] if at < base else self.records[at - base]
            for mode, space, addr, nbytes in _touched(record):
                if mode == "w":
                    self._written.mark(space, addr, nbytes, record)
        self._marked = max(self._marked, base + place)
        at = access.addr
        end = at + access.nbytes
        while True:
            gap = self._store.gap(access.space, at, end - at)
            if gap is None:
                return True
            written_to = self._written.end_of(access.space, gap)
            if written_to is None:
                return False
            at = written_to


def execution_order(log: Log, progress: Progress) -> list[int]:
    """The places of a log in the order in which they are executed.

    It is canonical order but within some spans: instants of which the log has the ops
    in another order, and ops up to those that they have to wait for. Raises
    VerificationError for dependencies in a circle.
    """
    spans = [*_mixed_instants(log), *_held_spans(log, progress)]
    order = list(range(len(log.records)))
    for low, high in _merged(spans):
        progress(1.0)
        order[low:high] = _arranged(log, Span(low, high))
    return order


def _mixed_instants(log: Log) -> Iterator[Span]:
    """The instants of which the log has executed ops in another order."""
    together = log.t_start[1:] == log.t_start[:-1]
    descends = log.rows[1:] < log.rows[:-1]
    mixed = np.flatnonzero(together & descends & log.is_executed[1:])
    for instant in np.unique(log.t_start[mixed]).tolist():
        low = np.searchsorted(log.t_start, instant, "left")
        high = np.searchsorted(log.t_start, instant, "right")
        yield Span(int(low), int(high))


def _held_spans(log: Log, progress: Progress) -> Iterator[Span]:
    """From each op that has to wait for a later one to that."""
    for place in range(len(log.records)):
        if place % _LOOKED_AT == 0:
            progress(1.0)
        for d in log.dependencies(place):
            if d >= place:
                yield Span(place, d + 1)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that share a place as one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.low < found[-1].high:
            span = Span(found[-1].low, max(found.pop().high, span.high))
        found.append(span)
    return found


def _arranged(log: Log, span: Span) -> list[int]:
    """The places of a span in the order in which they are executed."""
    held = {place: {*log.dependencies(place)} for place in range(*span)}
    conflicts = _conflicts(log, span)
    if not conflicts and all(d < p for p, found in held.items() for d in found):
        return [*range(*span)]
    asked = set()
    for place, found in held.items():
        asked |= {(d, place) for d in found if d >= span.low}
    try:
        _lowest_first(span, asked)
    except CycleError as error:
        circle = sorted(log.base + place for place in set(error.args[1]))
        raise VerificationError(
            f"ops {circle} wait for one another and can never run; "
            "their dependency_ids form a cycle"
        ) from None
    waits_for = {place: _closure(held, place) for place, found in held.items() if found}
    conflicts = [
        conflict
        for conflict in conflicts
        if conflict.then not in waits_for.get(conflict.first, ())
    ]
    for by_bytes in (
        partial(_as_provided, log, span, conflicts),
        partial(_as_logged, conflicts),
    ):
        with suppress(CycleError):
            return _lowest_first(span, asked | by_bytes())
    return _lowest_first(span, asked | _overtaking(log, waits_for, conflicts))


def _closure(held: Mapping[int, set[int]], place: int) -> set[int]:
    """The places that an op waits for, and those that these wait for."""
    found: set[int] = set()
    todo = [place]
    while todo:
        for d in held.get(todo.pop(), set()) - found:
            found.add(d)
            todo.append(d)
    return found


def _as_logged(conflicts: Iterable[Conflict]) -> Edges:
    """Ops that conflict keep the order of the log."""
    return {(first, then) for first, then, _ in conflicts}


def _overtaking(
    log: Log, waits_for: Mapping[int, set[int]], conflicts: Iterable[Conflict]
) -> Edges:
    """The same, but whatever waits for a later op is overtaken by others.

    That is never a circle: edges ascend by the last op that each waits for, or is.
    """
    late = {
        place
        for place, found in waits_for.items()
        if any(log.number(d) > log.number(place) for d in found)
    }
    return {(first, then) for first, then, _ in conflicts if first not in late}


def _as_provided(log: Log, span: Span, conflicts: Sequence[Conflict]) -> Edges:
    """The same, but what nobody has written is read after the op that provides it.

    Canonical order is that of loads before what they feed, and an op that starts with
    the load that feeds it may well have ended, and so been logged, before it.
    """
    fed = {then for _, then, read in conflicts if read is None}
    edges = set()
    for first, then, read in conflicts:
        if (
            read is not None
            and first not in fed
            and log.t_start[first] == log.t_start[then]
            and not log.was_written(read, span.low)
        ):
            edges.add((then, first))
        else:
            edges.add((first, then))
    return edges


def _conflicts(log: Log, span: Span) -> list[Conflict]:
    """All pairs of ops of a span that touch the same bytes, one of them writing."""
    touched = []
    for place in range(*span):
        touched += [(place, access) for access in _touched(log.records[place])]
    writes = []
    for i, (_, access) in enumerate(touched):
        if access.mode == "w":
            writes.append((access.space, access.addr, i))
    writes.sort()
    longest = max((touched[i][1].nbytes for _, _, i in writes), default=0)
    conflicts = []
    for i, (place, access) in enumerate(touched):
        end = access.addr + access.nbytes
        low = bisect_left(writes, (access.space, access.addr - longest, 0))
        high = bisect_left(writes, (access.space, end, 0))
        for _, addr, w in writes[low:high]:
            writer, write = touched[w]
            seen_before = access.mode == "w" and w <= i
            if seen_before or writer == place or addr + write.nbytes <= access.addr:
                continue
            if log.number(place) > log.number(writer):
                conflicts.append(Conflict(writer, place, None))
            else:
                read = access if access.mode == "r" else None
                conflicts.append(Conflict(place, writer, read))
    return conflicts


def _touched(record: OpRecord) -> list[Access]:
    """What an op reads and writes; nothing of one that cannot be executed.

    What is wrong with that is said when its turn comes.
    """
    try:
        return accesses(record)
    except KernbenchError:
        return []


def _lowest_first(span: Span, edges: Edges) -> list[int]:
    """The places of a span, in turn the lowest of those that wait for nothing more.

    Raises CycleError if there is a circle.
    """
    sorter = TopologicalSorter[int]({place: () for place in range(*span)})
    for first, then in edges:
        sorter.add(then, first)
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for place in sorter.get_ready():
            heappush(ready, place)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order

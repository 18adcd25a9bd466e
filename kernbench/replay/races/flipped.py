"""A run executed again in an order in which two of its ops have changed places.

No delay turns some races round, since who comes later waits, by luck, for what is held
back. The memory model allows the other order all the same: behind the later op come the
earlier one and all that is in order behind it, and nothing else changes. The ops are
those of the recorded run, so what a kernel would do otherwise is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress, no_progress, stage
from kernbench.replay.data.history import History
from kernbench.replay.races.calls import NEVER
from kernbench.replay.races.order import Order, order_of
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.plans import Plans, Turn, perform_next
from kernbench.trace import Trace

UNKNOWN_BYTE = 0xFF
"""What bytes hold that nobody has written so far in the other order."""

_LOOKED_AT = 256
"""Ops looked at between two calls of progress."""

_TURNS_KEPT = 1 << 10


class Flipper:
    """Finds what other orders of a run leave in memory; the order is found once."""

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace = trace
        self._history = history
        self._order: Order | None = None

    def memory(
        self,
        first: int,
        second: int,
        count: int | None = None,
        progress: Progress = no_progress,
    ) -> MemoryStore | None:
        """Memory if op ``first`` takes effect behind op ``second``: at the end, or when
        ``count`` ops of the log have run.

        None as for ``steps``. Raises a KernbenchError that names the op if one cannot
        be executed.
        """
        steps = self.steps(first, second, stage(progress, 0.0, 0.5))
        if steps is None:
            return None
        if count is not None:
            end = self._history.executed(count - 1)
            steps = [step for step in steps if step < end]
        store = self._history.store(self._history.executed(first - 1))
        store.fill = UNKNOWN_BYTE
        self._execute(steps, store, stage(progress, 0.5, 1.0))
        return store

    def steps(
        self, first: int, second: int, progress: Progress = no_progress
    ) -> list[int] | None:
        """The steps of the run in that order, from that of ``first`` on.

        Both are positions; ``second`` is the later one. None if what is between them
        keeps ``first`` before ``second``.
        """
        if self._order is None:
            part = stage(progress, 0.0, 0.6)
            history = self._history
            history.prepare(part)
            self._order = order_of(self._trace, history.touched, history.allocs, part)
        moved = self._moved(self._order, first, second, stage(progress, 0.6, 1.0))
        if moved is None:
            return None
        begin = self._history.executed(first - 1)
        end = self._history.executed(second)
        positions = self._trace.executable_positions[begin:end]
        is_moved = np.isin(positions, moved)
        between = np.arange(begin, end)
        steps: list[int] = [*between[~is_moved].tolist(), *between[is_moved].tolist()]
        return [*steps, *range(end, self._history.steps)]

    def _moved(
        self, order: Order, first: int, second: int, progress: Progress
    ) -> list[int] | None:
        """The positions of what comes behind ``second``, ascending, ``first`` the first
        of them; None if ``second`` is in order behind one of them.
        """
        rows = self._history.touched.row
        behind = _Behind(order, self._history.touched)
        moved = []
        for position in range(first, second + 1):
            if (position - first) % _LOOKED_AT == 0:
                progress((position - first) / (second - first))
            accesses = np.arange(*np.searchsorted(rows, [position, position + 1]))
            if position > first and not behind.has(accesses):
                continue
            if position == second:
                return None
            behind.add(accesses)
            moved.append(position)
        return moved

    def _execute(
        self, steps: list[int], store: MemoryStore, progress: Progress
    ) -> None:
        """Execute ``steps`` in this order, on what ``store`` holds before them."""
        positions = self._trace.executable_positions
        records = self._trace.steps
        plans = Plans()

        @lru_cache(maxsize=_TURNS_KEPT)
        def turn_of(place: int) -> Turn:
            record = records[steps[place]]
            turn = plans.of(record).turn(record, place)
            if any(read is turn.plan.write for read in turn.plan.reads):
                return turn  # what the host writes is held by nothing but its snapshot
            return turn._replace(snapshots=())  # they are of the recorded order

        def where(place: int) -> str:
            record = records[steps[place]]
            position = positions[steps[place]]
            return f"op {position} ({record.op_name} on {record.component_id})"

        place = 0
        while place < len(steps):
            done = place / len(steps)
            progress(done)
            ran, _ = perform_next(
                turn_of,
                place,
                len(steps),
                store,
                partial(where, place),
                progress=progress,
                done=done,
            )
            place += len(ran)


class _Behind:
    """Which accesses are in order behind one of some others.

    Of these it knows by PE the first call at which one is known to be done, and the
    lanes in which they were served in turn. In the other lanes they keep their order
    where they share bytes, and of what is sent all of the PE do; of bytes the whole
    span counts.
    """

    def __init__(self, order: Order, touched: AccessColumns) -> None:
        self._order = order
        self._touched = touched
        self._done = np.full(order.table.shape[1], NEVER)
        self._lanes = set[int]()
        self._sent = list[_Span]()
        self._spans = defaultdict[int, list[_Span]](list)
        self._is_all = False

    def add(self, accesses: Ints) -> None:
        """Know of some more accesses."""
        order = self._order
        for access in accesses.tolist():
            pe = int(order.pe[access])
            if pe < 0:
                self._is_all = True
                continue
            self._done[pe] = min(self._done[pe], order.done[access])
            taker = int(order.taker[access])
            if taker >= 0:
                self._done[taker] = min(self._done[taker], order.taken[access])
            lane = int(order.lane[access])
            if lane >= 0 and order.in_turn[access]:
                self._lanes.add(lane)
            if order.is_sent[access]:
                self._sent.append(self._span(access))
            elif lane >= 0 and not order.in_turn[access]:
                self._spans[lane].append(self._span(access))

    def has(self, accesses: Ints) -> bool:
        """Whether one of these, which are later, is in order behind one it knows."""
        return any(self._has(access) for access in accesses.tolist())

    def _has(self, access: int) -> bool:
        order = self._order
        pe = int(order.pe[access])
        if self._is_all or pe < 0 or int(order.lane[access]) in self._lanes:
            return True
        beside = [*self._sent, *self._spans[int(order.lane[access])]]
        if any(self._span(access).meets(span) for span in beside):
            return True
        known = order.table[order.clock[access]].copy()
        known[pe] = order.number[access]
        return bool((self._done < known).any())

    def _span(self, access: int) -> _Span:
        """The bytes that an access touches, and whose access it is."""
        touched = self._touched
        rows = touched.rows_of(access)
        pe = int(self._order.pe[access])
        space = int(touched.space[access])
        return _Span(pe, space, rows.addr, rows.addr + rows.span)


class _Span(NamedTuple):
    """A range of bytes that a PE touches."""

    pe: int
    space: int
    low: int
    high: int

    def meets(self, other: _Span) -> bool:
        """Whether the same PE touches bytes of both."""
        if (self.pe, self.space) != (other.pe, other.space):
            return False
        return self.low < other.high and other.low < self.high

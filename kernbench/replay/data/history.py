"""Memory after any number of executed ops, forwards and backwards.

Phase 2 is deterministic, so memory at an op is what executing the ops until there
gives. What every one of them wrote is kept: a later question about an earlier op looks
it up, the newest write into a byte before that op. What does not fit the budget is
dropped, and executed again from the checkpoint before it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Ints
from kernbench.common.dtypes import np_dtype
from kernbench.common.paged import paged
from kernbench.common.progress import (
    MANY,
    Progress,
    beside_if_many,
    no_progress,
)
from kernbench.common.resumable import Resumable, Steps, beside, within
from kernbench.common.room import make_room
from kernbench.common.rows import Rows
from kernbench.replay.data.arrays import Pace
from kernbench.replay.data.intervals import IntervalIndex
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.sim_engine.accesses import access_steps, regions
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import (
    Plans,
    SnapshotFinding,
    Turn,
    perform_next,
    plan_of,
    turns,
)
from kernbench.trace import Trace

_EVERY = 64
"""Steps, or short turns of a loop, between two calls of progress, at most."""

_EXTENTS_AT_ONCE = 1 << 14
"""Arrays of a checkpoint that are counted between two calls of progress."""

_PLACES_KEPT = 1 << 14
"""Places of which the numbers of all writes are kept."""


def products(record: OpRecord) -> int:
    """The products that an op computes, or the elements of one that is no product.

    0 of an op that writes nothing.
    """
    out = regions(record).write
    if out is None:
        return 0
    return prod(out.shape) * int(record.params.get("k", 1))


class Write(NamedTuple):
    """The array that a step stored, and where it begins.

    ``rows`` are those in which it lies, None if it is contiguous.
    """

    space: str
    addr: int
    array: Array
    rows: Rows | None = None

    def is_range(self, addr: int, nbytes: int) -> bool:
        """Whether it covers these bytes and no other."""
        is_same = self.addr == addr and self.array.nbytes == nbytes
        return is_same and self.rows is None

    def from_address(self, addr: int) -> Array:
        """Its bytes from that at an address on, not to be written into.

        As many as are wanted follow it in memory too: the address is in one row.
        """
        offset = addr - self.addr
        if self.rows is not None:
            offset = int(self.rows.offsets(np.array([addr]))[0])
        return self.bytes()[offset:]

    def put(self, store: MemoryStore) -> None:
        """Write it into a store."""
        if self.rows is None:
            store.patch(self.space, self.addr, self.array)
        else:
            store.patch_rows(self.space, self.rows, self.array)

    def bytes(self) -> Array:
        """The array as bytes, not to be written into."""
        return self.array.reshape(-1).view(np.uint8)


class Contents(NamedTuple):
    """The bytes of a range; ``written`` says which of them any op has written so far.

    Not to be written into: they may be what an op stored.
    """

    values: Array
    written: Bools


class _Sought(NamedTuple):
    """A range of which every byte is sought, and what has been found of it."""

    space: str
    addr: int
    found: Contents

    def take_range(
        self, low: int, high: int, write: Write | None, checkpoint: MemoryStore
    ) -> int:
        """Take what is missing of [low, high); how many bytes that is.

        It is in what a step wrote, or in the checkpoint if that is None.
        """
        part = slice(low - self.addr, high - self.addr)
        missing = ~self.found.written[part]
        new = int(np.count_nonzero(missing))
        if not new:
            return 0
        if write is None:
            stored = checkpoint.view(self.space, low, (high - low,), "u8")
        else:
            stored = write.from_address(low)[: high - low]
        np.copyto(self.found.values[part], stored, where=missing)
        self.found.written[part] = True
        return new

    def take_rows(
        self,
        rows: Rows,
        low: int,
        high: int,
        write: Write | None,
        checkpoint: MemoryStore,
    ) -> int:
        """As ``take_range``, of the bytes of [low, high) that are in rows."""
        where, offsets = bytes_within(rows, low, high)
        missing = ~self.found.written[where - self.addr]
        where = where[missing]
        if write is None:
            stored = _held(checkpoint, self.space, where)
        else:
            stored = write.bytes()[offsets[missing]]
        self.found.values[where - self.addr] = stored
        self.found.written[where - self.addr] = True
        return len(where)


class LastWriter(NamedTuple):
    """An op (its canonical position, -1: nobody), and the addresses it wrote last."""

    op: int
    addresses: Ints


class _PlaceWrites(NamedTuple):
    """The writes that overlap a place: numbers in ``touched``, and the step of each."""

    rows: Ints
    steps: Ints


@dataclass(slots=True)
class _Segment:
    """Memory before step ``first`` (a checkpoint), and what the steps from it on wrote.

    ``writes`` has an entry a step, None for one that wrote nothing; ``nbytes`` are
    those of its arrays. ``used`` grows with every question and orders the segments by
    their last use.
    """

    first: int
    checkpoint: MemoryStore
    writes: list[Write | None] = field(default_factory=list)
    nbytes: int = 0
    used: int = 0

    @property
    def end(self) -> int:
        """The first step whose write is not kept here."""
        return self.first + len(self.writes)

    def kept(self, step: int) -> Write | None:
        """What a step wrote; None for one before the checkpoint."""
        if step < self.first:
            return None
        return self.writes[step - self.first]

    def drop_writes(self) -> None:
        """Forget what its steps wrote; the checkpoint stays."""
        self.writes = []
        self.nbytes = 0

    def store(self, steps: int, progress: Progress = no_progress) -> MemoryStore:
        """Memory after so many steps of the log, all of which are kept here.

        A store of its own; it shares the arrays, which nobody changes.
        """
        store = self.checkpoint.snapshot()
        for number in range(steps - self.first):
            if number % _EVERY == 0:
                progress(number / (steps - self.first))
            write = self.writes[number]
            if write is not None:
                write.put(store)
        return store


class History:
    """Memory at every op of a trace, by executing what leads there.

    A *step* is the number of an executed op, from 0, in canonical order; after 0 steps
    memory is empty. ``budget`` is in bytes: half of it is for what steps wrote, half
    for checkpoints. Memory after the latest step that was executed comes on top.

    Owned by the thread of lane "memory": ``reach`` and what calls it (``read``,
    ``MemoryAt``, ``findings``) execute ops and change what is kept. Any other thread
    may ask

    - ``executed``, which changes nothing;
    - ``touched``, ``accesses``, ``allocs``, ``writes_before``, ``write_steps`` and
      ``last_writers``. ``prepare`` makes the first three, about 1 s for a million ops;
      without it the first who asks does. They are assigned once whole and never
      changed. Of the writes of places that were asked for an ``lru_cache``, which has
      a lock of its own, keeps the last.
    """

    def __init__(self, trace: Trace, budget: int = 1 << 30) -> None:
        self._trace = trace
        self._budget = budget
        self._records = trace.steps
        self._positions = trace.executable_positions
        self.fill = 0xFF if trace.header.get("warn_memory") is True else None
        self._segments = [_Segment(0, MemoryStore(self.fill))]
        self._live_step = 0
        self._live_store = MemoryStore(self.fill)
        self._clock = 0
        self._touched: AccessColumns | None = None
        self._accesses: IntervalIndex | None = None
        self._allocs: AccessColumns | None = None
        self._prepared = Resumable(self._preparation)
        self._writes_of = lru_cache(_PLACES_KEPT)(self._find_writes)
        self._turn = turns(self._record_at, Plans().of)

    def _record_at(self, step: int) -> tuple[int, OpRecord]:
        """A step as ``turns`` asks for it: its number, and its record."""
        return step, self._records[step]

    # -- what ops touch, by columns: nothing is executed --

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make ``touched``, ``accesses`` and ``allocs``, unless they are there.

        One that is cancelled goes on where it was when it is called again.
        TraceFormatError for params that do not say what an op touches.
        """
        self._prepared.result(progress)

    def _preparation(self) -> Steps[None]:
        touched = self._touched
        if touched is None:
            touched = self._touched = yield from _touch_steps(self._trace)
        if self._accesses is None:
            self._accesses = yield from beside(lambda: IntervalIndex(touched), 0.7)
        if self._allocs is None:
            self._allocs = yield from beside(
                lambda: _alloc_columns(self._trace, touched.spaces), 0.9
            )

    @property
    def touched(self) -> AccessColumns:
        """Every access of the trace; ``row`` is the canonical position of its op."""
        if self._touched is None:
            self._touched = Resumable(lambda: _touch_steps(self._trace)).result()
        return self._touched

    @property
    def accesses(self) -> IntervalIndex:
        """The index of all accesses, by their numbers in ``touched``."""
        if self._accesses is None:
            self._accesses = IntervalIndex(self.touched)
        return self._accesses

    @property
    def allocs(self) -> AccessColumns:
        """The allocations; ``row`` is the number in ``trace.allocs``.

        ``spaces`` are those of ``touched``, then those that hold allocations only.
        """
        if self._allocs is None:
            self._allocs = _alloc_columns(self._trace, self.touched.spaces)
        return self._allocs

    def executed(self, op: int) -> int:
        """How many steps have run at op ``op``: memory changes only where this does."""
        return bisect_right(self._positions, op)

    @property
    def steps(self) -> int:
        """How many ops of the trace are executed in all."""
        return len(self._positions)

    def _find_writes(self, space: str, addr: int, nbytes: int) -> _PlaceWrites:
        """``_writes`` with their steps, as ``_writes_of`` keeps them."""
        rows = self._writes(space, addr, nbytes)
        return _PlaceWrites(
            rows, np.searchsorted(self._positions, self.touched.row[rows])
        )

    def _writes(self, space: str, addr: int, nbytes: int) -> Ints:
        """The writes that overlap a range: numbers in ``touched``, ascending."""
        rows = self.accesses.overlapping(space, addr, nbytes)
        return np.asarray(rows[self.touched.mode[rows] == 1])

    def writes_before(self, steps: int, space: str, addr: int, nbytes: int) -> int:
        """How many writes into a range the first ``steps`` steps have made.

        Where this is the same the range holds the same bytes.
        """
        return int(self.write_steps(space, addr, nbytes).searchsorted(steps))

    def write_steps(self, space: str, addr: int, nbytes: int) -> Ints:
        """The steps of the writes into a range, ascending."""
        return self._writes_of(space, addr, nbytes).steps

    def last_writers(
        self, space: str, at: Ints, op: int, progress: Progress = no_progress
    ) -> list[LastWriter]:
        """Who last wrote each of the bytes ``at`` (ascending) by op ``op``.

        The latest op first, as that is how they are found: a byte is that of the first
        write, counted back from ``op``, which has it. Bytes that nobody wrote come
        last, of op -1, if there are any.
        """
        self.prepare(progress)
        touched = self.touched
        rows, lows, highs = beside_if_many(
            max(len(at), len(touched.row)),
            lambda: self._writes_to(space, at, op),
            progress,
            0.0,
        )
        found = list[LastWriter]()
        free = np.ones(len(at), np.bool_)
        left = len(at)

        def take(i: int) -> Ints:
            """What write i has of the bytes that no later one has."""
            part = slice(lows[i], highs[i])
            mine = free[part]
            rows_of_write = touched.rows_of(int(rows[i]))
            if not rows_of_write.is_one:
                mine = mine & is_in_rows(rows_of_write, at[part])
            taken = at[part][mine]
            free[part] &= ~mine
            return taken

        pace = Pace(progress)
        for i in np.flatnonzero(lows < highs)[::-1].tolist():
            count = int(highs[i] - lows[i])
            taken = pace.turn(count, partial(take, i), 1 - left / len(at))
            if not len(taken):
                continue
            found.append(LastWriter(int(touched.row[rows[i]]), taken))
            left -= len(taken)
            if not left:
                return found
        nobodys = pace.turn(len(at), lambda: at[free], 1 - left / len(at))
        return [*found, LastWriter(-1, nobodys)]

    def next_writer(
        self, space: str, at: Ints, op: int, progress: Progress = no_progress
    ) -> int | None:
        """The first op after op ``op`` that writes any of the bytes ``at`` (ascending);
        None if no op does.
        """
        self.prepare(progress)
        touched = self.touched
        rows, lows, highs = beside_if_many(
            max(len(at), len(touched.row)),
            lambda: self._writes_to(space, at, op, later=True),
            progress,
            0.0,
        )

        def hits(i: int) -> bool:
            written = touched.rows_of(int(rows[i]))
            if written.is_one:
                return True
            return bool(is_in_rows(written, at[lows[i] : highs[i]]).any())

        pace = Pace(progress)
        for i in np.flatnonzero(lows < highs).tolist():
            if pace.turn(int(highs[i] - lows[i]), partial(hits, i), 0.0):
                return int(touched.row[rows[i]])
        return None

    def _writes_to(
        self, space: str, at: Ints, op: int, later: bool = False
    ) -> tuple[Ints, Ints, Ints]:
        """The writes by op ``op`` into the range of ``at``, or the ``later`` ones, and
        what of it they hit.

        Write i is into ``at[lows[i] : highs[i]]``, of rows into some of that.
        """
        touched = self.touched
        rows = self._writes(space, int(at[0]), int(at[-1] - at[0]) + 1)
        before = np.searchsorted(touched.row[rows], op, side="right")
        rows = rows[before:] if later else rows[:before]
        starts = touched.addr[rows]
        lows = np.searchsorted(at, starts)
        highs = np.searchsorted(at, starts + touched.spans_of(rows))
        return rows, lows, highs

    # -- memory --

    def at(self, op: int) -> MemoryAt:
        """Memory when ops 0..op have run; -1: empty.

        Nothing is executed before it is first read.
        """
        return self.after(self.executed(op))

    def after(self, steps: int) -> MemoryAt:
        """Memory after so many steps."""
        return MemoryAt(self, steps)

    def inputs(
        self, op: int, work: int, progress: Progress = no_progress
    ) -> MemoryStore:
        """Memory as it was before an op, for an oracle that has so much ``work`` to do.

        If that is much it is a store of its own, which another thread may read, and
        holds only what the op reads. Snapshots are in no memory: the op's params have
        them. MemoryStoreError for bytes that nobody had written, now or when read.
        """
        steps = self.executed(op - 1)
        memory = self.after(steps)
        if work <= MANY or progress is no_progress:
            self.reach(steps, progress)
            return memory
        store = MemoryStore(self.fill)
        record = self._trace.ops[op]
        plan = plan_of(record)
        for region, addr, snapshot in plan.turn(record).reads():
            if snapshot is not None or region is plan.write:
                continue
            for at, nbytes in region.where.at(addr).each():
                contents = self.read(steps, region.space, at, nbytes, progress)
                if self.fill is None and not contents.written.all():
                    memory.view(region.space, at, (nbytes,), "u8")  # raises
                store.patch(region.space, at, contents.values)
        return store

    def read(
        self,
        steps: int,
        space: str,
        addr: int,
        nbytes: int,
        progress: Progress = no_progress,
    ) -> Contents:
        """What a range holds after so many steps.

        Writes are copied from the newest back until every byte has been found; those of
        dropped steps are in the checkpoint. A range that one write covers exactly is
        that write's own array. Executes what is missing: MemoryStoreError or
        VerificationError, which name the op, if one cannot be.
        """
        self.prepare(progress)
        segment = self._segment_of(steps, progress)
        writes = self._writes_of(space, addr, nbytes)
        last = int(writes.steps.searchsorted(steps)) - 1
        if last >= 0:
            newest = segment.kept(int(writes.steps[last]))
            if newest is not None and newest.is_range(addr, nbytes):
                return Contents(newest.bytes(), np.ones(nbytes, np.bool_))
        make_room(2 * nbytes, f"{space} {addr:#x}:{nbytes}")
        values = np.full(nbytes, self.fill or 0, np.uint8)
        sought = _Sought(space, addr, Contents(values, np.zeros(nbytes, np.bool_)))
        if not nbytes:
            return sought.found
        left = nbytes
        pace = Pace(progress)
        pace.step(nbytes, 0.0)
        for at in range(last, -1, -1):
            rows = self.touched.rows_of(int(writes.rows[at]))
            low = max(addr, rows.addr)
            high = min(addr + nbytes, rows.addr + rows.span)
            pace.step(high - low, 1 - left / nbytes)
            write = segment.kept(int(writes.steps[at]))
            if rows.is_one:
                left -= sought.take_range(low, high, write, segment.checkpoint)
            else:
                left -= sought.take_rows(rows, low, high, write, segment.checkpoint)
            if not left:
                break
        return sought.found

    def unwritten(self, contents: Contents) -> int:
        """How many bytes of what was read were missing there.

        None in a run that only warned of bytes never written: there they hold 0xFF.
        """
        if self.fill is not None:
            return 0
        return int(np.count_nonzero(~contents.written))

    def kept_bytes(self, progress: Progress = no_progress) -> int:
        """Bytes of what steps wrote, and of the checkpoints: at most the budget."""
        written = sum(segment.nbytes for segment in self._segments)
        return written + self._checkpoint_bytes(progress)

    def _checkpoint_bytes(self, progress: Progress = no_progress) -> int:
        """Bytes of the arrays of all checkpoints, of which many share most."""
        arrays: dict[int, int] = {}
        for segment in self._segments:
            for space in segment.checkpoint.spaces():
                progress(0.0)
                extents = segment.checkpoint.extents(space)
                for first in range(0, len(extents), _EXTENTS_AT_ONCE):
                    progress(0.0)
                    some = extents[first : first + _EXTENTS_AT_ONCE]
                    arrays.update((id(array), array.nbytes) for _, array in some)
        return sum(arrays.values())

    # -- execution: of the thread of lane "memory" --

    def reach(self, steps: int, progress: Progress = no_progress) -> None:
        """Execute what has to be, so that memory after so many steps is known."""
        self._segment_of(steps, progress)

    def store(self, steps: int) -> MemoryStore:
        """Memory after so many steps as a store of its own."""
        return self._segment_of(steps).store(steps)

    def _segment_of(self, steps: int, progress: Progress = no_progress) -> _Segment:
        """The segment of step ``steps``, executed that far.

        Segments follow one another. The one that grows is executed on a live store,
        which is made of its checkpoint and its writes if another was executed last.
        When it holds an eighth of the budget the next one begins, with a checkpoint.
        """
        place = _place_of(self._segments, steps)
        segment = self._segments[place]
        self._clock += 1
        segment.used = self._clock
        begun = segment.end
        while segment.end < steps:
            now = segment.end
            progress((now - begun) / (steps - begun))
            if self._live_step != now:
                self._live_store = segment.store(now, progress)
                self._live_step = now
            if segment.nbytes >= self._budget // 8:
                checkpoint = self._live_store.snapshot()
                segment = _Segment(now, checkpoint, used=self._clock)
                place += 1
                self._segments.insert(place, segment)
            if not segment.writes:
                self._make_room(segment, progress)
                place = self._segments.index(segment)
            self._run(segment, min(steps, now + _EVERY), progress)
        return segment

    def findings(self, progress: Progress = no_progress) -> list[SnapshotFinding]:
        """The Phase 1 snapshots that differ from Phase 2, by step.

        Executes every op, on a memory of its own. Their positions are steps.
        """
        store = MemoryStore(self.fill)
        found = list[SnapshotFinding]()
        step = 0
        while step < self.steps:
            progress(step / self.steps)
            stop = min(self.steps, step + _EVERY)
            alike, _ = self._perform(step, stop, store, progress, found)
            step += len(alike)
        return found

    def _run(self, segment: _Segment, stop: int, progress: Progress) -> None:
        """Execute the next step of a segment, and those before ``stop`` alike to it.

        What it writes is kept in the segment, up to an eighth of the budget in one go.
        """
        step = segment.end
        store = self._live_store
        room = self._budget // 8 - segment.nbytes
        alike, results = self._perform(step, stop, store, progress, None, room)
        self._live_step = step + len(alike)
        out = alike[0].plan.write
        if out is None:
            segment.writes += [None] * len(alike)
            return
        for turn, result in zip(alike, results, strict=True):
            addr = turn.where[-1]
            rows = None if out.strided is None else out.strided.at(addr)
            segment.writes.append(Write(out.space, addr, result, rows))
        segment.nbytes += out.nbytes * len(alike)

    def _perform(
        self,
        step: int,
        stop: int,
        store: MemoryStore,
        progress: Progress,
        found: list[SnapshotFinding] | None,
        room: int = 1 << 62,
    ) -> tuple[list[Turn], list[Array]]:
        """``perform_next`` of the trace's steps: the turns that ran, their results.

        If it raises, nothing has run: ``store`` is as it was.
        """

        def where() -> str:
            record = self._records[step]
            position = self._positions[step]
            return f"op {position} ({record.op_name} on {record.component_id})"

        done = step / self.steps
        return perform_next(
            self._turn, step, stop, store, where, found, room, progress, done
        )

    def _make_room(self, current: _Segment, progress: Progress) -> None:
        """Keep the budget: drop the writes used longest ago, then close checkpoints.

        An eighth of the budget is left for the segment that is about to grow. The first
        checkpoint, of empty memory, stays.
        """
        by_use = sorted(self._segments, key=lambda segment: segment.used)
        written = sum(segment.nbytes for segment in by_use)
        for segment in by_use:
            if segment is current or written <= self._budget * 3 // 8:
                break
            written -= segment.nbytes
            segment.drop_writes()
        while len(self._segments) > 2:
            if self._checkpoint_bytes(progress) <= self._budget // 2:
                break
            del self._segments[self._least_apart(current)]

    def _least_apart(self, current: _Segment) -> int:
        """Which checkpoint leaves the smallest hole: not the first, nor ``current``.

        A hole is the steps from the one before it to the one after.
        """
        firsts = [segment.first for segment in self._segments]
        firsts.append(1 << 62)
        holes = {
            place: firsts[place + 1] - firsts[place - 1]
            for place in range(1, len(self._segments))
            if self._segments[place] is not current
        }
        return min(holes, key=holes.__getitem__)


class MemoryAt(MemoryStore):
    """Memory after some steps of a history, as a store that is only read.

    ``view`` looks up what it is asked for; anything else makes a whole store first.
    """

    def __init__(self, history: History, steps: int) -> None:
        self._history = history
        self._steps = steps
        self.fill = history.fill

    @cached_property
    def _storage(self):  # type: ignore[no-untyped-def, override]
        """All extents, as a store of its own has them."""
        return self._history.store(self._steps)._storage

    def view(self, space: str, addr: int, shape: tuple[int, ...], dtype: str) -> Array:
        """As of any store; MemoryStoreError for bytes never written."""
        wanted = np_dtype(dtype)
        nbytes = prod(shape) * wanted.itemsize
        contents = self._history.read(self._steps, space, addr, nbytes)
        if self.fill is None and not contents.written.all():
            # raises, naming what is near
            return super().view(space, addr, shape, dtype)
        found = contents.values.view(wanted).reshape(shape)
        found.flags.writeable = False
        return found

    def view_rows(
        self, space: str, rows: Rows, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """As of any store; MemoryStoreError for bytes of rows never written."""
        contents = self._history.read(self._steps, space, rows.addr, rows.span)
        offsets = np.arange(rows.nbytes)
        at = rows.addresses(offsets) - rows.addr
        if self.fill is None and not contents.written[at].all():
            # raises, naming what is near
            return super().view_rows(space, rows, shape, dtype)
        found: Array = contents.values[at].view(np_dtype(dtype)).reshape(shape)
        found.flags.writeable = False
        return found


def is_in_rows(rows: Rows, addresses: Ints) -> Bools:
    """Which addresses are those of bytes of rows: of a million it takes some 15 ms."""
    return np.asarray(rows.offsets(addresses) >= 0)


def bytes_within(rows: Rows, low: int, high: int) -> tuple[Ints, Ints]:
    """The addresses in [low, high) that lie in rows, and how far into these they are.

    It costs as much as there are bytes in the rows, or in the range if that is less.
    """
    if high - low < rows.nbytes:
        addresses = np.arange(low, high)
        offsets = rows.offsets(addresses)
        is_in = offsets >= 0
    else:
        offsets = np.arange(rows.nbytes)
        addresses = rows.addresses(offsets)
        is_in = (addresses >= low) & (addresses < high)
    return addresses[is_in], offsets[is_in]


def _held(store: MemoryStore, space: str, addresses: Ints) -> Array:
    """The bytes of a store at addresses, all of which it has."""
    found = np.empty(len(addresses), np.uint8)
    ends = np.flatnonzero(np.diff(addresses) != 1) + 1
    bounds = [0, *ends.tolist(), len(addresses)]
    for first, end in pairwise(bounds):
        if first < end:
            addr = int(addresses[first])
            found[first:end] = store.view(space, addr, (end - first,), "u8")
    return found


def _place_of(segments: list[_Segment], steps: int) -> int:
    """The number of the segment that step ``steps`` is in."""
    return bisect_right(segments, steps, key=lambda segment: segment.first) - 1


def _touch_steps(trace: Trace) -> Steps[AccessColumns]:
    """``access_columns`` by canonical position, in the smallest types for them."""
    yield 0.0
    columns = yield from within(access_steps(trace), 0.0, 0.5)
    return (yield from beside(lambda: _by_position(trace, columns), 0.5))


def _by_position(trace: Trace, columns: AccessColumns) -> AccessColumns:
    """Accesses in the canonical order of their ops, with positions for rows."""
    rows = trace.position[columns.row]
    order = np.argsort(rows, kind="stable")
    few_spaces = len(columns.spaces) <= 1 << 8
    small_sizes = columns.nbytes.max(initial=0) < 1 << 31

    def sorted_as(column: Array, kind: Any) -> Any:
        """A column in that order, as another type; a large one in a file."""
        return paged(column[order].astype(kind))

    form = columns.form
    if len(form):
        form = sorted_as(form, form.dtype)
    return AccessColumns(
        row=sorted_as(rows, trace.position.dtype),
        mode=sorted_as(columns.mode, np.int8),
        space=sorted_as(columns.space, np.uint8 if few_spaces else np.int64),
        addr=sorted_as(columns.addr, np.int64),
        nbytes=sorted_as(columns.nbytes, np.int32 if small_sizes else np.int64),
        spaces=columns.spaces,
        form=form,
        forms=columns.forms,
    )


def _alloc_columns(trace: Trace, touched_spaces: tuple[str, ...]) -> AccessColumns:
    """The allocations as columns; spaces are numbered on from the touched ones."""
    log = trace.alloc_columns
    spaces = tuple(dict.fromkeys((*touched_spaces, *log.spaces)))
    numbers = np.array([spaces.index(space) for space in log.spaces], np.int16)
    space: Any = numbers[log.space]
    row: Any = np.arange(len(space), dtype=np.int32)
    # They are asked for a few rows at a time, thousands of times.
    addr: Any = paged(log.addr[:])
    nbytes: Any = paged(log.nbytes[:])
    return AccessColumns(row, row, space, addr, nbytes, spaces)

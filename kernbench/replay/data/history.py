"""Memory at any op, in both directions: what every executed op wrote is kept as a version.

Beyond the budget old versions are dropped, and executed again from the checkpoint before them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.dtypes import np_dtype
from kernbench.common.progress import Progress, no_progress
from kernbench.sim_engine.accesses import AccessColumns, access_columns, regions
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import Plans, SnapshotFinding, Turn, perform_next, turns
from kernbench.trace import Trace

SMALL = 1 << 22  # products or elements that take some ms
_FEW, _SORTED = 256, 1 << 16  # ops; accesses
_AT_ONCE = 64  # steps between two tells, at most: some ms
_PLACES = 1 << 14  # whose writes are known
_NEAR = (
    64  # accesses in the order of their addresses of which one address is kept there
)


def work(record: OpRecord) -> int:
    """The products, or elements, that an op makes."""
    out = regions(record).write
    return 0 if out is None else prod(out.shape) * int(record.params.get("k", 1))


class Ranges:
    """Which accesses overlap a range, by number, in O(log n + those of like size near it).

    All of about one size (within 16x) are sorted by address: a query looks at its neighbours.
    """

    def __init__(self, columns: AccessColumns) -> None:
        self._columns, sizes = columns, np.frexp(columns.nbytes - 0.5)[1]
        small = np.int16 if len(columns.spaces) < 1 << 10 else np.int64
        levels = -(-sizes // 4).astype(small)  # 16**level >= nbytes
        kinds = columns.space.astype(small) * 16 + levels
        order = np.lexsort((columns.addr, kinds))
        kinds = kinds[order]
        self._tables: dict[str, list[tuple[int, Ints, Ints]]] = {}
        for part in (
            np.split(order, np.flatnonzero(np.diff(kinds)) + 1) if len(order) else ()
        ):
            some, mine = columns.addr[part[::_NEAR]], part.astype(columns.row.dtype)
            table = 16 ** int(levels[part[0]]), some, mine
            self._tables.setdefault(columns.spaces[columns.space[part[0]]], []).append(
                table
            )

    def at(self, space: str, addr: int, nbytes: int) -> Ints:
        """Those that overlap [addr, addr + nbytes), ascending."""
        found, held = [np.empty(0, np.int64)], self._columns
        for size, some, rows in self._tables.get(space, ()):
            low, high = np.searchsorted(some, (addr - size + 1, addr + nbytes)).tolist()
            near = rows[max(low - 1, 0) * _NEAR : high * _NEAR]
            starts = held.addr[near]
            inside = (starts < addr + nbytes) & (starts + held.nbytes[near] > addr)
            found.append(near[inside])
        return np.sort(np.concatenate(found))


@dataclass(slots=True)
class _Segment:
    """Memory before step ``first``, and what the steps from there on wrote, as far as kept."""

    first: int
    base: MemoryStore
    writes: list[tuple[str, int, Array] | None] = field(default_factory=list)
    nbytes: int = 0
    used: int = 0

    def store(self, steps: int) -> MemoryStore:
        """Memory after so many steps of the log, all of them kept."""
        store = self.base.snapshot()
        for write in self.writes[: steps - self.first]:
            if write is not None:
                store.patch(*write)
        return store


class History:
    """Versions of all bytes. A step is the number of an executed op, from 0; memory begins empty.

    Half of the ``budget`` (bytes) is for versions, half for checkpoints; memory now comes on top.
    """

    def __init__(self, trace: Trace, budget: int = 1 << 30) -> None:
        self._trace, self._budget = trace, budget
        self._records, self._steps = trace.executable, trace.executable_positions
        self.fill = 0xFF if trace.header.get("warn_memory") is True else None
        self._segments = [_Segment(0, MemoryStore(self.fill))]
        self._live = 0, MemoryStore(self.fill)
        self._clock = 0
        self._written = lru_cache(_PLACES)(self._writes_by_step)
        records = self._records
        self._turn = turns(lambda step: (step, records[step]), Plans().of)

    @cached_property
    def touched(self) -> AccessColumns:
        """Every access of the trace; ``row`` is the canonical position of its op."""
        columns, position = access_columns(self._trace), self._trace.position
        columns = columns._replace(row=position[columns.row])
        order = np.argsort(columns.row, kind="stable")
        size = np.int32 if columns.nbytes.max(initial=0) >> 31 == 0 else np.int64
        few = np.uint8 if len(columns.spaces) >> 8 == 0 else np.int64
        types = position.dtype, np.int8, few, np.int64, size
        given: Any = zip(columns[:5], types, strict=True)
        row, mode, space, addr, nbytes = (x[order].astype(t) for x, t in given)
        return AccessColumns(row, mode, space, addr, nbytes, columns.spaces)

    @cached_property
    def allocs(self) -> AccessColumns:
        """The allocations; ``row`` is the number in ``trace.allocs``, spaces are as in touched."""
        log: Any = self._trace.alloc_columns
        spaces = tuple(dict.fromkeys((*self.touched.spaces, *log.spaces)))
        space = np.array([spaces.index(s) for s in log.spaces], np.int16)[log.space]
        row: Any = np.arange(len(space), dtype=np.int32)
        return AccessColumns(row, row, space, log.addr, log.nbytes, spaces)

    @cached_property
    def accesses(self) -> Ranges:
        """The index of all accesses: numbers in ``touched``."""
        return Ranges(self.touched)

    def _writes(self, space: str, addr: int, nbytes: int) -> Ints:
        """The writes that overlap a range: numbers in ``touched``."""
        rows = self.accesses.at(space, addr, nbytes)
        return np.asarray(rows[self.touched.mode[rows] == 1])

    def _writes_by_step(self, space: str, addr: int, nbytes: int) -> tuple[Ints, Ints]:
        """``_writes``, and the step of each; ``_written`` keeps those asked for most lately."""
        rows = self._writes(space, addr, nbytes)
        return rows, np.searchsorted(self._steps, self.touched.row[rows])

    def version(self, steps: int, space: str, addr: int, nbytes: int) -> int:
        """How many writes into a range have been made after so many steps: it tells contents."""
        return int(self._written(space, addr, nbytes)[1].searchsorted(steps))

    def changed(self, low: int, high: int, ranges: list[tuple[int, int]]) -> Array:
        """Which (addr, nbytes) the steps between may have written into; of too many, all."""
        steps = self._steps
        ops = [steps[at] if at < len(steps) else 1 << 62 for at in sorted((low, high))]
        first, end = (bisect_left(self.touched.row, op) for op in ops)
        if end - first > _SORTED:
            return np.ones(len(ranges), np.bool_)
        new = self.touched.take(
            first + np.flatnonzero(self.touched.mode[first:end] == 1)
        )
        order = np.argsort(new.addr)
        reach = np.append(-1, np.maximum.accumulate((new.addr + new.nbytes)[order]))
        addr, size = np.array(ranges, np.int64).reshape(-1, 2).T
        return np.asarray(reach[np.searchsorted(new.addr[order], addr + size)] > addr)

    def quick(self, op: int) -> bool:
        """Whether memory at op ``op`` is known, or will be once few small ops are executed."""
        steps, segments = self.executed(op), [*self._segments]  # of any thread
        segment = segments[bisect_right(segments, steps, key=lambda s: s.first) - 1]
        todo = range(segment.first + len(segment.writes), steps)
        return (
            len(todo) <= _FEW
            and sum(work(self._records[step]) for step in todo) <= SMALL
        )

    def executed(self, op: int) -> int:
        """How many ops have changed memory at op ``op``: memory is the same where this is."""
        return bisect_right(self._steps, op)

    def at(self, op: int) -> MemoryAt:
        """Memory when ops 0..op have run; -1 is empty. Nothing is executed before it is read."""
        return MemoryAt(self, self.executed(op))

    def read(
        self, steps: int, space: str, addr: int, nbytes: int
    ) -> tuple[Array, Array]:
        """(bytes, which were ever written) of a range after so many steps, newest version first;
        not to be written into: they may be a version.
        """
        (rows, step), segment = self._written(space, addr, nbytes), self.reach(steps)
        last = int(step.searchsorted(steps)) - 1
        if last >= 0 and (number := int(step[last]) - segment.first) >= 0:
            write = segment.writes[number]
            if (
                write is not None
                and write[1:2] == (addr,)
                and write[2].nbytes == nbytes
            ):
                return write[2].reshape(-1).view(np.uint8), np.ones(nbytes, np.bool_)
        flat, held = (
            np.full(nbytes, self.fill or 0, np.uint8),
            np.zeros(nbytes, np.bool_),
        )
        for at in range(last, -1, -1):
            start, number = (
                int(self.touched.addr[rows[at]]),
                int(step[at]) - segment.first,
            )
            end = start + int(self.touched.nbytes[rows[at]])
            low, high = max(addr, start), min(addr + nbytes, end)
            missing = ~held[low - addr : high - addr]
            if not missing.any():
                continue
            write = segment.writes[number] if number >= 0 else None
            part = (
                segment.base.view(space, low, (high - low,), "u8")
                if write is None
                else write[2].reshape(-1).view(np.uint8)[low - start : high - start]
            )
            flat[low - addr : high - addr][missing] = part[missing]
            held[low - addr : high - addr] = True
            if held.all():
                break
        return flat, held

    def unwritten(self, steps: int, space: str, addr: int, nbytes: int) -> int:
        """How many bytes of a range a read after so many steps would miss."""
        held = self.read(steps, space, addr, nbytes)[1]
        return int(np.count_nonzero(~held)) if self.fill is None else 0

    def writers(self, space: str, at: Ints, op: int) -> list[tuple[int, Ints]]:
        """Who last wrote each of the bytes ``at`` (ascending) by op ``op``, latest first; -1: none.

        Of every writer its canonical position and the bytes that are its own.
        """
        rows = self._writes(space, int(at[0]), int(at[-1] - at[0]) + 1)
        rows = rows[: np.searchsorted(self.touched.row[rows], op, side="right")]
        starts = self.touched.addr[rows]
        low, high = np.searchsorted(at, (starts, starts + self.touched.nbytes[rows]))
        found, free = list[tuple[int, Ints]](), np.ones(len(at), np.bool_)
        for i in np.flatnonzero(low < high)[::-1].tolist():
            part = slice(low[i], high[i])
            if free[part].any():
                found.append((int(self.touched.row[rows[i]]), at[part][free[part]]))
                free[part] = False
                if not free.any():
                    return found
        return [*found, (-1, at[free])]

    def held(self) -> int:
        """Bytes of the versions and of the checkpoints."""
        return sum(segment.nbytes for segment in self._segments) + self._checkpointed()

    def _checkpointed(self) -> int:
        stores = [segment.base for segment in self._segments]
        arrays = {
            id(a): a.nbytes for s in stores for x in s.spaces() for _, a in s.extents(x)
        }
        return sum(arrays.values())

    def reach(self, steps: int, progress: Progress = no_progress) -> _Segment:
        """The segment of step ``steps``, executed that far."""
        at = bisect_right(self._segments, steps, key=lambda s: s.first)
        segment = self._segments[at - 1]
        self._clock += 1
        segment.used = self._clock
        begun = segment.first + len(segment.writes)
        while (now := segment.first + len(segment.writes)) < steps:
            progress((now - begun) / (steps - begun))
            if self._live[0] != now:
                self._live = now, segment.store(now)
            if segment.nbytes >= self._budget // 8:
                segment = _Segment(now, self._live[1].snapshot(), used=self._clock)
                self._segments.insert(at, segment)
                at += 1
            if not segment.writes:
                self._make_room(segment)
                at = self._segments.index(segment) + 1
            self._run(segment, now, min(steps, now + _AT_ONCE))
        return segment

    def findings(self, progress: Progress = no_progress) -> list[SnapshotFinding]:
        """The Phase 1 snapshots that differ from Phase 2, by step, by executing everything."""
        store, found, step = MemoryStore(self.fill), list[SnapshotFinding](), 0
        while step < len(self._steps):
            progress(step / len(self._steps))
            step += len(self._perform(step, len(self._steps), store, found)[0])
        return found

    def _run(self, segment: _Segment, step: int, stop: int) -> None:
        """Execute ``step``, and those before ``stop`` that share its call; keep what they wrote."""
        store, room = self._live[1], self._budget // 8 - segment.nbytes
        self._live = -1, store  # until it has worked
        alike, results = self._perform(step, stop, store, None, room)
        self._live = step + len(alike), store
        out = alike[0].plan.write
        if out is None:
            segment.writes += [None] * len(alike)
            return
        for turn, result in zip(alike, results, strict=True):
            segment.writes.append((out.space, turn.where[-1], result))
        segment.nbytes += out.nbytes * len(alike)

    def _perform(
        self, step: int, stop: int, store: MemoryStore, *more: Any
    ) -> tuple[list[Turn], list[Array]]:
        """``perform_next`` of the trace's steps."""

        def where() -> str:
            record = self._records[step]
            return f"op {self._steps[step]} ({record.op_name} on {record.component_id})"

        return perform_next(self._turn, step, stop, store, where, *more)

    def _make_room(self, current: _Segment) -> None:
        """Drop the versions used longest ago, and if there are too many the closest checkpoints."""
        kept = sorted(self._segments, key=lambda s: s.used)
        while (
            kept[0] is not current
            and sum(s.nbytes for s in kept) > self._budget * 3 // 8
        ):
            kept[0].writes, kept[0].nbytes = [], 0
            kept.pop(0)
        while len(self._segments) > 2 and self._checkpointed() > self._budget // 2:
            ends = [s.first for s in self._segments] + [1 << 62]
            inner = [
                i for i in range(1, len(ends) - 1) if self._segments[i] is not current
            ]
            del self._segments[min(inner, key=lambda i: ends[i + 1] - ends[i - 1])]


class MemoryAt(MemoryStore):
    """Memory after some steps of a history: reads look up versions, the rest replays them."""

    def __init__(self, history: History, steps: int) -> None:
        self._history, self._steps, self.fill = history, steps, history.fill

    @cached_property
    def _storage(self):  # type: ignore[no-untyped-def, override]  # what a store sets at once
        return self._history.reach(self._steps).store(self._steps)._storage

    def view(self, space: str, addr: int, shape: tuple[int, ...], dtype: str) -> Array:
        """As of any store; MemoryStoreError for bytes never written."""
        wanted = np_dtype(dtype)
        nbytes = prod(shape) * wanted.itemsize
        flat, held = self._history.read(self._steps, space, addr, nbytes)
        if self.fill is None and not held.all():
            return super().view(
                space, addr, shape, dtype
            )  # raises, naming what is near
        found = flat.view(wanted).reshape(shape)
        found.flags.writeable = False
        return found

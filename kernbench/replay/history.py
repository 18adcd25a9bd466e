"""Memory at any op, in both directions: what every executed op wrote is kept as a version.

Beyond the budget old versions are dropped, and executed again from the checkpoint before them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from kernbench.common.dtypes import np_dtype
from kernbench.errors import KernbenchError, VerificationError
from kernbench.sim_engine.accesses import AccessColumns, Ints, access_columns
from kernbench.sim_engine.data_executor import execute
from kernbench.sim_engine.memory_store import Array, MemoryStore
from kernbench.trace import Trace


class Ranges:
    """Which of ``rows`` of some accesses overlap a range, in O(log n + those of like size near it).

    Rows of about one size (within 16x) are sorted by address: a query looks at its neighbours.
    """

    def __init__(self, columns: AccessColumns, rows: Ints) -> None:
        mine, self._end = columns.take(rows), columns.addr + columns.nbytes
        level = -(-np.frexp(mine.nbytes - 0.5)[1] // 4)  # 16**level >= nbytes
        order = np.lexsort((mine.addr, level, mine.space))
        kinds = (mine.space * 16 + level)[order]
        self._tables: dict[str, list[tuple[int, Ints, Ints]]] = {}
        for part in np.split(order, np.flatnonzero(np.diff(kinds)) + 1) if len(order) else ():
            table = 16 ** int(level[part[0]]), mine.addr[part], rows[part]
            self._tables.setdefault(columns.spaces[mine.space[part[0]]], []).append(table)

    def at(self, space: str, addr: int, nbytes: int) -> Ints:
        """The rows that overlap [addr, addr + nbytes), ascending."""
        found = [np.empty(0, np.int64)]
        for size, starts, rows in self._tables.get(space, ()):
            low, high = np.searchsorted(starts, (addr - size + 1, addr + nbytes))
            near = rows[low:high]
            found.append(near[self._end[near] > addr])
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

    @cached_property
    def touched(self) -> AccessColumns:
        """Every access of the trace; ``row`` is the canonical position of its op."""
        columns = access_columns(self._trace)
        columns = columns._replace(row=self._trace.position[columns.row].astype(np.int64))
        return columns.take(np.argsort(columns.row, kind="stable"))

    @cached_property
    def allocs(self) -> AccessColumns:
        """The allocations; ``row`` is the number in ``trace.allocs``, spaces are as in touched."""
        log = self._trace.alloc_columns
        spaces = tuple(dict.fromkeys((*self.touched.spaces, *log.spaces)))
        space = np.array([spaces.index(s) for s in log.spaces], np.int64)[log.space]
        row, addr, nbytes = np.arange(len(space)), *np.array([log.addr, log.nbytes], np.int64)
        return AccessColumns(row, row, space, addr, nbytes, spaces)

    @cached_property
    def accesses(self) -> Ranges:
        """The index of all accesses: numbers in ``touched``."""
        return Ranges(self.touched, np.arange(len(self.touched.row)))

    @cached_property
    def _writes(self) -> Ranges:
        return Ranges(self.touched, np.flatnonzero(self.touched.mode))

    def written(self, low: int, high: int) -> AccessColumns:
        """What the steps from ``low`` to before ``high`` wrote."""
        ends = np.searchsorted(self.touched.row, np.append(self._steps, 1 << 62)[[low, high]])
        return self.touched.take(np.arange(*ends)[self.touched.mode[slice(*ends)] == 1])

    def executed(self, op: int) -> int:
        """How many ops have changed memory at op ``op``: memory is the same where this is."""
        return int(np.searchsorted(self._steps, op, side="right"))

    def at(self, op: int) -> MemoryAt:
        """Memory when ops 0..op have run; -1 is empty. Nothing is executed before it is read."""
        return MemoryAt(self, self.executed(op))

    def read(self, steps: int, space: str, addr: int, nbytes: int) -> tuple[Array, Array]:
        """(bytes, which were ever written) of a range after so many steps, newest version first."""
        flat, held = np.full(nbytes, self.fill or 0, np.uint8), np.zeros(nbytes, np.bool_)
        rows, segment = self._writes.at(space, addr, nbytes), self.reach(steps)
        step = np.searchsorted(self._steps, self.touched.row[rows])
        for at in range(int(np.searchsorted(step, steps)) - 1, -1, -1):
            start, number = int(self.touched.addr[rows[at]]), int(step[at]) - segment.first
            low, high = max(addr, start), min(addr + nbytes, start + self.touched.nbytes[rows[at]])
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

    def held(self) -> int:
        """Bytes of the versions and of the checkpoints."""
        return sum(segment.nbytes for segment in self._segments) + self._checkpointed()

    def _checkpointed(self) -> int:
        stores = [segment.base for segment in self._segments]
        arrays = {id(a): a.nbytes for s in stores for x in s.spaces() for _, a in s.extents(x)}
        return sum(arrays.values())

    def reach(self, steps: int) -> _Segment:
        """The segment of step ``steps``, executed that far."""
        at = bisect_right(self._segments, steps, key=lambda s: s.first)
        segment = self._segments[at - 1]
        self._clock += 1
        segment.used = self._clock
        while (now := segment.first + len(segment.writes)) < steps:
            if self._live[0] != now:
                self._live = now, segment.store(now)
            if segment.nbytes >= self._budget // 8:
                segment = _Segment(now, self._live[1].snapshot(), used=self._clock)
                self._segments.insert(at, segment)
                at += 1
            if not segment.writes:
                self._make_room(segment)
                at = self._segments.index(segment) + 1
            self._run(segment, now)
        return segment

    def _run(self, segment: _Segment, step: int) -> None:
        """Execute ``step`` on the live store and keep what it wrote."""
        record, store, kept = self._records[step], self._live[1], None
        at = int(np.searchsorted(self.touched.row, self._steps[step], side="right")) - 1
        try:
            execute(record, store)
            if at >= 0 and self.touched.mode[at] and self.touched.row[at] == self._steps[step]:
                space = self.touched.spaces[self.touched.space[at]]
                addr = int(self.touched.addr[at])
                kept = space, addr, store.read(space, addr)
        except Exception as why:
            self._live = -1, store
            kind = type(why) if isinstance(why, KernbenchError) else VerificationError
            where = f"op {self._steps[step]} ({record.op_name} on {record.component_id})"
            raise kind(f"{where} cannot be executed: {why}") from why
        self._live = step + 1, store
        segment.writes.append(kept)
        segment.nbytes += 0 if kept is None else kept[2].nbytes

    def _make_room(self, current: _Segment) -> None:
        """Drop the versions used longest ago, and every second checkpoint if they are too many."""
        kept = sorted(self._segments, key=lambda s: s.used)
        while kept[0] is not current and sum(s.nbytes for s in kept) > self._budget * 3 // 8:
            kept[0].writes, kept[0].nbytes = [], 0
            kept.pop(0)
        while len(self._segments) > 2 and self._checkpointed() > self._budget // 2:
            dropped = [s for s in self._segments[1:] if s is not current][::2]
            self._segments = [s for s in self._segments if all(s is not d for d in dropped)]


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
            return super().view(space, addr, shape, dtype)  # raises, naming what is near
        found = flat.view(wanted).reshape(shape)
        found.flags.writeable = False
        return found

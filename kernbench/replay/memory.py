"""Memory at an op as a user names it: tensors by name, with their numbers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import np_dtype
from kernbench.errors import MemoryStoreError, UsageError
from kernbench.replay.history import History
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import accesses
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One allocation: ``writer`` is the op that last wrote into it, or None;
    ``touched`` says that this op reads or writes it.
    """

    tensor: str
    shard: int
    space: str
    addr: int
    owner: str
    dtype: str
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    nbytes: int
    writer: int | None
    touched: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Allocations that hold something at op ``op``, those it touches first, then the youngest
    first.
    """

    op: int
    total: int
    entries: tuple[MemoryEntry, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorView:
    """A tensor at op ``op``, put together from the first copy of each shard.

    ``written`` masks elements that hold something, ``changed`` those that op ``op`` wrote.
    Statistics are over written, finite elements.
    """

    op: int
    name: str
    space: str
    dtype: str
    values: npt.NDArray[Any]
    written: npt.NDArray[np.bool_]
    changed: npt.NDArray[np.bool_]
    minimum: float
    maximum: float
    mean: float
    nans: int


class Memories:
    """Answers from a History and the allocations of a trace."""

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace = trace
        self._history = history
        self._shards: dict[str, list[Shard]] = {}
        for shard in trace.allocs:
            self._shards.setdefault(_key(shard), []).append(shard)
        self._last: tuple[str, int, npt.NDArray[Any], npt.NDArray[np.bool_]] | None = None

    @property
    def names(self) -> list[str]:
        """What ``tensor`` accepts: tensor names, scratch handles as
        ``h0.3@sip0.cube0.pe0.pe_cpu``.
        """
        return list(self._shards)

    @cached_property
    def _by_place(self) -> dict[str, npt.NDArray[np.int64]]:
        """Per space (addr, end, cmd, number in the trace) of its allocations, sorted by address."""
        rows: dict[str, list[tuple[int, int, int, int]]] = {}
        for number, shard in enumerate(self._trace.allocs):
            row = (shard.addr, shard.addr + shard.nbytes, shard.cmd, number)
            rows.setdefault(shard.space, []).append(row)
        return {space: np.array(sorted(table), np.int64).T for space, table in rows.items()}

    def _alloc_at(self, space: str, addr: int, op: int) -> int:
        """The youngest allocation, by op ``op``, that holds an address; -1 if none.

        Scratch is handed out anew by every kernel, so several may hold it.
        """
        if space not in self._by_place:
            return -1
        starts, ends, cmds, numbers = self._by_place[space]
        upto = int(np.searchsorted(starts, addr, side="right"))
        now = int(self._trace.op_columns.cmd[self._trace.order[op]])
        holding = np.flatnonzero((ends[:upto] > addr) & (cmds[:upto] <= now))
        return int(numbers[holding[np.argmax(cmds[holding])]]) if len(holding) else -1

    @cached_property
    def _written_allocs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(op, allocation) of every write, in canonical order."""
        pairs = [
            (w.position, self._alloc_at(w.space, w.addr, w.position)) for w in self._history.writes
        ]
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def at(self, op: int, limit: int = 200) -> Memory:
        """The allocations that hold something at op ``op``, at most ``limit`` of them."""
        ops, allocs = self._written_allocs
        upto = int(np.searchsorted(ops, op, side="right"))
        latest_first = allocs[:upto][::-1]
        found, where = np.unique(latest_first, return_index=True)
        writers = {
            int(alloc): int(ops[upto - 1 - at])
            for alloc, at in zip(found, where, strict=True)
            if alloc >= 0
        }
        touched = dict.fromkeys(
            alloc for a in self._touched(op) if (alloc := self._alloc_at(a[0], a[1], op)) >= 0
        )
        recent = [int(latest_first[at]) for at in np.sort(where)]
        order = [*touched, *(a for a in recent if a >= 0 and a not in touched)]
        entries = tuple(
            self._entry(alloc, writers.get(alloc), alloc in touched) for alloc in order[:limit]
        )
        return Memory(op, len(order), entries)

    def _entry(self, alloc: int, writer: int | None, touched: bool) -> MemoryEntry:
        shard = self._trace.allocs[alloc]
        return MemoryEntry(
            _key(shard),
            shard.index,
            shard.space,
            shard.addr,
            shard.owner,
            shard.dtype,
            shard.shape,
            shard.origin,
            shard.nbytes,
            writer,
            touched,
        )

    def tensor(self, op: int, name: str) -> TensorView:
        """The numbers of a tensor at op ``op``; UsageError lists the names."""
        shards = self._shards.get(name)
        if shards is None:
            near = ", ".join(list(self._shards)[:8]) or "none"
            raise UsageError(f"no tensor {name!r} in this trace; it has: {near}")
        firsts = list({s.origin: s for s in reversed(shards)}.values())
        executed = self._history.executed(op)
        if self._last is None or self._last[:2] != (name, executed):
            self._last = (name, executed, *self._gather(op, shards[0].dtype, firsts))
        _, _, values, mask = self._last
        changed = np.zeros(values.shape, np.bool_)
        for space, addr, nbytes, mode in self._touched(op):
            for shard in firsts if mode == "w" else ():
                low, high = max(addr, shard.addr), min(addr + nbytes, shard.addr + shard.nbytes)
                if space == shard.space and low < high:
                    size = np_dtype(shard.dtype).itemsize
                    flat = np.zeros(shard.nbytes // size, np.bool_)
                    flat[(low - shard.addr) // size : -(-(high - shard.addr) // size)] = True
                    changed[_box(shard)] |= flat.reshape(shard.shape)
        return _view(op, name, shards[0], values, mask, changed)

    def _gather(
        self, op: int, dtype: str, firsts: list[Shard]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """(values, which are written) of a whole tensor from one copy of each of its shards."""
        store = self._history.at(op)
        ends = np.array([np.add(s.origin, s.shape) for s in firsts])
        values = np.zeros(tuple(ends.max(axis=0).astype(int)), np_dtype(dtype))
        mask = np.zeros(values.shape, np.bool_)
        spans = {
            space: [(start, start + array.nbytes) for start, array in store.extents(space)]
            for space in {s.space for s in firsts}
        }
        for shard in firsts:
            held = _held(spans[shard.space], shard)
            size = np_dtype(dtype).itemsize
            mask[_box(shard)] = held.reshape(-1, size).all(axis=1).reshape(shard.shape)
            values[_box(shard)] = _values(store, shard, held)
        return values, mask

    def shown(self, op: int) -> str | None:
        """The tensor that the memory pane shows for an op: what it writes, else what it reads."""
        touched = self._touched(op)
        if not touched and op >= 0:  # a tile in the array: what its composite makes
            whole = composite_of(self._trace, op)
            touched = [] if whole is None else self._touched(whole)
        for space, addr, _, _ in sorted(touched, key=lambda a: a[3] != "w"):
            alloc = self._alloc_at(space, addr, op)
            if alloc >= 0:
                return _key(self._trace.allocs[alloc])
        return None

    def _touched(self, op: int) -> list[tuple[str, int, int, str]]:
        """(space, addr, nbytes, mode) of what an op touches; a tile's are its composite's."""
        trace = self._trace
        if not 0 <= op < len(trace.ops):
            return []
        record = trace.ops[op]
        if record.op_name.startswith("TileToken/"):
            p = record.params
            mode = "w" if record.op_name.endswith("DMA_WRITE") else "r"
            if "addrs" not in p:
                return []
            places = zip(p["spaces"], p["addrs"], p["sizes"], strict=True)
            return [(space, addr, size, mode) for space, addr, size in places]
        return [(a.space, a.addr, a.nbytes, a.mode) for a in accesses(record)]


def _key(shard: Shard) -> str:
    return shard.tensor if shard.va else f"{shard.tensor}@{shard.owner}"


def _box(shard: Shard) -> tuple[slice, ...]:
    return tuple(slice(o, o + s) for o, s in zip(shard.origin, shard.shape, strict=True))


def _held(spans: list[tuple[int, int]], shard: Shard) -> npt.NDArray[np.bool_]:
    """Which bytes of a shard lie in one of the spans (sorted, disjoint)."""
    held = np.zeros(shard.nbytes, np.bool_)
    at = bisect_right(spans, shard.addr, key=lambda span: span[1])
    while at < len(spans) and spans[at][0] < shard.addr + shard.nbytes:
        low, high = max(spans[at][0] - shard.addr, 0), spans[at][1] - shard.addr
        held[low:high] = True
        at += 1
    return held


def _values(store: Any, shard: Shard, held: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    if held.all():
        values: npt.NDArray[Any] = store.view(shard.space, shard.addr, shard.shape, shard.dtype)
        return values
    raw = np.zeros(shard.nbytes, np.uint8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], held.view(np.int8), [0]))))
    for low, high in edges.reshape(-1, 2).tolist():
        try:
            raw[low:high] = store.view(shard.space, shard.addr + low, (high - low,), "u8")
        except MemoryStoreError:
            continue
    return raw.view(np_dtype(shard.dtype)).reshape(shard.shape)


def _view(
    op: int,
    name: str,
    shard: Shard,
    values: npt.NDArray[Any],
    mask: npt.NDArray[np.bool_],
    changed: npt.NDArray[np.bool_],
) -> TensorView:
    known = values[mask].astype(np.float64)
    finite = known[np.isfinite(known)]
    low, high, mean = (
        (float(finite.min()), float(finite.max()), float(finite.mean()))
        if finite.size
        else (float("nan"),) * 3
    )
    nans = int(np.isnan(known).sum())
    return TensorView(
        op, name, shard.space, shard.dtype, values, mask, changed, low, high, mean, nans
    )

"""Memory at an op as a user names it: tensors by name, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import np_dtype
from kernbench.errors import UsageError
from kernbench.replay.history import History, Ranges
from kernbench.replay.text import grid_text, number_text, table
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import Access, Ints, accesses
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.memory_store import Array
from kernbench.trace import Trace

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """``tensor`` is the name to ask by, ``writer`` the op that last wrote into it, or None."""

    tensor: str
    shard: Shard
    writer: int | None
    touched: bool  # by this op


@dataclass(frozen=True, slots=True)
class Memory:
    """Allocations that hold something at op ``op``: those it touches, then the youngest first."""

    op: int
    total: int
    entries: tuple[MemoryEntry, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if not self.entries:
            return ["nothing is written yet"]
        head = f"{self.total:,} allocations hold data at op {self.op:,}; it touches those marked *"
        marks = "".join("*" if entry.touched else " " for entry in self.entries)
        return [head, *table(self.entries, "space addr dtype shape writer index tensor", marks)]


@dataclass(frozen=True, slots=True, eq=False)
class TensorView:
    """A tensor at op ``op``, put together from the first copy of each shard.

    Statistics are over finite elements of ``written``; ``changed`` are those that op ``op`` wrote.
    """

    op: int
    name: str
    space: str
    dtype: str
    values: Array
    written: Mask
    changed: Mask
    minimum: float
    maximum: float
    mean: float
    nans: int

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        held, shape = int(self.written.sum()), list(self.values.shape)
        low, high, mean = map(number_text, (self.minimum, self.maximum, self.mean))
        lines = [
            f"{self.name}  {self.dtype}{shape} in {self.space} at op {self.op:,}: "
            f"{held:,} of {self.values.size:,} written",
            f"min {low}  max {high}  mean {mean}  NaN {self.nans}",
        ]
        return lines + grid_text(self.values, 12, width, self.written, self.changed)


class Memories:
    """Answers from a History and the allocations of a trace."""

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace, self._history = trace, history
        self._shards: dict[str, list[Shard]] = {}
        for shard in trace.allocs:
            self._shards.setdefault(_key(shard), []).append(shard)
        self.names = list(self._shards)  # a scratch handle is h0.3@sip0.cube0.pe0.pe_cpu
        self._near: dict[tuple[str, int], Ints] = {}
        self._last: tuple[str, int, Array, Mask] | None = None

    @cached_property
    def _allocs(self) -> Ranges:
        allocs = self._history.allocs
        return Ranges(allocs, allocs.row)

    def _alloc_at(self, space: str, addr: int, op: int) -> int:
        """The youngest, by op ``op``, of the allocations that hold an address; -1 if none."""
        if (rows := self._near.get((space, addr))) is None:
            rows = self._near[space, addr] = self._allocs.at(space, addr, 1)
        cmds = self._trace.alloc_columns.cmd[rows]
        known = cmds <= self._trace.op_columns.cmd[self._trace.order[op]]
        return int(rows[known][np.argmax(cmds[known])]) if known.any() else -1

    @cached_property
    def _written_allocs(self) -> tuple[Ints, Ints]:
        """(op, allocation) of every write, in canonical order."""
        ops, mode, space, addr, _, spaces = self._history.touched
        writes = np.flatnonzero(mode)
        places = zip(space[writes].tolist(), addr[writes].tolist(), ops[writes], strict=True)
        allocs = [self._alloc_at(spaces[s], a, op) for s, a, op in places]
        return ops[writes], np.array(allocs, np.int64)

    def at(self, op: int, limit: int = 200) -> Memory:
        """The allocations that hold something at op ``op``, at most ``limit`` of them."""
        ops, allocs = self._written_allocs
        upto = int(np.searchsorted(ops, op, side="right"))
        found, age = np.unique(allocs[:upto][::-1], return_index=True)
        latest = sorted(zip(age.tolist(), found.tolist(), strict=True))
        writers = {alloc: int(ops[upto - 1 - back]) for back, alloc in latest if alloc >= 0}
        near = (self._alloc_at(access.space, access.addr, op) for access in self._touched(op))
        touched = dict.fromkeys(alloc for alloc in near if alloc >= 0)
        shards = {alloc: self._trace.allocs[alloc] for alloc in [*touched | writers][:limit]}
        entries = tuple(
            MemoryEntry(_key(shard), shard, writers.get(alloc), alloc in touched)
            for alloc, shard in shards.items()
        )
        return Memory(op, len(touched | writers), entries)

    def tensor(self, op: int, name: str) -> TensorView:
        """The numbers of a tensor at op ``op``; UsageError lists the names."""
        if (shards := self._shards.get(name)) is None:
            near = ", ".join(self.names[:8]) or "none"
            raise UsageError(f"no tensor {name!r} in this trace; it has: {near}")
        firsts = list({s.origin: s for s in reversed(shards)}.values())
        values, mask = self._gather(op, name, firsts)
        changed = np.zeros(values.shape, np.bool_)
        written = [access for access in self._touched(op) if access.mode == "w"]
        for shard in firsts:
            flat = np.zeros(shard.nbytes, np.bool_)
            for _, space, addr, nbytes in written:
                if space == shard.space and addr + nbytes > shard.addr:
                    flat[max(addr - shard.addr, 0) : addr + nbytes - shard.addr] = True
            changed[_box(shard)] |= _elements(flat, shard).any(axis=-1)
        known, s = values[mask].astype(np.float64), shards[0]
        finite, nans = known[np.isfinite(known)], int(np.isnan(known).sum())
        low, high, mean = (
            float(f(finite)) if finite.size else np.nan for f in (np.min, np.max, np.mean)
        )
        return TensorView(op, name, s.space, s.dtype, values, mask, changed, low, high, mean, nans)

    def _gather(self, op: int, name: str, firsts: list[Shard]) -> tuple[Array, Mask]:
        """(values, which are written); reads shards written since the last question for them."""
        executed, stale = self._history.executed(op), np.ones(len(firsts), np.bool_)
        if self._last is not None and self._last[0] == name:
            _, before, values, mask = self._last
            values, mask = values.copy(), mask.copy()
            new = self._history.written(*sorted((before, executed)))
            low, size = np.array([(s.addr, s.nbytes) for s in firsts]).T
            inside = (new.addr[:, None] < low + size) & ((new.addr + new.nbytes)[:, None] > low)
            stale = inside.any(axis=0)
        else:
            ends = np.max([np.add(s.origin, s.shape) for s in firsts], axis=0)
            values = np.zeros(tuple(ends.astype(int)), np_dtype(firsts[0].dtype))
            mask = np.zeros(values.shape, np.bool_)
        for shard in compress(firsts, stale):
            flat, held = self._history.read(executed, shard.space, shard.addr, shard.nbytes)
            mask[_box(shard)] = _elements(held, shard).all(axis=-1)
            values[_box(shard)] = flat.view(values.dtype).reshape(shard.shape)
        self._last = name, executed, values, mask
        return values, mask

    def shown(self, op: int) -> str | None:
        """The tensor that the memory pane shows for an op: what it writes, else what it reads."""
        touched = self._touched(op)
        if not touched and op >= 0:  # a tile in the array: what its composite makes
            whole = composite_of(self._trace, op)
            touched = [] if whole is None else self._touched(whole)
        ordered = sorted(touched, key=lambda a: a.mode != "w")
        allocs = (self._alloc_at(access.space, access.addr, op) for access in ordered)
        return next((_key(self._trace.allocs[alloc]) for alloc in allocs if alloc >= 0), None)

    def _touched(self, op: int) -> list[Access]:
        """What an op touches; a tile's bytes are in its params."""
        if not 0 <= op < len(self._trace.ops):
            return []
        record = self._trace.ops[op]
        p, mode = record.params, "w" if record.op_name.endswith("DMA_WRITE") else "r"
        if record.op_name.startswith("TileToken/") and "addrs" in p:
            places = zip(p["spaces"], p["addrs"], p["sizes"], strict=True)
            return [Access(mode, *place) for place in places]
        return accesses(record)


def _key(shard: Shard) -> str:
    return shard.tensor if shard.va else f"{shard.tensor}@{shard.owner}"


def _box(shard: Shard) -> tuple[slice, ...]:
    return tuple(slice(o, o + s) for o, s in zip(shard.origin, shard.shape, strict=True))


def _elements(flat: Mask, shard: Shard) -> Mask:
    """A mask of a shard's bytes, an axis for the bytes of each element."""
    return flat.reshape(*shard.shape, np_dtype(shard.dtype).itemsize)

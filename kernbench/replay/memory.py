"""Memory at an op as a user names it: tensors by name, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import np_dtype
from kernbench.errors import UsageError
from kernbench.replay.history import History, Ranges
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import Access, Ints, accesses
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One allocation, and ``tensor``, the name to ask for it by; ``writer`` is the op that last
    wrote into it, or None; ``touched`` says that this op reads or writes it.
    """

    tensor: str
    shard: Shard
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
    written: Mask
    changed: Mask
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
        self._near: dict[tuple[str, int], Ints] = {}
        self._last: tuple[str, int, npt.NDArray[Any], Mask] | None = None

    @property
    def names(self) -> list[str]:
        """What ``tensor`` accepts: tensor names, scratch handles as
        ``h0.3@sip0.cube0.pe0.pe_cpu``.
        """
        return list(self._shards)

    @cached_property
    def _allocs(self) -> Ranges:
        allocs = self._history.allocs
        return Ranges(allocs, allocs.row)

    def _alloc_at(self, space: str, addr: int, op: int) -> int:
        """The youngest allocation, by op ``op``, that holds an address; -1 if none.

        Scratch is handed out anew by every kernel, so several may hold it.
        """
        rows = self._near.get((space, addr))
        if rows is None:
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
        youngest = np.argsort(age)
        latest = zip(found[youngest].tolist(), ops[upto - 1 - age[youngest]].tolist(), strict=True)
        writers = {alloc: writer for alloc, writer in latest if alloc >= 0}
        near = (self._alloc_at(access.space, access.addr, op) for access in self._touched(op))
        touched = dict.fromkeys(alloc for alloc in near if alloc >= 0)
        order = list(touched | writers)[:limit]
        shards = [self._trace.allocs[alloc] for alloc in order]
        entries = tuple(
            MemoryEntry(_key(shard), shard, writers.get(alloc), alloc in touched)
            for alloc, shard in zip(order, shards, strict=True)
        )
        return Memory(op, len(touched | writers), entries)

    def tensor(self, op: int, name: str) -> TensorView:
        """The numbers of a tensor at op ``op``; UsageError lists the names."""
        shards = self._shards.get(name)
        if shards is None:
            near = ", ".join(list(self._shards)[:8]) or "none"
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
        known = values[mask].astype(np.float64)
        finite = known[np.isfinite(known)]
        low, high, mean = (
            float(f(finite)) if finite.size else np.nan for f in (np.min, np.max, np.mean)
        )
        nans, s = int(np.isnan(known).sum()), shards[0]
        return TensorView(op, name, s.space, s.dtype, values, mask, changed, low, high, mean, nans)

    def _gather(self, op: int, name: str, firsts: list[Shard]) -> tuple[npt.NDArray[Any], Mask]:
        """(values, which are written) of a whole tensor from one copy of each of its shards.

        Only those that were written since the last question for this tensor are read again.
        """
        executed, stale = self._history.executed(op), np.ones(len(firsts), np.bool_)
        if self._last is not None and self._last[0] == name:
            _, before, values, mask = self._last
            values, mask = values.copy(), mask.copy()
            new = self._history.written(*sorted((before, executed)))
            low, size = np.array([(s.addr, s.nbytes) for s in firsts]).T
            inside = (new.addr[:, None] < low + size) & ((new.addr + new.nbytes)[:, None] > low)
            stale = inside.any(axis=0)
        else:
            ends = np.array([np.add(s.origin, s.shape) for s in firsts])
            values = np.zeros(tuple(ends.max(axis=0).astype(int)), np_dtype(firsts[0].dtype))
            mask = np.zeros(values.shape, np.bool_)
        store = self._history.at(op)
        for shard in compress(firsts, stale):
            flat, held = store.bytes_at(shard.space, shard.addr, shard.nbytes)
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
        for access in sorted(touched, key=lambda a: a.mode != "w"):
            alloc = self._alloc_at(access.space, access.addr, op)
            if alloc >= 0:
                return _key(self._trace.allocs[alloc])
        return None

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

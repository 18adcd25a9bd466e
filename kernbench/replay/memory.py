"""Memory at an op as a user names it: tensors by name, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import np_dtype
from kernbench.errors import MemoryStoreError, UsageError
from kernbench.replay.history import History, written
from kernbench.sim_engine.accesses import accesses
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One allocation: ``writer`` is the op that last wrote into it, or None; ``fill`` the part
    ever written.
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

    @property
    def names(self) -> list[str]:
        """What ``tensor`` accepts: tensor names, and scratch handles as
        ``h3@sip0.cube0.pe0.pe_cpu``.
        """
        return list(self._shards)

    def at(self, op: int, limit: int = 200) -> Memory:
        """The allocations that hold something at op ``op``."""
        self._history.at(op)
        touched = self._touched(op)
        entries = []
        for shard in self._trace.allocs:
            writer = self._history.writer(shard.space, shard.addr, shard.nbytes)
            mine = any(_inside(shard, t) for t in touched)
            if writer is not None or mine:
                entries.append(
                    MemoryEntry(
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
                        mine,
                    )
                )
        entries.sort(key=lambda e: (not e.touched, -(-1 if e.writer is None else e.writer)))
        return Memory(op, len(entries), tuple(entries[:limit]))

    def tensor(self, op: int, name: str) -> TensorView:
        """The numbers of a tensor at op ``op``; UsageError lists the names."""
        shards = self._shards.get(name)
        if shards is None:
            near = ", ".join(list(self._shards)[:8]) or "none"
            raise UsageError(f"no tensor {name!r} in this trace; it has: {near}")
        store = self._history.at(op)
        changed_ranges = [a for a in self._touched(op) if a[3] == "w"]
        extents = np.max(
            [[o + s for o, s in zip(x.origin, x.shape, strict=True)] for x in shards], 0
        )
        shape = tuple(int(extent) for extent in np.atleast_1d(extents)) if shards[0].shape else ()
        values = np.zeros(shape, np_dtype(shards[0].dtype))
        mask, changed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        for shard in {s.origin: s for s in reversed(shards)}.values():
            box = tuple(slice(o, o + s) for o, s in zip(shard.origin, shard.shape, strict=True))
            held = written(store, shard.space, shard.addr, shard.nbytes)
            mask[box] = _by_element(held, shard)
            values[box] = _values(store, shard, held)
            wrote = np.zeros(shard.nbytes, np.bool_)
            for space, addr, nbytes, _ in changed_ranges:
                low, high = max(addr, shard.addr), min(addr + nbytes, shard.addr + shard.nbytes)
                if space == shard.space and low < high:
                    wrote[low - shard.addr : high - shard.addr] = True
            changed[box] = _by_element(wrote, shard)
        return _view(op, name, shards[0], values, mask, changed)

    def shown(self, op: int) -> str | None:
        """The tensor that the memory pane shows for an op: what it writes, else what it reads."""
        touched = sorted(self._touched(op), key=lambda a: a[3] != "w")
        for access in touched:
            for shard in self._trace.allocs:
                if _inside(shard, access):
                    return _key(shard)
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


def _inside(shard: Shard, access: tuple[str, int, int, str]) -> bool:
    space, addr, nbytes, _ = access
    return space == shard.space and addr < shard.addr + shard.nbytes and shard.addr < addr + nbytes


def _by_element(by_byte: npt.NDArray[np.bool_], shard: Shard) -> npt.NDArray[np.bool_]:
    size = np_dtype(shard.dtype).itemsize
    mask: npt.NDArray[np.bool_] = by_byte.reshape(-1, size).all(axis=1).reshape(shard.shape)
    return mask


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

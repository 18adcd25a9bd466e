"""Memory at an op as a user names it: tensors by name, with their numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.dtypes import itemsize, np_dtype
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import UsageError
from kernbench.replay.data.history import History, Ranges
from kernbench.replay.expr import Mask
from kernbench.replay.text import grid_text, number_text, table
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import Access, accesses
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace
from kernbench.trace.groups import Groups


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """``tensor`` is the name to ask by, ``writer`` the op that last wrote into it, or None."""

    tensor: str
    shard: Shard
    writer: int | None
    touched: bool  # by this op


@dataclass(frozen=True, slots=True)
class Memory:
    """Allocations that hold something at op ``op``: those it touches, then the youngest first.

    ``spaces`` are (space, allocations, bytes) of all ``total``, ``entries`` some of them.
    """

    op: int
    total: int
    entries: tuple[MemoryEntry, ...]
    spaces: tuple[tuple[str, int, int], ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if not self.entries:
            return ["nothing is written yet"]
        head = f"{self.total:,} allocations hold data at op {self.op:,}; it touches those marked *"
        marks = "".join("*" if entry.touched else " " for entry in self.entries)
        held = ", ".join(
            f"{n:,} in {space} ({size:,} B)" for space, n, size in self.spaces
        )
        rows = table(self.entries, "space addr dtype shape writer index tensor", marks)
        return [head, held, *rows]


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


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes that a user has named; ``index`` are first and end on each axis of ``tensor``.

    ``ranges`` are contiguous (space, addr, nbytes), at most 4,096 of them.
    """

    text: str
    tensor: str
    dtype: str
    index: tuple[tuple[int, int], ...]
    ranges: tuple[tuple[str, int, int], ...]


class _Last(NamedTuple):
    """A tensor after ``at`` executed ops, and ``_sums`` of each shard."""

    at: int
    view: TensorView
    sums: Array


_KEPT = 4  # tensors, at an op
_MOST_RANGES, _BLOCK, _SMALL, _COPIED, _SUMS = 4096, 4096, 1 << 20, 1 << 22, 1 << 14
_NAMED = re.compile(r"([^\[\]]+?)\s*(?:\[([^\[\]]*)\])?")
_BYTES = re.compile(r"(\w+)\s+(0x[0-9a-f]+|\d+)(?::(\d+))?", re.ASCII | re.I)


class MemoryIndex:
    """Answers from a History and the allocations of a trace."""

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace, self._history = trace, history
        self._holders = cache(self._ever_held)
        self._told: dict[int, Shard] = {}
        self._views: list[_Last] = []  # the last few, of a tensor those far apart
        self._sums: dict[
            tuple[object, ...], tuple[float, ...]
        ] = {}  # by place and version
        self._firsts = lru_cache(_KEPT)(self._first_copies)

    @cached_property
    def _keys(self) -> tuple[dict[str, int], Groups]:
        """Names, numbered as they were made, and the rows of each."""
        log, strings = self._trace.alloc_columns, self._trace.strings
        whose = np.where(log.va > 0, 0, log.owner.astype(np.int64) + 1)
        keys = log.tensor.astype(np.int64) << 32 | whose
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        turn, made = np.argsort(np.argsort(first))[which.reshape(-1)], np.sort(first)
        pairs = zip(log.tensor[made].tolist(), whose[made].tolist(), strict=True)
        names = (strings[t] + (f"@{strings[o - 1]}" if o else "") for t, o in pairs)
        return {name: i for i, name in enumerate(names)}, Groups(turn)

    @cached_property
    def names(self) -> list[str]:
        """What can be asked for; a scratch handle is h0.3@sip0.cube0.pe0.pe_cpu."""
        return list(self._keys[0])

    def _shards(self, rows: Sequence[int]) -> list[Shard]:
        """Rows of ``trace.allocs``; axes that were not kept are folded into the last that was."""
        new = [row for row in rows if row not in self._told]
        for n, s in zip(new, self._trace.shards(new) if new else (), strict=True):
            more = s.nbytes // max(prod(s.shape) * itemsize(s.dtype), 1)
            origin, shape = (
                (*x[:2], *(i * more for i in x[2:])) for x in (s.origin, s.shape)
            )
            self._told[n] = replace(s, origin=origin, shape=shape)
        return [self._told[row] for row in rows]

    def _first_copies(self, name: str) -> list[Shard]:
        """The first copy of every shard of ``name``, or with @NODE of one owner's; UsageError."""
        numbers, rows = self._keys
        wanted, _, owner = name.partition("@")
        if (n := numbers.get(name, numbers.get(wanted))) is not None:
            shards = self._shards(rows.of(n).tolist())
            if mine := [s for s in shards if name in numbers or s.owner == owner]:
                return list({s.origin: s for s in reversed(mine)}.values())[::-1]
        alike = [x for x in numbers if ("@" in x) == ("@" in name)] or self.names
        near = sorted(get_close_matches(name, alike[:1000], 8, 0.0))
        raise UsageError(
            f"no tensor {name!r} in this trace; it has: {', '.join(near) or 'none'}"
        )

    def place(self, text: str) -> Place:
        """``c``, ``c[3,17]``, ``c[0:2, :]`` (first copies), ``a@NODE[0]``, ``hbm 0x4000:64``.

        UsageError for what is not there.
        """
        spaces = self._history.allocs.spaces
        if (match := _BYTES.fullmatch(text.strip())) is not None:
            space, nbytes = match[1], int(match[3] or 1)
            addr = int(match[2], 16 if match[2][:2].lower() == "0x" else 10)
            if space not in spaces or not 0 < nbytes <= 1 << 40 or addr >= 1 << 60:
                known = ", ".join(spaces) or "none"
                raise UsageError(
                    f"{text!r}: give SPACE ADDR:BYTES; this trace's spaces: {known}"
                )
            return Place(text, "", "u8", ((0, nbytes),), ((space, addr, nbytes),))
        if (match := _NAMED.fullmatch(text.strip())) is None:
            raise UsageError(
                f"{text!r} is no place; give c, c[3,17], c[0:2, :] or hbm 0x4000:64"
            )
        shards = self._firsts(match[1])
        starts = np.array([s.origin for s in shards])
        ends = starts + np.array([s.shape for s in shards])
        index = _index(text, match[2], ends.max(axis=0).tolist())
        low, high = np.array(index, np.int64).reshape(-1, 2).T
        near = np.flatnonzero(((starts < high) & (low < ends)).all(axis=1)).tolist()
        ranges = [r for i in near for r in _ranges(shards[i], index)]
        if not 0 < len(ranges) <= _MOST_RANGES:
            raise UsageError(
                f"{text} lies in {len(ranges):,} pieces; ask for a part of it"
            )
        return Place(text, match[1], shards[0].dtype, index, tuple(ranges))

    def named(self, space: str, bytes_at: Ints, op: int) -> str:
        """Bytes at these addresses as a user names them: c[3, 0:128], or hbm 0x40:8."""
        low, high = int(bytes_at[0]), int(bytes_at[-1]) + 1
        if (s := self._holder(space, low, op)) is None:
            return f"{space} {low:#x}:{high - low}"
        held = bytes_at[: np.searchsorted(bytes_at, s.addr + s.nbytes)]
        axes = np.unravel_index((held - s.addr) // itemsize(s.dtype), s.shape or (1,))
        ends = [
            (int(x.min()) + o, int(x.max()) + o)
            for x, o in zip(axes, s.origin, strict=False)
        ]
        return f"{_key(s)}[{', '.join(f'{a}:{b + 1}' if b > a else f'{a}' for a, b in ends)}]"

    def dtype_of(self, place: Place, op: int) -> str:
        """What its bytes are by its tensor, or the allocation that they are whole elements of."""
        (space, addr, nbytes), *_ = place.ranges
        if place.tensor or (s := self._holder(space, addr, op)) is None:
            return place.dtype
        whole = not ((addr - s.addr) % itemsize(s.dtype) or nbytes % itemsize(s.dtype))
        return s.dtype if whole and addr + nbytes <= s.addr + s.nbytes else place.dtype

    def _holder(self, space: str, addr: int, op: int) -> Shard | None:
        """The allocation that holds an address."""
        row = int(self._alloc_at(space, addr, op))
        return self._shards([row])[0] if row >= 0 else None

    @cached_property
    def _allocs(self) -> Ranges:
        return Ranges(self._history.allocs)

    def _ever_held(self, space: str, addr: int) -> tuple[Ints, Ints]:
        """(cmd, allocation) of those that ever held an address, by cmd; -1 first, for none yet."""
        rows, log = self._allocs.at(space, addr, 1), self._trace.alloc_columns
        rows = rows[np.argsort(log.cmd[rows], kind="stable")]
        return np.append(-1, log.cmd[rows].astype(np.int64)), np.append(-1, rows)

    def _alloc_at(self, space: str, addr: int, op: Any) -> Ints:
        """The youngest, by an op or each of several, of the allocations that hold an address."""
        cmds, rows = self._holders(space, addr)
        now = self._trace.op_columns.cmd[self._trace.order[op]]
        return np.asarray(rows[np.searchsorted(cmds, now, side="right") - 1])

    @cached_property
    def _written_allocs(self) -> tuple[Ints, Ints, Ints, Groups]:
        """(op, allocation, number of the next into the same) of all writes; these by allocation."""
        writes = self._history.touched.take(np.flatnonzero(self._history.touched.mode))
        allocs, following = np.full(
            (2, len(writes.row)), len(writes.row), writes.row.dtype
        )
        order = np.lexsort((writes.addr, writes.space))
        cuts = (
            np.flatnonzero(np.diff(writes.space[order]) | np.diff(writes.addr[order]))
            + 1
        )
        for part in np.split(order, cuts) if len(order) else ():
            space, addr = (
                writes.spaces[writes.space[part[0]]],
                int(writes.addr[part[0]]),
            )
            allocs[part] = self._alloc_at(space, addr, writes.row[part])
        mine = Groups(allocs)
        same = np.flatnonzero(np.diff(allocs[mine.order]) == 0)
        following[mine.order[same]] = mine.order[same + 1]
        following[allocs < 0] = -1
        return writes.row, allocs, following, mine

    @cached_property
    def _latest(self) -> Ints:
        """The highest "next into the same" of each block of writes."""
        following = self._written_allocs[2]
        starts = np.arange(0, len(following), _BLOCK)
        return np.maximum.reduceat(following, starts) if len(starts) else starts

    @cached_property
    def _held(self) -> list[tuple[str, Ints, Ints]]:
        """Of each space the ops that first wrote an allocation, and the bytes held from then on."""
        (ops, allocs, *_), log = self._written_allocs, self._trace.alloc_columns
        mine, first = np.unique(allocs, return_index=True)
        first = np.sort(first[mine >= 0])
        mine, found = allocs[first], []
        for i, space in enumerate(log.spaces):
            here = log.space[mine] == i
            found.append((space, ops[first[here]], np.cumsum(log.nbytes[mine[here]])))
        return found

    def index(self, progress: Progress = no_progress) -> bool:
        """Make what the answers need: then those that execute nothing take some ms at most."""
        history = self._history
        makers: tuple[Callable[[], object], ...] = (
            lambda: history.touched,
            lambda: history.accesses,
            lambda: (self._latest, self._held),
            lambda: self._keys,
        )
        for i, make in enumerate(makers):
            progress(i / len(makers))
            make()
        return True

    def at(self, op: int, limit: int = 200) -> Memory:
        """The allocations that hold something at op ``op``, at most ``limit`` of them."""
        ops, allocs, following, _ = self._written_allocs
        upto = bisect_right(ops, op)
        near = (int(self._alloc_at(a.space, a.addr, op)) for a in self._touched(op))
        touched = dict.fromkeys(alloc for alloc in near if alloc >= 0)
        last = {alloc: self._writer(alloc, upto) for alloc in touched}
        unwritten = sum(writer is None for writer in last.values())
        blocks = self._latest[: -(-upto // _BLOCK)] >= upto
        for low in np.flatnonzero(blocks)[::-1] * _BLOCK:
            young = (
                low
                + np.flatnonzero(following[low : min(low + _BLOCK, upto)] >= upto)[::-1]
            )
            last |= dict(zip(allocs[young].tolist(), ops[young].tolist(), strict=True))
            if len(last) >= limit:
                break
        shown = [*last][:limit]
        entries = tuple(
            MemoryEntry(_key(shard), shard, last[alloc], alloc in touched)
            for alloc, shard in zip(shown, self._shards(shown), strict=True)
        )
        held = [(space, bisect_right(at, op), n) for space, at, n in self._held]
        spaces = tuple((space, i, int(n[i - 1])) for space, i, n in held if i)
        return Memory(op, sum(i for _, i, _ in spaces) + unwritten, entries, spaces)

    def _writer(self, alloc: int, upto: int) -> int | None:
        """The op of the last of the first ``upto`` writes into an allocation."""
        ops, _, _, writes = self._written_allocs
        mine = writes.of(alloc)
        at = int(np.searchsorted(mine, mine.dtype.type(upto)))
        return int(ops[mine[at - 1]]) if at else None

    def quick(self, op: int, name: str) -> bool:
        """Whether ``tensor`` takes some ms only."""
        firsts = self._firsts(name)
        sizes = np.array([prod(shard.shape) for shard in firsts])
        _, stale = self._closest(self._history.executed(op), name, firsts)
        few = sizes[stale].sum() <= _SMALL and sizes.sum() <= _COPIED
        return self._history.quick(op) and bool(few)

    def tensor(
        self, op: int, name: str, progress: Progress = no_progress
    ) -> TensorView:
        """The numbers of a tensor at op ``op``; UsageError lists the names."""
        firsts, executed = self._firsts(name), self._history.executed(op)
        self._history.reach(executed, progress)
        near, stale = self._closest(executed, name, firsts)
        last = near
        if last is None or stale.any():
            last = self._gather(op, name, firsts, stale, last, progress)
        view, changed = last.view, np.zeros(last.view.values.shape, np.bool_)
        moved = near if 2 * np.count_nonzero(stale) <= len(stale) else None
        others = [
            x for x in self._views if x is not moved and x.view.values.size <= _COPIED
        ]
        self._views = [*others[1 - _KEPT :], last._replace(at=executed)]
        written = [access for access in self._touched(op) if access.mode == "w"]
        for shard in firsts if written else ():
            for _, space, addr, nbytes in written:
                low, high = (
                    max(addr, shard.addr),
                    min(addr + nbytes, shard.addr + shard.nbytes),
                )
                if space == shard.space and low < high:
                    flat = np.zeros(shard.nbytes, np.bool_)
                    flat[low - shard.addr : high - shard.addr] = True
                    changed[_box(shard)] |= ~_whole(~flat, shard)
        return replace(view, op=op, changed=changed)

    def _closest(
        self, executed: int, name: str, firsts: list[Shard]
    ) -> tuple[_Last | None, Mask]:
        """The answer from before that knows most of the shards, and those that it does not."""
        best: tuple[_Last | None, Mask] = None, np.ones(len(firsts), np.bool_)
        places = [(s.addr, s.nbytes) for s in firsts]
        for last in self._views:
            if last.view.name == name:
                stale = self._history.changed(last.at, executed, places)
                if best[0] is None or np.count_nonzero(stale) <= np.count_nonzero(
                    best[1]
                ):
                    best = last, stale
        return best

    def _gather(
        self,
        op: int,
        name: str,
        firsts: list[Shard],
        stale: Mask,
        last: _Last | None,
        progress: Progress,
    ) -> _Last:
        """``tensor``; reads the stale shards, and takes the others from the last answer."""
        executed, s = self._history.executed(op), firsts[0]
        if last is not None:
            values, mask = last.view.values.copy(), last.view.written.copy()
            sums = last.sums.copy()
        else:
            ends = np.max([np.add(s.origin, s.shape) for s in firsts], axis=0)
            values = np.zeros(tuple(ends.astype(int)), np_dtype(s.dtype))
            mask, sums = np.zeros(values.shape, np.bool_), np.zeros((len(firsts), 5))
        for i in np.flatnonzero(stale).tolist():
            progress(i / len(firsts))
            shard, box = firsts[i], _box(firsts[i])
            place = shard.space, shard.addr, shard.nbytes
            flat, held = self._history.read(executed, *place)
            mask[box] = known = _whole(held, shard)
            values[box] = part = flat.view(values.dtype).reshape(shard.shape)
            key = s.dtype, *place, self._history.version(executed, *place)
            if key not in self._sums:
                self._sums = {} if len(self._sums) > _SUMS else self._sums
                self._sums[key] = _sums(part[known].astype(np.float64))
            sums[i] = self._sums[key]
        total, count, nans = sums[:, 2:].sum(axis=0)
        stats = sums[:, 0].min(), sums[:, 1].max(), total / max(count, 1)
        low, high, mean = (float(x) if count else np.nan for x in stats)
        what = (
            op,
            name,
            s.space,
            s.dtype,
            values,
            mask,
            mask,
            low,
            high,
            mean,
            int(nans),
        )
        return _Last(executed, TensorView(*what), sums)

    def shown(self, op: int) -> str | None:
        """The tensor that the memory pane shows for an op: what it writes, else what it reads."""
        touched = self._touched(op)
        if not touched and op >= 0:  # a tile in the array: what its composite makes
            whole = composite_of(self._trace, op)
            touched = [] if whole is None else self._touched(whole)
        ordered = sorted(touched, key=lambda a: a.mode != "w")
        holders = (self._holder(access.space, access.addr, op) for access in ordered)
        return next((_key(shard) for shard in holders if shard is not None), None)

    def touches(self, op: int) -> str | None:
        """The bytes that an op writes, else reads, as ``place`` takes them; None for none."""
        for _, space, addr, nbytes in sorted(
            self._touched(op), key=lambda a: a.mode != "w"
        ):
            return f"{space} {addr:#x}:{nbytes}"
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
    return tuple(
        slice(o, o + s) for o, s in zip(shard.origin, shard.shape, strict=True)
    )


def _sums(known: Array) -> tuple[float, ...]:
    """Least, largest, sum and number of the finite values, number of NaNs."""
    finite = known[np.isfinite(known)]
    ends = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    return *ends, finite.sum(), finite.size, np.isnan(known).sum()


def _whole(flat: Mask, shard: Shard) -> Mask:
    """Which elements of a shard have all of their bytes in a mask of its bytes."""
    size = np_dtype(shard.dtype).itemsize
    whole = flat.view(f"u{size}") == int.from_bytes(b"\1" * size)
    return np.asarray(whole.reshape(shard.shape))


def _index(
    text: str, cells: str | None, shape: list[int]
) -> tuple[tuple[int, int], ...]:
    """First and end on each axis of ``shape``; UsageError for what is no index of it."""
    words = [word.strip() for word in cells.split(",")] if cells is not None else []
    found: list[tuple[int, int]] = []
    if len(words) <= len(shape):
        for word, extent in zip([*words, *":" * len(shape)], shape, strict=False):
            match = re.fullmatch(r"(-?\d+)?(:)?(-?\d+)?", word, re.ASCII)
            if match is None or not word or (match[3] and not match[2]):
                break
            low, high = int(match[1] or 0), int(match[3] or extent)
            low += extent * (low < 0)
            high = (high + extent * (high < 0)) if match[2] else low + 1
            if not 0 <= low < high <= extent:
                break
            found.append((low, high))
    if len(found) < len(shape):
        raise UsageError(
            f"{text}: no index of shape {shape}; give one number or A:B for each axis"
        )
    return tuple(found)


def _ranges(
    shard: Shard, index: tuple[tuple[int, int], ...]
) -> list[tuple[str, int, int]]:
    """The contiguous bytes of ``index`` in one shard, by address."""
    size, boxes = (
        itemsize(shard.dtype),
        zip(index, shard.origin, shard.shape, strict=True),
    )
    box = tuple(
        slice(max(low - o, 0), max(min(high - o, n), 0)) for (low, high), o, n in boxes
    )
    if any(part.start >= part.stop for part in box):
        return []
    flat = np.arange(shard.nbytes // size).reshape(shard.shape)[box].ravel()
    cuts = np.append(np.flatnonzero(np.diff(flat, prepend=-2) != 1), len(flat))
    starts, counts = (
        flat[cuts[:-1]][: _MOST_RANGES + 1].tolist(),
        np.diff(cuts).tolist(),
    )
    return [
        (shard.space, shard.addr + start * size, count * size)
        for start, count in zip(starts, counts, strict=False)
    ]

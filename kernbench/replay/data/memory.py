"""What memory holds at an op: which allocations, and the numbers of a tensor.

Owns the table of all writes by allocation, and the last few tensors that were put
together. Where bytes lie is known to ``places``, what they hold to ``history``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints, as_f64
from kernbench.common.dtypes import itemsize, np_dtype
from kernbench.common.paged import paged
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    no_progress,
)
from kernbench.common.resumable import Resumable, Steps, beside, within
from kernbench.common.room import make_room
from kernbench.common.rows import Rows
from kernbench.replay.data.arrays import read_only
from kernbench.replay.data.history import History, bytes_within
from kernbench.replay.data.places import MOST_ADDRESSES, PlaceIndex
from kernbench.replay.data.write_counts import WriteCounts
from kernbench.replay.text import grid_text, number_text, table, wrapped
from kernbench.replay.time.op_index import OpIndex
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.sim_engine.accesses import blocks_of, regions
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

ENTRIES = 200
"""Allocations that ``MemoryIndex.at`` lists unless it is asked for another number."""

_BLOCK = 4096
"""Writes whose youngest successor is known without looking at each of them."""

_EVERY = 8
"""Short turns of a loop between two calls of progress."""

_TENSORS_KEPT = 4
_FIGURES_KEPT = 1 << 14

_COPIED_ELEMENTS = 1 << 22
"""Elements of a tensor that are copied within some ms, and of one that is kept."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One allocation: ``tensor`` is the name to ask for it by.

    ``writer`` is the op that last wrote into it, None if nobody has; ``touched`` says
    whether the op that was asked about reads or writes it.
    """

    tensor: str
    shard: Shard
    writer: int | None
    touched: bool


class SpaceTotal(NamedTuple):
    """How many allocations of a space hold data, and their bytes together."""

    space: str
    allocations: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The allocations that hold something at op ``op``.

    ``entries`` are as many as were asked for: those that the op touches, then those
    written last. ``total`` and ``spaces`` count all of them.
    """

    op: int
    total: int
    entries: tuple[MemoryEntry, ...]
    spaces: tuple[SpaceTotal, ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: a head, the spaces, a line an allocation."""
        if not self.entries:
            return ["nothing is written yet"]
        head = (
            f"{self.total:,} allocations hold data at op {self.op:,}; "
            "it touches those marked *"
        )
        held = ", ".join(
            f"{count:,} in {space} ({nbytes:,} B)"
            for space, count, nbytes in self.spaces
        )
        marks = "".join("*" if entry.touched else " " for entry in self.entries)
        rows = table(self.entries, "space addr dtype shape writer index tensor", marks)
        return [head, held, *rows]


@dataclass(frozen=True, slots=True, eq=False)
class TensorView:
    """A tensor at op ``op``, put together from the first copy of each shard.

    ``note`` is what is to be said of its other copies, if that was asked for. The
    three arrays have the tensor's shape and are read-only: ``values`` in its dtype,
    ``written`` where any op has written them, ``changed`` where op ``op`` has. The
    statistics are over finite ``written`` elements, ``nans`` counts the NaNs of them.
    """

    op: int
    name: str
    space: str
    dtype: str
    values: Array
    written: Bools
    changed: Bools
    minimum: float
    maximum: float
    mean: float
    nans: int
    note: str = ""

    def __post_init__(self) -> None:
        """Freeze the arrays, too."""
        read_only(self.values, self.written, self.changed)

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: what it is, statistics, the first 12 rows."""
        held = int(self.written.sum())
        shape = list(self.values.shape)
        low = number_text(self.minimum)
        high = number_text(self.maximum)
        mean = number_text(self.mean)
        lines = [
            f"{self.name}  {self.dtype}{shape} in {self.space} at op {self.op:,}: "
            f"{held:,} of {self.values.size:,} written",
            f"min {low}  max {high}  mean {mean}  NaN {self.nans}",
        ]
        lines += wrapped(self.note, width, 2) if self.note else []
        return lines + grid_text(self.values, 12, width, self.written, self.changed)


class _Figures(NamedTuple):
    """What the statistics of a shard's known elements are added up from.

    Least, largest, sum and number of the finite values, and the number of NaNs;
    infinite elements are in none of them.
    """

    least: float
    largest: float
    total: float
    finite: int
    nans: int


_NO_FIGURES = len(_Figures._fields)
_FigureKey: TypeAlias = tuple[str, str, int, int, int]
"""dtype, space, address, bytes, and how many writes into them had been made."""


class _Counted(NamedTuple):
    """The shards of a tensor, and how often each was written."""

    firsts: Sequence[Shard]
    counts: WriteCounts


class _KeptTensor(NamedTuple):
    """A tensor from which the next is made.

    ``figures`` has a row of ``_Figures`` a shard, so that only those of shards which
    have changed since are computed again. ``firsts`` are the shards: a scratch handle
    has others than the next one of its name. ``writes`` into each had been made.
    """

    view: TensorView
    figures: Floats
    firsts: Sequence[Shard]
    writes: Ints


class _Nearest(NamedTuple):
    """The kept tensor that is most like the wanted one, which shards it has not, and
    how many writes into each had been made in the wanted one.
    """

    tensor: _KeptTensor | None
    stale: Bools
    writes: Ints


class _Filling(NamedTuple):
    """Ops, ascending, at which allocations came to hold data, or lost their bytes.

    ``nbytes`` are the bytes of all allocations up to each of them.
    """

    ops: Ints
    nbytes: Ints

    def by(self, op: int) -> tuple[int, int]:
        """How many allocations it were by an op, and their bytes."""
        count = bisect_right(self.ops, op)
        return count, int(self.nbytes[count - 1]) if count else 0


class _SpaceHeld(NamedTuple):
    """How full one space is, at any op: what was first written, less what was lost."""

    space: str
    written: _Filling
    lost: _Filling

    def at(self, op: int) -> SpaceTotal:
        """What the space holds at an op."""
        written, nbytes = self.written.by(op)
        lost, lost_bytes = self.lost.by(op)
        return SpaceTotal(self.space, written - lost, nbytes - lost_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class _AllocWrites:
    """All writes of a trace in the order of their ops, each with its allocation.

    ``allocs`` are rows of ``trace.allocs`` (-1: none holds what is written), and
    ``following`` the number of the next write into the same allocation, or of the first
    after its bytes were lost (see ``losses``); beyond all of them if there is neither,
    -1 where there is no allocation. ``latest`` is the highest
    ``following`` of each block of ``_BLOCK`` writes, ``by_alloc`` the writes of each
    allocation, ``losses`` the op at which each allocation lost its bytes to another.
    The allocations that hold something after the first n writes, the one written last
    first, are those of the writes before n whose ``following`` is n or more; ``latest``
    says which blocks have any.
    """

    ops: Ints
    allocs: Ints
    following: Ints
    latest: Ints
    by_alloc: Groups
    losses: Ints
    held: tuple[_SpaceHeld, ...]

    def last_into(self, alloc: int, upto: int) -> int | None:
        """The op of the last write into an allocation among the first ``upto``.

        None if nobody had written into it by then.
        """
        mine = self.by_alloc.of(alloc)
        count = int(np.searchsorted(mine, mine.dtype.type(upto)))
        return int(self.ops[mine[count - 1]]) if count else None

    def youngest(self, op: int, limit: int) -> dict[int, int]:
        """The allocations written last by op ``op``, each with the op that wrote it.

        At most ``limit`` of those that have their bytes then; only blocks that hold one
        of them are looked at.
        """
        found: dict[int, int] = {}
        upto = bisect_right(self.ops, op)
        blocks = self.latest[: -(-upto // _BLOCK)] >= upto
        for block in np.flatnonzero(blocks)[::-1].tolist():
            low = block * _BLOCK
            # the last write into its allocation so far: the next one comes later
            is_last = self.following[low : min(low + _BLOCK, upto)] >= upto
            rows = low + np.flatnonzero(is_last)[::-1]
            # bytes may be lost at an op that writes nothing: no write tells of that
            rows = rows[self.losses[self.allocs[rows]] > op][: limit - len(found)]
            allocs = self.allocs[rows].tolist()
            found.update(zip(allocs, self.ops[rows].tolist(), strict=True))
            if len(found) >= limit:
                break
        return found


_ROWS_LOOKED_UP = 1 << 10
"""Rows of an access at most whose allocations are marked."""


class _Touched(NamedTuple):
    """Rows of a memory that an op reads ("r") or writes ("w")."""

    mode: str
    space: str
    rows: Rows


class _ByAddress(NamedTuple):
    """All writes of a trace: ``order`` has their numbers in the order of addresses.

    Those that begin at one address are ``order[starts[i] : starts[i + 1]]``.
    """

    writes: AccessColumns
    order: Ints
    starts: list[int]


class MemoryIndex:
    """Answers what memory holds, from a History and the allocations of a trace.

    ``index`` makes what these answers look up. Of what the screen asks at once, on its
    own thread, ``touches`` and ``shown`` need what ``index`` has made of places, and
    ``at`` the table of writes that it has made; those are assigned once whole.
    ``tensor`` reads memory, which may execute ops: its caches belong to the thread of
    lane "memory".
    """

    def __init__(
        self, trace: Trace, ops: OpIndex, history: History, places: PlaceIndex
    ) -> None:
        self._trace = trace
        self._ops = ops
        self._history = history
        self._places = places
        self._alloc_writes = Resumable(lambda: _alloc_writes(trace, history, places))
        self._tensors: tuple[_KeptTensor, ...] = ()
        self._counted: tuple[_Counted, ...] = ()
        self._figures: dict[_FigureKey, _Figures] = {}

    def index(self, progress: Progress = no_progress) -> bool:
        """Make what the answers look up; those that execute nothing take ms then.

        Takes some 2 s for a million ops, also if it is cancelled again and again: it
        goes on where it was. True, as a job has to have an answer.
        """
        self._places.prepare(progress)
        self._writes(progress)
        return True

    def _writes(self, progress: Progress = no_progress) -> _AllocWrites:
        """The table of all writes, made by whoever asks first."""
        self._history.prepare(progress)
        return self._alloc_writes.result(progress)

    # -- which allocations hold something --

    def at(self, op: int, limit: int = ENTRIES) -> Memory:
        """The allocations that hold something at op ``op``, at most ``limit`` of them.

        What it costs goes with ``limit``, not with how many there are.
        """
        writes = self._writes()
        upto = bisect_right(writes.ops, op)
        writers: dict[int, int | None] = {}
        unwritten = 0
        for alloc in self._touched_allocs(op):
            if writes.losses[alloc] > op:
                writers[alloc] = writes.last_into(alloc, upto)
                unwritten += writers[alloc] is None
        touched = len(writers)
        for alloc, writer in writes.youngest(op, limit).items():
            writers.setdefault(alloc, writer)
        allocs = list(writers)[:limit]
        entries = list[MemoryEntry]()
        for i, shard in enumerate(self._places.shards(allocs)):
            last = writers[allocs[i]]
            name = self._places.name_of(allocs[i])
            entries.append(MemoryEntry(name, shard, last, i < touched))
        spaces = [held.at(op) for held in writes.held]
        spaces = [space for space in spaces if space.allocations]
        total = unwritten + sum(space.allocations for space in spaces)
        return Memory(op, total, tuple(entries), tuple(spaces))

    def _touched_allocs(self, op: int) -> list[int]:
        """The allocations that an op touches, each once."""
        found: dict[int, None] = {}
        for _, space, rows in self._touched(op):
            starts = rows.starts()[:_ROWS_LOOKED_UP]
            for alloc in self._places.allocs_of(space, starts, op).tolist():
                if alloc >= 0:
                    found[alloc] = None
        return list(found)

    # -- the numbers of a tensor --

    def tensor(
        self, op: int, name: str, progress: Progress = no_progress
    ) -> TensorView:
        """The numbers of a tensor at op ``op``; UsageError lists the names.

        Executes the ops that lead there. Of a tensor that was asked for lately only the
        shards are read that have been written since.
        """
        self._places.prepare(progress)
        firsts = self._places.first_copies(name, op, progress)
        steps = self._history.executed(op)
        self._history.reach(steps, progress)
        writes = self._write_counts(firsts, progress).after(steps)
        near = self._nearest(name, firsts, writes)
        kept = near.tensor
        if kept is None or near.stale.any():
            kept = self._gathered(op, name, firsts, near, progress)
        self._keep(kept, near)
        changed = self._written_by(op, firsts, kept.view.values.shape, progress)
        return replace(kept.view, op=op, changed=changed)

    def _keep(self, tensor: _KeptTensor, near: _Nearest) -> None:
        """Keep a tensor, instead of that which it was made of if most is still as was.

        So those at both ends of a long jump are kept. Of large ones the last alone is.
        """
        stale = np.count_nonzero(near.stale)
        mostly_as_was = 2 * stale <= len(near.stale)
        replaced = near.tensor if mostly_as_was else None
        others = [
            other
            for other in self._tensors
            if other is not replaced and other.view.values.size <= _COPIED_ELEMENTS
        ]
        self._tensors = (*others[1 - _TENSORS_KEPT :], tensor)

    def _write_counts(self, firsts: Sequence[Shard], progress: Progress) -> WriteCounts:
        """Counts the writes into shards; those of the last few tensors are kept."""
        for known in self._counted:
            if known.firsts == firsts:
                return known.counts
        places = [shard.place for shard in firsts]
        counts = WriteCounts(self._history, places, progress)
        newest = self._counted[1 - _TENSORS_KEPT :]
        self._counted = (*newest, _Counted(firsts, counts))
        return counts

    def _nearest(self, name: str, firsts: Sequence[Shard], writes: Ints) -> _Nearest:
        """The kept tensor that has most of the shards as they are after so many
        ``writes`` into each.

        Of two that have as many the one that was kept last.
        """
        best = _Nearest(None, np.ones(len(firsts), np.bool_), writes)
        fewest = len(firsts)
        for kept in self._tensors:
            if kept.view.name != name or kept.firsts != firsts:
                continue
            stale = kept.writes != writes
            if np.count_nonzero(stale) <= fewest:
                best = best._replace(tensor=kept, stale=stale)
                fewest = int(np.count_nonzero(stale))
        return best

    def _gathered(
        self,
        op: int,
        name: str,
        firsts: Sequence[Shard],
        near: _Nearest,
        progress: Progress,
    ) -> _KeptTensor:
        """The tensor at op ``op``: stale shards are read, the others are kept ones.

        Without a kept one every shard is stale, and what lies in no shard is zero and
        not written. The ``changed`` of its view is not set yet.
        """
        steps = self._history.executed(op)
        first = firsts[0]
        if near.tensor is not None:
            values = near.tensor.view.values.copy()
            written = near.tensor.view.written.copy()
            figures = near.tensor.figures.copy()
        else:
            shape = _shape_of(firsts)
            make_room(prod(shape) * (itemsize(first.dtype) + 2), f"tensor {name}")
            values = np.zeros(shape, np_dtype(first.dtype))
            written = np.zeros(values.shape, np.bool_)
            figures = np.zeros((len(firsts), _NO_FIGURES))
        stale = np.flatnonzero(near.stale).tolist()
        for number, i in enumerate(stale):
            progress(number / len(stale))
            shard = firsts[i]
            contents = self._history.read(steps, *shard.place, progress)
            known = _whole_elements(contents.written, shard)
            part = contents.values.view(values.dtype).reshape(shard.shape)
            box = _box(shard)
            written[box] = known
            values[box] = part
            key = (first.dtype, *shard.place, int(near.writes[i]))
            figures[i, :] = self._figures_of(key, part, known, progress)
        total, finite, nans = figures[:, 2:].sum(axis=0).tolist()
        least = largest = mean = np.nan
        if finite:
            least = float(figures[:, 0].min())
            largest = float(figures[:, 1].max())
            mean = total / finite
        view = TensorView(
            op=op,
            name=name,
            space=first.space,
            dtype=first.dtype,
            values=values,
            written=written,
            changed=written,
            minimum=least,
            maximum=largest,
            mean=mean,
            nans=int(nans),
        )
        return _KeptTensor(view, figures, firsts, near.writes)

    def _figures_of(
        self, key: _FigureKey, part: Array, known: Bools, progress: Progress
    ) -> _Figures:
        """The figures of a shard's known elements.

        They are kept by where the bytes are and how often they had been written, which
        determines what they hold.
        """
        found = self._figures.get(key)
        if found is None:
            found = beside_if_many(
                part.size, lambda: _figures(part[known]), progress, 0.9
            )
            if len(self._figures) > _FIGURES_KEPT:
                self._figures = {}
            self._figures[key] = found
        return found

    def written_by(self, op: int, name: str, progress: Progress = no_progress) -> Bools:
        """Which elements of a tensor an op writes, in the shape of ``tensor``.

        Executes no op.
        """
        self._places.prepare(progress)
        firsts = self._places.first_copies(name, op, progress)
        return self._written_by(op, firsts, _shape_of(firsts), progress)

    def _written_by(
        self,
        op: int,
        firsts: Sequence[Shard],
        shape: tuple[int, ...],
        progress: Progress,
    ) -> Bools:
        """Which elements of a tensor op ``op`` writes, if only some of their bytes."""
        changed = np.zeros(shape, np.bool_)
        writes = [touched for touched in self._touched(op) if touched.mode == "w"]
        if not writes:
            return changed
        begins = np.array([shard.addr for shard in firsts])
        ends = begins + np.array([shard.nbytes for shard in firsts])
        for write in writes:
            rows = write.rows
            end = rows.addr + rows.span
            for i in np.flatnonzero((begins < end) & (ends > rows.addr)).tolist():
                progress(0.95)
                shard = firsts[i]
                if write.space != shard.space:
                    continue
                low = max(rows.addr, shard.addr)
                high = min(end, shard.addr + shard.nbytes)
                flat = np.zeros(shard.nbytes, np.bool_)
                if rows.is_one:
                    flat[low - shard.addr : high - shard.addr] = True
                else:
                    addresses, _ = bytes_within(rows, low, high)
                    flat[addresses - shard.addr] = True
                changed[_box(shard)] |= ~_whole_elements(~flat, shard)
        return changed

    # -- what an op is about --

    def shown(self, op: int) -> str | None:
        """The tensor to show for an op: what it writes, else what it reads.

        None where it touches nothing that is allocated. A tile that computes in the
        array touches nothing itself: for it what its composite writes is shown.
        """
        touched = self._touched(op)
        if not touched and op >= 0:  # a tile in the array: what its composite makes
            whole = self._ops.composite_of(op)
            touched = [] if whole is None else self._touched(whole)
        for _, space, rows in _writes_first(touched):
            row = self._places.alloc_at(space, rows.addr, op)
            if row >= 0:
                return self._places.name_of(row)
        return None

    def touches(self, op: int) -> str | None:
        """The bytes that an op writes, else reads, as a place; None if it has none.

        Of rows it is the box of the tensor that has them, as ``y[0:64, 16:32]``.
        """
        touched = _writes_first(self._touched(op))
        if not touched:
            return None
        _, space, rows = touched[0]
        if rows.is_one or rows.nbytes > MOST_ADDRESSES:
            return f"{space} {rows.addr:#x}:{rows.span}"
        addresses = np.sort(rows.addresses(np.arange(rows.nbytes)))
        return self._places.named(space, addresses, op).text

    def _touched(self, op: int) -> list[_Touched]:
        """What an op touches; a tile's bytes are in its params."""
        if not 0 <= op < len(self._trace.ops):
            return []
        record = self._trace.ops[op]
        params = record.params
        is_tile = record.op_name.startswith("TileToken/")
        if is_tile and {"spaces", "addrs", "sizes"} <= params.keys():
            mode = "w" if record.op_name.endswith("DMA_WRITE") else "r"
            blocks = blocks_of(params)
            found = [_Touched(mode, space, rows) for space, rows in blocks]
        else:
            reads, write = regions(record)
            found = [_Touched("r", read.space, read.where) for read in reads]
            if write is not None:
                found.append(_Touched("w", write.space, write.where))
        return [touched for touched in found if touched.rows.nbytes]


def _writes_first(touched: Sequence[_Touched]) -> list[_Touched]:
    """Regions, the writes before the reads, each in the order of operands."""
    return sorted(touched, key=lambda region: region.mode != "w")


def _shape_of(shards: Sequence[Shard]) -> tuple[int, ...]:
    """The shape of the tensor that some shards make up."""
    ends = np.array([np.add(shard.origin, shard.shape) for shard in shards], np.int64)
    return tuple(ends.max(axis=0).tolist())


def _box(shard: Shard) -> tuple[slice, ...]:
    """Where a shard lies in its tensor."""
    pairs = zip(shard.origin, shard.shape, strict=True)
    return tuple(slice(origin, origin + extent) for origin, extent in pairs)


def _figures(known: Array) -> _Figures:
    """The figures of some elements, in f64; of none the least is inf."""
    wide = as_f64(known)
    finite = wide[np.isfinite(wide)]
    return _Figures(
        float(finite.min(initial=np.inf)),
        float(finite.max(initial=-np.inf)),
        float(finite.sum()),
        finite.size,
        int(np.isnan(wide).sum()),
    )


def _whole_elements(flags: Bools, shard: Shard) -> Bools:
    """Which elements of a shard have the flags of all their bytes set.

    ``flags`` has a byte for each byte of the shard: read as numbers of the size of an
    element they are compared all at once.
    """
    size = itemsize(shard.dtype)
    all_set = int.from_bytes(b"\1" * size)
    whole = flags.view(f"u{size}") == all_set
    return np.asarray(whole.reshape(shard.shape))


def _alloc_writes(
    trace: Trace, history: History, places: PlaceIndex
) -> Steps[_AllocWrites]:
    """The table of all writes, of a history that is prepared.

    Writes are taken by address, as all to one address ask the same allocations: who
    held it when depends on the op alone, and is searched for all of them in one call.
    """
    by_addr = yield from beside(lambda: _by_address(history.touched), 0.5)
    writes, order, starts = by_addr
    count = len(order)
    allocs = np.full(count, count, writes.row.dtype)
    for i in range(len(starts) - 1):
        if i % _EVERY == 0:
            yield 0.5 + 0.3 * i / len(starts)
        mine = order[starts[i] : starts[i + 1]]
        first = mine[0]
        space = writes.spaces[writes.space[first]]
        addr = int(writes.addr[first])
        allocs[mine] = places.allocs_at(space, addr, writes.row[mine])
    losses = yield from within(places.lives.losses(), 0.8, 0.95)
    linked = beside(lambda: _linked_writes(trace, writes.row, allocs, losses), 0.95)
    return (yield from linked)


def _by_address(touched: AccessColumns) -> _ByAddress:
    """The writes among some accesses, by the address that each begins at."""
    writes = touched.take(np.flatnonzero(touched.mode))
    count = len(writes.row)
    order = np.lexsort((writes.addr, writes.space))
    spaces = writes.space[order]
    addresses = writes.addr[order]
    is_new = np.ones(count, np.bool_)
    is_new[1:] = (np.diff(spaces) != 0) | (np.diff(addresses) != 0)
    return _ByAddress(writes, order, [*np.flatnonzero(is_new).tolist(), count])


def _linked_writes(trace: Trace, ops: Ints, allocs: Ints, losses: Ints) -> _AllocWrites:
    """Writes, each with the number of the next one into its allocation."""
    count = len(ops)
    by_alloc = Groups.kept(allocs)
    following = np.full(count, count, ops.dtype)
    in_turn = by_alloc.order
    has_next = np.flatnonzero(np.diff(allocs[in_turn]) == 0)
    following[in_turn[has_next]] = in_turn[has_next + 1]
    if len(losses):  # what lost its bytes is not held up to the next write into it
        np.minimum(following, np.searchsorted(ops, losses)[allocs], out=following)
    following[allocs < 0] = -1
    blocks = np.arange(0, count, _BLOCK)
    latest = np.maximum.reduceat(following, blocks) if count else blocks
    held = _held(trace, ops, allocs, losses)
    return _AllocWrites(
        paged(ops),
        paged(allocs),
        paged(following),
        latest,
        by_alloc,
        paged(losses),
        held,
    )


def _held(
    trace: Trace, ops: Ints, allocs: Ints, losses: Ints
) -> tuple[_SpaceHeld, ...]:
    """Of each space when its allocations were first written, and lost their bytes.

    What is written for the first time after it has lost its bytes is in neither.
    """
    log = trace.alloc_columns
    mine, first = np.unique(allocs, return_index=True)
    written = ops[first]
    counted = (mine >= 0) & (written < losses[mine] if len(losses) else False)
    mine = mine[counted]
    written = written[counted]
    found = list[_SpaceHeld]()
    for number, space in enumerate(log.spaces):
        here = log.space[mine] == number
        nbytes = log.nbytes[mine[here]].astype(np.int64)
        found.append(
            _SpaceHeld(
                space,
                _filling(written[here], nbytes),
                _filling(losses[mine[here]], nbytes),
            )
        )
    return tuple(found)


def _filling(ops: Ints, nbytes: Ints) -> _Filling:
    """Ops in their order, with the bytes up to each."""
    order = np.argsort(ops, kind="stable")
    return _Filling(paged(ops[order]), paged(np.cumsum(nbytes[order])))

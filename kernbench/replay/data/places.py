"""Bytes as a user names them: tensors with indices, or addresses; and back to names.

Owns the names of a trace's allocations and which of them held an address when. A tensor
is sharded and replicated: its name stands for the first copy of each shard, and with
@NODE for the copies of one owner. Scratch handles are named with their owner, as every
PE numbers its own; one name stands for another handle in every launch, so at an op it
is that which was made last, as long as its bytes are no other's (``lives``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Bools, Ints, distinct
from kernbench.common.dtypes import itemsize
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    no_progress,
)
from kernbench.common.resumable import Resumable, Steps, beside
from kernbench.errors import TraceFormatError, UsageError
from kernbench.replay.data.history import History
from kernbench.replay.data.intervals import IntervalIndex
from kernbench.replay.data.lives import Lives
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

_WORK_A_SHARD = 64
"""Numbers on which a step in numpy takes as long as it does to make one shard."""

Span: TypeAlias = tuple[int, int]
"""The first index on an axis, and the one after the last."""

Range: TypeAlias = tuple[str, int, int]
"""Contiguous bytes: space, address, size in bytes."""

MOST_ADDRESSES = 1 << 22
"""Bytes of a place that are looked at one by one, or of a part that is read."""

_MOST_RANGES = 4096
_TENSORS_KEPT = 4
_HOLDERS_KEPT = 1 << 10
"""Addresses of which the holders are kept: of one there may be thousands."""

_NAMES_COMPARED = 1000
_MOST_BYTES = 1 << 40
_BEYOND_ADDRESSES = 1 << 60
_NAMED = re.compile(r"([^\[\]]+?)\s*(?:\[([^\[\]]*)\])?")
_BYTES = re.compile(r"(\w+)\s+(0x[0-9a-f]+|\d+)(?::(\d+))?", re.ASCII | re.I)
_ONE_AXIS = re.compile(r"(-?\d+)?(:)?(-?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes that a user has named.

    ``index`` has a span of each axis of ``tensor`` ("" for plain addresses), ``ranges``
    are where those elements lie, at most 4,096 pieces.
    """

    text: str
    tensor: str
    dtype: str
    index: tuple[Span, ...]
    ranges: tuple[Range, ...]


class AccessesTo(NamedTuple):
    """The accesses to some bytes, by their ascending numbers in the history, and where
    the bytes lie.
    """

    numbers: Ints
    ranges: tuple[Range, ...]


class Named(NamedTuple):
    """Bytes as a user names them, and how many elements the box of that name has; 0
    where it is a range of bytes.
    """

    text: str
    elements: int


class _Names(NamedTuple):
    """Every name with its number, in the order in which they were first allocated.

    ``allocs`` are the rows of the allocation log by that number, and ``is_first`` says
    of each row whether it is the first copy of its shard.
    """

    numbers: dict[str, int]
    allocs: Groups
    is_first: Bools


class _Holders(NamedTuple):
    """The allocations that ever held an address, by the call that made them.

    The first is (-1, -1): before all of them nobody held it.
    """

    cmds: Ints
    allocs: Ints


class PlaceIndex:
    """The allocations of a trace by name and by address.

    ``prepare`` makes the table of names, the index of addresses and the lives; who asks
    makes them if it has not run. All are assigned once whole and never changed, so the
    screen's thread may ask beside the thread of lane "memory". So it may for what is
    kept of single allocations: it depends on the trace alone, and made twice it is the
    same.
    """

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace = trace
        self._history = history
        self._names: _Names | None = None
        self._allocs: IntervalIndex | None = None
        self._lives: Lives | None = None
        self._prepared = Resumable(self._preparation)
        self._shards: dict[int, Shard] = {}
        self._holders = lru_cache(_HOLDERS_KEPT)(self._ever_held)
        self._copies: dict[str, list[Shard]] = {}
        self._stated: dict[str, str] | None = None

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make what the other questions look up; see the class.

        One that is cancelled goes on where it was when it is called again.
        """
        self._history.prepare(progress)
        self._prepared.result(progress)

    def _preparation(self) -> Steps[None]:
        if self._names is None:
            self._names = yield from beside(lambda: _names(self._trace), 0.9)
        if self._allocs is None:
            allocs = self._history.allocs
            self._allocs = yield from beside(lambda: IntervalIndex(allocs), 0.95)
        if self._lives is None:
            index = self._allocs
            self._lives = yield from beside(lambda: Lives(self._trace, index), 1.0)

    def _named_allocs(self) -> _Names:
        """The table of names, made by whoever asks first."""
        if self._names is None:
            self._names = _names(self._trace)
        return self._names

    def _alloc_index(self) -> IntervalIndex:
        """The index of addresses, made by whoever asks first."""
        if self._allocs is None:
            self._allocs = IntervalIndex(self._history.allocs)
        return self._allocs

    # -- allocations --

    @property
    def lives(self) -> Lives:
        """How long each allocation has its bytes, made by whoever asks first."""
        if self._lives is None:
            self._lives = Lives(self._trace, self._alloc_index())
        return self._lives

    @property
    def names(self) -> list[str]:
        """What can be asked for; a scratch handle is h0.3@sip0.cube0.pe0.pe_cpu."""
        return list(self._named_allocs().numbers)

    def shards(self, rows: Sequence[int]) -> list[Shard]:
        """Rows of ``trace.allocs``.

        A trace keeps three axes at most. An older one has the first three of more: the
        others are folded into the last of them.
        """
        new = [row for row in rows if row not in self._shards]
        if new:
            for row, shard in zip(new, self._trace.shards(new), strict=True):
                self._shards[row] = _folded(shard)
        return [self._shards[row] for row in rows]

    def first_copies(
        self, name: str, op: int | None = None, progress: Progress = no_progress
    ) -> list[Shard]:
        """The first copy of every shard of ``name``; NAME@NODE: those of one owner.

        Of a scratch handle it is what has that name at op ``op``, None: at the last.
        Those of the last few tensors are kept. UsageError, with names that are alike,
        for one that the trace does not have, or for a handle that is not there then.
        """
        number = self._scratch_number(name)
        if number is not None:
            last = len(self._trace.order) - 1
            return self._handle_at(name, number, last if op is None else op)
        found = self._copies.get(name)
        if found is None:
            most = len(self._trace.alloc_columns.cmd)  # all may be of that name
            found = beside_if_many(
                most * _WORK_A_SHARD, lambda: self._first_copies(name), progress, 0.9
            )
            newest = [*self._copies.items()][1 - _TENSORS_KEPT :]
            self._copies = dict(newest) | {name: found}
        return found

    def _scratch_number(self, name: str) -> int | None:
        """The number of a name in the table; None unless it is a scratch handle's."""
        names = self._named_allocs()
        number = names.numbers.get(name)
        if number is None:
            return None
        first = names.allocs.of(number)[0]
        is_scratch = self._trace.alloc_columns.va[first] == 0
        return number if is_scratch else None

    def _handle_at(self, name: str, number: int, op: int) -> list[Shard]:
        """What a scratch name stands for at an op; UsageError outside of its life."""
        rows = self._named_allocs().allocs.of(number)
        made = self.lives.made[rows]
        by_now = made[made <= op]
        if not len(by_now):
            first = int(made.min())
            when = f"at op {first:,}" if first < self.lives.ops else "later"
            raise UsageError(f"{name} is not made yet at op {op:,}; ask {when}")
        mine = rows[made == by_now.max()]
        loss = self.lives.loss(mine)
        if loss.op <= op:
            raise UsageError(
                f"{name} was released at op {loss.op:,}, and at op {op:,} its bytes "
                f"are {self.name_of(loss.to)}; ask at op {by_now.max():,}"
            )
        shards = self.shards(mine.tolist())
        check_alike(name, shards)
        return shards

    def _last_call(self, rows: Ints) -> int:
        """The call that made the next allocation over the bytes of some of one call;
        2^63 - 1 if there is none.
        """
        log = self._trace.alloc_columns
        end: int = np.iinfo(np.int64).max
        for shard in self.shards(rows.tolist()):
            others = self._alloc_index().overlapping(*shard.place)
            later = log.cmd[others][log.cmd[others] > shard.cmd]
            end = min([end, *later.tolist()])
        return end

    def _first_copies(self, name: str) -> list[Shard]:
        """Look up ``first_copies`` of a tensor, with the owner that is wanted or
        without.
        """
        names = self._named_allocs()
        wanted, _, owner = name.partition("@")
        number = names.numbers.get(name, self._number_of(wanted))
        if number is not None:
            mine = self.shards(names.allocs.of(number).tolist())
            if owner and name not in names.numbers:
                mine = [shard for shard in mine if shard.owner == owner]
            if mine:
                check_alike(name, mine)
                first: dict[tuple[int, ...], Shard] = {}
                for shard in mine:
                    first.setdefault(shard.origin, shard)
                return list(first.values())
        raise self._unknown(name)

    def _number_of(self, name: str) -> int | None:
        """The number of a tensor in the table, by its name or by that under which the
        bench says what it is to hold; None if there is neither.
        """
        numbers = self._named_allocs().numbers
        if name in numbers:
            return numbers[name]
        if self._stated is None:
            self._stated = self._stated_names()
        return numbers.get(self._stated.get(name, ""))

    def _stated_names(self) -> dict[str, str]:
        """The tensors that are expected, by the names that ``expect`` was given."""
        log = self._trace.alloc_columns
        tensors = np.flatnonzero(log.va[:] != 0)
        by_addr = dict(zip(log.addr[tensors].tolist(), tensors.tolist(), strict=True))
        found: dict[str, str] = {}
        for expected in self._trace.expects:
            row = by_addr.get(expected.addr)
            if row is not None:
                found[expected.tensor] = self._trace.strings[log.tensor[row]]
        return found

    def _unknown(self, name: str) -> UsageError:
        """An error that lists up to eight names like ``name``."""
        names = self.names
        alike = [known for known in names if ("@" in known) == ("@" in name)] or names
        near = sorted(get_close_matches(name, alike[:_NAMES_COMPARED], 8, 0.0))
        known = ", ".join(near) or "none"
        return UsageError(f"no tensor {name!r} in this trace; it has: {known}")

    def _ever_held(self, space: str, addr: int) -> _Holders:
        """Look up the holders of an address."""
        log = self._trace.alloc_columns
        rows = self._alloc_index().overlapping(space, addr, 1)
        rows = rows[np.argsort(log.cmd[rows], kind="stable")]
        cmds = log.cmd[rows].astype(np.int64)
        return _Holders(np.append(-1, cmds), np.append(-1, rows))

    def allocs_at(self, space: str, addr: int, ops: Ints) -> Ints:
        """By each of some ops the youngest allocation that holds an address.

        Rows of ``trace.allocs``, -1 where none does. Scratch memory is used again and
        again, and nothing says when a handle is released: what was allocated last by
        the op's call is what the bytes are.
        """
        if not len(self._trace.order):
            return np.full(len(ops), -1)
        holders = self._holders(space, addr)
        now = self._trace.op_columns.cmd[self._trace.order[ops]]
        youngest = np.searchsorted(holders.cmds, now, side="right") - 1
        return np.asarray(holders.allocs[youngest])

    def alloc_at(self, space: str, addr: int, op: int) -> int:
        """``allocs_at`` of one op."""
        return int(self.allocs_at(space, addr, np.array([op]))[0])

    def allocs_of(self, space: str, addrs: Ints, op: int) -> Ints:
        """``alloc_at`` of many addresses, which are close to each other."""
        low = int(addrs.min())
        span = int(addrs.max()) - low + 1
        rows = self._alloc_index().overlapping(space, low, span)
        if len(rows) > len(addrs):
            each = [self.alloc_at(space, addr, op) for addr in addrs.tolist()]
            return np.array(each, np.int64)
        log = self._trace.alloc_columns
        cmds = log.cmd[rows]
        made = cmds <= self._trace.op_columns.cmd[self._trace.order[op]]
        from_oldest = rows[made][np.argsort(cmds[made], kind="stable")]
        found = np.full(len(addrs), -1)
        for row in from_oldest.tolist():
            start = int(log.addr[row])
            end = start + int(log.nbytes[row])
            found[(addrs >= start) & (addrs < end)] = row
        return found

    def holder(self, space: str, addr: int, op: int) -> Shard | None:
        """The allocation that has an address at op ``op``: of those made by then the
        youngest.
        """
        rows = self._holders(space, addr).allocs[1:]
        made = self.lives.made[rows]
        rows = rows[made <= op]
        if not len(rows):
            return None
        youngest = np.argsort(made[made <= op], kind="stable")[-1]
        return self.shards([int(rows[youngest])])[0]

    # -- names to bytes --

    def place(
        self, text: str, op: int | None = None, progress: Progress = no_progress
    ) -> Place:
        """The bytes that a text names at op ``op``, None: at the last.

        ``c``, ``c[3,17]``, ``c[0:2, :]`` (of first copies), ``a@NODE[0]``, or
        ``hbm 0x4000:64``. UsageError for what is not there.
        """
        by_address = _BYTES.fullmatch(text.strip())
        if by_address is not None:
            return self._place_by_address(text, by_address)
        by_name = _parts_of(text)
        shards = self.first_copies(by_name[1], op, progress)
        return _place_in(shards, text, by_name[1], by_name[2])

    def accesses_to(self, text: str, progress: Progress = no_progress) -> AccessesTo:
        """The accesses of all ops to what a text names.

        Those to bytes of a scratch name are the ones to all handles that ever had it,
        while these were there. UsageError for what is not there.
        """
        number: int | None = None
        if not _BYTES.fullmatch(text.strip()):
            by_name = _parts_of(text)
            number = self._scratch_number(by_name[1])
        if number is None:
            ranges = self.place(text, progress=progress).ranges
            numbers = self._history.accesses.overlapping_any(ranges, progress)
            return AccessesTo(numbers, ranges)
        rows = self._named_allocs().allocs.of(number)
        cmds = self._trace.alloc_columns.cmd[rows].astype(np.int64)
        found: list[Ints] = []
        pieces: dict[Range, None] = {}
        problem: UsageError | None = None
        for done, cmd in enumerate(distinct(cmds).tolist()):
            progress(done / len(rows))
            mine = rows[cmds == cmd]
            try:
                shards = self.shards(mine.tolist())
                place = _place_in(shards, text, by_name[1], by_name[2])
            except UsageError as why:  # the index may fit another handle of that name
                problem = why
                continue
            found.append(self._accesses_in_life(place, cmd, mine, progress))
            pieces |= dict.fromkeys(place.ranges)
        if not found and problem is not None:
            raise problem
        return AccessesTo(distinct(np.concatenate(found)), tuple(pieces))

    def _accesses_in_life(
        self, place: Place, made: int, rows: Ints, progress: Progress
    ) -> Ints:
        """The accesses to a place from call ``made`` until ``rows`` are other's."""
        numbers = self._history.accesses.overlapping_any(place.ranges, progress)
        ops = self._history.touched.row[numbers]
        calls = self._trace.op_columns.cmd[self._trace.order[ops]].astype(np.int64)
        return numbers[(calls >= made) & (calls < self._last_call(rows))]

    def _place_by_address(self, text: str, match: re.Match[str]) -> Place:
        """``hbm 0x4000:64``, or one byte, ``hbm 16384``; a space of the trace only."""
        spaces = self._history.allocs.spaces
        space = match[1]
        is_hex = match[2][:2].lower() == "0x"
        addr = int(match[2], 16 if is_hex else 10)
        nbytes = int(match[3] or 1)
        possible = 0 < nbytes <= _MOST_BYTES and addr < _BEYOND_ADDRESSES
        if space not in spaces or not possible:
            known = ", ".join(spaces) or "none"
            raise UsageError(
                f"{text!r}: give SPACE ADDR:BYTES; this trace's spaces: {known}"
            )
        return Place(text, "", "u8", ((0, nbytes),), ((space, addr, nbytes),))

    # -- bytes to names --

    def named(self, space: str, addresses: Ints, op: int) -> Named:
        """Bytes (ascending addresses) as a user names them at op ``op``.

        ``c[3, 0:128]``, the smallest box of the tensor that has them; ``hbm 0x40:8``,
        eight bytes, where no allocation holds the first of them.
        """
        low = int(addresses[0])
        row = self.alloc_at(space, low, op)
        if row < 0:
            span = int(addresses[-1]) + 1 - low
            return Named(f"{space} {low:#x}:{span}", 0)
        shard = self.shards([row])[0]
        held = addresses[: np.searchsorted(addresses, shard.addr + shard.nbytes)]
        elements = (held - shard.addr) // itemsize(shard.dtype)
        axes = np.unravel_index(elements, shard.shape or (1,))
        spans = list[str]()
        count = 1
        for at, origin in zip(axes, shard.origin, strict=False):
            first = int(at.min()) + origin
            last = int(at.max()) + origin
            count *= last + 1 - first
            spans.append(f"{first}:{last + 1}" if last > first else f"{first}")
        return Named(f"{self.name_of(row)}[{', '.join(spans)}]", count)

    def name_of(self, row: int) -> str:
        """The name to ask for a row of ``trace.allocs`` by: that of a scratch handle,
        or of a copy that is not the first of its shard, has its owner.
        """
        shard = self.shards([row])[0]
        if shard.va and self._named_allocs().is_first[row]:
            return shard.tensor
        return f"{shard.tensor}@{shard.owner}"

    def copies(self, name: str) -> list[list[Shard]]:
        """The copies of each shard of a tensor, the first one first; none of a name
        that is no tensor's, or that says whose copy it is.

        Of one shard are those of the same elements and the same dtype.
        """
        number = self._number_of(name)
        if number is None or self._scratch_number(name) is not None:
            return []
        alike: dict[tuple[object, ...], list[Shard]] = {}
        for shard in self.shards(self._named_allocs().allocs.of(number).tolist()):
            box = (shard.origin, shard.shape, shard.dtype)
            alike.setdefault(box, []).append(shard)
        return list(alike.values())

    def dtype_of(self, place: Place, op: int) -> str:
        """What the bytes of a place are.

        Its tensor's dtype; of plain addresses that of the allocation that they are
        whole elements of, if they are.
        """
        space, addr, nbytes = place.ranges[0]
        if place.tensor:
            return place.dtype
        shard = self.holder(space, addr, op)
        if shard is None:
            return place.dtype
        size = itemsize(shard.dtype)
        whole = (addr - shard.addr) % size == 0 and nbytes % size == 0
        inside = addr + nbytes <= shard.addr + shard.nbytes
        return shard.dtype if whole and inside else place.dtype


def _parts_of(text: str) -> re.Match[str]:
    """The name and the index of a place by name; UsageError if it is none."""
    match = _NAMED.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no place; give c, c[3,17], c[0:2, :] or hbm 0x4000:64"
        )
    return match


def _place_in(
    shards: Sequence[Shard], text: str, name: str, cells: str | None
) -> Place:
    """``c[3,17]``: the pieces of all ``shards`` that the index reaches into."""
    starts = np.array([shard.origin for shard in shards])
    ends = starts + np.array([shard.shape for shard in shards])
    index = _index(text, cells, ends.max(axis=0).tolist())
    low, high = np.array(index, np.int64).reshape(-1, 2).T
    inside = ((starts < high) & (low < ends)).all(axis=1)
    ranges = list[Range]()
    for number in np.flatnonzero(inside).tolist():
        ranges += _ranges(shards[number], index)
    if not ranges:
        raise UsageError(
            f"{text}: this trace holds no piece of it, as that of a part of a run may "
            "not; ask the whole trace"
        )
    if len(ranges) > _MOST_RANGES:
        raise UsageError(f"{text} lies in {len(ranges):,} pieces; ask for a part of it")
    return Place(text, name, shards[0].dtype, index, tuple(ranges))


def check_alike(name: str, shards: Sequence[Shard]) -> None:
    """TraceFormatError unless the shards can be parts of one tensor."""
    kinds = {(shard.dtype, len(shard.shape)) for shard in shards}
    if len(kinds) > 1:
        (dtype, axes), (other_dtype, other_axes), *_ = sorted(kinds)
        raise TraceFormatError(
            f"shards of {name} are {dtype} of {axes} axes, and {other_dtype} of "
            f"{other_axes}: they are no parts of one tensor"
        )


def _folded(shard: Shard) -> Shard:
    """A shard whose last axis has all that its bytes say is there.

    Of a handle of shape (2, 3, 2, 5) older traces keep (2, 3, 2) and 240 bytes; it
    becomes (2, 3, 10).
    """
    kept = prod(shard.shape) * itemsize(shard.dtype)
    more = shard.nbytes // max(kept, 1)

    def folded(axes: tuple[int, ...]) -> tuple[int, ...]:
        return (*axes[:2], *(extent * more for extent in axes[2:]))

    return replace(shard, origin=folded(shard.origin), shape=folded(shard.shape))


def _names(trace: Trace) -> _Names:
    """The names of all allocations; scratch is what has no virtual address."""
    log = trace.alloc_columns
    is_scratch = log.va == 0
    # A name is a string, and for scratch its owner: one number of both.
    owners = np.where(is_scratch, log.owner.astype(np.int64) + 1, 0)
    keys = log.tensor.astype(np.int64) << 32 | owners
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    by_first_use = np.argsort(np.argsort(first))
    numbers: dict[str, int] = {}
    made = np.sort(first)
    pairs = zip(log.tensor[made].tolist(), owners[made].tolist(), strict=True)
    for number, (tensor, owner) in enumerate(pairs):
        name = trace.strings[tensor]
        if owner:
            name = f"{name}@{trace.strings[owner - 1]}"
        numbers[name] = number
    parts = (log.origin2[:], log.origin1[:], log.origin0[:], log.tensor[:])
    order = np.lexsort(parts)  # of one shard in the order of the log
    is_other = np.ones(len(order), np.bool_)
    is_other[1:] = False
    for part in parts:
        is_other[1:] |= np.diff(part[order].astype(np.int64)) != 0
    is_first = np.zeros(len(order), np.bool_)
    is_first[order[is_other]] = True
    name_of_row = by_first_use[which.reshape(-1)].astype(np.uint32)
    return _Names(numbers, Groups.kept(name_of_row), is_first)


# -- indices --


def _index(text: str, cells: str | None, shape: list[int]) -> tuple[Span, ...]:
    """The span of each axis of ``shape``; UsageError for what is no index of it.

    ``cells`` is the text in the brackets of ``text``; None: there are none. Axes
    that it leaves out are taken whole.
    """
    if not shape:
        return ()  # a scalar: whatever the index, it is the only element
    words = [word.strip() for word in cells.split(",")] if cells is not None else []
    spans = list[Span | None]()
    for axis, extent in enumerate(shape):
        spans.append(_span(words[axis], extent) if axis < len(words) else (0, extent))
    found = [span for span in spans if span is not None]
    if len(found) < len(shape) or len(words) > len(shape):
        raise UsageError(
            f"{text}: no index of shape {shape}; give one number or A:B for each axis"
        )
    return tuple(found)


def _span(word: str, extent: int) -> Span | None:
    """``3``, ``-1``, ``2:5``, ``:-1`` or ``:`` of an axis; None for what is none."""
    match = _ONE_AXIS.fullmatch(word)
    if match is None or not word:
        return None
    first, colon, end = match.groups()
    if end and not colon:
        return None
    low = int(first or 0)
    if low < 0:
        low += extent
    high = low + 1
    if colon:
        high = int(end or extent)
        if high < 0:
            high += extent
    return (low, high) if 0 <= low < high <= extent else None


def _ranges(shard: Shard, index: Iterable[Span]) -> list[Range]:
    """The bytes of ``index`` that lie in one shard, contiguous pieces by address.

    Elements are in row-major order: the axes at the end that are taken whole, and the
    one before them, are one piece for each index of the axes in front of those. At most
    one piece more than a place may have is made.
    """
    size = itemsize(shard.dtype)
    box = list[Span]()
    for (low, high), origin, extent in zip(
        index, shard.origin, shard.shape, strict=True
    ):
        first = max(low - origin, 0)
        end = min(high - origin, extent)
        if first >= end:
            return []
        box.append((first, end))
    axis = len(box)
    run = 1
    while axis > 0:
        axis -= 1
        first, end = box[axis]
        run *= end - first
        if end - first < shard.shape[axis]:
            break
    strides = [prod(shard.shape[i + 1 :]) for i in range(len(box))]
    offset = sum(
        first * stride for (first, _), stride in zip(box, strides, strict=True)
    )
    found = list[Range]()
    for outer in product(*(range(end - first) for first, end in box[:axis])):
        start = offset + sum(i * s for i, s in zip(outer, strides, strict=False))
        found.append((shard.space, shard.addr + start * size, run * size))
        if len(found) > _MOST_RANGES:
            break
    return found


def addresses(place: Place, progress: Progress = no_progress) -> Ints:
    """The addresses of all bytes of a place, ascending; UsageError if they are many."""
    count = sum(nbytes for _, _, nbytes in place.ranges)
    if count > MOST_ADDRESSES:
        raise UsageError(
            f"{place.text} is of more than {MOST_ADDRESSES:,} bytes; "
            "ask for a part of it"
        )
    return beside_if_many(count, lambda: _all_of(place.ranges), progress, 0.0)


def _all_of(ranges: Sequence[Range]) -> Ints:
    """The addresses of all bytes of ranges, ascending, each once."""
    parts = [np.arange(addr, addr + nbytes) for _, addr, nbytes in ranges]
    return distinct(np.concatenate(parts))

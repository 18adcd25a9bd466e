"""Where bytes came from: from an element back, op by op, to the inputs it was made of.

Owns the walk over writers and operands: who last wrote the element, which elements of
that op's operands went into it (``read_elements``), who last wrote those before the op
ran, and so on. On the way every op is looked at for what may be wrong with it. What an
op reads is known to ``accesses``, who wrote what when to ``History``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain, repeat
from math import prod
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints, as_f64, distinct
from kernbench.common.dtypes import itemsize, np_dtype
from kernbench.common.messages import Region
from kernbench.common.progress import (
    Cancelled,
    Progress,
    beside_if_many,
    computed_beside,
    no_progress,
)
from kernbench.errors import KernbenchError
from kernbench.replay.answers import OpRow
from kernbench.replay.data.hazards import (
    CONFLICTS,
    NEVER_WRITTEN,
    OUTSIDE,
    Timing,
    outside,
    timing,
)
from kernbench.replay.data.history import Contents, History
from kernbench.replay.data.places import MOST_ADDRESSES, Place, PlaceIndex, addresses
from kernbench.replay.data.touches import RowsOf
from kernbench.replay.text import number_text, unwritten_text, wrapped
from kernbench.sim_engine.accesses import (
    read_elements,
    regions,
    taken_elements,
    takes_by_index,
)
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import FULL, NUMPY_OPS
from kernbench.sim_engine.op_check import (
    Reference,
    born,
    integers_of_nan,
    reference,
)
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import bytes_at, operands_of, plan_of, snapshots_of
from kernbench.trace import Trace

_MOST_LINKS = 500
_WIDEST = 8
"""Bytes of an element of the widest dtype."""
_CHECKED_LINKS = 256
"""Links whose op is compared with its float64 oracle."""
_WRITES_TRIED = 64
"""Earlier writes that are undone to find what an operand really was."""
_CHECKED_WORK = 1 << 24
"""Products, or elements, that the oracle of one link may compute."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some elements: their name, the bytes from the first to the last, what they hold.

    The name is that of the smallest box that has them, of ``box`` elements; of a range
    of bytes, where no allocation holds them, ``box`` is 0. ``value`` is text, "" where
    it is not known. ``writers`` are the ops that wrote them; -1 is nobody. ``awaited``
    is the first op that later writes some of what nobody wrote, None if there is no
    such op.
    """

    name: str
    space: str
    addr: int
    nbytes: int
    elements: int
    box: int
    value: str
    writers: tuple[int, ...] = ()
    awaited: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One op of the chain, ``depth`` ops before the element.

    ``wrote`` is what of its output went into the element, ``reads`` what that was made
    of, an operand each, and ``numbers`` the operands that are plain numbers.
    ``followed`` is False where the answer was cut off. ``notes`` say what is wrong
    here: races, bytes never written, more than rounding beside the float64 oracle on
    the op's own inputs.
    """

    op: OpRow
    depth: int
    wrote: Part
    reads: tuple[Part, ...]
    followed: bool
    notes: tuple[str, ...]
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Blame:
    """How ``part`` at op ``op`` came to be: ``links``, the latest op first.

    ``suspect`` is the first op that has a note, None if none has.
    """

    op: int
    part: Part
    links: tuple[Link, ...]
    suspect: int | None
    note: str

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: a tree, each op in full where it is first."""
        links = {link.op.op: link for link in self.links}
        lines = [f"{self.part.name} at op {self.op:,}{_holds(self.part)}"]
        _add_tree(lines, self.part, links, set(), "  ")
        if self.note:
            lines += wrapped(self.note, width)
        if self.suspect is not None:
            row = links[self.suspect].op
            lines.append(f"first suspect: op {row.op:,} {row.name} at {row.where}")
        return lines


def _add_tree(
    lines: list[str], part: Part, links: dict[int, Link], shown: set[int], indent: str
) -> None:
    """Add the lines of the writers of a part, and of what those were made of.

    ``shown`` are the ops that have been shown in full; it grows.
    """
    for op in part.writers:
        link = links.get(op)
        if link is None:
            what = f"op {op:,}: not followed"
            if op < 0:
                what = unwritten_text(part.awaited)
            lines.append(indent + what)
            continue
        row = link.op
        head = f"{indent}op {op:,} {row.name} on {row.component}"
        if op in shown:
            lines.append(head + " (above)")
            continue
        shown.add(op)
        lines.append(head)
        lines.append(f"{indent}  {row.t_start:.2f} to {row.t_end:.2f} ns, {row.where}")
        lines.append(f"{indent}  wrote {link.wrote.name}{_holds(link.wrote)}")
        lines += [f"{indent}  ! {note}" for note in link.notes]
        for read in link.reads:
            lines.append(f"{indent}  from {read.name}{_holds(read)}")
            _add_tree(lines, read, links, shown, indent + "    ")


def _holds(part: Part) -> str:
    """How much of the box it is named by a part is, and what it holds."""
    text = ""
    if part.elements < part.box:
        text = f" ({part.elements:,} of its {part.box:,} elements)"
    elif not part.box and part.elements * _WIDEST < part.nbytes:
        text = f" ({part.elements:,} elements somewhere in these bytes)"
    return f"{text} = {part.value}" if part.value else text


class _Given(NamedTuple):
    """What an op was given: memory as it was at op ``before``, with what is odd about
    that as ``note``, "" for nothing.
    """

    before: int
    note: str = ""


class _Bytes(NamedTuple):
    """Addresses (ascending) of one space, of whole elements of a dtype."""

    space: str
    at: Ints
    dtype: str


@dataclass(slots=True)
class _Walk:
    """A blame under way, at op ``op``.

    ``wanted`` has of each op that is still to be looked at the addresses of its output
    that went into the element, ``depths`` how many ops it is away from that; ``todo``
    is a heap of those ops, negated: the latest comes first, so that an op comes after
    all that have read it.
    """

    op: int
    with_values: bool
    progress: Progress
    wanted: defaultdict[int, list[Ints]] = field(
        default_factory=lambda: defaultdict(list)
    )
    depths: dict[int, int] = field(default_factory=dict)
    todo: list[int] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    @property
    def done(self) -> float:
        """The share that is done."""
        return len(self.links) / _MOST_LINKS

    def want(self, writer: int, at: Ints, depth: int) -> None:
        """Look at an op later, for these addresses."""
        if writer not in self.wanted:
            heappush(self.todo, -writer)
        self.wanted[writer].append(at)
        self.depths[writer] = min(depth, self.depths.get(writer, depth))

    def forget(self) -> None:
        """Let go of what was wanted of ops that are not followed.

        That may be hundreds of MB, which take 50 ms to give back all at once.
        """
        while self.wanted:
            self.progress(1.0)
            self.wanted.popitem()


class BlameIndex:
    """Answers where bytes came from; belongs to the thread of lane "memory".

    A question executes ops (``History``), and fills what is kept here of races: when
    every access was in flight, and which are outside all allocations.
    """

    def __init__(
        self, trace: Trace, history: History, places: PlaceIndex, rows_of: RowsOf
    ) -> None:
        self._trace = trace
        self._history = history
        self._places = places
        self._rows_of = rows_of
        self._timing: Timing | None = None
        self._outside: frozenset[int] | None = None

    def of(
        self, place: Place, op: int, depth: int, progress: Progress = no_progress
    ) -> Blame:
        """The ops behind a place at op ``op``, none further away than ``depth``.

        Of more than 500 the latest. With what they hold, if all ops until ``op`` can be
        executed. UsageError for a place of more than 4 MiB.
        """
        self._places.prepare(progress)
        self._prepare_races(progress)
        note = ""
        try:
            self._history.reach(self._history.executed(op), progress)
        except Cancelled:
            raise
        except KernbenchError as why:
            note = f"without values: {why}"
        walk = _Walk(op, not note, progress)
        dtype = self._places.dtype_of(place, op)
        asked = _Bytes(place.ranges[0][0], addresses(place, progress), dtype)
        whole = self._asked(walk, asked, op, 0, op)
        while walk.todo and len(walk.links) < _MOST_LINKS:
            progress(walk.done)
            walk.links.append(self._link(walk, -heappop(walk.todo), depth))
        if dtype == "u8" and not place.tensor and whole.value:
            whole = replace(whole, value=f"bytes {whole.value}")
        walk.forget()
        if place.tensor and whole.writers == (-1,) and whole.awaited is None:
            note = f"who wrote the rest of it: history {place.tensor}"
        left = len(walk.todo) + sum(not link.followed for link in walk.links)
        if left:
            note += f"cut off: the inputs of {left:,} ops are not followed"
        suspects = [link.op.op for link in walk.links if link.notes]
        first = min(suspects, default=None)
        return Blame(op, whole, tuple(walk.links), first, note)

    def named(
        self, text: str, op: int, depth: int, progress: Progress = no_progress
    ) -> Blame:
        """``of`` the place that a text names at op ``op``; UsageError if none is."""
        self._places.prepare(progress)
        return self.of(self._places.place(text, op, progress), op, depth, progress)

    def _asked(
        self, walk: _Walk, wanted: _Bytes, before: int, depth: int, user: int
    ) -> Part:
        """A part as it was at op ``before``; who wrote it is put on the list.

        ``depth`` is how many ops the part is away from what was asked for. It is named
        as at op ``user``, which uses it.
        """
        last = self._history.last_writers(
            wanted.space, wanted.at, before, walk.progress
        )
        awaited = None
        for writer, at in last:
            if writer >= 0:
                walk.want(writer, at, depth)
            else:
                awaited = self._history.next_writer(
                    wanted.space, at, before, walk.progress
                )
        writers = tuple(writer for writer, _ in last)
        part = self._part(walk, wanted, before, user, writers)
        return replace(part, awaited=awaited)

    def _link(self, walk: _Walk, op: int, depth: int) -> Link:
        """What is wanted of an op, and of what it made that.

        Beyond ``depth`` the operands are not followed, and not shown either.
        """
        record = self._trace.ops[op]
        reads, out = regions(record)
        assert out is not None  # it is a writer
        elements = self._wanted_elements(walk, op, out)
        output = self._bytes_of(walk, out, elements)
        wrote = self._part(walk, output, op, op)
        needed = beside_if_many(
            self._cost(elements),
            lambda: read_elements(record, elements),
            walk.progress,
            walk.done,
        )
        if takes_by_index(record):
            needed = self._taken(walk, op, needed)
        parts = list[Part]()
        odd = list[str]()
        distance = walk.depths[op]
        is_followed = distance < depth
        if is_followed:
            snapshots = chain(snapshots_of(record), repeat(None))
            for region, mine, snapshot in zip(reads, needed, snapshots, strict=False):
                operand = self._bytes_of(walk, region, mine)
                given = self._given(walk, op, region, operand, snapshot)
                part = self._asked(walk, operand, given.before, distance + 1, op)
                parts.append(part)
                if given.note:
                    odd.append(f"{given.note}: {part.name}")
        notes = (*odd, *self._notes(walk, op, elements, needed, wrote, parts))
        (row,) = self._rows_of([op])
        is_whole = is_followed or not reads
        numbers = _numbers_of(record)
        return Link(row, distance, wrote, tuple(parts), is_whole, notes, numbers)

    def _taken(self, walk: _Walk, op: int, needed: list[Ints]) -> list[Ints]:
        """``needed`` of an op that takes elements by an index, without those of the
        same lines that the index leaves out.

        As it is where nobody knows what the index held.
        """
        record = self._trace.ops[op]
        wanted = needed[1]
        index = self._index(walk, op, wanted) if walk.with_values else None
        if index is None:
            return needed
        taken = beside_if_many(
            self._cost(wanted),
            lambda: taken_elements(record, wanted, index),
            walk.progress,
            walk.done,
        )
        return [taken, *needed[1:]]

    def _index(self, walk: _Walk, op: int, wanted: Ints) -> Array | None:
        """Some elements of the index by which an op takes; None if they are unknown."""
        record = self._trace.ops[op]
        region = regions(record).reads[1]
        given = list(snapshots_of(record))[1:2]
        if given and given[0] is not None:
            return np.asarray(np.ascontiguousarray(given[0]).reshape(-1)[wanted])
        if region.strided is not None:
            return None
        steps = self._history.executed(op - 1)
        contents = self._history.read(
            steps, region.space, region.addr, region.nbytes, walk.progress
        )
        if not contents.written.all():
            return None
        return np.asarray(contents.values.view(np_dtype(region.dtype))[wanted])

    def _given(
        self,
        walk: _Walk,
        op: int,
        region: Region,
        operand: _Bytes,
        snapshot: Array | None,
    ) -> _Given:
        """The moment at which memory held what an op was given of an operand.

        That is before the op itself, unless Phase 1 recorded other bytes: then before
        one of the last writes into them, which Phase 1 had not made when the op read.
        """
        last = _Given(op - 1)
        if snapshot is None or not walk.with_values:
            return last
        low = int(operand.at[0])
        span = int(operand.at[-1]) + 1 - low
        if span > MOST_ADDRESSES:
            return last

        def taken() -> Array:
            flat = np.ascontiguousarray(snapshot).reshape(-1).view(np.uint8)
            return flat[region.where.offsets(operand.at)]

        recorded = beside_if_many(len(operand.at), taken, walk.progress, walk.done)

        def is_at(before: int) -> bool:
            steps = self._history.executed(before)
            found = self._history.read(steps, operand.space, low, span, walk.progress)
            return bool((found.values[operand.at - low] == recorded).all())

        if is_at(last.before):
            return last
        near = self._history.accesses.overlapping(operand.space, low, span)
        touched = self._history.touched
        mine = touched.row[near[touched.mode[near] == 1]]
        for writer in mine[mine < op][: -_WRITES_TRIED - 1 : -1].tolist():
            if is_at(writer - 1):
                why = f"given as it was before op {writer:,} wrote there"
                return _Given(writer - 1, why)
        why = "given other bytes (Phase 1) than any of the last ops wrote there"
        return _Given(op - 1, why)

    def _cost(self, numbers: Ints) -> int:
        """How much work a step on some numbers may be: in a long trace always much."""
        return max(len(numbers), len(self._history.touched.row))

    def _wanted_elements(self, walk: _Walk, op: int, out: Region) -> Ints:
        """The elements of an op's output that went into what was asked for."""
        parts = walk.wanted.pop(op)  # nobody who comes later in the walk reads it
        size = itemsize(out.dtype)

        def elements() -> Ints:
            offsets = out.where.offsets(distinct(np.concatenate(parts)))
            return distinct(offsets // size)

        count = sum(map(len, parts))
        return beside_if_many(count, elements, walk.progress, walk.done)

    def _bytes_of(self, walk: _Walk, region: Region, elements: Ints) -> _Bytes:
        """All bytes of some elements of a region."""
        size = itemsize(region.dtype)

        def every() -> Ints:
            starts = region.where.addresses(elements * size)
            found = np.asarray((starts[:, None] + np.arange(size)).ravel())
            # Who asks for bytes has them ascend; the planes of rows may not.
            return found if region.strided is None else np.sort(found)

        at = beside_if_many(len(elements), every, walk.progress, walk.done)
        return _Bytes(region.space, at, region.dtype)

    def _part(
        self,
        walk: _Walk,
        wanted: _Bytes,
        op: int,
        user: int,
        writers: tuple[int, ...] = (),
    ) -> Part:
        """Some bytes as they are at op ``op``, under the name they have at ``user``.

        The name is that of the op that uses them, as scratch is allocated again. What
        they hold is read if they lie within 4 MiB.
        """
        space, at, dtype = wanted
        low = int(at[0])
        span = int(at[-1] - at[0]) + 1
        named = beside_if_many(
            len(at),
            lambda: self._places.named(space, at, user),
            walk.progress,
            walk.done,
        )
        value = ""
        if walk.with_values and span <= MOST_ADDRESSES:
            steps = self._history.executed(op)
            contents = self._history.read(steps, space, low, span, walk.progress)
            value = beside_if_many(
                len(at),
                lambda: _value_text(contents, at - low, dtype),
                walk.progress,
                walk.done,
            )
        elements = len(at) // itemsize(dtype)
        return Part(
            named.text, space, low, span, elements, named.elements, value, writers
        )

    # -- what is wrong with a link --

    def _notes(
        self,
        walk: _Walk,
        op: int,
        elements: Ints,
        needed: Sequence[Ints],
        wrote: Part,
        reads: Sequence[Part],
    ) -> tuple[str, ...]:
        """All that is wrong with an op: its own errors first, races last.

        ``needed`` are the elements of each operand that went into ``elements``.
        """
        notes = list[str]()
        if walk.with_values and len(walk.links) < _CHECKED_LINKS:
            notes += self._errors(walk, op, elements, needed)
        notes += [
            f"{NEVER_WRITTEN}: {part.name}" for part in reads if -1 in part.writers
        ]
        raced = beside_if_many(
            self._cost(elements),
            lambda: list(dict.fromkeys(self._races(op, [wrote, *reads]))),
            walk.progress,
            walk.done,
        )
        return (*notes, *raced)

    def _errors(
        self, walk: _Walk, op: int, elements: Ints, needed: Sequence[Ints]
    ) -> list[str]:
        """What the float64 oracle says of some elements of the output of an op, and
        whether NaN or infinities come of ``needed`` elements of operands without any.

        Nothing where it would have to compute very much; why not, where the op or its
        operands cannot be had.
        """
        record = self._trace.ops[op]
        checked = beside_if_many(
            len(elements),
            lambda: _checked(record, elements),
            walk.progress,
            walk.done,
        )
        if checked.work > _CHECKED_WORK:
            return []
        out = checked.out
        try:
            work = max(checked.work, len(elements))
            memory = self._history.inputs(op, work, walk.progress)
            self._history.reach(self._history.executed(op), walk.progress)
            written = self._history.at(op)
            actual = bytes_at(written, out.addr, out)
            own = actual.reshape(-1)[elements]
            return beside_if_many(
                work,
                lambda: _error_notes(record, memory, checked, own, needed),
                walk.progress,
                walk.done,
            )
        except Cancelled:
            raise
        except KernbenchError as why:
            return [str(why)]

    def _prepare_races(self, progress: Progress) -> None:
        """Find when every access was in flight, and which are outside allocations."""
        touched = self._history.touched
        if self._timing is None:
            self._timing = computed_beside(
                lambda: timing(self._trace, touched), progress, 0.0
            )
        if self._outside is None:
            found = computed_beside(
                lambda: outside(touched, self._history.allocs), progress, 0.0
            )
            self._outside = frozenset(touched.row[found.numbers].tolist())

    def _races(self, op: int, parts: Sequence[Part]) -> Iterator[str]:
        """What an op does to the bytes of some parts and should not (``hazards``)."""
        touched = self._history.touched
        if self._outside is not None and op in self._outside:
            yield OUTSIDE
        for access in range(
            bisect_left(touched.row, op), bisect_left(touched.row, op + 1)
        ):
            space = touched.spaces[touched.space[access]]
            at = np.array([access])
            for part in parts:
                begins = (part.addr, part.addr + 1)
                if space == part.space and touched.meets(at, *begins)[0]:
                    yield from self._races_for(access, part)

    def _races_for(self, access: int, part: Part) -> Iterator[str]:
        """The conflicts of one access with those of other ops, over a part's bytes.

        As ``hazards.conflicts`` defines them, for this one access.
        """
        assert self._timing is not None
        touched = self._history.touched
        begins, ends, lane = self._timing
        near = self._history.accesses.overlapping(part.space, part.addr, part.nbytes)
        at_once = (begins[near] < ends[access]) & (begins[access] < ends[near])
        near = near[at_once]
        of_others = touched.row[near] != touched.row[access]
        one_writes = (touched.mode[near] | touched.mode[access]) > 0
        in_order = (lane[near] >= 0) & (lane[near] == lane[access])
        for other in near[of_others & one_writes & ~in_order].tolist():
            pair = sorted((access, other), key=lambda number: (begins[number], number))
            kind = CONFLICTS[touched.mode[pair[0]]][touched.mode[pair[1]]]
            yield f"{kind}: op {int(touched.row[other]):,}"


def _numbers_of(record: OpRecord) -> tuple[float, ...]:
    """The operands of an op that are numbers: none of one that only places elements.

    Of that they say where, but for the value that a tensor is filled with.
    """
    spec = NUMPY_OPS.get(str(record.params.get("op", "")))
    is_computed = spec is not None and (spec.form.pointwise or spec is FULL)
    return tuple(record.params.get("scalars", ())) if is_computed else ()


class _Checked(NamedTuple):
    """What the oracle computes of an op's output ``out``: all of it, or a grid.

    ``grid`` are rows and columns of a matrix product; ``at`` is where each wanted
    element stands in what the oracle gives. ``work`` counts products, or elements.
    """

    out: Region
    grid: tuple[Ints, Ints] | None
    at: Ints
    work: int


def _checked(record: OpRecord, elements: Ints) -> _Checked:
    """Of a matrix product the rows and columns of these elements, else everything."""
    reads, out = regions(record)
    assert out is not None  # it is a writer
    if record.op_kind != "gemm":
        return _Checked(out, None, elements, sum(prod(read.shape) for read in reads))
    depth = int(record.params.get("k", 1))
    is_matrix = len(out.shape) == 2 and max(len(read.shape) for read in reads) == 2
    if not is_matrix:
        return _Checked(out, None, elements, prod(out.shape) * depth)
    row, column = np.divmod(elements, out.shape[1])
    rows, i = np.unique(row, return_inverse=True)
    columns, j = np.unique(column, return_inverse=True)
    at = i * len(columns) + j
    return _Checked(out, (rows, columns), at, len(rows) * len(columns) * depth)


def _error_notes(
    record: OpRecord,
    memory: MemoryStore,
    checked: _Checked,
    own: Array,
    needed: Sequence[Ints],
) -> list[str]:
    """How many of the elements ``own`` are wrong, how many have overflowed, and what
    has come into being there.

    Wrong is what rounding does not explain; overflowed what rounding alone has made
    infinite or NaN of a finite value. NaN and infinities come into being where the
    ``needed`` elements of the operands have none.
    """
    expected = reference(record, memory, checked.grid)
    value = as_f64(expected.value).reshape(-1)[checked.at]
    low = as_f64(expected.low).reshape(-1)[checked.at]
    high = as_f64(expected.high).reshape(-1)[checked.at]
    actual = as_f64(own)
    over = Reference(value, low, high).over(actual)
    lost = np.isfinite(value) & ~np.isfinite(actual) & ~over
    of_nan = over & integers_of_nan(own, value)
    notes = list[str]()
    for bad, what in (
        (of_nan, "have an integer in place of NaN, which has none"),
        (over & ~of_nan, "differ by more than rounding"),
        (lost, "overflow"),
    ):
        if bad.any():
            notes.append(f"{int(bad.sum()):,} of {len(bad):,} {what}")
    is_from_host = not needed
    if np.isfinite(actual).all() or notes or is_from_host:
        return notes
    operands = operands_of(plan_of(record).turn(record), memory)
    given = [x.reshape(-1)[at] for x, at in zip(operands, needed, strict=False)]
    text = born(record, given, own).as_text()
    return [text] if text else []


def _value_text(contents: Contents, offsets: Ints, dtype: str) -> str:
    """The least and the largest of some elements, and how many are NaN; "" of none.

    ``offsets`` are those of their bytes in ``contents``; elements that are not written
    whole are left out.
    """
    values = as_f64(contents.values[offsets].view(np_dtype(dtype)))
    written = contents.written[offsets].reshape(-1, itemsize(dtype)).all(axis=1)
    known = values[written]
    numbers = known[~np.isnan(known)]
    nans = len(known) - len(numbers)
    texts = list[str]()
    if len(numbers):
        ends = (number_text(numbers.min()), number_text(numbers.max()))
        texts.append(" to ".join(dict.fromkeys(ends)))
    if nans:
        texts.append(f"NaN in {nans:,} of {len(known):,}" if len(known) > 1 else "NaN")
    return ", ".join(texts)

"""Where bytes came from: from an element back, op by op, to the inputs that it was made of.

Owns the walk over writers and operands. What an op reads is ``accesses``'s, when ``history``'s.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from math import prod
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.dtypes import itemsize, np_dtype
from kernbench.common.messages import Region
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.answers import OpRow, Touch, Touches
from kernbench.replay.data.hazards import (
    CONFLICTS,
    NEVER_WRITTEN,
    OUTSIDE,
    outside,
    timing,
)
from kernbench.replay.data.history import History
from kernbench.replay.data.memory import MemoryIndex, Place
from kernbench.replay.text import number_text
from kernbench.sim_engine.accesses import read_elements, regions
from kernbench.sim_engine.op_check import Reference, reference
from kernbench.trace import Trace

RowOf: TypeAlias = Callable[[int], OpRow]
_CHECKED, _WORK = (
    256,
    1 << 24,
)  # links beside their oracle; products or elements of one of them
_SEEN = 1 << 22  # bytes between the first and the last of which the values are read
_LINKS, _READS = 500, 1000  # that are told


@dataclass(frozen=True, slots=True)
class Part:
    """Elements as a user names them, the bytes from the first to the last, and what they hold.

    ``writers`` are ops; -1 is nobody.
    """

    name: str
    space: str
    addr: int
    nbytes: int
    elements: int
    value: str
    writers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """One op of the chain, so many ops before the element: what of its output went into it.

    ``reads`` are what that was made of; ``followed`` is False where the answer was cut off.
    ``notes`` say what is wrong here, also by the float64 oracle on the op's own inputs.
    """

    op: OpRow
    depth: int
    wrote: Part
    reads: tuple[Part, ...]
    followed: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Blame:
    """``links``, latest first, of ``part`` at op ``op``; ``suspect`` is the first op with a note"""

    op: int
    part: Part
    links: tuple[Link, ...]
    suspect: int | None
    note: str

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [f"{self.part.name} at op {self.op:,}{_holds(self.part)}"]
        links, told = {link.op.op: link for link in self.links}, set[int]()

        def said(part: Part, indent: str) -> Iterator[str]:
            for op in part.writers:
                if (link := links.get(op)) is None:
                    yield indent + (
                        f"op {op:,}: not followed" if op >= 0 else "never written"
                    )
                    continue
                r = link.op
                yield f"{indent}op {op:,} {r.name} on {r.component}{' (above)' * (op in told)}"
                if op in told:
                    continue
                told.add(op)
                yield f"{indent}  {r.t_start:.2f} to {r.t_end:.2f} ns, {r.site}"
                yield f"{indent}  wrote {link.wrote.name}{_holds(link.wrote)}"
                yield from (f"{indent}  ! {note}" for note in link.notes)
                for read in link.reads:
                    yield f"{indent}  from {read.name}{_holds(read)}"
                    yield from said(read, indent + "    ")

        lines += said(self.part, "  ")
        lines += [self.note] if self.note else []
        bad = (x.op for x in self.links if x.op.op == self.suspect)
        return lines + [f"first suspect: op {r.op:,} {r.name} at {r.site}" for r in bad]


def _holds(part: Part) -> str:
    return f" = {part.value}" if part.value else ""


class BlameIndex:
    """BlameIndex the ops of a trace; ``row`` is the session's."""

    def __init__(
        self, trace: Trace, history: History, memories: MemoryIndex, row: RowOf
    ) -> None:
        self._trace, self._history, self._memories, self._row = (
            trace,
            history,
            memories,
            row,
        )

    def of(
        self, place: Place, op: int, depth: int, progress: Progress = no_progress
    ) -> Blame:
        """The ops behind a place at op ``op``: none further than ``depth``, of many the latest.

        With what they hold, as far as all until ``op`` can be executed.
        """
        values, note = True, ""
        try:
            self._history.reach(self._history.executed(op), progress)
        except KernbenchError as why:
            values, note = False, f"without values: {why}"
        wanted, near = defaultdict[int, list[Ints]](list), dict[int, int]()
        todo, links = list[int](), list[Link]()

        def ask(space: str, at: Ints, dtype: str, before: int, away: int) -> Part:
            writers = self._history.writers(space, at, before)
            for writer, mine in writers:
                if writer >= 0:
                    if writer not in wanted:
                        heappush(todo, -writer)
                    wanted[writer].append(mine)
                    near[writer] = min(away, near.get(writer, away))
            user, found = (
                min(before + (away > 0), op),
                tuple(writer for writer, _ in writers),
            )
            return self._part(space, at, dtype, before, user, values, found)

        dtype = self._memories.dtype_of(place, op)
        whole = ask(place.ranges[0][0], _addresses(place), dtype, op, 0)
        while (
            todo and len(links) < _LINKS
        ):  # an op after all that read it: what is wanted is known
            progress(len(links) / _LINKS)
            link = -heappop(todo)
            record, away = self._trace.ops[link], near[link]
            reads, out = regions(record)
            assert out is not None  # of a writer
            bytes_at, size = (
                np.unique(np.concatenate(wanted[link])),
                itemsize(out.dtype),
            )
            elements = np.unique((bytes_at - out.addr) // size)
            wrote = self._part(
                out.space, _bytes(out, elements), out.dtype, link, link, values
            )
            parts, followed = list[Part](), away < depth
            for r, mine in zip(reads, read_elements(record, elements), strict=True):
                if followed:
                    parts.append(
                        ask(r.space, _bytes(r, mine), r.dtype, link - 1, away + 1)
                    )
            notes = (
                self._wrong(link, out, elements)
                if values and len(links) < _CHECKED
                else ()
            )
            notes += tuple(
                f"{NEVER_WRITTEN}: {x.name}" for x in parts if -1 in x.writers
            )
            notes += tuple(dict.fromkeys(self._raced(link, [wrote, *parts])))
            row, reached = self._row(link), followed or not reads
            links.append(Link(row, away, wrote, tuple(parts), reached, notes))
        left = len(todo) + sum(not link.followed for link in links)
        note += f"cut off: the inputs of {left:,} ops are not followed" if left else ""
        bad = [link.op.op for link in links if link.notes]
        if dtype == "u8" and not place.tensor and whole.value:
            whole = replace(whole, value=f"bytes {whole.value}")
        return Blame(op, whole, tuple(links), min(bad, default=None), note)

    def _part(
        self,
        space: str,
        at: Ints,
        dtype: str,
        op: int,
        user: int,
        values: bool,
        writers: tuple[int, ...] = (),
    ) -> Part:
        """Bytes ``at`` of whole elements, as they are at op ``op``, named as op ``user`` does."""
        low, span, size = int(at[0]), int(at[-1] - at[0]) + 1, itemsize(dtype)
        name, text = self._memories.named(space, at, user), ""
        if values and span <= _SEEN:
            flat, held = self._history.read(
                self._history.executed(op), space, low, span
            )
            known = flat[at - low].view(np_dtype(dtype)).astype(np.float64)
            known = known[held[at - low].reshape(-1, size).all(axis=1)]
            ends = known[~np.isnan(known)]
            if len(ends):
                text = " to ".join(
                    dict.fromkeys(map(number_text, (ends.min(), ends.max())))
                )
            if nans := len(known) - len(ends):
                nan = f"NaN in {nans:,} of {len(known):,}" if len(known) > 1 else "NaN"
                text = f"{text}, {nan}" if text else nan
        return Part(name, space, low, span, len(at) // size, text, writers)

    def _wrong(self, op: int, out: Region, elements: Ints) -> tuple[str, ...]:
        """What the oracle says of these elements of the output of ``op``."""
        record, grid, at = self._trace.ops[op], None, elements
        work = sum(prod(r.shape) for r in regions(record).reads)
        if record.op_kind == "gemm":
            if len(out.shape) == 2 == max(len(r.shape) for r in regions(record).reads):
                (rows, i), (columns, j) = (
                    np.unique(x, return_inverse=True)
                    for x in divmod(elements, out.shape[1])
                )
                grid, at = (rows, columns), i * len(columns) + j
            work = prod(map(len, grid) if grid else out.shape) * int(record.params["k"])
        if work > _WORK:
            return ()
        try:
            expected = reference(record, self._history.at(op - 1), grid)
            actual = self._history.at(op).view(
                out.space, out.addr, out.shape, out.dtype
            )
        except KernbenchError as why:
            return (str(why),)
        value, low, high = (
            x.astype(np.float64).reshape(-1)[at]
            for x in (expected.value, expected.low, expected.high)
        )
        own = actual.reshape(-1)[elements].astype(np.float64)
        over = Reference(value, low, high).over(own)
        lost = np.isfinite(value) & ~np.isfinite(own) & ~over
        counts = (over, "differ by more than rounding"), (lost, "overflow")
        return tuple(
            f"{int(x.sum()):,} of {len(x):,} {what}" for x, what in counts if x.any()
        )

    @cached_property
    def _timing(self) -> tuple[Floats, Floats, Ints]:
        return timing(self._trace, self._history.touched)

    @cached_property
    def _outside(self) -> set[int]:
        return {
            op for _, op, *_ in outside(self._history.touched, self._history.allocs)
        }

    def _raced(self, op: int, parts: Sequence[Part]) -> Iterator[str]:
        """What ``op`` does to those bytes that it should not (see hazards)."""
        touched, (begins, ends, lane) = self._history.touched, self._timing
        if op in self._outside:
            yield OUTSIDE
        for i in range(bisect_left(touched.row, op), bisect_left(touched.row, op + 1)):
            low, high = touched.addr[i], touched.addr[i] + touched.nbytes[i]
            for part in parts:
                if (
                    touched.spaces[touched.space[i]] != part.space
                    or not low <= part.addr < high
                ):
                    continue
                near = self._history.accesses.at(part.space, part.addr, part.nbytes)
                near = near[(begins[near] < ends[i]) & (begins[i] < ends[near])]
                near = near[
                    (touched.row[near] != op)
                    & (touched.mode[near] | touched.mode[i] > 0)
                ]
                for j in near[(lane[near] < 0) | (lane[near] != lane[i])].tolist():
                    first, second = sorted((i, j), key=lambda x: (begins[x], x))
                    kind = CONFLICTS[touched.mode[first]][touched.mode[second]]
                    yield f"{kind}: op {int(touched.row[j]):,}"

    def writers(self, place: Place, op: int) -> Touches:
        """The last writes into a place by op ``op``."""
        rows, note, space = list[Touch](), "", place.ranges[0][0]
        for writer, at in self._history.writers(space, _addresses(place), op)[::-1]:
            if writer < 0:
                note = f"{len(at):,} bytes from {space} {int(at[0]):#x} on were never written"
            else:
                rows.append(
                    Touch("write", space, int(at[0]), len(at), self._row(writer))
                )
        return Touches(tuple(rows), note)

    def readers(self, place: Place, op: int) -> Touches:
        """The reads after op ``op`` of what a place holds then, until it is overwritten."""
        touched, space, at = (
            self._history.touched,
            place.ranges[0][0],
            _addresses(place),
        )
        mine = self._history.accesses.at(space, int(at[0]), int(at[-1] - at[0]) + 1)
        near = touched.take(
            mine[np.searchsorted(touched.row[mine], op, side="right") :]
        )
        lows, highs = np.searchsorted(at, (near.addr, near.addr + near.nbytes))
        held, rows = np.ones(len(at), np.bool_), list[Touch]()
        for i in np.flatnonzero(lows < highs).tolist():
            part = held[lows[i] : highs[i]]
            if near.mode[i]:
                part[:] = False
            elif part.any():
                bytes_of = int(near.addr[i]), int(near.nbytes[i])
                rows.append(
                    Touch("read", space, *bytes_of, self._row(int(near.row[i])))
                )
            if len(rows) == _READS or not held.any():
                break
        return Touches(tuple(rows))


def _addresses(place: Place) -> Ints:
    """Of all bytes of a place, ascending; UsageError if they are too many."""
    if sum(nbytes for *_, nbytes in place.ranges) > _SEEN:
        raise UsageError(
            f"{place.text} is of more than {_SEEN:,} bytes; ask for a part of it"
        )
    return np.unique(
        np.concatenate([np.arange(a, a + nbytes) for _, a, nbytes in place.ranges])
    )


def _bytes(r: Region, elements: Ints) -> Ints:
    """The addresses of all bytes of some elements."""
    size = itemsize(r.dtype)
    return np.asarray((r.addr + elements[:, None] * size + np.arange(size)).ravel())

"""The tensors of two traces when all ops have run, element by element.

Both traces are executed. Every copy of every shard is looked at, however either run has
laid its tensors out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from shlex import quote
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.progress import (
    Cancelled,
    Progress,
    beside_if_many,
    no_progress,
    stage,
)
from kernbench.common.room import make_room
from kernbench.errors import KernbenchError
from kernbench.replay.data.places import check_alike
from kernbench.replay.index import Index
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.verify import first_index, mismatches

_SHARDS_AT_ONCE = 128
"""Shards that are made between two calls of progress."""


@dataclass(frozen=True, slots=True)
class OutputPair:
    """A tensor that is not the same in both traces when all ops have run.

    Of its ``elements``, all copies counted, ``differ`` have other bytes, of which
    ``beyond`` are further apart than its dtype's tolerance. ``first`` names the first
    of these, or else the first that differs, with its values; ``blame`` is the command
    that says where B's, or else A's, came from. ``note`` says why nothing is counted.
    """

    tensor: str
    dtype: str
    elements: int = 0
    differ: int = 0
    beyond: int = 0
    first: str = ""
    a: str = ""
    b: str = ""
    note: str = ""
    blame: str = ""


class _Copy(NamedTuple):
    """One copy of a whole tensor, and which of its elements any op has written.

    ``shards`` are the parts of it.
    """

    values: Array
    written: Bools
    shards: Sequence[Shard]


def execute(side: Index, progress: Progress = no_progress) -> str:
    """Execute a whole trace; why that cannot be, or "" where it could."""
    try:
        if side.trace.cut:
            side.trace.refuse()
        side.history.prepare(stage(progress, 0.0, 0.1))
        side.history.reach(side.history.steps, stage(progress, 0.1, 1.0))
    except Cancelled:
        raise
    except KernbenchError as why:
        return str(why)
    return ""


def differing(a: Index, b: Index, progress: Progress = no_progress) -> list[OutputPair]:
    """The tensors that differ between two traces that have been executed."""
    shards_a = _shards(a, progress)
    shards_b = _shards(b, progress)
    found = list[OutputPair]()
    names = shards_a | shards_b
    for count, name in enumerate(names):
        part = stage(progress, count / len(names), (count + 1) / len(names))
        mine = shards_a.get(name)
        other = shards_b.get(name)
        if mine is None or other is None:
            which = "B" if mine is None else "A"
            found.append(
                OutputPair(name, names[name][0].dtype, note=f"only in {which}")
            )
            continue
        pair = _pair(a, b, mine, other, part)
        if pair is not None:
            found.append(pair)
    return found


def same_tensors(a: Index, b: Index, progress: Progress = no_progress) -> bool:
    """Whether the host has made the same tensors in both, at the same places."""
    shards_a = _shards(a, progress)
    shards_b = _shards(b, progress)
    if list(shards_a) != list(shards_b):
        return False
    for name, mine in shards_a.items():
        progress(0.0)
        places_a = [replace(shard, cmd=0) for shard in mine]
        places_b = [replace(shard, cmd=0) for shard in shards_b[name]]
        if places_a != places_b:
            return False
    return True


def _shards(side: Index, progress: Progress) -> dict[str, list[Shard]]:
    """The shards of each tensor that the host has made."""
    rows = np.flatnonzero(side.trace.alloc_columns.va[:] > 0).tolist()
    found = dict[str, list[Shard]]()
    for first in range(0, len(rows), _SHARDS_AT_ONCE):
        progress(0.0)
        for shard in side.places.shards(rows[first : first + _SHARDS_AT_ONCE]):
            found.setdefault(shard.tensor, []).append(shard)
    for name, shards in found.items():
        check_alike(name, shards)
    return found


def _pair(
    a: Index,
    b: Index,
    shards_a: Sequence[Shard],
    shards_b: Sequence[Shard],
    progress: Progress,
) -> OutputPair | None:
    """What differs in a tensor that both have; None where nothing does."""
    name = shards_a[0].tensor
    what_a = _what(shards_a)
    what_b = _what(shards_b)
    if what_a != what_b:
        return OutputPair(name, shards_b[0].dtype, note=f"{what_a} -> {what_b}")
    copies_a = _copies(shards_a)
    copies_b = _copies(shards_b)
    most = max(len(copies_a), len(copies_b))
    found = OutputPair(name, shards_b[0].dtype)
    for count in range(most):
        part = stage(progress, count / most, (count + 1) / most)
        copy_a = _assembled(a, copies_a[min(count, len(copies_a) - 1)], part)
        copy_b = _assembled(b, copies_b[min(count, len(copies_b) - 1)], part)
        found = beside_if_many(
            16 * copy_a.values.size,
            partial(_added, found, (a, b), (copy_a, copy_b), count),
            part,
            1.0,
        )
    if not found.differ:
        return None
    return found


def _what(shards: Sequence[Shard]) -> str:
    """The dtype and shape of a tensor, as text."""
    dtypes = sorted({shard.dtype for shard in shards})
    return f"{' and '.join(dtypes)}{list(_shape(shards))}"


def _shape(shards: Sequence[Shard]) -> tuple[int, ...]:
    """The shape that holds all shards."""
    axes = min(len(shard.shape) for shard in shards)
    ends = [
        [o + n for o, n in zip(s.origin[:axes], s.shape[:axes], strict=True)]
        for s in shards
    ]
    return tuple(map(max, zip(*ends, strict=True)))


def _copies(shards: Sequence[Shard]) -> list[list[Shard]]:
    """The copies of a tensor: of each part the first, the second … as far as there are.

    Of a part with fewer copies than another the last stands for those it lacks.
    """
    parts = dict[tuple[tuple[int, ...], ...], list[Shard]]()
    for shard in shards:
        parts.setdefault((shard.origin, shard.shape), []).append(shard)
    most = max(map(len, parts.values()))
    return [
        [mine[min(count, len(mine) - 1)] for mine in parts.values()]
        for count in range(most)
    ]


def _assembled(side: Index, shards: Sequence[Shard], progress: Progress) -> _Copy:
    """A copy of a tensor when all ops have run."""
    shape = _shape(shards)
    dtype = dtype_row(shards[0].dtype).numpy
    make_room(prod(shape) * (4 * dtype.itemsize + 8), f"tensor {shards[0].tensor}")
    values = np.zeros(shape, dtype)
    written = np.zeros(shape, np.bool_)
    for count, shard in enumerate(shards):
        progress(count / len(shards))
        contents = side.history.read(side.history.steps, *shard.place, progress)
        box = tuple(
            slice(origin, origin + extent)
            for origin, extent in zip(shard.origin, shard.shape, strict=True)
        )
        by_element = contents.written.reshape(-1, dtype.itemsize)
        is_filled = by_element | (side.history.fill is not None)
        written[box] = is_filled.all(1).reshape(shard.shape)
        values[box] = contents.values.view(dtype).reshape(shard.shape)
    return _Copy(values, written, shards)


def _added(
    found: OutputPair,
    sides: tuple[Index, Index],
    copies: tuple[_Copy, _Copy],
    number: int,
) -> OutputPair:
    """``found`` with what differs in one copy of the tensor, the ``number``-th."""
    a, b = copies
    bytes_a = np.ascontiguousarray(a.values).view(np.uint8)
    bytes_b = np.ascontiguousarray(b.values).view(np.uint8)
    shape = (*a.values.shape, a.values.dtype.itemsize)
    apart = (bytes_a.reshape(shape) != bytes_b.reshape(shape)).any(-1)
    one_only = a.written != b.written
    differ = one_only | apart & a.written
    tolerance = dtype_row(found.dtype).tolerance
    beyond = one_only | differ & mismatches(b.values, a.values, tolerance)
    elements = found.elements + differ.size
    count = int(np.count_nonzero(differ))
    far = int(np.count_nonzero(beyond))
    merged = replace(
        found,
        elements=elements,
        differ=found.differ + count,
        beyond=found.beyond + far,
    )
    is_first = not found.first or (far and not found.beyond)
    wanted = differ
    if far:
        wanted = beyond
    index = first_index(wanted)
    if index is None or not is_first:
        return merged
    which = int(b.written[index])
    place = _element(found.tensor, copies[which], index, number)
    path = str(sides[which].trace.path)
    return replace(
        merged,
        first=place,
        a=_value(a, index),
        b=_value(b, index),
        blame=f"kernbench trace blame {quote(path)} {quote(place)}",
    )


def _element(name: str, copy: _Copy, index: tuple[int, ...], number: int) -> str:
    """An element as one asks for it; of another copy than the first with its owner."""
    if number:
        for shard in copy.shards:
            ends = zip(shard.origin, shard.shape, index, strict=True)
            if all(low <= at < low + extent for low, extent, at in ends):
                name = f"{name}@{shard.owner}"
                break
    if not index:
        return name
    return f"{name}[{','.join(map(str, index))}]"


def _value(copy: _Copy, index: tuple[int, ...]) -> str:
    """An element as text."""
    if not copy.written[index]:
        return "not written"
    return str(copy.values[index])

"""How often each operand was fetched from memory, and what would fetch it once.

A PE that reads the same byte of a tensor again in one launch refetches it. What is read
are the blocks of tiles and the loads of kernels, row by row where a block has rows with
gaps between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Array,
    Bools,
    Floats,
    Ints,
    counted,
    numbered,
    repeated,
    running_count,
)
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.replay.text import wrapped
from kernbench.replay.time.spans import part_of_run
from kernbench.replay.time.tensor_names import TensorNames
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace
from kernbench.trace.groups import Groups, ranges
from kernbench.trace.hops import integers, named
from kernbench.trace.params import ParamBlock

_TILE_READ = "TileToken/DMA_READ"
_LOAD = "dma_read"
_ROWS_AT_ONCE = 1 << 18
"""Rows of bytes that are joined between two calls of progress."""
_MOST_ROWS = 1 << 24
"""Rows of a block, and of what one PE reads of a tensor, that are looked at singly."""
_SHOWN = 20
_AGAIN_ALONG = (("src_a_addr", "n", "tile.1"), ("src_b_addr", "m", "tile.0"))
"""An operand of a composite, the axis whose tiles each read it, and their size."""
_TILED = {name for row in _AGAIN_ALONG for name in row}
_MIB = 1 << 20
_OF_THE_TILE = "(m and n: of the composite's tile, whether or not it fits the TCM)"


@dataclass(frozen=True, slots=True)
class Fetched:
    """How often the PEs read a tensor.

    ``nbytes`` were read in all, ``distinct`` are those of them that a PE had not read
    before in the launch, and ``times`` is the first by the second. ``advice`` is the
    tile with which a composite would fetch it once, as "n = 1024"; "" where none is
    the cause. ``pes`` PEs read it, in ``launches`` launches: together they read more
    than it has, although none of them reads a byte again. ``again`` is the position of
    the first op that read what its PE had read before; None where nothing was read
    again.
    """

    tensor: str
    times: float
    nbytes: int
    distinct: int
    advice: str
    pes: int
    launches: int
    again: int | None

    @property
    def refetched(self) -> int:
        """The bytes that were read again."""
        return self.nbytes - self.distinct

    def as_text(self) -> str:
        """A line."""
        times = f"{self.times:.3g}"
        if not self.refetched:
            return f"{self.tensor} once: {_size(self.nbytes)}{self._readers()}"
        text = (
            f"{self.tensor} {times} times: {_size(self.refetched)} of "
            f"{_size(self.nbytes)} are refetches"
        )
        if self.advice:
            text += f"; {self.advice}: once a composite"
        return text + self._readers()

    def _readers(self) -> str:
        """How many PEs and launches read it; "" for one of each."""
        counts = []
        if self.pes > 1:
            counts.append(f"{self.pes:,} PEs")
        if self.launches > 1:
            counts.append(f"{self.launches:,} launches")
        if not counts:
            return ""
        return f" ({', '.join(counts)})"


@dataclass(frozen=True, slots=True)
class Fetches:
    """All tensors that PEs read, those with the most refetches first.

    Where the trace has not all of the run, ``part`` says what it has: nobody knows what
    was read outside of that.
    """

    tensors: tuple[Fetched, ...]
    part: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: a line a tensor, or more where it is too long."""
        shown = self.tensors[:_SHOWN]
        texts = [tensor.as_text() for tensor in shown]
        if not texts:
            texts.append("no PE read a tensor from memory")
        if any(tensor.advice for tensor in shown):
            texts.append(_OF_THE_TILE)
        lines = []
        for text in texts:
            lines += wrapped(text, width, 2)
        more = len(self.tensors) - _SHOWN
        if more > 0:
            lines.append(f"({more:,} more with fewer refetches)")
        if self.part:
            lines += wrapped(self.part, width, 2)
        return lines


def _size(nbytes: int) -> str:
    """Bytes in MiB or KiB where that is shorter."""
    if nbytes >= _MIB:
        return f"{nbytes / _MIB:.4g} MiB"
    if nbytes >= 1024:
        return f"{nbytes / 1024:.4g} KiB"
    return f"{nbytes} B"


class _Reads(NamedTuple):
    """Blocks that were read: ``rows`` of ``row_bytes``, ``pitch`` apart, from ``addr``.

    ``op`` is the row of the op in the log, ``tensor`` a number of ``TensorNames``.
    """

    op: Ints
    tensor: Ints
    addr: Ints
    rows: Ints
    row_bytes: Ints
    pitch: Ints


class FetchIndex:
    """Answers how often operands were fetched, found when it is first asked for.

    ``touched`` gives the accesses of all ops, rows being positions. Asked by one
    thread, the worker of lane "columns".
    """

    def __init__(
        self, trace: Trace, touched: Callable[[Progress], AccessColumns]
    ) -> None:
        self._trace = trace
        self._touched = touched
        self._fetches: Fetches | None = None

    def fetches(self, progress: Progress = no_progress) -> Fetches:
        """All tensors that were read by PEs."""
        if self._fetches is None:
            self._fetches = self._found(progress)
        return self._fetches

    def _found(self, progress: Progress) -> Fetches:
        touched = self._touched(stage(progress, 0.0, 0.3))
        tensors = TensorNames(self._trace, stage(progress, 0.3, 0.35))
        reads = _all_reads(self._trace, touched, tensors, stage(progress, 0.35, 0.6))
        count = len(tensors.names)
        totals = computed_beside(
            lambda: _sums(reads.tensor, reads.rows * reads.row_bytes, count),
            progress,
            0.6,
        )
        readers = computed_beside(lambda: _readers(self._trace, reads), progress, 0.61)
        pes, launches = computed_beside(
            lambda: [_different(reads, values, count) for values in readers],
            progress,
            0.62,
        )
        distinct = _distinct(reads, readers, count, stage(progress, 0.65, 0.85))
        again = computed_beside(
            lambda: _first_repeats(self._trace, reads, readers, totals > distinct),
            progress,
            0.85,
        )
        advice = _advice(self._trace, touched, tensors, stage(progress, 0.9, 1.0))
        rows = []
        for number in np.flatnonzero(totals).tolist():
            total = round(totals[number])
            once = round(distinct[number])
            name = tensors.names[number]
            said = ""
            if total > once:
                said = advice.get(number, "")
            times = total / once
            who = (int(pes[number]), int(launches[number]))
            rows.append(
                Fetched(name, times, total, once, said, *who, again.get(number))
            )
        rows.sort(key=lambda row: (-row.refetched, row.tensor))
        return Fetches(tuple(rows), part_of_run(self._trace))


def _all_reads(
    trace: Trace, touched: AccessColumns, tensors: TensorNames, progress: Progress
) -> _Reads:
    """What tiles and loads of PEs read of tensors."""
    found = [*_tile_reads(trace, tensors, stage(progress, 0.0, 0.5))]
    is_load = computed_beside(lambda: named(trace, _LOAD), progress, 0.5)
    is_tcm = np.array([name == "tcm" for name in touched.spaces], bool)
    for part in parts(len(touched.row), stage(progress, 0.6, 1.0)):
        row = trace.order[touched.row[part]].astype(np.int64)
        space = touched.space[part]
        read = is_load[row] & (touched.mode[part] == 0) & ~is_tcm[space]
        at = np.flatnonzero(read)
        mine = touched.take(part.start + at)
        tensor = np.full(len(at), -1)
        for number, name in enumerate(touched.spaces):
            here = np.flatnonzero(mine.space == number)
            tensor[here] = tensors.of(name, mine.addr[here].astype(np.int64))
        found += _loads(mine, row[at], tensor)
    return computed_beside(lambda: _together(found), progress, 1.0)


def _together(found: list[_Reads]) -> _Reads:
    """All reads of bytes that belong to tensors, in one."""
    none = np.empty(0, np.int64)
    every = [*found, _Reads(none, none, none, none, none, none)]
    joined = _Reads(*[np.concatenate(column) for column in zip(*every, strict=True)])
    known = np.flatnonzero((joined.tensor >= 0) & (joined.rows * joined.row_bytes > 0))
    return _Reads(*[column[known] for column in joined])


def _loads(touched: AccessColumns, op: Ints, tensor: Ints) -> Iterator[_Reads]:
    """Reads of accesses, each of an op and a tensor.

    Those of several planes are cut into their rows.
    """
    every = np.arange(len(op))
    form = touched.forms_of(every)
    is_deep = touched.forms.has_planes[form]
    flat = np.flatnonzero(~is_deep)
    addr = touched.addr[flat].astype(np.int64)
    rows, row_bytes, pitch = touched.forms.table[form[flat], :3].T
    nbytes = touched.nbytes[flat].astype(np.int64)
    row_bytes = np.where(form[flat] > 0, row_bytes, nbytes)
    yield _Reads(op[flat], tensor[flat], addr, rows, row_bytes, pitch)
    deep = np.flatnonzero(is_deep)
    of, starts, sizes = touched.pieces(deep)
    mine = deep[of]
    ones = np.ones(len(mine), np.int64)
    yield _Reads(op[mine], tensor[mine], starts, ones, sizes, 0 * ones)


def _tile_reads(
    trace: Trace, tensors: TensorNames, progress: Progress
) -> Iterator[_Reads]:
    """The blocks that tiles read: of older traces each is one row."""
    count = max(len(trace.order), 1)
    for block in trace.param_blocks():
        if block.schema.name != _TILE_READ:
            continue
        progress(float(block.rows[-1] + 1) / count)
        op = block.rows.astype(np.int64)
        values = {path: n.astype(np.int64) for path, n in integers(block).items()}
        spaces = _spaces(block)
        for number in range(len(spaces)):
            if not {f"sizes.{number}", f"addrs.{number}"} <= values.keys():
                break
            ones = np.ones(len(op), np.int64)
            addr = values[f"addrs.{number}"]
            size = np.maximum(values[f"sizes.{number}"], 0)
            rows = values.get(f"rows.{number}", ones)
            row_bytes = values.get(f"row_bytes.{number}", size)
            pitch = values.get(f"pitch.{number}", 0 * ones)
            # of what is no block that a machine could move only its size counts
            is_sound = (rows > 0) & (rows < _MOST_ROWS) & (rows * row_bytes == size)
            rows = np.where(is_sound, rows, 1)
            row_bytes = np.where(is_sound, row_bytes, size)
            tensor = np.full(len(op), -1)
            for string in np.unique(spaces[number]).tolist():
                mine = np.flatnonzero(spaces[number] == string)
                tensor[mine] = tensors.of(trace.strings[string], addr[mine])
            yield _Reads(op, tensor, addr, rows, row_bytes, pitch)


def _spaces(block: ParamBlock) -> list[Array]:
    """The memories of the blocks of tiles, numbers of strings, by block."""
    return [
        block.values[f"f{number}"]
        for number, (path, _) in enumerate(block.schema.leaves)
        if path.startswith("spaces.")
    ]


class _Readers(NamedTuple):
    """Which DMA made each of some reads, and in which launch (-1: in none)."""

    pe: Ints
    launch: Ints


def _readers(trace: Trace, reads: _Reads) -> _Readers:
    """Those of all reads."""
    pe = trace.op_columns.component[:][reads.op].astype(np.int64)
    by_call = Groups(trace.commands.cmd)
    call = by_call.first(trace.op_columns.cmd[:][reads.op])
    launch = np.append(trace.commands.launch[:], -1)[call].astype(np.int64)
    return _Readers(pe, launch)


def _different(reads: _Reads, values: Ints, tensors: int) -> Ints:
    """By tensor how many different values, one a read, those of its reads are."""
    used, which = numbered(values)
    pairs = np.unique(reads.tensor * len(used) + which)
    return counted(pairs // max(len(used), 1), tensors)


def _sums(tensor: Ints, nbytes: Ints, tensors: int) -> Floats:
    """By tensor the sum of bytes."""
    return np.bincount(tensor, nbytes, tensors).astype(np.float64)


class _Blocks(NamedTuple):
    """Different blocks that were read, sorted, and where those of each reader begin.

    ``keys`` has a column a block: tensor, PE, launch, address, rows, row_bytes, pitch.
    ``starts`` are the first blocks of each PE, launch and tensor, and ``before`` how
    many rows the blocks before each have, with the sum of all behind the last.
    """

    keys: Array
    starts: Ints
    before: Ints


def _blocks(reads: _Reads, readers: _Readers) -> _Blocks:
    """Those of all reads: of blocks that are read again in the same way one."""
    blocks = (reads.addr, reads.rows, reads.row_bytes, reads.pitch)
    keys = np.stack([reads.tensor, *readers, *blocks])
    keys = keys[:, np.lexsort(keys[::-1])]
    keys = keys[:, _is_new(keys)]
    starts = np.flatnonzero(_is_new(keys[:3]))
    return _Blocks(keys, starts, np.append(0, np.cumsum(keys[4])))


def _first_repeats(
    trace: Trace, reads: _Reads, readers: _Readers, is_refetched: Bools
) -> dict[int, int]:
    """By tensor the position of the first op that read a block which the same PE had
    read in the same way before, in one launch; where blocks only overlap, of the first
    op that read the tensor at all.
    """
    mine = np.flatnonzero(is_refetched[reads.tensor])
    position = trace.position[reads.op[mine]].astype(np.int64)
    blocks = (reads.addr, reads.rows, reads.row_bytes, reads.pitch)
    keys = np.stack([column[mine] for column in (reads.tensor, *readers, *blocks)])
    order = np.lexsort((position, *keys[::-1]))
    keys = keys[:, order]
    position = position[order]
    repeated = np.flatnonzero(~_is_new(keys))
    first: dict[int, int] = {}
    for some in (repeated, np.arange(len(position))):
        by_position = some[np.argsort(position[some], kind="stable")]
        tensors, places = np.unique(keys[0, by_position], return_index=True)
        for tensor, place in zip(tensors.tolist(), places.tolist(), strict=True):
            first.setdefault(tensor, int(position[by_position[place]]))
    return first


def _is_new(keys: Array) -> Bools:
    """Which columns differ from the one before; the first does."""
    is_new = np.ones(keys.shape[1], np.bool_)
    is_new[1:] = (keys[:, 1:] != keys[:, :-1]).any(0)
    return is_new


def _distinct(
    reads: _Reads, readers: _Readers, tensors: int, progress: Progress
) -> Floats:
    """By tensor the bytes that are read, each once a PE and launch."""
    blocks = computed_beside(lambda: _blocks(reads, readers), progress, 0.1)
    sums = np.zeros(tensors)
    for part in _groups_of_rows(blocks, stage(progress, 0.3, 1.0)):
        mine = blocks.keys[:, part]
        sums += computed_beside(partial(_distinct_in, mine, tensors), progress, 0.3)
    return sums


def _distinct_in(keys: Array, tensors: int) -> Floats:
    """``_distinct`` of some blocks; of very many rows each block counts whole."""
    tensor, _, _, _, rows, row_bytes, _ = keys
    if rows.sum() > _MOST_ROWS:
        return _sums(tensor, rows * row_bytes, tensors)
    return _sums(*_joined(keys), tensors)


def _groups_of_rows(blocks: _Blocks, progress: Progress) -> Iterator[slice]:
    """Slices of sorted blocks that keep those of a PE, launch and tensor together.

    Each has some _ROWS_AT_ONCE rows, or is one such group.
    """
    count = blocks.keys.shape[1]
    bounds = np.append(blocks.starts, count)
    # How many rows there are up to the end of each group.
    reached = blocks.before[bounds[1:]]
    group = 0
    while group < len(reached):
        low = int(bounds[group])
        progress(low / count)
        enough = blocks.before[low] + _ROWS_AT_ONCE
        group = max(group + 1, int(np.searchsorted(reached, enough)))
        yield slice(low, int(bounds[group]))


def _joined(keys: Array) -> tuple[Ints, Ints]:
    """Tensor numbers, and bytes that nothing before them in the group has."""
    tensor, _, _, addr, rows, row_bytes, pitch = keys
    group = running_count(_is_new(keys[:3]))
    block = repeated(np.arange(len(rows)), rows)
    number = ranges(np.zeros(len(rows), np.int64), rows)
    first = addr[block] + number * pitch[block]
    last = first + row_bytes[block]
    of = group[block]
    order = np.lexsort((first, of))
    first, last, of = first[order], last[order], of[order]
    # Places among all addresses stand for them: those of a group are put behind those
    # of the groups before, so that one running maximum is that of each group.
    places = np.unique(np.append(first, last))
    shift = of * len(places)
    reached = np.maximum.accumulate(np.searchsorted(places, last) + shift)
    before = np.append(-1, reached[:-1]) - shift
    is_same_group = before >= 0
    known = np.where(is_same_group, places[np.maximum(before, 0)], first)
    new = np.maximum(last - np.maximum(first, known), 0)
    return tensor[block[order]], new


def _advice(
    trace: Trace, touched: AccessColumns, tensors: TensorNames, progress: Progress
) -> dict[int, str]:
    """By tensor the tile that would fetch it once, where composites read it in tiles.

    The block of A is read again for each tile along n, that of B for each along m.
    """
    needed: dict[int, dict[str, int]] = {}
    for block in trace.param_blocks():
        progress(0.5)
        values = integers(block)
        if block.schema.kind != "gemm" or not values.keys() >= _TILED:
            continue
        for operand, axis, tile in _AGAIN_ALONG:
            size = values[axis].astype(np.int64)
            step = values[tile].astype(np.int64)
            addr = values[operand].astype(np.int64)
            tensor = tensors.of("hbm", addr)
            again = np.flatnonzero((tensor >= 0) & (size > step))
            for number in np.unique(tensor[again]).tolist():
                most = int(size[again][tensor[again] == number].max())
                sizes = needed.setdefault(number, {})
                sizes[axis] = max(sizes.get(axis, 0), most)
    said = {}
    for number, sizes in needed.items():
        said[number] = " and ".join(f"{axis} = {n}" for axis, n in sizes.items())
    return said

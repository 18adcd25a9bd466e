"""The ops of a trace, frame by frame: columns, params, and who waited for whom."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints, distinct
from kernbench.common.progress import Progress, no_progress
from kernbench.common.resumable import Resumable, Steps
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace.caching import cached_without_lock
from kernbench.trace.columns import OpColumns
from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.logs import Logs, map_columns
from kernbench.trace.mapped import MappedColumn, Translate
from kernbench.trace.params import (
    Block,
    ParamBlock,
    ParamsReader,
    Schema,
    read_blocks,
    read_schemas,
)
from kernbench.trace.schema import Columns, whole

_UNKNOWN = KIND_RANK["unknown"]

_BLOCK_BITS = 12
"""Of the rows in a block, of which is known in which chunks there are ops that waited
for one."""

_CHUNKS = 16
"""Chunks between two calls of progress; one takes some 100 us."""

_JOINED_ROWS = 1 << 13
"""Ops of which a block is joined, about: a dozen columns of them take a ms or two."""


class Chunk(NamedTuple):
    """A sound ``ops`` frame.

    Its first op was recorded as row ``first_recorded`` of the run; in this reading its
    ops are ``rows``, which is not the same behind a damaged frame. ``blocks`` are the
    params of its ops, by schema.
    """

    first_recorded: int
    rows: range
    columns: Columns
    blocks: dict[int, Block]


class _Part(NamedTuple):
    """Ops of one schema in a chunk: their rows, and where in its block their params
    are.
    """

    chunk: Chunk
    rows: Array
    params: Array


class OpFrames:
    """The ops of a file, by row: the order of completion.

    A row counts the ops that can be read. Where a frame is damaged that is less than
    what was recorded, and whatever refers to rows is counted anew. ``decode`` makes
    values of the leaves of params, by the letter of their type; ``name_of`` names the
    op in a row for errors.

    Its caches are harmless to fill twice: what is in them is made of the file alone,
    and each entry is put there in one step.
    """

    def __init__(
        self,
        file: FrameFile,
        logs: Logs,
        decode: Mapping[str, Callable[[Any], Any]],
        name_of: Callable[[int], str],
    ) -> None:
        self._file = file
        self._logs = logs
        self._decode = decode
        self._name_of = name_of
        self._readers: dict[int, ParamsReader] = {}
        self._sound_blocks: set[tuple[int, int]] = set()
        self._waiting = Resumable(self._waiting_chunks)
        self.schemas = read_schemas(file)

    @cached_without_lock
    def chunks(self) -> list[Chunk]:
        """The sound frames, in the order of the file.

        A frame that claims rows of a frame before it counts as damaged.
        """
        chunks: list[Chunk] = []
        scratch = np.zeros(len(self.schemas), np.int64)

        def read(frame: Frame) -> Chunk:
            columns = self._logs.read_frame(frame)
            first_recorded = whole(frame.head["first"])
            recorded_before = 0
            rows_before = 0
            if chunks:
                last = chunks[-1]
                recorded_before = last.first_recorded + len(last.rows)
                rows_before = last.rows.stop
            if first_recorded < recorded_before:
                raise TraceFormatError(
                    f"its first row {first_recorded} is in a chunk before"
                )
            blocks = read_blocks(
                frame,
                self._file.body(frame),
                self.schemas,
                columns["schema"],
                columns["param"],
                scratch,
            )
            rows = range(rows_before, rows_before + len(columns["schema"]))
            return Chunk(first_recorded, rows, columns, blocks)

        for chunk in self._file.each("ops", read):
            chunks.append(chunk)
        return chunks

    @cached_without_lock
    def row_here(self) -> Translate:
        """Makes rows of this reading of rows as recorded; see ``rows_of_reading``."""
        spans = [
            (chunk.first_recorded, chunk.rows.start, len(chunk.rows))
            for chunk in self.chunks
            if chunk.rows
        ]
        return rows_of_reading(spans)

    @cached_without_lock
    def _first_rows(self) -> list[int]:
        return [chunk.rows.start for chunk in self.chunks]

    def place_of(self, row: int) -> tuple[int, int]:
        """The number of the chunk that has a row, and the row's place in it."""
        number = bisect_right(self._first_rows, row) - 1
        return number, row - self._first_rows[number]

    @cached_without_lock
    def columns(self) -> OpColumns:
        """The columns of all ops, with the rank of each op's kind.

        The kind is the schema's, so no file needs a column of it.
        """
        frames = [chunk.columns for chunk in self.chunks]
        translate = {"dep": self.row_here}
        log = map_columns("ops", frames, self._file.map, translate)
        kind = MappedColumn[np.uint8](
            self._file.map,
            [columns["schema"] for columns in frames],
            np.uint32,
            self._kind_ranks.__getitem__,
        )
        return OpColumns(**log, kind=kind)

    @property
    def _kind_ranks(self) -> Array:
        """The rank of the kind of each schema; of one that is lost: unknown."""
        ranks = []
        for schema in self.schemas:
            rank = _UNKNOWN
            if schema is not None:
                rank = KIND_RANK.get(schema.kind, _UNKNOWN)
            ranks.append(rank)
        return np.array(ranks, np.uint8)

    # -- params ----------------------------------------------------------------------

    def params(self, row: int) -> dict[str, Any]:
        """The params of an op, as they were recorded; {} if their schema is lost."""
        number, place = self.place_of(row)
        chunk = self.chunks[number]
        schema_number = int(chunk.columns["schema"][place])
        block = chunk.blocks.get(schema_number)
        if block is None:
            return {}
        schema, values = block
        leaves: tuple[Any, ...] = ()
        if schema.leaves:
            leaves = values[chunk.columns["param"][place]].item()
        try:
            reader = self._readers.get(schema_number)
            if reader is None:
                reader = self._reader(schema_number, schema)
            return reader.params(leaves)
        except TraceFormatError as why:
            raise TraceFormatError(f"{self._name_of(row)}: {why}") from None

    def _reader(self, number: int, schema: Schema) -> ParamsReader:
        reader = self._readers.get(number)
        if reader is None:
            reader = ParamsReader(schema, self._decode)
            self._readers[number] = reader
        return reader

    def param_blocks(self, rows: Array | None = None) -> Iterator[ParamBlock]:
        """The params of ops as columns: blocks of some thousand ops of one schema.

        They are those of all ops, or of ``rows``, which ascend and are one at least.
        The rows of a block ascend, and it ends before those that are far behind begin.
        """
        chunks = self.chunks
        if rows is not None:
            first, _ = self.place_of(int(rows[0]))
            last, _ = self.place_of(int(rows[-1]))
            chunks = chunks[first : last + 1]
        for low in range(0, len(chunks), _CHUNKS):
            yield from self._joined_blocks(chunks[low : low + _CHUNKS], rows)

    def _joined_blocks(
        self, chunks: Sequence[Chunk], rows: Array | None
    ) -> Iterator[ParamBlock]:
        """Those of a few chunks: alike blocks are joined, as each takes its time."""
        alike = defaultdict[tuple[int, Any], list[_Part]](list)
        for chunk in chunks:
            here = np.arange(chunk.rows.start, chunk.rows.stop)
            if rows is not None:
                low, high = np.searchsorted(rows, (chunk.rows.start, chunk.rows.stop))
                here = rows[low:high]
            places = here - chunk.rows.start
            schemas = chunk.columns["schema"][places]
            params = chunk.columns["param"][places]
            for number, (_, values) in chunk.blocks.items():
                mine = schemas == number
                if mine.any():
                    part = _Part(chunk, here[mine], params[mine])
                    alike[number, values.dtype].append(part)
        for (number, _), parts in alike.items():
            ends = np.cumsum([len(part.rows) for part in parts])
            numbered = zip((ends // _JOINED_ROWS).tolist(), parts, strict=True)
            for _, some in groupby(numbered, itemgetter(0)):
                yield self._joined_block(number, [part for _, part in some])

    def _joined_block(self, number: int, parts: Sequence[_Part]) -> ParamBlock:
        """One block of what several chunks have of the schema of a number."""
        schema, values = parts[0].chunk.blocks[number]
        rows = np.concatenate([part.rows for part in parts])

        def read() -> Array:
            found = np.empty(len(rows), values.dtype)
            end = 0
            for part in parts:
                begin = end
                end += len(part.rows)
                found[begin:end] = self._values(part.chunk, number, part.params)
            return found

        return ParamBlock(schema, rows, read)

    def _values(self, chunk: Chunk, number: int, places: Array) -> Array:
        """The values of a block at ``places``; TraceFormatError names what is wrong."""
        schema, values = chunk.blocks[number]
        if not schema.leaves:
            return np.empty(len(places), "u1")
        found = values[places]
        block = (chunk.rows.start, number)
        if block not in self._sound_blocks:
            # A damaged trace may have others, of no op, which say nothing of these.
            rows = np.flatnonzero(chunk.columns["schema"] == number)
            used = chunk.columns["param"][rows]
            if not np.array_equal(used, np.arange(len(values))):
                values = values[used]
            wrong = self._reader(number, schema).first_wrong(values)
            if wrong is not None:
                at, why = wrong
                name = self._name_of(chunk.rows.start + int(rows[at]))
                raise TraceFormatError(f"{name}: {why}")
            self._sound_blocks.add(block)
        return found

    # -- dependencies ----------------------------------------------------------------

    def deps(self, row: int) -> Array:
        """The rows that the op in ``row`` waited for, all of which are before it.

        Those that are lost are left out.
        """
        number, place = self.place_of(row)
        columns = self.chunks[number].columns
        lengths = columns["dep_n"]
        first = lengths[:place].sum()
        end = lengths[: place + 1].sum()
        rows = self.row_here(columns["dep"][first:end])
        return rows[(rows >= 0) & (rows < row)]

    def effects(self, row: int, progress: Progress = no_progress) -> Iterator[int]:
        """The rows that waited for the op in ``row``, ascending.

        They are looked for frame by frame, so the first come at once.
        """
        number, place = self.place_of(row)
        recorded = self.chunks[number].first_recorded + place
        for waiting in self._waiting.result(progress).get(recorded >> _BLOCK_BITS, ()):
            if waiting < number:
                continue
            progress(waiting / len(self.chunks))
            chunk = self.chunks[waiting]
            found = np.flatnonzero(chunk.columns["dep"] == recorded)
            ends = np.cumsum(chunk.columns["dep_n"])
            for place in np.searchsorted(ends, found, side="right").tolist():
                yield place + chunk.rows.start

    def _waiting_chunks(self) -> Steps[dict[int, list[int]]]:
        """By block of rows as recorded the numbers of the chunks that have an op which
        waited for one of them, ascending.

        Most wait for an op shortly before, so a few of a thousand chunks have it.
        """
        found = defaultdict[int, list[int]](list)
        for number, chunk in enumerate(self.chunks):
            if number % _CHUNKS == 0:
                yield number / len(self.chunks)
            blocks = distinct(chunk.columns["dep"] >> _BLOCK_BITS)
            for block in blocks.tolist():
                found[block].append(number)
        return found


def rows_of_reading(spans: list[tuple[int, int, int]]) -> Translate:
    """What makes rows of this reading of rows as they were recorded.

    Each of ``spans`` is a sound chunk: its first row as recorded, its first row in this
    reading, and how many it has. A row of a damaged chunk, and one that says that there
    is none, becomes -1.
    """
    firsts, bases, sizes = np.array(spans or [(0, 0, 0)]).T
    end = bases[-1] + sizes[-1]
    is_whole = firsts[-1] == bases[-1]  # no chunk is lost

    def row_here(recorded: Array) -> Ints:
        rows = recorded.astype(np.int64)
        if is_whole:
            rows[rows >= end] = -1
            return rows
        chunk = np.searchsorted(firsts, rows, side="right") - 1
        offset = rows - firsts[chunk]
        is_here = (chunk >= 0) & (offset < sizes[chunk])
        return np.where(is_here, bases[chunk] + offset, -1)

    return row_here

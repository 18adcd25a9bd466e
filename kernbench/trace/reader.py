"""``Trace``: a mapped trace file as records, columns and tensors, decoded when they are asked for.

Owns the meaning of what the frames hold. Rows are in completion order, positions in canonical.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES, Tolerance
from kernbench.common.messages import Transfer, Wait
from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, canonical_order
from kernbench.sim_engine.verify import Expectation
from kernbench.trace.frames import Damage, Frame, FrameFile, Lazy, Numbered, untold
from kernbench.trace.params import Block, ParamBlock, decoder, read_blocks, read_schemas
from kernbench.trace.rows import Command, Launch, Source, Text
from kernbench.trace.schema import FIXED, LOGS, Columns, read_columns, whole
from kernbench.trace.stored import Read, Stored, counter, join_columns


class _Chunk(NamedTuple):
    """A sound ops frame; its first row as recorded, and its rows as counted here."""

    first: int
    rows: range
    columns: Columns
    blocks: dict[int, Block]


def _last(found: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """The last, if any; no more than one is kept."""
    return next(iter(deque(found, maxlen=1)), None)


def _lists(columns: Columns, name: str) -> Lazy[tuple[int, ...]]:
    """The list column ``name`` of one frame, a tuple a row."""
    values, ends = columns[name], np.cumsum(columns[f"{name}_n"], dtype=np.int64)
    starts = ends - columns[f"{name}_n"]
    return Lazy(len(ends), lambda i: tuple(values[starts[i] : ends[i]].tolist()))


class Trace:
    """One trace file. Nothing that it holds makes a method raise anything but TraceFormatError.

    ``header`` and ``end`` are the heads of the first and last frame (``end`` None: cut off),
    ``damaged`` the frames found bad so far (``check`` looks into all); ``cut``: only some ops.
    Rows are in completion order, positions in canonical order: ``order[position]`` is a row,
    ``position[row]`` a position. Nodes are indices of ``node_ids``, names are of ``strings``; of a
    list column X row i has ``X[X_ptr[i]:X_ptr[i + 1]]``.
    """

    def __init__(self, file: FrameFile) -> None:
        self._file = file
        self.path, self.header, self.damaged = file.path, file.header, file.damaged
        self.fingerprint = file.fingerprint
        self.strings = Numbered[str](file, "strings", file.strings, "?{}".format)
        self.paths = Numbered[tuple[int, ...]](
            file, "paths", self._read_paths, lambda _: ()
        )
        self._tensors = Numbered[Array | None](
            file, "tensors", self._read_tensors, lambda _: None
        )
        self.schemas = read_schemas(file)
        text, tensor = self.strings.get, self._tensors.get
        self._leaves: dict[str, Callable[[Any], Any]]
        self._leaves = {"b": bool, "s": text, "r": text, "t": tensor}
        self._decoders = dict[int, Callable[[Sequence[Any]], dict[str, Any]]]()
        self._parts: dict[str, list[Columns]] = {}  # of a log, a frame each
        self._ranges: dict[str, Array] = {}
        self._frame = lru_cache(8)(self._joined)
        self.end = _last(file.each("end", lambda frame: frame.head))
        self.complete = self.end is not None
        self.cut = "cut" in self.header

    @classmethod
    def open(cls, path: str | Path, told: Callable[[Frame], None] = untold) -> Trace:
        """Map the file and find its frames; TraceFormatError if it has no readable first frame."""
        return cls(FrameFile(Path(path), told=told))

    def check(self) -> list[Damage]:
        """Look into every frame; all that are damaged."""
        for name in ("edges", "transfers", "waits", "commands", "launches", "texts"):
            getattr(self, name)
        for table in (self.strings, self.paths, self._tensors):
            table.known()
        _ = self._chunks, self.allocs, self.expects, self.sources, self.verify_report
        return self.damaged

    # -- the machine ------------------------------------------------------------

    @cached_property
    def _machine(self) -> tuple[Columns, Columns, dict[str, Any]]:
        """Nodes, edges, spec; without a sound topology frame every string is a node somewhere."""
        for found in self._file.each("topology", self._read_topology):
            return found
        n = self.strings.known()  # of sip, cube and pe: -1
        nodes = {
            k: np.full(n, -(c.load == "i4"), c.load) for k, c in LOGS["nodes"].items()
        }
        return nodes, {k: np.empty(0, c.load) for k, c in LOGS["edges"].items()}, {}

    def _read_topology(self, frame: Frame) -> tuple[Columns, Columns, dict[str, Any]]:
        body, head = self._file.inflate(frame), frame.head
        count = whole(head["nodes"]["n"], len(self.strings))
        tables = {"node": range(count), "string": self.strings}
        nodes, edges = (
            read_columns(log, head[log], body, tables) for log in ("nodes", "edges")
        )
        if not isinstance(head["spec"], dict):
            raise TraceFormatError("its spec is no map")
        return nodes, edges, head["spec"]

    @cached_property
    def node_ids(self) -> list[str]:
        """The id of each node."""
        return self.strings[: len(self._machine[0]["sip"])]

    @cached_property
    def node_index(self) -> dict[str, int]:
        """The index of each node id."""
        return {node: i for i, node in enumerate(self.node_ids)}

    @cached_property
    def nodes(self) -> SimpleNamespace:
        """Columns: sip, cube, pe (-1: none), x_mm, y_mm, overhead_ns; lists: type, engine."""
        return self._spelt("nodes", self._machine[0])

    @cached_property
    def edges(self) -> SimpleNamespace:
        """Columns: src, dst (nodes), distance_mm, routing_weight_mm, bandwidth_gbs; list: kind."""
        return self._spelt("edges", self._machine[1])

    def _spelt(self, tag: str, columns: Columns) -> SimpleNamespace:
        texts = [name for name, column in LOGS[tag].items() if column.limit == "string"]
        spelt = {
            name: [self.strings[i] for i in columns[name].tolist()] for name in texts
        }
        return SimpleNamespace(**{**columns, **spelt})

    @property
    def spec(self) -> dict[str, Any]:
        """The topology's spec as maps, lists and scalars."""
        return self._machine[2]

    # -- logs -------------------------------------------------------------------

    @cached_property
    def _tables(self) -> dict[str, Sequence[Any]]:
        """What the numbers of index columns stand for."""
        nodes = Lazy(len(self._machine[0]["sip"]), self.strings.get)
        texts = {"node": nodes, "string": self.strings, "text": self.strings}
        return {**FIXED, **texts, "path": self.paths, "space": self._spaces}

    def _columns(self, frame: Frame) -> Columns:
        found = read_columns(
            frame.tag, frame.head, self._file.body(frame), self._tables
        )
        if frame.tag == "alloc" and np.any(
            (found["addr"] | found["nbytes"]) >> np.uint64(52)
        ):
            raise TraceFormatError("an allocation lies beyond all addresses of 52 bits")
        return found

    def _log(self, tag: str, frames: slice = slice(None)) -> SimpleNamespace:
        if tag not in self._parts:
            self._parts[tag] = list(self._file.each(tag, self._columns))
        read = dict.fromkeys(("row", "holder", "dep"), lambda rows: self._counted(rows))
        return SimpleNamespace(
            **join_columns(tag, self._parts[tag][frames], self._file.map, read)
        )

    def _joined(self, tag: str, frame: int) -> SimpleNamespace:
        """A frame of a log as arrays."""
        log = vars(self._log(tag, slice(frame, frame + 1)))
        return SimpleNamespace(**{name: column[:] for name, column in log.items()})

    def told(
        self, tag: str, log: SimpleNamespace, rows: Any = slice(None)
    ) -> Iterator[Any]:
        """Rows of a log as they were recorded: names for numbers, lists for ``many`` columns."""
        columns: list[list[Any]] = []
        for name, column in LOGS[tag].items():
            values = getattr(log, name)
            if column.many:
                ends = getattr(log, f"{name}_ptr")
                cuts = zip(ends[:-1][rows], ends[1:][rows], strict=True)
                cells = [values[a:b].tolist() for a, b in cuts]
            else:
                cells = values[rows].tolist()
            if column.limit:
                table = self._tables[column.limit]
                cells = [
                    [table[n] for n in c] if column.many else table[c] for c in cells
                ]
            columns.append(cells)
        return zip(*columns, strict=True)

    def _told_of(self, tag: str, name: str, *keys: int) -> Iterator[Any]:
        """The rows of a log whose column ``name`` is one of ``keys``, as ``told``."""
        if tag not in self._ranges:  # of the keys in each frame, but for -1
            column = getattr(getattr(self, tag), name)
            parts = np.split(column[:].astype(np.int64), column.firsts[1:])[:-1]
            ends = [
                (k.view(np.uint64).min(initial=1 << 62), k.max(initial=-1))
                for k in parts
            ]
            self._ranges[tag] = np.array(ends, np.int64).reshape(-1, 2).T
        (low, high), first, last = self._ranges[tag], min(keys), max(keys)
        for at in np.flatnonzero(
            (low <= last) & (first <= high) | (first < 0)
        ).tolist():
            column = getattr(log := self._frame(tag, at), name)
            mine = column == first if first == last else np.isin(column, keys)
            yield from self.told(tag, log, np.flatnonzero(mine))

    def _read_paths(self, frame: Frame) -> Lazy[tuple[int, ...]]:
        return _lists(self._columns(frame), "node")

    def _read_tensors(self, frame: Frame) -> Lazy[Array | None]:
        columns, body, dtypes = (
            self._columns(frame),
            self._file.body(frame),
            [*DTYPES.values()],
        )
        shapes, offsets = _lists(columns, "shape"), columns["offset"]

        def tensor(i: int) -> Array:
            dtype = dtypes[columns["dtype"][i]].numpy
            return np.ndarray(shapes[i], dtype, body, int(offsets[i]))

        for i in range(len(offsets)):
            tensor(i)  # lies inside the body, or raises
        return Lazy(len(offsets), cache(tensor))

    def tensor(self, number: int) -> Array:
        """A stored array, read-only, on the mapping; TraceFormatError if it is not there."""
        array = self._tensors.get(number)
        if array is None:
            raise TraceFormatError(
                f"{self.path}: tensor {number} is not in the file, or damaged"
            )
        return array

    # -- ops --------------------------------------------------------------------

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        chunks = [_Chunk(0, range(0), {}, {})]
        scratch = np.zeros(len(self.schemas), np.int64)

        def chunk(frame: Frame) -> _Chunk:
            columns, first, before = (
                self._columns(frame),
                whole(frame.head["first"]),
                chunks[-1],
            )
            if first < before.first + len(before.rows):
                raise TraceFormatError(f"its first row {first} is in a chunk before")
            schema, param, start = columns["schema"], columns["param"], before.rows.stop
            body = self._file.body(frame)
            blocks = read_blocks(frame, body, self.schemas, schema, param, scratch)
            return _Chunk(first, range(start, start + len(schema)), columns, blocks)

        for found in self._file.each("ops", chunk):
            chunks.append(found)
        return chunks[1:]

    @cached_property
    def _counted(self) -> Read:
        """Rows as recorded -> as counted here."""
        return counter(
            [(c.first, c.rows.start, len(c.rows)) for c in self._chunks if c.rows]
        )

    def _chunk_of(self, row: int) -> tuple[int, int]:
        """The number of the chunk of a row, and the row's place in it."""
        number = bisect_right(self._starts, row) - 1
        return number, row - self._starts[number]

    @cached_property
    def _starts(self) -> list[int]:
        """The first row of each chunk."""
        return [chunk.rows.start for chunk in self._chunks]

    @cached_property
    def op_columns(self) -> SimpleNamespace:
        """Columns t_start … param of ``LOGS``, kind (rank), list dep: rows waited for; -1: lost."""
        self._parts["ops"] = parts = [chunk.columns for chunk in self._chunks]
        ranks = np.array(
            [KIND_RANK.get(s.kind, 3) if s else 3 for s in self.schemas], np.uint8
        )
        schemas, log = [part["schema"] for part in parts], self._log("ops")
        log.kind = Stored(self._file.map, schemas, np.uint32, ranks.__getitem__)
        return log

    @cached_property
    def order(self) -> Array:
        """The row at each canonical position."""
        order = canonical_order(self.op_columns.t_start[:], self.op_columns.kind[:])
        return order.astype(np.int32 if len(order) >> 31 == 0 else np.int64)

    @cached_property
    def position(self) -> Array:
        """The canonical position of each row."""
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(position), dtype=position.dtype)
        return position

    @cached_property
    def ops(self) -> Lazy[OpRecord]:
        """All ops in canonical order; their dependency_ids are positions."""
        return Lazy(len(self.order), partial(self._record, None))

    @cached_property
    def executable_positions(self) -> Array:
        """The canonical positions of ``executable``."""
        mine = np.flatnonzero(self.op_columns.kind[self.order] < KIND_RANK["unknown"])
        return mine.astype(self.order.dtype)

    @cached_property
    def executable(self) -> Lazy[OpRecord]:
        """What the executor runs: all but TileTokens and unknown kinds, in canonical order.

        Their dependency_ids index this sequence; those on ops that it leaves out are not listed.
        Of a cut trace asking for one is a KernbenchError: what memory held before is not there.
        """
        mine = self.executable_positions
        return Lazy(len(mine), self.refuse if self.cut else partial(self._record, mine))

    def refuse(self, index: int = 0) -> OpRecord:
        """KernbenchError: this is a cut, of which nothing can be executed."""
        raise KernbenchError(
            f"{self.path} was cut from a trace, so what memory held before is not known; "
            "ask the whole trace"
        )

    def _record(self, mine: Array | None, index: int) -> OpRecord:
        """The op at ``index`` of the positions ``mine`` (None: of all)."""
        row = int(self.order[index if mine is None else mine[index]])
        number, at = self._chunk_of(row)
        schema, node, name, start, end = (
            self._chunks[number].columns[column][at].item()
            for column in ("schema", "component", "name", "t_start", "t_end")
        )
        held = np.sort(self.position[self.deps(row)])
        if mine is not None and len(held):
            places = np.searchsorted(mine, held)
            held = places[mine[np.minimum(places, len(mine) - 1)] == held]
        known = self.schemas[schema]
        kind, after = known.kind if known is not None else "unknown", held.tolist()
        what = self.node_ids[node], kind, self.strings[name], self.params(row)
        return OpRecord(float(start), float(end), *what, after)

    def params(self, row: int) -> dict[str, Any]:
        """The params of the op in ``row``, as they were recorded; {} if their schema is lost."""
        number, at = self._chunk_of(row)
        columns, blocks = self._chunks[number][2:]
        if (block := blocks.get(schema := int(columns["schema"][at]))) is None:
            return {}
        known, values = block
        leaves = values[columns["param"][at]].item() if known.leaves else ()
        if (made := self._decoders.get(schema)) is None:
            made = self._decoders[schema] = decoder(known, self._leaves)
        return made(leaves)

    def param_blocks(self, rows: Array | None = None) -> Iterator[ParamBlock]:
        """The params of ops as columns, a block a chunk and schema: of all, or of ``rows``."""
        chunks = self._chunks
        if rows is not None:  # ascending, at least one
            first, last = (self._chunk_of(int(row))[0] for row in rows[[0, -1]])
            chunks = chunks[first : last + 1]
        for chunk in chunks:
            here = np.arange(chunk.rows.start, chunk.rows.stop)
            if rows is not None:
                here = rows[
                    slice(*np.searchsorted(rows, (chunk.rows.start, chunk.rows.stop)))
                ]
            at = here - chunk.rows.start
            numbers, param = (chunk.columns[name][at] for name in ("schema", "param"))
            for number, (schema, values) in chunk.blocks.items():
                if (mine := numbers == number).any():
                    picked = (
                        values[param[mine]]
                        if schema.leaves
                        else np.empty(mine.sum(), "u1")
                    )
                    yield ParamBlock(schema, picked, here[mine])

    def deps(self, row: int) -> Array:
        """The rows that the op in ``row`` waited for."""
        number, at = self._chunk_of(row)
        columns = self._chunks[number].columns
        first, end = columns["dep_n"][:at].sum(), columns["dep_n"][: at + 1].sum()
        held = self._counted(columns["dep"][first:end])
        return held[(held >= 0) & (held < row)]

    def effects(self, row: int) -> Iterator[int]:
        """The rows that waited for the op in ``row``, ascending."""
        number, at = self._chunk_of(row)
        for chunk in self._chunks[number:]:
            found = np.flatnonzero(
                chunk.columns["dep"] == self._chunks[number].first + at
            )
            if len(found):
                owners = np.searchsorted(
                    np.cumsum(chunk.columns["dep_n"]), found, side="right"
                )
                yield from (n + chunk.rows.start for n in owners.tolist())

    # -- what else happened -----------------------------------------------------

    @cached_property
    def transfers(self) -> SimpleNamespace:
        """Columns cmd, row (-1: no op's), path (of ``paths``), t0, nbytes, bursts, list start."""
        return self._log("transfers")

    def transfers_of(self, row: int) -> list[Transfer]:
        """The transactions of the op in ``row``, but for those whose path is lost."""
        return [
            (tuple(self.node_ids[node] for node in path), *rest)
            for _, _, path, *rest in self._told_of("transfers", "row", row)
            if path and len(rest[-1]) >= len(path) - 1
        ]

    @cached_property
    def waits(self) -> SimpleNamespace:
        """Columns: cmd, row, node, reason (of WAIT_REASONS), t0, t1, holder (row or -1)."""
        return self._log("waits")

    def waits_of(self, row: int) -> list[Wait]:
        """The waits of the op in ``row``; the holder is a row, or -1."""
        return self.waits_by([row]).get(row, [])

    def waits_by(self, rows: Sequence[int]) -> dict[int, list[Wait]]:
        """The waits of the ops in ``rows``, by row."""
        found: dict[int, list[Wait]] = {}
        for _, row, *wait in self._told_of("waits", "row", *rows) if rows else ():
            found.setdefault(row, []).append(tuple(wait))
        return found

    @cached_property
    def commands(self) -> SimpleNamespace:
        """Columns cmd, pe, launch, call, file, line, function, awaits, t_issue, t_resume."""
        return self._log("commands")

    def command(self, cmd: int) -> Command | None:
        """The tl call of that number; None if it was not recorded."""
        for row in self._told_of("commands", "cmd", cmd):
            number, pe, launch, call, *site, awaits, t_issue, t_resume = row
            return Command(
                number, pe, launch, call, Site(*site), awaits, t_issue, t_resume
            )
        return None

    @cached_property
    def launches(self) -> list[Launch]:
        """All launches that ended."""
        told = self.told("launches", self._log("launches"))
        return [Launch(n, name, tuple(pes), *times) for n, name, pes, *times in told]

    @cached_property
    def texts(self) -> list[Text]:
        """What was printed, asserted or warned of, as it happened."""
        return [Text(*row) for row in self.told("text", self._log("text"))]

    @cached_property
    def alloc_columns(self) -> SimpleNamespace:
        """The columns of ``LOGS``: dtype is of DTYPES, space of the list ``spaces`` beside them."""
        return SimpleNamespace(**vars(self._log("alloc")), spaces=self._spaces)

    @cached_property
    def _spaces(self) -> list[str]:
        """The kinds of memory: every alloc frame names those so far."""
        named = self._file.each(
            "alloc", lambda f: [*map(str, f.head["spaces"])], body=False
        )
        return max(named, key=len, default=[])

    @cached_property
    def allocs(self) -> list[Shard]:
        """All shards, replicas and scratch handles, in the order of their making."""
        return self.shards()

    def shards(self, rows: Any = slice(None)) -> list[Shard]:
        """Some ``rows`` of ``allocs``."""
        shards = []
        for row in self.told("alloc", self.alloc_columns, rows):
            tensor, dtype, space, addr, va, nbytes, owner, *box, cmd, rank, index = row
            boxes = tuple(box[:rank]), tuple(box[3 : 3 + rank])
            shards.append(
                Shard(tensor, dtype, space, addr, va, nbytes, owner, *boxes, cmd, index)
            )
        return shards

    @cached_property
    def expects(self) -> list[Expectation]:
        """The references, in the order in which they were given."""
        return list(self._file.each("expect", self._read_expect))

    def _read_expect(self, frame: Frame) -> Expectation:
        head = frame.head
        if head["dtype"] not in DTYPES or not isinstance(head["name"], str):
            raise TraceFormatError("its name or dtype is none")
        addr, number, after, shard = map(
            whole, (head["addr"], head["tensor"], head["after"], head["shard"])
        )
        what = (
            self.tensor(number),
            head["dtype"],
            Tolerance(*map(float, head["tolerance"])),
            after,
        )
        of = head["name"], shard, tuple(map(whole, head["origin"]))
        return Expectation(str(head["space"]), addr, *what, *of)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The kernel sources by file."""

        def read(frame: Frame) -> tuple[str, Source]:
            text = self._file.inflate(frame).decode(errors="replace")
            return str(frame.head["file"]), Source(str(frame.head["kernel"]), text)

        return dict(self._file.each("source", read))

    @cached_property
    def verify_report(self) -> dict[str, Any] | None:
        """Phase 2's verdict as it was recorded; None if it did not run."""
        results = self._file.each("verify", lambda frame: frame.head["results"])
        return _last(found for found in results if isinstance(found, dict))

    @cached_property
    def end_ns(self) -> float:
        """When the run ended, ns; of a file that was cut off, when its last op or call did."""
        end = (self.end or {}).get("end_ns")
        if isinstance(end, (int, float)) and np.isfinite(end):
            return float(end)
        last = (self.op_columns.t_end, self.commands.t_resume)
        return max((float(times.max()) for times in last if len(times)), default=0.0)

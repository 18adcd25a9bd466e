"""``Trace``: a mapped trace file as records, columns and tensors, decoded when they are asked for.

Owns the meaning of what the frames hold. Rows are in completion order, positions in canonical.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import DTYPES, Tolerance
from kernbench.common.messages import WAIT_REASONS, Transfer, Wait
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import KIND_RANK, canonical_order
from kernbench.trace.frames import (
    Columns,
    Damage,
    Frame,
    FrameFile,
    Numbered,
    join_columns,
    read_columns,
    read_strings,
    whole,
)
from kernbench.trace.params import Blocks, ParamBlock, decode, read_blocks, read_schemas
from kernbench.trace.rows import Command, Expect, Launch, Records, Source, Text
from kernbench.trace.schema import DTYPE_NAMES, LOGS

Array = npt.NDArray[Any]
_SPACES = 256  # kinds of memory


class _Chunk(NamedTuple):
    """A sound ops frame; its first row as recorded, and as counted here."""

    first: int
    base: int
    columns: Columns
    blocks: Blocks


def _said(head: dict[str, Any]) -> dict[str, Any]:
    """A head without what only packs it."""
    return {key: value for key, value in head.items() if key not in ("crc", "pad")}


class Trace:
    """One trace file. Nothing that it holds makes a method raise anything but TraceFormatError.

    ``header`` and ``end`` are the heads of the first and last frame (``end`` None: cut off).
    Rows are in completion order, positions in canonical order: ``order[position]`` is a row,
    ``position[row]`` a position. Nodes are indices of ``node_ids``, names are of ``strings``.
    """

    def __init__(self, file: FrameFile) -> None:
        self._file = file
        self.path = file.path
        self.header = _said(file.header)
        read = partial(read_strings, file)
        self.strings = Numbered[str](file, "strings", read, "?{}".format)
        self.paths = Numbered[tuple[int, ...]](file, "paths", self._read_paths, lambda _: ())
        self._tensors = Numbered[Array | None](file, "tensors", self._read_tensors, lambda _: None)
        self.schemas = read_schemas(file)
        self._sorted: dict[str, tuple[Array, Array]] = {}
        ends = list(file.each("end", lambda frame: frame.head))
        self.end = _said(ends[-1]) if ends else None
        self.complete = bool(ends)

    @classmethod
    def open(cls, path: str | Path) -> Trace:
        """Map the file and find its frames; TraceFormatError if it has no readable first frame."""
        return cls(FrameFile(Path(path)))

    @property
    def damaged(self) -> list[Damage]:
        """(offset, tag, reason) of frames found bad so far; ``check`` looks into all."""
        return self._file.damaged

    def check(self) -> list[Damage]:
        """Look into every frame; all that are damaged."""
        for name in ("edges", "transfers", "waits", "commands", "launches", "texts"):
            getattr(self, name)
        for table in (self.strings, self.paths, self._tensors):
            table.known()
        _ = self.op_columns, self.allocs, self.expects, self.sources, self.verify_report
        return self.damaged

    # -- the machine ------------------------------------------------------------

    @cached_property
    def _machine(self) -> tuple[Columns, Columns, dict[str, Any]]:
        """Nodes, edges, spec; without a sound topology frame every string is a node somewhere."""
        found = list(self._file.each("topology", self._read_topology))
        if found:
            return found[0]
        n = len(self.strings.known())
        nodes = {name: np.zeros(n, column.load) for name, column in LOGS["nodes"].items()}
        for name in ("sip", "cube", "pe"):
            nodes[name] -= 1
        return nodes, join_columns("edges", []), {}

    def _read_topology(self, frame: Frame) -> tuple[Columns, Columns, dict[str, Any]]:
        body, head = self._file.inflate(frame), frame.head
        count = whole(head["nodes"]["n"])
        limits = {"node": count, "string": len(self.strings)}
        nodes = read_columns("nodes", head["nodes"], body, limits.__getitem__)
        edges = read_columns("edges", head["edges"], body, limits.__getitem__)
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
        columns = dict(self._machine[0])
        texts = {k: self._texts_of(columns.pop(k)) for k in ("type", "engine")}
        return SimpleNamespace(**columns, **texts)

    @cached_property
    def edges(self) -> SimpleNamespace:
        """Columns: src, dst (nodes), distance_mm, routing_weight_mm, bandwidth_gbs; list: kind.

        ``kind_of(edge)`` is the kind of one.
        """
        columns = dict(self._machine[1])
        kind = self._texts_of(columns.pop("kind"))
        return SimpleNamespace(**columns, kind=kind, kind_of=kind.__getitem__)

    @property
    def spec(self) -> dict[str, Any]:
        """The topology's spec as maps, lists and scalars."""
        return self._machine[2]

    def _texts_of(self, column: Array) -> list[str]:
        return [self.strings[i] for i in column.tolist()]

    # -- logs -------------------------------------------------------------------

    def _table(self, kind: str) -> Sequence[Any]:
        """What the numbers of an index column stand for."""
        if kind == "node":
            return self.node_ids
        if kind == "space":
            return self.alloc_columns.spaces  # type: ignore[no-any-return]
        tables = {"path": self.paths, "reason": WAIT_REASONS, "dtype": DTYPE_NAMES}
        return tables.get(kind, self.strings)

    def _limit(self, kind: str) -> int:
        """What the values of an index column must stay below."""
        if kind == "node":
            return len(self._machine[0]["sip"])
        return _SPACES if kind == "space" else len(self._table(kind))

    def _read(self, tag: str) -> Callable[[Frame], Columns]:
        return lambda frame: read_columns(tag, frame.head, self._file.body(frame), self._limit)

    def _log(self, tag: str) -> SimpleNamespace:
        columns = join_columns(tag, list(self._file.each(tag, self._read(tag))))
        for name in {"row", "holder"} & columns.keys():
            columns[name] = self._counted(columns[name])
        return SimpleNamespace(**columns)

    def _told(self, tag: str, log: SimpleNamespace, rows: Sequence[int]) -> Iterator[Any]:
        """Rows of a log as they were recorded: names for numbers, lists for ``many`` columns."""
        columns: list[list[Any]] = []
        for name, column in LOGS[tag].items():
            values = getattr(log, name)
            if column.many:
                ends = getattr(log, f"{name}_ptr")
                cells = [values[ends[row] : ends[row + 1]].tolist() for row in rows]
            else:
                cells = values[np.asarray(rows, np.intp)].tolist()
            if column.limit:
                table = self._table(column.limit)
                cells = [[table[n] for n in c] if column.many else table[c] for c in cells]
            columns.append(cells)
        return zip(*columns, strict=True)

    def _read_paths(self, frame: Frame) -> list[tuple[int, ...]]:
        columns = join_columns("paths", [self._read("paths")(frame)])
        nodes, cuts = columns["node"].tolist(), columns["node_ptr"].tolist()
        return [tuple(nodes[a:b]) for a, b in pairwise(cuts)]

    def _read_tensors(self, frame: Frame) -> list[Array | None]:
        columns, body = self._read("tensors")(frame), self._file.body(frame)
        table = join_columns("tensors", [columns])
        extents, cuts = table["shape"].tolist(), table["shape_ptr"].tolist()
        rows = zip(table["dtype"].tolist(), table["offset"].tolist(), cuts, cuts[1:], strict=False)
        return [
            np.ndarray(tuple(extents[a:b]), DTYPES[DTYPE_NAMES[code]].numpy, body, offset)
            for code, offset, a, b in rows
        ]

    def tensor(self, number: int) -> Array:
        """A stored array, read-only, on the mapping; TraceFormatError if it is not there."""
        array = self._tensors.get(number)
        if array is None:
            raise TraceFormatError(f"{self.path}: tensor {number} is not in the file, or damaged")
        return array

    # -- ops --------------------------------------------------------------------

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        chunks: list[_Chunk] = []
        rows = end = 0

        def chunk(frame: Frame) -> _Chunk:
            columns, first = self._read("ops")(frame), whole(frame.head["first"])
            if first < end:
                raise TraceFormatError(f"its first row {first} is in a chunk before")
            place = columns["schema"], columns["param"]
            blocks = read_blocks(frame, self._file.body(frame), self.schemas, *place)
            return _Chunk(first, rows, columns, blocks)

        for found in self._file.each("ops", chunk):
            chunks.append(found)
            n = len(found.columns["cmd"])
            rows, end = rows + n, found.first + n
        return chunks

    def _counted(self, recorded: Array) -> Array:
        """Rows as recorded -> as counted here: those of damaged chunks, and "none", are -1."""
        rows = recorded.astype(np.int64)
        chunks = [c for c in self._chunks if len(c.columns["cmd"])]
        if not chunks:
            return np.full(len(rows), -1)
        firsts, bases = np.array([(c.first, c.base) for c in chunks]).T
        sizes = np.array([len(c.columns["cmd"]) for c in chunks])
        at = np.searchsorted(firsts, rows, side="right") - 1
        offset = rows - firsts[at]
        return np.where((at >= 0) & (offset < sizes[at]), bases[at] + offset, -1)

    @cached_property
    def op_columns(self) -> SimpleNamespace:
        """Columns t_start, t_end, component, name, kind (rank), slot, cmd, nbytes, schema, param.

        The rows that op i waited for are dep[dep_ptr[i]:dep_ptr[i + 1]].
        """
        columns = join_columns("ops", [chunk.columns for chunk in self._chunks])
        n, counts = len(columns["cmd"]), np.diff(columns["dep_ptr"])
        owner, dep = np.repeat(np.arange(n), counts), self._counted(columns["dep"])
        sound = (dep >= 0) & (dep < owner)  # what was waited for has completed before
        if not sound.all():
            counts = np.bincount(owner[sound], minlength=n)
            columns["dep_ptr"] = np.concatenate([[0], np.cumsum(counts)])
        columns["dep"] = dep[sound]
        ranks = [KIND_RANK.get(schema.kind, 3) if schema else 3 for schema in self.schemas]
        columns["kind"] = np.array(ranks, np.uint8)[columns["schema"]]
        return SimpleNamespace(**columns)

    @cached_property
    def order(self) -> npt.NDArray[np.intp]:
        """The row at each canonical position."""
        return canonical_order(self.op_columns.t_start, self.op_columns.kind)

    @cached_property
    def position(self) -> npt.NDArray[np.intp]:
        """The canonical position of each row."""
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(position))
        return position

    @cached_property
    def ops(self) -> Records:
        """All ops in canonical order."""
        return Records(self)

    @cached_property
    def executable_positions(self) -> npt.NDArray[np.intp]:
        """The canonical positions of ``executable``."""
        return np.flatnonzero(self.op_columns.kind[self.order] < KIND_RANK["unknown"])

    @cached_property
    def executable(self) -> Records:
        """What the executor runs: all but TileTokens and unknown kinds, in canonical order."""
        return Records(self, self.executable_positions)

    def params(self, row: int) -> dict[str, Any]:
        """The params of the op in ``row``, as they were recorded."""
        columns = self.op_columns
        chunk = self._chunks[bisect_right(self._bases, row) - 1]
        at = int(columns.schema[row]), int(columns.param[row])
        return decode(chunk.blocks, *at, self.strings.get, self._tensors.get)

    @cached_property
    def _bases(self) -> list[int]:
        return [chunk.base for chunk in self._chunks]

    def param_blocks(self) -> Iterator[ParamBlock]:
        """The params of all ops as columns: a block a chunk and schema."""
        for chunk in self._chunks:
            numbers, param = chunk.columns["schema"], chunk.columns["param"]
            for number, (schema, values) in chunk.blocks.items():
                rows = np.flatnonzero(numbers == number)
                picked = values[param[rows]] if schema.leaves else np.empty(len(rows), "u1")
                yield ParamBlock(schema, picked, chunk.base + rows)

    def deps(self, row: int) -> Array:
        """The rows that the op in ``row`` waited for."""
        columns = self.op_columns
        found: Array = columns.dep[columns.dep_ptr[row] : columns.dep_ptr[row + 1]]
        return found

    # -- what else happened -----------------------------------------------------

    def _rows_with(self, tag: str, keys: Array, key: int) -> list[int]:
        """The rows of a log whose key is ``key``."""
        if tag not in self._sorted:
            order = np.argsort(keys, kind="stable")
            self._sorted[tag] = order, keys[order].astype(np.int64)
        order, ordered = self._sorted[tag]
        low, high = np.searchsorted(ordered, (key, key + 1))
        rows: list[int] = order[low:high].tolist()
        return rows

    @cached_property
    def transfers(self) -> SimpleNamespace:
        """Columns cmd, row (-1: no op's), path (of ``paths``), t0, nbytes, bursts.

        The starts of transfer i are start[start_ptr[i]:start_ptr[i + 1]].
        """
        return self._log("transfers")

    def transfers_of(self, row: int) -> list[Transfer]:
        """The transactions of the op in ``row``, but for those whose path is lost."""
        rows = self._rows_with("transfers", self.transfers.row, row)
        told = self._told("transfers", self.transfers, rows)
        return [
            (tuple(self.node_ids[node] for node in path), *rest)
            for _, _, path, *rest in told
            if path and len(rest[-1]) >= len(path) - 1
        ]

    @cached_property
    def waits(self) -> SimpleNamespace:
        """Columns: cmd, row, node, reason (of WAIT_REASONS), t0, t1, holder (row or -1)."""
        return self._log("waits")

    def waits_of(self, row: int) -> list[Wait]:
        """The waits of the op in ``row``; the holder is a row, or -1."""
        rows = self._rows_with("waits", self.waits.row, row)
        return [tuple(wait) for _, _, *wait in self._told("waits", self.waits, rows)]

    @cached_property
    def commands(self) -> SimpleNamespace:
        """Columns cmd, pe, launch, call, file, line, function, awaits, t_issue, t_resume."""
        return self._log("commands")

    def command(self, cmd: int) -> Command | None:
        """The tl call of that number; None if it was not recorded."""
        rows = self._rows_with("commands", self.commands.cmd, cmd)
        for row in self._told("commands", self.commands, rows[:1]):
            number, pe, launch, call, *site, awaits, t_issue, t_resume = row
            return Command(number, pe, launch, call, Site(*site), awaits, t_issue, t_resume)
        return None

    @cached_property
    def launches(self) -> list[Launch]:
        """All launches that ended."""
        log = self._log("launches")
        told = self._told("launches", log, range(len(log.launch)))
        return [Launch(n, name, tuple(pes), *times) for n, name, pes, *times in told]

    @cached_property
    def texts(self) -> list[Text]:
        """What was printed, asserted or warned of, as it happened."""
        log = self._log("text")
        return [Text(*row) for row in self._told("text", log, range(len(log.t)))]

    @cached_property
    def alloc_columns(self) -> SimpleNamespace:
        """Columns tensor, dtype (of DTYPES), space (of the list ``spaces``), addr, va, nbytes,
        owner, origin0.., shape0.., rank, cmd, index.
        """
        spaces: dict[str, int] = {}

        def read(frame: Frame) -> Columns:
            columns = dict(self._read("alloc")(frame))
            mine = np.array([spaces.setdefault(str(s), len(spaces)) for s in frame.head["spaces"]])
            if len(columns["rank"]) and int(columns["rank"].max()) > 3:
                raise TraceFormatError("a shard has more than 3 axes")
            columns["space"] = mine[columns["space"]].astype(np.uint32)
            return columns

        columns = join_columns("alloc", list(self._file.each("alloc", read)))
        return SimpleNamespace(**columns, spaces=list(spaces))

    @cached_property
    def allocs(self) -> list[Shard]:
        """All shards, replicas and scratch handles, in the order of their making."""
        log, shards = self.alloc_columns, []
        for row in self._told("alloc", log, range(len(log.cmd))):
            tensor, dtype, space, addr, va, nbytes, owner, *box, cmd, rank, index = row
            boxes = tuple(box[:rank]), tuple(box[3 : 3 + rank])
            shards.append(Shard(tensor, dtype, space, addr, va, nbytes, owner, *boxes, cmd, index))
        return shards

    @cached_property
    def expects(self) -> list[Expect]:
        """The references, in the order in which they were given."""
        return list(self._file.each("expect", self._read_expect))

    def _read_expect(self, frame: Frame) -> Expect:
        head = frame.head
        if DTYPES.get(head["dtype"]) is None or not isinstance(head["name"], str):
            raise TraceFormatError("its name or dtype is none")
        numbers = {name: whole(head[name]) for name in ("shard", "addr", "after")}
        box = {name: tuple(map(whole, head[name])) for name in ("origin", "shape")}
        tolerance = Tolerance(*map(float, head["tolerance"]))
        array, texts = self.tensor(whole(head["tensor"])), (head["name"], str(head["space"]))
        row = {"array": array, "tolerance": tolerance, "dtype": head["dtype"], **numbers, **box}
        return Expect(*texts, **row)

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
        found = [r for r in self._file.each("verify", lambda frame: frame.head["results"]) if r]
        return found[-1] if found and isinstance(found[-1], dict) else None

    @cached_property
    def end_ns(self) -> float:
        """When the run ended, ns; of a file that was cut off, when its last op or call did."""
        end = (self.end or {}).get("end_ns")
        if isinstance(end, (int, float)) and np.isfinite(end):
            return float(end)
        last = (self.op_columns.t_end, self.commands.t_resume)
        return max((float(times.max()) for times in last if len(times)), default=0.0)

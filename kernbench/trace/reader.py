"""``Trace``: a mapped trace file as records, columns and tensors.

Owns the meaning of what the frames hold. Nothing is decoded before it is asked for: to
open a trace is to find its frames and to read a few heads. Mapped columns then cost the
pages of the rows that are looked at, and ops, params and arrays are made one by one.

The parts are made elsewhere: the machine in ``machine``, logs in ``logs``, ops in
``ops``, arrays in ``tensors``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES, Tolerance
from kernbench.common.messages import Transfer, Wait
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import RefusedError, TraceFormatError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, canonical_order
from kernbench.sim_engine.verify import Expectation
from kernbench.trace.caching import cached_without_lock
from kernbench.trace.columns import (
    AllocColumns,
    CallerColumns,
    CommandColumns,
    EdgeColumns,
    NodeColumns,
    OpColumns,
    TextColumns,
    TransferColumns,
    WaitColumns,
)
from kernbench.trace.frames import Damage, Frame, FrameFile, OnFrame, ignore_frame
from kernbench.trace.logs import Logs, Tables
from kernbench.trace.machine import (
    Machine,
    edge_columns,
    node_columns,
    read_machine,
)
from kernbench.trace.mapped import Rows
from kernbench.trace.ops import OpFrames
from kernbench.trace.params import ParamBlock
from kernbench.trace.rows import Command, Launch, Source, Text
from kernbench.trace.schema import FIXED_TABLES, LATEST, whole
from kernbench.trace.tables import GrowingTable, LazySequence, lists_of
from kernbench.trace.tensors import Tensors
from kernbench.trace.window import window_of

T = TypeVar("T")


class Trace:
    """One trace file. What it holds makes no method raise but TraceFormatError.

    ``header`` is the head of the first frame, ``end`` that of the last, None if the run
    or its recording was cut off. ``damaged`` are the frames that were found bad so far;
    ``check`` looks into all. ``cut``: the file holds only some ops of another trace.

    Rows of ops are in the order of completion, positions in the canonical order:
    ``order[position]`` is a row, and ``position[row]`` a position. Nodes are indices of
    ``node_ids``, and names are indices of ``strings``. What the columns of the logs
    mean stands in ``kernbench.trace.columns``.

    Several threads may read one trace. Whatever it caches is made of the file alone and
    may be made twice, by two threads that ask at once; both then get the same values,
    and neither waits for the other (see ``kernbench.trace.caching``). Of a large file
    ``op_columns`` and ``order`` take longest. Whoever has a screen to draw asks for
    them once when the trace is opened, with ``on_frame`` to report how far that is.
    """

    def __init__(self, file: FrameFile) -> None:
        self._file = file
        self.path = file.path
        self.header = file.header
        self.damaged = file.damaged
        self.fingerprint = file.fingerprint
        self.strings = GrowingTable[str](file, "strings", file.strings, "?{}".format)
        self._logs = Logs(
            file, lambda: self._tables, lambda rows: self._ops.row_here(rows)
        )
        self.paths = GrowingTable[tuple[int, ...]](
            file, "paths", self._read_paths, lambda number: ()
        )
        self._tensors = Tensors(file, self._logs)
        leaves: dict[str, Callable[[Any], Any]] = {
            "b": bool,
            "s": self.strings.get,
            "r": self.strings.get,
            "t": self._tensors.get,
        }
        self._ops = OpFrames(file, self._logs, leaves, self._name_of)
        self.schemas = self._ops.schemas
        self.end = _last(file.each("end", _read_end))
        self.complete = self.end is not None
        self.cut = "cut" in self.header
        self.window = window_of(self.header)

    @classmethod
    def open(cls, path: str | Path, on_frame: OnFrame = ignore_frame) -> Trace:
        """Map a file and find its frames; TraceFormatError if it is no trace.

        ``on_frame`` is called with each frame before it is read, now and whenever
        later: in the thread that asks for what the frame holds. What it raises ends
        that reading.
        """
        return cls(FrameFile(Path(path), on_frame=on_frame))

    def check(self) -> list[Damage]:
        """Look into every frame; all that are damaged."""
        _ = self.edges
        for tag in ("transfers", "waits", "commands", "callers"):
            self._logs.columns(tag)
        _ = self.launches
        _ = self.texts
        for table in (self.strings, self.paths, self._tensors):
            table.known()
        _ = self._ops.chunks
        _ = self.allocs
        _ = self.expects
        _ = self.sources
        _ = self.verify_report
        return self.damaged

    # -- the machine ---------------------------------------------------------------

    @cached_without_lock
    def _machine(self) -> Machine:
        return read_machine(self._file, self.strings)

    @property
    def _node_count(self) -> int:
        return len(self._machine.nodes["sip"])

    @cached_without_lock
    def node_ids(self) -> list[str]:
        """The id of each node."""
        return self.strings[: self._node_count]

    @cached_without_lock
    def node_index(self) -> dict[str, int]:
        """The index of each node id."""
        return {node: index for index, node in enumerate(self.node_ids)}

    @cached_without_lock
    def nodes(self) -> NodeColumns:
        """The nodes of the machine: place, type and name of each.

        A trace without a machine has a node for every string, and its place is -1.
        """
        return node_columns(self._machine, self.strings)

    @cached_without_lock
    def edges(self) -> EdgeColumns:
        """The links between nodes, one for each direction."""
        return edge_columns(self._machine, self.strings)

    @property
    def spec(self) -> dict[str, Any]:
        """The topology's spec as maps, lists and scalars."""
        return self._machine.spec

    # -- tables that columns refer to ----------------------------------------------

    @cached_without_lock
    def _tables(self) -> Tables:
        return {
            **FIXED_TABLES,
            "node": LazySequence(self._node_count, self.strings.get),
            "string": self.strings,
            "text": self.strings,
            "path": self.paths,
            "space": self._spaces,
        }

    def _read_paths(self, frame: Frame) -> LazySequence[tuple[int, ...]]:
        return lists_of(self._logs.read_frame(frame), "node")

    @cached_without_lock
    def _spaces(self) -> list[str]:
        """The kinds of memory: every alloc frame names those so far."""

        def read(frame: Frame) -> list[str]:
            names = frame.head["spaces"]
            if not isinstance(names, list) or len({*map(str, names)}) < len(names):
                raise TraceFormatError("its kinds of memory are no list of names")
            return [*map(str, names)]

        named = self._file.each("alloc", read, body=False)
        return max(named, key=len, default=[])

    def tensor(self, number: int) -> Array:
        """A stored array, read-only, on the mapping; TraceFormatError if it is lost."""
        return self._tensors.array(number)

    # -- ops -----------------------------------------------------------------------

    @cached_without_lock
    def op_columns(self) -> OpColumns:
        """The columns of all ops, by row."""
        return self._ops.columns

    @cached_without_lock
    def order(self) -> Array:
        """The row at each canonical position."""
        columns = self.op_columns
        order = canonical_order(columns.t_start[:], columns.kind[:])
        if len(order) >> 31:
            return order.astype(np.int64)
        return order.astype(np.int32)

    @cached_without_lock
    def position(self) -> Array:
        """The canonical position of each row."""
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(position), dtype=position.dtype)
        return position

    @cached_without_lock
    def ops(self) -> LazySequence[OpRecord]:
        """All ops in canonical order; their ``dependency_ids`` are positions."""
        return LazySequence(len(self.order), self._record)

    @cached_without_lock
    def executable_positions(self) -> Array:
        """The canonical positions of ``executable``."""
        kinds = self.op_columns.kind[self.order]
        positions = np.flatnonzero(kinds < KIND_RANK["unknown"])
        return positions.astype(self.order.dtype)

    @cached_without_lock
    def executable(self) -> LazySequence[OpRecord]:
        """What the executor runs, in canonical order.

        It is all but TileTokens and unknown kinds. The ``dependency_ids`` are indices
        of this sequence, and ops that are not in it are left out of them. To ask a cut
        trace for one is a KernbenchError: what memory held before is not known.
        """
        make = self._executable_record
        if self.cut:
            make = self.refuse
        return LazySequence(len(self.executable_positions), make)

    @cached_without_lock
    def steps(self) -> LazySequence[OpRecord]:
        """``executable`` without ``dependency_ids``, which to find takes half the time.

        The order is known, so who executes one after the other needs none.
        """
        make = self._step
        if self.cut:
            make = self.refuse
        return LazySequence(len(self.executable_positions), make)

    def _step(self, index: int) -> OpRecord:
        """The op at an index of ``executable``, as if it depended on none."""
        row = int(self.order[self.executable_positions[index]])
        return self._record_of(row, np.empty(0, np.int64))

    def refuse(self, index: int = 0) -> OpRecord:
        """KernbenchError: this is a cut, of which nothing can be executed."""
        raise RefusedError(
            f"{self.path} was cut from a trace, so what memory held before is not "
            "known; ask the whole trace"
        )

    def _name_of(self, row: int) -> str:
        """The op in ``row`` as an error names it."""
        name = self.strings[int(self.op_columns.name[row])]
        return f"{self.path}: op {int(self.position[row])} {name:.40}"

    def _record(self, position: int) -> OpRecord:
        """The op at a canonical position; it depends on positions."""
        row = int(self.order[position])
        held = np.sort(self.position[self._ops.deps(row)])
        return self._record_of(row, held)

    def _executable_record(self, index: int) -> OpRecord:
        """The op at an index of ``executable``; it depends on indices of that."""
        mine = self.executable_positions
        row = int(self.order[mine[index]])
        held = np.sort(self.position[self._ops.deps(row)])
        if len(held):
            places = np.searchsorted(mine, held)
            is_mine = mine[np.minimum(places, len(mine) - 1)] == held
            held = places[is_mine]
        return self._record_of(row, held)

    def _record_of(self, row: int, dependencies: Array) -> OpRecord:
        number, place = self._ops.place_of(row)
        columns = self._ops.chunks[number].columns
        schema = self.schemas[columns["schema"][place]]
        kind = "unknown"
        if schema is not None:
            kind = schema.kind
        return OpRecord(
            t_start=columns["t_start"][place].item(),
            t_end=columns["t_end"][place].item(),
            component_id=self.node_ids[columns["component"][place]],
            op_kind=kind,
            op_name=self.strings[int(columns["name"][place])],
            params=self._ops.params(row),
            dependency_ids=dependencies.tolist(),
        )

    def params(self, row: int) -> dict[str, Any]:
        """The params of an op, as they were recorded; {} if their schema is lost."""
        return self._ops.params(row)

    def param_blocks(self, rows: Array | None = None) -> Iterator[ParamBlock]:
        """The params of ops as columns: blocks of some thousand ops of one schema.

        They are those of all ops, or of ``rows``, which ascend and are one at least.
        """
        return self._ops.param_blocks(rows)

    def deps(self, row: int) -> Array:
        """The rows that the op in ``row`` waited for."""
        return self._ops.deps(row)

    def effects(self, row: int, progress: Progress = no_progress) -> Iterator[int]:
        """The rows that waited for the op in ``row``, ascending."""
        return self._ops.effects(row, progress)

    # -- what else happened --------------------------------------------------------

    def rows_as_recorded(
        self, tag: str, rows: Rows = slice(None)
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of the log ``tag`` as the writer was given them: names, not numbers."""
        return self._logs.rows_as_recorded(tag, rows)

    @cached_without_lock
    def transfers(self) -> TransferColumns:
        """The transactions, frame by frame, as their ops completed."""
        return TransferColumns(**self._logs.columns("transfers"))

    def transfers_of(self, row: int) -> list[Transfer]:
        """The transactions of the op in ``row``, but for those whose path is lost."""
        found: list[Transfer] = []
        for cells in self._logs.rows_by_key("transfers", "row", [row]):
            _, _, path, t0, nbytes, bursts, starts = cells
            if path and len(starts) >= len(path) - 1:
                nodes = tuple(self.node_ids[node] for node in path)
                found.append((nodes, t0, nbytes, bursts, starts))
        return found

    @cached_without_lock
    def waits(self) -> WaitColumns:
        """What messages waited for, as their ops completed."""
        return WaitColumns(**self._logs.columns("waits"))

    def waits_of(self, row: int) -> list[Wait]:
        """The waits of the op in ``row``; the holder is a row, or -1."""
        return self.waits_by([row]).get(row, [])

    def waits_by(self, rows: Sequence[int]) -> dict[int, list[Wait]]:
        """The waits of the ops in ``rows``, by row."""
        found: dict[int, list[Wait]] = {}
        if rows:
            for cells in self._logs.rows_by_key("waits", "row", rows):
                _, row, node, reason, t0, t1, holder = cells
                found.setdefault(row, []).append((node, reason, t0, t1, holder))
        return found

    @cached_without_lock
    def commands(self) -> CommandColumns:
        """The tl calls of kernels and the calls of the host, as they returned."""
        return CommandColumns(**self._logs.columns("commands"))

    def command(self, cmd: int) -> Command | None:
        """The call of that number; None if it was not recorded."""
        for cells in self._logs.rows_by_key("commands", "cmd", [cmd]):
            number, pe, launch, call, file, line, function, *rest = cells
            site = Site(file, line, function)
            return Command(number, pe, launch, call, site, *rest)
        return None

    @cached_without_lock
    def callers(self) -> CallerColumns:
        """Where functions were called that made tl calls, but for kernels."""
        return CallerColumns(**self._logs.columns("callers"))

    def caller(self, cmd: int) -> Site | None:
        """Where the function was called that made a call; None if it is a kernel."""
        for _, *site in self._logs.rows_by_key("callers", "cmd", [cmd]):
            return Site(*site)
        return None

    @cached_without_lock
    def launches(self) -> list[Launch]:
        """All launches that ended."""
        return [
            Launch(launch, kernel, tuple(pes), *times)
            for launch, kernel, pes, *times in self.rows_as_recorded("launches")
        ]

    @cached_without_lock
    def text_columns(self) -> TextColumns:
        """The columns of ``texts``."""
        return TextColumns(**self._logs.columns("text"))

    @cached_without_lock
    def texts(self) -> list[Text]:
        """What was printed, asserted or warned of, as it happened."""
        return [Text(*cells) for cells in self.rows_as_recorded("text")]

    @cached_without_lock
    def alloc_columns(self) -> AllocColumns:
        """The columns of ``allocs``."""
        return AllocColumns(**self._logs.columns("alloc"), spaces=self._spaces)

    @cached_without_lock
    def allocs(self) -> list[Shard]:
        """All shards, replicas and scratch handles, in the order of their making."""
        return self.shards()

    def shards(self, rows: Rows = slice(None)) -> list[Shard]:
        """Some ``rows`` of ``allocs``."""
        shards = []
        for cells in self.rows_as_recorded("alloc", rows):
            tensor, dtype, space, addr, va, nbytes, owner, *box, cmd, rank, index = (
                cells
            )
            shard = Shard(
                tensor=tensor,
                dtype=dtype,
                space=space,
                addr=addr,
                va=va,
                nbytes=nbytes,
                owner=owner,
                origin=tuple(box[:3][:rank]),
                shape=tuple(box[3:][:rank]),
                cmd=cmd,
                index=index,
            )
            shards.append(shard)
        return shards

    @cached_without_lock
    def expects(self) -> list[Expectation]:
        """The references, in the order in which they were given."""
        return list(self._file.each("expect", self._read_expect))

    def _read_expect(self, frame: Frame) -> Expectation:
        head = frame.head
        name = head["name"]
        if head["dtype"] not in DTYPES or not isinstance(name, str) or not name:
            raise TraceFormatError("its name or dtype is none")
        rtol, atol = map(float, head["tolerance"])
        if not (0 <= rtol < np.inf and 0 <= atol < np.inf):
            raise TraceFormatError(f"its tolerance is {rtol}, {atol}")
        array = self.tensor(whole(head["tensor"]))
        origin = tuple(map(whole, head["origin"]))
        if len(origin) != array.ndim:
            raise TraceFormatError(f"its origin is {origin}, its shape {array.shape}")
        addr = whole(head["addr"])
        after = whole(head["after"])
        shard = whole(head["shard"])
        return Expectation(
            str(head["space"]),
            addr,
            array,
            head["dtype"],
            Tolerance(rtol, atol),
            after,
            name,
            shard,
            origin,
        )

    @cached_without_lock
    def sources(self) -> dict[str, Source]:
        """The kernel sources by file."""

        def read(frame: Frame) -> tuple[str, Source]:
            text = self._file.inflate(frame).decode(errors="replace")
            return str(frame.head["file"]), Source(str(frame.head["kernel"]), text)

        return dict(self._file.each("source", read))

    @cached_without_lock
    def verify_report(self) -> dict[str, Any] | None:
        """Phase 2's verdict as it was recorded; None if it did not run."""
        results = self._file.each("verify", lambda frame: frame.head["results"])
        return _last(found for found in results if isinstance(found, dict))

    @property
    def recorded_verdicts(self) -> dict[str, bool]:
        """By tensor whether the run's own Phase 2 found all of its shards right.

        The report is whatever a file holds: rows that are none are left out.
        """
        verdicts: dict[str, bool] = {}
        rows = (self.verify_report or {}).get("rows")
        for row in rows if isinstance(rows, list | tuple) else ():
            if isinstance(row, dict):
                tensor = str(row.get("tensor"))
                verdicts[tensor] = bool(row.get("ok")) and verdicts.get(tensor, True)
        return verdicts

    @cached_without_lock
    def end_ns(self) -> float:
        """When the run ended, ns; of one that was cut off, when its last op or call."""
        if self.end is not None:
            end = self.end.get("end_ns")
            if isinstance(end, (int, float)) and 0 <= end <= LATEST:
                return float(end)
        latest = [
            float(times.max())
            for times in (self.op_columns.t_end, self.commands.t_resume)
            if len(times)
        ]
        return max(latest, default=0.0)


def _read_end(frame: Frame) -> dict[str, Any]:
    """The head of an ``end`` frame; TraceFormatError if its error is no text."""
    if not isinstance(frame.head.get("error"), str | None):
        raise TraceFormatError("the error that ended the run is no text")
    return frame.head


def _last(found: Iterator[T]) -> T | None:
    """The last of ``found``, if there is any; no more than one is kept."""
    return next(iter(deque(found, maxlen=1)), None)

"""``TraceWriter``: the Recorder that streams a run to one trace file.

Owns what is buffered and when it is written. Memory does not grow with the run: what is
remembered for longer than a chunk are the names, paths and schemas of the machine, and
the last 64 Ki texts and digests of arrays.

Rows are buffered as tuples and turned into columns chunk by chunk: an op costs some
microseconds, of which most is spent there, at numpy's speed. Chunks of 64 Ki rows would
stop the run for 56 ms each, those of 4 Ki rows for 3 ms.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kernbench import __version__
from kernbench.common.arrays import Array
from kernbench.common.dtypes import Tolerance, nbytes_of
from kernbench.common.messages import WAIT_REASONS, Transfer
from kernbench.common.texts import cut_text
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.event_log import Shard, Site, Transfers, Waits
from kernbench.sim_engine.op_log import OpRecord, Params
from kernbench.trace.columns import LOGS
from kernbench.trace.numbering import (
    NO_TENSOR,
    REMEMBERED,
    NewEntries,
    Numbers,
    TensorStore,
)
from kernbench.trace.params import ParamsEncoder
from kernbench.trace.reader import Trace
from kernbench.trace.schema import (
    FIXED_TABLES,
    MAGIC,
    NONE,
    VERSION,
    Body,
    pack,
    plain,
)
from kernbench.trace.stream import FrameStream, NewFrame, OpenFile, claim

if TYPE_CHECKING:
    from kernbench.topology.graph import Edge, Node

CHUNK_ROWS = 8192
"""All logs are written when one of them has so many rows."""

QUIET_ROWS = 256
QUIET_NS = 10_000.0
"""They are also written when one has QUIET_ROWS, and QUIET_NS of simulated time have
passed since the last time. No clock takes part in it: equal runs are equal bytes."""

_BUFFERED = ("alloc", "commands", "ops", "transfers", "waits", "launches", "text")
"""The logs whose rows are buffered, in the order in which they are written."""

_REASONS = frozenset(WAIT_REASONS)
_MAX_AXES = 3


class MachineGraph(Protocol):
    """What a writer asks of the graph of a machine."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by id."""

    @property
    def edges(self) -> Sequence[Edge]:
        """The links."""

    @property
    def spec(self) -> Any:
        """A dataclass or map of maps, lists and scalars."""

    @property
    def hash(self) -> str:
        """A digest of the machine; "" if there is none."""


class _BufferedOps(NamedTuple):
    """The columns of buffered ops: a row has these cells in this order.

    ``param_names`` and ``param_values`` are the keys and values of its params, arrays
    among them replaced by numbers. ``deps`` are rows, as ``row`` is.
    """

    t_start: Sequence[float]
    t_end: Sequence[float]
    component: Sequence[str]
    kind: Sequence[str]
    name: Sequence[str]
    nbytes: Sequence[int]
    param_names: Sequence[tuple[str, ...]]
    param_values: Sequence[list[Any]]
    slot: Sequence[int]
    deps: Sequence[list[int]]
    cmd: tuple[int, ...]
    row: tuple[int, ...]
    waits: tuple[Waits, ...]
    transfers: tuple[Transfers, ...]


class TraceWriter:
    """Records a run to ``path``.

    Its methods are called in this order: ``begin``, then whatever happens (what a
    Recorder takes), ``verify`` if Phase 2 has run, and ``end``. Where the run does not
    get so far, ``close`` names what there is, and ``abandon`` leaves nothing. All times
    are in ns. Only one thread may use it.

    Until ``end`` or ``close`` the file is ``path.partial``. A write error stops the
    recording, not the run: ``error`` then says what happened (None: all is well), and
    what was written stays readable. Up to 1 GiB of what follows is held in memory for
    ``op_log``. A ``.partial`` that a killed run left is kept as ``.partial.old``.
    KernbenchError if the file cannot be made, or is being written by another run.

    ``open_file`` makes the file; see ``kernbench.trace.stream``.
    """

    def __init__(self, path: str | Path, open_file: OpenFile = claim) -> None:
        self.path = Path(path)
        self._stream = FrameStream(self.path, open_file)
        self._began = False
        self._now = 0.0
        self._flushed_at = 0.0
        self._texts = NewEntries()
        self._paths = NewEntries()
        # Names are kept for good, node ids first; texts are forgotten when they are
        # too many.
        self._names = Numbers(self._texts)
        self._values = Numbers(self._texts)
        self._tables: dict[str, Mapping[Any, int]] = {
            "node": self._names,
            "string": self._names,
            "text": self._values,
            "path": Numbers(self._paths),
            "space": Numbers(NewEntries()),
        }
        for name, entries in FIXED_TABLES.items():
            self._tables[name] = {entry: n for n, entry in enumerate(entries)}
        self._tensors = TensorStore(self._tables, lambda frame: self._write([frame]))
        self._params = ParamsEncoder(self._values, self._tensors.number)
        self._counts = dict.fromkeys(_BUFFERED, 0)
        self._buffer_nothing()

    def _buffer_nothing(self) -> None:
        # A row of ops has its waits and transfers, which are so many in all.
        self._rows: dict[str, list[tuple[Any, ...]]] = {tag: [] for tag in _BUFFERED}
        self._expects: list[NewFrame] = []
        self._waits = 0
        self._transfers = 0

    @property
    def error(self) -> str | None:
        """Why recording has stopped, None if it has not."""
        return self._stream.error

    @property
    def bytes_held(self) -> int:
        """How much is held in memory of what no longer went to the file."""
        return self._stream.bytes_held

    # -- the life of a file --------------------------------------------------------

    def begin(self, header: Mapping[str, Any], graph: MachineGraph | None) -> None:
        """Write the first frame, and the machine.

        ``header`` holds what the run is: bench, arguments, seed and the like. If it
        says that ``data`` is false, no array is stored. Without a ``graph`` the trace
        has no machine, and its nodes are nothing but names. KernbenchError if events
        came before.
        """
        if self._began or any(self._rows.values()):
            raise KernbenchError(
                "the trace has begun already; call begin once, before all events"
            )
        self._tensors.keeps_data = bool(header.get("data", True))
        if graph is None:
            self._write_first(header, "")
            return
        self._write_first(header, graph.hash)
        for node in graph.nodes:
            _ = self._names[node]  # ids of nodes are the first strings
        body = Body()
        nodes = _columns_of(list(graph.nodes.values()), "nodes")
        edges = _columns_of(graph.edges, "edges")
        head = {
            "nodes": body.add_log("nodes", nodes, self._tables),
            "edges": body.add_log("edges", edges, self._tables),
            "spec": plain(graph.spec),
        }
        self._write_strings()
        self._write_deflated("topology", head, body)

    def verify(self, report: Any) -> None:
        """Phase 2's verdict: a VerifyReport, or a map for the reader to give back."""
        self.flush()
        results = plain(report)
        results.setdefault("ok", bool(getattr(report, "ok", False)))
        self._write([("verify", {"results": results}, b"")])

    def end(self, end_ns: float, error: str | None = None) -> None:
        """Write that the run ended at ``end_ns``, or that ``error`` ended it; close."""
        self.flush()
        head = {
            "counts": self._counts,
            "end_ns": float(end_ns),
            "ok": error is None,
            "error": None if error is None else cut_text(error),
        }
        self._write([("end", head, b"")])
        self.close()

    def close(self) -> None:
        """Write what is buffered, and name the file.

        Without an ``end`` before it the trace counts as cut off.
        """
        if not self._stream.is_closed:
            self.flush()
            self._stream.close()

    def abandon(self) -> None:
        """Leave no file: nothing ran."""
        self._stream.abandon()

    def op_log(self) -> Sequence[OpRecord]:
        """All ops so far in canonical order, read back.

        KernbenchError if some of them could neither be written nor held in memory.
        """
        self.flush()
        return Trace(self._stream.reopened()).ops

    # -- the Recorder --------------------------------------------------------------

    def command(
        self,
        cmd: int,
        pe: str,
        launch: int,
        call: str,
        site: Site,
        awaits: int,
        t_issue: float,
        t_resume: float,
    ) -> None:
        """A row of ``commands``: call number ``cmd``, made on the node ``pe``.

        It is recorded when the kernel goes on, at ``t_resume``. ``launch`` is -1 for a
        call of the host, and ``awaits`` the call that it waited for, or NO_CMD.
        """
        row = (cmd, pe, launch, call, *site, awaits, t_issue, t_resume)
        self._add("commands", t_resume, row)

    def op(
        self,
        row: int,
        record: OpRecord,
        cmd: int,
        slot: int,
        waits: Waits,
        transfers: Transfers,
    ) -> None:
        """A row of ``ops``, with its waits and transfers.

        ``row`` counts the ops as they complete, ``cmd`` is the call that caused this
        one, and ``slot`` the lane that served it. Its snapshots are stored as they are
        now, so that the caller may write to them again. KernbenchError for a wait whose
        reason is unknown.
        """
        params = record.params
        names = tuple(params)
        values = [*params.values()]
        for name in ("snapshot", "input_snapshots"):
            if name in params:
                values[names.index(name)] = self._stored(params[name])
        for wait in waits:
            if wait[1] not in _REASONS:
                raise KernbenchError(
                    f"wait reason {wait[1]!r}; valid: {', '.join(WAIT_REASONS)}"
                )
        # All is fetched now, from a warm cache. The order is that of _BufferedOps.
        ops = self._rows["ops"]
        ops.append(
            (
                record.t_start,
                record.t_end,
                record.component_id,
                record.op_kind,
                record.op_name,
                _nbytes(params),
                names,
                values,
                slot,
                record.dependency_ids,
                cmd,
                row,
                waits,
                transfers,
            )
        )
        self._waits += len(waits)
        self._transfers += len(transfers)
        longest = max(len(ops), self._waits, self._transfers)
        self._flush_if_due(record.t_end, longest)

    def _stored(self, snapshot: Any) -> Any:
        """A snapshot, or a list of them, with numbers in the place of arrays."""
        if type(snapshot) is list:
            return [self._stored_one(one) for one in snapshot]
        return self._stored_one(snapshot)

    def _stored_one(self, snapshot: Any) -> Any:
        if snapshot is None:
            return NO_TENSOR  # of the same schema as an array
        if isinstance(snapshot, np.ndarray):
            return self._tensors.number(snapshot)
        return snapshot

    def transfer(self, cmd: int, transfer: Transfer) -> None:
        """A row of ``transfers`` that no op has: a launch or a credit."""
        self._transfers += 1
        sent_at = transfer[1]
        self._add("transfers", sent_at, (cmd, NONE, [transfer]))

    def launch(
        self,
        launch: int,
        kernel: str,
        pes: tuple[str, ...],
        t_issue: float,
        t_start: float,
        t_end: float,
    ) -> None:
        """A row of ``launches``, recorded when it has ended on all ``pes``."""
        row = (launch, kernel, pes, t_issue, t_start, t_end)
        self._add("launches", t_end, row)

    def alloc(self, shard: Shard) -> None:
        """A row of ``alloc``: a box of a tensor in memory.

        A file has room for three axes. Of a tensor that has more the first three are
        kept.
        """
        padding = (0,) * _MAX_AXES
        origin = (*shard.origin, *padding)[:_MAX_AXES]
        shape = (*shard.shape, *padding)[:_MAX_AXES]
        row = (
            shard.tensor,
            shard.dtype,
            shard.space,
            shard.addr,
            shard.va,
            shard.nbytes,
            shard.owner,
            *origin,
            *shape,
            shard.cmd,
            min(len(shard.shape), _MAX_AXES),
            shard.index,
        )
        self._add("alloc", self._now, row)

    def expect(
        self, name: str, shard: Shard, array: Array, tolerance: Tolerance, after: int
    ) -> None:
        """An ``expect`` frame: what ``shard`` must hold after so many ops.

        The reference is stored as a tensor. Of a run that is recorded without data
        there is none.
        """
        if not self._tensors.keeps_data:
            return
        head = {
            "name": name,
            "shard": shard.index,
            "space": shard.space,
            "addr": shard.addr,
            "dtype": shard.dtype,
            "tensor": self._tensors.number(array),
            "after": after,
            "tolerance": (tolerance.rtol, tolerance.atol),
            "origin": shard.origin,
            "shape": shard.shape,
        }
        self._expects.append(("expect", head, b""))

    def text(self, t: float, cmd: int, level: str, message: str) -> None:
        """A row of ``text``."""
        self._add("text", t, (t, cmd, level, message))

    def source(self, file: str, kernel: str, text: str) -> None:
        """A ``source`` frame: the text of a file, for the kernel that it was read for.

        It is written at once, and so before the commands that refer to its lines.
        """
        raw = text.encode(errors="backslashreplace")
        sha = hashlib.sha256(raw).hexdigest()
        head = {"file": file, "kernel": kernel, "sha": sha}
        self._write_deflated("source", head, raw)

    # -- flushing ------------------------------------------------------------------

    def _add(self, tag: str, t: float, row: tuple[Any, ...]) -> None:
        """Buffer a row of a log that happened at ``t`` ns."""
        rows = self._rows[tag]
        rows.append(row)
        self._flush_if_due(t, len(rows))

    def _flush_if_due(self, t: float, rows: int) -> None:
        """Flush if a log has many ``rows`` at ``t`` ns, or some after a long time."""
        if t > self._now:
            self._now = t
        if rows >= QUIET_ROWS and (
            rows >= CHUNK_ROWS or self._now - self._flushed_at >= QUIET_NS
        ):
            self.flush()

    def flush(self) -> None:
        """Write all that is buffered.

        Strings, tensors and paths go first: a frame refers to earlier frames only, so a
        file that is cut off anywhere has all that its frames refer to.
        """
        self._flushed_at = self._now
        rows_by_log = self._rows
        expects = self._expects
        self._buffer_nothing()
        if self._stream.has_lost_frames:
            return
        columns: dict[str, Sequence[Any]] = {}
        for tag, rows in rows_by_log.items():
            if rows:
                columns[tag] = list(zip(*rows, strict=True))
        if "ops" in columns:
            _add_events_of_ops(columns, _BufferedOps(*columns["ops"]))
        frames: list[NewFrame] = []
        for tag in _BUFFERED:
            if tag in columns:
                frames.append(self._log_frame(tag, columns[tag]))
        head, paths = self._paths.take()
        if paths:
            frames.insert(0, self._frame("paths", [paths], head, Body()))
        self._write_strings()
        self._tensors.flush()
        self._write([*frames, *expects])
        if len(self._values) > REMEMBERED:
            self._values.clear()

    def _log_frame(self, tag: str, columns: Sequence[Any]) -> NewFrame:
        """The frame of a log whose buffered columns are these.

        They become the columns of the file: of ops the params go to blocks of their
        own, and events that came in lists get a row each.
        """
        body = Body()
        head: dict[str, Any] = {}
        if tag == "ops":
            ops = _BufferedOps(*columns)
            schema, place, head = self._params.add(
                ops.kind, ops.name, ops.param_names, ops.param_values, body
            )
            head["first"] = self._counts["ops"]
            columns = [
                ops.t_start,
                ops.t_end,
                ops.component,
                ops.name,
                ops.slot,
                ops.cmd,
                ops.nbytes,
                schema,
                place,
                ops.deps,
            ]
        elif tag in ("transfers", "waits"):
            columns = _one_event_a_row(columns)
            if tag == "waits":
                columns[-1] = np.bitwise_and(columns[-1], NONE)  # no holder: -1
        elif tag == "alloc":
            spaces = [*self._tables["space"], *columns[2]]
            head["spaces"] = list(dict.fromkeys(spaces))
        self._counts[tag] += len(columns[0])
        return self._frame(tag, columns, head, body)

    def _frame(
        self, tag: str, columns: Sequence[Any], head: dict[str, Any], body: Body
    ) -> NewFrame:
        return tag, body.add_log(tag, columns, self._tables) | head, body

    def _write_strings(self) -> None:
        head, new = self._texts.take()
        texts = list(map(cut_text, new))
        if texts:
            self._write_deflated("strings", head | {"n": len(texts)}, pack(texts))

    def _write_deflated(
        self, tag: str, head: dict[str, Any], raw: bytes | bytearray
    ) -> None:
        self._write([(tag, head | {"raw": len(raw)}, zlib.compress(raw, 6))])

    def _write_first(self, header: Mapping[str, Any], topology_hash: str) -> None:
        head = {
            "version": list(VERSION),
            "kernbench": __version__,
            "time_unit": "ns",
            "topology_hash": topology_hash,
        }
        self._stream.write([(MAGIC, head | plain(header), b"")], self._now)
        self._began = True

    def _write(self, frames: Iterable[NewFrame]) -> None:
        """Append frames to the file, after the first frame if there is none yet."""
        if not self._began:
            self._write_first({}, "")
        self._stream.write(frames, self._now)


def _columns_of(things: Sequence[Any], tag: str) -> list[list[Any]]:
    """The attributes of nodes or edges as the columns of their log."""
    return [[getattr(thing, name) for thing in things] for name in LOGS[tag]]


def _add_events_of_ops(columns: dict[str, Sequence[Any]], ops: _BufferedOps) -> None:
    """Put the transfers and waits of ops among the columns of the logs.

    Each row of these is a call, a row of ops, and a list of events.
    """
    if any(ops.transfers):
        alone = columns.get("transfers", [(), (), ()])
        columns["transfers"] = [
            ops.cmd + alone[0],
            ops.row + alone[1],
            ops.transfers + alone[2],
        ]
    if any(ops.waits):
        columns["waits"] = [ops.cmd, ops.row, ops.waits]


def _one_event_a_row(columns: Sequence[Any]) -> list[Any]:
    """The columns of calls, rows and lists of events, with a row for each event."""
    calls, rows, lists = columns
    lengths = list(map(len, lists))
    events = zip(*chain.from_iterable(lists), strict=True)
    return [np.repeat(calls, lengths), np.repeat(rows, lengths), *events]


_size_of = lru_cache(maxsize=1024)(nbytes_of)


def _nbytes(params: Params) -> int:
    """What an op moves or makes, in bytes; 0 if that is unknown.

    That is its nbytes, its out_nbytes or the size of its output.
    """
    found = params.get("nbytes", params.get("out_nbytes"))
    if isinstance(found, int):
        if 0 <= found < 1 << 63:
            return found
        return 0
    try:
        dtype = params.get("dtype_out") or params["dtype"]
        return _size_of(tuple(params["shape_out"]), dtype)
    except (KeyError, TypeError, UsageError):
        return 0

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
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import Tolerance, nbytes_of
from kernbench.common.interrupts import Uninterrupted
from kernbench.common.messages import WAIT_REASONS, Transfer
from kernbench.common.texts import cut_text
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.event_log import (
    Shard,
    Site,
    Transfers,
    Waits,
    in_three_axes,
)
from kernbench.sim_engine.op_log import OpRecord, Params
from kernbench.trace.columns import LOGS
from kernbench.trace.encoder import BUFFERED, Buffered, RowEncoder
from kernbench.trace.numbering import NO_TENSOR
from kernbench.trace.params import TensorId
from kernbench.trace.reader import Trace
from kernbench.trace.schema import MAGIC, NONE, VERSION, plain
from kernbench.trace.stream import FrameStream, NewFrame, OpenFile, claim
from kernbench.trace.tail import TailThread
from kernbench.version import __version__

if TYPE_CHECKING:
    from kernbench.topology.graph import Edge, Node

CHUNK_ROWS = 8192
"""All logs are written when one of them has so many rows."""

QUIET_ROWS = 256
QUIET_NS = 10_000.0
"""They are also written when one has QUIET_ROWS, and QUIET_NS of simulated time have
passed since the last time. No clock takes part in it: equal runs are equal bytes."""

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


class TraceWriter:
    """Records a run to ``path``.

    Its methods are called in this order: ``begin``, then whatever happens (what a
    Recorder takes), ``verify`` if Phase 2 has run, and ``end``. Where the run does not
    get so far, ``close`` names what there is, and ``abandon`` leaves nothing. All times
    are in ns. Only one thread may use it.

    A thread of its own keeps what is buffered in the file's tail, once a second, so
    that a run that is killed loses no more than that (``kernbench.trace.tail``).

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
        self._encoder = RowEncoder(self._write)
        self._buffer_nothing()
        # Held while numbers are given or frames are written; rows need it not.
        self._lock = RLock()
        self._flushes = 0
        self._in_tail: tuple[int, ...] = ()
        self._tail_thread = TailThread(self.write_tail)

    def _buffer_nothing(self) -> None:
        # A row of ops has its waits and transfers, which are so many in all.
        self._rows: Buffered = {tag: [] for tag in BUFFERED}
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
        self._encoder.keeps_data = bool(header.get("data", True))
        if graph is None:
            self._write_first(header, "")
            return
        self._write_first(header, graph.hash)
        nodes = _columns_of(list(graph.nodes.values()), "nodes")
        edges = _columns_of(graph.edges, "edges")
        with Uninterrupted(), self._lock:
            self._encoder.write_machine(graph.nodes, nodes, edges, graph.spec)

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
            "counts": self._encoder.counts,
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
            self._tail_thread.stop()
            self.flush()
            self._stream.close()

    def abandon(self) -> None:
        """Leave no file: nothing ran."""
        self._tail_thread.stop()
        self._stream.abandon()

    def op_log(self) -> Sequence[OpRecord]:
        """All ops so far in canonical order, read back.

        KernbenchError if some of them could neither be written nor held in memory.
        """
        return self._so_far().ops

    def sites_of(self, ops: Collection[int]) -> dict[int, Site]:
        """By op, which are canonical positions, the call that issued it, if known.

        KernbenchError as of ``op_log``.
        """
        trace = self._so_far()
        found = {}
        for op in ops:
            if op < len(trace.order):
                call = int(trace.op_columns.cmd[trace.order[op]])
                issued = trace.command(call)
                if issued is not None:
                    found[op] = issued.site
        return found

    def _so_far(self) -> Trace:
        """What has been written, read back."""
        self.flush()
        return Trace(self._stream.reopened())

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

    def caller(self, cmd: int, site: Site) -> None:
        """A row of ``callers``: call ``cmd`` was made by a function that was called at
        ``site``.
        """
        self._add("callers", self._now, (cmd, *site))

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
        for name in ("snapshot", "input_snapshots"):
            if name in params:
                params = params | {name: self._stored(params[name])}
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
                tuple(params),
                tuple(params.values()),
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
            return self._number(snapshot)
        return snapshot

    def _number(self, array: Array) -> TensorId:
        """The number of the array's content, which is stored as it is now."""
        with Uninterrupted(), self._lock:
            return self._encoder.number(array)

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

        A file has room for three axes. Of a tensor that has more those between the
        first and the last are one (``in_three_axes``).
        """
        padding = (0,) * _MAX_AXES
        origin = (*in_three_axes(shard.origin), *padding)[:_MAX_AXES]
        shape = (*in_three_axes(shard.shape), *padding)[:_MAX_AXES]
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
        if not self._encoder.keeps_data:
            return
        head = {
            "name": name,
            "shard": shard.index,
            "space": shard.space,
            "addr": shard.addr,
            "dtype": shard.dtype,
            "tensor": self._number(array),
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
        self._encoder.write_deflated("source", head, raw)

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
        """Write all that is buffered."""
        with Uninterrupted(), self._lock:
            self._flushed_at = self._now
            rows = self._rows
            expects = self._expects
            self._buffer_nothing()
            if not self._stream.has_lost_frames:
                self._encoder.write_rows(rows, expects)
            self._flushes += 1
            if self._in_tail:
                self._in_tail = ()
                self._stream.drop_tail()

    def write_tail(self) -> None:
        """Keep what is buffered beside the file, and leave all here as it is.

        This may be called by another thread. Nothing is done if there is no news, or if
        the recording has stopped. What cannot be encoded is left for the next flush to
        raise, in the thread of the run.
        """
        with self._lock:
            # Arrays last: a row is buffered when those that it refers to have numbers.
            rows = {tag: buffered.copy() for tag, buffered in self._rows.items()}
            expects = self._expects.copy()
            sizes = (self._stream.size, len(expects), *map(len, rows.values()))
            is_news = any(sizes[1:]) and sizes != self._in_tail
            if not self._began or self._stream.is_closed or self.error or not is_news:
                return
            frames: list[NewFrame] = []
            encoder = self._encoder.copy(frames.extend)
            mark = self._stream.mark
            flushes = self._flushes
        try:
            encoder.write_rows(rows, expects)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return
        with self._lock:
            # If there was a flush meanwhile, these rows are in the file.
            if flushes == self._flushes and not self._stream.is_closed:
                self._stream.put_tail(sizes[0], mark, frames)
                self._in_tail = sizes

    def _write_first(self, header: Mapping[str, Any], topology_hash: str) -> None:
        head = {
            "version": list(VERSION),
            "kernbench": __version__,
            "time_unit": "ns",
            "topology_hash": topology_hash,
        }
        with Uninterrupted(), self._lock:
            self._stream.write([(MAGIC, head | plain(header), b"")], self._now)
            self._began = True

    def _write(self, frames: Iterable[NewFrame]) -> None:
        """Append frames to the file, after the first frame if there is none yet."""
        if not self._began:
            self._write_first({}, "")
        with Uninterrupted(), self._lock:
            self._stream.write(frames, self._now)


def _columns_of(things: Sequence[Any], tag: str) -> list[list[Any]]:
    """The attributes of nodes or edges as the columns of their log."""
    return [[getattr(thing, name) for thing in things] for name in LOGS[tag]]


_size_of = lru_cache(maxsize=1024)(nbytes_of)


def _nbytes(params: Params) -> int:
    """What an op moves or makes, in bytes; 0 if that is unknown.

    That is its nbytes, its out_nbytes or the size of its output.
    """
    found = params.get("nbytes")
    if found is None:
        found = params.get("out_nbytes")
    if isinstance(found, int):
        if 0 <= found < 1 << 63:
            return found
        return 0
    try:
        dtype = params.get("dtype_out") or params["dtype"]
        return _size_of(tuple(params["shape_out"]), dtype)
    except (KeyError, TypeError, UsageError):
        return 0

"""``TraceWriter``: the Recorder that streams a run to one trace file.

Owns what is buffered and when it is written. Memory does not grow with the run: what is remembered
for longer than a chunk are the names, paths and schemas of the machine, and the last 64 Ki digests.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kernbench import __version__
from kernbench.common.arrays import Array
from kernbench.common.dtypes import Tolerance, name_of, nbytes_of
from kernbench.common.messages import WAIT_REASONS, Transfer
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.event_log import Shard, Site, Transfers, Waits
from kernbench.sim_engine.op_log import OpRecord, Params
from kernbench.trace.frames import FrameFile
from kernbench.trace.params import ParamsEncoder, TensorId
from kernbench.trace.reader import Trace
from kernbench.trace.schema import (
    FIXED,
    LOGS,
    MAGIC,
    NONE,
    VERSION,
    Body,
    pack,
    pack_frame,
    plain,
)

if TYPE_CHECKING:
    from kernbench.topology.graph import TopologyGraph

CHUNK_ROWS = 8192
QUIET_ROWS, QUIET_NS = (
    256,
    10_000.0,
)  # a smaller chunk, once that much simulated time has passed
TENSOR_FRAME_BYTES = 1 << 20
SPILL_BYTES = 1 << 30  # kept in memory of what no longer went to the file
REMEMBERED = (
    1 << 16
)  # strings of params and digests of tensors; more would grow with the run

_REASONS = frozenset(WAIT_REASONS)
_BUFFERED = ("alloc", "commands", "ops", "transfers", "waits", "launches", "text")
_NO_TENSOR = TensorId(NONE)

Frame: TypeAlias = tuple[str, dict[str, Any], bytes | bytearray]


def _claim(path: Path, partial: Path) -> FileIO:
    """A new file at ``partial``, locked; what a killed run left there becomes ``partial.old``.

    No file is ever shortened: whoever has one mapped keeps it. OSError if it is not to be had.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CREAT, 0o666)

    if any(place.exists() and not place.is_file() for place in (path, partial)):
        raise OSError(errno.EEXIST, "it is no regular file")
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(partial, "r+b", buffering=0, opener=opener))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.fstat(file.fileno())
            with contextlib.suppress(FileNotFoundError):  # its run has just ended
                if os.path.samestat(os.stat(partial), mine):
                    if not mine.st_size:
                        stack.pop_all()
                        return file
                    os.replace(partial, f"{partial}.old")


class _Table(list[Any]):
    """A table that grows by frames: the entries that no frame holds yet; ``first`` numbers them."""

    first = 0

    def take(self) -> tuple[dict[str, int], list[Any]]:
        """The head of a frame for all entries, and these: the caller writes it."""
        head, taken = {"first": self.first}, self.copy()
        self.first += len(self)
        self.clear()
        return head, taken


class _Numbers(dict[Any, int]):
    """The number of each key in ``table``, given on first use."""

    def __init__(self, table: _Table) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, key: Any) -> int:
        self[key] = number = self._table.first + len(self._table)
        self._table.append(key)
        return number


_size = lru_cache(maxsize=1024)(nbytes_of)


def _nbytes(params: Params) -> int:
    """What an op moves or makes: nbytes, out_nbytes or the size of its output; 0 if unknown."""
    found = params["nbytes"] if "nbytes" in params else params.get("out_nbytes")
    if isinstance(found, int):
        return found if 0 <= found < 1 << 63 else 0
    try:
        return _size(
            tuple(params["shape_out"]), params.get("dtype_out") or params["dtype"]
        )
    except (KeyError, TypeError, UsageError):
        return 0


class TraceWriter:
    """Records a run to ``path``; until ``end`` or ``close`` the file is ``path.partial``.

    A write error stops the recording, not the run: ``error`` then says what happened (None: all is
    well), and what was written stays readable; up to SPILL_BYTES more are held for ``op_log``.
    A ``.partial`` that a killed run left is kept as ``.partial.old``. KernbenchError if the file
    cannot be made, or is being written by another run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.error: str | None = None
        self._partial = self.path.with_name(self.path.name + ".partial")
        try:
            self._file = _claim(self.path, self._partial)
        except OSError as error:
            locked = isinstance(error, BlockingIOError)
            reason = "another run is writing it" if locked else error.strerror
            raise KernbenchError(
                f"cannot write trace {self.path}: {reason}; name one that may be written"
            ) from None
        self._offset, self._spill = 0, bytearray()
        self._began, self._data, self._closed = False, True, False
        self._now = self._flushed_at = 0.0
        self._texts, self._paths, self._tensors = _Table(), _Table(), _Table()
        self._tensor_bytes = 0
        self._digests: dict[Any, TensorId] = {}
        # names are kept for good (node ids come first), texts forgotten when they are too many
        self._names, self._values = _Numbers(self._texts), _Numbers(self._texts)
        self._tables: dict[str, Mapping[Any, int]] = {
            **{"node": self._names, "string": self._names, "text": self._values},
            **{"path": _Numbers(self._paths), "space": _Numbers(_Table())},
            **{
                kind: {value: n for n, value in enumerate(FIXED[kind])}
                for kind in FIXED
            },
        }
        self._params = ParamsEncoder(self._values, self._tensor)
        self._counts = dict.fromkeys(_BUFFERED, 0)
        self._empty()

    def _empty(self) -> None:
        """Buffer nothing. A row of ops has its waits and transfers, so many in all."""
        self._rows: dict[str, list[tuple[Any, ...]]] = {tag: [] for tag in _BUFFERED}
        self._expects: list[Frame] = []
        self._waits = self._transfers = 0

    # -- the life of a file ------------------------------------------------------------

    def begin(self, header: Mapping[str, Any], graph: TopologyGraph | None) -> None:
        """Write the first frame (``header`` holds bench, arguments, seed, data …) and the machine.

        With ``data`` false no array is stored. KernbenchError if events came before.
        """
        if self._began or any(self._rows.values()):
            raise KernbenchError(
                "the trace has begun already; call begin once, before all events"
            )
        self._data = bool(header.get("data", True))
        self._write_first(header, graph.hash if graph is not None else "")
        if graph is None:
            return
        for node in graph.nodes:
            _ = self._names[node]
        body, head = Body(), dict[str, Any]()
        for log, things in (
            ("nodes", list(graph.nodes.values())),
            ("edges", graph.edges),
        ):
            columns = [[getattr(thing, name) for thing in things] for name in LOGS[log]]
            head[log] = body.add_log(log, columns, self._tables)
        self._write_strings()
        self._write_deflated("topology", head | {"spec": plain(graph.spec)}, body)

    def _write_first(self, header: Mapping[str, Any], topology_hash: str) -> None:
        self._began = True
        ours = {"version": list(VERSION), "kernbench": __version__, "time_unit": "ns"}
        self._write(
            (MAGIC, ours | {"topology_hash": topology_hash} | plain(header), b"")
        )

    def verify(self, report: Any) -> None:
        """Phase 2's verdict: a VerifyReport, or a map of what the reader shall give back."""
        self._flush()
        results = plain(report)
        results.setdefault("ok", bool(getattr(report, "ok", False)))
        self._write(("verify", {"results": results}, b""))

    def end(self, end_ns: float, error: str | None = None) -> None:
        """The run is over at ``end_ns``, or was ended by ``error``: write that and close."""
        self._flush()
        head = {"counts": self._counts, "end_ns": float(end_ns), "ok": error is None}
        self._write(("end", head | {"error": error}, b""))
        self.close()

    def close(self) -> None:
        """Write what is buffered and name the file; one without ``end`` counts as cut off."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        try:
            os.replace(self._partial, self.path)  # before the lock is given up
            self._file.close()
        except OSError as error:
            where = next((p for p in (self._partial, self.path) if p.exists()), "lost")
            self.error = self.error or f"{self.path}: {error.strerror}; it is {where}"

    def abandon(self) -> None:
        """Leave no file: nothing ran."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)
            self._file.close()

    def op_log(self) -> Sequence[OpRecord]:
        """All ops so far in canonical order, read back; KernbenchError if some are lost."""
        self._flush()
        path = self.path if self._closed else self._partial
        if self.error is None:
            return Trace.open(path).ops
        if len(self._spill) > SPILL_BYTES:
            raise KernbenchError(f"its ops cannot be read back: {self.error}")
        run = mmap.mmap(-1, self._offset)
        run.write(path.read_bytes()[: self._offset - len(self._spill)])
        run.write(self._spill)
        return Trace(FrameFile(path, run)).ops

    # -- the Recorder ------------------------------------------------------------

    def command(
        self, cmd: int, pe: str, launch: int, call: str, site: Site, *rest: Any
    ) -> None:
        """A row of ``commands``; ``rest`` is awaits, t_issue, t_resume."""
        self._add("commands", rest[-1], (cmd, pe, launch, call, *site, *rest))

    def op(
        self,
        row: int,
        record: OpRecord,
        cmd: int,
        slot: int,
        waits: Waits,
        transfers: Transfers,
    ) -> None:
        """A row of ``ops``, with its waits and transfers; its snapshots are stored as they are."""
        params = record.params
        names, values = tuple(params), [*params.values()]
        for name in ("snapshot", "input_snapshots"):
            if name in params:
                value = params[name]
                stored = (
                    [*map(self._stored, value)]
                    if type(value) is list
                    else self._stored(value)
                )
                values[names.index(name)] = stored
        for wait in waits:
            if wait[1] not in _REASONS:
                raise KernbenchError(
                    f"wait reason {wait[1]!r}; valid: {', '.join(WAIT_REASONS)}"
                )
        r, ops = record, self._rows["ops"]  # all is fetched now, from a warm cache
        what = (r.t_start, r.t_end, r.component_id, r.op_kind, r.op_name)
        fields = (_nbytes(params), names, values, slot, r.dependency_ids)
        ops.append((*what, *fields, cmd, row, waits, transfers))
        self._waits += len(waits)
        self._transfers += len(transfers)
        self._passed(record.t_end, max(len(ops), self._waits, self._transfers))

    def _stored(self, value: Any) -> Any:
        """``value``, or the number of an array in its place."""
        if value is None:
            return _NO_TENSOR  # not another schema
        return self._tensor(value) if isinstance(value, np.ndarray) else value

    def transfer(self, cmd: int, transfer: Transfer) -> None:
        """A row of ``transfers`` that no op has."""
        self._transfers += 1
        self._add("transfers", transfer[1], (cmd, NONE, [transfer]))

    def launch(self, *row: Any) -> None:
        """A row of ``launches``."""
        self._add("launches", row[-1], row)

    def alloc(self, shard: Shard) -> None:
        """A row of ``alloc``; axes beyond three are not kept."""
        s = shard
        box = (*s.origin, 0, 0, 0)[:3] + (*s.shape, 0, 0, 0)[:3]
        place = (s.tensor, s.dtype, s.space, s.addr, s.va, s.nbytes, s.owner)
        self._add(
            "alloc", self._now, (*place, *box, s.cmd, min(len(s.shape), 3), s.index)
        )

    def expect(
        self, name: str, shard: Shard, array: Array, tolerance: Tolerance, after: int
    ) -> None:
        """An ``expect`` frame; its array is stored as a tensor."""
        if not self._data:
            return
        s, bounds = shard, (tolerance.rtol, tolerance.atol)
        head = {
            "name": name,
            "shard": s.index,
            "space": s.space,
            "addr": s.addr,
            "dtype": s.dtype,
        }
        head |= {"tensor": self._tensor(array), "after": after, "tolerance": bounds}
        head |= {"origin": s.origin, "shape": s.shape}
        self._expects.append(("expect", head, b""))

    def text(self, t: float, *row: Any) -> None:
        """A row of ``text``."""
        self._add("text", t, (t, *row))

    def source(self, file: str, kernel: str, text: str) -> None:
        """A ``source`` frame."""
        raw = text.encode(errors="backslashreplace")
        head = {"file": file, "kernel": kernel, "sha": hashlib.sha256(raw).hexdigest()}
        self._write_deflated("source", head, raw)

    def _add(self, tag: str, t: float, row: tuple[Any, ...]) -> None:
        rows = self._rows[tag]
        rows.append(row)
        self._passed(t, len(rows))

    def _tensor(self, array: Array) -> TensorId:
        """The number of an array's content, NONE if it is not to be stored."""
        try:
            dtype = name_of(array.dtype)
        except UsageError:
            dtype = ""  # no element type of the machine: not its data
        if not (dtype and self._data):
            return _NO_TENSOR
        data = array.tobytes()
        digest = hashlib.sha256(data).digest()
        key = (digest, dtype, array.shape)
        if key in self._digests:
            return self._digests[key]
        if len(self._digests) >= REMEMBERED:
            del self._digests[next(iter(self._digests))]
        if self._tensor_bytes and self._tensor_bytes + len(data) > TENSOR_FRAME_BYTES:
            self._write_tensors()
        self._digests[key] = number = TensorId(self._tensors.first + len(self._tensors))
        self._tensors.append(
            (dtype, array.shape, data, np.frombuffer(digest, "<u8").tolist())
        )
        self._tensor_bytes += len(data)
        return number

    # -- flushing ------------------------------------------------------------

    def _passed(self, t: float, rows: int) -> None:
        """A log has ``rows`` at time ``t``: flush if it is long, or the last flush is long ago."""
        if t > self._now:
            self._now = t
        if rows >= QUIET_ROWS and (
            rows >= CHUNK_ROWS or self._now - self._flushed_at >= QUIET_NS
        ):
            self._flush()

    def _flush(self) -> None:
        """Write all buffered rows, after the strings, tensors and paths that they refer to."""
        self._flushed_at = self._now
        logs, expects = self._rows, self._expects
        self._empty()
        if len(self._spill) > SPILL_BYTES:
            return
        columns = {
            tag: list(zip(*rows, strict=True)) for tag, rows in logs.items() if rows
        }
        if "ops" in columns:
            *_, cmds, numbers, waits, transfers = columns["ops"]
            lone = columns.get("transfers", [(), (), ()])
            if any(transfers):
                columns["transfers"] = [
                    cmds + lone[0],
                    numbers + lone[1],
                    transfers + lone[2],
                ]
            if any(waits):
                columns["waits"] = [cmds, numbers, waits]
        frames = [
            self._log_frame(tag, columns[tag]) for tag in _BUFFERED if tag in columns
        ]
        head, paths = self._paths.take()
        if paths:
            frames.insert(0, self._frame("paths", [paths], head, Body()))
        self._write_strings()
        self._write_tensors()
        self._write(*frames, *expects)
        if len(self._values) > REMEMBERED:
            self._values.clear()

    def _log_frame(self, tag: str, columns: list[Any]) -> Frame:
        body, extra = Body(), dict[str, Any]()
        if tag == "ops":
            (
                starts,
                ends,
                nodes,
                kinds,
                names,
                sizes,
                keys,
                values,
                slots,
                after,
                cmds,
                *_,
            ) = columns
            schema, place, extra = self._params.add(kinds, names, keys, values, body)
            extra["first"] = self._counts[tag]
            columns = [
                starts,
                ends,
                nodes,
                names,
                slots,
                cmds,
                sizes,
                schema,
                place,
                after,
            ]
        elif tag in ("transfers", "waits"):
            counts = list(map(len, columns[2]))
            owners = [np.repeat(column, counts) for column in columns[:2]]
            columns = owners + list(zip(*chain.from_iterable(columns[2]), strict=True))
            if tag == "waits":
                columns[-1] = np.bitwise_and(columns[-1], NONE)
        elif tag == "alloc":
            extra["spaces"] = list(dict.fromkeys([*self._tables["space"], *columns[2]]))
        self._counts[tag] += len(columns[0])
        return self._frame(tag, columns, extra, body)

    def _frame(
        self, tag: str, columns: list[Any], extra: dict[str, Any], body: Body
    ) -> Frame:
        return tag, body.add_log(tag, columns, self._tables) | extra, body

    def _write_strings(self) -> None:
        head, texts = self._texts.take()
        if texts:
            self._write_deflated("strings", head | {"n": len(texts)}, pack(texts))

    def _write_tensors(self) -> None:
        self._tensor_bytes = 0
        head, tensors = self._tensors.take()
        if tensors:
            body, (dtypes, shapes, data, shas) = Body(), zip(*tensors, strict=True)
            columns = [dtypes, shapes, list(map(body.add, data)), shas]
            self._write(self._frame("tensors", columns, head, body))

    def _write_deflated(
        self, tag: str, head: dict[str, Any], raw: bytes | bytearray
    ) -> None:
        self._write((tag, head | {"raw": len(raw)}, zlib.compress(raw, 6)))

    def _write(self, *frames: Frame) -> None:
        """Append frames whole, or stop recording; what an interrupt tore is overwritten."""
        if not self._began:
            self._write_first({}, "")
        if self._closed:
            return
        end, pieces = self._offset, list[bytes]()
        try:
            for tag, head, body in frames:
                pieces.append(pack_frame(tag, head, body, end))
                end += len(pieces[-1])
            data = memoryview(b"".join(pieces))
            if self.error is None:
                self._file.seek(self._offset)
                while data:
                    data = data[self._file.write(data) :]
        except (
            OSError,
            OverflowError,
            ValueError,
        ) as error:  # ValueError: the file is closed
            reason = getattr(error, "strerror", None) or str(error)
            self.error = (
                f"recording to {self.path} stopped at {self._offset} bytes, {self._now:.0f} ns: "
                f"{reason}; free some space or choose another place, and run again"
            )
            with contextlib.suppress(OSError, ValueError):
                self._file.truncate(self._offset)
        if self.error is not None and len(self._spill) <= SPILL_BYTES:
            self._spill += b"".join(pieces)
        self._offset = end

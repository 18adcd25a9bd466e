"""``TraceWriter``: the Recorder that streams a run to one trace file.

Owns what is buffered and when it is written. Memory does not grow with the run: what is remembered
for longer than a chunk are the names, paths and schemas of the machine, and the last 64 Ki digests.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench import __version__
from kernbench.common.dtypes import Tolerance, name_of, nbytes_of
from kernbench.common.messages import WAIT_REASONS, Transfer, Wait
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import OpRecord, Params
from kernbench.trace.params import ParamsEncoder, TensorId
from kernbench.trace.schema import (
    DTYPE_NAMES,
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
QUIET_ROWS, QUIET_NS = 256, 10_000.0  # a smaller chunk, once that much simulated time has passed
TENSOR_FRAME_BYTES = 1 << 20
REMEMBERED = 1 << 16  # strings of params and digests of tensors; more would grow with the run
_MAX_FRAME_BYTES = (1 << 32) - 1  # of a msgpack bin

_REASONS = {reason: code for code, reason in enumerate(WAIT_REASONS)}
_DTYPES = {name: code for code, name in enumerate(DTYPE_NAMES)}
_BUFFERED = ("alloc", "commands", "ops", "transfers", "waits", "launches", "text")
_NO_TENSOR = TensorId(NONE)

Frame: TypeAlias = tuple[str, dict[str, Any], bytes]


class _Table:
    """A table that grows by frames: its size, and the entries that no frame holds yet."""

    def __init__(self) -> None:
        self.size = 0
        self._fresh: list[Any] = []

    def add(self, entry: Any) -> int:
        """The number of a new entry."""
        self._fresh.append(entry)
        self.size += 1
        return self.size - 1

    def take(self) -> tuple[int, list[Any]]:
        """The first entry that no frame holds yet, and all of them: the caller writes them."""
        taken, self._fresh = self._fresh, []
        return self.size - len(taken), taken


class _Numbers(dict[Any, int]):
    """The number of each key in ``table``, given on first use."""

    def __init__(self, table: _Table) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, key: Any) -> int:
        self[key] = number = self._table.add(key)
        return number


def _nbytes(params: Params) -> int:
    """What an op moves or makes: nbytes, out_nbytes or the size of its output; 0 if unknown."""
    found = params.get("nbytes")
    if found is None:
        found = params.get("out_nbytes")
    if isinstance(found, int):
        return found if 0 <= found < 1 << 63 else 0
    try:
        return nbytes_of(params["shape_out"], params.get("dtype_out") or params["dtype"])
    except (KeyError, TypeError, UsageError):
        return 0


class TraceWriter:
    """Records a run to ``path``; until ``end`` or ``close`` the file is ``path.partial``.

    A write error stops the recording, not the run: ``error`` then says what happened (None: all is
    well), and what was written stays readable. KernbenchError if the file cannot be made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.error: str | None = None
        self._partial = self.path.with_name(self.path.name + ".partial")
        try:
            self._file = open(self._partial, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise KernbenchError(
                f"cannot write trace {self.path}: {error.strerror}; name a file in a directory "
                "that exists and may be written"
            ) from None
        self._offset = 0
        self._began, self._data = False, True
        self._now = self._flushed_at = 0.0
        self._texts, self._paths, self._tensors = _Table(), _Table(), _Table()
        self._tensor_bytes = 0
        self._digests: dict[Any, TensorId] = {}
        # names are kept for good (node ids come first), texts forgotten when they are too many
        self._names, self._values = _Numbers(self._texts), _Numbers(self._texts)
        self._tables: dict[str, dict[Any, int]] = {
            "node": self._names,
            "string": self._names,
            "text": self._values,
            "path": _Numbers(self._paths),
            "space": _Numbers(_Table()),
            "reason": _REASONS,
            "dtype": _DTYPES,
        }
        self._params = ParamsEncoder(self._values, self._tensor)
        self._counts = dict.fromkeys(_BUFFERED, 0)
        self._expects: list[Frame] = []
        self._empty()

    def _empty(self) -> None:
        """Buffer nothing. A row of ops has its waits and transfers, so many in all."""
        self._rows: dict[str, list[tuple[Any, ...]]] = {tag: [] for tag in _BUFFERED}
        self._waits = self._transfers = 0

    # -- the life of a file ------------------------------------------------------------

    def begin(self, header: Mapping[str, Any], graph: TopologyGraph | None) -> None:
        """Write the first frame (``header`` holds bench, arguments, seed, data …) and the machine.

        With ``data`` false no array is stored. KernbenchError if events came before; without it the
        file begins with nothing.
        """
        if self._began or self._texts.size or any(self._rows.values()):
            raise KernbenchError("the trace has begun already; call begin once, before all events")
        self._data = bool(header.get("data", True))
        self._write_first(header, graph.hash if graph is not None else "")
        if graph is None:
            return
        for node in graph.nodes:
            _ = self._names[node]
        body = Body(self._tables)
        machine = [[getattr(n, f) for n in graph.nodes.values()] for f in LOGS["nodes"]]
        links = [[getattr(e, f) for e in graph.edges] for f in LOGS["edges"]]
        head = {"nodes": body.add_log("nodes", machine), "edges": body.add_log("edges", links)}
        self._write_strings()
        self._write_deflated("topology", head | {"spec": plain(graph.spec)}, body.bytes())

    def _write_first(self, header: Mapping[str, Any], topology_hash: str) -> None:
        self._began = True
        ours = {"version": list(VERSION), "kernbench": __version__, "time_unit": "ns"}
        self._write((MAGIC, ours | {"topology_hash": topology_hash} | plain(header), b""))

    def verify(self, report: Any) -> None:
        """Phase 2's verdict: a VerifyReport, or a map of what the reader shall give back."""
        results = plain(report)
        results.setdefault("ok", bool(getattr(report, "ok", False)))
        self._flush()
        self._write(("verify", {"results": results}, b""))

    def end(self, end_ns: float, error: str | None = None) -> None:
        """The run is over at ``end_ns``, or was ended by ``error``: write that and close."""
        self._flush()
        head = {"counts": self._counts, "end_ns": float(end_ns), "ok": error is None}
        self._write(("end", head | {"error": error}, b""))
        self.close()

    def close(self) -> None:
        """Write what is buffered and name the file; one without ``end`` counts as cut off."""
        if self._file.closed:
            return
        self._flush()
        self._write()
        try:
            self._file.close()
            os.replace(self._partial, self.path)
        except OSError as error:
            reason = f"{self.path}: {error.strerror}; the trace is {self._partial}"
            self.error = self.error or reason

    def abandon(self) -> None:
        """Leave no file: nothing ran."""
        with contextlib.suppress(OSError):
            self._file.close()
            self._partial.unlink(missing_ok=True)

    # -- the Recorder ------------------------------------------------------------

    def command(self, cmd: int, pe: str, launch: int, call: str, site: Site, *rest: Any) -> None:
        """A row of ``commands``; ``rest`` is awaits, t_issue, t_resume."""
        self._add("commands", rest[-1], (cmd, pe, launch, call, *site, *rest))

    def op(
        self,
        row: int,
        record: OpRecord,
        cmd: int,
        slot: int,
        waits: list[Wait],
        transfers: list[Transfer],
    ) -> None:
        """A row of ``ops``, with its waits and transfers; its snapshots are stored as they are."""
        if self.error is not None:
            return
        params = record.params
        for name in ("snapshot", "input_snapshots"):
            if name in params:
                params = params | {name: self._stored(params[name])}
        for wait in waits:
            if wait[1] not in _REASONS:
                raise KernbenchError(f"wait reason {wait[1]!r}; valid: {', '.join(WAIT_REASONS)}")
        r, ops = record, self._rows["ops"]  # its fields are fetched now, from a warm cache
        what = (r.t_start, r.t_end, r.component_id, r.op_kind, r.op_name, params)
        ops.append((*what, slot, r.dependency_ids, cmd, row, waits, transfers))
        self._waits += len(waits)
        self._transfers += len(transfers)
        self._passed(record.t_end, max(len(ops), self._waits, self._transfers))

    def _stored(self, value: Any) -> Any:
        """``value`` with the numbers of its arrays in their place."""
        if isinstance(value, list):
            return [self._stored(item) for item in value]
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
        self._add("alloc", self._now, (*place, *box, s.cmd, min(len(s.shape), 3), s.index))

    def expect(
        self, name: str, shard: Shard, array: npt.NDArray[Any], tolerance: Tolerance, after: int
    ) -> None:
        """An ``expect`` frame; its array is stored as a tensor."""
        if self.error is not None or not self._data:
            return
        head = {
            **{"name": name, "shard": shard.index, "space": shard.space, "addr": shard.addr},
            **{"dtype": shard.dtype, "tensor": self._tensor(array), "after": after},
            "tolerance": (tolerance.rtol, tolerance.atol),
            **{"origin": shard.origin, "shape": shard.shape},
        }
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

    def _tensor(self, array: npt.NDArray[Any]) -> TensorId:
        """The number of an array's content, NONE if it is not to be stored."""
        try:
            dtype = name_of(array.dtype)
        except UsageError:
            return _NO_TENSOR  # no element type of the machine: not its data
        if not self._data:
            return _NO_TENSOR
        data = array.tobytes()
        digest = hashlib.sha256(data).digest()
        key = (digest, dtype, array.shape)
        found = self._digests.get(key)
        if found is not None:
            return found
        if len(self._digests) >= REMEMBERED:
            del self._digests[next(iter(self._digests))]
        if self._tensor_bytes and self._tensor_bytes + len(data) > TENSOR_FRAME_BYTES:
            self._write_tensors()
        self._digests[key] = number = TensorId(
            self._tensors.add((dtype, array.shape, digest, data))
        )
        self._tensor_bytes += len(data)
        return number

    # -- flushing ------------------------------------------------------------

    def _passed(self, t: float, rows: int) -> None:
        """A log has ``rows`` at time ``t``: flush if it is long, or the last flush is long ago."""
        if t > self._now:
            self._now = t
        if rows >= QUIET_ROWS and (rows >= CHUNK_ROWS or self._now - self._flushed_at >= QUIET_NS):
            self._flush()

    def _flush(self) -> None:
        """Write all buffered rows, after the strings, tensors and paths that they refer to."""
        self._flushed_at = self._now
        logs, expects = self._rows, self._expects
        self._expects = []
        self._empty()
        if self.error is not None:
            self._texts.take(), self._paths.take(), self._tensors.take()
            return
        columns = {tag: list(zip(*rows, strict=True)) for tag, rows in logs.items() if rows}
        if "ops" in columns:
            *_, cmds, numbers, waits, transfers = columns["ops"]
            lone = columns.get("transfers", [(), (), ()])
            if any(transfers):
                columns["transfers"] = [cmds + lone[0], numbers + lone[1], transfers + lone[2]]
            if any(waits):
                columns["waits"] = [cmds, numbers, waits]
        frames = [self._log_frame(tag, columns[tag]) for tag in _BUFFERED if tag in columns]
        first, paths = self._paths.take()
        if paths:
            body = Body(self._tables)
            head = body.add_log("paths", [paths]) | {"first": first}
            frames.insert(0, ("paths", head, body.bytes()))
        self._write_strings()
        self._write_tensors()
        for frame in frames:
            self._write(frame)
        if expects:
            self._write(*expects)
        if len(self._values) > REMEMBERED:
            self._values.clear()

    def _log_frame(self, tag: str, columns: list[Any]) -> Frame:
        body, extra = Body(self._tables), dict[str, Any]()
        if tag == "ops":
            starts, ends, nodes, kinds, names, params, slots, after, cmds, *_ = columns
            schema, place, extra = self._params.add(kinds, names, params, body)
            extra["first"] = self._counts[tag]
            sizes = list(map(_nbytes, params))
            columns = [starts, ends, nodes, names, slots, cmds, sizes, schema, place, after]
        elif tag in ("transfers", "waits"):
            counts = list(map(len, columns[2]))
            owners = [np.repeat(column, counts) for column in columns[:2]]
            columns = owners + list(zip(*chain.from_iterable(columns[2]), strict=True))
            if tag == "waits":
                columns[-1] = np.bitwise_and(columns[-1], NONE)
        head = body.add_log(tag, columns) | extra
        if tag == "alloc":
            head["spaces"] = list(self._tables["space"])
        self._counts[tag] += len(columns[0])
        return tag, head, body.bytes()

    # -- frames ------------------------------------------------------------

    def _write_strings(self) -> None:
        first, texts = self._texts.take()
        if texts:
            self._write_deflated("strings", {"first": first, "n": len(texts)}, pack(texts))

    def _write_tensors(self) -> None:
        self._tensor_bytes = 0
        first, tensors = self._tensors.take()
        if tensors:
            body = Body(self._tables)
            dtypes, shapes, digests, data = zip(*tensors, strict=True)
            offsets = [body.add(np.frombuffer(piece, np.uint8)) for piece in data]
            shas = [np.frombuffer(digest, "<u8").tolist() for digest in digests]
            head = body.add_log("tensors", [dtypes, shapes, offsets, shas]) | {"first": first}
            self._write(("tensors", head, body.bytes()))

    def _write_deflated(self, tag: str, head: dict[str, Any], raw: bytes) -> None:
        self._write((tag, head | {"raw": len(raw)}, zlib.compress(raw, 6)))

    def _write(self, *frames: Frame) -> None:
        """Append frames whole, or stop recording; what an interrupt tore is overwritten."""
        if not self._began:
            self._write_first({}, "")
        if self.error is not None or self._file.closed:
            return
        end, pieces = self._offset, list[bytes]()
        try:
            for tag, head, body in frames:
                if len(body) > _MAX_FRAME_BYTES:
                    reason = f"a {tag} frame of {len(body)} bytes is over the 4 GiB of a frame"
                    raise OSError(0, reason)
                pieces.append(pack_frame(tag, head, body, end))
                end += len(pieces[-1])
            data = memoryview(b"".join(pieces))
            self._file.seek(self._offset)
            while data:
                data = data[self._file.write(data) :]
            self._offset = end
        except OSError as error:
            self.error = (
                f"recording to {self.path} stopped at {self._offset} bytes, {self._now:.0f} ns: "
                f"{error.strerror}; free some space or choose another place, and run again"
            )
            with contextlib.suppress(OSError):
                self._file.truncate(self._offset)

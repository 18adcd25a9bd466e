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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernbench import __version__
from kernbench.common.dtypes import Tolerance, name_of, nbytes_of
from kernbench.common.messages import WAIT_REASONS, Transfer, Wait
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace.params import ParamsEncoder
from kernbench.trace.schema import (
    DTYPE_NAMES,
    LOGS,
    MAGIC,
    NONE,
    VERSION,
    Body,
    pack_frame,
    pack_strings,
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


class _Fresh:
    """The next number of a table that grows by frames, and the entries that no frame holds yet."""

    __slots__ = ("count", "entries")

    def __init__(self) -> None:
        self.count = 0
        self.entries: list[Any] = []


class _Numbers(dict[Any, int]):
    """The number of each key, given on first use."""

    def __init__(self, fresh: _Fresh) -> None:
        super().__init__()
        self._fresh = fresh

    def __missing__(self, key: Any) -> int:
        self[key] = number = self._fresh.count
        self._fresh.count += 1
        self._fresh.entries.append(key)
        return number


def _nbytes(params: dict[str, Any]) -> int:
    """Bytes that an op moves, or of its output; 0 where its params do not say."""
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
        self._began = False
        self._now = self._flushed_at = 0.0
        texts = _Fresh()
        self._texts = texts
        self._strings = _Numbers(texts)  # names, kept for good; node ids come first
        self._values = _Numbers(texts)  # strings of params, forgotten when they are too many
        self._new_paths = _Fresh()
        self._paths = _Numbers(self._new_paths)
        self._spaces: dict[str, int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {tag: [] for tag in _BUFFERED}
        self._expects: list[dict[str, Any]] = []
        self._params = ParamsEncoder(self._values, self._tensor)
        self._digests: dict[Any, int] = {}
        self._tensors: list[tuple[int, tuple[int, ...], bytes, bytes]] = []
        self._tensor_count = self._tensor_bytes = 0
        self._counts: dict[str, int] = dict.fromkeys(_BUFFERED, 0)

    # -- the life of a file ------------------------------------------------------------

    def begin(self, header: Mapping[str, Any], graph: TopologyGraph | None) -> None:
        """Write the first frame (``header`` holds bench, arguments, seed, data …) and the machine.

        KernbenchError if events came before; without it the first event begins with nothing.
        """
        if self._began or self._texts.count:
            raise KernbenchError("the trace has begun already; call begin once, before all events")
        self._began = True
        head = {
            "version": list(VERSION),
            "kernbench": __version__,
            "time_unit": "ns",
            "topology_hash": graph.hash if graph is not None else "",
        }
        self._write(MAGIC, head | plain(header))
        if graph is not None:
            self._write_topology(graph)

    def _write_topology(self, graph: TopologyGraph) -> None:
        number, nodes, edges = self._strings, graph.nodes.values(), graph.edges
        for node in graph.nodes:
            number[node]
        body = Body()
        machine = [
            [number[n.type] for n in nodes],
            [number[n.engine] for n in nodes],
            *([getattr(n, f) for n in nodes] for f in list(LOGS["nodes"])[2:]),
        ]
        links = [
            *([number[getattr(e, f)] for e in edges] for f in ("src", "dst", "kind")),
            *([getattr(e, f) for e in edges] for f in list(LOGS["edges"])[3:]),
        ]
        head = {"nodes": body.add_log("nodes", machine), "edges": body.add_log("edges", links)}
        self._write_strings()
        self._write_deflated("topology", head | {"spec": plain(graph.spec)}, body.bytes())

    def verify(self, report: Any) -> None:
        """Phase 2's verdict: a VerifyReport, or a map of what the reader shall give back."""
        results = plain(report)
        results.setdefault("ok", bool(getattr(report, "ok", False)))
        self._flush()
        self._write("verify", {"results": results})

    def end(self, end_ns: float, error: str | None = None) -> None:
        """The run is over at ``end_ns``, or was ended by ``error``: write that and close."""
        self._flush()
        head = {"counts": self._counts, "end_ns": float(end_ns), "ok": error is None}
        self._write("end", head | {"error": error})
        self.close()

    def close(self) -> None:
        """Write what is buffered and name the file; one without ``end`` counts as cut off."""
        if self._file.closed:
            return
        self._flush()
        if not self._began:
            self.begin({}, None)
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
        """A row of ``commands``."""
        number = self._strings
        place = (number[site[0]], site[1], number[site[2]])
        self._rows["commands"].append(
            (cmd, number[pe], launch, number[call], *place, awaits, t_issue, t_resume)
        )
        self._passed(t_resume)

    def op(
        self,
        row: int,
        record: OpRecord,
        cmd: int,
        slot: int,
        waits: list[Wait],
        transfers: list[Transfer],
    ) -> None:
        """A row of ``ops``, with its waits and transfers."""
        if self.error is not None:
            return
        number, rows = self._strings, self._rows
        node, name = number[record.component_id], number[record.op_name]
        group, place = self._params.add(record)
        size, after = _nbytes(record.params), record.dependency_ids
        rows["ops"].append(
            (record.t_start, record.t_end, node, name, slot, cmd, size, group, place, after)
        )
        for at, reason, t0, t1, holder in waits:
            code = _REASONS.get(reason)
            if code is None:
                raise KernbenchError(f"wait reason {reason!r}; valid: {', '.join(WAIT_REASONS)}")
            rows["waits"].append((cmd, row, number[at], code, t0, t1, holder & NONE))
        for path, t0, nbytes, bursts, starts in transfers:
            rows["transfers"].append((cmd, row, self._paths[path], t0, nbytes, bursts, starts))
        self._passed(record.t_end)

    def transfer(self, cmd: int, transfer: Transfer) -> None:
        """A row of ``transfers`` that no op has."""
        path, t0, nbytes, bursts, starts = transfer
        self._rows["transfers"].append((cmd, NONE, self._paths[path], t0, nbytes, bursts, starts))
        self._passed(t0)

    def launch(
        self,
        launch: int,
        kernel: str,
        pes: tuple[str, ...],
        t_issue: float,
        t_start: float,
        t_end: float,
    ) -> None:
        """A row of ``launches``."""
        nodes = [self._strings[pe] for pe in pes]
        self._rows["launches"].append(
            (launch, self._strings[kernel], t_issue, t_start, t_end, nodes)
        )
        self._passed(t_end)

    def alloc(self, shard: Shard) -> None:
        """A row of ``alloc``; axes beyond three are not kept."""
        space = self._spaces.setdefault(shard.space, len(self._spaces))
        origin, shape = shard.origin[:3], shard.shape[:3]
        box = (*origin, *(0,) * (3 - len(origin)), *shape, *(0,) * (3 - len(shape)))
        what = (self._values[shard.tensor], _DTYPES[shard.dtype], space)
        where = (shard.addr, shard.va, shard.nbytes, self._strings[shard.owner])
        self._rows["alloc"].append((*what, *where, *box, shard.cmd, len(shape), shard.index))
        self._passed(self._now)

    def expect(
        self, name: str, shard: Shard, array: npt.NDArray[Any], tolerance: Tolerance, after: int
    ) -> None:
        """An ``expect`` frame; its array is stored as a tensor."""
        if self.error is not None:
            return
        head = {
            "name": name,
            "shard": shard.index,
            "space": shard.space,
            "addr": shard.addr,
            "dtype": shard.dtype,
            "tensor": self._tensor(array),
            "tolerance": [tolerance.rtol, tolerance.atol],
            "after": after,
            "origin": shard.origin,
            "shape": shard.shape,
        }
        self._expects.append(plain(head))

    def text(self, t: float, cmd: int, level: str, message: str) -> None:
        """A row of ``text``."""
        self._rows["text"].append((t, cmd, self._strings[level], self._values[message]))
        self._passed(t)

    def source(self, file: str, kernel: str, text: str) -> None:
        """A ``source`` frame."""
        raw = text.encode(errors="backslashreplace")
        head = {"file": file, "kernel": kernel, "sha": hashlib.sha256(raw).hexdigest()}
        self._write_deflated("source", head, raw)

    # -- what rows hold ------------------------------------------------------------

    def _tensor(self, array: npt.NDArray[Any]) -> int:
        try:
            dtype = _DTYPES[name_of(array.dtype)]
        except UsageError:
            return NONE  # no element type of the machine: not its data
        data = array.tobytes()
        digest = hashlib.sha256(data).digest()
        key = (digest, dtype, array.shape)
        found = self._digests.get(key)
        if found is not None:
            return found
        if len(self._digests) >= REMEMBERED:
            del self._digests[next(iter(self._digests))]
        if self._tensors and self._tensor_bytes + len(data) > TENSOR_FRAME_BYTES:
            self._write_tensors()
        self._digests[key] = number = self._tensor_count
        self._tensor_count += 1
        self._tensors.append((dtype, array.shape, digest, data))
        self._tensor_bytes += len(data)
        return number

    # -- flushing ------------------------------------------------------------

    def _passed(self, t: float) -> None:
        """Simulated time is ``t``: flush if that, or the number of rows, says so."""
        if t > self._now:
            self._now = t
        rows = max(map(len, self._rows.values()))
        if rows >= QUIET_ROWS and (
            rows >= CHUNK_ROWS or self._now - self._flushed_at >= QUIET_NS or self.error is not None
        ):
            self._flush()

    def _flush(self) -> None:
        """Write all buffered rows, after the strings, tensors and paths that they refer to."""
        self._flushed_at = self._now
        rows, self._rows = self._rows, {tag: [] for tag in _BUFFERED}
        expects, self._expects = self._expects, []
        if self.error is not None:
            self._texts.entries, self._new_paths.entries, self._tensors = [], [], []
            self._values.clear()
            self._params.clear()
            return
        frames = [self._log_frame(tag, rows[tag]) for tag in _BUFFERED if rows[tag]]
        frames += [("expect", head, b"") for head in expects]
        fresh, self._new_paths.entries = self._new_paths.entries, []
        if fresh:
            body = Body()
            head = body.add_log("paths", [[[self._strings[node] for node in p] for p in fresh]])
            head["first"] = self._new_paths.count - len(fresh)
            frames.insert(0, ("paths", head, body.bytes()))
        self._write_strings()
        self._write_tensors()
        for frame in frames:
            self._write(*frame)
        if len(self._values) > REMEMBERED:
            self._values.clear()

    def _log_frame(self, tag: str, rows: list[Any]) -> tuple[str, dict[str, Any], bytes]:
        columns: list[Any] = list(zip(*rows, strict=True))
        extra: dict[str, Any] = {}
        body = Body()
        if tag == "ops":
            schemas, extra = self._params.flush(body)
            columns[7] = schemas[list(columns[7])]
            extra["first"] = self._counts[tag]
        elif tag == "alloc":
            extra = {"spaces": list(self._spaces)}
        head = body.add_log(tag, columns) | extra
        self._counts[tag] += len(rows)
        return tag, head, body.bytes()

    # -- frames ------------------------------------------------------------

    def _write_strings(self) -> None:
        texts, self._texts.entries = self._texts.entries, []
        if texts:
            head = {"first": self._texts.count - len(texts), "n": len(texts)}
            self._write_deflated("strings", head, pack_strings(texts))

    def _write_tensors(self) -> None:
        tensors, self._tensors, self._tensor_bytes = self._tensors, [], 0
        if not tensors:
            return
        body = Body()
        dtypes, shapes, digests, data = zip(*tensors, strict=True)
        offsets = [body.add(np.frombuffer(piece, np.uint8)) for piece in data]
        shas = [np.frombuffer(digest, "<u8").tolist() for digest in digests]
        head = body.add_log("tensors", [dtypes, shapes, offsets, shas])
        head["first"] = self._tensor_count - len(tensors)
        self._write("tensors", head, body.bytes())

    def _write_deflated(self, tag: str, head: dict[str, Any], raw: bytes) -> None:
        self._write(tag, head | {"raw": len(raw)}, zlib.compress(raw, 6))

    def _write(self, tag: str, head: dict[str, Any], body: bytes = b"") -> None:
        """Append a frame whole, or stop recording; one torn by an interrupt is overwritten."""
        if not self._began:
            self._began = True
            first = {"version": list(VERSION), "kernbench": __version__, "time_unit": "ns"}
            self._write(MAGIC, first)
        if self.error is not None or self._file.closed:
            return
        try:
            if len(body) > _MAX_FRAME_BYTES:
                raise OSError(0, f"a {tag} frame of {len(body)} bytes is over the 4 GiB of a frame")
            frame = memoryview(pack_frame(tag, head, body, self._offset))
            self._file.seek(self._offset)
            written = 0
            while written < len(frame):
                written += self._file.write(frame[written:])
            self._offset += written
        except OSError as error:
            self.error = (
                f"recording to {self.path} stopped at {self._offset} bytes, {self._now:.0f} ns: "
                f"{error.strerror}; free some space or choose another place, and run again"
            )
            with contextlib.suppress(OSError):
                self._file.truncate(self._offset)

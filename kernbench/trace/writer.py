"""``TraceWriter``: the Recorder that streams a run to one trace file.

Owns what is buffered and when it is written. Memory does not grow with the run: what is remembered
for longer than a chunk are the names, paths and schemas of the machine, and the last 64 Ki digests.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench import __version__
from kernbench.common.dtypes import Tolerance, name_of, nbytes_of
from kernbench.common.messages import WAIT_REASONS, Transfer, Wait
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology.graph import TopologyGraph
from kernbench.trace.schema import (
    CODES,
    DTYPE_NAMES,
    LOGS,
    MAGIC,
    NONE,
    VERSION,
    Body,
    Tree,
    code_of,
    pack_frame,
    pack_strings,
    plain,
    tree_of,
    tree_text,
)

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


class _Group:
    """The ops of one structure of params that wait for the next flush."""

    __slots__ = ("fields", "kind", "name", "number", "rows", "tensors")

    def __init__(self, number: int, record: OpRecord) -> None:
        self.number, self.name, self.kind = number, record.op_name, record.op_kind
        self.fields = {name: tree_of(value) for name, value in record.params.items()}
        self.tensors = any("t" in tree_text(tree) for tree in self.fields.values())
        self.rows: list[dict[str, Any]] = []


def _signature(values: Iterable[Any]) -> Any:
    """Equal for values of one structure: the types, and those inside lists and tuples."""
    types = tuple(map(type, values))
    inner = [_signature(v) for v in values if isinstance(v, (tuple, list))]
    return (types, *inner) if inner else types


def _nbytes(params: dict[str, Any]) -> int:
    """Bytes that an op moves, or of its output; 0 where its params do not say."""
    for name in ("nbytes", "out_nbytes"):
        if isinstance(params.get(name), int):
            return min(max(int(params[name]), 0), (1 << 63) - 1)
    try:
        return nbytes_of(params["shape_out"], params.get("dtype_out") or params["dtype"])
    except (KeyError, TypeError, UsageError):
        return 0


class TraceWriter:
    """Records a run to ``path``; until ``end`` or ``close`` the file is ``path.partial``.

    A write error stops the recording, not the run: ``error`` then says what happened (None: all is
    well), and what was written stays readable. UsageError if the file cannot be made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.error: str | None = None
        self._partial = self.path.with_name(self.path.name + ".partial")
        try:
            self._file = open(self._partial, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise UsageError(
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
        self._groups: dict[Any, _Group] = {}
        self._schemas: dict[tuple[Any, ...], int] = {}
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
        params, number = record.params, self._strings
        key = (record.op_name, record.op_kind, tuple(params), _signature(params.values()))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(len(self._groups), record)
        times = (record.t_start, record.t_end, number[record.component_id], number[record.op_name])
        place = (group.number, len(group.rows), record.dependency_ids)
        self._rows["ops"].append((*times, slot, cmd, _nbytes(params), *place))
        group.rows.append(self._frozen(params) if group.tensors else params)
        for node, reason, t0, t1, holder in waits:
            code = _REASONS.get(reason)
            if code is None:
                raise KernbenchError(f"wait reason {reason!r}; valid: {', '.join(WAIT_REASONS)}")
            self._rows["waits"].append((cmd, row, number[node], code, t0, t1, holder & NONE))
        for path, t0, nbytes, bursts, starts in transfers:
            path_id = self._paths[path]
            self._rows["transfers"].append((cmd, row, path_id, t0, nbytes, bursts, starts))
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
        self._rows["alloc"].append((*what, *where, *box, len(shape), shard.cmd, shard.index))
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

    def _frozen(self, value: Any) -> Any:
        """``value`` with the numbers of its arrays in their place, as they are now."""
        if isinstance(value, np.ndarray):
            return self._tensor(value)
        if isinstance(value, dict):
            return {key: self._frozen(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._frozen(item) for item in value]
        return value

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
        groups = [group for group in self._groups.values() if group.rows]
        buffered = [(group, group.rows) for group in groups]
        for group in groups:
            group.rows = []
        if self.error is not None:
            self._texts.entries, self._new_paths.entries, self._tensors = [], [], []
            self._values.clear()
            return
        frames = [self._log_frame(tag, rows[tag], buffered) for tag in _BUFFERED if rows[tag]]
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

    def _log_frame(
        self, tag: str, rows: list[Any], buffered: list[tuple[_Group, list[dict[str, Any]]]]
    ) -> tuple[str, dict[str, Any], bytes]:
        columns: list[Any] = list(zip(*rows, strict=True))
        extra: dict[str, Any] = {}
        body = Body()
        if tag == "ops":
            known = len(self._schemas)
            ids = np.zeros(len(self._groups), np.int64)
            blocks = []
            for group, params in buffered:
                ids[group.number], block = self._params(group, params, body)
                blocks.append(block)
            columns[7] = ids[list(columns[7])]
            fresh = list(self._schemas)[known:]
            extra = {"first": self._counts[tag], "params": blocks, "schemas": fresh}
            extra["first_schema"] = known
        elif tag == "alloc":
            extra = {"spaces": list(self._spaces)}
        head = body.add_log(tag, columns) | extra
        self._counts[tag] += len(rows)
        return tag, head, body.bytes()

    def _params(
        self, group: _Group, rows: list[dict[str, Any]], body: Body
    ) -> tuple[int, tuple[Any, ...]]:
        """Append one structured array of params; its schema, and its row in the head."""
        stored: list[npt.NDArray[Any]] = []
        fields = tuple(
            (name, tree_text(self._leaves(tree, [row[name] for row in rows], stored)))
            for name, tree in group.fields.items()
        )
        codes = [
            "f8" if a.dtype.kind == "f" else code_of(int(a.min()), int(a.max())) for a in stored
        ]
        dtype = [(f"f{i}", CODES[code]) for i, code in enumerate(codes)]
        block = np.empty(len(rows) if dtype else 0, dtype or "u1")
        for (name, _), column in zip(dtype, stored, strict=True):
            block[name] = column
        key = (group.kind, group.name, fields)
        schema = self._schemas.setdefault(key, len(self._schemas))
        return schema, (schema, len(rows), body.add(block), "".join(codes))

    def _leaves(self, tree: Tree, values: list[Any], stored: list[npt.NDArray[Any]]) -> Tree:
        """Append a column for each leaf; the tree as stored (integers of over 64 bits are text)."""
        if isinstance(tree, tuple):
            kind, items = tree
            inner = [self._leaves(t, [v[i] for v in values], stored) for i, t in enumerate(items)]
            return kind, tuple(inner)
        if tree == "n":
            return tree
        if tree == "f":
            stored.append(np.array(values, np.float64))
            return tree
        if tree in "sr":
            number = self._values
            values = [number[v if tree == "s" else repr(v)] for v in values]
        try:
            stored.append(np.array(values, np.int64))
        except OverflowError:
            stored.append(np.array([self._values[str(v)] for v in values], np.int64))
            return "I"
        return tree

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

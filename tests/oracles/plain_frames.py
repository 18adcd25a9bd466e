"""Reads a trace file as docs/trace-format.md describes it, by msgpack and numpy alone.

Everything is decoded at once into lists and dicts: for small traces, to be understood.
Nothing of kernbench is imported. What a file holds is believed, not checked.
"""

import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import msgpack
import numpy as np

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}
"""numpy's types in the order in which a file numbers ours."""

REASONS = (
    *("operand", "engine", "window", "dma_slot", "link"),
    *("hbm_channel", "credit", "arrival", "launch", "barrier", "delayed", "sram_port"),
)
KINDS = ("memory", "gemm", "math", "unknown")
NOBODY = 4294967295


@dataclass
class Op:
    """One op. ``position`` counts in canonical order, as everybody who asks does."""

    row: int
    t_start: float
    t_end: float
    node: int
    component: str
    kind: str
    name: str
    slot: int
    cmd: int
    nbytes: int
    params: dict[str, Any]
    deps: list[int]
    position: int = -1


@dataclass
class Recording:
    """A whole trace; the logs are lists of rows, each a dict by column."""

    head: dict[str, Any] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    spaces: list[str] = field(default_factory=list)
    allocs: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    transfers: list[dict[str, Any]] = field(default_factory=list)
    waits: list[dict[str, Any]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    expected: list[dict[str, Any]] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)
    verdict: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    rows: list[Op] = field(default_factory=list)
    """The ops in the order in which they ended."""
    ops: list[Op] = field(default_factory=list)
    """The ops in canonical order."""

    def call_of(self, op):
        """The row of the call that caused an op, None where there is none."""
        return self._calls.get(op.cmd)

    def of_row(self, log, row):
        """The transfers or the waits of an op by its row."""
        return self._by_row[log].get(row, [])

    def finish(self):
        """Bring the ops into canonical order, and group what belongs to each."""
        self.ops = sorted(
            self.rows, key=lambda op: (op.t_start, KINDS.index(op.kind), op.row)
        )
        for position, op in enumerate(self.ops):
            op.position = position
        self._calls = {}
        for call in self.calls:
            self._calls.setdefault(call["cmd"], call)
        self._by_row = {"transfers": defaultdict(list), "waits": defaultdict(list)}
        for log, by_row in self._by_row.items():
            for entry in getattr(self, log):
                by_row[entry["row"]].append(entry)


def read(path):
    """The recording that a file holds."""
    with open(path, "rb") as file:
        frames = list(msgpack.Unpacker(file, max_buffer_size=0))
    return from_frames(frames)


def from_frames(frames):
    """The recording of frames (tag, head, body)."""
    recording = Recording()
    schemas = []
    waiting = []  # blocks of ops, decoded once all strings and arrays are there
    for tag, head, body in frames:
        if tag == "kernbench-trace":
            recording.head = head
        elif tag == "strings":
            recording.strings += msgpack.unpackb(zlib.decompress(body))
        elif tag == "topology":
            inflated = zlib.decompress(body)
            recording.nodes = _rows(head["nodes"], inflated)
            recording.edges = _rows(head["edges"], inflated)
            recording.head["spec"] = head["spec"]
        elif tag == "source":
            text = zlib.decompress(body).decode()
            recording.sources[head["file"]] = text.splitlines()
        elif tag == "tensors":
            for entry in _rows(head, body):
                recording.arrays.append(_array(entry, body))
        elif tag == "paths":
            recording.paths += [entry["node"] for entry in _rows(head, body)]
        elif tag == "alloc":
            if len(head["spaces"]) > len(recording.spaces):
                recording.spaces = head["spaces"]
            recording.allocs += _rows(head, body)
        elif tag == "ops":
            for letter in head["schemas"]:
                schemas.append(letter)
            waiting.append((head, body))
        elif tag == "commands":
            recording.calls += _rows(head, body)
        elif tag in ("transfers", "waits", "launches"):
            getattr(recording, tag).extend(_rows(head, body))
        elif tag == "expect":
            recording.expected.append(head)
        elif tag == "verify":
            recording.verdict = head
        elif tag == "end":
            recording.end = head
    for head, body in waiting:
        _add_ops(recording, schemas, head, body)
    recording.allocs = [_alloc(recording, entry) for entry in recording.allocs]
    for expected in recording.expected:
        expected["array"] = recording.arrays[expected["tensor"]]
    recording.finish()
    return recording


def _columns(head, body):
    columns = {}
    for name, code, offset, length in head["columns"]:
        columns[name] = np.frombuffer(body, f"<{code}", length, offset).tolist()
    return columns


def _rows(head, body):
    """A log frame as a list of dicts; columns of lists are cut into theirs."""
    columns = _columns(head, body)
    for name in [name for name in columns if f"{name}_n" in columns]:
        lengths = columns.pop(f"{name}_n")
        values = columns.pop(name)
        lists = []
        first = 0
        for length in lengths:
            lists.append(values[first : first + length])
            first += length
        columns[name] = lists
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _array(entry, body):
    dtype = np.dtype(list(DTYPES.values())[entry["dtype"]])
    count = int(np.prod(entry["shape"], dtype=np.int64))
    flat = np.frombuffer(body, dtype, count, entry["offset"])
    return flat.reshape(entry["shape"])


def _alloc(recording, entry):
    """An allocation with names for numbers, origin and shape as tuples."""
    axes = entry["rank"]
    return {
        "tensor": recording.strings[entry["tensor"]],
        "dtype": list(DTYPES)[entry["dtype"]],
        "space": recording.spaces[entry["space"]],
        "addr": entry["addr"],
        "va": entry["va"],
        "nbytes": entry["nbytes"],
        "owner": recording.strings[entry["owner"]],
        "origin": tuple(entry[f"origin{axis}"] for axis in range(axes)),
        "shape": tuple(entry[f"shape{axis}"] for axis in range(axes)),
        "cmd": entry["cmd"],
        "index": entry["index"],
    }


def _add_ops(recording, schemas, head, body):
    """Append the ops of a frame, with their params."""
    blocks = {}
    for schema, rows, offset, types in head["params"]:
        codes = [types[i : i + 2] for i in range(0, len(types), 2)]
        leaves = np.dtype([(f"f{i}", f"<{code}") for i, code in enumerate(codes)])
        blocks[schema] = np.frombuffer(body, leaves, rows, offset).tolist()
    for entry in _rows(head, body):
        kind, name, fields = schemas[entry["schema"]]
        numbers = iter(blocks[entry["schema"]][entry["param"]])
        params = {}
        for key, structure in fields:
            params[key] = _value(recording, structure, numbers)
        assert name == recording.strings[entry["name"]]
        recording.rows.append(
            Op(
                row=len(recording.rows),
                t_start=entry["t_start"],
                t_end=entry["t_end"],
                node=entry["component"],
                component=recording.strings[entry["component"]],
                kind=kind,
                name=name,
                slot=entry["slot"],
                cmd=entry["cmd"],
                nbytes=entry["nbytes"],
                params=params,
                deps=entry["dep"],
            )
        )


def _value(recording, structure, numbers):
    """One param, of the numbers that come next."""
    if not isinstance(structure, str):
        bracket, items = structure
        values = [_value(recording, item, numbers) for item in items]
        return tuple(values) if bracket == "(" else values
    if structure == "n":
        return None
    number = next(numbers)
    if structure in "sr":
        return recording.strings[number]
    if structure == "t":
        return None if number == NOBODY else recording.arrays[number]
    if structure == "b":
        return bool(number)
    return number

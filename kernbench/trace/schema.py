"""The vocabulary of a trace file: tags, the columns of every log, and how a frame is packed.

Owns what writer and reader must agree on: how columns lie in a body, and how they are found there.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]
import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES
from kernbench.common.messages import WAIT_REASONS
from kernbench.errors import TraceFormatError

Columns: TypeAlias = dict[str, Array]

MAGIC = "kernbench-trace"
VERSION = (1, 0)
NONE = 0xFFFFFFFF  # no row, no tensor
_INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
FIXED = {
    "reason": WAIT_REASONS,
    "dtype": tuple(DTYPES),
    "axes": range(4),
}  # tables of all files
CODES = {code: np.dtype(f"<{code}") for code in (*_INTEGERS, "f8")}
_LIMITS = [
    (c, int(np.iinfo(CODES[c]).min), int(np.iinfo(CODES[c]).max)) for c in _INTEGERS
]
_ALIGN = 8


class Column(NamedTuple):
    """A column: its width on disk ("n": the narrowest that holds the values; any may be widened).

    ``load`` is the type that the reader gives it. With a ``limit`` it holds numbers of that table:
    node, string (kept for good), text (a string that may be forgotten), path, reason, dtype (of
    DTYPES), space, axes (up to 3). A ``many`` column holds a list a row; ``NAME_n`` are the counts.
    """

    store: str
    load: str
    limit: str
    many: bool


# LOG: NAME STORE[/LOAD][<LIMIT], …; NAME* is a ``many`` column
_LOGS = """
nodes: type n/u4<string, engine n/u4<string, sip i2/i4, cube i2/i4, pe i2/i4,
    x_mm f8, y_mm f8, overhead_ns f8
edges: src n/u4<node, dst n/u4<node, kind n/u4<string,
    distance_mm f8, routing_weight_mm f8, bandwidth_gbs f8
tensors: dtype u1<dtype, shape* n/u8, offset u4/u8, sha* u8
paths: node* n/u4<node
alloc: tensor u4<text, dtype u1<dtype, space u1/u4<space, addr u8, va u8, nbytes u8,
    owner u4<string, origin0 u4, origin1 u4, origin2 u4, shape0 u4, shape1 u4, shape2 u4,
    cmd u4, rank u1<axes, index n/u4
commands: cmd u4, pe n/u4<node, launch i4, call n/u4<string, file n/u4<string, line n/u4,
    function n/u4<string, awaits u4, t_issue f8, t_resume f8
ops: t_start f8, t_end f8, component u4<node, name u2/u4<string, slot u1/u4, cmd u4, nbytes u8,
    schema u2/u4, param u4, dep* u4
transfers: cmd u4, row u4, path u4<path, t0 f8, nbytes n/u8, bursts n/u4, start* f8
launches: launch i4, kernel n/u4<string, pe* n/u4<node, t_issue f8, t_start f8, t_end f8
waits: cmd u4, row u4, node n/u4<node, reason u1<reason, t0 f8, t1 f8, holder u4
text: t f8, cmd u4, level n/u4<string, message n/u4<text
"""
LOGS = {
    tag: {
        name: Column(store, load or store, limit, many == "*")
        for name, many, store, load, limit in re.findall(
            r"(\w+)(\*?) (\w+)/?(\w*)<?(\w*)", columns
        )
    }
    for tag, columns in re.findall(r"^(\w+):((?:.|\n )*)", _LOGS, re.M)
}


def code_of(numbers: Array, at_least: str = "n") -> str:
    """The narrowest code that holds ``numbers`` and is not narrower than ``at_least``."""
    if numbers.dtype.kind == "f":
        return "f8"
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    for code, least, most in _LIMITS:
        wide_enough = at_least == "n" or (
            code[0] == at_least[0] and code[1] >= at_least[1]
        )
        if least <= low and high <= most and wide_enough:
            return code
    raise OverflowError(f"no {at_least} column holds {low} to {high}")


class Body(bytearray):
    """The body of a frame in the making: aligned arrays."""

    def add(self, data: bytes) -> int:
        """Append an array's bytes; their offset."""
        self.extend(bytes(-len(self) % _ALIGN))
        offset = len(self)
        self.extend(data)
        return offset

    def add_log(
        self,
        tag: str,
        columns: Sequence[Sequence[Any]],
        tables: Mapping[str, Mapping[Any, int]],
    ) -> dict[str, Any]:
        """Append the columns of ``LOGS[tag]``, numbers by ``tables``; the head that finds them."""
        table: list[tuple[str, str, int, int]] = []

        def put(name: str, values: Any, store: str) -> None:
            numbers = np.array(
                values, {"f8": np.float64, "u8": np.uint64}.get(store, np.int64)
            )
            code = code_of(numbers, store)
            data = numbers.astype(CODES[code], copy=False).tobytes()
            table.append((name, code, self.add(data), len(numbers)))

        for (name, column), values in zip(LOGS[tag].items(), columns, strict=True):
            if column.many:
                put(f"{name}_n", list(map(len, values)), "n")
                values = list(chain.from_iterable(values))
            if column.limit:
                values = list(map(tables[column.limit].__getitem__, values))
            put(name, values, column.store)
        return {"n": len(columns[0]), "columns": table}


def whole(value: Any, limit: int = 1 << 62) -> int:
    """``value`` if it is an integer of 0 to ``limit``; TraceFormatError if not."""
    if not isinstance(value, int) or not 0 <= value <= limit:
        raise TraceFormatError(f"{value!r:.40} is not a number of 0 to {limit}")
    return value


def read_columns(
    tag: str,
    head: dict[str, Any],
    body: bytes | memoryview,
    tables: Mapping[str, Sequence[Any]],
) -> Columns:
    """The columns of ``LOGS[tag]`` as views of ``body``, numbers of ``tables`` in range.

    TraceFormatError, ValueError, TypeError, LookupError or OverflowError for what is none.
    """
    rows = whole(head["n"])
    views: Columns = {}
    for name, code, offset, count in head["columns"]:
        dtype = CODES[code]
        if whole(offset) + whole(count) * dtype.itemsize > len(body):
            raise TraceFormatError(f"column {name!r:.40} lies outside the body")
        views[name] = np.ndarray((count,), dtype, body, offset)
    found: Columns = {}
    for name, column in LOGS[tag].items():
        view, length, wanted = views[name], rows, np.dtype(column.load)
        if column.many:
            counts = found[f"{name}_n"] = views[f"{name}_n"]
            length = int(counts.sum(dtype=np.uint64))
            if counts.dtype.str[1:] not in ("u1", "u2", "u4") or len(counts) != rows:
                raise TraceFormatError(f"column {name}_n is not of {rows} counts")
        fits = view.dtype.kind == wanted.kind and view.dtype.itemsize <= wanted.itemsize
        if len(view) != length or not fits:
            raise TraceFormatError(f"column {name} is not of {length} {column.load}")
        if view.dtype.kind == "f" and tag != "edges" and not np.isfinite(view).all():
            raise TraceFormatError(
                f"column {name} holds a time or place that is not finite"
            )
        if column.limit and length and int(view.max()) >= len(tables[column.limit]):
            raise TraceFormatError(
                f"column {name} holds {int(view.max())}: no such {column.limit}"
            )
        found[name] = view
    return found


def pack_frame(
    tag: str, head: Mapping[str, Any], body: bytes | bytearray, offset: int
) -> bytes:
    """``[tag, head, body]`` in msgpack, padded so that a body written at ``offset`` is aligned."""
    full = {**head, "crc": zlib.crc32(body), "pad": b""}
    front = b"\x93" + pack(tag)
    full["pad"] = bytes(-(offset + len(front) + len(pack(full)) + 5) % _ALIGN)
    return b"".join((front, pack(full), b"\xc6", len(body).to_bytes(4, "big"), body))


def pack(value: Any) -> bytes:
    """``value`` in msgpack."""
    return bytes(msgpack.packb(value, unicode_errors="backslashreplace", default=plain))


def plain(value: Any) -> Any:
    """``value`` as maps, lists and scalars: what a head can hold; anything else as its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str))
        else str(value)
    )

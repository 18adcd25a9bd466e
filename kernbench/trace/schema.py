"""The vocabulary of a trace file: tags, the columns of every log, and how a frame is packed.

Owns what writer and reader must agree on, and nothing that only one of them does.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import DTYPES

MAGIC = "kernbench-trace"
VERSION = (1, 0)
TAGS = (
    *(MAGIC, "topology", "source", "strings", "tensors", "paths", "alloc", "commands", "ops"),
    *("transfers", "launches", "waits", "text", "expect", "verify", "end"),
)
NONE = 0xFFFFFFFF  # no row, no tensor
DTYPE_NAMES = tuple(DTYPES)  # a dtype's code is its place here
_INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
CODES = {code: np.dtype(f"<{code}") for code in (*_INTEGERS, "f8")}
_LIMITS = [(code, np.iinfo(CODES[code])) for code in _INTEGERS]
_ALIGN = 8


class Column(NamedTuple):
    """A column: its width on disk ("n": the narrowest that holds the values; any may be widened).

    ``load`` is the type that the reader gives it. With a ``limit`` it holds numbers of that table:
    node, string (kept for good), text (a string that may be forgotten), path, reason, dtype, space.
    A ``many`` column holds a list a row; ``NAME_n`` are the counts.
    """

    store: str
    load: str
    limit: str
    many: bool


def _log(text: str) -> dict[str, Column]:
    """Columns from "NAME STORE[/LOAD][<LIMIT]" lines or commas; NAME* is a ``many`` column."""
    columns = {}
    for item in text.split(","):
        name, what = item.split()
        width, _, limit = what.partition("<")
        store, _, load = width.partition("/")
        columns[name.rstrip("*")] = Column(store, load or store, limit, name.endswith("*"))
    return columns


LOGS: dict[str, dict[str, Column]] = {
    "nodes": _log(
        "type n/u4<string, engine n/u4<string, sip i2/i4, cube i2/i4, pe i2/i4,"
        "x_mm f8, y_mm f8, overhead_ns f8"
    ),
    "edges": _log(
        "src n/u4<node, dst n/u4<node, kind n/u4<string,"
        "distance_mm f8, routing_weight_mm f8, bandwidth_gbs f8"
    ),
    "tensors": _log("dtype u1<dtype, shape* n/u8, offset u4/u8, sha* u8"),
    "paths": _log("node* n/u4<node"),
    "alloc": _log(
        "tensor u4<text, dtype u1<dtype, space u1/u4<space, addr u8, va u8, nbytes u8,"
        "owner u4<string, origin0 u4, origin1 u4, origin2 u4, shape0 u4, shape1 u4, shape2 u4,"
        "cmd u4, rank u1, index n/u4"
    ),
    "commands": _log(
        "cmd u4, pe n/u4<node, launch i4, call n/u4<string, file n/u4<string, line n/u4,"
        "function n/u4<string, awaits u4, t_issue f8, t_resume f8"
    ),
    "ops": _log(
        "t_start f8, t_end f8, component u4<node, name u2/u4<string, slot u1/u4, cmd u4, nbytes u8,"
        "schema u2/u4, param u4, dep* u4"
    ),
    "transfers": _log("cmd u4, row u4, path u4<path, t0 f8, nbytes n/u8, bursts n/u4, start* f8"),
    "launches": _log(
        "launch i4, kernel n/u4<string, pe* n/u4<node, t_issue f8, t_start f8, t_end f8"
    ),
    "waits": _log("cmd u4, row u4, node n/u4<node, reason u1<reason, t0 f8, t1 f8, holder u4"),
    "text": _log("t f8, cmd u4, level n/u4<string, message n/u4<text"),
}

# -- columns and frames ------------------------------------------------------------


def code_of(low: int, high: int, at_least: str = "n") -> str:
    """The narrowest code for integers low..high that is not narrower than ``at_least``."""
    wanted = 0 if at_least == "n" else int(at_least[1])
    for code, limits in _LIMITS:
        signed_as_wanted = at_least == "n" or code[0] == at_least[0]
        if limits.min <= low and high <= limits.max and int(code[1]) >= wanted and signed_as_wanted:
            return code
    raise OverflowError(f"no {at_least} column holds {low} to {high}")


def _array(values: Any, store: str) -> npt.NDArray[Any]:
    if store == "f8":
        return np.array(values, "<f8")
    numbers = np.array(values, np.uint64 if store == "u8" else np.int64)
    if not len(numbers):
        return np.empty(0, CODES["u1" if store == "n" else store])
    return numbers.astype(CODES[code_of(int(numbers.min()), int(numbers.max()), store)])


class Body:
    """The body of a frame in the making: aligned arrays, and the table that finds them.

    ``tables`` number what columns with a limit hold.
    """

    def __init__(self, tables: Mapping[str, Mapping[Any, int]]) -> None:
        self.size = 0
        self._tables, self._pieces = tables, list[bytes]()

    def add(self, array: npt.NDArray[Any]) -> int:
        """Append an array; its offset."""
        padding = -self.size % _ALIGN
        offset = self.size + padding
        self._pieces += [bytes(padding), array.tobytes()]
        self.size = offset + array.nbytes
        return offset

    def add_log(self, tag: str, columns: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Append the columns of ``LOGS[tag]``, in its order; the head that describes them."""
        table: list[tuple[str, str, int, int]] = []

        def put(name: str, array: npt.NDArray[Any]) -> None:
            table.append((name, array.dtype.str[1:], self.add(array), len(array)))

        for (name, column), values in zip(LOGS[tag].items(), columns, strict=True):
            if column.many:
                put(f"{name}_n", _array(list(map(len, values)), "n"))
                values = list(chain.from_iterable(values))
            if column.limit:
                values = list(map(self._tables[column.limit].__getitem__, values))
            put(name, _array(values, column.store))
        return {"n": len(columns[0]), "columns": table}

    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self._pieces)


def pack_frame(tag: str, head: Mapping[str, Any], body: bytes, offset: int) -> bytes:
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
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

"""The vocabulary of a trace file: tags, column tables, params schemas, and how a frame is packed.

Owns what writer and reader must agree on, and nothing that only one of them does.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import DTYPES

MAGIC = "kernbench-trace"
VERSION = (1, 0)
TAGS = (
    MAGIC,
    "topology",
    "source",
    "strings",
    "tensors",
    "paths",
    "alloc",
    "commands",
    "ops",
    "transfers",
    "launches",
    "waits",
    "text",
    "expect",
    "verify",
    "end",
)
NONE = 0xFFFFFFFF  # no row, no tensor
DTYPE_NAMES = tuple(DTYPES)  # a dtype's code is its place here
_INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
CODES = {code: np.dtype(f"<{code}") for code in (*_INTEGERS, "f8")}
_LIMITS = [(code, np.iinfo(CODES[code])) for code in _INTEGERS]
_ALIGN = 8


class Column(NamedTuple):
    """A column: its width on disk ("n": the narrowest that holds the values; any may be widened).

    ``load`` is the type that the reader gives it; values of an index stay below ``limit`` (node,
    string, path, reason, dtype). A ``many`` column holds a list a row; ``NAME_n`` are the counts.
    """

    store: str
    load: str
    limit: str = ""
    many: bool = False


_CMD, _TIME = Column("u4", "u4"), Column("f8", "f8")
_ROW, _COUNT = Column("u4", "u4"), Column("n", "u4")
_STRING, _NODE = Column("n", "u4", "string"), Column("n", "u4", "node")

LOGS: dict[str, dict[str, Column]] = {
    "nodes": {
        "type": _STRING,
        "engine": _STRING,
        "sip": Column("i2", "i4"),
        "cube": Column("i2", "i4"),
        "pe": Column("i2", "i4"),
        "x_mm": _TIME,
        "y_mm": _TIME,
        "overhead_ns": _TIME,
    },
    "edges": {
        "src": _NODE,
        "dst": _NODE,
        "kind": _STRING,
        "distance_mm": _TIME,
        "routing_weight_mm": _TIME,
        "bandwidth_gbs": _TIME,
    },
    "tensors": {
        "dtype": Column("u1", "u1", "dtype"),
        "shape": Column("n", "u8", many=True),
        "offset": Column("u4", "u8"),
        "sha": Column("u8", "u8", many=True),
    },
    "paths": {"node": Column("n", "u4", "node", many=True)},
    "alloc": {
        "tensor": Column("u4", "u4", "string"),
        "dtype": Column("u1", "u1", "dtype"),
        "space": Column("u1", "u4"),
        "addr": Column("u8", "u8"),
        "va": Column("u8", "u8"),
        "nbytes": Column("u8", "u8"),
        "owner": Column("u4", "u4", "string"),
        "origin0": _ROW,
        "origin1": _ROW,
        "origin2": _ROW,
        "shape0": _ROW,
        "shape1": _ROW,
        "shape2": _ROW,
        "rank": Column("u1", "u1"),
        "cmd": _CMD,
        "index": _COUNT,
    },
    "commands": {
        "cmd": _CMD,
        "pe": _NODE,
        "launch": Column("i4", "i4"),
        "call": _STRING,
        "file": _STRING,
        "line": _COUNT,
        "function": _STRING,
        "awaits": _CMD,
        "t_issue": _TIME,
        "t_resume": _TIME,
    },
    "ops": {
        "t_start": _TIME,
        "t_end": _TIME,
        "component": Column("u4", "u4", "node"),
        "name": Column("u2", "u4", "string"),
        "slot": Column("u1", "u4"),
        "cmd": _CMD,
        "nbytes": Column("u8", "u8"),
        "schema": Column("u2", "u4"),
        "param": _ROW,
        "dep": Column("u4", "u4", many=True),
    },
    "transfers": {
        "cmd": _CMD,
        "row": _ROW,
        "path": Column("u4", "u4", "path"),
        "t0": _TIME,
        "nbytes": Column("n", "u8"),
        "bursts": _COUNT,
        "start": Column("f8", "f8", many=True),
    },
    "waits": {
        "cmd": _CMD,
        "row": _ROW,
        "node": _NODE,
        "reason": Column("u1", "u1", "reason"),
        "t0": _TIME,
        "t1": _TIME,
        "holder": _ROW,
    },
    "launches": {
        "launch": Column("i4", "i4"),
        "kernel": _STRING,
        "t_issue": _TIME,
        "t_start": _TIME,
        "t_end": _TIME,
        "pe": Column("n", "u4", "node", many=True),
    },
    "text": {"t": _TIME, "cmd": _CMD, "level": _STRING, "message": _STRING},
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
    """The body of a frame in the making: aligned arrays, and the table that finds them."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []

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
            put(name, _array(values, column.store))
        return {"n": len(columns[0]), "columns": table}

    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self._pieces)


def pack_frame(tag: str, head: Mapping[str, Any], body: bytes, offset: int) -> bytes:
    """``[tag, head, body]`` in msgpack, padded so that a body written at ``offset`` is aligned."""
    full = {**head, "crc": zlib.crc32(body), "pad": b""}
    length = len(body).to_bytes(4, "big")
    plain = b"\x93" + _pack(tag) + _pack(full)
    full["pad"] = bytes(-(offset + len(plain) + 5) % _ALIGN)
    return b"".join((b"\x93", _pack(tag), _pack(full), b"\xc6", length, body))


def _pack(value: Any) -> bytes:
    return bytes(msgpack.packb(value, unicode_errors="backslashreplace"))


def pack_strings(texts: Sequence[str]) -> bytes:
    """The body of a ``strings`` frame before it is deflated."""
    return _pack(texts)


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


# -- params ------------------------------------------------------------

# What a value is made of: a leaf's letter, or a container's bracket and its items. i int, I int of
# over 64 bits (as text), f float, b bool, s str, t tensor, n None; anything else is kept as its repr.
Tree: TypeAlias = "str | tuple[str, tuple[Tree, ...]]"
_KINDS: dict[type, str] = {
    bool: "b",
    np.bool_: "b",
    int: "i",
    np.integer: "i",
    float: "f",
    np.floating: "f",
    str: "s",
    type(None): "n",
    np.ndarray: "t",
    tuple: "(",
    list: "[",
}
_CLOSE = {"(": ")", "[": "]"}
LEAF_DTYPES = {"i": "ui", "I": "u", "f": "f", "b": "u", "s": "u", "t": "u"}  # what may store each
_DEPTH = 16


def tree_of(value: Any) -> Tree:
    """The structure of a value of ``params``."""
    kind = next((_KINDS[c] for c in type(value).__mro__ if c in _KINDS), "r")
    return (kind, tuple(tree_of(item) for item in value)) if kind in _CLOSE else kind


def tree_text(tree: Tree) -> str:
    """``tree`` as in a head: "[(ii)(ii)]" is a list of two pairs of ints."""
    if isinstance(tree, str):
        return "s" if tree == "r" else tree
    return tree[0] + "".join(map(tree_text, tree[1])) + _CLOSE[tree[0]]


def parse_tree(text: str) -> Tree:
    """The inverse of ``tree_text``; ValueError if it is none, or nested more than 16 deep."""
    stack: list[tuple[str, list[Tree]]] = [("", [])]
    for letter in text:
        if letter in _CLOSE and len(stack) <= _DEPTH:
            stack.append((letter, []))
        elif letter == "n" or letter in LEAF_DTYPES:
            stack[-1][1].append(letter)
        elif len(stack) > 1 and letter == _CLOSE[stack[-1][0]]:
            kind, items = stack.pop()
            stack[-1][1].append((kind, tuple(items)))
        else:
            raise ValueError(f"params field {text[:40]!r} is no structure")
    if len(stack) != 1 or len(stack[0][1]) != 1:
        raise ValueError(f"params field {text[:40]!r} is not one structure")
    return stack[0][1][0]


def leaves_of(name: str, tree: Tree) -> list[tuple[str, str]]:
    """(path, letter) of every stored leaf: "shape.0" is the first extent of "shape"."""
    if isinstance(tree, str):
        return [] if tree == "n" else [(name, tree)]
    return [leaf for i, t in enumerate(tree[1]) for leaf in leaves_of(f"{name}.{i}", t)]

"""How a trace file is packed: frames, and the columns of a log in the body of one.

Owns what writer and reader must agree on beside the columns themselves, which
``kernbench.trace.columns`` states.

A file is a sequence of msgpack objects, so any msgpack library reads it. Each is a
frame ``[tag, head, body]``. The head is a map of what is needed to find things in the
body, which is bytes: arrays one after another, or something deflated. A log frame has
in its head ``n``, the number of rows, and ``columns``, a list of name, type, offset and
length of each array.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import msgpack  # type: ignore[import-untyped]
import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES
from kernbench.common.messages import WAIT_REASONS
from kernbench.errors import TraceFormatError
from kernbench.trace.columns import LOGS, ColumnSpec

Columns: TypeAlias = dict[str, Array]
"""Arrays by the names of columns; those of a frame have lists' lengths in NAME_n."""

MAGIC = "kernbench-trace"
VERSION = (1, 1)
NONE = 0xFFFFFFFF
"""What a file holds where there is no row or no tensor."""

FIXED_TABLES: dict[str, Sequence[Any]] = {
    "reason": WAIT_REASONS,
    "dtype": tuple(DTYPES),
    "axes": range(4),
}
"""The tables that are the same for all files."""

_INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
CODES = {code: np.dtype(f"<{code}") for code in (*_INTEGERS, "f8")}
"""The types that a column may have on disk. There is no other, above all no object."""

_LIMITS = [
    (code, int(np.iinfo(CODES[code]).min), int(np.iinfo(CODES[code]).max))
    for code in _INTEGERS
]
_BUILT_AS = {"f8": np.float64, "u8": np.uint64}  # what lists become first; int64
_COUNT_CODES = ("u1", "u2", "u4")

LATEST = 2.0**52
"""No time is later, in ns: some fifty days, of which a f8 still holds every ns."""

_ANYWHERE = (-LATEST, LATEST)

_RANGES = {
    "overhead_ns": (0.0, LATEST),
    "distance_mm": (0.0, LATEST),
    "routing_weight_mm": (0.0, LATEST),
    "bandwidth_gbs": (1e-9, float("inf")),
}
"""The least and the largest that a column of floats holds, if not ``_ANYWHERE``."""

_IN_ORDER = {
    "ops": [("t_start", "t_end")],
    "waits": [("t0", "t1")],
    "commands": [("t_issue", "t_resume")],
    "launches": [("t_issue", "t_start"), ("t_start", "t_end")],
}
"""Columns of which one is a time that is not before that of the other."""

_MOST_PLACES = 64  # SIPs, dies of each, and PEs of these; an address has fewer
_END_OF_ADDRESSES = 1 << 52
ALIGNMENT = 8


# -- writing -----------------------------------------------------------------------


def code_of(numbers: Array, narrowest: str = "n") -> str:
    """The first code from ``narrowest`` on that holds ``numbers``.

    "n" allows all, unsigned ones first. OverflowError if none holds them.
    """
    if numbers.dtype.kind == "f":
        return "f8"
    low = 0
    high = 0
    if len(numbers) == 1:  # as most are of what an op's params have
        low = high = int(numbers[0])
    elif len(numbers):
        low = int(numbers.min())
        high = int(numbers.max())
    for code, least, most in _limits_from(narrowest):
        if least <= low and high <= most:
            return code
    raise OverflowError(f"no {narrowest} column holds {low} to {high}")


@cache
def _limits_from(narrowest: str) -> list[tuple[str, int, int]]:
    """The codes that a column may have, with the least and the most that each holds."""
    if narrowest == "n":
        return _LIMITS
    return [
        (code, least, most)
        for code, least, most in _LIMITS
        if code[0] == narrowest[0] and code[1] >= narrowest[1]
    ]


class Body(bytearray):
    """The body of a frame in the making: arrays, each at a multiple of 8 bytes."""

    def add(self, data: bytes) -> int:
        """Append the bytes of an array; the offset at which they begin."""
        self.extend(bytes(-len(self) % ALIGNMENT))
        offset = len(self)
        self.extend(data)
        return offset

    def add_log(
        self,
        tag: str,
        columns: Sequence[Sequence[Any]],
        tables: Mapping[str, Mapping[Any, int]],
    ) -> dict[str, Any]:
        """Append rows of the log ``tag``; the head by which a reader finds them.

        ``columns`` are in the order of ``LOGS[tag]``. Where a column numbers the
        entries of a table, the entries are given, and ``tables`` numbers them.
        """
        table: list[tuple[str, str, int, int]] = []
        for (name, column), values in zip(LOGS[tag].items(), columns, strict=True):
            if column.many:
                counts = list(map(len, values))
                table.append(self._add_column(f"{name}_n", counts, "n"))
                values = list(chain.from_iterable(values))
            if column.table:
                numbers = tables[column.table]
                values = list(map(numbers.__getitem__, values))
            table.append(self._add_column(name, values, column.narrowest))
        return {"n": len(columns[0]), "columns": table}

    def _add_column(
        self, name: str, values: Sequence[Any], narrowest: str
    ) -> tuple[str, str, int, int]:
        """Append a column; its name, code, offset and length."""
        numbers = np.array(values, _BUILT_AS.get(narrowest, np.int64))
        code = code_of(numbers, narrowest)
        data = numbers.astype(CODES[code], copy=False).tobytes()
        return name, code, self.add(data), len(numbers)


def pack_frame(
    tag: str, head: Mapping[str, Any], body: bytes | bytearray, offset: int
) -> bytes:
    """The frame ``[tag, head, body]`` in msgpack, to be written at ``offset``.

    The head gets the CRC-32 of the body, and as much padding as it takes for the body
    to begin at a multiple of 8 bytes of the file.
    """
    full = {**head, "crc": zlib.crc32(body), "pad": b""}
    array_of_three = b"\x93"
    bin_of_32_bits = b"\xc6"
    front = array_of_three + pack(tag)
    body_start = offset + len(front) + len(pack(full)) + 5
    full["pad"] = bytes(-body_start % ALIGNMENT)
    length = len(body).to_bytes(4, "big")
    return b"".join((front, pack(full), bin_of_32_bits, length, body))


def pack(value: Any) -> bytes:
    """``value`` in msgpack."""
    packed = msgpack.packb(value, unicode_errors="backslashreplace", default=plain)
    return bytes(packed)


def plain(value: Any) -> Any:
    """``value`` as maps, lists and scalars, which a head can hold.

    Dataclasses become maps. What is none of these, and an integer of more than 64 bits,
    becomes its text.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return value
    return str(value)


# -- reading -----------------------------------------------------------------------


def whole(value: Any, limit: int = 1 << 62) -> int:
    """``value``, if it is an integer of 0 to ``limit``; TraceFormatError if not."""
    if not isinstance(value, int) or not 0 <= value <= limit:
        raise TraceFormatError(f"{value!r:.40} is not a number of 0 to {limit}")
    return value


def read_columns(
    tag: str,
    head: dict[str, Any],
    body: bytes | memoryview,
    tables: Mapping[str, Sequence[Any]],
) -> Columns:
    """The columns of a frame of the log ``tag``, as views of its body.

    ``tables`` are what the numbers in columns refer to; only their lengths are asked.
    Every number is in the range of its table, every time is finite, and lists have as
    many values as their lengths say. Raises TraceFormatError, ValueError, TypeError,
    LookupError or OverflowError for a frame in which that is not so.
    """
    rows = whole(head["n"])
    views = _views(head["columns"], body)
    found: Columns = {}
    for name, column in LOGS[tag].items():
        length = rows
        if column.many:
            counts = views[f"{name}_n"]
            found[f"{name}_n"] = counts
            length = int(counts.sum(dtype=np.uint64))
            if counts.dtype.str[1:] not in _COUNT_CODES or len(counts) != rows:
                raise TraceFormatError(f"column {name}_n is not of {rows} counts")
        view = views[name]
        _check_column(name, column, view, length, tables)
        found[name] = view
    _check_meanings(tag, found)
    return found


def _check_meanings(tag: str, columns: Columns) -> None:
    """TraceFormatError for numbers that are in no range of their column's meaning.

    No time or place is beyond 2^52, no end is before its beginning, and what is of a
    certain size is not of another.
    """
    for name, column in LOGS[tag].items():
        view = columns[name]
        if column.widest == "f8" and len(view):
            low, high = _RANGES.get(name, _ANYWHERE)
            # NaN is neither
            if not (view.min() >= low and view.max() <= high):
                raise TraceFormatError(
                    f"column {name} holds {float(view.min())} to {float(view.max())}; "
                    f"it has to be {low:g} to {high:g} {column.unit}"
                )
    for early, late in _IN_ORDER.get(tag, ()):
        if (columns[late] < columns[early]).any():
            raise TraceFormatError(f"a {late} is before its {early}")
    if tag == "nodes":
        for name in ("sip", "cube", "pe"):
            if not _all_within(columns[name], -1, _MOST_PLACES):
                raise TraceFormatError(f"column {name} holds what is no place")
    if "nbytes" in columns and not _all_within(columns["nbytes"], 0, _END_OF_ADDRESSES):
        most = int(columns["nbytes"].max())
        raise TraceFormatError(
            f"column nbytes holds {most:,}, which is more than there are addresses"
        )
    if tag == "alloc":
        _check_extents(columns)


def _all_within(numbers: Array, low: int, high: int) -> bool:
    return not len(numbers) or (numbers.min() >= low and numbers.max() <= high)


def _check_extents(alloc: Columns) -> None:
    """TraceFormatError unless each allocation has room for its box, and no more.

    Older files have the first three of more axes: the third stands for all others.
    """
    sizes = np.array([row.itemsize for row in DTYPES.values()])
    elements = np.ones(len(alloc["rank"]))
    for axis in range(3):
        has_axis = alloc["rank"] > axis
        elements *= np.where(has_axis, alloc[f"shape{axis}"], 1)
        if (alloc[f"origin{axis}"] >= 1 << 31).any():
            raise TraceFormatError(f"an allocation begins beyond axis {axis}")
    box = elements * sizes[alloc["dtype"]]
    nbytes = alloc["nbytes"].astype(np.float64)
    is_beyond = (nbytes >= _END_OF_ADDRESSES) | (alloc["addr"] >= _END_OF_ADDRESSES)
    if is_beyond.any():
        raise TraceFormatError("an allocation lies beyond all addresses of 52 bits")
    folded = (alloc["rank"] == 3) & (box > 0)
    apart = np.where(folded, np.remainder(nbytes, np.maximum(box, 1)), nbytes - box)
    if apart.any():
        row = int(np.flatnonzero(apart)[0])
        raise TraceFormatError(
            f"nbytes of allocation {row} is {int(nbytes[row])}, and its shape and "
            f"dtype say {box[row]:g}"
        )


def _views(table: Any, body: bytes | memoryview) -> Columns:
    """The arrays that a head claims to be in the body, if they lie in it."""
    views: Columns = {}
    for name, code, offset, count in table:
        dtype = CODES[code]
        if whole(offset) + whole(count) * dtype.itemsize > len(body):
            raise TraceFormatError(f"column {name!r:.40} lies outside the body")
        views[name] = np.ndarray((count,), dtype, body, offset)
    return views


def _check_column(
    name: str,
    column: ColumnSpec,
    view: Array,
    length: int,
    tables: Mapping[str, Sequence[Any]],
) -> None:
    """TraceFormatError if a column has another length, kind or range than it must."""
    widest = CODES[column.widest]
    same_kind = view.dtype.kind == widest.kind
    if len(view) != length or not same_kind or view.dtype.itemsize > widest.itemsize:
        raise TraceFormatError(f"column {name} is not of {length} {column.widest}")
    if column.table and length:
        highest = int(view.max())
        if highest >= len(tables[column.table]):
            raise TraceFormatError(
                f"column {name} holds {highest}: no such {column.table}"
            )

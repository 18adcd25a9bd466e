"""Where two trace files part: the first frame that differs, and the first op there.

It is asked of files that ought to be equal byte for byte.
"""

from __future__ import annotations

import filecmp
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np

from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.reader import Trace
from kernbench.trace.schema import MAGIC, pack, whole

_SAID = 4
"""So many values of a head that differ are named."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The first frame that differs, by its number from 0 and its tag.

    ``what`` says what differs there, as far as that can be said in a line.
    """

    frame: int
    tag: str
    what: str

    def __str__(self) -> str:
        text = f"frame {self.frame} ({self.tag}) is the first that differs"
        return f"{text}: {self.what}" if self.what else text


def first_apart(a: Trace, b: Trace, ignored: Collection[str] = ()) -> Parting | None:
    """Where ``b`` parts from ``a``; None if both are equal.

    Of a recording ``a`` that breaks off that is what the file holds: ``b`` may go on.
    What the head of the first frame says by the names ``ignored`` may differ.
    """
    if not ignored and filecmp.cmp(a.path, b.path, shallow=False):
        return None
    file_a = FrameFile(a.path)
    file_b = FrameFile(b.path)
    pairs = zip_longest(_frames(file_a), _frames(file_b))
    for number, (frame_a, frame_b) in enumerate(pairs):
        if frame_a is None and not a.complete:
            return None
        if frame_a is None:
            return Parting(number, frame_b.tag, "the first trace ends before it")
        if frame_b is None:
            return Parting(number, frame_a.tag, "the second trace ends before it")
        head_a = _head(file_a, frame_a, ignored)
        head_b = _head(file_b, frame_b, ignored)
        is_same = frame_a.tag == frame_b.tag and pack(head_a) == pack(head_b)
        if is_same and file_a.body(frame_a) == file_b.body(frame_b):
            continue
        what = ""
        if frame_b.tag != MAGIC:
            rows_a = _rows_from(file_a, frame_a)
            rows_b = _rows_from(file_b, frame_b)
            what = _first_op(a, b, sorted({*rows_a, *rows_b}))
        if not what:
            what = ", ".join(islice(_values_apart("", head_a, head_b), _SAID))
        return Parting(number, frame_b.tag, what)
    return None


def _frames(file: FrameFile) -> list[Frame]:
    """All frames in the order of the file."""
    return sorted(chain.from_iterable(file.by_tag.values()))


def _head(file: FrameFile, frame: Frame, ignored: Collection[str]) -> dict[str, Any]:
    """The head of a frame, {} of a damaged one; of the first without some names."""
    found = file.read(frame, lambda read: read.head, body=False) or {}
    if frame.tag != MAGIC:
        return found
    return {name: value for name, value in found.items() if name not in ignored}


def _values_apart(name: str, a: Any, b: Any) -> Iterator[str]:
    """What differs in two heads, or in maps and lists of these, each with its path."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a | b:
            yield from _values_apart(f"{name}.{key}", a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, items in enumerate(zip(a, b, strict=True)):
            yield from _values_apart(f"{name}.{number}", *items)
    elif str(a) != str(b):
        yield f"{name.lstrip('.')} {a!s:.80} -> {b!s:.80}"


def _rows_from(file: FrameFile, frame: Frame) -> range:
    """The rows of the first frame of ops from ``frame`` on."""
    for ops in file.by_tag.get("ops", ()):
        if ops.offset >= frame.offset:
            head = _head(file, ops, ())
            first = whole(head.get("first", 0))
            return range(first, first + whole(head.get("n", 0)))
    return range(0)


def _first_op(a: Trace, b: Trace, rows: list[int]) -> str:
    """Which op of some rows is the first that differs, and in what; "" if none does."""
    for row in rows:
        if row >= len(a.ops):
            return f"row {row} is only in the second trace"
        position = int(a.position[row])
        op = a.ops[position]
        what = f"op {position} {op.op_name} on {op.component_id}"
        if row >= len(b.ops):
            return f"{what} is only in the first trace"
        other = b.ops[int(b.position[row])]
        for name in ("component_id", "op_name", "t_start", "t_end"):
            value_a = getattr(op, name)
            value_b = getattr(other, name)
            if value_a != value_b:
                return f"{what}: {name} {value_a} -> {value_b}"
        for name in op.params | other.params:
            if not _are_equal(op.params.get(name), other.params.get(name)):
                return f"{what}: another {name}"
    return ""


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two params are the same, arrays bit by bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_are_equal, a, b))
    return bool(a == b)

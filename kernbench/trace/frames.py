"""The frames of a mapped file: found without decoding bodies, believed only after every check.

Owns the bytes. A file may come from a stranger: whatever it holds, ``FrameFile`` either opens or
raises TraceFormatError, and what is wrong later is skipped and listed in ``damaged``.
"""

from __future__ import annotations

import mmap
import re
import stat
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from kernbench.errors import TraceFormatError
from kernbench.trace.schema import CODES, LOGS, MAGIC, TAGS, VERSION

T = TypeVar("T")
Columns = dict[str, npt.NDArray[Any]]

_HEAD_WINDOW, _MAX_HEAD = 1 << 12, 1 << 24
_MAX_ITEMS = 1 << 16  # of one array or map in a head
_MAX_RESYNCS = 16
_ENTRIES_A_BYTE = 1100  # of a table, at zlib's best
_INFLATE_FREE, _INFLATE_RATIO = 1 << 26, 64  # bytes that all deflated bodies together may grow to
_FRAME_START = re.compile(
    rb"\x93(?:" + b"|".join(bytes([0xA0 | len(tag)]) + tag.encode() for tag in TAGS) + rb")"
)
_BIN_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
# what decoding bytes of unknown origin may raise
_WRONG = (
    *(TraceFormatError, ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(RecursionError, zlib.error, msgpack.UnpackException),
)


class Damage(NamedTuple):
    """A frame that was skipped: where it starts, its tag ("?" if that is unreadable), and why."""

    offset: int
    tag: str
    reason: str


class Frame(NamedTuple):
    """One frame; its body is ``size`` bytes at ``start``."""

    offset: int
    tag: str
    head: dict[str, Any]
    start: int
    size: int


Decode: TypeAlias = Callable[[Frame], T]


def whole(value: Any, limit: int = 1 << 62) -> int:
    """``value`` if it is an integer of 0 to ``limit``; TraceFormatError if not."""
    if not isinstance(value, int) or not 0 <= value <= limit:
        raise TraceFormatError(f"{value!r:.40} is not a number of 0 to {limit}")
    return value


class FrameFile:
    """A mapped trace: its frames by tag, their checked bodies, and what was damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            about = path.stat()
            if not stat.S_ISREG(about.st_mode) or not about.st_size:
                what = "a directory" if stat.S_ISDIR(about.st_mode) else "empty, or no regular file"
                raise self._refuse(f"it is {what}")
            with path.open("rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise self._refuse(getattr(error, "strerror", None) or str(error)) from None
        self.size = len(self.map)
        self.damaged: list[Damage] = []
        self.by_tag: dict[str, list[Frame]] = {}
        self._bad: set[int] = set()
        self._sound: set[int] = set()
        self._inflated = 0
        self.header = self._first_head()
        self._scan()

    def _refuse(self, reason: str) -> TraceFormatError:
        return TraceFormatError(
            f"{self.path}: no kernbench trace, at offset 0: {reason}; "
            "record one with `kernbench run BENCH --trace FILE`"
        )

    def _first_head(self) -> dict[str, Any]:
        try:
            frame = self._frame_at(0)
            if frame.tag != MAGIC:
                raise TraceFormatError(f"the first frame is {frame.tag!r:.40}, not {MAGIC!r}")
            version = frame.head["version"]
            major = whole(version[0])
            if not isinstance(frame.head.get("arguments", {}), dict):
                raise TraceFormatError("its arguments are no map")
        except (*_WRONG, EOFError) as error:
            raise self._refuse(f"{error or 'no header'}") from None
        if major != VERSION[0]:
            raise TraceFormatError(
                f"{self.path}: format version {version!r:.20} at offset 0; this kernbench reads "
                f"{VERSION[0]}.x: open it with the one that recorded it"
            )
        return frame.head

    # -- finding frames ------------------------------------------------------------

    def _scan(self) -> None:
        offset, tries, lost = 0, 0, False
        while offset < self.size:
            try:
                frame = self._frame_at(offset)
            except (*_WRONG, EOFError) as error:
                found = _FRAME_START.search(self.map, offset + 1)
                cut = found is None and isinstance(error, EOFError)
                if not cut and not lost:
                    self.damaged.append(Damage(offset, "?", str(error) or type(error).__name__))
                tries, lost = tries + 1, True
                if found is None or tries > _MAX_RESYNCS:
                    return
                offset = found.start()
                continue
            self.by_tag.setdefault(frame.tag, []).append(frame)
            offset = frame.start + frame.size
            lost = False

    def _frame_at(self, offset: int) -> Frame:
        """The frame there; EOFError if the file ends within it, or what ``_WRONG`` lists."""
        window = _HEAD_WINDOW
        while True:
            unpacker = msgpack.Unpacker(
                max_buffer_size=_MAX_HEAD, max_array_len=_MAX_ITEMS, max_map_len=_MAX_ITEMS
            )
            unpacker.feed(self.map[offset : offset + window])
            try:
                items = unpacker.read_array_header()
                tag, head = unpacker.unpack(), unpacker.unpack()
                break
            except msgpack.OutOfData:
                if offset + window >= self.size:
                    raise EOFError("the file ends within a frame") from None
                if window >= _MAX_HEAD:
                    raise TraceFormatError(f"a head of over {_MAX_HEAD} bytes") from None
                window *= 8
        if items != 3 or not isinstance(tag, str) or not isinstance(head, dict):
            raise TraceFormatError("not a frame of tag, head and body")
        whole(head.get("crc"), 0xFFFFFFFF)
        at = offset + unpacker.tell()
        if at >= self.size:
            raise EOFError("the file ends within a frame")
        width = _BIN_LENGTHS.get(self.map[at])
        if width is None:
            raise TraceFormatError(f"the body of a {tag!r:.40} frame is no bin")
        start = at + 1 + width
        size = int.from_bytes(self.map[at + 1 : start], "big")
        if start + size > self.size:
            raise EOFError("the file ends within a frame")
        return Frame(offset, tag, head, start, size)

    # -- believing frames ------------------------------------------------------------

    def mark(self, frame: Frame, reason: object) -> None:
        """Count ``frame`` as damaged, once."""
        if frame.offset not in self._bad:
            self._bad.add(frame.offset)
            self.damaged.append(Damage(frame.offset, frame.tag, str(reason) or "damaged"))

    def each(self, tag: str, decode: Decode[T]) -> Iterator[T]:
        """``decode`` of every sound frame of ``tag``; those that it chokes on are damaged."""
        for frame in self.by_tag.get(tag, ()):
            result = self.read(frame, decode)
            if result is not None:
                yield result

    def read(self, frame: Frame, decode: Decode[T]) -> T | None:
        """``decode(frame)``, or None if the frame is damaged."""
        if frame.offset in self._bad:
            return None
        try:
            self._check(frame)
            return decode(frame)
        except _WRONG as error:
            self.mark(frame, error)
            return None

    def _check(self, frame: Frame) -> None:
        if frame.offset in self._sound:
            return
        if zlib.crc32(self.body(frame)) != frame.head["crc"]:
            raise TraceFormatError("its checksum does not match")
        self._sound.add(frame.offset)

    def body(self, frame: Frame) -> memoryview:
        """The bytes of a body, as they lie in the file."""
        return memoryview(self.map)[frame.start : frame.start + frame.size]

    def inflate(self, frame: Frame) -> bytes:
        """A deflated body, of exactly the size that the head claims and the file allows."""
        raw = whole(frame.head["raw"])
        self._inflated += raw
        if self._inflated > _INFLATE_FREE + _INFLATE_RATIO * self.size:
            raise TraceFormatError(f"{raw} bytes in a body of {frame.size} are not credible")
        inflater = zlib.decompressobj()
        data = inflater.decompress(self.body(frame), raw + 1)
        if len(data) != raw or not inflater.eof:
            raise TraceFormatError(f"its body is not of the {raw} bytes that its head claims")
        return data


def read_columns(
    tag: str, head: Mapping[str, Any], body: bytes | memoryview, limit: Callable[[str], int]
) -> Columns:
    """The columns of ``LOGS[tag]`` as views of ``body``; raises what ``_WRONG`` lists.

    ``limit(kind)`` is what the values of an index column must stay below.
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
        if len(view) != length or view.dtype.kind != wanted.kind:
            raise TraceFormatError(f"column {name} is not of {length} {column.load}")
        if view.dtype.itemsize > wanted.itemsize:
            raise TraceFormatError(f"column {name} is wider than {column.load}")
        if view.dtype.kind == "f" and tag != "edges" and not np.isfinite(view).all():
            raise TraceFormatError(f"column {name} holds a time or place that is not finite")
        if column.limit and length and int(view.max()) >= limit(column.limit):
            raise TraceFormatError(f"column {name} holds {int(view.max())}: no such {column.limit}")
        found[name] = view
    return found


def join_columns(tag: str, parts: Sequence[Columns]) -> Columns:
    """The columns of all frames of a log; ``NAME_ptr`` (n + 1) cuts up a list column ``NAME``."""
    joined: Columns = {}
    for name, column in LOGS[tag].items():
        empty = [] if parts else [np.empty(0, column.load)]
        joined[name] = np.concatenate([p[name] for p in parts] + empty, dtype=column.load)
        if column.many:
            counts = [p[f"{name}_n"] for p in parts] + empty
            joined[f"{name}_ptr"] = np.concatenate([[0], *counts], dtype=np.int64, casting="unsafe")
            np.cumsum(joined[f"{name}_ptr"], out=joined[f"{name}_ptr"])
    return joined


class Lazy(Sequence[T]):
    """A sequence whose items are made as they are asked for, by ``get``."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(len(self))[index]  # IndexError, and negative ones, as of any sequence
        return self.get(places) if isinstance(places, int) else [self.get(i) for i in places]

    def get(self, index: int) -> T:
        """The item at ``index``, which is not negative."""
        raise NotImplementedError


class Numbered(Lazy[T]):
    """A table that grows by frames (``first``, ``n``), each decoded when it is first looked into.

    An entry whose frame is damaged reads as ``missing(index)``; ``get`` gives that for any index.
    """

    def __init__(
        self, file: FrameFile, tag: str, decode: Decode[list[T]], missing: Callable[[int], T]
    ) -> None:
        self._file, self._decode, self._missing = file, decode, missing
        self._frames, self._firsts = list[Frame](), list[int]()
        self._decoded: dict[int, list[T]] = {}
        self._length = 0
        for frame in file.by_tag.get(tag, ()):
            try:
                gap = whole(whole(frame.head.get("first")) - self._length, file.size)
                n = whole(frame.head.get("n", -1), _ENTRIES_A_BYTE * frame.size)
            except TraceFormatError as error:
                file.mark(frame, error)
                continue
            self._frames.append(frame)
            self._firsts.append(self._length + gap)
            self._length += gap + n

    def __len__(self) -> int:
        return self._length

    def get(self, index: int) -> T:
        """The entry, or what stands for it."""
        at = bisect_right(self._firsts, index) - 1
        offset, entries = (index - self._firsts[at], self._entries(at)) if at >= 0 else (0, [])
        return entries[offset] if offset < len(entries) else self._missing(index)

    def _entries(self, at: int) -> list[T]:
        if at not in self._decoded:
            self._decoded[at] = self._file.read(self._frames[at], self._checked) or []
        return self._decoded[at]

    def _checked(self, frame: Frame) -> list[T]:
        entries = self._decode(frame)
        if len(entries) != frame.head["n"]:
            raise TraceFormatError(f"it holds {len(entries)} entries, not those of its head")
        return entries

    def known(self) -> list[T]:
        """All entries up to the first that is lost."""
        entries: list[T] = []
        for at, first in enumerate(self._firsts):
            if first != len(entries):
                break
            entries += self._entries(at)
        return entries


def read_strings(file: FrameFile, frame: Frame) -> list[str]:
    """The strings of a ``strings`` frame."""
    texts = msgpack.unpackb(file.inflate(frame))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TraceFormatError("it holds something that is no string")
    return texts

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import msgpack  # type: ignore[import-untyped]

from kernbench.errors import TraceFormatError
from kernbench.trace.schema import LOGS, MAGIC, VERSION, whole

T = TypeVar("T")

_HEAD_WINDOW, _MAX_HEAD = 1 << 12, 1 << 24
_MAX_ITEMS = 1 << 16  # of one array or map in a head
_MAX_RESYNCS = 16
_ENTRIES_A_BYTE = 1100  # of a table, at zlib's best
_INFLATE_FREE, _INFLATE_RATIO = 1 << 26, 64  # bytes that all deflated bodies together may grow to
_TAGS = (MAGIC, "topology", "source", "strings", *LOGS, "expect", "verify", "end")
_FRAME_START = re.compile(rb"\x93.(?:%s)" % "|".join(_TAGS).encode(), re.DOTALL)
_BIN_LENGTHS = {b"\xc4": 1, b"\xc5": 2, b"\xc6": 4, b"": 0}  # bytes of the length; cut off: none
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
    crc: int
    start: int
    size: int


Decode: TypeAlias = Callable[[Frame], T]


class FrameFile:
    """A mapped trace: its frames by tag, their checked bodies, and what was damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[Damage] = []
        self.by_tag: dict[str, list[Frame]] = {}
        self._sound: dict[int, bool] = {}  # by offset, of the frames that were looked into
        self._inflated = 0
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise ValueError(f"it is {'a directory' if path.is_dir() else 'no regular file'}")
            with path.open("rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.size = len(self.map)
            _, tag, self.header, *_ = self._frame_at(0)
            if tag != MAGIC:
                raise TraceFormatError(f"the first frame is {tag!r:.40}, not {MAGIC!r}")
            if (major := whole(self.header["version"][0])) != VERSION[0]:
                raise TraceFormatError(f"format {major}.x, and this kernbench reads {VERSION[0]}.x")
            if not isinstance(self.header.get("arguments", {}), dict):
                raise TraceFormatError("its arguments are no map")
        except (*_WRONG, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no header"
            raise TraceFormatError(
                f"{path}: no kernbench trace that can be read, at offset 0: {reason}; "
                "record one with `kernbench run BENCH --trace FILE`"
            ) from None
        self._scan()

    def _scan(self) -> None:
        offset, tries, lost = 0, 0, False
        while offset < self.size:
            try:
                frame = self._frame_at(offset)
            except _WRONG as error:
                found = _FRAME_START.search(self.map, offset + 1)
                cut = found is None and isinstance(error, msgpack.OutOfData)
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
        """The frame there; OutOfData if the file ends within it, or what ``_WRONG`` lists."""
        self.map.seek(offset)
        limits = {"max_array_len": _MAX_ITEMS, "max_map_len": _MAX_ITEMS}
        limits |= {"read_size": _HEAD_WINDOW, "max_buffer_size": _MAX_HEAD}
        unpacker = msgpack.Unpacker(self.map, **limits)
        items, tag, head = unpacker.read_array_header(), unpacker.unpack(), unpacker.unpack()
        if items != 3 or not isinstance(tag, str) or not isinstance(head, dict):
            raise TraceFormatError("not a frame of tag, head and body")
        crc, _ = whole(head.pop("crc", None), 0xFFFFFFFF), head.pop("pad", None)
        at = offset + unpacker.tell()
        width = _BIN_LENGTHS.get(self.map[at : at + 1])
        if width is None:
            raise TraceFormatError(f"the body of a {tag!r:.40} frame is no bin")
        start = at + 1 + width
        size = int.from_bytes(self.map[at + 1 : start], "big")
        if start + size > self.size:
            raise msgpack.OutOfData("the file ends within a frame")
        return Frame(offset, tag, head, crc, start, size)

    def each(self, tag: str, decode: Decode[T], body: bool = True) -> Iterator[T]:
        """``decode`` of every sound frame of ``tag``; without ``body`` of sound heads."""
        found = (self.read(frame, decode, body) for frame in self.by_tag.get(tag, ()))
        return (result for result in found if result is not None)

    def read(self, frame: Frame, decode: Decode[T], body: bool = True) -> T | None:
        """``decode(frame)``; None if the frame is damaged or chokes it: that is noted, once."""
        sound = self._sound.get(frame.offset)
        if sound is False:
            return None
        try:
            if body and not sound:
                if zlib.crc32(self.body(frame)) != frame.crc:
                    raise TraceFormatError("its checksum does not match")
                self._sound[frame.offset] = True
            return decode(frame)
        except _WRONG as error:
            self._sound[frame.offset] = False
            self.damaged.append(Damage(frame.offset, frame.tag, str(error) or "damaged"))
            return None

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

    def strings(self, frame: Frame) -> list[str]:
        """The strings of a ``strings`` frame."""
        texts = msgpack.unpackb(self.inflate(frame))
        n = frame.head["n"]
        if not isinstance(texts, list) or len(texts) != n or {*map(type, texts)} - {str}:
            raise TraceFormatError(f"it holds something other than {n} strings")
        return texts


class Lazy(Sequence[T]):
    """``length`` items, each made as it is asked for; ``get`` gives that of a valid index."""

    def __init__(self, length: int, get: Callable[[int], T]) -> None:
        self._length, self.get = length, get

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(self._length)[index]  # IndexError, and negative ones, as of any sequence
        return self.get(places) if isinstance(places, int) else [self.get(i) for i in places]


class Numbered(Lazy[T]):
    """A table that grows by frames (``first``, ``n``), each decoded when it is first looked into.

    An entry whose frame is damaged reads as ``missing(index)``; ``get`` gives that for any index.
    """

    def __init__(
        self, file: FrameFile, tag: str, decode: Decode[list[T]], missing: Callable[[int], T]
    ) -> None:
        super().__init__(0, self._entry)
        self._file, self._decode, self._missing = file, decode, missing
        self._decoded: dict[int, list[T]] = {}

        def place(frame: Frame) -> tuple[Frame, int]:
            first = self._length + whole(whole(frame.head["first"]) - self._length, file.size)
            self._length = first + whole(frame.head["n"], _ENTRIES_A_BYTE * frame.size)
            return frame, first

        found = list(file.each(tag, place, body=False))
        self._frames, self._firsts = [f for f, _ in found], [first for _, first in found]

    def _entry(self, index: int) -> T:
        at = bisect_right(self._firsts, index) - 1
        offset, entries = (index - self._firsts[at], self._entries(at)) if at >= 0 else (0, [])
        return entries[offset] if offset < len(entries) else self._missing(index)

    def _entries(self, at: int) -> list[T]:
        if at not in self._decoded:
            self._decoded[at] = self._file.read(self._frames[at], self._decode) or []
        return self._decoded[at]

    def known(self) -> list[T]:
        """All entries up to the first that is lost; every frame is looked into."""
        entries: list[T] = []
        for at, first in enumerate(self._firsts):
            found = self._entries(at)
            entries += found if first == len(entries) else []
        return entries

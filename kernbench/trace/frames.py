"""The frames of a mapped file: found without decoding bodies, believed only after every check.

Owns the bytes. A file may come from a stranger: whatever it holds, ``FrameFile`` either opens or
raises TraceFormatError, and what is wrong later is skipped and listed in ``damaged``.

Of a file that grows a mapping holds what was there; open it again to see more. A writer only adds
whole frames, never shortens a file to less than these, and begins each run with a new file. If
somebody else cuts a file that is open, the process ends (SIGBUS): the price of not reading it.
"""

from __future__ import annotations

import mmap
import re
import stat
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, overload

import msgpack  # type: ignore[import-untyped]

from kernbench.errors import TraceFormatError
from kernbench.trace.schema import LOGS, MAGIC, VERSION, whole

T = TypeVar("T")

# What a file may cost in memory, by its size: 64 MiB + 4 bytes a byte in all.
_HEAD_WINDOW, _MAX_HEAD = 1 << 9, 1 << 18  # decoded, a head is up to 90 times as large
_MAX_DEPTH = 16  # of a head
_MAX_RESYNCS = 16
_FRAME_BYTES = 100  # of any frame that a writer makes
_TEXT_BYTES = 64  # of a short string
_ENTRIES = 1 << 18  # of a table, beyond one a byte
_INFLATE_FREE, _INFLATE_RATIO = (
    24 << 20,
    2,
)  # bytes that all deflated bodies together may grow to
_TAGS = (MAGIC, "topology", "source", "strings", *LOGS, "expect", "verify", "end")
_FRAME_START = re.compile(rb"\x93.(?:%s)" % "|".join(_TAGS).encode(), re.DOTALL)
_BIN_LENGTHS = {
    b"\xc4": 1,
    b"\xc5": 2,
    b"\xc6": 4,
    b"": 0,
}  # bytes of the length; cut off: none
# what decoding bytes of unknown origin may raise
_WRONG = (
    *(
        TraceFormatError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
    ),
    *(RecursionError, zlib.error, msgpack.UnpackException),
)


class Damage(NamedTuple):
    """A frame that was skipped: where it starts, its tag ("?" if that is unreadable), and why."""

    offset: int
    tag: str
    reason: str


class Frame(NamedTuple):
    """One frame; its body is ``size`` bytes at ``start``; ``head`` is decoded to be read."""

    offset: int
    tag: str
    start: int
    size: int
    head: dict[str, Any] = {}  # noqa: RUF012  # never written to


Decode: TypeAlias = Callable[[Frame], T]


def untold(frame: Frame) -> None:
    """Nobody asks how far the reading is."""


class FrameFile:
    """A mapped trace: its frames by tag, their checked bodies, and what was damaged.

    ``told`` is called with each frame before it is read, and may raise to stop that; without
    ``scan`` only the first frame is looked at.
    """

    def __init__(
        self,
        path: Path,
        data: mmap.mmap | None = None,
        scan: bool = True,
        told: Callable[[Frame], None] = untold,
    ) -> None:
        self.path, self._told = path, told
        self.damaged: list[Damage] = []
        self.by_tag: dict[str, list[Frame]] = {}
        self._sound: dict[
            int, bool
        ] = {}  # by offset, of the frames that were looked into
        self._inflated = 0
        try:
            if data is None and not stat.S_ISREG(path.stat().st_mode):
                raise ValueError(
                    f"it is {'a directory' if path.is_dir() else 'no regular file'}"
                )
            if data is None:
                with path.open("rb") as file:
                    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.map = data
            self.size = len(self.map)
            first = self._frame_at(0)
            if first.tag != MAGIC:
                raise TraceFormatError(
                    f"the first frame is {first.tag!r}, not {MAGIC!r}"
                )
            self.header = self._head(first)
            if (major := whole(self.header["version"][0])) != VERSION[0]:
                raise TraceFormatError(
                    f"format {major}.x, and this kernbench reads {VERSION[0]}.x"
                )
            if not isinstance(self.header.get("arguments", {}), dict):
                raise TraceFormatError("its arguments are no map")
        except (*_WRONG, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no header"
            raise TraceFormatError(
                f"{path}: no kernbench trace that can be read, at offset 0: {reason}; "
                "record one with `kernbench run BENCH --trace FILE`"
            ) from None
        if scan:
            self._scan()

    def _scan(self) -> None:
        offset, tries, lost, frames = 0, 0, False, 0
        while offset < self.size:
            try:
                if frames > _FRAME_BYTES + self.size // _FRAME_BYTES:
                    raise TraceFormatError("no file of this size has so many frames")
                frame = self._frame_at(offset)
            except _WRONG as error:
                found = _FRAME_START.search(self.map, offset + 1)
                cut = found is None and isinstance(error, msgpack.OutOfData)
                if not cut and not lost:
                    self.damaged.append(
                        Damage(offset, "?", str(error) or type(error).__name__)
                    )
                tries, lost = tries + 1, True
                if found is None or tries > _MAX_RESYNCS:
                    return
                offset = found.start()
                continue
            self.by_tag.setdefault(frame.tag, []).append(frame)
            frames += 1
            offset = frame.start + frame.size
            lost = False

    def _frame_at(self, offset: int) -> Frame:
        """The frame there; OutOfData if the file ends within it, or what ``_WRONG`` lists."""
        front = self.map[offset : offset + 2]
        if front[0] != 0x93 or (len(front) > 1 and front[1] >> 5 != 5):
            raise TraceFormatError("not a frame of tag, head and body")
        head = offset + 2 + (front[-1] & 31)
        tag, lead = self.map[offset + 2 : head].decode(), self.map[head : head + 1]
        if lead and lead[0] >> 4 != 8 and lead not in b"\xde\xdf":
            raise TraceFormatError(f"the head of a {tag!r} frame is no map")
        self.map.seek(min(head, self.size))
        unpacker = msgpack.Unpacker(self.map, read_size=_HEAD_WINDOW)
        unpacker.skip()
        at = head + unpacker.tell()
        if at - head > _MAX_HEAD:
            raise TraceFormatError(
                f"the head of a {tag!r} frame is larger than {_MAX_HEAD} bytes"
            )
        width = _BIN_LENGTHS.get(self.map[at : at + 1])
        if width is None:
            raise TraceFormatError(f"the body of a {tag!r} frame is no bin")
        start = at + 1 + width
        size = int.from_bytes(self.map[at + 1 : start], "big")
        if start + size > self.size:
            raise msgpack.OutOfData("the file ends within a frame")
        return Frame(offset, tag, start, size)

    def _head(self, frame: Frame) -> dict[str, Any]:
        """Its head, with ``crc``: all that it claims to hold is there."""
        at = frame.offset + 2 + len(frame.tag.encode())
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        unpacker.feed(
            self.map[at : frame.start]
        )  # the body's length behind it is left over
        head = unpacker.unpack()
        if frame.tag not in LOGS:
            _checked(head)
        head.pop("pad", None)
        return cast("dict[str, Any]", head)

    def each(self, tag: str, decode: Decode[T], body: bool = True) -> Iterator[T]:
        """``decode`` of every sound frame of ``tag``; without ``body`` of sound heads."""
        found = (self.read(frame, decode, body) for frame in self.by_tag.get(tag, ()))
        return (result for result in found if result is not None)

    def read(self, frame: Frame, decode: Decode[T], body: bool = True) -> T | None:
        """``decode(frame)``; None if the frame is damaged or chokes it: that is noted, once."""
        sound = self._sound.get(frame.offset)
        if sound is False:
            return None
        self._told(frame)
        try:
            frame = frame._replace(head=self._head(frame))
            crc = whole(frame.head.pop("crc", None))
            if body and not sound:
                if zlib.crc32(self.body(frame)) != crc:
                    raise TraceFormatError("its checksum does not match")
                self._sound[frame.offset] = True
            return decode(frame)
        except _WRONG as error:
            self._sound[frame.offset] = False
            self.damaged.append(
                Damage(frame.offset, frame.tag, str(error) or "damaged")
            )
            return None

    def fingerprint(self) -> str:
        """A hash of all heads and so, by the checksums in them, of the file; reads no body."""
        frames = (frame for found in self.by_tag.values() for frame in found)
        return sha256(
            b"".join(self.map[f.offset : f.start] for f in frames)
        ).hexdigest()

    def body(self, frame: Frame) -> memoryview:
        """The bytes of a body, as they lie in the file."""
        return memoryview(self.map)[frame.start : frame.start + frame.size]

    def inflate(self, frame: Frame, more: int = 0) -> bytes:
        """A deflated body, of exactly the size that the head claims and the file allows.

        What is made of it takes ``more`` bytes.
        """
        raw = whole(frame.head["raw"])
        self._inflated += raw + more
        if self._inflated > _INFLATE_FREE + _INFLATE_RATIO * self.size:
            raise TraceFormatError(
                f"{raw} bytes in a body of {frame.size} are not credible"
            )
        inflater = zlib.decompressobj()
        data = inflater.decompress(self.body(frame), raw + 1)
        if len(data) != raw or not inflater.eof:
            raise TraceFormatError(
                f"its body is not of the {raw} bytes that its head claims"
            )
        return data

    def strings(self, frame: Frame) -> list[str]:
        """The strings of a ``strings`` frame."""
        n = whole(frame.head["n"])
        unpacker = msgpack.Unpacker(max_array_len=0, max_map_len=0, max_ext_len=0)
        unpacker.feed(self.inflate(frame, _TEXT_BYTES * n))
        claimed, texts = unpacker.read_array_header(), [*islice(unpacker, n + 1)]
        if not claimed == len(texts) == n or {*map(type, texts)} - {str}:
            raise TraceFormatError(f"it holds something other than {n} strings")
        return texts


def _checked(value: Any, depth: int = 0) -> None:
    """TraceFormatError for a value of a head that is nested too deep to be shown."""
    if depth == _MAX_DEPTH:
        raise TraceFormatError(f"its head is nested deeper than {_MAX_DEPTH}")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            _checked(item, depth + 1)


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
        places = range(self._length)[
            index
        ]  # IndexError, and negative ones, as of any sequence
        return (
            self.get(places)
            if isinstance(places, int)
            else [self.get(i) for i in places]
        )


class Numbered(Lazy[T]):
    """A table that grows by frames (``first``, ``n``), each decoded when it is first looked into.

    An entry whose frame is damaged reads as ``missing(index)``; ``get`` gives that for any index.
    """

    def __init__(
        self,
        file: FrameFile,
        tag: str,
        decode: Decode[Sequence[T]],
        missing: Callable[[int], T],
    ) -> None:
        super().__init__(0, self._entry)
        self._missing = missing

        def place(frame: Frame) -> tuple[Frame, int]:
            first = self._length + whole(whole(frame.head["first"]) - self._length)
            self._length = whole(first + whole(frame.head["n"]), _ENTRIES + file.size)
            return frame, first

        found = list(file.each(tag, place, body=False))
        self._firsts = [first for _, first in found]

        @cache
        def entries(at: int) -> Sequence[T]:
            return file.read(found[at][0], decode) or ()

        self._entries = entries

    def _entry(self, index: int) -> T:
        at = bisect_right(self._firsts, index) - 1
        offset, entries = (
            (index - self._firsts[at], self._entries(at)) if at >= 0 else (0, ())
        )
        return entries[offset] if offset < len(entries) else self._missing(index)

    def known(self) -> int:
        """How many entries there are up to the first that is lost; looks into every frame."""
        known = 0
        for at, first in enumerate(self._firsts):
            entries = self._entries(at)
            known += len(entries) if first == known else 0
        return known

"""The frames of a mapped file: found without decoding bodies, believed after checks.

Owns the bytes. A file may come from a stranger: whatever it holds, ``FrameFile`` either
opens or raises TraceFormatError, and what is found wrong later is skipped and listed in
``damaged``.

Of a file that grows, a mapping holds what was there when it was made; open it again to
see more. A writer only adds whole frames, never makes a file shorter than these, and
begins each run with a new file. If somebody else shortens a file that is open, the
process ends (SIGBUS): that is the price of not reading it as a whole.
"""

from __future__ import annotations

import mmap
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import msgpack  # type: ignore[import-untyped]

from kernbench.common.near import near
from kernbench.common.texts import cut_text
from kernbench.errors import TraceFormatError
from kernbench.trace.changed import changed_of
from kernbench.trace.columns import LOGS
from kernbench.trace.schema import ALIGNMENT, MAGIC, VERSION, whole
from kernbench.trace.tail import Tail, read_tail
from kernbench.trace.window import window_of

T = TypeVar("T")

# What a file may cost in memory, by its size: 64 MiB + 4 bytes a byte in all.
_HEAD_WINDOW = 1 << 9  # bytes of a head that are read at once
_MAX_HEAD = 1 << 18  # bytes; decoded, a head is up to 90 times as large
_MAX_DEPTH = 16  # of a head
_MAX_RESYNCS = 16  # how often the next frame is looked for behind a broken one
_FRAME_BYTES = 100  # any frame that a writer makes is larger
_TEXT_BYTES = 64  # of a short string in memory
_INFLATE_FREE = 24 << 20  # bytes that all inflated bodies may have together,
_INFLATE_RATIO = 2  # and as many more for each byte of the file

_FRAME_LEAD = 0x93  # msgpack's array of three
_TAGS = (MAGIC, "topology", "source", "strings", *LOGS, "expect", "verify", "end")
_FRAME_START = re.compile(rb"\x93.(?:%s)" % "|".join(_TAGS).encode(), re.DOTALL)
_BIN_LENGTHS = {b"\xc4": 1, b"\xc5": 2, b"\xc6": 4, b"": 0}
"""How many bytes the length of a bin has, by its lead; b"" is the end of the file."""

_WRONG = (
    TraceFormatError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
    zlib.error,
    msgpack.UnpackException,
)
"""What decoding bytes of unknown origin may raise."""


class Damage(NamedTuple):
    """A frame that was skipped: the offset where it starts, its tag, and why.

    The tag is "?" if even that cannot be read.
    """

    offset: int
    tag: str
    reason: str


class Frame(NamedTuple):
    """One frame. Its body is ``size`` bytes at ``start``.

    The head is decoded for whoever reads the frame, see ``FrameFile.read``.
    """

    offset: int
    tag: str
    start: int
    size: int
    head: dict[str, Any] = {}  # noqa: RUF012  # never written to


Decode: TypeAlias = Callable[[Frame], T]
"""Makes something of a frame; raises what ``_WRONG`` lists if the frame is none."""

OnFrame: TypeAlias = Callable[[Frame], None]
"""Called with each frame before it is read. It may raise, to end the reading."""


def ignore_frame(frame: Frame) -> None:
    """An ``OnFrame`` for callers who just wait."""


_COMPRESSED = {
    b"\x1f\x8b": "gunzip -k",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ": "unxz -k",
    b"BZh": "bunzip2 -k",
}
"""How compressed files begin, and what makes the file of each again."""


class FrameFile:
    """A mapped trace: its frames by tag, their checked bodies, and what was damaged.

    ``by_tag`` has the frames, ``header`` is the head of the first, and ``size`` is in
    bytes. Without ``scan`` only the first frame is looked at. TraceFormatError for a
    file that has no readable first frame.

    What a run that goes on, or was killed, had recorded and not yet written is read
    from the file's tail, if it has one. The mapping then is a copy of both.

    Several threads may read frames at once. The mapping is never changed, and its
    position is used while the file is scanned only, before anybody else has it. What
    has been found damaged and what has been inflated is noted under a lock, which is
    never held while a frame is read.
    """

    def __init__(
        self,
        path: Path,
        data: mmap.mmap | None = None,
        scan: bool = True,
        on_frame: OnFrame = ignore_frame,
    ) -> None:
        self.path = path
        self.damaged: list[Damage] = []
        self.by_tag: dict[str, list[Frame]] = {}
        self._on_frame = on_frame
        self._lock = Lock()
        self._sound: dict[int, bool] = {}  # by offset, of the frames that were read
        self._inflated: set[int] = set()  # offsets of the frames that were
        self._inflated_bytes = 0
        tail = None
        try:
            if data is None:
                tail = read_tail(path)  # before the file, which only grows
                data = _mapped(path)
            self.map = data
            self.size = len(data)
            self.header = self._read_header()
        except (*_WRONG, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no header"
            if isinstance(error, OSError):
                raise TraceFormatError(_not_there(path, reason)) from None
            raise TraceFormatError(
                f"{path}: no kernbench trace that can be read, at offset 0: {reason}; "
                "record one with `kernbench run BENCH --trace FILE`"
            ) from None
        if scan:
            self._scan()
            if tail is not None:
                self._join(tail)

    def _read_header(self) -> dict[str, Any]:
        """The head of the first frame; what ``_WRONG`` lists if this is no trace."""
        for start, how in _COMPRESSED.items():
            if self.map[: len(start)] == start:
                raise TraceFormatError(
                    f"it is compressed; `{how} {self.path}` makes a file that can be "
                    "read"
                )
        first = self._frame_at(0)
        if first.tag != MAGIC:
            raise TraceFormatError(f"the first frame is {first.tag!r}, not {MAGIC!r}")
        header = self._head(first)
        major = whole(header["version"][0])
        if major != VERSION[0]:
            raise TraceFormatError(
                f"format {major}.x, and this kernbench reads {VERSION[0]}.x"
            )
        if not isinstance(header.get("arguments", {}), dict):
            raise TraceFormatError("its arguments are no map")
        plugins = header.get("plugins", [])
        if not isinstance(plugins, list) or not all(map(_is_plugin, plugins)):
            raise TraceFormatError("its plugins are no list of names and hashes")
        changed_of(header)
        window_of(header)
        return header

    # -- finding frames ------------------------------------------------------------

    def _scan(self, offset: int = 0) -> None:
        """Find all frames from an offset on; behind a broken one go on where the next
        may begin.

        A file that ends within a frame is no damage: a run that is recorded now, or was
        killed, leaves it so.
        """
        resyncs = 0
        frames = 0
        is_lost = False
        while offset < self.size:
            try:
                if frames > _FRAME_BYTES + self.size // _FRAME_BYTES:
                    raise TraceFormatError("no file of this size has so many frames")
                frame = self._frame_at(offset)
            except _WRONG as error:
                found = _FRAME_START.search(self.map, offset + 1)
                is_cut_off = found is None and isinstance(error, msgpack.OutOfData)
                if not is_cut_off and not is_lost:
                    reason = str(error) or type(error).__name__
                    self.damaged.append(Damage(offset, "?", reason))
                is_lost = True
                resyncs += 1
                if found is None or resyncs > _MAX_RESYNCS:
                    return
                offset = found.start()
                continue
            self.by_tag.setdefault(frame.tag, []).append(frame)
            frames += 1
            offset = frame.start + frame.size
            is_lost = False

    def _join(self, tail: Tail) -> None:
        """Put ``tail`` behind the frames that it goes on from, if they are ours.

        A run removes its tail when the rows in it are in the file. If it was killed
        just before, or is read just then, the file has these rows behind those frames,
        and more; if it was killed as it wrote them, it has them of some logs. So each
        log is read from where there is more of it. Both lie in a mapping of their own
        then, the tail as far from a multiple of 8 bytes as in its place.
        """
        mark = 0
        for frame in sorted(chain.from_iterable(self.by_tag.values())):
            if frame.offset < tail.after:
                mark = zlib.crc32(self.map[frame.offset : frame.start], mark)
        if mark != tail.mark or tail.after > self.size:
            return
        alone = (self.map, self.size, self.by_tag, [*self.damaged])
        frames_in_file = self.by_tag
        begin = self.size + (tail.after - self.size) % ALIGNMENT
        joined = mmap.mmap(-1, begin + len(tail.frames))
        joined.write(self.map)
        joined.seek(begin)
        joined.write(tail.frames)
        self.map = joined
        self.size = len(joined)
        self.by_tag = {}
        self._scan(begin)
        more = {}
        for tag, in_tail in self.by_tag.items():
            in_file = frames_in_file.get(tag, [])
            behind = [frame for frame in in_file if frame.offset >= tail.after]
            if _extent(behind) < _extent(in_tail):
                more[tag] = [*in_file[: len(in_file) - len(behind)], *in_tail]
        if more:
            self.by_tag = frames_in_file | more
        else:
            self.map, self.size, self.by_tag, self.damaged[:] = alone

    def _frame_at(self, offset: int) -> Frame:
        """The frame there; OutOfData if the file ends in it, or what ``_WRONG`` lists.

        The head is skipped, not decoded: that is a fraction of the time, and takes no
        memory.
        """
        front = self.map[offset : offset + 2]
        is_tag_short = len(front) < 2 or front[1] >> 5 == 0b101  # a str to 31 bytes
        if front[0] != _FRAME_LEAD or not is_tag_short:
            raise TraceFormatError("not a frame of tag, head and body")
        head = offset + 2 + (front[-1] & 31)
        tag = self.map[offset + 2 : head].decode()
        lead = self.map[head : head + 1]
        is_map = not lead or lead[0] >> 4 == 0b1000 or lead in b"\xde\xdf"
        if not is_map:
            raise TraceFormatError(f"the head of a {tag!r} frame is no map")
        self.map.seek(min(head, self.size))
        unpacker = msgpack.Unpacker(self.map, read_size=_HEAD_WINDOW)
        unpacker.skip()
        body = head + unpacker.tell()
        if body - head > _MAX_HEAD:
            raise TraceFormatError(
                f"the head of a {tag!r} frame is larger than {_MAX_HEAD} bytes"
            )
        width = _BIN_LENGTHS.get(self.map[body : body + 1])
        if width is None:
            raise TraceFormatError(f"the body of a {tag!r} frame is no bin")
        start = body + 1 + width
        size = int.from_bytes(self.map[body + 1 : start], "big")
        if start + size > self.size:
            raise msgpack.OutOfData("the file ends within a frame")
        return Frame(offset, tag, start, size)

    # -- reading frames ------------------------------------------------------------

    def each(self, tag: str, decode: Decode[T], body: bool = True) -> Iterator[T]:
        """``decode`` of every sound frame of ``tag``.

        Without ``body`` the head is enough, and the body is neither read nor checked.
        """
        for frame in self.by_tag.get(tag, ()):
            result = self.read(frame, decode, body)
            if result is not None:
                yield result

    def read(self, frame: Frame, decode: Decode[T], body: bool = True) -> T | None:
        """``decode(frame)``, with the head; None if the frame is damaged.

        It is damaged if its body does not have the checksum that its head names, or if
        ``decode`` raises what a frame of unknown origin may raise. That is noted, once.
        """
        sound = self._sound.get(frame.offset)
        if sound is False:
            return None
        self._on_frame(frame)
        try:
            frame = frame._replace(head=self._head(frame))
            crc = whole(frame.head.pop("crc", None))
            if body and not sound:
                if zlib.crc32(self.body(frame)) != crc:
                    raise TraceFormatError("its checksum does not match")
                # Another thread may have found by now that it cannot be decoded.
                self._sound.setdefault(frame.offset, True)
            return decode(frame)
        except _WRONG as error:
            self._note_damage(frame, str(error) or "damaged")
            return None

    def _note_damage(self, frame: Frame, reason: str) -> None:
        with self._lock:
            if self._sound.get(frame.offset) is not False:
                self._sound[frame.offset] = False
                self.damaged.append(Damage(frame.offset, frame.tag, reason))

    def _head(self, frame: Frame) -> dict[str, Any]:
        """The head, with ``crc``: all that it claims to hold is there."""
        at = frame.offset + 2 + len(frame.tag.encode())
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        # What is left over behind the head is the length of the body.
        unpacker.feed(self.map[at : frame.start])
        head = unpacker.unpack()
        if frame.tag not in LOGS:
            _check_depth(head)
        head.pop("pad", None)
        return cast("dict[str, Any]", head)

    def body(self, frame: Frame) -> memoryview:
        """The bytes of a body, as they lie in the file."""
        body = slice(frame.start, frame.start + frame.size)
        return memoryview(self.map).toreadonly()[body]

    def inflate(self, frame: Frame, more: int = 0) -> bytes:
        """A deflated body, of exactly the size that the head claims.

        What the caller makes of it takes ``more`` bytes. TraceFormatError if the body
        is of another size, or if all inflated bodies together take more memory than a
        file of this size is allowed.
        """
        raw = whole(frame.head["raw"])
        with self._lock:
            if frame.offset not in self._inflated:
                self._inflated.add(frame.offset)
                self._inflated_bytes += raw + more
            inflated = self._inflated_bytes
        if inflated > _INFLATE_FREE + _INFLATE_RATIO * self.size:
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
        """The strings of a ``strings`` frame; one that is too long is cut."""
        n = whole(frame.head["n"])
        unpacker = msgpack.Unpacker(max_array_len=0, max_map_len=0, max_ext_len=0)
        unpacker.feed(self.inflate(frame, _TEXT_BYTES * n))
        claimed = unpacker.read_array_header()
        texts = [*islice(unpacker, n + 1)]
        others = {*map(type, texts)} - {str}
        if not claimed == len(texts) == n or others:
            raise TraceFormatError(f"it holds something other than {n} strings")
        return list(map(cut_text, texts))

    def fingerprint(self) -> str:
        """A hash of all heads and so, by the checksums in them, of the file.

        It reads no body.
        """
        digest = sha256()
        for frames in self.by_tag.values():
            for frame in frames:
                digest.update(self.map[frame.offset : frame.start])
        return digest.hexdigest()


def _extent(frames: Sequence[Frame]) -> tuple[int, int]:
    """How much there is of a log in some frames: bytes of bodies, and frames, since
    what has no rows is in the heads alone.
    """
    return sum(frame.size for frame in frames), len(frames)


def _mapped(path: Path) -> mmap.mmap:
    """The file, mapped for reading; ValueError if it is no regular file, or empty."""
    if not stat.S_ISREG(path.stat().st_mode):
        if path.is_dir():
            raise ValueError("it is a directory")
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _check_depth(value: Any, depth: int = 0) -> None:
    """TraceFormatError for a value of a head that is nested too deep to be shown."""
    if depth == _MAX_DEPTH:
        raise TraceFormatError(f"its head is nested deeper than {_MAX_DEPTH}")
    items = value
    if isinstance(value, dict):
        items = value.values()
    for item in items:
        if isinstance(item, (dict, list)):
            _check_depth(item, depth + 1)


def _is_plugin(stated: Any) -> bool:
    """Whether this is the name of a plugin, and the hash of its file."""
    if not isinstance(stated, dict):
        return False
    return isinstance(stated.get("name"), str) and isinstance(stated.get("sha"), str)


def later_recording(path: Path) -> Path | None:
    """What a later run has recorded that was to write the same file, and was killed or
    still goes on; None if there is none.
    """
    partial = path.with_name(f"{path.name}.partial")
    with suppress(OSError):
        if partial.stat().st_mtime > path.stat().st_mtime:
            return partial
    return None


def _not_there(path: Path, reason: str) -> str:
    """What to say of a file that cannot be opened, and which it may have been."""
    hint = "record one with `kernbench run BENCH --trace FILE`"
    with suppress(OSError):
        partial = path.with_name(f"{path.name}.partial")
        if partial.exists():
            was = "the run that was to write it was killed, or still goes on"
            return f"{path}: {reason}; {was}: what it has recorded is {partial}"
        stems = [file.stem for file in path.parent.glob(f"*{path.suffix}")]
        alike = [f"{stem}{path.suffix}" for stem in near(path.stem, stems)]
        if alike:
            hint = f"did you mean {' or '.join(alike)}?"
    return f"{path}: {reason}; {hint}"

"""The file that a run is written to: whole frames one after another, until it is named.

Owns the file, its lock, and what is done when the disk is full. Knows nothing of what
the frames mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from kernbench.errors import KernbenchError, RefusedError
from kernbench.trace.frames import FrameFile
from kernbench.trace.schema import pack_frame
from kernbench.trace.tail import Tail, is_of_a_run, tail_of

SPILL_BYTES = 1 << 30
"""So much is kept in memory of what no longer went to the file."""

NewFrame: TypeAlias = tuple[str, dict[str, Any], bytes | bytearray]
"""Tag, head and body."""


class OutputFile(Protocol):
    """What a stream needs of the file that it writes: that of an unbuffered file."""

    def write(self, data: memoryview, /) -> int | None:
        """Write some of ``data``; how many bytes of it."""

    def seek(self, offset: int, /) -> int:
        """Go on writing there."""

    def truncate(self, size: int, /) -> int:
        """Drop what lies beyond ``size`` bytes."""

    def close(self) -> None:
        """Give up the file, and the lock on it."""


OpenFile: TypeAlias = Callable[[Path, Path], OutputFile]
"""Makes the file ``partial`` (second), which is to become ``path`` (first)."""


def claim(path: Path, partial: Path) -> OutputFile:
    """A new file at ``partial``, locked.

    What a killed run left there becomes ``partial.old``, and its tail goes with it. No
    file is ever shortened, so whoever has one mapped keeps it. OSError if the file is
    not to be had, above all BlockingIOError if another run is writing it.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CREAT, 0o666)

    for place in (path, partial):
        if place.exists() and not place.is_file():
            raise OSError(errno.EEXIST, "it is no regular file")
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(partial, "r+b", buffering=0, opener=opener))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.fstat(file.fileno())
            # It is not found if the run that had the lock has just ended.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(partial), mine):
                    old = Path(f"{partial}.old")
                    if not mine.st_size:
                        _remove(tail_of(partial))  # of a file that is no more
                        stack.pop_all()
                        return file
                    os.replace(partial, old)
                    _remove(tail_of(old))
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(tail_of(partial), tail_of(old))


def _remove(path: Path) -> None:
    """Remove a file, if it is there and lets us."""
    with contextlib.suppress(OSError):
        path.unlink()


class FrameStream:
    """Appends frames to ``path.partial``, which ``close`` renames to ``path``.

    A write error stops the recording, not the run: ``error`` then says what happened
    (None: all is well), and what was written stays readable. Up to SPILL_BYTES of what
    follows are held in memory for ``reopened``. KernbenchError if the file cannot be
    made, is being written by another run, or has a name of an unfinished one.

    Beside it, ``put_tail`` keeps what is not in it yet. ``mark`` is the CRC-32 of the
    heads of all frames so far.
    """

    def __init__(self, path: Path, open_file: OpenFile) -> None:
        self.error: str | None = None
        self.is_closed = False
        self.mark = 0
        self._offset = 0
        self._spill = bytearray()
        self._pid = os.getpid()
        if is_of_a_run(path):
            raise RefusedError(
                f"cannot write trace {path}: a run gives such a name to what it has "
                "not ended; name another"
            )
        try:
            # a kernel that changes the directory takes no file with it
            self.path = path.absolute()
            self.partial = self.path.with_name(path.name + ".partial")
            self._file = open_file(self.path, self.partial)
        except OSError as error:
            reason = error.strerror
            if isinstance(error, BlockingIOError):
                reason = "another run is writing it"
            raise RefusedError(
                f"cannot write trace {path}: {reason}; name one that may be written"
            ) from None

    @property
    def size(self) -> int:
        """The bytes of all frames so far."""
        return self._offset

    @property
    def bytes_held(self) -> int:
        """How much is held in memory, as it did not go to the file."""
        return len(self._spill)

    @property
    def has_lost_frames(self) -> bool:
        """Whether there are frames that are neither in the file nor in memory."""
        return len(self._spill) > SPILL_BYTES

    def write(self, frames: Iterable[NewFrame], now: float) -> None:
        """Append frames, each as a whole, or stop recording at ``now`` ns.

        An interrupt passes, and takes the frames with it that it came in. A process
        that was forked from the one that records writes nothing.
        """
        if self.is_closed or os.getpid() != self._pid:
            return
        end = self._offset
        mark = self.mark
        pieces: list[bytes] = []
        try:
            for tag, head, body in frames:
                piece = pack_frame(tag, head, body, end)
                pieces.append(piece)
                end += len(piece)
                mark = zlib.crc32(piece[: len(piece) - len(body)], mark)
            if self.error is None:
                self._append(b"".join(pieces))
        except (OSError, OverflowError, ValueError) as error:
            # A ValueError is a file that somebody has closed.
            reason = getattr(error, "strerror", None) or str(error)
            self.error = (
                f"recording to {self.path} stopped at {self._offset} bytes, "
                f"{now:.0f} ns: {reason}; free some space or choose another place, "
                "and run again"
            )
            self._drop_torn_frame()
        except BaseException:
            self._drop_torn_frame()
            raise
        if self.error is not None and not self.has_lost_frames:
            self._spill += b"".join(pieces)
        self._offset = end
        self.mark = mark

    def put_tail(self, after: int, mark: int, frames: Iterable[NewFrame]) -> None:
        """Keep frames that are to follow the first ``after`` bytes, in place of others.

        ``mark`` is that of these bytes. A disk that does not take them keeps what it
        has.
        """
        place = tail_of(self.partial)
        new = Path(f"{place}.new")
        _remove(new)
        pieces: list[bytes] = []
        end = after
        for tag, head, body in frames:
            pieces.append(pack_frame(tag, head, body, end))
            end += len(pieces[-1])
        try:
            with new.open("xb") as file:
                file.write(Tail(after, mark, b"".join(pieces)).pack())
            os.replace(new, place)
        except OSError:
            _remove(new)

    def drop_tail(self) -> None:
        """Keep nothing beside the file: all that was there is in it, or given up."""
        _remove(tail_of(self.partial))

    def _append(self, data: bytes) -> None:
        """Write all of it behind the last whole frame; a file may take it in pieces."""
        self._file.seek(self._offset)
        left = memoryview(data)
        while left:
            written = self._file.write(left) or 0
            left = left[written:]

    def _drop_torn_frame(self) -> None:
        """Make the file end with its last whole frame, if it lets us."""
        with contextlib.suppress(OSError, ValueError):
            self._file.truncate(self._offset)

    def reopened(self) -> FrameFile:
        """All frames so far, read back; KernbenchError if some are lost."""
        path = self.path if self.is_closed else self.partial
        if self.error is None:
            return FrameFile(path)
        if self.has_lost_frames:
            raise KernbenchError(f"its ops cannot be read back: {self.error}")
        run = mmap.mmap(-1, self._offset)
        run.write(path.read_bytes()[: self._offset - len(self._spill)])
        run.write(self._spill)
        return FrameFile(path, run)

    def close(self) -> None:
        """Name the file, and give it up.

        It is named before the lock is given up: another run could else claim the
        partial file in between. A file to which no frame could be written takes the
        place of no other.
        """
        self.is_closed = True
        self.drop_tail()
        if self._is_empty() and self.path.exists():
            self.error = f"{self.error}; {self.path.name} is what it was before"
            self.abandon()
            return
        try:
            os.replace(self.partial, self.path)
            self._file.close()
        except OSError as error:
            places = [place for place in (self.partial, self.path) if place.exists()]
            where: Path | str = places[0] if places else "lost"
            if self.error is None:
                self.error = f"{self.path}: {error.strerror}; it is {where}"

    def _is_empty(self) -> bool:
        """Whether recording has stopped before a frame was written."""
        with contextlib.suppress(OSError):
            return self.error is not None and not self.partial.stat().st_size
        return False

    def abandon(self) -> None:
        """Remove the file."""
        self.is_closed = True
        self.drop_tail()
        with contextlib.suppress(OSError):
            self.partial.unlink(missing_ok=True)
            self._file.close()

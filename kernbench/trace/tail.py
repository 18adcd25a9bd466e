"""What a run has recorded and not yet written: the tail of a file in the making.

A frame holds thousands of rows, so that a run which is killed would lose those of its
last seconds. They lie beside the file, in frames of their own, and are written anew
once a second. The file itself never has them in that form: equal runs stay equal bytes,
however long they took.

A tail says how many bytes of the file it goes on from, and has a checksum of the heads
of the frames there, in which the checksums of their bodies are. So the tail of one run
is never taken for that of another.
"""

from __future__ import annotations

import re
import struct
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

EVERY_S = 0.9
"""Between two tails: a second is promised, and to write one takes some of that."""

_MAGIC = b"kernbench-tail\0\1"
_FRONT = struct.Struct("<16sI")
_PLACE = struct.Struct("<QI")
"""The magic, and a CRC-32 of all that follows: bytes of the file before the tail, a
checksum of their heads, and frames made to stand behind those bytes."""


_UNFINISHED = re.compile(r"\.partial(\.old)?(\.tail(\.new)?)?$")
"""How the names end that a run gives to its own files until it has ended."""


class Tail(NamedTuple):
    """Frames that follow the first ``after`` bytes of a file.

    ``mark`` is the CRC-32 of the heads of all frames before, one after the other.
    """

    after: int
    mark: int
    frames: bytes

    def pack(self) -> bytes:
        """The bytes of a tail's file."""
        content = _PLACE.pack(self.after, self.mark) + self.frames
        return _FRONT.pack(_MAGIC, zlib.crc32(content)) + content


def tail_of(path: Path) -> Path:
    """Where the tail of the file at ``path`` is, if it has one."""
    return Path(f"{path}.tail")


def is_of_a_run(path: Path) -> bool:
    """Whether a run uses a file of such a name for itself, until it has ended."""
    return _UNFINISHED.search(path.name) is not None


def read_tail(path: Path) -> Tail | None:
    """The tail of the file at ``path``; None if there is none that can be read."""
    place = tail_of(path)
    try:
        if not place.is_file():
            return None
        data = place.read_bytes()
    except OSError:
        return None
    if len(data) < _FRONT.size + _PLACE.size:
        return None
    magic, checksum = _FRONT.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(data[_FRONT.size :]) != checksum:
        return None
    after, mark = _PLACE.unpack_from(data, _FRONT.size)
    return Tail(after, mark, data[_FRONT.size + _PLACE.size :])


class TailThread:
    """Calls a method every EVERY_S seconds, until ``stop`` or until its object is gone.

    A clock alone would not do: a kernel may compute for an hour and record nothing.
    """

    def __init__(self, write_tail: Callable[[], None]) -> None:
        self._stopped = Event()
        method = weakref.WeakMethod(write_tail)
        self._thread = Thread(target=_repeat, args=(method, self._stopped), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Call it no more; a call that is under way has ended then."""
        self._stopped.set()
        self._thread.join(EVERY_S)


def _repeat(method: weakref.WeakMethod[Callable[[], None]], stopped: Event) -> None:
    while not stopped.wait(EVERY_S):
        write_tail = method()
        if write_tail is None:
            return
        write_tail()
        del write_tail  # else its object would live as long as this thread

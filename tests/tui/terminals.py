"""A real pseudo-terminal with a program in it, and what a terminal (pyte) would show of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte

PROGRAM = [sys.executable, "-m", "tui"]
ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0  # for anything that is waited for
_NOT_PYTES = re.compile(rb"\x1b\[[<>=][0-9;]*[A-Za-z]|\x1b\[\?[0-9;]*\$p")
_DROPPED = (
    "NO_COLOR",
    "TMUX",
    "COLORTERM",
    "LC_ALL",
    "LC_CTYPE",
    "PYTEST_CURRENT_TEST",
)
_DROPPED += ("COLUMNS", "LINES")  # of the terminal of the tests, if any


class Terminal:
    """``raw`` is all that the program has written so far."""

    def __init__(
        self,
        argv: list[str],
        size: tuple[int, int] = (80, 24),
        ignore: signal.Signals | None = None,
        **environ: str,
    ) -> None:
        self.raw, self._fed = b"", 0
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        kept = {name: text for name, text in os.environ.items() if name not in _DROPPED}
        place = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        kept |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", **place, **environ}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            _set_size(0, size)
            if ignore is not None:
                signal.signal(ignore, signal.SIG_IGN)
            os.execvpe(argv[0], argv, kept)
        self.attributes = termios.tcgetattr(self.fd)

    def read(self, quiet: float) -> bytes:
        """What is written until nothing comes for ``quiet`` seconds."""
        before = len(self.raw)
        while select.select([self.fd], [], [], quiet)[0]:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:  # the program has closed it
                break
            if not data:
                break
            self.raw += data
        clean = _NOT_PYTES.sub(b"", self.raw)
        self._stream.feed(clean[self._fed :])
        self._fed = len(clean)
        return self.raw[before:]

    @property
    def text(self) -> str:
        """The screen as lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, text: str) -> str:
        """Wait for a text on the screen; the screen."""
        end = time.monotonic() + LIMIT_S
        while text not in self.text:
            assert time.monotonic() < end, f"no {text!r} on the screen:\n{self.text}"
            self.read(0.05)
        return self.text

    def press(self, keys: str, quiet: float = 0.25) -> bytes:
        """Send keys as bytes; what is written for them."""
        os.write(self.fd, keys.encode())
        return self.read(quiet)

    def resize(self, columns: int, lines: int) -> None:
        """The user pulls at the window."""
        _set_size(self.fd, (columns, lines))
        self.screen.resize(lines, columns)

    def wait(self, options: int = 0) -> int:
        """The status of the program when it has ended, or (WUNTRACED) stopped."""
        end = time.monotonic() + LIMIT_S
        while True:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, options | os.WNOHANG)
            if pid:
                return status
            assert time.monotonic() < end, f"it does not end:\n{self.text}"

    def end(self) -> int:
        """The exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(self.wait())
        self.pid = 0
        return code

    def restored(self) -> bool:
        """Main screen, cursor, no mouse or paste reports, and the modes of the line discipline."""
        off = {
            "1049": "l",
            "25": "h",
            "1000": "l",
            "1003": "l",
            "1006": "l",
            "2004": "l",
            "7": "h",
        }
        last = {mode: "" for mode in off}
        for mode, state in re.findall(rb"\x1b\[\?(\d+)([hl])", self.raw):
            last[mode.decode()] = state.decode()
        same = termios.tcgetattr(self.fd) == self.attributes
        return same and {mode: last[mode] for mode in off} == off

    def close(self) -> None:
        """Hang up, and let nothing live on."""
        with suppress(OSError):
            os.close(self.fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _set_size(fd: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))


@contextmanager
def opened(*argv: object, **options: object) -> Iterator[Terminal]:
    """``kernbench-tui ARGV`` in a terminal, its state below ``state``."""
    state = {"XDG_STATE_HOME": str(options.pop("state"))} if "state" in options else {}
    program = options.pop("program", PROGRAM)
    terminal = Terminal([*program, *map(str, argv)], **state, **options)  # type: ignore[misc]
    try:
        yield terminal
    finally:
        terminal.close()

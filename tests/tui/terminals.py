"""A real pseudo-terminal with a program in it, and what a terminal would show of it."""

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
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte
from child_signals import reset_signals

PROGRAM = [sys.executable, "-m", "tui"]
ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0  # for anything that is waited for

# Sequences that pyte does not know and would show as text; one that is not whole yet.
_NOT_PYTES = re.compile(rb"\x1b\[[<>=][0-9;]*[A-Za-z]|\x1b\[\?[0-9;]*\$p")
_CUT_OFF = re.compile(rb"\x1b(\[[<>=?0-9;$]*)?\Z")

# Variables that say something of where the tests run: of their terminal, if any, and
# of how their output is buffered.
_DROPPED = {
    "NO_COLOR",
    "TMUX",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "LC_ALL",
    "LC_CTYPE",
    "PYTEST_CURRENT_TEST",
    "PYTHONUNBUFFERED",
}
_ENVIRON = {
    "TERM": "xterm-256color",
    "LANG": "C.UTF-8",
    "PYTHONPATH": str(ROOT),
}

# Modes that a program turns on or off, and what a terminal has when it is given back.
_RESTORED = {
    "1049": "l",  # the main screen
    "25": "h",  # a cursor
    "1000": "l",  # no reports of the mouse
    "1003": "l",
    "1004": "l",  # none of focus
    "1006": "l",
    "1015": "l",
    "2004": "l",  # none of pastes
    "7": "h",  # wrapped lines
}


class Terminal:
    """A terminal of ``size`` (columns, lines) in which ``argv`` runs.

    ``raw`` is all that the program has written so far, ``screen`` what pyte makes of
    it. The program begins with the signal ``ignore`` ignored.
    """

    def __init__(
        self,
        argv: Sequence[str],
        size: tuple[int, int] = (80, 24),
        ignore: signal.Signals | None = None,
        **environ: str,
    ) -> None:
        self.raw = b""
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self._cut_off = b""
        variables = {k: v for k, v in os.environ.items() if k not in _DROPPED}
        variables.update(_ENVIRON)
        variables.update(environ)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                _set_size(0, size)
                reset_signals()
                if ignore is not None:
                    signal.signal(ignore, signal.SIG_IGN)
                os.execvpe(argv[0], argv, variables)
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            os._exit(127)  # else the tests would go on in this process, too
        self.attributes = termios.tcgetattr(self.fd)

    def read(self, quiet: float) -> bytes:
        """Return what is written until nothing comes for ``quiet`` seconds."""
        before = len(self.raw)
        while select.select([self.fd], [], [], quiet)[0]:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:  # the program has closed it
                break
            if not data:
                break
            self.raw += data
        written = self.raw[before:]
        self._show(written)
        return written

    def _show(self, written: bytes) -> None:
        """Feed the screen; keep the beginning of a sequence for the next time."""
        written = self._cut_off + written
        cut_off = _CUT_OFF.search(written)
        self._cut_off = cut_off[0] if cut_off else b""
        whole = written.removesuffix(self._cut_off)
        self._stream.feed(_NOT_PYTES.sub(b"", whole))

    @property
    def text(self) -> str:
        """The screen as lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, text: str) -> str:
        """Wait for a text on the screen; return the screen."""
        end = time.monotonic() + LIMIT_S
        while text not in self.text:
            assert time.monotonic() < end, f"no {text!r} on the screen:\n{self.text}"
            self.read(0.05)
        return self.text

    def press(self, keys: str, quiet: float = 0.25) -> bytes:
        """Send keys as bytes; return what is written for them."""
        os.write(self.fd, keys.encode())
        return self.read(quiet)

    def move_mouse(self, columns: range, rows: Sequence[int]) -> bytes:
        """Move the mouse over cells, counted from 1; return what is written for it."""
        moves = [f"\x1b[<35;{x};{y}M" for x in columns for y in rows]
        return self.press("".join(moves))

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size."""
        _set_size(self.fd, (columns, lines))
        self.screen.resize(lines, columns)

    def wait(self, options: int = 0) -> int:
        """Wait for the end, or by WUNTRACED for a stop; return the status."""
        end = time.monotonic() + LIMIT_S
        while True:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, options | os.WNOHANG)
            if pid:
                self.read(0.05)  # what it wrote last
                return status
            assert time.monotonic() < end, f"it does not end:\n{self.text}"

    def end(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(self.wait())
        self.pid = 0
        return code

    def restored(self) -> bool:
        """Whether modes and line discipline are as no program ever ran here."""
        last = dict.fromkeys(_RESTORED, "")
        for mode, state in re.findall(rb"\x1b\[\?(\d+)([hl])", self.raw):
            last[mode.decode()] = state.decode()
        modes = {mode: last[mode] for mode in _RESTORED}
        same_discipline = termios.tcgetattr(self.fd) == self.attributes
        own_keys = self.raw.rfind(b"\x1b[<u") > self.raw.rfind(b"\x1b[>")  # not kitty's
        return same_discipline and own_keys and modes == _RESTORED

    def close(self) -> None:
        """Hang up, and let nothing live on."""
        with suppress(OSError):
            os.close(self.fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _set_size(fd: int, size: tuple[int, int]) -> None:
    columns, lines = size
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def opened(
    *argv: object,
    state: Path | None = None,
    program: Sequence[str] = PROGRAM,
    size: tuple[int, int] = (80, 24),
    ignore: signal.Signals | None = None,
    **environ: str,
) -> Iterator[Terminal]:
    """Run ``kernbench-tui ARGV`` in a terminal, with its state below ``state``."""
    if state is not None:
        environ["XDG_STATE_HOME"] = str(state)
    terminal = Terminal([*program, *map(str, argv)], size, ignore, **environ)
    try:
        yield terminal
    finally:
        terminal.close()


def program_of(code: str) -> list[str]:
    """Return the command of a program that runs ``code``, then is ``kernbench-tui``."""
    return [sys.executable, "-c", f"{code}\nfrom tui.guardian import main; main()"]

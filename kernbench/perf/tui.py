"""What the debugger's screen costs, as a program in a pseudo-terminal; its goals.

Beside it stands a Textual screen of the same size that only counts keys: what a key or
a first frame costs there is Textual's own. A key's time goes up to the last byte before
a pause of GAP_S. It imports nothing of the screen; bytes and memory are those of the
largest trace, a file of 2 GB.

Two screens cannot be compared by that alone. One that writes "computing" at once and
the answer 60 ms later has been measured up to "computing"; one that waits some 30 ms,
and has the answer then, up to the answer. So mixed keys are pressed a second time, each
measured up to the last byte before a pause of ANSWERED_S, which is longer than either
waits before it says that it computes. What is not there MOST_S after its key is a job
of its own and counts as so long. The pauses between keys are longer then, so more has
been drawn ahead: the first figures are of one who presses quickly, these of answers.

A job that goes on, of an earlier key, counts its per cent on the status line. That is
no key's: else one that draws nothing would take until the next per cent, and one that
is drawn at once would be as slow as the job.
"""

from __future__ import annotations

import fcntl
import math
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeAlias

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.perf.make_trace import make_trace
from kernbench.perf.sim import PerfRow

Screen: TypeAlias = tuple[int, int]
"""Columns and lines of a terminal."""

SIZES = (100_000, 1_000_000, 10_000_000)
"""Ops of the traces."""

SCREENS = ((120, 40), (200, 50))
STEPS = 200
"""How often a key is pressed."""

MIX = "sn2jk.3s1+lh-05st]N6,S[7s8Szz4s"
"""The mixed keys, pressed again and again."""

GAP_S = 0.05
"""A pause that ends what a key makes."""

ANSWERED_S = 0.3
"""A pause that ends what a key makes, its last answer with it."""

MOST_S = 2.0
"""The longest that an answer is waited for."""

WAIT_S = 0.4
"""How long a first byte is waited for."""

IDLE_S = 2.0
"""A time in which nothing is pressed."""

LOAD_S = 300.0
"""How long a trace may take to open."""

SETTLE_S = 5.0
"""Without a byte: no job runs any more, unless the screen says so, or it computes."""

IDLE_SHARE = 0.1
"""Seconds of CPU a second of a program that waits for keys: its clocks tick."""

WORKING = re.compile(rb"\d%(?:\x1b\[[0-9;]*m|\s)*Esc cancels")
"""What a pane says while a job runs for it, which is measured by itself."""

GOALS = {50: 10.0, 99: 35.0}
"""ms beyond the do-nothing screen, by percentile."""

STEP_BYTES = {(120, 40): 2048, (200, 50): 6144}
"""The most bytes that a step writes, by screen."""

REDRAW = "\x0c"
"""The key that draws the whole screen anew."""

BATCH = 8
"""Steps between two looks at the status line, while a job runs."""

PER_CENT = re.compile(
    rb"(\x1b\[[0-9;]*m|\x1b\[1;[0-9]+H[0-9]+%?|\x1b\[[0-9]+;[0-9]+H(?=\x1b|\Z))+"
)
"""Frames in which only a number of the first line, the status line, has changed; where
the terminal's cursor goes back to is no change.
"""

COMPUTING = re.compile(rb"critical \d+%")
FLAT = 1.5
"""The most that a step's median may grow from the smallest trace to the largest."""

NOTHING = """
import os
import select
import threading

from rich.segment import Segment
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

class Lines(Widget, can_focus=True):
    keys = 0
    def render_line(self, y):
        return Strip([Segment(f"line {y} nothing {self.keys}".ljust(self.size.width))])
    def on_key(self):
        self.keys += 1
        self.refresh(Region(0, 0, self.size.width, 1))

class Nothing(App):
    def compose(self):
        yield Lines()

def end_with_the_terminal():
    poll = select.poll()
    poll.register(0, 0)  # a hangup is reported though nothing is asked for
    poll.poll()
    os._exit(1)

threading.Thread(target=end_with_the_terminal, daemon=True).start()
Nothing().run()
"""
"""The do-nothing screen. Textual alone would read a terminal that is gone for ever."""


class Terminal(subprocess.Popen[bytes]):
    """A program in a pseudo-terminal of ``screen`` (columns, lines).

    Its settings are in folder ``home``. ``data`` is what it has written since it was
    last cleared, ``started`` the time at which it was started.
    """

    def __init__(self, command: list[str], screen: Screen, home: str) -> None:
        columns, lines = screen
        self._fd, tty = pty.openpty()
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.data = b""
        self.started = perf_counter()
        super().__init__(
            [sys.executable, *command],
            bufsize=0,
            stdin=tty,
            stdout=tty,
            stderr=tty,
            env=_environ(home),
            start_new_session=True,
        )
        os.close(tty)

    def __exit__(self, *why: object) -> None:
        self.kill()
        self.wait()
        os.close(self._fd)

    def read(
        self,
        first_s: float,
        gap_s: float,
        until: bytes = b"",
        most_s: float = math.inf,
        ignored: re.Pattern[bytes] | None = None,
    ) -> float:
        """Append to ``data`` what it writes until it pauses for ``gap_s``, or for
        ``most_s`` after ``until``. A frame that is ``ignored`` is as if it had not
        been written.

        Returns when the last byte came. Raises KernbenchError if the program ends, or
        if ``until`` is not in ``data`` after ``first_s``.
        """
        last = perf_counter()
        end = last + first_s
        limit = last + most_s
        while select.select([self._fd], [], [], max(end - perf_counter(), 0))[0]:
            try:
                frame = os.read(self._fd, 1 << 16)
            except OSError:  # it has ended
                break
            if ignored is not None and ignored.fullmatch(frame):
                continue
            self.data += frame
            last = perf_counter()
            if until in self.data:
                end = min(last + gap_s, limit)
        else:
            if until in self.data:
                return last
        raise KernbenchError(
            f"a screen ended, or never showed {until!r}: {self.data[-300:]!r}"
        )

    def press(self, keys: str, gap_s: float = GAP_S) -> float:
        """Milliseconds from keys to the last byte that they make before a pause of
        ``gap_s``; 0 if they make none.

        ``data`` has these bytes.
        """
        self.data = b""
        start = perf_counter()
        os.write(self._fd, keys.encode())
        last = self.read(WAIT_S, gap_s, most_s=MOST_S, ignored=PER_CENT)
        if not self.data:
            return 0.0
        return (last - start) * 1e3

    def wait_quietly(self, seconds: float) -> None:
        """Read until nothing has been written for so long."""
        self.read(seconds, seconds)


def _environ(home: str) -> dict[str, str]:
    """The environment of a program: a terminal with all colours, its settings."""
    environ = {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LC_ALL": "C.UTF-8",
    }
    for name in ("PATH", "PYTHONPATH"):
        if name in os.environ:
            environ[name] = os.environ[name]
    for part in ("CONFIG", "STATE", "CACHE"):
        environ[f"XDG_{part}_HOME"] = home
    return environ


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one program."""

    first_s: float
    """Seconds to the first frame."""

    taken_ms: dict[str, list[float]]
    """Milliseconds of each key, by what was pressed."""

    step_bytes: list[int]
    """Bytes that each step wrote."""


def measure(
    sizes: Sequence[int] = SIZES,
    screens: Iterable[Screen] = SCREENS,
    steps: int = STEPS,
) -> Iterator[PerfRow]:
    """Measure everything, on traces of ``sizes`` in ops, rising; some 20 minutes.

    A row is given as soon as it is measured.
    """
    medians: defaultdict[str, list[float]] = defaultdict(list)
    # A program that was ended may still be writing its settings there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "perf-tui.msgpack"
        for ops in sizes:
            make_trace(path, ops)
            for screen in screens:
                size = f"{screen[0]}x{screen[1]}"
                at = f"{ops:,} ops at {size}"
                own = nothing_figures(screen, folder, steps)
                own_ms = dict(own.taken_ms)
                with Terminal(["-m", "tui", str(path)], screen, folder) as terminal:
                    ready = f"/{ops - 1:,}".encode()  # in the status line
                    found = figures(terminal, path.name.encode(), ready, steps)
                    taken_ms = dict(found.taken_ms)
                    medians[size].append(median(taken_ms["step"]))
                    if ops == sizes[-1]:
                        yield from budgets(terminal, screen, at, found.step_bytes)
                        busy = "step as a job runs"
                        taken_ms[busy] = while_computing(terminal, steps)
                        own_ms[busy] = own_ms["step"]
                ratio = found.first_s / own.first_s
                yield PerfRow(f"first frame, {at}", ratio, 3.0, "ratio")
                yield from beyond(taken_ms, own_ms, at)
    for size, of_step in medians.items():
        name = f"step, {sizes[-1]:,} / {sizes[0]:,} ops at {size}"
        yield PerfRow(name, of_step[-1] / of_step[0], FLAT, "ratio")


def nothing_figures(screen: Screen, home: str, steps: int) -> Figures:
    """The figures of the screen that only counts keys."""
    with Terminal(["-c", NOTHING], screen, home) as nothing:
        return figures(nothing, b"nothing", b"nothing", steps)


def figures(terminal: Terminal, first: bytes, ready: bytes, steps: int) -> Figures:
    """Measure a program: its first frame has ``first`` in it, then ``ready``."""
    first_s = terminal.read(LOAD_S, 0.0, first) - terminal.started
    terminal.read(LOAD_S, 1.0, ready)
    terminal.press("s")
    settle(terminal)  # what is computed but once, is now
    step_ms = []
    step_bytes = []
    for _ in range(steps):
        step_ms.append(terminal.press("s"))
        step_bytes.append(len(terminal.data))
    for key in MIX:
        terminal.press(key)
    settle(terminal)
    mixed_ms = [terminal.press(key) for key in islice(cycle(MIX), steps)]
    mixed = islice(cycle(MIX), steps // 2)
    answered_ms = [terminal.press(key, ANSWERED_S) for key in mixed]
    taken_ms = {
        "step": step_ms,
        "mixed keys": mixed_ms,
        "mixed keys to their answers": answered_ms,
    }
    return Figures(first_s, taken_ms, step_bytes)


def settle(terminal: Terminal) -> None:
    """Wait until no job runs any more, for LOAD_S at most.

    Some go on for seconds at one per cent: an index of ten million ops takes twenty.
    Others no pane tells of: what is computed while no key comes.
    """
    end = perf_counter() + LOAD_S
    while perf_counter() < end:
        begin = perf_counter()
        before_s = _cpu_s(terminal.pid)
        terminal.wait_quietly(SETTLE_S)
        used_s = _cpu_s(terminal.pid) - before_s
        if used_s > IDLE_SHARE * (perf_counter() - begin):
            continue
        terminal.press(REDRAW)
        if WORKING.search(terminal.data) is None:
            return


def beyond(
    taken: Mapping[str, Sequence[float]], own: Mapping[str, Sequence[float]], at: str
) -> Iterator[PerfRow]:
    """Percentiles of milliseconds less those of the do-nothing screen.

    A key that writes nothing has none.
    """
    for name, all_ms in taken.items():
        ms = [one for one in all_ms if one]
        if not ms:
            continue
        for share, goal in GOALS.items():
            more = float(np.percentile(ms, share) - np.percentile(own[name], share))
            yield PerfRow(f"{name} p{share}, {at}", more, goal, "ms")


def while_computing(terminal: Terminal, steps: int) -> list[float]:
    """Milliseconds of steps until the critical path is computed; none if at once."""
    terminal.press(":critical\r")
    terminal.read(WAIT_S, WAIT_S)  # until it is late enough to be spoken of
    taken: list[float] = []
    batch: list[float] = []
    while len(taken) < steps:
        terminal.press(REDRAW)
        if COMPUTING.search(terminal.data) is None:
            break
        taken += batch  # its job was on the status line before and after them
        batch = [terminal.press("s") for _ in range(BATCH)]
    terminal.press("\x1b")  # cancels, or leaves the answer
    return taken


def budgets(
    terminal: Terminal, screen: Screen, at: str, step_bytes: Sequence[int]
) -> list[PerfRow]:
    """Private memory, and the bytes that are written, of which steps are given."""
    settle(terminal)  # a job of the last keys would write that it is done
    terminal.press(REDRAW)
    redraw = len(terminal.data)
    terminal.data = b""
    terminal.wait_quietly(IDLE_S)
    unasked = len(terminal.data)
    columns, lines = screen
    moves = [f"\x1b[<35;{x};{x % lines + 1}M" for x in range(1, columns, 7)]
    terminal.press("".join(moves))
    hover = len(terminal.data)
    limit = STEP_BYTES[screen]
    return [
        PerfRow(f"bytes of a step, {at}", median(step_bytes), limit, "bytes"),
        PerfRow(f"bytes of a redraw, {at}", redraw, 61_440, "bytes"),
        PerfRow(f"bytes when idle, {at}", unasked, 0, "bytes"),
        PerfRow(f"bytes of a hover, {at}", hover, 0, "bytes"),
        PerfRow(f"private memory, {at}", _private_mib(terminal.pid), 1228.8, "MiB"),
    ]


def _cpu_s(pid: int) -> float:
    """The seconds of CPU that a process and its children have used so far."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    # behind the name, which may have blanks: user and system time are fields 14 and 15
    ticks = stat.rpartition(")")[2].split()[11:13]
    own_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(map(_cpu_s, _children(pid)))


def _private_mib(pid: int) -> float:
    """The memory of a process and its children that is their own and written.

    Clean pages are the mapped file's: the system may drop them at any time.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    kib = re.findall(r"^Private_Dirty: +(\d+) kB", rollup, re.MULTILINE)
    own_mib = sum(map(int, kib)) / 1024
    return own_mib + sum(map(_private_mib, _children(pid)))


def _children(pid: int) -> list[int]:
    """The processes that the main thread of a process has started and not awaited."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in children.split()]

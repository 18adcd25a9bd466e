"""What the debugger's screen costs, as a program in a pseudo-terminal, against the goals for it.

Beside it stands a Textual screen of the same size that only counts keys: what a key or a first
frame costs there is Textual's own. A key's time goes up to the last byte before a pause of GAP_S.
It imports nothing of the screen; bytes and memory are those of the largest trace, a file of 2 GB.
"""

from __future__ import annotations

import fcntl
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
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeAlias

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.perf.make_trace import make_trace
from kernbench.perf.sim import PerfRow

Screen: TypeAlias = tuple[int, int]  # columns, lines
SIZES = (100_000, 1_000_000, 10_000_000)  # ops
SCREENS = ((120, 40), (200, 50))
STEPS = 200
MIX = "sn2jk.3s1+lh-05st]N6,S[7s8Szz4s"  # keys
GAP_S, WAIT_S, IDLE_S, LOAD_S = (
    0.05,
    0.4,
    2.0,
    300.0,
)  # LOAD_S at most, and WAIT_S for a first byte
SETTLE_S = 5.0  # without a byte: no job runs any more, which is measured by itself
GOALS = {50: 10.0, 99: 35.0}  # ms beyond the do-nothing screen, by percentile
STEP_BYTES = {(120, 40): 2048, (200, 50): 6144}
REDRAW, BATCH, COMPUTING = "\x0c", 8, re.compile(rb"critical \d+%")
FLAT = 1.5  # median of a step on the largest trace / on the smallest

NOTHING = """
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

Nothing().run()
"""


class Terminal(subprocess.Popen[bytes]):
    """A program in a pseudo-terminal of ``screen`` (columns, lines), its settings in ``home``."""

    def __init__(self, command: list[str], screen: Screen, home: str) -> None:
        self._fd, tty = pty.openpty()
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("4H", *screen[::-1], 0, 0))
        environ = {
            name: x for name, x in os.environ.items() if name in ("PATH", "PYTHONPATH")
        }
        environ |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
        }
        environ |= {f"XDG_{part}_HOME": home for part in ("CONFIG", "STATE", "CACHE")}
        self.data, self.started, python = (
            b"",
            perf_counter(),
            [sys.executable, *command],
        )
        super().__init__(
            python, 0, None, tty, tty, tty, env=environ, start_new_session=True
        )
        os.close(tty)

    def __exit__(self, *why: object) -> None:
        self.kill()
        self.wait()
        os.close(self._fd)

    def read(self, first_s: float, gap_s: float, until: bytes = b"") -> float:
        """Append to ``data`` what it writes until it pauses; when the last byte came.

        Raises KernbenchError if it ends, or if ``until`` is not in ``data`` after ``first_s``.
        """
        last = perf_counter()
        end = last + first_s
        while select.select([self._fd], [], [], max(end - perf_counter(), 0))[0]:
            try:
                self.data += os.read(self._fd, 1 << 16)
            except OSError:  # it has ended
                break
            last = perf_counter()
            if until in self.data:
                end = last + gap_s
        else:
            if until in self.data:
                return last
        raise KernbenchError(
            f"a screen ended, or never showed {until!r}: {self.data[-300:]!r}"
        )

    def press(self, keys: str) -> float:
        """Milliseconds from keys to the last byte that they make; ``data`` has these."""
        self.data = b""
        start = perf_counter()
        os.write(self._fd, keys.encode())
        return (self.read(WAIT_S, GAP_S) - start) * 1e3 * bool(self.data)


def measure(
    sizes: Sequence[int] = SIZES,
    screens: Iterable[Screen] = SCREENS,
    steps: int = STEPS,
) -> list[PerfRow]:
    """Measure everything, on traces of ``sizes`` in ops, rising; some 20 minutes by default."""
    rows, medians = list[PerfRow](), defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perf-tui.msgpack"
        for ops in sizes:
            make_trace(path, ops)
            for screen in screens:
                size = f"{screen[0]}x{screen[1]}"
                at = f"{ops:,} ops at {size}"
                with Terminal(["-c", NOTHING], screen, folder) as nothing:
                    least, own, _ = figures(nothing, b"nothing", b"nothing", steps)
                with Terminal(["-m", "tui", str(path)], screen, folder) as terminal:
                    ready = f"/{ops - 1:,}".encode()  # in the status line
                    first, taken, nbytes = figures(
                        terminal, path.name.encode(), ready, steps
                    )
                    medians[size].append(median(taken["step"]))
                    if ops == sizes[-1]:
                        rows += budgets(terminal, screen, at, nbytes)
                        taken["step as a job runs"] = while_computing(terminal, steps)
                        own["step as a job runs"] = own["step"]
                rows.append(PerfRow(f"first frame, {at}", first / least, 3.0, "ratio"))
                rows += beyond(taken, own, at)
    flat = f"step, {sizes[-1]:,} / {sizes[0]:,} ops at"
    return rows + [
        PerfRow(f"{flat} {x}", m[-1] / m[0], FLAT, "ratio") for x, m in medians.items()
    ]


def figures(
    terminal: Terminal, first: bytes, ready: bytes, steps: int
) -> tuple[float, dict[str, list[float]], list[int]]:
    """Seconds to the frame that has ``first`` in it, milliseconds of keys, bytes of the steps."""
    first_s = terminal.read(LOAD_S, 0.0, first) - terminal.started
    terminal.read(LOAD_S, 1.0, ready)
    terminal.press("s")
    terminal.read(SETTLE_S, SETTLE_S)  # what is computed but once, is now
    stepped = [(terminal.press("s"), len(terminal.data)) for _ in range(steps)]
    for key in MIX:
        terminal.press(key)
    terminal.read(SETTLE_S, SETTLE_S)
    mixed = [terminal.press(key) for key in islice(cycle(MIX), steps)]
    taken = {"step": [ms for ms, _ in stepped], "mixed keys": mixed}
    return first_s, taken, [nbytes for _, nbytes in stepped]


def beyond(
    taken: dict[str, list[float]], own: dict[str, list[float]], at: str
) -> Iterator[PerfRow]:
    """Percentiles of milliseconds less the do-nothing screen's; a key that writes none has none."""
    for name, all_ms in taken.items():
        ms = [x for x in all_ms if x]
        for share, goal in GOALS.items() if ms else ():
            more = float(np.percentile(ms, share) - np.percentile(own[name], share))
            yield PerfRow(f"{name} p{share}, {at}", more, goal, "ms")


def while_computing(terminal: Terminal, steps: int) -> list[float]:
    """Milliseconds of steps until the critical path is computed; none if that takes no time."""
    terminal.press(":critical\r")
    terminal.read(WAIT_S, WAIT_S)  # until it is late enough to be spoken of
    taken, batch = list[float](), list[float]()
    while len(taken) < steps:
        terminal.press(REDRAW)
        if COMPUTING.search(terminal.data) is None:
            break
        taken += batch  # its job was on the status line before and after them
        batch = [terminal.press("s") for _ in range(BATCH)]
    terminal.press("\x1b")  # cancels, or leaves the answer
    return taken


def budgets(
    terminal: Terminal, screen: Screen, at: str, nbytes: list[int]
) -> list[PerfRow]:
    """Private memory, and bytes that are written, ``nbytes`` of steps."""
    terminal.press(REDRAW)
    redraw = len(terminal.data)
    terminal.read(IDLE_S, IDLE_S)  # until no job of the last keys runs
    terminal.data = b""
    terminal.read(IDLE_S, IDLE_S)
    idle, (columns, lines) = len(terminal.data), screen
    terminal.press(
        "".join(f"\x1b[<35;{x};{x % lines + 1}M" for x in range(1, columns, 7))
    )
    memory = Path(f"/proc/{terminal.pid}/smaps_rollup").read_text(encoding="ascii")
    # clean pages are the mapped file's: the system may drop them at any time
    private = sum(
        map(int, re.findall(r"^Private_Dirty: +(\d+) kB", memory, re.MULTILINE))
    )
    return [
        PerfRow(f"bytes of a step, {at}", median(nbytes), STEP_BYTES[screen], "bytes"),
        PerfRow(f"bytes of a redraw, {at}", redraw, 61_440, "bytes"),
        PerfRow(f"bytes when idle, {at}", idle, 0, "bytes"),
        PerfRow(f"bytes of a hover, {at}", len(terminal.data), 0, "bytes"),
        PerfRow(f"private memory, {at}", private / 1024, 1228.8, "MiB"),
    ]

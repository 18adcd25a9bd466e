"""How far a sweep is, on stderr: one line that is written anew on a terminal, and lines
now and then where there is none.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from time import monotonic

import click

from kernbench.sweep.sweeping import Tally
from kernbench.sweep.table import value_of
from kernbench.visible import visible

TERMINAL_EVERY_S = 0.2
PIPE_EVERY_S = 10.0
"""How often something is shown."""


class Watcher:
    """Shows tallies; the last one is shown by ``close``."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._every_s = TERMINAL_EVERY_S if self._is_terminal else PIPE_EVERY_S
        self._shown = monotonic()
        self._last: Tally | None = None

    def __call__(self, tally: Tally) -> None:
        """Show a tally, if the last one was shown long enough ago."""
        self._last = tally
        if monotonic() - self._shown >= self._every_s:
            self._show()

    def note(self, line: str) -> None:
        """Show a line, if the last one was shown long enough ago."""
        if monotonic() - self._shown >= self._every_s:
            self._write(line)

    def close(self) -> None:
        """Show the last one; leave a clean line to whoever writes next."""
        if self._last is not None:
            self._show()
            if self._is_terminal:
                with suppress(OSError):
                    click.echo(err=True)

    def _show(self) -> None:
        assert self._last is not None
        self._write(line_of(self._last))

    def _write(self, text: str) -> None:
        self._shown = monotonic()
        line = visible(text)
        with suppress(OSError):  # a terminal that is gone ends no sweep
            if self._is_terminal:
                width = shutil.get_terminal_size().columns - 1
                click.echo(f"\r{line[:width]}\033[K\r", err=True, nl=False)
            else:
                click.echo(line, err=True)


def line_of(tally: Tally) -> str:
    """Points done, failed, wrong, rate, time left, and the best so far."""
    parts = [f"{tally.done:,} of {tally.total:,} points"]
    if tally.failed:
        parts.append(f"{tally.failed:,} failed")
    if tally.wrong:
        parts.append(f"{tally.wrong:,} wrong")
    if not tally.workers:
        parts.append("waiting for workers")
    left = tally.seconds_left
    if left is not None:
        parts.append(f"{tally.rate:.3g}/s")
        parts.append(f"{duration(left)} left")
    if tally.best is not None:
        best = value_of(tally.best, tally.objective.column)
        values = tally.best.point.values()
        where = [f"{name}={values[name]}" for name in tally.varied]
        parts.append(" ".join([f"{tally.objective} {best:,.6g} at", *where]))
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time that somebody waits for, as 4 s, 3 min 20 s, or 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"

"""The time axis of the timeline: the minimap and the ruler.

All of it follows from the window and the cursor's time; nothing here knows the trace,
so it costs the same however long that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernbench.replay.arrays import Floats
from kernbench.replay.text import time_text
from tui.draw import Glyphs, Line, clip

_UNITS = (("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_CELLS_A_TICK = 12
"""Two ticks of the ruler are at least as many cells apart."""
_ROUND = 1e-9
"""A quotient that is off a whole number by less is one."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A window of time on the screen.

    It is from ``t0`` to ``t1`` ns in ``columns`` cells, behind ``label`` columns of
    names. ``time`` is the cursor's, ns; None before the first op.
    """

    t0: float
    t1: float
    label: int
    columns: int
    time: float | None
    glyphs: Glyphs

    @property
    def span(self) -> float:
        """The length of the window, ns."""
        return self.t1 - self.t0

    @property
    def cell_ns(self) -> float:
        """The length of a cell, ns."""
        return self.span / self.columns

    @property
    def cursor_cell(self) -> int | None:
        """The cell of the cursor's time; None where that is not in view."""
        if self.time is None or not self.t0 <= self.time < self.t1:
            return None
        return min(
            int((self.time - self.t0) / self.span * self.columns), self.columns - 1
        )

    @property
    def summary(self) -> str:
        """How long the window is, and a cell of it, for the pane's title."""
        cell = time_text(self.cell_ns)
        if self.cell_ns < 1.0:
            cell = f"{self.cell_ns:.2g}ns"
        return f"{time_text(self.span)} shown, {cell} a cell"


def minimap(axis: Axis, end: float, busy: Floats | None) -> Line:
    """The run from 0 to ``end`` ns in a line, with the window and the cursor in it.

    ``busy`` is how busy the machine is in each cell, drawn against the busiest; None:
    that is not known yet.
    """
    last = axis.columns - 1
    low = _cell_of_run(axis, axis.t0 / end)
    after = math.ceil(axis.t1 / end * axis.columns - _ROUND)
    high = max(min(after - 1, last), low)
    cells = [axis.glyphs.rule] * axis.columns
    if busy is not None:
        most = max(float(busy.max()), 1e-12)
        for i, share in enumerate((busy / most).tolist()):
            if share > 0:
                cells[i] = axis.glyphs.ramp[min(int(share * 8), 7)]
    else:
        cells[low : high + 1] = [axis.glyphs.thick] * (high + 1 - low)
    line: Line = [(clip(" whole run", axis.label, axis.glyphs), "dim")]
    styles = ["rule"] * low + ["flight"] * (high + 1 - low)
    styles += ["rule"] * (last - high)
    if axis.time is not None:
        at = _cell_of_run(axis, axis.time / end)
        cells[at] = "V"
        styles[at] = "mark"
    return line + list(zip(cells, styles, strict=True))


def _cell_of_run(axis: Axis, share: float) -> int:
    """The cell of the minimap in which a share of the run lies, or the nearest."""
    cell = int(min(max(share, 0.0), 1.0) * axis.columns + _ROUND)
    return min(cell, axis.columns - 1)


def ruler(axis: Axis) -> Line:
    """Ticks with their times; at the side where the cursor is, if that is not in view,
    an arrow.
    """
    time = axis.t0 if axis.time is None else axis.time
    back = axis.glyphs.heads[3] if time < axis.t0 else ""
    onward = axis.glyphs.heads[1] if time >= axis.t1 else ""
    room = axis.columns - len(onward)
    return [
        (f"{back:>{axis.label}}", "mark"),
        ("".join(_ticks(axis, room)[:room]), "dim"),
        (onward, "mark"),
    ]


def _ticks(axis: Axis, room: int) -> list[str]:
    """The ruler's characters, one a cell: at each tick a bar and its time, as far as
    that fits into the first ``room`` cells.
    """
    step = _tick_step(axis.cell_ns * _CELLS_A_TICK)
    unit, unit_ns = _unit_of(max(abs(axis.t0), abs(axis.t1)))
    digits = max(0, -math.floor(math.log10(step / unit_ns) + _ROUND))
    cells = [" "] * axis.columns
    for tick in range(math.ceil(axis.t0 / step), math.ceil(axis.t1 / step)):
        at = int((tick * step - axis.t0) / axis.span * axis.columns)
        mark = f"{axis.glyphs.bar}{tick * step / unit_ns:.{digits}f}{unit}"
        if at + len(mark) > room:
            mark = axis.glyphs.bar
        cells[at : at + len(mark)] = mark
    return cells


def _tick_step(least: float) -> float:
    """The shortest of 1, 2, 5, 10, 20 … ns, or of their parts, that is not below
    ``least``.
    """
    step: float = 10.0 ** math.floor(math.log10(least))
    for factor in (1, 2, 5):
        if step * factor >= least * (1 - _ROUND):
            return step * factor
    return step * 10


def _unit_of(largest: float) -> tuple[str, float]:
    """The unit that times up to ``largest`` ns are written in, and its length, ns."""
    for unit, unit_ns in _UNITS:
        if largest >= unit_ns:
            return unit, unit_ns
    return _UNITS[-1]

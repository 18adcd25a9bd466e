"""The window of the timeline: from when to when it shows the run, in ns.

Windows begin and end at times of a grid that is finer the shorter they are. So one that
is zoomed in and out again, or moved there and back, is the very same, and what was
computed for it is found again.
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import TypeAlias

import numpy as np

from kernbench.replay.index import Index
from kernbench.replay.ops import OpFacts

_LEAST_NS = 0.125
"""The shortest window."""
_EDGE = 1 / 50
"""The share of the window that stays free on either side of what is fitted into it."""
_PANS = 8
"""How many steps of panning move the window by its own length."""
_GRID_BITS = 26
"""A window has 2**25 to 2**26 steps of its grid. So at the shortest of windows its
times are exact in runs of up to 17 ms.
"""

Window: TypeAlias = tuple[float, float]


def kernel_window(index: Index) -> Window:
    """From when to when kernels run, ns: the window of the launches.

    A launch is recorded when it ends. In a recording that ends before the first one
    does it is from the first op of a PE to the end; where there is none, all of it.
    """
    trace = index.trace
    t0, t1 = index.launch_window
    if trace.launches:
        return t0, t1
    on_pe = np.flatnonzero(trace.nodes.pe[index.ops.components] >= 0)
    if len(on_pe):
        t0 = index.ops.time(int(on_pe[0]))
    return t0, max(t1, t0 + 1.0)


class Windows:
    """The windows of a run that ends at ``end`` ns and has some ops."""

    def __init__(self, end: float, ops: OpFacts) -> None:
        self._end = end
        self._ops = ops

    def framed(self, t0: float, span: float) -> Window:
        """The window of ``span`` ns from ``t0`` on, as far as that is allowed.

        It is at most as long as the run with an edge on both sides. It may begin one
        edge before the run, and end one edge behind it.
        """
        whole = self._end * 50 / 48
        span = min(max(span, _LEAST_NS), whole)
        latest = self._end - span * 49 / 50
        t0 = max(min(t0, latest), -span * _EDGE)
        grid = _grid(span)
        span = _on_grid(span, grid)
        t0 = _on_grid(t0, grid)
        return t0, t0 + span

    def fitted(self, t0: float, t1: float) -> Window:
        """The window that shows the times from ``t0`` to ``t1``, ns, with some room."""
        edge = max(t1 - t0, 1.0) * _EDGE
        return self.framed(t0 - edge, t1 - t0 + 2 * edge)

    def zoomed(self, window: Window, factor: float, cursor: int) -> Window:
        """A window ``factor`` times as long.

        What stays at its place is the cursor's time, if that is in view, else the
        middle.
        """
        t0, t1 = window
        span = t1 - t0
        middle = self._ops.time(cursor)
        if not t0 <= middle < t1:
            middle = t0 + span / 2
        factor = max(factor, _LEAST_NS / span)
        # On the grid of the longer one: zooming back has the same middle.
        middle = _on_grid(middle, _grid(max(span, span * factor)))
        return self.framed(middle + (t0 - middle) * factor, span * factor)

    def panned(self, window: Window, by: int) -> Window:
        """The window moved by some steps."""
        t0, t1 = window
        span = t1 - t0
        step = _on_grid(span / _PANS, _grid(span))
        return self.framed(t0 + step * by, span)

    def following(self, window: Window, cursor: int) -> Window:
        """The window if the cursor is in it, else one as long that begins a quarter of
        its length before the cursor.
        """
        t0, t1 = window
        time = self._ops.time(cursor)
        if cursor < 0 or t0 <= time < t1:
            return window
        span = t1 - t0
        return self.framed(time - span / 4, span)


def _grid(span: float) -> float:
    """The step of the grid, ns, of windows of that length."""
    _, exponent = frexp(span)
    return ldexp(1.0, exponent - _GRID_BITS)


def _on_grid(time: float, grid: float) -> float:
    """The time of the grid that is nearest."""
    return round(time / grid) * grid

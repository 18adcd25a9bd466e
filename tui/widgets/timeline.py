"""Pane 1: one row a component over a window of time that can be zoomed and panned."""

from __future__ import annotations

import math

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.text import time_text
from kernbench.replay.timeline import TimelineRow
from tui.widgets.draw import Glyphs, Line, clip
from tui.widgets.pane import Pane

_UNITS = (("ms", 1e6), ("us", 1e3), ("ns", 1.0))


class TimelinePane(Pane):
    """Keeps the window [t0, t1) ns; the view follows the cursor when that leaves it."""

    number, title, header = 1, "Timeline", 2

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        nodes, found = session.trace.nodes, session.timelines.components
        order = np.lexsort((found, nodes.pe[found], nodes.cube[found], nodes.sip[found]))
        self.components = [int(c) for c in found[order]]
        self.labels = self._labels()
        self.end = max(session.trace.end_ns, 1.0)
        self.fit()

    def _labels(self) -> list[str]:
        nodes = self.session.trace.nodes
        places = np.stack([nodes.sip, nodes.cube, nodes.pe], 1)[self.components].tolist()
        engines = [nodes.engine[c] for c in self.components]
        one_cube = len({(sip, cube) for sip, cube, pe in places if pe >= 0}) < 2
        labels = []
        for (sip, cube, pe), engine in zip(places, engines, strict=True):
            named = pe < 0 or not one_cube
            where = f"s{sip}" * (named and sip >= 0) + f"c{cube}" * (named and cube >= 0)
            labels.append(".".join(filter(None, (where, f"pe{pe}" * (pe >= 0), engine))))
        return labels

    def fit(self) -> None:
        """Show the launches, with a little room around."""
        low, high = self.session.launch_window()
        edge = max(high - low, 1.0) / 50
        self.t0, self.t1 = low - edge, high + edge
        self.repaint()

    def zoom(self, factor: float) -> None:
        """Make the window ``factor`` times as long, around the cursor if that is in view."""
        middle, inside = self.session.time, self.t0 <= self.session.time < self.t1
        middle = middle if inside else (self.t0 + self.t1) / 2
        if 0.1 <= (self.t1 - self.t0) * factor <= 2 * self.end:
            self.t0, self.t1 = (middle + (t - middle) * factor for t in (self.t0, self.t1))
        self.repaint()

    def pan(self, by: int) -> bool:
        """Move the window by eighths of its length, as long as it shows some of the run."""
        shift = (self.t1 - self.t0) / 8 * by
        if self.t1 + shift > 0 and self.t0 + shift < self.end:
            self.t0, self.t1 = self.t0 + shift, self.t1 + shift
        self.repaint()
        return True

    def follow(self) -> None:
        """Keep the cursor's time in view, and no more beyond the end of the run than an edge."""
        t, span = self.session.time, self.t1 - self.t0
        if self.session.cursor >= 0 and not self.t0 <= t < self.t1:
            self.t0 = max(min(t - span / 4, self.end - 49 * span / 50), -span / 50)
            self.t1 = self.t0 + span
        super().follow()

    def enter(self) -> str | None:
        """The op of the picked component that started last by the cursor, else its first."""
        if self.at is None:
            return None
        mine = np.flatnonzero(self.session.components == self.components[self.at])
        before = int(np.searchsorted(mine, self.session.cursor, side="right")) - 1
        return f"goto {int(mine[max(before, 0)])}"

    def draw(self, width: int, height: int) -> list[Line]:
        """Minimap, ruler, rows."""
        session, components = self.session, self.components
        if not components:
            return [[(" no ops in this trace; ", "dim"), (":info", "bold"), (" has more", "dim")]]
        label = min(max(map(len, self.labels)) + 2, width // 3)
        columns, room = width - label, max(height - 2, 1)
        here = None if session.component is None else components.index(session.component)
        first = self.first_row(len(components), room, here)
        answer = session.timeline(components[first : first + room], self.t0, self.t1, columns)
        span = self.t1 - self.t0
        self.subtitle = f"{time_text(span)} shown, {time_text(span / columns)} a cell"
        lines = [self._minimap(label, columns), self._ruler(label, columns)]
        for i, row in enumerate(answer.rows, first):
            style = "pick" if i == self.pick else "here" if i == here else "title"
            name = clip(f"{'>' if i == here else ' '}{self.labels[i]}", label - 1, self.glyphs)
            lines.append([(name, style), (" ", ""), *self._cells(row, answer.cursor)])
        return lines

    def _cells(self, row: TimelineRow, cursor: int | None) -> Line:
        busy = zip(row.busy.tolist(), row.classes, strict=True)
        line = [(x, x.strip()) for x in (x if share >= 0.5 else x.lower() for share, x in busy)]
        if cursor is not None:
            letter, style = row.classes[cursor], line[cursor][1]
            line[cursor] = (style, f"{letter}|") if style else (self.glyphs.bar, "mark")
        return line

    def _minimap(self, label: int, columns: int) -> Line:
        low, high = (int(min(max(t / self.end, 0), 1) * (columns - 1)) for t in (self.t0, self.t1))
        line = [(self.glyphs.rule, "rule")] * columns
        line[low : high + 1] = [(self.glyphs.thick, "flight")] * (high + 1 - low)
        if self.session.cursor >= 0:
            line[int(min(self.session.time / self.end, 1) * (columns - 1))] = ("V", "mark")
        return [(clip(f" all {time_text(self.end)}", label, self.glyphs), "dim"), *line]

    def _ruler(self, label: int, columns: int) -> Line:
        span = self.t1 - self.t0
        least = span / columns * 12  # cells between two ticks
        step = 10.0 ** math.floor(math.log10(least))
        step *= next(m for m in (1, 2, 5, 10) if step * m >= least * (1 - 1e-9))
        largest = max(abs(self.t0), abs(self.t1))
        unit, size = next((u for u in _UNITS if largest >= u[1]), _UNITS[-1])
        digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
        text = [" "] * columns
        for tick in range(math.ceil(self.t0 / step), math.ceil(self.t1 / step)):
            at = int((tick * step - self.t0) / span * columns)
            mark = f"{self.glyphs.bar}{tick * step / size:.{digits}f}{unit}"
            text[at : at + len(mark)] = mark[: columns - at]
        return [(" " * label, ""), ("".join(text), "dim")]

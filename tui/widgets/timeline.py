"""Pane 1: one row a component over a window of time that can be zoomed and panned."""

from __future__ import annotations

import math

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.text import time_text
from kernbench.replay.timeline import TimelineRow
from tui.widgets.draw import Glyphs, Line, cells
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
        self.t0, self.t1 = 0.0, 1.0
        self.fit()

    def _labels(self) -> list[str]:
        trace = self.session.trace
        nodes = trace.nodes
        several = len({(int(nodes.sip[c]), int(nodes.cube[c])) for c in self.components if nodes.pe[c] >= 0}) > 1
        labels = []
        for c in self.components:
            engine = trace.strings[int(nodes.engine[c])]
            sip, cube, pe = int(nodes.sip[c]), int(nodes.cube[c]), int(nodes.pe[c])
            place = f"s{sip}." if sip >= 0 and (several or pe < 0) else ""
            place = f"s{sip}c{cube}." if cube >= 0 and (several or pe < 0) else place
            labels.append(place + (f"pe{pe}." if pe >= 0 else "") + engine)
        return labels

    # -- the window

    def fit(self) -> None:
        """Show the launches, with a little room around."""
        low, high = self.session.launch_window()
        edge = max(high - low, 1.0) / 50
        self.t0, self.t1 = low - edge, high + edge
        self.repaint()

    def zoom(self, factor: float) -> None:
        """Make the window ``factor`` times as long, around the cursor if that is in view."""
        middle = self.session.time
        if not self.t0 <= middle < self.t1:
            middle = (self.t0 + self.t1) / 2
        limit = 2 * max(self.session.trace.end_ns, 1.0)
        if 0.1 <= (self.t1 - self.t0) * factor <= limit:
            self.t0, self.t1 = (middle + (t - middle) * factor for t in (self.t0, self.t1))
        self.repaint()

    def pan(self, by: int) -> bool:
        """Move the window by eighths of its length."""
        shift = (self.t1 - self.t0) / 8 * by
        if -shift < self.t1 and self.t0 + shift < max(self.session.trace.end_ns, 1.0):
            self.t0, self.t1 = self.t0 + shift, self.t1 + shift
        self.repaint()
        return True

    def follow(self) -> None:
        """Keep the cursor's time in view."""
        t, span = self.session.time, self.t1 - self.t0
        if self.session.cursor >= 0 and not self.t0 <= t < self.t1:
            self.t0, self.t1 = t - span / 4, t + 3 * span / 4
        super().follow()

    # -- rows

    def enter(self) -> str | None:
        """The op of the picked component that started last by the cursor, else its first."""
        if self.at is None or self.at >= len(self.components):
            return None
        mine = np.flatnonzero(self.session.components == self.components[self.at])
        before = int(np.searchsorted(mine, self.session.cursor, side="right")) - 1
        return f"goto {int(mine[max(before, 0)])}"

    def draw(self, width: int, height: int) -> list[Line]:
        """Minimap, ruler, rows."""
        session = self.session
        if not self.components:
            return [[("no ops in this trace; ", "dim"), (":info", "bold"), (" says what it holds", "dim")]]
        label = min(max(map(len, self.labels)) + 2, width // 3)
        columns = max(width - label, 1)
        here = None if session.component is None else self.components.index(session.component)
        room = max(height - 2, 1)
        first = self.first_row(len(self.components), room, here)
        shown = self.components[first : first + room]
        answer = session.timeline(shown, self.t0, self.t1, columns)
        self.subtitle = f"{time_text(self.t1 - self.t0)} shown, {time_text((self.t1 - self.t0) / columns)} a cell"
        lines = [self._minimap(label, columns), self._ruler(label, columns)]
        for i, row in enumerate(answer.rows, first):
            mark = ">" if i == here else " "
            style = "pick" if i == self.pick else "here" if i == here else "label"
            name = f"{mark}{self.labels[i]}"[: label - 1].ljust(label - 1)
            lines.append([(name, style), (" ", ""), *self._cells(row, answer.cursor)])
        return lines

    def _cells(self, row: TimelineRow, cursor: int | None) -> Line:
        chars, styles = [], []
        for busy, letter in zip(row.busy.tolist(), row.classes, strict=True):
            full = busy >= 0.5 or letter in "? "
            chars.append(letter if full else letter.lower())
            styles.append("" if letter == " " else chars[-1])
        if cursor is not None:
            if chars[cursor] == " ":
                chars[cursor], styles[cursor] = self.glyphs.bar, "cursor"
            else:
                styles[cursor] = f"{row.classes[cursor]}|"
        return cells("".join(chars), styles)

    def _minimap(self, label: int, columns: int) -> Line:
        """The whole run, what of it the window shows, and the cursor."""
        end = max(self.session.trace.end_ns, 1.0)
        low, high = (min(max(int(t / end * columns), 0), columns - 1) for t in (self.t0, self.t1))
        chars = [self.glyphs.rule] * columns
        styles = ["rule"] * columns
        for i in range(low, high + 1):
            chars[i], styles[i] = self.glyphs.thick, "flight"
        if self.session.cursor >= 0:
            at = min(int(self.session.time / end * columns), columns - 1)
            chars[at], styles[at] = "V", "cursor"
        name = f" all {time_text(end)}"[: label - 1].ljust(label)
        return [(name, "dim"), *cells("".join(chars), styles)]

    def _ruler(self, label: int, columns: int) -> Line:
        span = self.t1 - self.t0
        step = 10.0 ** math.floor(math.log10(span / columns * 12))
        step *= next(m for m in (1, 2, 5, 10, 20) if step * m >= span / columns * 12)
        unit, size = next((u for u in _UNITS if max(abs(self.t0), abs(self.t1)) >= u[1]), _UNITS[-1])
        digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
        text = [" "] * columns
        tick = math.ceil(self.t0 / step) * step
        while tick < self.t1:
            at = int((tick - self.t0) / span * columns)
            for i, char in enumerate(f"{self.glyphs.bar}{tick / size:.{digits}f}{unit}"):
                if at + i < columns:
                    text[at + i] = char
            tick += step
        return [(" " * label, ""), ("".join(text), "dim")]

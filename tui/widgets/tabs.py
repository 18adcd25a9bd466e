"""The strip of tabs below the main pane; the shown one in brackets."""

from __future__ import annotations

from textual import events

from tui.messages import Activate
from tui.widgets.draw import Glyphs, Line, rule
from tui.widgets.status import LineWidget


class Tabs(LineWidget):
    """Names of panes; a click activates one."""

    DEFAULT_CSS = "Tabs { position: absolute; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("tabs")
        self._glyphs = glyphs
        self._ends: list[tuple[int, int]] = []

    def update(self, panes: list[tuple[int, str]], shown: int, active: bool, bar: bool, width: int) -> None:
        """Draw the names of ``panes`` (number, title), ``shown`` in brackets."""
        line: Line = [((self._glyphs.bar if bar else "") + self._glyphs.rule, "rule")]
        self._ends, at = [], 1 + bar
        for number, title in panes:
            text = f"[{number} {title}]" if number == shown else f" {number} {title} "
            line.append((text, ("active" if active else "bold") if number == shown else "title"))
            at += len(text)
            self._ends.append((at, number))
        self.show(rule(line, "", width, self._glyphs))

    def on_click(self, event: events.Click) -> None:
        """Activate the pane whose name was hit."""
        for end, number in self._ends:
            if event.x < end:
                self.post_message(Activate(number))
                return

"""The strip of tabs below the main pane; the shown one in brackets."""

from __future__ import annotations

from textual import events
from textual.geometry import Region

from tui.messages import Activate
from tui.widgets.draw import Glyphs, Line, length, rule
from tui.widgets.status import LineWidget


class Tabs(LineWidget):
    """Names of panes; a click activates one."""

    DEFAULT_CSS = "Tabs { position: absolute; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("tabs")
        self._glyphs = glyphs
        self._ends: list[tuple[int, int]] = []

    def place(self, at: Region, panes: list[tuple[int, str]], shown: int, active: bool) -> None:
        """Stand at ``at`` with the names of ``panes`` (number, title), ``shown`` in brackets."""
        self.styles.offset, self.styles.width = (at.x, at.y), at.width
        line: Line = [((self._glyphs.bar if at.x else "") + self._glyphs.rule, "rule")]
        self._ends = []
        for number, title in panes:
            here = number == shown
            text = f"[{number} {title}]" if here else f" {number} {title} "
            line.append((text, ("active" if active else "bold") if here else "title"))
            self._ends.append((length(line), number))
        self.put(rule(line, "", at.width, self._glyphs))

    def on_click(self, event: events.Click) -> None:
        """Activate the pane whose name was hit."""
        hit = next((number for end, number in self._ends if event.x < end), None)
        if hit is not None:
            self.post_message(Activate(hit))

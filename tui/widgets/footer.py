"""The last line: the keys worth remembering, from the action table."""

from __future__ import annotations

from tui.actions import footer_items
from tui.widgets.draw import Line
from tui.widgets.status import LineWidget


class KeyFooter(LineWidget):
    """Keys and their words, as many as fit; made once."""

    def __init__(self) -> None:
        super().__init__("footer")

    def on_mount(self) -> None:
        """Show the items."""
        line: Line = [(" ", "")]
        for keys, word in footer_items():
            line += [(keys, "bold"), (f" {word}  ", "dim")]
        self.show(line)

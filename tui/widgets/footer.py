"""The last line: the keys worth remembering, from the action table."""

from __future__ import annotations

from tui.actions import footer_items
from tui.widgets.status import LineWidget


class KeyFooter(LineWidget):
    """Keys and their words, as many as fit."""

    def __init__(self) -> None:
        super().__init__("footer")
        pairs = [((f" {keys}", "bold"), (f" {word} ", "dim")) for keys, word in footer_items()]
        self.line = [run for pair in pairs for run in pair]

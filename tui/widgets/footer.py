"""The last line: the keys worth remembering, from the action table and for the active pane."""

from __future__ import annotations

from tui.keymap import Keymap
from tui.widgets.draw import Line, length
from tui.widgets.pane import Pane
from tui.widgets.status import LineWidget


class KeyFooter(LineWidget):
    """Keys and their words, as many as fit."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__("footer")
        self._keymap = keymap

    def tell(self, width: int, pane: Pane) -> None:
        """Say what the keys do in ``pane``: Enter, and v the name of the next view."""
        later = pane.views[(pane.view + 1) % len(pane.views)] if len(pane.views) > 1 else ""
        line: Line = []
        for keys, word in self._keymap.footer({"enter": pane.enter_word, "next_view": later}):
            more: Line = [(f" {keys}", "bold"), (f" {word} ", "dim")]
            if length(line) + length(more) <= width:
                line += more
        self.put(line)

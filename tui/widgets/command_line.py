"""The ``:`` line: completion of command names and their words, a history, Enter and Esc."""

from __future__ import annotations

import os.path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from kernbench.replay.commands import COMMANDS
from tui.messages import Hint, RunCommand


class CommandLine(Input):
    """Hidden until asked for; ``words`` has what may follow a command name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False, priority=True),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
    ]

    def __init__(self, words: dict[str, list[str]]) -> None:
        example = "goto 40 | t 3.2us | memory c | help   (Tab completes, Esc leaves)"
        super().__init__(id="command", placeholder=example, compact=True)
        self._words = words
        self._past: list[str] = []
        self._at = 0

    def open(self) -> None:
        """Show it, empty and focused."""
        self.value, self._at, self.display = "", len(self._past), True
        self.focus()

    def action_leave(self) -> None:
        """Esc: nothing is run."""
        self.display = False
        self.post_message(Hint(""))

    def action_recall(self, by: int) -> None:
        """An older or newer line."""
        self._at = min(max(self._at + by, 0), len(self._past))
        self.value = self._past[self._at] if self._at < len(self._past) else ""
        self.cursor_position = len(self.value)

    def action_complete(self) -> None:
        """Complete the last word as far as it is certain; hint at what is open."""
        head, space, word = self.value.rpartition(" ")
        known = self._words.get(head.strip(), []) if space else [c.name for c in COMMANDS]
        found = sorted(name for name in known if name.startswith(word))
        if found:
            common = os.path.commonprefix(found)  # noqa: RUF071  of words, not of paths
            self.value = f"{head}{space}{common}" + (" " if len(found) == 1 else "")
            self.cursor_position = len(self.value)
        if len(found) != 1:
            self.post_message(Hint("  ".join(found) or f"nothing known begins with {word!r}"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: run it, remember it."""
        event.stop()
        line = event.value.strip().removeprefix(":").strip()
        self.display = False
        self._past += [line] if line else []
        self.post_message(RunCommand(line) if line else Hint(""))

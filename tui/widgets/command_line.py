"""The ``:`` line: completion of command names and their words, a history, Enter and Esc."""

from __future__ import annotations

from collections.abc import Callable
from os.path import commonprefix
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from kernbench.replay.commands import COMMANDS
from tui.messages import Dismissed, Hint, RunCommand


class CommandLine(Input):
    """Hidden until asked for; ``words`` gives what may follow a command name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False, priority=True),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
    ]

    def __init__(self, words: Callable[[str], list[str]]) -> None:
        super().__init__(id="command", placeholder="command: goto 40, t 3.2us, memory c, help …", compact=True)
        self._words = words
        self._past: list[str] = []
        self._at = 0

    def open(self) -> None:
        """Show it, empty and focused."""
        self.value, self._at = "", len(self._past)
        self.display = True
        self.focus()

    def action_leave(self) -> None:
        """Esc: nothing is run."""
        self.display = False
        self.post_message(Dismissed())

    def action_recall(self, by: int) -> None:
        """An older or newer line."""
        self._at = min(max(self._at + by, 0), len(self._past))
        self.value = self._past[self._at] if self._at < len(self._past) else ""
        self.cursor_position = len(self.value)

    def action_complete(self) -> None:
        """Complete the word at the end as far as it is certain; hint at what is open."""
        head, space, word = self.value.rpartition(" ")
        known = self._words(head.split()[0]) if space and head.split() else [c.name for c in COMMANDS]
        found = sorted(name for name in known if name.startswith(word))
        if found:
            common = commonprefix(found)
            self.value = f"{head}{space}{common}" + (" " if len(found) == 1 else "")
            self.cursor_position = len(self.value)
        if len(found) != 1:
            self.post_message(Hint("  ".join(found) or f"nothing begins with {word!r}"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: run it, remember it."""
        event.stop()
        self.display = False
        line = event.value.strip().removeprefix(":").strip()
        if not line:
            self.post_message(Dismissed())
            return
        self._past.append(line)
        self.post_message(RunCommand(line))

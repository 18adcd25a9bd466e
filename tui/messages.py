"""Events that widgets send up to the screen; nothing comes down this way."""

from __future__ import annotations

from textual.message import Message


class RunCommand(Message):
    """The user asked for a command line: typed, clicked or entered on a row."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line


class Dismissed(Message):
    """The command line was left without running anything."""


class Hint(Message):
    """A line for the user: candidates of a completion."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Activate(Message):
    """A pane was clicked, or its tab: make it the active one."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

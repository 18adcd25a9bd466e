"""Events that widgets send up to the screen; nothing comes down this way."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class RunCommand(Message):
    """The user asked for a command line: typed, clicked or entered on a row."""

    line: str


@dataclass
class Hint(Message):
    """A line for the user, as candidates of a completion; empty: nothing is to be said."""

    text: str


@dataclass
class Activate(Message):
    """A pane was clicked, or its tab: make it the active one."""

    number: int

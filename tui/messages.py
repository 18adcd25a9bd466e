"""Events that widgets send up to the screen; nothing comes down this way."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class RunCommand(Message):
    """The user asked for a command line: typed, or chosen from a list."""

    line: str


@dataclass
class Hint(Message):
    """A line for the user, as candidates of a completion; empty: nothing is to
    be said.
    """

    text: str


@dataclass
class Activate(Message):
    """The name of a pane was clicked: make it the active one."""

    key: str


@dataclass
class PaneClicked(Message):
    """A pane was clicked: the cell from its left edge and the first line below its
    title.
    """

    key: str
    x: int
    y: int


@dataclass
class PaneScrolled(Message):
    """The wheel was turned over a pane, by so many rows."""

    key: str
    rows: int

"""The tables of panes and keys as the documents show them, keys without a preset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, zip_longest
from operator import attrgetter
from textwrap import wrap

from tui.actions import ACTIONS
from tui.keymap import Keymap
from tui.panes import PANES

_INDENT = "    "
_NAME_COLUMNS = 10
_SHOWS_COLUMNS = 43
_BEFORE_VIEWS = 47
_VIEWS_COLUMNS = 25
_KEYS_COLUMNS = 16


def panes_as_markdown() -> Iterator[str]:
    """Each pane with its number, what it shows, and its views, as a block of text."""
    yield _pane_line("pane", "shows", "views")
    for row in PANES:
        views: tuple[str, ...] = getattr(row.make, "views", ())
        shows_lines = wrap(row.shows, _SHOWS_COLUMNS)
        views_lines = wrap(", ".join(views), _VIEWS_COLUMNS)
        name = f"{row.number} {row.title}"
        for shows, viewed in zip_longest(shows_lines, views_lines, fillvalue=""):
            yield _pane_line(name, shows, viewed)
            name = ""


def _pane_line(name: str, shows: str, views: str) -> str:
    """A line of the table of panes."""
    line = f"{_INDENT}{name:<{_NAME_COLUMNS}}  {shows:<{_BEFORE_VIEWS}}{views}"
    return line.rstrip()


def keys_as_markdown() -> Iterator[str]:
    """The groups of actions; of each the keys, the name of the action, what it does."""
    keymap = Keymap()
    name_columns = max(len(action.id) for action in ACTIONS)
    by_group = sorted(ACTIONS, key=attrgetter("group"))
    for group, actions in groupby(by_group, attrgetter("group")):
        yield f"**{group}**\n"
        for action in actions:
            keys = keymap.shown(action.id)
            row = f"{keys:<{_KEYS_COLUMNS}} {action.id:<{name_columns}}  {action.title}"
            yield f"{_INDENT}{row}"
        yield ""

"""The table of keys as the documents show it: those of the actions, without a preset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from tui.actions import ACTIONS
from tui.keymap import Keymap

_KEYS_COLUMNS = 16


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
            yield f"    {row}"
        yield ""

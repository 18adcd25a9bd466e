"""Which keys run which actions: the table's, those of a preset, and the user's own.

The user's are in ``config.toml``. It may have ``preset = "perfetto"`` (or "gdb", which
is the table as it is), and below ``[keys]`` an action's id with all of its keys, as
``step = ["s", "right"]``. What is wrong in it, with its ``theme`` too (``config.py``),
is noted, and never raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

from textual import events
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from tui.actions import ACTIONS, BY_ID, DEFAULT, Own
from tui.config import THEME, read_config, wrong_theme

KeyNames: TypeAlias = tuple[str, ...]

PRESETS: dict[str, dict[str, KeyNames]] = {
    "gdb": {},
    # w a s d pan and zoom. What was on them moves to their capitals, step to e and E.
    "perfetto": {
        "zoom_in": ("w", "+"),
        "zoom_out": ("s", "-"),
        "left": ("a", "h", "left"),
        "right": ("d", "l", "right"),
        "step": ("e",),
        "step_back": ("E",),
        "narrow": ("D",),
        "watch": ("W",),
    },
}

# Keys that never come, or mean something else, in tmux, screen and plain terminals.
LOST = {
    "ctrl+h",
    "ctrl+i",
    "ctrl+m",
    "ctrl+[",
    "ctrl+left_square_bracket",
    "ctrl+enter",
    "shift+enter",
    "ctrl+a",
    "ctrl+b",
    *(f"alt+{digit}" for digit in range(10)),
}
_OPEN_A_LINE = {
    action.id
    for action in ACTIONS
    if isinstance(action.does, Own) and action.does.name == "prompt"
}
_LOST_NOTE = "is lost in tmux or terminals; choose another"
_UNKNOWN_NOTE = "is no key; they are as e, E, f5, ctrl+e, pagedown"

# The names that Textual has for keys, without what is held with them.
_KEY_NAMES = {
    *(key.value.rpartition("+")[2] for key in Keys),
    *KEY_NAME_REPLACEMENTS.values(),
}
_HELD = {"ctrl", "shift", "alt"}
_SHOWN = {"pagedown": "PgDn", "pageup": "PgUp", "escape": "Esc"}


def shown(key: str) -> str:
    """Return a key as people write it: "ctrl+pagedown" as "ctrl+PgDn"."""
    if len(key) == 1:
        return key
    held, plus, last = key.rpartition("+")
    if last in _SHOWN:
        last = _SHOWN[last]
    elif len(last) > 1:
        last = last.capitalize()
    return f"{held}{plus}{last}"


@dataclass(frozen=True)
class Keymap:
    """The keys of every action by its id, in Textual's names: ("s", "right").

    No key has two actions. ``notes`` say which wishes of the user are not met, and why,
    a line each; they are shown at the start, and in the help.
    """

    keys: dict[str, KeyNames] = field(default_factory=lambda: DEFAULT)
    notes: tuple[str, ...] = ()

    def action(self, key: str, character: str | None) -> str:
        """Return the id of the action of a key, which types ``character``, or "".

        Esc is "back" unless the user has given it to another action.
        """
        actions = self._with_escape
        return actions.get(character or "") or actions.get(key, "")

    @cached_property
    def _with_escape(self) -> dict[str, str]:
        return {"escape": "back"} | self.actions()

    def types_line(self, keys: Iterable[events.Key]) -> bool:
        """Whether the last of some keys that wait to be acted on are a line that is
        being typed, so that a further one belongs to it.
        """
        is_typed = False
        for key in keys:
            if is_typed:
                is_typed = key.key not in ("enter", "escape")
            else:
                is_typed = self.action(key.key, key.character) in _OPEN_A_LINE
        return is_typed

    def actions(self) -> dict[str, str]:
        """Return the id of the action of every key that has one."""
        return {key: id for id, keys in self.keys.items() for key in keys}

    def shown(self, id: str) -> str:
        """Return the keys of an action as people write them."""
        return " ".join(map(shown, self.keys[id]))

    def footer(self, words: dict[str, str]) -> list[tuple[str, str]]:
        """Return what the footer shows, as (keys, word) in the order of the table.

        Help and quit come last. ``words`` are those of the active pane by the action's
        id; they go before the table's. Neighbours with one word share it: "s/S step".
        """
        in_order = sorted(ACTIONS, key=lambda action: action.id in ("help", "quit"))
        named: list[tuple[str, str]] = []
        for action in in_order:
            word = words.get(action.id, action.footer)
            keys = self.keys[action.id]
            if word and keys:
                named.append((shown(keys[0]), word))
        groups = groupby(named, key=itemgetter(1))
        return [("/".join(key for key, _ in group), word) for word, group in groups]


def load(path: Path | None = None) -> Keymap:
    """Return the keymap of the user's ``config.toml``, or of the file at ``path``.

    Without such a file it is the table's. A file that cannot be read leaves a note.
    """
    try:
        return merged(read_config(path))
    except FileNotFoundError:
        return Keymap()
    except RecursionError:
        return Keymap(notes=("config.toml: not read: nested too deeply",))
    except OSError as why:
        return Keymap(notes=(f"config.toml: not read: {why.strerror}",))
    except ValueError as why:
        return Keymap(notes=(f"config.toml: not read: {why}".splitlines()[0],))


def merged(config: dict[str, Any]) -> Keymap:
    """Return the table, changed by a preset, changed by the user's ``keys``.

    ``config`` is what the TOML file holds; none of it is believed. A key that two
    actions want goes to the one that the user gave it to, of two of these to the first.
    """
    notes = [
        f"{name}: only theme, preset and keys are known"
        for name in config
        if name not in (THEME, "preset", "keys")
    ]
    if theme := wrong_theme(config):
        notes.append(theme)
    preset = config.get("preset", "gdb")
    if not isinstance(preset, str) or preset not in PRESETS:
        notes.append(f"preset {preset!r}: must be {' or '.join(PRESETS)}")
        preset = "gdb"
    asked = config.get("keys", {})
    if not isinstance(asked, dict):
        notes.append(f"keys = {asked!r:.40}: must be a table, [keys]")
        asked = {}
    users: dict[str, KeyNames] = {}
    for id, keys in asked.items():
        sound = _sound_keys(id, keys, notes)
        if sound is not None:
            users[id] = sound
    wanted = {**DEFAULT, **PRESETS[preset], **users}
    keys = _without_clashes(wanted, users, notes)
    return Keymap(keys, tuple(f"config.toml: {note}" for note in notes))


def _without_clashes(
    wanted: dict[str, KeyNames], users: Iterable[str], notes: list[str]
) -> dict[str, KeyNames]:
    """Give each key to one action, to those in ``users`` first; note who loses one."""
    others = [id for id in DEFAULT if id not in users]
    holders: dict[str, str] = {}
    for id in [*users, *others]:
        for key in wanted[id]:
            holder = holders.setdefault(key, id)
            if holder != id:
                rest = [own for own in wanted[id] if holders.get(own, id) == id]
                left = f"it keeps {' '.join(rest)}" if rest else "it has no key left"
                notes.append(f"keys.{id}: {key!r} is {holder}'s; {left}")
    return {
        id: tuple(key for key in wanted[id] if holders[key] == id) for id in DEFAULT
    }


def _sound_keys(id: str, keys: Any, notes: list[str]) -> KeyNames | None:
    """Return those of a user's keys that can be bound; note why others cannot.

    None: those of the table hold, since there is no such action, or no sound key.
    """
    if id not in BY_ID:
        near = get_close_matches(id, BY_ID, 1)
        hint = f"the nearest is {near[0]}, " if near else ""
        notes.append(
            f"keys.{id}: no such action; {hint}`kernbench doc debugger` has all"
        )
        return None
    if isinstance(keys, str):
        keys = [keys]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        notes.append(f'keys.{id}: must be a list of keys, as ["s", "right"]')
        return None
    sound: list[str] = []
    for key in dict.fromkeys(keys):
        if key in LOST:
            notes.append(f"keys.{id}: {key!r} {_LOST_NOTE}")
        elif not _is_key(key):
            notes.append(f"keys.{id}: {key!r} {_UNKNOWN_NOTE}")
        else:
            sound.append(key)
    return tuple(sound) if sound or not keys else None


def _is_key(key: str) -> bool:
    """Whether Textual may send a key of that name, as "e", "f5" or "ctrl+pagedown"."""
    if len(key) == 1:
        return True
    *held, last = key.split("+")
    named = len(last) == 1 or last in _KEY_NAMES or key_to_character(last) is not None
    return named and _HELD.issuperset(held)

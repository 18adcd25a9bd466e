"""Which keys run which actions: the table's, those of a preset, and the user's ``config.toml``.

There ``preset = "perfetto"`` (or "gdb", which is the table) may stand, and below ``[keys]`` an
action's id and all of its keys, as ``step = ["s", "right"]``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from platformdirs import user_config_path
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from tui.actions import ACTIONS, BY_ID, DEFAULT

PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "gdb": {},
    "perfetto": {  # w a s d pan and zoom; what was on them moves to capitals, step to e and E
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
# never arrive, or mean something else, in tmux, screen and plain terminals
LOST = {
    "ctrl+h",
    "ctrl+i",
    "ctrl+m",
    "ctrl+[",
    "ctrl+enter",
    "shift+enter",
    "ctrl+a",
    "ctrl+b",
}
LOST |= {f"alt+{digit}" for digit in range(10)} | {"ctrl+left_square_bracket"}
_NAMES = {key.value.rpartition("+")[2] for key in Keys} | {
    *KEY_NAME_REPLACEMENTS.values()
}
_SHOWN = {"pagedown": "PgDn", "pageup": "PgUp", "escape": "Esc"}


def shown(key: str) -> str:
    """A key as people write it."""
    parts = key.rpartition("+") if len(key) > 1 else ("", "", key)
    last = _SHOWN.get(parts[2]) or (
        parts[2].capitalize() if len(parts[2]) > 1 else parts[2]
    )
    return "".join(parts[:2]) + last


@dataclass(frozen=True)
class Keymap:
    """The keys of every action; ``notes`` say which wishes of the user are not met."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT)
    notes: tuple[str, ...] = ()

    def action(self, key: str, character: str | None) -> str:
        """The id of the action of a key, which types ``character``; "" for none. Esc is back."""
        return self._known.get(character or "") or self._known.get(key, "")

    @cached_property
    def _known(self) -> dict[str, str]:
        return {"escape": "back"} | self.actions()

    def actions(self) -> dict[str, str]:
        """The action's id of every key."""
        return {key: id for id, keys in self.keys.items() for key in keys}

    def shown(self, id: str) -> str:
        """The keys of an action as people write them."""
        return " ".join(map(shown, self.keys[id]))

    def footer(self, words: dict[str, str]) -> list[tuple[str, str]]:
        """(keys, word) as in the table, help and quit last; ``words`` are the pane's, by id."""
        order = sorted(ACTIONS, key=lambda action: action.id in ("help", "quit"))
        named = [(a.id, words.get(a.id, a.footer)) for a in order if self.keys[a.id]]
        pairs = groupby((pair for pair in named if pair[1]), key=lambda pair: pair[1])
        return [
            ("/".join(shown(self.keys[id][0]) for id, _ in same), w)
            for w, same in pairs
        ]


def _is_key(key: str) -> bool:
    *held, last = key.split("+") if len(key) > 1 else [key]
    named = len(last) == 1 or last in _NAMES or key_to_character(last) is not None
    return named and {*held} <= {"ctrl", "shift", "alt"}


def load(path: Path | None = None) -> Keymap:
    """The keymap of the user's ``config.toml``; never raises for what is in it."""
    path = path or user_config_path("kernbench") / "config.toml"
    try:
        return merged(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Keymap()
    except (OSError, ValueError) as why:
        return Keymap(notes=(f"config.toml: not read: {why}".splitlines()[0],))


def merged(config: dict[str, Any]) -> Keymap:
    """The table under a preset under the user's ``keys``; a key goes to the last that asks."""
    notes = [
        f"{name}: only preset and keys are known"
        for name in {*config} - {"preset", "keys"}
    ]
    preset, asked = config.get("preset", "gdb"), config.get("keys", {})
    if not isinstance(preset, str) or preset not in PRESETS:
        notes.append(f"preset {preset!r}: must be {' or '.join(PRESETS)}")
        preset = "gdb"
    if not isinstance(asked, dict):
        notes.append(f"keys = {asked!r:.40}: must be a table, [keys]")
        asked = {}
    sound = {id: _sound(id, keys, notes) for id, keys in asked.items()}
    users = {id: keys for id, keys in sound.items() if keys is not None}
    wanted = {**DEFAULT, **PRESETS[preset], **users}
    taken: dict[str, str] = {}
    for id in [*users, *(id for id in DEFAULT if id not in users)]:
        for key in wanted[id]:
            holder = taken.setdefault(key, id)
            if holder != id:
                rest = " ".join(k for k in wanted[id] if taken.get(k, id) == id)
                left = f"it keeps {rest}" if rest else "it has no key left"
                notes.append(f"keys.{id}: {key!r} is {holder}'s; {left}")
    keys = {id: tuple(k for k in wanted[id] if taken[k] == id) for id in DEFAULT}
    return Keymap(keys, tuple(f"config.toml: {note}" for note in notes))


def _sound(id: str, keys: Any, notes: list[str]) -> tuple[str, ...] | None:
    """The keys that can be bound; None, so those of the table, where there are none."""
    keys = [keys] if isinstance(keys, str) else keys
    if id not in BY_ID:
        near = get_close_matches(id, BY_ID, 1, 0.0)[0]
        notes.append(f"keys.{id}: no such action; the nearest is {near}, ? lists all")
    elif not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        notes.append(f'keys.{id}: must be a list of keys, as ["s", "right"]')
    else:
        why = dict.fromkeys(LOST, "is lost in tmux or terminals; choose another")
        unknown = (key for key in keys if not _is_key(key))
        why = (
            dict.fromkeys(unknown, "is no key; they are as e, E, f5, ctrl+e, pagedown")
            | why
        )
        notes += [
            f"keys.{id}: {key!r} {why[key]}"
            for key in dict.fromkeys(keys)
            if key in why
        ]
        good = tuple(key for key in dict.fromkeys(keys) if key not in why)
        return good if good or not keys else None
    return None

"""The help: keys by group, commands, how keys are set, what the letters mean."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from textwrap import wrap

from kernbench.replay.commands import listed
from kernbench.replay.time.op_classes import CLASSES
from tui.actions import ACTIONS, BY_ID, SCREEN_COMMANDS
from tui.draw import Line
from tui.keymap import PRESETS, Keymap
from tui.themes import THEMES

_KEYS = 16
_COMMANDS = 26
_SETTINGS = 21
"""Columns of what is explained."""


def help_lines(keymap: Keymap, width: int = 80) -> list[Line]:
    """All of it; what is wrong with the keymap first."""
    lines: list[Line] = []
    for note in keymap.notes:
        lines += [[(part, "mark")] for part in wrap(note, width)]
    grouped = sorted(ACTIONS, key=attrgetter("group"))
    for group, actions in groupby(grouped, attrgetter("group")):
        lines.append([(group, "title")])
        for action in actions:
            lines += _entry(keymap.shown(action.id), action.title, _KEYS, width)
    lines += _headed("Commands of the : line")
    for command in (*SCREEN_COMMANDS, *listed()):
        head = f"{command.name} {command.usage}"
        lines += _entry(head, command.help, _COMMANDS, width)
    lines += _headed("Set in config.toml of the user's config directory")
    presets = f"or another of {', '.join(PRESETS)}"
    lines += _entry('preset = "perfetto"', presets, _SETTINGS, width)
    themes = f"one of {', '.join(THEMES)}; --theme goes before it"
    lines += _entry('theme = "light"', themes, _SETTINGS, width)
    names = f"below [keys]: an action, all its keys: {', '.join(BY_ID)}"
    lines += _entry('step = ["s", "right"]', names, _SETTINGS, width)
    lines += _headed("On the line on top")
    wrong = "two outputs that were found wrong when it ran: 6 Diff"
    lines += _entry("!2 DIFF", wrong, _KEYS, width)
    races = "a hazard, where order is left to chance: 6 Diff, its last view"
    lines += _entry("!1 HAZARD", races, _KEYS, width)
    lines += _headed("Classes of ops: the letter in Ops, the ground in Timeline")
    for letter, name in CLASSES.items():
        lines.append([("  ", ""), (letter, letter), (f"  {name}", "")])
    return lines


def _headed(title: str) -> list[Line]:
    return [[], [(title, "title")]]


def _entry(head: str, text: str, wide: int, width: int) -> list[Line]:
    """``head`` in ``wide`` cells, ``text`` wrapped beside it, or below a longer
    head.
    """
    parts = wrap(text, max(width - wide - 3, 20)) or [""]
    if len(head) > wide:
        parts.insert(0, "")
    heads = [f"  {head:<{wide}} "] + [" " * (wide + 3)] * len(parts)
    return [
        [(head, "bold"), (part, "")] for head, part in zip(heads, parts, strict=False)
    ]

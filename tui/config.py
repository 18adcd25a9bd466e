"""The user's settings, ``config.toml``: where they are, and what is read of them before
the first frame.

Here is only what is cheap to import: what the keys do is ``keymap.py``'s.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from kernbench.visible import visible_text
from tui.themes import THEMES

THEME = "theme"
"""The setting that names the theme."""
_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")
"""What ``tomllib`` ends its messages with."""
_UNQUOTED = re.compile(r"""([\w.-]+)\s*=\s*([^\W\d][^\s"'#]*)\s*(?:#.*)?""")
"""A setting whose value is a word that nobody has put into quotes."""


def read_config(path: Path | None = None) -> dict[str, Any]:
    """What ``config.toml`` holds, or the file at ``path``; none of it is checked.

    Raises FileNotFoundError or another OSError, ValueError where it is no TOML, which
    says what to write, and RecursionError where it is nested too deeply.
    """
    path = path or user_config_path("kernbench") / "config.toml"
    text = path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_explained(str(error), text)) from None


def _explained(error: str, text: str) -> str:
    """What ``tomllib`` says of a text, with the line that it is about; of a word
    without quotes what it is with them.
    """
    place = _PLACE.search(error)
    if place is None:
        return error
    number = int(place[1])
    line = visible_text(text.split("\n")[number - 1].strip())
    unquoted = _UNQUOTED.fullmatch(line)
    if unquoted is not None:
        name, value = unquoted.groups()
        return f'line {number}: text takes quotes: {name} = "{value:.40}"'
    return f"line {number}, {line:.40}: {error[: place.start()]}"


def theme_of(config: dict[str, Any]) -> str | None:
    """The theme that some settings name; None where they name none that there is."""
    name = config.get(THEME)
    return name if isinstance(name, str) and name in THEMES else None


def wrong_theme(config: dict[str, Any]) -> str:
    """What is wrong with the theme that some settings name; empty if nothing is."""
    if THEME not in config or theme_of(config) is not None:
        return ""
    *names, last = THEMES
    known = f"{', '.join(names)} or {last}"
    return f"{THEME} {config[THEME]!r:.40}: must be {known}"


def configured_theme(path: Path | None = None) -> str | None:
    """The theme of the user's ``config.toml``. None if it names none; what is wrong
    with the file is said where the keys are read.
    """
    try:
        return theme_of(read_config(path))
    except (OSError, ValueError, RecursionError):
        return None

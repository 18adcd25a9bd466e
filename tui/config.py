"""The user's settings, ``config.toml``: where they are, and what is read of them before
the first frame.

Here is only what is cheap to import: what the keys do is ``keymap.py``'s.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from tui.themes import THEMES

THEME = "theme"
"""The setting that names the theme."""


def read_config(path: Path | None = None) -> dict[str, Any]:
    """What ``config.toml`` holds, or the file at ``path``; none of it is checked.

    Raises FileNotFoundError or another OSError, ValueError where it is no TOML, and
    RecursionError where it is nested too deeply.
    """
    path = path or user_config_path("kernbench") / "config.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


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

"""What the terminal is and can do, as far as it can be told without asking it. Knows no Textual."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_config_path, user_state_path

import kernbench

# kitty's keys, mouse, focus, paste and resize reports off; wrap on; main screen; cursor; plain text
RESET = (
    "\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l\x1b[?2004l"
    "\x1b[?2048l\x1b[?2026l\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"
)
_LIBRARIES = ("textual", "rich", "numpy", "msgpack")
_VARIABLES = (
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "LC_ALL",
    "LC_CTYPE",
    "LANG",
    "TMUX",
    "SSH_TTY",
)
_STREAMS = ("stdin", "stdout", "stderr")


def is_terminal(environ: Mapping[str, str]) -> bool:
    """Whether a screen can be drawn and keys can be read."""
    return environ.get("TERM", "dumb") != "dumb" and all(map(os.isatty, range(3)))


def utf8_locale(environ: Mapping[str, str]) -> bool:
    """Whether the locale writes UTF-8; Python itself sets LC_CTYPE=C.UTF-8 in the C locale."""
    ctype = environ.get("LC_CTYPE", "").replace("C.UTF-8", "")
    return "utf" in (environ.get("LC_ALL") or ctype or environ.get("LANG", "")).lower()


def info_lines(environ: Mapping[str, str]) -> list[str]:
    """Versions, paths and what the terminal can do, a line each."""
    from rich.console import Console  # 50 ms

    size = shutil.get_terminal_size()
    colours = Console(force_terminal=True).color_system or "none"
    rows = {
        "kernbench": kernbench.__version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: version(name) for name in _LIBRARIES},
        "program": Path(__file__).parent,
        "settings": user_config_path("kernbench") / "config.toml",
        "state": user_state_path("kernbench"),
        **{name: environ.get(name, "-") for name in _VARIABLES},
        "size": f"{size.columns}x{size.lines}",
        **{
            name: "terminal" if os.isatty(fd) else "none"
            for fd, name in enumerate(_STREAMS)
        },
        "colours": "none, by NO_COLOR" if "NO_COLOR" in environ else colours,
        "glyphs": "UTF-8" if utf8_locale(environ) else "ASCII",
    }
    return [f"{name:<10} {text}" for name, text in rows.items()]

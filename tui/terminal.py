"""What the terminal is and can do, as far as that is known without asking it.

Knows no Textual.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import kernbench

# Undoes all that Textual may have set: kitty's keys; reports of the mouse, of focus, of
# pastes and of sizes; synchronised output. Then wrap on, main screen, cursor on, plain
# text.
RESET = (
    "\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l"
    "\x1b[?2004l\x1b[?2048l\x1b[?2026l\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"
)
DRIVER_VARIABLE = "TEXTUAL_DRIVER"
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
    DRIVER_VARIABLE,
)
_STREAMS = ("stdin", "stdout", "stderr")  # of file descriptors 0, 1 and 2


def is_terminal(environ: Mapping[str, str]) -> bool:
    """Whether a screen can be drawn and keys can be read.

    That takes a terminal on each of stdin, stdout and stderr, and not a dumb one.
    """
    if environ.get("TERM", "dumb") == "dumb":
        return False
    return all(os.isatty(fd) for fd in range(len(_STREAMS)))


def forbids_colours(environ: Mapping[str, str]) -> bool:
    """Whether NO_COLOR is set; empty it counts as unset (https://no-color.org)."""
    return environ.get("NO_COLOR", "") != ""


def named_driver(environ: Mapping[str, str]) -> str:
    """Return the driver of Textual that draws in place of a terminal; "" is none.

    Whoever shows a Textual program elsewhere, as in a browser, names one.
    """
    return environ.get(DRIVER_VARIABLE, "")


def utf8_locale(environ: Mapping[str, str]) -> bool:
    """Whether the locale writes UTF-8.

    Python itself sets LC_CTYPE=C.UTF-8 in the C locale (PEP 538): that says nothing of
    the terminal.
    """
    ctype = environ.get("LC_CTYPE", "").replace("C.UTF-8", "")
    locale = environ.get("LC_ALL") or ctype or environ.get("LANG", "")
    return "utf" in locale.lower()


def info_lines(environ: Mapping[str, str]) -> list[str]:
    """Return versions, paths and what the terminal can do, a fact a line.

    ``kernbench-tui --info`` prints these, and a crash report ends with them.
    """
    from importlib.metadata import version  # 20 ms, of which most starts need nothing

    from platformdirs import user_config_path, user_state_path

    facts: dict[str, object] = {
        "kernbench": kernbench.__version__,
        "python": _python(),
    }
    for name in _LIBRARIES:
        facts[name] = version(name)
    facts["program"] = Path(__file__).parent
    facts["settings"] = user_config_path("kernbench") / "config.toml"
    facts["state"] = user_state_path("kernbench")
    for name in _VARIABLES:
        facts[name] = environ.get(name, "-")
    size = shutil.get_terminal_size()
    facts["size"] = f"{size.columns}x{size.lines}"
    for fd, name in enumerate(_STREAMS):
        facts[name] = "terminal" if os.isatty(fd) else "none"
    facts["colours"] = _colours(environ)
    facts["glyphs"] = "UTF-8" if utf8_locale(environ) else "ASCII"
    return [f"{name:<10} {fact}" for name, fact in facts.items()]


def _python() -> str:
    """Return the version of Python and where it runs."""
    place = f"{platform.system()} {platform.machine()}"
    return f"{platform.python_version()} on {place}"


def _colours(environ: Mapping[str, str]) -> str:
    """Return Rich's name for the colours of the terminal."""
    if forbids_colours(environ):
        return "none, by NO_COLOR"
    from rich.console import Console  # takes 50 ms

    return Console(force_terminal=True).color_system or "none"

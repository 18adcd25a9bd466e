"""Copies text to wherever the user can paste it from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from tui.private_file import write_private

_OSC52_BYTES = 74_000  # terminals drop longer sequences
_TMUX_SECONDS = 2.0
_TMUX = ("tmux", "load-buffer", "-w", "-")  # -w: on to the terminal's clipboard
_WITHOUT_OSC52 = ("dumb", "linux")  # values of TERM


def copy(text: str, osc52: Callable[[str], None]) -> str:
    """Copy ``text`` by the first way that is open here; return in words which it was.

    Within tmux that is its buffer, elsewhere the escape sequence OSC 52, which
    ``osc52`` has to send. Where neither will do, it is a file in the state directory.
    """
    data = text.encode()
    if os.environ.get("TMUX"):
        if _copied_by_tmux(data):
            return "by tmux load-buffer -w"
    elif len(data) <= _OSC52_BYTES and _knows_osc52():
        osc52(text)
        return "by OSC 52, if the terminal allows it"
    try:
        path = write_private("copied.txt", data)
    except OSError as why:
        return f"nowhere: {why.filename}: {why.strerror}"
    return f"to {path}"


def _copied_by_tmux(data: bytes) -> bool:
    """Load the buffer of tmux; return whether that could be done."""
    try:
        subprocess.run(
            _TMUX, input=data, check=True, capture_output=True, timeout=_TMUX_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _knows_osc52() -> bool:
    """Whether the terminal may know the sequence.

    No terminal says so itself; of two values of TERM it is known that they do not.
    """
    return os.environ.get("TERM", "dumb") not in _WITHOUT_OSC52

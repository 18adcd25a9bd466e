"""What runs in place of ``kernbench rerun TRACE -o NEW``: some lines of Python."""

from __future__ import annotations

import sys

import pytest

COPIES = (
    "import json, shutil, sys; shutil.copyfile(sys.argv[2], sys.argv[4]);"
    "print('of the bench'); print(json.dumps({'same': True}))"
)
"""Does what was recorded."""
WAITS = "import sys; sys.stdin.read()"
"""Until whoever began it is no more."""


def failing(why: str) -> str:
    """Ends with an error and no trace."""
    return f"import sys; print('error: ' + {why!r}, file=sys.stderr); sys.exit(2)"


def noting(path: object) -> str:
    """Writes the number of its process into a file, then waits."""
    return f"import os; open({str(path)!r}, 'w').write(str(os.getpid())); {WAITS}"


def program(code: str) -> tuple[str, ...]:
    """The command that runs ``code`` with the same arguments."""
    return (sys.executable, "-S", "-c", code)


def play(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let ``code`` run in place of kernbench."""
    monkeypatch.setattr("tui.rerun.PROGRAM", program(code))

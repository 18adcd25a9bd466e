"""Signals of a child process that a test starts."""

from __future__ import annotations

import signal

_RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def reset_signals() -> None:
    """Handle the signals that end a program as by default; call it in the child.

    What is ignored stays ignored in a child, and the tests themselves may run where the
    shell ignores some: under nohup, or as a job in the background of a script.
    """
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)

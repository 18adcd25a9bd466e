"""kernbench: simulate kernels on a multi-chiplet AI accelerator, record, replay.

``kernbench.open`` opens a recorded trace. Imports nothing heavy; the rooms are
``kernbench.runtime_api``, ``kernbench.trace`` and ``kernbench.replay``.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kernbench.version import __version__

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession


__all__ = ["__version__", "open"]

_INTERRUPTED = 130


def open(path: str | os.PathLike[str]) -> ReplaySession:
    """Open a recorded trace, to ask it as the debugger does.

        with kernbench.open("out.msgpack") as trace:
            print(len(trace), "ops")
            frame = pandas.DataFrame(trace.table("ops"))

    Nothing is read before it is asked for. TraceFormatError if the file is no trace, or
    cannot be read. `kernbench doc python` has examples.
    """
    from kernbench.replay import ReplaySession
    from kernbench.trace import Trace

    return ReplaySession(Trace.open(os.fspath(path)))


def _end_at_once(number: int = 0, frame: object = None) -> None:
    """End as Ctrl-C does while there is nothing to finish: a line, and no traceback."""
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def _is_program() -> bool:
    """Whether this process is one of our programs, not one that imports us."""
    words = sys.orig_argv
    name = os.path.basename(sys.argv[0])
    if name == "-m" and "-m" in words:
        module = words[words.index("-m") + 1]
        return module.split(".")[0] in ("kernbench", "tui")
    return name in ("kernbench", "kernbench-tui")


IS_PROGRAM = _is_program()
"""Found out here, as with ``-m`` the name in ``sys.argv`` is another later on."""

# What is imported from here on takes a while.
if IS_PROGRAM:
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end_at_once)
    except KeyboardInterrupt:
        _end_at_once()

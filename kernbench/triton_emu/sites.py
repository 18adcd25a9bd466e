"""Which line of user code made a call: the innermost frame outside the simulator.

Benches and collective algorithms count as user code wherever they live. A file is shown
relative to the package or to the working directory, so that equal runs show equal
names.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType

from kernbench.sim_engine.event_log import Recorder, Site

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_USER_ROOMS = ("benches", "ccl")
_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}
)
_NOWHERE = Site("?", 0, "?")


def shown_name(path: str) -> str | None:
    """The name of a file in sites; None for a file of the simulator itself."""
    if path.startswith(_PACKAGE + os.sep):
        inside = os.path.relpath(path, _PACKAGE)
        if inside.split(os.sep)[0] not in _USER_ROOMS:
            return None
        return "/".join(["kernbench", *inside.split(os.sep)])
    if path.startswith("<frozen"):
        return None
    inside = os.path.relpath(path) if os.path.isabs(path) else path
    if inside.startswith(".."):
        return path
    return inside.replace(os.sep, "/")


class CallSites:
    """Finds sites, and gives the recorder the text of each file before its first one.

    Owns the shown name of every file that was seen.
    """

    def __init__(self, events: Recorder | None) -> None:
        self._events = events
        self._shown: dict[str, str | None] = {}

    def here(self) -> Site:
        """The site of the call that is being made."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            shown = self._name(frame.f_code)
            if shown is not None:
                return Site(shown, frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back
        return _NOWHERE

    def of(self, traceback: TracebackType | None) -> Site:
        """The innermost site that an exception passed through, but for libraries."""
        site = _NOWHERE
        for frame, line in walk_tb(traceback):
            path = frame.f_code.co_filename
            # ours may be installed among the libraries
            if path.startswith(_LIBRARIES) and not path.startswith(_PACKAGE):
                continue
            shown = self._name(frame.f_code)
            if shown is not None:
                site = Site(shown, line, frame.f_code.co_name)
        return site

    def end_of(self, function: Callable[..., None]) -> Site:
        """The last line of a function, where it returns."""
        # a partial has no code of its own
        code = getattr(function, "func", function).__code__
        last = max(line for _, _, line in code.co_lines() if line is not None)
        return Site(self._name(code) or code.co_filename, last, code.co_name)

    def _name(self, code: CodeType) -> str | None:
        """The shown name of a function's file; None for the simulator's own."""
        path = code.co_filename
        if path not in self._shown:
            shown = self._shown[path] = shown_name(path)
            if shown is not None and self._events is not None:
                text = "".join(linecache.getlines(path))
                self._events.source(shown, code.co_name, text)
        return self._shown[path]

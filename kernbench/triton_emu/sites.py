"""Which line of user code made a call: the innermost frame outside the simulator."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType

from kernbench.common.source_names import (
    PACKAGE,
    code_of,
    shown_name,
    working_folder,
)
from kernbench.sim_engine.event_log import Recorder, Site

_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}
)
_NOWHERE = Site("?", 0, "?")
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class CallSites:
    """Finds sites, and gives the recorder the text of each file before its first one.

    Owns the shown name of every file that was seen. Names stay relative to the folder
    that was the working directory when the run began, wherever a kernel goes.
    """

    def __init__(self, events: Recorder | None) -> None:
        self._events = events
        self._shown: dict[str, str | None] = {}
        self._folder = working_folder()

    def here(self) -> Site:
        """The site of the call that is being made."""
        return self.at(sys._getframe(1))

    def at(self, frame: FrameType | None) -> Site:
        """The innermost site of a stack whose innermost frame is ``frame``."""
        return self._site(self._innermost(frame)) or _NOWHERE

    def with_caller(self) -> tuple[Site, Site | None]:
        """The site of the call that is being made, and where its function was called.

        The latter is None if no user's code called it: that of a kernel.
        """
        frame = self._innermost(sys._getframe(1))
        site = self._site(frame) or _NOWHERE
        while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
            frame = frame.f_back  # it is at a line of the function around it
        return site, self._site(frame.f_back if frame is not None else None)

    def _innermost(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of users' code from ``frame`` on; None of none."""
        while frame is not None and self._name(frame.f_code) is None:
            frame = frame.f_back
        return frame

    def _site(self, frame: FrameType | None) -> Site | None:
        """The site of a frame; None if that is not of users' code."""
        if frame is None:
            return None
        shown = self._name(frame.f_code)
        if shown is None:
            return None
        return Site(shown, frame.f_lineno, frame.f_code.co_name)

    def of(
        self, traceback: TracebackType | None, function: Callable[..., None]
    ) -> Site:
        """The innermost site that an exception passed through, but for libraries.

        If there is none, it is the first line of ``function``, which was called.
        """
        site = _NOWHERE
        not_libraries = [PACKAGE]  # it may be installed among them
        code = code_of(function)
        if code is not None:
            site = Site(self._shown_name(code), code.co_firstlineno, code.co_name)
            not_libraries.append(code.co_filename)  # a user's own package may be, too
        for frame, line in walk_tb(traceback):
            path = frame.f_code.co_filename
            is_library = path.startswith(_LIBRARIES)
            if is_library and not path.startswith(tuple(not_libraries)):
                continue
            if path.endswith(".pyx"):
                continue  # of a compiled library, by its path where that was built
            shown = self._name(frame.f_code)
            if shown is not None:
                site = Site(shown, line, frame.f_code.co_name)
        return site

    def end_of(self, function: Callable[..., None]) -> Site:
        """The last line of a function, where it returns."""
        code = code_of(function)
        if code is None:
            return _NOWHERE
        lines = (line for _, _, line in code.co_lines() if line is not None)
        last = max(lines, default=code.co_firstlineno)
        return Site(self._shown_name(code), last, code.co_name)

    def _shown_name(self, code: CodeType) -> str:
        """What a function's file is called, even if it is the simulator's own."""
        return self._name(code) or code.co_filename

    def _name(self, code: CodeType) -> str | None:
        """The shown name of a function's file; None for the simulator's own."""
        path = code.co_filename
        if path not in self._shown:
            shown = self._shown[path] = shown_name(path, self._folder)
            if shown is not None and self._events is not None:
                text = "".join(linecache.getlines(path))
                self._events.source(shown, code.co_name, text)
        return self._shown[path]

"""The program on a terminal: pick a trace, read it, show it as it was left.

What the user sets on a trace is kept when the program ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernbench.errors import KernbenchError
from tui import state
from tui.app import KernbenchApp
from tui.screens.open_trace import GivenUp, LoadingScreen, PickerScreen

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession
    from kernbench.trace.frames import OnFrame

# What is not kept after a crash: the program may fail there again.
_OF_THE_PLACE = ("cursor", "t0", "t1", "views")


class OpeningApp(KernbenchApp):
    """Opens ``path``, or one of ``paths`` that the user picks.

    ``paths`` says of each trace why it is offered. ``read(path, on_frame)`` reads one,
    in a thread. With ``stay`` the cursor stays where ``read`` puts it. ``failure`` says
    why the program had to end; it is empty if it did not. It ends if ``path`` cannot be
    read, unless it is to ``offer_others`` then.
    """

    def __init__(
        self,
        path: Path | None,
        paths: dict[Path, str],
        read: Callable[[Path, OnFrame], ReplaySession],
        ascii_only: bool = False,
        stay: bool = False,
        offer_others: bool = False,
        theme: str = "dark",
    ) -> None:
        super().__init__(None, "", ascii_only, theme=theme)
        self.failure = ""
        self._first_path = path
        self._read = read
        self._stay = stay
        self._picker: PickerScreen | None = None
        if path is None or offer_others:
            self._picker = PickerScreen(paths, self.open)

    def show_first(self) -> None:
        """Show the picker, or how far the trace is read."""
        if self._picker is not None:
            self.push_screen(self._picker)
        if self._first_path is not None:
            self.open(self._first_path)

    def open(self, path: Path) -> None:
        """Read a trace, then show it."""
        try:
            loading = LoadingScreen(path, partial(self._load, path), self._opened)
        except OSError as why:
            self._failed(f"{path}: {why.strerror}")
        else:
            self.push_screen(loading)

    def _load(self, path: Path, on_frame: OnFrame) -> ReplaySession:
        """Read a trace, and prepare what the first frame needs. Runs in a thread."""
        session = self._read(path, on_frame)
        session.index.prepare()
        import tui.screens.debugger  # noqa: F401

        return session

    def _opened(self, loaded: ReplaySession | Exception) -> None:
        """Show the session that was loaded, or say why there is none."""
        if isinstance(loaded, GivenUp | KernbenchError):
            self._failed(str(loaded))
        elif isinstance(loaded, Exception):
            raise loaded
        else:
            self._show(loaded)

    def _show(self, session: ReplaySession) -> None:
        """Show a session as it was left when its trace was last opened.

        What does not fit is left out, and noted on the screen.
        """
        kept, note = state.read(_state_file(session))
        if self._stay:
            kept.pop("cursor", None)
        self.trace_name = session.trace.path.name
        self.debugger = self.screen_of(session)
        if note:
            self.debugger.notes.append(note)
        self.debugger.notes += state.restore(self.debugger, kept)
        state.remember(session.trace.path)
        self.settle()
        self.switch_screen(self.debugger)

    def go_to(self, session: ReplaySession) -> None:
        """Show another trace: as it was left, if it was ever, else set as this one."""
        not_kept = ""
        try:
            self.keep()
        except OSError as why:
            not_kept = f"what is set is not kept: {why.filename}: {why.strerror}"
        kept, _ = state.read(_state_file(session))
        if kept:
            self.came_from = self.debugger.desk.index.trace.path
            self._stay = False  # where the program was told to begin was in the first
            self._show(session)
        else:
            super().go_to(session)
            state.remember(session.trace.path)
        if not_kept:
            self.debugger.notes.append(not_kept)

    def _failed(self, why: str) -> None:
        """Go back to the picker, which says why; without one the program ends."""
        if self._picker is None:
            self.failure = why
            self.exit(return_code=2 if why else 0)
        else:
            if self.screen is not self._picker:
                self.pop_screen()
            self._picker.say(why)

    def keep(self) -> None:
        """Save what is set on the trace; after a crash all but the place of it."""
        if not hasattr(self, "debugger"):
            return
        kept = state.state(self.debugger)
        if self.crash:
            for name in _OF_THE_PLACE:
                del kept[name]
        state.write(_state_file(self.debugger.desk.replay), kept)


def _state_file(session: ReplaySession) -> str:
    """Return where what is set on a trace is kept, below the state directory.

    The trace is known by a hash of what it holds, so it may be renamed or moved.
    """
    return f"traces/{session.trace.fingerprint()}.json"

"""The program on a terminal: pick a trace, read it, show it as it was left, keep what is set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernbench.errors import KernbenchError
from tui import state
from tui.app import KernbenchApp
from tui.screens.open_trace import GivenUp, LoadingScreen, PickerScreen

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession


class OpeningApp(KernbenchApp):
    """Opens ``path`` or one of ``paths`` by ``read(path, told=...)``, or says why not: ``failure``.

    ``stay``: the cursor stays where ``read`` puts it.
    """

    def __init__(
        self,
        path: Path | None,
        paths: dict[Path, str],
        read: Callable[..., ReplaySession],
        ascii_only: bool = False,
        stay: bool = False,
    ) -> None:
        super().__init__(None, "", ascii_only)
        self._first, self._session_of, self._stay, self.failure = path, read, stay, ""
        self._picker = PickerScreen(paths, self.open) if path is None else None

    def show_first(self) -> None:
        """The picker, or the progress of reading."""
        if self._picker is not None:
            self.push_screen(self._picker)
        elif self._first is not None:
            self.open(self._first)

    def open(self, path: Path) -> None:
        """Read a trace, then show it."""
        try:
            self.push_screen(
                LoadingScreen(path, partial(self._load, path), self._opened)
            )
        except OSError as why:
            self._failed(f"{path}: {why.strerror}")

    def _load(self, path: Path, told: Callable[[Any], None]) -> ReplaySession:
        """In a thread: all that the first screen asks for, its modules too."""
        session = self._session_of(path, told=told)
        session.info()
        session.prepare()
        import tui.screens.debugger  # noqa: F401

        return session

    def _opened(self, answer: ReplaySession | Exception) -> None:
        if isinstance(answer, GivenUp | KernbenchError):
            self._failed(str(answer))
        elif isinstance(answer, Exception):
            raise answer
        else:
            kept, note = state.read(f"traces/{answer.trace.fingerprint()}.json")
            kept.pop("cursor" if self._stay else "", None)
            self._made = answer.trace.path.name, self._made[1]
            self.debugger = self.screen_of(answer)
            self.debugger.notes += [note] * bool(note) + state.restore(
                self.debugger, kept
            )
            state.remember(answer.trace.path)
            self.settle()
            self.switch_screen(self.debugger)

    def _failed(self, why: str) -> None:
        """Back to the picker; without one it ends."""
        if self._picker is None:
            self.failure = why
            self.exit(return_code=bool(why))
        else:
            if self.screen is not self._picker:
                self.pop_screen()
            self._picker.say(why)

    def keep(self) -> None:
        """Save what is set on the trace; after a crash not where that was."""
        if hasattr(self, "debugger"):
            kept = state.state(self.debugger)
            for name in ("cursor", "t0", "t1", "views") if self.crash else ():
                del kept[name]
            state.write(
                f"traces/{self.debugger.session.trace.fingerprint()}.json", kept
            )

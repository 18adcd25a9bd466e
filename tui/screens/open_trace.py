"""The screens before the debugger's: a picker of traces, and how far one is read.

They import nothing heavy: the first frame is there before the debugger's modules are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import OptionList, Static

from kernbench.trace.frames import Frame

_LOOK_S = 0.1
_MB = 1e6
_HELP = """Enter or a click opens the marked trace; j k PgUp PgDn Home End mark another
 q Esc quit; Ctrl+Z suspends. kernbench-tui FILE opens any other trace, --help lists the options
 In a trace ? lists all keys and commands"""


class GivenUp(Exception):
    """The user does not want to wait."""


class LoadingScreen(Screen[None], inherit_bindings=False):
    """Reads in a thread: ``then(load(told))``, or ``then`` of what that raised."""

    def __init__(
        self,
        path: Path,
        load: Callable[[Callable[[Frame], None]], Any],
        then: Callable[[Any], None],
    ) -> None:
        super().__init__()
        self._of, self._load, self._then = path.name, load, then
        self._read, self._whole, self._given_up = 0, max(path.stat().st_size, 1), False
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        """A few lines."""
        yield self._text

    def on_mount(self) -> None:
        """The first frame, then the file."""
        self._show()
        self.set_interval(_LOOK_S, self._show)
        self.call_after_refresh(Thread(target=self._work, daemon=True).start)

    def _show(self) -> None:
        done, read, whole = (
            self._read / self._whole,
            self._read / _MB,
            self._whole / _MB,
        )
        what = "giving up" if self._given_up else "opening"
        bar = "#" * int(done * (self.size.width - 2))
        text = (
            f"{read:,.1f} of {whole:,.1f} MB read, {done:.0%}\n {bar}\n\n Esc gives up"
        )
        self._text.update(f" kernbench  {what} {self._of}\n\n {text}")

    def _work(self) -> None:
        try:
            answer = self._load(self._told)
        except Exception as why:
            answer = why
        with suppress(RuntimeError):  # the program has ended meanwhile
            self.app.call_later(self._then, answer)

    def _told(self, frame: Frame) -> None:
        if self._given_up:
            raise GivenUp
        if (
            frame.tag == "ops"
        ):  # the log that is read from the first byte of the file to the last
            self._read = frame.start + frame.size

    def on_key(self, event: events.Key) -> None:
        """Back or quit: the thread stops at the next frame."""
        id = self.app.keymap.action(event.key, event.character)  # type: ignore[attr-defined]
        self._given_up |= id in ("back", "quit")
        self._show()


class PickerScreen(Screen[None], inherit_bindings=False):
    """Lists traces, below what is said of each; Enter or a click picks one."""

    def __init__(self, paths: dict[Path, str], then: Callable[[Path], None]) -> None:
        super().__init__()
        self._paths, self._then, self._head = [*paths], then, Static(markup=False)
        sizes = [path.stat().st_size / _MB for path in paths]
        rows = zip(paths.items(), sizes, strict=True)
        names = [f"{p.name:<30} {size:>9,.1f} MB  {what}" for (p, what), size in rows]
        self._list = OptionList(*names, markup=False, compact=True)

    def compose(self) -> ComposeResult:
        """A head, the traces."""
        yield from (self._head, self._list)

    def say(self, text: str) -> None:
        """Above the list: what went wrong with the last one; the keys."""
        keys = "Enter opens, j k move, q quits, ? helps"
        self._head.update(f" kernbench  which trace?\n {text or keys}\n")

    def on_mount(self) -> None:
        """Nothing went wrong yet."""
        self.say("")

    def on_key(self, event: events.Key) -> None:
        """What moves rows and quits in the debugger does here."""
        match self.app.keymap.action(event.key, event.character):  # type: ignore[attr-defined]
            case "row_down":
                self._list.action_cursor_down()
            case "row_up":
                self._list.action_cursor_up()
            case "help":
                self.say(_HELP)
            case "back" | "quit":
                self.app.exit()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it."""
        self._then(self._paths[event.option_index])

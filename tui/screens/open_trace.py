"""The screens before the debugger's: a picker of traces, and how far one is read.

They import nothing heavy: the first frame is there before the debugger's modules are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import OptionList, Static

from kernbench.visible import visible, visible_text

if TYPE_CHECKING:
    from kernbench.trace.frames import Frame, OnFrame
    from tui.app import KernbenchApp

_REFRESH_S = 0.1  # between two pictures of how far a trace is read
_KB = 1e3  # bytes
_MB = 1e6
_HELP = (
    "Enter or a click opens the marked trace;"
    " j k PgUp PgDn Home End mark another\n"
    " q Esc quit; Ctrl+Z suspends."
    " kernbench-tui FILE opens any other trace, --help lists the options\n"
    " In a trace ? lists all keys and commands"
)


class GivenUp(Exception):
    """The user does not want to wait for a trace any longer."""


def _size_text(nbytes: int) -> str:
    """``12.3 MB``; of what is smaller than one ``345 kB``."""
    if nbytes < _MB:
        return f"{nbytes / _KB:,.0f} kB"
    return f"{nbytes / _MB:,.1f} MB"


def _told_apart(paths: Collection[Path]) -> list[str]:
    """The names of files, each with as many of its folders as no other file has."""
    names = []
    places = [path.absolute().parts for path in paths]
    for mine in places:
        others = [other for other in places if other != mine]
        count = 1
        while any(other[-count:] == mine[-count:] for other in others):
            count += 1
        names.append(visible(str(Path(*mine[-count:]))))
    return names


def _action_of(screen: Screen[Any], event: events.Key) -> str:
    """Return the id of the action of a key, as the user's keymap has it, or ""."""
    app = cast("KernbenchApp", screen.app)
    return app.keymap.action(event.key, event.character)


class LoadingScreen(Screen[None], inherit_bindings=False):
    """Reads a trace in a thread, and shows how far it is.

    ``load(on_frame)`` reads; it ends early by passing on what ``on_frame`` raises.
    ``then`` is called in the App's thread with what ``load`` returned or raised.
    OSError is raised if there is no file at ``path``.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[OnFrame], Any],
        then: Callable[[Any], None],
    ) -> None:
        super().__init__()
        self._file_name = visible(path.name)
        self._load = load
        self._then = then
        self._bytes_read = 0
        self._bytes = max(path.stat().st_size, 1)
        self._given_up = False
        self._handed_over = False
        self._replaced = False
        self.typed: list[events.Key] = []
        """Keys that wait for the trace."""
        self._body = Static(markup=False)

    def compose(self) -> ComposeResult:
        """Make a few lines of text."""
        yield self._body

    def on_mount(self) -> None:
        """Show the first frame, then begin to read the file."""
        self._show_progress()
        self.set_interval(_REFRESH_S, self._show_progress)
        self.call_after_refresh(Thread(target=self._work, daemon=True).start)

    def _show_progress(self) -> None:
        """Show bytes and a bar as wide as the screen."""
        done = self._bytes_read / self._bytes
        sizes = f"{_size_text(self._bytes_read)} of {_size_text(self._bytes)}"
        what = "giving up" if self._given_up else "opening"
        bar = "#" * int(done * (self.size.width - 2))
        self._body.update(
            f" kernbench  {what} {self._file_name}\n\n"
            f" {sizes} read, {done:.0%}\n {bar}\n\n Esc gives up"
        )

    def _work(self) -> None:
        """Load, and hand over the answer. Runs in the thread."""
        try:
            answer = self._load(self._on_frame)
        except Exception as why:
            answer = why
        with suppress(RuntimeError):  # the program has ended meanwhile
            self.app.call_later(self._hand_over, answer)

    def _hand_over(self, answer: Any) -> None:
        """Say what became of it; whoever gave up gets no trace that came meanwhile.

        The rest of the trace is read when it is asked for: nobody can give that up.
        """
        self._handed_over = True
        if self._given_up and not isinstance(answer, Exception):
            answer = GivenUp()
        self._then(answer)
        if not isinstance(answer, Exception):
            self._replaced = True
            self._hand_on(self.typed)

    def _hand_on(self, keys: list[events.Key]) -> None:
        """Let the debugger have keys."""
        app = cast("KernbenchApp", self.app)
        app.type_on(app.debugger, keys)

    def _on_frame(self, frame: Frame) -> None:
        """Note how far the reader is; raise GivenUp where it shall stop."""
        if self._given_up and not self._handed_over:
            raise GivenUp
        # The only log that is read from the first byte of the file to the last.
        if frame.tag == "ops":
            self._bytes_read = frame.start + frame.size
            # That of a run that goes on has grown since.
            self._bytes = max(self._bytes, self._bytes_read)

    def on_key(self, event: events.Key) -> None:
        """Stop reading at the next frame, by the keys of back and of quit.

        A key that was on its way here as the trace was shown is of the debugger.
        """
        if self._replaced:
            event.stop()
            self._hand_on([event])
            return
        keymap = cast("KernbenchApp", self.app).keymap
        typed = event.is_printable and keymap.types_line(self.typed)
        if _action_of(self, event) in ("back", "quit") and not typed:
            self._given_up = True
        else:
            self.typed.append(event)
        self._show_progress()


class PickerScreen(Screen[None], inherit_bindings=False):
    """Lists traces, with what ``paths`` says of each; Enter or a click picks one.

    ``then`` is called with the path of the one that is picked. OSError is raised if one
    of the files is not there.
    """

    def __init__(self, paths: dict[Path, str], then: Callable[[Path], None]) -> None:
        super().__init__()
        self._paths = list(paths)
        self._then = then
        self._said = ""
        self._head = Static(markup=False)
        rows: list[str] = []
        names = _told_apart(paths)
        for name, (path, why) in zip(names, paths.items(), strict=True):
            rows.append(f"{name:<30} {_size_text(path.stat().st_size):>12}  {why}")
        self._list = OptionList(*rows, markup=False, compact=True)

    def compose(self) -> ComposeResult:
        """Make a head, and below it the traces."""
        yield self._head
        yield self._list

    def say(self, text: str) -> None:
        """Show above the list what went wrong with the last trace, or else the keys."""
        keys = "Enter opens, j k move, q quits, ? helps"
        self._said = text
        said = visible_text(text) or keys
        self._head.update(f" kernbench  which trace?\n {said}\n")

    def on_mount(self) -> None:
        """Show what went wrong so far, or else the keys."""
        self.say(self._said)

    def on_key(self, event: events.Key) -> None:
        """Mark rows, help and quit by the keys that do so in the debugger."""
        match _action_of(self, event):
            case "row_down":
                self._list.action_cursor_down()
            case "row_up":
                self._list.action_cursor_up()
            case "help":
                self.say(_HELP)
            case "back" | "quit":
                self.app.exit()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the trace of the row."""
        self._then(self._paths[event.option_index])

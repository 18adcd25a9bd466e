"""Pages over the whole screen: lines that scroll, and the list of stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.screen import Screen

from kernbench.replay.command import Call
from kernbench.replay.commands import DELETE, GOTO
from kernbench.replay.query import Stop
from tui.actions import BY_ID, ToPane
from tui.desk import Desk
from tui.draw import Glyphs, Line, clip
from tui.keymap import Keymap
from tui.messages import PaneClicked, PaneScrolled
from tui.panes.base import Picture, Rows, Scroll
from tui.widgets.pane_view import PaneView

# actions that have another meaning over a page
_MEANT = {
    "quit": "back",
    "help": "back",
    "play": "page_down",
    "first": "top",
    "last": "bottom",
}


class PageScreen(Screen[Call | None], inherit_bindings=False):
    """One page over the whole screen; q and Esc go back. A subclass draws it.

    It ends with the call that Enter on a row asks for, if any.
    """

    def __init__(self, keymap: Keymap, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.rows = Rows()
        self._keymap = keymap
        self._view = PaneView("page", glyphs)

    def compose(self) -> ComposeResult:
        """The page, as large as the screen."""
        yield self._view

    @property
    def text(self) -> str:
        """What is shown, as lines."""
        return self._view.text

    def on_resize(self, event: events.Resize) -> None:
        """Draw it in the new size."""
        self._view.place_at(Region(0, 0, *event.size), titled=False)
        self.draw()

    def draw(self) -> None:
        """Show the page as it is now."""
        width, height = self._view.room
        if height:
            self._view.put(Picture(tuple(self.lines(width, height))), "", active=True)

    def lines(self, width: int, height: int) -> list[Line]:
        """The lines in view; settles ``rows``."""
        raise NotImplementedError

    def scroll_by(self, event: Scroll) -> None:
        """Scroll, or pick another row."""
        self.rows = self.rows.scrolled(event)

    def entered(self) -> Call | None:
        """What Enter on the picked row asks for."""
        return None

    def led_to(self, action: str) -> Call | None:
        """What the keys of an action ask for that has a meaning on this page alone."""
        return None

    def deleted(self) -> None:
        """Forget what the picked row stands for, where rows are such."""

    def on_key(self, event: events.Key) -> None:
        """What scrolls a pane scrolls here; Enter goes where the picked row leads."""
        id = self._keymap.action(event.key, event.character)
        id = _MEANT.get(id, id)
        led_to = self.led_to(id)
        if led_to is not None:
            self.dismiss(led_to)
        elif id == "back":
            self.dismiss(None)
        elif id == "enter":
            self.dismiss(self.entered())
        elif event.key in ("d", "delete"):
            self.deleted()
            self.draw()
        elif id:
            does = BY_ID[id].does
            if isinstance(does, ToPane) and isinstance(does.event, Scroll):
                self.scroll_by(does.event)
                self.draw()

    @on(PaneScrolled)
    def _wheel(self, message: PaneScrolled) -> None:
        self.scroll_by(Scroll(message.rows))
        self.draw()


_TITLE_EDGES = 2
_SHORTEST_TITLE = 8
"""Columns that a title has, however much there is to be said of keys."""


@dataclass(frozen=True, slots=True)
class Way:
    """What the keys of an action do on a page, in words, and the call for it."""

    action: str
    words: str
    call: Call


class TextScreen(PageScreen):
    """Lines that were made before, under a line of their own.

    ``way`` leads on from here, if anything does.
    """

    def __init__(
        self,
        keymap: Keymap,
        glyphs: Glyphs,
        title: str,
        text: Sequence[Line],
        way: Way | None = None,
    ) -> None:
        super().__init__(keymap, glyphs)
        self._title = title
        self._text = text
        self._way = way
        self._keys = "; j k PgDn scroll, Esc back"
        if way is not None:
            keys = keymap.shown(way.action)
            self._keys = f"; {keys} {way.words}{self._keys.replace(';', ',')}"

    def led_to(self, action: str) -> Call | None:
        """What the keys of an action ask for."""
        if self._way is None or self._way.action != action:
            return None
        return self._way.call

    def lines(self, width: int, height: int) -> list[Line]:
        """The part in view."""
        total = len(self._text)
        self.rows = self.rows.settled(total, height - 1)
        shown = self.rows.visible
        where = f"  lines {shown.start + 1}-{shown.stop} of {total}{self._keys}"
        room = max(width - len(where) - _TITLE_EDGES, _SHORTEST_TITLE)
        title = clip(self._title, min(room, len(self._title)), self.glyphs)
        head: Line = [(f" {title} ", "active"), (where, "dim")]
        return [head, *self._text[shown.start : shown.stop]]


class StopsScreen(PageScreen):
    """A row a stop, by number: Enter goes to where it is next, d deletes it."""

    def __init__(self, keymap: Keymap, desk: Desk) -> None:
        super().__init__(keymap, desk.glyphs)
        self._desk = desk

    def lines(self, width: int, height: int) -> list[Line]:
        """Head, rows."""
        stops = self._desk.session.stops
        self.rows = self.rows.settled(len(stops), height - 1, 0 if stops else None)
        where = "  none is left"
        if stops:
            where = "  Enter goes to its next op, d deletes, Esc back"
        lines: list[Line] = [[(" stops ", "active"), (where, "dim")]]
        for i in self.rows.visible:
            lines.append(self._row(stops[i], width, picked=i == self.rows.at))
        return lines

    def _row(self, stop: Stop, width: int, picked: bool) -> Line:
        mark = ">" if picked else " "
        text = f"{mark} {stop.number} {stop.kind} {stop.what}"
        ops = f" at {stop.ops:,} ops"
        style = "pick" if picked else ""
        return [(clip(text, width - len(ops), self.glyphs), style), (ops, "dim")]

    def scroll_by(self, event: Scroll) -> None:
        """Pick another row."""
        self.rows = self.rows.moved(event)

    @property
    def _picked(self) -> Stop | None:
        stops = self._desk.session.stops
        if self.rows.at is None or self.rows.at >= len(stops):
            return None
        return stops[self.rows.at]

    def entered(self) -> Call | None:
        """To the next op of the picked stop, after the last to the first."""
        stop = self._picked
        if stop is None:
            return None
        op = stop.next(self._desk.session.cursor, forward=True)
        if op is None:
            op = stop.next(-1, forward=True)
        return GOTO(op="start" if op is None else op)

    def deleted(self) -> None:
        """Forget the picked stop."""
        stop = self._picked
        if stop is not None:
            self._desk.replay.call(DELETE(number=stop.number))

    @on(PaneClicked)
    def _clicked(self, message: PaneClicked) -> None:
        picked = self.rows.picked_at(message.y - 1)
        if picked is not None:
            self.rows = picked
            self.dismiss(self.entered())

"""Pages over the whole screen: lines that scroll, and the list of stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region

from kernbench.replay.command import Call
from kernbench.replay.commands import DELETE, GOTO
from kernbench.replay.query import Stop
from kernbench.replay.text import count_text
from tui.actions import BY_ID, ToPane
from tui.ansi import LeavingOnce
from tui.desk import Desk
from tui.draw import Glyphs, Line, clip
from tui.keymap import Keymap, shown
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


def _scroll_of(id: str) -> Scroll | None:
    """How the keys of an action scroll, if they do."""
    does = BY_ID[id].does if id else None
    if isinstance(does, ToPane) and isinstance(does.event, Scroll):
        return does.event
    return None


class PageScreen(LeavingOnce[Call | None], inherit_bindings=False):
    """One page over the whole screen; q and Esc go back. A subclass draws it.

    It ends with the call that Enter on a row asks for, if any.
    """

    def __init__(self, keymap: Keymap, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.rows = Rows()
        self.said = ""
        """What is said in the first line until the next key."""
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
        """What scrolls a pane scrolls here; Enter goes where the picked row leads. A
        key that does nothing here is answered.
        """
        event.stop()  # else what lies below may act on it as well
        id = self._keymap.action(event.key, event.character)
        id = _MEANT.get(id, id)
        self.said = ""
        led_to = self.led_to(id)
        scroll = _scroll_of(id)
        if led_to is not None:
            self.dismiss(led_to)
        elif id == "back":
            self.dismiss(None)
        elif id == "enter":
            self.dismiss(self.entered())
        elif event.key in ("d", "delete"):
            self.deleted()
            self.draw()
        elif scroll is not None:
            self.scroll_by(scroll)
            self.draw()
        else:
            back = self._keymap.shown("back").split()[0]
            self.said = f"{shown(event.key)} has no meaning on a page; {back} goes back"
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

    ``way`` leads on from here, if anything does. ``/`` searches, F3 goes on; ``z``
    folds: what is further in than the first level is hidden, then each time one level
    more is shown, until all are. A level is an indent that lines of the text have.
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
        self._typed: str | None = None
        self._sought = ""
        self._found: int | None = None
        indents = {_indent(line) for line in text}
        self._levels = sorted(indent for indent in indents if indent is not None)
        self._shown_levels = len(self._levels)
        self._keys = "; / finds, z folds, Esc back"
        if way is not None:
            keys = keymap.shown(way.action)
            self._keys = f"; {keys} {way.words}{self._keys.replace(';', ',')}"

    def led_to(self, action: str) -> Call | None:
        """What the keys of an action ask for."""
        if self._way is None or self._way.action != action:
            return None
        return self._way.call

    # -- search and folds -----------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """A search is typed, or what a page does: Textual calls that handler next."""
        id = self._keymap.action(event.key, event.character)
        self.said = ""
        if self._typed is not None:
            event.stop()
            self._type(event)
        elif id == "find":
            self._typed = ""
        elif id in ("find_next", "find_previous"):
            self._find(1 if id == "find_next" else -1, self._last_found())
        elif id == "maximise":
            self._fold()
        else:
            return
        event.prevent_default()
        self.draw()

    def on_paste(self, event: events.Paste) -> None:
        """The first line goes into a search that is being typed."""
        event.stop()
        if self._typed is not None:
            self._typed += "".join(event.text.splitlines()[:1])
            self.draw()

    def _type(self, event: events.Key) -> None:
        """A key while a search is typed: Enter searches, Esc gives up."""
        typed = self._typed or ""
        if event.key == "escape":
            self._typed = None
        elif event.key == "enter":
            self._typed = None
            self._sought = typed or self._sought
            self._find(1, self.rows.top - 1)
        elif event.key == "backspace":
            self._typed = typed[:-1]
        elif event.character and event.character.isprintable():
            self._typed = typed + event.character

    def _last_found(self) -> int:
        """The line from which a search goes on: the last that was found, if it is in
        view still, which near the end is not on top; else the one on top.
        """
        if self._found is None or self._found not in self.rows.visible:
            return self.rows.top
        return self._found

    def _find(self, way: int, here: int) -> None:
        """Bring the next line (1) or the previous one (-1) with the text to the top;
        behind the last comes the first.
        """
        wanted = self._sought.casefold()
        if not wanted:
            self.said = "nothing is searched for yet: / and a text"
            return
        lines = self._shown_lines()
        places = [
            i for i, line in enumerate(lines) if wanted in _plain(line).casefold()
        ]
        if not places:
            self.said = f"no line has {self._sought!r}"
            return
        there = [i for i in places if (i - here) * way > 0]
        if not there:
            self.said = "search wrapped"
            there = places
        place = there[0] if way > 0 else there[-1]
        self._found = place
        self.rows = replace(self.rows, top=place)
        if not self.said:
            self.said = f"{self._sought!r} in {len(places):,} lines"

    def _fold(self) -> None:
        """Show one level more, behind the last one the first alone; the line on top
        stays in view, or what it is folded into.
        """
        places = self._shown_places()
        here = places[min(self.rows.top, len(places) - 1)] if places else 0
        self._shown_levels = self._shown_levels % max(len(self._levels), 1) + 1
        self._found = None
        top = sum(place <= here for place in self._shown_places()) - 1
        self.rows = replace(self.rows, top=max(top, 0))
        if self._shown_levels < len(self._levels):
            keys = self._keymap.shown("maximise")
            levels = f"{self._shown_levels} of {len(self._levels)} levels"
            self.said = f"{levels}; {keys} shows one more, Esc back"

    def _shown_places(self) -> list[int]:
        """Which lines of the text are not hidden by a fold."""
        if self._shown_levels >= len(self._levels):
            return [*range(len(self._text))]
        deepest = self._levels[self._shown_levels - 1]
        indents = [_indent(line) for line in self._text]
        return [
            place
            for place, indent in enumerate(indents)
            if indent is not None and indent <= deepest
        ]

    def _shown_lines(self) -> Sequence[Line]:
        """The lines that are not hidden; those that hide some with how many."""
        places = self._shown_places()
        ends = [*places[1:], len(self._text)]
        lines: list[Line] = []
        for start, end in zip(places, ends, strict=True):
            below = end - start - 1
            line = self._text[start]
            if below:
                line = [*line, (f"  {self.glyphs.more} {below:,}", "dim")]
            lines.append(line)
        return lines

    def lines(self, width: int, height: int) -> list[Line]:
        """The part in view; what is searched for is marked."""
        text = self._shown_lines()
        total = len(text)
        self.rows = self.rows.settled(total, height - 1)
        shown = self.rows.visible
        where = f"  lines {shown.start + 1}-{shown.stop} of {total}{self._keys}"
        if self.said:
            where = f"  {self.said}"
        room = max(width - len(where) - _TITLE_EDGES, _SHORTEST_TITLE)
        title = clip(self._title, min(room, len(self._title)), self.glyphs)
        head: Line = [(f" {title} ", "active"), (where, "dim")]
        if self._typed is not None:
            head = [(f" / {self._typed}", "bold"), ("_", "here")]
        rows = [self._marked(line) for line in text[shown.start : shown.stop]]
        return [head, *rows]

    def _marked(self, line: Line) -> Line:
        """A line, marked if it has the text that is searched for."""
        wanted = self._sought.casefold()
        if not wanted or wanted not in _plain(line).casefold():
            return line
        return [(_plain(line), "pick")]


def _plain(line: Line) -> str:
    """The text of a line."""
    return "".join(text for text, _ in line)


def _indent(line: Line) -> int | None:
    """By how many columns a line is further in than the first level, where a text has a
    blank in front of it all; None: it is blank.
    """
    text = _plain(line)
    if not text.strip():
        return None
    indent = len(text) - len(text.lstrip())
    return indent if indent > 1 else 0


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
        if self.said:
            where = f"  {self.said}"
        lines: list[Line] = [[(" stops ", "active"), (where, "dim")]]
        for i in self.rows.visible:
            lines.append(self._row(stops[i], width, picked=i == self.rows.at))
        return lines

    def _row(self, stop: Stop, width: int, picked: bool) -> Line:
        mark = ">" if picked else " "
        text = f"{mark} {stop.number} {stop.kind} {stop.what}"
        ops = f" at {count_text(stop.ops, 'op')}"
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

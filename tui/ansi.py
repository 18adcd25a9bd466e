"""What kernbench takes from inside Textual and Rich, and how a frame is written.

Textual writes the whole line of whatever was refreshed. Over SSH the bytes of a step
are what the user feels, so ``ScreenDiff`` remembers the cells that the terminal shows
and writes only those that differ.

This is the only file that names private parts of Textual or Rich; a test holds the
rest of ``tui`` to that. When a release renames one of them, it is mended here.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from operator import is_not, ne, or_
from typing import Any, ClassVar, NamedTuple, cast

from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from textual import events, on
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandInput, CommandList, CommandPalette
from textual.css.query import NoMatches
from textual.dom import NoScreen
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import Screen, ScreenResultType
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.worker import Worker

from kernbench.errors import UsageError
from kernbench.visible import visible
from tui.draw import STYLES
from tui.guardian import TAKEN
from tui.newest import Newest
from tui.terminal import DRIVER_VARIABLE, named_driver
from tui.themes import XTERM

# -- styles as the terminal is told of them ----------------------------------------

# The SGR parameter that sets an attribute of a style, and the one that ends it. Bold
# and dim are ended by the same parameter.
_ATTRIBUTES = {
    "bold": (1, 22),
    "dim": (2, 22),
    "italic": (3, 23),
    "underline": (4, 24),
    "blink": (5, 25),
    "reverse": (7, 27),
    "conceal": (8, 28),
    "strike": (9, 29),
}


class Ink(NamedTuple):
    """A style as the parameters of SGR, "select graphic rendition" (ECMA-48, 8.3.117).

    Attributes are pairs of the parameters that set and that end them. The colours are
    parameters too, as "38;2;255;0;0"; 39 and 49 are the terminal's own.
    """

    attributes: frozenset[tuple[int, int]]
    foreground: str
    background: str


PLAIN = Ink(frozenset(), "39", "49")


@lru_cache(maxsize=1024)
def ink_of(style: Style, system: ColorSystem | None) -> Ink:
    """Return a style as a terminal with the colours of ``system`` shows it.

    None is a terminal without colours. Every style is plain there: Rich itself writes
    no attributes to it either.
    """
    if system is None:
        return PLAIN
    attributes = frozenset(
        codes for name, codes in _ATTRIBUTES.items() if getattr(style, name)
    )
    foreground = _colour_codes(style.color, system, foreground=True)
    background = _colour_codes(style.bgcolor, system, foreground=False)
    return Ink(
        attributes, foreground or PLAIN.foreground, background or PLAIN.background
    )


def _colour_codes(color: Color | None, system: ColorSystem, foreground: bool) -> str:
    """Return the SGR parameters of a colour; none for the terminal's own.

    Of 256 colours that is taken which the theme has chosen for this one, if it did.
    """
    if color is None:
        return ""
    if system is ColorSystem.EIGHT_BIT and color.triplet is not None:
        number = XTERM.get(color.triplet.hex)
        if number is not None:
            color = Color.from_ansi(number)
    return ";".join(color.downgrade(system).get_ansi_codes(foreground))


@lru_cache(maxsize=4096)
def sgr_change(before: Ink, after: Ink) -> str:
    """Return the shortest SGR sequence that goes from one ink to another.

    That is either one which changes what differs, or one which resets all and then sets
    what the other ink has. For two equal inks it is empty.
    """
    if before == after:
        return ""
    parameters = min(_altered(before, after), _from_reset(after), key=len)
    return f"\x1b[{parameters}m"


def _altered(before: Ink, after: Ink) -> str:
    """Return the parameters that end what is over, then set what is new."""
    ended = {end for _, end in before.attributes - after.attributes}
    # What shares its end with an ended attribute is ended too, and has to be set again.
    kept = {codes for codes in before.attributes if codes[1] not in ended}
    begun = {begin for begin, _ in after.attributes - kept}
    parameters = [str(code) for code in (*sorted(ended), *sorted(begun))]
    if before.foreground != after.foreground:
        parameters.append(after.foreground)
    if before.background != after.background:
        parameters.append(after.background)
    return ";".join(parameters)


def _from_reset(after: Ink) -> str:
    """Return the parameters that reset everything, then set what the ink has."""
    parameters = [""]  # an empty parameter is 0, the reset
    parameters += [str(begin) for begin, _ in sorted(after.attributes)]
    if after.foreground != PLAIN.foreground:
        parameters.append(after.foreground)
    if after.background != PLAIN.background:
        parameters.append(after.background)
    return ";".join(parameters)


# -- the cells of the screen -------------------------------------------------------

# The character of a cell of which nothing is known: no text has it. The further cells
# of a wide character are empty strings.
_UNKNOWN = "?\0"

_STRIPS_KEPT = 4096

# Runs of cells that changed, in bytes of 0 and 1. A gap of up to three unchanged cells
# is written again, since moving over it takes four bytes.
_CHANGED = re.compile(b"\1+(?:\0{1,3}\1+)*")


# Texts of characters that take one cell each: Latin letters, punctuation, arrows,
# lines, blocks and Braille, so nearly all that is drawn. The characters of other texts
# are looked at one by one.
_NARROW = re.compile(
    "[\x20-\x7e\xa0-\xac\xae-\u02ff\u2010-\u2027\u2190-\u21ff"
    "\u2500-\u25fc\u2800-\u28ff]*"
)


class CellRun(NamedTuple):
    """Cells of one row that are written together: from ``start`` up to ``end``."""

    row: int
    start: int
    end: int
    text: str


class _Inked(NamedTuple):
    """Cells of one style, beginning at the cell ``start`` of a strip."""

    start: int
    cells: list[str]
    style: Style | None


class _StripCells(NamedTuple):
    """What a strip puts into each of its cells."""

    strip: Strip
    """Kept, as these stand for it by its identity."""
    chars: list[str]
    styles: list[Style | None]
    inked: list[_Inked]
    """The same cells, by style."""


class PlacedStrip(NamedTuple):
    """A strip of a frame, from cell ``x`` of line ``y`` on."""

    x: int
    y: int
    strip: Strip


def placed_strips(frame: LayoutUpdate | ChopsUpdate) -> Iterator[PlacedStrip]:
    """What a frame consists of, line by line. Of strips that are on screen already
    only what the frame says has changed.
    """
    if isinstance(frame, LayoutUpdate):
        for y, strips in enumerate(frame.strips, frame.region.y):
            x = frame.region.x
            for whole in strips:
                yield PlacedStrip(x, y, whole)
                x += whole.cell_length
        return
    for y, low, high in frame.spans:
        ends = frame.chop_ends[y]
        # A line may have fewer chops than ends, as Textual pairs them.
        for end, (x, strip) in zip(ends, frame.chops[y].items(), strict=False):
            if strip is None or x >= high or end <= low:
                continue
            first = max(low - x, 0)
            last = min(high, end) - x
            if first > 0 or last < strip.cell_length:
                strip = strip.crop(first, last)
            yield PlacedStrip(x + first, y, strip)


class ScreenDiff(CompositorUpdate):
    """The cells that the terminal shows; stands in for a frame and writes what differs.

    It owns a character and a style for each cell written so far. Set ``update`` to the
    frame that the compositor made, then give this object to Textual in its place.
    ``size`` is what can be shown, in columns and lines; None: what the console says,
    which knows the terminal that the process has.
    """

    update: LayoutUpdate | ChopsUpdate

    def __init__(self) -> None:
        self.size: tuple[int, int] | None = None
        self._rows: dict[int, tuple[list[str], list[Style | None]]] = {}
        # Of equal styles one stands for all, so that cells compare by identity.
        self._styles: dict[Style | None, Style | None] = {}
        # Most strips are shown again: a step leads to them, and back.
        self._cells = Newest[int, _StripCells](_STRIPS_KEPT)

    def forget(self) -> None:
        """Take nothing on the terminal for granted: write every cell of what comes."""
        self._rows.clear()

    def prepare(self, strips: Iterable[Strip]) -> None:
        """Know the cells of strips that may be shown next."""
        for strip in strips:
            self._cells_of(strip)

    def render_segments(self, console: Console) -> str:
        """Return the text that puts ``update`` on the terminal.

        A change of style costs more bytes than a move of the cursor, so all runs of a
        style are written before those of the next.
        """
        pieces: list[str] = []
        ink = PLAIN
        columns, lines = self.size or console.size
        for style, runs in self._changes(columns, lines).items():
            wanted = ink_of(style or Style.null(), console._color_system)
            pieces.append(sgr_change(ink, wanted))
            pieces.append(_written(runs, columns))
            ink = wanted
        pieces.append(sgr_change(ink, PLAIN))
        return "".join(pieces)

    def _changes(self, columns: int, lines: int) -> dict[Style | None, list[CellRun]]:
        """Take over the cells of ``update``; return the runs that differ, by style.

        A frame may still be as large as the terminal was before: a terminal would put
        what lies beyond its edge into the last column.
        """
        changes: dict[Style | None, list[CellRun]] = {}
        for x, y, strip in placed_strips(self.update):
            if y >= lines or x >= columns:
                continue
            if x + strip.cell_length > columns:
                strip = strip.crop(0, columns - x)
            self._put(x, y, self._cells_of(strip), changes)
        return changes

    def _cells_of(self, strip: Strip) -> _StripCells:
        """What a strip puts into each of its cells."""

        def made() -> _StripCells:
            chars: list[str] = []
            styles: list[Style | None] = []
            inked = []
            for text, style, _ in strip:
                cells = cells_of(text)
                style = self._styles.setdefault(style, style)
                inked.append(_Inked(len(chars), cells, style))
                chars += cells
                styles += [style] * len(cells)
            return _StripCells(strip, chars, styles, inked)

        return self._cells.get(id(strip), made)

    def _put(
        self,
        x: int,
        y: int,
        new: _StripCells,
        changes: dict[Style | None, list[CellRun]],
    ) -> None:
        """Put the cells of a strip into row ``y`` from ``x`` on.

        Add the runs of those that differ from what the terminal shows to ``changes``.
        All are compared at once: nearly all are as they were.
        """
        chars, styles = self._rows.setdefault(y, ([], []))
        end = x + len(new.chars)
        missing = end - len(chars)
        if missing > 0:
            chars.extend([_UNKNOWN] * missing)
            styles.extend([None] * missing)
        old_chars = chars[x:end]
        old_styles = styles[x:end]
        if old_chars == new.chars and old_styles == new.styles:
            return
        other_char = map(ne, new.chars, old_chars)
        other_style = map(is_not, new.styles, old_styles)
        changed = bytes(map(or_, other_char, other_style))
        chars[x:end] = new.chars
        styles[x:end] = new.styles
        for start, cells, style in new.inked:
            part = changed[start : start + len(cells)]
            if 1 in part:
                runs = _runs(y, x + start, cells, part)
                changes.setdefault(style, []).extend(runs)


def _runs(y: int, x: int, cells: list[str], changed: bytes) -> Iterator[CellRun]:
    """The runs of cells of one style, from ``x`` on in row ``y``, that have changed."""
    for match in _CHANGED.finditer(changed):
        low, high = match.span()
        # A wide character is written whole, from its first cell on.
        while low > 0 and not cells[low]:
            low -= 1
        while high < len(cells) and not cells[high]:
            high += 1
        yield CellRun(y, x + low, x + high, "".join(cells[low:high]))


@lru_cache(maxsize=4096)
def _is_narrow(text: str) -> bool:
    """Return whether every character takes one cell, and none is hidden."""
    if text.isascii():
        return text.isprintable()
    return _NARROW.fullmatch(text) is not None


def cells_of(text: str) -> list[str]:
    """Return the text of each cell; the further cells of a wide character are empty.

    A combining character shares the cell of the one before it. Where Rich takes several
    characters for one grapheme of another width, the whole text is taken for one
    character that is as wide as Rich says.

    All that is drawn passes here, so a text in which something is hidden is written
    out, in as many cells as Textual has for it.
    """
    if _is_narrow(text):
        return list(text)
    width = cell_len(text)
    written_out = visible(text)
    if written_out != text:
        return _cut(cells_of(written_out), width)
    cells: list[str] = []
    last = 0  # the cell of the last character that has one
    for char in text:
        char_width = cell_len(char)
        if char_width == 0 and cells:
            cells[last] += char
        else:
            last = len(cells)
            cells.append(char)
            cells.extend([""] * (char_width - 1))
    if len(cells) == width:
        return cells
    return [text, *[""] * (width - 1)] if width else []


def _cut(cells: list[str], width: int) -> list[str]:
    """Return exactly so many cells; half of a wide character is a blank."""
    cut = cells[:width] + [" "] * (width - len(cells))
    if cut and cells[width : width + 1] == [""]:
        cut[-1] = " "
    return cut


def _written(runs: Iterable[CellRun], width: int) -> str:
    """Return the text of runs, with the moves of the cursor between them.

    Every move is the shorter one of a relative and an absolute. ``width`` is that of
    the terminal, in columns.
    """
    pieces: list[str] = []
    row = -1  # where the cursor is; it is unknown before the first run
    column = -1
    for run in runs:
        move = f"\x1b[{run.row + 1};{run.start + 1}H"
        # Behind the last column a terminal wraps or does not: nothing is relative.
        if 0 <= row <= run.row and column < width:
            relative = _down(run.row - row) + _sideways(run.start - column)
            move = min(relative, move, key=len)
        pieces.append(move)
        pieces.append(run.text)
        row = run.row
        column = run.end
    return "".join(pieces)


def _down(rows: int) -> str:
    """Return the move down by so many rows; a move by one row needs no number."""
    if rows == 0:
        return ""
    return "\x1b[B" if rows == 1 else f"\x1b[{rows}B"


def _sideways(columns: int) -> str:
    """Return the move right, or left where that is negative."""
    if columns <= 0:
        return "\b" * -columns
    return "\x1b[C" if columns == 1 else f"\x1b[{columns}C"


def screen_lines(screen: Screen[Any]) -> list[str]:
    """Return what a screen shows now as lines of text, without colours."""
    return [strip.text.rstrip() for strip in screen_strips(screen)]


def screen_strips(screen: Screen[Any]) -> Sequence[Strip]:
    """Return what a screen shows now as strips, with their styles, one a line."""
    return screen._compositor.render_strips()


def lay_out_next(screen: Screen[Any], container: Widget) -> None:
    """Have the next frame of a screen show the widgets of a container where they stand
    by now.

    Each of them would say so by a message. Before those come the screen would draw what
    has changed in the old places, and then all once more.
    """
    for widget in container.children:
        if widget._layout_required or widget._repaint_required:
            widget._layout_required = False
            widget._repaint_required = False
            screen._dirty_widgets.add(widget)
    container._clear_arrangement_cache()
    screen._layout_required = True
    screen.check_idle()


# -- base classes over private parts of Textual ------------------------------------


class KeyAnnouncer(Driver):
    """Announces a key to the App as soon as it is read, from the thread that reads.

    The App's own thread may be busy for some time before it gets to the key.
    """

    def send_message(self, message: Message) -> None:
        """Announce keys; pass every message on."""
        if isinstance(message, events.Key):
            cast(DiffApp, self._app).on_key_read()
        super().send_message(message)


class TerminalDriver(KeyAnnouncer, LinuxDriver):
    """Draws on the terminal, and says in TAKEN while it has it."""

    _stop_asked = False

    def start_application_mode(self) -> None:
        """Take the terminal, and let the process that waits know it before."""
        TAKEN[0] = 1
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Write what is left; then the terminal is given back."""
        super().close()
        TAKEN[0] = 0

    def _sigtstp_application(self, *_: Any) -> None:
        """Ask for a stop, which comes as soon as the event loop is free.

        Sent to the group of processes, the signal comes from the parent once more, and
        that may be while this handles the first. It is then the same stop.
        """
        self._stop_asked = True
        with suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        """Give the terminal back and stop, unless it was continued meanwhile."""
        if not self._stop_asked:
            return
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # until it is continued
        super()._sigtstp_application()

    def _sigcont_application(self, *_: Any) -> None:
        """Take the terminal again, unless it was never lost or the program ends.

        What was stopped without a chance to give the terminal back still reads it.
        """
        self._stop_asked = False  # as the system drops stops that wait
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        if TAKEN[0] or cast(DiffApp, self._app).ending:
            return
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        super()._sigcont_application()


def driver_named(name: str) -> type[Driver]:
    """Return the driver ``module:Class``, as a class that announces keys.

    UsageError says why there is none of that name.
    """
    module, _, symbol = name.partition(":")
    try:
        found = getattr(import_module(module), symbol)
        if not issubclass(found, Driver):
            raise TypeError("it is no driver of Textual")
    except (ImportError, AttributeError, TypeError, ValueError) as why:
        raise UsageError(
            f"{DRIVER_VARIABLE}={name}: {why}; unset it, or name one, as "
            "textual.drivers.web_driver:WebDriver"
        ) from None
    if found is LinuxDriver:
        return TerminalDriver
    return type(f"Announcing{symbol}", (KeyAnnouncer, found), {})


class DiffApp(App[None], inherit_bindings=False):
    """An App that writes only cells that differ, and that has hooks Textual has not.

    Subclasses override ``on_key_read``, ``on_frame`` and ``on_failure``. ``cells`` is
    what the terminal shows; ``ending`` says that the program was told to end.
    """

    ENABLE_COMMAND_PALETTE = False  # ours is opened by an action of the table

    def __init__(self, **options: Any) -> None:
        driver: type[Driver] = TerminalDriver
        named = named_driver(os.environ)
        if named:
            driver = driver_named(named)
        self._draws_elsewhere = driver is not TerminalDriver
        super().__init__(driver_class=driver, **options)
        self.cells = ScreenDiff()
        self.ending = False

    def on_key_read(self) -> None:
        """Know that a key was read. Called by the thread that reads the terminal."""

    def on_frame(self) -> None:
        """Know that a frame was handed to the driver."""

    def on_failure(self) -> None:
        """Know of an exception that ends the program, while it is being handled."""

    def sized(self, event: events.Resize) -> events.Resize:
        """A change of size, as the terminal is now.

        Several in one moment may come in another order than they were made in.
        """
        driver = self._driver
        if not isinstance(driver, TerminalDriver):
            return event
        size = Size(*driver._get_terminal_size())
        return event if size == event.size else events.Resize(size, size)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        """Write a frame: Textual calls this for each, and for nothing at all too."""
        if isinstance(renderable, LayoutUpdate | ChopsUpdate):
            self.cells.update = renderable
            if self._draws_elsewhere and self._driver is not None:
                self.cells.size = self._driver._size
            renderable = self.cells
        super()._display(screen, renderable)
        if not self._batch_count:  # else Textual holds the frame back
            self.on_frame()

    def _fatal_error(self) -> None:
        """End the App; Textual itself would print a traceback of many screens."""
        self.panic()

    def panic(self, *renderables: Any) -> None:
        """End the App with exit code 1, and print nothing of what Textual would."""
        self.on_failure()
        self._return_code = 1
        self._close_messages_no_wait()


class StripWidget(Widget):
    """Shows strips as they are: there is no border or padding to add.

    Subclasses override ``strips``.
    """

    ALLOW_SELECT = False

    def strips(self) -> list[Strip]:
        """A strip for each of the first lines; those that follow are blank."""
        raise NotImplementedError

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips, as they were made."""
        lines = self.strips()[crop.y : crop.bottom]
        missing = crop.height - len(lines)
        if missing:
            blank = self.filtered(Strip.blank(self.size.width, STYLES[""]))
            lines = lines + [blank] * missing
        span = crop.column_span
        if span == (0, self.size.width):
            return lines
        return [line.crop(*span) for line in lines]

    def filtered(self, line: Strip) -> Strip:
        """A line without what NO_COLOR forbids. The styles of panes have no colours of
        16 to be made true ones.
        """
        for colours in self.get_line_filters():
            if not isinstance(colours, ANSIToTruecolor):
                line = line.apply_filter(colours, self.background_colors[1])
        return line

    def show_anew(self, *regions: Region) -> None:
        """Have the next frame show regions, or all of it, anew.

        The screen is told at once: ``refresh`` sends a message to this widget, which
        sends one to the screen, and a key changes ten widgets.
        """
        if not self._is_mounted:
            self.refresh(*regions)
            return
        self._set_dirty(*regions)
        with suppress(NoScreen):  # it has been taken away
            self.screen._dirty_widgets.add(self)
            self.screen.check_idle()


class LeavingOnce(Screen[ScreenResultType]):
    """A screen that goes back once, though it be told so twice before it is gone.

    Textual takes away whatever is on top.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Go back to the screen below, unless that has been done."""
        if self.app.screen is self:
            return super().dismiss(result)
        return AwaitComplete()


class SteadyPalette(CommandPalette, LeavingOnce[None]):
    """Textual's palette, which acts on a key while the App hands it on.

    Textual's own acts some messages later. Then a key that was pressed behind it is
    typed into a palette that closes, and a second Enter takes away what lies below.
    Page keys do no harm before the list has been drawn: there they raise KeyError or
    IndexError, as of Textual 8.2.8.

    ``found_for`` is what was typed when the rows of the list were found; None: no
    search has ended yet.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            replace(row, priority=True)
            for row in CommandPalette.BINDINGS
            if isinstance(row, Binding)
        ),
        Binding("enter", "take_picked", priority=True),
    ]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.found_for: str | None = None

    def take(self, typed: str, place: int) -> None:
        """Do what the row at a place is for, of those found for what was typed."""
        raise NotImplementedError

    def action_take_picked(self) -> None:
        """Take the picked row; the first where the list is still that of less text."""
        typed = self.query_one(CommandInput).value.strip()
        picked = self.query_one(CommandList).highlighted
        self.take(typed, picked or 0 if self.found_for == typed else 0)

    @on(OptionList.OptionSelected)
    def _take_clicked(self, event: OptionList.OptionSelected) -> None:
        """Take the row that was clicked, instead of what Textual does with it."""
        event.stop()
        event.prevent_default()
        if self.found_for is not None:
            self.take(self.found_for, event.option_index)

    def _action_command_list(self, action: str) -> None:
        """Pass a key of the line that is typed on to the list below it."""
        with suppress(LookupError):
            super()._action_command_list(action)

    def _gather_commands(self, search_value: str) -> Worker[None]:
        """Look for rows, and for none where the palette closes meanwhile.

        Textual's search ends the program if its list has gone, as of 8.2.8.
        """
        undecorated: Any = CommandPalette._gather_commands
        search = undecorated.__wrapped__

        async def searched() -> None:
            with suppress(NoMatches):
                await search(self, search_value)
                self.found_for = search_value

        group = self._GATHER_COMMANDS_GROUP
        return self.run_worker(searched(), group=group, exclusive=True)


class PromptInput(Input):
    """An Input that acts on a key, or on its binding, while it handles the key.

    Textual's runs the binding of a key some messages later. Then a key that was pressed
    behind it could overtake it.
    """

    async def _on_key(self, event: events.Key) -> None:
        """Type a character, or run the action that is bound to the key."""
        await super()._on_key(event)
        event.prevent_default()  # Input's own handler was called in the line above
        bindings = self._bindings.key_to_bindings.get(event.key, ())
        if bindings:
            event.stop()
            await self.run_action(bindings[0].action)

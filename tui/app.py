"""The Textual application: its theme, its first screen, the palette, and a few keys.

Everything else is a screen's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import SystemCommand
from textual.command import CommandInput, DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme

from tui import themes
from tui.ansi import SteadyPalette
from tui.lifecycle import TerminalApp
from tui.terminal import forbids_colours

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession
    from tui.keymap import Keymap
    from tui.screens.debugger import DebuggerScreen

# Textual's theme of the terminal's own colours, by its name from 8.2.5 on, and before.
_OWN_COLOURS = "ansi-dark" if "ansi-dark" in BUILTIN_THEMES else "textual-ansi"


def _textual_theme(theme: themes.Theme) -> Theme:
    """One of our themes as Textual's widgets use it."""
    colours = theme.colours
    return Theme(
        f"kernbench-{theme.name}",
        primary=colours["lit"],
        warning=colours["mark"],
        error=colours["alarm"],
        foreground=colours["ink"],
        background=colours["paper"],
        surface=colours["off"],
        dark=theme.name != "light",
    )


def _looks_of(path: Path) -> tuple[int, ...]:
    """What of a file changes when it is written anew; () if it is gone."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _found(rows: Iterable[SystemCommand], typed: str) -> list[SystemCommand]:
    """Those rows that have every typed word in them, in the order of the palette: with
    all of it as one in the name first, then with the words there, then the others.
    """
    words = typed.lower().split()
    groups: tuple[list[SystemCommand], ...] = ([], [], [])
    for row in rows:
        title = row.title.lower()
        if " ".join(words) in title:
            groups[0].append(row)
        elif all(word in title for word in words):
            groups[1].append(row)
        elif all(word in f"{title} {row.help.lower()}" for word in words):
            groups[2].append(row)
    return [row for group in groups for row in group]


class Words(Provider):
    """Finds actions and commands by words of theirs, as these are typed."""

    async def discover(self) -> Hits:
        """All of them."""
        for row in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(row.title, row.callback, help=row.help)

    async def search(self, query: str) -> Hits:
        """Those with the words in them; Textual sorts them by their score."""
        rows = _found(self.app.get_system_commands(self.screen), query)
        for place, row in enumerate(rows):
            score = len(rows) - place
            yield Hit(score, row.title, row.callback, help=row.help)


class Palette(SteadyPalette):
    """Textual's command palette, with a cursor that does not blink."""

    def on_mount(self) -> None:
        """Stop the blinking: nothing is written while nothing is done."""
        self.query_one(CommandInput).cursor_blink = False

    def take(self, typed: str, place: int) -> None:
        """Close, and do what the row is for, before the next key is acted on."""
        rows = _found(self.app.get_system_commands(self), typed)
        if place < len(rows) and self.app.screen is self:  # not of a double click
            self.dismiss()
            rows[place].callback()


class KernbenchApp(TerminalApp):
    """One session on one screen, in the theme of that name; without colours where
    NO_COLOR is set.

    ``debugger`` is the screen of the session. There is none before a trace is read.
    ``came_from`` is the trace that was shown before this one, if there was another.
    """

    debugger: DebuggerScreen

    CSS_PATH = "app.tcss"
    COMMANDS: ClassVar[set[Any]] = {Words}

    def __init__(
        self,
        session: ReplaySession | None,
        name: str,
        ascii_only: bool = False,
        keymap: Keymap | None = None,
        theme: str = "dark",
    ) -> None:
        if forbids_colours(os.environ):
            theme = "none"
        else:  # Textual takes an empty one as set
            os.environ.pop("NO_COLOR", None)
        self.colours = themes.THEMES[theme]
        # The theme has to be chosen before App.__init__, or it is black on black.
        super().__init__(ansi_color=None if self.colours.has_colours else True)
        if self.colours.has_colours:
            self.register_theme(_textual_theme(self.colours))
            self.theme = f"kernbench-{theme}"
        else:
            self.theme = _OWN_COLOURS
        self.animation_level = "none"
        self._own_keymap = keymap
        self.trace_name = name
        self.came_from: Path | None = None
        self._looks: tuple[int, ...] = ()
        self.ascii_only = ascii_only
        if session is not None:
            self.debugger = self.screen_of(session)

    @property
    def keymap(self) -> Keymap:
        """The user's keys, read when they are first asked for: the table of actions
        that they are for knows all commands, so it is too heavy to be imported before
        the first frame.
        """
        if self._own_keymap is None:
            from tui.keymap import load

            self._own_keymap = load()
        return self._own_keymap

    def on_mount(self) -> None:
        """Show the first screen."""
        self.show_first()

    def show_first(self) -> None:
        """Show the debugger; an App that has to read a trace first overrides this."""
        self.push_screen(self.debugger)

    def screen_of(self, session: ReplaySession) -> DebuggerScreen:
        """Return a new screen on a session, and note the hash of its trace."""
        # Heavy, so not imported before the first frame.
        from tui.draw import ASCII, UNICODE, use_theme, without_colours
        from tui.screens.debugger import DebuggerScreen

        use_theme(self.colours)
        self.opened = session.trace.fingerprint()
        self._looks = _looks_of(session.trace.path)
        glyphs = ASCII if self.ascii_only else UNICODE
        if self.colours.name == "none":
            glyphs = without_colours(glyphs)
        return DebuggerScreen(session, self.trace_name, glyphs, self.keymap)

    async def on_event(self, event: events.Event) -> None:
        """Take the report of a cursor at the top for Shift+F3, which is sent alike.

        xterm, tmux and screen send ``CSI 1;2R`` for the key. Nobody asks for the
        report, so it is never one.
        """
        if isinstance(event, events.CursorPosition) and (event.x, event.y) == (1, 0):
            event = events.Key("f15", None)
        await super().on_event(event)

    async def act_on_key(self, key: events.Key) -> None:
        """Act on a key; what suspends or goes back does so whatever lies on top.

        The debugger's screen looks these keys up itself. Over it, or in a line that is
        typed, every key of "back" that types nothing is passed on as Esc.

        Most terminals send Alt and a letter as they send Esc and, at once, the letter.
        So it is these two, unless Alt and the letter have a meaning of their own.
        """
        typed = key.character
        if typed and key.key.startswith("alt+") and not self.keymap.action(key.key, ""):
            await self.act_on_key(events.Key("escape", "\x1b"))
            key = events.Key(typed, typed)
        if not key.is_printable and not self._debugger_takes_keys():
            action = self.keymap.action(key.key, None)
            if action == "suspend":
                self.action_suspend_process()
                return
            if action == "back":
                key = events.Key("escape", "\x1b")
        await super().act_on_key(key)

    def _debugger_takes_keys(self) -> bool:
        """Whether the debugger's screen is on top and no widget of it has the focus."""
        return self.focused is None and self.screen is getattr(self, "debugger", None)

    def reopen(self, session: ReplaySession) -> None:
        """Replace the screen by one on the file as it is now.

        It is set as the old one was: cursor, views, window of time, filter and search.
        Where the session stands at an op already, the cursor is there.
        """
        from tui.state import restore, state

        old = self.debugger
        new = self.screen_of(session)
        kept = state(old)
        kept["cursor"] = min(old.session.cursor, len(session) - 1)
        if session.cursor >= 0:
            kept["cursor"] = session.cursor
        new.notes += restore(new, kept)
        new.sought = old.sought
        new.desk.states["ops"] = old.desk.states["ops"]
        new.go_on_from(old)
        if old.prover.pending is not None:
            new.notes.append("the re-run was given up, as the trace was read again")
        while self.screen is not old:  # a page that came up while the file was read
            self.pop_screen()
        self.debugger = new
        self.switch_screen(new)
        new.call_after_refresh(self.settle)

    def go_to(self, session: ReplaySession) -> None:
        """Replace the screen by one on another trace, set as this one is."""
        self.came_from = self.debugger.desk.index.trace.path
        self.trace_name = session.trace.path.name
        self.reopen(session)
        self.debugger.done.clear()  # that was about the trace before

    def excuse(self) -> str:
        """A file that is written anew while it is open reads as anything."""
        if not hasattr(self, "debugger"):
            return ""
        path = self.debugger.desk.index.trace.path
        if _looks_of(path) == self._looks:
            return ""
        return f"{path} was changed while it was open; open it again"

    @property
    def run_note(self) -> str:
        """A word for how a run stands that goes on; empty: none is followed."""
        return ""

    def stay_on_end(self) -> str:
        """Stay on the last op of a run that goes on; why not, if so."""
        return "no run is followed: kernbench-tui --follow FILE does"

    def action_command_palette(self) -> None:
        """Open the palette."""
        self.push_screen(Palette(placeholder="an action, or a word of one"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the palette's rows: all actions, and commands without arguments."""
        from kernbench.replay.commands import listed
        from tui.actions import ACTIONS

        debugger = self.debugger
        for action in ACTIONS:
            name = f"{action.id.replace('_', ' ')}: {action.title}"
            keys = f"key {debugger.keymap.shown(action.id)}"
            yield SystemCommand(name, keys, partial(debugger.act, action.id))
        for command in listed():
            if not command.usage or command.usage.startswith("["):
                run = partial(debugger.run_line, command.name)
                yield SystemCommand(f":{command.name}", command.help, run)

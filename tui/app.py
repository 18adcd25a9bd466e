"""The Textual application: theme, first screen and palette; everything else is a screen's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import SystemCommand
from textual.command import CommandInput, CommandPalette
from textual.screen import Screen
from textual.theme import Theme

from tui.actions import ACTIONS
from tui.keymap import Keymap, load
from tui.manners import MannerlyApp

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession
    from tui.screens.debugger import DebuggerScreen

_PAPER, _PANEL = "#10161d", "#1a222c"
THEME = Theme(
    "kernbench", "#56b4e9", foreground="#d8dee6", background=_PAPER, surface=_PANEL
)


class Palette(CommandPalette):
    """Textual's; there a page key is a KeyError, or IndexError, before the list has been drawn."""

    def on_mount(self) -> None:
        """Nothing is written while nothing is done."""
        self.query_one(CommandInput).cursor_blink = False

    def _action_command_list(self, action: str) -> None:
        with suppress(LookupError):
            super()._action_command_list(action)


class KernbenchApp(MannerlyApp):
    """One session on one screen; without colours if NO_COLOR is set."""

    debugger: DebuggerScreen

    CSS_PATH = "app.tcss"

    def __init__(
        self,
        session: ReplaySession | None,
        name: str,
        ascii_only: bool = False,
        keymap: Keymap | None = None,
    ) -> None:
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if plain else None)
        self.register_theme(THEME)
        self.theme = "ansi-dark" if plain else THEME.name
        self.animation_level = "none"
        self.keymap = keymap or load()
        self._made = name, ascii_only
        if session is not None:
            self.debugger = self.screen_of(session)

    def on_mount(self) -> None:
        """Show the debugger."""
        self.show_first()

    def show_first(self) -> None:
        """The first screen."""
        self.push_screen(self.debugger)

    def screen_of(self, session: ReplaySession) -> DebuggerScreen:
        """A debugger's screen."""
        from tui.draw import ASCII, UNICODE
        from tui.screens.debugger import (
            DebuggerScreen,
        )  # heavy: not before the first frame

        name, plain = self._made
        self.opened = session.trace.fingerprint()
        return DebuggerScreen(session, name, ASCII if plain else UNICODE, self.keymap)

    async def on_event(self, event: events.Event) -> None:
        """Over the debugger, too, one key suspends, and those of back that type nothing are Esc."""
        if isinstance(event, events.CursorPosition) and (event.x, event.y) == (1, 0):
            event = events.Key("f15", None)  # Shift+F3: nobody asks for that report
        if isinstance(event, events.Key) and not (
            event.is_forwarded or event.is_printable
        ):
            own = self.focused is None and self.screen is getattr(
                self, "debugger", None
            )
            id = "" if own else self.keymap.action(event.key, None)
            if id == "suspend":
                return self.action_suspend_process()
            event = events.Key("escape", "\x1b") if id == "back" else event
        await super().on_event(event)

    def reopen(self, session: ReplaySession) -> None:
        """The file was read again: a new screen, standing as the old one."""
        from tui.state import restore, state

        old = self.debugger
        new = self.screen_of(session)
        kept = state(old)
        kept["cursor"] = min(old.session.cursor, len(session) - 1)
        new.notes += restore(new, kept)
        new.sought = old.sought
        new.desk.states["ops"] = old.desk.states["ops"]
        self.debugger = new
        self.switch_screen(self.debugger)
        self.debugger.call_after_refresh(self.settle)

    def action_command_palette(self) -> None:
        """Open the palette."""
        self.push_screen(Palette(placeholder="an action, or a word of one"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action, and every command that needs no argument."""
        from kernbench.replay.commands import listed

        for action in ACTIONS:
            keys, act = self.debugger.keymap.shown(action.id), self.debugger.act
            name = f"{action.id.replace('_', ' ')}: {action.title}"
            yield SystemCommand(name, f"key {keys}", partial(act, action.id))
        for command in listed():
            if not command.usage or command.usage.startswith("["):
                run = partial(self.debugger.run_line, command.name)
                yield SystemCommand(f":{command.name}", command.help, run)

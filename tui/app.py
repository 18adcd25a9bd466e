"""The Textual application: theme, first screen and palette; everything else is a screen's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen
from textual.theme import Theme

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from tui.actions import ACTIONS
from tui.keymap import Keymap, load
from tui.screens.debugger import DebuggerScreen
from tui.widgets.draw import ASCII, UNICODE

_PAPER, _PANEL = "#10161d", "#1a222c"
THEME = Theme("kernbench", "#56b4e9", foreground="#d8dee6", background=_PAPER, surface=_PANEL)


class KernbenchApp(App[None]):
    """One session on one screen; without colours if NO_COLOR is set."""

    CSS_PATH = "app.tcss"

    def __init__(
        self,
        session: ReplaySession,
        name: str,
        ascii_only: bool = False,
        keymap: Keymap | None = None,
    ) -> None:
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if plain else None)
        self.register_theme(THEME)
        self.theme = "ansi-dark" if plain else THEME.name
        self.animation_level = "none"
        self._made = name, ASCII if ascii_only else UNICODE, keymap or load()
        self.debugger = DebuggerScreen(session, *self._made)

    def on_mount(self) -> None:
        """Show the debugger."""
        self.push_screen(self.debugger)

    def reopen(self, session: ReplaySession) -> None:
        """The file was read again: a new screen, standing as the old one."""
        old, self.debugger = self.debugger, DebuggerScreen(session, *self._made)
        self.debugger.carry(old)
        self.switch_screen(self.debugger)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action, and every command that needs no argument."""
        for action in ACTIONS:
            keys, act = self.debugger.keymap.shown(action.id), self.debugger.action_act
            name = f"{action.id.replace('_', ' ')}: {action.title}"
            yield SystemCommand(name, f"key {keys}", partial(act, action.id))
        for command in COMMANDS:
            if not command.args or command.args.startswith("["):
                run = partial(self.debugger.run, command.name)
                yield SystemCommand(f":{command.name}", command.help, run)

"""The Textual application: theme, first screen and palette; everything else is a screen's."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.theme import Theme

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from tui.actions import ACTIONS, shown
from tui.screens.debugger import DebuggerScreen
from tui.widgets.draw import ASCII, UNICODE

THEME = Theme(
    name="kernbench",
    primary="#56b4e9",
    accent="#ffb000",
    foreground="#d8dee6",
    background="#10161d",
    surface="#1a222c",
    panel="#1a222c",
    dark=True,
)


class ActionProvider(Provider):
    """The palette's entries: every action, every command that takes no argument."""

    def _entries(self) -> list[tuple[str, Any]]:
        screen = self.screen
        if not isinstance(screen, DebuggerScreen):
            return []
        entries: list[tuple[str, Any]] = [
            (f"{a.title}  ({' '.join(map(shown, a.keys))})", lambda a=a: screen.action_act(a.id))
            for a in ACTIONS
            if a.id != "palette"
        ]
        asked = [c for c in COMMANDS if not c.args or c.args.startswith("[")]
        return entries + [(f":{c.name}  {c.help}", lambda c=c: screen.run(c.name)) for c in asked]

    async def discover(self) -> Hits:
        """All of them."""
        for text, call in self._entries():
            yield DiscoveryHit(text, call)

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for text, call in self._entries():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), call)


class KernbenchApp(App[None]):
    """One session on one screen; colours off if NO_COLOR is set."""

    CSS_PATH = "app.tcss"
    TITLE = "kernbench"
    COMMANDS: ClassVar[set[Any]] = {ActionProvider}
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, session: ReplaySession, name: str, ascii_only: bool = False) -> None:
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if plain else None)
        self.register_theme(THEME)
        self.theme = "ansi-dark" if plain else THEME.name
        self.animation_level = "none"
        self.debugger = DebuggerScreen(session, name, ASCII if ascii_only else UNICODE)

    def on_mount(self) -> None:
        """Show the debugger."""
        self.push_screen(self.debugger)

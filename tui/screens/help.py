"""A screen of text that scrolls: answers of commands; and the help, made from the tables."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.timeline import CLASSES
from tui.actions import ACTIONS, BY_ID, SCREEN_COMMANDS
from tui.keymap import PRESETS, Keymap
from tui.widgets.draw import Glyphs, Line
from tui.widgets.pane import Pane


class TextPane(Pane):
    """Lines that were made before, under a line of their own."""

    picks = False

    def __init__(
        self, session: ReplaySession, glyphs: Glyphs, title: str, text: list[Line]
    ) -> None:
        super().__init__(session, glyphs)
        self.title, self.titled, self._text = title, False, text

    def draw(self, width: int, height: int) -> list[Line]:
        """The part in view."""
        first = self.first_row(len(self._text), height - 1)
        last = min(first + height - 1, len(self._text))
        where = f"  lines {first + 1}-{last} of {len(self._text)}; j k PgDn scroll, Esc back"
        return [[(f" {self.title} ", "active"), (where, "dim")], *self._text[first:last]]


class TextScreen(Screen[None], inherit_bindings=False):
    """One pane over the whole screen; q and Esc go back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,question_mark,f1", "app.pop_screen", "back"),
        ("enter", "enter", "back"),
        ("j,down", "scroll(1)", "row down"),
        ("k,up", "scroll(-1)", "row up"),
        ("pagedown,space", "scroll(1, True)", "page down"),
        ("pageup", "scroll(-1, True)", "page up"),
        ("home,g", "scroll(-1000000000)", "first row"),
        ("end,G", "scroll(1000000000)", "last row"),
    ]

    def __init__(self, pane: Pane) -> None:
        super().__init__()
        self.pane = pane

    def compose(self) -> ComposeResult:
        """The pane, as large as the screen."""
        self.pane.styles.width = self.pane.styles.height = "100%"
        yield self.pane

    def action_enter(self) -> None:
        """Back."""
        self.app.pop_screen()

    def action_scroll(self, by: int, pages: bool = False) -> None:
        """Scroll by rows, or by what is shown."""
        (self.pane.scroll_page if pages else self.pane.scroll_rows)(by)


def help_lines(keymap: Keymap) -> list[Line]:
    """What is wrong with the keymap, keys by group, commands, letters."""
    lines: list[Line] = [[(note, "mark")] for note in keymap.notes]
    for group, actions in groupby(sorted(ACTIONS, key=attrgetter("group")), attrgetter("group")):
        lines.append([(group, "title")])
        for action in actions:
            lines.append([(f"  {keymap.shown(action.id):<16} ", "bold"), (action.title, "")])
    lines += [[], [("Commands of the : line", "title")]]
    commands = [*SCREEN_COMMANDS, *((c.name, c.args, c.help) for c in COMMANDS)]
    lines += [[(f"  {f'{name} {args}':<26} ", "bold"), (text, "")] for name, args, text in commands]
    presets = ", ".join(PRESETS)
    lines += [[], [("Keys are set in config.toml of the user's config directory", "title")]]
    lines += [[(f'  preset = "NAME", of {presets}', "")], [("  [keys]", "")]]
    lines += [[('  step = ["s", "right"], an action and all of its keys; actions are', "")]]
    lines += [[(f"  {part}", "dim")] for part in wrap(" ".join(BY_ID), 76)]
    lines += [[], [("Letters; a capital is busy for half of its cell or more", "title")]]
    lines += [[("  ", ""), (letter, letter), (f"  {name}", "")] for letter, name in CLASSES.items()]
    return lines

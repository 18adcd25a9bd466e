"""Screens over the whole screen: text that scrolls, as answers and the help; the list of stops."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from textwrap import wrap

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.time.op_classes import CLASSES
from tui.actions import ACTIONS, BY_ID, SCREEN_COMMANDS
from tui.keymap import PRESETS, Keymap
from tui.messages import RunCommand
from tui.widgets.draw import Glyphs, Line, clip
from tui.widgets.pane import Pane


class TextPane(Pane):
    """Lines that were made before, under a line of their own."""

    picks = False

    def __init__(
        self, session: ReplaySession, glyphs: Glyphs, title: str, text: list[Line]
    ) -> None:
        super().__init__(session, glyphs)
        self.title, self._text = title, text

    def draw(self, width: int, height: int) -> list[Line]:
        """The part in view."""
        first = self.first_row(len(self._text), height - 1)
        last = min(first + height - 1, len(self._text))
        where = f"  lines {first + 1}-{last} of {len(self._text)}; j k PgDn scroll, Esc back"
        return [
            [(f" {self.title} ", "active"), (where, "dim")],
            *self._text[first:last],
        ]


class StopsPane(Pane):
    """A row a stop, by number: Enter goes to where it is next, d deletes it."""

    header = 1

    def draw(self, width: int, height: int) -> list[Line]:
        """Head, rows."""
        stops = self.session.stops.all
        first = self.first_row(len(stops), height - 1, 0 if stops else None)
        where = (
            "  Enter goes to its next op, d deletes, Esc back"
            if stops
            else "  none is left"
        )
        lines: list[Line] = [[(" stops ", "active"), (where, "dim")]]
        for i, stop in enumerate(stops[first : first + height - 1], first):
            text = f"{' >'[i == self.at]} {stop.number} {stop.kind} {stop.what}"
            ops = f" at {stop.ops:,} ops"
            style = "pick" if i == self.at else ""
            lines.append(
                [(clip(text, width - len(ops), self.glyphs), style), (ops, "dim")]
            )
        return lines

    def enter(self) -> str | None:
        """To the next op of the picked stop, after the last to the first."""
        session, stops = self.session, self.session.stops
        if self.at is None or not stops.all:
            return None
        number = stops.all[self.at].number
        ops = (stops.next(op, True, number)[0] for op in (session.cursor, -2))
        return f"goto {next((op for op in ops if op is not None), 'start')}"

    def delete(self) -> None:
        """Forget the picked stop."""
        if self.at is not None and self.session.stops.all:
            self.session.stops.delete(self.session.stops.all[self.at].number)
            self.repaint()


# actions that have another meaning over a page
_MEANT = {
    "quit": "back",
    "help": "back",
    "play": "page_down",
    "first": "top",
    "last": "bottom",
}


class TextScreen(Screen[None], inherit_bindings=False):
    """One pane over the whole screen; q and Esc go back."""

    def __init__(self, pane: Pane) -> None:
        super().__init__()
        self.pane, pane.titled = pane, False

    def compose(self) -> ComposeResult:
        """The pane, as large as the screen."""
        self.pane.styles.width = self.pane.styles.height = "100%"
        yield self.pane

    def on_key(self, event: events.Key) -> None:
        """What scrolls a pane scrolls here; Enter goes where the picked row leads."""
        id: str = self.app.keymap.action(event.key, event.character)  # type: ignore[attr-defined]
        id = _MEANT.get(id, id)
        if id == "enter" and (line := self.pane.enter()) is not None:
            self.app.screen_stack[-2].post_message(RunCommand(line))
        if id in ("back", "enter"):
            self.app.pop_screen()
        elif event.key in ("d", "delete"):
            self.pane.delete()
        elif id and (scrolls := BY_ID[id]).method.startswith("pane.scroll"):
            attrgetter(scrolls.method)(self)(*scrolls.args)


def help_lines(keymap: Keymap, width: int = 80) -> list[Line]:
    """What is wrong with the keymap, keys by group, commands, how to set keys, letters."""
    lines: list[Line] = [
        [(part, "mark")] for note in keymap.notes for part in wrap(note, width)
    ]
    for group, actions in groupby(
        sorted(ACTIONS, key=attrgetter("group")), attrgetter("group")
    ):
        lines.append([(group, "title")])
        for action in actions:
            lines += _entry(keymap.shown(action.id), action.title, 16, width)
    lines += [[], [("Commands of the : line", "title")]]
    for name, args, text in (
        *SCREEN_COMMANDS,
        *((c.name, c.args, c.help) for c in COMMANDS),
    ):
        lines += _entry(f"{name} {args}", text, 26, width)
    lines += [
        [],
        [("Keys are set in config.toml of the user's config directory", "title")],
    ]
    lines += _entry(
        'preset = "perfetto"', f"or another of {', '.join(PRESETS)}", 21, width
    )
    text = f"below [keys]: an action, all its keys: {', '.join(BY_ID)}"
    lines += _entry('step = ["s", "right"]', text, 21, width)
    lines += [[], [("On the line on top", "title")]]
    lines += _entry(
        "!2 DIFF", "two outputs that were found wrong when it ran: 6 Diff", 16, width
    )
    lines += [
        [],
        [("Letters; a capital is busy for half of its cell or more", "title")],
    ]
    lines += [
        [("  ", ""), (letter, letter), (f"  {name}", "")]
        for letter, name in CLASSES.items()
    ]
    return lines


def _entry(head: str, text: str, wide: int, width: int) -> list[Line]:
    """``head`` in ``wide`` cells, ``text`` wrapped beside it, or below a longer head."""
    parts = wrap(text, max(width - wide - 3, 20)) or [""]
    heads = [f"  {head:<{wide}} "] + [" " * (wide + 3)] * len(parts)
    parts[:0] = [""] * (len(head) > wide)
    return [
        [(head, "bold"), (part, "")] for head, part in zip(heads, parts, strict=False)
    ]

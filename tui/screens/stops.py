"""The list of stops: where each is next, and how to be rid of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import BindingType

from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from tui.screens.help import TextScreen
from tui.widgets.draw import Glyphs, Line
from tui.widgets.pane import Pane


class StopsPane(Pane):
    """A row a stop."""

    title, header = "stops", 1

    def draw(self, width: int, height: int) -> list[Line]:
        """The stops, by number."""
        stops = self.session.stops.all
        first = self.first_row(len(stops), height - 1, 0 if stops else None)
        where = "  Enter goes to its next op, d deletes, Esc back" if stops else "  none is left"
        lines: list[Line] = [[(" stops ", "active"), (where, "dim")]]
        for i, stop in enumerate(stops[first : first + height - 1], first):
            here = i == self.at
            lines.append([(f"{'>' if here else ' '} {as_text(stop)}", "pick" if here else "")])
        return lines


class StopsScreen(TextScreen):
    """Enter runs ``goto``, d ``delete``."""

    BINDINGS: ClassVar[list[BindingType]] = [("d", "delete", "delete")]

    def __init__(self, session: ReplaySession, glyphs: Glyphs, run: Callable[[str], None]) -> None:
        pane = StopsPane(session, glyphs)
        pane.titled = False
        super().__init__(pane)
        self._run = run

    def action_enter(self) -> None:
        """To the next op of the picked stop, after the last to the first."""
        stops, session, at = self.pane.session.stops, self.pane.session, self.pane.at
        self.app.pop_screen()
        if at is not None and stops.all:
            number = stops.all[at].number
            op, _ = stops.next(session.cursor, True, number)
            op = stops.next(-2, True, number)[0] if op is None else op
            self._run(f"goto {'start' if op is None else op}")

    def action_delete(self) -> None:
        """Forget the picked stop."""
        stops, at = self.pane.session.stops, self.pane.at
        if at is not None and stops.all:
            stops.delete(stops.all[at].number)
            self.pane.repaint()

"""The list of stops: Enter goes to where one is next, d deletes it."""

from __future__ import annotations

from tui.widgets.draw import Line, clip
from tui.widgets.pane import Pane


class StopsPane(Pane):
    """A row a stop, by number."""

    header = 1

    def draw(self, width: int, height: int) -> list[Line]:
        """Head, rows."""
        stops = self.session.stops.all
        first = self.first_row(len(stops), height - 1, 0 if stops else None)
        where = "  Enter goes to its next op, d deletes, Esc back" if stops else "  none is left"
        lines: list[Line] = [[(" stops ", "active"), (where, "dim")]]
        for i, stop in enumerate(stops[first : first + height - 1], first):
            text = f"{' >'[i == self.at]} {stop.number} {stop.kind} {stop.what}"
            ops = f" at {stop.ops:,} ops"
            style = "pick" if i == self.at else ""
            lines.append([(clip(text, width - len(ops), self.glyphs), style), (ops, "dim")])
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

"""Pane 7: the kernel of the op, with the time and the stalls of each of its lines."""

from __future__ import annotations

from kernbench.replay.stalls import KINDS, LineTime, LineTimes
from kernbench.replay.text import time_text
from tui.widgets.draw import Line
from tui.widgets.pane import BEFORE, QUICK, Pane

_SERVED = ("compute", "load", "store", "issue", "idle")  # of KINDS; the others are stalls


class SourcePane(Pane):
    """Enter on a line goes to the next op of it on this PE; times are of the focus."""

    number, title, header, columns_a_step = 7, "Source", 1, 8

    def enter(self) -> str | None:
        """To the next op of the picked line."""
        return f"to-line {self._numbers[self.at]}" if self.at is not None else None

    def draw(self, width: int, height: int) -> list[Line]:
        """The lines around the op's own; those with times only, if there is no text."""
        session, name = self.session, self.session.focus()[1]
        if session.cursor < 0:
            self.at = None
            return [BEFORE]
        times = self.answer(
            ("columns", ("lines", name)),
            "line times",
            lambda tell: session.lines(name, tell),
            quick=len(session) < QUICK,
        )
        found = times.rows if isinstance(times, LineTimes) else ()
        source, self.column = session.source(), 0 if self.seek else self.column
        sites = [row.site.rpartition(":") for row in found]
        mine = {
            int(n): row
            for row, (file, _, n) in zip(found, sites, strict=True)
            if file == source.file
        }
        self._numbers = [*range(1, len(source.text) + 1)] or sorted({source.line, *mine})
        text = dict(enumerate(source.text, 1))
        head = f"{'line':>6} {'share':>6} {'time':>9} {'stalls':>6} {'most':<11}"
        lines: list[Line] = [
            [(head, "dim"), (f"  {name or 'all PEs'}, {source.function}", "title")]
        ]
        if not isinstance(times, LineTimes):
            lines = [times]
        elif not text:
            lines = [[(f" {source.file}: its text is not in this trace", "dim")]]
        room = max(height - 1, 1)
        first = self.first_row(len(self._numbers), room, self._numbers.index(source.line))
        for i, n in enumerate(self._numbers[first : first + room], first):
            style = "pick" if i == self.pick else "here" if n == source.line else "dim"
            mark = (f"{'>' if n == source.line else ' '}{n:>5}", style)
            code = (text.get(n, "")[self.column :], "bold" if n == source.line else "")
            lines.append([mark, *_took(mine.get(n)), code])
        return lines


def _took(row: LineTime | None) -> Line:
    if row is None:
        return [(" " * 37, "")]
    stalls = {kind: ns for kind, ns in row.kinds.items() if kind in KINDS and kind not in _SERVED}
    share = sum(stalls.values()) / max(row.time, 1e-12)
    most = max(stalls, key=stalls.__getitem__, default="")
    line: Line = [(f" {row.share:>6.1%} {time_text(row.time):>9} ", "flight")]
    return [*line, (f"{share:>6.0%} {most:<11}  ", "mark" if share >= 0.5 else "title")]

"""Pane 7: the kernel of the op, with the time and the stalls of each of its lines."""

from __future__ import annotations

import numpy as np

from kernbench.replay.text import time_text
from kernbench.replay.time.pieces import KINDS
from kernbench.replay.time.stalls import LineTime, LineTimes
from tui.widgets.draw import Line, clip
from tui.widgets.pane import BEFORE, LIGHT, QUICK, Pane

_LINE = (1 << 32) - 1  # of a site
_SERVED = (
    "compute",
    "load",
    "store",
    "issue",
    "idle",
)  # of KINDS; the others are stalls


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
            light=len(session) < LIGHT,
        )
        found = times.rows if isinstance(times, LineTimes) else ()
        source, self.column = session.source(), 0 if self.seek else self.column
        sites = zip((row.site.rpartition(":") for row in found), found, strict=True)
        took = {
            int(n): _took(row) for (file, _, n), row in sites if file == source.file
        }
        self._numbers = [*range(1, len(source.text) + 1)] or sorted(
            {source.line, *took}
        )
        text = dict(enumerate(source.text, 1))
        wide = max((len(stalls) for _, stalls, _ in took.values()), default=0)
        room = max(width - 25 - wide, 8)
        head = f"{'line':>6} {'share':>6} {'time':>9} {'stalls'[:wide]:<{wide}}"
        lines: list[Line] = [
            [(head, "dim"), (f" {name or 'all PEs'}, {source.function}", "title")]
        ]
        if self.column or max(map(len, source.text), default=0) > room:
            lines[0].append(("  h l pan", "dim"))
        if not isinstance(times, LineTimes):
            lines = [times]
        elif not text:
            lines = [[(f" {source.file}: its text is not in this trace", "dim")]]
        first = self.first_row(
            len(self._numbers), height - 1, self._numbers.index(source.line)
        )
        now = session.sites(np.array([session.cursor, *session.in_flight()]))
        flying = {site & _LINE for site in now[now >> 32 == now[0] >> 32].tolist()}
        for i, n in enumerate(self._numbers[first : first + self.room], first):
            here = n == source.line
            style = "pick" if i == self.pick else "here" if here else "dim"
            mark = (f"{'>' if here else '*' if n in flying else ' '}{n:>5}", style)
            share, stalls, ink = took.get(n, ("", "", ""))
            code, left = (
                text.get(n, "")[self.column :],
                text.get(n, "")[: self.column].strip(),
            )
            code = clip(
                f"{self.glyphs.more}{code[1:]}" if left else code, room, self.glyphs
            )
            cells = [(f"{share:18}", "flight"), (f"{stalls:<{wide}} ", ink)]
            lines.append([mark, *cells, (code, "bold" if here else "")])
        return lines


def _took(row: LineTime) -> tuple[str, str, str]:
    """Its share and time; the share of its stalls and what most of them were for; their style."""
    stalls = {
        kind: ns
        for kind, ns in row.kinds.items()
        if kind in KINDS and kind not in _SERVED
    }
    share = sum(stalls.values()) / max(row.time, 1e-12)
    most = f"{share:.0%} {max(stalls, key=stalls.__getitem__)}" if stalls else ""
    times = f" {row.share:>6.1%} {time_text(row.time):>9} "
    return times, most, "mark" if share >= 0.5 else "title"

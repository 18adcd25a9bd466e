"""Pane 2: the op log around the cursor, and everything recorded about the current op."""

from __future__ import annotations

import textwrap

from kernbench.replay.session import OpRow
from kernbench.replay.text import as_text, time_text
from tui.widgets.draw import Line, clip
from tui.widgets.pane import Pane


class OpsPane(Pane):
    """A virtual list: only the rows on screen are asked for."""

    number, title, header = 2, "Ops", 1

    def enter(self) -> str | None:
        """Go to the picked op."""
        return None if self.at is None or not self.total else f"goto {self.at}"

    def draw(self, width: int, height: int) -> list[Line]:
        """The list above the details, or beside them where that is wide enough."""
        if width >= 76:
            left = min(width // 2, 60)
            rows, details = self._list(left, height), self._details(width - left - 2, height)
            rows += [[(" " * left, "")]] * (len(details) - len(rows))
            details += [[]] * (len(rows) - len(details))
            bar = (f"{self.glyphs.bar} ", "rule")
            return [[*row, bar, *detail] for row, detail in zip(rows, details, strict=True)]
        share = height - min(max(height * 2 // 5, 4), 18) if height > 8 else height
        return [*self._list(width, share), *self._details(width, height - share)]

    def _list(self, width: int, height: int) -> list[Line]:
        session = self.session
        room = max(height - 1, 1)
        first = self.first_row(len(session), room, max(session.cursor, 0) if len(session) else None)
        flying = set(session.in_flight())
        digits = len(str(len(session)))
        head = f"  {'op':>{digits}} {'start':>9} {'for':>8}   name"
        lines: list[Line] = [[(head[:width].ljust(width), "dim")]]
        lines += [self._row(row, digits, width, row.op in flying) for row in session.rows(first, room)]
        if not len(session):
            lines.append([("the op log is empty".ljust(width), "dim")])
        return lines

    def _row(self, row: OpRow, digits: int, width: int, flying: bool) -> Line:
        session = self.session
        here = row.op == session.cursor
        mark = ">" if here else "*" if flying else " "
        style = "pick" if row.op == self.pick else "here" if here else "flight" if flying else ""
        head = f"{mark} {row.op:>{digits}} {time_text(row.t_start):>9} {time_text(row.t_end - row.t_start):>8} "
        nodes, c = session.trace.nodes, int(session.components[row.op])
        place = f"pe{int(nodes.pe[c])} " if nodes.pe[c] >= 0 else ""
        if len(set(session.trace.nodes.cube[session.timelines.components].tolist()) - {-1}) > 1:
            place = f"c{int(nodes.cube[c])}." + place if nodes.cube[c] >= 0 else place
        tail = clip(f" {place}{row.name.removeprefix('TileToken/')}", width - len(head) - 1, self.glyphs.more)
        letter = style if here else row.letter
        return [(head, style), (row.letter, letter), (tail.ljust(width - len(head) - 1), style)]

    def _details(self, width: int, height: int) -> list[Line]:
        session = self.session
        if height <= 0:
            return []
        if session.cursor < 0:
            return [[("before the first op: ", "dim"), ("s", "bold"), (" steps to it", "dim")]]
        lines: list[Line] = []
        text = as_text(session.details(session.cursor), 400).splitlines()
        source = as_text(session.source(session.cursor), 400).splitlines()
        facts = [line for line in text if not line.startswith("  ")]
        for line in [*facts, *source, *(line for line in text if line.startswith("  "))]:
            style = "wait" if line.startswith("waited") else "bold" if line.startswith(("op", ">")) else ""
            wrapped = textwrap.wrap(line, max(width, 8), subsequent_indent="    ", drop_whitespace=False)
            lines += [[(part, style)] for part in wrapped]
        if len(lines) > height:
            lines[height - 1 :] = [[(f"{self.glyphs.more} :op shows all", "dim")]]
        return lines

"""Pane 2: the op log around the cursor, and everything recorded about the current op."""

from __future__ import annotations

from bisect import bisect_right
from textwrap import wrap
from typing import Any

from kernbench.replay import ReplaySession
from kernbench.replay.answers import OpRow
from kernbench.replay.text import time_text
from tui.widgets.draw import Glyphs, Line, clip
from tui.widgets.pane import BEFORE, Pane

_FIRST = (
    "op ",
    "time ",
    "call ",
    ">",
    "waited ",
    "after ",
)  # words that such lines begin with


class OpsPane(Pane):
    """A virtual list: only the rows on screen are asked for."""

    number, title, header = 2, "Ops", 1

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.where, self._kept = "", range(len(session))

    def keep(self, where: str, ops: Any) -> None:
        """List only ``ops``, those that fit ``where``; None: all."""
        self.where, self._kept = where, range(len(self.session)) if ops is None else ops
        self.follow()

    def enter(self) -> str | None:
        """Go to the picked op."""
        return (
            None
            if self.at is None or not len(self._kept)
            else f"goto {self._kept[self.at]}"
        )

    def draw(self, width: int, height: int) -> list[Line]:
        """The list above the details, or beside them where that is wide enough."""
        if width < 76:
            share = height - min(height * 9 // 20, 22) if height > 8 else height
            return [*self._list(width, share), *self._details(width, height - share)]
        left, bar = min(max(width // 2, 46), 60), (f"{self.glyphs.bar} ", "rule")
        rows, details = (
            self._list(left, height),
            self._details(width - left - 2, height),
        )
        rows += [[(" " * left, "")]] * (height - len(rows))
        details += [[]] * (height - len(details))
        return [[*row, bar, *detail] for row, detail in zip(rows, details, strict=True)]

    def _list(self, width: int, height: int) -> list[Line]:
        session, room = self.session, max(height - 1, 1)
        kept = self._kept
        here = max(bisect_right(kept, session.cursor) - 1, 0) if len(kept) else None
        first = self.first_row(len(kept), room, here)
        flying, digits = set(session.in_flight()), len(str(len(session)))
        takes = f" {'takes':>8}" * (width >= 42)
        name = (
            f"{len(kept):,} fit {self.where}"
            if self.where
            else "name"
            if len(kept)
            else "no ops"
        )
        head = f"  {'op':>{digits}} {'start':>9}{takes}   {name}"
        rows = session.rows_of(kept[first : first + room])
        lines = [
            self._row(row, digits, width, row.op in flying, i == self.pick)
            for i, row in enumerate(rows, first)
        ]
        return [[(clip(head, width, self.glyphs), "dim")], *lines]

    def _row(
        self, row: OpRow, digits: int, width: int, flying: bool, picked: bool
    ) -> Line:
        here = row.op == self.session.cursor
        style = "pick" if picked else "here" if here else "flight" if flying else ""
        head = f"{'>' if here else '*' if flying else ' '} {row.op:>{digits}}"
        head += f" {time_text(row.t_start):>9} "
        head += f"{time_text(row.t_end - row.t_start):>8} " * (width >= 42)
        place = self.session.label(int(self.session.components[row.op]))
        text = f" {place} {row.name.removeprefix('TileToken/')}".replace("  ", " ")
        tail = clip(text, max(width - len(head) - 1, 0), self.glyphs)
        return [
            (head, style),
            (row.letter, style if here else row.letter),
            (tail, style),
        ]

    def _details(self, width: int, height: int) -> list[Line]:
        session, lines = self.session, list[Line]()
        if session.cursor < 0 or height <= 0:
            return [BEFORE][:height]
        facts, source = session.details(session.cursor), session.source(session.cursor)
        for row in sorted([*source.lines(400), *facts.lines(400)], key=_rank):
            style = ("bold", "", "", "bold", "mark", "", "dim")[_rank(row)]
            long = len(row) > width  # wrapping is slow
            parts = wrap(row, max(width, 8), subsequent_indent="  ") if long else [row]
            lines += [[(part, style)] for part in parts]
        if len(lines) > height:
            lines[height - 1 :] = [
                [(f"{self.glyphs.more} :op and :source show all", "dim")]
            ]
        return lines


def _rank(row: str) -> int:
    """Where a line of what is recorded of an op belongs; the source around and parameters last."""
    return next(
        (i for i, head in enumerate(_FIRST) if row.startswith(head)), len(_FIRST)
    )

"""Pane 3: a row a tile of the composite at the cursor, a colour and a letter a stage."""

from __future__ import annotations

from collections import Counter

from kernbench.replay.text import time_text
from kernbench.replay.tiles import STAGE_LETTERS, TileRow
from tui.widgets.draw import Line, cells
from tui.widgets.pane import Pane

_NAMES = {"R": "dma read", "F": "fetch", "G": "gemm", "M": "math", "S": "store", "W": "dma write"}


class TilesPane(Pane):
    """Time spans what the visible rows span, so scrolling down also moves right."""

    number, title, header = 3, "Tiles", 2

    def enter(self) -> str | None:
        """Go to the first stage of the picked tile."""
        rows = self.session.tiles().rows
        return f"goto {rows[self.at].spans[0].op}" if self.at is not None and self.at < len(rows) else None

    def draw(self, width: int, height: int) -> list[Line]:
        """Head, legend, rows."""
        tiles = self.session.tiles()
        if tiles.composite is None:
            return [[(tiles.note, "dim")]]
        room = max(height - 2, 1)
        first = self.first_row(len(tiles.rows), room, tiles.current)
        rows = tiles.rows[first : first + room]
        t0 = min((row.spans[0].t0 for row in rows), default=tiles.t0)
        t1 = max((row.spans[-1].t1 for row in rows), default=tiles.t1)
        inside = " " if tiles.current is not None else " last "
        head = f"{inside}composite #{tiles.composite} on {tiles.component}: {len(tiles.rows)} tiles, "
        head += f"{time_text(tiles.t1 - tiles.t0)}; shown {time_text(t0)} to {time_text(t1)}"
        legend: Line = [(" ", "")]
        for letter, name in _NAMES.items():
            legend += [(letter, letter), (f" {name}  ", "dim")]
        legend += [(".", "wait"), (" waits", "dim")]
        label = max((len(_index(row)) for row in rows), default=0) + 2
        chart = max(width - label - 18, 8)
        lines: list[Line] = [[(head, "title")], legend]
        for i, row in enumerate(rows, first):
            here = i == tiles.current
            style = "pick" if i == self.pick else "here" if here else "label"
            name = f"{'>' if here else ' '}{_index(row)}".ljust(label - 1)
            lines.append([(name, style), (" ", ""), *self._chart(row, t0, t1, chart), *_waited(row)])
        return lines

    def _chart(self, row: TileRow, t0: float, t1: float, columns: int) -> Line:
        scale = max(t1 - t0, 1e-9) / columns
        chars, styles = [" "] * columns, [""] * columns

        def paint(char: str, style: str, low: float, high: float) -> None:
            first = min(max(int((low - t0) / scale), 0), columns - 1)
            for i in range(first, min(max(int((high - t0) / scale), first + 1), columns)):
                chars[i], styles[i] = char, style

        for wait in row.waits:
            paint(".", "wait", wait.t0, wait.t1)
        for span in row.spans:
            letter = STAGE_LETTERS[span.stage]
            paint(letter, letter, span.t0, span.t1)
        time = self.session.time
        if self.session.cursor >= 0 and t0 <= time < t1:
            at = min(int((time - t0) / scale), columns - 1)
            if chars[at] == " ":
                chars[at], styles[at] = self.glyphs.bar, "cursor"
            elif styles[at] != "wait":
                styles[at] = f"{styles[at]}|"
        return cells("".join(chars), styles)


def _index(row: TileRow) -> str:
    return ",".join(map(str, row.index))


def _waited(row: TileRow) -> Line:
    """How long the tile waited, and for what most."""
    by: Counter[str] = Counter()
    for wait in row.waits:
        by[wait.reason] += wait.t1 - wait.t0  # type: ignore[assignment]
    if not by:
        return []
    return [(f" {time_text(sum(by.values()))} {by.most_common(1)[0][0]}", "wait")]

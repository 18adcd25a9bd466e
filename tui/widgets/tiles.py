"""Pane 3: a row a tile of the composite at the cursor, a colour and a letter a stage."""

from __future__ import annotations

from collections import Counter

from kernbench.replay.text import time_text
from kernbench.replay.tiles import STAGE_LETTERS, TileRow, Tiles
from tui.widgets.draw import Line
from tui.widgets.pane import Pane


class TilesPane(Pane):
    """Time spans what the visible rows span, so scrolling down also moves right."""

    number, title, header = 3, "Tiles", 2

    def enter(self) -> str | None:
        """Go to the first stage of the picked tile."""
        rows = self.session.tiles().rows
        return f"goto {rows[self.at].spans[0].op}" if rows and self.at is not None else None

    def draw(self, width: int, height: int) -> list[Line]:
        """Head, legend, rows."""
        tiles = self.session.tiles()
        if not tiles.rows:
            return [[(f" {tiles.note or 'this composite has no tiles'}", "dim")]]
        room = max(height - 2, 1)
        first = self.first_row(len(tiles.rows), room, tiles.current)
        rows = tiles.rows[first : first + room]
        t0, t1 = min(row.spans[0].t0 for row in rows), max(row.spans[-1].t1 for row in rows)
        names = [",".join(map(str, row.index)) for row in rows]
        label = max(map(len, names)) + 2
        chart = max(width - label - 22, 8)  # beside: how long it waited, for what
        lines = [self._head(tiles, t0, t1), self._legend()]
        for i, (row, index) in enumerate(zip(rows, names, strict=True), first):
            here = i == tiles.current
            style = "pick" if i == self.pick else "here" if here else "title"
            name = f"{'>' if here else ' '}{index}".ljust(label - 1)
            strip = self._chart(row, t0, t1, chart)
            lines.append([(name, style), (" ", ""), *strip, *_waited(row)])
        return lines

    def _head(self, tiles: Tiles, t0: float, t1: float) -> Line:
        inside = tiles.current is not None or tiles.composite == self.session.cursor
        near = "" if inside else "last "
        whole = f"composite #{tiles.composite} on {tiles.component}"
        if tiles.composite is None:
            whole = "a composite that never ended"
        text = f" {near}{whole}: {len(tiles.rows)} tiles,"
        return [(f"{text} {time_text(t1 - t0)} from {time_text(t0)}", "title")]

    def _legend(self) -> Line:
        line: Line = [(" ", "")]
        for stage, letter in STAGE_LETTERS.items():
            line += [(letter, letter), (f" {stage.lower()}  ", "dim")]
        return [*line, (".", "mark"), (" waits", "dim")]

    def _chart(self, row: TileRow, t0: float, t1: float, columns: int) -> Line:
        scale = max(t1 - t0, 1e-9) / columns
        line = [(" ", "")] * columns

        def cells(low: float, high: float) -> range:
            first = min(max(int((low - t0) / scale), 0), columns - 1)
            return range(first, min(max(int((high - t0) / scale), first + 1), columns))

        for span in row.spans:
            for i in cells(span.t0, span.t1):
                line[i] = (STAGE_LETTERS[span.stage],) * 2
        heads = {cells(span.t0, span.t1)[0] for span in row.spans}
        for wait in row.waits:  # within a stage too, but its first letter stays
            for i in set(cells(wait.t0, wait.t1)) - heads:
                line[i] = (".", line[i][1] or "mark")
        time = self.session.time
        if self.session.cursor >= 0 and t0 <= time < t1:
            at = min(int((time - t0) / scale), columns - 1)
            char, style = line[at]
            line[at] = (char, f"{style}|") if len(style) == 1 else (self.glyphs.bar, "mark")
        return line


def _waited(row: TileRow) -> Line:
    by: Counter[str] = Counter()
    for wait in row.waits:
        by[wait.reason] += wait.t1 - wait.t0  # type: ignore[assignment]  # ns
    if not by:
        return []
    return [(f" {time_text(sum(by.values()))} {by.most_common(1)[0][0]}", "mark")]

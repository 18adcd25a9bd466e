"""Pane 3: the composites in order; of the open ones a row a tile, a colour and a letter a stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.op_classes import STAGE_LETTERS
from kernbench.replay.time.tiles import TileRow, Tiles, TileWindow
from tui.widgets.draw import Line
from tui.widgets.pane import Pane

# what a tile waits for: a turn, bytes on their way; "," is for all else, as an operand
_DOTS = dict.fromkeys(("engine", "window", "dma_slot"), ".")
_DOTS |= dict.fromkeys(("link", "hbm_channel"), ":")
_QUICK = 100_000  # ops whose composites are found in no time
Bar = tuple[float, float, str, str]  # from, to, glyph, style (of a wait none)


class TilesPane(Pane):
    """Time spans what the visible rows span, so scrolling down also moves right.

    The cursor's composite is open, in the other view all that run at its time.
    """

    number, title, header = 3, "Tiles", 2
    views = ("composite", "all at its time")
    _near: TileWindow | None = None  # what ran at the time of a composite
    _rows: Sequence[tuple[int, TileRow | None]] = ()  # in view: a composite, or a tile

    def enter(self) -> str | None:
        """Go to the stage that the picked tile is in at the cursor's time, or to a composite."""
        if self.at is None or not 0 <= self.at - self.top < len(self._rows):
            return None
        op, tile = self._rows[self.at - self.top]
        if tile is not None:
            begun = [span for span in tile.spans if span.t0 <= self.session.time]
            op = (begun or tile.spans[:1])[-1].op
        return f"goto {op}"

    def _found(self) -> tuple[Tiles, ...] | Line:
        """The open composites, the cursor's first."""
        session, quick = self.session, len(self.session) <= _QUICK
        ready = self.answer(
            ("columns", "composites"),
            "composites",
            lambda _: session.composites.positions,
            quick,
        )
        if isinstance(ready, list):
            return ready
        mine = session.tiles()
        if not self.view or mine.composite is None:
            return (mine,)
        near = self._near  # steps from PE to PE stay in it
        if near is None or mine.t0 >= near.t1 or mine.t1 <= near.t0:
            key, span = ("columns", ("tiles", mine.composite)), (mine.t0, mine.t1)
            answer = self.answer(
                key, "tiles", lambda _: session.tiles_between(*span), quick
            )
            if isinstance(answer, list):
                return answer
            near = self._near = answer
        return mine, *(
            other for other in near.composites if other.composite != mine.composite
        )

    def draw(self, width: int, height: int) -> list[Line]:
        """Head, legend, rows."""
        found = self._found()
        if isinstance(found, list):
            return [found]
        tiles = found[0]
        if not tiles.rows and tiles.composite is None:
            return [[(f" {tiles.note or 'this composite has no tiles'}", "dim")]]
        here = self._place(found, max(height - 2, 1))
        seen = [(r.spans[0].t0, r.spans[-1].t1) for _, r in self._rows if r is not None]
        starts, ends = zip(
            *(seen or [self._span(op) for op, _ in self._rows]), strict=True
        )
        t0, t1 = min(starts), max(ends)
        names = [self._title_of(op, row) for op, row in self._rows]
        label = max(map(len, names)) + 2
        chart = max(width - label - 22, 8)  # beside: how long it waited, for what
        lines, flying = (
            [self._head(tiles, t0, t1), self._legend()],
            set(self.session.in_flight()),
        )
        for i, ((op, row), text) in enumerate(
            zip(self._rows, names, strict=True), self.top
        ):
            there = not flying.isdisjoint([s.op for s in row.spans] if row else [op])
            style = "here" if i == here else "flight" if there else "title"
            style = "pick" if i == self.pick else style
            name = f"{'>' if i == here else '*' if there else ' '}{text}".ljust(
                label - 1
            )
            bars = [(*self._span(op), "=", "rule")] if row is None else _bars(row)
            strip = self._chart(bars, t0, t1, chart)
            lines.append(
                [(name, style), (" ", ""), *strip, *(_waited(row) if row else [])]
            )
        return lines

    def _place(self, found: tuple[Tiles, ...], room: int) -> int:
        """Find the rows in view; return the cursor's."""
        ops = [
            -1 if x.composite is None else x.composite for x in found
        ]  # -1: it never ended
        whole = self.session.composites.positions if ops[0] >= 0 else np.array(ops)
        opened = {
            int(np.searchsorted(whole, op)): x.rows
            for op, x in zip(ops, found, strict=True)
        }
        sizes = np.ones(len(whole), np.int64)
        sizes[[*opened]] += [*map(len, opened.values())]
        ends, mine, current = np.cumsum(sizes), next(iter(opened)), found[0].current
        here = int(ends[mine] - sizes[mine]) + (0 if current is None else 1 + current)
        first = self.first_row(int(ends[-1]), room, here)
        shown = np.arange(first, min(first + self.room, self.total))
        at = np.searchsorted(ends, shown, "right")
        pairs = zip(at.tolist(), (shown - (ends - sizes)[at]).tolist(), strict=True)
        self._rows = [
            (int(whole[i]), opened[i][n - 1] if n else None) for i, n in pairs
        ]
        return here

    def _span(self, op: int) -> tuple[float, float]:
        columns, row = self.session.trace.op_columns, self.session.trace.order[op]
        return (
            (float(columns.t_start[row]), float(columns.t_end[row]))
            if op >= 0
            else (0.0, 0.0)
        )

    def _title_of(self, op: int, row: TileRow | None) -> str:
        if row is not None:
            return f" {','.join(map(str, row.index))}"
        if op < 0:
            return "a composite that never ended"
        return f"#{op} {self.session.label(int(self.session.components[op]))}"

    def _head(self, tiles: Tiles, t0: float, t1: float) -> Line:
        op, inside = tiles.composite, tiles.current is not None
        near = "" if inside or op == self.session.cursor else "last "
        whole = (
            self._title_of(-1, None)
            if op is None
            else f"composite {self._title_of(op, None)}"
        )
        count = count_text(len(tiles.rows), "tile")
        return [
            (
                f" {near}{whole}: {count}; {time_text(t1 - t0)} from {time_text(t0)}",
                "title",
            )
        ]

    def _legend(self) -> Line:
        line: Line = [(" ", "")]
        for stage, letter in STAGE_LETTERS.items():
            line += [
                (letter, letter),
                (f" {stage.lower().removeprefix('dma_')} ", "dim"),
            ]
        for dot, what in ((".", "queue"), (":", "link/hbm"), (",", "other")):
            line += [(f" {dot}", "mark"), (f" {what}", "dim")]
        return line

    def _chart(self, bars: list[Bar], t0: float, t1: float, columns: int) -> Line:
        """Bars in their order, a wait not over the first cell of a stage; and the cursor."""
        scale = max(t1 - t0, 1e-9) / columns
        line, heads = [(" ", "")] * columns, set[int]()
        for low, high, glyph, style in bars:
            first = min(max(int((low - t0) / scale), 0), columns - 1)
            cells = range(first, min(max(int((high - t0) / scale), first + 1), columns))
            for i in cells if low <= t1 and high >= t0 else ():
                if style or i not in heads:
                    line[i] = glyph, style or line[i][1] or "mark"
            heads |= {first} if style else set()
        time = self.session.time
        if self.session.cursor >= 0 and t0 <= time < t1:
            at = min(int((time - t0) / scale), columns - 1)
            char, style = line[at]
            line[at] = (
                (char, f"{style}|") if len(style) == 1 else (self.glyphs.bar, "mark")
            )
        return line


def _bars(row: TileRow) -> list[Bar]:
    """Its stages, then its waits."""
    bars = [(s.t0, s.t1, letter := STAGE_LETTERS[s.stage], letter) for s in row.spans]
    return bars + [(w.t0, w.t1, _DOTS.get(w.reason, ","), "") for w in row.waits]


def _waited(row: TileRow) -> Line:
    by: dict[str, float] = defaultdict(float)
    for wait in row.waits:
        by[wait.reason] += wait.t1 - wait.t0
    return (
        [(f" {time_text(sum(by.values()))} {max(by, key=by.__getitem__)}", "mark")]
        if by
        else []
    )

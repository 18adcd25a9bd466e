"""Pane 4: what memory holds at this op, and the numbers of one tensor, changes marked."""

from __future__ import annotations

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.memory import MemoryEntry, TensorView
from kernbench.replay.text import number_text
from tui.widgets.draw import Glyphs, Line, clip, column_numbers, flat2, length, number_cells, window
from tui.widgets.pane import Pane


class MemoryPane(Pane):
    """Shows the tensor that the op writes, else reads; Enter on an allocation keeps that one."""

    number, title, header, columns_a_step = 4, "Memory", 1, 4

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.kept: str | None = None
        self._row, self._page = 0, 1
        self._names: list[str] = []

    def enter(self) -> str | None:
        """Keep showing the picked allocation's tensor; again on the same lets go."""
        if self.at is not None and self._names:
            name = self._names[self.at]
            self.kept, self.seek = None if name == self.kept else name, True
            self.repaint()
        return None

    def scroll_page(self, by: int) -> None:
        """Rows of numbers."""
        self._row = max(self._row + by * self._page, 0)
        self.repaint()

    def draw(self, width: int, height: int) -> list[Line]:
        """Allocations above, numbers below."""
        session = self.session
        entries = session.memory().entries
        self._names = [entry.tensor for entry in entries]
        name = self.kept or session.memories.shown(session.cursor)
        if not entries and name is None:
            return [[(" nothing is written yet: ", "dim"), ("s", "bold"), (" steps on", "dim")]]
        share = max(min(len(entries), height // 3), 1) if name else height - 1
        first = self.first_row(len(entries), share, 0 if entries else None)
        shown = entries[first : first + share]
        wide = min(max((len(_name(e)) for e in shown), default=6), max(width - 60, 12))
        head = f"{'allocation':<{wide}} {'space':<5} {'addr':>14} {'type':<5} {'shape':<11} written"
        lines: list[Line] = [[(f"  {head}", "dim")]]
        for i, entry in enumerate(shown, first):
            style = "pick" if i == self.pick else "flight" if entry.touched else ""
            lines.append([("> " if entry.touched else "  ", ""), (self._entry(entry, wide), style)])
        if name is not None:
            lines += self._numbers(session.tensor(name), width, height - len(lines))
        return lines

    def _entry(self, entry: MemoryEntry, wide: int) -> str:
        ago = self.session.cursor - (entry.writer or 0)
        written = "never" if entry.writer is None else f"op {entry.writer} ({ago} ago)"
        shard, name = entry.shard, clip(_name(entry), wide, self.glyphs)
        shape = "x".join(map(str, shard.shape))
        return f"{name} {shard.space:<5} {shard.addr:>#14x} {shard.dtype:<5} {shape:<11} {written}"

    def _numbers(self, view: TensorView, width: int, height: int) -> list[Line]:
        values, written, changed = flat2(view.values), flat2(view.written), flat2(view.changed)
        low, high, mean = map(number_text, (view.minimum, view.maximum, view.mean))
        where, missing = np.argwhere(changed), int((~written).sum())
        shape = "x".join(map(str, view.values.shape))
        line: Line = [(f" {view.name}{' (kept)' if self.kept else ''}", "bold")]
        line.append((f" {view.dtype} {shape}", "title"))
        line.append((f"  {len(where):,} changed*" * bool(len(where)), "mark"))
        line.append((f"  {missing:,} never written" * bool(missing), "dim"))
        stats = (f"  min {low} max {high} mean {mean} NaN {view.nans}", "title")
        apart = length([*line, stats]) > width
        lines = [line, [stats]] if apart else [[*line, stats]]
        rows, columns = max(height - 1 - len(lines), 1), (width - 6) // 10
        columns = min(max(columns, 1), values.shape[1])
        self._page = max(rows - 1, 1)
        if self.seek:
            self._row, self.column = where.min(axis=0).tolist() if len(where) else (0, 0)
        self._row, self.column = window((self._row, self.column), values.shape, (rows, columns))
        lines.append([("      ", ""), *column_numbers(self.column, columns)])
        part = slice(self.column, self.column + columns)
        for r in range(self._row, min(self._row + rows, values.shape[0])):
            row = number_cells(values[r, part], written[r, part], changed[r, part], ("*", "mark"))
            lines.append([(f"{r:>5} ", "title"), *row])
        return lines


def _name(entry: MemoryEntry) -> str:
    return entry.tensor if "@" in entry.tensor else f"{entry.tensor}.{entry.shard.index}"

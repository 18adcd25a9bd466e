"""Pane 4: what memory holds at this op, and the numbers of one tensor, changes marked."""

from __future__ import annotations

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.memory import MemoryEntry, TensorView
from kernbench.replay.text import number_text
from tui.widgets.draw import Glyphs, Line, clamp_origin, clip, column_numbers, fit, flat2, number_cells
from tui.widgets.pane import Pane


class MemoryPane(Pane):
    """Shows the tensor that the op writes, else reads; Enter on an allocation keeps that one."""

    number, title, header = 4, "Memory", 1

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.kept: str | None = None
        self._origin = (0, 0)
        self._panned = False
        self._entries: tuple[MemoryEntry, ...] = ()

    def follow(self) -> None:
        """Back to the changed part."""
        self._panned = False
        super().follow()

    def enter(self) -> str | None:
        """Keep showing the picked allocation's tensor; again on the same lets go."""
        if self.at is not None and self.at < len(self._entries):
            name = self._entries[self.at].tensor
            self.kept = None if name == self.kept else name
            self._panned = False
            self.repaint()
        return None

    def pan(self, by: int) -> bool:
        """Columns of numbers, four at a time."""
        self._panned = True
        self._origin = (self._origin[0], max(self._origin[1] + 4 * by, 0))
        self.repaint()
        return True

    def draw(self, width: int, height: int) -> list[Line]:
        """Allocations above, numbers below."""
        session = self.session
        memory = session.memory()
        self._entries = memory.entries
        name = self.kept or session.memories.shown(session.cursor)
        if not memory.entries and name is None:
            return [[("nothing is written yet: ", "dim"), ("s", "bold"), (" steps on", "dim")]]
        share = max(min(len(memory.entries), height // 3), 1) if name else height - 1
        first = self.first_row(len(memory.entries), share, 0 if memory.entries else None)
        wide = max((len(_name(e)) for e in memory.entries[first : first + share]), default=6)
        wide = min(wide, max(width - 58, 12))
        head = f"  {'allocation':<{wide}} {'space':<5} {'addr':>14} {'dtype':<5} {'shape':<11} written"
        lines: list[Line] = [[(head, "dim")]]
        for i, entry in enumerate(memory.entries[first : first + share], first):
            lines.append([self._entry(entry, i, wide)])
        if name is not None:
            lines += self._numbers(session.tensor(name), width, height - len(lines))
        return lines

    def _entry(self, entry: MemoryEntry, i: int, wide: int) -> tuple[str, str]:
        age = "never" if entry.writer is None else f"op {entry.writer} ({self.session.cursor - entry.writer} ago)"
        mark = ">" if entry.touched else " "
        style = "pick" if i == self.pick else "flight" if entry.touched else ""
        name = clip(_name(entry), wide, self.glyphs.more)
        shape = "x".join(map(str, entry.shape))
        text = f"{mark} {name:<{wide}} {entry.space:<5} {entry.addr:>#14x} {entry.dtype:<5} {shape:<11} {age}"
        return text, style

    def _numbers(self, view: TensorView, width: int, height: int) -> list[Line]:
        values, written, changed = flat2(view.values), flat2(view.written), flat2(view.changed)
        rows, columns = max(height - 2, 1), fit(view.values, width)
        if not self._panned:
            where = np.argwhere(changed)
            self._origin = (int(where[:, 0].min()), int(where[:, 1].min())) if len(where) else (0, 0)
        self._origin = r0, c0 = clamp_origin(self._origin, values.shape, rows, columns)
        count = int(changed.sum())
        facts = f"{view.dtype}{list(view.values.shape)} min {number_text(view.minimum)} max {number_text(view.maximum)}"
        facts += f" mean {number_text(view.mean)} NaN {view.nans}"
        unwritten = view.written.size - int(view.written.sum())
        facts += f"  {unwritten} never written" if unwritten else ""
        lines: list[Line] = [[
            (f" {view.name}{' (kept)' if self.kept else ''} ", "bold"),
            (facts, "title"),
            (f"  {count} changed*" if count else "", "changed"),
        ]]  # fmt: skip
        lines.append([("      ", ""), *column_numbers(c0, min(columns, values.shape[1] - c0))])
        for r in range(r0, min(r0 + rows, values.shape[0])):
            part = slice(c0, c0 + columns)
            row = number_cells(values[r, part], written[r, part], changed[r, part], ("*", "changed"))
            lines.append([(f"{r:>5} ", "label"), *row])
        return lines


def _name(entry: MemoryEntry) -> str:
    return f"{entry.tensor}.{entry.shard}" if "@" not in entry.tensor else entry.tensor

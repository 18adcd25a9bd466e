"""Pane 4: what memory holds at this op; a tensor as numbers, heat or hex; a history of bytes."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.memory import MemoryEntry, TensorView
from kernbench.replay.text import number_text, time_text
from tui.widgets.draw import Array, Glyphs, Line, clip, length
from tui.widgets.grid import (
    FEW,
    SMALL,
    Answers,
    Cell,
    blocks,
    cells,
    column_numbers,
    flat2,
    heat,
    index_of,
)
from tui.widgets.pane import Pane

_LISTS = {"overview": "keep", "history": "go", "spaces": "keep"}  # of rows, and what Enter does
_MANY = 2000  # touches of a range


class MemoryPane(Pane):
    """Shows the tensor that the op writes, else reads, or the one that the user keeps.

    Where a tensor stands alone, h j k l move a cell of it; in lists j and k pick rows.
    """

    number, title, header, enter_word = 4, "Memory", 1, "keep"
    views = ("overview", "numbers", "heatmap", "hex", "history", "spaces")

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.kept: str | None = None
        self.cell, self._chosen = Cell(), False  # by the user: it stays where it is
        self._ask, self._seen = Answers(self), list[TensorView]()
        self._rows: list[MemoryEntry | int | str] = []  # allocations, ops, or heads of groups
        self._range: str | None = None  # whose history is shown, if not the cell's
        self._page = 1

    @property
    def mode(self) -> str:
        """The name of the view."""
        return self.views[self.view]

    def _picked(self) -> MemoryEntry | int | str | None:
        return self._rows[self.at] if self.at is not None and self.at < len(self._rows) else None

    def place(self) -> str | None:
        """The picked allocation's bytes, or the cell as in c[3,17]."""
        if self.mode in ("overview", "spaces"):
            entry = self._picked() if self.pick is not None else None
            return _bytes_of(entry) if isinstance(entry, MemoryEntry) else None
        if self._range is not None or not self._seen:
            return self._range
        view = self._seen[0]
        if not view.values.ndim:
            return view.name
        lead = f"{index_of(self.cell.row, view.values.shape)}," * (view.values.ndim > 1)
        return f"{view.name}[{lead}{self.cell.column}]"

    def enter(self) -> str | None:
        """Keep showing the picked allocation's tensor, or let go of it; go to the op; blame."""
        row = self._picked() if self.picks else None
        if isinstance(row, MemoryEntry):
            self._keep(None if row.tensor == self.kept else row.tensor)
            self.repaint()
        elif isinstance(row, int):
            return f"goto {row}"
        place = None if self.picks else self.place()
        return f"blame {place}" if place else None

    def _keep(self, name: str | None) -> None:
        self.kept, self.seek, self._chosen = name, True, False

    def change_view(self, by: int) -> bool:
        """The next view is of what was picked in a list."""
        place, row = self.place(), self._picked()
        listed = self.mode in ("overview", "spaces") and self.pick is not None
        self.pick = self.at = None
        self.view = (self.view + by) % len(self.views)
        self._range = place if self.mode == "history" and listed else None
        if isinstance(row, MemoryEntry) and listed and self.mode not in _LISTS:
            self._keep(row.tensor)
        self.seek = not self._chosen
        self.repaint()
        return True

    def scroll_rows(self, by: int) -> None:
        """Pick a row, or the cell above or below."""
        if self.mode in _LISTS:
            super().scroll_rows(by)
        else:
            self.cell.row, self._chosen = self.cell.row + by, True
            self.repaint()

    def scroll_page(self, by: int) -> None:
        """Rows of numbers."""
        if self.mode in ("history", "spaces"):
            super().scroll_page(by)
        else:
            self._scroll(by * self._page, 0)

    def _scroll(self, rows: int, columns: int) -> None:
        self.cell.scroll(rows, columns)
        self._chosen = self.mode != "overview"
        self.repaint()

    def pan(self, by: int) -> bool:
        """To the cell beside; in the overview by four columns."""
        if self.mode == "overview":
            self._scroll(0, 4 * by)
        elif self.mode not in _LISTS:
            self.cell.column, self._chosen = self.cell.column + by, True
            self.repaint()
        return True

    def next_mark(self, by: int) -> bool:
        """To the next or previous number that this op wrote; False for none."""
        found = bool(self._seen) and self.cell.seek(flat2(self._seen[0].changed), by)
        self._chosen = self._chosen or found
        self.repaint()
        return found

    def draw(self, width: int, height: int) -> list[Line]:
        """A list, a tensor, or in the overview both."""
        session, op = self.session, self.session.cursor
        self.picks, self.enter_word = self.mode in _LISTS, _LISTS.get(self.mode, "blame")
        self.total = 0
        ready = self._ask("what memory holds", 0, session.memories.index, len(session) <= FEW)
        if isinstance(ready, list):
            return [ready]
        name = self.kept or session.memories.shown(op)
        memory = session.memory()
        if self.mode == "history":
            return self._history(width, height)
        if not memory.entries and name is None:
            return [[(" nothing is written yet: ", "dim"), ("s", "bold"), (" steps on", "dim")]]
        if self.mode == "spaces":
            self._rows = []
            for space, count, size in memory.spaces:
                self._rows.append(f"{space}: {count:,} allocations hold {size:,} bytes")
                self._rows += [entry for entry in memory.entries if entry.shard.space == space]
            return self._list(width, height, None)
        lines: list[Line] = []
        if self.mode == "overview":
            self._rows = list(memory.entries)
            share = max(min(len(self._rows), height // 3), 1) if name else height - 1
            lines = self._list(width, share + 1, 0 if self._rows else None)
        return [*lines, *self._tensor(name, width, height - len(lines))] if name else lines

    def _list(self, width: int, height: int, at: int | None) -> list[Line]:
        first = self.first_row(len(self._rows), height - 1, at)
        shown = self._rows[first : first + height - 1]
        names = [len(_name(entry)) for entry in shown if isinstance(entry, MemoryEntry)]
        wide = min(max(names, default=6), max(width - 60, 12))
        head = f"{'allocation':<{wide}} {'space':<5} {'addr':>14} {'type':<5} {'shape':<11} written"
        lines: list[Line] = [[(f"  {head}", "dim")]]
        for i, row in enumerate(shown, first):
            touched = isinstance(row, MemoryEntry) and row.touched
            text = self._entry(row, wide) if isinstance(row, MemoryEntry) else str(row)
            style = "flight" if touched else "" if isinstance(row, MemoryEntry) else "title"
            lines.append(
                [("> " * touched or "  ", ""), (text, "pick" if i == self.pick else style)]
            )
        return lines

    def _entry(self, entry: MemoryEntry, wide: int) -> str:
        written = self._age(entry.writer)
        shard, name = entry.shard, clip(_name(entry), wide, self.glyphs)
        shape = "x".join(map(str, shard.shape))
        return f"{name} {shard.space:<5} {shard.addr:>#14x} {shard.dtype:<5} {shape:<11} {written}"

    def _age(self, writer: int | None) -> str:
        return "never" if writer is None else f"op {writer} ({self.session.cursor - writer} ago)"

    def _tensor(self, name: str, width: int, height: int) -> list[Line]:
        session, op = self.session, self.session.cursor
        quick = session.memories.quick(op, name)
        view = self._ask("tensor", (name, op), lambda tell: session.tensor(name, op, tell), quick)
        if isinstance(view, list):
            return [view]
        if self._seen and self._seen[0].name != name:
            self._chosen = False
        self._seen = [view]
        changed, low = flat2(view.changed), number_text(view.minimum)
        high, mean, missing = number_text(view.maximum), number_text(view.mean), ~view.written
        shape, count = "x".join(map(str, view.values.shape)), int(np.count_nonzero(changed))
        line: Line = [(f" {view.name}{' (kept)' if self.kept else ''}", "bold")]
        line.append((f" {view.dtype} {shape}", "title"))
        line.append((f"  {count:,} changed*" * bool(count), "mark"))
        line.append((f"  {int(missing.sum()):,} never written" * bool(missing.any()), "dim"))
        stats = (f"  min {low} max {high} mean {mean} NaN {view.nans}", "title")
        apart = length([*line, stats]) > width
        lines = [line, [stats]] if apart else [[*line, stats]]
        if self.seek and not self._chosen:
            where = np.argwhere(changed)
            self.cell.go(*(where.min(axis=0).tolist() if count else (0, 0)))
        if self.mode == "heatmap":
            return lines + self._heat(view, width, height - len(lines))
        return lines + self._grid(view, width, height - len(lines))

    def _where(self, view: TensorView) -> Line:
        """The cell: its index, value, address, and who wrote it."""
        at, place = (self.cell.row, self.cell.column), self.place() or ""
        known, value = flat2(view.written)[at], flat2(view.values)[at]
        space, addr, _ = self.session.memories.place(place).ranges[0]
        found = self.session.who_wrote(place).rows if self.session.cursor >= 0 else ()
        written = self._age(found[0].op.op if found else None)
        line: Line = [(f" {place} = {float(value):.7g}" if known else f" {place}", "bold")]
        line.append((f"  0x{_bits(value)}" * bool(known) + f"  {space} {addr:#x}", "title"))
        return [*line, (f"  written {written}", "")]

    def _grid(self, view: TensorView, width: int, height: int) -> list[Line]:
        alone, shape = self.mode != "overview", view.values.shape
        values, written, changed = flat2(view.values), flat2(view.written), flat2(view.changed)
        size = values.dtype.itemsize
        wide = 2 * size + 2 if self.mode == "hex" else 9
        label = max(len(index_of(len(values) - 1, shape)), 5)
        room = max((width - label - 1) // (wide + 1), 1)
        columns, rows = min(room, values.shape[1]), max(height - 1 - alone, 1)
        self.cell.fit(values.shape, rows, columns)
        self._page, cell = max(rows - 1, 1), self.cell
        lines = [self._where(view)] if alone else []
        lines.append([(" " * (label + 1), ""), *column_numbers(cell.left, columns, wide)])
        part = slice(cell.left, cell.left + columns)
        for r in range(cell.top, min(cell.top + rows, len(values))):
            texts = list(map(_bits if self.mode == "hex" else number_text, values[r, part]))
            texts = [x if k else "-" for x, k in zip(texts, written[r, part], strict=True)]
            at = cell.column - cell.left if alone and r == cell.row else -1
            row = cells(texts, changed[r, part], ("*", "mark"), at, wide)
            lines.append([(f"{index_of(r, shape):>{label}} ", "title"), *row])
        return lines

    def _heat(self, view: TensorView, width: int, height: int) -> list[Line]:
        shape, (rows, columns) = view.values.shape, (max(height - 2, 1), max(width - 8, 1))

        def largest(values: Array, written: Array) -> Array:
            size = np.abs(values.astype(np.float64))
            size[~np.isfinite(size)] = np.inf
            return blocks(np.where(written, size, np.nan), rows, columns)

        values, written, changed = flat2(view.values), flat2(view.written), flat2(view.changed)
        self.cell.fit(values.shape, len(values), values.shape[1])
        of, small = (view.op, view.name, rows, columns), view.values.size <= SMALL
        found = self._ask("heat", of, lambda tell: largest(values, written), small)
        if isinstance(found, list):
            return [found]
        tall, wide = (-(-n // m) for n, m in zip(values.shape, (rows, columns), strict=True))
        top = max(abs(view.minimum), abs(view.maximum))
        ramp = self.glyphs.ramp
        legend = (
            f" {ramp[0]} 0 to {ramp[-1]} {number_text(top)}: largest |x| of {tall}x{wide} cells"
        )
        lines = [self._where(view), [(f"{legend}, ! NaN or inf, blank never written", "dim")]]
        self._page = tall * max(rows - 1, 1)
        for i, row in enumerate(found):
            r = i * tall
            mark = "*" if changed[r : r + tall].any() else " "
            at = self.cell.column // wide if self.cell.row // tall == i else -1
            name = [(f"{index_of(r, shape):>5}", "title"), (f"{mark} ", "mark")]
            lines.append([*name, *heat(row, top, self.glyphs, at)])
        return lines

    def _history(self, width: int, height: int) -> list[Line]:
        session, place = self.session, self.place()
        if place is None:
            return [[(" pick an allocation in the overview, or a cell in numbers", "dim")]]
        whole = session.memories.place(place).ranges[0]
        few = len(session.versions.accesses.at(*whole)) <= _MANY
        touches = self._ask("history", place, lambda tell: session.history(*whole), few)
        if isinstance(touches, list):
            return [touches]
        rows = touches.rows
        here = bisect_right(rows, session.cursor, key=lambda touch: touch.op.op) - 1
        first = self.first_row(len(rows), height - 1, max(here, 0) if rows else None)
        shown = rows[first : first + height - 1]
        self._rows = [touch.op.op for touch in rows]
        head = f" {len(rows):,} reads and writes of {place}, {whole[0]} {whole[1]:#x}:{whole[2]}"
        lines: list[Line] = [[(head, "dim")]]
        for i, touch in enumerate(shown, first):
            op = touch.op
            style = "pick" if i == self.pick else "here" if op.op == session.cursor else ""
            text = f"{touch.kind:<5} op {op.op:>8,} {time_text(op.t_start):>9} {touch.nbytes:>7,} B"
            mark, name = ">" if i == here else " ", op.name.removeprefix("TileToken/")
            lines.append([(f"{mark} {text}", style), (f"  {name}  {op.component}", "")])
        return lines


def _bytes_of(entry: MemoryEntry) -> str:
    return f"{entry.shard.space} {entry.shard.addr:#x}:{entry.shard.nbytes}"


def _bits(value: Any) -> str:
    return str(value.tobytes()[::-1].hex())


def _name(entry: MemoryEntry) -> str:
    return entry.tensor if "@" in entry.tensor else f"{entry.tensor}.{entry.shard.index}"

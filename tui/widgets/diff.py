"""Pane 6: outputs against their references; expected, actual and error side by side or as heat;
the first op that rounding does not explain; hazards.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.answers import Touches
from kernbench.replay.diff import OpDiff, OutputRow, Outputs
from kernbench.replay.text import number_text
from tui.widgets.draw import Array, Glyphs, Line, clip
from tui.widgets.grid import (
    FEW,
    Answers,
    Cell,
    blocks,
    cells,
    column_numbers,
    flat2,
    heat,
    index_of,
)
from tui.widgets.pane import BEFORE, Pane

_VERDICT = {True: ("ok", "flight"), False: ("DIFFERS!", "bad")}
_ENTER = {"outputs": "show", "divergence": "go", "hazards": "go"}


class DiffPane(Pane):
    """Compares what the op wrote, or an output that was picked; opens at the first mismatch."""

    number, title, header, columns_a_step, enter_word = 6, "Diff", 1, 2, "blame"
    views = ("numbers", "heatmap", "outputs", "divergence", "hazards")

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.output: str | None = None  # shown instead of what the op wrote
        self.cell, self._ask = Cell(), Answers(self)
        self._rows: list[str | int] = []  # outputs, or ops
        self._seen: tuple[OpDiff, Array] | None = None  # and which of it is bad

    @property
    def mode(self) -> str:
        """The name of the view."""
        return self.views[self.view]

    def place(self) -> str | None:
        """The mismatch that is picked."""
        if self._seen is None or not self._seen[1].any() or self.mode in _ENTER:
            return None
        (diff, bad), at = self._seen, (self.cell.row, self.cell.column)
        if diff.actual is None or not bad[at] or any(diff.origin):
            return None
        if self.output is not None:
            lead = f"{index_of(at[0], bad.shape)}," * (diff.actual.ndim > 1)
            return f"{diff.name}[{lead}{at[1]}]"
        size = diff.actual.dtype.itemsize
        return f"{diff.space} {diff.addr + (at[0] * bad.shape[1] + at[1]) * size:#x}:{size}"

    def enter(self) -> str | None:
        """Show the picked output, or no more; go to the op; blame the mismatch."""
        if self.mode not in _ENTER:
            place = self.place()
            return f"blame {place}" if place else None
        row = self._rows[self.at or 0] if self._rows else None
        if isinstance(row, str):
            self.output, self.view = None if row == self.output else row, 0
            self.pick, self.seek = None, True
            self.repaint()
        return f"goto {row}" if isinstance(row, int) and row >= 0 else None

    def change_view(self, by: int) -> bool:
        """Another view begins at its first row."""
        self.pick = None
        return super().change_view(by)

    def scroll_rows(self, by: int) -> None:
        """Pick a row, or scroll the numbers."""
        if self.mode in _ENTER:
            super().scroll_rows(by)
        else:
            self.cell.scroll(by, 0)
            self.repaint()

    def pan(self, by: int) -> bool:
        """Columns of numbers."""
        self.cell.scroll(0, self.columns_a_step * by)
        self.repaint()
        return True

    def next_mark(self, by: int) -> bool:
        """To the next or previous mismatch; False for none."""
        found = self._seen is not None and self.cell.seek(self._seen[1], by)
        self.repaint()
        return found

    def draw(self, width: int, height: int) -> list[Line]:
        """Outputs, the verdict on this op, grids; or one of the lists."""
        session, op, mode = self.session, self.session.cursor, self.mode
        self.picks, self.enter_word = mode in ("outputs", "hazards"), _ENTER.get(mode, "blame")
        self.total, self._rows = 0, []
        if mode == "hazards":
            return self._hazards(width, height)
        if mode == "divergence":
            return self._divergence(width, height)
        ready = self._ask("what memory holds", 0, session.memories.index, len(session) <= FEW)
        if isinstance(ready, list):
            return [ready]
        quick = session.diffs.quick_outputs(op)
        outputs = self._ask("outputs", op, lambda tell: session.outputs(op), quick)
        if mode == "outputs":
            return [outputs] if isinstance(outputs, list) else self._each(outputs, width, height)
        lines = self._known()
        lines += [outputs] if isinstance(outputs, list) else self._outputs(outputs, height // 3 + 1)
        if op < 0:
            return [*lines, BEFORE]
        if (name := self.output) is None:
            quick = session.diffs.quick(op)
            diff = self._ask("diff", op, lambda tell: session.diff(op), quick)
        else:
            quick = session.memories.quick(op, name)
            diff = self._ask(
                "output", (name, op), lambda tell: session.output(name, op, tell), quick
            )
        if isinstance(diff, list):
            return [*lines, diff]
        return [*lines, *self._diff(diff, width, height - len(lines))]

    def _known(self) -> list[Line]:
        """What was found before: where it went wrong first."""
        first, hazards = self._ask.known("first divergence"), self._ask.known("hazards")
        line: Line = []
        if isinstance(first, OpDiff):
            text = "no divergence" if first.op < 0 else f"first divergence: op {first.op}"
            line.append((f" {text} ", "flight" if first.op < 0 else "bad"))
        if isinstance(hazards, Touches):
            count = f"{len(hazards.rows):,}" if hazards.rows else "no"
            line.append((f" {count} hazards ", "bad" if hazards.rows else "flight"))
        return [line] if line else []

    def _outputs(self, outputs: Outputs, height: int) -> list[Line]:
        rows = outputs.rows
        if not rows:
            return [[(" the bench states no expected outputs", "dim")]]
        first = self.first_row(len(rows), height - 1, 0) if self.picks else 0
        self._rows = [out.row.tensor for out in rows] if self.picks else []
        head = f" {'output':<16} {'state':<12} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>8}"
        lines: list[Line] = [[(head, "dim")]]
        for i, out in enumerate(rows[first : first + max(height - 1, 1)], first):
            lines.append(self._output(out, self.picks and i == self.at))
        return lines

    def _each(self, outputs: Outputs, width: int, height: int) -> list[Line]:
        """All outputs, and more of the picked one."""
        lines = self._outputs(outputs, max(height - 6, 2))
        if outputs.rows:
            text = replace(outputs, rows=(outputs.rows[self.at or 0],)).lines(width)
            lines += [[(f" {line}", "title")] for line in ["", *text]]
        return lines

    def _output(self, out: OutputRow, picked: bool) -> Line:
        r = out.row
        state, style = _VERDICT[r.ok] if out.due else (f"due op {out.after - 1}", "dim")
        name = clip(r.tensor, 16, self.glyphs)
        numbers = f" {r.mismatches:>9,} {r.elements:>9,} {r.max_abs:>9.1e} {r.max_ulp:>8,}"
        mark = ">" if r.tensor == self.output else " "
        line: Line = [(f"{mark}{name} ", "pick" if picked else ""), (f"{state:<12}", style)]
        return [*line, (numbers, "" if out.due else "dim")]

    def _diff(self, diff: OpDiff, width: int, height: int) -> list[Line]:
        what = f"op {diff.op} {diff.name.removeprefix('TileToken/')}"
        name = f" {what if self.output is None else f'output {diff.name}'} "
        lines: list[Line] = []
        if diff.note:
            parts = textwrap.wrap(f"{name.strip()}: {diff.note}", max(width - 2, 8))
            lines, name = [[(f" {part}", "bold")] for part in parts], " "
        r = diff.row
        if r is None or diff.expected is None or diff.actual is None or diff.error is None:
            return lines
        counts = f" {r.mismatches:,} of {r.elements:,} bad, abs {r.max_abs:.1e} ulp {r.max_ulp}"
        limits = f"  rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}"
        lines.append([(name, "bold"), _VERDICT[r.ok], (counts, "title"), (limits, "dim")])
        grids = tuple(map(flat2, (diff.expected, diff.actual, diff.error)))
        limit = r.tolerance.atol + r.tolerance.rtol * np.abs(grids[0])
        if self._seen is None or self._seen[0] is not diff:
            self._seen = diff, _bad(grids, limit)
        bad = self._seen[1]
        if self.seek:
            self.cell.go(*(np.argwhere(bad)[0].tolist() if bad.any() else (0, 0)))
        room = max(height - len(lines) - 2, 1)
        if self.mode == "heatmap":
            size = np.where(bad, np.inf, np.nan_to_num(np.abs(grids[2]) / (limit + 1e-300)))
            return [*lines, *self._heat(size, diff, width, room + 1)]
        return [*lines, *self._grids(grids, diff, width, room)]

    def _grids(self, grids: tuple[Array, ...], diff: OpDiff, width: int, rows: int) -> list[Line]:
        assert self._seen is not None
        bad, cell, shape = self._seen[1], self.cell, grids[0].shape
        columns = min(max((width - 6) // 30, 1), shape[1])
        cell.fit(shape, rows, columns)
        self.room = rows
        row0, column0 = diff.origin if len(diff.origin) == 2 else (0, 0)
        names = "".join(
            f"{name:>9}".ljust(columns * 10) for name in ("expected", "actual", "error")
        )
        lines: list[Line] = [[("      ", ""), (names, "title")]]
        lines.append([("      ", ""), *(column_numbers(column0 + cell.left, columns) * 3)])
        part = slice(cell.left, cell.left + columns)
        for r in range(cell.top, min(cell.top + rows, shape[0])):
            line: Line = [(f"{index_of(row0 + r, shape):>5} ", "title")]
            at = cell.column - cell.left if r == cell.row and bad[r, cell.column] else -1
            for grid in grids:
                texts = list(map(number_text, grid[r, part]))
                line += cells(texts, bad[r, part], ("!", "bad"), at)
            lines.append(line)
        return lines

    def _heat(self, size: Array, diff: OpDiff, width: int, rows: int) -> list[Line]:
        columns, shape = max(width - 8, 1), size.shape
        self.cell.fit(shape, *shape)
        tall, wide = -(-shape[0] // rows), -(-shape[1] // columns)
        self.room, ramp = tall * rows, self.glyphs.ramp
        legend = f" {ramp[0]} 0 to {ramp[-1]} the tolerance: the largest |error| of {tall}x{wide}"
        lines: list[Line] = [[(f"{legend} cells; ! beyond", "dim")]]
        for i, row in enumerate(blocks(size, rows, columns)):
            at = self.cell.column // wide if self.cell.row // tall == i else -1
            lines.append([(f"{index_of(i * tall, shape):>5}  ", "title")])
            lines[-1] += heat(row, 1.0, self.glyphs, at)
        return lines

    def _divergence(self, width: int, height: int) -> list[Line]:
        first = self._ask("first divergence", 0, self.session.first_divergence)
        if isinstance(first, list):
            return [first]
        self._rows, text = [first.op], first.lines(width - 1)
        top = self.first_row(len(text), height)
        self.at = 0
        return [[(f" {line}", "bold" if line[:2] == "op" else "")] for line in text[top:]]

    def _hazards(self, width: int, height: int) -> list[Line]:
        found = self._ask("hazards", 0, self.session.hazards)
        if isinstance(found, list):
            return [found]
        rows, share = found.rows, max(height - 7, 1)
        note = f"; {found.note}" * bool(found.note)
        lines: list[Line] = [[(f" {len(rows) or 'no'} hazards{note}", "bold" if rows else "dim")]]
        first, self._rows = self.first_row(len(rows), share, 0 if rows else None), []
        self._rows = [touch.op.op for touch in rows]
        for i, touch in enumerate(rows[first : first + share], first):
            other = f" and {touch.other.op:,}" if touch.other is not None else ""
            text = f"! {touch.kind}: op {touch.op.op:,}{other}"
            lines.append([(f" {text}", "pick" if i == self.at else "")])
        if rows:
            more = Touches((rows[self.at or 0],)).lines(width)
            lines += [[(f" {line}", "title")] for line in ["", *more]]
        return lines[:height]


def _bad(grids: tuple[Array, ...], limit: Array) -> Array:
    expected, actual, error = grids
    finite = np.isfinite(expected) & np.isfinite(actual)
    same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    return np.asarray(~np.where(finite, np.abs(error) <= limit, same))

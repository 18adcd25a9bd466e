"""Pane 6: outputs against their references; expected, actual and error of the op side by side."""

from __future__ import annotations

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.diff import OpDiff, OutputRow
from tui.widgets.draw import Glyphs, Line, clamp_origin, clip, column_numbers, flat2, number_cells
from tui.widgets.pane import Pane


class DiffPane(Pane):
    """Scrolls the three grids together; opens at the first mismatch."""

    number, title, picks = 6, "Diff", False

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self._column = 0
        self._moved = False

    def follow(self) -> None:
        """Back to the first mismatch."""
        self._moved, self._column = False, 0
        super().follow()

    def scroll_rows(self, by: int) -> None:
        """Rows of the grids."""
        self._moved = True
        super().scroll_rows(by)

    def pan(self, by: int) -> bool:
        """Columns of the grids, two at a time."""
        self._moved, self._column = True, max(self._column + 2 * by, 0)
        self.repaint()
        return True

    def draw(self, width: int, height: int) -> list[Line]:
        """Outputs, the verdict on this op, grids."""
        session = self.session
        outputs = session.outputs().rows
        lines: list[Line] = [[(f" {'output':<16} {'state':<12} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>8}", "dim")]]
        lines += [self._output(row) for row in outputs[: max(height // 3, 1)]]
        if not outputs:
            lines = [[(" the bench states no expected outputs", "dim")]]
        if session.cursor < 0:
            return [*lines, [(" before the first op: ", "dim"), ("s", "bold"), (" steps to it", "dim")]]
        diff = session.diff()
        head = f" op {diff.op} {diff.name.removeprefix('TileToken/')}"
        if diff.note:
            lines.append([(head, "bold"), (f": {diff.note}", "dim")])
        if diff.row is None or diff.expected is None:
            return lines
        r = diff.row
        verdict, style = ("ok", "ok") if r.ok else ("DIFFERS!", "bad")
        lines.append([
            (head + " " if not diff.note else " ", "bold"),
            (verdict, style),
            (f" {r.mismatches:,} of {r.elements:,} bad, abs {r.max_abs:.1e} ulp {r.max_ulp}", "title"),
            (f"  rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}", "dim"),
        ])  # fmt: skip
        return [*lines, *self._grids(diff, width, height - len(lines))]

    def _output(self, out: OutputRow) -> Line:
        r = out.row
        state, style = ("ok", "ok") if r.ok else ("DIFFERS!", "bad")
        if not out.due:
            state, style = f"due op {out.after - 1}", "dim"
        name = clip(r.tensor, 16, self.glyphs.more)
        numbers = f" {r.mismatches:>9,} {r.elements:>9,} {r.max_abs:>9.1e} {r.max_ulp:>8,}"
        return [(f" {name:<16} ", ""), (f"{state:<12}", style), (numbers, "" if out.due else "dim")]

    def _grids(self, diff: OpDiff, width: int, height: int) -> list[Line]:
        assert diff.expected is not None and diff.actual is not None and diff.error is not None
        grids = [flat2(x) for x in (diff.expected, diff.actual, diff.error)]
        shape = grids[0].shape
        columns = min(max((width - 6) // 3 // 10, 1), shape[1])
        rows = max(height - 2, 1)
        first_bad = diff.row.first_bad if diff.row else None
        if not self._moved and first_bad and len(diff.origin) == diff.expected.ndim:
            bad = np.subtract(first_bad, diff.origin)
            flat = int(np.ravel_multi_index(tuple(bad), diff.expected.shape)) if len(bad) else 0
            self.top, self._column = divmod(flat, shape[1])
        _, self._column = clamp_origin((self.top, self._column), shape, rows, columns)
        first = self.first_row(shape[0], rows)
        at_row, at_column = diff.origin[-2:] if len(diff.origin) == 2 else (0, 0)
        tolerance = diff.row.tolerance if diff.row else None
        size = columns * 10
        names = "".join(f"{name:<{size}}" for name in ("expected", "actual", "error"))
        lines: list[Line] = [[("       ", ""), (names, "title")]]
        lines.append([("      ", ""), *(column_numbers(self._column, columns, at_column) * 3)])
        part = slice(self._column, self._column + columns)
        for r in range(first, min(first + rows, shape[0])):
            line: Line = [(f"{at_row + r:>5} ", "label")]
            expected, error = grids[0][r, part].astype(np.float64), grids[2][r, part]
            bad_cells = np.zeros(len(error), np.bool_)
            if tolerance is not None:
                bad_cells = ~(np.abs(error) <= tolerance.atol + tolerance.rtol * np.abs(expected))
            for grid in grids:
                line += number_cells(grid[r, part], None, bad_cells, ("!", "bad"))
            lines.append(line)
        return lines

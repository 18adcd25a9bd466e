"""Pane 6: outputs against their references; expected, actual and error of the op side by side."""

from __future__ import annotations

import textwrap

import numpy as np

from kernbench.replay.diff import OpDiff, OutputRow
from tui.widgets.draw import Array, Line, clip, column_numbers, flat2, number_cells, window
from tui.widgets.pane import BEFORE, Pane

_VERDICT = {True: ("ok", "flight"), False: ("DIFFERS!", "bad")}


class DiffPane(Pane):
    """Scrolls the three grids together; opens at the first mismatch."""

    number, title, picks, columns_a_step = 6, "Diff", False, 2

    def draw(self, width: int, height: int) -> list[Line]:
        """Outputs, the verdict on this op, grids."""
        session = self.session
        outputs = session.outputs().rows
        head = f" {'output':<16} {'state':<12} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>8}"
        lines: list[Line] = [[(head, "dim")]]
        lines += [self._output(row) for row in outputs[: max(height // 3, 1)]]
        if not outputs:
            lines = [[(" the bench states no expected outputs", "dim")]]
        if session.cursor < 0:
            return [*lines, BEFORE]
        diff = session.diff()
        name = f" op {diff.op} {diff.name.removeprefix('TileToken/')} "
        if diff.note:
            parts = textwrap.wrap(f"{name.strip()}: {diff.note}", max(width - 2, 8))
            lines += [[(f" {part}", "bold")] for part in parts]
            name = " "
        r = diff.row
        if r is None or diff.expected is None or diff.actual is None or diff.error is None:
            return lines
        counts = f" {r.mismatches:,} of {r.elements:,} bad, abs {r.max_abs:.1e} ulp {r.max_ulp}"
        limits = f"  rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}"
        lines.append([(name, "bold"), _VERDICT[r.ok], (counts, "title"), (limits, "dim")])
        self._seek(diff)
        grids = [flat2(x) for x in (diff.expected, diff.actual, diff.error)]
        return [*lines, *self._grids(grids, diff, width, max(height - len(lines) - 2, 1))]

    def _output(self, out: OutputRow) -> Line:
        r = out.row
        state, style = _VERDICT[r.ok] if out.due else (f"due op {out.after - 1}", "dim")
        name = clip(r.tensor, 16, self.glyphs)
        numbers = f" {r.mismatches:>9,} {r.elements:>9,} {r.max_abs:>9.1e} {r.max_ulp:>8,}"
        return [(f" {name} ", ""), (f"{state:<12}", style), (numbers, "" if out.due else "dim")]

    def _seek(self, diff: OpDiff) -> None:
        if not self.seek or diff.expected is None or diff.row is None:
            return
        self.top = self.column = 0
        if diff.row.first_bad:
            bad = np.subtract(diff.row.first_bad, diff.origin)
            flat = int(np.ravel_multi_index(tuple(bad), diff.expected.shape))
            self.top, self.column = divmod(flat, diff.expected.shape[-1])

    def _grids(self, grids: list[Array], diff: OpDiff, width: int, rows: int) -> list[Line]:
        assert diff.row is not None
        shape, limit = grids[0].shape, diff.row.tolerance
        columns = min(max((width - 6) // 30, 1), shape[1])
        first = self.first_row(shape[0], rows)
        _, self.column = window((first, self.column), shape, (rows, columns))
        row0, column0 = diff.origin if len(diff.origin) == 2 else (0, 0)
        names = "".join(
            f"{name:>9}".ljust(columns * 10) for name in ("expected", "actual", "error")
        )
        lines: list[Line] = [[("      ", ""), (names, "title")]]
        lines.append([("      ", ""), *(column_numbers(column0 + self.column, columns) * 3)])
        part = slice(self.column, self.column + columns)
        for r in range(first, min(first + rows, shape[0])):
            wanted, error = grids[0][r, part].astype(np.float64), grids[2][r, part]
            good = np.abs(error) <= limit.atol + limit.rtol * np.abs(wanted)
            line: Line = [(f"{row0 + r:>5} ", "title")]
            for grid in grids:
                line += number_cells(grid[r, part], None, ~good, ("!", "bad"))
            lines.append(line)
        return lines

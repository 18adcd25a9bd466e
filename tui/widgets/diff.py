"""Pane 6: outputs against their references; expected, actual and error side by side or as heat;
the first op that rounding does not explain; hazards.
"""

from __future__ import annotations

import textwrap
from types import MappingProxyType

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.answers import Touches
from kernbench.replay.diff import OpDiff, Outputs
from kernbench.replay.job import Tell
from kernbench.replay.text import number_text
from tui.messages import Activate
from tui.widgets.draw import Array, Glyphs, Line, clip, length
from tui.widgets.grid import GridPane, flat2, within
from tui.widgets.pane import BEFORE

_VERDICT = {True: ("ok", "flight"), False: ("DIFFERS!", "bad")}


class DiffPane(GridPane):
    """Compares what the op wrote, or an output that was picked; opens at the first mismatch."""

    number, title = 6, "Diff"
    views = ("numbers", "heatmap", "outputs", "first divergence", "hazards")
    lists = MappingProxyType({"outputs": "show", "first divergence": "go", "hazards": "go"})

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.output: str | None = None  # shown instead of what the op wrote
        self._diff: OpDiff | None = None
        self._limit = np.zeros((1, 1))  # of its |error|

    def place(self) -> str | None:
        """The cell, as c[3,17] or its bytes."""
        diff = self._diff
        if diff is None or diff.actual is None or any(diff.origin) or self.picks:
            return None
        if self.output is not None:
            return diff.name + within(self.row, self.column, diff.actual.shape)
        size, cell = diff.actual.dtype.itemsize, self.row * self.marked.shape[1] + self.column
        return f"{diff.space} {diff.addr + cell * size:#x}:{size}"

    def enter(self) -> str | None:
        """Show the picked output, or again on it the op; go to an op; blame a cell."""
        if not self.picks:
            place = self.place()
            return f"blame {place}" if place is not None else None
        if not self.total:
            return None
        found = self.known[self.mode][1]
        if self.mode == "first divergence":
            return f"goto {found.op}" if found.op >= 0 else None
        row = found.rows[self.at or 0]
        if self.mode == "hazards":
            return f"goto {row.op.op}"
        self.output, self.view = None if row.row.tensor == self.output else row.row.tensor, 0
        self.post_message(Activate(self.number))  # the tab names the view
        return None

    def fill(self, lines: list[Line], width: int, height: int) -> None:
        """Outputs, the verdict on this op, grids; or one of the lists."""
        session, op = self.session, self.session.cursor
        if self.mode == "hazards":
            self._hazards(lines, width, height)
        elif self.mode == "first divergence":
            text = self.ask(self.mode, 0, session.first_divergence).lines(width - 1)
            top = self.first_row(len(text), height, 0)
            lines += [[(f" {row}", "bold" * (row[:2] == "op"))] for row in text[top:]]
        else:
            self._known(lines)
            quick = session.diffs.quick_outputs(op)
            outputs = self.ask("outputs", op, lambda tell: session.outputs(op), quick)
            self._outputs(outputs, lines, height - 1 if self.picks else max(height // 3, 1))
            if op < 0:
                lines.append(BEFORE)
            elif not self.picks:
                self._compared(lines, width, height)

    def _known(self, lines: list[Line]) -> None:
        """What was found before: where it went wrong first."""
        line: Line = []
        if "first divergence" in self.known:
            op = self.known["first divergence"][1].op
            line.append((f" first divergence: op {op:,} ", "bad"))
            line[-1] = (" first divergence: none ", "flight") if op < 0 else line[-1]
        if "hazards" in self.known:
            count = len(self.known["hazards"][1].rows)
            line.append((f" hazards: {count or 'none'} ", "bad" if count else "flight"))
        lines += [line] if line else []

    def _outputs(self, outputs: Outputs, lines: list[Line], room: int) -> None:
        head = f" {'output':<16} {'state':<12} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>8}"
        none = " the bench states no expected outputs"
        lines.append([(head if outputs.rows else none, "dim")])
        first = self.first_row(len(outputs.rows), room, 0) if self.picks and outputs.rows else 0
        for i, out in enumerate(outputs.rows[first : first + room], first):
            r, style = out.row, "" if out.due else "dim"
            state = _VERDICT[r.ok] if out.due else (f"due op {out.after - 1}", "dim")
            counts = f" {r.mismatches:>9,} {r.elements:>9,} {r.max_abs:>9.1e} {r.max_ulp:>8,}"
            name = f"{'>' if r.tensor == self.output else ' '}{clip(r.tensor, 16, self.glyphs)} "
            picked = "pick" if self.picks and i == self.at else ""
            lines.append([(name, picked), (f"{state[0]:<12}", state[1]), (counts, style)])

    def _compared(self, lines: list[Line], width: int, height: int) -> None:
        session, op, name = self.session, self.session.cursor, self.output
        quick = session.memories.quick(op, name) if name else session.diffs.quick(op)

        def compute(tell: Tell) -> OpDiff:
            return session.output(name, op, tell) if name else session.diff(op)

        diff = self.ask("diff", (name, op), compute, quick)
        what = f" {'output' if name else f'op {op}'} {diff.name.removeprefix('TileToken/')} "
        if diff.note:
            parts = textwrap.wrap(f"{what.strip()}: {diff.note}", max(width - 2, 8))
            lines += [[(f" {part}", "bold")] for part in parts]
            what = " "
        r = diff.row
        if r is None or diff.expected is None or diff.actual is None or diff.error is None:
            self._diff = None
            return
        counts = f" {r.mismatches:,} of {r.elements:,} bad, abs {r.max_abs:.1e} ulp {r.max_ulp}"
        limits = f"  rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}"
        line: Line = [(what, "bold"), _VERDICT[r.ok], (counts, "title")]
        lines.append([*line, (limits * (length(line) + len(limits) <= width), "dim")])
        self.shape, self.origin = diff.expected.shape, (0, 0)
        if len(diff.origin) == 2:
            self.origin = diff.origin[0], diff.origin[1]
        grids = tuple(map(flat2, (diff.expected, diff.actual, diff.error)))
        if self._diff is not diff:
            self._limit = r.tolerance.atol + r.tolerance.rtol * np.abs(grids[0])
            self._diff, self.marked = diff, _bad(grids, self._limit)
            self.go(*(np.argwhere(self.marked)[0].tolist() if self.marked.any() else (0, 0)))
        room, bad = (width, height - len(lines)), self.marked
        if self.mode == "heatmap":

            def sizes() -> Array:
                ratio = np.nan_to_num(np.abs(grids[2]) / np.maximum(self._limit, 1e-300))
                return np.where(bad, np.inf, np.minimum(ratio, 1.0))

            says = "the tolerance, the largest |error|"
            lines += self.heat(sizes, (name, op), 1.0, says, room)
            return

        def texts(plane: int, row: int, part: slice) -> list[str]:
            return list(map(number_text, grids[plane][row, part]))

        lines += self.numbers(("expected", "actual", "error"), texts, ("!", "bad"), room)

    def _hazards(self, lines: list[Line], width: int, height: int) -> None:
        found = self.ask("hazards", 0, self.session.hazards)
        rows, note = found.rows, f"; {found.note}" * bool(found.note)
        lines.append([(f" hazards: {len(rows):,}{note}" if rows else f" no hazards{note}", "dim")])

        def text(i: int) -> str:
            t = rows[i]
            return f"! {t.kind}: op {t.op.op:,}" + (f" and {t.other.op:,}" if t.other else "")

        lines += self.listed(len(rows), max(height - 8, 1), 0, text)
        for line in Touches(rows[self.at or 0 :][:1]).lines(width) if rows else ():
            parts = textwrap.wrap(line, max(width - 4, 8), subsequent_indent="    ")
            lines += [[(f"  {part}", "title")] for part in parts]


def _bad(grids: tuple[Array, ...], limit: Array) -> Array:
    expected, actual, error = grids
    finite = np.isfinite(expected) & np.isfinite(actual)
    same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    return np.asarray(~np.where(finite, np.abs(error) <= limit, same))

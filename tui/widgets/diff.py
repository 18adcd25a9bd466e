"""Pane 6: outputs against their references; expected, actual and error side by side or as heat;
the first op that rounding does not explain; hazards.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable
from functools import cached_property
from types import MappingProxyType

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.answers import Touches
from kernbench.replay.data.diff import OpDiff, Outputs, mismatches
from kernbench.replay.progress import Progress as Tell
from kernbench.replay.text import number_text
from tui.messages import Activate
from tui.widgets.draw import Array, Glyphs, Line, Run, clip, length
from tui.widgets.grid import GridPane, flat2, within
from tui.widgets.pane import BEFORE

_MANY = 20_000  # ops that are executed to look for what leads the pane, unasked
_LARGE, _SMALL = 1 << 24, 1 << 14  # products that are judged; elements
_VERDICT = {True: ("ok", "flight"), False: ("DIFFERS!", "bad")}


class DiffPane(GridPane):
    """Compares what the op wrote, or an output that was picked; opens at the first mismatch."""

    number, title = 6, "Diff"
    views = ("numbers", "heatmap", "outputs", "first divergence", "hazards")
    lists = MappingProxyType(
        {"outputs": "show", "first divergence": "go", "hazards": "go"}
    )

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.output: str | None = None  # shown instead of what the op wrote
        self._diff: OpDiff | None = None
        self._limit = np.zeros((1, 1))  # of its |error|
        self._failed: dict[str, Hashable] = {}  # what was looked for unasked, in vain

    def place(self) -> str | None:
        """The cell, as c[3,17] or its bytes."""
        diff = self._diff
        if diff is None or diff.actual is None or any(diff.origin) or self.picks:
            return None
        self.clamp()
        if self.output is not None:
            return diff.name + within(self.row, self.column, diff.actual.shape)
        size, cell = (
            diff.actual.dtype.itemsize,
            self.row * self.marked.shape[1] + self.column,
        )
        return f"{diff.space} {diff.addr + cell * size:#x}:{size}"

    def enter(self) -> str | None:
        """Show the picked output, or again on it the op; go to an op; blame a cell."""
        if not self.picks:
            place = self.place()
            return f"blame {place}" if place is not None else None
        found = self.last(self.mode)
        if self.mode == "first divergence":
            return f"goto {found.op}" if found is not None and found.op >= 0 else None
        if found is None or not (rows := found.rows[self.at or 0 :]):
            return None
        row = rows[0]
        if self.mode == "hazards":  # the first op, from there the other
            other = row.other is not None and self.session.cursor == row.op.op
            return f"goto {(row.other if other else row.op).op}"
        self.output, self.view = (
            None if row.row.tensor == self.output else row.row.tensor,
            0,
        )
        self.repaint()
        self.post_message(Activate(self.number))  # the tab names the view
        return None

    def follow(self) -> None:
        """A hazard that was picked stays so: its ops are gone to in turn."""
        pick = self.pick
        super().follow()
        self.pick = pick if self.mode == "hazards" else None

    def rest(self) -> None:
        """Find what leads the pane, where it takes some seconds at most; judge the op."""
        session, op, diffs = self.session, self.session.cursor, self.session.diffs

        def judge(tell: Tell) -> OpDiff:
            found = (
                diffs.judged(op)
                if diffs.producer(op).products <= _LARGE
                else diffs.of(op)
            )
            return diffs.with_recorded(found) if self.marked.size <= _SMALL else found

        wanted: list[tuple[str, Hashable, Callable[[Tell], object]]] = []
        if self._few:
            wanted += [("first divergence", 0, session.first_divergence)]
            wanted += [("hazards", 0, session.hazards)]
        if self._diff is not None and self.output is None:
            wanted += [("judgement", (op, "first divergence" in self.known), judge)]
        for kind, of, compute in wanted:
            if self.known.get(kind, ("",))[0] == of or self._failed.get(kind, "") == of:
                continue
            try:
                found = self.jobs.spare(("memory", (kind, of)), compute)
            except KernbenchError:
                self._failed[kind] = of
                continue
            if found is None:
                return
            self.known = self.known | {kind: (of, found)}
            self.repaint()

    @cached_property
    def _few(self) -> bool:
        """Whether all ops can be executed unasked, none of which keeps a key waiting."""
        versions = self.session.versions
        few = versions.executed(1 << 62) <= _MANY
        return few and bool(versions.touched.nbytes.max(initial=0) <= _LARGE // 16)

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
            lines.append(self._leads())
            quick = session.diffs.quick_outputs(op)
            outputs = self.ask("outputs", op, lambda tell: session.outputs(op), quick)
            self._outputs(
                outputs, lines, height - 1 if self.picks else max(height // 3, 1)
            )
            if op < 0:
                lines.append(BEFORE)
            elif not self.picks:
                self._compared(lines, width, height)

    def _leads(self) -> Line:
        """Where it went wrong first, as far as that is known."""
        line: Line = []
        for kind in self.views[3:]:
            if (found := self.last(kind)) is not None:
                if kind == "hazards":
                    bad = f"{len(found.rows):,}" * (not found.ok)
                else:
                    bad = f"op {found.op:,}" * (found.op >= 0)
                line.append((f" {kind}: {bad or 'none'} ", "bad" if bad else "flight"))
            else:
                how = (
                    "..."
                    if self._few and kind not in self._failed
                    else "in its view (V)"
                )
                line.append((f" {kind}: {how} ", "dim"))
        return line

    def _outputs(self, outputs: Outputs, lines: list[Line], room: int) -> None:
        head = f" {'output':<16} {'state':<12} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>8}"
        lines.append([(head if outputs.rows else f" {outputs.note}", "dim")])
        first = (
            self.first_row(len(outputs.rows), room, 0)
            if self.picks and outputs.rows
            else 0
        )
        for i, out in enumerate(outputs.rows[first : first + room], first):
            r, style = out.row, "" if out.due else "dim"
            state = _VERDICT[r.ok] if out.due else (f"due op {out.after - 1}", "dim")
            apart, _, steps = r.worst
            counts = f" {r.mismatches:>9,} {r.elements:>9,} {apart:>9.1e} {steps:>8,}"
            name = f"{'>' if r.tensor == self.output else ' '}{clip(r.tensor, 16, self.glyphs)} "
            picked = "pick" if self.picks and i == self.at else ""
            lines.append(
                [(name, picked), (f"{state[0]:<12}", state[1]), (counts, style)]
            )

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
        if (
            r is None
            or diff.expected is None
            or diff.actual is None
            or diff.error is None
        ):
            self._diff = None
            return
        counts = f" {r.mismatches:,} of {r.elements:,} bad, {r.left_out}"
        counts += f"abs {r.max_abs:.1e} ulp {r.max_ulp}"
        limits = f"  rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}"
        line: Line = [(what, "bold"), _VERDICT[r.ok], (counts, "title")]
        lines.append([*line, (limits * (length(line) + len(limits) <= width), "dim")])
        lines += [] if name else [[self._rounding(op)]]
        self.shape, self.origin = diff.expected.shape, (0, 0)
        if len(diff.origin) == 2:
            self.origin = diff.origin[0], diff.origin[1]
        grids = tuple(map(flat2, (diff.expected, diff.actual, diff.error)))
        if self._diff is not diff:
            self._limit = r.tolerance.atol + r.tolerance.rtol * np.abs(grids[0])
            self._diff, self.marked = diff, mismatches(grids[1], grids[0], r.tolerance)
            self.go(
                *(np.argwhere(self.marked)[0].tolist() if self.marked.any() else (0, 0))
            )
        room, bad = (width, height - len(lines)), self.marked
        if self.mode == "heatmap":

            def sizes() -> Array:
                ratio = np.nan_to_num(
                    np.abs(grids[2]) / np.maximum(self._limit, 1e-300)
                )
                return np.where(bad, np.inf, np.minimum(ratio, 1.0))

            says = "the tolerance, the largest |error|"
            lines += self.heat(sizes, (name, op), 1.0, says, room)
            return

        def texts(plane: int, row: int, part: slice) -> list[str]:
            return list(map(number_text, grids[plane][row, part]))

        lines += self.numbers(
            ("expected", "actual", "error"), texts, ("!", "bad"), room
        )

    @np.errstate(invalid="ignore")
    def _rounding(self, op: int) -> Run:
        """Whether rounding explains the op's error, and how far off what Phase 1 saw of it is."""
        of, found = self.known.get("judgement", (None, None))
        if found is None or of not in ((op, True), (op, False)):
            return " local error ...", "dim"
        if (c := found.check) is None or found.actual is None:
            return " local error: :diff tells", "dim"
        only = "only " * bool(c.over)
        text = f" local error {c.local:.1e}, rounding explains {only}{c.bound:.1e}"
        text = " exact" if not c.local else " overflow" if c.overflows else text
        text += "" if c.accumulated is None else f", accumulated {c.accumulated:.1e}"
        if found.simulated is not None and found.source.startswith("Phase 1"):
            apart = np.abs(found.simulated - found.actual.astype(np.float64))
            text += f"; {found.source} off {np.fmax.reduce(apart, None):.1e}"
        return text, "bad" if c.over or c.overflows else "title"

    def _hazards(self, lines: list[Line], width: int, height: int) -> None:
        found = self.ask("hazards", 0, self.session.hazards)
        rows, note = found.rows, f"; {found.note}" * bool(found.note)
        lines.append(
            [
                (
                    f" hazards: {len(rows):,}{note}" if rows else f" no hazards{note}",
                    "dim",
                )
            ]
        )

        def text(i: int) -> str:
            t = rows[i]
            return f"! {t.kind}: op {t.op.op:,}" + (
                f" and {t.other.op:,}" if t.other else ""
            )

        lines += self.listed(len(rows), max(height - 8, 1), 0, text)
        for line in Touches(rows[self.at or 0 :][:1]).lines(width) if rows else ():
            parts = textwrap.wrap(line, max(width - 4, 8), subsequent_indent="    ")
            lines += [[(f"  {part}", "title")] for part in parts]

"""What Diff says of right and wrong, as lines: what went wrong first, each output, and
what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap

from kernbench.replay.commands import HAZARDS
from kernbench.replay.data.outputs import OutputRow, Outputs
from kernbench.replay.inner_commands import EXECUTES_SOON, FIRST_DIVERGENCE, JUDGEMENT
from kernbench.replay.races.findings import Findings
from kernbench.replay.text import number_text
from kernbench.replay.views.diff import Comparison, Divergence, Judgement
from tui.draw import Glyphs, Line, Run, clip, length
from tui.panes.base import Answers, Frame
from tui.panes.grid import Look, picked_style

DIVERGENCE = "first divergence"
HAZARD_LIST = "hazards"
_GOOD: Run = ("ok", "flight")
_BAD: Run = ("DIFFERS!", "bad")
_PART: Run = ("not all there", "mark")
"""Of an output of which some is not written yet, and all the rest good."""
_PLANES = ("expected", "actual", "error")
_NOT_JUDGED = "-"
"""In place of the maxima of an output that is not due yet."""
_COMES = "..."
"""In place of a finding that is looked for once nothing is pressed."""
_IN_ITS_VIEW = "in its view"
"""In place of one that is only looked for where the user opens its view."""
_NOT_ALL = "none found, not all looked at"
"""In place of no hazards where some could not be looked for."""
_COUNT = 9
"""Columns of a number of elements."""
_ULPS = 8
"""Columns of a number of ulps."""
_ROW_AND_COLUMN = 2
"""Numbers of an origin that is a row and a column, as that of a tile's block."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared: an output, or if that is empty what an op wrote; at that op.
    ``failed``: it is an output that the run found wrong. ``due`` is the op at which an
    output is to be right, if that is still to come.
    """

    output: str
    op: int
    failed: bool = False
    due: int | None = None


# -- what leads the pane ------------------------------------------------------


def leads(answers: Answers, keys: Mapping[str, str]) -> Line:
    """Where it went wrong first, as far as that is known, and by which ``keys`` one
    comes to the view of either.
    """
    soon = answers.known(EXECUTES_SOON.ask()) is not False
    divergence: Divergence | None = answers.known(FIRST_DIVERGENCE.ask())
    op = "none"
    if divergence is None:
        op = _not_known(soon)
    elif divergence.error:
        op = _not_known(False)
    elif divergence.op >= 0:
        op = f"op {divergence.op:,}"
    hazards: Findings | None = answers.known(HAZARDS.ask())
    count = "none"
    if hazards is None:
        count = _not_known(soon)
    elif not hazards.ok:
        count = f"{len(hazards.rows):,}"
    elif hazards.note:
        count = _NOT_ALL
    found = {DIVERGENCE: op, HAZARD_LIST: count}
    return [run for kind, what in found.items() for run in _lead(kind, what, keys)]


def _not_known(soon: bool) -> str:
    """Whether a finding comes by itself, or only where the user asks for it."""
    return _COMES if soon else _IN_ITS_VIEW


def _lead(kind: str, found: str, keys: Mapping[str, str]) -> Line:
    """One finding, in the style of how bad it is; the keys to its view where that has
    more.
    """
    styles = {"none": "flight", _COMES: "dim", _IN_ITS_VIEW: "dim", _NOT_ALL: "mark"}
    line: Line = [(f" {kind}: {found} ", styles.get(found, "bad"))]
    if found not in ("none", _COMES):
        line.append((f"({keys[kind]}) ", "dim"))
    return line


# -- outputs ------------------------------------------------------------------


def outputs_head(outputs: Outputs, width: int) -> list[str]:
    """What the columns of the outputs are; or why there are none, wrapped."""
    if not outputs.rows:
        return [f" {part}" for part in wrap(outputs.note, max(width - 2, 8))]
    names = f" {'output':<16} {'state':<12}"
    counts = f"{'bad':>{_COUNT}} {'of':>{_COUNT}}"
    return [f"{names} {counts} {'max abs':>9} {'max ulp':>{_ULPS}}"]


def output_line(out: OutputRow, mark: str, picked: bool, glyphs: Glyphs) -> Line:
    """One output behind its mark: whether it is as expected, or at which op it is
    due.
    """
    row = out.row
    state, state_style = _verdict_of(row.ok)
    bad = f"{row.mismatches:,}"
    apart, _, steps = row.worst
    worst = f"{apart:.1e}"
    ulps = ulps_text(steps)
    if not out.due:
        # what is not right before that is no verdict, and would read like one
        state = _due_text(out.after - 1)
        state_style = "dim"
        bad = _so_far(row.mismatches)
        worst = _NOT_JUDGED
        ulps = _NOT_JUDGED
    name = f"{mark}{clip(row.tensor, 16, glyphs)} "
    counts = f" {bad:>{_COUNT}} {row.elements:>{_COUNT},} {worst:>9} {ulps:>{_ULPS}}"
    return [
        (name, picked_style(picked)),
        (f"{state:<12}", state_style),
        (counts, "" if out.due else "dim"),
    ]


def _so_far(count: int) -> str:
    """How many elements are not right yet, in brackets; of very many about."""
    for text in (f"({count:,})", f"({count})"):
        if len(text) <= _COUNT:
            return text
    return f"({count:.1e})"


def _due_text(op: int) -> str:
    """That an output is to be right at an op that is still to come."""
    return f"due op {op:,}"


def ulps_text(steps: float) -> str:
    """How many floats lie between two numbers, inf of what is none; of many about."""
    exactly = f"{steps:,}"
    return exactly if len(exactly) <= _ULPS else f"{steps:.1e}"


def _verdict_of(ok: bool) -> Run:
    """Whether all elements are within the tolerance, in a word."""
    return _GOOD if ok else _BAD


# -- the comparison -----------------------------------------------------------


def verdict(found: Comparison, subject: Subject, frame: Frame) -> list[Line]:
    """What is compared, what is to be said of it, and how many elements differ."""
    name = found.name.removeprefix("TileToken/")
    what = f"op {subject.op} {name}"
    if subject.output:
        what = f"output {name}"
        if subject.op != frame.cursor:
            what += f" at op {subject.op:,}"
    lines: list[Line] = []
    head = f" {what} "
    if found.note:
        parts = wrap(f"{what}: {found.note}", max(frame.width - 2, 8))
        lines += [[(f" {part}", "bold")] for part in parts]
        head = " "
    row = found.row
    if row is None:
        return lines
    judged = _verdict_of(row.ok)
    if row.note and not row.mismatches:
        judged = _PART
    word = "bad"
    if subject.due is not None and row.mismatches:
        judged = _due_text(subject.due), "dim"
        word = "not right yet"
    line: Line = [(head, "bold"), judged]
    facts: Line = [
        (f" {row.mismatches:,} of {row.elements:,} {word}", "title"),
        (f", {row.left_out}abs {row.max_abs:.1e}", "title"),
        (f" ulp {ulps_text(row.max_ulp)}", "title"),
        (f"  rtol {row.tolerance.rtol:g} atol {row.tolerance.atol:g}", "dim"),
    ]
    for fact in facts:
        if length([*line, fact]) > frame.width:
            break
        line.append(fact)
    return [*lines, line]


def look(found: Comparison, subject: Subject) -> Look:
    """How the numbers of a comparison are shown; rows and columns of a tile are
    numbered as in the whole output. Of an output that is not due yet none is alarming.
    """
    mark: Run = ("!", "bad")
    if subject.due is not None:
        mark = ("~", "dim")
    origin = (0, 0)
    if len(found.origin) == _ROW_AND_COLUMN:
        row, column = found.origin
        origin = (row, column)
    return Look(_PLANES, number_text, mark=mark, origin=origin)


def rounding(op: int, answers: Answers) -> Run:
    """Whether rounding explains the op's error, and how far off is what Phase 1 saw.

    A judgement made after the first divergence was looked for knows more.
    """
    found: Judgement | None = answers.known(JUDGEMENT.ask(op, divergence=True))
    if found is None:
        found = answers.known(JUDGEMENT.ask(op, divergence=False))
    if found is None:
        return " local error ...", "dim"
    check = found.check
    if check is None:
        return " local error: :diff tells", "dim"
    text = f" local error {check.local:.1e}, rounding explains {check.bound:.1e}"
    if check.over:
        text = text.replace("explains", "explains only")
    if check.overflows:
        text = " overflow"
    if check.is_of_nan:
        text = " an integer of NaN, which has none"
    if not check.local:
        text = " exact"
    if check.accumulated is not None:
        text += f", accumulated {check.accumulated:.1e}"
    if found.source.startswith("Phase 1"):
        text += f"; {found.source} off {found.apart:.1e}"
    is_bad = check.over or check.overflows
    return text, "bad" if is_bad else "title"

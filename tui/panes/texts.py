"""Pane 9: what kernels printed and asserted, what was warned of, and what ended the
run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from textwrap import wrap

import numpy as np

from kernbench.replay.command import Call
from kernbench.replay.commands import GOTO, TEXTS
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.replay.text import short_name, time_text
from kernbench.replay.texts import NO_TEXTS, TextList, TextRow
from tui.draw import Line, clip, length
from tui.panes.base import (
    Answers,
    BasePane,
    Change,
    Click,
    Do,
    Effect,
    Enter,
    Event,
    Frame,
    Moved,
    Picture,
    Rows,
    Say,
    Scroll,
    Settle,
)

_MOST = 10_000
"""Texts that are listed, the first."""
_HEAD_LINES = 1
_LEAST_ROOM = 8
"""Columns of what is said, at least."""
_STYLES = {"assert": "bad", "error": "bad", "warning": "mark"}
"""Of a text's level; what was printed has none."""


@dataclass(frozen=True, slots=True)
class TextsState:
    """The texts in view."""

    rows: Rows = field(default_factory=Rows)


def why_no_texts(index: Index) -> str:
    """Why a trace has nothing for this pane; empty where it has."""
    return "" if len(index.trace.text_columns.cmd) else NO_TEXTS


class TextsPane(BasePane[TextsState]):
    """A row a text, with its time and PE; those up to the cursor's time are lit.

    Enter goes to the op after which it was said.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def start(self) -> TextsState:
        """The texts by the cursor."""
        return TextsState()

    # -- update -------------------------------------------------------------------

    def update(
        self, state: TextsState, event: Event, frame: Frame, answers: Answers
    ) -> Change[TextsState] | None:
        """Picks rows, and follows the cursor's time."""
        match event:
            case Moved():
                state = replace(state, rows=state.rows.released())
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=state.rows.moved(event))
            case Enter():
                return Change(state, self._entered(state, answers))
            case Click(_, y):
                picked = self._row_at(state, y - _HEAD_LINES, frame, answers)
                if picked is None:
                    return Change(state)
                state = replace(state, rows=picked)
                return Change(state, self._entered(state, answers))
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _settled(self, state: TextsState, frame: Frame, answers: Answers) -> TextsState:
        """The list scrolled to the picked row, or to the last text before the
        cursor.
        """
        found: TextList | None = answers.known(_query())
        if frame.height <= 0 or found is None:
            return state
        said = self._said(found, frame)
        here = max(said - 1, 0) if found.rows else None
        room = frame.height - _HEAD_LINES
        rows = state.rows.settled(len(found.rows), room, here)
        more = _more_lines(found, rows, frame)
        if more:
            rows = rows.settled(len(found.rows), room - more, here)
        return replace(state, rows=rows)

    def _row_at(
        self, state: TextsState, line: int, frame: Frame, answers: Answers
    ) -> Rows | None:
        """The row on a line of the list, picked; None where there is none."""
        found: TextList | None = answers.known(_query())
        at = state.rows.at
        if found is not None and at is not None and line > at - state.rows.top:
            more = _more_lines(found, state.rows, frame)
            line = max(line - more, at - state.rows.top)
        return state.rows.picked_at(line)

    def _said(self, found: TextList, frame: Frame) -> int:
        """How many texts had been said when the cursor's op began."""
        if frame.cursor < 0:
            return 0
        now = self._index.ops.time(frame.cursor)
        return sum(row.t <= now for row in found.rows)

    def _entered(self, state: TextsState, answers: Answers) -> tuple[Effect, ...]:
        found: TextList | None = answers.known(_query())
        at = state.rows.at
        if found is None or at is None or at >= len(found.rows):
            return ()
        row = found.rows[at]
        op = row.op
        if op < 0:
            op = self._first_op_after(row)
        if op < 0:
            return (Say("this PE has no op, before that or after"),)
        return (Do(GOTO(op=op)),)

    def _first_op_after(self, row: TextRow) -> int:
        """The first op that the PE of a text served after it; -1 if there is none."""
        ops = self._index.ops
        first = ops.at_time(row.t) + 1
        names = self._index.trace.node_ids
        nodes = [i for i, name in enumerate(names) if name.startswith(f"{row.pe}.")]
        found = np.flatnonzero(np.isin(ops.components[first:], nodes))
        return first + int(found[0]) if len(found) else -1

    # -- queries and render -------------------------------------------------------

    def question(
        self, state: TextsState, frame: Frame, answers: Answers
    ) -> Call | None:
        """All texts."""
        return TEXTS()

    def queries(
        self, state: TextsState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """All texts: they are the same at every op."""
        return (_query(),)

    def render(self, state: TextsState, frame: Frame, answers: Answers) -> Picture:
        """The texts in view; those that are yet to be said are dim. That which Enter
        goes to is there in full.
        """
        found: TextList = answers.of(_query())
        if not found.rows:
            return Picture(([(f" {NO_TEXTS}", "dim")],))
        said = self._said(found, frame)
        lines: list[Line] = [[(f"{'time':>10} {'PE':<10} text", "dim")]]
        visible = state.rows.visible
        rows = found.rows[visible.start : visible.stop]
        for i, row in enumerate(rows, visible.start):
            line = _line(row, here=i == said - 1, is_said=i < said)
            if i == state.rows.pick:
                line = [(text, "pick") for text, _ in line]
            if i == state.rows.at:
                lines += _wrapped(line, row, frame)
            else:
                lines.append(_with_site(line, row, frame))
        return Picture(
            tuple(lines[: frame.height]), f"{said:,} of {found.total:,} said"
        )


def _query() -> Query:
    """All texts."""
    return TEXTS.ask(pe=None, limit=_MOST)


def _line(row: TextRow, here: bool, is_said: bool) -> Line:
    """A text with its time and PE; ``here``: it is the last before the cursor."""
    mark = ">" if here else " "
    said = " | ".join(row.said.splitlines())
    style = _STYLES.get(row.level, "")
    if not is_said:
        style = "dim"
    head = f"{mark}{time_text(row.t):>9} {short_name(row.pe):<10} "
    return [(head, "title" if is_said else "dim"), (said, style)]


def _room_of(line: Line, row: TextRow, frame: Frame) -> int:
    """Columns of what is said, between time and PE and the kernel line."""
    beside = length(line[:-1]) + len(_site(row)) + 2
    return max(frame.width - beside, _LEAST_ROOM)


def _site(row: TextRow) -> str:
    """The kernel line, without its folder."""
    return row.site.rpartition("/")[2]


def _with_site(line: Line, row: TextRow, frame: Frame) -> Line:
    """A line cut to the pane, its kernel line on the right."""
    *head, (said, style) = line
    room = _room_of(line, row, frame)
    site = (f" {_site(row)}", "dim")
    return [*head, (clip(said, room, frame.glyphs), style), site]


def _wrapped(line: Line, row: TextRow, frame: Frame) -> list[Line]:
    """A line with all that is said, below itself where it is too long for one; as far
    as the pane is high.
    """
    *head, (said, style) = line
    room = _room_of(line, row, frame)
    if len(said) <= room:
        return [_with_site(line, row, frame)]
    first, *rest = wrap(said, room) or [""]
    left = max(frame.height - _HEAD_LINES - 1, 0)
    lines = [_with_site([*head, (first, style)], row, frame)]
    indent = (" " * length(head), "")
    return [*lines, *([indent, (part, style)] for part in rest[:left])]


def _more_lines(found: TextList, rows: Rows, frame: Frame) -> int:
    """Lines that the row in full takes beyond its own."""
    if rows.at is None or rows.at >= len(found.rows):
        return 0
    row = found.rows[rows.at]
    return len(_wrapped(_line(row, here=False, is_said=True), row, frame)) - 1

"""Pane 2: the op log around the cursor, and everything recorded about the
current op.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import TypeAlias

from kernbench.replay.answers import OpDetails, OpRow, Source
from kernbench.replay.arrays import Ints
from kernbench.replay.command import Call
from kernbench.replay.commands import GOTO, OP, OPS, SOURCE
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import FITTING, IN_SERVICE, OP_ROWS
from kernbench.replay.query import Query
from kernbench.replay.text import time_text
from kernbench.replay.views.ops import InService
from tui.draw import Glyphs, Line, clip
from tui.panes.base import (
    Answers,
    Back,
    BasePane,
    Change,
    Click,
    Do,
    Enter,
    Event,
    Frame,
    Moved,
    Picture,
    Rows,
    Scroll,
    Settle,
    before_first_op,
)

# the words that the lines of what is recorded begin with, in their order
# shown; each with its style
_RANKS = (
    ("op ", "bold"),
    ("time ", ""),
    ("call ", ""),
    (">", "bold"),
    ("waited ", "mark"),
    ("after ", ""),
)
_OTHERS = "dim"
_SIDE_BY_SIDE = 76
"""Columns from which on the details stand beside the list."""
_LONG = 400
"""Columns that the text of an answer may have before it is wrapped here."""


Listed: TypeAlias = "range | Ints"
"""The positions of the ops that are listed."""


@dataclass(frozen=True, slots=True)
class Filter:
    """List only the ops that fit an expression; empty: all."""

    where: str


@dataclass(frozen=True, slots=True)
class OpsState:
    """The list in view, and the expression that the listed ops fit; empty: all are."""

    rows: Rows = field(default_factory=Rows)
    where: str = ""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The sizes, in cells, of the list and of the details, beside it or below."""

    list_width: int
    list_height: int
    details_width: int
    details_height: int
    beside: bool


def _layout(frame: Frame) -> _Layout:
    width = frame.width
    height = frame.height
    if frame.details_beside:
        return _Layout(width, height, width, 0, False)
    if width >= _SIDE_BY_SIDE:
        left = min(max(width // 2, 46), 60)
        return _Layout(left, height, width - left - 2, height, True)
    below = 0
    if height > 8:
        below = min(height * 9 // 20, 22)
    return _Layout(width, height - below, width, below, False)


class OpsPane(BasePane[OpsState]):
    """A virtual list: only the rows in view are asked for."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def start(self) -> OpsState:
        """All ops, from the first on."""
        return OpsState()

    # -- update -------------------------------------------------------------------

    def update(
        self, state: OpsState, event: Event, frame: Frame, answers: Answers
    ) -> Change[OpsState] | None:
        """Scrolls the list, and follows the cursor."""
        rows = state.rows
        match event:
            case Moved():
                rows = rows.released()
            case Settle():
                pass
            case Filter(where):
                state = OpsState(rows.released(), where)
                rows = state.rows
            case Back():
                if not state.where:
                    return None
                state = OpsState(rows.released())
                rows = state.rows
            case Scroll():
                rows = rows.moved(event)
            case Click(_, y):
                picked = rows.picked_at(y - 1)
                if picked is None:
                    return Change(state)
                state = replace(state, rows=picked)
                return Change(state, self._entered(state, answers))
            case Enter():
                return Change(state, self._entered(state, answers))
            case _:
                return None
        return Change(self._settled(replace(state, rows=rows), frame, answers))

    def _settled(self, state: OpsState, frame: Frame, answers: Answers) -> OpsState:
        """The list scrolled to what is picked, or to the last listed op by the
        cursor.
        """
        listed = self._listed(state, answers)
        if frame.height <= 0 or listed is None:
            return state
        here = None
        if len(listed):
            here = max(bisect_right(listed, frame.cursor) - 1, 0)
        room = _layout(frame).list_height - 1
        return replace(state, rows=state.rows.settled(len(listed), room, here))

    def _entered(self, state: OpsState, answers: Answers) -> tuple[Do, ...]:
        listed = self._listed(state, answers)
        if state.rows.at is None or listed is None or not len(listed):
            return ()
        return (Do(GOTO(op=int(listed[state.rows.at]))),)

    def _listed(self, state: OpsState, answers: Answers) -> Listed | None:
        """The positions of the ops that are listed; None until they are known."""
        if not state.where:
            return range(len(self._index.ops))
        found: Ints | None = answers.known(FITTING.ask(expr=state.where))
        return found

    # -- queries ------------------------------------------------------------------

    def question(self, state: OpsState, frame: Frame, answers: Answers) -> Call | None:
        """The log around the cursor, of ops that fit the filter."""
        return OPS(where=state.where)

    def queries(
        self, state: OpsState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The rows in view, what is in service, and the current op with its source."""
        wanted = [IN_SERVICE.ask(frame.cursor)]
        if frame.cursor >= 0:
            wanted += [OP.ask(frame.cursor), SOURCE.ask(frame.cursor)]
        if state.where:
            wanted.append(FITTING.ask(expr=state.where))
        listed = self._listed(state, answers)
        if listed is not None:
            wanted.append(_rows_query(state, listed))
        return tuple(wanted)

    # -- render -------------------------------------------------------------------

    def render(self, state: OpsState, frame: Frame, answers: Answers) -> Picture:
        """The list above the details, or beside them where that is wide enough."""
        layout = _layout(frame)
        rows = self._list(state, layout, frame, answers)[: frame.height]
        details = self._details(layout, frame, answers)
        if not layout.beside:
            return Picture((*rows, *details))
        bar = (f"{frame.glyphs.bar} ", "rule")
        rows += [[(" " * layout.list_width, "")]] * (frame.height - len(rows))
        details += [[]] * (frame.height - len(details))
        pairs = zip(rows, details, strict=True)
        return Picture(tuple([*row, bar, *detail] for row, detail in pairs))

    def _list(
        self, state: OpsState, layout: _Layout, frame: Frame, answers: Answers
    ) -> list[Line]:
        if state.where:
            answers.of(FITTING.ask(expr=state.where))
        listed = self._listed(state, answers)
        if listed is None:
            return []
        found: tuple[OpRow, ...] = answers.of(_rows_query(state, listed))
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        flying = set(service.ops.tolist())
        width = layout.list_width
        lines = [[(clip(self._heading(state, listed), width, frame.glyphs), "dim")]]
        for i, row in zip(state.rows.visible, found, strict=True):
            style, mark = _style(
                here=row.op == frame.cursor,
                flying=row.op in flying,
                picked=i == state.rows.pick,
            )
            lines.append(self._row(row, mark, style, width, frame))
        return lines

    def _heading(self, state: OpsState, listed: Listed) -> str:
        name = "name" if len(listed) else "no ops"
        if state.where:
            name = f"{len(listed):,} fit {state.where}"
        return f"  {'op':>{self._digits}} {'start':>9} {'takes':>8}   {name}"

    @property
    def _digits(self) -> int:
        return len(f"{len(self._index.ops):,}")

    def _row(self, row: OpRow, mark: str, style: str, width: int, frame: Frame) -> Line:
        head = f"{mark} {row.op:>{self._digits},} {time_text(row.t_start):>9} "
        head += f"{time_text(row.t_end - row.t_start):>8} "
        node = int(self._index.ops.components[row.op])
        name = row.name.removeprefix("TileToken/")
        text = f" {self._index.ops.label(node)} {name}".replace("  ", " ")
        tail = clip(text, max(width - len(head) - 1, 0), frame.glyphs)
        letter = style if mark == ">" else row.letter
        return [(head, style), (row.letter, letter), (tail, style)]

    def _details(self, layout: _Layout, frame: Frame, answers: Answers) -> list[Line]:
        """Everything recorded about the op, what matters most first, as far as
        it fits.
        """
        height = layout.details_height
        if height <= 0:
            return []
        if frame.cursor < 0:
            return [before_first_op(len(self._index.ops))]
        details: OpDetails = answers.of(OP.ask(frame.cursor))
        source: Source = answers.of(SOURCE.ask(frame.cursor))
        texts = [*source.lines(_LONG), *details.lines(_LONG)]
        return _wrapped(
            sorted(texts, key=_rank), layout.details_width, height, frame.glyphs
        )


def _rows_query(state: OpsState, listed: Listed) -> Query:
    visible = state.rows.visible
    ops = listed[visible.start : visible.stop]
    return OP_ROWS.ask(ops=tuple(int(op) for op in ops))


def _style(here: bool, flying: bool, picked: bool) -> tuple[str, str]:
    """The style of a row, and the mark in front of it."""
    mark = " "
    style = ""
    if flying:
        mark = "*"
        style = "flight"
    if here:
        mark = ">"
        style = "here"
    return ("pick" if picked else style), mark


def _rank(text: str) -> int:
    """Where a line of what is recorded belongs; the source around and
    parameters last.
    """
    for i, (head, _) in enumerate(_RANKS):
        if text.startswith(head):
            return i
    return len(_RANKS)


def _wrapped(
    texts: Sequence[str], width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Texts as at most ``height`` lines, the last of which says where there is more."""
    lines: list[Line] = []
    for text in texts:
        rank = _rank(text)
        style = _RANKS[rank][1] if rank < len(_RANKS) else _OTHERS
        parts = [text]
        if len(text) > width:
            parts = wrap(text, max(width, 8), subsequent_indent="  ")
        lines += [[(part, style)] for part in parts]
        if len(lines) > height:
            break
    if len(lines) > height:
        more = f"{glyphs.more} :op and :source show all"
        lines = [*lines[: height - 1], [(more, "dim")]]
    return lines

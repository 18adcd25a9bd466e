"""Pane 7: the kernel of the op, with the time and the stalls of each of its lines.

Knows no kernel but by its text: where that is not in the trace, only the lines that
took time are listed, by their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from kernbench.replay.answers import Source
from kernbench.replay.command import Call
from kernbench.replay.commands import LINES, SOURCE, TO_LINE
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import IN_SERVICE
from kernbench.replay.query import Query
from kernbench.replay.text import time_text
from kernbench.replay.time.pieces import KINDS
from kernbench.replay.time.stalls import LineTime, LineTimes
from kernbench.replay.views.ops import InService
from tui.draw import Glyphs, Line, clip
from tui.panes.base import (
    QUICK_OPS,
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
    Pan,
    Picture,
    Rows,
    Scroll,
    Settle,
    Waiting,
    before_first_op,
)

_SERVED = ("compute", "load", "store", "issue", "idle")
"""What time goes to beside stalls."""
_MOSTLY_STALLED = 0.5
"""Share of a line's time from which on its stalls are marked."""
_PAN_COLUMNS = 8
_TIMES_COLUMNS = 18
"""Columns of the share and the time of a line."""
_BESIDE_CODE = 25
"""Columns in front of the text, but those of the stalls."""
_SHORTEST_CODE = 8
_LINE_BITS = (1 << 32) - 1
"""Of a kernel line as ``OpIndex.sites`` numbers it; the bits above are of its file."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The lines in view; their text is shown from character ``column`` on."""

    rows: Rows = field(default_factory=Rows)
    column: int = 0


class _Took(NamedTuple):
    """What a line took, as texts: its share and time; what share of that was stalls,
    with the ``style`` of these.
    """

    times: str
    stalls: str
    style: str


_NOTHING = _Took("", "", "")


class SourcePane(BasePane[SourceState]):
    """The text around the op's own line, and what its lines took on the PEs of the
    focus.

    Enter on a line goes to the next op that this PE's kernel issued there.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._has_quick_times = len(index.ops) <= QUICK_OPS

    def start(self) -> SourceState:
        """The text from its left edge on."""
        return SourceState()

    # -- update ---------------------------------------------------------------

    def update(
        self, state: SourceState, event: Event, frame: Frame, answers: Answers
    ) -> Change[SourceState] | None:
        """Picks lines, and follows the line of the op."""
        rows = state.rows
        match event:
            case Moved():
                state = SourceState(rows.released())
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=rows.moved(event))
            case Pan(by):
                column = max(state.column + _PAN_COLUMNS * by, 0)
                state = replace(state, column=column)
            case Enter():
                return Change(state, self._entered(state, frame, answers))
            case Click(_, y):
                picked = rows.picked_at(y - 1)
                if picked is None:
                    return Change(state)
                state = replace(state, rows=picked)
                return Change(state, self._entered(state, frame, answers))
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _settled(
        self, state: SourceState, frame: Frame, answers: Answers
    ) -> SourceState:
        """The text scrolled to the picked line, or to that of the op."""
        numbers = self._numbers(frame, answers)
        if frame.height <= 0 or numbers is None:
            return state
        source: Source | None = answers.known(SOURCE.ask(frame.cursor))
        here = None
        if source is not None and source.line in numbers:
            here = numbers.index(source.line)
        rows = state.rows.settled(len(numbers), frame.height - 1, here)
        return replace(state, rows=rows)

    def _entered(
        self, state: SourceState, frame: Frame, answers: Answers
    ) -> tuple[Effect, ...]:
        """To the next op of the picked line."""
        numbers = self._numbers(frame, answers)
        at = state.rows.at
        if numbers is None or at is None or at >= len(numbers):
            return ()
        return (Do(TO_LINE(n=numbers[at])),)

    def _numbers(self, frame: Frame, answers: Answers) -> range | list[int] | None:
        """The numbers of the lines that can be picked.

        None before the first op, and as long as it is not known of which file they are.
        """
        if frame.cursor < 0:
            return None
        source: Source | None = answers.known(SOURCE.ask(frame.cursor))
        if source is None:
            return None
        took: dict[int, _Took] = {}
        if not source.text:
            took = _took_by_line(source, answers.known(self._times_query(frame)))
        return _numbers_of(source, took)

    # -- queries --------------------------------------------------------------

    def question(
        self, state: SourceState, frame: Frame, answers: Answers
    ) -> Call | None:
        """The time of the lines, of the focus."""
        return LINES(pe=self._focus(frame)) if frame.cursor >= 0 else None

    def queries(
        self, state: SourceState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The text, the times of its lines if they are soon there, and what is in
        service.
        """
        if frame.cursor < 0:
            return ()
        asked = (SOURCE.ask(frame.cursor), IN_SERVICE.ask(frame.cursor))
        if not self._has_times_soon(answers):
            return asked
        return (*asked, self._times_query(frame))

    def wishes(
        self, state: SourceState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The times of the lines of a long trace."""
        if frame.cursor < 0:
            return ()
        return (self._times_query(frame),)

    def _has_times_soon(self, answers: Answers) -> bool:
        """Whether the times of the lines of any PE take a moment only: those of all
        have been found, or there is little to add up.
        """
        return self._has_quick_times or answers.known(LINES.ask()) is not None

    def _focus(self, frame: Frame) -> str | None:
        """The name of the focus, which is where the line ran; None for the whole
        machine.
        """
        _, name = self._index.ops.caller_focus(frame.cursor, frame.level)
        return name

    def _times_query(self, frame: Frame) -> Query:
        """What each line took on the PEs of the focus."""
        return LINES.ask(pe=self._focus(frame))

    # -- render ---------------------------------------------------------------

    def render(self, state: SourceState, frame: Frame, answers: Answers) -> Picture:
        """The lines around the op's own. While the times are computed the text is there
        alone, below a line that says so; so it is where they are not asked for yet.
        """
        if frame.cursor < 0:
            return Picture((before_first_op(len(self._index.ops)),))
        source: Source = answers.of(SOURCE.ask(frame.cursor))
        query = self._times_query(frame)
        find = answers.known
        if self._has_times_soon(answers):
            find = answers.of
        times: LineTimes | None = None
        waiting: Waiting | None = None
        try:
            times = find(query)
        except Waiting as missing:
            waiting = missing
        took = _took_by_line(source, times)
        wide = max((len(line.stalls) for line in took.values()), default=0)
        room = max(frame.width - _BESIDE_CODE - wide, _SHORTEST_CODE)
        head = self._head(source, wide, room, state, frame)
        if waiting is not None:
            head = waiting.line
        elif not source.text:
            head = [(f" {source.why_no_text}", "dim")]
        elif times is None:
            head = [(" line times are computed when no key is pressed", "dim")]
        flying = self._lines_in_service(frame, answers)
        lines = [head]
        visible = state.rows.visible
        numbers = _numbers_of(source, took)[visible.start : visible.stop]
        for i, number in enumerate(numbers, visible.start):
            here = number == source.line
            mark = _mark(number, here, number in flying)
            style = _number_style(here, i == state.rows.pick)
            taken = took.get(number, _NOTHING)
            code = _code(source, number, state.column, room, frame.glyphs)
            lines.append(
                [
                    (mark, style),
                    (f"{taken.times:{_TIMES_COLUMNS}}", "flight"),
                    (f"{taken.stalls:<{wide}} ", taken.style),
                    (code, "bold" if here else ""),
                ]
            )
        return Picture(tuple(lines), waiting=waiting)

    def _head(
        self, source: Source, wide: int, room: int, state: SourceState, frame: Frame
    ) -> Line:
        """What the columns are, of which PEs the times; that the text can be panned."""
        stalls = f"{'stalls'[:wide]:<{wide}}"
        whose = self._focus(frame) or "all PEs"
        head: Line = [
            (f"{'line':>6} {'share':>6} {'time':>9} {stalls}", "dim"),
            (f" {whose}, {source.function}", "title"),
        ]
        longest = max((len(text) for text in source.text), default=0)
        if state.column or longest > room:
            head.append(("  h l pan", "dim"))
        return head

    def _lines_in_service(self, frame: Frame, answers: Answers) -> set[int]:
        """The lines of this file that ops in service come from, the op's own too."""
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        own = int(self._index.ops.sites(np.array([frame.cursor]))[0])
        sites = np.append(service.sites, own)
        of_this_file = sites[sites >> 32 == own >> 32]
        return {site & _LINE_BITS for site in of_this_file.tolist()}


# -- lines --------------------------------------------------------------------


def _numbers_of(source: Source, took: Mapping[int, _Took]) -> range | list[int]:
    """All lines of the text; without it the op's own and those that took time."""
    if source.text:
        return range(1, len(source.text) + 1)
    own = {source.line} if source.line else set()
    return sorted({*own, *took})


def _took_by_line(source: Source, times: LineTimes | None) -> dict[int, _Took]:
    """What the lines of a file took, by number; empty until that is known."""
    took: dict[int, _Took] = {}
    if times is None:
        return took
    for row in times.rows:
        file, _, number = row.site.rpartition(":")
        if file == source.file:
            took[int(number)] = _took(row)
    return took


def _took(row: LineTime) -> _Took:
    """The texts of a line's share and time, and of what most of its stalls were for."""
    stalls = {
        kind: ns
        for kind, ns in row.kinds.items()
        if kind in KINDS and kind not in _SERVED
    }
    share = sum(stalls.values()) / max(row.time, 1e-12)
    most = ""
    if stalls:
        most = f"{share:.0%} {max(stalls, key=stalls.__getitem__)}"
    times = f" {row.share:>6.1%} {time_text(row.time):>9} "
    mostly = share >= _MOSTLY_STALLED
    return _Took(times, most, "mark" if mostly else "title")


def _mark(number: int, here: bool, flying: bool) -> str:
    """A line's number behind a sign: > for the op's own, * for others in service."""
    mark = " "
    if flying:
        mark = "*"
    if here:
        mark = ">"
    return f"{mark}{number:>5}"


def _number_style(here: bool, picked: bool) -> str:
    """The style of a line's number: the picked one's goes before the op's own."""
    if picked:
        return "pick"
    return "here" if here else "dim"


def _code(source: Source, number: int, column: int, room: int, glyphs: Glyphs) -> str:
    """A line of the text from a column on; an ellipsis stands where it is cut."""
    text = ""
    if 0 < number <= len(source.text):
        text = source.text[number - 1].expandtabs()
    code = text[column:]
    if text[:column].strip():
        code = f"{glyphs.more}{code[1:]}"
    return clip(code, room, glyphs)

"""Pane 3: the composites of the trace in canonical order, and the tiles of some of
them.

A composite is a row; one that is open has a row for each of its tiles below. A tile's
row has a slice for each stage, as in the timeline, and a dotted line where it waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import wrap

from kernbench.replay.command import Call
from kernbench.replay.commands import GOTO, TILES
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    IN_SERVICE,
    RUNNING_COMPOSITES,
    TILE_LINES,
    TILE_OUTLINE,
)
from kernbench.replay.query import Query
from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.op_classes import STAGE_LETTERS, TILE_PREFIX
from kernbench.replay.time.slices import Slice
from kernbench.replay.time.tiles import TileRow, waited_ns
from kernbench.replay.views.ops import InService
from kernbench.replay.views.tiles import (
    RunningComposite,
    TileLine,
    TileOutline,
    TilePlace,
)
from kernbench.trace.hops import named
from tui.draw import Line
from tui.panes.axis import Axis, ruler
from tui.panes.base import (
    Answers,
    BasePane,
    Change,
    ChangeView,
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
)
from tui.panes.slices import Pointed, Row, beside, duration_text

ALL_RUNNING = 1
"""The number of the view in which every composite is open that runs while the cursor's
does.
"""

_WAITED = 22
"""Columns right of the chart, for how long a tile waited and for what."""
_ROWS_ABOVE = 2
"""Rows above the cursor's composite, if all of its tiles are in view."""
_LEAST_NS = 1e-3
"""The shortest time that a chart spans."""
_LEAST_CHART = 8
"""Columns of the chart in the narrowest pane."""
_HEADER = 2
"""Lines above the list: one about the cursor's composite, and the ruler."""
_SHORT = {"hbm_channel": "hbm", "dma_slot": "dma slot", "sram_port": "sram"}
"""Reasons of waits, where there is little room."""
_MOST_REASONS = 2
"""Reasons that are named of what tiles wait for."""
_NEVER_ENDED = "a composite that has not ended"
_LEAST_NOTE = 8
"""Columns of a note in the narrowest pane."""
_NONE_ENDED = (
    "no composite had ended where the recording ends; / TileToken goes to one that runs"
)


@dataclass(frozen=True, slots=True)
class TilesState:
    """What the user has chosen to see.

    ``view`` is a number of ``TilesPane.views``, and ``rows`` the part of the list in
    view.

    ``times`` are from when to when, ns, composites are open in the view
    ``ALL_RUNNING``; None before it was shown. They stay as long as the cursor's
    composite runs in them: then steps from PE to PE do not open and close others.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    times: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class _Listing:
    """Which rows the list has.

    There are so many ``composites``. ``opened`` has the places of those that are open,
    ascending, each with the numbers of those of its tiles that are listed.
    """

    composites: int
    opened: tuple[tuple[int, Sequence[int]], ...]

    @property
    def total(self) -> int:
        """How many rows there are."""
        return self.composites + sum(len(tiles) for _, tiles in self.opened)

    def row_of(self, place: int) -> int:
        """The row of the composite at a place."""
        return place + sum(len(tiles) for other, tiles in self.opened if other < place)

    def at(self, row: int) -> TilePlace:
        """The composite or tile that a row is of."""
        tiles_above = 0
        for place, tiles in self.opened:
            tile = row - (place + tiles_above) - 1
            if tile < 0:
                break
            if tile < len(tiles):
                return place, tiles[tile]
            tiles_above += len(tiles)
        return row - tiles_above, None


@dataclass(frozen=True, slots=True)
class _Content:
    """The list, and where the cursor's composite is in it."""

    outline: TileOutline
    listing: _Listing

    @property
    def here(self) -> int:
        """The row of the cursor's tile; where it is in none, of its composite."""
        row = self.listing.row_of(self.outline.place)
        if self.outline.current is not None:
            row += 1 + self.outline.current
        return row


class TilesPane(BasePane[TilesState]):
    """The list of composites.

    The chart spans the times of the tiles in view, so scrolling down also moves to the
    right. The cursor's composite is open; in the other view all are that run at its
    time.
    """

    views: tuple[str, ...] = ("composite", "all at its time")

    def __init__(self, index: Index) -> None:
        self._index = index

    def start(self) -> TilesState:
        """The view in which the cursor's composite alone is open."""
        return TilesState()

    def view(self, state: TilesState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: TilesState, view: int) -> TilesState:
        """The state with another view."""
        return replace(state, view=view)

    # -- update --------------------------------------------------------------------

    def update(
        self, state: TilesState, event: Event, frame: Frame, answers: Answers
    ) -> Change[TilesState] | None:
        """Scrolls the list, and follows the cursor."""
        match event:
            case Moved():
                state = replace(state, rows=state.rows.released())
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=state.rows.moved(event))
            case ChangeView(by):
                state = self.next_view(state, by) or state
            case Enter():
                return Change(state, self._entered(state, frame, answers))
            case Click(_, y):
                picked = state.rows.picked_at(y - _HEADER)
                if picked is None:
                    return Change(state)
                state = replace(state, rows=picked)
                return Change(state, self._entered(state, frame, answers))
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _settled(self, state: TilesState, frame: Frame, answers: Answers) -> TilesState:
        """The list scrolled so that the picked row is in view, or the cursor's tile.

        Unchanged while it is not known what there is to list.
        """
        outline: TileOutline | None = answers.known(TILE_OUTLINE.ask(frame.cursor))
        if frame.height <= 0 or outline is None:
            return state
        if state.view == ALL_RUNNING and outline.composite is not None:
            state = replace(state, times=_times_around(outline, state.times))
        content = self._content(state, frame, answers)
        if content is None:
            return state
        room = frame.height - _HEADER
        rows = state.rows
        if rows.pick is None and content.outline.tiles < room - _ROWS_ABOVE:
            # An open composite stays at its lines when the next one is opened.
            first = content.listing.row_of(content.outline.place)
            rows = replace(rows, top=first - _ROWS_ABOVE)
        rows = rows.settled(content.listing.total, room, content.here)
        return replace(state, rows=rows)

    def _content(
        self, state: TilesState, frame: Frame, answers: Answers
    ) -> _Content | None:
        """The list; None while it is not known, and if there is nothing to list."""
        outline: TileOutline | None = answers.known(TILE_OUTLINE.ask(frame.cursor))
        if outline is None or outline.empty:
            return None
        opened: dict[int, Sequence[int]] = {}
        query = _running_query(state, outline)
        if query is not None:
            running: tuple[RunningComposite, ...] | None = answers.known(query)
            if running is None:
                return None
            opened = {composite.place: composite.tiles for composite in running}
        opened[outline.place] = range(outline.tiles)
        by_place = tuple((place, opened[place]) for place in sorted(opened))
        return _Content(outline, _Listing(outline.composites, by_place))

    def _entered(
        self, state: TilesState, frame: Frame, answers: Answers
    ) -> tuple[Do, ...]:
        """Go to the picked composite; of a tile to the stage that it is in at the
        cursor's time, or if it has not begun then to its first.
        """
        content = self._content(state, frame, answers)
        row = state.rows.at
        if content is None or row is None or row not in state.rows.visible:
            return ()
        lines: tuple[TileLine, ...] | None
        lines = answers.known(_lines_query(state, content, frame))
        if lines is None:
            return ()
        line = lines[row - state.rows.top]
        if line.tile is None:
            return (Do(GOTO(op=line.op)),)
        time = self._index.ops.time(frame.cursor)
        begun = [span for span in line.tile.spans if span.t0 <= time]
        stage = begun[-1] if begun else line.tile.spans[0]
        return (Do(GOTO(op=stage.op)),)

    # -- queries -------------------------------------------------------------------

    def question(
        self, state: TilesState, frame: Frame, answers: Answers
    ) -> Call | None:
        """The tiles of the op's composite."""
        return TILES() if frame.cursor >= 0 else None

    def queries(
        self, state: TilesState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """First where the cursor is in the list, then what is open beside its
        composite, then the rows in view.
        """
        outline_query = TILE_OUTLINE.ask(frame.cursor)
        wanted = [IN_SERVICE.ask(frame.cursor), outline_query]
        outline: TileOutline | None = answers.known(outline_query)
        if outline is not None:
            running = _running_query(state, outline)
            if running is not None:
                wanted.append(running)
        content = self._content(state, frame, answers)
        if content is not None:
            wanted.append(_lines_query(state, content, frame))
        return tuple(wanted)

    @cached_property
    def _has_tiles(self) -> bool:
        """Whether a tile of a composite has run, be it of one that has not ended."""
        return bool(named(self._index.trace, TILE_PREFIX).any())

    # -- render --------------------------------------------------------------------

    def render(self, state: TilesState, frame: Frame, answers: Answers) -> Picture:
        """A line about the cursor's composite, the ruler, and the rows in view."""
        outline: TileOutline = answers.of(TILE_OUTLINE.ask(frame.cursor))
        if outline.empty:
            note = outline.note or "this composite has no tiles"
            if outline.note and self._has_tiles:
                note = _NONE_ENDED
            parts = wrap(note, max(frame.width - 2, _LEAST_NOTE))
            return Picture(tuple([(f" {part}", "dim")] for part in parts))
        running = _running_query(state, outline)
        if running is not None:
            answers.of(running)
        content = self._content(state, frame, answers)
        if content is None:
            return Picture(())
        lines: tuple[TileLine, ...]
        lines = answers.of(_lines_query(state, content, frame))
        return self._picture(state, content, lines, frame, answers)

    def _picture(
        self,
        state: TilesState,
        content: _Content,
        lines: tuple[TileLine, ...],
        frame: Frame,
        answers: Answers,
    ) -> Picture:
        """The same, of rows that are known."""
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        in_service = set(service.ops.tolist())
        names = [self._name(line) for line in lines]
        label = max(map(len, names), default=0) + 2
        t0, t1 = _span_of(lines)
        time = None
        if frame.cursor >= 0:
            time = self._index.ops.time(frame.cursor)
        columns = max(frame.width - label - _WAITED, _LEAST_CHART)
        axis = Axis(t0, max(t1, t0 + _LEAST_NS), label, columns, time, frame.glyphs)
        head = self._head(content.outline, frame.cursor, t0, t1)
        drawn = [beside(head, _summary(lines), frame.width), ruler(axis)]
        pointed = Pointed(frame.cursor)
        numbers = range(state.rows.top, state.rows.top + len(lines))
        for i, line, name in zip(numbers, lines, names, strict=True):
            mark = " "
            style = "title"
            if not in_service.isdisjoint(_ops_of(line)):
                mark = "*"
                style = "flight"
            if i == content.here:
                mark = ">"
                style = "here"
            if i == state.rows.pick:
                style = "pick"
            row = Row(axis)
            if line.tile is not None:
                for wait in line.tile.waits:
                    row.add_wait(wait.t0, wait.t1)
            row.add_slices(_slices(line), pointed)
            row.add_cursor()
            text = f"{mark}{name}".ljust(label - 1)
            drawn.append([(text, style), (" ", ""), *row.line, *_waited(line.tile)])
        return Picture(tuple(drawn))

    def _name(self, line: TileLine) -> str:
        """A tile by its index, a composite by its position and the PE that ran it."""
        if line.tile is not None:
            return f" {','.join(map(str, line.tile.index))}"
        if line.op < 0:
            return "not ended"
        return f"#{line.op} {self._index.ops.label(self._node(line.op))}"

    def _node(self, op: int) -> int:
        """The node that served an op."""
        return int(self._index.ops.components[op])

    def _head(self, outline: TileOutline, cursor: int, t0: float, t1: float) -> Line:
        """The composite that the cursor is in, or the last one before it; how many
        tiles it has, and the times in view.
        """
        op = outline.composite
        whole = _NEVER_ENDED
        if op is not None:
            whole = f"composite #{op} {self._index.ops.label(self._node(op))}"
        if outline.current is None and op != cursor:
            whole = f"last {whole}"
        count = count_text(outline.tiles, "tile")
        times = f"{time_text(t1 - t0)} shown"
        return [(f" {whole}: {count}; {times}", "title")]


def _times_around(
    outline: TileOutline, times: tuple[float, float] | None
) -> tuple[float, float]:
    """From when to when, ns, composites are open: as before, if the cursor's composite
    runs then, else while that does.
    """
    if times is None or outline.t0 >= times[1] or outline.t1 <= times[0]:
        return outline.t0, outline.t1
    return times


def _running_query(state: TilesState, outline: TileOutline) -> Query | None:
    """The question which composites are open; None if only the cursor's is."""
    if state.view != ALL_RUNNING or outline.composite is None or state.times is None:
        return None
    t0, t1 = state.times
    return RUNNING_COMPOSITES.ask(t0=t0, t1=t1)


def _lines_query(state: TilesState, content: _Content, frame: Frame) -> Query:
    """The question about the rows in view."""
    listing = content.listing
    in_view = [row for row in state.rows.visible if row < listing.total]
    rows = tuple(listing.at(row) for row in in_view)
    ended = content.outline.composite is not None
    return TILE_LINES.ask(rows=rows, unended=None if ended else frame.cursor)


# -- the rows ----------------------------------------------------------------------


def _slices(line: TileLine) -> list[Slice]:
    """A composite as one slice, a tile as one for each of its stages."""
    if line.tile is None:
        return [Slice(line.op, line.t0, line.t1, "C", 0, "composite")]
    slices = []
    for span in line.tile.spans:
        letter = STAGE_LETTERS[span.stage]
        name = span.stage.lower().removeprefix("dma_")
        slices.append(Slice(span.op, span.t0, span.t1, letter, 0, name))
    return slices


def _span_of(lines: Sequence[TileLine]) -> tuple[float, float]:
    """From when to when, ns, the tiles among some rows last; where there is no tile,
    the composites.
    """
    seen = [line for line in lines if line.tile is not None] or lines
    starts = [line.t0 for line in seen]
    ends = [line.t1 for line in seen]
    return min(starts, default=0.0), max(ends, default=0.0)


def _ops_of(line: TileLine) -> list[int]:
    """The ops that a row stands for: the composite, or the stages of the tile."""
    if line.tile is None:
        return [line.op]
    return [span.op for span in line.tile.spans]


def _waited(tile: TileRow | None) -> Line:
    """How long a tile waited in all, and what for longest; empty if it did not wait."""
    if tile is None or not tile.waits:
        return []
    (reason, _), *_ = _waits_of([tile])
    whole = duration_text(waited_ns(tile.waits))
    return [(f" waits {whole}", "title"), (f" {reason}", "dim")]


def _waits_of(tiles: Sequence[TileRow]) -> list[tuple[str, float]]:
    """What some tiles waited for, and for how long in all (ns), the longest first."""
    by_reason: dict[str, float] = defaultdict(float)
    for tile in tiles:
        for reason in dict.fromkeys(wait.reason for wait in tile.waits):
            of_it = [wait for wait in tile.waits if wait.reason == reason]
            by_reason[_SHORT.get(reason, reason)] += waited_ns(of_it)
    return sorted(by_reason.items(), key=lambda reason: -reason[1])


def _summary(lines: Sequence[TileLine]) -> Line:
    """What the tiles in view wait for."""
    waits = _waits_of([line.tile for line in lines if line.tile is not None])
    if not waits:
        return []
    texts = [f"{duration_text(ns)} for {reason}" for reason, ns in waits]
    return [("tiles wait ", "dim"), (", ".join(texts[:_MOST_REASONS]), "title")]

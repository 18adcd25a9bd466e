"""Pane 3: the composites in order; of those that are open a row a tile, over time.

A colour and a letter stand for each stage, dots for what a tile waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernbench.replay.commands import (
    GOTO,
    IN_SERVICE,
    RUNNING_COMPOSITES,
    TILE_LINES,
    TILE_OUTLINE,
)
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.tiles import STAGE_LETTERS, TileRow
from kernbench.replay.views import InService
from kernbench.replay.views_tiles import (
    RunningComposite,
    TileLine,
    TileOutline,
    TilePlace,
)
from tui.draw import Glyphs, Line
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

ALL_RUNNING = 1
"""The view in which all composites are open that run at the time of the cursor's."""

_QUEUE = "."
_ON_ITS_WAY = ":"
_OTHER = ","
_DOTS = {
    "engine": _QUEUE,
    "window": _QUEUE,
    "dma_slot": _QUEUE,
    "link": _ON_ITS_WAY,
    "hbm_channel": _ON_ITS_WAY,
}
"""Of what a tile waits for: its turn, or bytes on their way; all else is ``_OTHER``."""
_LEGEND = ((_QUEUE, "queue"), (_ON_ITS_WAY, "link/hbm"), (_OTHER, "other"))
_WAITED = 22
"""Columns beside the chart, for how long a tile waited, and for what."""
_LEAST_CHART = 8
_HEADER = 2
"""Lines above the list: what the cursor's composite is, and the legend."""
_NEVER_ENDED = "a composite that never ended"


@dataclass(frozen=True, slots=True)
class TilesState:
    """The view; the list in view; the times, ns, whose composites are open beside the
    cursor's. Those stay as long as its own lies in them, so that steps from PE to PE
    change nothing.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    times: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class _Listing:
    """The list of ``composites``, by place, with the numbers of the tiles of those that
    are open; these ascend by place.
    """

    composites: int
    opened: tuple[tuple[int, Sequence[int]], ...]

    @property
    def total(self) -> int:
        """How many rows there are."""
        return self.composites + sum(len(tiles) for _, tiles in self.opened)

    def row_of(self, place: int) -> int:
        """The row of a composite."""
        return place + sum(len(tiles) for other, tiles in self.opened if other < place)

    def at(self, row: int) -> TilePlace:
        """What a row shows."""
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
    """What there is to list, and where the cursor is in it."""

    outline: TileOutline
    listing: _Listing

    @property
    def here(self) -> int:
        """The row of the cursor's tile, else of its composite."""
        row = self.listing.row_of(self.outline.place)
        if self.outline.current is not None:
            row += 1 + self.outline.current
        return row


class TilesPane(BasePane[TilesState]):
    """Time spans what the rows in view span, so scrolling down also moves right.

    The cursor's composite is open, in the other view all that run at its time.
    """

    views: tuple[str, ...] = ("composite", "all at its time")

    def __init__(self, index: Index) -> None:
        self._index = index

    def start(self) -> TilesState:
        """The cursor's composite, from its first row on."""
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
        """The list scrolled to what is picked, or to the cursor's tile."""
        outline: TileOutline | None = answers.known(TILE_OUTLINE.ask(frame.cursor))
        if frame.height <= 0 or outline is None:
            return state
        if state.view == ALL_RUNNING and outline.composite is not None:
            state = replace(state, times=_times_around(outline, state.times))
        content = self._content(state, frame, answers)
        if content is None:
            return state
        room = frame.height - _HEADER
        rows = state.rows.settled(content.listing.total, room, content.here)
        return replace(state, rows=rows)

    def _content(
        self, state: TilesState, frame: Frame, answers: Answers
    ) -> _Content | None:
        """What there is to list; None while that is not known, or if it is nothing."""
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
        """To the stage that the picked tile is in at the cursor's time; to a composite."""
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

    def queries(
        self, state: TilesState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """Where the cursor is in the list, then what is open, then the rows in view."""
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

    # -- render --------------------------------------------------------------------

    def render(self, state: TilesState, frame: Frame, answers: Answers) -> Picture:
        """Head, legend, rows."""
        outline: TileOutline = answers.of(TILE_OUTLINE.ask(frame.cursor))
        if outline.empty:
            note = outline.note or "this composite has no tiles"
            return Picture(([(f" {note}", "dim")],))
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
        service: InService = answers.of(IN_SERVICE.ask(frame.cursor))
        serving = set(service.ops.tolist())
        names = [self._name(line) for line in lines]
        label = max(map(len, names), default=0) + 2
        t0, t1 = _span_of(lines)
        time = None
        if frame.cursor >= 0:
            time = self._index.ops.time(frame.cursor)
        columns = max(frame.width - label - _WAITED, _LEAST_CHART)
        drawn = [self._head(content.outline, frame.cursor, t0, t1), _legend()]
        for i, (line, name) in enumerate(
            zip(lines, names, strict=True), state.rows.top
        ):
            mark = " "
            style = "title"
            if not serving.isdisjoint(_ops_of(line)):
                mark = "*"
                style = "flight"
            if i == content.here:
                mark = ">"
                style = "here"
            if i == state.rows.pick:
                style = "pick"
            chart = _Chart(t0, t1, columns)
            chart.add(line)
            cells = chart.with_cursor(time, frame.glyphs)
            text = f"{mark}{name}".ljust(label - 1)
            drawn.append([(text, style), (" ", ""), *cells, *_waited(line.tile)])
        return Picture(tuple(drawn))

    def _name(self, line: TileLine) -> str:
        """A tile's index, or a composite and the PE that served it."""
        if line.tile is not None:
            return f" {','.join(map(str, line.tile.index))}"
        if line.op < 0:
            return _NEVER_ENDED
        return f"#{line.op} {self._index.ops.label(self._node(line.op))}"

    def _node(self, op: int) -> int:
        return int(self._index.ops.components[op])

    def _head(self, outline: TileOutline, cursor: int, t0: float, t1: float) -> Line:
        """Which composite the cursor is in, or came after, and the times in view."""
        op = outline.composite
        whole = _NEVER_ENDED
        if op is not None:
            whole = f"composite #{op} {self._index.ops.label(self._node(op))}"
        if outline.current is None and op != cursor:
            whole = f"last {whole}"
        count = count_text(outline.tiles, "tile")
        times = f"{time_text(t1 - t0)} from {time_text(t0)}"
        return [(f" {whole}: {count}; {times}", "title")]


def _times_around(
    outline: TileOutline, times: tuple[float, float] | None
) -> tuple[float, float]:
    """The times whose composites are open: those from before, if the cursor's composite
    ran then, else its own.
    """
    if times is None or outline.t0 >= times[1] or outline.t1 <= times[0]:
        return outline.t0, outline.t1
    return times


def _running_query(state: TilesState, outline: TileOutline) -> Query | None:
    """The question which composites are open beside the cursor's; None: none is."""
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


# -- the chart ---------------------------------------------------------------------


class _Chart:
    """A row's cells from ``t0`` to ``t1``, ns."""

    def __init__(self, t0: float, t1: float, columns: int) -> None:
        self._t0 = t0
        self._t1 = t1
        self._cell_ns = max(t1 - t0, 1e-9) / columns
        self._cells: Line = [(" ", "")] * columns

    def add(self, line: TileLine) -> None:
        """A composite as one bar; of a tile its stages, and what it waits for."""
        if line.tile is None:
            for i in self._range(line.t0, line.t1):
                self._cells[i] = ("=", "rule")
            return
        begins = set()
        for span in line.tile.spans:
            letter = STAGE_LETTERS[span.stage]
            for i in self._range(span.t0, span.t1):
                self._cells[i] = (letter, letter)
            begins.add(self._cell_of(span.t0))
        for wait in line.tile.waits:
            dot = _DOTS.get(wait.reason, _OTHER)
            for i in self._range(wait.t0, wait.t1):
                if i not in begins:
                    self._cells[i] = (dot, self._cells[i][1] or "mark")

    def _cell_of(self, t: float) -> int:
        """The cell of a time; the nearest of one that is not in view."""
        cell = int((t - self._t0) / self._cell_ns)
        return min(max(cell, 0), len(self._cells) - 1)

    def _range(self, t0: float, t1: float) -> range:
        """The cells from ``t0`` to ``t1``, at least one of what is in view."""
        if t0 > self._t1 or t1 < self._t0:
            return range(0)
        first = self._cell_of(t0)
        end = int((t1 - self._t0) / self._cell_ns)
        return range(first, min(max(end, first + 1), len(self._cells)))

    def with_cursor(self, time: float | None, glyphs: Glyphs) -> Line:
        """The cells, and the cursor among them if its time is in view."""
        cells = self._cells.copy()
        if time is not None and self._t0 <= time < self._t1:
            at = self._cell_of(time)
            text, style = cells[at]
            is_stage = len(style) == 1
            cells[at] = (text, f"{style}|") if is_stage else (glyphs.bar, "mark")
        return cells


def _span_of(lines: Sequence[TileLine]) -> tuple[float, float]:
    """The times of the tiles in view; where there is none, of the composites."""
    seen = [line for line in lines if line.tile is not None] or lines
    starts = [line.t0 for line in seen]
    ends = [line.t1 for line in seen]
    return min(starts, default=0.0), max(ends, default=0.0)


def _ops_of(line: TileLine) -> list[int]:
    """The ops that a row stands for."""
    if line.tile is None:
        return [line.op]
    return [span.op for span in line.tile.spans]


def _waited(tile: TileRow | None) -> Line:
    """How long a tile waited, and for what the longest."""
    by_reason: dict[str, float] = defaultdict(float)
    if tile is not None:
        for wait in tile.waits:
            by_reason[wait.reason] += wait.t1 - wait.t0
    if not by_reason:
        return []
    longest = max(by_reason, key=by_reason.__getitem__)
    return [(f" {time_text(sum(by_reason.values()))} {longest}", "mark")]


def _legend() -> Line:
    line: Line = [(" ", "")]
    for stage, letter in STAGE_LETTERS.items():
        name = stage.lower().removeprefix("dma_")
        line += [(letter, letter), (f" {name} ", "dim")]
    for dot, what in _LEGEND:
        line += [(f" {dot}", "mark"), (f" {what}", "dim")]
    return line

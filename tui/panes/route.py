"""Pane 5: a map of the machine with the path of the op's transactions lit, or with how
busy its links are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from textwrap import wrap
from typing import Any

from kernbench.replay.commands import MACHINE_MAP, MAP_LOAD, ROUTE
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.replay.text import time_text
from kernbench.replay.time.machine_map import (
    Cell,
    MachineMap,
    Place,
    direction,
    sides_of,
)
from kernbench.replay.time.projections import Box
from kernbench.replay.time.routes import Hop, Leg, Route
from kernbench.replay.views_route import LineLoad
from tui.draw import Glyphs, Line, Run, length
from tui.panes.base import (
    BEFORE,
    NO_OPS,
    Answers,
    BasePane,
    Change,
    ChangeView,
    Event,
    Frame,
    Moved,
    Pan,
    Picture,
    Rows,
    Scroll,
    Settle,
)

_LEVELS = ("SIP", "cube", "PE")
PATH = "path"
HEAT = "heat"
"""The views in which the map has the level that the path stays inside."""

_COLUMNS_A_STEP = 8
"""Of panning."""
_HEAT = ((0.8, "bad"), (0.5, "mark"), (0.1, "flight"))
"""From which share of time on a link is drawn in which style, else in ``_COOL``."""
_COOL = "dim"
_SEEN_NS = 0.005
"""Of a wait that is shown: less is 0.00."""
_LARGEST_SHARE = 0.99
"""That has two digits in percent."""
_LEAST_NOTE = 8
_LEAST_HEAD = 24
"""Columns that a text is wrapped to in a pane that is narrower."""
_OUTSIDE = -1
_UP_RIGHT, _UP_DOWN, _RIGHT_DOWN, _UP_LEFT, _LEFT_RIGHT, _DOWN_LEFT = 3, 5, 6, 9, 10, 12
"""The sides that a cell of a frame joins, as in ``MachineMap``."""

Cells = list[list[Run]]
"""Rows of single characters."""


@dataclass(frozen=True, slots=True)
class RouteState:
    """The view, and the part of the map in view: ``rows`` of it from ``column`` on.

    ``sought``: that part shows what the cursor or the view changed, or the user has
    moved it since. ``pans``: the map is wider than the part.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    column: int = 0
    sought: bool = False
    pans: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """The answers that a picture is made of; ``loads`` of the view "heat" only."""

    route: Route
    map: MachineMap
    loads: tuple[LineLoad, ...] | None


@dataclass(frozen=True, slots=True)
class _Visit:
    """A header's way through one box (-1: outside of the map): when it came there,
    after so many ns, and how long it waited inside, ns.
    """

    box: int
    after: float
    waited: float


@dataclass(frozen=True, slots=True)
class _Content:
    """What is said above the map and beside it, and the boxes that are to be in view,
    the first one before all others.
    """

    head: list[Line]
    beside: list[Line]
    boxes: list[Box]


@dataclass(frozen=True, slots=True)
class _Part:
    """How many columns and rows of the map there is room for."""

    columns: int
    rows: int


class RoutePane(BasePane[RouteState]):
    """The map has the level that the path stays inside, or one that the user chose; the
    heat of links is of the timeline's window.
    """

    views: tuple[str, ...] = (PATH, "system", *_LEVELS, HEAT)

    def __init__(self, index: Index) -> None:
        self._index = index

    def start(self) -> RouteState:
        """The path."""
        return RouteState()

    def view(self, state: RouteState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: RouteState, view: int) -> RouteState:
        """The state with another view, whose map shows what there is to see."""
        return replace(state, view=view, sought=False)

    def enter_word(self, state: RouteState) -> str:
        """There is nothing to enter."""
        return ""

    # -- update --------------------------------------------------------------------

    def update(
        self, state: RouteState, event: Event, frame: Frame, answers: Answers
    ) -> Change[RouteState] | None:
        """Scrolls and pans the map, and follows the cursor."""
        match event:
            case Moved():
                state = replace(state, rows=replace(state.rows, top=0), sought=False)
            case Settle():
                pass
            case Scroll():
                state = replace(state, rows=state.rows.scrolled(event))
            case Pan(by):
                if not state.pans:
                    return None
                column = max(state.column + _COLUMNS_A_STEP * by, 0)
                state = replace(state, column=column)
            case ChangeView(by):
                state = self.next_view(state, by) or state
            case _:
                return None
        return Change(self._settled(state, frame, answers))

    def _settled(self, state: RouteState, frame: Frame, answers: Answers) -> RouteState:
        """The map moved so that what is lit is in its middle, or no further than it
        goes.
        """
        found = self._found(state, frame, answers.known)
        if found is None or frame.height <= 0:
            return state
        content = self._content(state, found, frame)
        part = _part(found.map, content, frame)
        top = state.rows.top
        column = state.column
        if not state.sought and content.boxes:
            spans = [(box.x, box.x + box.w) for box in content.boxes]
            column = _middle(spans, part.columns)
            spans = [(box.y, box.y + box.h) for box in content.boxes]
            top = _middle(spans, part.rows)
        top = max(min(top, found.map.rows - part.rows), 0)
        return replace(
            state,
            rows=Rows(top, found.map.rows, part.rows),
            column=max(min(column, found.map.columns - part.columns), 0),
            sought=True,
            pans=found.map.columns > part.columns,
        )

    # -- queries -------------------------------------------------------------------

    def queries(
        self, state: RouteState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The route; then the map of where it is, and how busy its links are."""
        if frame.cursor < 0:
            return ()
        wanted: list[Query] = []

        def look_up(query: Query) -> Any | None:
            wanted.append(query)
            return answers.known(query)

        self._found(state, frame, look_up)
        return tuple(wanted)

    def _found(
        self,
        state: RouteState,
        frame: Frame,
        look_up: Callable[[Query], Any | None],
    ) -> _Found | None:
        """The answers, as ``look_up`` gives them; None while one of them is None."""
        if frame.cursor < 0:
            return None
        route: Route | None = look_up(ROUTE.ask(frame.cursor))
        if route is None:
            return None
        place = self._place(state, frame, route)
        shown: MachineMap | None = look_up(MACHINE_MAP.ask(place=place))
        loads: tuple[LineLoad, ...] | None = None
        if self._mode(state) == HEAT:
            t0, t1 = frame.window
            loads = look_up(MAP_LOAD.ask(place=place, t0=t0, t1=t1))
            if loads is None:
                return None
        if shown is None:
            return None
        return _Found(route, shown, loads)

    def _mode(self, state: RouteState) -> str:
        return self.views[state.view]

    def _place(self, state: RouteState, frame: Frame, route: Route) -> Place:
        """What the map is of.

        Where the path stays inside, or of heat the focus, if that is wide; of a level
        that was chosen where the op is.
        """
        mode = self._mode(state)
        if mode == HEAT and frame.level:
            return self._index.ops.focus(frame.cursor, frame.level)[0]
        index = self._index.trace.node_index
        inside = {index[route.component]}
        depth = len(_LEVELS)
        if mode in (PATH, HEAT):
            path = {index[hop.node] for leg in route.legs for hop in leg.hops}
            inside = path or inside
        else:
            depth = self.views.index(mode) - 1
        nodes = self._index.trace.nodes
        place: list[int] = []
        for column in (nodes.sip, nodes.cube, nodes.pe)[:depth]:
            numbers = {int(column[node]) for node in inside}
            if len(numbers) > 1 or -1 in numbers:
                break
            place += numbers
        return tuple(place)

    # -- render --------------------------------------------------------------------

    def render(self, state: RouteState, frame: Frame, answers: Answers) -> Picture:
        """Where the map is and what it shows, the map, and a list beside it."""
        if frame.cursor < 0:
            return Picture((BEFORE if len(self._index.ops) else NO_OPS,))
        found = self._found(state, frame, answers.of)
        if found is None:
            return Picture(())
        content = self._content(state, found, frame)
        part = _part(found.map, content, frame)
        if found.loads is None:
            visits = self._visits(found)
            cells = _with_path(found.map, visits, content.boxes, frame.glyphs)
        else:
            cells = _with_heat(found.map, found.loads, frame.glyphs)
        columns = slice(state.column, state.column + part.columns)
        beside = _cut(content.beside, part.rows)
        lines = [*content.head]
        for i in range(part.rows):
            row: Line = [(" " * part.columns, "")]
            if state.rows.top + i < len(cells):
                row = cells[state.rows.top + i][columns]
            text = beside[i] if i < len(beside) else []
            lines.append([*row, (" ", ""), *text])
        return Picture(tuple(lines[: frame.height]))

    def _content(self, state: RouteState, found: _Found, frame: Frame) -> _Content:
        """The texts of a picture."""
        route = found.route
        boxes = found.map.boxes
        head: list[Line] = []
        if found.loads is None:
            if route.note:
                note = f"op {route.op} {route.name}: {route.note}"
                parts = wrap(note, max(frame.width - 2, _LEAST_NOTE))
                head = [[(f" {part}", "dim")] for part in parts]
            visits = self._visits(found)
            says = f": op {route.op} stays inside"
            if route.legs:
                says = f": {route.took}"
            beside = _legs_beside(route.legs, visits, boxes)
            numbers = [visit.box for leg in visits for visit in leg]
            if not route.legs:
                numbers = [self._own_box(found)]
        else:
            t0, t1 = frame.window
            times = f"{time_text(t0)} to {time_text(t1)}"
            says = f": busy % of links, bytes, peak queue; {times}"
            beside = _loads_beside(found.loads, boxes, frame.glyphs)
            numbers = [box for load in found.loads[:1] for box in load.pair]
        head += _place_line(found.map.place, says, frame.width)
        shown = [boxes[number] for number in dict.fromkeys(numbers) if number >= 0]
        return _Content(head, beside, shown)

    def _own_box(self, found: _Found) -> int:
        """The box of the component that served the op."""
        node = self._index.trace.node_index[found.route.component]
        return found.map.box_of.get(node, _OUTSIDE)

    def _visits(self, found: _Found) -> list[list[_Visit]]:
        """The boxes that each transaction's header passes, in order."""
        index = self._index.trace.node_index

        def box_of(hop: Hop) -> int:
            return found.map.box_of.get(index[hop.node], _OUTSIDE)

        legs = []
        for leg in found.route.legs:
            visits = []
            for box, group in groupby(leg.hops, box_of):
                hops = list(group)
                waited = sum(hop.wait for hop in hops)
                visits.append(_Visit(box, hops[0].arrive - leg.t0, waited))
            legs.append(visits)
        return legs


# -- beside and above the map ------------------------------------------------------


def _place_line(place: Place, says: str, width: int) -> list[Line]:
    """What the map is of, and what it says, wrapped."""
    levels = zip(_LEVELS, place, strict=False)
    where = " ".join(f"{level} {number}" for level, number in levels) or "system"
    first, *rest = wrap(
        f"{where}{says}", max(width - 2, _LEAST_HEAD), subsequent_indent="  "
    )
    lines: list[Line] = [[(f" {where}", "bold"), (first[len(where) :], "title")]]
    lines += [[(f" {part}", "title")] for part in rest]
    return lines


def _legs_beside(
    legs: Sequence[Leg], visits: Sequence[Sequence[_Visit]], boxes: Sequence[Box]
) -> list[Line]:
    """Of each transaction box by box when it came there, and how long it waited inside."""
    lines: list[Line] = []
    for number, (leg, passed) in enumerate(zip(legs, visits, strict=True), 1):
        text = f"{leg.nbytes:,} B from {time_text(leg.t0)}"
        if len(legs) > 1:
            text = f"{number}/{len(legs)} {text}"
        lines.append([(f" {text}", "title")])
        for visit in passed:
            waited = f"{visit.waited:.2f}!" if visit.waited >= _SEEN_NS else ""
            name = ("outside", "dim")
            if visit.box >= 0:
                name = (boxes[visit.box].label, "")
            came = (f"{visit.after:>+9.2f} ", "")
            lines.append([came, (f"{waited:>8} ", "mark"), name])
    return lines


def _loads_beside(
    loads: Sequence[LineLoad], boxes: Sequence[Box], glyphs: Glyphs
) -> list[Line]:
    """The lines of the map, the busiest first."""
    lines: list[Line] = []
    for load in loads:
        src, dst = load.pair
        ends = f"{boxes[src].label}{glyphs.arrow}{boxes[dst].label}"
        share = (f"{load.busy:>6.1%}", _heat(load.busy))
        lines.append([share, (f"{load.nbytes:>10,}{load.queue:>4} {ends}", "")])
    return lines


def _cut(lines: list[Line], room: int) -> list[Line]:
    """As many lines as there is room for; the last one says how many more there are."""
    more = len(lines) - room
    if more <= 0:
        return lines
    return [*lines[: room - 1], [(f" {more + 1} more", "dim")]]


def _heat(busy: float) -> str:
    """The style of a share of time."""
    for least, style in _HEAT:
        if busy >= least:
            return style
    return _COOL


# -- the part of the map in view ---------------------------------------------------


def _part(shown: MachineMap, content: _Content, frame: Frame) -> _Part:
    """What there is room for, beside the list: at least three fifths of the pane."""
    needed = max((length(line) + 1 for line in content.beside), default=0)
    most = max(frame.width - needed, frame.width * 3 // 5)
    rows = max(frame.height - len(content.head), 1)
    return _Part(min(shown.columns, most), rows)


def _middle(spans: list[tuple[int, int]], room: int) -> int:
    """Where ``room`` begins that has all spans in its middle, or if they do not fit the
    first one.
    """
    low = min(span[0] for span in spans)
    high = max(span[1] for span in spans)
    if high - low > room:
        low, high = spans[0]
    return (low + high - room) // 2


# -- the map -----------------------------------------------------------------------


def _with_path(
    shown: MachineMap,
    visits: Sequence[Sequence[_Visit]],
    boxes: Sequence[Box],
    glyphs: Glyphs,
) -> Cells:
    """The map with the boxes that are visited lit, and the lines between them; an arrow
    points into each box.
    """
    cells = _plain(shown, glyphs)
    steps = [(here.box, there.box) for leg in visits for here, there in pairwise(leg)]
    pairs = [pair for pair in dict.fromkeys(steps) if min(pair) >= 0]
    _draw_lines(cells, [shown.ways[pair] for pair in pairs], glyphs.lit, "mark")
    for pair in pairs:
        target = shown.boxes[pair[1]]
        for here, there in pairwise(shown.ways[pair]):
            if _holds(target, there):
                x, y = here
                cells[y][x] = (glyphs.heads[direction(here, there)], "mark")
                break
    for box in boxes:
        _draw_box(cells, box, glyphs.lit, "active")
    return cells


def _with_heat(shown: MachineMap, loads: Sequence[LineLoad], glyphs: Glyphs) -> Cells:
    """The map with the lines of links that were busy, each of the busier direction, and
    its share of time in percent.
    """
    cells = _plain(shown, glyphs)
    busy_of = {load.pair: load.busy for load in loads}
    for load in reversed(loads):
        src, dst = load.pair
        if busy_of.get((dst, src), 0.0) > load.busy:
            continue
        style = _heat(load.busy)
        way = shown.ways[load.pair]
        _draw_lines(cells, [way], glyphs.lit, style)
        ends = (shown.boxes[src], shown.boxes[dst])
        between = [cell for cell in way if not any(_holds(box, cell) for box in ends)]
        x, y = max(between[max(len(between) // 2 - 1, 0) :][:2])
        share = f"{min(load.busy, _LARGEST_SHARE):.0%}"[:-1]
        cells[y][x + 1 - len(share) : x + 1] = [(digit, style) for digit in share]
    for box in shown.boxes:
        _draw_box(cells, box, glyphs.lines, "title")
    return cells


def _plain(shown: MachineMap, glyphs: Glyphs) -> Cells:
    """The map with nothing lit."""
    cells: Cells = [[(" ", "")] * shown.columns for _ in range(shown.rows)]
    for (x, y), sides in shown.sides.items():
        cells[y][x] = (glyphs.lines[sides], "rule")
    for box in shown.boxes:
        _draw_box(cells, box, glyphs.lines, "title")
    return cells


def _draw_lines(
    cells: Cells, ways: Iterable[list[Cell]], lines: str, style: str
) -> None:
    """Draw ways, joined where they meet."""
    for (x, y), sides in sides_of(ways).items():
        cells[y][x] = (lines[sides], style)


def _holds(box: Box, cell: Cell) -> bool:
    x, y = cell
    return box.x <= x < box.x + box.w and box.y <= y < box.y + box.h


def _draw_box(cells: Cells, box: Box, lines: str, style: str) -> None:
    """A frame and the label; a box of one row is framed by brackets where it is lit."""
    label = f"[{box.label}]" if style == "active" else box.label
    rows = [label.center(box.w)]
    if box.h > 1:
        flat = lines[_LEFT_RIGHT] * (box.w - 2)
        side = lines[_UP_DOWN]
        rows = [
            lines[_RIGHT_DOWN] + flat + lines[_DOWN_LEFT],
            side + box.label.center(box.w - 2) + side,
            lines[_UP_RIGHT] + flat + lines[_UP_LEFT],
        ]
    for y, row in enumerate(rows, box.y):
        cells[y][box.x : box.x + box.w] = [(char, style) for char in row]

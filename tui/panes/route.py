"""Pane 5: a map of the machine, with the path of the op's transactions or the load of
links.

Where the op moves bytes, the boxes that these pass are lit on the map, and a list
beside it says when they came to each. Where the map is wider than the pane it is drawn
narrower, and where that does not fit either the list has all of the pane: a map is not
shown in pieces. In the view "heat" the map shows how busy its links are in the window
of the timeline, and the list has the busiest of them first. It is never drawn narrower,
since the figures on its lines have no room then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from textwrap import wrap
from typing import Any, NamedTuple, TypeAlias

from kernbench.replay.command import Call
from kernbench.replay.commands import LINKS, ROUTE
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import MACHINE_MAP, MAP_LOAD
from kernbench.replay.query import Query
from kernbench.replay.text import time_text
from kernbench.replay.time.machine_map import (
    DOWN,
    LEFT,
    RIGHT,
    UP,
    Cell,
    MachineMap,
    Place,
    direction,
    sides_of,
)
from kernbench.replay.time.projections import Box
from kernbench.replay.time.routes import Hop, Leg, Route
from kernbench.replay.views.route import LineLoad
from tui.draw import Glyphs, Line, Run, length
from tui.newest import Newest
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

PATH = "path"
"""The view of the smallest map that holds the whole path."""
HEAT = "heat"
"""The view of that same map, or of a wider one that is the focus, with the load of
links.
"""
_LEVELS = ("SIP", "cube", "PE")
"""The views of the map that the op's component is in, and what a place is made of."""

_COLUMNS_A_STEP = 8
"""How far one step of panning goes."""
_HEAT_STYLES = ((0.8, "hot"), (0.5, "mark"), (0.1, "flight"))
"""The style of a link that is busy for at least such a share of time; of any other
``_COOL``."""
_COOL = "dim"
_SEEN_NS = 0.005
"""A shorter wait would be shown as 0.00, so it is not."""
_LARGEST_SHARE = 0.99
"""The largest share of time that has two digits in percent."""
_MAPS_KEPT = 8
_CONTENTS_KEPT = 16
_MOST_BESIDE = 26
"""Columns that the list beside the map gets at most; what is longer is cut."""
_LEAST_NOTE = 8
"""A note is wrapped to at least so many columns."""
_LEAST_HEAD = 24
"""The head is wrapped to at least so many columns."""
_LIT = "active"
"""The style of a box that is lit."""
_NO_LOAD = " no link of this map carried anything in that time"
_OUTSIDE = -1
"""The box of a node that is not on the map."""

Cells: TypeAlias = list[list[Run]]
"""The characters of a map, row by row, each with its style."""


@dataclass(frozen=True, slots=True)
class RouteState:
    """What the user has chosen to see.

    ``view`` is a number of ``RoutePane.views``. Of the map those ``rows`` are in view,
    from ``column`` on; ``pans`` says whether it is wider than what is in view.

    ``sought`` is unset when the cursor or the view changes: the map is then moved so
    that what is lit is in view, as soon as that is known.
    """

    view: int = 0
    rows: Rows = field(default_factory=Rows)
    column: int = 0
    sought: bool = False
    pans: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """The answers that a picture is made of; ``loads`` are of the view "heat" only."""

    route: Route
    map: MachineMap
    loads: tuple[LineLoad, ...] | None


@dataclass(frozen=True, slots=True)
class _Visit:
    """The way of a transaction's first header through one box, -1 outside of the map.

    It came there ``after`` so many ns, and ``waited`` so many ns inside.
    """

    box: int
    after: float
    waited: float


@dataclass(frozen=True, slots=True)
class _Content:
    """The lines above the map and beside it, and the boxes that ought to be in view.

    Where there is no room for all of these it is the first one that matters. ``visits``
    are the ways of the transactions that the lines are about, if they are about some.
    """

    head: list[Line]
    beside: list[Line]
    boxes: list[Box]
    visits: list[list[_Visit]] = field(default_factory=list)


class _ContentKey(NamedTuple):
    """What the lines and boxes beside a map depend on."""

    found: _Found
    width: int
    window: tuple[float, float]
    glyphs: Glyphs


@dataclass(frozen=True, slots=True)
class _Part:
    """How many columns and rows of the map are in view: all columns."""

    columns: int
    rows: int


class RoutePane(BasePane[RouteState]):
    """The path of an op, or the heat of links, on a map."""

    views: tuple[str, ...] = (PATH, "system", *_LEVELS, HEAT)

    def __init__(self, index: Index) -> None:
        self._index = index
        self._contents = Newest[_ContentKey, _Content](_CONTENTS_KEPT)

    def start(self) -> RouteState:
        """The path, with the map where that is."""
        return RouteState()

    def view(self, state: RouteState) -> int:
        """The number of the view that is shown."""
        return state.view

    def with_view(self, state: RouteState, view: int) -> RouteState:
        """The state with another view, whose map is moved to what is lit."""
        return replace(state, view=view, sought=False)

    def enter_word(self, state: RouteState, frame: Frame, answers: Answers) -> str:
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
        """The state for what is known now.

        The map is moved so that what is lit is in the middle, if the cursor or the view
        has changed, and in any case no further than it goes.
        """
        found = self._found(state, frame, answers.known)
        if found is None or frame.height <= 0:
            return state
        content = self._content(found, frame)
        if not _fits(found.map, content, frame):
            return self._settled_list(state, found, content, frame)
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

    def _settled_list(
        self, state: RouteState, found: _Found, content: _Content, frame: Frame
    ) -> RouteState:
        """The list scrolled no further than it goes, from its top where the cursor or
        the view has changed.
        """
        total = len(self._rows_without_map(found, content, frame))
        room = max(frame.height - len(content.head) - 1, 1)
        top = 0
        if state.sought:
            top = max(min(state.rows.top, total - room), 0)
        rows = Rows(top, total, room)
        return replace(state, rows=rows, column=0, sought=True, pans=False)

    # -- queries -------------------------------------------------------------------

    def question(
        self, state: RouteState, frame: Frame, answers: Answers
    ) -> Call | None:
        """The op's way; of the view of loads those of links."""
        if self.views[state.view] == HEAT:
            return LINKS()
        return ROUTE() if frame.cursor >= 0 else None

    def queries(
        self, state: RouteState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """First the route, then the map of where it is, for heat the load of links."""
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
        """The answers, each looked up once the one before is there; None without it."""
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
        found = _Found(route, shown, loads)
        if loads is not None or _fits(shown, self._content(found, frame), frame):
            return found
        narrow: MachineMap | None = look_up(MACHINE_MAP.ask(place=place, narrow=True))
        if narrow is None:
            return None
        return replace(found, map=narrow)

    def _mode(self, state: RouteState) -> str:
        return self.views[state.view]

    def _place(self, state: RouteState, frame: Frame, route: Route) -> Place:
        """Which part of the machine the map is of.

        In the views of a level it is where the op is. In the view "path" it is the
        smallest part that the whole path lies in, or where an op is that moves nothing.
        The view "heat" has the same, or the focus if that is wider than a component.
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
        content = self._content(found, frame)
        if not _fits(found.map, content, frame):
            return self._listed(found, content, state, frame)
        part = _part(found.map, content, frame)
        if found.loads is None:
            cells = _with_path(found.map, content.visits, content.boxes, frame.glyphs)
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

    def _listed(
        self, found: _Found, content: _Content, state: RouteState, frame: Frame
    ) -> Picture:
        """What would stand beside the map, without it."""
        rows = self._rows_without_map(found, content, frame)
        columns = _needed(found.map, content)
        wants = f" the map wants {columns} columns"
        if columns <= frame.columns_alone:
            wants += ": z shows it"
        elif found.loads is None:
            wants += ": v shows another level"
        lines = [*content.head, *rows[state.rows.top :]]
        room = frame.height - 1
        return Picture((*lines[:room], [(wants, "dim")]))

    def _rows_without_map(
        self, found: _Found, content: _Content, frame: Frame
    ) -> list[Line]:
        """The load of links; or the way of the transactions, a line a box with a bar of
        its time where there is room for that, or else as chains. Of an op that moves
        nothing it is where that is.
        """
        if found.loads is not None:
            return content.beside or [[(_NO_LOAD, "dim")]]
        if not found.route.legs:
            return self._where(found, frame)
        room = frame.height - len(content.head) - 1
        if len(content.beside) <= room:
            return _timed(found.route.legs, content.visits, found.map.boxes, frame)
        return _chains(found.route.legs, content.visits, found.map.boxes, frame)

    def _content(self, found: _Found, frame: Frame) -> _Content:
        """What is said beside the map, and which boxes of it matter; kept, as a step
        asks for it again and again.
        """
        key = _ContentKey(found, frame.width, frame.window, frame.glyphs)
        return self._contents.get(key, lambda: self._content_of(found, frame))

    def _content_of(self, found: _Found, frame: Frame) -> _Content:
        if found.loads is None:
            return self._path_content(found, frame)
        boxes = found.map.boxes
        t0, t1 = frame.window
        times = f"{time_text(t0)} to {time_text(t1)}"
        says = f": busy % of links, bytes, peak queue; {times}"
        busiest = [boxes[box] for load in found.loads[:1] for box in load.pair]
        return _Content(
            _place_lines(found.map.place, says, frame.width),
            _loads_beside(found.loads, boxes, frame.glyphs),
            busiest,
        )

    def _path_content(self, found: _Found, frame: Frame) -> _Content:
        """The same of a path: its boxes are those that it visits, else the op's own."""
        route = found.route
        head: list[Line] = []
        if route.note:
            note = f"op {route.op} {route.name}: {route.note}"
            parts = wrap(note, max(frame.width - 2, _LEAST_NOTE))
            head = [[(f" {part}", "dim")] for part in parts]
        visits = self._visits(found)
        if route.legs:
            says = f": {route.took}"
            visited = [visit.box for leg in visits for visit in leg]
        else:
            says = f": op {route.op} stays inside"
            visited = [self._own_box(found)]
        head += _place_lines(found.map.place, says, frame.width)
        boxes = found.map.boxes
        lit = [boxes[box] for box in dict.fromkeys(visited) if box != _OUTSIDE]
        return _Content(head, _legs_beside(route.legs, visits, boxes), lit, visits)

    def _where(self, found: _Found, frame: Frame) -> list[Line]:
        """The component of an op, its box, and which boxes that is joined to."""
        own = self._own_box(found)
        if own == _OUTSIDE:
            text = f"{found.route.component} is outside of this map"
        else:
            boxes = found.map.boxes
            joined = [boxes[end].label for start, end in found.map.ways if start == own]
            text = f"{found.route.component} is in the box {boxes[own].label}"
            if joined:
                text += f", which is joined to {', '.join(joined)}"
        parts = wrap(text, max(frame.width - 2, _LEAST_NOTE))
        return [[(f" {part}", "")] for part in parts]

    def _own_box(self, found: _Found) -> int:
        """The box of the component that served the op."""
        node = self._index.trace.node_index[found.route.component]
        return found.map.box_of.get(node, _OUTSIDE)

    def _visits(self, found: _Found) -> list[list[_Visit]]:
        """By transaction the boxes that its first header passes, in order."""
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


def _place_lines(place: Place, says: str, width: int) -> list[Line]:
    """What the map is of, and what it ``says``, wrapped to a width."""
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
    """The transactions, and box by box when each came there and how long it waited."""
    lines: list[Line] = []
    for number, (leg, passed) in enumerate(zip(legs, visits, strict=True), 1):
        lines.append(_leg_head(number, leg, len(legs)))
        for visit in passed:
            waited = f"{visit.waited:.2f}!" if visit.waited >= _SEEN_NS else ""
            came = (f"{visit.after:>+9.2f} ", "")
            lines.append([came, (f"{waited:>8} ", "mark"), _name_of(visit, boxes)])
    return lines


def _timed(
    legs: Sequence[Leg],
    visits: Sequence[Sequence[_Visit]],
    boxes: Sequence[Box],
    frame: Frame,
) -> list[Line]:
    """The transactions, each with a line a box: when it came there, how long it waited,
    and a bar from the one to the other.
    """
    last = max(
        (visit.after + visit.waited for leg in visits for visit in leg), default=0.0
    )
    names = max((len(box.label) for box in boxes), default=0)
    room = max(frame.width - names - _BEFORE_BAR, 1)
    lines: list[Line] = []
    for number, (leg, passed) in enumerate(zip(legs, visits, strict=True), 1):
        lines.append(_leg_head(number, leg, len(legs)))
        for visit in passed:
            name, style = _name_of(visit, boxes)
            waited = f"{visit.waited:.2f}" if visit.waited >= _SEEN_NS else ""
            scale = room / max(last, _SEEN_NS)
            start = min(int(visit.after * scale), room - 1)
            long = max(int(visit.waited * scale), 1)
            kind = "mark" if waited else "flight"
            lines.append(
                [
                    (f"   {name:<{names}} ", style),
                    (f"{visit.after:>+9.2f}", ""),
                    (f"{waited:>9} ", "mark"),
                    (" " * start, ""),
                    (frame.glyphs.thick * min(long, room - start), kind),
                ]
            )
    return lines


_BEFORE_BAR = 24
"""Columns in front of a bar but for the name."""


def _leg_head(number: int, leg: Leg, legs: int) -> Line:
    """Which of the transactions it is, what it carries and when it began."""
    text = f"{leg.nbytes:,} B from {time_text(leg.t0)}"
    if legs > 1:
        text = f"{number}/{legs} {text}"
    return [(f" {text}", "title")]


def _name_of(visit: _Visit, boxes: Sequence[Box]) -> Run:
    """The name of a box that a transaction visits."""
    if visit.box < 0:
        return ("outside", "dim")
    return (boxes[visit.box].label, "")


def _chains(
    legs: Sequence[Leg],
    visits: Sequence[Sequence[_Visit]],
    boxes: Sequence[Box],
    frame: Frame,
) -> list[Line]:
    """The transactions, each as the chain of its boxes, with when it came to each and
    how long it waited there, wrapped to the pane.
    """
    lines: list[Line] = []
    for number, (leg, passed) in enumerate(zip(legs, visits, strict=True), 1):
        lines.append(_leg_head(number, leg, len(legs)))
        line: Line = []
        for visit in passed:
            runs = _link_of_chain(visit, boxes)
            if line:
                runs = [(f" {frame.glyphs.arrow} ", "dim"), *runs]
            if line and _INDENT + length([*line, *runs]) > frame.width:
                lines.append([(" " * _INDENT, ""), *line])
                line = []
            line += runs
        lines.append([(" " * _INDENT, ""), *line])
    return lines


_INDENT = 4
"""Columns in front of a chain."""


def _link_of_chain(visit: _Visit, boxes: Sequence[Box]) -> list[Run]:
    """A box of a chain: its name, when the transaction came there, how long it
    waited.
    """
    runs: list[Run] = [_name_of(visit, boxes), (f" {visit.after:+.2f}", "")]
    if visit.waited >= _SEEN_NS:
        runs.append((f" waited {visit.waited:.2f}", "mark"))
    return runs


def _loads_beside(
    loads: Sequence[LineLoad], boxes: Sequence[Box], glyphs: Glyphs
) -> list[Line]:
    """How loaded the lines of the map are, the busiest first."""
    lines: list[Line] = []
    for load in loads:
        src, dst = load.pair
        ends = f"{boxes[src].label}{glyphs.arrow}{boxes[dst].label}"
        share = (f"{load.busy:>6.1%}", _heat(load.busy))
        lines.append([share, (f"{load.nbytes:>10,}{load.queue:>4} {ends}", "")])
    return lines


def _cut(lines: list[Line], room: int) -> list[Line]:
    """As many lines as there is room for; if that is not all, the last one says how
    many more there are.
    """
    more = len(lines) - room
    if more <= 0:
        return lines
    return [*lines[: room - 1], [(f" {more + 1} more", "dim")]]


def _heat(busy: float) -> str:
    """The style of a link that is busy for a share of time."""
    for least, style in _HEAT_STYLES:
        if busy >= least:
            return style
    return _COOL


# -- the part of the map in view ---------------------------------------------------


def _needed(shown: MachineMap, content: _Content) -> int:
    """Columns of the map with the list beside it."""
    beside = max((length(line) + 1 for line in content.beside), default=0)
    return shown.columns + 1 + min(beside, _MOST_BESIDE)


def _fits(shown: MachineMap, content: _Content, frame: Frame) -> bool:
    """Whether the map is there in its whole width, and can be read beside the list."""
    return _needed(shown, content) <= frame.width


def _part(shown: MachineMap, content: _Content, frame: Frame) -> _Part:
    """How many rows of the map there is room for below the head."""
    return _Part(shown.columns, max(frame.height - len(content.head), 1))


def _middle(spans: list[tuple[int, int]], room: int) -> int:
    """Where a part of the map begins that has some boxes in its middle.

    ``spans`` are from which column to which, or row, each of these reaches. If they do
    not fit into ``room``, it is the first one that is in the middle.
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
    """The map with ``boxes`` lit, and the lines between those that are visited in turn,
    each with an arrow where it comes to a box.
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
        _draw_box(cells, box, glyphs.lit, _LIT)
    return cells


def _with_heat(shown: MachineMap, loads: Sequence[LineLoad], glyphs: Glyphs) -> Cells:
    """The map with the lines of links that carried something, each with its share of
    time in percent.

    Of the two directions of a line the busier one is drawn, and of lines that share
    cells the busiest one.
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
    """The map with nothing lit, to be drawn upon."""
    return [row.copy() for row in _unlit(shown, glyphs)]


@lru_cache(_MAPS_KEPT)
def _unlit(shown: MachineMap, glyphs: Glyphs) -> Cells:
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
    """Draw lines in the characters ``lines``, joined where they meet."""
    for (x, y), sides in sides_of(ways).items():
        cells[y][x] = (lines[sides], style)


def _holds(box: Box, cell: Cell) -> bool:
    """Whether a cell is inside a box."""
    x, y = cell
    return box.x <= x < box.x + box.w and box.y <= y < box.y + box.h


def _draw_box(cells: Cells, box: Box, lines: str, style: str) -> None:
    """Draw a box with its label, and with a frame if it is higher than a row; one that
    is not has brackets where it is lit, if it is wide enough.
    """
    if box.h > 1:
        width = box.w - 2
        flat = lines[LEFT + RIGHT] * width
        side = lines[UP + DOWN]
        rows = [
            lines[RIGHT + DOWN] + flat + lines[DOWN + LEFT],
            side + box.label.center(width) + side,
            lines[UP + RIGHT] + flat + lines[UP + LEFT],
        ]
    elif style == _LIT and box.w >= len(box.label) + len("[]"):
        rows = [f"[{box.label}]".center(box.w)]
    else:
        rows = [box.label.center(box.w)]
    for y, row in enumerate(rows, box.y):
        cells[y][box.x : box.x + box.w] = [(char, style) for char in row]

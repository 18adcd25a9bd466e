"""Pane 5: the machine with the path of the op's transactions lit, or the heat of its links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby, pairwise
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.progress import Progress as Tell
from kernbench.replay.text import time_text
from kernbench.replay.time.loads import LinkLoad
from kernbench.replay.time.projections import Box, View, projection, way
from kernbench.replay.time.routes import Route
from tui.widgets.draw import Array, Glyphs, Line, Run, length, window
from tui.widgets.pane import BEFORE, QUICK, Pane

Cell = tuple[int, int]  # x, y; or two boxes
Cells = list[list[Run]]  # rows of single characters

_LEVELS = ("SIP", "cube", "PE")


class _Map(NamedTuple):
    """A projection, the box of each node (-1: none), the boxes that edges join, the ways between
    boxes that were drawn, and the picture with nothing lit.
    """

    view: View
    box_of: Array
    joins: dict[int, Cell]
    ways: dict[Cell, list[Cell]]
    cells: Cells


class _Picture(NamedTuple):
    """The map with something lit, what it says above and beside, and the boxes to show of it."""

    cells: Cells
    head: str
    beside: list[Line]
    boxes: list[Box]


class RoutePane(Pane):
    """The map has the level that the path stays inside; heat is of the timeline's window."""

    number, title, picks, enter_word = 5, "Route", False, ""
    views = ("path", "system", *_LEVELS, "heat")

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self._maps: dict[tuple[int, ...], _Map] = {}
        self._drawn_as: dict[
            object, tuple[dict[Cell, list[Cell]], Cells]
        ] = {}  # by layout

    @property
    def alone(self) -> bool:
        """Heat is of the timeline's window."""
        return self.mode != "heat"

    def draw(self, width: int, height: int) -> list[Line]:
        """Where the map is and what it shows, the map, and a list beside it."""
        if self.session.cursor < 0:
            return [BEFORE]
        quick = len(self.session) < QUICK
        ready = self.answer(("columns", "routes"), "routes", self._indexed, quick)
        if isinstance(ready, list):
            return [ready]
        route, view = self.session.route(), self.mode
        self.columns_a_step, lines = 0, list[Line]()
        if route.note and view != "heat":
            note = wrap(f"op {route.op} {route.name}: {route.note}", max(width - 2, 8))
            lines = [[(f" {part}", "dim")] for part in note]
        place = self._place(route, view)
        shown = self._maps.get(place) or self._maps.setdefault(
            place, self._mapped(place)
        )
        found = self._heated(shown) if view == "heat" else self._lit(shown, route)
        if not isinstance(found, _Picture):
            return [found]
        levels = zip(_LEVELS, place, strict=False)
        where = " ".join(f"{level} {n}" for level, n in levels) or "system"
        first, *rest = wrap(
            f"{where}{found.head}", max(width - 2, 24), subsequent_indent="  "
        )
        lines.append([(f" {where}", "bold"), (first[len(where) :], "title")])
        lines += [[(f" {part}", "title")] for part in rest]
        return [*lines, *self._beside(found, width, max(height - len(lines), 1))][
            :height
        ]

    def _indexed(self, tell: Tell) -> bool:
        return bool(self.session.tiles().rows or self.session.route().legs)

    def _place(self, route: Route, view: str) -> tuple[int, ...]:
        """Where the path stays inside, or the focus if that is wide; of a level where the op is."""
        nodes, index = self.session.trace.nodes, self.session.trace.node_index
        if view == "heat" and self.session.level:
            return self.session.focus()[0]
        depth = 3 if view in ("path", "heat") else self.views.index(view) - 1
        path = {index[hop.node] for leg in route.legs for hop in leg.hops}
        path = path if view in ("path", "heat") and path else {index[route.component]}
        place: list[int] = []
        for column in (nodes.sip, nodes.cube, nodes.pe)[:depth]:
            numbers = {int(column[node]) for node in path}
            if len(numbers) > 1 or -1 in numbers:
                break
            place += numbers
        return tuple(place)

    def _mapped(self, place: tuple[int, ...]) -> _Map:
        view, lines = projection(self.session.trace, place), self.glyphs.lines
        layout = tuple(box[1:] for box in view.boxes), view.lines
        ways, cells = self._drawn_as.setdefault(layout, ({}, []))
        edges, box_of = (
            self.session.trace.edges,
            np.full(len(self.session.trace.node_ids), -1),
        )
        for i, box in enumerate(view.boxes):
            box_of[np.array(box.nodes)] = i
        ends = np.stack([box_of[edges.src], box_of[edges.dst]], 1)
        joined = np.flatnonzero(
            (ends.min(axis=1) >= 0) & (ends[:, 0] != ends[:, 1])
        ).tolist()
        joins = {edge: tuple(ends[edge].tolist()) for edge in joined}
        shown = _Map(view, box_of, joins, ways, cells)
        if cells:
            return shown
        sizes = ((box.y + box.h, box.x + box.w) for box in view.boxes)
        rows, columns = (max(ends) + 1 for ends in zip(*sizes, strict=True))
        cells += [[(" ", "")] * columns for _ in range(rows)]
        pairs = {(min(x[:2]), max(x[:2])) for x in view.lines if x.kind != "command"}
        _connect(cells, shown, pairs, lines, "rule")
        for box in view.boxes:
            _draw_box(cells, box, lines, "title")
        return shown

    def _lit(self, shown: _Map, route: Route) -> _Picture:
        """The path, and beside it box by box when it came there and how long it waited inside."""
        boxes, legs, index = shown.view.boxes, route.legs, self.session.trace.node_index
        cells, beside, pairs = (
            [row[:] for row in shown.cells],
            list[Line](),
            list[Cell](),
        )
        lit = [] if legs else [int(shown.box_of[index[route.component]])]
        for number, leg in enumerate(legs, 1):
            count = f"{number}/{len(legs)} " * (len(legs) > 1)
            beside.append(
                [(f" {count}{leg.nbytes:,} B from {time_text(leg.t0)}", "title")]
            )
            visits = list[int]()
            for box, group in groupby(
                leg.hops, lambda hop: int(shown.box_of[index[hop.node]])
            ):
                inside = [*group]
                waited = sum(hop.wait for hop in inside)
                mark = f"{waited:.2f}!" if waited >= 0.005 else ""
                visits.append(box)
                line: Line = [(f"{inside[0].arrive - leg.t0:>+9.2f} ", "")]
                name = (boxes[box].label, "") if box >= 0 else ("outside", "dim")
                beside.append([*line, (f"{mark:>8} ", "mark"), name])
            pairs += [pair for pair in pairwise(visits) if min(pair) >= 0]
            lit += visits
        found = [boxes[box] for box in dict.fromkeys(lit) if box >= 0]
        ways = _connect(cells, shown, dict.fromkeys(pairs), self.glyphs.lit, "mark")
        for (_, b), path in ways.items():
            at = next(i for i, cell in enumerate(path) if _holds(boxes[b], cell))
            (x, y), step = path[at - 1], _step(*path[at - 1 : at + 1])
            cells[y][x] = self.glyphs.heads[step], "mark"
        for stop in found:
            _draw_box(cells, stop, self.glyphs.lit, "active")
        head = f": {route.took}" if legs else f": op {route.op} stays inside"
        return _Picture(cells, head, beside, found)

    def _heated(self, shown: _Map) -> _Picture | Line:
        """The share of time that links were busy, in percent; beside it the busiest, in order."""
        boxes, (t0, t1) = shown.view.boxes, self.span()
        load = self.answer(
            ("columns", ("load", t0, t1)),
            "link load",
            lambda tell: self.session.link_load(t0, t1, tell),
            quick=len(self.session) < QUICK,
        )
        if not isinstance(load, LinkLoad):
            return load
        best, moved, queue = dict[Cell, float](), Counter[Cell](), Counter[Cell]()
        for link in load.links:  # the busiest first
            if (pair := shown.joins.get(link.edge)) is not None:
                best.setdefault(pair, link.busy)
                moved[pair] += round(link.nbytes)
                queue[pair] = max(queue[pair], link.queue)
        cells, beside = [row[:] for row in shown.cells], list[Line]()
        drawn = {
            pair: busy
            for pair, busy in best.items()
            if best.get(pair[::-1], 0.0) <= busy
        }
        for pair, busy in reversed(drawn.items()):
            path = _connect(cells, shown, [pair], self.glyphs.lit, _heat(busy))[pair]
            path = [
                cell for cell in path if not any(_holds(boxes[i], cell) for i in pair)
            ]
            (x, y), share = (
                max(path[len(path) // 2 - 1 :][:2]),
                f"{min(busy, 0.99) * 100:.0f}",
            )
            cells[y][x + 1 - len(share) : x + 1] = [
                (digit, _heat(busy)) for digit in share
            ]
        for box in boxes:
            _draw_box(cells, box, self.glyphs.lines, "title")
        for (a, b), busy in best.items():
            text = f" {boxes[a].label}{self.glyphs.arrow}{boxes[b].label}"
            load_ = f"{moved[a, b]:>10,}{queue[a, b]:>4}"
            beside.append([(f"{busy:>6.1%}", _heat(busy)), (load_ + text, "")])
        head = (
            f": busy % of links, bytes, peak queue; {time_text(t0)} to {time_text(t1)}"
        )
        return _Picture(
            cells, head, beside, [boxes[i] for pair in [*best][:1] for i in pair]
        )

    def _beside(self, found: _Picture, width: int, height: int) -> list[Line]:
        """The part of the map that there is room for, and the list right of it."""
        rows, columns = len(found.cells), len(found.cells[0])
        needed = max((length(line) + 1 for line in found.beside), default=0)
        wide = min(columns, max(width - needed, width * 3 // 5))
        if self.seek and found.boxes:
            self.column = _middle([(box.x, box.x + box.w) for box in found.boxes], wide)
            self.top = _middle([(box.y, box.y + box.h) for box in found.boxes], height)
        self.total, self.room, self.columns_a_step = rows, height, 8 * (columns > wide)
        self.top, self.column = window(
            (self.top, self.column), (rows, columns), (height, wide)
        )
        more = len(found.beside) - height
        beside = found.beside[: height - (more > 0)]
        beside += [[(f" {more + 1} more", "dim")]] * (more > 0)
        part = [
            row[self.column : self.column + wide] for row in found.cells[self.top :]
        ]
        part += [[(" " * wide, "")]] * (height - len(part))
        beside += [[]] * (height - len(beside))
        return [
            [*row, (" ", ""), *line] for row, line in zip(part, beside, strict=False)
        ]


def _middle(spans: list[Cell], room: int) -> int:
    """Where ``room`` begins that has all spans in its middle, or only the first."""
    low, high = min(spans)[0], max(high for _, high in spans)
    low, high = (low, high) if high - low <= room else spans[0]
    return (low + high - room) // 2


def _heat(busy: float) -> str:
    return ("dim", "flight", "mark", "bad")[
        (busy >= 0.1) + (busy >= 0.5) + (busy >= 0.8)
    ]


def _holds(box: Box, cell: Cell) -> bool:
    return box.x <= cell[0] < box.x + box.w and box.y <= cell[1] < box.y + box.h


def _step(cell: Cell, then: Cell) -> int:
    """Which way it goes from one to the next: 0 up, 1 right, 2 down, 3 left."""
    return ((0, -1), (1, 0), (0, 1), (-1, 0)).index(
        (then[0] - cell[0], then[1] - cell[1])
    )


def _connect(
    cells: Cells, shown: _Map, pairs: Iterable[Cell], lines: str, style: str
) -> dict[Cell, list[Cell]]:
    """Draw the ways between pairs of boxes, joined where they meet; these, cell by cell."""
    sides, ways = Counter[Cell](), dict[Cell, list[Cell]]()
    for pair in pairs:
        path = shown.ways.get(pair) or shown.ways.setdefault(
            pair, way(shown.view, *pair)
        )
        ways[pair] = path
        for cell, then in pairwise(path):
            sides[cell] |= 1 << _step(cell, then)
            sides[then] |= 1 << _step(then, cell)
    for (x, y), mask in sides.items():
        cells[y][x] = lines[mask], style
    return ways


def _draw_box(cells: Cells, box: Box, lines: str, style: str) -> None:
    """A frame and the label; a box of one row is framed by brackets where it is lit."""
    rows = [(f"[{box.label}]" if style == "active" else box.label).center(box.w)]
    if box.h > 1:
        flat, side = lines[10] * (box.w - 2), lines[5]
        label = box.label.center(box.w - 2)
        rows = [
            lines[6] + flat + lines[12],
            side + label + side,
            lines[3] + flat + lines[9],
        ]
    for y, row in enumerate(rows, box.y):
        cells[y][box.x : box.x + box.w] = [(char, style) for char in row]

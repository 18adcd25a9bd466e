"""Projections of the machine for drawing: boxes and lines on a grid of characters.

Knows nodes and edges by their attributes only, so rows made from a trace's columns do as well as
the graph's own. Draws nothing.
"""

from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

_LEVELS = (
    "SIP",
    "cube",
    "PE",
)  # what a box stands for on the system, in a SIP, in a cube
_HEIGHTS = (3, 3, 1, 3)  # of a box, by level: a cube has too many boxes for borders
_GAPS = (2, 1)  # characters between boxes, across and down


class Box(NamedTuple):
    """Nodes drawn as one: ``w`` by ``h`` characters from column ``x`` and row ``y`` on."""

    nodes: tuple[Hashable, ...]
    label: str
    x: int
    y: int
    w: int
    h: int


class Line(NamedTuple):
    """All edges of one kind from one box to another, which are numbers of ``View.boxes``."""

    src: int
    dst: int
    kind: str


class View(NamedTuple):
    """A projection; north is up, boxes are in the order of their first nodes."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def project(
    nodes: Iterable[Any], edges: Iterable[Any], place: tuple[int, ...] = ()
) -> View:
    """The inside of ``place``: () the system, (sip,), (sip, cube) or (sip, cube, pe).

    Each SIP, cube or PE directly inside is one box, and so is every node that belongs to none, and
    an HBM slice in its cube. ``nodes`` have id, type, sip, cube, pe (-1: none), engine, x_mm, y_mm;
    ``edges`` have src, dst (ids of nodes) and kind. A place that does not exist has no boxes.
    """
    level = len(place)
    groups: dict[Hashable, list[Any]] = {}
    for node in nodes:
        at = (node.sip, node.cube, node.pe)
        if at[:level] == place:
            single = (
                level == 3 or at[level] < 0 or (level == 2 and node.type == "hbm_ctrl")
            )
            groups.setdefault(("node", node.id) if single else at[level], []).append(
                node
            )
    labels = [_label(key, inside[0], level) for key, inside in groups.items()]
    boxes = _lay_out(list(groups.values()), labels, _HEIGHTS[level])
    box_of = {node: number for number, box in enumerate(boxes) for node in box.nodes}
    ends = ((box_of.get(edge.src), box_of.get(edge.dst), edge.kind) for edge in edges)
    lines = (
        Line(a, b, kind)
        for a, b, kind in ends
        if a is not None and b is not None and a != b
    )
    return View(tuple(boxes), tuple(dict.fromkeys(lines)))


def way(view: View, a: int, b: int) -> list[tuple[int, int]]:
    """The cells (x, y) of a line from the middle of box ``a`` to that of ``b``, one by one.

    It passes no third box: straight if none is between, else through the gaps beside both, of
    which the last are one cell right of and below all boxes.
    """
    src, dst = view.boxes[a], view.boxes[b]
    (x, y), (x1, y1) = ((box.x + box.w // 2, box.y + box.h // 2) for box in (src, dst))
    between = [
        box
        for box in view.boxes
        if box.x <= max(x, x1) and box.x + box.w > min(x, x1) and box is not src
        if box.y <= max(y, y1) and box.y + box.h > min(y, y1) and box is not dst
    ]
    row = src.y + src.h if dst.y >= src.y else src.y - 1
    corners = [(x, row), (x1, row)]
    if (x == x1 or y == y1) and not between:
        corners = []
    elif row not in (dst.y - 1, dst.y + dst.h):
        column = dst.x - 1 if src.x < dst.x else dst.x + dst.w
        corners = [(x, row), (column, row), (column, y1)]
    cells = [(x, y)]
    for end in (*corners, (x1, y1)):
        (x, y), n = (
            cells[-1],
            max(abs(end[0] - cells[-1][0]), abs(end[1] - cells[-1][1])),
        )
        cells += [
            (x + (end[0] - x) * i // n, y + (end[1] - y) * i // n)
            for i in range(1, n + 1)
        ]
    return cells


def _label(key: Hashable, node: Any, level: int) -> str:
    if isinstance(key, int):
        return f"{_LEVELS[level]} {key}"
    return (
        f"HBM {node.pe}"
        if node.type == "hbm_ctrl"
        else str(node.engine.rpartition(".")[2])
    )


def _lay_out(groups: list[list[Any]], labels: list[str], height: int) -> list[Box]:
    """Boxes in rows of equal y; a column takes further x as long as its rows are free.

    So boxes keep their order from west to east and north to south, and no two share a cell.
    """
    xs, ys = (
        [
            round(sum(getattr(node, axis) for node in group) / len(group), 3)
            for group in groups
        ]
        for axis in ("x_mm", "y_mm")
    )
    row_of = {y: row for row, y in enumerate(sorted(set(ys)))}
    columns: list[dict[int, int]] = [{}]  # row -> box
    for _, level in groupby(sorted(range(len(xs)), key=xs.__getitem__), xs.__getitem__):
        abreast = list(level)
        if any(row_of[ys[box]] in columns[-1] for box in abreast):
            columns.append({})
        for box in abreast:
            if row_of[ys[box]] in columns[-1]:  # two at one point
                columns.append({})
            columns[-1][row_of[ys[box]]] = box
    boxes, x = {}, 0
    for column in columns:
        width = max((len(labels[box]) for box in column.values()), default=0) + 2
        for row, box in column.items():
            ids, y = tuple(node.id for node in groups[box]), row * (height + _GAPS[1])
            boxes[box] = Box(ids, labels[box], x, y, width, height)
        x += width + _GAPS[0]
    return [boxes[box] for box in range(len(groups))]

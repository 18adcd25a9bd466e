"""Projections of the machine for drawing: boxes and lines on a grid of characters.

Knows nodes and edges by their attributes only, so rows made from a trace's columns do
as well as the graph's own. Draws nothing.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kernbench.topology.kinds import label_of

_LEVELS = ("SIP", "cube", "PE")
"""What a box stands for in the system, in a SIP, and in a cube."""

_HEIGHTS = (3, 3, 1, 3)
"""Characters of a box, by level: a cube has too many boxes for borders."""

_GAP_ACROSS = 2
_NARROW_GAP = 1
"""Characters between two boxes side by side; of a narrow projection."""
_GAP_DOWN = 1
"""Characters between two boxes one above the other."""
_BESIDE_LABEL = 2
"""Characters of a box beside its label: its border, or a blank on each side. A narrow
projection has no such blanks.
"""

Cell = tuple[int, int]
"""Column and row of a character."""


class Box(NamedTuple):
    """Nodes drawn as one.

    It is ``w`` by ``h`` characters, from column ``x`` and row ``y`` on.
    """

    nodes: tuple[Hashable, ...]
    label: str
    x: int
    y: int
    w: int
    h: int

    @property
    def middle(self) -> Cell:
        """The cell in its middle."""
        return self.x + self.w // 2, self.y + self.h // 2


class Line(NamedTuple):
    """All edges of one kind from one box to another; boxes are indices of a View's."""

    src: int
    dst: int
    kind: str


class View(NamedTuple):
    """A projection; north is up, boxes are in the order of their first nodes."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def project(
    nodes: Iterable[Any],
    edges: Iterable[Any],
    place: tuple[int, ...] = (),
    narrow: bool = False,
) -> View:
    """The inside of a place: () the system, (sip,), (sip, cube) or (sip, cube, pe).

    Each SIP, cube or PE directly inside is one box, and so is every node that belongs
    to none, and every node of a kind that is drawn beside its PE. ``nodes`` have id,
    type, sip, cube, pe (-1: none), engine, x_mm, y_mm; ``edges`` have src, dst (ids of
    nodes) and kind. A place that does not exist has no boxes. In a ``narrow``
    projection boxes are as wide as what stands in them, and a column apart.
    """
    level = len(place)
    groups: dict[Hashable, list[Any]] = {}
    for node in nodes:
        at = (node.sip, node.cube, node.pe)
        if at[:level] == place:
            key = _group(node, at, level)
            groups.setdefault(key, []).append(node)
    labels = [_label(key, inside[0], level) for key, inside in groups.items()]
    boxes = _lay_out(list(groups.values()), labels, _HEIGHTS[level], narrow)
    box_of = {node: number for number, box in enumerate(boxes) for node in box.nodes}
    lines: dict[Line, None] = {}
    for edge in edges:
        src = box_of.get(edge.src)
        dst = box_of.get(edge.dst)
        if src is not None and dst is not None and src != dst:
            lines[Line(src, dst, edge.kind)] = None
    return View(tuple(boxes), tuple(lines))


def way(view: View, a: int, b: int) -> list[Cell]:
    """The cells of a line from the middle of box ``a`` to that of ``b``, one by one.

    It passes no third box: straight if none is between, else through the gaps beside
    both, of which the last are one cell right of and below all boxes.
    """
    src = view.boxes[a]
    dst = view.boxes[b]
    cells = [src.middle]
    for corner in (*_corners(view, src, dst), dst.middle):
        cells += _straight(cells[-1], corner)
    return cells


def _corners(view: View, src: Box, dst: Box) -> list[Cell]:
    """Where a line from one box to another turns."""
    x, y = src.middle
    end_x, end_y = dst.middle
    aligned = end_x == x or end_y == y
    if aligned and not _between(view, src, dst):
        return []
    row = src.y + src.h if dst.y >= src.y else src.y - 1
    if row in (dst.y - 1, dst.y + dst.h):
        return [(x, row), (end_x, row)]
    column = dst.x - 1 if src.x < dst.x else dst.x + dst.w
    return [(x, row), (column, row), (column, end_y)]


def _between(view: View, src: Box, dst: Box) -> bool:
    """Whether a third box touches the rectangle of the middles of two."""
    x, y = src.middle
    end_x, end_y = dst.middle
    for box in view.boxes:
        if box is src or box is dst:
            continue
        over_columns = box.x <= max(x, end_x) and box.x + box.w > min(x, end_x)
        over_rows = box.y <= max(y, end_y) and box.y + box.h > min(y, end_y)
        if over_columns and over_rows:
            return True
    return False


def _straight(start: Cell, end: Cell) -> list[Cell]:
    """The cells after ``start`` up to ``end``, which is on its row or column."""
    x, y = start
    across = end[0] - x
    down = end[1] - y
    count = max(abs(across), abs(down))
    return [
        (x + across * i // count, y + down * i // count) for i in range(1, count + 1)
    ]


def _group(node: Any, at: tuple[int, int, int], level: int) -> Hashable:
    """What a node is drawn in: itself, or the SIP, cube or PE of that number."""
    in_pe = level == 3
    in_cube = level == 2
    if in_pe or at[level] < 0 or (in_cube and label_of(node.type)):
        return ("node", node.id)
    return at[level]


def _label(key: Hashable, node: Any, level: int) -> str:
    """What stands in a box; ``node`` is the first of those in it."""
    if isinstance(key, int):
        return f"{_LEVELS[level]} {key}"
    label = label_of(node.type)
    if label:
        return f"{label} {node.pe}"
    return str(node.engine.rpartition(".")[2])


def _lay_out(
    groups: list[list[Any]], labels: list[str], height: int, narrow: bool
) -> list[Box]:
    """A box for each group: rows of equal y, columns from west to east.

    A column takes further x as long as its rows are free. So boxes keep their order
    from west to east and north to south, and no two share a cell.
    """
    xs = [_mean(group, "x_mm") for group in groups]
    ys = [_mean(group, "y_mm") for group in groups]
    row_of_y = {y: row for row, y in enumerate(sorted(set(ys)))}
    rows = [row_of_y[y] for y in ys]
    gap = _GAP_ACROSS
    beside_label = _BESIDE_LABEL
    if narrow:
        gap = _NARROW_GAP
    if narrow and height == 1:
        beside_label = 0
    boxes: dict[int, Box] = {}
    x = 0
    for column in _columns(xs, rows):
        longest = max((len(labels[box]) for box in column.values()), default=0)
        width = longest + beside_label
        for row, box in column.items():
            ids = tuple(node.id for node in groups[box])
            y = row * (height + _GAP_DOWN)
            boxes[box] = Box(ids, labels[box], x, y, width, height)
        x += width + gap
    return [boxes[box] for box in range(len(groups))]


def _mean(group: list[Any], axis: str) -> float:
    """The middle of a group of nodes, in mm."""
    total: float = sum(getattr(node, axis) for node in group)
    return round(total / len(group), 3)


def _columns(xs: Sequence[float], rows: Sequence[int]) -> list[dict[int, int]]:
    """The box in each row of every column, for boxes at ``xs`` in ``rows``."""
    columns: list[dict[int, int]] = [{}]
    from_west = sorted(range(len(xs)), key=xs.__getitem__)
    for _, level in groupby(from_west, xs.__getitem__):
        abreast = list(level)
        if any(rows[box] in columns[-1] for box in abreast):
            columns.append({})
        for box in abreast:
            if rows[box] in columns[-1]:  # two boxes at one point
                columns.append({})
            columns[-1][rows[box]] = box
    return columns

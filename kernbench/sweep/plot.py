"""A scatter of the points of a sweep, as text for a terminal and as SVG.

Both show two columns of the rows that are right, and which of them no other one beats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from kernbench.errors import UsageError
from kernbench.sweep.show import Results, point_text
from kernbench.sweep.table import is_right, value_of

_WIDTH = 640
_HEIGHT = 400
_LEFT = 90
_RIGHT = 20
_TOP = 40
_BOTTOM = 60
"""The picture, and the margins around its points, in units of SVG."""

_TICKS = 5
"""About so many numbers stand along an axis."""


class Dot(NamedTuple):
    """One point: where it is, whether it is on the front, and what to say of it."""

    x: float
    y: float
    is_best: bool
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """The dots of two columns; those on the front are last, so they lie on top."""

    title: str
    x: str
    y: str
    dots: tuple[Dot, ...]

    def as_text(self, width: int, height: int, is_ascii: bool) -> list[str]:
        """Lines of ``width`` columns, ``height`` of them with dots."""
        plain = "." if is_ascii else "·"
        best = "*" if is_ascii else "●"
        corner = "+" if is_ascii else "└"
        up = "|" if is_ascii else "│"
        along = "-" if is_ascii else "─"
        x_ends = _ends([dot.x for dot in self.dots])
        y_ends = _ends([dot.y for dot in self.dots])
        labels = [f"{end:,.6g}" for end in y_ends]
        margin = max(map(len, labels))
        columns = max(width - margin - 2, 10)
        cells = [[" "] * columns for _ in range(height)]
        for dot in self.dots:
            column = round(_share(dot.x, x_ends) * (columns - 1))
            line = round((1 - _share(dot.y, y_ends)) * (height - 1))
            cells[line][column] = best if dot.is_best else plain
        lines = [f"{self.y}, {best} on the Pareto front"]
        for number, row in enumerate(cells):
            label = {0: labels[1], height - 1: labels[0]}.get(number, "")
            lines.append(f"{label:>{margin}} {up}{''.join(row)}".rstrip())
        lines.append(f"{'':>{margin}} {corner}{along * columns}")
        left = f"{x_ends[0]:,.6g}"
        right = f"{x_ends[1]:,.6g}"
        middle = self.x.center(columns - len(left) - len(right))
        lines.append(f"{'':>{margin}}  {left}{middle}{right}")
        return lines

    def as_svg(self) -> str:
        """A picture with ticks; a dot says what it is where a mouse is held over it."""
        x_ticks = _ticks([dot.x for dot in self.dots])
        y_ticks = _ticks([dot.y for dot in self.dots])
        to_x = _Scale(x_ticks[0], x_ticks[-1], _LEFT, _WIDTH - _RIGHT)
        to_y = _Scale(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP)
        middle = (_LEFT + _WIDTH - _RIGHT) // 2
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            _label(middle, 22, "middle", self.title),
        ]
        for value in x_ticks:
            x = to_x(value)
            lines.append(_stroke(x, _TOP, x, _HEIGHT - _BOTTOM))
            lines.append(_label(x, _HEIGHT - _BOTTOM + 18, "middle", f"{value:,.6g}"))
        for value in y_ticks:
            y = to_y(value)
            lines.append(_stroke(_LEFT, y, _WIDTH - _RIGHT, y))
            lines.append(_label(_LEFT - 8, y + 4, "end", f"{value:,.6g}"))
        lines.append(_label(middle, _HEIGHT - 16, "middle", self.x))
        turned = f' transform="rotate(-90 16 {_HEIGHT // 2})"'
        lines.append(_label(16, _HEIGHT // 2, "middle", self.y, turned))
        for dot in self.dots:
            look = 'r="5" fill="#d55e00"' if dot.is_best else 'r="3.5" fill="#7f9fbf"'
            lines.append(
                f'<circle cx="{to_x(dot.x):.1f}" cy="{to_y(dot.y):.1f}" {look}>'
                f"<title>{escape(dot.text)}</title></circle>"
            )
        return "\n".join([*lines, "</svg>", ""])


class _Scale(NamedTuple):
    """From values to places in the picture."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return self.begin + _share(value, (self.low, self.high)) * (
            self.end - self.begin
        )


def plot_of(results: Results, x: str | None, y: str | None) -> Plot | None:
    """The scatter of two columns; None if there is nothing to draw.

    By default those are the first two objectives, or of one objective the first number
    in which points differ. UsageError for a column that is not one of numbers.
    """
    wanted = [objective.column for objective in results.objectives]
    if y is None:
        y = wanted[1] if len(wanted) > 1 else wanted[0]
    if x is None:
        x = wanted[0] if len(wanted) > 1 else _first_number(results)
    rows = [i for i, row in enumerate(results.rows) if is_right(row)]
    if x is None or not rows:
        return None
    front = set(results.front())
    varied = results.varied()
    dots = []
    for i in rows:
        row = results.rows[i]
        text = f"{point_text(row.point, varied)} (row {i + 1})"
        x_value = _number(x, value_of(row, x))
        y_value = _number(y, value_of(row, y))
        dots.append(Dot(x_value, y_value, i in front, text))
    # Not by row: the numbers of rows follow from keys, and these from the code.
    dots.sort(key=lambda dot: (dot.is_best, dot.x, dot.y, dot.text))
    return Plot(results.title(), x, y, tuple(dots))


def _first_number(results: Results) -> str | None:
    """The first name in which points differ, and which has numbers only."""
    for name in results.varied():
        values = [value_of(row, name) for row in results.rows]
        if all(isinstance(value, int | float) for value in values):
            return name
    return None


def _number(column: str, value: Any) -> float:
    if not isinstance(value, int | float):
        raise UsageError(f"{column}: no number in every row, so it cannot be drawn")
    return float(value)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _share(value: float, ends: tuple[float, float]) -> float:
    """How far a value is between two others; the middle if these are the same."""
    low, high = ends
    if low == high:
        return 0.5
    return (value - low) / (high - low)


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers, by 1, 2 or 5 times a power of ten, that enclose all values."""
    low, high = _ends(values)
    if low == high:
        margin = abs(low) / 2 or 1.0
        low, high = _ends([low - margin, high + margin])
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    first = math.floor(low / step)
    last = math.ceil(high / step)
    return [i * step for i in range(first, last + 1)]


def _stroke(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        'stroke="#dddddd"/>'
    )


def _label(x: float, y: float, anchor: str, text: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
        f"{escape(text)}</text>"
    )

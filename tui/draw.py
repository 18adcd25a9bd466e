"""Lines of text runs and how they become strips; a letter or glyph says what a colour
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kernbench.visible import visible
from tui.themes import THEMES, Theme

Run = tuple[str, str]  # text, name of a style
Line = list[Run]

STYLES: dict[str, Style] = dict(THEMES["dark"].styles)
"""The styles of the theme in use, by the names that lines use."""


def use_theme(theme: Theme) -> None:
    """Draw in another theme; called before the first line is drawn."""
    STYLES.clear()
    STYLES.update(theme.styles)


class Glyphs(NamedTuple):
    """The characters beyond letters, in one of two alphabets."""

    rule: str
    bar: str
    thick: str
    arrow: str
    more: str
    lines: str  # by the sides that a cell joins: 1 up, 2 right, 4 down, 8 left
    lit: str  # the same, of what is marked
    heads: str  # of arrows up, right, down, left
    ramp: str = "▁▂▃▄▅▆▇█"  # from little to much
    corners: str = "╭╮╰╯"  # of borders: upper left and right, lower left and right
    part: str = "▏▎▍▌▋▊▉"  # of a cell from its left, by eighths; empty: no parts
    edge: str = "▏"  # where a slice begins
    ends: str = "▌▐"  # around the slice of the cursor
    thin_ends: str = "▎▕"  # around those that it is linked to
    dots: str = "┈"  # of a line where something waits
    fold: str = "▾▸"  # of a group that is open, and folded
    coloured: bool = True  # slices have grounds; else they stand in brackets


UNICODE = Glyphs(
    "─", "│", "━", "→", "…", " ╵╶└╷│┌├╴┘─┴┐┤┬┼", " ╹╺┗╻┃┏┣╸┛━┻┓┫┳╋", "↑→↓←"
)
ASCII = Glyphs(
    "-",
    "|",
    "=",
    "->",
    "~",
    " |-+||++-+-+++++",
    " #=#####=#=#####",
    "^>v<",
    ".:-=+*%@",
    "++++",
    "",
    "|",
    "[]",
    "<>",
    ".",
    "-+",
)


def without_colours(glyphs: Glyphs) -> Glyphs:
    """The same characters, for slices in brackets."""
    return Glyphs(*glyphs[:-1], coloured=False)


def strip(line: Sequence[Run], width: int) -> Strip:
    """A line as one strip of exactly ``width`` cells, runs of one style merged.

    What is hidden in its texts is written out.
    """
    shown = [(visible(text), style) for text, style in line]
    rest = (" " * max(width - length(shown), 0), "")
    styled = [(text, STYLES[style]) for text, style in (*shown, rest) if text]
    segments = [
        Segment("".join(text for text, _ in runs), style)
        for style, runs in groupby(styled, key=itemgetter(1))
    ]
    return Strip(segments).adjust_cell_length(width, STYLES[""])


def length(line: Sequence[Run]) -> int:
    """Cells that a line takes."""
    return sum(len(text) for text, _ in line)


def clip(text: str, width: int, glyphs: Glyphs) -> str:
    """``text`` in exactly ``width`` cells; a longer one ends in an ellipsis."""
    return (
        text.ljust(width)
        if len(text) <= width
        else text[: max(width - 1, 0)] + glyphs.more
    )


def cut(line: Sequence[Run], width: int, glyphs: Glyphs) -> Line:
    """A line in exactly ``width`` cells: filled with blanks, or cut, and then an
    ellipsis stands for what is left out.
    """
    shown = [(visible(text), style) for text, style in line]
    whole = length(shown)
    if whole <= width:
        return [*shown, (" " * (width - whole), "")]
    made: Line = []
    left = width
    for text, style in shown:
        made.append((text[:left], style))
        left -= len(made[-1][0])
    text = "".join(text for text, _ in shown)
    if not text[width:].strip():
        return made
    return _with_ellipsis(made, glyphs)


def _with_ellipsis(line: Line, glyphs: Glyphs) -> Line:
    """A line that was cut, its last character replaced."""
    last = max((i for i, (text, _) in enumerate(line) if text), default=None)
    if last is None:
        return line
    text, style = line[last]
    return [*line[:last], (text[:-1] + glyphs.more, style), *line[last + 1 :]]


def rule(
    left: Line, right: str, width: int, glyphs: Glyphs, style: str = "rule"
) -> Line:
    """A title bar: ``left``, a rule, ``right`` if there is room for it."""
    tail = f" {right} " if right and len(right) + 2 <= width - length(left) else ""
    return [
        *left,
        (glyphs.rule * (width - length(left) - len(tail)), style),
        (tail, "dim"),
    ]


def window(
    at: tuple[int, int], shape: tuple[int, ...], room: tuple[int, int]
) -> list[int]:
    """The origin nearest to ``at`` of a window of ``room`` (rows, columns) within
    ``shape``.
    """
    return [max(min(x, n - r), 0) for x, n, r in zip(at, shape, room, strict=True)]

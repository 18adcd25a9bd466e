"""Lines of text runs and how they become strips: styles, glyphs, clipping, number grids.

Colours are blue, orange and their neighbours of the Okabe-Ito palette; a letter or glyph always
says the same, so the screen reads without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kernbench.replay.text import number_text

Run = tuple[str, str]  # text, name of a style
Line = list[Run]


def _style(color: str | None = None, on: str | None = None, **flags: bool) -> Style:
    return Style(color=color, bgcolor=on, **flags)


_CLASS_COLOURS = {
    "G": ("#000000", "#e69f00"),
    "M": ("#000000", "#f0e442"),
    "R": ("#ffffff", "#0072b2"),
    "W": ("#000000", "#56b4e9"),
    "F": ("#000000", "#cc79a7"),
    "S": ("#000000", "#00b894"),
    "H": ("#000000", "#a0a0a0"),
    "C": ("#ffffff", "#9a5b00"),
    "?": ("#ffffff", "#606060"),
}

STYLES = {
    "": Style.null(),
    "dim": _style("#8a94a0"),
    "rule": _style("#5f6b78"),
    "title": _style("#9fb4c8"),
    "active": _style("#000000", "#56b4e9", bold=True),
    "label": _style("#9fb4c8"),
    "here": _style(bold=True, reverse=True),
    "pick": _style(underline=True, bold=True),
    "flight": _style("#56b4e9", bold=True),
    "cursor": _style("#ffb000", bold=True),
    "changed": _style("#ffb000", bold=True),
    "bad": _style("#000000", "#ffb000", bold=True),
    "ok": _style("#56b4e9"),
    "wait": _style("#ffb000"),
    "bold": _style(bold=True),
    **{letter: _style(fg, bg) for letter, (fg, bg) in _CLASS_COLOURS.items()},
    **{letter.lower(): _style(bg) for letter, (_, bg) in _CLASS_COLOURS.items() if letter != "?"},
    **{f"{letter}|": _style(fg, bg, reverse=True) for letter, (fg, bg) in _CLASS_COLOURS.items()},
}


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters beyond letters, in one of two alphabets."""

    rule: str
    bar: str
    thick: str
    dot: str
    arrow: str
    more: str


UNICODE = Glyphs("─", "│", "━", "·", "→", "…")
ASCII = Glyphs("-", "|", "=", ".", "->", "~")


def strip(line: Line, width: int) -> Strip:
    """A line as one strip of exactly ``width`` cells, runs of one style merged."""
    segments = [
        Segment("".join(text for text, _ in runs), STYLES[style])
        for style, runs in groupby(line, key=lambda run: run[1])
    ]
    return Strip(segments).simplify().adjust_cell_length(width)


def length(line: Line) -> int:
    """Cells that a line takes."""
    return sum(len(text) for text, _ in line)


def cells(chars: str, styles: list[str]) -> Line:
    """One character and one style a cell, as runs."""
    line: Line = []
    at = 0
    for style, group in groupby(styles):
        size = sum(1 for _ in group)
        line.append((chars[at : at + size], style))
        at += size
    return line


def clip(text: str, width: int, more: str) -> str:
    """``text`` in at most ``width`` cells, its end replaced by ``more`` if it is longer."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + more[:width]


def rule(left: Line, right: str, width: int, glyphs: Glyphs) -> Line:
    """A title bar: ``left``, a rule, ``right``."""
    room = width - length(left) - len(right) - 2
    if room < 0:
        right, room = "", max(width - length(left), 0)
    tail = f" {right} " if right else ""
    return [*left, (glyphs.rule * room, "rule"), (tail, "dim")]


def fit(values: Any, width: int) -> int:
    """How many numbers of nine cells fit beside a row label of six."""
    return max((width - 6) // 10, 1) if values.ndim else 1


def flat2(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A tensor as rows of its last axis."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def clamp_origin(at: tuple[int, int], shape: tuple[int, ...], rows: int, columns: int) -> tuple[int, int]:
    """The nearest origin to ``at`` from which a window of rows x columns shows no emptiness."""
    r, c = (max(min(x, n - w), 0) for x, n, w in zip(at, shape, (rows, columns), strict=True))
    return r, c


def column_numbers(first: int, count: int, origin: int = 0) -> Line:
    """The head of a grid: numbers of its columns."""
    return [("".join(f"{origin + c:>9} " for c in range(first, first + count)), "label")]


def number_cells(
    row: npt.NDArray[Any], known: npt.NDArray[np.bool_] | None, marked: npt.NDArray[np.bool_], mark: Run
) -> Line:
    """One row of numbers in ten cells each: '-' where not ``known``, ``mark`` behind ``marked``."""
    line: Line = []
    for i, value in enumerate(row):
        text = "-" if known is not None and not known[i] else number_text(value)
        glyph, style = mark if marked[i] else (" ", "")
        line.append((f"{text:>9}{glyph}", style))
    return line

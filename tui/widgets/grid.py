"""Grids of cells, as numbers or as heat, and answers asked for one at a time: Memory's and Diff's.

Knows no tensor and no diff, only arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.replay.job import Tell
from tui.widgets.draw import Array, Glyphs, Line, Run
from tui.widgets.pane import Pane

T = TypeVar("T")
FEW = 20_000  # ops of a trace whose indexes are made at once
SMALL = 1 << 18  # cells that are looked at while a key waits


class Answers:
    """Answers of lane "memory": of each kind the last is kept, and one at a time is asked for."""

    def __init__(self, pane: Pane) -> None:
        self._pane = pane
        self._asked: dict[str, tuple[Hashable, Callable[[Tell], Any]]] = {}
        self._kept: dict[str, tuple[Hashable, Any]] = {}

    def known(self, kind: str) -> Any:
        """The last answer of a kind, or None."""
        return self._kept.get(kind, (None, None))[1]

    def __call__(
        self, kind: str, of: Hashable, compute: Callable[[Tell], T], quick: bool = False
    ) -> T | Line:
        """What ``compute`` answers; while it or what was asked before runs, a line to show."""
        while self._kept.get(kind, (None,))[0] != (of,):
            asked, run = self._asked.setdefault(kind, (of, compute))
            try:
                found = self._pane.answer(("memory", (kind, asked)), kind, run, quick)
            except KernbenchError:
                del self._asked[kind]
                if asked == of:
                    raise
                continue
            if isinstance(found, list):
                return found
            del self._asked[kind]
            self._kept[kind] = (asked,), found
        answer: T = self._kept[kind][1]
        return answer


@dataclass(slots=True)
class Cell:
    """The picked cell of a grid; ``top`` and ``left`` are the first row and column shown."""

    row: int = 0
    column: int = 0
    top: int = 0
    left: int = 0

    def go(self, row: int, column: int) -> None:
        """Pick a cell and show it first."""
        self.row, self.column, self.top, self.left = row, column, row, column

    def scroll(self, rows: int, columns: int) -> None:
        """Move the cell and what is shown."""
        self.top, self.left = self.top + rows, self.left + columns
        self.row, self.column = self.row + rows, self.column + columns

    def fit(self, shape: tuple[int, ...], rows: int, columns: int) -> None:
        """Stay within a grid of ``shape``, of which so many rows and columns are shown."""
        self.row, self.top = _fit(self.row, self.top, shape[0], rows)
        self.column, self.left = _fit(self.column, self.left, shape[1], columns)

    def seek(self, marked: Array, by: int) -> bool:
        """To the next cell in row order that is marked, or the previous one; False for none."""
        found, here = np.flatnonzero(marked), self.row * marked.shape[1] + self.column
        at = int(np.searchsorted(found, here, "right" if by > 0 else "left")) - (by < 0)
        if 0 <= at < len(found):
            self.go(*divmod(int(found[at]), marked.shape[1]))
        return 0 <= at < len(found)


def _fit(at: int, first: int, extent: int, room: int) -> tuple[int, int]:
    at = min(max(at, 0), extent - 1)
    first = max(min(first, extent - room), 0)
    return at, min(max(first, at - room + 1), at)


def flat2(values: Array) -> Array:
    """A tensor as rows of its last axis."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def index_of(row: int, shape: tuple[int, ...]) -> str:
    """The leading axes of a row of ``flat2``: 3, or 1,3 of three axes."""
    return ",".join(map(str, np.unravel_index(row, shape[:-1]))) if len(shape) > 2 else str(row)


def column_numbers(first: int, count: int, wide: int = 9) -> Line:
    """The head of ``count`` columns of a grid."""
    return [("".join(f"{c:>{wide}} " for c in range(first, first + count)), "title")]


def cells(texts: list[str], marked: Array, mark: Run, at: int = -1, wide: int = 9) -> Line:
    """Cells ``wide`` and one for ``mark``'s glyph where ``marked``; '>' and reverse at ``at``."""
    line: Line = []
    for i, text in enumerate(texts):
        glyph, style = mark if marked[i] else (" ", "")
        text, style = (f">{text}", "here") if i == at else (text, style)
        line.append((f"{text:>{wide}}"[-wide:] + glyph, style))
    return line


def blocks(values: Array, rows: int, columns: int) -> Array:
    """The largest of every block of cells, NaN where there is none; at most so many blocks."""
    for axis, room in enumerate((rows, columns)):
        starts = np.arange(0, values.shape[axis], -(-values.shape[axis] // max(room, 1)))
        values = np.fmax.reduceat(values, starts, axis)
    return values


def heat(row: Array, top: float, glyphs: Glyphs, at: int = -1) -> Line:
    """A glyph a number from 0 to ``top``, '!' above, blank where it is NaN; reverse at ``at``."""
    line: Line = []
    for i, x in enumerate(row.tolist()):
        level = 0 if np.isnan(x) else round(min(x / (top or 1.0), 1.0) * (len(glyphs.ramp) - 1))
        run = (" ", "") if np.isnan(x) else (glyphs.ramp[level], f"heat{level}")
        run = ("!", "bad") if x > top else run
        line.append((run[0], "here") if i == at else run)
    return line

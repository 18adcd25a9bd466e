"""Rows of slices: ops as boxes with names on a time axis.

An op is a box on the ground of its class, with an edge where it begins, its name and
then its duration as soon as they fit. Ops too short for a cell are a bar as high as the
share of the cell that is busy. Without colours a box stands in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from kernbench.replay.arrays import Bools, Floats
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.slices import Slice
from tui.draw import Glyphs, Line, length
from tui.panes.axis import Axis

_UNITS = (("ms", 1e6), ("us", 1e3))
_MERGED = 1e-9
"""Cells: what differs by less is at one place."""
_BRACKETS = "[]"
_POINTED = "{}"
_LINKED = "<>"
_LEAST_NAME = 3
"""Cells in which a name that is cut still says something."""
HOT = 0.5
"""The share of a cell in which something waits, from which on it is hot."""


def ink_style(letter: str) -> str:
    """The style of a class on paper."""
    small = letter.lower()
    return f"{letter}-" if small == letter else small


def duration_text(ns: float) -> str:
    """A duration in three digits: ``254 ns``, ``8.23 us``."""
    for unit, size in _UNITS:
        if ns >= size * 0.9995:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{_three_digits(ns)} ns"


def _three_digits(value: float) -> str:
    text = f"{value:.3g}"
    if "e" in text:
        return f"{value:.0f}"
    return text


@dataclass(frozen=True, slots=True)
class Pointed:
    """The ops that stand out: the cursor's, and those that it waited for or that waited
    for it.
    """

    cursor: int = -1
    linked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Marks:
    """What a view marks in a row: cells, and whether that is what is wrong.

    Else what is not marked steps back.
    """

    hits: Bools
    wrong: bool


@dataclass(slots=True)
class Row:
    """The cells of one row while it is drawn, each a character and a style."""

    axis: Axis
    chars: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chars = [" "] * self.axis.columns
        self.styles = [""] * self.axis.columns

    @property
    def glyphs(self) -> Glyphs:
        """The characters to draw with."""
        return self.axis.glyphs

    def place_of(self, time: float) -> float:
        """Where a time is, in cells from the left."""
        return (time - self.axis.t0) / self.axis.span * self.axis.columns

    # -- bars -----------------------------------------------------------------

    def add_bars(self, letters: str, busy: Floats) -> None:
        """Draw of each cell how busy it is, in the colour of its class."""
        if letters.isspace():
            return
        heights = _heights(busy, self.glyphs)
        for i, letter in enumerate(letters):
            if letter != " ":
                self.chars[i] = heights[i]
                self.styles[i] = ink_style(letter)

    def add_shares(self, busy: Floats, waiting: Floats) -> None:
        """Draw how busy a component that carries bytes is; hot where it is waited
        for.
        """
        heights = _heights(busy, self.glyphs)
        for i in np.flatnonzero((busy > 0) | (waiting > 0)).tolist():
            self.chars[i] = heights[i]
            self.styles[i] = "hot" if waiting[i] >= HOT else "busy"

    # -- slices ---------------------------------------------------------------

    def add_slices(
        self,
        slices: Sequence[Slice],
        pointed: Pointed,
        marks: Marks | None = None,
    ) -> None:
        """Draw slices in the order of their start: where two are in service at once,
        the later one covers the rest of the earlier.
        """
        for slice_ in slices:
            self._add_slice(slice_, pointed, marks)
        for slice_ in slices:  # what stands out is covered by nothing
            if slice_.op == pointed.cursor or slice_.op in pointed.linked:
                self._add_slice(slice_, pointed, marks)

    def _add_slice(self, slice_: Slice, pointed: Pointed, marks: Marks | None) -> None:
        begin = self.place_of(slice_.t0)
        end = min(self.place_of(slice_.t1), float(self.axis.columns))
        first = max(int(begin + _MERGED), 0)
        full = int(end + _MERGED)
        if full <= first:
            full = first + 1
            end = float(full)
        ground = self._ground(slice_, first, full, marks)
        is_cursor = slice_.op == pointed.cursor
        is_linked = slice_.op in pointed.linked
        starts_here = begin >= -_MERGED
        text = self._text(slice_, full - first - starts_here)
        width = full - first
        style = ground
        if is_cursor or is_linked:
            style = f"{ground}*"
        if not self.glyphs.coloured:
            brackets = _BRACKETS
            if is_linked:
                brackets = _LINKED
            if is_cursor:
                brackets = _POINTED
            self._put(first, _bracketed(slice_, width, brackets, self.glyphs), style)
            return
        if starts_here:
            self._put(first, self.glyphs.edge, f"{ground}<")
            self._put(first + 1, text.ljust(width - 1), style)
        else:
            self._put(first, text.ljust(width), style)
        self._add_rest(full, end - full, ground)
        if is_cursor or is_linked:
            ends = self.glyphs.ends if is_cursor else self.glyphs.thin_ends
            if starts_here:
                self._put(first, ends[0], style)
            if slice_.t1 <= self.axis.t1 and width > 1:
                self._put(full - 1, ends[1], style)

    def _add_rest(self, cell: int, share: float, ground: str) -> None:
        """Draw the part of a cell in which a slice ends."""
        eighths = int(share * 8 + 0.5)
        if 0 < eighths < 8 and self.glyphs.part and cell < self.axis.columns:
            self._put(cell, self.glyphs.part[eighths - 1], f"{ground}>")

    def _put(self, first: int, text: str, style: str) -> None:
        end = first + len(text)
        self.chars[first:end] = text
        self.styles[first:end] = [style] * len(text)

    def _ground(self, slice_: Slice, first: int, full: int, marks: Marks | None) -> str:
        """The ground of a slice: of its class, unless a view marks other ones."""
        shade = "2" if slice_.shade else ""
        if marks is not None:
            hit = bool(marks.hits[first:full].all())
            if hit and marks.wrong:
                return "bad"
            if not hit and not marks.wrong:
                return f"off{shade}"
        return f"{slice_.letter}{shade}"

    def _text(self, slice_: Slice, room: int) -> str:
        """The name, and the duration if that fits too; a longer name ends in an
        ellipsis.
        """
        return slice_text(slice_.name, slice_.t1 - slice_.t0, room, self.glyphs)

    # -- the rest -------------------------------------------------------------

    def add_marks(self, marks: Marks) -> None:
        """Mark cells in which no slice is drawn."""
        sign = "#"
        sign_style = "cursor"
        if marks.wrong:
            sign = "!"
            sign_style = "alarm"
        for i, hit in enumerate(marks.hits.tolist()):
            style = self.styles[i]
            if style[:1].isupper() or style[:3] in ("bad", "off"):
                continue  # a slice says so itself
            if hit and (marks.wrong or self.chars[i] == " "):
                self._put(i, sign, sign_style)
            elif style and not hit and not marks.wrong:
                self.styles[i] = "rule"

    def add_cursor(self) -> None:
        """A line at the cursor's time, where no text is."""
        at = self.axis.cursor_cell
        if at is None or self.chars[at] != " ":
            return
        style = self.styles[at]
        self.chars[at] = self.glyphs.bar
        self.styles[at] = f"{style.rstrip('*')}<" if style else "cursor"

    @property
    def line(self) -> Line:
        """The cells as runs of one style."""
        found: Line = []
        at = 0
        for style, cells in groupby(self.styles):
            count = sum(1 for _ in cells)
            found.append(("".join(self.chars[at : at + count]), style))
            at += count
        return found


def slice_text(name: str, ns: float, room: int, glyphs: Glyphs) -> str:
    """A name in so many cells, with its duration if that fits, cut if it does not."""
    if not name or room < _LEAST_NAME:
        return ""
    whole = f"{name} {duration_text(ns)}"
    if len(whole) <= room:
        return whole
    if len(name) <= room:
        return name
    return name[: room - 1] + glyphs.more


def _bracketed(slice_: Slice, width: int, brackets: str, glyphs: Glyphs) -> str:
    """A slice without colours: ``[GEMM 0,0,0]``."""
    if width == 1:
        return glyphs.bar if brackets == _BRACKETS else brackets[0]
    room = width - 2
    text = slice_text(slice_.name, slice_.t1 - slice_.t0, room, glyphs)
    return f"{brackets[0]}{text.ljust(room)}{brackets[1]}"


def _heights(busy: Floats, glyphs: Glyphs) -> list[str]:
    """A bar for each share, at least the lowest."""
    levels = np.ceil(np.clip(busy, 0.0, 1.0) * 8 - 1e-6).astype(np.int64)
    return [glyphs.ramp[max(level, 1) - 1] for level in levels.tolist()]


def legend(letters: Iterable[str], glyphs: Glyphs, hot: bool) -> Line:
    """What the classes on screen are called."""
    line: Line = []
    for letter in CLASSES:
        if letter in letters:
            sample = (" ", f"{letter}2") if glyphs.coloured else (letter, "")
            line += [sample, (f" {CLASSES[letter]}  ", "dim")]
    ramp = glyphs.ramp
    line += [(f"{ramp[0]}{ramp[3]}{ramp[7]}", "busy"), (" busy share", "dim")]
    if hot:
        line += [("  ", ""), (ramp[4] * 2, "hot"), (" waited for", "dim")]
    return line


def beside(left: Line, right: Line, width: int) -> Line:
    """Two parts at both ends of a line; the right one only if it fits."""
    gap = width - length(left) - length(right)
    if gap < 2:
        return left
    return [*left, (" " * gap, ""), *right]

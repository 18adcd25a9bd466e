"""Rows of slices: ops as boxes with names on a time axis.

An op is a box on the ground of its class, with an edge where it begins, its name and
then its duration as soon as they fit. Ops too short for a cell are a bar as high as the
share of the cell that is busy. Without colours a box stands in brackets, a bar begins
with the letter of its class, and where a component is waited for with that of waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import NamedTuple

import numpy as np

from kernbench.replay.arrays import Bools, Floats
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.slices import Slice
from tui.draw import Glyphs, Line, length
from tui.panes.axis import Axis

_IDLE = "idle"
_UNITS = (("ms", 1e6), ("us", 1e3))
_MERGED = 1e-9
"""Cells: what differs by less is at one place."""
_BRACKETS = "[]"
_POINTED = "{}"
_LINKED = "<>"
_MARKED = {"off": "..", "bad": "!!"}
"""What a slice stands in, by its ground, where a view marks some of them."""
_LEAST_NAME = 3
"""Cells in which a name that is cut still says something."""
_LEAST_SHARE = 0.02
"""What is less of a cell is not worth a bar."""
_HOT = 0.5
"""The share of a cell for which a component is busy and waited for where it is hot."""
_WAITED_FOR = "w"
"""Without colours, where a component begins to be hot."""


def is_hot(busy: Floats, waiting: Floats) -> Bools:
    """In which cells a component is busy while something waits for it."""
    return np.asarray((busy >= _HOT) & (waiting >= _HOT))


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

    def has(self, op: int) -> bool:
        """Whether an op stands out."""
        return self.layer(op) > 0

    def layer(self, op: int) -> int:
        """How far on top an op is drawn: 2 is the cursor's, 1 what it is linked to."""
        if op == self.cursor:
            return 2
        return 1 if op in self.linked else 0

    def brackets(self, op: int) -> str:
        """What an op stands in where there are no colours."""
        if op == self.cursor:
            return _POINTED
        return _LINKED if op in self.linked else _BRACKETS


class _Span(NamedTuple):
    """The cells of a slice: the first, the one behind the last, and the one behind the
    last that nothing covers.
    """

    first: int
    full: int
    until: int


@dataclass(frozen=True, slots=True)
class Marks:
    """What a view marks in a row: cells, and whether that is what is wrong.

    Else what is not marked steps back.
    """

    hits: Bools
    wrong: bool


@dataclass(slots=True)
class Row:
    """The cells of one row while it is drawn, each a character and a style.

    ``taken`` says of each whether a slice is drawn in it.
    """

    axis: Axis
    chars: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    taken: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.chars = [" "] * self.axis.columns
        self.styles = [""] * self.axis.columns
        self.taken = bytearray(self.axis.columns)

    @property
    def glyphs(self) -> Glyphs:
        """The characters to draw with."""
        return self.axis.glyphs

    def place_of(self, time: float) -> float:
        """Where a time is, in cells from the left."""
        return (time - self.axis.t0) / self.axis.span * self.axis.columns

    # -- bars -----------------------------------------------------------------

    def add_bars(self, letters: str, busy: Floats, slices: Sequence[Slice]) -> None:
        """Draw of each cell how busy it is, in the colour of its class, but for what
        slices show that only reach into it.
        """
        if letters.isspace():
            return
        left = busy
        if slices:
            left = busy.copy()
            for slice_ in slices:
                end = self.place_of(slice_.t1)
                if 0 <= end < len(left):
                    left[int(end)] -= end - int(end)
        heights = _heights(left, self.glyphs)
        shown: Bools = (left >= _LEAST_SHARE) | (left == busy)
        for i in np.flatnonzero(shown).tolist():
            letter = letters[i]
            if letter != " ":
                self.chars[i] = heights[i]
                if not self.glyphs.coloured and letters[i - 1 : i] != letter:
                    self.chars[i] = letter
                self.styles[i] = f"{letter}2>"

    def add_shares(self, busy: Floats, waiting: Floats) -> None:
        """Draw how busy a component that carries bytes is; hot where it is waited
        for.
        """
        heights = _heights(busy, self.glyphs)
        hot = is_hot(busy, waiting)
        for i in np.flatnonzero(busy > 0).tolist():
            self.chars[i] = heights[i]
            self.styles[i] = "hot" if hot[i] else "busy"
        if not self.glyphs.coloured:
            begins = hot & ~np.append(False, hot[:-1])
            for i in np.flatnonzero(begins).tolist():
                self.chars[i] = _WAITED_FOR

    def add_wait(self, t0: float, t1: float) -> None:
        """Draw a dotted line where something waits."""
        first = max(int(self.place_of(t0)), 0)
        end = min(int(np.ceil(self.place_of(t1))), self.axis.columns)
        if end > first:
            self._put(first, self.glyphs.dots * (end - first), "rule")

    # -- slices ---------------------------------------------------------------

    def add_slices(
        self,
        slices: Sequence[Slice],
        pointed: Pointed,
        marks: Marks | None = None,
    ) -> None:
        """Draw slices in the order of their start: where two are in service at once,
        the later one covers the rest of the earlier. Those that stand out are covered
        by nothing.
        """
        layers: tuple[list[Slice], list[Slice], list[Slice]] = ([], [], [])
        for slice_ in slices:
            layers[pointed.layer(slice_.op)].append(slice_)
        covered: list[tuple[int, int]] = []
        drawn: list[tuple[Slice, _Span]] = []
        for layer in reversed(layers):
            above = list(covered)
            nexts = [self._cells_of(slice_)[0] for slice_ in layer[1:]]
            for slice_, until in zip_longest(layer, nexts):
                first, full = self._cells_of(slice_)
                end = math.ceil(self.place_of(slice_.t1) - _MERGED)
                covered.append((first, max(end, full)))
                until = full if until is None else min(full, until)
                for low, high in above:
                    if low <= first < high:
                        first = high
                    elif first < low:
                        until = min(until, low)
                if first < full:
                    span = _Span(first, full, max(until, first + 1))
                    drawn.append((slice_, span))
        drawn.sort(key=lambda slice_: pointed.layer(slice_[0].op))
        for slice_, span in drawn:
            self._add_slice(slice_, span, pointed, marks)
            self.taken[span.first : span.full] = b"\1" * (span.full - span.first)

    def _cells_of(self, slice_: Slice) -> tuple[int, int]:
        """The first cell of a slice, and the one behind its last whole cell."""
        first = max(int(self.place_of(slice_.t0) + _MERGED), 0)
        end = min(self.place_of(slice_.t1), float(self.axis.columns))
        return first, max(int(end + _MERGED), first + 1)

    def _add_slice(
        self, slice_: Slice, span: _Span, pointed: Pointed, marks: Marks | None
    ) -> None:
        """Draw a slice, with its text in the cells that nothing covers later."""
        first, full, until = span
        begin = self.place_of(slice_.t0)
        end = min(self.place_of(slice_.t1), float(self.axis.columns))
        ground = self._ground(slice_, first, full, marks)
        is_cursor = slice_.op == pointed.cursor
        style = ground
        if pointed.has(slice_.op):
            style = f"{ground}*"
        if not self.glyphs.coloured:
            brackets = _MARKED.get(ground.rstrip("2"), pointed.brackets(slice_.op))
            text = _bracketed(slice_, until - first, brackets, self.glyphs)
            self._put(first, text, style)
            return
        starts_here = int(begin + _MERGED) == first and begin >= -_MERGED
        width = full - first
        ends_here = pointed.has(slice_.op) and slice_.t1 <= self.axis.t1 and width > 1
        room = until - first - starts_here
        text = self._text(slice_, room - ends_here)
        if ends_here and not text.startswith(slice_.name):
            text = self._text(slice_, room)  # the name matters more than the end
            ends_here = len(text) < room
        if starts_here:
            self._put(first, self.glyphs.edge, f"{ground}<")
            self._put(first + 1, text.ljust(width - 1), style)
        else:
            self._put(first, text.ljust(width), style)
        self._add_rest(full, end - full, ground)
        if pointed.has(slice_.op):
            ends = self.glyphs.ends if is_cursor else self.glyphs.thin_ends
            if starts_here:
                self._put(first, ends[0], style)
            if ends_here:
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
            if self.taken[i]:
                continue  # a slice says so itself
            if hit and (marks.wrong or self.chars[i] == " "):
                self._put(i, sign, sign_style)
            elif style and not hit and not marks.wrong:
                self.styles[i] = "rule"

    def say_idle(self) -> None:
        """Say so where nothing is drawn."""
        if not any(self.styles):
            self._put(0, _IDLE[: self.axis.columns], "rule")

    def add_cursor(self) -> None:
        """A line at the cursor's time, where no text is."""
        at = self.axis.cursor_cell
        if at is None or not "".join(self.chars[max(at - 1, 0) : at + 2]).isspace():
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
    # Of a stage that is its tile, of a product that it is one.
    first, _, last = name.rpartition(" ")
    name = last if "," in last else first or name
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


def legend(
    letters: Iterable[str], glyphs: Glyphs, width: int, hot: bool, wrong: bool = False
) -> Line:
    """What the classes on screen are called, as many as fit into ``width`` cells;
    ``wrong``: and what is wrong.
    """
    ramp = glyphs.ramp
    parts: list[Line] = []
    if wrong:
        parts.append([("!", "bad"), (" hazard  ", "dim")])
    for letter in CLASSES:
        if letter in letters:
            sample = (" ", f"{letter}2") if glyphs.coloured else (letter, "")
            parts.append([sample, (f" {CLASSES[letter]}  ", "dim")])
    if hot:
        sample = (ramp[4] * 2 if glyphs.coloured else _WAITED_FOR, "hot")
        parts.append([sample, (" waited for  ", "dim")])
    low_to_high = f"{ramp[0]}{ramp[3]}{ramp[7]}"
    parts.append([(low_to_high, "busy"), (" busy share", "dim")])
    line: Line = []
    for part in parts:
        if length(line) + length(part) <= width:
            line += part
    return line


def beside(left: Line, right: Line, width: int) -> Line:
    """Two parts at both ends of a line; the right one only if it fits."""
    gap = width - length(left) - length(right)
    if gap < 2:
        return left
    return [*left, (" " * gap, ""), *right]

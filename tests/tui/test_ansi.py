"""Only cells that differ are written, and the terminal looks as if all were."""

from __future__ import annotations

from itertools import pairwise

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tui.ansi import (
    PLAIN,
    Ink,
    ScreenDiff,
    cells_of,
    ink_of,
    sgr_change,
)

WIDTH = 70
HEIGHT = 4
CONSOLE = Console(
    force_terminal=True, color_system="truecolor", width=WIDTH, legacy_windows=False
)


class Frame(LayoutUpdate):
    """Runs of text put side by side from a cell on, as the compositor makes them."""

    def __init__(self, x: int, y: int, runs: list[tuple[str, Style]]) -> None:
        strip = Strip([Segment(text, style) for text, style in runs])
        super().__init__([[strip]], Region(x, y, strip.cell_length, 1))
        self.runs = runs


def whole_frame(frame: Frame) -> str:
    """What writes all of it, cell for cell."""
    pieces = [Control.move_to(frame.region.x, frame.region.y).segment.text]
    for text, style in frame.runs:
        pieces.append(style.render(text, color_system=ColorSystem.TRUECOLOR))
    return "".join(pieces)


def difference(cells: ScreenDiff, frame: LayoutUpdate | ChopsUpdate) -> str:
    """What is written for a frame where the terminal shows the earlier ones."""
    cells.update = frame
    return cells.render_segments(CONSOLE)


def plain(text: str, x: int = 0, y: int = 0) -> Frame:
    return Frame(x, y, [(text, Style.null())])


# -- frames ------------------------------------------------------------------------

STYLES = [
    Style.null(),
    Style(bold=True),
    Style(color="red"),
    Style(reverse=True, bgcolor="blue"),
    Style(bold=True, underline=True),
    Style(color="#123456", bgcolor="blue", italic=True),
]
# Letters, a line, a wide character, and a letter with a combining accent.
CHARACTERS = st.sampled_from(["a", "b", " ", "1", "─", "界", "e\u0301"])
TEXTS = st.lists(CHARACTERS, min_size=1, max_size=9).map("".join)
RUNS = st.lists(st.tuples(TEXTS, st.sampled_from(STYLES)), max_size=3)
FRAMES = st.builds(Frame, st.integers(0, 5), st.integers(0, HEIGHT - 1), RUNS)


@pytest.mark.slow
@given(st.lists(FRAMES, max_size=8))
def test_differences_look_like_whole_frames(frames: list[Frame]) -> None:
    cells = ScreenDiff()
    whole = pyte.Screen(WIDTH, HEIGHT)
    differing = pyte.Screen(WIDTH, HEIGHT)
    for frame in frames:
        pyte.Stream(whole).feed(whole_frame(frame))
        pyte.Stream(differing).feed(difference(cells, frame))
    assert differing.buffer == whole.buffer


@pytest.mark.slow
@given(st.lists(FRAMES, max_size=8))
def test_a_frame_that_is_there_already_is_not_written(frames: list[Frame]) -> None:
    cells = ScreenDiff()
    for frame in frames:
        difference(cells, frame)
        assert difference(cells, frame) == ""


CUTS = st.sets(st.integers(1, WIDTH - 1), max_size=3).map(sorted)


@given(CUTS, st.integers(0, WIDTH - 1), st.integers(1, WIDTH))
def test_of_a_line_that_lies_in_pieces_the_changed_part_is_written(
    cuts: list[int], low: int, width: int
) -> None:
    high = min(low + width, WIDTH)
    edges = [0, *cuts, WIDTH]
    pieces = {
        start: Strip([Segment("b" * (end - start), Style.null())])
        for start, end in pairwise(edges)
    }
    terminal = pyte.Screen(WIDTH, HEIGHT)
    cells = ScreenDiff()
    pyte.Stream(terminal).feed(difference(cells, plain("a" * WIDTH)))
    changed = ChopsUpdate([pieces], [(0, low, high)], [edges[1:]])
    pyte.Stream(terminal).feed(difference(cells, changed))
    wanted = "a" * low + "b" * (high - low) + "a" * (WIDTH - high)
    assert terminal.display[0] == wanted


def test_only_the_cells_that_differ_are_written() -> None:
    cells = ScreenDiff()
    difference(cells, plain("op 40 of 151"))
    assert difference(cells, plain("op 41 of 151")) == "\x1b[1;5H1"


def test_a_short_gap_is_written_again_and_a_long_one_is_moved_over() -> None:
    cells = ScreenDiff()
    difference(cells, plain("a...a....a"))
    assert difference(cells, plain("b...b....b")) == "\x1b[1;1Hb...b\x1b[4Cb"


def test_a_wide_character_is_written_whole() -> None:
    cells = ScreenDiff()
    difference(cells, plain("ab界"))
    assert difference(cells, plain("a界b")) == "\x1b[1;2H界b"


def test_all_runs_of_a_style_are_written_before_the_next_style() -> None:
    bold = Style(bold=True)
    null = Style.null()
    frame = Frame(0, 0, [("a", bold), ("b", null), ("c", bold)])
    written = difference(ScreenDiff(), frame)
    assert written.count("\x1b[1m") == 1
    assert written.index("a") < written.index("c") < written.index("b")


def test_what_is_forgotten_is_written_again() -> None:
    cells = ScreenDiff()
    first = difference(cells, plain("text"))
    cells.forget()
    assert difference(cells, plain("text")) == first


# -- cells of a text ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("ab", ["a", "b"]),
        ("─▁⣿", ["─", "▁", "⣿"]),
        ("a界b", ["a", "界", "", "b"]),
        ("e\u0301x", ["e\u0301", "x"]),
        ("界\u0301x", ["界\u0301", "", "x"]),
        ("\u0301", []),
        ("", []),
    ],
)
def test_a_text_has_so_many_cells(text: str, cells: list[str]) -> None:
    assert cells_of(text) == cells


@given(st.text(max_size=6))
def test_a_text_has_as_many_cells_as_rich_counts(text: str) -> None:
    if text.isprintable():
        assert len(cells_of(text)) == cell_len(text)


# -- styles ------------------------------------------------------------------------

RED = Ink(frozenset(), "31", "49")
BOLD = Ink(frozenset({(1, 22)}), "39", "49")
DIM_BOLD = Ink(frozenset({(1, 22), (2, 22)}), "39", "49")


@pytest.mark.parametrize(
    ("before", "after", "sequence"),
    [
        (PLAIN, PLAIN, ""),
        (PLAIN, RED, "\x1b[31m"),
        (RED, PLAIN, "\x1b[m"),
        (PLAIN, BOLD, "\x1b[1m"),
        (DIM_BOLD, BOLD, "\x1b[;1m"),  # what ends dim ends bold too
        (BOLD, RED, "\x1b[;31m"),
    ],
)
def test_an_ink_is_changed_by_the_shortest_sequence(before, after, sequence) -> None:
    assert sgr_change(before, after) == sequence


def test_a_terminal_without_colours_has_one_ink() -> None:
    assert ink_of(Style(bold=True, color="red"), None) == PLAIN


def test_colours_are_those_that_the_terminal_has() -> None:
    style = Style(color="#ff0000", bgcolor="#000000")
    assert ink_of(style, ColorSystem.STANDARD) == Ink(frozenset(), "31", "40")
    assert ink_of(style, ColorSystem.EIGHT_BIT) == Ink(
        frozenset(), "38;5;196", "48;5;16"
    )
    assert ink_of(style, ColorSystem.TRUECOLOR) == Ink(
        frozenset(), "38;2;255;0;0", "48;2;0;0;0"
    )

"""Rows of slices: names, edges, what covers what, bars, brackets without colours."""

from __future__ import annotations

import numpy as np
import pytest

from kernbench.replay.time.slices import Slice
from tui.draw import ASCII, UNICODE, Glyphs, without_colours
from tui.panes.axis import Axis
from tui.panes.slices import Marks, Pointed, Row, duration_text, legend, slice_text

NONE = Pointed()


def row(columns: int = 20, glyphs: Glyphs = UNICODE, time: float | None = None) -> Row:
    """A row of cells of 10 ns."""
    return Row(Axis(0.0, 10.0 * columns, 10, columns, time, glyphs))


def text(drawn: Row) -> str:
    return "".join(text for text, _ in drawn.line)


def gemm(op: int, t0: float, t1: float, name: str = "GEMM 0,0,0") -> Slice:
    return Slice(op, t0, t1, "G", op & 1, name)


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (254, "254 ns"),
        (5, "5 ns"),
        (1234, "1.23 us"),
        (25.71, "25.7 ns"),
        (4e6, "4 ms"),
    ],
)
def test_a_duration_has_three_digits(ns, said):
    assert duration_text(ns) == said


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (17, "GEMM 0,0,0 254 ns"),
        (16, "GEMM 0,0,0"),
        (10, "GEMM 0,0,0"),
        (9, "0,0,0"),
        (5, "0,0,0"),
        (4, "0,0…"),
        (2, ""),
    ],
)
def test_a_slice_says_what_fits(room, said):
    assert slice_text("GEMM 0,0,0", 254.0, room, UNICODE) == said


def test_a_name_that_does_not_fit_ends_in_an_ellipsis():
    assert slice_text("x[0:1024]", 10.0, 6, UNICODE) == "x[0:1…"
    assert slice_text("x[0:1024]", 10.0, 6, ASCII) == "x[0:1~"


def test_a_slice_has_an_edge_and_its_name_and_neighbours_two_shades():
    drawn = row(30)
    drawn.add_slices([gemm(2, 10, 150), gemm(3, 150, 290)], NONE)
    assert text(drawn) == " ▏GEMM 0,0,0   ▏GEMM 0,0,0    "
    styles = [style for _, style in drawn.line]
    assert styles == ["", "G<", "G", "G2<", "G2", ""]


def test_no_letter_is_repeated_over_the_cells_of_a_slice():
    drawn = row(60)
    drawn.add_bars("G" * 60, np.ones(60), [gemm(2, 0, 600)])
    drawn.add_slices([gemm(2, 0, 600)], NONE)
    assert text(drawn).replace("▏", "").strip() == "GEMM 0,0,0 600 ns"


def test_a_slice_ends_within_a_cell():
    drawn = row(10)
    drawn.add_slices([gemm(0, 0, 54, "")], NONE)
    assert text(drawn) == "▏    ▍    "
    assert drawn.line[2] == ("▍", "G>")


def test_what_is_too_short_is_a_bar_as_high_as_its_share_is_busy():
    drawn = row(6)
    drawn.add_bars("GGMM  ", np.array([1.0, 0.5, 0.01, 0.9, 0.0, 0.0]), [])
    assert text(drawn) == "█▄▁█  "
    assert [style for _, style in drawn.line] == ["G2>", "M2>", ""]


def test_what_a_slice_shows_has_no_bar_beside_it():
    drawn = row(6)
    busy = np.array([1.0, 1.0, 0.4, 0.0, 0.0, 0.0])
    slices = [gemm(0, 0, 24, "")]
    drawn.add_bars("GGG   ", busy, slices)
    drawn.add_slices(slices, NONE)
    assert text(drawn) == "▏ ▍   "


def test_a_later_slice_covers_the_rest_of_an_earlier_but_no_name_is_cut_by_it():
    drawn = row(24)
    drawn.add_slices([gemm(0, 0, 240, "a 0,0,0"), gemm(1, 60, 240, "b 0,0,1")], NONE)
    assert text(drawn) == "▏0,0,0▏b 0,0,1 180 ns   "


def test_the_cursors_slice_is_covered_by_nothing_and_has_thick_ends():
    drawn = row(24)
    slices = [gemm(0, 0, 160, "a 0,0,0"), gemm(1, 60, 240, "b 0,0,1")]
    drawn.add_slices(slices, Pointed(0))
    assert text(drawn) == "▌a 0,0,0 160 ns▐b 0,0,1 "
    assert drawn.line[0][1] == "G*"
    linked = row(24)
    linked.add_slices(slices, Pointed(-1, frozenset({0})))
    assert text(linked) == "▎a 0,0,0 160 ns▕b 0,0,1 "


def test_what_began_before_the_window_has_no_edge():
    drawn = row(12)
    drawn.add_slices([gemm(0, -50, 120, "exp")], NONE)
    assert text(drawn) == "exp 170 ns  "


def test_without_colours_a_slice_stands_in_brackets():
    plain = without_colours(UNICODE)
    drawn = row(40, plain)
    slices = [gemm(0, 0, 120), gemm(1, 120, 240), gemm(2, 240, 360)]
    drawn.add_slices(slices, Pointed(1, frozenset({2})))
    assert text(drawn) == "[GEMM 0,0,0]{GEMM 0,0,0}<GEMM 0,0,0>    "


def test_without_colours_a_bar_begins_with_the_letter_of_its_class():
    drawn = row(6, without_colours(UNICODE))
    drawn.add_bars("GGGMM ", np.array([1.0, 1.0, 1.0, 0.5, 0.5, 0.0]), [])
    assert text(drawn) == "G██M▄ "


def test_what_a_view_marks_is_alarm_or_all_else_steps_back():
    hits = np.array([True] * 10 + [False] * 10)
    slices = [gemm(0, 0, 100), gemm(2, 100, 200)]
    wrong = row(20)
    wrong.add_slices(slices, NONE, Marks(hits, wrong=True))
    assert [style for _, style in wrong.line] == ["bad<", "bad", "G<", "G"]
    path = row(20)
    path.add_slices(slices, NONE, Marks(hits, wrong=False))
    assert [style for _, style in path.line] == ["G<", "G", "off<", "off"]
    plain = row(20, without_colours(UNICODE))
    plain.add_slices(slices, NONE, Marks(hits, wrong=True))
    assert text(plain) == "!0,0,0   ![0,0,0   ]"


def test_marked_cells_without_a_slice_carry_a_sign():
    hits = np.array([True, True, False, False])
    busy = np.array([1.0, 0.0, 1.0, 0.0])
    wrong = row(4)
    wrong.add_bars("G M ", busy, [])
    wrong.add_marks(Marks(hits, wrong=True))
    assert text(wrong) == "!!█ "
    path = row(4)
    path.add_bars("G M ", busy, [])
    path.add_marks(Marks(hits, wrong=False))
    assert text(path) == "█#█ "
    assert path.line[2] == ("█", "rule")


def test_the_cursor_is_a_line_where_no_text_is():
    on_paper = row(10, time=45.0)
    on_paper.add_cursor()
    assert on_paper.line[1] == ("│", "cursor")
    on_text = row(12, time=35.0)
    on_text.add_slices([gemm(0, 0, 120, "exp")], NONE)
    on_text.add_cursor()
    assert "│" not in text(on_text)
    beside = row(14, time=115.0)
    beside.add_slices([gemm(0, 0, 140, "e")], NONE)
    beside.add_cursor()
    assert ("│", "G<") in beside.line


def test_what_carries_bytes_is_hot_where_it_is_busy_and_waited_for():
    drawn = row(4)
    busy = np.array([1.0, 0.8, 0.2, 0.0])
    drawn.add_shares(busy, np.array([0.0, 0.7, 0.9, 1.0]))
    assert drawn.line == [("█", "busy"), ("▇", "hot"), ("▂", "busy"), (" ", "")]


def test_without_colours_a_letter_says_where_it_is_waited_for():
    drawn = row(5, without_colours(UNICODE))
    busy = np.array([1.0, 0.8, 0.9, 0.2, 0.7])
    drawn.add_shares(busy, np.array([0.0, 0.7, 0.9, 1.0, 1.0]))
    assert text(drawn) == "█w█▂w"
    line = legend("", without_colours(UNICODE), 40, hot=True)
    assert ("w", "hot") in line


def test_a_row_in_which_nothing_happens_says_so():
    drawn = row(10)
    drawn.say_idle()
    assert text(drawn).strip() == "idle"


def test_the_name_of_the_cursors_slice_matters_more_than_its_end():
    drawn = row(10)
    drawn.add_slices([Slice(0, 0, 40, "M", 0, "sum")], Pointed(0))
    assert text(drawn) == "▌sum      "


def test_a_cut_name_keeps_its_ellipsis_in_the_cursors_slice():
    drawn = row()
    drawn.add_slices([gemm(7, 0, 60, "x[0:1024]")], Pointed(7))
    assert text(drawn).rstrip().endswith("\N{HORIZONTAL ELLIPSIS}")

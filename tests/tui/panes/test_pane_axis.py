"""The time axis: ticks, arrows to a cursor out of view, the minimap, runs of cells."""

from __future__ import annotations

import numpy as np
import pytest

from tui.draw import UNICODE
from tui.panes.axis import Axis, minimap, ruler

BACK = UNICODE.heads[3]
ONWARD = UNICODE.heads[1]


def axis(t0: float, t1: float, time: float | None = None, columns: int = 97) -> Axis:
    return Axis(t0, t1, 23, columns, time, UNICODE)


def text(line) -> str:
    return "".join(run for run, _ in line)


@pytest.mark.parametrize(
    ("t0", "t1", "unit"),
    [(0.0, 400.0, "ns"), (8100.0, 8200.0, "us"), (0.0, 3e6, "ms")],
)
def test_the_ruler_is_in_the_unit_of_its_times(t0, t1, unit):
    ticks = text(ruler(axis(t0, t1))).replace(UNICODE.bar, " ").split()
    assert len(ticks) > 3
    assert {tick.lstrip("-0123456789.") for tick in ticks} == {unit}


def test_no_number_of_the_ruler_is_cut():
    for start in range(0, 200, 7):
        line = text(ruler(axis(8000.0 + start, 8700.0 + start)))
        assert len(line) == 23 + 97
        ticks = line.split()
        assert all(tick.endswith("s") for tick in ticks[:-1])
        assert line.rstrip()[-1] in "s│"


@pytest.mark.parametrize(
    ("time", "first", "last"), [(10.0, BACK, ""), (500.0, "", ONWARD), (150.0, "", "")]
)
def test_an_arrow_points_to_a_cursor_out_of_view(time, first, last):
    line = ruler(axis(100.0, 200.0, time))
    assert line[0][0].strip() == first
    assert line[-1][0] == last
    assert len(text(line)) == 23 + 97


def test_before_the_first_op_no_arrow_is_needed():
    line = text(ruler(axis(100.0, 200.0)))
    assert BACK not in line
    assert ONWARD not in line


@pytest.mark.parametrize(
    ("t0", "t1", "time", "shown"),
    [
        (0.0, 1000.0, None, "━" * 11),
        (0.0, 1000.0, 500.0, "━━━━━V━━━━━"),
        (500.0, 600.0, 0.0, "V────━━────"),
        (-20.0, 1020.0, 1000.0, "━" * 10 + "V"),
        (910.0, 1000.0, 1000.0, "─" * 10 + "V"),
    ],
)
def test_the_minimap_has_the_window_and_the_cursor_in_the_whole_run(
    t0, t1, time, shown
):
    line = text(minimap(axis(t0, t1, time, columns=11), 1000.0, None))
    assert line[:23].strip() == "whole run"
    assert line[23:] == shown


def test_the_minimap_is_as_high_as_the_machine_is_busy():
    busy = np.array([0.0, 2.0, 8.0, 4.0, 0.1])
    line = minimap(axis(0.0, 500.0, 700.0, columns=5), 1000.0, busy)
    assert text(line)[23:] == "─▃█V▁"
    assert [style for _, style in line[1:]] == [
        "flight",
        "flight",
        "flight",
        "mark",
        "rule",
    ]


@pytest.mark.parametrize("cell", range(5))
def test_the_cursor_stands_in_the_cell_that_has_its_time(cell):
    busy = np.zeros(5)
    busy[cell] = 1.0
    line = minimap(axis(0.0, 1000.0, 200.0 * cell + 150.0, columns=5), 1000.0, busy)
    assert text(line)[23:] == "".join("V" if i == cell else "─" for i in range(5))


def test_a_cursor_that_is_not_in_view_is_in_no_cell():
    assert axis(0.0, 10.0, 10.0).cursor_cell is None
    assert axis(0.0, 10.0, None).cursor_cell is None
    assert axis(0.0, 10.0, 9.9999, columns=10).cursor_cell == 9


@pytest.mark.parametrize(
    ("span", "columns", "said"),
    [
        (725.05, 57, "725.05ns shown, 12.72ns a cell"),
        (0.5, 100, "0.50ns shown, 0.005ns a cell"),
    ],
)
def test_it_says_how_long_the_window_and_a_cell_are(span, columns, said):
    assert axis(0.0, span, columns=columns).summary == said


@pytest.mark.parametrize("time", [-1e6, -0.5, 2e9])
def test_a_cursor_before_or_after_the_run_is_at_that_end_of_the_minimap(time):
    line = text(minimap(axis(0.0, 1000.0, time, columns=11), 1000.0, None))
    cells = line[23:]
    assert len(cells) == 11
    assert cells.index("V") == (0 if time < 0 else 10)

"""The Diff pane: what was expected, as numbers and heat; outputs, first divergence, hazards."""

from __future__ import annotations

import pytest
from bench import PaneBench
from pictures import LOWER_RIGHT, MAXIMISED, MIDDLE, SMALL, Region, filled, shown

from tui.panes.base import ChangeView
from tui.panes.diff import DiffPane

VIEWS = DiffPane.views
FAULTS = {
    "hazards": ("fault_missing_wait", 3),
    "first divergence": ("fault_overflow", 5),
    "outputs": ("fault_wrong_root", 9),
}


def diff(
    trace: str = "matmul", op: int = 17, region: Region = SMALL, view: str = "numbers"
) -> PaneBench:
    """The pane on a trace at an op, in a view."""
    bench = PaneBench(DiffPane, trace, op, region.width, region.height)
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    return bench


# -- as the screen shows it -----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LOWER_RIGHT)],
)
def test_it_shows_what_it_showed_at_the_first_op(size: str, region: Region) -> None:
    bench = diff("matmul", 16, region)
    bench.rest()
    assert filled(bench.lines, region) == shown(f"diff-{size}-before", region)


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LOWER_RIGHT)],
)
def test_it_shows_what_it_showed_after_moves(size: str, region: Region) -> None:
    bench = diff("matmul", 16, region)
    bench.goto(151)
    bench.goto(143)
    bench.rest()
    assert filled(bench.lines, region) == shown(f"diff-{size}-after", region)


@pytest.mark.parametrize("view", VIEWS[1:])
def test_it_shows_what_it_showed_in_its_other_views(view: str) -> None:
    trace, op = FAULTS.get(view, ("matmul", 79))
    bench = diff(trace, op, MAXIMISED, view)
    bench.rest()
    name = f"diff-{view}-80x24".replace(" ", "-")
    assert filled(bench.lines, MAXIMISED) == shown(name, MAXIMISED)

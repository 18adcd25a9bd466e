"""The Ops pane: the op log around the cursor, a filter, and all about one op."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import PaneBench
from pictures import MIDDLE, SMALL, Region, filled, place_of, shown

from kernbench.replay.commands import GOTO
from kernbench.replay.inner_commands import FITTING, OP_ROWS
from kernbench.runtime_api import run_bench
from kernbench.trace import TraceWriter
from tui.draw import ASCII
from tui.panes.base import Back, Click, Do, Enter, Moved, Pan, Scroll
from tui.panes.ops import Filter, OpsPane

LARGE = place_of("ops", 200, 50)
"""Its own place at 200x50."""
SIZES = [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)]
LAST = 151
FAR = 10**9
SMALL_ROOM = SMALL.height - 1
"""Rows below the heading."""


def ops(op: int = 40, region: Region = SMALL) -> PaneBench:
    """The pane on the matmul at an op."""
    bench = PaneBench(OpsPane, "matmul", op, region.width, region.height)
    bench.frame = replace(bench.frame, details_beside=region in (MIDDLE, LARGE))
    bench.state = bench.pane.start()
    bench.send(Moved())
    return bench


def listed(bench: PaneBench) -> list[int]:
    """The ops in view, where there are no details below them."""
    rows = [line[2:5] for line in bench.lines[1:]]
    return [int(row) for row in rows if row.strip()]


def gone_to(bench: PaneBench) -> int:
    """The op that the last event went to."""
    (effect,) = bench.effects
    assert isinstance(effect, Do)
    assert effect.call.command is GOTO
    op: int = effect.call.args.op
    return op


def fitting(bench: PaneBench, expr: str) -> list[int]:
    """The ops that fit an expression."""
    found: list[int] = bench.index.fitting(expr).tolist()
    return found


# -- as the screen shows it -----------------------------------------------------------


@pytest.mark.parametrize(("size", "region"), SIZES)
def test_it_shows_what_it_showed_at_the_first_op(size: str, region: Region) -> None:
    bench = ops(16, region)
    assert filled(bench.lines, region) == shown(f"ops-{size}-before", region)


@pytest.mark.parametrize(("size", "region"), SIZES[::2])
def test_it_shows_what_it_showed_after_moves(size: str, region: Region) -> None:
    bench = ops(16, region)
    bench.goto(LAST)
    bench.goto(143)
    assert filled(bench.lines, region) == shown(f"ops-{size}-after", region)


@pytest.mark.parametrize(("size", "region"), SIZES)
def test_ascii_needs_no_other_characters(size: str, region: Region) -> None:
    bench = PaneBench(OpsPane, "matmul", 143, region.width, region.height, ASCII)
    assert bench.text.isascii()


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 1), (76, 1), (80, 2)])
def test_the_smallest_sizes_are_drawn(size: tuple[int, int]) -> None:
    bench = PaneBench(OpsPane, "matmul", 40, *size)
    assert bench.lines


@pytest.mark.parametrize(("size", "region"), SIZES)
def test_how_long_ops_took_is_listed_at_every_size(size: str, region: Region) -> None:
    """At 120x40 that column was missing."""
    assert " takes " in ops(16, region).lines[0]
    assert "591.58ns" in ops(16, region).text


# -- the list -------------------------------------------------------------------------


def test_the_cursors_op_and_those_in_service_are_marked() -> None:
    bench = ops(40)
    rows = {int(line[2:5]): line[0] for line in bench.lines[1:]}
    assert rows[40] == ">"
    flying = set(bench.index.ops.in_flight(40)) - {40}
    assert {op for op, mark in rows.items() if mark == "*"} == flying & rows.keys()


def test_the_list_stays_while_the_cursor_is_in_it_then_it_jumps() -> None:
    bench = ops(40)
    first = listed(bench)[0]
    bench.goto(41)
    assert listed(bench)[0] == first
    bench.goto(first + SMALL_ROOM)
    assert listed(bench)[0] == first + SMALL_ROOM - SMALL_ROOM // 2


def test_a_row_that_is_picked_is_gone_to_by_enter() -> None:
    bench = ops(40)
    for by in (1, 1, -1):
        bench.send(Scroll(by))
    bench.send(Enter())
    assert gone_to(bench) == 41


def test_home_and_end_pick_the_first_and_the_last_op() -> None:
    bench = ops(40)
    for by, op in ((FAR, LAST), (-FAR, 0)):
        bench.send(Scroll(by))
        bench.send(Enter())
        assert gone_to(bench) == op


def test_a_page_is_what_is_in_view_but_a_row() -> None:
    bench = ops(0)
    for by, op in ((1, SMALL_ROOM - 1), (-1, 0)):
        bench.send(Scroll(by, pages=True))
        bench.send(Enter())
        assert gone_to(bench) == op


def test_a_click_on_a_row_goes_there() -> None:
    bench = ops(40)
    bench.send(Click(10, 1 + listed(bench).index(41)))
    assert gone_to(bench) == 41


@pytest.mark.parametrize("y", [-1, 0, SMALL.height])
def test_a_click_beside_the_rows_changes_nothing(y: int) -> None:
    bench = ops(40)
    state = bench.state
    assert bench.send(Click(10, y))
    assert bench.effects == ()
    assert bench.state == state


def test_a_move_lets_go_of_the_picked_row() -> None:
    bench = ops(40)
    bench.send(Scroll(20))
    bench.goto(41)
    assert bench.state.rows.pick is None
    assert bench.state.rows.at == 41


def test_a_picked_row_stays_when_the_pane_is_resized() -> None:
    bench = ops(40)
    bench.send(Scroll(1))
    for size in ((60, 12), (5, 2), (46, 46), (36, 36)):
        bench.resize(*size)
    assert bench.state.rows.pick == 41


def test_only_the_rows_in_view_are_asked_for() -> None:
    bench = ops(40)
    (query,) = [q for q in bench.answers.asked if q.command == OP_ROWS.name]
    assert len(query.args.ops) == SMALL_ROOM


def test_it_has_no_use_for_panning() -> None:
    assert not ops().send(Pan(1))


# -- details --------------------------------------------------------------------------


def test_before_the_first_op_it_names_the_key_that_fills_it() -> None:
    bench = ops(-1)
    assert " before the first op: s steps to it" in bench.text


def test_a_trace_without_ops_says_so(tmp_path: Path, one_cube: Any) -> None:
    path = tmp_path / "none.msgpack"
    writer = TraceWriter(path)
    writer.begin({}, one_cube)
    writer.close()
    bench = PaneBench(OpsPane, path, -1)
    assert " this trace has no ops" in bench.text
    assert "steps" not in bench.text
    for event in (Scroll(1), Enter(), Click(10, 1), Scroll(FAR), Enter()):
        bench.send(event)
        assert bench.effects == ()


def test_details_that_do_not_fit_name_the_commands_that_show_all() -> None:
    assert ops(143).lines[-1].endswith("… :op and :source show all")


# -- the filter -----------------------------------------------------------------------


def test_a_filter_leaves_the_ops_that_fit() -> None:
    bench = ops(40)
    bench.send(Filter("kind=gemm"))
    fits = fitting(bench, "kind=gemm")
    assert f"{len(fits)} fit kind=gemm" in bench.lines[0]
    assert listed(bench) == fits[: len(listed(bench))]
    assert "host_write" not in bench.text


def test_enter_goes_to_the_op_of_a_filtered_row() -> None:
    bench = ops(16)
    bench.send(Filter("kind=gemm"))
    fits = fitting(bench, "kind=gemm")
    bench.send(Scroll(-FAR))
    bench.send(Scroll(2))
    bench.send(Enter())
    assert gone_to(bench) == fits[2]
    bench.send(Scroll(FAR))
    bench.send(Enter())
    assert gone_to(bench) == fits[-1]


def test_a_filtered_list_is_at_the_last_fitting_op_by_the_cursor() -> None:
    bench = ops(16)
    bench.send(Filter("kind=gemm"))
    fits = fitting(bench, "kind=gemm")
    bench.goto(fits[3] + 1)
    assert bench.state.rows.at == 3 + sum(fit == fits[3] + 1 for fit in fits)


def test_escape_shows_all_ops_again() -> None:
    bench = ops(16)
    bench.send(Filter("kind=gemm"))
    assert bench.send(Back())
    assert bench.state.where == ""
    assert "host_write" in bench.text


def test_escape_without_a_filter_is_for_somebody_else() -> None:
    assert not ops().send(Back())


def test_a_filter_that_nothing_fits_is_an_empty_list() -> None:
    bench = ops(16)
    bench.send(Filter("dur > 1s"))
    assert "0 fit dur > 1s" in bench.lines[0]
    for event in (Scroll(1), Enter(), Scroll(-1), Scroll(FAR), Enter(), Click(3, 1)):
        bench.send(event)
        assert bench.effects == ()


def test_while_the_ops_that_fit_are_looked_for_it_says_so() -> None:
    bench = ops(16)
    bench.answers.held.add(FITTING.name)
    bench.send(Filter("kind=gemm"))
    assert bench.lines == [" computing fitting-ops: 50%  Esc cancels"]
    bench.send(Enter())
    assert bench.effects == ()


@pytest.mark.slow
def test_ops_are_numbered_with_separators_in_columns_of_one_width(
    tmp_path: Path,
) -> None:
    path = tmp_path / "long.msgpack"
    params = {"m": 128, "n": 64, "block": 1}
    run_bench("layernorm", params=params, trace=path)
    bench = PaneBench(OpsPane, path, 1000, 46, 12)
    rows = [line for line in bench.lines if "us " in line][:6]
    assert any("   999 " in row for row in rows)
    assert any(" 1,000 " in row for row in rows)
    assert len({row.index("us ") for row in rows}) == 1

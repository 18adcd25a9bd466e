"""The desk: moves, links between panes, what is asked and drawn when, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any

import pytest
from desks import LARGE, MIDDLE, SIZES, SMALL, DeskBench, held, text_of

from kernbench.replay.commands import (
    GOTO,
    LINES,
    ROUTE,
    STALLS,
    STEP,
    WIDEN,
)
from kernbench.replay.inner_commands import CELLS, INDEXED_ROWS, JUDGEMENT, TRAFFIC
from kernbench.replay.query import Query
from kernbench.trace import TraceWriter
from tui.__main__ import open_session
from tui.desk import KEY_S, Drawn
from tui.panes import PANES
from tui.panes.base import ChangeView, Enter, Picture, Scroll
from tui.panes.ops import Filter
from tui.panes.timeline import Zoom
from tui.runner import Urgency

FOLLOWS_FOCUS = {row.key for row in PANES if row.follows_focus}
READ = 120
"""A DMA read of the matmul, whose path crosses a router."""


def ops_of(bench: DeskBench, component: str) -> list[int]:
    """The ops that a component serves, in order."""
    node = bench.index.trace.node_index[component]
    found: list[int] = bench.index.op_index.ops_of(node).tolist()
    return found


def pictures(bench: DeskBench) -> dict[str, Picture]:
    """What the panes in view show at rest, once they have all of their answers."""
    bench.rest()
    return pictures_of(bench.settle())


def pictures_of(found: dict[str, Drawn]) -> dict[str, Picture]:
    """What panes show, by key."""
    return {key: drawn.picture for key, drawn in found.items()}


def changed(before: dict[str, Picture], after: dict[str, Picture]) -> set[str]:
    """The panes that show another picture; one that was drawn anew is another."""
    return {key for key in after if after[key] is not before.get(key)}


def show_heat(bench: DeskBench) -> None:
    """Show how busy links are in the window of the timeline."""
    bench.send("route", ChangeView(-1))


# -- moves ----------------------------------------------------------------------------

SHOWN_AT_100 = {
    "timeline": "GEMM 0,0,0",
    "ops": "> 100",
    "tiles": "0,0,0",
    "memory": "op ",
    "route": "stays inside",
    "diff": "op 100 GEMM",
}


@pytest.mark.parametrize("key", SHOWN_AT_100)
@pytest.mark.parametrize("size", SIZES)
def test_every_pane_follows_the_cursor(size, key, desk_bench) -> None:
    bench = desk_bench("matmul", 16)
    bench.show(key, size)
    before = bench.text(key)
    bench.move(GOTO(op=100))
    assert SHOWN_AT_100[key] in bench.text(key)
    assert bench.text(key) != before


@pytest.mark.parametrize("row", PANES, ids=[row.key for row in PANES])
@pytest.mark.slow
def test_a_pane_that_comes_into_view_is_at_the_cursor(row, desk_bench) -> None:
    bench = desk_bench("matmul", 16, (50, 10))  # one pane
    # of the last PE: whatever was in view before, lists of engines are at their end
    op = ops_of(bench, "sip0.cube0.pe7.pe_gemm")[0]
    bench.show(next(other.key for other in PANES if other is not row))
    bench.move(GOTO(op=op))
    bench.show(row.key)
    other = desk_bench("matmul", op, (50, 10))
    other.show(row.key)
    assert bench.text(row.key) == other.text(row.key)


def test_a_row_that_was_picked_is_let_go_by_a_move_while_its_pane_is_hidden(
    desk_bench,
) -> None:
    bench = desk_bench("matmul", 16, SMALL)
    bench.settle()
    bench.send("ops", Scroll(50))
    bench.show("timeline")
    bench.move(STEP(n=1))
    bench.show("ops")
    bench.settle()
    assert bench.desk.states["ops"].rows.pick is None
    assert bench.desk.states["ops"].rows.at == 17


@pytest.mark.parametrize("key", [row.key for row in PANES])
def test_without_ops_no_pane_names_a_key_that_steps(
    key, tmp_path, one_cube, desk_bench
) -> None:
    path = tmp_path / "none.msgpack"
    writer = TraceWriter(path)
    writer.begin({}, one_cube)
    writer.close()
    bench = desk_bench(open_session(path, None), size=MIDDLE)
    bench.show(key, MIDDLE)
    text = bench.text(key)
    assert "steps" not in text
    if key in ("ops", "memory", "source"):
        assert " this trace has no ops" in text


@pytest.mark.slow
def test_a_move_that_leads_nowhere_leaves_every_pane_as_it_is(desk_bench) -> None:
    bench = desk_bench("matmul", 151, LARGE)
    bench.settle()
    bench.send("ops", Scroll(-3))
    states = dict(bench.desk.states)
    bench.move(STEP(n=1))
    assert bench.desk.states == states


def test_the_session_is_the_one_that_the_desk_was_given(desk_bench) -> None:
    bench = desk_bench("matmul", 16)
    bench.move(STEP(n=3))
    assert bench.replay.cursor == 19


@pytest.mark.slow
@pytest.mark.parametrize("sip", [0, 1])
def test_a_place_is_spelled_alike_in_timeline_ops_and_tiles(sip, desk_bench) -> None:
    bench = desk_bench("mlp_tp", size=LARGE)
    place = f"s{sip}c2.pe0"
    # the read of its last composite
    composite = ops_of(bench, f"sip{sip}.cube2.pe0.pe_scheduler")[-1]
    reads = ops_of(bench, f"sip{sip}.cube2.pe0.pe_dma")
    op = next(read for read in reads if read > composite)
    bench.move(GOTO(op=op))
    timeline = bench.text("timeline")
    assert f" {place.partition('.')[0]} " in timeline
    assert "> " in timeline
    assert "pe0.dma" in next(x for x in timeline.splitlines() if x.startswith(">"))
    (row,) = [x for x in bench.text("ops").splitlines() if x.startswith(f"> {op} ")]
    assert f" {place} DMA_READ" in row
    assert f" {place}: " in bench.text("tiles")


# -- links between panes --------------------------------------------------------------


@pytest.mark.slow
def test_zooming_changes_the_timeline_and_the_heat_of_its_window_alone(
    desk_bench,
) -> None:
    bench = desk_bench("matmul", READ, LARGE)
    show_heat(bench)
    before = pictures(bench)
    bench.send("timeline", Zoom(0.5))
    after = pictures(bench)
    assert changed(before, after) == {"timeline", "route"}
    assert text_of(after["route"]) != text_of(before["route"])


@pytest.mark.slow
def test_the_heat_is_that_of_the_window_that_follows_the_cursor(desk_bench) -> None:
    bench = desk_bench("matmul", READ, LARGE)
    show_heat(bench)
    for _ in range(4):
        bench.send("timeline", Zoom(0.5))
    before = bench.desk.window
    bench.move(GOTO(op=151))
    bench.settle()
    after = bench.desk.window
    assert after != before
    asked = [query.args for query in bench.runner.asked if query.command == "map-load"]
    assert (asked[-1].t0, asked[-1].t1) == after


@pytest.mark.slow
def test_the_focus_changes_what_follows_it_and_nothing_else(desk_bench) -> None:
    bench = desk_bench("matmul", READ, MIDDLE)
    for tab in FOLLOWS_FOCUS:
        bench.lay_out(MIDDLE, tab=tab)
        before = pictures(bench)
        bench.move(WIDEN(n=1))
        assert changed(before, pictures(bench)) == {tab}
        bench.move(WIDEN(n=-1))


@pytest.mark.slow
def test_a_filter_changes_the_list_of_ops_alone(desk_bench) -> None:
    bench = desk_bench("matmul", 16, LARGE)
    before = pictures(bench)
    bench.send("ops", Filter("kind = gemm"))
    assert changed(before, pictures(bench)) == {"ops"}


# -- titles ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", PANES, ids=[row.key for row in PANES])
def test_a_heading_has_number_title_and_any_view_but_the_first(row, desk_bench) -> None:
    bench = desk_bench()
    views = bench.desk.panes[row.key].views
    assert bench.desk.heading(row.key) == row.name
    for name in views[1:]:
        assert bench.desk.next_view(row.key) == name
        bench.send(row.key, ChangeView(1))
        assert bench.desk.heading(row.key) == f"{row.name}: {name}"
    if views:
        assert bench.desk.next_view(row.key) == views[0]
    else:
        assert bench.desk.next_view(row.key) == ""


def test_the_bytes_that_are_picked_in_a_pane_have_a_name(desk_bench) -> None:
    bench = desk_bench("matmul", size=SMALL)
    bench.move(GOTO(op=ops_of(bench, "sip0.cube0.pe4.pe_dma")[2]))
    bench.show("memory")
    bench.settle()
    assert bench.desk.place("memory") is None
    bench.send("memory", Scroll(1))
    assert bench.desk.place("memory") == "hbm 0x600008000:4096"
    bench.send("memory", ChangeView(1))
    bench.settle()
    assert bench.desk.place("memory") == "b[0,64]"
    assert bench.desk.place("ops") is None


# -- what is asked --------------------------------------------------------------------


def test_a_pane_that_is_not_in_view_asks_nothing(desk_bench) -> None:
    bench = desk_bench("matmul", 16, SMALL)
    bench.move(STEP(n=1))
    bench.rest()
    shown = {"cells", "indexed-rows", "in-service", "op", "op-rows", "source"}
    shown |= {"causes", "traffic", "traffic-cells"}
    for_later = {"executes-soon", "hazards", "lines"}
    assert bench.runner.commands_asked == shown | for_later
    assert {row.key for row in bench.desk.in_view} == {"timeline", "ops"}


def test_a_key_waits_for_no_more_than_its_time_in_all(desk_bench) -> None:
    with held(ROUTE):
        bench = desk_bench("matmul", READ, LARGE)
        drawn = bench.draw(Urgency.KEY)
    assert bench.runner.waits
    assert bench.runner.waits[0] <= KEY_S
    assert sorted(bench.runner.waits, reverse=True) == bench.runner.waits
    assert drawn["route"].waiting is not None


def test_all_panes_ask_at_once(desk_bench) -> None:
    bench = desk_bench("matmul", READ, LARGE)
    with held(ROUTE), held(CELLS):
        bench.draw(Urgency.KEY)
        running = {pending.query.command for pending in bench.runner.running()}
    assert {"route", "cells"} <= running


@pytest.mark.slow
def test_what_is_shown_is_asked_for_once(desk_bench) -> None:
    bench = desk_bench("matmul", READ, LARGE)
    bench.rest()
    bench.runner.asked.clear()
    bench.draw()
    assert bench.runner.asked == []


def test_a_pane_without_news_is_settled_and_asked_once(desk_bench, monkeypatch) -> None:
    """It was for each round of questions of the others, and where none had any."""
    with held(ROUTE):
        bench = desk_bench("matmul", READ, LARGE)
        bench.draw()
        pane = bench.desk.panes["route"]
        settled = Counted(pane.update)
        asked = Counted(pane.queries)
        monkeypatch.setattr(pane, "update", settled)
        monkeypatch.setattr(pane, "queries", asked)
        bench.send("timeline", Zoom(2.0))
        bench.draw(Urgency.KEY)
        assert (settled.calls, asked.calls) == (1, 1)


class Counted:
    """A method that counts how often it is called."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.calls = 0
        self._method = method

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self._method(*args)


@pytest.mark.slow
def test_nothing_is_computed_for_a_question_that_nobody_has_any_more(
    desk_bench,
) -> None:
    with held(ROUTE) as route:
        bench = desk_bench("matmul", READ, LARGE)
        bench.draw()
        assert route.begun.wait(10)
        bench.move(STEP(n=1))
        bench.draw()
        assert route.ended.wait(10)
        route.release()
        bench.settle()
    assert bench.runner.known(ROUTE.ask(READ)) is None
    assert bench.runner.known(ROUTE.ask(READ + 1)) is not None


def test_an_answer_that_was_given_up_ahead_is_asked_for_where_it_is_missing(
    desk_bench,
) -> None:
    with held(TRAFFIC) as traffic:
        bench = desk_bench("mlp_tp", 160, LARGE)
        session = bench.led_to(STEP(n=1))
        while bench.draw_ahead(session)["timeline"].waiting:
            sleep(0.001)
        assert traffic.begun.wait(10)
        bench.desk.runner.drop_ahead()
        assert traffic.ended.wait(10)
    bench.move(STEP(n=1))
    bench.settle()
    assert bench.runner.known(TRAFFIC.ask()) is not None


def test_what_the_screen_itself_waits_for_is_computed_though_no_pane_asks(
    desk_bench,
) -> None:
    own = STALLS.ask(pe="sip0.cube0.pe4")
    with held(STALLS) as stalls:
        bench = desk_bench("matmul", READ, SMALL)
        bench.runner.ask(own)
        assert stalls.begun.wait(10)
        bench.desk.draw(keep=[own])
        assert not stalls.ended.wait(0.02)
        bench.desk.draw()
        assert stalls.ended.wait(10)


@pytest.mark.slow
def test_rows_that_are_not_shown_any_more_are_not_looked_up(desk_bench) -> None:
    bench = desk_bench("mlp_tp", 160, LARGE)
    bench.settle()
    with held(CELLS) as cells:
        bench.send("timeline", Zoom(0.5))
        bench.draw()
        assert cells.begun.wait(10)
        bench.send("timeline", Scroll(10**9))
        bench.send("timeline", Enter())
        bench.draw()
        assert cells.ended.wait(10)
        cells.release()
        bench.settle()
    rows = {row for args in cells.given_up for row in args.rows}
    assert rows - set(cells_in_view(bench).args.rows)


def cells_in_view(bench: DeskBench) -> Query:
    """The question about the cells that the timeline shows."""
    found: Query = bench.desk.states["timeline"].cells
    return found


# -- late answers ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_pane_that_waits_keeps_no_other_waiting(desk_bench) -> None:
    with held(CELLS):
        bench = desk_bench("matmul", READ, LARGE)
        drawn = bench.settle_without("timeline")
        assert " computing timeline: " in text_of(drawn["timeline"].picture)


@pytest.mark.slow
def test_an_answer_that_has_come_is_drawn(desk_bench) -> None:
    with held(ROUTE) as route:
        bench = desk_bench("matmul", READ, LARGE)
        bench.draw()
        route.release()
        assert text_of(bench.settle()["route"].picture).startswith(" SIP 0 cube 0: ")


@pytest.mark.slow
def test_a_picture_made_without_an_answer_is_made_again_with_it(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    with held(JUDGEMENT):
        without = pictures_of(bench.settle())
    after = pictures(bench)
    assert changed(without, after) == {"diff"}
    assert " local error ..." in text_of(without["diff"])
    assert ", rounding explains " in text_of(after["diff"])


def test_an_answer_that_comes_while_a_pane_is_drawn_is_drawn_the_next_time(
    monkeypatch, desk_bench
) -> None:
    """The pane was scrolled for what was there before."""
    bench = desk_bench("matmul", READ, SMALL)
    bench.show("stats")
    bench.desk.send("stats", ChangeView(1))
    query = STALLS.ask(pe=bench.index.ops.focus(READ, 0)[1])
    with held(STALLS) as stalls:
        plain = bench.runner.ask
        asked: list[Query] = []

        def ask(wanted: Query, urgency: Urgency = Urgency.VISIBLE) -> Any:
            asked.append(wanted)
            if wanted == query and asked.count(query) == 2:
                stalls.release()
                bench.wait()
            return plain(wanted, urgency)

        monkeypatch.setattr(bench.runner, "ask", ask)
        first = bench.draw()["stats"]
    assert bench.runner.known(query) is not None
    assert first.waiting is not None
    assert query in first.missed
    assert text_of(bench.draw()["stats"].picture).startswith(" sip0.cube0.pe")


# -- what is kept ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_there_and_back_draws_nothing_anew(desk_bench) -> None:
    bench = desk_bench("matmul", READ, LARGE)
    shown = []
    for by in (-1, 1, -1, 1):
        bench.move(STEP(n=by))
        shown.append(pictures(bench))
    bench.runner.asked.clear()
    for by, before in zip((-1, 1), shown[2:], strict=True):
        bench.move(STEP(n=by))
        assert changed(before, pictures_of(bench.draw())) == set()
    assert bench.runner.asked == []


@pytest.mark.slow
def test_a_failed_answer_is_drawn_until_it_is_forgotten(desk_bench) -> None:
    with held(ROUTE) as route:
        bench = desk_bench("matmul", READ, LARGE)
        bench.draw()
        assert route.begun.wait(10)
        bench.runner.cancel()
        bench.wait()
        text = text_of(bench.settle()["route"].picture)
        assert text == " routes was cancelled at 34%"
        route.release()
        assert text_of(bench.settle()["route"].picture) == text
        bench.desk.forget()
        assert text_of(bench.settle()["route"].picture).startswith(" SIP 0 cube 0: ")


# -- at rest --------------------------------------------------------------------------


@pytest.mark.slow
def test_what_panes_wish_for_is_computed_at_rest_for_nobody(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    with held(JUDGEMENT) as judgement, held(INDEXED_ROWS) as indexed:
        bench.desk.rest()
        assert judgement.begun.wait(10)
        assert indexed.begun.wait(10)
        assert not bench.runner.busy_ahead
        assert bench.runner.running() == []


@pytest.mark.slow
def test_what_is_computed_at_rest_gives_way_to_a_key(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    with held(JUDGEMENT) as judgement:
        bench.desk.rest()
        assert judgement.begun.wait(10)
        bench.move(STEP(n=1))
        bench.settle()
        assert judgement.ended.is_set()


def test_panes_that_are_not_in_view_wish_for_nothing(desk_bench) -> None:
    bench = desk_bench("matmul", 40, SMALL)
    bench.settle()
    bench.runner.asked.clear()
    bench.desk.rest()
    of_status = {"executes-soon", "hazards"}
    wished = bench.runner.commands_asked - of_status
    assert wished <= {"indexed-rows", "traffic-cells", "lines"}


def test_the_times_of_the_lines_of_all_pes_are_made_at_rest(desk_bench) -> None:
    bench = desk_bench("matmul", 40, SMALL)
    bench.settle()
    with held(LINES) as lines:
        bench.desk.rest()
        assert lines.begun.wait(10)
        assert bench.runner.running() == []

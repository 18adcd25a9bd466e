"""What is drawn ahead is what the next key would draw, and costs that key nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import monotonic, sleep
from typing import Any

import pytest
from desks import LARGE, MIDDLE, SMALL, DeskBench, held, text_of, waiting
from pilots import fast_keys, settled

from kernbench.replay.commands import (
    CAUSE,
    EFFECT,
    GOTO,
    LAST,
    NEXT,
    ROUTE,
    STEP,
    Call,
)
from kernbench.replay.inner_commands import CELLS, INDEXED_ROWS
from tui.app import KernbenchApp
from tui.desk import Drawn
from tui.panes.base import ChangeView, Picture, Scroll
from tui.panes.timeline import Zoom
from tui.prefetch import likely, prefetch
from tui.runner import Urgency

ON = STEP(n=1)
BACK = STEP(n=-1)
KEYS = [*"sssSsnnNtT.,iIfF5j+vsS4k-v6vunzsz3shv7s8V"]
LIMIT_S = 30.0
"""For anything that is waited for."""
NAMES = {".": "full_stop", ",": "comma", "+": "plus", "-": "minus"}


class Strips:
    """In place of the views of all panes: notes the pictures that come next."""

    def __init__(self) -> None:
        self.prepared: list[Picture] = []

    def __getitem__(self, key: str) -> Strips:
        return self

    def prepare(self, picture: Picture) -> None:
        """As ``PaneView.prepare``."""
        self.prepared.append(picture)


def rest(
    bench: DeskBench,
    last: Call = ON,
    is_quiet: Callable[[], bool] = lambda: True,
) -> Strips:
    """Press nothing after a move, as long as it is quiet; what was made ready."""
    strips = Strips()
    views: Any = strips
    asyncio.run(prefetch(bench.desk, last, views, is_quiet))
    return strips


def pictures_of(found: dict[str, Drawn]) -> list[Picture]:
    return [drawn.picture for drawn in found.values()]


# -- which moves --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (BACK, [BACK, ON, NEXT(n=1), NEXT(n=-1)]),
        (NEXT(n=-1), [NEXT(n=-1), ON, NEXT(n=1), BACK]),
        (CAUSE(), [CAUSE(), ON, EFFECT(), BACK, NEXT(n=1), NEXT(n=-1)]),
        (LAST(), [LAST(), ON, BACK, NEXT(n=1), NEXT(n=-1)]),
        (GOTO(op=4), [ON, BACK, NEXT(n=1), NEXT(n=-1)]),
    ],
    ids=["step -1", "next -1", "cause", "last", "goto 4"],
)
def test_a_move_is_likely_to_be_made_again_or_undone_and_steps_are_anyway(
    call: Call, wanted: list[Call]
) -> None:
    assert likely(call) == wanted


def test_only_moves_that_lead_somewhere_are_drawn(desk_bench) -> None:
    """Before the first op there is none to leave for its effect, nor one before it."""
    bench = desk_bench("matmul", -1, LARGE)
    bench.settle()
    strips = rest(bench, EFFECT())
    bench.move(ON)
    found = bench.draw(Urgency.KEY)
    assert set(map(id, strips.prepared)) == set(map(id, pictures_of(found)))


# -- what it does -------------------------------------------------------------------


@pytest.mark.parametrize("size", [SMALL, MIDDLE, LARGE])
def test_a_step_that_was_drawn_ahead_draws_nothing(size, desk_bench) -> None:
    bench = desk_bench("matmul", 40, size)
    bench.settle()
    strips = rest(bench)
    bench.runner.asked.clear()
    bench.move(ON)
    found = bench.draw(Urgency.KEY)
    assert not waiting(found)
    assert all(picture in strips.prepared for picture in pictures_of(found))
    assert bench.runner.asked == []


@pytest.mark.slow
@pytest.mark.parametrize("call", [ON, BACK, NEXT(n=1), NEXT(n=-1)])
def test_all_that_is_likely_is_drawn(call, desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    strips = rest(bench)
    bench.move(call)
    found = bench.draw(Urgency.KEY)
    assert all(picture in strips.prepared for picture in pictures_of(found))


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_it_leaves_session_and_states_as_they_are(size, desk_bench) -> None:
    bench = desk_bench("matmul", 40, size)
    found = bench.settle()
    session = bench.desk.session
    states = dict(bench.desk.states)
    rest(bench)
    assert bench.desk.session is session
    assert bench.desk.states == states
    assert bench.draw() == found


def test_nothing_is_drawn_ahead_for_panes_out_of_view(desk_bench) -> None:
    bench = desk_bench("matmul", 40, SMALL)
    bench.settle()
    bench.runner.asked.clear()
    strips = rest(bench)
    moves = 4
    assert len(strips.prepared) == moves * len(bench.desk.in_view)
    shown = {"cells", "in-service", "op", "op-rows", "source"}
    shown |= {"causes", "traffic", "indexed-rows"}
    assert bench.runner.commands_asked == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "event"),
    [("memory", Scroll(1)), ("timeline", Zoom(0.5)), ("memory", ChangeView(1))],
    ids=["row", "zoom", "view"],
)
@pytest.mark.parametrize("again", [False, True], ids=["at-once", "after-a-rest"])
def test_what_changes_a_pane_is_not_lost(key, event, again, desk_bench) -> None:
    texts = []
    for ahead in (True, False):
        bench = desk_bench("matmul", 2, MIDDLE)
        bench.lay_out(MIDDLE, tab="memory")
        bench.settle()
        if ahead:
            rest(bench)
        bench.send(key, event)
        bench.settle()
        if ahead and again:
            rest(bench)
        bench.move(ON)
        found = bench.settle()
        texts.append({key: text_of(drawn.picture) for key, drawn in found.items()})
    assert texts[0] == texts[1]


# -- a key comes --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, 3, 11])
def test_a_key_ends_the_drawing_after_one_pane(after, desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    strips = Strips()
    views: Any = strips

    def is_quiet() -> bool:
        return len(strips.prepared) < after

    asyncio.run(prefetch(bench.desk, ON, views, is_quiet))
    assert len(strips.prepared) == after
    assert bench.replay.cursor == 40


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 4, 9, 14])
def test_a_key_ends_the_asking_after_one_pane(after, desk_bench, monkeypatch) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    asked: list[str] = []

    def noted(key: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def note_and_act(*args: Any) -> Any:
            asked.append(key)
            return act(*args)

        return note_and_act

    for key, pane in bench.desk.panes.items():
        monkeypatch.setattr(pane, "update", noted(key, pane.update))
        monkeypatch.setattr(pane, "queries", noted(key, pane.queries))
    rest(bench, is_quiet=lambda: len(asked) < after)
    assert len(asked) >= after
    assert len(set(asked[after:])) <= 1


@pytest.mark.slow
def test_a_key_ends_the_waiting_for_answers(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    looks: list[bool] = []

    def is_quiet() -> bool:
        looks.append(bench.runner.busy_ahead)
        return looks.count(True) < 20

    with held(CELLS):
        strips = rest(bench, is_quiet=is_quiet)
    assert looks.count(True) == 20
    assert len(strips.prepared) < 4 * len(bench.desk.in_view)


@pytest.mark.slow
def test_what_is_computed_ahead_gives_way_to_the_key_that_comes(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    with held(CELLS) as cells:
        bench.draw_ahead(bench.led_to(STEP(n=90)))
        assert cells.begun.wait(10)
        bench.send("timeline", Zoom(0.5))
        bench.draw(Urgency.KEY)
        assert cells.ended.wait(10)
        cells.release()
        assert not waiting(bench.settle())


@pytest.mark.slow
def test_what_takes_a_job_is_drawn_once_that_has_ended(desk_bench) -> None:
    bench = desk_bench("mlp_tp", 160, LARGE)
    bench.settle()
    bench.runner.asked.clear()
    strips = rest(bench)
    assert ROUTE.ask(161) in bench.runner.asked
    bench.move(ON)
    assert all(p in strips.prepared for p in pictures_of(bench.draw(Urgency.KEY)))


@pytest.mark.slow
def test_it_begins_when_what_is_in_view_is_answered(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    with held(ROUTE) as route:
        bench.draw()
        assert route.begun.wait(10)
        looks: list[int] = []

        def is_quiet() -> bool:
            looks.append(len(bench.runner.running()))
            if len(looks) == 10:
                route.release()
            return True

        strips = rest(bench, is_quiet=is_quiet)
    assert looks[:10].count(0) == 0
    assert strips.prepared


@pytest.mark.slow
def test_what_somebody_waits_for_comes_first_though_it_takes_more_than_a_moment(
    desk_bench, monkeypatch
) -> None:
    monkeypatch.setattr("tui.prefetch.YOUNG_S", LIMIT_S)
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    bench.move(ON)
    with held(ROUTE) as route:
        bench.draw()
        assert route.begun.wait(10)
        end = monotonic() + LIMIT_S
        while bench.runner.busy_for_a_moment:
            assert monotonic() < end
            sleep(0.01)
        bench.runner.asked.clear()
        looks: list[int] = []

        def is_quiet() -> bool:
            looks.append(len(bench.runner.asked))
            if len(looks) == 10:
                route.release()
            return True

        strips = rest(bench, is_quiet=is_quiet)
    assert not any(looks[:10])
    assert strips.prepared


def test_the_last_key_is_no_longer_urgent(desk_bench, monkeypatch) -> None:
    bench = desk_bench("matmul", 40, SMALL)
    lowered: list[int] = []
    monkeypatch.setattr(bench.runner, "lower", lambda: lowered.append(1))
    rest(bench)
    assert lowered == [1]


# -- on the screen ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_screen_is_the_same_as_one_that_draws_nothing_ahead(
    size, count, session, monkeypatch, as_text_of
) -> None:
    rng = Random(f"{size}")
    keys = [rng.choice(KEYS) for _ in range(count)]
    ended = asyncio.Event()

    async def with_it(*args: Any) -> None:
        await prefetch(*args)
        ended.set()

    async def without(*args: Any) -> None:
        ended.set()

    async def play(pilot) -> list[tuple[str, str]]:
        texts = []
        await settled(pilot)
        for key in keys:
            ended.clear()
            pilot.app.debugger.draw_ahead()
            await asyncio.wait_for(ended.wait(), 30)
            await pilot.press(NAMES.get(key, key))
            await settled(pilot)
            texts.append((key, as_text_of(pilot.app)))
        return texts

    shown = []
    state = session.state
    for ahead in (with_it, without):
        monkeypatch.setattr("tui.screens.debugger.prefetch", ahead)
        session.state = state
        app = KernbenchApp(session, "matmul.msgpack")
        async with app.run_test(size=size) as pilot:
            with fast_keys(app):
                shown.append(await play(pilot))
    for (key, drawn_ahead), (_, drawn_late) in zip(*shown, strict=True):
        assert drawn_ahead == drawn_late, key


@pytest.mark.slow
def test_beside_that_rows_in_view_are_indexed_so_that_a_zoom_finds_them(
    desk_bench,
) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    timelines = bench.index.timelines
    *_, shown = [query for query in bench.runner.asked if query.command == "cells"]
    assert not timelines.indexed  # the window has few ops
    rest(bench)
    bench.wait()
    assert timelines.unindexed(shown.args.rows) == ((), 0)


@pytest.mark.slow
def test_no_row_is_indexed_while_a_key_waits(desk_bench) -> None:
    bench = desk_bench("matmul", 40, LARGE)
    bench.settle()
    bench.index.timelines.forget()
    bench.runner.asked.clear()
    rest(bench, is_quiet=lambda: False)
    assert INDEXED_ROWS.name not in bench.runner.commands_asked

"""Answers that take long: what is shown meanwhile, what is said of them, and Esc."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from threading import Thread, Timer
from typing import Any

import pytest
from desks import Held, held
from pilots import answered, ask, pane_of, run, settled, still, until

from kernbench.replay.commands import (
    CRITICAL,
    INFO,
    ROUTE,
    VERIFY,
)
from kernbench.replay.inner_commands import CELLS, COMPARISON, FITTING, JUDGEMENT
from kernbench.replay.query import Query
from tui.__main__ import print_screen
from tui.desk import Drawn
from tui.runner import Urgency
from tui.screens.text import TextScreen

ROUTE_PANE = 5
SOON = 3600.0
"""Whatever waits for so many seconds does not come in a test."""

Patience = Callable[[float], None]


@pytest.fixture(autouse=True)
def _nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn before it is asked for."""

    async def prefetch(*args: Any) -> None:
        pass

    monkeypatch.setattr("tui.screens.debugger.prefetch", prefetch)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    """``patience(s)``: how long nothing is said of an answer that is late."""

    def set_to(seconds: float) -> None:
        monkeypatch.setattr("tui.screens.debugger.LATE_S", seconds)
        monkeypatch.setattr("tui.widgets.status.LATE_S", seconds)

    return set_to


def status_of(pilot: Any) -> str:
    """The first line of the screen."""
    return "".join(text for text, _ in pilot.app.debugger.status.line)


def said(pilot: Any) -> str:
    """The message above the footer, if there is one."""
    notice = pilot.app.debugger.notice
    return str(notice.render()) if notice.display else ""


async def wait_for_route(pilot: Any, route: Held) -> str:
    """Step, so that Route has to wait; what it showed before."""
    await settled(pilot)
    before = pane_of(pilot, ROUTE_PANE).text
    await pilot.press("s")
    assert route.begun.wait(10)
    await still(pilot)
    assert pilot.app.debugger.waiting == ["route"]
    return before


# -- panes --------------------------------------------------------------------------


async def test_an_answer_is_drawn_when_it_ends_by_no_timer(
    drive, monkeypatch, session
) -> None:
    session.goto(119)
    monkeypatch.setattr("tui.screens.debugger.LOOK_S", SOON)
    async with drive(80, 24, "5") as pilot:
        await settled(pilot)
        with held(ROUTE) as route:
            before = await wait_for_route(pilot, route)
            route.release()
            await until(pilot, lambda: not pilot.app.debugger.waiting)
        assert pane_of(pilot, ROUTE_PANE).text != before


async def test_a_key_that_opens_a_pane_waits_for_its_answer_and_draws_once(
    drive, monkeypatch, session
) -> None:
    session.goto(119)
    monkeypatch.setattr("tui.desk.KEY_S", SOON)
    async with drive(120, 40) as pilot:
        await settled(pilot)
        screen = pilot.app.debugger
        drawn = list[Urgency]()
        draw = screen.desk.draw

        def noted(urgency: Urgency, keep: Iterable[Query]) -> dict[str, Drawn]:
            drawn.append(urgency)
            return draw(urgency, keep)

        monkeypatch.setattr(screen.desk, "draw", noted)
        with held(ROUTE) as route:
            released = Thread(target=lambda: route.begun.wait(10) and route.release())
            released.start()
            screen.act("pane_5")
            released.join()
            assert screen.waiting == []
        assert "set-up" in pane_of(pilot, ROUTE_PANE).text
        assert drawn == [Urgency.KEY]


@pytest.mark.slow
async def test_answers_that_soon_follow_each_other_are_shown_together(
    drive, monkeypatch, session
) -> None:
    session.goto(119)
    monkeypatch.setattr("tui.screens.debugger.LOOK_S", SOON)
    monkeypatch.setattr("tui.screens.debugger.TOGETHER_S", SOON)
    others_come_soon = [True]
    soon = property(lambda runner: others_come_soon[0])
    monkeypatch.setattr("tui.runner.Runner.busy_for_a_moment", soon)
    async with drive(200, 50, "5") as pilot:
        await settled(pilot)
        screen = pilot.app.debugger
        with held(ROUTE) as route, held(COMPARISON) as comparison:
            await pilot.press("s")
            assert route.begun.wait(10)
            assert comparison.begun.wait(10)
            await still(pilot)
            assert "route" in screen.waiting
            route.release()
            query = ROUTE.ask(120)
            await until(pilot, lambda: screen.runner.known(query) is not None)
            await still(pilot)
            assert "route" in screen.waiting
            others_come_soon[0] = False
            comparison.release()
            await until(pilot, lambda: not screen.waiting)


@pytest.mark.slow
async def test_what_was_shown_stays_while_the_new_answer_is_young(
    drive, patience, session
) -> None:
    session.goto(119)
    patience(SOON)
    async with drive(120, 40, "5") as pilot:
        await settled(pilot)
        with held(ROUTE) as route:
            before = await wait_for_route(pilot, route)
            assert pane_of(pilot, ROUTE_PANE).text == before
            patience(-1.0)
            pilot.app.debugger.look(rested=False)
            assert " computing routes: 34%  Esc" in pane_of(pilot, ROUTE_PANE).text


async def test_how_far_an_answer_is_is_not_drawn_between_keys_that_come_at_once(
    drive, monkeypatch
) -> None:
    async with drive(120, 40, "2") as pilot:
        screen = pilot.app.debugger
        looks: list[bool] = []
        monkeypatch.setattr(screen, "look", lambda rested: looks.append(rested))
        monkeypatch.setattr("tui.screens.debugger.LOOK_S", SOON)
        await pilot.press("j")
        screen.glance()
        assert not looks
        monkeypatch.setattr("tui.screens.debugger.LOOK_S", 0.0)
        screen.glance()
        assert looks


@pytest.mark.slow
async def test_what_panes_wish_for_is_computed_once_nothing_was_pressed_for_a_while(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.screens.debugger.REST_S", SOON)
    # 0 is no interval: Textual divides by it when it is late
    monkeypatch.setattr("tui.screens.debugger.LOOK_S", 0.001)
    async with drive(120, 40, "6") as pilot:
        screen = pilot.app.debugger
        await until(pilot, lambda: not screen.runner.busy)
        with held(JUDGEMENT) as judgement:
            screen.glance()
            assert not judgement.begun.wait(0.05)
            monkeypatch.setattr("tui.screens.debugger.REST_S", 0.0)
            screen.glance()
            assert judgement.begun.wait(10)


@pytest.mark.slow
async def test_a_step_waits_for_no_long_answer_about_times(drive, settle) -> None:
    async with drive(120, 40, "s", "s") as pilot:
        await settle(pilot)
        with held(CRITICAL) as critical:
            run(pilot, "critical")
            assert critical.begun.wait(10)
            await pilot.press("s")
            await until(pilot, lambda: not pilot.app.debugger.waiting)
            assert pilot.app.debugger.asked is not None


def test_a_screen_is_printed_when_its_answers_are_there(
    session, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "60")
    session.goto(100)
    with held(CELLS) as cells:
        later = Timer(0.3, cells.release)
        later.start()
        print_screen(session, "matmul.msgpack", False)
    assert cells.begun.is_set()
    text = capsys.readouterr().out
    assert "computing" not in text
    assert "GEMM 0,0,0" in text


# -- the status line ----------------------------------------------------------------


@pytest.mark.slow
async def test_a_young_job_is_not_in_the_status_line(drive, patience) -> None:
    patience(SOON)
    async with drive(120, 40) as pilot:
        await settled(pilot)
        with held(VERIFY) as verify:
            run(pilot, "verify")
            assert verify.begun.wait(10)
            pilot.app.debugger.look(rested=False)
            assert "verify 34%" not in status_of(pilot)
            patience(-1.0)
            pilot.app.debugger.look(rested=False)
            assert "verify 34%" in status_of(pilot)
            verify.release()
            await answered(pilot)
        assert "verify 34%" not in status_of(pilot)


async def test_what_is_computed_ahead_is_not_in_the_status_line(
    drive, patience
) -> None:
    patience(-1.0)
    async with drive(120, 40, "6") as pilot:
        screen = pilot.app.debugger
        with held(JUDGEMENT) as judgement:
            await until(
                pilot, lambda: screen.look(rested=True) or judgement.begun.is_set()
            )
            screen.look(rested=False)
            assert screen.runner.busy
            assert "judgement" not in status_of(pilot)


# -- commands -----------------------------------------------------------------------


async def test_a_long_answer_leaves_the_keys_free(session, drive) -> None:
    async with drive(100, 24) as pilot:
        before = session.cursor
        with held(VERIFY):
            run(pilot, "verify")
            await pilot.press("s")
        assert session.cursor == before + 1


async def test_while_one_answer_is_awaited_no_other_is_asked_for(drive) -> None:
    async with drive(100, 24) as pilot:
        with held(VERIFY) as verify:
            run(pilot, "verify")
            run(pilot, "info")
            assert said(pilot) == "still computing verify; Esc cancels it"
            verify.release()
            await answered(pilot)
        assert isinstance(pilot.app.screen, TextScreen)
        assert " verify " in pilot.app.screen.text.splitlines()[0]


async def test_escape_cancels_an_answer(drive) -> None:
    async with drive(100, 24) as pilot:
        with held(VERIFY) as verify:
            run(pilot, "verify")
            assert verify.begun.wait(10)
            await pilot.press("escape")
            await answered(pilot)
            assert verify.given_up
        assert said(pilot) == "error: verify was cancelled at 34%"


@pytest.mark.slow
async def test_an_answer_that_was_cancelled_can_be_asked_for_again(drive) -> None:
    async with drive(100, 24) as pilot:
        with held(VERIFY) as verify:
            run(pilot, "verify")
            assert verify.begun.wait(10)
            await pilot.press("escape")
            await answered(pilot)
        await ask(pilot, "verify")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))


@pytest.mark.slow
async def test_escape_says_how_to_compute_again_what_panes_wait_for(
    drive, session
) -> None:
    session.goto(119)
    async with drive(120, 40, "5") as pilot:
        await settled(pilot)
        with held(ROUTE) as route:
            await wait_for_route(pilot, route)
            await pilot.press("escape")
            assert said(pilot) == "cancelled; ctrl+l computes again"
            await settled(pilot)
            assert "routes was cancelled at 34%" in pane_of(pilot, ROUTE_PANE).text
        await pilot.press("ctrl+l")
        await settled(pilot)
        assert "cancelled" not in pane_of(pilot, ROUTE_PANE).text


@pytest.mark.slow
async def test_ctrl_l_computes_nothing_again_that_is_there(drive, session) -> None:
    session.goto(120)
    async with drive(120, 40, "5") as pilot:
        await settled(pilot)
        with held(ROUTE) as route:
            await pilot.press("ctrl+l")
            await settled(pilot)
        assert not route.begun.is_set()


@pytest.mark.slow
async def test_escape_is_not_taken_for_what_is_computed_ahead(drive) -> None:
    async with drive(120, 40, "6", "z") as pilot:
        screen = pilot.app.debugger
        with held(JUDGEMENT) as judgement:
            await until(
                pilot, lambda: screen.look(rested=True) or judgement.begun.is_set()
            )
            await pilot.press("escape")
            assert not screen.maximised


async def test_a_search_that_was_cancelled_moves_nothing(drive, session) -> None:
    async with drive(100, 24) as pilot:
        with held(FITTING) as fitting:
            run(pilot, "find kind = gemm and op > 90")
            assert fitting.begun.wait(10)
            await pilot.press("escape")
            await answered(pilot)
        assert session.cursor == 16
        assert said(pilot).startswith(
            "error: find kind = gemm and op > 90 was cancelled"
        )


# -- the end of the screen ------------------------------------------------------------


async def test_what_still_computes_is_cancelled_when_the_screen_ends(drive) -> None:
    with held(VERIFY) as verify:
        async with drive(80, 24) as pilot:
            run(pilot, "verify")
            assert verify.begun.wait(10)
        assert verify.ended.wait(10)


@pytest.mark.slow
async def test_an_answer_that_comes_as_the_screen_goes_leaves_no_error(
    drive, caplog
) -> None:
    # A timer of Textual's that is dropped as its screen ends is told without an error.
    with held(INFO), held(VERIFY) as verify:
        async with drive(120, 40) as pilot:
            run(pilot, "verify")
            assert verify.begun.wait(10)
            runner = pilot.app.debugger.runner
        verify.release()
        while runner.busy:
            verify.ended.wait(0.001)
    gc.collect()
    assert not [record for record in caplog.records if record.exc_info]

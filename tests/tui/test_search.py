"""Search, filter, stops, marks, playing, reload and copying, by keys and commands."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pilots import (
    active_of,
    answered,
    ask,
    fast_keys,
    pane_of,
    piloted,
    settled,
    state_of,
    still,
    until,
)

from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.screens.command import expression
from tui.screens.text import StopsScreen

TIMELINE = 1
OPS = 2
MEMORY = 4
DIFF = 6


def said(pilot: Any) -> str:
    """The message above the footer, if there is one."""
    notice = pilot.app.debugger.notice
    return str(notice.render()) if notice.display else ""


# -- search and filter ----------------------------------------------------------------


@pytest.mark.slow
async def test_slash_searches_text_and_f3_goes_on(session, drive) -> None:
    fits = session.matching('name ~ "*GEMM*"').tolist()
    async with drive(80, 24, "/", *"GEMM", "enter") as pilot:
        await answered(pilot)
        assert session.cursor == fits[0]
        await pilot.press("f3")
        await answered(pilot)
        assert session.cursor == fits[1]
        await pilot.press("f15")  # what terminals send for Shift+F3
        await answered(pilot)
        assert session.cursor == fits[0]


async def test_slash_searches_an_expression(session, drive) -> None:
    fits = session.matching("kind=gemm").tolist()
    async with drive(80, 24, "g", "/", *"kind=gemm", "enter") as pilot:
        await answered(pilot)
        assert session.cursor == fits[0]


@pytest.mark.parametrize(
    "text", ["gemm", "pe_dma", '"DMA"', "kind = gemm", "dur > 3ns"]
)
def test_what_is_searched_for_is_an_expression(text, session) -> None:
    assert len(session.matching(expression(text))) > 0


async def test_f3_before_any_search_says_what_to_do(drive) -> None:
    async with drive(80, 24, "f3") as pilot:
        assert said(pilot).startswith("nothing is searched for yet: /")


@pytest.mark.slow
async def test_a_search_without_a_hit_says_so(session, drive) -> None:
    async with drive(80, 24) as pilot:
        before = session.cursor
        await ask(pilot, "search nowhere")
        assert said(pilot).startswith("error: no op after")
        assert session.cursor == before


async def test_a_filter_leaves_the_ops_that_fit(session, drive) -> None:
    fits = session.matching("kind=gemm").tolist()
    async with drive(80, 24, "2", "&", *"kind=gemm", "enter") as pilot:
        await answered(pilot)
        await settled(pilot)
        text = pane_of(pilot, OPS).text
        assert f"{len(fits)} fit kind=gemm" in text
        assert "host_write" not in text
        await pilot.press("home", "j", "j", "enter")
        assert session.cursor == fits[2]


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("escape",), ("&", *["backspace"] * 9, "enter")])
async def test_escape_or_an_empty_filter_shows_all(keys, drive) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "filter kind=gemm")
        await settled(pilot)
        assert "fit kind=gemm" in pane_of(pilot, OPS).text
        await pilot.press(*keys)
        await settled(pilot)
        assert "fit kind=gemm" not in pane_of(pilot, OPS).text
        assert "host_write" in pane_of(pilot, OPS).text


async def test_a_filter_is_shown_where_it_filters_and_counted(session, drive) -> None:
    """Asked beside another pane it changed nothing on the screen, and Esc left it."""
    fits = len(session.matching("kind=gemm"))
    async with drive(80, 24, "3", "&", *"kind=gemm", "enter") as pilot:
        await answered(pilot)
        await settled(pilot)
        assert pilot.app.debugger.active == "ops"
        total = len(session.trace.ops)
        assert said(pilot) == f"{fits} ops of {total:,} listed; Esc lists all again"
        await pilot.press("escape")
        assert state_of(pilot, OPS).where == ""
        await pilot.press("&", "enter")
        assert said(pilot) == "all ops are listed"


async def test_a_filter_that_is_no_expression_keeps_the_list(drive) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "filter kind = ")
        assert said(pilot).startswith("error: ")
        assert state_of(pilot, OPS).where == ""


async def test_the_filter_that_there_is_can_be_changed(drive) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "filter kind=gemm")
        await pilot.press("&")
        assert pilot.app.debugger.line.value == "kind=gemm"
        assert pilot.app.debugger.line.prompt == "&"


# -- stops ----------------------------------------------------------------------------


@pytest.mark.slow
async def test_b_offers_a_breakpoint_at_ops_like_this_one_and_c_runs_to_it(
    session, drive
) -> None:
    session.goto(24)
    here = session.row(24)
    expr = f"comp = {here.component} and name = {here.name}"
    like = session.matching(expr).tolist()
    async with drive(80, 24, "b") as pilot:
        assert pilot.app.debugger.line.value == f"break {expr}"
        await pilot.press("enter")
        await answered(pilot)
        assert [len(stop.at) for stop in session.stops] == [len(like)]
        await pilot.press("G", "C")
        await answered(pilot)
        assert session.cursor == max(op for op in like if op < 151)


async def test_w_watches_the_bytes_that_the_op_writes(session, drive) -> None:
    session.goto(16)
    async with drive(80, 24, "w", "enter") as pilot:
        await answered(pilot)
        (stop,) = session.stops
        assert stop.kind == "watch"
        assert stop.next(15, True) == 16


@pytest.mark.slow
async def test_w_watches_the_place_that_a_pane_has_picked(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "4") as pilot:
        await settled(pilot)
        await pilot.press("j", "v")
        await settled(pilot)
        await pilot.press("w")
        assert pilot.app.debugger.line.value == "watch b[0,0] rw"


async def test_w_before_the_first_op_says_how_to_watch(session, drive) -> None:
    session.to_start()
    async with drive(80, 24, "w") as pilot:
        assert said(pilot).startswith("this op touches no bytes; pick some in 4 Memory")


async def test_a_stop_at_no_op_does_not_say_that_c_runs_to_it(drive) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "watch hbm 0x9999999999:64")
        assert " at 0 ops: nothing runs to it" in said(pilot)
        await ask(pilot, "break kind=gemm")
        assert said(pilot).endswith("; c runs to it")


@pytest.mark.slow
async def test_continue_says_which_stop_it_met_or_that_there_is_none(drive) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "break kind=gemm")
        await pilot.press("g", "c")
        assert said(pilot).startswith("stop 1: break kind=gemm")
        await pilot.press("G", "c")
        assert said(pilot).startswith("no further stop that way")


async def test_a_run_without_a_stop_says_which_end_it_came_to(drive) -> None:
    async with drive(80, 24, "C") as pilot:
        assert said(pilot) == "no further stop that way: the start of the log"
        await pilot.press("c")
        assert said(pilot) == "no further stop that way: the end of the log"


@pytest.mark.slow
async def test_capital_b_lists_stops_enter_goes_d_deletes(
    session, drive, as_text_of
) -> None:
    gemm = session.matching("kind=gemm").tolist()
    session.goto(20)
    async with drive(80, 24) as pilot:
        await ask(pilot, "break op=3", "break kind=gemm", "break op=150")
        await pilot.press("B", "d", "j", "d")  # goes on with what is left
        assert [stop.what for stop in session.stops] == ["kind=gemm"]
        await still(pilot)
        assert "> 2 break kind=gemm" in as_text_of(pilot.app)
        await pilot.press("enter")
        await still(pilot)
        assert session.cursor == min(op for op in gemm if op > 20)
        assert " 1 BP" in as_text_of(pilot.app)
        assert not isinstance(pilot.app.screen, StopsScreen)


async def test_enter_on_a_stop_behind_the_cursor_goes_to_its_first_op(
    session, drive
) -> None:
    session.goto(100)
    async with drive(80, 24) as pilot:
        await ask(pilot, "break op < 9")
        await pilot.press("B", "enter")
        assert session.cursor == 0


async def test_a_click_on_a_stop_goes_to_it(session, drive) -> None:
    session.goto(100)
    async with drive(80, 24) as pilot:
        await ask(pilot, "break op = 120", "break op = 130")
        await pilot.press("B")
        await still(pilot)
        await pilot.click(offset=(10, 2))
        await still(pilot)
        assert session.cursor == 130


async def test_capital_b_without_stops_names_the_keys_that_make_one(drive) -> None:
    async with drive(80, 24, "B") as pilot:
        assert said(pilot).startswith("no stop is set: b or w makes one")


# -- marks ----------------------------------------------------------------------------


async def test_m_and_a_letter_mark_apostrophe_jumps(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "m", "s", "G", "'", "s"):
        assert session.cursor == 40
        assert session.marks == {"s": 40}


@pytest.mark.parametrize("key", ["escape", "1", "up"])
async def test_another_key_than_a_letter_sets_no_mark_and_does_nothing(
    key, session, drive
) -> None:
    session.goto(40)
    async with drive(80, 24, "m", key, "s"):
        assert session.cursor == 41
        assert session.marks == {}


async def test_a_mark_that_is_not_set_is_an_error_that_lists_those_that_are(
    drive,
) -> None:
    """It spoke of whole numbers, start and end, of which no key can be."""
    async with drive(100, 24, "m", "a", "'", "b") as pilot:
        assert "no mark b; set are: a; mb sets it here" in said(pilot)


async def test_where_no_mark_is_set_it_is_said_how_one_is(drive) -> None:
    async with drive(100, 24, "'", "x") as pilot:
        assert "no mark x; none is set; mx sets it here" in said(pilot)


async def test_equals_fits_the_last_two_marks_whose_distance_is_shown(
    session, drive, as_text_of
) -> None:
    session.goto(24)
    starts = session.index.ops.starts
    t0 = float(starts(24))
    t1 = float(starts(151))
    async with drive(100, 24, "m", "a", "G", "m", "b", "=") as pilot:
        begin, end = state_of(pilot, TIMELINE).window
        assert begin <= t0 < t1 <= end
        assert end - begin < 1.5 * (t1 - t0)
        assert f"  a-b {t1 - t0:.2f}ns" in as_text_of(pilot.app).splitlines()[0]


async def test_equals_without_marks_says_what_to_do(drive) -> None:
    async with drive(80, 24, "=") as pilot:
        assert said(pilot).startswith("set two marks at other times first")


# -- playing --------------------------------------------------------------------------


async def test_space_plays_until_a_stop(session, drive, as_text_of) -> None:
    session.goto(20)
    async with drive(100, 24) as pilot:
        screen = pilot.app.debugger
        await ask(pilot, "break op = 23")
        await pilot.press("space")
        assert "playing" in as_text_of(pilot.app).splitlines()[0]
        for _ in range(3):
            assert screen.playing is not None
            screen.play()
        assert session.cursor == 23
        assert screen.playing is None
        assert said(pilot).startswith("stop 1: break op = 23")


@pytest.mark.parametrize("key", ["space", "v", "escape"])
async def test_any_key_pauses(key, session, drive) -> None:
    async with drive(80, 24, "space", key) as pilot:
        assert pilot.app.debugger.playing is None


async def test_playing_ends_at_the_last_op(session, drive) -> None:
    session.goto(151)
    async with drive(80, 24, "space") as pilot:
        pilot.app.debugger.play()
        assert pilot.app.debugger.playing is None
        assert said(pilot) == "played to the last op"


# -- reload ---------------------------------------------------------------------------


@asynccontextmanager
async def running(app: KernbenchApp) -> AsyncIterator[Any]:
    """An app on a small screen."""
    async with piloted(app, (80, 24)) as pilot:
        with fast_keys(app):
            yield pilot


async def reloaded(pilot: Any) -> None:
    """Wait until the file was read again."""
    before = pilot.app.debugger
    await pilot.press("R")
    await until(pilot, lambda: pilot.app.debugger is not before)
    await still(pilot)


@pytest.mark.slow
async def test_reload_shows_a_file_that_has_grown_where_one_was(
    trace_path, tmp_path
) -> None:
    whole = trace_path.read_bytes()
    path = tmp_path / "run.msgpack.partial"
    path.write_bytes(whole[: len(whole) * 95 // 100])
    session = open_session(path, None)
    app = KernbenchApp(session, path.name)
    async with running(app) as pilot:
        await ask(pilot, "goto 40", "break kind=gemm")
        await pilot.press("u", "4", "m", "a")
        path.unlink()
        path.with_name("run.msgpack").write_bytes(whole)  # the run has ended
        await reloaded(pilot)
        await until(pilot, lambda: app.debugger.session.stops)
        replay = app.debugger.desk.replay
        assert replay is not session
        assert replay.trace.complete
        now = replay.state
        assert now.cursor == 40
        assert now.level == 1
        assert now.marks == (("a", 40),)
        assert active_of(pilot) == MEMORY
        assert [stop.what for stop in now.stops] == ["kind=gemm"]
        assert app.screen is app.debugger
        await pilot.press("s")
        assert replay.cursor == 41


@pytest.mark.slow
async def test_reload_of_a_file_that_is_gone_or_bad_is_an_error(
    trace_path, tmp_path
) -> None:
    path = tmp_path / "run.msgpack"
    shutil.copy(trace_path, path)
    app = KernbenchApp(open_session(path, None), path.name)
    async with running(app) as pilot:
        path.rename(tmp_path / "other")
        await ask(pilot, "reload")
        await until(pilot, lambda: said(pilot).startswith("error:"))
        await settled(pilot)
        await pilot.press("escape")
        assert said(pilot) == ""
        path.write_bytes(b"nothing")
        await ask(pilot, "reload")
        await until(pilot, lambda: said(pilot).startswith("error:"))
        before = app.debugger.session.cursor
        await pilot.press("s")
        assert app.debugger.session.cursor == before + 1


@pytest.mark.slow
async def test_reload_keeps_filter_search_and_window(trace_path) -> None:
    app = KernbenchApp(open_session(trace_path, 40), "matmul.msgpack")
    async with running(app) as pilot:
        await ask(pilot, "search gemm", "filter kind=gemm")
        await pilot.press(*"+++llllllll")
        was = app.debugger
        window = was.desk.window
        assert not window[0] <= was.desk.replay.time < window[1]
        await pilot.press("2")
        await settled(pilot)
        listed = pane_of(pilot, OPS).text
        await reloaded(pilot)
        await settled(pilot)
        assert app.debugger.sought == was.sought
        assert state_of(pilot, OPS).where == "kind=gemm"
        assert pane_of(pilot, OPS).text == listed
        assert app.debugger.desk.window == window


@pytest.mark.slow
async def test_reload_leaves_no_screen_of_the_trace_as_it_was(trace_path) -> None:
    """Under a page that had come up meanwhile the old screen stayed, and lived on."""
    app = KernbenchApp(open_session(trace_path, 40), "matmul.msgpack")
    async with running(app) as pilot:
        old = app.debugger
        below = app.screen_stack[:-1]
        old.show_text("an answer", [[("that was late", "")]])
        await pilot.pause()
        app.reopen(open_session(trace_path, 40))
        await settled(pilot)
        assert app.debugger is not old
        assert app.screen_stack == [*below, app.debugger]
        assert not old.is_attached


async def test_reload_settles_the_memory_of_the_new_trace(
    trace_path, monkeypatch
) -> None:
    done: list[str] = []
    for name in ("unfreeze", "collect", "freeze"):
        monkeypatch.setattr(
            f"tui.lifecycle.gc.{name}", lambda name=name: done.append(name)
        )
    app = KernbenchApp(open_session(trace_path, 40), "matmul.msgpack")
    async with running(app) as pilot:
        await reloaded(pilot)
        await until(pilot, lambda: len(done) >= 3)
    assert done == ["unfreeze", "collect", "freeze"]


@pytest.mark.slow
async def test_the_hash_of_a_crash_report_is_that_of_the_trace_shown(
    trace_path, tmp_path
) -> None:
    path = tmp_path / "x.msgpack"
    other = trace_path.with_name("fault_overflow.msgpack")
    shutil.copy(trace_path, path)
    app = KernbenchApp(open_session(path, 0), "x.msgpack")
    async with running(app) as pilot:
        path.unlink()
        shutil.copy(other, path)
        await reloaded(pilot)
        assert app.opened == open_session(other, 0).trace.fingerprint()


# -- copying, Diff and back -----------------------------------------------------------


@pytest.mark.slow
async def test_y_copies_the_active_pane_and_says_how(drive, monkeypatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    async with drive(80, 24, "2") as pilot:
        await settled(pilot)
        await pilot.press("y")
        copied = f"{len(pilot.app.clipboard.splitlines())} lines copied by OSC 52"
        assert said(pilot) == f"{copied}, if the terminal allows it"
        assert "composite_gemm" in pilot.app.clipboard
        assert pilot.app.clipboard == pane_of(pilot, OPS).text


@pytest.mark.slow
async def test_x_shows_diff_and_goes_back_to_where_it_was_pressed(drive) -> None:
    async with drive(80, 24, "x") as pilot:
        assert active_of(pilot) == DIFF
        for pane in (TIMELINE, MEMORY):
            await pilot.press(str(pane), "x")
            assert active_of(pilot) == DIFF
            await pilot.press("x")
            assert active_of(pilot) == pane

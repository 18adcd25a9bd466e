"""Search, filter, stops, marks, playing, reload and copying: keys that ask the session."""

from __future__ import annotations

import gc
import shutil

import pytest
from tui.screens.asking import expression

from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.screens.help import TextScreen
from tui.widgets.command_line import candidates


async def ask(pilot, *lines: str) -> None:
    """Run command lines, each to its answer."""
    for line in lines:
        pilot.app.debugger.run(line)
        await answered(pilot)


async def answered(pilot) -> None:
    await pilot.pause()
    while pilot.app.debugger.jobs.busy or pilot.app.debugger._asked is not None:
        await pilot.pause()
        pilot.app.debugger.look()
    await pilot.pause()


# -- search and filter ---------------------------------------------------------


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


async def test_f3_before_any_search_says_what_to_do(drive, as_text_of) -> None:
    async with drive(80, 24, "f3") as pilot:
        assert "nothing is searched for yet: /" in as_text_of(pilot.app)


async def test_a_search_without_a_hit_says_so(session, drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        before = session.cursor
        await ask(pilot, "search nowhere")
        assert "error: no op after" in as_text_of(pilot.app)
        assert session.cursor == before


async def test_a_filter_leaves_the_ops_that_fit_and_enter_goes_to_one(
    session, drive, as_text_of
) -> None:
    fits = session.matching("kind=gemm").tolist()
    async with drive(80, 24, "2", "&", *"kind=gemm", "enter") as pilot:
        await answered(pilot)
        text = as_text_of(pilot.app)
        assert f"{len(fits)} fit kind=gemm" in text
        assert "host_write" not in text
        await pilot.press("home", "j", "j", "enter")
        assert session.cursor == fits[2]
        await pilot.press("end", "enter")
        assert session.cursor == fits[-1]


@pytest.mark.parametrize("keys", [("escape",), ("&", *["backspace"] * 9, "enter")])
async def test_escape_or_an_empty_filter_shows_all(keys, drive, as_text_of) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "filter kind=gemm")
        await pilot.press(*keys)
        await answered(pilot)
        assert "fit kind=gemm" not in as_text_of(pilot.app)
        assert "host_write" in as_text_of(pilot.app)


async def test_a_filter_that_nothing_fits_is_an_empty_list(drive, as_text_of) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "filter dur > 1s")
        assert "0 fit dur > 1s" in as_text_of(pilot.app)
        await pilot.press("j", "enter", "k", "end", "enter")
        assert "error" not in as_text_of(pilot.app)


async def test_a_filter_that_is_no_expression_keeps_the_list(drive, as_text_of) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "filter kind = ")
        assert "error: " in as_text_of(pilot.app)
        assert pilot.app.debugger.ops.where == ""


# -- stops ---------------------------------------------------------------------


async def test_b_offers_a_breakpoint_at_ops_like_this_one_and_c_runs_to_it(
    session, drive
) -> None:
    session.goto(24)
    here = session.row(24)
    like = session.matching(f"comp = {here.component} and name = {here.name}").tolist()
    async with drive(80, 24, "b") as pilot:
        wanted = f"break comp = {here.component} and name = {here.name}"
        assert pilot.app.debugger.line.value == wanted
        await pilot.press("enter")
        await answered(pilot)
        assert [stop.ops for stop in session.stops.all] == [len(like)]
        await pilot.press("G", "C")
        await answered(pilot)
        assert session.cursor == max(op for op in like if op < 151)


async def test_w_watches_the_bytes_that_the_op_writes(session, drive) -> None:
    session.goto(16)
    async with drive(80, 24, "w", "enter") as pilot:
        await answered(pilot)
        (stop,) = session.stops.all
        assert stop.kind == "watch"
        assert session.stops.next(15, True)[0] == 16


async def test_w_watches_the_place_that_a_pane_has_picked(drive, monkeypatch) -> None:
    async with drive(80, 24, "4") as pilot:
        monkeypatch.setattr(
            type(pilot.app.debugger.panes[4]), "place", lambda self: "c[3,17]"
        )
        await pilot.press("w")
        assert pilot.app.debugger.line.value == "watch c[3,17] rw"


async def test_continue_says_which_stop_it_met_or_that_there_is_none(
    drive, as_text_of
) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "break kind=gemm")
        await pilot.press("g", "c")
        await answered(pilot)
        assert "stop 1: break kind=gemm" in as_text_of(pilot.app)
        await pilot.press("G", "c")
        await answered(pilot)
        assert "no further stop that way" in as_text_of(pilot.app)


async def test_capital_b_lists_stops_enter_goes_d_deletes(
    session, drive, as_text_of
) -> None:
    gemm = session.matching("kind=gemm").tolist()
    session.goto(20)
    async with drive(80, 24) as pilot:
        await ask(pilot, "break op=3", "break kind=gemm", "break op=150")
        await pilot.press("B", "d", "j", "d")  # goes on with what is left
        assert [stop.what for stop in session.stops.all] == ["kind=gemm"]
        assert "> 2 break kind=gemm" in as_text_of(pilot.app)
        await pilot.press("enter")
        await pilot.pause()
        assert session.cursor == min(op for op in gemm if op > 20)
        assert " 1 BP" in as_text_of(pilot.app)
        assert not isinstance(pilot.app.screen, TextScreen)


async def test_enter_on_a_stop_behind_the_cursor_goes_to_its_first_op(
    session, drive
) -> None:
    session.goto(100)
    async with drive(80, 24) as pilot:
        await ask(pilot, "break op < 9")
        await pilot.press("B", "enter")
        assert session.cursor == 0


async def test_capital_b_without_stops_names_the_keys_that_make_one(
    drive, as_text_of
) -> None:
    async with drive(80, 24, "B") as pilot:
        assert "no stop is set: b or w makes one" in as_text_of(pilot.app)


# -- marks ---------------------------------------------------------------------


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
        assert (session.cursor, session.marks) == (41, {})


async def test_a_mark_that_is_not_set_is_an_error_that_lists_those_that_are(
    drive, as_text_of
) -> None:
    async with drive(100, 24, "m", "a", "'", "b") as pilot:
        assert "must be a whole number, start, end or a mark (a)" in as_text_of(
            pilot.app
        )


async def test_equals_fits_the_last_two_marks_whose_distance_is_shown(
    session, drive, as_text_of
) -> None:
    session.goto(24)
    async with drive(100, 24, "m", "a", "G", "m", "b", "=") as pilot:
        t0, t1 = float(session.starts[24]), float(session.starts[151])
        timeline = pilot.app.debugger.timeline
        assert timeline.t0 <= t0 < t1 <= timeline.t1
        assert timeline.t1 - timeline.t0 < 1.5 * (t1 - t0)
        assert f"  a-b {t1 - t0:.2f}ns" in as_text_of(pilot.app).splitlines()[0]


async def test_equals_without_marks_says_what_to_do(drive, as_text_of) -> None:
    async with drive(80, 24, "=") as pilot:
        assert "set two marks at other times first" in as_text_of(pilot.app)


# -- playing, reload, copying --------------------------------------------------


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
        assert (session.cursor, screen.playing) == (23, None)
        await pilot.pause()
        assert "stop 1: break op = 23" in as_text_of(pilot.app)


@pytest.mark.parametrize("key", ["space", "v", "escape"])
async def test_any_key_pauses(key, session, drive) -> None:
    async with drive(80, 24, "space", key) as pilot:
        assert pilot.app.debugger.playing is None


async def test_playing_ends_at_the_last_op(session, drive, as_text_of) -> None:
    session.goto(151)
    async with drive(80, 24, "space") as pilot:
        pilot.app.debugger.play()
        assert pilot.app.debugger.playing is None
        await pilot.pause()
        assert "played to the last op" in as_text_of(pilot.app)


async def test_reload_shows_a_file_that_has_grown_where_one_stood(
    trace_path, tmp_path
) -> None:
    whole = trace_path.read_bytes()
    path = tmp_path / "run.msgpack.partial"
    path.write_bytes(whole[: len(whole) * 95 // 100])
    session = open_session(path, None)
    app = KernbenchApp(session, path.name)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, "goto 40", "break kind=gemm")
        await pilot.press("u", "4", "m", "a")
        path.unlink()
        path.with_name("run.msgpack").write_bytes(whole)  # the run has ended
        await pilot.press("R")
        await answered(pilot)
        screen, now = app.debugger, app.debugger.session
        assert now is not session
        assert now.trace.complete
        assert (now.cursor, now.level, now.marks, screen.active) == (
            40,
            1,
            {"a": 40},
            4,
        )
        assert [stop.what for stop in now.stops.all] == ["kind=gemm"]
        assert app.screen is screen
        await pilot.press("s")
        assert now.cursor == 41


async def test_reload_of_a_file_that_is_gone_or_bad_is_an_error(
    trace_path, tmp_path, as_text_of
) -> None:
    path = tmp_path / "run.msgpack"
    shutil.copy(trace_path, path)
    app = KernbenchApp(open_session(path, None), path.name)
    async with app.run_test(size=(80, 24)) as pilot:
        path.rename(tmp_path / "other")
        await ask(pilot, "reload")
        assert "error:" in as_text_of(app)
        path.write_bytes(b"nothing")
        await ask(pilot, "reload")
        assert "error:" in as_text_of(app)
        before = app.debugger.session.cursor
        await pilot.press("s")
        assert app.debugger.session.cursor == before + 1


async def test_y_copies_the_active_pane_and_says_how(
    drive, as_text_of, monkeypatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    async with drive(80, 24, "2", "y") as pilot:
        assert "lines copied by OSC 52" in as_text_of(pilot.app)
        assert "composite_gemm" in pilot.app.clipboard
        assert pilot.app.clipboard == pilot.app.debugger.panes[2].text


async def test_x_shows_diff_and_goes_back_to_where_it_was_pressed(drive) -> None:
    async with drive(80, 24, "x") as pilot:
        assert pilot.app.debugger.active == 6
        for pane in (1, 4):
            await pilot.press(str(pane), "x")
            assert pilot.app.debugger.active == 6
            await pilot.press("x")
            assert pilot.app.debugger.active == pane


# -- long answers and the command line -----------------------------------------


@pytest.mark.parametrize(
    ("head", "word", "wanted"),
    [
        ("", "got", ["goto"]),
        ("", "fil", ["filter"]),
        ("memory ", "", ["a", "b", "c"]),
        ("watch ", "c", ["c"]),
        ("watch c ", "", ["r", "rw", "w"]),
        ("goto ", "", ["end", "m", "start"]),
        ("export ", "", ["csv", "parquet", "perfetto"]),
        ("break ", "ki", ["kind"]),
        ("break kind=gemm ", "a", ["addr", "and"]),
        ("break kind=", "ge", ["gemm"]),
        ("find name = ", "composite", ["composite_gemm"]),
        ("ops ", "w", ["where"]),
        ("ops where ", "ki", ["kind"]),
        ("search comp ~ ", "sip0.cube0.pe4.pe_g", ["sip0.cube0.pe4.pe_gemm"]),
        ("stalls ", "sip0.cube0.pe4", ["sip0.cube0.pe4"]),
        ("history ", "h", ["hbm"]),
        ("delete ", "", ["1"]),
        ("help ", "brea", ["break", "breaks"]),
        ("continue ", "", ["back"]),
        ("catch ", "", ["checks", "hazards"]),
        (
            "cut x.msgpack components ",
            "sip0.cube0.pe4.pe_g",
            ["sip0.cube0.pe4.pe_gemm"],
        ),
    ],
)
def test_completion_knows_what_may_follow(head, word, wanted, session) -> None:
    session.marks["m"] = 3
    session.break_on("kind=gemm")
    found = candidates(session, head, word)
    assert [text for text in found if "@" not in text] == wanted


def test_completion_of_a_file(session, tmp_path) -> None:
    (tmp_path / "other.msgpack").touch()
    found = candidates(session, "compare ", f"{tmp_path}/oth")
    assert found == [str(tmp_path / "other.msgpack")]


async def test_tab_completes_within_an_expression(drive) -> None:
    async with drive(80, 24, "b") as pilot:
        line = pilot.app.debugger.line
        line.value = "break kind=gemm and comp=sip0.cube0.pe4.pe_ge"
        await pilot.press("tab")
        assert line.value == "break kind=gemm and comp=sip0.cube0.pe4.pe_gemm "


async def test_many_candidates_are_counted(drive, as_text_of) -> None:
    async with drive(120, 40, ":") as pilot:
        pilot.app.debugger.line.value = "find comp="
        await pilot.press("tab")
        await pilot.pause()
        assert " words, as " in as_text_of(pilot.app)


# -- shortened commands, the ends of the log --


async def test_commands_of_the_line_may_be_shortened(session, drive) -> None:
    async with drive(80, 24) as pilot:
        await ask(
            pilot, "b name=dma_write and bytes>4096", "w hbm 0x4000:64", "fil kind=gemm"
        )
        assert [stop.kind for stop in session.stops.all] == ["break", "watch"]
        assert pilot.app.debugger.ops.where == "kind=gemm"


def test_a_shortened_command_completes_as_the_whole_one(session) -> None:
    assert candidates(session, "b ", "na") == ["name"]
    assert candidates(session, "exp ", "per") == ["perfetto"]


async def test_a_run_without_a_stop_says_which_end_it_came_to(
    drive, as_text_of
) -> None:
    async with drive(80, 24, "C") as pilot:
        assert "no further stop that way: the start of the log" in as_text_of(pilot.app)
        await pilot.press("c")
        assert "no further stop that way: the end of the log" in as_text_of(pilot.app)


async def test_reload_keeps_filter_search_and_window(trace_path) -> None:
    app = KernbenchApp(open_session(trace_path, 40), "matmul.msgpack")
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, "search gemm", "filter kind=gemm")
        await pilot.press(*"+++llllllll")
        was = app.debugger
        assert not was.timeline.t0 <= was.session.time < was.timeline.t1
        await pilot.press("R")
        await answered(pilot)
        now = app.debugger
        assert now is not was
        assert (now.sought, now.ops.where) == (was.sought, "kind=gemm")
        assert now.ops._kept.tolist() == was.ops._kept.tolist()
        assert (now.timeline.t0, now.timeline.t1) == (was.timeline.t0, was.timeline.t1)


async def test_reload_settles_the_memory_of_the_new_trace(
    trace_path, monkeypatch
) -> None:
    done: list[str] = []
    for name in ("unfreeze", "collect", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    app = KernbenchApp(open_session(trace_path, 40), "matmul.msgpack")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("R")
        await answered(pilot)
        await pilot.pause()
    assert done == ["unfreeze", "collect", "freeze"]


async def test_the_hash_of_a_crash_report_is_that_of_the_trace_shown(
    trace_path, tmp_path
) -> None:
    path, other = tmp_path / "x.msgpack", trace_path.with_name("fault_overflow.msgpack")
    shutil.copy(trace_path, path)
    app = KernbenchApp(open_session(path, 0), "x.msgpack")
    async with app.run_test(size=(80, 24)) as pilot:
        path.unlink()
        shutil.copy(other, path)
        await pilot.press("R")
        await answered(pilot)
        assert app.opened == open_session(other, 0).trace.fingerprint()

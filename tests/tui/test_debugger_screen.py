"""What keys, clicks, commands and resizes do to the debugger's screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.command import CommandList, CommandPalette
from textual.geometry import Region

from kernbench.replay.commands import COMMANDS
from kernbench.sim_engine.verify import compare
from tui.__main__ import open_session
from tui.ansi import screen_strips
from tui.app import KernbenchApp
from tui.screens.help import TextScreen


async def ask(pilot, line: str) -> None:
    await pilot.press(":")
    pilot.app.debugger.line.value = line
    await pilot.press("enter")
    await pilot.pause()


def region(pilot, number: int) -> Region:
    return pilot.app.debugger.panes[number].region


MOVES = {
    "s": 41,
    "S": 39,
    "n": 48,
    "N": 32,
    "ssS": 41,
    "g": 0,
    "G": 151,
    "gS": -1,
    "gSS": -1,
}
MOVES |= {"Gs": 151, "gSs": 0}


async def test_moving_keys(session, drive) -> None:
    async with drive(80, 24) as pilot:
        for keys, op in MOVES.items():
            session.goto(40)
            await pilot.press(*keys)
            assert session.cursor == op, keys


async def test_u_and_d_change_what_n_steps_in(session, drive, as_text_of) -> None:
    session.goto(48)
    async with drive(80, 24, "u") as pilot:
        assert "> [pe4] > pe_dma" in as_text_of(pilot.app)
        await pilot.press("n")
        assert session.cursor == 56  # a fetch; the next op of the DMA is 120
        await pilot.press("d")
        assert "> pe4 > [pe_fetch_store]" in as_text_of(pilot.app)


async def test_n_at_the_last_op_of_the_focus_says_so(
    session, drive, as_text_of
) -> None:
    session.goto(151)
    async with drive(80, 24, "n") as pilot:
        assert "no further op that way in the focus" in as_text_of(pilot.app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_every_pane_follows_the_cursor(size, session, drive) -> None:
    async with drive(*size, "z") as pilot:
        wanted = ["pe_gemm", "> 100", "0,0,0", "op ", "stays inside", "op 100 GEMM"]
        for number, shown in enumerate(wanted, 1):
            pilot.app.debugger.run("goto 16")
            await pilot.press(str(number))
            pilot.app.debugger.run("goto 100")
            await pilot.pause()
            pane = pilot.app.debugger.panes[number]
            text = "\n".join(strip.text for strip in pane._strips)
            assert shown in text, f"pane {number}:\n{text}"


async def test_a_hidden_pane_asks_the_session_nothing(
    session, drive, monkeypatch
) -> None:
    asked = []
    monkeypatch.setattr(type(session), "route", lambda self, op=None: asked.append(op))
    async with drive(80, 24, "2", "s", "s"):
        assert not asked


async def test_opens_fitted_to_the_launch(session, drive) -> None:
    async with drive(80, 24) as pilot:
        timeline = pilot.app.debugger.timeline
        low, high = session.launch_window()
        assert timeline.t0 < low < high < timeline.t1 < 2 * high
        assert timeline.t1 - timeline.t0 < 1.1 * (high - low)


async def test_timeline_goes_where_the_cursor_goes(session, drive) -> None:
    async with drive(80, 24, "g") as pilot:
        timeline = pilot.app.debugger.timeline
        assert timeline.t0 <= session.time < timeline.t1


async def test_zoom_pan_and_fit(drive) -> None:
    async with drive(80, 24) as pilot:
        timeline = pilot.app.debugger.timeline
        fitted = timeline.t0, timeline.t1
        await pilot.press("+", "+")
        assert timeline.t1 - timeline.t0 == pytest.approx((fitted[1] - fitted[0]) / 4)
        await pilot.press("-")
        assert timeline.t1 - timeline.t0 == pytest.approx((fitted[1] - fitted[0]) / 2)
        before = timeline.t0
        await pilot.press("l", "right", "left")
        assert timeline.t0 - before == pytest.approx((timeline.t1 - timeline.t0) / 8)
        await pilot.press("h", "0")
        assert (timeline.t0, timeline.t1) == fitted


async def test_the_timeline_follows_the_last_op_no_further_than_the_end_of_the_run(
    session, drive
) -> None:
    session.goto(0)
    async with drive(80, 24, "1", "+", "+", "G") as pilot:
        timeline = pilot.app.debugger.panes[1]
        span = timeline.t1 - timeline.t0
        assert timeline.t0 <= session.time < timeline.t1
        assert timeline.t1 == pytest.approx(timeline.end + span / 50)


async def test_enter_on_a_component_goes_to_its_op(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "1", "j", "enter"):
        assert (
            session.trace.ops[session.cursor].component_id
            == "sip0.cube0.pe4.pe_fetch_store"
        )


async def test_enter_on_a_row_of_ops_goes_there(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "2", "j", "j", "k", "enter"):
        assert session.cursor == 41


async def test_rows_end_and_home(session, drive) -> None:
    async with drive(80, 24, "2", "end", "enter") as pilot:
        assert session.cursor == 151
        await pilot.press("home", "enter")
        assert session.cursor == 0
        await pilot.press("pagedown", "enter")
        assert 5 < session.cursor < 20
        await pilot.press("pageup", "enter")
        assert session.cursor == 0


async def test_click_on_a_row_of_ops_goes_there(session, drive) -> None:
    session.goto(40)
    async with drive(200, 50) as pilot:
        pane = pilot.app.debugger.panes[2]
        await pilot.click(pane, offset=(10, 2 + 41 - pane.top))
        await pilot.pause()
        assert session.cursor == 41
        assert pilot.app.debugger.active == 2


async def test_enter_on_an_allocation_keeps_its_tensor(
    session, drive, as_text_of
) -> None:
    session.goto(40)
    async with drive(80, 24, "4", "j", "j", "enter", "s") as pilot:
        assert " c (kept: Esc lets go) f16 128x128" in as_text_of(pilot.app)
        await pilot.press("j", "j", "enter")
        assert pilot.app.debugger.panes[4].kept is None


async def test_numbers_pan_and_page(session, drive, as_text_of) -> None:
    session.goto(40)
    async with drive(80, 24, "4", "v", *"lllllllll", "pagedown") as pilot:
        text = as_text_of(pilot.app)
        assert "  7         8         9" in text
        assert "\n    7 " in text


async def test_changed_numbers_are_marked_and_in_view(
    session, drive, as_text_of
) -> None:
    session.goto(17)
    async with drive(80, 24, "4") as pilot:
        text = as_text_of(pilot.app)
        assert " c f16 128x128" in text
        assert "2,048 changed*" in text
        assert "12,288 never written" in text


async def test_diff_pans(session, drive, as_text_of) -> None:
    session.goto(17)
    async with drive(80, 24, "6", *"llll", "j") as pilot:
        assert "3         4         3         4" in as_text_of(pilot.app)


async def test_number_keys_brackets_and_tab_choose_the_pane(drive) -> None:
    async with drive(80, 24, "4") as pilot:
        screen = pilot.app.debugger
        assert (screen.active, screen.panes[4].display, screen.panes[2].display) == (
            4,
            True,
            False,
        )
        for key, active in (
            ("]", 5),
            ("[", 4),
            ("[", 3),
            ("tab", 4),
            ("shift+tab", 3),
            ("1", 1),
        ):
            await pilot.press(key)
            assert screen.active == active, key
        assert screen.panes[3].display


async def test_z_maximises_and_escape_goes_back(drive) -> None:
    async with drive(80, 24, "5", "z") as pilot:
        await pilot.pause()
        assert region(pilot, 5) == Region(0, 2, 80, 21)
        assert not pilot.app.debugger.panes[1].display
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.debugger.panes[1].display


async def test_large_screen_shows_all_panes_without_overlap(drive) -> None:
    async with drive(200, 50) as pilot:
        screen = pilot.app.debugger
        regions = [region(pilot, n) for n in (1, 2, 3, 4, 5, 6)] + [screen.tabs.region]
        assert sum(r.area for r in regions) == 200 * 47
        assert not any(a.overlaps(b) for a in regions for b in regions if a is not b)


async def test_resizing_to_nothing_and_back_keeps_cursor_pane_and_pick(
    session, drive
) -> None:
    session.goto(40)
    async with drive(120, 40, "2", "j") as pilot:
        for size in ((60, 16), (5, 2), (200, 50), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        screen = pilot.app.debugger
        assert (session.cursor, screen.active, screen.panes[2].pick) == (40, 2, 41)


async def test_small_screen_says_what_it_wants(drive, as_text_of) -> None:
    async with drive(50, 12) as pilot:
        assert "wants 60x16" in as_text_of(pilot.app)


async def test_command_line_moves_all_panes(session, drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "goto 40")
        assert session.cursor == 40
        assert "op 40/151" in as_text_of(pilot.app)
        await pilot.press("s")
        assert session.cursor == 41


ERRORS = {
    "goto 999": "error: no op 999; this trace has ops 0 to 151",
    "frobnicate": "error: unknown command 'frobnicate'; help lists all",
    "memory nothing": "error: no tensor 'nothing'",
    "goto": "error: goto: takes",
    "reload now": "error: reload: takes no arguments, got now",
    "filter ((": "error: expression '((', column 3: it ends",
    "history nowhere 0:4": "this trace's spaces: hbm",
    "serach x": "did you mean search?",
}


async def test_command_errors_are_said_until_the_next_key(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        for line, said in ERRORS.items():
            await ask(pilot, line)
            assert said in as_text_of(pilot.app)
            await pilot.press("escape")
            assert said not in as_text_of(pilot.app)


async def test_other_answers_open_a_page_that_escape_leaves(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "info")
        assert isinstance(pilot.app.screen, TextScreen)
        assert "bench      matmul" in as_text_of(pilot.app)
        await pilot.press("escape")
        assert pilot.app.screen is pilot.app.debugger


async def test_every_command_without_arguments_can_be_asked(
    session, drive, as_text_of
) -> None:
    async with drive(80, 24) as pilot:
        for name in [c.name for c in COMMANDS if not c.args or c.args[0] == "["]:
            session.goto(40)
            pilot.app.debugger.run(name)
            while pilot.app.debugger._asked is not None:
                await pilot.pause()
                pilot.app.debugger.look()
            await pilot.pause()
            assert "error:" not in as_text_of(pilot.app), name
            while len(pilot.app.screen_stack) > 2:
                pilot.app.pop_screen()


async def test_command_line_completes_remembers_and_leaves(session, drive) -> None:
    async with drive(80, 24, ":", *"got", "tab", *"50", "enter", "s") as pilot:
        line = pilot.app.debugger.line
        assert session.cursor == 51
        await pilot.press(":", "up")
        assert line.value == "goto 50"
        await pilot.press("escape", "s")
        assert not line.display
        assert session.cursor == 52


async def test_completion_hints_at_what_is_open(drive, as_text_of) -> None:
    async with drive(80, 24, ":") as pilot:
        pilot.app.debugger.line.value = "memory "
        await pilot.press("tab")
        await pilot.pause()
        assert "a  b  c" in as_text_of(pilot.app)


async def test_before_the_first_op_panes_name_the_key_that_fills_them(
    session, drive, as_text_of
) -> None:
    session.to_start()
    async with drive(80, 24) as pilot:
        for key in "2456":
            await pilot.press(key)
            assert "s steps" in as_text_of(pilot.app).split("op log")[-1], key


async def test_palette_runs_an_action(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "ctrl+p", *"last op") as pilot:
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert session.cursor == 151


async def test_a_page_key_before_the_palette_has_drawn_its_list_does_nothing(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr(CommandList, "_update_lines", lambda self: None)
    async with drive(80, 24, "ctrl+p") as pilot:
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert pilot.app.screen.query_one(CommandList).highlighted == 0
        await pilot.press("pagedown", "pageup")
        assert isinstance(pilot.app.screen, CommandPalette)


async def test_q_quits(drive) -> None:
    async with drive(80, 24, "q") as pilot:
        await pilot.pause()
        assert not pilot.app.is_running


async def test_redraw_changes_nothing(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        before = as_text_of(pilot.app)
        await pilot.press("ctrl+l")
        await pilot.pause()
        assert as_text_of(pilot.app) == before


@pytest.mark.parametrize(("share", "ops"), [(0.5, 0), (0.93, 152)])
async def test_a_cut_file_opens_and_says_so(
    share, ops, trace_path, tmp_path, as_text_of
) -> None:
    data = trace_path.read_bytes()
    path = tmp_path / "cut.msgpack"
    path.write_bytes(data[: int(len(data) * share)])
    session = open_session(path, None)
    assert len(session) == ops
    app = KernbenchApp(session, path.name)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(
            "g", "s", "n", "G", "S", "N", "+", *"23456", "j", "enter", "1", "enter"
        )
        await pilot.pause()
        assert "file cut off" in as_text_of(app)


async def test_diff_opens_at_the_first_mismatch_and_marks_it(
    session, drive, as_text_of, monkeypatch
) -> None:
    session.goto(17)
    good = session.diff()
    expected = good.expected.copy()
    expected[70, 5] += 1.0
    row = compare(good.actual, expected, good.row.tolerance, good.name)
    bad = replace(good, row=row, expected=expected, error=good.actual - expected)
    monkeypatch.setattr(session, "diff", lambda op: bad)
    async with drive(80, 24, "6") as pilot:
        text = as_text_of(pilot.app)
        assert "DIFFERS! 1 of 2,048 bad" in text
        first = next(line for line in text.splitlines() if line.startswith("   70 "))
        assert first.count("!") == 3
        assert "         5         6         5         6" in text


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_no_color_leaves_no_colour(size, session, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = KernbenchApp(session, "matmul.msgpack")
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        strips = screen_strips(app.screen)
        colours = {
            colour
            for strip in strips
            for segment in strip
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None and not colour.is_default
        }
        assert not colours


async def test_ctrl_c_is_back_and_ctrl_q_is_no_key(drive, as_text_of) -> None:
    async with drive(80, 24, "z", "ctrl+c") as pilot:
        assert not pilot.app.debugger.maximised
        await pilot.press(":", *"abc", "ctrl+c")
        assert not pilot.app.debugger.line.display
        await pilot.press("?", "ctrl+c")
        assert pilot.app.screen is pilot.app.debugger
        before = as_text_of(pilot.app)
        await pilot.press("ctrl+q", "ctrl+c")
        assert pilot.app.is_running
        assert as_text_of(pilot.app) == before

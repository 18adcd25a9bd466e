"""What keys, commands and resizes do to the debugger's screen as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
)
from textual.command import CommandList, CommandPalette
from textual.geometry import Region

from kernbench.replay.commands import listed
from kernbench.runtime_api import run_bench
from tui.__main__ import open_session
from tui.actions import ACTIONS
from tui.ansi import screen_strips
from tui.app import KernbenchApp
from tui.screens.debugger import DebuggerScreen
from tui.screens.text import TextScreen

TIMELINE = 1
MEMORY = 4


def region(pilot, number: int) -> Region:
    return pane_of(pilot, number).region


def ops_of(session, component: str) -> list[int]:
    """The ops that a component serves, in order."""
    node = session.trace.node_index[component]
    return session.index.op_index.ops_of(node).tolist()


def said(pilot) -> str:
    """The message above the footer, if there is one."""
    notice = pilot.app.debugger.notice
    return str(notice.render()) if notice.display else ""


# -- moves --------------------------------------------------------------------------

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
    "Gs": 151,
    "gSs": 0,
}


async def test_moving_keys(session, drive) -> None:
    async with drive(80, 24) as pilot:
        for keys, op in MOVES.items():
            session.goto(40)
            await pilot.press(*keys)
            assert session.cursor == op, keys


async def test_u_and_d_change_what_n_steps_in(session, drive, as_text_of) -> None:
    reads = ops_of(session, "sip0.cube0.pe4.pe_dma")
    fetches = ops_of(session, "sip0.cube0.pe4.pe_fetch_store")
    session.goto(reads[3])
    async with drive(80, 24, "u") as pilot:
        assert "> [pe4] > pe_dma" in as_text_of(pilot.app)
        await pilot.press("n")
        assert session.cursor == fetches[0] < reads[4]
        await pilot.press("d")
        await pilot.pause()
        assert "> pe4 > [pe_fetch_store]" in as_text_of(pilot.app)


async def test_n_at_the_last_op_of_the_focus_says_so(
    session, drive, as_text_of
) -> None:
    session.goto(151)
    async with drive(80, 24, "n") as pilot:
        assert "no further op that way in the focus" in as_text_of(pilot.app)


@pytest.mark.parametrize(
    ("op", "key", "told"),
    [
        (151, "f", "no later stage of a tile, and nothing began here"),
        (0, "F", "this is a tile's first stage, or no stage of one"),
        (0, "d", "the focus is the whole machine, or as narrow as it can be"),
    ],
)
async def test_a_key_that_leads_nowhere_says_so(op, key, told, session, drive) -> None:
    """These did nothing, and said nothing."""
    session.goto(op)
    async with drive(80, 24, key) as pilot:
        assert said(pilot).startswith(told)


async def test_what_could_not_be_done_is_said_until_the_next_key(
    session, drive
) -> None:
    session.goto(151)
    async with drive(80, 24, "s") as pilot:
        assert said(pilot) == "no further op that way"
        await pilot.press("S")
        assert said(pilot) == ""


@pytest.mark.slow
async def test_the_pane_in_view_follows_the_cursor(session, drive, settle) -> None:
    session.goto(40)
    async with drive(80, 24, "2", "s") as pilot:
        await settle(pilot)
        assert "\n>  41 " in pane_of(pilot, 2).text


# -- keys of panes ------------------------------------------------------------------


@pytest.mark.slow
async def test_zoom_pan_and_fit_are_of_the_timeline_whichever_pane_is_active(
    drive,
) -> None:
    async with drive(80, 24, "2") as pilot:

        def shown() -> tuple[float, float]:
            window: tuple[float, float] = state_of(pilot, TIMELINE).window
            return window

        def span() -> float:
            return shown()[1] - shown()[0]

        fitted = shown()
        whole = span()
        await pilot.press("+", "+")
        assert span() == pytest.approx(whole / 4)
        await pilot.press("-")
        assert span() == pytest.approx(whole / 2)
        before = shown()[0]
        await pilot.press("l", "right", "left")
        assert shown()[0] - before == pytest.approx(span() / 8)
        await pilot.press("h", "0")
        assert shown() == fitted


@pytest.mark.slow
async def test_a_pane_that_can_be_panned_is_panned_itself(drive, session) -> None:
    session.goto(40)
    async with drive(80, 24, "4", "v") as pilot:
        await settled(pilot)
        window = state_of(pilot, TIMELINE).window
        await pilot.press("l")
        assert state_of(pilot, TIMELINE).window == window
        assert state_of(pilot, 4).cells.column == 1


async def test_enter_on_a_component_goes_to_its_op(session, drive) -> None:
    session.goto(ops_of(session, "sip0.cube0.pe4.pe_dma")[2])
    async with drive(80, 24, "1", "j", "enter"):
        component = session.trace.ops[session.cursor].component_id
        assert component == "sip0.cube0.pe4.pe_fetch_store"


@pytest.mark.slow
async def test_keys_go_through_the_rows_of_a_pane(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "2", "j", "j", "k", "enter") as pilot:
        assert session.cursor == 41
        await pilot.press("end", "enter")
        assert session.cursor == 151
        await pilot.press("home", "enter")
        assert session.cursor == 0
        await pilot.press("pagedown", "enter")
        assert 5 < session.cursor < 20
        await pilot.press("pageup", "enter")
        assert session.cursor == 0


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("2v", "Ops has one view only"),
        ("2J", "no further changed number (4 Memory) or mismatch (6 Diff) that way"),
        ("2p", "rows of the timeline can be pinned: 1 shows it, j and k pick a row"),
        ("0", "the timeline is fitted to the launches"),
    ],
)
@pytest.mark.slow
async def test_a_key_that_a_pane_has_no_use_for_says_so(keys, text, drive) -> None:
    async with drive(80, 24, *keys) as pilot:
        assert said(pilot) == text


async def test_what_is_zoomed_in_and_out_is_fitted_as_before(drive) -> None:
    """It was 1e-10 ns beside that: all was computed anew for a picture alike."""
    async with drive(80, 24, "plus", "l", "h", "minus", "0") as pilot:
        assert said(pilot) == "the timeline is fitted to the launches"


async def test_what_was_said_of_a_key_is_gone_when_the_next_is_of_use(drive) -> None:
    async with drive(80, 24, "0", "plus", "0") as pilot:
        assert said(pilot) == ""


# -- layout -------------------------------------------------------------------------


async def test_number_keys_brackets_and_tab_choose_the_pane(drive) -> None:
    async with drive(80, 24, "4") as pilot:
        assert active_of(pilot) == 4
        assert pane_of(pilot, 4).display
        assert not pane_of(pilot, 2).display
        keys = ["]", "[", "[", "tab", "shift+tab", "1"]
        chosen = [5, 4, 3, 4, 3, 1]
        for key, active in zip(keys, chosen, strict=True):
            await pilot.press(key)
            assert active_of(pilot) == active, key
        assert pane_of(pilot, 3).display


@pytest.mark.slow
async def test_a_key_before_the_first_layout_ends_nothing(drive, monkeypatch) -> None:
    """The size of the terminal may come after the keys that were typed ahead."""
    plain = DebuggerScreen.lay_out
    monkeypatch.setattr(DebuggerScreen, "lay_out", lambda self: None)
    ending = {"quit", "suspend", "palette", "redraw"}
    async with drive(80, 24) as pilot:
        for action in ACTIONS:
            if action.id not in ending:
                pilot.app.debugger.act(action.id)
        monkeypatch.setattr(DebuggerScreen, "lay_out", plain)
        pilot.app.debugger.do_activate("ops")
        assert active_of(pilot) == 2
        assert region(pilot, 2).height > 0


@pytest.mark.slow
async def test_z_maximises_and_escape_goes_back(drive) -> None:
    async with drive(80, 24, "5", "z") as pilot:
        await settled(pilot)
        assert region(pilot, 5) == Region(0, 2, 80, 21)
        assert not pane_of(pilot, 1).display
        await pilot.press("escape")
        await pilot.pause()
        assert pane_of(pilot, 1).display


async def test_escape_lets_go_of_a_kept_tensor_before_the_maximised_pane(
    session, drive
) -> None:
    session.goto(17)
    async with drive(80, 24, "4") as pilot:
        await settled(pilot)
        await pilot.press("j", "enter", "z")
        await settled(pilot)
        pane = pane_of(pilot, MEMORY)
        assert " b (kept: Esc lets go) " in pane.text
        await pilot.press("escape")
        await settled(pilot)
        assert " c f16 128x128" in pane.text
        assert pilot.app.debugger.maximised
        await pilot.press("escape")
        assert not pilot.app.debugger.maximised


@pytest.mark.slow
async def test_large_screen_shows_all_panes_without_overlap(drive) -> None:
    async with drive(200, 50) as pilot:
        views = pilot.app.debugger.views.values()
        regions = [view.region for view in views if view.display]
        assert sum(r.area for r in regions) == 200 * 47
        assert not any(a.overlaps(b) for a in regions for b in regions if a is not b)


async def test_resizing_to_nothing_and_back_keeps_cursor_pane_and_pick(
    session, drive
) -> None:
    session.goto(40)
    async with drive(120, 40, "2", "j") as pilot:
        for size in ((60, 16), (5, 2), (80, 5), (200, 50), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert session.cursor == 40
        assert active_of(pilot) == 2
        assert state_of(pilot, 2).rows.pick == 41


async def test_small_screen_says_what_it_wants(drive, as_text_of) -> None:
    async with drive(50, 12) as pilot:
        assert "wants 60x16" in as_text_of(pilot.app)


# -- the command line ---------------------------------------------------------------


async def type_line(pilot, line: str) -> None:
    """Open the command line, and enter a command."""
    await pilot.press(":")
    pilot.app.debugger.line.value = line
    await pilot.press("enter")
    await answered(pilot)


@pytest.mark.slow
async def test_command_line_moves_all_panes(session, drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        await type_line(pilot, "goto 40")
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


@pytest.mark.slow
async def test_command_errors_are_said_until_the_next_key(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        for line, text in ERRORS.items():
            await type_line(pilot, line)
            assert text in as_text_of(pilot.app)
            await pilot.press("escape")
            await pilot.pause()
            assert text not in as_text_of(pilot.app)


@pytest.mark.slow
async def test_an_error_is_said_again_when_the_line_is_run_again(drive) -> None:
    async with drive(80, 24) as pilot:
        for _ in range(2):
            await type_line(pilot, "memory nothing")
            assert said(pilot).startswith("error: no tensor 'nothing'")
            await pilot.press("escape")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["c[0:2, :]", "c", "hbm 0x9000:64"])
async def test_the_history_of_a_place_opens_in_memory(place, session, drive) -> None:
    session.goto(40)
    async with drive(80, 24) as pilot:
        await ask(pilot, f"history {place}")
        await settled(pilot)
        assert active_of(pilot) == MEMORY
        touches = session.history_of(place).rows
        text = pane_of(pilot, MEMORY).text
        assert f" accesses to {place}: {len(touches)}, " in text
        await pilot.press("home", "enter")
        assert session.cursor == touches[0].op.op


@pytest.mark.slow
async def test_the_history_of_what_is_not_there_opens_nothing(drive) -> None:
    async with drive(80, 24, "2") as pilot:
        await ask(pilot, "history foo")
        assert "no tensor 'foo'" in said(pilot)
        assert active_of(pilot) == 2


async def test_other_answers_open_a_page_that_escape_leaves(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        await type_line(pilot, "info")
        assert isinstance(pilot.app.screen, TextScreen)
        assert "bench      matmul" in as_text_of(pilot.app)
        await pilot.press("escape")
        assert pilot.app.screen is pilot.app.debugger


WITHOUT_ARGUMENTS = [c.name for c in listed() if not c.usage or c.usage[0] == "["]


@pytest.mark.slow
async def test_every_command_without_arguments_can_be_asked(
    session, drive, as_text_of
) -> None:
    assert len(WITHOUT_ARGUMENTS) > 20
    async with drive(80, 24) as pilot:
        for name in WITHOUT_ARGUMENTS:
            session.goto(40)
            await ask(pilot, name)
            assert "error:" not in as_text_of(pilot.app), name
            while len(pilot.app.screen_stack) > 2:
                pilot.app.pop_screen()


# -- palette and end ------------------------------------------------------------------


async def test_palette_runs_an_action(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "ctrl+p", *"last op") as pilot:
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press("enter")
        await still(pilot)
        assert session.cursor == 151


async def test_a_search_of_a_palette_that_closes_ends_nothing(drive) -> None:
    async with drive(80, 24, "ctrl+p") as pilot:
        await pilot.app.screen.query_one(CommandList).remove()
        await pilot.press("f")
        await pilot.pause()
        assert pilot.app.is_running


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


@pytest.mark.slow
async def test_redraw_changes_nothing(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        await settled(pilot)
        before = as_text_of(pilot.app)
        await pilot.press("ctrl+l")
        await settled(pilot)
        assert as_text_of(pilot.app) == before


async def test_nothing_is_animated(drive) -> None:
    async with drive(80, 24) as pilot:
        assert pilot.app.animation_level == "none"


# -- damaged files --------------------------------------------------------------------


@pytest.mark.slow
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
    keys = ["g", "s", "n", "G", "S", "N", "+", *"23456"]
    opening = ["j", "enter", "escape", "1", "enter", "escape"]
    async with piloted(app, (80, 24)) as pilot:
        with fast_keys(app):
            await pilot.press(*keys)
            for key in opening:  # Enter opens a page if the pane has its answer
                await settled(pilot)
                await pilot.press(key)
        await settled(pilot)
        assert "file cut off" in as_text_of(app)


# -- colours, keys of the terminal ----------------------------------------------------


def colours_of(app):
    """The colours on the screen, but for those that the terminal has by itself."""
    return {
        colour
        for strip in screen_strips(app.screen)
        for segment in strip
        if segment.style is not None
        for colour in (segment.style.color, segment.style.bgcolor)
        if colour is not None and not colour.is_default
    }


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_no_color_leaves_no_colour(size, session, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = KernbenchApp(session, "matmul.msgpack")
    async with piloted(app, size) as pilot:
        await pilot.pause()
        assert not colours_of(app)


async def test_no_color_that_is_empty_forbids_nothing(session, monkeypatch) -> None:
    app = KernbenchApp(session, "matmul.msgpack")
    async with piloted(app, (80, 24)) as pilot:
        await settled(pilot)
        wanted = colours_of(app)
    monkeypatch.setenv("NO_COLOR", "")
    app = KernbenchApp(session, "matmul.msgpack")
    async with piloted(app, (80, 24)) as pilot:
        await settled(pilot)
        assert colours_of(app) == wanted
    assert len(wanted) > 2


@pytest.mark.slow
async def test_ctrl_c_is_back_and_ctrl_q_is_no_key(drive, as_text_of) -> None:
    async with drive(80, 24, "z") as pilot:
        await settled(pilot)
        await pilot.press("ctrl+c")
        assert not pilot.app.debugger.maximised
        await pilot.press(":", *"abc", "ctrl+c")
        assert not pilot.app.debugger.line.display
        await pilot.press("?", "ctrl+c")
        assert pilot.app.screen is pilot.app.debugger
        await still(pilot)
        before = as_text_of(pilot.app)
        await pilot.press("ctrl+q", "ctrl+c")
        await still(pilot)
        assert pilot.app.is_running
        assert as_text_of(pilot.app) == before


async def test_a_trace_whose_only_fault_is_a_race_does_not_look_clean(
    tmp_path: Path, as_text_of: Callable[[Any], str]
) -> None:
    path = tmp_path / "race.msgpack"
    run_bench("fault_scratch_reused", trace=path)
    app = KernbenchApp(open_session(path, None), path.name)
    async with piloted(app, (80, 24)) as pilot:
        await settled(pilot)
        first = as_text_of(app).splitlines()[0]
    assert "!1 HAZARD " in first
    assert "verify ok" in first


@pytest.mark.parametrize("key", ["5", "]", "z"])
async def test_a_key_that_moves_panes_never_shows_them_half_moved(
    drive, monkeypatch, as_text_of, key
) -> None:
    monkeypatch.setattr("tui.desk.KEY_S", 10.0)
    async with drive(120, 40) as pilot:
        await settled(pilot)
        before = as_text_of(pilot.app)
        shown = list[str]()
        drawn = pilot.app.on_frame

        def noted() -> None:
            shown.append(as_text_of(pilot.app))
            drawn()

        monkeypatch.setattr(pilot.app, "on_frame", noted)
        await pilot.press(key)
        await settled(pilot)
        assert set(shown) - {before} == {as_text_of(pilot.app)}

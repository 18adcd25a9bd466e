"""What the screen says: prompts, proposals, unbound keys, wrapping search, the log."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from desks import held
from pilots import active_of, ask, piloted, run, settled, shows, still, until

from kernbench.replay import ReplaySession
from kernbench.replay.commands import FITTING
from tui.__main__ import open_session, run_script
from tui.app import KernbenchApp
from tui.opening import OpeningApp
from tui.screens import command
from tui.screens.text import TextScreen

SIZES = [(80, 24), (120, 40)]


def last_line(app: Any, as_text_of: Any) -> str:
    line: str = as_text_of(app).splitlines()[-1]
    return line


# -- keys ---------------------------------------------------------------------------


async def test_a_key_that_has_no_meaning_says_so(drive, as_text_of) -> None:
    """It was silent."""
    async with drive(80, 24, "Q") as pilot:
        said = last_line(pilot.app, as_text_of)
        assert said.startswith(" Q has no meaning here; ? lists the keys")
        await pilot.press("s")
        assert "no meaning" not in as_text_of(pilot.app)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_nothing_that_is_said_covers_a_row_of_a_pane(
    size, drive, as_text_of
) -> None:
    """A message stood over the last row, which may be that of the cursor."""
    async with drive(*size, "2", "end", "enter") as pilot:
        await settled(pilot)
        for keys in (("Q",), ("!",), (":",), ("tab",)):
            await pilot.press(*keys)
            await still(pilot)
            view = pilot.app.debugger.views["ops"]
            screen = as_text_of(pilot.app).splitlines()
            y = view.region.y + len(view.picture.lines) - 1
            if size[0] < 100:
                assert "> 151" in screen[y], keys
            assert any("> 151" in line for line in screen), keys


# -- the line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "prompt", "text"),
    [(":", ":", ""), ("/", "/", ""), ("&", "&", ""), ("b", ":", "break ")],
)
@pytest.mark.slow
async def test_what_is_typed_stands_behind_a_prompt(
    key, prompt, text, session, drive, as_text_of
) -> None:
    session.goto(40)
    async with drive(80, 24, key) as pilot:
        await still(pilot)
        line = last_line(pilot.app, as_text_of)
        assert line.startswith(f"{prompt} {text}")
        await pilot.press("escape")
        await still(pilot)
        assert last_line(pilot.app, as_text_of).startswith(" s/S step")


async def test_the_line_proposes_what_may_follow(drive, as_text_of) -> None:
    async with drive(80, 24, ":", "b", "l") as pilot:
        await still(pilot)
        assert as_text_of(pilot.app).splitlines()[-2].strip() == "blame"
        await pilot.press("backspace")
        await still(pilot)
        proposed = as_text_of(pilot.app).splitlines()[-2].split()
        assert {"back", "blame", "break"} <= {*proposed}


@pytest.mark.slow
async def test_what_is_typed_behind_the_slash_is_searched(session, drive) -> None:
    async with drive(80, 24, "g", "/", *"gemm", "enter") as pilot:
        await settled(pilot)
        assert "gemm" in session.trace.ops[session.cursor].op_name.lower()


# -- search -------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_search_goes_on_from_the_other_end_and_says_so(
    session, drive, as_text_of
) -> None:
    """It ended with an error."""
    fitting = session.index.fitting("kind=gemm").tolist()
    session.goto(fitting[-1])
    async with drive(120, 40) as pilot:
        await ask(pilot, "search kind=gemm")
        assert session.cursor == fitting[0]
        assert "search wrapped: the first of" in as_text_of(pilot.app)
        await pilot.press("f15")
        await settled(pilot)
        assert session.cursor == fitting[-1]
        assert "search wrapped: the last of" in as_text_of(pilot.app)


@pytest.mark.slow
async def test_a_search_that_nothing_fits_is_still_an_error(drive, as_text_of) -> None:
    async with drive(120, 40) as pilot:
        await ask(pilot, "search kind=math and kind=gemm")
        assert "error: no op after" in as_text_of(pilot.app)


# -- the palette ----------------------------------------------------------------------


@pytest.mark.slow
async def test_the_palette_finds_what_has_the_words_in_it(drive, as_text_of) -> None:
    """It found "fit marks" for hbm."""
    async with drive(120, 40, "ctrl+p", *"marks") as pilot:
        await pilot.app.workers.wait_for_complete()
        await still(pilot)
        assert "fit marks" in as_text_of(pilot.app)
        await pilot.press(*["backspace"] * 5, *"hbm")
        await pilot.app.workers.wait_for_complete()
        await still(pilot)
        assert "fit marks" not in as_text_of(pilot.app)


# -- what was done --------------------------------------------------------------------


@pytest.mark.slow
async def test_what_was_done_is_a_script_that_runs_again(
    session, drive, tmp_path, trace_path, capsys
) -> None:
    file = tmp_path / "done.txt"
    async with drive(80, 24, "g", "s", "s", "n") as pilot:
        await ask(pilot, "mark a", "break kind=gemm", "continue", "who-wrote c[3,17]")
        await pilot.press("escape")
        run(pilot, f"log {file}")
        stood = session.cursor
        stops = [stop.what for stop in session.stops]
    again = open_session(trace_path, None)
    run_script(again, str(file))
    assert again.cursor == stood
    assert [stop.what for stop in again.state.stops] == stops
    assert "composite_gemm" in capsys.readouterr().out


async def test_what_could_not_be_done_is_no_line_of_the_script(drive) -> None:
    """A script ends at the first line that fails."""
    async with drive(80, 24) as pilot:
        await ask(pilot, "goto 20", "goto 999", "memory nowhere", "find kind=math")
        assert pilot.app.debugger.done[1:] == ["goto 20"]


async def test_what_was_not_waited_for_is_no_line_of_the_script(drive) -> None:
    """Another question is refused meanwhile, and a move takes the place of a search."""
    async with drive(80, 24) as pilot:
        with held(FITTING):
            run(pilot, "find kind=gemm")
            run(pilot, "verify")
            run(pilot, "goto 20")
        assert pilot.app.debugger.done[1:] == ["goto 20"]


async def test_a_search_that_wrapped_is_noted_as_where_it_led(drive) -> None:
    """A script does not search on from the other end."""
    async with drive(80, 24) as pilot:
        await ask(pilot, "goto end", "find kind=gemm")
        assert pilot.app.debugger.done[1:] == ["goto end", "goto 16"]


async def test_the_shell_command_of_what_was_done_is_shown_and_copied(
    session, drive, as_text_of, trace_path, monkeypatch
) -> None:
    copied: list[str] = []
    monkeypatch.setattr(
        "tui.screens.command.copy", lambda text, _: copied.append(text) or "there"
    )
    session.goto(40)
    async with drive(120, 40) as pilot:
        await ask(pilot, "who-wrote c[3,17]")
        shell = f"kernbench trace who-wrote {trace_path} 'c[3,17]' --op 40"
        assert f"$ {shell}" in " ".join(as_text_of(pilot.app).split())
        await pilot.press("escape")
        await still(pilot)
        await pilot.press("!")
        assert copied == [shell]


# -- pages of text --------------------------------------------------------------------


async def page_of_blame(pilot: Any) -> TextScreen:
    await ask(pilot, "blame c[3,17]")
    page = pilot.app.screen
    assert isinstance(page, TextScreen)
    return page


async def test_a_page_is_searched_and_wraps(session, drive) -> None:
    session.goto(151)
    async with drive(80, 24) as pilot:
        page = await page_of_blame(pilot)
        await pilot.press("/", *"host_write", "enter")
        await still(pilot)
        head, *rows = page.text.splitlines()
        assert "'host_write' in 2 lines" in head
        assert any("host_write" in row for row in rows)
        await pilot.press("f3", "f3")
        await still(pilot)
        assert "search wrapped" in page.text.splitlines()[0]
        await pilot.press("/", *"nowhere", "enter")
        await still(pilot)
        assert "no line has 'nowhere'" in page.text.splitlines()[0]


async def test_a_page_folds_to_its_first_level_and_back(session, drive) -> None:
    session.goto(151)
    async with drive(80, 24) as pilot:
        page = await page_of_blame(pilot)
        whole = page.text
        await pilot.press("z")
        await still(pilot)
        assert len(page.text.splitlines()) < len(whole.splitlines())
        assert all(not line.startswith("  ") for line in page.text.splitlines()[1:])
        head = page.text.splitlines()[0]
        levels = int(head.partition(" levels")[0].split()[-1])
        await pilot.press(*"z" * (levels - 1))
        await still(pilot)
        assert page.text == whole


@pytest.mark.slow
async def test_enter_on_a_blame_goes_to_the_suspect(trace_path, as_text_of) -> None:
    path = trace_path.with_name("fault_overflow.msgpack")
    session = open_session(path, None)
    async with piloted(KernbenchApp(session, path.name), (120, 40), "6") as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await shows(pilot, "first suspect: op 2 exp", as_text_of)
        await pilot.press("enter")
        await settled(pilot)
        assert session.cursor == 2
        assert active_of(pilot) == 6


# -- a trace that is read -----------------------------------------------------------


@pytest.mark.slow
async def test_keys_that_are_pressed_while_a_trace_is_read_wait_for_it(
    trace_path: Path,
) -> None:
    """They were lost."""

    def read_slowly(path: Path, on_frame: Any) -> ReplaySession:
        may_read.wait(10)
        return open_session(path, None, on_frame)

    may_read = threading.Event()
    app = OpeningApp(trace_path, {}, read_slowly)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s", "s")
        may_read.set()
        for _ in range(200):
            await pilot.pause(0.02)
            if hasattr(app, "debugger") and app.screen is app.debugger:
                break
        await settled(pilot)
        session: ReplaySession = app.debugger.desk.replay
        assert session.cursor == open_session(trace_path, None).cursor + 2


LEVELS = [
    "a tree",
    "  one",
    "    one of one",
    "      deepest",
    "  two",
    "",
    "a second",
]


async def shown_page(pilot: Any) -> TextScreen:
    """A page of lines that are further and further in."""
    lines: list[Any] = [[(text, "")] for text in LEVELS]
    pilot.app.debugger.show_text("levels", lines)
    await still(pilot)
    page = pilot.app.screen
    assert isinstance(page, TextScreen)
    return page


@pytest.mark.slow
async def test_folds_show_a_level_more_each_time(drive) -> None:
    async with drive(80, 24) as pilot:
        page = await shown_page(pilot)
        seen = []
        for _ in range(4):
            await pilot.press("z")
            await still(pilot)
            lines = [line.rstrip() for line in page.text.splitlines()[1:]]
            seen.append([line for line in lines if line])
        assert seen[0] == ["a tree  … 5", "a second"]
        assert seen[1] == ["a tree", "  one  … 2", "  two  … 1", "a second"]
        assert seen[2][2] == "    one of one  … 1"
        assert seen[3] == [line for line in LEVELS if line]


async def test_a_fold_keeps_the_line_on_top_or_what_holds_it(drive) -> None:
    async with drive(80, 2) as pilot:
        page = await shown_page(pilot)
        await pilot.press("j", "j", "j")
        await still(pilot)
        assert page.text.splitlines()[1].startswith("      deepest")
        await pilot.press("z")
        await still(pilot)
        assert page.text.splitlines()[1].startswith("a tree")


@pytest.mark.parametrize("key", ["s", "Q", "x"])
async def test_a_key_without_a_meaning_on_a_page_says_so(key, drive) -> None:
    async with drive(80, 24) as pilot:
        page = await shown_page(pilot)
        await pilot.press(key)
        await still(pilot)
        head = page.text.splitlines()[0]
        assert f"{key} has no meaning on a page; Esc goes back" in head
        await pilot.press("j")
        await still(pilot)
        assert "has no meaning" not in page.text.splitlines()[0]
        assert pilot.app.screen is page


@pytest.mark.slow
async def test_the_list_of_stops_answers_such_keys_too(drive) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "b name=dma_write")
        await pilot.press("B")
        await still(pilot)
        await pilot.press("Q")
        await still(pilot)
        assert "Q has no meaning on a page" in pilot.app.screen.text.splitlines()[0]


# -- keys while another trace is read -------------------------------------------------


@pytest.fixture
def may_read(monkeypatch) -> threading.Event:
    """Once set, traces are read that replace the one on screen."""
    read = command._opened
    event = threading.Event()

    def read_slowly(path: Path) -> ReplaySession:
        event.wait(10)
        return read(path)

    monkeypatch.setattr(command, "_opened", read_slowly)
    return event


async def replaced(pilot: Any, old: Any) -> ReplaySession:
    """The session of the screen that comes in place of the old one."""
    await until(pilot, lambda: pilot.app.debugger is not old)
    await settled(pilot)
    session: ReplaySession = pilot.app.debugger.desk.replay
    return session


@pytest.mark.slow
@pytest.mark.parametrize("line", ["", "open"])
async def test_keys_typed_while_another_trace_is_read_wait_for_it(
    line: str, drive, session, trace_path, may_read
) -> None:
    session.goto(40)
    async with drive(120, 40) as pilot:
        old = pilot.app.debugger
        if line:
            run(pilot, f"open {trace_path.with_name('flash_attention.msgpack')}")
        else:
            await pilot.press("R")
        await pilot.press("s", "s", ":", *"goto 7", "enter", "s")
        assert session.cursor == 40
        assert "11 keys kept for then, Esc gives up" in old.said
        assert not old.is_idle  # a run that goes on leaves the screen as it is
        may_read.set()
        new = await replaced(pilot, old)
        assert new is not session
        assert new.cursor == 8


async def test_esc_gives_up_what_is_read_and_keys_are_the_old_ones_again(
    drive, session, may_read
) -> None:
    session.goto(40)
    async with drive(120, 40) as pilot:
        old = pilot.app.debugger
        await pilot.press("R", "s", "escape")
        await until(pilot, lambda: not old.reads)
        assert old.said.startswith("given up")
        may_read.set()
        await pilot.press("s")
        await settled(pilot)
        assert pilot.app.debugger is old
        assert session.cursor == 41

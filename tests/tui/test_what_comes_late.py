"""What comes late takes no key that the user types, and what was done goes on."""

from __future__ import annotations

import shutil

import pytest
from desks import TRACES
from pilots import settled, still, until
from terminals import opened, program_of
from textual import events

from tui.screens import command
from tui.screens.text import TextScreen

# -- answers over what is typed -------------------------------------------------------


@pytest.mark.parametrize("over", ["a line", "the palette"])
@pytest.mark.slow
async def test_an_answer_waits_until_what_is_typed_is_run_or_left(
    over, session, drive, monkeypatch
) -> None:
    monkeypatch.setattr(command, "KEY_S", 0.0)
    session.goto(16)
    async with drive(120, 40) as pilot:
        await settled(pilot)
        screen = pilot.app.debugger
        if over == "the palette":
            await pilot.press("ctrl+p")
        on_top = pilot.app.screen
        screen.run_line("verify")
        assert screen.asked is not None
        if over == "a line":
            screen.line.open()
        await until(pilot, lambda: not screen.runner.busy)
        await still(pilot)
        screen.look(rested=True)
        await pilot.press(*"goto 40")
        assert pilot.app.screen is on_top
        if over == "a line":
            assert screen.line.value == "goto 40"
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))
            assert session.cursor == 40
        else:
            await pilot.press("escape")
            screen.look(rested=True)
            await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))
        await still(pilot)
        assert "verify" in pilot.app.screen.text


async def test_a_key_of_a_page_does_nothing_below_it(session, drive) -> None:
    session.goto(16)
    async with drive(120, 40, *":goto 40") as pilot:
        screen = pilot.app.debugger
        screen.show_text("a page", [[("some text", "")]])
        await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))
        await pilot.press("enter")
        await still(pilot)
        assert pilot.app.screen is screen
        assert session.cursor == 16
        assert screen.line.value == "goto 40"


async def test_what_is_pasted_into_a_search_of_a_page_is_sought(drive) -> None:
    async with drive(120, 40, "?", "slash") as pilot:
        pilot.app.post_message(events.Paste("palette\nand more"))
        await still(pilot)
        assert "/ palette_" in pilot.app.screen.text.splitlines()[0]


async def test_a_page_pauses_what_plays(drive) -> None:
    async with drive(120, 40, "space") as pilot:
        screen = pilot.app.debugger
        assert screen.playing is not None
        screen.show_text("a page", [[("some text", "")]])
        assert screen.playing is None


# -- what was done --------------------------------------------------------------------


@pytest.mark.slow
async def test_the_log_begins_where_the_user_did_and_goes_on_after_a_reload(
    session, drive
) -> None:
    async with drive(120, 40) as pilot:
        session.goto(40)  # as what was kept of an earlier time is taken over
        await pilot.press("S")
        first = pilot.app.debugger
        assert first.done == ["goto 40", "step -1"]
        await pilot.press(*":goto 30", "enter")
        await pilot.press("R")
        await until(pilot, lambda: pilot.app.debugger is not first)
        await settled(pilot)
        screen = pilot.app.debugger
        await pilot.press("s")
        assert screen.done == ["goto 40", "step -1", "goto 30", "step 1"]
        await pilot.press("o")  # back to where a jump left from
        assert screen.session.cursor == 39
        await pilot.press(":", "up")
        assert screen.line.value == "goto 30"


# -- the terminal ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("turns", [4, pytest.param(16, marks=pytest.mark.soak)])
def test_nothing_stale_is_left_where_the_window_shrinks_as_keys_draw(
    turns, tmp_path
) -> None:
    trace = TRACES / "matmul.msgpack"
    with opened(trace, state=tmp_path, size=(200, 50)) as terminal:
        terminal.until("Timeline")
        for count in range(turns):
            terminal.resize(200, 50)
            terminal.read(0.4)
            terminal.press("sssSSSsss"[: 1 + count % 9], 0.003 * (count % 4))
            terminal.resize(80, 24)
            terminal.read(0.7)
            before = terminal.text
            terminal.press("\x0c", 0.5)
            assert terminal.text == before
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.slow
def test_the_screen_is_as_large_as_the_terminal_whatever_was_said(tmp_path) -> None:
    late = (
        "from textual import events\n"
        "from textual.geometry import Size\n"
        "from tui.lifecycle import TerminalApp\n"
        "taken = TerminalApp.on_event\n"
        "async def stale(self, event):\n"
        "    if isinstance(event, events.Resize) and event.size.width == 90:\n"
        "        event = events.Resize(Size(60, 16), Size(60, 16))\n"
        "    await taken(self, event)\n"
        "TerminalApp.on_event = stale"
    )
    trace = TRACES / "matmul.msgpack"
    program = program_of(late)
    with opened(trace, program=program, state=tmp_path) as terminal:
        terminal.until("q quit")
        terminal.resize(90, 24)
        terminal.read(1.0)
        assert terminal.text.splitlines()[-1].rstrip().endswith("quit")
        assert max(map(len, terminal.text.splitlines())) > 60
        terminal.press("q")
        assert terminal.end() == 0


# -- another trace --------------------------------------------------------------------


@pytest.mark.slow
def test_another_trace_opens_though_nothing_can_be_kept(tmp_path) -> None:
    state = tmp_path / "state"
    state.write_text("a file")
    with opened(TRACES / "matmul.msgpack", state=state) as terminal:
        terminal.until("Timeline")
        terminal.press(f":open {TRACES / 'mlp_tp.msgpack'}\r")
        terminal.until("kernbench mlp_tp.msgpack")
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.slow
def test_a_file_that_is_written_anew_while_it_is_open_is_named(tmp_path) -> None:
    odd = (
        "import os\n"
        "from tui.panes.timeline import TimelinePane as T\n"
        "render = T.render\n"
        "def odd(*args):\n"
        f"    if os.path.exists({str(tmp_path / 'now')!r}): raise IndexError('odd')\n"
        "    return render(*args)\n"
        "T.render = odd"
    )
    trace = tmp_path / "victim.msgpack"
    shutil.copy(TRACES / "matmul.msgpack", trace)
    program = program_of(odd)
    with opened(trace, program=program, state=tmp_path / "state") as terminal:
        terminal.until("q quit")
        # Never empty meanwhile: whoever reads a part that is gone gets a signal.
        with trace.open("r+b") as file:
            file.write((TRACES / "mlp_tp.msgpack").read_bytes())
        (tmp_path / "now").touch()
        terminal.press("s")
        assert terminal.end() == 1
        assert terminal.restored()
    assert "victim.msgpack was changed while it was open" in terminal.raw.decode()


@pytest.mark.slow
def test_the_program_ends_though_a_trace_is_being_read(tmp_path) -> None:
    slow = (
        "import time, tui.screens.command as c\nc._opened = lambda path: time.sleep(60)"
    )
    other = tmp_path / "other.msgpack"
    shutil.copy(TRACES / "matmul.msgpack", other)
    trace = TRACES / "matmul.msgpack"
    with opened(trace, program=program_of(slow), state=tmp_path) as terminal:
        terminal.until("q quit")
        terminal.press(f":open {other}\r")
        terminal.press("q")
        assert terminal.end() == 0

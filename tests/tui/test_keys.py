"""What each key means: where moves lead, what is paged, and keys that come at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from desks import TRACES
from pilots import ask, fast_keys, piloted, settled, still, until
from textual import events
from textual.command import CommandList

from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.screens.text import TextScreen

# trace, keys, from, to; no other key of these leads from there to the same op
MEANT = [
    # a send waited for a read that was not the op before it
    ("ccl_allreduce", "t", 64, 32),
    ("ccl_allreduce", "T", 34, 96),
    # from the line of a sum to the next line of its PE
    ("ccl_allreduce", "i", 80, 236),
    ("ccl_allreduce", "I", 236, 80),
    # n would stop at another lane's op, 320
    ("mlp_tp", ".", 160, 384),
    ("mlp_tp", ",", 384, 160),
    ("mlp_tp", "..,", 160, 384),
    # from a tile's last stage to its first
    ("matmul", "F", 120, 32),
    ("matmul", "gGo", 40, 0),
    ("matmul", "gGoo", 40, 40),
    ("matmul", "gGooO", 40, 0),
    ("matmul", "gGooOO", 40, 151),
]


@pytest.mark.parametrize("trace", ["ccl_allreduce", "mlp_tp", "matmul"])
@pytest.mark.slow
async def test_a_moving_key_means(trace) -> None:
    session = open_session(TRACES / f"{trace}.msgpack", 0)
    app = KernbenchApp(session, trace)
    async with piloted(app, (80, 24)) as pilot:
        with fast_keys(app):
            for name, keys, start, end in MEANT:
                if name == trace:
                    session.goto(start)
                    await pilot.press(*keys)
                    assert session.cursor == end, keys


async def test_i_goes_to_another_line_of_the_same_pe() -> None:
    session = open_session(TRACES / "ccl_allreduce.msgpack", 72)
    ops = session.index.ops
    before = session.source().line
    place = ops.focus(72, 1)
    async with piloted(KernbenchApp(session, "x"), (80, 24)) as pilot:
        await pilot.press("i")
        assert session.source().line != before
        assert ops.focus(session.cursor, 1) == place
        await pilot.press("I")
        assert ops.focus(session.cursor, 1) == place


async def test_f_goes_on_to_the_end_and_F_does_not_go_beyond_the_start(
    session, drive
) -> None:
    session.goto(32)
    async with drive(80, 24, "F") as pilot:
        assert session.cursor == 32  # the first stage of its tile
        await pilot.press("f")
        assert session.cursor > 32


# -- pages, the palette ---------------------------------------------------------------


async def test_page_keys_page_the_help(drive) -> None:
    async with drive(80, 24, "?") as pilot:

        def lines() -> tuple[int, int]:
            text = pilot.app.screen.text
            first, last = re.findall(r"lines (\d+)-(\d+) of", text)[0]
            return int(first), int(last)

        first, last = lines()
        assert first == 1
        await pilot.press("pagedown")
        assert last - 2 <= lines()[0] <= last + 1
        await pilot.press("pageup")
        assert lines() == (first, last)


async def test_the_palette_has_the_commands_that_need_no_argument(drive) -> None:
    async with drive(80, 24) as pilot:
        app = pilot.app
        commands = {row.title: row for row in app.get_system_commands(app.screen)}
        assert {":info", ":hazards", ":stalls"} <= {*commands}
        assert ":goto" not in commands
        commands[":info"].callback()
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await still(pilot)
        assert "bench      matmul" in app.screen.text


# -- keys that come in one go: a slow line, a paste -----------------------------------

BURSTS = [
    (":goto 30|enter|s", 31),
    ("ss:goto 50|enter|SS", 48),
    (":goto 34|backspace|0|left|left|right|enter|", 30),
    (":goto 77|escape|s", 17),
    (":got|tab|40|enter|7s", 41),
    ("mass'a", 16),
    ("ctrl+p|goto 30|escape|s", 17),
    ("ctrl+p|last op|enter|S", 150),
    ("ctrl+p|down|down|up|escape|ss", 18),
    (":goto 77|alt+s", 17),
    ("?|alt+s", 17),
    ("?|alt+shift+s", 15),
]
NAMED = {
    **{name: None for name in ("backspace", "left", "right", "tab", "down", "up")},
    "enter": "\r",
    "escape": "\x1b",
    "ctrl+p": "\x10",
    "alt+s": "s",
    "alt+shift+s": "S",
}
"""Keys with names, and the character that comes with each."""


def keys_of(text: str) -> list[events.Key]:
    """The events of keys; those with names between bars, others by what they type."""
    found = []
    for part in text.split("|"):
        if part in NAMED:
            found.append(events.Key(part, NAMED[part]))
        else:
            found += [events.Key(character, character) for character in part]
    return found


@pytest.mark.slow
async def test_keys_that_come_in_one_go_are_taken_in_their_order(
    session, drive
) -> None:
    """One burst after the other, each on op 16 and with nothing over the panes."""
    async with drive(120, 40) as pilot:
        app = pilot.app
        for keys, op in BURSTS:
            await ask(pilot, "goto 16")
            for key in keys_of(keys):
                app.post_message(key)
            await settled(pilot)
            await until(pilot, lambda wanted=op: session.cursor == wanted)
            await settled(pilot)
            assert session.cursor == op, keys
            assert app.screen is app.debugger, keys
            assert not app.debugger.line.display, keys


@pytest.mark.slow
async def test_a_line_that_is_typed_while_a_trace_is_read_waits_for_it(
    session, drive
) -> None:
    session.goto(16)
    async with drive(120, 40) as pilot:
        app = pilot.app
        first = app.debugger
        for key in keys_of("R/sq|enter|s"):  # its q does not quit
            app.post_message(key)
        await until(pilot, lambda: app.debugger is not first)
        await until(pilot, lambda: app.debugger.session.cursor != 16)
        await settled(pilot)
        assert app.is_running
        assert app.debugger.session.cursor == 17


async def test_keys_of_the_screen_before_come_before_those_that_follow(drive) -> None:
    async with drive(120, 40) as pilot:
        app = pilot.app
        app.type_on(app.debugger, keys_of("/s"))
        for key in keys_of("q|enter|"):  # its q is of the pattern, and does not quit
            app.post_message(key)
        await until(pilot, lambda: ":search sq" in app.past)
        assert app.is_running


async def test_a_key_that_reaches_a_replaced_screen_is_of_the_next(
    session, trace_path, drive
) -> None:
    session.goto(16)
    again = open_session(trace_path, 16)
    async with drive(120, 40) as pilot:
        app = pilot.app
        old = app.debugger
        app.reopen(again)
        old.post_message(events.Key("s", "s"))
        await until(pilot, lambda: again.cursor == 17)
        assert session.cursor == 16


@pytest.mark.slow
async def test_enter_twice_in_the_palette_runs_one_row_once(session, drive) -> None:
    session.goto(16)
    async with drive(120, 40) as pilot:
        app = pilot.app
        for key in keys_of("ctrl+p|step back|enter|enter|"):
            app.post_message(key)
        for _ in range(10):
            await settled(pilot)
        assert list(app.past) == ["palette", "step_back", "enter"]
        assert app.screen is app.debugger


async def test_enter_in_the_palette_runs_the_row_of_what_is_typed(drive) -> None:
    async with drive(120, 40, "ctrl+p") as pilot:
        app = pilot.app
        await app.workers.wait_for_complete()
        await pilot.press("down", "down")
        third = [*app.get_system_commands(app.screen)][2]
        assert app.screen.query_one(CommandList).highlighted == 2
        await pilot.press("enter")
        await still(pilot)
        assert app.past[-1] == third.title.partition(":")[0].replace(" ", "_")


async def test_a_double_click_in_the_palette_runs_its_row_once(session, drive) -> None:
    session.goto(16)
    async with drive(120, 40, "ctrl+p") as pilot:
        palette = pilot.app.screen
        palette.take("step back", 0)
        palette.take("step back", 0)
        await still(pilot)
        assert session.cursor == 15


async def test_a_page_that_is_told_twice_to_go_goes_alone(drive) -> None:
    async with drive(120, 40, "?") as pilot:
        app = pilot.app
        page = app.screen
        assert isinstance(page, TextScreen)
        page.post_message(events.Key("escape", None))
        page.post_message(events.Key("escape", None))
        await still(pilot)
        assert app.screen is app.debugger


@pytest.mark.parametrize(("set_to", "ms"), [(None, 25), ("80", 80)])
def test_a_key_may_be_typed_soon_after_esc(set_to, ms) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "ESCDELAY"}
    if set_to is not None:
        environ["ESCDELAY"] = set_to
    asked = "import tui; from textual import constants as c; print(c.ESCAPE_DELAY)"
    command = [sys.executable, "-c", asked]
    said = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert float(said.stdout) == ms / 1000

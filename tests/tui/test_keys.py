"""What each key means: where moves lead, what is paged, and keys that come at once."""

from __future__ import annotations

import re

import pytest
from desks import TRACES
from pilots import fast_keys, piloted, settled, still, until
from textual import events

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
]
NAMED = ("enter", "backspace", "left", "right", "escape", "tab")


def keys_of(text: str) -> list[events.Key]:
    """The events of keys; those with names between bars, others by what they type."""
    found = []
    for part in text.split("|"):
        if part in NAMED:
            found.append(events.Key(part, None))
        else:
            found += [events.Key(character, character) for character in part]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "op"), BURSTS)
async def test_keys_that_come_in_one_go_are_taken_in_their_order(
    keys, op, session, drive
) -> None:
    session.goto(16)
    async with drive(120, 40) as pilot:
        for key in keys_of(keys):
            pilot.app.post_message(key)
        for _ in range(10):
            await settled(pilot)
        assert session.cursor == op

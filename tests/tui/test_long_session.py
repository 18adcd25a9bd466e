"""Sessions of many keys, meaningful and random, on every recorded trace: nothing ends them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pilots import still, turns_of

from kernbench.replay.commands import COMMANDS
from tui.__main__ import open_session
from tui.actions import ACTIONS, PANES, SCREEN_COMMANDS
from tui.app import KernbenchApp

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.msgpack"))
SIZES = [(80, 24), (120, 40), (200, 50), (60, 16), (20, 5)]
KEYS = [key for action in ACTIONS for key in action.keys]
LINES = [
    *(command.name for command in COMMANDS),
    *(name for name, _, _ in SCREEN_COMMANDS),
    "goto 40",
    "goto end",
    "goto 999999999",
    "t 3.2us",
    "t -1",
    "search gemm",
    "search dur > 3ns and not kind = memory",
    "filter comp ~ *pe_dma",
    "filter dur >",
    "break name = nothing",
    "break bytes > 64",
    "watch hbm 0x4000:64",
    "watch c[0,0]",
    "blame c[0,0]",
    "blame c[-1,99999999999999999999]",
    "who-wrote tcm 0:1",
    "memory nothing",
    "pes 3",
    "tiles 0 1us",
    "assert op >= 0",
    "catch hazards",
    "mark \x00",
    "next -1000",
    "step 1e9",
]
GARBAGE = "abc 0x9,-;:'\"[](){}<>=~!&|%*?/\\\t#\u00e9\u4e2d\U0001f600\x7f"


def text_of(rng: Random) -> str:
    """A command line: sound, or with something in it that is not."""
    line = rng.choice(LINES)
    if rng.random() < 0.3:
        at = rng.randrange(len(line) + 1)
        line = (
            line[:at] + "".join(rng.choices(GARBAGE, k=rng.randrange(12))) + line[at:]
        )
    return line


async def play(pilot, count: int, rng: Random) -> None:
    """Press so many keys, and run some lines."""
    app = pilot.app
    for _ in range(count):
        screen, draw = app.debugger, rng.random()
        if app.screen is not screen:  # help, an answer, the palette
            await pilot.press(
                *rng.choice([("j",), ("pagedown",), ("escape",), ("escape",)])
            )
        elif screen.line.display:
            screen.line.value = text_of(rng)
            await pilot.press(
                *rng.choice([("enter",), ("tab", "enter"), ("up",), ("escape",)])
            )
        elif draw < 0.1:
            screen.run(text_of(rng))
        elif draw < 0.13:
            await pilot.resize_terminal(*rng.choice(SIZES))
        else:
            await pilot.press(rng.choice(KEYS))


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.soak)])
async def test_nothing_ends_a_session(
    count, path, settle, as_text_of, monkeypatch
) -> None:
    monkeypatch.setattr(
        KernbenchApp, "exit", lambda self: None
    )  # q and the palette ask for it
    app = KernbenchApp(open_session(path, None), path.name)
    async with app.run_test(size=SIZES[0]) as pilot:
        with monkeypatch.context() as quick:
            for module in ("app", "pilot"):
                quick.setattr(f"textual.{module}.wait_for_idle", turns_of(app))
            await play(pilot, count, Random(f"{path.stem} {count}"))
        await pilot.resize_terminal(*SIZES[2])
        for key in (*["escape"] * 5, "ctrl+l"):
            await pilot.press(key)
            await still(pilot)
        assert app.screen is app.debugger
        screen = app.debugger
        assert -1 <= screen.session.cursor < len(screen.session)
        for number, title in enumerate(PANES, 1):
            await pilot.press(str(number))
            await settle(pilot)
            assert f"{number} {title}" in as_text_of(app), as_text_of(app)
            assert len(screen.panes[number].text.split()) > 2
        assert not screen.jobs.busy
        assert not app.crash


async def test_a_line_left_as_soon_as_it_is_opened_keeps_no_keys(
    session, drive
) -> None:
    async with drive(80, 24) as pilot:
        pilot.app.debugger.line.open("goto")
        pilot.app.debugger.line.action_leave()
        await pilot.press("g")
        assert session.cursor == 0

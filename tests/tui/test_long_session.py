"""Sessions of many keys, sound and random, on recorded traces: nothing ends them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pilots import fast_keys, still

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


def random_line(rng: Random) -> str:
    """A command line: sound, or with something in it that is not."""
    line = rng.choice(LINES)
    if rng.random() < 0.3:
        at = rng.randrange(len(line) + 1)
        garbage = "".join(rng.choices(GARBAGE, k=rng.randrange(12)))
        line = line[:at] + garbage + line[at:]
    return line


PAGE_KEYS = [("j",), ("pagedown",), ("escape",), ("escape",)]
LINE_KEYS = [("enter",), ("tab", "enter"), ("up",), ("escape",)]


async def play(pilot, count: int, rng: Random) -> None:
    """Press so many keys, run some lines, and resize the screen now and then."""
    app = pilot.app
    for _ in range(count):
        screen = app.debugger
        draw = rng.random()
        if app.screen is not screen:  # help, an answer, the palette
            await pilot.press(*rng.choice(PAGE_KEYS))
        elif screen.line.display:
            screen.line.value = random_line(rng)
            await pilot.press(*rng.choice(LINE_KEYS))
        elif draw < 0.1:
            screen.run(random_line(rng))
        elif draw < 0.13:
            await pilot.resize_terminal(*rng.choice(SIZES))
        else:
            await pilot.press(rng.choice(KEYS))


async def go_through_all_panes(pilot, settle, as_text_of) -> None:
    """Leave whatever is open, then look at each pane: it has its answer."""
    app = pilot.app
    for key in (*["escape"] * 5, "ctrl+l"):
        await pilot.press(key)
        await still(pilot)
    assert app.screen is app.debugger
    for number, title in enumerate(PANES, 1):
        await pilot.press(str(number))
        await settle(pilot)
        text = as_text_of(app)
        assert f"{number} {title}" in text, text
        assert len(app.debugger.panes[number].text.split()) > 2


async def check_session(count: int, path: Path, settle, as_text_of) -> None:
    app = KernbenchApp(open_session(path, None), path.name)
    async with app.run_test(size=SIZES[0]) as pilot:
        with fast_keys(app):
            await play(pilot, count, Random(f"{path.stem} {count}"))
        await pilot.resize_terminal(200, 50)
        await go_through_all_panes(pilot, settle, as_text_of)
        session = app.debugger.session
        assert -1 <= session.cursor < len(session)
        assert not app.debugger.jobs.busy
        assert not app.crash


@pytest.fixture(autouse=True)
def _stay(monkeypatch) -> None:
    """q and the palette ask for the end of the program; here it goes on."""
    monkeypatch.setattr(KernbenchApp, "exit", lambda self: None)


@pytest.mark.parametrize("name", ["matmul", "fault_missing_wait"])
async def test_nothing_ends_a_session(name, trace_path, settle, as_text_of) -> None:
    path = trace_path.with_name(f"{name}.msgpack")
    await check_session(100, path, settle, as_text_of)


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.soak)])
async def test_nothing_ends_a_long_session(count, path, settle, as_text_of) -> None:
    await check_session(count, path, settle, as_text_of)


async def test_a_line_left_as_soon_as_it_is_opened_keeps_no_keys(
    session, drive
) -> None:
    async with drive(80, 24) as pilot:
        pilot.app.debugger.line.open("goto")
        pilot.app.debugger.line.action_leave()
        await pilot.press("g")
        assert session.cursor == 0

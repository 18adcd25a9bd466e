"""Sessions of many keys, sound and random, on recorded traces: nothing ends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pilots import fast_keys, pane_of, run, settled, still, until

from kernbench.replay.commands import COMMANDS
from tui.__main__ import open_session
from tui.actions import ACTIONS, SCREEN_COMMANDS
from tui.app import KernbenchApp
from tui.panes import PANES

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.msgpack"))
IN_CI = ("fault_wrong_root", "matmul")
"""One that has no tiles and went wrong, and one that has tiles."""
PATHS = [
    path if path.stem in IN_CI else pytest.param(path, marks=pytest.mark.soak)
    for path in TRACES
]
SIZES = [(80, 24), (120, 40), (200, 50), (60, 16), (20, 5)]
KEYS = [key for action in ACTIONS for key in action.keys]
LINES = [
    *(command.name for command in COMMANDS),
    *(command.name for command in SCREEN_COMMANDS),
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


async def play(pilot: Any, count: int, rng: Random) -> None:
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
            run(pilot, random_line(rng))
        elif draw < 0.13:
            await pilot.resize_terminal(*rng.choice(SIZES))
        else:
            await pilot.press(rng.choice(KEYS))


async def go_through_all_panes(pilot: Any, as_text_of: Callable[[Any], str]) -> None:
    """Leave whatever is open, then look at each pane: it has its answer."""
    app = pilot.app
    for _ in range(20):  # an answer may still have been on its way
        await pilot.press("escape")
        await still(pilot)
        await until(pilot, lambda: not app.debugger.awaited)  # else its page comes
        await settled(pilot)
        if app.screen is app.debugger:
            break
    assert app.screen is app.debugger
    await pilot.press("ctrl+l")
    await still(pilot)
    for row in PANES:
        if not row.number:  # the op's details, which no key shows
            continue
        await pilot.press(str(row.number))
        await settled(pilot)
        text = as_text_of(app)
        assert f"{row.number} {row.title}" in text, text
        view = pane_of(pilot, row.number)
        if view.display:
            assert len(view.text.split()) > 2
        else:  # it has nothing to show, and its key says why
            assert f"{row.number} {row.title}: " in text, text


async def check_session(
    count: int, path: Path, as_text_of: Callable[[Any], str]
) -> None:
    """Nothing ends a session of so many random keys."""
    app = KernbenchApp(open_session(path, None), path.name)
    async with app.run_test(size=SIZES[0]) as pilot:
        with fast_keys(app):
            await play(pilot, count, Random(f"{path.stem} {count}"))
            await pilot.resize_terminal(200, 50)
            await go_through_all_panes(pilot, as_text_of)
        replay = app.debugger.desk.replay
        assert -1 <= replay.cursor < len(replay)
        await until(pilot, lambda: not app.debugger.runner.busy)
        assert not app.crash


@pytest.fixture(autouse=True)
def _stay(monkeypatch) -> None:
    """q and the palette ask for the end of the program; here it goes on."""
    monkeypatch.setattr(KernbenchApp, "exit", lambda self: None)


COUNTS = [
    pytest.param(100, marks=pytest.mark.slow),
    pytest.param(2000, marks=pytest.mark.soak),
]


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in TRACES])
@pytest.mark.parametrize("count", COUNTS)
async def test_nothing_ends_a_long_session(count, path, as_text_of) -> None:
    await check_session(count, path, as_text_of)

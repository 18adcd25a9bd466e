"""What each key means: where moves lead, and what pans, zooms and pages do and stop at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pilots import settled, still
from textual import events
from tui.widgets.draw import UNICODE
from tui.widgets.timeline import TimelinePane

from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.screens.help import TextScreen

TRACES = Path(__file__).parents[2] / "traces"

# trace, keys, from, to; no other key of these leads from there to the same op
MEANT = [
    (
        "ccl_allreduce",
        "t",
        64,
        40,
    ),  # a send waited for a read that was not the op before it
    ("ccl_allreduce", "T", 32, 96),
    (
        "ccl_allreduce",
        "i",
        72,
        237,
    ),  # from the line of a receive to the next line of its PE
    ("ccl_allreduce", "I", 80, 64),
    ("mlp_tp", ".", 160, 384),  # n would stop at another lane's op, 320
    ("mlp_tp", ",", 384, 160),
    ("mlp_tp", "..,", 160, 384),
    ("matmul", "F", 120, 32),  # from a tile's last stage to its first
    ("matmul", "gGo", 40, 0),
    ("matmul", "gGoo", 40, 40),
    ("matmul", "gGooO", 40, 0),
    ("matmul", "gGooOO", 40, 151),
]


@pytest.mark.parametrize(("trace", "keys", "start", "end"), MEANT)
async def test_a_moving_key_means(trace, keys, start, end) -> None:
    session = open_session(TRACES / f"{trace}.msgpack", start)
    app = KernbenchApp(session, trace)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        assert session.cursor == end


async def test_i_goes_to_another_line_of_the_same_pe() -> None:
    session = open_session(TRACES / "ccl_allreduce.msgpack", 72)
    before, pe = session.source().line, session.focus()
    async with KernbenchApp(session, "x").run_test(size=(80, 24)) as pilot:
        await pilot.press("i")
        assert session.source().line != before
        assert session.trace.nodes.pe[session.component] == 0
        await pilot.press("I")
        assert session.focus() == pe


async def test_f_goes_on_to_the_end_and_F_does_not_go_beyond_the_start(
    session, drive
) -> None:
    session.goto(32)
    async with drive(80, 24, "F") as pilot:
        assert session.cursor == 32  # the first stage of its tile
        await pilot.press("f")
        assert session.cursor > 32


# -- pan and zoom ----------------------------------------------------------------


@pytest.fixture
def timeline(session) -> TimelinePane:
    return TimelinePane(session, UNICODE)


def test_zooming_out_ends_at_twice_the_run(timeline) -> None:
    for _ in range(100):
        timeline.zoom(2.0)
    assert timeline.end / 2 < timeline.t1 - timeline.t0 <= 2 * timeline.end


def test_zooming_in_ends_at_a_tenth_of_a_nanosecond(timeline) -> None:
    for _ in range(100):
        timeline.zoom(0.5)
    assert 0.1 <= timeline.t1 - timeline.t0 < 0.2


def test_the_cursor_stays_in_view_while_zooming_in(timeline, session) -> None:
    session.goto(100)
    for _ in range(20):
        timeline.zoom(0.5)
        assert timeline.t0 <= session.time < timeline.t1


@pytest.mark.parametrize("way", [-1, 1], ids=["left", "right"])
def test_panning_ends_where_nothing_of_the_run_would_be_shown(timeline, way) -> None:
    timeline.fit_between(8000, 8100)
    span = timeline.t1 - timeline.t0
    for _ in range(10_000):
        timeline.pan(way)
    assert timeline.t0 < timeline.end
    assert timeline.t1 > 0
    assert (timeline.t1 < span) if way < 0 else (timeline.t0 > timeline.end - span)
    assert timeline.t1 - timeline.t0 == pytest.approx(span)


async def test_l_and_h_pan_the_text_of_the_source(session, drive) -> None:
    session.goto(40)
    source = session.source()
    code = source.text[source.line - 1]
    async with drive(120, 40, "7") as pilot:
        await settled(pilot)
        pane = pilot.app.debugger.panes[7]

        def row() -> str:
            return next(line for line in pane.text.splitlines() if ">" in line[:4])

        column = row().index(code[:24])
        await pilot.press("l")
        assert row()[column:].startswith("…" + code[9:24])
        await pilot.press("h", "h")  # no further than the first column
        assert row()[column:].startswith(code[:24])


# -- pages, lists, the command line ----------------------------------------------


async def test_page_keys_page_the_help(drive) -> None:
    async with drive(80, 24, "?") as pilot:

        def lines() -> tuple[int, int]:
            first, last = re.findall(
                r"lines (\d+)-(\d+) of", pilot.app.screen.pane.text
            )[0]
            return int(first), int(last)

        first, last = lines()
        assert first == 1
        await pilot.press("pagedown")
        assert last - 2 <= lines()[0] <= last + 1
        await pilot.press("pageup")
        assert lines() == (first, last)


async def test_up_and_down_go_through_all_lines_that_were_run(drive) -> None:
    lines = ["goto 3", "goto 5", "goto 7"]
    async with drive(80, 24) as pilot:
        line = pilot.app.debugger.line
        for text in lines:
            await pilot.press(":")
            line.value = text
            await pilot.press("enter")
        await pilot.press(":")
        seen = []
        for key in ["up"] * 4 + ["down"] * 4:
            await pilot.press(key)
            seen.append(line.value)
    assert seen == [*lines[::-1], lines[0], *lines[1:], "", ""]


async def test_the_palette_has_the_commands_that_need_no_argument(drive) -> None:
    async with drive(80, 24) as pilot:
        app = pilot.app
        commands = {row.title: row for row in app.get_system_commands(app.screen)}
        assert {":info", ":hazards", ":stalls"} <= {*commands}
        assert ":goto" not in commands
        commands[":info"].callback()
        await settled_over(pilot)
        assert "bench      matmul" in app.screen.pane.text


async def settled_over(pilot) -> None:
    """Until the answer lies over the debugger's screen."""
    for _ in range(1000):
        await pilot.pause()
        pilot.app.debugger.look()
        if isinstance(pilot.app.screen, TextScreen):
            break
    await still(pilot)


# -- keys that come in one go: a slow line, a paste -----------------------------------

BURSTS = [
    (":goto 30|enter|s", 31),
    ("ss:goto 50|enter|SS", 48),
    (":goto 34|backspace|0|left|left|right|enter|", 30),
    (":goto 77|escape|s", 17),
    (":got|tab|40|enter|7s", 41),
    ("mass'a", 16),
]


@pytest.mark.parametrize(("keys", "op"), BURSTS)
async def test_keys_that_come_in_one_go_are_taken_in_their_order(
    keys, op, session, drive
) -> None:
    session.goto(16)
    async with drive(120, 40) as pilot:
        for part in keys.split("|"):
            named = part in ("enter", "backspace", "left", "right", "escape", "tab")
            for key in [part] if named else part:
                pilot.app.post_message(events.Key(key, None if named else key))
        for _ in range(10):
            await settled(pilot)
        assert session.cursor == op

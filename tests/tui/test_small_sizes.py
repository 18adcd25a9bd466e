"""However small a terminal is, nothing is raised, and no line is wider than it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from desks import DeskBench
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pace import first_fast, some_in_ci
from pilots import piloted, still
from terminals import opened

from tui.app import KernbenchApp
from tui.desk import ROW_OF
from tui.draw import ASCII, UNICODE, strip
from tui.panes import PANES
from tui.panes.base import (
    Back,
    Click,
    Enter,
    Event,
    Moved,
    NextMark,
    Pan,
    Pin,
    Scroll,
)
from tui.panes.timeline import Zoom

TRACES = ("fault_missing_wait", "matmul", "mlp_tp")
EVENTS: tuple[Event, ...] = (
    Scroll(1),
    Scroll(-1),
    Scroll(1, pages=True),
    Scroll(10**9),
    Pan(1),
    Pan(-1),
    NextMark(1),
    Pin(),
    Enter(),
    Back(),
    Moved(),
    Zoom(0.5),
    Click(0, -1),
    Click(0, 0),
    Click(0, 1),
)
WIDTHS = st.one_of(st.integers(1, 20), st.integers(1, 200))
ROOMS = st.tuples(WIDTHS, st.integers(1, 5))
KEYS = [row.key for row in PANES]
EVERY_KEY = (
    *"12345678vvVzsSnNgGjkhlpmaB+-",
    *("enter", "tab", "pagedown", "question_mark", "escape", "ctrl+p", "escape"),
    *(":", "escape", "slash", "escape", "z"),
)
SCREENS = [(100, 5), (20, 5), (1, 1), (2, 3), (5, 20), (200, 2)]


@pytest.fixture(scope="module", params=first_fast(TRACES))
def bench(request: pytest.FixtureRequest) -> Iterator[DeskBench]:
    """A desk on a trace; whatever an example did to a pane, the next begins anew."""
    made = DeskBench(request.param)
    yield made
    made.runner.close()


@pytest.mark.slow
@settings(max_examples=60)
@example(key="ops", view=0, rooms=[(100, 1)], events=[], ascii_only=False)
@given(
    key=st.sampled_from(KEYS),
    view=st.integers(0, 4),
    rooms=st.lists(ROOMS, min_size=1, max_size=3),
    events=st.lists(st.sampled_from(EVENTS), max_size=3),
    ascii_only=st.booleans(),
)
def test_every_view_fits_in_any_room(
    bench: DeskBench, key, view, rooms, events, ascii_only
) -> None:
    desk = bench.desk
    pane = desk.panes[key]
    desk.states[key] = pane.with_view(pane.start(), view % max(len(pane.views), 1))
    desk.glyphs = ASCII if ascii_only else UNICODE
    for room in rooms:
        desk.sizes = dict.fromkeys(ROW_OF, (0, 0)) | {key: room}
        picture = bench.settle()[key].picture
        for line in picture.lines:
            assert strip(line, room[0]).cell_length == room[0]
        for event in events:
            desk.send(key, event)
            bench.settle()


@pytest.mark.slow
@pytest.mark.parametrize("size", some_in_ci(SCREENS, 3))
async def test_every_key_does_no_harm_on_a_small_screen(session, size) -> None:
    app = KernbenchApp(session, "matmul.msgpack")
    async with piloted(app, size) as pilot:
        for key in EVERY_KEY:
            await pilot.press(key)
        await pilot.resize_terminal(*reversed(size))
        await still(pilot)
        for number in range(1, 9):
            await pilot.press(str(number))
        assert app.is_running
    assert app.crash == ""


TERMINALS = [
    *((size, True) for size in SCREENS),
    *((size, False) for size in reversed(SCREENS)),
]
"""Sizes, and whether a trace is picked there first."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", some_in_ci(TERMINALS, 2), ids=str)
def test_a_small_terminal_is_drawn_on(trace_path, tmp_path, kind) -> None:
    size, picks = kind
    with opened(*[] if picks else [trace_path], state=tmp_path, size=size) as terminal:
        terminal.read(2.0)
        if picks:
            terminal.press("\r", 2.0)  # while it is read, keys are for that
        for key in "12345678zvs?":
            terminal.press(key, 0.03)
        terminal.press("\x1b", 0.2)
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.restored()

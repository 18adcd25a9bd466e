"""Clicks and the wheel do what keys do."""

from __future__ import annotations

import pytest
from pilots import active_of, pane_of, settled, state_of, still, turn_wheel
from textual.events import MouseScrollDown, MouseScrollUp

from tui.panes import PANES

TITLE_OF = {row.number: row.title for row in PANES if row.number}
TIMELINE = 1
OPS = 2
ROUTE = 5


def rows_of(pilot, number: int):
    """The list in view of a pane."""
    return state_of(pilot, number).rows


async def click_row(pilot, number: int, row: int) -> None:
    """Click a row of a list that has a title and a heading above it."""
    line = 2 + row - rows_of(pilot, number).top
    await pilot.click(pane_of(pilot, number), offset=(10, line))
    await still(pilot)


# -- clicks ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [3, 6, 7, 8])
@pytest.mark.slow
async def test_a_click_on_a_tab_shows_its_pane(number, drive) -> None:
    async with drive(80, 24, "2") as pilot:
        tabs = pilot.app.debugger.tabs
        text = "".join(run for run, _ in tabs.line)
        at = text.index(f"{number} {TITLE_OF[number]}")
        await pilot.click(tabs, offset=(at + 2, 0))
        await still(pilot)
        assert active_of(pilot) == number
        assert pane_of(pilot, number).display
        assert not pane_of(pilot, OPS).display
        text = "".join(run for run, _ in tabs.line)
        assert f"[{number} {TITLE_OF[number]}" in text


@pytest.mark.slow
async def test_a_click_beside_the_tabs_changes_nothing(drive) -> None:
    async with drive(80, 24, "1") as pilot:
        tabs = pilot.app.debugger.tabs
        await pilot.click(tabs, offset=(tabs.size.width - 1, 0))
        await still(pilot)
        assert active_of(pilot) == TIMELINE


@pytest.mark.slow
async def test_a_click_on_a_row_of_ops_goes_there(session, drive) -> None:
    session.goto(40)
    async with drive(200, 50) as pilot:
        await settled(pilot)
        await click_row(pilot, OPS, 41)
        assert session.cursor == 41
        assert active_of(pilot) == OPS


@pytest.mark.slow
async def test_a_click_right_of_a_bar_is_counted_from_the_left_edge_of_the_pane(
    session, drive
) -> None:
    session.goto(40)
    async with drive(200, 50) as pilot:
        await settled(pilot)
        view = pane_of(pilot, TIMELINE)
        minimap = 1
        await pilot.click(view, offset=(view.size.width - 1, minimap))
        await still(pilot)
        assert session.cursor == 151


@pytest.mark.slow
async def test_a_click_on_a_title_activates_the_pane_and_picks_nothing(
    session, drive
) -> None:
    session.goto(40)
    async with drive(200, 50, "1") as pilot:
        await settled(pilot)
        await pilot.click(pane_of(pilot, OPS), offset=(10, 0))
        await still(pilot)
        assert active_of(pilot) == OPS
        assert rows_of(pilot, OPS).pick is None
        assert session.cursor == 40


# -- the wheel ------------------------------------------------------------------------


async def wheel(pilot, number: int, kind) -> None:
    """Turn the wheel by a notch over a pane."""
    await turn_wheel(pilot, kind, pane_of(pilot, number), (10, 3))


async def test_the_wheel_goes_through_rows_down_and_up(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "2") as pilot:
        await wheel(pilot, OPS, MouseScrollDown)
        down = rows_of(pilot, OPS).at
        assert down > 40
        await wheel(pilot, OPS, MouseScrollDown)
        assert rows_of(pilot, OPS).at - down == down - 40
        await wheel(pilot, OPS, MouseScrollUp)
        assert rows_of(pilot, OPS).at == down
        assert session.cursor == 40
        await pilot.press("enter")
        assert session.cursor == down


async def test_the_wheel_goes_by_three_rows(drive) -> None:
    async with drive(80, 24, "z", "g") as pilot:
        await settled(pilot)
        here = rows_of(pilot, TIMELINE).at
        await wheel(pilot, TIMELINE, MouseScrollDown)
        assert rows_of(pilot, TIMELINE).at == here + 3
        await wheel(pilot, TIMELINE, MouseScrollUp)
        assert rows_of(pilot, TIMELINE).at == here


async def test_the_wheel_is_of_the_pane_below_it_not_of_the_active_one(
    session, drive
) -> None:
    session.goto(40)
    async with drive(200, 50, "1") as pilot:
        before = rows_of(pilot, TIMELINE).at
        await wheel(pilot, OPS, MouseScrollDown)
        assert rows_of(pilot, OPS).at > 40
        assert active_of(pilot) == TIMELINE
        assert rows_of(pilot, TIMELINE).at == before


@pytest.mark.slow
async def test_the_wheel_scrolls_what_has_no_rows(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "5", *"vv") as pilot:  # the map of a SIP
        await settled(pilot)
        await pilot.press("home")
        rows = rows_of(pilot, ROUTE)
        assert rows.total > rows.room
        await wheel(pilot, ROUTE, MouseScrollDown)
        assert rows_of(pilot, ROUTE).top > rows.top
        await wheel(pilot, ROUTE, MouseScrollUp)
        assert rows_of(pilot, ROUTE).top == rows.top

"""Clicks and the wheel do what keys do."""

from __future__ import annotations

import pytest
from pilots import settled, still, turn_wheel
from textual.events import MouseScrollDown, MouseScrollUp

from tui.actions import PANES


@pytest.mark.parametrize("number", [3, 6, 8])
async def test_a_click_on_a_tab_shows_its_pane(number, drive) -> None:
    async with drive(80, 24, "2") as pilot:
        screen = pilot.app.debugger
        text = "".join(run for run, _ in screen.tabs.line)
        at = text.index(f"{number} {PANES[number - 1]}")
        await pilot.click(screen.tabs, offset=(at + 2, 0))
        await still(pilot)
        assert screen.active == number
        assert screen.panes[number].display
        assert not screen.panes[2].display


async def test_a_click_beside_the_tabs_changes_nothing(drive) -> None:
    async with drive(200, 50, "1") as pilot:
        screen = pilot.app.debugger
        await pilot.click(screen.tabs, offset=(screen.tabs.size.width - 1, 0))
        await still(pilot)
        assert screen.active == 1


async def wheel(pilot, pane, event, offset=(10, 3)) -> None:
    await turn_wheel(pilot, event, pane, offset)


async def test_the_wheel_goes_through_rows_down_and_up(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "2") as pilot:
        pane = pilot.app.debugger.panes[2]
        await wheel(pilot, pane, MouseScrollDown)
        down = pane.at
        assert down > 40
        await wheel(pilot, pane, MouseScrollDown)
        assert pane.at - down == down - 40
        await wheel(pilot, pane, MouseScrollUp)
        assert pane.at == down
        assert session.cursor == 40
        await pilot.press("enter")
        assert session.cursor == down


async def test_the_wheel_is_of_the_pane_below_it_not_of_the_active_one(
    session, drive
) -> None:
    session.goto(40)
    async with drive(200, 50, "1") as pilot:
        screen = pilot.app.debugger
        before = screen.panes[1].at
        await wheel(pilot, screen.panes[2], MouseScrollDown)
        assert screen.panes[2].at > 40
        assert (screen.active, screen.panes[1].at) == (1, before)


async def test_the_wheel_scrolls_what_has_no_rows(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "5", *"vvv") as pilot:  # the map of a cube
        await settled(pilot)
        pane = pilot.app.debugger.panes[5]
        await pilot.press("home")
        top = pane.top
        assert pane.total > pane.room
        await wheel(pilot, pane, MouseScrollDown)
        assert pane.top > top
        await wheel(pilot, pane, MouseScrollUp)
        assert pane.top == top

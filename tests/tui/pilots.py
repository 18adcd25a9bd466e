"""Waiting for what a pilot has set going."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tui.desk import ROW_OF
from tui.panes import PANES
from tui.widgets.pane_view import PaneView

KEY_OF = {row.number: row.key for row in PANES}


async def settled(pilot: Any) -> None:
    """Until no job runs, every pane shows its answer, and none wishes for more."""
    screen = pilot.app.debugger
    await still(pilot)
    quiet = 0
    for _ in range(1000):
        busy = screen.runner.busy or screen.waiting
        quiet = 0 if busy else quiet + 1
        if quiet == 4:
            break
        await pilot.pause()
        screen.look(rested=True)
    assert not screen.runner.busy, screen.runner.running()
    assert not screen.waiting, screen.waiting
    await still(pilot)


def pane_of(pilot: Any, number: int) -> PaneView:
    """The view of the pane that a number key shows."""
    return pilot.app.debugger.views[KEY_OF[number]]


def active_of(pilot: Any) -> int:
    """The number of the active pane."""
    return ROW_OF[pilot.app.debugger.active].number


async def still(pilot: Any) -> None:
    """Until what was pressed has come from the app to the screen to its widgets, and is drawn."""
    for _ in range(4):
        await pilot.pause()


def turns_of(app: Any) -> Callable[..., Awaitable[None]]:
    """Instead of the pilot's waiting for an idle processor, 20 ms a key: until no message waits."""

    async def turns(*_: float) -> None:
        quiet = 0
        for _ in range(2000):  # a screen that has just gone takes no more messages
            await asyncio.sleep(0)
            waiting = any(pump.message_queue_size for pump in (app, app.screen))
            quiet = 0 if waiting else quiet + 1
            if quiet == 10:
                break

    return turns

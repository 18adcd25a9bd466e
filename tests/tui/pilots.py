"""Waiting for what a pilot has set going."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def settled(pilot: Any) -> None:
    """Until no job runs and every pane shows its answer."""
    screen = pilot.app.debugger
    await still(pilot)
    quiet = 0
    for _ in range(1000):
        shown = [pane for pane in screen.panes.values() if pane.display]
        waiting = [pane.title for pane in shown if pane.waiting or not pane.text]
        quiet = 0 if waiting or screen.jobs.busy else quiet + 1
        if quiet == 4:  # nothing spare was begun either
            break
        await pilot.pause()
        screen.look()
    assert not screen.jobs.busy, [job.title for job in screen.jobs.running()]
    assert not waiting, waiting
    await still(pilot)


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

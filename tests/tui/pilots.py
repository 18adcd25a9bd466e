"""Waiting for what a pilot has set going."""

from __future__ import annotations

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

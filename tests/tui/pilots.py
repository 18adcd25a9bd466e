"""Waiting for what a pilot has set going."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from textual import events


async def settled(pilot: Any) -> None:
    """Wait until no job runs and every pane shows its answer."""
    screen = pilot.app.debugger
    await still(pilot)
    waiting: list[str] = []
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
    """Wait until a key has come from app to screen to widget, and is drawn."""
    for _ in range(4):
        await pilot.pause()


async def shows(pilot: Any, text: str, read: Callable[[Any], str]) -> str:
    """Wait until a text is on the screen, as ``read(app)`` has it; return that."""
    for _ in range(200):
        await pilot.pause(0.02)
        if text in read(pilot.app):
            break
    screen = read(pilot.app)
    assert text in screen
    return screen


def turns_of(app: Any) -> Callable[..., Awaitable[None]]:
    """Return what waits until no message is queued.

    A pilot itself waits 20 ms a key, for an idle processor.
    """

    async def turns(*_: float) -> None:
        quiet = 0
        for _ in range(2000):  # a screen that has just gone takes no more messages
            await asyncio.sleep(0)
            queued = any(pump.message_queue_size for pump in (app, app.screen))
            quiet = 0 if queued else quiet + 1
            if quiet == 10:
                break

    return turns


@contextmanager
def fast_keys(app: Any) -> Iterator[None]:
    """Let the pilots of an app wait for its messages only."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("app", "pilot"):
            patch.setattr(f"textual.{module}.wait_for_idle", turns_of(app))
        yield


async def turn_wheel(
    pilot: Any,
    kind: type[events.MouseScrollDown] | type[events.MouseScrollUp],
    widget: Any,
    offset: tuple[int, int],
) -> None:
    """Turn the mouse's wheel by one notch over a cell of a widget."""
    x = widget.region.x + offset[0]
    y = widget.region.y + offset[1]
    pilot.app.post_message(
        kind(
            widget,
            x=x,
            y=y,
            delta_x=0,
            delta_y=0,
            button=0,
            shift=False,
            meta=False,
            ctrl=False,
            screen_x=x,
            screen_y=y,
        )
    )
    await still(pilot)

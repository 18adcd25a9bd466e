"""Waiting for what a pilot has set going."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any

import pytest
from textual import events

from tui.desk import ROW_OF
from tui.panes import PANES
from tui.widgets.pane_view import PaneView

KEY_OF = {row.number: row.key for row in PANES if row.number}
SETTLED_S = 60.0
"""After which a screen that does not settle has a mistake."""
_LOOK_S = 0.005
_QUIET_LOOKS = 4
"""Looks one after the other at which a settled screen has nothing to do."""


def pane_of(pilot: Any, number: int) -> PaneView:
    """The view of the pane that a number key shows."""
    view: PaneView = pilot.app.debugger.views[KEY_OF[number]]
    return view


def state_of(pilot: Any, number: int) -> Any:
    """The state of the pane that a number key shows."""
    return pilot.app.debugger.desk.states[KEY_OF[number]]


def active_of(pilot: Any) -> int:
    """The number of the active pane."""
    return ROW_OF[pilot.app.debugger.active].number


# -- waiting ------------------------------------------------------------------------


async def settled(pilot: Any) -> None:
    """Wait until no job runs, every pane shows its answer, and none wishes for more.

    What panes wish for may take a second, and many on a machine that does other work:
    the turns of the loop say nothing about that, and leave workers no time. Nor does a
    pause of the pilot, which asks every widget, while a job runs.
    """
    screen = pilot.app.debugger
    await still(pilot)
    deadline = monotonic() + SETTLED_S
    quiet = 0
    while quiet < _QUIET_LOOKS and monotonic() < deadline:
        screen.look(rested=True)
        if not screen.runner.busy:
            await pilot.pause()
        if screen.runner.busy or screen.waiting:
            quiet = 0
            await asyncio.sleep(_LOOK_S)
        else:
            quiet += 1
    assert not screen.runner.busy, "jobs still run, or panes wish for more and more"
    assert not screen.waiting, screen.waiting
    await still(pilot)


async def answered(pilot: Any) -> None:
    """Wait until the screen itself waits for no answer, and has shown the last."""
    screen = pilot.app.debugger
    await pilot.pause()
    await until(pilot, lambda: screen.asked is None)
    await still(pilot)


async def still(pilot: Any) -> None:
    """Wait until a key has come from app to screen to widget, and is drawn."""
    for _ in range(4):
        await pilot.pause()


async def until(pilot: Any, holds: Callable[[], object]) -> None:
    """Wait for what the loop brings, at most some seconds."""
    for _ in range(1000):
        if holds():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never came")


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


@asynccontextmanager
async def piloted(app: Any, size: tuple[int, int], *keys: str) -> AsyncIterator[Any]:
    """Run an app that gets some keys; its pilot waits for messages only."""
    async with app.run_test(size=size) as pilot:
        with fast_keys(app):
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
            yield pilot


# -- doing --------------------------------------------------------------------------


def run(pilot: Any, line: str) -> None:
    """Carry out a command line, and draw."""
    pilot.app.debugger.run_line(line)
    pilot.app.debugger.show()


async def ask(pilot: Any, *lines: str) -> None:
    """Carry out command lines, each to its answer."""
    for line in lines:
        run(pilot, line)
        await answered(pilot)


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

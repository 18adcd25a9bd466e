"""A question is about the moment at which it was asked, whatever moves meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from pilots import still

from kernbench.replay.command import Command
from kernbench.replay.commands import BY_NAME
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import Query
from tui.screens.text import TextScreen


@pytest.fixture
def occupied(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``with occupied(screen, lane): …``: a job of that lane that lasts as long."""
    numbers = count()

    @contextmanager
    def occupy(screen: Any, lane: str) -> Iterator[None]:
        begun, rung = Event(), Event()

        def wait(index: Any, at: Any, args: Any, progress: Any) -> bool:
            begun.set()
            return rung.wait(20)

        name = f"occupies-{lane}-{next(numbers)}"
        command = Command(name, "job", "of a test", NoArguments, wait, lane)
        monkeypatch.setitem(BY_NAME, name, command)
        screen.runner.ask(Query(name, NoArguments()))
        assert begun.wait(10)
        yield
        rung.set()

    return occupy


async def until_read(pilot: Any) -> str:
    """The text of the page that an answer opens."""
    for _ in range(500):
        if isinstance(pilot.app.screen, TextScreen) and pilot.app.screen.text:
            return str(pilot.app.screen.text)
        await pilot.pause(0.01)
    raise AssertionError("no answer came")


async def test_diff_asked_in_a_busy_lane_is_of_the_op_it_was_asked_at(
    session, drive, occupied
) -> None:
    session.goto(40)
    async with drive(80, 24) as pilot:
        screen = pilot.app.debugger
        with occupied(screen, "memory"):
            screen.run_line("diff")
            await pilot.press("s", "s", "s")
            assert session.cursor == 43
        assert "op 40 " in await until_read(pilot)


@pytest.mark.slow
async def test_no_thread_sees_a_cursor_that_nobody_moved(session, drive) -> None:
    """Neither while what the next keys may show is drawn ahead."""
    seen: set[int] = set()
    ended = Event()

    def look() -> None:
        while not ended.is_set():
            seen.add(session.cursor)
            sleep(0)

    session.goto(39)
    async with drive(120, 40, "s") as pilot:
        thread = Thread(target=look, daemon=True)
        thread.start()
        for _ in range(30):
            pilot.app.debugger.draw_ahead()
            await pilot.pause(0.02)
        ended.set()
        thread.join(10)
    assert seen == {40}


@pytest.mark.slow
async def test_a_find_moves_whatever_is_drawn_ahead(session, drive, occupied) -> None:
    fits = session.matching("kind = gemm").tolist()
    async with drive(120, 40, "g") as pilot:
        screen = pilot.app.debugger
        for number, wanted in enumerate(fits):
            with occupied(screen, "memory"):
                screen.run_line(f"find kind = gemm and op != {-1 - number}")
                screen.draw_ahead()
                await pilot.pause(0.01)
            for _ in range(500):
                if screen.asked is None:
                    break
                await pilot.pause(0.005)
            assert session.cursor == wanted


async def test_a_find_that_waits_is_dropped_by_another_move(
    session, drive, occupied
) -> None:
    session.goto(40)
    async with drive(80, 24) as pilot:
        screen = pilot.app.debugger
        with occupied(screen, "memory"):
            screen.run_line("find dur > 100ns")
            await pilot.press("s")
        await still(pilot)
        assert session.cursor == 41
        assert screen.asked is None


async def test_a_breakpoint_that_waits_is_not(session, drive, occupied) -> None:
    session.goto(40)
    async with drive(80, 24) as pilot:
        screen = pilot.app.debugger
        with occupied(screen, "memory"):
            screen.run_line("break dur > 100ns")
            await pilot.press("s")
        for _ in range(500):
            if session.stops:
                break
            await pilot.pause(0.01)
        assert session.cursor == 41
        assert [stop.what for stop in session.stops] == ["dur > 100ns"]

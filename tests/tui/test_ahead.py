"""What is drawn ahead of the next key is what that key would draw, and costs no key anything."""

from __future__ import annotations

import asyncio
from random import Random
from threading import Event

import pytest
from pilots import settled, turns_of
from textual import events

from kernbench.common.progress import no_progress as untold
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.time.timeline import TimelineIndex
from tui.app import KernbenchApp
from tui.jobs import Jobs
from tui.screens.ahead import likely, look_ahead
from tui.widgets.pane import Pane

KEYS = [*"sssSsnnNtT.,iIfF5j+vsS4k-v6vunzsz3shv7s8V"]
NAMES = {".": "full_stop", ",": "comma", "+": "plus", "-": "minus"}


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)
    monkeypatch.setattr("tui.widgets.timeline.TimelinePane.idle", lambda _: None)


async def drawn_ahead(pilot) -> None:
    """Until the task that draws ahead has ended."""
    await pilot.pause()
    await asyncio.wait_for(pilot.app.debugger._ahead, 30)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("step -1", ["step -1", "step 1", "next 1", "next -1"]),
        ("next -1", ["next -1", "step 1", "next 1", "step -1"]),
        ("cause", ["cause", "step 1", "effect", "step -1", "next 1", "next -1"]),
        ("last", ["last", "step 1", "step -1", "next 1", "next -1"]),
        ("goto 4", ["step 1", "step -1", "next 1", "next -1"]),
    ],
)
def test_a_move_is_likely_to_be_made_again_or_undone_and_steps_are_anyway(
    line: str, wanted: list[str]
) -> None:
    assert likely(line) == wanted


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
@pytest.mark.parametrize("seed", range(2))
async def test_the_screen_is_the_same_as_one_that_draws_nothing_ahead(
    size, seed, session, trace_path, monkeypatch, as_text_of
) -> None:
    rng = Random(seed)
    keys = [*KEYS, *(rng.choice(KEYS) for _ in range(30))]
    shown = []
    for ahead in (True, False):
        if not ahead:
            monkeypatch.setattr("tui.screens.debugger.likely", lambda _: [])
        session.goto(20)
        session.level, session._left = 0, []
        app = KernbenchApp(session, "matmul.msgpack")
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            texts = []
            with monkeypatch.context() as quick:
                for module in ("app", "pilot"):
                    quick.setattr(f"textual.{module}.wait_for_idle", turns_of(app))
                for key in keys:
                    await drawn_ahead(pilot)
                    await pilot.press(NAMES.get(key, key))
                    await settled(pilot)
                    texts.append((key, as_text_of(app)))
            shown.append(texts)
    for (key, with_it), (_, without) in zip(*shown, strict=True):
        assert with_it == without, key


async def test_a_step_that_was_drawn_ahead_draws_nothing(drive, monkeypatch) -> None:
    async with drive(200, 50, "s", "s") as pilot:
        await settled(pilot)
        await drawn_ahead(pilot)
        screen, built = pilot.app.debugger, []
        build = Pane._build
        monkeypatch.setattr(
            Pane, "_build", lambda pane, size: built.append(pane) or build(pane, size)
        )
        monkeypatch.setattr("tui.screens.debugger.likely", lambda _: [])
        before = screen.ops.text
        await pilot.press("s")
        assert screen.ops.text != before
        assert built == []


@pytest.mark.parametrize("change", ["j", "plus", "v"])
async def test_what_changes_a_pane_is_not_lost(change: str, drive, as_text_of) -> None:
    texts = []
    for late in (True, False):
        async with drive(120, 40, "g", "4", "s", "s") as pilot:
            await settled(pilot)
            await drawn_ahead(pilot)
            await pilot.press(change)
            if late:
                await drawn_ahead(pilot)
            await pilot.press("s")
            await settled(pilot)
            texts.append(as_text_of(pilot.app))
    assert texts[0] == texts[1]


async def test_a_key_ends_the_drawing_ahead_after_one_pane(session) -> None:
    class Counting:
        drawn, jobs = 0, Jobs()

        def look_ahead(self, op: int) -> bool:
            Counting.drawn += 1
            return True

    session.goto(3)
    panes = [Counting() for _ in range(8)]
    await look_ahead(session, ["step 1", "step -1"], panes, lambda: Counting.drawn < 3)
    assert (Counting.drawn, session.cursor) == (3, 3)


@pytest.mark.parametrize("asked", [0, 1, 3])
async def test_a_key_that_comes_ends_the_drawing_of_a_pane(
    asked: int, drive, monkeypatch
) -> None:
    async with drive(200, 50, "g", "s") as pilot:
        await settled(pilot)
        await drawn_ahead(pilot)
        screen, reads = pilot.app.debugger, []
        monkeypatch.setattr(screen.session.memories, "quick", lambda *_: True)
        monkeypatch.setattr(
            ReplaySession, "tensor", lambda self, name, op, tell: reading(tell)
        )

        def reading(tell) -> None:
            while True:
                reads.append(1)
                tell(0.0)

        screen.memory._ahead, told = {}, iter([False] * asked)
        monkeypatch.setattr(screen.jobs, "key_waits", lambda: next(told, True))
        was = dict(vars(screen.memory))
        assert not screen.memory.look_ahead(screen.session.cursor + 1)
        assert len(reads) == asked
        assert vars(screen.memory) == was
        assert screen.memory._ahead == {}
        assert not screen._quiet()


async def test_a_key_is_told_of_when_it_is_read_until_it_is_acted_on(drive) -> None:
    async with drive(200, 50, "g") as pilot:
        app, here = pilot.app, pilot.app.debugger.session.cursor
        app.driver_class(app).send_message(events.Key("s", "s"))
        assert app.debugger.jobs.key_waits()
        await settled(pilot)
        assert not app.debugger.jobs.key_waits()
        assert app.debugger.session.cursor == here + 1


async def test_what_takes_a_light_job_is_drawn_ahead_once_that_has_ended(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.widgets.timeline._QUICK", -1)
    async with drive(200, 50, "g") as pilot:
        await settled(pilot)
        pane, here = pilot.app.debugger.timeline, pilot.app.debugger.session.cursor
        pane.session.timelines.forget()
        pane._cells = {}
        await pilot.press("0")
        await drawn_ahead(pilot)
        assert {here + 1, here - 1} <= pane._ahead.keys()
        primed = []
        monkeypatch.setattr(TimelineIndex, "index_rows", lambda *_: primed.append(1))
        monkeypatch.setattr("tui.screens.debugger.likely", lambda _: [])
        await pilot.press("s")
        assert not pane.waiting
        assert not primed


async def test_a_light_job_for_what_is_ahead_gives_way_to_a_key(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.widgets.timeline._QUICK", -1)
    monkeypatch.setattr("tui.jobs._WAY_S", 10.0)
    async with drive(200, 50, "g") as pilot:
        await settled(pilot)
        pane, begun = pilot.app.debugger.timeline, Event()
        pane.jobs._ended.clear()
        pane.session.timelines.forget()
        pane._cells = {}
        prime, calls = TimelineIndex.index_rows, []

        def first_endless(self, rows, tell=untold) -> None:
            calls.append(rows)
            while len(calls) == 1:
                begun.set()
                tell(0.5)
            prime(self, rows, tell)

        monkeypatch.setattr(TimelineIndex, "index_rows", first_endless)
        for waiting in (False, True):
            pane.waiting, pane._ahead = waiting, {}
            assert not pane.look_ahead(pane.session.cursor + 1)
            assert pane._ahead == {}
        assert begun.wait(10)
        monkeypatch.setattr("tui.screens.debugger.likely", lambda _: [])
        await pilot.press("s")
        await settled(pilot)
        assert "computing" not in pane.text


async def test_what_takes_long_is_not_begun_ahead(drive, monkeypatch) -> None:
    async with drive(200, 50, "s", "s") as pilot:
        await settled(pilot)
        screen, begun = pilot.app.debugger, []
        monkeypatch.setattr(screen.session.memories, "quick", lambda *_: False)
        monkeypatch.setattr(ReplaySession, "tensor", lambda *_: begun.append(1))
        screen.memory._ahead = {}
        assert not screen.memory.look_ahead(screen.session.cursor + 1)
        assert (screen.memory._ahead, begun, screen.jobs.busy) == ({}, [], False)


def test_where_a_move_leads_is_told_without_making_it(session) -> None:
    session.goto(7)
    session.goto(9)
    assert session.leads(lambda: session.goto(30)) == 30
    with pytest.raises(UsageError):
        session.leads(lambda: session.goto(10**9))
    assert (session.cursor, session.back(), session.back(-1)) == (9, 7, 9)

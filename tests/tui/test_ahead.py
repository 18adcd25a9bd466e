"""What is drawn ahead of the next key is what that key would draw, and costs no key anything."""

from __future__ import annotations

import asyncio
from random import Random
from threading import Event

import pytest
from pilots import settled, turns_of

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.job import untold
from tui.app import KernbenchApp
from tui.jobs import Jobs
from tui.screens.ahead import likely, look_ahead
from tui.widgets.pane import Pane

KEYS = [*"sssSsnnNtT.,iIfF5j+vsS4k-v6vunzsz3shv7s8V"]
NAMES = {".": "full_stop", ",": "comma", "+": "plus", "-": "minus"}


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)


async def drawn_ahead(pilot) -> None:
    """Until the task that draws ahead has ended."""
    await pilot.pause()
    await asyncio.wait_for(pilot.app.debugger._ahead, 30)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("step 1", ["step 1", "step -1"]),
        ("next -1", ["next -1", "next 1"]),
        ("cause", ["cause", "effect"]),
        ("last", ["last"]),
        ("goto 4", []),
        ("back 1", []),
    ],
)
def test_a_move_is_likely_to_be_made_again_or_undone(line: str, wanted: list[str]) -> None:
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


async def test_what_takes_a_job_is_drawn_ahead_once_that_has_ended(drive, monkeypatch) -> None:
    async with drive(200, 50, "s", "s") as pilot:
        screen = pilot.app.debugger
        monkeypatch.setattr(screen.session.memories, "quick", lambda *_: False)
        await pilot.press("k")
        await drawn_ahead(pilot)
        assert {screen.session.cursor + 1, screen.session.cursor - 1} <= screen.memory._ahead.keys()
        shown, computed = screen.memory.text, []
        monkeypatch.setattr(screen.session, "tensor", lambda *_: computed.append(1))
        monkeypatch.setattr("tui.screens.debugger.likely", lambda _: [])
        await pilot.press("s")
        assert screen.memory.text != shown
        assert not screen.memory.waiting
        assert not computed


async def test_a_pane_whose_job_has_not_ended_is_not_drawn_ahead_and_gives_way(
    drive, monkeypatch
) -> None:
    async with drive(200, 50, "s", "s") as pilot:
        await settled(pilot)
        await drawn_ahead(pilot)
        screen, begun, tensor = pilot.app.debugger, Event(), ReplaySession.tensor

        def slow(self, name, op=None, tell=untold):
            while op != session.cursor:
                begun.set()
                tell(0.5)
            return tensor(self, name, op, tell)

        session, pane = screen.session, screen.memory
        monkeypatch.setattr(ReplaySession, "tensor", slow)
        monkeypatch.setattr(session.memories, "quick", lambda *_: False)
        pane.repaint()
        await settled(pilot)
        for waiting in (False, True):
            pane.waiting = waiting
            assert not pane.look_ahead(session.cursor + 1)
            assert pane._ahead == {}
        assert begun.wait(10)
        await pilot.press("s")
        await settled(pilot)
        assert f"op {session.cursor}" in screen.ops.text
        assert "computing" not in pane.text


def test_where_a_move_leads_is_told_without_making_it(session) -> None:
    session.goto(7)
    session.goto(9)
    assert session.leads(lambda: session.goto(30)) == 30
    with pytest.raises(UsageError):
        session.leads(lambda: session.goto(10**9))
    assert (session.cursor, session.back(), session.back(-1)) == (9, 7, 9)

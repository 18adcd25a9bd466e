"""Long answers on the screen: drawn as they end, and not spoken of while they are young."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest
from pilots import settled
from textual.pilot import Pilot

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.job import Job
from kernbench.replay.time.timeline import TimelineIndex
from tui.widgets.pane import Pane


class Slow(Pane):
    """A pane of one answer, that waits for ``go``."""

    number, title = 9, "Slow"

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.go, self.of = Event(), 0

    def draw(self, width: int, height: int) -> list:
        """The answer, or that it is computed."""
        found = self.answer(
            ("slow", self.of), "slow", lambda tell: self.go.wait(10) and self.of
        )
        return [found if isinstance(found, list) else [(f" answer {found}", "")]]


async def asking(pilot: Pilot) -> Slow:
    """A slow pane that shows its first answer and waits for the next."""
    screen = pilot.app.debugger
    pane = Slow(screen.session, screen.glyphs)
    pane.jobs, pane.display = screen.jobs, True
    await screen.query_one("#body").mount(pane)
    screen.panes[9] = pane
    pane.styles.width, pane.styles.height = 40, 4
    pane.go.set()
    await until(pilot, lambda: "answer 0" in pane.text)
    pane.go.clear()
    pane.of = 1
    pane.repaint()
    return pane


async def until(pilot: Pilot, holds) -> None:
    """Wait for what the loop brings, at most some seconds."""
    for _ in range(500):
        if holds():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never came")


async def test_an_answer_is_drawn_when_it_ends_by_no_timer(drive, monkeypatch) -> None:
    monkeypatch.setattr("tui.screens.debugger._LOOK_S", 3600.0)
    async with drive(120, 40) as pilot:
        pane = await asking(pilot)
        pane.go.set()
        await until(pilot, lambda: "answer 1" in pane.text)


async def test_what_was_shown_stays_while_the_new_answer_is_young(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.widgets.pane.PATIENCE_S", 3600.0)
    async with drive(120, 40) as pilot:
        pane = await asking(pilot)
        assert pane.waiting
        assert "answer 0" in pane.text
        assert "computing" not in pane.text
        monkeypatch.setattr("tui.widgets.pane.PATIENCE_S", -1.0)
        pilot.app.debugger.look()
        assert "computing slow" in pane.text, "what is late is said to be computed"
        pane.go.set()
        await until(pilot, lambda: "answer 1" in pane.text)


async def test_a_young_job_is_not_in_the_status_line(
    drive, as_text_of, monkeypatch
) -> None:
    monkeypatch.setattr("tui.jobs.PATIENCE_S", 3600.0)
    async with drive(120, 40) as pilot:
        pane = await asking(pilot)
        pilot.app.debugger.tell()
        await pilot.pause()
        assert "slow" not in as_text_of(pilot.app).splitlines()[0]
        monkeypatch.setattr("tui.jobs.PATIENCE_S", -1.0)
        pilot.app.debugger.tell()
        await pilot.pause()
        assert "slow 0%" in as_text_of(pilot.app).splitlines()[0]
        pane.go.set()
        await until(pilot, lambda: "slow" not in as_text_of(pilot.app).splitlines()[0])


async def test_how_far_a_job_is_is_not_drawn_between_keys_that_come_at_once(
    drive, monkeypatch
) -> None:
    async with drive(120, 40, "2") as pilot:
        screen, looks = pilot.app.debugger, []
        monkeypatch.setattr(screen, "look", lambda: looks.append(1))
        monkeypatch.setattr("tui.screens.debugger._LOOK_S", 3600.0)
        await pilot.press("j")
        screen.glance()
        assert not looks
        monkeypatch.setattr("tui.screens.debugger._LOOK_S", 0.0)
        screen.glance()
        assert looks


async def test_a_job_that_ends_as_the_screen_goes_leaves_no_error(
    drive, caplog
) -> None:
    async with drive(120, 40) as pilot:
        pane = await asking(pilot)
        assert pane.jobs.busy
    pane.go.set()
    while pane.jobs.busy:
        pane.go.wait(0.01)
    assert not caplog.records


async def test_what_is_spare_gives_way_to_a_key_at_once(drive) -> None:
    async with drive(120, 40, "2") as pilot:
        jobs, begun = pilot.app.debugger.jobs, Event()

        def long(tell) -> None:
            begun.set()
            while True:
                tell(0.0)

        assert jobs.spare(("lane", "long"), long) is None
        assert begun.wait(10)
        assert jobs.ask(("lane", "key"), "key", lambda tell: 7, quick=True) == 7
        await until(pilot, lambda: not jobs.busy)
        assert jobs.spare(("lane", "long"), lambda tell: 8) is None, (
            "it was not answered"
        )
        await until(pilot, lambda: jobs.spare(("lane", "long"), lambda tell: 9) == 8)


async def test_what_is_spare_is_kept_for_its_pane_while_others_ask(drive) -> None:
    async with drive(120, 40, "2") as pilot:
        jobs, asked = pilot.app.debugger.jobs, []
        for n in range(3):
            jobs.spare(("lane", n), lambda tell, n=n: n)
            await until(pilot, lambda: not jobs.busy)
        assert [
            jobs.spare(("lane", n), lambda tell: asked.append(1)) for n in range(2)
        ] == [0, 1]
        assert (
            jobs.ask(("lane", 2), "what a key wants", lambda tell: asked.append(1)) == 2
        )
        assert not asked


async def test_what_is_spare_waits_until_no_job_runs(drive) -> None:
    async with drive(120, 40, "2") as pilot:
        jobs, go = pilot.app.debugger.jobs, Event()
        jobs.ask(("lane", "key"), "key", lambda tell: go.wait(10))
        assert jobs.spare(("lane", "spare"), lambda tell: 8) is None
        assert len(jobs.running()) == 1
        go.set()
        await until(pilot, lambda: jobs.spare(("lane", "spare"), lambda tell: 8) == 8)


async def test_a_spare_job_that_cannot_end_makes_a_key_wait_in_its_lane(drive) -> None:
    async with drive(120, 40, "2") as pilot:
        jobs, go, begun = pilot.app.debugger.jobs, Event(), Event()
        jobs.spare(("lane", "long"), lambda tell: begun.set() or go.wait(10))
        assert begun.wait(10)
        asked = ("lane", "key"), "key", lambda tell: 7, True
        assert isinstance(jobs.ask(*asked), Job)
        go.set()
        await until(pilot, lambda: jobs.ask(*asked) == 7)


async def test_escape_is_not_taken_for_what_is_spare(drive) -> None:
    async with drive(120, 40, "2", "z") as pilot:
        jobs, go = pilot.app.debugger.jobs, Event()
        jobs.spare(("lane", "long"), lambda tell: go.wait(10))
        await pilot.press("escape")
        assert not pilot.app.debugger.maximised
        go.set()


async def test_a_job_lets_a_key_be_acted_on_that_came_after_it(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.jobs._KEY_S", 3600.0)
    monkeypatch.setattr("tui.screens.ahead._QUIET_S", 3600.0)
    async with drive(120, 40, "2") as pilot:
        jobs, told, go = pilot.app.debugger.jobs, [], Event()

        def long(tell) -> int:
            go.wait(10)
            tell(0.5)
            told.append("long")
            return 7

        asked = ("lane", "long"), "long", long
        assert isinstance(jobs.ask(*asked), Job)
        await pilot.press("j")
        go.set()
        assert (
            jobs.ask(("other", "late"), "late", lambda tell: tell(0.1) or 8, wait_s=10)
            == 8
        )
        assert not told, (
            "what the key itself asks for does not wait, what was asked before does"
        )
        jobs.drawn()
        await until(pilot, lambda: jobs.ask(*asked) == 7)


@pytest.mark.parametrize("lane", ["other", "own"])
async def test_an_older_job_lets_what_a_key_asks_for_go_first(
    lane: str, drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.jobs._YOUNG_S", 3600.0)
    monkeypatch.setattr("tui.screens.ahead._QUIET_S", 0.0)
    async with drive(120, 40, "2") as pilot:
        jobs, began, go, order = pilot.app.debugger.jobs, Event(), Event(), []

        def long(tell) -> int:
            began.set()
            go.wait(10)
            tell(0.5)
            order.append("old")
            return 7

        def young(tell) -> int:
            go.set()
            while lane == "other" and old.done < 0.5:  # it has told, and waits
                tell(0.0)
            order.append("young")
            return 8

        asked = [(("own", "long"), "long", long), ((lane, "young"), "young", young)]
        old = jobs.ask(*asked[0])
        assert began.wait(10)
        jobs.key()
        jobs.drawn()
        jobs.ask(*asked[1])
        if lane == "own":
            go.set()
        await until(pilot, lambda: [jobs.ask(*each) for each in asked] == [7, 8])
        assert order == (["young", "old"] if lane == "other" else ["old", "young"])


async def test_what_is_drawn_late_is_let_be_too(drive) -> None:
    async with drive(120, 40, "2") as pilot:
        jobs, told = pilot.app.debugger.jobs, []
        jobs.ask(("lane", "long"), "long", lambda tell: [tell(0.5), told.append(1)])
        with jobs.held():
            assert jobs._waits(0.0, "lane")
        assert not jobs._waits(0.0, "lane")
        await until(pilot, lambda: told)
        jobs.key()
        with jobs.held():
            pass
        assert jobs._waits(0.0, "lane"), "a key is still acted on"


async def test_a_spare_job_that_lets_a_key_be_acted_on_can_be_ended(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.jobs._KEY_S", 3600.0)
    monkeypatch.setattr("tui.screens.ahead._QUIET_S", 3600.0)
    monkeypatch.setattr("tui.jobs._WAY_S", 10.0)
    async with drive(120, 40, "2") as pilot:
        jobs, begun = pilot.app.debugger.jobs, Event()
        jobs.spare(
            ("lane", "long"),
            lambda tell: [begun.set() or tell(0.5) for _ in range(10**9)],
        )
        assert begun.wait(10)
        await pilot.press("j")
        assert jobs.ask(("lane", "key"), "key", lambda tell: 7, quick=True) == 7


async def test_an_answer_that_is_dropped_is_computed_no_more_but_can_be_asked_for_again(
    drive,
) -> None:
    async with drive(120, 40, "2") as pilot:
        jobs, begun = pilot.app.debugger.jobs, []

        def endless(tell) -> None:
            begun.append(1)
            while True:
                tell(0.5)

        key = "lane", "endless"
        assert isinstance(jobs.ask(key, "endless", endless), Job)
        await until(pilot, lambda: begun)
        jobs.drop(key)
        await until(pilot, lambda: not jobs.busy)
        assert jobs.ask(key, "endless", lambda tell: 7, wait_s=10) == 7
        jobs.drop(("lane", "never asked"))


async def test_rows_that_are_not_shown_any_more_are_not_indexed(
    drive, monkeypatch
) -> None:
    monkeypatch.setattr("tui.widgets.timeline._QUICK", -1)
    indexed, begun, index_rows = [], Event(), TimelineIndex.index_rows

    def prime(self, rows, tell) -> None:
        begun.set()
        while len(indexed) < 1 and rows == first[0]:
            tell(0.5)
        indexed.append(rows)
        return index_rows(self, rows, tell)

    monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)
    monkeypatch.setattr("tui.widgets.timeline.TimelinePane.idle", lambda _: None)
    monkeypatch.setattr("tui.screens.debugger.likely", lambda _: [])
    async with drive(120, 40, "s") as pilot:
        await settled(pilot)
        pane = pilot.app.debugger.timeline
        pane.session.timelines.forget()
        pane._cells = {}
        timelines, shown = pane.session.timelines, [b.row for b in pane.shown]
        first = [timelines.unindexed(shown).rows]
        monkeypatch.setattr(TimelineIndex, "index_rows", prime)
        pane.repaint()
        assert begun.wait(10)
        await pilot.press("end", "enter")  # another group is open
        await settled(pilot)
        assert first[0] not in indexed


async def test_what_is_redrawn_is_not_computed_again_but_what_failed_is(drive) -> None:
    def failing(tell) -> None:
        computed.append("failing")
        raise KernbenchError("no")

    async with drive(120, 40, "2") as pilot:
        jobs, computed = pilot.app.debugger.jobs, []
        good = ("lane", "good"), "good", lambda tell: computed.append("good") or 7
        assert jobs.ask(*good, wait_s=10) == 7
        for _ in range(2):
            with pytest.raises(KernbenchError, match="no"):
                jobs.ask(("lane", "bad"), "bad", failing, wait_s=10)
            await pilot.press("ctrl+l")
        assert jobs.ask(*good) == 7
        assert computed == ["good", "failing", "failing"]


async def test_a_long_answer_about_times_keeps_no_pane_of_memory_waiting(
    drive, monkeypatch
) -> None:
    go, begun = Event(), Event()

    def slow(self, tell):
        begun.set()
        go.wait(10)
        return self.info()

    monkeypatch.setattr(
        "kernbench.replay.commands._BY_NAME", _by_name_with(slow, "critical")
    )
    monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)
    async with drive(200, 50, "s", "s") as pilot:
        pilot.app.debugger.run("critical")
        assert begun.wait(10)
        await pilot.press("s")
        screen = pilot.app.debugger
        assert not [
            pane.title
            for pane in screen.panes.values()
            if pane.display and pane.waiting
        ]
        go.set()


async def test_a_long_answer_leaves_the_keys_free_and_escape_cancels_it(
    session, drive, as_text_of, monkeypatch
) -> None:
    begun, go = Event(), Event()

    def slow(self, tell) -> None:
        begun.set()
        go.wait(10)
        tell(0.5)

    monkeypatch.setattr(ReplaySession, "verify", slow)
    monkeypatch.setattr("tui.jobs.PATIENCE_S", 0.0)
    async with drive(100, 24) as pilot:
        before = session.cursor
        monkeypatch.setattr("kernbench.replay.commands._BY_NAME", _by_name_with(slow))
        pilot.app.debugger.run("verify")
        assert begun.wait(10)
        await pilot.press("s")
        assert session.cursor == before + 1
        assert "verify 0%" in as_text_of(pilot.app).splitlines()[0]
        pilot.app.debugger.run("info")
        await pilot.pause()
        assert "still computing verify; Esc cancels it" in as_text_of(pilot.app)
        await pilot.press("escape")
        go.set()
        await until(
            pilot, lambda: "error: verify was cancelled" in as_text_of(pilot.app)
        )


def _by_name_with(slow, name="verify"):
    return {c.name: replace(c, run=slow) if c.name == name else c for c in COMMANDS}

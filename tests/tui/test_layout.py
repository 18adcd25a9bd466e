"""Where the panes stand: the plan at each size, tabs, and what the top lines say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region, Size

from tui.screens.layout import ALL, SMALLEST, plan


def shown(width: int, height: int, active: int = 1, tab: int = 2) -> set[int]:
    return {*plan(Size(width, height), active, tab, False).regions}


@pytest.mark.parametrize("tab", ALL[1:])
def test_80x24_has_the_timeline_and_one_tab_of_the_seven_others(tab) -> None:
    made = plan(Size(80, 24), 1, tab, False)
    assert {*made.regions} == {1, tab}
    assert made.tabbed == ALL[1:]


@pytest.mark.parametrize("tab", ALL[1:])
def test_120x40_has_ops_left_timeline_and_a_tab_right(tab) -> None:
    made = plan(Size(120, 40), 1, tab, False)
    assert {*made.regions} == {1, 2, max(tab, 3)}
    assert made.regions[2] == Region(0, 0, 36, 37)
    assert made.tabbed == ALL[2:]


def test_200x50_has_six_panes_at_once_source_and_stats_behind_route() -> None:
    assert shown(200, 50) == {1, 2, 3, 4, 5, 6}
    assert shown(200, 50, tab=7) == {1, 2, 3, 4, 6, 7}
    assert shown(200, 50, tab=8) == {1, 2, 3, 4, 6, 8}
    assert plan(Size(200, 50), 1, 2, False).tabbed == (5, 7, 8)


def test_below_60x16_one_pane_and_the_size_wanted() -> None:
    made = plan(Size(59, 24), 4, 4, False)
    assert ({*made.regions}, made.note) == ({4}, "small: wants 60x16")


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 90)),
    st.sampled_from(ALL),
    st.sampled_from(ALL),
)
def test_at_any_size_the_regions_fill_the_body_without_overlap(
    size, active, tab
) -> None:
    made = plan(Size(*size), active, max(tab, 2), False)
    parts = [*made.regions.values(), *([made.tabs] if made.tabs else [])]
    body = Region(0, 0, size[0], max(size[1] - 3, 1))
    assert sum(part.area for part in parts) == body.area
    assert all(part in body for part in parts)
    assert not any(a.overlaps(b) for i, a in enumerate(parts) for b in parts[:i])
    assert (len(parts) > 1) == (size[0] >= SMALLEST[0] and size[1] >= SMALLEST[1])


async def test_the_active_pane_is_in_view_at_every_size(drive) -> None:
    async with drive(200, 50, "3") as pilot:
        screen = pilot.app.debugger
        for size in ((80, 24), (120, 40), (50, 10), (200, 50)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert (screen.active, screen.panes[3].display) == (3, True), size


async def test_a_tab_of_the_large_screen_stays_while_others_are_active(drive) -> None:
    async with drive(200, 50, "5", "3", "4") as pilot:
        screen = pilot.app.debugger
        assert (screen.active, screen.tab, screen.panes[5].display) == (4, 5, True)


async def test_all_numbered_panes_can_be_reached(drive) -> None:
    async with drive(80, 24) as pilot:
        screen = pilot.app.debugger
        for number in screen.panes:
            await pilot.press(str(number))
            assert (screen.active, screen.panes[number].display) == (number, True)
            await pilot.press("z")
            assert [n for n, pane in screen.panes.items() if pane.display] == [number]
            await pilot.press("z")


async def test_status_counts_stops(drive, as_text_of) -> None:
    async with drive(80, 24) as pilot:
        assert " BP" not in as_text_of(pilot.app).splitlines()[0]
        pilot.app.debugger.run("break kind=gemm")
        pilot.app.debugger.run("watch c w")
        await pilot.pause()
        assert " 2 BP " in as_text_of(pilot.app).splitlines()[0]


async def test_status_says_how_far_a_job_is(drive, as_text_of, monkeypatch) -> None:
    from threading import Event

    from kernbench.replay.job import Job

    monkeypatch.setattr("tui.jobs.PATIENCE_S", 0.0)
    go = Event()

    def compute(tell) -> int:
        tell(0.34)
        go.wait(10)
        return 1

    async with drive(80, 24) as pilot:
        screen = pilot.app.debugger
        assert isinstance(
            screen.jobs.ask(("columns", "x"), "stalls", compute, wait_s=0.1), Job
        )
        screen.look()
        await pilot.pause()
        text = as_text_of(pilot.app).splitlines()[0]
        go.set()
        assert " stalls 34%" in text
        while screen.jobs.busy:
            await pilot.pause()
        screen.look()
        await pilot.pause()
        assert "stalls" not in as_text_of(pilot.app)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
async def test_status_fits_and_keeps_where_the_cursor_is(
    width, session, drive, as_text_of
) -> None:
    session.marks |= {"a": 10, "b": 140}
    async with drive(width, 24) as pilot:
        pilot.app.debugger.run("break kind=gemm")
        pilot.app.debugger.run("goto 40")
        await pilot.pause()
        status = as_text_of(pilot.app).splitlines()[0]
        assert " op 40/151" in status
        assert len(pilot.app.debugger.status.line) > 0
        assert sum(len(text) for text, _ in pilot.app.debugger.status.line) <= width


async def test_a_recorded_verdict_that_failed_is_counted(
    trace_path, as_text_of
) -> None:
    from tui.__main__ import open_session
    from tui.app import KernbenchApp

    session = open_session(trace_path.with_name("fault_overflow.msgpack"), None)
    app = KernbenchApp(session, "fault")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        text = as_text_of(app).splitlines()[0]
        assert "verify FAILED" in text
        assert " !1 DIFF" in text

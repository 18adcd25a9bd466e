"""Where the panes are: the plan at each size, tabs, and what the top lines say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pilots import active_of, pane_of, piloted, run, settled
from textual.geometry import Region, Size

from kernbench.replay import ReplaySession
from kernbench.trace.frames import FrameFile
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.panes import PANES
from tui.screens.layout import ALL, SMALLEST, plan

OTHERS = ALL[1:]
"""All panes but the main one, the timeline."""


def shown(width: int, height: int, tab: str = "ops") -> set[str]:
    return {*plan(Size(width, height), "timeline", tab, False).regions}


def status_of(app: KernbenchApp) -> str:
    """The first line of the screen."""
    return "".join(text for text, _ in app.debugger.status.line)


# -- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize("tab", OTHERS)
def test_80x24_has_the_timeline_and_one_tab_of_the_seven_others(tab) -> None:
    made = plan(Size(80, 24), "timeline", tab, False)
    assert {*made.regions} == {"timeline", tab}
    assert made.tabbed == OTHERS


@pytest.mark.parametrize("tab", OTHERS)
def test_120x40_has_ops_left_timeline_and_a_tab_right(tab) -> None:
    made = plan(Size(120, 40), "timeline", tab, False)
    right = "tiles" if tab == "ops" else tab
    assert {*made.regions} == {"timeline", "ops", right}
    assert made.regions["ops"] == Region(0, 0, 36, 37)
    assert made.tabbed == ALL[2:]


def test_200x50_has_six_panes_at_once_source_and_stats_behind_route() -> None:
    always = {"timeline", "ops", "tiles", "memory", "diff"}
    assert shown(200, 50) == always | {"route"}
    assert shown(200, 50, tab="source") == always | {"source"}
    assert shown(200, 50, tab="stats") == always | {"stats"}
    made = plan(Size(200, 50), "timeline", "ops", False)
    assert made.tabbed == ("route", "source", "stats")


def test_below_60x16_one_pane_and_the_size_wanted() -> None:
    made = plan(Size(59, 24), "memory", "memory", False)
    assert {*made.regions} == {"memory"}
    assert made.note == "small: wants 60x16"


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 90)),
    st.sampled_from(ALL),
    st.sampled_from(OTHERS),
)
def test_at_any_size_the_regions_fill_the_body_without_overlap(
    size, active, tab
) -> None:
    made = plan(Size(*size), active, tab, False)
    parts = [*made.regions.values()]
    if made.tabs is not None:
        parts.append(made.tabs)
    body = Region(0, 0, size[0], max(size[1] - 3, 1))
    assert sum(part.area for part in parts) == body.area
    assert all(part in body for part in parts)
    assert not any(a.overlaps(b) for i, a in enumerate(parts) for b in parts[:i])
    assert (len(parts) > 1) == (size[0] >= SMALLEST[0] and size[1] >= SMALLEST[1])


# -- on the screen --------------------------------------------------------------------


async def test_the_active_pane_is_in_view_at_every_size(drive) -> None:
    async with drive(200, 50, "3") as pilot:
        for size in ((80, 24), (120, 40), (50, 10), (200, 50)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert active_of(pilot) == 3, size
            assert pane_of(pilot, 3).display, size


async def test_a_tab_of_the_large_screen_stays_while_others_are_active(drive) -> None:
    async with drive(200, 50, "5", "3", "4") as pilot:
        assert active_of(pilot) == 4
        assert pilot.app.debugger.tab == "route"
        assert pane_of(pilot, 5).display


async def test_all_numbered_panes_can_be_reached(drive) -> None:
    async with drive(80, 24) as pilot:
        for row in PANES:
            await pilot.press(str(row.number))
            assert active_of(pilot) == row.number
            assert pane_of(pilot, row.number).display
            await pilot.press("z")
            views = pilot.app.debugger.views
            assert [key for key, view in views.items() if view.display] == [row.key]
            await pilot.press("z")


# -- the status line ------------------------------------------------------------------


async def test_status_counts_stops(drive) -> None:
    async with drive(80, 24) as pilot:
        assert " BP" not in status_of(pilot.app)
        run(pilot, "break kind=gemm")
        await settled(pilot)
        run(pilot, "watch c w")
        await settled(pilot)
        assert " 2 BP " in status_of(pilot.app)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
async def test_status_fits_and_keeps_where_the_cursor_is(width, session, drive) -> None:
    for name, op in (("a", 10), ("b", 140), ("", 40)):
        session.goto(op)
        if name:
            session.mark(name)
    session.break_on("kind=gemm")
    async with drive(width, 24) as pilot:
        text = status_of(pilot.app)
        assert " op 40/151" in text
        assert len(text) == width


def app_of(session: ReplaySession) -> KernbenchApp:
    return KernbenchApp(session, "a trace")


async def first_status(app: KernbenchApp, *keys: Any) -> str:
    """The first line on a screen of 120 columns, once some keys were pressed."""
    async with piloted(app, (120, 40)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        return status_of(app)


async def test_a_recorded_verdict_that_failed_is_counted(trace_path) -> None:
    path = trace_path.with_name("fault_overflow.msgpack")
    text = await first_status(app_of(open_session(path, None)))
    assert "verify FAILED" in text
    assert " !1 DIFF" in text


async def test_the_status_line_says_that_a_run_ended_with_an_error(trace_path) -> None:
    """Two PEs wait for each other."""
    path = trace_path.with_name("fault_ring_by_name.msgpack")
    status = await first_status(app_of(open_session(path, None)), "s")
    assert status.rstrip().endswith(" run ended with DeadlockError")
    assert "  op 1/5  " in status


async def test_the_status_line_counts_damaged_frames(trace_path, tmp_path) -> None:
    data = bytearray(trace_path.read_bytes())
    frame = FrameFile(trace_path).by_tag["ops"][0]
    data[frame.start + frame.size // 2] ^= 0xFF
    path = tmp_path / "damaged.msgpack"
    path.write_bytes(data)
    session = open_session(path, None)
    count = session.info().damaged
    assert count > 0
    assert f"{count} damaged frames" in await first_status(app_of(session))

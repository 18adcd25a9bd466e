"""Where the panes are: the plan at each size, tabs, and what the top lines say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import some_in_ci
from pilots import active_of, pane_of, piloted, run, settled
from textual.geometry import Region, Size

from kernbench.replay import ReplaySession
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.trace.frames import FrameFile
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.panes import PANES
from tui.screens.layout import ALL, SMALLEST, plan

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.msgpack"))
OTHERS = ALL[1:]
"""All panes but the main one, the timeline."""


def status_of(app: KernbenchApp) -> str:
    """The first line of the screen."""
    return "".join(text for text, _ in app.debugger.status.line)


# -- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize("tab", OTHERS)
def test_80x24_has_the_timeline_and_one_tab_of_the_others(tab) -> None:
    made = plan(Size(80, 24), "timeline", tab, False)
    assert {*made.regions} == {"timeline", tab}
    assert made.tabbed == OTHERS
    assert not made.bordered


@pytest.mark.parametrize("tab", OTHERS)
def test_120x40_has_the_timeline_on_top_a_tab_and_the_op_below(tab) -> None:
    made = plan(Size(120, 40), "timeline", tab, False)
    assert {*made.regions} == {"timeline", tab, "details"}
    assert made.regions["timeline"].width == 120
    assert made.regions[tab].width - 2 == 80
    assert made.tabbed == OTHERS
    assert made.bordered


def test_200x50_has_all_panes_with_diff_beside_the_timeline() -> None:
    made = plan(Size(200, 50), "timeline", "ops", False)
    assert {*made.regions} == {*ALL, "details"}
    timeline = made.regions["timeline"]
    diff = made.regions["diff"]
    assert (diff.y, diff.height, diff.x) == (0, timeline.height, timeline.right)
    assert made.tabs is None


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_a_pane_with_nothing_to_show_gives_its_place_away(size) -> None:
    shown = tuple(key for key in ALL if key not in ("tiles", "texts"))
    made = plan(Size(*size), "timeline", "tiles", False, shown)
    assert {"tiles", "texts"}.isdisjoint({*made.regions, *made.tabbed})


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_a_timeline_of_few_rows_leaves_its_lines_to_the_tab(size) -> None:
    usual = plan(Size(*size), "timeline", "ops", False)
    few = plan(Size(*size), "timeline", "ops", False, needs={"timeline": 7})
    assert few.regions["timeline"].height == 7 < usual.regions["timeline"].height
    assert few.regions["ops"].height > usual.regions["ops"].height


@pytest.mark.parametrize("width", range(SMALLEST[0], 240))
def test_no_wider_screen_has_narrower_panes(width) -> None:
    """A column that a smaller screen shows is not dropped on a larger one."""
    for key in ("memory", "diff"):
        made = plan(Size(width, 50), key, key, False)
        assert made.regions[key].width >= min(width, 74)


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
    assert active in made.regions or active in made.tabbed
    assert sum(part.area for part in parts) == body.area
    assert all(part in body for part in parts)
    assert not any(a.overlaps(b) for i, a in enumerate(parts) for b in parts[:i])
    assert (len(parts) > 1) == (size[0] >= SMALLEST[0] and size[1] >= SMALLEST[1])


# -- on the screen --------------------------------------------------------------------


@pytest.mark.slow
async def test_the_active_pane_is_in_view_at_every_size(drive) -> None:
    async with drive(200, 50, "3") as pilot:
        for size in ((80, 24), (120, 40), (50, 10), (200, 50)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert active_of(pilot) == 3, size
            assert pane_of(pilot, 3).display, size


async def test_the_number_of_a_pane_with_nothing_to_show_says_why(
    trace_path, as_text_of
) -> None:
    path = trace_path.with_name("fault_overflow.msgpack")
    async with piloted(app_of(open_session(path, None)), (80, 24), "3") as pilot:
        assert active_of(pilot) == 6
        text = as_text_of(pilot.app)
        assert "3 Tiles: no composite has run in this trace" in text
        assert "9 Texts" not in text
        await pilot.press("9")
        assert "9 Texts: no kernel printed anything" in as_text_of(pilot.app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "tab"),
    [
        ("matmul", "tiles"),
        ("ccl_allreduce", "ops"),
        ("fault_overflow", "diff"),
        ("fault_ring_by_name", "stats"),
        ("fault_missing_wait", "source"),
    ],
)
async def test_a_trace_opens_with_what_is_to_be_seen_of_it(
    trace, tab, trace_path
) -> None:
    path = trace_path.with_name(f"{trace}.msgpack")
    async with piloted(app_of(open_session(path, None)), (120, 40)) as pilot:
        assert pilot.app.debugger.views[tab].display


async def test_a_trace_cut_before_its_first_op_has_no_tiles(
    trace_path, tmp_path
) -> None:
    """The names of tiles are in a frame before that of the ops."""
    first = FrameFile(trace_path).by_tag["ops"][0]
    path = tmp_path / "cut.msgpack"
    path.write_bytes(trace_path.read_bytes()[: first.start])
    async with piloted(app_of(open_session(path, None)), (120, 40)) as pilot:
        assert "tiles" not in pilot.app.debugger.desk.shown
        assert not pilot.app.debugger.views["tiles"].display


async def test_where_a_run_failed_enter_blames_at_once(trace_path, as_text_of) -> None:
    """The pane says that Enter blames the element: it is the active one."""
    path = trace_path.with_name("fault_overflow.msgpack")
    async with piloted(app_of(open_session(path, None)), (80, 24)) as pilot:
        await settled(pilot)
        text = as_text_of(pilot.app)
        assert "Enter blames it" in text
        assert "Enter blame" in text.splitlines()[-1]
        assert active_of(pilot) == 6


async def test_what_says_which_error_ended_a_run_is_active(
    trace_path, as_text_of
) -> None:
    path = trace_path.with_name("fault_ring_by_name.msgpack")
    async with piloted(app_of(open_session(path, None)), (80, 24)) as pilot:
        await settled(pilot)
        assert "DeadlockError" in as_text_of(pilot.app)
        assert pilot.app.debugger.active == "stats"


def blank_share(app: KernbenchApp) -> float:
    """Which share of the screen lies on lines of panes on which nothing stands."""
    blank = 0
    for view in app.debugger.views.values():
        width, height = view.room
        lines = view.picture.lines[:height]
        filled = sum(bool("".join(text for text, _ in line).strip()) for line in lines)
        blank += (height - filled) * width
    return blank / (app.size.width * app.size.height)


@pytest.mark.slow
@pytest.mark.parametrize("trace", some_in_ci(TRACES, 2))
async def test_no_more_than_a_tenth_of_the_screen_is_empty(trace, monkeypatch) -> None:
    # What is really found fills more than what is made up for the other tests. It is
    # found once, as no screen changes it.
    monkeypatch.setattr("kernbench.replay.index.WhatIfIndex", WhatIfIndex)
    session = open_session(trace, None)
    for size in ((80, 24), (120, 40), (200, 50)):
        app = app_of(session)
        async with piloted(app, size) as pilot:
            await settled(pilot)
            assert blank_share(app) <= 0.1, size


async def test_the_borders_of_the_active_pane_are_bright(drive) -> None:
    async with drive(120, 40) as pilot:
        styles = {}
        for number in (1, 3):
            await pilot.press(str(number))
            view = pane_of(pilot, 1)
            bottom = Region(0, view.size.height - 1, view.size.width, 1)
            (line,) = view.render_lines(bottom)
            styles[number] = next(iter(line)).style
        assert styles[1] != styles[3]


async def test_a_tab_of_the_large_screen_stays_while_others_are_active(drive) -> None:
    async with drive(80, 24, "5", "1") as pilot:
        assert active_of(pilot) == 1
        assert pilot.app.debugger.tab == "route"
        assert pane_of(pilot, 5).display


@pytest.mark.slow
async def test_all_numbered_panes_can_be_reached(drive) -> None:
    async with drive(80, 24) as pilot:
        for row in PANES:
            if not row.number or row.key == "texts":
                continue  # the op's details are beside; matmul prints nothing
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


@pytest.mark.slow
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


async def test_a_name_that_is_too_long_for_the_status_is_cut_and_not_left_out(
    session,
) -> None:
    """Blank columns stood in its place."""
    session.goto(40)
    app = KernbenchApp(session, "attention_of_" + "some_" * 6 + "name.msgpack")
    async with piloted(app, (70, 24)):
        text = status_of(app)
    assert text.startswith(" attention_")
    assert "…  op 40/151" in text
    assert len(text) == 70


async def test_crumbs_that_are_too_long_end_in_an_ellipsis(session) -> None:
    session.goto(16)
    app = KernbenchApp(session, "a trace")
    async with piloted(app, (46, 12)):
        (line,) = app.debugger.crumbs.strips()
        text = line.text
    assert text == " sip0 > cube0 > pe0 > [pe_scheduler]   compos…"


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


async def test_outputs_that_are_wrong_are_counted_in_the_colour_of_alarm(
    trace_path,
) -> None:
    app = app_of(open_session(trace_path.with_name("fault_overflow.msgpack"), None))
    await first_status(app)
    styles = {text.strip(): style for text, style in app.debugger.status.line}
    assert styles["!1 DIFF"] == "alarm"


@pytest.mark.slow
async def test_the_status_line_counts_outputs_and_not_their_shards(trace_path) -> None:
    """It said !2 of one output in two shards."""
    path = trace_path.with_name("fault_wrong_root.msgpack")
    assert " !1 DIFF" in await first_status(app_of(open_session(path, None)))


@pytest.mark.slow
async def test_the_status_line_says_that_a_run_ended_with_an_error(trace_path) -> None:
    """Two PEs wait for each other."""
    path = trace_path.with_name("fault_ring_by_name.msgpack")
    status = await first_status(app_of(open_session(path, None)), "S")
    assert status.rstrip().endswith(" run ended with DeadlockError")
    assert "  op 4/5  " in status


def damaged(path: Path, tag: str, folder: Path) -> Path:
    """A copy of a trace, with a byte of the first frame of a tag turned round."""
    data = bytearray(path.read_bytes())
    frame = FrameFile(path).by_tag[tag][0]
    data[frame.start + frame.size // 2] ^= 0xFF
    copy = folder / "damaged.msgpack"
    copy.write_bytes(data)
    return copy


async def test_the_status_line_counts_damaged_frames(trace_path, tmp_path) -> None:
    session = open_session(damaged(trace_path, "ops", tmp_path), None)
    assert session.info().damaged == 1
    assert " 1 damaged frame " in await first_status(app_of(session))


async def test_damage_that_is_found_while_one_looks_is_counted_too(
    trace_path, tmp_path
) -> None:
    """Data are read when something is first asked of them, and checked then."""
    session = open_session(damaged(trace_path, "tensors", tmp_path), None)
    assert not session.trace.damaged
    app = app_of(session)
    async with piloted(app, (120, 40)) as pilot:
        await pilot.press("4")
        await settled(pilot)
        assert " 1 damaged frame " in status_of(app)


@pytest.mark.parametrize("name", ["fault_overflow", "fault_wrong_root"])
@pytest.mark.slow
async def test_the_timeline_has_room_for_rows_that_are_known_late(
    name, trace_path
) -> None:
    """Its height was that of the rows known at first, until a pane was chosen."""
    app = app_of(open_session(trace_path.with_name(f"{name}.msgpack"), None))
    async with piloted(app, (120, 40)) as pilot:
        await settled(pilot)
        timeline = app.debugger.views["timeline"]
        at_first = timeline.region
        app.debugger.lay_out()
        await settled(pilot)
        assert timeline.region == at_first

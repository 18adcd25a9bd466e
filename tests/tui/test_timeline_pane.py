"""The Timeline: a tree that folds, pins, lanes, what is marked; large traces draw as a job."""

from pathlib import Path

import numpy as np
import pytest
from textual.events import MouseScrollDown, MouseScrollUp

import tui.widgets.timeline as timeline_module
from kernbench.replay.time.op_classes import CLASSES
from tui.__main__ import open_session

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture
def session(request):
    """The trace that the test names; a small matmul on the 8 PEs of one cube."""
    return open_session(TRACES / f"{getattr(request, 'param', 'matmul')}.msgpack", -1)


on_many_cubes = pytest.mark.parametrize("session", ["mlp_tp"], indirect=True)


def rows_of(text):
    """The rows of a maximised Timeline by their label."""
    lines = text.splitlines()[5:-1]
    return {line[2:].split()[0]: line for line in lines if line.strip()}


async def test_a_small_machine_is_open_down_to_its_engines(drive, as_text_of):
    async with drive(80, 50, "z") as pilot:
        rows = rows_of(as_text_of(pilot.app))
        assert [rows[f"pe{i}"][1] for i in range(8)] == ["-"] * 8
        assert {"s0.io0.pcie_ep", "pe0.pe_scheduler", "pe7.pe_gemm"} <= {*rows}
        assert "sip0" not in rows  # a level of one tells nothing apart
        assert "s0c0" not in rows


async def test_enter_folds_and_unfolds_a_group(session, drive, as_text_of):
    async with drive(80, 50, "z", "home", "j") as pilot:
        assert pilot.app.debugger.timeline.picked().id == "pe0"
        await pilot.press("enter")
        assert rows_of(as_text_of(pilot.app))["pe0"].startswith(" +pe0")
        assert "pe0.pe_gemm" not in rows_of(as_text_of(pilot.app))
        assert "pe1.pe_gemm" in rows_of(as_text_of(pilot.app))
        await pilot.press("enter")
        assert "pe0.pe_gemm" in rows_of(as_text_of(pilot.app))
        assert session.cursor == -1


async def test_enter_on_an_engine_goes_to_its_op_by_the_cursor(session, drive):
    async with drive(80, 50, "z", "G", "k") as pilot:
        (component,), _ = pilot.app.debugger.timeline.picked().row
        await pilot.press("enter")
        assert session.component == component


@on_many_cubes
async def test_a_large_machine_is_open_where_the_cursor_is(session, drive, as_text_of):
    async with drive(80, 50, "z", "G") as pilot:
        rows = rows_of(as_text_of(pilot.app))
        assert rows["s0"].startswith("*-")
        assert rows["s0c0"].startswith("*-")
        assert rows["s0c0.pe0.pe_dma"].startswith("> ")
        assert rows["s0c1"].startswith(" +")
        assert "s0c1.pe0.pe_dma" not in rows
        assert rows["s1"].startswith("*+")
        here = session.component
        while (
            session.component == here or session.trace.nodes.pe[session.component] < 0
        ):
            session.step(-1)
        pilot.app.debugger.moved()
        await pilot.pause()
        rows = rows_of(as_text_of(pilot.app))
        assert "s0c0.pe0.pe_dma" not in rows
        (now,) = (name for name, line in rows.items() if line.startswith("> "))
        assert now.endswith(session.trace.nodes.engine[session.component])


@on_many_cubes
async def test_what_was_folded_by_hand_stays_folded_under_the_cursor(drive, as_text_of):
    async with drive(80, 50, "z", "G") as pilot:
        pilot.app.debugger.timeline.folds = {"-s0c0", "+s0c1", "-no such row"}
        pilot.app.debugger.timeline.repaint()
        await pilot.pause()
        rows = rows_of(as_text_of(pilot.app))
        assert rows["s0c0"].startswith(">+")
        assert "s0c1.pe0.pe_dma" in rows


@on_many_cubes
async def test_a_group_shows_how_much_of_what_is_below_is_busy(
    session, drive, as_text_of
):
    async with drive(120, 50, "z", "G") as pilot:
        timeline = pilot.app.debugger.timeline
        sip, cube = (timeline.hierarchy.at[id] for id in ("s0", "s0c0"))
        assert (sip.pes, cube.pes) == (16, 1)
        both = session.timelines.draw_rows(
            [sip.row, cube.row], timeline.t0, timeline.t1, 60
        )
        cubes = [
            b.row for b in timeline.hierarchy.rows if b.id.startswith("s0c") and b.group
        ]
        parts = session.timelines.draw_rows(cubes, timeline.t0, timeline.t1, 60)
        assert len(cubes) == 16
        np.testing.assert_allclose(
            both[0].busy, sum(row.busy for row in parts), atol=1e-6
        )


async def test_the_lanes_view_has_a_row_for_each_lane_used(session, drive, as_text_of):
    async with drive(80, 50, "z", "v") as pilot:
        text = as_text_of(pilot.app)
        assert "[1 Timeline: lanes]" in text
        dma = session.trace.node_index["sip0.cube0.pe0.pe_dma"]
        lanes = [*session.op_index.lanes_of(dma)]
        found = [
            line.split()[1] for line in text.splitlines() if " pe0.pe_dma " in line
        ]
        assert [int(lane) for lane in found] == lanes
        assert len(lanes) == 5


async def test_ops_in_flight_are_marked_in_their_lane_and_above(
    session, drive, as_text_of
):
    async with drive(80, 50, "z", "G", "v") as pilot:
        lines = as_text_of(pilot.app).splitlines()
        marked = [line[0] for line in lines if line[1:].startswith(" pe2.pe_dma ")]
        assert marked == [" ", " ", " ", " ", ">"]
        assert any(line.startswith("*-pe2 ") for line in lines)
        flying = {
            session.trace.node_ids[session.components[op]] for op in session.in_flight()
        }
        stars = {
            f"sip0.cube0.{line.split()[1]}" for line in lines if line.startswith("*  ")
        }
        shown = {line[2:].split()[0] for line in lines if line[:2] in ("* ", "> ")}
        assert {f"sip0.cube0.{name}" for name in shown} <= flying
        assert not stars


async def test_the_critical_path_is_letters_and_all_else_dots(
    session, drive, settle, as_text_of
):
    async with drive(80, 50, "z", "v", "v") as pilot:
        await settle(pilot)
        rows = rows_of(as_text_of(pilot.app))
        path = session.critical_path()
        ops = path.ops[(path.ops >= 0) & (path.whats < len(CLASSES))]
        on = {session.trace.node_ids[node] for node in session.components[ops]}
        cells = {name: line[22:] for name, line in rows.items() if ".pe_" in name}
        for name, line in cells.items():
            lit = set(line) - set(" .│")
            assert bool(lit) == (f"sip0.cube0.{name}" in on), name
        assert any("." in line for line in cells.values())


@pytest.mark.parametrize("session", ["fault_missing_wait"], indirect=True)
async def test_hazards_are_marked_with_a_shriek(session, drive, settle, as_text_of):
    async with drive(80, 24, "z") as pilot:
        assert "!" not in "".join(rows_of(as_text_of(pilot.app)).values())
        await pilot.press("V")
        await settle(pilot)
        rows = rows_of(as_text_of(pilot.app))
        assert "!!!" in rows["pe0.pe_dma"]
        assert "!!!" in rows["pe0.pe_math"]
        assert "!" not in rows["s0.io0.pcie_ep"]


async def test_a_pinned_row_stays_on_top_until_it_is_let_go(session, drive, as_text_of):
    async with drive(80, 24, "z", "home", "j", "j", "p", "end") as pilot:
        timeline = pilot.app.debugger.timeline
        assert timeline.pins == ["sip0.cube0.pe0.pe_scheduler"]
        lines = as_text_of(pilot.app).splitlines()
        assert lines[5].startswith(" ^pe0.pe_scheduler ")
        assert lines[6].startswith("  pe4")
        await pilot.press("home", "j", "j", "p")
        assert timeline.pins == []
        assert "^" not in as_text_of(pilot.app)


async def test_pins_of_another_machine_are_ignored(drive, as_text_of):
    async with drive(80, 24, "z") as pilot:
        before = as_text_of(pilot.app)
        pilot.app.debugger.timeline.pins = ["sip9.cube9.pe9.pe_dma"]
        pilot.app.debugger.timeline.repaint()
        assert as_text_of(pilot.app) == before


async def test_a_click_picks_the_row_under_the_pins(session, drive):
    async with drive(80, 24, "z", "home", "j", "j", "p") as pilot:
        timeline = pilot.app.debugger.timeline
        branch = timeline.shown[timeline.top + 4]
        await pilot.click("#pane-1", offset=(3, 1 + 2 + 1 + 4))
        assert session.component == branch.row[0][0]


async def test_rows_that_need_an_index_of_many_ops_come_when_it_is_there(
    monkeypatch, drive, settle, as_text_of
):
    monkeypatch.setattr(timeline_module, "_QUICK", -1)
    async with drive(80, 24, "z") as pilot:
        await settle(pilot)
        assert "RRRR" in rows_of(as_text_of(pilot.app))["pe0.pe_dma"]
        assert not pilot.app.debugger.timeline.waiting


async def test_a_long_trace_is_surveyed_at_rest_and_then_needs_no_index(
    monkeypatch, session, drive, settle, as_text_of
):
    texts = []
    for quick in (10**9, -1):
        monkeypatch.setattr(timeline_module, "_QUICK", quick)
        session.goto(20)
        async with drive(120, 40, "0") as pilot:
            await settle(pilot)
            pane, timelines = pilot.app.debugger.timeline, session.timelines
            assert timelines.has_summary(pane.t0, pane.t1, pane._chart[1]) == (
                quick < 0
            )
            if quick < 0:
                monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)
                monkeypatch.setattr(
                    timeline_module.TimelinePane, "idle", lambda _: None
                )
                timelines.forget()
                pane._cells = {}
            for key in "ssss":
                await pilot.press(key)
                await settle(pilot)
            texts.append(as_text_of(pilot.app))
    assert session.cursor == 24
    assert not session.timelines.indexed
    assert texts[0] == texts[1]


async def test_rows_that_are_shown_are_indexed_for_another_window(
    monkeypatch, drive, settle
):
    monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)
    async with drive(120, 40, "g", "0") as pilot:
        await settle(pilot)
        pane = pilot.app.debugger.timeline
        timelines, window = pane.session.timelines, (pane.t0, pane.t1, pane._chart[1])
        timelines.summarize(*window)
        timelines.forget()
        monkeypatch.setattr(timeline_module, "_LIGHT", 0)  # row by row
        for _ in pane.shown:
            pane.idle()
            await settle(pilot)
            pane.idle()  # takes the answer
        rows = [branch.row for branch in pane.shown[pane.top : pane.top + pane.room]]
        assert rows
        assert timelines.unindexed(rows) == ((), 0)


async def test_what_is_fitted_says_so(drive, as_text_of):
    async with drive(80, 24, "0") as pilot:
        assert "the timeline is fitted to the launches" in as_text_of(pilot.app)
        await pilot.press("plus", "0")
        assert "the timeline is fitted" not in as_text_of(pilot.app)


def test_a_row_that_is_not_indexed_says_so_and_the_others_are_drawn(
    monkeypatch, session
):
    pane = timeline_module.TimelinePane(
        session, timeline_module.Glyphs(*"-|=", "->", *"~    ")
    )
    monkeypatch.setattr(pane, "answer", lambda *_: [("computing", "mark")])
    rows = pane.hierarchy.rows[:3]
    session.timelines.index_rows([rows[2].row])
    assert pane._draw_cells(rows, 40, None) == [("computing", "mark")]
    assert [*pane._cells] == [rows[2].row]


async def test_the_window_fits_between_two_times(drive):
    async with drive(80, 24) as pilot:
        timeline = pilot.app.debugger.timeline
        timeline.fit_between(8100, 8200)
        assert timeline.t0 < 8100 < 8200 < timeline.t1 < 8210
        timeline.fit_between(8100, 8100)
        assert timeline.t0 < 8100 < timeline.t1 < timeline.t0 + 2


async def test_no_number_of_the_ruler_is_cut(drive, as_text_of):
    async with drive(80, 24, "z") as pilot:
        for _ in range(8):
            ruler = as_text_of(pilot.app).splitlines()[4]
            assert all(tick.endswith("s") for tick in ruler.split()[:-1])
            assert ruler.rstrip()[-1] in "s│"
            await pilot.press("l")


def edges(timeline):
    return timeline.t0 / timeline.end, timeline.t1 / timeline.end


async def test_zoom_and_pan_stay_within_the_run(drive, settle):
    async with drive(80, 24, *"------") as pilot:
        timeline = pilot.app.debugger.timeline
        await settle(pilot)
        assert edges(timeline) == pytest.approx((-1 / 48, 49 / 48))
        await pilot.press(*"++", *"l" * 40)
        await settle(pilot)
        low, high = edges(timeline)
        assert 1.0 < high < 1.01
        assert high - low == pytest.approx(50 / 48 / 4)
        await pilot.press(*"h" * 40)
        await settle(pilot)
        assert -0.01 < edges(timeline)[0] < 0.0


async def test_the_closest_zoom_says_how_short_a_cell_is(
    session, drive, settle, as_text_of
):
    session.goto(75)
    async with drive(80, 24, *"+" * 40) as pilot:
        await settle(pilot)
        timeline = pilot.app.debugger.timeline
        assert timeline.t0 <= session.time < timeline.t1
        assert timeline.t1 - timeline.t0 == pytest.approx(0.125)
        cell = 0.125 / timeline._chart[1]
        assert f"{cell:.4f}ns a cell" in as_text_of(pilot.app).splitlines()[2]


@pytest.mark.parametrize(("keys", "arrow"), [("h", "→"), ("l", "←")])
async def test_an_arrow_points_to_a_cursor_out_of_view(
    session, keys, arrow, drive, settle, as_text_of
):
    session.goto(75)
    async with drive(80, 24, "z", *"+++") as pilot:
        await settle(pilot)
        assert arrow not in as_text_of(pilot.app)
        await pilot.press(*keys * 12)
        await settle(pilot)
        ruler = as_text_of(pilot.app).splitlines()[4]
        assert ruler.strip()[0 if arrow == "←" else -1] == arrow


def cell_of(timeline, session, op):
    """The column of the pane that an op's middle is in, and its row."""
    label, cells = timeline._chart
    row = session.row(op)
    share = ((row.t_start + row.t_end) / 2 - timeline.t0) / (timeline.t1 - timeline.t0)
    (y,) = (i for i, b in enumerate(timeline.shown) if b.id == row.component)
    return label + int(share * cells), 3 + y - timeline.top


async def test_a_click_on_a_bar_goes_to_the_op_there(session, drive, settle):
    session.goto(75)
    async with drive(80, 50, "z") as pilot:
        timeline = pilot.app.debugger.timeline
        for op in (131, 99):  # of the same engine, after the cursor
            await pilot.click("#pane-1", offset=cell_of(timeline, session, op))
            await settle(pilot)
            assert session.cursor == op


async def test_a_click_on_a_bar_of_a_group_goes_to_an_op_of_it(session, drive, settle):
    session.goto(75)
    async with drive(80, 50, "z") as pilot:
        timeline = pilot.app.debugger.timeline
        x, y = cell_of(timeline, session, 99)
        group = timeline.shown[timeline.top + y - 3 - 4]
        assert group.id == "pe1"
        await pilot.click("#pane-1", offset=(x, y - 4))
        await settle(pilot)
        assert session.component in group.row[0]
        assert session.cursor > 75


async def test_a_click_on_the_minimap_goes_to_its_time(session, drive, settle):
    async with drive(80, 24, "z") as pilot:
        label, cells = pilot.app.debugger.timeline._chart
        await pilot.click("#pane-1", offset=(label + cells // 2, 1))
        await settle(pilot)
        end = session.trace.end_ns
        assert session.cursor == session.goto_time(cells // 2 / (cells - 1) * end)
        assert session.cursor > 0


async def test_the_wheel_moves_the_picked_row(drive, settle):
    async with drive(80, 24, "z", "g") as pilot:
        timeline = pilot.app.debugger.timeline
        here = timeline.at
        for event, at in ((MouseScrollDown, here + 3), (MouseScrollUp, here)):
            pilot.app.post_message(event(None, 5, 8, 0, 0, 0, False, False, False))
            await settle(pilot)
            assert timeline.at == at


async def test_a_click_on_a_tab_shows_its_pane(drive, settle, as_text_of):
    async with drive(80, 24) as pilot:
        strip = next(x for x in as_text_of(pilot.app).splitlines() if "7 Source" in x)
        await pilot.click("#tabs", offset=(strip.index("7 Source") + 3, 0))
        await settle(pilot)
        assert "[7 Source]" in as_text_of(pilot.app)
        assert pilot.app.debugger.active == 7

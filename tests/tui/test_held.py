"""What is easily lost unseen: counts, timers, limits, what is kept, and what drawing costs."""

from __future__ import annotations

import sys
from concurrent.futures import wait
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import tui.widgets.timeline as timeline_module
from pilots import settled, still
from textual.geometry import Region
from tui.jobs import Jobs
from tui.widgets.draw import STYLES, UNICODE
from tui.widgets.memory import MemoryPane
from tui.widgets.route import RoutePane
from tui.widgets.timeline import TimelinePane

from kernbench.replay.commands import run_command
from tui import __main__ as program
from tui import state
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.keymap import Keymap
from tui.screens.debugger import DebuggerScreen

TRACES = Path(__file__).parents[2] / "traces"


def shown(lines) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


# -- memory, timers, threads -------------------------------------------------------


def test_memory_counts_what_is_not_a_number() -> None:
    session = open_session(TRACES / "fault_overflow.msgpack", None)
    run_command(session, "goto end")
    pane = MemoryPane(session, UNICODE)
    pane.kept, pane.view = "y", 1
    nans = int(np.isnan(session.tensor("y").values).sum())
    assert nans > 0
    assert f"NaN {nans}" in shown(pane.draw(100, 20))


def test_a_key_waits_for_no_worker_s_long_share_of_the_interpreter() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        Jobs()
        assert sys.getswitchinterval() <= 0.001
    finally:
        sys.setswitchinterval(before)


async def test_what_still_computes_is_cancelled_when_the_screen_ends(drive) -> None:
    begun, go = Event(), Event()

    def endless(tell) -> None:
        while not go.wait(0.01):
            tell(0.0)
            begun.set()

    async with drive(80, 24) as pilot:
        jobs = pilot.app.debugger.jobs
        jobs.ask(("a lane", "endless"), "endless", endless)
        assert begun.wait(20)
        ((job, future),) = (
            pair for key, pair in jobs._asked.items() if key[1] == "endless"
        )
    try:
        assert job._cancelled
        assert future.exception(20) is not None
    finally:
        go.set()


# -- the screen ---------------------------------------------------------------------


async def test_nothing_is_animated(drive) -> None:
    async with drive(80, 24) as pilot:
        assert pilot.app.animation_level == "none"


async def test_the_status_line_counts_damaged_frames(
    trace_path, tmp_path, as_text_of
) -> None:
    data, path = bytearray(trace_path.read_bytes()), tmp_path / "damaged.msgpack"
    frame = open_session(trace_path, None).trace._file.by_tag["ops"][0]
    data[frame.start + frame.size // 2] ^= 0xFF
    path.write_bytes(data)
    session = open_session(path, None)
    count = session.info().damaged
    assert count > 0
    app = KernbenchApp(session, path.name)
    async with app.run_test(size=(120, 40)) as pilot:
        await still(pilot)
        assert f"{count} damaged frames" in as_text_of(app).splitlines()[0]


async def test_what_is_folded_is_kept(session, drive) -> None:
    async with drive(80, 50, "1", "z", "home", "j", "enter") as pilot:
        assert pilot.app.debugger.timeline.folds == {"-pe0"}
        kept = state.state(pilot.app.debugger)
    state.write("traces/x.json", kept)
    screen = DebuggerScreen(session, "x", UNICODE, Keymap())
    assert state.restore(screen, state.read("traces/x.json")[0]) == []
    screen.jobs.close()
    assert screen.timeline.folds == {"-pe0"}
    rows = screen.timeline.hierarchy.shown(screen.timeline.folds, 0, None)
    assert not {row.id for row in rows} & {"sip0.cube0.pe0.pe_dma"}


def test_a_screen_is_printed_when_its_answers_are_there(
    session, monkeypatch, capsys
) -> None:
    """The rows of the timeline are computed until the screen's jobs were looked at some times."""
    monkeypatch.setattr(timeline_module, "_QUICK", -1)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "60")
    go, looks, look = Event(), [], DebuggerScreen.look
    index_rows = session.timelines.index_rows

    def looked(screen: DebuggerScreen) -> None:
        looks.append(1)
        if len(looks) == 5:
            go.set()
            wait([future for _, future in screen.jobs._asked.values()], 20)
        look(screen)

    monkeypatch.setattr(DebuggerScreen, "look", looked)
    monkeypatch.setattr(
        session.timelines,
        "index_rows",
        lambda *rows: go.wait(20) and index_rows(*rows),
    )
    session.goto(100)
    program.print_screen(session, "matmul.msgpack", False)
    go.set()
    text = capsys.readouterr().out
    assert "computing" not in text
    assert "RRRR" in text


# -- drawing -----------------------------------------------------------------------

UNITS = [(0.0, 400.0, "ns"), (8100.0, 8200.0, "us"), (0.0, 3e6, "ms")]


@pytest.mark.parametrize(
    ("t0", "t1", "unit"), UNITS, ids=[unit for _, _, unit in UNITS]
)
def test_the_ruler_is_in_the_unit_of_its_times(t0, t1, unit, session) -> None:
    pane = TimelinePane(session, UNICODE)
    pane.t0, pane.t1 = t0, t1
    ticks = shown(pane.draw(120, 20)).splitlines()[1].replace(UNICODE.bar, " ").split()
    assert len(ticks) > 3
    assert {tick.lstrip("-0123456789.") for tick in ticks} - {*"←→"} == {
        unit
    }  # the cursor's side


def test_enter_on_a_lane_goes_to_an_op_of_that_lane(session) -> None:
    run_command(session, "goto 100")
    pane = TimelinePane(session, UNICODE)
    pane.view = pane.views.index("lanes")
    pane.draw(100, 80)
    columns, order = session.trace.op_columns, session.trace.order
    lanes = [i for i, row in enumerate(pane.shown) if row.row[1] is not None]
    assert len(lanes) > 8
    for i in lanes:
        pane.at = i
        op = int(str(pane.enter()).removeprefix("goto "))
        ((component,), lane) = pane.shown[i].row
        assert (columns.component[order[op]], columns.slot[order[op]]) == (
            component,
            lane,
        )


@pytest.mark.parametrize(("view", "glyph"), [("hazards", "!"), ("critical path", "#")])
def test_what_is_marked_is_seen_where_nothing_is_busy_too(
    view, glyph, session, monkeypatch
):
    pane = TimelinePane(session, UNICODE)
    pane.view, rows = pane.views.index(view), pane.hierarchy.rows
    drawn = session.timelines.draw_rows([row.row for row in rows], pane.t0, pane.t1, 60)
    i, at = next(
        (i, row.classes.index(" ")) for i, row in enumerate(drawn) if " " in row.classes
    )
    hit = np.arange(60) == at
    monkeypatch.setattr(pane, "_hit", lambda *_: hit)
    pane._draw_cells([rows[i]], 60, np.array([0]))
    assert pane._cells[rows[i].row][at] == glyph


def test_the_busier_a_link_the_hotter_its_colour(session, monkeypatch) -> None:
    run_command(session, "goto 100")
    pane = RoutePane(session, UNICODE)
    pane.view, load = pane.views.index("heat"), session.link_load(*pane.span())
    busy = [0.95, 0.6, 0.3, 0.05]
    links = tuple(replace(x, busy=b) for x, b in zip(load.links, busy, strict=False))
    monkeypatch.setattr(session, "link_load", lambda *_: replace(load, links=links))
    runs = [run for line in pane.draw(160, 40) for run in line]
    colours = [
        next(style for text, style in runs if text.strip() == f"{b:.1%}") for b in busy
    ]
    assert len({STYLES[colour] for colour in colours}) == 4
    assert colours == ["bad", "mark", "flight", "dim"]
    digits = {
        text: style for text, style in runs if text.isdigit() and style in colours
    }
    assert {"9": "bad", "3": "flight"}.items() <= digits.items()


# -- what drawing costs ------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, 9))
async def test_a_line_has_one_segment_a_run_of_one_style(
    number, session, drive
) -> None:
    run_command(session, "goto 100")
    async with drive(200, 50, str(number)) as pilot:
        await settled(pilot)
        pane = pilot.app.debugger.panes[number]
        for line in pane.render_lines(Region(0, 0, *pane.size)):
            inks = [segment.style for segment in line][1 if pane.gap else 0 :]
            assert all(a != b for a, b in pairwise(inks)), line.text


async def test_a_row_of_the_timeline_has_few_segments(session, drive) -> None:
    run_command(session, "goto 100")
    async with drive(200, 50, "1", "z") as pilot:
        pane = pilot.app.debugger.panes[1]
        sizes = [len([*strip]) for strip in pane._strips[3:]]
        cells = [len(set(row)) for row in pane._cells.values()]
    assert max(cells) > 1
    assert np.median(sizes) <= 16
    assert max(sizes) <= 40  # of 180 cells


@pytest.fixture
def refreshed(monkeypatch):
    """``refreshed(pane)``: the regions that it asks to be drawn from then on, by call."""

    def watch(pane) -> list[tuple[Region, ...]]:
        calls: list[tuple[Region, ...]] = []
        refresh = pane.refresh

        def noted(*regions: Region, **more: bool):
            calls.append(regions)
            return refresh(*regions, **more)

        monkeypatch.setattr(pane, "refresh", noted)
        return calls

    return watch


async def test_a_step_draws_only_the_lines_that_differ(
    session, drive, refreshed
) -> None:
    session.goto(40)
    async with drive(200, 50) as pilot:
        await settled(pilot)
        panes = [pane for pane in pilot.app.debugger.panes.values() if pane.display]
        before = {pane: [strip.text for strip in pane._strips] for pane in panes}
        calls = {pane: refreshed(pane) for pane in panes}
        await pilot.press("s")
        await settled(pilot)
        ops = pilot.app.debugger.panes[2]
        for pane in panes:
            regions = [region for call in calls[pane] for region in call]
            assert all(call for call in calls[pane])  # none is of the whole pane
            assert all(region.height == 1 for region in regions)
            now = [strip.text for strip in pane._strips]
            differ = {
                y
                for y, (a, b) in enumerate(zip(before[pane], now, strict=True))
                if a != b
            }
            assert differ <= {region.y for region in regions}
        rows = {region.y for call in calls[ops] for region in call}
        assert len(rows) < ops.size.height


async def test_what_has_not_changed_is_not_drawn_again(drive, refreshed) -> None:
    async with drive(200, 50) as pilot:
        await settled(pilot)
        panes = [pane for pane in pilot.app.debugger.panes.values() if pane.display]
        calls = [refreshed(pane) for pane in panes]
        for pane in panes:
            pane.repaint()
        assert calls == [[]] * len(panes)

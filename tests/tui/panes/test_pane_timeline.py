"""The timeline: a window over the run, rows that fold, pins, what is marked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from bench import TRACES, PaneBench, component_of, ops_of
from screens import MAXIMISED, PLACES, SIZES, cut, on_screen, title_on_screen

from kernbench.replay.commands import CRITICAL, GOTO, TIME, answer
from kernbench.replay.commands import HAZARDS as FOUND_HAZARDS
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    CELLS,
    CRITICAL_CELLS,
    HAZARD_CELLS,
    INDEXED_ROWS,
    LANES,
    SUMMARY,
    TRAFFIC,
    TRAFFIC_CELLS,
)
from kernbench.replay.query import Query
from kernbench.replay.races.findings import Findings
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.timeline import RowKey
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from tui.draw import ASCII, UNICODE, without_colours
from tui.panes.base import ChangeView, Click, Do, Enter, Moved, Pan, Pin, Scroll
from tui.panes.timeline import (
    CRITICAL as CRITICAL_VIEW,
)
from tui.panes.timeline import (
    HAZARDS,
    IN_LANES,
    LONG_OPS,
    Fit,
    FitBetween,
    TimelinePane,
    Zoom,
)

ALL_ROWS = 60
"""Lines that all rows of a small machine fit into."""
LABEL = 16
"""Columns of the names of these rows, of 80."""


@pytest.fixture(scope="module")
def matmul() -> Index:
    """A small matmul on the 8 PEs of one cube."""
    return Index(Trace.open(TRACES / "matmul.msgpack"))


@pytest.fixture(scope="module")
def many_cubes() -> Index:
    """Two SIPs of 16 cubes."""
    return Index(Trace.open(TRACES / "mlp_tp.msgpack"))


def timeline(index: Index, op: int = 0, width: int = 80, height: int = ALL_ROWS):
    return PaneBench(TimelinePane, index, op, width, height)


_FOOTER = (" began", " waited", " \N{LEFTWARDS ARROW}")


def names_of(bench: PaneBench) -> list[str]:
    """The whole names of the rows, from the first line below the ruler on.

    What is below a group is named by what it adds to the group's name; the first row in
    view, and pinned ones, are named in full.
    """
    folds = "".join(bench.frame.glyphs.fold)
    above: list[str] = []
    names = []
    for line in bench.lines[2:]:
        if line.startswith(_FOOTER):
            break
        cells = line[2 : LABEL - 1].rstrip()
        text = cells.strip()
        depth = (len(cells) - len(text)) // 2
        if not names and "." in text:
            above = [text.rpartition(".")[0]]
        elif depth:
            around = ".".join(above[depth - 1 : depth])
            nested = text.startswith("s") and line[1:2] in folds
            text = text if nested else f"{around}.{text}"
        if line[1:2] in folds:
            above[depth:] = [text]
        names.append(text)
    return names


def rows_of(bench: PaneBench) -> dict[str, str]:
    """The lines of the rows by their whole name."""
    named = zip(names_of(bench), bench.lines[2:], strict=False)
    return {name: line for name, line in named if name}


def show(bench: PaneBench, view: int) -> None:
    while bench.pane.view(bench.state) != view:
        bench.send(ChangeView(1))


def pick(bench: PaneBench, name: str) -> None:
    """Pick the row of a name."""
    bench.send(Scroll(-ALL_ROWS))
    wanted = names_of(bench).index(name)
    bench.send(Scroll(wanted))


def last_write(index: Index, cube: str) -> int:
    """The last op of the DMA of a cube's first PE."""
    return ops_of(index, f"{cube}.pe0.pe_dma")[-1]


def gone_to(bench: PaneBench) -> int:
    """The op that the last event went to."""
    (effect,) = bench.effects
    assert isinstance(effect, Do)
    assert effect.call.command is GOTO
    return effect.call.args.op


# -- on the screen -----------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_it_shows_what_the_screen_showed(matmul, size):
    place = PLACES["timeline", size]
    bench = timeline(matmul, 16, place.width, place.height)
    assert cut(bench.text, place) == on_screen(f"timeline-{size}-before", place)
    bench.goto(151)
    bench.goto(143)
    for event in (Zoom(0.5), Zoom(0.5), Pan(1)):
        bench.send(event)
    assert cut(bench.text, place) == on_screen(f"timeline-{size}-after", place)
    title = title_on_screen(f"timeline-{size}-after", place)
    assert title.endswith(f" {bench.picture.subtitle}")


@pytest.mark.parametrize(
    ("view", "trace", "op"),
    [
        ("lanes", "matmul", 79),
        ("critical path", "matmul", 79),
        ("hazards", "fault_missing_wait", 3),
    ],
)
def test_its_other_views_show_what_the_screen_showed(view, trace, op):
    bench = PaneBench(TimelinePane, trace, op, 80, PLACES["timeline", "80x24"].height)
    bench.resize(MAXIMISED.width, MAXIMISED.height)
    show(bench, bench.pane.views.index(view))
    name = f"timeline-{view.replace(' ', '-')}-80x24"
    assert bench.text == on_screen(name, MAXIMISED)


@pytest.mark.parametrize("view", range(len(TimelinePane.views)))
def test_ascii_needs_no_other_characters(matmul, view):
    bench = PaneBench(TimelinePane, matmul, 100, 120, 30, glyphs=ASCII)
    show(bench, view)
    assert bench.text.isascii()


def test_a_row_has_few_runs_of_one_style(matmul):
    bench = timeline(matmul, 100, 200)
    runs = [len(line) for line in bench.picture.lines[2:]]
    assert np.median(runs) <= 18
    assert max(runs) <= 42  # of 180 cells


def test_a_trace_without_ops_says_so(tmp_path):
    data = (TRACES / "matmul.msgpack").read_bytes()
    path = tmp_path / "cut.msgpack"
    path.write_bytes(data[: len(data) // 2])
    bench = PaneBench(TimelinePane, path, -1)
    assert not len(bench.index.ops)
    assert bench.lines == [" no ops in this trace; :info has more"]
    for event in (Scroll(1), Enter(), Click(40, 0), Zoom(0.5), Pan(1), ChangeView(1)):
        bench.send(event)
    assert bench.lines == [" no ops in this trace; :info has more"]


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 1), (60, 1), (80, 0)])
def test_the_smallest_sizes_are_drawn(matmul, size):
    bench = timeline(matmul, 40, *size)
    for view in range(len(TimelinePane.views)):
        show(bench, view)
        assert bench.lines or not size[1]


# -- the tree ----------------------------------------------------------------------


def test_a_small_machine_is_open_down_to_its_engines(matmul):
    rows = rows_of(timeline(matmul))
    assert [rows[f"pe{i}"][1] for i in range(8)] == ["▾"] * 8
    assert {"s0.io0.pcie_…", "pe0.dma", "pe7.gemm"} <= {*rows}


def test_enter_folds_and_unfolds_a_group(matmul):
    bench = timeline(matmul, -1)
    pick(bench, "pe0")
    bench.send(Enter())
    assert bench.effects == ()
    assert bench.state.folds == {"-pe0"}
    rows = rows_of(bench)
    assert rows["pe0"].startswith(" ▸pe0")
    assert "pe0.gemm" not in rows
    assert "pe1.gemm" in rows
    bench.send(Enter())
    assert "pe0.gemm" in rows_of(bench)


def test_enter_on_an_engine_goes_to_its_op_by_the_cursor(matmul):
    bench = timeline(matmul, ops_of(matmul, "sip0.cube0.pe4.pe_dma")[2])
    pick(bench, "pe4.fetch 0")
    bench.send(Enter())
    assert component_of(matmul, gone_to(bench)) == "sip0.cube0.pe4.pe_fetch_store"


def test_enter_on_an_engine_that_has_not_served_yet_goes_to_its_first_op(matmul):
    bench = timeline(matmul, 0)
    pick(bench, "pe7.gemm")
    bench.send(Enter())
    node = matmul.trace.node_index["sip0.cube0.pe7.pe_gemm"]
    assert gone_to(bench) == matmul.op_index.ops_of(node)[0]


def test_a_large_machine_is_open_where_the_cursor_is(many_cubes):
    bench = timeline(many_cubes, last_write(many_cubes, "sip0.cube0"))
    rows = rows_of(bench)
    assert rows["s0"].startswith("*▾")
    assert rows["s0c0"].startswith("*▾")
    assert rows["s0c0.pe0.dma 8"].startswith("> ")
    assert rows["s0c1"].startswith(" ▸")
    assert "s0c1.pe0.dma 8" not in rows
    assert rows["s1"].startswith("*▸")


def test_what_is_open_follows_the_cursor(many_cubes):
    bench = timeline(many_cubes, last_write(many_cubes, "sip0.cube0"))
    assert "s0c0.pe0.dma 8" in rows_of(bench)
    bench.goto(last_write(many_cubes, "sip1.cube4"))
    rows = rows_of(bench)
    assert "s0c0.pe0.dma 8" not in rows
    here = [name for name, line in rows.items() if line.startswith("> ")]
    assert here == ["s1c4.pe0.dma 8"]


def test_what_was_folded_by_hand_stays_folded_under_the_cursor(many_cubes):
    bench = timeline(many_cubes, last_write(many_cubes, "sip0.cube0"))
    pick(bench, "s0c1")
    bench.send(Enter())
    pick(bench, "s0c0")
    bench.send(Enter())
    assert bench.state.folds == {"-s0c0", "+s0c1"}
    rows = rows_of(bench)
    assert rows["s0c0"].startswith(">▸")
    assert "s0c1.pe0.dma" in rows


def test_folds_of_another_machine_are_ignored(matmul):
    bench = timeline(matmul, 40)
    before = bench.lines
    folds = frozenset({"-no such row", "+sip9"})
    bench.state = TimelinePane(matmul).start()
    bench.state = type(bench.state)(bench.state.window, folds=folds)
    bench.goto(40)
    assert bench.lines == before


# -- lanes, and what is in service -------------------------------------------------


def test_the_lanes_view_has_a_row_for_each_lane_used(matmul):
    bench = timeline(matmul, height=100)
    show(bench, IN_LANES)
    dma = matmul.trace.node_index["sip0.cube0.pe0.pe_dma"]
    found = [name for name in names_of(bench) if name.startswith("pe0.dma ")]
    lanes = matmul.op_index.lanes_of(dma)
    assert found == [f"pe0.dma {lane}" for lane in lanes]
    assert len(found) == 5


def test_the_lane_of_a_row_is_there_where_its_name_is_cut() -> None:
    """Two rows of a narrow screen were both called s0c0.pe0.dma…."""
    index = Index(Trace.open(TRACES / "fault_ring_by_name.msgpack"))
    bench = timeline(index, 5)
    show(bench, IN_LANES)
    names = [name for name in names_of(bench) if name.startswith("s0c0.pe0.")]
    assert names == ["s0c0.pe0.d… 0", "s0c0.pe0.… 16"]


def test_ops_in_service_are_marked_in_their_lane_and_above(matmul):
    bench = timeline(matmul, len(matmul.ops) - 1, height=100)
    show(bench, IN_LANES)
    rows = rows_of(bench)
    pe = component_of(matmul, bench.frame.cursor).split(".")[-2]
    marks = [line[0] for name, line in rows.items() if name.startswith(f"{pe}.dma ")]
    assert marks == [" ", " ", " ", " ", ">"]
    assert rows[pe].startswith("*▾")
    serving = {
        matmul.ops.label(matmul.ops.component(op), 4).replace("pe_", "")
        for op in matmul.ops.in_flight(bench.frame.cursor)
    }
    marked = {name for name, line in rows.items() if line[:2] in ("* ", "> ")}
    assert marked
    assert {name.partition(" ")[0] for name in marked} <= serving


def test_enter_on_a_lane_goes_to_an_op_of_that_lane(matmul):
    bench = timeline(matmul, 100, 100, 200)
    show(bench, IN_LANES)
    names = [name.split() for name in names_of(bench)]
    rows = [(i, *name) for i, name in enumerate(names) if name[1:] and "dma" in name[0]]
    assert len(rows) > 8
    for i, component, lane in rows:
        bench.send(Scroll(-1000))
        bench.send(Scroll(i))
        bench.send(Enter())
        op = gone_to(bench)
        node = matmul.ops.component(op)
        assert matmul.ops.label(node, 4).replace("pe_", "") == component
        slot = matmul.trace.op_columns.slot[matmul.ops.row_of(op)]
        assert int(slot) == int(lane)


def test_lanes_that_are_not_known_yet_are_waited_for(matmul):
    bench = timeline(matmul, 40)
    bench.answers.held = {LANES.name}
    show(bench, IN_LANES)
    assert bench.lines == [" computing lanes: 50%  Esc cancels"]


# -- what views mark ---------------------------------------------------------------


def styles_of(bench: PaneBench, name: str) -> list[tuple[str, str]]:
    """The runs of the row of a name, but for the name."""
    number = names_of(bench).index(name)
    return list(bench.picture.lines[2 + number][2:])


def test_what_is_not_on_the_critical_path_steps_back(matmul):
    bench = timeline(matmul, 64)
    show(bench, CRITICAL_VIEW)
    path = answer(matmul, CRITICAL.ask())
    ops = path.ops[(path.ops >= 0) & (path.whats < len(CLASSES))]
    on_path = {matmul.trace.node_ids[node] for node in matmul.ops.components[ops]}
    for pe in range(8):
        grounds = {style[0] for _, style in styles_of(bench, f"pe{pe}.gemm") if style}
        is_on = f"sip0.cube0.pe{pe}.pe_gemm" in on_path
        assert ("G" in grounds) == is_on, pe
        assert ("o" in grounds) or is_on


def test_hazards_are_in_the_colour_of_alarm():
    bench = PaneBench(TimelinePane, "fault_missing_wait", 3)
    every = {style for line in bench.picture.lines for _, style in line}
    assert not {style for style in every if style[:3] in ("bad", "ala")}
    show(bench, HAZARDS)
    bad = [text for text, style in styles_of(bench, "pe0.dma 0") if style == "bad"]
    assert bad[0].startswith("x[0:1024]")
    bad = [text for text, style in styles_of(bench, "pe0.math") if style == "bad*"]
    assert "add" in "".join(bad)
    write = {style for _, style in styles_of(bench, "pe0.dma 8")}
    assert "bad" not in write


def test_without_hazards_their_view_says_so(matmul):
    bench = PaneBench(TimelinePane, matmul, 40, 80, 12)
    assert "hazards" not in bench.subtitle
    show(bench, HAZARDS)
    assert bench.subtitle.startswith("no hazards; ")
    bench = PaneBench(TimelinePane, "fault_missing_wait", 3)
    show(bench, HAZARDS)
    assert "hazards" not in bench.subtitle


@pytest.mark.parametrize("view", [CRITICAL_VIEW, HAZARDS])
def test_a_view_scrolls_to_what_it_marks(view):
    name = "fault_missing_wait" if view == HAZARDS else "matmul"
    bench = PaneBench(TimelinePane, name, 0, 80, 9)  # the host's first write
    bench.send(Zoom(0.01))
    show(bench, view)
    shown = {style[:1] for line in bench.picture.lines[2:] for _, style in line}
    assert shown & ({"b"} if view == HAZARDS else set(CLASSES))
    window = bench.state.window
    bench.send(Pan(1))  # and lets go of it
    assert bench.state.window != window


@pytest.mark.parametrize(
    ("view", "marks"), [(CRITICAL_VIEW, CRITICAL_CELLS), (HAZARDS, HAZARD_CELLS)]
)
def test_rows_are_drawn_while_what_is_marked_is_computed(matmul, view, marks):
    bench = timeline(matmul, 40)
    rows = bench.lines[2:]
    bench.answers.held = {marks.name}
    show(bench, view)
    assert bench.lines[0] == f" computing {marks.name}: 50%  Esc cancels"
    assert bench.lines[2:-1] == rows[:-1]
    assert bench.picture.waiting is not None


# -- pins --------------------------------------------------------------------------


def pick_number(bench: PaneBench, number: int) -> None:
    """Pick a row by its number, from 0."""
    bench.send(Scroll(-1000))
    bench.send(Scroll(number))


def test_a_pinned_row_stays_on_top_until_it_is_let_go(matmul):
    first = ops_of(matmul, "sip0.cube0.pe0.pe_gemm")[0]
    bench = timeline(matmul, first, height=20)
    pick(bench, "pe0.gemm")
    assert bench.send(Pin())
    assert bench.state.pins == ("sip0.cube0.pe0.pe_gemm",)
    bench.send(Scroll(1000))
    assert bench.lines[2].startswith(">^pe0.gemm ")
    bench.send(Scroll(-1000))
    pick_number(bench, names_of(bench)[1:].index("pe0.gemm"))
    assert bench.send(Pin())
    assert bench.state.pins == ()
    assert "^" not in bench.text


def test_without_a_row_nothing_is_pinned(matmul):
    bench = timeline(matmul, -1)
    assert not bench.send(Pin())


def test_pins_of_another_machine_are_ignored(matmul):
    bench = timeline(matmul, 40)
    before = bench.lines
    window = bench.state.window
    bench.state = type(bench.state)(window, pins=("sip9.cube9.pe9.pe_dma",))
    bench.goto(40)
    assert bench.lines == before


def test_a_click_picks_the_row_under_the_pins(matmul):
    first = ops_of(matmul, "sip0.cube0.pe0.pe_gemm")[0]
    bench = timeline(matmul, first, height=20)
    pick(bench, "pe0.gemm")
    bench.send(Pin())
    line = 2 + names_of(bench).index("pe0.dma 8")
    bench.send(Click(3, line))
    assert bench.state.rows.pick == line - 3
    assert component_of(matmul, gone_to(bench)) == "sip0.cube0.pe0.pe_dma"


# -- clicks ------------------------------------------------------------------------


def cell_of(bench: PaneBench, op: int) -> tuple[int, int]:
    """The column and line of the pane that the middle of an op is drawn at."""
    row = bench.index.ops.row(op)
    t0, t1 = bench.state.window
    share = ((row.t_start + row.t_end) / 2 - t0) / (t1 - t0)
    name = bench.index.ops.label(bench.index.ops.component(op), 4).replace("pe_", "")
    x = LABEL + int(share * (bench.frame.width - LABEL))
    return x, 2 + names_of(bench).index(name)


def test_a_click_on_a_bar_goes_to_the_op_there(matmul):
    bench = timeline(matmul, 75)
    for op in (131, 99):  # of the same engine, after the cursor
        bench.send(Click(*cell_of(bench, op)))
        assert gone_to(bench) == op
        bench.goto(op)


def test_a_click_on_a_bar_of_a_group_goes_to_an_op_of_it(matmul):
    bench = timeline(matmul, 75)
    x, y = cell_of(bench, 99)
    pe = component_of(matmul, 99).rpartition(".")[0]
    y = 2 + names_of(bench).index(pe.split(".")[-1])
    bench.send(Click(x, y))
    op = gone_to(bench)
    assert component_of(matmul, op).rpartition(".")[0] == pe
    assert op > 75


def test_a_click_on_the_name_of_a_group_folds_it(matmul):
    bench = timeline(matmul, -1)
    y = 2 + names_of(bench).index("pe1")
    bench.send(Click(3, y))
    assert bench.state.folds == {"-pe1"}


def test_a_click_on_the_minimap_goes_to_the_last_op_begun_by_then(matmul):
    bench = timeline(matmul)
    cells = 80 - LABEL
    bench.send(Click(LABEL + cells // 2 - 1, 0))
    (effect,) = bench.effects
    assert effect == Do(TIME(t=matmul.trace.end_ns / 2))


@pytest.mark.parametrize("op", [0, 3, 16, 60, 100, 151])
def test_a_click_on_the_cursor_in_the_minimap_stays_in_its_cell(matmul, op):
    bench = timeline(matmul, op)
    x = bench.lines[0].index("V")
    bench.send(Click(x, 0))
    (effect,) = bench.effects
    bench.goto(matmul.ops.started_before(effect.call.args.t) - 1)
    assert bench.lines[0].index("V") == x


def test_a_click_beside_rows_and_minimap_changes_nothing(matmul):
    bench = timeline(matmul, 40)
    state = bench.state
    for x, y in ((3, 0), (40, -1), (40, 1), (40, ALL_ROWS - 1)):
        assert bench.send(Click(x, y))
        assert bench.effects == ()
        assert bench.state == state


def test_scrolling_moves_the_picked_row_and_a_move_lets_it_go(matmul):
    bench = timeline(matmul, 40, height=20)
    here = bench.state.rows.at
    bench.send(Scroll(3))
    assert bench.state.rows.at == here + 3
    bench.send(Scroll(-3))
    assert bench.state.rows.at == here
    bench.send(Scroll(5))
    bench.goto(41)
    assert bench.state.rows.pick is None


# -- the window --------------------------------------------------------------------


def test_it_opens_fitted_to_the_launch(matmul):
    t0, t1 = timeline(matmul, -1).state.window
    low, high = matmul.launch_window
    assert t0 < low < high < t1 < 2 * high
    assert t1 - t0 < 1.1 * (high - low)


def test_the_window_follows_the_cursor(matmul):
    bench = timeline(matmul, 40)
    bench.goto(0)
    t0, t1 = bench.state.window
    assert t0 <= matmul.ops.time(0) < t1


def test_the_window_follows_the_cursor_while_it_is_not_in_view(matmul):
    bench = timeline(matmul, 40, 0, 0)
    bench.goto(0)
    t0, t1 = bench.state.window
    assert t0 <= matmul.ops.time(0) < t1


def test_before_the_first_op_the_window_stays(matmul):
    bench = timeline(matmul, 40)
    window = bench.state.window
    bench.goto(-1)
    assert bench.state.window == window


def test_zoom_pan_and_fit(matmul):
    bench = timeline(matmul, 40)

    def span() -> float:
        t0, t1 = bench.state.window
        return t1 - t0

    fitted = bench.state.window
    whole = span()
    bench.send(Zoom(0.5))
    bench.send(Zoom(0.5))
    assert span() == pytest.approx(whole / 4)
    bench.send(Zoom(2.0))
    assert span() == pytest.approx(whole / 2)
    before = bench.state.window[0]
    for by in (1, 1, -1):
        bench.send(Pan(by))
    assert bench.state.window[0] - before == pytest.approx(span() / 8)
    assert bench.send(Fit())
    assert bench.state.window == fitted


def test_what_is_fitted_has_no_use_for_fit(matmul):
    bench = timeline(matmul, 40)
    assert not bench.send(Fit())
    bench.send(Zoom(0.5))
    assert bench.send(Fit())


def test_the_window_follows_the_last_op_no_further_than_the_end_of_the_run(matmul):
    bench = timeline(matmul, 0)
    bench.send(Zoom(0.25))
    bench.goto(len(matmul.ops) - 1)
    t0, t1 = bench.state.window
    assert t0 <= matmul.ops.time(bench.frame.cursor) < t1
    assert t1 == pytest.approx(matmul.trace.end_ns + (t1 - t0) / 50)


def test_the_window_fits_between_two_times(matmul):
    bench = timeline(matmul, 40)
    bench.send(FitBetween(8100, 8200))
    t0, t1 = bench.state.window
    assert t0 < 8100 < 8200 < t1 < 8210
    bench.send(FitBetween(8100, 8100))
    t0, t1 = bench.state.window
    assert t0 < 8100 < t1 < t0 + 2


@pytest.mark.slow
def test_zooming_out_and_panning_end_a_little_beyond_the_run(matmul):
    bench = timeline(matmul, 40)
    end = matmul.trace.end_ns
    for _ in range(6):
        bench.send(Zoom(2.0))
    t0, t1 = bench.state.window
    assert (t0 / end, t1 / end) == pytest.approx((-1 / 48, 49 / 48))
    bench.send(Zoom(0.25))
    for _ in range(40):
        bench.send(Pan(1))
    t0, t1 = bench.state.window
    assert 1.0 < t1 / end < 1.01
    assert (t1 - t0) / end == pytest.approx(50 / 48 / 4)
    for _ in range(40):
        bench.send(Pan(-1))
    assert -0.01 < bench.state.window[0] / end < 0.0


@pytest.mark.slow
def test_panning_keeps_the_length_of_the_window(matmul):
    bench = timeline(matmul, 40)
    bench.send(FitBetween(8000, 8100))
    t0, t1 = bench.state.window
    for _ in range(1000):
        bench.send(Pan(1))
    far0, far1 = bench.state.window
    assert far1 - far0 == pytest.approx(t1 - t0)
    assert far0 < matmul.trace.end_ns < far1


def test_the_closest_zoom_says_how_short_a_cell_is(matmul):
    bench = timeline(matmul, 75)
    for _ in range(40):
        bench.send(Zoom(0.5))
    t0, t1 = bench.state.window
    assert t0 <= matmul.ops.time(75) < t1
    assert t1 - t0 == pytest.approx(0.125)
    cells = 80 - LABEL
    assert bench.picture.subtitle.endswith(f"{0.125 / cells:.2g}ns a cell")


def test_the_cursor_stays_in_view_while_zooming_in(matmul):
    bench = timeline(matmul, 100)
    time = matmul.ops.time(100)
    for _ in range(20):
        bench.send(Zoom(0.5))
        t0, t1 = bench.state.window
        assert t0 <= time < t1


# -- what is late, and what is computed at rest ------------------------------------


def test_rows_come_when_their_cells_are_there(matmul):
    bench = timeline(matmul, 40, 0, 0)
    bench.answers.held = {CELLS.name}
    bench.resize(80, 20)
    assert bench.picture.waiting is not None
    rows = rows_of(bench)
    serving = [name for name in rows if name.startswith("pe")]
    assert serving
    assert all("computing cells: 50%" in rows[name] for name in serving)
    assert ">" in "".join(line[:1] for line in bench.lines[2:])
    bench.answers.held = set()
    bench.resize(80, 20)
    assert bench.picture.waiting is None
    assert "gemm 128x16x128 592 ns" in bench.text


def test_rows_that_were_there_stay_while_others_are_computed(matmul):
    op = ops_of(matmul, "sip0.cube0.pe4.pe_dma")[0]  # half way down
    bench = timeline(matmul, op, height=12)
    bench.send(Scroll(-9))
    before = rows_of(bench)
    bench.answers.held = {CELLS.name}
    bench.answers.kept = {*bench.answers.asked}
    bench.send(Scroll(12))
    now = rows_of(bench)
    stayed = now.keys() & before.keys()
    late = {name for name in now.keys() - before.keys() if name.startswith("pe")}
    assert bench.picture.waiting is not None
    assert stayed
    assert late
    assert all(now[name][LABEL:] == before[name][LABEL:] for name in stayed)
    assert all("computing" in now[name] for name in late)


def test_rows_of_another_window_do_not_stay(matmul):
    bench = timeline(matmul, 40, height=10)
    bench.answers.held = {CELLS.name}
    bench.answers.kept = {*bench.answers.asked}
    bench.send(Zoom(0.5))
    rows = [line for name, line in rows_of(bench).items() if name.startswith("pe")]
    assert rows
    assert all("computing" in line for line in rows)


def shown_rows(bench: PaneBench) -> tuple[RowKey, ...]:
    """The rows in view that show ops."""
    queries = bench.pane.queries(bench.state, bench.frame, bench.answers)
    (cells,) = [query for query in queries if query.command == CELLS.name][:1]
    return cells.args.rows


def wishes(bench: PaneBench):
    return bench.pane.wishes(bench.state, bench.frame, bench.answers)


def test_of_a_long_trace_all_ops_of_the_window_are_looked_at_once():
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    long = partial(TimelinePane, long_ops=0)
    bench = PaneBench(long, index, 40, 120, 40)
    lines = bench.lines
    (wish,) = wishes(bench)
    assert wish.command == SUMMARY.name
    bench.answers.of(wish)
    t0, t1 = bench.state.window
    assert index.timelines.has_summary(t0, t1, wish.args.columns)
    fresh = PaneBench(long, index, 40, 120, 40)
    assert fresh.lines == lines
    rows, groups, whole, every, traffic, *carried = wishes(bench)
    assert rows.command == groups.command == every.command == INDEXED_ROWS.name
    assert whole.command == CELLS.name
    assert traffic.command == TRAFFIC.name
    assert {query.command for query in carried} <= {TRAFFIC_CELLS.name}


def test_of_a_long_trace_no_group_of_pes_is_indexed_when_it_comes_into_view(tmp_path):
    """One does whenever the cursor goes on to another group."""
    params = {"m": 64, "k": 64, "n": 128, "pes": 64}
    run_bench("matmul", trace=tmp_path / "t", params=params, verify=False)
    index = Index(Trace.open(tmp_path / "t"))
    bench = PaneBench(partial(TimelinePane, long_ops=0), index, 0, 120, 8)
    for _ in range(2):  # the summary, then all that it leads to
        for wish in wishes(bench):
            bench.answers.of(wish)
    pes = index.trace.nodes.pe
    groups = set[RowKey]()
    for op in range(0, len(index.ops), 4):
        bench.frame = replace(bench.frame, cursor=op)
        moved = bench.pane.update(bench.state, Moved(), bench.frame, bench.answers)
        bench.state = moved.state
        for row in shown_rows(bench):
            if len({pes[node] for node in row.components}) > 1:
                groups.add(row)
    assert len(groups) == 8
    assert index.timelines.unindexed([*groups]) == ((), 0)


def test_of_a_long_trace_all_components_are_indexed_at_rest(monkeypatch):
    """Else a key that zooms waits for that of each PE that the cursor has come to."""
    index = Index(Trace.open(TRACES / "ccl_allreduce.msgpack"))
    bench = PaneBench(partial(TimelinePane, long_ops=0), index, 40, 120, 8)
    bench.rest()
    components = [RowKey((node,)) for node in index.op_index.components.tolist()]
    assert index.timelines.unindexed(components) == ((), 0)
    index.timelines.forget()
    monkeypatch.setattr("tui.panes.timeline.INDEXED_OPS", len(index.ops) - 1)
    PaneBench(partial(TimelinePane, long_ops=0), index, 40, 120, 8).rest()
    assert index.timelines.unindexed(components).rows


def test_rows_of_a_summarised_window_need_no_index():
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    t0, t1 = TimelinePane(index).start().window
    columns = 120 - 18
    answer(index, SUMMARY.ask(t0=t0, t1=t1, columns=columns))
    bench = PaneBench(partial(TimelinePane, long_ops=0), index, 40, 120, 40)
    assert "GEMM 0,0,0 254 ns" in bench.text
    rows = [row for row in shown_rows(bench) if row.lane is None]
    assert index.timelines.unindexed(rows).rows == tuple(rows)


def test_rows_in_view_are_indexed_for_another_window():
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    bench = PaneBench(TimelinePane, index, 40, 120, 40)
    wish, *_ = wishes(bench)
    assert wish.command == INDEXED_ROWS.name
    assert set(wish.args.rows) > set(shown_rows(bench))  # and one of all of them
    bench.answers.of(wish)
    assert index.timelines.unindexed(wish.args.rows) == ((), 0)


def prepared(bench: PaneBench):
    return bench.pane.preparations(bench.state, bench.frame, bench.answers)


def test_rows_of_few_ops_are_indexed_between_two_keys(monkeypatch):
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    bench = PaneBench(TimelinePane, index, 40, 120, 40)
    index.timelines.forget()
    (query,) = prepared(bench)
    assert query.command == INDEXED_ROWS.name
    assert set(query.args.rows) > set(shown_rows(bench))  # and one of all of them
    # as many of the first rows as have no more ops together than that
    some = query.args.rows[:7]
    ops = sum(index.timelines.unindexed([row]).ops for row in some)
    monkeypatch.setattr("tui.panes.timeline.LIGHT_OPS", ops)
    (fewer,) = prepared(bench)
    assert fewer.args.rows == some
    bench.answers.of(query)
    assert prepared(bench) == ()


def test_what_is_asked_of_a_traffic_row_in_view_stays_as_others_come(many_cubes):
    """Of 256 controllers the answer takes longer than the time between two keys."""

    def asked(bench: PaneBench) -> set[Query]:
        bench.send(Scroll(ALL_ROWS))
        return carried_in_view(bench)

    few = asked(timeline(many_cubes, height=8))
    assert few
    assert few < asked(timeline(many_cubes, height=ALL_ROWS))


@pytest.mark.parametrize("long_ops", [0, LONG_OPS])
def test_a_large_traffic_row_is_computed_at_rest_before_it_is_seen(
    many_cubes, long_ops
):
    """Pressing ``s`` brings it into view, between two keys; it is there by then."""
    pane = partial(TimelinePane, long_ops=long_ops)
    bench = PaneBench(pane, many_cubes, 40, 120, 8)
    assert not carried_in_view(bench)
    bench.rest()
    before = set(bench.answers.asked)
    bench.send(Scroll(ALL_ROWS))
    large = {query for query in carried_in_view(bench) if len(query.args.rows[0]) > 1}
    assert large
    assert large <= before


def test_of_a_very_long_trace_only_traffic_in_view_is_computed_and_at_rest(
    many_cubes, monkeypatch
):
    monkeypatch.setattr("tui.panes.timeline.QUICK_OPS", len(many_cubes.ops) - 1)
    bench = timeline(many_cubes, 40, 120, 8)
    bench.rest()
    assert TRAFFIC_CELLS.name not in asked_for(bench)
    bench.send(Scroll(ALL_ROWS))
    assert TRAFFIC_CELLS.name not in asked_for(bench)
    bench.rest()
    assert TRAFFIC_CELLS.name in asked_for(bench)
    monkeypatch.undo()
    other = timeline(many_cubes, 40, 120, 8)
    other.send(Scroll(ALL_ROWS))
    assert bench.lines == other.lines


def asked_for(bench: PaneBench) -> set[str]:
    """The commands that anything was asked of."""
    return {query.command for query in bench.answers.asked}


def carried_in_view(bench: PaneBench) -> set[Query]:
    """What is asked about the rows of traffic that are in view."""
    queries = bench.pane.queries(bench.state, bench.frame, bench.answers)
    return {query for query in queries if query.command == TRAFFIC_CELLS.name}


def test_nothing_is_computed_at_rest_out_of_view(matmul):
    assert wishes(timeline(matmul, 40, 0, 0)) == ()


# -- the sentence below the rows, and the legend -----------------------------------


def said(bench: PaneBench) -> str:
    """The sentence below the rows."""
    return bench.lines[-2]


def waits_of(index: Index, op: int) -> list[tuple[str, float]]:
    """The reasons of an op's waits, and how long they were, as recorded."""
    row = int(index.trace.order[op])
    return [(why, t1 - t0) for _, why, t0, t1, _ in index.trace.waits_of(row)]


def test_the_sentence_says_what_the_op_waited_for_and_what_followed(matmul):
    gemms = ops_of(matmul, "sip0.cube0.pe4.pe_gemm")
    bench = timeline(matmul, gemms[1], 120, 30)
    ((reason, waited),) = waits_of(matmul, gemms[1])
    assert reason == "engine"
    assert said(bench).startswith(
        f" waited {waited:.0f} ns for the engine, behind GEMM 0,0,0 "
        f"(op {gemms[0]}, pe4.gemm)"
    )
    assert said(bench).endswith(f"then GEMM 1,0,0 (op {gemms[2]}, pe4.gemm)")


def test_of_several_waits_the_sentence_names_the_longest(matmul):
    ops = range(len(matmul.ops))
    op = next(op for op in ops if len({why for why, _ in waits_of(matmul, op)}) > 1)
    waits = waits_of(matmul, op)
    assert len({waited for _, waited in waits}) > 1
    _, longest = max(waits, key=lambda wait: wait[1])
    assert said(timeline(matmul, op, 120, 30)).startswith(f" waited {longest:.3g} ns ")


def test_an_op_that_waited_for_nothing_began_after_another_or_says_so(matmul):
    assert said(timeline(matmul, 16, 120, 30)) == " waited for nothing"
    first = ops_of(matmul, "sip0.cube0.pe4.pe_gemm")[0]
    bench = timeline(matmul, first, 120, 30)
    assert not waits_of(matmul, first)
    assert said(bench).startswith(" began at once after FETCH 0,0,0 (op ")


def test_no_op_is_said_to_have_waited_for_less_than_half_a_ns(many_cubes):
    op = 384
    waits = [waited for _, waited in waits_of(many_cubes, op)]
    assert 0 < max(waits) < 0.5
    bench = timeline(many_cubes, op, 120, 30)
    assert said(bench).startswith(" began ")


def test_causes_and_effects_out_of_view_are_named_at_the_edges(matmul):
    gemms = ops_of(matmul, "sip0.cube0.pe4.pe_gemm")
    starts = [matmul.ops.time(op) for op in gemms]
    bench = timeline(matmul, gemms[1], 120, 30)
    bench.send(FitBetween(starts[1] + 1, starts[1] + 11))
    earlier = starts[1] - starts[0]
    assert said(bench).startswith(" ← waited ")
    assert f"(op {gemms[0]}, pe4.gemm), {earlier:.0f} ns earlier" in said(bench)
    bench.send(FitBetween(starts[1] - 20, starts[1] - 10))
    later = starts[2] - starts[1]
    assert said(bench).startswith(" waited ")
    assert said(bench).endswith(f"(op {gemms[2]}, pe4.gemm), {later:.0f} ns later →")


def test_where_only_one_line_is_left_it_is_the_sentence(matmul):
    op = ops_of(matmul, "sip0.cube0.pe4.pe_gemm")[1]
    low = timeline(matmul, op, 120, 12)
    assert low.lines[-1].startswith(" waited 211 ns for the engine, behind GEMM 0,0,0")
    assert timeline(matmul, -1, 120, 12).lines[-1].endswith(" busy share")
    lowest = timeline(matmul, op, 120, 6)
    assert "waited" not in lowest.text


def test_an_effect_for_which_there_is_no_room_is_left_out(matmul):
    op = ops_of(matmul, "sip0.cube0.pe4.pe_gemm")[1]
    assert "then" not in said(timeline(matmul, op, 80, 30))
    assert said(timeline(matmul, op, 80, 30)).startswith(" waited 211 ns ")


def test_the_legend_names_the_classes_on_screen_and_no_others(matmul):
    bench = timeline(matmul, 40, 120, 30)
    legend = bench.lines[-1].split("  ")
    assert {"gemm", "dma read", "fetch"} <= {word.strip() for word in legend}
    assert "math" not in bench.lines[-1]
    start = matmul.ops.time(ops_of(matmul, "sip0.cube0.pe0.pe_gemm")[0])
    bench.goto(ops_of(matmul, "sip0.cube0.pe0.pe_gemm")[0])
    bench.send(FitBetween(start + 180, start + 190))
    classes = {word.strip() for word in bench.lines[-1].split("  ") if word.strip()}
    assert "dma write" not in classes
    assert "fetch" not in classes
    assert "gemm" in classes


def test_the_legend_has_the_grounds_of_the_slices(matmul):
    bench = timeline(matmul, 40, 120, 30)
    legend = dict(
        zip(
            [text.strip() for text, _ in bench.picture.lines[-1][2::2]],
            [style for _, style in bench.picture.lines[-1][1::2]],
            strict=True,
        )
    )
    drawn = {style for line in bench.picture.lines[2:-2] for _, style in line}
    for letter, name in CLASSES.items():
        if name in legend:
            assert legend[name].rstrip("2") == letter
            assert any(style.startswith(letter) for style in drawn)


def test_a_legend_that_does_not_fit_leaves_whole_names_out(matmul):
    bench = timeline(matmul, 40, 40, 30)
    words = [word.strip() for word in bench.lines[-1].split("  ") if word.strip()]
    whole = {*CLASSES.values(), "▁▄█ busy share", "▅▅ waited for"}
    assert words
    assert {*words} <= whole
    assert len(bench.lines[-1]) < 40


def test_the_legend_of_hazards_names_their_colour():
    bench = PaneBench(TimelinePane, "fault_missing_wait", 3, 100, 30)
    assert "hazard" not in bench.lines[-1]
    show(bench, HAZARDS)
    assert bench.picture.lines[-1][1:3] == [("!", "bad"), (" hazard  ", "dim")]


def test_without_colours_the_legend_has_the_letters_of_bars(matmul):
    bench = PaneBench(TimelinePane, matmul, 40, 100, 30, without_colours(UNICODE))
    assert " G gemm  R dma read " in bench.lines[-1]


def test_a_name_whose_group_is_scrolled_away_is_told_in_full(matmul):
    bench = timeline(matmul, 40, 80, 12)
    pick(bench, "pe0.gemm")
    bench.send(Scroll(ALL_ROWS))
    bench.send(Scroll(-9))
    for _ in range(ALL_ROWS):
        first = bench.lines[2][2:LABEL].strip()
        if bench.lines[2][1] not in "".join(bench.frame.glyphs.fold):
            break
        bench.send(Scroll(-1))
    assert "." in first


def test_the_name_of_a_slice_that_began_out_of_view_stays_in_view(matmul):
    """As one pans on, the name stays at the left edge until the slice has ended."""
    op = ops_of(matmul, "sip0.cube0.pe0.pe_gemm")[0]
    begin = matmul.ops.time(op)
    end = float(matmul.ops.ends(op))
    bench = timeline(matmul, op, 100, 40)
    for share in (0.1, 0.3, 0.5):
        t0 = begin + (end - begin) * share
        bench.send(FitBetween(t0, t0 + 60))
        row = rows_of(bench)["pe0.gemm"]
        assert row[LABEL:].startswith("GEMM 0,0,0 254 ns")


# -- what P proves -----------------------------------------------------------------


def claimed(bench: PaneBench) -> str | None:
    """What the pane claims, as one would type it to prove it."""
    found: str | None = bench.pane.claimed(bench.state, bench.frame, bench.answers)
    return found


def test_on_the_critical_path_the_slack_of_the_op_is_claimed(matmul):
    bench = timeline(matmul, 79, height=20)
    assert claimed(bench) is None
    show(bench, CRITICAL_VIEW)
    assert claimed(bench) == "slack 79"
    bench.goto(-1)
    assert claimed(bench) is None


def test_among_hazards_the_race_next_to_the_cursor_is_claimed():
    bench = PaneBench(TimelinePane, "fault_missing_wait", 3, 80, 20)
    assert claimed(bench) is None
    show(bench, HAZARDS)
    (found,) = bench.answers.of(FOUND_HAZARDS.ask()).rows
    assert claimed(bench) == "race 1"
    far = replace(found.op, op=1000)
    other = replace(found, op=far, other=far, pairs=())
    bench.answers.asked[FOUND_HAZARDS.ask()] = Findings((other, found), "", False)
    assert claimed(bench) == "race 2"
    bench.goto(found.op.op)
    assert claimed(bench) == "race 2"
    bench.answers.asked[FOUND_HAZARDS.ask()] = Findings((), "", True)
    assert claimed(bench) is None


def test_the_overview_goes_back_to_the_cursor_from_what_a_view_has_marked(matmul):
    bench = timeline(matmul, 16, height=10)
    row = [line for line in bench.lines if line.startswith(">")]
    assert row
    for _ in TimelinePane.views:
        bench.send(ChangeView(1))
    assert bench.pane.view(bench.state) == 0
    assert [line for line in bench.lines if line.startswith(">")] == row

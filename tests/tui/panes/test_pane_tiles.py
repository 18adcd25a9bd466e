"""The tiles: composites in order, tiles of the open ones, waits by kind, Enter."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from bench import TRACES, PaneBench, component_of, ops_of
from live_runs import LiveRun
from screens import MAXIMISED, PLACES, SIZES, Place, cut, on_screen

from kernbench.replay.commands import GOTO
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import RUNNING_COMPOSITES, TILE_LINES, TILE_OUTLINE
from kernbench.replay.time.op_classes import STAGE_LETTERS
from kernbench.replay.views.tiles import TileLine
from kernbench.trace import Trace
from tui.draw import ASCII, UNICODE
from tui.panes.base import ChangeView, Click, Do, Enter, Pan, Scroll
from tui.panes.slices import duration_text
from tui.panes.tiles import ALL_RUNNING, TilesPane

FIRST_TILES = ["0,0,0", "0,0,1", "1,0,0", "1,0,1"]


@pytest.fixture(scope="module")
def matmul() -> Index:
    """Eight composites of four tiles each, one a PE."""
    return Index(Trace.open(TRACES / "matmul.msgpack"))


@pytest.fixture(scope="module")
def many() -> Index:
    return Index(Trace.open(TRACES / "mlp_tp.msgpack"))


def tiles(index: Index, op: int, width: int = 80, height: int = 19) -> PaneBench:
    return PaneBench(TilesPane, index, op, width, height)


def last(index: Index) -> int:
    return len(index.ops) - 1


def name_of_first(index: Index) -> str:
    """The number and the PE of the first composite of a machine of one cube."""
    op = int(index.tiles.positions[0])
    pe = component_of(index, op).split(".")[-2]
    return f"#{op} {pe}"


def rows_of(bench: PaneBench) -> list[str]:
    """The lines below the ruler."""
    return bench.lines[2:]


def names_of(rows: list[str]) -> list[str]:
    return [row[1:].split()[0] for row in rows]


def gone_to(bench: PaneBench) -> int:
    """The op that the last event went to."""
    (effect,) = bench.effects
    assert isinstance(effect, Do)
    assert effect.call.command is GOTO
    return effect.call.args.op


# -- on the screen -----------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_it_shows_what_the_screen_showed(matmul, size):
    place = PLACES["tiles", size]
    bench = tiles(matmul, 16, place.width, place.height)
    assert cut(bench.text, place) == on_screen(f"tiles-{size}-before", place)
    bench.goto(151)
    bench.goto(143)
    assert cut(bench.text, place) == on_screen(f"tiles-{size}-after", place)


def test_its_other_view_shows_what_the_screen_showed(matmul):
    bench = tiles(matmul, 79, 80, PLACES["tiles", "80x24"].height)
    bench.resize(MAXIMISED.width, MAXIMISED.height)
    bench.send(ChangeView(1))
    assert bench.text == on_screen("tiles-all-at-its-time-80x24", MAXIMISED)


def test_it_shows_what_a_small_screen_showed(matmul):
    place = Place(0, 3, 50, 8)
    bench = tiles(matmul, 16, place.width, place.height)
    lines = [line[: place.width].rstrip() for line in bench.lines]
    assert "\n".join(lines) == on_screen("small-50x12", place)


def test_ascii_needs_no_other_characters(matmul):
    for view in range(2):
        bench = PaneBench(TilesPane, matmul, 100, 120, 30, glyphs=ASCII)
        for _ in range(view):
            bench.send(ChangeView(1))
        assert bench.text.isascii()


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 3), (80, 0)])
def test_the_smallest_sizes_are_drawn(matmul, size):
    assert tiles(matmul, 40, *size).lines


# -- the list ----------------------------------------------------------------------


def test_each_composite_has_a_row_and_the_cursors_its_tiles(matmul):
    rows = rows_of(tiles(matmul, last(matmul)))
    heads = [re.match(r"[ >*]#(\d+) pe\d", row) for row in rows]
    assert [int(head[1]) for head in heads if head] == matmul.tiles.positions.tolist()
    here = next(i for i, row in enumerate(rows) if row.startswith(">"))
    assert names_of(rows[here - 3 : here + 1]) == FIRST_TILES
    assert len(rows) == 8 + 4


def test_enter_on_a_composite_goes_to_it_and_opens_it(matmul):
    bench = tiles(matmul, last(matmul))
    bench.send(Scroll(-1000))
    bench.send(Enter())
    first = int(matmul.tiles.positions[0])
    assert gone_to(bench) == first
    bench.goto(first)
    rows = rows_of(bench)
    assert rows[0].startswith(f">#{first} ")
    assert names_of(rows[1:5]) == FIRST_TILES


def test_enter_on_a_tile_goes_to_the_stage_it_is_in_at_the_cursors_time(matmul):
    op = last(matmul)
    bench = tiles(matmul, op)
    bench.send(Scroll(-1))
    bench.send(Enter())
    time = matmul.ops.time(op)
    tile = matmul.tiles.tiles_of(op).rows[2]
    begun = [span for span in tile.spans if span.t0 <= time]
    assert gone_to(bench) == begun[-1].op
    assert begun[-1].stage == "GEMM"


def test_enter_on_a_tile_that_has_not_begun_goes_to_its_first_stage(matmul):
    first = int(matmul.tiles.positions[0])
    bench = tiles(matmul, 0)
    bench.send(Scroll(4))
    bench.send(Enter())
    tile = matmul.tiles.tiles_of(first).rows[3]
    assert matmul.ops.time(0) < tile.spans[0].t0
    assert gone_to(bench) == tile.spans[0].op


def test_a_click_on_a_row_enters_it(matmul):
    bench = tiles(matmul, last(matmul))
    bench.send(Click(5, 2))
    assert gone_to(bench) == int(matmul.tiles.positions[0])
    assert bench.send(Click(5, 1))
    assert bench.effects == ()
    bench.send(Click(5, 2 + 8 + 4))
    assert bench.effects == ()


def test_what_is_in_service_at_the_cursors_time_is_marked(matmul):
    op = matmul.tiles.tiles_of(75).rows[0].spans[-1].op
    bench = tiles(matmul, op)
    serving = set(matmul.ops.in_flight(op))
    rows = rows_of(bench)
    whole = [row for row in rows if row[1] == "#"]
    assert {row[0] for row in whole} == {"*"}
    assert serving.issuperset(int(row[2:].split()[0]) for row in whole)
    marks = [row[0] for row in rows if row[1] == " "]
    wanted = [">"]
    for tile in matmul.tiles.tiles_of(op).rows[1:]:
        ops = {span.op for span in tile.spans}
        wanted.append("*" if ops & serving else " ")
    assert marks == wanted
    bench.goto(last(matmul))
    assert "  0,0,0" in bench.text  # it has ended
    assert "* 0,0,0" not in bench.text


def test_a_composite_is_named_by_the_place_of_its_pe(many):
    op = ops_of(many, "sip0.cube2.pe0.pe_scheduler")[0]
    text = tiles(many, op, 75, 13).text
    assert " s0c2.pe0: " in text


def test_a_stage_is_a_slice_and_a_wait_between_stages_is_dotted(matmul):
    first = int(matmul.tiles.positions[0])
    bench = tiles(matmul, first, 120, 25)
    found = matmul.tiles.tiles_of(first).rows
    for tile, line in zip(found, bench.picture.lines[3:7], strict=True):
        grounds = [style[0] for _, style in line[2:] if style[:1].isupper()]
        classes = [STAGE_LETTERS[span.stage] for span in tile.spans]
        assert [letter for letter, _ in groupby(grounds)] == classes
    rows = rows_of(bench)
    assert UNICODE.dots not in rows[1]  # the first tile finds its engine idle
    assert UNICODE.dots * 3 in rows[3]
    assert "gemm 254 ns" in rows[1]


def test_a_row_says_how_long_its_tile_waited_and_for_what_longest(matmul):
    first = int(matmul.tiles.positions[0])
    rows = rows_of(tiles(matmul, first, 120, 25))
    for tile, row in zip(matmul.tiles.tiles_of(first).rows, rows[1:5], strict=True):
        by_reason = defaultdict(list)
        for wait in tile.waits:
            by_reason[wait.reason.removesuffix("_channel")].append(wait)
        said = re.search(r"waits ([\d.]+) ns (\w+)$", row)
        assert float(said[1]) == pytest.approx(ns_of_any(tile.waits), rel=0.005)
        longest = max(by_reason, key=lambda reason: ns_of_any(by_reason[reason]))
        assert said[2] == longest


def ns_of_any(waits):
    """How long at least one of some waits lasts, instant by instant."""
    instants = sorted({t for wait in waits for t in (wait.t0, wait.t1)})
    lasting = 0.0
    for t0, t1 in pairwise(instants):
        if any(wait.t0 <= t0 and t1 <= wait.t1 for wait in waits):
            lasting += t1 - t0
    return lasting


def test_a_tile_that_waits_with_two_reads_at_once_waits_once(matmul):
    first = int(matmul.tiles.positions[0])
    last_tile = matmul.tiles.tiles_of(first).rows[3]
    read, fetch, gemm, *_ = last_tile.spans
    assert ns_of_any(last_tile.waits) < last_tile.spans[-1].t1 - read.t0
    row = rows_of(tiles(matmul, first, 120, 25))[4]
    assert row.endswith("waits 408 ns engine")
    assert round(gemm.t0 - fetch.t1) == 253  # of them, and 154 while its DMA reads


def test_the_head_says_what_the_tiles_in_view_wait_for(matmul):
    head = tiles(matmul, 0, 120).lines[0]
    waits = defaultdict(float)
    first = int(matmul.tiles.positions[0])
    for tile in matmul.tiles.tiles_of(first).rows:
        for reason in ("engine", "hbm_channel"):
            of_it = [wait for wait in tile.waits if wait.reason == reason]
            waits[reason] += ns_of_any(of_it)
    engine = duration_text(waits["engine"])
    hbm = duration_text(waits["hbm_channel"])
    assert f"tiles wait {engine} for engine, {hbm} for hbm" in head


def test_the_head_fits_80_columns(matmul):
    head = tiles(matmul, 0).lines[0]
    name = re.escape(name_of_first(matmul))
    what = rf" last composite {name}: 4 tiles; [\d.]+ns shown"
    assert re.fullmatch(what, head)


def test_before_the_first_op_the_first_composite_is_open(matmul):
    bench = tiles(matmul, -1)
    assert bench.lines[0].startswith(f" last composite {name_of_first(matmul)}: ")
    assert not [line for line in bench.lines[2:] if "│" in line]


def test_time_follows_the_rows_in_view(many):
    bench = tiles(many, last(many), 80, 11)
    starts = []
    for by in (-1000, 1000):
        bench.send(Scroll(by))
        ticks = re.findall(r"\u2502([\d.]+)us", bench.lines[1])
        starts.append(float(ticks[0]))
    first, newest = (many.ops.time(int(many.tiles.positions[i])) for i in (0, -1))
    assert starts[0] < newest / 1e3 <= starts[1]
    assert starts[0] >= first / 1e3


def test_a_list_of_many_composites_asks_for_the_rows_in_view_only(many):
    bench = tiles(many, last(many), 80, 11)
    bench.send(Scroll(-1000))
    asked = [query for query in bench.answers.asked if query.command == TILE_LINES.name]
    assert {len(query.args.rows) for query in asked} == {9}


@pytest.mark.parametrize("trace", ["flash_attention", "fault_ring_by_name"])
def test_a_trace_without_composites_says_so(trace):
    bench = PaneBench(TilesPane, trace, 3)
    assert bench.lines == [" no composite has run in this trace"]
    for event in (Scroll(1), Enter(), Click(1, 2), ChangeView(1)):
        bench.send(event)
    assert bench.effects == ()


# -- all that run ------------------------------------------------------------------


def test_the_other_view_opens_all_that_run_at_the_time(matmul):
    bench = tiles(matmul, last(matmul), 80, 55)
    bench.send(ChangeView(1))
    assert bench.pane.view(bench.state) == ALL_RUNNING
    rows = rows_of(bench)
    assert len(rows) == 8 + 8 * 4
    assert sum(row.startswith(">") for row in rows) == 1
    bench.send(ChangeView(-1))
    assert len(rows_of(bench)) == 8 + 4


def test_steps_from_pe_to_pe_keep_what_is_open(many):
    found = [many.tiles.tiles_of(op) for op in many.tiles.positions.tolist()]
    first = min(found, key=lambda tiles: tiles.t1)
    latest = max(found, key=lambda tiles: tiles.t0)
    assert first.t1 <= latest.t0
    near = many.tiles.between(first.t0, first.t1).composites
    others = [other.composite for other in near if other.composite != first.composite]
    bench = tiles(many, first.composite)
    bench.send(ChangeView(1))
    assert bench.state.times == (first.t0, first.t1)
    assert others
    for op in others[:5]:
        bench.goto(op)
        assert bench.state.times == (first.t0, first.t1)
    bench.goto(latest.composite)
    assert bench.state.times == (latest.t0, latest.t1)


# -- what is late, or odd ----------------------------------------------------------


@pytest.mark.parametrize("late", [TILE_OUTLINE, TILE_LINES, RUNNING_COMPOSITES])
def test_nothing_is_shown_without_an_answer(late):
    bench = PaneBench(TilesPane, "matmul", 100, 80, 19)
    bench.send(ChangeView(1))
    bench.answers.held = {late.name}
    bench.resize(80, 19)
    assert bench.lines == [f" computing {late.name}: 50%  Esc cancels"]
    bench.send(Scroll(1))
    bench.send(Enter())
    assert bench.effects == ()
    bench.answers.held = set()
    bench.resize(80, 19)
    assert bench.lines[0].startswith(" composite #")


def test_a_composite_that_never_ended_has_tiles_and_no_neighbours(matmul):
    op = 143
    whole = matmul.tiles.tiles_of(op)
    bench = PaneBench(TilesPane, matmul, op, 80, 0)
    outline = bench.answers.of(TILE_OUTLINE.ask(op))
    unended = replace(outline, composite=None, place=0, composites=1)
    bench.answers.asked[TILE_OUTLINE.ask(op)] = unended
    rows = tuple((0, number) for number in (None, 0, 1, 2, 3))
    lines = [TileLine(-1, None, 0.0, 0.0)]
    for tile in whole.rows:
        lines.append(TileLine(-1, tile, tile.spans[0].t0, tile.spans[-1].t1))
    query = TILE_LINES.ask(rows=rows, unended=op)
    bench.answers.asked[query] = tuple(lines)
    bench.resize(80, 19)
    bench.send(ChangeView(1))
    assert bench.lines[0].startswith(" a composite that has not ended: 4 tiles")
    assert len(rows_of(bench)) == 1 + 4


def test_at_an_op_of_the_host_of_a_run_that_was_killed_it_says_where_tiles_are(
    tmp_path,
):
    """It said that no composite has run in this trace."""
    run = LiveRun(tmp_path / "killed.msgpack")
    run.record(60)
    run.be_killed()
    bench = PaneBench(TilesPane, run.partial, 0)
    assert bench.lines[0].startswith(" no composite had ended where the recording")
    names = [record.op_name for record in bench.index.trace.ops]
    bench.goto(names.index("TileToken/DMA_READ"))
    assert bench.lines[0].startswith(" a composite that has not ended: ")


def test_it_has_no_use_for_panning(matmul):
    assert not tiles(matmul, 40).send(Pan(1))

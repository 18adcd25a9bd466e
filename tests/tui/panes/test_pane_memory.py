"""The Memory pane: allocations, a tensor as numbers, heat or hex, accesses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import TRACES, PaneBench, ops_of
from pictures import (
    MAXIMISED,
    MIDDLE,
    SMALL,
    Region,
    filled,
    place_of,
    shown,
)

from kernbench.replay import ReplaySession
from kernbench.replay.commands import BLAME, GOTO
from kernbench.replay.data.memory import MemoryEntry, TensorView
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    ACCESSES_TO,
    GRID_HEAT,
    GRID_PART,
    TENSOR_SUMMARY,
)
from kernbench.replay.query import Query
from kernbench.replay.views.grids import Heat, first_element
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace, TraceWriter
from tui.draw import ASCII, Line
from tui.panes.base import (
    Back,
    ChangeView,
    Click,
    Do,
    Enter,
    NextMark,
    Pan,
    Scroll,
    Show,
    drawn,
)
from tui.panes.memory import MemoryPane

LARGE = place_of("memory", 200, 50)
"""Its own place at 200x50."""

VIEWS = MemoryPane.views


def composite_of(pe: int) -> int:
    """The composite of a PE in the matmul, which writes 16 columns of c."""
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    return ops_of(index, f"sip0.cube0.pe{pe}.pe_scheduler")[0]


AT_PE0 = composite_of(0)
"""This one writes the first columns."""


def memory(
    op: int = AT_PE0, region: Region = SMALL, view: str = "overview"
) -> PaneBench:
    """The pane on the matmul at an op, in a view."""
    bench = PaneBench(MemoryPane, "matmul", op, region.width, region.height)
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    return bench


def session_on(bench: PaneBench) -> ReplaySession:
    """A session at the pane's cursor."""
    session = ReplaySession(bench.index.trace)
    session.goto(bench.frame.cursor)
    return session


def tensor(bench: PaneBench, name: str = "c") -> TensorView:
    """A tensor at the pane's cursor."""
    return bench.index.memory.tensor(bench.frame.cursor, name)


def parts_asked(bench: PaneBench) -> list[Query]:
    """The questions for numbers that the pane has asked."""
    return [query for query in bench.answers.asked if query.command == GRID_PART.name]


def has_style(line: Line, style: str) -> bool:
    """Whether any run of a line has a style."""
    return any(run_style == style for _, run_style in line)


# -- as the screen shows it -----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)],
)
def test_it_shows_what_it_showed_at_the_first_op(size: str, region: Region) -> None:
    bench = memory(16, region)
    assert filled(bench.lines, region) == shown(f"memory-{size}-before", region)


@pytest.mark.parametrize(("size", "region"), [("80x24", SMALL), ("120x40", MIDDLE)])
def test_it_shows_what_it_showed_where_it_comes_into_view_after_moves(
    size: str, region: Region
) -> None:
    bench = memory(16, Region(0, 0, 0, 0))
    bench.goto(151)
    bench.goto(143)
    bench.resize(region.width, region.height)
    assert filled(bench.lines, region) == shown(f"memory-{size}-after", region)


def test_it_shows_what_it_showed_where_it_stays_in_view() -> None:
    bench = memory(16, LARGE)
    bench.goto(151)
    bench.goto(143)
    wanted = shown("memory-200x50-after", LARGE)
    assert filled(bench.lines, LARGE) == wanted


@pytest.mark.parametrize("view", VIEWS[1:])
def test_it_shows_what_it_showed_in_its_other_views(view: str) -> None:
    bench = memory(79, MAXIMISED, view)
    assert filled(bench.lines, MAXIMISED) == shown(f"memory-{view}-80x24", MAXIMISED)


# -- the overview ---------------------------------------------------------------------


def test_the_spaces_are_named_beside_the_title() -> None:
    bench = memory()
    held = bench.index.memory.at(AT_PE0)
    space, count, size = held.spaces[0]
    assert bench.subtitle == f"{count} in {space} ({size:,} B)"


def test_only_the_overview_has_the_spaces_beside_its_title() -> None:
    assert memory(view="numbers").subtitle == ""


def test_the_tensor_that_the_op_writes_is_below_the_list() -> None:
    bench = memory()
    assert " c f16 128x128" in bench.text
    assert "2,048 changed*" in bench.text
    never = int((~tensor(bench).written).sum())
    assert f"{never:,} not written so far" in bench.text


def test_values_that_are_no_numbers_are_counted() -> None:
    bench = PaneBench(MemoryPane, "fault_overflow", 5, 100, 20)
    nans = int(np.isnan(tensor(bench, "y").values).sum())
    assert nans > 0
    assert f" NaN {nans}\n" in bench.text


def test_no_allocation_is_picked_until_the_user_picks_one() -> None:
    assert memory().place is None


def test_a_picked_allocation_is_what_watch_takes() -> None:
    bench = memory()
    bench.send(Scroll(1))
    shard = bench.index.memory.at(AT_PE0).entries[1].shard
    assert bench.place == f"{shard.space} {shard.addr:#x}:{shard.nbytes}"


def test_scrolling_the_list_comes_to_its_last_allocation() -> None:
    bench = memory(151)
    bench.send(Scroll(10**9))
    entries = bench.index.memory.at(151).entries
    shard = entries[-1].shard
    assert bench.place == f"{shard.space} {shard.addr:#x}:{shard.nbytes}"
    assert f" {entries[-1].tensor}.{shard.index} " in bench.text


def test_enter_keeps_the_picked_tensor_and_again_lets_go() -> None:
    bench = memory()
    bench.send(Scroll(1))
    bench.send(Enter())
    name = bench.index.memory.at(AT_PE0).entries[1].tensor
    assert f" {name} (kept: Esc lets go)" in bench.text
    bench.send(Enter())
    assert "kept" not in bench.text


def shards_of(bench: PaneBench, name: str) -> list[tuple[int, MemoryEntry]]:
    """The rows of a tensor's allocations."""
    entries = bench.index.memory.at(bench.frame.cursor).entries
    return [(row, one) for row, one in enumerate(entries) if one.tensor == name]


def test_enter_on_another_shard_of_the_kept_tensor_shows_that_one() -> None:
    """It let go of the tensor, while the footer said keep."""
    bench = memory(151)
    (here, _), (there, other), *_ = shards_of(bench, "c")
    bench.send(Scroll(here))
    bench.send(Enter())
    assert bench.enter_word == "let go"
    bench.send(Scroll(there - here))
    assert bench.enter_word == "keep"
    bench.send(Enter())
    assert " c (kept: Esc lets go)" in bench.text
    bench.send(ChangeView(1))
    row, column = other.shard.origin
    assert (row, column) != (0, 0)
    assert f"\n c[{row},{column}]" in bench.text


def test_a_tensor_is_kept_from_the_picked_shard_on() -> None:
    bench = memory(151)
    row, entry = shards_of(bench, "b")[3]
    bench.send(Scroll(row))
    bench.send(ChangeView(1))
    at, column = entry.shard.origin
    assert f"\n b[{at},{column}]" in bench.text


@pytest.mark.parametrize(
    ("origin", "shape", "element"),
    [((3,), (8,), 3), ((2, 3), (4, 5), 13), ((1, 0, 2), (2, 3, 4, 5), 62)],
)
def test_where_a_shard_begins_is_counted_in_row_order(
    origin: tuple[int, ...], shape: tuple[int, ...], element: int
) -> None:
    """Between the first and the last axis a file has one for all."""
    assert first_element(origin, shape) == element


def test_what_the_op_touches_and_what_is_picked_are_marked_differently() -> None:
    """Both had the same mark, or the picked one none at all."""
    bench = memory()
    marks = [line[0] for line in bench.lines[1:5]]
    touched = [entry.touched for entry in bench.index.memory.at(AT_PE0).entries[:4]]
    assert marks == ["*" if one else " " for one in touched]
    assert bench.lines[0].endswith("written; * this op")
    bench.send(Scroll(1))
    assert [line[0] for line in bench.lines[1:3]] == ["*", ">"]


def test_the_heading_of_long_names_is_whole_on_the_smallest_screen() -> None:
    bench = PaneBench(MemoryPane, "fault_missing_wait", 1, 80, 20)
    assert "sip0.cube0" in bench.lines[2]
    assert bench.lines[0].endswith("written; * this op")
    assert len(bench.lines[0]) <= 80


def test_a_click_on_an_allocation_keeps_its_tensor() -> None:
    bench = memory()
    bench.send(Click(5, 2))
    name = bench.index.memory.at(AT_PE0).entries[1].tensor
    assert f" {name} (kept: Esc lets go)" in bench.text


@pytest.mark.parametrize("y", [0, 5, 10])
def test_a_click_on_the_heading_or_the_numbers_picks_nothing(y: int) -> None:
    bench = memory()
    before = bench.lines
    bench.send(Click(5, y))
    assert bench.lines == before
    assert bench.place is None


def test_escape_lets_go_of_a_kept_tensor() -> None:
    bench = memory()
    bench.send(Scroll(1))
    bench.send(Enter())
    assert " b (kept: Esc lets go) " in bench.text
    assert bench.send(Back())
    assert " c f16 128x128" in bench.text
    assert not bench.send(Back())


def test_a_view_opened_from_a_picked_allocation_is_of_its_tensor() -> None:
    bench = memory()
    bench.send(Scroll(1))
    bench.send(ChangeView(1))
    name = bench.index.memory.at(AT_PE0).entries[1].tensor
    assert f" {name} (kept: Esc lets go)" in bench.text
    assert f"\n {name}[0,0]" in bench.text


def test_a_row_picked_where_nothing_is_written_names_no_bytes() -> None:
    bench = memory(-1)
    bench.send(Scroll(1))
    assert bench.place is None
    bench.send(Enter())
    assert bench.effects == ()


def test_the_overview_has_nothing_to_pan() -> None:
    assert not memory().send(Pan(1))


def test_before_the_first_op_a_key_is_named() -> None:
    assert memory(-1).lines == [" before the first op: s steps to it"]


def test_a_trace_without_ops_says_so(tmp_path: Path, one_cube: Any) -> None:
    writer = TraceWriter(tmp_path / "none.msgpack")
    writer.begin({}, one_cube)
    writer.close()
    bench = PaneBench(MemoryPane, tmp_path / "none.msgpack", -1)
    assert bench.lines == [" this trace has no ops"]


# -- numbers --------------------------------------------------------------------------


def test_the_numbers_view_picks_a_cell_and_says_all_about_it() -> None:
    bench = memory(view="numbers")
    bench.send(Scroll(1))
    bench.send(Scroll(1))
    bench.send(Pan(1))
    value = tensor(bench).values[2, 1]
    space, addr, _ = bench.index.places.place("c[2,1]").ranges[0]
    bits = f"0x{value.view('u2'):04x}"
    cell = f" c[2,1] = {float(value):.7g}  {bits}  {space} {addr:#x}"
    assert f"{cell}  written op {AT_PE0} (0 ago)" in bench.text
    assert bench.text.count(">") == 1


def test_the_cell_is_what_watch_and_blame_take() -> None:
    bench = memory(view="numbers")
    bench.send(Scroll(1))
    assert bench.place == "c[1,0]"
    bench.send(Enter())
    assert bench.effects == (Do(BLAME(place="c[1,0]")),)


def test_a_click_in_the_numbers_changes_nothing() -> None:
    bench = memory(view="numbers")
    before = bench.lines
    bench.send(Click(30, 5))
    assert bench.lines == before
    assert bench.effects == ()


def test_an_element_that_nobody_wrote_has_neither_value_nor_writer() -> None:
    bench = memory(view="numbers")
    row, column = np.argwhere(~tensor(bench).written)[0].tolist()
    bench.send(Scroll(-(10**9)))
    bench.send(Scroll(row))
    bench.send(Pan(-(10**9)))
    bench.send(Pan(column))
    cell = f"c[{row},{column}]"
    space, addr, _ = bench.index.places.place(cell).ranges[0]
    assert f" {cell}  {space} {addr:#x}  written never" in bench.text
    assert ">        -" in bench.text


def test_a_cell_of_a_kept_tensor_stays_while_stepping() -> None:
    bench = memory(16)
    bench.send(Scroll(2))
    bench.send(ChangeView(1))
    bench.send(Scroll(1))
    bench.send(Pan(1))
    bench.goto(17)
    before = bench.place
    bench.goto(18)
    bench.goto(19)
    bench.send(ChangeView(1))
    bench.send(ChangeView(1))
    assert bench.place == before


def test_the_cell_goes_to_what_an_op_changed() -> None:
    bench = memory(16, view="numbers")
    bench.send(Scroll(1))
    bench.goto(17)
    row, column = np.argwhere(tensor(bench).changed)[0].tolist()
    assert bench.place == f"c[{row},{column}]"


def test_the_next_and_previous_mark_go_through_the_changed_cells() -> None:
    bench = memory(16, view="numbers")
    bench.send(NextMark(1))
    bench.send(NextMark(1))
    changed = np.argwhere(tensor(bench).changed)[:3].tolist()
    assert bench.place == "c[{},{}]".format(*changed[2])
    bench.send(NextMark(-1))
    assert bench.place == "c[{},{}]".format(*changed[1])
    bench.send(NextMark(-1))
    assert not bench.send(NextMark(-1))
    assert bench.place == "c[{},{}]".format(*changed[0])


def test_pages_and_ends_stay_within_the_tensor() -> None:
    bench = memory(view="numbers")
    bench.send(Scroll(10**9))
    assert bench.place == "c[127,0]"
    bench.send(Scroll(1, pages=True))
    bench.send(Pan(1))
    assert bench.place == "c[127,1]"
    page = len(bench.lines) - 4
    bench.send(Scroll(-1, pages=True))
    assert bench.place == f"c[{127 - page + 1},1]"
    bench.send(Scroll(-(10**9)))
    bench.send(Pan(-1))
    bench.send(Pan(-1))
    assert bench.place == "c[0,0]"


def test_numbers_have_the_heads_of_the_rows_and_columns_in_view() -> None:
    bench = memory(40, view="numbers")
    for _ in range(9):
        bench.send(Pan(1))
    bench.send(Scroll(1, pages=True))
    assert "  7          8          9" in bench.text
    assert "\n    7 " in bench.text


@pytest.fixture(scope="module")
def flat() -> Index:
    """A trace with a tensor of one axis, of 1,024 elements."""
    return Index(Trace.open(TRACES / "fault_missing_wait.msgpack"))


@pytest.mark.parametrize("view", ["numbers", "heatmap"])
def test_a_tensor_of_one_axis_fills_the_pane(flat: Index, view: str) -> None:
    bench = PaneBench(MemoryPane, flat, 3, 80, 20)
    for _ in range(MemoryPane.views.index(view)):
        bench.send(ChangeView(1))
    assert len(bench.lines) >= 18
    assert all(len(line) > 40 for line in bench.lines[3:-1])


def test_a_folded_row_is_gone_through_line_by_line(flat: Index) -> None:
    bench = PaneBench(MemoryPane, flat, 3, 80, 20)
    bench.send(ChangeView(1))
    name = bench.place.partition("[")[0]
    bench.send(Scroll(1))
    bench.send(Pan(1))
    assert bench.place == f"{name}[7]"
    bench.send(Scroll(10**9))
    assert bench.place == f"{name}[1023]"
    last = bench.lines[-1]
    values = flat.memory.tensor(3, name).values
    shown = [word.strip("*>") for word in last.split()[1:]]
    assert int(last.split()[0]) == 1020
    numbers = [float(word) for word in shown if word]
    assert np.allclose(numbers, values[1020:].astype(float), rtol=1e-3)


def test_no_two_numbers_of_a_grid_touch(flat: Index) -> None:
    bench = memory(view="numbers")
    for line in bench.lines[4:]:
        words = line.replace("*", "* ").split()
        assert all(len(word) <= 10 for word in words), line
        assert "*-" not in line


def test_scrolling_a_small_tensor_asks_for_no_further_numbers() -> None:
    bench = memory(view="numbers")
    before = parts_asked(bench)
    bench.send(Scroll(100))
    bench.send(Pan(100))
    assert parts_asked(bench) == before


# -- heat and hex ---------------------------------------------------------------------


def test_heat_is_a_glyph_a_block_with_its_scale() -> None:
    bench = memory(view="heatmap")
    lines = bench.lines
    c = tensor(bench)
    sizes = np.where(c.written, np.abs(c.values), 0).astype(np.float64)
    scale = f" ▁ 0 to █ {sizes.max():.4g}, the largest |x|; ! not finite"
    assert lines[3] == f"{scale}; 19x2 a block"
    names = [line[:5].strip() for line in lines[4:]]
    assert names == ["0", "19", "38", "57", "76", "95", "114"]
    blocks = np.flatnonzero(c.written.any(axis=0)) // 2
    filled_columns = set()
    for line in lines[4:]:
        filled_columns |= {i - 7 for i in range(7, len(line)) if line[i] != " "}
    assert filled_columns == set(blocks.tolist())
    assert all(line[5] == "*" for line in lines[4:])
    row, column = np.unravel_index(sizes.argmax(), sizes.shape)
    assert lines[4 + row // 19][7 + column // 2] == "█"


def test_heat_has_signs_of_their_own_for_what_is_beyond_and_for_what_is_blank() -> None:
    bench = memory(view="heatmap")
    (query,) = [q for q in bench.answers.asked if q.command == GRID_HEAT.name]
    shares = bench.answers.asked[query].shares.copy()
    shares[0, :3] = (np.inf, np.nan, 1.0)
    bench.answers.asked[query] = Heat(shares, np.zeros(shares.shape))
    assert bench.lines[4][7:10] == "! █"
    assert bench.lines[4][5] == " "


def test_the_cell_is_picked_in_the_heatmap_too() -> None:
    bench = memory(view="heatmap")
    bench.send(Scroll(1, pages=True))
    assert bench.place == f"c[{19 * 6},0]"
    picture = bench.pane.render(bench.state, bench.frame, bench.answers)
    (here,) = [i for i, line in enumerate(picture.lines) if has_style(line, "here")]
    assert bench.lines[here].startswith("  114")


def test_ascii_heat_needs_no_other_characters() -> None:
    bench = PaneBench(MemoryPane, "matmul", AT_PE0, 80, 11, ASCII)
    bench.send(ChangeView(1))
    bench.send(ChangeView(1))
    assert bench.text.isascii()
    assert " . 0 to @ " in bench.text


def test_hex_shows_the_bits_of_every_element() -> None:
    bench = memory(view="hex")
    bits = tensor(bench).values.view("u2")
    assert f">  {bits[0, 0]:04x}*   {bits[0, 1]:04x}*" in bench.text


# -- history --------------------------------------------------------------------------


def history_of_b() -> PaneBench:
    """The history of b[0,0], which is kept, at op 40."""
    bench = memory(40)
    bench.send(Scroll(1))
    bench.send(Enter())
    for _ in range(4):
        bench.send(ChangeView(1))
    return bench


def test_history_lists_the_accesses_of_the_cell_and_enter_goes_to_one() -> None:
    bench = history_of_b()
    assert bench.place == "b[0,0]"
    touches = session_on(bench).history_of("b[0,0]").rows
    assert len(touches) > 1
    head, *lines = bench.lines
    assert head.startswith(f" accesses to b[0,0]: {len(touches)}, hbm ")
    components = [touch.op.component for touch in touches]
    assert [line.split()[-1] for line in lines] == components[: len(lines)]
    bench.send(Scroll(-(10**9)))
    bench.send(Scroll(1))
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=touches[1].op.op)),)


def test_the_last_access_before_the_cursor_is_marked() -> None:
    bench = history_of_b()
    touches = session_on(bench).history_of("b[0,0]").rows
    last = max(touch.op.op for touch in touches if touch.op.op <= 40)
    (marked,) = [line for line in bench.lines if line.startswith(">")]
    assert f" op {last:>6,} " in marked


def test_a_click_on_an_access_goes_to_its_op() -> None:
    bench = history_of_b()
    touches = session_on(bench).history_of("b[0,0]").rows
    bench.send(Click(5, 2))
    assert bench.effects == (Do(GOTO(op=touches[1].op.op)),)


def test_the_view_before_the_overview_is_the_history_of_all_of_an_allocation() -> None:
    bench = memory(40)
    bench.send(Scroll(1))
    bench.send(ChangeView(-1))
    shard = bench.index.memory.at(40).entries[1].shard
    place = f"{shard.space} {shard.addr:#x}:{shard.nbytes}"
    touches = session_on(bench).history_of(place).rows
    assert bench.lines[0].startswith(f" accesses to {place}: {len(touches)}, ")
    bench.send(Scroll(-(10**9)))
    bench.send(Scroll(1))
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=touches[1].op.op)),)


def test_the_history_that_the_next_view_comes_to_is_of_the_cell_again() -> None:
    bench = memory(40)
    bench.send(Scroll(1))
    for by in (-1, -1, 1):
        bench.send(ChangeView(by))
    assert " accesses to b[0,0]: " in bench.text


@pytest.mark.parametrize("place", ["c[0:2, :]", "c", "hbm 0x9000:64"])
def test_another_pane_may_ask_for_the_history_of_a_place(place: str) -> None:
    bench = memory(40)
    bench.send(Show(place))
    touches = session_on(bench).history_of(place).rows
    assert f" accesses to {place}: {len(touches)}, " in bench.text
    bench.send(Scroll(-(10**9)))
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=touches[0].op.op)),)


def test_the_history_of_what_is_not_there_is_an_error() -> None:
    bench = memory(40)
    bench.send(Show("foo"))
    assert bench.lines[0].startswith(" no tensor 'foo' in this trace")


def test_enter_on_a_history_that_is_not_there_yet_goes_nowhere() -> None:
    bench = memory(20)
    bench.answers.held.add(ACCESSES_TO.name)
    bench.send(Show("c"))
    bench.send(Enter())
    assert bench.effects == ()


# -- while answers are computed -------------------------------------------------------


def test_while_the_tensor_is_computed_the_list_is_there() -> None:
    bench = memory()
    bench.answers.held.add(TENSOR_SUMMARY.name)
    bench.goto(18)
    head, *listed, waiting = bench.lines
    assert head.startswith("  allocation ")
    assert len(listed) == 3
    assert listed[0].startswith("* ")
    assert waiting == " computing tensor-summary: 50%  Esc cancels"


def test_while_the_numbers_are_computed_what_is_known_is_there() -> None:
    bench = memory(view="numbers")
    bench.answers.held.add(GRID_PART.name)
    bench.goto(18)
    head, figures, cell, waiting = bench.lines
    assert head.startswith(" c f16 128x128 ")
    assert figures.startswith("  min ")
    assert cell.endswith(" written op 18 (0 ago)")
    assert waiting == " computing grid-part: 50%  Esc cancels"


def test_a_picture_that_waits_for_an_answer_says_for_which() -> None:
    bench = memory(view="numbers")
    bench.answers.held.add(GRID_PART.name)
    bench.goto(18)
    _, waiting = drawn(bench.pane, bench.state, bench.frame, bench.answers)
    assert waiting is not None
    assert waiting.query.command == GRID_PART.name


def test_a_cell_beyond_the_grid_is_its_nearest_before_it_is_drawn() -> None:
    bench = memory(23, view="numbers")
    first = bench.place
    frame = replace(bench.frame, height=0)
    for by, wanted in ((-(10**9), "c[0,0]"), (10**9, "c[127,127]")):
        state = bench.state
        for event in (Scroll(by), Pan(by)):
            change = bench.pane.update(state, event, frame, bench.answers)
            state = change.state
        assert bench.pane.place(state, frame, bench.answers) == wanted
        assert wanted != first


# -- without data ------------------------------------------------------------------


@pytest.fixture(scope="module")
def no_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was recorded with --no-data."""
    path = tmp_path_factory.mktemp("no_data") / "softmax.msgpack"
    params = {"m": 64, "n": 64}
    run_bench("softmax", params=params, trace=path, data=False, verify=False)
    return path


def test_without_data_there_are_the_allocations_and_why_no_numbers(
    no_data: Path,
) -> None:
    """It was an error alone, about an op of the host, in every view."""
    bench = PaneBench(MemoryPane, no_data, 40, 80, 11)
    head, first, *_, why = bench.lines
    assert head.split()[:2] == ["allocation", "space"]
    assert first.startswith("* ")
    assert why.strip() == (
        "no numbers: the run was recorded with --no-data; record it without"
    )
    assert len(bench.lines) == 11
    assert "in hbm (" in bench.picture.subtitle
    narrow = PaneBench(MemoryPane, no_data, 40, 30, 11)
    assert " ".join(" ".join(narrow.lines[-3:]).split()) == why.strip()


@pytest.mark.parametrize("view", ["numbers", "heatmap", "hex", "history"])
def test_without_data_every_view_says_why(no_data: Path, view: str) -> None:
    bench = PaneBench(MemoryPane, no_data, 40, 80, 11)
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    assert "recorded with --no-data" in bench.text
    assert bench.enter_word == ("go" if view == "history" else "")


def test_without_data_enter_on_an_allocation_lists_its_accesses(no_data: Path) -> None:
    bench = PaneBench(MemoryPane, no_data, 40, 80, 11)
    assert bench.enter_word == "history"
    bench.send(Scroll(1))
    (picked,) = [line for line in bench.lines if line.startswith(">")]
    address = picked.split()[3]
    bench.send(Enter())
    assert VIEWS[bench.pane.view(bench.state)] == "history"
    assert f" {address}:" in bench.lines[0]
    assert len(bench.lines) > 1


def test_without_data_nothing_is_said_before_the_first_op(no_data: Path) -> None:
    bench = PaneBench(MemoryPane, no_data, -1, 80, 11)
    assert bench.lines == [" before the first op: s steps to it"]


def test_the_shape_of_a_scalar_is_that_of_numpy(tmp_path: Path) -> None:
    """The list had a blank there, as if the shape were not known."""
    path = tmp_path / "scalar.msgpack"
    (tmp_path / "one.py").write_text(
        "from kernbench.benches import bench\n"
        "def k(x, y, tl):\n"
        "    tl.store(y, tl.load(x) + tl.load(x[0]))\n"
        '@bench(name="one", description="with a scalar")\n'
        "def run(torch):\n"
        '    x = torch.zeros((8,), "f32", name="x")\n'
        '    y = torch.empty((8,), "f32", name="y")\n'
        '    torch.launch("one", k, x, y)\n'
    )
    run_bench(str(tmp_path / "one.py"), trace=path)
    index = Index(Trace.open(path))
    loads = ops_of(index, "sip0.cube0.pe0.pe_dma")
    bench = PaneBench(MemoryPane, index, loads[1], 100, 12)
    marked = [line.split() for line in bench.lines if line.startswith("*")]
    assert ["f32", "()"] in [words[4:6] for words in marked]
    assert "f32 ()" in bench.text
    session = ReplaySession(index.trace)
    session.goto(loads[1])
    assert " f32 ()" in " ".join("\n".join(session.memory().lines(100)).split())

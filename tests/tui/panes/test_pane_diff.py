"""The Diff pane: what was expected, as numbers and heat; outputs, first divergence,
hazards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from bench import TRACES, PaneBench
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
from kernbench.replay.commands import BLAME, GOTO, HAZARDS, OUTPUTS, VERIFY
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.data.outputs import OutputRow
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    COMPARISON,
    EXECUTES_SOON,
    FIRST_DIVERGENCE,
    JUDGEMENT,
)
from kernbench.replay.races.findings import HARMFUL, OUTSIDE, Findings, Verdict
from kernbench.replay.views.diff import Divergence, Judgement
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.verify import compare
from kernbench.trace import Trace
from tui.panes.base import (
    Back,
    ChangeView,
    Click,
    Do,
    Enter,
    NextMark,
    Pan,
    Scroll,
    Settle,
)
from tui.panes.diff import DiffPane, ProvedRaces, ShowOutput

LARGE = place_of("diff", 200, 50)
"""Its own place at 200x50."""

VIEWS = DiffPane.views
BAD = [(3, 5), (3, 9), (70, 5)]
"""Rows and columns of elements that are made wrong."""
FAULTS = {
    "hazards": ("fault_missing_wait", 3),
    "first divergence": ("fault_overflow", 5),
    "outputs": ("fault_wrong_root", 9),
}


def diff(
    trace: str = "matmul", op: int = 17, region: Region = SMALL, view: str = "numbers"
) -> PaneBench:
    """The pane on a trace at an op, in a view."""
    bench = PaneBench(DiffPane, trace, op, region.width, region.height)
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    return bench


def session_on(bench: PaneBench) -> ReplaySession:
    """A session at the pane's cursor."""
    session = ReplaySession(bench.index.trace)
    session.goto(bench.frame.cursor)
    return session


# -- as the screen shows it -----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)],
)
def test_it_shows_what_it_showed_at_the_first_op(size: str, region: Region) -> None:
    bench = diff("matmul", 16, region)
    bench.rest()
    assert filled(bench.lines, region) == shown(f"diff-{size}-before", region)


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)],
)
def test_it_shows_what_it_showed_after_moves(size: str, region: Region) -> None:
    bench = diff("matmul", 16, region)
    bench.goto(151)
    bench.goto(143)
    bench.rest()
    assert filled(bench.lines, region) == shown(f"diff-{size}-after", region)


@pytest.mark.parametrize("view", VIEWS[1:])
def test_it_shows_what_it_showed_in_its_other_views(view: str) -> None:
    trace, op = FAULTS.get(view, ("matmul", 79))
    bench = diff(trace, op, MAXIMISED, view)
    bench.rest()
    name = f"diff-{view}-80x24".replace(" ", "-")
    assert filled(bench.lines, MAXIMISED) == shown(name, MAXIMISED)


# -- a run that failed ----------------------------------------------------------------


@pytest.mark.parametrize("op", [-1, 0, 2, 5])
def test_of_a_run_that_failed_the_first_bad_element_is_there_at_once(op: int) -> None:
    """At an early op it said "due op 5, 0 of 512" of it, and at the last that the op
    writes nothing that could be compared.
    """
    bench = diff("fault_overflow", op)
    run = session_on(bench).verify().rows[0]
    row, column = run.row.first_bad
    (element,) = [
        line for line in bench.lines if line.startswith(f" y[{row},{column}]")
    ]
    expected = Trace.open(TRACES / "fault_overflow.msgpack").expects[0].array
    assert f"expected {expected[row, column]:.4g}, is nan" in element
    assert "due op" not in bench.text
    assert "nothing that could be compared" not in bench.text


def test_enter_goes_to_where_the_element_was_judged_and_blames_it_there() -> None:
    bench = diff("fault_overflow", 0)
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=5)), Do(BLAME(place="y[1,0]")))
    bench.goto(5)
    bench.send(Enter())
    assert bench.effects == (Do(BLAME(place="y[1,0]")),)


def test_the_suspect_stands_below_the_element_with_its_line() -> None:
    bench = diff("fault_overflow", 0)
    assert " made by ...  Enter blames it" in bench.text
    bench.rest()
    blame = session_on(bench)
    blame.goto(5)
    suspect = blame.blame("y[1,0]").suspect
    (line,) = [line for line in bench.lines if line.startswith(" suspect: ")]
    assert f"op {suspect} exp overflow.py:17  1 of 64 overflow" in line


def test_the_line_of_the_suspect_comes_with_its_blame() -> None:
    """It came by the next rest, and was shown by the key after that."""
    bench = diff("fault_wrong_root", 2)
    wishes = bench.pane.wishes(bench.state, bench.frame, bench.answers)
    (blame,) = [query for query in wishes if query.command == BLAME.name]
    assert "made by ..." in bench.text
    bench.answers.of(blame)
    bench.send(Settle())
    assert "wrong_root.py:38  x = torch.tensor(" in bench.text


def test_an_op_that_writes_nothing_does_not_stand_before_the_output_that_failed() -> (
    None
):
    bench = diff("fault_wrong_root", 5)
    for op in range(10):
        bench.goto(op)
        bench.send(ShowOutput(""))
        assert "nothing that could be compared" not in bench.text


def test_back_leads_from_a_picked_output_to_what_failed() -> None:
    bench = diff("fault_overflow", 2)
    assert not bench.send(Back())
    bench.send(ShowOutput(""))
    assert " op 2 exp " in bench.text
    assert bench.send(Back())
    assert " output y at op 5 DIFFERS!" in bench.text


def test_of_a_long_run_that_failed_nothing_is_executed_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tui.panes.diff._AT_ONCE", 3)
    bench = diff("fault_overflow", 1)
    assert VERIFY.ask() not in bench.answers.asked
    for _ in range(VIEWS.index("outputs")):
        bench.send(ChangeView(1))
    bench.send(Enter())
    assert VERIFY.ask() in bench.answers.asked
    assert " output y at op 5 DIFFERS!" in bench.text


# -- numbers and heat -----------------------------------------------------------------


@pytest.fixture
def wrong() -> Iterator[PaneBench]:
    """The pane at an op of which three elements are wrong."""
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    good = index.diffs.of(17)
    expected = good.expected.copy()
    for row, column in BAD:
        expected[row, column] += 1.0
    judged = compare(good.actual, expected, good.row.tolerance, good.name)
    error = good.actual - expected
    bad = replace(good, row=judged, expected=expected, error=error)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index.diffs, "of", lambda op, progress=None: bad)
        yield PaneBench(DiffPane, index, 17, SMALL.width, SMALL.height)


def address_of(bench: PaneBench, row: int, column: int) -> str:
    """The bytes of an element of what op 17 wrote."""
    diff = bench.index.diffs.of(17)
    element = row * diff.actual.shape[1] + column
    return f"{diff.space} {diff.addr + element * 2:#x}:2"


def test_it_opens_at_the_first_mismatch_and_marks_it(wrong: PaneBench) -> None:
    assert "DIFFERS! 3 of 2,048 bad" in wrong.text
    row, column = BAD[0]
    assert wrong.place == address_of(wrong, row, column)
    (first,) = [line for line in wrong.lines if line.startswith(f"{row:>5} ")]
    assert first.count("!") == 3
    assert "          5          6          5          6" in wrong.text


def test_the_next_and_previous_mark_go_from_mismatch_to_mismatch(
    wrong: PaneBench,
) -> None:
    seen = [wrong.place]
    for by in (1, 1, -1):
        assert wrong.send(NextMark(by))
        seen.append(wrong.place)
    first, second, third = [address_of(wrong, row, column) for row, column in BAD]
    assert seen == [first, second, third, second]
    assert wrong.send(NextMark(-1))
    assert not wrong.send(NextMark(-1))


def test_enter_blames_the_bytes_of_the_mismatch(wrong: PaneBench) -> None:
    wrong.send(NextMark(1))
    row, column = BAD[1]
    wrong.send(Enter())
    assert wrong.effects == (Do(BLAME(place=address_of(wrong, row, column))),)


def test_heat_marks_the_blocks_with_mismatches(wrong: PaneBench) -> None:
    wrong.send(ChangeView(1))
    share, error = wrong.lines[5:7]
    assert share.endswith(
        "bad share of a block: blank 0, ▁ to 12.5%, █ all; 32x1 a block"
    )
    assert "worst error / tolerance: ▂ 1e-3, ▅ 1, █ 1e3" in error
    left = set()
    right = set()
    for y, line in enumerate(wrong.lines[7:]):
        left |= {(y, x) for x, glyph in enumerate(line[7:23]) if glyph != " "}
        right |= {(y, x) for x, glyph in enumerate(line[25:41]) if glyph in "▅▆▇█!"}
    assert left == right == {(row // 32, column) for row, column in BAD}


def test_heat_tells_one_bad_element_of_many_from_all_of_them(
    wrong: PaneBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of 32 rows with one bad element looked like one that is all bad."""
    wrong.send(ChangeView(1))
    row, column = BAD[0]
    one_of_many = wrong.lines[7 + row // 32][7 + column]
    few = wrong.index.diffs.of(17)
    expected = few.expected.copy()
    expected[:32, column] += 1.0
    judged = compare(few.actual, expected, few.row.tolerance, few.name)
    all_bad = replace(few, row=judged, expected=expected, error=few.actual - expected)
    monkeypatch.setattr(wrong.index.diffs, "of", lambda op, progress=None: all_bad)
    fresh = Index(Trace.open(TRACES / "matmul.msgpack"))
    monkeypatch.setattr(fresh.diffs, "of", lambda op, progress=None: all_bad)
    bench = PaneBench(DiffPane, fresh, 17, SMALL.width, SMALL.height)
    bench.send(ChangeView(1))
    assert (one_of_many, bench.lines[7][7 + column]) == ("▁", "█")


def test_the_numbers_can_be_panned() -> None:
    bench = diff()
    for _ in range(4):
        assert bench.send(Pan(1))
    bench.send(Scroll(1))
    assert "3          4          3          4" in bench.text


def test_a_cell_beyond_the_grid_is_its_nearest() -> None:
    bench = diff("matmul", 23)
    first = bench.place
    bench.send(Scroll(-(10**9)))
    bench.send(Pan(-(10**9)))
    assert bench.place == first
    bench.send(Scroll(10**9))
    bench.send(Pan(10**9))
    found = bench.index.diffs.of(23)
    last = found.addr + (found.actual.size - 1) * 2
    assert bench.place == f"{found.space} {last:#x}:2"


def test_errors_that_are_not_finite_are_never_hidden_behind_small_ones() -> None:
    bench = diff("fault_overflow", 2)
    bench.send(ShowOutput(""))
    wanted = " op 2 exp DIFFERS! 4 of 512 bad, 4 not finite, else abs "
    assert wanted in bench.text
    bench.goto(5)
    for _ in range(VIEWS.index("outputs")):
        bench.send(ChangeView(1))
    (row,) = [line for line in bench.lines if line.startswith(">y ")]
    assert row.split()[-2:] == ["inf", "inf"]


def test_before_the_first_op_a_key_is_named() -> None:
    bench = diff("matmul", -1)
    assert bench.lines[-1] == " before the first op: s steps to it"
    assert bench.place is None


def test_where_nothing_can_be_compared_it_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    nothing = OpDiff(17, "recv", note="this op writes nothing")
    monkeypatch.setattr(index.diffs, "of", lambda op, progress=None: nothing)
    bench = PaneBench(DiffPane, index, 17, SMALL.width, SMALL.height)
    assert bench.lines[-1] == " op 17 recv: this op writes nothing"
    assert bench.place is None
    assert not bench.send(NextMark(1))


# -- a tile's block of a wider output -------------------------------------------------


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """A matmul of which a tile has fewer columns than its composite's output."""
    path = tmp_path_factory.mktemp("tiled") / "matmul.msgpack"
    sizes = {"m": 96, "k": 80, "n": 100, "tile": 32, "pes": 2}
    return Index(Trace.open(run_bench("matmul", params=sizes, trace=path).trace_path))


def tile_at(index: Index, wanted: tuple[int, ...]) -> int:
    """A tile's op whose block begins at an origin, and is narrower than its output."""
    for op, record in enumerate(index.trace.ops):
        if record.op_name == "TileToken/GEMM":
            found = index.diffs.of(op)
            if found.origin == wanted and found.actual.shape[1] < 50:
                return op
    raise AssertionError(f"no tile at {wanted}")


def test_a_cell_of_a_tile_is_that_element_of_the_whole_output(tiled: Index) -> None:
    op = tile_at(tiled, (0, 0))
    bench = PaneBench(DiffPane, tiled, op, 80, 20)
    bench.send(Scroll(1))
    bench.send(Pan(2))
    found = tiled.diffs.of(op)
    composite = tiled.diffs.producer(op).op
    columns = tiled.diffs.of(composite).actual.shape[1]
    assert columns > found.actual.shape[1]
    assert bench.place == f"{found.space} {found.addr + (columns + 2) * 2:#x}:2"


def test_a_cell_of_a_tile_within_the_output_names_no_bytes(tiled: Index) -> None:
    bench = PaneBench(DiffPane, tiled, tile_at(tiled, (32, 0)), 80, 20)
    assert bench.place is None
    bench.send(Enter())
    assert bench.effects == ()


def test_rows_and_columns_of_a_tile_have_the_numbers_of_the_output(
    tiled: Index,
) -> None:
    bench = PaneBench(DiffPane, tiled, tile_at(tiled, (32, 32)), 80, 20)
    (heading,) = [line for line in bench.lines if line.split()[:2] == ["32", "33"]]
    rows = bench.lines[bench.lines.index(heading) + 1 :]
    assert [line.split()[0] for line in rows[:2]] == ["32", "33"]


# -- outputs --------------------------------------------------------------------------


def test_the_outputs_view_shows_all_that_is_expected() -> None:
    bench = diff("mlp_tp", 0, view="outputs")
    bench.goto(len(bench.index.ops) - 1)
    for out in bench.index.outputs.at(bench.frame.cursor).rows:
        assert f"{out.row.tensor} " in bench.text


def test_many_ulps_keep_to_their_column() -> None:
    """From 0 to 1 there are more than 10^9 floats."""
    bench = diff("fault_wrong_root", 9, view="outputs")
    head, row = next(
        (above, below)
        for above, below in pairwise(bench.lines)
        if above.lstrip().startswith("output")
    )
    assert len(row) == len(head)
    assert row.split()[-1] == "1.1e+09"


def test_an_output_that_is_picked_is_compared_with_its_reference() -> None:
    bench = diff("fault_overflow", 5, view="outputs")
    bench.send(Enter())
    assert bench.pane.view(bench.state) == VIEWS.index("numbers")
    assert " output y DIFFERS! 4 of 512 bad" in bench.text
    row, column = session_on(bench).output("y").row.first_bad
    assert bench.place == f"y[{row},{column}]"
    bench.send(ChangeView(1))
    bench.send(ChangeView(1))
    bench.send(Enter())
    assert "output y" not in bench.text


def test_the_picked_output_and_the_one_that_is_shown_are_told_apart() -> None:
    """Both had one mark, and Enter was said to show what it lets go of."""
    bench = diff("mlp_tp", 0)
    bench.send(ShowOutput("rank1.y"))
    for _ in range(VIEWS.index("outputs")):
        bench.send(ChangeView(1))
    first, second = [line for line in bench.lines if ".y" in line]
    assert first.startswith(">rank0.y")
    assert second.startswith("*rank1.y")
    assert bench.enter_word == "show"
    bench.send(Scroll(1))
    first, second = [line for line in bench.lines if ".y" in line]
    assert first.startswith(" rank0.y")
    assert second.startswith(">rank1.y")
    assert bench.enter_word == "let go"


def test_another_pane_may_ask_for_an_output() -> None:
    bench = diff("fault_overflow", 5, view="hazards")
    bench.send(ShowOutput("y"))
    assert " output y DIFFERS! 4 of 512 bad" in bench.text
    bench.send(ShowOutput(""))
    assert "output y" not in bench.text


def test_outputs_of_which_parts_are_not_written_yet_are_no_mismatch() -> None:
    bench = diff("matmul", 17)
    bench.send(ShowOutput("c"))
    written = bench.index.memory.tensor(17, "c").written
    missing = int((~written).sum())
    text = " ".join(line.strip() for line in bench.lines)
    assert f"output c: {missing:,} not written yet are nan here" in text
    assert "DIFFERS" not in text
    assert f"not all there 0 of {written.size:,} bad" in text


def test_an_output_that_is_not_due_yet_looks_unlike_one_that_failed() -> None:
    """8,176 of 8,192 bad read like an alarm; nothing had been written yet."""
    bench = diff("mlp_tp", 128)
    (row,) = [line for line in bench.lines if line.startswith(" rank0.y ")]
    assert row.split()[1:] == ["due", "op", "763", "(8,176)", "8,192", "-", "-"]
    bench.send(ShowOutput("rank0.y"))
    assert " output rank0.y due op 763 8,176 of 8,192 not right yet" in bench.text
    assert "DIFFERS" not in bench.text
    assert "!" not in bench.text
    styles = {style for line in bench.picture.lines for _, style in line}
    assert "bad" not in styles


@pytest.mark.parametrize("line", [2, 3])
def test_a_click_on_an_output_compares_that_one(line: int) -> None:
    bench = diff("mlp_tp", 0, view="outputs")
    bench.goto(len(bench.index.ops) - 1)
    rows = bench.index.outputs.at(bench.frame.cursor).rows
    assert len(rows) > 1
    bench.send(Click(3, line))
    assert f">{rows[line - 2].row.tensor} " in bench.text


def with_many_outputs(bench: PaneBench) -> tuple[OutputRow, ...]:
    """Let the trace have 40 outputs; what is asked of the first is asked of each."""
    query = VERIFY.ask()
    found = bench.answers.of(query)
    (first, *_) = found.rows
    rows = []
    for i in range(40):
        row = replace(first.row, tensor=f"y{i}")
        rows.append(replace(first, row=row))
    bench.answers.asked[query] = replace(found, rows=tuple(rows))
    bench.send(Settle())
    return tuple(rows)


def test_the_last_of_many_outputs_comes_into_view() -> None:
    bench = diff("fault_overflow", 5, view="outputs")
    with_many_outputs(bench)
    bench.send(Scroll(10**9))
    assert len(bench.lines) == SMALL.height
    assert bench.lines[-1].startswith(">y39 ")


def test_of_a_cut_file_it_is_the_recording_that_stopped(tmp_path: Path) -> None:
    path = tmp_path / "cut.msgpack"
    whole = TRACES / "matmul.msgpack"
    path.write_bytes(whole.read_bytes()[:170_000])
    bench = PaneBench(DiffPane, path, 40, SMALL.width, SMALL.height)
    note = " the recording ends before expected outputs are stated"
    assert bench.lines[1] == note


def test_outputs_at_every_op_are_those_of_a_fresh_index() -> None:
    trace = Trace.open(TRACES / "matmul.msgpack")
    stepped = Index(trace)
    for op in (20, 60, 16, 151, 30, 17):
        fresh = Index(trace)
        assert stepped.outputs.at(op).rows == fresh.outputs.at(op).rows


# -- first divergence and hazards -----------------------------------------------------


def test_enter_on_the_first_divergence_goes_to_its_op() -> None:
    bench = diff("fault_overflow", 5, view="first divergence")
    assert "op 2  exp" in bench.text
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=2)),)


def test_the_first_divergence_is_shown_three_way() -> None:
    bench = diff("fault_overflow", 5, MAXIMISED, view="first divergence")
    bench.send(Scroll(10**9))
    assert "simulated" in bench.text


def test_hazards_have_both_ops_and_enter_goes_to_one() -> None:
    bench = diff("fault_missing_wait", 3, view="hazards")
    kind = "read of bytes whose writer is in flight"
    assert bench.lines[:2] == [" hazards: 1", f"! {kind}: op 2 and 1"]
    assert bench.text.count("missing_wait.py:") == 3  # and who made the scratch
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=2)),)


def entered_and_followed(bench: PaneBench, times: int) -> list[int]:
    """Press Enter so often, and go to each op; these."""
    seen = []
    for _ in range(times):
        bench.send(Enter())
        (effect,) = bench.effects
        seen.append(effect.call.args.op)
        bench.goto(seen[-1])
    return seen


def test_why_hazards_were_not_looked_for_is_told_in_full(tmp_path: Path) -> None:
    """Of a run without data it was cut behind the first op that has none."""
    path = tmp_path / "no_data.msgpack"
    params = {"m": 64, "k": 64, "n": 64, "pes": 2}
    run_bench("matmul", params=params, trace=path, data=False, verify=False)
    bench = PaneBench(DiffPane, path, 8, 60, 20)
    while VIEWS[bench.pane.view(bench.state)] != "hazards":
        bench.send(ChangeView(1))
    assert all(len(line) <= 60 for line in bench.lines)
    assert bench.lines[0].startswith(" no hazards; ")
    note = bench.answers.asked[HAZARDS.ask()].note
    told = " ".join(line.strip() for line in bench.lines)
    assert told == f"no hazards; {note}"
    bench.send(ChangeView(1))
    told = " ".join(line.strip() for line in bench.lines)
    assert "the run was recorded with --no-data, so what the bench expects" in told
    assert "record the run again without --no-data" in told


@pytest.mark.parametrize("view", ["numbers", "heatmap", "outputs"])
def test_why_there_are_no_outputs_is_told_in_full(tmp_path: Path, view: str) -> None:
    """At 80 columns it ended in "is not in its t" and an ellipsis."""
    path = tmp_path / "no_data.msgpack"
    params = {"m": 64, "k": 64, "n": 64, "pes": 2}
    run_bench("matmul", params=params, trace=path, data=False, verify=False)
    bench = PaneBench(DiffPane, path, 8, 80, 11)
    while VIEWS[bench.pane.view(bench.state)] != view:
        bench.send(ChangeView(1))
    assert all(len(line) <= 80 for line in bench.lines)
    told = " ".join(line.strip() for line in bench.lines)
    assert "so what the bench expects is not in its trace" in told


def test_enter_on_a_hazard_goes_to_its_first_op_then_to_the_other() -> None:
    bench = diff("fault_missing_wait", 3, view="hazards")
    assert entered_and_followed(bench, 3) == [2, 1, 2]


def test_a_hazard_that_was_picked_stays_so_where_its_ops_are_gone_to() -> None:
    bench = diff("fault_missing_wait", 3, view="hazards")
    (found,) = bench.answers.of(HAZARDS.ask()).rows
    turned = replace(found, op=found.other, other=found.op)
    bench.answers.asked[HAZARDS.ask()] = Findings((found, turned), "", False)
    bench.send(Settle())
    bench.send(Scroll(1))
    assert entered_and_followed(bench, 3) == [1, 2, 1]


def test_a_picked_race_claims_that_its_order_matters() -> None:
    bench = diff("fault_missing_wait", 3, view="hazards")

    def claimed() -> str | None:
        found: str | None = bench.pane.claimed(bench.state, bench.frame, bench.answers)
        return found

    assert claimed() == "race 1"
    (found,) = bench.answers.of(HAZARDS.ask()).rows
    alone = replace(found, kind=OUTSIDE)
    bench.answers.asked[HAZARDS.ask()] = Findings((alone,), "", False)
    assert claimed() == ""
    bench.send(ChangeView(1))
    assert bench.pane.views[bench.pane.view(bench.state)] == "numbers"
    assert claimed() is None  # in the lead there is no race either
    bench.answers.asked[HAZARDS.ask()] = Findings((alone, found), "", False)
    assert claimed() == "race 2"
    bench.send(ChangeView(1))
    assert claimed() is None


def test_what_came_of_a_race_stands_beside_it() -> None:
    bench = diff("fault_missing_wait", 3, view="hazards")
    (found,) = bench.answers.of(HAZARDS.ask()).rows
    proof = Verdict(HARMFUL, "y[3] 2 -> 1", 1, 100.0, 2)
    bench.send(ProvedRaces((replace(found, proof=proof),)))
    assert bench.lines[1].endswith("op 2 and 1; harmful: y[3] 2 -> 1")


def test_a_click_on_a_hazard_goes_to_its_first_op() -> None:
    bench = diff("fault_missing_wait", 3, view="hazards")
    bench.send(Click(5, 1))
    assert bench.effects == (Do(GOTO(op=2)),)


@pytest.mark.parametrize("view", ["outputs", "first divergence", "hazards"])
def test_enter_on_a_list_that_is_not_there_yet_goes_nowhere(view: str) -> None:
    bench = PaneBench(DiffPane, "matmul", 20, 80, 12)
    bench.answers.held |= {OUTPUTS.name, FIRST_DIVERGENCE.name, HAZARDS.name}
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    bench.goto(21)
    bench.send(Enter())
    assert bench.effects == ()


# -- what leads the pane --------------------------------------------------------------


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        ("fault_overflow", "op 2 (V V)  hazards: none"),
        ("fault_missing_wait", "none  hazards: 1 (V)"),
    ],
)
def test_divergence_and_hazards_lead_the_pane_unasked(trace: str, found: str) -> None:
    bench = diff(trace, 0)
    assert bench.lines[0] == " first divergence: ...  hazards: ..."
    bench.rest()
    assert bench.lines[0] == f" first divergence: {found}"


def test_hazards_are_not_said_to_be_none_where_not_all_was_looked_at(
    tmp_path: Path,
) -> None:
    """Of a run without data it said "none": nobody had compared the phases."""
    path = tmp_path / "no_data.msgpack"
    params = {"m": 64, "k": 64, "n": 64, "pes": 2}
    run_bench("matmul", params=params, trace=path, data=False, verify=False)
    bench = PaneBench(DiffPane, path, 8, 100, 20)
    bench.rest()
    assert bench.lines[0].endswith("hazards: none found, not all looked at (V)")


@pytest.mark.parametrize("view", VIEWS[:3])
def test_the_keys_in_the_lead_come_to_the_views_that_it_names(view: str) -> None:
    """It said V of both, by which one came to the hazards only."""
    keys = {"v": ChangeView(1), "V": ChangeView(-1)}
    for name in ("first divergence", "hazards"):
        bench = diff("fault_overflow", 5, view=view)
        bench.answers.asked[EXECUTES_SOON.ask()] = False
        (shown,) = re.findall(rf"{name}: in its view \(([vV ]+)\)", bench.lines[0])
        for key in shown.split():
            bench.send(keys[key])
        assert VIEWS[bench.pane.view(bench.state)] == name


def test_of_a_long_trace_the_lead_names_the_views_that_compute_it() -> None:
    bench = diff("fault_overflow", 5)
    bench.answers.asked[EXECUTES_SOON.ask()] = False
    bench.rest()
    lead = " first divergence: in its view (V V)  hazards: in its view (V)"
    assert bench.lines[0] == lead
    asked = {query.command for query in bench.answers.asked}
    assert asked.isdisjoint({FIRST_DIVERGENCE.name, HAZARDS.name})


def test_a_divergence_that_cannot_be_found_is_left_to_its_view() -> None:
    bench = diff("fault_overflow", 0)
    refused = Divergence(-1, error="refused")
    bench.answers.asked[FIRST_DIVERGENCE.ask()] = refused
    bench.rest()
    lead = " first divergence: in its view (V V)  hazards: none"
    assert bench.lines[0] == lead


# -- what rounding explains -----------------------------------------------------------


@pytest.mark.parametrize(
    ("trace", "op", "line"),
    [
        (
            "matmul",
            16,
            " local error 9.6e-04, rounding explains 9.9e-04, accumulated 9.6e-04",
        ),
        # the store of PE 2
        ("matmul", 138, " local error 9.5e-04, rounding explains 1.0e-03"),
        ("fault_overflow", 2, " overflow, accumulated inf"),
        ("fault_overflow", 0, " exact, accumulated 0.0e+00"),
    ],
)
def test_an_op_is_judged_by_what_rounding_explains(
    trace: str, op: int, line: str
) -> None:
    bench = diff(trace, op)
    bench.send(ShowOutput(""))
    bench.rest()
    assert line in bench.lines


def test_an_op_is_judged_once_nothing_is_pressed() -> None:
    bench = diff()
    assert " local error ..." in bench.lines
    bench.rest()
    assert ", rounding explains " in bench.text
    bench.goto(18)
    assert " local error ..." in bench.lines


def test_what_rounding_does_not_explain_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = diff()
    good = bench.index.diffs.judged(17)
    over = replace(good, check=replace(good.check, over=3, local=1.0))
    monkeypatch.setattr(bench.index.diffs, "judged", lambda op, progress=None: over)
    bench.rest()
    text = f" local error 1.0e+00, rounding explains only {good.check.bound:.1e}"
    assert text in bench.text


def test_an_op_that_takes_long_to_judge_is_left_to_the_command() -> None:
    bench = diff()
    query = JUDGEMENT.ask(17, divergence=False)
    bench.answers.asked[query] = Judgement(None)
    assert " local error: :diff tells" in bench.lines


def test_what_phase_1_saw_of_an_output_is_said_beside_it() -> None:
    bench = diff("fault_overflow", 1)
    bench.send(ShowOutput(""))
    bench.rest()
    line = " exact, accumulated 0.0e+00; Phase 1 at op 2 off 0.0e+00"
    assert line in bench.lines


# -- while answers are computed -------------------------------------------------------


def test_while_the_comparison_is_computed_the_outputs_are_there() -> None:
    bench = diff()
    bench.answers.held.add(COMPARISON.name)
    bench.goto(18)
    lead, head, output, waiting = bench.lines
    assert lead.startswith(" first divergence: ")
    assert head.startswith(" output ")
    assert output.startswith(" c ")
    assert waiting == " computing comparison: 50%  Esc cancels"


def test_while_the_outputs_are_computed_the_lead_is_there() -> None:
    bench = diff()
    bench.answers.held.add(OUTPUTS.name)
    bench.goto(18)
    lead, waiting = bench.lines
    assert lead.startswith(" first divergence: ")
    assert waiting == " computing outputs: 50%  Esc cancels"


@pytest.mark.parametrize("width", range(40, 120, 7))
def test_a_number_of_the_verdict_is_whole_or_left_out(width):
    """2,129 ULP: of ``ulp 2,12`` nobody could tell."""
    bench = diff("fault_overflow", 5, replace(SMALL, width=width))
    (line,) = [line for line in bench.lines if "DIFFERS" in line]
    assert "ulp 2,129" in line or "ulp" not in line
    assert "atol" not in line or re.search(r"atol \S+$", line)


@pytest.mark.parametrize(
    ("trace", "op", "view", "word"),
    [
        ("matmul", 79, "hazards", ""),
        ("matmul", 79, "first divergence", ""),
        ("matmul", 79, "outputs", "show"),
        ("matmul", 79, "numbers", "blame"),
        ("matmul", 45, "numbers", ""),
        ("fault_missing_wait", 3, "hazards", "go"),
        ("fault_overflow", 5, "first divergence", "go"),
    ],
)
def test_a_word_for_enter_is_there_where_enter_does_something(
    trace: str, op: int, view: str, word: str
) -> None:
    bench = diff(trace, op, MAXIMISED, view)
    assert bench.enter_word == word
    before = bench.state
    bench.send(Enter())
    assert (bench.effects != () or bench.state != before) == bool(word)

"""Tensors as grids: marks, windows and heat against what numpy says of the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.progress import Cancelled, no_progress
from kernbench.errors import UsageError
from kernbench.replay.commands import answer
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.data.grids import (
    Grid,
    Marks,
    cell_name,
    in_rows,
    marked_shares,
    marks_of,
    row_name,
    rows_and_columns,
)
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    COMPARISON,
    GRID_HEAT,
    GRID_PART,
    TENSOR_CELL,
    TENSOR_SUMMARY,
)
from kernbench.replay.views.grids import GridOf
from kernbench.sim_engine.accesses import accesses
from kernbench.trace import Trace

TRACES = Path(__file__).parents[3] / "traces"
C = GridOf("c", compared=False)


@pytest.fixture
def index() -> Index:
    """The matmul, of which nothing is known yet."""
    return Index(Trace.open(TRACES / "matmul.msgpack"))


def marks(marked: list[bool]) -> Marks:
    """The marks of a grid of one row."""
    return marks_of(np.array([marked], np.bool_), no_progress)


# -- names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "rows", "name", "cell"),
    [
        ((4, 8), 4, "3", "[3,2]"),
        ((2, 3, 8), 6, "1,0", "[1,0,2]"),
        ((64,), 1, "", "[2]"),
        ((), 1, "", ""),
    ],
)
def test_rows_of_any_rank_are_named_by_their_index(
    shape: tuple[int, ...], rows: int, name: str, cell: str
) -> None:
    assert in_rows(np.zeros(shape)).shape == rows_and_columns(shape)
    assert rows_and_columns(shape)[0] == rows
    row = min(3, rows - 1)
    assert row_name(row, shape) == name
    assert cell_name(row, 2 if shape else 0, shape) == cell


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (0, 0)])
def test_a_grid_without_rows_has_a_width_all_the_same(
    shape: tuple[int, ...],
) -> None:
    rows, _ = rows_and_columns(shape)
    assert row_name(rows - 1, shape)


# -- marks ----------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_marks_are_found_from_every_element_in_both_directions(
    marked: list[bool],
) -> None:
    found = marks(marked)
    where = [i for i, is_marked in enumerate(marked) if is_marked]
    assert found.count == len(where)
    assert found.first == min(where, default=None)
    for here in range(len(marked)):
        later = [i for i in where if i > here]
        earlier = [i for i in where if i < here]
        assert found.after(here) == min(later, default=None)
        assert found.before(here) == max(earlier, default=None)


@given(st.sets(st.integers(0, 299_999), min_size=1, max_size=4), st.data())
def test_marks_that_are_far_apart_in_a_large_grid_are_found(
    where: set[int], data: st.DataObject
) -> None:
    marked = np.zeros((300, 1000), np.bool_)
    marked.reshape(-1)[list(where)] = True
    found = marks_of(marked, no_progress)
    assert (found.count, found.first) == (len(where), min(where))
    near = [i + by for i in where for by in (-9, -1, 0, 1, 9) if 0 <= i + by < 300_000]
    for here in [0, 299_999, *near, data.draw(st.integers(0, 299_999))]:
        assert found.after(here) == min((i for i in where if i > here), default=None)
        assert found.before(here) == max((i for i in where if i < here), default=None)


def test_a_few_marks_of_a_large_grid_take_little() -> None:
    marked = np.zeros((4096, 4096), np.bool_)
    marked[2000:2032, 100:132] = True
    assert marks_of(marked, no_progress).bits.nbytes < 1 << 16


def test_where_nothing_is_marked_no_bits_are_kept() -> None:
    found = marks([False] * 100)
    assert found.bits.size == 0
    assert (found.first, found.after(50), found.before(50)) == (None, None, None)


def test_marks_of_a_large_grid_call_progress_between_its_parts() -> None:
    marked = np.zeros((1000, 1000), np.bool_)
    marked[999, 999] = True
    calls = list[float]()
    found = marks_of(marked, calls.append)
    assert found.first == 999_999
    assert len(calls) > 1
    assert calls == sorted(calls)


# -- tensors --------------------------------------------------------------------------


def test_what_an_op_wrote_of_a_tensor_is_marked(index: Index) -> None:
    found = answer(index, TENSOR_SUMMARY.ask(16, name="c"))
    view = index.memory.tensor(16, "c")
    assert found.grid.shape == view.values.shape
    assert found.grid.marks.count == np.count_nonzero(view.changed)
    assert found.grid.marks.first == view.changed.argmax()
    assert found.unwritten == np.count_nonzero(~view.written)


def test_without_a_name_the_tensor_is_that_of_the_op(index: Index) -> None:
    assert answer(index, TENSOR_SUMMARY.ask(16, name="")).name == "c"
    copy = "a@sip0.cube0.pe4.pe_cpu"
    assert answer(index, TENSOR_SUMMARY.ask(4, name="")).name == copy


def test_before_the_first_op_there_is_no_tensor(index: Index) -> None:
    assert answer(index, TENSOR_SUMMARY.ask(-1, name="")).name == ""


def test_a_tensor_that_is_not_there_is_refused(index: Index) -> None:
    with pytest.raises(UsageError, match="no tensor 'x' in this trace"):
        answer(index, TENSOR_SUMMARY.ask(16, name="x"))


def test_a_window_has_the_elements_of_its_rows_and_columns(index: Index) -> None:
    query = GRID_PART.ask(17, of=C, row=5, column=60, rows=10, columns=7)
    part = answer(index, query)
    view = index.memory.tensor(17, "c")
    window = np.s_[5:15, 60:67]
    assert (part.row, part.column) == (5, 60)
    assert np.array_equal(part.planes[0], view.values[window])
    assert np.array_equal(part.written, view.written[window])
    assert np.array_equal(part.marked, view.changed[window])


def test_a_window_beyond_the_grid_has_what_there_is(index: Index) -> None:
    query = GRID_PART.ask(17, of=C, row=120, column=126, rows=10, columns=7)
    assert answer(index, query).planes[0].shape == (8, 2)


def test_nothing_of_an_answer_can_be_written_to(index: Index) -> None:
    part = answer(index, GRID_PART.ask(17, of=C, row=0, column=0, rows=4, columns=4))
    heat = answer(index, GRID_HEAT.ask(17, of=C, tall=8, wide=8))
    summary = answer(index, TENSOR_SUMMARY.ask(17, name="c"))
    arrays = [*part.planes, part.written, part.marked, heat.shares, heat.bad]
    for array in (*arrays, summary.grid.marks.bits):
        assert not array.flags.writeable


def test_a_cell_has_its_value_its_place_and_its_writer(index: Index) -> None:
    cell = answer(index, TENSOR_CELL.ask(17, tensor="c", row=2, column=1))
    value = index.memory.tensor(17, "c").values[2, 1]
    space, addr, nbytes = index.places.place("c[2,1]").ranges[0]
    writers = []
    for op in range(18):
        for access in accesses(index.trace.ops[op]):
            last = access.addr + access.nbytes
            if access.mode == "w" and access.addr <= addr < addr + nbytes <= last:
                writers.append(op)
    assert (cell.space, cell.addr, cell.writer) == (space, addr, writers[-1])
    assert cell.value == float(value)
    assert cell.bits == f"{value.view('u2'):04x}"


# -- heat -----------------------------------------------------------------------------


def a_grid(shares: np.ndarray) -> Grid:
    """A grid whose elements have these shares of the scale."""
    none = np.zeros(shares.shape, np.bool_)
    return Grid(
        shares.shape,
        (shares,),
        None,
        none,
        marks_of(none, no_progress),
        lambda rows, columns: shares[rows, columns],
    )


@pytest.mark.slow
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    tall=st.integers(1, 25),
    wide=st.integers(1, 25),
)
def test_a_block_has_the_largest_share_of_its_elements(
    shape: tuple[int, int], tall: int, wide: int
) -> None:
    rng = np.random.default_rng(0)
    shares = rng.random(shape)
    shares[rng.random(shape) < 0.3] = np.nan
    index = Index(Trace.open(TRACES / "fault_overflow.msgpack"))
    found = index.grids.heat(a_grid(shares), tall, wide, no_progress)
    for i, row in enumerate(found):
        for j, share in enumerate(row):
            block = shares[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide]
            wanted = np.fmax.reduce(block, axis=None)
            assert share == wanted or (np.isnan(share) and np.isnan(wanted))


def test_heat_of_a_tensor_is_its_size_as_a_share_of_the_largest(index: Index) -> None:
    heat = answer(index, GRID_HEAT.ask(17, of=C, tall=1, wide=1))
    view = index.memory.tensor(17, "c")
    size = np.abs(view.values.astype(np.float64))
    top = max(abs(view.minimum), abs(view.maximum))
    assert np.array_equal(np.isnan(heat.shares), ~view.written)
    assert np.allclose(heat.shares[view.written], size[view.written] / top)
    assert np.array_equal(heat.bad, view.changed)


def test_heat_of_a_comparison_is_the_error_as_a_share_of_what_is_tolerated(
    index: Index,
) -> None:
    of = GridOf("", compared=True)
    heat = answer(index, GRID_HEAT.ask(17, of=of, tall=1, wide=1))
    diff = index.diffs.of(17)
    limit = diff.row.tolerance.atol + diff.row.tolerance.rtol * np.abs(diff.expected)
    assert np.allclose(heat.shares, np.abs(diff.error) / limit)
    assert not heat.bad.any()


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    tall=st.integers(1, 25),
    wide=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_a_block_says_which_share_of_its_elements_is_marked(
    shape: tuple[int, int], tall: int, wide: int, seed: int
) -> None:
    marked = np.random.default_rng(seed).random(shape) < 0.2
    grid = replace(
        a_grid(np.zeros(shape)), marked=marked, marks=marks_of(marked, no_progress)
    )
    found = marked_shares(grid, tall, wide, no_progress)
    for i, row in enumerate(found):
        for j, share in enumerate(row):
            block = marked[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide]
            assert share == pytest.approx(block.mean())


def test_heat_is_that_of_the_op_and_of_the_size_of_the_blocks(index: Index) -> None:
    first = answer(index, GRID_HEAT.ask(17, of=C, tall=8, wide=8)).shares
    other_size = answer(index, GRID_HEAT.ask(17, of=C, tall=4, wide=8)).shares
    other_op = answer(index, GRID_HEAT.ask(18, of=C, tall=8, wide=8)).shares
    again = answer(index, GRID_HEAT.ask(17, of=C, tall=8, wide=8)).shares
    assert other_size.shape != first.shape
    assert not np.array_equal(other_op, first, equal_nan=True)
    assert np.array_equal(again, first, equal_nan=True)


# -- comparisons ----------------------------------------------------------------------


def test_a_comparison_has_no_grid_where_nothing_was_written(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = OpDiff(17, "recv", note="this op writes nothing")
    monkeypatch.setattr(index.diffs, "of", lambda op, progress: nothing)
    found = answer(index, COMPARISON.ask(17, output=""))
    assert (found.grid, found.row) == (None, None)
    assert found.note == "this op writes nothing"
    of = GridOf("", compared=True)
    with pytest.raises(UsageError, match="there is nothing to compare"):
        answer(index, GRID_PART.ask(17, of=of, row=0, column=0, rows=1, columns=1))


def test_the_planes_of_a_comparison_are_expected_actual_and_error(
    index: Index,
) -> None:
    of = GridOf("", compared=True)
    query = GRID_PART.ask(17, of=of, row=0, column=0, rows=128, columns=16)
    planes = answer(index, query).planes
    diff = index.diffs.of(17)
    for plane, wanted in zip(
        planes, (diff.expected, diff.actual, diff.error), strict=True
    ):
        assert np.array_equal(plane, wanted)


# -- cancelling -----------------------------------------------------------------------


def cancel_at(call: int) -> Callable[[float], None]:
    """Progress that cancels when it is called for that time."""
    calls = list[float]()

    def progress(done: float) -> None:
        calls.append(done)
        if len(calls) == call:
            raise Cancelled("enough")

    return progress


@pytest.mark.parametrize("call", range(1, 8))
def test_after_a_question_was_cancelled_its_answer_is_right(
    index: Index, call: int
) -> None:
    query = GRID_HEAT.ask(17, of=C, tall=8, wide=8)
    wanted = answer(Index(index.trace), query).shares
    with pytest.raises(Cancelled):
        answer(index, query, cancel_at(call))
    assert np.array_equal(answer(index, query).shares, wanted, equal_nan=True)

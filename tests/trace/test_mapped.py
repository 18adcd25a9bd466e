"""Columns that stay in the mapped file: they do what arrays do, and hold none."""

import gc
import tracemalloc
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import for_all

from kernbench.perf.make_trace import make_trace
from kernbench.replay import ReplaySession
from kernbench.trace import Trace
from kernbench.trace.mapped import ListPointers, MappedColumn
from kernbench.trace.ops import rows_of_reading
from kernbench.trace.schema import CODES

OPS = 30_000
CODE = st.sampled_from(["u1", "u2", "u4"])
VALUES = st.lists(st.integers(0, 200), max_size=8)
GAP = st.integers(0, 5)
FRAMES = st.lists(st.tuples(CODE, VALUES, GAP), max_size=6)


def parts_of(frames):
    """A file of frames (code, values, bytes before them), and views of the values."""
    data = bytearray(8)
    places = []
    for code, values, gap in frames:
        data += bytes(gap)
        places.append((len(values), CODES[code], len(data)))
        data += np.array(values, CODES[code]).tobytes()
    parts = [np.ndarray((n,), dtype, data, offset) for n, dtype, offset in places]
    return data, parts


def mapped(frames, translate=None):
    """A column of such frames, and the array that it stands for."""
    data, parts = parts_of(frames)
    joined = [value for _, values, _ in frames for value in values]
    column = MappedColumn(data, parts, np.uint32, translate)
    return column, np.array(joined, np.uint32)


@pytest.mark.slow
@given(
    frames=FRAMES,
    picks=st.lists(st.integers(-40, 40)),
    ends=st.tuples(st.integers(), st.integers()),
)
def test_a_column_is_indexed_as_the_array_of_all_frames(frames, picks, ends):
    column, whole = mapped(frames)
    there = [row for row in picks if -len(whole) <= row < len(whole)]
    rows = np.array(there, np.int64)
    nothing = np.array([], np.int64)
    backwards = slice(None, None, -1)
    for at in (rows, slice(*ends), backwards, whole > 100, (rows, None), nothing):
        np.testing.assert_array_equal(column[at], whole[at])
        assert column[at].dtype == whole.dtype
    assert [column[row] for row in there] == whole[rows].tolist()
    assert len(column) == len(whole)
    assert column.tolist() == whole.tolist()


@for_all(
    lengths=st.lists(st.integers(30, 200), min_size=1, max_size=9),
    codes=st.lists(CODE, min_size=9, max_size=9),
    shares=st.lists(st.floats(0, 1, exclude_max=True), max_size=7),
    fast=20,
    whole=300,
)
def test_a_few_of_many_rows_are_those_of_the_array(lengths, codes, shares):
    """The parts are long enough, but the last, for a table of blocks."""
    frames = [
        (code, (np.arange(n) * 7 % 199).tolist(), n % 5)
        for n, code in zip(lengths, codes, strict=False)
    ]
    column, whole = mapped([*frames, ("u2", [5, 6], 1)])
    few = np.array(shares) * len(whole)
    for rows in (few.astype(np.int64), few.astype(np.int32), few.astype(np.uint16)):
        found = column[rows]
        np.testing.assert_array_equal(found, whole[rows])
        assert found.dtype == whole.dtype


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_row_is_as_in_the_whole_column(shape):
    column, whole = mapped([("u1", [1, 2], 3), ("u4", [70_000, 4, 5], 1)])
    for row in range(-len(whole), len(whole)):
        rows = np.full(shape, row)
        found = column[rows]
        np.testing.assert_array_equal(found, whole[rows])
        assert found.dtype == whole.dtype
        assert np.shape(found) == shape


@pytest.mark.parametrize("at", [3, -4, np.array([0, 3]), np.array([-4]), np.int64(3)])
def test_a_row_that_is_not_there_is_an_index_error(at):
    column, _ = mapped([("u1", [1, 2], 3), ("u4", [3], 1)])
    with pytest.raises(IndexError):
        column[at]


def test_a_row_that_is_not_there_is_an_index_error_where_few_are_asked_for():
    column, _ = mapped([("u1", [1], 0)] * 40)
    with pytest.raises(IndexError):
        column[np.array([40])]


@pytest.mark.slow
@given(frames=FRAMES)
def test_a_column_is_computed_with_as_an_array(frames):
    column, whole = mapped(frames)
    np.testing.assert_array_equal(2 * column + np.ones(len(whole)), 2 * whole + 1.0)
    np.testing.assert_array_equal(column == column, np.ones(len(whole), bool))
    np.testing.assert_array_equal(np.arange(201)[column], whole)
    np.testing.assert_array_equal(np.concatenate([column, column]), np.tile(whole, 2))
    np.testing.assert_array_equal(column.astype(np.float64), whole.astype(np.float64))
    assert column.max(initial=0) == whole.max(initial=0)
    assert column.min(initial=0) == np.min(column, initial=0) == 0
    assert column.dtype == whole.dtype


def test_numbers_are_read_as_the_column_says():
    translate = np.array([7, 8, 9]).__getitem__
    column, _ = mapped([("u1", [0, 2, 1], 0), ("u2", [2], 1)], translate)
    assert column.tolist() == [7, 9, 8, 9]
    assert column[1] == 9
    assert column[-2:].tolist() == [8, 9]
    assert column[np.array([2])].tolist() == [8]
    assert column.dtype == np.int64


def test_the_pointers_of_lists_are_sums():
    data, parts = parts_of([("u1", [0], 0), ("u1", [200, 200], 0), ("u1", [3], 1)])
    pointers = ListPointers(data, parts, np.int64)
    assert pointers.tolist() == [0, 200, 400, 403]
    assert pointers[1:3].tolist() == [200, 400]
    assert pointers[-1] == 403


@pytest.mark.parametrize(
    ("spans", "rows"),
    [
        ([(0, 0, 10), (20, 10, 10)], [0, 9, -1, -1, 10, 19, -1, -1]),
        ([(0, 0, 10), (10, 10, 10)], [0, 9, 10, 19, -1, -1, -1, -1]),
        ([], [-1] * 8),
    ],
)
def test_rows_of_lost_chunks_count_as_none(spans, rows):
    recorded = np.array([0, 9, 10, 19, 20, 29, 30, 0xFFFFFFFF], np.uint32)
    assert rows_of_reading(spans)(recorded).tolist() == rows


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "large.msgpack"
    make_trace(path, OPS)
    return path


@pytest.mark.slow
def test_the_first_that_waited_are_those_that_name_it(large):
    trace = Trace.open(large)
    waited = defaultdict(list)
    for row in range(OPS):
        for dep in trace.deps(row).tolist():
            waited[dep].append(row)
    assert waited
    for row in range(0, OPS, 7):
        assert [*trace.effects(row)] == waited[row]


@pytest.mark.slow
def test_a_step_keeps_little_of_the_logs_in_memory(large):
    session = ReplaySession(Trace.open(large))
    tracemalloc.start()
    try:
        for op in range(OPS // 2, OPS // 2 + 20):
            session.goto(op)
            session.rows(op - 20, 40)
            session.details(op)
            session.route(op)
            session.tiles(op)
            session.in_flight()
            session.stalls("sip0.cube0.pe0")
        # cycles that wait for the collector are not kept, only not yet gone
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # bytes an op; with the columns of what was asked in memory it was 270
    assert kept / OPS < 150

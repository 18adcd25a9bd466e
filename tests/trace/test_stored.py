"""Columns that stay in the mapped file: they do what arrays do, and hold none."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.perf.make_trace import make_trace
from kernbench.replay import ReplaySession
from kernbench.trace import Trace
from kernbench.trace.schema import CODES
from kernbench.trace.stored import Ends, Stored, counter

OPS = 30_000

FRAMES = st.lists(
    st.tuples(
        st.sampled_from(["u1", "u2", "u4"]),
        st.lists(st.integers(0, 200), max_size=8),
        st.integers(0, 5),
    ),
    max_size=6,
)


def stored(frames, read=None):
    """A column of frames (code, values, bytes before them), and the array that it stands for."""
    data, places, joined = bytearray(8), [], []
    for code, values, gap in frames:
        data += bytes(gap)
        places.append((len(values), CODES[code], len(data)))
        data += np.array(values, CODES[code]).tobytes()
        joined += values
    parts = [np.ndarray((n,), dtype, data, offset) for n, dtype, offset in places]
    return Stored(data, parts, np.uint32, read), np.array(joined, np.uint32)


@given(
    frames=FRAMES,
    picks=st.lists(st.integers(-40, 40)),
    ends=st.tuples(*[st.integers()] * 2),
)
def test_a_column_is_indexed_as_the_array_of_all_frames(frames, picks, ends):
    column, whole = stored(frames)
    rows = np.array([row for row in picks if -len(whole) <= row < len(whole)], np.int64)
    for at in (
        rows,
        slice(*ends),
        slice(None, None, -1),
        whole > 100,
        (rows, None),
        [],
    ):
        at = np.array(at, np.int64) if isinstance(at, list) else at
        np.testing.assert_array_equal(column[at], whole[at])
        assert column[at].dtype == whole.dtype
    assert [column[row] for row in rows.tolist()] == whole[rows].tolist()
    assert len(column) == len(whole)
    assert column.tolist() == whole.tolist()


@pytest.mark.parametrize("at", [3, -4, np.array([0, 3]), np.array([-4]), np.int64(3)])
def test_a_row_that_is_not_there_is_an_index_error(at):
    column, _ = stored([("u1", [1, 2], 3), ("u4", [3], 1)])
    with pytest.raises(IndexError):
        column[at]
    with pytest.raises(IndexError):
        stored([("u1", [1], 0)] * 40)[0][np.array([40])]


@given(frames=FRAMES)
def test_a_column_is_computed_with_as_an_array(frames):
    column, whole = stored(frames)
    np.testing.assert_array_equal(2 * column + np.ones(len(whole)), 2 * whole + 1.0)
    np.testing.assert_array_equal(column == column, np.ones(len(whole), bool))
    np.testing.assert_array_equal(np.arange(201)[column], whole)
    np.testing.assert_array_equal(np.concatenate([column, column]), np.tile(whole, 2))
    assert column.max(initial=0) == whole.max(initial=0)


def test_numbers_are_read_as_the_column_says():
    column, _ = stored(
        [("u1", [0, 2, 1], 0), ("u2", [2], 1)], np.array([7, 8, 9]).__getitem__
    )
    assert column.tolist() == [7, 9, 8, 9]
    assert (column[1], column[-2:].tolist(), column[np.array([2])].tolist()) == (
        9,
        [8, 9],
        [8],
    )


def test_the_ends_of_lists_are_sums():
    column, _ = stored([("u1", [0], 0), ("u1", [200, 200], 0), ("u1", [3], 1)])
    ends = Ends(column._data, column._parts, np.int64)
    assert (ends.tolist(), ends[1:3].tolist(), ends[-1]) == (
        [0, 200, 400, 403],
        [200, 400],
        403,
    )


def test_rows_of_lost_chunks_count_as_none():
    given = np.array([0, 9, 10, 19, 20, 29, 30, 0xFFFFFFFF], np.uint32)
    assert counter([(0, 0, 10), (20, 10, 10)])(given).tolist() == [
        0,
        9,
        -1,
        -1,
        10,
        19,
        -1,
        -1,
    ]
    assert counter([(0, 0, 10), (10, 10, 10)])(given).tolist() == [
        0,
        9,
        10,
        19,
        -1,
        -1,
        -1,
        -1,
    ]
    assert counter([])(given).tolist() == [-1] * 8


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "large.msgpack"
    make_trace(path, OPS)
    return path


def test_the_first_that_waited_are_those_that_name_it(large):
    trace = Trace.open(large)
    waited = [(dep, row) for row in range(2000) for dep in trace.deps(row).tolist()]
    assert waited
    for row in range(0, 2000, 50):
        known = sorted({later for dep, later in waited if dep == row})
        assert [later for later in trace.effects(row) if later < 2000] == known


def test_a_step_keeps_little_of_the_logs_in_memory(large):
    session = ReplaySession(Trace.open(large))
    tracemalloc.start()
    try:
        for op in range(OPS // 2, OPS // 2 + 20):
            session.goto(op)
            (
                session.rows(op - 20, 40),
                session.details(op),
                session.route(op),
                session.tiles(op),
            )
            session.in_flight(), session.stalls("sip0.cube0.pe0")
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert (
        kept / OPS < 150
    )  # bytes an op; with the columns of what was asked joined it was 270

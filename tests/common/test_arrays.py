"""What numpy does too slowly, beside numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common import arrays
from kernbench.common.arrays import (
    counted,
    distinct,
    distinct_rows,
    numbered,
    repeated,
    running_count,
)


@pytest.mark.slow
@given(st.lists(st.integers(-(1 << 62), 1 << 62)))
def test_distinct_values_are_those_of_unique(values):
    array = np.array(values, np.int64)
    assert distinct(array).tolist() == np.unique(array).tolist()


def test_the_given_array_stays_as_it_is():
    array = np.array([3, 1, 3])
    assert distinct(array).tolist() == [1, 3]
    assert array.tolist() == [3, 1, 3]


EXTREMES = st.sampled_from([-(1 << 62), -1, 0, 1, 1 << 20, 1 << 62])


@pytest.mark.slow
@given(st.lists(st.tuples(EXTREMES, st.integers(0, 3), EXTREMES), min_size=1))
def test_distinct_rows_are_those_of_unique(rows):
    table = np.array(rows, np.int64)
    found, place = distinct_rows(list(table.T))
    assert found.tolist() == np.unique(table, axis=0).tolist()
    assert (found[place] == table).all()


def test_of_no_rows_none_is_distinct():
    found, place = distinct_rows([np.empty(0, np.int64)] * 2)
    assert found.shape == (0, 2)
    assert place.tolist() == []


# -- as numpy does it, which keeps other threads waiting -----------------------------


@given(
    st.lists(st.integers(-40, 40) | st.integers(-(1 << 63), (1 << 63) - 1)),
)
def test_the_numbers_of_values_are_their_places_in_unique(values):
    values = np.array(values, np.int64)
    for found, expected in zip(
        numbered(values), np.unique(values, return_inverse=True), strict=True
    ):
        assert found.tolist() == expected.tolist()
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["i1", "u1", "u2", "i4", "u4", "u8", "f8", "U3"])
def test_values_of_any_dtype_have_numbers(dtype):
    values = np.array([7, 3, 7, 100, 0, 3]).astype(dtype)
    used, which = numbered(values)
    expected, places = np.unique(values, return_inverse=True)
    assert (used.tolist(), which.tolist()) == (expected.tolist(), places.tolist())
    assert used.dtype == expected.dtype


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 9))
def test_values_are_counted_some_at_a_time(values, at_once):
    values = np.array(values, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_ROWS_AT_ONCE", at_once)
        found = counted(values, 31)
    assert found.tolist() == np.bincount(values, minlength=31).tolist()


@given(st.lists(st.integers(0, 4), max_size=30))
def test_values_are_repeated_as_often_as_is_said(counts):
    counts = np.array(counts, np.int64)
    values = np.arange(len(counts), dtype=np.int16) * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_ROWS_AT_ONCE", 0)
        found = repeated(values, counts)
    assert found.tolist() == np.repeat(values, counts).tolist()
    assert found.dtype == values.dtype


@given(st.lists(st.booleans()))
def test_a_running_count_is_the_running_sum(flags):
    flags = np.array(flags, np.bool_)
    assert running_count(flags).tolist() == np.cumsum(flags).tolist()


def test_addresses_of_64_bits_have_numbers():
    values = np.array([(1 << 64) - 1, (1 << 64) - 3, (1 << 64) - 1], np.uint64)
    used, which = numbered(values)
    assert (used.tolist(), which.tolist()) == ([2**64 - 3, 2**64 - 1], [1, 0, 1])


def test_a_negative_value_is_not_counted_from_behind():
    with pytest.raises(ValueError, match="negative"):
        counted(np.array([2, -1]), 4)

"""What numpy does too slowly, beside numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.arrays import distinct, distinct_rows


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

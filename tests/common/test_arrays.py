"""What numpy does too slowly, beside numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.arrays import distinct


@pytest.mark.slow
@given(st.lists(st.integers(-(1 << 62), 1 << 62)))
def test_distinct_values_are_those_of_unique(values):
    array = np.array(values, np.int64)
    assert distinct(array).tolist() == np.unique(array).tolist()


def test_the_given_array_stays_as_it_is():
    array = np.array([3, 1, 3])
    assert distinct(array).tolist() == [1, 3]
    assert array.tolist() == [3, 1, 3]

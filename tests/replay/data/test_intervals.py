"""The index of byte ranges finds exactly those that overlap."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from kernbench.replay.data.intervals import IntervalIndex, level_bytes, size_levels
from kernbench.sim_engine.access_columns import AccessColumns

SPACES = ("hbm", "tcm")
RANGE = st.tuples(st.integers(0, 1), st.integers(0, 300), st.integers(1, 300))


def index_of(ranges):
    space, addr, nbytes = np.array(ranges, np.int64).reshape(-1, 3).T
    number = np.arange(len(ranges))
    return IntervalIndex(AccessColumns(number, number, space, addr, nbytes, SPACES))


@given(ranges=st.lists(RANGE), asked=RANGE)
def test_the_index_finds_exactly_the_ranges_that_overlap(ranges, asked):
    space, low, size = asked
    expected = []
    for number, (where, addr, nbytes) in enumerate(ranges):
        overlaps = addr < low + size and low < addr + nbytes
        if where == space and overlaps:
            expected.append(number)
    found = index_of(ranges).overlapping(SPACES[space], low, size)
    assert found.tolist() == expected


def test_a_space_without_ranges_has_none_that_overlap():
    assert index_of([(0, 0, 8)]).overlapping("sram", 0, 8).tolist() == []


@pytest.mark.parametrize(
    ("nbytes", "level"), [(1, 0), (2, 1), (16, 1), (17, 2), (256, 2), (257, 3)]
)
def test_a_level_is_the_lowest_whose_size_is_not_exceeded(nbytes, level):
    assert size_levels(np.array([nbytes])).tolist() == [level]
    assert nbytes <= level_bytes(level)

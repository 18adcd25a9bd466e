"""Rows of bytes: common/rows.py, against lists of every single byte."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_rows import bytes_of

from kernbench.common.rows import Rows

AXES = st.tuples(st.integers(1, 6), st.integers(1, 900))
DESCRIPTORS = st.builds(
    lambda addr, axes, row_bytes: Rows.of(addr, tuple(axes), row_bytes),
    st.integers(0, 5000),
    st.lists(AXES, max_size=3),
    st.integers(1, 700),
)


@given(st.integers(0, 99), st.lists(AXES, max_size=3), st.integers(1, 90))
def test_rows_along_axes_are_the_bytes_of_nested_loops(addr, axes, row_bytes):
    expected = []
    for index in product(*(range(count) for count, _ in axes)):
        start = addr + sum(i * p for i, (_, p) in zip(index, axes, strict=True))
        expected += range(start, start + row_bytes)
    rows = Rows.of(addr, tuple(axes), row_bytes)
    assert bytes_of(rows) == expected
    assert rows.nbytes == len(expected)
    assert rows.span == max(expected) + 1 - addr
    assert [*rows.starts()] == bytes_of(rows)[:: rows.row_bytes]


def test_rows_that_touch_are_one_row():
    assert Rows.of(64, ((3, 8),), 8) == Rows.one(64, 24)
    assert Rows.of(0, ((2, 24), (3, 8)), 8) == Rows.one(0, 48)
    assert Rows.of(0, ((2, 48), (3, 16)), 8) == Rows(0, 6, 8, 16)
    assert Rows.of(0, ((1, 5), (2, 16), (1, 0)), 8) == Rows(0, 2, 8, 16)


def test_more_than_four_dimensions_are_refused():
    axes = ((2, 1000), (2, 300), (2, 100), (2, 30))
    with pytest.raises(ValueError, match="5 dimensions, at most 4"):
        Rows.of(0, axes, 8)


@given(DESCRIPTORS, st.integers(0, 3000))
def test_pieces_have_every_byte_once_and_in_order(rows, size):
    pieces, sizes = rows.cut(size)
    assert [byte for piece in pieces for byte in bytes_of(piece)] == bytes_of(rows)
    assert list(sizes) == [len(bytes_of(piece)) for piece in pieces]
    assert all(nbytes <= (size or rows.nbytes) for nbytes in sizes)


def test_a_piece_is_whole_planes_or_whole_rows_or_a_part_of_one():
    planes = Rows(0, 4, 100, 128, ((6, 1024),))
    assert planes.cut(900)[0] == [
        Rows(0, 4, 100, 128, ((2, 1024),)),
        Rows(2048, 4, 100, 128, ((2, 1024),)),
        Rows(4096, 4, 100, 128, ((2, 1024),)),
    ]
    assert Rows(0, 5, 100, 128).cut(250)[0] == [
        Rows(0, 2, 100, 128),
        Rows(256, 2, 100, 128),
        Rows.one(512, 100),
    ]
    assert Rows(0, 2, 100, 128).cut(64)[0] == [
        Rows.one(0, 64),
        Rows.one(64, 36),
        Rows.one(128, 64),
        Rows.one(192, 36),
    ]


@given(DESCRIPTORS)
def test_rows_of_which_two_share_a_byte_overlap(rows):
    if max(Counter(bytes_of(rows)).values()) > 1:
        assert rows.overlap()


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 9))
def test_a_matrix_and_its_columns_do_not_overlap(rows, gap, row_bytes):
    assert not Rows.of(0, ((rows, row_bytes + gap),), row_bytes).overlap()

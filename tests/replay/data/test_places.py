"""How a user names bytes: tensors with indices, or addresses."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from replay_logs import PE0, PE1, Log, host_write

from kernbench.errors import UsageError
from kernbench.sim_engine.event_log import Shard

SHAPE = (6, 5, 4)


@pytest.fixture(scope="module")
def places(tmp_path_factory, one_cube):
    """x: two row-wise shards, each on two PEs, and a handle of four axes."""
    log = Log(tmp_path_factory.mktemp("places") / "t", one_cube)
    for i, (addr, origin) in enumerate([(0, 0), (0x1000, 3), (0x2000, 0), (0x3000, 3)]):
        at = ("hbm", addr, 1 << 52, 240, (PE0, PE1)[i // 2])
        log.writer.alloc(Shard("x", "f32", *at, (origin, 0, 0), (3, 5, 4), 0, i))
    deep = ("tcm", 0, 0, 240, PE0, (0,) * 4, (2, 3, 2, 5), 0)
    log.writer.alloc(Shard("h0.1", "f32", *deep))
    log.op(host_write(), 0, 10)
    return log.session().index.places


def bytes_of(places, text):
    return [
        (s, b)
        for s, addr, n in places.place(text).ranges
        for b in range(addr, addr + n)
    ]


@settings(max_examples=60, deadline=None)
@given(
    box=st.tuples(
        *(
            st.tuples(st.integers(0, n - 1), st.integers(1, n)).filter(
                lambda p: p[0] < p[1]
            )
            for n in SHAPE
        )
    )
)
def test_a_slice_is_the_bytes_of_its_elements_in_the_first_copies(places, box):
    expected = set()
    for i, j, k in np.ndindex(*SHAPE):
        if all(a <= x < b for x, (a, b) in zip((i, j, k), box, strict=True)):
            start = (0, 0x1000)[i // 3] + 4 * ((i % 3) * 20 + j * 4 + k)
            expected |= {("hbm", b) for b in range(start, start + 4)}
    text = ", ".join(f"{a}:{b}" for a, b in box)
    found = bytes_of(places, f"x[{text}]")
    assert len(found) == len(expected)
    assert set(found) == expected


def test_an_element_is_contiguous_and_of_its_dtype(places):
    place = places.place("x[4, 2, -1]")
    assert (place.tensor, place.dtype, place.index) == (
        "x",
        "f32",
        ((4, 5), (2, 3), (3, 4)),
    )
    assert place.ranges == (("hbm", 0x1000 + 4 * (20 + 8 + 3), 4),)


def test_a_name_alone_is_the_whole_tensor_a_range_a_shard(places):
    assert places.place("x").ranges == (("hbm", 0, 240), ("hbm", 0x1000, 240))


def test_a_copy_is_named_by_its_owner(places):
    assert places.place(f"x@{PE1}[0]").ranges == (("hbm", 0x2000, 80),)


def test_axes_that_a_trace_does_not_keep_are_folded_into_the_last_that_it_does(
    places,
):
    assert places.place(f"h0.1@{PE0}[1, 2, 9]").ranges == (("tcm", 236, 4),)
    (handle,) = places.first_copies(f"h0.1@{PE0}")
    assert handle.shape == (2, 3, 10)


def test_bytes_are_named_by_space_address_and_count(places):
    assert places.place("hbm 0x40:64").ranges == (("hbm", 64, 64),)
    assert places.place("tcm 7").ranges == (("tcm", 7, 1),)


def test_bytes_get_the_name_of_the_allocation_that_holds_them(places):
    (_, addr, n), _ = places.place("x[2:4, 0:2, 1]").ranges[:2]
    assert places.named("hbm", np.arange(addr, addr + n), 0) == "x[2, 0, 1]"
    assert places.named("hbm", np.arange(0x1000, 0x1010), 0) == "x[3, 0, 0:4]"
    assert places.named("hbm", np.arange(0x8000, 0x8004), 0) == "hbm 0x8000:4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y[3]", "no tensor 'y' in this trace; it has: x"),
        ("x[6]", r"x\[6\]: no index of shape \[6, 5, 4\]"),
        ("x[0, 0, 0, 0]", "no index of shape"),
        ("x[2:1]", "no index of shape"),
        ("x[a]", "no index of shape"),
        ("x[]", "no index of shape"),
        ("x[0", "is no place; give c, c"),
        ("hbn 0x40", "this trace's spaces: hbm, tcm"),
        ("hbm 0x40:0", "give SPACE ADDR:BYTES"),
        (f"hbm {1 << 70}:4", "give SPACE ADDR:BYTES"),
        (f"x@{PE0}x[0]", "no tensor"),
    ],
)
def test_what_is_not_there_is_refused(places, text, message):
    with pytest.raises(UsageError, match=message):
        places.place(text)

"""How a user names bytes: tensors with indices, or addresses."""

import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from replay_logs import PE0, PE1, Log, host_write

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace

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


def test_of_four_axes_those_between_the_first_and_the_last_are_one(places):
    # Element [1, 2, 1, 4] of (2, 3, 2, 5) is the 60th and last of f32.
    assert places.place(f"h0.1@{PE0}[1, 5, 4]").ranges == (("tcm", 236, 4),)
    (handle,) = places.first_copies(f"h0.1@{PE0}")
    assert handle.shape == (2, 6, 5)


def test_bytes_are_named_by_space_address_and_count(places):
    assert places.place("hbm 0x40:64").ranges == (("hbm", 64, 64),)
    assert places.place("tcm 7").ranges == (("tcm", 7, 1),)


def test_bytes_get_the_name_of_the_allocation_that_holds_them(places):
    def name(addr, n):
        return places.named("hbm", np.arange(addr, addr + n), 0).text

    (_, addr, n), _ = places.place("x[2:4, 0:2, 1]").ranges[:2]
    assert name(addr, n) == "x[2, 0, 1]"
    assert name(0x1000, 16) == "x[3, 0, 0:4]"
    assert name(0x8000, 4) == "hbm 0x8000:4"


def test_bytes_of_another_copy_than_the_first_are_named_by_its_owner(places):
    named = places.named("hbm", np.arange(0x2000, 0x2010), 0)
    assert named.text == f"x@{PE1}[0, 0, 0:4]"
    assert places.place(named.text).ranges == (("hbm", 0x2000, 16),)


def test_the_box_that_names_elements_may_have_more_than_they_are(places):
    first_and_last = np.array([0, 1, 2, 3, 12, 13, 14, 15])
    assert places.named("hbm", first_and_last, 0) == ("x[0, 0, 0:4]", 4)


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


# -- scratch names, by what has them at an op --

TWO_LAUNCHES = """
from kernbench.benches import bench

def first(x_ptr, y_ptr, tl):
    x = tl.load(x_ptr, (8,), "f32")
    tl.store(y_ptr, x + 1.0)

def second(x_ptr, y_ptr, tl):
    x = tl.load(x_ptr, (4, 4), "f32")
    with tl.scope():
        tl.store(y_ptr, x * 2.0)
    tl.store(y_ptr, x - 3.0)

@bench(name="two", description="two launches that use the same scratch")
def run(torch):
    x = torch.tensor(torch.rng.standard_normal(16).astype("f4"), name="x")
    y = torch.empty((16,), "f32", name="y")
    torch.launch("first", first, x, y)
    torch.launch("second", second, x, y)
"""
OWNER = "sip0.cube0.pe0.pe_cpu"


@pytest.fixture(scope="module")
def two_launches(tmp_path_factory):
    """0 host_write; 1 load h0.1, 2 add h0.2, 3 store; 4 load h1.1, 5 mul h1.2, 6 store,
    7 sub h1.3 where h1.2 was, 8 store.
    """
    folder = tmp_path_factory.mktemp("launches")
    (folder / "two.py").write_text(TWO_LAUNCHES)
    run_bench(str(folder / "two.py"), trace=folder / "t")
    return ReplaySession(Trace.open(folder / "t"))


def test_a_scratch_name_is_what_has_it_at_the_op(two_launches):
    x = two_launches.tensor("x", len(two_launches) - 1).values
    assert (two_launches.tensor(f"h0.1@{OWNER}", 2).values == x[:8]).all()
    assert (two_launches.tensor(f"h0.2@{OWNER}", 3).values == x[:8] + 1).all()
    doubled = two_launches.tensor(f"h1.2@{OWNER}", 6).values
    assert (doubled.ravel() == 2 * x).all()
    less = two_launches.tensor(f"h1.3@{OWNER}", 8).values
    assert (less.ravel() == x - 3).all()


@pytest.mark.parametrize(
    ("handle", "op", "why"),
    [
        ("h0.1", 0, "h0.1@{0} is not made yet at op 0; ask at op 1"),
        ("h0.1", 4, "was released at op 4, and at op 4 its bytes are h1.1@{0}"),
        ("h0.2", 8, "was released at op 5, and at op 8 its bytes are h1.2@{0}; ask"),
        ("h1.2", 8, "was released at op 7, and at op 8 its bytes are h1.3@{0}; ask"),
    ],
)
def test_a_scratch_name_outside_of_its_life_says_what_the_bytes_are(
    two_launches, handle, op, why
):
    two_launches.goto(op)
    place = f"{handle}@{OWNER}"
    for line in (f"memory {place}", f"who-wrote {place}", f"blame {place}[0]"):
        with pytest.raises(UsageError, match=re.escape(why.format(OWNER))):
            two_launches.run_line(line)


def test_the_history_of_a_scratch_name_is_that_of_its_life(two_launches):
    def ops(place):
        return [touch.op.op for touch in two_launches.history_of(place).rows]

    assert ops(f"h0.1@{OWNER}") == [1, 2]
    assert ops(f"h1.2@{OWNER}[0,0]") == [5, 6]
    assert ops(f"h1.3@{OWNER}") == [7, 8]


def test_a_watch_on_a_scratch_name_stops_in_its_life_alone(two_launches):
    stop = two_launches.watch_place(f"h1.2@{OWNER}", "rw")
    assert stop.at.tolist() == [5, 6]


@pytest.mark.slow
def test_holders_of_many_addresses_are_those_of_each(tmp_path):
    """Scratch memory is used again: the youngest allocation by an op has an address."""
    ops = 20
    places = 64
    path = tmp_path / "t"
    run_bench("flash_attention", params={"pes": 2}, trace=path)
    index = ReplaySession(Trace.open(path)).index
    log = index.history.allocs
    rng = np.random.default_rng(5)
    held = 0
    for op in rng.integers(0, len(index.trace.ops), ops).tolist():
        row = int(rng.integers(len(log.addr)))
        space = log.spaces[log.space[row]]
        start = int(log.addr[row])
        addrs = np.unique(start + rng.integers(0, 3 * int(log.nbytes[row]), places))
        each = [index.places.alloc_at(space, addr, op) for addr in addrs.tolist()]
        assert index.places.allocs_of(space, addrs, op).tolist() == each
        held += np.count_nonzero(np.array(each) >= 0)
    assert held > 64

import hypothesis.strategies as st
from hypothesis import given

from kernbench.sim_engine.pending import PendingRanges


def test_one_pending_byte_is_enough():
    pending = PendingRanges()
    pending.mark("hbm", 100, 1, "dot")
    assert pending.find("hbm", 0, 101) == "dot"
    assert pending.find("hbm", 0, 100) is None
    assert pending.find("hbm", 101, 50) is None
    assert pending.find("tcm", 100, 1) is None


def test_the_latest_writer_is_named_and_the_older_keeps_the_rest():
    pending = PendingRanges()
    pending.mark("hbm", 0, 30, "first")
    pending.mark("hbm", 10, 10, "second")
    found = [pending.find("hbm", addr, 10) for addr in (0, 10, 20)]
    assert found == ["first", "second", "first"]


def test_a_ready_store_in_the_middle_splits_a_range():
    pending = PendingRanges()
    pending.mark("hbm", 0, 30, "dot")
    pending.clear("hbm", 10, 10)
    found = [pending.find("hbm", addr, 10) for addr in (0, 10, 20)]
    assert found == ["dot", None, "dot"]


def test_no_bytes_are_never_pending():
    pending = PendingRanges()
    pending.mark("hbm", 8, 0, "dot")
    assert pending.find("hbm", 0, 100) is None
    pending.mark("hbm", 8, 8, "dot")
    assert pending.find("hbm", 10, 0) is None
    pending.clear("hbm", 10, 0)
    assert pending.find("hbm", 10, 1) == "dot"


RANGE = st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 12))


@given(st.lists(RANGE, max_size=25), st.integers(0, 50), st.integers(0, 20))
def test_ranges_behave_as_a_dict_of_bytes(steps, addr, nbytes):
    pending = PendingRanges()
    model = {}
    for number, (mark, low, count) in enumerate(steps):
        for i in range(low, low + count):
            model.pop(i, None)
            if mark:
                model[i] = number
        if mark:
            pending.mark("hbm", low, count, number)
        else:
            pending.clear("hbm", low, count)
    expected = next((model[i] for i in range(addr, addr + nbytes) if i in model), None)
    assert pending.find("hbm", addr, nbytes) == expected


def test_all_ranges_are_listed_by_space_and_address():
    pending = PendingRanges()
    pending.mark("tcm", 8, 4, "dot")
    pending.mark("hbm", 32, 4, "exp")
    pending.mark("hbm", 0, 8, "sum")
    pending.clear("hbm", 2, 2)
    assert pending.ranges() == [
        ("hbm", 0, 2),
        ("hbm", 4, 4),
        ("hbm", 32, 4),
        ("tcm", 8, 4),
    ]

"""Memory at an op, in both directions, against a plain forward execution."""

import random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from pace import for_all
from small_traces import contents, counting, double, executed, fill, written_trace

from kernbench.common.progress import Cancelled
from kernbench.errors import MemoryStoreError
from kernbench.replay.data.history import History
from kernbench.replay.data.write_counts import WriteCounts
from kernbench.sim_engine.plans import perform
from kernbench.trace import Trace


@pytest.fixture
def ran(monkeypatch):
    """How many ops each call into numpy has executed."""
    counts = []

    def counted(alike, *args, **options):
        counts.append(len(alike))
        return perform(alike, *args, **options)

    monkeypatch.setattr("kernbench.sim_engine.plans.perform", counted)
    return counts


def first_value(history, op, addr):
    """The f32 at an address of tcm at an op."""
    return history.at(op).view("tcm", addr, (1,), "f32")[0]


# -- what memory holds --


def test_any_walk_gives_the_memory_of_a_plain_execution(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    walk = random.Random(5).sample(range(-1, len(trace.ops)), 12)
    for op in [*walk, len(trace.ops) - 1, -1]:
        assert contents(history.at(op)) == contents(executed(trace, op))


def test_memory_at_an_op_is_not_moved_by_later_steps(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    before = history.at(2)
    kept = contents(before)
    contents(history.at(len(trace.ops) - 1))
    assert contents(before) == kept == contents(executed(trace, 2))


def test_a_read_finds_the_newest_bytes_of_several_writes(tmp_path):
    commands = [fill(0, [1, 1, 1, 1]), fill(4, [2, 2]), fill(8, [3]), double(0, 0, 2)]
    history = History(written_trace(tmp_path / "t", commands))
    seen = [history.at(op).view("tcm", 0, (4,), "f32").tolist() for op in range(4)]
    assert seen == [[1, 1, 1, 1], [1, 2, 2, 1], [1, 2, 3, 1], [2, 4, 3, 1]]


def test_a_read_of_bytes_never_written_names_the_nearest(tmp_path):
    history = History(written_trace(tmp_path / "t", [fill(0, [1]), fill(64, [2])]))
    with pytest.raises(MemoryStoreError, match="byte 0x4 was never written"):
        history.at(1).view("tcm", 0, (4,), "f32")


def test_a_read_says_which_bytes_were_ever_written(tmp_path):
    history = History(written_trace(tmp_path / "t", [fill(4, [1])]))
    contents = history.read(1, "tcm", 0, 12)
    assert contents.written.tolist() == [0] * 4 + [1] * 4 + [0] * 4
    assert history.unwritten(contents) == 8


def test_a_range_of_no_bytes_holds_nothing(tmp_path):
    history = History(written_trace(tmp_path / "t", [fill(0, [1, 2])]))
    assert history.read(1, "tcm", 4, 0).values.tolist() == []


def test_bytes_never_written_are_ff_in_a_run_that_only_warned_of_them(tmp_path):
    trace = written_trace(tmp_path / "t", [double(0, 16, 1)], {"warn_memory": True})
    history = History(trace)
    assert history.at(0).view("tcm", 8, (4,), "u8").tolist() == [255] * 4
    assert np.isnan(first_value(history, 0, 16))
    assert history.unwritten(history.read(1, "tcm", 8, 4)) == 0


def test_an_op_that_cannot_be_executed_is_named(tmp_path):
    history = History(written_trace(tmp_path / "t", [fill(0, [1]), double(32, 64, 1)]))
    assert first_value(history, 0, 0) == 1
    said = r"op 1 \(add on pe0\).*0x20 was never written"
    with pytest.raises(MemoryStoreError, match=said):
        first_value(history, 1, 64)


# -- accesses, writers --


def test_accesses_are_those_of_the_executed_ops_in_order(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    touched = history.touched
    writes = np.flatnonzero(touched.mode)
    ops = touched.row[writes].tolist()
    names = [trace.ops[op].op_name for op in ops]
    assert names == ["host_write"] * 4 + ["composite_gemm"] * 2
    for op, addr in zip(ops, touched.addr[writes].tolist(), strict=True):
        assert trace.ops[op].params["dst_addr"] == addr
        assert history.executed(op) == history.executed(op - 1) + 1


@for_all(
    writes=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=20),
    asked=st.sets(st.integers(0, 80), min_size=1),
    op=st.integers(-1, 20),
    fast=8,
    whole=100,
)
def test_every_byte_has_its_last_writer(tmp_path_factory, writes, asked, op):
    commands = [fill(4 * at, [0] * n) for at, n in writes] or [fill(4096, [0])]
    trace = written_trace(tmp_path_factory.mktemp("h") / "t", commands)
    last = {}
    for writer, (at, n) in enumerate(writes[: op + 1]):
        last |= dict.fromkeys(range(4 * at, 4 * (at + n)), writer)
    expected = {byte: last.get(byte, -1) for byte in asked}
    found = History(trace).last_writers("tcm", np.array(sorted(asked)), op)
    assert [one.op for one in found] == sorted(set(expected.values()), reverse=True)
    assert {b: one.op for one in found for b in one.addresses.tolist()} == expected


@for_all(
    writes=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=20),
    places=st.lists(st.tuples(st.integers(0, 80), st.integers(1, 9)), max_size=8),
    fast=8,
    whole=100,
)
def test_writes_into_many_places_are_counted_at_once(tmp_path_factory, writes, places):
    commands = [fill(4 * at, [0] * n) for at, n in writes] or [fill(4096, [0])]
    trace = written_trace(tmp_path_factory.mktemp("h") / "t", commands)
    ranges = [("tcm", at, n) for at, n in places]
    counts = WriteCounts(History(trace), ranges)
    for steps in range(len(writes) + 1):
        expected = []
        for _, addr, nbytes in ranges:
            made = writes[:steps]
            into = [4 * at < addr + nbytes and 4 * (at + n) > addr for at, n in made]
            expected.append(sum(into))
        assert counts.after(steps).tolist() == expected


def test_writes_before_a_step_are_counted(tmp_path):
    commands = [fill(0, [1, 2]), fill(8, [3]), fill(0, [4])]
    history = History(written_trace(tmp_path / "t", commands))
    counts = [history.writes_before(steps, "tcm", 0, 4) for steps in range(4)]
    assert counts == [0, 1, 1, 2]


# -- how it is executed --


@pytest.mark.parametrize("progress", [None, lambda done: None])
def test_ops_that_are_alike_run_in_few_calls_and_any_of_them_can_be_named(
    tmp_path, ran, progress
):
    adds = [double(0, 4 * i, 1) for i in range(1, 40)]
    commands = [fill(0, [1]), *adds, double(4000, 0, 1)]
    history = History(written_trace(tmp_path / "t", commands))
    if progress is not None:
        history.reach(40, progress)
    assert history.at(39).view("tcm", 4, (39,), "f32").tolist() == [2] * 39
    assert ran == [1, 39]
    with pytest.raises(MemoryStoreError, match=r"op 40 \(add on pe0\)"):
        first_value(history, 40, 0)


@pytest.mark.slow
def test_what_was_dropped_for_ten_times_the_budget_is_executed_again(tmp_path):
    n, count = 256, 400
    budget = 4 * n * count // 10
    trace = written_trace(tmp_path / "t", counting(n, count))
    history = History(trace, budget)
    draw = random.Random(3)
    for i in [count, *(draw.randrange(count + 1) for _ in range(60)), 0, count]:
        latest = history.at(i + 1).view("tcm", 4 * n * (i % 3), (n,), "f32")
        assert set(latest.tolist()) == {i}
        assert history.kept_bytes() <= budget


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    ops=st.lists(
        st.tuples(*[st.integers(0, 12)] * 2, st.integers(1, 8)), min_size=1, max_size=25
    ),
    budget=st.integers(0, 400),
    walk=st.lists(st.integers(-1, 25), max_size=6),
)
def test_any_budget_gives_the_memory_of_a_plain_execution(
    tmp_path_factory, ops, budget, walk
):
    adds = [double(4 * src, 4 * dst, n) for src, dst, n in ops]
    commands = [fill(0, np.arange(20.0)), *adds]
    trace = written_trace(tmp_path_factory.mktemp("h") / "t", commands)
    history = History(trace, budget)
    for op in [min(op, len(commands) - 1) for op in walk]:
        expected = executed(trace, op)
        assert contents(history.at(op)) == contents(expected)
        if op >= 0:
            seen = history.at(op).view("tcm", 0, (80,), "u8")
            assert seen.tolist() == expected.view("tcm", 0, (80,), "u8").tolist()


@pytest.mark.slow
def test_a_jump_within_a_small_budget_executes_from_the_checkpoint_before(
    tmp_path, ran
):
    n, count = 64, 2000
    trace = written_trace(tmp_path / "t", counting(n, count))
    history = History(trace, 4 * n * count // 10)
    assert first_value(history, count + 1, 4 * n * (count % 3)) == count
    ran.clear()
    draw = random.Random(4)
    for i in [draw.randrange(count) for _ in range(20)]:
        assert first_value(history, i + 1, 4 * n * (i % 3)) == i
    assert sum(ran) <= 20 * count // 4


# -- progress --


def test_the_share_done_is_reported_and_rises(tmp_path):
    history = History(written_trace(tmp_path / "t", counting(4, 50)))
    shares = []
    history.reach(30, shares.append)
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] < 1


def test_a_question_can_be_cancelled_and_asked_again(tmp_path):
    history = History(written_trace(tmp_path / "t", counting(4, 50)))

    def cancel(done):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        history.reach(50, cancel)
    assert first_value(history, 51, 16 * (50 % 3)) == 50


def test_a_large_op_that_is_cancelled_leaves_no_trace_in_memory(tmp_path):
    n = 1 << 19  # 2 MiB: such an op runs on a thread of its own
    ops = [double(0, 0, n)] * 4
    history = History(written_trace(tmp_path / "t", [fill(0, [1] * n), *ops]))

    def cancel(done):
        if done >= 0.5:
            raise Cancelled("enough")

    for _ in range(2):
        with pytest.raises(Cancelled):
            history.reach(5, cancel)
    seen = [history.at(op).view("tcm", 0, (n,), "f32")[-1] for op in range(5)]
    assert seen == [1, 2, 4, 8, 16]

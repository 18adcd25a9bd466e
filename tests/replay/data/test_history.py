"""Memory at an op, in both directions, against a plain forward execution."""

import random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kernbench.common.dtypes import nbytes_of
from kernbench.common.messages import HostWriteCmd, Region
from kernbench.common.pe_commands import MathCmd
from kernbench.common.progress import Cancelled
from kernbench.errors import MemoryStoreError
from kernbench.replay.data.history import History
from kernbench.replay.data.intervals import IntervalIndex
from kernbench.replay.job import Job
from kernbench.sim_engine.accesses import AccessColumns
from kernbench.sim_engine.data_executor import execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger
from kernbench.sim_engine.plans import perform
from kernbench.trace import Trace, TraceWriter


def contents(store):
    return {
        (space, addr): (array.dtype.str, array.shape, array.tobytes())
        for space in store.spaces()
        for addr, array in store.extents(space)
    }


def plain(trace, op, store=None):
    store = MemoryStore() if store is None else store
    for i in range(op + 1):
        record = trace.ops[i]
        if record.op_kind != "unknown":
            execute(record, store)
    return contents(store)


def region(addr, n, dtype="f32"):
    return Region("tcm", addr, (n,), dtype, nbytes_of((n,), dtype))


def written_trace(path, messages, header=None):
    """A trace of these commands, one a ns."""
    writer = TraceWriter(path)
    writer.begin(header or {}, None)
    logger = OpLogger(sink=writer)
    for t, msg in enumerate(messages):
        logger.record_start(t, "pe0", msg)
        logger.record_end(t + 0.5, "pe0", msg)
    writer.close()
    return Trace.open(path)


def fill(addr, values):
    data = np.array(values, np.float32)
    return HostWriteCmd(dst=region(addr, len(data)), data=data)


def double(src, dst, n):
    return MathCmd(
        op="add", inputs=(region(src, n), region(src, n)), out=region(dst, n)
    )


def test_any_walk_gives_the_memory_of_a_plain_execution(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    walk = random.Random(5).sample(range(-1, len(trace.ops)), 12)
    for op in [*walk, len(trace.ops) - 1, -1]:
        assert contents(history.at(op)) == plain(trace, op)


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


def test_memory_at_an_op_is_not_moved_by_later_steps(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    before = history.at(2)
    kept = contents(before)
    contents(history.at(len(trace.ops) - 1))
    assert contents(before) == kept == plain(trace, 2)


def test_a_read_finds_the_newest_bytes_of_several_versions(tmp_path):
    ops = [fill(0, [1, 1, 1, 1]), fill(4, [2, 2]), fill(8, [3]), double(0, 0, 2)]
    history = History(written_trace(tmp_path / "t", ops))
    seen = [history.at(op).view("tcm", 0, (4,), "f32").tolist() for op in range(4)]
    assert seen == [[1, 1, 1, 1], [1, 2, 2, 1], [1, 2, 3, 1], [2, 4, 3, 1]]


def test_a_read_of_bytes_never_written_names_the_nearest(tmp_path):
    history = History(written_trace(tmp_path / "t", [fill(0, [1]), fill(64, [2])]))
    with pytest.raises(MemoryStoreError, match="byte 0x4 was never written"):
        history.at(1).view("tcm", 0, (4,), "f32")


def test_an_op_that_cannot_be_executed_is_named(tmp_path):
    history = History(written_trace(tmp_path / "t", [fill(0, [1]), double(32, 64, 1)]))
    assert history.at(0).view("tcm", 0, (1,), "f32").tolist() == [1]
    with pytest.raises(
        MemoryStoreError, match=r"op 1 \(add on pe0\).*0x20 was never written"
    ):
        history.at(1).view("tcm", 64, (1,), "f32")


def test_bytes_never_written_are_ff_in_a_run_that_only_warned_of_them(tmp_path):
    trace = written_trace(tmp_path / "t", [double(0, 16, 1)], {"warn_memory": True})
    history = History(trace)
    assert history.at(0).view("tcm", 8, (4,), "u8").tolist() == [255] * 4
    assert np.isnan(history.at(0).view("tcm", 16, (1,), "f32")[0])


def counting(n, count):
    """Version i holds i everywhere and needs the one before; they take turns at three places."""
    ones, places = region(12 * n, n), [region(4 * n * i, n) for i in range(3)]
    steps = [
        MathCmd(op="add", inputs=(places[i % 3], ones), out=places[(i + 1) % 3])
        for i in range(count)
    ]
    return [fill(12 * n, [1] * n), fill(0, [0] * n), *steps]


def test_versions_of_ten_times_the_budget_are_executed_again_where_they_were_dropped(
    tmp_path,
):
    n, count = 256, 400
    budget = 4 * n * count // 10
    trace = written_trace(tmp_path / "t", counting(n, count))
    history = History(trace, budget)
    place = random.Random(3)
    for i in [count, *(place.randrange(count + 1) for _ in range(60)), 0, count]:
        latest = history.at(i + 1).view("tcm", 4 * n * (i % 3), (n,), "f32")
        assert set(latest.tolist()) == {i}
        assert history.kept_bytes() <= budget


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
    messages = [fill(0, np.arange(20.0)), *(double(4 * a, 4 * b, n) for a, b, n in ops)]
    trace = written_trace(tmp_path_factory.mktemp("h") / "t", messages)
    history = History(trace, budget)
    for op in [min(op, len(messages) - 1) for op in walk]:
        store = MemoryStore()
        assert contents(history.at(op)) == plain(trace, op, store)
        if op >= 0:
            expected = store.view("tcm", 0, (80,), "u8")
            assert (
                history.at(op).view("tcm", 0, (80,), "u8").tolist() == expected.tolist()
            )


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 300), st.integers(1, 300))
    ),
    asked=st.tuples(st.integers(0, 1), st.integers(0, 300), st.integers(1, 300)),
)
def test_the_index_finds_exactly_the_ranges_that_overlap(rows, asked):
    space, addr, nbytes = np.array(rows, np.int64).reshape(-1, 3).T
    count = np.arange(len(rows))
    ranges = IntervalIndex(
        AccessColumns(count, count, space, addr, nbytes, ("hbm", "tcm"))
    )
    s, low, n = asked
    expected = [
        i for i, (t, a, m) in enumerate(rows) if t == s and a < low + n and low < a + m
    ]
    assert ranges.overlapping(("hbm", "tcm")[s], low, n).tolist() == expected


@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=20),
    asked=st.sets(st.integers(0, 80), min_size=1),
    op=st.integers(-1, 20),
)
def test_every_byte_has_its_last_writer(tmp_path_factory, rows, asked, op):
    messages = [fill(4 * a, [0] * n) for a, n in rows] or [fill(4096, [0])]
    history = History(written_trace(tmp_path_factory.mktemp("h") / "t", messages))
    last = {}
    for i, (a, n) in enumerate(rows[: op + 1]):
        last |= dict.fromkeys(range(4 * a, 4 * (a + n)), i)
    found = history.last_writers("tcm", np.array(sorted(asked)), op)
    assert [w for w, _ in found] == sorted(
        {last.get(b, -1) for b in asked}, reverse=True
    )
    assert {b: w for w, at in found for b in at.tolist()} == {
        b: last.get(b, -1) for b in asked
    }


def test_ops_that_are_alike_run_in_few_calls_and_any_of_them_can_be_named(
    tmp_path, monkeypatch
):
    calls = []

    def counted(alike, *args):
        calls.append(len(alike))
        return perform(alike, *args)

    monkeypatch.setattr("kernbench.sim_engine.plans.perform", counted)
    adds = [double(0, 4 * i, 1) for i in range(1, 40)]
    history = History(
        written_trace(tmp_path / "t", [fill(0, [1]), *adds, double(4000, 0, 1)])
    )
    assert history.at(39).view("tcm", 4, (39,), "f32").tolist() == [2] * 39
    assert calls == [1, 39]
    with pytest.raises(MemoryStoreError, match=r"op 40 \(add on pe0\)"):
        history.at(40).view("tcm", 0, (1,), "f32")


def test_a_jump_within_a_small_budget_executes_from_the_checkpoint_before(
    tmp_path, monkeypatch
):
    n, count = 64, 2000
    history = History(
        written_trace(tmp_path / "t", counting(n, count)), 4 * n * count // 10
    )
    assert (
        history.at(count + 1).view("tcm", 4 * n * (count % 3), (1,), "f32")[0] == count
    )
    executed = []

    def counted(alike, *args):
        executed.extend(alike)
        return perform(alike, *args)

    monkeypatch.setattr("kernbench.sim_engine.plans.perform", counted)
    place = random.Random(4)
    for i in [place.randrange(count) for _ in range(20)]:
        assert history.at(i + 1).view("tcm", 4 * n * (i % 3), (1,), "f32")[0] == i
    assert len(executed) <= 20 * count // 4


def test_the_share_done_is_told_and_a_question_can_be_cancelled(tmp_path):
    history = History(written_trace(tmp_path / "t", counting(4, 50)))
    told = []
    history.reach(30, told.append)
    assert told == sorted(told)
    assert 0 <= told[0] < told[-1] < 1
    job = Job("far", lambda tell: history.reach(50, tell))
    job.cancel()
    with pytest.raises(Cancelled):
        job.run()
    assert history.at(51).view("tcm", 16 * (50 % 3), (1,), "f32")[0] == 50

"""In which order Phase 2 runs its ops, how far, and when it judges what is expected."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from pace import for_all
from phase2_logs import (
    add,
    host_write,
    load,
    math_op,
    recorded,
    region,
    unknown,
    values,
)

from kernbench.common.dtypes import dtype
from kernbench.common.pe_commands import GemmCmd
from kernbench.errors import (
    MemoryStoreError,
    TraceFormatError,
    UsageError,
    VerificationError,
)
from kernbench.sim_engine.accesses import accesses
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.verify import Expectation


def test_unknown_kinds_are_skipped_and_counted_but_tiles_are_not():
    names = ["TileToken/GEMM", "Strange", "Strange", "Other"]
    executor = DataExecutor([*(unknown(n) for n in names), host_write(0, [1])])
    assert executor.step().op_name == "host_write"
    assert executor.step() is None
    assert executor.skipped == {"Strange": 2, "Other": 1}
    assert executor.position == 5


def test_a_position_counts_skipped_records_too():
    ops = [
        unknown("TileToken/GEMM", 0),
        host_write(0, [1], 1),
        unknown("X", 2),
        host_write(0, [2], 3),
    ]
    executor = DataExecutor(ops)
    executor.run_until(3)
    assert executor.position == 3
    assert values(executor.store, 0, 1, "hbm") == [1]
    executor.run_until(3)
    executor.run_until(4)
    assert values(executor.store, 0, 1, "hbm") == [2]


@pytest.mark.parametrize("position", [0, 3])
def test_a_position_behind_or_beyond_is_refused(position):
    executor = DataExecutor([host_write(0, [1]), host_write(0, [2], 1)])
    executor.run_until(1)
    with pytest.raises(UsageError, match=f"position {position} is not within 1"):
        executor.run_until(position)


def test_in_a_tie_memory_runs_before_gemm_before_math():
    a = region("hbm", 0, (1, 1))
    out = region("tcm", 0, (1, 1))
    math_first = math_op("add", [out, out], region("tcm", 64, (1, 1)), t=1)
    gemm_next = recorded(GemmCmd(a=a, b=a, out=out, m=1, k=1, n=1), 1)
    executor = DataExecutor([math_first, gemm_next, host_write(0, [[3]], t=1)])
    executor.run()
    assert values(executor.store, 64, 1) == [18]


def test_an_op_waits_for_its_dependencies_whatever_their_start():
    early = host_write(0, [1], t=0)
    late = host_write(0, [2], t=5)
    early.dependency_ids = [1]
    executor = DataExecutor([early, late])
    assert executor.step() is late
    assert executor.step() is early
    assert values(executor.store, 0, 1, "hbm") == [1]


def test_dependencies_in_a_circle_are_an_error():
    a = host_write(0, [1])
    b = host_write(8, [1])
    a.dependency_ids = [1]
    b.dependency_ids = [0]
    with pytest.raises(VerificationError, match=r"\[0, 1\].*cycle"):
        DataExecutor([a, b]).run()


@pytest.mark.parametrize("ids", [[2], [-1]])
def test_a_dependency_outside_the_log_is_an_error(ids):
    record = host_write(0, [1])
    record.dependency_ids = ids
    with pytest.raises(VerificationError, match="does not fit"):
        DataExecutor([record, record])


def test_later_records_can_be_appended_and_depend_on_earlier_ones():
    executor = DataExecutor([host_write(0, [1, 2, 3, 4]), load(0, 0, t=1)])
    executor.run()
    later = [add(0, 0, 64, t=5), add(64, 64, 128, t=5)]
    later[0].dependency_ids = [1]
    executor.extend(later)
    executor.run()
    assert values(executor.store, 128) == [4, 8, 12, 16]
    assert executor.position == 4


def test_records_that_start_before_earlier_ones_cannot_be_appended():
    executor = DataExecutor([host_write(0, [1], t=5)])
    with pytest.raises(VerificationError, match=r"start by 5 ns"):
        executor.extend([host_write(0, [1], t=4)])
    assert executor.step() is not None
    assert executor.step() is None


def test_a_read_of_bytes_never_written_names_the_op_and_can_be_tried_again():
    executor = DataExecutor([load(64, 0)])
    with pytest.raises(
        MemoryStoreError, match=r"op 0 \(dma_read on pe0\): hbm: 16 bytes at 0x40"
    ):
        executor.step()
    assert executor.position == 0
    executor.store.write("hbm", 64, np.ones(4, np.float32))
    executor.run()
    assert values(executor.store, 0) == [1, 1, 1, 1]


def test_an_unknown_op_name_lists_the_valid_ones():
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    record = add(0, 0, 64)
    record.params["op"] = "gelu"
    with pytest.raises(UsageError, match=r"op 0 .*'gelu'; valid: exp"):
        DataExecutor([record], store).run()


@pytest.mark.parametrize(
    ("damage", "error", "why"),
    [
        ({"shape_out": (3, 3)}, VerificationError, "cannot be executed"),
        ({"input_shapes": [(4,)]}, TraceFormatError, "params of an op lack"),
    ],
)
def test_a_damaged_record_is_one_typed_error(damage, error, why):
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    record = add(0, 0, 64)
    record.params.update(damage)
    with pytest.raises(error, match=rf"op 0 \(add on pe0\).*{why}"):
        DataExecutor([record], store).run()


def test_what_an_op_of_a_users_table_raises_names_the_op():
    def broken(a, b):
        raise RuntimeError("no such unit")

    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    ops = {**NUMPY_OPS, "add": replace(NUMPY_OPS["add"], function=broken)}
    with pytest.raises(VerificationError, match=r"op 0 \(add on pe0\).*no such unit"):
        DataExecutor([add(0, 0, 64)], store, ops).run()


# -- verify


def expect(addr, array, after, **more):
    data = np.array(array, np.float32)
    return Expectation("hbm", addr, data, "f32", dtype("f32").tolerance, after, **more)


def three_writes():
    return DataExecutor([host_write(0, [i], t=i) for i in (1, 2, 3)])


def test_each_expectation_is_judged_after_its_own_ops():
    executor = three_writes()
    report = executor.verify({"last": expect(0, [3], 3), "first": expect(0, [1], 1)})
    assert report.ok
    assert [row.name for row in report.rows] == ["last", "first"]
    assert executor.position == 3


def test_an_executor_that_is_past_them_replays_on_the_initial_store():
    store = MemoryStore()
    store.write("hbm", 64, np.array([7], np.float32))
    executor = DataExecutor([host_write(0, [1]), host_write(64, [8], t=1)], store)
    executor.run()
    report = executor.verify(
        {"before": expect(64, [7], 0), "after": expect(64, [8], 2)}
    )
    assert report.ok
    assert values(store, 64, 1, "hbm") == [8]
    assert executor.position == 2


def test_wrong_and_missing_data_are_rows_that_are_not_ok():
    expected = {"wrong": expect(0, [4], 3), "missing": expect(512, [4], 3)}
    report = three_writes().verify(expected)
    assert not report.ok
    assert [row.mismatches for row in report.rows] == [1, 1]
    assert "never written" in report.rows[1].note


def test_an_expectation_beyond_the_log_is_a_row_that_is_not_ok():
    (row,) = three_writes().verify({"cut": expect(0, [3], 9)}).rows
    assert not row.ok
    assert "after 9 ops of a log of 3" in row.note


def test_nothing_expected_is_ok():
    assert three_writes().verify({}).ok


# -- against a plain interpreter

SLOTS = 6
OP = st.tuples(
    st.sampled_from(["host", "load", "add", "unknown"]),
    st.integers(0, 4),
    st.integers(0, SLOTS - 1),
    st.integers(0, SLOTS - 1),
    st.integers(0, SLOTS - 1),
    st.sets(st.integers(0, 30), max_size=2),
)


def make(number, kind, t, a, b, out):
    """A record of slots of one f32, and the same as a function of a dict."""
    if kind == "unknown":
        return unknown("X", t), lambda m: None
    if kind == "host":
        value = [float(number)]
        return host_write(4 * out, value, t), lambda m: m.update(
            {("hbm", out): value[0]}
        )
    if kind == "load":
        copy = load(4 * a, 4 * out, (1,), t)
        return copy, lambda m: m.update({("tcm", out): m["hbm", a]})
    return (
        add(4 * a, 4 * b, 4 * out, t, (1,)),
        lambda m: m.update({("tcm", out): m["tcm", a] + m["tcm", b]}),
    )


def touched(record):
    """The slots that a record reads, and the one that it writes."""
    accessed = {"r": set(), "w": set()}
    for mode, space, addr, _ in accesses(record):
        accessed[mode].add((space, addr))
    return accessed["r"], accessed["w"]


def follows(earlier, later):
    """Whether the later of two records in a log has to run after the earlier one."""
    reads, writes = touched(earlier)
    later_reads, later_writes = touched(later)
    return bool(writes & (later_reads | later_writes) or reads & later_writes)


@for_all(
    st.lists(OP, min_size=3, max_size=14),
    st.permutations(range(14)),
    st.integers(0, 14),
    st.booleans(),
    fast=40,
    whole=300,
)
def test_random_logs_run_as_by_a_plain_interpreter(ops, shuffled, stop, depend):
    made = [
        make(i, kind, t, a, b, out) for i, (kind, t, a, b, out, _) in enumerate(ops)
    ]
    rank = [r for r in shuffled if r < len(ops)]  # any order without a circle
    for i, (record, _) in enumerate(made):
        holders = {d % len(ops) for d in ops[i][5] if depend}
        record.dependency_ids = sorted(
            d for d in holders if rank.index(d) < rank.index(i)
        )
    records = [record for record, _ in made]

    def store():
        filled = MemoryStore()
        for space in ("hbm", "tcm"):
            filled.write(space, 0, np.zeros(SLOTS, np.float32))
        return filled

    order = []
    alone = DataExecutor(records, store())
    while alone.upcoming is not None:
        _, upcoming = alone.upcoming
        order.append(next(i for i, r in enumerate(records) if r is upcoming))
        alone.run_one()
    assert sorted(order) == [*range(len(ops))]
    in_log = sorted(range(len(ops)), key=lambda i: (records[i].t_start, i))
    waits = any(
        in_log.index(d) > in_log.index(i)
        for i, record in enumerate(records)
        for d in record.dependency_ids
    )
    for i, record in enumerate(records):
        assert all(order.index(d) < order.index(i) for d in record.dependency_ids)
    for at, i in enumerate(in_log):
        for j in in_log[at + 1 :]:
            if not waits and follows(records[i], records[j]):
                assert order.index(i) < order.index(j)

    def check(executor, count):
        model = {(space, i): 0.0 for space in ("hbm", "tcm") for i in range(SLOTS)}
        for i in order[:count]:
            made[i][1](model)
        for space in ("hbm", "tcm"):
            assert values(executor.store, 0, SLOTS, space) == [
                model[space, i] for i in range(SLOTS)
            ]

    check(alone, len(records))
    executor = DataExecutor(records, store())
    stop = min(stop, len(records))
    executor.run_until(stop)
    check(executor, stop)
    executor.run()
    check(executor, len(records))
    assert executor.skipped.total() == sum(r.op_kind == "unknown" for r in records)

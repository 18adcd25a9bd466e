import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kernbench.common.dtypes import dtype, nbytes_of, np_dtype
from kernbench.common.messages import HostReadCmd, HostWriteCmd, Region
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
    MathCmd,
)
from kernbench.errors import MemoryStoreError, UsageError, VerificationError
from kernbench.sim_engine.data_executor import (
    DataExecutor,
    SnapshotFinding,
    execute,
    oracle,
)
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS, NumpyOp
from kernbench.sim_engine.op_log import KIND_RANK, OpLogger, OpRecord
from kernbench.sim_engine.verify import Expectation


def region(space, addr, shape, name="f32"):
    return Region(space, addr, shape, name, nbytes_of(shape, name))


def recorded(msg, t=0.0, store=None, **params):
    logger = OpLogger(store)
    logger.record_start(t, "pe0", msg)
    logger.record_end(t + 1, "pe0", msg)
    logger.records[0].params.update(params)
    return logger.records[0]


def host_write(addr, values, t=0.0, name="f32"):
    data = np.array(values, np.float64).astype(np_dtype(name))
    return recorded(HostWriteCmd(dst=region("hbm", addr, data.shape, name), data=data), t)


def load(src, dst, shape=(4,), t=0.0):
    msg = DmaReadCmd(src=region("hbm", src, shape), dst=region("tcm", dst, shape), handle_id="h")
    return recorded(msg, t)


def math_op(op, inputs, out, t=0.0, **more):
    return recorded(MathCmd(op=op, inputs=tuple(inputs), out=out, **more), t)


def add(a, b, out, t=0.0, shape=(4,)):
    places = [region("tcm", addr, shape) for addr in (a, b, out)]
    return math_op("add", places[:2], places[2], t)


def unknown(name, t=0.0):
    return OpRecord(t, t + 1, "pe0", "unknown", name, {})


def values(store, addr, count=4, space="tcm", name="f32"):
    return store.view(space, addr, (count,), name).tolist()


def test_a_load_a_sum_and_a_store_move_real_data():
    store_msg = DmaWriteCmd(src=region("tcm", 64, (4,)), dst_addr=512, handle_id="h")
    ops = [
        host_write(0, [1, 2, 3, 4]),
        load(0, 0, t=2),
        add(0, 0, 64, t=4),
        recorded(store_msg, 6),
    ]
    executor = DataExecutor(ops)
    executor.run()
    assert values(executor.store, 512, space="hbm") == [2, 4, 6, 8]
    assert executor.position == 4
    assert executor.findings == []


def test_the_initial_store_is_used_and_not_forked():
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    executor = DataExecutor([add(0, 0, 64)], store)
    executor.run()
    assert executor.store is store
    assert values(store, 64) == [2, 2, 2, 2]


def test_a_loaded_value_outlives_the_bytes_it_came_from():
    executor = DataExecutor([host_write(0, [1] * 4), load(0, 0, t=1), host_write(0, [9] * 4, t=2)])
    executor.run()
    assert values(executor.store, 0) == [1, 1, 1, 1]


def test_a_host_read_changes_nothing_and_needs_no_bytes():
    record = recorded(HostReadCmd(src=region("hbm", 0, (4,))))
    executor = DataExecutor([record])
    assert executor.step() is record
    assert executor.store.spaces() == []


def test_copies_between_pes_are_replayed():
    logger = OpLogger()
    logger.record_copy(1, 2, "pe0", "hbm", 0, "sram", 8, (4,), "f32", 16)
    logger.record_copy(3, 4, "pe1", "sram", 8, "tcm", 0, (4,), "f32", 16, op_name="ipcq_recv")
    executor = DataExecutor([host_write(0, [1, 2, 3, 4]), *logger.records])
    executor.run()
    assert values(executor.store, 0) == [1, 2, 3, 4]


def test_a_dot_with_an_accumulator():
    store = MemoryStore()
    store.write("tcm", 0, np.array([[1, 2], [3, 4]], np.float16))
    store.write("tcm", 64, np.array([[1, 1], [1, 1]], np.float16))
    place = region("tcm", 64, (2, 2), "f16")
    a = region("tcm", 0, (2, 2), "f16")
    execute(recorded(GemmCmd(a=a, b=a, out=place, m=2, k=2, n=2, acc=place)), store)
    assert store.view("tcm", 64, (2, 2), "f16").tolist() == [[8, 11], [16, 23]]


def test_transposed_operands_are_read_as_they_are_stored():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    store = MemoryStore()
    store.write("tcm", 0, np.ascontiguousarray(a.T))
    store.write("tcm", 256, np.ascontiguousarray(b.T))
    msg = GemmCmd(
        a=region("tcm", 0, (3, 2), "f64"),
        b=region("tcm", 256, (4, 3), "f64"),
        out=region("tcm", 512, (2, 4), "f64"),
        m=2,
        k=3,
        n=4,
        transpose_a=True,
        transpose_b=True,
    )
    execute(recorded(msg), store)
    assert store.view("tcm", 512, (2, 4), "f64").tolist() == (a @ b).tolist()


def test_a_gemm_record_of_adr_0052_alone_is_f32_and_not_transposed():
    record = recorded(
        GemmCmd(
            a=region("tcm", 0, (1, 2)),
            b=region("tcm", 8, (2, 1)),
            out=region("tcm", 16, (1, 1)),
            m=1,
            k=2,
            n=1,
        )
    )
    for key in ("dtype_acc", "transpose_a", "transpose_b", "layout_a", "layout_b", "layout_out"):
        del record.params[key]
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 2, 3, 4], np.float32))
    execute(record, store)
    assert values(store, 16, 1) == [11]


def composite(epilogue, tile=(4, 4, 2)):
    places = [region("hbm", addr, (4, 4)) for addr in (0, 64, 128)]
    a, b, out = places
    return recorded(
        CompositeCmd(op="gemm", a=a, b=b, out=out, m=4, k=4, n=4, tile=tile, epilogue=epilogue)
    )


def test_a_composite_runs_whole_with_its_epilogue():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 4, (2, 4, 4)).astype(np.float32)
    bias = np.array([1, -2, 3, -4], np.float32)
    steps = (
        Epilogue("relu", "k_tile"),
        Epilogue("bias", operand=region("tcm", 0, (4,))),
        Epilogue("scale", scalar=0.5),
    )
    store = MemoryStore()
    for space, addr, data in (("hbm", 0, a), ("hbm", 64, b), ("tcm", 0, bias)):
        store.write(space, addr, data)
    execute(composite(steps), store)
    partial = [np.maximum(a[:, k : k + 2] @ b[k : k + 2], 0) for k in (0, 2)]
    expected = (sum(partial) + bias) * 0.5
    assert store.view("hbm", 128, (4, 4), "f32").tolist() == expected.tolist()


def test_scalars_stand_at_their_positions():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 2, 3, 4], np.float32))
    place, out = region("tcm", 0, (4,)), region("tcm", 64, (4,))
    execute(math_op("sub", [place], out, scalars=(10.0,), scalar_positions=(0,)), store)
    assert values(store, 64) == [9, 8, 7, 6]
    clamp = math_op("clamp", [place], out, scalars=(2.0, 3.0), scalar_positions=(1, 2))
    execute(clamp, store)
    assert values(store, 64) == [2, 2, 3, 3]


def test_an_op_without_inputs_fills_its_output():
    store = MemoryStore()
    out = region("tcm", 0, (2, 2), "bf16")
    execute(math_op("full", [], out, scalars=(1.5,), scalar_positions=(0,)), store)
    assert values(store, 0, name="bf16") == [1.5] * 4


def test_reductions_take_their_axis_from_the_record():
    store = MemoryStore()
    store.write("tcm", 0, np.arange(4, dtype=np.float32))
    place = region("tcm", 0, (2, 2))
    execute(math_op("sum", [place], region("tcm", 64, (1, 2)), axis=0, keepdims=True), store)
    assert values(store, 64, 2) == [2, 4]


def test_comparisons_give_bool():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 5], np.float32))
    out = region("tcm", 64, (2,), "bool")
    place = region("tcm", 0, (2,))
    execute(math_op("gt", [place], out, scalars=(3.0,), scalar_positions=(1,)), store)
    assert values(store, 64, 2, name="bool") == [False, True]


def test_another_table_of_ops_is_used_where_it_is_given():
    ops = NUMPY_OPS | {"add": NumpyOp(np.subtract, 2)}
    record = add(0, 0, 64)
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    executor = DataExecutor([record], store, ops)
    executor.run()
    assert values(store, 64) == [0, 0, 0, 0]
    assert oracle(record, store).tolist() == [2, 2, 2, 2], "the oracle never uses it"


def test_the_oracle_is_f64_and_never_rounded():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 2], np.float16))
    record = math_op("exp", [region("tcm", 0, (2,), "f16")], region("tcm", 64, (2,), "f16"))
    found = oracle(record, store)
    assert found.dtype == np.float64
    assert found.tolist() == np.exp([1.0, 2.0]).tolist()
    assert not store.has("tcm", 64)


def test_the_oracle_of_a_copy_is_its_source():
    assert oracle(host_write(0, [1, 2], name="bf16"), MemoryStore()).tolist() == [1, 2]


def test_an_op_without_output_has_no_oracle():
    with pytest.raises(UsageError, match="host_read has no output"):
        oracle(recorded(HostReadCmd(src=region("hbm", 0, (4,)))), MemoryStore())


# -- snapshots


def test_snapshots_are_the_operands_and_their_difference_is_a_finding():
    executor = DataExecutor([host_write(0, [1] * 4), load(0, 0, t=1), add(0, 0, 64, t=2)])
    executor._records[2].params["input_snapshots"] = [np.full(4, 5, np.float32), None]
    executor.run()
    assert values(executor.store, 64) == [6, 6, 6, 6]
    assert executor.findings == [SnapshotFinding(position=2, which=0, max_error=4.0)]


def test_a_snapshot_within_tolerance_is_no_finding():
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    record = add(0, 0, 64)
    record.params["input_snapshots"] = [np.full(4, 1 + 1e-6, np.float32)] * 2
    executor = DataExecutor([record], store)
    executor.run()
    assert executor.findings == []


def test_a_snapshot_of_bytes_that_phase_2_never_saw_is_no_finding():
    record = add(0, 0, 64)
    record.params["input_snapshots"] = [np.ones(4, np.float32)] * 2
    executor = DataExecutor([record])
    executor.run()
    assert values(executor.store, 64) == [2, 2, 2, 2]
    assert executor.findings == []


def test_nan_against_a_number_is_an_infinite_difference():
    store = MemoryStore()
    store.write("hbm", 0, np.full(4, math.nan, np.float32))
    msg = DmaWriteCmd(src=region("hbm", 0, (4,)), dst_addr=64, handle_id="h")
    executor = DataExecutor([recorded(msg, snapshot=np.ones(4, np.float32))], store)
    executor.run()
    assert executor.findings == [SnapshotFinding(0, 0, math.inf)]
    assert values(store, 64, space="hbm") == [1, 1, 1, 1]


def test_a_copy_in_flight_keeps_its_snapshot_although_the_source_moved_on():
    logger = OpLogger()
    flying = np.array([1, 2, 3, 4], np.float32)
    logger.record_copy(2, 3, "pe0", "hbm", 0, "tcm", 0, (4,), "f32", 16, flying)
    executor = DataExecutor([host_write(0, [9] * 4), *logger.records])
    executor.run()
    assert values(executor.store, 0) == [1, 2, 3, 4]
    assert [f.max_error for f in executor.findings] == [8.0]


def test_a_host_write_recorded_without_data_says_so():
    record = host_write(0, [1])
    record.params["snapshot"] = None
    with pytest.raises(VerificationError, match=r"op 0 \(host_write on pe0\).*no data"):
        DataExecutor([record]).run()


def test_a_snapshot_of_another_size_is_an_error():
    record = add(0, 0, 64)
    record.params["input_snapshots"] = [np.ones(3, np.float32)] * 2
    with pytest.raises(MemoryStoreError, match="12 bytes"):
        DataExecutor([record]).run()


# -- order, positions, errors


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
    early, late = host_write(0, [1], t=0), host_write(0, [2], t=5)
    early.dependency_ids = [1]
    executor = DataExecutor([early, late])
    assert executor.step() is late
    assert executor.step() is early
    assert values(executor.store, 0, 1, "hbm") == [1]


def test_dependencies_in_a_circle_are_an_error():
    a, b = host_write(0, [1]), host_write(8, [1])
    a.dependency_ids, b.dependency_ids = [1], [0]
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
    with pytest.raises(MemoryStoreError, match=r"op 0 \(dma_read on pe0\): hbm: 16 bytes at 0x40"):
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


@pytest.mark.parametrize("damage", [{"shape_out": (3, 3)}, {"input_shapes": [(4,)]}])
def test_a_damaged_record_is_one_typed_error(damage):
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    record = add(0, 0, 64)
    record.params.update(damage)
    with pytest.raises(VerificationError, match=r"op 0 \(add on pe0\) cannot be executed"):
        DataExecutor([record], store).run()


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
    report = executor.verify({"before": expect(64, [7], 0), "after": expect(64, [8], 2)})
    assert report.ok
    assert values(store, 64, 1, "hbm") == [8]
    assert executor.position == 2


def test_wrong_and_missing_data_are_rows_that_are_not_ok():
    expected = {"wrong": expect(0, [4], 3), "missing": expect(512, [4], 3)}
    report = three_writes().verify(expected)
    assert not report.ok
    assert [row.mismatches for row in report.rows] == [1, 0]
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
    """A record of one-element slots 4 bytes wide, and the same as a function of a dict."""
    if kind == "unknown":
        return unknown("X", t), lambda m: None
    if kind == "host":
        value = [float(number)]
        return host_write(4 * out, value, t), lambda m: m.update({("hbm", out): value[0]})
    if kind == "load":
        copy = load(4 * a, 4 * out, (1,), t)
        return copy, lambda m: m.update({("tcm", out): m["hbm", a]})
    return (
        add(4 * a, 4 * b, 4 * out, t, (1,)),
        lambda m: m.update({("tcm", out): m["tcm", a] + m["tcm", b]}),
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(OP, max_size=14), st.permutations(range(14)), st.integers(0, 14))
def test_random_logs_run_as_by_a_plain_interpreter(ops, shuffled, stop):
    made = [make(i, kind, t, a, b, out) for i, (kind, t, a, b, out, _) in enumerate(ops)]
    rank = [r for r in shuffled if r < len(ops)]  # any order without a circle
    for i, (record, _) in enumerate(made):
        holders = {d % len(ops) for d in ops[i][5]}
        record.dependency_ids = sorted(d for d in holders if rank.index(d) < rank.index(i))
    left = sorted(
        range(len(made)), key=lambda i: (made[i][0].t_start, KIND_RANK[made[i][0].op_kind], i)
    )
    order = []
    while left:
        order.append(next(i for i in left if set(made[i][0].dependency_ids) <= set(order)))
        left.remove(order[-1])

    def store():
        filled = MemoryStore()
        for space in ("hbm", "tcm"):
            filled.write(space, 0, np.zeros(SLOTS, np.float32))
        return filled

    def check(executor, count):
        model = {(space, i): 0.0 for space in ("hbm", "tcm") for i in range(SLOTS)}
        for i in order[:count]:
            made[i][1](model)
        for space in ("hbm", "tcm"):
            assert values(executor.store, 0, SLOTS, space) == [
                model[space, i] for i in range(SLOTS)
            ]

    records = [record for record, _ in made]
    executor = DataExecutor(records, store())
    stop = min(stop, len(records))
    executor.run_until(stop)
    check(executor, stop)
    executor.run()
    check(executor, len(records))
    assert executor.skipped.total() == sum(r.op_kind == "unknown" for r in records)

import math

import numpy as np
import pytest
from phase2_logs import add, host_write, load, math_op, recorded, region, values

from kernbench.common.messages import HostReadCmd
from kernbench.common.pe_commands import CompositeCmd, DmaWriteCmd, Epilogue, GemmCmd
from kernbench.errors import MemoryStoreError, VerificationError
from kernbench.sim_engine.data_executor import DataExecutor, SnapshotFinding, execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_check import reference
from kernbench.sim_engine.op_log import OpLogger


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


def test_bytes_never_written_are_read_as_the_store_fills_them():
    executor = DataExecutor([load(0, 0), add(0, 0, 64, t=1)], MemoryStore(fill=0xFF))
    executor.run()
    assert executor.store.view("tcm", 0, (16,), "u8").tolist() == [0xFF] * 16
    assert np.isnan(executor.store.view("tcm", 64, (4,), "f32")).all()


def test_a_loaded_value_outlives_the_bytes_it_came_from():
    executor = DataExecutor(
        [host_write(0, [1] * 4), load(0, 0, t=1), host_write(0, [9] * 4, t=2)]
    )
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
    logger.record_copy(
        3, 4, "pe1", "sram", 8, "tcm", 0, (4,), "f32", 16, op_name="ipcq_recv"
    )
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
    a = np.arange(6.0).reshape(2, 3)
    b = np.arange(12.0).reshape(3, 4)
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
    for key in (
        "dtype_acc",
        "transpose_a",
        "transpose_b",
        "layout_a",
        "layout_b",
        "layout_out",
    ):
        del record.params[key]
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 2, 3, 4], np.float32))
    execute(record, store)
    assert values(store, 16, 1) == [11]


def composite(epilogue, tile=(4, 4, 2)):
    places = [region("hbm", addr, (4, 4)) for addr in (0, 64, 128)]
    a, b, out = places
    return recorded(
        CompositeCmd(
            op="gemm", a=a, b=b, out=out, m=4, k=4, n=4, tile=tile, epilogue=epilogue
        )
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


@pytest.mark.parametrize(
    "name", ["epilogue_scopes", "epilogue_scalars", "epilogue_has_operand"]
)
def test_an_epilogue_of_columns_of_different_lengths_is_refused(name):
    record = composite((Epilogue("relu"), Epilogue("scale", scalar=0.5)))
    record.params[name] = record.params[name][:1]
    store = MemoryStore()
    for addr in (0, 64):
        store.write("hbm", addr, np.ones((4, 4), np.float32))
    with pytest.raises(VerificationError, match=r"epilogue: params of \[2, .*1.*\]"):
        execute(record, store)


def test_scalars_stand_at_their_positions():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 2, 3, 4], np.float32))
    place = region("tcm", 0, (4,))
    out = region("tcm", 64, (4,))
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
    execute(
        math_op("sum", [place], region("tcm", 64, (1, 2)), axis=0, keepdims=True), store
    )
    assert values(store, 64, 2) == [2, 4]


def test_comparisons_give_bool():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 5], np.float32))
    out = region("tcm", 64, (2,), "bool")
    place = region("tcm", 0, (2,))
    execute(math_op("gt", [place], out, scalars=(3.0,), scalar_positions=(1,)), store)
    assert values(store, 64, 2, name="bool") == [False, True]


def test_another_table_of_ops_is_used_where_it_is_given():
    ops = NUMPY_OPS | {"add": NUMPY_OPS["sub"]}
    record = add(0, 0, 64)
    store = MemoryStore()
    store.write("tcm", 0, np.ones(4, np.float32))
    executor = DataExecutor([record], store, ops)
    executor.run()
    assert values(store, 64) == [0, 0, 0, 0]
    assert reference(record, store).value.tolist() == [2, 2, 2, 2], (
        "the oracle never uses it"
    )


# -- snapshots


def test_snapshots_are_the_operands_and_their_difference_is_a_finding():
    added = add(0, 0, 64, t=2)
    added.params["input_snapshots"] = [np.full(4, 5, np.float32), None]
    executor = DataExecutor([host_write(0, [1] * 4), load(0, 0, t=1), added])
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

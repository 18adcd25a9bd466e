"""ADR-0052, clause by clause, as somebody writes it who has the record alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.common.messages import Region, Stage, StageType, TileToken
from kernbench.common.pe_commands import (
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
)
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger, OpRecord

PE = "sip0.cube0.pe0"


def region(space, addr, shape, dtype="f32"):
    itemsize = {"f16": 2, "f32": 4}[dtype]
    return Region(space, addr, shape, dtype, itemsize * int(np.prod(shape)))


A = region("tcm", 0, (2, 3), "f16")
B = region("tcm", 64, (3, 4), "f16")
OUT = region("tcm", 128, (2, 4))
X = region("tcm", 256, (4,))
Y = region("hbm", 512, (4,))


def recorded(msg, store=None, t_start=1.0, t_end=2.0, node=f"{PE}.pe_math"):
    logger = OpLogger(store)
    logger.record_start(t_start, node, msg)
    logger.record_end(t_end, node, msg)
    (record,) = logger.records
    return record


def store_of(*written):
    store = MemoryStore()
    for space, addr, values in written:
        store.write(space, addr, np.array(values, np.float32))
    return store


# -- first action


def test_first_action_of_a_logger_is_two_empty_buffers_and_the_store():
    store = MemoryStore()
    logger = OpLogger(store)
    assert logger._records == []
    assert logger._pending == {}
    assert logger._memory_store is store
    assert OpLogger()._memory_store is None


def test_first_action_of_a_store_is_an_empty_dict():
    assert MemoryStore()._storage == {}


# -- D1, D2


def test_d1_a_record_has_seven_fields_and_no_dependencies_by_default():
    record = OpRecord(1.0, 3.5, f"{PE}.pe_dma", "memory", "dma_read", {"nbytes": 4})
    assert (record.t_start, record.t_end) == (1.0, 3.5)
    assert record.component_id == "sip0.cube0.pe0.pe_dma"
    assert (record.op_kind, record.op_name) == ("memory", "dma_read")
    assert record.params == {"nbytes": 4}
    assert record.dependency_ids == []
    record.dependency_ids.append(1)
    assert OpRecord(0, 1, "n", "math", "exp", {}).dependency_ids == []


def test_d2_records_are_stably_sorted_by_start_whatever_order_they_ended_in():
    logger = OpLogger()
    messages = [MathCmd(op=op, inputs=(X,), out=X) for op in ("exp", "log", "abs")]
    for t_start, msg in zip((0.0, 5.0, 5.0), messages, strict=True):
        logger.record_start(t_start, "n", msg)
    for t_end, msg in zip((6.0, 7.0, 9.0), reversed(messages), strict=True):
        logger.record_end(t_end, "n", msg)
    assert [r.op_name for r in logger.records] == ["exp", "abs", "log"]
    assert [r.t_start for r in logger.records] == [0, 5, 5]
    late = MathCmd(op="neg", inputs=(X,), out=X)
    logger.record_start(2.0, "n", late)
    logger.record_end(10.0, "n", late)
    assert [r.op_name for r in logger.records] == ["exp", "neg", "abs", "log"]


# -- D3: the params of each op


def test_d3_1_dma_read():
    record = recorded(DmaReadCmd(src=Y, dst=X, handle_id="h1"))
    assert (record.op_kind, record.op_name) == ("memory", "dma_read")
    wanted = {"src_addr": 512, "nbytes": 16, "handle_id": "h1"}
    assert record.params.items() >= wanted.items()


def test_d3_1_a_dma_read_of_these_three_params_alone_changes_nothing_in_phase_2():
    params = {"src_addr": 512, "nbytes": 16, "handle_id": "h1"}
    executor = DataExecutor([OpRecord(0, 1, "n", "memory", "dma_read", params)])
    executor.run()
    assert executor.store.spaces() == []


def test_d3_2_dma_write():
    record = recorded(DmaWriteCmd(src=X, dst_addr=512, handle_id="h2"))
    assert (record.op_kind, record.op_name) == ("memory", "dma_write")
    assert record.params == {
        "src_space": "tcm",
        "src_addr": 256,
        "shape": (4,),
        "dtype": "f32",
        "dst_space": "hbm",
        "dst_addr": 512,
        "nbytes": 16,
        "handle_id": "h2",
    }


def test_d3_3_gemm():
    record = recorded(GemmCmd(a=A, b=B, out=OUT, m=2, k=3, n=4))
    assert (record.op_kind, record.op_name) == ("gemm", "gemm_f16")
    wanted = {
        "src_a_addr": 0,
        "src_b_addr": 64,
        "dst_addr": 128,
        "shape_a": (2, 3),
        "shape_b": (3, 4),
        "shape_out": (2, 4),
        "dtype_in": "f16",
        "dtype_out": "f32",
        "m": 2,
        "k": 3,
        "n": 4,
        "src_a_space": "tcm",
        "src_b_space": "tcm",
        "dst_space": "tcm",
    }
    assert record.params.items() >= wanted.items()


def test_d3_4_math():
    msg = MathCmd(op="sum", inputs=(X,), out=region("tcm", 0, ()), axis=0)
    record = recorded(msg, store_of(("tcm", 256, [1, 2, 3, 4])))
    assert (record.op_kind, record.op_name) == ("math", "sum")
    wanted = {
        "input_addrs": [256],
        "input_shapes": [(4,)],
        "input_spaces": ["tcm"],
        "input_dtypes": ["f32"],
        "dst_addr": 0,
        "dst_space": "tcm",
        "shape_out": (),
        "dtype": "f32",
        "axis": 0,
    }
    snapshots = record.params.pop("input_snapshots")
    assert record.params.items() >= wanted.items()
    assert [s.tolist() for s in snapshots] == [[1, 2, 3, 4]]


def test_d3_4_a_record_of_these_params_alone_is_executed():
    params = {
        "input_addrs": [0, 16],
        "input_shapes": [(2,), (2,)],
        "input_spaces": ["tcm", "hbm"],
        "input_dtypes": ["f32", "f32"],
        "dst_addr": 64,
        "dst_space": "tcm",
        "shape_out": (2,),
        "dtype": "f32",
        "axis": None,
        "input_snapshots": [None, None],
    }
    store = store_of(("tcm", 0, [1, 2]), ("hbm", 16, [10, 20]))
    DataExecutor([OpRecord(0, 1, "n", "math", "add", params)], store).run()
    assert store.read("tcm", 64).tolist() == [11, 22]


def test_d3_5_a_composite_gemm_of_these_params_alone_is_executed_as_a_gemm():
    params = {
        "op": "gemm",
        "out_addr": 512,
        "out_nbytes": 16,
        "src_a_addr": 0,
        "src_b_addr": 64,
        "shape_a": (2, 3),
        "shape_b": (3, 2),
        "dtype_in": "f32",
        "dtype_out": "f32",
        "src_a_space": "hbm",
        "src_b_space": "tcm",
        "dst_space": "hbm",
        "dst_addr": 512,
    }
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = a.reshape(3, 2)
    store = store_of(("hbm", 0, a), ("tcm", 64, b))
    DataExecutor([OpRecord(0, 1, "n", "gemm", "composite_gemm", params)], store).run()
    assert np.array_equal(store.read("hbm", 512), a @ b)


COPY = ("hbm", 0, "tcm", 64, (4,), "f32", 16)


def test_d3_6_ipcq_copy_is_pushed_by_record_copy():
    logger = OpLogger()
    logger.record_copy(1.0, 2.0, f"{PE}.pe_dma", *COPY, None)
    (record,) = logger.records
    assert (record.op_kind, record.op_name) == ("memory", "ipcq_copy")
    assert record.params == {
        "src_space": "hbm",
        "src_addr": 0,
        "dst_space": "tcm",
        "dst_addr": 64,
        "shape": (4,),
        "dtype": "f32",
        "nbytes": 16,
        "snapshot": None,
    }


def test_d3_6_without_a_snapshot_record_copy_reads_the_store_afresh():
    store = store_of(("hbm", 0, [1, 2, 3, 4]))
    logger = OpLogger(store)
    logger.record_copy(1.0, 2.0, "n", *COPY)
    store.read("hbm", 0)[:] = 9
    assert logger.records[0].params["snapshot"].tolist() == [1, 2, 3, 4]


class Strange:
    data_op = True


class Slotted:
    __slots__ = ()
    data_op = True


@pytest.mark.parametrize("msg", [Strange(), Slotted()])
def test_d3_7_a_class_without_our_base_is_logged_as_unknown_and_skipped(msg):
    record = recorded(msg)
    assert (record.op_kind, record.op_name) == ("unknown", type(msg).__name__)
    assert record.params == {}
    store = store_of(("tcm", 0, [1]))
    executor = DataExecutor([record], store)
    executor.run()
    assert executor.skipped == {type(msg).__name__: 1}
    assert store.read("tcm", 0).tolist() == [1]


def test_d3_7_a_component_serves_and_logs_a_class_without_our_base(one_cube):
    from kernbench.components.base import ComponentBase
    from kernbench.sim_engine.engine import GraphEngine

    class Server(ComponentBase):
        serves = (Strange,)

        def run(self, env, msg):
            yield env.timeout(3.0)

    engine = GraphEngine(one_cube)
    server = Server(one_cube.nodes["sip0.cube0.pe0.pe_math"], engine.sim)
    for _ in range(2):  # the second one queues
        engine.env.process(server._forward_txn(engine.env, Strange()))
    engine.simulate()
    made = [(r.op_kind, r.op_name, r.t_start, r.t_end) for r in engine.op_log]
    assert made == [("unknown", "Strange", 0, 3), ("unknown", "Strange", 3, 6)]


# -- D4: snapshots


def test_d4_math_takes_copies_of_its_inputs_when_it_ends():
    store = store_of(("tcm", 256, [0, 0, 0, 0]))
    logger = OpLogger(store)
    msg = MathCmd(op="exp", inputs=(X, region("tcm", 999, (4,))), out=OUT)
    logger.record_start(0.0, "n", msg)
    store.write("tcm", 256, np.array([1, 2, 3, 4], np.float32))
    logger.record_end(1.0, "n", msg)
    store.read("tcm", 256)[:] = 9
    known, unknown = logger.records[0].params["input_snapshots"]
    assert known.tolist() == [1, 2, 3, 4]
    assert unknown is None


def test_d4_a_dma_write_from_hbm_has_a_copy_and_one_from_tcm_has_none():
    store = store_of(("hbm", 512, [1, 2, 3, 4]), ("tcm", 256, [5, 6, 7, 8]))
    from_hbm = recorded(DmaWriteCmd(src=Y, dst_addr=1024, handle_id="h"), store)
    from_tcm = recorded(DmaWriteCmd(src=X, dst_addr=1024, handle_id="h"), store)
    store.read("hbm", 512)[:] = 9
    assert from_hbm.params["snapshot"].tolist() == [1, 2, 3, 4]
    assert from_tcm.params.get("snapshot") is None


def test_d4_an_ipcq_copy_has_a_copy_of_the_snapshot_that_it_is_given():
    flying = np.array([1, 2, 3, 4], np.float32)
    logger = OpLogger(store_of(("hbm", 0, [7, 7, 7, 7])))
    logger.record_copy(1.0, 2.0, "n", *COPY, snapshot=flying)
    flying[:] = 9
    taken = logger.records[0].params["snapshot"]
    assert taken.tolist() == [1, 2, 3, 4]
    assert not np.shares_memory(taken, flying)


def test_d4_without_a_store_there_are_no_snapshots():
    assert recorded(MathCmd(op="exp", inputs=(X,), out=X)).params[
        "input_snapshots"
    ] == [None]
    from_hbm = recorded(DmaWriteCmd(src=Y, dst_addr=1024, handle_id="h"))
    assert from_hbm.params.get("snapshot") is None


# -- D5: tiles


def test_d5_a_tile_is_recorded_as_the_stage_that_it_started_in():
    stages = (
        Stage(StageType.DMA_READ, "n", {"nbytes": 64}),
        Stage(StageType.GEMM, "n", {"nbytes": 32}),
    )
    token = TileToken(composite=None, index=(0, 0, 0), stages=stages)
    logger = OpLogger()
    logger.record_start(0.0, "n", token)
    token.stage_idx = 1
    stages[0].params["nbytes"] = 9
    logger.record_end(1.0, "n", token)
    (record,) = logger.records
    assert record.op_name == "TileToken/DMA_READ"
    assert record.params["stage_type"] == "DMA_READ"
    assert record.params["nbytes"] == 64


# -- D6: the store


def test_d6_memory_is_a_dict_of_dicts_by_space_and_address():
    store = MemoryStore()
    data = np.ones(4, np.float32)
    store.write("hbm", 64, data)
    assert store._storage == {"hbm": {64: data}}


@pytest.mark.parametrize("space", ["hbm", "tcm", "sram", "reg"])
def test_d6_1_a_space_comes_into_being_when_it_is_first_written(space):
    store = MemoryStore()
    assert not store.has(space, 0)
    store.write(space, 0, np.ones(1))
    assert store.has(space, 0)
    assert list(store._storage) == [space]


@pytest.mark.parametrize("addr", [0, 1 << 50, (1 << 50) + 1])
def test_d6_2_an_address_is_a_key_whatever_it_means(addr):
    store = MemoryStore()
    data = np.ones(1, np.float32)
    store.write("hbm", addr, data)
    assert store.read("hbm", addr) is data


def test_d6_3_write_and_read_are_by_reference():
    store = MemoryStore()
    data = np.zeros(4, np.float32)
    store.write("hbm", 0, data)
    data[0] = 5
    assert store.read("hbm", 0) is data
    assert store.read("hbm", 0)[0] == 5


def test_d6_3_another_dtype_or_shape_is_a_view():
    store = MemoryStore()
    data = np.arange(4, dtype=np.float32)
    store.write("hbm", 0, data)
    assert np.array_equal(store.read("hbm", 0, dtype="u32"), data.view(np.uint32))
    square = store.read("hbm", 0, (2, 2), "f32")
    assert square.shape == (2, 2)
    assert np.shares_memory(square, data)


def test_d6_3_another_number_of_bytes_is_a_value_error():
    store = MemoryStore()
    store.write("hbm", 0, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="16 bytes"):
        store.read("hbm", 0, (3,), "f32")
    with pytest.raises(ValueError, match="16 bytes"):
        store.read("hbm", 0, (4,), "f16")


def test_d6_4_has_says_whether_the_key_exists():
    store = MemoryStore()
    store.write("hbm", 64, np.zeros(4, np.float32))
    assert store.has("hbm", 64)
    assert not store.has("hbm", 68)
    assert not store.has("tcm", 64)


def test_d6_5_a_snapshot_shares_arrays_but_no_dicts():
    store = MemoryStore()
    data = np.zeros(4, np.float32)
    store.write("hbm", 0, data)
    fork = store.snapshot()
    assert fork.read("hbm", 0) is data
    fork.write("hbm", 0, np.ones(4, np.float32))
    fork.write("tcm", 0, np.ones(4, np.float32))
    assert store.read("hbm", 0) is data
    assert not store.has("tcm", 0)


# -- D7: one thread


def test_d7_each_logger_has_records_of_its_own():
    one = OpLogger()
    other = OpLogger()
    msg = MathCmd(op="exp", inputs=(X,), out=X)
    one.record_start(0.0, "n", msg)
    assert other._pending == {}
    one.record_end(1.0, "n", msg)
    assert len(one.records) == 1
    assert other.records == []


def test_d7_messages_of_the_same_class_may_be_in_service_at_once():
    logger = OpLogger()
    first = SimpleNamespace(data_op=True)
    second = SimpleNamespace(data_op=True)
    logger.record_start(0.0, "a", first)
    logger.record_start(1.0, "b", second)
    logger.record_end(2.0, "b", second)
    logger.record_end(3.0, "a", first)
    assert [(r.component_id, r.t_end) for r in logger.records] == [("a", 3), ("b", 2)]

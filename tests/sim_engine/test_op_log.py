"""ADR-0052 D1 to D5, rule by rule."""

import dataclasses
from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    MsgBase,
    Region,
    Stage,
    StageType,
    TileToken,
)
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
    MathCmd,
)
from kernbench.errors import KernbenchError
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import (
    OpLogger,
    OpRecord,
    canonical_order,
    canonical_rows,
)


def region(space="hbm", addr=0, shape=(4,), dtype="f32"):
    return Region(
        space, addr, shape, dtype, int(np.prod(shape)) * np.dtype("f4").itemsize
    )


def load(addr=0):
    return DmaReadCmd(src=region(addr=addr), dst=region("tcm", 64), handle_id="h1")


def math_cmd(*inputs):
    return MathCmd(op="add", inputs=inputs, out=region("tcm", 512))


def composite(**more):
    a = region(addr=0, shape=(2, 4))
    b = region(addr=32, shape=(4, 3))
    out = region(addr=128, shape=(2, 3))
    return CompositeCmd(
        op="gemm", a=a, b=b, out=out, m=2, k=4, n=3, tile=(64, 64, 64), **more
    )


def log(logger, msg, start=0.0, end=1.0, node="sip0.cube0.pe0.pe_dma"):
    logger.record_start(start, node, msg)
    logger.record_end(end, node, msg)
    return logger.records[-1]


def record(t, kind="memory", name="x"):
    return OpRecord(t, t + 1, "n", kind, name, {})


def test_d1_a_record_has_seven_fields_and_no_dependencies_by_default():
    names = [f.name for f in dataclasses.fields(OpRecord)]
    assert names == [
        *("t_start", "t_end", "component_id", "op_kind", "op_name"),
        *("params", "dependency_ids"),
    ]
    assert record(0).dependency_ids == []


def test_first_action_no_records_nothing_pending_no_store():
    logger = OpLogger()
    assert (logger._records, logger._pending, logger._memory_store) == ([], {}, None)


def test_d1_a_record_holds_service_times_and_node():
    made = log(OpLogger(), load(), 3.5, 8.25, "sip0.cube1.pe2.pe_dma")
    assert (made.t_start, made.t_end, made.component_id) == (
        3.5,
        8.25,
        "sip0.cube1.pe2.pe_dma",
    )


def test_a_partial_record_is_no_record_yet():
    logger = OpLogger()
    msg = load()
    logger.record_start(0, "n", msg)
    assert logger.records == []
    assert list(logger._pending) == [id(msg)]
    logger.record_end(1, "n", msg)
    assert logger._pending == {}


def test_an_end_without_a_start_is_an_error():
    with pytest.raises(KernbenchError, match="without a record_start"):
        OpLogger().record_end(1, "n", load())


def test_d2_records_are_sorted_by_start_although_they_end_out_of_order():
    logger = OpLogger()
    long = load(1)
    short = load(2)
    logger.record_start(0, "n", long)
    logger.record_start(5, "n", short)
    logger.record_end(6, "n", short)
    logger.record_end(9, "n", long)
    assert [r.params["src_addr"] for r in logger.records] == [1, 2]


def test_d2_equal_starts_keep_insertion_order():
    logger = OpLogger()
    first = load(1)
    second = load(2)
    logger.record_start(0, "n", first)
    logger.record_start(0, "n", second)
    logger.record_end(4, "n", second)
    logger.record_end(5, "n", first)
    assert [r.params["src_addr"] for r in logger.records] == [2, 1]


def test_d2_later_records_are_sorted_in_on_the_next_access():
    logger = OpLogger()
    log(logger, load(1), 10, 20)
    assert len(logger.records) == 1
    log(logger, load(2), 0, 30)
    assert [r.t_start for r in logger.records] == [0, 10]


def test_d3_1_dma_read():
    made = log(OpLogger(), load(256))
    assert (made.op_kind, made.op_name) == ("memory", "dma_read")
    assert made.params["src_addr"] == 256
    assert made.params["nbytes"] == 16
    assert made.params["handle_id"] == "h1"


def test_d3_2_dma_write():
    made = log(
        OpLogger(), DmaWriteCmd(src=region("tcm", 8), dst_addr=640, handle_id="h2")
    )
    assert (made.op_kind, made.op_name) == ("memory", "dma_write")
    assert made.params == {
        "src_space": "tcm",
        "src_addr": 8,
        "shape": (4,),
        "dtype": "f32",
        "dst_space": "hbm",
        "dst_addr": 640,
        "nbytes": 16,
        "handle_id": "h2",
    }


def gemm_cmd(acc=None):
    a = region("tcm", 0, (2, 4))
    b = region("hbm", 64, (4, 3))
    return GemmCmd(a=a, b=b, out=region("tcm", 128, (2, 3)), m=2, k=4, n=3, acc=acc)


GEMM_FIELDS = {
    "src_a_addr": 0,
    "src_b_addr": 64,
    "dst_addr": 128,
    "shape_a": (2, 4),
    "shape_b": (4, 3),
    "shape_out": (2, 3),
    "dtype_in": "f32",
    "dtype_out": "f32",
    "m": 2,
    "k": 4,
    "n": 3,
    "src_a_space": "tcm",
    "src_b_space": "hbm",
    "dst_space": "tcm",
}


def test_d3_3_gemm_keeps_the_space_of_each_operand():
    made = log(OpLogger(), gemm_cmd())
    assert (made.op_kind, made.op_name) == ("gemm", "gemm_f32")
    assert made.params.items() >= GEMM_FIELDS.items()
    assert made.params["dtype_acc"] == "f32"
    assert "src_acc_addr" not in made.params


def test_a_dot_with_an_accumulator_names_its_place():
    made = log(OpLogger(), gemm_cmd(acc=region("tcm", 256, (2, 3))))
    assert (made.params["src_acc_addr"], made.params["src_acc_space"]) == (256, "tcm")


def test_d3_4_math():
    made = log(OpLogger(), math_cmd(region("tcm", 0), region("hbm", 16, (1,))))
    assert (made.op_kind, made.op_name) == ("math", "add")
    expected = {
        "input_addrs": [0, 16],
        "input_shapes": [(4,), (1,)],
        "input_spaces": ["tcm", "hbm"],
        "input_dtypes": ["f32", "f32"],
        "dst_addr": 512,
        "dst_space": "tcm",
        "shape_out": (4,),
        "dtype": "f32",
        "axis": None,
    }
    assert {key: made.params[key] for key in expected} == expected


def test_d3_5_composite_gemm_has_the_fields_of_a_gemm():
    made = log(OpLogger(), composite())
    assert (made.op_kind, made.op_name) == ("gemm", "composite_gemm")
    assert set(made.params) >= set(GEMM_FIELDS) | {"op", "out_addr", "out_nbytes"}
    assert made.params["op"] == "gemm"
    assert made.params["dst_space"] == "hbm"
    assert made.params["dst_addr"] == made.params["out_addr"] == 128
    assert made.params["out_nbytes"] == 24


def test_a_composite_keeps_its_epilogue():
    bias = Epilogue("bias", operand=region(addr=320, shape=(3,)))
    made = log(
        OpLogger(), composite(epilogue=(bias, Epilogue("scale", "k_tile", scalar=2.0)))
    )
    assert made.params["epilogue"] == ["bias", "scale"]
    assert made.params["epilogue_scopes"] == ["output_tile", "k_tile"]
    assert made.params["epilogue_has_operand"] == [True, False]
    assert made.params["epilogue_addrs"] == [320]
    assert made.params["epilogue_scalars"][1] == 2.0


def test_host_copies_are_memory_ops():
    data = np.zeros(4, np.float32)
    write = log(OpLogger(), HostWriteCmd(dst=region(addr=32), data=data))
    read = log(OpLogger(), HostReadCmd(src=region(addr=32)))
    assert (write.op_kind, write.op_name, read.op_name) == (
        "memory",
        "host_write",
        "host_read",
    )
    assert write.params["snapshot"] is data
    assert (write.params["dst_addr"], read.params["src_addr"]) == (32, 32)


COPY = ("tcm", 0, "sram", 64, (4,), "f32", 16)


def test_d3_6_a_copy_takes_the_snapshot_that_it_is_given():
    logger = OpLogger(MemoryStore())
    flying = np.ones(4, np.float32)
    logger.record_copy(2.0, 5.0, "n", *COPY, flying)
    made = logger.records[0]
    assert (made.t_start, made.t_end, made.op_kind, made.op_name) == (
        2,
        5,
        "memory",
        "ipcq_copy",
    )
    names = (
        "src_space",
        "src_addr",
        "dst_space",
        "dst_addr",
        "shape",
        "dtype",
        "nbytes",
    )
    assert tuple(made.params[n] for n in names) == COPY
    flying[:] = 2
    assert made.params["snapshot"].tolist() == [1, 1, 1, 1]


def test_d4_a_copy_without_a_snapshot_reads_afresh():
    store = MemoryStore()
    store.write("tcm", 0, np.arange(4, dtype=np.float32))
    logger = OpLogger(store)
    logger.record_copy(0, 1, "n", *COPY, op_name="ipcq_recv")
    store.write("tcm", 0, np.zeros(4, np.float32))
    assert logger.records[0].op_name == "ipcq_recv"
    assert logger.records[0].params["snapshot"].tolist() == [0, 1, 2, 3]


class Strange(MsgBase):
    data_op: ClassVar[bool] = True


def test_d3_7_an_unknown_message_is_of_kind_unknown():
    made = log(OpLogger(), Strange())
    assert (made.op_kind, made.op_name, made.params) == ("unknown", "Strange", {})


def test_d4_math_inputs_are_snapshot_at_the_end_as_copies():
    store = MemoryStore()
    logger = OpLogger(store)
    msg = math_cmd(region("tcm", 0), region("tcm", 64))
    logger.record_start(0, "n", msg)
    live = np.arange(4, dtype=np.float32)
    store.write("tcm", 0, live)
    logger.record_end(1, "n", msg)
    live[:] = 9
    first, second = logger.records[0].params["input_snapshots"]
    assert first.tolist() == [0, 1, 2, 3]
    assert second is None  # never written


@pytest.mark.parametrize(("space", "has"), [("hbm", True), ("tcm", False)])
def test_d4_a_store_is_snapshot_from_hbm_only(space, has):
    store = MemoryStore()
    store.write(space, 0, np.arange(4, dtype=np.float32))
    made = log(
        OpLogger(store), DmaWriteCmd(src=region(space), dst_addr=640, handle_id="h")
    )
    assert (made.params.get("snapshot") is not None) == has


def test_d4_without_a_store_nothing_is_read():
    made = log(OpLogger(), math_cmd(region("tcm", 0)))
    assert made.params["input_snapshots"] == [None]


def test_pending_bytes_give_no_snapshot():
    store = MemoryStore()
    store.write("tcm", 0, np.arange(4, dtype=np.float32))
    made = log(OpLogger(store, is_pending=lambda *_: True), math_cmd(region("tcm", 0)))
    assert made.params["input_snapshots"] == [None]


def test_d5_a_tile_is_named_by_the_stage_in_which_it_started():
    stages = tuple(
        Stage(kind, "n", {"nbytes": i, "tile_index": "kept out"})
        for i, kind in enumerate((StageType.DMA_READ, StageType.GEMM))
    )
    token = TileToken(composite=composite(), index=(0, 1, 2), stages=stages)
    logger = OpLogger()
    logger.record_start(0, "n", token)
    token.stage_idx = 1  # has moved on before the end
    logger.record_end(1, "n", token)
    made = logger.records[0]
    assert (made.op_kind, made.op_name) == ("unknown", "TileToken/DMA_READ")
    assert made.params["stage_type"] == "DMA_READ"
    assert made.params["nbytes"] == 0
    assert made.params["tile_index"] == (0, 1, 2), "keys that exist are kept"


class Sink:
    def __init__(self):
        self.seen = []

    def op(self, row, record, cmd, slot, waits, transfers):
        self.seen.append(
            (row, record.op_name, cmd, slot, waits, transfers, record.dependency_ids)
        )


def test_a_sink_is_given_rows_waits_and_dependencies_in_completion_order():
    sink = Sink()
    logger = OpLogger(sink=sink, keep=False)
    first = load()
    second = load()
    second.cmd = 7
    second.slot = 1
    second.resumed_by = first
    second.wait("dma", "engine", 1.0, 3.0, first)
    second.wait("dma", "link", 3.0, 4.0, None)
    second.wait("dma", "engine", 4.0, 4.0, first)
    for msg, start, end in [(first, 0, 1), (second, 0, 4)]:
        logger.record_start(start, "n", msg)
        logger.record_end(end, "n", msg)
    waits = [("dma", "engine", 1.0, 3.0, 0), ("dma", "link", 3.0, 4.0, -1)]
    assert sink.seen[1] == (1, "dma_read", 7, 1, waits, [], [0])
    assert logger.records == []
    assert logger.rows == 2


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()), max_size=12
    )
)
def test_dependencies_follow_their_records_through_every_sort(ops):
    logger = OpLogger()
    done = []
    for number, (start, holder, look) in enumerate(ops):
        msg = load(number)
        if done:
            msg.resumed_by = done[holder % len(done)]
        logger.record_start(start, "n", msg)
        logger.record_end(10 + number, "n", msg)
        done.append(msg)
        if look:
            assert len(logger.records) == number + 1
    records = logger.records
    assert [r.t_start for r in records] == sorted(start for start, _, _ in ops)
    for made in records:
        number = made.params["src_addr"]
        expected = [] if number == 0 else [ops[number][1] % number]
        assert [records[d].params["src_addr"] for d in made.dependency_ids] == expected


def test_canonical_order_is_start_then_kind_then_insertion():
    kinds = ["math", "unknown", "gemm", "memory", "gemm"]
    records = [record(1, kind, str(i)) for i, kind in enumerate(kinds)] + [
        record(0, "math", "5")
    ]
    names = [records[row].op_name for row in canonical_rows(records)]
    assert names == ["5", "3", "2", "4", "0", "1"]


@pytest.mark.parametrize("moved", [0, 5, 4000])
def test_canonical_order_of_a_long_run_is_the_same_however_few_kinds_stand_wrong(moved):
    rng = np.random.default_rng(moved)
    t_start = np.sort(rng.integers(0, 300, 70_000)).astype(float)
    kinds = np.sort(t_start * 4 + rng.integers(0, 4, len(t_start))) % 4
    for column in (kinds, t_start):
        places = rng.integers(0, len(column), (2, moved))
        column[places[0]] = column[places[1]]
    order = canonical_order(t_start, kinds.astype(np.uint8))
    assert np.array_equal(order, np.lexsort((kinds, t_start)))


def stored_while_written(before, after):
    """The snapshot of an HBM source that held ``before``, and ``after`` at the end."""
    store = MemoryStore()
    pending = set()
    logger = OpLogger(store, is_pending=lambda space, addr, nbytes: addr in pending)
    src = Region("hbm", 0, (2,), "f32", 8)
    msg = DmaWriteCmd(src=src, dst_addr=64, handle_id="h1")
    for hook, state in ((logger.record_start, before), (logger.record_end, after)):
        pending.clear()
        if state == "pending":
            pending.add(0)
        elif state is not None:
            store.write("hbm", 0, np.array(state, np.float32))
        hook(1.0 if hook == logger.record_start else 2.0, "n", msg)
    snapshot = logger.records[0].params["snapshot"]
    return None if snapshot is None else snapshot.tolist()


@pytest.mark.parametrize(
    ("before", "after", "snapshot"),
    [
        ([1, 2], [1, 2], [1, 2]),
        (None, [1, 2], [1, 2]),
        ("pending", [1, 2], None),
        ([1, 2], [3, 4], None),
        ([1, 2], "pending", None),
    ],
)
def test_a_store_of_hbm_bytes_that_change_under_it_has_no_snapshot(
    before, after, snapshot
):
    assert stored_while_written(before, after) == snapshot

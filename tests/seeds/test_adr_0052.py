"""ADR-0052, clause by clause, as somebody writes it who has the record alone."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.common.messages import Region, Stage, StageType, TileToken
from kernbench.common.pe_commands import (
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
)
from kernbench.components.base import ComponentBase
from kernbench.errors import KernelError
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
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


# -- D3.5: composites of MATH, as a kernel issues them


def issued(graph, kernel, *arrays):
    """The log of ``kernel(*pointers, tl=)`` on one PE, and an executor that ran it."""

    def bench(engine):
        torch = Torch(engine)
        tensors = [torch.tensor(x, name=f"t{i}") for i, x in enumerate(arrays)]
        torch.launch("k", kernel, *tensors)

    engine = GraphEngine(graph)
    engine.run(bench)
    log = list(engine.op_log)
    executor = DataExecutor(log, tensors=engine.tensors)
    executor.run()
    return log, executor


def floats(*shape):
    rng = np.random.default_rng(0)
    return (0.5 + rng.random(shape)).astype(np.float32)


TILED = {
    "exp": (1, np.exp),
    "relu": (1, lambda x: np.maximum(x, 0)),
    "add": (2, np.add),
    "div": (2, np.divide),
    "maximum": (2, np.maximum),
    "fma": (3, lambda a, b, c: a * b + c),
    "where": (3, lambda a, b, c: np.where(a != 0, b, c)),
    "clamp": (3, np.clip),
}


@pytest.mark.parametrize("shape", [(100, 130), (130,), (1, 64)])
@pytest.mark.parametrize("op", TILED)
def test_d3_5_a_composite_of_math_is_issued_executed_and_verified(one_cube, op, shape):
    arity, function = TILED[op]
    inputs = [floats(*shape), floats(*shape) + 1, floats(*shape) + 3]

    def kernel(*pointers, tl):
        *operands, out_ptr = pointers
        given = [tl.ref(at, shape, "f32") for at in operands]
        named = dict(zip("abc", given[:arity], strict=False))
        tl.wait(tl.composite(op=op, out_ptr=out_ptr, **named))

    _, executor = issued(one_cube, kernel, *inputs, np.zeros(shape, np.float32))
    expected = function(*inputs[:arity])
    assert executor.verify({"t3": expected}).ok
    assert not executor.verify({"t3": expected + 1}).ok


def test_d3_5_composite_math_is_recorded_as_the_decision_says(one_cube):
    def kernel(x_ptr, y_ptr, tl):
        x = tl.ref(x_ptr, (96, 64), "f32")
        tl.composite(op="exp", a=x, out_ptr=y_ptr, tile=(64, 64, 1))

    log, _ = issued(one_cube, kernel, floats(96, 64), floats(96, 64))
    (whole,) = [r for r in log if r.op_name.startswith("composite_")]
    assert (whole.op_kind, whole.op_name) == ("math", "composite_math")
    params = whole.params
    assert params["op"] == "math"
    assert params["out_nbytes"] == 96 * 64 * 4
    assert params["out_addr"] == params["dst_addr"]
    assert params["dst_space"] == "hbm"
    assert params["input_shapes"] == [(96, 64)]
    assert params["input_spaces"] == ["hbm"]
    assert params["math_op"] == "exp"


def test_d3_5_its_tiles_go_through_read_fetch_math_store_and_write(one_cube):
    def kernel(x_ptr, y_ptr, tl):
        x = tl.ref(x_ptr, (96, 64), "f32")
        tl.composite(op="exp", a=x, out_ptr=y_ptr, tile=(64, 64, 1))

    log, _ = issued(one_cube, kernel, floats(96, 64), floats(96, 64))
    tiles = {}
    for record in log:
        if record.op_name.startswith("TileToken/"):
            params = record.params
            stages = tiles.setdefault(params["tile_index"], [])
            stages.append((params["stage_type"], params["origin"], params["extent"]))
    stages = ["DMA_READ", "FETCH", "MATH", "STORE", "DMA_WRITE"]
    assert tiles == {
        (0, 0, 0): [(stage, (0, 0, 0), (64, 64, 1)) for stage in stages],
        (1, 0, 0): [(stage, (64, 0, 0), (32, 64, 1)) for stage in stages],
    }


def test_d3_5_numbers_broadcasts_and_operands_in_scratch(one_cube):
    def kernel(x_ptr, row_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (70, 40), "f32")
        row = tl.ref(row_ptr, (40,), "f32")
        scaled = tl.composite(op="mul", a=0.5, b=x, out_ptr=y_ptr)
        tl.composite(op="sub", a=scaled, b=row, out_ptr=z_ptr, tile=(16, 32, 1))
        tl.composite(op="add", a=scaled, b=1.0, out_ptr=y_ptr)

    x = floats(70, 40)
    row = floats(40)
    log, executor = issued(one_cube, kernel, x, row, 0 * x, 0 * x)
    assert executor.verify({"t2": x / 2 + 1, "t3": x / 2 - row}).ok
    reads = [r for r in log if r.op_name == "TileToken/DMA_READ"]
    writes = [r for r in log if r.op_name == "TileToken/DMA_WRITE"]
    # what lies in scratch is not read again, but what a composite has written is
    assert sum(r.params["nbytes"] for r in writes) == 3 * x.nbytes
    assert sum(r.params["nbytes"] for r in reads) == 2 * x.nbytes + 5 * row.nbytes


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"op": "softmax"}, "unknown op 'softmax'; valid: gemm, exp, "),
        ({"op": "math"}, "unknown op 'math'; valid: gemm, exp, "),
        ({"op": "add"}, "takes 2 operands, not 1: a=, b= and c="),
        ({"op": "exp", "epilogue": ["relu"]}, "only a gemm has an epilogue"),
        ({"op": "exp", "tile": (0, 4, 1)}, "each at least 1"),
    ],
)
def test_d3_5_what_cannot_be_tiled_is_refused(one_cube, arguments, why):

    def kernel(x_ptr, y_ptr, tl):
        tl.composite(a=tl.ref(x_ptr, (8, 8), "f32"), out_ptr=y_ptr, **arguments)

    with pytest.raises(KernelError, match=why):
        issued(one_cube, kernel, floats(8, 8), floats(8, 8))


def test_d3_5_an_output_that_overlaps_what_is_still_to_be_read_is_refused(one_cube):

    def kernel(x_ptr, tl):
        x = tl.ref(x_ptr, (4, 8), "f32")
        tl.composite(op="exp", a=x, out_ptr=x_ptr + 32)

    with pytest.raises(KernelError, match="overlaps an operand"):
        issued(one_cube, kernel, floats(8, 8))


def test_d3_5_a_later_store_over_an_operand_is_not_seen(one_cube):
    def kernel(x_ptr, y_ptr, tl):
        other = tl.load(x_ptr + 8 * 32, (8, 8), "f32")
        x = tl.ref(x_ptr, (8, 8), "f32")
        tl.composite(op="neg", a=x, out_ptr=y_ptr)
        tl.store(x_ptr, other)

    x = floats(16, 8)
    _, executor = issued(one_cube, kernel, x, floats(8, 8))
    assert executor.verify({"t1": -x[:8]}).ok


BENCH = """
import numpy as np
from kernbench.benches import bench

def kernel(x_ptr, y_ptr, z_ptr, tl):
    done = tl.composite("exp", a=tl.ref(x_ptr, (96, 80), "f32"), out_ptr=y_ptr)
    row = tl.ref(x_ptr, (80,), "f32")
    tl.composite("mul", a=row, b=row, out_ptr=z_ptr)

@bench(name="tiled_math", description="composites of math")
def run(torch):
    data = torch.rng.standard_normal((96, 80)).astype("f4")
    x = torch.tensor(data, "f32", name="x")
    y = torch.empty((96, 80), "f32", name="y")
    z = torch.empty((80,), "f32", name="z")
    torch.launch("tiled_math", kernel, x, y, z)
    torch.expect(y, np.exp(data))
    torch.expect(z, data[0] ** 2)
"""


@pytest.fixture(scope="module")
def tiled_math(tmp_path_factory):
    """The trace of a bench of composites of math, which its run has verified."""

    folder = tmp_path_factory.mktemp("tiled")
    (folder / "tiled_math.py").write_text(BENCH)
    trace = str(folder / "t.msgpack")
    arguments = ["run", str(folder / "tiled_math.py"), "--trace", trace, "--debug"]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    assert "none off by more than rounding" in ran.output
    return trace


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (["tiles", "--op", "1"], r"composite #1 on .*pe_scheduler: 4 tiles"),
        (["verify"], r"y +f32 +7680 +ok"),
        (["blame", "y[95,79]"], r"(?s)composite_math.*from x\[95, 79\]"),
        (["blame", "z[7]"], r"(?s)composite_math.*from x\[0, 7\]"),
        (["who-wrote", "y[0,0]"], "composite_math"),
        (["diff", "--op", "1"], r"ok: 0 of 7,680 beyond"),
        (["diff", "--op", "3"], r"this tile covers rows .*\n(.*\n)*?ok: 0 of "),
        (["ops", "where", "name=composite_math"], "composite_math"),
        (["roofline"], r"7,760 FLOP"),
        (["hazards"], "none found"),
        (["critical", "3"], "math"),
        (["bound", "--op", "1"], "composite_math"),
        (["stalls", "all"], "compute"),
        (["timeline"], "pe_math"),
        (["check"], "ok"),
    ],
)
def test_d3_5_the_debugger_knows_composites_of_math(tiled_math, asked, answered):

    name, *rest = asked
    said = CliRunner().invoke(main, ["trace", name, tiled_math, *rest])
    assert said.exit_code == 0, said.output
    assert re.search(answered, said.output), said.output


def test_d3_5_the_diff_of_a_tile_of_one_axis_is_its_block(tiled_math):
    said = CliRunner().invoke(main, ["trace", "diff", tiled_math])
    assert "columns 64..79" in said.output
    assert "ok: 0 of 16 beyond" in said.output


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

"""ADR-0020 D5, D6, D7, D10 and D11, clause by clause, by the record alone.

Logs are made by hand, with the params that D5 names.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.errors import KernbenchError, VerificationError
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_check import debug_check, first_over
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import compare
from kernbench.trace import TraceWriter

F32 = np.float32


def math(op, inputs, dst, shape=(4,), t=0.0, deps=(), **more):
    params = {
        "op": op,
        "input_addrs": list(inputs),
        "input_shapes": [shape] * len(inputs),
        "dst_addr": dst,
        "shape_out": shape,
        "dtype": "f32",
        "axis": None,
        "addr_space": "tcm",
    }
    return OpRecord(t, t + 1, "pe_math", "math", op, params | more, list(deps))


def gemm(a, b, dst, m=2, k=2, n=2, t=0.0, deps=(), **more):
    params = {
        "src_a_addr": a,
        "src_b_addr": b,
        "dst_addr": dst,
        "shape_a": (m, k),
        "shape_b": (k, n),
        "shape_out": (m, n),
        "dtype_in": "f32",
        "dtype_acc": "f32",
        "dtype_out": "f32",
        "transpose_a": False,
        "transpose_b": False,
        "layout_a": "row_major",
        "layout_b": "row_major",
        "layout_out": "row_major",
        "addr_space": "tcm",
    }
    return OpRecord(t, t + 1, "pe_gemm", "gemm", "gemm_f32", params | more, list(deps))


def copy(name, src, dst, nbytes=16, t=0.0, deps=()):
    """``src`` and ``dst`` are (space, address)."""
    params = {
        "src_addr": src[1],
        "dst_addr": dst[1],
        "nbytes": nbytes,
        "src_space": src[0],
        "dst_space": dst[0],
    }
    return OpRecord(t, t + 1, "pe_dma", "memory", name, params, list(deps))


def memory(**arrays):
    """A store that holds f32 arrays: tcm_64=[…] is at address 64 of the TCM."""
    store = MemoryStore()
    for place, values in arrays.items():
        space, addr = place.split("_")
        store.write(space, int(addr), np.array(values, F32))
    return store


def run(log, store):
    executor = DataExecutor(log, store)
    executor.run()
    return executor


def at(store, addr, count=4, space="tcm"):
    return store.view(space, addr, (count,), "f32").tolist()


# -- D5: what a record holds -----------------------------------------------------------


def test_d5_the_kind_decides_what_is_executed():
    log = [
        copy("dma_read", ("hbm", 0), ("tcm", 0)),
        gemm(0, 0, 64, t=1),
        math("exp", [64], 128, t=2),
        OpRecord(3, 4, "n", "unknown", "anything", {}),
    ]
    executor = run(log, memory(hbm_0=[1, 2, 3, 4]))
    assert at(executor.store, 64) == [7, 10, 15, 22]
    assert np.allclose(at(executor.store, 128), np.exp([7, 10, 15, 22]), rtol=1e-6)
    assert executor.skipped == {"anything": 1}


@pytest.mark.parametrize("name", ["dma_read", "dma_write"])
def test_d5_memory_params_are_executed(name):
    store = memory(hbm_64=[1, 2, 3, 4])
    run([copy(name, ("hbm", 64), ("sram", 128))], store)
    assert at(store, 128, space="sram") == [1, 2, 3, 4]


def test_d5_gemm_params_are_executed():
    a = np.arange(6, dtype=F32).reshape(2, 3)
    b = np.arange(12, dtype=F32).reshape(3, 4)
    store = memory(sram_0=a, sram_64=b)
    run([gemm(0, 64, 256, 2, 3, 4, addr_space="sram")], store)
    assert np.array_equal(store.read("sram", 256, (2, 4)), a @ b)


def test_d5_gemm_dtypes_are_those_of_operands_sum_and_output():
    a = np.full((2, 256), 16, np.float16)
    store = MemoryStore()
    store.write("tcm", 0, a)
    store.write("tcm", 1024, a.T.copy())
    dtypes = {"dtype_in": "f16", "dtype_acc": "f32", "dtype_out": "f32"}
    run([gemm(0, 1024, 4096, 2, 256, 2, **dtypes)], store)
    # 65,536 is more than an f16 holds
    assert at(store, 4096) == [65536] * 4


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_d5_transpose_flags_speak_of_matrices_as_stored(transpose_a, transpose_b):
    a = np.arange(6, dtype=F32).reshape(2, 3)
    b = np.arange(12, dtype=F32).reshape(3, 4)
    stored_a = a.T.copy() if transpose_a else a
    stored_b = b.T.copy() if transpose_b else b
    record = gemm(
        0,
        64,
        256,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        shape_a=stored_a.shape,
        shape_b=stored_b.shape,
        shape_out=(2, 4),
    )
    store = memory(tcm_0=stored_a, tcm_64=stored_b)
    run([record], store)
    assert np.array_equal(store.read("tcm", 256), a @ b)


@pytest.mark.parametrize("layout_a", ["row_major", "col_major"])
@pytest.mark.parametrize("layout_b", ["row_major", "col_major"])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_d5_col_major_operands_are_executed(layout_a, layout_b, transpose_a):
    a = np.arange(6, dtype=F32).reshape(2, 3)
    b = np.arange(12, dtype=F32).reshape(3, 4)
    given_a = a.T if transpose_a else a
    order = {"row_major": "C", "col_major": "F"}
    store = memory(
        tcm_0=given_a.ravel(order[layout_a]), tcm_64=b.ravel(order[layout_b])
    )
    record = gemm(
        0,
        64,
        256,
        shape_a=given_a.shape,
        shape_b=b.shape,
        shape_out=(2, 4),
        layout_a=layout_a,
        layout_b=layout_b,
        transpose_a=transpose_a,
    )
    run([record], store)
    assert np.array_equal(store.read("tcm", 256), a @ b)
    assert record.params["layout_a"] == layout_a  # the caller's record is as it was


@pytest.mark.parametrize(
    ("name", "layout"),
    [("layout_out", "col_major"), ("layout_a", "blocked"), ("layout_b", None)],
)
def test_d5_any_other_layout_is_refused_by_name(name, layout):
    store = memory(tcm_0=[1, 2, 3, 4])
    with pytest.raises(VerificationError, match=rf"op 0 \(gemm_f32.*{name} is "):
        run([gemm(0, 0, 64, **{name: layout})], store)
    assert not store.has("tcm", 64)


def test_d5_math_params_are_executed():
    store = memory(sram_0=[[1, 2], [3, 4]])
    total = math("sum", [0], 64, (2, 2), shape_out=(2,), axis=0, addr_space="sram")
    run([total], store)
    assert at(store, 64, 2, "sram") == [4, 6]


def test_d5_the_operands_of_math_are_in_the_order_of_their_addresses():
    store = memory(tcm_0=[1, 0, 1, 0], tcm_64=[1, 2, 3, 4], tcm_128=[5, 6, 7, 8])
    run([math("where", [0, 64, 128], 256), math("sub", [64, 128], 320, t=1)], store)
    assert at(store, 256) == [1, 6, 3, 8]
    assert at(store, 320) == [-4, -4, -4, -4]


def test_d5_the_log_is_stably_ordered_by_start():
    store = memory(tcm_0=[1, 1, 1, 1])
    log = [
        math("add", [64, 0], 64, t=5),
        copy("dma_write", ("tcm", 0), ("tcm", 64), t=4),
        math("mul", [64, 64], 64, t=5),
    ]
    run(log, store)
    assert at(store, 64) == [4, 4, 4, 4]


def test_d5_dependency_ids_hold_an_op_back_where_addresses_say_nothing():
    store = memory(tcm_0=[1, 1, 1, 1], tcm_64=[0, 0, 0, 0])
    log = [
        math("add", [0, 0], 64, t=0, deps=[1]),
        copy("dma_read", ("tcm", 0), ("hbm", 64), t=9),
    ]
    executor = DataExecutor(log, store)
    assert executor.step().op_name == "dma_read"
    assert executor.step().op_name == "add"


def test_d5_dependency_ids_overrule_what_addresses_say():
    store = memory(tcm_0=[1, 1, 1, 1], tcm_64=[3, 3, 3, 3])
    log = [
        copy("dma_read", ("tcm", 0), ("tcm", 128), t=0, deps=[1]),
        copy("dma_read", ("tcm", 64), ("tcm", 128), t=1),
    ]
    run(log, store)
    assert at(store, 128) == [1, 1, 1, 1]


def test_d5_what_is_held_back_holds_back_who_reads_it():
    store = memory(tcm_0=[1, 1, 1, 1], tcm_64=[0, 0, 0, 0], hbm_0=[7, 7, 7, 7])
    log = [
        math("add", [0, 0], 64, t=0, deps=[2]),
        copy("dma_write", ("tcm", 64), ("hbm", 64), t=1),
        copy("dma_read", ("hbm", 0), ("tcm", 256), t=2),
    ]
    run(log, store)
    assert at(store, 64, space="hbm") == [2, 2, 2, 2]


# -- D6: the executor ------------------------------------------------------------------


def test_d6_it_runs_on_the_store_that_it_is_given():
    store = memory(tcm_0=[1, 2, 3, 4])
    executor = run([math("neg", [0], 64)], store)
    assert executor.store is store
    assert at(store, 64) == [-1, -2, -3, -4]


def test_d6_math_before_the_gemm_that_reads_it_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[0, 0, 0, 0])
    run([math("neg", [0], 64), gemm(64, 0, 128)], store)
    assert at(store, 128) == [-7, -10, -15, -22]


def test_d6_math_before_the_store_that_reads_it_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[0, 0, 0, 0])
    run([math("neg", [0], 64), copy("dma_write", ("tcm", 64), ("hbm", 0))], store)
    assert at(store, 0, space="hbm") == [-1, -2, -3, -4]


def test_d6_a_read_stays_before_the_later_write_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[1, 0, 0, 1], hbm_0=[9, 9, 9, 9])
    log = [
        math("neg", [64], 128),
        gemm(0, 0, 64),
        math("neg", [0], 192),
        copy("dma_read", ("hbm", 0), ("tcm", 0)),
    ]
    run(log, store)
    assert at(store, 128) == [-1, 0, 0, -1]
    assert at(store, 192) == [-1, -2, -3, -4]
    assert at(store, 64) == [7, 10, 15, 22]


def test_d6_the_last_write_of_the_log_wins_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4])
    run([math("neg", [0], 64), gemm(0, 0, 64)], store)
    assert at(store, 64) == [7, 10, 15, 22]
    run([gemm(0, 0, 64), math("neg", [0], 64)], store)
    assert at(store, 64) == [-1, -2, -3, -4]


def test_d6_ranges_conflict_where_they_share_a_byte():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[0] * 8)
    run([math("neg", [0], 64), gemm(76, 0, 128)], store)
    # the last element that was written, and three that were not
    assert at(store, 128) == [-4, -8, 0, 0]


def test_d6_ops_of_one_instant_that_share_no_bytes_are_memory_then_gemm_then_math():
    store = memory(tcm_0=[1, 2, 3, 4])
    log = [
        math("neg", [0], 64),
        gemm(0, 0, 128),
        copy("dma_read", ("tcm", 0), ("tcm", 192)),
    ]
    executor = DataExecutor(log, store)
    order = [executor.step().op_kind for _ in log]
    assert order == ["memory", "gemm", "math"]


def test_d6_bytes_that_only_a_load_of_the_same_instant_writes_are_loaded_first():
    store = memory(hbm_0=[1, 2, 3, 4])
    run([math("neg", [0], 64), copy("dma_read", ("hbm", 0), ("tcm", 0))], store)
    assert at(store, 64) == [-1, -2, -3, -4]


SLOTS = 5


def step_of(kind, t, a, b, out):
    """A record of slots of one f32, and the same as a function of a list."""
    if kind == "math":
        record = math("add", [4 * a, 4 * b], 4 * out, (1, 1), t)
        return record, lambda m: m[a] + m[b]
    if kind == "gemm":
        return gemm(4 * a, 4 * b, 4 * out, 1, 1, 1, t), lambda m: m[a] * m[b]
    return copy("dma_read", ("tcm", 4 * a), ("tcm", 4 * out), 4, t), lambda m: m[a]


@pytest.mark.parametrize("instants", [1, 2])
def test_d6_any_log_runs_as_one_op_after_the_other_in_the_order_of_the_log(instants):
    for seed in range(400):
        rng = random.Random(seed)
        steps = []
        for _ in range(rng.randint(2, 7)):
            kind = rng.choice(["math", "gemm", "memory"])
            t = float(rng.randrange(instants))
            a, b, out = (rng.randrange(SLOTS) for _ in range(3))
            steps.append((*step_of(kind, t, a, b, out), out))
        slots = [F32(x) for x in (1.5, 2, 3, -1, 5)]
        store = memory(tcm_0=slots)
        run([record for record, _, _ in steps], store)
        for _, function, out in sorted(steps, key=lambda step: step[0].t_start):
            slots[out] = F32(function(slots))
        assert at(store, 0, SLOTS) == slots, seed


def test_d6_equal_independent_ops_give_the_same_bits_as_one_by_one():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 16, 16)).astype(F32)
    log = [gemm(1024 * i, 0, 16384 + 1024 * i, 16, 16, 16) for i in range(8)]
    log += [math("exp", [16384 + 64 * i], 65536 + 64 * i, (16,), 1) for i in range(8)]
    stores = []
    for batch in (True, False):
        store = memory(tcm_0=a)
        DataExecutor(log, store, batch=batch).run()
        stores.append(store.view("tcm", 65536, (128,), "f32").tobytes())
    assert stores[0] == stores[1]


@pytest.mark.parametrize(
    "other", [{"transpose_b": True}, {"dtype_out": "f16"}, {"layout_b": "col_major"}]
)
def test_d6_ops_that_differ_in_a_flag_or_dtype_or_layout_share_nothing(other):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((2, 8, 8)).astype(F32)
    log = [gemm(0, 256, 4096, 8, 8, 8), gemm(0, 256, 8192, 8, 8, 8, **other)]
    store = memory(tcm_0=a)
    run(log, store)
    alone = memory(tcm_0=a)
    run(log[1:], alone)
    dtype = other.get("dtype_out", "f32")
    found = store.view("tcm", 8192, (8, 8), dtype)
    assert found.tobytes() == alone.view("tcm", 8192, (8, 8), dtype).tobytes()
    assert np.array_equal(store.view("tcm", 4096, (8, 8), "f32"), a[0] @ a[1])


def test_d6_the_time_of_arrival_is_not_looked_at():
    store = memory(tcm_0=[1, 2, 3, 4])
    slow = math("neg", [0], 64, t=0)
    slow.t_end = 1000.0
    run([slow, math("neg", [64], 128, t=1)], store)
    assert at(store, 128) == [1, 2, 3, 4]


# -- D7: the store ---------------------------------------------------------------------


def test_d7_write_and_read_hand_on_references():
    store = MemoryStore()
    data = np.ones((2, 2), np.float16)
    store.write("tcm", 0, data)
    assert store.read("tcm", 0, (2, 2), "f16") is data


def test_d7_a_write_at_the_same_address_overwrites_the_tensor():
    store = memory(tcm_0=[1, 2, 3, 4])
    store.write("tcm", 0, np.array([9, 8], F32))
    assert store.read("tcm", 0, (2,), "f32").tolist() == [9, 8]


@pytest.mark.parametrize(
    "dtype", ["f16", "bf16", "f32", "f64", "i8", "i32", "u8", "bool"]
)
def test_d7_dtypes_are_those_of_numpy(dtype):

    store = MemoryStore()
    data = np.ones(3, np_dtype(dtype))
    store.write("hbm", 0, data)
    assert store.read("hbm", 0, (3,), dtype).dtype == data.dtype


def test_d7_bytes_are_seen_by_a_view():
    store = memory(tcm_0=[1, 2])
    seen = store.read("tcm", 0, (8,), "u8")
    assert seen.tobytes() == np.array([1, 2], F32).tobytes()


def test_d7_another_dtype_reinterprets_and_other_bytes_are_an_error():
    store = memory(tcm_0=[1, 2])
    assert store.read("tcm", 0, (2,), "u32").tolist() == [0x3F800000, 0x40000000]
    with pytest.raises(ValueError, match="8 bytes"):
        store.read("tcm", 0, (3,), "f32")


def test_d7_only_contiguous_tensors_are_stored():
    with pytest.raises(KernbenchError, match="contiguous"):
        MemoryStore().write("tcm", 0, np.ones((4, 4))[:, ::2])


def test_d7_ranges_of_bytes_are_what_counts():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_16=[5, 6, 7, 8])
    assert store.view("tcm", 12, (2,), "f32").tolist() == [4, 5]


# -- D10: Phase 2 is optional ----------------------------------------------------------


def doubles(x_ptr, y_ptr, tl):
    at = 4 * 8 * tl.program_id(0)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, (8,), "f32"))


def doubling(engine):
    """A bench that doubles 16 numbers on two PEs."""

    torch = Torch(engine)
    halves = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
    x = torch.tensor(np.arange(16, dtype=F32), dp=halves, name="x")
    y = torch.empty((16,), "f32", dp=halves, name="y")
    torch.launch("doubles", doubles, x, y)


def test_d10_phase_1_alone_gives_times(one_cube):
    engine = GraphEngine(one_cube)
    engine.run(doubling)
    assert engine.get_timing_result().end_ns > 0


def test_d10_without_a_logger_there_is_no_log_and_the_times_are_the_same(one_cube):
    times = []
    for options in ({}, {"op_logger": None}):
        engine = GraphEngine(one_cube, **options)
        engine.run(doubling)
        times.append(engine.get_timing_result().end_ns)
    assert times[0] == times[1]
    assert list(engine.op_log) == []


def test_d10_an_engines_log_is_executed_and_verified_by_the_names_of_its_tensors(
    one_cube,
):
    engine = GraphEngine(one_cube)
    engine.run(doubling)
    executor = DataExecutor(engine.op_log, tensors=engine.tensors)
    executor.run()
    expected = 2 * np.arange(16)
    assert executor.verify(expected).ok
    report = executor.verify({"y": expected})
    assert report.ok
    (row,) = report.by_tensor()
    assert (row.tensor, row.elements) == ("y", 16)
    expected[11] = 0
    assert not executor.verify(expected).ok  # the tensor of the last output
    (row,) = executor.verify({"y": expected}).by_tensor()
    assert (row.ok, row.mismatches, row.first_bad) == (False, 1, (11,))


def product_log():
    return [
        copy("dma_read", ("hbm", 0), ("tcm", 0)),
        gemm(0, 0, 64, t=1),
        copy("dma_write", ("tcm", 64), ("hbm", 256), t=2),
    ]


RIGHT = np.array([[7, 10], [15, 22]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_d10_verify_takes_the_expected_output(dtype):
    executor = DataExecutor(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    executor.run()
    assert executor.verify(RIGHT.astype(dtype)).ok
    assert executor.verify(RIGHT.tolist()).ok
    wrong = executor.verify(RIGHT + 1)
    assert not wrong.ok
    assert wrong.rows[0].mismatches == 4


def test_d10_verify_goes_on_to_the_end_by_itself():
    executor = DataExecutor(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    assert executor.verify(RIGHT).ok
    assert executor.position == 3


def test_d10_the_expected_output_is_the_last_that_was_stored_to_hbm():
    log = [*product_log(), math("neg", [64], 128, t=3)]
    assert run(log, memory(hbm_0=[1, 2, 3, 4])).verify(RIGHT).ok
    in_tcm = log[1:2] + log[3:]
    assert run(in_tcm, memory(tcm_0=[1, 2, 3, 4])).verify(-RIGHT.ravel()).ok


def test_d10_verify_takes_a_mapping_of_arrays_by_address():
    executor = run(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    report = executor.verify({("tcm", 64): RIGHT, ("hbm", 0): [1, 2, 3, 4]})
    assert report.ok
    assert [row.name for row in report.rows] == ["tcm 0x40", "hbm 0x0"]
    assert not executor.verify({("tcm", 0): RIGHT}).ok


def test_d10_verify_takes_a_mapping_of_arrays_by_name():
    tensors = {"a": ("hbm", 0), "product": ("hbm", 256)}
    store = memory(hbm_0=[1, 2, 3, 4])
    executor = DataExecutor(product_log(), store, tensors=tensors)
    assert executor.verify({"product": RIGHT, "a": [1, 2, 3, 4]}).ok
    assert not executor.verify({"product": RIGHT, "a": [1, 2, 3, 5]}).ok


def test_d10_a_store_is_known_by_its_handle():
    log = product_log()
    log[2].params["handle_id"] = "h0.2"
    assert run(log, memory(hbm_0=[1, 2, 3, 4])).verify({"h0.2": RIGHT}).ok


def test_d10_an_unknown_name_lists_the_known_ones():
    store = memory(hbm_0=[1, 2, 3, 4])
    executor = DataExecutor(product_log(), store, tensors={"a": ("hbm", 0)})
    with pytest.raises(VerificationError, match=r"where 'b' lies; known are a;"):
        executor.verify({"b": RIGHT})


def test_d10_an_output_of_another_size_says_what_to_give_instead():
    executor = run(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    with pytest.raises(VerificationError, match=r"16 bytes at hbm 0x100; give a map"):
        executor.verify(np.ones(5))


# -- D11: verification -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "bound"), [("f32", 1e-5), ("f16", 1e-3), ("bf16", 1e-2)]
)
def test_d11_the_tolerance_is_that_of_the_dtype(dtype, bound):

    tolerance = dtype_row(dtype).tolerance
    assert (tolerance.rtol, tolerance.atol) == (bound, bound)
    expected = np.array([1.0])
    assert compare(expected + 1.9 * bound, expected, tolerance).ok
    assert not compare(expected + 2.1 * bound, expected, tolerance).ok
    store = MemoryStore()
    store.write("hbm", 0, np.ones(4, np_dtype(dtype)))
    record = copy("dma_write", ("hbm", 0), ("hbm", 64), store.read("hbm", 0).nbytes)
    record.params |= {"shape": (4,), "dtype": dtype}
    executor = run([record], store)
    assert executor.verify(np.full(4, 1 + bound)).ok
    assert not executor.verify(np.full(4, 1 + 4 * bound)).ok


def test_d11_integers_are_compared_exactly():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 1 << 30], np.int32))
    record = math("add", [0, 0], 64, (2,), dtype="i32")
    executor = run([record], store)
    assert executor.verify(np.array([2, -(1 << 31)])).ok
    assert not executor.verify(np.array([2, -(1 << 31) + 1])).ok


def test_d11_only_the_final_output_is_compared_by_default():
    log = product_log()
    report = run(log, memory(hbm_0=[1, 2, 3, 4])).verify(RIGHT)
    assert [row.elements for row in report.rows] == [4]


def test_d11_debug_mode_compares_every_op():

    log = [*product_log(), math("neg", [64], 128, t=3)]
    store = memory(hbm_0=[1, 2, 3, 4])
    checks = [*debug_check(DataExecutor(log, store.snapshot()))]
    assert [c.op_name for c in checks] == ["dma_read", "gemm_f32", "dma_write", "neg"]
    assert first_over(checks) is None
    wrong = {**NUMPY_OPS, "neg": replace(NUMPY_OPS["neg"], function=np.abs)}
    checks = [*debug_check(DataExecutor(log, store.snapshot(), wrong))]
    assert first_over(checks).op_name == "neg"


# -- a simulation: its log and its trace ----------------------------------------------


def races(a_ptr, x_ptr, y_ptr, tl):
    """PE 0 stores what PE 1 reads from the same instant on, and needs longer."""
    a = tl.load(a_ptr + 65536 * tl.program_id(0), (128, 128), "f32")
    if tl.program_id(0) == 0:
        tl.store(x_ptr, a)
    else:
        tl.composite("neg", a=tl.ref(x_ptr, (1, 4), "f32"), out_ptr=y_ptr)


@pytest.mark.parametrize("traced", [False, True])
def test_d6_a_run_judges_a_race_in_the_order_of_its_trace(one_cube, tmp_path, traced):
    def bench(engine):
        halves = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
        torch = Torch(engine)
        a = torch.tensor(np.ones((256, 128), F32), dp=halves)
        x = torch.tensor(np.full((256, 128), 5, F32), dp=halves)
        y = torch.zeros((2, 4), "f32", dp=halves)
        torch.launch("races", races, a, x, y)
        found.append(y.numpy()[0].tolist())

    found = []
    recorder = TraceWriter(tmp_path / "t.msgpack") if traced else None
    engine = GraphEngine(one_cube, recorder=recorder, keep=not traced)
    engine.run(bench)
    starts = {r.op_name: r.t_start for r in engine.op_log if r.t_start > 0}
    assert starts["dma_write"] == starts["composite_math"]
    assert found == [[-1, -1, -1, -1]]

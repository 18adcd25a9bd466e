"""Ops that are alike run in one numpy call; nobody can tell from the bytes."""

from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from pace import for_all
from phase2_logs import add, host_write, load, math_op, recorded, region, values

from kernbench.benches import SHIPPED
from kernbench.common.dtypes import np_dtype
from kernbench.common.pe_commands import CompositeCmd, Epilogue, GemmCmd
from kernbench.errors import MemoryStoreError
from kernbench.sim_engine.data_executor import DataExecutor, SnapshotFinding
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS

ARENA = 512  # bytes of each space


def arena(seed=0):
    """Small numbers, which are numbers in every float dtype."""
    store = MemoryStore()
    rng = np.random.default_rng(seed)
    for space in ("hbm", "tcm"):
        store.write(space, 0, rng.integers(0x34, 0x44, ARENA).astype(np.uint8))
    return store


def bytes_of(store):
    return {s: store.view(s, 0, (ARENA,), "u8").tobytes() for s in ("hbm", "tcm")}


def both_ways(records, store=None):
    """The bytes after a run with shared calls, which must be those without."""
    store = store or arena()
    alone = DataExecutor(records, store.snapshot(), batch=False)
    shared = DataExecutor(records, store.snapshot())
    alone.run()
    shared.run()
    assert bytes_of(shared.store) == bytes_of(alone.store)
    assert shared.findings == alone.findings
    return bytes_of(shared.store)


def calls(records, name="add", store=None):
    """The shapes with which the function of ``name`` was called."""
    seen = []
    op = NUMPY_OPS[name]

    def function(*operands):
        seen.append(np.shape(operands[0]))
        return op.function(*operands)

    ops = NUMPY_OPS | {name: replace(op, function=function)}
    DataExecutor(records, store or arena(), ops).run()
    return seen


def adds(*places, **more):
    return [add(a, b, out, float(t), **more) for t, (a, b, out) in enumerate(places)]


def test_independent_ops_that_are_alike_run_in_one_call():
    records = adds((0, 16, 256), (32, 48, 272), (64, 80, 288))
    assert calls(records) == [(3, 4)]
    both_ways(records)


def test_an_op_that_reads_what_an_earlier_one_writes_starts_another_call():
    records = adds((0, 16, 256), (0, 16, 272), (32, 264, 288), (0, 16, 304))
    assert calls(records) == [(2, 4), (2, 4)]
    both_ways(records)


def test_a_chain_runs_one_by_one():
    records = adds((0, 16, 256), (0, 256, 272), (0, 272, 288))
    assert calls(records) == [(4,)] * 3


def test_writes_over_operands_and_over_each_other_share_a_call():
    records = adds((0, 16, 256), (32, 48, 0), (64, 80, 260))
    assert calls(records) == [(3, 4)]
    both_ways(records)


def test_ops_of_another_shape_dtype_or_scalar_do_not_share_a_call():
    def scaled(scalar, out):
        where = region("tcm", out, (4,))
        return math_op(
            "add",
            [region("tcm", 0, (4,))],
            where,
            scalars=(scalar,),
            scalar_positions=(1,),
        )

    half = [region("tcm", addr, (4,), "f16") for addr in (0, 8, 400)]
    records = [*adds((0, 16, 256)), add(0, 16, 272, shape=(2, 2))]
    records += [math_op("add", half[:2], half[2]), scaled(0.0, 288), scaled(-0.0, 304)]
    assert len(calls(records)) == 5


def test_large_ops_are_not_gathered():
    store = MemoryStore()
    store.write("tcm", 0, np.ones(1 << 16, np.float32))
    records = [add(0, 0, 4 * 2048 * i, float(i), (2048,)) for i in (1, 2)]
    assert calls(records, store=store) == [(2048,)] * 2


def products(count, m, k, n, dtype="f32", acc=False, turned=False):
    """A store, and gemms on it that share nothing."""
    store = MemoryStore()
    rng = np.random.default_rng(0)
    records = []
    at = 0
    for i in range(count):
        shapes = [(m, k), (n, k) if turned else (k, n), (m, n), (m, n)]
        held = []
        for shape in shapes:
            held.append(region("tcm", at, shape, dtype))
            numbers = rng.standard_normal(shape) * 3
            store.write("tcm", at, numbers.astype(np_dtype(dtype)))
            at += held[-1].nbytes
        a, b, c, out = held
        more = {"acc": c} if acc else {}
        msg = GemmCmd(a=a, b=b, out=out, m=m, k=k, n=n, transpose_b=turned, **more)
        records.append(recorded(msg, float(i)))
    return store, records


def ops_a_call(store, records):
    """How many ops each call took, of a run that reports before each."""
    executor = DataExecutor(records, store.snapshot())
    begun = []
    executor.run(lambda _: begun.append(executor.position))
    return [after - before for before, after in pairwise([*begun, executor.position])]


def test_products_of_tiles_of_64_share_calls_that_fit_the_cache():
    assert ops_a_call(*products(24, 64, 64, 64)) == [10, 10, 4]
    assert ops_a_call(*products(24, 64, 64, 64, acc=True)) == [8, 8, 8]


def test_larger_products_run_one_by_one():
    assert ops_a_call(*products(3, 96, 96, 96)) == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "fp8_e4m3", "i8"])
@pytest.mark.parametrize("acc", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_tiles_of_64_give_the_same_bits_together(dtype, acc, turned):
    store, records = products(3, 64, 64, 64, dtype, acc, turned)
    alone = DataExecutor(records, store.snapshot(), batch=False)
    shared = DataExecutor(records, store.snapshot())
    alone.run()
    shared.run()
    for (_, one), (_, other) in zip(
        alone.store.extents("tcm"), shared.store.extents("tcm"), strict=True
    ):
        assert one.tobytes() == other.tobytes()


def test_reductions_run_one_by_one():
    records = [
        math_op(
            "sum",
            [region("tcm", 32 * i, (2, 4))],
            region("tcm", 256 + 8 * i, (2,)),
            i,
            axis=1,
        )
        for i in range(3)
    ]
    both_ways(records)
    seen = []

    def function(x, **options):
        seen.append(x.shape)
        return np.sum(x, **options)

    watched = replace(NUMPY_OPS["sum"], function=function)
    DataExecutor(records, arena(), NUMPY_OPS | {"sum": watched}).run()
    assert seen == [(2, 4)] * 3


def test_operands_of_fewer_axes_broadcast_within_their_own_op():
    records = []
    for i in range(3):
        inputs = [
            region("tcm", 64 * i, (2, 4)),
            region("tcm", 8 * i, (4,)),
            region("tcm", 4 * i, (2, 1)),
        ]
        records.append(math_op("fma", inputs, region("hbm", 32 * i, (2, 4)), float(i)))
    both_ways(records)
    assert calls(records, "fma") == [(3, 2, 4)]


def test_the_op_that_fails_is_named_and_those_before_it_have_run():
    records = adds((0, 16, 256), (32, 48, 272), (1024, 80, 288), (0, 16, 304))
    executor = DataExecutor(records, arena())
    with pytest.raises(
        MemoryStoreError, match=r"op 2 \(add on pe0\): tcm: 16 bytes at 0x400"
    ):
        executor.run()
    assert executor.position == 2
    executor.store.write("tcm", 1024, np.ones(4, np.float32))
    executor.run()
    assert executor.position == 4


def test_a_damaged_op_ahead_fails_when_its_turn_comes():
    records = adds((0, 16, 256), (32, 48, 272))
    del records[1].params["input_addrs"]
    executor = DataExecutor(records, arena())
    executor.run_until(1)
    with pytest.raises(Exception, match=r"op 1 \(add on pe0\)"):
        executor.run()
    assert executor.position == 1


def test_a_run_stops_amid_ops_that_are_alike():
    executor = DataExecutor(adds((0, 16, 256), (32, 48, 272), (64, 80, 288)), arena())
    before = executor.store.view("tcm", 288, (16,), "u8").tobytes()
    executor.run_until(2)
    assert executor.position == 2
    assert executor.store.view("tcm", 288, (16,), "u8").tobytes() == before


def test_snapshots_that_differ_are_found_in_order():
    records = adds((0, 16, 256), (32, 48, 272), (64, 80, 288))
    for record, value in zip(records, (5.0, 6.0, 7.0), strict=True):
        record.params["input_snapshots"] = [None, np.full(4, value, np.float32)]
    store = MemoryStore()
    store.write("tcm", 0, np.ones(ARENA // 4, np.float32))
    executor = DataExecutor(records, store)
    executor.run()
    assert executor.findings == [SnapshotFinding(i, 1, 4.0 + i) for i in range(3)]
    assert values(store, 288) == [8, 8, 8, 8]


def test_copies_between_ops_keep_their_place():
    both_ways(
        [
            *adds((0, 16, 256)),
            load(64, 16, t=1.0),
            *(replace(r, t_start=2.0) for r in adds((0, 16, 272))),
        ]
    )


SMALL = st.integers(1, 9)


@for_all(
    SMALL,
    SMALL | st.sampled_from([16, 31, 64]),
    SMALL,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
    st.data(),
    fast=15,
    whole=100,
)
def test_gemms_give_the_same_bits_together(m, k, n, turn_a, turn_b, acc, seed, data):
    dtype = data.draw(st.sampled_from(["f16", "bf16", "f32", "f64", "i8", "i32"]))
    shapes = [(k, m) if turn_a else (m, k), (n, k) if turn_b else (k, n), (m, n)]
    store = MemoryStore()
    rng = np.random.default_rng(seed)
    store.write("hbm", 0, rng.integers(0x30, 0x44, 1 << 14).astype(np.uint8))
    same = data.draw(st.booleans()) and m == n and turn_a != turn_b  # a @ a.T
    records = []
    for i in range(data.draw(st.integers(2, 6))):
        at = data.draw(st.integers(0, 600))
        a = region("hbm", 8 * at, shapes[0], dtype)
        b = region("hbm", a.addr if same else 8 * (at + 81), shapes[1], dtype)
        out = region("tcm", 8 * 81 * i, shapes[2], dtype)
        more = {"acc": region("hbm", 8192, shapes[2], dtype)} if acc else {}
        msg = GemmCmd(
            a=a,
            b=b,
            out=out,
            m=m,
            k=k,
            n=n,
            transpose_a=turn_a,
            transpose_b=turn_b,
            **more,
        )
        records.append(recorded(msg, float(i)))
    alone, shared = (
        DataExecutor(records, store.snapshot(), batch=b) for b in (False, True)
    )
    alone.run()
    shared.run()
    for record in records:
        addr = record.params["dst_addr"]
        shape = record.params["shape_out"]
        found, expected = (
            e.store.view("tcm", addr, shape, dtype) for e in (shared, alone)
        )
        assert found.tobytes() == expected.tobytes()


def test_a_matrix_times_its_own_transpose_gives_the_same_bits_together():
    store = MemoryStore()
    a = region("hbm", 0, (8, 64))
    store.write(
        "hbm", 0, np.random.default_rng(0).standard_normal(a.shape).astype(np.float32)
    )
    out = [region("tcm", 256 * i, (8, 8)) for i in range(2)]
    log = [
        recorded(GemmCmd(a=a, b=a, out=o, m=8, k=64, n=8, transpose_b=True))
        for o in out
    ]
    DataExecutor(log, store).run()
    DataExecutor(log[:1], store, batch=False).run()
    alone, shared = (store.view("tcm", o.addr, o.shape, "f32").tobytes() for o in out)
    assert shared == alone


def test_composites_with_epilogues_give_the_same_bits_together():
    records = []
    for i in range(3):
        a = region("hbm", 8 * i, (2, 4))
        b = region("hbm", 64 + 4 * i, (4, 3))
        steps = (
            Epilogue("relu", "k_tile"),
            Epilogue("bias", operand=region("tcm", 12 * i, (3,))),
            Epilogue("scale", scalar=0.5),
        )
        out = region("hbm", 256 + 24 * i, (2, 3))
        msg = CompositeCmd(
            op="gemm", a=a, b=b, out=out, m=2, k=4, n=3, tile=(2, 3, 2), epilogue=steps
        )
        records.append(recorded(msg, float(i)))
    both_ways(records)
    assert calls(records, "relu") == [(3, 2, 3)] * 2


# -- random logs: aliasing, overlaps, ties, dependencies

SHAPES = [(4,), (2, 4), (1, 4), (2, 1)]
DTYPES = ["f16", "f32", "i32"]
BURST = st.tuples(
    st.sampled_from(
        ["add", "exp", "fma", "where", "scaled", "sum", "full", "gemm", "load", "host"]
    ),
    st.sampled_from(DTYPES),
    st.sampled_from(SHAPES),
    st.lists(
        st.tuples(*[st.integers(0, 60)] * 4, st.integers(0, 3)), min_size=1, max_size=7
    ),
)


def make(kind, dtype, shape, places):
    *addrs, t = places
    spaces = ("tcm", "hbm", "tcm", "tcm")
    a, b, c, out = (
        region(s, 4 * x, shape, dtype) for s, x in zip(spaces, addrs, strict=True)
    )
    if kind == "load":
        return load(b.addr, out.addr, (4,), float(t))
    if kind == "host":
        return host_write(out.addr, [1.5, 2, 3], float(t), dtype)
    if kind == "gemm":
        a, b, out = (region(r.space, r.addr, (2, 2), dtype) for r in (a, b, out))
        return recorded(GemmCmd(a=a, b=b, out=out, m=2, k=2, n=2), float(t))
    if kind == "scaled":
        return math_op("mul", [a], out, float(t), scalars=(0.5,), scalar_positions=(0,))
    if kind == "full":
        return math_op(
            "full", [], out, float(t), scalars=(addrs[0],), scalar_positions=(0,)
        )
    if kind == "sum":
        return math_op(
            "sum", [a], replace(out, shape=(), nbytes=out.nbytes // a.nbytes), float(t)
        )
    return math_op(kind, [a, b, c][: NUMPY_OPS[kind].arity], out, float(t))


@for_all(st.lists(BURST, max_size=6), st.data(), fast=15, whole=80)
def test_random_logs_leave_the_same_bytes(bursts, data):
    records = [make(*burst[:3], places) for burst in bursts for places in burst[3]]
    for i, record in enumerate(records):
        if i and data.draw(st.booleans()):
            record.dependency_ids = [data.draw(st.integers(0, i - 1))]
    final = both_ways(records)
    executor = DataExecutor(records, arena())
    for position in sorted(
        data.draw(st.lists(st.integers(0, len(records)), max_size=3))
    ):
        executor.run_until(position)
    while executor.step() is not None:
        pass
    assert bytes_of(executor.store) == final


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.slow
def test_every_bench_leaves_the_same_bytes(bench_log, name):
    log = bench_log(name)
    alone = DataExecutor(log, batch=False)
    shared = DataExecutor(log)
    alone.run()
    shared.run()
    assert shared.store.spaces() == alone.store.spaces()
    for space in alone.store.spaces():
        for (addr, found), (where, expected) in zip(
            shared.store.extents(space), alone.store.extents(space), strict=True
        ):
            assert (addr, found.tobytes()) == (where, expected.tobytes())

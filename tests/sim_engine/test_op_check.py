"""Debug mode of Phase 2: what is rounding, what is a bug, what has accumulated."""

import math
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from pace import for_all
from phase2_logs import add, host_write, load, math_op, recorded, region

from kernbench.benches import SHIPPED
from kernbench.common.dtypes import np_dtype
from kernbench.common.messages import HostReadCmd
from kernbench.common.pe_commands import CompositeCmd, DmaWriteCmd, Epilogue, GemmCmd
from kernbench.errors import UsageError
from kernbench.sim_engine.data_executor import DataExecutor, execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_check import debug_check, first_over, reference
from kernbench.sim_engine.op_forms import REDUCTION


def store_of(**arrays):
    """tcm=[(addr, array), …]"""
    store = MemoryStore()
    for space, rows in arrays.items():
        for addr, data in rows:
            store.write(space, addr, data)
    return store


def checks(records, store=None, **options):
    return list(debug_check(DataExecutor(records, store, **options)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_no_op_of_a_bench_is_over_its_bound(bench_log, name):
    log = bench_log(name)
    found = checks(log)
    assert first_over(found) is None
    assert all(check.local <= check.bound for check in found)
    assert len(found) == sum("dst_addr" in record.params for record in log)


def dropping(name, bits=12):
    """A table whose op ``name`` loses the low bits of its f32 result."""
    op = NUMPY_OPS[name]

    def function(*operands, **options):
        exact = np.asarray(op.function(*operands, **options), np.float32)
        return (exact.view(np.uint32) >> bits << bits).view(np.float32)

    return NUMPY_OPS | {name: replace(op, function=function)}


def test_the_first_op_that_is_wrong_is_named():
    log = [
        host_write(0, [0.1, 0.2, 0.3, 0.4]),
        load(0, 0, t=1),
        math_op("exp", [region("tcm", 0, (4,))], region("tcm", 16, (4,)), 2),
        math_op("mul", [region("tcm", 0, (4,))] * 2, region("tcm", 32, (4,)), 3),
        math_op("mul", [region("tcm", 16, (4,))] * 2, region("tcm", 48, (4,)), 4),
    ]
    assert first_over(checks(log)) is None
    bad = first_over(checks(log, ops=dropping("mul")))
    assert (bad.position, bad.op_name, bad.component_id) == (3, "mul", "pe0")
    assert bad.over == 4
    assert bad.first_over == (0,)
    assert bad.local > bad.bound
    assert bad.as_text().startswith(
        "op 3 mul on pe0: local error 1.7e-06, rounding explains 5.2e-10,"
    )


def test_the_oracle_is_f64_and_never_rounded():
    store = store_of(tcm=[(0, np.array([1, 2], np.float16))])
    record = math_op(
        "exp", [region("tcm", 0, (2,), "f16")], region("tcm", 64, (2,), "f16")
    )
    found = reference(record, store).value
    assert found.dtype == np.float64
    assert found.tolist() == np.exp([1.0, 2.0]).tolist()
    assert not store.has("tcm", 64)


def test_the_oracle_of_a_copy_is_its_source():
    found = reference(host_write(0, [1, 2], name="bf16"), MemoryStore())
    assert found.value.tolist() == [1, 2]
    assert not found.bound.any()


def gemm(shape_a, shape_b, dtype="f16", **more):
    m, k = shape_a
    n = shape_b[1]
    places = [
        region("tcm", at, shape, dtype) for at, shape in ((0, shape_a), (4096, shape_b))
    ]
    out = region("tcm", 8192, (m, n), dtype)
    return recorded(GemmCmd(a=places[0], b=places[1], out=out, m=m, k=k, n=n, **more))


def test_the_bound_of_a_gemm_is_half_an_ulp_and_n_roundings_of_its_terms():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((4, 64), (64, 8)))
    record = gemm(a.shape, b.shape)
    store = store_of(tcm=[(0, a), (4096, b)])
    found = reference(record, store)
    a = a.astype(np.float64)
    b = b.astype(np.float64)
    assert found.value.tolist() == (a @ b).tolist()
    formula = 2**-11 * np.abs(a @ b) + 65 * 2**-24 * (np.abs(a) @ np.abs(b))
    assert (found.bound <= formula * (1 + 1e-9) + 2**-25).all(), (
        "2^-25: half the least f16"
    )
    execute(record, store)
    actual = store.view("tcm", 8192, (4, 8), "f16")
    assert not found.over(actual).any()
    assert found.over((found.value + 2 * formula + 2**-24).astype(np.float16)).all()


def test_an_f32_sum_in_the_wrong_precision_is_over():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 64), (64, 8)))
    found = reference(gemm(a.shape, b.shape, "f32"), store_of(tcm=[(0, a), (4096, b)]))
    assert not found.over(a @ b).any()
    assert found.over(
        (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)
    ).any()


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_integers_are_exact(dtype):
    a = np.arange(4).astype(np_dtype(dtype)).reshape(2, 2)
    found = reference(gemm((2, 2), (2, 2), dtype), store_of(tcm=[(0, a), (4096, a)]))
    assert not found.over(a @ a).any()
    assert found.over(a @ a + a.dtype.type(1)).all()
    assert not found.bound.any()


def test_integers_beyond_2_53_are_not_over():
    x = np.array([2**62 + 1], np.int64)
    places = [region("tcm", addr, (1,), "i64") for addr in (0, 8)]
    (found,) = checks([math_op("neg", places[:1], places[1])], store_of(tcm=[(0, x)]))
    assert not found.over


def composite(dtype, *epilogue):
    a = region("hbm", 0, (4, 8), dtype)
    b = region("hbm", 512, (8, 4), dtype)
    out = region("hbm", 1024, (4, 4), "f32")
    return CompositeCmd(
        op="gemm", a=a, b=b, out=out, m=4, k=8, n=4, tile=(4, 4, 4), epilogue=epilogue
    )


@pytest.mark.parametrize("dtype", ["f16", "f32", "i8"])
def test_epilogues_are_within_their_bound(dtype):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 9, 32).astype(np_dtype(dtype)) for _ in range(2))
    bias = rng.standard_normal(4).astype(np.float32)
    steps = (
        Epilogue("relu", "k_tile"),
        Epilogue("dequant", scalar=0.1),
        Epilogue("bias", operand=region("tcm", 0, (4,))),
        Epilogue("relu"),
    )
    store = store_of(hbm=[(0, a), (512, b)], tcm=[(0, bias)])
    record = recorded(composite(dtype, *steps))
    (found,) = checks([record], store)
    assert not found.over
    expected = reference(record, store)
    assert found.local <= expected.bound.max() < 1e-4


def test_a_copy_must_be_exact():
    record = load(0, 0)
    data = np.array([1, math.nan, math.inf, 4], np.float32)
    found = reference(record, store_of(hbm=[(0, data)]))
    assert not found.over(data).any()
    assert found.over(np.nextafter(data, np.float32(9))).tolist() == [
        True,
        False,
        True,
        True,
    ]


def test_overflow_of_the_output_is_rounding():
    x = np.array([300, -300, 1, 200], np.float16)
    places = [region("tcm", addr, (4,), "f16") for addr in (0, 8)]
    record = math_op("mul", [places[0]] * 2, places[1])
    found = reference(record, store_of(tcm=[(0, x)]))
    assert not found.over(np.array([math.inf, math.inf, 1, 40000], np.float16)).any()
    assert found.over(
        np.array([65504, -math.inf, math.inf, math.nan], np.float16)
    ).all()


def test_what_is_too_large_for_fp8_e4m3_is_nan():
    x = np.array([30, 2]).astype(np_dtype("fp8_e4m3"))
    places = [region("tcm", addr, (2,), "fp8_e4m3") for addr in (0, 2)]
    (found,) = checks(
        [math_op("mul", [places[0]] * 2, places[1])], store_of(tcm=[(0, x)])
    )
    assert not found.over
    assert found.local == math.inf


def test_a_number_where_the_oracle_has_none_is_over():
    places = [region("tcm", addr, (2,)) for addr in (0, 8)]
    store = store_of(tcm=[(0, np.array([-1, 0], np.float32))])
    found = reference(math_op("log", [places[0]], places[1]), store)
    assert not found.over(np.array([math.nan, -math.inf], np.float32)).any()
    assert found.over(np.array([0, -1e30], np.float32)).all()


@pytest.mark.filterwarnings("error")
def test_a_signalling_nan_is_compared_without_a_warning():
    signalling = np.full(4, 0x7F800001, np.uint32).view(np.float32)
    (found,) = checks([load(0, 0)], store_of(hbm=[(0, signalling)]))
    assert not found.over
    assert found.local == 0


ROWS = sorted(name for name, op in NUMPY_OPS.items() if op.form.computes)
SIZED = st.floats(-(2.0**60), 2.0**60, width=32) | st.floats(-8, 8, width=16)


@pytest.mark.parametrize("name", ROWS)
@for_all(
    data=st.data(),
    dtype=st.sampled_from(["f16", "bf16", "f32", "f64", "i32"]),
    fast=5,
    whole=20,
)
def test_every_op_is_within_its_bound(name, data, dtype):
    op = NUMPY_OPS[name]
    shape = (3, 8)
    drawn = [
        data.draw(arrays(np.float64, shape, elements=SIZED)) for _ in range(op.arity)
    ]
    with np.errstate(all="ignore"):
        drawn = [x.astype(np_dtype(dtype)) for x in drawn]
    store = store_of(tcm=[(1024 * i, x) for i, x in enumerate(drawn)])
    inputs = [region("tcm", 1024 * i, shape, dtype) for i in range(op.arity)]
    reduces = op.form == REDUCTION
    result = op.form.shape([shape], axis=0 if reduces else None, keepdims=False)
    out = region("hbm", 0, result, data.draw(st.sampled_from(["f32", dtype])))
    record = math_op(name, inputs, out, axis=0 if reduces else None)
    (found,) = checks([record], store)
    assert not found.over, found.as_text()


@pytest.mark.parametrize(
    ("dtype", "to", "values", "over"),
    [
        ("i32", "i8", [1, -2, 200, 300], 2),
        ("i32", "i8", [127, -128, 0, 5], 0),
        ("f32", "i8", [1.5, -300.0, 127.9, -128.9], 1),
        ("f32", "i32", [3e9, -1.0, 2.0, 0.0], 1),
        ("f32", "i32", [math.nan, -1.0, 2.0, 0.0], 1),
        ("f32", "i32", [math.inf, -1.0, 2.0, 0.0], 1),
        ("i32", "f32", [200, 2**24 + 1, -5, 0], 0),
    ],
)
def test_no_rounding_explains_a_cast_to_what_an_integer_has_not(
    dtype, to, values, over
):
    x = np.array(values, np_dtype(dtype))
    source = region("tcm", 0, x.shape, dtype)
    record = math_op("cast", [source], region("tcm", 64, x.shape, to))
    with np.errstate(invalid="ignore"):
        (found,) = checks([record], store_of(tcm=[(0, x)]))
    assert found.over == over


def test_of_a_cast_of_nan_it_is_said_that_it_has_no_integer():
    x = np.array([3e9, math.nan], np.float32)
    source = region("tcm", 0, x.shape, "f32")
    record = math_op("cast", [source], region("tcm", 64, x.shape, "i32"))
    for values, is_of_nan in ((x, False), (x[::-1], True)):
        with np.errstate(invalid="ignore"):
            (found,) = checks([record], store_of(tcm=[(0, values.copy())]))
        assert found.is_of_nan == is_of_nan
        assert ("NaN has no integer" in found.as_text()) == is_of_nan
        assert not found.overflows


def test_sums_of_integers_may_wrap():
    x = np.array([100, 1], np.int8)
    source = region("tcm", 0, x.shape, "i8")
    record = math_op("add", [source, source], region("tcm", 64, x.shape, "i8"))
    (found,) = checks([record], store_of(tcm=[(0, x)]))
    assert not found.over


def test_scalars_are_values_of_the_dtype_that_computes():
    x = np.array([0.1, 0.2], np.float32)
    places = [region("tcm", addr, (2,)) for addr in (0, 8)]
    record = math_op(
        "sub", [places[0]], places[1], scalars=(0.1,), scalar_positions=(1,)
    )
    (found,) = checks([record], store_of(tcm=[(0, x)]))
    assert not found.over
    assert found.local < 1e-8


# -- what accumulates


def test_rounding_accumulates_while_each_op_is_within_its_bound():
    one, small, total = (region("tcm", addr, (1,), "f16") for addr in (0, 2, 4))
    store = store_of(tcm=[(0, np.array([1, 2**-12], np.float16))])
    log = [math_op("add", [total if t else one, small], total, t) for t in range(8)]
    found = checks(log, store)
    assert [check.accumulated for check in found] == [2**-12 * t for t in range(1, 9)]
    assert {check.local for check in found} == {2**-12}
    assert not any(check.over for check in found)


def thirds(addr):
    """An f32 that is not what the oracle has, and a use of it."""
    x = region("tcm", addr, (2,))
    return math_op("div", [region("tcm", 0, (2,)), region("tcm", 8, (2,))], x, 0), x


NUMBERS = [(0, np.array([1, 2, 3, 3], np.float32))]


def test_the_oracle_goes_on_from_its_own_results():
    third, x = thirds(64)
    found = checks(
        [third, math_op("neg", [x], region("tcm", 128, (2,)), 1)], store_of(tcm=NUMBERS)
    )
    assert found[1].local == 0
    assert found[1].accumulated == found[0].accumulated > 0


def test_bytes_read_as_another_dtype_are_the_real_ones():
    third, _ = thirds(64)
    integers = region("tcm", 64, (2,), "i32")
    log = [third, math_op("neg", [integers], region("tcm", 128, (2,), "i32"), 1)]
    assert checks(log, store_of(tcm=NUMBERS))[1].accumulated == 0


def test_bytes_out_of_step_with_their_elements_are_the_real_ones():
    third, _ = thirds(64)
    log = [
        third,
        math_op("neg", [region("tcm", 66, (1,))], region("tcm", 128, (1,)), 1),
    ]
    assert checks(log, store_of(tcm=NUMBERS))[1].accumulated == 0


def test_bytes_written_since_are_the_real_ones():
    third, x = thirds(64)
    over = math_op(
        "neg", [region("tcm", 0, (1,), "i32")], region("tcm", 68, (1,), "i32"), 1
    )
    log = [third, over, math_op("neg", [x], region("tcm", 128, (2,)), 2)]
    assert checks(log, store_of(tcm=NUMBERS))[2].accumulated == 0


def test_snapshots_are_ready_data():
    third, x = thirds(64)
    log = [third, math_op("neg", [x], region("tcm", 128, (2,)), 1)]
    log[1].params["input_snapshots"] = [np.array([1, 2], np.float32) / np.float32(3)]
    assert checks(log, store_of(tcm=NUMBERS))[1].accumulated == 0


def test_ops_that_write_nothing_have_no_check():
    read = recorded(HostReadCmd(src=region("hbm", 0, (4,))))
    assert checks([read]) == []
    with pytest.raises(UsageError, match="host_read has no output"):
        reference(read, MemoryStore())


def test_stores_are_checked_too():
    write = DmaWriteCmd(src=region("tcm", 64, (4,)), dst_addr=512, handle_id="h")
    log = [
        host_write(0, [1, 2, 3, 4]),
        load(0, 0, t=1),
        add(0, 0, 64, 2),
        recorded(write, 3),
    ]
    assert [check.op_name for check in checks(log)] == [
        "host_write",
        "dma_read",
        "add",
        "dma_write",
    ]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
    data=st.data(),
)
def test_some_rows_and_columns_of_a_product_have_the_oracle_of_the_whole(
    sizes, turned, data
):
    m, k, n = sizes
    a = region("tcm", 0, (k, m) if turned[0] else (m, k))
    b = (n, k) if turned[1] else (k, n)
    row = region("hbm", 0, (n,))
    out = region("tcm", 2048, (m, n))
    rng = np.random.default_rng(0)
    store = store_of(
        tcm=[
            (i * 1024, rng.standard_normal(r).astype("f4"))
            for i, r in enumerate((a.shape, b))
        ],
        hbm=[(0, rng.standard_normal(n).astype("f4"))],
    )
    cmd = CompositeCmd(
        op="gemm",
        a=a,
        b=region("tcm", 1024, b),
        out=out,
        m=m,
        k=k,
        n=n,
        tile=(2, 2, 2),
        transpose_a=turned[0],
        transpose_b=turned[1],
        epilogue=(Epilogue("bias", operand=row),),
    )
    grid = tuple(
        np.array(sorted(data.draw(st.sets(st.integers(0, extent - 1), min_size=1))))
        for extent in (m, n)
    )
    whole = reference(recorded(cmd), store)
    part = reference(recorded(cmd), store, grid)
    for name in ("value", "low", "high"):
        expected = getattr(whole, name)[np.ix_(*grid)]
        np.testing.assert_allclose(getattr(part, name), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        part.value, whole.value[np.ix_(*grid)], rtol=1e-12, atol=1e-12
    )

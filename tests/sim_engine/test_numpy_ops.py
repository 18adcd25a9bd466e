import numpy as np
import pytest

from kernbench.common.dtypes import np_dtype
from kernbench.errors import UsageError
from kernbench.sim_engine.numpy_ops import (
    NUMPY_OPS,
    Step,
    bind,
    cost_cycles,
    gemm,
    numpy_op,
    rounded,
)

X = np.array([0.25, 1.0, 4.0], np.float32)
Y = np.array([2.0, -1.0, 0.5], np.float32)


def apply(op, operands, shape, *options, wide=False):
    slots = [x.dtype if isinstance(x, np.ndarray) else x for x in operands]
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    with np.errstate(all="ignore"):
        return bind(op, slots, *options, wide=wide)(arrays, shape)


# name -> operands, expected in f64
MEANING = {
    "exp": ((X,), np.exp([0.25, 1, 4])),
    "log": ((X,), np.log([0.25, 1, 4])),
    "sqrt": ((X,), [0.5, 1, 2]),
    "rsqrt": ((X,), [2, 1, 0.5]),
    "tanh": ((X,), np.tanh([0.25, 1, 4])),
    "sigmoid": ((Y,), [1 / (1 + np.exp(-y)) for y in (2.0, -1.0, 0.5)]),
    "abs": ((Y,), [2, 1, 0.5]),
    "neg": ((Y,), [-2, 1, -0.5]),
    "cast": ((Y,), [2, -1, 0.5]),
    "relu": ((Y,), [2, 0, 0.5]),
    "add": ((X, Y), [2.25, 0, 4.5]),
    "sub": ((X, Y), [-1.75, 2, 3.5]),
    "mul": ((X, Y), [0.5, -1, 2]),
    "div": ((X, Y), [0.125, -1, 8]),
    "maximum": ((X, Y), [2, 1, 4]),
    "minimum": ((X, Y), [0.25, -1, 0.5]),
    "where": ((np.array([True, False, True]), X, Y), [0.25, -1, 4]),
    "fma": ((X, Y, 1.0), [1.5, 0, 3]),
    "clamp": ((Y, -0.5, 1.0), [1, -0.5, 0.5]),
    "sum": ((X,), 5.25),
    "max": ((Y,), 2),
    "min": ((Y,), -1),
    "softmax": ((X,), np.exp([0.25, 1, 4]) / np.exp([0.25, 1, 4]).sum()),
    "eq": ((Y, 0.5), [0, 0, 1]),
    "ne": ((Y, 0.5), [1, 1, 0]),
    "lt": ((Y, 0.5), [0, 1, 0]),
    "le": ((Y, 0.5), [0, 1, 1]),
    "gt": ((Y, 0.5), [1, 0, 0]),
    "ge": ((Y, 0.5), [1, 0, 1]),
    "copy": ((Y,), [2, -1, 0.5]),
    "full": ((7.0,), [7, 7, 7]),
    "arange": ((2.0,), [2, 3, 4]),
    "scale": ((Y, 3.0), [6, -3, 1.5]),
    "bias": ((Y, X), [2.25, 0, 4.5]),
    "dequant": ((Y, 0.5), [1, -0.5, 0.25]),
}


def test_every_row_has_its_meaning_tested():
    assert set(MEANING) == set(NUMPY_OPS)


@pytest.mark.parametrize("name", MEANING)
def test_meaning(name):
    operands, expected = MEANING[name]
    found = apply(numpy_op(name), operands, np.shape(expected))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=3e-7)


@pytest.mark.parametrize("name", NUMPY_OPS)
def test_every_op_costs_time(name):
    assert cost_cycles(name) >= 1


def test_a_transcendental_costs_more_than_an_add():
    assert cost_cycles("softmax") > cost_cycles("exp") > cost_cycles("add") == 1


def test_an_unknown_op_lists_the_valid_ones():
    with pytest.raises(UsageError, match=r"'gelu'; valid: exp, log"):
        numpy_op("gelu")


@pytest.mark.parametrize(
    ("name", "operands"), [("add", (X,)), ("exp", (X, X)), ("copy", ())]
)
def test_a_wrong_number_of_operands_is_refused(name, operands):
    with pytest.raises(UsageError, match="operands"):
        apply(numpy_op(name), operands, (3,))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_small_floats_are_computed_in_f32_and_rounded_once(dtype):
    x = np.linspace(0.1, 3, 50).astype(np_dtype(dtype))
    found = apply(numpy_op("exp"), (x,), (50,))
    assert found.dtype == np.float32
    once = np.exp(x.astype(np.float32)).astype(np_dtype(dtype))
    assert rounded(found, dtype).tobytes() == once.tobytes()


@pytest.mark.parametrize(
    ("dtype", "big"), [("f32", 3e38), ("bf16", 3e38), ("f16", 6e4)]
)
def test_an_fma_rounds_once_so_a_product_may_be_too_large_or_too_fine(dtype, big):
    a, b, c = np.array([[big, 1 + 2**-7], [2, 1 - 2**-7], [-big, -1]]).astype(
        np_dtype(dtype)
    )
    once = a.astype(float) * b.astype(float) + c.astype(float)
    found = rounded(apply(numpy_op("fma"), (a, b, c), (2,)), dtype)
    assert found.tolist() == once.astype(np_dtype(dtype)).tolist()
    assert found[0] == a[0]


def test_an_fma_of_integers_wraps_and_one_of_bool_is_logical():
    a = np.array([200], np.uint8)
    assert apply(numpy_op("fma"), (a, a, a), (1,)).tolist() == [(200 * 200 + 200) % 256]
    yes = np.array([True])
    assert apply(numpy_op("fma"), (yes, yes, yes), (1,)).tolist() == [True]


def test_f64_stays_f64_and_the_oracle_widens_f32():
    assert apply(numpy_op("add"), (X.astype(np.float64), Y), (3,)).dtype == np.float64
    assert apply(numpy_op("add"), (X, Y), (3,), wide=True).dtype == np.float64


def test_a_long_f16_sum_does_not_stall_at_2048():
    ones = np.ones(5000, np.float16)
    assert rounded(apply(numpy_op("sum"), (ones,), ()), "f16") == np.float16(5000)


def test_integers_wrap_in_the_output_dtype():
    x = np.array([250, 3], np.uint8)
    assert rounded(apply(numpy_op("add"), (x, 10.0), (2,)), "u8").tolist() == [4, 13]


def test_a_scalar_beyond_the_integer_dtype_compares_by_value():
    x = np.array([44, 255], np.uint8)
    assert apply(numpy_op("lt"), (x, 300.0), (2,)).tolist() == [True, True]
    assert apply(numpy_op("gt"), (x, -1.0), (2,)).tolist() == [True, True]


def test_big_integers_are_exact():
    x = np.array([2**53 + 1], np.int64)
    assert apply(numpy_op("add"), (x, 2.0), (1,)).tolist() == [2**53 + 3]


def test_integer_division_is_rounded_towards_zero_by_an_integer_output():
    x, y = np.array([7, -7], np.int32), np.array([2, 2], np.int32)
    found = apply(numpy_op("div"), (x, y), (2,))
    assert found.tolist() == [3.5, -3.5]
    assert rounded(found, "i32").tolist() == [3, -3]


def test_functions_that_leave_the_integers_do_not_use_half_precision():
    found = apply(numpy_op("sqrt"), (np.array([2], np.int8),), (1,))
    assert found.dtype == np.float64


def test_softmax_of_large_values_does_not_overflow():
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0]], np.float32)
    assert apply(numpy_op("softmax"), (x,), (2, 2)).tolist() == [[0.5, 0.5], [0, 1]]


@pytest.mark.parametrize(
    ("axis", "keepdims", "shape", "expected"),
    [
        (0, False, (3,), [3, 5, 7]),
        (1, True, (2, 1), [[3], [12]]),
        (None, False, (), 15),
    ],
)
def test_reductions_take_axis_and_keepdims(axis, keepdims, shape, expected):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert apply(numpy_op("sum"), (x,), shape, axis, keepdims).tolist() == expected


def test_operands_broadcast():
    found = apply(numpy_op("sub"), (1.0, X.reshape(3, 1), Y)[1:], (3, 3))
    assert found.tolist() == np.subtract.outer(X, Y).tolist()


def test_a_copy_with_strides_walks_its_source():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    transposed = apply(numpy_op("copy"), (x, 0.0, 1.0, 4.0), (4, 3))
    assert transposed.tolist() == x.T.tolist()
    block = apply(numpy_op("copy"), (x, 5.0, 4.0, 1.0), (2, 2))
    assert block.tolist() == x[1:3, 1:3].tolist()
    with pytest.raises(UsageError, match=r"elements 5 to 13 of a tensor of 12"):
        apply(numpy_op("copy"), (x, 5.0, 4.0, 1.0), (3, 1))


def test_arange_counts_on_from_its_start_and_ignores_its_end():
    assert apply(numpy_op("arange"), (3.0, 6.0), (3,)).tolist() == [3, 4, 5]
    assert apply(numpy_op("arange"), (), (2,)).tolist() == [0, 1]


def test_rounding_overflows_to_infinity_without_a_warning():
    assert rounded(np.array([1e6], np.float32), "f16").tolist() == [np.inf]


def test_rounded_is_contiguous_and_keeps_a_scalar_scalar():
    assert rounded(np.eye(3, dtype=np.float32).T[:, ::2], "f16").flags.c_contiguous
    assert rounded(np.asarray(2.0), "f32").shape == ()


def f16(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def test_gemm_of_f16_multiplies_in_f32():
    a, b = f16(8, 300), f16(300, 5, seed=1)
    found = gemm(a, b)
    assert found.dtype == np.float32
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=1e-4)
    assert np.abs(rounded(found, "f16") - exact).max() <= np.abs(exact).max() * 2**-11


def test_gemm_adds_its_accumulator_before_rounding():
    a, acc = np.full((1, 1), 2.0**-12, np.float16), np.ones((1, 1), np.float16)
    total = gemm(a, a / a, acc)
    assert total.tolist() == [[1 + 2.0**-12]]


def test_gemm_of_f64_and_the_oracle_are_f64():
    a, b = f16(2, 3), f16(3, 2)
    assert gemm(a.astype(np.float64), b).dtype == np.float64
    assert gemm(a, b, dtype_acc="f64").dtype == np.float64
    assert (
        gemm(a, b, wide=True).tolist() == (a.astype(float) @ b.astype(float)).tolist()
    )


def test_gemm_of_small_integers_does_not_overflow_them():
    a = np.full((1, 4), 127, np.int8)
    assert gemm(a, a.T).tolist() == [[4 * 127 * 127]]


def test_gemm_of_wide_integers_uses_i64():
    a = np.array([[2**40]], np.int64)
    assert gemm(a, np.array([[5]], np.int64)).tolist() == [[5 * 2**40]]
    b = np.array([[2**20]], np.int32)
    assert gemm(b, b, dtype_acc="i64").tolist() == [[2**40]]


def test_gemm_of_no_columns_is_zero():
    assert (
        gemm(np.empty((2, 0), np.float32), np.empty((0, 3), np.float32)).tolist()
        == [[0] * 3] * 2
    )


def test_an_output_tile_epilogue_runs_once_on_the_finished_sum_in_order():
    a, b = f16(4, 32), f16(32, 3, seed=1)
    bias = np.array([1, -2, 3], np.float16)
    steps = [Step(NUMPY_OPS["bias"], operand=bias), Step(NUMPY_OPS["relu"])]
    steps.append(Step(NUMPY_OPS["scale"], operand=0.5))
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0) * 0.5
    np.testing.assert_allclose(
        gemm(a, b, steps=steps, tile_k=8), expected, rtol=1e-5, atol=1e-5
    )


def test_a_k_tile_epilogue_runs_on_each_partial_product():
    a, b = f16(4, 20), f16(20, 3, seed=1)
    steps = [Step(NUMPY_OPS["relu"], "k_tile"), Step(NUMPY_OPS["neg"])]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    parts = [
        np.maximum(wide_a[:, i : i + 8] @ wide_b[i : i + 8], 0) for i in (0, 8, 16)
    ]
    found = gemm(a, b, steps=steps, tile_k=8)
    np.testing.assert_allclose(found, -sum(parts), rtol=1e-5, atol=1e-5)


def test_gemm_can_be_moved_by_the_magnitudes_of_its_terms():
    a, b, acc = np.array([[1.0, -2.0]]), np.array([[3.0], [1.0]]), np.array([[-4.0]])
    assert gemm(a, b, acc).tolist() == [[-3]]
    assert gemm(a, b, acc, slack=0.5).tolist() == [[-3 + 0.5 * (3 + 2 + 4)]]
    relu = [Step(NUMPY_OPS["relu"])]
    assert gemm(a, b, acc, steps=relu, slack=0.5).tolist() == [[1.5]]


def test_gemm_leaves_a_matrix_that_is_both_operands_alone():
    a = f16(3, 3).astype(np.float32)
    before = a.copy()
    assert gemm(a, a.T).tolist() == (before @ before.T.copy(order="K")).tolist()
    assert a.tolist() == before.tolist()


def test_a_bound_op_takes_its_scalars_where_they_stand():
    f = bind(NUMPY_OPS["sub"], [1.0, X.dtype])
    assert f([X], (3,)).tolist() == [0.75, 0, -3]


def test_a_bound_elementwise_op_takes_one_more_axis():
    f = bind(NUMPY_OPS["add"], [X.dtype, 1.0])
    assert f([np.stack([X, Y])], (2, 3)).tolist() == [[1.25, 2, 5], [3, 0, 1.5]]


def test_the_scalars_of_an_oracle_are_those_of_the_op():
    f = bind(NUMPY_OPS["add"], [X.dtype, 0.1], wide=True)
    assert f([X], (3,))[0] == 0.25 + float(np.float32(0.1))


def test_dequantised_integers_leave_the_integers():
    a = np.array([[3]], np.int8)
    steps = [Step(NUMPY_OPS["dequant"], operand=np.array([0.25], np.float32))]
    assert gemm(a, a, steps=steps).tolist() == [[2.25]]

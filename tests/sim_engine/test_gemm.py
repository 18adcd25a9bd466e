"""The matrix product with its epilogue: dtypes, order of the steps, error bounds."""

import numpy as np

from kernbench.sim_engine.arithmetic import rounded
from kernbench.sim_engine.gemm import Step, gemm
from kernbench.sim_engine.numpy_ops import NUMPY_OPS


def f16(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def test_gemm_of_f16_multiplies_in_f32():
    a = f16(8, 300)
    b = f16(300, 5, seed=1)
    found = gemm(a, b)
    assert found.dtype == np.float32
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=1e-4)
    assert np.abs(rounded(found, "f16") - exact).max() <= np.abs(exact).max() * 2**-11


def test_gemm_adds_its_accumulator_before_rounding():
    a = np.full((1, 1), 2.0**-12, np.float16)
    acc = np.ones((1, 1), np.float16)
    total = gemm(a, a / a, acc)
    assert total.tolist() == [[1 + 2.0**-12]]


def test_gemm_of_f64_and_the_oracle_are_f64():
    a = f16(2, 3)
    b = f16(3, 2)
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
    a = f16(4, 32)
    b = f16(32, 3, seed=1)
    bias = np.array([1, -2, 3], np.float16)
    steps = [Step(NUMPY_OPS["bias"], operand=bias), Step(NUMPY_OPS["relu"])]
    steps.append(Step(NUMPY_OPS["scale"], operand=0.5))
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0) * 0.5
    np.testing.assert_allclose(
        gemm(a, b, steps=steps, tile_k=8), expected, rtol=1e-5, atol=1e-5
    )


def test_a_k_tile_epilogue_runs_on_each_partial_product():
    a = f16(4, 20)
    b = f16(20, 3, seed=1)
    steps = [Step(NUMPY_OPS["relu"], "k_tile"), Step(NUMPY_OPS["neg"])]
    wide_a = a.astype(np.float64)
    wide_b = b.astype(np.float64)
    parts = [
        np.maximum(wide_a[:, i : i + 8] @ wide_b[i : i + 8], 0) for i in (0, 8, 16)
    ]
    found = gemm(a, b, steps=steps, tile_k=8)
    np.testing.assert_allclose(found, -sum(parts), rtol=1e-5, atol=1e-5)


def test_gemm_can_be_moved_by_the_magnitudes_of_its_terms():
    a = np.array([[1.0, -2.0]])
    b = np.array([[3.0], [1.0]])
    acc = np.array([[-4.0]])
    assert gemm(a, b, acc).tolist() == [[-3]]
    assert gemm(a, b, acc, slack=0.5).tolist() == [[-3 + 0.5 * (3 + 2 + 4)]]
    relu = [Step(NUMPY_OPS["relu"])]
    assert gemm(a, b, acc, steps=relu, slack=0.5).tolist() == [[1.5]]


def test_gemm_leaves_a_matrix_that_is_both_operands_alone():
    a = f16(3, 3).astype(np.float32)
    before = a.copy()
    assert gemm(a, a.T).tolist() == (before @ before.T.copy(order="K")).tolist()
    assert a.tolist() == before.tolist()


def test_dequantised_integers_leave_the_integers():
    a = np.array([[3]], np.int8)
    steps = [Step(NUMPY_OPS["dequant"], operand=np.array([0.25], np.float32))]
    assert gemm(a, a, steps=steps).tolist() == [[2.25]]

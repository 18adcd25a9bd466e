"""What every row of the table computes, in which dtype, and what it costs."""

import inspect

import numpy as np
import pytest
from op_cases import OP_CASES, X, Y

from kernbench.common.dtypes import np_dtype
from kernbench.errors import UsageError
from kernbench.sim_engine.arithmetic import rounded
from kernbench.sim_engine.numpy_ops import NUMPY_OPS, cost_cycles, op_spec


def apply(name, operands, shape, *options, wide=False):
    """The op ``name`` of arrays and numbers, not yet rounded."""
    slots = [x.dtype if isinstance(x, np.ndarray) else x for x in operands]
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    with np.errstate(all="ignore"):
        return op_spec(name).bind(slots, *options, wide=wide)(arrays, shape)


def test_every_row_has_its_case():
    assert set(OP_CASES) == set(NUMPY_OPS)


def test_every_row_stands_under_its_own_name():
    assert [spec.name for spec in NUMPY_OPS.values()] == list(NUMPY_OPS)


@pytest.mark.parametrize("name", OP_CASES)
def test_an_op_gives_what_it_means(name):
    case = OP_CASES[name]
    found = apply(name, case.operands, np.shape(case.expected))
    np.testing.assert_allclose(found.astype(np.float64), case.expected, rtol=3e-7)


@pytest.mark.parametrize("name", [n for n, op in NUMPY_OPS.items() if op.call])
def test_a_call_has_a_name_and_a_line_of_help_for_a_kernel(name):
    spec = NUMPY_OPS[name]
    assert name.isidentifier()
    assert spec.help.endswith(".")


ISSUED = "what tl issues"


@pytest.mark.parametrize(
    "name", [n for n, op in NUMPY_OPS.items() if op.call and op.arity]
)
def test_a_call_hands_over_as_many_operands_as_the_op_takes(name):
    spec = NUMPY_OPS[name]
    needed = []
    for parameter in list(inspect.signature(spec.call).parameters.values())[1:]:
        if parameter.default is parameter.empty:
            needed.append((3,))
    seen = []

    def issue(*operands, **options):
        seen.append(operands)
        return ISSUED

    assert spec.call(issue, *needed) is ISSUED
    assert [len(operands) for operands in seen] == [spec.arity]


@pytest.mark.parametrize("name", NUMPY_OPS)
def test_every_op_costs_time(name):
    assert cost_cycles(name) >= 1


def test_a_transcendental_costs_more_than_an_add():
    assert cost_cycles("softmax") > cost_cycles("exp") > cost_cycles("add") == 1


def test_an_unknown_op_lists_the_valid_ones():
    with pytest.raises(UsageError, match=r"'gelu'; valid: exp, exp2, log"):
        op_spec("gelu")


@pytest.mark.parametrize(
    ("name", "operands"), [("add", (X,)), ("exp", (X, X)), ("copy", ())]
)
def test_a_wrong_number_of_operands_is_refused(name, operands):
    with pytest.raises(UsageError, match="operands"):
        apply(name, operands, (3,))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_small_floats_are_computed_in_f32_and_rounded_once(dtype):
    x = np.linspace(0.1, 3, 50).astype(np_dtype(dtype))
    found = apply("exp", (x,), (50,))
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
    found = rounded(apply("fma", (a, b, c), (2,)), dtype)
    assert found.tolist() == once.astype(np_dtype(dtype)).tolist()
    assert found[0] == a[0]


def test_an_fma_of_integers_wraps_and_one_of_bool_is_logical():
    a = np.array([200], np.uint8)
    assert apply("fma", (a, a, a), (1,)).tolist() == [(200 * 200 + 200) % 256]
    yes = np.array([True])
    assert apply("fma", (yes, yes, yes), (1,)).tolist() == [True]


def test_f64_stays_f64_and_the_oracle_widens_f32():
    assert apply("add", (X.astype(np.float64), Y), (3,)).dtype == np.float64
    assert apply("add", (X, Y), (3,), wide=True).dtype == np.float64


def test_a_long_f16_sum_does_not_stall_at_2048():
    ones = np.ones(5000, np.float16)
    assert rounded(apply("sum", (ones,), ()), "f16") == np.float16(5000)


def test_integers_wrap_in_the_output_dtype():
    x = np.array([250, 3], np.uint8)
    assert rounded(apply("add", (x, 10.0), (2,)), "u8").tolist() == [4, 13]


def test_a_scalar_beyond_the_integer_dtype_compares_by_value():
    x = np.array([44, 255], np.uint8)
    assert apply("lt", (x, 300.0), (2,)).tolist() == [True, True]
    assert apply("gt", (x, -1.0), (2,)).tolist() == [True, True]


def test_a_scalar_of_more_than_32_bits_leaves_integers_exact():
    x = np.array([2**53 + 1, -(2**53) - 1], np.int64)
    assert apply("eq", (x, 2.0**53), (2,)).tolist() == [False, False]
    added = apply("add", (x, 2.0**40), (2,)) - 2**40
    assert added.tolist() == x.tolist()


def test_big_integers_are_exact():
    x = np.array([2**53 + 1], np.int64)
    assert apply("add", (x, 2.0), (1,)).tolist() == [2**53 + 3]


def test_integer_division_is_rounded_towards_zero_by_an_integer_output():
    x = np.array([7, -7], np.int32)
    y = np.array([2, 2], np.int32)
    found = apply("div", (x, y), (2,))
    assert found.tolist() == [3.5, -3.5]
    assert rounded(found, "i32").tolist() == [3, -3]


def test_functions_that_leave_the_integers_do_not_use_half_precision():
    found = apply("sqrt", (np.array([2], np.int8),), (1,))
    assert found.dtype == np.float64


def test_softmax_of_large_values_does_not_overflow():
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0]], np.float32)
    assert apply("softmax", (x,), (2, 2)).tolist() == [[0.5, 0.5], [0, 1]]


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
    assert apply("sum", (x,), shape, axis, keepdims).tolist() == expected


def test_operands_broadcast():
    found = apply("sub", (1.0, X.reshape(3, 1), Y)[1:], (3, 3))
    assert found.tolist() == np.subtract.outer(X, Y).tolist()


def test_a_copy_with_strides_walks_its_source():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    transposed = apply("copy", (x, 0.0, 1.0, 4.0), (4, 3))
    assert transposed.tolist() == x.T.tolist()
    block = apply("copy", (x, 5.0, 4.0, 1.0), (2, 2))
    assert block.tolist() == x[1:3, 1:3].tolist()
    with pytest.raises(UsageError, match=r"elements 5 to 13 of a tensor of 12"):
        apply("copy", (x, 5.0, 4.0, 1.0), (3, 1))


def test_arange_counts_on_from_its_start_and_ignores_its_end():
    assert apply("arange", (3.0, 6.0), (3,)).tolist() == [3, 4, 5]
    assert apply("arange", (), (2,)).tolist() == [0, 1]


def test_rounding_overflows_to_infinity_without_a_warning():
    assert rounded(np.array([1e6], np.float32), "f16").tolist() == [np.inf]


def test_rounded_is_contiguous_and_keeps_a_scalar_scalar():
    assert rounded(np.eye(3, dtype=np.float32).T[:, ::2], "f16").flags.c_contiguous
    assert rounded(np.asarray(2.0), "f32").shape == ()


def test_a_bound_op_takes_its_scalars_where_they_stand():
    f = NUMPY_OPS["sub"].bind([1.0, X.dtype])
    assert f([X], (3,)).tolist() == [0.75, 0, -3]


def test_a_bound_elementwise_op_takes_one_more_axis():
    f = NUMPY_OPS["add"].bind([X.dtype, 1.0])
    assert f([np.stack([X, Y])], (2, 3)).tolist() == [[1.25, 2, 5], [3, 0, 1.5]]


def test_the_scalars_of_an_oracle_are_those_of_the_op():
    f = NUMPY_OPS["add"].bind([X.dtype, 0.1], wide=True)
    assert f([X], (3,))[0] == 0.25 + float(np.float32(0.1))

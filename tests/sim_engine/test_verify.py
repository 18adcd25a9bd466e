import math

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from kernbench.common.dtypes import DTYPES, Tolerance, dtype, is_float, np_dtype
from kernbench.errors import VerificationError
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.verify import (
    Expectation,
    VerifyReport,
    compare,
    fits,
    judge,
    mismatches,
    ulp_distance,
)

EXACT = Tolerance()
FLOATS = [name for name in DTYPES if is_float(name)]


def of(values, name="f32"):
    return np.array(values, np.float64).astype(np_dtype(name))


@pytest.mark.parametrize("name", DTYPES)
def test_equal_data_are_ok(name):
    x = of([0, 1, 1, 0], name)
    row = compare(x, x.copy(), EXACT)
    assert row.ok
    assert (row.dtype, row.elements, row.mismatches, row.max_ulp) == (name, 4, 0, 0)
    assert row.first_bad is None


def test_the_tolerance_is_absolute_plus_relative_to_the_reference():
    reference = of([0.0, 100.0], "f64")
    tolerance = Tolerance(rtol=0.01, atol=0.5)
    assert compare(of([0.5, 101.5], "f64"), reference, tolerance).ok
    row = compare(of([0.51, 101.6], "f64"), reference, tolerance)
    assert row.mismatches == 2


def test_errors_are_measured_and_the_first_bad_element_located():
    expected = of([[1, 2, 4], [8, 16, 0]])
    actual = of([[1, 2, 4], [8, 20, 1]])
    row = compare(actual, expected, EXACT, name="out", origin=(10, 100))
    assert (row.mismatches, row.max_abs, row.max_rel) == (2, 4, 0.25)
    assert row.first_bad == (11, 101)
    assert row.tensor == row.name == "out"


def test_nan_and_infinity_are_equal_to_themselves_only():
    nan = math.nan
    inf = math.inf
    expected = of([nan, inf, -inf, 1, nan, inf, 2])
    actual = of([nan, inf, -inf, 1, 0, -inf, nan])
    row = compare(actual, expected, Tolerance(1.0, 1e9))
    assert row.mismatches == 3
    assert row.first_bad == (4,)
    assert (row.nans, row.infs) == ((2, 2), (3, 3))
    assert row.max_abs == 0, "maxima are of finite pairs"


def test_integers_differ_exactly_although_f64_could_not_tell():
    big = np.array([2**62 + 1, -(2**63)], np.int64)
    row = compare(big, np.array([2**62, 2**63 - 1], np.int64), EXACT)
    assert row.mismatches == 2
    assert row.max_abs == 2.0**64


def test_bool_is_exact():
    row = compare(np.array([True, False]), np.array([True, True]), EXACT)
    assert (row.mismatches, row.max_abs) == (1, 1)


def test_an_f16_is_compared_with_its_f64_oracle_by_value():
    oracle = np.array([1 + 2**-12, 1000.3])
    row = compare(oracle.astype(np.float16), oracle, dtype("f16").tolerance)
    assert row.ok
    assert row.max_ulp == 0, "the oracle rounds to the very value"
    assert row.max_abs == pytest.approx(0.2)


def test_an_integer_is_compared_with_the_whole_part_of_its_f64_oracle():
    oracle = np.array([-1.75, -0.75, 0.5, 2.999, 300.0, -129.0])
    with np.errstate(invalid="ignore"):
        stored = oracle.astype(np.int8)
    row = compare(stored, oracle, EXACT)
    # an i8 has neither 300 nor -129
    assert (row.mismatches, row.first_bad) == (2, (4,))
    assert mismatches(stored, oracle, EXACT).tolist() == [False] * 4 + [True] * 2
    assert compare(stored[:4], oracle[:4], EXACT).ok
    assert compare(oracle[:4] != 0, oracle[:4], EXACT).ok


def test_other_shapes_cannot_be_compared():
    with pytest.raises(VerificationError, match=r"\(2, 3\).*\(6,\)"):
        compare(np.zeros((2, 3)), np.zeros(6), EXACT)


def test_no_elements_are_ok():
    assert compare(np.empty((0, 3)), np.empty((0, 3)), EXACT).ok


def test_a_scalar_has_an_empty_index():
    assert compare(np.asarray(1.0), np.asarray(2.0), EXACT).first_bad == ()


@pytest.mark.parametrize("name", FLOATS)
def test_neighbours_are_one_ulp_apart_and_zeros_none(name):
    numpy_type = np_dtype(name)
    info = ml_dtypes.finfo(numpy_type)
    one = of([1.0], name)
    zero = of([0.0], name)
    assert ulp_distance(one, one + info.eps).tolist() == [1]
    assert ulp_distance(zero, -zero).tolist() == [0]
    smallest = np.array([info.smallest_subnormal], numpy_type)
    assert ulp_distance(smallest, -smallest).tolist() == [2]


@pytest.mark.parametrize("name", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_ulps_count_the_values_between_in_every_small_float(name):
    numpy_type = np_dtype(name)
    bits = np.dtype(f"u{numpy_type.itemsize}")
    every = np.arange(2 ** (8 * bits.itemsize), dtype=bits).view(numpy_type)
    with np.errstate(invalid="ignore"):
        values = every.astype(np.float64)
    ordered = np.unique(values[np.isfinite(values)]).astype(numpy_type)
    assert (ulp_distance(ordered[:-1], ordered[1:]) == 1).all()
    assert ulp_distance(ordered[:1], ordered[-1:]) == len(ordered) - 1


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_ulps_of_f64_are_the_distance_of_ordered_bits(a, b):
    def rank(x):
        bits = int(np.float64(x).view(np.uint64))
        return bits if bits < 2**63 else 2**63 - bits

    found = ulp_distance(np.array([a]), np.array([b]))
    assert int(found[0]) == abs(rank(a) - rank(b))


def expectation(array, addr=0, **more):
    return Expectation("hbm", addr, array, "f32", EXACT, after=1, **more)


def test_the_ends_of_an_integer_fit_and_what_is_behind_them_does_not():
    ends = np.array([-(2.0**63), 2.0**63 - 1024, 2.0**63])
    assert fits(ends, "i64").tolist() == [True, True, False]
    assert fits(np.array([0, 2**64 - 1], np.uint64), "i64").tolist() == [True, False]
    assert fits(np.array([-1, 2**63 - 1]), "u64").tolist() == [False, True]


def test_bytes_never_written_are_not_ok_and_say_so():
    row = judge("c", expectation(of([1, 2]), tensor="c"), MemoryStore())
    assert not row.ok
    assert row.note == "2 of the 2 elements were never written"
    assert (row.mismatches, row.first_bad) == (2, (0,))


def test_an_expectation_is_read_in_its_own_shape():
    store = MemoryStore()
    store.write("hbm", 0, of([1, 2, 3, 4]))
    assert judge("c", expectation(of([[3], [4]]), addr=8), store).ok


def report():
    store = MemoryStore()
    store.write("hbm", 0, of([1, 2, 3, 4, 5, math.nan]))
    shards = {
        "c#1": expectation(of([3, 9]), addr=8, tensor="c", shard=1, origin=(2,)),
        "c#0": expectation(of([1, 2]), tensor="c"),
        "c#2": expectation(of([5, 7]), addr=16, tensor="c", shard=2, origin=(4,)),
        "d": expectation(of([1]), tensor="d"),
        "e" * 200: expectation(of([0]), addr=4096),
    }
    return VerifyReport(tuple(judge(name, e, store) for name, e in shards.items()))


def test_a_report_is_ok_only_if_every_row_is():
    good = VerifyReport(tuple(row for row in report().rows if row.ok))
    assert good.ok
    assert len(good.rows) == 2
    assert not report().ok


def test_shards_of_a_tensor_are_summed_up():
    rows = {row.tensor: row for row in report().by_tensor()}
    c = rows["c"]
    assert (c.elements, c.mismatches, c.max_abs, c.nans, c.first_bad) == (
        6,
        2,
        5,
        (1, 0),
        (3,),
    )
    assert not c.ok
    assert rows["d"].ok
    assert len(rows) == 3


def test_the_table_is_aligned_and_fits_100_columns():
    lines = report().as_text().splitlines()
    assert max(map(len, lines)) <= 100
    header, c, d = lines[:3]
    ends = [
        line.index(cell) + len(cell)
        for line, cell in ((c, "FAIL"), (d, "ok"), (header, "ok?"))
    ]
    assert len(set(ends)) == 1
    assert [line.split()[0] for line in (header, c, d)] == ["tensor", "c", "d"]
    assert "FAIL" in c
    assert "FAIL" not in d
    assert "never written" in " ".join(lines[4:])


@pytest.mark.parametrize("wrong", [(), (5,), (1, 5)])
def test_of_what_was_written_in_part_all_the_rest_is_bad(wrong):
    """The first bad element is one that somebody wrote, if there is one."""
    reference = np.arange(8.0).reshape(2, 4)
    data = reference.reshape(-1).astype(np.float32)
    data[list(wrong)] += 1
    store = MemoryStore()
    store.write("hbm", 0, data[:2])
    store.write("hbm", 16, data[4:])
    expected = Expectation("hbm", 0, reference, "f32", EXACT, 0, "y", 1, (10, 0))
    row = judge("y.1", expected, store)
    assert not row.ok
    assert row.mismatches == 2 + len(wrong)
    assert row.first_bad == {(): (10, 2), (5,): (11, 1), (1, 5): (10, 1)}[wrong]
    assert row.note == "2 of the 8 elements were never written"


def test_what_was_written_in_part_may_be_of_another_type_than_the_reference():
    """Of float16 and bfloat16 neither holds all numbers of the other."""
    reference = np.array([1.0, 2.0, 3.0, 4.0], np.float16)
    store = MemoryStore()
    store.write("hbm", 0, np.array([1.0, 5.0]).astype(np_dtype("bf16")))
    row = judge("y", Expectation("hbm", 0, reference, "bf16", EXACT, 0), store)
    assert (row.mismatches, row.first_bad) == (3, (1,))


def test_the_table_never_calls_an_error_small_that_is_not_finite():
    row = compare(of([1, math.inf, math.nan]), of([1, 2, 3]), EXACT, "c")
    (line,) = VerifyReport((row,)).as_text().splitlines()[1:]
    assert line.split() == [
        "c",
        "f32",
        "3",
        "FAIL",
        "2",
        *["inf"] * 3,
        "1/0",
        "1/0",
        "1",
    ]


def test_infinities_that_are_expected_make_no_error():
    row = compare(of([1, math.inf]), of([3, math.inf]), EXACT)
    assert row.worst[:1] == (2,)
    assert row.left_out == "1 not finite, else "

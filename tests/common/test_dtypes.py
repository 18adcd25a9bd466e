import ml_dtypes
import numpy as np
import pytest

from kernbench.common.dtypes import (
    DTYPES,
    Tolerance,
    dtype,
    is_float,
    itemsize,
    name_of,
    nbytes_of,
    np_dtype,
)
from kernbench.errors import UsageError


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("f16", 2),
        ("bf16", 2),
        ("f32", 4),
        ("f64", 8),
        ("fp8_e4m3", 1),
        ("i64", 8),
        ("bool", 1),
    ],
)
def test_item_sizes(name, size):
    assert itemsize(name) == dtype(name).itemsize == size


def test_the_dtypes_are_floats_fp8_integers_and_bool():
    integers = {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)}
    assert set(DTYPES) - integers == {
        "f16",
        "bf16",
        "f32",
        "f64",
        "fp8_e4m3",
        "fp8_e5m2",
        "bool",
    }
    assert integers < set(DTYPES)


def test_bf16_and_fp8_are_those_of_ml_dtypes():
    assert np_dtype("bf16") == ml_dtypes.bfloat16
    assert np_dtype("fp8_e4m3") == ml_dtypes.float8_e4m3fn
    assert np_dtype("fp8_e5m2") == ml_dtypes.float8_e5m2


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("f32", 1e-5),
        ("f16", 1e-3),
        ("bf16", 1e-2),
        ("f64", 1e-12),
        ("i32", 0.0),
        ("bool", 0.0),
    ],
)
def test_tolerances_are_those_of_adr_0020_d11(name, bound):
    assert dtype(name).tolerance == Tolerance(rtol=bound, atol=bound)


@pytest.mark.parametrize("name", DTYPES)
def test_names_and_numpy_types_are_one_to_one(name):
    assert name_of(np_dtype(name)) == name


@pytest.mark.parametrize("name", ["float16", "", None, ["f16"]])
def test_an_unknown_name_lists_the_valid_ones(name):
    with pytest.raises(UsageError, match="valid: f16, bf16"):
        dtype(name)


@pytest.mark.parametrize("numpy_type", [np.complex64, ">f4", object])
def test_a_numpy_type_without_a_name_is_refused(numpy_type):
    with pytest.raises(UsageError, match="no counterpart"):
        name_of(numpy_type)


def test_floats_are_exactly_the_floating_types():
    floats = {name for name in DTYPES if is_float(name)}
    assert floats == {"f16", "bf16", "f32", "f64", "fp8_e4m3", "fp8_e5m2"}


def test_bytes_of_a_shape():
    assert nbytes_of((3, 5), "f16") == 30
    assert nbytes_of((), "f64") == 8
    assert nbytes_of((4, 0), "f32") == 0

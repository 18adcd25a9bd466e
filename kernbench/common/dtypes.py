"""Element types: one table of name, numpy type and verification tolerance.

Owns every dtype name that a kernel, a record or a trace may hold. Knows no memory and
no machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from kernbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a value may be from its reference: |a - r| <= atol + rtol * |r|.

    The default, 0 and 0, means that the two must be equal.
    """

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: our name, numpy's type, and the tolerance of a verification.

    Tolerances are those of ADR-0020 D11; for f64, fp8 and bool, which it leaves out,
    those of docs/machine.md, "Tolerances". ``rate`` is the field of ``pe.gemm.rate``
    and ``pe.math.rate`` that says how fast an engine works on it, and of
    ``energy.mac_pj`` and ``energy.element_pj``, which say what that costs: unsigned
    types go as signed ones, bool as i8, and both fp8 formats alike.
    """

    name: str
    numpy: np.dtype[np.generic]
    tolerance: Tolerance
    rate: str

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.numpy.itemsize


# name, numpy type, the bound that serves as both rtol and atol, and the rate
_ROWS: tuple[tuple[str, Any, float, str], ...] = (
    ("f16", np.float16, 1e-3, "f16"),
    ("bf16", ml_dtypes.bfloat16, 1e-2, "bf16"),
    ("f32", np.float32, 1e-5, "f32"),
    ("f64", np.float64, 1e-12, "f64"),
    ("fp8_e4m3", ml_dtypes.float8_e4m3fn, 0.125, "fp8"),
    ("fp8_e5m2", ml_dtypes.float8_e5m2, 0.25, "fp8"),
    ("i8", np.int8, 0.0, "i8"),
    ("i16", np.int16, 0.0, "i16"),
    ("i32", np.int32, 0.0, "i32"),
    ("i64", np.int64, 0.0, "i64"),
    ("u8", np.uint8, 0.0, "i8"),
    ("u16", np.uint16, 0.0, "i16"),
    ("u32", np.uint32, 0.0, "i32"),
    ("u64", np.uint64, 0.0, "i64"),
    ("bool", np.bool_, 0.0, "i8"),
)
DTYPES = {
    name: DType(name, np.dtype(numpy_type), Tolerance(bound, bound), rate)
    for name, numpy_type, bound, rate in _ROWS
}

_NAMES = ", ".join(DTYPES)
_BY_NUMPY = {row.numpy: row.name for row in DTYPES.values()}


OTHER_NAMES = {
    "half": "f16",
    "fp16": "f16",
    "float": "f32",
    "fp32": "f32",
    "double": "f64",
    "fp64": "f64",
    "float8e4nv": "fp8_e4m3",
    "float8e5": "fp8_e5m2",
    "int1": "bool",
}
"""What Triton, torch and numpy call dtypes, ours by theirs."""

OTHER_NAMES |= {
    row.numpy.name: row.name for row in DTYPES.values() if row.numpy.name not in DTYPES
}


def dtype_name(given: object) -> str:
    """Our name of a dtype as numpy, torch or Triton write it; UsageError if we have
    none.
    """
    if isinstance(given, type | np.dtype):
        return name_of(given)
    name = str(given).removeprefix("torch.")
    if name not in DTYPES:
        name = OTHER_NAMES.get(name, name)
    return dtype(name).name


def is_dtype_name(name: str) -> bool:
    """Whether it is a dtype's name, ours or another's."""
    return name in DTYPES or name in OTHER_NAMES


def dtype(name: str) -> DType:
    """The row of ``name``; UsageError lists the valid names."""
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise UsageError(f"unknown dtype {name!r}; valid: {_NAMES}") from None


@cache
def np_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype of our ``name``; UsageError lists the valid names."""
    return dtype(name).numpy


def itemsize(name: str) -> int:
    """Bytes an element of our ``name``; UsageError lists the valid names."""
    return dtype(name).itemsize


def name_of(numpy_type: object) -> str:
    """Our name of a numpy dtype; UsageError if we have none."""
    found = _BY_NUMPY.get(np.dtype(numpy_type))  # type: ignore[call-overload]
    if found is None:
        raise UsageError(
            f"numpy dtype {numpy_type!r} has no counterpart; valid: {_NAMES}"
        )
    return found


def is_float(name: str) -> bool:
    """Whether ``name`` is a floating-point type (bf16 and fp8 included)."""
    return name.startswith(("f", "bf"))


def nbytes_of(shape: tuple[int, ...], name: str) -> int:
    """Bytes of a contiguous array of ``shape`` and dtype ``name``."""
    return prod(shape) * itemsize(name)

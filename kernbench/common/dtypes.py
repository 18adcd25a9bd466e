"""Element types: one table of name, numpy type and verification tolerance.

Owns every dtype name that a kernel, a record or a trace may hold. Knows no memory and no machine.
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
    """How far a value may be from its reference: |a - r| <= atol + rtol * |r|; 0, 0 is exact."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, slots=True)
class DType:
    """One row; tolerances of ADR-0020 D11, and of simulator.md section 11 for f64, fp8 and bool."""

    name: str
    numpy: np.dtype[np.generic]
    tolerance: Tolerance

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.numpy.itemsize


_BOUNDS: tuple[tuple[str, Any, float], ...] = (
    ("f16", np.float16, 1e-3),
    ("bf16", ml_dtypes.bfloat16, 1e-2),
    ("f32", np.float32, 1e-5),
    ("f64", np.float64, 1e-12),
    ("fp8_e4m3", ml_dtypes.float8_e4m3fn, 0.125),
    ("fp8_e5m2", ml_dtypes.float8_e5m2, 0.25),
    *(
        (f"{sign}{bits}", f"{sign}{bits // 8}", 0.0)
        for sign in "iu"
        for bits in (8, 16, 32, 64)
    ),
    ("bool", np.bool_, 0.0),
)
DTYPES = {
    n: DType(n, np.dtype(kind), Tolerance(bound, bound)) for n, kind, bound in _BOUNDS
}

_NAMES = ", ".join(DTYPES)
_BY_NUMPY = {row.numpy: row.name for row in DTYPES.values()}


def dtype(name: str) -> DType:
    """The row of ``name``; UsageError lists the valid names."""
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise UsageError(f"unknown dtype {name!r}; valid: {_NAMES}") from None


@cache
def np_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype of our ``name``."""
    return dtype(name).numpy


def itemsize(name: str) -> int:
    """Bytes an element of our ``name``."""
    return dtype(name).itemsize


def name_of(numpy_type: object) -> str:
    """Our name of a numpy dtype; UsageError if we have none."""
    if (found := _BY_NUMPY.get(np.dtype(numpy_type))) is None:  # type: ignore[call-overload]
        raise UsageError(
            f"numpy dtype {numpy_type!r} has no counterpart; valid: {_NAMES}"
        )
    return found


def is_float(name: str) -> bool:
    """True for the floating-point types (bf16 and fp8 included)."""
    return name.startswith(("f", "bf"))


def nbytes_of(shape: tuple[int, ...], name: str) -> int:
    """Bytes of a contiguous array of ``shape`` and dtype ``name``."""
    return prod(shape) * itemsize(name)

"""Element types: one table of name, numpy type and verification tolerance.

Owns every dtype name that a kernel, a record or a trace may hold. Knows no memory and no machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from kernbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a value may be from its reference: ``|a - r| <= atol + rtol * |r|``; 0, 0 is
    exact.
    """

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, slots=True)
class DType:
    """One row of the table: our name, the numpy type, and the tolerance of ADR-0020 D11.

    The rows that D11 lacks (f64, fp8, bool) are those of simulator.md section 11.
    """

    name: str
    numpy: np.dtype[np.generic]
    tolerance: Tolerance

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.numpy.itemsize


def _row(name: str, numpy_type: object, rtol: float = 0.0) -> tuple[str, DType]:
    return name, DType(name, np.dtype(numpy_type), Tolerance(rtol, rtol))  # type: ignore[call-overload]


DTYPES: dict[str, DType] = dict(
    [
        _row("f16", np.float16, 1e-3),
        _row("bf16", ml_dtypes.bfloat16, 1e-2),
        _row("f32", np.float32, 1e-5),
        _row("f64", np.float64, 1e-12),
        _row("fp8_e4m3", ml_dtypes.float8_e4m3fn, 0.125),
        _row("fp8_e5m2", ml_dtypes.float8_e5m2, 0.25),
        _row("i8", np.int8),
        _row("i16", np.int16),
        _row("i32", np.int32),
        _row("i64", np.int64),
        _row("u8", np.uint8),
        _row("u16", np.uint16),
        _row("u32", np.uint32),
        _row("u64", np.uint64),
        _row("bool", np.bool_),
    ]
)

_BY_NUMPY = {row.numpy: row.name for row in DTYPES.values()}


def dtype(name: str) -> DType:
    """The row of ``name``; UsageError lists the valid names."""
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise UsageError(f"unknown dtype {name!r}; valid: {', '.join(DTYPES)}") from None


def np_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype of our ``name``."""
    return dtype(name).numpy


def itemsize(name: str) -> int:
    """Bytes an element of our ``name``."""
    return dtype(name).numpy.itemsize


def name_of(numpy_type: object) -> str:
    """Our name of a numpy dtype; UsageError if we have none."""
    found = _BY_NUMPY.get(np.dtype(numpy_type))  # type: ignore[call-overload]
    if found is None:
        raise UsageError(
            f"numpy dtype {numpy_type!r} has no counterpart; valid: {', '.join(DTYPES)}"
        )
    return found


def is_float(name: str) -> bool:
    """True for the floating-point types (bf16 and fp8 included)."""
    return name.startswith(("f", "bf"))


def nbytes_of(shape: tuple[int, ...], name: str) -> int:
    """Bytes of a contiguous array of ``shape`` and dtype ``name``."""
    count = 1
    for extent in shape:
        count *= extent
    return count * itemsize(name)

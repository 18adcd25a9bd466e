"""In which dtype an op computes, and the one rounding of its result.

Floats are computed in f32 (in f64 if an operand is f64), never natively in f16, bf16 or
fp8. Integers and bool are computed in numpy's common type of the operands and wrap, or
in f64 where the op leaves the integers or a scalar is not whole. A result is rounded
once, to the dtype of the output; towards zero where that is an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES, is_float, np_dtype

NumpyDtype: TypeAlias = np.dtype[Any]

_END_OF_I64 = 1 << 63

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
_I64 = np.dtype(np.int64)
_U64 = np.dtype(np.uint64)
_FLOATS = frozenset(row.numpy for row in DTYPES.values() if is_float(row.name))


def work_dtype(
    dtypes: Sequence[NumpyDtype], scalars: Sequence[float], real: bool
) -> NumpyDtype:
    """The dtype in which an op of arrays of ``dtypes`` and of ``scalars`` is computed.

    ``real`` says that the op leaves the integers, as a square root does.
    """
    if F64 in dtypes or not dtypes:
        return F64
    if not _FLOATS.isdisjoint(dtypes):
        return F32
    fit_integers = [float(x).is_integer() and abs(x) < _END_OF_I64 for x in scalars]
    if real or not all(fit_integers):
        return F64
    # a whole scalar takes the room that it needs: u8 < 300 must not compare with 44
    needed = [np.min_scalar_type(int(x)) for x in scalars]
    common = np.result_type(*dtypes, *needed)
    if common == F64 and _U64 not in dtypes:
        return _I64  # a scalar that is u64 to numpy, which of that and i64 makes f64
    return common


def accumulator(a: NumpyDtype, b: NumpyDtype, dtype_acc: str = "f32") -> NumpyDtype:
    """The dtype in which products are summed: f32 or f64, of integers i32 or i64."""
    if not _FLOATS.isdisjoint((a, b)):
        return F64 if F64 in (a, b) or dtype_acc == "f64" else F32
    long = dtype_acc == "i64" or 8 in (a.itemsize, b.itemsize)
    return np.dtype(np.int64 if long else np.int32)


def oracle_dtype(work: NumpyDtype) -> NumpyDtype:
    """The dtype in which the oracle computes what an op computes in ``work``."""
    return F64 if work == F32 else work


@np.errstate(all="ignore")
def rounded(result: Array, dtype: str) -> Array:
    """``result`` as a contiguous array of our ``dtype``: the one rounding of an op."""
    return result.astype(np_dtype(dtype), order="C", copy=False)

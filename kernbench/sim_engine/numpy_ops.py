"""What every op computes: the table ``NUMPY_OPS`` and the matrix product. Knows no record.

Floats are computed in f32 (f64 if an operand is f64), never natively in f16, bf16 or fp8; integers
and bool in numpy's common type of the operands, wrapping, or in f64 for functions that leave the
integers (``real``) and with scalars that are not whole. The result is rounded once, to the dtype of
the output (towards zero for an integer one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import DTYPES, is_float, np_dtype
from kernbench.errors import UsageError

Array: TypeAlias = npt.NDArray[Any]
Operand: TypeAlias = "Array | float"


@dataclass(frozen=True, slots=True)
class NumpyOp:
    """One row. ``cost_cycles`` is MATH time an element and lane (simulator.md section 5).

    An add costs 1; what a special-function unit does 4, as GPUs have 64 FP32 and 16 such lanes an
    SM; softmax the sum of its max, subtract, exp, sum and multiply.

    ``kind`` says how ``function`` is called: "elementwise" f(*operands), "reduction" f(x, axis,
    keepdims), "shaped" f(shape, *operands), which may be given more scalars than its ``arity``.
    """

    function: Callable[..., Any]
    arity: int
    kind: str = "elementwise"
    cost_cycles: int = 1
    real: bool = False


def _softmax(x: Array, axis: int | None, keepdims: bool) -> Array:
    """Along ``axis`` (None: the last), minus the maximum first."""
    axis = -1 if axis is None else axis
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def _copy(shape: tuple[int, ...], x: Array, offset: float = 0, *strides: float) -> Array:
    """``x`` in row-major order; with scalars, the strided walk through its elements.

    Element i of the output is x.flat[offset + sum(i[d] * strides[d])]: in elements, one an axis.
    """
    if not strides:
        return x.reshape(shape)
    index = np.asarray(int(offset))
    for extent, stride in zip(shape, strides, strict=True):
        index = index[..., None] + np.arange(extent) * int(stride)
    if index.size and (index.min() < 0 or index.max() >= x.size):
        raise UsageError(
            f"copy walks elements {index.min()} to {index.max()} of a tensor of {x.size}; "
            f"offset {offset}, strides {strides}, shape {shape}"
        )
    return np.asarray(x.reshape(-1)[index])


def _arange(shape: tuple[int, ...], start: float = 0, *_end: float) -> Array:
    """start, start + 1, …: as many as the shape holds, so an end is not needed."""
    return start + np.arange(prod(shape), dtype=np.float64).reshape(shape)


NUMPY_OPS: dict[str, NumpyOp] = {
    "exp": NumpyOp(np.exp, 1, cost_cycles=4, real=True),
    "log": NumpyOp(np.log, 1, cost_cycles=4, real=True),
    "sqrt": NumpyOp(np.sqrt, 1, cost_cycles=4, real=True),
    "rsqrt": NumpyOp(lambda x: 1 / np.sqrt(x), 1, cost_cycles=4, real=True),
    "tanh": NumpyOp(np.tanh, 1, cost_cycles=4, real=True),
    "sigmoid": NumpyOp(lambda x: 1 / (1 + np.exp(-x)), 1, cost_cycles=4, real=True),
    "abs": NumpyOp(np.abs, 1),
    "neg": NumpyOp(np.negative, 1),
    "cast": NumpyOp(np.positive, 1),
    "relu": NumpyOp(lambda x: np.maximum(x, 0), 1),
    "add": NumpyOp(np.add, 2),
    "sub": NumpyOp(np.subtract, 2),
    "mul": NumpyOp(np.multiply, 2),
    "div": NumpyOp(np.divide, 2, cost_cycles=4, real=True),
    "maximum": NumpyOp(np.maximum, 2),
    "minimum": NumpyOp(np.minimum, 2),
    "where": NumpyOp(lambda c, a, b: np.where(c != 0, a, b), 3),
    "fma": NumpyOp(lambda a, b, c: a * b + c, 3),
    "clamp": NumpyOp(lambda x, low, high: np.minimum(np.maximum(x, low), high), 3),
    "sum": NumpyOp(np.sum, 1, "reduction"),
    "max": NumpyOp(np.max, 1, "reduction"),
    "min": NumpyOp(np.min, 1, "reduction"),
    "softmax": NumpyOp(_softmax, 1, "reduction", cost_cycles=8, real=True),
    "eq": NumpyOp(np.equal, 2),
    "ne": NumpyOp(np.not_equal, 2),
    "lt": NumpyOp(np.less, 2),
    "le": NumpyOp(np.less_equal, 2),
    "gt": NumpyOp(np.greater, 2),
    "ge": NumpyOp(np.greater_equal, 2),
    "copy": NumpyOp(_copy, 1, "shaped"),
    "full": NumpyOp(np.full, 1, "shaped"),
    "arange": NumpyOp(_arange, 0, "shaped"),
    # epilogues by their own name
    "scale": NumpyOp(np.multiply, 2),
    "bias": NumpyOp(np.add, 2),
    "dequant": NumpyOp(np.multiply, 2),
}

_FLOATS = frozenset(row.numpy for row in DTYPES.values() if is_float(row.name))
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def numpy_op(name: str, ops: Mapping[str, NumpyOp] = NUMPY_OPS) -> NumpyOp:
    """The row of ``name``; UsageError lists the valid names."""
    op = ops.get(name)
    if op is None:
        raise UsageError(f"unknown math op {name!r}; valid: {', '.join(ops)}")
    return op


def cost_cycles(name: str) -> int:
    """MATH cycles an element and lane of the op ``name``."""
    return numpy_op(name).cost_cycles


def _work_dtype(operands: Sequence[Operand], real: bool, wide: bool) -> np.dtype[Any]:
    """The dtype in which ``operands`` are computed; ``wide``: f64 for every float (the oracle)."""
    arrays = [x.dtype for x in operands if isinstance(x, np.ndarray)]
    scalars = [x for x in operands if not isinstance(x, np.ndarray)]
    if _F64 in arrays or not arrays:
        return _F64
    if not _FLOATS.isdisjoint(arrays):
        return _F64 if wide else _F32
    if real or not all(float(x).is_integer() for x in scalars):
        return _F64
    # a whole scalar takes the room that it needs: u8 < 300 must not compare with 44
    return np.result_type(*arrays, *(np.min_scalar_type(int(x)) for x in scalars))


def apply(
    op: NumpyOp,
    operands: Sequence[Operand],
    shape: tuple[int, ...],
    axis: int | None = None,
    keepdims: bool = False,
    wide: bool = False,
) -> Array:
    """``op`` of arrays and Python scalars, not yet rounded, in ``shape``.

    UsageError for too few or too many operands, ValueError where numpy cannot broadcast them.
    """
    shaped = op.kind == "shaped"
    if len(operands) != op.arity and not (shaped and len(operands) > op.arity):
        raise UsageError(f"op takes {op.arity} operands, not {len(operands)}")
    with np.errstate(all="ignore"):
        if shaped:  # those only place elements
            return np.asarray(op.function(shape, *operands)).reshape(shape)
        work = _work_dtype(operands, op.real, wide)
        arrays = [np.asarray(x).astype(work, copy=False) for x in operands]
        options = {"axis": axis, "keepdims": keepdims} if op.kind == "reduction" else {}
        result = op.function(*arrays, **options)
    return np.asarray(result).reshape(shape)


@dataclass(frozen=True, slots=True)
class Step:
    """One epilogue step: ``op(sum, operand)``, or ``op(sum)`` where it has no operand."""

    op: NumpyOp
    scope: str = "output_tile"
    operand: Operand | None = None


def _finish(total: Array, steps: Sequence[Step], wide: bool) -> Array:
    for step in steps:
        operands = (total,) if step.operand is None else (total, step.operand)
        total = apply(step.op, operands, total.shape, wide=wide)
    return total


def gemm(
    a: Array,
    b: Array,
    acc: Array | None = None,
    dtype_acc: str = "f32",
    steps: Sequence[Step] = (),
    tile_k: int = 0,
    wide: bool = False,
) -> Array:
    """a[m, k] @ b[k, n] (+ acc[m, n]) with its epilogue ``steps``, not yet rounded.

    Floats are multiplied and summed in f32, in f64 if an operand or ``dtype_acc`` is f64; integers
    in i32, in i64 if an operand has 64 bits or ``dtype_acc`` is i64. Steps of scope "k_tile" run on
    the product of each ``tile_k`` columns before it is added, the others on the finished sum.
    """
    dtypes = {a.dtype, b.dtype}
    if not _FLOATS.isdisjoint(dtypes):
        work: np.dtype[Any] = _F64 if wide or _F64 in dtypes or dtype_acc == "f64" else _F32
    else:
        long = dtype_acc == "i64" or any(d.itemsize == 8 for d in dtypes)
        work = np.dtype(np.int64 if long else np.int32)
    a, b = a.astype(work, copy=False), b.astype(work, copy=False)
    inner = [step for step in steps if step.scope == "k_tile"]
    k = max(a.shape[-1], 1)
    width = min(tile_k, k) if inner and tile_k > 0 else k
    with np.errstate(all="ignore"):
        total: Any = 0 if acc is None else acc.astype(work, copy=False)
        for low in range(0, k, width):
            total = _finish(a[:, low : low + width] @ b[low : low + width], inner, wide) + total
    return _finish(np.asarray(total), [step for step in steps if step.scope != "k_tile"], wide)


def rounded(result: Array, dtype: str) -> Array:
    """``result`` as a contiguous array of our ``dtype``: the one rounding of an op."""
    with np.errstate(all="ignore"):
        return result.astype(np_dtype(dtype), order="C", copy=False)

"""What every op computes: the table ``NUMPY_OPS`` and the matrix product. Knows no record.

To add an op, add its row to ``NUMPY_OPS`` and its meaning to ``MEANING`` of the tests, where a row
without one fails. The oracle of the debug mode uses this table too, with the same functions in f64.

Floats are computed in f32 (f64 if an operand is f64), never natively in f16, bf16 or fp8, to which
they are cast by numpy (a table of all f16 takes 0.8 to 1.7 times as long, by size); integers
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

    ``ulps`` bound the error of the function as computed; 0 if it is exact. IEEE 754 rounds + - * /
    and sqrt correctly (0.5); numpy's SIMD functions are held to 4 (its SVML builds and the
    validation sets of its tests); what is made of several has their sum. Where terms may cancel,
    ``sums`` says that the error is relative to the op of the operands' magnitudes; a reduction with
    an error has 0.5 ulp more for each element that it adds.
    """

    function: Callable[..., Any]
    arity: int
    kind: str = "elementwise"
    cost_cycles: int = 1
    real: bool = False
    ulps: float = 0.0
    sums: bool = False


def _softmax(x: Array, axis: int | None, keepdims: bool) -> Array:
    """Along ``axis`` (None: the last), minus the maximum first.

    Where exp(x - max) is not 0 in f32, |x - max| < 104: its rounding costs 52 ulps above the line
    and below it.
    """
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
    "exp": NumpyOp(np.exp, 1, cost_cycles=4, real=True, ulps=4),
    "log": NumpyOp(np.log, 1, cost_cycles=4, real=True, ulps=4),
    "sqrt": NumpyOp(np.sqrt, 1, cost_cycles=4, real=True, ulps=0.5),
    "rsqrt": NumpyOp(lambda x: 1 / np.sqrt(x), 1, cost_cycles=4, real=True, ulps=1.5),
    "tanh": NumpyOp(np.tanh, 1, cost_cycles=4, real=True, ulps=4),
    "sigmoid": NumpyOp(lambda x: 1 / (1 + np.exp(-x)), 1, cost_cycles=4, real=True, ulps=6),
    "abs": NumpyOp(np.abs, 1),
    "neg": NumpyOp(np.negative, 1),
    "cast": NumpyOp(lambda x: x, 1),  # bool too
    "relu": NumpyOp(lambda x: np.maximum(x, 0), 1),
    "add": NumpyOp(np.add, 2, ulps=0.5),
    "sub": NumpyOp(np.subtract, 2, ulps=0.5),
    "mul": NumpyOp(np.multiply, 2, ulps=0.5),
    "div": NumpyOp(np.divide, 2, cost_cycles=4, real=True, ulps=0.5),
    "maximum": NumpyOp(np.maximum, 2),
    "minimum": NumpyOp(np.minimum, 2),
    "where": NumpyOp(lambda c, a, b: np.where(c != 0, a, b), 3),
    "fma": NumpyOp(lambda a, b, c: a * b + c, 3, ulps=1, sums=True),
    "clamp": NumpyOp(lambda x, low, high: np.minimum(np.maximum(x, low), high), 3),
    "sum": NumpyOp(np.sum, 1, "reduction", ulps=0.5, sums=True),
    "max": NumpyOp(np.max, 1, "reduction"),
    "min": NumpyOp(np.min, 1, "reduction"),
    "softmax": NumpyOp(_softmax, 1, "reduction", cost_cycles=8, real=True, ulps=120),
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
    "scale": NumpyOp(np.multiply, 2, ulps=0.5),
    "bias": NumpyOp(np.add, 2, ulps=0.5),
    "dequant": NumpyOp(np.multiply, 2, ulps=0.5),
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


def _work_dtype(
    dtypes: Sequence[np.dtype[Any]], scalars: Sequence[float], real: bool
) -> np.dtype[Any]:
    """The dtype in which an op of arrays of ``dtypes`` and of ``scalars`` is computed."""
    if _F64 in dtypes or not dtypes:
        return _F64
    if not _FLOATS.isdisjoint(dtypes):
        return _F32
    if real or not all(float(x).is_integer() for x in scalars):
        return _F64
    # a whole scalar takes the room that it needs: u8 < 300 must not compare with 44
    return np.result_type(*dtypes, *(np.min_scalar_type(int(x)) for x in scalars))


def bind(
    op: NumpyOp,
    operands: Sequence[np.dtype[Any] | float],
    axis: int | None = None,
    keepdims: bool = False,
    wide: bool = False,
) -> Callable[[Sequence[Array], tuple[int, ...]], Array]:
    """``op`` as f(arrays, shape), not yet rounded; ``wide``: f64 for every float (the oracle).

    ``operands`` are the dtypes of its arrays and, in their places, scalars: those are values of the
    dtype in which the op is computed, in the oracle too. An elementwise op may be called with
    arrays that have one more axis in front and its ``shape``. The caller mutes numpy's warnings.
    UsageError for too few or too many operands; ValueError in f where they do not broadcast.
    """
    shaped, function = op.kind == "shaped", op.function
    if len(operands) != op.arity and not (shaped and len(operands) > op.arity):
        raise UsageError(f"op takes {op.arity} operands, not {len(operands)}")
    dtypes = [x for x in operands if isinstance(x, np.dtype)]
    scalars = [(i, x) for i, x in enumerate(operands) if not isinstance(x, np.dtype)]
    if shaped:  # those only place elements

        def place(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
            return np.asarray(function(shape, *arrays, *(x for _, x in scalars))).reshape(shape)

        return place
    narrow = _work_dtype(dtypes, [x for _, x in scalars], op.real)
    work = _F64 if wide and narrow == _F32 else narrow
    fixed = [(i, np.asarray(x).astype(narrow).astype(work)) for i, x in scalars]
    options = {"axis": axis, "keepdims": keepdims} if op.kind == "reduction" else {}

    def compute(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
        mixed = [x.astype(work, copy=False) for x in arrays]
        for i, scalar in fixed:
            mixed.insert(i, scalar)
        return np.asarray(function(*mixed, **options)).reshape(shape)

    return compute


def apply(
    op: NumpyOp,
    operands: Sequence[Operand],
    shape: tuple[int, ...],
    axis: int | None = None,
    keepdims: bool = False,
    wide: bool = False,
) -> Array:
    """``op`` of arrays and Python scalars in ``shape``, not yet rounded; raises as ``bind``."""
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    slots = [x.dtype if isinstance(x, np.ndarray) else x for x in operands]
    with np.errstate(all="ignore"):
        return bind(op, slots, axis, keepdims, wide)(arrays, shape)


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


@np.errstate(all="ignore")
def gemm(
    a: Array,
    b: Array,
    acc: Array | None = None,
    dtype_acc: str = "f32",
    steps: Sequence[Step] = (),
    tile_k: int = 0,
    wide: bool = False,
    slack: float = 0.0,
) -> Array:
    """a[…, m, k] @ b[…, k, n] (+ acc[…, m, n]) with its epilogue ``steps``, not yet rounded.

    Floats are multiplied and summed in f32, in f64 if an operand or ``dtype_acc`` is f64; integers
    in i32, in i64 if an operand has 64 bits or ``dtype_acc`` is i64. Steps of scope "k_tile" run on
    the product of each ``tile_k`` columns before it is added, the others on the finished sum.
    ``slack`` times the sum of the magnitudes is added before the steps, for error bounds.
    """
    work = accumulator(a.dtype, b.dtype, dtype_acc)
    work = _F64 if wide and work == _F32 else work
    a, b = a.astype(work, copy=False), b.astype(work, copy=False)
    if np.may_share_memory(a, b):  # or numpy takes syrk for a @ a.T, which sums in another order
        b = b.copy(order="K")
    inner = [step for step in steps if step.scope == "k_tile"]
    k = max(a.shape[-1], 1)
    width = min(tile_k, k) if inner and tile_k > 0 else k
    total = None if acc is None else acc.astype(work, copy=False)
    if slack and total is not None:
        total = total + slack * np.abs(total)
    for low in range(0, k, width):
        left, right = a[..., low : low + width], b[..., low : low + width, :]
        product = left @ right
        if slack:
            product = product + slack * (np.abs(left) @ np.abs(right))
        product = _finish(product, inner, wide)
        total = product if total is None else product + total
    return _finish(np.asarray(total), [step for step in steps if step.scope != "k_tile"], wide)


def accumulator(a: np.dtype[Any], b: np.dtype[Any], dtype_acc: str = "f32") -> np.dtype[Any]:
    """The dtype in which products of these are summed."""
    if not _FLOATS.isdisjoint((a, b)):
        return _F64 if _F64 in (a, b) or dtype_acc == "f64" else _F32
    return np.dtype(np.int64 if dtype_acc == "i64" or 8 in (a.itemsize, b.itemsize) else np.int32)


@np.errstate(all="ignore")
def rounded(result: Array, dtype: str) -> Array:
    """``result`` as a contiguous array of our ``dtype``: the one rounding of an op."""
    return result.astype(np_dtype(dtype), order="C", copy=False)

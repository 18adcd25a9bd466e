"""What every op computes: the table ``NUMPY_OPS`` and the matrix product. Knows no record.

To add an op, add its row to ``NUMPY_OPS`` and its meaning to ``MEANING`` of the tests, where a row
without one fails. The oracle of the debug mode uses this table too, with the same functions in f64.

Floats are computed in f32 (f64 if an operand is f64), never natively in f16, bf16 or fp8; integers
and bool in numpy's common type of the operands, wrapping, or in f64 for functions that leave the
integers (``real``) and with scalars that are not whole. The result is rounded once, to the dtype of
the output (towards zero for an integer one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES, is_float, np_dtype
from kernbench.errors import UsageError

_Dtype: TypeAlias = np.dtype[Any]
Slots: TypeAlias = (
    "Sequence[_Dtype | float]"  # dtypes of arrays, scalars in their places
)
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class NumpyOp:
    """One row. ``cost_cycles`` is MATH time an element and lane (simulator.md section 5): an add 1,
    special functions 4, as GPUs have 64 FP32 and 16 such lanes an SM, softmax the sum of its steps.

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


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Products of f32 are exact in f64, so neither rounded nor too large before the sum."""
    return np.asarray(np.multiply(a, b, dtype=_F64 if a.dtype == _F32 else None) + c)


def _softmax(x: Array, axis: int | None, keepdims: bool) -> Array:
    """Along ``axis`` (None: the last); ulps: 52 above the line and below, as |x - max| < 104."""
    axis = -1 if axis is None else axis
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def _copy(
    shape: tuple[int, ...], x: Array, offset: float = 0, *strides: float
) -> Array:
    """``x`` in row-major order; with strides, in elements, x.flat[offset + sum(i[d] * strides[d])]
    at each index i of the output.
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
    "sigmoid": NumpyOp(
        lambda x: 1 / (1 + np.exp(-x)), 1, cost_cycles=4, real=True, ulps=6
    ),
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
    "fma": NumpyOp(_fma, 3, ulps=1, sums=True),
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


def numpy_op(name: str, ops: Mapping[str, NumpyOp] = NUMPY_OPS) -> NumpyOp:
    """The row of ``name``; UsageError lists the valid names."""
    if (op := ops.get(name)) is None:
        raise UsageError(f"unknown math op {name!r}; valid: {', '.join(ops)}")
    return op


def cost_cycles(name: str) -> int:
    """MATH cycles an element and lane of the op ``name``."""
    return numpy_op(name).cost_cycles


def _work_dtype(
    dtypes: Sequence[_Dtype], scalars: Sequence[float], real: bool
) -> _Dtype:
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
    slots: Slots,
    axis: int | None = None,
    keepdims: bool = False,
    wide: bool = False,
) -> Callable[[Sequence[Array], tuple[int, ...]], Array]:
    """``op`` as f(arrays, shape), not yet rounded; ``wide``: f64 for every float (the oracle).

    Scalars are values of the dtype in which the op is computed, in the oracle too. An elementwise
    op may be called with arrays and a shape of one more axis in front. The caller mutes numpy's
    warnings. UsageError for too few or many operands; ValueError in f if they do not broadcast.
    """
    shaped, function = op.kind == "shaped", op.function
    if len(slots) != op.arity and not (shaped and len(slots) > op.arity):
        raise UsageError(f"op takes {op.arity} operands, not {len(slots)}")
    dtypes = [x for x in slots if isinstance(x, np.dtype)]
    scalars = {i: x for i, x in enumerate(slots) if not isinstance(x, np.dtype)}
    values = list(scalars.values())
    if shaped:  # those only place elements
        return lambda arrays, shape: np.asarray(
            function(shape, *arrays, *values)
        ).reshape(shape)
    narrow = _work_dtype(dtypes, values, op.real)
    work = _F64 if wide and narrow == _F32 else narrow
    fixed = [(i, np.asarray(x).astype(narrow).astype(work)) for i, x in scalars.items()]
    options = {"axis": axis, "keepdims": keepdims} if op.kind == "reduction" else {}

    def compute(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
        mixed = [x.astype(work, copy=False) for x in arrays]
        for i, scalar in fixed:
            mixed.insert(i, scalar)
        return np.asarray(function(*mixed, **options)).reshape(shape)

    return compute


class Step(NamedTuple):
    """One epilogue step: ``op(sum, operand)``, or ``op(sum)`` where it has no operand."""

    op: NumpyOp
    scope: str = "output_tile"
    operand: Array | float | None = None


def _finish(total: Array, steps: Iterable[Step], wide: bool) -> Array:
    for op, _, operand in steps:
        operands = [total] if operand is None else [total, operand]
        arrays = [x for x in operands if isinstance(x, np.ndarray)]
        slots = [x.dtype if isinstance(x, np.ndarray) else x for x in operands]
        total = bind(op, slots, wide=wide)(arrays, total.shape)
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

    Multiplied and summed in ``accumulator``'s dtype. Steps of scope "k_tile" run on the product of
    each ``tile_k`` columns before it is added, the others on the finished sum. ``slack`` times the
    sum of the magnitudes is added before the steps, for error bounds.
    """
    work = accumulator(a.dtype, b.dtype, dtype_acc)
    work = _F64 if wide and work == _F32 else work
    a, b = a.astype(work, copy=False), b.astype(work, copy=False)
    if np.may_share_memory(
        a, b
    ):  # or numpy takes syrk for a @ a.T, which sums in another order
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
    return _finish(
        np.asarray(total), [step for step in steps if step.scope != "k_tile"], wide
    )


def accumulator(a: _Dtype, b: _Dtype, dtype_acc: str = "f32") -> _Dtype:
    """The dtype in which products of these are summed: f32 or f64, of integers i32 or i64."""
    if not _FLOATS.isdisjoint((a, b)):
        return _F64 if _F64 in (a, b) or dtype_acc == "f64" else _F32
    return np.dtype(
        np.int64 if dtype_acc == "i64" or 8 in (a.itemsize, b.itemsize) else np.int32
    )


@np.errstate(all="ignore")
def rounded(result: Array, dtype: str) -> Array:
    """``result`` as a contiguous array of our ``dtype``: the one rounding of an op."""
    return result.astype(np_dtype(dtype), order="C", copy=False)

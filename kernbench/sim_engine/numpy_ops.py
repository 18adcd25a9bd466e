"""What every op computes: the table ``NUMPY_OPS``. Knows no record.

To add an op, add its row here and its case to ``tests/op_cases.py``, where a row
without one fails. The oracle of the debug mode uses this table too, with the same
functions in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, prod

import numpy as np

from kernbench.common.arrays import Array
from kernbench.errors import UsageError, VerificationError
from kernbench.sim_engine.arithmetic import F32, F64
from kernbench.sim_engine.op_calls import (
    along_axis,
    binary,
    bounded,
    choice,
    constant,
    conversion,
    counting,
    fused,
    indexed,
    reduction,
    unary,
)
from kernbench.sim_engine.op_dtypes import (
    COUNTED,
    INDEX,
    KEPT,
    REAL,
    SELECTED,
    SIGNED,
    TRUTH,
)
from kernbench.sim_engine.op_forms import (
    ALONG_AXIS,
    GATHER,
    PLACEMENT,
    REDUCTION,
    SCAN,
)
from kernbench.sim_engine.op_spec import OpSpec


def _rsqrt(x: Array) -> Array:
    """1 / sqrt(x): two operations, each rounded correctly (1.5 ulps with the last)."""
    return np.asarray(1 / np.sqrt(x))


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); infinities of exp give 0."""
    return np.asarray(1 / (1 + np.exp(-x)))


def _relu(x: Array) -> Array:
    """``x`` where it is positive, else 0; a NaN stays one."""
    return np.maximum(x, 0)


def _same(x: Array) -> Array:
    """The operand itself: a cast is all in the rounding of its result."""
    return x


def _where(condition: Array, a: Array, b: Array) -> Array:
    """Whatever is not 0 is true; a float condition too."""
    return np.where(condition != 0, a, b)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once.

    Products of f32 are exact in f64, so they are neither rounded nor too large before
    the sum.
    """
    product_dtype = F64 if a.dtype == F32 else None
    return np.asarray(np.multiply(a, b, dtype=product_dtype) + c)


def _clamp(x: Array, low: Array, high: Array) -> Array:
    """``high`` wins where it is below ``low``."""
    return np.minimum(np.maximum(x, low), high)


def _softmax(x: Array, axis: int | None, keepdims: bool) -> Array:
    """exp(x - max) over the sum of that, along ``axis`` (None: the last).

    Its ulps: 52 above the line and 52 below, since |x - max| < 104 where exp is not 0.
    """
    axis = -1 if axis is None else axis
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


_erf_of_one = np.frompyfunc(erf, 1, 1)


def _erf(x: Array) -> Array:
    """The error function: that of C, in f64, rounded to the dtype of ``x``."""
    return np.asarray(_erf_of_one(x.astype(F64)), F64).astype(x.dtype)


def _cumsum(x: Array, axis: int | None, keepdims: bool) -> Array:
    """The sums of the first elements of each line along ``axis`` (None: the last)."""
    return np.cumsum(x, axis=-1 if axis is None else axis)


def _sort(x: Array, axis: int | None, keepdims: bool) -> Array:
    """Each line along ``axis`` (None: the last) in order, a NaN as the largest."""
    return np.sort(x, axis=-1 if axis is None else axis)


def _gather(
    shape: tuple[int, ...], x: Array, index: Array, axis: int | None = None
) -> Array:
    """Of each line of ``x`` along ``axis`` (None: the last) the elements at ``index``.

    VerificationError for an index that is not in it: what a kernel has computed or
    loaded is no value that the user gave.
    """
    along = -1 if axis is None else axis
    extent = x.shape[along]
    at = index.astype(np.int64)
    if at.size and (at.min() < 0 or at.max() >= extent):
        raise VerificationError(
            f"gather has indices from {at.min()} to {at.max()}, and the axis has "
            f"{extent} elements, 0 to {extent - 1}"
        )
    return np.asarray(np.take_along_axis(x, at, along))


def _copy(
    shape: tuple[int, ...], x: Array, offset: float = 0, *strides: float
) -> Array:
    """``x`` in row-major order, or walked with strides.

    ``offset`` and ``strides`` are in elements: the output holds x.flat[offset +
    sum(i[d] * strides[d])] at each index i. UsageError if the walk leaves ``x``.
    """
    if not strides:
        return x.reshape(shape)
    index = np.asarray(int(offset))
    for extent, stride in zip(shape, strides, strict=True):
        index = index[..., None] + np.arange(extent) * int(stride)
    if index.size and (index.min() < 0 or index.max() >= x.size):
        raise UsageError(
            f"copy walks elements {index.min()} to {index.max()} of a tensor of "
            f"{x.size}; offset {offset}, strides {strides}, shape {shape}"
        )
    return np.asarray(x.reshape(-1)[index])


def _full(shape: tuple[int, ...], value: Array | float, *_more: float) -> Array:
    """``value`` everywhere, whatever scalars there are besides."""
    return np.full(shape, value)


def _arange(shape: tuple[int, ...], start: float = 0, *_end: float) -> Array:
    """start, start + 1, …: as many as the shape holds, so that an end is not needed."""
    return start + np.arange(prod(shape), dtype=np.float64).reshape(shape)


_SPECIAL_CYCLES = 4  # of the functions for which GPUs have special units

_SORT_CYCLES = 36
"""Steps of a bitonic network on lines of 256 elements, log2(n) (log2(n) + 1) / 2."""


def _special(
    name: str, function: Callable[[Array], Array], help: str, ulps: float
) -> OpSpec:
    """A function of one operand that leaves the integers and is costly."""
    return OpSpec(
        name,
        function,
        1,
        unary,
        help,
        dtype=REAL,
        cost_cycles=_SPECIAL_CYCLES,
        ulps=ulps,
    )


def _comparison(
    name: str, function: Callable[[Array, Array], Array], help: str
) -> OpSpec:
    """A comparison, called like Python's operator."""
    return OpSpec(name, function, 2, binary, help, operator=name, dtype=TRUTH)


CAST = OpSpec("cast", _same, 1, conversion, "``x`` rounded to another dtype.")
COPY = OpSpec(
    "copy",
    _copy,
    1,
    form=PLACEMENT,
    help="A tensor in row-major order; what reshape, transpose and slice may need.",
)
FULL = OpSpec("full", _full, 1, constant, "A tensor of one value.", form=PLACEMENT)

_ROWS: tuple[OpSpec, ...] = (
    _special("exp", np.exp, "e ** x.", ulps=4),
    _special("exp2", np.exp2, "2 ** x.", ulps=4),
    _special("log", np.log, "Natural logarithm.", ulps=4),
    _special("log2", np.log2, "Logarithm to base 2.", ulps=4),
    _special("erf", _erf, "Error function.", ulps=1),
    _special("sqrt", np.sqrt, "Square root.", ulps=0.5),
    _special("rsqrt", _rsqrt, "1 / sqrt(x).", ulps=1.5),
    _special("tanh", np.tanh, "Hyperbolic tangent.", ulps=4),
    _special("sigmoid", _sigmoid, "1 / (1 + exp(-x)).", ulps=6),
    OpSpec("abs", np.abs, 1, unary, "|x|.", operator="abs"),
    OpSpec("neg", np.negative, 1, unary, "-x.", operator="neg", dtype=SIGNED),
    CAST,
    OpSpec("add", np.add, 2, binary, "a + b.", operator="add", ulps=0.5),
    OpSpec(
        "sub", np.subtract, 2, binary, "a - b.", operator="sub", dtype=SIGNED, ulps=0.5
    ),
    OpSpec("mul", np.multiply, 2, binary, "a * b.", operator="mul", ulps=0.5),
    OpSpec(
        "div",
        np.divide,
        2,
        binary,
        "a / b.",
        operator="truediv",
        dtype=REAL,
        cost_cycles=_SPECIAL_CYCLES,
        ulps=0.5,
    ),
    OpSpec("maximum", np.maximum, 2, binary, "The larger of a and b."),
    OpSpec("minimum", np.minimum, 2, binary, "The smaller of a and b."),
    OpSpec(
        "where",
        _where,
        3,
        choice,
        "``a`` where ``cond`` is not 0, else ``b``.",
        dtype=SELECTED,
    ),
    OpSpec("fma", _fma, 3, fused, "a * b + c, rounded once.", ulps=1, sums=True),
    OpSpec(
        "clamp", _clamp, 3, bounded, "``x``, but at least ``low`` and at most ``high``."
    ),
    OpSpec(
        "sum",
        np.sum,
        1,
        reduction,
        "Sum over ``axis`` (all axes if None).",
        form=REDUCTION,
        dtype=COUNTED,
        ulps=0.5,
        sums=True,
    ),
    OpSpec(
        "max",
        np.max,
        1,
        reduction,
        "Maximum over ``axis`` (all axes if None).",
        form=REDUCTION,
    ),
    OpSpec(
        "min",
        np.min,
        1,
        reduction,
        "Minimum over ``axis`` (all axes if None).",
        form=REDUCTION,
    ),
    OpSpec(
        "argmax",
        np.argmax,
        1,
        reduction,
        "Where the first maximum along ``axis`` is (of all elements if None).",
        form=REDUCTION,
        dtype=INDEX,
    ),
    OpSpec(
        "argmin",
        np.argmin,
        1,
        reduction,
        "Where the first minimum along ``axis`` is (of all elements if None).",
        form=REDUCTION,
        dtype=INDEX,
    ),
    OpSpec(
        "cumsum",
        _cumsum,
        1,
        along_axis,
        "Sum of each element and those before it along ``axis``.",
        form=SCAN,
        dtype=COUNTED,
        ulps=0.5,
        sums=True,
    ),
    OpSpec(
        "sort",
        _sort,
        1,
        along_axis,
        "The elements along ``axis`` in order, the smallest first.",
        form=ALONG_AXIS,
        dtype=KEPT,
        cost_cycles=_SORT_CYCLES,
    ),
    OpSpec(
        "gather",
        _gather,
        2,
        indexed,
        "x[index] along ``axis``: the element that each index says.",
        form=GATHER,
        dtype=KEPT,
        cost_cycles=_SPECIAL_CYCLES,
    ),
    OpSpec(
        "softmax",
        _softmax,
        1,
        along_axis,
        "exp(x - max) / sum of that, along ``axis``.",
        form=ALONG_AXIS,
        dtype=REAL,
        cost_cycles=8,
        ulps=120,
    ),
    _comparison("eq", np.equal, "a == b."),
    _comparison("ne", np.not_equal, "a != b."),
    _comparison("lt", np.less, "a < b."),
    _comparison("le", np.less_equal, "a <= b."),
    _comparison("gt", np.greater, "a > b."),
    _comparison("ge", np.greater_equal, "a >= b."),
    COPY,
    FULL,
    OpSpec(
        "arange",
        _arange,
        0,
        counting,
        "start, start + 1, … end - 1; with one argument 0, 1, … start - 1.",
        form=PLACEMENT,
    ),
    OpSpec("bias", np.add, 2, epilogue=True, ulps=0.5),
    OpSpec("relu", _relu, 1, unary, "max(x, 0).", epilogue=True),
    OpSpec("scale", np.multiply, 2, epilogue=True, ulps=0.5),
    OpSpec("dequant", np.multiply, 2, epilogue=True, ulps=0.5),
)

NUMPY_OPS: dict[str, OpSpec] = {spec.name: spec for spec in _ROWS}


def op_spec(name: str, ops: Mapping[str, OpSpec] = NUMPY_OPS) -> OpSpec:
    """The row of ``name``; UsageError lists the valid names."""
    spec = ops.get(name)
    if spec is None:
        raise UsageError(f"unknown math op {name!r}; valid: {', '.join(ops)}")
    return spec


def cost_cycles(name: str) -> int:
    """MATH cycles of the op ``name`` for one element in one lane."""
    return op_spec(name).cost_cycles

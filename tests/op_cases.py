"""The meaning of every op: one ``OpCase`` for each row of ``NUMPY_OPS``.

Whoever adds a row adds its case here; a row without one fails. The tests of the table,
of ``tl``, of the oracle and of the elements that an op reads are all made of these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i32", "i64", "u8", "u16")

X = np.array([0.25, 1.0, 4.0], np.float32)
Y = np.array([2.0, -1.0, 0.5], np.float32)
SOME = np.array([True, False, True])


@dataclass(frozen=True)
class OpCase:
    """What one op is.

    Of ``operands`` it gives ``expected``. ``meaning`` is the op in f64 (of integers in
    i64), on arrays; None where what it does is in its arguments. ``dtypes`` are those
    that random operands of a kernel have, only ``positive`` ones if so. An op that
    ``selects`` does not change with every element that it needs.
    """

    operands: tuple[Any, ...]
    expected: Any
    meaning: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] = FLOATS + INTEGERS
    positive: bool = False
    selects: bool = False


def cumsum(x, axis=-1):
    """Of a scalar it is the scalar."""
    return np.cumsum(x, axis)


def softmax(x, axis=None):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


OP_CASES = {
    "exp": OpCase((X,), np.exp([0.25, 1, 4]), np.exp, dtypes=FLOATS),
    "log": OpCase((X,), np.log([0.25, 1, 4]), np.log, positive=True),
    "exp2": OpCase((Y,), [4, 0.5, 2**0.5], np.exp2, dtypes=FLOATS),
    "log2": OpCase((X,), [-2, 0, 2], np.log2, positive=True),
    "erf": OpCase((Y,), [erf(2), -erf(1), erf(0.5)], np.vectorize(erf, [float])),
    "sqrt": OpCase((X,), [0.5, 1, 2], np.sqrt, positive=True),
    "rsqrt": OpCase((X,), [2, 1, 0.5], lambda x: 1 / np.sqrt(x), positive=True),
    "tanh": OpCase((X,), np.tanh([0.25, 1, 4]), np.tanh),
    "sigmoid": OpCase(
        (Y,),
        [1 / (1 + np.exp(-y)) for y in (2.0, -1.0, 0.5)],
        lambda x: 1 / (1 + np.exp(-1.0 * x)),
    ),
    "abs": OpCase((Y,), [2, 1, 0.5], np.abs),
    "neg": OpCase((Y,), [-2, 1, -0.5], np.negative),
    "cast": OpCase((Y,), [2, -1, 0.5], selects=True),
    "add": OpCase((X, Y), [2.25, 0, 4.5], np.add),
    "sub": OpCase((X, Y), [-1.75, 2, 3.5], np.subtract),
    "mul": OpCase((X, Y), [0.5, -1, 2], np.multiply),
    "div": OpCase((X, Y), [0.125, -1, 8], np.divide, positive=True),
    "maximum": OpCase((X, Y), [2, 1, 4], np.maximum, selects=True),
    "minimum": OpCase((X, Y), [0.25, -1, 0.5], np.minimum, selects=True),
    "where": OpCase(
        (SOME, X, Y),
        [0.25, -1, 4],
        lambda cond, a, b: np.where(cond != 0, a, b),
        selects=True,
    ),
    "fma": OpCase((X, Y, 1.0), [1.5, 0, 3], lambda a, b, c: a * b + c),
    "clamp": OpCase(
        (Y, -0.5, 1.0),
        [1, -0.5, 0.5],
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
        selects=True,
    ),
    "sum": OpCase((X,), 5.25, np.sum),
    "max": OpCase((Y,), 2, np.max, selects=True),
    "min": OpCase((Y,), -1, np.min, selects=True),
    "argmax": OpCase((Y,), 0, np.argmax, selects=True),
    "argmin": OpCase((Y,), 1, np.argmin, selects=True),
    "cumsum": OpCase((Y,), [2, 1, 1.5], cumsum),
    "sort": OpCase((Y,), [-1, 0.5, 2], np.sort),
    "gather": OpCase((X, np.array([2, 0, 2])), [4, 0.25, 4], np.take_along_axis),
    "softmax": OpCase(
        (X,),
        np.exp([0.25, 1, 4]) / np.exp([0.25, 1, 4]).sum(),
        softmax,
        dtypes=FLOATS,
    ),
    "eq": OpCase((Y, 0.5), [0, 0, 1], np.equal, selects=True),
    "ne": OpCase((Y, 0.5), [1, 1, 0], np.not_equal, selects=True),
    "lt": OpCase((Y, 0.5), [0, 1, 0], np.less, selects=True),
    "le": OpCase((Y, 0.5), [0, 1, 1], np.less_equal, selects=True),
    "gt": OpCase((Y, 0.5), [1, 0, 0], np.greater, selects=True),
    "ge": OpCase((Y, 0.5), [1, 0, 1], np.greater_equal, selects=True),
    "copy": OpCase((Y,), [2, -1, 0.5]),
    "full": OpCase((7.0,), [7, 7, 7]),
    "arange": OpCase((2.0,), [2, 3, 4]),
    "bias": OpCase((Y, X), [2.25, 0, 4.5]),
    "relu": OpCase((Y,), [2, 0, 0.5], lambda x: np.maximum(x, 0), selects=True),
    "scale": OpCase((Y, 3.0), [6, -3, 1.5]),
    "dequant": OpCase((Y, 0.5), [1, -0.5, 0.25]),
}

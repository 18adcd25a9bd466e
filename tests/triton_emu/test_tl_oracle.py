"""Every tl call that computes, against numpy in float64 (or int64), rounded once to its dtype."""

import inspect
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import is_float, np_dtype
from kernbench.triton_emu.tl_context import TLContext

FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "i32", "i64", "u8", "u16")
SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)


@dataclass
class Example:
    """``call(tl, *handles)`` on ``inputs``, and what it should be in wide arithmetic."""

    inputs: list[Any]
    call: Any
    expected: Any


def array(draw, shape, dtypes, positive=False):
    """Multiples of 1/8 up to 4 (whole numbers up to 31), which every dtype holds exactly."""
    dtype = draw(st.sampled_from(dtypes))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    low = 1 if positive else 0 if dtype[0] in "ub" and dtype != "bf16" else -31
    values = rng.integers(low, 2 if dtype == "bool" else 32, shape)
    return np.asarray(values / 8 if is_float(dtype) else values).astype(np_dtype(dtype))


def wide(x):
    """``x`` in the oracle's arithmetic."""
    x = np.asarray(x)
    return x.astype(np.int64 if x.dtype.kind in "iub" else np.float64)


def broadcastable(draw, shape):
    """``shape`` with some extents 1 and some leading ones left out."""
    thin = tuple(1 if draw(st.booleans()) else n for n in shape)
    return thin[draw(st.integers(0, len(thin))) :] if draw(st.booleans()) else thin


def elementwise(function, arity=1, dtypes=FLOATS + INTEGERS, positive=False):
    """Cases of an op: whole shapes, broadcast ones, and numbers in place of all but one operand."""

    def case(draw, name):
        shape = draw(SHAPES)
        full = draw(st.integers(0, arity - 1))
        operands = []
        for i in range(arity):
            if i != full and draw(st.booleans()):
                number = draw(st.integers(1, 9))
                operands.append(number / 4 if draw(st.booleans()) else number)
            else:
                extents = shape if i == full else broadcastable(draw, shape)
                operands.append(array(draw, extents, dtypes, positive))

        def call(tl, *handles):
            rest = iter(handles)
            mixed = [next(rest) if isinstance(x, np.ndarray) else x for x in operands]
            return getattr(tl, name)(*mixed)

        inputs = [x for x in operands if isinstance(x, np.ndarray)]
        return Example(inputs, call, function(*(wide(x) for x in operands)))

    return case


def reduction(function, dtypes=FLOATS + INTEGERS):
    """Cases of an op along an axis, with and without keepdims."""

    def case(draw, name):
        x = array(draw, draw(SHAPES), dtypes)
        axis = draw(st.none() | st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
        keepdims = draw(st.booleans())

        def call(tl, h):
            return getattr(tl, name)(h, axis=axis, keepdims=keepdims)

        return Example([x], call, function(wide(x), axis=axis, keepdims=keepdims))

    return case


def softmax(draw, name):
    shape = draw(SHAPES.filter(bool))
    x, axis = array(draw, shape, FLOATS), draw(st.integers(-len(shape), len(shape) - 1))
    e = np.exp(wide(x))
    return Example(
        [x], lambda tl, h: tl.softmax(h, axis), e / e.sum(axis, keepdims=True)
    )


def cast(draw, name):
    x = array(draw, draw(SHAPES), (*FLOATS, *INTEGERS, "bool"))
    dtype = draw(st.sampled_from(("f32", "i32")))
    expected = wide(x).astype(np.int64 if dtype == "i32" else np.float64)
    return Example([x], lambda tl, h: tl.cast(h, dtype), expected)


def full(draw, name):
    shape, value = draw(SHAPES), draw(st.integers(-9, 9))
    dtype = draw(st.sampled_from((*FLOATS, "i32")))
    kind = np.int64 if dtype == "i32" else np.float64
    if name == "zeros":
        return Example([], lambda tl: tl.zeros(shape, dtype), np.zeros(shape, kind))
    return Example(
        [], lambda tl: tl.full(shape, value, dtype), np.full(shape, value, kind)
    )


def arange(draw, name):
    start, count = draw(st.integers(-9, 9)), draw(st.integers(1, 99))
    if draw(st.booleans()):
        return Example([], lambda tl: tl.arange(count), np.arange(count))
    end = start + count
    return Example(
        [], lambda tl: tl.arange(start, end, "f32"), np.arange(start, end) * 1.0
    )


def dot(draw, name):
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    dtype, flip_a, flip_b = (draw(st.sampled_from(c)) for c in (FLOATS, (0, 1), (0, 1)))
    a = array(draw, (k, m) if flip_a else (m, k), [dtype])
    b = array(draw, (n, k) if flip_b else (k, n), [dtype])
    c = array(draw, (m, n), ["f32"])
    with_acc = draw(st.booleans())
    out_dtype = None if with_acc else draw(st.sampled_from((None, "f32")))

    def call(tl, a, b, c):
        a, b = tl.transpose(a) if flip_a else a, tl.transpose(b) if flip_b else b
        return tl.dot(a, b, acc=c) if with_acc else tl.dot(a, b, out_dtype=out_dtype)

    product = (wide(a).T if flip_a else wide(a)) @ (wide(b).T if flip_b else wide(b))
    return Example([a, b, c], call, product + wide(c) if with_acc else product)


def reshape(draw, name):
    x = array(draw, draw(SHAPES), FLOATS)
    shape = draw(
        st.sampled_from([(-1,), (x.size,), (1, -1), (x.size, 1, 1), x.shape[::-1]])
    )
    flip = draw(st.booleans())

    def call(tl, h):
        return tl.reshape(tl.transpose(h) if flip else h, shape)

    return Example([x], call, (wide(x).T if flip else wide(x)).reshape(shape))


def transpose(draw, name):
    x = array(draw, draw(SHAPES), FLOATS)
    axes = draw(st.none() | st.permutations(range(x.ndim)))
    twice = draw(st.booleans())

    def call(tl, h):
        made = tl.transpose(h, axes)
        return tl.transpose(made, axes) if twice else made

    expected = wide(x).transpose(axes)
    return Example([x], call, expected.transpose(axes) if twice else expected)


def block(draw, name):
    x, flip = array(draw, draw(SHAPES), FLOATS), draw(st.booleans())
    seen = wide(x).T if flip else wide(x)
    starts = tuple(draw(st.integers(0, n - 1)) for n in seen.shape)
    ends = tuple(
        draw(st.integers(s + 1, n)) for s, n in zip(starts, seen.shape, strict=True)
    )
    shape = tuple(e - s for s, e in zip(starts, ends, strict=True))
    box = tuple(slice(s, e) for s, e in zip(starts, ends, strict=True))

    def call(tl, h):
        return tl.slice(tl.transpose(h) if flip else h, starts, shape)

    return Example([x], call, seen[box])


CASES = {
    "exp": elementwise(np.exp, dtypes=FLOATS),
    "log": elementwise(np.log, positive=True),
    "sqrt": elementwise(np.sqrt, positive=True),
    "rsqrt": elementwise(lambda x: 1 / np.sqrt(x), positive=True),
    "tanh": elementwise(np.tanh),
    "sigmoid": elementwise(lambda x: 1 / (1 + np.exp(-1.0 * x))),
    "abs": elementwise(np.abs),
    "neg": elementwise(np.negative),
    "relu": elementwise(lambda x: np.maximum(x, 0)),
    "add": elementwise(np.add, 2),
    "sub": elementwise(np.subtract, 2),
    "mul": elementwise(np.multiply, 2),
    "div": elementwise(np.divide, 2, positive=True),
    "maximum": elementwise(np.maximum, 2),
    "minimum": elementwise(np.minimum, 2),
    "eq": elementwise(np.equal, 2),
    "ne": elementwise(np.not_equal, 2),
    "lt": elementwise(np.less, 2),
    "le": elementwise(np.less_equal, 2),
    "gt": elementwise(np.greater, 2),
    "ge": elementwise(np.greater_equal, 2),
    "fma": elementwise(lambda a, b, c: a * b + c, 3),
    "clamp": elementwise(lambda x, low, high: np.minimum(np.maximum(x, low), high), 3),
    "where": elementwise(lambda c, a, b: np.where(c != 0, a, b), 3),
    "sum": reduction(np.sum),
    "max": reduction(np.max),
    "min": reduction(np.min),
    "softmax": softmax,
    "cast": cast,
    "full": full,
    "zeros": full,
    "arange": arange,
    "dot": dot,
    "reshape": reshape,
    "transpose": transpose,
    "slice": block,
}
NO_RESULT = {"program_id", "num_programs", "cdiv", "load", "ref", "store", "composite", "wait"} | {
    "scope", "device_print", "device_assert", "send", "recv", "recv_async"
}  # fmt: skip


def test_every_call_that_computes_has_a_case_here():
    public = {
        name for name, _ in inspect.getmembers(TLContext, callable) if name[0] != "_"
    }
    assert public - NO_RESULT == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_call_computes_what_numpy_does(run_kernel, name):
    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def check(data):
        example = CASES[name](data.draw, name)

        def kernel(*pointers, tl):
            inputs = zip(pointers, example.inputs, strict=False)
            handles = [tl.load(p, x.shape, dtype_of(x)) for p, x in inputs]
            made = example.call(tl, *handles)
            tl.store(pointers[-1], made)
            return made

        run = run_kernel(kernel, *example.inputs, np.zeros(5**3, np.float64))
        compare(run, example.expected)

    check()


def dtype_of(x):
    return next(
        name for name in (*FLOATS, *INTEGERS, "bool") if np_dtype(name) == x.dtype
    )


def compare(run, expected):
    """The bytes that the kernel stored in its last tensor, against ``expected``."""
    made, expected = run.made, np.asarray(expected)
    assert made.shape == expected.shape
    assert is_float(made.dtype) == (expected.dtype.kind == "f") or made.dtype == "bool"
    writes = [r.params for r in run.engine.op_log if r.op_name == "dma_write"]
    found = run.store.view("hbm", writes[-1]["dst_addr"], made.shape, made.dtype)
    bound = dtype_row(made.dtype).tolerance
    rounded = expected.astype(np_dtype(made.dtype))
    if not is_float(made.dtype):
        assert np.array_equal(found, rounded)
        return
    np.testing.assert_allclose(
        found.astype(np.float64), rounded.astype(np.float64), bound.rtol, bound.atol
    )

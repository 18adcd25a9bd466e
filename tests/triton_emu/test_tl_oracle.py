"""Every tl call that computes, against numpy in float64 (or int64), rounded once."""

import inspect
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from op_cases import FLOATS, INTEGERS, OP_CASES
from pace import first_fast

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import is_float, np_dtype
from kernbench.sim_engine import op_calls as call_forms
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.triton_emu.math_calls import op_calls
from kernbench.triton_emu.tl_context import TLContext

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)


@dataclass
class Example:
    """``call(tl, *handles)`` on ``inputs``, and what it gives in wide arithmetic."""

    inputs: list[Any]
    call: Any
    expected: Any


def array(draw, shape, dtypes, positive=False):
    """Multiples of 1/8 up to 4 (whole numbers up to 31): every dtype holds them."""
    dtype = draw(st.sampled_from(dtypes))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    unsigned = dtype == "bool" or dtype.startswith("u")
    low = -31
    if positive:
        low = 1
    elif unsigned:
        low = 0
    high = 2 if dtype == "bool" else 32
    values = rng.integers(low, high, shape)
    if is_float(dtype):
        values = values / 8
    return np.asarray(values).astype(np_dtype(dtype))


def wide(x):
    """``x`` in the oracle's arithmetic."""
    x = np.asarray(x)
    is_whole = x.dtype.kind in "iub"
    return x.astype(np.int64 if is_whole else np.float64)


def broadcastable(draw, shape):
    """``shape`` with some extents 1 and some leading ones left out."""
    thin = tuple(1 if draw(st.booleans()) else n for n in shape)
    first = draw(st.integers(0, len(thin)))
    return thin[first:] if draw(st.booleans()) else thin


# -- the calls of ops, one generator for each form of call


def elementwise(draw, name):
    """Whole shapes, broadcast ones, and numbers in the place of all but one operand."""
    case = OP_CASES[name]
    arity = NUMPY_OPS[name].arity
    shape = draw(SHAPES)
    full = draw(st.integers(0, arity - 1))
    operands = []
    for i in range(arity):
        if i != full and draw(st.booleans()):
            number = draw(st.integers(1, 9))
            operands.append(number / 4 if draw(st.booleans()) else number)
        else:
            extents = shape if i == full else broadcastable(draw, shape)
            operands.append(array(draw, extents, case.dtypes, case.positive))

    def call(tl, *handles):
        rest = iter(handles)
        mixed = [next(rest) if isinstance(x, np.ndarray) else x for x in operands]
        return getattr(tl, name)(*mixed)

    inputs = [x for x in operands if isinstance(x, np.ndarray)]
    return Example(inputs, call, case.meaning(*map(wide, operands)))


def reduction(draw, name):
    """Along an axis or all of them, with and without keepdims."""
    case = OP_CASES[name]
    x = array(draw, draw(SHAPES), case.dtypes)
    axis = None
    if x.ndim:
        axis = draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    keepdims = draw(st.booleans())

    def call(tl, h):
        return getattr(tl, name)(h, axis=axis, keepdims=keepdims)

    return Example([x], call, case.meaning(wide(x), axis=axis, keepdims=keepdims))


def along_axis(draw, name):
    case = OP_CASES[name]
    shape = draw(SHAPES.filter(bool))
    x = array(draw, shape, case.dtypes)
    axis = draw(st.integers(-len(shape), len(shape) - 1))

    def call(tl, h):
        return getattr(tl, name)(h, axis)

    return Example([x], call, case.meaning(wide(x), axis))


def indexed(draw, name):
    """Lines of another length, by indices of any integer dtype."""
    case = OP_CASES[name]
    shape = draw(SHAPES.filter(bool))
    x = array(draw, shape, (*case.dtypes, "bool"))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    of_index = list(shape)
    of_index[axis] = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    index = rng.integers(0, shape[axis], of_index)
    index = index.astype(np_dtype(draw(st.sampled_from(INTEGERS))))

    def call(tl, h, i):
        made = getattr(tl, name)(h, i, axis)
        assert made.dtype == h.dtype
        return made

    return Example([x, index], call, case.meaning(wide(x), wide(index), axis))


def conversion(draw, name):
    x = array(draw, draw(SHAPES), (*FLOATS, *INTEGERS, "bool"))
    dtype = draw(st.sampled_from(("f32", "i32")))
    expected = wide(x).astype(np.int64 if dtype == "i32" else np.float64)
    return Example([x], lambda tl, h: getattr(tl, name)(h, dtype), expected)


def constant(draw, name):
    shape = draw(SHAPES)
    value = draw(st.integers(-9, 9))
    dtype = draw(st.sampled_from((*FLOATS, "i32")))
    expected = np.full(shape, value, np.int64 if dtype == "i32" else np.float64)
    return Example([], lambda tl: getattr(tl, name)(shape, value, dtype), expected)


def counting(draw, name):
    start = draw(st.integers(-9, 9))
    count = draw(st.integers(1, 99))
    if draw(st.booleans()):
        return Example([], lambda tl: getattr(tl, name)(count), np.arange(count))
    end = start + count
    expected = np.arange(start, end) * 1.0
    return Example([], lambda tl: getattr(tl, name)(start, end, "f32"), expected)


BY_FORM = {
    call_forms.unary: elementwise,
    call_forms.binary: elementwise,
    call_forms.fused: elementwise,
    call_forms.choice: elementwise,
    call_forms.bounded: elementwise,
    call_forms.reduction: reduction,
    call_forms.along_axis: along_axis,
    call_forms.indexed: indexed,
    call_forms.conversion: conversion,
    call_forms.constant: constant,
    call_forms.counting: counting,
}


# -- the other calls


def zeros(draw, name):
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from((*FLOATS, "i32")))
    expected = np.zeros(shape, np.int64 if dtype == "i32" else np.float64)
    return Example([], lambda tl: tl.zeros(shape, dtype), expected)


def dot(draw, name):
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    dtype = draw(st.sampled_from(FLOATS))
    flip_a = draw(st.booleans())
    flip_b = draw(st.booleans())
    a = array(draw, (k, m) if flip_a else (m, k), [dtype])
    b = array(draw, (n, k) if flip_b else (k, n), [dtype])
    c = array(draw, (m, n), ["f32"])
    with_acc = draw(st.booleans())
    out_dtype = None if with_acc else draw(st.sampled_from((None, "f32")))

    def call(tl, a, b, c):
        if flip_a:
            a = tl.transpose(a)
        if flip_b:
            b = tl.transpose(b)
        if with_acc:
            return tl.dot(a, b, acc=c)
        return tl.dot(a, b, out_dtype=out_dtype)

    wide_a = wide(a).T if flip_a else wide(a)
    wide_b = wide(b).T if flip_b else wide(b)
    expected = wide_a @ wide_b
    if with_acc:
        expected = expected + wide(c)
    return Example([a, b, c], call, expected)


def reshape(draw, name):
    x = array(draw, draw(SHAPES), FLOATS)
    shapes = [(-1,), (x.size,), (1, -1), (x.size, 1, 1), x.shape[::-1]]
    shape = draw(st.sampled_from(shapes))
    flip = draw(st.booleans())

    def call(tl, h):
        return tl.reshape(tl.transpose(h) if flip else h, shape)

    seen = wide(x).T if flip else wide(x)
    return Example([x], call, seen.reshape(shape))


def transpose(draw, name):
    x = array(draw, draw(SHAPES), FLOATS)
    axes = draw(st.none() | st.permutations(range(x.ndim)))
    twice = draw(st.booleans())

    def call(tl, h):
        made = tl.transpose(h, axes)
        return tl.transpose(made, axes) if twice else made

    expected = wide(x).transpose(axes)
    if twice:
        expected = expected.transpose(axes)
    return Example([x], call, expected)


def block(draw, name):
    x = array(draw, draw(SHAPES), FLOATS)
    flip = draw(st.booleans())
    seen = wide(x).T if flip else wide(x)
    starts = []
    shape = []
    for extent in seen.shape:
        starts.append(draw(st.integers(0, extent - 1)))
        shape.append(draw(st.integers(1, extent - starts[-1])))
    box = tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))

    def call(tl, h):
        return tl.slice(tl.transpose(h) if flip else h, tuple(starts), tuple(shape))

    return Example([x], call, seen[box])


def trans(draw, name):
    """As Triton writes it: the axes one by one, or none for all of them reversed."""
    x = array(draw, draw(SHAPES), FLOATS)
    axes = draw(st.just(()) | st.permutations(range(x.ndim)))

    def call(tl, h):
        return tl.trans(h, *axes)

    return Example([x], call, wide(x).transpose(axes or None))


def topk(draw, name):
    shape = draw(SHAPES.filter(bool))
    x = array(draw, shape, (*FLOATS, *INTEGERS))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    k = draw(st.integers(1, shape[axis]))
    descending = np.flip(np.sort(wide(x), axis), axis)
    expected = np.take(descending, range(k), axis)
    return Example([x], lambda tl, h: tl.topk(h, k, axis), expected)


def flip(draw, name):
    shape = draw(SHAPES.filter(bool))
    x = array(draw, shape, FLOATS)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return Example([x], lambda tl, h: tl.flip(h, axis), np.flip(wide(x), axis))


OTHER_CASES = {
    "topk": topk,
    "flip": flip,
    "trans": trans,
    "zeros": zeros,
    "dot": dot,
    "reshape": reshape,
    "transpose": transpose,
    "slice": block,
}
CASES = OTHER_CASES | {name: BY_FORM[op.call] for name, op in op_calls().items()}
NO_RESULT = {
    *("program_id", "num_programs", "cdiv", "load", "ref", "store", "composite"),
    *("wait", "scope", "device_print", "device_assert", "send", "recv", "recv_async"),
    *("slot_bytes", "bytes_of", "truth_of", "issue", "static_range"),
    *("range", "constexpr", "own"),
}


def test_every_call_that_computes_has_a_case_here():
    methods = {name for name, _ in inspect.getmembers(TLContext, callable)}
    public = {name for name in methods if not name.startswith("_")}
    assert public == NO_RESULT | set(CASES)


def test_no_op_is_named_as_another_call_is():
    assert not set(op_calls()) & (NO_RESULT | set(OTHER_CASES))


@pytest.mark.parametrize("examples", first_fast([4, 15]))
@pytest.mark.parametrize("name", CASES)
def test_a_call_computes_what_numpy_does(run_kernel, name, examples):
    @settings(max_examples=examples)
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
    names = (*FLOATS, *INTEGERS, "bool")
    return next(name for name in names if np_dtype(name) == x.dtype)


def compare(run, expected):
    """The bytes that the kernel stored in its last tensor, against ``expected``."""
    made = run.made
    expected = np.asarray(expected)
    assert made.shape == expected.shape
    assert is_float(made.dtype) == (expected.dtype.kind == "f") or made.dtype == "bool"
    writes = [r.params for r in run.engine.op_log if r.op_name == "dma_write"]
    found = run.store.view("hbm", writes[-1]["dst_addr"], made.shape, made.dtype)
    rounded = expected.astype(np_dtype(made.dtype))
    if not is_float(made.dtype):
        assert np.array_equal(found, rounded)
        return
    bound = dtype_row(made.dtype).tolerance
    np.testing.assert_allclose(
        found.astype(np.float64), rounded.astype(np.float64), bound.rtol, bound.atol
    )

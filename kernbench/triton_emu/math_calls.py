"""The math of ``tl``: a row a call, whose function and cost are the row of ``NUMPY_OPS``.

An op is added by a row here, one there and one in the oracle test. The dtype of a result:

- floats with floats give the wider; two of the same width f32 (of 16 bits) or f16 (of 8);
- a float with integers or bool gives the float, integers and bool what numpy gives;
- Python and numpy scalars promote nothing, but a float one makes f32 of integer handles (which it
  casts first), and a whole one i32 of bool;
- functions that leave the integers (exp, div, softmax …) make f32 of them, ``sum`` i32 of bool;
- comparisons give bool, and the condition of ``where`` does not count;
- ``out=`` rounds to its own dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import is_float, itemsize, name_of, np_dtype
from kernbench.common.messages import Region
from kernbench.common.pe_commands import MathCmd
from kernbench.errors import KernelError
from kernbench.sim_engine.numpy_ops import numpy_op
from kernbench.triton_emu.handles import (
    SCALARS,
    Operand,
    Out,
    Scalar,
    Shape,
    TensorHandle,
)
from kernbench.triton_emu.issuer import Issuer

Axis: TypeAlias = int | None
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _named(
    op: str, doc: str, call: Callable[..., TensorHandle]
) -> Callable[..., TensorHandle]:
    call.__name__, call.__doc__, call.__qualname__ = op, doc, f"TLContext.{op}"
    return call


def _unary(op: str, doc: str) -> Callable[..., TensorHandle]:
    def call(tl: MathCalls, x: TensorHandle, out: Out = None) -> TensorHandle:
        return tl._math(op, x, out=out)

    return _named(op, doc, call)


def _binary(op: str, doc: str) -> Callable[..., TensorHandle]:
    def call(tl: MathCalls, a: Operand, b: Operand, out: Out = None) -> TensorHandle:
        return tl._math(op, a, b, out=out)

    return _named(op, doc, call)


def _reduction(op: str, doc: str) -> Callable[..., TensorHandle]:
    def call(
        tl: MathCalls,
        x: TensorHandle,
        axis: Axis = None,
        keepdims: bool = False,
        out: Out = None,
    ) -> TensorHandle:
        return tl._math(op, x, axis=axis, keepdims=keepdims, out=out)

    return _named(op, doc, call)


class MathCalls(Issuer):
    """The calls that PE_MATH serves, and views. Results are pending, even of ready inputs.

    Operands are handles in scratch and numbers, broadcast as in numpy; ``out`` takes the result.
    """

    exp = _unary("exp", "e ** x.")
    log = _unary("log", "Natural logarithm.")
    sqrt = _unary("sqrt", "Square root.")
    rsqrt = _unary("rsqrt", "1 / sqrt(x).")
    tanh = _unary("tanh", "Hyperbolic tangent.")
    sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
    abs = _unary("abs", "|x|.")
    neg = _unary("neg", "-x.")
    relu = _unary("relu", "max(x, 0).")
    add = _binary("add", "a + b.")
    sub = _binary("sub", "a - b.")
    mul = _binary("mul", "a * b.")
    div = _binary("div", "a / b.")
    maximum = _binary("maximum", "The larger of a and b.")
    minimum = _binary("minimum", "The smaller of a and b.")
    eq = _binary("eq", "a == b.")
    ne = _binary("ne", "a != b.")
    lt = _binary("lt", "a < b.")
    le = _binary("le", "a <= b.")
    gt = _binary("gt", "a > b.")
    ge = _binary("ge", "a >= b.")
    sum = _reduction("sum", "Sum over ``axis`` (all axes if None).")
    max = _reduction("max", "Maximum over ``axis`` (all axes if None).")
    min = _reduction("min", "Minimum over ``axis`` (all axes if None).")

    def softmax(self, x: TensorHandle, axis: int = -1, out: Out = None) -> TensorHandle:
        """exp(x - max) / sum of that, along ``axis``."""
        return self._math("softmax", x, axis=axis, out=out)

    def where(
        self, cond: TensorHandle, a: Operand, b: Operand, out: Out = None
    ) -> TensorHandle:
        """``a`` where ``cond`` is not 0, else ``b``."""
        return self._math("where", cond, a, b, out=out)

    def fma(self, a: Operand, b: Operand, c: Operand, out: Out = None) -> TensorHandle:
        """a * b + c, rounded once."""
        return self._math("fma", a, b, c, out=out)

    def clamp(
        self, x: Operand, low: Operand, high: Operand, out: Out = None
    ) -> TensorHandle:
        """``x``, but at least ``low`` and at most ``high``."""
        return self._math("clamp", x, low, high, out=out)

    def cast(self, x: TensorHandle, dtype: str) -> TensorHandle:
        """``x`` rounded to another dtype."""
        return self._math("cast", x, dtype=dtype)

    def full(self, shape: Shape, value: Scalar, dtype: str = "f16") -> TensorHandle:
        """A tensor of one value."""
        return self._math("full", value, shape=shape, dtype=dtype)

    def zeros(self, shape: Shape, dtype: str = "f16") -> TensorHandle:
        """A tensor of zeros."""
        return self._math("full", 0, shape=shape, dtype=dtype, name="zeros")

    def arange(
        self, start: int, end: int | None = None, dtype: str = "i32"
    ) -> TensorHandle:
        """start, start + 1, … end - 1; with one argument 0, 1, … start - 1."""
        first, last = (0, start) if end is None else (start, end)
        return self._math("arange", first, shape=(last - first,), dtype=dtype)

    def reshape(self, x: TensorHandle, shape: Shape) -> TensorHandle:
        """A view of ``x`` in another shape; one extent may be -1."""
        return self._moved(
            "reshape", self._row_major(x, "reshape"), lambda t: t.reshape(shape)
        )

    def transpose(self, x: TensorHandle, axes: Shape | None = None) -> TensorHandle:
        """``x`` with its axes in another order (None: reversed).

        Of two axes free for dot and composite, a copy for other calls; of more a copy at once.
        """
        return self._moved("transpose", x, lambda t: t.transpose(axes))

    def slice(self, x: TensorHandle, starts: Shape, shape: Shape) -> TensorHandle:
        """The block of ``x`` from ``starts`` on: a view where contiguous, else a copy."""
        return self._moved("slice", x, lambda t: _block(t, starts, tuple(shape)))

    def _moved(
        self, name: str, x: TensorHandle, move: Callable[[Array], Array]
    ) -> TensorHandle:
        """What ``move`` makes of a numpy array: a view, a transposed one, else a strided copy."""
        stored = np.empty(
            self._live(x, name).region.shape, np.int8
        )  # a byte an element, unread
        try:
            seen = move(stored.T if x.transposed else stored)
        except (ValueError, IndexError) as error:
            raise KernelError(f"{name} of {x!r}: {error}") from error
        offset, r = seen.ctypes.data - stored.ctypes.data, x.region
        turned = (
            seen.ndim == 2 and seen.flags.f_contiguous and not seen.flags.c_contiguous
        )
        if not (turned or seen.flags.c_contiguous):
            walk = (offset, *seen.strides)
            return self._math(
                "copy", x, *walk, shape=seen.shape, dtype=x.dtype, name=name
            )
        shape, size = seen.shape[::-1] if turned else seen.shape, itemsize(x.dtype)
        region = Region(
            r.space, r.addr + offset * size, shape, r.dtype, seen.size * size
        )
        return replace(x, region=region, call=None, base=x.root, transposed=turned)

    def _row_major(self, x: TensorHandle, name: str) -> TensorHandle:
        """``x``, or a copy where it is a transpose."""
        if not self._live(x, name).transposed:
            return x
        walk = (0, 1, x.shape[0])
        return self._math("copy", x, *walk, shape=x.shape, dtype=x.dtype, name=name)

    def _operand(self, name: str, x: Any, as_stored: bool) -> Operand:
        if isinstance(x, SCALARS):
            return x
        if not isinstance(x, TensorHandle):
            raise KernelError(f"{name}: operand {x!r} is neither a handle nor a number")
        live = self._live(x, name, "operand")
        return live if as_stored else self._row_major(live, name)

    def _math(
        self,
        op: str,
        *operands: Operand,
        shape: Shape | None = None,
        dtype: str | None = None,
        axis: Axis = None,
        keepdims: bool = False,
        out: Out = None,
        name: str | None = None,
    ) -> TensorHandle:
        """Issue a MathCmd of the call ``name``; with a ``shape`` its operands are as stored."""
        row, name = numpy_op(op), name or op
        operands = tuple(self._operand(name, x, shape is not None) for x in operands)
        if shape is None:
            shape = _shape(op, row.kind, operands, axis, keepdims)
        if dtype is None:
            dtype = result_dtype(op, operands, row.real)
            handles = [x for x in operands if isinstance(x, TensorHandle)]
            integers = not (
                row.real or op == "where" or any(is_float(x.dtype) for x in handles)
            )
            if integers and is_float(dtype):
                floats = {id(x): self.cast(x, dtype) for x in handles}
                operands = tuple(floats.get(id(x), x) for x in operands)
        call = self._new_call(name)
        target = self._output(call, tuple(shape), dtype, out)
        inputs = tuple(x.region for x in operands if isinstance(x, TensorHandle))
        scalars = {
            i: float(x)
            for i, x in enumerate(operands)
            if not isinstance(x, TensorHandle)
        }
        in_place = target.region if row.kind == "elementwise" else None
        self._refuse_overlap(call, target, [r for r in inputs if r != in_place])
        message = MathCmd(
            op=op, inputs=inputs, out=target.region, axis=axis, keepdims=keepdims
        )
        message.scalars, message.scalar_positions = (
            tuple(scalars.values()),
            tuple(scalars),
        )
        return self._compute(call, target, message)


def result_dtype(op: str, operands: Sequence[Operand], real: bool) -> str:
    """The dtype of the op ``op`` of ``operands``; the rules are those of the module."""
    counted = operands[1:] if op == "where" else operands
    dtypes = {x.dtype for x in counted if isinstance(x, TensorHandle)}
    scalars = [x for x in counted if not isinstance(x, (TensorHandle, bool, np.bool_))]
    floats = {name for name in dtypes if is_float(name)}
    widest = max((itemsize(name) for name in floats), default=0)
    wide = {name for name in floats if itemsize(name) == widest}
    if op in _COMPARISONS:
        return "bool"
    if floats:
        return wide.pop() if len(wide) == 1 else {1: "f16", 2: "f32"}[widest]
    if real or any(isinstance(x, (float, np.floating)) for x in scalars):
        return "f32"
    if dtypes <= {"bool"}:
        if op in ("neg", "sub") and not scalars:
            raise KernelError(
                f"{op} of bool has no meaning; tl.cast the operands to i32 first"
            )
        return "i32" if scalars or op == "sum" else "bool"
    return name_of(np.result_type(*map(np_dtype, dtypes)))


def _shape(
    op: str, kind: str, operands: Sequence[Operand], axis: Axis, keepdims: bool
) -> tuple[int, ...]:
    """The shape of a result: that of the operands together, reduced along ``axis``."""
    shapes = [x.shape for x in operands if isinstance(x, TensorHandle)]
    if not shapes:
        raise KernelError(
            f"{op}: at least one operand must be a handle, got {operands!r}"
        )
    if kind == "elementwise" and len(set(shapes)) == 1:
        return shapes[0]
    try:
        whole = np.broadcast_to(np.int8(0), np.broadcast_shapes(*shapes))
        reduced = (
            whole.max(axis=axis, keepdims=keepdims) if kind == "reduction" else whole
        )
    except ValueError as error:
        raise KernelError(f"{op} of {shapes}, axis={axis}: {error}") from error
    return whole.shape if op == "softmax" else reduced.shape


def _block(t: Array, starts: Shape, shape: tuple[int, ...]) -> Array:
    box = tuple(slice(low, low + n) for low, n in zip(starts, shape, strict=True))
    seen = t[box] if box else t
    if seen.shape != shape or min((*starts, *(n - 1 for n in shape)), default=0) < 0:
        raise ValueError(
            f"the block of shape {shape} from {tuple(starts)} is not inside it"
        )
    return seen

"""What Phase 2 does with a record of each kind: the table ``KINDS``.

A kind (ADR-0020 D5: memory, gemm, math) says how the params of a record become a
function of arrays, which elements of its operands an element of the result is made of,
and by how much computing in its own precision may move the result. What is special to
one op of MATH is in the op's ``OpSpec``; a record of a kind that is not in the table is
never executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Ints, as_f64
from kernbench.common.dtypes import np_dtype
from kernbench.common.messages import Region
from kernbench.errors import VerificationError
from kernbench.sim_engine.arithmetic import F32, F64, NumpyDtype, accumulator
from kernbench.sim_engine.gemm import Step, gemm
from kernbench.sim_engine.numpy_ops import COPY, NUMPY_OPS, op_spec
from kernbench.sim_engine.op_forms import (
    PLACEMENT,
    Applied,
    Shape,
    broadcast_elements,
    line_elements,
)
from kernbench.sim_engine.op_log import Params
from kernbench.sim_engine.op_spec import OpSpec

Ops: TypeAlias = Mapping[str, OpSpec]
Compute: TypeAlias = Callable[[Sequence[Array], Shape], Array]
"""f(operands, shape of the output): the result, not yet rounded."""

_UNDERFLOW = 2.0**-126
"""The smallest normal f32: what is below may be lost on the way."""

_FAR = 1 << 52
"""No tensor has so many elements."""


_LAYOUTS = {
    "layout_a": "row_major or col_major",
    "layout_b": "row_major or col_major",
    "layout_out": "row_major; let another op transpose it",
}
"""The layouts of a product's matrices; ``completed`` has made col_major ones row-major.
"""


class OpKind(Protocol):
    """What the records of one kind have in common."""

    def check(
        self, params: Params, reads: Sequence[Region], write: Region | None, ops: Ops
    ) -> None:
        """VerificationError, which names the param, if the op cannot be executed.

        Operands, output, axis and scalars then do not fit each other, or not the op.
        """

    def compute(
        self, params: Params, reads: Sequence[Region], ops: Ops, wide: bool
    ) -> Compute:
        """The function of the op, by the table ``ops``. It has been checked.

        ``wide``: in the oracle's dtypes. The function may be called with arrays and a
        shape of one more axis in front if the op ``stacks``.
        """

    def stacks(self, params: Params, ops: Ops) -> bool:
        """Whether ops that differ in addresses only may run in one numpy call."""

    def elements(
        self, params: Params, operands: Sequence[Shape], output: Shape, wanted: Ints
    ) -> list[Ints]:
        """Of each operand, the elements that the ``wanted`` ones of the output need."""

    def spread(
        self,
        params: Params,
        reads: Sequence[Region],
        operands: Sequence[Array],
        value: Array,
    ) -> Array | float:
        """By how much ``value`` may be off before it is rounded to the output's dtype.

        ``value`` is what the oracle makes of ``operands``. Elements that are not finite
        have no spread.
        """


class _Memory:
    """A copy: of a load, a store, a transfer between PEs or from the host."""

    def check(
        self, params: Params, reads: Sequence[Region], write: Region | None, ops: Ops
    ) -> None:
        """One shape is that of source and destination."""

    def compute(
        self, params: Params, reads: Sequence[Region], ops: Ops, wide: bool
    ) -> Compute:
        """The operand itself, in the output's shape."""
        return _reshaped

    def stacks(self, params: Params, ops: Ops) -> bool:
        """A copy costs nothing but its write, so nothing is gained."""
        return False

    def elements(
        self, params: Params, operands: Sequence[Shape], output: Shape, wanted: Ints
    ) -> list[Ints]:
        """The same elements."""
        return [wanted for _ in operands]

    def spread(
        self,
        params: Params,
        reads: Sequence[Region],
        operands: Sequence[Array],
        value: Array,
    ) -> Array | float:
        """A copy is exact."""
        return 0.0


def _reshaped(operands: Sequence[Array], shape: Shape) -> Array:
    return operands[0].reshape(shape)


class _Gemm:
    """A matrix product: of a dot, or of a whole composite with its epilogue.

    Its operands are a, b, the accumulator if it has one, then those of the epilogue.
    """

    def check(
        self, params: Params, reads: Sequence[Region], write: Region | None, ops: Ops
    ) -> None:
        """a is m x k, b is k x n, and all others are as large as the product."""
        for name, wanted in _LAYOUTS.items():
            layout = params.get(name, "row_major")
            if layout != "row_major":
                raise _unfit(name, layout, wanted)
        a, b, *others = [r.shape for r in reads]
        if min(len(a), len(b)) < 2:
            raise _unfit("shape_a, shape_b", (a, b), "two axes each, or more")
        *batch_a, m, k = a
        *batch_b, depth, n = b
        if params.get("transpose_a"):
            m, k = k, m
        if params.get("transpose_b"):
            depth, n = n, depth
        if depth != k:
            raise _unfit("shape_b", b, f"{k} rows, as {a} has columns")
        product = (*_broadcast("shape_b", tuple(batch_a), tuple(batch_b)), m, n)
        has_acc = "src_acc_addr" in params
        out = () if write is None else write.shape
        if prod(out) != prod(product) or (has_acc and out != product):
            raise _unfit("shape_out", out, f"the shape of the product, {product}")
        steps = _epilogue(params, ops)
        own = [step.op.name for step, has_operand in steps if has_operand]
        if len(others) - has_acc != len(own):
            raise _unfit("epilogue_addrs", len(others), f"as many as {own} take")
        for step, _ in steps:
            if not step.op.form.pointwise:
                raise _unfit("epilogue", step.op.name, "an elementwise op")
        for shape in others:
            if _broadcast("epilogue_shapes", shape, product) != product:
                raise _unfit("epilogue_shapes", shape, f"no larger than {product}")

    def compute(
        self, params: Params, reads: Sequence[Region], ops: Ops, wide: bool
    ) -> Compute:
        """The product, with the epilogue's steps by the rows of ``ops``."""
        return self._moved_by(0.0, params, ops, wide)

    def _moved_by(self, slack: float, params: Params, ops: Ops, wide: bool) -> Compute:
        """The product as if its sum were off by ``slack`` times the magnitudes."""
        steps = _epilogue(params, ops)
        transpose_a = bool(params.get("transpose_a"))
        transpose_b = bool(params.get("transpose_b"))
        has_acc = "src_acc_addr" in params
        dtype_acc = params.get("dtype_acc", "f32")
        tile_k = params["tile"][2] if "tile" in params else 0

        def compute(operands: Sequence[Array], shape: Shape) -> Array:
            a, b, *others = operands
            if transpose_a:
                a = np.swapaxes(a, -1, -2)
            if transpose_b:
                b = np.swapaxes(b, -1, -2)
            rest = iter(others)
            acc = next(rest) if has_acc else None
            own = []
            for step, has_operand in steps:
                if has_operand:
                    step = step._replace(operand=next(rest))
                own.append(step)
            result = gemm(a, b, acc, dtype_acc, own, tile_k, wide, slack)
            return result.reshape(shape)

        return compute

    def stacks(self, params: Params, ops: Ops) -> bool:
        """Numpy multiplies stacks of matrices, with the same bits."""
        return True

    def elements(
        self, params: Params, operands: Sequence[Shape], output: Shape, wanted: Ints
    ) -> list[Ints]:
        """Rows of a, columns of b, and what the others broadcast from."""
        a, b, *others = operands
        m, k = a[-2:]
        if params.get("transpose_a"):
            k, m = a[-2:]
        n = b[-2] if params.get("transpose_b") else b[-1]
        batch = np.broadcast_shapes(a[:-2], b[:-2])
        product = wanted // (m * n)
        row = wanted // n % m
        column = wanted % n
        lines_a = broadcast_elements(product, a[:-2], batch) * m + row
        lines_b = broadcast_elements(product, b[:-2], batch) * n + column
        apart_a = m if params.get("transpose_a") else 1
        apart_b = 1 if params.get("transpose_b") else n
        found = [line_elements(lines_a, k, apart_a), line_elements(lines_b, k, apart_b)]
        for x in others:
            found.append(broadcast_elements(wanted, x, (*batch, m, n)))
        return found

    def spread(
        self,
        params: Params,
        reads: Sequence[Region],
        operands: Sequence[Array],
        value: Array,
    ) -> Array | float:
        """As far as the result moves when its sum is moved by n roundings of its terms.

        A sum of n products is off by n u sum(|a| |b|), where u is half an ulp,
        relative; each step of the epilogue has two roundings of its own. Integers are
        exact.
        """
        steps = 2 * len(params.get("epilogue", ()))
        dtype_acc = params.get("dtype_acc", "f32")
        work = accumulator(operands[0].dtype, operands[1].dtype, dtype_acc)
        if work.kind == "f":
            u = _half_ulp(work)
            slack = u * (steps + 1 + _depth(params, reads))
        elif steps:
            u = _half_ulp(F32)
            slack = u * (steps + 1)
        else:
            return 0.0
        up = self._moved_by(slack, params, NUMPY_OPS, True)(operands, value.shape)
        down = self._moved_by(-slack, params, NUMPY_OPS, True)(operands, value.shape)
        moved = np.maximum(np.abs(up - value), np.abs(down - value))
        size = _magnitude(value)
        return _of_finite(size, moved + steps * u * size + _UNDERFLOW)


def _depth(params: Params, reads: Sequence[Region]) -> int:
    """How many products are added up for each element."""
    axis = -2 if params.get("transpose_a") else -1
    return reads[0].shape[axis]


def _epilogue(params: Params, ops: Ops) -> list[tuple[Step, bool]]:
    """The epilogue steps of a composite, each with whether it has a tensor operand."""
    columns = (
        params.get("epilogue", ()),
        params.get("epilogue_scopes", ()),
        params.get("epilogue_scalars", ()),
        params.get("epilogue_has_operand", ()),
    )
    lengths = list(map(len, columns))
    if len(set(lengths)) > 1:
        raise VerificationError(
            f"epilogue: params of {lengths} steps; its ops, scopes, scalars and "
            "operands have to be as many"
        )
    steps = []
    for name, scope, scalar, has_operand in zip(*columns, strict=True):
        operand = None if math.isnan(scalar) else scalar
        steps.append((Step(op_spec(name, ops), scope, operand), has_operand))
    return steps


def math_op(params: Params) -> str:
    """The row of an op of MATH: ``op``, or ``math_op`` of a composite."""
    name: str = params["math_op"] if "math_op" in params else params["op"]
    return name


class _Math:
    """An op of the MATH unit, or a whole composite of one."""

    def check(
        self, params: Params, reads: Sequence[Region], write: Region | None, ops: Ops
    ) -> None:
        """The output is of the shape that the form of the op says."""
        if "op" not in params:
            raise _unfit("op", None, "the name of an op")
        op = op_spec(math_op(params), ops)
        shapes = [r.shape for r in reads]
        scalars = params.get("scalars", ())
        out = () if write is None else write.shape
        if op.form is PLACEMENT:
            _check_placed(op, shapes, scalars, out)
            return
        shapes += [()] * len(scalars)
        op.check_arity(len(shapes))
        axis = params.get("axis")
        try:
            shape = op.form.shape(shapes, axis, params.get("keepdims", False))
        except ValueError as why:
            raise _unfit(
                "input_shapes", shapes, f"what {op.name} takes: {why}"
            ) from why
        if prod(shape) != prod(out):
            raise _unfit("shape_out", out, f"the shape of {op.name}'s result, {shape}")

    def compute(
        self, params: Params, reads: Sequence[Region], ops: Ops, wide: bool
    ) -> Compute:
        """The numpy function of the row; scalars are operands in their places."""
        op = op_spec(math_op(params), ops)
        slots: list[NumpyDtype | float] = [np_dtype(r.dtype) for r in reads]
        positions = params.get("scalar_positions", ())
        scalars = zip(positions, params.get("scalars", ()), strict=True)
        for position, scalar in sorted(scalars):
            slots.insert(position, scalar)
        bound = op.bind(slots, params.get("axis"), params.get("keepdims", False), wide)
        if NUMPY_OPS.get(op.name) is op:
            return bound
        return _of_a_user(op, bound)

    def stacks(self, params: Params, ops: Ops) -> bool:
        """Pointwise ops do."""
        return op_spec(math_op(params), ops).form.pointwise

    def elements(
        self, params: Params, operands: Sequence[Shape], output: Shape, wanted: Ints
    ) -> list[Ints]:
        """What the form of the op says."""
        op = op_spec(math_op(params))
        applied = Applied(op.function, params, operands, output)
        return op.form.elements(applied, wanted)

    def spread(
        self,
        params: Params,
        reads: Sequence[Region],
        operands: Sequence[Array],
        value: Array,
    ) -> Array | float:
        """The ulps of the op's row, and half an ulp for each term that is added."""
        op = op_spec(math_op(params))
        dtypes = [x.dtype for x in operands]
        if not op.ulps or all(dtype.kind in "iub" for dtype in dtypes):
            return 0.0
        u = _half_ulp(F64 if F64 in dtypes else F32)
        added = op.form.terms(operands[0].shape, params.get("axis"))
        size = _magnitude(value)
        relative_to = size
        if op.sums:
            scalars = [abs(x) for x in params.get("scalars", ())]
            positive = self.compute(
                params | {"scalars": scalars}, reads, NUMPY_OPS, True
            )
            magnitudes = [_magnitude(x) for x in operands]
            relative_to = positive(magnitudes, value.shape)
        return _of_finite(size, (2 * op.ulps + added) * u * relative_to + _UNDERFLOW)


def _of_a_user(op: OpSpec, bound: Compute) -> Compute:
    """The function of an op of somebody else's table, which may raise anything."""

    def compute(operands: Sequence[Array], shape: Shape) -> Array:
        try:
            return bound(operands, shape)
        except Exception as error:
            raise VerificationError(
                f"cannot be executed: {op.name} of this table of ops raised {error!r}"
            ) from error

    return compute


def _check_placed(
    op: OpSpec, shapes: Sequence[Shape], scalars: Sequence[float], out: Shape
) -> None:
    """VerificationError unless an op that only places elements can be executed."""
    if len(shapes) > op.arity or len(shapes) + len(scalars) < op.arity:
        raise _unfit("input_shapes", shapes, f"what {op.name} takes")
    if not all(map(math.isfinite, scalars)):
        raise _unfit("scalars", scalars, "finite")
    if op is COPY:
        strides = scalars[1:]
        if len(shapes) != 1 or len(strides) not in (0, len(out)):
            raise _unfit("scalars", scalars, "an offset, and a stride for each axis")
        if not strides and prod(shapes[0]) != prod(out):
            raise _unfit("shape_out", out, f"as many elements as {shapes[0]}")
        if max(map(abs, scalars), default=0) >= _FAR:
            raise _unfit("scalars", scalars, "places in a tensor")
    elif shapes and _broadcast("input_shapes", shapes[0], out) != out:
        raise _unfit("input_shapes", shapes, f"no larger than {out}")


def _broadcast(name: str, one: Shape, other: Shape) -> Shape:
    """The shape to which two broadcast; VerificationError names the param if none."""
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        raise _unfit(name, one, f"of a shape that fits {other}") from None


def _unfit(name: str, value: Any, wanted: str) -> VerificationError:
    return VerificationError(
        f"cannot be executed: {name} is {value!r:.80}, and has to be {wanted:.120}"
    )


def _half_ulp(dtype: np.dtype[Any]) -> float:
    """Half an ulp of a float dtype, relative: the error of one rounding."""
    return float(np.finfo(dtype).eps) / 2


def _magnitude(value: Array) -> Array:
    """|value| in f64."""
    return np.abs(as_f64(value))


def _of_finite(size: Array, spread: Array) -> Array:
    """``spread`` where ``size`` is finite, else 0."""
    return np.where(np.isfinite(size), spread, 0.0)


KINDS: dict[str, OpKind] = {"memory": _Memory(), "gemm": _Gemm(), "math": _Math()}


_PRODUCTS = 32
"""Products of a gemm that take as long as an element of another op, roughly."""


def work_of(reads: Sequence[Region], write: Region | None, params: Params) -> int:
    """How much an op has to compute, in elements that an elementwise op touches."""
    elements = sum(prod(r.shape) for r in reads)
    if write is None:
        return elements
    products = prod(write.shape) * int(params.get("k", 1))
    return elements + prod(write.shape) + products // _PRODUCTS

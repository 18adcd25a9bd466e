"""The math of ``tl``: a call for each row of ``NUMPY_OPS`` that has one, and views.

No op is named here: what is special to one is in its ``OpSpec``, and the dtype of its
result follows the rules of ``op_dtypes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from math import prod
from operator import index as whole_number
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import (
    dtype_name,
    is_dtype_name,
    is_float,
    itemsize,
    np_dtype,
)
from kernbench.common.from_triton import instead_of
from kernbench.common.messages import Region
from kernbench.common.pe_commands import MathCmd
from kernbench.errors import KernelError
from kernbench.sim_engine.numpy_ops import CAST, COPY, FULL, NUMPY_OPS
from kernbench.sim_engine.op_calls import CallForm
from kernbench.sim_engine.op_dtypes import SCALARS, TRUTH, Scalar
from kernbench.sim_engine.op_spec import OpSpec, Slots
from kernbench.sim_engine.pending import Holds
from kernbench.triton_emu.handles import Operand, Out, Shape, TensorHandle
from kernbench.triton_emu.issuer import Issuer, extents_of

Axis: TypeAlias = int | None


def op_calls() -> dict[str, OpSpec]:
    """The ops that a kernel can call as ``tl.<name>``, by name."""
    return {name: op for name, op in NUMPY_OPS.items() if op.call is not None}


class MathCalls(Issuer):
    """The calls that PE_MATH serves, and views.

    Results are pending, even of ready inputs. Operands are handles in scratch and
    numbers, broadcast as in numpy; ``out`` takes the result. Beside the methods below
    there is one for each of ``op_calls``.
    """

    def __getattr__(self, name: str) -> Any:
        """Our name of a dtype, by that of Triton; or the call of an op that has come
        into the table since this class was made.

        AttributeError that says what to write for another name.
        """
        if is_dtype_name(name):
            return dtype_name(name)
        op = NUMPY_OPS.get(name)
        if op is None or op.call is None:
            calls = [known for known in dir(self) if not known.startswith("_")]
            raise AttributeError(f"tl has no {name!r}{instead_of(name, calls)}")
        return partial(_method(op, op.call), self)

    def zeros(self, shape: Shape, dtype: str = "f16") -> TensorHandle:
        """A tensor of zeros."""
        return self._math(FULL, 0, shape=shape, dtype=dtype, name="zeros")

    def reshape(self, x: TensorHandle, shape: Shape) -> TensorHandle:
        """A view of ``x`` in another shape; one extent may be -1."""
        rows = self._row_major(x, "reshape")
        return self._moved("reshape", rows, lambda t: t.reshape(shape))

    def transpose(self, x: TensorHandle, axes: Shape | None = None) -> TensorHandle:
        """``x`` with its axes in another order (None: reversed).

        Of two axes it is free for dot and composite and a copy for other calls; of more
        it is a copy at once.
        """
        return self._moved("transpose", x, lambda t: t.transpose(axes))

    def trans(self, x: TensorHandle, *axes: int) -> TensorHandle:
        """``tl.transpose``, as Triton calls it."""
        return self.transpose(x, axes or None)

    def topk(self, x: TensorHandle, k: int, axis: int = -1) -> TensorHandle:
        """The ``k`` largest along ``axis``, the largest first.

        It is a sort, and a copy of the end of it.
        """
        ordered: TensorHandle = self.sort(x, axis)
        length = ordered.shape[axis]
        if not 1 <= k <= length:
            raise KernelError(
                f"topk of {x!r}, axis={axis}: {k} of {length} elements; k is at least "
                f"1 and at most {length}"
            )
        return self._moved("topk", ordered, lambda t: _ends(t, axis, k))

    def flip(self, x: TensorHandle, axis: int = -1) -> TensorHandle:
        """``x`` in reverse order along ``axis``, a copy."""
        return self._moved("flip", x, lambda t: np.flip(t, axis))

    @staticmethod
    def constexpr(value: Any) -> Any:
        """The value: a kernel is plain Python, and its numbers are."""
        return value

    @staticmethod
    def static_range(*bounds: int) -> Iterable[int]:
        """Python's range: a kernel is plain Python, and its loops are."""
        return range(*map(whole_number, bounds))

    range = static_range

    def slice(self, x: TensorHandle, starts: Shape, shape: Shape) -> TensorHandle:
        """The block of ``x`` from ``starts`` on; a copy where it is not contiguous."""
        low = tuple(map(whole_number, starts))
        extents = tuple(map(whole_number, shape))
        return self._moved("slice", x, lambda t: _block(t, low, extents))

    def _moved(
        self, name: str, x: TensorHandle, move: Callable[[Array], Array]
    ) -> TensorHandle:
        """What ``move`` makes of a numpy array: a view, a transposed one, or a copy.

        ``move`` is applied to an array of a byte for each element, whose contents
        nobody reads; where its result starts, and with which strides, says how to walk
        ``x``.
        """
        whole = self._live(x, name).region
        if whole.strided is not None:
            return self._turned(name, x, move)
        stored = np.empty(whole.shape, np.int8)
        try:
            seen = move(stored.T if x.transposed else stored)
        except (ValueError, IndexError) as error:
            raise KernelError(f"{name} of {x!r}: {error}") from error
        offset = seen.ctypes.data - stored.ctypes.data
        contiguous = seen.flags.c_contiguous
        turned = seen.ndim == 2 and seen.flags.f_contiguous and not contiguous
        if not (turned or contiguous):
            walk = (offset, *seen.strides)
            return self._math(
                COPY, x, *walk, shape=seen.shape, dtype=x.dtype, name=name
            )
        shape = seen.shape[::-1] if turned else seen.shape
        size = itemsize(x.dtype)
        addr = whole.addr + offset * size
        region = Region(whole.space, addr, shape, whole.dtype, seen.size * size)
        return replace(x, region=region, call=None, base=x.root, transposed=turned)

    def _turned(
        self, name: str, x: TensorHandle, move: Callable[[Array], Array]
    ) -> TensorHandle:
        """What ``move`` makes of a matrix in HBM whose rows have gaps between them.

        That is itself or its transpose; KernelError for anything else.
        """
        stored = np.empty(x.region.shape, np.int8)
        seen = move(stored.T if x.transposed else stored)
        for turned in (False, True):
            same = stored.T if turned else stored
            if seen.shape == same.shape and seen.strides == same.strides:
                return replace(x, call=None, base=x.root, transposed=turned)
        raise KernelError(
            f"{name} of {x!r}, whose rows have gaps between them: slice the pointer as "
            "it is needed, or tl.load it first"
        )

    def _contiguous(self, x: TensorHandle, name: str) -> TensorHandle:
        """``x``, or a copy where it is a transpose; KernelError for rows with gaps."""
        if self._live(x, name).region.strided is not None:
            raise KernelError(
                f"{name} of {x!r}, whose rows have gaps between them; tl.load it first"
            )
        return self._row_major(x, name)

    def _row_major(self, x: TensorHandle, name: str) -> TensorHandle:
        """``x``, or a copy where it is a transpose."""
        if not self._live(x, name).transposed:
            return x
        walk = (0, 1, x.shape[0])
        return self._math(COPY, x, *walk, shape=x.shape, dtype=x.dtype, name=name)

    def _operand(self, name: str, x: Any, as_stored: bool) -> Operand:
        """``x`` as an operand of the call ``name``; KernelError if it can be none.

        A transposed handle is copied unless it is wanted ``as_stored``.
        """
        if isinstance(x, SCALARS):
            number: Scalar = x
            return number
        if not isinstance(x, TensorHandle):
            raise KernelError(f"{name}: operand {x!r} is neither a handle nor a number")
        live = self._live(x, name, "operand")
        return live if as_stored else self._row_major(live, name)

    def _math(
        self,
        op: OpSpec,
        *given: Operand,
        shape: Shape | None = None,
        dtype: str | None = None,
        axis: Axis = None,
        keepdims: bool = False,
        out: Out = None,
        name: str | None = None,
    ) -> TensorHandle:
        """Issue ``op`` of the operands ``given``, by the call ``name``.

        The default is the name of the op. With a ``shape`` of the result, operands are
        taken as they are stored. ``dtype`` is that of the result, by default what the
        op's rule says.
        """
        if name is None:
            name = op.name
        if dtype is not None:
            dtype = dtype_name(dtype)
        operands = [self._operand(name, x, shape is not None) for x in given]
        if shape is None:
            shape = result_shape(op, operands, axis, keepdims)
        if dtype is None:
            dtype = op.dtype.result(op.name, operands)
            if op.dtype.casts_integers and is_float(dtype):
                operands = self._as_floats(operands, dtype)
        call = self._new_call(name)
        target = self._output(call, extents_of(name, shape), dtype, out)
        arguments = arguments_of(name, operands)
        # a pointwise op may be written over an operand, but only exactly over it
        in_place = target.region if op.form.pointwise else None
        inputs = [r for r in arguments["inputs"] if r != in_place]
        self._refuse_overlap(call, target, inputs)
        message = MathCmd(
            op=op.name,
            out=target.region,
            axis=axis,
            keepdims=keepdims,
            **arguments,
        )
        holds = None
        if op.dtype is TRUTH and op.form.pointwise:
            holds = _comparison(op, operands, target.shape)
        return self._compute(call, target, message, holds)

    def _as_floats(self, operands: Sequence[Operand], dtype: str) -> list[Operand]:
        """``operands`` with the handles cast to ``dtype``, if all are integers."""
        handles = [x for x in operands if isinstance(x, TensorHandle)]
        if any(is_float(x.dtype) for x in handles):
            return list(operands)
        floats = {id(x): self._math(CAST, x, dtype=dtype) for x in handles}
        return [floats.get(id(x), x) for x in operands]


def _as_f64(name: str, x: Scalar) -> float:
    """A number as the command of the call ``name`` holds it.

    KernelError for a whole number that it would round.
    """
    number = float(x)
    if isinstance(x, (int, np.integer)) and number != int(x):
        raise KernelError(
            f"{name}: the number {x} has no exact f64, in which a command keeps it; "
            "load it as a tensor"
        )
    return number


def arguments_of(name: str, operands: Sequence[Operand]) -> dict[str, Any]:
    """The operands of the call ``name`` as keywords of a command: regions, and numbers
    apart.
    """
    inputs = []
    scalars = []
    positions = []
    for i, x in enumerate(operands):
        if isinstance(x, TensorHandle):
            inputs.append(x.region)
        else:
            scalars.append(_as_f64(name, x))
            positions.append(i)
    return {
        "inputs": tuple(inputs),
        "scalars": tuple(scalars),
        "scalar_positions": tuple(positions),
    }


def result_shape(
    op: OpSpec,
    operands: Sequence[Operand],
    axis: Axis = None,
    keepdims: bool = False,
) -> tuple[int, ...]:
    """The shape of a result, as the op's form says; KernelError if it has none."""
    shapes = [x.shape for x in operands if isinstance(x, TensorHandle)]
    if not shapes:
        raise KernelError(
            f"{op.name}: at least one operand must be a handle, got {tuple(operands)!r}"
        )
    try:
        return op.form.shape(shapes, axis, keepdims)
    except ValueError as error:
        raise KernelError(f"{op.name} of {shapes}, axis={axis}: {error}") from error


def _comparison(
    op: OpSpec, operands: Sequence[Operand], shape: tuple[int, ...]
) -> Holds | None:
    """Whether ``op`` of ``operands`` is true, as Phase 2 will compute it.

    It is that of the data as they are now; None if some of them are pending.
    """
    handles = [x for x in operands if isinstance(x, TensorHandle)]
    if not all(x.ready for x in handles):
        return None
    if prod(shape) > 1:
        return lambda: None
    arrays = [x.data for x in handles]
    slots: Slots = [
        np_dtype(x.dtype) if isinstance(x, TensorHandle) else float(x) for x in operands
    ]

    @np.errstate(all="ignore")
    def holds() -> bool:
        return bool(op.bind(slots)(arrays, shape))

    return holds


def _ends(t: Array, axis: int, count: int) -> Array:
    """The last elements of ``t`` along an axis, the very last first."""
    backwards = np.flip(t, axis)
    return np.moveaxis(np.moveaxis(backwards, axis, 0)[:count], 0, axis)


def _block(t: Array, starts: Shape, shape: tuple[int, ...]) -> Array:
    """The block of ``t`` from ``starts`` on; ValueError if it is not inside."""
    box = tuple(slice(low, low + n) for low, n in zip(starts, shape, strict=True))
    seen = t[box] if box else t
    last = [n - 1 for n in shape]
    if seen.shape != shape or min((*starts, *last), default=0) < 0:
        raise ValueError(
            f"the block of shape {shape} from {tuple(starts)} is not inside it"
        )
    return seen


def _method(op: OpSpec, form: CallForm) -> Callable[..., TensorHandle]:
    """The method of ``tl`` that issues ``op``, with the arguments of ``form``."""
    assert isinstance(form, FunctionType)
    # a copy, so that Python's own errors about its arguments name the op
    named = FunctionType(form.__code__, form.__globals__, op.name, form.__defaults__)
    named.__qualname__ = f"TLContext.{op.name}"

    def method(tl: MathCalls, *args: Any, **options: Any) -> TensorHandle:
        handle: TensorHandle = named(partial(tl._math, op), *args, **options)
        return handle

    method.__name__ = op.name
    method.__qualname__ = named.__qualname__
    method.__doc__ = op.help
    of_form = signature(form)
    _issue, *arguments = of_form.parameters.values()
    tl = Parameter("tl", Parameter.POSITIONAL_OR_KEYWORD)
    shown = of_form.replace(parameters=[tl, *arguments])
    method.__signature__ = shown  # type: ignore[attr-defined]
    return method


def _add_methods() -> None:
    """Give ``MathCalls`` a method for each op of the table that kernels can call."""
    for name, op in op_calls().items():
        assert op.call is not None
        setattr(MathCalls, name, _method(op, op.call))


_add_methods()

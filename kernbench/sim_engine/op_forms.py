"""How the output of an op lies over its operands: elementwise, reduced, or placed.

A form says which shape a result has, which elements of the operands each element of it
needs, and with which options the op's numpy function is called. Elements are counted in
row-major order and listed once each, ascending or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints, distinct

Shape: TypeAlias = tuple[int, ...]
Axis: TypeAlias = int | None


class Applied(NamedTuple):
    """One op as its form sees it.

    ``function`` is the numpy function of the op, ``params`` are those of its record,
    ``operands`` and ``output`` are shapes.
    """

    function: Callable[..., Any]
    params: dict[str, Any]
    operands: Sequence[Shape]
    output: Shape


class Form:
    """What is common to all forms; a form has no state but what its class declares.

    ``pointwise`` ops need of each operand only the element at (or broadcast to) the
    output's own place. So they may be written over an operand, and several of them may
    be stacked along one more axis and run in one numpy call. A form that ``computes``
    has its operands converted to one dtype before its function is called; the others
    only place elements, and their function is given the shape first.
    """

    pointwise: ClassVar[bool] = False
    computes: ClassVar[bool] = True

    def shape(self, shapes: Sequence[Shape], axis: Axis, keepdims: bool) -> Shape:
        """The shape of the result of operands of ``shapes``.

        Raises numpy's ValueError if they do not fit together, or have no such axis.
        """
        raise NotImplementedError

    def options(self, axis: Axis, keepdims: bool) -> dict[str, Any]:
        """The keywords with which the numpy function is called."""
        return {}

    def terms(self, operand: Shape, axis: Axis) -> int:
        """How many elements of an operand are added up for one of the output."""
        return 0

    def elements(self, op: Applied, wanted: Ints) -> list[Ints]:
        """Of each operand, the elements that the ``wanted`` ones of the output need."""
        raise NotImplementedError


class Elementwise(Form):
    """f(*operands), broadcast as numpy does."""

    pointwise = True

    def shape(self, shapes: Sequence[Shape], axis: Axis, keepdims: bool) -> Shape:
        """The shape to which all operands broadcast."""
        if len(set(shapes)) == 1:
            return shapes[0]
        return np.broadcast_shapes(*shapes)

    def elements(self, op: Applied, wanted: Ints) -> list[Ints]:
        """The elements that broadcast to the wanted ones."""
        whole = np.broadcast_shapes(*op.operands)
        return [broadcast_elements(wanted, x, whole) for x in op.operands]


@dataclass(frozen=True)
class Reduction(Form):
    """f(x, axis, keepdims), which looks at whole lines of x along the axis.

    ``keeps_shape``: the result is not one element a line but the line, as of a softmax;
    then no axis means the last one. Otherwise it means all.
    """

    keeps_shape: bool = False

    def shape(self, shapes: Sequence[Shape], axis: Axis, keepdims: bool) -> Shape:
        """The operand's shape without the axis, or with extent 1 there."""
        whole = np.broadcast_shapes(*shapes)
        # numpy knows the axes and what is empty; how long the lines are is all one
        lines = np.zeros([min(extent, 1) for extent in whole], np.int8)
        lines.max(axis=axis, keepdims=keepdims)
        if self.keeps_shape:
            return whole
        kept = list(whole)
        for gone in range(len(whole)) if axis is None else (axis,) * bool(whole):
            kept[gone] = 1
        if keepdims:
            return tuple(kept)
        if axis is None or not whole:
            return ()
        del kept[axis]
        return tuple(kept)

    def options(self, axis: Axis, keepdims: bool) -> dict[str, Any]:
        """The axis and keepdims."""
        return {"axis": axis, "keepdims": keepdims}

    def terms(self, operand: Shape, axis: Axis) -> int:
        """The extent of a line; 1 of a form that keeps the shape."""
        return 1 if self.keeps_shape else self.extent(operand, axis)

    def extent(self, operand: Shape, axis: Axis) -> int:
        """How many elements a line has."""
        if axis is None:
            return operand[-1] if self.keeps_shape and operand else prod(operand)
        return operand[axis] if operand else 1

    def elements(self, op: Applied, wanted: Ints) -> list[Ints]:
        """The whole line of each wanted element."""
        (x,) = op.operands
        axis = op.params.get("axis")
        if axis is None:
            if not self.keeps_shape:
                return [np.arange(prod(x))]
            axis = -1
        axis %= max(len(x), 1)
        extent = x[axis] if x else 1
        inner = prod(x[axis + 1 :])
        lines = wanted
        if self.keeps_shape:
            lines = _line_of(wanted, extent, inner)
        return [line_elements(lines, extent, inner)]


class Scan(Reduction):
    """f(x, axis, keepdims) whose element needs those before it in its line, and its
    own.
    """

    def __init__(self) -> None:
        super().__init__(keeps_shape=True)

    def terms(self, operand: Shape, axis: Axis) -> int:
        """The extent of a line."""
        return self.extent(operand, axis)

    def elements(self, op: Applied, wanted: Ints) -> list[Ints]:
        """The line of each wanted element, up to the last that is wanted."""
        (line,) = super().elements(op, wanted)
        (x,) = op.operands
        axis = op.params.get("axis")
        inner = prod(x[(-1 if axis is None else axis) % max(len(x), 1) + 1 :])
        extent = self.extent(x, axis)
        last = np.full(prod(x) // max(extent, 1), -1)
        np.maximum.at(last, _line_of(wanted, extent, inner), wanted // inner % extent)
        return [line[line // inner % extent <= last[_line_of(line, extent, inner)]]]


def _line_of(elements: Ints, extent: int, inner: int) -> Ints:
    """The number of the line of each element of a tensor of shape (…, extent,
    inner).
    """
    return np.asarray(elements // (extent * inner) * inner + elements % inner)


class Gather(Form):
    """f(shape, x, index, axis), which takes from each line of x what the same line of
    the index says.

    Both have as many axes, and lines of any length along this one.
    """

    computes = False

    def shape(self, shapes: Sequence[Shape], axis: Axis, keepdims: bool) -> Shape:
        """That of the index."""
        if len(shapes) != 2:
            raise ValueError(f"{len(shapes)} operands, not x and an index")
        x, index = shapes
        lines = []
        for extents in shapes:
            # numpy knows the axes
            lines.append(np.zeros(extents, np.bool_).max(_last(axis), keepdims=True))
        if lines[0].shape != lines[1].shape:
            raise ValueError(
                f"an index of shape {index} of what has {x}: all axes but {axis} have "
                "to be as long"
            )
        return index

    def options(self, axis: Axis, keepdims: bool) -> dict[str, Any]:
        """The axis."""
        return {"axis": axis}

    def elements(self, op: Applied, wanted: Ints) -> list[Ints]:
        """The whole lines of x, whatever the index says, and the wanted indices."""
        x, index = op.operands
        axis = _last(op.params.get("axis")) % max(len(x), 1)
        inner = prod(x[axis + 1 :])
        lines = _line_of(wanted, index[axis], inner)
        return [line_elements(lines, x[axis], inner), wanted]

    def taken(self, op: Applied, wanted: Ints, index: Ints) -> Ints:
        """The element of x that each wanted one is, by what the index holds there."""
        x, of_index = op.operands
        axis = _last(op.params.get("axis")) % max(len(x), 1)
        inner = prod(x[axis + 1 :])
        outer, offset = divmod(_line_of(wanted, of_index[axis], inner), inner)
        return np.asarray((outer * x[axis] + index) * inner + offset)


def _last(axis: Axis) -> int:
    """An axis; None means the last."""
    return -1 if axis is None else axis


class Placement(Form):
    """f(shape, *operands), which puts elements elsewhere and computes none."""

    computes = False

    def elements(self, op: Applied, wanted: Ints) -> list[Ints]:
        """The function is called with the numbers of the elements."""
        numbers = [np.arange(prod(x)).reshape(x) for x in op.operands]
        placed = op.function(op.output, *numbers, *op.params.get("scalars", ()))
        return [placed.reshape(-1)[wanted] for _ in op.operands]


ELEMENTWISE = Elementwise()
REDUCTION = Reduction()
ALONG_AXIS = Reduction(keeps_shape=True)
SCAN = Scan()
GATHER = Gather()
PLACEMENT = Placement()


def line_elements(lines: Ints, extent: int, inner: int) -> Ints:
    """All elements of some lines of a tensor of shape (…, extent, inner).

    A line runs along the axis of ``extent``; its elements are ``inner`` apart.
    """
    outer, offset = divmod(distinct(lines), inner)
    starts = outer * extent * inner + offset
    return np.asarray((starts[:, None] + np.arange(extent) * inner).ravel())


def broadcast_elements(wanted: Ints, shape: Shape, whole: Shape) -> Ints:
    """The elements of a tensor that broadcasting it to ``whole`` puts at ``wanted``."""
    places = np.unravel_index(wanted, whole or (1,))[len(whole) - len(shape) :]
    found = np.zeros(len(wanted), np.int64)
    for axis, (extent, place) in enumerate(zip(shape, places, strict=False)):
        if extent > 1:
            found += prod(shape[axis + 1 :]) * place
    return found

"""The ways in which a kernel calls an op: the signatures that an ``OpSpec`` may name.

Each takes ``issue(*operands, …)``, which ``tl`` provides and which issues the op; what
follows are the arguments of the ``tl`` call, by the names that a kernel may write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Operand: TypeAlias = Any
"""A handle in scratch, or a number."""

Handle: TypeAlias = Any
"""A handle in scratch; what these calls return."""

Out: TypeAlias = Any
"""A handle that takes the result, or None for fresh scratch."""

Shape: TypeAlias = Sequence[int]
Axis: TypeAlias = int | None
Issue: TypeAlias = Callable[..., Handle]
CallForm: TypeAlias = Callable[..., Handle]


def unary(issue: Issue, x: Handle, out: Out = None) -> Handle:
    """``tl.op(x)``."""
    return issue(x, out=out)


def binary(issue: Issue, a: Operand, b: Operand, out: Out = None) -> Handle:
    """``tl.op(a, b)``."""
    return issue(a, b, out=out)


def fused(issue: Issue, a: Operand, b: Operand, c: Operand, out: Out = None) -> Handle:
    """``tl.op(a, b, c)``."""
    return issue(a, b, c, out=out)


def choice(
    issue: Issue, cond: Handle, a: Operand, b: Operand, out: Out = None
) -> Handle:
    """``tl.op(cond, a, b)``."""
    return issue(cond, a, b, out=out)


def bounded(
    issue: Issue, x: Operand, low: Operand, high: Operand, out: Out = None
) -> Handle:
    """``tl.op(x, low, high)``."""
    return issue(x, low, high, out=out)


def reduction(
    issue: Issue,
    x: Handle,
    axis: Axis = None,
    keepdims: bool = False,
    out: Out = None,
) -> Handle:
    """``tl.op(x, axis)``; no axis means all of them."""
    return issue(x, axis=axis, keepdims=keepdims, out=out)


def along_axis(issue: Issue, x: Handle, axis: int = -1, out: Out = None) -> Handle:
    """``tl.op(x, axis)``; no axis means the last."""
    return issue(x, axis=axis, out=out)


def indexed(
    issue: Issue, x: Handle, index: Handle, axis: int = -1, out: Out = None
) -> Handle:
    """``tl.op(x, index, axis)``; no axis means the last."""
    return issue(x, index, axis=axis, out=out)


def conversion(issue: Issue, x: Handle, dtype: str) -> Handle:
    """``tl.op(x, dtype)``."""
    return issue(x, dtype=dtype)


def constant(issue: Issue, shape: Shape, value: Operand, dtype: str = "f16") -> Handle:
    """``tl.op(shape, value)``."""
    return issue(value, shape=shape, dtype=dtype)


def counting(
    issue: Issue, start: int, end: int | None = None, dtype: str = "i32"
) -> Handle:
    """``tl.op(start, end)``; with one argument it is the end, and the start is 0."""
    if end is None:
        end = start
        start = 0
    return issue(start, shape=(end - start,), dtype=dtype)

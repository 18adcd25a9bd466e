"""Conditions between the values of a point: ``tile <= m and dtype in ("f16", "f32")``.

They come from a YAML file, and a YAML file runs no code. So the text is parsed only,
and a walk over the few kinds of nodes below works it out: names, numbers, texts,
comparisons, arithmetic on numbers, and, or, not. A power is left out, since
``9 ** 9 ** 9`` would take forever.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from kernbench.errors import UsageError

MOST_CHARACTERS = 2000
"""A condition has some dozens."""

_MOST_LEVELS = 50
"""So deep are its parts in each other, at most."""

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; ``names`` are those of the values that it speaks of."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for values by name, which has all of ``names``.

        UsageError if it asks for what these values cannot do, as ``m / 0``.
        """
        try:
            return bool(_value(self.tree, values))
        except (ArithmeticError, TypeError, ValueError) as error:
            here = ", ".join(f"{name}={values[name]!r}" for name in sorted(self.names))
            raise UsageError(f"where: {self.text!r}: {error}, at {here}") from None


def parse_condition(text: str) -> Condition:
    """The condition that a text says; UsageError if it is none."""
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"where: a condition of {len(text):,} characters; the most is "
            f"{MOST_CHARACTERS:,}"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names: set[str] = set()
        _check(tree, text, names)
    except SyntaxError as error:
        raise UsageError(f"where: {text!r}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise UsageError(f"where: {text!r} cannot be read as a condition") from None
    return Condition(text, tree, frozenset(names))


def _check(node: ast.expr, text: str, names: set[str], level: int = 0) -> None:
    """UsageError for a node that no condition may have; adds to the names."""
    if level > _MOST_LEVELS:
        raise UsageError(f"where: {text!r}: nested more than {_MOST_LEVELS} deep")
    match node:
        case ast.Name() | ast.Attribute():
            names.add(_name(node, text))
            return
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            parts = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            if not all(type(op) in _COMPARISONS for op in ops):
                _refuse(node, text)
            parts = [left, *comparators]
        case _:
            _refuse(node, text)
    for part in parts:
        _check(part, text, names, level + 1)


def _refuse(node: ast.expr, text: str) -> NoReturn:
    raise UsageError(
        f"where: {text!r}: {ast.unparse(node)!r} is no part of a condition; valid are "
        "names, numbers, texts, comparisons, + - * / // %, in, and, or, not"
    )


def _name(node: ast.expr, text: str) -> str:
    """The dotted name that a node is."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, text)}.{node.attr}"
    _refuse(node, text)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """What a checked node is for these values."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, values) for part in parts)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(op=sign, operand=operand):
            return _SIGNS[type(sign)](_number(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            function = _ARITHMETIC[type(op)]
            return function(_number(left, values), _number(right, values))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compared(left, ops, comparators, values)
    return values[_name(node, "")]


def _compared(
    left: ast.expr,
    ops: list[ast.cmpop],
    comparators: list[ast.expr],
    values: Mapping[str, Any],
) -> bool:
    """A chain of comparisons, as ``64 <= tile <= m``."""
    before = _value(left, values)
    for op, comparator in zip(ops, comparators, strict=True):
        after = _value(comparator, values)
        if not _COMPARISONS[type(op)](before, after):
            return False
        before = after
    return True


def _number(node: ast.expr, values: Mapping[str, Any]) -> int | float:
    """What a node is; TypeError if that is no number.

    A text times a number would be a text of any length.
    """
    value = _value(node, values)
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value

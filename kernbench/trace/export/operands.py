"""The shapes and dtypes of ops, from their params, as texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.trace.params import ParamBlock, Tree
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns

_SHAPE = ("shape_out", "shape", "extent")
_DTYPE = ("dtype_out", "dtype")
_SHAPES_IN = ("shape_a", "shape_b", "input_shapes")
_DTYPES_IN = ("dtype_in", "input_dtypes")
"""The params that say it, see docs/decisions.md, "ADR-0052 D3: parameters by op".

Of the first two one is taken: the first that an op has. Of the others all are.
"""

_OF_BOTH = "dtype_in"
"""The param that gives the type of both operands of a gemm."""

SCALAR = "()"
"""The shape of what has no axes."""

Text: TypeAlias = Callable[[Sequence[int]], str]
"""Makes a text of the leaves of an op."""


def operand_texts(trace: Trace) -> Columns:
    """By row of ops: shape, dtype, shapes_in and dtypes_in, None where it has none.

    A shape is as "8x32", and "()" of a scalar; operands have spaces between them.
    """
    count = len(trace.op_columns.name)
    found: Columns = {}
    for heading in ("shape", "dtype", "shapes_in", "dtypes_in"):
        found[heading] = np.full(count, None, object)
    for block in trace.param_blocks():
        texts = _BlockTexts(trace, block)
        found["shape"][block.rows] = texts.shapes(_first_of(block, _SHAPE))
        found["dtype"][block.rows] = texts.names(_first_of(block, _DTYPE))
        found["shapes_in"][block.rows] = texts.shapes(_all_of(block, _SHAPES_IN))
        found["dtypes_in"][block.rows] = texts.names(_all_of(block, _DTYPES_IN))
    return found


def _first_of(block: ParamBlock, names: Sequence[str]) -> list[str]:
    """The first of some params that the ops of a block have."""
    return _all_of(block, names)[:1]


def _all_of(block: ParamBlock, names: Sequence[str]) -> list[str]:
    """Those of some params that the ops of a block have."""
    fields = {name for name, _ in block.schema.fields}
    return [name for name in names if name in fields]


class _BlockTexts:
    """Makes texts of some params of a block, one an op."""

    def __init__(self, trace: Trace, block: ParamBlock) -> None:
        self._strings = trace.strings
        self._block = block

    def shapes(self, names: Sequence[str]) -> Array:
        """The shapes in some params: tuples of numbers, or lists of such."""
        leaves = self._leaves(names, "i")
        trees = dict(self._block.schema.fields)
        shapes: list[list[str]] = []
        for name in names:
            shapes += _shapes_in(name, trees[name])
        if not shapes:
            return np.full(len(self._block.rows), None, object)

        def text(numbers: Sequence[int]) -> str:
            extent_at = dict(zip(leaves, numbers, strict=True))
            texts = []
            for paths in shapes:
                extents = [str(extent_at[path]) for path in paths if path in extent_at]
                texts.append("x".join(extents) or SCALAR)
            return " ".join(texts)

        return self._made(leaves, text)

    def names(self, names: Sequence[str]) -> Array:
        """The names in some params: one each, or lists of such."""
        leaves = self._leaves(names, "s")
        if not leaves:
            return np.full(len(self._block.rows), None, object)

        def text(numbers: Sequence[int]) -> str:
            found = []
            for path, number in zip(leaves, numbers, strict=True):
                found.append(self._strings.get(number))
                if path == _OF_BOTH:
                    found.append(found[-1])
            return " ".join(found)

        return self._made(leaves, text)

    def _leaves(self, names: Sequence[str], letter: str) -> dict[str, Array]:
        """The leaves of some params that are of a type, by path."""
        return {
            path: values
            for path, values in self._block.columns(letter).items()
            if path.partition(".")[0] in names
        }

    def _made(self, leaves: Mapping[str, Array], text: Text) -> Array:
        """The text of each op, which is made once for equal leaves."""
        if not leaves:
            return np.full(len(self._block.rows), text(()), object)
        columns = [values.astype(np.int64) for values in leaves.values()]
        different, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
        texts = [text(numbers) for numbers in different.T.tolist()]
        return np.array(texts, object)[which]


def _shapes_in(path: str, tree: Tree) -> list[list[str]]:
    """The paths of the extents of each shape in a param of that structure.

    A shape may be a tuple or a list, but without extents it is a tuple.
    """
    if isinstance(tree, str):
        return [[path]]  # of a damaged trace a mere number
    bracket, items = tree
    paths = [f"{path}.{number}" for number in range(len(items))]
    if all(isinstance(item, str) for item in items):
        return [paths] if paths or bracket == "(" else []
    shapes = []
    for inner, item in zip(paths, items, strict=True):
        shapes += _shapes_in(inner, item)
    return shapes

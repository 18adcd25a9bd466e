"""``params`` of ops as columns and back: one structured array a chunk and schema.

A schema is op kind, op name and fields of fixed structure; another rank, arity or type is another
schema. Decoding gives back the dict that went in: tuples as tuples, None as None, ints as ints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import count
from operator import contains, itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.op_log import Params
from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.schema import CODES, Body, code_of, whole


class TensorId(int):
    """The number of a stored array, in the place of the array."""


# What a value is made of: a leaf's letter, or a container's bracket and its items.
# i int of up to 64 bits, f float, b bool, s str, t tensor, n None, r the repr of anything else.
Tree: TypeAlias = "str | tuple[str, tuple[Tree, ...]]"
Names: TypeAlias = tuple[str, ...]
_KINDS: dict[type, str] = {
    **{
        bool: "b",
        np.bool_: "b",
        int: "i",
        np.integer: "i",
        float: "f",
        np.floating: "f",
    },
    **{str: "s", type(None): "n", np.ndarray: "t", TensorId: "t"},
}
_CONTAINERS: dict[type, str] = {tuple: "(", list: "["}
_STORED = {"i": "ui", "f": "f", "b": "u", "s": "u", "t": "u", "r": "u"}  # numpy kinds
_DEPTH, _SCHEMA_BYTES = 16, 16  # of one schema: at most, at least


def _checked(
    tree: Any, path: str, leaves: list[tuple[str, str]], depth: int = 0
) -> Tree:
    """A structure as it stands in a head, its leaves appended; TraceFormatError if it is none."""
    if isinstance(tree, str) and (tree == "n" or tree in _STORED):
        leaves += [(path, tree)] if tree != "n" else []
        return tree
    kind, items = tree
    if kind not in ("(", "[") or depth == _DEPTH:
        raise TraceFormatError(f"{tree!r:.40} is no structure of params")
    inner = (
        _checked(item, f"{path}.{i}", leaves, depth + 1) for i, item in enumerate(items)
    )
    return kind, tuple(inner)


# -- writing ------------------------------------------------------------


class _Mixed(Exception):
    """Values that are to be one column are not of one structure; holds what tells them apart."""


@cache
def _kind(cls: type) -> str:
    return _CONTAINERS.get(cls) or next(
        (_KINDS[c] for c in cls.__mro__ if c in _KINDS), "r"
    )


class ParamsEncoder:
    """Makes columns of params; ``strings`` numbers texts, ``tensor`` stores an array."""

    def __init__(
        self, strings: Mapping[str, int], tensor: Callable[[Array], int]
    ) -> None:
        self._string, self._tensor = strings.__getitem__, tensor
        self._schemas: dict[tuple[Any, ...], int] = {}

    def add(
        self,
        kinds: Sequence[str],
        names: Sequence[str],
        keys: Sequence[Names],
        values: Sequence[Sequence[Any]],
        body: Body,
    ) -> tuple[Array, Array, dict[str, Any]]:
        """Append a chunk to ``body``: each op's schema, its place in that, entries of the head.

        ``keys`` and ``values`` are those of each op's params.
        """
        groups = defaultdict[Any, list[int]](list)
        for row, key in enumerate(zip(kinds, names, keys, strict=True)):
            groups[key].append(row)
        todo, known = list(groups.items()), len(self._schemas)
        blocks: dict[int, tuple[int, int, str]] = {}
        schema, place = np.empty((2, len(values)), np.int64)
        for (kind, name, fields), rows in todo:
            stored = list[Array]()
            try:
                columns = zip(*[values[row] for row in rows], strict=True)
                trees = [self._tree(column, stored) for column in columns]
            except _Mixed as mixed:
                parts = defaultdict[Any, list[int]](list)
                for row, sort in zip(rows, mixed.args[0], strict=True):
                    parts[sort].append(row)
                todo += [((kind, name, fields), part) for part in parts.values()]
                continue
            structure = tuple(zip(fields, trees, strict=True))
            for (
                twin
            ) in count():  # another type of the same letter has a schema of its own
                number = self._schemas.setdefault(
                    (kind, name, structure, twin), len(self._schemas)
                )
                if number not in blocks:
                    break
            blocks[number] = self._block(len(rows), stored, body)
            schema[rows], place[rows] = number, np.arange(len(rows))
        fresh = [key[:3] for key in list(self._schemas)[known:]]
        head = [(number, *block) for number, block in blocks.items()]
        return schema, place, {"params": head, "first_schema": known, "schemas": fresh}

    def _tree(self, values: Sequence[Any], stored: list[Array]) -> Tree:
        """The structure that all have, its leaves appended to ``stored``; _Mixed if they differ."""
        kind, *others = {_kind(cls) for cls in set(map(type, values))}
        if others:
            raise _Mixed(list(map(_kind, map(type, values))))
        if kind in "([":
            if len(set(map(len, values))) > 1:
                raise _Mixed(list(map(len, values)))
            return kind, tuple(
                self._tree(column, stored) for column in zip(*values, strict=True)
            )
        if kind == "n":
            return kind
        if kind == "t":
            values = [v if isinstance(v, int) else self._tensor(v) for v in values]
        elif kind in "si" and values.count(values[0]) == len(values):
            values = values[:1]  # of a block it fills the column
        if kind in "sr":
            values = list(
                map(self._string, values if kind == "s" else map(repr, values))
            )
        try:
            stored.append(
                np.fromiter(
                    values, np.float64 if kind == "f" else np.int64, len(values)
                )
            )
        except OverflowError:
            small = [-(1 << 63) <= value < 1 << 63 for value in values]
            if any(small):
                raise _Mixed(small) from None
            stored.append(np.array([self._string(repr(value)) for value in values]))
            return "r"
        return kind

    def _block(
        self, rows: int, stored: list[Array], body: Body
    ) -> tuple[int, int, str]:
        codes = "".join(map(code_of, stored))
        block = np.empty(rows if stored else 0, _structure(codes))
        for i, column in enumerate(stored):
            block[f"f{i}"] = column
        return rows, body.add(block.tobytes()), codes


# -- reading ------------------------------------------------------------


@lru_cache(maxsize=1024)
def _structure(codes: str) -> np.dtype[Any]:
    """The structured dtype of "u1u8f8": fields f0, f1, f2; KeyError if there is no such code."""
    pairs = [codes[i : i + 2] for i in range(0, len(codes), 2)]
    return np.dtype([(f"f{i}", CODES[code]) for i, code in enumerate(pairs)] or "u1")


class Schema(NamedTuple):
    """What the params of some ops look like; ``leaves`` are (path, letter) of each stored number.

    The path of the first extent of "shape" is "shape.0"; s and r are strings' indices, t tensors'.
    """

    kind: str
    name: str
    fields: tuple[tuple[str, Tree], ...]
    leaves: tuple[tuple[str, str], ...]


def _schema(kind: Any, name: Any, fields: Any) -> Schema:
    leaves: list[tuple[str, str]] = []
    trees = tuple((field, _checked(tree, field, leaves)) for field, tree in fields)
    if not all(
        isinstance(text, str) for text in (kind, name, *(field for field, _ in trees))
    ):
        raise TraceFormatError("a name in a params schema is no string")
    return Schema(kind, name, trees, tuple(leaves))


def read_schemas(file: FrameFile) -> list[Schema | None]:
    """All params schemas of a file, from heads alone; None where the head that had one is lost."""
    schemas: list[Schema | None] = []

    def read(frame: Frame) -> list[Schema | None]:
        gap = whole(
            whole(frame.head["first_schema"], file.size // _SCHEMA_BYTES) - len(schemas)
        )
        fresh = [_schema(*row) for row in frame.head["schemas"]]
        return [*[None] * gap, *fresh] if fresh else []

    for found in file.each("ops", read, body=False):
        schemas += found
    return schemas


class ParamBlock(NamedTuple):
    """The params of the ops in ``rows``, of one schema: fields f0, f1… of ``values`` its leaves."""

    schema: Schema
    values: Array
    rows: Array


Block: TypeAlias = tuple[Schema, Array]


def read_blocks(
    frame: Frame,
    body: memoryview,
    schemas: Sequence[Schema | None],
    schema: Array,
    param: Array,
    counts: Array,
) -> dict[int, Block]:
    """The structured arrays of an ops frame by schema, if its columns refer to nothing else.

    ``counts`` is scratch, a zero for each schema.
    """
    params, blocks = frame.head["params"], dict[int, Block]()
    numbers = [whole(number, len(schemas) - 1) for number, *_ in params]
    sizes = [whole(n, frame.head["n"]) for _, n, *_ in params]
    for number, n, offset, codes in params:
        known = schemas[number]
        if known is None:
            continue
        dtype, wanted = (
            _structure(codes),
            [_STORED[letter] for _, letter in known.leaves],
        )
        if len(dtype.names or ()) != len(wanted) or not all(
            map(contains, wanted, codes[::2])
        ):
            raise TraceFormatError(
                f"params of {known.name!r:.40} do not fit their schema"
            )
        length = n if codes else 0
        if whole(offset) + length * dtype.itemsize > len(body):
            raise TraceFormatError(f"params of {known.name!r:.40} lie outside the body")
        blocks[number] = known, np.ndarray((length,), dtype, body, offset)
    sound = not len(schema) or int(schema.max()) < len(schemas)
    counts[numbers] = sizes
    sound = sound and bool((param < counts[schema]).all())
    counts[numbers] = 0
    if not sound:
        raise TraceFormatError("an op has params that are not there")
    return blocks


def decoder(
    schema: Schema, read: Mapping[str, Callable[[Any], Any]]
) -> Callable[[Sequence[Any]], Params]:
    """What makes the params of an op of its leaves; ``read`` makes a value of one, by letter, where
    that is not the number itself.
    """
    places = count()

    def value(tree: Tree) -> Callable[[Sequence[Any]], Any]:
        if isinstance(tree, tuple):
            items, made = (
                [value(item) for item in tree[1]],
                list if tree[0] == "[" else tuple,
            )
            return lambda leaves: made([item(leaves) for item in items])
        if tree == "n":
            return lambda _: None
        taken = itemgetter(next(places))
        own = read.get(tree)
        return taken if own is None else lambda leaves: own(taken(leaves))

    fields = [(name, value(tree)) for name, tree in schema.fields]
    return lambda leaves: {name: item(leaves) for name, item in fields}

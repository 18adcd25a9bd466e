"""``params`` of ops as columns and back: one structured array a chunk and schema.

A schema is op kind, op name and fields of fixed structure; another rank, arity or type is another
schema. Decoding gives back the dict that went in: tuples as tuples, None as None, ints as ints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.errors import TraceFormatError
from kernbench.sim_engine.op_log import Params
from kernbench.trace.frames import Frame, FrameFile, whole
from kernbench.trace.schema import CODES, Body, code_of

# What a value is made of: a leaf's letter, or a container's bracket and its items.
# i int of up to 64 bits, f float, b bool, s str, t tensor, n None, r the repr of anything else.
Tree: TypeAlias = "str | tuple[str, tuple[Tree, ...]]"
_KINDS: dict[type, str] = {
    bool: "b",
    np.bool_: "b",
    int: "i",
    np.integer: "i",
    float: "f",
    np.floating: "f",
    str: "s",
    type(None): "n",
    np.ndarray: "t",
}
_CONTAINERS: dict[type, str] = {tuple: "(", list: "["}
_STORED = {"i": "ui", "f": "f", "b": "u", "s": "u", "t": "u", "r": "u"}  # numpy kinds
_DEPTH = 16


def checked_tree(tree: Any, depth: int = 0) -> Tree:
    """A structure as it stands in a head; TraceFormatError if it is none, or over 16 deep."""
    if isinstance(tree, str) and (tree == "n" or tree in _STORED):
        return tree
    kind, items = tree
    if kind not in ("(", "[") or depth == _DEPTH:
        raise TraceFormatError(f"{tree!r:.40} is no structure of params")
    return kind, tuple(checked_tree(item, depth + 1) for item in items)


def _leaves_of(name: str, tree: Tree) -> list[tuple[str, str]]:
    """(path, letter) of every stored leaf."""
    if isinstance(tree, str):
        return [] if tree == "n" else [(name, tree)]
    return [leaf for i, t in enumerate(tree[1]) for leaf in _leaves_of(f"{name}.{i}", t)]


# -- writing ------------------------------------------------------------


class TensorId(int):
    """The number of a stored array, in the place of the array."""


_KINDS[TensorId] = "t"


@cache
def _kind(cls: type) -> str:
    return _CONTAINERS.get(cls) or next((_KINDS[c] for c in cls.__mro__ if c in _KINDS), "r")


def _form(value: Any) -> object:
    """The type of a value; "r" for an int that no column can hold."""
    if isinstance(value, (int, np.integer)) and not -(1 << 63) <= value < 1 << 63:
        return "r"
    return type(value)


def _signature(values: Iterable[Any]) -> Any:
    """Equal for values of one structure: the types, and those inside lists and tuples."""
    types = tuple(map(_form, values))
    if tuple not in types and list not in types:
        return types
    return types, *[_signature(v) for v in values if type(v) in _CONTAINERS]


class ParamsEncoder:
    """Makes columns of params; ``strings`` numbers texts, ``tensor`` stores an array."""

    def __init__(
        self, strings: Mapping[str, int], tensor: Callable[[npt.NDArray[Any]], int]
    ) -> None:
        self._strings, self._tensor = strings, tensor
        self._schemas: dict[tuple[Any, ...], int] = {}

    def add(
        self, kinds: Sequence[str], names: Sequence[str], params: Sequence[Params], body: Body
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], dict[str, Any]]:
        """Append the params of a chunk to ``body``: the schema of each op, its place among those
        of that schema, and the entries of the head.
        """
        groups = defaultdict[Any, list[int]](list)
        for row, key in enumerate(zip(kinds, names, strict=True)):
            groups[key].append(row)
        todo, known = list(groups.items()), len(self._schemas)
        blocks: dict[int, tuple[int, int, str]] = {}
        schema, place = np.empty((2, len(params)), np.int64)
        for (kind, name), rows in todo:
            mine, stored = [params[row] for row in rows], list[npt.NDArray[Any]]()
            fields = self._fields(mine, stored)
            if fields is None:
                parts = defaultdict[Any, list[int]](list)
                for row, one in zip(rows, mine, strict=True):
                    parts[(*one, _signature(one.values()))].append(row)
                todo += [((kind, name), part) for part in parts.values()]
                continue
            twin = 0  # another type of the same letter has a schema of its own
            while (number := self._number((kind, name, fields, twin))) in blocks:
                twin += 1
            blocks[number] = self._block(len(rows), stored, body)
            schema[rows], place[rows] = number, np.arange(len(rows))
        fresh = [key[:3] for key in list(self._schemas)[known:]]
        head = [(number, *block) for number, block in blocks.items()]
        return schema, place, {"params": head, "first_schema": known, "schemas": fresh}

    def _number(self, key: tuple[Any, ...]) -> int:
        return self._schemas.setdefault(key, len(self._schemas))

    def _fields(
        self, params: Sequence[Params], stored: list[npt.NDArray[Any]]
    ) -> tuple[tuple[str, Tree], ...] | None:
        """The structure that all have, their leaves appended to ``stored``; None if they differ."""
        if len(set(map(tuple, params))) > 1:
            return None
        fields = []
        columns = zip(*map(dict.values, params), strict=True)
        for name, column in zip(params[0], columns, strict=True):
            tree = self._tree(column, stored)
            if tree is None:
                return None
            fields.append((name, tree))
        return tuple(fields)

    def _tree(self, values: Sequence[Any], stored: list[npt.NDArray[Any]]) -> Tree | None:
        kind, *others = {_kind(cls) for cls in set(map(type, values))}
        if others:
            return None
        if kind in "([":
            if len(set(map(len, values))) > 1:
                return None
            items = [self._tree(column, stored) for column in zip(*values, strict=True)]
            known = tuple(item for item in items if item is not None)
            return (kind, known) if len(known) == len(items) else None
        if kind == "t":
            values = [v if isinstance(v, int) else self._tensor(v) for v in values]
        elif kind in "sr":
            values = self._texts(values if kind == "s" else map(repr, values))
        if kind != "n":
            try:
                dtype = np.float64 if kind == "f" else np.int64
                stored.append(np.fromiter(values, dtype, len(values)))
            except OverflowError:
                if any(_form(value) != "r" for value in values):
                    return None
                stored.append(np.array(self._texts(map(repr, values))))
                return "r"
        return kind

    def _texts(self, texts: Iterable[str]) -> list[int]:
        return list(map(self._strings.__getitem__, texts))

    def _block(self, rows: int, stored: list[npt.NDArray[Any]], body: Body) -> tuple[int, int, str]:
        codes = "".join(
            "f8" if a.dtype.kind == "f" else code_of(int(a.min()), int(a.max())) for a in stored
        )
        block = np.empty(rows if stored else 0, _structure(codes))
        for i, column in enumerate(stored):
            block[f"f{i}"] = column
        return rows, body.add(block), codes


# -- reading ------------------------------------------------------------


@lru_cache(maxsize=1024)
def _structure(codes: str) -> np.dtype[Any]:
    """The structured dtype of "u1u8f8": fields f0, f1, f2; KeyError if there is no such code."""
    pairs = [codes[i : i + 2] for i in range(0, len(codes), 2)]
    return np.dtype([(f"f{i}", CODES[code]) for i, code in enumerate(pairs)] or "u1")


@dataclass(frozen=True, slots=True)
class Schema:
    """What the params of some ops look like; ``leaves`` are (path, letter) of each stored number.

    The path of the first extent of "shape" is "shape.0"; s and r are strings' indices, t tensors'.
    """

    kind: str
    name: str
    fields: tuple[tuple[str, Tree], ...]
    leaves: tuple[tuple[str, str], ...]


def _schema(kind: Any, name: Any, fields: Any) -> Schema:
    trees = tuple((field, checked_tree(tree)) for field, tree in fields)
    if not all(isinstance(text, str) for text in (kind, name, *(field for field, _ in trees))):
        raise TraceFormatError("a name in a params schema is no string")
    leaves = tuple(leaf for field, tree in trees for leaf in _leaves_of(field, tree))
    return Schema(kind, name, trees, leaves)


def read_schemas(file: FrameFile) -> list[Schema | None]:
    """All params schemas of a file, from heads alone; None where the head that had one is lost."""
    schemas: list[Schema | None] = []
    for frame in file.by_tag.get("ops", ()):
        try:
            first = whole(frame.head["first_schema"], file.size)
            fresh = [_schema(*row) for row in frame.head["schemas"]]
            if first < len(schemas):
                raise TraceFormatError("its params schemas overlap those before")
        except (TraceFormatError, ValueError, TypeError, LookupError) as error:
            file.mark(frame, error)
            continue
        if fresh:
            schemas += [None] * (first - len(schemas))
            schemas += fresh
    return schemas


@dataclass(frozen=True, slots=True, eq=False)
class ParamBlock:
    """The params of ops of one schema: one structured row each, of the op in ``rows`` beside it."""

    schema: Schema
    values: npt.NDArray[Any]
    rows: npt.NDArray[np.int64]

    def column(self, path: str) -> npt.NDArray[Any] | None:
        """The column of a leaf; None if the schema has none."""
        for i, (name, _) in enumerate(self.schema.leaves):
            if name == path:
                return self.values[f"f{i}"]
        return None


Blocks: TypeAlias = "dict[int, tuple[Schema, npt.NDArray[Any]]]"


def read_blocks(
    frame: Frame,
    body: memoryview,
    schemas: Sequence[Schema | None],
    schema: npt.NDArray[Any],
    param: npt.NDArray[Any],
) -> Blocks:
    """The structured arrays of an ops frame by schema, if its columns refer to nothing else."""
    counts = np.zeros(len(schemas), np.int64)
    blocks: Blocks = {}
    for number, n, offset, codes in frame.head["params"]:
        known = schemas[whole(number)]
        counts[number] = whole(n, frame.head["n"])
        if known is None:
            continue
        dtype, letters = _structure(codes), [letter for _, letter in known.leaves]
        kinds = codes[::2]
        if len(kinds) != len(letters) or len(codes) != 2 * len(kinds):
            raise TraceFormatError(f"params of {known.name!r:.40} do not fit their schema")
        if any(kind not in _STORED[x] for kind, x in zip(kinds, letters, strict=True)):
            raise TraceFormatError(f"params of {known.name!r:.40} are of the wrong type")
        length = n if codes else 0
        if whole(offset) + length * dtype.itemsize > len(body):
            raise TraceFormatError(f"params of {known.name!r:.40} lie outside the body")
        blocks[number] = known, np.ndarray((length,), dtype, body, offset)
    if len(schema) and (int(schema.max()) >= len(schemas) or (param >= counts[schema]).any()):
        raise TraceFormatError("an op has params that are not there")
    return blocks


def decode(
    blocks: Blocks,
    number: int,
    index: int,
    string: Callable[[int], str],
    tensor: Callable[[int], npt.NDArray[Any] | None],
) -> dict[str, Any]:
    """The params of one op; {} if their schema is lost."""
    if number not in blocks:
        return {}
    schema, values = blocks[number]
    leaves = iter(values[index].item() if schema.leaves else ())

    def value(tree: Tree, leaves: Iterator[Any] = leaves) -> Any:
        if isinstance(tree, tuple):
            items = [value(t) for t in tree[1]]
            return items if tree[0] == "[" else tuple(items)
        if tree == "n":
            return None
        leaf = next(leaves)
        if tree in "if":
            return leaf
        if tree == "b":
            return bool(leaf)
        if tree == "t":
            return tensor(leaf)
        return string(leaf)

    return {name: value(tree) for name, tree in schema.fields}

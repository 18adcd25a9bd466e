"""``params`` of ops as columns and back: one structured array a chunk and schema.

A schema is op kind, op name and fields of fixed structure; another rank, arity or type
is another schema. Decoding gives back the dict that went in: tuples as tuples, None as
None, ints as ints.

So the params of one op are decoded in microseconds, and those of all ops are columns
too: a breakpoint on an address reads one array a block, and decodes no dict.

The structure of a value is a tree. A leaf is a letter: i an int of up to 64 bits, f a
float, b a bool, s a str, t an array, n None, and r the repr of anything else. All but n
are one number of a row: of s and r that of a string, of t that of a tensor. A container
is its bracket and its items.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import count, repeat
from operator import contains, is_, itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.op_log import Params
from kernbench.sim_engine.op_params import (
    ADDRESS_BITS,
    check_params,
    is_checked,
    is_measured,
)
from kernbench.trace.caching import cached_without_lock
from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.schema import CODES, Body, code_of, whole


class TensorId(int):
    """The number of a stored array, in the place of the array."""


Tree: TypeAlias = "str | tuple[str, tuple[Tree, ...]]"
Names: TypeAlias = tuple[str, ...]
Leaf: TypeAlias = tuple[str, str]
"""The path of a leaf and its letter; the first extent of "shape" is "shape.0"."""

_LETTERS: dict[type, str] = {
    bool: "b",
    np.bool_: "b",
    int: "i",
    np.integer: "i",
    float: "f",
    np.floating: "f",
    str: "s",
    type(None): "n",
    np.ndarray: "t",
    TensorId: "t",
}
_BRACKETS: dict[type, str] = {tuple: "(", list: "["}
_STORED_KINDS = {"i": "ui", "f": "f", "b": "u", "s": "u", "t": "u", "r": "u"}
"""The kinds of numpy's types that a file may store a leaf as, by letter."""

_MAX_DEPTH = 16  # of a tree
_SCHEMA_BYTES = 16  # a schema takes more of a file
_END_OF_ADDRESSES = 1 << ADDRESS_BITS


# -- writing -----------------------------------------------------------------------


class _Mixed(Exception):
    """Values that are to be one column are not of one structure.

    It holds what tells them apart, one for each value.
    """


@cache
def _letter_of(cls: type) -> str:
    """The letter, or the bracket, of values of a type."""
    if cls in _BRACKETS:
        return _BRACKETS[cls]
    for base in cls.__mro__:
        if base in _LETTERS:
            return _LETTERS[base]
    return "r"


class ParamsEncoder:
    """Makes columns of the params of ops, chunk after chunk of one file.

    ``strings`` numbers texts, and ``tensor`` stores an array and gives its number. It
    remembers the schemas of the file: a program has few, as ops of a kernel differ in
    numbers more than in structure.
    """

    def __init__(
        self, strings: Mapping[str, int], tensor: Callable[[Array], int]
    ) -> None:
        self._string = strings.__getitem__
        self._tensor = tensor
        self._schemas: dict[tuple[Any, ...], int] = {}

    def go_on_from(self, other: ParamsEncoder) -> None:
        """Know the schemas of ``other``, and number as it will."""
        self._schemas.update(other._schemas)

    def add(
        self,
        kinds: Sequence[str],
        names: Sequence[str],
        keys: Sequence[Names],
        values: Sequence[Sequence[Any]],
        body: Body,
    ) -> tuple[Ints, Ints, dict[str, Any]]:
        """Append the params of a chunk of ops to ``body``.

        ``kinds`` and ``names`` are those of the ops; ``keys`` and ``values`` are of
        each op's params. Gives the number of each op's schema, its place among the ops
        of that schema, and what the head of the frame has to hold.
        """
        groups = defaultdict[Any, list[int]](list)
        for row, group in enumerate(zip(kinds, names, keys, strict=True)):
            groups[group].append(row)
        todo = list(groups.items())
        known = len(self._schemas)
        blocks: dict[int, tuple[int, int, str]] = {}
        schema = np.empty(len(values), np.int64)
        place = np.empty(len(values), np.int64)
        for (kind, name, fields), rows in todo:
            stored: list[Array] = []
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
            number = self._number(kind, name, structure, blocks)
            blocks[number] = self._block(len(rows), stored, body)
            schema[rows] = number
            place[rows] = np.arange(len(rows))
        new = [key[:3] for key in list(self._schemas)[known:]]
        params = [(number, *block) for number, block in blocks.items()]
        head = {"params": params, "first_schema": known, "schemas": new}
        return schema, place, head

    def _number(
        self,
        kind: str,
        name: str,
        structure: tuple[tuple[str, Tree], ...],
        taken: Mapping[int, Any],
    ) -> int:
        """The number of a schema, one that is not ``taken`` in this chunk.

        Types that differ may have the same letter, and so the same structure; each has
        a block of its own, and therefore a schema of its own: its twin.
        """
        for twin in count():
            key = (kind, name, structure, twin)
            number = self._schemas.setdefault(key, len(self._schemas))
            if number not in taken:
                return number
        raise AssertionError("count() ends never")

    def _tree(self, values: Sequence[Any], stored: list[Array]) -> Tree:
        """The structure that all values have; their leaves are appended to ``stored``.

        _Mixed if they have not all the same.
        """
        if all(map(is_, values, repeat(values[0]))):
            values = values[:1]  # of a block it fills its columns
        letter, *others = {_letter_of(cls) for cls in set(map(type, values))}
        if others:
            raise _Mixed(list(map(_letter_of, map(type, values))))
        if letter in _BRACKETS.values():
            if len(set(map(len, values))) > 1:
                raise _Mixed(list(map(len, values)))
            columns = zip(*values, strict=True)
            return letter, tuple(self._tree(column, stored) for column in columns)
        if letter == "n":
            return letter
        if letter == "t":
            values = [v if isinstance(v, int) else self._tensor(v) for v in values]
        elif letter in "si" and values.count(values[0]) == len(values):
            values = values[:1]  # equal, if not the same
        if letter == "s":
            values = list(map(self._string, values))
        elif letter == "r":
            values = list(map(self._string, map(repr, values)))
        numbers_type = np.float64 if letter == "f" else np.int64
        try:
            stored.append(np.fromiter(values, numbers_type, len(values)))
        except OverflowError:
            is_small = [-(1 << 63) <= value < 1 << 63 for value in values]
            if any(is_small):
                raise _Mixed(is_small) from None
            texts = [self._string(repr(value)) for value in values]
            stored.append(np.array(texts))
            return "r"
        return letter

    def _block(
        self, rows: int, stored: list[Array], body: Body
    ) -> tuple[int, int, str]:
        """Append the leaves of so many rows; gives rows, offset and codes of leaves."""
        codes = "".join(map(code_of, stored))
        length = rows if stored else 0
        block = np.empty(length, _block_dtype(codes))
        for number, column in enumerate(stored):
            block[f"f{number}"] = column
        return rows, body.add(block.tobytes()), codes


# -- reading -----------------------------------------------------------------------


@lru_cache(maxsize=1024)  # of all files and threads
def _block_dtype(codes: str) -> np.dtype[Any]:
    """The structured type of "u1u8f8": fields f0, f1, f2.

    KeyError if there is no such code.
    """
    pairs = [codes[i : i + 2] for i in range(0, len(codes), 2)]
    fields = [(f"f{number}", CODES[code]) for number, code in enumerate(pairs)]
    return np.dtype(fields or "u1")


class Schema(NamedTuple):
    """What the params of some ops look like.

    ``fields`` are the names of params and their trees. ``leaves`` are those that a
    block stores, in the order of its fields.
    """

    kind: str
    name: str
    fields: tuple[tuple[str, Tree], ...]
    leaves: tuple[Leaf, ...]


def _read_schema(kind: Any, name: Any, fields: Any) -> Schema:
    """A schema as a head has it; TraceFormatError if it is none."""
    leaves: list[Leaf] = []
    trees = tuple((field, _read_tree(tree, field, leaves)) for field, tree in fields)
    texts = (kind, name, *(field for field, _ in trees))
    if not all(isinstance(text, str) for text in texts):
        raise TraceFormatError("a name in a params schema is no string")
    return Schema(kind, name, trees, tuple(leaves))


def _read_tree(tree: Any, path: str, leaves: list[Leaf], depth: int = 0) -> Tree:
    """A tree as a head has it; its leaves are appended.

    TraceFormatError if it is none, or is nested too deep.
    """
    if isinstance(tree, str) and tree == "n":
        return tree
    if isinstance(tree, str) and tree in _STORED_KINDS:
        leaves.append((path, tree))
        return tree
    bracket, items = tree
    if bracket not in _BRACKETS.values() or depth == _MAX_DEPTH:
        raise TraceFormatError(f"{tree!r:.40} is no structure of params")
    inner = (
        _read_tree(item, f"{path}.{number}", leaves, depth + 1)
        for number, item in enumerate(items)
    )
    return bracket, tuple(inner)


def read_schemas(file: FrameFile) -> list[Schema | None]:
    """All params schemas of a file, from the heads of its ops frames alone.

    None stands for a schema whose head is lost.
    """
    schemas: list[Schema | None] = []

    def read(frame: Frame) -> list[Schema | None]:
        most = file.size // _SCHEMA_BYTES
        lost = whole(whole(frame.head["first_schema"], most) - len(schemas))
        new = [_read_schema(*row) for row in frame.head["schemas"]]
        if not new:
            return []
        return [*[None] * lost, *new]

    for found in file.each("ops", read, body=False):
        schemas += found
    return schemas


class ParamBlock:
    """The params of the ops in ``rows``, all of one ``schema``."""

    def __init__(self, schema: Schema, rows: Array, read: Callable[[], Array]) -> None:
        self.schema = schema
        self.rows = rows
        self._read = read

    @cached_without_lock
    def values(self) -> Array:
        """A structured array, whose fields f0, f1 … are the leaves of the schema.

        TraceFormatError, which names the op and the param, if an op of the block has
        params that cannot be.
        """
        return self._read()

    def columns(self, letters: str) -> dict[str, Array]:
        """The params whose leaves have one of some letters, by path."""
        return {
            path: self.values[f"f{number}"]
            for number, (path, letter) in enumerate(self.schema.leaves)
            if letter in letters
        }


Block: TypeAlias = tuple[Schema, Array]
"""A schema and the structured array of all params of that schema in a frame."""


def read_blocks(
    frame: Frame,
    body: memoryview,
    schemas: Sequence[Schema | None],
    schema: Array,
    param: Array,
    counts: Array,
) -> dict[int, Block]:
    """The blocks of an ops frame, by the number of their schema.

    The head says of each block its schema, rows, offset and the codes of its fields. A
    block whose schema is lost is left out, as nobody could say what it holds.
    ``schema`` and ``param`` are columns of the frame: TraceFormatError if they refer to
    anything that is not there. ``counts`` is scratch, a zero for each schema.
    """
    claimed = frame.head["params"]
    numbers = [whole(number, len(schemas) - 1) for number, *_ in claimed]
    sizes = [whole(size, frame.head["n"]) for _, size, *_ in claimed]
    blocks: dict[int, Block] = {}
    for number, size, offset, codes in claimed:
        known = schemas[number]
        if known is not None:
            blocks[number] = known, _read_block(body, known, size, offset, codes)
    is_sound = not len(schema) or int(schema.max()) < len(schemas)
    counts[numbers] = sizes
    is_sound = is_sound and bool((param < counts[schema]).all())
    counts[numbers] = 0
    if not is_sound:
        raise TraceFormatError("an op has params that are not there")
    return blocks


def _read_block(
    body: memoryview, schema: Schema, size: int, offset: Any, codes: Any
) -> Array:
    """A view of a block; TraceFormatError if it is not as the schema says."""
    dtype = _block_dtype(codes)
    kinds = [_STORED_KINDS[letter] for _, letter in schema.leaves]
    fits = len(dtype.names or ()) == len(kinds)
    if not fits or not all(map(contains, kinds, codes[::2])):
        raise TraceFormatError(f"params of {schema.name!r:.40} do not fit their schema")
    length = size if codes else 0
    if whole(offset) + length * dtype.itemsize > len(body):
        raise TraceFormatError(f"params of {schema.name!r:.40} lie outside the body")
    return np.ndarray((length,), dtype, body, offset)


Take: TypeAlias = Callable[[Sequence[Any]], Any]
"""Takes a value of the leaves of an op."""


class ParamsReader:
    """Makes the params of ops of one schema of their leaves, if they can be.

    ``read`` makes a value of a leaf, by letter, where that is not the number itself.

    What the schema says of a param is the same for all its ops, so one is looked at in
    full. Of each further one only that can be wrong which differs: sizes and addresses,
    and names of dtypes.
    """

    def __init__(
        self, schema: Schema, read: Mapping[str, Callable[[Any], Any]]
    ) -> None:
        self._decode = decoder(schema, read)
        self._schema = schema
        self._read = read
        self._is_checked = is_checked(schema.kind, schema.name)
        self._measured: list[int] = []
        self._dtypes: list[int] = []
        for place, (path, letter) in enumerate(schema.leaves):
            if letter == "i" and is_measured(path):
                self._measured.append(place)
            elif letter in "sr" and "dtype" in path:
                self._dtypes.append(place)
        self._sizes_of = _picker(self._measured)
        self._dtypes_of = _picker(self._dtypes)
        self._sound: set[tuple[int, ...]] = set()

    def params(self, leaves: Sequence[Any]) -> Params:
        """The params of an op; TraceFormatError names one that cannot be."""
        params = self._decode(leaves)
        if self._is_checked and not self._is_sound(leaves):
            check_params(params)
            self._sound.add(self._dtypes_of(leaves))
        return params

    def _is_sound(self, leaves: Sequence[Any]) -> bool:
        """Whether an op need not be looked at in full."""
        sizes = sorted(self._sizes_of(leaves))
        is_known = self._dtypes_of(leaves) in self._sound
        return is_known and sizes[0] >= 0 and sizes[-1] < _END_OF_ADDRESSES

    def first_wrong(self, values: Array) -> tuple[int, str] | None:
        """The place of the first op in a block whose params cannot be, and why."""
        if not self._is_checked or not len(values):
            return None
        suspects = {0}
        for place in self._measured:
            stored_as = values.dtype[place]
            if stored_as.kind == "i":
                suspects.add(int(values[f"f{place}"].argmin()))
            if stored_as.itemsize == 8:
                suspects.add(int(values[f"f{place}"].argmax()))
        for place in self._dtypes:
            column = values[f"f{place}"]
            if (column != column[0]).any():
                suspects.update(np.unique(column, return_index=True)[1].tolist())
        for suspect in sorted(suspects):
            leaves = values[suspect].item()
            if self._is_sound(leaves):
                continue
            try:
                check_params(self._decode_without_arrays(leaves))
            except TraceFormatError as why:
                return suspect, str(why)
            self._sound.add(self._dtypes_of(leaves))
        return None

    @cached_without_lock
    def _decode_without_arrays(self) -> Callable[[Sequence[Any]], Params]:
        """As ``_decode``, which would read the tensors of the file."""
        return decoder(self._schema, {**self._read, "t": lambda number: None})


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes these leaves of an op, always as a tuple; zeros if there are none."""
    if not places:
        return lambda leaves: (0, 0)
    return itemgetter(*places, places[-1])


def decoder(
    schema: Schema, read: Mapping[str, Callable[[Any], Any]]
) -> Callable[[Sequence[Any]], Params]:
    """What makes the params of an op of its leaves; see ``ParamsReader``."""
    places = iter(range(len(schema.leaves)))
    takes = [(name, _take(tree, places, read)) for name, tree in schema.fields]
    return lambda leaves: {name: take(leaves) for name, take in takes}


def _take(
    tree: Tree, places: Iterator[int], read: Mapping[str, Callable[[Any], Any]]
) -> Take:
    """What takes the value of a tree; ``places`` are those of the leaves to come."""
    if isinstance(tree, tuple):
        bracket, items = tree
        takes = [_take(item, places, read) for item in items]
        if bracket == "[":
            return lambda leaves: [take(leaves) for take in takes]
        return lambda leaves: tuple([take(leaves) for take in takes])
    if tree == "n":
        return lambda leaves: None
    leaf = itemgetter(next(places))
    convert = read.get(tree)
    if convert is None:
        return leaf
    return lambda leaves: convert(leaf(leaves))

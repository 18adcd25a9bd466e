"""What an op reads and writes: the only definition (docs/architecture.md, "What an op
touches").

Owns where the params of ADR-0052 D3 say which bytes an op touches. TileTokens and
unknown kinds touch nothing: the bytes of a tile are those of its composite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import starmap
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from kernbench.common.arrays import Array, Bools, Ints, distinct
from kernbench.common.dtypes import itemsize, nbytes_of
from kernbench.common.messages import Region
from kernbench.common.progress import Progress, no_progress
from kernbench.common.resumable import Resumable, Steps, beside
from kernbench.common.rows import MAX_PLANES, MAX_ROWS, Rows
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.access_columns import (
    FORM_COLUMNS,
    NO_FORMS,
    AccessColumns,
    Forms,
)
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_forms import GATHER, Applied
from kernbench.sim_engine.op_kinds import KINDS, math_op
from kernbench.sim_engine.op_log import PLACES, OpRecord, Params, rows_key
from kernbench.sim_engine.op_params import is_whole

_ADDRESS_BITS = 52
"""No physical address and no size is longer than this."""


class Access(NamedTuple):
    """Contiguous bytes of one memory at a physical address; ``mode`` is "r" or "w".

    Of rows with gaps between them each row is one.
    """

    mode: str
    space: str
    addr: int
    nbytes: int


class Regions(NamedTuple):
    """The operands of an op in the order in which it takes them, and what it writes."""

    reads: tuple[Region, ...]
    write: Region | None


# -- where the params hold a region ----------------------------------------------------

_OPTIONAL = ("src", "dst", "acc")
"""Regions that some commands of their kind lack.

A host_write has no source, a host_read no destination, most gemms no accumulator.
"""


class Place(NamedTuple):
    """Which params hold the space, addr, shape and dtype of a region.

    Where those params are lists, the region is their item ``at``. ``rows`` is the param
    that holds the rows in which the region lies, "" of one that is contiguous.
    """

    space: str
    addr: str
    shape: str
    dtype: str
    at: int | None = None
    rows: str = ""

    def with_rows(self, names: Collection[str]) -> Place:
        """The place of an op with params of these names, which may be in rows."""
        key = rows_key(self.space)
        return self._replace(rows=key) if key in names else self


class Places(NamedTuple):
    """The places of all that a record reads, and of what it writes."""

    reads: tuple[Place, ...]
    write: Place | None


class _Listed(NamedTuple):
    """The params of a kind that are lists, with an item for each operand."""

    spaces: str
    addrs: str
    shapes: str
    dtypes: str


_STRIDED = {"dma_read": "src", "dma_write": "dst"}
"""The region of a DMA, by its name, that its rows are those of: the one in memory."""

_OF_DMA = "rows"
"""The first of the four params ``rows, row_bytes, pitch, planes``, which a DMA has.

Every other param of rows is one list, as ``rows_list`` makes it.
"""

_LISTS = {
    "gemm": _Listed(
        "epilogue_spaces", "epilogue_addrs", "epilogue_shapes", "epilogue_dtypes"
    ),
    "math": _Listed("input_spaces", "input_addrs", "input_shapes", "input_dtypes"),
}


@lru_cache(maxsize=1024)
def _places(kind: str, name: str, names: tuple[str, ...], listed: int) -> Places:
    """Where the params of an op, which has these, hold what is read and written.

    ``listed`` operands are items of the lists of the kind.
    """
    strided = _STRIDED.get(name, "") if _OF_DMA in names else ""
    reads = []
    write = None
    for region, keys in PLACES.get(kind, {}).items():
        if region in _OPTIONAL and keys[0] not in names:
            continue
        space, addr, shape, dtype = keys[:4]
        place = Place(space, addr, shape, dtype).with_rows(names)
        if region == strided:
            place = place._replace(rows=_OF_DMA)
        if region in ("out", "dst"):
            write = place
        else:
            reads.append(place)
    for at in range(listed):
        reads.append(Place(*_LISTS[kind], at).with_rows(names))
    return Places(tuple(reads), write)


def places_of(record: OpRecord) -> Places:
    """Where the params of ``record`` hold what it reads and what it writes."""
    params = record.params
    kind = record.op_kind
    listed = 0
    if kind in _LISTS:
        listed = len(params.get(_LISTS[kind].addrs, ()))
    return _places(kind, record.op_name, tuple(params), listed)


def _region(params: Params, place: Place) -> Region:
    """The region at ``place``; TraceFormatError if params that it needs are missing."""
    keys = place[:4]
    at = place.at
    try:
        values = [params[key] for key in keys]
        if at is not None:
            values = [value[at] for value in values]
    except LookupError:
        raise TraceFormatError(f"params of an op lack {', '.join(keys)}") from None
    space, addr, shape, dtype = values
    nbytes = nbytes_of(shape, dtype)
    strided = None
    if place.rows:
        rows = _rows(_form_at(params, place), addr, nbytes)
        strided = None if rows.is_one else rows
    return Region(space, addr, tuple(shape), dtype, nbytes, strided)


def _form_at(params: Params, place: Place) -> Sequence[Any]:
    """Rows, row_bytes and pitch of a region, then count and pitch of each plane.

    TraceFormatError if params that it needs are missing.
    """
    try:
        if place.rows != _OF_DMA:
            listed = params[place.rows]
            form: Sequence[Any] = listed if place.at is None else listed[place.at]
            return form
        planes = params.get("planes", ())
        return (
            *(params["rows"], params["row_bytes"], params["pitch"]),
            *(x for axis in planes for x in axis),
        )
    except LookupError as missing:
        raise TraceFormatError(f"params of an op in rows lack {missing}") from None


def _rows(form: Sequence[Any], addr: int, nbytes: int) -> Rows:
    """The rows of a form from ``addr`` on.

    TraceFormatError unless they are rows, and of ``nbytes``.
    """
    if len(form) < 3 or len(form) % 2 == 0:
        raise TraceFormatError(
            f"{form!r:.60} of an op are no rows, row_bytes, pitch and planes; record "
            "the run again"
        )
    number, row_bytes, pitch = form[:3]
    planes = tuple(zip(form[3::2], form[4::2], strict=True))
    flat = [number, row_bytes, *form[3::2]]
    if not all(map(is_whole, form)) or min(flat) < 1 or len(planes) > MAX_PLANES:
        raise TraceFormatError(
            f"rows {number!r:.20}, row_bytes {row_bytes!r:.20}, pitch {pitch!r:.20} "
            f"and planes {planes!r:.40} of an op are no rows; record the run again"
        )
    rows = Rows(addr, number, row_bytes, pitch, planes)
    _check_rows(rows, nbytes)
    return rows


def _check_rows(rows: Rows, nbytes: int) -> None:
    """TraceFormatError for rows that are not of ``nbytes``, or share bytes."""
    if rows.total_rows > MAX_ROWS:
        raise TraceFormatError(
            f"an op moves {rows.total_rows} rows, and a DMA at most {MAX_ROWS}"
        )
    if rows.nbytes != nbytes:
        raise TraceFormatError(
            f"rows {rows.total_rows} and row_bytes {rows.row_bytes} are {rows.nbytes} "
            f"bytes of an op that moves {nbytes}; record the run again"
        )
    if rows.overlap():
        raise TraceFormatError(
            f"row_bytes {rows.row_bytes} at a pitch of {rows.pitch} (planes "
            f"{rows.planes}) overlap; record the run again"
        )
    if (rows.addr + rows.span) >> _ADDRESS_BITS:
        raise TraceFormatError("an op touches bytes that no address of 52 bits names")


# -- what one record touches -----------------------------------------------------------


def regions(record: OpRecord) -> Regions:
    """Return operands and output of ``record`` as tensors.

    A kind that is never executed has none. The operands of a gemm are a, b, the
    accumulator if it has one (of out's dtype), then those of the epilogue. Raises
    TraceFormatError if the params do not say where they are.
    """
    params = record.params
    reads, write = places_of(record)
    operands = tuple([_region(params, place) for place in reads])
    if write is None:
        return Regions(operands, None)
    return Regions(operands, _region(params, write))


def accesses(record: OpRecord) -> list[Access]:
    """Every range of bytes that ``record`` touches, reads first, without empty ones."""
    reads, write = regions(record)
    touched = [("r", region) for region in reads]
    if write is not None:
        touched.append(("w", write))
    found = []
    for mode, r in touched:
        if r.strided is not None:
            pieces = r.strided.each()
            found += [Access(mode, r.space, *piece) for piece in pieces]
        elif r.nbytes:
            found.append(Access(mode, r.space, r.addr, r.nbytes))
    return found


def block_rows(params: Mapping[str, Any]) -> list[Rows]:
    """Where the blocks lie that a DMA stage of a tile moves, as its params say.

    The memory of each is that of the param ``spaces``. Without the param ``rows`` all
    blocks are contiguous.
    """
    addrs = params["addrs"]
    if "rows" not in params:
        blocks = zip(addrs, params["sizes"], strict=True)
        return [Rows(addr, 1, nbytes, 0) for addr, nbytes in blocks]
    columns = (params["rows"], params["row_bytes"], params["pitch"])
    return [*starmap(Rows, zip(addrs, *columns, strict=True))]


def blocks_of(params: Params) -> list[tuple[str, Rows]]:
    """The memory and the rows of each block of a tile's stage, as a trace has them.

    TraceFormatError for blocks that are no rows, or not of the bytes that they have.
    """
    found = []
    sizes = zip(params["spaces"], block_rows(params), params["sizes"], strict=True)
    for space, rows, nbytes in sizes:
        _check_rows(rows, nbytes)
        found.append((space, rows))
    return found


def read_elements(record: OpRecord, wanted: Ints) -> list[Ints]:
    """Of each operand, the elements that the ``wanted`` ones of the output need.

    Elements are flat row-major indices, ascending, each once; operands are those of
    ``regions(record).reads``. What is needed does not depend on values: both branches
    of a "where" are, and all terms of a product with 0.
    """
    reads, write = regions(record)
    operands = [r.shape for r in reads]
    output = () if write is None else write.shape
    kind = KINDS[record.op_kind]
    kind.check(record.params, reads, write, NUMPY_OPS)
    found = kind.elements(record.params, operands, output, wanted)
    return [distinct(elements) for elements in found]


def takes_by_index(record: OpRecord) -> bool:
    """Whether values of an op's second operand say which elements of its first it
    takes: a gather, as ``read_elements`` could be called for.
    """
    if record.op_kind != "math":
        return False
    spec = NUMPY_OPS.get(math_op(record.params))
    return spec is not None and spec.form is GATHER


def taken_elements(record: OpRecord, wanted: Ints, index: Array) -> Ints:
    """The elements of its first operand that an op which ``takes_by_index`` takes.

    ``index`` has the values of the second one at the ``wanted`` elements. As of
    ``read_elements`` they are ascending, each once; they are those of ``read_elements``
    if an index is beyond the first operand, as in a damaged trace.
    """
    operands = [r.shape for r in regions(record).reads]
    name = math_op(record.params)
    op = Applied(NUMPY_OPS[name].function, record.params, operands, ())
    taken = GATHER.taken(op, wanted, index.astype(np.int64))
    if (taken < 0).any() or (taken >= prod(operands[0])).any():
        return read_elements(record, wanted)[0]
    return distinct(taken)


# -- what all records of a trace touch -------------------------------------------------


class _Part(NamedTuple):
    """Accesses of some rows to one region each.

    ``space`` is an index of the trace's strings. ``which`` says for each which row of
    ``table`` (of ``Forms``) it has; both are empty where all are contiguous.
    """

    row: Ints
    mode: Bools
    space: Ints
    addr: Ints
    nbytes: Ints
    which: Ints = np.empty(0, np.int64)
    table: Ints = np.empty((0, FORM_COLUMNS), np.int64)


class ParamSchema(Protocol):
    """What the params of some ops look like."""

    @property
    def kind(self) -> str:
        """The kind of op."""

    @property
    def name(self) -> str:
        """The name of the ops."""

    @property
    def fields(self) -> Iterable[tuple[str, Any]]:
        """The names of the params, each with what it is made of."""

    @property
    def leaves(self) -> Iterable[tuple[str, str]]:
        """(path, letter) of each column: "i" an int, "s" an index of the strings."""


class ParamBlock(Protocol):
    """The params of some ops, as columns."""

    @property
    def schema(self) -> ParamSchema:
        """What all of them look like."""

    @property
    def values(self) -> Array:
        """A structured array, whose fields f0, f1 … are the leaves of the schema."""

    @property
    def rows(self) -> Array:
        """The row of each op."""


class ParamSource(Protocol):
    """A trace, as far as it holds the params of ops."""

    @property
    def strings(self) -> Sequence[str]:
        """The texts that indices in columns stand for."""

    @property
    def op_columns(self) -> Any:
        """The columns of all ops, of which there is one for each in ``t_start``."""

    def param_blocks(self) -> Iterable[ParamBlock]:
        """The params of all ops."""


def access_columns(
    trace: ParamSource, progress: Progress = no_progress
) -> AccessColumns:
    """Return what all ops of a ``Trace`` touch as columns, by row.

    Rows are one access; their ``pieces`` are ``accesses`` of the op. No op is decoded.
    TraceFormatError for params that do not say what an op touches.
    """
    return Resumable(lambda: access_steps(trace)).result(progress)


def access_steps(trace: ParamSource) -> Steps[AccessColumns]:
    """``access_columns`` in steps."""
    parts: list[_Part] = []
    total = max(len(trace.op_columns.t_start), 1)
    done = 0.0
    for block in trace.param_blocks():
        yield done  # many blocks in a row may touch nothing
        for part in _parts(block, trace.strings):
            parts.append(part)
            yield done
        done = 0.5 * min((int(block.rows[-1]) + 1) / total, 1.0)
    return (yield from beside(lambda: _joined(parts, trace.strings), done))


def _joined(parts: Sequence[_Part], strings: Sequence[str]) -> AccessColumns:
    """All parts in the order of their rows, without the accesses of no bytes."""
    none = np.empty(0, np.int64)
    columns = [_Part(none, none, none, none, none), *parts]  # type: ignore[arg-type]
    row, mode, where, addr, nbytes = (
        np.concatenate(column).astype(np.int64)
        for column in zip(*[part[:5] for part in columns], strict=True)
    )
    used = distinct(where)
    texts = [strings[i] for i in used.tolist()]
    # A text that the recorder has forgotten meanwhile is stored again.
    names = tuple(dict.fromkeys(texts))
    number = np.array([names.index(text) for text in texts], np.int64)
    # np.unique would keep other threads waiting
    space = number[np.searchsorted(used, where)]
    if len(row):
        lowest = min(addr.min(), nbytes.min())
        highest = max(addr.max(), nbytes.max())
        if lowest < 0 or highest >> _ADDRESS_BITS:
            raise TraceFormatError(
                "an op touches bytes that no address of 52 bits names"
            )
    form, forms = _joined_forms(columns)
    kept = np.flatnonzero(nbytes)
    kept = kept[np.argsort(row[kept], kind="stable")]
    joined = AccessColumns(row, mode, space, addr, nbytes, names, form, forms)
    return joined.take(kept)


def _joined_forms(parts: Sequence[_Part]) -> tuple[Ints, Forms]:
    """The form of each access of some parts, and what they are numbers of."""
    tables = [part.table for part in parts]
    table, number = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    if not len(table):
        return np.empty(0, np.uint8), NO_FORMS
    is_one_row = (table[:, [0, *range(3, FORM_COLUMNS, 2)]] == 1).all(axis=1)
    numbers = np.where(is_one_row, 0, np.arange(1, len(table) + 1))
    number = numbers[number.reshape(-1)]
    kind = np.min_scalar_type(len(table))
    found = []
    before = 0
    for part in parts:
        form = np.zeros(len(part.row), kind)
        if len(part.table):
            form[:] = number[before + part.which]
        before += len(part.table)
        found.append(form)
    return np.concatenate(found), Forms(table)


def _as_ints(numbers: Array) -> Array:
    """Numbers below 2^52 in a type of which products are integers, too."""
    return numbers.astype(np.int64) if numbers.dtype == np.uint64 else numbers


def _parts(block: ParamBlock, strings: Sequence[str]) -> Iterator[_Part]:
    """The accesses of a block of params, a part for each region of its ops."""
    schema = block.schema
    values = block.values  # has looked whether the params can be
    fields = dict(schema.fields)
    columns = {}  # the column of each int or string, by its path in the params
    for i, (path, letter) in enumerate(schema.leaves):
        if letter in "is":
            columns[path] = f"f{i}"
    listed = 0
    if schema.kind in _LISTS:
        _, items = fields.get(_LISTS[schema.kind].addrs, ("", ()))
        listed = len(items)
    reads, write = _places(schema.kind, schema.name, tuple(fields), listed)
    touched = reads if write is None else (*reads, write)
    for place in touched:
        suffix = "" if place.at is None else f".{place.at}"
        space = place.space + suffix
        addr = place.addr + suffix
        shape = place.shape + suffix
        dtype = place.dtype + suffix
        if not {space, addr, dtype} <= columns.keys():
            raise TraceFormatError(
                f"params of {schema.name!r:.40} lack {space}, {addr} or {dtype}, so "
                "nobody can say what it touches; record the run again"
            )
        used, which = np.unique(values[columns[dtype]], return_inverse=True)
        sizes = np.array([itemsize(strings[i]) for i in used.tolist()], np.int64)
        extents = [
            values[column]
            for path, column in columns.items()
            if path.startswith(f"{shape}.")
        ]
        nbytes = _product(sizes[which], extents, f"{shape} of a {schema.name!r:.40}")
        if place.rows:
            yield _part_in_rows(
                block,
                _columns_of_rows(block, columns, place),
                place is write,
                values[columns[space]],
                values[columns[addr]],
                nbytes,
            )
            continue
        yield _Part(
            block.rows,
            np.full(len(nbytes), place is write),
            values[columns[space]],
            values[columns[addr]],
            nbytes,
        )


def _product(sizes: Ints, extents: Sequence[Array], what: str) -> Ints:
    """Bytes of tensors by the sizes of their elements and their extents, a row each.

    TraceFormatError, which says ``what`` it is, for more than there are addresses.
    """
    most_bits = 3 + sum(8 * column.itemsize for column in extents)
    if most_bits > _ADDRESS_BITS:
        about = sizes.astype(np.float64)
        for column in extents:
            about *= column
        if about.max() >= 1 << _ADDRESS_BITS:
            raise TraceFormatError(f"{what} has more bytes than addresses")
    nbytes = sizes
    for column in extents:
        nbytes = nbytes * _as_ints(column)
    return nbytes


def _part_in_rows(
    block: ParamBlock,
    form: Sequence[str],
    is_write: bool,
    space: Array,
    addr: Array,
    nbytes: Array,
) -> _Part:
    """The accesses of a block whose ops move rows.

    ``form`` are the columns of rows, row_bytes, pitch and planes, and ``nbytes`` what
    each op moves.
    """
    depth = len(form) // 2 - 1
    given = np.stack([_as_ints(block.values[column]) for column in form], 1)
    given = given.astype(np.int64)
    forms, which = np.unique(given, axis=0, return_inverse=True)
    _check_forms(given, addr, nbytes)
    missing = np.tile([1, 0], (len(forms), MAX_PLANES - depth))
    table = np.concatenate((forms[:, :3], missing, forms[:, 3:]), 1)
    return _Part(
        block.rows,
        np.full(len(addr), is_write),
        space,
        addr,
        nbytes,
        which.reshape(-1),
        table,
    )


def _columns_of_rows(
    block: ParamBlock, columns: Mapping[str, str], place: Place
) -> list[str]:
    """The columns of the rows of a region; TraceFormatError if they are no rows.

    ``columns`` has the column of each param.
    """
    if place.rows == _OF_DMA:
        names = ["rows", "row_bytes", "pitch"]
        prefix = "planes."
        listed = sum(path.startswith(prefix) for path in columns)
        for at in range(listed // 2):
            names += [f"{prefix}{at}.0", f"{prefix}{at}.1"]
    else:
        prefix = f"{place.rows}." if place.at is None else f"{place.rows}.{place.at}."
        listed = sum(path.startswith(prefix) for path in columns)
        names = [f"{prefix}{at}" for at in range(listed)]
    is_form = 3 <= len(names) <= FORM_COLUMNS and len(names) % 2 == 1
    if not is_form or not columns.keys() >= {*names}:
        raise TraceFormatError(
            f"params of {block.schema.name!r:.40} say no rows; record the run again"
        )
    return [columns[name] for name in names]


def _check_forms(given: Ints, addr: Array, nbytes: Array) -> None:
    """TraceFormatError where rows, row_bytes, pitch and planes of an op are no rows.

    ``given`` has an op in each row; there are few different ones.
    """
    sized = np.concatenate((given, nbytes[:, None].astype(np.int64)), 1)
    forms, which = np.unique(sized, axis=0, return_inverse=True)
    spans = []
    for *form, moved in forms.tolist():
        spans.append(_rows(form, 0, moved).span)
    ends = addr.astype(np.float64) + np.array(spans, np.float64)[which.reshape(-1)]
    if len(ends) and ends.max() > 1 << _ADDRESS_BITS:
        raise TraceFormatError("an op touches bytes that no address of 52 bits names")

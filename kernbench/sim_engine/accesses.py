"""What an op reads and writes: the only definition (architecture.md, Interfaces 5).

Knows the params of ADR-0052 D3 and nothing else. TileTokens and unknown kinds touch nothing: the
bytes of a tile are its composite's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.dtypes import itemsize, nbytes_of
from kernbench.common.messages import Region
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.numpy_ops import numpy_op
from kernbench.sim_engine.op_log import PLACES, OpRecord, Params

Shape: TypeAlias = tuple[int, ...]
Reads: TypeAlias = tuple[Region, ...]


class Access(NamedTuple):
    """Contiguous bytes of one memory at a physical address; ``mode`` is "r" or "w"."""

    mode: str
    space: str
    addr: int
    nbytes: int


class Regions(NamedTuple):
    """The operands of an op in the order in which it takes them, and what it writes."""

    reads: tuple[Region, ...]
    write: Region | None


class AccessColumns(NamedTuple):
    """By ascending ``row``, reads first; ``mode`` 1: a write; ``space``: an index of ``spaces``."""

    row: Ints
    mode: Ints
    space: Ints
    addr: Ints
    nbytes: Ints
    spaces: tuple[str, ...]

    def take(self, at: Ints) -> AccessColumns:
        """Those numbered ``at``."""
        places = self.space[at], self.addr[at], self.nbytes[at]
        return AccessColumns(self.row[at], self.mode[at], *places, self.spaces)


# a host_write has no source, a host_read no destination, most gemms no accumulator
_OPTIONAL = ("src", "dst", "acc")
_LISTS = {
    kind: tuple(f"{name}_{field}" for field in ("spaces", "addrs", "shapes", "dtypes"))
    for kind, name in (("gemm", "epilogue"), ("math", "input"))
}
_UNLISTED = ("",) * 4


class Place(NamedTuple):
    """The params that hold the space, addr, shape and dtype of a region; ``at``: in lists, where"""

    keys: tuple[str, ...]
    at: int | None = None


@lru_cache(maxsize=1024)
def places(
    kind: str, names: tuple[str, ...], listed: int
) -> tuple[tuple[Place, ...], Place | None]:
    """Where params of these names hold what is read and what is written."""
    found = {
        name: Place(keys[:4])
        for name, keys in PLACES.get(kind, {}).items()
        if keys[0] in names or name not in _OPTIONAL
    }
    write = found.pop("out", None) or found.pop("dst", None)
    return (*found.values(), *(Place(_LISTS[kind], i) for i in range(listed))), write


def places_of(record: OpRecord) -> tuple[tuple[Place, ...], Place | None]:
    """Where the params of ``record`` hold what it reads and what it writes."""
    p, kind = record.params, record.op_kind
    return places(kind, tuple(p), len(p.get(_LISTS.get(kind, _UNLISTED)[1], ())))


def _region(p: Params, place: Place) -> Region:
    keys, at = place
    try:
        space, addr, shape, dtype = [
            p[key] if at is None else p[key][at] for key in keys
        ]
    except LookupError:
        raise TraceFormatError(f"params of an op lack {', '.join(keys)}") from None
    return Region(space, addr, tuple(shape), dtype, nbytes_of(shape, dtype))


def regions(record: OpRecord) -> Regions:
    """Operands and output of ``record`` as tensors; none for kinds that are never executed.

    Those of a gemm are a, b, the accumulator (of out's dtype) where there is one, the epilogue's.
    """
    p, (reads, write) = record.params, places_of(record)
    operands = tuple([_region(p, place) for place in reads])
    return Regions(operands, None if write is None else _region(p, write))


def accesses(record: OpRecord) -> list[Access]:
    """Every range of bytes that ``record`` touches, reads first; empty ranges are left out."""
    reads, write = regions(record)
    touched = [("r", r) for r in reads] + ([("w", write)] if write is not None else [])
    return [Access(mode, r.space, r.addr, r.nbytes) for mode, r in touched if r.nbytes]


def access_columns(trace: Any) -> AccessColumns:
    """``accesses`` of all ops of a ``Trace`` as columns, by row; no op is decoded.

    TraceFormatError for params that do not say what an op touches.
    """
    parts = [
        part for block in trace.param_blocks() for part in _parts(block, trace.strings)
    ]
    none = (np.empty(0, np.int64),) * 5
    row, mode, where, addr, nbytes = (
        np.concatenate(column).astype(np.int64)
        for column in zip(none, *parts, strict=True)
    )
    used, space = np.unique(where, return_inverse=True)
    names = tuple(trace.strings[i] for i in used.tolist())
    if len(row) and (
        min(addr.min(), nbytes.min()) < 0 or max(addr.max(), nbytes.max()) >> 52
    ):
        raise TraceFormatError("an op touches bytes that no address of 52 bits names")
    kept = np.flatnonzero(nbytes)
    kept = kept[np.argsort(row[kept], kind="stable")]
    return AccessColumns(row, mode, space, addr, nbytes, names).take(kept)


def _parts(block: Any, strings: Any) -> Iterable[tuple[Any, ...]]:
    """(row, mode, string of the space, addr, nbytes) columns of a block, one of each region."""
    schema, fields = block.schema, dict(block.schema.fields)
    leaves = {
        path: f"f{i}"
        for i, (path, letter) in enumerate(schema.leaves)
        if letter in "is"
    }
    listed = len(fields.get(_LISTS.get(schema.kind, _UNLISTED)[1], ("", ()))[1])
    reads, write = places(schema.kind, tuple(fields), listed)
    for place in reads if write is None else (*reads, write):
        suffix = "" if place.at is None else f".{place.at}"
        space, addr, shape, dtype = (key + suffix for key in place.keys)
        if not {space, addr, dtype} <= leaves.keys():
            raise TraceFormatError(
                f"params of {schema.name!r:.40} lack {space}, {addr} or {dtype}, so nobody can "
                "say what it touches; record the run again"
            )
        used, which = np.unique(block.values[leaves[dtype]], return_inverse=True)
        nbytes = np.array([itemsize(strings[i]) for i in used.tolist()], np.int64)[
            which
        ]
        for path, field in leaves.items():
            if path.startswith(f"{shape}."):
                nbytes = nbytes * block.values[field]
        mode = np.full(len(nbytes), place is write)
        yield (
            block.rows,
            mode,
            block.values[leaves[space]],
            block.values[leaves[addr]],
            nbytes,
        )


# -- which elements an element is made of: flat row-major indices, each once ------------


def read_elements(record: OpRecord, wanted: Ints) -> list[Ints]:
    """Of each of ``regions(record).reads`` the elements that ``wanted`` ones of the output need.

    Whatever their values are: both branches of a "where", all terms of a product with 0.
    """
    reads, write = regions(record)
    kind = record.op_kind
    if kind == "math":
        kind = numpy_op(record.params["op"]).kind
    shape = () if write is None else write.shape
    return [np.unique(x) for x in _ELEMENTS[kind](record.params, reads, shape, wanted)]


def _of_copy(p: Params, reads: Reads, shape: Shape, wanted: Ints) -> list[Ints]:
    return [wanted for _ in reads]


def _of_elementwise(p: Params, reads: Reads, shape: Shape, wanted: Ints) -> list[Ints]:
    whole = np.broadcast_shapes(*(r.shape for r in reads))
    return [_broadcast(wanted, r.shape, whole) for r in reads]


def _of_reduction(p: Params, reads: Reads, shape: Shape, wanted: Ints) -> list[Ints]:
    """Lines along the axis: of a softmax, whose shape is its operand's, of every element."""
    (x,), axis, same = (
        (r.shape for r in reads),
        p.get("axis"),
        prod(shape) == prod(reads[0].shape),
    )
    if axis is None and not same:
        return [np.arange(prod(x))]
    axis = (-1 if axis is None else axis) % max(len(x), 1)
    extent, inner = x[axis] if x else 1, prod(x[axis + 1 :])
    lines = wanted // (extent * inner) * inner + wanted % inner if same else wanted
    return [_lines(lines, extent, inner)]


def _of_shaped(p: Params, reads: Reads, shape: Shape, wanted: Ints) -> list[Ints]:
    """Those only place elements: they do so with the elements' numbers too."""
    numbers = [np.arange(prod(r.shape)).reshape(r.shape) for r in reads]
    placed = numpy_op(p["op"]).function(shape, *numbers, *p.get("scalars", ()))
    return [placed.reshape(-1)[wanted] for _ in reads]


def _of_gemm(p: Params, reads: Reads, shape: Shape, wanted: Ints) -> list[Ints]:
    """Rows of a, columns of b, the same of an accumulator, and what an epilogue spreads."""
    (a, b, *rest), turned = (
        (r.shape for r in reads),
        [bool(p.get(f"transpose_{x}")) for x in "ab"],
    )
    m, k = a[-2:][::-1] if turned[0] else a[-2:]
    n = b[-2] if turned[1] else b[-1]
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    at, row, column = wanted // (m * n), wanted // n % m, wanted % n
    found = []
    for x, line, extent, apart in (
        (a, row, m, turned[0]),
        (b, column, n, not turned[1]),
    ):
        lines = _broadcast(at, x[:-2], batch) * extent + line
        found.append(_lines(lines, k, extent if apart else 1))
    return found + [_broadcast(wanted, x, (*batch, m, n)) for x in rest]


def _lines(lines: Ints, extent: int, inner: int) -> Ints:
    """The elements of those lines of ``extent``, ``inner`` apart, of a tensor (…, extent, inner)"""
    outer, offset = divmod(np.unique(lines), inner)
    return np.asarray(
        ((outer * extent * inner + offset)[:, None] + np.arange(extent) * inner).ravel()
    )


def _broadcast(wanted: Ints, shape: Shape, whole: Shape) -> Ints:
    """The elements of a tensor that stand at ``wanted`` of it broadcast to ``whole``."""
    places = np.unravel_index(wanted, whole or (1,))[len(whole) - len(shape) :]
    found = np.zeros(len(wanted), np.int64)
    for axis, (extent, place) in enumerate(zip(shape, places, strict=False)):
        found += (extent > 1) * prod(shape[axis + 1 :]) * place
    return found


_ELEMENTS: dict[str, Callable[[Params, Reads, Shape, Ints], list[Ints]]] = {
    "memory": _of_copy,
    "gemm": _of_gemm,
    "elementwise": _of_elementwise,
    "reduction": _of_reduction,
    "shaped": _of_shaped,
}

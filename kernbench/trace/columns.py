"""The columns of every log of a trace file: their types, units and meaning.

Each log is a dataclass of columns, and each column is stated once, here: its type in
memory is the field's; its type on disk, its unit and its meaning stand in the
``StoredAs`` beside it. The schema of the file (``LOGS``), the reader, the writer, the
tables for export and the page about the format (``tables_as_markdown``) are made from
that.

A log is one row for each event or thing; its columns are equally long. Times are in ns
of simulated time. All numbers in a file are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Floats
from kernbench.trace.mapped import MappedColumn

F8: TypeAlias = MappedColumn[np.float64]
I4: TypeAlias = MappedColumn[np.int32]
I8: TypeAlias = MappedColumn[np.int64]
U1: TypeAlias = MappedColumn[np.uint8]
U4: TypeAlias = MappedColumn[np.uint32]
U8: TypeAlias = MappedColumn[np.uint64]

# The machine is inflated, not mapped, and small: its numbers keep the width that they
# have in the file.
Signed: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Unsigned: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class StoredAs:
    """What a file holds of a column.

    ``disk`` is the type on disk, by kind and bytes ("u4", "f8"), or two of them as
    "narrowest/widest". The writer takes the first type from the narrowest on that holds
    the values of a frame ("n": from the smallest on, signed or not); the reader takes
    any that is no wider than the widest.

    With a ``table`` the values number entries of it, and the reader refuses a frame
    whose numbers are too large. Tables are node, string, text (a string that the writer
    may forget and store again), path, space, and those that are the same for all files:
    reason, dtype and axes (0 to 3).

    ``joins`` names the column of another log that has the same values. "ops" alone is
    the row of an op, counted from 0 in the order of completion, and 4294967295 on disk
    where there is none. Rows are the only numbers that the reader changes: it counts
    anew behind a damaged frame, and makes -1 of those that are not there.

    ``many``: each row is a list of any length. The values of all lists follow each
    other, and a column ``NAME_n`` beside them has the lengths.
    """

    disk: str
    meaning: str
    unit: str = ""
    table: str = ""
    joins: str = ""
    many: bool = False


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that is in no file: the reader makes it of others."""

    meaning: str


# -- the machine ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """The components of the machine; a node is named by its row here.

    The id of each node is the string of the same number. A trace that was recorded
    without a machine has a node for every string, of which nothing else is known.
    """

    type: Annotated[list[str], StoredAs("n/u4", "type of component", table="string")]
    engine: Annotated[
        list[str], StoredAs("n/u4", "name within its PE, cube or SIP", table="string")
    ]
    sip: Annotated[Signed, StoredAs("i2/i4", "SIP that it belongs to; -1: none")]
    cube: Annotated[Signed, StoredAs("i2/i4", "cube of that SIP; -1: none")]
    pe: Annotated[Signed, StoredAs("i2/i4", "PE of that cube; -1: none")]
    x_mm: Annotated[Floats, StoredAs("f8", "place on the machine, eastwards", "mm")]
    y_mm: Annotated[Floats, StoredAs("f8", "place on the machine, southwards", "mm")]
    overhead_ns: Annotated[Floats, StoredAs("f8", "paid by each header passing", "ns")]


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """The links of the machine, each in one direction.

    A hop over a link takes its wire's time, which is by distance, and the bytes' time,
    which is by bandwidth.
    """

    src: Annotated[Unsigned, StoredAs("n/u4", "node that it leaves", table="node")]
    dst: Annotated[Unsigned, StoredAs("n/u4", "node that it enters", table="node")]
    kind: Annotated[list[str], StoredAs("n/u4", "kind of link", table="string")]
    distance_mm: Annotated[Floats, StoredAs("f8", "length", "mm")]
    routing_weight_mm: Annotated[
        Floats, StoredAs("f8", "length that the router counts; 0: its distance", "mm")
    ]
    bandwidth_gbs: Annotated[Floats, StoredAs("f8", "bandwidth: bytes a ns", "GB/s")]


# -- tables that grow by frames -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorColumns:
    """Arrays, whose bytes lie in the same frame; the same content is stored once."""

    dtype: Annotated[Unsigned, StoredAs("u1", "type of the elements", table="dtype")]
    shape: Annotated[Unsigned, StoredAs("n/u8", "extents, row-major", many=True)]
    offset: Annotated[
        Unsigned, StoredAs("u4/u8", "where its bytes begin in the body", "B")
    ]
    sha: Annotated[Unsigned, StoredAs("u8", "SHA-256, as four numbers", many=True)]


@dataclass(frozen=True, slots=True)
class PathColumns:
    """The ways that transactions take through the machine.

    They are interned: each way that a run uses is stored once, and transfers name it.
    """

    node: Annotated[
        Unsigned, StoredAs("n/u4", "nodes from source to end", table="node", many=True)
    ]


# -- what the machine was given ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllocColumns:
    """The shards, replicas and scratch handles in memory, in the order of their making.

    Each is a box of a tensor, of at most three axes: it begins at the element that the
    origin names and has so many elements along each axis. Of a tensor of more axes
    those between the first and the last are one, as no tensor is split along them.
    Every access of an op should lie in one of them.
    """

    tensor: Annotated[U4, StoredAs("u4", "name of the tensor", table="text")]
    dtype: Annotated[U1, StoredAs("u1", "type of the elements", table="dtype")]
    space: Annotated[U4, StoredAs("u1/u4", "kind of memory", table="space")]
    addr: Annotated[U8, StoredAs("u8", "physical address of the first byte")]
    va: Annotated[U8, StoredAs("u8", "virtual address; 0: none")]
    nbytes: Annotated[U8, StoredAs("u8", "size", "B")]
    owner: Annotated[U4, StoredAs("u4", "pe_cpu of the memory's PE", table="string")]
    origin0: Annotated[U4, StoredAs("u4", "first element along axis 0 of the tensor")]
    origin1: Annotated[U4, StoredAs("u4", "the same along axis 1; 0: none")]
    origin2: Annotated[U4, StoredAs("u4", "the same along axis 2; 0: none")]
    shape0: Annotated[U4, StoredAs("u4", "elements along axis 0")]
    shape1: Annotated[U4, StoredAs("u4", "elements along axis 1; 0: none")]
    shape2: Annotated[U4, StoredAs("u4", "elements along axis 2; 0: none")]
    cmd: Annotated[
        U4, StoredAs("u4", "call from which it is valid", joins="commands.cmd")
    ]
    rank: Annotated[U1, StoredAs("u1", "number of axes", table="axes")]
    index: Annotated[U4, StoredAs("n/u4", "which of the tensor's shards it is")]
    spaces: Annotated[list[str], Derived("the table that the space column numbers")]


# -- what happened -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandColumns:
    """The tl calls of all kernels and the calls of the host, as they returned.

    The calls of a PE in one launch cover the life of its kernel without gaps: what the
    kernel does between two calls takes no simulated time.
    """

    cmd: Annotated[U4, StoredAs("u4", "number of the call")]
    pe: Annotated[
        U4, StoredAs("n/u4", "pe_cpu of the kernel; of the host: pcie_ep", table="node")
    ]
    launch: Annotated[
        I4,
        StoredAs("i4", "launch of the kernel; -1: the host", joins="launches.launch"),
    ]
    call: Annotated[U4, StoredAs("n/u4", "what was called", table="string")]
    file: Annotated[U4, StoredAs("n/u4", "file of the calling line", table="string")]
    line: Annotated[U4, StoredAs("n/u4", "number of that line")]
    function: Annotated[U4, StoredAs("n/u4", "function around it", table="string")]
    awaits: Annotated[
        U4,
        StoredAs(
            "u4", "call that it waited for; 4294967295: none", joins="commands.cmd"
        ),
    ]
    t_issue: Annotated[F8, StoredAs("f8", "when it was made", "ns")]
    t_resume: Annotated[F8, StoredAs("f8", "when the kernel went on", "ns")]


@dataclass(frozen=True, slots=True)
class CallerColumns:
    """Where the function was called that made a tl call, if that was no kernel.

    A helper makes calls for many lines; this is the line that it was called at. A call
    that is not among these was made by a kernel itself, or the trace is an older one.
    """

    cmd: Annotated[U4, StoredAs("u4", "number of the call", joins="commands.cmd")]
    file: Annotated[
        U4, StoredAs("n/u4", "file of the line that called", table="string")
    ]
    line: Annotated[U4, StoredAs("n/u4", "number of that line")]
    function: Annotated[U4, StoredAs("n/u4", "function around it", table="string")]


@dataclass(frozen=True, slots=True)
class OpColumns:
    """The ops, in the order in which they completed: an op is named by its row here.

    Its params are not among the columns: a frame holds them in blocks, one for each
    schema, see ``kernbench.trace.params``.
    """

    t_start: Annotated[F8, StoredAs("f8", "when service began", "ns")]
    t_end: Annotated[F8, StoredAs("f8", "when service ended", "ns")]
    component: Annotated[U4, StoredAs("u4", "component that served it", table="node")]
    name: Annotated[U4, StoredAs("u2/u4", "name of the op", table="string")]
    slot: Annotated[U4, StoredAs("u1/u4", "lane of the component that served it")]
    cmd: Annotated[U4, StoredAs("u4", "call that caused it", joins="commands.cmd")]
    nbytes: Annotated[U8, StoredAs("u8", "moved or made; 0: unknown", "B")]
    schema: Annotated[
        U4, StoredAs("u2/u4", "schema of its params, of those in the heads of frames")
    ]
    param: Annotated[
        U4, StoredAs("u4", "its place in that schema's block of the frame")
    ]
    dep: Annotated[
        I8,
        StoredAs(
            "u4", "ops that it waited for; -1: one that is lost", joins="ops", many=True
        ),
    ]
    dep_ptr: Annotated[
        I8, Derived("list i of dep is dep[dep_ptr[i]:dep_ptr[i + 1]]; n + 1 rows")
    ]
    kind: Annotated[U1, Derived("0 memory, 1 gemm, 2 math, 3 unknown: the schema's")]


@dataclass(frozen=True, slots=True)
class TransferColumns:
    """The transactions that carried bytes through the machine, one row for each.

    It has no row for a burst or a hop. When a burst arrives and leaves follows from its
    start on the link and the constants of the path.
    """

    cmd: Annotated[U4, StoredAs("u4", "call that caused it", joins="commands.cmd")]
    row: Annotated[I8, StoredAs("u4", "op that it belongs to; -1: none", joins="ops")]
    path: Annotated[U4, StoredAs("u4", "its way", table="path")]
    t0: Annotated[F8, StoredAs("f8", "when it was sent", "ns")]
    nbytes: Annotated[U8, StoredAs("n/u8", "size", "B")]
    bursts: Annotated[U4, StoredAs("n/u4", "pieces in which it went")]
    start: Annotated[
        F8,
        StoredAs(
            "f8",
            "when the first burst entered each link, then the last if there are more",
            "ns",
            many=True,
        ),
    ]
    start_ptr: Annotated[
        I8, Derived("list i of start is start[start_ptr[i]:start_ptr[i + 1]]")
    ]


@dataclass(frozen=True, slots=True)
class WaitColumns:
    """The intervals in which messages waited; none is empty.

    What an op waited for is recorded when the op has completed, so the holder is known.
    """

    cmd: Annotated[U4, StoredAs("u4", "call that caused it", joins="commands.cmd")]
    row: Annotated[I8, StoredAs("u4", "op that waited", joins="ops")]
    node: Annotated[U4, StoredAs("n/u4", "where it waited", table="node")]
    reason: Annotated[U1, StoredAs("u1", "what for", table="reason")]
    t0: Annotated[F8, StoredAs("f8", "since when", "ns")]
    t1: Annotated[F8, StoredAs("f8", "until when", "ns")]
    holder: Annotated[
        I8, StoredAs("u4", "op it waited behind; -1: none, or unknown", joins="ops")
    ]


@dataclass(frozen=True, slots=True)
class LaunchColumns:
    """The launches of kernels, as they ended. ``Trace.launches`` gives their rows."""

    launch: Annotated[I4, StoredAs("i4", "number of the launch")]
    kernel: Annotated[U4, StoredAs("n/u4", "name of the kernel", table="string")]
    pe: Annotated[
        U4, StoredAs("n/u4", "pe_cpu of each PE that ran it", table="node", many=True)
    ]
    pe_ptr: Annotated[I8, Derived("list i of pe is pe[pe_ptr[i]:pe_ptr[i + 1]]")]
    t_issue: Annotated[F8, StoredAs("f8", "when the host asked for it", "ns")]
    t_start: Annotated[F8, StoredAs("f8", "when the kernels began", "ns")]
    t_end: Annotated[F8, StoredAs("f8", "when the last of them ended", "ns")]


@dataclass(frozen=True, slots=True)
class TextColumns:
    """What was printed, asserted or warned of. ``Trace.texts`` gives the rows."""

    t: Annotated[F8, StoredAs("f8", "when", "ns")]
    cmd: Annotated[U4, StoredAs("u4", "call that it came from", joins="commands.cmd")]
    level: Annotated[
        U4, StoredAs("n/u4", "print, assert, warning or error", table="string")
    ]
    message: Annotated[U4, StoredAs("n/u4", "the text", table="text")]


# -- the schema --------------------------------------------------------------------


class ColumnSpec(NamedTuple):
    """A column of a file, as writer and reader use it; see ``StoredAs``.

    ``narrowest`` and ``widest`` are the types on disk, "n" among the first meaning any.
    ``memory`` names the type that the dataclass of the log gives it.
    """

    narrowest: str
    widest: str
    memory: str
    meaning: str
    unit: str
    table: str
    joins: str
    many: bool


COLUMN_CLASSES: dict[str, type] = {
    "nodes": NodeColumns,
    "edges": EdgeColumns,
    "tensors": TensorColumns,
    "paths": PathColumns,
    "alloc": AllocColumns,
    "commands": CommandColumns,
    "callers": CallerColumns,
    "ops": OpColumns,
    "transfers": TransferColumns,
    "launches": LaunchColumns,
    "waits": WaitColumns,
    "text": TextColumns,
}
"""The logs by the tag of their frames; nodes and edges lie in one, ``topology``."""


def _columns(log: type) -> Iterator[tuple[str, str, StoredAs | Derived]]:
    """The name, type in memory and description of each column of a log."""
    for name, hint in get_type_hints(log, include_extras=True).items():
        in_memory, description = get_args(hint)
        yield name, _type_name(in_memory), description


def _type_name(in_memory: Any) -> str:
    """The type of a column in memory as the page shows it: u4, list of str …"""
    if in_memory == list[str]:
        return "list of str"
    scalar = get_args(in_memory)[-1]  # of a MappedColumn
    if get_args(scalar):  # of an array: dtype[scalar]
        scalar = get_args(scalar)[0]
    if get_args(scalar):  # integers of any width
        return "as on disk"
    code: str = np.dtype(scalar).str[1:]
    return code


def _schema(log: type) -> dict[str, ColumnSpec]:
    """The columns that a file holds of a log."""
    schema: dict[str, ColumnSpec] = {}
    for name, memory, stored in _columns(log):
        if isinstance(stored, Derived):
            continue
        narrowest, _, widest = stored.disk.partition("/")
        schema[name] = ColumnSpec(
            narrowest,
            widest or narrowest,
            memory,
            stored.meaning,
            stored.unit,
            stored.table,
            stored.joins,
            stored.many,
        )
    return schema


LOGS = {tag: _schema(log) for tag, log in COLUMN_CLASSES.items()}
"""The columns of every log by tag and name, in the order in which they are written."""


# -- the page ----------------------------------------------------------------------


_HEADINGS = ("column", "on disk", "in memory", "unit", "refers to", "meaning")


def tables_as_markdown() -> Iterator[str]:
    """For each log its tag, what it is, and a table of its columns, in Markdown.

    A column that is in no file has the type on disk "-". Lists are marked by "[]", and
    "n" is the narrowest type that holds the values of a frame.
    """
    for tag, log in COLUMN_CLASSES.items():
        lines = [f"### `{tag}`", "", _paragraph(log.__doc__), ""]
        lines.append(_table_row(_HEADINGS))
        lines.append(_table_row(["---"] * len(_HEADINGS)))
        for name, memory, description in _columns(log):
            lines.append(_table_row(_cells(name, memory, description)))
        yield "\n".join(lines) + "\n"


def _paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring, as one line."""
    first, _, _ = (docstring or "").partition("\n\n")
    return " ".join(first.split())


def _cells(name: str, memory: str, description: StoredAs | Derived) -> list[str]:
    if isinstance(description, Derived):
        return [f"`{name}`", "-", memory, "", "", description.meaning]
    brackets = ""
    if description.many:
        brackets = "[]"
    disk = description.disk.replace("/", " to ")
    refers_to = description.table or description.joins
    return [
        f"`{name}`",
        disk + brackets,
        memory + brackets,
        description.unit,
        refers_to,
        description.meaning,
    ]


def _table_row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"

"""A trace as flat tables: what parquet, csv, ndjson and ``Trace.table`` give.

Ops are named by their canonical position, the number that users meet everywhere. Times
are in ns of simulated time, and every interval goes from ``t_start`` to ``t_end``.

A table is its columns by name, equally long numpy arrays. Numbers that may be null are
masked arrays, whether or not one is. Texts are arrays of objects, in which None is
null, while a table is written to a file; ``table`` gives masked arrays of numpy's
texts, for which see there.

To add a table, write what makes it and give it a row in ``TABLES``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Ints
from kernbench.common.dtypes import DTYPES
from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.common.near import instead_of
from kernbench.common.progress import Progress
from kernbench.errors import UsageError
from kernbench.sim_engine.accesses import access_columns
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace.export.operands import SCALAR, operand_texts
from kernbench.trace.groups import Groups
from kernbench.trace.hops import hop_columns, named, speeds_of, tile_composites
from kernbench.trace.mapped import Column
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns


class About(NamedTuple):
    """What a column of a table means, and its unit."""

    meaning: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what it has a row for, its columns, and what makes it."""

    about: str
    columns: Mapping[str, About]
    make: Callable[[Trace], Columns]


# -- nulls -------------------------------------------------------------------------


def nullable(values: Array, is_null: Bools) -> Array:
    """Numbers of which some are null: a masked array, with 0 below the mask."""
    known = np.where(is_null, values.dtype.type(0), values)
    masked: Array = np.ma.MaskedArray(known, is_null)
    return masked


def below_0_is_null(values: Array) -> Array:
    """Whole numbers, of which those below 0 are null."""
    return nullable(values, values < 0)


def _calls(values: Column) -> Array:
    """Numbers of calls; null where there is no call."""
    numbers = values[:]
    return nullable(numbers, numbers == NO_CMD)


def _positions(trace: Trace, rows: Array) -> Array:
    """The op of each row of ops; null for -1."""
    return below_0_is_null(np.append(trace.position, -1)[rows])


def _texts(table: Sequence[str], numbers: Column | Array) -> Array:
    """The texts that ``numbers`` stand for; null for -1 and for an empty text."""
    used, which = np.unique(np.asarray(numbers), return_inverse=True)
    texts = [table[number] or None if number >= 0 else None for number in used.tolist()]
    return np.array(texts, object)[which]


# -- ops ---------------------------------------------------------------------------

_PLACE = {
    "sip": About("SIP of the component; null: it belongs to none"),
    "cube": About("cube of that SIP; null: none"),
    "pe": About("PE of that cube; null: none"),
}
_SITE = {
    "file": About("file of the line that made the call"),
    "line": About("number of that line"),
    "function": About("function around it"),
}
_INTERVAL = {
    "t_start": About("when it began", "ns"),
    "t_end": About("when it ended", "ns"),
}

_STAGE_KINDS = {"GEMM": "gemm", "MATH": "math"}
"""The kinds of the stages of a tile by name; the others move bytes."""

_STAGE_PREFIX = "TileToken/"


def _places(trace: Trace, node: Array) -> Columns:
    """SIP, cube and PE of some nodes."""
    nodes = trace.nodes
    return {
        "sip": below_0_is_null(nodes.sip[node]),
        "cube": below_0_is_null(nodes.cube[node]),
        "pe": below_0_is_null(nodes.pe[node]),
    }


def op_table(trace: Trace) -> Columns:
    """A row for each op, in canonical order: the number of a row is that of its op."""
    order = trace.order
    columns = trace.op_columns
    node = columns.component[order]
    cmd = columns.cmd[order]
    nbytes = columns.nbytes[order]
    name = columns.name[order]
    parent = tile_composites(trace)[order]
    operands = operand_texts(trace)
    return {
        "op": np.arange(len(order)),
        "t_start": columns.t_start[order],
        "t_end": columns.t_end[order],
        "name": _texts(trace.strings, name),
        "kind": _op_kinds(trace, name, columns.kind[order]),
        "component": _texts(trace.node_ids, node),
        **_places(trace, node),
        "engine": _texts(trace.nodes.engine, node),
        "slot": columns.slot[order],
        "nbytes": nullable(nbytes, nbytes == 0),
        "is_stage": named(trace, _STAGE_PREFIX)[order],
        "parent": _positions(trace, parent),
        **{heading: texts[order] for heading, texts in operands.items()},
        "cmd": _calls(cmd),
        **_call_columns(trace, cmd),
    }


def _op_kinds(trace: Trace, name: Array, kind: Array) -> Array:
    """The kind of each op as a word; of a stage of a tile that of its work."""
    kinds = _texts(list(KIND_RANK), kind)
    for number in np.flatnonzero(np.bincount(name)).tolist():
        text = trace.strings[number]
        if text.startswith(_STAGE_PREFIX):
            stage = text.removeprefix(_STAGE_PREFIX)
            kinds[name == number] = _STAGE_KINDS.get(stage, "memory")
    return kinds


def _call_columns(trace: Trace, cmd: Array) -> Columns:
    """Of each call in ``cmd`` its launch, name and line; null of an unknown one."""
    log = trace.commands
    row = Groups(log.cmd).first(cmd)

    def numbers(column: Column) -> Ints:
        known = column[:].astype(np.int64)
        return np.append(known, -1)[row]

    return {
        "launch": below_0_is_null(numbers(log.launch)),
        "call": _texts(trace.strings, numbers(log.call)),
        "file": _texts(trace.strings, numbers(log.file)),
        "line": below_0_is_null(numbers(log.line)),
        "function": _texts(trace.strings, numbers(log.function)),
    }


_OPS = Table(
    "each op; a composite and the stages of its tiles are ops",
    {
        "op": About("its number, in canonical order"),
        "t_start": About("when service began", "ns"),
        "t_end": About("when service ended", "ns"),
        "name": About("name of the op"),
        "kind": About("memory, gemm, math or unknown; of a stage what it works at"),
        "component": About("id of the component that served it"),
        **_PLACE,
        "engine": About("name of the component within its PE, cube or SIP"),
        "slot": About("lane of the component that served it"),
        "nbytes": About("moved or made; null: unknown", "B"),
        "is_stage": About("whether it is a stage of a tile of a composite"),
        "parent": About("op of the composite of which it is a stage"),
        "shape": About(
            "what it makes or moves, as 8x32, () of a scalar; of a stage its m x n x k"
        ),
        "dtype": About("type of what it makes or moves"),
        "shapes_in": About("its operands, as '8x32 32x32'"),
        "dtypes_in": About("types of its operands, as 'f16 f16'"),
        "cmd": About("call that caused it; null: none"),
        "launch": About("launch of the kernel; null: the host"),
        "call": About("what was called"),
        **_SITE,
    },
    op_table,
)


# -- memory ------------------------------------------------------------------------


def _access_table(trace: Trace) -> Columns:
    touched = access_columns(trace)
    every = np.arange(len(touched.row))
    form = touched.forms_of(every)
    rows, row_bytes, pitch = touched.forms.table[form, :3].T
    planes = [""]
    for number in range(1, len(touched.forms.table)):
        axes = touched.forms.rows(number, 0).planes
        planes.append(" ".join(f"{count}x{apart}" for count, apart in axes))
    return {
        "op": _positions(trace, touched.row),
        "mode": _texts(("read", "write"), touched.mode),
        "space": _texts(touched.spaces, touched.space),
        "addr": touched.addr,
        "nbytes": touched.nbytes,
        "rows": rows,
        "row_bytes": np.where(form > 0, row_bytes, touched.nbytes),
        "pitch": pitch,
        "planes": _texts(planes, form),
    }


_ACCESSES = Table(
    "each region of memory that an op reads or writes",
    {
        "op": About("op that touches it"),
        "mode": About("read or write"),
        "space": About("kind of memory"),
        "addr": About("physical address of its first byte"),
        "nbytes": About("bytes that are touched, gaps left out", "B"),
        "rows": About("rows of bytes in which they lie"),
        "row_bytes": About("size of a row", "B"),
        "pitch": About("from the begin of a row to that of the next", "B"),
        "planes": About(
            "further axes of those rows, the outermost first, as '3x4096 2x512': how "
            "many, and how many bytes apart"
        ),
    },
    _access_table,
)


def _tensor_table(trace: Trace) -> Columns:
    allocs = trace.alloc_columns
    owner_of = np.array([trace.node_index.get(text, -1) for text in _owners(trace)])
    owner = np.empty(0, np.int64)
    if len(allocs.owner):
        owner = owner_of[np.unique(allocs.owner[:], return_inverse=True)[1]]
    places = {}
    for name in ("sip", "cube", "pe"):
        numbers = np.append(getattr(trace.nodes, name), -1)[owner]
        places[name] = below_0_is_null(numbers)
    va = allocs.va[:]
    return {
        "tensor": _texts(trace.strings, allocs.tensor),
        "shard": allocs.index[:],
        "space": _texts(allocs.spaces, allocs.space),
        "addr": allocs.addr[:],
        "va": nullable(va, va == 0),
        "nbytes": allocs.nbytes[:],
        "component": _texts(trace.strings, allocs.owner),
        **places,
        "dtype": _texts(list(DTYPES), allocs.dtype),
        "shape": _boxes(trace, "shape", "x", SCALAR),
        "origin": _boxes(trace, "origin", ",", None),
        "cmd": _calls(allocs.cmd),
    }


def _owners(trace: Trace) -> list[str]:
    """The ids of the nodes that own memory, each once, by number."""
    used = np.unique(trace.alloc_columns.owner[:])
    return [trace.strings[number] for number in used.tolist()]


def _boxes(trace: Trace, name: str, between: str, of_scalar: str | None) -> Array:
    """The extents or origins of all allocations as texts."""
    allocs = trace.alloc_columns
    axes = [getattr(allocs, f"{name}{axis}")[:].tolist() for axis in range(3)]
    texts = []
    for rank, *numbers in zip(allocs.rank[:].tolist(), *axes, strict=True):
        texts.append(between.join(map(str, numbers[:rank])) or of_scalar)
    return np.array(texts, object)


_TENSORS = Table(
    "each shard, replica and scratch handle in memory",
    {
        "tensor": About("name of the tensor"),
        "shard": About("which of the tensor's shards it is"),
        "space": About("kind of memory"),
        "addr": About("physical address of its first byte"),
        "va": About("virtual address; null: none"),
        "nbytes": About("size", "B"),
        "component": About("pe_cpu of the memory's PE"),
        **_PLACE,
        "dtype": About("type of the elements"),
        "shape": About("extents, as 8x32, () of a scalar"),
        "origin": About("its first element in the tensor, as 0,32; null: a scalar"),
        "cmd": About("call from which it is valid"),
    },
    _tensor_table,
)


# -- transactions ------------------------------------------------------------------


def _hop_table(trace: Trace) -> Columns:
    hops = hop_columns(trace)
    transfers = trace.transfers
    nbytes = transfers.nbytes[hops.transfer]
    speed = speeds_of(trace, hops.edge)
    busy = np.divide(nbytes, speed, out=np.zeros(len(speed)), where=speed > 0)
    return {
        "transfer": hops.transfer,
        "hop": hops.hop,
        "edge": below_0_is_null(hops.edge),
        "src": _texts(trace.node_ids, hops.src),
        "dst": _texts(trace.node_ids, hops.dst),
        "kind": _texts(trace.edges.kind, hops.edge),
        "t_start": hops.start,
        "t_last": hops.last,
        "busy_ns": busy,
        "op": _positions(trace, transfers.row[hops.transfer]),
        "cmd": _calls(transfers.cmd[hops.transfer]),
        "nbytes": nbytes,
        "bursts": transfers.bursts[hops.transfer],
    }


_HOPS = Table(
    "each link that a transaction passed",
    {
        "transfer": About("number of the transaction"),
        "hop": About("which link of its way, from 0"),
        "edge": About("row of edges; null: no link of the machine"),
        "src": About("id of the node that the link leaves"),
        "dst": About("id of the node that it enters"),
        "kind": About("kind of link"),
        "t_start": About("when the first burst entered the link", "ns"),
        "t_last": About("when the last burst entered it", "ns"),
        "busy_ns": About("what its bytes take at the link's bandwidth", "ns"),
        "op": About("op that it belongs to; null: none"),
        "cmd": About("call that caused it"),
        "nbytes": About("size of the transaction", "B"),
        "bursts": About("pieces in which it went"),
    },
    _hop_table,
)


def _wait_table(trace: Trace) -> Columns:
    waits = trace.waits
    node = waits.node[:]
    return {
        "op": _positions(trace, waits.row[:]),
        "component": _texts(trace.node_ids, node),
        **_places(trace, node),
        "reason": _texts(WAIT_REASONS, waits.reason),
        "t_start": waits.t0[:],
        "t_end": waits.t1[:],
        "holder": _positions(trace, waits.holder[:]),
        "cmd": _calls(waits.cmd),
    }


_WAITS = Table(
    "each interval in which an op waited",
    {
        "op": About("op that waited"),
        "component": About("id of the component where it waited"),
        **_PLACE,
        "reason": About("what for"),
        **_INTERVAL,
        "holder": About("op it waited behind; null: none, or unknown"),
        "cmd": About("call that caused it"),
    },
    _wait_table,
)


# -- calls -------------------------------------------------------------------------


def _command_table(trace: Trace) -> Columns:
    log = trace.commands
    node = log.pe[:]
    return {
        "cmd": log.cmd[:],
        "component": _texts(trace.node_ids, node),
        **_places(trace, node),
        "launch": below_0_is_null(log.launch[:]),
        "call": _texts(trace.strings, log.call),
        "file": _texts(trace.strings, log.file),
        "line": log.line[:],
        "function": _texts(trace.strings, log.function),
        "awaits": _calls(log.awaits),
        "t_start": log.t_issue[:],
        "t_end": log.t_resume[:],
    }


_COMMANDS = Table(
    "each tl call of a kernel, and each call of the host",
    {
        "cmd": About("number of the call"),
        "component": About("pe_cpu of the kernel; of the host its pcie_ep"),
        **_PLACE,
        "launch": About("launch of the kernel; null: the host"),
        "call": About("what was called"),
        **_SITE,
        "awaits": About("call that it waited for; null: none"),
        "t_start": About("when it was made", "ns"),
        "t_end": About("when the kernel went on", "ns"),
    },
    _command_table,
)


def _launch_table(trace: Trace) -> Columns:
    launches = trace.launches
    return {
        "launch": np.array([row.launch for row in launches], np.int32),
        "kernel": np.array([row.kernel for row in launches], object),
        "pes": np.array([len(row.pes) for row in launches], np.int64),
        "components": np.array([" ".join(row.pes) for row in launches], object),
        "t_issue": np.array([row.t_issue for row in launches], np.float64),
        "t_start": np.array([row.t_start for row in launches], np.float64),
        "t_end": np.array([row.t_end for row in launches], np.float64),
    }


_LAUNCHES = Table(
    "each launch of a kernel that ended",
    {
        "launch": About("number of the launch"),
        "kernel": About("name of the kernel"),
        "pes": About("on how many PEs it ran"),
        "components": About("ids of their pe_cpu, with spaces between"),
        "t_issue": About("when the host asked for it", "ns"),
        "t_start": About("when the kernels began", "ns"),
        "t_end": About("when the last of them ended", "ns"),
    },
    _launch_table,
)


def _text_table(trace: Trace) -> Columns:
    texts = trace.texts
    cmd = np.array([row.cmd for row in texts], np.uint32)
    return {
        "t_start": np.array([row.t for row in texts], np.float64),
        "cmd": _calls(cmd),
        "level": np.array([row.level for row in texts], object),
        "message": np.array([row.message for row in texts], object),
    }


_TEXTS = Table(
    "each text that was printed, asserted or warned of",
    {
        "t_start": About("when", "ns"),
        "cmd": About("call that it came from; null: none"),
        "level": About("print, assert, warning or error"),
        "message": About("the text"),
    },
    _text_table,
)


# -- the machine -------------------------------------------------------------------


def _node_table(trace: Trace) -> Columns:
    nodes = trace.nodes
    every = np.arange(len(trace.node_ids))
    return {
        "node": every,
        "component": np.array(trace.node_ids, object),
        **_places(trace, every),
        "engine": _texts(nodes.engine, every),
        "type": _texts(nodes.type, every),
        "x_mm": nodes.x_mm[:],
        "y_mm": nodes.y_mm[:],
        "overhead_ns": nodes.overhead_ns[:],
    }


_NODES = Table(
    "each component of the machine",
    {
        "node": About("its number"),
        "component": About("its id"),
        **_PLACE,
        "engine": About("its name within its PE, cube or SIP"),
        "type": About("type of component"),
        "x_mm": About("place on the machine, eastwards", "mm"),
        "y_mm": About("place on the machine, southwards", "mm"),
        "overhead_ns": About("paid by each header passing", "ns"),
    },
    _node_table,
)


def _edge_table(trace: Trace) -> Columns:
    edges = trace.edges
    bandwidth = edges.bandwidth_gbs[:]
    return {
        "edge": np.arange(len(bandwidth)),
        "src": _texts(trace.node_ids, edges.src),
        "dst": _texts(trace.node_ids, edges.dst),
        "kind": _texts(edges.kind, np.arange(len(bandwidth))),
        "distance_mm": edges.distance_mm[:],
        "bandwidth_gbs": nullable(bandwidth, ~np.isfinite(bandwidth)),
    }


_EDGES = Table(
    "each link of the machine, in one direction",
    {
        "edge": About("its number"),
        "src": About("id of the node that it leaves"),
        "dst": About("id of the node that it enters"),
        "kind": About("kind of link"),
        "distance_mm": About("length", "mm"),
        "bandwidth_gbs": About(
            "bandwidth, which is bytes a ns; null: no limit", "GB/s"
        ),
    },
    _edge_table,
)


# -- the trace ---------------------------------------------------------------------

_WIDEST = 256
"""A text of numpy has so many characters at most, and takes 4 bytes for each."""

_NOT_METADATA = ("crc", "pad", "ccl", "time_unit")


def metadata(trace: Trace) -> dict[str, str]:
    """What the trace is of: names and values as texts, those of maps as JSON.

    What there is not is left out. ``time_unit`` is that of all tables, and ``end_ns``
    when the run ended.
    """
    values: dict[str, Any] = {"time_unit": "ns"}
    for key, value in trace.header.items():
        if key not in _NOT_METADATA:
            values[key] = value
    values["end_ns"] = trace.end_ns
    values["complete"] = trace.complete
    values["cut"] = trace.cut
    if trace.end is not None:
        values["error"] = trace.end.get("error")
    texts: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, str):
            texts[str(key)] = value
        elif value is not None:
            texts[str(key)] = json.dumps(value, default=str)
    return texts


def _metadata_table(trace: Trace) -> Columns:
    found = metadata(trace)
    return {
        "key": np.array(list(found), object),
        "value": np.array(list(found.values()), object),
    }


_METADATA = Table(
    "each thing that is known of the trace as a whole",
    {
        "key": About("its name: bench, arguments, seed, end_ns, time_unit …"),
        "value": About("its value as a text; what is no text is JSON"),
    },
    _metadata_table,
)


TABLES: dict[str, Table] = {
    "ops": _OPS,
    "accesses": _ACCESSES,
    "hops": _HOPS,
    "waits": _WAITS,
    "commands": _COMMANDS,
    "launches": _LAUNCHES,
    "texts": _TEXTS,
    "tensors": _TENSORS,
    "nodes": _NODES,
    "edges": _EDGES,
    "metadata": _METADATA,
}
"""All tables, by name."""


def table(trace: Trace, name: str) -> Columns:
    """The table ``name`` of a trace: equally long arrays by the names of its columns.

    What may be null, and every text, is a masked array. pandas, Polars, pyarrow and
    DuckDB take a dict of these, know the type of each column even if it is empty, and
    find the nulls. (numpy has no integer that is none; and of an array of objects
    Polars and pyarrow guess the type from what it holds.) pandas, which has no null in
    its integers either, makes floats of them, exact up to 2^53, and integers again by
    ``DataFrame.convert_dtypes``.

    A column with a text of more than 256 characters is an array of objects, as each
    text of numpy takes the room of the longest. UsageError if there is no such table.
    """
    row = TABLES.get(name)
    if row is None:
        raise UsageError(f"no table {name!r}; {instead_of(name, TABLES)}")
    made = row.make(trace)
    for heading, column in made.items():
        if column.dtype == object:
            made[heading] = _fixed_width(column)
    return made


def _fixed_width(texts: Array) -> Array:
    """Texts and None as a masked array of numpy's texts; as they are if one is long."""
    values = texts.tolist()
    known = [text or "" for text in values]
    longest = max(map(len, set(known)), default=0)
    if longest > _WIDEST:
        return texts
    is_null = [text is None for text in values]
    fixed = np.array(known, f"U{max(longest, 1)}")
    masked: Array = np.ma.MaskedArray(fixed, np.array(is_null, np.bool_))
    return masked


def rows_of(table: Columns, first: int, end: int) -> Iterator[tuple[Any, ...]]:
    """The rows from ``first`` to before ``end``, as Python's own values; null: None."""
    chunk = [column[first:end].tolist() for column in table.values()]
    return zip(*chunk, strict=True)


def length_of(table: Columns) -> int:
    """How many rows it has."""
    return len(next(iter(table.values())))


def write_tables(
    trace: Trace,
    folder: Path,
    suffix: str,
    write: Callable[[str, Columns, Path], None],
    progress: Progress,
) -> dict[str, int]:
    """Make ``folder``, with each table in a file by ``write``; how many rows it has."""
    folder.mkdir()
    counts: dict[str, int] = {}
    for name, row in TABLES.items():
        made = row.make(trace)
        write(name, made, folder / f"{name}.{suffix}")
        counts[name] = length_of(made)
        progress(len(counts) / len(TABLES))
    return counts


# -- the page ----------------------------------------------------------------------


def tables_as_markdown() -> Iterator[str]:
    """For each table its name, what it has rows for, and its columns, in Markdown."""
    for name, row in TABLES.items():
        lines = [f"### `{name}`", "", f"A row for {row.about}.", ""]
        lines += ["| column | unit | meaning |", "| --- | --- | --- |"]
        for heading, (meaning, unit) in row.columns.items():
            lines.append(f"| `{heading}` | {unit} | {meaning} |")
        yield "\n".join(lines) + "\n"

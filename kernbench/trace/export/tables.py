"""A trace as flat tables: what csv and parquet hold. Times are in ns.

Ops are named by their canonical position, the number that users meet everywhere; -1
where there is none. A table is its columns by name; texts are columns of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array, Ints
from kernbench.common.messages import WAIT_REASONS
from kernbench.common.progress import Progress
from kernbench.sim_engine.accesses import access_columns
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace.columns import LOGS
from kernbench.trace.groups import Groups
from kernbench.trace.hops import hop_columns
from kernbench.trace.mapped import Column
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns


def _texts(table: Sequence[str], numbers: Column) -> Array:
    """The texts that ``numbers`` stand for; "" for -1."""
    used, which = np.unique(np.asarray(numbers), return_inverse=True)
    texts = [table[number] if number >= 0 else "" for number in used.tolist()]
    return np.array(texts, object)[which]


def _positions(trace: Trace, rows: npt.NDArray[np.integer[Any]]) -> Array:
    """The op of each row of ops; -1 for -1."""
    positions: Array = np.append(trace.position, -1)[rows]
    return positions


def op_table(trace: Trace) -> Columns:
    """A row for each op, with the line of the kernel that caused it.

    The rows are in canonical order, so the number of a row is that of its op.
    """
    order = trace.order
    columns = trace.op_columns
    nodes = trace.nodes
    node = columns.component[order]
    cmd = columns.cmd[order]
    return {
        "op": np.arange(len(order)),
        "t_start": columns.t_start[order],
        "t_end": columns.t_end[order],
        "name": _texts(trace.strings, columns.name[order]),
        "kind": _texts(list(KIND_RANK), columns.kind[order]),
        "component": _texts(trace.node_ids, node),
        "sip": nodes.sip[node],
        "cube": nodes.cube[node],
        "pe": nodes.pe[node],
        "engine": _texts(nodes.engine, node),
        "slot": columns.slot[order],
        "nbytes": columns.nbytes[order],
        "cmd": cmd,
        **_call_columns(trace, cmd),
    }


def _call_columns(trace: Trace, cmd: Array) -> Columns:
    """Of each call in ``cmd`` its launch, name and line; -1 or "" of an unknown one."""
    log = trace.commands
    row = Groups(log.cmd).first(cmd)

    def numbers(column: Column) -> Ints:
        known = column[:].astype(np.int64)
        return np.append(known, -1)[row]

    return {
        "launch": numbers(log.launch),
        "call": _texts(trace.strings, numbers(log.call)),
        "file": _texts(trace.strings, numbers(log.file)),
        "line": numbers(log.line),
        "function": _texts(trace.strings, numbers(log.function)),
    }


def _access_table(trace: Trace) -> Columns:
    """A row for each region that an op reads or writes, in so many rows of bytes.

    "planes" are the further axes of those rows, the outermost first, as "3x4096 2x512":
    how many, and how many bytes apart. It is empty for most.
    """
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


def _hop_table(trace: Trace) -> Columns:
    """A row for each hop of a transaction; its op is -1 if it belongs to none.

    The first burst enters the link at "start", the last one at "last".
    """
    hops = hop_columns(trace)
    transfers = _log_table(trace, "transfers", trace.transfers)
    return {
        "transfer": hops.transfer,
        "hop": hops.hop,
        "src": _texts(trace.node_ids, hops.src),
        "dst": _texts(trace.node_ids, hops.dst),
        "kind": _texts(trace.edges.kind, hops.edge),
        "start": hops.start,
        "last": hops.last,
        "op": transfers["op"][hops.transfer],
        "cmd": transfers["cmd"][hops.transfer],
        "nbytes": transfers["nbytes"][hops.transfer],
        "bursts": transfers["bursts"][hops.transfer],
    }


def _log_table(trace: Trace, tag: str, log: Any) -> Columns:
    """The columns of ``log``, which is that of ``tag``, but for lists and paths.

    Texts stand in place of numbers, and ops in place of rows; the column of the op that
    a row belongs to is called "op".
    """
    texts: dict[str, Sequence[str]] = {
        "node": trace.node_ids,
        "reason": WAIT_REASONS,
        "string": trace.strings,
        "text": trace.strings,
    }
    table: Columns = {}
    for name, column in LOGS[tag].items():
        values = getattr(log, name)
        if column.joins == "ops":
            heading = "op" if name == "row" else name
            table[heading] = _positions(trace, values[:])
        elif column.table in texts:
            table[name] = _texts(texts[column.table], values)
        elif not column.many and not column.table:
            table[name] = values[:]
    return table


def _row_table(tag: str, rows: Sequence[tuple[Any, ...]]) -> Columns:
    """The columns of rows that are as recorded; lists become words."""
    cells = [
        [" ".join(cell) if isinstance(cell, tuple) else cell for cell in row]
        for row in rows
    ]
    table: Columns = {}
    for number, (name, column) in enumerate(LOGS[tag].items()):
        dtype: Any = object if column.table else column.widest
        table[name] = np.array([row[number] for row in cells], dtype)
    return table


def _wait_table(trace: Trace) -> Columns:
    """A row for each interval in which an op waited."""
    return _log_table(trace, "waits", trace.waits)


def _command_table(trace: Trace) -> Columns:
    """A row for each tl call, and each call of the host."""
    return _log_table(trace, "commands", trace.commands)


def _launch_table(trace: Trace) -> Columns:
    """A row for each launch."""
    return _row_table("launches", trace.launches)


def _text_table(trace: Trace) -> Columns:
    """A row for each text that was printed, asserted or warned of."""
    return _row_table("text", trace.texts)


TABLES: dict[str, Callable[[Trace], Columns]] = {
    "ops": op_table,
    "accesses": _access_table,
    "hops": _hop_table,
    "waits": _wait_table,
    "commands": _command_table,
    "launches": _launch_table,
    "texts": _text_table,
}
"""What makes each table, by its name."""


def write_tables(
    trace: Trace,
    folder: Path,
    suffix: str,
    write: Callable[[Columns, Path], None],
    progress: Progress,
) -> dict[str, int]:
    """Make ``folder``, with each table in a file by ``write``; how many rows it has."""
    folder.mkdir()
    counts: dict[str, int] = {}
    for name, make in TABLES.items():
        table = make(trace)
        write(table, folder / f"{name}.{suffix}")
        counts[name] = len(next(iter(table.values())))
        progress(len(counts) / len(TABLES))
    return counts

"""A trace as flat tables: what csv and parquet hold. Times are ns, ops canonical positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.messages import WAIT_REASONS
from kernbench.sim_engine.accesses import access_columns
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace.groups import Groups
from kernbench.trace.hops import hop_columns
from kernbench.trace.reader import Trace
from kernbench.trace.schema import LOGS, Columns


def _spelt(table: Sequence[str], numbers: Any) -> Array:
    """The texts that ``numbers`` stand for; "" for -1."""
    used, which = np.unique(numbers, return_inverse=True)
    return np.array([table[i] if i >= 0 else "" for i in used.tolist()], object)[which]


def _positions(trace: Trace, rows: Array) -> Array:
    """The op of each row; -1 for -1."""
    return np.append(trace.position, -1)[rows]


def op_table(trace: Trace) -> Columns:
    """A row an op with its kernel line, in canonical order."""
    order, columns, nodes, calls = (
        trace.order,
        trace.op_columns,
        trace.nodes,
        trace.commands,
    )
    node, cmd, found = columns.component[order], columns.cmd[order], dict[str, Array]()
    row = Groups(calls.cmd).first(cmd)
    for name in ("launch", "call", "file", "line", "function"):
        found[name] = np.append(getattr(calls, name).astype(np.int64), -1)[row]
        if LOGS["commands"][name].limit:
            found[name] = _spelt(trace.strings, found[name])
    return {
        "op": np.arange(len(order)),
        "t_start": columns.t_start[order],
        "t_end": columns.t_end[order],
        "name": _spelt(trace.strings, columns.name[order]),
        "kind": _spelt(list(KIND_RANK), columns.kind[order]),
        "component": _spelt(trace.node_ids, node),
        **{level: getattr(nodes, level)[node] for level in ("sip", "cube", "pe")},
        "engine": _spelt(nodes.engine, node),
        **{"slot": columns.slot[order], "nbytes": columns.nbytes[order], "cmd": cmd},
        **found,
    }


def _access_table(trace: Trace) -> Columns:
    """A row a contiguous range of bytes that an op reads or writes."""
    touched = access_columns(trace)
    return {
        "op": _positions(trace, touched.row),
        "mode": _spelt(("read", "write"), touched.mode),
        "space": _spelt(touched.spaces, touched.space),
        **{"addr": touched.addr, "nbytes": touched.nbytes},
    }


def _hop_table(trace: Trace) -> Columns:
    """A row a hop of a transaction; ``op`` -1: it belongs to none."""
    hops, table = hop_columns(trace), _log_table("transfers", trace)
    ends = {end: _spelt(trace.node_ids, getattr(hops, end)) for end in ("src", "dst")}
    where = {
        "kind": _spelt(trace.edges.kind, hops.edge),
        "start": hops.start,
        "last": hops.last,
    }
    of = {
        name: table[name][hops.transfer] for name in ("op", "cmd", "nbytes", "bursts")
    }
    return {"transfer": hops.transfer, "hop": hops.hop, **ends, **where, **of}


def _log_table(tag: str, trace: Trace) -> Columns:
    """The columns of a log but for its lists: texts for numbers, ops for rows."""
    texts = {"node": trace.node_ids, "reason": WAIT_REASONS}
    table: Columns = {}
    for name, column in LOGS[tag].items():
        values = getattr(getattr(trace, tag), name)
        if name in ("row", "holder"):
            table["op" if name == "row" else name] = _positions(trace, values)
        elif column.limit not in ("", "path"):
            table[name] = _spelt(texts.get(column.limit, trace.strings), values)
        elif not column.many and not column.limit:
            table[name] = values[:]
    return table


def _row_table(tag: str, trace: Trace) -> Columns:
    """As ``_log_table`` of a log that the trace holds as rows; lists as words."""
    told = trace.launches if tag == "launches" else trace.texts
    rows = [[" ".join(x) if isinstance(x, tuple) else x for x in row] for row in told]
    return {
        name: np.array(
            [row[i] for row in rows], object if column.limit else column.load
        )
        for i, (name, column) in enumerate(LOGS[tag].items())
    }


# each by its name; texts are object columns
TABLES: dict[str, Callable[[Trace], Columns]] = {
    "ops": op_table,
    "accesses": _access_table,
    "hops": _hop_table,
    "waits": partial(_log_table, "waits"),
    "commands": partial(_log_table, "commands"),
    "launches": partial(_row_table, "launches"),
    "texts": partial(_row_table, "text"),
}

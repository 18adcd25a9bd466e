"""A part of a trace as a trace of its own: what ran on some components within some time.

What memory held before is not in it, so nobody can execute it: it has no data and no references.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.accesses import access_columns
from kernbench.sim_engine.event_log import Site
from kernbench.trace.hops import machine_rows
from kernbench.trace.reader import Trace
from kernbench.trace.writer import TraceWriter


@dataclass(frozen=True, slots=True)
class Cut:
    """How many ops and commands of how many ops went to ``path``, and the bytes of that file."""

    path: str
    ops: int
    of: int
    commands: int
    bytes: int

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        what = f"{self.ops:,} of {self.of:,} ops, {self.commands:,} calls, {self.bytes:,} bytes"
        return [f"wrote {self.path}: {what}"]


def cut(
    path: str | Path, out: str | Path, t0: float, t1: float, components: str = "*"
) -> Cut:
    """Write the ops that overlap [t0, t1) ns on components that match a glob to ``out``.

    With them go their waits, transfers and calls, and the allocations that they touch; those that
    they waited for are left out of their dependencies if they are not there. UsageError if nothing
    matches, or if there is an ``out`` already.
    """
    if not t0 < t1:
        raise UsageError(
            f"cut from {t0:g} to {t1:g} ns: the end must lie after the start"
        )
    trace, out = Trace.open(path), Path(out)
    log = trace.op_columns
    nodes = np.array(
        [fnmatchcase(node, components) for node in trace.node_ids], np.bool_
    )
    meets = (log.t_start < t1) & ((log.t_end > t0) | (log.t_start >= t0))
    kept = np.flatnonzero(meets & nodes[log.component])
    if not len(kept):
        raise UsageError(
            f"no op on {components!r} runs from {t0:g} to {t1:g} ns; the trace ends at "
            f"{trace.end_ns:g} ns, and `kernbench trace ops` lists what it has"
        )
    for taken in (out, out.with_name(out.name + ".partial")):
        if os.path.lexists(taken):
            raise UsageError(
                f"{taken} is there already; remove it, or write to another file"
            )
    writer = TraceWriter(out)
    try:
        calls = _write(trace, writer, kept, nodes, (t0, t1, components))
        broken = {
            "error": "the recording that this was cut from is damaged, or breaks off"
        }
        end = broken if trace.damaged or trace.end is None else trace.end
        writer.end(trace.end_ns, end.get("error"))
    except BaseException:
        writer.abandon()
        raise
    if writer.error is not None:
        out.unlink(missing_ok=True)
        raise KernbenchError(writer.error)
    return Cut(str(out), len(kept), len(log.cmd), calls, out.stat().st_size)


def _write(
    trace: Trace,
    writer: TraceWriter,
    kept: Ints,
    nodes: Array,
    window: tuple[float, float, str],
) -> int:
    """Everything but ``end``, of the ops in the rows ``kept``; the number of calls among it."""
    t0, t1, glob = window
    what = {"from": t0, "to": t1, "components": glob, "of": trace.header.get("cut")}
    header = {key: value for key, value in trace.header.items() if key != "version"}
    writer.begin(
        header | {"data": False, "cut": what}, _graph(trace) if trace.spec else None
    )
    for file, source in trace.sources.items():
        writer.source(file, source.kernel, source.text)
    for shard in trace.shards(_touched(trace, kept)):
        writer.alloc(shard)
    c = trace.commands
    mine = nodes[c.pe] & (c.t_issue < t1) & ((c.t_resume > t0) | (c.t_issue >= t0))
    calls = np.flatnonzero(mine | np.isin(c.cmd, trace.op_columns.cmd[kept]))
    for cmd, pe, number, call, *site, awaits, issue, resume in trace.told(
        "commands", c, calls
    ):
        writer.command(cmd, pe, number, call, Site(*site), awaits, issue, resume)
    _write_ops(trace, writer, kept)
    lone = trace.transfers
    for row in np.flatnonzero(
        (lone.row < 0) & (lone.t0 >= t0) & (lone.t0 < t1)
    ).tolist():
        path = trace.paths[int(lone.path[row])]
        if len(path) > 1 and nodes[list(path)].any():
            ((cmd, _, _, *rest),) = trace.told("transfers", lone, [row])
            writer.transfer(cmd, (tuple(trace.node_ids[n] for n in path), *rest))
    for launch in trace.launches:
        if (launch.t_start < t1 and launch.t_end > t0) or launch.launch in c.launch[
            calls
        ]:
            writer.launch(*launch)
    for text in trace.texts:
        if t0 <= text.t < t1:
            writer.text(*text)
    return len(calls)


def _write_ops(trace: Trace, writer: TraceWriter, kept: Ints) -> None:
    log = trace.op_columns
    number = np.full(
        len(log.cmd) + 1, -1
    )  # of each row, in the cut; the last is that of row -1
    number[kept] = np.arange(len(kept))
    for new, row in enumerate(kept.tolist()):
        record = trace.ops[int(trace.position[row])]
        after = number[trace.deps(row)]
        record.dependency_ids = after[after >= 0].tolist()
        waits = [(*wait[:4], int(number[wait[4]])) for wait in trace.waits_of(row)]
        cmd, slot = int(log.cmd[row]), int(log.slot[row])
        writer.op(new, record, cmd, slot, waits, trace.transfers_of(row))


def _touched(trace: Trace, kept: Ints) -> Ints:
    """The numbers of the allocations that the ops in the rows ``kept`` touch."""
    log, touched = trace.alloc_columns, access_columns(trace)
    mine = touched.take(np.flatnonzero(np.isin(touched.row, kept)))
    low, high = log.addr.astype(np.int64), (log.addr + log.nbytes).astype(np.int64)
    begun = np.searchsorted(np.sort(mine.addr), high)
    ended = np.searchsorted(np.sort(mine.addr + mine.nbytes), low, side="right")
    return np.flatnonzero(
        (begun > ended) & (log.cmd <= trace.op_columns.cmd[kept].max())
    )


def _graph(trace: Trace) -> Any:
    """The machine, as far as a writer asks for it."""
    names = trace.node_ids
    nodes = dict(
        zip(names, machine_rows(trace, "nodes", np.arange(len(names))), strict=True)
    )
    edges = machine_rows(trace, "edges", np.arange(len(trace.edges.kind)))
    for edge in edges:
        edge.src, edge.dst = names[edge.src], names[edge.dst]
    return SimpleNamespace(nodes=nodes, edges=edges, spec=trace.spec, hash="")

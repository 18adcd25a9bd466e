"""A part of a trace as a trace of its own: what ran on some components for some time.

What memory held before is not in it, so nobody can execute it: it has no data and no
references.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.errors import RefusedError, UsageError
from kernbench.sim_engine.accesses import access_columns
from kernbench.sim_engine.event_log import Site
from kernbench.topology.graph import Edge, Node
from kernbench.trace.hops import hop_columns, speeds_of
from kernbench.trace.machine import edge_rows, node_rows
from kernbench.trace.reader import Trace
from kernbench.trace.tail import is_of_a_run, tail_of
from kernbench.trace.window import Window
from kernbench.trace.writer import TraceWriter


@dataclass(frozen=True, slots=True)
class Cut:
    """What was written to ``path``: so many ops ``of`` so many, calls, and bytes."""

    path: str
    ops: int
    of: int
    commands: int
    bytes: int

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        ops = f"{self.ops:,} of {self.of:,} ops"
        calls = f"{self.commands:,} calls"
        return [f"wrote {self.path}: {ops}, {calls}, {self.bytes:,} bytes"]


def cut(
    path: str | Path, out: str | Path, t0: float, t1: float, components: str = "*"
) -> Cut:
    """Write a part of the trace at ``path`` to ``out``.

    It has the ops that run in [t0, t1) ns, or wait there, on components that match a
    glob; what waits may run behind the window only. With them go their waits,
    transfers and calls, and the allocations that they touch. What they waited for is
    left out of their dependencies if it is not there. Of the nodes in between it has
    what these ops did there, and nothing of others. A regular file at ``out`` is
    replaced. UsageError if nothing matches, or if ``out`` is the trace, its tail, or of
    a name that runs give to unfinished files.
    """
    if not t0 < t1:
        raise UsageError(
            f"cut from {t0:g} to {t1:g} ns: the end must lie after the start"
        )
    window = Window(t0, t1, components)
    trace = Trace.open(path)
    out = Path(out)
    matches = [fnmatchcase(node, components) for node in trace.node_ids]
    nodes = np.array(matches, np.bool_)
    log = trace.op_columns
    runs = window.overlaps(log.t_start[:], log.t_end[:]) & nodes[log.component]
    kept = np.flatnonzero(runs | _waits(trace, nodes, window))
    if not len(kept):
        raise UsageError(
            f"no op on {components!r} runs from {t0:g} to {t1:g} ns; the trace ends at "
            f"{trace.end_ns:g} ns, and `kernbench trace ops` lists what it has"
        )
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is no regular file; name another for the part")
    if out.exists() and out.samefile(path):
        raise UsageError(
            f"{out} is the trace that is cut; name another file for the part"
        )
    if out.resolve() == tail_of(trace.path.resolve()):
        raise UsageError(
            f"{out} is the tail of the trace, which has its last rows; name another "
            "file for the part"
        )
    if is_of_a_run(out):
        raise UsageError(
            f"{out}: a run gives such a name to what it has not ended; name another "
            "file for the part"
        )
    try:
        with TemporaryDirectory(".partial", "kernbench-", out.parent) as folder:
            made = Path(folder) / "made"
            calls = _write_file(trace, made, kept, nodes, window)
            size = made.stat().st_size
            os.replace(made, out)
    except OSError as error:
        reason = error.strerror or error
        raise RefusedError(
            f"cannot write the trace {out}: {reason}; name another place"
        ) from None
    return Cut(str(out), len(kept), len(log.cmd), calls, size)


def _waits(trace: Trace, nodes: Bools, window: Window) -> Bools:
    """Which ops wait at a node kept in the window; some begin only behind it."""
    log = trace.waits
    mine = window.overlaps(log.t0[:], log.t1[:]) & nodes[log.node]
    found = np.zeros(len(trace.op_columns.cmd), np.bool_)
    rows = log.row[mine]
    found[rows[rows >= 0]] = True
    return found


def _write_file(
    trace: Trace, made: Path, kept: Ints, nodes: Bools, window: Window
) -> int:
    """Write the cut to the new file ``made``; how many calls are in it."""
    writer = TraceWriter(made)
    try:
        calls = _write(trace, writer, kept, nodes, window)
        writer.end(trace.end_ns, _end_error(trace))
    except BaseException:
        writer.abandon()
        raise
    if writer.error is not None:
        raise RefusedError(writer.error)
    return calls


def _end_error(trace: Trace) -> str | None:
    """What ended the run, or why not all of it was recorded; None: all is well."""
    if trace.damaged or trace.end is None:
        return "the recording that this was cut from is damaged, or breaks off"
    error: str | None = trace.end.get("error")
    return error


def _write(
    trace: Trace, writer: TraceWriter, kept: Ints, nodes: Bools, window: Window
) -> int:
    """Write everything but ``end``; how many calls are among it.

    ``kept`` are the rows of the ops to be written, ``nodes`` says which nodes match.
    """
    _write_start(trace, writer, window)
    for shard in trace.shards(_touched(trace, kept)):
        writer.alloc(shard)
    calls = _kept_calls(trace, kept, nodes, window)
    for cells in trace.rows_as_recorded("commands", calls):
        cmd, pe, launch, call, file, line, function, *rest = cells
        caller = trace.caller(cmd)
        if caller is not None:
            writer.caller(cmd, caller)
        writer.command(cmd, pe, launch, call, Site(file, line, function), *rest)
    _write_ops(trace, writer, kept)
    _write_transfers_of_no_op(trace, writer, nodes, window)
    launches = set(trace.commands.launch[calls].tolist())
    for launch in trace.launches:
        runs = launch.t_start < window.t1 and launch.t_end > window.t0
        if runs or launch.launch in launches:
            writer.launch(*launch)
    for text in trace.texts:
        if window.t0 <= text.t < window.t1:
            writer.text(*text)
    return len(calls)


def _write_start(trace: Trace, writer: TraceWriter, window: Window) -> None:
    """Write the first frame, the machine and the sources."""
    header = {key: value for key, value in trace.header.items() if key != "version"}
    header["data"] = False
    header["cut"] = {
        "from": window.t0,
        "to": window.t1,
        "components": window.glob,
        "of": trace.header.get("cut"),
    }
    machine = None
    if trace.spec:
        machine = _machine(trace)
    writer.begin(header, machine)
    for file, source in trace.sources.items():
        writer.source(file, source.kernel, source.text)


def _kept_calls(trace: Trace, kept: Ints, nodes: Bools, window: Window) -> Ints:
    """The calls that matching nodes made in the window, or that ops of the cut have."""
    log = trace.commands
    made = nodes[log.pe] & window.overlaps(log.t_issue[:], log.t_resume[:])
    have_ops = np.isin(log.cmd, trace.op_columns.cmd[kept])
    return np.flatnonzero(made | have_ops)


def _write_ops(trace: Trace, writer: TraceWriter, kept: Ints) -> None:
    """Write ops with their waits and transfers.

    They get new rows. What they waited for and does not come along is left out of their
    dependencies, and is -1 as the holder of a wait.
    """
    log = trace.op_columns
    # By row the new one, -1 for none; the last is that of row -1.
    new_rows = np.full(len(log.cmd) + 1, -1)
    new_rows[kept] = np.arange(len(kept))
    for new_row, row in enumerate(kept.tolist()):
        record = trace.ops[int(trace.position[row])]
        dependencies = new_rows[trace.deps(row)]
        record.dependency_ids = dependencies[dependencies >= 0].tolist()
        waits = [
            (node, reason, t0, t1, int(new_rows[holder]))
            for node, reason, t0, t1, holder in trace.waits_of(row)
        ]
        cmd = int(log.cmd[row])
        slot = int(log.slot[row])
        writer.op(new_row, record, cmd, slot, waits, trace.transfers_of(row))


def _write_transfers_of_no_op(
    trace: Trace, writer: TraceWriter, nodes: Bools, window: Window
) -> None:
    """Write the transactions that no op has and that are under way in the window, if
    they pass a node kept.
    """
    log = trace.transfers
    mine = (log.row < 0) & window.overlaps(log.t0[:], _ends_of_transfers(trace))
    for cells in trace.rows_as_recorded("transfers", np.flatnonzero(mine)):
        cmd, _, path, *rest = cells
        if len(path) > 1 and nodes[list(path)].any():
            ids = tuple(trace.node_ids[node] for node in path)
            writer.transfer(cmd, (ids, *rest))


def _ends_of_transfers(trace: Trace) -> Floats:
    """When the last byte of each transaction has entered its last link, in ns.

    That of a transaction without hops is when it was sent. The last of several bursts
    is no longer than their mean, for which it is taken.
    """
    log = trace.transfers
    hops = hop_columns(trace)
    speed = speeds_of(trace, hops.edge)
    burst_bytes = (log.nbytes[:] / np.maximum(log.bursts[:], 1))[hops.transfer]
    burst_ns = np.zeros(len(speed))
    np.divide(burst_bytes, speed, out=burst_ns, where=speed > 0)
    ends = log.t0[:].astype(np.float64)
    np.maximum.at(ends, hops.transfer, hops.last + burst_ns)
    return ends


def _touched(trace: Trace, kept: Ints) -> Ints:
    """The rows of the allocations that the ops in the rows ``kept`` touch."""
    log = trace.alloc_columns
    touched = access_columns(trace)
    mine = touched.take(np.flatnonzero(np.isin(touched.row, kept)))
    mine = mine.take(mine.distinct_places().first)
    pieces = mine.pieces(np.arange(len(mine.row)))
    low = log.addr.astype(np.int64)
    high = (log.addr + log.nbytes).astype(np.int64)
    # An allocation is touched if more accesses begin before its end than end by its
    # start.
    begun = np.searchsorted(np.sort(pieces.addr), high)
    ended = np.searchsorted(np.sort(pieces.addr + pieces.nbytes), low, side="right")
    last_call = trace.op_columns.cmd[kept].max()
    return np.flatnonzero((begun > ended) & (log.cmd <= last_call))


class _Machine(NamedTuple):
    """The machine of a trace, as far as a writer asks for it.

    ``spec`` is a map, as the trace has it. There is no ``hash`` of that: the header
    that is copied has the one of the topology.
    """

    nodes: Mapping[str, Node]
    edges: Sequence[Edge]
    spec: Any
    hash: str


def _machine(trace: Trace) -> _Machine:
    """The nodes and edges of a trace as the topology's own."""
    ids = trace.node_ids
    nodes: dict[str, Node] = {}
    for row in node_rows(trace.nodes, np.arange(len(ids))):
        nodes[ids[row.id]] = Node(
            id=ids[row.id],
            type=row.type,
            sip=row.sip,
            cube=row.cube,
            pe=row.pe,
            engine=row.engine,
            x_mm=row.x_mm,
            y_mm=row.y_mm,
            overhead_ns=row.overhead_ns,
            impl="",
        )
    edges = [
        Edge(
            src=ids[row.src],
            dst=ids[row.dst],
            kind=row.kind,
            distance_mm=row.distance_mm,
            routing_weight_mm=row.routing_weight_mm,
            bandwidth_gbs=row.bandwidth_gbs,
        )
        for row in edge_rows(trace.edges, np.arange(len(trace.edges.kind)))
    ]
    return _Machine(nodes, edges, trace.spec, "")

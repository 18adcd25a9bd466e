"""The routes of what belongs to no op: launches on their way to PEs, and credits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from kernbench.common.arrays import Bools, Ints
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.errors import UsageError
from kernbench.replay.text import count_text
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.routes import Leg, leg_lines, leg_of
from kernbench.trace import Trace
from kernbench.trace.hops import are_of_types, path_ends

LAUNCHED = ("io_cpu", "m_cpu", "pe_cpu")
"""Types of nodes that a launch goes to."""
_QUEUES = ("pe_ipcq",)
"""Types of nodes that a credit goes to."""
_AT_ONCE = 8  # transactions that are followed between two reports of progress
_SHOWN = 20  # transactions in the text


@dataclass(frozen=True, slots=True)
class MessageRoutes:
    """The transactions of one launch, or credits, in the order of their sending.

    A launch is handed on: from the end point of a SIP to its io_cpu, from there to the
    m_cpu of each cube, and on to the pe_cpu of each PE. Each of these is a transaction.
    """

    what: str
    legs: tuple[Leg, ...]

    def lines(self, width: int) -> list[str]:
        """As text: a table of hops for each transaction, of the first ones."""
        lines = [f"{self.what}, {count_text(len(self.legs), 'transaction')}"]
        for leg in self.legs[:_SHOWN]:
            lines += leg_lines(leg)
        if len(self.legs) > _SHOWN:
            lines.append(f"({len(self.legs) - _SHOWN:,} more)")
        return lines


def launch_routes(
    trace: Trace, op: int, launch: int | None, progress: Progress = no_progress
) -> MessageRoutes:
    """The way of a launch, by its number, or of the one that an op belongs to.

    Raises UsageError if there is no such launch, or none that was recorded.
    """
    map_logs(trace, progress, "transfers", "commands", "nodes", "edges")
    launches = computed_beside(lambda: _launches(trace), progress, 0.0)
    valid = f"valid for N of route launch N: {_valid(launches)}"
    if launch is None:
        launch = _launch_of(trace, op)
        if launch < 0:
            raise UsageError(f"op {op:,} belongs to no launch; {valid}")
    if launch not in launches:
        raise UsageError(f"launch {launch}: no kernel of it was recorded; {valid}")
    ends = computed_beside(lambda: path_ends(trace), progress, 0.1)
    sent = computed_beside(lambda: _sent_to(trace, ends, LAUNCHED), progress, 0.2)
    rows = computed_beside(lambda: _of_launch(trace, ends, launch, sent), progress, 0.3)
    return MessageRoutes(
        f"launch {launch}", _legs(trace, rows, stage(progress, 0.5, 1.0))
    )


def credit_routes(
    trace: Trace, op: int, credit: int | None, progress: Progress = no_progress
) -> MessageRoutes:
    """The way of a credit, or of all those that the call of an op sent.

    Credits are numbered from 0, in the order of their sending. Raises UsageError if
    there is no such credit.
    """
    map_logs(trace, progress, "transfers", "nodes", "edges")
    ends = computed_beside(lambda: path_ends(trace), progress, 0.0)
    sent = computed_beside(lambda: _sent_to(trace, ends, _QUEUES), progress, 0.1)
    valid = f"valid for N of route credit N: {_valid(range(len(sent)))}"
    if credit is None:
        cmd = trace.op_columns.cmd[int(trace.order[op])]
        rows = sent[trace.transfers.cmd[sent] == cmd]
        what = f"credits of op {op:,}"
        if not len(rows):
            raise UsageError(f"the call of op {op:,} sent no credit; {valid}")
    else:
        rows = sent[credit : credit + 1]
        what = f"credit {credit}"
        if not 0 <= credit < len(sent):
            raise UsageError(f"credit {credit}: there is none; {valid}")
    return MessageRoutes(what, _legs(trace, rows, stage(progress, 0.5, 1.0)))


def _valid(numbers: Collection[int]) -> str:
    """The numbers that are valid, in words."""
    if not numbers:
        return "none, since none was recorded"
    return f"{min(numbers)} to {max(numbers)}"


def _launches(trace: Trace) -> set[int]:
    """The launches of which at least one call of a kernel was recorded."""
    launch = trace.commands.launch[:]
    return set(np.unique(launch[launch >= 0]).tolist())


def _launch_of(trace: Trace, op: int) -> int:
    """The launch whose kernel issued an op, -1 for none."""
    cmd = int(trace.op_columns.cmd[int(trace.order[op])])
    call = trace.command(cmd)
    if call is None:
        return -1
    return call.launch


def _sent_to(trace: Trace, ends: Ints, types: Collection[str]) -> Ints:
    """The transactions of no op that end at nodes of some types, by their sending.

    ``ends`` has the last node of each path.
    """
    log = trace.transfers
    is_wanted = are_of_types(trace, types)
    rows = np.flatnonzero(log.row[:] < 0)
    end = ends[log.path[rows]]
    rows = rows[is_wanted[end]]  # of a path that is lost, -1, it is the last: False
    by_time: Ints = rows[np.argsort(log.t0[rows], kind="stable")]
    return by_time


def _of_launch(trace: Trace, ends: Ints, launch: int, sent: Ints) -> Ints:
    """Those of some messages to CPUs that belong to a launch.

    All of a launch have the number of one call of the host. It is that of the last
    message that had been sent to a PE when the launch's kernel began there.
    """
    calls = trace.commands
    mine = np.flatnonzero(calls.launch[:] == launch)
    first = mine[np.argmin(calls.t_issue[mine])]
    log = trace.transfers
    pe = int(calls.pe[first])
    to_pe = ends[log.path[sent]] == pe
    came: Bools = to_pe & (log.t0[sent] <= calls.t_issue[first])
    if not came.any():
        return sent[:0]
    cmd = log.cmd[sent]
    same_call: Bools = cmd == cmd[np.flatnonzero(came)[-1]]
    return sent[same_call]


def _legs(trace: Trace, rows: Ints, progress: Progress) -> tuple[Leg, ...]:
    """Some transactions as hops, but for those whose path is lost."""
    found = []
    for part in parts(len(rows), progress, _AT_ONCE):
        for cells in trace.rows_as_recorded("transfers", rows[part]):
            _, _, path, t0, nbytes, bursts, starts = cells
            if path and len(starts) >= len(path) - 1:
                nodes = tuple(trace.node_ids[node] for node in path)
                found.append(leg_of(trace, (nodes, t0, nbytes, bursts, starts)))
    return tuple(found)

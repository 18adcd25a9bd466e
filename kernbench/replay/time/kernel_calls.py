"""The calls that kernels made, by PE; rows of logs by the call that they are of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.paged import paged
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.mapped import Column


class KernelCalls(NamedTuple):
    """The calls of kernels: rows of ``Trace.commands`` by PE, in the order of issue.

    ``ran`` are the pe_cpu nodes that made any, ascending.
    """

    by_pe: Groups
    ran: list[int]


def kernel_calls(trace: Trace) -> KernelCalls:
    """All calls of kernels; those of the host belong to no launch and are left out."""
    log = trace.commands
    calls = np.flatnonzero(log.launch >= 0).astype(np.uint32)
    calls = calls[np.argsort(log.t_issue[calls], kind="stable")]
    pes = log.pe[calls]
    return KernelCalls(Groups.kept(pes, calls), np.unique(pes).tolist())


def ends_of_calls(trace: Trace, by_pe: Groups) -> Floats:
    """By row of ``Trace.commands`` when the call of a kernel is over, ns: as it
    returns, or as its PE issues the next one, if that is sooner. -inf of others.

    ``by_pe`` are the calls of kernels by PE, in the order of issue.
    """
    log = trace.commands
    rows = by_pe.order
    pe = log.pe[rows]
    issued = log.t_issue[rows]
    until = log.t_resume[rows]
    next_issued = np.where(pe[1:] == pe[:-1], issued[1:], np.inf)
    until[:-1] = np.minimum(until[:-1], next_issued)
    ends = np.full(len(log.pe), -np.inf)
    ends[rows] = until
    return paged(ends)


def launched_between(trace: Trace) -> tuple[float, float]:
    """From when to when launches or calls of kernels ran, ns; of none the whole run.

    A part of a trace knows of nothing outside of its window.
    """
    log = trace.commands
    calls = np.flatnonzero(log.launch >= 0)
    launched = []
    for launch in trace.launches:
        launched += [launch.t_start, launch.t_end]
    times = np.concatenate([log.t_issue[calls], log.t_resume[calls], launched])
    begin, end = 0.0, max(trace.end_ns, 1.0)
    if len(times):
        begin, end = float(times.min()), float(times.max())
    known = trace.window
    if known is not None and known.t0 < end and known.t1 > begin:
        return max(begin, known.t0), min(end, known.t1)
    return begin, end


def rows_by_cmd(cmd: Column, wanted: Array) -> Groups:
    """The rows of a log whose ``cmd`` is one of ``wanted``, by cmd."""
    rows = np.flatnonzero(np.isin(cmd, wanted)).astype(np.uint32)
    return Groups(cmd[rows], rows)


def pe_label(trace: Trace, node: int) -> str:
    """The name of the PE that a pe_cpu node belongs to."""
    return trace.node_ids[node].removesuffix(f".{trace.nodes.engine[node]}")

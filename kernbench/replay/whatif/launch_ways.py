"""The way that each launch took to its farthest PE, which all of its kernels await."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.replay.time.message_routes import LAUNCHED
from kernbench.replay.whatif.machine import Machine, message_ns
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import are_of_types, rows_of_calls

LAUNCH_BYTES = 64
"""Of the message that a launch is (docs/machine.md, "The host and launches")."""

_NONE = -1


def launch_ways(trace: Trace, machine: Machine) -> Ints:
    """By launch the paths from the end point to the PE that gets it last.

    A row for each of ``trace.launches``, three paths in a row; -1 where it is lost.
    """
    launches = trace.launches
    found = np.full((len(launches), len(LAUNCHED)), _NONE)
    legs = _legs(trace, machine)
    if not len(legs):
        return found
    log = trace.transfers
    path = log.path[legs].astype(np.int64)
    cmd = log.cmd[legs].astype(np.int64)
    ways = machine.ways
    nodes = len(trace.node_ids) + 1
    ends = Groups(cmd * nodes + ways.last_node[path])
    before = ends.first(cmd * nodes + ways.first_node[path])
    first = np.append(before, _NONE)[before]
    slowest = machine.slowest[path]
    took = machine.way(path) + message_ns(log.nbytes[legs], slowest)
    took = np.append(took, 0.0)
    total = took[:-1] + took[before] + took[first]
    issued = trace.commands.t_issue
    call = rows_of_calls(trace, cmd)
    is_pe = are_of_types(trace, {"pe_cpu"})
    at_pe = np.flatnonzero(is_pe[ways.last_node[path]] & (call >= 0))
    farthest = at_pe[np.lexsort((-total[at_pe], cmd[at_pe]))]
    latest = Groups(cmd[farthest]).first(cmd[at_pe])
    asked = issued[call[at_pe]].tolist()
    reached = [trace.node_ids[node] for node in ways.last_node[path[at_pe]].tolist()]
    leg_of = dict(
        zip(zip(asked, reached, strict=True), farthest[latest].tolist(), strict=True)
    )
    with_none = np.append(path, _NONE)
    for place, launch in enumerate(launches):
        leg = leg_of.get((launch.t_issue, launch.pes[0]), _NONE)
        if leg >= 0:
            chain = [first[leg], before[leg], leg]
            found[place] = with_none[chain]
    return found


def _legs(trace: Trace, machine: Machine) -> Ints:
    """The transfers that hand on launches, rows of ``Trace.transfers``."""
    log = trace.transfers
    is_cpu = are_of_types(trace, LAUNCHED)
    path = log.path[:].astype(np.int64)
    some = (log.row[:] < 0) & (log.nbytes[:] == LAUNCH_BYTES)
    some &= is_cpu[machine.ways.last_node[path]]
    return np.flatnonzero(some)

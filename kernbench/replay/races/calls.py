"""The calls of kernels in program order, and when what they issued is known to end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Ints, numbered, places_in_runs
from kernbench.common.messages import NO_CMD
from kernbench.replay.races.streams import NEVER, stream_numbers
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import has_text

__all__ = ["NEVER", "Calls", "calls_of"]


class Calls(NamedTuple):
    """The calls of a trace, by their rows in ``trace.commands``.

    ``pe`` numbers the PEs that ran kernels, from 0, and is -1 for calls of the host. A
    PE on which several ranks launch has a number for each: it serves one kernel at a
    time, but whose comes first is nobody's promise. ``home`` has the lowest number of
    the same PE, for each of the ``pes`` numbers.
    ``number`` counts the calls of a PE in program order, over all launches. When call
    number ``done`` of the PE has returned, all that the call issued is known to have
    ended: the call itself if it waits, else the first that waits for it, else the end
    of the kernel; ``NEVER`` if none of these was recorded. ``launch`` is that of the
    trace. ``by_cmd`` finds rows.
    """

    pe: Ints
    number: Ints
    done: Ints
    launch: Ints
    pes: int
    home: Ints
    by_cmd: Groups


def calls_of(trace: Trace) -> Calls:
    """The calls of a trace."""
    log = trace.commands
    by_cmd = Groups(log.cmd)
    launch = log.launch[:].astype(np.int64)
    of_kernel = np.flatnonzero(launch >= 0)
    node = log.pe[of_kernel].astype(np.int64)
    stream = stream_numbers(trace, launch[of_kernel])
    keys, pe_of_kernel = numbered((node << 32) + stream)
    nodes, which = numbered(keys >> 32)
    home = np.searchsorted(keys >> 32, nodes)[which]
    pe = np.full(len(launch), -1)
    pe[of_kernel] = pe_of_kernel
    order = of_kernel[np.lexsort((log.cmd[of_kernel], pe_of_kernel))]
    number = np.full(len(launch), -1)
    number[order] = _places_in_group(pe[order])
    done = _awaited(log.awaits[:].astype(np.int64), pe, number, by_cmd)
    is_exit = has_text(trace, log.call, "exit")
    done[order] = np.minimum(done[order], _exits(order, is_exit, pe, launch, number))
    return Calls(pe, number, done, launch, len(keys), home, by_cmd)


def _places_in_group(groups: Ints) -> Ints:
    """The place of each item in its group, from 0; groups stand together."""
    is_first = np.ones(len(groups), np.bool_)
    is_first[1:] = np.diff(groups) != 0
    return places_in_runs(is_first)


def _awaited(awaits: Ints, pe: Ints, number: Ints, by_cmd: Groups) -> Ints:
    """By row the number of the first call that waits for it; ``NEVER`` of none."""
    done = np.full(len(pe), NEVER)
    waiting = np.flatnonzero((awaits != NO_CMD) & (pe >= 0))
    awaited = by_cmd.first(awaits[waiting])
    known = awaited >= 0
    waiting = waiting[known]
    awaited = awaited[known]
    is_own = (pe[awaited] == pe[waiting]) & (number[awaited] <= number[waiting])
    np.minimum.at(done, awaited[is_own], number[waiting[is_own]])
    return done


def _exits(order: Ints, is_exit: Bools, pe: Ints, launch: Ints, number: Ints) -> Ints:
    """By call, in program order, the number of the end of its kernel, or ``NEVER``."""
    ends = order[is_exit[order]]
    if not len(ends):
        return np.full(len(order), NEVER)
    behind = np.searchsorted(np.flatnonzero(is_exit[order]), np.arange(len(order)))
    end = ends[np.minimum(behind, len(ends) - 1)]
    is_own = (behind < len(ends)) & (pe[end] == pe[order])
    is_own &= launch[end] == launch[order]
    return np.where(is_own, number[end], NEVER)

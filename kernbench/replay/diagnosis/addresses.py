"""Kernel lines that touched the same bytes twice, where they mostly touch others.

The iterations of a loop load one tile after the other, and so do the PEs of a launch. A
tile that comes twice where all others come once stands for one that never came.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Bools,
    Ints,
    places_in_runs,
    repeated,
    running_count,
)
from kernbench.common.progress import Progress, computed_beside
from kernbench.replay.diagnosis.findings import Finding, command
from kernbench.replay.index import Index
from kernbench.replay.time.kernel_calls import pe_label
from kernbench.replay.time.op_classes import TILE_PREFIX
from kernbench.replay.time.spans import recorded_between
from kernbench.trace import Trace
from kernbench.trace.hops import named

_AGAIN = 1 / 3
"""The largest share of accesses that can be said to come twice by mistake."""
_FEWEST = 4
"""Accesses of a line, or PEs, among which one can be unlike the others."""
_SHOWN = 8
"""Ops that a finding has."""


class _Touched(NamedTuple):
    """What single calls of kernels touched outside of the scratch of PEs.

    ``what`` numbers the different bytes and ways to touch them, ``op`` are positions in
    the log, and ``nth`` counts the accesses of a line on a PE in a launch from 0.
    """

    op: Ints
    call: Ints
    launch: Ints
    pe: Ints
    line: Ints
    what: Ints
    nth: Ints


def repeated_addresses(
    index: Index, lines: list[str], which: Ints, progress: Progress
) -> list[Finding]:
    """The lines that touched bytes twice, on one PE or on two of a launch.

    ``lines`` and ``which`` are the ``telling_lines`` of the trace.
    """
    trace = index.trace
    if not lines:
        return []
    touching = partial(_touched_by_calls, index, which)
    found = computed_beside(touching, progress, 0.3)
    if not len(found.op):
        return []
    key = (found.launch << 32 | found.pe) * len(lines) + found.line
    other_key = (found.launch * len(lines) + found.line) << 32 | found.nth
    seen: dict[int, Finding] = {}
    for how, groups in (("on", key), ("with", other_key)):
        twice = computed_beside(partial(_twice, groups, found), progress, 0.6)
        if how == "with":
            twice = twice[np.isin(found.launch[twice], _seen_from_the_start(trace))]
        for finding, line in _findings(trace, found, twice, lines, how):
            seen.setdefault(line, finding)
    return list(seen.values())


def _seen_from_the_start(trace: Trace) -> Ints:
    """The launches that begin in what a trace has: in others nobody knows how often a
    PE had run a line before.
    """
    begin, _ = recorded_between(trace)
    launches = np.unique(trace.commands.launch[:]).astype(np.int64)
    if trace.window is None:
        return launches
    begun = [one.launch for one in trace.launches if one.t_start >= begin]
    return launches[np.isin(launches, begun)]


def _touched_by_calls(index: Index, which: Ints) -> _Touched:
    """All accesses of single calls; ``which`` is the line of each row of commands."""
    trace = index.trace
    touched = index.history.touched
    calls = trace.commands
    is_tcm = np.array([*(name == "tcm" for name in touched.spaces), False])
    is_tile = named(trace, TILE_PREFIX)
    at = np.flatnonzero(~is_tcm[touched.space])
    call = index.ops.calls(touched.row[at])
    keep = (call >= 0) & ~is_tile[trace.order[touched.row[at]]]
    keep &= calls.launch[:][call] >= 0
    at = at[keep]
    call = call[keep]
    launch = calls.launch[:][call].astype(np.int64)
    pe = calls.pe[:][call].astype(np.int64)
    line = which[call].astype(np.int64)
    columns = np.stack(
        [
            touched.space[at].astype(np.int64),
            touched.mode[at].astype(np.int64),
            touched.addr[at].astype(np.int64),
            touched.nbytes[at].astype(np.int64),
            touched.forms_of(at).astype(np.int64),
        ]
    )
    order = np.lexsort(columns)
    is_new = np.append(True, (np.diff(columns[:, order]) != 0).any(axis=0))
    what = np.empty(len(at), np.int64)
    what[order] = running_count(is_new[: len(at)]) - 1
    turn_order = np.lexsort((at, line, pe, launch))
    firsts = np.append(True, np.zeros(max(len(at) - 1, 0), np.bool_))[: len(at)]
    for column in (line, pe, launch):
        firsts[1:] |= np.diff(column[turn_order]) != 0
    nth = np.empty(len(at), np.int64)
    nth[turn_order] = places_in_runs(firsts)
    return _Touched(touched.row[at].astype(np.int64), call, launch, pe, line, what, nth)


def _twice(groups: Ints, found: _Touched) -> Ints:
    """The accesses to bytes that another of the same group has touched before.

    Only those of groups that mostly touch bytes once.
    """
    order = np.lexsort((found.op, found.what, groups))
    group = groups[order]
    same = np.append(False, np.diff(group) == 0)[: len(order)]
    again: Bools = (
        same & np.append(False, np.diff(found.what[order]) == 0)[: len(order)]
    )
    starts = np.flatnonzero(~same)
    sizes = np.diff(np.append(starts, len(order)))
    repeats = np.add.reduceat(again.astype(np.int64), starts)
    is_odd = (sizes >= _FEWEST) & (repeats > 0) & (repeats <= _AGAIN * sizes)
    return order[again & repeated(is_odd, sizes)]


def _findings(
    trace: Trace, found: _Touched, twice: Ints, lines: list[str], how: str
) -> Iterator[tuple[Finding, int]]:
    """A finding for each line of some accesses that come a second time."""
    for line in np.unique(found.line[twice]).tolist():
        mine = twice[found.line[twice] == line]
        first = int(mine[0])
        op = int(found.op[first])
        same = (found.what == found.what[first]) & (found.launch == found.launch[first])
        same &= found.line == line
        ops = np.unique(np.append(op, found.op[same]))[:_SHOWN]
        pe = pe_label(trace, int(found.pe[first]))
        if how == "on":
            title = f"{lines[line]} touched the same bytes twice on {pe}"
        else:
            title = f"{lines[line]} touched the same bytes on {pe} and on another PE"
        evidence = (f"{len(mine):,} of its accesses do so, where all others differ",)
        check = command(trace, "pes", str(int(trace.commands.cmd[found.call[first]])))
        yield (
            Finding("odd", title, tuple(ops.tolist()), (lines[line],), evidence, check),
            line,
        )

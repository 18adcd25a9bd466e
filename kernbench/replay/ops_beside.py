"""The ops of two traces: which op of one is which of the other, and what differs."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.replay.alignment import Pairs, aligned
from kernbench.replay.index import Index
from kernbench.replay.program import Program, hashes_of, made_by, program
from kernbench.trace import Trace

NOISE_NS = 1e-6
"""Differences of times that are rounding."""


class Sides(NamedTuple):
    """The two traces."""

    a: Index
    b: Index


class Programs(NamedTuple):
    """What the ops of both traces are of their programs."""

    a: Program
    b: Program


class Rows(NamedTuple):
    """Ops of one kind, as rows of either trace, in the order in which to list them.

    Both are as long, and row i of one is row i of the other; or one is empty.
    """

    a: Ints
    b: Ints


class Matched(NamedTuple):
    """The ops that are in both traces, those that are in one, and those that changed.

    ``pairs`` are rows of both. An op may be of several of the ``kinds`` at once.
    ``makers`` have a number for each allocation of A and of B, the same where the calls
    that have made them are matched. ``any_time`` says whether any op takes another
    time, however little.
    """

    pairs: Rows
    kinds: dict[str, Rows]
    makers: tuple[Ints, Ints]
    any_time: bool


def match(
    sides: Sides, programs: Programs, percent: float, progress: Progress
) -> Matched:
    """Which ops are in both; and by kind of change those that have changed."""
    a, b = programs
    places = _places(programs, stage(progress, 0.0, 0.6))
    paths_a = computed_beside(partial(_paths, sides.a.trace), progress, 0.6)
    paths_b = computed_beside(partial(_paths, sides.b.trace), progress, 0.7)

    def changed() -> Matched:
        """Those that one trace lacks, then by what differs, the largest first."""
        rows_a = a.rows[places.a]
        rows_b = b.rows[places.b]
        in_order = np.argsort(rows_a)
        in_a = rows_a[in_order]
        in_b = rows_b[in_order]
        before = durations(sides.a)[in_a]
        longer = durations(sides.b)[in_b] - before
        beyond = before * percent / 100 + NOISE_NS
        makers = _makers(sides, programs, in_a, in_b)
        taken_a = made_by(a, makers[0])[in_a]
        taken_b = made_by(b, makers[1])[in_b]
        other_params = a.params[in_a] != b.params[in_b]
        other_component = _components(sides.a)[in_a] != _components(sides.b)[in_b]
        differ = {
            "params": other_params | (taken_a != taken_b) | other_component,
            "data": a.contents[in_a] != b.contents[in_b],
            "rerouted": paths_a[in_a] != paths_b[in_b],
            "slower": longer > beyond,
            "faster": -longer > beyond,
        }
        none = np.empty(0, np.int64)
        only_a = np.delete(np.arange(len(a.rows)), in_a)
        only_b = np.delete(np.arange(len(b.rows)), in_b)
        found = {"missing": Rows(only_a, none), "added": Rows(none, only_b)}
        # the largest difference first, of equal ones A's first row
        order = np.lexsort((in_a, -np.abs(longer).round(6)))
        for kind, which in differ.items():
            mine = order[which[order]]
            found[kind] = Rows(in_a[mine], in_b[mine])
        any_time = bool((np.abs(longer) > NOISE_NS).any())
        return Matched(Rows(in_a, in_b), found, makers, any_time)

    return computed_beside(changed, progress, 0.8)


def op_beside(
    trace_a: Trace, trace_b: Trace, op: int, progress: Progress = no_progress
) -> int | None:
    """The position in B of the op at a position of A; None where B has no such op, or
    is of another bench. TraceFormatError for params that cannot be.
    """
    if trace_a.header.get("bench") != trace_b.header.get("bench") or op < 0:
        return None
    programs = Programs(
        program(Index(trace_a), stage(progress, 0.0, 0.4)),
        program(Index(trace_b), stage(progress, 0.4, 0.8)),
    )
    places = _places(programs, stage(progress, 0.8, 1.0))
    mine = np.flatnonzero(programs.a.rows[places.a] == trace_a.order[op])
    if not len(mine):
        return None
    row = programs.b.rows[places.b[mine[0]]]
    return int(trace_b.position[row])


def _places(programs: Programs, progress: Progress) -> Pairs:
    """Which places of both programs belong together."""
    a, b = programs
    gaps = computed_beside(lambda: _parts(a.streams, b.streams), progress, 0.0)
    levels = list(zip(a.levels, b.levels, strict=True))
    return aligned(levels, gaps, progress)


def _parts(streams_a: Array, streams_b: Array) -> Ints:
    """Where the ops of each PE are in both programs, for ``aligned``."""
    names_a, first_a = np.unique(streams_a, return_index=True)
    names_b, first_b = np.unique(streams_b, return_index=True)
    end_a = np.append(first_a[1:], len(streams_a))
    end_b = np.append(first_b[1:], len(streams_b))
    _, in_a, in_b = np.intersect1d(
        names_a, names_b, assume_unique=True, return_indices=True
    )
    columns = (first_a[in_a], end_a[in_a], first_b[in_b], end_b[in_b])
    return np.stack(columns, 1).astype(np.int64)


def _makers(
    sides: Sides, programs: Programs, in_a: Ints, in_b: Ints
) -> tuple[Ints, Ints]:
    """By allocation of either trace a number of the call that has made it.

    Calls are the same where any of their ops are matched, and then have A's row.
    """
    a, b = programs
    calls_a = a.calls[in_a]
    calls_b = b.calls[in_b]
    known = (calls_a >= 0) & (calls_b >= 0)
    same = np.arange(-2, -2 - len(sides.b.trace.commands.cmd), -1)
    same[calls_b[known][::-1]] = calls_a[known][::-1]
    return a.makers, np.append(same, -1)[b.makers]


def _components(side: Index) -> Array:
    """By row a hash of what served the op."""
    components = side.trace.op_columns.component[:]
    return hashes_of(components, side.trace.node_ids.__getitem__)


def durations(side: Index) -> Array:
    """By row how long each op took, ns."""
    ops = side.trace.op_columns
    return np.asarray(ops.t_end - ops.t_start)


def _paths(trace: Trace) -> Array:
    """By row a hash of the nodes that its transactions pass, in whatever order.

    It is the sum of a hash for each transaction, modulo 2 ** 64.
    """
    ids = trace.node_ids
    transfers = trace.transfers
    hashes = hashes_of(
        transfers.path[:], lambda path: [ids[node] for node in trace.paths[path]]
    )
    rows = transfers.row[:]
    of_ops = rows >= 0
    total = np.zeros(len(trace.op_columns.cmd), np.uint64)
    np.add.at(total, rows[of_ops], hashes[of_ops])
    return total

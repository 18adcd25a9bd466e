"""All pairs of accesses that race: they met in this run, or nothing orders them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Ints, running_count
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.replay.data.hazards import (
    MOST_PAIRS,
    Timing,
    conflicting_pairs,
    timing,
)
from kernbench.replay.races.calls import NEVER
from kernbench.replay.races.order import Order, order_of
from kernbench.replay.races.shared import unordered
from kernbench.replay.races.streams import (
    has_ranks,
    launches_with_own_tensors,
    taken_as_of_one_rank,
)
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace
from kernbench.trace.hops import has_text

_SHOWN = 4
"""Launches that are named."""


class Races(NamedTuple):
    """Pairs of accesses, by their numbers: the earlier, the later, whether they met.

    ``notes`` say what could not be looked at, ``unchecked`` what never is.
    """

    earlier: Ints
    later: Ints
    met: Bools
    notes: tuple[str, ...]
    unchecked: tuple[str, ...]


def races_of(
    trace: Trace,
    touched: AccessColumns,
    allocs: AccessColumns,
    progress: Progress = no_progress,
) -> Races:
    """All races of a trace; ``touched`` are its accesses by canonical position."""
    times = computed_beside(partial(timing, trace, touched), progress, 0.0)
    met = conflicting_pairs(touched, times, stage(progress, 0.1, 0.4))
    found = [met]
    notes = []
    unchecked = []
    if trace.cut:
        unchecked.append(
            "what did not meet in this part of a run, and who wrote before it"
        )
    else:
        order = order_of(trace, touched, allocs, stage(progress, 0.4, 0.6))
        unchecked += computed_beside(
            partial(_unchecked, trace, touched, order), progress, 0.6
        )
        found.append(_of_one_pe(touched, order, stage(progress, 0.6, 0.75)))
        is_serial = not has_ranks(trace)
        of_others = stage(progress, 0.75, 0.9)
        of_two, is_all = unordered(touched, order, is_serial, of_others)
        found.append(of_two)
        if not is_all:
            notes.append(
                "there are more: of bytes that many ops use only neighbours in time "
                "are compared"
            )
        early = order.early
        found.append(early[~order.known_before(early[:, 0], early[:, 1])])
    pairs = computed_beside(partial(_each_once, found, len(touched.row)), progress, 0.9)
    if len(pairs) > MOST_PAIRS:
        notes.append(f"there are more: only about {MOST_PAIRS:,} pairs are looked for")
    did_meet = np.zeros(len(pairs), np.bool_)
    did_meet[: len(met)] = True
    a, b = pairs[len(met) :].T
    did_meet[len(met) :] = _overlap(times, a, b)
    return Races(pairs[:, 0], pairs[:, 1], did_meet, tuple(notes), tuple(unchecked))


def _unchecked(trace: Trace, touched: AccessColumns, order: Order) -> list[str]:
    """What the order says nothing of, in words."""
    found = []
    if has_ranks(trace):
        found.append("transfers of the host while kernels of another rank run")
        own = launches_with_own_tensors(trace, touched, order.launch)
        unsure = taken_as_of_one_rank(trace, own)
        if unsure:
            named = ", ".join(str(launch) for launch in unsure[:_SHOWN])
            more = ", …" if len(unsure) > _SHOWN else ""
            found.append(
                f"which rank asked for launch {named}{more}, of no tensor of a rank: "
                "taken is the one that last asked for its SIP"
            )
    of_host = has_text(trace, trace.op_columns.name, "host_write", "host_read").sum()
    if np.count_nonzero(order.pe < 0) > of_host:
        found.append("ops of no recorded call, unless they met in this run")
    return found


def _of_one_pe(touched: AccessColumns, order: Order, progress: Progress) -> Ints:
    """Pairs of accesses of one PE to the same bytes, in the order of their issue.

    As accesses that meet in time, where time is the number of a call: an access is in
    flight from the call that issues it until one at which it is known to be done.
    """
    numbers = computed_beside(partial(_near_late_ones, order), progress, 0.0)
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    mine = touched.take(numbers)
    times = _by_calls(order, numbers)
    pairs = conflicting_pairs(mine, times, stage(progress, 0.2, 1.0))
    pairs = numbers[pairs]
    before = order.before(pairs[:, 0], pairs[:, 1])
    return np.asarray(pairs[~before])


def _near_late_ones(order: Order) -> Ints:
    """The accesses that are issued while one of their PE is not known to be done."""
    known = np.flatnonzero(order.pe >= 0)
    number = order.number[known]
    calls = int(number.max(initial=-1)) + 2
    at = order.pe[known] * calls + number
    late = order.done[known] > number
    if not late.any():
        return np.empty(0, np.int64)
    last = order.pe[known] * calls + np.minimum(order.done[known], calls - 2)
    steps = np.zeros((int(order.pe.max()) + 1) * calls + 1, np.int32)
    np.add.at(steps, at[late], 1)
    np.add.at(steps, last[late] + 1, -1)
    return np.asarray(known[running_count(steps)[at] > 0])


def _by_calls(order: Order, numbers: Ints) -> Timing:
    """When accesses begin and end, in calls; of each PE behind those of another."""
    calls = int(order.number[numbers].max()) + 2
    base = order.pe[numbers] * calls
    begins = (base + order.number[numbers]).astype(np.float64)
    done = np.where(order.done[numbers] >= NEVER, calls - 1, order.done[numbers])
    ends = (base + np.minimum(done, calls - 1)).astype(np.float64) + 0.5
    return Timing(begins, ends, order.lane[numbers])


def _each_once(found: list[Ints], count: int) -> Ints:
    """Pairs, those of the first list before the others; none is there twice."""
    first, *others = found
    rest = np.concatenate([np.empty((0, 2), np.int64), *others])
    rest = np.sort(rest, axis=1)
    known = _code(first, count)
    codes = _code(rest, count)
    _, at = np.unique(codes, return_index=True)
    rest = rest[at[~np.isin(codes[at], known)]]
    return np.concatenate([first, rest])


def _code(pairs: Ints, count: int) -> Ints:
    """A number for each pair, whichever of the two stands first."""
    return np.asarray(pairs.max(axis=1) * count + pairs.min(axis=1))


def _overlap(times: Timing, a: Ints, b: Ints) -> Bools:
    """Which pairs of accesses were in flight at one time."""
    begins = np.maximum(times.begins[a], times.begins[b])
    return np.asarray(begins < np.minimum(times.ends[a], times.ends[b]))

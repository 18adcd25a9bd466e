"""Why an answer about another machine is unsure, in words.

What may differ from a recorded run is measured in certainty.py; here that is held
against how long launches take, and said.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.exact_time import TICK_NS
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.replay.whatif.certainty import (
    ALONE_SHARE,
    CROWDED_SHARE,
    LEAST_SHARE,
    awaits_more_than_calls,
    crowding,
)
from kernbench.replay.whatif.edges import MOST_SLOWER
from kernbench.replay.whatif.known import KnownRun
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.walk import Scenarios

_MUCH = 0.02
"""If waits of such a share of a launch depend on another order it is unsure."""

HELD = "an op would come before an earlier one that touches the same bytes, and be held"

NEVER_ENDED = (
    "the run ended within a launch, so when it would have ended cannot be told"
)

_OTHER_TURNS = "links or memories would serve in another order than they did"
"""Memories are controllers of HBM, ports of SRAMs, and channels of TCMs."""

_ENGINES = "engines would serve in another order than they did"

_AWAITS = (
    "the host went on when the machine was idle, later than calls ended; how long that "
    "takes is not known"
)

_HELD_BY_NONE = "an op was held by an earlier one, and by which is not found"

_CROWDED = "a link or a memory would be asked for more at once than it can do"

_MET_OTHERWISE = (
    "transactions would meet otherwise at a controller of HBM, and may find other rows "
    "open"
)

_TURNED_OTHERWISE = (
    "reads and writes would meet otherwise at a controller of HBM, and its bus may "
    "turn at other times"
)

_OTHER_ROWS = (
    "transactions would open rows of HBM, or fill some of its channels, at another "
    "pace than is known; sent alone they are off by {share:.1%}"
)

_SLOWER = (
    "a link would be {times:.3g} times slower; who waits there for whom that did not "
    "wait before is known up to {most:g} times"
)

_CREDITS = (
    "messages waited for free slots of a ring, and others may wait for others then"
)

_REFRESHED = (
    "refreshes of HBM would come at other times, or take another time; who meets one "
    "then is not known"
)


class Order(NamedTuple):
    """A walk of one scenario in which links, controllers and channels serve in the
    recorded order: by place the time of each node, ns, and the edges of the graph at
    which one waits for another that comes later.
    """

    times: Floats
    overtaken: Array


def order_of(
    known: KnownRun, times: Floats, weight: Floats, progress: Progress
) -> Order:
    """What a walk of one scenario has found."""
    find = partial(known.queues.overtaken, times, weight)
    return Order(times, computed_beside(find, progress, 0.0))


def as_channels_serve(
    known: KnownRun, order: Order, scenario: Scenarios, progress: Progress
) -> Floats | None:
    """Times by place, and of one scenario, in which nobody waits for a channel of a TCM
    behind another that asks for it later; None if nobody does anyway.
    """
    at_channels = order.overtaken[known.graph.is_channel[order.overtaken]]
    if not len(at_channels):
        return None
    return known.batches.walk(scenario, progress, at_channels)


# -- why ------------------------------------------------------------------------------


def why_never_sure(known: KnownRun) -> str:
    """Why no answer about a trace is sure; "" if one may be."""
    if awaits_more_than_calls(known.graph):
        return _AWAITS
    return _HELD_BY_NONE if known.graph.held_by_none else ""


def why_other_times_are_unsure(known: KnownRun, in_turns: bool) -> str:
    """Why any times but the recorded ones are unsure; "" if nothing says so.

    Who waits for which slot of a ring then is known of times that are found
    ``in_turns``, where turns explain the recording, and of no others.
    """
    if known.has_credits and not (in_turns and known.is_explained_in_turns):
        return _CREDITS
    return why_never_sure(known)


def why_order_changes(
    known: KnownRun,
    order: Order,
    scenario: Scenarios,
    machine: Machine,
    progress: Progress,
    in_turns: bool = False,
) -> str:
    """Why the order in which was served makes times unsure; "" if it does not.

    ``in_turns`` says that they are to be found in turns, if these explain the
    recording.
    """
    times, overtaken = order
    weight = scenario.weight[:, 0]
    contended = partial(_why_contended, known, order, weight, machine, in_turns)
    why = computed_beside(contended, progress, 0.1)
    if why or not len(overtaken):
        return why
    other = known.batches.walk(scenario, stage(progress, 0.2, 1.0), overtaken)[:, 0]
    spans = known.spans(times)
    # without their waits; whoever is served after them instead may wait longer
    waited = spans - known.spans(other)
    most = float(np.max(waited / np.maximum(spans, TICK_NS), initial=0.0))
    if most < _MUCH:
        return ""
    return f"{_OTHER_TURNS}; waits worth {most:.1%} of a launch depend on it"


def why_refreshed_otherwise(known: KnownRun, machine: Machine) -> str:
    """Why refreshes make a machine unsure; "" if they are as they were."""
    was = known.spec.cube.hbm
    now = machine.spec.cube.hbm
    if (was.trefi_ns, was.trfc_ns) == (now.trefi_ns, now.trfc_ns):
        return ""
    return _REFRESHED


def _why_contended(
    known: KnownRun, order: Order, weight: Floats, machine: Machine, in_turns: bool
) -> str:
    """Why servers make times unsure without a further walk; "" if they do not."""
    queues = known.queues
    times, overtaken = order
    by_node = known.by_node(times)
    slower = _slower(known, machine)
    if slower > MOST_SLOWER:
        return _SLOWER.format(times=slower, most=MOST_SLOWER)
    if _has_other_moves(known, machine):
        off = known.moves_alone.off(machine)
        if off > ALONE_SHARE:
            return _OTHER_ROWS.format(share=off)
    if np.array_equal(by_node, known.graph.times):
        return ""
    why = why_other_times_are_unsure(known, in_turns)
    if why:
        return why
    span = known.mean_span(times)
    turns = weight[known.graph.weight[overtaken]]
    if turns.max(initial=0.0) > LEAST_SHARE * span:
        return _OTHER_TURNS
    _, taken_ns = known.engines.overtaken(times, weight)
    if taken_ns > LEAST_SHARE * span:
        return _ENGINES
    if known.holds.held(times, machine) > LEAST_SHARE * span:
        return HELD
    row_ns = known.machine.dram.row
    if queues.met_otherwise(times, weight, row_ns) > LEAST_SHARE * span:
        return _MET_OTHERWISE
    turn_ns = known.machine.dram.turn
    if queues.turned_otherwise(times, weight, turn_ns) > LEAST_SHARE * span:
        return _TURNED_OTHERWISE
    nodes = len(known.trace.node_ids)
    asked_ns = crowding(known.graph, nodes, known.machine, machine, by_node)
    if asked_ns > CROWDED_SHARE * span:
        return _CROWDED
    return ""


def _has_other_moves(known: KnownRun, machine: Machine) -> bool:
    """Whether anything may move at another pace on a machine: HBM, or a link."""
    same_hbm = machine.spec.cube.hbm == known.spec.cube.hbm
    return machine.links is not known.machine.links or not same_hbm


def _slower(known: KnownRun, machine: Machine) -> float:
    """How many times slower that link is that is slowed down most, of those on paths
    of a trace.
    """
    recorded = known.machine
    if machine.links is recorded.links:
        return 1.0
    used = np.unique(recorded.ways.hop_edges)
    used = used[used >= 0]
    slower = recorded.links.speed[used] / machine.links.speed[used]
    return float(slower.max(initial=1.0))

"""How much later an op could start with the end unmoved, and how sure that is."""

from __future__ import annotations

from functools import partial

import numpy as np

from kernbench.common.arrays import Floats
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import (
    Progress,
    computed_beside,
    forwards,
    stage,
)
from kernbench.replay.whatif.certainty import crowding
from kernbench.replay.whatif.doubts import HELD, NEVER_ENDED, why_never_sure
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.known import KnownRun, alone
from kernbench.replay.whatif.slack import STEP_NS, Slack, tried_out, uses_up
from kernbench.replay.whatif.walk import Late

_LESS = 8
"""In so many parts a slack is tried out, whether less of it moves the end."""

_OTHER_ORDER = (
    "links or memories would serve others before it, beside it, or at another distance "
    "from it"
)

_NO_LINE = (
    "past it the end does not come later by as much as the op does, since others are "
    "served in another order"
)

_LESS_MOVES = (
    "a shorter delay moves the end, since others are then served in another order"
)


def slack_of(known: KnownRun, position: int, progress: Progress) -> Slack:
    """The slack of the op at a position.

    The end is that of the last launch, or of the run if there is none.
    """
    graph = known.graph
    slack = known.slacks(stage(progress, 0.0, 0.5))
    row = np.array([known.trace.order[position]], np.int64)
    node = int(graph.moments.op_start(row)[0])
    ns = float(slack[node])
    if not np.isfinite(ns):
        return Slack(ns, True, "")
    if known.has_no_end:
        return Slack(ns, False, NEVER_ENDED)
    why = why_never_sure(known)
    if why:
        return Slack(ns, False, why)
    late = Late(node, ns + STEP_NS)
    part = stage(progress, 0.5, 0.75)
    times = known.batches.walk(alone(known.weight), part, late=late)[:, 0]
    is_held = partial(known.holds.held, times, known.machine)
    if computed_beside(is_held, progress, 0.75) > SAME_NS:
        return Slack(ns, False, HELD)
    is_sure = partial(_is_sure, known, slack, late, times)
    if computed_beside(is_sure, progress, 0.75):
        return Slack(ns, True, "")
    if not known.is_small:
        return Slack(ns, False, _OTHER_ORDER)
    return _in_turns(known, node, ns, stage(progress, 0.75, 1.0))


def _is_sure(known: KnownRun, slack: Floats, late: Late, times: Floats) -> bool:
    """Whether all are served in the same order, though an op is late, and the end is as
    late as the op is beyond its slack.

    ``slack`` is by node, ``times`` are by place those of a walk in which the op is
    late.
    """
    graph = known.graph
    by_node = known.by_node(times)
    late_by = by_node - graph.times
    end = by_node[graph.ends].max()
    if abs(end - graph.times[graph.ends].max() - STEP_NS) > SAME_NS:
        return False
    if _waits_for_what_is_unknown(graph, slack, late_by):
        return False
    queues = known.queues
    if known.has_credits or len(queues.overtaken(times, known.weight)):
        return False
    if len(known.engines.overtaken(times, known.weight, late)[0]):
        return False
    if known.streams.meet_otherwise(late_by):
        return False
    nodes = len(known.trace.node_ids)
    if crowding(graph, nodes, known.machine, known.machine, by_node):
        return False
    row_ns = known.machine.dram.row
    return not queues.met_otherwise(times, known.weight, row_ns)


def _waits_for_what_is_unknown(graph: Graph, slack: Floats, late_by: Floats) -> bool:
    """Whether anything that makes the end late came later than its edges explain.

    What it waited for then may have it wait for less if it comes later. ``late_by`` is
    by node, and what is later than its ``slack`` makes the end late.
    """
    makes_late = late_by > slack + SAME_NS
    return bool((makes_late & (graph.rest > SAME_NS)).any())


def _in_turns(known: KnownRun, node: int, told: float, progress: Progress) -> Slack:
    """The slack of a node if each server takes who comes first.

    It is sure where the re-timing in turns explains all that was recorded, and the end
    comes as much later as the op does once the slack is used up.
    """
    turns = known.turns(progress)
    each = forwards(stage(progress, 0.2, 1.0))
    tried: dict[float, float] = {}

    def moved(ns: float) -> float:
        """By how much the end comes later."""
        if ns not in tried:
            tried[ns] = turns.end_if(Late(node, ns), each) - turns.end
        return tried[ns]

    ns = tried_out(moved, told)
    if not turns.explains:
        return Slack(ns, False, _OTHER_ORDER)
    if any(late > SAME_NS for less, late in tried.items() if less < ns):
        return Slack(ns, False, _LESS_MOVES)
    if not uses_up(moved, ns):
        return Slack(ns, False, _NO_LINE)
    late = turns.times_if(Late(node, ns + STEP_NS), each)
    times = np.zeros(known.graph.nodes)
    times[known.batches.place[: len(late)]] = late
    if known.holds.held(times, known.machine) > SAME_NS:
        return Slack(ns, False, HELD)
    if any(moved(ns * part / _LESS) > SAME_NS for part in range(1, _LESS)):
        return Slack(ns, False, _LESS_MOVES)
    return Slack(ns, True, "")

"""Who comes first of what happens at one time, and who never comes before another.

The machine has a rule for an instant (docs/machine.md, "The order within an instant"):
what happens is in the order of the PEs that cause it, and in each PE in the order in
which that made it happen. A re-timing in turns (turns.py) needs to keep it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.replay.time.critical_edges import pools
from kernbench.replay.whatif.deliveries import Sent
from kernbench.replay.whatif.graph import Graph
from kernbench.trace import Trace
from kernbench.trace.hops import named, rows_of_calls, tile_numbers


def in_turn(trace: Trace, graph: Graph) -> Ints:
    """The nodes of a graph as they would come at one time in one PE: the starts of ops
    last, in the order of their calls, and of tiles in theirs, behind their composite;
    of what one call pushes that is what left first.
    """
    moments = graph.moments
    first_start = len(moments.times) - moments.op_count
    tile = tile_numbers(trace)
    rows = np.lexsort((_left(graph), tile, trace.op_columns.cmd[:]))
    return np.append(np.arange(first_start), moments.op_start(rows))


def places(trace: Trace, graph: Graph, turns: Ints, begun: Sequence[Sent]) -> list[int]:
    """By node in whose turn it comes, of what happens at one time.

    ``turns`` is by node of the machine. Behind the nodes of the graph is one for each
    that is ``begun``. What is pushed is in the log as an op of the PE that it comes to,
    and comes in the turn of the one that sends it.
    """
    moments = graph.moments
    of_op = turns[trace.op_columns.component[:]]
    for sent in begun:
        if not sent.is_credit:
            of_op[sent.op] = sent.turn
    found = np.zeros(graph.nodes, np.int64)
    ops = np.arange(moments.op_count)
    found[ops] = of_op
    found[moments.op_start(ops)] = of_op
    pe = trace.commands.pe[:]
    found[moments.call_return(np.arange(len(pe)))] = turns[pe]
    return [*found.tolist(), *(sent.turn for sent in begun)]


def slots_in_order(trace: Trace, graph: Graph) -> tuple[Ints, Ints]:
    """Pairs of starts of ops of which the second never asks for its engine before the
    first one does: the slots of a ring are emptied in their order, whichever landed
    first, and those that one call pushes are filled in theirs.
    """
    ops = trace.op_columns
    call = rows_of_calls(trace, ops.cmd[:])
    pool, _ = pools(trace, call)
    emptied = np.flatnonzero(named(trace, "ipcq_recv"))
    filled = np.flatnonzero(named(trace, "ipcq_copy"))
    left = _left(graph)
    befores = []
    behinds = []
    for rows, together in ((emptied, pool), (filled, ops.cmd[:])):
        order: Array = np.lexsort((left[rows], ops.t_start[rows], together[rows]))
        rows = rows[order]
        same = np.diff(together[rows]) == 0
        befores.append(graph.moments.op_start(rows[:-1][same]))
        behinds.append(graph.moments.op_start(rows[1:][same]))
    return np.concatenate(befores), np.concatenate(behinds)


def _left(graph: Graph) -> Floats:
    """By op when the first of its data left, ns; inf where none do."""
    left = np.full(graph.moments.op_count, np.inf)
    np.minimum.at(left, graph.moves.op, graph.moves.first)
    return left

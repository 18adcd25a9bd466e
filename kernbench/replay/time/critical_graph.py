"""The graph of a trace: of every moment its cause, of every op its slack.

A node is a moment (moments.py), and edges say what cannot come before what
(critical_edges.py). A node comes when the last of its causes lets it, so of the edges
into it at least one should have no gap: that one binds the node, and names its cause.
What even the least gap leaves is the node's rest, time that no edge explains, and it
counts as if the node took it by itself.

The slack of a node is how much later it could come with the end unmoved: the least,
over all edges out of it, of the slack of the effect and the room of the edge, which is
its gap less the rest of the effect. One walk over all edges, back in time, finds it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import Progress, computed_beside, parts, stage
from kernbench.replay.time.critical_edges import EdgeFinder, Edges
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.moments import Moments
from kernbench.replay.time.op_index import OpIndex
from kernbench.trace import Trace

_NODES = 1 << 17  # nodes or edges that numpy works on in one go, some ms
_EDGES = 1 << 12  # edges that Python works on in one go, 1 ms


class Graph(NamedTuple):
    """What the path and the slack are read from, t0 to t1 (ns) being what it explains.

    ``ends`` are the nodes of which the last ends the path. By node: ``cause`` is the
    node that it came after with no gap (-1: none), ``what`` (of WHATS) the time between
    the two counts as, ``rest`` how long after all that it had to wait for it came (ns;
    inf where nothing is known).
    By row of the log: ``slack`` is how much later an op could end without moving t1
    (ns; inf for one that ends after it; None if it was not asked for), ``call_of_op``
    the row of its call, or -1.
    """

    t0: float
    t1: float
    moments: Moments
    ends: Ints
    cause: Array
    what: Array
    rest: Floats
    slack: Floats | None
    call_of_op: Ints


class _Forward(NamedTuple):
    """Edges that lead from a node to a later one, in as little room as possible."""

    cause: Array
    effect: Array
    gap: Floats
    what: Array


def build_graph(
    trace: Trace, ops: OpIndex, progress: Progress, with_slack: bool
) -> Graph:
    """The graph of all launches; of the whole run, if there is none.

    To find the slack takes as long as all else, and the path needs none.
    """
    map_logs(trace, progress, "commands", "waits", "launches")
    codes = ops.class_codes(progress=stage(progress, 0.0, 0.05))
    classes = codes.astype(np.int64)
    moments = computed_beside(lambda: Moments(trace), progress, 0.05)
    rank = computed_beside(lambda: _rank(moments.times), progress, 0.05)
    finder = computed_beside(lambda: EdgeFinder(trace, classes, moments), progress, 0.1)
    edges = _forward_edges(rank, finder, stage(progress, 0.1, 0.4))

    launches = trace.launches
    t0 = min((launch.t_start for launch in launches), default=0.0)
    ends = moments.all_launch_ends()
    if not launches:
        ends = _last_ops(trace, finder.call_of_op)
    t1 = float(np.max(moments.times[ends], initial=0.0))

    rest = _least_gaps(edges, len(rank), stage(progress, 0.4, 0.45))
    cause, what = _causes(edges, rest, stage(progress, 0.45, 0.5))
    slack_of_op: Floats | None = None
    if with_slack:
        early = computed_beside(lambda: t1 - moments.times, progress, 0.5)
        slack = _slack(edges, rank, rest, early, stage(progress, 0.5, 1.0))
        slack_of_op = computed_beside(slack[: moments.op_count].copy, progress, 1.0)
    return Graph(
        t0=t0,
        t1=t1,
        moments=moments,
        ends=ends,
        cause=cause,
        what=what,
        rest=rest,
        slack=slack_of_op,
        call_of_op=finder.call_of_op,
    )


def _last_ops(trace: Trace, call_of_op: Ints) -> Ints:
    """The rows of the ops of which the last ends the path, where no launch has ended.

    A call is recorded behind its op. Where the recording was cut off between the two,
    nothing tells what the op came after.
    """
    if not trace.complete and (call_of_op >= 0).any():
        return np.flatnonzero(call_of_op >= 0)
    return np.arange(len(call_of_op))


def _rank(times: Floats) -> Array:
    """The place of each node in the order of time, then of the nodes' numbers."""
    rank = np.empty(len(times), np.int32)
    rank[np.argsort(times, kind="stable")] = np.arange(len(times), dtype=np.int32)
    return rank


def _forward_edges(rank: Array, finder: EdgeFinder, progress: Progress) -> _Forward:
    """All edges that lead forward, in the order in which they are found.

    An edge that leads back in time, or whose cause came too late to be one, is none: a
    recorded wait may name an op that had nothing to do with how it ended.
    """
    batches = finder.batches()
    found = list[_Forward]()
    for number, batch in enumerate(batches):
        kept = partial(_forward_of_batch, rank, batch)
        found += computed_beside(kept, progress, number / len(batches))
    causes = [edges.cause for edges in found]
    effects = [edges.effect for edges in found]
    gaps = [edges.gap for edges in found]
    whats = [edges.what for edges in found]
    found.clear()
    return _Forward(
        computed_beside(partial(_joined, causes), progress, 1.0),
        computed_beside(partial(_joined, effects), progress, 1.0),
        computed_beside(partial(_joined, gaps), progress, 1.0),
        computed_beside(partial(_joined, whats), progress, 1.0),
    )


def _forward_of_batch(
    rank: Array, batch: Callable[[], tuple[Edges, ...]]
) -> list[_Forward]:
    """What of a batch leads forward; the rest of it is let go of at once."""
    return [_forward(rank, edges) for edges in batch()]


def _forward(rank: Array, edges: Edges) -> _Forward:
    """Those of some edges that lead from a node to one that ranks after it."""
    later = rank[edges.cause] < rank[edges.effect]
    kept = np.flatnonzero((edges.cause >= 0) & (edges.gap > -SAME_NS) & later)
    what = np.broadcast_to(edges.what, edges.cause.shape)
    return _Forward(
        edges.cause[kept].astype(np.int32),
        edges.effect[kept].astype(np.int32),
        np.maximum(edges.gap[kept], 0.0),
        what[kept].astype(np.uint8),
    )


def _joined(some: list[Array]) -> Array:
    """One array of some, which are let go of: the edges are what takes most memory."""
    joined = np.concatenate(some)
    some.clear()
    return joined


def _least_gaps(edges: _Forward, nodes: int, progress: Progress) -> Floats:
    """By node the least gap of all edges into it, ns: the delay that none explains.

    It is inf for a node that no edge leads to, as the first of a trace.
    """
    rest = computed_beside(lambda: np.full(nodes, np.inf), progress, 0.0)
    for part in parts(len(edges.effect), progress, _NODES):
        np.minimum.at(rest, edges.effect[part], edges.gap[part])
    return rest


def _causes(edges: _Forward, rest: Floats, progress: Progress) -> tuple[Array, Array]:
    """By node the cause of the last edge that binds it, and what that counts as."""
    none = partial(np.full, len(rest), -1, np.int32)
    cause = computed_beside(none, progress, 0.0)
    what = computed_beside(none, progress, 0.0)
    for part in parts(len(edges.effect), progress, _NODES):
        effect = edges.effect[part]
        binding = np.flatnonzero(edges.gap[part] - rest[effect] < SAME_NS)
        effect = effect[binding]
        cause[effect] = edges.cause[part][binding]
        what[effect] = edges.what[part][binding]
    return cause, what


def _slack(
    edges: _Forward, rank: Array, rest: Floats, early: Floats, progress: Progress
) -> Floats:
    """By node how much later it could come without moving the end, ns.

    ``early`` is how long before the end each node comes: what it could be late by if
    nothing followed from it. What comes after the end has no limit. The walk is a loop
    in Python, as each of its steps needs those before it.
    """
    order = computed_beside(
        lambda: np.argsort(-rank[edges.effect]).astype(np.int32), progress, 0.0
    )
    slack = array("d")  # of 8 bytes a number, and quicker to index than numpy
    for part in parts(len(early), stage(progress, 0.0, 0.1), _NODES):
        in_time = early[part] > -SAME_NS
        room = np.where(in_time, np.maximum(early[part], 0.0), np.inf)
        slack.frombytes(room.tobytes())
    for part in parts(len(order), stage(progress, 0.1, 1.0), _EDGES):
        some = order[part]
        causes = edges.cause[some].tolist()
        effects = edges.effect[some]
        gaps = (edges.gap[some] - rest[effects]).tolist()
        for cause, effect, gap in zip(causes, effects.tolist(), gaps, strict=True):
            room = slack[effect] + gap
            if room < slack[cause]:
                slack[cause] = room
    return np.frombuffer(slack, np.float64)

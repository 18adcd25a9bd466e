"""Slack: how much later an op could start with the end unmoved, from the same graph.

An edge lets its cause come later by its room and by what its effect may. The end is
that of the last launch. A tile of the array that streams behind another starts cold as
soon as it is late at all, and takes longer by the difference; one that is cold streams
if the tile before it is late enough, and takes less.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import Progress, computed_beside, parts, stage
from kernbench.replay.whatif.graph import Graph

_EDGES = 1 << 12
"""Edges that Python works on between two calls of progress, 1 ms."""

_NODES = 1 << 17
"""Nodes that numpy works on in one go, some ms."""

STEP_NS = 10.0
"""An op that is held back by so much more than its slack moves the end by as much."""

_MOST_NS = 1e6
_CLOSE_NS = 0.5
_TURNS = 4
"""The longest that an op is held back, how near its slack is found, and how often it is
looked for anew where the end comes sooner again.
"""


@dataclass(frozen=True, slots=True)
class Slack:
    """How much later an op could start with the end unmoved, ``ns``; inf: as you like.

    ``why`` says why that is not ``sure``.
    """

    ns: float
    sure: bool
    why: str


def slacks(graph: Graph, weight: Floats, progress: Progress) -> Floats:
    """By node how much later it could come, ns; inf for what the end does not await.

    ``weight`` are the recorded weights by class. The end is that of the last launch, or
    of the run if there is none.
    """
    ends = graph.ends
    first = np.full(graph.nodes, np.inf)
    if len(ends):
        first[ends] = graph.times[ends].max() - graph.times[ends]
    slack = array("d")  # of 8 bytes a number, and quicker to index than numpy
    for part in parts(len(first), stage(progress, 0.0, 0.1), _NODES):
        slack.frombytes(first[part].tobytes())
    tiles = computed_beside(lambda: _Tiles(graph, weight), progress, 0.1)
    rest = stage(progress, 0.1, 1.0)
    for part in parts(len(graph.cause), rest, _EDGES):
        high = len(graph.cause) - part.start
        some = slice(max(high - _EDGES, 0), high)
        cause = graph.cause[some]
        effect = graph.effect[some]
        number = graph.weight[some]
        took = weight[np.maximum(number, 0)]
        room = graph.times[effect] - graph.times[cause] - took - graph.rest[effect]
        room = np.where(number < 0, -tiles.jump[np.minimum(number, -1)], room)
        through, more = tiles.through(cause, effect)
        room = room + more
        rows = zip(
            cause.tolist(),
            through.tolist(),
            room.tolist(),
            number.tolist(),
            strict=True,
        )
        for before, after, gap, kind in reversed([*rows]):
            least = slack[after] + gap
            if kind < 0 and least < 0:
                least = 0.0
            if least < slack[before]:
                slack[before] = least
    return np.frombuffer(slack, np.float64)


def uses_up(moved: Callable[[float], float], ns: float) -> bool:
    """Whether an op may be so late and no later, and then moves the end with it."""
    return moved(ns) <= SAME_NS and moved(ns + STEP_NS) >= STEP_NS - SAME_NS


def tried_out(moved: Callable[[float], float], told: float) -> float:
    """The slack of an op by what holding it back does to the end, ns.

    ``moved`` says by how much the end comes later if the op does by some ns. What was
    ``told`` is tried first. Else it is the most that leaves the end where it is of what
    is found. That is by doubling, and by halves from there; and once more from there,
    if the end is not late STEP_NS beyond, as others were served in another order.
    """
    if uses_up(moved, told):
        return told
    low = 0.0
    if moved(told) <= SAME_NS:
        low = told
    for _ in range(_TURNS):
        low = _until_it_moves(moved, low)
        if moved(low + STEP_NS) > SAME_NS:
            break
        low += STEP_NS
    return low


def _until_it_moves(moved: Callable[[float], float], low: float) -> float:
    """The most beyond ``low`` that leaves the end where it is, of what is found."""
    step = STEP_NS
    high = low + step
    while moved(high) <= SAME_NS and step < _MOST_NS:
        low = high
        step *= 2
        high += step
    guess = high - moved(high)
    if low <= guess and uses_up(moved, guess):
        return guess
    while high - low > _CLOSE_NS:
        middle = (low + high) / 2
        if moved(middle) <= SAME_NS:
            low = middle
        else:
            high = middle
    behind = low + STEP_NS - moved(low + STEP_NS)
    if behind >= low and uses_up(moved, behind):
        return behind
    return low


class _Tiles:
    """The tiles of the array: what each would take longer, or less, in another turn.

    ``jump`` is by class of edge, from its end: how much longer a tile takes if it is
    late, 0 for one that is cold.
    """

    def __init__(self, graph: Graph, weight: Floats) -> None:
        edges = np.flatnonzero(graph.weight < 0)
        tile = -1 - graph.weight[edges]
        start = graph.cause[edges]
        end = graph.effect[edges]
        behind = graph.behind[tile]
        longer = weight[graph.cold[tile]] - weight[graph.streams[tile]]
        streams = graph.times[start] <= graph.times[behind]
        self.jump = np.zeros(len(graph.behind) + 1)
        self.jump[-1 - tile] = np.where(streams, longer, 0.0)
        self._behind = np.full(graph.nodes, -1, np.int32)
        self._end = np.arange(graph.nodes, dtype=np.int32)
        self._less = np.zeros(graph.nodes)
        cold = ~streams & (behind != end)
        self._behind[start[cold]] = behind[cold]
        self._end[start[cold]] = end[cold]
        self._less[start[cold]] = longer[cold]

    def through(self, cause: Array, effect: Array) -> tuple[Array, Floats]:
        """What is late if an effect is, and how much later that lets its cause come.

        Behind the tile before it a cold tile that is late streams, so that it is its
        end that counts.
        """
        is_next = self._behind[effect] == cause
        through = np.where(is_next, self._end[effect], effect)
        return through, np.where(is_next, self._less[effect], 0.0)

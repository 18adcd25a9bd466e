"""Nodes and edges of the graph that is re-timed, as they are found, log by log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.replay.time.moments import Moments
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.weights import Weights
from kernbench.trace import Trace

PLAIN = 0
AT_LINK = 1
AT_MEMORY = 2
SLOT = 3
AT_CHANNEL = 4
CREDIT = 5
"""Kinds of edges: of all but the first a graph says which they are."""

BUSY_SHARE = 0.2
"""Of the time between two transactions on a link: if it was busy for less, the second
would not wait for the first on a link five times as slow."""

MOST_SLOWER = 4.0
"""By which a link may be slower for a graph to know who would wait for whom there: with
less than ``BUSY_SHARE`` between two, no edge says so."""


class EdgesOfKind(NamedTuple):
    """Some edges; ``is_certain`` ones are kept though they came too soon.

    Their columns are of 32 bits: a run of a million ops has some ten million edges, and
    to go through half as many bytes takes half as long.
    """

    cause: Array
    effect: Array
    weight: Array
    is_certain: bool
    kind: int


class Served(NamedTuple):
    """Who was served by servers of a kind, by server and then by time.

    ``server`` is a number of one, ``node`` when it gave something to a transaction, and
    ``takes`` how long that keeps it busy at least, ns.
    """

    server: Ints
    node: Ints
    takes: Floats


class Found:
    """What was found so far: times of nodes, edges, and who was served by what.

    The first nodes are the ``moments`` of a trace. ``edges`` have weights by class of
    ``table``; ``steps`` are nodes with the op (a row of the log) of which each is a
    step.
    """

    def __init__(self, trace: Trace, machine: Machine) -> None:
        self.trace = trace
        self.machine = machine
        self.moments = Moments(trace)
        self.table = Weights()
        self.count = len(self.moments.times)
        self.edges: list[EdgesOfKind] = []
        self.steps: list[tuple[Ints, Ints]] = []
        self.served: list[Served] = []
        self._times = [self.moments.times]

    def times(self) -> Floats:
        """When each node came, ns."""
        return np.concatenate(self._times)

    def nodes(self, times: Floats, op: Ints) -> Ints:
        """New nodes, which come at ``times`` ns and are steps of ops."""
        first = self.count
        self._times.append(times)
        self.count += len(times)
        nodes = np.arange(first, self.count)
        self.steps.append((nodes, op))
        return nodes

    def add(
        self,
        cause: Ints,
        effect: Ints,
        weight: Ints | int = 0,
        is_certain: bool = False,
        kind: int = PLAIN,
    ) -> None:
        """Edges; those whose cause is -1 are none."""
        numbers = np.broadcast_to(np.asarray(weight), cause.shape)
        columns = [column.astype(np.int32) for column in (cause, effect, numbers)]
        known = cause >= 0
        if not known.all():
            columns = [column[known] for column in columns]
        causes, effects, weights = columns
        self.edges.append(EdgesOfKind(causes, effects, weights, is_certain, kind))

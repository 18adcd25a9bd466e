"""The read and the write channel of a TCM: which ops take it, one behind the other.

FETCH and STORE of tiles, dots, ops of MATH and slots that a recv copies share the two
channels of their PE's TCM (docs/machine.md, "SRAM and TCM"). A channel serves them in
the order in which they ask, which is when they start. Where they are of one engine that
is no more than one op behind the other; where they are of several, one has to wait for
its channel while it is in service.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints, runs_begin
from kernbench.trace import Trace

_NONE = -1
_FEW = 1 << 14
"""So few ops all have a node, so that they may be put in another order (turns.py): no
graph that is re-timed in turns has more."""


class Takers(NamedTuple):
    """Ops that take one of the channels of a kind, by channel and then in their turn.

    ``row`` is of the log, ``pe`` a number of the channel's PE. A channel is theirs from
    ``begin`` on, for ``ns``. ``is_near`` says of which another engine's op had the
    channel so shortly before that they might meet on a machine that is slower.
    """

    row: Ints
    pe: Ints
    begin: Floats
    ns: Floats
    is_near: Bools

    @property
    def follows(self) -> Bools:
        """Which come behind another op at their channel."""
        return np.append(False, np.diff(self.pe) == 0)[: len(self.pe)]

    @property
    def have_node(self) -> Bools:
        """Which are told apart from the start of their op: who may have to wait."""
        if len(self.row) <= _FEW:
            return np.ones(len(self.row), np.bool_)
        return self.is_near


def takers(trace: Trace, rows: Ints, ns: Floats, taken: Floats, near: float) -> Takers:
    """Who takes a channel, of PEs of which several engines do.

    ``rows`` are those of ops that take it for ``ns``, and whose engine alone would have
    them in service for ``taken`` ns. Two are near each other if the second starts less
    than ``near`` times as long behind the first as that takes.
    """
    ops = trace.op_columns
    component = ops.component[rows].astype(np.int64)
    pe = _pe_of_node(trace)[component]
    some = _of_several(pe, component)
    order = some[_in_turn(trace, rows[some], pe[some], taken[some])]
    row = rows[order]
    pe = pe[order]
    ns = ns[order]
    begin = _begins(pe, ops.t_start[row], ns)
    component = component[order]
    before = begin[:-1] + near * ns[:-1]
    is_near = np.zeros(len(row), np.bool_)
    is_near[1:] = ops.t_start[row[1:]] < before
    is_near[1:] &= (np.diff(pe) == 0) & (np.diff(component) != 0)
    return Takers(row, pe, begin, ns, is_near)


def _pe_of_node(trace: Trace) -> Ints:
    """By node the number of the PE that it is in; -1: in none."""
    nodes = trace.nodes
    places = np.stack([nodes.sip, nodes.cube, nodes.pe], 1)
    number = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where(np.asarray(nodes.pe) >= 0, number, _NONE)


def _of_several(pe: Ints, component: Ints) -> Ints:
    """The places of those in a PE of which several components are there."""
    known = np.flatnonzero(pe >= 0)
    of_pe = np.full(int(pe.max(initial=0)) + 1, _NONE)
    of_pe[pe[known]] = component[known]
    has_several = np.zeros(len(of_pe), np.bool_)
    has_several[pe[known][of_pe[pe[known]] != component[known]]] = True
    return known[has_several[pe[known]]]


def _in_turn(trace: Trace, row: Ints, pe: Ints, taken: Floats) -> Array:
    """The order of some ops by PE and then by who had the channel first.

    Of two that start at one time that is who ended as if it had not waited.
    """
    ops = trace.op_columns
    alone = ops.t_end[row] - taken
    return np.lexsort((alone, ops.t_start[row], pe))


def _begins(pe: Ints, start: Floats, ns: Floats) -> Floats:
    """From when on each has its channel: as it starts, or behind the one before it."""
    begin = np.empty(len(start))
    ends = np.append(np.flatnonzero(runs_begin(pe)), len(pe))
    for low, high in pairwise(ends):
        here = slice(low, high)
        # Had nobody to wait, each would begin when all before it have been served.
        served = np.cumsum(ns[here]) - ns[here]
        begin[here] = np.maximum.accumulate(start[here] - served) + served
    return begin

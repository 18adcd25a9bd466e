"""What a move through HBM takes alone: by its channels, and by the graph's formulas.

A formula (weights.py) knows how long the buses of all channels take for bytes that are
spread evenly over them, and what a closed row costs at first. How many rows a
transaction opens, how soon one may follow the other, and that some channels get more
of it than others, only the model of a channel knows (topology/dram.py). So some moves
are sent by both, on the recorded machine and on the changed one: alone, when those
before them at their controller have landed, whose rows they find open. Where the two
differ by something else on the changed machine than on the recorded one, no prediction
is sure.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.deliveries import (
    Age,
    Agenda,
    Deliveries,
    MoveFinder,
    Sent,
    turns_of,
)
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.moves import BY_HOST, SET_UP_BEFORE, Moves
from kernbench.replay.whatif.weights import IN_OPEN_ROW
from kernbench.topology.spec import HbmSpec, TopologySpec
from kernbench.trace import Trace

_TRIED = 16
"""Moves of the host, and as many of DMAs, that are sent alone."""

_BEFORE = 2
"""Moves to a controller that a move finds the rows of."""

_OTHER_ROW = 1 << 20
"""Rows further on than any that a move opens."""

_REST_NS = 10_000.0
"""Between two moves through the same channels, so that they wait for nothing else."""

Rows: TypeAlias = Literal["as before", "open", "closed"]
"""Which rows a move finds: those that the moves before it have left, or its own, or
others.
"""

ROWS: tuple[Rows, ...] = ("as before", "open", "closed")


class _Tried(NamedTuple):
    """The last of some ``moves``: it took ``takes`` in the recording, and ``beyond``
    more than formulas say if it is sent alone and finds such ``rows``, ns.

    These are those with which it takes as long as it did, or as formulas say, if there
    are any.
    """

    moves: Ints
    takes: float
    rows: Rows
    beyond: float


class MovesAlone:
    """Some moves of a trace through HBM, and how much longer they take alone than
    formulas say, on the recorded machine.
    """

    def __init__(self, trace: Trace, machine: Machine, moves: Moves) -> None:
        self._trace = trace
        self._turns = turns_of(trace)
        begun = np.where(moves.asked >= 0, trace.transfers.t0[moves.asked], moves.t0)
        takes = trace.op_columns.t_end[moves.op] - begun
        by_host = moves.by == BY_HOST
        in_hbm = (moves.memory >= IN_OPEN_ROW) & (takes > 0.0)
        groups = [in_hbm & by_host, in_hbm & ~by_host]
        by_node = np.lexsort((moves.t0, moves.node))
        place = np.argsort(by_node)
        chosen: list[list[Ints]] = []
        for group in groups:
            chosen.append([])
            for row in _by_lot(group, takes).tolist():
                at = int(place[row])
                before = by_node[max(at - _BEFORE, 0) : at]
                before = before[moves.node[before] == moves.node[row]]
                chosen[-1].append(np.append(before, row))
        used = np.unique(np.concatenate([np.empty(0, np.int64), *chain(*chosen)]))
        self._moves = moves.take(used)
        finder = MoveFinder(trace, machine, self._moves, self._turns)
        self._tried: list[list[_Tried]] = []
        for some in chosen:
            tried = []
            for rows in some:
                at = int(rows[-1])
                behind = np.searchsorted(used, rows)
                one = self._explained(machine, finder, behind, float(takes[at]))
                if one is not None:
                    tried.append(one)
            self._tried.append(tried)
        self._off: dict[TopologySpec, float] = {}

    def _explained(
        self, machine: Machine, finder: MoveFinder, behind: Ints, takes: float
    ) -> _Tried | None:
        """The last of some moves to a controller, tried on the recorded machine; None
        if the trace does not say what it moves.
        """
        sent = _sent(finder, behind)
        if sent is None:
            return None
        hbm = machine.spec.cube.hbm
        formula = self._by_formulas(machine, behind)
        alone = {rows: self._alone(hbm, sent, rows) for rows in ROWS}
        # As recorded; if others were at work beside it, as formulas say.
        for known in (takes, formula):
            for rows, ns in alone.items():
                if abs(ns - known) < SAME_NS:
                    return _Tried(behind, takes, rows, ns - formula)
        return _Tried(behind, takes, "as before", alone["as before"] - formula)

    def off(self, machine: Machine) -> float:
        """By which share of what moves took formulas are off on a machine, of those of
        the host or of the DMAs: what is more.
        """
        if machine.spec not in self._off:
            self._off[machine.spec] = self._found_off(machine)
        return self._off[machine.spec]

    def _found_off(self, machine: Machine) -> float:
        """As ``off``, found out."""
        most = 0.0
        hbm = machine.spec.cube.hbm
        finder = MoveFinder(self._trace, machine, self._moves, self._turns)
        for group in self._tried:
            shares = []
            for one in group:
                sent = _sent(finder, one.moves)
                if sent is None:
                    continue
                beyond = self._alone(hbm, sent, one.rows)
                beyond -= self._by_formulas(machine, one.moves)
                shares.append(abs(beyond - one.beyond) / one.takes)
            if shares:
                most = max(most, sum(shares) / len(shares))
        return most

    def _by_formulas(self, machine: Machine, moves: Ints) -> float:
        return _by_formulas(machine, self._moves.take(moves[-1:]))

    def _alone(self, hbm: HbmSpec, sent: list[Sent], rows: Rows) -> float:
        """How long the last of some moves takes, each sent when all before it have
        landed long since, ns.
        """
        landed = [0.0]
        agenda = Agenda()

        def lands(one: Sent, when: float) -> None:
            landed.append(when)

        deliveries = Deliveries(hbm, self._turns, agenda.at, lands)
        age: Age = (0.0, 0, 0, False)
        last = sent[-1]
        if rows == "open":
            order = [last, last]
        else:
            first = sent[0] if rows == "as before" else last
            shifted = [p._replace(base=p.base + _OTHER_ROW) for p in first.pieces]
            order = [first._replace(pieces=tuple(shifted)), last]
            if rows == "as before":
                order[1:] = sent
        begins = 0.0
        for one in order:
            begins = landed[-1] + _REST_NS
            agenda.at(begins, one.turn, partial(deliveries.begin, sent=one, age=age))
            agenda.run()
        return landed[-1] - begins


def _by_lot(candidates: Bools, takes: Floats) -> Ints:
    """Moves chosen by lot, each as likely as it took long."""
    rows = np.flatnonzero(candidates)
    if len(rows) <= _TRIED:
        return rows
    share = np.cumsum(takes[rows])
    lots = np.random.default_rng(0).random(_TRIED) * share[-1]
    return np.asarray(rows[np.searchsorted(share, lots, side="right")])


def _sent(finder: MoveFinder, moves: Ints) -> list[Sent] | None:
    """What moves send, as far as is known; None if it is not known of the last."""
    finder.forget()
    sent = [finder.sent(move) for move in moves.tolist()]
    return None if sent[-1] is None else [one for one in sent if one is not None]


def _by_formulas(machine: Machine, move: Moves) -> float:
    """How long one move takes by the formulas of the graph, behind its set-up, ns."""
    hop = np.zeros(1, np.int64)
    begins = np.zeros(1)
    lands = weights.is_written
    if move.is_read[0]:
        by = np.full(1, SET_UP_BEFORE)
        begins = weights.read_begins(machine, move.request, by, move.memory)
        lands = weights.lands
    follows = np.zeros(1)
    if move.several[0]:
        follows = weights.bursts_follow(
            machine, move.path, move.before_last, move.by, move.memory
        )
    last, whole = (
        lands(machine, move.path, hop, nbytes, move.by, move.memory)
        for nbytes in (move.last_bytes, move.nbytes)
    )
    return float((begins + np.maximum(follows + last, whole))[0])

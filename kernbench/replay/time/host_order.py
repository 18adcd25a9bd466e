"""What the host had done before it made a call: the order of its calls.

Each rank has a stream of calls, at the end point of its SIP, and the bench itself has
one at all of them. The calls of a stream begin one after the other. A barrier holds
those of all ranks, and so does what waits until the machine is idle. A trace does not
say which stream a call is of, nor when the machine was idle. Both show in the numbers
of the calls, since ranks make theirs in turns, the lowest rank first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints, running_count
from kernbench.common.exact_time import SAME_NS
from kernbench.replay.time.moments import BARRIER, Moments
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

_LAUNCH = "launch "
"""How the call of a launch begins."""

_NONE = -1


class HostOrder(NamedTuple):
    """What calls of the host come after, in pairs.

    ``call``, a row of ``Trace.commands``, is made when the node ``cause`` has come; one
    that comes after nothing is in no pair. Of the pairs of a call that of its own end
    point is the last. ``of_launch`` is by place in ``Trace.launches`` the row of the
    launch's call, -1 where it is lost. ``ends`` are the nodes with which calls have
    ended.
    """

    cause: Ints
    call: Ints
    of_launch: Ints
    ends: Ints

    def before(self, times: Floats, moments: Moments) -> Ints:
        """The node with which the last call by each of some times (ns) ended; -1: none.

        That is for what no call is known of.
        """
        when = moments.times[self.ends]
        order = np.argsort(when, kind="stable")
        at = np.searchsorted(when[order], times + SAME_NS) - 1
        return np.append(self.ends[order], _NONE)[at]


def host_order(trace: Trace, moments: Moments) -> HostOrder:
    """The order of all calls of the host."""
    log = trace.commands
    rows = np.flatnonzero(log.launch[:] < 0)
    rows = rows[np.argsort(log.cmd[rows], kind="stable")]
    of_launch = _calls_of_launches(trace, rows)
    ends = moments.call_return(rows)
    launches = np.flatnonzero(of_launch >= 0)
    place = Groups(of_launch[launches]).first(rows)
    is_launch = place >= 0
    ends[is_launch] = moments.launch_end(launches[place[is_launch]])
    order = _Order(log.pe[rows], log.t_issue[rows], moments.times[ends])
    cause, call = order.pairs()
    cause, call = _across_barriers(trace, rows, cause, call)
    return HostOrder(ends[cause], rows[call], of_launch, ends)


def _calls_of_launches(trace: Trace, rows: Ints) -> Ints:
    """By place in ``Trace.launches`` the call of each; -1 for all if some are lost.

    ``rows`` are the calls of the host in the order of their numbers, which is also that
    of the launches' numbers.
    """
    log = trace.commands
    launches = trace.launches
    texts = trace.strings
    mine = [
        row
        for row, name in zip(rows.tolist(), log.call[rows].tolist(), strict=True)
        if texts[name].startswith(_LAUNCH)
    ]
    found = np.full(len(launches), _NONE)
    if len(mine) == len(launches):
        by_number = sorted(range(len(launches)), key=lambda at: launches[at].launch)
        found[by_number] = mine
    return found


class _Order:
    """Some calls in the order of their numbers: where and when each was made and ended.

    All times are ns.
    """

    def __init__(self, end_point: Array, made: Floats, ended: Floats) -> None:
        self._end_point = end_point.astype(np.int64)
        self._made = made
        self._ended = ended

    def pairs(self) -> tuple[Ints, Ints]:
        """Pairs of a call and one that came after it, by places, in the order of those.

        A call comes after the one before it at its end point. It also comes after all
        at others if it was made later than that ended, or is the first in the turn of a
        rank: then something else was awaited.
        """
        count = len(self._made)
        calls = np.arange(count)
        by_point = np.argsort(self._end_point, kind="stable")
        same = np.diff(self._end_point[by_point]) == 0
        before = np.full(count, _NONE)
        before[by_point[1:][same]] = by_point[:-1][same]
        turn = running_count(np.diff(self._end_point, prepend=_NONE) < 0)
        awaited = before < 0
        awaited[~awaited] = (
            self._ended[before[~awaited]] < self._made[~awaited] - SAME_NS
        )
        awaited |= (before < 0) | (turn[before] < turn)
        causes = []
        effects = []
        for end_point in np.unique(self._end_point).tolist():
            here = np.flatnonzero(self._end_point == end_point)
            others = np.flatnonzero(awaited & (self._end_point != end_point))
            latest = np.maximum.accumulate(self._ended[here])
            at = np.searchsorted(latest, self._made[others] + SAME_NS, side="right") - 1
            known = at >= 0
            causes.append(here[at[known]])
            effects.append(others[known])
        own = before >= 0
        cause = np.concatenate([*causes, before[own]])
        effect = np.concatenate([*effects, calls[own]])
        order = np.argsort(effect, kind="stable")
        return cause[order], effect[order]


def _across_barriers(
    trace: Trace, rows: Ints, cause: Ints, call: Ints
) -> tuple[Ints, Ints]:
    """The pairs, and those of calls of a barrier: each comes after what all come after.

    Calls are places in ``rows``. Those of one barrier return at the same time.
    """
    log = trace.commands
    texts = trace.strings
    names = [texts[name] for name in log.call[rows].tolist()]
    is_barrier = np.array([name == BARRIER for name in names], np.bool_)
    if not is_barrier.any():
        return cause, call
    barriers = np.flatnonzero(is_barrier)
    passed = np.unique(log.t_resume[rows[barriers]], return_inverse=True)[1]
    group = np.full(len(rows), _NONE)
    group[barriers] = passed.reshape(-1)
    of_barrier = np.flatnonzero(is_barrier[call])
    place, member = Groups(group[barriers]).join(group[call[of_barrier]])
    cause = np.concatenate([cause[of_barrier][place], cause])
    call = np.concatenate([barriers[member], call])
    order = np.argsort(call, kind="stable")
    return cause[order], call[order]

"""The moments of a trace, the nodes of its graphs: starts, ends and returns."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.trace import Trace

BARRIER = "barrier"
"""The call of a rank that waits for all others."""

_NONE = -1


class Moments:
    """The nodes by number, and when each of them happens (``times``, ns).

    They are numbered in this order: the ends of ops by row, the starts of launches, the
    returns of kernels' calls, the ends of launches, the returns of calls of the host,
    those of barriers last, the starts of ops from the last row to the first. Of two
    nodes at one time the one of the lower number may be the cause of the other, never
    the reverse: an op that starts as another ends comes after it, and a rank goes on
    behind a barrier as the launch of another ends.
    """

    def __init__(self, trace: Trace) -> None:
        ops = trace.op_columns
        launches = trace.launches
        starts = np.array([launch.t_start for launch in launches], np.float64)
        ends = np.array([launch.t_end for launch in launches], np.float64)
        returns = trace.commands.t_resume[:]
        calls, kernel_calls = _calls_in_order(trace)
        in_order = returns[calls]
        self.times: Floats = np.concatenate(
            [
                ops.t_end[:],
                starts,
                in_order[:kernel_calls],
                ends,
                in_order[kernel_calls:],
                ops.t_start[:][::-1],
            ]
        )
        self.op_count = len(ops.t_end)
        self.launch_count = len(launches)
        first_return = self.op_count + self.launch_count
        self._first_launch_end = first_return + kernel_calls
        self._first_op_start = first_return + len(returns) + self.launch_count
        place = np.arange(len(returns))
        place[kernel_calls:] += self.launch_count
        self._return_of_call = np.empty(len(returns), np.int64)
        self._return_of_call[calls] = first_return + place

    def op_start(self, rows: Ints) -> Ints:
        """The starts of the ops in some rows; their ends are the rows themselves."""
        return len(self.times) - 1 - rows

    def launch_start(self, launches: Ints) -> Ints:
        """The starts of some launches, by their place in ``trace.launches``."""
        return self.op_count + launches

    def call_return(self, calls: Ints) -> Ints:
        """The returns of the calls in some rows of ``trace.commands``."""
        return self._return_of_call[calls]

    def launch_end(self, launches: Ints) -> Ints:
        """The ends of some launches, by their place in ``trace.launches``."""
        return self._first_launch_end + launches

    def all_launch_ends(self) -> Ints:
        """The ends of all launches."""
        return self.launch_end(np.arange(self.launch_count))

    def is_op_end(self, nodes: Ints) -> Array:
        """Which of some nodes are ends of ops."""
        return nodes < self.op_count

    def ops_at(self, nodes: Ints) -> Ints:
        """The rows of the ops whose starts or ends some nodes are; -1 for others."""
        starts = nodes >= self._first_op_start
        rows = np.where(starts, len(self.times) - 1 - nodes, nodes)
        return np.where(starts | self.is_op_end(nodes), rows, _NONE)

    def calls_at(self, nodes: Ints) -> Ints:
        """The rows of the calls whose returns some nodes are; -1 for others."""
        found = np.full(len(self.times), _NONE)
        found[self._return_of_call] = np.arange(len(self._return_of_call))
        return np.asarray(found[nodes])


def _calls_in_order(trace: Trace) -> tuple[Ints, int]:
    """The rows of all calls: of kernels, as many as the number that is returned, of the
    host, and those of barriers.
    """
    log = trace.commands
    is_of_host = log.launch[:] < 0
    kind = is_of_host.astype(np.int8)
    here = np.flatnonzero(is_of_host)
    texts = trace.strings
    names = [texts[name] for name in log.call[here].tolist()]
    kind[here] += np.array([name == BARRIER for name in names], np.bool_)
    return np.argsort(kind, kind="stable"), len(kind) - len(here)

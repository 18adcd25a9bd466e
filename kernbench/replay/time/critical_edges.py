"""What cannot come before what: the edges that the critical path is found in.

An edge says that its effect, a node (moments.py), cannot come before its cause, and how
much later than the cause alone asks for (ns, the gap) it came. All of it is found in
whole columns.

Edges come from what the machine guarantees (a lane serves one op after the other, a
call returns when what it awaits has ended) and from what was recorded (which op ended
each wait). Not all of them lead forward: the graph keeps those that do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Array,
    Floats,
    Ints,
    counted,
    numbered,
    running_count,
)
from kernbench.common.exact_time import SAME_NS, exact_times
from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.replay.program_order import program_order, unnamed_holds
from kernbench.replay.time.host_order import host_order
from kernbench.replay.time.moments import Moments
from kernbench.replay.time.op_classes import CLASSES
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import (
    are_of_types,
    has_text,
    integers,
    named,
    rows_of_calls,
    tile_columns,
)
from kernbench.trace.spec_values import issue_ns, sent_bytes_per_ns, spec_number

# What the time between two moments counts as: an op of a class in service, a wait, a
# call being issued, the host at work, a push being set up.
WHATS = (*CLASSES.values(), *WAIT_REASONS, "issue", "host", "set-up", "unexplained")
FIRST_REASON = len(CLASSES)
ENGINE = WHATS.index("engine")
OPERAND = WHATS.index("operand")
LAUNCH = WHATS.index("launch")
ISSUE = WHATS.index("issue")
HOST = WHATS.index("host")
SET_UP = WHATS.index("set-up")
UNEXPLAINED = WHATS.index("unexplained")

_DMA = "pe_dma"
_DMA_SLOTS = "pe.dma.outstanding"
"""The type of the nodes that serve several ops at once, and how many of each kind."""

_NONE = -1


class Edges(NamedTuple):
    """Some edges, each from node ``cause`` to node ``effect``, a value an edge.

    ``what`` (of WHATS) is what the time between the two counts as; it may be one value
    for all of them. Where the cause or the gap (ns) is negative there is no edge.
    """

    cause: Ints
    effect: Ints
    gap: Floats
    what: Ints | int


class _Issues(NamedTuple):
    """How each call came about, by row of ``trace.commands``.

    ``by`` is the node after which it comes, -1 for a call of the host, and ``at`` when
    PE_CPU has issued it (ns); ``what`` (of WHATS) is what the time between these counts
    as. ``last`` is the last call of its kernel, -1 for a call of the host.
    """

    by: Ints
    at: Floats
    what: Ints
    last: Ints


class EdgeFinder:
    """Finds the edges of a trace, in batches of a kind.

    Where several edges bind a node the path takes the one that was found last, so the
    order of ``batches`` is part of the answer: causes that say more come later.
    """

    def __init__(self, trace: Trace, classes: Ints, moments: Moments) -> None:
        self._trace = trace
        self._classes = classes
        self._moments = moments
        self.call_of_op = rows_of_calls(trace, trace.op_columns.cmd[:])
        self._composite, self._tile = tile_columns(trace)
        self._is_push = named(trace, "ipcq_copy")
        self._host = host_order(trace, moments)
        self._issues = self._how_issued()

    def batches(self) -> tuple[Callable[[], tuple[Edges, ...]], ...]:
        """What finds each batch, of one or two kinds of edges."""
        return (
            self._lanes,
            self._issued,
            self._asked_by_host,
            self._tiles_of_composites,
            self._tiles_in_turn,
            self._ring_slots_in_turn,
            self._waited,
            self._served,
            self._ends_of_kernels,
            self._awaited,
            self._ends_of_launches,
        )

    # -- ops in turn --

    def _lanes(self) -> tuple[Edges, ...]:
        """An op starts when its lane is free.

        The lane of an engine is one slot. Of the slots of a PE_DMA any will do: the op
        comes after the last one in its own slot only if all others were taken.
        """
        slot = self._trace.op_columns.slot[:]
        pool, slots = pools(self._trace, self.call_of_op)
        rows = np.arange(self._moments.op_count)
        edges = self._in_turn(rows, (slot, pool), ENGINE)
        was_full = self._served_beside(pool) >= slots - 1
        kept = was_full[self._moments.ops_at(edges.effect)]
        cause, effect, gap, _ = edges
        return (Edges(cause[kept], effect[kept], gap[kept], ENGINE),)

    def _served_beside(self, pool: Ints) -> Ints:
        """By row how many other ops of its pool of slots are served as an op starts."""
        ops = self._trace.op_columns
        by_start = np.lexsort((ops.t_start[:], pool))
        by_end = np.lexsort((ops.t_end[:], pool))
        first = np.searchsorted(pool[by_start], pool)
        started = np.empty(len(pool), np.int64)
        started[by_start] = np.arange(len(pool))
        # All of a pool are put behind those of the pool before, so that one search
        # among the ends of all finds how many of its own had ended.
        span = float(ops.t_end[:].max(initial=0.0)) + 1.0
        number = numbered(pool)[1]
        ends = number[by_end] * span + ops.t_end[:][by_end]
        starts = number * span + ops.t_start[:]
        ended = np.searchsorted(ends, starts + SAME_NS, side="right")
        return (started - first) - (ended - first)

    def _tiles_in_turn(self) -> tuple[Edges, ...]:
        """A stage of a tile starts when the one before it has ended."""
        rows = np.flatnonzero(self._tile >= 0)
        cmd = self._trace.op_columns.cmd[rows]
        return (self._in_turn(rows, (self._tile[rows], cmd), OPERAND),)

    def _ring_slots_in_turn(self) -> tuple[Edges, ...]:
        """A ring slot is sent to, received from, sent to …, one after the other."""
        slots = self._ring_slots()
        rows = np.flatnonzero(slots)
        return (self._in_turn(rows, (slots[rows],), OPERAND),)

    def _in_turn(self, rows: Ints, keys: tuple[Array, ...], what: int) -> Edges:
        """Each of ``rows`` comes after the one before it that has the same keys."""
        ops = self._trace.op_columns
        order = np.lexsort((ops.t_start[rows], *keys))
        same = np.full(max(len(rows) - 1, 0), True)
        for key in keys:
            in_order = key[order]
            same &= in_order[1:] == in_order[:-1]
        before = rows[order[:-1][same]]
        after = rows[order[1:][same]]
        gap = ops.t_start[after] - ops.t_end[before]
        return Edges(before, self._moments.op_start(after), gap, what)

    def _ring_slots(self) -> Ints:
        """By row the address of the ring slot that an op fills or empties; 0: none."""
        slots = np.zeros(self._moments.op_count, np.int64)
        param = {"ipcq_copy": "dst_addr", "ipcq_recv": "src_addr"}
        for block in self._trace.param_blocks():
            if block.schema.name in param:
                numbers = integers(block)
                slots[block.rows] = numbers.get(param[block.schema.name], 0)
        return slots

    # -- calls --

    def _how_issued(self) -> _Issues:
        log = self._trace.commands
        launch = log.launch[:]
        in_kernel = launch >= 0
        turn = np.lexsort((launch, log.pe[:]))  # the calls of a kernel in one run
        follows = np.diff(launch[turn]) == 0
        follows &= np.diff(log.pe[turn].astype(np.int64)) == 0
        follows &= in_kernel[turn[1:]]

        # The first call of a kernel comes after the start of its launch, each further
        # one after the return of the one before it.
        numbers = np.array([x.launch for x in self._trace.launches], np.int64)
        by = np.where(in_kernel, Groups(numbers).first(launch), _NONE)
        by[by >= 0] = self._moments.launch_start(by[by >= 0])
        by[turn[1:][follows]] = self._moments.call_return(turn[:-1][follows])
        # Of a launch that never ended nothing else is known than what was before it.
        free = in_kernel & (by < 0)
        by[free] = self._host.before(log.t_issue[free], self._moments)
        is_last = np.append(~follows, True)[: len(turn)]
        kernel = running_count(np.append(False, ~follows))[: len(turn)]
        last = np.empty(len(turn), np.int64)
        last[turn] = turn[is_last][kernel]
        last[~in_kernel] = _NONE

        what = np.full(len(turn), HOST)
        what[in_kernel] = ISSUE
        if len(turn):
            late = log.t_issue[:] > self._moments.times[by] + SAME_NS
            what[in_kernel & late] = LAUNCH
        # The end of a kernel is recorded as a call, which nobody issues.
        is_issued = in_kernel & ~has_text(self._trace, log.call, "exit")
        at = log.t_issue[:] + issue_ns(self._trace.spec) * is_issued
        return _Issues(by, at, what, last)

    def _issued(self) -> tuple[Edges, ...]:
        """A call returns, and its ops start, when it has been issued.

        A tile starts after its composite instead.
        """
        log = self._trace.commands
        issues = self._issues
        moments = self._moments
        returns = Edges(
            cause=issues.by,
            effect=moments.call_return(np.arange(len(issues.by))),
            gap=log.t_resume[:] - issues.at,
            what=issues.what,
        )
        rows = np.flatnonzero((self.call_of_op >= 0) & (self._composite < 0))
        call = self.call_of_op[rows]
        starts = Edges(
            cause=issues.by[call],
            effect=moments.op_start(rows),
            gap=self._trace.op_columns.t_start[rows] - issues.at[call],
            what=issues.what[call],
        )
        return returns, starts

    def _ends_of_kernels(self) -> tuple[Edges, ...]:
        """A kernel ends, by the return of its last call, when its ops have ended, or
        the bytes of its sends have left.
        """
        rows = np.flatnonzero(self.call_of_op >= 0)
        last = self._issues.last[self.call_of_op[rows]]
        return self._waited_for(rows[last >= 0], last[last >= 0])

    def _awaited(self) -> tuple[Edges, ...]:
        """A call returns when the ops that it awaits have ended.

        Of a composite these do not include the tiles. A send returns before its op has
        ended: when its bytes have left.
        """
        log = self._trace.commands
        cmd = self._trace.op_columns.cmd[:]
        rows = np.flatnonzero((self._composite < 0) & (cmd != NO_CMD))
        cmd_awaited = np.where(log.launch[:] < 0, log.cmd[:], log.awaits[:])
        place, call = Groups(cmd_awaited).join(cmd[rows])
        return self._waited_for(rows[place], call.astype(np.int64))

    def _waited_for(self, rows: Ints, call: Ints) -> tuple[Edges, ...]:
        """Each of some calls returns when an op has ended; of a push when its bytes
        have left, however late they land.
        """
        ops = self._trace.op_columns
        moments = self._moments
        returns = self._trace.commands.t_resume[call]
        effect = moments.call_return(call)
        is_push = self._is_push[rows]
        whole = rows[~is_push]
        ended = Edges(
            cause=whole,
            effect=effect[~is_push],
            gap=returns[~is_push] - ops.t_end[whole],
            what=OPERAND,
        )
        sent = rows[is_push]
        rate = sent_bytes_per_ns(self._trace.spec)
        bytes_left = ops.t_start[sent] + exact_times(ops.nbytes[sent] / rate)
        left = Edges(
            cause=moments.op_start(sent),
            effect=effect[is_push],
            gap=returns[is_push] - bytes_left,
            what=self._classes[sent],
        )
        return left, ended

    # -- tiles, waits and service --

    def _tiles_of_composites(self) -> tuple[Edges, ...]:
        """A tile starts when its composite has, which ends when its tiles have."""
        ops = self._trace.op_columns
        op_start = self._moments.op_start
        tiles = np.flatnonzero(self._composite >= 0)
        whole = self._composite[tiles]
        start_gap = ops.t_start[tiles] - ops.t_start[whole]
        end_gap = ops.t_end[whole] - ops.t_end[tiles]
        starts = Edges(op_start(whole), op_start(tiles), start_gap, OPERAND)
        return starts, Edges(tiles, whole, end_gap, OPERAND)

    def _waited(self) -> tuple[Edges, ...]:
        """An op starts when what it waited for has ended, or only started.

        A call that is held in program order returns when its operand has come.
        """
        ops = self._trace.op_columns
        log = self._trace.commands
        waits = self._trace.waits
        moments = self._moments
        holders = self._holders()
        some = np.flatnonzero((waits.row[:] >= 0) & (holders >= 0))
        row = waits.row[some]
        holder = holders[some]
        until = waits.t1[some]
        what = FIRST_REASON + waits.reason[some].astype(np.int64)
        ended = ops.t_end[holder] <= until + SAME_NS
        started = ops.t_start[holder] <= until
        cause = np.where(ended, holder, moments.op_start(holder))
        # What had not even started by then did not end the wait.
        gap = np.where(ended | started, ops.t_start[row] - until, -1.0)
        starts = Edges(cause, moments.op_start(row), gap, what)

        call = self.call_of_op[row]
        held = np.flatnonzero((what == OPERAND) & (call >= 0))
        held = held[log.pe[call[held]] == waits.node[some[held]]]
        call = call[held]
        returns = Edges(
            cause=cause[held],
            effect=moments.call_return(call),
            gap=log.t_resume[call] - until[held],
            what=what[held],
        )
        return starts, returns

    def _holders(self) -> Ints:
        """By wait the op that ended it, or that it was held behind; -1: unknown."""
        waits = self._trace.waits
        found = waits.holder[:].astype(np.int64)
        unnamed = unnamed_holds(self._trace, self._composite)
        if len(unnamed):
            row = waits.row[unnamed].astype(np.int64)
            order = program_order(self._trace, self.call_of_op, self._composite)
            found[unnamed] = order.holders(row, waits.t1[unnamed])
        return found

    def _served(self) -> tuple[Edges, ...]:
        """An op ends when it has been served; a composite, when its tiles have."""
        composites = self._composite[self._composite >= 0]
        tiles = counted(composites, self._moments.op_count)
        rows = np.flatnonzero(tiles == 0)
        starts = self._moments.op_start(rows)
        return (Edges(starts, rows, np.zeros(len(rows)), self._classes[rows]),)

    # -- launches and the host --

    def _asked_by_host(self) -> tuple[Edges, ...]:
        """What the host asks for starts after what it had done before, as it has then.

        A call that moves nothing returns then, as do launches: that is time of the
        host. One that moves something returns when that has ended.
        """
        log = self._trace.commands
        moments = self._moments
        host = self._host
        when = moments.times[host.cause]
        asked = np.full(len(log.cmd), -np.inf)
        np.maximum.at(asked, host.call, when)
        early = asked[host.call] - when

        rows = np.flatnonzero((self.call_of_op >= 0) & (self._composite < 0))
        has_op = np.zeros(len(log.cmd), np.bool_)
        has_op[self.call_of_op[rows]] = True
        took = log.t_resume[host.call] - log.t_issue[host.call]
        returns = Edges(
            cause=host.cause,
            effect=moments.call_return(host.call),
            gap=early + took * has_op[host.call],
            what=HOST,
        )
        pair, op = Groups(self.call_of_op[rows]).join(host.call)
        op = rows[op]
        delay = self._trace.op_columns.t_start[op] - log.t_issue[host.call[pair]]
        starts = Edges(
            host.cause[pair], moments.op_start(op), early[pair] + delay, HOST
        )
        known = np.flatnonzero(host.of_launch >= 0)
        pair, launch = Groups(host.of_launch[known]).join(host.call)
        started = moments.launch_start(known[launch])
        launched = Edges(host.cause[pair], started, early[pair], HOST)
        lost = np.flatnonzero(host.of_launch < 0)
        times = np.array([self._trace.launches[at].t_issue for at in lost.tolist()])
        found = host.before(times, moments)
        by_time = Edges(found, moments.launch_start(lost), np.zeros(len(lost)), HOST)
        return returns, starts, launched, by_time

    def _ends_of_launches(self) -> tuple[Edges, ...]:
        """A launch ends when the last calls of its kernels have returned."""
        log = self._trace.commands
        launches = self._trace.launches
        moments = self._moments
        last = self._issues.last
        exits = np.unique(last[last >= 0])
        numbers = np.array([launch.launch for launch in launches], np.int64)
        launch = Groups(numbers).first(log.launch[exits])
        exits = exits[launch >= 0]
        ends = moments.launch_end(launch[launch >= 0])
        gap = moments.times[ends] - log.t_resume[exits]
        return (Edges(moments.call_return(exits), ends, gap, OPERAND),)


def pools(trace: Trace, call_of_op: Ints) -> tuple[Ints, Ints]:
    """By row which pool of slots an op has one of, and how many that has.

    A push is recorded at the PE_DMA that gets it, but has a slot of the one that sends
    it: of the PE that made its call (``call_of_op``, by row; -1: none).
    """
    ops = trace.op_columns
    server = ops.component[:].astype(np.int64)
    slots = slots_at(trace, server)
    pushed = np.flatnonzero(named(trace, "ipcq_copy") & (call_of_op >= 0))
    server[pushed] = trace.commands.pe[call_of_op[pushed]]
    return server << 32 | ops.slot[:] // slots, slots


def slots_at(trace: Trace, component: Ints) -> Ints:
    """How many ops some components serve at once, of a kind each."""
    if not trace.nodes.type:  # recorded without a machine
        return np.ones(len(component), np.int64)
    outstanding = int(spec_number(trace.spec, _DMA_SLOTS)) or 1
    return np.where(are_of_types(trace, {_DMA})[component], outstanding, 1)

"""The graph that is re-timed: moments, what has to come before what, and weights.

An edge says that its effect comes no sooner than its cause and a weight of a class
(weights.py). On the recorded machine that leaves a gap; the least gap into a node is
its rest, what no edge explains. It is kept as it was, so that nothing changed gives
what was recorded, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.replay.program_order import (
    HELD,
    ProgramOrder,
    program_order,
    unnamed_holds,
)
from kernbench.replay.time.critical_edges import pools
from kernbench.replay.time.host_order import host_order
from kernbench.replay.time.moments import Moments
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.channels import takers
from kernbench.replay.whatif.launch_ways import launch_ways
from kernbench.replay.whatif.machine import Machine, Ways
from kernbench.replay.whatif.moves import Moves, moves_of
from kernbench.replay.whatif.servers import Ramp, Ramps, carried
from kernbench.replay.whatif.services import Services, services_of
from kernbench.replay.whatif.weights import IN_CLOSED_ROW, IN_OPEN_ROW, Weights
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import integers, kernel_lines, named, tile_columns
from kernbench.trace.spec_values import spec_number

_NONE = -1
_ARRIVED = WAIT_REASONS.index("arrival")
_IN_MEMORY = WAIT_REASONS.index("hbm_channel")
_PLAIN = 0
_AT_LINK = 1
_AT_MEMORY = 2
_SLOT = 3
_AT_CHANNEL = 4
"""Kinds of edges: of all but the first a graph says which they are."""

_BUSY_SHARE = 0.2
"""Of the time between two transactions on a link: if it was busy for less, the second
would not wait for the first on a link five times as slow."""

MOST_SLOWER = 4.0
"""By which a link may be slower for a graph to know who would wait for whom there: with
less than ``_BUSY_SHARE`` between two, no edge says so."""


class Lanes(NamedTuple):
    """Ops that started one after the other at an engine, in pairs of neighbours.

    ``before`` and ``behind`` are their starts, ``pool`` is a number of the slots that
    they share.
    """

    before: Ints
    behind: Ints
    pool: Ints


class Served(NamedTuple):
    """Who was served by servers of a kind, by server and then by time.

    ``server`` is a number of one, ``node`` when it gave something to a transaction, and
    ``takes`` how long that keeps it busy at least, ns.
    """

    server: Ints
    node: Ints
    takes: Floats


@dataclass(frozen=True)
class Graph:
    """Nodes by number, and edges in the order in which a walk takes them.

    ``times`` is when each node came, ``rest`` how much later than its edges explain,
    ns. ``roots`` have no edge into them and stay where they were. By edge: ``cause``,
    ``effect``, ``weight``, a class of ``table``, and ``line``, the kernel line whose
    step it is (a place in ``lines``, -1: of none); ``is_queue`` says that the two were
    served one behind the other by a link, a controller of HBM or a channel of a TCM,
    ``is_memory`` that it was a controller, ``is_channel`` a channel; ``is_slot`` that
    an op started when another had left its engine. The edges into a node follow each
    other, and come after those into each of their causes. ``last`` are the nodes with
    which a run may end, ``served`` are those at links and controllers, ``reads`` and
    ``writes`` those at the channels of a TCM.
    ``in_order`` are pairs of starts of tiles, of which the second never asks for its
    engine before the first one does. ``lanes`` are ops at their engines,
    ``host_begins`` the starts of launches and of ops of the host, which come as soon as
    what it awaits. ``issued_after`` is by call the node at which the kernel could issue
    it (-1: none), ``moves`` is what ops move over links, ``program_order`` what kernels
    have issued. ``held_by_none`` says that an op was held in program order, and behind
    which is not found.

    A ``weight`` of -1 - i is that of tile i in the array, whose end has one edge, from
    its start. It takes the class ``streams[i]`` if it starts as soon as node
    ``behind[i]`` comes, the end of the tile before it, and ``cold[i]`` if later.
    """

    moments: Moments
    times: Floats
    rest: Floats
    roots: Ints
    cause: Array
    effect: Array
    weight: Array
    line: Array
    behind: Ints
    cold: Ints
    streams: Ints
    table: Weights
    lines: tuple[str, ...]
    last: Ints
    is_queue: Bools
    is_memory: Bools
    is_channel: Bools
    is_slot: Bools
    served: Served
    reads: Served
    writes: Served
    in_order: tuple[Ints, Ints]
    lanes: Lanes
    host_begins: Ints
    moves: Moves
    issued_after: Ints
    program_order: ProgramOrder
    held_by_none: bool

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.times)

    @property
    def ends(self) -> Ints:
        """The nodes of which the last is the end: of launches, or of the run if there
        are none.
        """
        ends = self.moments.all_launch_ends()
        return ends if len(ends) else self.last

    @property
    def is_step_of_move(self) -> Bools:
        """Which nodes are steps of moves on their way, between start and end of an op.

        They come behind all moments; what comes last in a run is none of them.
        """
        found = np.arange(self.nodes) >= len(self.moments.times)
        found[self.last] = False
        found[self.reads.node] = False
        found[self.writes.node] = False
        return found


class _Edges(NamedTuple):
    """Some edges; ``is_certain`` ones are kept though they came too soon."""

    cause: Ints
    effect: Ints
    weight: Ints
    is_certain: bool
    kind: int


def build_graph(trace: Trace, machine: Machine, progress: Progress) -> Graph:
    """The graph of all that a trace has recorded, on the machine that recorded it."""
    part = stage(progress, 0.0, 0.1)
    builder = computed_beside(lambda: _Builder(trace, machine), part, 0.0)
    return builder.graph(stage(progress, 0.1, 1.0))


class _Builder:
    """Finds nodes and edges, log by log."""

    def __init__(self, trace: Trace, machine: Machine) -> None:
        self._trace = trace
        self._machine = machine
        self._ways: Ways = machine.ways
        self._moments = Moments(trace)
        self._table = Weights()
        self._times = [self._moments.times]
        self._count = len(self._moments.times)
        self._edges: list[_Edges] = []
        self._steps: list[tuple[Ints, Ints]] = []
        self._last: Ints = np.empty(0, np.int64)
        self._served: list[Served] = []
        self._at_channels: list[Served] = []
        self._composite, self._tile = tile_columns(trace)
        self._host = host_order(trace, self._moments)
        self._call_of_op = Groups(trace.commands.cmd[:]).first(trace.op_columns.cmd[:])
        self._tiles = (np.empty(0, np.int64),) * 3
        self._is_push = named(trace, "ipcq_copy")
        self._in_order = (np.empty(0, np.int64),) * 2

    def graph(self, progress: Progress) -> Graph:
        """All of it."""
        trace = self._trace
        services = services_of(trace, self._table, stage(progress, 0.0, 0.2))
        steps = (
            self._calls,
            self._host_and_launches,
            self._lanes,
            self._tiles_in_turn,
            self._waits,
            self._rings,
            lambda: self._engines(services),
            lambda: self._channels(services),
        )
        for number, step in enumerate(steps):
            computed_beside(step, progress, 0.2 + 0.3 * number / len(steps))
        moves = moves_of(trace, self._ways, stage(progress, 0.5, 0.6))
        computed_beside(lambda: self._moves(moves), progress, 0.6)
        return computed_beside(self._sorted, progress, 0.9)

    # -- nodes and edges --

    def _nodes(self, times: Floats, op: Ints) -> Ints:
        """New nodes, which come at ``times`` ns and are steps of ops."""
        first = self._count
        self._times.append(times)
        self._count += len(times)
        nodes = np.arange(first, self._count)
        self._steps.append((nodes, op))
        return nodes

    def _add(
        self,
        cause: Ints,
        effect: Ints,
        weight: Ints | int = 0,
        is_certain: bool = False,
        kind: int = _PLAIN,
    ) -> None:
        """Edges; those whose cause is -1 are none."""
        weight = np.broadcast_to(np.asarray(weight, np.int64), cause.shape)
        effect = np.broadcast_to(effect, cause.shape)
        known = cause >= 0
        edges = _Edges(cause[known], effect[known], weight[known], is_certain, kind)
        self._edges.append(edges)

    def _sorted(self) -> Graph:
        """The graph of the edges that were found."""
        times = np.concatenate(self._times)
        rank = np.empty(len(times), np.int64)
        rank[np.argsort(times, kind="stable")] = np.arange(len(times))
        recorded = self._table.on(self._machine)
        behind, cold, streams = self._tiles
        causes = []
        effects = []
        classes = []
        gaps = []
        kinds = []
        for cause, effect, number, is_certain, kind in self._edges:
            weight = recorded[np.maximum(number, 0)]
            tile = number < 0
            at = -1 - number[tile]
            is_behind = times[cause[tile]] <= times[behind[at]]
            weight[tile] = recorded[np.where(is_behind, streams[at], cold[at])]
            gap = times[effect] - times[cause] - weight
            kept = rank[cause] < rank[effect]
            if not is_certain:
                kept &= gap > -SAME_NS
            causes.append(cause[kept].astype(np.int32))
            effects.append(effect[kept].astype(np.int32))
            classes.append(number[kept].astype(np.int32))
            gaps.append(gap[kept])
            kinds.append(np.full(len(gaps[-1]), kind, np.int8))
        self._edges.clear()
        cause = np.concatenate(causes)
        effect = np.concatenate(effects)
        number = np.concatenate(classes)
        # A tile has one edge; in a damaged trace its op may be of a move besides.
        tiles = np.flatnonzero(number < 0)
        mixed = tiles[np.bincount(effect, minlength=len(times))[effect[tiles]] > 1]
        at = -1 - number[mixed]
        streamed = times[cause[mixed]] <= times[behind[at]]
        number[mixed] = np.where(streamed, streams[at], cold[at])
        gap = np.concatenate(gaps)
        kind_of_edge = np.concatenate(kinds)
        lines, line_of_node = self._lines()
        order = np.argsort(rank[effect].astype(np.int32), kind="stable")
        cause = cause[order]
        effect = effect[order]
        kind_of_edge = kind_of_edge[order]
        is_memory = kind_of_edge == _AT_MEMORY
        rest = np.full(len(times), np.inf)
        first = np.flatnonzero(np.diff(effect, prepend=-1))
        if len(first):
            rest[effect[first]] = np.minimum.reduceat(gap[order], first)
        roots = np.flatnonzero(np.isinf(rest))
        rest[roots] = 0.0
        return Graph(
            moments=self._moments,
            times=times,
            rest=rest,
            roots=roots,
            cause=cause,
            effect=effect,
            weight=number[order],
            line=line_of_node[effect],
            behind=behind,
            cold=cold,
            streams=streams,
            table=self._table,
            lines=lines,
            last=self._last_nodes(),
            is_queue=np.isin(kind_of_edge, (_AT_MEMORY, _AT_LINK, _AT_CHANNEL)),
            is_memory=is_memory,
            is_channel=kind_of_edge == _AT_CHANNEL,
            is_slot=kind_of_edge == _SLOT,
            served=_all_served(self._served),
            reads=self._at_channels[0],
            writes=self._at_channels[1],
            in_order=self._in_order,
            lanes=self._in_lanes,
            host_begins=self._host_begins,
            moves=self._all_moves,
            issued_after=self._issued_after,
            program_order=self._program_order,
            held_by_none=self._held_by_none,
        )

    def _last_nodes(self) -> Ints:
        """All nodes with which a run may end."""
        moments = self._moments
        ops = np.arange(moments.op_count)
        return np.concatenate([ops, moments.all_launch_ends(), self._last])

    def _lines(self) -> tuple[tuple[str, ...], Array]:
        """The kernel lines, and by node the one that it is a step of, or -1.

        What the host does is no step of one.
        """
        log = self._trace.commands
        lines, line_of_call = kernel_lines(self._trace)
        line_of_call = np.where(log.launch[:] >= 0, line_of_call, _NONE)
        found = np.full(self._count, _NONE, np.int16)
        moments = self._moments
        line_of_op = np.append(line_of_call, _NONE)[self._call_of_op]
        rows = np.arange(moments.op_count)
        found[rows] = line_of_op
        found[moments.op_start(rows)] = line_of_op
        found[moments.call_return(np.arange(len(line_of_call)))] = line_of_call
        for nodes, op in self._steps:
            found[nodes] = line_of_op[op]
        return tuple(lines), found

    # -- calls --

    def _calls(self) -> None:
        """Calls one after the other, what they issue, and what they await."""
        trace = self._trace
        log = trace.commands
        moments = self._moments
        launch = log.launch[:]
        in_kernel = launch >= 0
        turn = np.lexsort((launch, log.pe[:]))  # the calls of a kernel in one run
        follows = np.diff(launch[turn]) == 0
        follows &= np.diff(log.pe[turn].astype(np.int64)) == 0
        follows &= in_kernel[turn[1:]]
        numbers = np.array([x.launch for x in trace.launches], np.int64)
        by = np.where(in_kernel, Groups(numbers).first(launch), _NONE)
        by[by >= 0] = moments.launch_start(by[by >= 0])
        by[turn[1:][follows]] = moments.call_return(turn[:-1][follows])
        free = in_kernel & (by < 0)
        by[free] = self._host.before(log.t_issue[free], moments)

        issued = np.where(in_kernel, self._table.of(weights.issue)[0], 0)
        self._issued_after = by
        calls = np.arange(len(by))
        self._add(by, moments.call_return(calls), issued)
        rows = np.flatnonzero((self._call_of_op >= 0) & (self._composite < 0))
        call = self._call_of_op[rows]
        begun = np.where(
            self._is_push[rows], self._table.of(weights.issued_push), issued[call]
        )
        self._add(by[call], moments.op_start(rows), begun)

        # A kernel ends when all that it has issued has.
        is_last = np.append(~follows, True)[: len(turn)]
        kernel = np.cumsum(np.append(False, ~follows))[: len(turn)]
        last = np.empty(len(turn), np.int64)
        last[turn] = turn[is_last][kernel]
        last[~in_kernel] = _NONE
        self._last_calls = np.unique(last[last >= 0])
        end = last[call]
        self._add(rows[end >= 0], moments.call_return(end[end >= 0]))
        self._awaited(rows)

    def _awaited(self, rows: Ints) -> None:
        """A call returns when what it awaits has ended, or was read, of a send."""
        trace = self._trace
        log = trace.commands
        ops = trace.op_columns
        cmd_awaited = np.where(log.launch[:] < 0, log.cmd[:], log.awaits[:])
        cmd = ops.cmd[:]
        rows = rows[cmd[rows] != NO_CMD]
        place, call = Groups(cmd_awaited).join(cmd[rows])
        rows = rows[place]
        effect = self._moments.call_return(call.astype(np.int64))
        self._add(rows, effect)
        early = self._moments.times[effect] < ops.t_end[rows] - SAME_NS
        sent = rows[early]
        left = self._table.of(weights.sent, ops.nbytes[sent].astype(np.int64))
        self._add(self._moments.op_start(sent), effect[early], left)

    # -- the host --

    def _host_and_launches(self) -> None:
        """What the host asks for, launches among it; these end with their kernels."""
        trace = self._trace
        moments = self._moments
        launches = trace.launches
        host = self._host
        self._add(host.cause, moments.call_return(host.call))
        pair, op = Groups(self._call_of_op).join(host.call)
        begins = moments.op_start(op.astype(np.int64))
        self._add(host.cause[pair], begins)

        reached = self._table.of(weights.launch, *launch_ways(trace, self._machine).T)
        known = np.flatnonzero(host.of_launch >= 0)
        pair, place = Groups(host.of_launch[known]).join(host.call)
        launch = known[place]
        starts = moments.launch_start(launch)
        self._add(host.cause[pair], starts, reached[launch])
        self._host_begins = np.concatenate([begins, starts])
        lost = np.flatnonzero(host.of_launch < 0)
        asked = np.array([launches[at].t_issue for at in lost.tolist()])
        before = host.before(asked, moments)
        self._add(before, moments.launch_start(lost), reached[lost])

        numbers = np.array([launch.launch for launch in launches], np.int64)
        ended = Groups(numbers).first(trace.commands.launch[self._last_calls])
        exits = self._last_calls[ended >= 0]
        ended = ended[ended >= 0]
        self._add(moments.call_return(exits), moments.launch_end(ended))

    # -- engines --

    def _lanes(self) -> None:
        """An op starts when one of the slots of its pool is free."""
        ops = self._trace.op_columns
        pool, slots = pools(self._trace, self._call_of_op)
        by_start = np.lexsort((ops.t_start[:], pool))
        by_end = np.lexsort((ops.t_end[:], pool))
        sorted_pool = pool[by_start]
        # The k-th to start does so when all but slots - 1 of those before have ended.
        at = np.arange(len(pool)) - slots[by_start]
        in_pool = np.maximum(at, 0)
        known = (at >= 0) & (sorted_pool[in_pool] == sorted_pool)
        rows = by_start[known]
        set_up = np.where(self._is_push[rows], self._table.of(weights.set_up), 0)
        starts = self._moments.op_start(rows)
        self._add(by_end[in_pool[known]], starts, set_up, kind=_SLOT)
        same = sorted_pool[1:] == sorted_pool[:-1]
        all_starts = self._moments.op_start(by_start)
        self._in_lanes = Lanes(
            all_starts[:-1][same], all_starts[1:][same], sorted_pool[1:][same]
        )

    def _tiles_in_turn(self) -> None:
        """The stages of a tile, the tiles of a window, and those of a composite."""
        ops = self._trace.op_columns
        moments = self._moments
        rows = np.flatnonzero(self._tile >= 0)
        if not len(rows):
            return
        whole = self._composite[rows]
        tile = self._tile[rows]
        order = np.lexsort((ops.t_start[rows], tile, whole))
        rows = rows[order]
        whole = whole[order]
        tile = tile[order]
        same = (np.diff(whole) == 0) & (np.diff(tile) == 0)
        self._add(rows[:-1][same], moments.op_start(rows[1:][same]))
        first = rows[np.append(True, ~same)]
        last = rows[np.append(~same, True)]
        whole = whole[np.append(True, ~same)]
        known = whole >= 0
        self._add(moments.op_start(whole[known]), moments.op_start(first[known]))
        self._add(last[known], whole[known])
        window = int(spec_number(self._trace.spec, "pe.tile.window")) or 1
        after = np.flatnonzero(whole[window:] == whole[:-window])
        begins = moments.op_start(first[after + window])
        self._add(last[after], begins)
        # Tiles begin in order: each also comes after what the ones before waited for.
        span = float(ops.t_end[last].max()) + 1.0
        number = np.cumsum(np.append(True, np.diff(whole) != 0))
        latest = np.maximum.accumulate(number * span + ops.t_end[last])
        is_latest = latest == number * span + ops.t_end[last]
        at = np.maximum.accumulate(np.where(is_latest, np.arange(len(last)), 0))
        self._add(last[at[after]], begins)
        self._in_order = self._pairs_in_order(first, rows, whole)

    def _pairs_in_order(
        self, first: Ints, rows: Ints, whole: Ints
    ) -> tuple[Ints, Ints]:
        """The starts of stages of tiles that ask for their engine in order.

        These are the first stage of each tile and its FETCH. ``first`` are the first
        stages of all tiles, in order, of the composites ``whole``; ``rows`` all stages.
        """
        is_fetch = named(self._trace, "TileToken/FETCH")[rows]
        fetch = rows[is_fetch & (self._composite[rows] >= 0)]
        begin = first[whole >= 0]
        befores = []
        behinds = []
        for some in (begin, fetch):
            same = np.diff(self._composite[some]) == 0
            befores.append(self._moments.op_start(some[:-1][same]))
            behinds.append(self._moments.op_start(some[1:][same]))
        return np.concatenate(befores), np.concatenate(behinds)

    def _waits(self) -> None:
        """What was held in program order, and what waited for an arrival.

        A call that is held returns when its operand has come.
        """
        ops = self._trace.op_columns
        waits = self._trace.waits
        moments = self._moments
        reason = waits.reason[:]
        known = (reason == HELD) | (reason == _ARRIVED)
        known &= (waits.row[:] >= 0) & (waits.holder[:] >= 0)
        some = np.flatnonzero(known)
        some = some[self._composite[waits.row[some]] < 0]
        row = waits.row[some]
        holder = waits.holder[some]
        until = waits.t1[some]
        ended = ops.t_end[holder] <= until + SAME_NS
        self._add(holder[ended], moments.op_start(row[ended]))
        started = ~ended & (ops.t_start[holder] <= until)
        self._held(holder[started], row[started], waits.node[some[started]])
        self._held_by_unnamed()

    def _held(self, holder: Ints, row: Ints, node: Array) -> None:
        """Ops were held until a cycle after others had started: they, and their call if
        that is of the PE at ``node``, where they waited.
        """
        log = self._trace.commands
        moments = self._moments
        behind = moments.op_start(holder)
        cycle = np.full(len(holder), self._table.of(weights.cycle)[0])
        sends = np.flatnonzero(self._is_push[holder])
        nbytes = self._trace.op_columns.nbytes[holder[sends]].astype(np.int64)
        cycle[sends] = self._table.of(weights.sent_and_cycle, nbytes)
        self._add(behind, moments.op_start(row), cycle)
        call = self._call_of_op[row]
        held = call >= 0
        held[held] = log.pe[call[held]] == node[held]
        self._add(behind[held], moments.call_return(call[held]), cycle[held])

    def _held_by_unnamed(self) -> None:
        """What was held by one that ended later, which a trace does not name."""
        waits = self._trace.waits
        composite = self._composite
        self._program_order = program_order(self._trace, self._call_of_op, composite)
        some = unnamed_holds(self._trace, composite)
        row = waits.row[some].astype(np.int64)
        holder = self._program_order.holders(row, waits.t1[some])
        known = holder >= 0
        self._held_by_none = not known.all()
        self._held(holder[known], row[known], waits.node[some[known]])

    def _rings(self) -> None:
        """A slot of a ring is filled, emptied, given back, filled again."""
        trace = self._trace
        ops = trace.op_columns
        slot = np.zeros(len(trace.order), np.int64)
        is_copy = np.zeros(len(slot), np.bool_)
        param = {"ipcq_copy": "dst_addr", "ipcq_recv": "src_addr"}
        for block in trace.param_blocks():
            if block.schema.name in param:
                slot[block.rows] = integers(block).get(param[block.schema.name], 0)
                is_copy[block.rows] = block.schema.name == "ipcq_copy"
        rows = np.flatnonzero(slot)
        if not len(rows):
            return
        rows = rows[np.lexsort((ops.t_start[rows], slot[rows]))]
        same = np.diff(slot[rows]) == 0
        before = rows[:-1][same]
        after = rows[1:][same]
        weight = np.zeros(len(before), np.int64)
        again = is_copy[after] & ~is_copy[before]
        weight[again] = self._credits(weights.credit, before[again])
        self._add(before, self._moments.op_start(after), weight)
        self._last_credits(rows[~is_copy[rows]])

    def _credits(self, formula: weights.Formula, rows: Ints) -> Ints:
        """The class of giving back what some ops have emptied."""
        log = self._trace.transfers
        free = np.flatnonzero(log.row[:] < 0)
        sent = np.append(free, _NONE)[
            Groups(log.cmd[free]).first(self._trace.op_columns.cmd[rows])
        ]
        path = np.where(sent >= 0, log.path[sent].astype(np.int64), _NONE)
        nbytes = np.where(sent >= 0, log.nbytes[sent].astype(np.int64), 0)
        return self._table.of(formula, path, nbytes)

    def _last_credits(self, rows: Ints) -> None:
        """A run ends when what was given back last has come to the sender.

        That may be after all else; of credits that come before it nothing is to be
        known. ``rows`` are the ops that empty slots.
        """
        number = self._credits(weights.message, rows)
        given_back = self._trace.op_columns.t_end[rows]
        lands = given_back + self._table.on(self._machine)[number]
        late = np.flatnonzero(lands > self._moments.times.max())
        self._last = self._nodes(lands[late], rows[late])
        self._add(rows[late], self._last, number[late])

    def _engines(self, services: Services) -> None:
        """An op ends when its engine has served it."""
        ops = self._trace.op_columns
        taken = services.taken
        streaming = services.streaming
        start = self._moments.op_start
        plain = np.flatnonzero((taken >= 0) & (streaming < 0))
        self._add(start(plain), plain, taken[plain], is_certain=True)
        tiles = np.flatnonzero(streaming >= 0)
        component = ops.component[tiles].astype(np.int64)
        order = np.lexsort((ops.t_start[tiles], component))
        tiles = tiles[order]
        before = np.append(_NONE, tiles[:-1])[: len(tiles)]
        whole = self._composite[tiles]
        same = np.append(False, np.diff(whole) == 0)[: len(tiles)]
        # Behind no tile of its composite: never as soon as itself has ended.
        behind = np.where(same, before, tiles)
        streams = np.where(same, streaming[tiles], taken[tiles])
        self._tiles = (behind, taken[tiles], streams)
        number = -1 - np.arange(len(tiles))
        self._add(start(tiles), tiles, number, is_certain=True)

    def _channels(self, services: Services) -> None:
        """An op has the channels of its TCM behind those who asked before it."""
        table = self._table
        without_result = table.without_result()
        recorded = table.on(self._machine)
        alone = recorded[np.maximum(services.taken, 0)]

        def after_reads(rows: Ints) -> Ints:
            return without_result[services.taken[rows]]

        def after_writes(rows: Ints) -> Ints:
            nbytes = services.written[rows]
            of_dots = table.of(weights.stored_by_dot, nbytes)
            return np.where(
                services.is_dot[rows], of_dots, table.of(weights.store, nbytes)
            )

        known = services.taken >= 0
        read = np.where(known, services.read, 0)
        written = np.where(known, services.written, 0)
        self._channel(read, alone, weights.fetch, after_reads)
        self._channel(written, alone, weights.store, after_writes)

    def _channel(
        self,
        nbytes: Ints,
        alone: Floats,
        formula: weights.Formula,
        left: Callable[[Ints], Ints],
    ) -> None:
        """The nodes at which ops get a channel of one kind, and what follows each.

        ``nbytes`` is by row what an op moves there, ``alone`` how long its engine takes
        for it by itself, ns, ``formula`` what the channel takes for it, ``left(rows)``
        the classes of what ops still take from then on.
        """
        rows = np.flatnonzero(nbytes)
        ns = formula(self._machine, nbytes[rows])
        some = takers(self._trace, rows, ns, alone[rows], MOST_SLOWER)
        own = np.flatnonzero(some.have_node)
        node = self._moments.op_start(some.row)
        start = node[own]
        row = some.row[own]
        node[own] = self._nodes(some.begin[own], row)
        self._at_channels.append(Served(some.pe, node, some.ns))
        self._add(start, node[own], is_certain=True)
        self._add(node[own], row, left(row))
        behind = own[some.follows[own]]
        passes = self._table.of(formula, nbytes[some.row[behind - 1]])
        self._add(node[behind - 1], node[behind], passes, kind=_AT_CHANNEL)

    # -- moves --

    def _moves(self, moves: Moves) -> None:
        """Data leave a memory or a PE, pass links, and land."""
        moves = self._with_rows(moves)
        last = self._nodes(moves.last, moves.op)
        first = last.copy()
        several = np.flatnonzero(moves.several)
        first[several] = self._nodes(moves.first[several], moves.op[several])
        self._all_moves = moves
        begins = self._begins(moves)
        start = self._moments.op_start(moves.op)
        self._add(start, first, begins, is_certain=True)
        some = moves.take(several)
        follow = self._table.of(
            weights.bursts_follow, some.path, some.before_last, some.by, some.memory
        )
        self._add(first[several], last[several], follow, is_certain=True)
        zeros = np.zeros(len(last), np.int64)
        self._lands(moves, last, zeros, moves.last_bytes, is_certain=True)
        self._lands(some, first[several], np.zeros(len(some.op), np.int64), some.nbytes)
        self._controllers(moves, first, last)
        self._links(moves, first, last)

    def _begins(self, moves: Moves) -> Ints:
        """The class of what passes until the first burst leaves."""
        found = np.empty(len(moves.op), np.int64)
        read = moves.is_read
        found[read] = self._table.of(
            weights.read_begins, moves.request[read], moves.by[read], moves.memory[read]
        )
        found[~read] = self._table.of(weights.write_begins, moves.by[~read])
        return found

    def _lands(
        self,
        moves: Moves,
        node: Ints,
        hop: Ints,
        nbytes: Ints,
        is_certain: bool = False,
    ) -> None:
        """The op ends when the bytes that a node is about are all there."""
        weight = np.empty(len(moves.op), np.int64)
        for is_read, formula in ((True, weights.lands), (False, weights.is_written)):
            some = moves.is_read == is_read
            weight[some] = self._table.of(
                formula,
                moves.path[some],
                hop[some],
                nbytes[some],
                moves.by[some],
                moves.memory[some],
            )
        self._add(node, moves.op, weight, is_certain)

    def _with_rows(self, moves: Moves) -> Moves:
        """The moves, of those in HBM whether they found the row of a bank open.

        That shows in how long the memory took, less what it let them wait. Where only
        a part of a burst lies in a row that is not open it is shorter.
        """
        waits = self._trace.waits
        some = np.flatnonzero((waits.reason[:] == _IN_MEMORY) & (waits.row[:] >= 0))
        begun = moves.t0.copy()
        if len(some):
            waited = np.zeros(len(self._trace.order))
            np.maximum.at(waited, waits.row[some], waits.t1[some])
            begun = np.where(
                waited[moves.op] > moves.t0,
                np.minimum(waited[moves.op], moves.first),
                moves.t0,
            )
        dram = self._machine.dram
        table = Weights()
        hop = np.zeros(len(moves.op), np.int64)
        arrives = self._table_ns(
            table, weights.lands, moves, hop, np.zeros(len(hop), np.int64)
        )
        tail = self._table_ns(table, weights.lands, moves, hop, moves.last_bytes)
        # Waits for links on the way are none of the memory's: from the last link on.
        hops = self._ways.counts[moves.path]
        at_last_link = self._trace.transfers.start[moves.last_starts + hops - 1]
        at_memory = at_last_link + self._machine.way(moves.path, hops - 1)
        at_memory = np.maximum(at_memory, begun)
        read_ns = moves.first - begun
        ends = self._trace.op_columns.t_end[moves.op]
        write_ns = ends - at_memory - (tail - arrives)
        is_closed = np.where(
            moves.is_read,
            read_ns > dram.read_lead + dram.open_row / 2,
            write_ns > dram.write_lead + dram.open_row / 2,
        )
        in_hbm = moves.memory == IN_OPEN_ROW
        memory = np.where(in_hbm & is_closed, IN_CLOSED_ROW, moves.memory)
        return moves._replace(memory=memory)

    def _table_ns(
        self,
        table: Weights,
        formula: weights.Formula,
        moves: Moves,
        hop: Ints,
        nbytes: Ints,
    ) -> Floats:
        """What a formula of moves says on the recorded machine, by move."""
        number = table.of(formula, moves.path, hop, nbytes, moves.by, moves.memory)
        return table.on(self._machine)[number]

    def _controllers(self, moves: Moves, first: Ints, last: Ints) -> None:
        """Bursts leave a controller of HBM one behind the other, as they did."""
        some = np.flatnonzero(moves.memory >= IN_OPEN_ROW)
        if not len(some):
            return
        here = moves.take(some)
        hbm = self._machine.spec.cube.hbm
        dram = self._machine.dram
        nbytes = here.nbytes / hbm.channels
        byte_ns = dram.access / hbm.access_bytes
        ends = self._trace.op_columns.t_end[here.op]
        left = np.where(here.is_read, here.last, ends)
        read = here.take(np.flatnonzero(here.is_read))
        write_ns = nbytes[~here.is_read] * byte_ns
        work = Ramps.joined(
            *_served(read.node, read, read.first, read.last, 1 / hbm.channels, byte_ns),
            (
                here.node[~here.is_read],
                ends[~here.is_read] - write_ns,
                ends[~here.is_read],
                nbytes[~here.is_read],
            ),
        )
        waits = self._trace.waits
        waited = np.flatnonzero(waits.reason[:] == _IN_MEMORY)
        queue = Ramps(
            waits.node[waited].astype(np.int64),
            waits.t0[waited],
            waits.t1[waited],
            np.ones(len(waited)),
        )
        node = np.where(here.is_read, last[some], here.op)
        several = here.several & here.is_read
        at = np.concatenate([left, here.first[several]])
        nodes = np.concatenate([node, first[some][several]])
        server = np.concatenate([here.node, here.node[several]])
        moved = np.where(here.is_read, here.last_bytes, here.nbytes)
        moved = np.concatenate([moved, here.first_bytes[several]])
        order = np.lexsort((at, server))
        takes = moved[order] * byte_ns / hbm.channels
        self._served.append(Served(server[order], nodes[order], takes))
        at = at[order]
        nodes = nodes[order]
        server = server[order]
        pair = np.flatnonzero((np.diff(server) == 0) & (nodes[1:] != nodes[:-1]))
        since = at[pair]
        until = at[pair + 1]
        given = work.given(server[pair], since, until)
        given = carried(server[pair], given, (until - since) / byte_ns)
        given = np.floor(given * 64)
        busy = queue.busy(server[pair], since, until)
        rows = np.maximum(busy - given * byte_ns / 64, 0.0)
        rows = np.floor(rows * 1024 / max(dram.row, 1.0))
        busy = np.maximum(busy, given * byte_ns / 64)
        shared = busy > _BUSY_SHARE * (until - since)
        pair = pair[shared]
        weight = self._table.of(
            weights.in_channels,
            given[shared].astype(np.int64),
            rows[shared].astype(np.int64),
        )
        self._add(nodes[pair], nodes[pair + 1], weight, kind=_AT_MEMORY)

    def _links(self, moves: Moves, first: Ints, last: Ints) -> None:
        """Transactions pass a link that they shared one behind the other."""
        ways = self._ways
        counts = ways.counts[moves.path]
        move = np.repeat(np.arange(len(counts)), counts)
        hop = np.arange(len(move)) - np.repeat(np.cumsum(counts) - counts, counts)
        edge = ways.hop_edges[ways.firsts[moves.path[move]] + hop]
        known = edge >= 0  # a damaged trace may have lost its links
        move = move[known]
        hop = hop[known]
        edge = edge[known]
        starts = self._trace.transfers.start
        since = starts[moves.starts[move] + hop]
        at = starts[moves.last_starts[move] + hop]
        speed = self._machine.links.speed[edge]
        here = moves.take(move)
        work = Ramps.joined(*_served(edge, here, since, at, 1.0, 1.0 / speed))
        order = np.lexsort((at, edge))
        follows = np.diff(edge[order]) == 0
        before = order[:-1][follows]
        after = order[1:][follows]
        between = at[after] - at[before]
        given = work.given(edge[after], at[before], at[after])
        given = carried(edge[after], given, between * speed[after])
        shared = given > _BUSY_SHARE * between * speed[after]
        shared &= move[before] != move[after]
        before = before[shared]
        after = after[shared]
        given = np.floor(given[shared]).astype(np.int64)

        used = np.zeros(len(move), np.bool_)
        used[before] = True
        used[after] = True
        node = np.full(len(move), _NONE)
        on_first = used & (hop == 0)
        node[on_first] = last[move[on_first]]
        later = np.flatnonzero(used & (hop > 0))
        node[later] = self._nodes(at[later], here.op[later])
        some = order[used[order]]
        takes = here.last_bytes[some] / speed[some]
        server = len(self._trace.node_ids) + edge[some]
        self._served.append(Served(server, node[some], takes))
        self._add(
            node[before],
            node[after],
            self._table.of(weights.on_link, edge[after], given),
            kind=_AT_LINK,
        )
        self._passes(moves, first, last, move[later], hop[later], node[later])

    def _passes(
        self,
        moves: Moves,
        first: Ints,
        last: Ints,
        move: Ints,
        hop: Ints,
        node: Ints,
    ) -> None:
        """What comes to a shared link, and what follows behind it."""
        if not len(move):
            return
        follows = np.append(False, np.diff(move) == 0)
        since = np.where(follows, np.append(0, hop[:-1]), 0)
        cause = np.where(follows, np.append(_NONE, node[:-1]), last[move])
        none = np.zeros(len(move), np.int64)
        path = moves.path[move]
        way = self._table.of(weights.reaches, path, hop, none, since)
        self._add(cause, node, way, is_certain=True)
        some = moves.several[move]
        way = self._table.of(
            weights.reaches,
            path[some],
            hop[some],
            moves.before_last[move][some],
            none[some],
        )
        self._add(first[move[some]], node[some], way)
        is_last = np.append(np.diff(move) != 0, True)
        end = move[is_last]
        here = moves.take(end)
        self._lands(here, node[is_last], hop[is_last], here.last_bytes)


def _all_served(some: list[Served]) -> Served:
    """Those at all servers."""
    none = np.empty(0, np.int64)
    columns = zip(Served(none, none, np.empty(0)), *some, strict=True)
    return Served(*map(np.concatenate, columns))


def _served(
    server: Ints,
    moves: Moves,
    first: Floats,
    last: Floats,
    per_byte: float,
    ns_each: Floats | float,
) -> tuple[Ramp, ...]:
    """What servers gave some moves: their first burst, their last, those between.

    An amount is ``per_byte`` of its bytes, each of which takes ``ns_each``.
    """
    last_amount: Array = moves.last_bytes * per_byte
    last_end: Array = last + last_amount * ns_each
    several = np.flatnonzero(moves.several)
    some = moves.take(several)
    each = np.broadcast_to(ns_each, len(first))[several]
    between: Array = (some.before_last - some.first_bytes) * per_byte
    first_amount: Array = some.first_bytes * per_byte
    first_end: Array = np.minimum(first[several] + first_amount * each, last[several])
    here = server[several]
    return (
        (server, last, last_end, last_amount),
        (here, first[several], first_end, first_amount),
        (here, first_end, last[several], between),
    )

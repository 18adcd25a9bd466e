"""The graph that is re-timed: moments, what has to come before what, and weights.

An edge says that its effect comes no sooner than its cause and a weight of a class
(weights.py). On the recorded machine that leaves a gap; the least gap into a node is
its rest, what no edge explains. It is kept as it was, so that nothing changed gives
what was recorded, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Array,
    Bools,
    Floats,
    Ints,
    counted,
    running_count,
)
from kernbench.common.exact_time import SAME_NS
from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.common.progress import (
    Progress,
    begun_beside,
    computed_beside,
    no_progress,
    stage,
)
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
from kernbench.replay.whatif.edges import (
    AT_CHANNEL,
    AT_LINK,
    AT_MEMORY,
    CREDIT,
    MOST_SLOWER,
    SLOT,
    Found,
    Served,
)
from kernbench.replay.whatif.launch_ways import launch_ways
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.move_edges import MoveEdges, NodesOfMoves
from kernbench.replay.whatif.moves import Moves, moves_of
from kernbench.replay.whatif.sends import sends_in_turn
from kernbench.replay.whatif.services import Services, services_of
from kernbench.replay.whatif.weights import Weights
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import (
    has_text,
    integers,
    kernel_lines,
    named,
    rows_of_calls,
    tile_columns,
)
from kernbench.trace.spec_values import spec_number

_NONE = -1
_ARRIVED = WAIT_REASONS.index("arrival")
_IN_MEMORY = WAIT_REASONS.index("hbm_channel")


class Lanes(NamedTuple):
    """Ops that started one after the other at an engine, in pairs of neighbours.

    ``before`` and ``behind`` are their starts, ``pool`` is a number of the slots that
    they share.
    """

    before: Ints
    behind: Ints
    pool: Ints


@dataclass(frozen=True)
class Graph:
    """Nodes by number, and edges in the order in which a walk takes them.

    ``times`` is when each node came, ``rest`` how much later than its edges explain,
    ns. ``roots`` have no edge into them and stay where they were. By edge: ``cause``,
    ``effect``, ``weight``, a class of ``table``, and ``line``, the kernel line whose
    step it is (a place in ``lines``, -1: of none); ``is_queue`` says that the two were
    served one behind the other by a link, a controller of HBM or a channel of a TCM,
    ``is_memory`` that it was a controller, ``is_channel`` a channel; ``is_slot`` that
    an op started when another had left its engine, ``is_credit`` that a push started
    when a slot of a ring had been given back. The edges into a node follow each other,
    and come after those into each of their causes. ``last`` are the nodes with which a
    run may end, ``served`` are those at links and controllers, ``reads`` and ``writes``
    those at the channels of a TCM.
    ``in_order`` are pairs of starts of tiles, of which the second never asks for its
    engine before the first one does. ``lanes`` are ops at their engines,
    ``host_begins`` the starts of launches and of ops of the host, which come as soon as
    what it awaits. ``issued_after`` is by call the node at which the kernel could issue
    it (-1: none), ``moves`` is what ops move over links, with the ``nodes_of_moves``,
    and ``program_order`` what kernels have issued. ``held_by_none`` says that an op was
    held in program order, and behind which is not found.

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
    is_credit: Bools
    served: Served
    reads: Served
    writes: Served
    in_order: tuple[Ints, Ints]
    lanes: Lanes
    host_begins: Ints
    moves: Moves
    nodes_of_moves: NodesOfMoves
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
        self._found = Found(trace, machine)
        self._moments = self._found.moments
        self._table = self._found.table
        self._last: Ints = np.empty(0, np.int64)
        self._at_channels: list[Served] = []
        self._composite, self._tile = tile_columns(trace)
        self._host = host_order(trace, self._moments)
        self._call_of_op = rows_of_calls(trace, trace.op_columns.cmd[:])
        self._tiles = (np.empty(0, np.int64),) * 3
        self._is_push = named(trace, "ipcq_copy")
        self._in_order = (np.empty(0, np.int64),) * 2

    def graph(self, progress: Progress) -> Graph:
        """All of it."""
        trace = self._trace
        # Moves depend on nothing that is found here: a second core looks for them.
        moving = begun_beside(partial(moves_of, trace, self._machine.ways, no_progress))
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
        moves = computed_beside(moving.result, progress, 0.5)
        of_moves = MoveEdges(self._found)
        moves = computed_beside(partial(of_moves.add, moves), progress, 0.6)
        finish = partial(self._sorted, moves, of_moves.nodes_of)
        return computed_beside(finish, progress, 0.9)

    # -- nodes and edges --

    def _sorted(self, moves: Moves, nodes_of_moves: NodesOfMoves) -> Graph:
        """The graph of the edges that were found."""
        times = self._found.times()
        rank = np.empty(len(times), np.int32)
        rank[np.argsort(times, kind="stable")] = np.arange(len(times))
        recorded = self._table.on(self._machine)
        behind, cold, streams = self._tiles
        causes = []
        effects = []
        classes = []
        gaps = []
        kinds = []
        for cause, effect, number, is_certain, kind in self._found.edges:
            weight = recorded[np.maximum(number, 0)]
            tile = number < 0
            at = -1 - number[tile]
            is_behind = times[cause[tile]] <= times[behind[at]]
            weight[tile] = recorded[np.where(is_behind, streams[at], cold[at])]
            gap = times[effect] - times[cause] - weight
            kept = rank[cause] < rank[effect]
            if not is_certain:
                kept &= gap > -SAME_NS
            causes.append(cause[kept])
            effects.append(effect[kept])
            classes.append(number[kept])
            gaps.append(gap[kept])
            kinds.append(np.full(len(gaps[-1]), kind, np.int8))
        self._found.edges.clear()
        cause = np.concatenate(causes)
        effect = np.concatenate(effects)
        number = np.concatenate(classes)
        self._weigh_tiles_with_more(cause, effect, number, times)
        gap = np.concatenate(gaps)
        kind_of_edge = np.concatenate(kinds)
        lines, line_of_node = self._lines()
        rest = np.full(len(times), np.inf)
        np.minimum.at(rest, effect, gap)
        order = np.argsort(rank[effect], kind="stable")
        cause = cause[order]
        effect = effect[order]
        kind_of_edge = kind_of_edge[order]
        is_memory = kind_of_edge == AT_MEMORY
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
            is_queue=np.isin(kind_of_edge, (AT_MEMORY, AT_LINK, AT_CHANNEL)),
            is_memory=is_memory,
            is_channel=kind_of_edge == AT_CHANNEL,
            is_slot=kind_of_edge == SLOT,
            is_credit=kind_of_edge == CREDIT,
            served=_all_served(self._found.served),
            reads=self._at_channels[0],
            writes=self._at_channels[1],
            in_order=self._in_order,
            lanes=self._in_lanes,
            host_begins=self._host_begins,
            moves=moves,
            nodes_of_moves=nodes_of_moves,
            issued_after=self._issued_after,
            program_order=self._program_order,
            held_by_none=self._held_by_none,
        )

    def _weigh_tiles_with_more(
        self, cause: Array, effect: Array, number: Array, times: Floats
    ) -> None:
        """Give the edge of a tile a class if its end has others besides.

        A tile has one edge; in a damaged trace its op may be of a move as well.
        ``number`` is by edge its class, or a tile.
        """
        behind, cold, streams = self._tiles
        tiles = np.flatnonzero(number < 0)
        is_tile_end = np.zeros(len(times), np.bool_)
        is_tile_end[effect[tiles]] = True
        counts = counted(effect[is_tile_end[effect]], len(times))
        mixed = tiles[counts[effect[tiles]] > 1]
        at = -1 - number[mixed]
        streamed = times[cause[mixed]] <= times[behind[at]]
        number[mixed] = np.where(streamed, streams[at], cold[at])

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
        found = np.full(self._found.count, _NONE, np.int16)
        moments = self._moments
        line_of_op = np.append(line_of_call, _NONE)[self._call_of_op]
        rows = np.arange(moments.op_count)
        found[rows] = line_of_op
        found[moments.op_start(rows)] = line_of_op
        found[moments.call_return(np.arange(len(line_of_call)))] = line_of_call
        for nodes, op in self._found.steps:
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

        # The end of a kernel is recorded as a call, which nobody issues.
        is_issued = in_kernel & ~has_text(trace, log.call, "exit")
        issued = np.where(is_issued, self._table.of(weights.issue)[0], 0)
        self._issued_after = by
        calls = np.arange(len(by))
        self._found.add(by, moments.call_return(calls), issued)
        rows = np.flatnonzero((self._call_of_op >= 0) & (self._composite < 0))
        call = self._call_of_op[rows]
        begun = np.where(
            self._is_push[rows], self._table.of(weights.issued_push), issued[call]
        )
        self._found.add(by[call], moments.op_start(rows), begun)

        # A kernel ends when all that it has issued has, or was read, of a send.
        is_last = np.append(~follows, True)[: len(turn)]
        kernel = running_count(np.append(False, ~follows))[: len(turn)]
        last = np.empty(len(turn), np.int64)
        last[turn] = turn[is_last][kernel]
        last[~in_kernel] = _NONE
        self._last_calls = np.unique(last[last >= 0])
        end = last[call]
        self._waited_for(rows[end >= 0], moments.call_return(end[end >= 0]))
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
        self._waited_for(rows, effect)

    def _waited_for(self, rows: Ints, returns: Ints) -> None:
        """Returns of calls, each of which waits for an op to end.

        Of a push it waits until the bytes have left, however late they land.
        """
        is_push = self._is_push[rows]
        self._found.add(rows[~is_push], returns[~is_push])
        sent = rows[is_push]
        nbytes = self._trace.op_columns.nbytes[sent].astype(np.int64)
        left = self._table.of(weights.sent, nbytes)
        self._found.add(self._moments.op_start(sent), returns[is_push], left)

    # -- the host --

    def _host_and_launches(self) -> None:
        """What the host asks for, launches among it; these end with their kernels."""
        trace = self._trace
        moments = self._moments
        launches = trace.launches
        host = self._host
        self._found.add(host.cause, moments.call_return(host.call))
        pair, op = Groups(self._call_of_op).join(host.call)
        begins = moments.op_start(op.astype(np.int64))
        self._found.add(host.cause[pair], begins)

        reached = self._table.of(weights.launch, *launch_ways(trace, self._machine).T)
        known = np.flatnonzero(host.of_launch >= 0)
        pair, place = Groups(host.of_launch[known]).join(host.call)
        launch = known[place]
        starts = moments.launch_start(launch)
        self._found.add(host.cause[pair], starts, reached[launch])
        self._host_begins = np.concatenate([begins, starts])
        lost = np.flatnonzero(host.of_launch < 0)
        asked = np.array([launches[at].t_issue for at in lost.tolist()])
        before = host.before(asked, moments)
        self._found.add(before, moments.launch_start(lost), reached[lost])

        numbers = np.array([launch.launch for launch in launches], np.int64)
        ended = Groups(numbers).first(trace.commands.launch[self._last_calls])
        exits = self._last_calls[ended >= 0]
        ended = ended[ended >= 0]
        self._found.add(moments.call_return(exits), moments.launch_end(ended))

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
        self._found.add(by_end[in_pool[known]], starts, set_up, kind=SLOT)
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
        self._found.add(rows[:-1][same], moments.op_start(rows[1:][same]))
        first = rows[np.append(True, ~same)]
        last = rows[np.append(~same, True)]
        whole = whole[np.append(True, ~same)]
        known = whole >= 0
        self._found.add(moments.op_start(whole[known]), moments.op_start(first[known]))
        self._found.add(last[known], whole[known])
        window = int(spec_number(self._trace.spec, "pe.tile.window")) or 1
        after = np.flatnonzero(whole[window:] == whole[:-window])
        begins = moments.op_start(first[after + window])
        self._found.add(last[after], begins)
        # Tiles begin in order: each also comes after what the ones before waited for.
        span = float(ops.t_end[last].max()) + 1.0
        number = running_count(np.append(True, np.diff(whole) != 0))
        latest = np.maximum.accumulate(number * span + ops.t_end[last])
        is_latest = latest == number * span + ops.t_end[last]
        at = np.maximum.accumulate(np.where(is_latest, np.arange(len(last)), 0))
        self._found.add(last[at[after]], begins)
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
        self._found.add(holder[ended], moments.op_start(row[ended]))
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
        self._found.add(behind, moments.op_start(row), cycle)
        call = self._call_of_op[row]
        held = call >= 0
        held[held] = log.pe[call[held]] == node[held]
        self._found.add(behind[held], moments.call_return(call[held]), cycle[held])

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
        starts = self._moments.op_start(after)
        again = is_copy[after] & ~is_copy[before]
        self._found.add(before[~again], starts[~again])
        given_back = self._credits(weights.credit, before[again])
        self._found.add(before[again], starts[again], given_back, kind=CREDIT)
        self._last_credits(rows[~is_copy[rows]])
        pushes = np.flatnonzero(is_copy)
        self._sends(pushes, slot[pushes])

    def _sends(self, rows: Ints, slots: Ints) -> None:
        """A push is set up when what was sent before it in its direction was read.

        ``rows`` are pushes, each into one of ``slots``, by its address.
        """
        before, behind = sends_in_turn(self._trace, rows, slots)
        nbytes = self._trace.op_columns.nbytes[before].astype(np.int64)
        read = self._table.of(weights.sent_and_set_up, nbytes)
        start = self._moments.op_start
        self._found.add(start(before), start(behind), read)

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
        self._last = self._found.nodes(lands[late], rows[late])
        self._found.add(rows[late], self._last, number[late])

    def _engines(self, services: Services) -> None:
        """An op ends when its engine has served it."""
        ops = self._trace.op_columns
        taken = services.taken
        streaming = services.streaming
        start = self._moments.op_start
        plain = np.flatnonzero((taken >= 0) & (streaming < 0))
        self._found.add(start(plain), plain, taken[plain], is_certain=True)
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
        self._found.add(start(tiles), tiles, number, is_certain=True)

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
        node[own] = self._found.nodes(some.begin[own], row)
        self._at_channels.append(Served(some.pe, node, some.ns))
        self._found.add(start, node[own], is_certain=True)
        self._found.add(node[own], row, left(row))
        behind = own[some.follows[own]]
        passes = self._table.of(formula, nbytes[some.row[behind - 1]])
        self._found.add(node[behind - 1], node[behind], passes, kind=AT_CHANNEL)


def _all_served(some: list[Served]) -> Served:
    """Those at all servers."""
    none = np.empty(0, np.int64)
    columns = zip(Served(none, none, np.empty(0)), *some, strict=True)
    return Served(*map(np.concatenate, columns))

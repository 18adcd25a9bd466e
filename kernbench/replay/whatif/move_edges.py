"""Edges of the graph that is re-timed between what data on their way do.

Data leave a memory or a PE in bursts, pass links, and land. Who shares a link or a
controller of HBM passes it in the recorded order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints, repeated
from kernbench.common.messages import WAIT_REASONS
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.edges import AT_LINK, AT_MEMORY, BUSY_SHARE, Found, Served
from kernbench.replay.whatif.machine import Ways
from kernbench.replay.whatif.moves import Moves
from kernbench.replay.whatif.servers import Ramp, Ramps, carried
from kernbench.replay.whatif.weights import (
    IN_CLOSED_ROW,
    IN_OPEN_ROW,
    IN_SRAM,
    IN_TCM,
    Weights,
)

_NONE = -1
_IN_MEMORY = WAIT_REASONS.index("hbm_channel")


class Arrived(NamedTuple):
    """Moves, by number, of which the last burst has a node at a link after the first:
    the last such node, and the hop of it.
    """

    move: Ints
    node: Ints
    hop: Ints


class AtPort(NamedTuple):
    """By read from an SRAM the nodes at which its first and last burst have the port,
    which are one if there is one burst.
    """

    first: Ints
    last: Ints


class NodesOfMoves(NamedTuple):
    """Which nodes say when the bursts of moves come.

    ``first`` is by move that of its first burst on the first link. ``at_hop`` is by hop
    (``hops_of``) the one before which its last burst is there: on that link, or the
    nearest of those that it has passed.
    """

    first: Array
    at_hop: Array


class HopsOfMoves(NamedTuple):
    """The links of the paths of moves, in their order, one after the other: the move
    and the hop of each, and the link, a row of ``Trace.edges``.
    """

    move: Ints
    hop: Ints
    edge: Ints


def hops_of(moves: Moves, ways: Ways) -> HopsOfMoves:
    """The hops of moves; links that a damaged trace has lost are left out."""
    counts = ways.counts[moves.path]
    move = repeated(np.arange(len(counts)), counts)
    hop = np.arange(len(move)) - repeated(np.cumsum(counts) - counts, counts)
    edge = ways.hop_edges[ways.firsts[moves.path[move]] + hop]
    known = edge >= 0
    return HopsOfMoves(move[known], hop[known], edge[known])


class MoveEdges:
    """Adds the nodes and the edges of moves to what was found.

    ``nodes_of`` says which nodes these are, once they were added.
    """

    def __init__(self, found: Found) -> None:
        self._found = found
        self._trace = found.trace
        self._machine = found.machine
        self._ways: Ways = found.machine.ways
        self._moments = found.moments
        self._table = found.table

    def add(self, moves: Moves) -> Moves:
        """Data leave a memory or a PE, pass links, and land.

        Returns the moves, of those in HBM with whether they found their row open.
        """
        moves = self._with_rows(moves)
        in_sram = moves.memory == IN_SRAM
        reads = np.flatnonzero(in_sram & moves.is_read)
        at_port = self._ports_of_reads(moves.take(reads))
        last = self._found.nodes(moves.last, moves.op)
        first = last.copy()
        several = np.flatnonzero(moves.several)
        first[several] = self._found.nodes(moves.first[several], moves.op[several])
        begun = first.copy()
        begun[reads] = at_port.first
        at_last = last.copy()
        at_last[reads] = at_port.last
        access = self._table.of(weights.in_sram)
        for had, left in ((begun, first), (at_last, last)):
            self._found.add(had[reads], left[reads], access, is_certain=True)
        start = self._moments.op_start(moves.op)
        self._found.add(start, begun, self._begins(moves), is_certain=True)
        some = moves.take(several)
        follow = self._table.of(
            weights.bursts_follow, some.path, some.before_last, some.by, some.memory
        )
        self._found.add(begun[several], at_last[several], follow, is_certain=True)
        zeros = np.zeros(len(last), np.int64)
        self._lands(moves, last, zeros, moves.last_bytes, is_certain=True)
        self._lands(some, first[several], np.zeros(len(some.op), np.int64), some.nbytes)
        self._controllers(moves, first, last)
        arrived = self._links(moves, first, last)
        here = moves.take(arrived.move)
        self._lands(here, arrived.node, arrived.hop, here.last_bytes)
        writes = np.flatnonzero(in_sram & ~moves.is_read)
        if len(writes):
            of_writes = self._ports_of_writes(moves, writes, last, arrived)
            self._ports(moves.take(reads), at_port, moves.take(writes), of_writes)
        return moves

    def _begins(self, moves: Moves) -> Ints:
        """The class of what passes until the first burst leaves, or has the port of the
        SRAM that it is read from.
        """
        found = np.empty(len(moves.op), np.int64)
        read = moves.is_read
        memory = np.where(moves.memory == IN_SRAM, IN_TCM, moves.memory)
        found[read] = self._table.of(
            weights.read_begins, moves.request[read], moves.by[read], memory[read]
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
        self._found.add(node, moves.op, weight, is_certain)

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
        at_memory = np.maximum(self._at_memory(moves, moves.last_starts), begun)
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
        self._found.served.append(Served(server[order], nodes[order], takes))
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
        shared = busy > BUSY_SHARE * (until - since)
        pair = pair[shared]
        weight = self._table.of(
            weights.in_channels,
            given[shared].astype(np.int64),
            rows[shared].astype(np.int64),
        )
        self._found.add(nodes[pair], nodes[pair + 1], weight, kind=AT_MEMORY)

    def _links(self, moves: Moves, first: Ints, last: Ints) -> Arrived:
        """Transactions pass a link that they shared one behind the other."""
        move, hop, edge = hops_of(moves, self._ways)
        starts = self._trace.transfers.start
        since = starts[moves.starts[move] + hop]
        at = starts[moves.last_starts[move] + hop]
        speed = self._machine.links.speed[edge]
        here = moves.take(move)
        work = Ramps.joined(*_served(edge, here, since, at, 1.0, 1.0 / speed))
        order = np.lexsort((at, edge))
        before, after, given = _behind_each_other(work, order, edge, at, speed)
        others = move[before] != move[after]
        before = before[others]
        after = after[others]
        given = given[others]

        used = np.zeros(len(move), np.bool_)
        used[before] = True
        used[after] = True
        node = np.full(len(move), _NONE)
        on_first = used & (hop == 0)
        node[on_first] = last[move[on_first]]
        later = np.flatnonzero(used & (hop > 0))
        node[later] = self._found.nodes(at[later], here.op[later])
        self.nodes_of = NodesOfMoves(
            first.astype(np.int32), _passed(move, last, node).astype(np.int32)
        )
        some = order[used[order]]
        takes = here.last_bytes[some] / speed[some]
        server = len(self._trace.node_ids) + edge[some]
        self._found.served.append(Served(server, node[some], takes))
        self._found.add(
            node[before],
            node[after],
            self._table.of(weights.on_link, edge[after], given),
            kind=AT_LINK,
        )
        return self._passes(moves, first, last, move[later], hop[later], node[later])

    def _passes(
        self,
        moves: Moves,
        first: Ints,
        last: Ints,
        move: Ints,
        hop: Ints,
        node: Ints,
    ) -> Arrived:
        """What comes to a shared link, and what follows behind it."""
        if not len(move):
            return Arrived(move, node, hop)
        follows = np.append(False, np.diff(move) == 0)
        since = np.where(follows, np.append(0, hop[:-1]), 0)
        cause = np.where(follows, np.append(_NONE, node[:-1]), last[move])
        none = np.zeros(len(move), np.int64)
        path = moves.path[move]
        way = self._table.of(weights.reaches, path, hop, none, since)
        self._found.add(cause, node, way, is_certain=True)
        some = moves.several[move]
        way = self._table.of(
            weights.reaches,
            path[some],
            hop[some],
            moves.before_last[move][some],
            none[some],
        )
        self._found.add(first[move[some]], node[some], way)
        is_last = np.append(np.diff(move) != 0, True)
        return Arrived(move[is_last], node[is_last], hop[is_last])

    # -- at the ports of SRAMs --

    def _ports_of_reads(self, moves: Moves) -> AtPort:
        """When the bursts of reads have the port of their SRAM, as nodes."""
        access = weights.in_sram(self._machine)[0]
        last = self._found.nodes(moves.last - access, moves.op)
        first = last.copy()
        several = np.flatnonzero(moves.several)
        first_at = moves.first[several] - access
        first[several] = self._found.nodes(first_at, moves.op[several])
        return AtPort(first, last)

    def _ports_of_writes(
        self, moves: Moves, writes: Ints, last: Ints, arrived: Arrived
    ) -> Ints:
        """When the last burst of each write has the port of its SRAM, as nodes."""
        some = moves.take(writes)
        came = self._at_memory(some, some.last_starts)
        kept = self._table.of(weights.is_in_sram, some.path, some.last_bytes, some.by)
        kept_ns = self._table.on(self._machine)[kept]
        ended = self._trace.op_columns.t_end[some.op]
        node = self._found.nodes(np.maximum(ended - kept_ns, came), some.op)
        hop = np.zeros(len(writes), np.int64)
        way = self._table.of(weights.arrives, some.path, hop)
        self._found.add(last[writes], node, way, is_certain=True)
        self._found.add(node, some.op, kept, is_certain=True)
        at = np.full(len(moves.op), _NONE)
        at[writes] = node
        passed = np.flatnonzero(at[arrived.move] >= 0)
        move = arrived.move[passed]
        way = self._table.of(weights.arrives, moves.path[move], arrived.hop[passed])
        self._found.add(arrived.node[passed], at[move], way)
        return node

    def _at_memory(self, moves: Moves, starts: Ints) -> Floats:
        """When bursts of writes come to their memory; ``starts`` are theirs on the
        first link, in ``Trace.transfers.start``.
        """
        hop = self._ways.counts[moves.path] - 1
        on_last_link = self._trace.transfers.start[starts + hop]
        return on_last_link + self._machine.way(moves.path, hop)

    def _ports(
        self, reads: Moves, of_reads: AtPort, writes: Moves, of_writes: Ints
    ) -> None:
        """Bursts have the port of an SRAM one behind the other, to read or to write."""
        machine = self._machine
        byte_ns = 1.0 / machine.spec.cube.sram.to_router_bw_gbs
        times = self._found.times()
        written = times[of_writes]
        write_began = np.minimum(self._at_memory(writes, writes.starts), written)
        work = Ramps.joined(
            *_served(
                reads.node,
                reads,
                times[of_reads.first],
                times[of_reads.last],
                1.0,
                byte_ns,
            ),
            *_served(writes.node, writes, write_began, written, 1.0, byte_ns),
        )
        several = np.flatnonzero(reads.several)
        node = np.concatenate([of_writes, of_reads.last, of_reads.first[several]])
        port = np.concatenate([writes.node, reads.node, reads.node[several]])
        nbytes = np.concatenate(
            [writes.last_bytes, reads.last_bytes, reads.first_bytes[several]]
        )
        at = times[node]
        order = np.lexsort((at, port))
        server = len(self._trace.node_ids) + machine.number_of_port(port[order])
        takes = nbytes[order] * byte_ns
        self._found.served.append(Served(server, node[order], takes))
        speed = np.full(len(port), 1.0 / byte_ns)
        before, after, given = _behind_each_other(work, order, port, at, speed)
        passes = self._table.of(weights.through_port, given)
        self._found.add(node[before], node[after], passes, kind=AT_LINK)


def _behind_each_other(
    work: Ramps, order: Ints, server: Ints, at: Floats, speed: Floats
) -> tuple[Ints, Ints, Ints]:
    """Those that a server may have kept apart: the first, the second, and the bytes
    that it gave from the first on until the second.

    ``order`` is by server and time. The other columns are of each that was served: by
    which ``server``, ``at`` what time, and how many bytes a ns that has.
    """
    follows = np.diff(server[order]) == 0
    before = order[:-1][follows]
    after = order[1:][follows]
    between = at[after] - at[before]
    given = work.given(server[after], at[before], at[after])
    given = carried(server[after], given, between * speed[after])
    shared = given > BUSY_SHARE * between * speed[after]
    return before[shared], after[shared], np.floor(given[shared]).astype(np.int64)


def _passed(move: Ints, last: Ints, node: Ints) -> Ints:
    """By hop the latest node that the last burst of its move has come to.

    ``node`` is that of the hop itself (-1: it has none), ``last`` is by move.
    """
    begins = np.append(True, np.diff(move) != 0)[: len(move)]
    node = np.where(begins & (node < 0), last[move], node)
    at = np.where(node >= 0, np.arange(len(node)), 0)
    return np.asarray(node[np.maximum.accumulate(at)])


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

"""Bursts of several moves that come between each other on a link.

A graph knows the first burst of a move and its last one. What has a link for longer
than one burst takes shares it with whoever comes meanwhile, and both then take longer;
by how much is in the recording, and another is not known.
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.exact_time import SAME_NS, exact_ns
from kernbench.replay.whatif.graph import Graph
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.move_edges import hops_of
from kernbench.replay.whatif.servers import Ramps
from kernbench.replay.whatif.weights import IN_SRAM
from kernbench.trace import Trace


class Streams:
    """When each move of a trace had each link, and each port of an SRAM.

    Row i has ``_server[i]`` from ``_begin[i]`` to ``_end[i]`` ns, and comes as much
    later as the nodes ``_first[i]`` and ``_last[i]`` do. ``_shared[i]`` is for how long
    others had it as well, of each of them.
    """

    def __init__(self, trace: Trace, machine: Machine, graph: Graph) -> None:
        moves = graph.moves
        move, hop, edge = hops_of(moves, machine.ways)
        starts = trace.transfers.start
        begin = starts[moves.starts[move] + hop]
        on_last = starts[moves.last_starts[move] + hop]
        end = on_last + moves.last_bytes[move] / machine.links.speed[edge]
        hops = machine.ways.counts[moves.path[move]]
        in_sram = moves.memory[move] == IN_SRAM
        reads = np.flatnonzero(in_sram & moves.is_read[move] & (hop == 0))
        writes = np.flatnonzero(in_sram & ~moves.is_read[move] & (hop == hops - 1))
        # What goes to an SRAM has its port from then on until it is there, at most.
        there = trace.op_columns.t_end[moves.op[move[writes]]]
        access = exact_ns(machine.spec.cube.sram.access_ns)
        way = machine.way(moves.path[move[writes]], hop[writes])
        at_port = np.concatenate([reads, writes])
        port = machine.number_of_port(moves.node[move[at_port]])
        server = np.concatenate([edge, port])
        begin = np.concatenate([begin, begin[reads] - access, begin[writes] + way])
        end = np.concatenate([end, end[reads] - access, there - access])
        row = np.concatenate([np.arange(len(edge)), at_port])

        order = np.lexsort((begin, server))
        self._server: Array = server[order].astype(np.int32)
        self._begin: Floats = begin[order]
        self._end: Floats = np.maximum(end, begin)[order]
        row = row[order]
        self._first = graph.nodes_of_moves.first[move[row]]
        self._last = graph.nodes_of_moves.at_hop[row]
        self._shared = _shared(self._server, self._begin, self._end)

    def meet_otherwise(self, late_by: Floats) -> bool:
        """Whether two share a link for another time than they did.

        ``late_by`` is by node how much later it comes.
        """
        begin = self._begin + late_by[self._first]
        end = self._end + late_by[self._last]
        moved = np.zeros(int(self._server.max(initial=0)) + 1, np.bool_)
        is_late = np.abs(begin - self._begin) > SAME_NS
        is_late |= np.abs(end - self._end) > SAME_NS
        moved[self._server[is_late]] = True
        some = np.flatnonzero(moved[self._server])
        now = _shared(self._server[some], begin[some], np.maximum(end, begin)[some])
        return bool((np.abs(now - self._shared[some]) > SAME_NS).any())


def _shared(server: Array, begin: Floats, end: Floats) -> Floats:
    """For how long others have a server while one has it, ns, of each of them."""
    lasts = end - begin
    had = Ramps(server, begin, end, lasts)
    return had.given(server, begin, end) - lasts

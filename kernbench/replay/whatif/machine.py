"""The machine of a trace with other numbers: its links, paths, engines and memories.

Owns what the model computes from the spec alone: how long a header takes over a link,
how long a memory needs until its first byte. These are the closed forms of
docs/machine.md, restated for columns, since replay simulates nothing; tests hold them
against the model. Times are in ns.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.exact_time import TICK_NS, cycles_ns, exact_ns, exact_times
from kernbench.replay.whatif.links import LinkTimes
from kernbench.topology.spec import HbmSpec, TopologySpec
from kernbench.trace import Trace
from kernbench.trace.hops import edges_between, flat_paths


class Ways(NamedTuple):
    """The paths of a trace, one after the other, as links.

    ``hop_edges`` has the link of each hop, a row of ``Trace.edges`` (-1: none such);
    those of path i are ``counts[i]`` from ``firsts[i]`` on. ``first_node`` and
    ``last_node`` are by path, -1 of one that is lost. Behind all paths is one without
    hops, which stands for a path that is not known.
    """

    hop_edges: Ints
    firsts: Ints
    counts: Ints
    first_node: Ints
    last_node: Ints


def ways_of(trace: Trace) -> Ways:
    """The paths of a trace."""
    paths = flat_paths(trace)
    counts = np.append(np.maximum(paths.sizes - 1, 0), 0)
    firsts = np.cumsum(counts) - counts
    begins = np.append(paths.firsts, -1)
    path = np.repeat(np.arange(len(counts)), counts)
    at = begins[path] + np.arange(len(path)) - firsts[path]
    nodes = np.append(paths.nodes, -1)
    known = counts > 0
    last = begins + counts
    return Ways(
        hop_edges=edges_between(trace, nodes[at], nodes[at + 1]),
        firsts=firsts,
        counts=counts,
        first_node=nodes[np.where(known, begins, -1)],
        last_node=nodes[np.where(known, last, -1)],
    )


class DramTimes:
    """What a channel of HBM takes, ns; all that goes on steadily is slower by refresh.

    ``access`` is that of one access on the bus, ``read_lead`` and ``write_lead`` from
    the command to the data. ``open_row`` is what a row that is not open costs on top,
    ``row`` the least between two rows of one bank, and ``turn`` the most that a read
    has to stay behind a write because the bus turns.
    """

    def __init__(self, hbm: HbmSpec) -> None:
        rate = 1.0 - hbm.trfc_ns / hbm.trefi_ns
        access_ns = hbm.access_bytes / hbm.channel_bw_gbs
        self.access = exact_ns(access_ns / rate)
        self.read_lead = exact_ns(hbm.controller_ns + hbm.cl_ns)
        self.write_lead = exact_ns(hbm.controller_ns + hbm.cwl_ns)
        self.open_row = exact_ns(hbm.trp_ns) + exact_ns(hbm.trcd_ns)
        self.row = exact_ns((hbm.tras_ns + hbm.trp_ns) / rate)
        self.turn = exact_ns(hbm.twtr_l_ns + hbm.turn_ns)
        if hbm.model == "ideal":
            self.access = access_ns
            self.read_lead = exact_ns(hbm.access_ns)
            self.write_lead = self.read_lead
            self.open_row = 0.0
            self.row = 0.0
            self.turn = 0.0


class Machine:
    """A machine with the paths of a trace, the times of its links, and a spec."""

    def __init__(self, ways: Ways, links: LinkTimes, spec: TopologySpec) -> None:
        self.ways = ways
        self.links = links
        self.spec = spec

    @cached_property
    def _headers_before(self) -> Floats:
        """By hop of all paths, and once more, the headers of all hops before it, ns."""
        return np.append(0.0, np.cumsum(self.links.header[self.ways.hop_edges]))

    def way(self, path: Ints, since: Ints | int = 0) -> Floats:
        """How long headers take along paths, from hop ``since`` to the end, ns."""
        before = self._headers_before
        first = self.ways.firsts[path]
        return np.asarray(
            before[first + self.ways.counts[path]] - before[first + since]
        )

    def way_to(self, path: Ints, until: Ints) -> Floats:
        """How long headers take along paths, from the start up to hop ``until``, ns."""
        before = self._headers_before
        first = self.ways.firsts[path]
        return np.asarray(before[first + until] - before[first])

    @cached_property
    def slowest(self) -> Floats:
        """By path the bytes a ns of its slowest link."""
        ways = self.ways
        found = np.full(len(ways.counts), np.inf)
        path = np.repeat(np.arange(len(ways.counts)), ways.counts)
        np.minimum.at(found, path, self.links.speed[ways.hop_edges])
        return found

    def speed_at(self, path: Ints, hop: Ints | int) -> Floats:
        """The bytes a ns of the link of a hop of each path."""
        edges = np.append(self.ways.hop_edges, -1)
        return np.asarray(self.links.speed[edges[self.ways.firsts[path] + hop]])

    def number_of_port(self, node: Ints) -> Ints:
        """The numbers of the ports of SRAMs, by node: they are behind all links."""
        return node + len(self.links.speed)

    def speed_of(self, server: Ints) -> Floats:
        """The bytes a ns of links, and of the ports of SRAMs, by number."""
        links = len(self.links.speed)
        of_link = self.links.speed[np.minimum(server, links - 1)]
        of_port = self.spec.cube.sram.to_router_bw_gbs
        return np.where(server < links, of_link, of_port)

    @cached_property
    def dram(self) -> DramTimes:
        """The times of its HBM."""
        return DramTimes(self.spec.cube.hbm)

    @cached_property
    def issue_ns(self) -> float:
        """How long a PE_CPU takes to issue a call."""
        pe = self.spec.pe
        return cycles_ns(pe.cpu.issue_cycles, pe.clock_ghz)

    @cached_property
    def cycle_ns(self) -> float:
        """How long an op is held at least behind one that it conflicts with."""
        return max(TICK_NS, cycles_ns(1, self.spec.pe.clock_ghz))


def message_ns(nbytes: Array, bytes_per_ns: Array | float) -> Floats:
    """How long bytes take at a speed, in exact ns."""
    return exact_times(nbytes / bytes_per_ns)

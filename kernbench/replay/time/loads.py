"""How loaded links are over a window, and what is busiest.

A wire carries one burst at a time. Of a transaction of several bursts the first and the
last are recorded; those in between are taken as evenly spread. All answers come from
sums over time (``Levels``) that are made once: of a million ops in 1.5 s. From then on
any window costs the same, however much it has in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints, numbered
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.replay.text import table, time_text, wrapped
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.op_classes import COMPOSITE
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.spans import cut_off
from kernbench.trace import Trace
from kernbench.trace.bursts import burst_bytes, usual_burst
from kernbench.trace.carried import HopLog, carried_by, hop_log
from kernbench.trace.hops import (
    Levels,
    are_of_types,
    header_times,
)

_EPS = 1e-6  # ns, and bytes: what is less is nothing
_SHOWN = 40  # links in the text
_COLUMNS = "busy nbytes queue src dst kind"
_AT_ONCE = 1 << 10  # links that are listed between two calls of progress
_MEMORIES = ("hbm_ctrl", "sram")  # types of nodes that answer with data


@dataclass(frozen=True, slots=True)
class Link:
    """The load of one link, a row of ``Trace.edges``, over a window.

    ``nbytes`` is what it carried, ``busy`` the share of the time in which it did, and
    ``queue`` the most transactions that waited for it at once.
    """

    edge: int
    src: str
    dst: str
    kind: str
    nbytes: float
    busy: float
    queue: int


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The links that carried something in [t0, t1) ns, the busiest first.

    Where the recording was cut off, ``part`` says so.
    """

    t0: float
    t1: float
    links: tuple[Link, ...]
    part: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: a table of the busiest."""
        span = f"{time_text(self.t0)} to {time_text(self.t1)}"
        lines = [f"{len(self.links):,} links, {span}"]
        if self.links:
            lines += table(self.links[:_SHOWN], _COLUMNS, width=width)
        more = len(self.links) - _SHOWN
        if more > 0:
            lines.append(f"({more:,} less busy)")
        if self.part:
            lines += wrapped(self.part, width, 2)
        return lines


class BusyComponent(NamedTuple):
    """The share of a window in which a component had at least one op in service."""

    share: float
    node: str


@dataclass(frozen=True, slots=True)
class Busiest:
    """The components and links that were busy for longest in [t0, t1) ns.

    Where the recording was cut off, ``part`` says so.
    """

    t0: float
    t1: float
    components: tuple[BusyComponent, ...]
    links: tuple[Link, ...]
    part: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: the components, then a table of the links."""
        lines = [f"busiest, {time_text(self.t0)} to {time_text(self.t1)}"]
        lines += [f"{share:.2f} {node}" for share, node in self.components]
        if self.links:
            lines += table(self.links, _COLUMNS, width=width)
        if self.part:
            lines += wrapped(self.part, width, 2)
        return lines


class _LinkSums(NamedTuple):
    """What all links carried, and who waited for them, as sums over time.

    ``used`` are the rows of the edges that carried something; both sums are grouped by
    edge. ``carried`` is in bytes a ns, ``waiting`` in transactions.
    """

    used: Ints
    carried: Levels
    waiting: Levels


class _Loads(NamedTuple):
    """Links in the order in which they are listed, a column for each field."""

    edge: Ints
    nbytes: Floats
    busy: Floats
    queue: Ints


class LoadIndex:
    """Answers about links and components over any window.

    Its sums are filled by one thread, the worker of lane "columns", when they are first
    asked for. No other thread may ask: they are too long to make twice. A computation
    that is cancelled leaves what was there.
    """

    def __init__(self, trace: Trace, ops: OpIndex) -> None:
        self._trace = trace
        self._ops = ops
        self._links: _LinkSums | None = None
        self._in_service: Levels | None = None

    def links(self, t0: float, t1: float, progress: Progress = no_progress) -> LinkLoad:
        """The load of every link that carried something over [t0, t1) ns.

        A window that goes on after the end of the run has what the run has.
        """
        sums = self._link_sums(stage(progress, 0.0, 0.8))
        load = computed_beside(lambda: _loads(self._trace, sums, t0, t1), progress, 0.8)
        listed = self._listed(load, stage(progress, 0.9, 1.0))
        return LinkLoad(t0, t1, listed, cut_off(self._trace))

    def busiest(
        self, t0: float, t1: float, count: int, progress: Progress = no_progress
    ) -> Busiest:
        """The ``count`` components and links that are busy for most of [t0, t1) ns.

        A component is busy while it serves at least one op. Composites do not count:
        what they consist of is served elsewhere.
        """
        ids = self._trace.node_ids
        in_service = self._ops_in_service(stage(progress, 0.0, 0.3))

        def busy_shares() -> Array:
            nodes = np.arange(len(ids))
            busy = in_service.integral(in_service.level > 0, nodes, (t0, t1))
            return busy[:, 0] / (t1 - t0)

        share = computed_beside(busy_shares, progress, 0.3)
        shown = min(count, np.count_nonzero(share > 0))
        rows = []
        for node in np.argsort(-share, kind="stable")[:shown].tolist():
            rows.append(BusyComponent(float(share[node]), ids[node]))
        load = self.links(t0, t1, stage(progress, 0.4, 1.0))
        return Busiest(t0, t1, tuple(rows), load.links[:count], load.part)

    def _listed(self, load: _Loads, progress: Progress) -> tuple[Link, ...]:
        """All links, in the order in which they are given."""
        edges = self._trace.edges
        ids = self._trace.node_ids
        found = []
        for part in parts(len(load.edge), progress, _AT_ONCE):
            edge = load.edge[part]
            cells = zip(
                edge.tolist(),
                edges.src[edge].tolist(),
                edges.dst[edge].tolist(),
                load.nbytes[part].tolist(),
                load.busy[part].tolist(),
                load.queue[part].tolist(),
                strict=True,
            )
            for row, src, dst, nbytes, busy, queue in cells:
                kind = edges.kind[row]
                link = Link(row, ids[src], ids[dst], kind, nbytes, busy, queue)
                found.append(link)
        return tuple(found)

    # -- the sums --

    def _ops_in_service(self, progress: Progress) -> Levels:
        """How many ops are in service, by component."""
        if self._in_service is None:
            codes = self._ops.class_codes(progress=stage(progress, 0.0, 0.2))
            self._in_service = computed_beside(
                lambda: _ops_in_service(self._trace, codes), progress, 0.2
            )
        return self._in_service

    def _link_sums(self, progress: Progress) -> _LinkSums:
        """What all links carried, and who waited for them."""
        if self._links is None:
            trace = self._trace
            map_logs(trace, progress, "transfers", "edges", "nodes")
            sizes = burst_bytes(trace, usual_burst(trace), stage(progress, 0.0, 0.2))
            log = computed_beside(lambda: hop_log(trace, sizes), progress, 0.2)
            carried = computed_beside(lambda: carried_by(log), progress, 0.4)
            waiting = computed_beside(lambda: _waiting(trace, log), progress, 0.6)
            used = computed_beside(lambda: numbered(log.hops.edge)[0], progress, 0.9)
            self._links = _LinkSums(used, carried, waiting)
        return self._links


def _ops_in_service(trace: Trace, codes: Array) -> Levels:
    """How many ops are in service, by component; ``codes`` are their classes by row."""
    columns = trace.op_columns
    served = np.flatnonzero(codes != COMPOSITE)  # of a composite its tiles are served
    component = columns.component[served].astype(np.int64)
    starts = columns.t_start[served]
    ends = columns.t_end[served]
    return Levels(component, starts, ends, np.ones(len(served), np.int64))


def _loads(trace: Trace, sums: _LinkSums, t0: float, t1: float) -> _Loads:
    """What the links carried in [t0, t1) ns, by falling share of the time."""
    carried = sums.carried
    used = sums.used
    nbytes = carried.integral(carried.level, used, (t0, t1))[:, 0]
    busy = np.minimum(nbytes / trace.edges.bandwidth_gbs[used] / (t1 - t0), 1.0)
    queue = sums.waiting.most(used, t0, t1)
    listed = np.count_nonzero(nbytes > _EPS)
    order = np.argsort(-busy, kind="stable")[:listed]
    return _Loads(used[order], nbytes[order], busy[order], queue[order])


def _waiting(trace: Trace, log: HopLog) -> Levels:
    """How many transactions wait for each link.

    A header waits from when it has passed the node before the link, and a last burst
    likewise. What waits at the first link of a memory is not counted: it waits for the
    memory.
    """
    hops = log.hops
    hop_ns = header_times(trace)[hops.edge][:-1]
    passed = np.append(0.0, hops.start[:-1]) + np.append(0.0, hop_ns)
    last_passed = np.append(0.0, hops.last[:-1]) + np.append(0.0, hop_ns)

    is_memory = are_of_types(trace, _MEMORIES)
    from_memory = np.where(is_memory[hops.src], hops.start, log.begun)
    is_first = hops.hop == 0
    came = np.where(is_first, from_memory, passed)
    last_came = np.where(is_first, hops.last, last_passed)
    last_came = np.maximum(last_came, hops.start)

    waited: Bools = hops.start > came + SAME_NS
    last_waited: Bools = (log.bursts > 1) & (hops.last > last_came + SAME_NS)
    edges = np.concatenate([hops.edge[waited], hops.edge[last_waited]])
    since = np.concatenate([came[waited], last_came[last_waited]])
    until = np.concatenate([hops.start[waited], hops.last[last_waited]])
    # It ends a little before: at that instant the next one may come.
    return Levels(edges, since, until - _EPS, np.ones(len(edges), np.int64))

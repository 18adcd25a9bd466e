"""How loaded links are over a window, and what is busiest: from columns, any window at one cost.

A wire carries one burst at a time. Of a transaction of several bursts the first and the last are
recorded; those in between are taken as evenly spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import UsageError
from kernbench.replay.text import table, time_text
from kernbench.replay.time.routes import spec_number
from kernbench.replay.time.timeline import CLASSES, Timelines
from kernbench.trace import Trace
from kernbench.trace.hops import Hops, Levels, hop_columns

_EPS = 1e-6  # ns
_SHOWN, _COLUMNS = 40, "busy nbytes queue src dst kind"


@dataclass(frozen=True, slots=True)
class Link:
    """One link (a row of ``Trace.edges``): what it carried, the share of time it was busy, and the
    most transactions that waited for it at once.
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
    """Links that carried something in [t0, t1) ns, the busiest first."""

    t0: float
    t1: float
    links: tuple[Link, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [
            f"{len(self.links):,} links, {time_text(self.t0)} to {time_text(self.t1)}"
        ]
        lines += table(self.links[:_SHOWN], _COLUMNS, width=width) if self.links else []
        more = len(self.links) - _SHOWN
        return lines + ([f"({more:,} less busy)"] if more > 0 else [])


@dataclass(frozen=True, slots=True)
class Busiest:
    """Components, each behind its share of [t0, t1) ns with something in service, and links."""

    t0: float
    t1: float
    components: tuple[tuple[float, str], ...]
    links: tuple[Link, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [f"busiest, {time_text(self.t0)} to {time_text(self.t1)}"]
        lines += [f"{busy:.2f} {node}" for busy, node in self.components]
        return lines + (table(self.links, _COLUMNS, width=width) if self.links else [])


def window(
    whole: tuple[float, float], t0: float | None, t1: float | None
) -> tuple[float, float]:
    """From t0 to t1, for None the ends of ``whole``; UsageError if that is no time."""
    low, high = whole[0] if t0 is None else t0, whole[1] if t1 is None else t1
    if high <= low:
        raise UsageError(
            f"from {low:g} to {high:g} ns: the end must lie after the start"
        )
    return low, high


class Loads:
    """The links and components of a trace."""

    def __init__(self, trace: Trace, timelines: Timelines) -> None:
        self._trace, self._timelines = trace, timelines
        self._links: tuple[Array, Levels, Levels] | None = None

    def _index(self, progress: Progress) -> tuple[Array, Levels, Levels]:
        """Rows of the edges that carried something; their bytes a ns, and who waits for them."""
        trace, hops, log = self._trace, hop_columns(self._trace), self._trace.transfers
        speed = np.append(trace.edges.bandwidth_gbs, 0.0)[hops.edge]
        if not (sound := (speed > 0) & np.isfinite(speed)).all():
            hops, speed = Hops(*(column[sound] for column in hops)), speed[sound]
        progress(0.3)
        edge, row = hops.edge, hops.transfer
        nbytes, bursts = log.nbytes[row].astype(np.float64), log.bursts[row]
        usual = spec_number(trace.spec, "pe.dma.burst_bytes") or 1.0
        size = np.where(
            np.ceil(nbytes / usual) == bursts, usual, nbytes / np.maximum(bursts, 1)
        )
        size = np.where(bursts > 1, size, nbytes)
        many, more = np.flatnonzero(bursts > 1), np.flatnonzero(bursts > 2)
        ends = hops.start + size / speed
        tail = (nbytes - (bursts - 1) * size)[many]
        rest = ((bursts - 2) * size)[more] / np.maximum(hops.last - ends, _EPS)[more]
        carried = Levels(
            np.concatenate([edge, edge[many], edge[more]]),
            np.concatenate([hops.start, hops.last[many], ends[more]]),
            np.concatenate(
                [ends, hops.last[many] + tail / speed[many], hops.last[more]]
            ),
            np.concatenate([speed, speed[many], rest]),
        )
        progress(0.8)
        # a header comes to a link when it has passed the one before; a memory's first link has
        # none, as what it sends waits for the memory
        wire = trace.edges.distance_mm[hops.edge] * spec_number(
            trace.spec, "system.ns_per_mm"
        )
        delay = np.append(0.0, (wire + trace.nodes.overhead_ns[hops.dst])[:-1])
        memory = np.array([kind in ("hbm_ctrl", "sram") for kind in trace.nodes.type])
        begin = hops.hop == 0
        came = np.where(memory[hops.src], hops.start, log.t0[row])
        came = np.where(begin, came, np.append(0.0, hops.start[:-1]) + delay)
        then = np.where(begin, hops.last, np.append(0.0, hops.last[:-1]) + delay)
        then = np.maximum(then, hops.start)
        a, b = hops.start > came + _EPS, (bursts > 1) & (hops.last > then + _EPS)
        group, since = (
            np.concatenate([edge[a], edge[b]]),
            np.concatenate([came[a], then[b]]),
        )
        until = (
            np.concatenate([hops.start[a], hops.last[b]]) - _EPS
        )  # then the next one may come
        waiting = Levels(group, since, until, np.ones(len(group), np.int64))
        return np.flatnonzero(np.bincount(edge)), carried, waiting

    def links(self, t0: float, t1: float, progress: Progress = no_progress) -> LinkLoad:
        """The load of every link over [t0, t1) ns."""
        self._links = self._links or self._index(progress)
        used, carried, waiting = self._links
        edges, ids = self._trace.edges, self._trace.node_ids
        nbytes = carried.integral(carried.level, used, (t0, t1))[:, 0]
        busy = np.minimum(nbytes / edges.bandwidth_gbs[used] / (t1 - t0), 1.0)
        queue = waiting.most(used, t0, t1)
        found = []
        for i in np.argsort(-busy, kind="stable")[
            : np.count_nonzero(nbytes > _EPS)
        ].tolist():
            edge = int(used[i])
            ends = ids[edges.src[edge]], ids[edges.dst[edge]], edges.kind[edge]
            found.append(
                Link(edge, *ends, float(nbytes[i]), float(busy[i]), int(queue[i]))
            )
        return LinkLoad(t0, t1, tuple(found))

    @cached_property
    def _served(self) -> Levels:
        ops = self._trace.op_columns
        codes = self._timelines.codes(np.arange(len(ops.cmd)))
        own = np.flatnonzero(
            codes != [*CLASSES].index("C")
        )  # of a composite, tiles are served
        group, rates = ops.component[own].astype(np.int64), np.ones(len(own), np.int64)
        return Levels(group, ops.t_start[own], ops.t_end[own], rates)

    def busiest(
        self, t0: float, t1: float, count: int, progress: Progress = no_progress
    ) -> Busiest:
        """The ``count`` components and links that are busy for most of [t0, t1) ns."""
        served, ids = self._served, self._trace.node_ids
        shares = served.integral(served.level > 0, np.arange(len(ids)), (t0, t1)) / (
            t1 - t0
        )
        share = shares[:, 0]
        top = np.argsort(-share, kind="stable")[
            : min(count, np.count_nonzero(share > 0))
        ]
        rows = tuple((float(share[i]), ids[i]) for i in top.tolist())
        return Busiest(t0, t1, rows, self.links(t0, t1, progress).links[:count])

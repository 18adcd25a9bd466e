"""The routed path of an op's transactions: when the header came and left, by hop."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernbench.common.messages import Transfer
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.errors import TraceFormatError
from kernbench.replay.text import count_text, table, wrapped
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.op_classes import COMPOSITE_PREFIX
from kernbench.replay.time.spans import covered
from kernbench.trace import Trace
from kernbench.trace.hops import header_times


@dataclass(frozen=True, slots=True)
class Hop:
    """The header at one node, from its arrival to when it enters the next link; ns.

    ``edge_kind`` and ``distance_mm`` are of that link; at the last node there is none.
    """

    node: str
    edge_kind: str
    distance_mm: float
    arrive: float
    wait: float
    leave: float


@dataclass(frozen=True, slots=True)
class Leg:
    """One transaction, which began at t0 (ns): the hops of its first burst's header.

    What the header waits for at a node is the link, or the memory that it is at.
    """

    t0: float
    nbytes: int
    bursts: int
    hops: tuple[Hop, ...]


class RoutePart(NamedTuple):
    """What a part of an op's time went into, and how long that was."""

    what: str
    ns: float


@dataclass(frozen=True, slots=True)
class Route:
    """All transactions of the op at position ``op``, in the order of their ends.

    The ``parts`` sum to the op's time. Each instant counts as the first of these that
    holds: a recorded wait, memory's access, a header on its way; else it is set-up, or
    data behind the headers. ``note`` says why there is no transaction.
    """

    op: int
    name: str
    component: str
    legs: tuple[Leg, ...]
    note: str = ""
    parts: tuple[RoutePart, ...] = ()

    @property
    def took(self) -> str:
        """The time of the op as the sum of its parts, in words."""
        whole = sum(ns for _, ns in self.parts)
        parts = [f"{ns:.2f} {what}" for what, ns in self.parts if ns >= 0.005]
        return f"{whole:.2f} ns = {' + '.join(parts)}"

    def lines(self, width: int) -> list[str]:
        """As text: a table of hops for each transaction."""
        lines = [f"op {self.op:,}  {self.name} on {self.component}"]
        if self.note:
            lines.append(self.note)
        if self.legs:
            lines += wrapped(self.took, width, 2)
        for leg in self.legs:
            lines += leg_lines(leg)
        return lines


def leg_lines(leg: Leg) -> list[str]:
    """A transaction as text: what was sent when, and a table of hops."""
    bursts = count_text(leg.bursts, "burst")
    sent = f"{leg.nbytes:,} bytes in {bursts} from t={leg.t0:.2f} ns"
    took = f"{leg.hops[-1].arrive - leg.t0:.2f} ns to the last node"
    hops = table(leg.hops, "arrive wait leave distance_mm node edge_kind")
    return [f"{sent}, {took}", *(f"  {line}" for line in hops)]


def prepare_routes(trace: Trace, progress: Progress = no_progress) -> None:
    """Read what the first route would have to: transfers and waits, frame by frame.

    For a million ops that takes some 60 ms. A loader calls it; from then on the route
    of any op is there at once.
    """
    map_logs(trace, progress, "transfers", "waits", "nodes", "edges", "node_index")
    computed_beside(lambda: trace.transfers_of(0), progress, 0.5)
    computed_beside(lambda: trace.waits_of(0), progress, 0.5)


def route_of(trace: Trace, position: int) -> Route:
    """The route of the op at a position, at once.

    Raises TraceFormatError if a path takes a link that the topology does not have.
    """
    record = trace.ops[position]
    row = int(trace.order[position])
    legs = tuple(leg_of(trace, transfer) for transfer in trace.transfers_of(row))
    note = ""
    if not legs:
        note = "stays inside its component"
        if record.op_name.startswith(COMPOSITE_PREFIX):
            note = "a composite moves no bytes itself: its tiles do"
    waits = [(t0, t1) for _, _, t0, t1, _ in trace.waits_of(row)]
    parts = _parts(legs, waits, record.t_start, record.t_end)
    return Route(
        position, record.op_name, record.component_id, legs, note, tuple(parts)
    )


def _parts(
    legs: tuple[Leg, ...], waits: list[tuple[float, float]], t0: float, t1: float
) -> list[RoutePart]:
    """What the time from t0 to t1 (ns) consists of; see ``Route``."""
    at_memory = [(hop.arrive, hop.leave) for leg in legs for hop in leg.hops]
    on_the_way = []
    for leg in legs:
        for here, there in pairwise(leg.hops):
            on_the_way.append((here.leave, there.arrive))
    kinds = (
        ("waiting", waits),
        ("memory", at_memory),
        ("on the way", on_the_way),
        ("set-up, data", [(t0, t1)]),
    )
    spans = list[tuple[float, float]]()
    parts = list[RoutePart]()
    for what, more in kinds:
        spans = sorted([*spans, *more])
        starts, ends = np.array(spans or [(0.0, 0.0)]).T
        so_far = sum(ns for _, ns in parts)
        parts.append(RoutePart(what, covered(starts, ends, t0, t1) - so_far))
    return parts


def leg_of(trace: Trace, transfer: Transfer) -> Leg:
    """A transaction as hops, by the constants of the trace's topology.

    Raises TraceFormatError if its path takes a link that the topology does not have.
    """
    path, t0, nbytes, bursts, starts = transfer
    edges = trace.edges
    taken_ns = header_times(trace)
    arrive = t0
    hops = list[Hop]()
    for (here, there), start in zip(pairwise(path), starts, strict=False):
        src = trace.node_index[here]
        dst = trace.node_index[there]
        found = np.flatnonzero((edges.src == src) & (edges.dst == dst))
        if not len(found):
            raise TraceFormatError(
                f"{trace.path}: a path goes from {here} to {there}, which no link of "
                "its topology does; the file is damaged: record it again"
            )
        edge = found[-1]
        distance = float(edges.distance_mm[edge])
        hops.append(
            Hop(here, edges.kind[edge], distance, arrive, start - arrive, start)
        )
        arrive = start + float(taken_ns[edge])
    hops.append(Hop(path[-1], "", 0.0, arrive, 0.0, arrive))
    return Leg(t0, nbytes, bursts, tuple(hops))

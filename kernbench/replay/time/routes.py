"""The routed path of an op's transactions, hop by hop: when the header came, waited, left."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.messages import Transfer
from kernbench.errors import TraceFormatError
from kernbench.replay.text import count_text, table, wrapped
from kernbench.trace import Trace


@dataclass(frozen=True, slots=True)
class Hop:
    """The header at one node, which it leaves by a link (none at the last node); times in ns."""

    node: str
    edge_kind: str
    distance_mm: float
    arrive: float
    wait: float
    leave: float


@dataclass(frozen=True, slots=True)
class Leg:
    """One transaction: the first burst's header over its hops; it waits for links, and memory."""

    t0: float
    nbytes: int
    bursts: int
    hops: tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """All transactions of one op, in order of their end.

    ``parts`` sum to the op's time, ns, each moment once: recorded waits, else memory's access, else
    a header on its way, else set-up or data behind the headers.
    """

    op: int
    name: str
    component: str
    legs: tuple[Leg, ...]
    note: str = ""
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def took(self) -> str:
        """Its time as their sum."""
        parts = [f"{ns:.2f} {what}" for what, ns in self.parts if ns >= 0.005]
        return f"{sum(ns for _, ns in self.parts):.2f} ns = {' + '.join(parts)}"

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [f"op {self.op:,}  {self.name} on {self.component}"]
        lines += [self.note] if self.note else []
        lines += wrapped(self.took, width, 2) if self.legs else []
        for leg in self.legs:
            bursts = count_text(leg.bursts, "burst")
            sent = f"{leg.nbytes:,} bytes in {bursts} from t={leg.t0:.2f} ns"
            took = f"{leg.hops[-1].arrive - leg.t0:.2f} ns to the last node"
            lines.append(f"{sent}, {took}")
            hops = table(leg.hops, "arrive wait leave distance_mm node edge_kind")
            lines += [f"  {line}" for line in hops]
        return lines


def spec_number(spec: Any, path: str) -> float:
    """The number at a dotted path of a trace's spec; 0 if it has none there."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, dict) else None
    return float(spec) if isinstance(spec, int | float) and np.isfinite(spec) else 0.0


def issue_ns(spec: Any) -> float:
    """What PE_CPU takes to issue a call."""
    return spec_number(spec, "pe.cpu.issue_cycles") / (
        spec_number(spec, "pe.clock_ghz") or 1.0
    )


def route_of(trace: Trace, position: int) -> Route:
    """The route of the op at a canonical position."""
    record = trace.ops[position]
    row = int(trace.order[position])
    legs = tuple(_leg(trace, transfer) for transfer in trace.transfers_of(row))
    note = "stays inside its component"
    if record.op_name.startswith("composite_"):
        note = "a composite moves no bytes itself: its tiles do"
    spans, parts = list[tuple[float, float]](), list[tuple[str, float]]()
    for what, more in (
        ("waiting", [(wait[2], wait[3]) for wait in trace.waits_of(row)]),
        ("memory", [(hop.arrive, hop.leave) for leg in legs for hop in leg.hops]),
        (
            "on the way",
            [(a.leave, b.arrive) for leg in legs for a, b in pairwise(leg.hops)],
        ),
        ("set-up, data", [(record.t_start, record.t_end)]),
    ):
        spans = sorted([*spans, *more])
        low, high = np.array(spans or [(0.0, 0.0)]).T
        until = covered(low, high, record.t_start, record.t_end)
        parts.append((what, until - sum(ns for _, ns in parts)))
    note = "" if legs else note
    return Route(
        position, record.op_name, record.component_id, legs, note, tuple(parts)
    )


def covered(starts: Array, ends: Array, t0: float, t1: float) -> float:
    """How much of t0 to t1 lies in any of some spans, that are by their start."""
    low, high = starts.clip(t0, t1), ends.clip(t0, t1)
    before = np.maximum.accumulate(np.append(t0, high))[:-1]
    return float(np.maximum(high - np.maximum(low, before), 0.0).sum())


def _leg(trace: Trace, transfer: Transfer) -> Leg:
    """A transaction as hops, by the constants of the trace's topology."""
    path, t0, nbytes, bursts, starts = transfer
    arrive, hops, nodes, edges = t0, list[Hop](), trace.nodes, trace.edges
    for ends, start in zip(pairwise(path), starts, strict=False):
        a, b = (trace.node_index[end] for end in ends)
        found = np.flatnonzero((edges.src == a) & (edges.dst == b))
        if not len(found):
            raise TraceFormatError(
                f"{trace.path}: a path goes from {ends[0]} to {ends[1]}, which no link of its "
                "topology does; the file is damaged: record it again"
            )
        distance, kind = float(edges.distance_mm[found[-1]]), edges.kind[found[-1]]
        hops.append(Hop(ends[0], kind, distance, arrive, start - arrive, start))
        wire_ns = distance * spec_number(trace.spec, "system.ns_per_mm")
        arrive = start + wire_ns + float(nodes.overhead_ns[b])
    hops.append(Hop(path[-1], "", 0.0, arrive, 0.0, arrive))
    return Leg(t0, nbytes, bursts, tuple(hops))

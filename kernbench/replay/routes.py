"""The routed path of an op's transactions, hop by hop: when the header came, waited, left."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

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
    """One transaction: the first burst's header over its hops.

    ``transit_ns`` is wires and overheads, ``wait_ns`` the waits (for links, or for the memory's
    access); they sum to the last hop's arrival less ``t0``.
    """

    t0: float
    nbytes: int
    bursts: int
    hops: tuple[Hop, ...]
    transit_ns: float
    wait_ns: float


@dataclass(frozen=True, slots=True)
class Route:
    """All transactions of one op, in order of their end."""

    op: int
    name: str
    component: str
    legs: tuple[Leg, ...]
    note: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [f"op {self.op:,}  {self.name} on {self.component}"]
        lines += [self.note] if self.note else []
        for leg in self.legs:
            text = (
                f"{leg.nbytes:,} bytes in {count_text(leg.bursts, 'burst')} from t={leg.t0:.2f} "
                f"ns: {leg.transit_ns:.2f} transit + {leg.wait_ns:.2f} waiting = "
                f"{leg.transit_ns + leg.wait_ns:.2f} ns to the last node"
            )
            lines += wrapped(text, width, 2)
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
    return spec_number(spec, "pe.cpu.issue_cycles") / (spec_number(spec, "pe.clock_ghz") or 1.0)


def route_of(trace: Trace, position: int) -> Route:
    """The route of the op at a canonical position."""
    record = trace.ops[position]
    transfers = trace.transfers_of(int(trace.order[position]))
    legs = tuple(_leg(trace, transfer) for transfer in transfers)
    note = "stays inside its component"
    if record.op_name.startswith("composite_"):
        note = "a composite moves no bytes itself: its tiles do"
    return Route(position, record.op_name, record.component_id, legs, "" if legs else note)


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
    waited = sum(hop.wait for hop in hops)
    return Leg(t0, nbytes, bursts, tuple(hops), arrive - t0 - waited, waited)

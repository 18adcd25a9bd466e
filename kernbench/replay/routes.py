"""The routed path of an op's transactions, hop by hop: when the header came, waited, left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

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


class Routes:
    """Turns recorded starts into hops, with the constants of the trace's topology."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        ids, edges = trace.node_ids, trace.edges
        self._ns_per_mm = spec_number(trace.spec, "system.ns_per_mm")
        pairs = zip(edges.src.tolist(), edges.dst.tolist(), strict=True)
        self._edges = {(ids[s], ids[d]): i for i, (s, d) in enumerate(pairs)}

    def of(self, position: int) -> Route:
        """The route of the op at a canonical position."""
        record = self._trace.ops[position]
        transfers = self._trace.transfers_of(int(self._trace.order[position]))
        legs = tuple(self._leg(*transfer) for transfer in transfers)
        note = "stays inside its component"
        if record.op_name.startswith("composite_"):
            note = "a composite moves no bytes itself: its tiles do"
        return Route(position, record.op_name, record.component_id, legs, "" if legs else note)

    def _leg(
        self, path: Sequence[str], t0: float, nbytes: int, bursts: int, starts: Sequence[float]
    ) -> Leg:
        trace, arrive, hops = self._trace, t0, list[Hop]()
        for (node, then), start in zip(pairwise(path), starts, strict=False):
            edge = self._edges.get((node, then))
            if edge is None:
                raise TraceFormatError(
                    f"{trace.path}: a path goes from {node} to {then}, which no link of its "
                    "topology does; the file is damaged: record it again"
                )
            distance = float(trace.edges.distance_mm[edge])
            kind = trace.edges.kind[edge]
            hops.append(Hop(node, kind, distance, arrive, start - arrive, start))
            overhead = float(trace.nodes.overhead_ns[trace.node_index[then]])
            arrive = start + distance * self._ns_per_mm + overhead
        hops.append(Hop(path[-1], "", 0.0, arrive, 0.0, arrive))
        waited = sum(hop.wait for hop in hops)
        return Leg(t0, nbytes, bursts, tuple(hops), arrive - t0 - waited, waited)

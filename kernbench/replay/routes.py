"""The routed path of an op's transactions, hop by hop: when the header came, waited, left."""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.common.messages import Transfer
from kernbench.errors import TraceFormatError
from kernbench.trace import Trace


@dataclass(frozen=True, slots=True)
class Hop:
    """The header at one node: it arrives, waits (for the link, or for the memory's access), leaves.

    ``edge_kind`` and ``distance_mm`` are of the link that it leaves by; empty and 0 at the last
    node. Times in ns.
    """

    node: str
    edge_kind: str
    distance_mm: float
    arrive: float
    wait: float
    leave: float


@dataclass(frozen=True, slots=True)
class Leg:
    """One transaction: the first burst's header over its hops.

    ``transit_ns`` is wires and overheads, ``wait_ns`` the waits; they sum to the last hop's
    arrival less ``t0``.
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


class Routes:
    """Turns the recorded starts of a transfer into hops, with the constants of the trace's
    topology.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        ids, edges = trace.node_ids, trace.edges
        self._overhead = dict(zip(ids, trace.nodes.overhead_ns.tolist(), strict=True))
        system = trace.spec.get("system")
        speed = system.get("ns_per_mm") if isinstance(system, dict) else None
        self._ns_per_mm = float(speed) if isinstance(speed, int | float) else 0.0
        pairs = zip(edges.src.tolist(), edges.dst.tolist(), strict=True)
        self._edges = {(ids[s], ids[d]): i for i, (s, d) in enumerate(pairs)}

    def leg(self, transfer: Transfer) -> Leg:
        """The hops of one transfer."""
        path, t0, nbytes, bursts, starts = transfer
        edges = self._trace.edges
        arrive, transit, waited = t0, 0.0, 0.0
        hops: list[Hop] = []
        for i, node in enumerate(path[:-1]):
            edge = self._edges.get((node, path[i + 1]))
            if edge is None or i >= len(starts):
                raise TraceFormatError(
                    f"{self._trace.path}: a path goes from {node} to {path[i + 1]}, which no link "
                    "of its topology does; the file is damaged: record it again"
                )
            distance, start = float(edges.distance_mm[edge]), starts[i]
            hops.append(Hop(node, edges.kind_of(edge), distance, arrive, start - arrive, start))
            waited += start - arrive
            step = distance * self._ns_per_mm + self._overhead[path[i + 1]]
            transit += step
            arrive = start + step
        hops.append(Hop(path[-1], "", 0.0, arrive, 0.0, arrive))
        return Leg(t0, nbytes, bursts, tuple(hops), transit, waited)

    def of(self, position: int) -> Route:
        """The route of the op at a canonical position."""
        row = int(self._trace.order[position])
        record = self._trace.ops[position]
        legs = tuple(self.leg(transfer) for transfer in self._trace.transfers_of(row))
        note = "stays inside its component"
        if record.op_name.startswith("composite_"):
            note = "a composite moves no bytes itself: its tiles do"
        return Route(position, record.op_name, record.component_id, legs, "" if legs else note)

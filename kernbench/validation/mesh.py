"""The network against BookSim: packets alone, and uniform random traffic.

BookSim's mesh has routers of four stages and links of one cycle, so a packet that meets
no other takes 5 x routers + 2 + flits - 1 cycles. Here a cycle is 1 ns and a flit 16
bytes: every link carries 16 GB/s, a router costs 5 ns, a wire nothing. Two cycles are
injection and ejection: injection is what the node costs at which a packet ends;
ejection is the head flit's own cycle, one of the ``flits`` that the network's
serialisation counts, where BookSim counts it apart and flits - 1 behind it.

As each node of BookSim's mesh, every router has a source and a sink. Both are nodes of
the machine's graph, joined to the router by links of a flit a cycle, and the machine's
network times all that goes between them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import sqrt
from statistics import fmean, stdev

import numpy as np

from kernbench.common.messages import MsgBase, Transaction
from kernbench.components.base import Process
from kernbench.components.network import Delivery
from kernbench.policy.routing.router import router_node
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologyGraph, build_topology
from kernbench.topology.graph import Edge
from kernbench.topology.spec import HbmZoneSpec, MeshSpec, RouterSpec
from kernbench.validation.machines import one_sip
from kernbench.validation.table import Bound, Row, Table

Router = tuple[int, int]
"""Row and column of a router."""

FLIT_BYTES = 16
_FLIT_GBS = 16.0  # a flit a cycle of 1 ns
_ROUTER_NS = 5.0
_INJECTION_NS = 1.0

_BOOKSIM = "BookSim"
_REGRESSION = "itself, a regression"

Loaded = tuple[int, float, str, float, Bound]
"""Size of the mesh, flits a node and cycle, whose mean latency in cycles of packets of
one flit it is, and how far the model may be from it.
"""

LOADED: tuple[Loaded, ...] = (
    (4, 0.05, _BOOKSIM, 19.53, Bound(5)),
    (4, 0.1, _BOOKSIM, 19.72, Bound(5)),
    (4, 0.2, _BOOKSIM, 19.94, Bound(5)),
    (4, 0.3, _BOOKSIM, 20.28, Bound(5)),
    (4, 0.4, _BOOKSIM, 20.80, Bound(5)),
    (8, 0.3, _REGRESSION, 34.62, Bound(1)),
    (8, 0.4, _REGRESSION, 36.57, Bound(1)),
)
"""The rows of the table of random traffic.

Of BookSim's 8 x 8 it was noted only by how much the model fell short, 6 and 23 %. Its
latencies were not, so the model is held against what it gave before.
"""

WARM_UP_CYCLES = 1000
MEASURED_CYCLES = 5000
_BATCHES = 20


def packet_cycles(routers: int, flits: int) -> int:
    """BookSim's latency of a packet that meets no other."""
    return 5 * routers + 2 + flits - 1


def mesh_of(size: int) -> TopologyGraph:
    """A cube of size x size routers in BookSim's cycles, each with a source and a sink.

    Their ids are those of the router with ".source" and ".sink" behind.
    """
    spec = one_sip(
        mesh=MeshSpec(size, size),
        hbm_zone=HbmZoneSpec(0, 0, 0, 0),
        router=RouterSpec(link_bw_gbs=_FLIT_GBS, overhead_ns=_ROUTER_NS),
    )
    no_wires = replace(spec.system, ns_per_mm=0.0)
    graph = build_topology(replace(spec, system=no_wires))
    nodes = dict(graph.nodes)
    edges = list(graph.edges)
    for row, col in product(range(size), repeat=2):
        router = graph.nodes[router_node(0, 0, row, col)]
        ends = (("source", 0.0), ("sink", _INJECTION_NS))
        for name, overhead_ns in ends:
            node = replace(
                router,
                id=f"{router.id}.{name}",
                engine=f"{router.engine}.{name}",
                overhead_ns=overhead_ns,
            )
            nodes[node.id] = node
        into = (f"{router.id}.source", router.id)
        out_of = (router.id, f"{router.id}.sink")
        for src, dst in (into, out_of):
            edges.append(Edge(src, dst, "router_mesh", 0.0, 0.0, _FLIT_GBS))
    return replace(graph, nodes=nodes, edges=tuple(edges))


def xy_path(start: Router, end: Router) -> tuple[str, ...]:
    """The way of a packet: along its row first, then along the column, as BookSim's."""
    row, col = start
    last_row, last_col = end
    across = range(col, last_col, 1 if last_col > col else -1)
    down = range(row, last_row, 1 if last_row > row else -1)
    routers = [
        *(router_node(0, 0, row, each) for each in across),
        *(router_node(0, 0, each, last_col) for each in down),
        router_node(0, 0, last_row, last_col),
    ]
    return (f"{routers[0]}.source", *routers, f"{routers[-1]}.sink")


def nodes_of(size: int) -> list[Router]:
    """All nodes of a mesh, row by row."""
    return [(row, col) for row in range(size) for col in range(size)]


def routers_between(start: Router, end: Router) -> int:
    """How many routers a packet passes, both ends counted."""
    return abs(start[0] - end[0]) + abs(start[1] - end[1]) + 1


def lone_latencies(size: int, flits: int) -> Iterator[tuple[int, float]]:
    """(routers on the way, cycles) of a packet between every two nodes, alone."""
    engine = GraphEngine(mesh_of(size), op_logger=None)
    env = engine.env
    for start, end in product(nodes_of(size), repeat=2):
        packet = Transaction(xy_path(start, end), flits * FLIT_BYTES, MsgBase())
        t0 = env.now
        env.run(until=env.process(engine.sim.transfer(packet)))
        yield routers_between(start, end), env.now - t0


def mesh_table() -> Table:
    """Latency of a packet alone: the mean over all pairs of nodes, and the corners."""
    rows = []
    for size, flits in product((4, 8), (1, 5)):
        seen = list(lone_latencies(size, flits))
        expected = [packet_cycles(routers, flits) for routers, _ in seen]
        measured = [cycles for _, cycles in seen]
        kind = f"{size} x {size} mesh, {flits} flit{'' if flits == 1 else 's'}"
        for which, of in (("mean", fmean), ("corner to corner", max)):
            what = f"{kind}, {which}"
            rows.append(Row(what, "BookSim", of(expected), of(measured), "cycles"))
    return Table("A packet alone", rows)


@dataclass(frozen=True, slots=True)
class Latency:
    """Mean latency of packets in cycles, its standard error, and how many there were.

    ``mean`` is the mean of what a packet alone takes, which is known exactly, and the
    mean of what packets waited. So the error is that of the waits only; it is taken
    from the means of 20 stretches of the run.
    """

    mean: float
    standard_error: float
    packets: int


def loaded_latency(
    size: int,
    load: float,
    seed: int = 0,
    warm_up: int = WARM_UP_CYCLES,
    measured: int = MEASURED_CYCLES,
) -> Latency:
    """Packets of one flit between random nodes, ``load`` flits a node and cycle.

    In each cycle every node sends a packet with that probability, to any node, itself
    among them, as BookSim's "uniform" does. Those sent in the ``warm_up`` cycles are
    not counted. All that are counted have landed.
    """
    random = np.random.default_rng(seed)
    nodes = nodes_of(size)
    sent = random.random((warm_up + measured, len(nodes))) < load
    targets = random.integers(len(nodes), size=sent.shape)
    engine = GraphEngine(mesh_of(size), op_logger=None)
    env = engine.env
    waits: list[list[float]] = [[] for _ in range(_BATCHES)]

    def send(cycle: int, start: Router, end: Router) -> None:
        """Send a packet off; when it has landed, note what it waited."""
        path = xy_path(start, end)
        alone = packet_cycles(routers_between(start, end), flits=1)
        packet = Transaction(path, FLIT_BYTES, MsgBase())
        delivery = Delivery(engine.network, packet)

        def landed(_event: object) -> None:
            batch = (cycle - warm_up) * _BATCHES // measured
            waits[batch].append(env.now - cycle - alone)

        if cycle >= warm_up:
            delivery.callbacks.append(landed)
        delivery.start()

    def cycles() -> Process:
        """All nodes, cycle by cycle."""
        for cycle in range(warm_up + measured):
            for node in np.flatnonzero(sent[cycle]):
                send(cycle, nodes[node], nodes[targets[cycle, node]])
            yield env.timeout(1)

    env.process(cycles())
    env.run()
    alone = fmean(
        packet_cycles(routers_between(start, end), flits=1)
        for start, end in product(nodes, repeat=2)
    )
    means = [fmean(batch) for batch in waits]
    mean_wait = fmean(wait for batch in waits for wait in batch)
    error = stdev(means) / sqrt(_BATCHES)
    return Latency(alone + mean_wait, error, sum(map(len, waits)))


def load_table(cases: Iterable[Loaded] = LOADED) -> Table:
    """Mean latency under uniform random traffic."""
    rows = []
    for size, load, source, cycles, bound in cases:
        seen = loaded_latency(size, load)
        rows.append(
            Row(
                what=f"{size} x {size} mesh, 1 flit, load {load:g}",
                source=source,
                reference=cycles,
                model=seen.mean,
                unit="cycles",
                bound=bound,
                standard_error=seen.standard_error,
            )
        )
    return Table("Uniform random traffic", rows)

"""PathRouter on small made-up graphs; networkx is the reference for lengths."""

import heapq
import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.policy.routing.router import PathRouter, RoutingError

UCIE = {
    "ucie_internal",
    "ucie_conn_to_router",
    "router_to_ucie_conn",
    "ucie_conn_to_noc",
    "noc_to_ucie_conn",
    "ucie_mesh",
    "io_to_cube",
    "cube_to_io",
}
PIPELINE = {"pe_internal", "pe_to_router"}
KINDS = sorted(UCIE | PIPELINE | {"command", "router_mesh", "pcie"})
# policy -> kinds excluded within a cube, and otherwise (ADR-0051 D2 and D3)
EXCLUDED = {
    "pe": (UCIE, {"command"}),
    "mcpu_dma": (UCIE | PIPELINE, PIPELINE),
    "memory": (PIPELINE, PIPELINE),
    "node": (set(), set()),
}
NAMES = [f"sip{s}.cube{c}.{n}" for s, c in [(0, 0), (0, 1), (1, 0)] for n in "abc"] + [
    "sip0.io0.x"
]


def edge(src, dst, kind="router_mesh", distance=1.0, weight=0.0):
    return SimpleNamespace(
        src=src, dst=dst, kind=kind, distance_mm=distance, routing_weight_mm=weight
    )


def path_router(*edges):
    return PathRouter(SimpleNamespace(nodes={}, edges=edges, spec=None))


names = st.sampled_from(NAMES)
# Few different lengths, so that ties are common.
edges = st.builds(
    edge,
    names,
    names,
    st.sampled_from(KINDS),
    st.integers(0, 3).map(float),
    st.sampled_from([0.0, None, 2.0]),
)


def outcome(find):
    try:
        return find()
    except RoutingError as error:
        return str(error)


@pytest.mark.slow
@given(st.lists(edges, max_size=40), st.sampled_from(sorted(EXCLUDED)), names, names)
def test_a_path_is_as_short_as_the_one_networkx_finds(made, policy, src, dst):
    local = src.split(".")[:2] == dst.split(".")[:2] and ".cube" in src
    excluded = EXCLUDED[policy][not local]
    reference = nx.DiGraph()
    reference.add_nodes_from(NAMES)
    for e in made:
        weight = e.routing_weight_mm or e.distance_mm
        if e.kind not in excluded:
            held = reference.get_edge_data(e.src, e.dst, {"weight": math.inf})["weight"]
            reference.add_edge(e.src, e.dst, weight=min(weight, held))
    router = path_router(*made)
    if not nx.has_path(reference, src, dst):
        with pytest.raises(RoutingError, match=f"^no path from {src} to {dst}$"):
            router.route(policy, src, dst)
        return
    path = router.route(policy, src, dst)
    assert (path[0], path[-1]) == (src, dst)
    length = nx.path_weight(reference, path, "weight")
    assert length == nx.dijkstra_path_length(reference, src, dst)


@pytest.mark.slow
@given(
    st.lists(edges, max_size=40).flatmap(
        lambda e: st.tuples(st.just(e), st.permutations(e))
    )
)
def test_paths_do_not_depend_on_the_order_of_edges(both):
    routers = [path_router(*made) for made in both]
    for src, dst in product(NAMES[:3], NAMES):
        first, second = (
            outcome(partial(r._dijkstra_with_dist, src, dst)) for r in routers
        )
        assert first == second


@pytest.mark.slow
@given(st.lists(edges, max_size=40), st.permutations(NAMES))
def test_paths_do_not_depend_on_what_was_asked_before(made, goals):
    used = path_router(*made)
    for goal in goals:
        fresh = path_router(*made)
        ask = [partial(r.find_node_path, NAMES[0], goal) for r in (used, fresh)]
        assert outcome(ask[0]) == outcome(ask[1])


def test_equal_paths_are_told_apart_by_node_id():
    made = [edge("a", "y"), edge("a", "x"), edge("y", "z"), edge("x", "z")]
    assert path_router(*made).find_node_path("a", "z") == ["a", "x", "z"]


def test_find_path_starts_at_the_dma_of_the_pe():
    router = path_router(
        edge("sip0.cube0.pe0.pe_dma", "sip0.cube0.r0c0", "pe_to_router", 2.0)
    )
    path = ["sip0.cube0.pe0.pe_dma", "sip0.cube0.r0c0"]
    assert router.find_path("sip0.cube0.pe0", "sip0.cube0.r0c0") == path
    assert router.find_path_with_distance("sip0.cube0.pe0", "sip0.cube0.r0c0") == (
        path,
        2.0,
    )


def test_a_path_within_a_cube_pays_the_mesh_and_not_the_ucie_bus():
    dma, via, port, end = (
        f"sip0.cube0.{n}" for n in ("pe0.pe_dma", "r0", "ucie_N", "sram")
    )
    router = path_router(
        edge(dma, via),
        edge(via, end, distance=9.0),
        edge(via, port, "router_to_ucie_conn", 0.1),
        edge(port, end, "ucie_conn_to_router", 0.1),
    )
    assert router.find_path("sip0.cube0.pe0", end) == [dma, via, end]
    assert router._dijkstra(dma, end) == [dma, via, port, end]


def test_cube_1_and_cube_10_are_different_cubes():
    dma = "sip0.cube1.pe0.pe_dma"
    router = path_router(edge(dma, "sip0.cube10.sram", "ucie_mesh"))
    assert (
        router.find_path("sip0.cube1.pe0", "sip0.cube10.sram")[-1] == "sip0.cube10.sram"
    )


@pytest.mark.parametrize("other", ["sip0.cube0", "sip0.cube1"])
def test_mcpu_dma_never_takes_the_short_way_through_a_pe(other):
    start = "sip0.cube0.m_cpu"
    pe = "sip0.cube0.pe0.pe_dma"
    far = "sip0.cube0.r0c0"
    end = f"{other}.hbm_ctrl.pe0"
    router = path_router(
        edge(start, pe, "router_to_pe"),
        edge(pe, end, "pe_to_router"),
        edge(start, far, distance=50.0),
        edge(far, end, distance=50.0),
    )
    assert router.find_mcpu_dma_path(start, end) == [start, far, end]
    assert router.find_memory_path(start, end) == [start, far, end]


def test_command_edges_serve_node_paths_and_no_data():
    a = "sip0.io0.io_cpu"
    b = "sip0.cube0.m_cpu"
    router = path_router(edge(a, b, "command"))
    assert router.find_node_path(a, b) == [a, b]
    with pytest.raises(RoutingError, match="no path"):
        router.route("pe", a, b)


def test_a_returned_list_is_the_callers_own():
    router = path_router(edge("a", "b"))
    router.find_node_path("a", "b").clear()
    assert router.find_node_path("a", "b") == ["a", "b"]
    assert router.route("node", "a", "b") is router.route("node", "a", "b")


def test_a_search_that_ctrl_c_ended_halfway_is_begun_anew(monkeypatch):
    pushes = iter([KeyboardInterrupt()])

    def push(heap, entry):
        interrupt = next(pushes, None)
        if interrupt is not None:
            raise interrupt
        heapq.heappush(heap, entry)

    interrupted = SimpleNamespace(heappop=heapq.heappop, heappush=push)
    monkeypatch.setattr("kernbench.policy.routing.router.heapq", interrupted)
    router = path_router(edge("sip0.io0.a", "sip0.io0.b"))
    with pytest.raises(KeyboardInterrupt):
        router.find_node_path("sip0.io0.a", "sip0.io0.b")
    assert router.find_node_path("sip0.io0.a", "sip0.io0.b") == [
        "sip0.io0.a",
        "sip0.io0.b",
    ]

"""What routes on real machines must be like: the shipped one throughout, odd ones
within a cube.
"""

import random
from dataclasses import replace
from itertools import pairwise, product

import networkx as nx
import pytest

from kernbench.errors import RoutingError
from kernbench.policy.routing.router import (
    AddressResolver,
    PathRouter,
    cube_node,
    hbm_node,
    pe_node,
    pe_prefix,
)
from kernbench.topology import (
    TopologyGraph,
    TopologySpec,
    build_topology,
    load_topology,
)
from kernbench.topology.spec import (
    CubeMeshSpec,
    CubeSpec,
    HbmZoneSpec,
    MemoryMapSpec,
    MeshSpec,
    SipSpec,
)

MCPU = "m_cpu"


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return load_topology(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def router(graph):
    return PathRouter(graph)


def targets(spec, sip, cube):
    """Every memory of a cube that PEs read and write."""
    pes = range(spec.cube.pes)
    slices = [hbm_node(sip, cube, pe) for pe in pes]
    return [
        *slices,
        cube_node(sip, cube, "sram"),
        *(pe_node(sip, cube, p, "pe_tcm") for p in pes),
    ]


def assert_is_a_data_path(graph, path):
    types = [graph.nodes[node].type for node in path]
    kinds = {graph.edge_by_ends[pair].kind for pair in pairwise(path)}
    assert "command" not in kinds, path
    assert not {"m_cpu", "pe_cpu", "io_cpu"} & set(types), path
    inner = [
        node
        for node, type_ in zip(path[1:-1], types[1:-1], strict=True)
        if "pe_" in type_
    ]
    # Another PE's DMA is the way into its TCM, and nothing else of a PE is passed.
    assert inner in ([], [path[-1].replace("pe_tcm", "pe_dma")]), path


def assert_pe_paths_in_cube(graph, router, sip, cube):
    for pe in range(graph.spec.cube.pes):
        for target in targets(graph.spec, sip, cube):
            path = router.find_path(pe_prefix(sip, cube, pe), target)
            assert_is_a_data_path(graph, path)
            assert {(graph.nodes[n].sip, graph.nodes[n].cube) for n in path} == {
                (sip, cube)
            }


def test_pe_data_within_a_cube_cross_no_cpu_and_no_other_pe(graph, router):
    for sip, cube in product(range(2), range(16)):
        assert_pe_paths_in_cube(graph, router, sip, cube)


@pytest.mark.parametrize(
    ("mesh", "zone", "pes"),
    [
        (MeshSpec(1, 1), HbmZoneSpec(0, 0, 0, 0), 1),
        (MeshSpec(2, 9), HbmZoneSpec(0, 0, 0, 0), 16),
        (MeshSpec(6, 6), HbmZoneSpec(0, 2, 5, 2), 8),
        (MeshSpec(9, 3), HbmZoneSpec(1, 1, 8, 1), 16),
        (MeshSpec(6, 6), HbmZoneSpec(1, 1, 4, 4), 16),
    ],
)
@pytest.mark.slow
def test_that_holds_for_other_meshes(tmp_path, mesh, zone, pes):
    cube = CubeSpec(
        pes=pes, mesh=mesh, hbm_zone=zone, memory_map=MemoryMapSpec(48, pes)
    )
    graph = build_topology(TopologySpec(cube=cube), tmp_path)
    assert_pe_paths_in_cube(graph, PathRouter(graph), 0, 5)


def test_pe_data_between_cubes_use_ucie_ports_only_to_change_cubes(graph, router):
    for a, b in product(range(16), range(16)):
        if a == b:
            continue
        path = router.find_path(pe_prefix(0, a, 0), hbm_node(0, b, 7))
        assert_is_a_data_path(graph, path)
        cubes = [graph.nodes[node].cube for node in path]
        crossings = [(m, n) for m, n in pairwise(cubes) if m != n]
        steps = abs(a // 4 - b // 4) + abs(a % 4 - b % 4)
        assert len(crossings) == steps, path
        assert sum(graph.nodes[node].type == "ucie" for node in path) == 2 * steps, path


def test_pe_data_between_sips_cross_the_switch(graph, router):
    path = router.find_path(pe_prefix(0, 0, 0), pe_node(1, 15, 3, "pe_tcm"))
    assert_is_a_data_path(graph, path)
    assert path.count("fabric.switch0") == 1


def test_host_data_enter_by_the_io_noc_and_cross_no_pe_and_no_cpu(graph, router):
    for sip, cube, pe in product(range(2), range(16), range(8)):
        path = router.find_memory_path("sip0.io0.pcie_ep", hbm_node(sip, cube, pe))
        types = {graph.nodes[node].type for node in path}
        assert types <= {
            "pcie_ep",
            "io_noc",
            "switch",
            "ucie",
            "ucie_conn",
            "router",
            "hbm_ctrl",
        }


def test_mcpu_dma_crosses_no_pe_and_no_other_cpu(graph, router):
    for a, b in product(range(0, 16, 5), range(16)):
        for sip, pe in product(range(2), range(8)):
            path = router.find_mcpu_dma_path(
                cube_node(0, a, MCPU), hbm_node(sip, b, pe)
            )
            types = [graph.nodes[node].type for node in path[1:]]
            assert not [
                t for t in types if t.startswith("pe_") or t.endswith("_cpu")
            ], path


def test_command_paths_are_the_command_edges(graph, router):
    resolver = AddressResolver(graph)
    for sip, cube in product(range(2), range(16)):
        io_cpu = resolver.find_io_cpu(sip)
        m_cpu = resolver.find_m_cpu(sip, cube)
        assert router.find_node_path(io_cpu, m_cpu) == [io_cpu, m_cpu]
        assert router.find_node_path(m_cpu, io_cpu) == [m_cpu, io_cpu]
        for pe_cpu in (pe_node(sip, cube, pe, "pe_cpu") for pe in range(8)):
            assert router.find_node_path(m_cpu, pe_cpu) == [m_cpu, pe_cpu]
            assert router.find_node_path(pe_cpu, m_cpu) == [pe_cpu, m_cpu]


def test_a_command_edge_is_longer_than_any_way_through_the_mesh_of_a_cube(graph):
    mesh = nx.DiGraph()
    for e in graph.edges:
        if e.kind == "router_mesh" and e.src.startswith("sip0.cube0."):
            mesh.add_edge(e.src, e.dst, weight=e.distance_mm)
    lengths = dict(nx.all_pairs_dijkstra_path_length(mesh, weight="weight"))
    diameter = max(max(row.values()) for row in lengths.values())
    assert (
        min(e.routing_weight_mm for e in graph.edges if e.kind == "command") > diameter
    )


def test_distance_grows_from_own_slice_to_half_to_cube_to_next_cube(router):
    def distance(pe, cube, slice_):
        return router.find_path_with_distance(
            pe_prefix(0, 0, pe), hbm_node(0, cube, slice_)
        )[1]

    for pe in range(8):
        half = set(range(4)) if pe < 4 else set(range(4, 8))
        same = [distance(pe, 0, other) for other in half - {pe}]
        cross = [distance(pe, 0, other) for other in set(range(8)) - half]
        next_cube = [distance(pe, 1, other) for other in range(8)]
        assert distance(pe, 0, pe) < min(same)
        assert max(same) < min(cross)
        assert max(cross) < min(next_cube)


UCIE = {"ucie_internal", "ucie_mesh", "io_to_cube", "cube_to_io"} | {
    f"{a}_to_{b}"
    for x in ("router", "noc")
    for a, b in [(x, "ucie_conn"), ("ucie_conn", x)]
}
PIPELINE = {"pe_internal", "pe_to_router"}
# policy -> kinds excluded within a cube, and otherwise (ADR-0051 D2 and D3)
EXCLUDED = {
    "pe": (UCIE, {"command"}),
    "mcpu_dma": (UCIE | PIPELINE, PIPELINE),
    "memory": (PIPELINE, PIPELINE),
    "node": (set(), set()),
}


@pytest.mark.parametrize("policy", EXCLUDED)
@pytest.mark.slow
def test_lengths_on_the_shipped_graph_are_those_of_networkx(graph, router, policy):
    references = [nx.DiGraph(), nx.DiGraph()]
    for reference, excluded in zip(references, EXCLUDED[policy], strict=True):
        for e in graph.edges:
            if e.kind not in excluded:
                reference.add_edge(
                    e.src, e.dst, weight=e.routing_weight_mm or e.distance_mm
                )
    rng = random.Random(policy)
    sources = [pe_node(0, 5, 2, "pe_dma")] if policy == "pe" else ["sip0.io0.pcie_ep"]
    for src in (*sources, cube_node(1, 9, MCPU)):
        here = graph.nodes[src]
        cube = [
            n.id
            for n in graph.nodes.values()
            if (n.sip, n.cube) == (here.sip, here.cube)
        ]
        for dst in {*rng.sample(sorted(graph.nodes), 100), *cube} - {src}:
            there = graph.nodes[dst]
            local = here.cube >= 0 and (here.sip, here.cube) == (there.sip, there.cube)
            reference = references[not local]
            if dst not in reference or not nx.has_path(reference, src, dst):
                with pytest.raises(
                    RoutingError, match=f"^no path from {src} to {dst}$"
                ):
                    router.route(policy, src, dst)
                continue
            length = nx.dijkstra_path_length(reference, src, dst)
            path = router.route(policy, src, dst)
            assert nx.path_weight(reference, path, "weight") == pytest.approx(length)


@pytest.mark.slow
def test_a_hundred_shuffled_builds_give_the_same_routes(tmp_path):
    sip = SipSpec(CubeMeshSpec(2, 2))
    graph = build_topology(replace(TopologySpec(), sip=sip), tmp_path)
    rng = random.Random(3)
    ids = sorted(graph.nodes)
    asked = [
        ("pe", pe_node(0, 0, 0, "pe_dma"), hbm_node(1, 3, 7)),
        ("memory", "sip0.io0.pcie_ep", hbm_node(1, 2, 3)),
    ]
    asked += [("pe", pe_node(0, 1, 2, "pe_dma"), hbm_node(0, 1, pe)) for pe in range(8)]
    asked += [
        ("mcpu_dma", cube_node(0, 2, MCPU), hbm_node(0, cube, 5)) for cube in range(4)
    ]
    asked += [("node", *rng.sample(ids, 2)) for _ in range(3)]
    routes = set()
    for _ in range(100):
        edges = rng.sample(graph.edges, len(graph.edges))
        nodes = dict(rng.sample(sorted(graph.nodes.items()), len(graph.nodes)))
        shuffled = PathRouter(TopologyGraph(nodes, tuple(edges), graph.spec))
        routes.add(tuple(shuffled.route(*question) for question in asked))
    assert len(routes) == 1


@pytest.mark.slow
def test_shuffled_edges_give_the_same_routes_on_the_shipped_graph(graph, router):
    class Shuffled:
        nodes = graph.nodes
        spec = graph.spec
        edges = random.Random(1).sample(graph.edges, len(graph.edges))

    other = PathRouter(Shuffled)
    rng = random.Random(2)
    ids = sorted(graph.nodes)
    for _ in range(25):
        src, dst = rng.sample(ids, 2)
        assert other.route("node", src, dst) == router.route("node", src, dst)
        pe = pe_prefix(rng.randrange(2), rng.randrange(16), rng.randrange(8))
        slice_ = hbm_node(rng.randrange(2), rng.randrange(16), rng.randrange(8))
        assert other.find_path(pe, slice_) == router.find_path(pe, slice_)

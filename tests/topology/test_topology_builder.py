from collections import Counter
from dataclasses import replace
from itertools import product

import networkx as nx
import pytest

from kernbench.errors import RoutingError, TopologyError
from kernbench.policy.routing.router import io_conn_node, pe_node, ucie_node
from kernbench.topology import (
    TopologySpec,
    build_topology,
    load_spec,
    load_topology,
)
from kernbench.topology.builder import freeze
from kernbench.topology.graph import NOWHERE
from kernbench.topology.kinds import pe_engines
from kernbench.topology.spec import (
    CubeMeshSpec,
    CubeSpec,
    IoSpec,
    MemoryMapSpec,
    MeshSpec,
    SipSpec,
    SipsSpec,
    SystemSpec,
)

KINDS = {
    "command",
    "pe_internal",
    "pe_to_router",
    "router_to_pe",
    "router_mesh",
    "router_to_hbm",
    "hbm_to_router",
    "router_to_sram",
    "sram_to_router",
    "router_to_mcpu",
    "mcpu_to_router",
    "ucie_internal",
    "ucie_conn_to_router",
    "router_to_ucie_conn",
    "ucie_conn_to_noc",
    "noc_to_ucie_conn",
    "ucie_mesh",
    "io_to_cube",
    "cube_to_io",
    "io_internal",
    "pcie",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return load_topology(cache_dir=tmp_path_factory.mktemp("cache"))


def machine(sips=2, w=4, h=4, pes=8, ios=1):
    return TopologySpec(
        system=SystemSpec(sips=SipsSpec(count=sips)),
        sip=SipSpec(CubeMeshSpec(w, h), IoSpec(count=ios)),
        cube=CubeSpec(pes=pes, memory_map=MemoryMapSpec(48, pes)),
    )


def test_a_file_and_no_file_make_the_machine_they_say(tmp_path, graph):
    file = tmp_path / "small.yaml"
    file.write_text("system: {sips: {count: 1}}\nsip: {cube_mesh: {w: 1, h: 2}}\n")
    small = load_topology(str(file), cache_dir=tmp_path)
    assert (small.spec.system.sips.count, small.spec.sip.cube_mesh.h) == (1, 2)
    assert graph.spec == TopologySpec()
    assert small.hash != graph.hash


@pytest.mark.parametrize(
    ("sips", "w", "h", "pes", "ios"),
    [
        (1, 1, 1, 1, 1),
        (2, 4, 4, 8, 1),
        (9, 1, 2, 2, 1),
        (2, 2, 8, 8, 2),
        (1, 8, 2, 16, 3),
    ],
)
def test_a_machine_of_any_size_has_every_part(tmp_path, sips, w, h, pes, ios):
    graph = build_topology(machine(sips, w, h, pes, ios), tmp_path)
    cubes = sips * w * h
    assert Counter(node.type for node in graph.nodes.values()) == {
        **{kind.name: cubes * pes for kind in pe_engines()},
        "hbm_ctrl": cubes * pes,
        "sram": cubes,
        "m_cpu": cubes,
        "router": cubes * 32,
        "ucie": cubes * 4,
        "ucie_conn": cubes * 16 + sips * w,
        **dict.fromkeys(("io_noc", "io_cpu", "pcie_ep"), sips * ios),
        "switch": 1,
    }


@pytest.mark.parametrize(
    "spec", [machine(), machine(1, 1, 1, 1), machine(3, 5, 2, 8, 5)]
)
def test_every_node_is_reachable_from_every_pcie_end_point(tmp_path, spec):
    graph = build_topology(spec, tmp_path)
    whole = nx.DiGraph([(edge.src, edge.dst) for edge in graph.edges])
    for end in (n.id for n in graph.nodes.values() if n.type == "pcie_ep"):
        assert {end, *nx.descendants(whole, end)} == set(graph.nodes)


def test_the_edge_kinds_are_the_specified_ones(graph):
    assert {edge.kind for edge in graph.edges} == KINDS


def test_every_link_has_a_way_back_but_from_the_scheduler_to_its_cpu(graph):
    ends = {(edge.src, edge.dst) for edge in graph.edges}
    assert len(ends) == len(graph.edges)
    one_way = {(a, b) for a, b in ends if (b, a) not in ends}
    assert {(graph.nodes[a].engine, graph.nodes[b].engine) for a, b in one_way} == {
        ("pe_cpu", "pe_scheduler")
    }


def test_command_edges_join_cpus_only(graph):
    joined = {
        (graph.nodes[e.src].type, graph.nodes[e.dst].type)
        for e in graph.edges
        if e.kind == "command"
    }
    down = {("io_cpu", "m_cpu"), ("m_cpu", "pe_cpu")}
    assert joined == down | {(b, a) for a, b in down}


def test_cubes_are_joined_to_their_neighbours_only(graph):
    joined = {(e.src, e.dst) for e in graph.edges if e.kind == "ucie_mesh"}
    right = {
        (ucie_node(s, c, "E"), ucie_node(s, c + 1, "W"))
        for s in (0, 1)
        for c in range(16)
        if c % 4 < 3
    }
    down = {
        (ucie_node(s, c, "S"), ucie_node(s, c + 4, "N"))
        for s in (0, 1)
        for c in range(12)
    }
    assert joined == right | down | {(b, a) for a, b in right | down}


def test_an_io_chiplet_has_a_connection_to_each_cube_of_its_top_row(tmp_path):
    graph = build_topology(machine(1, 4, 2, 8, 2), tmp_path)
    joined = {(e.src, e.dst) for e in graph.edges if e.kind == "io_to_cube"}
    expected = {
        (io_conn_node(0, f"io{k // 2}", k), ucie_node(0, k, "N")) for k in range(4)
    }
    assert joined == expected


def test_mesh_links_join_grid_neighbours_outside_the_hbm_zone(graph):
    for edge in graph.edges:
        if edge.kind == "router_mesh":
            assert edge.distance_mm == 2.0
            assert graph.nodes[edge.src].cube == graph.nodes[edge.dst].cube
    assert sum(edge.kind == "router_mesh" for edge in graph.edges) == 32 * 96


def test_distances_are_manhattan_distances_of_places(graph):
    for edge in graph.edges:
        a = graph.nodes[edge.src]
        b = graph.nodes[edge.dst]
        if edge.kind != "pe_internal":
            assert edge.distance_mm == pytest.approx(
                abs(a.x_mm - b.x_mm) + abs(a.y_mm - b.y_mm)
            )
        else:
            assert edge.distance_mm > 0


def test_bandwidths_are_those_of_the_spec(graph):
    def bandwidth(src, dst):
        return graph.edge_by_ends[src, dst].bandwidth_gbs

    cube = "sip1.cube3"
    assert bandwidth(f"{cube}.hbm_ctrl.pe0", f"{cube}.r0c1") == 256
    assert bandwidth(f"{cube}.sram", f"{cube}.r2c4") == 128
    assert bandwidth(f"{cube}.r0c0", f"{cube}.ucie_N.conn0") == 128
    assert bandwidth(f"{cube}.ucie_S", "sip1.cube7.ucie_N") == 4 * 128
    assert bandwidth("sip1.io0.pcie_ep", "fabric.switch0") == 63


def test_tcm_links_have_the_bandwidth_of_their_direction(tmp_path):
    spec = machine(1, 1, 1)
    tcm = replace(spec.pe.tcm, read_bw_gbs=100.0, write_bw_gbs=50.0)
    graph = build_topology(replace(spec, pe=replace(spec.pe, tcm=tcm)), tmp_path)
    dma = pe_node(0, 0, 0, "pe_dma")
    tcm_node = pe_node(0, 0, 0, "pe_tcm")
    assert graph.edge_by_ends[tcm_node, dma].bandwidth_gbs == 100
    assert graph.edge_by_ends[dma, tcm_node].bandwidth_gbs == 50


@pytest.mark.parametrize(
    ("node", "overhead"),
    [
        ("sip0.cube0.r0c0", 2),
        ("sip0.cube0.ucie_N", 8),
        ("sip0.cube0.ucie_N.conn0", 0),
        ("sip0.cube0.m_cpu", 10),
        ("sip0.cube0.pe0.pe_dma", 0),
        ("sip0.cube0.hbm_ctrl.pe0", 0),
        ("sip0.io0.io_noc", 2),
        ("sip0.io0.io_cpu", 10),
        ("sip0.io0.pcie_ep", 150),
        ("fabric.switch0", 100),
    ],
)
def test_a_passing_header_pays_the_overhead_of_the_spec(graph, node, overhead):
    assert graph.nodes[node].overhead_ns == overhead


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ("sip1.cube2.pe3.pe_gemm", (1, 2, 3, "pe_gemm")),
        ("sip1.cube2.hbm_ctrl.pe3", (1, 2, 3, "hbm_ctrl")),
        ("sip1.cube2.r4c5", (1, 2, NOWHERE, "r4c5")),
        ("sip1.cube2.ucie_N.conn0", (1, 2, NOWHERE, "ucie_N.conn0")),
        ("sip1.io0.io_cpu", (1, NOWHERE, NOWHERE, "io0.io_cpu")),
        ("fabric.switch0", (NOWHERE, NOWHERE, NOWHERE, "switch0")),
    ],
)
def test_a_node_is_found_by_its_place(graph, node, place):
    assert graph.at(*place) == node
    assert graph.nodes[node].id == node


def test_no_two_nodes_share_a_place(tmp_path):
    graph = build_topology(machine(2, 4, 2, 8, 2), tmp_path)
    places = {(n.sip, n.cube, n.pe, n.engine) for n in graph.nodes.values()}
    assert len(places) == len(graph.nodes)
    assert all(
        graph.at(n.sip, n.cube, n.pe, n.engine) == n.id for n in graph.nodes.values()
    )


def test_a_place_without_a_node_is_a_routing_error(graph):
    with pytest.raises(RoutingError, match="no pe_gemm at sip 2, cube 0, pe 0"):
        graph.at(2, 0, 0, "pe_gemm")


def test_a_component_of_the_spec_is_the_nodes_implementation(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("components: {pe_gemm: {impl: 'mine:Gemm'}}\n")
    nodes = load_topology(file, cache_dir=tmp_path).nodes.values()
    assert {n.impl for n in nodes if n.type == "pe_gemm"} == {"mine:Gemm"}
    assert {n.impl for n in nodes if n.type == "router"} == {"transit"}


def test_cubes_and_sips_do_not_overlap(tmp_path):
    graph = build_topology(machine(2, 2, 2, 8), tmp_path)
    boxes = {}
    for node in graph.nodes.values():
        if node.type == "router":
            boxes.setdefault((node.sip, node.cube), []).append((node.x_mm, node.y_mm))
    assert len(boxes) == 8
    for (a, first), (b, second) in product(boxes.items(), repeat=2):
        apart = [
            max(p[axis] for p in first) < min(p[axis] for p in second)
            or max(p[axis] for p in second) < min(p[axis] for p in first)
            for axis in (0, 1)
        ]
        assert a == b or any(apart)


def test_the_graph_cannot_be_changed(graph):
    with pytest.raises(TypeError):
        graph.nodes["sip0.cube0.sram"] = None
    with pytest.raises(AttributeError):
        graph.edges[0].bandwidth_gbs = 1.0


def test_a_name_given_twice_does_not_freeze(graph):
    with pytest.raises(TopologyError, match=r"two nodes have the name fabric\.switch0"):
        freeze((graph, graph))


@pytest.mark.parametrize("bandwidth", [0.0, -1.0])
def test_a_link_without_bandwidth_does_not_freeze(graph, bandwidth):
    edges = (replace(graph.edges[0], bandwidth_gbs=bandwidth), *graph.edges[1:])
    with pytest.raises(TopologyError, match="it must be above 0"):
        freeze([replace(graph, edges=edges)])


def test_a_node_that_cannot_be_reached_does_not_freeze(graph):
    edges = tuple(e for e in graph.edges if e.dst != "sip0.cube0.sram")
    with pytest.raises(
        TopologyError, match=r"no path leads from .* to sip0.cube0.sram \(1 such"
    ):
        freeze([replace(graph, edges=edges)])


def test_an_end_point_that_reaches_nothing_does_not_freeze(graph):
    ends = ("fabric.switch0", "sip0.io0.pcie_ep")
    edges = tuple(e for e in graph.edges if (e.src, e.dst) != ends)
    with pytest.raises(
        TopologyError, match=r"no path leads from sip1\.io0\.pcie_ep to sip0"
    ):
        freeze([replace(graph, edges=edges)])


def test_a_mesh_of_another_shape_has_its_routers(tmp_path):
    spec = TopologySpec(cube=CubeSpec(mesh=MeshSpec(5, 8)))
    graph = build_topology(replace(spec, sip=machine(1, 1, 1).sip), tmp_path)
    routers = [n for n in graph.nodes.values() if n.type == "router" and n.sip == 0]
    assert len(routers) == 5 * 8 - 4


def test_the_machines_that_were_asked_for_last_are_kept():
    spec = load_spec()
    machine = build_topology(spec)
    other = build_topology(replace(spec, pe=replace(spec.pe, clock_ghz=2.5)))
    assert other.spec.pe.clock_ghz == 2.5
    assert build_topology(spec) is machine
    for clock_ghz in (0.5, 0.75, 1.25):
        build_topology(replace(spec, pe=replace(spec.pe, clock_ghz=clock_ghz)))
    again = build_topology(spec)
    assert again is not machine
    assert again == machine


def test_a_machine_is_that_of_what_was_written_though_it_is_equal():
    """A trace has the spec as it was written, and 1 is equal to 1.0."""
    spec = load_spec()
    whole = replace(spec, pe=replace(spec.pe, clock_ghz=1))
    part = replace(spec, pe=replace(spec.pe, clock_ghz=1.0))
    assert whole == part
    hashes = {build_topology(one).hash for one in (whole, part)}
    assert len(hashes) == 2

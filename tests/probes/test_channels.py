"""The cycles of the channel dependency graph, against networkx."""

import json
from itertools import pairwise

import networkx as nx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kernbench.cli import main
from kernbench.policy.routing.router import PathRouter
from kernbench.probes import channels, probe
from kernbench.topology import load_topology

NAMES = "abcdef"
PATHS = st.lists(
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=6, unique=True), max_size=12
)
ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}


def reference(paths):
    """The graph whose nodes are links, one after the other on some path."""
    graph = nx.DiGraph()
    for path in paths:
        links = [*pairwise(path)]
        graph.add_nodes_from(links)
        graph.add_edges_from(pairwise(links))
    return graph


def rotated(cycle):
    """A cycle from its least link on."""
    first = cycle.index(min(cycle))
    return (*cycle[first:], *cycle[:first])


@given(PATHS)
def test_links_on_cycles_and_the_shortest_cycles_are_those_of_networkx(paths):
    graph = reference(paths)
    waits_for = channels.dependencies(tuple(path) for path in paths)
    assert {link: set(graph[link]) for link in graph} == waits_for
    parts = [set(part) for part in channels.components(waits_for)]
    expected = [set(part) for part in nx.strongly_connected_components(graph)]
    assert sorted(map(sorted, parts)) == sorted(map(sorted, expected))

    found = channels.shortest_cycles(waits_for, [p for p in parts if len(p) > 1])
    cycles = [rotated(cycle) for cycle in nx.simple_cycles(graph) if len(cycle) > 1]
    if not cycles:
        assert found == []
        return
    least = min(map(len, cycles))
    shortest = {cycle for cycle in cycles if len(cycle) == least}
    assert set(found) <= shortest
    # every link that lies on one of them is shown on one of them
    assert set().union(*found) == set().union(*shortest)


@pytest.fixture(scope="module")
def one_cube(tmp_path_factory):
    return load_topology(overrides=ONE_CUBE)


def test_the_routes_of_a_cube_have_a_cycle_around_the_hbm_each_way(one_cube):
    """All routes of data, found here by the names of what may start and end one."""
    router = PathRouter(one_cube)
    paths = []
    for pe in range(8):
        ends = [f"sip0.cube0.hbm_ctrl.pe{other}" for other in range(8)]
        ends += [f"sip0.cube0.pe{other}.pe_tcm" for other in range(8)]
        ends += ["sip0.cube0.sram", "sip0.io0.pcie_ep"]
        paths += [router.find_path(f"sip0.cube0.pe{pe}", end) for end in ends]
    for pe in range(8):
        hbm = f"sip0.cube0.hbm_ctrl.pe{pe}"
        paths.append(router.find_memory_path("sip0.io0.pcie_ep", hbm))
    graph = reference([*paths, *(path[::-1] for path in paths)])
    report = channels.channel_report(one_cube, router)
    assert report.links == len(graph)
    assert report.dependencies == graph.number_of_edges()
    cycles = [cycle for cycle in nx.simple_cycles(graph) if len(cycle) > 1]
    least = min(map(len, cycles))
    assert least == 14
    shortest = {
        tuple(src for src, _ in rotated(cycle))
        for cycle in cycles
        if len(cycle) == least
    }
    assert {cycle.nodes for cycle in report.shortest} == shortest
    around = {f"sip0.cube0.r{row}c{col}" for row in (2, 3) for col in (2, 3)}
    for cycle in report.shortest:
        assert not around & set(cycle.nodes)
    assert report.on_cycles == len(set().union(*cycles))


def test_a_mesh_without_a_hole_routes_in_no_circle():
    """One PE at a router each of 1 x 4: a line has none."""
    line = ONE_CUBE | {"mesh.rows": 1, "mesh.cols": 4, "pes": 2, "slices_per_cube": 2}
    line |= {"hbm_zone.row": 0, "hbm_zone.col": 0, "hbm_zone.rows": 0}
    graph = load_topology(overrides=line)
    report = channels.channel_report(graph, PathRouter(graph))
    assert report.shortest == ()
    assert report.on_cycles == 0
    assert "no cycle" in report.as_text()


@pytest.mark.slow
def test_probe_prints_the_cycles_and_what_the_model_cannot_show(one_cube):
    text = probe(one_cube).as_text()
    assert "14 links in sip0.cube0: r0c1 > " in text
    assert "with finite buffers these could deadlock" in text
    assert "above 60 % load of a link its waits are too short" in text


@pytest.mark.slow
def test_probe_json_has_the_cycles_of_the_shipped_machine():
    data = json.loads(CliRunner().invoke(main, ["probe", "--json"]).output)
    shortest = data["channels"]["shortest"]
    assert {cycle["length"] for cycle in shortest} == {14}
    assert {len(cycle["places"]) for cycle in shortest} == {16}
    assert any("60 % load" in text for text in data["limits"])

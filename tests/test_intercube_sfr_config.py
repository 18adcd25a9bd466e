"""ADR-0032 D3: what ``configure_sfr_intercube_multisip`` wires, whatever the algorithm
needs.
"""

from dataclasses import replace

import pytest

from kernbench.ccl.config import load_ccl
from kernbench.ccl.install import _OPPOSITE_DIR
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from kernbench.errors import TopologyError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import MemoryMapSpec, SipsSpec

PLAIN = ("N", "S", "E", "W")


@pytest.fixture
def wired(layout_cache):
    """wired(sips, topology) -> (sip, cube) -> direction -> (sip, cube) of each pe0."""

    def wired(sips, topology, pe=0, pes=1, **fields):
        spec = TopologySpec()
        memory = MemoryMapSpec(48, pes)
        spec = replace(
            spec,
            system=replace(spec.system, sips=SipsSpec(sips, topology)),
            cube=replace(spec.cube, pes=pes, memory_map=memory),
        )
        graph = build_topology(spec, layout_cache)
        engine = GraphEngine(graph)
        configure_sfr_intercube_multisip(
            engine, spec, replace(load_ccl().of(), **fields)
        )
        nodes = graph.nodes
        tables = {}
        for sip in range(sips):
            for cube in range(16):
                ipcq = engine.sim.component(graph.at(sip, cube, pe, "pe_ipcq"))
                peers = {way: nodes[name] for way, name in ipcq.peers.items()}
                assert all(node.pe == 0 for node in peers.values())
                tables[sip, cube] = {
                    way: (node.sip, node.cube) for way, node in peers.items()
                }
        return tables

    return wired


def test_every_cubes_pe0_reaches_its_mesh_neighbours_and_no_further(wired):
    for (sip, cube), table in wired(2, "ring_1d").items():
        row, col = divmod(cube, 4)
        near = {
            "N": (row - 1, col),
            "S": (row + 1, col),
            "E": (row, col + 1),
            "W": (row, col - 1),
        }
        inside = {
            w: (sip, r * 4 + c)
            for w, (r, c) in near.items()
            if 0 <= r < 4 and 0 <= c < 4
        }
        assert {way: peer for way, peer in table.items() if way in PLAIN} == inside


@pytest.mark.parametrize(
    ("topology", "sips", "across"),
    [
        ("ring_1d", 1, {}),
        ("ring_1d", 2, {"E": 1, "W": 1}),
        ("ring_1d", 3, {"E": 1, "W": 2}),
        ("torus_2d", 4, {"E": 1, "W": 1, "N": 2, "S": 2}),
        ("torus_2d", 9, {"E": 1, "W": 2, "S": 3, "N": 6}),
        ("mesh_2d_no_wrap", 9, {"E": 1, "S": 3}),
    ],
)
@pytest.mark.slow
def test_every_cube_of_sip_0_reaches_the_same_cube_of_its_peers(
    wired, topology, sips, across
):
    tables = wired(sips, topology)
    for cube in range(16):
        found = {way: peer for way, peer in tables[0, cube].items() if way not in PLAIN}
        assert found == {f"global_{way}": (sip, cube) for way, sip in across.items()}


@pytest.mark.parametrize(
    ("topology", "sips"), [("ring_1d", 4), ("torus_2d", 4), ("torus_2d", 9)]
)
def test_the_opposite_direction_leads_back(wired, topology, sips):
    tables = wired(sips, topology)
    for place, table in tables.items():
        for way, peer in table.items():
            assert tables[peer][_OPPOSITE_DIR[way]] == place


def test_opposite_directions_come_in_pairs_at_both_levels():
    assert len(_OPPOSITE_DIR) == 8
    assert (_OPPOSITE_DIR["E"], _OPPOSITE_DIR["N"]) == ("W", "S")
    assert (_OPPOSITE_DIR["global_E"], _OPPOSITE_DIR["global_N"]) == (
        "global_W",
        "global_S",
    )
    assert all(_OPPOSITE_DIR[_OPPOSITE_DIR[way]] == way for way in _OPPOSITE_DIR)


def test_other_pes_have_no_neighbours(wired):
    assert not any(wired(2, "ring_1d", pe=1, pes=2).values())


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["torus_2d", "mesh_2d_no_wrap"])
@pytest.mark.parametrize("sips", [2, 8, 15])
def test_a_2d_topology_refuses_a_count_that_is_no_square_and_names_it(
    wired, topology, sips
):
    with pytest.raises(
        TopologyError, match=rf"{topology} needs a square .*count is {sips}"
    ):
        wired(sips, topology)

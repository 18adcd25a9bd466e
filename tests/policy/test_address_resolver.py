from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.phys_addr import PhysAddr, UnitType
from kernbench.errors import RoutingError
from kernbench.policy.routing import router
from kernbench.policy.routing.router import AddressResolver

GIB = 1 << 30
NODES = [
    "sip0.cube0.m_cpu",
    "sip0.cube0.sram",
    "sip0.cube0.pe1.pe_tcm",
    "sip0.cube0.hbm_ctrl.pe0",
    "sip0.cube0.hbm_ctrl.pe7",
    "sip1.io0.pcie_ep",
    "sip0.io0.pcie_ep",
    "sip0.io0.io_cpu",
    "sip0.io1.pcie_ep",
    "fabric.switch0",
]


@pytest.fixture(scope="module")
def resolver():
    memory_map = SimpleNamespace(hbm_total_gb=48, slices_per_cube=8)
    spec = SimpleNamespace(cube=SimpleNamespace(memory_map=memory_map))
    return AddressResolver(
        SimpleNamespace(nodes=dict.fromkeys(NODES), edges=(), spec=spec)
    )


def test_the_constructor_caches_node_ids_and_slice_size(resolver):
    assert resolver._node_ids == set(NODES)
    assert resolver._hbm_slice_bytes == 6 * GIB


@pytest.mark.parametrize(
    ("address", "node"),
    [
        (PhysAddr.hbm_addr(0, 0, 0), "sip0.cube0.hbm_ctrl.pe0"),
        (PhysAddr.hbm_addr(0, 0, 6 * GIB - 1), "sip0.cube0.hbm_ctrl.pe0"),
        (PhysAddr.hbm_addr(0, 0, 42 * GIB), "sip0.cube0.hbm_ctrl.pe7"),
        (PhysAddr.pe_tcm_addr(0, 0, 1, 64), "sip0.cube0.pe1.pe_tcm"),
        (PhysAddr.sram_addr(0, 0, 64), "sip0.cube0.sram"),
        (PhysAddr.mcpu_addr(0, 0, 64), "sip0.cube0.m_cpu"),
    ],
)
def test_an_address_resolves_to_the_node_that_owns_it(resolver, address, node):
    assert resolver.resolve(address) == node


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            PhysAddr(0, 0, "pe_resource", unit_type=UnitType.IO),
            "^unsupported unit_type",
        ),
        (PhysAddr(0, 0, "pe_resource"), "^unsupported unit_type"),
        (PhysAddr(0, 16, "io"), "^unsupported address kind"),
        (
            PhysAddr.hbm_addr(0, 0, 48 * GIB),
            "^node sip0.cube0.hbm_ctrl.pe8 not found in topology$",
        ),
        (PhysAddr.sram_addr(3, 2, 0), "^node sip3.cube2.sram not found in topology$"),
    ],
)
def test_an_address_that_no_node_owns_is_a_routing_error(resolver, address, message):
    with pytest.raises(RoutingError, match=message):
        resolver.resolve(address)


def test_nodes_are_found_by_what_they_are(resolver):
    assert resolver.find_m_cpu(0, 0) == "sip0.cube0.m_cpu"
    assert resolver.find_pcie_ep(1) == "sip1.io0.pcie_ep"
    assert resolver.find_pcie_ep(0, "io1") == "sip0.io1.pcie_ep"
    assert resolver.find_io_cpu(0) == "sip0.io0.io_cpu"


@pytest.mark.parametrize(
    ("find", "node"),
    [
        (lambda r: r.find_m_cpu(0, 1), "sip0.cube1.m_cpu"),
        (lambda r: r.find_pcie_ep(2), "sip2.io0.pcie_ep"),
        (lambda r: r.find_io_cpu(0, "io1"), "sip0.io1.io_cpu"),
    ],
)
def test_a_node_that_is_not_there_is_a_routing_error(resolver, find, node):
    with pytest.raises(RoutingError, match=f"^node {node} not found in topology$"):
        find(resolver)


def test_all_pcie_end_points_are_listed_in_order(resolver):
    eps = ["sip0.io0.pcie_ep", "sip0.io1.pcie_ep", "sip1.io0.pcie_ep"]
    assert resolver.find_all_pcie_eps() == eps


number = st.integers(0, 99)


@given(number, number, number, number)
def test_names_follow_the_convention(s, c, p, k):
    assert router.pe_node(s, c, p, "pe_dma") == f"sip{s}.cube{c}.pe{p}.pe_dma"
    assert router.pe_node(s, c, p, "x") == f"{router.pe_prefix(s, c, p)}.x"
    assert router.cube_node(s, c, "m_cpu") == f"sip{s}.cube{c}.m_cpu"
    assert router.hbm_node(s, c, p) == f"sip{s}.cube{c}.hbm_ctrl.pe{p}"
    assert router.router_node(s, c, p, k) == f"sip{s}.cube{c}.r{p}c{k}"
    assert router.ucie_conn_node(s, c, "N", k) == f"sip{s}.cube{c}.ucie_N.conn{k}"
    assert router.ucie_conn_node(s, c, "N", k).startswith(
        router.ucie_node(s, c, "N") + "."
    )
    assert router.io_node(s, f"io{k}", "pcie_ep") == f"sip{s}.io{k}.pcie_ep"
    assert router.io_conn_node(s, "io0", k).startswith(f"sip{s}.io0.")
    assert router.switch_node(k) == f"fabric.switch{k}"

from hypothesis import given
from hypothesis import strategies as st

from kernbench.policy.routing import router

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

"""The energy of one multiply-add and of its bytes, against sums worked out by hand.

A composite of 1 x 1 x 1 in f16 on one PE: the host writes two elements of two bytes,
the tile reads both, multiplies, and writes one. Each row counts one field of the
shipped ``energy:`` alone, all others being 0.
"""

from kernbench.runtime_api import run_bench
from kernbench.topology import TopologySpec
from kernbench.topology.section import leaf_types
from kernbench.validation.table import Row, Table

_ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
_ELEMENT = 2
_OPERANDS = 2 * _ELEMENT
_OWN_BYTES = 2 * 32 + _OPERANDS + _ELEMENT
"""Two requests and what they bring, and the result: between the PE and its slice."""
_OWN_MM = 0.7 + 0.6
_HOST_MM = 1.5 + 2.0 + 4.5 + 1.5 + 2.0 + 0.6
_LAUNCH_MM = 3.5 + 14.0 + 5.8

_BY_HAND = {
    "mac_pj.f16": ("1 multiply-add", 2.0),
    "tcm_pj_byte": ("12 bytes of TCM", (2 * _OPERANDS + 2 * _ELEMENT) * 2.5),
    "hbm_pj_byte": ("10 bytes of HBM", (2 * _OPERANDS + _ELEMENT) * 31.2),
    "router_pj_byte": ("82 bytes x routers", (_OWN_BYTES + _OPERANDS * 3) * 0.8),
    "ucie_port_pj_byte": ("4 bytes x 2 UCIe ports", _OPERANDS * 2 * 1.0),
    "pcie_pj_byte": ("4 bytes of PCIe", _OPERANDS * 40.0),
    "wire_pj_byte_mm": (
        "1,630.6 bytes x mm of wire",
        (_OWN_BYTES * _OWN_MM + _OPERANDS * _HOST_MM + 64 * _LAUNCH_MM) * 0.8,
    ),
}
"""What each field is the cost of in this run, and the pJ that makes."""


def spent_pj(field: str) -> float:
    """The pJ of the run, of one field alone, to a thousandth."""
    costs = {}
    for path, _ in leaf_types(TopologySpec):
        if path.startswith("energy.") and path != f"energy.{field}":
            costs[path] = 0.0
    params = {"m": 1, "k": 1, "n": 1, "pes": 1}
    run = run_bench("matmul", params=params, spec={**_ONE_CUBE, **costs}, verify=False)
    energy = run.energy()
    assert energy is not None
    return round(energy.joules * 1e12, 3)


def energy_table() -> Table:
    """A row a field."""
    rows = []
    for field, (what, by_hand) in _BY_HAND.items():
        pj = spent_pj(field)
        rows.append(Row(what, f"{field}, by hand", round(by_hand, 3), pj, "pJ"))
    return Table("Energy of one multiply-add and its bytes", rows)

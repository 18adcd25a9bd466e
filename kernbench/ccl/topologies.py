"""Who neighbours whom: cubes in the mesh of a SIP, SIPs in each topology.

Directions are those of ADR-0032 D3, topologies those of D4.
"""

from math import isqrt

from kernbench.errors import TopologyError

SIP_TOPO_RING = 0
SIP_TOPO_TORUS = 1
SIP_TOPO_MESH = 2
TOPO_NAME_TO_KIND = {
    "ring_1d": SIP_TOPO_RING,
    "torus_2d": SIP_TOPO_TORUS,
    "mesh_2d_no_wrap": SIP_TOPO_MESH,
}
"""What kernels call each ``system.sips.topology`` (ADR-0032 D7)."""

_STEPS = {"N": (-1, 0), "S": (1, 0), "E": (0, 1), "W": (0, -1)}
"""Rows down and columns right of each direction."""


def grid(place: int, w: int, h: int, wrap: bool = False) -> dict[str, int]:
    """The neighbours of a place of a grid, by direction.

    Places count row by row, ``w`` to a row. With ``wrap`` the grid is a torus; no place
    is its own neighbour.
    """
    row, col = divmod(place, w)
    neighbours = {}
    for way, (down, right) in _STEPS.items():
        to_row = row + down
        to_col = col + right
        if wrap:
            to_row %= h
            to_col %= w
        inside = 0 <= to_row < h and 0 <= to_col < w
        there = to_row * w + to_col
        if inside and there != place:
            neighbours[way] = there
    return neighbours


def ring_1d(sip: int, n_sips: int) -> dict[str, int]:
    """The SIPs beside one in a ring, which goes to the E."""
    return grid(sip, *sip_shape("ring_1d", n_sips), wrap=True)


def torus_2d(sip: int, n_sips: int) -> dict[str, int]:
    """The SIPs beside one in a square torus; errors as ``sip_shape``."""
    return grid(sip, *sip_shape("torus_2d", n_sips), wrap=True)


def mesh_2d_no_wrap(sip: int, n_sips: int) -> dict[str, int]:
    """The SIPs beside one in a square mesh; errors as ``sip_shape``."""
    return grid(sip, *sip_shape("mesh_2d_no_wrap", n_sips))


_BESIDE = {
    "ring_1d": ring_1d,
    "torus_2d": torus_2d,
    "mesh_2d_no_wrap": mesh_2d_no_wrap,
}
"""Who is beside whom in each ``system.sips.topology``."""


def sip_neighbors(name: str, sip: int, n_sips: int) -> dict[str, int]:
    """The SIPs beside one by direction, ``global_E`` …; errors as ``sip_shape``."""
    beside = _BESIDE[name](sip, n_sips)
    return {f"global_{way}": peer for way, peer in beside.items()}


def sip_shape(name: str, n_sips: int) -> tuple[int, int]:
    """Columns and rows of a SIP topology.

    TopologyError if a 2D one has no square number of SIPs.
    """
    if name == "ring_1d":
        return n_sips, 1
    side = isqrt(n_sips)
    if side * side != n_sips:
        raise TopologyError(
            f"system.sips.topology: {name} needs a square number of SIPs, and "
            f"system.sips.count is {n_sips}; take {side**2} or {(side + 1) ** 2}, "
            "or ring_1d"
        )
    return side, side

"""Who neighbours whom: cubes in the mesh of a SIP, SIPs in each topology (ADR-0032 D3, D4)."""

from math import isqrt

from kernbench.errors import TopologyError

TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 1, "mesh_2d_no_wrap": 2}
SIP_TOPO_RING, SIP_TOPO_TORUS, SIP_TOPO_MESH = TOPO_NAME_TO_KIND.values()
_STEPS = {
    "N": (-1, 0),
    "S": (1, 0),
    "E": (0, 1),
    "W": (0, -1),
}  # rows down, columns right


def grid(place: int, w: int, h: int, wrap: bool = False) -> dict[str, int]:
    """The neighbours of a place (row x w + column) of a grid by direction; none is itself."""
    row, col = divmod(place, w)
    near = {way: (row + down, col + right) for way, (down, right) in _STEPS.items()}
    if wrap:
        near = {way: (r % h, c % w) for way, (r, c) in near.items()}
    inside = {
        way: r * w + c for way, (r, c) in near.items() if 0 <= r < h and 0 <= c < w
    }
    return {way: found for way, found in inside.items() if found != place}


def sip_neighbors(name: str, sip: int, n_sips: int) -> dict[str, int]:
    """The SIPs beside one by direction, ``global_E`` …; a ring goes to the E."""
    near = grid(sip, *sip_shape(name, n_sips), wrap=name != "mesh_2d_no_wrap")
    return {f"global_{way}": peer for way, peer in near.items()}


def sip_shape(name: str, n_sips: int) -> tuple[int, int]:
    """Columns and rows of a SIP topology; TopologyError if a 2D one has no square of SIPs."""
    if name == "ring_1d":
        return n_sips, 1
    side = isqrt(n_sips)
    if side * side != n_sips:
        raise TopologyError(
            f"system.sips.topology: {name} needs a square number of SIPs, and system.sips.count is "
            f"{n_sips}; take {side**2} or {(side + 1) ** 2}, or ring_1d"
        )
    return side, side

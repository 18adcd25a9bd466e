"""The wiring of the collectives: pe0 of every cube of every SIP (ADR-0032 D3)."""

from kernbench.ccl.config import NO_ROOT, AlgorithmSpec
from kernbench.ccl.install import install_ipcq
from kernbench.ccl.topologies import grid, sip_neighbors
from kernbench.errors import TopologyError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.spec import TopologySpec


def configure_sfr_intercube_multisip(
    engine: GraphEngine, spec: TopologySpec, cfg: AlgorithmSpec
) -> None:
    """Wire every cube's pe0, whatever the algorithm needs of it.

    It is joined to the pe0 of its mesh neighbours (N S E W, no wraparound), and to that
    of the same cube of the SIPs beside its own (global_*). TopologyError if
    ``cfg.root_cube`` is not the SE corner, or the SIP topology has no square.
    """
    mesh = spec.sip.cube_mesh
    sips = spec.system.sips
    cubes = mesh.w * mesh.h
    se_corner = cubes - 1
    if cfg.root_cube not in (NO_ROOT, se_corner):
        raise TopologyError(
            f"ccl: algorithms.{cfg.name}.root_cube is {cfg.root_cube}, but the root is "
            f"the SE corner, cube {se_corner} of a {mesh.w} x {mesh.h} mesh; "
            "give a ccl.yaml that says so"
        )

    def neighbors(rank: int) -> dict[str, int]:
        """Where each direction of a rank leads: ranks count SIP by SIP."""
        sip, cube = divmod(rank, cubes)
        table = {}
        for way, peer in grid(cube, mesh.w, mesh.h).items():
            table[way] = sip * cubes + peer
        for way, peer in sip_neighbors(sips.topology, sip, sips.count).items():
            table[way] = peer * cubes + cube
        return table

    ranks = range(sips.count * cubes)
    install_ipcq(
        engine,
        world_size=len(ranks),
        rank_to_pe=[(*divmod(rank, cubes), 0) for rank in ranks],
        neighbors=neighbors,
        buffer_kind=cfg.buffer_kind,
        slots=cfg.slots,
        slot_bytes=cfg.slot_bytes,
        credit_bytes=cfg.credit_bytes,
    )

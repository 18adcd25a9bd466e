"""The wiring of the collectives: pe0 of every cube of every SIP, both levels (ADR-0032 D3)."""

from kernbench.ccl.config import NO_ROOT, AlgorithmSpec
from kernbench.ccl.install import install_ipcq
from kernbench.ccl.topologies import grid, sip_neighbors
from kernbench.errors import TopologyError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.spec import TopologySpec


def configure_sfr_intercube_multisip(
    engine: GraphEngine, spec: TopologySpec, cfg: AlgorithmSpec
) -> None:
    """Wire every cube's pe0 to its mesh neighbours (N S E W, no wraparound) and to the same cube of
    the SIPs beside its own (global_*), whatever the algorithm needs of it.

    TopologyError if ``cfg.root_cube`` is not the SE corner, or the SIP topology has no square.
    """
    mesh, sips = spec.sip.cube_mesh, spec.system.sips
    cubes = mesh.w * mesh.h
    if cfg.root_cube not in (NO_ROOT, cubes - 1):
        raise TopologyError(
            f"ccl: algorithms.{cfg.name}.root_cube is {cfg.root_cube}, but the root is the SE "
            f"corner, cube {cubes - 1} of a {mesh.w} x {mesh.h} mesh; give a ccl.yaml that says so"
        )

    def neighbors(rank: int) -> dict[str, int]:
        sip, cube = divmod(rank, cubes)
        inside = {
            way: sip * cubes + peer for way, peer in grid(cube, mesh.w, mesh.h).items()
        }
        across = sip_neighbors(sips.topology, sip, sips.count)
        return inside | {way: peer * cubes + cube for way, peer in across.items()}

    install_ipcq(
        engine,
        world_size=sips.count * cubes,
        rank_to_pe=[
            (sip, cube, 0) for sip in range(sips.count) for cube in range(cubes)
        ],
        neighbors=neighbors,
        buffer_kind=cfg.buffer_kind,
        slots=cfg.slots,
        slot_bytes=cfg.slot_bytes,
        credit_bytes=cfg.credit_bytes,
    )

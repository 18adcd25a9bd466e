"""The wiring of the collectives: pe0 of every cube of every SIP (ADR-0032 D3)."""

from collections.abc import Mapping
from typing import Any

from kernbench.ccl.config import QueueSpec, queues_of
from kernbench.ccl.install import install_ipcq
from kernbench.ccl.topologies import grid, sip_neighbors
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.spec import TopologySpec


def configure_sfr_intercube_multisip(
    engine: GraphEngine, spec: TopologySpec, cfg: QueueSpec | Mapping[str, Any]
) -> None:
    """Wire every cube's pe0, whatever the algorithm and its root need of it.

    It is joined to the pe0 of its mesh neighbours (N S E W, no wraparound), and to that
    of the same cube of the SIPs beside its own (global_*). ``cfg`` may be a mapping of
    the fields of ccl.yaml. TopologyError for a wrong one, and if the SIP topology has
    no square.
    """
    queues = queues_of(cfg) if isinstance(cfg, Mapping) else cfg
    mesh = spec.sip.cube_mesh
    sips = spec.system.sips
    cubes = mesh.w * mesh.h

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
        buffer_kind=queues.buffer_kind,
        slots=queues.slots,
        slot_bytes=queues.slot_bytes,
        credit_bytes=queues.credit_bytes,
    )

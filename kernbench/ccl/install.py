"""Wires the queues of PEs: receive rings in memory, and a neighbour for each direction.

A direction of rank a that leads to b is the other end of that direction of b which
leads back to a: the opposite one where it does, so that a ring of two ranks works both
ways (ADR-0025).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernbench.common.phys_addr import PhysAddr
from kernbench.components.builtin.pe_ipcq import DIRECTIONS, PeIpcq, Ring
from kernbench.errors import RoutingError, UsageError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.event_log import Shard
from kernbench.topology.graph import Place
from kernbench.topology.spec import TopologySpec

_OPPOSITE_DIR = {
    "N": "S",
    "S": "N",
    "E": "W",
    "W": "E",
    "global_N": "global_S",
    "global_S": "global_N",
    "global_E": "global_W",
    "global_W": "global_E",
}
_ALIGN_BYTES = 64
"""Alignment of a ring in its memory."""

Table: TypeAlias = Mapping[str, int]
"""The rank that each direction of one rank leads to."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """A memory that rings can lie in.

    ``nbytes`` is its size, ``address`` the physical address of a byte of the memory at
    a place.
    """

    nbytes: Callable[[TopologySpec], int]
    address: Callable[[TopologySpec, Place, int], PhysAddr]


def _tcm_bytes(spec: TopologySpec) -> int:
    return spec.pe.tcm.size_kib << 10


def _tcm_address(spec: TopologySpec, place: Place, offset: int) -> PhysAddr:
    return PhysAddr.pe_tcm_addr(*place, offset)


def _sram_bytes(spec: TopologySpec) -> int:
    return spec.cube.sram.size_mib << 20


def _sram_address(spec: TopologySpec, place: Place, offset: int) -> PhysAddr:
    sip, cube, _ = place
    return PhysAddr.sram_addr(sip, cube, offset)


def _hbm_bytes(spec: TopologySpec) -> int:
    return spec.cube.memory_map.slice_bytes


def _hbm_address(spec: TopologySpec, place: Place, offset: int) -> PhysAddr:
    return PhysAddr.pe_hbm_addr(*place, offset, _hbm_bytes(spec))


_MEMORIES = {
    "tcm": _Memory(_tcm_bytes, _tcm_address),
    "sram": _Memory(_sram_bytes, _sram_address),
    "hbm": _Memory(_hbm_bytes, _hbm_address),
}


def install_ipcq(
    engine: GraphEngine,
    *,
    world_size: int,
    rank_to_pe: Sequence[Place],
    neighbors: Callable[[int], Table],
    buffer_kind: str = "tcm",
    slots: int = 4,
    slot_bytes: int = 4096,
    credit_bytes: int = 16,
) -> None:
    """Give each rank a ring in each direction of ``neighbors(rank)``, and join them.

    ``rank_to_pe`` are (sip, cube, pe). A ring has ``slots`` of ``slot_bytes`` each, at
    the end of the receiver's memory of ``buffer_kind``: tcm, sram or hbm. UsageError
    for tables that do not fit each other, for sizes that are not, and for rings that do
    not fit their memory. RoutingError for a queue into or out of a SIP that has no PCIe
    end point, and for a memory that the machine does not have.
    """
    if min(slots, slot_bytes, credit_bytes) < 1:
        sizes = f"slots={slots}, slot_bytes={slot_bytes}, credit_bytes={credit_bytes}"
        raise UsageError(f"install_ipcq: {sizes}; each must be at least 1")
    if len(rank_to_pe) != world_size or len({*rank_to_pe}) != world_size:
        raise UsageError(
            f"install_ipcq: {world_size} ranks need as many PEs, each another one"
        )
    tables = [dict(neighbors(rank)) for rank in range(world_size)]
    ends = []
    for rank, table in enumerate(tables):
        for direction in table:
            ends.append((rank, direction, other_end(tables, rank, direction)))
    _check_sips(engine, rank_to_pe, tables)
    queues = [_ipcq(engine, place) for place in rank_to_pe]
    ends.sort(key=lambda end: (end[0], DIRECTIONS.index(end[1])))
    for rank, direction, back in ends:
        base = _reserve(
            engine,
            rank_to_pe[rank],
            buffer_kind,
            slots * slot_bytes,
            f"ipcq.{rank}.{direction}",
        )
        ring = Ring(buffer_kind, base, slots, slot_bytes, credit_bytes)
        peer = queues[tables[rank][direction]]
        queues[rank].connect(direction, ring, peer, back)


def other_end(tables: Sequence[Table], rank: int, direction: str) -> str:
    """The direction of the neighbour in ``direction`` that leads back to ``rank``.

    ``tables`` has a table a rank. UsageError for a direction that there is not, one
    that leads to no other rank, and one whose way back cannot be told.
    """
    if direction not in _OPPOSITE_DIR:
        valid = ", ".join(_OPPOSITE_DIR)
        raise UsageError(
            f"rank {rank}: unknown direction {direction!r}; valid: {valid}"
        )
    peer = tables[rank][direction]
    opposite = _OPPOSITE_DIR[direction]
    if not 0 <= peer < len(tables) or rank == peer:
        raise UsageError(
            f"rank {rank}, {direction}: {peer} is no other of {len(tables)} ranks"
        )
    if tables[peer].get(opposite) == rank:
        return opposite
    there = _unpaired(tables, rank, peer)
    back = _unpaired(tables, peer, rank)
    if len(there) != 1 or len(back) != 1:
        raise UsageError(
            f"rank {rank} leads to rank {peer} by {direction}, but {opposite} of "
            f"rank {peer} does not lead back, and of its others "
            f"{', '.join(back) or 'none'}; wire it in both ranks"
        )
    return back[0]


def _unpaired(tables: Sequence[Table], rank: int, peer: int) -> list[str]:
    """Directions from ``rank`` to ``peer`` that are not the opposite of a way back."""
    found = []
    for direction, there in tables[rank].items():
        opposite = _OPPOSITE_DIR.get(direction, "")
        if there == peer and tables[peer].get(opposite) != rank:
            found.append(direction)
    return found


def _check_sips(
    engine: GraphEngine, rank_to_pe: Sequence[Place], tables: Sequence[Table]
) -> None:
    """RoutingError for a queue between SIPs of which one has no PCIe end point.

    What a SIP sends to another leaves by such a point and comes in by one.
    """
    end_points = engine.sim.resolver.find_all_pcie_eps()
    joined = {engine.graph.nodes[end_point].sip for end_point in end_points}
    for rank, table in enumerate(tables):
        for direction, peer in table.items():
            ends = {rank_to_pe[rank][0], rank_to_pe[peer][0]}
            if len(ends) > 1 and not ends <= joined:
                listed = ", ".join(end_points) or "none"
                raise RoutingError(
                    f"rank {rank}, {direction}: no way to rank {peer}, as SIP "
                    f"{min(ends - joined)} has no PCIe end point; there are {listed}"
                )


def _ipcq(engine: GraphEngine, place: Place) -> PeIpcq:
    """The queues of a PE; UsageError if they are another's, or wired already."""
    ipcq = engine.sim.component(engine.graph.at(*place, "pe_ipcq"))
    if not isinstance(ipcq, PeIpcq):
        raise UsageError(
            f"{ipcq.node.id}: impl of pe_ipcq must subclass the built-in one"
        )
    if ipcq.queues:
        raise UsageError(
            f"{ipcq.node.id} is wired already ({', '.join(ipcq.queues)}); wire once"
        )
    return ipcq


def _reserve(
    engine: GraphEngine, place: Place, space: str, nbytes: int, name: str
) -> int:
    """The physical address of a ring: rings are taken from the end of a memory down."""
    if space not in _MEMORIES:
        valid = ", ".join(_MEMORIES)
        raise UsageError(f"unknown buffer_kind {space!r}; valid: {valid}")
    memory = _MEMORIES[space]
    spec = engine.graph.spec
    # the SRAM of a cube has no PE of its own: all rings in it are counted together
    holder = engine.sim.resolver.resolve(memory.address(spec, place, 0))
    key = (space, *engine.graph.nodes[holder].place)
    lines = -(-nbytes // _ALIGN_BYTES)
    engine.sim.reserved[key] += lines * _ALIGN_BYTES
    reserved = engine.sim.reserved[key]
    size = memory.nbytes(spec)
    offset = size - reserved
    if offset < 0:
        raise UsageError(
            f"{name}: rings of {reserved} bytes do not fit the {size} of "
            f"{space} at {place}; use fewer or smaller slots, or another buffer_kind"
        )
    addr = memory.address(spec, place, offset).encode()
    if engine.recorder is not None:
        shard = Shard(
            tensor=name,
            dtype="u8",
            space=space,
            addr=addr,
            va=0,
            nbytes=nbytes,
            owner=engine.graph.at(*place, "pe_cpu"),
            origin=(0,),
            shape=(nbytes,),
            cmd=engine.next_cmd,
        )
        engine.recorder.alloc(shard)
    return addr

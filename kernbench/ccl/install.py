"""Wires the queues of PEs: receive rings in memory, and a neighbour for each direction.

A direction of rank a that leads to b is the other end of that direction of b which leads back to
a: the opposite one where it does, so that a ring of two ranks works both ways.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kernbench.common.phys_addr import PhysAddr
from kernbench.components.builtin.pe_ipcq import DIRECTIONS, PeIpcq, Ring
from kernbench.errors import UsageError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.event_log import Shard
from kernbench.topology.graph import Place

_OPPOSITE_DIR = {"N": "S", "S": "N", "E": "W", "W": "E"}
_OPPOSITE_DIR |= {f"global_{d}": f"global_{back}" for d, back in _OPPOSITE_DIR.items()}
_ALIGN = 64
Table: TypeAlias = Mapping[str, int]  # direction -> rank


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
    """Give each rank a ring of ``slots`` in each direction of ``neighbors(rank)``, and join them.

    ``rank_to_pe`` are (sip, cube, pe). Rings lie at the end of the receiver's memory of
    ``buffer_kind``: tcm, sram or hbm. UsageError for tables that do not fit each other, and sizes.
    """
    if min(slots, slot_bytes, credit_bytes) < 1:
        sizes = f"slots={slots}, slot_bytes={slot_bytes}, credit_bytes={credit_bytes}"
        raise UsageError(f"install_ipcq: {sizes}; each must be at least 1")
    if len(rank_to_pe) != world_size or len({*rank_to_pe}) != world_size:
        raise UsageError(
            f"install_ipcq: {world_size} ranks need as many PEs, each another one"
        )
    tables = [dict(neighbors(rank)) for rank in range(world_size)]
    backs = {
        (a, d): _back(tables, a, d) for a, table in enumerate(tables) for d in table
    }
    queues = [_ipcq(engine, place) for place in rank_to_pe]
    for a, d in sorted(backs, key=lambda end: (end[0], DIRECTIONS.index(end[1]))):
        base = _reserve(
            engine, rank_to_pe[a], buffer_kind, slots * slot_bytes, f"ipcq.{a}.{d}"
        )
        ring = Ring(buffer_kind, base, slots, slot_bytes, credit_bytes)
        queues[a].connect(d, ring, queues[tables[a][d]], backs[a, d])


def _back(tables: Sequence[Table], a: int, direction: str) -> str:
    """The direction of the neighbour in ``direction`` that is its other end."""
    if direction not in _OPPOSITE_DIR:
        valid = ", ".join(_OPPOSITE_DIR)
        raise UsageError(f"rank {a}: unknown direction {direction!r}; valid: {valid}")
    b, opposite = tables[a][direction], _OPPOSITE_DIR[direction]
    if not 0 <= b < len(tables) or a == b:
        raise UsageError(
            f"rank {a}, {direction}: {b} is no other of {len(tables)} ranks"
        )
    if tables[b].get(opposite) == a:
        return opposite
    there, back = (
        [
            d
            for d, c in tables[x].items()
            if c == y and tables[y].get(_OPPOSITE_DIR.get(d, "")) != x
        ]
        for x, y in ((a, b), (b, a))
    )
    if len(there) != 1 or len(back) != 1:
        raise UsageError(
            f"rank {a} leads to rank {b} by {direction}, but {opposite} of rank {b} does not lead "
            f"back, and of its others {', '.join(back) or 'none'}; wire it in both ranks"
        )
    return back[0]


def _ipcq(engine: GraphEngine, place: Place) -> PeIpcq:
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
    """The physical address of a ring, from the end of the memory down."""
    (sip, cube, pe), spec = place, engine.graph.spec
    sizes = {"tcm": spec.pe.tcm.size_kib << 10, "sram": spec.cube.sram.size_mib << 20}
    sizes["hbm"] = spec.cube.memory_map.slice_bytes
    if space not in sizes:
        raise UsageError(f"unknown buffer_kind {space!r}; valid: {', '.join(sizes)}")
    key = (space, sip, cube, -1 if space == "sram" else pe)
    engine.sim.reserved[key] += -(-nbytes // _ALIGN) * _ALIGN
    offset = sizes[space] - engine.sim.reserved[key]
    if offset < 0:
        raise UsageError(
            f"{name}: rings of {engine.sim.reserved[key]} bytes do not fit the {sizes[space]} of "
            f"{space} at {place}; use fewer or smaller slots, or another buffer_kind"
        )
    addr = {
        "tcm": lambda: PhysAddr.pe_tcm_addr(*place, offset),
        "sram": lambda: PhysAddr.sram_addr(sip, cube, offset),
        "hbm": lambda: PhysAddr.pe_hbm_addr(*place, offset, sizes["hbm"]),
    }[space]().encode()
    if engine.recorder is not None:
        at = (space, addr, 0, nbytes, engine.graph.at(*place, "pe_cpu"))
        engine.recorder.alloc(Shard(name, "u8", *at, (0,), (nbytes,), engine.next_cmd))
    return addr

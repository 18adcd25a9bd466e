"""Memory for tensors: a virtual range each, and the HBM that its shards lie in."""

from __future__ import annotations

from kernbench.common.dtypes import nbytes_of
from kernbench.common.phys_addr import VA_BASE, PhysAddr
from kernbench.components.pages import Mapping
from kernbench.errors import UsageError
from kernbench.runtime_api.placement import DPPolicy, Placed, place_shards
from kernbench.sim_engine.engine import HOST, GraphEngine
from kernbench.sim_engine.event_log import Shard
from kernbench.topology.graph import Place

_PAGE_BYTES = 4096
"""Alignment of a tensor's virtual range."""

_LINE_BYTES = 256
"""Alignment of a shard in HBM."""


class Allocator:
    """Gives out virtual ranges and HBM of one engine; nothing is reused within a run.

    It owns how much of each PE's HBM slice is taken, and what virtual address is next.
    It maps what it gives out, and reports it to the engine's recorder.
    """

    def __init__(self, engine: GraphEngine) -> None:
        self._engine = engine
        self._next_va = VA_BASE
        self._used_bytes: dict[Place, int] = {}

    def shards(
        self, name: str, shape: tuple[int, ...], dtype: str, dp: DPPolicy
    ) -> list[Shard]:
        """The shards of a new tensor, in virtual-address order, replicas side by side.

        For a rank they lie in its own SIP, for the bench itself in all. UsageError if
        they do not fit, or if the policy does not fit the machine.
        """
        engine = self._engine
        spec = engine.graph.spec
        cubes = spec.sip.cube_mesh.w * spec.sip.cube_mesh.h
        rank = engine.stream
        sips = 1
        first_sip = rank
        if rank == HOST:
            sips = spec.system.sips.count
            first_sip = 0
        shards: list[Shard] = []
        va = self._next_va
        for placed in place_shards(shape, dp, sips, cubes, spec.cube.pes):
            nbytes = nbytes_of(placed.shape, dtype)
            for place, addr in self._map(name, va, nbytes, placed, first_sip):
                owner = engine.graph.at(*place, "pe_cpu")
                shards.append(
                    Shard(
                        tensor=name,
                        dtype=dtype,
                        space="hbm",
                        addr=addr,
                        va=va,
                        nbytes=nbytes,
                        owner=owner,
                        origin=placed.origin,
                        shape=placed.shape,
                        cmd=engine.next_cmd,
                        index=len(shards),
                    )
                )
            va += nbytes
        pages = -(-va // _PAGE_BYTES)
        self._next_va = (pages + 1) * _PAGE_BYTES  # a page between any two tensors
        if engine.recorder is not None:
            for shard in shards:
                engine.recorder.alloc(shard)
        return shards

    def _map(
        self, name: str, va: int, nbytes: int, placed: Placed, first_sip: int
    ) -> tuple[tuple[Place, int], ...]:
        """Take HBM for each copy of a shard, and map its virtual range to them."""
        copies = []
        for sip, cube, pe in placed.places:
            place = (first_sip + sip, cube, pe)
            copies.append((place, self._take(place, nbytes, name)))
        self._engine.sim.pages.add(Mapping(va, nbytes, name, tuple(copies)))
        return tuple(copies)

    def _take(self, place: Place, nbytes: int, name: str) -> int:
        """The physical address of fresh bytes in the HBM slice of a PE."""
        memory = self._engine.graph.spec.cube.memory_map
        slice_bytes = memory.slice_bytes
        used = self._used_bytes.get(place, 0)
        left = slice_bytes - used - self._engine.sim.reserved["hbm", *place]
        if nbytes > left:
            sip, cube, pe = place
            raise UsageError(
                f"tensor {name!r}: {nbytes} bytes do not fit the HBM slice of "
                f"sip {sip} cube {cube} pe {pe}: {left} of {slice_bytes} bytes are left"
            )
        lines = -(-nbytes // _LINE_BYTES)
        self._used_bytes[place] = used + lines * _LINE_BYTES
        return PhysAddr.pe_hbm_addr(*place, used, slice_bytes).encode()

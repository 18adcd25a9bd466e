"""The DMA engine of a PE: a read and a write channel, each with a number of outstanding commands.

Service is the whole transfer: it ends when the last byte has landed. A read is a 32-byte request
along the path, the access, and data back on the reversed path.
"""

from __future__ import annotations

from typing import ClassVar

import simpy

from kernbench.common.messages import MsgBase, StageType, TileToken, Transaction
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.topology.graph import Node

REQUEST_BYTES = 32
PE_WINDOW = 1 << 34  # of addresses, for each PE's TCM (common/phys_addr.py)
_READ, _WRITE = 0, 1


class PeDma(ComponentBase):
    """Serves loads, stores and the DMA stages of tiles."""

    serves = (DmaReadCmd, DmaWriteCmd, TileToken)
    channels: ClassVar[int] = 2
    queue_reason: ClassVar[str] = "dma_slot"

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._dma = sim.graph.spec.pe.dma
        self.slots = self._dma.outstanding
        memory = sim.graph.spec.cube.memory_map
        slice_bytes = memory.hbm_total_gb * (1 << 30) // memory.slices_per_cube
        # no two memories lie in one block of this size: every boundary is a multiple of it
        self._block = min(slice_bytes & -slice_bytes, PE_WINDOW)
        self._paths: dict[int, tuple[str, ...]] = {}

    def channel(self, msg: MsgBase) -> int:
        """Reads and writes have slots of their own."""
        if isinstance(msg, TileToken):
            return _READ if msg.stage.stage_type is StageType.DMA_READ else _WRITE
        return _READ if isinstance(msg, DmaReadCmd) else _WRITE

    def run(self, env: simpy.Environment, msg: MsgBase) -> Process:
        """Set-up, then every transfer of the command; several reads of one command go side by
        side.
        """
        yield env.timeout(self._dma.setup_ns)
        if isinstance(msg, TileToken):
            params = msg.stage.params
            if msg.stage.stage_type is StageType.DMA_WRITE:
                yield from self._write(msg, params["addrs"][0], params["sizes"][0])
            else:
                pairs = zip(params["addrs"], params["sizes"], strict=True)
                reads = [self._read(msg, addr, size) for addr, size in pairs]
                for read in reads:  # noqa: UP028 (SimPy sends values; a list takes none)
                    yield read
        elif isinstance(msg, DmaReadCmd):
            yield self._read(msg, msg.src.addr, msg.src.nbytes)
        else:
            assert isinstance(msg, DmaWriteCmd)
            if msg.src.space == "hbm":
                yield self._read(msg, msg.src.addr, msg.src.nbytes)
            yield from self._write(msg, msg.dst_addr, msg.src.nbytes)

    def _path(self, addr: int) -> tuple[str, ...]:
        path = self._paths.get(addr // self._block)
        if path is None:
            node = self.sim.resolver.resolve(PhysAddr.decode(addr))
            path = self.sim.router.route("pe", self.node.id, node)
            self._paths[addr // self._block] = path
        return path

    def _read(self, msg: MsgBase, addr: int, nbytes: int) -> simpy.Event:
        path = self._path(addr)
        request = Transaction(path=path, nbytes=REQUEST_BYTES, owner=msg)
        data = Transaction(
            path=path[::-1],
            nbytes=nbytes,
            owner=msg,
            burst_bytes=self._dma.burst_bytes,
            src_addr=addr,
        )
        return self.sim.read(request, data)

    def _write(self, msg: MsgBase, addr: int, nbytes: int) -> Process:
        data = Transaction(
            path=self._path(addr),
            nbytes=nbytes,
            owner=msg,
            burst_bytes=self._dma.burst_bytes,
            dst_addr=addr,
        )
        yield from self.sim.transfer(data)

"""The DMA engine of a PE: channels for reads, writes and what it pushes to other PEs, each with a
number of outstanding commands.

Service is the whole transfer: it ends when the last byte has landed. A read is a 32-byte request
along the path, the access, and data back on the reversed path.
"""

import simpy

from kernbench.common.messages import MsgBase, StageType, TileToken, Transaction
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd, PushCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.topology.graph import Node

REQUEST_BYTES = 32
PE_WINDOW = 1 << 34  # of addresses, for each PE's TCM (common/phys_addr.py)
_READ, _WRITE, _PUSH = 0, 1, 2


class PeDma(ComponentBase):
    """Serves loads, stores, the DMA stages of tiles, and the slots that a PE_IPCQ pushes."""

    serves = (DmaReadCmd, DmaWriteCmd, TileToken, PushCmd)
    channels = 3
    queue_reason = "dma_slot"

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._dma = sim.graph.spec.pe.dma
        self.slots = self._dma.outstanding
        # no two memories lie in one block of this size: every boundary is a multiple of it
        slice_bytes = sim.graph.spec.cube.memory_map.slice_bytes
        self._block = min(slice_bytes & -slice_bytes, PE_WINDOW)
        self._paths: dict[int, tuple[str, ...]] = {}

    def channel(self, msg: MsgBase) -> int:
        """Reads, writes and pushes have slots of their own."""
        if isinstance(msg, PushCmd):
            return _PUSH
        if isinstance(msg, TileToken):
            return _READ if msg.stage.stage_type is StageType.DMA_READ else _WRITE
        return _READ if isinstance(msg, DmaReadCmd) else _WRITE

    def run(self, env: simpy.Environment, msg: MsgBase) -> Process:
        """Set-up, the reads of the command side by side, then its write."""
        yield env.timeout(self._dma.setup_ns)
        if isinstance(msg, PushCmd):
            yield from self._push(env, msg)
            return
        if isinstance(msg, TileToken):
            params = msg.stage.params
            pieces = [*zip(params["addrs"], params["sizes"], strict=True)]
            reads, writes = (pieces, []) if self.channel(msg) == _READ else ([], pieces)
        else:
            assert isinstance(msg, DmaReadCmd | DmaWriteCmd)
            src, is_read = msg.src, isinstance(msg, DmaReadCmd)
            reads = [(src.addr, src.nbytes)] if is_read or src.space == "hbm" else []
            writes = (
                [(msg.dst_addr, src.nbytes)] if isinstance(msg, DmaWriteCmd) else []
            )
        for read in [self.read(msg, *piece) for piece in reads]:  # noqa: UP028 (a list takes none)
            yield read
        for piece in writes:
            yield from self._write(msg, *piece)

    def _push(self, env: simpy.Environment, msg: PushCmd) -> Process:
        """The source has been read when its last byte has left at the bandwidth of our link."""
        copy, nbytes = msg.copy, msg.copy.src.nbytes
        if copy.src.space == "hbm":
            yield self.read(copy, copy.src.addr, nbytes)
        copy.t_start, copy.slot = env.now, msg.slot
        landing = env.process(self._write(copy, copy.dst.addr, nbytes))
        yield env.timeout(nbytes / self._dma.to_router_bw_gbs)
        copy.data = self.sim.peek(copy.src)
        msg.read.succeed()
        yield landing
        msg.on_landed()

    def read(self, msg: MsgBase, addr: int, nbytes: int) -> simpy.Event:
        """Read a memory for ``msg``; the event is that its bytes are here."""
        path, burst = self._path(addr), self._dma.burst_bytes
        request = Transaction(path, REQUEST_BYTES, msg)
        return self.sim.read(
            request, Transaction(path[::-1], nbytes, msg, burst, src_addr=addr)
        )

    def _write(self, msg: MsgBase, addr: int, nbytes: int) -> Process:
        burst = self._dma.burst_bytes
        return self.sim.transfer(
            Transaction(self._path(addr), nbytes, msg, burst, dst_addr=addr)
        )

    def _path(self, addr: int) -> tuple[str, ...]:
        path = self._paths.get(addr // self._block)
        if path is None:
            node = self.sim.resolver.resolve(PhysAddr.decode(addr))
            path = self.sim.router.route("pe", self.node.id, node)
            self._paths[addr // self._block] = path
        return path

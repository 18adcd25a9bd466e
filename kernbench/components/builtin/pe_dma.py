"""The DMA engine of a PE: channels for reads, for writes, and for what it pushes.

What is pushed goes to other PEs. Each channel has a number of outstanding commands.
Service is the whole transfer: it ends when the last byte has landed. A read is a
32-byte request along the path, the access, and data back on the reversed path.
"""

from collections.abc import Sequence
from typing import TypeAlias

import simpy

from kernbench.common.exact_time import bytes_ns, exact_ns
from kernbench.common.messages import MsgBase, StageType, TileToken, Transaction
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd, PushCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.rows import Rows
from kernbench.components.base import Burst, ComponentBase, Process, Sim
from kernbench.sim_engine.accesses import block_rows
from kernbench.topology.graph import Node

Path: TypeAlias = tuple[str, ...]
"""Ids of nodes, from one to the next."""

REQUEST_BYTES = 32
PE_WINDOW = 1 << 34
"""Addresses that each PE's TCM has for itself (common/phys_addr.py)."""

_READ = 0
_WRITE = 1
_PUSH = 2


class PeDma(ComponentBase):
    """Serves loads, stores, DMA stages of tiles, and slots that a PE_IPCQ pushes."""

    serves = (DmaReadCmd, DmaWriteCmd, TileToken, PushCmd, Burst)
    channels = 3
    queue_reason = "dma_slot"

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._dma = sim.graph.spec.pe.dma
        self.slots = self._dma.outstanding
        self._setup_ns = exact_ns(self._dma.setup_ns)
        # No two memories lie in one block of this size: every boundary is a multiple of
        # it. So the path to a block is found once.
        slice_bytes = sim.graph.spec.cube.memory_map.slice_bytes
        self._block = min(slice_bytes & -slice_bytes, PE_WINDOW)
        self._paths: dict[int, tuple[Path, Path]] = {}

    def channel(self, msg: MsgBase) -> int:
        """Reads, writes and pushes have slots of their own."""
        if isinstance(msg, TileToken):
            is_read = msg.stage.stage_type is StageType.DMA_READ
        elif isinstance(msg, PushCmd):
            return _PUSH
        else:
            is_read = isinstance(msg, DmaReadCmd)
        return _READ if is_read else _WRITE

    def run(self, env: simpy.Environment, msg: MsgBase | Burst) -> Process:
        """Set-up, the reads of the command side by side, then its writes."""
        if isinstance(msg, Burst):
            yield from super().run(env, msg)
            return
        yield env.timeout(self._setup_ns)
        if isinstance(msg, PushCmd):
            yield from self._push(env, msg)
            return
        reads, writes = self._pieces(msg)
        under_way = [self.read(msg, rows) for rows in reads]
        for landed in under_way:  # noqa: UP028 (SimPy sends values; a list takes none)
            yield landed
        for rows in writes:
            yield from self._write(msg, rows)

    known_run = run

    def _pieces(self, msg: MsgBase) -> tuple[Sequence[Rows], Sequence[Rows]]:
        """What a command reads over the network, and what it writes."""
        if isinstance(msg, TileToken):
            stage = msg.stage
            pieces = block_rows(stage.params)
            if stage.stage_type is StageType.DMA_READ:
                return pieces, ()
            return (), pieces
        if isinstance(msg, DmaReadCmd):
            return [msg.src.where], ()
        assert isinstance(msg, DmaWriteCmd)
        # A source in the TCM is at hand; one in HBM is read first.
        reads = []
        if msg.src.space == "hbm":
            reads.append(msg.src.where)
        return reads, [msg.dst.where]

    def _push(self, env: simpy.Environment, msg: PushCmd) -> Process:
        """A slot's worth of a payload, to the slot of another PE.

        The source has been read when its last byte has left at the bandwidth of our
        link. The record is that of the copy: who waits for our slot waits for that.
        """
        copy = msg.copy
        nbytes = copy.src.nbytes
        if copy.src.space == "hbm":
            yield self.read(copy, copy.src.where)
        copy.t_start = env.now
        copy.slot = msg.slot
        landing = env.process(self._write(copy, copy.dst.where))
        yield env.timeout(bytes_ns(nbytes, self._dma.to_router_bw_gbs))
        copy.data = self.sim.peek(copy.src)
        msg.read.succeed()
        yield landing
        msg.on_landed()
        msg.row = copy.row

    def read(self, msg: MsgBase, rows: Rows) -> simpy.Event:
        """Read a memory for ``msg``; the event is that its bytes are here."""
        path, back = self._paths_to(rows.addr)
        request = Transaction(path, REQUEST_BYTES, msg)
        data = Transaction(back, rows.nbytes, msg, self._dma.burst_bytes, src=rows)
        return self.sim.read(request, data)

    def _write(self, msg: MsgBase, rows: Rows) -> Process:
        """Carry bytes to a memory for ``msg``; ends when the last has landed."""
        path, _ = self._paths_to(rows.addr)
        data = Transaction(path, rows.nbytes, msg, self._dma.burst_bytes, dst=rows)
        return self.sim.transfer(data)

    def path_to(self, addr: int) -> Path:
        """The path to the memory that holds a physical address."""
        return self._paths_to(addr)[0]

    def _paths_to(self, addr: int) -> tuple[Path, Path]:
        """The path to the memory that holds a physical address, and the way back."""
        block = addr // self._block
        paths = self._paths.get(block)
        if paths is None:
            node = self.sim.resolver.resolve(PhysAddr.decode(addr))
            path = self.sim.router.route("pe", self.node.id, node)
            paths = (path, path[::-1])
            self._paths[block] = paths
        return paths

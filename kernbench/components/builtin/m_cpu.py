"""The M_CPU of a cube, where a launch parts to the PE_CPUs of its PEs; it has a DMA.

The DMA moves what it is told to, as that of a PE does but without set-up. Of what ships
only the probe tells it anything.
"""

import simpy

from kernbench.common.messages import LaunchMsg, MsgBase, Transaction
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import Process
from kernbench.components.builtin.io_cpu import IoCpu
from kernbench.components.builtin.pe_dma import REQUEST_BYTES

_LAUNCHES = 0
_MOVES = 1


class MCpu(IoCpu):
    """Lets launches pass as an IO CPU does; they do not wait for the DMA."""

    serves = (LaunchMsg, DmaReadCmd, DmaWriteCmd)
    channels = 2

    def channel(self, msg: MsgBase) -> int:
        """Launches and moves have a slot each."""
        return _LAUNCHES if isinstance(msg, LaunchMsg) else _MOVES

    def run(
        self, env: simpy.Environment, msg: LaunchMsg | DmaReadCmd | DmaWriteCmd
    ) -> Process:
        """Let a launch pass; or read what is not at hand, then write."""
        if isinstance(msg, LaunchMsg):
            yield from super().run(env, msg)
            return
        if isinstance(msg, DmaReadCmd) or msg.src.space == "hbm":
            yield self._read(msg)
        if isinstance(msg, DmaWriteCmd):
            yield from self._write(msg)

    def _read(self, msg: DmaReadCmd | DmaWriteCmd) -> simpy.Event:
        """Ask a memory for the source; the event is that it is here."""
        path = self._path_to(msg.src.addr)
        request = Transaction(path, REQUEST_BYTES, msg)
        data = Transaction(
            path[::-1],
            msg.src.nbytes,
            msg,
            self._burst_bytes(),
            src=msg.src.where,
        )
        return self.sim.read(request, data)

    def _write(self, msg: DmaWriteCmd) -> Process:
        """Carry the bytes to their memory; ends when the last has landed."""
        path = self._path_to(msg.dst_addr)
        data = Transaction(
            path, msg.src.nbytes, msg, self._burst_bytes(), dst=msg.dst.where
        )
        return self.sim.transfer(data)

    def _path_to(self, addr: int) -> tuple[str, ...]:
        """The path to the memory that holds a physical address."""
        memory = self.sim.resolver.resolve(PhysAddr.decode(addr))
        return tuple(self.sim.router.find_mcpu_dma_path(self.node.id, memory))

    def _burst_bytes(self) -> int:
        return self.sim.graph.spec.pe.dma.burst_bytes

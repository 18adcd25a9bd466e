"""The PCIe end point of a SIP: host transfers of data, and the way in of launches.

A host transfer is one transaction a shard, without bursts (simulator.md section 5).
"""

from __future__ import annotations

import simpy

from kernbench.common.messages import HostReadCmd, HostWriteCmd, LaunchMsg, MsgBase, Transaction
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pe_dma import REQUEST_BYTES

LAUNCH_BYTES = 64


class PcieEp(ComponentBase):
    """One host command at a time; each pays the end point's overhead first."""

    serves = (LaunchMsg, HostWriteCmd, HostReadCmd)

    def run(self, env: simpy.Environment, msg: MsgBase) -> Process:
        """Carry host data to or from a memory, or a launch to the io_cpu."""
        yield env.timeout(self.overhead_ns)
        if isinstance(msg, LaunchMsg):
            io_cpu = self.sim.resolver.find_io_cpu(self.node.sip)
            path = self.sim.router.route("node", self.node.id, io_cpu)
            yield from self.sim.transfer(Transaction(path=path, nbytes=LAUNCH_BYTES, owner=msg))
            env.process(self.sim.component(io_cpu)._forward_txn(env, msg))
        elif isinstance(msg, HostWriteCmd):
            addr, nbytes = msg.dst.addr, msg.dst.nbytes
            path = self._path(addr)
            data = Transaction(path=path, nbytes=nbytes, owner=msg, dst_addr=addr)
            yield from self.sim.transfer(data)
        else:
            assert isinstance(msg, HostReadCmd)
            addr, nbytes = msg.src.addr, msg.src.nbytes
            path = self._path(addr)
            request = Transaction(path=path, nbytes=REQUEST_BYTES, owner=msg)
            data = Transaction(path=path[::-1], nbytes=nbytes, owner=msg, src_addr=addr)
            yield self.sim.read(request, data)

    def _path(self, addr: int) -> tuple[str, ...]:
        memory = self.sim.resolver.resolve(PhysAddr.decode(addr))
        return self.sim.router.route("memory", self.node.id, memory)

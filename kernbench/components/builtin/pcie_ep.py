"""The PCIe end point of a SIP: host transfers of data, and the way in of launches.

A host transfer is one transaction a shard, without bursts (docs/machine.md, "The host
and launches"). It goes as fast as PCIe lets it, although its path (ADR-0051) begins
behind the PCIe link.
"""

import simpy

from kernbench.common.exact_time import exact_ns
from kernbench.common.messages import HostReadCmd, HostWriteCmd, LaunchMsg, Transaction
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import Burst, ComponentBase, Process
from kernbench.components.builtin.pe_dma import REQUEST_BYTES


class PcieEp(ComponentBase):
    """One host command at a time; each pays the end point's overhead first."""

    serves = (LaunchMsg, HostWriteCmd, HostReadCmd, Burst)

    def run(
        self,
        env: simpy.Environment,
        msg: LaunchMsg | HostWriteCmd | HostReadCmd | Burst,
    ) -> Process:
        """Carry host data to or from a memory, or let a launch or a burst pass."""
        yield env.timeout(exact_ns(self.overhead_ns))
        if isinstance(msg, HostWriteCmd):
            yield from self._write(msg)
        elif isinstance(msg, HostReadCmd):
            yield self._read(msg)

    known_run = run

    def _write(self, msg: HostWriteCmd) -> Process:
        """Carry host data to a memory, at the rate of PCIe."""
        path = self._path_to(msg.dst.addr)
        data = Transaction(path, msg.dst.nbytes, msg, dst=msg.dst.where)
        data.rate_gbs = self._pcie_gbs()
        return self.sim.transfer(data)

    def _read(self, msg: HostReadCmd) -> simpy.Event:
        """Ask a memory for data; the event is that the host has them."""
        path = self._path_to(msg.src.addr)
        request = Transaction(path, REQUEST_BYTES, msg)
        data = Transaction(path[::-1], msg.src.nbytes, msg, src=msg.src.where)
        data.rate_gbs = self._pcie_gbs()
        return self.sim.read(request, data)

    def _path_to(self, addr: int) -> tuple[str, ...]:
        """The path to the memory that holds a physical address."""
        memory = self.sim.resolver.resolve(PhysAddr.decode(addr))
        return self.sim.router.route("memory", self.node.id, memory)

    def _pcie_gbs(self) -> float:
        return self.sim.graph.spec.system.pcie_bw_gbs

"""The PCIe end point of a SIP: host transfers of data, and the way in of launches.

A host transfer is one transaction a shard, without bursts (simulator.md section 5). It goes as fast
as PCIe lets it, although its path (ADR-0051) begins behind the PCIe link.
"""

import simpy

from kernbench.common.messages import HostReadCmd, HostWriteCmd, LaunchMsg, Transaction
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pe_dma import REQUEST_BYTES

LAUNCH_BYTES = 64


class PcieEp(ComponentBase):
    """One host command at a time; each pays the end point's overhead first."""

    serves = (LaunchMsg, HostWriteCmd, HostReadCmd)

    def run(
        self, env: simpy.Environment, msg: LaunchMsg | HostWriteCmd | HostReadCmd
    ) -> Process:
        """Carry host data to or from a memory, or a launch to the io_cpu."""
        yield env.timeout(self.overhead_ns)
        sim, node = self.sim, self.node
        if isinstance(msg, LaunchMsg):
            io_cpu = sim.resolver.find_io_cpu(node.sip)
            yield from sim.deliver(msg, node.id, io_cpu, LAUNCH_BYTES)
            return
        place = msg.dst if isinstance(msg, HostWriteCmd) else msg.src
        memory = sim.resolver.resolve(PhysAddr.decode(place.addr))
        path = sim.router.route("memory", node.id, memory)
        data = Transaction(
            path, place.nbytes, msg, rate_gbs=sim.graph.spec.system.pcie_bw_gbs
        )
        if isinstance(msg, HostWriteCmd):
            data.dst_addr = place.addr
            yield from sim.transfer(data)
        else:
            data.path, data.src_addr = path[::-1], place.addr
            yield sim.read(Transaction(path, REQUEST_BYTES, msg), data)

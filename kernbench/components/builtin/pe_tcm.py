"""TCM of a PE: scratch memory with a read and a write channel.

FETCH and STORE share the channels. The DMA has a port of its own, whose bandwidth is
that of its link.
"""

from kernbench.common.messages import MsgBase
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.components.network import Wire
from kernbench.topology.graph import Node


class PeTcm(MemoryEndpoint):
    """``read_channel`` and ``write_channel`` are wires without length."""

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        tcm = sim.graph.spec.pe.tcm
        self.read_channel = Wire(tcm.read_bw_gbs, 0.0)
        self.write_channel = Wire(tcm.write_bw_gbs, 0.0)

    def burst(self, now: float, addr: int, nbytes: int, owner: MsgBase) -> Service:
        """No latency beyond the link's: a burst is there when its bytes are."""
        return now, 0.0, 0.0

"""The SRAM of a cube: one port, one access latency."""

from kernbench.common.messages import MsgBase
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.components.network import Wire
from kernbench.topology.graph import Node


class Sram(MemoryEndpoint):
    """One port of ``to_router_bw_gbs``; a burst has it to itself."""

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._sram = sim.graph.spec.cube.sram
        self._port = Wire(self._sram.to_router_bw_gbs, 0.0)

    def burst(self, now: float, addr: int, nbytes: int, owner: MsgBase) -> Service:
        """The port is taken for the bytes of the burst."""
        start = self._port.enter(now, nbytes)
        service_ns = nbytes / self._sram.to_router_bw_gbs
        return start, self._sram.access_ns, service_ns

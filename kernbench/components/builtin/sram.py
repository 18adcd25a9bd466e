"""The SRAM of a cube: one port, one access latency."""

from kernbench.common.exact_time import bytes_ns, exact_ns
from kernbench.common.messages import MsgBase
from kernbench.common.rows import Rows
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.components.network import Wire
from kernbench.topology.graph import Node


class Sram(MemoryEndpoint):
    """One port of ``to_router_bw_gbs``; a burst has it to itself."""

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        sram = sim.graph.spec.cube.sram
        self._access_ns = exact_ns(sram.access_ns)
        self._port = Wire(sram.to_router_bw_gbs, 0.0)

    def burst(self, now: float, rows: Rows, owner: MsgBase) -> Service:
        """The port is taken for the bytes of the burst."""
        port = self._port
        service_ns = bytes_ns(rows.nbytes, port.bytes_per_ns)
        start = port.take(now, service_ns)
        if start > now:
            owner.wait(self.node.id, "sram_port", now, start, port.holder)
        port.holder = owner
        return start, self._access_ns, service_ns

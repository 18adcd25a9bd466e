"""TCM of a PE: scratch memory with a read and a write channel.

FETCH and STORE of tiles, dots and ops of MATH share the channels. The DMA has a port of
its own, whose bandwidth is that of its link.
"""

from collections.abc import Iterable

from kernbench.common.exact_time import bytes_ns
from kernbench.common.messages import MsgBase, Region
from kernbench.common.rows import Rows
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

    def stream(
        self, now: float, read_bytes: int, written_bytes: int, work_ns: float
    ) -> float:
        """When an op ends that works while its operands and its result stream, in ns.

        It waits for the read channel and takes its bytes from there as fast as the
        channel gives them, or as slowly as it works on them in ``work_ns``. So with the
        write channel.
        """
        begin = now
        end = now
        if read_bytes:
            read_ns = bytes_ns(read_bytes, self.read_channel.bytes_per_ns)
            begin = self.read_channel.take(now, read_ns)
            end = begin + read_ns
        if written_bytes:
            written_ns = bytes_ns(written_bytes, self.write_channel.bytes_per_ns)
            written_from = self.write_channel.take(now, written_ns)
            end = max(end, written_from + written_ns)
        return max(end, begin + work_ns)

    def burst(self, now: float, rows: Rows, owner: MsgBase) -> Service:
        """No latency beyond the link's: a burst is there when its bytes are."""
        return now, 0.0, 0.0


def tcm_bytes(regions: Iterable[Region]) -> int:
    """How many bytes of some regions lie in a TCM."""
    return sum(region.nbytes for region in regions if region.space == "tcm")

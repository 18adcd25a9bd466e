"""HBM controller of one PE's slice: pseudo-channels that address bits pick, each with its own
``avail`` time.
"""

from __future__ import annotations

from kernbench.common.messages import MsgBase
from kernbench.components.base import MemoryEndpoint, Sim
from kernbench.topology.graph import Node


class HbmCtrl(MemoryEndpoint):
    """``channels`` pseudo-channels of ``channel_bw_gbs``, interleaved by ``interleave_bytes``."""

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self.hbm = sim.graph.spec.cube.hbm
        self._avail = [0.0] * self.hbm.channels
        self._holder: list[MsgBase | None] = [None] * self.hbm.channels

    def burst(
        self, now: float, addr: int, nbytes: int, owner: MsgBase
    ) -> tuple[float, float, float]:
        """A burst takes each channel that it covers for its bytes there; it is whole with the
        last.
        """
        hbm = self.hbm
        start = end = now
        blocker: MsgBase | None = None
        for channel, share in self._shares(addr, nbytes):
            begin = max(now, self._avail[channel])
            if begin > start:
                start, blocker = begin, self._holder[channel]
            self._avail[channel] = begin + share / hbm.channel_bw_gbs
            self._holder[channel] = owner
            end = max(end, self._avail[channel])
        owner.wait(self.node.id, "hbm_channel", now, start, blocker)
        return start, hbm.access_ns, end - start

    def _shares(self, addr: int, nbytes: int) -> list[tuple[int, int]]:
        """(channel, bytes) of a burst, one row a channel it covers."""
        step, count = self.hbm.interleave_bytes, self.hbm.channels
        first, last = addr // step, (addr + nbytes - 1) // step
        shares = [0] * count
        chunks = last - first + 1
        whole, extra = divmod(chunks, count)
        for k in range(min(chunks, count)):
            shares[(first + k) % count] = (whole + (k < extra)) * step
        shares[first % count] -= addr - first * step
        shares[last % count] -= (last + 1) * step - addr - nbytes
        return [(channel, share) for channel, share in enumerate(shares) if share]

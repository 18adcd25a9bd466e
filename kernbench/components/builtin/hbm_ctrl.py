"""HBM controller of one PE's slice: pseudo-channels with an ``avail`` time each."""

from functools import lru_cache

from kernbench.common.messages import MsgBase
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.topology.graph import Node


class HbmCtrl(MemoryEndpoint):
    """Address bits pick the channel: ``interleave_bytes`` in a row lie on one."""

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self.hbm = sim.graph.spec.cube.hbm
        self.parallel_bytes = self.hbm.interleave_bytes * self.hbm.channels
        self._avail = [0.0] * self.hbm.channels
        self._holder: list[MsgBase | None] = [None] * self.hbm.channels

    def burst(self, now: float, addr: int, nbytes: int, owner: MsgBase) -> Service:
        """It takes each channel that it covers for its bytes there; whole with the last."""
        hbm, avail, holders = self.hbm, self._avail, self._holder
        if nbytes % self.parallel_bytes == 0 and (
            (top := max(avail)) <= now or top == min(avail)
        ):
            # all channels alike, before and after, as for most bursts: no loop over them
            start = top if top > now else now
            if top > now:
                owner.wait(self.node.id, "hbm_channel", now, top, holders[0])
            end = start + nbytes // hbm.channels / hbm.channel_bw_gbs
            self._avail, self._holder = [end] * hbm.channels, [owner] * hbm.channels
            return start, hbm.access_ns, end - start
        start = end = now
        blocker: MsgBase | None = None
        first = addr % self.parallel_bytes
        for channel, share in channel_shares(
            first, nbytes, hbm.interleave_bytes, hbm.channels
        ):
            begin = avail[channel]
            if begin < now:
                begin = now
            elif begin > start:
                start, blocker = begin, holders[channel]
            avail[channel] = free_at = begin + share / hbm.channel_bw_gbs
            holders[channel] = owner
            if free_at > end:
                end = free_at
        if start > now:
            owner.wait(self.node.id, "hbm_channel", now, start, blocker)
        return start, hbm.access_ns, end - start


@lru_cache(maxsize=4096)
def channel_shares(
    first_byte: int, nbytes: int, step: int, count: int
) -> list[tuple[int, int]]:
    """(channel, bytes) of a burst, one row a channel that it covers."""
    first, last = first_byte // step, (first_byte + nbytes - 1) // step
    shares = [0] * count
    chunks = last - first + 1
    whole, extra = divmod(chunks, count)
    for k in range(min(chunks, count)):
        shares[(first + k) % count] = (whole + (k < extra)) * step
    shares[first % count] -= first_byte - first * step
    shares[last % count] -= (last + 1) * step - first_byte - nbytes
    return [(channel, share) for channel, share in enumerate(shares) if share]

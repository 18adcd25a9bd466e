"""HBM controller of one PE's slice: pseudo-channels, each free from some time on."""

from functools import lru_cache

from kernbench.common.messages import MsgBase
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.topology.graph import Node


class HbmCtrl(MemoryEndpoint):
    """Address bits pick the channel: ``interleave_bytes`` in a row lie on one.

    ``avail`` is the time, in ns, from which each channel is free.
    """

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self.hbm = sim.graph.spec.cube.hbm
        self.parallel_bytes = self.hbm.interleave_bytes * self.hbm.channels
        self.avail = [0.0] * self.hbm.channels
        self._holders: list[MsgBase | None] = [None] * self.hbm.channels

    def burst(self, now: float, addr: int, nbytes: int, owner: MsgBase) -> Service:
        """Take each channel that it covers; it is whole when the last of them is."""
        if nbytes % self.parallel_bytes == 0:
            # All channels alike, as for most bursts: no loop over them, where they are
            # also alike before.
            latest = max(self.avail)
            if latest <= now or latest == min(self.avail):
                return self._even_burst(now, latest, nbytes, owner)
        hbm = self.hbm
        avail = self.avail
        holders = self._holders
        start = now
        end = now
        blocker: MsgBase | None = None
        shares = channel_shares(
            addr % self.parallel_bytes, nbytes, hbm.interleave_bytes, hbm.channels
        )
        for channel, share in shares:
            begin = avail[channel]
            if begin < now:
                begin = now
            elif begin > start:
                start = begin
                blocker = holders[channel]
            free_at = begin + share / hbm.channel_bw_gbs
            avail[channel] = free_at
            holders[channel] = owner
            if free_at > end:
                end = free_at
        if start > now:
            owner.wait(self.node.id, "hbm_channel", now, start, blocker)
        return start, hbm.access_ns, end - start

    def _even_burst(
        self, now: float, latest: float, nbytes: int, owner: MsgBase
    ) -> Service:
        """A burst that takes all channels from one time to another."""
        hbm = self.hbm
        start = now
        if latest > now:
            start = latest
            owner.wait(self.node.id, "hbm_channel", now, latest, self._holders[0])
        end = start + nbytes // hbm.channels / hbm.channel_bw_gbs
        self.avail = [end] * hbm.channels
        self._holders = [owner] * hbm.channels
        return start, hbm.access_ns, end - start


@lru_cache(maxsize=4096)
def channel_shares(
    first_byte: int, nbytes: int, step: int, count: int
) -> list[tuple[int, int]]:
    """The channels that a burst covers, each with how many of its bytes it has.

    The burst begins ``first_byte`` bytes into a period of ``count`` channels, of which
    each has ``step`` bytes in a row.
    """
    first = first_byte // step
    last = (first_byte + nbytes - 1) // step
    chunks = last - first + 1
    whole, extra = divmod(chunks, count)
    shares = [0] * count
    for k in range(min(chunks, count)):
        rounds = whole + 1 if k < extra else whole
        shares[(first + k) % count] = rounds * step
    # Of the first and the last chunk the burst may have a part only.
    shares[first % count] -= first_byte - first * step
    shares[last % count] -= (last + 1) * step - first_byte - nbytes
    return [(channel, share) for channel, share in enumerate(shares) if share]

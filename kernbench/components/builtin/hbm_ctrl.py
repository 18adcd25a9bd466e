"""HBM controller of one PE's slice: its channels, and who waits for them.

A burst asks each of its channels for its share. A channel that is busy lets it wait,
and when it is free it serves the oldest command first, and of a composite the oldest
tile. ``dram.py`` has the model of a channel in time.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import inf
from typing import TypeAlias

from kernbench.common.messages import MsgBase, TileToken
from kernbench.common.rows import Rows
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.components.network import Granted
from kernbench.topology.dram import (
    ChannelModel,
    Pattern,
    Share,
    layout_of,
    new_channel,
)
from kernbench.topology.graph import Node

Age: TypeAlias = tuple[int, tuple[int, ...], int]
"""The number of a command, the tile of it, and the tile's stage: less is older."""


class _Burst:
    """A burst of which some channels have not begun with their shares yet.

    ``missing`` is how many lanes have not. Of those that have, ``begin`` is when the
    last one begins, ``blocker`` who had that one before, ``end`` when the last one
    ends, and ``busy`` how long the slowest is at work, all in ns. ``turn`` is whose
    turn it was when the burst came, and is again when it is granted.
    """

    __slots__ = (
        "base",
        "begin",
        "blocker",
        "busy",
        "end",
        "granted",
        "is_write",
        "missing",
        "owner",
        "since",
        "turn",
    )

    def __init__(
        self,
        since: float,
        base: int,
        is_write: bool,
        owner: MsgBase,
        granted: Granted,
        turn: int,
    ) -> None:
        self.since = since
        self.base = base
        self.is_write = is_write
        self.owner = owner
        self.granted = granted
        self.turn = turn
        self.missing = 0
        self.begin = -1.0
        self.end = 0.0
        self.busy = 0.0
        self.blocker: MsgBase | None = None


_Waiting: TypeAlias = tuple[Age, int, _Burst, Share]
"""A burst's share of a channel, in the order in which they are granted.

The number of the burst's arrival tells apart those of one age; nothing behind it is
compared.
"""


class _Lane:
    """Channels that were all asked for the same, so that one state stands for all.

    ``holder`` is who had them last, ``waiting`` who waits for them, ``waiting_writes``
    how many of those are writes, and ``wakes_at`` when they are looked at next, in ns.
    """

    __slots__ = (
        "channels",
        "holder",
        "model",
        "waiting",
        "waiting_writes",
        "wakes_at",
    )

    def __init__(self, channels: list[int], model: ChannelModel) -> None:
        self.channels = channels
        self.model = model
        self.holder: MsgBase | None = None
        self.waiting: list[_Waiting] = []
        self.waiting_writes = 0
        self.wakes_at = inf

    def part(self, channels: list[int]) -> _Lane:
        """A lane for some of the channels, which are none of this lane's any more.

        Who waits for them waits for both lanes.
        """
        self.channels = [at for at in self.channels if at not in channels]
        other = _Lane(channels, self.model.copy())
        other.holder = self.holder
        other.waiting = self.waiting.copy()
        other.waiting_writes = self.waiting_writes
        for _, _, burst, _ in other.waiting:
            burst.missing += 1
        return other


class HbmCtrl(MemoryEndpoint):
    """Channels of DRAM, and the bursts that wait for them.

    All channels are one lane until a burst asks some of them for something else; then
    they part.
    """

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        hbm = sim.graph.spec.cube.hbm
        self.hbm = hbm
        self.parallel_bytes = hbm.interleave_bytes * hbm.channels
        self._env = sim.env
        self._turn = sim.env.node_turn(node.place)
        self._layout = layout_of(hbm)
        all_channels = _Lane([*range(hbm.channels)], new_channel(hbm))
        self._lanes = [all_channels]
        self._lane_of = [all_channels] * hbm.channels
        self._arrivals = 0
        self._has_own_burst = type(self).burst is not HbmCtrl.burst

    def ask(
        self, now: float, rows: Rows, is_write: bool, owner: MsgBase, granted: Granted
    ) -> None:
        """Serve a burst that comes now, by each channel as soon as that is free.

        It is granted when the last one begins. A subclass with a ``burst`` of its own
        is asked by that.
        """
        if self._has_own_burst:
            super().ask(now, rows, is_write, owner, granted)
            return
        pattern, base = self._layout.find(rows)
        burst = _Burst(now, base, is_write, owner, granted, self._env.turn)
        asked = self._asked(pattern)
        burst.missing = len(asked)
        self._arrivals += 1
        age = _age(owner)
        for lane, share in asked:
            free_at = lane.model.free_at(is_write)
            if free_at <= now and not lane.waiting:
                self._begin(now, lane, burst, share)
                continue
            insort(lane.waiting, (age, self._arrivals, burst, share))
            if is_write:
                lane.waiting_writes += 1
            if free_at <= now:
                self._grant(lane)
            elif free_at < lane.wakes_at:
                self._wake_at(lane, free_at)

    def burst(self, now: float, rows: Rows, owner: MsgBase) -> Service:
        """Reserve the channels for a read at once, behind all that was granted."""
        pattern, base = self._layout.find(rows)
        services: list[Service] = []
        burst = _Burst(now, base, False, owner, services.append, self._env.turn)
        asked = self._asked(pattern)
        burst.missing = len(asked)
        for lane, share in asked:
            self._begin(now, lane, burst, share)
        return services[0]

    def _asked(self, pattern: Pattern) -> Sequence[tuple[_Lane, Share]]:
        """The lanes that a burst is for, each with what it asks of every channel there.

        Lanes of which it asks different things part.
        """
        lanes = self._lanes
        if pattern.even:
            share = pattern.shares[0][1]
            return [(lane, share) for lane in lanes]
        lane_of = self._lane_of
        if len(lanes) == len(lane_of):
            return [(lane_of[at], share) for at, share in pattern.shares]
        alike: dict[tuple[_Lane, int], tuple[Share, list[int]]] = {}
        for at, share in pattern.shares:
            _, channels = alike.setdefault((lane_of[at], id(share)), (share, []))
            channels.append(at)
        asked = []
        for (lane, _), (share, channels) in alike.items():
            if len(channels) < len(lane.channels):
                asked.append((self._part(lane, channels), share))
            else:
                asked.append((lane, share))
        return asked

    def _part(self, lane: _Lane, channels: list[int]) -> _Lane:
        """Let channels be a lane of their own."""
        other = lane.part(channels)
        self._lanes.append(other)
        for at in channels:
            self._lane_of[at] = other
        self._wake_at(other, lane.wakes_at)
        return other

    def _wake_at(self, lane: _Lane, when: float) -> None:
        """Look at a lane again at a time, if that is not to be done before."""
        if when >= lane.wakes_at:
            return
        lane.wakes_at = when

        def wake(_event: object) -> None:
            """The channels that were waited for are free.

            They are not if a wake before this one found that they are only later:
            channels are never free earlier than they once were to be.
            """
            if lane.wakes_at == when:
                lane.wakes_at = inf
                self._grant(lane)

        self._env.call_at(when, self._turn, wake)

    def _grant(self, lane: _Lane) -> None:
        """Serve those who wait and can be served, the oldest first."""
        env = self._env
        now: float = env._now  # the property costs a Python call
        turn = env.turn
        waiting = lane.waiting
        model = lane.model
        at = 0
        # When the channels can begin with one more read, and with one more write.
        free_at = (model.free_at(False), model.free_at(True))
        while at < len(waiting) and min(free_at) <= now:
            _, _, burst, share = waiting[at]
            if free_at[burst.is_write] > now:
                at += 1
                continue
            del waiting[at]
            if burst.is_write:
                lane.waiting_writes -= 1
            env.turn = burst.turn
            self._begin(now, lane, burst, share)
            if waiting:
                free_at = (model.free_at(False), model.free_at(True))
        env.turn = turn
        next_free = inf
        if len(waiting) > lane.waiting_writes:
            next_free = free_at[False]
        if lane.waiting_writes:
            next_free = min(next_free, free_at[True])
        self._wake_at(lane, next_free)

    def _begin(self, now: float, lane: _Lane, burst: _Burst, share: Share) -> None:
        """Have the channels of a lane serve their shares of a burst.

        With the last of its lanes all of it has begun, and it is granted.
        """
        begin, end, busy = lane.model.serve(now, burst.is_write, share, burst.base)
        if begin > burst.begin:
            burst.begin = begin
            burst.blocker = lane.holder
        if end > burst.end:
            burst.end = end
        if busy > burst.busy:
            burst.busy = busy
        owner = burst.owner
        lane.holder = owner
        burst.missing -= 1
        if burst.missing:
            return
        begin = burst.begin
        if begin > burst.since:
            owner.wait(self.node.id, "hbm_channel", burst.since, begin, burst.blocker)
        # A channel may have been at work for longer, and long since.
        lasts = burst.end - begin
        busy = min(burst.busy, lasts)
        burst.granted((begin, lasts - busy, busy))


def _age(owner: MsgBase) -> Age:
    """How old the command of a message is, and of a tile's stage the tile."""
    if isinstance(owner, TileToken):
        return owner.cmd, owner.index, owner.stage_idx
    return owner.cmd, (), 0

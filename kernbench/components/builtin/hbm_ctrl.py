"""HBM controller of one PE's slice: its channels, and who waits for them.

A burst whose channels are all busy waits; when one of them is free the oldest command
is served first, and of a composite the oldest tile. ``dram.py`` has the model of a
channel in time.
"""

from bisect import insort
from math import inf
from typing import NamedTuple

from kernbench.common.messages import MsgBase, TileToken
from kernbench.common.rows import Rows
from kernbench.components.base import MemoryEndpoint, Service, Sim
from kernbench.components.builtin.dram import (
    ChannelModel,
    Pattern,
    Served,
    layout_of,
    new_channel,
)
from kernbench.components.network import Granted
from kernbench.topology.graph import Node

Age = tuple[int, tuple[int, ...], int]
"""The number of a command, the tile of it, and the tile's stage: less is older."""


class _Waiting(NamedTuple):
    """A burst that waits for a channel, in the order in which they are granted.

    ``arrival`` tells apart those of one age; nothing behind it is compared. ``turn`` is
    whose turn it was then, and is again when it is granted.
    """

    age: Age
    arrival: int
    since: float
    pattern: Pattern
    base: int
    is_write: bool
    owner: MsgBase
    granted: Granted
    turn: int


class HbmCtrl(MemoryEndpoint):
    """Channels of DRAM, and the bursts that wait for one.

    Channels that have been asked for the same share one state until one of them is
    asked for something else.
    """

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        hbm = sim.graph.spec.cube.hbm
        self.hbm = hbm
        self.parallel_bytes = hbm.interleave_bytes * hbm.channels
        self._layout = layout_of(hbm)
        self._channels: list[ChannelModel] = [new_channel(hbm)] * hbm.channels
        self._all_alike = True
        # Who had the channels last; where they are all alike it is one for all.
        self._holder: MsgBase | None = None
        self._holders: list[MsgBase | None] = []
        self._waiting: list[_Waiting] = []
        self._arrivals = 0
        self._wakes_at = inf
        self._env = sim.env
        self._turn = sim.env.node_turn(node.place)
        self._has_own_burst = type(self).burst is not HbmCtrl.burst

    def ask(
        self, now: float, rows: Rows, is_write: bool, owner: MsgBase, granted: Granted
    ) -> None:
        """Serve a burst that comes now, or once a channel of it is free.

        A subclass with a ``burst`` of its own is asked by that.
        """
        if self._has_own_burst:
            super().ask(now, rows, is_write, owner, granted)
            return
        pattern, base = self._layout.find(rows)
        waiting = self._waiting
        is_alone = not waiting
        if is_alone:
            # Of channels that are all alike one stands for all.
            if self._all_alike:
                free_at = self._channels[0].free_at(is_write)
            else:
                free_at = self._first_free(pattern, is_write)
            if free_at <= now:
                granted(self._serve(now, now, pattern, base, is_write, owner))
                return
        self._arrivals += 1
        # In the order of the fields: by name it costs twice as much.
        one = _Waiting(
            _age(owner),
            self._arrivals,
            now,
            pattern,
            base,
            is_write,
            owner,
            granted,
            self._env.turn,
        )
        insort(waiting, one)
        if is_alone:
            self._wake_at(free_at)
        elif waiting[0] is one or not self._all_alike or self._wakes_at <= now:
            self._grant(now)

    def burst(self, now: float, rows: Rows, owner: MsgBase) -> Service:
        """Reserve the channels for a read at once, behind all that was granted."""
        pattern, base = self._layout.find(rows)
        return self._serve(now, now, pattern, base, False, owner)

    def _first_free(self, pattern: Pattern, is_write: bool) -> float:
        """When the first of a burst's channels is free."""
        channels = self._channels
        return min(channels[at].free_at(is_write) for at, _ in pattern.shares)

    def _grant(self, now: float) -> None:
        """Serve those who wait and have a free channel, the oldest first."""
        waiting = self._waiting
        env = self._env
        turn = env.turn
        next_free = inf
        at = 0
        while at < len(waiting):
            one = waiting[at]
            if self._all_alike:
                free_at = self._channels[0].free_at(one.is_write)
            else:
                free_at = self._first_free(one.pattern, one.is_write)
            if free_at <= now:
                del waiting[at]
                _, _, since, pattern, base, is_write, owner, granted, its_turn = one
                env.turn = its_turn
                granted(self._serve(since, now, pattern, base, is_write, owner))
                continue
            if free_at < next_free:
                next_free = free_at
            if self._all_alike:
                break  # no other has a free channel either
            at += 1
        self._wake_at(next_free)
        env.turn = turn

    def _wake_at(self, when: float) -> None:
        """Look again at a time, if that is not to be done before."""
        if when < self._wakes_at:
            self._wakes_at = when
            self._env.call_at(when, self._turn, self._wake)

    def _wake(self, _event: object) -> None:
        """A channel that was waited for is free."""
        self._wakes_at = inf
        if self._waiting:
            self._grant(self._env._now)

    def _serve(
        self,
        since: float,
        now: float,
        pattern: Pattern,
        base: int,
        is_write: bool,
        owner: MsgBase,
    ) -> Service:
        """Take the channels for a burst that came at ``since`` and is granted now."""
        channels = self._channels
        if self._all_alike and pattern.even:
            begin, end, busy = channels[0].serve(
                now, is_write, pattern.shares[0][1], base
            )
            blocker = self._holder
            self._holder = owner
        else:
            begin, end, busy, blocker = self._serve_each(
                now, pattern, base, is_write, owner
            )
        if begin > since:
            owner.wait(self.node.id, "hbm_channel", since, begin, blocker)
        access = end - begin - busy
        return begin, access if access > 0.0 else 0.0, busy

    def _serve_each(
        self, now: float, pattern: Pattern, base: int, is_write: bool, owner: MsgBase
    ) -> tuple[float, float, float, MsgBase | None]:
        """As channels answer together, and who had the one that begins last before.

        A state is advanced once for all channels that share it and are asked for the
        same.
        """
        channels = self._channels
        if self._all_alike:
            self._holders = [self._holder] * len(channels)
        holders = self._holders
        done: dict[tuple[int, int], tuple[ChannelModel, Served]] = {}
        kept = []  # as long as they are, no other object has their id
        begin = now
        end = now
        busy = 0.0
        blocker: MsgBase | None = holders[pattern.shares[0][0]]
        for at, share in pattern.shares:
            before = channels[at]
            key = (id(before), id(share))
            if key not in done:
                kept.append(before)
                after = before.copy()
                done[key] = (after, after.serve(now, is_write, share, base))
            after, served = done[key]
            channels[at] = after
            its_begin, its_end, its_busy = served
            if its_begin > begin:
                begin = its_begin
                blocker = holders[at]
            end = max(end, its_end)
            busy = max(busy, its_busy)
            holders[at] = owner
        self._all_alike = all(each is channels[0] for each in channels)
        if self._all_alike:
            self._holder = owner
        return begin, end, busy, blocker


def _age(owner: MsgBase) -> Age:
    """How old the command of a message is, and of a tile's stage the tile."""
    if isinstance(owner, TileToken):
        return owner.cmd, owner.index, owner.stage_idx
    return owner.cmd, (), 0

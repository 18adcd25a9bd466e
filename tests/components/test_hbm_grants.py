"""Who is served first by an HBM controller: the oldest command, and its oldest tile.

Every channel is a queue of its own.
"""

from bisect import insort
from collections import defaultdict, deque
from itertools import pairwise
from math import inf
from random import Random

import pytest

from kernbench.common.messages import MsgBase, TileToken
from kernbench.common.rows import Rows
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology
from kernbench.topology.dram import Layout, new_channel
from kernbench.topology.spec import HbmSpec

ALL_CHANNELS = 4096
ONE_CHUNK = 256


class Owner(MsgBase):
    pass


def tile(cmd, index, stage=0):
    return TileToken(
        cmd=cmd, composite=Owner(), index=index, stages=(), stage_idx=stage
    )


@pytest.fixture
def hbm(one_cube):
    return GraphEngine(one_cube).sim.component("sip0.cube0.hbm_ctrl.pe0")


def served(hbm, *asked):
    """Names in the order in which they are granted, each with when; all come at 0."""
    granted = []
    env = hbm.sim.env
    for name, owner, addr, nbytes, is_write in asked:

        def note(service, name=name):
            granted.append((name, env.now))

        hbm.ask(env.now, Rows.one(addr, nbytes), is_write, owner, note)
    env.run()
    return granted


def test_the_oldest_command_is_granted_first_whenever_it_came(hbm):
    order = served(
        hbm,
        ("now", Owner(cmd=9), 0, ALL_CHANNELS, False),
        ("young", Owner(cmd=5), 4096, ALL_CHANNELS, False),
        ("old", Owner(cmd=1), 8192, ALL_CHANNELS, False),
        ("middle", Owner(cmd=3), 12288, ALL_CHANNELS, False),
    )
    assert [name for name, _ in order] == ["now", "old", "middle", "young"]
    times = [t for _, t in order]
    assert times[0] == 0
    assert all(a < b for a, b in pairwise(times))


def test_of_one_composite_the_oldest_tile_is_first_and_its_reads_before_its_write(hbm):
    order = served(
        hbm,
        ("now", Owner(cmd=0), 0, ALL_CHANNELS, False),
        ("write of tile 1", tile(2, (0, 0, 1), stage=3), 4096, ALL_CHANNELS, True),
        ("read of tile 2", tile(2, (0, 0, 2)), 8192, ALL_CHANNELS, False),
        ("read of tile 1", tile(2, (0, 0, 1)), 12288, ALL_CHANNELS, False),
        ("write of tile 0", tile(2, (0, 0, 0), stage=3), 16384, ALL_CHANNELS, True),
    )
    assert [name for name, _ in order] == [
        *("now", "write of tile 0", "read of tile 1"),
        *("write of tile 1", "read of tile 2"),
    ]


def test_where_a_channel_is_free_nobody_waits_and_no_event_is_made(hbm):
    env = hbm.sim.env
    before = next(env._eid)
    order = []
    for at in range(8):
        rows = Rows.one(at * ONE_CHUNK, ONE_CHUNK)
        hbm.ask(0.0, rows, False, Owner(), lambda service: order.append(service))
    assert [start for start, _, _ in order] == [0.0] * 8
    assert next(env._eid) == before + 1


def test_a_burst_passes_an_older_one_whose_channel_is_busy(hbm):
    order = served(
        hbm,
        ("first", Owner(cmd=0), 0, ONE_CHUNK, False),
        ("old, same channel", Owner(cmd=1), 0, ONE_CHUNK, False),
        ("young, other channel", Owner(cmd=2), ONE_CHUNK, ONE_CHUNK, False),
    )
    assert [name for name, _ in order] == [
        *("first", "young, other channel", "old, same channel")
    ]


def test_a_channel_that_is_busy_is_not_taken_in_advance_of_an_older_command(hbm):
    """The young one needs both channels, and one of them is free."""
    order = served(
        hbm,
        ("now", Owner(cmd=0), 0, ONE_CHUNK, False),
        ("young, both channels", Owner(cmd=9), 0, 2 * ONE_CHUNK, False),
        ("old, the busy channel", Owner(cmd=1), 0, ONE_CHUNK, False),
    )
    assert [name for name, _ in order] == [
        *("now", "old, the busy channel", "young, both channels")
    ]


def test_a_channel_that_is_free_begins_whatever_the_others_do(hbm):
    """What comes later for that channel waits for it."""
    order = served(
        hbm,
        ("now", Owner(cmd=0), 0, ONE_CHUNK, False),
        ("both channels", Owner(cmd=1), 0, 2 * ONE_CHUNK, False),
        ("the free channel", Owner(cmd=2), ONE_CHUNK, ONE_CHUNK, False),
    )
    times = dict(order)
    chunk_ns = 4 * 64 / 32 / (1 - 260 / 3900)
    for name in ("both channels", "the free channel"):
        assert times[name] == pytest.approx(chunk_ns, abs=0.01)


def test_a_burst_is_whole_when_its_last_channel_is():
    """One channel has 32 accesses of it at once, another has 8 later."""
    one_cube = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
    machine = load_topology(overrides={**one_cube, "channel_hash": "none"})
    hbm = GraphEngine(machine).sim.component("sip0.cube0.hbm_ctrl.pe0")
    services = []
    stripe = 8 * ONE_CHUNK
    older = Rows(ONE_CHUNK, 12, ONE_CHUNK, stripe)
    hbm.ask(0.0, older, False, Owner(), lambda service: None)
    rows = Rows(0, 8, ONE_CHUNK + 64, stripe)
    hbm.ask(0.0, rows, False, Owner(), services.append)
    hbm.sim.env.run()
    ((begin, access, busy),) = services
    access_ns = 64 / 32 / (1 - 260 / 3900)
    assert begin == pytest.approx(48 * access_ns, abs=0.1)
    # From the queue: 3 ns in the controller, CL, and the bytes of the last channel.
    assert access >= 0
    assert access + busy == pytest.approx(3 + 14 + 8 * access_ns, abs=0.1)


def random_asks(seed):
    """Bursts with when they come: of all channels alike, then of two, then of any.

    The first ones are of many rows of one bank, so that reads wait for room.
    """
    chance = Random(seed)
    asks = []
    now = 0.0
    for cmd in range(120):
        now += chance.randrange(1, (4 if cmd < 20 else 40) * 1024) / 1024
        row = chance.randrange(64) * (64 if cmd < 20 else 1)
        rows = Rows.one(row * ALL_CHANNELS, ALL_CHANNELS)
        if cmd >= 8 and chance.random() < 0.6:
            rows = Rows.one(chance.randrange(512) * ONE_CHUNK, 2 * ONE_CHUNK)
        if cmd >= 60 and chance.random() < 0.6:
            addr = chance.randrange(4096) * 64
            rows = Rows(addr, chance.randrange(2, 32), 128, chance.choice((600, 1400)))
        asks.append((now, rows, chance.random() < 0.3, chance.randrange(cmd + 1)))
    return asks


def one_channel_by_one(asks):
    """When the last channel of each burst begins, and when the last one ends."""
    layout = Layout(HbmSpec())
    channels = [new_channel(HbmSpec()) for _ in range(8)]
    queues = [[] for _ in range(8)]
    coming = deque(enumerate(asks))
    begun = defaultdict(list)
    now = 0.0
    while coming or any(queues):
        free_at = {}
        for at, queue in enumerate(queues):
            for each in queue:
                free_at[at, each] = max(now, channels[at].free_at(each[2]))
        if coming and coming[0][1][0] < min(free_at.values(), default=inf):
            number, (now, rows, is_write, cmd) = coming.popleft()
            pattern, base = layout.find(rows)
            for at, share in pattern.shares:
                insort(queues[at], (cmd, number, is_write, base, share))
            continue
        now = min(free_at.values())
        at, oldest = min(key for key, free in free_at.items() if free == now)
        queues[at].remove(oldest)
        _, number, is_write, base, share = oldest
        begin, end, _ = channels[at].serve(now, is_write, share, base)
        begun[number].append((begin, end))
    return [
        tuple(map(max, zip(*begun[number], strict=True))) for number in range(len(asks))
    ]


@pytest.mark.parametrize("seed", range(210, 240))
@pytest.mark.slow
def test_lanes_of_channels_that_are_alike_are_those_channels_one_by_one(hbm, seed):
    asks = random_asks(seed)
    env = hbm.sim.env
    services = {}

    def ask(number, when, rows, is_write, cmd):
        def note(service):
            services[number] = service

        yield env.timeout(when)
        hbm.ask(env.now, rows, is_write, Owner(cmd=cmd), note)

    for number, asked in enumerate(asks):
        env.process(ask(number, *asked))
    env.run()
    seen = [
        (begin, begin + access + busy)
        for begin, access, busy in (services[at] for at in range(len(asks)))
    ]
    assert seen == one_channel_by_one(asks)


def test_a_wait_lasts_from_the_arrival_and_names_who_had_the_channel(hbm):
    first = Owner(cmd=0)
    second = Owner(cmd=1)
    order = served(
        hbm,
        ("first", first, 0, ALL_CHANNELS, False),
        ("second", second, 4096, ALL_CHANNELS, False),
    )
    ((node, reason, t0, t1, holder),) = second.waits
    assert (node, reason, t0) == (hbm.node.id, "hbm_channel", 0)
    assert t1 == order[1][1] > 0
    assert holder is first
    assert not first.waits

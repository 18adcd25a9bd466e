"""Who is served first by an HBM controller: the oldest command, and its oldest tile."""

from itertools import pairwise

import pytest

from kernbench.common.messages import MsgBase, TileToken
from kernbench.common.rows import Rows
from kernbench.sim_engine.engine import GraphEngine

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

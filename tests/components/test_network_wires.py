"""Wires, shared links, HBM channels: docs/machine.md, "Time on the wires"."""

from dataclasses import replace
from math import ceil
from types import SimpleNamespace

import pytest
from exact_times import header_ns
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.messages import MsgBase, Transaction
from kernbench.common.rows import Rows
from kernbench.components.network import Wire
from kernbench.errors import RoutingError
from kernbench.sim_engine.engine import GraphEngine


@pytest.fixture(scope="module")
def small(small):
    """Its channels are ideal and not hashed, so that sums can be made by hand."""
    hbm = replace(small.spec.cube.hbm, model="ideal", channel_hash="none")
    spec = replace(small.spec, cube=replace(small.spec.cube, hbm=hbm))
    return replace(small, spec=spec)


def test_a_wire_is_taken_for_the_bytes_of_each_header():
    wire = Wire(bytes_per_ns=4.0, wire_ns=1.0)
    assert [wire.enter(now, n) for now, n in ((10, 8), (11, 4), (30, 4))] == [
        10,
        12,
        30,
    ]
    assert wire.free_at == 31


class Owner(MsgBase):
    pass


def carry(graph, *streams):
    """When each transaction (path, nbytes, burst) has landed, if all begin at 0; and
    waits.
    """
    engine = GraphEngine(graph)
    ends = [0.0] * len(streams)
    owners = [Owner() for _ in streams]

    def go(i, path, nbytes, burst):
        txn = Transaction(path=path, nbytes=nbytes, owner=owners[i], burst_bytes=burst)
        yield from engine.sim.transfer(txn)
        ends[i] = engine.env.now

    for i, stream in enumerate(streams):
        engine.env.process(go(i, *stream))
    engine.env.run()
    return SimpleNamespace(ends=ends, waits=[owner.waits for owner in owners])


ROUTERS = tuple(f"sip0.cube0.r0c{col}" for col in range(4))  # 256 GB/s, 2 ns a hop


def hops(graph, path):
    return header_ns(graph, path, {"router": 2})


def test_serialisation_is_paid_once_however_many_hops(small):
    run = carry(small, (ROUTERS, 4096, 0))
    assert run.ends == [hops(small, ROUTERS) + 4096 / 256]


def test_bursts_of_two_streams_on_one_link_take_turns(small):
    bursts = 5
    each = 1024 / 256
    run = carry(small, (ROUTERS, bursts * 1024, 1024), (ROUTERS, bursts * 1024, 1024))
    whole = hops(small, ROUTERS) + 2 * bursts * each
    assert run.ends == [whole - each, whole]


def test_who_waits_for_a_link_names_it_and_its_holder(small):
    engine = GraphEngine(small)
    first = Owner()
    second = Owner()
    for owner in (first, second):
        txn = Transaction(path=ROUTERS[:2], nbytes=512, owner=owner)
        engine.env.process(engine.sim.transfer(txn))
    engine.env.run()
    assert (first.waits, second.waits) == ([], [(ROUTERS[0], "link", 0, 2, first)])


def test_opposite_directions_of_a_link_are_two_links(small):
    alone = carry(small, (ROUTERS, 4096, 0)).ends
    both = carry(small, (ROUTERS, 4096, 0), (ROUTERS[::-1], 4096, 0)).ends
    assert both == [pytest.approx(alone[0])] * 2


def test_streams_that_merge_on_a_later_link_share_that_one(small):
    long = ROUTERS
    short = ROUTERS[2:]
    run = carry(small, (long, 8192, 1024), (short, 8192, 1024))
    # the shared link is never idle from the start of the short stream on
    assert max(run.ends) == 2 * 8192 / 256 + hops(small, short)


def test_a_path_without_a_link_names_the_two_nodes(small):
    with pytest.raises(RoutingError, match=rf"{ROUTERS[0]} to {ROUTERS[2]}"):
        carry(small, ((ROUTERS[0], ROUTERS[2]), 8, 0))


def test_no_memory_at_the_end_of_a_read_is_refused(small):
    engine = GraphEngine(small)
    txn = Transaction(path=ROUTERS, nbytes=8, owner=Owner(), src=Rows.one(0, 8))
    with pytest.raises(RoutingError, match="is no memory"):
        next(engine.sim.transfer(txn))


@pytest.fixture
def hbm(small):
    engine = GraphEngine(small)
    return engine.sim.component("sip0.cube0.hbm_ctrl.pe0")


def test_bursts_on_one_channel_queue_and_on_others_do_not(hbm):
    begins = [
        hbm.burst(0.0, Rows.one(addr, 256), Owner())[0]
        for addr in (0, 256, 8 * 256, 16 * 256)
    ]
    assert begins == [0, 0, 8, 16]  # 256 B at 32 GB/s: 8 ns


def test_a_burst_is_done_when_its_last_channel_is(hbm):
    hbm.burst(0.0, Rows.one(0, 256), Owner())  # channel 0 until 8
    start, access, service = hbm.burst(
        0.0, Rows.one(0, 4096), Owner()
    )  # 512 B on each of 8 channels
    assert (start, access, start + service) == (8, 30, 8 + 16)


def test_who_waits_for_a_channel_names_its_holder(hbm):
    first = Owner()
    second = Owner()
    for owner in (first, second):
        hbm.burst(0.0, Rows.one(0, 256), owner)
    assert second.waits == [("sip0.cube0.hbm_ctrl.pe0", "hbm_channel", 0, 8, first)]


def test_who_waits_for_the_port_of_an_sram_names_its_holder(small):
    sram = GraphEngine(small).sim.component("sip0.cube0.sram")
    size = int(small.spec.cube.sram.to_router_bw_gbs)
    first = Owner()
    second = Owner()
    late = Owner()
    begins = []
    for now, owner in ((0.0, first), (0.5, second), (2.0, late)):
        begins.append(sram.burst(now, Rows.one(0, size), owner)[0])
    assert begins == [0, 1, 2]
    assert second.waits == [("sip0.cube0.sram", "sram_port", 0.5, 1, first)]
    assert first.waits == late.waits == []


def a_new_one(hbm):
    return type(hbm)(hbm.node, hbm.sim)


@given(addr=st.integers(0, 10_000), nbytes=st.integers(1, 20_000))
def test_a_burst_takes_every_channel_that_its_bytes_lie_on(small_hbm, addr, nbytes):
    shares = [0] * 8
    for byte in range(addr, addr + nbytes):
        shares[byte // 256 % 8] += 1
    hbm = a_new_one(small_hbm)
    start, access, service = hbm.burst(0.0, Rows.one(addr, nbytes), Owner())
    assert (start, access) == (0, 30)
    assert service == pytest.approx(max(shares) / 32, abs=1e-3)
    assert service >= ceil(nbytes / 8) / 32 - 1e-3


@pytest.mark.slow
@given(
    bursts=st.lists(
        st.tuples(
            st.integers(0, 99),
            st.sampled_from([0, 256, 1000]),
            st.sampled_from([100, 4096]),
        )
    )
)
def test_a_burst_begins_with_the_last_of_its_channels_and_ends_with_it(
    small_hbm, bursts
):
    hbm = a_new_one(small_hbm)
    avail = [0.0] * 8
    now = 0.0
    for wait, addr, nbytes in bursts:
        now += wait
        shares = [0] * 8
        for byte in range(addr, addr + nbytes):
            shares[byte // 256 % 8] += 1
        used = [c for c in range(8) if shares[c]]
        begins = [max(now, avail[c]) for c in used]
        for c, begin in zip(used, begins, strict=True):
            avail[c] = begin + shares[c] / 32
        owner = Owner()
        start, access, service = hbm.burst(now, Rows.one(addr, nbytes), owner)
        end = max(avail[c] for c in used) + 30
        assert start == max(begins)
        assert start + access + service == pytest.approx(max(end, start + service))
        assert [(w[2], w[3]) for w in owner.waits] == (
            [(now, start)] if start > now else []
        )


@pytest.fixture(scope="module")
def small_hbm(small):
    return GraphEngine(small).sim.component("sip0.cube0.hbm_ctrl.pe0")

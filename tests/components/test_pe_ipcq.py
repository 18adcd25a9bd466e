"""The queues between PEs: rings, credits over the real path, back-pressure, cost of
each memory.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from ipcq_runs import PES, machine, named, pair, ring, talk

from kernbench.ccl.install import _OPPOSITE_DIR, install_ipcq
from kernbench.common.dtypes import np_dtype
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.builtin.pe_ipcq import DIRECTIONS
from kernbench.errors import KernbenchError, KernelError, UsageError
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine

SLOT = 4096
CROSS_SIP = [(0, 0, 0), (1, 0, 0)]


@pytest.fixture(scope="module")
def graph(layout_cache):
    return machine(layout_cache)


def shift(n, dtype="f32"):
    """All ranks send E first, then take from W."""

    def program(rank, mine, out, tl):
        tl.send("E", tl.load(mine, (n,), dtype), wait=False)
        tl.store(out, tl.recv("W", (n,), dtype))

    return program


def one_way(n, dtype="f32"):
    """Rank 0 sends E; rank 1 takes from W."""

    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.load(mine, (n,), dtype))
        else:
            tl.store(out, tl.recv("W", (n,), dtype))

    return program


def test_a_payload_goes_slot_by_slot_round_the_ring(graph):
    run = talk(graph, one_way(5000), 5000, slots=3)
    copies = sorted(named(run, "ipcq_copy"), key=lambda r: r.t_start)
    assert [r.params["nbytes"] for r in copies] == [SLOT] * 4 + [20000 - 4 * SLOT]
    base = copies[0].params["dst_addr"]
    assert [r.params["dst_addr"] - base for r in copies] == [0, SLOT, 2 * SLOT, 0, SLOT]
    source = copies[0].params["src_addr"]
    assert [r.params["src_addr"] - source for r in copies] == [
        k * SLOT for k in range(5)
    ]
    taken = named(run, "ipcq_recv")
    assert [r.params["src_addr"] for r in taken] == [
        r.params["dst_addr"] for r in copies
    ]
    np.testing.assert_array_equal(run.out[1], run.data[0])


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 4096])
def test_any_size_arrives(graph, n):
    run = talk(graph, shift(n), n, slots=2)
    np.testing.assert_array_equal(run.out[0], run.data[PES.index((0, 1, 0))])
    np.testing.assert_array_equal(run.out[1], run.data[0])


def test_elements_that_a_slot_splits_arrive(graph):
    run = talk(graph, shift(100), 100, slot_bytes=30)
    np.testing.assert_array_equal(run.out[1], run.data[0])


def test_a_copy_is_recorded_at_the_receiver_from_the_read_of_its_source_to_its_arrival(
    graph,
):
    run = talk(graph, one_way(8), 8)
    (copy,) = named(run, "ipcq_copy")
    (load,) = named(run, "dma_read")
    assert copy.component_id == "sip0.cube1.pe0.pe_dma"
    assert copy.params["src_addr"] == load.params["dst_addr"]
    assert (copy.params["src_space"], copy.params["dst_space"]) == ("tcm", "tcm")
    assert PhysAddr.decode(copy.params["dst_addr"]).die_id == 1
    np.testing.assert_array_equal(copy.params["snapshot"], run.data[0])
    (taken,) = named(run, "ipcq_recv")
    assert taken.component_id == "sip0.cube1.pe0.pe_ipcq"
    assert copy.t_start < copy.t_end <= taken.t_start < taken.t_end


def test_data_and_their_arrival_become_visible_in_one_step(graph):
    seen = []

    def watch(engine):
        queue = engine.sim.component(graph.at(0, 1, 0, "pe_ipcq")).queues["W"]
        ring = queue.ring
        there = (
            engine.store.has("tcm", ring.base),
            engine.store.has("tcm", ring.base + SLOT),
        )
        seen.append((queue.peer_head, sum(there)))

    talk(graph, one_way(2048), 2048, watch=watch)
    assert set(seen) == {(0, 0), (1, 1), (2, 2)}


def test_a_credit_of_16_bytes_goes_back_over_the_real_path_when_its_slot_was_copied(
    graph, events
):
    run = talk(graph, one_way(2048), 2048, recorder=events, slots=1)
    credits = [row for _, row in events.of("transfer") if row[2] == 16]
    taken = named(run, "ipcq_recv")
    copies = named(run, "ipcq_copy")
    assert len(credits) == len(taken) == 2
    there = graph.at(0, 1, 0, "pe_ipcq")
    here = graph.at(0, 0, 0, "pe_ipcq")
    for (path, t0, _, bursts, _), slot in zip(credits, taken, strict=True):
        assert (path[0], path[-1], t0, bursts) == (there, here, slot.t_end, 1)
        assert any(".ucie_" in node for node in path)
    back = taken[0].t_end + run.engine.network.route(credits[0][0]).zero_load(16)
    setup = graph.spec.pe.dma.setup_ns
    assert copies[1].t_start == pytest.approx(back + setup)


def test_a_full_ring_makes_the_sender_wait_for_a_credit(graph, events):
    run = talk(graph, one_way(5 * 1024), 5 * 1024, recorder=events, slots=2)
    rows = {row: (record, waits) for row, record, _, _, waits, _ in events.of("op")}
    copies = sorted(
        (rows[row] for row in rows if rows[row][0].op_name == "ipcq_copy"),
        key=lambda found: found[0].t_start,
    )
    taken = named(run, "ipcq_recv")
    assert not any(
        reason == "credit" for _, waits in copies[:2] for _, reason, *_ in waits
    )
    for slot, (_, waits) in zip(taken, copies[2:], strict=False):
        node, _, t0, t1, holder = next(w for w in waits if w[1] == "credit")
        assert node == graph.at(0, 0, 0, "pe_ipcq")
        assert t0 < t1
        assert (rows[holder][0].op_name, rows[holder][0].t_end) == (
            "ipcq_recv",
            slot.t_end,
        )
        assert slot.t_end < t1


def test_an_empty_ring_makes_the_receiver_wait_for_an_arrival(graph, events):
    run = talk(graph, one_way(8), 8, recorder=events)
    rows = {row: record for row, record, *_ in events.of("op")}
    (copy,) = named(run, "ipcq_copy")
    ((waits, record),) = [
        (w, r) for _, r, _, _, w, _ in events.of("op") if r.op_name == "ipcq_recv"
    ]
    ((node, reason, t0, t1, holder),) = waits
    assert (node, reason, t1) == (graph.at(0, 1, 0, "pe_ipcq"), "arrival", copy.t_end)
    assert t0 < t1 == record.t_start
    assert rows[holder].op_name == "ipcq_copy"
    assert record.dependency_ids == [holder]


def test_a_ring_with_room_makes_nobody_wait_for_a_credit(graph, events):
    talk(graph, shift(1024), 1024, recorder=events)
    reasons = {w[1] for *_, waits, _ in events.of("op") for w in waits}
    assert "credit" not in reasons


@pytest.mark.parametrize("kind", ["tcm", "sram", "hbm"])
def test_a_slot_costs_what_its_memory_does(graph, kind):
    hbm = replace(graph.spec.cube.hbm, model="ideal")
    spec = replace(graph.spec, cube=replace(graph.spec.cube, hbm=hbm))
    graph = replace(graph, spec=spec)
    n = 1024
    run = talk(graph, one_way(n), n, places=CROSS_SIP, buffer_kind=kind)
    (copy,) = named(run, "ipcq_copy")
    (taken,) = named(run, "ipcq_recv")
    assert copy.params["dst_space"] == taken.params["src_space"] == kind
    sim = run.engine.sim
    spec = graph.spec
    memory = sim.resolver.resolve(PhysAddr.decode(copy.params["dst_addr"]))
    assert memory.startswith("sip1.cube0.")
    access = {
        "tcm": 0.0,
        "sram": spec.cube.sram.access_ns,
        "hbm": spec.cube.hbm.access_ns,
    }[kind]
    path = sim.router.route("pe", graph.at(0, 0, 0, "pe_dma"), memory)
    there = sim.network.route(path).zero_load(SLOT) + access
    assert copy.t_end - copy.t_start == pytest.approx(there)
    if kind == "tcm":
        back = SLOT / spec.pe.tcm.read_bw_gbs
    else:
        path = sim.router.route("pe", graph.at(1, 0, 0, "pe_dma"), memory)
        ask = sim.network.route(path)
        data = sim.network.route(path[::-1])
        back = ask.zero_load(32) + access + data.zero_load(SLOT)
    assert taken.t_end - taken.t_start == pytest.approx(back)


@pytest.mark.parametrize("kind", ["tcm", "sram", "hbm"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_one_slot_and_64_slots_give_the_same_data(graph, kind, dtype):
    n = 16 * 1024
    few, many = (
        talk(graph, shift(n, dtype), n, dtype=dtype, slots=s, buffer_kind=kind)
        for s in (1, 64)
    )
    np.testing.assert_array_equal(few.out, many.out)
    np.testing.assert_array_equal(many.out[0], many.data[1].astype(np_dtype(dtype)))
    assert few.engine.env.now > many.engine.env.now
    assert not few.findings
    assert not many.findings


def test_all_ranks_sending_first_twice_the_ring_ends(graph):
    """docs/machine.md, "Queues between PEs": 2 SIPs in a ring, 16 Ki f16, 4 slots of 4
    KiB.
    """
    run = talk(
        graph, shift(16384, "f16"), 16384, dtype="f16", places=CROSS_SIP, slots=4
    )
    np.testing.assert_array_equal(run.out[1], run.data[0].astype("f2"))
    assert len(named(run, "ipcq_copy")) == 16


def test_a_ring_of_two_works_both_ways(graph):
    def both(rank, mine, out, tl):
        x = tl.load(mine, (8,), "f32")
        tl.send("E", x)
        tl.send("W", tl.add(x, 100.0))
        tl.store(out, tl.recv("W", (8,), "f32"))
        tl.store(out + 32, tl.recv("E", (8,), "f32"))

    run = talk(graph, both, 16)
    np.testing.assert_array_equal(run.out[0][:8], run.data[1][:8])
    np.testing.assert_array_equal(run.out[0][8:], run.data[1][:8] + 100)


def test_what_would_overwrite_the_source_is_held_until_all_of_it_was_read(graph):
    n = 8 * 1024

    def overwrite(rank, mine, out, tl):
        if rank == 0:
            x = tl.load(mine, (n,), "f32")
            tl.send("E", x, wait=False)
            tl.mul(x, 0.0, out=x)
        else:
            tl.store(out, tl.recv("W", (n,), "f32"))

    run = talk(graph, overwrite, n, slots=2)
    (math,) = named(run, "mul")
    copies = named(run, "ipcq_copy")
    assert math.t_start > max(r.t_start for r in copies)
    np.testing.assert_array_equal(run.out[1], run.data[0])


def test_what_would_overwrite_the_source_of_a_send_that_queues_is_held_as_long(graph):
    n = 4 * 1024

    def overwrite(rank, mine, out, tl):
        if rank == 0:
            x = tl.load(mine, (n,), "f32")
            y = tl.add(x, 1.0)
            tl.send("E", x, wait=False)
            tl.send("E", y, wait=False)
            tl.mul(x, 0.0, out=y)
        else:
            tl.recv("W", (n,), "f32")
            tl.store(out, tl.recv("W", (n,), "f32"))

    run = talk(graph, overwrite, n, slots=1)
    (math,) = named(run, "mul")
    copies = named(run, "ipcq_copy")
    assert math.t_start > max(r.t_start for r in copies)
    np.testing.assert_array_equal(run.out[1], run.data[0] + 1)


def test_a_send_that_waits_comes_back_when_its_source_was_read_not_when_it_landed(
    graph, events
):
    talk(graph, one_way(8), 8, places=CROSS_SIP, recorder=events)
    (send,) = [args for args in events.of("command") if args[3] == "send"]
    (copy,) = [
        record for _, record, *_ in events.of("op") if record.op_name == "ipcq_copy"
    ]
    read = copy.t_start + 32 / graph.spec.pe.dma.to_router_bw_gbs
    assert send[-1] == pytest.approx(read)
    assert send[-1] < copy.t_end


def test_a_tensor_in_hbm_can_be_sent(graph):
    def from_hbm(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.ref(mine, (2048,), "f32"))
        else:
            tl.store(out, tl.recv("W", (2048,), "f32"))

    run = talk(graph, from_hbm, 2048)
    assert {r.params["src_space"] for r in named(run, "ipcq_copy")} == {"hbm"}
    np.testing.assert_array_equal(run.out[1], run.data[0])


def test_the_order_of_wires_does_not_matter(graph):
    def shuffled(rank):
        return dict(reversed(ring(4)(rank).items()))

    def program(rank, mine, out, tl):
        tl.send("E" if rank % 2 else "W", tl.load(mine, (64,), "f32"))
        tl.store(out, tl.recv("W" if rank % 2 == 0 else "E", (64,), "f32"))

    one, other = (
        talk(graph, program, 64, size=4, neighbors=n) for n in (ring(4), shuffled)
    )
    assert [(r.t_start, r.op_name, r.component_id) for r in one.log] == [
        (r.t_start, r.op_name, r.component_id) for r in other.log
    ]
    np.testing.assert_array_equal(one.out, other.out)


def test_a_recv_of_other_bytes_than_were_sent_is_an_error_that_names_both(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.load(mine, (8,), "f32"))
        else:
            tl.recv("W", (4,), "f32")

    with pytest.raises(
        KernelError, match=r"recv at tests.* expects 16 .* from W, but 32 were"
    ):
        talk(graph, program, 8)


def test_rings_are_allocations_at_the_end_of_their_memory_and_leave_less_scratch(
    graph, events
):
    def program(rank, mine, out, tl):
        tl.full((2048 - 2 * 4 * SLOT // 1024, 1024), 0.0, "i8")
        tl.full((1,), 0.0, "i8")

    with pytest.raises(KernelError, match="full needs 1 bytes of scratch"):
        talk(graph, program, 8, recorder=events)
    rings = [
        shard for (shard,) in events.of("alloc") if shard.tensor.startswith("ipcq")
    ]
    assert [(s.tensor, s.space, s.nbytes) for s in rings] == [
        (f"ipcq.{rank}.{d}", "tcm", 4 * SLOT) for rank in (0, 1) for d in ("E", "W")
    ]
    tcm = PhysAddr.pe_tcm_addr(0, 0, 0, 0).encode()
    assert rings[0].addr + rings[0].nbytes == tcm + 2 * 2**20
    assert rings[1].addr + rings[1].nbytes == rings[0].addr


def test_a_tensor_does_not_fit_where_rings_in_hbm_lie(graph):
    engine = GraphEngine(graph)
    wiring = {"world_size": 2, "rank_to_pe": PES[:2], "neighbors": pair}
    install_ipcq(engine, **wiring, buffer_kind="hbm", slots=3, slot_bytes=2**33)
    with pytest.raises(UsageError, match=r"0 pe 0: 0 of 51539607552 bytes are left"):
        Torch(engine).empty((2**20,), "f16")


def test_rings_in_one_sram_do_not_overlap(shipped, events):
    engine = GraphEngine(shipped, recorder=events)
    places = [(0, 0, pe) for pe in range(4)]
    install_ipcq(
        engine,
        world_size=4,
        rank_to_pe=places,
        neighbors=ring(4),
        buffer_kind="sram",
        slots=3,
    )
    spans = sorted((s.addr, s.addr + s.nbytes) for (s,) in events.of("alloc"))
    assert len(spans) == 8
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


WRONG = {
    "unknown direction 'up'": {"neighbors": lambda rank: {"up": 1 - rank}},
    "rank 0, E: 0 is no other of 2 ranks": {"neighbors": lambda rank: {"E": rank}},
    "rank 0, E: 7 is no other of 2 ranks": {"neighbors": lambda rank: {"E": 7}},
    "W of rank 1 does not lead back": {
        "neighbors": lambda rank: {"E": 1} if rank == 0 else {}
    },
    "unknown buffer_kind 'dram'; valid: tcm, sram, hbm": {"buffer_kind": "dram"},
    "slots=0": {"slots": 0},
    "slot_bytes=-1": {"slot_bytes": -1},
    "credit_bytes=0": {"credit_bytes": 0},
    "3 ranks need as many PEs": {"world_size": 3},
    "ipcq.0.W: rings of 4194304 bytes do not fit the 2097152 of tcm": {"slots": 512},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wiring_that_cannot_be_is_an_error_that_says_why(graph, message):
    wiring = {"world_size": 2, "rank_to_pe": PES[:2], "neighbors": pair} | WRONG[
        message
    ]
    with pytest.raises(KernbenchError, match=message):
        install_ipcq(GraphEngine(graph), **wiring)


def test_wiring_twice_is_an_error(graph):
    engine = GraphEngine(graph)
    wiring = {"world_size": 2, "rank_to_pe": PES[:2], "neighbors": pair}
    install_ipcq(engine, **wiring)
    with pytest.raises(
        UsageError, match=r"sip0.cube0.pe0.pe_ipcq is wired already \(E, W\)"
    ):
        install_ipcq(engine, **wiring)


def test_every_direction_has_an_opposite():
    assert set(_OPPOSITE_DIR) == set(DIRECTIONS)
    assert all(
        _OPPOSITE_DIR[_OPPOSITE_DIR[d]] == d != _OPPOSITE_DIR[d] for d in DIRECTIONS
    )


def test_directions_that_are_no_opposites_pair_where_there_is_one_way_only(graph):
    engine = GraphEngine(graph)
    tables = [{"E": 1}, {"N": 0}]
    install_ipcq(engine, world_size=2, rank_to_pe=PES[:2], neighbors=tables.__getitem__)
    queues = [engine.sim.component(graph.at(*p, "pe_ipcq")).queues for p in PES[:2]]
    assert (queues[0]["E"].back, queues[1]["N"].back) == ("N", "E")

"""What the engine reports to its recorder, and how launches follow each other."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from exact_times import header_ns, rounded

import kernbench.sim_engine.engine as engine_module
from kernbench.benches.matmul import run as matmul
from kernbench.common.messages import NO_CMD
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.builtin.m_cpu import MCpu
from kernbench.components.builtin.pe_math import PeMath
from kernbench.errors import DeadlockError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.accesses import accesses
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import ComponentSpec, ComponentsSpec, CubeMeshSpec, SipSpec

X = np.arange(64, dtype=np.float32).reshape(8, 8)
OVERHEAD = {"router": 2, "ucie": 8, "io_noc": 2, "io_cpu": 10, "m_cpu": 10}
OVERHEAD |= {"pcie_ep": 150, "switch": 100}


def kernel(x_ptr, y_ptr, out_ptr, tl):
    """A bit of everything; y is the result of the launch before."""
    x = tl.load(x_ptr, (8, 8), "f32")
    late = tl.load(y_ptr, (8, 8), "f32", wait=False)
    tl.device_print("at", tl.program_id(0))
    tl.wait(late)
    tl.store(out_ptr, tl.dot(x, x) + late, wait=False)
    tl.composite(a=tl.ref(x_ptr, (8, 8), "f32"), b=x, out_ptr=y_ptr, epilogue=["relu"])


def mixed_bench(torch):
    everywhere = DPPolicy()
    x = torch.tensor(X, dp=everywhere, name="x")
    y = torch.zeros((8, 8), "f32", everywhere, "y")
    out = torch.empty((8, 8), "f32", everywhere, "out")
    torch.launch("first", kernel, x, y, out)
    torch.launch("second", kernel, x, y, out)
    y.numpy()
    torch.launch("third", kernel, x, y, out)
    torch.expect(y, np.maximum(X @ X, 0))


def matmul_bench(torch):
    matmul(torch, m=150, k=70, n=90, tile=32)


@pytest.fixture(params=[mixed_bench, matmul_bench], ids=["mixed", "matmul"])
def run(request, simulate, events):
    return simulate(request.param, recorder=events)


def test_commands_cover_the_life_of_every_kernel_without_gaps(run):
    ends = defaultdict(float)
    spans = defaultdict(list)
    for _, pe, launch, _, _, _, t_issue, t_resume in run.events.of("command"):
        if launch >= 0:
            spans[launch, pe].append((t_issue, t_resume))
    for launch, _, pes, t_issue, t_start, t_end in run.events.of("launch"):
        assert t_issue < t_start < t_end
        for pe in pes:
            calls = spans.pop((launch, pe))
            assert calls[0][0] == t_start
            assert all(a[1] == b[0] for a, b in pairwise(calls))
            ends[launch] = max(ends[launch], calls[-1][1])
        assert ends[launch] == t_end
    assert not spans


def test_no_launch_of_an_idle_machine_is_late(run):
    assert [text for text in run.events.of("text") if text[2] == "warning"] == []


def test_ops_lie_within_their_launch_and_end_before_it(run):
    launches = {row[0]: row for row in run.events.of("launch")}
    of_cmd = {row[0]: row[2] for row in run.events.of("command")}
    for _, record, cmd, _, _, _ in run.events.of("op"):
        launch = launches.get(of_cmd[cmd])
        if launch is not None:
            assert launch[4] <= record.t_start < record.t_end <= launch[5]


def test_rows_count_up_and_dependencies_are_rows_that_have_ended(run):
    ended = []
    for row, record, _, _, waits, _ in run.events.of("op"):
        assert row == len(ended)
        # a kept record's ids have become positions; the holders are rows
        holders = {w[4] for w in waits if w[4] >= 0}
        assert all(holder < row for holder in holders)
        assert all(ended[holder].t_start <= record.t_start for holder in holders)
        assert len(record.dependency_ids) >= len(holders)
        ended.append(record)


def test_positions_of_dependencies_are_ops_that_had_ended(run):
    for record in run.log:
        for position in record.dependency_ids:
            assert run.log[position].t_end <= record.t_end


def test_waits_end_before_the_op_does_and_last(run):
    reasons = Counter()
    for _, record, _, _, waits, _ in run.events.of("op"):
        for node, reason, t0, t1, _ in waits:
            reasons[reason] += 1
            assert t0 < t1 <= record.t_end
            assert node in run.engine.graph.nodes
    assert reasons


def test_the_holder_of_an_engine_is_the_op_whose_end_freed_it(run):
    rows = {row: record for row, record, *_ in run.events.of("op")}
    seen = 0
    for _, record, _, _, waits, _ in run.events.of("op"):
        for node, reason, _, t1, holder in waits:
            if reason in ("engine", "dma_slot", "window"):
                seen += 1
                assert rows[holder].t_end == t1
                assert reason == "window" or rows[holder].component_id == node
                assert record.t_start >= t1
    assert seen


def test_a_tile_that_waits_for_its_turn_names_the_read_that_held_the_tiles_up(
    simulate, events
):
    simulate(matmul_bench, recorder=events)
    rows = {row: record for row, record, *_ in events.of("op")}
    held = [
        (t1, holder)
        for _, record, _, _, waits, _ in events.of("op")
        for _, reason, _, t1, holder in waits
        if (record.op_name, reason) == ("TileToken/FETCH", "operand")
    ]
    assert held
    for t1, holder in held:
        assert (rows[holder].op_name, rows[holder].t_end) == ("TileToken/DMA_READ", t1)


def transfers(run):
    for _, _, _, _, _, rows in run.events.of("op"):
        yield from rows
    for _, row in run.events.of("transfer"):
        yield row


def test_headers_take_their_time_from_hop_to_hop(run):
    graph = run.engine.graph
    for path, t0, nbytes, bursts, starts in transfers(run):
        hops = len(path) - 1
        assert nbytes > 0
        assert len(starts) == hops * min(bursts, 2)
        assert starts[0] >= t0
        for times in (starts[:hops], starts[hops:]):
            for (node, after), (a, b) in zip(
                pairwise(path[:-1]), pairwise(times), strict=False
            ):
                least = header_ns(graph, (node, after), OVERHEAD)
                assert b >= a + least, (node, after)


def test_every_launch_reaches_its_pes_over_the_command_network(run):
    ends = Counter(row[0][-1] for _, row in run.events.of("transfer"))
    for _, _, pes, *_ in run.events.of("launch"):
        assert all(ends[pe] > 0 for pe in pes)


def landing(graph, transfer):
    """When the last byte of a transfer of one burst between no memories landed."""
    path, _, nbytes, bursts, starts = transfer
    assert bursts == 1
    slowest = min(graph.edge_by_ends[ends].bandwidth_gbs for ends in pairwise(path))
    last_hop = header_ns(graph, path[-2:], OVERHEAD)
    return starts[-1] + last_hop + rounded(nbytes / slowest)


def test_how_long_each_pe_waited_for_its_launch_can_be_read(run):
    """The wait `launch` of a PE: from its message's landing to its first t_issue."""
    host = {row[0]: row[3] for row in run.events.of("command") if row[2] == -1}
    arrivals = defaultdict(list)
    for cmd, row in run.events.of("transfer"):
        assert host[cmd].startswith("launch ")
        arrivals[row[0][-1]].append(landing(run.engine.graph, row))
    for launch, _, pes, t_issue, t_start, _ in run.events.of("launch"):
        waits = [t_start - arrivals[pe][launch] for pe in pes]
        assert all(0 <= wait < t_start - t_issue for wait in waits)
        assert min(waits) == 0  # all start when the farthest has it
        assert len(pes) == 1 or max(waits) > 0.01


def test_how_long_a_kernel_waited_for_what_it_had_issued_can_be_read(run):
    """The wait `barrier` of a PE: its exit, which awaits the call that ended last."""
    ends = defaultdict(float)
    for _, record, cmd, *_ in run.events.of("op"):
        ends[cmd] = max(ends[cmd], record.t_end)
    calls = defaultdict(list)
    for row in run.events.of("command"):
        if row[2] >= 0:
            calls[row[1], row[2]].append(row)
    for *before, last in calls.values():
        cmd, _, _, call, _, awaits, t_issue, t_resume = last
        assert (call, cmd in ends) == ("exit", False)
        assert t_issue == before[-1][7]
        assert t_resume == max(t_issue, *(ends[row[0]] for row in before))
        assert t_resume == t_issue or ends[awaits] == t_resume


def test_a_kernel_that_ends_early_waits_for_the_slowest_and_not_the_last_call(
    simulate, events
):
    def stores(x_ptr, big_ptr, tl):
        tl.store(big_ptr, tl.load(big_ptr, (128, 128), "f32"), wait=False)
        tl.load(x_ptr, (2, 2), "f32", wait=False)

    def bench(torch):
        torch.launch("k", stores, torch.tensor(X), torch.zeros((128, 128), "f32"))

    simulate(bench, recorder=events)
    *_, store, load, end = (row for row in events.of("command") if row[2] == 0)
    assert (store[3], load[3], end[3]) == ("store", "load", "exit")
    assert end[5] == store[0]
    assert end[7] > end[6]


def test_every_access_lies_in_an_allocation_known_before(run):
    valid = defaultdict(list)
    for (shard,) in run.events.of("alloc"):
        valid[shard.space].append((shard.addr, shard.addr + shard.nbytes, shard.cmd))
    for _, record, cmd, *_ in run.events.of("op"):
        for a in accesses(record):
            rows = [
                v
                for v in valid[a.space]
                if v[0] <= a.addr and a.addr + a.nbytes <= v[1]
            ]
            assert any(since <= cmd for *_, since in rows), (record.op_name, a)


def test_the_text_of_a_file_comes_once_and_before_its_first_site(run):
    known = []
    for kind, args in run.events:
        if kind == "source":
            known.append(args[0])
            assert "def " in args[2]
        if kind == "command":
            site = args[4]
            assert site.file in known
            assert site.line > 0
    assert len(known) == len(set(known))


@pytest.mark.slow
def test_every_call_has_a_number_of_its_own(run):
    numbers = [row[0] for row in run.events.of("command")]
    assert len(numbers) == len(set(numbers))
    awaited = {row[5] for row in run.events.of("command")} - {NO_CMD}
    assert awaited <= set(numbers)


@pytest.mark.slow
def test_two_runs_record_the_same(simulate, events):
    def recorded(recorder):
        simulate(mixed_bench, recorder=recorder)
        return [(kind, repr(args)) for kind, args in recorder]

    assert recorded(type(events)()) == recorded(type(events)())


def test_no_recorder_and_no_logger_take_the_same_time(simulate, events):
    def bench(torch):
        x = torch.tensor(X)
        out = torch.empty((8, 8), "f32")
        torch.launch("k", kernel, x, torch.tensor(X), out)

    ends = [
        simulate(bench, **options).engine.env.now
        for options in ({}, {"op_logger": None}, {"recorder": events})
    ]
    assert len(set(ends)) == 1


class SlowMCpu(MCpu):
    """Delivers a launch to cube 1 when the others have long begun."""

    def run(self, env, msg):
        yield env.timeout(500.0 * self.node.cube)
        yield from super().run(env, msg)


def test_a_pe_that_a_launch_reaches_late_starts_then_and_says_so(
    layout_cache, simulate, events
):
    def bench(torch):
        torch.launch(
            "k", lambda x_ptr, tl: None, torch.zeros((2,), dp=DPPolicy(num_pes=1))
        )

    sip = replace(SipSpec(), cube_mesh=CubeMeshSpec(w=2, h=1))
    components = replace(ComponentsSpec(), m_cpu=ComponentSpec(f"{__name__}:SlowMCpu"))
    graph = build_topology(TopologySpec(sip=sip, components=components), layout_cache)
    simulate(bench, graph=graph, recorder=events)
    ((_, _, _, _, t_start, _),) = events.of("launch")
    warnings = events.of("text")
    assert [level for _, _, level, _ in warnings] == ["warning"] * 2
    for sip_id, (t, _, _, message) in enumerate(warnings):
        assert f"sip{sip_id}.cube1.pe0.pe_cpu" in message
        assert 400 < t - t_start <= 500
    starts = {row[1]: row[6] for row in events.of("command") if row[2] >= 0}
    assert starts["sip0.cube0.pe0.pe_cpu"] == starts["sip1.cube0.pe0.pe_cpu"] == t_start
    assert starts["sip0.cube1.pe0.pe_cpu"] == warnings[0][0]


def test_launches_follow_each_other_in_order(run):
    rows = run.events.of("launch")
    assert [row[0] for row in rows] == list(range(len(rows)))
    assert all(a[5] <= b[3] for a, b in pairwise(rows))


def test_a_print_tells_its_time_its_call_and_its_words(simulate, events):
    def bench(torch):
        torch.launch(
            "k", kernel, torch.tensor(X), torch.tensor(X), torch.empty((8, 8), "f32")
        )

    run = simulate(bench, recorder=events)
    ((t, cmd, level, message),) = run.events.of("text")
    (call,) = (row for row in run.events.of("command") if row[0] == cmd)
    assert (call[3], level, message) == ("device_print", "print", "at 0")
    assert t == call[6]


def test_timing_has_the_end_and_counts_ops(simulate):
    def bench(torch):
        def dots(x_ptr, tl):
            x = tl.load(x_ptr, (8, 8), "f32")
            tl.dot(x, x)
            tl.dot(x, x)

        torch.launch("k", dots, torch.tensor(X))

    engine = simulate(bench).engine
    timing = engine.get_timing_result()
    assert timing.end_ns == engine.env.now
    assert timing.ops_by_kind == {"memory": 2, "gemm": 2}


def test_what_can_never_go_on_is_a_deadlock_that_names_it(simulate):
    def bench(torch):
        x = torch.tensor(X, name="x")
        torch.launch("stuck", lambda x_ptr, tl: None, x)
        torch.engine.barrier(
            2, torch.engine.sim.sites.here()
        )  # no other stream ever comes to it
        torch.launch("never", lambda x_ptr, tl: None, x)

    with pytest.raises(
        DeadlockError, match=r"nothing can go on at t=.*launch never at tests/"
    ):
        simulate(bench)


class StuckMath(PeMath):
    """Never ends."""

    def run(self, env, msg):
        yield env.event()


@pytest.mark.slow
def test_a_deadlock_names_each_kernel_and_the_line_that_it_is_blocked_at(
    layout_cache, simulate
):
    def stuck(ptr, tl):
        x = tl.load(ptr, (2,))
        tl.exp(x)

    def bench(torch):
        torch.launch("k", stuck, torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=2)))

    components = replace(
        ComponentsSpec(), pe_math=ComponentSpec(f"{__name__}:StuckMath")
    )
    graph = build_topology(TopologySpec(components=components), layout_cache)
    with pytest.raises(DeadlockError) as caught:
        simulate(bench, graph=graph)
    *waiters, last = str(caught.value).partition("still waiting: ")[2].split("; ")
    assert last.startswith("launch k at tests/")
    line = stuck.__code__.co_firstlineno + 2
    for pe, waiter in enumerate(waiters):
        where, _, since = waiter.partition(" since ")
        assert where.startswith(f"sip0.cube0.pe{pe}.pe_cpu: exp at tests/")
        assert where.endswith(f"test_engine.py:{line}")
        assert float(since.removesuffix(" ns")) > 0
    assert len(waiters) == 2


def test_the_place_of_an_address(small):
    engine = GraphEngine(small)
    slice_bytes = 48 * 2**30 // 8
    addr = PhysAddr.pe_hbm_addr(1, 0, 5, 100, slice_bytes).encode()
    assert engine.place_of(addr) == (1, 0, 5)


def test_progress_has_time_ops_and_events_and_changes_nothing(
    simulate, small, monkeypatch
):
    monkeypatch.setattr(engine_module, "PROGRESS_EVENTS", 100)
    calls = []
    engine = GraphEngine(small)
    engine.progress = lambda *what: calls.append(what)
    engine.run(lambda _: matmul_bench(Torch(engine)))
    times, ops, events = zip(*calls, strict=True)
    assert events == tuple(100 * (i + 1) for i in range(len(calls)))
    assert list(times) == sorted(times)
    assert list(ops) == sorted(ops)
    assert 0 < ops[-1] <= len(engine.op_log)
    assert engine.env.now == simulate(matmul_bench).engine.env.now


def test_an_interrupt_comes_out_as_it_is_with_all_that_was_recorded(
    small, events, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_module, "PROGRESS_EVENTS", 3000)
    engine = GraphEngine(small, recorder=events)
    engine.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        engine.run(lambda _: matmul_bench(Torch(engine)))
    assert [row for row, *_ in events.of("op")] == list(range(len(engine.op_log)))
    assert engine.op_log
    engine.progress = None
    engine.drain()  # it can even go on
    assert engine.env.now > max(r.t_end for r in engine.op_log) - 1


class InterruptedMath(PeMath):
    """Somebody presses Ctrl-C while it works."""

    def run(self, env, msg):
        yield env.timeout(1.0)
        raise KeyboardInterrupt


def test_an_interrupt_inside_a_component_is_not_swallowed(
    layout_cache, simulate, events
):
    def bench(torch):
        torch.launch("k", lambda ptr, tl: tl.exp(tl.load(ptr, (2,))), torch.zeros((2,)))

    components = replace(
        ComponentsSpec(), pe_math=ComponentSpec(f"{__name__}:InterruptedMath")
    )
    graph = build_topology(TopologySpec(components=components), layout_cache)
    with pytest.raises(KeyboardInterrupt):
        simulate(bench, graph=graph, recorder=events)

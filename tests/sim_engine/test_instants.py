"""Exact time, and who is first within an instant: docs/machine.md, "Exact time"."""

import random
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from exact_times import rounded
from hypothesis import strategies as st
from pace import for_all

from kernbench.benches.ccl_allreduce import run as all_reduce
from kernbench.benches.matmul import run as matmul
from kernbench.common.messages import MsgBase, Transaction
from kernbench.components.clock import Clock
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.trace.writer import TraceWriter

sys.path.insert(0, str(Path(__file__).parent.parent / "oracles"))

import random_kernels


def of_four(layout_cache):
    """One cube of four PEs, as the random programs have it; no number is round."""
    spec = TopologySpec()
    cube = replace(
        spec.cube,
        pes=4,
        memory_map=replace(spec.cube.memory_map, slices_per_cube=4),
        router=replace(spec.cube.router, link_bw_gbs=253.7, overhead_ns=1.9),
        hbm=replace(spec.cube.hbm, access_ns=30.3),
    )
    mesh = replace(spec.sip.cube_mesh, w=1, h=1)
    sips = replace(spec.system.sips, count=1)
    spec = replace(
        spec,
        cube=cube,
        sip=replace(spec.sip, cube_mesh=mesh),
        system=replace(spec.system, sips=sips),
        pe=replace(spec.pe, clock_ghz=0.93, dma=replace(spec.pe.dma, burst_bytes=64)),
    )
    return build_topology(spec, layout_cache)


@pytest.fixture(scope="module")
def four(layout_cache):
    return of_four(layout_cache)


def bench_of(seed):
    """The random program of a seed."""
    namespace = {"__name__": f"random_{seed}"}
    text = random_kernels.program(seed)
    # it is not registered: that is for one process
    text = "\n".join(line for line in text.splitlines() if line[:6] != "@bench")
    exec(compile(text, f"random_{seed}.py", "exec"), namespace)
    return namespace["run"]


def traced(graph, bench, path, before=lambda engine: None):
    """The bytes of the trace of a bench."""
    writer = TraceWriter(path)
    writer.begin({"bench": "b"}, graph)
    engine = GraphEngine(graph, recorder=writer)
    before(engine)
    torch = Torch(engine)
    engine.run(lambda _: bench(torch))
    writer.end(engine.env.now)
    return path.read_bytes()


class Numbers:
    """Numbers of events that say nothing between turns, and in a turn grow."""

    def __init__(self, clock, seed):
        self.clock = clock
        self.rng = random.Random(seed)
        self.last = Counter()
        self.unique = count()

    def __next__(self):
        turn = self.clock.turn
        self.last[turn] += self.rng.randrange(1, 10_000)
        return self.last[turn] << 40 | next(self.unique)


def scrambled(seed):
    """A clock that numbers events by chance, but for those of one turn."""

    class Scrambled(Clock):
        def __init__(self, places=()):
            super().__init__(places)
            self._eid = Numbers(self, seed)

    return Scrambled


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.slow
def test_who_made_an_event_first_decides_nothing_between_nodes(
    four, tmp_path, monkeypatch, seed
):
    bench = bench_of(seed)
    wanted = traced(four, bench, tmp_path / "a")
    for chance in range(3):
        with monkeypatch.context() as patch:
            patch.setattr("kernbench.sim_engine.engine.Clock", scrambled(chance))
            assert traced(four, bench, tmp_path / f"b{chance}") == wanted


@pytest.mark.slow
def test_an_event_may_not_come_before_others_of_its_own_turn_by_chance(
    four, tmp_path, monkeypatch
):
    """The test above sees what it looks for: reversed numbers change the trace."""

    class Reversed(Clock):
        def __init__(self, places=()):
            super().__init__(places)
            self._eid = iter(range(1 << 40, 0, -1))

    wanted = traced(four, bench_of(3), tmp_path / "a")
    monkeypatch.setattr("kernbench.sim_engine.engine.Clock", Reversed)
    assert traced(four, bench_of(3), tmp_path / "b") != wanted


def others(engine):
    """Processes that have nothing to do with the machine, at the same instants."""

    def beside(step):
        for _ in range(200):
            yield engine.env.timeout(step)

    for step in (0.0, 1 / 1024, 0.5, 1.0, 10.0):
        engine.env.process(beside(step))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_processes_beside_the_machine_change_no_byte(four, tmp_path, seed):
    bench = bench_of(seed)
    assert traced(four, bench, tmp_path / "a") == traced(
        four, bench, tmp_path / "b", others
    )


@pytest.mark.slow
def test_every_record_is_made_in_the_turn_of_its_node(four, small, monkeypatch):
    """But that of a copy between PEs, which is the sender's."""
    seen = Counter()

    def watched(graph, bench):
        engine = GraphEngine(graph)
        log = engine.op_logger
        clock = engine.env
        ends = log.record_end

        def record_end(now, node, msg):
            kind = graph.nodes[node].type
            if kind != "pcie_ep":
                assert clock.turn == clock.node_turn(graph.nodes[node].place), node
                seen[kind] += 1
            ends(now, node, msg)

        monkeypatch.setattr(log, "record_end", record_end)
        torch = Torch(engine)
        engine.run(lambda _: bench(torch))

    for seed in range(6):
        watched(four, bench_of(seed))
    watched(small, lambda torch: matmul(torch, m=64, k=64, n=64))
    watched(small, lambda torch: all_reduce(torch, "ring_chunked_allreduce"))
    assert {"pe_dma", "pe_gemm", "pe_math", "pe_fetch_store"} <= set(seen)


ROUTERS = tuple(f"sip0.cube0.r0c{col}" for col in range(4))


class Owner(MsgBase):
    pass


@pytest.mark.parametrize("begins", [(0, 1), (1, 0)])
@pytest.mark.parametrize("far", [0, 1])
def test_of_two_that_come_to_a_link_at_once_the_lesser_pe_is_first(small, begins, far):
    """Whoever was created first, and whoever has come the longer way."""
    engine = GraphEngine(small)
    clock = engine.env
    hop = rounded(small.edge_by_ends[ROUTERS[:2]].distance_mm * 0.01 + 2)
    owners = [Owner(), Owner()]

    def go(pe):
        path = ROUTERS[2:]
        yield clock.timeout(5)
        if pe == far:
            path = ROUTERS
        else:
            yield clock.timeout(2 * hop)
        yield from engine.sim.transfer(Transaction(path, 512, owners[pe]))

    for pe in begins:
        clock.process_at(clock.node_turn((0, 0, pe)), go(pe))
    clock.run()
    assert [len(owner.waits) for owner in owners] == [0, 1]
    ((_, reason, t0, t1, holder),) = owners[1].waits
    assert (reason, t0, t1, holder) == ("link", 5 + 2 * hop, 5 + 2 * hop + 2, owners[0])


def two_launches(graph, pes, streams):
    """What two ranks that launch at the same time get, however they are listed."""
    engine = GraphEngine(graph)
    site = engine.sim.sites.here()

    def kernel(tl):
        tl.dot(tl.full((32, 32), 1.0, "f32"), tl.full((32, 32), 2.0, "f32"))

    for stream in streams:
        engine.stream = stream
        engine.launch(f"k{stream}", kernel, (), pes[stream], site)
    engine.drain()
    return [(r.t_start, r.t_end, r.component_id, r.op_name) for r in engine.op_log]


def test_the_order_in_which_pes_and_ranks_are_launched_decides_nothing(small):
    pes = {0: [(0, 0, pe) for pe in range(8)], 1: [(0, 0, pe) for pe in range(3, 8)]}
    wanted = two_launches(small, pes, (0, 1))
    rng = random.Random(1)
    for _ in range(4):
        shuffled = {stream: rng.sample(each, len(each)) for stream, each in pes.items()}
        for streams in ((0, 1), (1, 0)):
            assert two_launches(small, shuffled, streams) == wanted
    assert len(wanted) == 3 * (8 + 5)


def after_launches(log, spans):
    """The records of each launch, by how long after its start they are, in ns."""
    found = []
    for span in spans:
        mine = []
        for record in log:
            if span.t_start <= record.t_start < span.t_end:
                mine.append(
                    (
                        record.t_start - span.t_start,
                        record.t_end - span.t_start,
                        record.component_id,
                        record.op_name,
                        record.params.get("nbytes"),
                    )
                )
        found.append((span.t_end - span.t_start, mine))
    return found


@for_all(
    seed=st.integers(0, 40),
    pause=st.floats(0, 1e9),
    reads=st.integers(0, 3),
    fast=3,
    whole=12,
)
def test_a_launch_that_comes_later_is_the_same_launch_later(four, seed, pause, reads):
    """After any time in which nothing happens, and any work of the host."""
    bench = bench_of(seed)
    runs = []
    for is_late in (False, True):
        engine = GraphEngine(four)
        torch = Torch(engine)
        one_pe = DPPolicy(num_cubes=1, num_pes=1)
        first = torch.tensor([1.0] * 1000, "f32", one_pe)
        if is_late:
            engine.env.timeout(pause)
            for _ in range(reads):
                first.numpy()
        engine.run(lambda _, torch=torch: bench(torch))
        runs.append(after_launches(engine.op_log, engine.launches))
    at_once, later = runs
    assert at_once == later
    assert sum(len(records) for _, records in at_once) > 10


@pytest.mark.slow
def test_all_instants_are_whole_ticks_whatever_the_numbers_of_the_machine(four):
    for seed in range(8):
        engine = GraphEngine(four)
        torch = Torch(engine)
        engine.run(lambda _, torch=torch, seed=seed: bench_of(seed)(torch))
        for record in engine.op_log:
            assert (record.t_start * 1024).is_integer(), record
            assert (record.t_end * 1024).is_integer(), record

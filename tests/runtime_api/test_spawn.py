"""Ranks: where they run, what they wait for, how they end."""

import numpy as np
import pytest

from kernbench.errors import DeadlockError, KernbenchError, KernelError, UsageError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine

X = np.arange(8, dtype=np.float32)
ROWS = DPPolicy(cube="row_wise", num_pes=1)


def doubled(x_ptr, y_ptr, tl):
    tl.store(y_ptr, tl.load(x_ptr, (8,), "f32") * 2)


def slow(x_ptr, y_ptr, loads, tl):
    for _ in range(loads):
        x = tl.load(x_ptr, (8,), "f32")
    tl.store(y_ptr, x)


@pytest.fixture
def spawn(simulate):
    """spawn(fn, nprocs=2) calls fn(rank, torch) in each rank of the small machine; the
    run.
    """

    def spawn(fn, nprocs=2, **options):
        return simulate(
            lambda torch: torch.multiprocessing.spawn(fn, (torch,), nprocs), **options
        )

    return spawn


def barrier(torch):
    torch.engine.barrier(2, torch.engine.sim.sites.here())
    torch.multiprocessing.drain()


def test_every_rank_is_called_once_with_its_number_and_the_arguments(simulate):
    calls = []

    def bench(torch):
        torch.multiprocessing.spawn(lambda *args: calls.append(args), ("a", 7))

    simulate(bench)
    assert calls == [(0, "a", 7), (1, "a", 7)]


def test_tensors_of_a_rank_lie_in_its_sip(spawn):
    places = {}

    def fn(rank, torch):
        x = torch.tensor(X, dp=ROWS)
        one = torch.tensor(X)
        places[rank] = [torch.engine.place_of(s.addr) for s in (*x.shards, *one.shards)]

    spawn(fn)
    assert places == {r: [(r, 0, 0), (r, 1, 0), (r, 0, 0)] for r in (0, 1)}


def test_a_policy_of_a_rank_counts_the_cubes_of_its_own_sip(spawn):
    def fn(rank, torch):
        with pytest.raises(UsageError, match="num_cubes=3; this machine has 1 to 2"):
            torch.tensor(X, dp=DPPolicy(num_cubes=3))

    spawn(fn)


def test_ranks_may_give_tensors_and_expectations_the_same_names(spawn, phase2):
    def fn(rank, torch):
        x = torch.tensor(X + rank, name="x")
        y = torch.empty((8,), "f32", name="y")
        torch.launch("k", doubled, x, y)
        torch.expect(y, 2 * (X + rank))
        torch.expect(x, X + rank, name="again")

    run = spawn(fn)
    assert {*run.torch.expectations} == {
        f"rank{r}.{n}" for r in (0, 1) for n in ("y", "again")
    }
    assert phase2(run).ok


def test_a_rank_reads_what_it_has_computed(spawn):
    read = {}

    def fn(rank, torch):
        y = torch.empty((8,), "f32")
        torch.launch("k", doubled, torch.tensor(X + rank), y)
        read[rank] = y.numpy()

    spawn(fn)
    assert all(np.array_equal(read[rank], 2 * (X + rank)) for rank in (0, 1))


def test_the_launches_of_a_rank_are_in_order_and_those_of_ranks_side_by_side(spawn):
    def fn(rank, torch):
        x = torch.tensor(X)
        y = torch.empty((8,), "f32")
        torch.launch(f"first {rank}", slow, x, y, 4)
        torch.launch(f"second {rank}", slow, x, y, 4)

    spans = {span.name: span for span in spawn(fn).engine.launches}
    for rank in (0, 1):
        assert spans[f"first {rank}"].t_end < spans[f"second {rank}"].t_start
    assert spans["second 0"].t_start < spans["second 1"].t_end
    assert spans["second 1"].t_start < spans["second 0"].t_end


def test_ranks_come_after_what_the_bench_asked_for_and_before_what_it_asks_next(
    simulate,
):
    def bench(torch):
        def fn(rank, torch):
            torch.launch(
                f"rank {rank}",
                slow,
                torch.tensor(X),
                torch.empty((8,), "f32"),
                rank + 1,
            )

        x = torch.tensor(X)
        y = torch.empty((8,), "f32")
        torch.launch("before", slow, x, y, 4)
        torch.multiprocessing.spawn(fn, (torch,))
        torch.launch("after", slow, x, y, 1)

    first, *ranks, last = simulate(bench).engine.launches
    assert (first.name, last.name) == ("before", "after")
    assert [span.name for span in ranks] == ["rank 0", "rank 1"]
    assert all(first.t_end < span.t_start < span.t_end < last.t_start for span in ranks)


def test_a_rank_that_reads_parks_until_the_others_have_parked_or_ended(spawn):
    log = []

    def fn(rank, torch):
        x = torch.tensor(X)
        log.append(f"{rank} asks")
        if rank == 0:
            x.numpy()
        log.append(f"{rank} goes on")

    spawn(fn)
    assert log == ["0 asks", "1 asks", "1 goes on", "0 goes on"]


def test_a_barrier_ends_when_the_slowest_rank_has_come_to_it(spawn):
    def fn(rank, torch):
        x = torch.tensor(X)
        y = torch.empty((8,), "f32")
        torch.launch(f"before {rank}", slow, x, y, 1 + 9 * rank)
        barrier(torch)
        torch.launch(f"after {rank}", slow, x, y, 1)

    spans = {span.name: span for span in spawn(fn).engine.launches}
    assert spans["before 0"].t_end < spans["before 1"].t_end
    assert spans["before 1"].t_end < min(
        spans["after 0"].t_start, spans["after 1"].t_start
    )


def test_a_barrier_is_a_command_of_each_rank_in_the_trace(spawn, events):
    spawn(lambda rank, torch: barrier(torch), recorder=events)
    rows = [
        (pe, call) for _, pe, launch, call, *_ in events.of("command") if launch == -1
    ]
    assert rows == [(f"sip{rank}.io0.pcie_ep", "barrier") for rank in (0, 1)]


def test_a_rank_may_read_while_another_is_at_a_barrier(spawn):
    log = []

    def fn(rank, torch):
        x = torch.tensor(X + rank)
        if rank == 1:
            for _ in range(3):
                log.append(x.numpy()[0])
        barrier(torch)
        log.append(f"{rank} passed")

    spawn(fn)
    assert log == [1, 1, 1, "0 passed", "1 passed"]


def test_barriers_follow_one_another(spawn):
    log = []

    def fn(rank, torch):
        for i in range(3):
            barrier(torch)
            log.append((i, rank))

    spawn(fn)
    assert log == sorted(log)


def test_a_barrier_that_a_rank_never_comes_to_is_a_deadlock_that_names_its_line(spawn):
    def fn(rank, torch):
        if rank == 1:
            barrier(torch)

    with pytest.raises(
        DeadlockError, match=r"barrier at tests/runtime_api/test_spawn\.py:\d+"
    ):
        spawn(fn)


@pytest.mark.parametrize("parked", [0, 1])
def test_a_rank_that_raises_is_named_with_its_line_and_stops_the_others(spawn, parked):
    log = []

    def fn(rank, torch):
        if rank != parked:
            torch.tensor(X).numpy()
            raise ValueError("seven")
        try:
            barrier(torch)
            log.append("went on")
        finally:
            log.append("stopped")

    where = rf"^rank {1 - parked} at tests/runtime_api/test_spawn\.py:\d+: "
    with pytest.raises(KernbenchError, match=f"{where}ValueError: seven$"):
        spawn(fn)
    assert log == ["stopped"]


def test_what_a_stopped_rank_does_hides_no_error(spawn):
    def fn(rank, torch):
        if rank == 1:
            raise ValueError("the first")
        try:
            torch.tensor(X).numpy()
        finally:
            torch.tensor(X).numpy()  # never comes back
            raise ValueError("another")

    with pytest.raises(KernbenchError, match="the first") as caught:
        spawn(fn)
    assert "another" not in str(caught.value)


def test_an_error_of_ours_keeps_its_type_and_gets_the_rank(spawn):
    def fn(rank, torch):
        if rank == 1:
            torch.empty((0,))

    with pytest.raises(UsageError, match=r"^rank 1: tensor 'rank1\.t0': shape \(0,\)"):
        spawn(fn)


def test_a_kernel_that_raises_stops_every_rank_and_names_its_pe(spawn):
    log = []

    def kernel(x_ptr, rank, tl):
        assert rank == 0, "wrong"

    def fn(rank, torch):
        x = torch.tensor(X)
        torch.launch("k", kernel, x, rank)
        x.numpy()
        log.append(rank)

    with pytest.raises(
        KernelError, match=r"sip1\.cube0\.pe0\.pe_cpu: kernel k at .*wrong"
    ):
        spawn(fn)
    assert log == []


def test_a_rank_that_was_never_called_is_stopped_too(simulate):
    def fn(rank, torch):
        raise ValueError

    def bench(torch):
        with pytest.raises(KernbenchError, match="rank 0"):
            torch.multiprocessing.spawn(fn, (torch,))
        torch.multiprocessing.spawn(
            lambda rank, torch: torch.tensor(X).numpy(), (torch,)
        )

    simulate(bench)


def test_spawn_may_follow_spawn(simulate):
    log = []

    def fn(rank, torch, turn):
        torch.tensor(X).numpy()
        log.append((turn, rank))

    def bench(torch):
        for turn in range(2):
            torch.multiprocessing.spawn(fn, (torch, turn), nprocs=2 - turn)

    simulate(bench)
    assert log == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("nprocs", [0, 3])
def test_there_are_as_many_ranks_as_sips_at_most(small, nprocs):
    with pytest.raises(
        UsageError, match=f"nprocs={nprocs}; a rank is a SIP, so 1 to 2 are valid"
    ):
        Torch(GraphEngine(small)).multiprocessing.spawn(print, (), nprocs)


def test_a_rank_cannot_spawn(spawn):
    def fn(rank, torch):
        torch.multiprocessing.spawn(print)

    with pytest.raises(UsageError, match="rank 0: spawn: called in a rank"):
        spawn(fn)

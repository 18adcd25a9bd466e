"""The whole path of ``torch.distributed.all_reduce``: ranks, group, wiring, kernel,
data.
"""

import numpy as np
import pytest

from kernbench.ccl.config import load_ccl
from kernbench.common.dtypes import np_dtype
from kernbench.errors import DeadlockError, KernbenchError, TopologyError, UsageError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology

ROWS = DPPolicy(cube="row_wise", pe="replicate", num_pes=1)
CCL = """
defaults: {algorithm: five_phases}
algorithms:
  five_phases: {module: kernbench.ccl.algorithms.intercube_allreduce, root_cube: ROOT}
  chunked: {module: kernbench.ccl.algorithms.ring_chunked_allreduce}
"""


@pytest.fixture
def ranks(tmp_path):
    """ranks(fn, sips=2, w=2, h=1, …) calls fn(rank, torch) in every rank; the engine's
    torch.
    """

    def ranks(
        fn, sips=2, w=2, h=1, topology="ring_1d", root=None, init=True, nprocs=None
    ):
        path = tmp_path / "ccl.yaml"
        path.write_text(CCL.replace("ROOT", str(w * h - 1 if root is None else root)))
        mesh = {"sip.cube_mesh.w": w, "sip.cube_mesh.h": h, "sips.topology": topology}
        engine = GraphEngine(load_topology(None, mesh | {"system.sips.count": sips}))
        torch = Torch(engine, ccl=load_ccl(path))

        def bench(_):
            def process(rank):
                if init:
                    torch.distributed.init_process_group(backend="ahbm")
                fn(rank, torch)

            torch.multiprocessing.spawn(process, (), nprocs)

        engine.run(bench)
        return torch

    return ranks


def verdict(torch):
    return DataExecutor(torch.engine.op_log, torch.blank.snapshot()).verify(
        torch.expectations
    )


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_every_row_of_every_rank_holds_the_reduction_of_all(ranks, op, dtype):
    data = np.random.default_rng(1).integers(-8, 9, (2, 2, 37))
    reduced = {"sum": np.sum, "max": np.max, "min": np.min}[op](data, axis=(0, 1))
    read = {}

    def fn(rank, torch):
        x = torch.tensor(data[rank], dtype, dp=ROWS)
        torch.distributed.all_reduce(x, op)
        read[rank] = x.numpy()

    ranks(fn)
    for rank in (0, 1):
        assert np.array_equal(
            read[rank], np.tile(reduced, (2, 1)).astype(np_dtype(dtype))
        )


@pytest.mark.parametrize(
    ("sips", "topology"),
    [(1, "ring_1d"), (3, "ring_1d"), (4, "torus_2d"), (4, "mesh_2d_no_wrap")],
)
@pytest.mark.parametrize("algorithm", ["five_phases", "chunked"])
@pytest.mark.slow
def test_it_is_right_on_every_topology_with_every_algorithm(
    ranks, sips, topology, algorithm
):
    data = np.random.default_rng(2).integers(-1, 2, (sips, 4, 50))

    def fn(rank, torch):
        torch.distributed.init_process_group("ahbm", algorithm=algorithm)
        assert torch.distributed.algorithm.name == algorithm
        x = torch.tensor(data[rank], "f16", dp=ROWS, name="x")
        torch.distributed.all_reduce(x)
        torch.expect(x, np.tile(data.sum((0, 1)), (4, 1)))

    torch = ranks(fn, sips, 2, 2, topology, init=False)
    assert len(torch.expectations) == sips * 4
    report = verdict(torch)
    assert report.ok, report.as_text()


def test_a_reduction_of_a_reduction_is_in_order(ranks):
    def fn(rank, torch):
        x = torch.full((2, 5), rank + 1, "f32", dp=ROWS, name="x")
        torch.distributed.all_reduce(x)
        torch.distributed.all_reduce(x)
        torch.expect(x, np.full((2, 5), 4 * 2 * (1 + 2)))

    assert verdict(ranks(fn)).ok


def test_what_a_launch_has_computed_is_reduced(ranks):
    def kernel(x_ptr, tl):
        at = x_ptr + tl.program_id(1) * 4 * 4
        tl.store(at, tl.load(at, (4,), "f32") * 3)

    def fn(rank, torch):
        x = torch.full((2, 4), rank + 1, "f32", dp=ROWS)
        torch.launch("triple", kernel, x)
        torch.distributed.all_reduce(x)
        assert np.array_equal(x.numpy(), np.full((2, 4), 18))

    ranks(fn)


def test_a_cube_may_hold_a_block_of_rows(ranks):
    def fn(rank, torch):
        x = torch.full((6, 5), rank + 1, "f32", dp=ROWS)
        torch.distributed.all_reduce(x)
        assert np.array_equal(x.numpy(), np.full((6, 5), 6))

    ranks(fn)


def test_rank_world_size_and_backend(ranks):
    seen = []

    def fn(rank, torch):
        dist = torch.distributed
        seen.append((dist.get_rank(), dist.get_world_size(), dist.get_backend()))

    ranks(fn, sips=3)
    assert seen == [(rank, 3, "ahbm") for rank in range(3)]


def test_a_rank_that_reads_waits_for_one_that_has_not_launched_yet(ranks):
    log = []

    def fn(rank, torch):
        x = torch.full((2, 4), 1, "f32", dp=ROWS)
        if rank == 1:
            log.append("rank 1 launches")
        torch.distributed.all_reduce(x)
        x.numpy()
        log.append(f"rank {rank} has read")

    ranks(fn)
    assert log == ["rank 1 launches", "rank 0 has read", "rank 1 has read"]


@pytest.mark.parametrize("reader", [0, 1])
def test_a_rank_may_read_before_the_reduction_that_the_others_are_in_already(
    ranks, reader
):
    read = []

    def double(x_ptr, tl):
        at = x_ptr + tl.program_id(1) * 4 * 4
        x = tl.load(at, (4,), "f32")
        tl.store(at, x + x)

    def fn(rank, torch):
        x = torch.full((2, 4), 1 + rank, "f32", dp=ROWS, name="x")
        if rank == reader:
            torch.launch("double", double, x)
            read.append(x.numpy()[0, 0])
        torch.distributed.all_reduce(x)
        if rank != reader:
            read.append(x.numpy()[0, 0])
        torch.expect(x, np.full((2, 4), (8, 10)[reader]))

    torch = ranks(fn)
    assert read == [2 * (1 + reader), (8, 10)[reader]]
    assert verdict(torch).ok


def test_a_reduction_that_one_rank_leaves_out_is_a_deadlock_with_its_waiters(ranks):
    def fn(rank, torch):
        x = torch.full((2, 4), 1, "f32", dp=ROWS)
        if rank == 0:
            torch.distributed.all_reduce(x)

    with pytest.raises(
        DeadlockError, match=r"sip0\.cube1\.pe0\.pe_cpu: recv global_W at kernbench/"
    ):
        ranks(fn)


def test_a_barrier_holds_the_ranks_until_the_slowest_has_come(ranks):
    log = []

    def fn(rank, torch):
        x = torch.full((2, 4), 1, "f32", dp=ROWS)
        for _ in range(3 * rank):
            x.numpy()
        log.append(f"{rank} comes")
        torch.distributed.barrier()
        log.append(f"{rank} passes")

    ranks(fn)
    assert log == ["0 comes", "1 comes", "0 passes", "1 passes"]


def test_another_backend_is_a_value_error():
    torch = Torch(GraphEngine(load_topology()))
    with pytest.raises(ValueError, match="unknown backend 'nccl'; valid: 'ahbm'"):
        torch.distributed.init_process_group(backend="nccl")


@pytest.mark.parametrize("inherited", [False, True])
def test_joining_twice_is_a_runtime_error(ranks, inherited):
    def fn(rank, torch):
        with pytest.raises(RuntimeError, match="called twice"):
            torch.distributed.init_process_group()

    if not inherited:
        ranks(fn)
        return
    torch = Torch(GraphEngine(load_topology()))
    torch.distributed.init_process_group()
    torch.multiprocessing.spawn(fn, (torch,))


@pytest.mark.parametrize(
    "call", ["get_rank", "get_world_size", "get_backend", "barrier"]
)
def test_use_before_joining_is_a_runtime_error(ranks, call):
    def fn(rank, torch):
        with pytest.raises(
            RuntimeError, match=f"{call}: call .*init_process_group first"
        ):
            getattr(torch.distributed, call)()
        with pytest.raises(
            RuntimeError, match=r"all_reduce: call .*init_process_group first"
        ):
            torch.distributed.all_reduce(torch.full((2, 4), 1, "f32", dp=ROWS))

    ranks(fn, init=False)


def test_a_rank_leaves_the_group_when_it_ends(ranks):
    torch = ranks(lambda rank, torch: None)
    with pytest.raises(RuntimeError, match="get_world_size: call"):
        torch.distributed.get_world_size()
    joined = []

    def again(rank):
        torch.distributed.init_process_group()
        joined.append(torch.distributed.get_rank())

    torch.multiprocessing.spawn(again)
    assert joined == [0, 1]


def test_outside_of_a_rank_there_is_none():
    torch = Torch(GraphEngine(load_topology()))
    torch.distributed.init_process_group()
    assert torch.distributed.get_world_size() == 2
    for call in (torch.distributed.get_rank, torch.distributed.barrier):
        with pytest.raises(
            RuntimeError,
            match=r"a rank a SIP; call it in .*spawn with nprocs=2 \(now 0\)",
        ):
            call()


def test_the_group_spans_all_sips(ranks):
    with pytest.raises(
        KernbenchError, match=r"RuntimeError: .*spawn with nprocs=2 \(now 1\)"
    ):
        ranks(lambda rank, torch: None, nprocs=1)


def test_the_first_to_join_chooses_the_algorithm(ranks):
    def fn(rank, torch):
        if rank == 0:
            torch.distributed.init_process_group()
        else:
            with pytest.raises(
                RuntimeError, match=r"'chunked', but .* wired for 'five_phases'"
            ):
                torch.distributed.init_process_group(algorithm="chunked")

    ranks(fn, init=False)


def test_an_unknown_operator_lists_the_valid_ones(ranks):
    def fn(rank, torch):
        with pytest.raises(UsageError, match="op=prod: valid: sum, max, min"):
            torch.distributed.all_reduce(torch.full((2, 4), 1, "f32", dp=ROWS), "prod")

    ranks(fn)


@pytest.mark.parametrize(
    "dp",
    [
        None,
        DPPolicy(cube="row_wise"),
        DPPolicy(cube="row_wise", pe="column_wise"),
        DPPolicy(cube="row_wise", num_cubes=1, num_pes=1),
        DPPolicy(cube="replicate", num_pes=1, pe="replicate", num_cubes=1),
    ],
)
def test_another_layout_is_refused_with_the_right_one(ranks, dp):
    def fn(rank, torch):
        with pytest.raises(
            UsageError, match=r"each of the 2 cubes .* shape \(2, n\) with DPPolicy"
        ):
            torch.distributed.all_reduce(torch.full((2, 4), 1, "f32", dp=dp))

    ranks(fn)


def test_shards_of_unequal_size_are_refused(ranks):
    def fn(rank, torch):
        with pytest.raises(UsageError, match="must hold equally many elements"):
            torch.distributed.all_reduce(torch.full((3, 4), 1, "f32", dp=ROWS))

    ranks(fn)


def test_a_tensor_of_another_rank_is_refused(ranks):
    made = []

    def fn(rank, torch):
        made.append(torch.full((2, 4), 1, "f32", dp=ROWS))
        torch.distributed.barrier()
        with pytest.raises(UsageError, match="of the rank's SIP"):
            torch.distributed.all_reduce(made[1 - rank])

    ranks(fn)


def test_a_root_that_is_not_the_se_corner_is_refused_when_joining(ranks):
    with pytest.raises(
        TopologyError, match=r"rank 0: ccl: .*root_cube is 0, .* cube 1 of the 2 x 1"
    ):
        ranks(lambda rank, torch: None, root=0)


def test_a_topology_that_needs_a_square_refuses_another_count_when_joining(ranks):
    with pytest.raises(
        TopologyError, match=r"torus_2d needs a square number of SIPs.*is 3"
    ):
        ranks(lambda rank, torch: None, sips=3, topology="torus_2d")

"""How often each operand was fetched, against a brute force over recorded addresses."""

import textwrap
from collections import defaultdict

import numpy as np
import pytest
from bench_sizes import UNEVEN

from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.cut import cut

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
LOADS = """
    import numpy as np

    from kernbench.benches import bench
    from kernbench.runtime_api import DPPolicy

    ONE = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=1, num_pes=1)


    def kernel(x_ptr, y_ptr, tl):
        for first in (0, 64, 0, 32, 1024):
            with tl.scope():
                tl.store(y_ptr, tl.load(x_ptr + first, (32,), "f16"))


    @bench(name="loads", description="loads that overlap")
    def run(torch):
        x = torch.tensor(np.ones(4096), "f16", dp=ONE, name="x")
        y = torch.empty((32,), "f16", dp=ONE, name="y")
        torch.launch("loads", kernel, x, y)
"""


@pytest.fixture
def traced(tmp_path):
    """traced(bench, **params) -> its session, on a machine of one cube."""

    def traced(name, **params):
        path = tmp_path / "run.msgpack"
        run_bench(name, params=params, spec=ONE_CUBE, trace=path, verify=False)
        return ReplaySession(Trace.open(path))

    return traced


def blocks(op):
    """(space, first byte, bytes) of each row that an op of a PE reads from memory."""
    params = op.params
    if op.op_name == "dma_read":
        if "rows" not in params:
            yield params["src_space"], params["src_addr"], params["nbytes"]
        return
    if op.op_name != "TileToken/DMA_READ":
        return
    for number, addr in enumerate(params["addrs"]):
        space = params["spaces"][number]
        if "rows" not in params:
            yield space, addr, params["sizes"][number]
            continue
        for row in range(params["rows"][number]):
            first = addr + row * params["pitch"][number]
            yield space, first, params["row_bytes"][number]


def brute_force(trace):
    """By tensor all bytes that were read, and those that each PE and launch read."""
    everything = defaultdict(int)
    once = defaultdict(set)
    for position, op in enumerate(trace.ops):
        for space, addr, nbytes in blocks(op):
            (tensor,) = [
                shard.tensor
                for shard in trace.allocs
                if shard.space == space
                and shard.addr <= addr < shard.addr + shard.nbytes
            ]
            cmd = trace.op_columns.cmd[trace.order[position]]
            launch = trace.command(int(cmd)).launch
            everything[tensor] += nbytes
            seen = once[tensor, op.component_id, launch]
            seen.update(range(addr, addr + nbytes))
    distinct = defaultdict(int)
    for (tensor, *_), seen in once.items():
        distinct[tensor] += len(seen)
    return {tensor: (total, distinct[tensor]) for tensor, total in everything.items()}


def first_again(trace):
    """By tensor the first op that reads a row of bytes which its PE had read before."""
    seen = set()
    first = {}
    for position, op in enumerate(trace.ops):
        cmd = trace.op_columns.cmd[trace.order[position]]
        launch = trace.command(int(cmd)).launch if list(blocks(op)) else -1
        rows = {(op.component_id, launch, *block) for block in blocks(op)}
        for row in rows & seen:
            (tensor,) = [
                shard.tensor
                for shard in trace.allocs
                if shard.space == row[2]
                and shard.addr <= row[3] < shard.addr + shard.nbytes
            ]
            first.setdefault(tensor, position)
        seen |= rows
    return first


@pytest.mark.parametrize("name", UNEVEN)
def test_the_first_op_that_reads_again_is_named(benches, name):
    session = benches(name)
    found = session.fetches().tensors
    again = {row.tensor: row.again for row in found if row.again is not None}
    assert again == first_again(session.trace)


@pytest.mark.parametrize("name", UNEVEN)
def test_bytes_and_refetches_are_those_of_the_recorded_addresses(benches, name):
    session = benches(name)
    found = {
        row.tensor: (row.nbytes, row.distinct) for row in session.fetches().tensors
    }
    assert found == brute_force(session.trace)


def test_loads_that_overlap_count_the_bytes_that_they_share(traced, tmp_path):
    path = tmp_path / "loads.py"
    path.write_text(textwrap.dedent(LOADS))
    session = traced(str(path))
    (x,) = session.fetches().tensors
    assert (x.nbytes, x.distinct, x.refetched) == (5 * 64, 3 * 64, 2 * 64)
    assert brute_force(session.trace) == {"x": (x.nbytes, x.distinct)}
    assert x.advice == ""
    loads = [i for i, op in enumerate(session.trace.ops) if op.op_name == "dma_read"]
    assert x.again == loads[2]


def test_a_matmul_reads_a_for_each_tile_of_n_and_says_which_n_would_not(traced):
    session = traced("matmul", m=128, k=96, n=256, tile=64, pes=1)
    a, b = session.fetches().tensors
    assert session.fetches().lines(100) == [
        "a 4 times: 72 KiB of 96 KiB are refetches; n = 256: once a composite",
        "b 2 times: 48 KiB of 96 KiB are refetches; m = 128: once a composite",
        "(m and n: of the composite's tile, whether or not it fits the TCM)",
    ]
    assert (a.times, b.times) == (4, 2)
    again = traced("matmul", m=128, k=96, n=256, tile=256, pes=1)
    rows = {row.tensor: row for row in again.fetches().tensors}
    assert rows["a"].times == 1
    assert rows["a"].as_text() == "a once: 24 KiB"


def test_pes_that_each_read_a_tensor_once_refetch_nothing(traced):
    session = traced("matmul", m=64, k=64, n=512, tile=64)
    assert {row.refetched for row in session.fetches().tensors} == {0}
    assert np.isclose({r.tensor: r.times for r in session.fetches().tensors}["a"], 1)


def test_a_kernel_that_only_stores_has_fetched_nothing(traced, tmp_path):
    path = tmp_path / "stores.py"
    only_stores = LOADS.replace('tl.load(x_ptr + first, (32,), "f16")', "zeros")
    only_stores = only_stores.replace(
        "with tl.scope():",
        'with tl.scope():\n                zeros = tl.full((32,), 0.0, "f16")',
    )
    path.write_text(textwrap.dedent(only_stores))
    assert traced(str(path)).fetches().tensors == ()


def test_a_tensor_says_how_many_pes_read_it_and_in_how_many_launches(traced):
    """A replicated tensor is fetched once by each PE: the bytes are a multiple."""
    session = traced("matmul", m=64, k=64, n=512, tile=64)
    by_name = {row.tensor: row for row in session.fetches().tensors}
    assert (by_name["a"].pes, by_name["a"].launches) == (8, 1)
    assert by_name["a"].nbytes == 8 * 64 * 64 * 2
    assert by_name["a"].as_text() == "a once: 64 KiB (8 PEs)"
    assert session.fetches().lines(100)[0] == "a once: 64 KiB (8 PEs)"


def test_a_tensor_that_two_launches_read_says_so(traced, tmp_path):
    launch = 'torch.launch("loads", kernel, x, y)'
    path = tmp_path / "twice.py"
    path.write_text(textwrap.dedent(LOADS).replace(launch, f"{launch}; {launch}"))
    (x,) = traced(str(path)).fetches().tensors
    assert (x.pes, x.launches) == (1, 2)
    assert x.as_text() == "x 1.67 times: 256 B of 640 B are refetches (2 launches)"


def test_a_part_of_a_run_does_not_call_once_what_it_saw_once(traced, tmp_path):
    path = tmp_path / "loads.py"
    path.write_text(textwrap.dedent(LOADS))
    whole = traced(str(path))
    assert whole.fetches().part == ""
    (first, *_) = (op for op in whole.trace.ops if op.op_name == "dma_read")
    part = tmp_path / "part.msgpack"
    cut(whole.trace.path, part, first.t_start, first.t_end)
    once, said = ReplaySession(Trace.open(part)).fetches().lines(200)
    assert once == "x once: 64 B"  # and in the whole run "x 1.67 times"
    assert said.startswith("a part of a run, ")


def test_a_line_that_is_too_long_goes_on_in_the_next(traced):
    fetches = traced("matmul", m=128, k=96, n=256, tile=64, pes=1).fetches()
    for width in (30, 50, 80):
        lines = fetches.lines(width)
        assert max(map(len, lines)) <= width
        assert "n = 256: once a composite" in " ".join(map(str.strip, lines))

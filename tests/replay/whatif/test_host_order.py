"""What the host did before its calls, against runs in which a part of that is late."""

import numpy as np
import pytest
from real_runs import end_of_launches

from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace

TWO_SIPS = {"sips.count": 2, "cube_mesh.w": 1, "cube_mesh.h": 1}
BEYOND_NS = 10.0

RANKS = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)

def kernel(x_ptr, count, tl):
    for _ in range(count):
        tl.load(x_ptr, (8,), "f16")

def worker(rank, torch):
    if rank == LATE_RANK:
        torch.tensor(np.ones(2048), "f16", ONE, name="late")
    x = torch.tensor(np.ones(8), "f16", ONE, name="x")
    BETWEEN
    torch.launch("kernel", kernel, x, 1 + LOADS * rank)

@bench(name="ranks", description="")
def run(torch):
    torch.distributed.init_process_group(backend="ahbm")
    torch.multiprocessing.spawn(worker, (torch,), 2)
"""

BETWEEN = {
    "each rank by itself": "pass",
    "behind a barrier": "torch.distributed.barrier()",
    "when the machine is idle": "x.numpy()",
    "behind two barriers": "torch.distributed.barrier(); torch.distributed.barrier()",
}

BENCH_ITSELF = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

EACH = DPPolicy(cube="row_wise", num_pes=1)

def kernel(x_ptr, tl):
    tl.load(x_ptr, (8,), "f16")

@bench(name="alone", description="")
def run(torch):
    first = torch.tensor(np.ones((2, 8)), "f16", EACH, name="first")
    torch.launch("kernel", kernel, first)
    second = torch.tensor(np.ones((2, 2048)), "f16", EACH, name="second")
    torch.launch("kernel", kernel, second)
"""


def ops_of_host(trace):
    """The positions of what the host moved before the last launch began."""
    ops = trace.op_columns
    names = [trace.strings[name] for name in ops.name[:]]
    is_host = np.array([name.startswith("host_") for name in names])
    is_host &= ops.t_start[:] < max(launch.t_start for launch in trace.launches)
    return trace.position[np.flatnonzero(is_host)].tolist()


def each_is_as_told(path, tmp_path):
    """Hold back each op of the host by its slack, and by more; how many there are."""
    trace = Trace.open(path)
    index = WhatIfIndex(trace)
    new = tmp_path / "new.msgpack"
    end = end_of_launches(path)
    ops = ops_of_host(trace)
    for position in ops:
        slack = index.slack(position)
        assert slack.sure
        if slack.ns > 0:
            rerun(path, new, Change(delays=[(position, slack.ns)]))
            assert end_of_launches(new) - end <= 1, position
        rerun(path, new, Change(delays=[(position, slack.ns + BEYOND_NS)]))
        assert end_of_launches(new) - end >= BEYOND_NS - 1, position
    return len(ops)


@pytest.mark.slow
def test_a_write_of_either_rank_is_awaited_by_its_launch(tmp_path):
    path = tmp_path / "recorded.msgpack"
    run_bench("ccl_allreduce", spec=TWO_SIPS, trace=path)
    assert each_is_as_told(path, tmp_path) == 2


@pytest.mark.slow
@pytest.mark.parametrize("late_rank", [0, 1, 2])
@pytest.mark.parametrize("between", BETWEEN)
def test_what_ranks_did_is_awaited_where_they_meet(between, late_rank, tmp_path):
    file = tmp_path / "ranks.py"
    text = RANKS.replace("BETWEEN", BETWEEN[between])
    # The second rank's kernel is longer by more than the other's write.
    text = text.replace("LATE_RANK", str(late_rank)).replace("LOADS", "20")
    file.write_text(text)
    path = tmp_path / "recorded.msgpack"
    run_bench(str(file), spec=TWO_SIPS, trace=path)
    assert each_is_as_told(path, tmp_path) >= 2


@pytest.mark.slow
def test_what_the_bench_did_itself_is_in_one_row(tmp_path):
    file = tmp_path / "alone.py"
    file.write_text(BENCH_ITSELF)
    path = tmp_path / "recorded.msgpack"
    run_bench(str(file), spec=TWO_SIPS, trace=path)
    assert each_is_as_told(path, tmp_path) >= 2

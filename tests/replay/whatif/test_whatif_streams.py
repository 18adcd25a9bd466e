"""Moves whose bursts come between each other on a link, against runs of the machine.

Four PEs of one cube send rows to four of another at different times, over one link. If
one comes later its bursts meet those of the next, and both take longer.
"""

import pytest
from real_runs import Recorded

from kernbench.replay import ReplaySession
from kernbench.trace import Trace

BENCH = '''
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy

PES = 8
ROW_A_PE = DPPolicy(num_cubes=2, num_pes=4, pe="row_wise", cube="row_wise")


def kernel(x, y, n, tl):
    """Rows go to the PE of the other cube and back; some work longer on them."""
    pe = tl.program_id(0)
    me = pe + 4 * tl.program_id(1)
    row = tl.load(x + me * n * 4, (1, n), "f32")
    for _ in range(3):
        for _ in range(pe * 3):
            row = tl.neg(row)
        tl.send("E", row)
        row = tl.recv("E", (1, n), "f32")
    tl.store(y + me * n * 4, row)


@bench(name="over_one_link", description="")
def run(torch, n: int = 512):
    install_ipcq(
        torch.engine,
        world_size=PES,
        rank_to_pe=[(0, cube, pe) for cube in range(2) for pe in range(4)],
        neighbors=lambda rank: {"E": (rank + 4) % PES},
        slots=8,
        slot_bytes=n * 4,
    )
    data = torch.rng.integers(-64, 65, (PES, n)).astype("f4")
    x = torch.tensor(data, dp=ROW_A_PE, name="x")
    y = torch.empty((PES, n), "f32", dp=ROW_A_PE, name="y")
    torch.launch("kernel", kernel, x, y, n)
'''


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The trace of a run of that bench."""
    return Recorded(tmp_path_factory.mktemp("streams"), BENCH)


@pytest.mark.slow
@pytest.mark.parametrize("step", [15, pytest.param(3, marks=pytest.mark.soak)])
def test_a_slack_in_which_bursts_meet_otherwise_is_not_told_as_sure(
    recorded, tmp_path, step
):
    session = ReplaySession(Trace.open(recorded.path))
    tried = 0
    for op in range(0, len(session), step):
        slack = session.index.whatif.slack(op)
        if not slack.sure or not slack.ns:
            continue
        tried += 1
        recorded.check_slack(op, slack, tmp_path)
    assert tried

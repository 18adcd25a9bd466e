"""Pushes that share the slots of a DMA: those of one PE, wherever they go to.

A push is recorded at the DMA of the PE that gets it, with a slot of the one that sends
it. The truth is in the kernel: which call sends first.
"""

import pytest

from kernbench.common.progress import no_progress
from kernbench.replay import ReplaySession
from kernbench.replay.views.causes import causes_of
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace

ONE_SLOT = {
    "sips.count": 1,
    "cube_mesh.w": 1,
    "cube_mesh.h": 1,
    "pe.dma.outstanding": 1,
}
BENCH = '''
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy


def kernel(x, y, tl):
    """PE 0 sends to both others; the second push has the slot after the first."""
    some = tl.load(x)
    if tl.program_id(0) == 0:
        tl.send("E", some, wait=False)
        tl.send("W", some)
    else:
        some = tl.recv("WE"[tl.program_id(0) - 1], (1, 1024), "f32")
        tl.store(y, some)


@bench(name="pushes", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=3,
        rank_to_pe=[(0, 0, 0), (0, 0, 1), (0, 0, 2)],
        neighbors=lambda rank: {"E": (rank + 1) % 3, "W": (rank - 1) % 3},
    )
    rows = DPPolicy(pe="row_wise", num_pes=3)
    x = torch.tensor(np.ones((3, 1024)), "f32", rows, name="x")
    torch.launch("kernel", kernel, x, torch.zeros((3, 1024), "f32", rows, name="y"))
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The trace of that run."""
    folder = tmp_path_factory.mktemp("pushes")
    file = folder / "pushes.py"
    file.write_text(BENCH)
    run_bench(str(file), spec=ONE_SLOT, trace=folder / "trace")
    return folder / "trace"


@pytest.fixture(scope="module")
def session(path):
    return ReplaySession(Trace.open(path))


@pytest.fixture(scope="module")
def pushes(session):
    """The positions of the push to PE 1 and of the one to PE 2."""
    first, second = (
        op for op in range(len(session)) if session.row(op).name == "ipcq_copy"
    )
    assert session.row(first).component == "sip0.cube0.pe1.pe_dma"
    assert session.row(second).component == "sip0.cube0.pe2.pe_dma"
    return first, second


def test_a_push_waits_for_the_push_that_has_the_slot(session, pushes):
    first, second = pushes
    (wait,) = session.details(second).waits
    assert (wait[0], wait[1], wait[4]) == ("sip0.cube0.pe0.pe_dma", "dma_slot", first)
    assert causes_of(session.index, second, no_progress).cause.op == first
    session.goto(second)
    assert session.to_cause() == first


def test_the_critical_path_passes_the_push_that_has_the_slot(session, pushes):
    assert set(pushes) <= set(session.critical_path().ops.tolist())


def test_a_push_that_has_the_slot_for_longer_moves_the_end(
    path, session, pushes, tmp_path
):
    first, _ = pushes
    rerun(path, tmp_path / "late", Change(delays=[(first, 20.0)]))
    ends = [
        max(launch.t_end for launch in trace.launches)
        for trace in (session.trace, Trace.open(tmp_path / "late"))
    ]
    assert ends[1] - ends[0] == 20.0
    assert session.slack(first) == 0.0

"""Waits at links and channels that strangers' kernels have, and what is told of them,
against runs of the changed machine and of ops that are held back.
"""

import pytest
from real_runs import end_of_launches

from kernbench.errors import KernelError
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace

HEAD = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy
"""

FAR = (
    HEAD
    + '''
def kernel(x, y, reads, tl):
    """Every PE reads what lies in the next cube and on the other SIP, then stores."""
    pe, cube, sip = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    pes, cubes, sips = (tl.num_programs(axis) for axis in range(3))
    me = (sip * cubes + cube) * pes + pe
    total = tl.zeros((3, x.shape[1]), "f32")
    loads = []
    for i in range(reads):
        other = (me + 1 + i * (pes + 1)) % (sips * cubes * pes)
        loads.append(tl.load(x[other * 4 : other * 4 + 3], wait=False))
    for load in loads:
        tl.wait(load)
        tl.add(total, load, out=total)
    other = (me + pes) % (sips * cubes * pes)
    tl.store(y[other * 4 : other * 4 + 3], total)
    if me % 3 == 0:
        tl.store(y[other * 4 + 3], tl.sum(total, axis=0))


MACHINE = {"system.sips.count": 2, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


@bench(name="far", description="", machine=lambda **_: MACHINE)
def run(torch):
    rows = DPPolicy(cube="row_wise", pe="row_wise", num_pes=3)
    data = torch.rng.standard_normal((48, 300)).astype("f4")
    x = torch.tensor(data, dp=rows, name="x")
    y = torch.zeros((48, 300), "f32", rows, name="y")
    for _ in range(2):
        torch.launch("far", kernel, x, y, reads=10)
'''
)

MIXED = (
    HEAD
    + '''
def kernel(a, b, c, d, tl):
    """Composites beside loads, products and stores that nobody waits for."""
    pe = tl.program_id(0)
    mine, _ = tl.own(a)
    rows = slice(mine.start, mine.stop)
    bias = tl.load(d[pe * 4, : b.shape[1]], wait=False)
    t = tl.load(a[rows, :64])
    tl.wait(bias)
    done = tl.composite(
        a=tl.ref(a[rows]),
        b=tl.ref(b[:]),
        out_ptr=c[rows],
        epilogue=[("bias", bias), "relu", ("scale", 0.5)],
        tile=(16, 32, 32),
    )
    u = tl.load(b[:64, :64], wait=False)
    v = tl.load(b[64:128, :64], wait=False)
    tl.wait(u)
    w = tl.dot(t, u, out_dtype="f32")
    tl.wait(v)
    tl.dot(t, v, acc=w)
    tl.store(d[pe * 4, :64], tl.cast(tl.sum(w, axis=0), "f16"), wait=False)
    scaled = tl.composite(
        "mul", a=tl.ref(c[rows]), b=0.25, out_ptr=c[rows], tile=(8, 64, 1)
    )
    tl.wait(done)
    tl.wait(scaled)
    z = tl.load(c[rows, :64])
    tl.store(d[pe * 4 + 1, :64], tl.cast(tl.max(tl.exp(z), axis=0), "f16"))
    FOOT


MACHINE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


@bench(name="mixed", description="", machine=lambda **_: MACHINE)
def run(torch):
    rows = DPPolicy(pe="row_wise", num_cubes=1, num_pes=4)
    all_of_it = DPPolicy(pe="replicate", num_cubes=1, num_pes=4)
    normal = torch.rng.standard_normal
    a = torch.tensor(normal((64, 128)), "f16", rows, name="a")
    b = torch.tensor(normal((128, 96)), "f16", all_of_it, name="b")
    c = torch.zeros((64, 96), "f16", rows, name="c")
    d = torch.zeros((16, 128), "f16", rows, name="d")
    for _ in range(3):
        torch.launch("mixed", kernel, a, b, c, d)
'''
)

LATE_STORE = (
    HEAD
    + '''
def kernel(x, y, tl):
    """The last load reads what the third store writes, much later."""
    w = tl.load(x) * 2.0
    for k in range(3):
        tl.store(y[k, ::8], w, wait=False)
    u = tl.load(y[0, ::8], wait=False)
    tl.store(y[1, ::8], w, wait=False)
    tl.wait(u)
    tl.load(y[2, ::8])


@bench(name="late_store", description="")
def run(torch):
    here = DPPolicy(pe="replicate", num_cubes=1, num_pes=1)
    x = torch.tensor(np.ones(64), "f32", here, name="x")
    y = torch.empty((3, 512), "f32", here, name="y")
    torch.launch("late", kernel, x, y)
'''
)

ENDED = MIXED.replace("FOOT", "tl.dot(t, t)")
"""The inner sizes of its last product differ, which ends the run."""

BEYOND_NS = 10.0


def recorded(text, folder):
    """The path of the trace of a bench."""
    file = folder / "bench.py"
    file.write_text(text.replace("    FOOT\n", ""))
    run_bench(str(file), trace=folder / "t", verify=False)
    return folder / "t"


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    return recorded(FAR, tmp_path_factory.mktemp("far"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return recorded(MIXED, tmp_path_factory.mktemp("mixed"))


def holds(path, position, folder):
    """Whether the slack that is told of an op is what two re-runs show."""
    slack = WhatIfIndex(Trace.open(path)).slack(position)
    assert slack.sure, slack.why
    moved = []
    for ns in (slack.ns, slack.ns + BEYOND_NS):
        rerun(path, folder / "late", Change(delays=[(position, ns)] if ns else []))
        moved.append(end_of_launches(folder / "late") - end_of_launches(path))
    return abs(moved[0]) < 1 and abs(moved[1] - BEYOND_NS) < 1


@pytest.mark.parametrize("position", [506, 187])
@pytest.mark.slow
def test_a_store_that_waits_for_a_link_gives_what_is_before_it_slack(
    far, position, tmp_path
):
    assert holds(far, position, tmp_path)


@pytest.mark.slow
def test_a_read_that_waits_for_a_channel_gives_itself_slack(mixed, tmp_path):
    assert holds(mixed, 671, tmp_path)


def test_no_slack_is_sure_of_a_store_that_would_hold_a_load_back(tmp_path):
    path = recorded(LATE_STORE, tmp_path)
    trace = Trace.open(path)
    names = [op.op_name for op in trace.ops]
    third = [at for at, name in enumerate(names) if name == "dma_write"][2]
    slack = WhatIfIndex(trace).slack(third)
    rerun(path, tmp_path / "late", Change(delays=[(third, slack.ns)]))
    moved = end_of_launches(tmp_path / "late") - end_of_launches(path)
    assert not slack.sure or abs(moved) < 1
    assert "be held" in slack.why


@pytest.mark.parametrize(
    "changes",
    [
        {"pe.clock_ghz": 0.5},
        {"system.pcie_bw_gbs": 126.0},
        {"sip.io.pcie_ep_overhead_ns": 120.0, "cube.sram.access_ns": 24.0},
        {"system.pcie_bw_gbs": 50.4, "cube.hbm.cl_ns": 17.5},
    ],
)
@pytest.mark.slow
def test_a_wait_for_a_link_is_no_row_that_was_opened(far, changes, tmp_path):
    texts = [f"{field}={value}" for field, value in changes.items()]
    told = WhatIfIndex(Trace.open(far)).predict(texts)
    rerun(far, tmp_path / "changed", Change(spec=changes))
    assert told.sure, told.why
    assert abs(told.predicted_ns / Trace.open(tmp_path / "changed").end_ns - 1) < 1e-3


def test_a_link_that_is_far_slower_may_have_others_wait(far):
    index = WhatIfIndex(Trace.open(far))
    assert index.predict(["system.pcie_bw_gbs=20"]).sure
    told = index.predict(["system.pcie_bw_gbs=6.3"])
    assert not told.sure
    assert "10 times slower" in told.why


def test_of_a_run_that_ended_within_a_launch_nothing_is_sure(tmp_path):
    with pytest.raises(KernelError):
        recorded(ENDED, tmp_path)
    index = WhatIfIndex(Trace.open(tmp_path / "t"))
    told = index.predict(["cube.m_cpu.overhead_ns=100"])
    rerun(tmp_path / "t", tmp_path / "n", Change(spec={"cube.m_cpu.overhead_ns": 100}))
    assert Trace.open(tmp_path / "n").end_ns != told.predicted_ns
    assert not told.sure
    assert "ended within a launch" in told.why
    assert not index.slack(34).sure

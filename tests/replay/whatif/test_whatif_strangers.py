"""What is called sure about kernels that strangers wrote, against runs of the machine
that was asked about, and of ops that are late.
"""

import pytest

from kernbench.errors import UsageError
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
TWO_SIPS = ONE_CUBE | {"sips.count": 2}
BEYOND_NS = 10.0

HEAD = """
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy
"""

ENGINE_IN_TURNS = (
    HEAD
    + '''
def kernel(x, w, y, tl):
    """The stages of a composite take turns at an engine with what is called beside."""
    a = tl.load(x)
    whole = tl.composite(
        a=tl.ref(x), b=tl.ref(w), out_ptr=y, tile=(32, 32, 32), epilogue=["relu"]
    )
    for _ in range(30):
        tl.exp(tl.slice(a, (0, 0), (8, 64)))
    tl.wait(whole)


@bench(name="engine", description="")
def run(torch):
    data = torch.rng.standard_normal((64, 64))
    torch.launch("k", kernel, *[torch.tensor(data, "f16", name=n) for n in "xwy"])
'''
)

RANKS = (
    HEAD
    + """
def kernel(x, y, tl):
    tl.store(y, tl.load(x) * 2 + 1)


def worker(rank, torch):
    x = torch.tensor(np.ones((1, 64)) * (rank + 1), "f32", name="x")
    y = torch.zeros((1, 64), "f32", name="y")
    BODY


@bench(name="ranks", description="")
def run(torch):
    torch.distributed.init_process_group()
    torch.multiprocessing.spawn(worker, (torch,))
"""
)

UNEVEN = RANKS.replace(
    "BODY",
    """for _ in range(1 + rank):
        torch.launch("kernel", kernel, x, y)
    torch.distributed.barrier()
    torch.launch("kernel", kernel, y, x)""",
)
"""One rank is at the barrier as the last launch of the other ends."""

IDLE = RANKS.replace("BODY", "torch.distributed.all_reduce(y); x.numpy()")
"""The read waits for what an all-reduce has under way, which is no call."""

HELD = (
    HEAD
    + '''
def kernel(w, y, tl):
    """An add writes what a store reads that is still behind 40 others."""
    some = tl.zeros((64,), "f32")
    kept = tl.full((64,), 1, "f32")
    large = tl.zeros((512,), "f32")
    for i in range(40):
        tl.store(w[i * 512 : (i + 1) * 512], large, wait=False)
    tl.store(y, kept, wait=False)
    for _ in range(COUNT):
        tl.exp(some)
    tl.add(kept, 1, out=kept)
    for _ in range(60):
        tl.neg(some)


@bench(name="held", description="")
def run(torch):
    w = torch.zeros((20480,), "f32", name="w")
    torch.launch("kernel", kernel, w, torch.zeros((64,), "f32", name="y"))
'''
)

SOURCE_OF_A_SEND = (
    HEAD
    + '''
def kernel(x, y, tl):
    """The add writes what was sent, long after it was read."""
    a = tl.load(x)
    if tl.program_id(0) == 0:
        for _ in range(30):
            tl.exp(a)
        tl.send("E", a)
        tl.recv("E", (1, 64), "f32")
    else:
        for _ in range(40):
            tl.neg(a)
        tl.send("W", a, wait=False)
        theirs = tl.recv("W", (1, 64), "f32")
        tl.add(a, theirs, out=a)
        tl.store(y, a)


@bench(name="source", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=lambda rank: [{"E": 1}, {"W": 0}][rank],
        slots=4,
        slot_bytes=4096,
    )
    rows = DPPolicy(pe="row_wise", num_pes=2)
    x = torch.tensor(np.ones((2, 64)), "f32", rows, name="x")
    torch.launch("kernel", kernel, x, torch.zeros((2, 64), "f32", rows, name="y"))
'''
)

STRIDED = (
    HEAD
    + '''
def kernel(x, y, tl):
    """Each burst opens rows: how soon one may follow the other is what takes time."""
    for _ in range(3):
        tl.load(x[:, 16:32])
        tl.load(x[::2, 0:8])
    tl.store(y[:, 16:32], tl.load(x[:, 16:32]))


@bench(name="strided", description="")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor(torch.rng.standard_normal((64, 2048)), "f32", one, name="x")
    torch.launch("kernel", kernel, x, torch.zeros((64, 2048), "f32", one, name="y"))
'''
)

TWO_ROWS = (
    HEAD
    + """
def kernel(x, y, tl):
    tl.store(y, tl.load(x) * 2)


@bench(name="rows", description="")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    data = np.ones(3000)
    x = torch.tensor(data, "f32", one, name="x")
    y = torch.tensor(data, "f32", one, name="y")
    torch.launch("kernel", kernel, x, y)
"""
)
"""The host writes 12,000 bytes behind others: in part into rows that are open."""

PROGRAMS = {
    "engine": (ENGINE_IN_TURNS, ONE_CUBE),
    "uneven": (UNEVEN, TWO_SIPS),
    "idle": (IDLE, TWO_SIPS),
    "held": (HELD.replace("COUNT", "30"), ONE_CUBE),
    "not held": (HELD.replace("COUNT", "50"), ONE_CUBE),
    "source": (SOURCE_OF_A_SEND, ONE_CUBE),
    "strided": (STRIDED, ONE_CUBE),
    "rows": (TWO_ROWS, ONE_CUBE),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """recorded(program) -> its file, its machine, and the path of its trace."""
    folder = tmp_path_factory.mktemp("strangers")
    known = {}

    def recorded(name):
        if name not in known:
            text, spec = PROGRAMS[name]
            file = folder / f"{name.replace(' ', '_')}.py"
            file.write_text(text)
            path = file.with_suffix(".msgpack")
            run_bench(str(file), spec=spec, trace=path)
            known[name] = file, spec, path
        return known[name]

    return recorded


def spans_of(path):
    return [launch.t_end - launch.t_start for launch in Trace.open(path).launches]


def told_and_run(recorded, field, value, tmp_path):
    """What is predicted of a changed machine, and the trace of a run of it."""
    file, spec, path = recorded
    told = WhatIfIndex(Trace.open(path)).predict((f"{field}={value}",))
    changed = tmp_path / "changed.msgpack"
    run_bench(str(file), spec=spec | {field: value}, trace=changed)
    return told, changed


def most_wrong(told, path):
    """By how much a prediction is off, of the end and of all launches: the most."""
    real = [Trace.open(path).end_ns, *spans_of(path)]
    said = [told.predicted_ns, *(launch.predicted_ns for launch in told.launches)]
    return max(abs(one / other - 1) for one, other in zip(said, real, strict=True))


def why_not_sure(recorded, field, value, tmp_path):
    """Why a prediction is not sure that is wrong: of others this says nothing."""
    told, changed = told_and_run(recorded, field, value, tmp_path)
    assert most_wrong(told, changed) > 0.01
    assert not told.sure
    return told.why


@pytest.mark.parametrize(
    ("program", "field", "value"),
    [
        ("engine", "pe.gemm.rate.f16", 0.25),
        ("engine", "pe.math.rate.f16", 4.0),
        ("idle", "sip.io.pcie_ep_overhead_ns", 0.0),
        ("not held", "pe.math.rate.f32", 16.0),
        ("source", "pe.math.rate.f32", 8.0),
    ],
)
@pytest.mark.slow
def test_no_sure_answer_is_wrong_where_another_order_may_come(
    recorded, program, field, value, tmp_path
):
    assert why_not_sure(recorded(program), field, value, tmp_path)


@pytest.mark.parametrize(
    ("program", "field", "value"),
    [
        ("uneven", "sip.io.pcie_ep_overhead_ns", 0.0),
        ("uneven", "pe.clock_ghz", 0.25),
        ("held", "pe.math.rate.f32", 16.0),
        ("not held", "system.pcie_bw_gbs", 4.0),
        ("source", "pe.math.rate.f32", 0.5),
        ("engine", "system.pcie_bw_gbs", 4.0),
    ],
)
@pytest.mark.slow
def test_what_keeps_the_order_is_sure_and_right(
    recorded, program, field, value, tmp_path
):
    told, changed = told_and_run(recorded(program), field, value, tmp_path)
    assert told.sure, told.why
    assert most_wrong(told, changed) < 1e-3


@pytest.mark.parametrize(
    ("program", "field", "value"),
    [
        ("strided", "cube.hbm.tfaw_ns", 15.0),
        ("strided", "cube.hbm.tfaw_ns", 90.0),
        ("strided", "cube.hbm.tras_ns", 340.0),
        ("strided", "cube.hbm.trfc_ns", 780.0),
        ("strided", "cube.hbm.channel_bw_gbs", 16.0),
        ("strided", "pe.dma.to_router_bw_gbs", 128.0),
        ("rows", "cube.hbm.trp_ns", 140.0),
    ],
)
@pytest.mark.slow
def test_no_sure_answer_is_wrong_where_rows_of_hbm_set_the_pace(
    recorded, program, field, value, tmp_path
):
    why = why_not_sure(recorded(program), field, value, tmp_path)
    assert "open rows of HBM" in why


def test_strided_transfers_are_no_reason_to_doubt_what_moves_them_as_a_whole(
    recorded, tmp_path
):
    told, changed = told_and_run(recorded("strided"), "pe.clock_ghz", 0.25, tmp_path)
    assert told.sure, told.why
    assert most_wrong(told, changed) < 1e-3


def test_a_field_that_is_given_twice_is_refused(recorded):
    _, _, path = recorded("engine")
    index = WhatIfIndex(Trace.open(path))
    with pytest.raises(UsageError, match=r"pe\.clock_ghz is given 2 times"):
        index.predict(("pe.clock_ghz=2", "pe.clock_ghz=3"))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_slack_that_is_sure_is_what_the_end_lets_an_op_be_late(
    recorded, program, tmp_path
):
    _, _, path = recorded(program)
    trace = Trace.open(path)
    index = WhatIfIndex(trace)
    end = max(launch.t_end for launch in trace.launches)
    new = tmp_path / "new.msgpack"

    def moved(position, ns):
        rerun(path, new, Change(delays=[(position, ns)]))
        return max(launch.t_end for launch in Trace.open(new).launches) - end

    for position in range(0, len(trace.ops), max(len(trace.ops) // 12, 1)):
        slack = index.slack(position)
        if slack.sure and slack.ns < float("inf"):
            if slack.ns > 0:
                assert moved(position, slack.ns) <= 1, position
            assert moved(position, slack.ns + BEYOND_NS) >= BEYOND_NS - 1, position

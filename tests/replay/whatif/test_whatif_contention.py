"""What is called sure about programs whose transactions get in each other's way."""

import re
from pathlib import Path

import pytest

from kernbench.replay.whatif import doubts
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

TWO_CUBES = {"system.sips.count": 1, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}

HEAD = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy
"""

STAGGERED = (
    HEAD
    + '''
def kernel(x, y, tl):
    """PEs begin one after the other and read rows from all slices, out of step."""
    pe = tl.program_id(0)
    late = tl.zeros((64,), "f32")
    for _ in range(pe):
        late = tl.exp(late)
    rows = [tl.load(x[(5 * i + pe) % 16, :], wait=False) for i in range(12)]
    total = tl.zeros(rows[0].shape, "f32")
    for row in rows:
        tl.wait(row)
        tl.add(total, row, out=total)
    tl.store(y[pe, :], total)


@bench(name="staggered", description="")
def run(torch):
    dp = DPPolicy(num_cubes=1, pe="row_wise")
    data = torch.rng.standard_normal((16, 1000))
    x = torch.tensor(data, "f32", dp, name="x")
    torch.launch("kernel", kernel, x, torch.empty((8, 1000), "f32", dp, name="y"))
'''
)

SMALL_TILES = (
    HEAD
    + """
def kernel(a, b, c, tl):
    tl.wait(tl.composite(a=tl.ref(a), b=tl.ref(b), out_ptr=c, tile=(32, 16, 16)))


@bench(name="tiles", description="tiles that read little, and HBM that is hardly used")
def run(torch):
    dp = DPPolicy(num_cubes=1, num_pes=1)
    a = torch.tensor(torch.rng.standard_normal((128, 128)), "f16", dp, name="a")
    b = torch.tensor(torch.rng.standard_normal((128, 128)), "f16", dp, name="b")
    torch.launch("kernel", kernel, a, b, torch.empty((128, 128), "f16", dp, name="c"))
"""
)

FULL_RINGS = (
    HEAD
    + '''
def kernel(x, y, tl):
    """Each sends more than its ring has slots for before it receives."""
    way = "EW"[tl.program_id(1)]
    mine = tl.load(x)
    for _ in range(3):
        tl.send(way, mine, wait=False)
    for _ in range(3):
        theirs = tl.recv(way, mine.shape, "f32")
    tl.store(y, theirs)


@bench(name="rings", description="")
def run(torch):
    torch.distributed.init_process_group(backend="ahbm")
    dp = DPPolicy(cube="row_wise", num_cubes=2, num_pes=1)
    data = torch.rng.standard_normal((2, 5000))
    x = torch.tensor(data, "f32", dp, name="x")
    torch.launch("kernel", kernel, x, torch.empty((2, 5000), "f32", dp, name="y"))
'''
)

BUFFERED_TWICE = (
    HEAD
    + '''
def kernel(x, y, tl):
    """A row is loaded while the one before it is worked on, and stored behind it."""
    rows, _ = tl.own(x)
    ahead = tl.load(x[rows[0]:rows[0] + 2], wait=False)
    for low in rows[::2]:
        part = ahead
        tl.wait(part)
        if low + 2 < rows.stop:
            ahead = tl.load(x[low + 2:low + 4], wait=False)
        wide = tl.cast(part, "f32")
        scale = tl.rsqrt(tl.sum(wide * wide, axis=1, keepdims=True) / 256 + 1e-5)
        tl.store(y[low:low + 2], tl.cast(wide * scale, "f16"), wait=False)


@bench(name="buffered", description="")
def run(torch):
    dp = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=2, num_pes=4)
    x = torch.tensor(torch.rng.standard_normal((128, 256)), "f16", dp, name="x")
    torch.launch("kernel", kernel, x, torch.empty((128, 256), "f16", dp, name="y"))
'''
)

PROGRAMS = {
    "staggered": STAGGERED,
    "tiles": SMALL_TILES,
    "rings": FULL_RINGS,
    "buffered": BUFFERED_TWICE,
}

CHANGES = [
    ("staggered", "pe.cpu.issue_cycles", 0),
    ("staggered", "pe.dma.setup_ns", 10.0),
    ("staggered", "cube.hbm.cl_ns", 56.0),
    ("staggered", "cube.hbm.channel_bw_gbs", 128.0),
    ("staggered", "cube.router.overhead_ns", 8.0),
    ("tiles", "cube.hbm.channel_bw_gbs", 4.0),
    ("tiles", "cube.hbm.channel_bw_gbs", 6.0),
    ("buffered", "pe.clock_ghz", 4.0),
    ("rings", "cube.ucie.bw_gbs", 256.0),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """recorded(program) -> its file, and what ``whatif`` knows of its run."""
    folder = tmp_path_factory.mktemp("programs")
    known: dict[str, tuple[Path, WhatIfIndex]] = {}

    def recorded(name):
        if name not in known:
            file = folder / f"{name}.py"
            file.write_text(PROGRAMS[name])
            path = folder / f"{name}.msgpack"
            run_bench(str(file), spec=TWO_CUBES, trace=path)
            known[name] = file, WhatIfIndex(Trace.open(path))
        return known[name]

    return recorded


@pytest.mark.parametrize(("program", "field", "value"), CHANGES)
@pytest.mark.slow
def test_no_sure_answer_is_wrong_where_others_are_met_on_the_way(
    recorded, program, field, value, tmp_path
):
    file, index = recorded(program)
    answer = index.predict((f"{field}={value}",))
    path = tmp_path / "changed.msgpack"
    run_bench(str(file), spec=TWO_CUBES | {field: value}, trace=path)
    (launch,) = Trace.open(path).launches
    (told,) = answer.launches
    error = told.predicted_ns / (launch.t_end - launch.t_start) - 1
    assert abs(error) > 0.02  # these are those that the graph gets wrong
    assert not answer.sure
    assert answer.why


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cube.ucie.overhead_ns", 0.0),
        ("pe.clock_ghz", 0.25),
        ("pe.dma.setup_ns", 80.0),
        ("pe.dma.setup_ns", 160.0),
    ],
)
@pytest.mark.slow
def test_who_waits_for_slots_of_a_full_ring_is_known(recorded, field, value, tmp_path):
    file, index = recorded("rings")
    answer = index.predict((f"{field}={value}",))
    path = tmp_path / "changed.msgpack"
    run_bench(str(file), spec=TWO_CUBES | {field: value}, trace=path)
    (launch,) = Trace.open(path).launches
    (told,) = answer.launches
    assert told.predicted_ns == pytest.approx(launch.t_end - launch.t_start, abs=0.01)
    assert answer.sure


@pytest.mark.parametrize(
    ("program", "change"),
    [
        ("staggered", "system.pcie_bw_gbs=126"),
        ("tiles", "sip.io.pcie_ep_overhead_ns=75"),
        ("rings", "pe.math.lanes=1"),
    ],
)
def test_what_leaves_all_servers_as_they_were_is_sure(recorded, program, change):
    _, index = recorded(program)
    assert index.predict((change,)).sure


def test_what_another_order_changes_is_told_without_a_direction(recorded, monkeypatch):
    """Who is served before others takes less, who comes after them more."""
    # else one of the waits alone is a reason, and their sum is not looked at
    monkeypatch.setattr(doubts, "LEAST_SHARE", 1.0)
    monkeypatch.setattr(doubts, "CROWDED_SHARE", 1.0)
    _, known = recorded("staggered")
    answer = known.predict(("pe.cpu.issue_cycles=4",))
    assert not answer.sure
    assert re.fullmatch(
        "links or memories would serve in another order than they did; "
        r"waits worth \d+\.\d% of a launch depend on it",
        answer.why,
    )


def test_a_run_that_an_error_ended_is_told_unsure(tmp_path):
    file = tmp_path / "waits.py"
    file.write_text(FULL_RINGS.replace("for _ in range(3):\n        theirs", WAITS))
    path = tmp_path / "waits.msgpack"
    with pytest.raises(Exception, match="nothing can go on"):
        run_bench(str(file), spec=TWO_CUBES, trace=path)
    index = WhatIfIndex(Trace.open(path))
    answer = index.predict(("sip.io.pcie_ep_overhead_ns=75",))
    assert answer.predicted_ns < answer.end_ns
    assert not answer.sure
    assert "ended within a launch" in answer.why
    assert not any(gain.sure for gain in index.profile().gains)


WAITS = "for _ in range(4):\n        theirs"
"""One message more than is ever sent."""

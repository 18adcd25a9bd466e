"""PEs that share the port of an SRAM, to read and write, against runs of the machine.

Rows go around a ring of which all slots lie in the SRAM of a cube: every push writes
there while others read, and one port serves them all.
"""

import pytest
from real_runs import Recorded, end_of_launches

from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

BENCH = '''
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy

PES = 8
ROW_A_PE = DPPolicy(num_cubes=1, pe="row_wise", num_pes=PES)


def kernel(x, y, n, tl):
    """Rows go around; every other PE works longer on them."""
    pe = tl.program_id(0)
    row = tl.load(x + pe * n * 4, (1, n), "f32")
    for _ in range(4):
        tl.send("E", row)
        row = tl.recv("W", (1, n), "f32")
        if pe % 2:
            row = tl.neg(tl.neg(row))
    tl.store(y + pe * n * 4, row)


@bench(name="sram_ring", description="")
def run(torch, n: int = 2048):
    install_ipcq(
        torch.engine,
        world_size=PES,
        rank_to_pe=[(0, 0, pe) for pe in range(PES)],
        neighbors=lambda pe: {"E": (pe + 1) % PES, "W": (pe - 1) % PES},
        buffer_kind="sram",
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
    return Recorded(tmp_path_factory.mktemp("sram"), BENCH)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cube.sram.access_ns", 2.5),
        ("cube.sram.access_ns", 5.0),
        ("pe.dma.setup_ns", 5.0),
        ("pe.dma.setup_ns", 40.0),
    ],
)
@pytest.mark.slow
def test_who_waits_for_the_port_is_predicted(recorded, field, value, tmp_path):
    told, end_ns = recorded.told_and_run(field, value, tmp_path)
    assert told.sure
    assert told.predicted_ns == end_ns


@pytest.mark.parametrize("bytes_per_ns", [32.0, 64.0])
@pytest.mark.slow
def test_a_slower_port_holds_up_reads_and_writes(recorded, bytes_per_ns, tmp_path):
    field = "cube.sram.to_router_bw_gbs"
    told, end_ns = recorded.told_and_run(field, bytes_per_ns, tmp_path)
    assert told.predicted_ns == pytest.approx(end_ns, rel=0.02)


def test_what_the_critical_path_is_most_of_is_what_holds_the_run_up(recorded, tmp_path):
    session = ReplaySession(Trace.open(recorded.path))
    path = session.critical_path()
    assert next(iter(path.totals)) == "sram_port"
    changed = tmp_path / "changed"
    faster = {"cube.sram.to_router_bw_gbs": 1e5}
    run_bench(recorded.bench, spec=faster, trace=changed)
    saved = end_of_launches(recorded.path) - end_of_launches(changed)
    # The field is also how fast the SRAM's links are.
    links = path.totals["link"]
    assert 0 <= saved - path.totals["sram_port"] <= links
    assert "sram_port" not in ReplaySession(Trace.open(changed)).critical_path().totals


def test_it_is_not_sure_where_others_come_first(recorded, tmp_path):
    told, end_ns = recorded.told_and_run("pe.math.rate.f32", 0.25, tmp_path)
    assert told.predicted_ns != end_ns
    assert not told.sure
    assert "memories would serve in another order" in told.why


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(16, marks=pytest.mark.slow),
        pytest.param(1, marks=[pytest.mark.slow, pytest.mark.soak]),
    ],
)
def test_the_slack_of_who_shares_a_port_is_what_the_end_lets_it_be_late(
    recorded, tmp_path, step
):
    session = ReplaySession(Trace.open(recorded.path))
    tried = 0
    for op in range(1, len(session), step):
        slack = session.index.whatif.slack(op)
        if not slack.sure or not slack.ns:
            continue
        tried += 1
        recorded.check_slack(op, slack, tmp_path)
    assert tried

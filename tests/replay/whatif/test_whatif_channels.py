"""Engines of one PE that share the channels of its TCM, against runs of the machine.

A composite fetches its tiles from the TCM while MATH works on values there. Each waits
for the other's bytes, and who waits for how long is another matter on another machine.
"""

import pytest
from real_runs import Recorded

from kernbench.replay import ReplaySession
from kernbench.trace import Trace

BENCH = '''
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)


def kernel(x, y, z, tl):
    """A product of what lies in HBM, in tiles, beside a chain of ops of MATH."""
    some = tl.load(x)
    tl.composite(a=tl.ref(x), b=tl.ref(x), out_ptr=y, tile=(64, 64, 64))
    for _ in range(12):
        some = tl.neg(some)
    tl.store(z, some)


@bench(name="shared_tcm", description="")
def run(torch):
    x = torch.tensor(np.ones((64, 64)), "f16", ONE, name="x")
    y = torch.empty((64, 64), "f16", ONE, name="y")
    z = torch.empty((64, 64), "f16", ONE, name="z")
    torch.launch("kernel", kernel, x, y, z)
'''


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The trace of a run of that bench."""
    return Recorded(tmp_path_factory.mktemp("channels"), BENCH)


@pytest.mark.parametrize("bytes_per_ns", [128.0, 256.0])
def test_who_waits_for_a_channel_is_predicted(recorded, bytes_per_ns, tmp_path):
    field = "pe.tcm.read_bw_gbs"
    told, end_ns = recorded.told_and_run(field, bytes_per_ns, tmp_path)
    assert told.sure
    assert told.predicted_ns == end_ns


@pytest.mark.parametrize(
    ("field", "value"),
    [("pe.tcm.write_bw_gbs", 64.0), ("pe.math.rate.f16", 2.0), ("pe.clock_ghz", 2.0)],
)
@pytest.mark.slow
def test_it_is_not_sure_where_others_come_first(recorded, field, value, tmp_path):
    told, end_ns = recorded.told_and_run(field, value, tmp_path)
    assert not told.sure
    assert "memories would serve in another order" in told.why
    assert told.predicted_ns == pytest.approx(end_ns, rel=0.06)


@pytest.mark.slow
def test_the_slack_of_who_has_a_channel_is_what_the_end_lets_it_be_late(
    recorded, tmp_path
):
    session = ReplaySession(Trace.open(recorded.path))
    tried = 0
    for op in range(len(session)):
        slack = session.index.whatif.slack(op)
        if not slack.sure or session.row(op).name not in ("TileToken/FETCH", "neg"):
            continue
        tried += 1
        recorded.check_slack(op, slack, tmp_path)
    assert tried > 5

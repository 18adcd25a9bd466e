"""Engines of one PE that share the channels of its TCM, against runs of the machine.

A composite fetches its tiles from the TCM while MATH works on values there. Each waits
for the other's bytes, and who waits for how long is another matter on another machine.
"""

import pytest

from kernbench.replay import ReplaySession
from kernbench.runtime_api import Change, rerun, run_bench
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
def bench(tmp_path_factory):
    """The file of that bench."""
    file = tmp_path_factory.mktemp("channels") / "shared_tcm.py"
    file.write_text(BENCH)
    return str(file)


@pytest.fixture(scope="module")
def path(bench, tmp_path_factory):
    """The trace of its run."""
    path = tmp_path_factory.mktemp("channels") / "trace"
    run_bench(bench, trace=path)
    return path


def end_of(path):
    return max(launch.t_end for launch in Trace.open(path).launches)


def told_and_run(bench, path, field, value, folder):
    """What is told of a machine of which a field is another, and when its run ends."""
    told = ReplaySession(Trace.open(path)).whatif(f"{field}={value}")
    changed = folder / "changed"
    run_bench(bench, spec={field: value}, trace=changed)
    return told, Trace.open(changed).end_ns


@pytest.mark.parametrize("bytes_per_ns", [128.0, 256.0])
def test_who_waits_for_a_channel_is_predicted(bench, path, bytes_per_ns, tmp_path):
    field = "pe.tcm.read_bw_gbs"
    told, end_ns = told_and_run(bench, path, field, bytes_per_ns, tmp_path)
    assert told.sure
    assert told.predicted_ns == end_ns


@pytest.mark.parametrize(
    ("field", "value"),
    [("pe.tcm.write_bw_gbs", 64.0), ("pe.math.rate.f16", 2.0), ("pe.clock_ghz", 2.0)],
)
def test_it_is_not_sure_where_others_come_first(bench, path, field, value, tmp_path):
    told, end_ns = told_and_run(bench, path, field, value, tmp_path)
    assert not told.sure
    assert "memories would serve in another order" in told.why
    assert told.predicted_ns == pytest.approx(end_ns, rel=0.06)


def test_the_slack_of_who_has_a_channel_is_what_the_end_lets_it_be_late(path, tmp_path):
    session = ReplaySession(Trace.open(path))
    tried = 0
    for op in range(len(session)):
        slack = session.index.whatif.slack(op)
        if not slack.sure or session.row(op).name not in ("TileToken/FETCH", "neg"):
            continue
        tried += 1
        for more, least, most in ((0.0, -0.1, 0.1), (10.0, 9.0, 11.0)):
            late = tmp_path / "late"
            delay = slack.ns + more
            if delay > 0:
                rerun(path, late, Change(delays=[(op, delay)]))
                assert least <= end_of(late) - end_of(path) <= most, op
    assert tried > 5

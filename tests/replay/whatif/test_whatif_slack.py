"""Slack from the re-timed graph, against runs in which the op is really held back."""

import numpy as np
import pytest
from real_runs import end_of_launches

from kernbench.common.progress import no_progress
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace

BEYOND_NS = 10.0
OPS = 6
ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}

PROGRAMS = {
    "softmax": {"m": 32, "n": 64, "pes": 2},
    "flash_attention": {"pes": 2},
    "matmul": {"m": 128, "k": 128, "n": 64, "pes": 2},
}


@pytest.mark.parametrize("bench", PROGRAMS)
@pytest.mark.slow
def test_an_op_can_be_held_back_for_its_slack_and_no_longer(bench, tmp_path):
    path = tmp_path / "recorded.msgpack"
    new = tmp_path / "new.msgpack"
    run_bench(bench, params=PROGRAMS[bench], trace=path)
    trace = Trace.open(path)
    index = WhatIfIndex(trace)
    start = trace.launches[0].t_start
    began = trace.op_columns.t_start[:][trace.order]
    in_launch = np.flatnonzero(began >= start)
    end = end_of_launches(path)
    sure = 0
    rng = np.random.default_rng(0)
    for position in rng.choice(in_launch, OPS, replace=False).tolist():
        slack = index.slack(position)
        assert bool(slack.why) != slack.sure
        if not slack.sure or not np.isfinite(slack.ns):
            continue
        sure += 1
        if slack.ns > 0:
            rerun(path, new, Change(delays=[(position, slack.ns)]))
            assert end_of_launches(new) - end <= 1, position
        rerun(path, new, Change(delays=[(position, slack.ns + BEYOND_NS)]))
        assert end_of_launches(new) - end >= BEYOND_NS - 1, position
    assert sure


@pytest.mark.slow
def test_slack_knows_channels_banks_and_rows(tmp_path):
    path = tmp_path / "recorded.msgpack"
    new = tmp_path / "new.msgpack"
    params = {"tokens": 32, "d": 32, "experts": 4, "pes": 4}
    run_bench("moe_route", params=params, spec=ONE_CUBE, trace=path)
    trace = Trace.open(path)
    index = WhatIfIndex(trace)
    end = end_of_launches(path)
    # All that follows meets the controllers otherwise than it did.
    for position in (40, 76, 94, 166):
        slack = index.slack(position)
        if slack.ns > 0:
            rerun(path, new, Change(delays=[(position, slack.ns)]))
            assert end_of_launches(new) - end <= 1, position
        rerun(path, new, Change(delays=[(position, slack.ns + BEYOND_NS)]))
        assert end_of_launches(new) - end >= BEYOND_NS - 1, position


@pytest.mark.slow
def test_slack_knows_that_others_go_first(tmp_path):
    path = tmp_path / "recorded.msgpack"
    new = tmp_path / "new.msgpack"
    run_bench("pointer_chase", params={"pes": 8}, trace=path)
    trace = Trace.open(path)
    index = WhatIfIndex(trace)
    end = end_of_launches(path)
    # Late by more than another PE's lead these let it go first, and hold it up no more.
    for position in (41, 49, 68):
        slack = index.slack(position)
        rerun(path, new, Change(delays=[(position, slack.ns)]))
        assert end_of_launches(new) - end <= 1, position
        rerun(path, new, Change(delays=[(position, slack.ns + BEYOND_NS)]))
        assert end_of_launches(new) - end >= BEYOND_NS - 1, position


@pytest.mark.slow
def test_what_the_end_awaits_at_once_has_no_slack(tmp_path):
    path = tmp_path / "recorded.msgpack"
    run_bench("softmax", params={"m": 16, "n": 32, "pes": 1}, trace=path)
    trace = Trace.open(path)
    index = WhatIfIndex(trace)
    last = int(trace.position[np.argmax(trace.op_columns.t_end[:])])
    assert index.slack(last, no_progress).ns == 0

"""Slack of sends, and of what gives their slots back, against runs of late ops."""

import pytest
from real_runs import Recorded

from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.trace import Trace

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}

HEAD = """
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy
"""

FOOT = """
@bench(name="sends", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=lambda rank: [{"E": 1}, {"W": 0}][rank],
        slots=SLOTS,
        slot_bytes=1024,
    )
    rows = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.tensor(np.ones((2, SIZE)), "f32", rows, name="x")
    y = torch.zeros((2, SIZE), "f32", rows, name="y")
    for turn in range(TURNS):
        torch.launch("k", kernel, x, y, turn)
"""

TWO_SENDS = (
    HEAD
    + '''
def kernel(x, y, turn, tl):
    """Two sends long before they are received, each in PIECES slots."""
    a = tl.load(x)
    if tl.program_id(0) == 0:
        tl.send("E", a, wait=False)
        tl.send("E", a, wait=False)
    else:
        for _ in range(40):
            tl.exp(a)
        tl.recv("W", a.shape, "f32")
        tl.store(y, tl.recv("W", a.shape, "f32"))

'''
    + FOOT
)

LATE_CREDIT = (
    HEAD
    + '''
def kernel(x, y, turn, tl):
    """The slot is given back behind bytes that are stored the same way."""
    a = tl.load(x)
    part = tl.slice(a, (0, 0), (1, 256))
    if tl.program_id(0) == 0:
        tl.send("E", part, wait=False)
        tl.send("E", part)
    else:
        tl.store(y[:1], a, wait=False)
        tl.recv("W", (1, 256), "f32")
        tl.store(y[1:, :256], tl.recv("W", (1, 256), "f32"))

'''
    + FOOT
)
"""The first kernel of PE 0 ends with a send whose bytes are long on their way."""

SENT_BEFORE = (
    HEAD
    + '''
def kernel(x, y, turn, tl):
    """What the first launch sends is received in the second."""
    a = tl.load(x)
    if turn == 0 and tl.program_id(0) == 0:
        tl.send("E", a, wait=False)
        for _ in range(40):
            tl.exp(a)
    if turn == 1 and tl.program_id(0) == 1:
        tl.store(y, tl.recv("W", a.shape, "f32"))

'''
    + FOOT
)
SLOW_LINKS = ONE_CUBE | {"cube.router.link_bw_gbs": 16.0, "pe.dma.burst_bytes": 8192}


def recorded_run(text, numbers, spec, folder):
    """A run of a program: ``numbers`` stand for the words in it."""
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    return Recorded(folder, text, spec)


def check_pushes(recorded, least_ns, folder):
    """The slack of each push is sure, at least so much, and what a run shows."""
    trace = Trace.open(recorded.path)
    index = WhatIfIndex(trace)
    pushes = [at for at, op in enumerate(trace.ops) if op.op_name == "ipcq_copy"]
    assert len(pushes) == len(least_ns)
    for push, least in zip(pushes, least_ns, strict=True):
        slack = index.slack(push)
        assert slack.sure, slack.why
        assert slack.ns >= least
        recorded.check_slack(push, slack, folder)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_send_is_pushed_when_the_one_before_it_was_read(pieces, tmp_path):
    numbers = {"SIZE": 256 * pieces, "SLOTS": 8, "TURNS": 1}
    recorded = recorded_run(TWO_SENDS, numbers, ONE_CUBE, tmp_path)
    check_pushes(recorded, [100] * 2 * pieces, tmp_path)


def test_a_kernel_ends_when_what_it_sent_was_read_not_when_it_lands(tmp_path):
    numbers = {"SIZE": 256, "SLOTS": 2, "TURNS": 2}
    recorded = recorded_run(SENT_BEFORE, numbers, SLOW_LINKS, tmp_path)
    check_pushes(recorded, [100], tmp_path)


def test_a_credit_is_on_its_way_behind_others(tmp_path):
    numbers = {"SIZE": 4096, "SLOTS": 1, "TURNS": 1}
    recorded = recorded_run(LATE_CREDIT, numbers, SLOW_LINKS, tmp_path)
    check_pushes(recorded, [900, 0], tmp_path)

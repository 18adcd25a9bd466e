"""What an op was held behind in program order, where that ended later than the op.

A trace names no op that had not ended by then. The truth is in the kernel: which
earlier call reads the bytes that are stored.
"""

import pytest

from kernbench.common.progress import no_progress
from kernbench.replay import ReplaySession
from kernbench.replay.views.causes import causes_of
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.frames import FrameFile

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
BENCH = '''
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, z, tl):
    """The store is held until the load of the same bytes has begun."""
    small = tl.load(z, shape=(1, 64), dtype="f32")
    for i in range(2):  # takes both slots of the DMA
        tl.load(y + i * 4096 * 64, shape=(64, 1024), dtype="f32", wait=False)
    tl.load(x, shape=(64, 1024), dtype="f32", wait=False)
    tl.store(x, small)
    for _ in range(200):
        small = tl.exp(small)
    tl.store(z, small)


@bench(name="held", description="")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.zeros((64, 1024), dtype="f32", dp=one, name="x")
    y = torch.zeros((128, 1024), dtype="f32", dp=one, name="y")
    z = torch.zeros((1, 64), dtype="f32", dp=one, name="z")
    torch.launch("kernel", kernel, x, y, z)
'''


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """The session of that run; its store is op 7, held behind the load, op 6."""
    folder = tmp_path_factory.mktemp("held")
    file = folder / "held.py"
    file.write_text(BENCH)
    spec = ONE_CUBE | {"pe.dma.outstanding": 2}
    run_bench(str(file), spec=spec, trace=folder / "trace")
    return ReplaySession(Trace.open(folder / "trace"))


def test_what_held_an_op_is_its_cause(held):
    load, store = held.row(6), held.row(7)
    assert (load.name, store.name) == ("dma_read", "dma_write")
    assert load.t_start < store.t_start
    assert store.t_end < load.t_end
    (hold, *_) = held.details(7).waits
    assert (hold[1], hold[4]) == ("operand", 6)
    held.goto(7)
    assert held.to_cause() == 6
    assert causes_of(held.index, 7, no_progress).cause.op == 6


def test_what_an_op_held_is_its_effect(held):
    held.goto(6)
    assert held.to_effect() == 7
    assert causes_of(held.index, 6, no_progress).effect.op == 7


def test_every_hold_is_found_from_both_its_ends(held):
    holds = {
        (wait[4], op)
        for op in range(len(held))
        for wait in held.index.ops.waits(op)
        if wait[1] == "operand" and wait[4] >= 0
    }
    found = {
        (op, other)
        for op in range(len(held))
        for other in held.index.ops.held_by(op).tolist()
    }
    assert (6, 7) in holds
    assert found == holds


def test_the_critical_path_passes_what_held_an_op(held):
    path = held.critical_path()
    ops = [step.op for step in path.steps]
    assert 4 in ops
    assert "unexplained" not in path.totals
    assert path.totals["operand"] + path.totals["dma read"] > 1000


def test_a_run_of_which_nothing_was_compared_is_not_called_verified(held):
    assert held.trace.verify_report["ok"]
    assert held.info().compared == 0
    (line,) = [x for x in held.info().lines(80) if x.startswith("verified")]
    assert line.endswith("nothing: the bench states no expected outputs")


def test_without_calls_nobody_knows_what_held_an_op(held, tmp_path):
    """Of a file in which their frames are damaged."""
    path = tmp_path / "damaged"
    data = bytearray(held.trace.path.read_bytes())
    for frame in FrameFile(held.trace.path).by_tag["commands"]:
        data[frame.start] ^= 1
    path.write_bytes(data)
    damaged = ReplaySession(Trace.open(path))
    (hold, *_) = damaged.details(7).waits
    assert (hold[1], hold[4]) == ("operand", -1)
    damaged.goto(6)
    assert damaged.to_effect() != 7

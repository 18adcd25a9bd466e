"""Predictions of machines on which somebody else is served first, against runs of them.

The programs are what was left of random ones of which a prediction that kept the
recorded order was called sure, and was wrong.
"""

import pytest
from real_runs import Recorded, end_of_launches

from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.runtime_api import Change, rerun
from kernbench.trace import Trace

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
ONE_CHANNEL = ONE_CUBE | {"cube.hbm.channels": 1}
FEW_SLOTS = ONE_CUBE | {"cube.hbm.model": "ideal", "pe.dma.outstanding": 3}
IDEAL = ONE_CHANNEL | {"cube.hbm.model": "ideal"}

HEAD = """
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)
TWO = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)

def numbers(torch, shape, dtype, dp, name):
    return torch.tensor(torch.rng.standard_normal(shape), dtype, dp, name=name)

def ring(torch, pes, slots, slot_bytes, kind):
    install_ipcq(
        torch.engine, world_size=pes, rank_to_pe=[(0, 0, pe) for pe in range(pes)],
        neighbors=lambda rank: {"E": (rank + 1) % pes, "W": (rank - 1) % pes},
        slots=slots, slot_bytes=slot_bytes, buffer_kind=kind,
    )

"""

RING_IN_HBM = (
    HEAD
    + """
def kernel(x, tl):
    mine = tl.load(x)
    tl.send("E", mine, wait=False)
    tl.recv("W", (2, 512), "f32")

@bench(name="ring_in_hbm", description="")
def run(torch):
    ring(torch, 2, 2, 1024, "hbm")
    torch.launch("kernel", kernel, numbers(torch, (4, 512), "f32", TWO, "x"))
"""
)
"""What is sent is written to HBM and read there: the bus turns."""

DOT_BESIDE_TILES = (
    HEAD
    + """
def kernel(x, z, a, b, tl):
    tl.dot(tl.load(a), tl.load(b), dataflow="os")
    both = tl.ref(x)
    tl.composite("add", a=both, b=both, out_ptr=z, tile=(8, 16, 1))

@bench(name="dot_beside_tiles", description="")
def run(torch):
    x = numbers(torch, (8, 64), "f32", ONE, "x")
    z = torch.zeros((8, 64), "f32", ONE, name="z")
    a = numbers(torch, (32, 64), "f16", ONE, "a")
    b = numbers(torch, (64, 64), "f16", ONE, "b")
    torch.launch("kernel", kernel, x, z, a, b)
"""
)
"""A product of the call before is still under way as tiles come."""

UNEVEN_TILES = (
    HEAD
    + """
def kernel(a, b, c, tl):
    tl.composite(
        a=tl.ref(a), b=tl.ref(b), out_ptr=c, tile=(32, 32, 32),
        epilogue=[("scale", 0.5)],
    )

@bench(name="uneven_tiles", description="")
def run(torch):
    a = numbers(torch, (33, 64), "f16", ONE, "a")
    b = numbers(torch, (64, 64), "f16", ONE, "b")
    torch.launch("kernel", kernel, a, b, torch.zeros((33, 64), "f16", ONE, name="c"))
"""
)
"""Rows of tiles of 32 and of one row: others stream behind each other."""

BESIDE_A_MESSAGE = (
    HEAD
    + """
def kernel(x, a, b, c, tl):
    tl.composite(
        a=tl.ref(a), b=tl.ref(b),
        tile=(16, 64, 32), epilogue=["relu"], out_ptr=c,
    )
    if tl.program_id(0) == 0:
        tl.recv("W", (4, 256), "f32")
    else:
        some = tl.load(x[14:16, 240:])
        for _ in range(12):
            tl.exp(some)
        tl.send("E", tl.load(x[8:12]), wait=False)

@bench(name="beside_a_message", description="")
def run(torch):
    ring(torch, 2, 4, 1024, "hbm")
    x = numbers(torch, (16, 256), "f32", TWO, "x")
    a = numbers(torch, (64, 64), "f16", TWO, "a")
    b = numbers(torch, (128, 64), "f16", TWO, "b")
    torch.launch("kernel", kernel, x, a, b, torch.zeros((64, 64), "f16", TWO, name="c"))
"""
)
"""A message comes to HBM while tiles do, beside a refresh."""

STORE_BESIDE_ROWS = (
    HEAD
    + """
def kernel(x, y, z, tl):
    few = tl.load(z[0:8:2, 0:16])
    tl.store(y[1:5, 0:16], few, wait=False)
    tl.load(z[0:8:2], wait=False)
    tl.softmax(few, axis=1)
    tl.load(x[0:8:2, 0:128], wait=False)

@bench(name="store_beside_rows", description="")
def run(torch):
    x = numbers(torch, (8, 256), "f32", ONE, "x")
    y = torch.zeros((8, 256), "f32", ONE, name="y")
    z = torch.zeros((8, 256), "f32", ONE, name="z")
    torch.launch("kernel", kernel, x, y, z)
"""
)
"""A store that is a little late meets a load of rows; one that is later does not."""

STORES_BESIDE_A_RING = (
    HEAD
    + """
def kernel(x, y, tl):
    pe = tl.program_id(0)
    row = tl.load(x)
    for _ in range(2):
        tl.store(y, row, wait=False)
        tl.send("E", row)
        tl.store(y, row, wait=False)
        row = tl.recv("W", (2, 512), "f32")
    tl.store(y, row)

@bench(name="stores_beside_a_ring", description="")
def run(torch):
    ring(torch, 2, 8, 4096, "sram")
    x = numbers(torch, (4, 512), "f32", TWO, "x")
    torch.launch("kernel", kernel, x, torch.zeros((4, 512), "f32", TWO, name="y"))
"""
)
"""What is pushed to an SRAM is read from there, through one port."""

SLOTS_OUT_OF_TURN = (
    HEAD
    + """
THREE = DPPolicy(pe="row_wise", num_cubes=1, num_pes=3)

def kernel(x, y, tl):
    pe = tl.program_id(0)
    rows = tl.load(x)
    for times in range(2):
        for _ in range(pe):
            tl.neg(rows)
        tl.send("E", tl.slice(rows, (0, 0), (3, 256)), wait=False)
        if times and pe % 2:
            for _ in range(5):
                tl.exp(rows)
        tl.recv("W", (3, 256), "f32")
    tl.store(y, rows)

@bench(name="slots_out_of_turn", description="")
def run(torch):
    ring(torch, 3, 2, 2048, "sram")
    x = numbers(torch, (12, 256), "f32", THREE, "x")
    torch.launch("kernel", kernel, x, torch.zeros((12, 256), "f32", THREE, name="y"))
"""
)
"""The second slot of a message is less, lands first, and is emptied second."""

PROGRAMS = {
    "ring in HBM": (RING_IN_HBM, ONE_CHANNEL),
    "dot beside tiles": (DOT_BESIDE_TILES, IDEAL),
    "uneven tiles": (UNEVEN_TILES, IDEAL | {"pe.dma.burst_bytes": 256}),
    "beside a message": (BESIDE_A_MESSAGE, ONE_CUBE),
    "stores beside a ring": (STORES_BESIDE_A_RING, ONE_CUBE),
    "slots out of turn": (
        SLOTS_OUT_OF_TURN,
        FEW_SLOTS | {"pe.dma.burst_bytes": 1024},
    ),
    "store beside rows": (STORE_BESIDE_ROWS, FEW_SLOTS),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The trace of a run of a program."""
    made = {}

    def find(program):
        if program not in made:
            folder = tmp_path_factory.mktemp("program")
            made[program] = Recorded(folder, *PROGRAMS[program])
        return made[program]

    return find


@pytest.mark.parametrize(
    ("program", "field", "value"),
    [
        ("ring in HBM", "cube.hbm.twtr_l_ns", 32.0),
        ("dot beside tiles", "pe.clock_ghz", 0.5),
        ("uneven tiles", "pe.gemm.overhead_ns", 5.0),
        ("beside a message", "cube.hbm.trefi_ns", 3510.0),
        ("stores beside a ring", "cube.sram.to_router_bw_gbs", 256.0),
        ("slots out of turn", "pe.dma.to_router_bw_gbs", 128.0),
    ],
)
def test_who_comes_first_on_the_other_machine_is_served_first(
    recorded, program, field, value, tmp_path
):
    told, end_ns = recorded(program).told_and_run(field, value, tmp_path)
    assert told.sure, told.why
    assert told.predicted_ns == pytest.approx(end_ns, abs=0.01)


def test_slack_is_not_sure_if_less_of_it_moves_the_end(recorded, tmp_path):
    path = recorded("store beside rows").path
    trace = Trace.open(path)
    names = [op.op_name for op in trace.ops]
    store = names.index("dma_write")
    slack = WhatIfIndex(trace).slack(store)
    rerun(path, tmp_path / "late", Change(delays=[(store, slack.ns / 4)]))
    late = end_of_launches(tmp_path / "late") - end_of_launches(path)
    assert late > 1
    assert not slack.sure

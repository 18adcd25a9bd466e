"""Moves sent over links and through controllers as a run sent them, against the run."""

from pathlib import Path

import numpy as np
import pytest

from kernbench.common.progress import no_progress
from kernbench.replay.whatif.deliveries import known_of
from kernbench.replay.whatif.links import LinkTimes, recorded_links
from kernbench.replay.whatif.machine import Machine, ways_of
from kernbench.replay.whatif.moves import moves_of
from kernbench.runtime_api import run_bench
from kernbench.topology import recorded_spec
from kernbench.trace import Trace

BUNDLED = sorted(Path(__file__).parents[3].glob("traces/*.msgpack"))
ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
PROGRAMS = {
    "moe_route": {"tokens": 32, "d": 32, "experts": 4, "pes": 4},
    "softmax": {"m": 256, "n": 256, "pes": 2},
    "matmul": {"m": 128, "k": 128, "n": 64, "pes": 2},
}

RINGS = """
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy

PES = 3
ROWS = DPPolicy(pe="row_wise", num_cubes=1, num_pes=PES)

def kernel(x, tl):
    pe = tl.program_id(0)
    a = tl.load(x + pe * 4096, (4, 256), "f32")
    for times in range(4):
        for _ in range(pe * times):
            tl.neg(a)
        tl.send("E", tl.slice(a, (0, 0), (3, 256)), wait=False)
        tl.load(x + (pe + 1) % PES * 4096, (2, 256), "f32", wait=False)
        tl.recv("W", (3, 256), "f32")

@bench(name="rings", description="")
def run(torch):
    install_ipcq(
        torch.engine, world_size=PES,
        rank_to_pe=[(0, 0, pe) for pe in range(PES)],
        neighbors=lambda pe: {"E": (pe + 1) % PES, "W": (pe - 1) % PES},
        buffer_kind="KIND", slots=SLOTS, slot_bytes=2048,
    )
    data = torch.rng.standard_normal((PES * 4, 256))
    torch.launch("kernel", kernel, torch.tensor(data, "f32", ROWS, name="x"))
"""
"""Slots are pushed at one time, land before each other, and are given back."""


def machine_of(trace):
    return Machine(ways_of(trace), recorded_links(trace), recorded_spec(trace.spec))


def known(path):
    trace = Trace.open(path)
    machine = machine_of(trace)
    return trace, known_of(trace, machine, moves_of(trace, machine.ways, no_progress))


def is_explained(path):
    """Whether each op that moves data lands in the very tick that was recorded."""
    trace, found = known(path)
    assert found is not None
    moved = np.unique(trace.transfers.row[:][trace.transfers.row[:] >= 0])
    assert [*moved] == sorted(found.landed)
    told = [found.landed[op] for op in moved.tolist()]
    return np.array_equal(told, trace.op_columns.t_end[:][moved])


@pytest.mark.parametrize("model", ["banked", "ideal"])
@pytest.mark.parametrize("bench", PROGRAMS)
@pytest.mark.slow
def test_all_data_land_when_they_did(bench, model, tmp_path):
    path = tmp_path / "recorded.msgpack"
    spec = {**ONE_CUBE, "hbm.model": model}
    run_bench(bench, params=PROGRAMS[bench], spec=spec, trace=path)
    assert is_explained(path)


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("kind", ["sram", "tcm", "hbm"])
def test_all_data_land_when_they_did_that_go_through_rings(kind, slots, tmp_path):
    path = tmp_path / "recorded.msgpack"
    file = tmp_path / "rings.py"
    file.write_text(RINGS.replace("KIND", kind).replace("SLOTS", str(slots)))
    run_bench(str(file), spec=ONE_CUBE, trace=path)
    assert is_explained(path)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_all_data_of_a_bundled_trace_land_when_they_did(path):
    assert is_explained(path)


def test_what_does_not_explain_the_recording_is_not_used():
    trace = Trace.open(BUNDLED[0])
    machine = machine_of(trace)
    links = LinkTimes(machine.links.speed, machine.links.header + 1.0)
    slower = Machine(machine.ways, links, machine.spec)
    moves = moves_of(trace, machine.ways, no_progress)
    assert known_of(trace, machine, moves) is not None
    assert known_of(trace, slower, moves) is None

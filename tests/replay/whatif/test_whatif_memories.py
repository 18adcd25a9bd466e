"""Controllers of HBM asked as a run asked them, against when the run was served."""

from pathlib import Path

import numpy as np
import pytest

from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import no_progress
from kernbench.replay.whatif.graph import build_graph
from kernbench.replay.whatif.links import recorded_links
from kernbench.replay.whatif.machine import Machine, ways_of
from kernbench.replay.whatif.memories import (
    ages_of,
    asked_of,
    known_of,
    served_as_recorded,
    turns_of,
)
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


def asked_and_served(path):
    """What was asked of controllers, when the graph has it, and when the model does."""
    trace = Trace.open(path)
    machine = Machine(ways_of(trace), recorded_links(trace), recorded_spec(trace.spec))
    graph = build_graph(trace, machine, no_progress)
    asked = asked_of(trace, machine, graph.moves)
    served = served_as_recorded(
        machine.spec.cube.hbm, turns_of(trace), asked, ages_of(trace, asked)
    )
    nodes = np.array([*served])
    return asked, graph.times[nodes], np.array([*served.values()])


@pytest.mark.parametrize("bench", PROGRAMS)
@pytest.mark.parametrize("model", ["banked", "ideal"])
def test_they_are_served_when_they_were(bench, model, tmp_path):
    path = tmp_path / "recorded.msgpack"
    spec = {**ONE_CUBE, "hbm.model": model}
    run_bench(bench, params=PROGRAMS[bench], spec=spec, trace=path)
    asked, recorded, told = asked_and_served(path)
    assert len(asked) >= 8
    # Later is no fault: what a controller has read may wait for the link behind it.
    assert (recorded - told).min() >= -SAME_NS
    assert (recorded - told <= SAME_NS).mean() > 0.9


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_nobody_is_served_sooner_than_the_model_says(path):
    asked, recorded, told = asked_and_served(path)
    assert len(asked)
    assert (recorded - told).min() >= -SAME_NS


def test_a_controller_that_was_quicker_than_its_model_is_left_out():
    trace = Trace.open(BUNDLED[0])
    machine = Machine(ways_of(trace), recorded_links(trace), recorded_spec(trace.spec))
    graph = build_graph(trace, machine, no_progress)
    known = known_of(trace, machine, graph.moves, graph.times)
    quicker = known.asked[0]
    times = graph.times.copy()
    times[quicker.last] -= 1.0
    left = known_of(trace, machine, graph.moves, times)
    assert quicker.node not in {one.node for one in left.asked}
    assert 0 < len(left.asked) < len(known.asked)
    assert all(known.served[node] == when for node, when in left.served.items())

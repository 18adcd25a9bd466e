"""A graph re-timed in turns, and the slack that is found by trying it out."""

from pathlib import Path

import numpy as np
import pytest

from kernbench.common.progress import no_progress
from kernbench.replay.whatif.certainty import Queues
from kernbench.replay.whatif.graph import build_graph
from kernbench.replay.whatif.links import recorded_links
from kernbench.replay.whatif.machine import Machine, ways_of
from kernbench.replay.whatif.slack import tried_out
from kernbench.replay.whatif.turns import Turns
from kernbench.replay.whatif.walk import Late
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.topology import recorded_spec
from kernbench.trace import Trace

IN_TCM = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)

def kernel(x_ptr, y_ptr, tl):
    tile = tl.load(x_ptr, (128, 128), "f16")
    tl.composite(a=tile, b=tile, out_ptr=y_ptr, out_dtype="f32", wait=True)
    tl.composite(a=tile, b=tl.ref(x_ptr, (128, 128), "f16"), out_ptr=y_ptr, wait=True)

@bench(name="in_tcm", description="")
def run(torch):
    x = torch.tensor(np.ones((128, 128)), "f16", ONE, name="x")
    y = torch.empty((128, 128), "f32", ONE, name="y")
    torch.launch("kernel", kernel, x, y)
"""
BESIDE_A_LOAD = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)

def kernel(x, y, tl):
    done = tl.composite(a=tl.ref(x), b=tl.ref(x), out_ptr=y, tile=(32, 32, 32))
    some = tl.load(x[:2])
    for _ in range(10):
        some = tl.exp(some)
    tl.wait(done)

@bench(name="beside_a_load", description="")
def run(torch):
    x = torch.tensor(np.ones((64, 64)), "f16", ONE, name="x")
    torch.launch("kernel", kernel, x, torch.empty((64, 64), "f16", ONE, name="y"))
"""
FULL_RING = """
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy

def kernel(x, y, tl):
    some = tl.load(x)
    if tl.program_id(0) == 0:
        for _ in range(4):
            tl.send("E", some, wait=False)
    else:
        for _ in range(4):
            some = tl.recv("W", (1, 16), "f32")
        tl.store(y, some)

@bench(name="full_ring", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=lambda rank: [{"E": 1}, {"W": 0}][rank],
        buffer_kind="hbm",
        slots=2,
        slot_bytes=64,
    )
    rows = DPPolicy(pe="row_wise", num_pes=2)
    x = torch.tensor(np.ones((2, 16)), "f32", rows, name="x")
    torch.launch("kernel", kernel, x, torch.zeros((2, 16), "f32", rows, name="y"))
"""
ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
BUNDLED = sorted(Path(__file__).parents[3].glob("traces/*.msgpack"))


def turns_of(path):
    trace = Trace.open(path)
    machine = Machine(ways_of(trace), recorded_links(trace), recorded_spec(trace.spec))
    graph = build_graph(trace, machine, no_progress)
    weight = graph.table.on(machine)
    queues = Queues(graph, weight, np.arange(graph.nodes), 0)
    return trace, graph, Turns(trace, machine, graph, queues, weight)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
@pytest.mark.slow
def test_nothing_late_is_what_was_recorded_to_the_last_bit(path):
    _, graph, turns = turns_of(path)
    times = turns.times_if(Late(0, 0.0), no_progress)
    assert np.array_equal(times, graph.moments.times)
    assert turns.end_if(Late(0, 0.0), no_progress) == turns.end


def test_tiles_that_begin_with_fetch_are_each_waited_for_once(tmp_path):
    file = tmp_path / "in_tcm.py"
    file.write_text(IN_TCM)
    path = tmp_path / "recorded.msgpack"
    run_bench(str(file), trace=path, verify=False)
    _, graph, turns = turns_of(path)
    times = turns.times_if(Late(0, 0.0), no_progress)
    assert np.array_equal(times, graph.moments.times)


def test_a_run_is_explained_only_if_nothing_late_is_what_was_recorded(tmp_path):
    """A credit comes while the push before it still has the only slot of its DMA."""
    file = tmp_path / "full_ring.py"
    file.write_text(FULL_RING)
    path = tmp_path / "recorded.msgpack"
    one_slot = ONE_CUBE | {"pe.dma.outstanding": 1}
    run_bench(str(file), spec=one_slot, trace=path, verify=False)
    _, graph, turns = turns_of(path)
    times = turns.times_if(Late(0, 0.0), no_progress)
    assert turns.explains == np.array_equal(times, graph.moments.times)


@pytest.mark.slow
def test_every_op_is_when_it_is_in_a_run_in_which_others_go_first(tmp_path):
    path = tmp_path / "recorded.msgpack"
    new = tmp_path / "new.msgpack"
    run_bench("pointer_chase", params={"pes": 8}, trace=path)
    trace, graph, turns = turns_of(path)
    late = 41
    row = np.array([trace.order[late]], np.int64)
    node = int(graph.moments.op_start(row)[0])
    times = np.array(turns.times_if(Late(node, 87.0), no_progress))
    rerun(path, new, Change(delays=[(late, 87.0)]))
    ends = by_component(Trace.open(new))
    for component, rows in by_component(trace, times).items():
        assert rows == pytest.approx(ends[component], abs=0.01), component


@pytest.mark.parametrize("late_ns", [1.0, 10.0, 60.0])
@pytest.mark.slow
def test_a_command_that_is_issued_later_lets_an_older_one_go_first(late_ns, tmp_path):
    path = tmp_path / "recorded.msgpack"
    new = tmp_path / "new.msgpack"
    params = {"tokens": 32, "d": 32, "experts": 4, "pes": 4}
    run_bench("moe_route", params=params, spec=ONE_CUBE, trace=path)
    trace, graph, turns = turns_of(path)
    names = [trace.strings[name] for name in trace.op_columns.name[:]]
    # A result that a PE makes ready before it loads: three PEs load in one instant, and
    # its controller has served this one before a younger command of another PE.
    late = trace.position[names.index("full")] + 18
    node = int(graph.moments.op_start(np.array([trace.order[late]], np.int64))[0])
    rerun(path, new, Change(delays=[(late, late_ns)]))
    real = max(launch.t_end for launch in Trace.open(new).launches)
    told = turns.end_if(Late(node, late_ns), no_progress)
    assert told == pytest.approx(real, abs=0.1)


@pytest.mark.parametrize("late_ns", [5.0, 10.0, 30.0])
@pytest.mark.slow
def test_tiles_that_begin_at_one_time_take_slots_in_their_order(late_ns, tmp_path):
    """A load is issued while the composite is late: the last tile waits for a slot."""
    file = tmp_path / "beside_a_load.py"
    file.write_text(BESIDE_A_LOAD)
    path = tmp_path / "recorded.msgpack"
    new = tmp_path / "new.msgpack"
    run_bench(str(file), trace=path, verify=False)
    trace, graph, turns = turns_of(path)
    names = [op.op_name for op in trace.ops]
    late = names.index("composite_gemm")
    node = int(graph.moments.op_start(np.array([trace.order[late]], np.int64))[0])
    rerun(path, new, Change(delays=[(late, late_ns)]))
    real = max(launch.t_end for launch in Trace.open(new).launches)
    told = turns.end_if(Late(node, late_ns), no_progress)
    assert told == pytest.approx(real, abs=0.1)


def by_component(trace, times=None):
    """When the ops of each component ended, in order; by the log if no times are."""
    ops = trace.op_columns
    ends = ops.t_end[:]
    if times is not None:
        ends = times[: len(ends)]
    found = {}
    for component, end in zip(ops.component[:].tolist(), ends.tolist(), strict=True):
        found.setdefault(trace.node_ids[component], []).append(end)
    return {component: sorted(some) for component, some in found.items()}


@pytest.mark.parametrize("told", [0.0, 20.0, 36.0, 300.0])
def test_slack_that_is_tried_out_is_the_most_that_moves_nothing(told):
    assert tried_out(lambda ns: max(0.0, ns - 36.0), told) == 36


def test_slack_that_is_tried_out_is_past_what_lets_the_end_come_sooner():
    def moved(ns):
        return -4.0 if 10 <= ns < 50 else max(0.0, ns - 50.0)

    assert tried_out(moved, 5.0) == pytest.approx(50, abs=0.5)


def test_slack_before_a_jump_is_found_near_it():
    def moved(ns):
        return 190.0 if ns > 77 else 0.0

    assert tried_out(moved, 240.0) == pytest.approx(77, abs=0.5)


def test_slack_is_looked_for_anew_where_more_of_it_lets_the_end_be():
    def moved(ns):
        return 5.0 if 20 <= ns < 26 else max(0.0, ns - 60.0)

    assert tried_out(moved, 15.0) == 60


def test_slack_behind_a_jump_is_what_moves_the_end_with_the_op():
    def moved(ns):
        return -3.0 if ns < 100 else ns - 104.0

    assert tried_out(moved, 99.0) == 104


def test_what_never_moves_the_end_has_some_slack_all_the_same():
    assert tried_out(lambda ns: 0.0, 5.0) >= 5

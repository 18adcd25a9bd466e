"""The critical path covers the launches and names what sets their end; slack."""

import re
from dataclasses import replace

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from bench_sizes import UNEVEN
from hypothesis import given, settings
from ipcq_runs import machine, talk
from pace import first_fast
from replay_logs import Log, double, load, store

from kernbench.common.progress import Cancelled
from kernbench.components.builtin.pe_math import PeMath
from kernbench.errors import DeadlockError
from kernbench.replay import ReplaySession
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.replay.time.critical import WHATS, repeated_steps
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import build_topology
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.spec_values import spec_number

BENCHES = [*UNEVEN, "ccl_allreduce", "mlp_tp"]
TWO_PES = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=1, num_pes=2)
# ns that an op of MATH takes longer, by cube and number
LATE: dict[tuple[int, int], float] = {}


class Late(PeMath):
    """MATH whose ops take longer, as LATE has it."""

    served = 0

    def run(self, env, msg):
        yield from super().run(env, msg)
        yield env.timeout(LATE.get((self.node.cube, self.served), 0.0))
        self.served += 1


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """record(kernel, graph): the session of a launch on two PEs.

    Each has a half of x and of y, which are 64x512.
    """

    def record(kernel, graph, launches=1):
        path = tmp_path_factory.mktemp("trace") / "trace"
        writer = TraceWriter(path)
        writer.begin({}, graph)
        engine = GraphEngine(graph, recorder=writer)
        torch = Torch(engine)

        def bench(_):
            x = torch.tensor(np.ones((64, 512)), "f16", TWO_PES, "x")
            y = torch.empty((64, 512), "f16", TWO_PES, "y")
            for _ in range(launches):
                torch.launch("kernel", kernel, x, y)

        engine.run(bench)
        writer.end(engine.env.now)
        return ReplaySession(Trace.open(path))

    return record


def whats(path):
    """What the pieces are, in order, without repetitions."""
    found = [WHATS[n] for n in path.whats]
    return [a for a, b in zip(found, [*found[1:], ""], strict=True) if a != b]


def mine(tl, x, y):
    at = tl.program_id(0) * 32 * 512 * 2
    return x + at, y + at


def chain(x, y, tl):
    x, y = mine(tl, x, y)
    a = tl.load(x, (32, 32), "f16")
    tl.store(y, tl.dot(a, a, out_dtype="f16"))


def uneven(x, y, tl):
    x, y = mine(tl, x, y)
    a = tl.load(x, (32, 32), "f16")
    for _ in range(1 + 3 * tl.program_id(0)):
        a = tl.dot(a, a, out_dtype="f16")
    tl.store(y, a)


# -- the path --


def test_a_chain_of_load_dot_and_store_is_the_path(record, one_cube):
    path = record(chain, one_cube).critical_path()
    served = [what for what in whats(path) if what not in ("link", "hbm_channel")]
    together = [a for a, b in zip(served, [*served[1:], ""], strict=True) if a != b]
    assert together == ["issue", "dma read", "issue", "gemm", "issue", "dma write"]


def test_of_two_pes_the_slow_one_is_on_the_path(record, one_cube):
    session = record(uneven, one_cube)
    path = session.critical_path()
    nodes = {session.row(op).component for op in path.ops.tolist() if op >= 0}
    assert nodes == {f"sip0.cube0.pe1.{engine}" for engine in ("pe_dma", "pe_gemm")}


def test_the_last_op_of_the_fast_pe_has_the_slack_of_its_whole_lead(record, one_cube):
    session = record(uneven, one_cube)
    fast = [
        op for op in range(len(session)) if "pe0.pe_dma" in session.row(op).component
    ][-1]
    end = session.launch_window()[1]
    assert session.slack(fast) == pytest.approx(end - session.row(fast).t_end, abs=1e-6)


@pytest.mark.parametrize("clock_ghz", [1.3, 1.7])
def test_at_any_clock_the_path_is_explained(tmp_path, clock_ghz):
    sizes = {"m": 4, "n": 16, "block": 2, "pes": 1}
    spec = {"pe.clock_ghz": clock_ghz}
    run_bench("softmax", params=sizes, spec=spec, trace=tmp_path / "t", verify=False)
    path = ReplaySession(Trace.open(tmp_path / "t")).critical_path()
    assert set(path.totals) == {"math", "dma read", "dma write", "issue"}


def send_and_compute(rank, mine, out, tl):
    if rank:
        tl.store(out, tl.recv("W", (512,), "f32"))
        return
    a = tl.load(mine, (512,), "f32")
    tl.send("E", a)
    for _ in range(6):
        a = a + a
    tl.store(out, a)


@pytest.mark.parametrize("rate_gbs", [128.0, 96.7, 110.1])
def test_at_any_rate_a_send_is_explained(tmp_path, rate_gbs):
    spec = machine(None).spec
    dma = replace(spec.pe.dma, to_router_bw_gbs=rate_gbs)
    graph = build_topology(replace(spec, pe=replace(spec.pe, dma=dma)), None)
    writer = TraceWriter(tmp_path / "t")
    writer.begin({}, graph)
    talk(graph, send_and_compute, 512, recorder=writer)
    writer.end(1e6)
    path = ReplaySession(Trace.open(tmp_path / "t")).critical_path()
    assert set(path.totals) == {"math", "dma read", "dma write", "set-up", "issue"}


SENDS_LAST = """
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy


def kernel(x, y, turn, tl):
    a = tl.load(x)
    part = tl.slice(a, (0, 0), (1, 256))
    if turn == 0 and tl.program_id(0) == 0:
        tl.send("E", part, wait=False)
        tl.send("E", part)
    elif turn == 0:
        tl.store(y[:1], a, wait=False)
        tl.recv("W", (1, 256), "f32")
    elif tl.program_id(0) == 1:
        tl.recv("W", (1, 256), "f32")


@bench(name="sends_last", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=lambda rank: [{"E": 1}, {"W": 0}][rank],
        slots=1,
        slot_bytes=1024,
    )
    rows = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.tensor(np.ones((2, 4096)), "f32", rows, name="x")
    y = torch.zeros((2, 4096), "f32", rows, name="y")
    for turn in range(2):
        torch.launch("kernel", kernel, x, y, turn)
"""
"""The first kernel of PE 0 ends when what it sent last was read, before it lands."""


def test_a_kernel_that_ends_with_a_send_is_explained(tmp_path):
    file = tmp_path / "sends_last.py"
    file.write_text(SENDS_LAST)
    spec = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
    spec |= {"cube.router.link_bw_gbs": 16.0, "pe.dma.burst_bytes": 8192}
    run_bench(str(file), spec=spec, trace=tmp_path / "t")
    path = ReplaySession(Trace.open(tmp_path / "t")).critical_path()
    assert "unexplained" not in path.totals
    assert path.totals["credit"] > 900


@pytest.mark.parametrize("name", first_fast(BENCHES))
def test_pieces_cover_the_launches_without_gap_or_overlap(benches, name):
    session = benches(name)
    path = session.critical_path()
    assert (path.times[0], path.times[-1]) == session.launch_window()
    assert (np.diff(path.times) > 0).all()
    assert sum(path.totals.values()) == pytest.approx(path.t1 - path.t0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHES)
def test_nothing_on_the_path_of_a_bench_is_unexplained(benches, name):
    assert "unexplained" not in benches(name).critical_path().totals


@pytest.mark.parametrize("name", BENCHES)
@pytest.mark.slow
def test_an_op_on_the_path_is_served_or_waits_while_it_is_its_turn(benches, name):
    session = benches(name)
    path = session.critical_path()
    columns = session.trace.op_columns
    served = np.flatnonzero((path.whats < WHATS.index("operand")) & (path.ops >= 0))
    rows = session.trace.order[path.ops[served]]
    assert (path.times[served] >= columns.t_start[rows] - 1e-6).all()
    assert (path.times[served + 1] <= columns.t_end[rows] + 1e-6).all()


@pytest.mark.slow
def test_a_launch_after_another_is_joined_by_the_host(benches):
    session = benches("mlp_tp")
    first, *_, last = session.trace.launches
    path = session.critical_path()
    host = np.flatnonzero(path.whats == WHATS.index("host"))
    begin = path.times[host[0]]
    end = path.times[host[-1] + 1]
    assert first.t_end <= begin < end <= last.t_start


def test_a_run_without_launches_has_the_path_of_its_ops(tmp_path, one_cube):
    log = Log(tmp_path / "trace", one_cube)
    log.op(load(0, 0), 10.0, 20.0, t_issue=9.0)
    log.op(double(0, 64), 21.0, 30.0, engine="pe_math", t_issue=20.0)
    log.op(store(64, 64), 31.0, 40.0, t_issue=30.0)
    path = log.session().critical_path()
    assert whats(path) == [
        "unexplained",
        "dma read",
        "issue",
        "math",
        "issue",
        "dma write",
    ]
    assert path.times.tolist() == [0.0, 10.0, 20.0, 21.0, 30.0, 31.0, 40.0]


def test_a_recording_cut_off_between_an_op_and_its_call_ends_at_the_op_before(
    tmp_path, one_cube
):
    """It was one piece, unexplained from the start of the run to the last op."""
    log = Log(tmp_path / "trace", one_cube)
    log.op(load(0, 0), 10.0, 20.0, t_issue=9.0)
    log.op(store(0, 64), 21.0, 30.0, t_issue=20.0)
    log.op(store(0, 128), 31.0, 40.0, t_issue=30.0, line=None)
    path = log.session().critical_path()
    assert path.t1 == 30.0
    assert whats(path) == ["unexplained", "dma read", "issue", "dma write"]


def test_a_deadlock_is_explained_up_to_the_last_op(tmp_path):
    with pytest.raises(DeadlockError):
        run_bench("fault_ring_by_name", trace=tmp_path / "trace", verify=False)
    path = ReplaySession(Trace.open(tmp_path / "trace")).critical_path()
    assert {"host transfer", "launch", "dma write"} <= set(path.totals) - {
        "unexplained"
    }
    assert "unexplained" not in path.totals
    (launch,) = [step for step in path.steps if step.what == "launch"]
    assert launch.ns > 100.0
    # It is the host's, which has no op and no kernel line.
    assert (launch.op, launch.node, launch.site) == (-1, "", "")


def held(x, y, tl):
    """A small load waits until the ninth large store has started; it ends before it.

    It reads what that store writes, in the HBM of the other PE, where nobody else is.
    """
    if tl.program_id(0) == 1:
        return
    there = y + 32 * 512 * 2
    a = tl.load(x, (32, 512), "f16")
    for _ in range(8):
        tl.store(y, a, wait=False)
    tl.store(there, a, wait=False)
    tl.load(there, (1, 32), "f16", wait=False)
    b = tl.load(x, (32, 32), "f16")
    for _ in range(16):
        b = tl.dot(b, b, out_dtype="f16")


def test_the_path_of_a_call_that_was_held_passes_what_held_it(record, one_cube):
    session = record(held, one_cube)
    *_, store = session.matching("name=dma_write")
    _, small, _ = session.matching("name=dma_read")
    assert session.row(small).t_end < session.row(store).t_end
    path = session.critical_path()
    # The path goes on through the stores that the load was held behind: a cycle is
    # the hold's own.
    assert path.totals["operand"] == 1.0
    writes = [step for step in path.steps if step.op == 3]
    assert sum(step.ns for step in writes) > 1000
    assert "unexplained" not in path.totals


def test_an_empty_trace_has_an_empty_path(tmp_path, one_cube):
    path = Log(tmp_path / "trace", one_cube).session().critical_path()
    assert (path.totals, path.steps) == ({}, ())


@pytest.mark.slow
def test_what_is_on_the_path_sets_the_end(benches, tmp_path):
    """Twice the clock takes off at least half of what the array has of the path."""
    usual = benches("matmul")
    path = tmp_path / "quick"
    twice = {"pe.clock_ghz": 2.0}
    sizes = UNEVEN["matmul"]
    run_bench("matmul", params=sizes, spec=twice, trace=path, verify=False)
    quick = ReplaySession(Trace.open(path))
    gain = np.ptp(usual.launch_window()) - np.ptp(quick.launch_window())
    gemm = usual.critical_path().totals["gemm"]
    assert gain >= gemm / 2
    assert quick.critical_path().totals["gemm"] == pytest.approx(gemm / 2, rel=0.2)


STRANGERS = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ROWS = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=2)


def near(x, tl):
    for _ in range(4):
        tl.load(x)


def first(x, tl):
    for _ in range(4):
        tl.load(x[:4])


def math(x, tl):
    total = tl.load(x)
    for _ in range(8):
        total = tl.exp(total)


KERNELS = {"near": near, "first": first, "math": math}


@bench(name="strangers", description="one kernel on the PEs of two cubes")
def run(torch, kernel="near", n=64):
    x = torch.tensor(torch.rng.standard_normal((64, n)), "f16", ROWS, name="x")
    torch.launch(kernel, KERNELS[kernel], x)
"""


def test_a_launch_that_has_not_ended_is_said_to_be_left_out(benches, failed):
    path = failed.critical_path()
    (launch,) = failed.trace.launches
    assert (path.t0, path.t1) == (launch.t_start, launch.t_end)
    text = " ".join(as_text(path, 100).split())
    assert "up to there; without a launch that has not ended" in text
    assert not benches("matmul").critical_path().part


@pytest.fixture
def stranger(tmp_path):
    """stranger(kernel, n, spec): the session of a run of a bench of its own."""
    bench = tmp_path / "strangers.py"
    bench.write_text(STRANGERS)

    def stranger(kernel, n, spec=None):
        path = tmp_path / "trace"
        params = {"kernel": kernel, "n": n}
        run_bench(str(bench), params=params, spec=spec, trace=path, verify=False)
        return ReplaySession(Trace.open(path))

    return stranger


@pytest.mark.parametrize("kernel", ["near", "first", "math"])
@pytest.mark.parametrize("n", [64, 2048])
def test_a_field_that_is_hinted_at_makes_the_run_faster(stranger, kernel, n):
    """Of twice as much of it at least a third of what the path is most of is gone."""
    usual = stranger(kernel, n)
    path = usual.critical_path()
    text = as_text(path, 200)
    field = re.search(r"whatif FILE (\S+)=…", text)
    if field is None:
        assert re.search(r"what if: kernbench trace whatif FILE$", text, re.MULTILINE)
        return
    name = field[1]
    twice = 2 * spec_number(usual.trace.spec, name)
    quick = stranger(kernel, n, {name: twice})
    gain = np.ptp(usual.launch_window()) - np.ptp(quick.launch_window())
    largest = next(iter(path.totals.values()))
    assert gain >= largest / 3, f"{name} is hinted at"


@pytest.mark.parametrize("kernel", ["near", "first", "math"])
def test_what_is_on_the_path_and_may_be_late_is_doubted(stranger, tmp_path, kernel):
    """An op on the path that is held back moves the end, or it is said that it may
    not.
    """
    delay_ns = 2.0
    session = stranger(kernel, 512)
    path = session.critical_path()
    ops = np.unique(path.ops[path.ops >= 0]).tolist()
    moved = []
    for op in ops[:: max(len(ops) // 3, 1)]:
        late = tmp_path / f"late_{op}"
        rerun(session.trace, late, Change(delays=[(op, delay_ns)]))
        window = ReplaySession(Trace.open(late)).launch_window()
        moved.append(window[1] - session.launch_window()[1])
    is_doubted = "waits behind the bytes of others" in as_text(path, 200)
    assert is_doubted or min(moved) >= delay_ns - 1e-3
    assert is_doubted == (kernel == "first")


# -- slack --


@pytest.mark.parametrize("name", BENCHES)
@pytest.mark.slow
def test_slack_is_nowhere_negative_and_zero_on_the_path(benches, name):
    session = benches(name)
    path = session.critical_path()
    served = (path.whats < WHATS.index("operand")) & (path.ops >= 0)
    slack = np.array([session.slack(op) for op in range(len(session))])
    assert slack.min() >= 0
    assert slack[path.ops[served]].max(initial=0.0) < 1e-6


@pytest.mark.parametrize("name", BENCHES)
def test_slack_is_at_most_that_of_dependencies_and_lanes(benches, name):
    """By networkx: the longest path from each op over dependencies and lanes alone.

    The slots of a DMA are no lanes: one stands in for another.
    """
    session = benches(name)
    trace = session.trace
    ops = trace.op_columns
    end = session.launch_window()[1]
    graph = nx.DiGraph()
    last_of_lane = {}
    took = (ops.t_end - ops.t_start).tolist()
    for row in np.argsort(ops.t_start, kind="stable").tolist():
        graph.add_edge(row, "end", weight=took[row])
        lane = ops.component[row], ops.slot[row]
        before = trace.deps(row).tolist()
        is_dma = trace.node_ids[ops.component[row]].endswith("pe_dma")
        if lane in last_of_lane and not is_dma:
            before.append(last_of_lane[lane])
        for other in before:
            if ops.t_end[other] <= ops.t_start[row]:
                graph.add_edge(other, row, weight=took[other])
        last_of_lane[lane] = row
    longest = {"end": 0.0}  # to the end, from the start of each op
    for node in reversed(list(nx.topological_sort(graph))):
        ahead = (e["weight"] + longest[then] for then, e in graph[node].items())
        longest[node] = max(ahead, default=0.0)
    for row, start in enumerate(ops.t_start.tolist()):
        if ops.t_end[row] <= end:
            room = end - start - longest[row]
            assert session.slack(int(trace.position[row])) <= room + 1e-6


def work(counts, rounds):
    """Each rank computes, sends to the other and receives, ``rounds`` times."""

    def program(rank, mine, out, tl):
        a = tl.load(mine, (16,), "f32")
        for _ in range(rounds):
            for _ in range(counts[rank]):
                a = a + a
            tl.send("E", a)
            a = a + tl.recv("W", (16,), "f32")
        tl.store(out, a)

    return program


@pytest.fixture(scope="module")
def late_machine(layout_cache):
    return machine(layout_cache, pe_math=f"{__name__}:Late")


END_NS = 1e6
"""When runs of talks are over, long after their launches."""


def judge(graph, path, counts, rounds, cube, which):
    """Have one op of MATH be late by its slack, and by 500 ns more."""

    def run(late):
        LATE.clear()
        LATE.update(late)
        writer = TraceWriter(path)
        writer.begin({}, graph)
        talk(graph, work(counts, rounds), 16, recorder=writer)
        writer.end(END_NS)
        return ReplaySession(Trace.open(path))

    session = run({})
    own = f"sip0.cube{cube}.pe0.pe_math"
    mine = [op for op in range(len(session)) if session.row(op).component == own]
    slack = session.slack(mine[which % len(mine)])
    end = session.launch_window()[1]
    number = cube, which % len(mine)
    as_late_as_it_may = run({number: slack}).launch_window()[1]
    later = run({number: slack + 500.0}).launch_window()[1]
    assert as_late_as_it_may == pytest.approx(end, abs=1e-3)
    assert end < later <= end + 500.0 + 1e-3


TALKS = given(
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    rounds=st.integers(1, 3),
    cube=st.integers(0, 1),
    which=st.integers(0, 20),
)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@TALKS
def test_an_op_as_late_as_its_slack_moves_nothing_and_one_later_does(
    late_machine, tmp_path_factory, **talked
):
    judge(late_machine, tmp_path_factory.mktemp("late") / "trace", **talked)


@pytest.mark.soak
@settings(max_examples=100, deadline=None)
@TALKS
def test_a_hundred_late_ops(late_machine, tmp_path_factory, **talked):
    judge(late_machine, tmp_path_factory.mktemp("late") / "trace", **talked)


def test_a_message_that_came_early_may_come_as_late_as_it_is_taken(
    late_machine, tmp_path
):
    writer = TraceWriter(tmp_path / "trace")
    writer.begin({}, late_machine)
    talk(late_machine, work((1, 30), 1), 16, recorder=writer)
    writer.end(END_NS)
    session = ReplaySession(Trace.open(tmp_path / "trace"))
    on_cube1 = {}
    for row in session.rows(0, len(session)):
        if row.component.startswith("sip0.cube1."):
            on_cube1[row.name] = row
    copy = on_cube1["ipcq_copy"]
    recv = on_cube1["ipcq_recv"]
    early = recv.t_start - copy.t_end
    assert early > 100
    room = early + session.slack(recv.op)
    assert session.slack(copy.op) == pytest.approx(room, abs=1e-6)


def loose(x, y, tl):
    """A store that nobody waits for but the end of the kernel."""
    x, y = mine(tl, x, y)
    a = tl.load(x, (32, 32), "f16")
    tl.store(y, a, wait=False)
    for _ in range(4):
        a = tl.dot(a, a, out_dtype="f16")


def test_what_only_the_end_of_its_kernel_awaits_may_end_with_that(record, one_cube):
    session = record(loose, one_cube, launches=2)
    stored = next(
        op for op in range(len(session)) if session.row(op).name == "dma_write"
    )
    room = session.trace.launches[0].t_end - session.row(stored).t_end
    assert session.slack(stored) == pytest.approx(room, abs=1e-6)


# -- the answer --


def test_repeated_pieces_are_one_step_a_kind():
    keys = np.array([7, *[1, 2, 3] * 4, 9])
    step, times = repeated_steps(keys)
    assert step.tolist() == [0, *[1, 2, 3] * 4, 4]
    assert times.tolist() == [1, *[4] * 12, 1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_a_step_has_pieces_of_one_kind_as_often_as_it_says(kinds):
    step, times = repeated_steps(np.array(kinds))
    for number in set(step.tolist()):
        where = step == number
        assert len({kinds[i] for i in np.flatnonzero(where)}) == 1
        assert np.count_nonzero(where) == times[where][0]


def test_the_text_begins_with_the_totals_and_says_what_if(benches):
    answer = benches("matmul").run_line("critical 3")
    lines = as_text(answer, 120).splitlines()
    share = answer.totals["gemm"] / (answer.t1 - answer.t0)
    assert lines[1].split()[0] == f"{share:.1%}"
    assert any("trace whatif FILE pe.clock_ghz=" in line for line in lines)
    assert len(answer.steps) == 3


def test_it_is_data_too(benches):
    found = as_data(benches("matmul").run_line("critical"))
    assert sum(found["totals"].values()) == pytest.approx(found["t1"] - found["t0"])


def test_it_says_how_far_it_is_and_can_be_cancelled(recorded):
    shares = []
    ReplaySession(Trace.open(recorded.trace_path)).critical_path(progress=shares.append)
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1

    def cancel(done):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ReplaySession(Trace.open(recorded.trace_path)).critical_path(progress=cancel)

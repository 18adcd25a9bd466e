"""Two traces beside each other: what is matched, what differs, when B is a failure."""

import json

import pytest
from click.testing import CliRunner
from gaps import least_gap, limit_s
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_logs import PE0, PE1, Log, double, host_write, load

from kernbench.cli import main
from kernbench.common.progress import Cancelled
from kernbench.errors import UsageError
from kernbench.replay.compare import compare, parse_percent
from kernbench.replay.ops_beside import op_beside
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

ONE_CUBE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
SIZES = {"m": 128, "k": 128, "n": 128, "pes": 8}
KINDS = ("missing", "added", "params", "data", "rerouted", "slower", "faster")


@pytest.fixture(scope="module")
def matmul(tmp_path_factory):
    """matmul(params, **options) -> the trace of a run."""
    folder = tmp_path_factory.mktemp("compare")
    made = {}

    def matmul(params=None, **options):
        key = repr((params, options))
        if key not in made:
            made[key] = folder / f"{len(made)}.msgpack"
            options["spec"] = ONE_CUBE | options.get("spec", {})
            run_bench(
                "matmul", params=SIZES | (params or {}), trace=made[key], **options
            )
        return Trace.open(made[key])

    return matmul


@pytest.fixture
def logged(tmp_path, one_cube):
    """logged(ops) -> the trace of (message, t0, t1[, PE]) by hand."""
    count = iter(range(100))

    def logged(*ops):
        log = Log(tmp_path / f"{next(count)}.msgpack", one_cube)
        for op in ops:
            log.op(*op)
        return log.session().trace

    return logged


@pytest.mark.slow
def test_an_op_is_found_again_in_a_run_that_issued_in_another_order(matmul):
    a = matmul()
    b = matmul(spec={"cube.hbm.channel_bw_gbs": 2.0})
    moved = 0
    for op in range(0, len(a.ops), 7):
        there = op_beside(a, b, op)
        mine = a.ops[op]
        other = b.ops[there]
        assert (mine.op_name, mine.component_id) == (other.op_name, other.component_id)
        assert mine.params.get("tile_index") == other.params.get("tile_index")
        moved += op != there
    assert moved
    assert op_beside(a, b, -1) is None


def differing(found):
    return {kind: found.counts[kind] for kind in KINDS if found.counts[kind]}


def total(found, what):
    (row,) = (row for row in found.totals if row.what == what)
    return row


def test_a_trace_is_the_same_as_itself(matmul):
    found = compare(matmul(), matmul(), 0.0)
    assert (found.ok, found.same, found.verdict) == (
        True,
        True,
        "within 0 %; ok: nothing differs",
    )
    assert found.counts == {"matched": 152} | dict.fromkeys(KINDS, 0)
    assert (found.tensors, found.changes) == ((), ())
    assert all(row.a == row.b for row in (*found.totals, *found.kernel_lines))


@pytest.mark.slow
def test_tensors_of_more_than_a_mib_are_compared(matmul):
    large = {"m": 1024, "k": 1024, "n": 16}  # a has 2 MiB
    trace = matmul(large)
    assert compare(trace, trace).same
    other = compare(trace, matmul(large, seed=1))
    assert "data" in differing(other)


def test_an_op_that_takes_longer_is_named_with_both_times(logged):
    before = logged(
        (load(0, 0), 0, 10), (double(0, 64), 10, 20), (load(0, 128), 20, 30)
    )
    after = logged((load(0, 0), 0, 10), (double(0, 64), 10, 24), (load(0, 128), 24, 34))
    found = compare(before, after)
    assert differing(found) == {"slower": 1}
    (change,) = found.changes
    assert (change.kind, change.op_a, change.op_b) == ("slower", 1, 1)
    assert (change.a_ns, change.b_ns, change.row.name) == (10, 14, "add")
    assert change.row.site == "kernel.py:2"
    line = found.kernel_lines[0]
    assert (line.what, line.a, line.b, line.change) == ("kernel.py:2", 10, 14, "+40.0%")


@pytest.mark.slow
@given(
    steps=st.lists(
        st.tuples(
            st.booleans(), st.sampled_from([1.0, 2.0, 30.0]), st.sampled_from("lds")
        ),
        max_size=12,
    ),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=30, deadline=None)
def test_ops_match_by_program_whatever_their_times(
    steps, order, tmp_path_factory, one_cube
):
    makers = {
        "l": lambda: load(0, 0),
        "d": lambda: double(0, 64),
        "s": lambda: host_write(n=4),
    }
    folder = tmp_path_factory.mktemp("random")
    traces = []
    for name in "ab":
        left = {
            PE0: [step for step in steps if step[0]],
            PE1: [step for step in steps if not step[0]],
        }
        log = Log(folder / name, one_cube)
        now = 0.0
        while any(left.values()):
            pe = order.choice([pe for pe in left if left[pe]])
            _, ns, kind = left[pe].pop(0)
            log.op(makers[kind](), now, now + ns, pe=pe)
            now += ns
        traces.append(log.session().trace)
    found = compare(*traces)
    assert found.counts["matched"] == len(steps)
    assert differing(found) == {}


def test_a_change_within_the_limit_is_none(logged):
    before = logged((load(0, 0), 0, 100))
    after = logged((load(0, 0), 0, 104))
    assert differing(compare(before, after)) == {}
    assert differing(compare(before, after, 3.0)) == {"slower": 1}
    assert differing(compare(after, before, 3.0)) == {"faster": 1}


def test_what_only_one_has_is_missing_or_added(logged):
    one = logged((load(0, 0), 0, 10))
    two = logged((load(0, 0), 0, 10), (double(0, 64), 10, 20))
    added = compare(one, two)
    missing = compare(two, one)
    assert differing(added) == {"added": 1}
    assert differing(missing) == {"missing": 1}
    assert [(c.op_a, c.op_b, c.row.name) for c in added.changes] == [(-1, 1, "add")]
    assert [(c.op_a, c.op_b, c.row.name) for c in missing.changes] == [(1, -1, "add")]


def test_an_empty_trace_is_compared_too(logged):
    assert differing(compare(logged(), logged((load(0, 0), 0, 10)))) == {"added": 1}
    assert compare(logged(), logged()).counts["matched"] == 0


def test_a_faster_clock_makes_ops_faster_and_moves_none(matmul):
    found = compare(matmul(), matmul(spec={"pe.clock_ghz": 2}), 5.0)
    assert found.ok
    # 8 composites and the gemm of each of 32 tiles
    assert differing(found) == {"faster": 40}
    # the largest gains first
    assert {c.row.name for c in found.changes[:8]} == {"composite_gemm"}
    gemm = total(found, "busy gemm, ns")
    assert gemm.b == gemm.a / 2
    assert total(found, "busy dma read, ns").change == "+0.0%"


def test_the_same_reference_in_other_shards_is_the_same(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    for pes, path in enumerate(paths, 1):
        params = {"m": 8, "n": 16, "pes": pes}
        run_bench("softmax", params=params, spec=ONE_CUBE, trace=path)
    found = compare(*map(Trace.open, paths))
    assert found.outputs == found.tensors == ()
    assert "reference" not in found.verdict


def test_another_seed_is_other_data_at_equal_times(matmul):
    found = compare(matmul(), matmul(seed=1), 0.0)
    assert found.ok
    assert differing(found) == {"data": 16}  # the host writes of a and b
    assert {(c.row.name, c.detail) for c in found.changes} == {
        ("host_write", "contents")
    }
    assert [(t.what, t.a, t.b, t.change) for t in found.tensors] == [
        ("c", "ok", "ok", "other reference")
    ]


def test_another_tile_size_adds_tiles_and_resizes_those_that_stay(matmul):
    found = compare(matmul(), matmul({"tile": 32}), limit=3)
    assert found.counts["added"] - found.counts["missing"] == 472 - 152
    assert found.counts["matched"] + found.counts["missing"] == 152
    details = {c.detail for c in found.changes if c.kind == "params"}
    assert details == {"tile (64, 64, 64) -> (32, 32, 32)"}
    assert max(sum(c.kind == kind for c in found.changes) for kind in KINDS) == 3


@pytest.mark.slow
def test_another_topology_reroutes_what_crosses_it(matmul):
    tall = matmul({"pes": 16}, spec={"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 2})
    wide = matmul({"pes": 16}, spec={"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1})
    found = compare(tall, wide)
    rerouted = [c for c in found.changes if c.kind == "rerouted"]
    # the host writes to the other cube: 8 of a, 8 of b
    assert found.counts["rerouted"] == 16
    assert {c.row.name for c in rerouted} == {"host_write"}
    assert all(" hops" in c.detail for c in rerouted)
    assert found.counts["missing"] == found.counts["added"] == 0


def test_b_fails_where_its_launches_take_more_than_the_limit_longer(matmul):
    slow = matmul()
    fast = matmul(spec={"pe.clock_ghz": 2})
    change = total(compare(fast, slow), "launches, ns")
    percent = (change.b / change.a - 1) * 100
    assert compare(fast, slow, percent + 0.1).ok
    found = compare(fast, slow, percent - 0.1)
    assert not found.ok
    assert "% longer" in found.verdict


def test_the_time_of_launches_is_that_of_the_run_and_held_to_the_limit(tmp_path):
    source = """
from kernbench.benches import bench
def kernel(x, y, times, tl):
    v = tl.load(x)
    for _ in range(times):
        v = v * 1.0
    tl.store(y, v)
@bench(name="gap", description="the host writes much between two launches")
def run(torch, times: int = 4):
    x = torch.zeros((64,), "f32", name="x")
    y = torch.zeros((64,), "f32", name="y")
    torch.launch("kernel", kernel, x, y, times)
    torch.zeros((200000,), "f32", name="between")
    torch.launch("kernel", kernel, x, y, times)
"""
    (tmp_path / "gap.py").write_text(source)
    runs = []
    for times in (4, 16):
        path = tmp_path / f"{times}.msgpack"
        params = {"times": times}
        runs.append(run_bench(str(tmp_path / "gap.py"), params=params, trace=path))
    a, b = (run.launch_ns for run in runs)
    assert a * 1.3 < b < 0.2 * runs[0].end_ns
    found = compare(*(Trace.open(run.trace_path) for run in runs), 5.0)
    row = total(found, "launches, ns")
    assert (row.a, row.b) == pytest.approx((a, b))
    assert row.change == f"{b / a - 1:+.1%}"
    assert not found.ok
    assert "more than 5 % longer" in found.verdict


LAUNCHLESS = """
from kernbench.benches import bench
def kernel(x, tl):
    tl.store(x, tl.load(x) + 1.0)
@bench(name="some", description="perhaps a launch")
def run(torch, launches: int = 0):
    x = torch.zeros((64,), "f32", name="x")
    for _ in range(launches):
        torch.launch("kernel", kernel, x)
"""


@pytest.mark.parametrize(
    ("launches", "said", "is_ok"),
    [
        ((0, 0), "no launch ended", True),
        ((1, 0), "no launch ended in B", False),
        ((0, 1), "no launch ended in A", False),
    ],
)
@pytest.mark.slow
def test_where_no_launch_ended_there_is_no_per_cent(tmp_path, launches, said, is_ok):
    (tmp_path / "some.py").write_text(LAUNCHLESS)
    runs = []
    for which, count in zip("AB", launches, strict=True):
        path = tmp_path / which
        params = {"launches": count}
        runs.append(run_bench(str(tmp_path / "some.py"), params=params, trace=path))
    found = compare(*(Trace.open(run.trace_path) for run in runs), 5.0)
    row = total(found, "launches, ns")
    assert (row.a, row.b) == (runs[0].launch_ns, runs[1].launch_ns)
    assert row.change == said
    assert found.ok is is_ok
    assert said in found.verdict
    assert "within" not in found.verdict
    assert "longer" not in found.verdict


@pytest.mark.slow
def test_b_fails_where_it_gets_wrong_what_was_right(matmul, tmp_path):
    source = (
        "from kernbench.benches import bench\n"
        "@bench(name='sum', description='a number')\n"
        "def run(torch, n: int = 1):\n"
        "    torch.expect(torch.tensor([float(n)], 'f32', name='x'), [1.0])\n"
    )
    (tmp_path / "sum.py").write_text(source)
    for n in (1, 2):
        path = tmp_path / str(n)
        run_bench(str(tmp_path / "sum.py"), params={"n": n}, trace=path)
    right, wrong = (Trace.open(tmp_path / name) for name in "12")
    found = compare(right, wrong, 5.0)
    assert not found.ok
    assert "B ended with VerificationError: x differ" in found.verdict
    assert "x is wrong" in found.verdict
    assert [(t.what, t.a, t.b) for t in found.tensors] == [("x", "ok", "wrong")]
    assert compare(wrong, right, 5.0).ok
    assert compare(wrong, wrong, 5.0).ok


def test_it_prints_and_makes_json(matmul):
    usual, quick = matmul(), matmul(spec={"pe.clock_ghz": 2})
    found = compare(usual, quick, 5.0)
    lines = as_text(found, 120).splitlines()
    (before,) = [launch.t_end - launch.t_start for launch in usual.launches]
    (after,) = [launch.t_end - launch.t_start for launch in quick.launches]
    assert lines[0] == "other runs (machine pe.clock_ghz 1.0 -> 2.0)"
    assert lines[1] == "within 5 %"
    assert lines[2].startswith(f"launches take {after / before - 1:+.1%}")
    assert found.verdict.startswith("; ".join(lines[:2]))
    text = "\n".join(lines)
    assert "0 params, 0 data, 0 rerouted, 0 slower, 40 faster" in text
    assert max(map(len, lines)) <= 120
    data = json.loads(json.dumps(as_data(found)))
    assert data["ok"] is True
    assert data["changes"][0]["row"]["name"] == "composite_gemm"


def test_the_command_compares_with_a_file_and_exits_1_where_it_fails(matmul):
    fast = str(matmul(spec={"pe.clock_ghz": 2}).path)
    slow = str(matmul().path)
    run = CliRunner()
    assert run.invoke(main, ["trace", "compare", fast, fast]).exit_code == 0
    assert run.invoke(main, ["trace", "compare", fast, slow]).exit_code == 1
    result = run.invoke(main, ["trace", "compare", fast, slow, "--fail-over", "5%"])
    assert result.exit_code == 1
    assert "more than 5 % longer" in result.output


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "5%%", "1e3"])
def test_a_limit_that_is_no_percentage_is_refused(text):
    with pytest.raises(UsageError, match="give percent"):
        parse_percent(text)


def test_a_limit_is_read_with_and_without_its_sign():
    assert (parse_percent("5%"), parse_percent("2.5")) == (5.0, 2.5)


def test_the_session_knows_the_command(session, matmul):
    answer = session.run_line(f"compare '{session.trace.path}'")
    assert answer.counts["matched"] == len(session)


def test_the_command_can_be_cancelled(session):
    def cancel(done):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        session.run_line(f"compare '{session.trace.path}'", cancel)


@pytest.mark.parametrize("options", [{"seed": 1}, {"params": {"tile": 16}}], ids=str)
@pytest.mark.slow
def test_traces_that_differ_are_compared_with_progress_every_10_ms(matmul, options):
    """The job of the table of commands is asked for a trace beside itself."""
    paths = [matmul(**which).path for which in ({}, options)]

    def made():
        traces = [Trace.open(path) for path in paths]
        return lambda progress: compare(*traces, progress=progress)

    limit = limit_s()
    assert least_gap(made, rounds=5, enough=limit) <= limit

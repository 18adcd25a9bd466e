"""A part of a trace is a sound trace: what is in it is as it was, and it says so."""

from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from files import Disk, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pace import first_fast
from recordings import PE, assert_same, record_all, touch

from kernbench.errors import KernbenchError, TraceFormatError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.check import check_file
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.cut import cut

ONE_CUBE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
SIZES = {"m": 32, "k": 32, "n": 32, "tile": 16, "pes": 2}
DATA = ("snapshot", "input_snapshots")
TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "matmul.msgpack"
    run_bench("matmul", params=SIZES, spec=ONE_CUBE, trace=path)
    return Trace.open(path)


def part(whole, folder, t0=0.0, t1=1e9, components="*"):
    """The cut as a trace."""
    out = folder / "part.msgpack"
    out.unlink(missing_ok=True)
    cut(whole.path, out, t0, t1, components)
    return Trace.open(out)


def kept_rows(whole, t0, t1, components):
    """The rows of the ops that a cut is to hold."""
    rows = []
    for row, position in enumerate(whole.position.tolist()):
        op = whole.ops[position]
        is_there = [
            fnmatchcase(node, components) and start < t1 and (end > t0 or start >= t0)
            for node, start, end in [
                (op.component_id, op.t_start, op.t_end),
                *((node, start, end) for node, _, start, end, _ in whole.waits_of(row)),
            ]
        ]
        if any(is_there):
            rows.append(row)
    return rows


def all_about(trace, row, new_rows):
    """All about an op, its rows by ``new_rows`` (those not in it: left out, or -1)."""
    record = trace.ops[int(trace.position[row])]
    log = trace.op_columns
    return [
        record.t_start,
        record.t_end,
        record.component_id,
        record.op_kind,
        record.op_name,
        {name: value for name, value in record.params.items() if name not in DATA},
        [new_rows[dep] for dep in trace.deps(row).tolist() if dep in new_rows],
        [(*w[:4], new_rows.get(w[4], -1)) for w in trace.waits_of(row)],
        trace.transfers_of(row),
        int(log.cmd[row]),
        int(log.slot[row]),
        int(log.nbytes[row]),
    ]


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_cut_holds_the_ops_that_overlap_as_they_were(whole, tmp_path, data):
    log = whole.op_columns
    times = st.sampled_from(sorted({*log.t_start.tolist(), *log.t_end.tolist()}))
    two_times = st.lists(times, min_size=2, max_size=2, unique=True)
    t0, t1 = sorted(data.draw(two_times))
    globs = ["*", "*.pe_gemm", "sip0.cube0.pe1.*", "*.pcie_ep", "*pe0.pe_[dg]*"]
    components = data.draw(st.sampled_from(globs))
    rows = kept_rows(whole, t0, t1, components)
    if not rows:
        with pytest.raises(UsageError, match="no op on"):
            part(whole, tmp_path, t0, t1, components)
        return
    found = part(whole, tmp_path, t0, t1, components)
    new_rows = {row: new_row for new_row, row in enumerate(rows)}
    same_rows = {new_row: new_row for new_row in new_rows.values()}
    wanted = [all_about(whole, row, new_rows) for row in rows]
    got = [all_about(found, row, same_rows) for row in range(len(found.ops))]
    assert_same(got, wanted)
    assert check_file(found.path).ok


def test_the_calls_launches_and_machine_go_with_the_ops(whole, tmp_path):
    launch = whole.launches[0]
    middle = (launch.t_start + launch.t_end) / 2
    found = part(whole, tmp_path, middle, middle + 1, "sip0.cube0.pe1.*")
    assert found.launches == whole.launches
    assert found.sources == whole.sources
    assert found.spec == whole.spec
    assert found.node_ids == whole.node_ids
    for mine, theirs in ((found.nodes, whole.nodes), (found.edges, whole.edges)):
        for field in fields(mine):
            assert list(getattr(mine, field.name)) == list(getattr(theirs, field.name))
    cmds = set(found.commands.cmd.tolist())
    assert cmds >= set(found.op_columns.cmd.tolist())
    assert all(found.command(cmd) == whole.command(cmd) for cmd in cmds)
    assert {found.command(cmd).pe for cmd in cmds} == {"sip0.cube0.pe1.pe_cpu"}


def test_a_cut_keeps_the_allocations_that_its_ops_touch(whole, tmp_path):
    first = whole.ops[0]
    found = part(whole, tmp_path, first.t_start, first.t_end, first.component_id)
    places = {(shard.space, shard.addr) for shard in found.allocs}
    written = {(op.params["dst_space"], op.params["dst_addr"]) for op in found.ops}
    assert places == written
    assert len(places) < len(whole.allocs)
    assert (first.params["dst_space"], first.params["dst_addr"]) in places


def test_of_a_whole_window_nothing_is_missing_but_the_data(demo, tmp_path):
    whole = Trace.open(demo[0])
    found = touch(part(whole, tmp_path, -100.0))
    assert len(found.ops) == 13
    assert found.texts == whole.texts
    assert found.launches == whole.launches
    assert found.transfers.row.tolist().count(-1) == 1  # the transaction that no op has
    snapshots = [op.params["snapshot"] for op in found.ops if "snapshot" in op.params]
    assert set(snapshots) == {None}
    assert found.expects == []


@pytest.mark.parametrize("share", first_fast([k / 10 for k in range(10)], fast=3))
def test_links_carry_in_the_window_of_a_cut_what_they_carried_in_the_whole(
    share, tmp_path
):
    whole = Trace.open(TRACES / "ccl_allreduce.msgpack")
    t0 = share * whole.end_ns
    t1 = t0 + whole.end_ns / 30
    found = part(whole, tmp_path, t0, t1)
    wanted = ReplaySession(whole).link_load(t0, t1).links
    got = ReplaySession(found).link_load(t0, t1).links
    assert {(link.src, link.dst): link.nbytes for link in got} == pytest.approx(
        {(link.src, link.dst): link.nbytes for link in wanted}
    )


def test_a_cut_says_what_it_is(whole, tmp_path):
    found = part(whole, tmp_path, 1.0, 1e6, "*.pe_*")
    window = {"from": 1.0, "to": 1e6, "components": "*.pe_*", "of": None}
    assert (found.header["cut"], found.header["data"]) == (window, False)
    assert found.header["bench"] == "matmul"
    assert found.header["topology_hash"] == whole.header["topology_hash"]
    assert (found.end_ns, found.end["ok"]) == (whole.end_ns, True)
    cut(found.path, tmp_path / "again.msgpack", 2.0, 1e6)
    assert Trace.open(tmp_path / "again.msgpack").header["cut"]["of"] == window


def test_a_cut_of_a_recording_that_breaks_off_says_so(tmp_path, demo):
    broken = tmp_path / "broken.msgpack"
    broken.write_bytes(demo[0].read_bytes()[:-60])
    found = part(Trace.open(broken), tmp_path)
    assert (found.complete, found.end["ok"]) == (True, False)
    assert "breaks off" in found.end["error"]


@pytest.mark.parametrize("command", ["verify", "diff", "divergence", "memory c"])
def test_what_a_cut_cannot_know_is_an_error(whole, tmp_path, command):
    session = ReplaySession(part(whole, tmp_path, whole.launches[0].t_start))
    session.to_end()
    with pytest.raises(KernbenchError, match="was cut from a trace"):
        session.run_line(command)


@pytest.mark.parametrize("command", ["verify", "outputs"])
def test_a_cut_that_nobody_could_execute_is_not_called_verified(
    whole, tmp_path, command
):
    session = ReplaySession(part(whole, tmp_path, components="*.pe_gemm"))
    with pytest.raises(KernbenchError, match="was cut from a trace"):
        session.run_line(command)


def test_a_cut_has_no_hazards_that_the_whole_has_not(whole, tmp_path):
    session = ReplaySession(part(whole, tmp_path, whole.launches[0].t_start))
    assert session.hazards().rows == ()
    assert "was cut from a trace" in session.hazards().note


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        ((5.0, 5.0), "the end must lie after the start"),
        ((5.0, float("nan")), "the end must lie after the start"),
        (
            (5e8, 6e8),
            "no op on '[*]' runs from 5e[+]08 to 6e[+]08 ns; the trace ends at",
        ),
        ((0.0, 1e9, "*.pe_gem"), r"no op on '\*\.pe_gem' runs"),
    ],
)
def test_a_window_of_nothing_is_refused(whole, tmp_path, window, reason):
    with pytest.raises(UsageError, match=reason):
        cut(whole.path, tmp_path / "part.msgpack", *window)
    assert list(tmp_path.iterdir()) == []


def test_a_regular_file_is_replaced_and_the_trace_is_not(whole, tmp_path):
    out = tmp_path / "x.msgpack"
    out.write_bytes(b"mine")
    cut(whole.path, out, 0.0, 1e9)
    assert len(Trace.open(out).ops) == len(whole.ops)
    assert list(tmp_path.iterdir()) == [out]
    kept = out.read_bytes()
    with pytest.raises(UsageError, match=r"x\.msgpack is the trace that is cut"):
        cut(out, out, 0.0, 1e9)
    assert out.read_bytes() == kept


@pytest.mark.parametrize("name", ["y.partial", "y.partial.tail", "y.partial.old"])
def test_a_cut_is_not_called_as_what_a_run_has_not_ended(whole, tmp_path, name):
    with pytest.raises(UsageError, match=f"{name}: a run gives such a name"):
        cut(whole.path, tmp_path / name, 0.0, 1e9)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_does_not_replace_the_tail_of_its_trace(whole, tmp_path):
    path = tmp_path / "x.msgpack"
    cut(whole.path, path, 0.0, 1e9)
    with pytest.raises(UsageError, match="is the tail of the trace"):
        cut(path, f"{path}.tail", 0.0, 1e9)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_regular_file_is_not_replaced(whole, tmp_path):
    with pytest.raises(UsageError, match="is no regular file"):
        cut(whole.path, tmp_path, 0.0, 1e9)
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_cut_may_be_as_long_as_the_file_system_allows(whole, tmp_path):
    cut(whole.path, tmp_path / ("n" * 255), 0.0, 1e9)
    assert [path.name for path in tmp_path.iterdir()] == ["n" * 255]


def test_a_cut_that_cannot_be_written_leaves_nothing(whole, tmp_path, monkeypatch):
    def writer_on_a_full_disk(path):
        writer, _ = opened(path, Disk, room=5000)
        return writer

    monkeypatch.setattr("kernbench.trace.cut.TraceWriter", writer_on_a_full_disk)
    with pytest.raises(KernbenchError, match="No space left"):
        cut(whole.path, tmp_path / "x.msgpack", 0.0, 1e9)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_cut_leaves_nothing(whole, tmp_path, monkeypatch):
    def interrupted(writer, *row):
        raise KeyboardInterrupt

    monkeypatch.setattr(TraceWriter, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cut(whole.path, tmp_path / "x.msgpack", 0.0, 1e9)
    assert list(tmp_path.iterdir()) == []


def test_without_a_machine_a_trace_can_be_cut(tmp_path):
    path = tmp_path / "plain.msgpack"
    record_all(TraceWriter(path), None)
    found = touch(part(Trace.open(path), tmp_path, 0.0, 50.0, f"{PE}dma"))
    rows = range(len(found.op_columns.cmd))
    waiting = {row for row in rows for w in found.waits_of(row) if w[0] == f"{PE}dma"}
    assert waiting
    for row in set(rows) - waiting:
        assert found.ops[int(found.position[row])].component_id == f"{PE}dma"
    assert np.all(found.op_columns.t_start < 50.0)


@pytest.mark.parametrize("name", ["matmul", "ccl_allreduce"])
@pytest.mark.slow
def test_in_its_window_a_cut_is_as_busy_as_the_whole(name, tmp_path):
    """Also where something waits for an op that begins only behind the window."""
    path = TRACES / f"{name}.msgpack"
    whole = ReplaySession(Trace.open(path))
    end = whole.index.trace.end_ns
    rng = np.random.default_rng(11)
    waited = 0.0
    for begin in rng.uniform(0.0, 0.9 * end, 6).tolist():
        t1 = begin + 0.02 * end
        out = tmp_path / "part"
        out.unlink(missing_ok=True)
        cut(path, out, begin, t1)
        some = ReplaySession(Trace.open(out))
        known = {c.name: c for c in whole.activity(begin, t1).components}
        found = {c.name: c for c in some.activity(begin, t1).components}
        for component, activity in known.items():
            busy = found[component].busy if component in found else 0.0
            waiting = found[component].waiting if component in found else 0.0
            assert busy == pytest.approx(activity.busy, abs=1e-9), component
            known_share = activity.waiting or 0.0
            assert (waiting or 0.0) == pytest.approx(known_share, abs=1e-9), component
            waited += activity.waiting or 0.0
    assert waited > 0.1


def test_a_part_says_that_it_is_one_and_knows_nothing_of_other_times(tmp_path):
    cut(TRACES / "matmul.msgpack", tmp_path / "part", 7900.0, 8100.0)
    part_of_it = ReplaySession(Trace.open(tmp_path / "part"))
    text = "\n".join(part_of_it.info().lines(100))
    assert "is a part of another: 7900 to 8100 ns" in text
    assert "all of the run" not in text
    whole = ReplaySession(Trace.open(TRACES / "matmul.msgpack"))
    known = whole.stalls(None, 7900.0, 8100.0)
    assert part_of_it.stalls().total == pytest.approx(known.total)
    cut(tmp_path / "part", tmp_path / "less", 8000.0, 9000.0, "*.pe0.*")
    less = ReplaySession(Trace.open(tmp_path / "less")).info()
    assert less.part == "8000 to 8100 ns, *.pe0.*"


@pytest.mark.parametrize(
    "wrong",
    [
        True,
        {"from": 1.0, "to": 2.0},
        {"from": "a", "to": 2.0, "components": "*", "of": None},
        {"from": 0.0, "to": float("nan"), "components": "*", "of": None},
        {"from": 0.0, "to": 1.0, "components": "*", "of": 5},
    ],
)
def test_a_window_that_is_none_is_damage(wrong, tmp_path):
    writer = TraceWriter(tmp_path / "t")
    writer.begin({"cut": wrong}, None)
    writer.end(1.0)
    with pytest.raises(TraceFormatError, match="cut out"):
        Trace.open(tmp_path / "t")

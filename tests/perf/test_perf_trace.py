"""Synthetic traces, and what `kernbench perf trace` measures; the seconds are its own
affair.
"""

import math
from itertools import pairwise

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.perf import trace as perf
from kernbench.perf.make_trace import make_trace
from kernbench.replay import ReplaySession
from kernbench.trace import Trace

OPS = 5000  # several launches of each kernel


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("perf") / "made.msgpack"
    make_trace(path, OPS)
    return path


def test_a_made_trace_has_as_many_ops_as_were_asked_for(path):
    trace = Trace.open(path)
    assert (len(trace.ops), trace.complete, trace.check()) == (OPS, True, [])
    assert len(trace.launches) > 8


def test_its_ops_can_be_executed_and_give_what_is_expected(path):
    report = ReplaySession(Trace.open(path)).verify()
    assert report.ok


@pytest.mark.slow
def test_no_op_of_it_is_in_the_way_of_another(path):
    assert ReplaySession(Trace.open(path)).hazards().lines(100) == ["none found"]


def test_its_launches_come_one_after_the_other(path):
    launches = Trace.open(path).launches
    assert [launch.launch for launch in launches] == list(range(len(launches)))
    for before, after in pairwise(launches):
        assert before.t_end < after.t_issue < after.t_start < after.t_end


@pytest.mark.slow
def test_every_op_of_it_has_its_command_and_a_kernel_line(path):
    trace = Trace.open(path)
    ours = set(trace.commands.cmd.tolist())
    assert len(ours) == len(trace.commands.cmd)
    calls = {
        trace.command(cmd).call for cmd in set(trace.op_columns.cmd.tolist()) & ours
    }
    assert {"host_write", "load", "dot", "composite", "store"} <= calls
    last = trace.command(int(trace.commands.cmd.max()))
    assert last.site.file.startswith("kernbench/benches/")


def test_its_ops_wait_for_ops_of_their_own_launch(path):
    trace = Trace.open(path)
    c = trace.op_columns
    n = len(trace.ops)
    dep = c.dep
    owner = [row for row in range(n) for _ in trace.deps(row)]
    held = trace.waits.holder >= 0
    assert (c.t_start[dep] <= c.t_end[owner]).all()
    gap = trace.waits.t1[held] - c.t_end[trace.waits.holder[held]]
    assert (
        abs(gap).max() < 1000
    )  # a shift that missed one would be off by whole launches
    assert len(dep) > n / 2


@pytest.mark.slow
def test_equal_seeds_make_equal_bytes_and_others_other_data(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_trace(tmp_path / name, 300, seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.slow
def test_make_trace_says_what_it_needs(tmp_path):
    asked = CliRunner().invoke(main, ["perf", "make-trace", "--ops", "100"])
    assert (asked.exit_code, "-o FILE" in asked.output) == (2, True)
    out = str(tmp_path / "x.msgpack")
    assert (
        CliRunner()
        .invoke(main, ["perf", "make-trace", "--ops", "100", "-o", out])
        .output
        == ""
    )
    assert len(Trace.open(out).ops) == 100


@pytest.mark.slow
def test_every_row_of_the_table_is_measured():
    rows = perf.measure(ops=2000, large=4000, peaks=(100, 200), size=32, rounds=1)
    # With one round a difference of two times may come out below zero.
    assert all(math.isfinite(row.measured) for row in rows)
    assert {row.name: row.goal for row in rows} == {
        "peak memory, 200 / 100 ops": 1.05,
        "append an op": 6.0,
        "recording on / off": 1.5,
        "an op, params and dependencies too": 110.0,
        "a wait": 32.0,
        "a transaction, beside 8 B a hop": 32.0,
        "an op / as row maps": 0.68,
        "an op / as row tuples": 1.36,
        "an op / as Chrome JSON": 0.45,
        "open 2,000 ops / as maps, GC off": 0.1,
        "open 2,000 ops / as maps, GC on": 0.1,
        "open 2,000 ops / a raw read of them": 3.0,
        "one op's params, cold": 20.0,
        "open 4,000 ops / 2,000": 2.4,
        "4,000 ops: heads and machine / all": 0.1,
    }


def test_the_peers_are_sized_with_all_of_their_fields(path):
    first = next(iter(perf.op_rows(Trace.open(path))))
    row = dict(zip(perf.FIELDS, first, strict=True))
    assert row["name"] == "host_write"
    assert row["component"].endswith("pcie_ep")
    assert perf.chrome_event(**row)["args"] == {
        name: row[name] for name in ("slot", "cmd", "nbytes", "deps")
    }

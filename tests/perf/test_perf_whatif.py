"""What `kernbench perf whatif` finds out by running, and how it judges predictions; the
figures themselves are its own affair.
"""

import json
import math

import pytest
from click.testing import CliRunner

from kernbench import docs
from kernbench.cli import main
from kernbench.perf import whatif
from kernbench.perf.sim import PerfRow, as_json, row_text
from kernbench.perf.whatif import (
    Case,
    Outcome,
    Sample,
    Span,
    Truth,
    cases_of,
    certainty_rows,
    distribution,
    is_named_unsure,
    kendall_tau,
    numeric_fields,
    read_outcomes,
    run_case,
    truth,
)
from kernbench.runtime_api import run_bench
from kernbench.topology import TopologySpec
from kernbench.topology.section import leaf_types
from kernbench.trace import Trace

BENCH = "fault_wrong_root"  # quick, and passes bytes between cubes


@pytest.fixture(scope="module")
def unchanged():
    return run_case(Case(BENCH))


def after(field, value):
    return run_case(Case(BENCH, field, math.nan, value))


def test_a_case_runs_as_the_command_does(tmp_path):
    case = Case(BENCH, "pe.dma.setup_ns", 2.0, 40.0)
    path = tmp_path / "run.msgpack"
    spec = {case.field: case.value}
    run_bench(BENCH, spec=spec, verify=False, trace=path)
    trace = Trace.open(path)
    found = run_case(case)
    assert found.end_ns == trace.end_ns
    assert [tuple(span) for span in found.spans] == [
        (row.launch, row.kernel, row.t_start, row.t_end) for row in trace.launches
    ]


def test_a_case_that_is_run_again_has_the_same_outcome(unchanged):
    assert run_case(Case(BENCH)) == unchanged


def test_a_time_changes_neither_graph_nor_program(unchanged):
    later = after("pe.dma.setup_ns", 40.0)
    assert later.end_ns > unchanged.end_ns
    assert (later.graph, later.program) == (unchanged.graph, unchanged.program)


@pytest.mark.parametrize(
    ("field", "value"), [("sip.io.count", 2), ("cube.mesh.rows", 12)]
)
def test_nodes_and_links_are_the_graph(unchanged, field, value):
    assert after(field, value).graph != unchanged.graph


@pytest.mark.slow
def test_ops_and_their_ways_are_the_program():
    bench = "mlp_tp"
    tiles = run_case(Case(bench, "cube.ucie.connections_per_side", 0.5, 2))
    assert tiles.program != run_case(Case(bench)).program


@pytest.mark.slow
def test_energy_takes_no_time(unchanged):
    energy = [
        path for path, _ in leaf_types(TopologySpec) if path.startswith("energy.")
    ]
    assert len(energy) > 20
    for path in energy:
        found = after(path, 1000.0)
        assert (found.end_ns, found.spans) == (unchanged.end_ns, unchanged.spans)


def test_every_number_of_the_machine_but_energy_is_a_field():
    fields = dict(numeric_fields())
    assert fields["pe.clock_ghz"] is float
    assert fields["cube.hbm.channels"] is int
    assert "cube.hbm.model" not in fields
    assert not any(path.startswith("energy.") for path in fields)


@pytest.mark.slow
def test_cases_are_rounded_and_those_that_no_machine_has_are_left_out():
    cases = list(cases_of(BENCH))
    assert cases[0] == Case(BENCH)
    assert len(set(cases)) == len(cases)
    by_field = {(case.field, case.factor): case.value for case in cases}
    assert by_field["pe.clock_ghz", 0.5] == 0.5
    assert by_field["cube.hbm.channels", 4.0] == 32
    assert ("cube.hbm.ranks", 0.5) not in by_field  # half a rank
    assert ("pe.gemm.overhead_ns", 2.0) not in by_field  # twice nothing
    assert ("cube.hbm.trefi_ns", 2.0) in by_field
    assert ("cube.hbm.trfc_ns", 4.0) in by_field
    assert all(type(case.value) in (int, float) for case in cases)


def outcome(field="", factor=1.0, *, end=10.0, program="p", graph="g", error=""):
    case = Case(BENCH, field, factor, 2.0 * bool(field))
    return Outcome(case, (Span(0, "k", 1.0, end),), end, graph, program, error)


def test_a_field_counts_if_time_depends_on_it_and_nothing_else_does():
    found = Truth(
        [
            outcome(),
            outcome("time", 0.5, end=11.0),
            outcome("time", 2.0),
            outcome("other program", 2.0, end=11.0, program="q"),
            outcome("other graph", 2.0, graph="h"),
            outcome("idle", 2.0),
            outcome("ended", 2.0, end=3.0, error="LimitError: why"),
        ]
    )
    assert found.fields == ("time",)
    assert found.restructuring == ("other program", "other graph")
    assert found.idle == ("idle", "ended")
    assert [each.case.factor for each in found.cases()] == [0.5, 2.0]


def test_what_was_found_is_kept_and_not_run_again(tmp_path, monkeypatch):
    cases = [Case(BENCH), Case(BENCH, "pe.dma.setup_ns", 2.0, 40.0)]
    monkeypatch.setattr(whatif, "cases_of", lambda bench: iter(cases))
    cache = tmp_path / "truth"
    first = truth([BENCH], cache)
    assert list(read_outcomes(cache)) == cases
    monkeypatch.setattr(whatif, "run_case", None)
    again = truth([BENCH], cache)
    assert again.unchanged == first.unchanged
    assert again.changed == first.changed


def test_what_other_code_has_found_is_not_used(tmp_path):
    cache = tmp_path / "truth"
    row = {"code_sha": "other", "case": Case(BENCH)}
    cache.write_text(json.dumps(row) + "\n")
    assert read_outcomes(cache) == {}
    assert read_outcomes(tmp_path / "none") == {}


def sample(predicted, real, sure=True, field="pe.clock_ghz"):
    return Sample(Case(BENCH, field, 2.0, 2.0), 0, 100.0, predicted, real, sure)


def figures(samples):
    return {row.name: row.measured for row in certainty_rows(samples)}


def test_errors_are_of_sure_answers_whose_span_moved():
    found = figures(
        [
            sample(50.5, 50.0),
            sample(50.0, 50.0),
            sample(60.0, 50.0, sure=False),
            sample(103.0, 101.0),
            sample(101.0, 101.0),
        ]
    )
    assert found["sure and moved: samples"] == 2
    assert found["sure and moved: median error"] == pytest.approx(0.5)
    assert found["sure and moved: largest error"] == pytest.approx(1.0)
    assert found['"nothing changes": median'] == pytest.approx(100.0)
    assert found["sure and not moved: samples"] == 2
    assert found["of these predicted not to"] == 50.0


def test_fields_that_change_structure_need_not_be_sure():
    assert is_named_unsure("pe.tile.window")
    assert is_named_unsure("cube.hbm.channels")
    assert not is_named_unsure("cube.hbm.channel_bw_gbs")
    assert not is_named_unsure("pe.math.lanes")
    known = {path for path, _ in leaf_types(TopologySpec)}
    assert set(whatif._UNSURE_FIELDS) <= known
    found = figures(
        [
            sample(50.0, 50.0, sure=False, field="pe.gemm.rows"),
            sample(50.0, 50.0),
            sample(100.0, 100.0, sure=False),
        ]
    )
    assert found["sure, of fields that could be"] == 50.0
    assert found["sure, of those that moved"] == 100.0


def test_the_table_of_errors_counts_every_sample_that_moved_once():
    lines = distribution(
        [
            sample(50.0, 50.0),
            sample(50.8, 50.0),
            sample(80.0, 50.0, sure=False, field="cube.hbm.channels"),
            sample(100.0, 100.5),
        ]
    )
    assert "| none | 1 | 0 | 0 |" in lines
    assert "| to 2 % | 1 | 0 | 0 |" in lines
    assert "| more | 0 | 1 | 3 |" in lines
    assert "| pe.clock_ghz | 2 | 2 | 0.80% | 1.60% | 1.60% |" in lines
    assert "| cube.hbm.channels | 1 | 0 | 60.00% | 60.00% |  |" in lines


@pytest.fixture
def small(monkeypatch):
    """One quick bench with one case, for all figures."""
    case = Case(BENCH, "pe.dma.setup_ns", 2.0, 40.0)
    monkeypatch.setattr(whatif, "cases_of", lambda bench: iter([Case(bench), case]))
    monkeypatch.setattr(whatif, "SLACK_BENCHES", (BENCH,))
    monkeypatch.setattr(whatif, "BEST", 2)


@pytest.mark.slow
def test_every_goal_is_measured(small):
    found = whatif.measure((BENCH,), slack_ops=2, speed_ops=500)
    goals = {row.name: row.goal for row in found.rows if row.goal is not None}
    assert goals == {
        "a first prediction, 500 ops": 2.0,
        "a further prediction, 500 ops": 2.0,
        "the causal profile, 500 ops": 20.0,
        "peak memory, 500 ops": 2048.0,
        "sure and moved: median error": 1.0,
        "sure and moved: 95th percentile": 6.0,
        "of these predicted not to": 95.0,
        "sure, of fields that could be": 80.0,
        f"tau of {BENCH}": 0.8,
        "slack: within 1 ns as told": 97.0,
        "slack: wrong, yet called sure": 0.0,
    }
    figures = {row.name: row.measured for row in found.rows}
    assert figures["sure and moved: samples"] == 1
    assert 0 < figures["a first prediction, 500 ops"] < math.inf
    assert figures["peak memory, 500 ops"] > 30
    assert any("pe.dma.setup_ns" in line for line in found.tables)


def test_the_command_prints_tables_and_goals(monkeypatch, tmp_path):
    def measure(cache, progress):
        assert cache == tmp_path / "kept"
        return whatif.Figures([PerfRow("x", 2.0, 1.0, "s")], ["| error | sure |"])

    monkeypatch.setattr(whatif, "measure", measure)
    args = ["perf", "whatif", "--cache", str(tmp_path / "kept")]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 1
    assert result.output.startswith("| error | sure |\n")
    assert "NOT MET" in result.output
    data = json.loads(CliRunner().invoke(main, [*args, "--json"]).output)
    assert data[0]["met"] is False


def test_the_page_has_the_tables_of_the_command():
    page = docs.page("debugger")
    tables = page.partition("### What if?")[2].partition("### Run again")[0]
    heads = [line for line in distribution([sample(50.0, 50.0)]) if "error |" in line]
    heads += ["| field | moved | sure | median | largest | largest, sure |"]
    assert all(head in tables for head in heads)
    known = {path for path, _ in leaf_types(TopologySpec)}
    rows = tables.partition(heads[-1])[2].split("\n\n")[0].splitlines()[2:]
    assert len(rows) > 20
    assert {row.split()[1] for row in rows} <= known


@pytest.mark.parametrize(
    ("told", "real", "tau"),
    [
        ([1, 2, 3], [1, 2, 3], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6),
        ([1, 2, 3], [1, 1, 1], 1.0),
        ([1, 1.4, 3], [1.4, 1, 3], 1.0),
        ([1, 1, 3], [2, 1, 3], 1.0),
    ],
)
def test_kendalls_tau_leaves_ties_out(told, real, tau):
    assert kendall_tau(told, real, 0.5) == pytest.approx(tau)


def test_a_figure_without_a_goal_is_only_shown():
    rows = [
        PerfRow("some", 3.0, None, "ops"),
        PerfRow("share", 81.0, 80.0, "%", at_least=True),
        PerfRow("tau", 0.79, 0.8, "", at_least=True),
    ]
    shown, met, missed = map(row_text, rows)
    assert shown.split() == ["some", "3.00", "ops"]
    assert met.split()[1:] == ["81.00", ">=", "80", "%", "met"]
    assert missed.endswith("NOT MET")
    assert [row["met"] for row in json.loads(as_json(rows))] == [True, True, False]

"""``kernbench trace whatif`` from the shell: its JSON, its proof, and bad input."""

import json

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SMALL = {"m": 64, "k": 64, "n": 64, "tile": 32, "pes": 2}


def kernbench(*args):
    return CliRunner().invoke(main, list(map(str, args)))


def whatif(path, *args):
    """What ``whatif --json`` says."""
    result = kernbench("trace", "whatif", path, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def refusal(path, *args, code):
    """The one line with which ``whatif`` ends."""
    result = kernbench("trace", "whatif", path, *args)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == code
    assert line.startswith("error: ")
    return line


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "base.msgpack"
    run_bench("matmul", params=SMALL, trace=path)
    return path


def test_a_prediction_has_the_names_that_scripts_rely_on(path):
    found = whatif(path, "pe.clock_ghz=2")
    assert found["end_ns"] == Trace.open(path).end_ns
    assert 0 < found["predicted_ns"] < found["end_ns"]
    assert found["sure"] in (True, False)
    assert found["proved_ns"] is None


@pytest.mark.slow
def test_a_proof_is_what_a_run_with_that_field_gives(path):
    found = whatif(path, "pe.clock_ghz=2", "--prove")
    real = run_bench("matmul", params=SMALL, spec={"pe.clock_ghz": 2}, verify=False)
    assert found["proved_ns"] == real.end_ns
    (launch,) = found["proved_launches"]
    assert launch["predicted_ns"] == pytest.approx(real.launch_ns)


@pytest.mark.slow
def test_a_field_may_be_any_certain_end_of_its_path(path):
    whole = whatif(path, "pe.clock_ghz=2")
    assert whatif(path, "clock_ghz=2")["predicted_ns"] == whole["predicted_ns"]


def test_a_value_as_it_was_predicts_just_the_recorded_end(path):
    found = whatif(path, "pe.clock_ghz=1")
    assert found["predicted_ns"] == found["end_ns"]
    assert all(
        launch["predicted_ns"] == launch["recorded_ns"] for launch in found["launches"]
    )


def test_a_field_that_time_does_not_depend_on_changes_nothing_and_why(path):
    found = whatif(path, "energy.hbm_pj_byte=100")
    assert found["predicted_ns"] == found["end_ns"]
    assert found["sure"]
    assert found["why"]


@pytest.mark.slow
def test_without_a_field_the_largest_gain_comes_first(path):
    found = whatif(path)
    saved = [gain["end_ns"] - gain["predicted_ns"] for gain in found["gains"]]
    assert saved == sorted(saved, reverse=True)
    assert {gain["kind"] for gain in found["gains"]} == {"field", "line"}


@pytest.mark.slow
def test_the_first_rows_are_proved_by_runs(path):
    found = whatif(path, "--prove", "--first", 2)
    proved = [gain for gain in found["gains"] if gain["proved_ns"] is not None]
    assert len(proved) == 2
    for gain in proved:
        field, _, value = gain["change"].partition("=")
        real = run_bench(
            "matmul", params=SMALL, spec={field: json.loads(value)}, verify=False
        )
        assert gain["proved_ns"] == real.end_ns


def test_an_unknown_field_names_the_nearest(path):
    assert "pe.clock_ghz" in refusal(path, "pe.clok_ghz=2", code=2)


@pytest.mark.parametrize("change", ["pe.clock_ghz=fast", "pe.clock_ghz=-1"])
def test_a_value_that_no_machine_can_have_is_refused(path, change):
    line = refusal(path, change, code=2)
    assert "pe.clock_ghz" in line
    assert "number" in line


def test_a_change_without_a_value_says_how_one_is_written(path):
    assert "must be FIELD=VALUE" in refusal(path, "pe.clock_ghz", code=2)


def test_a_cut_trace_is_refused_with_the_reason(path, tmp_path):
    part = tmp_path / "part.msgpack"
    assert kernbench("trace", "cut", path, "--to", "6us", "-o", part).exit_code == 0
    for args in (("pe.clock_ghz=2",), ()):
        assert "cut" in refusal(part, *args, code=2)


@pytest.mark.slow
def test_a_trace_without_data_is_retimed_and_proved(path, tmp_path):
    bare = tmp_path / "bare.msgpack"
    run_bench("matmul", params=SMALL, trace=bare, data=False, verify=False)
    found = whatif(bare, "pe.clock_ghz=2", "--prove")
    whole = whatif(path, "pe.clock_ghz=2", "--prove")
    for name in ("predicted_ns", "proved_ns"):
        assert found[name] == whole[name]


@pytest.mark.slow
def test_a_machine_on_which_the_bench_cannot_run_is_said(path):
    line = refusal(path, "pe.tcm.size_kib=1", "--prove", code=1)
    assert "no proof" in line or "tcm" in line.lower()

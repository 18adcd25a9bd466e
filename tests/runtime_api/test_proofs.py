"""What runs a trace again to prove something: the run is the recorded one, changed in
that alone, or it is refused.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from on_one_pe import BESIDE, bench_of

from kernbench.cli import main
from kernbench.errors import KernbenchError
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.proofs import Proofs
from kernbench.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"
SMALL = {"m": 32, "k": 32, "n": 32, "pes": 1}
OTHER_EACH_TIME = """
    runs = Path("runs")
    with runs.open("a") as file:
        file.write("x")
    for _ in range(runs.stat().st_size):
        tl.load(x_ptr, (n,), "f32")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def matmul(folder):
    """A small run, recorded."""
    run_bench("matmul", params=SMALL, trace="base.msgpack")
    return Trace.open("base.msgpack")


def recorded(folder, body):
    """A kernel on one PE, recorded."""
    (folder / "one.py").write_text(bench_of(body))
    run_bench("one.py", trace="one.msgpack")
    return Trace.open("one.msgpack")


@pytest.mark.slow
def test_a_field_is_changed_and_nothing_else(matmul, folder):
    run_bench("matmul", params=SMALL, spec={"pe.clock_ghz": 2.0}, trace="2.msgpack")
    path = Proofs(matmul, folder).run({"pe.clock_ghz": 2.0})
    assert Trace.open(path).end_ns == Trace.open("2.msgpack").end_ns < matmul.end_ns


@pytest.mark.slow
def test_an_op_is_held_back(matmul, folder):
    proofs = Proofs(matmul, folder)
    first = Trace.open(proofs.run(delays=[(len(matmul.ops) - 1, 100.0)]))
    assert first.end_ns == matmul.end_ns + 100.0
    second = Trace.open(proofs.run(delays=[(0, 50.0)]))
    assert second.path != first.path
    assert first.end_ns == matmul.end_ns + 100.0


@pytest.mark.slow
def test_a_run_that_is_not_deterministic_proves_nothing(folder):
    trace = recorded(folder, OTHER_EACH_TIME)
    with pytest.raises(
        KernbenchError, match=r"^no proof: NOT the recorded run: .*seed"
    ):
        Proofs(trace, folder).run({"pe.clock_ghz": 2.0})


@pytest.mark.slow
def test_numbers_that_another_machine_has_rounded_otherwise_move_no_time(folder):
    body = """
    runs = Path("runs")
    with runs.open("a") as file:
        file.write("x")
    tl.store(y_ptr, tl.load(x_ptr, (n,), "f32") * float(runs.stat().st_size))
    """
    trace = recorded(folder, body)
    path = Proofs(trace, folder).run({"pe.clock_ghz": 2.0})
    assert Trace.open(path).end_ns < trace.end_ns


@pytest.mark.slow
def test_a_bundled_trace_can_be_proved():
    trace = TRACES / "matmul.msgpack"
    result = kernbench("trace", "bound", trace, "--op", 40, "--prove", "--json")
    assert json.loads(result.output)["within"]["moved_ns"] <= 0


@pytest.mark.slow
def test_another_source_is_refused_unless_it_may_be(folder):
    trace = recorded(folder, BESIDE)
    source = (folder / "one.py").read_text()
    (folder / "one.py").write_text(source + "# changed\n")
    with pytest.raises(KernbenchError, match="its source is another than was recorded"):
        Proofs(trace, folder).run()
    Proofs(trace, folder, any_source=True).run({"pe.clock_ghz": 2.0})


@pytest.mark.slow
def test_a_run_that_ends_otherwise_than_the_recorded_one_proves_nothing(folder):
    end = run_bench("matmul", params=SMALL).end_ns
    run_bench("matmul", params=SMALL, max_ns=end, trace="base.msgpack")
    trace = Trace.open("base.msgpack")
    with pytest.raises(KernbenchError, match="the changed run ended with LimitError"):
        Proofs(trace, folder).run(delays=[(0, 100.0)])


def test_a_run_that_ended_with_an_error_is_compared_up_to_there(folder):
    with pytest.raises(KernbenchError):
        run_bench("fault_ring_by_name", trace="base.msgpack")
    trace = Trace.open("base.msgpack")
    later = Trace.open(Proofs(trace, folder).run({"pe.dma.setup_ns": 100.0}))
    assert later.end_ns > trace.end_ns


def test_a_wrong_field_is_refused_before_anything_is_proved(matmul, folder):
    with pytest.raises(KernbenchError, match=r"pe\.clock_ghz: must be a number from"):
        Proofs(matmul, folder).run({"pe.clock_ghz": -1.0})


def kernbench(*args):
    return CliRunner().invoke(main, list(map(str, args)))


@pytest.mark.slow
@pytest.mark.parametrize("op", [3, 5])
def test_the_slack_of_an_op_is_proved_by_a_command(folder, op):
    trace = recorded(folder, BESIDE)
    result = kernbench("trace", "bound", trace.path, "--op", op, "--prove", "--json")
    found = json.loads(result.output)
    slack = found["bound"]["slack"]
    assert found["within"]["delay_ns"] == slack
    assert found["beyond"]["delay_ns"] == slack + 10
    assert (result.exit_code == 0) == found["ok"]
    assert (slack > 0) == (found["within"]["delay_ns"] > 0)


@pytest.mark.slow
def test_a_proof_leaves_no_file_behind(folder, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    (folder / "tmp").mkdir()
    trace = recorded(folder, BESIDE)
    monkeypatch.setattr("tempfile.tempdir", None)
    assert kernbench("trace", "bound", trace.path, "--prove").exit_code in (0, 1)
    assert list((folder / "tmp").iterdir()) == []

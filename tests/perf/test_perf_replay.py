"""What `kernbench perf replay` measures, on small traces; the seconds are its own
affair.
"""

import math

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.perf import replay
from kernbench.perf.make_trace import make_trace
from kernbench.perf.sim import PerfRow
from kernbench.replay import ReplaySession
from kernbench.trace import Trace

SMALL = {"m": 32, "k": 32, "n": 32, "pes": 2}


@pytest.fixture(scope="module", autouse=True)
def _few_places():
    """Fewer answers than by default: how long they take is not looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "PLACES", 20)
        yield


@pytest.fixture(scope="module")
def rows():
    return replay.measure((500, 2000), **SMALL)


def test_the_sizes_are_those_of_the_goals():
    assert replay.SIZES == (100_000, 1_000_000, 10_000_000)
    assert replay.LONG_ANSWERS == 1_000_000


@pytest.mark.slow
def test_every_goal_is_measured_on_the_largest_trace(rows):
    goals = {row.name: (row.goal, row.unit) for row in rows if row.unit != "ratio"}
    assert goals == {
        "goto, 2,000 ops": (50, "us"),
        "step, 2,000 ops": (50, "us"),
        "step_component, 2,000 ops": (50, "us"),
        "run to no stop, 2,000 ops": (0.5, "s"),
        "timeline of 40 rows, 2,000 ops": (5, "ms"),
        "timeline of 100 rows, 2,000 ops": (20, "ms"),
        "40 rows of slices at fit, 2,000 ops": (8, "ms"),
        "40 rows of slices at 1 %, 2,000 ops": (8, "ms"),
        "40 rows of slices at 0.001 %, 2,000 ops": (8, "ms"),
        "critical_path, 2,000 ops": (10, "s"),
        "blame of an element of a matmul": (50, "ms"),
    }
    assert all(0 < row.measured < math.inf for row in rows)


@pytest.mark.slow
def test_whatever_is_measured_must_not_grow_faster_than_n_log_n(rows):
    growth = [row for row in rows if row.unit == "ratio"]
    assert len(growth) == 14
    bound = 2000 * math.log(2000) / (500 * math.log(500))
    assert {row.goal for row in growth} == {round(replay.NOISE * bound, 1)}


@pytest.mark.slow
def test_long_answers_are_not_asked_of_the_largest_traces(monkeypatch):
    monkeypatch.setattr(replay, "LONG_ANSWERS", 500)
    rows = replay.measure((500, 1000), **SMALL)
    assert "critical_path, 500 ops" in {row.name for row in rows}
    assert "compare, 1,000 / 500" not in {row.name for row in rows}


@pytest.mark.slow
def test_the_breakpoint_is_never_hit(tmp_path):
    make_trace(tmp_path / "x", 500)
    session = ReplaySession(Trace.open(tmp_path / "x"))
    session.break_on(f"bytes > {1 << 50}")
    session.run()
    assert session.cursor == len(session) - 1


def test_the_command_exits_1_where_a_goal_is_not_met(monkeypatch):
    monkeypatch.setattr(
        replay, "measure", lambda: [PerfRow("a step", 51.0, 50.0, "us")]
    )
    result = CliRunner().invoke(main, ["perf", "replay"])
    assert result.exit_code == 1
    assert "a step" in result.output
    assert "NOT MET" in result.output

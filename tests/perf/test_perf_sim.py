"""What `kernbench perf sim` counts and says; the seconds are its own affair."""

import json

import pytest

from kernbench.errors import KernbenchError
from kernbench.perf import sim
from kernbench.perf.sim import PerfRow

ROWS = [
    PerfRow("a tile", 149.5, 150.0, "bare timeouts"),
    PerfRow("ratio", 1.51, 1.5, "ratio"),
]


def test_a_tile_takes_at_most_thirty_events(one_cube):
    events, tiles = sim.count_events(one_cube, 512)
    assert tiles == 8 * 8 * 8
    assert 10 * tiles < events <= 30 * tiles


def test_a_goal_is_met_up_to_its_very_value():
    assert [PerfRow("x", value, 2.0, "s").met for value in (1.0, 2.0, 2.1)] == [
        True,
        True,
        False,
    ]


def test_the_table_says_what_was_not_met():
    met, missed = map(sim.row_text, ROWS)
    assert met.endswith(" met")
    assert "NOT MET" not in met
    assert missed.endswith("NOT MET")


def test_json_holds_every_row_and_its_verdict():
    assert [
        (row["name"], row["goal"], row["met"]) for row in json.loads(sim.as_json(ROWS))
    ] == [
        ("a tile", 150.0, True),
        ("ratio", 1.5, False),
    ]


def test_recording_is_timed_apart_from_the_run_without(one_cube, tmp_path):
    path = tmp_path / "perf.msgpack"
    assert sim.simulate(one_cube, 64, path) > 0
    assert path.stat().st_size > 0
    assert sim.simulate(one_cube, 64, None) > 0


@pytest.mark.slow
def test_a_large_run_that_fails_is_an_error_that_says_why():
    with pytest.raises(KernbenchError, match="m=0"):
        sim.large_run(0)


@pytest.mark.slow
def test_a_large_run_reports_its_time_and_its_peak():
    found = sim.large_run(64)
    assert found.verified
    assert found.seconds > 0
    assert 20 < found.peak_mib < 2048

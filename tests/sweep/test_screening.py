"""Screening against running everything."""

import json

import pytest
from click.testing import CliRunner
from sweeps import ONE_CUBE

from kernbench.cli import main
from kernbench.errors import KernbenchError
from kernbench.runtime_api import run_bench
from kernbench.sweep.draw import Draw
from kernbench.sweep.screening import Screening
from kernbench.sweep.space import read_space
from kernbench.sweep.sweeping import plan

CLOCKS = f"""
bench: matmul
set: {{m: 64, k: 64, n: 64, pes: 2}}
spec: {{pe.clock_ghz: [0.5, 1, 2, 4], pcie_bw_gbs: [16, 63, 32], {ONE_CUBE}}}
"""


def no_note(line):
    pass


@pytest.fixture
def screened(space_file, tmp_path):
    """Screens a space; the screening, all points, and the best ones."""

    def screened(text, count):
        space = read_space(space_file(text))
        points = plan(space, Draw())
        (tmp_path / "traces").mkdir(exist_ok=True)
        screening = Screening(space, tmp_path, count, no_note)
        return screening, points, screening.best(points)

    return screened


@pytest.mark.slow
def test_the_best_are_those_that_running_all_finds(screened):
    screening, points, best = screened(CLOCKS, 4)
    ran = {
        key: run_bench("matmul", params=point.params, spec=point.spec).end_ns
        for key, point in points.items()
    }
    assert (screening.recorded, len(points)) == (1, 12)
    sure = {found.key: found.end_ns for found in screening.found if found.is_sure}
    assert sure == pytest.approx({key: ran[key] for key in sure}, rel=0.02)
    assert len(sure) >= 6
    assert set(best) == set(sorted(ran, key=ran.get)[:4])


@pytest.mark.slow
def test_there_is_a_run_for_each_program_and_each_structure(screened):
    text = CLOCKS.replace("m: 64", "m: [32, 64]")
    text += "seed: [0, 1]\n"
    assert screened(text, 1)[0].recorded == 4
    text = CLOCKS.replace("cube_mesh.w: 1", "cube_mesh.w: [1, 2]")
    screening, _, best = screened(text, 3)
    assert screening.recorded == 2
    assert len(best) == 3


@pytest.mark.slow
def test_points_are_predicted_from_one_that_ends_well(screened):
    text = CLOCKS.replace("pcie_bw_gbs: [16,", "pcie_bw_gbs: [-1, 16,")
    screening, points, best = screened(text, 4)
    assert (len(points), len(screening.found), screening.recorded) == (16, 12, 1)
    assert set(best) == set(screened(CLOCKS, 4)[2])
    assert "4 points cannot be predicted" in " ".join(screening.report([]))
    with pytest.raises(KernbenchError, match="no point can be run"):
        screened(CLOCKS.replace("pes: 2", "pes: 0"), 1)


@pytest.mark.slow
def test_a_sweep_that_is_begun_again_predicts_from_no_run_that_failed(screened):
    # the first point, of the slowest clock and link, takes longer than a run may
    text = f"{CLOCKS}max_ns: 3000\n"
    first = screened(text, 4)[0]
    again = screened(text, 4)[0]
    assert 0 < first.recorded == again.recorded
    assert again.found == first.found


@pytest.mark.parametrize(
    ("objectives", "options", "why"),
    [
        ("energy_j", ["--screen", "2"], "only the least end_ns can be predicted"),
        ("{end_ns: max}", ["--screen", "2"], "not the most end_ns"),
        ("end_ns", ["--screen", "2", "--optuna", "2"], "give one of them"),
    ],
)
def test_what_cannot_be_screened_is_one_line(
    space_file, tmp_path, objectives, options, why
):
    space = space_file(f"{CLOCKS}objectives: {objectives}")
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["sweep", str(space), "-o", str(out), *options])
    assert result.exit_code == 2
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_a_screened_sweep_says_how_far_off_it_was(space_file, tmp_path):
    out = tmp_path / "out"
    words = ["sweep", str(space_file(CLOCKS)), "-o", str(out), "--screen", "3"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.stderr
    assert "3 points; 0 of them were there before" in result.stdout
    assert "12 points predicted from 1 recorded run" in result.stdout
    assert "of the 3 that were run is off by" in result.stdout
    points = {
        row["key"]: row["result"]["end_ns"]
        for row in map(json.loads, (out / "points.jsonl").read_text().splitlines())
    }
    lines = (out / "predictions.jsonl").read_text().splitlines()
    predictions = [json.loads(line) for line in lines]
    assert len(predictions) == 12
    ends = [row["predicted_ns"] for row in predictions]
    assert ends == sorted(ends)
    assert {row["key"]: row["end_ns"] for row in predictions[:3]} == points
    assert [row["end_ns"] for row in predictions[3:]] == [None] * 9
    again = CliRunner().invoke(main, words)
    assert "3 points; 3 of them were there before" in again.stdout

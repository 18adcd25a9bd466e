"""Sweeps on processes of this machine, some of which die."""

import json
import resource
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from sweeps import (
    MARKED,
    command,
    environ,
    is_running,
    kill,
    lines,
    run,
    start,
    wait_for,
)

from kernbench.cli import main
from kernbench.runtime_api import run_bench
from kernbench.sweep.sweeping import DIED, TRIES


@pytest.fixture
def marked(tmp_path, space_file):
    """Writes a space of the bench MARKED beside it."""
    (tmp_path / "marked.py").write_text(MARKED)

    def write(more="", count=6):
        return space_file(
            f"bench: marked.py\nset: {{n: {{from: 1, to: {count}}}{more}}}\n"
            "spec: {sips.count: 1, cube_mesh.w: 1, cube_mesh.h: 1}\n"
        )

    return write


def by_n(out):
    return {line["set"]["n"]: line for line in lines(out / "points.jsonl")}


@pytest.mark.slow
def test_a_sweep_has_the_results_of_single_runs(space_file, tmp_path):
    out = tmp_path / "out"
    done = run(space_file(), "-o", out, "--jobs", 2)
    assert (done.returncode, "10 points; 0 of them" in done.stdout) == (0, True)
    found = lines(out / "points.jsonl")
    assert [line["key"] for line in found] == sorted(line["key"] for line in found)
    assert len(found) == 10
    for line in found[:3]:
        summary = run_bench(
            "matmul", params=line["set"], spec=line["spec"], seed=line["seed"]
        ).summary()
        for name in ("end_ns", "energy_j", "bytes_moved", "verified", "ok"):
            assert line["result"][name] == summary[name], name
        kinds = summary["ops_by_kind"]
        assert line["result"]["ops_by_kind.gemm"] == kinds["gemm"]
    assert (out / "points.parquet").exists()
    wall = lines(out / "wall.jsonl")
    assert {line["key"] for line in wall} == {line["key"] for line in found}
    assert all(line["seconds"] > 0 for line in wall)
    assert "seconds" not in (out / "points.jsonl").read_text()


@pytest.mark.slow
def test_a_second_sweep_runs_what_is_missing_only(space_file, tmp_path):
    out = tmp_path / "out"
    run(space_file(), "-o", out)
    points = out / "points.jsonl"
    whole = points.read_bytes()
    kept = whole.splitlines(keepends=True)
    points.write_bytes(b"".join([kept[7], kept[2], kept[4]]) + kept[5][:40])
    (out / "wall.jsonl").unlink()
    done = run(space_file(), "-o", out)
    assert "10 points; 3 of them were there before" in done.stdout
    assert points.read_bytes() == whole
    assert len(lines(out / "wall.jsonl")) == 7


@pytest.mark.slow
def test_a_wider_space_uses_what_a_narrow_one_had(marked, tmp_path):
    out = tmp_path / "out"
    run(marked(count=3), "-o", out)
    done = run(marked(count=5), "-o", out)
    assert "5 points; 3 of them were there before" in done.stdout
    done = run(marked(count=2), "-o", out)
    assert "2 points; 2 of them were there before" in done.stdout
    assert sorted(by_n(out)) == [1, 2]
    done = run(marked(count=5), "-o", out)
    assert "5 points; 5 of them were there before" in done.stdout


@pytest.mark.slow
def test_a_worker_that_dies_costs_only_its_point(marked, tmp_path):
    out = tmp_path / "out"
    done = run(marked(", die: 3"), "-o", out, "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert "1 failed" in done.stdout
    found = by_n(out)
    assert {n: line["error"] for n, line in found.items() if line["error"]} == {3: DIED}
    attempts = [line["key"] for line in lines(out / "wall.jsonl")]
    assert attempts.count(found[3]["key"]) == TRIES
    assert len(attempts) == TRIES + 5


@pytest.mark.slow
def test_a_point_that_fails_is_tried_again_twice_and_kept(marked, tmp_path):
    out = tmp_path / "out"
    done = run(marked(", fail: 2, flaky: 4"), "-o", out)
    assert "1 failed" in done.stdout
    found = by_n(out)
    assert "ValueError: not 2" in found[2]["error"]
    assert found[4]["result"]["ok"]
    wall = lines(out / "wall.jsonl")
    tries = {n: [] for n in found}
    for line in wall:
        (n,) = (n for n in found if found[n]["key"] == line["key"])
        tries[n].append(line["error"] is None)
    assert tries == {n: [True] if n not in (2, 4) else [False, True] for n in found} | {
        2: [False] * 3
    }
    done = run(marked(", fail: 2, flaky: 4"), "-o", out)
    assert "6 of them were there before; 1 failed" in done.stdout
    assert len(lines(out / "wall.jsonl")) == len(wall)


@pytest.mark.slow
def test_failed_points_are_run_again_where_that_is_asked_for(marked, tmp_path):
    out = tmp_path / "out"
    space = marked(", fail: 2", count=3)
    run(space, "-o", out)
    before = len(lines(out / "wall.jsonl"))
    run(space, "-o", out, "--retry-failed")
    assert len(lines(out / "wall.jsonl")) == before + TRIES


@pytest.mark.slow
def test_wrong_data_are_a_result_that_is_not_ok(space_file, tmp_path):
    (tmp_path / "wrong.py").write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='wrong', description='')\n"
        "def run(torch, n=1):\n"
        "    x = torch.tensor([1.0], 'f32', name='x')\n"
        "    torch.expect(x, [float(n)])\n"
    )
    out = tmp_path / "out"
    done = run(space_file("bench: wrong.py\nset: {n: [1, 2]}"), "-o", out)
    assert "0 failed, 1 with wrong data" in done.stdout
    found = by_n(out)
    assert found[1]["result"]["ok"]
    assert "wrong" not in found[1]["result"]
    assert found[2]["result"]["wrong"].startswith("VerificationError: x differ")


@pytest.mark.slow
def test_what_a_bench_prints_is_in_a_log(marked, tmp_path):
    out = tmp_path / "out"
    done = run(marked(count=2), "-o", out)
    assert "point 1" not in done.stderr
    assert sorted((out / "workers.log").read_text().split()) == sorted(
        ["point", "1", "point", "2"]
    )


@pytest.mark.slow
def test_processes_that_cannot_begin_are_no_fault_of_the_points(marked, tmp_path):
    out = tmp_path / "out"
    script = (
        "import sys; from kernbench.cli import main\n"
        f"main(['sweep', {str(marked())!r}, '-o', {str(out)!r}, '--jobs', '2'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-"],  # a process of its own cannot read that script again
        input=script,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: the processes of the sweep cannot begin; ")
    assert (out / "points.jsonl").read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_an_ended_sweep_ends_its_workers_at_once(marked, tmp_path, number, code):
    out = tmp_path / "out"
    process = start(marked(", sleep_s: 60.0", count=2), "-o", out, "--jobs", 2)
    marks = [tmp_path / f"begun_{n}" for n in (1, 2)]
    wait_for(lambda: all(mark.exists() and mark.read_text() for mark in marks))
    pids = [int(mark.read_text()) for mark in marks]
    assert all(map(is_running, pids))
    kill(process, number)
    assert process.returncode == code
    wait_for(lambda: not any(map(is_running, pids)), 10)


@pytest.mark.slow
def test_the_workers_of_a_killed_sweep_end_too(marked, tmp_path):
    out = tmp_path / "out"
    process = start(marked(", sleep_s: 60.0", count=1), "-o", out, "--jobs", 1)
    mark = tmp_path / "begun_1"
    wait_for(lambda: mark.exists() and mark.read_text())
    pid = int(mark.read_text())
    kill(process)
    wait_for(lambda: not is_running(pid), 10)


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_full_disk(marked, tmp_path):
    out = tmp_path / "out"
    space = marked(count=20)
    words = ("-o", out, "--jobs", 1)
    done = subprocess.run(
        command(space, *words),
        env=environ() | {"PYTHONDONTWRITEBYTECODE": "1"},  # no .pyc that is cut short
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert "the same command goes on" in done.stderr.splitlines()[-1]
    kept = len(lines(out / "points.jsonl"))
    assert 0 < kept < 20
    done = run(space, *words)
    assert f"20 points; {kept} of them were there before; 0 failed" in done.stdout
    assert len(by_n(out)) == 20


@pytest.mark.slow
def test_progress_in_a_pipe_is_lines(marked, tmp_path):
    done = run(marked(", fail: 2"), "-o", tmp_path / "out", "--jobs", 1)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("6 of 6 points, 1 failed, ")
    assert "least end_ns" in last
    assert "\r" not in done.stderr


def kernbench(*words):
    return CliRunner().invoke(main, ["sweep", *map(str, words)])


@pytest.mark.parametrize(
    ("text", "words", "code", "why"),
    [
        ("bench: nothing", [], 2, "unknown bench"),
        ("bench: matmul\nset: {m: 1}\nwhere: m > 1", [], 2, "the space is empty"),
        ("bench: matmul\nset: {m: 1}\nwhere: m / 0 > 1", [], 2, "division by zero"),
        ("bench: matmul\nset: {m: {from: 1, to: 2000000}}", [], 2, "2,000,000 points"),
        ("bench: matmul", ["--random", 1, "--latin", 1], 2, "give one of them"),
        ("bench: matmul", ["--jobs", 1, "--scheduler", "x"], 2, "its own workers"),
        ("bench: matmul", ["--random", 0], 2, "0 is not in the range"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_line_and_no_folder(
    space_file, tmp_path, text, words, code, why
):
    out = tmp_path / "out"
    result = kernbench(space_file(text), "-o", out, *words)
    assert result.exit_code == code
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_a_sweep_into_a_file_is_one_line(space_file, tmp_path):
    result = kernbench(space_file(), "-o", tmp_path / "space.yaml")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_bench_that_changes_under_a_sweep_ends_it(marked, tmp_path):
    out = tmp_path / "out"
    process = start(marked(", sleep_s: 0.3", count=20), "-o", out, "--jobs", 1)
    wait_for(lambda: (out / "points.jsonl").exists() and by_n_or_none(out))
    with (tmp_path / "marked.py").open("a") as file:
        file.write("# another\n")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1].endswith(
        "marked.py is another file than when the sweep was begun"
    )
    assert lines(out / "points.jsonl")


@pytest.mark.slow
def test_a_sweep_that_is_killed_shows_no_rows_of_another_source(marked, tmp_path):
    out = tmp_path / "out"
    words = ("-o", out, "--jobs", 1)
    run(marked(count=3), *words)
    space = marked(", sleep_s: 0.5", count=3)
    source = tmp_path / "marked.py"
    source.write_text(source.read_text().replace("float(n)]", "float(n), 0.0]"))
    begun = tmp_path / "begun_2"
    begun.unlink()
    process = start(space, *words)
    wait_for(begun.exists)
    kill(process)
    shown = json.loads(run("show", out, "--sort", "n", "--json").stdout)
    assert [row["set.n"] for row in shown] == [1]
    assert len(lines(out / "older.jsonl")) == 3


def by_n_or_none(out):
    return (out / "points.jsonl").read_bytes().count(b"\n") or None


def test_the_help_names_both_forms():
    text = kernbench("--help").stdout
    assert "kernbench sweep SPACE.yaml -o FOLDER" in text
    assert json.dumps(text).isascii()

"""Sweeps on a real Dask cluster of two workers on 127.0.0.1."""

import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner
from sweeps import MARKED, ROOT, environ, kill, lines, run, start, wait_for

from kernbench.cli import main
from kernbench.sweep.sweeping import DIED

pytestmark = pytest.mark.slow


class Cluster:
    """A scheduler, and workers that are started one by one."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start(
            ROOT, "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"
        )

    def worker(self, root=ROOT):
        options = ("--nthreads", 1, "--no-nanny", "--no-dashboard")
        return self._start(root, "worker", self.address, *options)

    def _start(self, root, *words):
        log = (self.folder / f"log{len(self.processes)}").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *map(str, words)],
            cwd=self.folder,
            env=environ(root),
            stdout=log,
            stderr=log,
        )
        self.processes.append(process)
        return process

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    yield cluster
    cluster.close()


def test_a_cluster_gives_the_same_bytes_as_this_machine(cluster, space_file, tmp_path):
    cluster.worker()
    cluster.worker()
    here = tmp_path / "here"
    there = tmp_path / "there"
    assert run(space_file(), "-o", here).returncode == 0
    done = run(space_file(), "-o", there, "--scheduler", cluster.address)
    assert done.returncode == 0, done.stderr
    assert (there / "points.jsonl").read_bytes() == (here / "points.jsonl").read_bytes()
    assert done.stderr.count("\n") <= 3


def test_a_worker_killed_in_the_middle_loses_no_point(cluster, space_file, tmp_path):
    (tmp_path / "marked.py").write_text(MARKED)
    space = space_file(
        "bench: marked.py\nset: {n: {from: 1, to: 20}, sleep_s: 0.3}\n"
        "spec: {sips.count: 1, cube_mesh.w: 1, cube_mesh.h: 1}\n"
    )
    workers = [cluster.worker(), cluster.worker()]
    out = tmp_path / "out"
    process = start(space, "-o", out, "--scheduler", cluster.address)
    points = out / "points.jsonl"
    wait_for(lambda: points.exists() and points.read_bytes().count(b"\n") >= 4)
    wait_for(lambda: len({line["worker"] for line in lines(out / "wall.jsonl")}) == 2)
    os.kill(workers[0].pid, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = lines(points)
    assert sorted(line["set"]["n"] for line in found) == list(range(1, 21))
    assert [line["error"] for line in found] == [None] * 20


def test_a_point_that_kills_its_workers_does_not_kill_all(
    cluster, space_file, tmp_path
):
    (tmp_path / "marked.py").write_text(MARKED)
    space = space_file("bench: marked.py\nset: {n: {from: 1, to: 8}, die: 2}")
    for _ in range(5):  # Dask gives a point to four of them
        cluster.worker()
    out = tmp_path / "out"
    done = run(space, "-o", out, "--scheduler", cluster.address)
    assert done.returncode == 0, done.stderr
    found = {line["set"]["n"]: line["error"] for line in lines(out / "points.jsonl")}
    assert found == {n: DIED if n == 2 else None for n in range(1, 9)}


def test_workers_may_come_later(cluster, space_file, tmp_path):
    out = tmp_path / "out"
    process = start(space_file(), "-o", out, "--scheduler", cluster.address)
    wait_for(lambda: (out / "points.jsonl").exists())
    cluster.worker()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(lines(out / "points.jsonl")) == 10


def test_a_worker_with_another_kernbench_is_refused(cluster, space_file, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "kernbench", other / "kernbench")
    with (other / "kernbench" / "benches" / "matmul.py").open("a") as file:
        file.write("# another\n")
    cluster.worker(other)
    out = tmp_path / "out"
    done = run(space_file(), "-o", out, "--scheduler", cluster.address)
    assert done.returncode == 1
    assert "another kernbench" in done.stderr.splitlines()[-1]
    assert (out / "points.jsonl").read_text() == ""


def test_a_scheduler_that_goes_away_is_one_line(cluster, space_file, tmp_path):
    (tmp_path / "marked.py").write_text(MARKED)
    space = space_file("bench: marked.py\nset: {n: {from: 1, to: 100}, sleep_s: 0.1}")
    cluster.worker()
    out = tmp_path / "out"
    process = start(space, "-o", out, "--scheduler", cluster.address)
    points = out / "points.jsonl"
    wait_for(lambda: points.exists() and points.read_bytes().count(b"\n") >= 3)
    kill_all(cluster)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "start the sweep again to go on" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert len(lines(points)) >= 3


def kill_all(cluster):
    for process in cluster.processes:
        process.kill()


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "nonsense://127.0.0.1:1", "tcp://127.0.0.1:x"]
)
def test_an_address_that_nobody_answers_at_is_one_line(
    space_file, tmp_path, monkeypatch, address
):
    monkeypatch.setattr("kernbench.sweep.executors.CONNECT_S", 1.0)
    words = [str(space_file()), "-o", str(tmp_path / "out"), "--scheduler", address]
    result = CliRunner().invoke(main, ["sweep", *words])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: --scheduler {address}: no scheduler")
    assert result.stderr.count("\n") == 1


def test_a_sweep_on_a_cluster_ends_with_ctrl_c(cluster, space_file, tmp_path):
    (tmp_path / "marked.py").write_text(MARKED)
    space = space_file("bench: marked.py\nset: {n: {from: 1, to: 9}, sleep_s: 0.5}")
    cluster.worker()
    out = tmp_path / "out"
    process = start(space, "-o", out, "--scheduler", cluster.address)
    wait_for(lambda: (tmp_path / "begun_1").exists())
    kill(process, signal.SIGINT)
    assert process.returncode == 130

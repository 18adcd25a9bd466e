"""A sweep that is killed again and again ends with the same bytes as another."""

import random
import time

import pytest
from pace import some_in_ci
from sweeps import kill, lines, run, start, wait_for

pytestmark = pytest.mark.slow

JOBS = 2


def count(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.mark.parametrize("kills", some_in_ci([2, 10], 1))
def test_a_killed_sweep_ends_with_the_same_bytes(kills, space_file, tmp_path):
    space = space_file(
        """
        bench: matmul
        set: {m: [32, 64, 96, 128], k: [32, 64], n: 32, pes: [1, 0], tile: [16, 32]}
        spec: {pe.clock_ghz: [1, 2], sips.count: 1, cube_mesh.w: 1, cube_mesh.h: 1}
        """
    )
    once = tmp_path / "once"
    assert run(space, "-o", once, "--jobs", JOBS).returncode == 0
    whole = (once / "points.jsonl").read_bytes()
    failed = [line for line in lines(once / "points.jsonl") if line["error"]]
    assert len(failed) == 32  # the bench refuses pes=0
    assert whole.count(b"\n") == 64

    out = tmp_path / "out"
    points = out / "points.jsonl"
    moments = random.Random(24)
    for _ in range(kills):
        before = count(points)
        target = before + moments.randint(0, 5)
        process = start(space, "-o", out, "--jobs", JOBS)
        wait_for(lambda wanted=target: count(points) >= wanted)
        time.sleep(moments.uniform(0, 0.1))
        assert process.poll() is None
        kill(process)
        assert count(points) >= before
    kept = count(points)
    assert kills < kept < 64
    done = run(space, "-o", out, "--jobs", JOBS)
    assert done.returncode == 0, done.stderr
    assert f"64 points; {kept} of them were there before" in done.stdout
    assert points.read_bytes() == whole
    parquet = "points.parquet"
    assert (out / parquet).read_bytes() == (once / parquet).read_bytes()
    ran = [line["key"] for line in lines(out / "wall.jsonl") if line["error"] is None]
    assert len(ran) <= 32 + kills * JOBS

"""One program in two checkouts, and two programs under one limit: what compare says.

The checkouts are real folders, each run from its own place as CI does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.errors import UsageError
from kernbench.replay.compare import compare
from kernbench.trace import Trace

ROOT = Path(__file__).parents[2]
BENCH = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy
from first.parts import scaled
from second.parts import shifted

def kernel(x_ptr, y_ptr, tl):
    x = tl.load(x_ptr, (64,), "f32")
    tl.store(y_ptr, shifted(scaled(x, tl), tl))

@bench(name="steps", description="", machine=lambda **_: {"system.sips.count": 1})
def run(torch, fails: int = 0):
    dp = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor(range(64), "f32", dp, name="x")
    y = torch.empty((64,), "f32", dp, name="y")
    torch.launch("steps", kernel, x, y)
    y.numpy()
    assert not fails
"""
SCALED = """
def scaled(x, tl):
    return tl.mul(x, 2.0)
"""
SHIFTED = """
def shifted(x, tl):
    return tl.add(x, 1.0)
"""


def checkout(folder):
    """The program in a folder; two of its files have one name."""
    for name, text in (("first", SCALED), ("second", SHIFTED)):
        (folder / name).mkdir(parents=True)
        (folder / name / "parts.py").write_text(text)
    (folder / "steps.py").write_text(BENCH)
    return folder


def recorded(folder, *options):
    """The trace of a run of a checkout, begun from the folder above."""
    path = folder.parent / f"{folder.name}.msgpack"
    command = [sys.executable, "-m", "kernbench", "run", f"{folder.name}/steps.py"]
    subprocess.run(
        [*command, "--trace", str(path), *options],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        check="fails=1" not in options,
    )
    return Trace.open(path)


@pytest.fixture
def checkouts(tmp_path):
    """The same program twice, under other names and at other depths."""
    return checkout(tmp_path / "mine"), checkout(tmp_path / "ci" / "build" / "42")


@pytest.mark.slow
def test_lines_are_those_of_another_checkout_by_file_and_text(checkouts):
    mine, theirs = checkouts
    found = compare(recorded(mine), recorded(theirs))
    assert found.ok
    assert found.runs == ()
    assert {row.change for row in found.kernel_lines} == {"+0.0%"}
    assert len(found.kernel_lines) == 4


@pytest.mark.slow
def test_what_is_slower_in_another_checkout_is_slower_and_not_new(checkouts):
    mine, theirs = checkouts
    shutil.rmtree(theirs / "second")
    (theirs / "second").mkdir()
    twice = SHIFTED.replace("tl.add(x, 1.0)", "tl.add(tl.add(x, 0.0), 1.0)")
    (theirs / "second" / "parts.py").write_text(twice)
    found = compare(recorded(mine), recorded(theirs, "--spec", "pe.clock_ghz=0.5"))
    lines = {row.what: row.change for row in found.kernel_lines}
    assert lines["42/first/parts.py: return tl.mul(x, 2.0)"] == "+100.0%"
    new = [line for line, change in lines.items() if change == "new"]
    assert new == ["42/second/parts.py: return tl.add(tl.add(x, 0.0), 1.0)"]
    sources = [(row.a, row.b) for row in found.runs if row.what == "source"]
    assert sources == [
        (
            "parts.py 3: return tl.add(x, 1.0)",
            "parts.py 3: return tl.add(tl.add(x, 0.0), 1.0)",
        )
    ]
    by_name = [(row.name, row.ops) for row in found.savings if row.name == "add"]
    assert by_name == [("add", 2)]


@pytest.mark.slow
def test_the_same_error_at_the_same_line_of_another_checkout_is_the_same(checkouts):
    mine, theirs = (recorded(folder, "--set", "fails=1") for folder in checkouts)
    assert mine.end["error"] != theirs.end["error"]  # each names its own file
    assert compare(mine, theirs).ok


def test_a_limit_for_another_bench_is_an_error_that_names_both():
    names = ("matmul", "flash_attention")
    paths = [str(ROOT / "traces" / f"{name}.msgpack") for name in names]
    result = CliRunner().invoke(
        main, ["trace", "compare", *paths, "--fail-over", "500%"]
    )
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert all(name in line for name in names)
    with pytest.raises(UsageError, match=r"bench matmul, .*bench flash_attention: "):
        compare(*map(Trace.open, paths), 5.0)
    assert CliRunner().invoke(main, ["trace", "compare", *paths]).exit_code == 1


@pytest.mark.slow
def test_a_limit_for_other_inputs_says_that_outputs_were_not_compared(tmp_path):
    folder = checkout(tmp_path / "mine")
    before = recorded(folder)
    source = (folder / "steps.py").read_text()
    (folder / "steps.py").write_text(source.replace("range(64)", "range(1, 65)"))
    found = compare(before, recorded(folder), 5.0)
    assert found.ok
    assert "other inputs, so outputs were not held against A's" in found.verdict

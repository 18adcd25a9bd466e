"""What the README shows is run here, in a shell as a user would; what it lists is complete."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernbench.benches import SHIPPED
from kernbench.cli import run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    "\n".join(line[4:] for line in block.splitlines())
    for block in re.findall(r"(?:^(?:    .*)?\n)+", README, re.MULTILINE)
    if block.strip()
]


def block(start):
    """The indented block that begins so."""
    (found,) = (text.strip() for text in BLOCKS if text.strip().startswith(start))
    return found


@pytest.fixture
def shell(tmp_path):
    """Runs a command line in an empty directory with ``kernbench`` on the path; what it prints."""

    def shell(line):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return shell


def test_the_first_kernel_runs_is_verified_and_leaves_a_trace(shell, tmp_path):
    text = block("from kernbench.benches import bench")
    assert len(text.splitlines()) <= 15
    (tmp_path / "my_bench.py").write_text(text)
    printed = shell("kernbench run my_bench.py --trace out.msgpack")
    assert re.search(r"^y +f32 +64 +ok ", printed, re.MULTILINE)
    assert printed.endswith("trace: kernbench-tui out.msgpack\n")
    assert "my_bench.py:" in shell("kernbench trace source out.msgpack")


def test_the_first_commands_record_a_matmul(shell):
    first, second = block("kernbench run matmul --trace").splitlines()
    assert second in shell(first)


def test_a_sweep_is_a_shell_loop_of_json(shell):
    lines = [json.loads(line) for line in shell(block("for ghz in")).splitlines()]
    shown = block('{"bench"')
    assert [line["spec"] for line in lines] == [{"clock_ghz": ghz} for ghz in (1, 2, 4)]
    ends = [line["end_ns"] for line in lines]
    assert ends == sorted(ends, reverse=True)
    assert set(lines[0]) == set(re.findall(r'"(\w+)": ', shown)) - {"m", "pes", "clock_ghz",
        "tensor", "mismatches"}  # fmt: skip
    for key in ("end_ns", "ops", "tile_stages"):
        value = float(re.search(rf'"{key}": ([0-9.]+)', shown)[1])
        assert value == round(lines[0][key], 2)


def test_the_machine_to_start_from_is_a_topology(shell):
    shell("kernbench info --topology > my_machine.yaml")
    assert shell("kernbench info --topology my_machine.yaml") == shell("kernbench info")


def test_every_option_of_run_is_explained():
    options = {name for option in run.params for name in option.opts if name.startswith("--")}
    assert {name for name in options if name not in README} == set()


def test_every_bench_is_listed():
    table = README[README.index("| bench | what") : README.index("### A kernel of your own")]
    assert {name for name in SHIPPED if f"`{name}`" not in table} == set()

"""Benches, ranks, files and a stdout that nobody should give: one line each."""

import os
import re
import subprocess
import sys

import pytest
from checkout import ROOT
from click.testing import CliRunner
from pace import first_fast

from kernbench.cli import main
from kernbench.trace import Trace

HEAD = """
import sys
from kernbench.benches import bench
from kernbench.errors import KernbenchError

class Mine(KernbenchError):
    def __init__(self, one, two):
        self.one = one
    def __str__(self):
        raise SystemExit(self.one)
"""
BENCHES = {
    "leaves": ("sys.exit(0)", "bench hostile at .*hostile.py:14: SystemExit: 0"),
    "is mute": ("raise Mine(1, 2)", r"\(it cannot be shown: its __str__ raised Sys"),
    "yields": ("yield", "bench hostile at .*hostile.py:11: TypeError: it is a gener"),
    "is long": ("raise ValueError('x' * 9999999)", r"xxx… \(9,999,999 characters\)"),
    "has a rank that leaves": (
        "torch.multiprocessing.spawn(lambda rank: sys.exit(rank))",
        "rank 0 at .*hostile.py:14: SystemExit: 0",
    ),
    "has a rank of another error": (
        "torch.multiprocessing.spawn(lambda rank: exec('raise Mine(1, 2)'))",
        r"rank 0: \(it cannot be shown",
    ),
    "has a rank that yields": (
        "torch.multiprocessing.spawn(lambda rank: (yield))",
        "rank 0 at .*hostile.py:14: TypeError: it is a generator",
    ),
}


ONE_CUBE = ("sips.count=1", "sip.cube_mesh.w=1", "sip.cube_mesh.h=1")


def kernbench(*args):
    result = CliRunner().invoke(main, list(map(str, args)))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.mark.parametrize("name", first_fast(BENCHES))
def test_a_hostile_bench_is_one_line_and_leaves_a_trace(tmp_path, name):
    line_of_code, error = BENCHES[name]
    bench = tmp_path / "hostile.py"
    out = tmp_path / "out.msgpack"
    bench.write_text(
        f"{HEAD}@bench(name='hostile', description='')\n"
        "def run(torch):\n"
        "    torch.zeros((8,), 'f32').numpy()\n"
        f"    {line_of_code}\n"
    )
    text = bench.read_text()
    assert text.splitlines()[13].strip() == line_of_code
    result = kernbench("run", bench, "--spec", *ONE_CUBE, "--trace", out)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 1
    assert re.search(error, line), line
    assert len(line) < 20_000
    if name != "yields":  # nothing of it ran
        assert Trace.open(out).complete


FORKS = {
    "the bench, and goes on": "os.fork()",
    "the bench, and raises": "if os.fork() == 0: raise ValueError",
    "a rank": "torch.multiprocessing.spawn(lambda rank: os.fork())",
    "the bench, which allocates": "os.fork(); [torch.zeros((8,)) for _ in range(9999)]",
}


@pytest.mark.parametrize("what", FORKS)
@pytest.mark.slow
def test_a_process_that_forks_is_one_run(tmp_path, what):
    bench = tmp_path / "forking.py"
    out = tmp_path / "out.msgpack"
    bench.write_text(
        "import os\nfrom kernbench.benches import bench\n"
        "@bench(name='forking', description='')\n"
        "def run(torch):\n"
        "    torch.zeros((8,), 'f32').numpy()\n"
        f"    {FORKS[what]}\n"
        "    torch.zeros((8,), 'f32').numpy()\n"
    )
    args = ["run", str(bench), "--spec", *ONE_CUBE, "--trace", str(out)]
    end = subprocess.run(
        [sys.executable, "-m", "kernbench.cli", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (end.returncode, end.stderr) == (0, "")
    assert end.stdout.count(" ns simulated") == 1
    recorded = Trace.open(out)
    assert recorded.complete
    assert recorded.check() == []


def test_what_a_benchs_machine_raises_is_one_line(tmp_path):
    bench = tmp_path / "hostile.py"
    bench.write_text(
        f"{HEAD}@bench(name='hostile', description='', machine=lambda: sys.exit(3))\n"
        "def run(torch):\n    pass\n"
    )
    result = kernbench("run", bench)
    assert result.exit_code == 1
    assert result.stderr == "error: bench hostile, its machine: SystemExit: 3\n"


def test_what_a_bench_file_raises_as_it_is_read_is_one_line(tmp_path):
    bench = tmp_path / "hostile.py"
    bench.write_text(f"{HEAD}raise Mine(1, 2)\n")
    result = kernbench("run", bench)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 2
    assert line.endswith(
        "hostile.py': Mine: (it cannot be shown: its __str__ raised SystemExit)"
    )


YAML = {
    "a list of 6 MB": ("[" + "1, " * 2_000_000 + "1]", "has more than 128 KiB"),
    "nested deeply": ("{a: " * 5000, "nested too deeply"),
    "a number of 5,000 digits": ("{pe: {clock_ghz: 0x" + "f" * 5000 + "}}", "0xfff"),
    "a name of 100 KB": ("{pe: {clock_ghz: " + "x" * 100_000 + "}}", "xxx… (100,002"),
    "an object": ("!!python/object/apply:os.system [id]", "must be a mapping"),
    "itself": ("&a {pe: *a}", "pe.pe: unknown field"),
}


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("command", first_fast(["info", "probe", "run"]))
def test_a_hostile_topology_is_one_short_line(tmp_path, name, command):
    text, error = YAML[name]
    file = tmp_path / "machine.yaml"
    file.write_text(text)
    args = ["matmul"] if command == "run" else []
    result = kernbench(command, *args, "--topology", file)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 2
    assert error in line
    assert len(line) < 1000


MATMUL = str(ROOT / "traces" / "matmul.msgpack")
FULL = [
    "kernbench.cli --version",
    "kernbench.cli --help",
    "kernbench.cli run --help",
    "kernbench.cli list",
    "kernbench.cli doc tl",
    "kernbench.cli info",
    "kernbench.cli run matmul --set m=8 n=8 k=8 pes=1",
    f"kernbench.cli trace ops {MATMUL}",
    "tui --help",
    "tui --info",
    f"tui {MATMUL}",
]


@pytest.mark.slow
@pytest.mark.parametrize("program", FULL)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_one_line(program, unbuffered):
    with open("/dev/full", "w") as full:
        end = subprocess.run(
            [sys.executable, "-m", *program.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    why = "No space left on device"
    assert end.stderr == f"error: cannot write the standard output: {why}\n"
    assert end.returncode == 2

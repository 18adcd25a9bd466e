"""``kernbench run`` and ``list`` as a user calls them; nothing is written where nothing ran."""

import json

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.trace import Trace

SMALL = ["--set", "m=32", "--set", "k=32", "--set", "n=32", "--set", "pes=1"]


def kernbench(*args):
    return CliRunner().invoke(main, list(args))


def test_run_prints_time_ops_and_the_verification_table(tmp_path):
    out = tmp_path / "out.msgpack"
    result = kernbench("run", "matmul", *SMALL, "--trace", str(out), "--verify")
    assert result.exit_code == 0
    assert "ns simulated" in result.output
    assert "2 memory, 5 unknown, 1 gemm" in result.output
    assert " ok " in result.output
    assert f"kernbench-tui {out}" in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["out.msgpack"]


def test_run_prints_json(tmp_path):
    result = kernbench("run", "matmul", *SMALL, "--json")
    answer = json.loads(result.output)
    assert answer["ok"] is True
    assert answer["ops_by_kind"] == {"memory": 2, "unknown": 5, "gemm": 1}
    assert answer["verify"][0]["mismatches"] == 0


def test_wrong_data_exits_1(tmp_path):
    bench = tmp_path / "wrong.py"
    bench.write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='wrong', description='expects the wrong thing')\n"
        "def run(torch):\n"
        "    x = torch.tensor([1.0, 2.0], 'f32', name='x')\n"
        "    torch.expect(x, [1.0, 3.0])\n"
    )
    out = tmp_path / "out.msgpack"
    result = kernbench("run", str(bench), "--trace", str(out))
    assert result.exit_code == 1
    assert "FAIL" in result.output
    end = Trace.open(out).end
    assert end["ok"] is False
    assert end["error"] == "VerificationError: x differ from their references"


def test_two_runs_of_one_command_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "1.msgpack", tmp_path / "2.msgpack"
    for path in (first, second):
        assert kernbench("run", "matmul", *SMALL, "--trace", str(path)).exit_code == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("args", "code", "parts"),
    [
        (["run", "matmull"], 2, ["'matmull'", "valid: matmul"]),
        (["run", "matmul", "--set", "q=3"], 2, ["'q'", "valid: m, k, n"]),
        (["run", "matmul", "--set", "m=0"], 2, ["m=0", "at least 1"]),
        (["run", "matmul", "--set", "k=-4"], 2, ["k=-4", "at least 1"]),
        (["run", "matmul", "--set", "m=x"], 2, ["m=x", "int"]),
        (["run", "matmul", "--set", "m"], 2, ["'m'", "KEY=VALUE"]),
        (["run", "matmul", "--set", "pes=9"], 2, ["pes=9", "1 to 8"]),
        (["run", "matmul", "--set", "dtype=f15"], 2, ["f15", "f16"]),
        (["run", "matmul", "--topology", "nowhere.yaml"], 1, ["nowhere.yaml"]),
        (["run", "nowhere.py"], 2, ["nowhere.py"]),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, args, code, parts):
    out = tmp_path / "out.msgpack"
    result = kernbench(*args, "--trace", str(out))
    lines = result.stderr.splitlines()
    assert result.exit_code == code
    assert len(lines) == 1
    for part in parts:
        assert part in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_trace_in_a_missing_directory_is_one_line(tmp_path):
    result = kernbench("run", "matmul", *SMALL, "--trace", str(tmp_path / "no" / "out.msgpack"))
    lines = result.stderr.splitlines()
    assert (result.exit_code, len(lines)) == (1, 1)
    assert str(tmp_path / "no") in lines[0]


def test_list_names_every_bench_with_its_parameters():
    result = kernbench("list")
    assert "matmul" in result.output
    assert "m=256 k=256 n=256 dtype=f16 tile=64 pes=all" in result.output

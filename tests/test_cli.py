"""``kernbench run`` and ``list`` as a user calls them; nothing is written where nothing
ran.
"""

import io
import json
import os
import pty
import resource
import select
import signal
import subprocess
import sys

import pytest
import yaml
from child_signals import reset_signals
from click.testing import CliRunner

from kernbench.benches import SHIPPED
from kernbench.cli import main
from kernbench.shell.options import terminal_progress
from kernbench.topology import TopologySpec, load_spec
from kernbench.trace import Trace

SMALL = ["--set", "m=32", "--set", "k=32", "--set", "n=32", "--set", "pes=1"]


def kernbench(*args):
    return CliRunner().invoke(main, list(args), prog_name="kernbench")


NOTHING = """
from kernbench.benches import bench


@bench(name="nothing", description="")
def run(torch):
    pass
"""


def test_a_run_of_no_ops_has_no_kinds_of_them(tmp_path):
    file = tmp_path / "nothing.py"
    file.write_text(NOTHING)
    result = kernbench("run", str(file))
    assert result.exit_code == 0
    assert "0 ops\n" in result.output


@pytest.mark.slow
def test_run_prints_time_ops_and_the_verification_table(tmp_path):
    out = tmp_path / "out.msgpack"
    result = kernbench("run", "matmul", *SMALL, "--trace", str(out), "--verify")
    assert result.exit_code == 0
    assert "ns simulated" in result.output
    assert "8 ops (2 memory, 1 gemm, 5 tile stages)" in result.output
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


@pytest.mark.slow
def test_two_runs_of_one_command_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "1.msgpack", tmp_path / "2.msgpack"
    for path in (first, second):
        assert kernbench("run", "matmul", *SMALL, "--trace", str(path)).exit_code == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_several_settings_may_follow_one_set():
    spread = kernbench(
        "run", "matmul", "--set", "m=32", "k=32", "n=32", "pes=1", "--json"
    )
    repeated = kernbench("run", "matmul", *SMALL, "--json")
    assert json.loads(spread.output) == json.loads(repeated.output)


@pytest.mark.slow
def test_json_holds_what_a_sweep_needs(tmp_path):
    out = str(tmp_path / "out.msgpack")
    spec = ["--spec", "pe.clock_ghz=2", "cube.hbm.channels=4", "topology=torus_2d"]
    result = kernbench(
        "run", "matmul", *SMALL, *spec, "--seed", "5", "--trace", out, "--json"
    )
    answer = json.loads(result.output)
    assert answer["params"] == {
        "m": 32,
        "k": 32,
        "n": 32,
        "dtype": "f16",
        "tile": 64,
        "pes": 1,
    }
    assert answer["spec"] == {
        "pe.clock_ghz": 2,
        "cube.hbm.channels": 4,
        "topology": "torus_2d",
    }
    assert (answer["seed"], answer["trace"], answer["topology"]) == (5, out, None)
    assert (answer["ops"], answer["tile_stages"], answer["verified"]) == (8, 5, True)
    assert answer["end_ns"] == Trace.open(out).end_ns
    assert answer["findings"] == []


def test_a_run_that_failed_has_the_params_of_one_that_did_not():
    words = ("run", "matmul", "--set", "m=32", "k=32", "pes=1", "--json")
    failed = kernbench(*words, "--max-ns", "100")
    assert failed.exit_code == 1
    answer = json.loads(failed.stdout)
    assert answer["ok"] is False
    assert answer["params"] == {
        "m": 32,
        "k": 32,
        "n": 256,
        "dtype": "f16",
        "tile": 64,
        "pes": 1,
    }
    assert answer["params"] == json.loads(kernbench(*words).stdout)["params"]


@pytest.mark.slow
def test_a_spec_field_changes_the_machine():
    def simulated(*spec):
        return json.loads(kernbench("run", "matmul", *SMALL, "--json", *spec).output)[
            "end_ns"
        ]

    assert (
        simulated("--spec", "pe.clock_ghz=2")
        < simulated()
        < simulated("--spec", "ns_per_mm=1")
    )


@pytest.mark.slow
def test_no_data_leaves_out_the_data_only(tmp_path):
    full, bare = str(tmp_path / "full.msgpack"), str(tmp_path / "bare.msgpack")
    with_data = kernbench("run", "matmul", *SMALL, "--trace", full, "--no-verify")
    without = kernbench("run", "matmul", *SMALL, "--trace", bare, "--no-data")
    assert without.output == with_data.output.replace("full", "bare")
    ours, theirs = Trace.open(bare), Trace.open(full)
    assert (ours.header["data"], theirs.header["data"]) == (False, True)
    assert [op.params.pop("snapshot", None) for op in ours.ops] == [None] * len(
        ours.ops
    )
    assert [op.op_name for op in ours.ops] == [op.op_name for op in theirs.ops]
    assert os.path.getsize(full) - os.path.getsize(bare) > 2 * 32 * 32 * 2


def test_warn_memory_goes_on_and_verification_fails(tmp_path):
    out = tmp_path / "out.msgpack"
    result = kernbench(
        "run", "fault_never_written", "--warn-memory", "--trace", str(out), "--json"
    )
    answer = json.loads(result.output)
    assert (result.exit_code, answer["ok"], answer["warn_memory"]) == (1, False, True)
    assert answer["verify"][0]["nans"] == [64, 0]
    assert Trace.open(out).header["warn_memory"] is True


def test_debug_says_how_many_ops_were_checked():
    result = kernbench("run", "matmul", *SMALL, "--debug")
    assert result.exit_code == 0
    assert result.output.endswith(
        "\ndebug: 3 ops checked, none off by more than rounding\n"
    )
    answer = json.loads(kernbench("run", "matmul", *SMALL, "--debug", "--json").output)
    assert (answer["checked"], answer["first_over"], answer["ok"]) == (3, None, True)


@pytest.mark.slow
def test_debug_names_the_first_op_that_is_off_and_exits_1(tmp_path):
    args = ["run", "fault_overflow", "--debug", "--no-verify"]
    out = tmp_path / "out.msgpack"
    result = kernbench(*args, "--trace", str(out))
    (line,) = (
        text for text in result.output.splitlines() if text.startswith("debug: ")
    )
    assert result.exit_code == 1
    assert line.startswith("debug: op 2 exp on sip0.cube0.pe0.pe_math: local error ")
    assert Trace.open(out).end["error"] == line.replace("debug", "VerificationError")
    answer = json.loads(kernbench(*args, "--json").output)
    assert (answer["first_over"]["op_name"], answer["first_over"]["position"]) == (
        "exp",
        2,
    )
    assert (answer["ok"], answer["verified"]) == (False, False)


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [False, True])
def test_warn_memory_ends_with_the_number_of_warnings_and_the_first(tmp_path, recorded):
    args = ["run", "fault_never_written", "--warn-memory"]
    args += ["--trace", str(tmp_path / "out.msgpack")] if recorded else []
    last = kernbench(*args).output.splitlines()[-1]
    answer = json.loads(kernbench(*args, "--json").output)
    assert last == f"warnings: 1, the first: {answer['first_warning']}"
    assert answer["warnings"] == 1
    assert "never_written.py:" in answer["first_warning"]
    assert ": load reads f32[64] at " in answer["first_warning"]


@pytest.mark.slow
def test_without_warnings_their_number_is_0():
    result = kernbench("run", "matmul", *SMALL, "--warn-memory")
    assert result.output.endswith("\nwarnings: 0\n")
    assert "warnings" not in kernbench("run", "matmul", *SMALL).output


def test_a_failing_kernel_is_one_line_that_names_the_trace(tmp_path):
    bench, out = tmp_path / "fails.py", tmp_path / "out.msgpack"
    bench.write_text(
        "from kernbench.benches import bench\n"
        "def kernel(x_ptr, tl):\n"
        "    tl.load(x_ptr, (2,), 'f32')\n"
        "    raise ValueError('mine\\nof two lines')\n"
        "@bench(name='fails', description='')\n"
        "def run(torch):\n"
        "    torch.launch('k', kernel, torch.zeros((2,), 'f32'))\n"
    )
    result = kernbench("run", str(bench), "--trace", str(out))
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 1
    assert line.startswith("error: sip0.cube0.pe0.pe_cpu: kernel k at ")
    assert "fails.py:4: ValueError: mine of two lines; trace up to " in line
    assert line.endswith(f" ns: kernbench-tui {out}")
    assert Trace.open(out).end["error"].startswith("KernelError: ")


def test_what_a_bench_raises_is_one_line_with_its_place(tmp_path):
    bench = tmp_path / "fails.py"
    bench.write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='fails', description='')\n"
        "def run(torch):\n"
        "    torch.tensor([[1.0], [2.0, 3.0]])\n"
    )
    result = kernbench("run", str(bench))
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 1
    assert line.startswith("error: bench fails at ")
    assert "fails.py:4: ValueError: " in line


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_a_trace_that_cannot_be_written_does_not_lose_the_result(tmp_path, as_json):
    out, limit = tmp_path / "out.msgpack", 60_000
    command = [
        "run",
        "matmul",
        *SMALL,
        "--trace",
        str(out),
        *(["--json"] if as_json else []),
    ]
    run = subprocess.run(
        [sys.executable, "-B", "-m", "kernbench.cli", *command],  # -B: no cut .pyc
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    (line,) = run.stderr.splitlines()
    assert run.returncode == 1
    assert line.startswith("error: the run has ended, but its trace is cut: ")
    assert "File too large" in line
    if as_json:
        assert json.loads(run.stdout)["ops_by_kind"] == {
            "memory": 2,
            "unknown": 5,
            "gemm": 1,
        }
    else:
        assert "8 ops (2 memory, 1 gemm, 5 tile stages)" in run.stdout
        assert " ok " in run.stdout
    assert Trace.open(out).header["bench"] == "matmul"


@pytest.mark.slow
def test_ctrl_c_keeps_a_readable_trace_and_says_so(tmp_path):
    out = tmp_path / "out.msgpack"
    ours, theirs = pty.openpty()
    command = [
        "run",
        "matmul",
        "--set",
        "m=512",
        "k=512",
        "n=512",
        "tile=16",
        "--trace",
    ]
    run = subprocess.Popen(
        [sys.executable, "-m", "kernbench.cli", *command, str(out)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        preexec_fn=reset_signals,
    )
    os.close(theirs)
    seen = _read(ours, until=b"events/s")  # a line of progress: so it simulates
    run.send_signal(signal.SIGINT)
    seen += _read(ours)
    stdout, _ = run.communicate(timeout=100)
    assert run.returncode == 130
    assert b" ns simulated, " in seen
    assert b"interrupted; trace up to " in seen
    assert seen.rstrip().endswith(f"kernbench-tui {out}".encode())
    assert stdout == b""
    trace = Trace.open(out)
    assert [p.name for p in tmp_path.iterdir()] == ["out.msgpack"]
    assert (trace.complete, trace.end["ok"]) == (True, False)
    assert trace.end["error"] == "KeyboardInterrupt"
    assert len(trace.ops) > 0
    assert trace.check() == []


def _read(terminal, until=None):
    """What is written to a terminal until ``until`` comes, or it is closed; bounded."""
    seen = b""
    while until is None or until not in seen:
        ready, _, _ = select.select([terminal], [], [], 100)
        assert ready, f"nothing more after {seen!r}"
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # Linux: the other side is closed
            return seen
        if not piece:
            return seen
        seen += piece
    return seen


def test_progress_is_a_line_a_second_with_the_rate_of_its_phase(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    clock = iter([0.0, 0.5, 2.0, 2.5, 4.0, 4.0, 5.0])
    monkeypatch.setattr("kernbench.shell.options.time.monotonic", lambda: next(clock))
    show = terminal_progress()
    for count in (10, 40, 50):
        show("a", count, "events")
    for count in (0, 7, 9):
        show("b", count, "ops")
    lines = terminal.getvalue().replace("\033[K", "").split("\r")
    assert [line for line in lines if line] == [
        "a, 20 events/s",
        "b, 0 ops/s",
        "b, 4 ops/s",
    ]


def test_there_is_no_progress_in_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert terminal_progress() is None


def test_info_prints_a_whole_topology_to_start_from(tmp_path):
    text = kernbench("info", "--topology").output
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    assert load_spec(mine) == TopologySpec()

    def fields(section):
        return {
            k: fields(v) if isinstance(v, dict) else None for k, v in section.items()
        }

    def of_spec(section):
        names = getattr(section, "__dataclass_fields__", None)
        return names and {name: of_spec(getattr(section, name)) for name in names}

    assert fields(yaml.safe_load(text)) == of_spec(TopologySpec())


def test_info_describes_a_machine(tmp_path):
    assert "2 SIPs x 16 cubes x 8 PEs = 256 PEs" in kernbench("info").output
    mine = tmp_path / "mine.yaml"
    mine.write_text("system: {sips: {count: 1}}\n")
    assert "1 SIPs x 16" in kernbench("info", "--topology", str(mine)).output


@pytest.mark.parametrize(
    ("args", "code", "parts"),
    [
        (["run", "matmull"], 2, ["'matmull'", "did you mean matmul or"]),
        (["run", "matmul", "--set", "q=3"], 2, ["'q'", "valid: m, k, n"]),
        (["run", "matmul", "--set", "m=0"], 2, ["m=0", "at least 1"]),
        (["run", "matmul", "--set", "k=-4"], 2, ["k=-4", "at least 1"]),
        (["run", "matmul", "--set", "m=x"], 2, ["m=x", "int"]),
        (["run", "matmul", "--set", "m"], 2, ["'m'", "KEY=VALUE"]),
        (["run", "matmul", "--set", "pes=9"], 2, ["pes=9", "1 to 8"]),
        (["run", "matmul", "--set", "dtype=f15"], 2, ["f15", "f16"]),
        (["run", "matmul", "--set", "m=1", "k"], 2, ["unexpected extra argument (k)"]),
        (["run"], 2, ["Missing argument 'BENCH'", "--help"]),
        (["run", "matmul", "--sed", "3"], 2, ["No such option '--sed'", "--seed"]),
        (["runs"], 2, ["No such command 'runs'"]),
        (["--lst"], 2, ["error: No such option '--lst'; see kernbench --help"]),
        (["run", "matmul", "--topology", "nowhere.yaml"], 2, ["nowhere.yaml"]),
        (
            ["run", "matmul", "--spec", "clock=2"],
            2,
            ["--spec clock: unknown field", "clock_ghz"],
        ),
        (
            ["run", "matmul", "--spec", "count=2"],
            2,
            ["sips.count", "io.count", "more of it"],
        ),
        (
            ["run", "matmul", "--spec", "pe.clock_ghz=-1"],
            2,
            ["pe.clock_ghz: must be a number"],
        ),
        (
            ["run", "matmul", "--spec", "pe.clock_ghz=fast"],
            2,
            ["pe.clock_ghz: must", "'fast'"],
        ),
        (
            ["run", "matmul", "--spec", "pe.clock_ghz=[1]"],
            2,
            ["pe.clock_ghz=[1]", "one YAML"],
        ),
        (
            ["run", "matmul", "--spec", "pe.clock_ghz=a: :"],
            2,
            ["must be one YAML value"],
        ),
        (
            ["run", "matmul", "--spec", "pe.clock_ghz"],
            2,
            ["--spec 'pe.clock_ghz'", "KEY=VALUE"],
        ),
        (["run", "matmul", "--spec", "pe.clock_ghz=" + "[" * 5000], 2, ["one YAML"]),
        (
            ["run", "matmul", "--spec", "issue_cycles=0x" + "f" * 5000],
            2,
            ["issue_cycles: must be", "0xfff", "… (5,002 characters)"],
        ),
        (["run", "matmul", "--seed", "-1"], 2, ["seed -1: must be from 0 to 2^64 - 1"]),
        (["run", "matmul", "--seed", str(1 << 64)], 2, ["must be from 0 to 2^64 - 1"]),
        (["run", "matmul", "--verify", "--no-data"], 2, ["--no-data and --verify"]),
        (["run", "matmul", "--debug", "--no-data"], 2, ["--no-data and --debug"]),
        (["run", "nowhere.py"], 2, ["nowhere.py"]),
    ],
)
@pytest.mark.slow
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
    result = kernbench(
        "run", "matmul", *SMALL, "--trace", str(tmp_path / "no" / "out.msgpack")
    )
    lines = result.stderr.splitlines()
    assert (result.exit_code, len(lines)) == (2, 1)
    assert str(tmp_path / "no") in lines[0]


def test_list_names_every_bench_with_its_parameters():
    result = kernbench("list")
    assert "matmul" in result.output
    assert "m=256 k=256 n=256 dtype=f16 tile=64 pes=all" in result.output
    for name in SHIPPED:
        assert f"\n{name} " in "\n" + result.output

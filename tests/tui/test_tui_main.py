"""``kernbench-tui`` as a program: bad files, no terminal, scripts, and its imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import kernbench
from kernbench.errors import KernbenchError, KernelError
from kernbench.runtime_api import run_bench
from tui import __main__ as program
from tui.__main__ import demo_path, main, open_session, utf8_locale


def run(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=text)


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    root = Path(kernbench.__file__).parents[1]
    environ = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_bytes(b"not a trace at all" * 9), ""),
        (lambda path: path.write_bytes(b""), ""),
    ],
    ids=["missing", "directory", "other-file", "empty"],
)
def test_a_file_that_is_no_trace_ends_in_one_line(
    make, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.msgpack"
    make(path)
    result = run(path)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.slow
def test_the_whole_program_ends_the_same_way(tmp_path: Path) -> None:
    done = python("-m", "tui", tmp_path / "none")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_no_file_names_demo() -> None:
    result = run()
    assert result.exit_code == 2
    assert "--demo" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lst"], "No such option '--lst'; see"),
        (["--scrpt", "x"], "No such option '--scrpt'. Did you mean '--script'? See"),
        (["--op", "x"], "Invalid value for '--op': 'x' is not a valid integer; see"),
        (["a", "b"], "Got unexpected extra argument (b); see"),
    ],
)
def test_a_wrong_call_is_one_line_that_names_what_was_typed(
    arguments: list[str], said: str
) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="kernbench-tui")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"error: {said} kernbench-tui --help\n"


def test_an_op_that_is_not_there_is_an_error(trace_path: Path) -> None:
    result = run(trace_path, "--op", "152")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no op 152;")


def test_version() -> None:
    assert (
        run("--version").stdout == f"kernbench-tui, version {kernbench.__version__}\n"
    )


def test_a_script_prints_each_answer(trace_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("# a comment\n\n:goto 40\nroute   # its path\n")
    result = run(trace_path, "--script", script)
    assert result.exit_code == 0
    assert result.stdout.startswith("op 40 of 152")
    assert "hbm_ctrl" in result.stdout


def test_a_script_can_be_stdin(trace_path: Path) -> None:
    assert "op 7 of 152" in run(trace_path, "--script", "-", text="goto 7\n").stdout


def test_a_script_stops_at_the_first_error(trace_path: Path) -> None:
    result = run(trace_path, "--script", "-", text="goto 7\ngoto 999\ngoto 8\n")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no op 999")
    assert "op 7 of" in result.stdout
    assert "op 8 of" not in result.stdout


def test_a_failed_assertion_ends_a_script_with_its_line(trace_path: Path) -> None:
    lines = [
        "goto 7",
        "",
        ":assert kind=memory  # so",
        "assert none kind=memory  # not so",
        "goto 8",
    ]
    result = run(trace_path, "--script", "-", text="\n".join(lines))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].split() == ["ok", "kind=memory"]
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "error: assert none kind=memory: 16 ops do, the first is op 0;"
    )
    assert line.endswith("; line 4: assert none kind=memory")


def test_a_comment_in_a_script_needs_a_space(trace_path: Path) -> None:
    lines = [
        "goto 40",
        "#goto 30",
        "assert 'composite #16' in tiles  # this one",
        "assert op=40 #",
    ]
    result = run(trace_path, "--script", "-", text="\n".join(lines))
    assert result.stdout.count("\nok ") == 2


def test_a_script_that_is_not_there_is_an_error(
    trace_path: Path, tmp_path: Path
) -> None:
    script = tmp_path / "none"
    result = run(trace_path, "--script", script)
    assert result.exit_code == 2
    why = "cannot be read: No such file or directory"
    assert result.stderr == f"error: {script}: {why}\n"


def test_demo_takes_no_other_trace(trace_path: Path) -> None:
    result = run(trace_path, "--demo")
    assert result.exit_code == 2
    assert "--demo opens a bundled trace" in result.stderr


@pytest.mark.slow
def test_demo_is_the_bundled_trace(trace_path: Path) -> None:
    assert demo_path() == trace_path
    assert "bench      matmul" in run("--demo").stdout


def test_demo_is_found_in_the_package_of_a_wheel(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "kernbench"
    (package / "traces").mkdir(parents=True)
    monkeypatch.setattr(program.kernbench, "__file__", str(package / "__init__.py"))
    with pytest.raises(KernbenchError, match="record one"):
        demo_path()
    (package / "traces" / "matmul.msgpack").write_bytes(b"x")
    assert demo_path() == package / "traces" / "matmul.msgpack"


def test_where_one_begins_is_no_jump_that_could_be_undone(trace_path):
    session = open_session(trace_path, None)
    begins = session.cursor
    assert begins > 0
    session.back()
    assert session.cursor == begins


def test_starts_at_the_first_op_of_the_launch(trace_path: Path) -> None:
    session = open_session(trace_path, None)
    launched, _ = session.launch_window()
    assert session.time >= launched
    assert session.row(session.cursor - 1).t_start < launched


FAILS_ON_ONE_PE = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, large, tl):
    if tl.program_id(0) == 3:
        tl.load(large)
        raise ValueError("one PE is enough")
    for _ in range(20):
        tl.load(x)


@bench(name="fails", description="")
def run(torch):
    one = DPPolicy(num_cubes=1)
    x = torch.zeros((64,), "f32", dp=one, name="x")
    large = torch.zeros((64, 1024), "f32", dp=one, name="large")
    torch.launch("fails", kernel, x, large)
"""


def test_starts_at_the_last_op_of_the_pe_where_an_error_ended_the_run(
    tmp_path: Path,
) -> None:
    file = tmp_path / "fails.py"
    file.write_text(FAILS_ON_ONE_PE)
    with pytest.raises(KernelError, match="one PE is enough"):
        run_bench(str(file), trace=tmp_path / "t.msgpack")
    session = open_session(tmp_path / "t.msgpack", None)
    assert session.cursor < len(session) - 1
    row = session.row(session.cursor)
    assert (row.name, row.component) == ("dma_read", "sip0.cube0.pe3.pe_dma")
    session.back()
    assert session.row(session.cursor) == row


def test_starts_at_the_last_op_if_an_error_names_no_place(tmp_path: Path) -> None:
    with pytest.raises(KernbenchError, match="max"):
        run_bench("matmul", max_ns=8000.0, trace=tmp_path / "t.msgpack")
    session = open_session(tmp_path / "t.msgpack", None)
    assert session.cursor == len(session) - 1


@pytest.mark.parametrize(
    ("environ", "utf8"),
    [
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "en_US.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "de_DE.UTF-8", "LANG": "C"}, True),
        ({}, False),
    ],
)
def test_glyphs_follow_the_locale(environ: dict[str, str], utf8: bool) -> None:
    assert utf8_locale(environ) is utf8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "never"),
    [
        (
            "kernbench.replay.commands, kernbench.trace",
            ("textual", "simpy", "greenlet"),
        ),
        ("tui.app, tui.__main__", ("simpy", "greenlet")),
        ("tui.__main__", ("textual", "numpy")),
        ("tui.guardian", ("click", "asyncio", "importlib.metadata", "numpy")),
        ("kernbench.cli", ("textual", "numpy", "simpy")),
    ],
)
def test_imports_stay_apart(imports: str, never: tuple[str, ...]) -> None:
    code = f"import sys, {imports}; print([n for n in {never!r} if n in sys.modules])"
    done = python("-c", code)
    assert done.stdout == "[]\n"
    assert done.stderr == ""

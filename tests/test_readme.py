"""What the README shows is run here, in a shell as a user would; what it lists is
complete.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench import docs
from kernbench.benches import SHIPPED
from kernbench.cli import main, run
from kernbench.replay.commands import table_of_topics

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN = docs.page("run")
COMMANDS = docs.page("commands")
BLOCKS = [
    "\n".join(line[4:] for line in block.splitlines())
    for block in re.findall(
        r"(?:^(?:    .*)?\n)+", README + RUN + COMMANDS, re.MULTILINE
    )
    if block.strip()
]


def block(start):
    """The first indented block that begins so."""
    found, *_ = (text.strip() for text in BLOCKS if text.strip().startswith(start))
    return found


@pytest.fixture
def shell(tmp_path):
    """Runs a command line in an empty directory with ``kernbench`` on the path; what it
    prints.
    """

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


@pytest.fixture
def at_traces(tmp_path, monkeypatch):
    """An empty directory but for ``traces``; the bundled ones."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)


def section(title):
    """The text under a heading, to the next of its level."""
    return re.split(r"^## ", README.partition(f"## {title}\n")[2], flags=re.MULTILINE)[
        0
    ]


def commands_of(page):
    """The lines of a page's blocks that run ``kernbench``."""
    return re.findall(r"^    (kernbench .*)$", page, re.MULTILINE)


def quotes():
    """(command, what it prints as quoted) of the faults that are found."""
    text = "\n".join(line[4:] for line in section("Three faults, found").splitlines()
        if line.startswith("    "))  # fmt: skip
    for part in text.split("$ kernbench ")[1:]:
        command, _, printed = part.partition("\n")
        yield command, f"{printed.rstrip()}\n"


def kernbench(line):
    """What a command line prints, in this process."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert isinstance(result.exception, SystemExit | None)
    return result


@pytest.mark.parametrize(("line", "printed"), quotes())
def test_a_fault_is_found_as_it_is_shown(at_traces, line, printed):
    pattern = re.escape(printed).replace("…\\\n", r"(?:.*\n)*")
    assert re.fullmatch(pattern, kernbench(line).stdout)


def test_each_fault_is_found_in_less_than_ten_lines():
    parts = section("Three faults, found").split("\n**")[1:]
    assert len(parts) == 3
    assert all(sum(bool(line) for line in part.splitlines()) < 10 for part in parts)


@pytest.mark.slow
def test_what_can_be_asked_without_a_screen_is_answered(at_traces):
    lines = commands_of(COMMANDS)
    assert len(lines) == 14
    for line in lines:
        result = kernbench(line.removeprefix("kernbench "))
        assert (result.exit_code, result.stderr) == (0, ""), line
    assert json.loads(Path("out.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_a_trace_is_run_again_as_it_is_shown(at_traces):
    lines = [line for line in commands_of(RUN) if "rerun" in line]
    assert len(lines) == 2
    for line in lines:
        result = kernbench(line.removeprefix("kernbench "))
        assert (result.exit_code, result.stderr) == (0, ""), line
    assert json.loads(result.stdout)["changed"] == ["pe.clock_ghz=2.0"]


@pytest.mark.slow
def test_an_investigation_is_a_script(at_traces, shell):
    Path("check.kb").write_text(block("assert ok verify"))
    printed = shell("kernbench-tui traces/matmul.msgpack --script check.kb")
    assert "op 19 of 152\n" in printed
    assert "\nsip0.cube0.pe3, 7.900us to 8.492us\n" in printed


def test_the_table_of_questions_is_that_of_the_commands():
    table = COMMANDS.partition("| question")[2].partition("\n\n")[0]
    assert f"| question{table}" == table_of_topics()


@pytest.mark.slow
def test_the_first_kernel_runs_is_verified_and_leaves_a_trace(shell, tmp_path):
    text = block("from kernbench.benches import bench")
    assert len(text.splitlines()) <= 15
    (tmp_path / "my_bench.py").write_text(text)
    printed = shell("kernbench run my_bench.py --trace out.msgpack")
    assert re.search(r"^y +f32 +64 +ok ", printed, re.MULTILINE)
    assert printed.endswith("trace: kernbench-tui out.msgpack\n")
    assert "my_bench.py:" in shell("kernbench trace source out.msgpack")


def test_it_is_short_and_names_every_page():
    assert len(README.splitlines()) <= 150
    table = section("More")
    assert [name for name in docs.pages() if f"`{name}`" not in table] == []


@pytest.mark.slow
def test_what_is_asked_of_the_first_trace_is_answered(shell):
    shell(block("kernbench run matmul --trace").splitlines()[0])
    lines = commands_of(section("In the debugger"))
    assert len(lines) == 3
    for line in lines:
        assert shell(line)


@pytest.mark.slow
def test_the_first_commands_record_a_matmul(shell):
    first, second = block("kernbench run matmul --trace").splitlines()
    assert second in shell(first)


@pytest.mark.slow
def test_a_sweep_is_a_shell_loop_of_json(shell):
    lines = [json.loads(line) for line in shell(block("for ghz in")).splitlines()]
    shown = block('{"bench"')
    assert [line["spec"] for line in lines] == [{"clock_ghz": ghz} for ghz in (1, 2, 4)]
    ends = [line["end_ns"] for line in lines]
    assert ends == sorted(ends, reverse=True)
    nested = {"m", "pes", "clock_ghz", "tensor", "mismatches"}
    assert set(lines[0]) == set(re.findall(r'"(\w+)": ', shown)) - nested
    for key in ("end_ns", "ops", "tile_stages"):
        value = float(re.search(rf'"{key}": ([0-9.]+)', shown)[1])
        assert value == round(lines[0][key], 2)


@pytest.mark.slow
def test_the_machine_to_start_from_is_a_topology(shell):
    shell("kernbench info --topology > my_machine.yaml")
    assert shell("kernbench info --topology my_machine.yaml") == shell("kernbench info")


def test_every_option_of_run_is_explained():
    options = {
        name for option in run.params for name in option.opts if name.startswith("--")
    }
    assert {name for name in options if name not in RUN} == set()


def test_the_benches_to_begin_with_are_there():
    table = RUN.partition("| bench |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    listed = [
        name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert len(listed) > 5
    assert set(listed) <= set(SHIPPED)

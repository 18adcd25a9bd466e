"""What a shell sees: exit codes, help that begins with an example, hints, completion.

An exit code is 1 where something ran and the answer is bad, 2 where nothing ran or
could be read, as of grep and diff.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kernbench.benches import FAULTS, SHIPPED, SLOW, TUTORIALS
from kernbench.cli import main
from kernbench.replay.command_help import WORDS, shell_examples
from kernbench.replay.commands import listed
from kernbench.replay.parsing import arguments_of
from kernbench.replay.time.pieces import KIND_MEANINGS, KINDS
from tui.__main__ import main as tui

TRACES = Path(__file__).parent.parent / "traces"
MATMUL = str(TRACES / "matmul.msgpack")
SMALL = ["--set", "m=32", "k=32", "n=32", "pes=1"]


def kernbench(*args):
    called = list(map(str, args))
    return CliRunner().invoke(main, called, prog_name="kernbench")


@pytest.fixture
def at_traces(tmp_path, monkeypatch):
    """An empty folder but for ``traces``: the bundled ones."""
    (tmp_path / "traces").symlink_to(TRACES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- exit codes ------------------------------------------------------------------------

BAD_ANSWERS = {
    "wrong data": ["run", "fault_overflow"],
    "a kernel that failed": ["run", "fault_never_written"],
    "a deadlock": ["run", "fault_ring_by_name"],
    "a limit of time": ["run", "matmul", *SMALL, "--max-ns", "10"],
    "a limit of ops": ["run", "matmul", *SMALL, "--max-ops", "1"],
    "hazards": ["trace", "hazards", TRACES / "fault_missing_wait.msgpack"],
    "a verdict": ["trace", "verify", TRACES / "fault_overflow.msgpack"],
    "traces that differ": ["trace", "compare", MATMUL, TRACES / "mlp_tp.msgpack"],
    "an assertion": ["trace", "assert", MATMUL, "none kind=gemm"],
}
NO_ANSWERS = {
    "a file that is not there": ["trace", "verify", "nowhere.msgpack"],
    "a file that is no trace": ["trace", "verify", __file__],
    "a trace that holds too little": ["trace", "verify", "part.msgpack"],
    "a command that is none": ["trace", "verfy", MATMUL],
    "an option that is none": ["run", "matmul", "--sed", "3"],
    "a bench that is none": ["run", "matmull"],
    "a parameter that is none": ["run", "matmul", "--set", "mm=3"],
    "a field that is none": ["run", "matmul", "--spec", "pe.clok_ghz=3"],
    "a value that a field cannot have": ["run", "matmul", "--spec", "clock_ghz=-1"],
    "a topology that is not there": ["run", "matmul", "--topology", "no.yaml"],
    "an expression that is none": ["trace", "ops", MATMUL, "--where", "kin=gemm"],
    "a trace that cannot be written": ["run", "matmul", *SMALL, "--trace", "no/t"],
    "a trace that cannot be run again": ["rerun", "part.msgpack", "-o", "new.msgpack"],
    "an export that cannot be written": ["trace", "export", MATMUL, "csv", "no/dir"],
    "a sweep without results": ["sweep", "show", "nowhere"],
    "a page that is none": ["doc", "tll"],
    "a table that is none": ["validate", "gem"],
}


@pytest.mark.parametrize("what", BAD_ANSWERS)
@pytest.mark.slow
def test_what_ran_with_a_bad_answer_exits_1(what):
    assert kernbench(*BAD_ANSWERS[what]).exit_code == 1


@pytest.mark.parametrize("what", NO_ANSWERS)
@pytest.mark.slow
def test_what_did_not_run_or_cannot_be_read_exits_2(what, at_traces):
    kernbench("trace", "cut", MATMUL, "part.msgpack", "--from", "8us")
    result = kernbench(*NO_ANSWERS[what])
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"error: .*\n", result.stderr)


def test_json_of_a_kernel_that_failed_has_the_error_and_what_it_said(tmp_path):
    bench = tmp_path / "says.py"
    bench.write_text(
        "from kernbench.benches import bench\n"
        "def kernel(x, tl):\n"
        "    tl.device_print('before')\n"
        "    tl.device_assert(tl.load(x)[0] == 3, 'three')\n"
        "@bench(name='says', description='')\n"
        "def run(torch):\n"
        "    torch.launch('k', kernel, torch.zeros((2,), 'f32'))\n"
    )
    result = kernbench("run", bench, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["ok"]) == (1, False)
    assert "device_assert failed: three" in said["error"]
    assert [text["message"] for text in said["texts"]] == ["before", "three"]
    assert [text["level"] for text in said["texts"]] == ["print", "assert"]


# -- help ------------------------------------------------------------------------------


def commands_of(group, path=()):
    """Every command below a group that is no group itself, with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield (*path, name), command


PROGRAMS = dict(commands_of(main))


@pytest.mark.parametrize("words", PROGRAMS, ids=" ".join)
def test_help_of_a_program_begins_with_an_example_that_can_be_called(words):
    result = kernbench(*words, "--help")
    first, example, *_ = result.stdout.splitlines()
    assert first == "For example:"
    program, *args = shlex.split(example.partition(" >")[0])
    assert program == "kernbench"
    assert tuple(args[: len(words)]) == words
    command = PROGRAMS[words]
    command.make_context("x", args[len(words) :], resilient_parsing=False).close()


@pytest.mark.parametrize("command", listed(), ids=lambda command: command.name)
def test_help_of_a_question_begins_with_its_examples(command):
    lines = kernbench("trace", command.name, "--help").stdout.splitlines()
    assert lines[0] == "For example:"
    examples = shell_examples(command)
    assert [line.strip() for line in lines[1 : 1 + len(examples)]] == examples
    assert lines[len(examples) + 2].startswith(f"Usage: kernbench trace {command.name}")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.slow if "--prove" in line else ())
        for command in listed()
        for line in shell_examples(command)
    ],
)
@pytest.mark.slow
def test_an_example_finds_something(line, at_traces):
    shutil.copy(MATMUL, "other.msgpack")
    result = typed(line)
    found_hazards = "trace hazards " in line
    assert result.exit_code == found_hazards, result.stderr
    assert result.stdout
    if "'delete 1'" not in line:  # it leaves no stop
        assert NOTHING.search(result.stdout) is None, result.stdout


LEADS_ELSEWHERE = [command for command in listed() if command.stayed]


@pytest.mark.parametrize("command", LEADS_ELSEWHERE, ids=lambda command: command.name)
def test_an_example_of_a_move_leads_to_another_op(command, at_traces):
    for line in shell_examples(command):
        if command.moves_cursor:
            before = re.search(r"--op (\d+)|'goto (\d+)'", line)
            after = re.findall(r"^op (\d+) of", typed(line).stdout, re.MULTILINE)[-1]
            assert after not in before.groups()


NOTHING = re.compile(
    r"\A(no|none|nothing|0) |^(no stop|no mark|none found)"
    r"|\bat 0 ops|before the first|no further",
    re.MULTILINE,
)
"""What an answer says that has found nothing."""


def typed(line):
    """What a line of a shell does: of kernbench, or of a script for the debugger."""
    made, _, called = line.rpartition(" | ")
    program, *args = shlex.split(called)
    if program == "kernbench":
        return kernbench(*args)
    assert program == "kernbench-tui"
    _, _, *lines = shlex.split(made)
    return CliRunner().invoke(tui, args, input="\n".join(lines))


def test_help_of_blame_is_about_blame_only():
    text = kernbench("trace", "blame", "--help").stdout
    assert text.index("Usage") < text.index("The ops behind an element")
    assert len(text.splitlines()) < 30
    assert "--plugin" not in text
    assert "`ops`" not in text


def test_help_of_stalls_explains_every_category():
    assert set(KIND_MEANINGS) == set(KINDS)
    text = " ".join(kernbench("trace", "stalls", "--help").stdout.split())
    for kind, what in KIND_MEANINGS.items():
        assert f" {kind} {what}" in text


def test_what_assert_takes_is_no_word_to_be_typed_and_is_explained():
    """It was LINE, which reads as if that were to be typed."""
    text = " ".join(kernbench("trace", "assert", "--help").stdout.split())
    assert "assert FILE CONDITION" in text
    assert "CONDITION an EXPR that this op fits; none EXPR, some EXPR" in text
    assert """'"matmul.py:22" in source'""" in text


def test_words_of_a_usage_that_are_no_plain_names_are_explained():
    plain = {"N", "COUNT", "NAME", "FILE", "OUT", "FORMAT", "STOP", "BAD"}
    for command in listed():
        for argument in arguments_of(command.args):
            for word in argument.reader.alternatives:
                assert not word.isupper() or word in WORDS or word in plain, word


# -- hints -----------------------------------------------------------------------------

HINTS = {
    "a bench": (["run", "matmull"], "did you mean matmul"),
    "a program": (["trce"], "Did you mean 'trace'?"),
    "an option": (["run", "matmul", "--sed", "3"], "--seed"),
    "a parameter": (["run", "matmul", "--set", "tiel=3"], "did you mean tile?"),
    "a field": (["run", "matmul", "--spec", "pe.clok_ghz=2"], "pe.clock_ghz"),
    "a command": (["trace", "stals", MATMUL], "did you mean stalls?"),
    "its option": (["trace", "ops", MATMUL, "--wher", "op=3"], "did you mean --where"),
    "a field of an expression": (
        ["trace", "ops", MATMUL, "--where", "kin=gemm"],
        "did you mean kind?",
    ),
    "a kind": (["trace", "ops", MATMUL, "--where", "kind=gem"], "did you mean gemm?"),
    "a component": (
        ["trace", "find", MATMUL, "comp=sip0.cube0.pe0.pe_gem", "--op", "0"],
        "did you mean sip0.cube0.pe0.pe_gemm",
    ),
    "a page": (["doc", "tutoral"], "did you mean tutorial?"),
    "a table": (["validate", "gem"], "did you mean gemm?"),
    "a trace": (["trace", "info", f"{TRACES}/matmull.msgpack"], "matmul.msgpack?"),
}


@pytest.mark.parametrize("what", HINTS)
def test_a_mistyped_name_gets_a_hint(what):
    args, hint = HINTS[what]
    result = kernbench(*args)
    assert result.exit_code == 2
    assert hint in result.stderr


def test_an_option_that_is_a_program_is_told_to_be_one():
    """It was taken for a mistyped --set."""
    error = kernbench("run", "--list").stderr
    assert "no option --list, but there is kernbench list" in error
    assert "--set" not in error


def test_a_trace_in_front_of_what_is_asked_is_told_to_stand_behind_it():
    """It was the name of a command, and a FILE was missing."""
    for words, wanted in [((), "info"), (("diagnose",), "diagnose")]:
        result = kernbench("trace", MATMUL, *words)
        assert result.exit_code == 2
        assert f"as in kernbench trace {wanted} {MATMUL};" in result.stderr


def test_info_of_a_trace_leads_to_that_command():
    """It was an unexpected extra argument."""
    result = kernbench("info", MATMUL)
    assert result.exit_code == 2
    assert f"it is kernbench trace info {MATMUL}" in result.stderr


def test_an_option_that_is_like_none_gets_no_hint():
    """Its two dashes made --json of it."""
    assert "you mean" not in kernbench("run", "matmul", "--lon").stderr


def test_a_value_that_no_op_has_is_told_from_one_that_does_not_fit():
    asked = ["trace", "ops", MATMUL, "--where"]
    missing = kernbench(*asked, "name=TileToken/GEM", "--width", "200").stdout
    assert "no name is 'TileToken/GEM'; did you mean TileToken/GEMM" in missing
    assert "did you mean" not in kernbench(*asked, "name=gemm_f16 and op=0").stdout


def test_an_option_without_its_value_points_to_the_help_of_its_command():
    result = kernbench("run", "matmul", "--trace")
    assert result.stderr.endswith("requires an argument; see kernbench run --help\n")


def test_a_file_that_is_not_there_is_not_said_to_be_a_bad_trace():
    error = kernbench("trace", "info", "nowhere/t.msgpack").stderr
    assert error.startswith("error: nowhere/t.msgpack: No such file or directory; ")
    assert "offset" not in error


# -- answers ---------------------------------------------------------------------------


def test_times_of_ops_have_their_unit():
    head, *_ = kernbench("trace", "ops", MATMUL, "--limit", "1").stdout.splitlines()
    assert head.split() == ["op", "start_ns", "end_ns", "bytes", "name", "component"]


@pytest.mark.slow
def test_compare_lists_by_what_was_saved_and_shows_whole_names(tmp_path):
    fast = tmp_path / "fast.msgpack"
    args = ["--set", "m=128", "k=128", "n=128", "pes=8", "--spec", "pe.clock_ghz=2"]
    assert kernbench("run", "matmul", *args, "--trace", fast).exit_code == 0
    text = kernbench("trace", "compare", MATMUL, fast).stdout
    head, *rows = text[text.index("kind ") :].splitlines()
    assert "detail" not in head
    cells = [row.split() for row in rows]
    saved = [float(row[3]) - float(row[4]) for row in cells]
    assert saved == sorted(saved, reverse=True)
    assert saved[0] > saved[-1]
    for row in cells:
        assert re.fullmatch(r"(kernbench|…)(/\w+)*/matmul\.py:\d+", row[-1])


INTERRUPTED = """\
import os, signal
from kernbench.benches import bench

@bench(name="ends", description="is interrupted")
def run(torch):
    torch.zeros((8,), "f32").numpy()
    os.kill(os.getpid(), signal.SIGINT)
    torch.zeros((8,), "f32").numpy()
"""


@pytest.mark.slow
def test_info_of_an_interrupted_run_does_not_say_that_it_is_complete(tmp_path):
    bench = tmp_path / "ends.py"
    bench.write_text(INTERRUPTED)
    path = tmp_path / "t.msgpack"
    done = subprocess.run(
        [sys.executable, "-m", "kernbench.cli", "run", bench, "--trace", path],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 130
    text = kernbench("trace", "info", path).stdout
    assert "complete" not in text
    assert "KeyboardInterrupt" in text
    assert "recording  goes up to where the run ended with the error above" in text


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.msgpack")), ids=lambda p: p.stem)
def test_info_says_complete_of_no_run_with_an_error(path):
    text = kernbench("trace", "info", path).stdout
    has_error = "\nerror      no\n" not in text
    assert has_error == (json.loads(
        kernbench("trace", "info", path, "--json").stdout
    )["error"] != "")  # fmt: skip
    assert ("recording  has all of the run" in text) == (not has_error)


def test_list_as_json_has_every_bench_with_its_parameters():
    rows = json.loads(kernbench("list", "--json").stdout)["benches"]
    benches = {*SHIPPED, *TUTORIALS, *SLOW, *FAULTS}
    assert benches == {row["name"] for row in rows}
    (matmul,) = (row for row in rows if row["name"] == "matmul")
    assert matmul["params"]["m"] == 256
    assert matmul["description"]
    assert matmul["kind"] == "bench"


def test_info_as_json_has_what_the_text_has():
    data = json.loads(kernbench("info", "--json").stdout)
    text = " ".join(kernbench("info").stdout.split())
    assert set(data["benches"]) == set(SHIPPED)
    for title in ("machine", "HBM", "configs"):
        assert f"{title} {data[title]}" in text


# -- completion ------------------------------------------------------------------------


def completed(*words):
    """What a shell is offered for the last of some words."""
    env = {
        "_KERNBENCH_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["kernbench", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(main, prog_name="kernbench", env=os.environ | env)
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


COMPLETED = {
    "programs": (["r"], ["record", "rerun", "run"]),
    "benches": (["run", "matm"], ["matmul", "matmul_ref"]),
    "parameters": (["run", "matmul", "--set", "t"], ["tile="]),
    "further parameters": (["run", "matmul", "--set", "m=3", "t"], ["tile="]),
    "fields": (["run", "matmul", "--spec", "pe.clock"], ["pe.clock_ghz="]),
    "commands of a trace": (["trace", "stal"], ["stalls"]),
    "tensors of a trace": (["trace", "memory", MATMUL, ""], ["a", "b", "c"]),
    "PEs of a trace": (
        ["trace", "stalls", MATMUL, "sip0.cube0.pe3"],
        ["sip0.cube0.pe3"],
    ),
    "options of a command": (["trace", "ops", MATMUL, "--li"], ["--limit"]),
    "pages": (["doc", "tr"], ["trace-format"]),
    "tables": (["validate", "ge"], ["gemm"]),
}


@pytest.mark.parametrize("what", COMPLETED)
def test_a_word_is_completed(what):
    words, offered = COMPLETED[what]
    assert completed(*words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_a_shell_reads(shell):
    script = kernbench("completion", shell).stdout
    assert "_KERNBENCH_COMPLETE" in script
    assert f"{shell}_complete" in script


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_after_it_has_read_the_script(tmp_path):
    script = tmp_path / "complete.sh"
    script.write_text(kernbench("completion", "bash").stdout)
    asks = (
        f"source {script}; COMP_WORDS=(kernbench run matm); COMP_CWORD=2; "
        '_kernbench_completion kernbench matm run; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", asks],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["matmul", "matmul_ref"]

"""Whatever a trace, a file's name or a bench says, a terminal is only shown text."""

import csv
import json
import os
import pty
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile import HOSTILE, HOSTILE_NAME, WORDS, harm_in, harm_on_terminal, hostile
from pace import some_in_ci

from kernbench.cli import main
from kernbench.replay.answers import Source
from kernbench.replay.commands import listed
from kernbench.replay.text import as_text

TRACES = Path(__file__).parents[1] / "traces"
PLACE = "hbm 0x0:64"
ARGUMENTS = {
    "goto": "2",
    "t": "100ns",
    "to-line": "12",
    "mark": "a",
    "find": "kind=memory",
    "rfind": "kind=memory",
    "break": "kind=memory",
    "watch": PLACE,
    "catch": "hazards",
    "delete": "1",
    "assert": "dur > 1ms",
    "memory": PLACE,
    "history": PLACE,
    "blame": PLACE,
    "who-wrote": PLACE,
    "who-reads": PLACE,
}
NAMES = [command.name for command in listed()]
WRITES = {"cut", "export"}

BENCH = """
from kernbench.runtime_api.registry import bench
HOSTILE = {hostile!r}

class Rude(Exception):
    def __str__(self):
        return HOSTILE

def kernel(x_ptr, raises, tl):
    x = tl.load(x_ptr, (8,), "f32")
    tl.device_print(HOSTILE)
    if raises:
        raise Rude

@bench(name="rude" + HOSTILE, description=HOSTILE)
def run(torch, raises: int = 0, names: int = 0):
    name = HOSTILE if names else "x"
    x = torch.tensor([0] * 8, dtype="f32", name=name)
    torch.launch(HOSTILE, kernel, x, raises)
    torch.expect(x, [1] * 8)
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory, request):
    """One trace of which all texts are hostile, and one with the program's words."""
    folder = tmp_path_factory.mktemp("hostile")
    data = (TRACES / "fault_overflow.msgpack").read_bytes()
    (folder / "all.msgpack").write_bytes(hostile(data))
    (folder / "most.msgpack").write_bytes(hostile(data, WORDS))
    return folder


def kernbench(*args):
    return CliRunner().invoke(main, list(map(str, args)))


def arguments_of(name, file):
    if name == "compare":
        return [file]
    return ARGUMENTS.get(name, "").split()


def assert_harmless(result):
    assert harm_in(result.output) == []
    assert isinstance(result.exception, SystemExit | None), result.exception


FORMS = [*product(["most", "all"], ["--width=4000", "--json"])]


def each_in_half_of_the_forms():
    """(spoiled, format, names): every command with a text and as JSON, and of both
    traces.
    """
    halves = (NAMES[::2], NAMES[1::2])
    for (spoiled, format), half in zip(FORMS, (0, 1, 1, 0), strict=True):
        yield spoiled, format, halves[half]


@pytest.mark.slow
@pytest.mark.parametrize(("spoiled", "format", "names"), each_in_half_of_the_forms())
def test_an_answer_of_a_command_has_nothing_hidden(
    trace, spoiled, format, names
) -> None:
    check_nothing_hidden(trace, spoiled, format, names)


@pytest.mark.soak
@pytest.mark.parametrize(("spoiled", "format"), FORMS)
def test_no_answer_of_a_command_has_anything_hidden(trace, spoiled, format) -> None:
    check_nothing_hidden(trace, spoiled, format, NAMES)


def check_nothing_hidden(trace, spoiled, format, names) -> None:
    file = trace / f"{spoiled}.msgpack"
    for name in names:
        if name not in WRITES:
            words = arguments_of(name, file)
            assert_harmless(kernbench("trace", name, file, *words, format))


def test_what_is_hidden_is_shown(trace) -> None:
    shown = kernbench("trace", "op", trace / "most.msgpack", "--width", 4000).output
    assert r"\x1b]52;c;ZXZpbA==\x07" in shown
    assert r"\u202eeteled" in shown


def test_no_text_forges_a_line(trace) -> None:
    sound = kernbench("trace", "op", TRACES / "fault_overflow.msgpack")
    shown = kernbench("trace", "op", trace / "most.msgpack", "--width", 4000)
    assert shown.output.count("\n") == sound.output.count("\n")


def test_tabs_of_a_source_are_blanks() -> None:
    source = Source(0, "mm.py", 1, "kernel", ("\tx = 1",))
    assert as_text(source).splitlines()[1] == ">    1          x = 1"


def test_json_has_the_texts_as_they_are(trace) -> None:
    data = json.loads(kernbench("trace", "op", trace / "most.msgpack", "--json").output)
    assert data["row"]["component"].endswith(HOSTILE)


def test_csv_has_the_texts_as_they_are(trace, tmp_path) -> None:
    out = tmp_path / "tables"
    assert_harmless(kernbench("trace", "export", trace / "most.msgpack", "csv", out))
    with open(out / "ops.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["component"].endswith(HOSTILE) for row in rows)


def test_events_for_perfetto_are_escaped(trace, tmp_path) -> None:
    out = tmp_path / "events.json"
    file = trace / "most.msgpack"
    assert_harmless(kernbench("trace", "export", file, "perfetto", out))
    text = out.read_text(encoding="utf-8")
    assert not set(harm_in(text)) - {"\x7f"}
    about = json.loads(text)["otherData"]
    assert about["bench"].endswith(HOSTILE)


# -- names and errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("trace", "info", HOSTILE_NAME),
        ("trace", HOSTILE_NAME, TRACES / "matmul.msgpack"),
        ("trace", "find", TRACES / "matmul.msgpack", HOSTILE),
        ("run", HOSTILE_NAME),
        ("run", "matmul", "--set", f"{HOSTILE}=1"),
        ("run", "matmul", "--topology", HOSTILE_NAME),
        ("info", "--topology", HOSTILE_NAME),
        ("doc", HOSTILE),
        (HOSTILE,),
        (f"--{HOSTILE}",),
        ("trace", "info", f"--{HOSTILE}"),
    ],
)
def test_an_error_shows_what_was_given(args) -> None:
    result = kernbench(*args)
    assert result.exit_code in (1, 2)
    assert_harmless(result)


def test_an_error_of_a_topology_shows_what_the_file_says(tmp_path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(json.dumps({HOSTILE: 1}), encoding="utf-8")
    result = kernbench("info", "--topology", path)
    assert result.exit_code == 2
    assert_harmless(result)


@pytest.fixture
def bench(tmp_path):
    """A bench that names, prints and raises what is hostile."""
    path = tmp_path / "rude.py"
    path.write_text(BENCH.format(hostile=HOSTILE), encoding="utf-8")
    return path


@pytest.mark.slow
def test_what_a_bench_says_is_shown(bench, tmp_path) -> None:
    trace = tmp_path / "rude.msgpack"
    result = kernbench("run", bench, "--trace", trace)
    assert result.exit_code == 1
    assert_harmless(result)
    for command in ("op", "lines", "diff"):
        assert_harmless(kernbench("trace", command, trace))
    info = kernbench("trace", "info", trace)
    assert_harmless(info)
    assert r"rude\x1b]52;c;ZXZpbA==\x07" in info.output


def test_what_a_kernel_raises_is_shown(bench) -> None:
    result = kernbench("run", bench, "--set", "raises=1")
    assert result.exit_code == 1
    assert_harmless(result)
    assert r"\x1b]52;c;ZXZpbA==\x07" in result.output


def test_a_name_of_a_tensor_that_is_refused_is_shown(bench) -> None:
    result = kernbench("run", bench, "--set", "names=1")
    assert result.exit_code == 2
    assert_harmless(result)
    assert r"tensor name '\x1b]52;c;ZXZpbA==\x07" in result.output


@pytest.mark.slow
def test_a_traceback_is_shown(bench) -> None:
    call = ["--traceback", "run", str(bench), "--set", "raises=1"]
    command = [sys.executable, "-m", "kernbench.cli", *call]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert harm_in(done.stdout + done.stderr) == []
    assert r"\x1b]52;c;ZXZpbA==\x07" in done.stderr


# -- on a terminal ---------------------------------------------------------------------


def written_to_terminal(command):
    """What a program writes whose stdout and stderr are a terminal."""
    outer, inner = pty.openpty()
    with subprocess.Popen(command, stdout=inner, stderr=inner, stdin=inner) as program:
        os.close(inner)
        written = b""
        try:
            while data := os.read(outer, 1 << 16):
                written += data
        except OSError:  # the program has ended
            pass
        program.wait(60)
    os.close(outer)
    return written


SHARE = re.compile(rb"\r([a-z-]+ \d+%)?\x1b\[K\r?")
"""How much is done, as a command that takes long writes and wipes it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", some_in_ci(NAMES, 8))
def test_a_terminal_is_shown_text_only(trace, name, tmp_path) -> None:
    file = trace / "most.msgpack"
    args = arguments_of(name, file)
    if name == "cut":
        args = [tmp_path / HOSTILE_NAME]
    elif name == "export":
        args = ["csv", tmp_path / "tables"]
    words = map(str, ["trace", name, file, *args])
    written = written_to_terminal([sys.executable, "-m", "kernbench.cli", *words])
    assert written
    text = SHARE.sub(b"", written)
    assert harm_on_terminal(text) == []

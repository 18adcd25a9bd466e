"""Tables and texts read well at any width: no number looks like another kind, no line
is lost.
"""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernbench.replay import ReplaySession
from kernbench.replay.answers import Info
from kernbench.replay.commands import help_of
from kernbench.replay.text import as_text, command_lines, count_text, table, texts_apart
from kernbench.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"


@dataclass(frozen=True)
class Row:
    addr: int
    nbytes: float
    rows: int | None
    site: str


ROWS = [
    Row(64, 40960.0, 3_000_000, "kernbench/benches/matmul.py:35"),
    Row(0x90000000, 2.0, None, "a.py:7"),
]


def test_addresses_are_in_hex_counts_and_bytes_are_not():
    assert table(ROWS, "addr nbytes rows") == [
        "      addr nbytes      rows",
        "      0x40 40,960 3,000,000",
        "0x90000000      2          ",
    ]


@pytest.mark.parametrize("marks", ["", "> "])
def test_a_table_that_is_too_wide_keeps_the_ends_of_its_last_column(marks):
    lines = table(ROWS, "nbytes site", marks, 20)
    assert max(map(len, lines)) == 20
    assert lines[1].endswith(".py:35")
    assert lines[2].rstrip().endswith(" a.py:7")
    assert table(ROWS, "nbytes site", marks)[1].endswith(
        " kernbench/benches/matmul.py:35"
    )


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (1.0, 2.5, ("1", "2.5")),
        (1.23, 1.2301, ("1.23", "1.2301")),
        (123456789, 123456790, ("123456789", "123456790")),
        (2**60, 2**60 + 1, (str(2**60), str(2**60 + 1))),
        (0.0, -0.0, ("0", "-0")),
        (1.5, 1.5, ("1.5", "1.5")),
    ],
)
def test_two_numbers_have_the_digits_that_tell_them_apart(one, other, texts):
    assert texts_apart(one, other) == texts


def test_one_is_singular():
    assert (count_text(1, "call"), count_text(2000, "call")) == (
        "1 call",
        "2,000 calls",
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_says_all_at_any_width(width):
    lines = as_text(help_of(), width).splitlines()
    assert " ".join(help_of().rows[-2][1].split()) in " ".join(" ".join(lines).split())
    begins = {len(line) - len(line.lstrip()) for line in lines}
    assert begins == {0, 27}


def test_an_error_that_ended_a_run_is_told_to_its_end():
    error = "DeadlockError: " + "still waiting: " * 20 + "the end"
    info = Info("b", {}, {}, 0, {}, 1.0, True, 0, error, 1, 0, (), None)
    text = as_text(info, 80)
    assert "the end\n" in text
    assert "verified   not executed" in text


@pytest.mark.parametrize("width", [1, 2, 30, 50])
def test_a_line_that_is_cut_says_so(width):
    session = ReplaySession(Trace.open(TRACES / "matmul.msgpack"))
    session.goto(151)
    op = session.run_line("op")
    whole = as_text(op, 500).splitlines()
    cut = as_text(op, width).splitlines()
    assert any(len(line) > width for line in whole)
    for line, shown in zip(whole, cut, strict=True):
        expected = line if len(line) <= width else line[: width - 1] + "…"
        assert shown == expected


@pytest.mark.parametrize("width", [80, 100])
def test_the_critical_path_shows_the_kernel_line_at_any_width(width):
    session = ReplaySession(Trace.open(TRACES / "fault_overflow.msgpack"))
    steps = [
        line
        for line in as_text(session.critical_path(), width).splitlines()
        if "pe_" in line
    ]
    assert steps
    assert all(".py:1" in line for line in steps)


@pytest.mark.parametrize("width", [20, 40, 77, 200])
def test_a_command_in_lines_is_the_same_command_to_a_shell(width):
    words = ["printf", "%s\\n", "a b", "it's", "x" * 30, "--where", "kind=gemm && n>3"]
    command = shlex.join(words)
    lines = command_lines(command, width)
    assert all(len(line) <= max(width, 40) for line in lines)
    shell = "\n".join(lines).removeprefix("$ ")
    ran = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    assert ran.stdout.splitlines() == words[2:]


@pytest.mark.parametrize("bench", ["overflow", "wrong_root"])
def test_a_failure_says_what_to_ask_next(bench):
    session = ReplaySession(Trace.open(TRACES / f"fault_{bench}.msgpack"))
    row = session.verify().rows[0].row
    asked = session.verify().lines(80)[-1].removeprefix("why: ")
    index = ",".join(map(str, row.first_bad))
    assert asked == f"blame {row.tensor}[{index}]"
    session.goto(len(session) - 1)
    assert f"{row.tensor}[" in as_text(session.run_line(asked))

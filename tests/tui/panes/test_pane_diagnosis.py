"""The first view of the Stats pane: what to look at first, a finding a row."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench import TRACES, PaneBench, ops_of
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.perf.make_trace import make_trace
from kernbench.replay.commands import GOTO
from kernbench.replay.diagnosis.findings import Diagnosis, Finding
from kernbench.replay.inner_commands import DIAGNOSE_DATA, DIAGNOSE_TIME
from kernbench.runtime_api import run_bench
from tui.panes.base import Do, Enter, Scroll
from tui.panes.stats import StatsPane


@pytest.fixture
def made_up() -> None:
    """Predictions are real here, as they are where the command runs."""


@cache
def findings_of(trace: str) -> list[dict[str, Any]]:
    """The findings as the other program says them."""
    path = str(TRACES / f"{trace}.msgpack")
    done = CliRunner().invoke(main, ["trace", "diagnose", "--json", path])
    assert done.exit_code == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def claimed(bench: PaneBench) -> str | None:
    """What the picked finding claims."""
    found: str | None = bench.pane.claimed(bench.state, bench.frame, bench.answers)
    return found


@pytest.mark.parametrize("trace", ["fault_wrong_root", "matmul", "fault_overflow"])
@pytest.mark.slow
def test_the_diagnosis_has_a_row_a_finding_in_order(trace: str) -> None:
    bench = PaneBench(StatsPane, trace, 0, 300, 200)
    head, *rows = bench.lines
    rows = rows[: rows.index("")]  # what is below is the picked one in full
    assert head.startswith(" what to look at first")
    for number, (row, one) in enumerate(
        zip(rows, findings_of(trace), strict=True), start=1
    ):
        assert row[1:].split()[:2] == [str(number), one["kind"]]
        title = one["title"]
        for line in one["lines"]:
            title = title.replace(line, line.rpartition("/")[2])
        assert title in row
        if one["lines"]:
            assert one["lines"][0].rpartition("/")[2] in row


def diagnosed(*found: Finding, width: int = 80, height: int = 12) -> PaneBench:
    """The pane where these findings are known."""
    bench = PaneBench(StatsPane, "fault_missing_wait", 0, width - 1, height)
    bench.answers.asked[DIAGNOSE_DATA.ask()] = Diagnosis(found)
    bench.answers.asked[DIAGNOSE_TIME.ask()] = Diagnosis()
    bench.resize(width, height)
    return bench


def odd(line: str, title: str) -> Finding:
    """A finding at a kernel line."""
    return Finding("odd", title, (3,), (line,), (), "kernbench trace lines x")


def test_a_finding_is_read_without_the_folder_of_its_line() -> None:
    """It was cut behind the folders, and what was found there was not seen at all."""
    line = "kernbench/ccl/algorithms/intercube_allreduce.py:33"
    bench = diagnosed(odd(line, f"{line} ran 2 times on one PE, and 0 on 15"))
    row = bench.lines[1]
    found = "intercube_allreduce.py:33 ran 2 times on one PE, and 0 on 15"
    assert row.rstrip() == f"> 1 odd  {found}"


def test_titles_begin_behind_the_widest_kind() -> None:
    """A narrow pane has no room for the widest there could be."""
    wrong = Finding("wrong", "c is wrong", (3,), (), (), "kernbench trace outputs x")
    bench = diagnosed(wrong, odd("some/where.py:7", "w 16 times"))
    assert bench.lines[1].startswith("> 1 wrong  c is wrong")
    assert bench.lines[2].startswith("  2 odd    w 16 times")


def test_a_line_that_the_finding_does_not_name_stands_beside_it() -> None:
    bench = diagnosed(odd("some/where.py:7", "w 16 times"))
    assert bench.lines[1].endswith(" where.py:7")


def test_a_line_that_is_cut_off_the_finding_stands_beside_it() -> None:
    """Of a kernel that raised, neither the line nor the error was in view."""
    line = "kernels/raises.py:11"
    error = "KernelError: sip0.cube0.pe2.pe_cpu: kernel mm"
    title = f"the run ended with {error} at {line}"
    assert diagnosed(odd(line, title)).lines[1].endswith("… raises.py:11")
    whole = diagnosed(odd(line, title), width=120).lines[1]
    assert whole.count("raises.py:11") == 1


def test_the_finding_that_enter_and_p_are_about_is_marked_before_a_key() -> None:
    bench = diagnosed(odd("a.py:1", "first"), odd("a.py:2", "second"))
    assert [line[0] for line in bench.lines[1:3]] == [">", " "]
    bench.send(Scroll(1))
    assert [line[0] for line in bench.lines[1:3]] == [" ", ">"]


@pytest.mark.parametrize("height", [6, 9, 10, 11, 12])
def test_the_picked_finding_can_be_read_to_its_end_at_any_height(height: int) -> None:
    """At 80x24 a list of ten left no line for it, so nothing told how it ended."""
    words = "more words than one line has room for, " * 3
    words = words.removesuffix(", ")
    found = [odd("kernels.py:1", f"{number} times {words}") for number in range(9)]
    bench = diagnosed(*found, height=height)
    assert " of 9;" in bench.lines[0]
    for number in range(9):
        assert len(bench.lines) == height
        (picked,) = [line for line in bench.lines if line.startswith(">")]
        assert picked.startswith(f"> {number + 1} odd ")
        below = [line.strip() for line in bench.lines[-2:]]
        assert " ".join(below) == f"odd: {number} times {words}"
        bench.send(Scroll(1))


def test_findings_that_are_read_in_the_list_take_all_of_the_pane() -> None:
    found = [odd("kernels.py:1", f"short {number}") for number in range(20)]
    bench = diagnosed(*found, height=11)
    assert [line.split()[-2] for line in bench.lines[1:]] == [
        str(number) for number in range(10)
    ]


def test_what_is_told_of_a_finding_does_not_end_without_a_sign() -> None:
    """It ended where the pane did, in the middle of a sentence."""
    finding = odd("kernels.py:1", "of something")
    evidence = tuple(f"sentence {number}" for number in range(8))
    bench = diagnosed(replace(finding, ops=(), evidence=evidence), height=8)
    assert len(bench.lines) == 8
    assert bench.lines[-2].strip() == "sentence 1"
    assert bench.lines[-1] == "  … :diagnose shows all of it"


def test_where_enter_leads_to_another_line_than_is_named_it_is_told() -> None:
    """A wait that never ended is no op, so it goes to the last one before."""
    bench = diagnosed(odd("kernels.py:1", "of something"))
    told = "Enter goes to op 3, of missing_wait.py:15"
    assert told in bench.text
    line = bench.index.ops.row(3).site
    assert told not in diagnosed(odd(line, "of something")).text


@pytest.mark.slow
def test_only_what_is_wrong_is_in_the_colour_of_alarm() -> None:
    """It was in the colour of marks, beside outputs in that of alarm."""
    bench = PaneBench(StatsPane, "fault_overflow", 0, 300, 200)
    rows = bench.picture.lines[1 : bench.lines.index("")]
    for row in rows:
        alarms = {text.split()[-1] for text, style in row if style == "alarm"}
        kind = "".join(text for text, _ in row)[1:].split()[1]
        assert alarms == ({"wrong"} if kind == "wrong" else set())


@pytest.mark.slow
def test_enter_goes_to_findings_in_turn() -> None:
    bench = PaneBench(StatsPane, "fault_wrong_root", 0, 80, 200)
    led = []
    for one in findings_of("fault_wrong_root"):
        bench.send(Enter())
        if one["ops"]:
            assert bench.effects == (Do(GOTO(op=one["ops"][0])),)
            bench.goto(one["ops"][0])
        else:
            (effect,) = bench.effects
            led.append(effect.call.command.name)
        bench.send(Scroll(1))
    assert "whatif" in led


@pytest.mark.slow
def test_a_tensor_that_is_fetched_again_leads_to_its_line(tmp_path: Path) -> None:
    path = tmp_path / "slow.msgpack"
    run_bench("slow_refetched", params={"blocks": 4, "n": 128}, trace=path)
    bench = PaneBench(StatsPane, path, 0, 90, 200)
    rows = [i for i, line in enumerate(bench.lines) if " refetches" in line]
    assert bench.lines[rows[0]].endswith(" refetched.py:17")
    bench.send(Scroll(rows[0] - 1))
    bench.send(Enter())
    (effect,) = bench.effects
    op = effect.call.args.op
    row = bench.index.ops.row(op)
    assert row.site.endswith("refetched.py:17")
    loads = ops_of(bench.index, row.component)
    assert op in loads[1:]  # the first load of w is none too many


@pytest.mark.slow
def test_a_finding_claims_what_its_command_proves() -> None:
    bench = PaneBench(StatsPane, "fault_missing_wait", 0, 80, 200)
    assert claimed(bench) == "race 1"
    found = findings_of("fault_missing_wait")
    at = next(i for i, one in enumerate(found) if " whatif " in one["check"])
    bench.send(Scroll(at))
    words = found[at]["check"].split()
    assert claimed(bench) == words[4]
    assert words[5:] == ["--prove"]


@pytest.mark.slow
def test_what_is_wrong_is_there_before_the_rest() -> None:
    bench = PaneBench(StatsPane, "fault_missing_wait", 0, 80, 24)
    bench.answers.held.add(DIAGNOSE_TIME.name)
    _, first, *_, last = bench.lines
    assert first.startswith("> 1 wrong ")
    assert last == f" computing {DIAGNOSE_TIME.name}: 50%  Esc cancels"


@pytest.mark.slow
def test_while_nothing_was_found_yet_it_does_not_say_that_nothing_is_wrong() -> None:
    bench = PaneBench(StatsPane, "matmul", 0, 80, 24)
    bench.answers.held.add(DIAGNOSE_TIME.name)
    assert bench.lines == [f" computing {DIAGNOSE_TIME.name}: 50%  Esc cancels"]


@pytest.mark.slow
def test_a_long_trace_is_diagnosed_when_somebody_says_so(tmp_path: Path) -> None:
    path = tmp_path / "long.msgpack"
    make_trace(path, 25_000)
    bench = PaneBench(StatsPane, path, 0, 80, 24)
    count = len(bench.index.ops)
    assert f"Enter diagnoses {count:,} ops" in bench.lines[0]
    assert bench.lines[1] == f" that takes some {round(count / 10_000)} s; Esc cancels"
    asked = {query.command for query in bench.answers.asked}
    assert asked.isdisjoint({DIAGNOSE_DATA.name, DIAGNOSE_TIME.name})
    bench.send(Enter())
    assert bench.lines[0].startswith(" what to look at first")

"""The shell command of what a pane shows: it runs, and it is of that view."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from desks import TRACES, DeskBench
from pace import first_fast
from pilots import ask, still

from kernbench.cli import main
from tui.panes import PANES
from tui.panes.base import ChangeView
from tui.screens.command import shell_line

OP = 79
BY_VIEW = {
    ("timeline", "critical path"): "critical",
    ("timeline", "hazards"): "hazards",
    ("timeline", "busy"): "timeline",
    ("ops", ""): "ops",
    ("tiles", "composite"): "tiles",
    ("memory", "overview"): "memory",
    ("memory", "numbers"): "memory",
    ("route", "path"): "route",
    ("route", "heat"): "links",
    ("diff", "numbers"): "diff",
    ("diff", "outputs"): "outputs",
    ("diff", "first divergence"): "divergence",
    ("diff", "hazards"): "hazards",
    ("source", ""): "lines",
    ("stats", "diagnosis"): "diagnose",
    ("stats", "stalls"): "stalls",
    ("stats", "critical path"): "critical",
    ("stats", "roofline"): "roofline",
    ("stats", "busiest"): "busiest",
    ("stats", "PEs"): "pes",
    ("stats", "fetches"): "fetches",
    ("stats", "energy"): "energy",
    ("stats", "what if"): "whatif",
}


def views_of(key: str) -> tuple[str, ...]:
    (row,) = [row for row in PANES if row.key == key]
    return row.make.views or ("",)


@pytest.fixture(scope="module")
def desk():
    bench = DeskBench("matmul", OP)
    yield bench
    bench.runner.close()


@pytest.mark.parametrize("key", first_fast([row.key for row in PANES], fast=4))
def test_every_view_has_a_command_that_a_shell_runs(key: str, desk: DeskBench) -> None:
    if desk.desk.missing.get(key):
        pytest.skip(desk.desk.missing[key])
    desk.show(key)
    for view in views_of(key):
        desk.settle()
        call = desk.desk.question(key)
        assert call is not None, view
        name = BY_VIEW.get((key, view))
        assert name in (None, call.command.name)
        line = shell_line(call, Path(TRACES / "matmul.msgpack"), OP)
        program, *words = shlex.split(line)
        assert program == "kernbench"
        if call.command.name in ("whatif", "diagnose"):
            words.append("--help")  # they take long, and are run elsewhere
        done = CliRunner().invoke(main, words)
        assert done.exit_code in (0, 1), (line, done.output)
        assert not done.output.startswith("error")
        desk.send(key, ChangeView(1))


async def test_the_key_copies_what_the_active_pane_shows(
    drive, session, trace_path, monkeypatch
) -> None:
    copied: list[str] = []
    monkeypatch.setattr(
        "tui.screens.command.copy", lambda text, _: copied.append(text) or "there"
    )
    session.goto(OP)
    async with drive(120, 40, "8", "v") as pilot:
        await pilot.press("!")
        stalls = f"kernbench trace stalls {trace_path} sip0.cube0.pe7"
        assert copied == [stalls]
        await ask(pilot, "who-wrote c[3,17]")
        await pilot.press("escape")
        await still(pilot)
        wrote = f"kernbench trace who-wrote {trace_path} 'c[3,17]' --op {OP}"
        await pilot.press("!", "!", "!")
        assert copied[1:] == [wrote, stalls, wrote]
        await pilot.press("v", "!")
        assert copied[-1] == f"kernbench trace critical {trace_path} 20"

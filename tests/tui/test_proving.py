"""``:prove``: a claim on screen, run again beside the debugger; predicted and real."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fake_reruns
import pytest
from desks import held
from fake_reruns import COPIES, WAITS, failing, noting
from hostile import harm_in
from pilots import answered, ask, pane_of, piloted, run, settled, still, until
from platformdirs import user_state_path
from terminals import opened, program_of

from kernbench.replay.commands import WHATIF
from kernbench.replay.ops_beside import op_beside
from kernbench.replay.whatif import WhatIfIndex
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.rerun import FOLDER
from tui.screens.text import TextScreen

WITH_SLACK = 40

Play = Callable[[str], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """``play(code)``: what runs in place of kernbench."""
    return partial(fake_reruns.play, monkeypatch)


def said(pilot: Any) -> str:
    """The message above the footer, if there is one."""
    notice = pilot.app.debugger.notice
    return str(notice.render()) if notice.display else ""


def status_of(pilot: Any) -> str:
    return "".join(text for text, _ in pilot.app.debugger.status.line)


async def page_of(pilot: Any) -> str:
    """The page that comes, as text."""
    await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))
    await still(pilot)
    text: str = pilot.app.screen.text
    return text


def stats_of(pilot: Any) -> str:
    """What the pane shows."""
    text: str = pane_of(pilot, 8).text
    return text


def proofs() -> list[str]:
    folder = user_state_path("kernbench") / FOLDER
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow
async def test_what_is_predicted_stands_beside_what_came_of_it(
    drive, play, session
) -> None:
    """Of a re-run that does what was recorded, though the op was to be later."""
    play(COPIES)
    session.goto(WITH_SLACK)
    async with drive(100, 40) as pilot:
        run(pilot, "prove delay 5us")
        page = await page_of(pilot)
    recorded = "8.492us"
    lines = [line.rstrip() for line in page.splitlines()]
    assert lines[0].startswith(" prove ")
    assert "Enter opens the new trace" in lines[0]
    assert lines[1].startswith("what if op 40 ")
    assert lines[1].endswith(" 5.000us later")
    assert lines[2].startswith(f"the run ends at {recorded} -> ")
    assert f"re-run: it ends at {recorded} -> {recorded}" in page
    assert "ops: 152 matched" in page


@pytest.mark.slow
async def test_what_is_claimed_last_is_proved_by_a_key(drive, play, session) -> None:
    play(COPIES)
    session.goto(WITH_SLACK)
    async with drive(100, 40) as pilot:
        await pilot.press("P")
        assert said(pilot).startswith("error: nothing is claimed here that")
        assert "rows of diagnosis and what if in 8 Stats are" in said(pilot)
        await ask(pilot, "bound")
        assert "P proves it" in await page_of(pilot)
        await pilot.press("P")
        await until(pilot, lambda: pilot.app.screen is pilot.app.debugger)
        page = await page_of(pilot)
    assert "re-run with " in page
    assert "of delay: the end moves by 0.00ns" in page
    assert "slack NOT as told" in page


@pytest.mark.slow
async def test_an_error_is_said_in_a_line_that_harms_no_terminal(
    drive, play, session, as_text_of
) -> None:
    play(failing("no \x1b]0;owned\x07 field"))
    session.goto(WITH_SLACK)
    async with drive(120, 40) as pilot:
        run(pilot, "prove delay 1us")
        await until(pilot, lambda: said(pilot).startswith("error"))
        assert said(pilot).endswith(r"later: re-run: no \x1b]0;owned\x07 field")
        assert harm_in(as_text_of(pilot.app).replace("\n", "")) == []
    assert proofs() == []


@pytest.mark.slow
async def test_esc_cancels_it_and_s_steps_meanwhile(
    drive, play, session, monkeypatch
) -> None:
    monkeypatch.setattr("tui.widgets.status.LATE_S", 0.0)
    play(WAITS)
    session.goto(WITH_SLACK)
    async with drive(120, 40) as pilot:
        await settled(pilot)
        run(pilot, "prove delay 1us")
        await answered(pilot)
        await until(pilot, lambda: " re-run unchanged 0%" in status_of(pilot))
        await pilot.press("s")
        assert session.cursor == WITH_SLACK + 1
        run(pilot, "prove delay 2us")
        await answered(pilot)
        await until(pilot, lambda: said(pilot).startswith("error: still proving op 40"))
        await settled(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: "was cancelled" in said(pilot))
        assert " re-run" not in status_of(pilot)
    assert proofs() == []


@pytest.mark.slow
async def test_it_waits_until_a_line_is_typed(drive, play, session) -> None:
    play(COPIES)
    session.goto(WITH_SLACK)
    async with drive(100, 40) as pilot:
        run(pilot, "prove delay 5us")
        await answered(pilot)
        await pilot.press(":", "i")
        debugger = pilot.app.debugger
        await until(pilot, lambda: debugger.proof is not None)
        assert pilot.app.screen is debugger
        await pilot.press("escape")
        assert "re-run: it ends at" in await page_of(pilot)


@pytest.mark.slow
async def test_enter_opens_the_new_trace_and_open_goes_back(
    drive, play, session
) -> None:
    play(COPIES)
    session.goto(WITH_SLACK)
    async with drive(100, 40) as pilot:
        app = pilot.app
        old = app.debugger
        run(pilot, "prove delay 5us")
        await page_of(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.debugger is not old)
        await still(pilot)
        new = app.debugger
        assert app.screen is new
        assert new.desk.index.trace.path.parent.name == FOLDER
        assert new.session.cursor == WITH_SLACK
        run(pilot, "open")
        await until(pilot, lambda: app.debugger is not new)
        assert app.debugger.desk.index.trace.path == session.trace.path


@pytest.mark.slow
async def test_the_op_under_the_cursor_is_that_of_the_new_trace(
    drive, session, tmp_path
) -> None:
    """There it may have another number."""
    other = tmp_path / "other.msgpack"
    params = session.info().arguments
    run_bench("matmul", params=params, spec={"cube.hbm.channel_bw_gbs": 2}, trace=other)
    made = Trace.open(other)
    moved = [op_beside(session.trace, made, op) for op in range(80, 84)]
    op = next(i for i, there in enumerate(moved, 80) if i != there)
    session.goto(op)
    async with drive(80, 24) as pilot:
        old = pilot.app.debugger
        run(pilot, f"open {other}")
        await until(pilot, lambda: pilot.app.debugger is not old)
        assert pilot.app.debugger.session.cursor == moved[op - 80]


async def test_open_without_a_trace_before_says_so(drive) -> None:
    async with drive(80, 24) as pilot:
        run(pilot, "open")
        assert said(pilot) == "no trace was shown before this one: open FILE"
        run(pilot, "open no-such-file")
        await until(pilot, lambda: said(pilot).startswith("error: no-such-file: "))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "op", "why"),
    [
        ("prove delay", WITH_SLACK, "error: time '': give a number"),
        ("prove delay 0ns", WITH_SLACK, "error: delay 0.00ns: must be more than 0"),
        ("prove delay 1ns", -1, "error: the cursor is before the first op"),
    ],
)
async def test_what_cannot_be_delayed_is_said(line, op, why, drive, session) -> None:
    session.goto(op)
    async with drive(120, 40) as pilot:
        await ask(pilot, line)
        assert said(pilot).startswith(why)


@pytest.mark.slow
async def test_kernbench_itself_proves_the_slack_of_an_op(drive, session) -> None:
    session.goto(WITH_SLACK)
    async with drive(100, 40) as pilot:
        await ask(pilot, "prove delay 5us")
        page = await page_of(pilot)
    assert "re-run: it ends at" in page
    assert "B is A with " in page


ENDS = {"the terminal goes away": 129, "a signal": 143, "a key": 0}


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left_however_the_program_ends(
    how: str, trace_path: Path, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    fake = fake_reruns.program(noting(note))
    program = program_of(f"import tui.rerun; tui.rerun.PROGRAM = {fake!r}")
    with opened(trace_path, "--op", 40, state=tmp_path, program=program) as terminal:
        terminal.until("op 40/")
        terminal.press(":prove delay 1us\r")
        terminal.until("re-run unchanged 0%")
        child = Path(f"/proc/{note.read_text()}")
        assert child.exists()
        if how == "the terminal goes away":
            os.close(terminal.fd)
        elif how == "a signal":
            os.kill(terminal.pid, signal.SIGTERM)
        else:
            os.write(terminal.fd, b"q")
        pid = terminal.pid
        terminal.pid = 0
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == ENDS[how]
    assert not child.exists()
    assert list((tmp_path / "kernbench" / FOLDER).iterdir()) == []


# -- what if ------------------------------------------------------------------------


@pytest.mark.slow
async def test_whatif_shows_a_prediction_that_a_key_proves(
    drive, play, made_up
) -> None:
    play(COPIES)
    async with drive(100, 40) as pilot:
        await ask(pilot, "whatif pe.clock_ghz=2")
        page = await page_of(pilot)
        assert "the run ends at 8.492us -> 7.992us, -5.9%" in page
        assert "unsure: it is made up" in page
        await pilot.press("P")
        await until(pilot, lambda: pilot.app.screen is pilot.app.debugger)
        page = await page_of(pilot)
    assert "re-run: it ends at 8.492us -> 8.492us, same; " in page
    assert "5.89%" in page
    assert "ops: 152 matched" in page
    assert made_up.asked == [("pe.clock_ghz=2",)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    ["prove a=1 b=2", "whatif a=1 b=2 prove", "whatif --prove a=1 b=2"],
)
async def test_a_typed_change_is_predicted_and_proved(
    line, drive, play, made_up
) -> None:
    play(COPIES)
    async with drive(100, 40) as pilot:
        await ask(pilot, line)
        assert "re-run: it ends at" in await page_of(pilot)
    assert made_up.asked == [("a=1", "b=2")]


async def test_a_field_that_there_is_not_is_said_and_nothing_is_run(
    drive, play
) -> None:
    play(WAITS)
    async with drive(120, 40) as pilot:
        await ask(pilot, "prove no.field=2")
        assert said(pilot).startswith("error: no.field=2: unknown field; did you mean")
        assert pilot.app.debugger.prover.pending is None


@pytest.mark.slow
async def test_the_picked_row_of_stats_is_shown_and_proved(
    drive, play, made_up
) -> None:
    play(COPIES)
    async with drive(100, 40, "8", "V") as pilot:
        await settled(pilot)
        await pilot.press("j", "j", "enter")
        assert said(pilot).endswith("matmul.py:35 2x: the run would end at 8.245us")
        await pilot.press("P")
        assert said(pilot).startswith("error: no re-run can prove this row: ")
        await pilot.press("j", "enter")
        assert "what if pe.clock_ghz=2" in await page_of(pilot)
        await pilot.press("escape")
        await pilot.press("j", "P")
        assert "what if cube.hbm.access_ns=10" in await page_of(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: "unsure real 0.00ns" in stats_of(pilot))
    assert made_up.asked == [("pe.clock_ghz=2",), ("cube.hbm.access_ns=10",)]


@pytest.mark.slow
async def test_what_is_really_predicted_is_really_proved(
    trace_path, monkeypatch
) -> None:
    monkeypatch.setattr("kernbench.replay.index.WhatIfIndex", WhatIfIndex)
    app = KernbenchApp(open_session(trace_path, None), "matmul.msgpack")
    async with piloted(app, (100, 40)) as pilot:
        await ask(pilot, "prove pe.clock_ghz=2")
        await until(pilot, lambda: app.debugger.prover.pending is None)
        page = await page_of(pilot)
    assert "re-run: it ends at 8.492us -> 8.269us, -2.6%" in page


async def test_a_long_title_leaves_room_for_the_keys(drive) -> None:
    async with drive(80, 24) as pilot:
        await ask(pilot, "whatif pe.gemm.rate.f16=1000.0 pe.clock_ghz=2")
        first, *_ = (await page_of(pilot)).splitlines()
    assert first.endswith("; P proves it, / finds, z folds, Esc back")
    assert first.startswith(" whatif p")


@pytest.mark.slow
async def test_a_page_proves_what_it_shows_though_a_row_is_picked(
    drive, play, made_up
) -> None:
    play(COPIES)
    async with drive(100, 40, "8", "V") as pilot:
        await settled(pilot)
        await pilot.press("j", "j", "j")
        await ask(pilot, "whatif pe.dma.setup_ns=1")
        await page_of(pilot)
        await pilot.press("P")
        await until(pilot, lambda: pilot.app.screen is pilot.app.debugger)
        assert "what if pe.dma.setup_ns=1" in await page_of(pilot)


async def test_the_first_rows_of_the_profile_are_proved(drive, play) -> None:
    play(COPIES)
    async with drive(100, 40) as pilot:
        await ask(pilot, "whatif prove first 2")
        page = await page_of(pilot)
    rows = [line.split() for line in page.splitlines()]
    assert rows[2] == ["sooner", "share", "proved", "sure", "how", "what"]
    proved = [row[2] for row in rows if row and "=" in row[-1]]
    assert proved == ["0.00ns", "0.00ns", "yes"]


@pytest.mark.slow
async def test_esc_gives_the_profile_up_and_ctrl_l_asks_again(drive) -> None:
    with held(WHATIF) as whatif:
        async with drive(100, 40, "8", "V") as pilot:
            assert whatif.begun.wait(10)
            await until(pilot, lambda: "computing what if: 34%" in stats_of(pilot))
            await pilot.press("escape")
            await until(pilot, lambda: "what if was cancelled" in stats_of(pilot))
            whatif.release()
            await pilot.press("ctrl+l")
            await settled(pilot)
            assert "pe.clock_ghz" in stats_of(pilot)


@pytest.mark.slow
async def test_another_view_gives_the_profile_up(drive) -> None:
    with held(WHATIF) as whatif:
        async with drive(100, 40, "8", "V") as pilot:
            assert whatif.begun.wait(10)
            await pilot.press("v")
            assert whatif.ended.wait(10)
            await settled(pilot)


# -- races --

RACE = """
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench


def kernel(x, other, tl):
    mine = tl.full((64,), 1.0 + tl.program_id(0), "f32")
    for _ in range(20 * tl.program_id(0)):
        mine + mine
    tl.store(other, mine)


MACHINE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


@bench(name="race", description="two PEs store one row", machine=lambda **_: MACHINE)
def run(torch):
    y = torch.zeros((64,), "f32", name="y")
    x = torch.zeros((2, 64), "f32", dp=DPPolicy(pe="row_wise", num_pes=2), name="x")
    torch.launch("race", kernel, x, y.ptr)
"""


@pytest.mark.slow
async def test_a_race_is_found_with_two_keys_and_proved_with_a_third(
    tmp_path, monkeypatch, settle, as_text_of, same_as_file
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "race.py").write_text(RACE)
    run_bench("race.py", trace=tmp_path / "race.msgpack")
    session = open_session(tmp_path / "race.msgpack", 0)
    async with piloted(KernbenchApp(session, "race"), (100, 30)) as pilot:
        await pilot.press("6", "V")
        await settle(pilot)
        shown = as_text_of(pilot.app)
        assert "two writes that nothing orders" in shown
        assert shown.count("race.py:10") == 2
        await pilot.press("P")
        page = await page_of(pilot)
        assert "harmful: y[0] 2 -> 1 (re-run with op " in page
        await pilot.press("escape")
        await settle(pilot)
        same_as_file("diff-race-proved-100x30", as_text_of(pilot.app))


@pytest.mark.slow
async def test_a_number_of_no_race_is_an_error(drive) -> None:
    async with drive(100, 40) as pilot:
        run(pilot, "prove race 1")
        await until(pilot, lambda: "race 1: there are 0 hazards" in said(pilot))


# -- slack, and findings ------------------------------------------------------------


@pytest.mark.slow
async def test_on_the_critical_path_a_key_proves_that_an_op_has_no_slack(
    drive, play, session
) -> None:
    play(COPIES)
    session.goto(71)  # the first product of the last PE, on the path
    async with drive(100, 40, "v", "v") as pilot:
        await settled(pilot)
        await pilot.press("P")
        page = await page_of(pilot)
    assert "re-run with " in page
    assert "op 71 " in page


async def test_the_slack_of_any_op_can_be_typed(drive, play, session) -> None:
    play(COPIES)
    session.goto(16)
    async with drive(100, 40) as pilot:
        run(pilot, "prove slack 40")
        assert "op 40 " in await page_of(pilot)
    assert session.cursor == 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("prove slack 9999", "error: no op 9999; this trace has ops 0 to 151"),
        ("prove slack x", "error: 'x': must be a whole number"),
    ],
)
async def test_the_slack_of_what_is_no_op_is_an_error(line, why, drive) -> None:
    async with drive(120, 40) as pilot:
        await ask(pilot, line)
        assert said(pilot).startswith(why)


async def test_a_page_of_findings_proves_the_first_that_can_be(
    drive, play, made_up
) -> None:
    play(COPIES)
    async with drive(120, 40) as pilot:
        await ask(pilot, "diagnose")
        page = await page_of(pilot)
        first = next(line for line in page.splitlines() if "--prove" in line)
        number = page[: page.index(first)].rpartition(". ")[0].split()[-1]
        assert f"; P proves {number}, " in page
        await pilot.press("P")
        await until(pilot, lambda: pilot.app.screen is pilot.app.debugger)
        change = first.split()[-2]
        assert f"what if {change}" in await page_of(pilot)

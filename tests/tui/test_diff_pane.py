"""The diff pane: what was expected, as numbers and heat; outputs, first divergence, hazards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import wait
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernbench.errors import UsageError
from kernbench.replay.answers import Touches
from kernbench.sim_engine.verify import compare
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.widgets.diff import DiffPane

TRACES = Path(__file__).parents[2] / "traces"
BAD = [(3, 5), (3, 9), (70, 5)]


def pane(pilot) -> DiffPane:
    return pilot.app.debugger.panes[6]


@asynccontextmanager
async def opened(trace: str, *keys: str) -> AsyncIterator[Any]:
    app = KernbenchApp(open_session(TRACES / f"{trace}.msgpack", None), trace)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        yield pilot


async def answered(pilot) -> str:
    """The text once the jobs that were asked for are done."""
    wait([future for _, future in pilot.app.debugger.jobs._asked.values()])
    pane(pilot).repaint()
    return pane(pilot).text


@pytest.fixture
def wrong(session, monkeypatch):
    """The session at an op of which three elements of c are wrong."""
    session.goto(17)
    good = session.diff()
    expected = good.expected.copy()
    for at in BAD:
        expected[at] += 1.0
    row = compare(good.actual, expected, good.row.tolerance, good.name)
    bad = replace(good, row=row, expected=expected, error=good.actual - expected)
    monkeypatch.setattr(session, "diff", lambda op: bad)
    return session


async def test_J_and_K_go_from_mismatch_to_mismatch(wrong, drive) -> None:
    async with drive(80, 24, "6") as pilot:
        seen = [(pane(pilot).row, pane(pilot).column)]
        for key in "JJK":
            await pilot.press(key)
            seen.append((pane(pilot).row, pane(pilot).column))
        assert seen == [BAD[0], BAD[1], BAD[2], BAD[1]]
        await pilot.press("K", "K")
        assert "no further" in str(pilot.app.debugger.notice.render())


async def test_enter_blames_the_bytes_of_the_mismatch(wrong, drive) -> None:
    async with drive(80, 24, "6", "J") as pilot:
        diff = wrong.diff(17)
        addr = diff.addr + (3 * diff.actual.shape[1] + 9) * 2
        assert pane(pilot).place() == f"{diff.space} {addr:#x}:2"
        assert pane(pilot).enter() == f"blame {diff.space} {addr:#x}:2"


async def test_heat_marks_the_blocks_with_mismatches(wrong, drive) -> None:
    async with drive(80, 24, "6", "v") as pilot:
        lines = pane(pilot).text.splitlines()
        assert (
            lines[5]
            == " ▁ 0 to █ the tolerance, the largest |error| of 26x1 cells; ! beyond"
        )
        found = {
            (y, x - 7)
            for y, line in enumerate(lines[6:])
            for x in range(7, 23)
            if line[x] == "!"
        }
        assert found == {(row // 26, column) for row, column in BAD}


async def test_an_output_that_is_picked_is_compared_with_its_reference() -> None:
    async with opened("fault_overflow", "G", "6", "v", "v", "enter") as pilot:
        text = pane(pilot).text
        assert "\n>y " in text
        assert " output y DIFFERS! 4 of 512 bad" in text
        assert pilot.app.debugger.panes[6].heading == "Diff"
        first = pane(pilot).session.output("y").row.first_bad
        assert pane(pilot).place() == f"y[{first[0]},{first[1]}]"
        await pilot.press("v", "v", "enter")
        assert "output y" not in pane(pilot).text


async def test_the_outputs_view_shows_all_that_is_expected() -> None:
    async with opened("mlp_tp", "G", "6", "v", "v") as pilot:
        text = pane(pilot).text
        for out in pane(pilot).session.outputs().rows:
            assert f" {out.row.tensor} " in text


async def test_divergence_is_a_job_and_enter_goes_there() -> None:
    async with opened("fault_overflow", "G", "6", "V", "V") as pilot:
        text = await answered(pilot)
        assert "op 2  exp" in text
        assert "simulated" in "\n".join(
            pane(pilot).known["first divergence"][1].lines(80)
        )
        await pilot.press("enter")
        assert pane(pilot).session.cursor == 2


async def test_hazards_are_a_job_with_both_ops_and_enter_goes_to_one() -> None:
    async with opened("fault_missing_wait", "G", "6", "V") as pilot:
        text = await answered(pilot)
        assert (
            " hazards: 1\n! read of bytes whose writer is in flight: op 2 and 1\n"
            in text
        )
        assert text.count("missing_wait.py:") == 2
        await pilot.press("enter")
        assert pane(pilot).session.cursor == 2


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        ("fault_overflow", "op 2  hazards: none"),
        ("fault_missing_wait", "none  hazards: 1"),
    ],
)
async def test_divergence_and_hazards_lead_the_pane_unasked(
    trace, found, settle
) -> None:
    async with opened(trace, "s", "6") as pilot:
        await settle(pilot)
        assert pane(pilot).text.splitlines()[0] == f" first divergence: {found}"


async def test_of_a_long_trace_the_lead_names_the_views_that_compute_it(
    settle, monkeypatch
) -> None:
    monkeypatch.setattr("tui.widgets.diff._MANY", 3)
    async with opened("fault_overflow", "G", "6") as pilot:
        await settle(pilot)
        lead = " first divergence: in its view (V)  hazards: in its view (V)"
        assert pane(pilot).text.splitlines()[0] == lead


async def test_a_lead_that_cannot_be_computed_is_not_tried_again(
    settle, monkeypatch
) -> None:
    async with opened("fault_overflow", "s") as pilot:
        tried = []

        def refused(tell) -> None:
            tried.append(1)
            raise UsageError("refused")

        monkeypatch.setattr(pane(pilot).session, "first_divergence", refused)
        await pilot.press("6")
        await settle(pilot)
        for _ in range(3):
            pilot.app.debugger.look()
        lead = pane(pilot).text.splitlines()[0]
        assert (lead, len(tried)) == (
            " first divergence: in its view (V)  hazards: none",
            1,
        )


async def test_outputs_that_are_not_written_yet_are_no_mismatch(session) -> None:
    session.goto(17)
    diff = session.output("c")
    written = session.tensor("c").written
    assert diff.row.ok
    assert np.array_equal(np.isnan(diff.actual), ~written)
    assert diff.note == f"{int((~written).sum()):,} not written yet are nan here"


def test_outputs_at_every_op_are_those_of_a_fresh_session(trace_path) -> None:
    stepped = open_session(trace_path, 0)
    for op in (20, 60, 16, 151, 30, 17):
        fresh = open_session(trace_path, 0)
        assert stepped.outputs(op).rows == fresh.outputs(op).rows


async def test_enter_on_a_hazard_goes_to_its_first_op_then_to_the_other() -> None:
    async with opened("fault_missing_wait", "G", "6", "V") as pilot:
        await answered(pilot)
        seen = []
        for _ in range(3):
            await pilot.press("enter")
            seen.append(pane(pilot).session.cursor)
        assert seen == [2, 1, 2]


async def test_a_hazard_that_was_picked_stays_picked_where_its_ops_are_gone_to() -> (
    None
):
    async with opened("fault_missing_wait", "G", "6", "V") as pilot:
        await answered(pilot)
        rows = pane(pilot).known["hazards"][1].rows
        more = replace(rows[0], op=rows[0].other, other=rows[0].op)
        pane(pilot).known["hazards"] = 0, Touches((*rows, more), "", False)
        pane(pilot).repaint()
        seen = []
        await pilot.press("j")
        for _ in range(3):
            await pilot.press("enter")
            seen.append(pane(pilot).session.cursor)
        assert seen == [1, 2, 1]


async def test_errors_that_are_not_finite_are_never_hidden_behind_small_ones() -> None:
    async with opened("fault_overflow", "g", "s", "s", "6") as pilot:
        assert (
            " op 2 exp DIFFERS! 4 of 512 bad, 4 not finite, else abs "
            in pane(pilot).text
        )
        await pilot.press("G")
        (row,) = (
            line for line in pane(pilot).text.splitlines() if line.startswith(" y ")
        )
        assert row.split()[-2:] == ["inf", "inf"]


@pytest.mark.parametrize(
    ("trace", "op", "line"),
    [
        (
            "matmul",
            16,
            " local error 9.6e-04, rounding explains 9.9e-04, accumulated 9.6e-04",
        ),
        ("matmul", 143, " local error 9.5e-04, rounding explains 1.0e-03"),
        ("fault_overflow", 2, " overflow, accumulated inf"),
        ("fault_overflow", 0, " exact, accumulated 0.0e+00"),
    ],
)
async def test_an_op_is_judged_by_what_rounding_explains(
    trace, op, line, settle
) -> None:
    async with opened(trace, "6") as pilot:
        pilot.app.debugger.run(f"goto {op}")
        await settle(pilot)
        assert line in pane(pilot).text.splitlines()


async def test_what_rounding_does_not_explain_is_said(
    session, drive, settle, monkeypatch
) -> None:
    good = session.check(17)
    over = replace(good, check=replace(good.check, over=3, local=1.0))
    monkeypatch.setattr(session.diffs, "judged", lambda op: over)
    session.goto(17)
    async with drive(80, 24, "6") as pilot:
        await settle(pilot)
        text = f" local error 1.0e+00, rounding explains only {good.check.bound:.1e}"
        assert text in pane(pilot).text


async def test_what_phase_1_saw_of_an_output_is_told_beside_it(settle) -> None:
    async with opened("fault_overflow", "g", "s", "6") as pilot:
        await settle(pilot)
        line = " exact, accumulated 0.0e+00; Phase 1 at op 2 off 0.0e+00"
        assert line in pane(pilot).text.splitlines()


async def test_of_a_cut_file_it_is_the_recording_that_stopped(
    tmp_path, trace_path
) -> None:
    path = tmp_path / "cut.msgpack"
    path.write_bytes(trace_path.read_bytes()[:170_000])
    app = KernbenchApp(open_session(path, 40), "cut")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("6")
        assert (
            " the recording stopped before expected outputs were stated\n"
            in pane(pilot).text
        )


async def test_an_op_is_judged_once_no_key_is_pressed(settle, monkeypatch) -> None:
    async with opened("matmul", "6") as pilot:
        await settle(pilot)
        monkeypatch.setattr("tui.screens.asking.REST_S", float("inf"))
        await pilot.press("s")
        pilot.app.debugger.look()
        assert " local error ...\n" in pane(pilot).text
        monkeypatch.setattr("tui.screens.asking.REST_S", 0.0)
        await settle(pilot)
        assert ", rounding explains " in pane(pilot).text


@pytest.mark.parametrize("view", ["outputs", "first divergence", "hazards"])
async def test_enter_on_a_list_that_is_not_there_yet_goes_nowhere(
    view, session, drive
) -> None:
    session.goto(20)
    async with drive(80, 24, "6") as pilot:
        shown = pane(pilot)
        shown.view, shown.picks, shown.total, shown.at = (
            shown.views.index(view),
            True,
            3,
            2,
        )
        shown.known.clear()
        assert shown.enter() is None

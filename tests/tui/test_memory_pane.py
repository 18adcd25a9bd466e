"""The Memory pane on the screen: what opens it, and what Esc lets go of first."""

from __future__ import annotations

from typing import Any

import pytest
from pilots import active_of, pane_of

from kernbench.trace import TraceWriter
from tui.__main__ import open_session
from tui.app import KernbenchApp

MEMORY = 4


def run(pilot: Any, line: str) -> None:
    """Carry out a command line."""
    pilot.app.debugger.run_line(line)
    pilot.app.debugger.show()


@pytest.mark.parametrize("place", ["c[0:2, :]", "c", "hbm 0x9000:64"])
async def test_history_of_a_place_opens_in_the_pane(
    session, drive, settle, place
) -> None:
    session.goto(40)
    async with drive(80, 24) as pilot:
        run(pilot, f"history {place}")
        await settle(pilot)
        assert active_of(pilot) == MEMORY
        touches = session.history_of(place).rows
        text = pane_of(pilot, MEMORY).text
        assert f" accesses to {place}: {len(touches)}, " in text
        await pilot.press("home", "enter")
        await settle(pilot)
        assert session.cursor == touches[0].op.op


async def test_history_of_what_is_not_there_is_an_error(session, drive, settle) -> None:
    async with drive(80, 24, "2") as pilot:
        run(pilot, "history foo")
        await settle(pilot)
        assert "no tensor 'foo'" in str(pilot.app.debugger.notice.render())
        assert active_of(pilot) == 2


async def test_escape_lets_go_of_a_kept_tensor_before_the_maximised_pane(
    session, drive, settle
) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "j", "enter", "z") as pilot:
        await settle(pilot)
        pane = pane_of(pilot, MEMORY)
        assert " b (kept: Esc lets go) " in pane.text
        await pilot.press("escape")
        await settle(pilot)
        assert " c f16 128x128" in pane.text
        assert pilot.app.debugger.maximised
        await pilot.press("escape")
        assert not pilot.app.debugger.maximised


@pytest.mark.parametrize("number", range(1, 9))
async def test_without_ops_no_pane_names_a_key_that_steps(
    number, tmp_path, one_cube, settle
) -> None:
    writer = TraceWriter(tmp_path / "none.msgpack")
    writer.begin({}, one_cube)
    writer.close()
    app = KernbenchApp(open_session(tmp_path / "none.msgpack", None), "none")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(str(number))
        await settle(pilot)
        text = pane_of(pilot, number).text
        assert "steps" not in text
        assert number not in (2, 4, 7) or " this trace has no ops" in text

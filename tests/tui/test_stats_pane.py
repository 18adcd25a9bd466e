"""The Stats pane on the screen; what status line and help say of a run."""

import pytest

from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.keymap import Keymap
from tui.screens.help import help_lines


@pytest.fixture
def hung(trace_path):
    """A run in which two PEs wait for each other."""
    return open_session(trace_path.with_name("fault_ring_by_name.msgpack"), None)


async def test_the_status_line_says_that_a_run_ended_with_an_error(
    hung, as_text_of
) -> None:
    app = KernbenchApp(hung, "fault_ring_by_name.msgpack", False)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s")
        await pilot.pause()
        status = as_text_of(app).splitlines()[0]
        assert status.endswith(" run ended with DeadlockError")
        assert "  op 1/5  " in status


def test_help_says_what_diff_in_the_status_line_counts():
    text = ["".join(part for part, _ in line) for line in help_lines(Keymap())]
    assert any("!2 DIFF" in line and "wrong" in line for line in text)


async def test_the_pane_follows_the_focus(session, drive, as_text_of) -> None:
    session.goto(40)
    async with drive(80, 24, "8", "u", "u") as pilot:
        assert "8 PEs, " in as_text_of(pilot.app)
        await pilot.press("d")
        await pilot.pause()
        assert "sip0.cube0.pe4, " in as_text_of(pilot.app)

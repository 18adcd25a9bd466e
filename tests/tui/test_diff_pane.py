"""The Diff pane on the screen: what it shows once no key is pressed."""

from __future__ import annotations

from pathlib import Path

from tui.__main__ import open_session
from tui.app import KernbenchApp

TRACES = Path(__file__).parents[2] / "traces"


async def test_an_op_is_judged_once_no_key_is_pressed(settle, monkeypatch) -> None:
    app = KernbenchApp(open_session(TRACES / "matmul.msgpack", None), "matmul")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("6")
        pane = app.debugger.panes[6]
        await settle(pilot)
        monkeypatch.setattr("tui.screens.asking.REST_S", 3600.0)
        await pilot.press("s")
        app.debugger.look()
        assert " local error ...\n" in pane.text
        monkeypatch.setattr("tui.screens.asking.REST_S", 0.0)
        await settle(pilot)
        assert ", rounding explains " in pane.text

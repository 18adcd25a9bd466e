"""The Diff pane on the screen: what it shows once no key is pressed."""

from __future__ import annotations

from pilots import pane_of


async def test_an_op_is_judged_once_no_key_is_pressed(
    drive, settle, monkeypatch
) -> None:
    async with drive(80, 24, "6") as pilot:
        await settle(pilot)
        monkeypatch.setattr("tui.screens.debugger.REST_S", 3600.0)
        await pilot.press("s")
        await pilot.pause()
        assert " local error ...\n" in pane_of(pilot, 6).text
        monkeypatch.setattr("tui.screens.debugger.REST_S", 0.0)
        await settle(pilot)
        assert ", rounding explains " in pane_of(pilot, 6).text

"""The Timeline on the whole screen; what it draws is in panes/test_timeline.py."""

from textual.events import MouseScrollDown, MouseScrollUp


async def test_what_is_fitted_says_so(drive, as_text_of):
    async with drive(80, 24, "0") as pilot:
        assert "the timeline is fitted to the launches" in as_text_of(pilot.app)
        await pilot.press("plus", "0")
        assert "the timeline is fitted" not in as_text_of(pilot.app)


async def test_the_wheel_moves_the_picked_row(drive, settle):
    async with drive(80, 24, "z", "g") as pilot:
        timeline = pilot.app.debugger.timeline
        here = timeline.at
        for event, at in ((MouseScrollDown, here + 3), (MouseScrollUp, here)):
            pilot.app.post_message(event(None, 5, 8, 0, 0, 0, False, False, False))
            await settle(pilot)
            assert timeline.at == at


async def test_a_click_on_a_tab_shows_its_pane(drive, settle, as_text_of):
    async with drive(80, 24) as pilot:
        strip = next(x for x in as_text_of(pilot.app).splitlines() if "7 Source" in x)
        await pilot.click("#tabs", offset=(strip.index("7 Source") + 3, 0))
        await settle(pilot)
        assert "[7 Source]" in as_text_of(pilot.app)
        assert pilot.app.debugger.active == 7

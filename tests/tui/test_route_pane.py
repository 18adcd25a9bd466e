"""The Route on the whole screen; what it draws is in panes/test_route.py."""

import pytest


@pytest.fixture
def read(session):
    """The first DMA read whose path waits somewhere."""
    for op in range(len(session)):
        legs = session.route(op).legs
        if (
            legs
            and session.row(op).letter == "R"
            and sum(hop.wait for hop in legs[0].hops) > 0.005
        ):
            return op
    raise AssertionError("no read waits")


async def test_v_goes_through_levels_and_zooming_changes_the_heat(
    session, read, drive, as_text_of
) -> None:
    session.goto(read)
    async with drive(80, 24, "5", "v") as pilot:
        assert "5 Route: system" in as_text_of(pilot.app)
        await pilot.press("V", "V")
        before = as_text_of(pilot.app)
        assert "busy % of links" in before
        await pilot.press("+", "+")
        await pilot.pause()
        head = [t for t in as_text_of(pilot.app).splitlines() if "busy % of links" in t]
        assert head[0] not in before

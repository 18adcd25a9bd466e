"""The Tiles on the whole screen; what they draw is in panes/test_tiles.py."""

from pathlib import Path

import pytest

from tui.__main__ import open_session

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture
def session(request):
    return open_session(TRACES / f"{getattr(request, 'param', 'matmul')}.msgpack", -1)


@pytest.mark.parametrize("session", ["mlp_tp"], indirect=True)
async def test_a_place_is_spelled_alike_in_timeline_ops_and_tiles(
    session, drive, as_text_of
):
    session.goto(384)
    async with drive(200, 50) as pilot:
        text = as_text_of(pilot.app)
        assert text.count("> 384 ") == 1
        (row,) = (line for line in text.splitlines() if line.startswith("> 384 "))
        assert " s0c2.pe0 DMA_READ" in row
        assert "> s0c2.pe0.pe_dma " in text
        assert " s0c2.pe0: " in text
        assert "* 385 " in text
        assert " s1c2.pe0 DMA_READ" in text

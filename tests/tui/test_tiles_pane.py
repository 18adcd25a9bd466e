"""The Tiles: composites in order, the open ones with their tiles, waits by kind, Enter."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tui.__main__ import open_session

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture
def session(request):
    return open_session(TRACES / f"{getattr(request, 'param', 'matmul')}.msgpack", -1)


def rows_of(text):
    """What stands below the legend of a maximised pane."""
    return [line for line in text.splitlines()[5:-1] if line.strip()]


async def test_each_composite_has_a_row_and_the_cursors_its_tiles(
    session, drive, as_text_of
):
    async with drive(80, 24, "3", "z", "G") as pilot:
        rows = rows_of(as_text_of(pilot.app))
        heads = [
            int(found[1])
            for row in rows
            if (found := re.match(r"[ >*]#(\d+) pe\d", row))
        ]
        assert heads == session.composites.positions.tolist()
        here = rows.index(next(row for row in rows if row.startswith(">")))
        assert rows[here].split()[1] == "1,0,1"
        assert [row[1:].split()[0] for row in rows[here - 3 : here]] == [
            "0,0,0",
            "0,0,1",
            "1,0,0",
        ]
        assert len(rows) == 8 + 4


async def test_enter_on_a_composite_goes_to_it_and_opens_it(session, drive, as_text_of):
    async with drive(80, 24, "3", "z", "G", "home", "enter") as pilot:
        assert session.cursor == int(session.composites.positions[0])
        rows = rows_of(as_text_of(pilot.app))
        assert rows[0].startswith(f">#{session.cursor} ")
        assert [row[1:].split()[0] for row in rows[1:5]] == [
            "0,0,0",
            "0,0,1",
            "1,0,0",
            "1,0,1",
        ]


async def test_enter_on_a_tile_goes_to_the_stage_it_is_in_at_the_cursors_time(
    session, drive
):
    async with drive(80, 24, "3", "z", "G", "k") as pilot:
        time = session.time
        tile = session.tiles().rows[2]
        await pilot.press("enter")
        begun = [span for span in tile.spans if span.t0 <= time]
        assert session.cursor == begun[-1].op
        assert begun[-1].stage == "GEMM"


async def test_what_is_in_flight_at_the_cursors_time_is_marked(
    session, drive, as_text_of
):
    session.goto(session.tiles(75).rows[0].spans[-1].op)
    async with drive(80, 24, "3", "z") as pilot:
        flying = set(session.in_flight())
        rows = rows_of(as_text_of(pilot.app))
        whole = [int(row[2:].split()[0]) for row in rows if row[1] == "#"]
        assert {row[0] for row in rows if row[1] == "#"} == {"*"}
        assert flying.issuperset(whole)
        tiles = [row[0] for row in rows if row[1] == " "]
        on = [
            bool(flying & {span.op for span in tile.spans})
            for tile in session.tiles().rows
        ]
        assert tiles == [">", *(" *"[there] for there in on[1:])]
        await pilot.press("G")
        assert " 0,0,0" in "".join(rows_of(as_text_of(pilot.app)))  # it has ended
        assert "* 0,0,0" not in as_text_of(pilot.app)


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


async def test_the_other_view_opens_all_that_run_at_the_time(
    session, drive, settle, as_text_of
):
    async with drive(80, 60, "3", "z", "G", "v") as pilot:
        await settle(pilot)
        text = as_text_of(pilot.app)
        assert "[3 Tiles: all at its time]" in text
        assert len(rows_of(text)) == 8 + 8 * 4
        assert sum(row.startswith(">") for row in rows_of(text)) == 1


async def test_dots_tell_a_queue_from_bytes_on_their_way(session, drive, as_text_of):
    async with drive(120, 30, "3", "z", "G", "home", "enter") as pilot:
        rows = rows_of(as_text_of(pilot.app))
        reasons = [
            {wait.reason for wait in tile.waits} for tile in session.tiles().rows
        ]
        assert [":" in row for row in rows[1:5]] == [
            "hbm_channel" in found for found in reasons
        ]
        assert "." not in rows[1].split()[1]  # the first tile finds its engine idle
        assert "..." in rows[3]


async def test_the_legend_and_the_head_fit_80_columns(drive, as_text_of):
    async with drive(80, 24, "3", "z", "s") as pilot:
        head, legend = as_text_of(pilot.app).splitlines()[3:5]
        assert legend.endswith(", other")
        assert re.fullmatch(
            r" last composite #16 pe4: 4 tiles; [\d.]+ns from [\d.]+us", head
        )


@pytest.mark.parametrize("session", ["mlp_tp"], indirect=True)
async def test_time_follows_the_rows_in_view(session, drive, as_text_of):
    async with drive(80, 16, "3", "z", "home") as pilot:
        first = as_text_of(pilot.app).splitlines()[3]
        await pilot.press("end")
        last = as_text_of(pilot.app).splitlines()[3]
        starts = [
            float(re.search(r"from ([\d.]+)us", head)[1]) for head in (first, last)
        ]
        assert starts[0] < starts[1]
        assert starts[1] == pytest.approx(
            session.starts[session.composites.positions[-1]] / 1e3, abs=1e-3
        )


async def test_a_composite_that_never_ended_has_tiles_and_no_neighbours(
    session, drive, monkeypatch, as_text_of
):
    whole = session.tiles(143)
    monkeypatch.setattr(session, "tiles", lambda: replace(whole, composite=None))
    async with drive(80, 24, "3", "z", "G", "v") as pilot:
        text = as_text_of(pilot.app)
        assert " a composite that never ended: 4 tiles" in text
        assert len(rows_of(text)) == 1 + 4


@pytest.mark.parametrize("trace", ["flash_attention", "fault_ring_by_name"])
async def test_a_trace_without_composites_says_so(trace, as_text_of):
    from tui.app import KernbenchApp

    app = KernbenchApp(open_session(TRACES / f"{trace}.msgpack", None), trace, False)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert "no composite has run in this trace" in as_text_of(app)

"""The Route pane: four projections with the path lit, times beside it, heat of the links."""

from concurrent.futures import wait
from pathlib import Path
from threading import Event

import pytest

from tui.__main__ import open_session
from tui.widgets import route
from tui.widgets.draw import ASCII, UNICODE
from tui.widgets.route import RoutePane

FAR = 154  # an ipcq_copy of ccl_allreduce from one SIP to the other


@pytest.fixture
def reduce_session(trace_path: Path):
    return open_session(trace_path.with_name("ccl_allreduce.msgpack"), None)


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


def shown(
    pane: RoutePane, view: str = "path", width: int = 80, height: int = 30
) -> str:
    pane.view, pane.seek = pane.views.index(view), True
    lines = pane.draw(width, height)
    assert len(lines) <= height
    assert all(sum(len(text) for text, _ in line) <= width for line in lines)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def test_the_path_lights_the_boxes_it_visits_and_says_when_it_came_and_waited(
    session, read
):
    session.goto(read)
    text, leg = shown(RoutePane(session, UNICODE)), session.route().legs[0]
    assert text.startswith(" SIP 0 cube 0: ")
    for hop in leg.hops:
        assert f"{hop.arrive - leg.t0:+.2f}" in text
        assert f"{hop.wait:.2f}!" in text or hop.wait < 1e-9
    router = leg.hops[1].node.rpartition(".")[2]
    assert f"[{router}]" in text
    assert text.count("[") == len({hop.node for hop in leg.hops})


def test_the_head_is_the_time_of_the_op_as_the_sum_of_its_parts(session, read):
    session.goto(read)
    text, row = shown(RoutePane(session, UNICODE)), session.row(read)
    assert f"{row.t_end - row.t_start:.2f} ns = " in text
    for what, ns in session.route().parts:
        assert ns < 0.005 or f"{ns:.2f} {what}" in " ".join(text.split())


def test_arrows_point_along_the_path(reduce_session):
    reduce_session.goto(FAR)
    text = shown(RoutePane(reduce_session, UNICODE))
    gap = next(line for line in text.splitlines() if "↑" in line)
    assert gap.index("↑") < gap.index("↓")  # up from SIP 0 to the switch, down to SIP 1


def test_the_level_is_the_smallest_that_holds_the_path(session, reduce_session, read):
    session.goto(read)
    assert shown(RoutePane(session, UNICODE)).startswith(" SIP 0 cube 0:")
    reduce_session.goto(FAR)
    pane = RoutePane(reduce_session, UNICODE)
    assert shown(pane).startswith(" system:")
    reduce_session.goto(8)  # from the host's side into a cube
    assert shown(pane).startswith(" SIP 0:")


@pytest.mark.parametrize(
    ("view", "where", "boxes"),
    [
        ("system", " system:", ["┃switch0┃", "┃SIP0┃", "┃SIP1┃"]),
        ("SIP", " SIP 1:", ["┃pcie_ep┃", "┃cube15┃", "│cube12│"]),
        ("cube", " SIP 1 cube 15:", ["[ucie_N]", "[r0c0]", "r1c0"]),
        ("PE", " SIP 1 cube 15 PE 0:", ["┃pe_dma┃", "┃pe_tcm┃", "│pe_gemm│"]),
    ],
)
def test_each_level_can_be_shown_of_where_the_op_is(reduce_session, view, where, boxes):
    reduce_session.goto(FAR)
    text = shown(RoutePane(reduce_session, UNICODE), view, width=160)
    assert text.startswith(where)
    assert all(box in text.replace(" ", "") for box in boxes)


def test_what_is_outside_of_the_level_is_said_to_be(reduce_session):
    reduce_session.goto(FAR)
    assert "outside" in shown(RoutePane(reduce_session, UNICODE), "SIP")


def test_an_op_that_moves_nothing_lights_its_own_box(reduce_session):
    reduce_session.goto(72)
    text = shown(RoutePane(reduce_session, UNICODE))
    assert "stays inside its component" in text
    assert "┃pe_ipcq┃" in text.replace(" ", "")


@pytest.mark.parametrize("view", RoutePane.views)
def test_ascii_has_all_that_unicode_has(reduce_session, view):
    reduce_session.goto(FAR)
    plain, other = (shown(RoutePane(reduce_session, g), view) for g in (ASCII, UNICODE))
    assert plain.isascii()
    assert [len(line) > 0 for line in plain.splitlines()] == [
        len(line) > 0 for line in other.splitlines()
    ]


def test_a_map_larger_than_the_pane_opens_at_the_path_and_scrolls(reduce_session):
    reduce_session.goto(FAR)
    pane = RoutePane(reduce_session, UNICODE)
    before = shown(pane, "cube", height=8)
    assert "[ucie_N]" in before
    assert pane.columns_a_step > 0
    pane.pan(-1)
    pane.seek = False
    left = pane.draw(80, 8)
    assert "".join(text for text, _ in left[1]) != before.splitlines()[1]


def test_heat_is_the_load_of_links_in_the_window_of_the_timeline(session, read):
    session.goto(read)
    pane = RoutePane(session, UNICODE)
    busiest = session.link_load(*pane.span()).links[0]
    whole = shown(pane, "heat", width=160)
    assert f"{busiest.busy:.1%}" in whole
    pane.span = lambda: (session.time, session.time + 500.0)
    load = session.link_load(*pane.span()).links
    now = shown(pane, "heat", width=160)
    assert f"{load[0].busy:.1%}" in now != whole
    drawn = [
        line[:120] for line in now.splitlines()[1:]
    ]  # the list stands right of that
    assert any(f"{load[0].busy * 100:.0f}" in line for line in drawn)


def test_heat_says_the_peak_queue_of_a_link(session, read):
    session.goto(read)
    pane = RoutePane(session, UNICODE)
    load = session.link_load(*pane.span())
    link = max(load.links, key=lambda link: link.queue)
    assert link.queue > 1
    rows = [line for line in shown(pane, "heat", 160, 60).splitlines() if "%" in line]
    assert any(f"{round(link.nbytes):,}{link.queue:>4} " in row for row in rows)
    assert "peak queue" in rows[0]


def test_boxes_that_lie_alike_are_joined_once(reduce_session, monkeypatch):
    reduce_session.goto(FAR)
    pane, asked = RoutePane(reduce_session, UNICODE), list[tuple[int, int]]()
    way = route.way
    monkeypatch.setattr(
        route, "way", lambda view, *pair: asked.append(pair) or way(view, *pair)
    )
    first = pane._mapped((0, 0))
    assert asked
    asked.clear()
    second = pane._mapped((1, 15))
    assert not asked
    assert second.cells is first.cells
    assert (second.box_of != first.box_of).any()


def test_heat_has_the_level_of_a_wide_focus(session, read):
    session.goto(read)
    pane = RoutePane(session, UNICODE)
    for level, where in enumerate(
        (" SIP 0 cube 0", " SIP 0 cube 0 PE", " SIP 0 cube 0:")
    ):
        session.level = level
        assert shown(pane, "heat").startswith(where)
    session.level = 4
    assert shown(pane, "heat").startswith(" system:")


def test_what_takes_long_is_a_job_first(session, read, monkeypatch):
    session.goto(read)
    monkeypatch.setattr(route, "QUICK", 0)
    pane, gate = RoutePane(session, UNICODE), Event()
    load = session.link_load
    monkeypatch.setattr(
        session, "link_load", lambda *window: gate.wait() and load(*window)
    )
    monkeypatch.setattr(pane, "_indexed", lambda tell: gate.wait())
    assert "computing routes" in shown(pane)
    gate.set()
    wait([future for _, future in pane.jobs._asked.values()])
    gate.clear()
    assert "computing link load" in shown(pane, "heat")
    gate.set()
    wait([future for _, future in pane.jobs._asked.values()])
    assert "busy % of links" in shown(pane, "heat")
    assert "on the way" in shown(pane)
    pane.jobs.close()


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

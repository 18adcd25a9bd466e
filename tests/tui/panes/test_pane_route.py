"""The route: maps of four levels, the path lit, times beside it, heat of the links."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from bench import TRACES, PaneBench
from screens import MAXIMISED, PLACES, SIZES, cut, on_screen

from kernbench.replay.commands import LINKS, ROUTE, answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import MACHINE_MAP, MAP_LOAD
from kernbench.trace import Trace
from tui.draw import ASCII
from tui.panes.base import ChangeView, Enter, Moved, Pan, Scroll
from tui.panes.route import HEAT, PATH, RoutePane
from tui.panes.timeline import TimelinePane
from tui.screens.layout import columns_alone

FAR = 154
"""An ipcq_copy of ccl_allreduce from one SIP to the other."""
INSIDE = 72
"""An op of the same that moves nothing."""
INTO_CUBE = 8
"""One from the host's side into a cube."""


@pytest.fixture(scope="module")
def matmul() -> Index:
    return Index(Trace.open(TRACES / "matmul.msgpack"))


@pytest.fixture(scope="module")
def reduce() -> Index:
    return Index(Trace.open(TRACES / "ccl_allreduce.msgpack"))


@pytest.fixture(scope="module")
def read(matmul) -> int:
    """The first DMA read whose path waits somewhere."""
    for op in range(len(matmul.ops)):
        legs = routed(matmul, op).legs
        is_read = bool(legs) and matmul.ops.row(op).letter == "R"
        if is_read and sum(hop.wait for hop in legs[0].hops) > 0.005:
            return op
    raise AssertionError("no read waits")


def routed(index: Index, op: int):
    return answer(index, ROUTE.ask(op))


def route(
    index: Index,
    op: int,
    view: str = PATH,
    width: int = 80,
    height: int = 30,
    alone: int = 0,
) -> PaneBench:
    bench = PaneBench(RoutePane, index, op, width, height)
    bench.frame = replace(bench.frame, columns_alone=alone)
    bench.look_at(*TimelinePane(index).start().window)
    show(bench, view)
    return bench


def show(bench: PaneBench, view: str) -> None:
    while RoutePane.views[bench.pane.view(bench.state)] != view:
        bench.send(ChangeView(1))


def head_of(bench: PaneBench) -> str:
    """The lines above the map, as one."""
    return " ".join(bench.text.split())


# -- on the screen -----------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_it_shows_what_the_screen_showed(matmul, size):
    place = PLACES["route", size]
    alone = columns_alone(int(size.partition("x")[0]))
    bench = route(matmul, 16, PATH, place.width, place.height, alone)
    assert cut(bench.text, place) == on_screen(f"route-{size}-before", place)
    bench.goto(151)
    bench.goto(143)
    assert cut(bench.text, place) == on_screen(f"route-{size}-after", place)


@pytest.mark.parametrize("view", RoutePane.views[1:])
def test_its_other_views_show_what_the_screen_showed(matmul, view):
    bench = route(matmul, 79, PATH, 80, PLACES["route", "80x24"].height)
    bench.resize(MAXIMISED.width, MAXIMISED.height)
    show(bench, view)
    shown = bench.text.rstrip("\n")
    assert shown == on_screen(f"route-{view.lower()}-80x24", MAXIMISED)


@pytest.mark.parametrize("view", RoutePane.views)
def test_ascii_has_all_that_unicode_has(reduce, view):
    bench = route(reduce, FAR, view)
    plain = PaneBench(RoutePane, reduce, FAR, 80, 30, glyphs=ASCII)
    plain.look_at(*bench.frame.window)
    show(plain, view)
    assert plain.text.isascii()
    assert [bool(line) for line in plain.lines] == [bool(line) for line in bench.lines]


@pytest.mark.parametrize("view", RoutePane.views)
@pytest.mark.parametrize("size", [(80, 30), (24, 5), (5, 2), (1, 1), (160, 60)])
def test_no_picture_has_more_lines_than_there_is_room_for(reduce, view, size):
    bench = route(reduce, FAR, view, *size)
    assert 0 < len(bench.lines) <= size[1]
    if size[0] >= 80:
        widths = [sum(len(text) for text, _ in line) for line in bench.picture.lines]
        assert max(widths) <= size[0]


def test_before_the_first_op_it_names_the_key_that_fills_it(matmul):
    bench = route(matmul, -1)
    assert bench.lines == [" before the first op: s steps to it"]
    for event in (Scroll(1), Pan(1), ChangeView(1)):
        bench.send(event)
    assert bench.lines == [" before the first op: s steps to it"]


def test_a_trace_without_ops_says_so(tmp_path):
    data = (TRACES / "matmul.msgpack").read_bytes()
    path = tmp_path / "cut.msgpack"
    path.write_bytes(data[: len(data) // 2])
    assert PaneBench(RoutePane, path, -1).lines == [" this trace has no ops"]


# -- the path ----------------------------------------------------------------------


def test_the_path_lights_the_boxes_it_visits_and_says_when_it_came_and_waited(
    matmul, read
):
    bench = route(matmul, read, width=160)
    text = bench.text
    (leg, *_) = routed(matmul, read).legs
    assert text.startswith(" SIP 0 cube 0: ")
    for hop in leg.hops:
        assert f"{hop.arrive - leg.t0:+.2f}" in text
        assert f"{hop.wait:.2f}!" in text or hop.wait < 1e-9
    router = leg.hops[1].node.rpartition(".")[2]
    assert f"[{router}]" in text
    assert text.count("[") == len({hop.node for hop in leg.hops})


def test_the_head_is_the_time_of_the_op_as_the_sum_of_its_parts(matmul, read):
    head = head_of(route(matmul, read))
    row = matmul.ops.row(read)
    assert f"{row.t_end - row.t_start:.2f} ns = " in head
    for what, ns in routed(matmul, read).parts:
        assert ns < 0.005 or f"{ns:.2f} {what}" in head


def test_arrows_point_along_the_path(reduce):
    lines = route(reduce, FAR).lines
    gap = next(line for line in lines if "↑" in line)
    assert gap.index("↑") < gap.index("↓")  # up from SIP 0 to the switch, down to SIP 1


def test_the_level_is_the_smallest_that_holds_the_path(matmul, reduce, read):
    assert route(matmul, read).text.startswith(" SIP 0 cube 0:")
    assert route(reduce, FAR).text.startswith(" system:")
    assert route(reduce, INTO_CUBE).text.startswith(" SIP 0:")


@pytest.mark.parametrize(
    ("view", "where", "boxes"),
    [
        ("system", " system:", ["┃switch0┃", "┃SIP0┃", "┃SIP1┃"]),
        ("SIP", " SIP 1:", ["┃pcie_ep┃", "┃cube15┃", "│cube12│"]),
        ("cube", " SIP 1 cube 15:", ["[ucie_N]", "[r0c0]", "r1c0"]),
        ("PE", " SIP 1 cube 15 PE 0:", ["┃pe_dma┃", "┃pe_tcm┃", "│pe_gemm│"]),
    ],
)
def test_each_level_can_be_shown_of_where_the_op_is(reduce, view, where, boxes):
    text = route(reduce, FAR, view, width=160).text
    assert text.startswith(where)
    joined = text.replace(" ", "")
    assert [box for box in boxes if box not in joined] == []


def test_what_is_outside_of_the_level_is_said_to_be(reduce):
    assert "outside" in route(reduce, FAR, "SIP").text


def test_an_op_that_moves_nothing_lights_its_own_box(reduce):
    text = route(reduce, INSIDE).text
    assert "stays inside its component" in text
    assert f": op {INSIDE} stays inside" in text
    assert "┃pe_ipcq┃" in text.replace(" ", "")


def test_a_list_that_is_too_long_says_how_much_more_there_is(matmul, read):
    whole = route(matmul, read, width=160, height=60)
    bench = route(matmul, read, width=160, height=12)
    legs = routed(matmul, read).legs
    lines = sum(1 + len(leg.hops) for leg in legs)
    shown = sum(bool(re.search(r"[+-]\d+\.\d\d |B from", x)) for x in bench.lines)
    assert f" {lines - shown} more" in bench.lines[-1]
    assert "more" not in whole.text


# -- moving over the map -----------------------------------------------------------


def test_a_map_that_is_too_wide_is_not_shown_in_pieces(matmul, read):
    """Clipped fragments of the map stood between the texts of the hops."""
    bench = route(matmul, read, width=66, height=30)
    text = bench.text
    assert not set("┌┏│─┼") & set(text)
    assert "the map wants 109 columns" in bench.lines[-1]
    legs = routed(matmul, read).legs
    for leg in legs:
        assert f"{leg.nbytes:,} B from " in text
    (leg, *_) = legs
    for hop in leg.hops:
        assert f"{hop.arrive - leg.t0:+.2f}" in text


@pytest.mark.parametrize("alone", [66, 108, 109, 198])
def test_z_is_named_only_where_it_shows_the_map(matmul, read, alone):
    bench = route(matmul, read, width=66, height=30, alone=alone)
    key = "z shows it" if alone >= 109 else "v shows another level"
    assert bench.lines[-1].strip() == f"the map wants 109 columns: {key}"


@pytest.mark.parametrize("width", [109, 118, 149])
def test_where_the_map_is_too_wide_a_narrower_one_is_shown(matmul, read, width):
    """At 120x40 the map of a cube could not be seen at any key."""
    bench = route(matmul, read, width=width, height=34)
    text = bench.text
    assert "the map wants" not in text
    labels = {box.label for box in answer(matmul, MACHINE_MAP.ask(place=(0, 0))).boxes}
    assert [label for label in labels if label not in text] == []
    assert max(len(line) for line in bench.lines) <= width
    (leg, *_) = routed(matmul, read).legs
    for hop in leg.hops:
        assert f"{hop.arrive - leg.t0:+.2f}" in text
    lit = {text for line in bench.picture.lines for text, style in line if style}
    assert "→" in lit or "←" in lit


def test_a_box_of_the_narrower_map_is_lit_by_its_colour(reduce):
    bench = route(reduce, INSIDE, "cube", width=118, height=34)
    runs = [run for line in bench.picture.lines for run in line]
    lit = "".join(text for text, style in runs if style == "active")
    assert re.fullmatch(r"PE \d", lit)


def test_without_a_map_an_op_that_moves_nothing_says_where_it_is(reduce):
    """The pane was empty but for what the map wants."""
    bench = route(reduce, INSIDE, "cube", width=66, height=12)
    component = routed(reduce, INSIDE).component
    text = head_of(bench)
    assert re.search(rf"{component} is in the box PE \d, which is joined to r", text)
    assert "the map wants" in text


def test_without_a_map_and_without_load_heat_says_so(matmul, read):
    bench = route(matmul, read, HEAT, width=66)
    end = matmul.trace.op_columns.t_end.max()
    bench.look_at(end + 1e6, end + 2e6)
    assert "no link of this map carried anything" in bench.text
    assert bench.lines[-1].strip() == "the map wants 124 columns"


def test_without_room_for_a_line_a_box_the_way_is_a_chain(matmul, read):
    bench = route(matmul, read, width=66, height=12)
    (leg, *_) = routed(matmul, read).legs
    router = leg.hops[1].node.rpartition(".")[2]
    (chain, *_) = [line for line in bench.lines if f"→ {router} " in line]
    assert all(f"{hop.arrive - leg.t0:+.2f}" in chain for hop in leg.hops)
    assert all(len(line) <= 66 for line in bench.lines)


def test_a_long_chain_scrolls(reduce):
    bench = route(reduce, FAR, "cube", width=40, height=6)
    before = bench.lines
    bench.send(Scroll(2))
    assert bench.lines != before
    bench.send(Scroll(-1000))
    assert bench.lines == before


def test_a_map_that_fits_has_no_use_for_panning(reduce):
    assert not route(reduce, FAR, "system").send(Pan(1))


def test_a_map_scrolls_as_far_as_it_goes(matmul):
    bench = route(matmul, 40, "cube", width=160, height=11)
    bench.send(Scroll(-1000))
    top = bench.lines
    bench.send(Scroll(3))
    assert bench.state.rows.top == 3
    assert bench.lines != top
    bench.send(Scroll(-3))
    assert bench.lines == top
    bench.send(Scroll(1, pages=True))
    assert bench.state.rows.top == bench.state.rows.room - 1
    bench.send(Scroll(1000))
    assert bench.state.rows.top == bench.state.rows.total - bench.state.rows.room


def test_a_move_looks_for_the_path_again(reduce):
    bench = route(reduce, FAR, "cube", width=160, height=8)
    before = bench.lines
    bench.send(Scroll(1000))
    assert bench.lines != before
    bench.send(Moved())
    assert bench.lines == before


def test_what_is_lit_comes_into_view_when_its_answers_come(reduce):
    bench = route(reduce, FAR, "cube", width=160, height=8)
    wanted = bench.lines
    late = PaneBench(RoutePane, reduce, FAR, 160, 8)
    late.answers.held = {MACHINE_MAP.name}
    show(late, "cube")
    assert "computing" in late.text
    late.answers.held = set()
    late.resize(160, 8)
    assert late.lines == wanted


def test_it_has_nothing_to_enter(matmul):
    bench = route(matmul, 40)
    assert bench.enter_word == ""
    assert not bench.send(Enter())


# -- heat --------------------------------------------------------------------------


def test_heat_is_the_load_of_links_in_the_window_of_the_timeline(matmul, read):
    bench = route(matmul, read, HEAT, 160)
    t0, t1 = bench.frame.window
    busiest = answer(matmul, LINKS.ask(t0=t0, t1=t1)).links[0]
    whole = bench.text
    assert f"{busiest.busy:.1%}" in whole
    time = matmul.ops.time(read)
    bench.look_at(time, time + 500.0)
    busiest = answer(matmul, LINKS.ask(t0=time, t1=time + 500.0)).links[0]
    assert f"{busiest.busy:.1%}" in bench.text
    assert bench.text != whole
    drawn = [line[:120] for line in bench.lines[1:]]  # the list is right of that
    assert any(f"{busiest.busy * 100:.0f}" in line for line in drawn)


def test_zooming_changes_what_the_head_of_the_heat_says(matmul, read):
    bench = route(matmul, read, HEAT)
    head = bench.lines[0]
    assert "busy % of links" in head
    time = matmul.ops.time(read)
    bench.look_at(time, time + 500.0)
    assert "busy % of links" in bench.lines[0] != head


def test_heat_says_the_peak_queue_of_a_link(matmul, read):
    bench = route(matmul, read, HEAT, 160, 60)
    t0, t1 = bench.frame.window
    links = answer(matmul, LINKS.ask(t0=t0, t1=t1)).links
    link = max(links, key=lambda link: link.queue)
    assert link.queue > 1
    rows = [line for line in bench.lines if "%" in line]
    assert any(f"{round(link.nbytes):,}{link.queue:>4} " in row for row in rows)
    assert "peak queue" in rows[0]


def test_heat_has_the_level_of_a_wide_focus(matmul, read):
    bench = route(matmul, read, HEAT)
    places = [
        " SIP 0 cube 0:",
        " SIP 0 cube 0 PE",
        " SIP 0 cube 0:",
        " SIP 0:",
        " system:",
    ]
    for level, where in enumerate(places):
        bench.refocus(level)
        assert bench.text.startswith(where)


def test_the_busier_a_link_the_hotter_its_colour(matmul):
    bench = route(matmul, 100, HEAT, 160, 40)
    t0, t1 = bench.frame.window
    query = MAP_LOAD.ask(place=(0, 0), t0=t0, t1=t1)
    busy = [0.95, 0.6, 0.3, 0.05]
    loads = [
        replace(load, busy=share)
        for load, share in zip(bench.answers.of(query), busy, strict=False)
    ]
    bench.answers.asked[query] = tuple(loads)
    runs = [run for line in bench.picture.lines for run in line]
    colours = [
        next(style for text, style in runs if text.strip() == f"{share:.1%}")
        for share in busy
    ]
    assert colours == ["hot", "mark", "flight", "dim"]
    digits = {
        text: style for text, style in runs if text.isdigit() and style in colours
    }
    assert digits["9"] == "hot"
    assert digits["3"] == "flight"


# -- what is late ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "view"), [(ROUTE, PATH), (MACHINE_MAP, PATH), (MAP_LOAD, HEAT)]
)
def test_nothing_is_shown_without_an_answer(matmul, read, late, view):
    bench = route(matmul, read, view)
    shown = bench.lines
    bench.answers.held = {late.name}
    assert bench.send(Moved())
    assert bench.lines == [f" computing {late.name}: 50%  Esc cancels"]
    bench.answers.held = set()
    bench.send(Moved())
    assert bench.lines == shown

"""The maps that the route's pane asks for, and how loaded their lines are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kernbench.replay.commands import LINKS, answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import MACHINE_MAP, MAP_LOAD
from kernbench.replay.time import machine_map
from kernbench.replay.time.machine_map import direction, sides_of
from kernbench.replay.time.projections import projection
from kernbench.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"
PLACES = [(), (1,), (0, 0), (1, 15), (0, 0, 0)]


@pytest.fixture(scope="module")
def index():
    return Index(Trace.open(TRACES / "ccl_allreduce.msgpack"))


@pytest.mark.parametrize("place", PLACES)
def test_a_map_has_the_boxes_of_its_place_and_says_which_node_is_in_which(index, place):
    found = answer(index, MACHINE_MAP.ask(place=place))
    view = projection(index.trace, place)
    assert found.boxes == view.boxes
    for number, box in enumerate(view.boxes):
        assert {found.box_of[node] for node in box.nodes} == {number}
        assert box.x + box.w <= found.columns
        assert box.y + box.h <= found.rows


@pytest.mark.parametrize("place", PLACES)
def test_a_map_knows_the_way_between_any_two_boxes_that_an_edge_joins(index, place):
    found = answer(index, MACHINE_MAP.ask(place=place))
    edges = index.trace.edges
    joined = 0
    for src, dst in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        a = found.box_of.get(src)
        b = found.box_of.get(dst)
        if a is not None and b is not None and a != b:
            assert (a, b) in found.ways
            assert (b, a) in found.ways
            joined += 1
    assert joined


def test_the_lines_of_a_map_join_the_sides_of_cells():
    sides = sides_of([[(0, 0), (1, 0), (1, 1)], [(1, 1), (1, 2)]])
    assert sides == {(0, 0): 2, (1, 0): 8 + 4, (1, 1): 1 + 4, (1, 2): 1}


def test_directions_go_round_from_up():
    around = [(3, 2), (4, 3), (3, 4), (2, 3)]
    assert [direction((3, 3), cell) for cell in around] == [0, 1, 2, 3]


def test_boxes_that_lie_alike_are_joined_once(monkeypatch):
    index = Index(Trace.open(TRACES / "ccl_allreduce.msgpack"))
    asked = []
    way = machine_map.way

    def noted(view, *pair):
        asked.append(pair)
        return way(view, *pair)

    monkeypatch.setattr(machine_map, "way", noted)
    first = index.maps.of((0, 0))
    assert asked
    asked.clear()
    second = index.maps.of((1, 15))
    assert not asked
    assert second.ways is first.ways
    assert second.box_of != first.box_of
    assert index.maps.of((0, 0)) is first


def test_a_line_is_as_loaded_as_the_links_between_its_boxes(index):
    t0, t1 = index.launch_window
    place = (1,)
    found = answer(index, MAP_LOAD.ask(place=place, t0=t0, t1=t1))
    box_of = index.maps.of(place).box_of
    links = answer(index, LINKS.ask(t0=t0, t1=t1)).links
    nodes = index.trace.node_index
    assert found
    for load in found:
        mine = [
            link
            for link in links
            if (box_of.get(nodes[link.src]), box_of.get(nodes[link.dst])) == load.pair
        ]
        assert load.busy == max(link.busy for link in mine)
        assert load.nbytes == sum(round(link.nbytes) for link in mine)
        assert load.queue == max(link.queue for link in mine)
    assert all(a.busy >= b.busy for a, b in pairwise(found))
    assert len({load.pair for load in found}) == len(found)

"""A trace's machine is drawn as the machine itself; ways cross no third box."""

from itertools import pairwise, permutations

import pytest

from kernbench.replay.time.projections import projection, way
from kernbench.topology.views import project
from kernbench.trace import Trace, TraceWriter

PLACES = [(), (0,), (1,), (0, 1), (0, 1, 3)]


@pytest.fixture
def machine(tmp_path, small):
    writer = TraceWriter(tmp_path / "trace")
    writer.begin({}, small)
    writer.end(0.0)
    return Trace.open(tmp_path / "trace")


@pytest.mark.parametrize("place", PLACES)
def test_it_is_the_view_of_the_graph_with_node_indices_for_ids(machine, small, place):
    found = projection(machine, place)
    wanted = project(small.nodes.values(), small.edges, place)
    named = []
    for box in found.boxes:
        ids = tuple(machine.node_ids[node] for node in box.nodes)
        named.append(box._replace(nodes=ids))
    assert named == list(wanted.boxes)
    assert found.lines == wanted.lines
    assert found.boxes


def test_a_place_that_is_not_there_has_no_boxes(machine):
    assert projection(machine, (7,)).boxes == ()


@pytest.mark.parametrize("place", PLACES)
def test_a_way_goes_step_by_step_from_box_to_box_and_through_no_third(machine, place):
    view = projection(machine, place)
    box_at = {
        (x, y): number
        for number, box in enumerate(view.boxes)
        for x in range(box.x, box.x + box.w)
        for y in range(box.y, box.y + box.h)
    }
    for a, b in permutations(range(len(view.boxes)), 2):
        path = way(view, a, b)
        assert all(abs(x - u) + abs(y - v) == 1 for (x, y), (u, v) in pairwise(path)), (
            a,
            b,
        )
        assert (box_at[path[0]], box_at[path[-1]]) == (a, b)
        assert {box_at.get(cell) for cell in path} <= {a, b, None}, (a, b)
        assert None in {box_at.get(cell) for cell in path}
        assert min(min(cell) for cell in path) >= 0

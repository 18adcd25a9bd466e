"""A trace's machine is drawn as the machine itself is."""

import pytest

from kernbench.replay.projections import projection
from kernbench.topology.views import project
from kernbench.trace import Trace, TraceWriter


@pytest.mark.parametrize("place", [(), (0,), (1,), (0, 1), (0, 1, 3)])
def test_it_is_the_view_of_the_graph_with_node_indices_for_ids(tmp_path, small, place):
    writer = TraceWriter(tmp_path / "trace")
    writer.begin({}, small)
    writer.end(0.0)
    trace = Trace.open(tmp_path / "trace")
    found, wanted = projection(trace, place), project(small.nodes.values(), small.edges, place)
    named = [b._replace(nodes=tuple(trace.node_ids[n] for n in b.nodes)) for b in found.boxes]
    assert (named, found.lines) == (list(wanted.boxes), wanted.lines)
    assert found.boxes


def test_a_place_that_is_not_there_has_no_boxes(tmp_path, small):
    writer = TraceWriter(tmp_path / "trace")
    writer.begin({}, small)
    writer.end(0.0)
    assert projection(Trace.open(tmp_path / "trace"), (7,)).boxes == ()

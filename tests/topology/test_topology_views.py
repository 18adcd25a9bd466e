"""The four projections, on the shipped machine and on machines of other sizes."""

from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import pytest

from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import (
    CubeMeshSpec,
    CubeSpec,
    IoSpec,
    MemoryMapSpec,
    SipSpec,
    SipsSpec,
    SystemSpec,
    UcieSpec,
)
from kernbench.topology.views import project

# sips, cubes across, cubes down, PEs, IO chiplets, UCIe connections a side
MACHINES = [
    (2, 4, 4, 8, 1, 4),
    (1, 1, 1, 1, 1, 1),
    (9, 1, 2, 2, 1, 3),
    (1, 2, 8, 16, 2, 5),
]
PLACES = [(), (0,), (0, 0), (0, 0, 0)]


@pytest.fixture(scope="module", params=MACHINES, ids=str)
def graph(request, tmp_path_factory):
    sips, w, h, pes, ios, connections = request.param
    cube = CubeSpec(
        pes=pes,
        memory_map=MemoryMapSpec(48, pes),
        ucie=UcieSpec(connections_per_side=connections),
    )
    system = SystemSpec(sips=SipsSpec(count=sips))
    spec = TopologySpec(system, SipSpec(CubeMeshSpec(w, h), IoSpec(count=ios)), cube)
    return build_topology(spec, tmp_path_factory.mktemp("cache"))


@pytest.fixture(params=PLACES, ids=str)
def place(request):
    return request.param


@pytest.fixture
def view(graph, place):
    return project(graph.nodes.values(), graph.edges, place)


def test_every_node_of_the_place_is_in_exactly_one_box(graph, place, view):
    inside = [
        n.id
        for n in graph.nodes.values()
        if (n.sip, n.cube, n.pe)[: len(place)] == place
    ]
    assert Counter(node for box in view.boxes for node in box.nodes) == Counter(inside)


def test_boxes_do_not_touch(view):
    for a, b in combinations(view.boxes, 2):
        beside = a.x + a.w < b.x or b.x + b.w < a.x
        assert beside or a.y + a.h < b.y or b.y + b.h < a.y, (a, b)


def test_a_narrow_projection_is_the_same_in_fewer_columns(graph, place, view):
    narrow = project(graph.nodes.values(), graph.edges, place, narrow=True)
    assert narrow.lines == view.lines
    for wide, box in zip(view.boxes, narrow.boxes, strict=True):
        assert (box.nodes, box.label, box.y, box.h) == (
            wide.nodes,
            wide.label,
            wide.y,
            wide.h,
        )
        assert len(box.label) <= box.w <= wide.w
        assert box.x <= wide.x
    test_boxes_do_not_touch(narrow)


def test_boxes_start_at_the_corner_and_hold_their_labels(view):
    assert (min(box.x for box in view.boxes), min(box.y for box in view.boxes)) == (
        0,
        0,
    )
    assert all(box.w >= len(box.label) + 2 and box.label for box in view.boxes)


def test_lines_are_the_edges_between_boxes_each_once(graph, view):
    box_of = {
        node: number for number, box in enumerate(view.boxes) for node in box.nodes
    }
    expected = {
        (box_of[e.src], box_of[e.dst], e.kind)
        for e in graph.edges
        if e.src in box_of and e.dst in box_of and box_of[e.src] != box_of[e.dst]
    }
    assert sorted((line.src, line.dst, line.kind) for line in view.lines) == sorted(
        expected
    )


def test_boxes_lie_as_their_nodes_do(graph, view):
    def middle(box, axis):
        return round(
            sum(getattr(graph.nodes[n], axis) for n in box.nodes) / len(box.nodes), 3
        )

    for a, b in combinations(view.boxes, 2):
        if middle(a, "x_mm") < middle(b, "x_mm"):
            assert a.x <= b.x
        assert (middle(a, "y_mm") < middle(b, "y_mm")) == (a.y < b.y)


def test_boxes_are_named_for_what_they_hold(graph):
    spec = graph.spec
    levels = (
        ("SIP", spec.system.sips.count),
        ("cube", spec.sip.cube_mesh.w * spec.sip.cube_mesh.h),
    )
    for place, (name, count) in zip(
        PLACES, (*levels, ("PE", spec.cube.pes)), strict=False
    ):
        labels = [box.label for box in project(graph.nodes.values(), (), place).boxes]
        assert [lab for lab in labels if lab.startswith(name)] == [
            f"{name} {i}" for i in range(count)
        ]


def test_cubes_of_a_sip_lie_in_their_grid(graph):
    grid = graph.spec.sip.cube_mesh
    boxes = [
        b
        for b in project(graph.nodes.values(), (), (0,)).boxes
        if b.label[:4] == "cube"
    ]
    assert len({box.x for box in boxes}) == grid.w
    assert len({box.y for box in boxes}) == grid.h


def test_a_place_that_is_not_there_has_no_boxes(graph):
    view = project(graph.nodes.values(), graph.edges, (12,))
    assert (view.boxes, view.lines) == ((), ())


def test_rows_made_from_columns_give_the_same_boxes(graph, place, view):
    """As a trace has them: nodes are numbers, edges join numbers."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    fields = ("type", "sip", "cube", "pe", "engine", "x_mm", "y_mm")
    nodes = [
        SimpleNamespace(id=number[n.id], **{f: getattr(n, f) for f in fields})
        for n in graph.nodes.values()
    ]
    edges = [
        SimpleNamespace(src=number[e.src], dst=number[e.dst], kind=e.kind)
        for e in graph.edges
    ]
    numbered = project(nodes, edges, place)
    assert numbered.lines == view.lines
    ids = list(graph.nodes)
    named = [
        (tuple(ids[n] for n in box.nodes), box.label, box.x, box.y)
        for box in numbered.boxes
    ]
    assert named == [(box.nodes, box.label, box.x, box.y) for box in view.boxes]

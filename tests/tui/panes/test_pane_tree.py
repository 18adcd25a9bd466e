"""The tree of rows: which levels there are, what is open, lanes, the cursor's row."""

from __future__ import annotations

import numpy as np
import pytest
from bench import TRACES

from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import LANES, TRAFFIC
from kernbench.trace import Trace
from tui.panes.tree import Tree, row_of

NONE = frozenset[str]()
COLUMNS = 60
ROOM = 60
"""Lines that all rows of a small machine fit into."""
LITTLE_ROOM = 20


@pytest.fixture(scope="module")
def matmul() -> Index:
    return Index(Trace.open(TRACES / "matmul.msgpack"))


@pytest.fixture(scope="module")
def many_cubes() -> Index:
    return Index(Trace.open(TRACES / "mlp_tp.msgpack"))


def test_a_level_that_tells_nothing_apart_has_no_rows(matmul):
    ids = {branch.id for branch in Tree(matmul).rows}
    assert "pe0" in ids
    assert not ids & {"s0", "sip0", "s0c0", "c0"}


def test_a_group_holds_the_rows_below_it(many_cubes):
    tree = Tree(many_cubes)
    nodes = many_cubes.trace.nodes
    for branch in tree.rows:
        assert branch.components == tree.components[branch.low : branch.high]
        assert branch.group == (len(branch.components) > 1)
    cube = tree.at["s1c3"]
    assert {int(nodes.sip[node]) for node in cube.components} == {1}
    assert {int(nodes.cube[node]) for node in cube.components} == {3}


def test_a_group_knows_how_many_pes_are_in_it(many_cubes):
    tree = Tree(many_cubes)
    assert tree.at["s0"].pes == 16
    assert tree.at["s0c0"].pes == 1


def test_a_group_is_as_busy_as_the_groups_in_it_together(many_cubes):
    tree = Tree(many_cubes)
    window = *many_cubes.launch_window, COLUMNS
    cubes = [b for b in tree.rows if b.id.startswith("s0c") and b.group]
    assert len(cubes) == 16
    (whole,) = many_cubes.timelines.draw_rows([tree.at["s0"].row], *window)
    parts = many_cubes.timelines.draw_rows([cube.row for cube in cubes], *window)
    host = [b for b in tree.rows if b.id.startswith("sip0.io") and not b.group]
    parts += many_cubes.timelines.draw_rows([b.row for b in host], *window)
    np.testing.assert_allclose(whole.busy, sum(row.busy for row in parts), atol=1e-6)


def test_a_small_tree_is_open_wherever_the_cursor_is(matmul):
    tree = Tree(matmul)
    led = [b for b in tree.rows if b.lead is not None]
    assert len(led) == 8  # whose first component has no row of its own
    for here in (0, len(tree.components) - 1):
        shown = {row.id for row in tree.shown(NONE, here, None, ROOM)}
        missing = {row.id for row in tree.rows} - shown
        assert missing == {f"sip0.cube0.pe{i}.pe_scheduler" for i in range(8)}


def test_where_there_is_little_room_only_the_pe_of_the_cursor_is_open(matmul):
    tree = Tree(matmul)
    here = tree.at["pe3"].low + 3
    shown = tree.shown(NONE, here, None, LITTLE_ROOM)
    groups = [row for row in shown if row.group]
    opened = [row.id for row in groups if tree.is_open(row, NONE, here, LITTLE_ROOM)]
    assert [row.id for row in groups] == [f"pe{i}" for i in range(8)]
    assert opened == ["pe3"]


def test_the_pe_of_the_cursor_is_shown_by_lane_if_there_is_room(matmul):
    tree = Tree(matmul)
    here = tree.at["pe3"].low + 3
    for room, lanes in ((ROOM, 5), (LITTLE_ROOM, 5), (8, 1)):
        shown = tree.shown(NONE, here, None, room)
        dma = [row for row in shown if row.id == "sip0.cube0.pe3.pe_dma"]
        assert len(dma) == lanes, room
        others = [row for row in shown if row.lane is not None]
        assert {row.id.split(".")[2] for row in others} <= {"pe3"}


def test_what_carries_bytes_is_below_in_groups(matmul):
    tree = Tree(matmul)
    groups = answer(matmul, TRAFFIC.ask())
    rows = tree.traffic(groups, NONE)
    assert [row.id for row in rows][:3] == [
        "carries hbm",
        "carries links",
        "carries routers",
    ]
    opened = tree.traffic(groups, tree.toggled(rows[0], NONE, 0, ROOM))
    assert len(opened) == len(rows) + 8
    assert opened[1].label == "s0c0.hbm_ctrl.pe0"
    carrying = {number for row in rows for number in row.traffic}
    serving = set(tree.components)
    used = set(matmul.activity.used().tolist())
    assert carrying | serving == used | serving
    assert not carrying & serving


def test_a_large_tree_is_open_towards_the_cursor(many_cubes):
    tree = Tree(many_cubes)
    here = tree.at["s1c3"].low
    opened = {
        branch.id
        for branch in tree.rows
        if branch.group and tree.is_open(branch, NONE, here, LITTLE_ROOM)
    }
    assert opened == {"s1", "s1c3"}
    shown = tree.shown(NONE, here, None, LITTLE_ROOM)
    assert len(shown) < len(tree.rows)
    assert tree.components[here] in [branch.components[0] for branch in shown]


def test_what_is_closed_hides_all_below_it(matmul):
    tree = Tree(matmul)
    folds = tree.toggled(tree.at["pe0"], NONE, 0, ROOM)
    assert folds == {"-pe0"}
    ids = [branch.id for branch in tree.shown(folds, 0, None, ROOM)]
    assert "pe0" in ids
    assert not [id for id in ids if ".pe0." in id]
    others = tree.shown(NONE, 0, None, ROOM)
    assert len(ids) < len(others)
    assert tree.toggled(tree.at["pe0"], folds, 0, ROOM) == {"+pe0"}


def test_a_component_of_several_lanes_has_a_row_for_each(matmul):
    tree = Tree(matmul)
    lanes = answer(matmul, LANES.ask())
    shown = tree.shown(NONE, 0, lanes, ROOM)
    for branch in tree.rows:
        if branch.group or branch.id.endswith("pe_scheduler"):
            continue
        mine = [row for row in shown if row.id == branch.id]
        slots = lanes[branch.components[0]]
        if len(slots) < 2:
            assert mine == [branch]
        else:
            assert [row.lane for row in mine] == list(slots)
            assert [row.label for row in mine] == [
                f"{branch.label} {lane}" for lane in slots
            ]


def test_the_lowest_row_that_holds_an_op_is_its_row(matmul):
    tree = Tree(matmul)
    lanes = answer(matmul, LANES.ask())
    shown = tree.shown(NONE, 0, lanes, ROOM)
    for branch in shown:
        if not branch.group:
            node = branch.components[0]
            lane = lanes[node][0] if branch.lane is None else branch.lane
            found = shown[row_of(shown, tree.number(node), lane)]
            assert found is branch
    folds = frozenset({"-pe3"})
    folded = tree.shown(folds, 0, None, ROOM)
    inside = tree.at["pe3"].low + 2
    assert folded[row_of(folded, inside, 0)].id == "pe3"

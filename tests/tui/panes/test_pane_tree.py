"""The tree of rows: which levels there are, what is open, lanes, the cursor's row."""

from __future__ import annotations

import numpy as np
import pytest
from bench import TRACES

from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import LANES
from kernbench.trace import Trace
from tui.panes.tree import Tree, row_of

NONE = frozenset[str]()
COLUMNS = 60


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
    assert tree.shown(NONE, 0, None) == tree.rows
    assert tree.shown(NONE, len(tree.components) - 1, None) == tree.rows


def test_a_large_tree_is_open_towards_the_cursor(many_cubes):
    tree = Tree(many_cubes)
    here = tree.at["s1c3"].low
    opened = {
        branch.id
        for branch in tree.rows
        if branch.group and tree.is_open(branch, NONE, here)
    }
    assert opened == {"s1", "s1c3"}
    shown = tree.shown(NONE, here, None)
    assert len(shown) < len(tree.rows)
    assert tree.components[here] in [branch.components[0] for branch in shown]


def test_what_is_closed_hides_all_below_it(matmul):
    tree = Tree(matmul)
    folds = tree.toggled(tree.at["pe0"], NONE, 0)
    assert folds == {"-pe0"}
    ids = [branch.id for branch in tree.shown(folds, 0, None)]
    assert "pe0" in ids
    assert not [id for id in ids if ".pe0." in id]
    assert len(ids) == len(tree.rows) - 4
    assert tree.toggled(tree.at["pe0"], folds, 0) == {"+pe0"}


def test_a_component_of_several_lanes_has_a_row_for_each(matmul):
    tree = Tree(matmul)
    lanes = answer(matmul, LANES.ask())
    shown = tree.shown(NONE, 0, lanes)
    for branch in tree.rows:
        if branch.group:
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
    shown = tree.shown(NONE, 0, lanes)
    for branch in shown:
        if not branch.group:
            node = branch.components[0]
            lane = lanes[node][0] if branch.lane is None else branch.lane
            found = shown[row_of(shown, tree.number(node), lane)]
            assert found is branch
    folds = frozenset({"-pe3"})
    folded = tree.shown(folds, 0, None)
    inside = tree.at["pe3"].low + 2
    assert folded[row_of(folded, inside, 0)].id == "pe3"

"""The cells that the timeline asks for, and those that its views mark."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from kernbench.common.progress import Cancelled, no_progress
from kernbench.replay.commands import answer
from kernbench.replay.inner_commands import (
    CELLS,
    CRITICAL_CELLS,
    HAZARD_CELLS,
    INDEXED_ROWS,
    LANES,
    SUMMARY,
)
from kernbench.replay.time.timeline import RowKey
from kernbench.replay.views.timeline import cells_hit

COLUMNS = 40


@pytest.fixture
def index(session):
    return session.index


def components(index):
    return index.op_index.components.tolist()


def asked(command, index, rows, pes=None, window=None):
    """The answer about rows in a window, by default that of the launches."""
    t0, t1 = window or index.launch_window
    query = command.ask(
        rows=tuple(rows),
        pes=pes or (1,) * len(rows),
        t0=t0,
        t1=t1,
        columns=COLUMNS,
    )
    return answer(index, query)


def test_a_cell_has_the_class_of_its_row_and_its_busy_share(index):
    rows = [RowKey((node,)) for node in components(index)]
    drawn = index.timelines.draw_rows(rows, *index.launch_window, COLUMNS)
    found = asked(CELLS, index, rows)
    for row, cells in zip(drawn, found, strict=True):
        assert cells.letters == row.classes
        assert cells.busy.tolist() == np.minimum(row.busy, 1.0).tolist()
    assert any(0.0 < busy < 1.0 for cells in found for busy in cells.busy)


def test_a_group_is_as_busy_as_its_pes_are_on_the_average(index):
    row = RowKey(tuple(components(index)))
    (drawn,) = index.timelines.draw_rows([row], *index.launch_window, COLUMNS)
    (one,) = asked(CELLS, index, [row], (1,))
    (eight,) = asked(CELLS, index, [row], (8,))
    assert one.busy.tolist() == np.minimum(drawn.busy, 1.0).tolist()
    assert eight.busy.tolist() == np.minimum(drawn.busy / 8, 1.0).tolist()
    assert one.busy.tolist() != eight.busy.tolist()


def test_cells_are_the_same_after_a_summary_of_their_window(index):
    rows = [RowKey((node,)) for node in components(index)]
    before = asked(CELLS, index, rows)
    t0, t1 = index.launch_window
    assert answer(index, SUMMARY.ask(t0=t0, t1=t1, columns=COLUMNS))
    assert index.timelines.has_summary(t0, t1, COLUMNS)
    for later, earlier in zip(asked(CELLS, index, rows), before, strict=True):
        assert later.letters == earlier.letters
        assert later.busy.tolist() == earlier.busy.tolist()
        assert later.slices == earlier.slices


def test_rows_that_were_indexed_are_not_missing(index):
    rows = tuple(RowKey((node,)) for node in components(index))
    assert index.timelines.unindexed(rows).rows == rows
    assert answer(index, INDEXED_ROWS.ask(rows=rows))
    assert index.timelines.unindexed(rows) == ((), 0)


def test_every_lane_that_served_an_op_is_known(index):
    lanes = answer(index, LANES.ask())
    assert sorted(lanes) == components(index)
    for node, slots in lanes.items():
        assert slots == index.op_index.lanes_of(node)


@pytest.mark.parametrize("command", [CELLS, LANES, CRITICAL_CELLS, HAZARD_CELLS])
def test_what_the_timeline_asks_can_be_cancelled(index, command):
    def cancelled(done):
        raise Cancelled("enough")

    rows = tuple(RowKey((node,)) for node in components(index))
    query = (
        command.ask()
        if command is LANES
        else command.ask(
            rows=rows, pes=(1,) * len(rows), t0=0.0, t1=1.0, columns=COLUMNS
        )
    )
    with pytest.raises(Cancelled):
        answer(index, query, cancelled)
    answer(index, query, no_progress)


def by_op(index, ops, row, window):
    """The cells in which any of some ops of a row is in service, an op at a time."""
    edges = np.linspace(*window, COLUMNS + 1)
    hit = np.zeros(COLUMNS, np.bool_)
    (node,), lane = row
    for op in ops:
        record = index.ops.row(op)
        slot = int(index.trace.op_columns.slot[index.ops.row_of(op)])
        if index.ops.component(op) == node and lane in (None, slot):
            hit |= (record.t_start < edges[1:]) & (record.t_end > edges[:-1])
    return hit


def test_cells_of_the_critical_path_have_an_op_of_it_in_service(index):
    path = index.critical.path()
    ops = {op for op in path.ops.tolist() if op >= 0}
    rows = [RowKey((node,)) for node in components(index)]
    lanes = answer(index, LANES.ask())
    rows += [RowKey((node,), lane) for node, some in lanes.items() for lane in some]
    window = index.launch_window
    found = asked(CRITICAL_CELLS, index, rows)
    for row, hits in zip(rows, found, strict=True):
        whole = by_op(index, ops, row, window)
        assert not (hits & ~whole).any()
        assert not hits.flags.writeable
    assert any(hits.any() for hits in found)


def test_what_is_marked_is_looked_for_once(index):
    rows = [RowKey((node,)) for node in components(index)]
    asked(CRITICAL_CELLS, index, rows)
    known = index.marked_ops["critical path"]
    asked(CRITICAL_CELLS, index, rows, window=(0.0, 10.0))
    assert index.marked_ops["critical path"] is known


def test_a_run_without_hazards_has_no_cells_with_any(index):
    rows = [RowKey((node,)) for node in components(index)]
    assert not any(hits.any() for hits in asked(HAZARD_CELLS, index, rows))


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=8)


@given(intervals=INTERVALS, t0=st.integers(-5, 30), span=st.integers(1, 40))
def test_a_cell_is_hit_where_an_interval_lies_in_it(intervals, t0, span):
    intervals = sorted(intervals)
    starts = np.array([start for start, _ in intervals], np.float64)
    lengths = np.array([length for _, length in intervals], np.float64)
    edges = np.linspace(t0, t0 + span, 9)
    wanted = np.zeros(8, np.bool_)
    for start, length in intervals:
        end = start + max(length, 1e-9)
        wanted |= (start < edges[1:]) & (end > edges[:-1])
    assert cells_hit(starts, starts + lengths, edges).tolist() == wanted.tolist()

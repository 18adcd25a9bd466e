"""Slices of rows against a look at every op; names, causes, and what carries bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    CAUSES,
    CRITICAL_OPS,
    HAZARD_OPS,
    TRAFFIC,
    TRAFFIC_CELLS,
)
from kernbench.replay.moves import to_cause
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import Session
from kernbench.replay.time.op_classes import op_class
from kernbench.replay.time.slices import SliceIndex
from kernbench.replay.time.timeline import RowKey
from kernbench.trace import Trace

TRACES = Path(__file__).parents[3] / "traces"
NAMES = ["matmul", "flash_attention", "ccl_allreduce", "mlp_tp"]
COLUMNS = 90


@pytest.fixture(scope="module", params=NAMES)
def index(request) -> Index:
    return Index(Trace.open(TRACES / f"{request.param}.msgpack"))


def brute_force(index, row: RowKey, t0, t1, columns):
    """The ops of a row that last for a cell and are in service in a window."""
    found = []
    for op in range(len(index.ops)):
        record = index.trace.ops[op]
        node = index.ops.component(op)
        lane = int(index.trace.op_columns.slot[index.ops.row_of(op)])
        is_in = row.components == (node,) and row.lane in (None, lane)
        lasts = record.t_end - record.t_start
        overlaps = record.t_start < t1 and record.t_end > t0
        if is_in and overlaps and lasts >= (t1 - t0) / columns:
            found.append((op, record.t_start, record.t_end))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 1 << 12])
@pytest.mark.parametrize("share", [1.0, 0.2, 0.03])
def test_slices_are_the_ops_that_last_for_a_cell(index, share, few):
    slices = SliceIndex(index.trace, index.op_index, few)
    low, high = index.launch_window
    nodes = index.op_index.components.tolist()[:6]
    rows = [RowKey((node,)) for node in nodes]
    lanes = index.op_index.lanes_of(nodes[-1])
    rows[-1:] = [RowKey((nodes[-1],), lane) for lane in lanes]
    for start in np.random.default_rng(1).uniform(low, high, 3).tolist():
        window = start, start + (high - low) * share
        found = slices.slices(rows, *window, COLUMNS)
        for row, mine in zip(rows, found, strict=True):
            wanted = brute_force(index, row, *window, COLUMNS)
            assert [(one.op, one.t0, one.t1) for one in mine] == wanted


def test_a_slice_has_the_class_of_its_op_and_neighbours_differ(index):
    rows = [RowKey((node,)) for node in index.op_index.components.tolist()]
    found = index.slices.slices(rows, *index.launch_window, 2000)
    for row, slices in zip(rows, found, strict=True):
        served = index.op_index.ops_of(row.components[0]).tolist()
        for one in slices:
            name = index.trace.ops[one.op].op_name
            kind = int(index.trace.op_columns.kind[index.ops.row_of(one.op)])
            assert one.letter == op_class(name, kind)
            assert one.shade == served.index(one.op) % 2


def named(trace: str) -> dict[str, set[str]]:
    """The names of the ops of a trace, by the name in its log."""
    index = Index(Trace.open(TRACES / f"{trace}.msgpack"))
    found: dict[str, set[str]] = {}
    rows = index.trace.order[np.arange(len(index.ops))]
    for op, name in enumerate(index.slices.names.of(rows)):
        found.setdefault(index.trace.ops[op].op_name, set()).add(name)
    return found


def test_stages_are_named_by_their_tile_and_what_moves_by_tensor_and_box():
    names = named("matmul")
    assert names["composite_gemm"] == {"gemm 128x16x128"}
    assert names["TileToken/GEMM"] == {f"GEMM {i},0,{k}" for i in "01" for k in "01"}
    reads = {f"a,b {i},0,{k}" for i in "01" for k in "01"}
    assert names["TileToken/DMA_READ"] == reads
    assert names["TileToken/DMA_WRITE"] == {"c 0,0,1", "c 1,0,1"}
    assert "a[0:128]" in names["host_write"]
    overflow = named("fault_overflow")
    assert overflow["dma_read"] == {"x[0:8]"}
    assert overflow["dma_write"] == {"y[0:8]"}
    attention = named("flash_attention")
    assert "k[0:32]" in attention["dma_read"]
    assert attention["gemm_f16"] == {"gemm 8x32x32"}
    assert attention["exp"] == {"exp"}


def test_the_cause_of_an_op_is_the_one_that_t_goes_to(index):
    for op in range(0, len(index.ops), 7):
        causes = answer(index, CAUSES.ask(op))
        there = to_cause(index, Session(cursor=op), NoArguments(), None).cursor
        waits = index.trace.waits_of(index.ops.row_of(op))
        if there != op:
            assert causes.cause.op == there
        elif causes.cause is not None:
            assert causes.cause.op in {int(index.trace.position[w[4]]) for w in waits}
        longest = max((w[3] - w[2] for w in waits), default=0.0)
        assert causes.waited == (longest if longest > 0.5 else 0.0)
        assert bool(causes.reason) == (longest > 0.5)


def test_before_the_first_op_nothing_is_waited_for(index):
    causes = answer(index, CAUSES.ask(-1))
    assert (causes.op, causes.cause, causes.effect) == (-1, None, None)


def test_everything_that_is_recorded_has_a_row(index):
    groups = answer(index, TRAFFIC.ask())
    carrying = {number for group in groups for number in group.components}
    serving = set(index.op_index.components.tolist())
    assert carrying == set(index.activity.used().tolist()) - serving
    for group in groups:
        assert len(group.components) == len(group.labels) == len(set(group.labels))


def test_a_group_is_as_busy_as_the_busiest_in_it(index):
    group = answer(index, TRAFFIC.ask())[0]
    t0, t1 = index.launch_window
    every = (group.components, *((number,) for number in group.components))
    query = TRAFFIC_CELLS.ask(rows=every, t0=t0, t1=t1, columns=COLUMNS)
    whole, *each = answer(index, query)
    np.testing.assert_array_equal(whole.busy, np.max([one.busy for one in each], 0))
    waits = np.max([one.waiting for one in each], 0)
    np.testing.assert_array_equal(whole.waiting, waits)
    assert whole.busy.max() > 0


def test_marked_ops_are_positions_that_ascend():
    index = Index(Trace.open(TRACES / "fault_missing_wait.msgpack"))
    assert answer(index, HAZARD_OPS.ask()).tolist() == [1, 2]
    path = answer(index, CRITICAL_OPS.ask())
    assert (np.diff(path) > 0).all()
    assert len(path)

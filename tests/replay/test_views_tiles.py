"""The list of composites that the tiles' pane asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import RUNNING_COMPOSITES, TILE_LINES, TILE_OUTLINE
from kernbench.trace import Trace, TraceWriter

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture
def index(session):
    return session.index


def outline(index, op):
    return answer(index, TILE_OUTLINE.ask(op))


def lines(index, *rows, unended=None):
    return answer(index, TILE_LINES.ask(rows=rows, unended=unended))


def test_an_op_is_placed_in_the_list_of_all_composites(index):
    positions = index.tiles.positions.tolist()
    for place, op in enumerate(positions):
        found = outline(index, op)
        assert (found.composite, found.place) == (op, place)
        assert found.composites == len(positions)
        assert found.current is None
        assert found.tiles == len(index.tiles.tiles_of(op).rows) > 0
        assert not found.empty


def test_an_op_of_a_tile_is_in_that_tile(index):
    tiles = index.tiles.tiles_of(int(index.tiles.positions[0])).rows
    for number, tile in enumerate(tiles):
        assert outline(index, tile.spans[0].op).current == number


def test_before_the_first_op_the_first_composite_is_meant(index):
    assert outline(index, -1).place == 0


@pytest.mark.parametrize("trace", ["flash_attention", "fault_ring_by_name"])
def test_a_trace_without_composites_has_nothing_to_list(trace):
    found = outline(Index(Trace.open(TRACES / f"{trace}.msgpack")), 3)
    assert found.empty
    assert found.note == "no composite has run in this trace"


def test_rows_are_composites_and_tiles_with_their_times(index):
    op = int(index.tiles.positions[1])
    tiles = index.tiles.tiles_of(op).rows
    whole, third = lines(index, (1, None), (1, 2))
    row = index.ops.row(op)
    assert (whole.op, whole.tile) == (op, None)
    assert (whole.t0, whole.t1) == (row.t_start, row.t_end)
    assert (third.op, third.tile) == (op, tiles[2])
    assert (third.t0, third.t1) == (tiles[2].spans[0].t0, tiles[2].spans[-1].t1)


def test_what_runs_at_a_time_has_the_tiles_of_then(index):
    op = int(index.tiles.positions[0])
    tile = index.tiles.tiles_of(op).rows[3]
    t0 = tile.spans[0].t0
    t1 = tile.spans[-1].t1
    found = answer(index, RUNNING_COMPOSITES.ask(t0=t0, t1=t1))
    seen = index.tiles.between(t0, t1)
    assert len(found) == len(seen.composites)
    for running, tiles in zip(found, seen.composites, strict=True):
        rows = [(running.place, number) for number in running.tiles]
        shown = lines(index, *rows)
        assert tuple(line.tile for line in shown) == tiles.rows
        assert {line.op for line in shown} <= {tiles.composite}


def test_a_composite_that_never_ended_stands_alone(recorded, tmp_path):
    trace = Trace.open(recorded.trace_path)
    ops = trace.ops
    kept = [i for i in range(len(ops)) if ops[i].op_name != "composite_gemm"]
    writer = TraceWriter(tmp_path / "cut")
    for row, i in enumerate(kept):
        at = int(trace.order[i])
        cmd = int(trace.op_columns.cmd[at])
        record = replace(ops[i], dependency_ids=[])
        writer.op(row, record, cmd, 0, [], trace.transfers_of(at))
    writer.close()
    index = Index(Trace.open(tmp_path / "cut"))
    op = next(i for i in range(len(kept)) if "GEMM" in index.trace.ops[i].op_name)
    found = outline(index, op)
    assert (found.composite, found.place, found.composites) == (None, 0, 1)
    assert found.tiles > 0
    assert not found.empty
    whole, first = lines(index, (0, None), (0, 0), unended=op)
    assert (whole.op, whole.tile) == (-1, None)
    assert first.tile == index.tiles.tiles_of(op).rows[0]

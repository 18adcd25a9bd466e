"""The tiles of a composite, and those of a window of time."""

import numpy as np
import pytest

from kernbench.common.progress import Cancelled
from kernbench.replay.text import as_text


def stage(session, low, high):
    """From so far into the launches to so far, ns."""
    t0, t1 = session.launch_window()
    return t0 + (t1 - t0) * low, t0 + (t1 - t0) * high


def tiles_in_service(session, t0, t1):
    """(composite, tile index) of the tiles between their first and last stage then."""
    spans = {}
    for op, record in enumerate(session.trace.ops):
        if record.op_name.startswith("TileToken/"):
            tile = session.index.op_index.composite_of(op), record.params["tile_index"]
            spans.setdefault(tile, []).append((record.t_start, record.t_end))
    found = set()
    for tile, stages in spans.items():
        begin = min(start for start, _ in stages)
        end = max(end for _, end in stages)
        if begin < t1 and end > t0:
            found.add(tile)
    return found


def test_the_tiles_of_a_time_are_those_in_some_stage_then(session):
    t0, t1 = stage(session, 0.3, 0.4)
    found = set()
    for tiles in session.tiles_between(t0, t1).composites:
        found.update((tiles.composite, row.index) for row in tiles.rows)
    assert found == tiles_in_service(session, t0, t1)
    assert found


def test_the_composites_of_a_time_are_by_their_start(session):
    t0, t1 = stage(session, 0.3, 0.4)
    starts = [tiles.t0 for tiles in session.tiles_between(t0, t1).composites]
    assert starts == sorted(starts)


def test_composites_beyond_the_limit_are_counted(session):
    low, high = session.launch_window()
    found = session.index.tiles.between(low, high, limit=1)
    assert (len(found.composites), found.more) == (1, 1)
    assert as_text(found).splitlines()[-1] == "1 more composites"


def test_a_time_without_tiles_says_so(session):
    assert as_text(session.tiles_between(0, 1)) == "no tile from 0.00ns to 1.00ns"


def test_every_tile_names_its_composite_and_other_ops_name_none(session):
    trace = session.trace
    cmd = trace.op_columns.cmd[trace.order]
    composite_by_cmd = {}
    for op, record in enumerate(trace.ops):
        if record.op_name.startswith("composite_"):
            composite_by_cmd[cmd[op]] = op
    for op, record in enumerate(trace.ops):
        wanted = composite_by_cmd.get(cmd[op])
        assert session.index.op_index.composite_of(op) == wanted, record


def test_the_composites_are_known_by_their_positions(session):
    names = [session.trace.ops[int(op)].op_name for op in session.index.tiles.positions]
    assert set(names) == {"composite_gemm"}
    assert len(names) == 2


def test_an_op_before_all_composites_shows_the_first_and_one_after_it_the_last(session):
    first, second = session.index.tiles.positions.tolist()
    assert session.index.tiles.tiles_of(-1).composite == first
    assert session.index.tiles.tiles_of(len(session) - 1).composite == second


def test_a_window_of_tiles_can_be_cancelled_and_asked_for_again(session):
    window = session.launch_window()
    wanted = session.index.tiles.between(*window)

    def cancel(done):
        if done > 0:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        session.index.tiles.between(*window, progress=cancel)
    assert session.index.tiles.between(*window) == wanted


def test_the_tiles_command_takes_a_time(session):
    low, high = session.launch_window()
    text = as_text(session.run_line(f"tiles {low} {high}"))
    assert text.count("composite #") == 2


def test_the_box_of_a_tile_lies_inside_its_matrix(session):
    for tiles in session.tiles_between(*session.launch_window()).composites:
        for row in tiles.rows:
            assert row.origin == tuple(np.multiply(row.index, 32))
            assert max(row.extent) <= 32
            assert min(row.extent) > 0

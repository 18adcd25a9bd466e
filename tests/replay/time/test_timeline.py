"""Timelines of logs made by hand, lanes, ops in flight; the tiles of a window of time."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from replay_logs import PE0, PE1, Log, load, store

from kernbench.replay import ReplaySession
from kernbench.replay.commands import run_command
from kernbench.replay.text import as_text
from kernbench.replay.time.tiles import composite_of
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

OPS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 3), st.booleans()),
    max_size=40,
)


@pytest.fixture
def drawn(tmp_path, small):
    """The session of ops given as (start, length, slot, is it a load)."""

    def drawn(ops):
        log = Log(tmp_path / "trace", small)
        for start, length, slot, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
            msg = load(0, 0) if is_load else store(0, 0)
            msg.slot = slot
            log.op(msg, start, start + length)
        return log.session()

    return drawn


def shares(ops, edges):
    """Busy share of each cell, one op at a time."""
    found = np.zeros(len(edges) - 1)
    for start, length, *_ in ops:
        shared = np.minimum(start + length, edges[1:]) - np.maximum(start, edges[:-1])
        found += np.maximum(shared, 0) / np.diff(edges)
    return found


@settings(max_examples=60, deadline=None)
@given(
    ops=OPS, t0=st.integers(-5, 50), span=st.integers(1, 80), columns=st.integers(1, 30)
)
def test_rows_and_lanes_are_the_summed_overlaps(
    tmp_path_factory, small, ops, t0, span, columns
):
    log = Log(tmp_path_factory.mktemp("log") / "trace", small)
    for start, length, slot, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
        msg = load(0, 0) if is_load else store(0, 0)
        msg.slot = slot
        log.op(msg, start, start + length)
    session = log.session()
    components, edges = (
        session.timelines.components.tolist(),
        np.linspace(t0, t0 + span, columns + 1),
    )
    whole = session.timeline(components, t0, t0 + span, columns)
    for row in whole.rows:
        np.testing.assert_allclose(row.busy, shares(ops, edges), atol=1e-9)
    lanes = session.timeline(components, t0, t0 + span, columns, lanes=True).rows
    assert [row.lane for row in lanes] == sorted({slot for _, _, slot, _ in ops})
    for row in lanes:
        mine = [op for op in ops if op[2] == row.lane]
        np.testing.assert_allclose(row.busy, shares(mine, edges), atol=1e-9)
    for row in (*whole.rows, *lanes):
        mine = ops if row.lane is None else [op for op in ops if op[2] == row.lane]
        for letter, is_load in (("R", True), ("W", False)):
            one, other = (
                shares([o for o in mine if o[3] == kind], edges)
                for kind in (is_load, not is_load)
            )
            seen = np.array(list(row.classes)) == letter
            assert seen[one > other + 1e-9].all()


def test_ops_that_take_no_time_show_their_letter_in_small(drawn):
    session = drawn([(10, 0, 0, True), (30, 10, 0, False), (35, 0, 0, True)])
    row = session.timeline(session.timelines.components.tolist(), 0, 50, 5).rows[0]
    assert row.classes == " R W "
    assert row.busy.tolist() == [0, 0, 0, 1, 0]
    assert as_text(
        session.timeline(session.timelines.components.tolist(), 0, 50, 5)
    ).endswith("| r W |")


def test_a_component_that_served_nothing_is_empty(drawn):
    session = drawn([(0, 10, 0, True)])
    idle = session.trace.node_index[f"{PE1}.pe_dma"]
    assert session.timeline([idle], 0, 20, 4).rows[0].classes == "    "


def test_a_component_has_as_many_lanes_as_it_used(drawn):
    session = drawn([(0, 10, 1, True), (0, 12, 6, True)])
    assert [
        len(session.timelines.slots_of(c)) for c in session.timelines.components
    ] == [2]
    rows = session.timeline(session.timelines.components.tolist(), 0, 20, 4, lanes=True)
    assert [
        line.split("|")[0].split()[-1] for line in as_text(rows).splitlines()[1:]
    ] == ["1", "6"]


def test_what_a_peer_pushes_is_a_write(tmp_path):
    run_bench("ccl_allreduce", trace=tmp_path / "trace")
    session = ReplaySession(Trace.open(tmp_path / "trace"))
    letters = {row.name: row.letter for row in session.rows(0, len(session))}
    assert (letters["ipcq_copy"], letters["ipcq_recv"]) == ("W", "R")


@settings(max_examples=30, deadline=None)
@given(
    ops=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 900)), max_size=60),
    copies=st.integers(1, 40),
)
def test_ops_in_flight_are_those_that_have_started_and_not_ended(
    tmp_path_factory, small, ops, copies
):
    log = Log(tmp_path_factory.mktemp("log") / "trace", small)
    for i, (start, length) in enumerate(sorted(ops * copies, key=sum)):
        log.op(load(0, 0), start, start + length, pe=(PE0, PE1)[i % 2])
    session = log.session()
    for op in range(0, len(session), 37):
        session.goto(op)
        columns, order = session.trace.op_columns, session.trace.order
        flying = (columns.t_start[order] <= session.time) & (
            columns.t_end[order] > session.time
        )
        assert session.in_flight() == np.flatnonzero(flying).tolist()


# -- tiles --


def test_the_tiles_of_a_time_are_those_in_some_stage_then(session):
    low, high = session.launch_window()
    t0, t1 = low + (high - low) * 0.3, low + (high - low) * 0.4
    found = session.tiles_between(t0, t1)
    wanted = {}
    for op in range(len(session)):
        record = session.trace.ops[op]
        if record.op_name.startswith("TileToken/"):
            key = composite_of(session.trace, op), record.params["tile_index"]
            wanted.setdefault(key, []).append((record.t_start, record.t_end))
    wanted = {
        k for k, s in wanted.items() if min(s)[0] < t1 and max(e for _, e in s) > t0
    }
    assert {
        (c.composite, row.index) for c in found.composites for row in c.rows
    } == wanted
    starts = [tiles.t0 for tiles in found.composites]
    assert starts == sorted(starts)


def test_what_is_beyond_the_limit_is_counted(session):
    low, high = session.launch_window()
    found = session.composites.between(low, high, limit=1)
    assert (len(found.composites), found.more) == (1, 1)
    assert as_text(found).splitlines()[-1] == "1 more composites"
    assert as_text(session.tiles_between(0, 1)) == "no tile from 0.00ns to 1.00ns"


def test_every_tile_names_its_composite_and_other_ops_name_none(session):
    for op in range(len(session)):
        record, cmd = (
            session.trace.ops[op],
            session.trace.op_columns.cmd[session.trace.order],
        )
        mine = [
            int(i)
            for i in np.flatnonzero(cmd == cmd[op])
            if session.trace.ops[int(i)].op_name.startswith("composite_")
        ]
        assert composite_of(session.trace, op) == (mine[0] if mine else None), record


def test_the_tiles_command_takes_a_time(session):
    low, high = session.launch_window()
    text = as_text(run_command(session, f"tiles {low} {high}"))
    assert text.count("composite #") == 2

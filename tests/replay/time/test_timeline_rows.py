"""Rows of several components: their sum, exact or thinned, and what is indexed before drawing."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from replay_logs import PE0, PE1, Log, load, store

from kernbench.common.progress import Cancelled
from kernbench.replay.job import Job
from kernbench.replay.time import timeline
from kernbench.replay.time import window_summary as survey

OPS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans(), st.booleans()),
    min_size=1,
)
SLOW = [HealthCheck.function_scoped_fixture]


def logged(folder, small, ops):
    """The session of ops given as (start, length, is it on PE 1, is it a load)."""
    log = Log(folder / "trace", small)
    for start, length, second, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
        msg = load(0, 0) if is_load else store(0, 0)
        log.op(msg, start, start + length, PE1 if second else PE0)
    return log.session()


def whole(session):
    """The row of all components."""
    return tuple(session.timelines.components.tolist()), None


def shares(ops, edges):
    """Busy share of each cell, one op at a time."""
    found = np.zeros(len(edges) - 1)
    for start, length, *_ in ops:
        shared = np.minimum(start + length, edges[1:]) - np.maximum(start, edges[:-1])
        found += np.maximum(shared, 0) / np.diff(edges)
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(
    ops=OPS,
    t0=st.integers(-5, 50),
    span=st.integers(1, 80),
    bends=st.sampled_from([3, 99]),
)
def test_a_row_of_several_components_is_their_sum(
    tmp_path_factory, small, monkeypatch, ops, t0, span, bends
):
    monkeypatch.setattr(
        timeline, "_BENDS", bends
    )  # where thinned, few ops are counted anew
    session = logged(tmp_path_factory.mktemp("log"), small, ops)
    (row,) = session.timelines.draw_rows([whole(session)], t0, t0 + span, 20)
    np.testing.assert_allclose(
        row.busy, shares(ops, np.linspace(t0, t0 + span, 21)), atol=1e-9
    )


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(
    ops=OPS,
    t0=st.integers(-5, 50),
    span=st.integers(1, 80),
    chunk=st.sampled_from([2, 99]),
)
def test_rows_are_the_same_after_a_survey(
    tmp_path_factory, small, monkeypatch, ops, t0, span, chunk
):
    monkeypatch.setattr(survey, "_CHUNK", chunk)
    session = logged(tmp_path_factory.mktemp("log"), small, ops)
    timelines, window = session.timelines, (t0, t0 + span, 20)
    rows = [whole(session), *(((c,), None) for c in timelines.components.tolist())]
    rows.append((rows[1][0], 0))  # a lane has tracks of its own
    drawn = timelines.draw_rows(rows, *window)
    fresh = logged(tmp_path_factory.mktemp("log"), small, ops).timelines
    fresh.survey(*window)
    assert fresh.missing(rows, window)[0] == (rows[-1],)
    for one, other in zip(drawn, fresh.draw_rows(rows, *window), strict=True):
        np.testing.assert_allclose(one.busy, other.busy, atol=1e-9)
        assert (one.node, one.classes, one.lane) == (
            other.node,
            other.classes,
            other.lane,
        )
    assert fresh.missing(rows, (t0, t0 + span, 21))[0] == (*rows[:-1],)


def test_a_thinned_row_keeps_the_busy_time_between_what_it_keeps(
    tmp_path, small, monkeypatch
):
    monkeypatch.setattr(timeline, "_BENDS", 5)
    monkeypatch.setattr(timeline, "_FEW", -1)
    ops = [(4 * i, 2, i % 2, True) for i in range(8)]
    session = logged(tmp_path, small, ops)
    (row,) = session.timelines.draw_rows([whole(session)], 0, 32, 4)
    np.testing.assert_allclose(row.busy, shares(ops, np.linspace(0, 32, 5)), atol=0.2)
    assert row.busy.sum() * 8 == pytest.approx(16)


def test_a_composite_shows_in_a_row_with_others_only_where_it_is_alone(session):
    nodes = session.trace.nodes
    pe = [c for c in session.timelines.components.tolist() if nodes.pe[c] == 0]
    low, high = session.launch_window()
    (row,) = session.timelines.draw_rows([(tuple(pe), None)], low, high, 40)
    assert set(row.classes) >= {"R", "G", "W"}
    parts = session.timelines.draw_rows([((c,), None) for c in pe], low, high, 40)
    others = [p for p in parts if set(p.classes) - set("C ")]
    for i, letter in enumerate(row.classes):
        assert letter != "C" or all(p.classes[i] == " " for p in others)


def test_what_is_missing_is_primed_by_a_job(session):
    timelines = session.timelines
    rows = [((c,), None) for c in timelines.components.tolist()]
    missing, ops = timelines.missing(rows)
    assert missing == tuple(rows)
    assert ops == 2 * len(session)  # they are sorted by component, too
    Job("rows", lambda tell: timelines.prime(missing, tell)).run()
    assert timelines.missing(rows) == ((), 0)


def test_priming_can_be_cancelled(session):
    rows = [((c,), None) for c in session.timelines.components.tolist()]
    job = Job("rows", lambda tell: session.timelines.prime(rows, tell))
    job.cancel()
    with pytest.raises(Cancelled):
        job.run()


def test_rows_that_were_forgotten_are_drawn_as_before(tmp_path, small, monkeypatch):
    monkeypatch.setattr(timeline, "_KEPT", 3)
    ops = [(4 * i, 2, i % 2, True) for i in range(8)]
    session = logged(tmp_path, small, ops)
    rows = [((component,), None) for component in session.timelines.components.tolist()]
    first = [session.timelines.draw_rows([row], 0, 32, 4)[0] for row in rows]
    assert session.timelines.missing(rows)[0] == (rows[0],)
    again = session.timelines.draw_rows(rows, 0, 32, 4)
    for before, after in zip(first, again, strict=True):
        assert (before.node, before.classes) == (after.node, after.classes)
        np.testing.assert_array_equal(before.busy, after.busy)
    assert session.timelines.missing(rows) == ((), 0)  # what is drawn is kept

"""Who served each op, in which lane and class, and what was in flight."""

import hypothesis.strategies as st
import numpy as np
import pytest
from pace import for_all
from replay_logs import PE0, PE1, Log, load, store

from kernbench.common.progress import Cancelled
from kernbench.replay import ReplaySession
from kernbench.replay.time.op_classes import CLASS_LETTERS, CLASSES, op_class
from kernbench.replay.time.op_index import OpIndex
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

KIND_RANK = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}


@pytest.fixture
def logged(tmp_path, small):
    """The session of ops given as (start, length, lane, is it a load)."""

    def logged(ops):
        log = Log(tmp_path / "trace", small)
        for start, length, lane, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
            msg = load(0, 0) if is_load else store(0, 0)
            msg.slot = lane
            log.op(msg, start, start + length)
        return log.session()

    return logged


# -- components and lanes --


def test_every_component_that_served_an_op_is_known_and_no_other(session):
    nodes = {session.trace.node_ids[c] for c in session.index.op_index.components}
    assert nodes == {record.component_id for record in session.trace.ops}


def test_the_ops_of_a_component_are_those_it_served_in_order(session):
    ids = session.trace.node_ids
    for component in session.index.op_index.components.tolist():
        served = []
        for op, record in enumerate(session.trace.ops):
            if record.component_id == ids[component]:
                served.append(op)
        assert session.index.op_index.ops_of(component).tolist() == served
        assert session.index.op_index.count_of([component]) == len(served)


def test_a_component_that_served_nothing_has_no_ops_and_no_lanes(logged):
    session = logged([(0, 10, 0, True)])
    idle = session.trace.node_index[f"{PE1}.pe_dma"]
    assert len(session.index.op_index.ops_of(idle)) == 0
    assert session.index.op_index.lanes_of(idle) == ()


def test_a_component_has_as_many_lanes_as_it_used(logged):
    session = logged([(0, 10, 1, True), (0, 12, 6, True)])
    (component,) = session.index.op_index.components.tolist()
    assert session.index.op_index.lanes_of(component) == (1, 6)


# -- classes --


def test_the_class_of_an_op_follows_from_its_name_and_kind(session):
    codes = session.index.op_index.class_codes(session.trace.order)
    for op, record in enumerate(session.trace.ops):
        letter = op_class(record.op_name, KIND_RANK[record.op_kind])
        assert CLASS_LETTERS[codes[op]] == letter
        assert letter in CLASSES


@pytest.mark.slow
def test_what_a_peer_pushes_is_a_write(tmp_path):
    run_bench("ccl_allreduce", trace=tmp_path / "trace")
    session = ReplaySession(Trace.open(tmp_path / "trace"))
    letters = {row.name: row.letter for row in session.rows(0, len(session))}
    assert letters["ipcq_copy"] == "W"
    assert letters["ipcq_recv"] == "R"


def test_composites_are_the_ops_that_consist_of_tiles(session):
    wanted = []
    for op, record in enumerate(session.trace.ops):
        if record.op_name.startswith("composite_"):
            wanted.append(op)
    assert session.index.op_index.composites.tolist() == wanted
    assert wanted


# -- ops in flight --


@for_all(
    ops=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 900)), max_size=60),
    copies=st.integers(1, 40),
    fast=8,
    whole=30,
)
def test_ops_in_flight_are_those_that_have_started_and_not_ended(
    tmp_path_factory, small, ops, copies
):
    log = Log(tmp_path_factory.mktemp("log") / "trace", small)
    for number, (start, length) in enumerate(sorted(ops * copies, key=sum)):
        log.op(load(0, 0), start, start + length, pe=(PE0, PE1)[number % 2])
    session = log.session()
    starts = session.trace.op_columns.t_start[session.trace.order]
    ends = session.trace.op_columns.t_end[session.trace.order]
    for op in range(0, len(session), 37):
        session.goto(op)
        flying = (starts <= session.time) & (ends > session.time)
        assert session.in_flight() == np.flatnonzero(flying).tolist()


# -- preparing --


def answers(index, trace):
    """All that an index says, as plain data."""
    components = index.components.tolist()
    last = len(index) - 1
    return {
        "components": components,
        "ops": [index.ops_of(component).tolist() for component in components],
        "lanes": [index.lanes_of(component) for component in components],
        "classes": index.class_codes().tolist(),
        "composites": index.composites.tolist(),
        "in flight": index.in_flight(last, trace.end_ns / 2),
    }


def test_answers_are_the_same_whether_it_is_prepared_or_not(session):
    fresh = OpIndex(session.trace)
    prepared = OpIndex(session.trace)
    assert not prepared.prepared
    prepared.prepare()
    assert prepared.prepared
    assert answers(prepared, session.trace) == answers(fresh, session.trace)


def test_preparing_says_how_far_it_is(session):
    shares = []
    OpIndex(session.trace).prepare(shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 5
    assert 0 <= shares[0] <= shares[-1] <= 1


@pytest.mark.parametrize("after", [0, 2, 4, 6])
def test_what_was_cancelled_is_prepared_by_the_next_question(session, after):
    calls = []

    def cancel(done):
        calls.append(done)
        if len(calls) > after:
            raise Cancelled("enough")

    index = OpIndex(session.trace)
    with pytest.raises(Cancelled):
        index.prepare(cancel)
    fresh = OpIndex(session.trace)
    assert answers(index, session.trace) == answers(fresh, session.trace)


def test_a_trace_without_ops_has_no_components(tmp_path, small):
    index = Log(tmp_path / "trace", small).session().index.op_index
    index.prepare()
    assert len(index.components) == 0
    assert index.in_flight(-1, 0.0) == []

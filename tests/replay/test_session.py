"""The cursor: where it stands, how it moves, what it refuses."""

import numpy as np
import pytest

from kernbench.errors import UsageError


def test_a_new_session_stands_before_the_first_op(session):
    assert session.cursor == -1
    assert session.op is None
    assert session.time == 0.0
    assert session.in_flight() == []


def test_the_log_is_the_recorded_one_in_canonical_order(session, recorded):
    rank = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}
    expected = sorted(recorded.op_log, key=lambda r: (r.t_start, rank[r.op_kind]))
    seen = [session.trace.ops[i] for i in range(len(session))]
    assert [(r.t_start, r.t_end, r.component_id, r.op_name) for r in seen] == [
        (r.t_start, r.t_end, r.component_id, r.op_name) for r in expected
    ]


def test_steps_stop_at_both_ends(session):
    assert session.step(-1) == -1
    assert session.step(10**9) == len(session) - 1
    assert session.step(1) == len(session) - 1
    assert session.to_start() == -1
    assert session.to_end() == len(session) - 1


@pytest.mark.parametrize("op", [-2, 10**9])
def test_goto_refuses_what_is_not_there(session, op):
    session.goto(3)
    with pytest.raises(UsageError, match=f"no op {op}.*-1 is before the first"):
        session.goto(op)
    assert session.cursor == 3


def test_goto_time_finds_the_last_op_that_has_started(session):
    starts = [session.trace.ops[i].t_start for i in range(len(session))]
    middle = (starts[10] + starts[-1]) / 2
    session.goto_time(middle)
    assert session.cursor == sum(t <= middle for t in starts) - 1
    session.goto_time(-1.0)
    assert session.cursor == -1


def test_n_stays_on_the_component_and_wider_levels_take_in_more(session):
    session.goto_time(session.launch_window()[0] + 200)
    component = session.op.component_id
    session.step_component(1)
    assert session.op.component_id == component
    here = session.cursor
    session.step_component(-1)
    session.step_component(1)
    assert session.cursor == here
    assert session.widen() == "pe"
    prefix = component.rsplit(".", 1)[0]
    visited = set()
    for _ in range(20):
        session.step_component(1)
        assert session.op.component_id.startswith(prefix)
        visited.add(session.op.component_id)
    assert len(visited) > 1


def test_ops_in_flight_are_those_in_service_at_the_cursor(session):
    session.goto_time(np.mean(session.launch_window()))
    t = session.time
    expected = [
        i
        for i in range(len(session))
        if session.trace.ops[i].t_start <= t < session.trace.ops[i].t_end
    ]
    assert session.in_flight() == expected
    assert session.cursor in expected


def test_questions_about_an_op_need_one(session):
    for question in (session.route, session.diff):
        with pytest.raises(UsageError, match="before the first op"):
            question()


def test_details_name_the_kernel_line_that_issued_the_op(session):
    session.goto_time(session.launch_window()[1])
    details = session.details(session.cursor)
    source = session.source(session.cursor)
    assert details.row.site == f"kernbench/benches/matmul.py:{source.line}"
    assert details.call == "composite"
    assert "tl.composite(" in source.text[source.line - 1]
    assert source.function == "matmul_kernel"


def test_info_counts_the_ops_by_name(session, recorded):
    info = session.info()
    assert info.ops == len(recorded.op_log) == sum(info.by_name.values())
    assert info.by_name["composite_gemm"] == 2
    assert (info.bench, info.verified, info.complete) == ("matmul", True, True)
    assert info.tensors == ("a", "b", "c")

"""The busy time of every component in the cells of one window."""

import hypothesis.strategies as st
import numpy as np
from pace import for_all
from replay_logs import PE0, PE1, Log, load, store

from kernbench.replay.time.window_summary import window_summary

OPS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans(), st.booleans()),
    min_size=1,
)


def summed_up(session, t0, t1, columns, **options):
    codes = session.index.op_index.class_codes()
    return window_summary(session.trace, codes, t0, t1, columns, **options)


@for_all(ops=OPS, t0=st.integers(-5, 50), span=st.integers(1, 80), fast=8, whole=40)
def test_it_is_the_same_in_however_many_parts_the_ops_are_looked_at(
    tmp_path_factory, one_cube, ops, t0, span
):
    log = Log(tmp_path_factory.mktemp("log") / "trace", one_cube)
    for start, length, second, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
        msg = load(0, 0) if is_load else store(0, 0)
        log.op(msg, start, start + length, PE1 if second else PE0)
    session = log.session()
    in_one = summed_up(session, t0, t0 + span, 20)
    in_many = summed_up(session, t0, t0 + span, 20, part=2)
    np.testing.assert_array_equal(in_one.codes, in_many.codes)
    np.testing.assert_array_equal(in_one.nodes, in_many.nodes)
    np.testing.assert_array_equal(in_one.moments, in_many.moments)
    np.testing.assert_allclose(in_one.busy, in_many.busy, atol=1e-9)


def test_all_of_the_busy_time_of_a_run_is_in_a_window_that_holds_it(session):
    columns = session.trace.op_columns
    found = summed_up(session, 0.0, session.trace.end_ns, 7)
    took = columns.t_end - columns.t_start
    wanted = np.bincount(columns.component, took, len(session.trace.node_ids))
    by_node = np.bincount(found.nodes, found.busy.sum(axis=1), len(wanted))
    np.testing.assert_allclose(by_node, wanted)


def test_it_says_how_far_it_is(session):
    shares = []
    summed_up(session, 0.0, 100.0, 10, part=10, progress=shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 2 * len(session) // 10

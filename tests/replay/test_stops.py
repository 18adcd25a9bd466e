"""Stops and runs in both directions: breakpoints, watchpoints, hazards, failed
checks.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_logs import PE1, Log, double, host_write, load, store

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.query import Session, Stop
from kernbench.sim_engine.accesses import accesses
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.trace import Trace

TRACE = Trace.open(Path(__file__).parents[2] / "traces" / "matmul.msgpack")
TOUCHED = [(op, a) for op, record in enumerate(TRACE.ops) for a in accesses(record)]


@pytest.fixture
def log(tmp_path, shipped):
    """Op 0 writes hbm; 1, 2, 3 load, double, store at 256; 4 overwrites what 3 reads: a
    hazard.
    """
    log = Log(tmp_path / "log", shipped)
    log.alloc("hbm", 256, 16, "y")
    log.op(host_write(), 0, 1)
    log.op(load(0, 0), 10, 20)
    log.op(double(0, 64), 20, 30, engine="pe_math")
    log.op(store(64, 256), 30, 40)
    log.op(load(0, 64), 35, 50)
    log.op(load(0, 128), 60, 70, pe=PE1)
    return log


def run_all(session, forward=True):
    """Where runs halt until there is no further stop."""
    halts = []
    while (stopped := session.run(forward)).stops:
        assert stopped.op not in halts
        halts.append(stopped.op)
    return halts


def test_a_run_halts_at_every_op_of_a_breakpoint_in_both_directions(log):
    session = log.session()
    stop = session.break_on("name = dma_read")
    assert stop.ops == 3
    assert run_all(session) == [1, 4, 5]
    assert session.cursor == 5
    assert run_all(session, forward=False) == [4, 1]
    assert session.cursor == -1


def test_a_run_without_a_stop_goes_to_the_ends_and_says_so(log):
    session = log.session()
    assert session.run(True).lines(80)[-1] == "no further stop that way"
    assert session.cursor == 5
    assert (session.run(False).op, session.cursor) == (-1, -1)


def test_an_answer_names_every_stop_that_was_hit(log):
    session = log.session()
    session.break_on("op = 3")
    session.watch("hbm", 256, 4, "w")
    session.goto(0)
    assert session.run().stops == (
        "stop 1: break op = 3",
        "stop 2: watch hbm 0x100:4 w",
    )


@pytest.mark.parametrize(
    ("mode", "halts"),
    [("r", [3]), ("w", [2, 4]), ("rw", [2, 3, 4])],
    ids=["r", "w", "rw"],
)
def test_a_watchpoint_stops_at_what_touches_its_bytes(log, mode, halts):
    session = log.session()
    session.watch("tcm", 79, 1, mode)
    assert run_all(session) == halts


def test_a_watchpoint_of_other_bytes_does_not(log):
    session = log.session()
    session.watch("tcm", 80, 48)
    assert run_all(session) == []


def test_a_watchpoint_in_a_space_that_the_trace_has_not_is_an_error(log):
    with pytest.raises(UsageError, match="this trace's spaces: hbm, tcm"):
        log.session().watch("sram", 64, 16)


def test_a_watchpoint_may_be_an_element_by_name(log):
    session = log.session()
    assert session.watch_place("y@sip0.cube0.pe0[1:3]", "w").ops == 2
    assert run_all(session) == [0, 3]


def test_a_watch_mode_is_r_w_or_rw(log):
    with pytest.raises(UsageError, match="'x': must be r, w or rw"):
        log.session().watch("tcm", 0, 4, "x")


def test_hazards_can_be_stops(log):
    session = log.session()
    session.catch("hazards")
    found = {touch.op.op for touch in session.hazards().rows}
    assert 4 in found
    assert run_all(session) == sorted(found)


@pytest.mark.parametrize("what", ["hazards", "checks"])
def test_catching_tells_how_far_it_is(log, what):
    told = []
    log.session().catch(what, told.append)
    assert told
    assert all(0 <= share <= 1 for share in told)


def test_a_wrong_output_stops_where_it_is_due_and_a_right_one_does_not(log):
    log.expect("y", 256, [0, 2, 4, 6])
    log.op(load(0, 192), 80, 90)
    log.expect("z", 256, [0, 2, 4, 7])
    session = log.session()
    assert session.catch("checks").ops == 1
    assert run_all(session) == [6]


def test_an_op_that_rounding_does_not_explain_is_a_failed_check(log, monkeypatch):
    broken = NUMPY_OPS | {"add": NUMPY_OPS["sub"]}
    monkeypatch.setattr(
        "kernbench.replay.data.diff.DataExecutor",
        lambda *args: DataExecutor(*args, ops=broken),
    )
    session = log.session()
    session.catch("checks")
    assert run_all(session) == [2]


def test_a_deleted_stop_is_gone_and_its_number_is_not_used_again(log):
    session = log.session()
    session.break_on("op = 2")
    session.break_on("op = 3")
    session.delete_stop(1)
    assert run_all(session) == [3]
    assert session.break_on("op = 4").number == 3
    with pytest.raises(UsageError, match="no stop 1; there is: 2, 3"):
        session.delete_stop(1)


@given(
    st.lists(st.sets(st.integers(0, 30), max_size=6), max_size=4),
    st.integers(-1, 30),
    st.booleans(),
)
def test_the_next_stop_is_the_nearest_of_all(ops, cursor, forward):
    stops = []
    for number, mine in enumerate(ops, 1):
        at = np.array(sorted(mine), np.int64)
        stops.append(Stop(number, "break", "", len(at), at))
    session = Session(cursor=cursor, stops=tuple(stops))
    ahead = [
        op for mine in ops for op in mine if (op > cursor if forward else op < cursor)
    ]
    nearest = session.next_stop(forward)
    assert nearest == (min if forward else max)(ahead, default=None)
    if nearest is not None:
        assert [stop.number for stop in session.stops_at(nearest)] == [
            n for n, mine in enumerate(ops, 1) if nearest in mine
        ]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_watch_stops_where_an_access_overlaps(data):
    _, near = data.draw(st.sampled_from(TOUCHED))
    low = max(near.addr + data.draw(st.integers(-40, near.nbytes + 40)), 0)
    nbytes = data.draw(st.integers(1, 5000))
    mode = data.draw(st.sampled_from(["r", "w", "rw"]))
    session = ReplaySession(TRACE)
    session.watch(near.space, low, nbytes, mode)
    expected = {
        op
        for op, a in TOUCHED
        if a.mode in mode and a.space == near.space
        if a.addr < low + nbytes and a.addr + a.nbytes > low
    }
    assert run_all(session) == sorted(expected)

"""A question that was cancelled, wherever it was, can be asked again."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cancelled import cancelled_at

from kernbench.common.progress import Cancelled, no_progress
from kernbench.replay import ReplaySession
from kernbench.replay.compare import compare
from kernbench.replay.plain import as_data
from kernbench.trace import Trace

TRACES = Path(__file__).parents[3] / "traces"

QUESTIONS = {
    "index": lambda s, progress: s.index.memory.index(progress),
    "touched": lambda s, progress: prepared(s, progress),
    "reach": lambda s, progress: s.index.history.reach(s.index.history.steps, progress),
    "findings": lambda s, progress: s.index.history.findings(progress),
    "tensor": lambda s, progress: s.tensor(output(s), len(s) - 1, progress),
    "output": lambda s, progress: s.output(output(s), len(s) - 1, progress),
    "outputs": lambda s, progress: s.outputs(len(s) // 2, progress),
    "verify": lambda s, progress: s.verify(progress),
    "diff": lambda s, progress: s.diff(len(s) // 2, progress),
    "check": lambda s, progress: s.check(len(s) // 2, progress),
    "judged": lambda s, progress: s.index.diffs.judged(len(s) - 1, progress),
    "divergence": lambda s, progress: s.first_divergence(progress),
    "over": lambda s, progress: s.index.diffs.over(progress),
    "blame": lambda s, progress: s.blame(output(s), 100, progress),
    "history": lambda s, progress: s.history_of(output(s), progress),
    "hazards": lambda s, progress: s.hazards(progress),
    "matching": lambda s, progress: s.matching("addr = 0x0:4096", progress),
    "compare": lambda s, progress: compare(s.trace, s.trace, progress=progress),
}


def opened():
    return ReplaySession(Trace.open(TRACES / "fault_overflow.msgpack"))


def output(session):
    return session.trace.expects[0].tensor


def prepared(session, progress):
    session.index.history.prepare(progress)
    return [column.tolist() for column in session.index.history.touched[:5]]


def calls_of(name):
    """How often the progress of a question is called, asked of a fresh session."""
    shares = []
    QUESTIONS[name](opened(), shares.append)
    return len(shares)


def cancelled(session, name, call):
    """Whether a question was cancelled at that call; else the call did not come.

    What computes beside its caller calls progress by the clock: not as often each time.
    """
    try:
        QUESTIONS[name](session, cancelled_at(call))
    except Cancelled:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_right_after_it_was_cancelled(name):
    question = QUESTIONS[name]
    expected = as_data(question(opened(), lambda done: None))
    count = calls_of(name)
    were_cancelled = []
    for call in {0, 1, count // 3, count // 2, count - 1}:
        session = opened()
        were_cancelled.append(cancelled(session, name, call))
        assert as_data(question(session, lambda done: None)) == expected
    assert any(were_cancelled)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.slow
def test_a_question_that_was_cancelled_spoils_no_other(name):
    session = opened()
    cancelled(session, name, calls_of(name) // 2)
    for op in (0, len(session) // 3, len(session) - 1):
        fresh = opened()
        assert as_data(session.outputs(op)) == as_data(fresh.outputs(op))
        assert as_data(session.memory(op)) == as_data(fresh.memory(op))
        mine = session.tensor(output(session), op)
        other = fresh.tensor(output(fresh), op)
        assert np.array_equal(mine.written, other.written)
        assert mine.values.tobytes() == other.values.tobytes()


@pytest.mark.slow
def test_rows_of_outputs_that_were_cancelled_are_not_taken_for_those_of_an_op():
    last = len(opened()) - 1
    shares = []
    opened().outputs(last, shares.append)
    for call in range(len(shares)):
        session = opened()
        before = as_data(session.outputs(0))
        with suppress(Cancelled):
            session.outputs(last, cancelled_at(call))
        assert as_data(session.outputs(0)) == before
        assert as_data(session.outputs(last)) == as_data(opened().outputs(last))


@pytest.mark.parametrize("name", ["index", "touched"])
def test_tables_are_there_soon_though_each_who_asks_is_cancelled_soon(name):
    session = opened()
    tries = 0
    done = False
    while not done:
        tries += 1
        assert tries <= calls_of(name)
        with suppress(Cancelled):
            QUESTIONS[name](session, cancelled_at(2))
            done = True
    assert as_data(QUESTIONS[name](session, no_progress)) == as_data(
        QUESTIONS[name](opened(), no_progress)
    )

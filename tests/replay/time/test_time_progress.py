"""What holds for every long question: it says how far it is, and can be cancelled."""

import pytest
from pace import first_fast

from kernbench.common.progress import Cancelled
from kernbench.replay import ReplaySession
from kernbench.replay.plain import as_data
from kernbench.replay.time.timeline import RowKey
from kernbench.trace import Trace


def rows(session):
    """A row a component, and one of all."""
    components = session.index.op_index.components.tolist()
    return [*(RowKey((one,)) for one in components), RowKey(tuple(components))]


def indexed_rows(session, progress):
    session.index.timelines.index_rows(rows(session), progress)
    return session.index.timelines.draw_rows(rows(session), 0, 1000, 20)


def summed_up(session, progress):
    session.index.timelines.summarize(0, 1000, 20, progress)
    return session.index.timelines.draw_rows(rows(session), 0, 1000, 20)


def drawn(session, progress):
    return session.index.timelines.draw_rows(rows(session), 0, 1000, 20, progress)


def prepared(session, progress):
    session.index.prepare(progress)
    return session.tiles(100), session.route(100), session.in_flight()


def bound(session, progress):
    return session.bound(100, progress)


def tiles_between(session, progress):
    return session.tiles_between(*session.launch_window(), progress)


def calls(session, progress):
    log = session.trace.commands
    of_kernels = log.cmd[log.launch >= 0]
    return session.pes(int(of_kernels[0]), progress)


QUESTIONS = {
    "prepare": prepared,
    "index rows": indexed_rows,
    "draw rows": drawn,
    "summarize": summed_up,
    "tiles between": tiles_between,
    "link load": lambda s, progress: s.link_load(progress=progress),
    "busiest": lambda s, progress: s.busiest(progress=progress),
    "activity": lambda s, progress: s.activity(progress=progress),
    "stalls": lambda s, progress: s.stalls(progress=progress),
    "lines": lambda s, progress: s.lines(progress=progress),
    "pes": calls,
    "critical path": lambda s, progress: s.critical_path(progress=progress),
    "slack": lambda s, progress: s.slack(100, progress),
    "roofline": lambda s, progress: s.roofline(progress),
    "bound": bound,
}


@pytest.fixture
def opened(recorded):
    """opened() -> a session of the recorded matmul about which nothing is known yet."""
    return lambda: ReplaySession(Trace.open(recorded.trace_path))


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_long_question_says_how_far_it_is(opened, ask):
    shares = []
    ask(opened(), shares.append)
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1


@pytest.mark.parametrize("part", first_fast([0.3, 0.0, 0.6, 0.9]))
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_that_was_cancelled_is_answered_when_asked_again(opened, ask, part):
    def cancel(done):
        if done >= part:
            raise Cancelled("enough")

    wanted = as_data(ask(opened(), lambda done: None))
    session = opened()
    for _ in range(2):
        try:
            found = ask(session, cancel)
        except Cancelled:
            found = None
        assert found is None or as_data(found) == wanted
    assert as_data(ask(session, lambda done: None)) == wanted


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_cancelling_at_once_ends_a_question(opened, ask):
    def cancel(done):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask(opened(), cancel)

"""Progress: a computation that cannot report is watched from beside, and left."""

from threading import Event, Thread

import pytest

from kernbench.common.progress import Cancelled, computed_beside, no_progress


def test_the_result_and_the_error_of_what_runs_beside_are_those_of_the_call():
    shares: list[float] = []
    assert computed_beside(lambda: 7, shares.append, 0.5) == 7
    assert set(shares) <= {0.5}
    with pytest.raises(ZeroDivisionError):
        computed_beside(lambda: 1 // 0, shares.append, 0.5)


def test_progress_is_called_while_the_other_thread_computes():
    reported = Event()

    def wait_for_a_report() -> bool:
        return reported.wait(10)

    assert computed_beside(wait_for_a_report, lambda done: reported.set(), 0.0)


def test_cancelling_leaves_at_once_though_the_other_thread_goes_on():
    let_go = Event()

    def cancel(done: float) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        computed_beside(lambda: let_go.wait(10), cancel, 0.0)
    let_go.set()


def test_who_just_waits_needs_no_thread():
    import threading

    here = threading.get_ident()
    assert computed_beside(threading.get_ident, no_progress, 0.0) == here


def test_where_no_thread_can_be_started_the_caller_computes(monkeypatch):
    def start(self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    assert computed_beside(lambda: 7, lambda done: None, 0.5) == 7

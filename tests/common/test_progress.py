"""Progress: parts of rows, stages, and calls that cannot report.

The last are watched from beside, and left.
"""

import threading
from threading import Event, Thread

import pytest

from kernbench.common.progress import (
    Cancelled,
    beside_if_many,
    computed_beside,
    no_progress,
    parts,
    stage,
)


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
    here = threading.get_ident()
    assert computed_beside(threading.get_ident, no_progress, 0.0) == here


def test_where_no_thread_can_be_started_the_caller_computes(monkeypatch):
    def start(self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    assert computed_beside(lambda: 7, lambda done: None, 0.5) == 7


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 30])
def test_parts_cover_all_rows_once_and_in_order(count):
    covered = []
    for part in parts(count, no_progress, size=10):
        covered += range(count)[part]
    assert covered == [*range(count)]


def test_progress_is_called_before_each_part():
    shares = []
    seen = []
    for part in parts(40, shares.append, size=10):
        seen.append((part.start, len(shares)))
    assert shares == [0.0, 0.25, 0.5, 0.75]
    assert seen == [(0, 1), (10, 2), (20, 3), (30, 4)]


def test_a_stage_is_a_share_of_the_whole():
    shares = []
    second_half = stage(shares.append, 0.5, 1.0)
    for done in (0.0, 0.5, 1.0):
        second_half(done)
    assert shares == [0.5, 0.75, 1.0]


def test_nobody_who_just_waits_pays_for_stages():
    assert stage(no_progress, 0.2, 0.4) is no_progress


@pytest.mark.parametrize(("rows", "beside"), [(10, False), (10_000_000, True)])
def test_only_a_call_over_many_rows_gets_a_thread(rows, beside):
    here = threading.get_ident()
    there = beside_if_many(rows, threading.get_ident, lambda done: None, 0.0)
    assert (there != here) == beside


def test_a_call_over_few_rows_can_be_cancelled_before_it():
    def cancel(done):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        beside_if_many(10, lambda: 1 / 0, cancel, 0.0)

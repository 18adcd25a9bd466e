"""Long computations in steps: parts of rows, stages of progress, calls that are long."""

import threading

import pytest

from kernbench.common.progress import Cancelled, no_progress
from kernbench.replay.time.steps import in_one_call, map_logs, parts, stage


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
    there = in_one_call(threading.get_ident, lambda done: None, 0.0, rows)
    assert (there != here) == beside


def test_a_call_over_few_rows_can_be_cancelled_before_it():
    def cancel(done):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        in_one_call(lambda: 1 / 0, cancel, 0.0, 10)


def test_logs_are_mapped_by_their_names(session):
    map_logs(session.trace, lambda done: None, "commands", "waits")
    with pytest.raises(AttributeError):
        map_logs(session.trace, lambda done: None, "no_such_log")

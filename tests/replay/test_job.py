"""Jobs: long answers that tell how far they are, and can be cancelled from another thread."""

from threading import Event, Thread

import pytest

from kernbench.common.progress import Cancelled
from kernbench.replay.job import Job


def counting(steps, tell):
    for step in range(steps):
        tell(step / steps)
    return steps


def test_a_job_returns_what_it_computes_and_has_told_its_progress():
    job = Job("counting", lambda tell: counting(4, tell))
    assert job.done == 0.0
    assert job.run() == 4
    assert job.done == 0.75


def test_a_cancelled_job_ends_when_it_next_tells():
    told = []

    def compute(tell):
        for step in range(10):
            tell(step / 10)
            told.append(step)
            if step == 3:
                job.cancel()

    job = Job("counting", compute)
    with pytest.raises(Cancelled, match="counting was cancelled at 30%"):
        job.run()
    assert told == [0, 1, 2, 3]


def test_a_job_is_cancelled_from_another_thread():
    under_way, ended = Event(), []

    def compute(tell):
        while True:
            tell(0.5)
            under_way.set()

    def run():
        try:
            job.run()
        except Cancelled as why:
            ended.append(str(why))

    job = Job("search", compute)
    thread = Thread(target=run, daemon=True)
    thread.start()
    assert under_way.wait(10)
    job.cancel()
    thread.join(10)
    assert ended == ["search was cancelled at 50%"]


def test_an_error_of_what_it_computes_is_the_jobs():
    def compute(tell):
        raise ValueError("bad data")

    with pytest.raises(ValueError, match="bad data"):
        Job("x", compute).run()

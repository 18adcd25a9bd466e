"""The line that says how far a sweep is."""

import io

import pytest

from kernbench.sweep.space import Objective, Point
from kernbench.sweep.store import Row
from kernbench.sweep.sweeping import Tally
from kernbench.sweep.watching import Watcher, duration, line_of


class Clock:
    """Stands still until it is moved."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("kernbench.sweep.sweeping.monotonic", clock)
    monkeypatch.setattr("kernbench.sweep.watching.monotonic", clock)
    return clock


def tally(**counts):
    counts = {"began": Clock.now, "workers": 2, **counts}
    return Tally(200, Objective("end_ns", "min"), ("m",), **counts)


def row(m, end_ns, ok=True):
    result = {"end_ns": end_ns, "ok": ok}
    return Row(f"{m}", Point({"m": m, "k": 1}, {}, 0), result, None)


def test_it_has_counts_rate_time_left_and_the_best(clock):
    shown = tally(found=20, done=20)
    assert line_of(shown) == "20 of 200 points"
    clock.now += 10.0
    for added in (row(64, 900.0), row(32, 800.0), row(16, 1.0, ok=False)):
        shown.add(added)
    for _ in range(37):
        shown.add(Row("", Point({}, {}, 0), None, "it failed"))
    assert line_of(shown) == (
        "60 of 200 points, 37 failed, 1 wrong, 4/s, 35 s left, least end_ns 800 at m=32"
    )


def test_it_says_that_there_are_no_workers():
    assert line_of(tally(workers=0)) == "0 of 200 points, waiting for workers"


def test_the_best_may_be_the_most():
    shown = Tally(2, Objective("ops", "max"))
    for ops in (3, 5, 4):
        shown.add(Row("", Point({}, {}, 0), {"ops": ops, "ok": True}, None))
    assert shown.best.result["ops"] == 5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")],
)
def test_times_are_for_people(seconds, text):
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line_that_is_written_anew(clock, monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("COLUMNS", "20")
    watcher = Watcher()
    watcher(tally(done=1, found=1))
    assert stderr.getvalue() == ""
    clock.now += 0.3
    watcher(tally(done=2, found=2))
    watcher(tally(done=3, found=3))
    watcher.close()
    lines = [part for part in stderr.getvalue().split("\r") if part.strip()]
    assert lines == ["2 of 200 points\x1b[K", "3 of 200 points\x1b[K"]
    assert stderr.getvalue().endswith("\n")

"""The longest gap between calls of progress, on a clock of the test's own."""

import gc
import sys

from gaps import least_gap, longest_gap


class Clock:
    """A clock that stands still but for ``pass_time``."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pass_time(self, seconds):
        self.now += seconds


def compute(clock, *pauses):
    """A computation that takes these times, with a call of progress between."""

    def run(progress):
        for pause in pauses[:-1]:
            clock.pass_time(pause)
            progress(0.5)
        clock.pass_time(pauses[-1])

    return run


def test_the_longest_time_between_two_calls_counts():
    clock = Clock()
    assert longest_gap(compute(clock, 1.0, 3.0, 2.0), clock) == 3.0


def test_the_start_and_the_end_count_as_calls():
    clock = Clock()
    assert longest_gap(compute(clock, 4.0, 1.0, 2.0), clock) == 4.0
    assert longest_gap(compute(clock, 1.0, 2.0, 5.0), clock) == 5.0


def test_the_best_of_some_rounds_counts():
    clock = Clock()
    rounds = iter([(3.0,), (1.0, 0.5), (2.0,)])
    assert least_gap(lambda: compute(clock, *next(rounds)), clock=clock) == 1.0


def test_what_is_set_while_it_measures_is_as_before():
    before = gc.isenabled(), sys.getswitchinterval()
    longest_gap(lambda progress: None)
    assert (gc.isenabled(), sys.getswitchinterval()) == before


def test_there_is_no_further_round_after_one_that_is_good_enough():
    clock = Clock()
    rounds = iter([(3.0,), (1.5,), (0.5,)])
    gap = least_gap(lambda: compute(clock, *next(rounds)), clock=clock, enough=2.0)
    assert gap == 1.5

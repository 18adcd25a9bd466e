"""Long computations that go on where they were."""

from threading import Event, Thread

import pytest

from kernbench.common.progress import Cancelled, no_progress
from kernbench.common.resumable import Resumable, beside, resumable_beside, within


class Impatient:
    """A progress that cancels at its n-th call, and knows what it was told."""

    def __init__(self, calls):
        self.left = calls
        self.told = []

    def __call__(self, done):
        self.told.append(done)
        self.left -= 1
        if self.left == 0:
            raise Cancelled("enough")


class Counted:
    """A computation in so many steps; ``steps`` are those that were made."""

    def __init__(self, steps):
        self.most = steps
        self.steps = []

    def __call__(self):
        for step in range(self.most):
            yield step / self.most
            self.steps.append(step)
        return sum(self.steps)


def test_it_is_computed_once_with_the_progress_of_who_asks():
    counted = Counted(4)
    resumable = Resumable(counted)
    progress = Impatient(100)
    assert resumable.result(progress) == 6
    assert progress.told == [0, 0.25, 0.5, 0.75]
    assert resumable.result(progress) == 6
    assert resumable.result() == 6
    assert len(progress.told) == 4
    assert counted.steps == [0, 1, 2, 3]


def test_it_goes_on_where_who_was_cancelled_left_it():
    counted = Counted(10)
    resumable = Resumable(counted)
    for asked in (1, 2, 3):
        with pytest.raises(Cancelled):
            resumable.result(Impatient(3))
        assert counted.steps == list(range(3 * asked - 1))
    assert resumable.result() == 45
    assert counted.steps == list(range(10))


def test_a_single_long_call_goes_on_beside_and_is_not_begun_again():
    begun = []
    go_on = Event()

    def long_call():
        begun.append(1)
        assert go_on.wait(10)
        return "found"

    resumable = Resumable(lambda: beside(long_call, 0.5))
    for _ in range(3):
        with pytest.raises(Cancelled):
            resumable.result(Impatient(2))
    go_on.set()
    assert resumable.result(no_progress) == "found"
    assert len(begun) == 1


def test_what_raises_is_raised_and_begun_anew():
    tries = []

    def steps():
        yield 0.0
        tries.append(1)
        raise ValueError(f"try {len(tries)}")

    resumable = Resumable(steps)
    for number in (1, 2):
        with pytest.raises(ValueError, match=f"try {number}"):
            resumable.result(Impatient(100))
    with pytest.raises(ValueError, match="try 3"):
        resumable.result()


def test_steps_within_others_have_a_share_of_their_progress():
    def whole():
        yield 0.0
        return (yield from within(Counted(2)(), 0.5, 1.0))

    progress = Impatient(100)
    assert Resumable(whole).result(progress) == 1
    assert progress.told == [0.0, 0.5, 0.75]


def test_threads_that_ask_do_not_wait_for_each_other():
    counted = Counted(5)
    resumable = Resumable(counted)
    with pytest.raises(Cancelled):
        resumable.result(Impatient(3))
    found = []
    thread = Thread(target=lambda: found.append(resumable.result(Impatient(100))))
    thread.start()
    thread.join(10)
    assert found == [sum(counted.steps)]
    assert resumable.result(Impatient(100)) == found[0]


@pytest.mark.parametrize("count", [1, 1 << 20])
def test_few_numbers_need_no_thread(count):
    resumable = resumable_beside(lambda: count, lambda: "found")
    assert resumable.result(Impatient(1000)) == "found"

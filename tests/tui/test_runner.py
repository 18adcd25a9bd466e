"""The runner: what is asked, kept, cancelled and waited for; who lets whom go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Timer
from time import monotonic, sleep
from typing import Any
from weakref import finalize

import numpy as np
import pytest

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.command import Command
from kernbench.replay.commands import BY_NAME, INFO
from kernbench.replay.parsing import NoArguments
from kernbench.replay.progress import Cancelled, Progress
from kernbench.replay.query import Query
from tui import runner as runner_module
from tui.runner import Pending, Runner, Urgency, size_of


@dataclass(frozen=True)
class Number:
    """Tells questions of one command apart."""

    n: int = 0


class Bell:
    """A job that waits: ``rung`` lets it end, ``begun`` says that it runs.

    It reports its progress all the while, as every job has to.
    """

    def __init__(self) -> None:
        self.rung = Event()
        self.begun = Event()
        self.computed: list[Any] = []

    def __call__(self, index: Any, at: Any, args: Any, progress: Progress) -> Any:
        self.computed.append(args)
        self.begun.set()
        end = monotonic() + 20
        while not self.rung.is_set():
            assert monotonic() < end, "nobody rang"
            progress(0.34)
            sleep(0.0005)
        return args.n


Register = Callable[..., Callable[[int], Query]]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Add a command for one test; gives what makes its questions."""

    def add(
        name: str, answer: Any, lane: str = "memory", kind: Any = "job"
    ) -> Callable[[int], Query]:
        command = Command(name, kind, "of a test", Number, answer, lane)
        monkeypatch.setitem(BY_NAME, name, command)
        return lambda n=0: Query(name, Number(n))

    return add


@pytest.fixture
def runner(session: ReplaySession) -> Iterator[Runner]:
    made = Runner(session.index)
    yield made
    made.close()


def test_an_instant_question_is_answered_where_it_is_asked(runner) -> None:
    assert runner.ask(INFO.ask()).bench == "matmul"
    assert not runner.busy


def test_an_answer_is_computed_once_and_kept(runner, register) -> None:
    bell = Bell()
    bell.rung.set()
    query = register("bell", bell)
    assert runner.wait(query(7)) == 7
    assert runner.ask(query(7)) == 7
    assert runner.known(query(7)) == 7
    assert bell.computed == [Number(7)]


def test_what_is_not_there_is_pending_and_says_how_far_it_is(runner, register) -> None:
    bell = Bell()
    query = register("bell", bell)()
    assert runner.known(query) is None
    found = runner.ask(query)
    assert isinstance(found, Pending)
    assert bell.begun.wait(10)
    sleep(0.01)
    (running,) = runner.running()
    assert (running.query, running.title, running.done) == (query, "bell", 0.34)
    bell.rung.set()
    assert runner.wait(query) == 0


def test_the_error_of_a_computation_is_its_answer(runner, register) -> None:
    def fail(index, at, args, progress) -> None:
        raise UsageError("no such thing")

    query = register("fail", fail)()
    with pytest.raises(UsageError, match="no such thing"):
        runner.wait(query)
    assert isinstance(runner.ask(query), UsageError)


def test_a_mistake_in_the_program_is_raised_where_the_answer_is_read(
    runner, register
) -> None:
    def fail(index, at, args, progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runner.wait(register("fail", fail)())


# -- cancelling -----------------------------------------------------------------


def test_what_is_cancelled_says_so_until_it_is_forgotten(runner, register) -> None:
    bell = Bell()
    query = register("bell", bell)()
    runner.ask(query)
    assert bell.begun.wait(10)
    sleep(0.01)
    assert runner.cancel() == 1
    with pytest.raises(Cancelled, match="bell was cancelled at 34%"):
        runner.wait(query)
    bell.rung.set()
    assert isinstance(runner.ask(query), Cancelled)
    runner.forget()
    assert runner.wait(query) == 0


def test_cancelling_ends_what_only_waits_too(runner, register) -> None:
    bell = Bell()
    query = register("bell", bell)
    runner.ask(query(0))
    assert bell.begun.wait(10)
    runner.ask(query(1))
    assert runner.cancel() == 2
    for n in (0, 1):
        with pytest.raises(Cancelled):
            runner.wait(query(n))
    assert bell.computed == [Number(0)]


def test_what_nobody_wants_any_more_is_given_up_without_a_word(
    runner, register
) -> None:
    bell = Bell()
    query = register("bell", bell)
    other = register("other", bell, lane="columns")
    for asked in (query(0), query(1), other(2)):
        runner.ask(asked)
    assert bell.begun.wait(10)
    runner.retain([query(1)])
    wait_until(lambda: [job.query for job in runner.running()] == [query(1)])
    bell.rung.set()
    assert runner.wait(query(1)) == 1
    wait_until(lambda: not runner.busy)
    assert runner.known(query(0)) is None
    assert runner.known(other(2)) is None


def test_a_job_that_loses_its_cancelling_is_cancelled_at_the_next_call(
    runner, register, monkeypatch
) -> None:
    """In ``__del__``, and in a callback of a weak reference, Python drops what is
    raised.
    """
    lost = list[BaseException]()
    monkeypatch.setattr(
        sys, "unraisablehook", lambda dropped: lost.append(dropped.exc_value)
    )
    begun = Event()
    was_cancelled = Event()

    class Dropped:
        """Reports its progress when nothing refers to it any more."""

        def __init__(self, progress: Progress) -> None:
            self.progress = progress

        def __del__(self) -> None:
            self.progress(0.1)

    def answer(index, at, args, progress) -> int:
        begun.set()
        assert was_cancelled.wait(10)
        sleep(0.002)
        Dropped(progress)
        sleep(0.002)
        finalised = Dropped(lambda done: None)
        finalize(finalised, progress, 0.2)
        del finalised
        sleep(0.002)
        with suppress(Cancelled):
            progress(0.3)
        sleep(0.002)
        progress(0.4)
        return 1

    query = register("loses", answer)()
    runner.ask(query)
    assert begun.wait(10)
    assert runner.cancel() == 1
    was_cancelled.set()
    with pytest.raises(Cancelled, match="cancelled at 40%"):
        runner.wait(query)
    assert [type(error) for error in lost] == [Cancelled, Cancelled]
    wait_until(lambda: not runner.busy)


# -- urgency --------------------------------------------------------------------


def test_what_is_asked_for_cancels_what_is_ahead_in_its_lane_only(
    runner, register
) -> None:
    ahead, beside, asked = Bell(), Bell(), Bell()
    spare = register("ahead", ahead)()
    other = register("beside", beside, lane="columns")()
    runner.ask(spare, Urgency.AHEAD)
    runner.ask(other, Urgency.AHEAD)
    assert ahead.begun.wait(10)
    assert beside.begun.wait(10)
    asked.rung.set()
    assert runner.wait(register("asked", asked)()) == 0
    assert runner.known(spare) is None
    beside.rung.set()
    assert runner.wait(other) == 0


def test_what_is_ahead_cancels_what_is_wished_for_in_its_lane(runner, register) -> None:
    wished, ahead = Bell(), Bell()
    wish = register("wished", wished)()
    runner.ask(wish, Urgency.WISH)
    assert wished.begun.wait(10)
    ahead.rung.set()
    query = register("ahead", ahead)()
    runner.ask(query, Urgency.AHEAD)
    assert runner.wait(query) == 0
    assert runner.known(wish) is None


def test_once_a_key_has_come_only_what_is_ahead_is_given_up(runner, register) -> None:
    bells = {urgency: Bell() for urgency in Urgency}
    queries = {}
    for urgency, bell in bells.items():
        queries[urgency] = register(urgency.name, bell, lane=urgency.name)()
        runner.ask(queries[urgency], urgency)
        assert bell.begun.wait(10)
    runner.drop_ahead()
    wait_until(lambda: not runner.busy_ahead)
    for bell in bells.values():
        bell.rung.set()
    wait_until(lambda: not runner.busy)
    known = [
        urgency for urgency in Urgency if runner.known(queries[urgency]) is not None
    ]
    assert known == [Urgency.WISH, Urgency.VISIBLE, Urgency.KEY]


def test_no_key_waits_for_what_is_known_to_take_long(runner, register) -> None:
    rung = Event()

    def long(index, at, args, progress) -> int:
        while not rung.is_set():
            progress(0.5)
            sleep(0.001)
        return args.n

    query = register("long", long)(1)
    runner.ask(query, Urgency.AHEAD)
    wait_until(lambda: not runner.busy)
    assert isinstance(runner.gather([query], within_s=1000)[query], Pending)
    rung.set()
    assert runner.wait(query) == 1


def test_no_key_waits_for_a_command_that_took_long_until_it_takes_no_longer(
    runner, register
) -> None:
    rung = Event()

    def long_if_odd(index, at, args, progress) -> int:
        while args.n % 2 and not rung.is_set():
            progress(0.5)
            sleep(0.001)
        return args.n

    query = register("long-if-odd", long_if_odd)
    assert runner.gather([query(0)], within_s=20) == {query(0): 0}
    assert isinstance(runner.gather([query(1)], within_s=0.5)[query(1)], Pending)
    assert isinstance(runner.gather([query(3)], within_s=1000)[query(3)], Pending)
    rung.set()
    runner.wait(query(3))
    runner.wait(query(4))
    assert runner.gather([query(6)], within_s=20) == {query(6): 6}


def test_what_takes_long_is_computed_ahead_only_while_nobody_presses_keys(
    runner, register
) -> None:
    ended: list[bool] = []

    def long(index, at, args, progress) -> int:
        try:
            for _ in range(200):
                progress(0.5)
                sleep(0.001)
        finally:
            ended.append(True)
        return args.n

    query = register("long", long)(1)
    runner.ask(query, Urgency.AHEAD)
    wait_until(lambda: not runner.busy)
    assert ended == [True]
    assert runner.known(query) is None
    assert isinstance(runner.ask(query, Urgency.AHEAD), Pending)
    assert not runner.busy
    runner.resting = True
    assert isinstance(runner.ask(query, Urgency.AHEAD), Pending)
    wait_until(lambda: not runner.busy)
    assert runner.known(query) == 1


def test_what_will_take_long_at_its_pace_is_ahead_for_a_moment_only(
    runner, register
) -> None:
    """The answers to the next likely key wait behind it."""
    steps: list[int] = []

    def slow(index, at, args, progress) -> int:
        for done in range(1000):
            steps.append(done)
            progress(done / 1000)
            sleep(0.003)
        return args.n

    far = register("far", slow)()
    near = register("near", lambda index, at, args, progress: args.n)(1)
    runner.ask(far, Urgency.AHEAD)
    runner.ask(near, Urgency.AHEAD)
    wait_until(lambda: runner.known(near) == 1)
    assert len(steps) < 20
    runner.ask(far, Urgency.AHEAD)
    assert not runner.busy


def test_what_is_ahead_and_then_asked_for_goes_on(runner, register) -> None:
    bell = Bell()
    query = register("bell", bell)()
    runner.ask(query, Urgency.AHEAD)
    assert bell.begun.wait(10)
    assert runner.running() == []
    runner.ask(query)
    assert [job.query for job in runner.running()] == [query]
    bell.rung.set()
    assert runner.wait(query) == 0
    assert len(bell.computed) == 1


def test_the_most_urgent_of_a_lane_is_next(runner, register) -> None:
    first = Bell()
    order: list[int] = []
    runner.ask(register("first", first)())
    assert first.begun.wait(10)

    def note(index, at, args, progress) -> int:
        order.append(args.n)
        return args.n

    query = register("note", note)
    runner.ask(query(1))
    runner.ask(query(2), Urgency.KEY)
    first.rung.set()
    runner.wait(query(1))
    assert order == [2, 1]


def test_a_key_waits_for_answers_of_free_lanes_and_for_no_others(
    runner, register
) -> None:
    busy, quick = Bell(), Bell()
    quick.rung.set()
    runner.ask(register("busy", busy)())
    assert busy.begun.wait(10)
    late = register("late", quick)()
    soon = register("soon", quick, lane="columns")()
    found = runner.gather([late, soon], within_s=20)
    assert found[soon] == 0
    assert isinstance(found[late], Pending)


@pytest.mark.parametrize("found", [0.0, 0.9], ids=["its-own", "what-others-left"])
def test_a_key_does_not_wait_for_what_will_take_longer_at_its_pace(
    found, runner, register
) -> None:
    """What those had done that had asked before is no pace of its own."""
    rung = Event()

    def slow(index, at, args, progress) -> int:
        done = found
        while not rung.is_set():
            done += 1e-6
            progress(done)
            sleep(0.001)
        return args.n

    query = register("slow", slow)(1)
    begun = monotonic()
    assert isinstance(runner.gather([query], within_s=60)[query], Pending)
    assert monotonic() - begun < 30
    rung.set()
    assert runner.wait(query) == 1


def test_no_key_waits_for_what_one_before_has_waited_for(runner, register) -> None:
    bell = Bell()
    query = register("bell", bell)()
    assert isinstance(runner.gather([query], within_s=0.02)[query], Pending)
    begun = monotonic()
    assert isinstance(runner.gather([query], within_s=20)[query], Pending)
    assert monotonic() - begun < 10
    bell.rung.set()
    assert runner.wait(query) == 0


def test_drawing_ahead_does_not_stand_behind_a_lane_that_was_left(
    runner, register
) -> None:
    steps: list[int] = []
    rung = Event()
    count = register("count", counting(steps, rung))
    runner.ask(count(1))
    assert runner.busy_since(0.0)
    assert not runner.busy_since(monotonic())
    wait_until(lambda: len(steps) > 60)  # by now it is known to take long
    runner.retain([])
    runner.ask(count(2))
    assert not runner.busy_since(0.0)
    assert not runner.busy_for_a_moment
    rung.set()
    assert runner.wait(count(2)) == 0
    rung.clear()
    runner.ask(count(3))
    assert runner.busy_since(0.0)
    rung.set()


def test_drawing_ahead_waits_for_no_command_that_took_long(runner, register) -> None:
    steps: list[int] = []
    rung = Event()
    count = register("count", counting(steps, rung))
    other = register("other", counting(steps, rung))
    runner.ask(count(1))
    wait_until(lambda: len(steps) > 60)
    rung.set()
    runner.wait(count(1))
    rung.clear()
    runner.ask(count(2))
    runner.ask(other(1))  # behind it
    assert not runner.busy_since(0.0)
    assert not runner.busy_for_a_moment
    rung.set()
    runner.wait(count(2))
    runner.wait(other(1))
    rung.clear()
    runner.ask(count(3))  # the last one was there at once
    assert runner.busy_since(0.0)
    assert runner.busy_for_a_moment
    rung.set()


def test_no_key_waits_for_what_goes_on_where_a_long_one_was_left(
    runner, register
) -> None:
    steps: list[int] = []
    rung = Event()
    long = register("count", counting(steps, rung))
    runner.ask(long(1), Urgency.WISH)
    wait_until(lambda: len(steps) > 60)
    goes_on = register("goes-on", counting(steps, rung))
    begun = monotonic()
    for n in range(5):
        assert isinstance(runner.gather([goes_on(n)], 20.0)[goes_on(n)], Pending)
        runner.retain([])
    assert monotonic() - begun < 10
    rung.set()
    assert runner.wait(goes_on(6)) == 0
    assert runner.gather([goes_on(7)], 20.0)[goes_on(7)] == 0


def test_a_key_waits_for_a_lane_that_was_left_once_something_has_ended_there(
    runner, register
) -> None:
    steps: list[int] = []
    rung = Event()
    long = register("count", counting(steps, rung))
    runner.ask(long(1))
    wait_until(lambda: len(steps) > 60)  # by now it is known to take long
    runner.retain([])

    def some(index, at, args, progress) -> int:
        for _ in range(3):
            progress(0.5)
            sleep(0.002)
        return args.n

    few = register("few", some)
    bell = Bell()
    beside = register("bell", bell, lane="columns")()
    Timer(0.5, bell.rung.set).start()
    asked = [few(1), few(2), beside]
    assert runner.gather(asked, 20.0) == {few(1): 1, few(2): 2, beside: 0}


def test_a_key_waits_a_moment_for_something_to_end_in_a_lane_that_was_left(
    runner, register, monkeypatch
) -> None:
    """The far op's outputs were given up; those of this one take 3 ms."""
    monkeypatch.setattr("tui.runner.MOMENT_S", 20.0)
    steps: list[int] = []
    runner.ask(register("count", counting(steps, Event()))(1))
    wait_until(lambda: len(steps) > 60)  # by now it is known to take long
    runner.retain([])
    one = register("one", lambda index, at, args, progress: args.n)
    runner.quiet.clear()
    assert runner.gather([one(1), one(2)], 30.0) == {one(1): 1, one(2): 2}


def test_what_stands_before_an_answer_that_a_key_comes_to_wait_for_goes_on(
    runner, register
) -> None:
    """It was asked for before the key, which would not have waited for it alone."""
    steps: list[int] = []
    long = register("count", counting(steps, Event()))
    runner.ask(long())
    wait_until(lambda: len(steps) > 60)  # by now it is known to take long
    runner.retain([])

    def some(index, at, args, progress) -> int:
        for _ in range(args.n):
            progress(0.5)
            sleep(0.002)
        return args.n

    turns = register("turns", some)
    first, before, awaited = turns(1), turns(20), turns(2)
    runner.ask(first)
    runner.ask(before)
    bell = Bell()
    beside = register("bell", bell, lane="columns")()
    Timer(0.3, bell.rung.set).start()
    runner.quiet.clear()
    found = runner.gather([first, before, awaited, beside], within_s=1.5)
    assert found[awaited] == 2


def test_what_was_given_up_in_a_lane_says_nothing_of_how_long_a_key_waits(
    runner, register
) -> None:
    begun, rung, quick = Event(), Event(), Bell()

    def slow(index, at, args, progress) -> int:
        progress(0.001)
        begun.set()
        rung.wait(20)
        progress(0.002)  # raises: it was cancelled
        return args.n

    runner.ask(register("slow", slow)(), Urgency.AHEAD)
    assert begun.wait(10)
    sleep(0.02)  # at this pace it would take 20 s
    quick.rung.set()
    query = register("quick", quick)(1)
    Timer(0.05, rung.set).start()
    assert runner.gather([query], within_s=5)[query] == 1


def test_a_key_waits_no_longer_than_it_was_told_to(runner, register) -> None:
    bell = Bell()
    query = register("bell", bell)()
    begun = monotonic()
    found = runner.gather([query], within_s=0.02)
    assert isinstance(found[query], Pending)
    assert monotonic() - begun < 5


def test_a_key_does_not_wait_for_what_is_there_by_now(
    runner, register, monkeypatch
) -> None:
    """An answer may come between the asking and the waiting."""
    bell = Bell()
    bell.rung.set()
    query = register("bell", bell)()
    plain = runner.ask

    def ask(query: Query, urgency: Urgency) -> Any:
        found = plain(query, urgency)
        wait_until(lambda: not runner.busy)
        return found

    monkeypatch.setattr(runner, "ask", ask)
    begun = monotonic()
    assert runner.gather([query], within_s=60) == {query: 0}
    assert monotonic() - begun < 30


# -- the yield protocol -----------------------------------------------------------


def count_of(monkeypatch: pytest.MonkeyPatch, runner: Runner) -> list[float]:
    """The times that jobs waited for the screen to be quiet."""
    waited: list[float] = []
    plain = runner.quiet.wait

    def wait(timeout: float) -> bool:
        waited.append(timeout)
        return plain(timeout)

    monkeypatch.setattr(runner.quiet, "wait", wait)
    return waited


def counting(steps: list[int], rung: Event) -> Any:
    """A computation that adds to ``steps`` until it is rung for."""

    def count(index, at, args, progress) -> int:
        while not rung.is_set():
            progress(0.5)
            steps.append(1)
            sleep(0.002)
        return 0

    return count


def noting(steps: list[int], taken: list[int]) -> Any:
    """A computation of twenty turns that notes in ``taken`` how many steps others have
    taken by each.
    """

    def note(index, at, args, progress) -> int:
        for _ in range(20):
            progress(0.5)
            sleep(0.002)
            taken.append(len(steps))
        return args.n

    return note


def test_a_job_waits_while_a_key_is_acted_on(runner, register) -> None:
    steps: list[int] = []
    rung = Event()
    count = counting(steps, rung)
    query = register("count", count)()
    runner.ask(query)
    wait_until(lambda: len(steps) > 3)
    runner.quiet.clear()
    sleep(0.02)
    before = len(steps)
    sleep(0.05)
    assert len(steps) - before <= 2
    runner.quiet.set()
    wait_until(lambda: len(steps) > before + 3)
    rung.set()


def test_a_job_waits_while_the_next_key_is_drawn_unless_its_lane_is_wanted(
    runner, register
) -> None:
    steps: list[int] = []
    rung = Event()
    count = counting(steps, rung)
    query = register("count", count)()
    runner.ask(query)
    wait_until(lambda: len(steps) > 3)
    assert runner.busy_for_a_moment
    runner.drawing_ahead = True
    sleep(0.02)
    before = len(steps)
    sleep(0.05)
    assert len(steps) - before <= 2
    runner.ask(register("other", count)(), Urgency.AHEAD)
    wait_until(lambda: len(steps) > before + 10)
    rung.set()


def test_what_is_drawn_ahead_waits_for_nothing_behind_a_job_that_takes_long(
    runner, register
) -> None:
    steps: list[int] = []
    rung = Event()
    count = counting(steps, rung)
    runner.ask(register("count", count)())
    runner.ask(register("asked", count)())
    runner.ask(register("ahead", count)(), Urgency.AHEAD)
    assert runner.busy_for_a_moment
    assert runner.busy_ahead
    wait_until(lambda: not runner.busy_for_a_moment)
    assert runner.busy
    assert not runner.busy_ahead
    runner.drawing_ahead = True
    sleep(0.02)
    before = len(steps)
    sleep(0.05)
    assert len(steps) - before <= 2
    rung.set()


def test_what_the_key_itself_waits_for_goes_on(runner, register, monkeypatch) -> None:
    waited = count_of(monkeypatch, runner)
    runner.quiet.clear()

    def some(index, at, args, progress) -> int:
        for _ in range(4):
            progress(0.5)
            sleep(0.002)
        return args.n

    query = register("some", some)
    assert runner.gather([query(1)], within_s=20) == {query(1): 1}
    assert waited == []
    runner.lower()
    assert runner.wait(query(2)) == 2
    assert waited


def test_what_the_key_did_not_wait_for_lets_it_be_drawn(runner, register) -> None:
    steps: list[int] = []
    rung = Event()
    query = register("count", counting(steps, rung))()
    runner.quiet.clear()
    assert isinstance(runner.gather([query], within_s=0.01)[query], Pending)
    sleep(0.02)
    before = len(steps)
    sleep(0.05)
    assert len(steps) - before <= 2
    runner.quiet.set()
    wait_until(lambda: len(steps) > before + 3)
    rung.set()


def test_what_the_key_does_not_wait_for_lets_what_it_waits_for_go_on(
    runner, register
) -> None:
    steps: list[int] = []
    rung = Event()
    long = register("count", counting(steps, rung))()
    assert isinstance(runner.gather([long], within_s=0.01)[long], Pending)
    wait_until(lambda: len(steps) > 60)  # by now it is known to take long
    taken: list[int] = []
    awaited = register("short", noting(steps, taken), lane="columns")(1)
    runner.quiet.clear()
    assert runner.gather([long, awaited], within_s=20)[awaited] == 1
    assert taken[-1] - taken[0] <= 2
    rung.set()


def test_what_takes_long_lets_what_may_not_go_first(runner, register) -> None:
    steps: list[int] = []
    rung = Event()
    runner.ask(register("count", counting(steps, rung))())
    wait_until(lambda: len(steps) > 60)  # by now it is known to take long
    taken: list[int] = []
    assert runner.wait(register("short", noting(steps, taken), lane="columns")(1)) == 1
    assert taken[-1] - taken[0] <= 2
    wait_until(lambda: len(steps) > taken[-1] + 10)
    rung.set()


def test_while_keys_are_pressed_one_wish_is_computed_at_a_time(
    runner, register
) -> None:
    first: list[int] = []
    later: list[int] = []
    rung = Event()
    runner.ask(register("first", counting(first, rung))(), Urgency.WISH)
    wait_until(lambda: len(first) > 3)
    runner.ask(register("later", counting(later, rung), lane="columns")(), Urgency.WISH)
    before = len(first)
    wait_until(lambda: len(first) > before + 60)
    assert len(later) < 20
    runner.resting = True
    wait_until(lambda: len(later) > 60)
    rung.set()


@pytest.mark.parametrize("same", [True, False], ids=["it", "its-lane"])
def test_a_job_that_waits_for_a_key_looks_whether_that_wants_it_or_its_lane(
    same, runner, register, monkeypatch
) -> None:
    waited = count_of(monkeypatch, runner)
    runner.quiet.clear()

    def some(index, at, args, progress) -> int:
        for _ in range(4 * args.n):
            progress(0.5)
            sleep(0.002)
        return args.n

    query = register("some", some)
    runner.ask(query(1), Urgency.AHEAD)
    wait_until(lambda: waited)
    wanted = query(1) if same else query(0)
    assert runner.gather([wanted], within_s=20) == {wanted: wanted.args.n}
    assert max(waited) < 0.01


def test_a_job_whose_key_was_drawn_is_as_urgent_as_what_is_in_view(
    runner, register, monkeypatch
) -> None:
    bell = Bell()
    waited = count_of(monkeypatch, runner)
    runner.gather([register("bell", bell)()], within_s=0.02)
    assert waited == []
    runner.lower()
    wait_until(lambda: waited)
    bell.rung.set()


def test_no_key_waits_for_a_worker_s_long_share_of_the_interpreter(session) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        Runner(session.index)
        assert sys.getswitchinterval() <= 0.001
    finally:
        sys.setswitchinterval(before)


# -- what is kept -----------------------------------------------------------------


def test_what_was_asked_for_longest_ago_goes_when_there_is_no_room(
    runner, register, monkeypatch
) -> None:
    monkeypatch.setattr(runner_module, "KEPT_BYTES", 2500)

    def kilobyte(index, at, args, progress) -> Any:
        return np.zeros(1000, np.uint8)

    query = register("kilobyte", kilobyte)
    first = runner.wait(query(0))
    runner.wait(query(1))
    assert runner.ask(query(0)) is first
    runner.wait(query(2))
    assert runner.known(query(0)) is first
    assert runner.known(query(1)) is None


def test_an_effect_is_answered_once_and_never_kept(runner, register) -> None:
    bell = Bell()
    bell.rung.set()
    query = register("effect", bell, kind="effect")()
    assert runner.wait(query) == 0
    assert runner.wait(query) == 0
    assert len(bell.computed) == 2


def test_the_size_of_an_answer_is_that_of_its_arrays_and_some() -> None:
    array = np.zeros((10, 10))
    assert size_of(array) == 800
    assert 800 < size_of((array, "text", {"a": 1})) < 1200
    assert size_of(tuple([array] * 1000)) >= 800_000


def test_an_answer_of_many_parts_is_measured_in_a_moment() -> None:
    """A worker does so before it begins the next job, maybe for a key that waits."""
    rows = [[(1, 2)] * 20] * 1000
    calls = [0]

    def count(frame: Any, event: str, arg: Any) -> None:
        calls[0] += event == "call"

    sys.setprofile(count)
    try:
        of_dict = size_of(dict(enumerate(rows)))
        of_tuple = size_of(tuple(rows))
    finally:
        sys.setprofile(None)
    assert calls[0] < 8_000
    row = 64 + 20 * 3 * 64
    assert of_tuple == pytest.approx(1000 * row, rel=0.01)
    assert of_dict == pytest.approx(1000 * (64 + row), rel=0.01)


def test_the_rows_that_stand_for_all_are_of_the_whole_answer() -> None:
    small_first = ["x"] * 1000 + ["x" * 1000] * 1000
    assert size_of(small_first) == pytest.approx(2000 * 564, rel=0.1)


def test_an_end_is_told_of(session, register) -> None:
    ended: list[Query] = []
    bell = Bell()
    bell.rung.set()
    query = register("bell", bell)()
    runner = Runner(session.index, ended.append)
    runner.wait(query)
    wait_until(lambda: ended)
    assert ended == [query]
    runner.close()


def test_a_question_of_no_arguments_is_one_question() -> None:
    assert INFO.ask() == Query("info", NoArguments())
    assert hash(INFO.ask()) == hash(Query("info", NoArguments()))


def wait_until(holds: Callable[[], object]) -> None:
    """Wait for what another thread brings, at most some seconds."""
    end = monotonic() + 10
    while not holds():
        assert monotonic() < end, "it never came"
        sleep(0.001)


def test_errors_of_ours_are_answers_too() -> None:
    assert issubclass(Cancelled, KernbenchError)

"""Answers for a screen: a worker thread a lane, urgency, cancelling, and what is kept.

The rule by which workers and the screen's thread share the processor:

1. The thread that reads the terminal clears ``quiet`` when a key has been read; the
   program sets it when the frame that the key leads to was handed to the terminal.
2. A job calls progress at least every 10 ms. At most once a millisecond that raises, if
   the job was cancelled; sleeps for 10 us, since numpy lets go of the interpreter's
   lock too briefly for another thread to take it; and waits for ``quiet``, for what
   is drawn ahead, if it has taken long for those asked for that have not, and if it
   is only wished for, while keys are pressed, for what has been wished for longer, at
   most 0.1 s, unless the key itself waits for this job, or for the lane that it is in.
3. ``gather`` makes the questions of a key urgent, ``lower`` makes them ordinary once
   the key is drawn.
4. Whatever is asked for cancels what is only computed ahead, in the same lane, and
   that cancels what is only wished for. Once a key has come, nothing is computed any
   more for those that might have come; and what has turned out to take long is computed
   ahead only while the user is ``resting``.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from ctypes import CDLL
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import partial
from itertools import islice
from threading import Condition, Event, Lock, Thread
from time import monotonic, sleep
from typing import Any

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.replay.commands import BY_NAME, answer
from kernbench.replay.index import Index
from kernbench.replay.progress import Cancelled, no_progress
from kernbench.replay.query import Query

KEPT_BYTES = 256 << 20
_TURN_S = 0.001
"""Between two times that a job lets others go on."""
_BREATH_S = 0.00001
_QUIET_S = 0.1
"""That a job waits for a key to be drawn, at most."""
_LOOK_S = 0.001
"""Between two looks, meanwhile, at whether that very key wants its answer, or lane."""
_SWITCH_S = 0.0005
"""A key must not wait for a worker's share of the interpreter."""
_LONG_TURNS = 30
"""Turns, of a millisecond at least, of a job that takes long: no key waits for it, and
nobody computes it ahead."""
MOMENT_S = 0.004
"""How long a key waits, if for nothing else, for something to end in a lane in which
one that took long was given up: the next need not go on with that.
"""
_GLIMPSE_S = 0.008
"""After which the pace of a job says whether a key can wait for it."""
_FAR_S = 0.3
"""What would go on for so long at its pace is not computed ahead any further."""
_NOTED = 1 << 12
_LONG_S = 0.5
"""After a job of that length, memory that it has freed is given back."""
_INSTANT_BYTES = 1 << 14
"""What an instant answer counts as; measuring it would take longer than making it."""


class Urgency(IntEnum):
    """Who waits for an answer: a pane that can do without it, the key that may come
    next, a pane in view, or the key that is acted on.
    """

    WISH = 0
    AHEAD = 1
    VISIBLE = 2
    KEY = 3


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that is not there yet: of what, how far it is, when it was asked for (s
    of ``time.monotonic``).
    """

    query: Query
    title: str
    done: float
    begun: float


class _Job:
    """A question in its lane. ``cancelled`` is set by any thread; ``dropped``: nobody
    wants to know that it was cancelled. ``found_done`` is the share that others before
    it had done, as its first progress says.
    """

    def __init__(self, query: Query, urgency: Urgency) -> None:
        command = BY_NAME[query.command]
        self.query = query
        self.urgency = urgency
        self.title = command.title or command.name
        self.begun = monotonic()
        self.turn = self.begun
        self.turns = 0
        self.done = 0.0
        self.found_done: float | None = None
        self.started = 0.0
        self.takes_long = False
        self.cancelled = False
        self.dropped = False

    def outlasts(self, seconds: float) -> bool:
        """Whether it goes on for longer than that, at the pace that it has had."""
        if self.found_done is None:
            return False
        ran = monotonic() - self.started
        did = self.done - self.found_done
        to_do = 1.0 - self.found_done
        return ran > _GLIMPSE_S and 0.0 < did * (ran + seconds) < to_do * ran

    @property
    def pending(self) -> Pending:
        return Pending(self.query, self.title, self.done, self.begun)


class _Lane:
    """The jobs of one worker; ``wake`` is notified when one is added.

    ``was_left``: one that took long was given up, and none has ended since. What comes
    next most likely goes on with the same table.
    """

    def __init__(self, lock: Lock) -> None:
        self.wake = Condition(lock)
        self.queue: list[_Job] = []
        self.current: _Job | None = None
        self.was_left = False

    @property
    def jobs(self) -> list[_Job]:
        return ([] if self.current is None else [self.current]) + self.queue


@dataclass(slots=True)
class _Kept:
    """An answer, or the error that it ended with."""

    result: Any
    nbytes: int


class Runner:
    """Answers by question. Each is computed once and kept, as far as there is room.

    ``ended(query)`` is called by a worker when an answer is there. The screen sets
    ``resting`` while no key is expected soon, and ``drawing_ahead`` while it draws what
    the next key most likely shows.
    """

    def __init__(
        self, index: Index, ended: Callable[[Query], None] = lambda query: None
    ) -> None:
        self.quiet = Event()
        self.quiet.set()
        self.resting = False
        self.drawing_ahead = False
        self.ended = ended
        self._index = index
        self._lock = Lock()
        self._done = Condition(self._lock)
        self._lanes: dict[str, _Lane] = {}
        self._jobs: dict[Query, _Job] = {}
        self._kept: OrderedDict[Query, _Kept] = OrderedDict()
        self._nbytes = 0
        self._takes_long: set[Query] = set()
        """What had not ended after ``_LONG_TURNS``."""
        self._took_long: set[str] = set()
        """The commands of which that was so the last time that somebody had asked."""
        self._closed = False
        sys.setswitchinterval(_SWITCH_S)

    # -- asking -------------------------------------------------------------------

    def ask(self, query: Query, urgency: Urgency = Urgency.VISIBLE) -> Any:
        """The answer, the KernbenchError that computing it raised, or Pending.

        An instant question is answered here and now; one of another kind is begun in
        its lane, unless it was before, or takes too long to be computed ahead.
        """
        with self._lock:
            kept = self._look_up(query)
            if kept is not None:
                return kept.result
            command = BY_NAME[query.command]
            if command.kind != "instant":
                too_long = query in self._takes_long and not self.resting
                if urgency is Urgency.AHEAD and too_long:
                    return _Job(query, urgency).pending
                return self._begun(query, command.lane, urgency).pending
        result = self._computed(query, no_progress)
        with self._lock:
            self._keep(query, result, _INSTANT_BYTES)
        return result

    def known(self, query: Query) -> Any | None:
        """The answer or error, if it is there; it is not begun for that."""
        with self._lock:
            kept = self._kept.get(query)
            return None if kept is None else kept.result

    def gather(self, queries: Iterable[Query], within_s: float) -> dict[Query, Any]:
        """The answers that a key needs, as ``ask`` has them.

        Waits for ``within_s`` in all at most, only for lanes that have nothing else to
        do, and for nothing that takes longer, as far as is known: that very question
        did, or the last of its command, or a key before has waited for it already, or
        it will if it goes on as it has begun; of a lane in which one that took long was
        given up once something has ended there, in a moment. It is drawn when it is
        there; until the key itself is drawn it gives way to that, and to what the key
        does wait for.
        """
        deadline = monotonic() + within_s
        queries = list(queries)
        with self._lock:
            since_before = {query for query in queries if self._is_waited_for(query)}
        found = {query: self.ask(query, Urgency.KEY) for query in queries}
        with self._lock:
            new = [
                query
                for query, result in found.items()
                if isinstance(result, Pending) and query not in since_before
            ]
            waiting = [query for query in new if self._is_free_for(query, found)]
            left_alone = [q for q in new if self._lane_of(q).was_left]
            moment_over = monotonic() + MOMENT_S
            while waiting or left_alone:
                for query in [q for q in left_alone if self._is_free_for(q, found)]:
                    left_alone.remove(query)
                    waiting.append(query)
                    self._raise(query)
                for query in [query for query in waiting if query in self._kept]:
                    waiting.remove(query)
                    found[query] = self._kept[query].result
                left = deadline - monotonic()
                waiting = [q for q in waiting if not self._is_late(q, left)]
                if not waiting:
                    left = min(left, moment_over - monotonic())
                if left <= 0 or not (waiting or left_alone):
                    break
                self._lower(waiting or left_alone)
                self._done.wait(min(left, _GLIMPSE_S))
            self._lower()
        return found

    def wait(self, query: Query, within_s: float = 60.0) -> Any:
        """The answer; raises what computing it raised, and TimeoutError after a
        while.
        """
        deadline = monotonic() + within_s
        while isinstance(result := self.ask(query), Pending):
            left = deadline - monotonic()
            if left <= 0:
                raise TimeoutError(f"{result.title} took over {within_s:g} s")
            with self._lock:
                if query in self._jobs:
                    self._done.wait(left)
        return answered(result)

    def lower(self) -> None:
        """The key is drawn: nothing is more urgent than what is in view."""
        with self._lock:
            self._lower()

    # -- cancelling ---------------------------------------------------------------

    def cancel(self) -> int:
        """Cancel all that somebody waits for; how many there were. Their answer is then
        a Cancelled, until ``forget``.
        """
        with self._lock:
            asked = [j for j in self._jobs.values() if j.urgency > Urgency.AHEAD]
            for job in asked:
                self._cancel(job, dropped=False)
            return len(asked)

    def retain(self, wanted: Iterable[Query]) -> None:
        """Cancel what is asked for no more, but for what nobody has asked for yet."""
        kept = set(wanted)
        with self._lock:
            for job in list(self._jobs.values()):
                if job.urgency > Urgency.AHEAD and job.query not in kept:
                    self._cancel(job, dropped=True)

    def drop_ahead(self) -> None:
        """Cancel what is computed for a key that may come: one has come."""
        with self._lock:
            for job in list(self._jobs.values()):
                if job.urgency is Urgency.AHEAD:
                    self._cancel(job, dropped=True)

    def forget(self) -> None:
        """What was cancelled, or failed, may be asked for again."""
        with self._lock:
            for query, kept in list(self._kept.items()):
                if isinstance(kept.result, Exception):
                    self._remove(query)

    def close(self) -> None:
        """Nobody waits any more: cancel all, wait for none."""
        with self._lock:
            self._closed = True
            for job in list(self._jobs.values()):
                self._cancel(job, dropped=True)
            for lane in self._lanes.values():
                lane.wake.notify()

    # -- how things are -----------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether any job runs or waits, those ahead too."""
        return bool(self._jobs)

    @property
    def busy_ahead(self) -> bool:
        """Whether anything is being computed for a key that may come, and will soon be
        there, as far as is known.
        """
        with self._lock:
            return any(j.urgency is Urgency.AHEAD for j in self._ending_soon())

    @property
    def busy_for_a_moment(self) -> bool:
        """Whether somebody waits for an answer that will soon be there, as far as is
        known.
        """
        with self._lock:
            return any(j.urgency > Urgency.AHEAD for j in self._ending_soon())

    def busy_since(self, when: float) -> bool:
        """Whether somebody waits for an answer that was asked for after ``when`` (s of
        ``time.monotonic``), unless it goes on with one that took long, or its command
        did so the last time.
        """
        with self._lock:
            return any(
                job.urgency > Urgency.AHEAD and job.begun > when
                for lane in self._lanes.values()
                if not self._may_take_long(lane)
                for job in lane.jobs
            )

    def running(self) -> list[Pending]:
        """What somebody waits for, in the order in which it was asked."""
        with self._lock:
            asked = [j for j in self._jobs.values() if j.urgency > Urgency.AHEAD]
            return [job.pending for job in asked]

    # -- inside; the lock is held -------------------------------------------------

    def _lower(self, waiting: Iterable[Query] = ()) -> None:
        """No key waits any more for jobs but those in the lanes of what is awaited."""
        lanes = {BY_NAME[query.command].lane for query in waiting}
        for job in self._jobs.values():
            awaited = BY_NAME[job.query.command].lane in lanes
            if job.urgency is Urgency.KEY and not awaited:
                job.urgency = Urgency.VISIBLE

    def _raise(self, query: Query) -> None:
        """A key waits for an answer, if that is still to come, and so for what its
        worker is at.
        """
        for job in (self._jobs.get(query), self._lane_of(query).current):
            if job is not None:
                job.urgency = Urgency.KEY

    def _lane_of(self, query: Query) -> _Lane:
        return self._lanes[BY_NAME[query.command].lane]

    def _look_up(self, query: Query) -> _Kept | None:
        kept = self._kept.get(query)
        if kept is not None:
            self._kept.move_to_end(query)
            if BY_NAME[query.command].kind == "effect":
                self._remove(query)
        return kept

    def _begun(self, query: Query, name: str, urgency: Urgency) -> _Job:
        """The job of a question in the lane of that name, at least that urgent."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(self._lock)
            Thread(target=self._work, args=(lane,), daemon=True, name=name).start()
        job = self._jobs.get(query)
        if job is None or job.dropped:
            job = self._jobs[query] = _Job(query, urgency)
            lane.queue.append(job)
            lane.wake.notify()
        job.urgency = max(job.urgency, urgency)
        for other in lane.jobs:
            if other.urgency <= Urgency.AHEAD and other.urgency < urgency:
                self._cancel(other, dropped=True)
        return job

    def _is_waited_for(self, query: Query) -> bool:
        """Whether somebody has asked for an answer, and it has not come yet."""
        job = self._jobs.get(query)
        return job is not None and job.urgency > Urgency.AHEAD and not job.dropped

    def _is_free_for(self, query: Query, asked: dict[Query, Any]) -> bool:
        """Whether a lane's worker is at nothing but questions of the same key, and this
        one is not known to take long, nor is what it was at.
        """
        if query in self._takes_long or query.command in self._took_long:
            return False
        lane = self._lane_of(query)
        if lane.was_left:
            return False
        at = lane.current
        return at is None or at.cancelled or at.query in asked

    def _ending_soon(self) -> list[_Job]:
        """The jobs that do not take long, as far as is known, nor stand behind one that
        does, nor go on with one that did.
        """
        return [
            job
            for lane in self._lanes.values()
            if lane.current is None or not lane.current.takes_long
            if not self._may_take_long(lane)
            for job in lane.jobs
        ]

    def _may_take_long(self, lane: _Lane) -> bool:
        """Whether a lane goes on with what took long and was given up, or is at, or
        begins with, something that somebody waits for and of which the last one took
        long.
        """
        if lane.was_left or not lane.jobs:
            return lane.was_left
        at = lane.jobs[0]
        return at.urgency > Urgency.AHEAD and at.query.command in self._took_long

    def _is_late(self, query: Query, left: float) -> bool:
        """Whether the worker of a question's lane takes longer than is ``left``, at the
        pace that it has had so far.
        """
        at = self._lane_of(query).current
        return at is not None and not at.cancelled and at.outlasts(left)

    def _cancel(self, job: _Job, dropped: bool) -> None:
        job.cancelled = True
        job.dropped = dropped
        lane = self._lane_of(job.query)
        if job.takes_long:
            lane.was_left = True
        if job in lane.queue:
            lane.queue.remove(job)
            self._end(job, Cancelled(f"{job.title} was cancelled at 0%"), 0)

    def _end(self, job: _Job, result: Any, nbytes: int) -> None:
        if self._jobs.get(job.query) is job:
            del self._jobs[job.query]
        if not job.takes_long and not job.cancelled:
            self._took_long.discard(job.query.command)
        if not (job.dropped and isinstance(result, Cancelled)):
            self._keep(job.query, result, nbytes)
        self._done.notify_all()

    def _keep(self, query: Query, result: Any, nbytes: int) -> None:
        self._remove(query)
        self._kept[query] = _Kept(result, nbytes)
        self._nbytes += nbytes
        while self._nbytes > KEPT_BYTES and len(self._kept) > 1:
            self._remove(next(iter(self._kept)))

    def _remove(self, query: Query) -> None:
        kept = self._kept.pop(query, None)
        if kept is not None:
            self._nbytes -= kept.nbytes

    # -- inside; without the lock ---------------------------------------------------

    def _work(self, lane: _Lane) -> None:
        """What a worker does: the most urgent job of its lane, over and over."""
        while True:
            with self._lock:
                while not lane.queue and not self._closed:
                    lane.wake.wait()
                if self._closed:
                    return
                job = max(lane.queue, key=lambda job: job.urgency)
                lane.queue.remove(job)
                lane.current = job
                job.started = monotonic()
            result = self._computed(job.query, partial(self._progress, job))
            nbytes = size_of(result)
            if monotonic() - job.started > _LONG_S:
                trim()
            with self._lock:
                lane.current = None
                if not job.cancelled:
                    lane.was_left = False
                self._end(job, result, nbytes)
            self.ended(job.query)

    def _computed(self, query: Query, progress: Callable[[float], None]) -> Any:
        """The answer, or the error; of ours, or a mistake in the program, which is
        raised where the answer is read.
        """
        try:
            return answer(self._index, query, progress)
        except Exception as error:
            return error

    def _progress(self, job: _Job, done: float) -> None:
        job.done = done
        if job.found_done is None:
            job.found_done = done
        now = monotonic()
        if now - job.turn < _TURN_S:
            return
        self._check(job)
        sleep(_BREATH_S)
        self._wait_for_quiet(job)
        self._note_turn(job)
        job.turn = monotonic()

    def _note_turn(self, job: _Job) -> None:
        """Know of a job that has run for a while that it takes long; cancel it if it is
        ahead of a key that is expected soon. What is ahead is known sooner by its pace:
        what else is likely to be shown waits behind it.
        """
        job.turns += 1
        is_far = job.urgency is Urgency.AHEAD and job.outlasts(_FAR_S)
        if job.turns >= _LONG_TURNS or is_far:
            job.takes_long = True
        if not job.takes_long:
            return
        with self._lock:
            if len(self._takes_long) >= _NOTED:
                self._takes_long.clear()
            self._takes_long.add(job.query)
            if job.urgency > Urgency.AHEAD:
                self._took_long.add(job.query.command)
            elif job.urgency is Urgency.AHEAD and not self.resting:
                self._cancel(job, dropped=True)
        self._check(job)

    def _wait_for_quiet(self, job: _Job) -> None:
        """Let a key be drawn, and the one that is most likely next, unless that waits
        for this job itself, or for its lane.
        """
        end = monotonic() + _QUIET_S
        while job.urgency is not Urgency.KEY and monotonic() < end:
            if self.quiet.wait(_LOOK_S):
                if not self._gives_way(job):
                    return
                sleep(_LOOK_S)
            self._check(job)

    def _gives_way(self, job: _Job) -> bool:
        """Whether others come first: before a job that takes long those that somebody
        waits for and that may not, while keys are pressed before what is wished for
        what has been for longer, and before one that is not ahead itself what is.
        """
        if job.takes_long and self._is_short_asked():
            return True
        is_wish = job.urgency is Urgency.WISH
        if is_wish and not self.resting and self._is_other_wish_first(job):
            return True
        if not self.drawing_ahead or job.urgency is Urgency.AHEAD:
            return False
        return job.takes_long or not self._lane_of(job.query).queue

    def _is_short_asked(self) -> bool:
        """Whether a worker is at something that somebody waits for, and that is not
        known to take long.
        """
        return any(
            job.urgency > Urgency.AHEAD and not job.takes_long
            for job in self._at_work()
        )

    def _is_other_wish_first(self, job: _Job) -> bool:
        """Whether another job that is only wished for was begun before this one: a key
        has to wait for all that run to let go of the interpreter.
        """
        return any(
            other.urgency is Urgency.WISH and other.started < job.started
            for other in self._at_work()
        )

    def _at_work(self) -> list[_Job]:
        """What the workers are at."""
        at_work = [lane.current for lane in list(self._lanes.values())]
        return [job for job in at_work if job is not None]

    def _check(self, job: _Job) -> None:
        if job.cancelled:
            raise Cancelled(f"{job.title} was cancelled at {job.done:.0%}")


def answered(result: Any) -> Any:
    """What ``Runner.ask`` gave, if it is an answer; raises it if it is an error."""
    if isinstance(result, Exception):
        raise result
    return result


_SAMPLE = 16


def size_of(result: Any) -> int:
    """About how many bytes an answer takes: its arrays, and 64 for each other value.

    Of what is long some rows stand for all: a map of the machine has 20,000 values, and
    to look at each took 18 ms, for which the next job had to wait.
    """
    if isinstance(result, np.ndarray):
        return result.nbytes
    if isinstance(result, str):
        return 64 + len(result)
    if isinstance(result, tuple | list):
        return _size_of_all(result)
    if isinstance(result, dict):
        return _size_of_all(result) + _size_of_all(result.values())
    if is_dataclass(result) and not isinstance(result, type):
        return 64 + sum(size_of(getattr(result, f.name)) for f in fields(result))
    return 64


def _size_of_all(values: Collection[Any]) -> int:
    """About how many bytes some values take, as those at equal distances do."""
    some = [*islice(values, 0, None, max(len(values) // _SAMPLE, 1))]
    return 64 + sum(map(size_of, some)) * len(values) // max(len(some), 1)


def trim() -> None:
    """Give back to the system what threads have freed: the C library keeps it."""
    getattr(CDLL(None), "malloc_trim", id)(0)


__all__ = [
    "KernbenchError",
    "Pending",
    "Runner",
    "Urgency",
    "answered",
    "size_of",
    "trim",
]

"""Long answers off the screen's thread: each is computed once, by its lane's worker, and kept."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, TypeAlias, TypeVar

from kernbench.replay.job import Job
from kernbench.replay.progress import Cancelled
from kernbench.replay.progress import Progress as Tell
from kernbench.replay.progress import no_progress as untold

T = TypeVar("T")
Key: TypeAlias = tuple[str, Hashable]  # lane, what is asked
PATIENCE_S = 0.1  # most answers are there sooner, and nothing is said of their coming
_KEPT, _FOUND = 32, 4  # answers; of spare jobs that nobody has taken yet
_WAY_S = 0.03  # within which most spare jobs end
# a worker that calls numpy lets go of the interpreter too briefly for another thread to take it:
_TURN_S, _BREATH_S = 0.001, 0.00001  # how often it waits, how long at least
_KEY_S = 0.1  # within which keys are acted on and drawn
_YOUNG_S, _MANY = (
    0.3,
    8,
)  # in which what a key asks for goes before older jobs; jobs begun last
_SWITCH_S = 0.0005  # a key must not wait for a worker's share of the interpreter


class KeyWaits(Exception):
    """What nobody has asked for yet is not gone on with."""


class Jobs:
    """Answers by key. What two answers of one lane share is used by one thread at a time.

    ``ended`` is called, by a worker, when a job has. While ``ahead`` is set jobs are ``spare``, and
    asking, or telling how far it is, raises KeyWaits once ``key_waits``.
    A job that ran before the key that is acted on, or what is ``held``, lets it be: where it next
    tells how far it is, it waits; so it does for jobs of other lanes that the last key began.
    """

    def __init__(self) -> None:
        self.ended: Callable[[], None] = lambda: None
        self.key_waits: Callable[[], bool] = lambda: False
        self.ahead, self._held, self._key = (
            False,
            0.0,
            0.0,
        )  # since when; when the last key came
        self._latest: tuple[tuple[str, Job[Any], Future[Any]], ...] = ()
        self._pools: dict[str, ThreadPoolExecutor] = defaultdict(
            lambda: ThreadPoolExecutor(1)
        )
        self._asked: dict[Key, tuple[Job[Any], Future[Any]]] = {}
        self._spare: tuple[Key, Job[Any], Future[Any]] | None = None
        self._ended: dict[
            Key, tuple[Job[Any], Future[Any]]
        ] = {}  # spare ones, not asked for yet
        sys.setswitchinterval(_SWITCH_S)

    def ask(
        self,
        key: Key,
        title: str,
        compute: Callable[[Tell], T],
        quick: bool = False,
        wait_s: float = 0.0,
        light: bool = False,
    ) -> T | Job[T]:
        """The answer of ``compute(tell)`` if it is there, else its Job, begun if it is new.

        A ``quick`` one is computed at once, unless the lane is busy; for a new one ``wait_s`` are
        waited; ahead only ``light`` ones are begun. Raises what KernbenchError computing raised,
        Cancelled too, until ``forget``.
        """
        if self.ahead:
            self._go_on()
        self._sweep()
        if key in self._ended:
            self._asked[key] = self._ended.pop(key)
        if key not in self._asked:
            free = self._spare is None or self._spare[0][0] != key[0]
            free = free or (not self.ahead and self.give_way(_WAY_S))
            if quick and free and not any(k[0] == key[0] for k in self._running()):
                return compute(self._go_on if self.ahead else untold)
            if self.ahead:
                if light:
                    self.spare(key, compute)
                return Job(title, compute)
            job, future = self._asked[key] = self._begun(key, title, compute)
            wait([future], wait_s)
            future.add_done_callback(lambda _: self.ended())
        job, future = self._asked[key] = self._asked.pop(
            key
        )  # last: asked for most lately
        done = [k for k, (_, future) in self._asked.items() if future.done()]
        for old in done[:-_KEPT]:
            del self._asked[old]
        return future.result() if future.done() else job

    def _go_on(self, done: float = 0.0) -> None:
        if self.key_waits():
            raise KeyWaits

    def _begun(
        self, key: Key, title: str, compute: Callable[[Tell], T]
    ) -> tuple[Job[T], Future[T]]:
        begun = turn = monotonic()

        def gently(tell: Tell) -> T:
            def told(done: float) -> None:
                nonlocal turn
                tell(done)
                if monotonic() - turn < _TURN_S:
                    return
                sleep(_BREATH_S)
                while self._waits(begun, key[0]):
                    sleep(_SWITCH_S)
                    tell(done)  # it may be cancelled meanwhile
                turn = monotonic()

            return compute(told)

        job = Job(title, gently)
        future = self._pools[key[0]].submit(job.run)
        self._latest = *self._latest[1 - _MANY :], (key[0], job, future)
        return job, future

    def _waits(self, begun: float, lane: str) -> bool:
        """Whether a job has to let something else go on first."""
        now, held, key = monotonic(), self._held, self._key
        if begun < held and now < held + _KEY_S:
            return True
        young = [
            x
            for x in self._latest
            if x[1].begun >= key and x[0] != lane and x[2].running()
        ]
        return begun < key and now < key + _YOUNG_S and bool(young)

    def key(self) -> None:
        """A key came: until ``drawn`` it is acted on."""
        self._held = self._key = monotonic()

    def drawn(self) -> None:
        """What a key did is on its way to the terminal."""
        self._held = 0.0

    def spare(
        self, key: Key, compute: Callable[[Tell], T], beside: bool = False
    ) -> T | None:
        """What no key waits for: the answer once it is there, else None.

        It is begun where no job runs, or ``beside`` those of other lanes, and gives way to what is
        asked for in its own. It is to be asked for again: the last few that ended are kept.
        """
        self._sweep()
        if key in self._ended:
            found: T = self._ended.pop(key)[1].result()
            return found
        lanes = {lane for lane, _ in self._running()}
        if self._spare is None and (key[0] not in lanes if beside else not lanes):
            self._spare = key, *self._begun(key, "", compute)
            self._spare[2].add_done_callback(lambda _: self.ended())
        return None

    def _sweep(self) -> None:
        if self._spare is not None and self._spare[2].done():
            (key, job, future), self._spare = self._spare, None
            if not isinstance(future.exception(), Cancelled):
                kept = [*self._ended.items()][1 - _FOUND :]
                self._ended = {**dict(kept), key: (job, future)}

    def give_way(self, wait_s: float = 0.0) -> bool:
        """Tell what is spare to end; whether it has."""
        if self._spare is None:
            return True
        self._spare[1].cancel()
        return not wait([self._spare[2]], wait_s).not_done

    @property
    def spared(self) -> bool:
        """Whether there is something spare, or an answer that nobody has looked for since."""
        return self._spare is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Something is drawn that no key waits for."""
        before, self._held = self._held, monotonic()  # it may be a key that is acted on
        yield
        self._held = before

    def _running(self) -> list[Key]:
        return [key for key, (_, future) in self._asked.items() if not future.done()]

    @property
    def busy(self) -> bool:
        """Whether any job is not done, spare ones too."""
        return bool(self._running()) or (
            self._spare is not None and not self._spare[2].done()
        )

    def running(self) -> list[Job[Any]]:
        """The jobs that run or wait."""
        return [self._asked[key][0] for key in self._running()]

    def late(self) -> list[Job[Any]]:
        """Those for longer than ``PATIENCE_S``."""
        return [job for job in self.running() if monotonic() - job.begun > PATIENCE_S]

    def cancel(self) -> bool:
        """Cancel all that run or wait; whether there was any."""
        running = self._running()
        for key in running:
            self._asked[key][0].cancel()
        return bool(running)

    def drop(self, key: Key) -> None:
        """Nobody waits for that answer any more."""
        if (asked := self._asked.pop(key, None)) is not None:
            asked[0].cancel()
            asked[1].cancel()

    def forget(self) -> None:
        """What was cancelled, or failed, may be asked for again."""
        asked = self._asked.items()
        bad = [
            key for key, (_, future) in asked if future.done() and future.exception()
        ]
        for key in bad:
            del self._asked[key]

    def close(self) -> None:
        """The screen ends: cancel all, wait for none."""
        self.cancel()
        self.give_way()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

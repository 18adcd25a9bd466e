"""Long computations that go on where they were when whoever had asked was cancelled.

A screen cancels what it has asked for as soon as a key makes it want something else. A
table that takes longer to make than keys are apart would never be there if each of
them began it anew. So it is made in steps, and they are kept with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

from kernbench.common.progress import (
    MANY,
    Progress,
    begun_beside,
    no_progress,
    wait_shortly,
)

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""A computation that stops at least every 10 ms, for ``next`` to go on.

It yields the share that is done, 0 to 1, and returns the result.
"""


def within(steps: Steps[T], low: float, high: float) -> Steps[T]:
    """The steps of one stage of some work: their 0 to 1 becomes low to high."""
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        yield low + (high - low) * done


def beside(compute: Callable[[], T], done: float) -> Steps[T]:
    """``compute()`` as steps, each of 2 ms.

    For a single call into numpy that takes longer, as in ``computed_beside``. It runs
    on a thread of its own, which goes on while nobody takes the next step.
    """
    future = begun_beside(compute)
    while wait_shortly(future):
        yield done
    return future.result()


class Resumable(Generic[T]):
    """What some steps return, found once, whoever is cancelled meanwhile.

    ``begin`` gives the steps. Several threads may ask: those that find nobody at it go
    on where it was left, others begin anew, and what is found first is kept. Steps that
    raise are dropped.
    """

    def __init__(self, begin: Callable[[], Steps[T]]) -> None:
        self._begin = begin
        self._left: Steps[T] | None = None
        self._found: list[T] = []
        self._lock = Lock()

    def result(self, progress: Progress = no_progress) -> T:
        """The result; ``progress`` is that of what is left to do.

        Raises what the steps raise, or ``progress``.
        """
        if not self._found:
            self._go_on(progress)
        return self._found[0]

    def _go_on(self, progress: Progress) -> None:
        """Take the steps that are left; put them back if ``progress`` raises."""
        with self._lock:
            steps = self._left or self._begin()
            self._left = None
        while True:
            try:
                done = next(steps)
            except StopIteration as end:
                self._found.append(end.value)
                return
            try:
                progress(done)
            except BaseException:
                self._left = steps
                raise


def resumable_beside(
    count: Callable[[], int], compute: Callable[[], T]
) -> Resumable[T]:
    """The result of ``compute()``, beside progress if it works on many numbers.

    ``count`` says how many these are; it is asked when that begins.
    """

    def steps() -> Steps[T]:
        if count() > MANY:
            return (yield from beside(compute, 0.0))
        return compute()

    return Resumable(steps)

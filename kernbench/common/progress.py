"""How a long computation reports how far it is, and is asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from threading import Thread
from typing import TypeAlias, TypeVar

from kernbench.errors import KernbenchError

T = TypeVar("T")
Progress: TypeAlias = Callable[[float], None]
"""Called with the share that is done, 0 to 1, at least every 10 ms. It may raise
``Cancelled``, and a computation lets that pass: calling progress is how it is ended."""

_EVERY_S = 0.002
"""Between two calls of progress while another thread computes, seconds.

Some calls into numpy keep Python's lock for 5 ms or so, which come on top.
"""

MANY = 1 << 15
"""Numbers of which one step in numpy takes some 50 us, and a dozen a ms or two."""

PART = 1 << 15
"""Rows that a handful of numpy calls work on in 1 to 4 ms."""


class Cancelled(KernbenchError):
    """Whoever asked for a computation does not want its answer any more."""


def no_progress(done: float) -> None:
    """A ``Progress`` for callers who just wait."""


def stage(progress: Progress, low: float, high: float) -> Progress:
    """The progress of one stage of some work: its 0 to 1 is reported as low to high.

    Of ``no_progress`` itself, as who waits for nothing needs no thread beside.
    """
    if progress is no_progress:
        return no_progress
    return lambda done: progress(low + (high - low) * done)


def forwards(progress: Progress) -> Progress:
    """The progress of work whose parts each begin at 0: it never reports less than
    before.
    """
    if progress is no_progress:
        return no_progress
    most = 0.0

    def report(done: float) -> None:
        nonlocal most
        most = max(most, done)
        progress(most)

    return report


def parts(count: int, progress: Progress, size: int = PART) -> Iterator[slice]:
    """Slices of at most ``size`` rows that cover ``count``; progress before each."""
    for low in range(0, count, size):
        progress(low / count)
        yield slice(low, min(low + size, count))


def computed_beside(compute: Callable[[], T], progress: Progress, done: float) -> T:
    """The result of ``compute()``, while ``progress(done)`` is called every 2 ms.

    The first call comes before that, as some work is many short steps. For a single
    call into numpy that takes longer than 10 ms, as sorting a million numbers does: it
    holds no lock, but cannot report either. It runs on a thread of its own, which costs
    some 100 us. Raises what ``compute`` or ``progress`` raises; in the second case
    nobody waits for the thread, and its result is dropped. Where the system has no room
    for a thread it is computed by the caller, and reported once.
    """
    if progress is no_progress:
        return compute()
    progress(done)
    future = begun_beside(compute)
    while wait_shortly(future):
        progress(done)
    return future.result()


def begun_beside(compute: Callable[[], T]) -> Future[T]:
    """The result of ``compute()`` to come, which runs on a thread of its own.

    Where the system has no room for a thread it is there when this returns. It cannot
    be cancelled; who waits for it no more may drop it.
    """
    future = Future[T]()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(compute())
        except BaseException as why:
            future.set_exception(why)

    try:
        Thread(target=run, daemon=True).start()
    except RuntimeError:  # of all that a Thread raises: it cannot be started
        run()
    return future


def wait_shortly(future: Future[T]) -> bool:
    """Whether a result is still to come, after 2 ms at most."""
    return bool(wait_for([future], _EVERY_S).not_done)


def beside_if_many(
    count: int, compute: Callable[[], T], progress: Progress, done: float
) -> T:
    """``computed_beside`` for work on more than ``MANY`` numbers, else ``compute()``.

    A thread of its own costs some 100 us, more than a little work takes. Progress is
    called once then, before that.
    """
    if count > MANY:
        return computed_beside(compute, progress, done)
    progress(done)
    return compute()

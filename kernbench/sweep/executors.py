"""Where points are run: processes of this machine, or a Dask cluster that is there.

Both are executors of ``concurrent.futures``; neither is told in which order to work.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeAlias

from kernbench.errors import KernbenchError, UsageError

CONNECT_S = 10.0
"""How long a scheduler may take to answer."""

_COUNT_EVERY_S = 2.0
"""How often a cluster is asked how many workers it has."""


class Workers(Protocol):
    """An executor, and how many points are worth giving to it at once.

    A call raises one of ``died`` if the worker that had it died. Such a point is run
    ``tries_died`` times in all.
    """

    executor: Executor
    died: tuple[type[BaseException], ...]
    tries_died: int
    count: int

    def wanted(self) -> int:
        """How many points it should hold; KernbenchError if it is gone.

        Counts the workers, if they may become more or fewer.
        """


OpenWorkers: TypeAlias = Callable[[], AbstractContextManager[Workers]]
"""Makes the workers of a sweep, and ends them with it."""


# -- processes of this machine ---------------------------------------------------------


class _Slot(NamedTuple):
    """A pool of one process. The process ends when ``lifeline`` is closed.

    ``began`` has its number once it has begun.
    """

    pool: ProcessPoolExecutor
    lifeline: Connection
    began: Future[int]


class ProcessSlots(Executor):
    """Pools of one process each.

    A ProcessPoolExecutor gives up all that it holds when one of its processes dies.
    With a pool a process that is the one point which died; the pool is made anew for
    the next one.
    """

    def __init__(self, jobs: int, log: Path) -> None:
        """``log`` gets what the processes print."""
        self._log = log
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["kernbench.sweep.point"])
        self._slots = [self._slot() for _ in range(jobs)]
        self._held: list[set[Future[Any]]] = [set() for _ in range(jobs)]

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Give a call to the process that has the fewest.

        KernbenchError if processes die before they have begun, which is not the fault
        of any point.
        """
        for held in self._held:
            held -= {future for future in held if future.done()}
        number = min(range(len(self._held)), key=lambda i: len(self._held[i]))
        try:
            future = self._begun(number).submit(fn, *args, **kwargs)
        except BrokenExecutor:
            self._slots[number].lifeline.close()
            self._slots[number] = self._slot()
            future = self._begun(number).submit(fn, *args, **kwargs)
        self._held[number].add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with ``cancel_futures`` in the middle of a run."""
        for slot in self._slots:
            if cancel_futures:
                slot.lifeline.close()
            slot.pool.shutdown(wait, cancel_futures=cancel_futures)
            slot.lifeline.close()

    def _begun(self, number: int) -> ProcessPoolExecutor:
        """The pool of a slot whose process has begun."""
        slot = self._slots[number]
        try:
            slot.began.result()
        except BrokenExecutor:
            raise KernbenchError(
                f"the processes of the sweep cannot begin; {self._log}, or what is "
                "above, says why"
            ) from None
        return slot.pool

    def _slot(self) -> _Slot:
        far_end, lifeline = self._context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            1, self._context, _begin_worker, (far_end, str(self._log))
        )
        return _Slot(pool, lifeline, pool.submit(os.getpid))


def _begin_worker(lifeline: Connection, log: str) -> None:
    """Make a process a worker: it ends with the one that has the other end.

    Ctrl-C is for that one alone. What users' code prints goes to the log.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """End this process when nobody has the other end any more."""
    lifeline.poll(None)
    os._exit(0)


class _Local:
    """``Workers`` that are processes of this machine."""

    died: tuple[type[BaseException], ...] = (BrokenExecutor,)
    tries_died = 3

    def __init__(self, executor: ProcessSlots, jobs: int) -> None:
        self.executor: Executor = executor
        self.count = jobs

    def wanted(self) -> int:
        """One point a process, so that one that dies takes no other with it."""
        return self.count


@contextmanager
def local_workers(jobs: int, log: Path) -> Iterator[Workers]:
    """So many processes of this machine."""
    slots = ProcessSlots(jobs, log)
    try:
        yield _Local(slots, jobs)
    finally:
        slots.shutdown(cancel_futures=True)


# -- a Dask cluster --------------------------------------------------------------------


class _Cluster:
    """``Workers`` of a Dask scheduler.

    It has given a point to several workers before it says that they died.
    """

    tries_died = 1

    def __init__(
        self,
        client: Any,
        executor: Executor,
        died: tuple[type[BaseException], ...],
    ) -> None:
        self.executor = executor
        self.died = died
        self._client = client
        self.count = 0
        self._counted = -_COUNT_EVERY_S

    def wanted(self) -> int:
        """Two points a thread, so that none waits for the way there and back.

        Some are given while there are no workers yet: a cluster may be about to grow.
        """
        if monotonic() - self._counted > _COUNT_EVERY_S:
            try:
                self.count = sum(self._client.nthreads().values())
            except (OSError, RuntimeError) as error:
                raise KernbenchError(
                    f"the scheduler is gone: {error}; start the sweep again to go on"
                ) from None
            self._counted = monotonic()
        return max(2 * self.count, 2)


def _silence(package: str) -> None:
    """Let the loggers of a package, some of which have levels of their own, say nothing
    of what is said by us.
    """
    for name in [package, *logging.getLogger().manager.loggerDict]:
        if name.split(".")[0] == package:
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def cluster_workers(address: str) -> Iterator[Workers]:
    """The workers of the scheduler at an address.

    UsageError without Dask, for a wrong address, and for one where nobody answers.
    """
    try:
        import distributed
    except ImportError:
        raise UsageError(
            "--scheduler needs Dask: pip install 'kernbench[sweep]'"
        ) from None
    _silence("distributed")
    make: Any = distributed.Client  # it has no types
    try:
        client = make(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(
            f"--scheduler {address}: no scheduler answers: {why}"
        ) from None
    executor = client.get_executor(pure=False)
    try:
        yield _Cluster(client, executor, (distributed.KilledWorker,))
    finally:
        executor.shutdown(wait=False)
        client.close(timeout=CONNECT_S)

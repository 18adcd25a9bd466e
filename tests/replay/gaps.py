"""How long a computation goes without calling ``progress``: what Esc has to wait for.

Every computation that can take longer than 10 ms has to call its ``progress`` at least
every 10 ms (``kernbench.common.progress``). Tests import ``longest_gap`` and
``least_gap``. As a script it prints a row for each job about a trace:

    python tests/replay/gaps.py TRACE [COMMAND ...]
"""

import gc
import sys
from collections.abc import Callable, Iterator
from math import inf
from time import perf_counter, thread_time

import numpy as np
from job_questions import JOBS, asked

from kernbench.common.progress import Progress
from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.trace import Trace

LIMIT_S = 0.010
"""How long a computation may go without a call of progress."""

_REFERENCE_S = 0.009
"""CPU time of ``_reference`` on the machine on which ``LIMIT_S`` was met."""

_SWITCH_S = 0.0005
"""As the debugger has it: how often threads take turns."""

Compute = Callable[[Progress], object]


def longest_gap(compute: Compute, clock: Callable[[], float] = thread_time) -> float:
    """The longest time in seconds between two calls of ``compute``'s progress.

    The start and the end of the computation count as calls. The garbage collector is
    off meanwhile, and threads take turns as often as in the debugger.

    Time is the CPU time of the calling thread: how long it computes itself and does not
    report. That of the whole process would have the time, too, in which a thread beside
    the caller keeps Python's lock. But on a busy machine it counts whatever that thread
    computes until the system runs the caller again, which is often 10 to 20 ms where
    nothing keeps the lock. No number of rounds leaves that out of a job of many waits.
    ``process_time`` for the ``clock`` finds such calls on a machine that is idle.
    """
    worst = 0.0
    last = 0.0

    def progress(done: float) -> None:
        nonlocal last, worst
        now = clock()
        worst = max(worst, now - last)
        last = now

    was_enabled = gc.isenabled()
    interval = sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    try:
        last = clock()
        compute(progress)
        progress(1.0)
    finally:
        sys.setswitchinterval(interval)
        if was_enabled:
            gc.enable()
    return worst


def limit_s() -> float:
    """``LIMIT_S``, longer where this machine is slower now than the one of
    ``_REFERENCE_S``: another one, or one whose caches others use as well.
    """
    least = inf
    for _ in range(3):
        began = thread_time()
        _reference()
        least = min(least, thread_time() - began)
    return LIMIT_S * max(least / _REFERENCE_S, 1.0)


def _reference() -> float:
    """Some work in Python and in numpy, as that of jobs is."""
    total = 0
    for number in range(50_000):
        total += number % 7
    values = np.random.default_rng(0).random(1 << 15)
    np.argsort(values, kind="stable")
    return total + float(np.cumsum(values)[-1])


def least_gap(
    make: Callable[[], Compute],
    rounds: int = 3,
    clock: Callable[[], float] = thread_time,
    enough: float = 0.0,
) -> float:
    """The best of some rounds of ``longest_gap``, each of what ``make`` makes anew.

    A computation that keeps its answer has nothing to do the second time; ``make``
    gives it an index that knows nothing yet, and is not timed. There is no further
    round after one that is at most ``enough``.
    """
    least = inf
    for _ in range(rounds):
        least = min(least, longest_gap(make(), clock))
        if least <= enough:
            break
    return least


def opened(path: str) -> Index:
    """An index as a debugger has it that has just been opened: nothing was asked."""
    index = Index(Trace.open(path))
    index.prepare()
    return index


def job(path: str, query: Query) -> Compute:
    """The computation of a question about a trace, on an index of its own."""
    index = opened(path)
    return lambda progress: answer(index, query, progress)


def questions(path: str) -> Iterator[Query]:
    """All that the jobs are asked about a trace."""
    index = opened(path)
    for command in JOBS:
        yield from asked(command, index)


def main(path: str, *names: str) -> None:
    """Print for each question the longest gap in ms, and how long it took in s."""
    for query in questions(path):
        if names and query.command not in names:
            continue
        compute = job(path, query)
        began = perf_counter()
        gap = longest_gap(compute) * 1e3
        took = perf_counter() - began
        line = f"{gap:9.1f} ms {took:8.2f} s  {query.command} {query.args}"
        print(line[:100], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""How long a computation goes without calling ``progress``: what Esc has to wait for.

Every computation that can take longer than 10 ms has to call its ``progress`` at least
every 10 ms (``kernbench.common.progress``). Tests import ``longest_gap`` and
``least_gap``. As a script it prints a row for each job about a trace:

    python tests/replay/gaps.py TRACE [COMMAND ...]
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from math import inf
from time import perf_counter, process_time

from job_questions import JOBS, asked

from kernbench.common.progress import Progress
from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.trace import Trace

LIMIT_S = 0.010
"""How long a computation may go without a call of progress."""

_SWITCH_S = 0.0005
"""As the debugger has it: how often threads take turns."""

Compute = Callable[[Progress], object]


def longest_gap(compute: Compute, clock: Callable[[], float] = process_time) -> float:
    """The longest time in seconds between two calls of ``compute``'s progress.

    The start and the end of the computation count as calls. The garbage collector is
    off meanwhile, and threads take turns as often as in the debugger.

    Time is the CPU time of this process, so that neighbours on the machine do not
    count. That of the calling thread alone would say too little: while a thread beside
    it computes and keeps Python's lock, the caller can report nothing, yet uses no CPU
    time. All threads run on one core meanwhile. On two, a busy machine may keep the
    caller waiting for its core, and count all that the other thread computes by then.
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
    cores = _cores()
    gc.collect()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    _run_on({max(cores)})
    try:
        last = clock()
        compute(progress)
        progress(1.0)
    finally:
        _run_on(cores)
        sys.setswitchinterval(interval)
        if was_enabled:
            gc.enable()
    return worst


def _cores() -> set[int]:
    """The cores that this thread may run on; one where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return {0}


def _run_on(cores: set[int]) -> None:
    """Let this thread, and those that it starts, run on these cores only."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def least_gap(
    make: Callable[[], Compute],
    rounds: int = 3,
    clock: Callable[[], float] = process_time,
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

"""How long a computation goes without calling ``progress``: what Esc has to wait for.

Every computation that can take longer than 10 ms has to call its ``progress`` at least
every 10 ms (``kernbench.common.progress``). Tests import ``longest_gap`` and
``least_gap``. As a script it prints a row for each question about a trace:

    python tests/replay/gaps.py TRACE [QUESTION ...]
"""

import gc
import sys
from collections.abc import Callable
from time import perf_counter, process_time

from kernbench.common.progress import Progress
from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.compare import compare
from kernbench.replay.data.hazards import find_hazards
from kernbench.trace import Trace

_SWITCH_S = 0.0005
"""As ``tui.jobs`` has it."""

Compute = Callable[[Progress], object]


def longest_gap(compute: Compute, clock: Callable[[], float] = process_time) -> float:
    """The longest time in seconds between two calls of ``compute``'s progress.

    The start and the end of the computation count as calls. The garbage collector is
    off meanwhile, and threads take turns as often as in the debugger. Time is the CPU
    time of this process, so that neighbours on the machine do not count: a thread that
    computes beside its caller does.
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
    gc.collect()
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


def least_gap(
    make: Callable[[], Compute],
    rounds: int = 3,
    clock: Callable[[], float] = process_time,
) -> float:
    """The best of some rounds of ``longest_gap``, each of what ``make`` makes anew.

    A computation that keeps its answer has nothing to do the second time; ``make``
    gives it an index that knows nothing yet, and is not timed.
    """
    return min(longest_gap(make(), clock) for _ in range(rounds))


def questions(trace: Trace) -> dict[str, Callable[[ReplaySession], Compute]]:
    """Every long question about data by name: a session -> what is computed."""
    last = len(trace.ops) - 1
    middle = last // 2
    tensor = trace.expects[0].tensor if trace.expects else ""
    hardly = 'comp ~ "*.pe_*" and dur > 10us'
    return {
        "prepare": lambda s: s.index.history.prepare,
        "index": lambda s: s.index.memory.index,
        "hazard scan": hazard_scan,
        "reach": lambda s: (
            lambda progress: s.index.history.reach(
                s.index.history.executed(middle), progress
            )
        ),
        "tensor": lambda s: lambda progress: s.tensor(tensor, last, progress),
        "outputs": lambda s: lambda progress: s.outputs(last, progress),
        "diff": lambda s: lambda progress: s.diff(trace.expects[0].after - 1, progress),
        "blame": lambda s: lambda progress: s.blame(tensor, 100, progress),
        "find": lambda s: lambda progress: s.matching(hardly, progress),
        "find addr": lambda s: lambda progress: s.matching("addr = 0x400", progress),
        "find line": lambda s: (
            lambda progress: s.matching("line > 30 and shape = 64x64", progress)
        ),
        "findings": lambda s: s.index.history.findings,
        "hazards": lambda s: s.hazards,
        "verify": lambda s: s.verify,
        "divergence": lambda s: s.first_divergence,
        "compare": lambda s: (
            lambda progress: compare(s.trace, s.trace, progress=progress)
        ),
    }


def hazard_scan(session: ReplaySession) -> Compute:
    """What hazards are without executing; the history is prepared before."""
    history = session.index.history
    history.prepare()

    def scan(progress: Progress) -> object:
        return find_hazards(session.trace, history.touched, history.allocs, progress)

    return scan


def main(path: str, *names: str) -> None:
    """Print for each question the longest gap in ms, and how long it took in s."""
    asked = questions(Trace.open(path))
    for name in names or asked:
        session = ReplaySession(Trace.open(path))
        compute = asked[name](session)
        began = perf_counter()
        try:
            said = f"{longest_gap(compute) * 1e3:9.1f} ms"
        except KernbenchError as why:
            said = f"{why}"
        print(f"{name:<12} {said}  {perf_counter() - began:8.2f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

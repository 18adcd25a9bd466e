"""What the debugger's answers cost on traces of three sizes, against the goals set for them.

What is asked again and again (moves, runs, timelines, blame) is asked once before it is timed, so
that its indexes stand, then of random places, for the median; the rest once. All is CPU time. None
may grow faster than n log n, within NOISE. The largest trace is a file of some 2 GB.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from kernbench.perf.make_trace import make_trace
from kernbench.perf.sim import PerfRow, seconds
from kernbench.replay import ReplaySession
from kernbench.replay.compare import compare
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SIZES = (100_000, 1_000_000, 10_000_000)
LONG_ANSWERS = 1_000_000  # ops up to which those that read everything are timed
NOISE = 2.0  # columns that fit in the caches at one size do not at the next
PLACES, COLUMNS = 200, 200
GOALS = {  # goal, unit, how many of it are a second
    "goto": (50.0, "us", 1e6),
    "step": (50.0, "us", 1e6),
    "step_component": (50.0, "us", 1e6),
    "run to no stop": (0.5, "s", 1.0),
    "timeline of 40 rows": (5.0, "ms", 1e3),
    "timeline of 100 rows": (20.0, "ms", 1e3),
    "critical_path": (10.0, "s", 1.0),
}


def measure(sizes: Sequence[int] = SIZES, **matmul: Any) -> list[PerfRow]:
    """Measure everything, on ``sizes`` in ops, rising, and a ``matmul``: of all PEs by default."""
    taken, rows = defaultdict[str, list[float]](list), list[PerfRow]()
    with tempfile.TemporaryDirectory() as folder:
        for ops in sizes:
            make_trace(path := Path(folder) / "replay.msgpack", ops)
            for name, figure in figures(Trace.open(path), ops <= LONG_ANSWERS):
                taken[name].append(figure)
        blame = blame_seconds(Path(folder) / "matmul.msgpack", matmul)
    for name, found in taken.items():
        timed = list(zip(sizes, found, strict=False))
        if name in GOALS:
            goal, unit, scale = GOALS[name]
            rows.append(
                PerfRow(f"{name}, {timed[-1][0]:,} ops", found[-1] * scale, goal, unit)
            )
        for (few, before), (many, after) in pairwise(timed):
            bound = round(NOISE * many * log(many) / (few * log(few)), 1)
            rows.append(
                PerfRow(f"{name}, {many:,} / {few:,}", after / before, bound, "ratio")
            )
    return [*rows, PerfRow("blame of an element of a matmul", blame * 1e3, 50.0, "ms")]


def figures(trace: Trace, long_answers: bool = True) -> Iterator[tuple[str, float]]:
    """(name, seconds) of all that is measured on one trace."""
    session, rng = ReplaySession(trace), np.random.default_rng(0)
    ops = rng.integers(len(session), size=PLACES).tolist()
    low, high = session.launch_window()
    spans = np.sort(rng.uniform(low, high, (PLACES // 10, 2))).tolist()

    def run(limit: str) -> None:
        session.to_start()
        session.break_on(limit)
        session.run()

    yield "goto", _median(session.goto, ops)
    for move in (session.step, session.step_component):
        yield move.__name__, _median(lambda _, move=move: move(), ops, session.goto)
    endless = [f'comp ~ "*.pe_*" and dur > {limit}s' for limit in range(10, 15)]
    yield "run to no stop", _median(run, endless)
    for rows in (40, 100):
        draw = partial(
            session.timeline, session.index.timelines.components[:rows].tolist()
        )
        yield (
            f"timeline of {rows} rows",
            _median(lambda span, d=draw: d(*span, COLUMNS), spans),
        )
    if long_answers:
        for name in ("stalls", "lines", "link_load", "critical_path"):
            yield name, seconds(getattr(ReplaySession(trace), name))
        yield "compare", seconds(lambda: compare(trace, trace))


def blame_seconds(path: Path, params: dict[str, Any]) -> float:
    """Seconds to blame an element of a matmul's C, once its history is built."""
    run_bench("matmul", params=params, trace=path)
    session = ReplaySession(Trace.open(path))
    ends = [np.add(c.origin, c.array.shape) for c in session.trace.expects]
    places = np.random.default_rng(0).integers(
        np.max(ends, axis=0), size=(PLACES // 10, 2)
    )
    session.to_end()
    return _median(
        session.blame, [f"c[{row},{column}]" for row, column in places.tolist()]
    )


def _median(
    call: Callable[..., object],
    given: Iterable[Any],
    before: Callable[..., object] = id,
) -> float:
    """Seconds of a call, of one each of ``given`` after ``before`` but the first."""
    taken = []
    for one in given:
        before(one)
        taken.append(seconds(partial(call, one)))
    return median(taken[1:])

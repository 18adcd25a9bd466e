"""What the debugger's answers cost on traces of three sizes, against their goals.

What is asked again and again (moves, runs, timelines, blame) is asked once before it is
timed, so that its indexes stand, then of random places, for the median; the rest once.
All is CPU time. None may grow faster than n log n, within NOISE. The largest trace is a
file of some 2 GB.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from kernbench.perf.make_trace import make_trace
from kernbench.perf.sim import PerfRow, seconds
from kernbench.replay import ReplaySession
from kernbench.replay.commands import answer
from kernbench.replay.compare import compare
from kernbench.replay.inner_commands import CELLS
from kernbench.replay.time.timeline import RowKey
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SIZES = (100_000, 1_000_000, 10_000_000)
"""Ops of the traces."""

LONG_ANSWERS = 1_000_000
"""Ops up to which those answers that read everything are timed."""

NOISE = 2.0
"""Columns that fit in the caches at one size do not at the next."""

PLACES = 200
"""Random places that an answer is asked for."""

COLUMNS = 200
"""Columns of a timeline."""


SLICE_ROWS = 40
"""Rows of a timeline with named slices."""

SHARES = {"fit": 1.0, "1 %": 0.01, "0.001 %": 0.00001}
"""The windows that they are drawn in, as shares of the run."""


class Goal(NamedTuple):
    """The most that an answer may take, in ``unit``: ``a_second`` are a second."""

    limit: float
    unit: str
    a_second: float


GOALS = {
    "goto": Goal(50.0, "us", 1e6),
    "step": Goal(50.0, "us", 1e6),
    "step_component": Goal(50.0, "us", 1e6),
    "run to no stop": Goal(0.5, "s", 1.0),
    "timeline of 40 rows": Goal(5.0, "ms", 1e3),
    "timeline of 100 rows": Goal(20.0, "ms", 1e3),
    "40 rows of slices at fit": Goal(8.0, "ms", 1e3),
    "40 rows of slices at 1 %": Goal(8.0, "ms", 1e3),
    "40 rows of slices at 0.001 %": Goal(8.0, "ms", 1e3),
    "critical_path": Goal(10.0, "s", 1.0),
}


def measure(sizes: Sequence[int] = SIZES, **matmul: Any) -> list[PerfRow]:
    """Measure everything, on traces of ``sizes`` in ops, rising, and a ``matmul``.

    The matmul is by default one of all PEs.
    """
    taken: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replay.msgpack"
        for ops in sizes:
            make_trace(path, ops)
            for name, figure in figures(Trace.open(path), ops <= LONG_ANSWERS):
                taken[name].append(figure)
        blame = blame_seconds(Path(folder) / "matmul.msgpack", matmul)
    rows: list[PerfRow] = []
    for name, found in taken.items():
        rows += _rows(name, list(zip(sizes, found, strict=False)))
    rows.append(PerfRow("blame of an element of a matmul", blame * 1e3, 50.0, "ms"))
    return rows


def _rows(name: str, timed: Sequence[tuple[int, float]]) -> Iterator[PerfRow]:
    """What an answer takes on the largest trace, and how it grows with the ops.

    ``timed`` are numbers of ops, each with seconds.
    """
    if name in GOALS:
        goal = GOALS[name]
        ops, spent = timed[-1]
        measured = spent * goal.a_second
        yield PerfRow(f"{name}, {ops:,} ops", measured, goal.limit, goal.unit)
    for (few, before), (many, after) in pairwise(timed):
        bound = round(NOISE * many * log(many) / (few * log(few)), 1)
        yield PerfRow(f"{name}, {many:,} / {few:,}", after / before, bound, "ratio")


def figures(trace: Trace, long_answers: bool = True) -> Iterator[tuple[str, float]]:
    """All that is measured on one trace: names, each with seconds."""
    session = ReplaySession(trace)
    rng = np.random.default_rng(0)
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
    never = [f'comp ~ "*.pe_*" and dur > {limit}s' for limit in range(10, 15)]
    yield "run to no stop", _median(run, never)
    for rows in (40, 100):
        components = session.index.op_index.components[:rows].tolist()
        draw = partial(session.timeline, components)
        drawn = _median(lambda span, draw=draw: draw(*span, COLUMNS), spans)
        yield f"timeline of {rows} rows", drawn
    for name, taken in _slices(session):
        yield name, taken
    if long_answers:
        for name in ("stalls", "lines", "link_load", "critical_path"):
            yield name, seconds(getattr(ReplaySession(trace), name))
        yield "compare", seconds(lambda: compare(trace, trace))


def _slices(session: ReplaySession) -> Iterator[tuple[str, float]]:
    """What the named slices of some rows take, in windows of parts of the run.

    Each is another one, but for all of it: there the ends differ a little.
    """
    index = session.index
    components = index.op_index.components[:SLICE_ROWS].tolist()
    rows = tuple(RowKey((component,)) for component in components)
    low, high = session.launch_window()
    rng = np.random.default_rng(0)
    for name, share in SHARES.items():
        span = (high - low) * share
        starts = low + rng.uniform(0.0, max(high - low - span, span * 1e-3), PLACES)

        def draw(start: float, span: float = span) -> None:
            asked = CELLS.ask(
                rows=rows,
                pes=(1,) * len(rows),
                t0=start,
                t1=start + span,
                columns=COLUMNS,
            )
            answer(index, asked)

        yield f"{SLICE_ROWS} rows of slices at {name}", _median(draw, starts.tolist())


def blame_seconds(path: Path, params: dict[str, Any]) -> float:
    """Seconds to blame an element of a matmul's C, once its history is built."""
    run_bench("matmul", params=params, trace=path)
    session = ReplaySession(Trace.open(path))
    ends = [np.add(shard.origin, shard.array.shape) for shard in session.trace.expects]
    shape = np.max(ends, axis=0)
    places = np.random.default_rng(0).integers(shape, size=(PLACES // 10, 2))
    session.to_end()
    elements = [f"c[{row},{column}]" for row, column in places.tolist()]
    return _median(session.blame, elements)


def _nothing(given: Any) -> None:
    """What is done before a call, where nothing is."""


def _median(
    call: Callable[..., object],
    given: Iterable[Any],
    before: Callable[..., object] = _nothing,
) -> float:
    """Seconds of a call, of one each of ``given`` after ``before`` but the first."""
    taken = []
    for one in given:
        before(one)
        taken.append(seconds(partial(call, one)))
    return median(taken[1:])

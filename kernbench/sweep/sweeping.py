"""A sweep: its points go to workers until each has a result, or has failed thrice."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeAlias

from kernbench.common.user_code import described
from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api.own_code import code_sha
from kernbench.sweep.draw import Draw, drawn
from kernbench.sweep.executors import OpenWorkers, Workers
from kernbench.sweep.keys import Keys
from kernbench.sweep.point import Outcome, job_of, run_point
from kernbench.sweep.space import Objective, Point, Space
from kernbench.sweep.store import (
    PARQUET,
    SWEEP,
    TRACES,
    Row,
    Store,
    locked,
    replace_file,
    write_parquet,
)
from kernbench.sweep.table import as_record, is_right, value_of

TRIES = 3
"""So many times a point is run that ends with an error, before it is kept."""

_SHOW_EVERY_S = 0.5
"""How often progress is told where no point comes back."""

DIED = "the worker that ran it died"


class Source(Protocol):
    """Where the points of a sweep come from."""

    def next(self) -> tuple[str, Point] | None:
        """The key of a point that is to be run, and the point.

        None if there is none until further rows are told, or at all.
        """

    def told(self, row: Row) -> None:
        """Hear what came of a point."""

    def found(self) -> Iterable[Row]:
        """What came earlier of points that are not run again."""

    def had(self) -> Iterable[str]:
        """The keys of all points that the sweep has had."""


class Listed:
    """A ``Source`` of points that are known from the beginning."""

    def __init__(self, points: dict[str, Point], done: Mapping[str, Row]) -> None:
        """``points`` by key, and the rows of those that are not run again."""
        self._points = points
        self._found = [done[key] for key in points if key in done]
        self._left = iter([key for key in points if key not in done])

    def next(self) -> tuple[str, Point] | None:
        """The next one that is missing."""
        key = next(self._left, None)
        return None if key is None else (key, self._points[key])

    def told(self, row: Row) -> None:
        """What comes of one point does not matter to the others."""

    def found(self) -> Iterable[Row]:
        """The rows that were there."""
        return self._found

    def had(self) -> Iterable[str]:
        """All keys, also of points that have not been asked for."""
        return self._points.keys()


@dataclass(slots=True)
class Tally:
    """How far a sweep is.

    ``done`` counts failed points too, and those that were there before, ``found``.
    ``wrong`` are those whose data differ from their reference. ``varied`` are the names
    of the axes that have more than one value.
    """

    total: int
    objective: Objective
    varied: tuple[str, ...] = ()
    found: int = 0
    done: int = 0
    failed: int = 0
    wrong: int = 0
    workers: int = 0
    best: Row | None = None
    began: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the sweep was begun."""
        return monotonic() - self.began

    @property
    def rate(self) -> float:
        """Points a second."""
        return (self.done - self.found) / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this rate; None before the first point."""
        if self.done == self.found:
            return None
        return (self.total - self.done) / self.rate

    def add(self, row: Row) -> None:
        """Count a point."""
        self.done += 1
        self.failed += row.error is not None
        if row.result is None:
            return
        if not is_right(row):
            self.wrong += 1
            return
        value = value_of(row, self.objective.column)
        if value is not None and (self.best is None or self._is_better(value)):
            self.best = row

    def _is_better(self, value: Any) -> bool:
        assert self.best is not None
        best = value_of(self.best, self.objective.column)
        return self.objective.badness(value) < self.objective.badness(best)


Watch: TypeAlias = Callable[[Tally], None]


def plan(space: Space, draw: Draw) -> dict[str, Point]:
    """All points of a sweep by key; of two that are the same run, the first.

    UsageError if there are none.
    """
    keys = Keys(space)
    points: dict[str, Point] = {}
    for point in drawn(space, draw):
        points.setdefault(keys.of(point), point)
    if not points:
        conditions = "; ".join(condition.text for condition in space.conditions)
        raise UsageError(f"the space is empty: no point meets {conditions!r}")
    return points


def write_about(space: Space, folder: Path) -> None:
    """Write what all points of a sweep have in common: what ``show`` has to know."""
    options = space.options
    about = {
        "bench": space.bench,
        "code": code_sha(),
        "axes": [axis.name for axis in space.axes],
        "objectives": {o.column: o.direction for o in space.objectives},
        "topology": options.topology,
        "ccl": options.ccl,
        "plugins": options.plugins,
        "verify": options.verify,
        "max_ns": options.max_ns,
        "max_ops": options.max_ops,
    }
    replace_file(folder / SWEEP, json.dumps(about, indent=1).encode() + b"\n")


class Swept(NamedTuple):
    """A whole sweep: its tally, its rows sorted by key, and what to know of it.

    ``has_parquet`` says whether there is a Parquet table; that takes pyarrow.
    ``damaged`` are the numbers of the lines of ``points.jsonl`` that could not be read.
    """

    tally: Tally
    rows: list[Row]
    has_parquet: bool
    damaged: tuple[int, ...]


def sweep(
    space: Space,
    folder: Path,
    make_source: Callable[[Store], Source],
    total: int,
    open_workers: OpenWorkers,
    watch: Watch,
) -> Swept:
    """Run what a folder does not have yet of the ``total`` points of a source.

    UsageError if another sweep writes there; KernbenchError if the disk is full, and as
    ``run_points``. What was run is kept, and is not run again by the next sweep.
    """
    with locked(folder):
        write_about(space, folder)
        (folder / TRACES).mkdir(exist_ok=True)
        store = Store(folder)
        try:
            source = make_source(store)
            store.begin(source.had())
            with open_workers() as workers:
                tally = run_points(space, source, store, workers, total, watch)
            rows = store.finish(source.had())
        finally:
            store.close()
        has_parquet = write_parquet(map(as_record, rows), folder / PARQUET)
    return Swept(tally, rows, has_parquet, store.damaged)


class _Attempt(NamedTuple):
    """A point that is to be run, for the ``number``-th time."""

    key: str
    point: Point
    number: int = 1


def run_points(
    space: Space,
    source: Source,
    store: Store,
    workers: Workers,
    total: int,
    watch: Watch,
) -> Tally:
    """Run what a source gives, and keep it; ``watch`` hears of it.

    KernbenchError if a worker refuses to work, or the workers are gone; what had come
    back by then is kept.
    """
    varied = tuple(axis.name for axis in space.axes if axis.is_varied)
    tally = Tally(total, space.objectives[0], varied)
    for row in source.found():
        tally.add(row)
    tally.found = tally.done
    job = job_of(space)
    again: deque[_Attempt] = deque()
    running: dict[Future[Outcome], _Attempt] = {}
    while True:
        wanted = workers.wanted()
        tally.workers = workers.count
        for attempt in _attempts(source, again, wanted - len(running)):
            future = workers.executor.submit(run_point, job, attempt.point)
            running[future] = attempt
        if not running:
            return tally
        ended, _ = wait(running, _SHOW_EVERY_S, FIRST_COMPLETED)
        rows = []
        problem = None
        for future in ended:
            attempt = running.pop(future)
            try:
                outcome = _outcome(future, workers)
            except KernbenchError as error:
                problem = error
                continue
            store.log(attempt.key, attempt.number, outcome)
            tries = workers.tries_died if outcome.error == DIED else TRIES
            if outcome.error is not None and attempt.number < tries:
                again.append(attempt._replace(number=attempt.number + 1))
                continue
            rows.append(Row(attempt.key, attempt.point, outcome.result, outcome.error))
        store.add(rows)
        if problem is not None:
            raise problem
        for row in rows:
            source.told(row)
            tally.add(row)
        watch(tally)


def _attempts(source: Source, again: deque[_Attempt], most: int) -> Iterator[_Attempt]:
    """What to run next, new points first."""
    for _ in range(most):
        found = source.next()
        if found is not None:
            yield _Attempt(*found)
        elif again:
            yield again.popleft()
        else:
            return


def _outcome(future: Future[Outcome], workers: Workers) -> Outcome:
    """What came of a call; KernbenchError if it says that no other would do better."""
    if future.cancelled():
        raise KernbenchError("the workers are gone; start the sweep again to go on")
    error = future.exception()
    if isinstance(error, workers.died):
        return Outcome(error=DIED)
    if error is not None:
        text = " ".join(described(error).split())
        raise KernbenchError(f"the workers cannot run points: {text}")
    outcome = future.result()
    if outcome.refused is not None:
        raise KernbenchError(outcome.refused)
    return outcome

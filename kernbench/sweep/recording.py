"""The trace of one row of a sweep, recorded when somebody wants to look at it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.sweep.columns import COLUMNS, columns_of
from kernbench.sweep.point import simulated
from kernbench.sweep.show import Results
from kernbench.sweep.store import Row
from kernbench.trace import Trace


def record(results: Results, row: Row) -> tuple[Path, list[str]]:
    """The trace of a row, and a line for each column that is not as the row has it.

    It is not recorded anew if it is there as a whole. Raises what the run raises that
    leaves no trace.
    """
    path = results.trace_path(row)
    if is_whole(path):
        return path, []
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        result = simulated(results.bench, results.options, row.point, path)
    except KernbenchError as error:
        if not path.exists():
            raise
        return path, [f"the run ended with an error: {error}"]
    if result.trace_error is not None:
        raise KernbenchError(result.trace_error)
    if row.result is None:
        return path, [f"the run ended well now; in the sweep it did not: {row.error}"]
    now = columns_of(result)
    return path, [
        f"{name} is {now[name]} now, and was {row.result.get(name)} in the sweep: "
        "kernbench or a file of the space has changed"
        for name in COLUMNS
        if not _is_same(now[name], row.result.get(name))
    ]


def _is_same(now: Any, before: Any) -> bool:
    """Whether a column is as it was; a trace has its energies in another order."""
    if isinstance(now, float) and isinstance(before, float):
        return math.isclose(now, before, rel_tol=1e-9)
    return bool(now == before)


def is_whole(path: Path) -> bool:
    """Whether a trace is there, and was written to its end."""
    return _end_of(path) is not None


def has_ended_well(path: Path) -> bool:
    """Whether a trace is there, of a run that no error has ended.

    An earlier sweep leaves the trace of a run that failed, too.
    """
    end = _end_of(path)
    return end is not None and end.get("error") is None


def _end_of(path: Path) -> dict[str, Any] | None:
    """What a trace says of its run's end; None if it is not there, or not whole."""
    try:
        return Trace.open(path).end
    except (OSError, TraceFormatError):
        return None

"""Spans of time: the window that a question is about, how much of one is covered."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array
from kernbench.errors import UsageError
from kernbench.trace import Trace


def window(
    whole: tuple[float, float], t0: float | None, t1: float | None
) -> tuple[float, float]:
    """From ``t0`` to ``t1`` ns, where None stands for that end of ``whole``.

    Raises UsageError if it would not end after its start.
    """
    low = whole[0] if t0 is None else t0
    high = whole[1] if t1 is None else t1
    if high <= low:
        raise UsageError(
            f"from {low:g} to {high:g} ns: the end must lie after the start"
        )
    return low, high


def covered(starts: Array, ends: Array, t0: float, t1: float) -> float:
    """How much of t0 to t1 (ns) lies in at least one of some spans.

    The spans may overlap; they must be sorted by their start.
    """
    low = starts.clip(t0, t1)
    high = ends.clip(t0, t1)
    reached = np.maximum.accumulate(np.append(t0, high))[:-1]
    return float(np.maximum(high - np.maximum(low, reached), 0.0).sum())


def launched_ns(trace: Trace) -> float:
    """For how long at least one launch ran, of those that have ended.

    It is ``launch_ns`` of ``kernbench run --json``.
    """
    spans = sorted((launch.t_start, launch.t_end) for launch in trace.launches)
    if not spans:
        return 0.0
    starts, ends = np.array(spans).T
    return covered(starts, ends, float(starts[0]), float(ends.max()))

"""Spans of time: the window that a question is about, how much of one is covered."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Array, numbered
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
    return _covered_by(_ended(trace), 0.0, np.inf)


def running_ns(trace: Trace) -> float:
    """For how long at least one launch ran, whether or not it has ended.

    One that has not is known by the calls of its kernels, and lasts until the end of
    the trace. Of a part of a trace only its window counts.
    """
    t0, t1 = recorded_between(trace)
    return _covered_by(_ended(trace) + launches_not_ended(trace), t0, t1)


def running_between(trace: Trace) -> tuple[float, float]:
    """From when to when launches ran, ns, as ``running_ns``; of none the whole run."""
    t0, t1 = recorded_between(trace)
    spans = _ended(trace) + launches_not_ended(trace)
    if not spans:
        return t0, t1
    starts, ends = np.array(spans).T
    begin = min(max(float(starts.min()), t0), t1)
    return begin, max(min(float(ends.max()), t1), begin)


def recorded_between(trace: Trace) -> tuple[float, float]:
    """From when to when a trace knows what the run did, ns.

    Of a part that is its window, else all of the run.
    """
    known = trace.window
    if known is None:
        return 0.0, trace.end_ns
    begin = min(max(known.t0, 0.0), trace.end_ns)
    return begin, max(min(known.t1, trace.end_ns), begin)


def part_of_run(trace: Trace) -> str:
    """What a trace has of its run, in words; nothing where that is all."""
    if trace.window is not None:
        return (
            f"a part of a run, {trace.window.text}: ops that reach into it count whole"
        )
    if (trace.end or {}).get("error"):
        return "an error ended the run: this is up to there"
    return cut_off(trace)


def cut_off(trace: Trace) -> str:
    """That a recording has not come to its end, in words; of one that has nothing.

    Some of its logs may reach further than others: they are written in turn.
    """
    if trace.complete:
        return ""
    return "the run was killed, or still goes on: this is what its trace has"


def _ended(trace: Trace) -> list[tuple[float, float]]:
    """When each launch that has ended began, and when it ended."""
    return [(launch.t_start, launch.t_end) for launch in trace.launches]


def launches_not_ended(trace: Trace) -> list[tuple[float, float]]:
    """When each launch that has not ended made its first call, and when the trace
    ends, ns.
    """
    log = trace.commands
    launch = log.launch[:]
    ended = [one.launch for one in trace.launches]
    calls = np.flatnonzero((launch >= 0) & ~np.isin(launch, ended))
    launches, which = numbered(launch[calls])
    began = np.full(len(launches), np.inf)
    np.minimum.at(began, which.reshape(-1), log.t_issue[calls])
    return [(begin, trace.end_ns) for begin in began.tolist()]


def _covered_by(spans: list[tuple[float, float]], t0: float, t1: float) -> float:
    """How much of t0 to t1 (ns) lies in at least one of some spans, in any order."""
    if not spans:
        return 0.0
    starts, ends = np.array(sorted(spans)).T
    return covered(starts, ends, max(t0, starts[0]), max(min(t1, ends.max()), t0))

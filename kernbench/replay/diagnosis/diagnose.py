"""Which of it first: what is wrong, odd or slow, as one list or as its two halves."""

from __future__ import annotations

from threading import Event

from kernbench.common.progress import (
    Cancelled,
    Progress,
    begun_beside,
    computed_beside,
    stage,
    wait_shortly,
)
from kernbench.replay.diagnosis.addresses import repeated_addresses
from kernbench.replay.diagnosis.calls import odd_calls
from kernbench.replay.diagnosis.findings import Diagnosis, Finding, ranked
from kernbench.replay.diagnosis.lines import telling_lines
from kernbench.replay.diagnosis.slow import gains, waits
from kernbench.replay.diagnosis.wrong import wrong
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.races.findings import MOST_EXECUTED


def diagnose(index: Index, at: At, args: NoArguments, progress: Progress) -> Diagnosis:
    """What is wrong, odd or slow, the most urgent first.

    Of a long run the causal profile, which takes longest, is found beside the rest.
    """
    # What belongs to the thread of another lane is made anew for this one.
    other = Index(index.trace)
    if len(index.ops) <= MOST_EXECUTED:
        is_wrong = wrong(index, stage(progress, 0.0, 0.4))
        is_slow = diagnose_time(other, at, args, stage(progress, 0.4, 1.0))
        return ranked(is_wrong, is_slow)
    is_given_up = Event()

    def goes_on(done: float) -> None:
        if is_given_up.is_set():
            raise Cancelled

    profiled = begun_beside(lambda: gains(Index(index.trace), goes_on))
    try:
        is_wrong = wrong(index, stage(progress, 0.0, 0.3))
        rest = _but_gains(other, stage(progress, 0.3, 0.6))
        while wait_shortly(profiled):
            progress(0.6)
    except BaseException:
        is_given_up.set()
        raise
    return ranked(is_wrong, Diagnosis((*profiled.result(), *rest)))


def diagnose_data(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> Diagnosis:
    """What is wrong."""
    return Diagnosis(wrong(index, progress))


def diagnose_time(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> Diagnosis:
    """What is slow, and what is odd."""
    faster = gains(index, stage(progress, 0.0, 0.5))
    return Diagnosis((*faster, *_but_gains(index, stage(progress, 0.5, 1.0))))


def _but_gains(index: Index, progress: Progress) -> list[Finding]:
    """What the run waits for, and what is odd."""
    trace = index.trace
    lines = computed_beside(lambda: telling_lines(trace), progress, 0.0)
    is_odd = odd_calls(trace, *lines, stage(progress, 0.0, 0.2))
    index.history.prepare(stage(progress, 0.2, 0.4))
    is_odd += repeated_addresses(index, *lines, stage(progress, 0.4, 0.5))
    return [*waits(index, stage(progress, 0.5, 1.0)), *is_odd]

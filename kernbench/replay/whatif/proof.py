"""Claims about what would happen, proved by running again with one thing changed.

What runs is given from outside (``Rerun``), since replay simulates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kernbench.common.progress import Progress
from kernbench.errors import UsageError
from kernbench.replay.text import time_text, wrapped
from kernbench.replay.time.roofline import Bound
from kernbench.replay.whatif.answers import CausalProfile, LaunchChange, Prediction
from kernbench.trace import Trace

BEYOND_NS = 10.0
"""By how much more than its slack an op is delayed, to see whether the end moves."""

FOREVER_NS = 10_000.0
"""By how much an op is delayed that the end does not wait for."""

_AS_TOLD_NS = 1.0
"""Slack is as told if it is so within this."""


class Rerun(Protocol):
    """Runs the trace that is looked at again, and records that."""

    def __call__(
        self, spec: Sequence[str], delays: Sequence[tuple[int, float]], /
    ) -> Path:
        """The new trace, of a run with some fields of its machine changed and some ops
        held back.

        ``spec`` are FIELD=VALUE, ``delays`` positions of ops with ns. KernbenchError if
        it cannot be run again, is not deterministic, or does not end as recorded.
        """


@dataclass(frozen=True, slots=True)
class Delayed:
    """By how much the end of the launches moved since an op was held back; ns."""

    delay_ns: float
    moved_ns: float


@dataclass(frozen=True, slots=True)
class ProvedBound:
    """The bound of an op, and what its slack is worth.

    ``within`` was held back by just the slack, ``beyond`` by BEYOND_NS more. ``ok``
    says that the slack is as told: the first does not move the end, the second does.
    Where the end does not wait for the op it is held back for long, and ``beyond`` is
    None.
    """

    bound: Bound
    within: Delayed
    beyond: Delayed | None
    ok: bool

    def lines(self, width: int) -> list[str]:
        """As text: the bound, what both re-runs gave, the verdict."""
        lines = self.bound.lines(width)
        for trial in (self.within, self.beyond):
            if trial is None or trial.delay_ns == 0:
                continue
            delay = f"re-run with {time_text(trial.delay_ns)} of delay"
            moved = f"the end moves by {time_text(trial.moved_ns)}"
            lines += wrapped(f"{delay}: {moved}", width, 2)
        lines.append(f"slack {self._verdict()}")
        return lines

    def _verdict(self) -> str:
        """Whether the slack is as told, and what is wrong with it."""
        if self.ok:
            return "as told"
        if self.within.moved_ns > _AS_TOLD_NS:
            return "NOT as told: the end moves within it"
        return "NOT as told: there is more of it"


def prove_prediction(prediction: Prediction, rerun: Rerun) -> Prediction:
    """A prediction with what a re-run gives; raises what ``rerun`` raises."""
    new = Trace.open(rerun(prediction.changed, ()))
    real = {launch.launch: launch for launch in new.launches}
    launches = []
    for told in prediction.launches:
        if told.launch in real:
            span = real[told.launch]
            launches.append(
                LaunchChange(
                    told.launch,
                    told.kernel,
                    told.recorded_ns,
                    span.t_end - span.t_start,
                )
            )
    return replace(prediction, proved_ns=new.end_ns, proved_launches=tuple(launches))


def prove_profile(
    profile: CausalProfile, rerun: Rerun, count: int, progress: Progress
) -> CausalProfile:
    """A profile whose first ``count`` gains that a change can prove are proved.

    Raises what ``rerun`` raises.
    """
    gains = []
    proved = 0
    for gain in profile.gains:
        if gain.change and proved < count:
            progress(proved / count)
            path = rerun((gain.change,), ())
            gain = replace(gain, proved_ns=Trace.open(path).end_ns)
            proved += 1
        gains.append(gain)
    return replace(profile, gains=tuple(gains))


def prove_slack(
    trace: Trace, bound: Bound, rerun: Rerun, progress: Progress
) -> ProvedBound:
    """The slack of an op, tried out; raises what ``rerun`` raises."""
    op = bound.op.op
    if bound.slack == math.inf:
        within = _delayed(trace, op, FOREVER_NS, rerun)
        return ProvedBound(bound, within, None, within.moved_ns <= _AS_TOLD_NS)
    within = Delayed(0.0, 0.0)
    if bound.slack > 0:
        within = _delayed(trace, op, bound.slack, rerun)
    progress(0.5)
    beyond = _delayed(trace, op, bound.slack + BEYOND_NS, rerun)
    holds_still = within.moved_ns <= _AS_TOLD_NS
    moves = beyond.moved_ns >= BEYOND_NS - _AS_TOLD_NS
    return ProvedBound(bound, within, beyond, holds_still and moves)


def _delayed(trace: Trace, op: int, delay_ns: float, rerun: Rerun) -> Delayed:
    """What holding an op back does to the end of the launches."""
    new = Trace.open(rerun((), ((op, delay_ns),)))
    return Delayed(delay_ns, _end_of_launches(new) - _end_of_launches(trace))


def _end_of_launches(trace: Trace) -> float:
    """When the last launch ended, ns; of no launch when the run did."""
    return max((launch.t_end for launch in trace.launches), default=trace.end_ns)


def needed(rerun: Rerun | None) -> Rerun:
    """``rerun``; UsageError that says what to do where there is none."""
    if rerun is None:
        raise UsageError(
            "nothing here can run the trace again; prove it with `kernbench trace`"
        )
    return rerun

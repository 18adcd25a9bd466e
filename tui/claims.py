"""What a re-run can prove: a prediction of what a change of the machine does, or how
long an op can be held back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kernbench.errors import UsageError
from kernbench.replay.text import time_text
from kernbench.replay.time.roofline import Bound
from kernbench.replay.whatif.answers import Gain, LaunchChange, Prediction
from kernbench.trace import Trace

_TICKS_A_NS = 1024
"""The simulator's clock goes by these."""
_LATER_NS = 100.0
"""For so long an op is held back that has no slack: the end has to move by as much."""
_NO_SERVERS = "slack is of what was waited for; it does not know what else would wait"


@dataclass(frozen=True, slots=True)
class Claim:
    """A prediction, and the options of ``kernbench rerun`` that prove it."""

    prediction: Prediction
    options: tuple[str, ...]

    @property
    def title(self) -> str:
        """What is changed, in words."""
        return ", ".join(self.prediction.changed)


def claim_of(answer: Any, end_ns: float) -> Claim | None:
    """What an answer claims of a run that ended at ``end_ns``; None if nothing that a
    re-run can prove.
    """
    match answer:
        case Prediction(changed=changed) if changed:
            return Claim(answer, _spec_options(changed))
        case Gain(change=change) if change:
            return claim_of(_prediction_of(answer), end_ns)
        case Bound(slack=slack) if slack * _TICKS_A_NS < 1:
            return delayed(answer, _LATER_NS, end_ns)
        case Bound(slack=slack) if slack < math.inf:
            return delayed(answer, slack, end_ns)
    return None


def delayed(bound: Bound, ns: float, end_ns: float) -> Claim:
    """What the slack of an op says of holding it back for ``ns``: what is more than
    that is added to the end.

    UsageError for a time that is not more than a tick of the simulator.
    """
    ticks = math.floor(ns * _TICKS_A_NS)
    if ticks < 1:
        raise UsageError(f"delay {time_text(ns)}: must be more than 0")
    held_ns = ticks / _TICKS_A_NS
    op = bound.op
    prediction = Prediction(
        changed=(f"op {op.op:,} {op.name} {time_text(held_ns)} later",),
        end_ns=end_ns,
        predicted_ns=end_ns + max(held_ns - bound.slack, 0.0),
        sure=False,
        why=_NO_SERVERS,
        launches=(),
    )
    return Claim(prediction, ("--delay", f"op {op.op}", f"{held_ns!r}ns"))


def proved(claim: Claim, old: Trace, new: Trace) -> Prediction:
    """The prediction beside what the re-run, ``new``, gave; ``old`` is the trace that
    it repeats.
    """
    real = {launch.launch: launch.t_end - launch.t_start for launch in new.launches}
    changes = []
    for launch in old.launches:
        if launch.launch in real:
            recorded = launch.t_end - launch.t_start
            change = LaunchChange(
                launch.launch, launch.kernel, recorded, real[launch.launch]
            )
            changes.append(change)
    return replace(
        claim.prediction, proved_ns=new.end_ns, proved_launches=tuple(changes)
    )


def _spec_options(changed: Iterable[str]) -> tuple[str, ...]:
    """Fields of the machine, as ``kernbench rerun`` takes them."""
    return tuple(word for field in changed for word in ("--spec", field))


def _prediction_of(gain: Gain) -> Prediction:
    """A row of the causal profile as a prediction."""
    return Prediction(
        changed=(gain.change,),
        end_ns=gain.end_ns,
        predicted_ns=gain.predicted_ns,
        sure=gain.sure,
        why=gain.why,
        launches=(),
    )

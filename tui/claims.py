"""What a re-run can prove of a trace, and what it says then.

A claim is a typed value: a prediction of what a change of the machine does, the first
rows of the causal profile, the slack of an op, or what that says of a longer delay;
and races, of which it is claimed that the order matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kernbench.errors import UsageError
from kernbench.replay.commands import HAZARDS, WHATIF
from kernbench.replay.progress import no_progress
from kernbench.replay.races.findings import Findings
from kernbench.replay.races.prove import prove_findings
from kernbench.replay.text import time_text
from kernbench.replay.time.roofline import Bound
from kernbench.replay.whatif.answers import CausalProfile, Prediction
from kernbench.replay.whatif.proof import (
    ProvedBound,
    Rerun,
    prove_prediction,
    prove_profile,
    prove_slack,
)
from kernbench.trace import Trace


@dataclass(frozen=True, slots=True)
class Delay:
    """An op, of which the slack is known, begins ``ns`` later."""

    bound: Bound
    ns: float


@dataclass(frozen=True, slots=True)
class FirstGains:
    """The first ``count`` rows of a causal profile."""

    profile: CausalProfile
    count: int


@dataclass(frozen=True, slots=True)
class FirstRaces:
    """The first ``count`` races of some findings."""

    findings: Findings
    count: int


Claim: TypeAlias = Prediction | Bound | Delay | FirstGains | FirstRaces
Proved: TypeAlias = Prediction | ProvedBound | CausalProfile | Findings


def race_of(findings: Findings, number: int) -> FirstRaces:
    """Finding ``number`` of some, from 1; UsageError if it is not there, or no race."""
    if not 1 <= number <= len(findings.rows):
        raise UsageError(
            f"race {number}: there are {len(findings.rows):,} hazards, counted from 1"
        )
    row = findings.rows[number - 1]
    if not row.is_race:
        raise UsageError(f"race {number}: {row.kind}, which no delay can turn")
    return FirstRaces(replace(findings, rows=(row,)), 1)


def slack_of(bound: Bound) -> Bound:
    """The slack of the op; UsageError for one of which nothing is said."""
    if bound.slack == math.inf:
        raise UsageError(
            f"op {bound.op.op:,} ends after the launches, so nothing is claimed of it"
        )
    return bound


def delay_of(bound: Bound, ns: float) -> Delay:
    """A delay of the op; UsageError for a time that is not more than 0, and for an op
    of which slack says nothing.
    """
    if ns <= 0:
        raise UsageError(f"delay {time_text(ns)}: must be more than 0")
    return Delay(slack_of(bound), ns)


def claim_of(answer: Any) -> Claim | None:
    """What an answer claims that a re-run can prove; None if that is nothing."""
    match answer:
        case Prediction():
            return answer
        case Bound(slack=slack) if slack < math.inf:
            return answer
        case CausalProfile(gains=gains) if any(gain.change for gain in gains):
            return FirstGains(answer, WHATIF.args().first)
        case Findings(rows=rows) if any(row.is_race for row in rows):
            return FirstRaces(answer, HAZARDS.args().first)
    return None


def title_of(claim: Claim) -> str:
    """What a claim is about, in some words."""
    match claim:
        case Prediction(changed=changed):
            return ", ".join(changed)
        case Bound(op=row, slack=slack):
            return f"slack of op {row.op:,}, {time_text(slack)}"
        case Delay(bound=bound, ns=ns):
            return f"op {bound.op.op:,} {bound.op.name} {time_text(ns)} later"
        case FirstRaces(findings=Findings(rows=(row,))):
            return f"the race of {' and '.join(row.sites)}"
        case FirstRaces(count=count):
            return f"the first {count} races"
    return f"the first {claim.count} of what if"


def prove(claim: Claim, trace: Trace, rerun: Rerun) -> Proved:
    """What a claim predicts of ``trace`` beside what re-runs give; raises what
    ``rerun`` raises.
    """
    match claim:
        case Prediction():
            return prove_prediction(claim, rerun)
        case Bound():
            return prove_slack(trace, claim, rerun, no_progress)
        case Delay(bound=bound, ns=ns):
            predicted = _prediction_of(claim, trace.end_ns)
            delays = ((bound.op.op, ns),)
            return prove_prediction(predicted, lambda *_: rerun((), delays))
        case FirstRaces(findings=findings, count=count):
            return prove_findings(trace, findings, rerun, count, no_progress)
    return prove_profile(claim.profile, rerun, claim.count, no_progress)


def proved_ends(proved: Proved) -> dict[str, float]:
    """By a change of one field when the re-run with it ended, ns."""
    match proved:
        case Prediction(changed=(change,), proved_ns=float(end_ns)):
            return {change: end_ns}
        case CausalProfile(gains=gains):
            ends = {gain.change: gain.proved_ns for gain in gains}
            return {change: ns for change, ns in ends.items() if ns is not None}
    return {}


def _prediction_of(delay: Delay, end_ns: float) -> Prediction:
    """What slack says of a delay: what is more than it is added to the end."""
    beyond = max(delay.ns - delay.bound.slack, 0.0)
    return Prediction(
        changed=(title_of(delay),),
        end_ns=end_ns,
        predicted_ns=end_ns + beyond,
        sure=delay.bound.sure,
        why=delay.bound.why,
        launches=(),
    )

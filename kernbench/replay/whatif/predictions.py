"""When a run would end with fields of its machine changed, and how sure that is."""

from __future__ import annotations

from functools import partial

import numpy as np

from kernbench.common.arrays import Floats
from kernbench.common.exact_time import SAME_NS
from kernbench.common.progress import Progress, computed_beside, forwards, stage
from kernbench.replay.whatif.answers import LaunchChange, Prediction
from kernbench.replay.whatif.certainty import LEAST_SHARE
from kernbench.replay.whatif.doubts import (
    HELD,
    NEVER_ENDED,
    as_channels_serve,
    order_of,
    why_order_changes,
    why_other_times_are_unsure,
    why_refreshed_otherwise,
)
from kernbench.replay.whatif.fields import Change, with_changes
from kernbench.replay.whatif.known import KnownRun, alone
from kernbench.replay.whatif.machine import Machine


def prediction(
    known: KnownRun, changes: tuple[Change, ...], progress: Progress
) -> Prediction:
    """When the run would end with some changes, and each launch.

    UsageError for a value that there is not.
    """
    trace = known.trace
    spec = with_changes(known.spec, changes)
    find = partial(known.on, spec, changes)
    machine, weight = computed_beside(find, progress, 0.0)
    one = alone(weight)
    kept = known.batches.walk(one, stage(progress, 0.0, 0.3))[:, 0]
    part = stage(progress, 0.3, 0.5)
    order = order_of(known, kept, weight, part)
    served = as_channels_serve(known, order, one, part)
    times = kept[:, None] if served is None else served
    why = _why_unsure_by_nature(changes)
    if not why and known.has_no_end and changes:
        why = NEVER_ENDED
    if not why:
        rest = stage(progress, 0.5, 0.7)
        why = why_order_changes(known, order, one, machine, rest, in_turns=True)
    if not why and spec != known.spec:
        rest = stage(progress, 0.7, 1.0)
        times, why = _as_served(known, machine, weight, times, rest)
    launches = _launches(known, times[:, 0])
    end = float(known.ends(times)[0])
    is_same = end == trace.end_ns and all(
        launch.recorded_ns == launch.predicted_ns for launch in launches
    )
    return Prediction(
        changed=tuple(change.text for change in changes),
        end_ns=trace.end_ns,
        predicted_ns=end,
        sure=not why,
        why=why or _why_nothing_changes(changes, is_same),
        launches=launches,
    )


def _as_served(
    known: KnownRun, machine: Machine, weight: Floats, kept: Floats, progress: Progress
) -> tuple[Floats, str]:
    """Times by place, and of one scenario, if each server takes who comes first; and
    why these are unsure, "" if they are not.

    They are those of ``kept`` of a large graph, where re-timing in turns does not
    explain what was recorded, and where it comes to the same.
    """
    found: list[float] | None = None
    if known.is_small:
        turns = known.turns(progress)
        found = turns.on(machine, weight, forwards(stage(progress, 0.2, 1.0)))
    if found is None:
        return kept, why_refreshed_otherwise(known, machine)
    came = np.array(found)
    place = known.batches.place
    is_other = np.isfinite(came) & (np.abs(came - kept[place, 0]) > SAME_NS)
    times = kept.copy()
    times[place[is_other], 0] = came[is_other]
    if np.array_equal(times[place, 0], known.graph.times):
        return times, ""
    why = why_other_times_are_unsure(known, in_turns=True)
    if why:
        return times, why
    held_ns = known.holds.held(times[:, 0], machine)
    if held_ns > LEAST_SHARE * known.mean_span(times[:, 0]):
        return times, HELD
    return times, ""


def _launches(known: KnownRun, times: Floats) -> tuple[LaunchChange, ...]:
    """How long each launch takes, in the order of their numbers."""
    spans = known.spans(times).tolist()
    found = [
        LaunchChange(
            launch=launch.launch,
            kernel=launch.kernel,
            recorded_ns=launch.t_end - launch.t_start,
            predicted_ns=span,
        )
        for launch, span in zip(known.trace.launches, spans, strict=True)
    ]
    found.sort(key=lambda launch: launch.launch)
    return tuple(found)


def _why_unsure_by_nature(changes: tuple[Change, ...]) -> str:
    """Why no prediction of some changes is sure; "" if one may be."""
    fields = [change.field for change in changes if change.field.role == "unsure"]
    return "; ".join(f"{field.path} {field.why}" for field in fields)


def _why_nothing_changes(changes: tuple[Change, ...], is_same: bool) -> str:
    """Why some changes change nothing; "" where they do."""
    if not is_same:
        return ""
    reasons = []
    for change in changes:
        why = change.field.why or "nothing in this run waits for it"
        reasons.append(f"{change.field.path} changes nothing: {why}")
    return "; ".join(reasons)

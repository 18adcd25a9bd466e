"""The causal profile: by how much sooner a run would end if one thing were faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Floats
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.replay.whatif.answers import CausalProfile, Gain, How
from kernbench.replay.whatif.bounds import longest_path
from kernbench.replay.whatif.doubts import (
    NEVER_ENDED,
    as_channels_serve,
    order_of,
    why_order_changes,
    why_refreshed_otherwise,
)
from kernbench.replay.whatif.fields import (
    Change,
    all_fields,
    parse_change,
    value_of,
    with_changes,
)
from kernbench.replay.whatif.known import KnownRun, alone
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.predictions import prediction
from kernbench.replay.whatif.walk import Scenarios

LEAST_NS = 0.5
"""Gains below this many ns are not told."""

_BLOCK_BYTES = 9 << 26
"""Of the times of a block of scenarios."""

_FEW_EDGES = 1 << 14
_FIRST = 5
"""In a profile of a graph of at most so many edges so many of the largest gains are
predicted one by one.
"""

_NO_PROOF = "no re-run can make one line of a kernel faster"


class _Scenario(NamedTuple):
    """One thing that is faster: the machine, its weights by class, and the line."""

    what: str
    is_line: bool
    how: How
    change: str
    machine: Machine
    weight: Floats
    line: int
    factor: float


def causal_profile(
    known: KnownRun, least_ns: float, progress: Progress
) -> CausalProfile:
    """What every field and every kernel line alone would gain.

    Those are left out that cannot save ``least_ns``, twice as fast or free.
    """
    scenarios = list(_scenarios(known, stage(progress, 0.0, 0.12)))
    scenarios = _worth_a_walk(known, scenarios, least_ns, stage(progress, 0.12, 0.14))
    rest = stage(progress, 0.14, 0.86)
    size = max(_BLOCK_BYTES // (8 * max(known.graph.nodes, 1)), 1)
    gains: list[Gain] = []
    for low in range(0, len(scenarios), size):
        some = scenarios[low : low + size]
        part = stage(rest, low / len(scenarios), (low + len(some)) / len(scenarios))
        gains += _gains(known, some, part)
    gains.sort(key=_largest_first)
    if len(known.graph.cause) <= _FEW_EDGES:
        _predict_first(known, gains, stage(progress, 0.86, 1.0))
        gains.sort(key=_largest_first)
    return CausalProfile(known.trace.end_ns, tuple(gains))


def _largest_first(gain: Gain) -> tuple[float, str, str]:
    return (gain.predicted_ns, gain.what, gain.how)


# -- what is faster --------------------------------------------------------------------


def _scenarios(known: KnownRun, progress: Progress) -> Iterator[_Scenario]:
    """Every field and every kernel line, twice as fast, and free."""
    fields = [field for field in all_fields().values() if field.role == "timed"]
    for number, field in enumerate(fields):
        value = value_of(known.spec, field.path)
        hows: tuple[tuple[How, float | None], ...] = (
            ("2x", field.faster(value)),
            ("free", field.free(value)),
        )
        for how, better in hows:
            if better is None:
                continue
            text = f"{field.path}={better!r}"
            find = partial(_with, known, Change(field, better, text))
            machine, weight = computed_beside(find, progress, number / len(fields))
            if not np.array_equal(weight, known.weight):
                yield _Scenario(field.path, False, how, text, machine, weight, -1, 1.0)
    used = computed_beside(lambda: np.unique(known.graph.line), progress, 1.0)
    for line in used[used >= 0].tolist():
        what = known.graph.lines[line]
        same = known.machine, known.weight
        yield _Scenario(what, True, "2x", "", *same, line, 0.5)
        yield _Scenario(what, True, "free", "", *same, line, 0.0)


def _with(known: KnownRun, change: Change) -> tuple[Machine, Floats]:
    """The machine with one field changed, and its weights."""
    return known.on(with_changes(known.spec, (change,)), (change,))


def _worth_a_walk(
    known: KnownRun, scenarios: list[_Scenario], least_ns: float, progress: Progress
) -> list[_Scenario]:
    """The scenarios of what can save that much, by the longest path."""
    path = longest_path(known.graph, known.weight, progress)
    saved: dict[str, float] = {}
    for scenario in scenarios:
        most = path.most_saved(scenario.weight, scenario.line, scenario.factor)
        saved[scenario.what] = max(most, saved.get(scenario.what, 0.0))
    return [scenario for scenario in scenarios if saved[scenario.what] >= least_ns]


# -- what it gains ---------------------------------------------------------------------


def _gains(
    known: KnownRun, some: list[_Scenario], progress: Progress
) -> Iterator[Gain]:
    """What some scenarios gain; those that gain nothing are left out."""
    end_ns = known.trace.end_ns
    stack = partial(np.stack, [scenario.weight for scenario in some], 1)
    weights = computed_beside(stack, progress, 0.0)
    lines = np.array([scenario.line for scenario in some])
    factors = np.array([scenario.factor for scenario in some])
    together = Scenarios(weights, lines, factors)
    times = known.batches.walk(together, stage(progress, 0.0, 0.7))
    ends = computed_beside(partial(known.ends, times), progress, 0.7)
    for number, scenario in enumerate(some):
        rest = stage(progress, 0.7 + 0.3 * number / len(some), 1.0)
        end = float(ends[number])
        why = _NO_PROOF
        if not scenario.is_line:
            own = partial(np.ascontiguousarray, times[:, number])
            of_this = computed_beside(own, rest, 0.0)
            end, why = _of_field(known, scenario, of_this, end, rest)
        if end_ns - end < LEAST_NS:
            continue
        yield Gain(
            what=scenario.what,
            kind="line" if scenario.is_line else "field",
            how=scenario.how,
            change=scenario.change,
            end_ns=end_ns,
            predicted_ns=end,
            sure=not why,
            why=why,
        )


def _of_field(
    known: KnownRun, scenario: _Scenario, times: Floats, end: float, progress: Progress
) -> tuple[float, str]:
    """When the run ends with a field changed, and why that is unsure; "" if it is sure,
    or gains nothing.

    ``times`` are those of a walk in the recorded order, which ends at ``end``.
    """
    one = alone(scenario.weight)
    order = order_of(known, times, scenario.weight, progress)
    served = as_channels_serve(known, order, one, progress)
    if served is not None:
        end = float(known.ends(served)[0])
    if known.trace.end_ns - end < LEAST_NS:
        return end, ""
    if known.has_no_end:
        return end, NEVER_ENDED
    machine = scenario.machine
    why = why_order_changes(known, order, one, machine, progress)
    return end, why or why_refreshed_otherwise(known, machine)


def _predict_first(known: KnownRun, gains: list[Gain], progress: Progress) -> None:
    """Put what is predicted of a field alone in place of the first gains of fields."""
    of_fields = [at for at, gain in enumerate(gains) if gain.kind == "field"]
    for number, at in enumerate(of_fields[:_FIRST]):
        gain = gains[at]
        part = stage(progress, number / _FIRST, (number + 1) / _FIRST)
        told = prediction(known, (parse_change(gain.change),), part)
        gains[at] = replace(
            gain, predicted_ns=told.predicted_ns, sure=told.sure, why=told.why
        )

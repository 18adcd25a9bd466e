"""Screening: all points are predicted from recorded runs, and only the best are run.

A prediction re-times a recorded run on another machine. What changes the program, or
the structure of the machine, cannot be re-timed; so there is one recorded run for each
combination of the parameters, the seed, and the fields that no prediction is sure of.
Where only fields of time are varied, that is a single one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.whatif import WhatIfIndex
from kernbench.replay.whatif.fields import parse_change
from kernbench.sweep.point import simulated
from kernbench.sweep.recording import has_ended_well
from kernbench.sweep.show import as_yaml, trace_path
from kernbench.sweep.space import Point, Space
from kernbench.sweep.store import Row, replace_file
from kernbench.sweep.table import value_of
from kernbench.trace import Trace

PREDICTIONS = "predictions.jsonl"
COLUMN = "end_ns"
"""The column that is predicted."""

Note: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Predicted:
    """A point, and when its run ends by the prediction."""

    key: str
    point: Point
    end_ns: float
    is_sure: bool

    def line(self, ran_ns: float | None) -> bytes:
        """As a line of JSON, beside when its run ended; None if it was not run."""
        data = {
            "key": self.key,
            "set": dict(self.point.params),
            "spec": dict(self.point.spec),
            "seed": self.point.seed,
            "predicted_ns": self.end_ns,
            "sure": self.is_sure,
            "end_ns": ran_ns,
        }
        return json.dumps(data).encode() + b"\n"


class Screening:
    """Predicts the points of a space, and says afterwards how far off that was.

    It owns the predictions: ``found``, of all points that could be predicted, those
    that end soonest first, and ``recorded``, how many runs they are from.
    """

    def __init__(self, space: Space, folder: Path, count: int, note: Note) -> None:
        """The best ``count`` points are to be run; ``note`` hears how far it is.

        UsageError for a first objective that cannot be predicted.
        """
        first = space.objectives[0]
        if (first.column, first.direction) != (COLUMN, "min"):
            raise UsageError(
                f"--screen: only the least {COLUMN} can be predicted, so it has to be "
                f"the first of the objectives, not the {first}"
            )
        self.count = count
        self.found: list[Predicted] = []
        self.recorded = 0
        self._space = space
        self._folder = folder
        self._note = note
        self._asked = 0

    def best(self, points: Mapping[str, Point]) -> dict[str, Point]:
        """Predict all points, and choose those that end soonest.

        KernbenchError if none can be predicted, as no run to begin with ends well.
        """
        self._asked = len(points)
        groups: dict[str, dict[str, Point]] = {}
        for key, point in points.items():
            groups.setdefault(_alike(point), {})[key] = point
        for group in groups.values():
            self._predict(group)
        if not self.found:
            raise KernbenchError("--screen: no point can be run to predict others from")
        self.found.sort(key=lambda predicted: (predicted.end_ns, predicted.key))
        return {
            predicted.key: predicted.point for predicted in self.found[: self.count]
        }

    def report(self, rows: Sequence[Row]) -> list[str]:
        """Write all predictions to the folder; how far off those of ``rows`` are."""
        ran = {row.key: value_of(row, COLUMN) for row in rows}
        lines = [predicted.line(ran.get(predicted.key)) for predicted in self.found]
        replace_file(self._folder / PREDICTIONS, b"".join(lines))
        sure = sum(predicted.is_sure for predicted in self.found)
        runs = "1 recorded run" if self.recorded == 1 else f"{self.recorded:,} runs"
        said = [
            f"{len(self.found):,} points predicted from {runs}, {sure:,} of them "
            f"surely; {self._folder / PREDICTIONS}"
        ]
        missing = self._asked - len(self.found)
        if missing:
            said.append(f"{missing:,} points cannot be predicted, and were not run")
        errors = [
            abs(predicted.end_ns / ran[predicted.key] - 1)
            for predicted in self.found
            if ran.get(predicted.key)
        ]
        if errors:
            said.append(
                f"the predicted {COLUMN} of the {len(errors):,} that were run is off "
                f"by {median(errors):.2%} in the median, {max(errors):.2%} at most"
            )
        return said

    def _predict(self, group: Mapping[str, Point]) -> None:
        """Predict points from a run of the first of them that ends well."""
        for base_key, base in group.items():
            self._note(
                f"{len(self.found):,} of {self._asked:,} points predicted, recording"
            )
            path = trace_path(self._folder, base_key)
            try:
                if not has_ended_well(path):
                    simulated(self._space.bench, self._space.options, base, path)
            except KernbenchError:
                continue
            break
        else:
            return
        self.recorded += 1
        index = WhatIfIndex(Trace.open(path))
        for key, point in group.items():
            try:
                answer = index.predict(_changes(base, point))
            except UsageError:  # a machine that cannot be
                continue
            self.found.append(Predicted(key, point, answer.predicted_ns, answer.sure))
            self._note(f"{len(self.found):,} of {self._asked:,} points predicted")


def _alike(point: Point) -> str:
    """What points have in common that are predicted from one run."""
    fixed: dict[str, Any] = {**point.params, "": point.seed}
    for name, value in point.spec.items():
        if parse_change(f"{name}=0").field.role == "unsure":
            fixed[f"spec.{name}"] = value
    return json.dumps(fixed, default=repr)


def _changes(base: Point, point: Point) -> list[str]:
    """The fields in which a point is another machine, as ``whatif`` takes them."""
    return [
        f"{name}={as_yaml(value)}"
        for name, value in point.spec.items()
        if value != base.spec[name]
    ]

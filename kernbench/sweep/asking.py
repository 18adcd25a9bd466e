"""Points that Optuna asks for, each after it was told what came of earlier ones.

Which points these are depends on the order in which they come back, so with more than
one worker a sweep that is started again need not end with the same ones. With one it
does: Optuna is asked for the points of the folder anew, and told what came of each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from kernbench.errors import KernbenchError, UsageError
from kernbench.sweep.axes import Axis
from kernbench.sweep.draw import Draw
from kernbench.sweep.keys import Keys
from kernbench.sweep.space import Point, Space
from kernbench.sweep.store import Row
from kernbench.sweep.table import is_right, value_of

_TRIES = 200
"""So many times Optuna may ask for what it knows, or what the conditions exclude."""


class Asked:
    """A ``Source`` of ``draw.points`` different points.

    Those that a folder has count, and Optuna is told of them: when it asks for one, and
    of what is left when it asks for the first that is not there. There are fewer if
    Optuna finds no others.
    """

    def __init__(self, space: Space, draw: Draw, done: Mapping[str, Row]) -> None:
        """UsageError if Optuna is not installed."""
        try:
            import optuna
        except ImportError:
            raise UsageError(
                "--optuna needs Optuna: pip install 'kernbench[optuna]'"
            ) from None
        self._optuna = optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=draw.seed, constant_liar=True)
        ways = optuna.study.StudyDirection
        by_name = {"min": ways.MINIMIZE, "max": ways.MAXIMIZE}
        self._study = optuna.create_study(
            directions=[by_name[o.direction] for o in space.objectives],
            sampler=sampler,
        )
        self._space = space
        self._keys = Keys(space)
        self._most = draw.points
        self._varied = [axis for axis in space.axes if axis.is_varied]
        self._trials: dict[str, Any] = {}
        self._rows: dict[str, Row] = {}
        self._untold: dict[str, dict[str, Any]] = {}
        for key in sorted(done):
            params = self._params_of(done[key])
            if params is not None:
                self._rows[key] = done[key]
                self._untold[key] = params
        self._found = list(self._rows.values())

    def next(self) -> tuple[str, Point] | None:
        """A point that Optuna has not asked for yet; None after ``draw.points``."""
        tries = _TRIES
        while tries and len(self._rows) + len(self._trials) < self._most:
            trial = self._study.ask(self._distributions())
            point = self._point(trial.params)
            if not self._space.holds(point):
                self._tell_failed(trial)
                tries -= 1
                continue
            key = self._keys.of(point)
            if key in self._rows:
                self._tell(trial, self._rows[key])
                if self._untold.pop(key, None) is None:
                    tries -= 1
            elif key in self._trials:
                self._tell_failed(trial)
                tries -= 1
            else:
                self._tell_what_is_untold()
                self._trials[key] = trial
                return key, point
        return None

    def told(self, row: Row) -> None:
        """Tell Optuna what came of a point that it has asked for."""
        self._tell(self._trials.pop(row.key), row)
        self._rows[row.key] = row

    def found(self) -> Iterable[Row]:
        """The rows of this space that the folder had."""
        return self._found

    def had(self) -> Iterable[str]:
        """Those that were found, and those that have come back."""
        return self._rows

    def _tell(self, trial: Any, row: Row) -> None:
        values = self._values(row)
        if values is None:
            self._tell_failed(trial)
        else:
            self._study.tell(trial, values)

    def _tell_failed(self, trial: Any) -> None:
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def _values(self, row: Row) -> list[float] | None:
        """What the objectives are in a row; None if it is not right."""
        values = [value_of(row, o.column) for o in self._space.objectives]
        if not is_right(row) or any(value is None for value in values):
            return None
        return [float(value) for value in values]

    def _distributions(self) -> dict[str, Any]:
        """What Optuna may ask for on each axis: a number, or which of its values."""
        of = self._optuna.distributions
        found: dict[str, Any] = {}
        for axis in self._varied:
            if axis.values is None:
                found[axis.name] = of.FloatDistribution(axis.low, axis.high)
            elif all(isinstance(value, int | float) for value in _ends(axis)):
                found[axis.name] = of.IntDistribution(0, len(axis.values) - 1)
            else:
                found[axis.name] = of.CategoricalDistribution(range(len(axis.values)))
        return found

    def _point(self, params: Mapping[str, Any]) -> Point:
        """The point that Optuna asks for."""
        values = []
        for axis in self._space.axes:
            asked = params.get(axis.name, 0)
            values.append(asked if axis.values is None else axis.values[asked])
        return self._space.point(values)

    def _params_of(self, row: Row) -> dict[str, Any] | None:
        """What Optuna would have asked for to get a row of the folder; None if that is
        not of this space.
        """
        given = row.point.values()
        if list(given) != [axis.name for axis in self._space.axes]:
            return None
        params = {}
        for axis in self._space.axes:
            value = given[axis.name]
            if axis.values is None:
                if not axis.low <= value <= axis.high:
                    return None
                params[axis.name] = value
            elif value in axis.values:
                params[axis.name] = axis.values.index(value)
            else:
                return None
        if not self._space.holds(row.point) or not self._is_key_of(row):
            return None
        return params

    def _tell_what_is_untold(self) -> None:
        """Tell Optuna of the rows of the folder that it has not asked for."""
        distributions = self._distributions()
        for key, params in self._untold.items():
            values = self._values(self._rows[key])
            if values is not None:
                self._study.add_trial(
                    self._optuna.trial.create_trial(
                        params={name: params[name] for name in distributions},
                        distributions=distributions,
                        values=values,
                    )
                )
        self._untold.clear()

    def _is_key_of(self, row: Row) -> bool:
        """Whether a row would come out the same now."""
        try:
            return self._keys.of(row.point) == row.key
        except KernbenchError:
            return False


def _ends(axis: Axis) -> tuple[Any, ...]:
    """The values of an axis by which its kind is known; those of a range are alike."""
    if isinstance(axis.values, range):
        return (axis.values[0],)
    return tuple(axis.values or ())

"""An axis of a space: a name, and the values that it may have.

In YAML that is one value, a list of them, or a range: ``{from: 64, to: 512, step: 64}``
by steps, ``{from: 1, to: 16, factor: 2}`` by factors, ``{from: 0.5, to: 2, count: 7}``
evenly, and ``{from: 0.5, to: 2}`` any number between, or any whole one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from kernbench.errors import UsageError

Part: TypeAlias = Literal["set", "spec", "seed"]
Number: TypeAlias = int | float

MOST_VALUES = 1_000_000
"""An axis of listed numbers has no more; one of whole numbers may."""

_FIELDS = ("from", "to", "step", "factor", "count")


@dataclass(frozen=True, slots=True)
class Axis:
    """The values of one parameter, field of the machine, or seed.

    ``values`` is None of a continuous axis, which has all numbers from ``low`` to
    ``high``.
    """

    part: Part
    name: str
    values: Sequence[Any] | None
    low: float = 0.0
    high: float = 0.0

    @property
    def is_varied(self) -> bool:
        """Whether points may differ in it."""
        return self.values is None or len(self.values) > 1

    @property
    def label(self) -> str:
        """The name as a message has it."""
        return self.name if self.part == "seed" else f"{self.part}: {self.name}"

    def at(self, share: float) -> Any:
        """The value at a share, from 0 up to but not 1, of the way along the axis."""
        if self.values is None:
            return self.low + share * (self.high - self.low)
        return self.values[int(share * len(self.values))]


def read_axis(part: Part, name: str, given: Any) -> Axis:
    """The axis that YAML gives; UsageError if that is none."""
    axis = Axis(part, name, ())
    if isinstance(given, Mapping):
        return _read_range(axis, given)
    values = given if isinstance(given, list) else [given]
    if not values:
        raise UsageError(f"{axis.label}: no values, so the space is empty")
    for value in values:
        if not isinstance(value, str | int | float | None):
            raise UsageError(
                f"{axis.label}: a value is one number, text or truth value, not a "
                f"{type(value).__name__}"
            )
    return Axis(part, name, tuple(values))


def _read_range(axis: Axis, given: Mapping[Any, Any]) -> Axis:
    """An axis from its ends and how to go from one to the other."""
    unknown = [str(key) for key in given if key not in _FIELDS]
    if unknown or not {"from", "to"} <= given.keys() or len(given) > 3:
        raise UsageError(
            f"{axis.label}: a range has from and to, and step, factor, count or none "
            f"of them, not {', '.join(map(str, given)) or 'nothing'}"
        )
    numbers = {key: _number(axis, key, value) for key, value in given.items()}
    low = numbers["from"]
    high = numbers["to"]
    if low > high:
        raise UsageError(
            f"{axis.label}: from {low} to {high} has no values, so the space is empty"
        )
    if "factor" in numbers:
        return _listed(axis, _by_factor(axis, low, high, numbers["factor"]))
    if "count" in numbers:
        return _listed(axis, _evenly(axis, low, high, numbers["count"]))
    is_whole = all(isinstance(number, int) for number in numbers.values())
    if not is_whole and "step" not in numbers:
        return Axis(axis.part, axis.name, None, float(low), float(high))
    step = numbers.get("step", 1)
    if step <= 0:
        raise UsageError(f"{axis.label}: step {step}: must be more than 0")
    if isinstance(low, int) and isinstance(high, int) and isinstance(step, int):
        return Axis(axis.part, axis.name, range(low, high + 1, step))
    return _listed(axis, _by_step(axis, low, high, step))


def _number(axis: Axis, key: str, value: Any) -> Number:
    """A finite number of a range; YAML 1.1 takes 1e3 for a text."""
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not abs(number) <= 1e15:
        raise UsageError(
            f"{axis.label}: {key}: must be a number up to 1e15, not {value!r}"
        )
    finite: Number = number
    return finite


def _listed(axis: Axis, values: list[Number]) -> Axis:
    return Axis(axis.part, axis.name, tuple(values))


def _check_count(axis: Axis, count: float) -> int:
    """UsageError for more values than a list may have, or for none."""
    if not 1 <= count <= MOST_VALUES:
        raise UsageError(
            f"{axis.label}: {count:,.0f} values; a range of fractions has from 1 to "
            f"{MOST_VALUES:,}"
        )
    return int(count)


def _exact(number: Number) -> Decimal:
    """A number as it is written: 0.1 is a tenth, which the float is not quite."""
    return Decimal(str(number))


def _by_step(axis: Axis, low: Number, high: Number, step: Number) -> list[Number]:
    """As decimals, so that 0.1 and 0.2 are followed by 0.3."""
    first = _exact(low)
    width = _exact(step)
    steps = (_exact(high) - first) // width
    count = _check_count(axis, float(steps) + 1)
    return [float(first + i * width) for i in range(count)]


def _by_factor(axis: Axis, low: Number, high: Number, factor: Number) -> list[Number]:
    """From ``low`` on, each times ``factor``, as decimals: 0.1, 0.3, 0.9.

    Whole numbers stay whole.
    """
    if low <= 0 or factor <= 1:
        raise UsageError(
            f"{axis.label}: a range by factors begins above 0, and its factor is more "
            "than 1"
        )
    _check_count(axis, math.log(high / low) / math.log(factor) + 1)
    is_whole = isinstance(low, int) and isinstance(factor, int)
    last = _exact(high)
    times = _exact(factor)
    values: list[Number] = []
    exact = _exact(low)
    while exact <= last:
        values.append(int(exact) if is_whole else float(exact))
        exact *= times
    return values


def _evenly(axis: Axis, low: Number, high: Number, count: Number) -> list[Number]:
    """So many numbers, of which the first and the last are the ends."""
    if not isinstance(count, int) or count < 2:
        raise UsageError(f"{axis.label}: count {count}: must be 2 or more, and whole")
    last = _check_count(axis, count) - 1
    has_whole_ends = isinstance(low, int) and isinstance(high, int)
    first = _exact(low)
    width = _exact(high) - first
    values: list[Number] = []
    for i in range(count):
        exact = first + width * i / last
        is_whole = has_whole_ends and exact == int(exact)
        values.append(int(exact) if is_whole else float(exact))
    return values

"""The rows of a sweep as a table, and which of them are not beaten by any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernbench.sweep.columns import COLUMNS
from kernbench.sweep.space import Objective, Point
from kernbench.sweep.store import Row

_OF_RESULTS = (*COLUMNS, "notes", "wrong", "error")
"""The names of columns that no parameter can have."""


def is_right(row: Row) -> bool:
    """Whether a point has a result, and nothing was found wrong with it."""
    return row.result is not None and bool(row.result["ok"])


def values_of(point: Point) -> dict[str, Any]:
    """What a point was, by column.

    That is the name, or ``set.ops`` of a parameter ``ops``: results have ``ops``, too.
    """
    found = {}
    for name, value in point.values().items():
        column = f"set.{name}" if name in _OF_RESULTS else name
        found[column] = value
    return found


def value_of(row: Row, column: str) -> Any:
    """What a row has in a column of results, or of ``values_of``; None: nothing."""
    found = {"error": row.error, **values_of(row.point)}
    if row.result is not None:
        found |= row.result
        if column.startswith("ops_by_kind."):
            found.setdefault(column, 0)
    return found.get(column)


def as_record(row: Row) -> dict[str, Any]:
    """A row as one flat record: key, what it was, what came of it."""
    parts = {
        **{f"set.{name}": value for name, value in row.point.params.items()},
        **{f"spec.{name}": value for name, value in row.point.spec.items()},
    }
    return {
        "key": row.key,
        **parts,
        "seed": row.point.seed,
        **(row.result or {}),
        "error": row.error,
    }


def pareto(rows: Sequence[Row], objectives: Sequence[Objective]) -> list[int]:
    """The numbers of the rows that are right and that no other one beats, in order.

    One row beats another if it is as good in every objective, and better in one. Equal
    rows beat each other in none, so all of them are in it.
    """
    numbers = []
    scores = []
    for number, row in enumerate(rows):
        values = [value_of(row, objective.column) for objective in objectives]
        if not is_right(row) or any(value is None for value in values):
            continue
        pairs = zip(objectives, values, strict=True)
        numbers.append(number)
        scores.append([objective.badness(value) for objective, value in pairs])
    if not numbers:
        return []
    table = np.array(scores, np.float64)
    front: list[int] = []
    for i in np.lexsort(table.T[::-1]).tolist():
        # A row is beaten only by one that comes before it in this order.
        best = table[front]
        as_good = (best <= table[i]).all(axis=1)
        better = (best < table[i]).any(axis=1)
        if not (as_good & better).any():
            front.append(i)
    return sorted(numbers[i] for i in front)

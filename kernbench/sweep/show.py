"""A folder of results as people read it: tables, and the command of each row.

The number of a row is that of its line in ``points.jsonl`` once the sweep has ended; it
does not depend on how a table is sorted.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kernbench.errors import RefusedError, UsageError
from kernbench.sweep.space import Objective, Point, RunOptions
from kernbench.sweep.store import POINTS, SWEEP, TRACES, Row, read_rows
from kernbench.sweep.table import as_record, is_right, pareto, value_of, values_of

_MOST_ERROR = 60
"""So many characters of an error are in a table."""


@dataclass(frozen=True, slots=True)
class Results:
    """What is in a folder: the rows, sorted by key, and what they have in common."""

    folder: Path
    bench: str
    objectives: tuple[Objective, ...]
    options: RunOptions
    rows: tuple[Row, ...]

    def front(self) -> list[int]:
        """The indices of the rows on the Pareto front, by the first objective."""
        found = pareto(self.rows, self.objectives)
        return sorted(found, key=self._rank)

    def _rank(self, index: int) -> float:
        objective = self.objectives[0]
        return objective.badness(value_of(self.rows[index], objective.column))

    def varied(self) -> list[str]:
        """The columns of parameters, fields and the seed in which rows differ."""
        points = [values_of(row.point) for row in self.rows]
        names = dict.fromkeys(name for values in points for name in values)
        return [
            name
            for name in names
            if len({repr(values.get(name)) for values in points}) > 1
        ]

    def sorted_by(self, column: str, is_reversed: bool = False) -> list[int]:
        """The indices of all rows by a column; those that have nothing in it are last.

        UsageError lists the columns.
        """
        values = [value_of(row, column) for row in self.rows]
        if all(value is None for value in values):
            raise UsageError(
                f"no column {column!r}; valid: {', '.join(self.columns())}"
            )
        having = [i for i, value in enumerate(values) if value is not None]
        lacking = [i for i, value in enumerate(values) if value is None]
        having.sort(key=lambda i: _sortable(values[i]), reverse=is_reversed)
        return having + lacking

    def columns(self) -> list[str]:
        """The names of all columns that a table may have."""
        found: dict[str, None] = {}
        for row in self.rows:
            of_result = list(row.result or ["error"])
            found |= dict.fromkeys([*values_of(row.point), *of_result])
        return list(found)

    def row(self, number: int) -> Row:
        """A row by its number, from 1 on; UsageError if there is none."""
        if not 1 <= number <= len(self.rows):
            raise UsageError(f"row {number}: there are rows 1 to {len(self.rows):,}")
        return self.rows[number - 1]

    def trace_path(self, row: Row) -> Path:
        """Where the trace of a row is, once it is recorded."""
        return trace_path(self.folder, row.key)

    def command(self, row: Row) -> str:
        """The command that runs a row again and records its trace."""
        words = ["kernbench", "run", self.bench]
        words += _options(self.options)
        words += _pairs("--set", row.point.params, as_it_is=True)
        words += _pairs("--spec", row.point.spec)
        words += ["--seed", str(row.point.seed)]
        words += ["--trace", str(self.trace_path(row))]
        return shlex.join(words)

    def records(self, indices: Iterable[int]) -> list[dict[str, Any]]:
        """Rows as flat records, each with its number and its command."""
        front = set(pareto(self.rows, self.objectives))
        return [
            {
                "row": i + 1,
                "front": i in front,
                **as_record(self.rows[i]),
                "command": self.command(self.rows[i]),
            }
            for i in indices
        ]

    def title(self) -> str:
        """What was run, how much of it, and what is best."""
        failed = sum(row.error is not None for row in self.rows)
        right = sum(map(is_right, self.rows))
        wrong = len(self.rows) - right - failed
        wanted = ", ".join(map(str, self.objectives))
        return (
            f"{self.bench}: {len(self.rows):,} points, {failed:,} failed, {wrong:,} "
            f"with wrong data; wanted: {wanted}"
        )


def trace_path(folder: Path, key: str) -> Path:
    """Where the trace of the point with a key is, once it is recorded."""
    return folder / TRACES / f"{key[:16]}.msgpack"


def read_results(folder: Path) -> Results:
    """What is in a folder; KernbenchError if no sweep has written there."""
    path = folder / SWEEP
    try:
        about = json.loads(path.read_bytes())
        objectives = tuple(
            Objective(column, direction)
            for column, direction in about["objectives"].items()
        )
        options = RunOptions(
            topology=about["topology"],
            ccl=about["ccl"],
            plugins=tuple(about["plugins"]),
            verify=about["verify"],
            max_ns=about["max_ns"],
            max_ops=about["max_ops"],
        )
        bench = str(about["bench"])
    except OSError as error:
        raise RefusedError(f"{path}: no results there: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RefusedError(
            f"{path} is damaged; start the sweep again, its points are kept"
        ) from None
    rows = read_rows(folder / POINTS).rows
    ordered = tuple(rows[key] for key in sorted(rows))
    return Results(folder, bench, objectives, options, ordered)


def table_lines(
    results: Results, indices: Sequence[int], more: Sequence[str] = ()
) -> list[str]:
    """A table of rows, ``*`` before those on the Pareto front; two lines a row.

    The second line of a row is its command. The columns are what rows differ in, the
    objectives, and ``more``.
    """
    objectives = [objective.column for objective in results.objectives]
    columns = list(dict.fromkeys([*results.varied(), *objectives, *more]))
    front = set(pareto(results.rows, results.objectives))
    cells = [["row", *columns]]
    for i in indices:
        values = [value_of(results.rows[i], column) for column in columns]
        mark = "*" if i in front else ""
        cells.append([f"{mark}{i + 1}", *map(_shown, values)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(cells[0], widths)]
    for i, row in zip(indices, cells[1:], strict=True):
        lines.append(f"{_line(row, widths)}{_problem(results.rows[i])}")
        lines.append(f"    {results.command(results.rows[i])}")
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "  ".join(cell.rjust(width) for cell, width in pairs)


def _problem(row: Row) -> str:
    """What is wrong with a row, at the end of its line."""
    if is_right(row):
        return ""
    text = row.error or str((row.result or {}).get("wrong"))
    text = " ".join(text.split())
    if len(text) > _MOST_ERROR:
        text = f"{text[: _MOST_ERROR - 1]}…"
    return f"  {text}"


def _shown(value: Any) -> str:
    """A value as a cell has it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e-3 else f"{value:,.6g}"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return str(value)


def _sortable(value: Any) -> tuple[int, Any]:
    """Numbers before texts."""
    if isinstance(value, int | float):
        return 0, value
    return 1, str(value)


def _options(options: RunOptions) -> list[str]:
    """The options of ``kernbench run`` that all rows have."""
    words = []
    for name, path in (("--topology", options.topology), ("--ccl", options.ccl)):
        if path is not None:
            words += [name, path]
    for path in options.plugins:
        words += ["--plugin", path]
    if not options.verify:
        words.append("--no-verify")
    if options.max_ns is not None:
        words += ["--max-ns", str(options.max_ns)]
    if options.max_ops is not None:
        words += ["--max-ops", str(options.max_ops)]
    return words


def _pairs(option: str, values: Any, as_it_is: bool = False) -> list[str]:
    """``--set`` and what follows it: as plain text, or as YAML has it.

    A parameter that is None has its default, which a text could not say.
    """
    pairs = []
    for name, value in values.items():
        if value is not None:
            text = str(value) if as_it_is else as_yaml(value)
            pairs.append(f"{name}={text}")
    return [option, *pairs] if pairs else []


def as_yaml(value: Any) -> str:
    """A value that YAML reads as just that one: 1.0e-05 where Python has 1e-05."""
    return yaml.safe_dump(value, width=10**6).splitlines()[0]


def point_text(point: Point, columns: Sequence[str]) -> str:
    """A point in a line, by these columns."""
    values = values_of(point)
    return " ".join(f"{column}={values.get(column)}" for column in columns)

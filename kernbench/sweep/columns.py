"""The columns of a point's results: what is one number or truth value in
``kernbench run --json``.
"""

from __future__ import annotations

from typing import Any

from kernbench.errors import UsageError
from kernbench.runtime_api import RunResult

_BY_KIND = "ops_by_kind"

COLUMNS = (
    *("end_ns", "launch_ns", "energy_j", "energy_static_j", "bytes_moved", "ops"),
    *("tile_stages", "verified", "warnings", "ok"),
)
"""The columns that every result has; ``ops_by_kind.gemm`` and its like come beside."""


def columns_of(result: RunResult) -> dict[str, Any]:
    """The columns of a run, and under ``wrong`` what is wrong with its data, if it is.

    ``notes`` are what the bench itself measured, a line each.
    """
    summary = result.summary()
    columns = {name: _plain(summary[name]) for name in COLUMNS}
    kinds = summary[_BY_KIND].items()
    columns |= {f"{_BY_KIND}.{kind}": count for kind, count in sorted(kinds)}
    if result.notes:
        columns["notes"] = list(result.notes)
    if result.error is not None:
        columns["wrong"] = result.error
    return columns


def _plain(value: Any) -> Any:
    """A number as Python has it; JSON knows none of numpy's."""
    return value.item() if hasattr(value, "item") else value


def check_column(what: str, column: str) -> None:
    """UsageError, which begins with ``what``, if results have no such column."""
    if column not in COLUMNS and not column.startswith(f"{_BY_KIND}."):
        valid = ", ".join((*COLUMNS, f"{_BY_KIND}.gemm"))
        raise UsageError(f"{what}: no column {column!r}; valid: {valid}")
